/* Shared by the files of estimate/sampling/join.h. */
#ifndef PP_ESTIMATE_SAMPLING_JOIN_INTERNAL_H
#define PP_ESTIMATE_SAMPLING_JOIN_INTERNAL_H

#include "estimate/sampling/join.h"

#include <stdbool.h>

struct pp_sampling {
    int64_t period;              /* by which kernels are cut */
    int64_t sampled;             /* of the samples; that, or longer */
    pp_sampling_kernel *kernels; /* sorted by start once joined */
    size_t n_kernels, kernels_max;
    pp_sampling_kernel *copies; /* and fills; once joined those stretches in which nothing else
                                   runs, sorted by start */
    size_t n_copies, copies_max;
    pp_sampling_sample *samples;
    size_t n_samples, samples_max;
};

/** The samples' clock less the kernels' at a time of the samples' clock. */
typedef struct pp_sampling_line {
    int64_t middle; /* ns */
    double lag;     /* ns, there */
    double drift;   /* ns per ns */
    double stderr_ns, drift_stderr;
    double common_ns; /* what it is off by, besides, in all captures alike: standard error */
    size_t pieces;    /* that it was put through */
    bool stamped;     /* by the samples' stamps */
} pp_sampling_line;

/** Both sorted by start. PP_ERR_NOT_FOUND where they do not go together, or clearly better at
 * another lag within some samples of the one that is used. */
int pp_sampling_find_lag(const pp_sampling *sampling, const pp_sampling_clock *clock,
                         pp_sampling_line *ret, pp_error *err);

/** A time of the samples' clock on the kernels'. */
static inline int64_t pp_sampling_shifted(const pp_sampling_line *line, int64_t t)
{
    return t - (int64_t)(line->lag + line->drift * (double)(t - line->middle));
}

/** ret[i]: GHz by which the SMs' clock is slower than where nothing runs, in samples that meet the
 * i-th kernel, times the ns in which they do; 0 where that is not known. Both are sorted. */
void pp_sampling_find_slower(const pp_sampling *sampling, const pp_sampling_line *line,
                             double *ret);

/** Cuts copies to the stretches in which no kernel runs, nor another one: fills and copies within
 * the GPU go first. Kernels are sorted by start. */
int pp_sampling_cut_copies(pp_sampling *sampling, pp_error *err);

/** ret: kernels and copies, sorted by start, these as kernels that no layer has; to be freed. */
int pp_sampling_mix(const pp_sampling *sampling, pp_sampling_kernel **ret, size_t *ret_n,
                    pp_error *err);

/** By start: for qsort(). */
int pp_sampling_compare_starts(const void *a, const void *b);

/** The number of a kernel of a step in which its layer has more or fewer than in nearly all others.
 */
#define PP_SAMPLING_ODD UINT32_MAX

/** ret[i]: which one of its layer's in that phase of its step the i-th kernel is, in order of their
 * starts, whatever of other steps runs meanwhile; or PP_SAMPLING_ODD. `kernels` are sorted.
 * ret_kinds, which may be NULL: a number, from 1 to *ret_n, that kernels of one layer, phase and
 * number share.
 */
int pp_sampling_number(const pp_sampling *sampling, uint32_t *ret, uint32_t *ret_kinds,
                       size_t *ret_n, pp_error *err);

/** Whether half of the samples have a metric: one that hardly any has is none. */
void pp_sampling_find_known(const pp_sampling *sampling, bool known[PP_SAMPLING_METRICS]);
/** Whether a sample has all that are known: else it does not count. */
bool pp_sampling_has_known(const bool known[PP_SAMPLING_METRICS], const pp_sampling_sample *sample);

/** *ret: by how much the samples' clock goes faster than the kernels', ns per ns, and its standard
 * error, where both tell the ticks of the GPU's timer; else false. Both are sorted. */
bool pp_sampling_drift_by_ticks(const pp_sampling *sampling, double *ret, double *ret_stderr);

/** The lag of a clock that is the likely one as the capture begins, in the middle of its samples,
 * of which there are some. Both are sorted. */
pp_sampling_line pp_sampling_line_of_stamps(const pp_sampling *sampling,
                                            const pp_sampling_clock *clock);

/** Kernels by kind, and what samples say of kinds at a lag; refers to `sampling`, whose kernels and
 * samples are sorted and not none. NULL where memory is out. */
typedef struct pp_sampling_kinds pp_sampling_kinds;
pp_sampling_kinds *pp_sampling_kinds_new(const pp_sampling *sampling, pp_error *err);
void pp_sampling_kinds_free(pp_sampling_kinds *kinds);

/** Of the kernel of that index; and one more than the greatest there is. 0: no kernel. */
uint32_t pp_sampling_kind(const pp_sampling_kinds *kinds, size_t kernel);
size_t pp_sampling_kinds_count(const pp_sampling_kinds *kinds);

/** Of each metric: pp_sampling_find_known(). */
const bool *pp_sampling_kinds_known(const pp_sampling_kinds *kinds);

/** Whether kernels tell what ran at a time of theirs: false before the first and after the last,
 * and where steps are missing. *hint: 0, then where the time before, an earlier one, was found. */
bool pp_sampling_told(const pp_sampling_kinds *kinds, double t, size_t *hint);

/** The share of the samples' variance that kinds explain (adjusted R^2), where a sample is of the
 * kernel in its middle: the mean over the metrics that vary. At most 1; 0 or less: nothing. Of many
 * samples some thousands are taken, evenly over the capture. */
double pp_sampling_explained(pp_sampling_kinds *kinds, double lag);

/** ret[kind]: mean of a metric in the samples of that kind; 0 where no kernel runs. */
void pp_sampling_levels(pp_sampling_kinds *kinds, int metric, const pp_sampling_line *line,
                        double *ret);

/** Sums of all samples that lie within the kernels' time, and how well `known` (NULL: nothing)
 * predicts these. */
int pp_sampling_sum(const pp_sampling *sampling, const pp_sampling_line *line,
                    const pp_sampling_result *known, pp_sampling_sums **ret, pp_error *err);

#endif
