#include "common/metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INFO(id, wire, ...) [PP_METRIC_##id] = {__VA_ARGS__},

static const pp_metric_info infos[PP_METRIC_COUNT] = {PP_METRIC_TABLE(INFO)};

static const struct preset {
    const char *name;
    const char *uuid_label;
    size_t series; /* offset in a pp_metric_info */
} presets[] = {
    {"dcgm", "UUID", offsetof(pp_metric_info, dcgm)},
    {"amd", "gpu_uuid", offsetof(pp_metric_info, amd)},
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

static void use_preset(const struct preset *preset, pp_metric_source *ret)
{
    *ret = (pp_metric_source){0};
    (void)snprintf(ret->uuid_label, sizeof ret->uuid_label, "%s", preset->uuid_label);
    for (int i = 0; i < PP_METRIC_COUNT; i++)
        memcpy(&ret->series[i], (const char *)&infos[i] + preset->series, sizeof ret->series[i]);
}

int pp_metric_preset(const char *name, pp_metric_source *ret, pp_error *err)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(name, presets[i].name) != 0)
            continue;
        use_preset(&presets[i], ret);
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

unsigned pp_metric_expected(unsigned asked)
{
    unsigned usual = 0;
    for (int i = 0; i < PP_METRIC_COUNT; i++)
        usual |= infos[i].usual ? 1U << i : 0;
    return asked == PP_METRIC_ALL ? usual : asked;
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
