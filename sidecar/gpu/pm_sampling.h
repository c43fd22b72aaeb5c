/*
 * Samples of a GPU's performance monitors every 20 to 100 us: CUPTI's PM sampling, which sees the
 * device as a whole, whichever process uses it. The driver and a CUPTI of CUDA 12.6 or later (with
 * libnvperf_host and libnvperf_target beside it) come by dlopen, with declarations of our own.
 *
 * It takes root or CAP_SYS_ADMIN, or a driver that lets everybody (RmProfilingAdminOnly: 0), and a
 * GPU has one such session at a time. While one is open the driver may hold the GPU's clocks.
 *
 * Decoding a sample takes 20 us of a processor and evaluating it as much again (measured on an
 * H200), which is more than the time between two. So a stretch is decoded into images of bounded
 * number as it goes, and evaluated when it has ended:
 *
 *   pp_pm_start    pp_pm_poll every 20 ms or so    pp_pm_stop    pp_pm_take
 *
 * CUPTI loses samples for good where an image or the hardware's buffer has no room left. So the
 * next image is taken when one is full to three quarters: the last quarter must hold what comes
 * between two polls, and what comes while one is decoded. Where samples got lost all the same, what
 * was decoded before is right; the next stretch begins with a new session.
 *
 * Not thread-safe.
 */
#ifndef PP_SIDECAR_GPU_PM_SAMPLING_H
#define PP_SIDECAR_GPU_PM_SAMPLING_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PP_PM_IMAGES = 8,        /**< of a stretch, at most */
    PP_PM_IMAGE_SAMPLES = 4, /**< of an image, at least */
};

/** What is sampled; each has several names, of which the first that the chip offers is taken. */
typedef enum pp_pm_metric {
    PP_PM_SM_ACTIVE,     /**< share of cycles with a warp resident, mean of all SMs */
    PP_PM_SM_OCCUPANCY,  /**< resident warps by the most that there could be */
    PP_PM_DRAM_ACTIVE,   /**< share of the memory's bandwidth */
    PP_PM_FP32_ACTIVE,   /**< instructions, else cycles, of the FMA pipe by the most possible */
    PP_PM_GR_ACTIVE,     /**< share of cycles in which the graphics engine had work */
    PP_PM_TENSOR_ACTIVE, /**< share of cycles in which the tensor pipe had work */
    PP_PM_METRIC_COUNT,
} pp_pm_metric;

typedef struct pp_pm_options {
    const char *cupti;      /**< path of libcupti.so.N; NULL: as the loader finds it */
    const char *gpu;        /**< UUID, "GPU-..." */
    uint32_t period_ns;     /**< between samples */
    size_t hardware_bytes;  /**< buffer for samples that are not decoded yet: several KiB each */
    uint32_t image_samples; /**< of one image; some 16 KiB of memory each */
    uint32_t images;        /**< 1 to PP_PM_IMAGES */
} pp_pm_options;

/** One sample; `values` by pp_pm_metric, shares of 1 that noise may carry past 1; NaN where the
 * chip does not offer it. */
typedef struct pp_pm_sample {
    int64_t start; /**< ns of the GPU's own clock, near that since 1970 but not the host's */
    int64_t end;
    float values[PP_PM_METRIC_COUNT];
} pp_pm_sample;

typedef struct pp_pm pp_pm;

/**
 * The options' texts are not needed afterwards. PP_ERR_INVALID: an option; PP_ERR_NOT_FOUND: no
 * driver, no CUPTI of that kind, no such GPU, or none of the metrics on it; PP_ERR_DENIED: not
 * allowed here; PP_ERR_CONFLICT: something else profiles it; PP_ERR_INTERNAL with CUPTI's word
 * else.
 */
int pp_pm_open(const pp_pm_options *options, pp_pm **ret, pp_error *err);
/** Ends a stretch that runs. NULL is allowed. */
void pp_pm_close(pp_pm *pm);

/** The chip's name, e.g. "GH100". */
const char *pp_pm_chip(const pp_pm *pm);
/** Which of CUPTI's metrics stands for one of ours; NULL: none. */
const char *pp_pm_source(const pp_pm *pm, pp_pm_metric metric);
/** Bytes of one image. */
size_t pp_pm_image_bytes(const pp_pm *pm);

/** Begins a stretch; the samples of the one before are gone. Errors as pp_pm_open, and
 * PP_ERR_INVALID where one runs already. */
int pp_pm_start(pp_pm *pm, pp_error *err);

/** Decodes what there is. *ret_full: the stretch is to be stopped, since no image is left or
 * samples got lost. After an error it may be stopped or tried again. */
int pp_pm_poll(pp_pm *pm, bool *ret_full, pp_error *err);

/** Ends the stretch, whatever it returns. *ret_lost: samples of it are missing, for want of room.
 */
int pp_pm_stop(pp_pm *pm, bool *ret_lost, pp_error *err);

/** Hands over the last stretch's samples, in order of time and none over another; the first of a
 * stretch is left out, since its start is not a period's. Where `end` is not the next one's `start`
 * some are missing. `sink` returns false to end early. */
int pp_pm_take(pp_pm *pm, bool (*sink)(void *user, const pp_pm_sample *sample), void *user,
               pp_error *err);

#endif
