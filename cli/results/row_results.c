#include "cli/results/row_results.h"

#include "cli/results/results.h"
#include "common/metric.h"
#include "common/time.h"

#include <string.h>

typedef struct pair {
    const char *column, *key;
} pair;

static const pair of_gpu[] = {{"gpu_uuid", "gpu"},
                              {"pod_name", "pod"},
                              {"pod_uid", "podUid"},
                              {"node", "node"},
                              {"workload_kind", "workloadKind"},
                              {"workload_name", "workloadName"},
                              {"step_ns", "stepNs"},
                              {"gap_ns", "gapNs"},
                              {"counted_steps", "countedSteps"},
                              {"counted_ms_per_step", "countedStepMs"},
                              {"counted_ms_per_step_stderr", "countedStepMsStandardError"},
                              {"counted_ms_per_step_freedom", "countedStepMsFreedom"},
                              {"step_ms_stderr", "stepMsStandardError"},
                              {"step_ms_freedom", "stepMsFreedom"},
                              {"counted_idle_share", "countedIdleShare"},
                              {"marked_steps", "steps"},
                              {"captures", "captures"}};

static const pair of_item[] = {{"kind", "kind"},
                               {"layer", "layer"},
                               {"type", "type"},
                               {"phase", "phase"},
                               {"parameters", "parameters"},
                               {"calls", "calls"},
                               {"total_ns", "totalNs"},
                               {"ms_per_step", "millisecondsPerStep"},
                               {"ms_per_step_stderr", "millisecondsPerStepStandardError"},
                               {"ms_per_step_freedom", "millisecondsPerStepFreedom"},
                               {"least_ms_per_step", "leastMillisecondsPerStep"},
                               {"share", "share"},
                               {"busy_ns", "busyNs"},
                               {"busy_ms_per_step", "busyMillisecondsPerStep"},
                               {"busy_ms_per_step_stderr", "busyMillisecondsPerStepStandardError"},
                               {"busy_ms_per_step_freedom", "busyMillisecondsPerStepFreedom"},
                               {"idle_share", "idleShare"},
                               {"busy_reason", "busyReason"},
                               {"bound", "bound"},
                               {"bound_likely", "boundLikely"},
                               {"memory_peak_bytes", "memoryPeakBytes"},
                               {"memory_live_bytes", "memoryLiveBytes"},
                               {"whole_reason", "wholeReason"}};

static const pair of_metric[] = {{"mean", "mean"},
                                 {"stderr", "standardError"},
                                 {"windows", "windows"},
                                 {"method", "method"},
                                 {"source", "source"},
                                 {"basis", "basis"},
                                 {"reason", "reason"},
                                 {"group_name", "group"},
                                 {"group_mean", "groupMean"},
                                 {"group_stderr", "groupStandardError"},
                                 {"achieved", "achieved"},
                                 {"peak", "peak"},
                                 {"amount_per_step", "perStep"}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Texts are never null in results; what else is not known is. */
static void take(json_t *to, const json_t *row, const pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *value = json_object_get(row, pairs[i].column);
        if (value)
            (void)json_object_set(to, pairs[i].key, value);
    }
}

/* ---- GPUs ---- */

static void set_time(json_t *gpu, const json_t *row, const char *column, const char *key)
{
    int64_t ns;
    const char *text = pp_json_get_string(row, column, NULL);
    if (text && pp_time_parse(text, &ns, NULL) == 0)
        (void)json_object_set_new(gpu, key, json_integer(ns));
}

static void set_lag(json_t *gpu, const json_t *row)
{
    const json_t *lag = json_object_get(row, "lag_ns"),
                 *error = json_object_get(row, "lag_stderr_ns");
    (void)json_object_set_new(
        gpu, "lagMs", json_is_number(lag) ? json_real(json_number_value(lag) / 1e6) : json_null());
    (void)json_object_set_new(gpu, "lagStandardErrorMs",
                              json_is_number(error) ? json_real(json_number_value(error) / 1e6)
                                                    : json_null());
}

static json_t *new_gpu(const json_t *row)
{
    json_t *gpu = json_pack("{s:s, s:[]}", "gpu", "", "items");
    const json_t *ns = json_object_get(row, "step_ns"), *n = json_object_get(row, "marked_steps");
    if (!gpu)
        return NULL;
    take(gpu, row, of_gpu, COUNT(of_gpu));
    set_time(gpu, row, "first_marked", "firstStepNs");
    set_time(gpu, row, "last_marked", "lastStepNs");
    set_lag(gpu, row);
    (void)json_object_set_new(
        gpu, "stepMs",
        json_is_number(ns) && json_integer_value(n) > 0
            ? json_real(json_number_value(ns) / (double)json_integer_value(n) / 1e6)
            : json_null());
    return gpu;
}

