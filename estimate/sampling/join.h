/*
 * Joins samples of a GPU's performance monitors with the kernels that ran meanwhile, into sums
 * (estimate/sampling/sums.h). No I/O, no clock: a capture's kernels and samples go in, in any
 * order, its sums come out.
 *
 * The two have clocks of their own, some ms apart and drifting by some parts per million. How far
 * apart is found from the data: the lag at which which kernel runs explains most of the samples,
 * piece by piece of the capture, and a line through these. Where that is near the lag of a clock by
 * which samples are likely to be stamped, it is that one as the capture begins, and drifts from
 * there as the stamps' ticks say.
 *
 * A kernel is cut into parts, by its mean length in the capture: short ones near its ends, where it
 * begins and runs out, and a sampling period each in between (docs/sampling.md).
 *
 * Copies and fills are work of the process's that is no kernel: while one runs and no kernel does,
 * it is no gap. That time has columns of its own, and no item: by the kernel before it and by what
 * it is. What runs beside kernels tells nothing, as copies by a GPU's copy engines do.
 *
 * Steps are to be whole, each with all of its kernels: these are counted to tell which is which.
 * Where a layer has as many in seven steps of eight or more, what it has in the others (an
 * exception was caught, and it began again) and their windows are left out.
 */
#ifndef PP_ESTIMATE_SAMPLING_JOIN_H
#define PP_ESTIMATE_SAMPLING_JOIN_H

#include "common/error.h"
#include "estimate/sampling/solve.h"

/** Of a capture; what comes past it is refused. */
#define PP_SAMPLING_MAX_KERNELS 400000
#define PP_SAMPLING_MAX_SAMPLES 200000
/** Columns and pairs that are kept; a capture whose kernels need more has no sums. */
#define PP_SAMPLING_MAX_COLUMNS 20000

typedef struct pp_sampling pp_sampling;

/** NULL where memory is out. `period`: ns between samples, 1 us at least. */
pp_sampling *pp_sampling_new(int64_t period);
void pp_sampling_free(pp_sampling *sampling);
/** How long samples take by now, ns, where that is longer than what pp_sampling_new() was told:
 * kernels are cut by that still. */
void pp_sampling_set_sampled(pp_sampling *sampling, int64_t period);

/** What runs. */
typedef enum pp_sampling_work {
    PP_SAMPLING_KERNEL = 0,
    PP_SAMPLING_FILL,       /**< by the SMs, mostly */
    PP_SAMPLING_COPY,       /**< within the GPU: the same */
    PP_SAMPLING_COPY_ACROSS /**< to or from the host or another GPU: by copy engines */
} pp_sampling_work;

typedef struct pp_sampling_kernel {
    int64_t start; /**< ns, the kernels' clock */
    int64_t end;
    int64_t step;
    uint32_t layer; /**< of kernels alone, as `phase` */
    uint8_t phase;
    uint8_t work;  /**< a pp_sampling_work */
    uint64_t like; /**< the same of kernels of one function and shape of launch; 0: not known */
} pp_sampling_kernel;

typedef struct pp_sampling_sample {
    int64_t start; /**< ns, the samples' clock */
    int64_t end;
    float values[PP_SAMPLING_METRICS]; /**< 0 to 1, of the SMs' clock GHz; NaN: not
                                          offered */
} pp_sampling_sample;

/** A kernel, a copy or a fill. PP_ERR_TOO_LARGE past the limit, of kernels as of the others,
 * PP_ERR_INVALID with a time that cannot be. */
int pp_sampling_add_kernel(pp_sampling *sampling, const pp_sampling_kernel *kernel, pp_error *err);
int pp_sampling_add_sample(pp_sampling *sampling, const pp_sampling_sample *sample, pp_error *err);

/** Forgets kernels and samples. */
void pp_sampling_clear(pp_sampling *sampling);

/** What has come, as it came; borrowed until the next call. */
typedef struct pp_sampling_input {
    int64_t period, sampled;           /**< ns: pp_sampling_new()'s, and how long samples take */
    const pp_sampling_kernel *kernels; /**< without ... */
    size_t n_kernels;
    const pp_sampling_kernel *copies; /**< ... copies and fills */
    size_t n_copies;
    const pp_sampling_sample *samples;
    size_t n_samples;
} pp_sampling_input;

pp_sampling_input pp_sampling_get_input(const pp_sampling *sampling);

/** Of a pp_sampling_clock: no lag is likely. */
#define PP_SAMPLING_NOT_LIKELY (INT64_C(1) << 60)

/** The metric whose edges tell the lag of a piece (SM activity: docs/sampling.md), and where the
 * lag of the capture may lie, which all metrics tell. */
typedef struct pp_sampling_clock {
    int metric;
    int64_t lag;    /**< ns: a first guess of the samples' clock less the kernels' */
    int64_t range;  /**< ns: how far off the guess may be */
    int64_t likely; /**< ns: the lag of a clock that samples may be stamped by, as the capture
                       begins. It is taken where one near it goes together best, or as well as
                       others; of no account out of the range */
    bool stamped;   /**< captures before it went by that one: it takes clearly more to leave it */
    int64_t error;  /**< ns, of studies: the lag that is used is by so much too long */
} pp_sampling_clock;

/**
 * The capture's sums; the next begins empty. `known`: what captures before it said, which its
 * samples are predicted by; NULL: nothing yet. PP_ERR_NOT_FOUND where samples and kernels do not go
 * together at any lag, or there are too few; PP_ERR_TOO_LARGE with too many columns.
 */
int pp_sampling_join(pp_sampling *sampling, const pp_sampling_clock *clock,
                     const pp_sampling_result *known, pp_sampling_sums **ret, pp_error *err);

#endif
