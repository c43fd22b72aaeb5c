/* Shared by the files of sidecar/fine/join.h. */
#ifndef PP_FINE_JOIN_INTERNAL_H
#define PP_FINE_JOIN_INTERNAL_H

#include "sidecar/fine/join.h"

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
 * starts, whatever of other steps runs meanwhile; or PP_FINE_ODD. `kernels` are sorted. */
int pp_fine_number(const pp_fine *fine, uint32_t *ret, pp_error *err);

/** Sums of all samples that lie within the kernels' time. */
int pp_fine_sum(const pp_fine *fine, const pp_fine_line *line, pp_fine_sums **ret, pp_error *err);

#endif
