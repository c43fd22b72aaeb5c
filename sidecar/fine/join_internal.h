/* Shared by the files of sidecar/fine/join.h. */
#ifndef PP_FINE_JOIN_INTERNAL_H
#define PP_FINE_JOIN_INTERNAL_H

#include "sidecar/fine/join.h"

#include <stdbool.h>

struct pp_fine {
    int64_t period;          /* by which kernels are cut */
    int64_t sampled;         /* of the samples; that, or longer */
    pp_fine_kernel *kernels; /* sorted by start once joined */
    size_t n_kernels, kernels_max;
    pp_fine_sample *samples;
    size_t n_samples, samples_max;
};

/** The samples' clock less the kernels' at a time of the samples' clock. */
typedef struct pp_fine_line {
    int64_t middle; /* ns */
    double lag;     /* ns, there */
    double drift;   /* ns per ns */
    double stderr_ns;
} pp_fine_line;

/** Both sorted by start. PP_ERR_NOT_FOUND where they do not go together. */
int pp_fine_find_lag(const pp_fine *fine, const pp_fine_clock *clock, pp_fine_line *ret,
                     pp_error *err);

/** The number of a kernel of a step in which its layer has more or fewer than in nearly all others.
 */
#define PP_FINE_ODD UINT32_MAX

/** ret[i]: which one of its layer's in that phase of its step the i-th kernel is, in order of their
 * starts, whatever of other steps runs meanwhile; or PP_FINE_ODD. `kernels` are sorted. ret_kinds,
 * which may be NULL: a number, from 1 to *ret_n, that kernels of one layer, phase and number share.
 */
int pp_fine_number(const pp_fine *fine, uint32_t *ret, uint32_t *ret_kinds, size_t *ret_n,
                   pp_error *err);

/** Whether half of the samples have a metric: one that hardly any has is none. */
void pp_fine_find_known(const pp_fine *fine, bool known[PP_FINE_METRICS]);
/** Whether a sample has all that are known: else it does not count. */
bool pp_fine_has_known(const bool known[PP_FINE_METRICS], const pp_fine_sample *sample);

/** Variance from which on a metric varies. */
#define PP_FINE_VARIES 1e-8

/** Kernels by kind, and what samples say of kinds at a lag; refers to `fine`, whose kernels and
 * samples are sorted and not none. NULL where memory is out. */
typedef struct pp_fine_kinds pp_fine_kinds;
pp_fine_kinds *pp_fine_kinds_new(const pp_fine *fine, pp_error *err);
void pp_fine_kinds_free(pp_fine_kinds *kinds);

/** Of the kernel of that index; and one more than the greatest there is. 0: no kernel. */
uint32_t pp_fine_kind(const pp_fine_kinds *kinds, size_t kernel);
size_t pp_fine_kinds_count(const pp_fine_kinds *kinds);

/** Of each metric: pp_fine_find_known(). */
const bool *pp_fine_kinds_known(const pp_fine_kinds *kinds);

/** Whether kernels tell what ran at a time of theirs: false before the first and after the last,
 * and where steps are missing. *hint: 0, then where the time before, an earlier one, was found. */
bool pp_fine_told(const pp_fine_kinds *kinds, double t, size_t *hint);

/** The share of the samples' variance that kinds explain (adjusted R^2), where a sample is of the
 * kernel in its middle: the mean over the metrics that vary. At most 1; 0 or less: nothing. Of many
 * samples some thousands are taken, evenly over the stretch. */
double pp_fine_explained(pp_fine_kinds *kinds, double lag);

/** ret[kind]: mean of a metric in the samples of that kind; 0 where no kernel runs. */
void pp_fine_levels(pp_fine_kinds *kinds, int metric, const pp_fine_line *line, double *ret);

/** Sums of all samples that lie within the kernels' time. */
int pp_fine_sum(const pp_fine *fine, const pp_fine_line *line, pp_fine_sums **ret, pp_error *err);

#endif
