#include "cli/formats/figures.h"
#include "cli/serve/document_rows.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/metric.h"

#include <string.h>

/* {value, standardError} under a key into two columns; null where it is not there. */
static int set_figure(json_t *to, const char *column, const char *error, const json_t *from,
                      const char *key, double scale)
{
    const char *const columns[] = {column, error};
    static const char *const parts[] = {"value", "standardError"};
    for (int i = 0; i < 2; i++) {
        const json_t *told = pp_json_get(from, key, parts[i], NULL);
        json_t *value =
            json_is_number(told) ? json_real(json_number_value(told) * scale) : json_null();
        if (json_object_set_new(to, columns[i], value) < 0)
            return -1;
    }
    return 0;
}

/* Shares by one of the names that a share may have. */
static int add_shares(json_t *to, const json_t *list, const char *name, const char *kind)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *what = pp_json_get_string(one, name, NULL);
        if (!what)
            continue;
        json_t *row = json_pack("{s:s, s:s}", "kind", kind, "name", what);
        if (!row || json_array_append_new(to, row) < 0 ||
            set_figure(row, "share", "share_stderr", one, "share", 1) < 0 ||
            set_figure(row, "achieved", "achieved_stderr", one, "achieved", 1) < 0)
            return -1;
    }
    return 0;
}

static int add_metrics(json_t *to, const json_t *list)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        pp_metric metric;
        const char *name = pp_json_get_string(one, "name", NULL);
        if (!name || pp_metric_from_name(name, &metric) < 0)
            continue;
        json_t *row = json_pack("{s:s, s:O?, s:O?, s:O?}", "metric", pp_metric_get(metric)->column,
                                "source", json_object_get(one, "source"), "most",
                                json_object_get(one, "max"), "peak", json_object_get(one, "peak"));
        if (!row || json_array_append_new(to, row) < 0 ||
            set_figure(row, "mean", "mean_stderr", one, "mean", 1) < 0 ||
            set_figure(row, "p50", "p50_stderr", one, "p50", 1) < 0 ||
            set_figure(row, "p95", "p95_stderr", one, "p95", 1) < 0 ||
            set_figure(row, "achieved", "achieved_stderr", one, "achieved", 1) < 0)
            return -1;
    }
    return 0;
}

static int set_lists(json_t *to, const json_t *pattern)
{
    json_t *bounds = json_array(), *time = json_array(), *metrics = json_array();
    const bool made =
        bounds && time && metrics &&
        add_shares(bounds, json_object_get(pattern, "bounds"), "by", "bound") == 0 &&
        add_shares(time, json_object_get(pattern, "time"), "layerType", "layer") == 0 &&
        add_shares(time, json_object_get(pattern, "time"), "phase", "phase") == 0 &&
        add_metrics(metrics, json_object_get(pattern, "metrics")) == 0;
    int rc = json_object_set_new(to, "bounds", bounds);
    rc |= json_object_set_new(to, "time", time);
    rc |= json_object_set_new(to, "metrics", metrics);
    return made && rc == 0 ? 0 : -1;
}

/* Times of processes that name no GPU count where there is nothing else. */
static json_int_t count_gpus(const json_t *results)
{
    const size_t named = pp_figure_gpus(results);
    return (json_int_t)(named ? named : json_array_size(json_object_get(results, "gpus")));
}

json_t *pp_document_pattern(const pp_training *training, const char *uid)
{
    const json_t *of = json_object_get(training->results, "pattern");
    const json_t *step = json_object_get(of, "step");
    const char *shares = pp_json_get_string(of, "shares", NULL);
    const json_t *spread = json_object_get(step, "spreadMilliseconds");
    if (!json_is_object(of))
        return NULL;
    json_t *models = json_object_get(of, "models");
    json_t *whole = json_pack(
        "{s:s, s:s, s:s, s:s, s:O?, s:i, s:I, s:O?, s:O?, s:s, s:i, s:i, s:O?, s:O?, s:o, s:b}",
        "namespace", "local", "pattern", uid, "workload_kind", "Run", "workload_name",
        training->name, "bound", json_object_get(of, "bound"), "sessions", 1, "gpus",
        count_gpus(training->results), "steps", json_object_get(of, "steps"), "last_finished",
        json_object_get(training->results, "finished"), "last_session", uid,
        "sessions_of_other_models", 0, "sessions_on_other_gpus", 0, "gpu_model",
        json_object_get(of, "gpuModel"), "undisturbed", json_object_get(step, "undisturbed"),
        "models", json_is_array(models) ? json_incref(models) : json_array(), "busy",
        shares && strcmp(shares, "busy") == 0);
    json_t *sd = json_is_number(spread) ? json_real(json_number_value(spread) * 1e6) : json_null();
    if (whole && set_figure(whole, "lead", "lead_stderr", of, "boundLead", 1) == 0 &&
        set_figure(whole, "step_ns", "step_ns_stderr", step, "milliseconds", 1e6) == 0 &&
        set_figure(whole, "idle", "idle_stderr", step, "idleShare", 1) == 0 &&
        json_object_set(whole, "step_sd_ns", sd) == 0 && set_lists(whole, of) == 0) {
        json_decref(sd);
        return whole;
    }
    json_decref(sd);
    json_decref(whole);
    return NULL;
}
