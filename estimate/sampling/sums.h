/*
 * Sums of PM samples: all that an estimate of each kernel's metrics needs of the samples of a
 * GPU's performance monitors that fell on it. The agent joins samples with kernels as they come and
 * keeps these sums only (estimate/sampling/join.h); estimate/sampling/solve.h solves them.
 *
 * A sample is the mean of a metric over a window of some 25 us. A column is a piece of time whose
 * value is asked for: a part of the k-th kernel of a layer in a phase of every step, or the gap
 * behind it. With x the share of a window that each column took and y the sample, the sums are
 * those of x x' and x y over windows. They add: those of a session are the sum of its captures'.
 */
#ifndef PP_ESTIMATE_SAMPLING_SUMS_H
#define PP_ESTIMATE_SAMPLING_SUMS_H

#include "common/error.h"
#include "common/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PP_SAMPLING_METRICS = PP_METRIC_SAMPLED_COUNT, /**< by pp_metric */
    PP_SAMPLING_CLOCK = PP_METRIC_SM_CLOCK,
};

/** The SMs' monitors tell shares of cycles, and a cycle's length differs from kernel to kernel: on
 * an H200 at 1980 MHz products of matrices run at 1.63 to 1.73 GHz, of which NVML's reading says
 * nothing. In a sample that a fast and a slow kernel share, the one counts for more than its time.
 * So where samples tell their clock sums are of rates, a share times the clock over this one: rates
 * add by time. A kernel's share is its rate over its own clock. */
#define PP_SAMPLING_RATED_GHZ 2.0

/** Whether sums of a metric are of rates where the clock is known. */
bool pp_sampling_is_of_cycles(int metric);

/** Variance of samples from which on a metric varies. */
#define PP_SAMPLING_VARIES 1e-8

typedef struct pp_sampling_key {
    uint32_t layer;  /**< 0: none, the phase is the step's */
    uint32_t kernel; /**< which one of the layer's in that phase of a step, from 0 */
    uint16_t part;   /**< of the kernel, by pp_sampling_part; of a gap 0,
                          PP_SAMPLING_RECOVERY, PP_SAMPLING_LAST, or of a copy or fill in
                          it, by pp_sampling_copy_of */
    uint8_t phase;   /**< docs/timing.md */
    bool gap;        /**< the time behind the kernel in which none ran */
} pp_sampling_key;

typedef struct pp_sampling_column {
    pp_sampling_key key;
    uint64_t like;  /**< of a kernel's part: pp_sampling_kernel's; 0 where they differ */
    uint64_t count; /**< how often it came */
    double time;    /**< ns, all of these together */
    double place;   /**< ns from the step's begin to its own, summed up over `count` */
    double share;   /**< sum of x */
    double held;    /**< the same of the windows that are held out */
    double rhs[PP_SAMPLING_METRICS]; /**< sums of x y */
} pp_sampling_column;

/** Sum of x x' of two columns, by their indices; a <= b. A window that lies 1 ns later gains what
 * runs at its end and loses what runs at its begin: `shift_a` is the sum of a's x times what b
 * takes more of the window then, `shift_b` the same the other way round; 0 where b is a. */
typedef struct pp_sampling_pair {
    uint32_t a, b;
    double sum;
    double shift_a, shift_b;
} pp_sampling_pair;

/** How samples of a capture are told by what others before it said of kernels: sums, which add. */
typedef struct pp_sampling_predicted {
    double n;         /**< samples of kernels and gaps that were known */
    double y, yy;     /**< of these, sum and sum of squares */
    double rest;      /**< sum of squares of sample less prediction */
    double items, z2; /**< layers in a phase; sum of squares of what their samples are off by,
                           over what that may be if captures do not differ ... */
    double squares;   /**< ... and of their values over the same */
    double gaps,
        gap_samples; /**< gaps of some us and more without a kernel, samples in these ... */
    double gap_y;    /**< ... their sum; and over gaps the sum ... */
    double gap_yy, gap_yn, gap_nn; /**< ... of squares of each one's sum, of that times its number,
                                        and of squares of its number */
} pp_sampling_predicted;

/**
 * Metrics that half of the capture's samples or more do not have, since the GPU does not offer
 * them, say, have `known` false and sums of 0. One window in eight steps' worth is held out of the
 * sums of products, to hold the estimates against.
 */
typedef struct pp_sampling_sums {
    pp_sampling_column *columns;
    size_t n;
    pp_sampling_pair *pairs;
    size_t n_pairs;
    bool known[PP_SAMPLING_METRICS];
    uint32_t captures; /**< merged ones count each */
    uint64_t windows, held_windows;
    double y[PP_SAMPLING_METRICS];  /**< sum of y */
    double yy[PP_SAMPLING_METRICS]; /**< sum of y squared */
    double held_y[PP_SAMPLING_METRICS];
    int64_t lag;        /**< ns: the samples' clock less the kernels', about the capture's middle */
    int64_t lag_stderr; /**< ns: what it is off by in this capture, and ... */
    int64_t lag_common; /**< ns: ... in all captures alike: standard errors */
    bool stamped;       /**< the lag is that of the samples' stamps */
    pp_sampling_predicted predicted[PP_SAMPLING_METRICS];
} pp_sampling_sums;

/** The first part of a long gap, behind a kernel that slows the SMs' clock down: it is not at once
 * as fast as before. */
enum { PP_SAMPLING_RECOVERY = 1 };

/** The last part of a long gap, before the next kernel. */
enum { PP_SAMPLING_LAST = 2 };

enum { PP_SAMPLING_COPY_PARTS = 5 }; /**< of a copy or a fill, by how far it is from its ends */

/** The pp_sampling_work that runs in the time behind a kernel; 0: none, or it is no such time. */
static inline unsigned pp_sampling_copy_of(const pp_sampling_key *key)
{
    return key->gap ? key->part / PP_SAMPLING_COPY_PARTS : 0;
}

/** How the i-th of n parts is called: near its end by how far it is from there, so that a kernel
 * that is cut into more parts one time calls the same part the same. Names are in order of time. */
static inline uint16_t pp_sampling_part(uint32_t i, uint32_t n)
{
    return (uint16_t)(i < n - n / 2 ? i : UINT16_MAX - (n - 1 - i));
}

/** Adds `from` to `into`: columns of the same key are one. A metric is known where both know it, so
 * better merge two that know the same.
 * `into` is as it was where memory is out. */
int pp_sampling_sums_merge(pp_sampling_sums *into, const pp_sampling_sums *from, pp_error *err);

/** NULL is allowed. */
void pp_sampling_sums_free(pp_sampling_sums *sums);

/** By layer, phase, kernel, gap behind it, part: as qsort() asks. */
int pp_sampling_key_compare(const pp_sampling_key *a, const pp_sampling_key *b);

/** Of two pp_sampling_pair, by their columns: for qsort(). */
int pp_sampling_pair_compare(const void *a, const void *b);

void pp_sampling_predicted_add(pp_sampling_predicted *to, const pp_sampling_predicted *from);

/** Adds what a pair has to one of the same columns. */
void pp_sampling_pair_add(pp_sampling_pair *to, const pp_sampling_pair *from);

/** Adds what a column has to one of the same key. */
void pp_sampling_column_add(pp_sampling_column *to, const pp_sampling_column *from);

#endif
