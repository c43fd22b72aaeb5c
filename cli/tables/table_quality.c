#include "cli/tables/table_quality.h"

#include "cli/results/items.h"
#include "common/metric.h"

#include <string.h>

/* Nothing of metrics of which no window was held out. */
static void print_closure(FILE *to, const json_t *closure)
{
    const char *name;
    json_t *of;
    const char *before = "closure, points:";
    json_object_foreach((json_t *)(uintptr_t)closure, name, of)
    {
        const json_t *difference = json_object_get(of, "difference");
        if (!json_is_number(difference))
            continue;
        (void)fprintf(to, "%s %s %+.2f", before, name, 100 * json_number_value(difference));
        before = ",";
    }
    if (*before == ',')
        (void)fprintf(to, " (all rows together, less what was held out of them)\n");
}

/* What speaks against a metric's values, or why there are none; "": nothing. */
static const char *doubt_of(const json_t *quality, const char *metric)
{
    const json_t *of = json_object_get(quality, metric);
    return *pp_results_text(of, "doubt") ? pp_results_text(of, "doubt")
                                         : pp_results_text(of, "untold");
}

/* By metric: what was predicted of what was held out; and why layers are not told, `by` whom. */
static void print_quality(FILE *to, const json_t *quality, const char *by)
{
    const char *name;
    json_t *of;
    const char *before = "held out and predicted:";
    json_object_foreach((json_t *)(uintptr_t)quality, name, of)
    {
        const json_t *explained = json_object_get(of, "explained");
        if (!json_is_number(explained))
            continue;
        (void)fprintf(to, "%s %s %.1f%%", before, name, 100 * json_number_value(explained));
        before = ",";
    }
    if (*before == ',')
        (void)fputs(" of its variance\n", to);
    json_object_foreach((json_t *)(uintptr_t)quality, name, of)
    {
        const char *why = doubt_of(quality, name);
        if (*why)
            (void)fprintf(to, "%s of layers is not told%s: %s\n", name, by, why);
    }
}

/* Why no layer has a value of the metric; NULL: one has, or print_quality() says it. */
static const char *why_untold(const json_t *gpu, const char *metric)
{
    const char *why = NULL;
    size_t i;
    json_t *item, *sampling;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (!pp_item_is_layer(item))
            continue;
        if (pp_item_has_value(item, metric))
            return NULL;
        const json_t *value = pp_json_get(item, "metrics", metric, NULL);
        if (!why && *pp_results_text(value, "reason"))
            why = pp_results_text(value, "reason");
    }
    bool doubted = *doubt_of(json_object_get(gpu, "quality"), metric);
    json_array_foreach(json_object_get(gpu, "fine"), i, sampling)
    {
        doubted |= *doubt_of(json_object_get(sampling, "closure"), metric) != '\0';
    }
    return doubted ? NULL : why;
}

/* Metrics of one reason in one line. */
static void print_untold(FILE *to, const json_t *gpu)
{
    const char *names[PP_METRIC_COUNT], *why[PP_METRIC_COUNT];
    pp_metric metric;
    int n = 0;
    for (; (metric = pp_metric_in_column(n)) < PP_METRIC_COUNT; n++) {
        names[n] = pp_metric_get(metric)->spec_name;
        why[n] = why_untold(gpu, names[n]);
    }
    for (int i = 0; i < n; i++) {
        if (!why[i])
            continue;
        (void)fputs(names[i], to);
        for (int k = i + 1; k < n; k++) {
            if (!why[k] || strcmp(why[k], why[i]) != 0)
                continue;
            (void)fprintf(to, ", %s", names[k]);
            why[k] = NULL;
        }
        (void)fprintf(to, " of layers: %s\n", why[i]);
    }
}

/* Of each process that PM sampling tells of, of windows, and of replays. */
void pp_table_quality_print(FILE *to, const json_t *gpu, bool layers)
{
    size_t i;
    json_t *sampling;
    json_array_foreach(json_object_get(gpu, "fine"), i, sampling)
        print_quality(to, json_object_get(sampling, "closure"), " by PM sampling");
    print_quality(to, json_object_get(gpu, "quality"), "");
    print_closure(to, json_object_get(gpu, "closure"));
    if (layers)
        print_untold(to, gpu);
}
