#include "cli/fine.h"

#include "common/json.h"
#include "controller/metric.h"
#include "controller/solution.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which of the metrics that have names it is, by pp_pm_metric; the others have none yet. */
static const struct {
    int fine;
    pp_metric metric;
} metrics[] = {
    {0, PP_METRIC_SM_ACTIVE},
    {1, PP_METRIC_SM_OCCUPANCY},
    {2, PP_METRIC_DRAM_ACTIVE},
    {3, PP_METRIC_FP32_ACTIVE},
};

enum { METRICS = sizeof metrics / sizeof *metrics };

struct pp_cli_fine {
    json_t *reports; /* by the process's number: an object of what is laid over */
    char why[PP_SAMPLES_TEXT];
};

pp_cli_fine *pp_cli_fine_new(void)
{
    pp_cli_fine *f = calloc(1, sizeof *f);
    if (f)
        f->reports = json_object();
    return f;
}

void pp_cli_fine_free(pp_cli_fine *f)
{
    if (!f)
        return;
    json_decref(f->reports);
    free(f);
}

const char *pp_cli_fine_why(const pp_cli_fine *f)
{
    return f->why;
}

/* ---- a report ---- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* As the results name what is no layer's. */
static const char *kind_of(const pp_fine_item *item)
{
    static const char *const kinds[] = {
        [PP_MARK_OPTIMIZER] = "optimizer", [PP_MARK_ZERO_GRAD] = "zero_grad",
        [PP_MARK_DATA] = "data",           [PP_MARK_COMMUNICATION] = "communication",
        [PP_MARK_OTHER] = "other",
    };
    if (pp_mark_of_layer(item->phase))
        return "layer";
    return item->phase < sizeof kinds / sizeof *kinds && kinds[item->phase] ? kinds[item->phase]
                                                                            : "other";
}

/* What finds an item of the results again. */
static json_t *key_of(const char *kind, const char *layer, const char *phase)
{
    const bool is_layer = strcmp(kind, "layer") == 0;
    return json_sprintf("%s/%s/%s", kind, is_layer ? phase : "", is_layer ? layer : "");
}

static json_t *estimates_of(const pp_monitor_estimates *e, const pp_fine_item *item)
{
    json_t *all = json_object();
    for (int i = 0; i < METRICS; i++) {
        const int m = metrics[i].fine;
        if (!isfinite(item->mean[m]))
            continue;
        json_t *one =
            json_pack("{s:f, s:f, s:n, s:I, s:s, s:s, s:n, s:n, s:n, s:n}", "mean", item->mean[m],
                      "standardError", item->stderr_of[m], "windows", "kernels",
                      (json_int_t)item->kernels, "method", "fine", "source", e->sampler->sources[m],
                      "group", "groupMean", "groupStandardError", "reason");
        (void)json_object_set_new(all, pp_metric_get(metrics[i].metric)->spec_name, one);
    }
    return all;
}

static json_t *closure_of(const pp_fine_result *r)
{
    json_t *all = json_object();
    for (int i = 0; i < METRICS; i++) {
        const int m = metrics[i].fine;
        (void)json_object_set_new(all, pp_metric_get(metrics[i].metric)->spec_name,
                                  json_pack("{s:o, s:o, s:o}", "held", real(r->held[m]),
                                            "difference", real(r->closure[m]), "noise",
                                            real(r->noise[m])));
    }
    return all;
}

static json_t *facts_of(const pp_fine_report *report)
{
    const pp_monitor_estimates *e = report->estimates;
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:o}", "chip",
                     e->sampler->chip, "periodNs", (json_int_t)e->sampler->period, "times",
                     (json_int_t)e->windows, "failedTimes", (json_int_t)e->failed, "sampledSeconds",
                     (double)e->sampled / 1e9, "samples", (json_int_t)e->result->windows, "lagNs",
                     (json_int_t)e->lag, "lagGuessNs", (json_int_t)e->lag_guess,
                     "lagStandardErrorNs", (json_int_t)e->lag_stderr, "samplerCpuSeconds",
                     (double)e->sampler->cpu / 1e9, "closure", closure_of(e->result));
}

static json_t *items_of(const pp_fine_report *report)
{
    const pp_fine_result *r = report->estimates->result;
    json_t *items = json_object();
    for (size_t i = 0; i < r->n; i++) {
        const pp_fine_item *item = &r->items[i];
        const char *layer = report->layers[i].name ? report->layers[i].name : "";
        json_t *key = key_of(kind_of(item), layer, pp_wire_phase_name((pp_wire_phase)item->phase));
        (void)json_object_set_new(items, json_string_value(key),
                                  estimates_of(report->estimates, item));
        json_decref(key);
    }
    return items;
}

void pp_cli_fine_take(pp_cli_fine *f, const pp_fine_report *report, const char *why)
{
    if (*why)
        (void)snprintf(f->why, sizeof f->why, "%s", why);
    if (!report)
        return;
    char number[24];
    (void)snprintf(number, sizeof number, "%lld", (long long)report->process);
    (void)json_object_set_new(f->reports, number,
                              json_pack("{s:s, s:o, s:o}", "gpu", report->gpu, "facts",
                                        facts_of(report), "items", items_of(report)));
}

/* ---- over the results ---- */

static void lay_over_item(json_t *item, const json_t *items, unsigned wanted)
{
    json_t *to = json_object_get(item, "metrics");
    json_t *key =
        key_of(pp_json_get_string(item, "kind", NULL), pp_json_get_string(item, "layer", NULL),
               pp_json_get_string(item, "phase", NULL));
    const json_t *estimates = json_object_get(items, json_string_value(key));
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const char *name = pp_metric_get((pp_metric)m)->spec_name;
        json_t *estimate = json_object_get(estimates, name);
        if (estimate && (wanted == 0 || wanted & (1U << m)))
            (void)json_object_set(to, name, estimate);
    }
    json_decref(key);
}

int pp_cli_fine_lay_over(const pp_cli_fine *f, json_t *gpu, unsigned wanted, pp_error *err)
{
    const char *name, *uuid = pp_json_get_string(gpu, "gpu", NULL);
    json_t *report, *item;
    const json_t *found = NULL;
    size_t n = 0, i;
    json_object_foreach(f->reports, name, report)
    {
        if (uuid && strcmp(pp_json_get_string(report, "gpu", NULL), uuid) == 0) {
            found = report;
            n++;
        }
    }
    if (n != 1)
        return 0;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
        lay_over_item(item, json_object_get(found, "items"), wanted);
    return json_object_set(gpu, "fine", json_object_get(found, "facts")) == 0 ? 0
                                                                              : pp_error_nomem(err);
}
