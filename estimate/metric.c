#include "estimate/metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PERCENT(name, column, heading, place)                                                      \
    {                                                                                              \
        name, column, heading, 1, place, 0, 100, false, 0                                          \
    }
#define SHARE(name, column, heading, place, replayed, sampled)                                     \
    {                                                                                              \
        name, column, heading, 100, place, 0, 1, replayed, sampled                                 \
    }
#define LEVEL(name, column, heading)                                                               \
    {                                                                                              \
        name, column, heading, 1, 0, (double)NAN, (double)NAN, false, 0                            \
    }

/* All that is known of each, but for the series that exporters have of it. */
static const pp_metric_info infos[PP_METRIC_COUNT] = {
    [PP_METRIC_GPU_UTIL] = PERCENT("GPUUtil", "gpu_util", "GPUUtil", 5),
    [PP_METRIC_GPU_MEM] = LEVEL("GPUMem", "gpu_mem", "GPUMem"),
    [PP_METRIC_DRAM_ACTIVE] = SHARE("DRAMActive", "dram_active", "DRAM", 3, true, 3),
    [PP_METRIC_FP32_ACTIVE] = SHARE("FP32Active", "fp32_active", "FP32", 4, true, 4),
    [PP_METRIC_SM_OCCUPANCY] = SHARE("SMOccupancy", "sm_occupancy", "SMOcc.", 2, true, 2),
    [PP_METRIC_SM_ACTIVE] = SHARE("SMActive", "sm_active", "SMActive", 1, true, 1),
};

static const struct {
    const char *name;
    pp_metric_source source;
} presets[] = {
    {"dcgm",
     {"UUID",
      {
          [PP_METRIC_GPU_UTIL] = {"DCGM_FI_DEV_GPU_UTIL", 1},
          [PP_METRIC_GPU_MEM] = {"DCGM_FI_DEV_FB_USED", 1},
          [PP_METRIC_DRAM_ACTIVE] = {"DCGM_FI_PROF_DRAM_ACTIVE", 1},
          [PP_METRIC_FP32_ACTIVE] = {"DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1},
          [PP_METRIC_SM_OCCUPANCY] = {"DCGM_FI_PROF_SM_OCCUPANCY", 1},
          [PP_METRIC_SM_ACTIVE] = {"DCGM_FI_PROF_SM_ACTIVE", 1},
      }}},
    /* It has no share of time in which memory or the FP32 pipes are active. */
    {"amd",
     {"gpu_uuid",
      {
          [PP_METRIC_GPU_UTIL] = {"gpu_gfx_activity", 1},
          [PP_METRIC_GPU_MEM] = {"gpu_used_vram", 1},
          [PP_METRIC_SM_OCCUPANCY] = {"gpu_prof_occupancy_percent", 0.01},
          [PP_METRIC_SM_ACTIVE] = {"gpu_prof_sm_active", 0.01},
      }}},
};

const pp_metric_info *pp_metric_get(pp_metric metric)
{
    return &infos[metric];
}

int pp_metric_from_name(const char *name, pp_metric *ret)
{
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        if (strcmp(name, infos[i].spec_name) != 0 && strcmp(name, infos[i].column) != 0)
            continue;
        *ret = (pp_metric)i;
        return 0;
    }
    return -1;
}

void pp_metric_names(unsigned set, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < PP_METRIC_COUNT && len < size; i++) {
        if (!(set & (1U << i)))
            continue;
        int n = snprintf(out + len, size - len, "%s%s", len ? ", " : "", infos[i].spec_name);
        len += n > 0 ? (size_t)n : 0;
    }
}

int pp_metric_preset(const char *name, pp_metric_source *ret, pp_error *err)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(name, presets[i].name) != 0)
            continue;
        *ret = presets[i].source;
        return 0;
    }
    return pp_error_set(err, PP_ERR_NOT_FOUND,
                        "no exporter preset is named \"%s\"; there are dcgm and amd", name);
}

int pp_metric_of_series(const pp_metric_source *source, const char *series, pp_metric *ret)
{
    for (int i = 0; i < PP_METRIC_COUNT; i++) {
        if (!source->series[i].name[0] || strcmp(series, source->series[i].name) != 0)
            continue;
        *ret = (pp_metric)i;
        return 0;
    }
    return -1;
}

/* dcgm_fields.h: the blanks of 32 and 64 bit integers and of doubles, and the special values
 * (not found, not supported, not permissioned) that follow each. */
static bool is_blank(double raw)
{
    static const double blanks[] = {2147483632.0, 140737488355328.0, 9223372036854775792.0};
    for (size_t i = 0; i < sizeof blanks / sizeof blanks[0]; i++) {
        if (raw >= blanks[i] && raw <= blanks[i] + 15)
            return true;
    }
    return false;
}

bool pp_metric_convert(const pp_metric_source *source, pp_metric metric, double raw, double *ret)
{
    if (!isfinite(raw) || is_blank(raw))
        return false;
    const pp_metric_info *info = &infos[metric];
    double value = raw * source->series[metric].scale;
    if (isnan(info->max)) {
        *ret = value;
        return value >= 0;
    }
    double slack = 0.01 * (info->max - info->min);
    if (value < info->min - slack || value > info->max + slack)
        return false;
    *ret = fmin(fmax(value, info->min), info->max);
    return true;
}

bool pp_metric_is_replayed(pp_metric metric)
{
    return infos[metric].replayed;
}

pp_metric pp_metric_sampled(int i)
{
    int metric = 0;
    while (metric < PP_METRIC_COUNT && infos[metric].sampled != i + 1)
        metric++;
    return (pp_metric)metric;
}

pp_metric pp_metric_in_column(int i)
{
    int metric = 0;
    while (metric < PP_METRIC_COUNT && infos[metric].place != i + 1)
        metric++;
    return (pp_metric)metric;
}

double pp_metric_bound(const pp_metric_info *info, double value, double *variance)
{
    const double bounded = fmin(fmax(value, info->min), info->max);
    *variance = fmax(*variance, (value - bounded) * (value - bounded));
    return bounded;
}
