#include "controller/pattern_object.h"

#include "common/time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define API_VERSION "precisionprobe.io/v1alpha1"

/* ---- parts ---- */

/* What is not known is left out. */
static void set_number(json_t *to, const char *key, double value)
{
    if (isfinite(value))
        (void)json_object_set_new(to, key, json_real(value));
}

static json_t *figure(pp_figure f, double scale)
{
    json_t *object = json_object();
    set_number(object, "value", f.value * scale);
    set_number(object, "standardError", f.standard_error * scale);
    return object;
}

static void set_figure(json_t *to, const char *key, pp_figure f, double scale)
{
    if (isfinite(f.value))
        (void)json_object_set_new(to, key, figure(f, scale));
}

static void set_time(json_t *to, const char *key, int64_t ns)
{
    char text[64];
    pp_time_format(ns, 0, text, sizeof text);
    (void)json_object_set_new(to, key, json_string(text));
}

static json_t *step_of(const pp_usage *u)
{
    json_t *step = json_object();
    set_figure(step, "milliseconds", u->step_ns, 1e-6);
    set_number(step, "spreadMilliseconds", u->step_sd_ns * 1e-6);
    set_figure(step, "idleShare", u->idle, 1);
    (void)json_object_set_new(step, "undisturbed", json_boolean(u->undisturbed));
    return step;
}

/* What a unit does per second, and what it can do at most. */
static void set_of_peak(json_t *to, pp_metric metric, pp_figure achieved, const pp_usage_metric *of)
{
    const char *unit = pp_peak_unit(pp_metric_get(metric)->peak);
    set_figure(to, "achieved", achieved, 1);
    set_number(to, "peak", of ? of->peak : (double)NAN);
    if (unit && (json_object_get(to, "achieved") || json_object_get(to, "peak")))
        (void)json_object_set_new(to, "peakUnit", json_string(unit));
}

static json_t *bounds_of(const pp_usage *u)
{
    json_t *all = json_array();
    for (int k = 0; k < PP_BOUND_COUNT; k++) {
        if (!(u->bounds[k].value > 0))
            continue;
        json_t *bound = json_pack("{ss}", "by", pp_bound_name((pp_bound)k));
        set_figure(bound, "share", u->bounds[k], 1);
        if (k < PP_BOUND_UNITS)
            set_of_peak(bound, pp_bound_metric((pp_bound)k), u->rates[k],
                        pp_usage_metric_find(u, pp_bound_metric((pp_bound)k)));
        (void)json_array_append_new(all, bound);
    }
    return all;
}

static json_t *types_of(const pp_usage *u)
{
    json_t *all = json_array();
    for (size_t i = 0; i < u->n_types; i++) {
        json_t *type =
            json_pack("{ss}", u->types[i].layer ? "layerType" : "phase", u->types[i].name);
        set_figure(type, "share", u->types[i].share, 1);
        (void)json_array_append_new(all, type);
    }
    return all;
}

static json_t *metric_of(const pp_usage_metric *m)
{
    const pp_metric_info *info = pp_metric_get(m->metric);
    json_t *metric = json_pack("{ssssss}", "name", info->spec_name, "unit", info->unit, "source",
                               pp_usage_source_name(m->source));
    set_figure(metric, "mean", m->mean, 1);
    set_figure(metric, "p50", m->p50, 1);
    set_figure(metric, "p95", m->p95, 1);
    set_number(metric, "max", m->most.value);
    set_of_peak(metric, m->metric, m->achieved, m);
    if (m->has_profile) {
        json_t *profile = json_array();
        for (size_t i = 0; i < PP_USAGE_BINS; i++)
            (void)json_array_append_new(profile, json_real(m->profile[i]));
        (void)json_object_set_new(metric, "profile", profile);
    }
    return metric;
}

static json_t *metrics_of(const pp_usage *u)
{
    json_t *all = json_array();
    for (size_t i = 0; i < u->n_metrics; i++)
        (void)json_array_append_new(all, metric_of(&u->metrics[i]));
    return all;
}

static json_t *models_of(const pp_usage *u)
{
    json_t *all = json_array();
    for (size_t i = 0; i < u->models.n && i < PP_MODELS_TOLD; i++) {
        const pp_model *m = &u->models.items[i];
        (void)json_array_append_new(
            all, json_pack("{ss*ss*ss*}", "class", *m->name ? m->name : NULL, "digest",
                           *m->digest ? m->digest : NULL, "batch", *m->batch ? m->batch : NULL));
    }
    return all;
}

/* ---- conditions ---- */

