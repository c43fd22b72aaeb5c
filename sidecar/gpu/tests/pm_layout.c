/*
 * The parameters of pm_api.h against the figures of CUDA 13's cupti_pmsampling.h,
 * cupti_profiler_host.h, cupti_target.h and cupti_profiler_target.h: of each field the offset and
 * the size, and of each struct the size that CUPTI is told.
 */
#include "sidecar/gpu/pm_api.h"

#define POINTER(type, field, offset)                                                               \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define AT(type, field, offset, bytes)                                                             \
    POINTER(type, field, offset);                                                                  \
    _Static_assert(sizeof(((type *)NULL)->field) == (bytes), #type "." #field)
#define TOLD(type, told, bytes)                                                                    \
    _Static_assert((told) == (bytes), #type);                                                      \
    POINTER(type, size, 0);                                                                        \
    POINTER(type, reserved, 8)

TOLD(pm_initialize, sizeof(pm_initialize), 16);

TOLD(pm_chip_name, sizeof(pm_chip_name), 32);
AT(pm_chip_name, device, 16, 8);
POINTER(pm_chip_name, name, 24);

TOLD(pm_availability, sizeof(pm_availability), 40);
AT(pm_availability, device, 16, 8);
AT(pm_availability, image_size, 24, 8);
POINTER(pm_availability, image, 32);

TOLD(pm_host_initialize, sizeof(pm_host_initialize), 48);
AT(pm_host_initialize, profiler, 16, 4);
POINTER(pm_host_initialize, chip, 24);
POINTER(pm_host_initialize, availability, 32);
POINTER(pm_host_initialize, host, 40);

TOLD(pm_host_deinitialize, sizeof(pm_host_deinitialize), 24);
POINTER(pm_host_deinitialize, host, 16);

TOLD(pm_add_metrics, sizeof(pm_add_metrics), 40);
POINTER(pm_add_metrics, host, 16);
POINTER(pm_add_metrics, names, 24);
AT(pm_add_metrics, count, 32, 8);

TOLD(pm_config_size, sizeof(pm_config_size), 32);
POINTER(pm_config_size, host, 16);
AT(pm_config_size, config_size, 24, 8);

TOLD(pm_config_image, sizeof(pm_config_image), 40);
POINTER(pm_config_image, host, 16);
AT(pm_config_image, config_size, 24, 8);
POINTER(pm_config_image, config, 32);

TOLD(pm_passes, sizeof(pm_passes), 40);
AT(pm_passes, config_size, 16, 8);
POINTER(pm_passes, config, 24);
AT(pm_passes, passes, 32, 8);

TOLD(pm_evaluate, sizeof(pm_evaluate), 72);
POINTER(pm_evaluate, host, 16);
POINTER(pm_evaluate, image, 24);
AT(pm_evaluate, image_size, 32, 8);
AT(pm_evaluate, index, 40, 8);
POINTER(pm_evaluate, names, 48);
AT(pm_evaluate, count, 56, 8);
POINTER(pm_evaluate, values, 64);

TOLD(pm_enable, sizeof(pm_enable), 32);
AT(pm_enable, device, 16, 8);
POINTER(pm_enable, object, 24);

TOLD(pm_of_object, sizeof(pm_of_object), 24);
POINTER(pm_of_object, object, 16);

TOLD(pm_configure, sizeof(pm_configure), 64);
POINTER(pm_configure, object, 16);
AT(pm_configure, config_size, 24, 8);
POINTER(pm_configure, config, 32);
AT(pm_configure, hardware_buffer, 40, 8);
AT(pm_configure, period, 48, 8);
AT(pm_configure, trigger, 56, 4);
AT(pm_configure, append, 60, 4);

TOLD(pm_image_size, sizeof(pm_image_size), 56);
POINTER(pm_image_size, object, 16);
POINTER(pm_image_size, names, 24);
AT(pm_image_size, count, 32, 8);
AT(pm_image_size, samples, 40, 4);
AT(pm_image_size, image_size, 48, 8);

TOLD(pm_image_initialize, sizeof(pm_image_initialize), 40);
POINTER(pm_image_initialize, object, 16);
AT(pm_image_initialize, image_size, 24, 8);
POINTER(pm_image_initialize, image, 32);

TOLD(pm_decode, PM_DECODE_SIZE, 45);
POINTER(pm_decode, object, 16);
POINTER(pm_decode, image, 24);
AT(pm_decode, image_size, 32, 8);
AT(pm_decode, stop_reason, 40, 4);
AT(pm_decode, overflow, 44, 1);

TOLD(pm_image_info, sizeof(pm_image_info), 56);
POINTER(pm_image_info, image, 16);
AT(pm_image_info, image_size, 24, 8);
AT(pm_image_info, total, 32, 8);
AT(pm_image_info, populated, 40, 8);
AT(pm_image_info, completed, 48, 8);

TOLD(pm_sample_info, sizeof(pm_sample_info), 64);
POINTER(pm_sample_info, object, 16);
POINTER(pm_sample_info, image, 24);
AT(pm_sample_info, image_size, 32, 8);
AT(pm_sample_info, index, 40, 8);
AT(pm_sample_info, start, 48, 8);
AT(pm_sample_info, end, 56, 8);

_Static_assert(sizeof(cuda_uuid) == 16, "cuda_uuid");
