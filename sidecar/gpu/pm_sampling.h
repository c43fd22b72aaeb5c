/*
 * Samples of a GPU's performance monitors every 20 to 250 us: CUPTI's PM sampling, which sees the
 * device as a whole, whichever process uses it. The driver and a CUPTI of CUDA 12.6 or later (with
 * libnvperf_host and libnvperf_target beside it) come by dlopen, with declarations of our own.
 *
 * It takes root or CAP_SYS_ADMIN, or a driver that lets everybody (RmProfilingAdminOnly: 0), and a
 * GPU has one such session at a time. While one is open the driver may hold the GPU's clocks.
 *
 * Decoding a sample takes 15 to 80 us of a processor, by host and number of metrics, and evaluating
 * it about as much (measured on H200s with CUDA 13.0's CUPTI; docs/sampling.md): at 25 us a period
 * there is time for the one or the other in one thread, not for both. So the caller's thread
 * decodes into an image, while a thread of this library evaluates the one before and then gives it
 * back. A capture may be of any length, in bounded memory:
 *
 *   pp_pm_start    pp_pm_poll every 1 to 2 ms, pp_pm_take as one likes    pp_pm_stop    pp_pm_take
 *
 * CUPTI decodes all that there is, and loses samples for good where an image or the hardware's
 * buffer has no room left. So the next image is taken when one is full to three quarters, or has no
 * room for another decode like the last. A decode finds what came in the pause before it and while
 * the last one ran, at 25 us 0.8 of what that one found: this goes to 5 times the pause's samples.
 * With polls every ms that is 200, every 2 ms 400, for which the last quarter of 2,048 has room;
 * every 20 ms it is 4,000. Towards a period as long as decoding takes it has no end, and samples
 * get lost: pp_pm_decode_ns tells, pp_pm_set_period helps. Where samples got lost, what was decoded
 * before is right; the next capture begins with a new session.
 *
 * Measured there too: pp_pm_open takes 0.5 to 1.3 s and needs no CUDA context; pp_pm_start 1 to 190
 * ms, 490 to 590 ms with a new session; CUPTI's part of pp_pm_stop 2 to 30 ms. Trainings' steps get
 * no longer by it (28.00 and 28.01 ms).
 *
 * Of one handle's functions one runs at a time: they are not thread-safe.
 */
#ifndef PP_SIDECAR_GPU_PM_SAMPLING_H
#define PP_SIDECAR_GPU_PM_SAMPLING_H

#include "common/error.h"
#include "common/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PP_PM_IMAGES = 8,        /**< at most */
    PP_PM_IMAGE_SAMPLES = 4, /**< of an image, at least */
};

typedef struct pp_pm_options {
    const char *cupti;      /**< path of libcupti.so.N; NULL: as the loader finds it */
    const char *gpu;        /**< UUID, "GPU-..." */
    uint32_t period_ns;     /**< between samples */
    size_t hardware_bytes;  /**< buffer for samples that are not decoded yet: several KiB each */
    uint32_t image_samples; /**< of one image, 25 KB of memory each; 0: 2,048, which are 50 MB */
    uint32_t images;        /**< 1 to PP_PM_IMAGES; a capture is no longer than one alone; 0: 3 */
    uint32_t samples;       /**< evaluated and not taken, at most; 40 bytes each; 0: 200,000 */
} pp_pm_options;

/** One sample; `values` by pp_metric, shares of 1 that noise may carry past 1, of the SMs' clock
 * GHz; NaN where the chip does not offer it. */
typedef struct pp_pm_sample {
    int64_t start; /**< ns of the GPU's own clock: near CLOCK_REALTIME, on most hosts that */
    int64_t end;
    float values[PP_METRIC_SAMPLED_COUNT];
} pp_pm_sample;

typedef struct pp_pm pp_pm;

/**
 * The options' texts are not needed afterwards. PP_ERR_INVALID: an option; PP_ERR_NOT_FOUND: no
 * driver, no CUPTI of that kind, no such GPU, or none of the metrics on it; PP_ERR_DENIED: not
 * allowed here; PP_ERR_CONFLICT: something else profiles it; PP_ERR_INTERNAL with CUPTI's word
 * else.
 */
int pp_pm_open(const pp_pm_options *options, pp_pm **ret, pp_error *err);
/** Ends a capture that runs; what is not evaluated yet is left. NULL is allowed. */
void pp_pm_close(pp_pm *pm);

/** The chip's name, e.g. "GH100". */
const char *pp_pm_chip(const pp_pm *pm);
/** Which of CUPTI's metrics stands for one of ours; NULL: none. */
const char *pp_pm_source(const pp_pm *pm, pp_metric metric);
/** Bytes of one image. */
size_t pp_pm_image_bytes(const pp_pm *pm);

/** What decoding one sample of the latest capture took of a processor, ns; 0: of too few to tell.
 * Where it is not well below the period samples get lost. */
double pp_pm_decode_ns(const pp_pm *pm);
/** Another period from the next capture on, which begins with a new session for it. PP_ERR_INVALID
 * while a capture runs. */
int pp_pm_set_period(pp_pm *pm, uint32_t period_ns, pp_error *err);

/** Begins a capture; the samples of the one before that were not taken are gone. Errors as
 * pp_pm_open, and PP_ERR_INVALID where one runs already. */
int pp_pm_start(pp_pm *pm, pp_error *err);

/** Decodes what there is. *ret_full: the capture is to be stopped, since no image is free, samples
 * got lost, or there are as many evaluated ones as may be; in the last case the rest of the capture
 * is left out. After an error it may be stopped or tried again; one of evaluating stays. */
int pp_pm_poll(pp_pm *pm, bool *ret_full, pp_error *err);

/** When the newest sample ended that the capture's last decode found whole, evaluated or not: ns of
 * the GPU's own clock; 0: none yet. Right after a poll it is as near to now as a sample comes. */
int64_t pp_pm_newest(const pp_pm *pm);

/** Ends the capture, whatever it returns, and waits until all of it is evaluated: 35 ms for each
 * image of 2,048 samples. *ret_lost: samples of it are missing, for want of room. */
int pp_pm_stop(pp_pm *pm, bool *ret_lost, pp_error *err);

/** Hands over, at any time and in the caller's thread, what of the capture has been evaluated and
 * was not taken yet: in order of time and none over another; the first of a capture is left out,
 * since its start is not a period's. Where `end` is not the next one's `start` some are missing.
 * `sink` returns false to end early, after this sample. An error of evaluating comes after the
 * samples before it. */
int pp_pm_take(pp_pm *pm, bool (*sink)(void *user, const pp_pm_sample *sample), void *user,
               pp_error *err);

#endif
