/*
 * Of CUPTI's PM sampling and profiler host interfaces (CUDA 12.6 and later) and of the driver's,
 * what pm_sampling.c uses. The parameters' layouts are part of CUPTI's stable interface: each
 * carries its own size, by which the library knows which fields are there.
 */
#ifndef PP_SIDECAR_GPU_PM_API_H
#define PP_SIDECAR_GPU_PM_API_H

#include <stddef.h>
#include <stdint.h>

enum {
    PM_OK = 0,
    PM_PROFILER_SAMPLING = 1,     /* profiler host: of PM sampling */
    PM_TRIGGER_TIME_INTERVAL = 1, /* the period is in ns */
    PM_APPEND_KEEP_OLDEST = 0,
    PM_STOP_OTHER = 0,
    PM_STOP_IMAGE_FULL = 1,
    PM_STOP_END_OF_RECORDS = 2,
    CUPTI_INVALID_PARAMETER = 1,
    CUPTI_INVALID_OPERATION = 7,
    CUPTI_OUT_OF_MEMORY = 8,
    CUPTI_NOT_INITIALIZED = 15,
    CUPTI_INVALID_METRIC_NAME = 17,
    CUPTI_HARDWARE_BUSY = 26,
    CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_VIRTUALIZED_INSUFFICIENT_PRIVILEGES = 40,
    CUDA_OK = 0,
};

/* The first two fields of all: the size up to the last field's end, and NULL. */
#define PM_HEAD                                                                                    \
    size_t size;                                                                                   \
    void *reserved

typedef struct pm_host pm_host;     /* turns counter data into metrics */
typedef struct pm_object pm_object; /* samples one device */

/* Of deinitialize too. */
typedef struct pm_initialize {
    PM_HEAD;
} pm_initialize;

typedef struct pm_chip_name {
    PM_HEAD;
    size_t device;
    const char *name; /* out */
} pm_chip_name;

typedef struct pm_availability {
    PM_HEAD;
    size_t device;
    size_t image_size; /* in and out */
    uint8_t *image;
} pm_availability;

/* As of CUDA 12.6; from 13.2 on another field follows, which is NULL where the size says so. */
typedef struct pm_host_initialize {
    PM_HEAD;
    int profiler;
    const char *chip;
    const uint8_t *availability;
    pm_host *host; /* out */
} pm_host_initialize;

typedef struct pm_host_deinitialize {
    PM_HEAD;
    pm_host *host;
} pm_host_deinitialize;

typedef struct pm_add_metrics {
    PM_HEAD;
    pm_host *host;
    const char *const *names;
    size_t count;
} pm_add_metrics;

typedef struct pm_config_size {
    PM_HEAD;
    pm_host *host;
    size_t config_size; /* out */
} pm_config_size;

typedef struct pm_config_image {
    PM_HEAD;
    pm_host *host;
    size_t config_size;
    uint8_t *config;
} pm_config_image;

typedef struct pm_passes {
    PM_HEAD;
    size_t config_size;
    const uint8_t *config;
    size_t passes; /* out */
} pm_passes;

typedef struct pm_evaluate {
    PM_HEAD;
    pm_host *host;
    const uint8_t *image;
    size_t image_size;
    size_t index;
    const char *const *names;
    size_t count;
    double *values;
} pm_evaluate;

typedef struct pm_enable {
    PM_HEAD;
    size_t device;
    pm_object *object; /* out */
} pm_enable;

/* Of disable, start and stop. */
typedef struct pm_of_object {
    PM_HEAD;
    pm_object *object;
} pm_of_object;

typedef struct pm_configure {
    PM_HEAD;
    pm_object *object;
    size_t config_size;
    const uint8_t *config;
    size_t hardware_buffer; /* bytes */
    uint64_t period;        /* ns */
    int trigger;
    int append;
} pm_configure;

typedef struct pm_image_size {
    PM_HEAD;
    pm_object *object;
    const char *const *names;
    size_t count;
    uint32_t samples;
    size_t image_size; /* out */
} pm_image_size;

typedef struct pm_image_initialize {
    PM_HEAD;
    pm_object *object;
    size_t image_size;
    uint8_t *image;
} pm_image_initialize;

typedef struct pm_decode {
    PM_HEAD;
    pm_object *object;
    uint8_t *image;
    size_t image_size;
    int stop_reason;  /* out */
    uint8_t overflow; /* out */
} pm_decode;

/* Of the structs the only one whose end is padded, which does not count. */
enum { PM_DECODE_SIZE = offsetof(pm_decode, overflow) + 1 };

typedef struct pm_image_info {
    PM_HEAD;
    const uint8_t *image;
    size_t image_size;
    size_t total; /* out, as below */
    size_t populated;
    size_t completed;
} pm_image_info;

typedef struct pm_sample_info {
    PM_HEAD;
    pm_object *object;
    const uint8_t *image;
    size_t image_size;
    size_t index;
    uint64_t start; /* out */
    uint64_t end;   /* out */
} pm_sample_info;

typedef struct cuda_uuid {
    uint8_t bytes[16];
} cuda_uuid;

/* The functions, by name; each is a slot of `pm_api`. */
#define PM_FUNCTIONS(X)                                                                            \
    X(initialize, "cuptiProfilerInitialize", pm_initialize *)                                      \
    X(deinitialize, "cuptiProfilerDeInitialize", pm_initialize *)                                  \
    X(chip_name, "cuptiDeviceGetChipName", pm_chip_name *)                                         \
    X(availability, "cuptiPmSamplingGetCounterAvailability", pm_availability *)                    \
    X(host_initialize, "cuptiProfilerHostInitialize", pm_host_initialize *)                        \
    X(host_deinitialize, "cuptiProfilerHostDeinitialize", pm_host_deinitialize *)                  \
    X(add_metrics, "cuptiProfilerHostConfigAddMetrics", pm_add_metrics *)                          \
    X(config_size, "cuptiProfilerHostGetConfigImageSize", pm_config_size *)                        \
    X(config_image, "cuptiProfilerHostGetConfigImage", pm_config_image *)                          \
    X(passes, "cuptiProfilerHostGetNumOfPasses", pm_passes *)                                      \
    X(evaluate, "cuptiProfilerHostEvaluateToGpuValues", pm_evaluate *)                             \
    X(enable, "cuptiPmSamplingEnable", pm_enable *)                                                \
    X(disable, "cuptiPmSamplingDisable", pm_of_object *)                                           \
    X(configure, "cuptiPmSamplingSetConfig", pm_configure *)                                       \
    X(start, "cuptiPmSamplingStart", pm_of_object *)                                               \
    X(stop, "cuptiPmSamplingStop", pm_of_object *)                                                 \
    X(image_size, "cuptiPmSamplingGetCounterDataSize", pm_image_size *)                            \
    X(image_initialize, "cuptiPmSamplingCounterDataImageInitialize", pm_image_initialize *)        \
    X(decode, "cuptiPmSamplingDecodeData", pm_decode *)                                            \
    X(image_info, "cuptiPmSamplingGetCounterDataInfo", pm_image_info *)                            \
    X(sample_info, "cuptiPmSamplingCounterDataGetSampleInfo", pm_sample_info *)

#define PM_SLOT(slot, name, params) int (*(slot))(params);
typedef struct pm_api {
    PM_FUNCTIONS(PM_SLOT)
    int (*result_string)(int, const char **);
    int (*cuda_initialize)(unsigned);
    int (*cuda_count)(int *);
    int (*cuda_device)(int *, int);
    int (*cuda_uuid)(cuda_uuid *, int);
} pm_api;

#endif