/* The GPU that a row is of; made where it is the first. Borrowed; NULL where memory is out. */
static json_t *gpu_of(json_t *results, const json_t *row)
{
    json_t *gpus = json_object_get(results, "gpus"), *gpu;
    size_t i;
    json_array_foreach(gpus, i, gpu)
    {
        if (strcmp(pp_results_text(gpu, "gpu"), pp_results_text(row, "gpu_uuid")) == 0 &&
            strcmp(pp_results_text(gpu, "pod"), pp_results_text(row, "pod_name")) == 0 &&
            strcmp(pp_results_text(gpu, "podUid"), pp_results_text(row, "pod_uid")) == 0)
            return gpu;
    }
    gpu = new_gpu(row);
    return json_array_append_new(gpus, gpu) == 0 ? gpu : NULL;
}

/* ---- items ---- */

static json_t *metrics_of(const json_t *row)
{
    json_t *metrics = json_object(), *told;
    const char *name;
    json_object_foreach(json_object_get(row, "metrics"), name, told)
    {
        pp_metric metric;
        json_t *value = json_object();
        take(value, told, of_metric, COUNT(of_metric));
        (void)json_object_set_new(
            metrics,
            pp_metric_from_name(name, &metric) == 0 ? pp_metric_get(metric)->spec_name : name,
            value);
    }
    return metrics;
}

/* Of what is no layer the phase is its kind in results, and empty in rows. */
static int add_item(json_t *gpu, const json_t *row, pp_error *err)
{
    json_t *item = json_pack("{s:s, s:s}", "layer", "", "type", "");
    const char *kind = pp_results_text(row, "kind");
    if (!item)
        return pp_error_nomem(err);
    take(item, row, of_item, COUNT(of_item));
    if (strcmp(kind, "layer") != 0)
        (void)json_object_set_new(item, "phase",
                                  json_string(strcmp(kind, "job") == 0 ? "idle" : kind));
    if (!json_is_string(json_object_get(item, "type")))
        (void)json_object_set_new(item, "type", json_string(""));
    return json_object_set_new(item, "metrics", metrics_of(row)) == 0 &&
                   json_array_append_new(json_object_get(gpu, "items"), item) == 0
               ? 0
               : pp_error_nomem(err);
}

/* Regression's where any row has it; only the job's averages where no layer has another method. */
static const char *method_of(const json_t *results)
{
    size_t i, k;
    json_t *gpu, *item, *metric;
    const char *name;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
        {
            json_object_foreach(json_object_get(item, "metrics"), name, metric)
            {
                const char *why = pp_results_text(metric, "reason");
                if (strcmp(why, "only job averages were asked for") == 0)
                    return "Job";
            }
        }
    }
    return "Auto";
}

int pp_row_results(const json_t *rows, json_t **ret, pp_error *err)
{
    const json_t *items = json_object_get(rows, "items");
    json_t *results = json_pack("{s:i, s:[]}", "version", 1, "gpus"), *row;
    size_t i;
    int rc = results ? 0 : pp_error_nomem(err);
    if (rc == 0 && !json_is_array(items))
        rc = pp_error_field(err, "items", "is missing: these are no rows");
    json_array_foreach((json_t *)(uintptr_t)items, i, row)
    {
        json_t *gpu = rc == 0 ? gpu_of(results, row) : NULL;
        if (rc == 0)
            rc = gpu ? add_item(gpu, row, err) : pp_error_nomem(err);
        if (rc == 0 && i == 0) {
            static const pair of_session[] = {{"namespace", "namespace"}, {"session", "session"}};
            take(results, row, of_session, COUNT(of_session));
            take(results, rows, of_session, COUNT(of_session));
        }
    }
    if (rc == 0)
        (void)json_object_set_new(results, "method", json_string(method_of(results)));
    if (rc < 0)
        json_decref(results);
    else
        *ret = results;
    return rc;
}

/* ---- quality ---- */

static json_t *object_in(json_t *to, const char *key)
{
    json_t *object = json_object_get(to, key);
    if (!object && (object = json_object()))
        (void)json_object_set_new(to, key, object);
    return object;
}

/* Where a row of a method is told: what PM sampling says in the first of `fine`. */
static json_t *place_of(json_t *gpu, const char *method)
{
    if (strcmp(method, "sampling") != 0)
        return object_in(gpu, strcmp(method, "replay") == 0 ? "closure" : "quality");
    json_t *fine = json_object_get(gpu, "fine");
    if (!fine && (fine = json_pack("[{s:{}}]", "closure")))
        (void)json_object_set_new(gpu, "fine", fine);
    return json_object_get(json_array_get(fine, 0), "closure");
}

int pp_row_results_quality(json_t *results, const json_t *rows, pp_error *err)
{
    static const pair told[] = {{"doubt", "doubt"},
                                {"untold", "untold"},
                                {"explained", "explained"},
                                {"held", "held"},
                                {"difference", "difference"}};
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(rows, "items"), i, row)
    {
        pp_metric metric;
        json_t *gpu = gpu_of(results, row), *value = json_object();
        json_t *to = gpu ? place_of(gpu, pp_results_text(row, "method")) : NULL;
        if (!to || !value) {
            json_decref(value);
            return pp_error_nomem(err);
        }
        take(value, row, told, COUNT(told));
        const char *name = pp_results_text(row, "metric");
        (void)json_object_set_new(
            to, pp_metric_from_name(name, &metric) == 0 ? pp_metric_get(metric)->spec_name : name,
            value);
    }
    return 0;
}
