#include "cli/run/sampling.h"

#include "common/json.h"
#include "common/metric.h"
#include "estimate/sampled_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pp_cli_sampling {
    json_t *reports; /* by the process's number: the GPU, and how its sampling went */
    char why[PP_SAMPLES_TEXT];
};

pp_cli_sampling *pp_cli_sampling_new(void)
{
    pp_cli_sampling *f = calloc(1, sizeof *f);
    if (f)
        f->reports = json_object();
    return f;
}

void pp_cli_sampling_free(pp_cli_sampling *f)
{
    if (!f)
        return;
    json_decref(f->reports);
    free(f);
}

const char *pp_cli_sampling_why(const pp_cli_sampling *f)
{
    return f->why;
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *closure_of_metric(const pp_sampling_result *r, int m)
{
    const pp_sampling_quality *q = &r->quality[m];
    const char *doubt = pp_sampled_values_doubt((int)q->doubt);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "held", real(r->held[m]),
                     "difference", real(r->closure[m]), "noise", real(r->noise[m]), "explained",
                     real(q->explained), "miss", real(q->miss), "items", real(q->items), "itemsZ",
                     real(q->items_z), "idle", real(q->gap), "idleStandardError",
                     real(q->gap_stderr), "doubt", doubt ? json_string(doubt) : json_null());
}

/* As on the wire. */
static json_t *closure_of(const pp_sampling_result *r)
{
    json_t *all = json_object();
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        if (isnan(r->noise[m]))
            continue; /* the GPU does not offer it */
        (void)json_object_set_new(all, pp_metric_get((pp_metric)m)->spec_name,
                                  closure_of_metric(r, m));
    }
    return all;
}

static json_t *facts_of(const pp_sampling_report *report)
{
    const pp_monitor_estimates *e = report->estimates;
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:o}", "chip", e->sampler->chip,
        "periodNs", (json_int_t)e->sampler->period, "times", (json_int_t)e->windows, "failedTimes",
        (json_int_t)e->failed, "failure", e->failure, "sampledSeconds", (double)e->sampled / 1e9,
        "samples", (json_int_t)e->result->windows, "lagNs", (json_int_t)e->lag, "lagGuessNs",
        (json_int_t)e->lag_guess, "lagStandardErrorNs", (json_int_t)e->lag_stderr,
        "samplerCpuSeconds", (double)e->sampler->cpu / 1e9, "closure", closure_of(e->result));
}

int pp_cli_sampling_take(pp_cli_sampling *f, const pp_sampling_report *report, const char *why,
                         pp_error *err)
{
    if (*why)
        (void)snprintf(f->why, sizeof f->why, "%s", why);
    if (!report)
        return 0;
    char number[24];
    (void)snprintf(number, sizeof number, "%lld", (long long)report->process);
    json_t *about = json_pack("{s:s, s:o}", "gpu", report->gpu, "facts", facts_of(report));
    return json_object_set_new(f->reports, number, about) < 0 ? pp_error_nomem(err) : 0;
}

int pp_cli_sampling_describe(const pp_cli_sampling *f, json_t *gpu, pp_error *err)
{
    const char *name, *uuid = pp_json_get_string(gpu, "gpu", NULL);
    json_t *report;
    json_object_foreach(f->reports, name, report)
    {
        if (!uuid || strcmp(pp_json_get_string(report, "gpu", NULL), uuid) != 0)
            continue;
        if (!json_object_get(gpu, "fine"))
            (void)json_object_set_new(gpu, "fine", json_array());
        if (json_array_append(json_object_get(gpu, "fine"), json_object_get(report, "facts")) < 0)
            return pp_error_nomem(err);
    }
    return 0;
}
