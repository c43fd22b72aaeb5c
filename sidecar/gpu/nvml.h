/*
 * The GPU's counters straight from the driver (NVML and its GPM counters), where no exporter and no
 * Prometheus are at hand. The library is brought in by dlopen, with minimal declarations of our
 * own.
 *
 * GPM: from Hopper on; the counters of a window lie between two samples, and NVIDIA calls 100 ms
 * the shortest window. On older GPUs only the others are known.
 *
 * A part of a GPU (MIG) has memory and GPM counters of its own; power, energy and clocks are the
 * whole GPU's.
 */
#ifndef PP_SIDECAR_GPU_NVML_H
#define PP_SIDECAR_GPU_NVML_H

#include "common/error.h"
#include "common/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pp_nvml pp_nvml;
typedef struct pp_nvml_gpu pp_nvml_gpu;

/** The shortest window that GPM's counters have. */
#define PP_NVML_WINDOW_NS INT64_C(100000000)

/**
 * One reading; NaN where the GPU does not tell.
 *
 * Of the values GPUUtil is percent of the driver's own last sample period with a kernel running,
 * GPUMem what is used now; Power the energy since it was read last by the time in between, read
 * where that is a window or more (the driver brings its counter up to date every 20 to 100 ms);
 * what GPM tells is of the time since the reading before.
 */
typedef struct pp_nvml_reading {
    int64_t stamp_ns; /**< end of the window, ns since 1970 */
    double values[PP_METRIC_COUNT];
    double watts;  /**< the driver's own mean of about the last second */
    double joules; /**< since the driver was loaded */
    double sm_mhz; /**< the SMs' clock now */
} pp_nvml_reading;

/** PP_ERR_NOT_FOUND where there is no NVML, PP_ERR_INTERNAL with its code where it does not start.
 */
int pp_nvml_open(pp_nvml **ret, pp_error *err);
/** NULL is allowed. */
void pp_nvml_close(pp_nvml *nvml);

/** A GPU by its UUID ("GPU-..."), or a part of one ("MIG-...", or the same with "GPU-", as CUDA
 * gives it); belongs to `nvml`, and is to be freed before it. */
int pp_nvml_gpu_open(pp_nvml *nvml, const char *uuid, pp_nvml_gpu **ret, pp_error *err);
/** NULL is allowed. */
void pp_nvml_gpu_close(pp_nvml_gpu *gpu);

/** Whether it has GPM counters. */
bool pp_nvml_gpu_has_gpm(const pp_nvml_gpu *gpu);

/** Processes that have a context on it, by the numbers that the driver knows them by: those of its
 * own PID namespace. Returns how many of them are in `pids`, `room` at most; 0: none, or the driver
 * does not tell. */
size_t pp_nvml_gpu_processes(const pp_nvml_gpu *gpu, uint32_t *pids, size_t room);

/** Reads it; takes up to 0.5 ms. The first reading has no GPM values, nor has one that comes within
 * a window of the one before and finds nothing new: its time is in the next one's. */
void pp_nvml_gpu_read(pp_nvml_gpu *gpu, pp_nvml_reading *ret);

#endif