static void keep_time(json_t *condition, const json_t *before)
{
    const json_t *list = json_object_get(before, "conditions");
    const char *type = json_string_value(json_object_get(condition, "type"));
    const char *status = json_string_value(json_object_get(condition, "status"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *old = json_array_get(list, i);
        const char *old_type = json_string_value(json_object_get(old, "type"));
        const char *old_status = json_string_value(json_object_get(old, "status"));
        json_t *time = json_object_get(old, "lastTransitionTime");
        if (time && old_type && old_status && strcmp(old_type, type) == 0 &&
            strcmp(old_status, status) == 0)
            (void)json_object_set(condition, "lastTransitionTime", time);
    }
}

void pp_pattern_keep_times(json_t *status, const json_t *before)
{
    json_t *list = json_object_get(status, "conditions");
    for (size_t i = 0; i < json_array_size(list); i++)
        keep_time(json_array_get(list, i), before);
}

/* How many standard errors the first bound has to lead by. */
#define SURE 2.0

static json_t *bound_is(const char *status, const char *reason, const char *message)
{
    return json_pack("{ssssssss}", "type", "Bound", "status", status, "reason", reason, "message",
                     message);
}

static json_t *bound_condition(const pp_pattern *p)
{
    if (p->bound == PP_BOUND_UNKNOWN)
        return bound_is("Unknown", "TooLittleMeasured",
                        p->usage->busy
                            ? "tensor cores, FP32 and memory were not all measured: ask for "
                              "TensorActive, FP32Active and DRAMActive"
                            : "it is not known when kernels ran: busy_reason of result_detail "
                              "says why");
    if (!isfinite(p->lead.standard_error))
        return bound_is("Unknown", "ErrorUnknown",
                        "too few steps were counted or marked to say how sure the largest share "
                        "is: profile for longer");
    if (p->lead.value > SURE * p->lead.standard_error)
        return bound_is("True", "Sure",
                        "the largest share leads by more than two of its standard errors");
    return bound_is("False", "Close",
                    "the next largest share is within two standard errors of the largest");
}

static json_t *conditions_of(const pp_pattern *p, int64_t now_ns)
{
    json_t *ready = json_pack("{ssssssss}", "type", "Ready", "status", "True", "reason", "Measured",
                              "message", "made from the results of its sessions");
    json_t *bound = bound_condition(p);
    set_time(ready, "lastTransitionTime", now_ns);
    set_time(bound, "lastTransitionTime", now_ns);
    return json_pack("[oo]", ready, bound);
}

/* ---- in and out ---- */

json_t *pp_pattern_object(const pp_pattern *p)
{
    return json_pack("{sssss{ssss}s{s{ssss}}}", "apiVersion", API_VERSION, "kind",
                     "ConsumptionPattern", "metadata", "name", p->object, "namespace",
                     p->namespace_, "spec", "workload", "kind", p->kind, "name", p->name);
}

json_t *pp_pattern_figures(const pp_pattern *p)
{
    json_t *to = json_pack("{sIssss}", "steps", (json_int_t)p->usage->steps, "bound",
                           pp_bound_name(p->bound), "shares", p->usage->busy ? "busy" : "elapsed");
    set_figure(to, "boundLead", p->lead, 1);
    if (*p->usage->gpu.model)
        (void)json_object_set_new(to, "gpuModel", json_string(p->usage->gpu.model));
    (void)json_object_set_new(to, "models", models_of(p->usage));
    (void)json_object_set_new(to, "step", step_of(p->usage));
    (void)json_object_set_new(to, "bounds", bounds_of(p->usage));
    (void)json_object_set_new(to, "time", types_of(p->usage));
    (void)json_object_set_new(to, "metrics", metrics_of(p->usage));
    return to;
}

json_t *pp_pattern_status(const pp_pattern *p, int64_t now_ns)
{
    json_t *status = pp_pattern_figures(p);
    (void)json_object_set_new(status, "sessions", json_integer(p->sessions));
    (void)json_object_set_new(status, "gpus", json_integer(p->gpus));
    (void)json_object_set_new(status, "sessionsOfOtherModels", json_integer(p->left.other_models));
    (void)json_object_set_new(status, "sessionsOnOtherGpus", json_integer(p->left.other_gpus));
    (void)json_object_set_new(status, "conditions", conditions_of(p, now_ns));
    set_time(status, "firstFinished", p->first_ns);
    set_time(status, "lastFinished", p->last_ns);
    (void)json_object_set_new(status, "lastSession", json_string(p->session));
    return json_pack("{so}", "status", status);
}

json_t *pp_pattern_summary(const pp_pattern *p)
{
    char workload[2 * PP_PATTERN_NAME];
    (void)snprintf(workload, sizeof workload, "%s/%s", p->kind, p->name);
    json_t *summary = json_pack("{sssssssIsI}", "workload", workload, "pattern", p->object, "bound",
                                pp_bound_name(p->bound), "sessions", (json_int_t)p->sessions,
                                "sessionsOfOtherModels", (json_int_t)p->left.other_models);
    set_figure(summary, "milliseconds", p->usage->step_ns, 1e-6);
    set_figure(summary, "idleShare", p->usage->idle, 1);
    return summary;
}
