#include "cli/formats/figures.h"

#include "common/json.h"
#include "common/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN ((double)NAN)

double pp_figure_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : UNKNOWN;
}

const char *pp_figure_text(const json_t *object, const char *key)
{
    const char *text = pp_json_get_string(object, key, NULL);
    return text ? text : "";
}

double pp_figure_rounded(double value)
{
    char text[PP_NUMBER_TEXT];
    (void)snprintf(text, sizeof text, "%.12g", value);
    return strtod(text, NULL);
}

size_t pp_figure_gpus(const json_t *results)
{
    size_t i, n = 0;
    json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu) n +=
        *pp_figure_text(gpu, "gpu") != '\0';
    return n;
}

double pp_figure_of_gpu(const json_t *gpu, pp_metric metric)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (strcmp(pp_figure_text(item, "kind"), "job") == 0)
            return pp_figure_number(
                pp_json_get(item, "metrics", pp_metric_get(metric)->spec_name, NULL), "mean");
    }
    return UNKNOWN;
}

double pp_figure_of_gpus(const json_t *results, pp_metric metric)
{
    size_t i, n = 0;
    double sum = 0;
    json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (!*pp_figure_text(gpu, "gpu"))
            continue;
        sum += pp_figure_of_gpu(gpu, metric);
        n++;
    }
    return n ? sum / (double)n : UNKNOWN;
}

/* A figure of the pattern, or the mean over GPUs of what each tells, where all do. */
static double step_figure(const json_t *results, const char *of_pattern, const char *of_gpu)
{
    size_t i, n = 0;
    double sum = 0;
    json_t *gpu;
    const double told =
        pp_figure_number(pp_json_get(results, "pattern", "step", of_pattern, NULL), "value");
    if (!isnan(told))
        return told;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (!*pp_figure_text(gpu, "gpu"))
            continue;
        sum += pp_figure_number(gpu, of_gpu);
        n++;
    }
    return n ? sum / (double)n : UNKNOWN;
}

double pp_figure_step_ms(const json_t *results)
{
    return step_figure(results, "milliseconds", "countedStepMs");
}

double pp_figure_idle_share(const json_t *results)
{
    return step_figure(results, "idleShare", "countedIdleShare");
}

double pp_figure_bound_share(const json_t *results, const char *bound)
{
    size_t i;
    json_t *one;
    double sum = 0, found = 0;
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(results, "pattern", "bounds", NULL), i, one)
    {
        const double share = pp_figure_number(json_object_get(one, "share"), "value");
        sum += share;
        if (strcmp(pp_figure_text(one, "by"), bound) == 0)
            found = share;
    }
    return sum > 0.99 ? found : UNKNOWN; /* all of them: what is not there takes nothing */
}

static const json_t *model_of(const json_t *results)
{
    const json_t *models = pp_json_get(results, "pattern", "models", NULL);
    return json_array_size(models) == 1 ? json_array_get(models, 0) : NULL;
}

const char *pp_figure_model(const json_t *results)
{
    return pp_json_get_string(model_of(results), "class", NULL);
}

double pp_figure_batch(const json_t *results)
{
    char *end = NULL;
    const char *shape = pp_figure_text(model_of(results), "batch");
    const long n = strtol(shape, &end, 10);
    return end != shape && n > 0 && (*end == 'x' || *end == ' ') ? (double)n : UNKNOWN;
}
