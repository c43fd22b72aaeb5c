/*
 * Each kernel's metrics from sums of PM samples (estimate/sampling/sums.h). No I/O, no clock.
 *
 *     y = X b + e
 *
 * y is a sample, X the share of its window that each part of a kernel took (or the gap behind it),
 * b the parts' values. b has a prior: a part is like the next one of its kernel within 20 points of
 * the range, like the overlap-weighted mean of itself within 40, or within a share of both that the
 * samples tell; short gaps are 0 within 1 point, others what samples in gaps are. It decides where
 * the samples say nothing, and its width is in the standard errors there.
 *
 * The standard error of an item has four causes: what samples leave open to the prior, and their
 * noise; that captures differ, by a share of the value that all items tell together; and what the
 * lag's uncertainty does.
 */
#ifndef PP_ESTIMATE_SAMPLING_SOLVE_H
#define PP_ESTIMATE_SAMPLING_SOLVE_H

#include "common/error.h"
#include "estimate/sampling/sums.h"

/** A layer in a phase: all of its kernels together, weighted by time. */
typedef struct pp_sampling_item {
    uint32_t layer;
    uint8_t phase;
    double time;                      /**< ns of its kernels, in all captures */
    uint64_t kernels;                 /**< how many ran */
    double mean[PP_SAMPLING_METRICS]; /**< 0 to 1, of the SMs' clock GHz; NaN: not known */
    double stderr_of[PP_SAMPLING_METRICS];
    double per_ns[PP_SAMPLING_METRICS]; /**< by which the mean is too large for each ns that the lag
                                           is too long; of a first-order change */
} pp_sampling_item;

/** What speaks against a metric's values. */
typedef enum pp_sampling_doubt {
    PP_SAMPLING_FITS = 0,
    PP_SAMPLING_UNEXPLAINED, /**< kernels do not explain what is sampled */
    PP_SAMPLING_TENANT,      /**< it is not 0 where no kernel of ours runs: others use the GPU */
} pp_sampling_doubt;

/** How captures are told by those before them; NaN where there is none. */
typedef struct pp_sampling_quality {
    double explained; /**< share of their samples' variance */
    double miss;      /**< root mean square of prediction less sample, 0 to 1 */
    double items;     /**< layers in a phase that were predicted, each as often as it was */
    double items_z;   /**< root mean square of what they were off by over its standard error */
    double gap;       /**< mean of samples in gaps without a kernel, 0 to 1 */
    double gap_stderr;
    pp_sampling_doubt doubt;
} pp_sampling_quality;

typedef struct pp_sampling_result {
    pp_sampling_item *items; /**< by layer and phase */
    size_t n;
    uint64_t windows;
    bool stamped;      /**< most of these went by their samples' stamps ... */
    double lag_common; /**< ns: ... and what all of their lags are off by alike, standard error */
    double noise[PP_SAMPLING_METRICS];   /**< what is left of a sample, standard deviation */
    double between[PP_SAMPLING_METRICS]; /**< by which share of itself a value differs from capture
                                            to capture, standard deviation */
    double closure[PP_SAMPLING_METRICS]; /**< of the samples held out: the estimates' mean less
                                            theirs */
    double held[PP_SAMPLING_METRICS];    /**< their mean; NaN where none was held out */
    pp_sampling_quality quality[PP_SAMPLING_METRICS];
    size_t n_columns;                    /**< what is known of kernels' parts, and gaps ... */
    pp_sampling_key *keys;               /**< ... in order */
    double *values[PP_SAMPLING_METRICS]; /**< as sums have them: rates; NaN: not known */
} pp_sampling_result;

/** Parts of the solution, as bits: what each is worth shows where it is left out (program
 * sampling-errors). */
typedef enum pp_sampling_solution_part {
    PP_SAMPLING_LINKS = 1 << 0, /**< a part is like the one before it */
    PP_SAMPLING_GAPS = 1 << 1,  /**< long ones are like samples in gaps; without: 0 +- 20 points */
    PP_SAMPLING_SCALE = 1 << 2, /**< of the prior's widths, by the samples */
    PP_SAMPLING_DECIDED = 1 << 3, /**< columns that samples decide are not free for noise */
    PP_SAMPLING_BETWEEN = 1 << 4, /**< captures, in standard errors */
    PP_SAMPLING_LAG = 1 << 5,     /**< the lag, in standard errors */
    PP_SAMPLING_ALIKE = 1 << 6,   /**< kernels of a name and shape are like each other */
    PP_SAMPLING_WORK = 1 << 7,    /**< gaps in which something without a record ran are found */
} pp_sampling_solution_part;

/**
 * Solves the sums of `n` captures together, each metric's from those that know it.
 * PP_ERR_NOT_FOUND: there are no windows; PP_ERR_TOO_LARGE: kernels come in too many orders for the
 * solution to be kept.
 */
int pp_sampling_solve(const pp_sampling_sums *const *captures, size_t n, pp_sampling_result **ret,
                      pp_error *err);

/** The same without some parts, for benchmarks. */
int pp_sampling_solve_without(unsigned parts, const pp_sampling_sums *const *captures, size_t n,
                              pp_sampling_result **ret, pp_error *err);

/** NULL is allowed. */
void pp_sampling_result_free(pp_sampling_result *result);

#endif
