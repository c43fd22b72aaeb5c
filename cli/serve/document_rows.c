#include "cli/serve/document_rows.h"

#include "cli/formats/rows.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/metric.h"
#include "common/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A column, and what results.json calls it; ms are ns in some views. */
typedef struct field {
    const char *column, *key;
    bool ms_as_ns;
} field;

static const field quality_fields[] = {{"doubt", "doubt", false},
                                       {"untold", "untold", false},
                                       {"explained", "explained", false},
                                       {"miss", "miss", false},
                                       {"expected_miss", "expectedMiss", false},
                                       {"items", "items", false},
                                       {"items_z", "itemsZ", false},
                                       {"idle", "idle", false},
                                       {"idle_stderr", "idleStandardError", false},
                                       {"shift_ns", "shiftMs", true},
                                       {"shift_stderr_ns", "shiftStandardErrorMs", true},
                                       {"held", "held", false},
                                       {"difference", "difference", false},
                                       {"noise", "noise", false},
                                       {"windows", "windows", false},
                                       {0}};
/* Of all metrics of one process that was sampled. */
static const field sampling_fields[] = {{"windows", "samples", false},
                                        {"lag_ns", "lagNs", false},
                                        {"lag_stderr_ns", "lagStandardErrorNs", false},
                                        {"chip", "chip", false},
                                        {"period_ns", "periodNs", false},
                                        {"times", "times", false},
                                        {"failed_times", "failedTimes", false},
                                        {0}};
static const field kernel_fields[] = {{"kernel", "name", false},
                                      {"calls_per_step", "callsPerStep", false},
                                      {"ms_per_step", "millisecondsPerStep", false},
                                      {0}};
static const field wait_fields[] = {{"layer", "layer", false},
                                    {"phase", "phase", false},
                                    {"call", "call", false},
                                    {"file", "file", false},
                                    {"line", "line", false},
                                    {"calls_per_step", "callsPerStep", false},
                                    {"ms_per_step", "millisecondsPerStep", false},
                                    {"share_of_steps", "shareOfSteps", false},
                                    {0}};
static const field copy_fields[] = {{"layer", "layer", false},
                                    {"phase", "phase", false},
                                    {"type", "type", false},
                                    {"memory", "memory", false},
                                    {"per_step", "perStep", false},
                                    {"bytes_per_step", "bytesPerStep", false},
                                    {"ms_per_step", "millisecondsPerStep", false},
                                    {"gb_per_second", "gigabytesPerSecond", false},
                                    {0}};
static const field rank_fields[] = {{"process", "process", false},
                                    {"rank", "rank", false},
                                    {"world_size", "worldSize", false},
                                    {"steps", "steps", false},
                                    {"ms_per_step", "stepMs", false},
                                    {"wait_ms_per_step", "waitMs", false},
                                    {"own_ms_per_step", "ownMs", false},
                                    {"own_stderr_ms", "ownStandardErrorMs", false},
                                    {0}};

/* What is not there is null. */
static int copy_fields_of(json_t *to, const json_t *from, const field *fields)
{
    for (; fields->column; fields++) {
        json_t *value = json_object_get(from, fields->key);
        json_t *told = value && fields->ms_as_ns && json_is_number(value)
                           ? json_real(json_number_value(value) * 1e6)
                       : value ? json_incref(value)
                               : json_null();
        if (json_object_set_new(to, fields->column, told) < 0)
            return -1;
    }
    return 0;
}

typedef struct view {
    const pp_training *training;
    const char *uid;
    json_t *rows;
} view;

/* A row of the training's one pod, with further texts of its own. */
static json_t *begin_row(const view *v, const json_t *from, const field *fields)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:s}", "workload_kind", "Run", "workload_name",
                            v->training->name, "pod_name", v->training->name, "pod_uid", v->uid);
    if (row && copy_fields_of(row, from, fields) == 0 && json_array_append_new(v->rows, row) == 0)
        return row; /* borrowed by now */
    return NULL;
}

static int add_list(const view *v, const json_t *list, const field *fields, bool numbered)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        json_t *row = begin_row(v, one, fields);
        if (!row || (!numbered && json_object_set_new(row, "process", json_integer(0)) < 0))
            return -1;
    }
    return 0;
}

static double number_at(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static json_t *known(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- ranks ---- */

/* Of n sorted values, one of which is `own`: the median of the others (median_of_others of SQL). */
static double median_of_others(const double *sorted, size_t n, double own)
{
    size_t k = 0;
    if (n < 2)
        return (double)NAN;
    while (k + 1 < n && sorted[k] < own)
        k++;
    const size_t low = (n - 2) / 2, high = (n - 1) / 2;
    return (sorted[low + (low >= k)] + sorted[high + (high >= k)]) / 2;
}

static int add_others(json_t *rows)
{
    static const char own[] = "own_ms_per_step";
    size_t i, n = 0;
    json_t *row;
    PP_CLEANUP_FREE double *sorted = calloc(json_array_size(rows) + 1, sizeof *sorted);
    if (!sorted)
        return -1;
    json_array_foreach(rows, i, row)
    {
        if (isfinite(number_at(row, own)))
            sorted[n++] = number_at(row, own);
    }
    pp_sort_doubles(sorted, n);
    json_array_foreach(rows, i, row)
    {
        const double its = number_at(row, own);
        const double others = isfinite(its) ? median_of_others(sorted, n, its) : its;
        if (json_object_set_new(row, "others_own_ms_per_step", known(others)) < 0)
            return -1;
    }
    return 0;
}

static int add_ranks(const view *v, const json_t *list)
{
    return add_list(v, list, rank_fields, true) < 0 ? -1 : add_others(v->rows);
}

/* ---- layers ---- */

static int complete_layers(json_t *rows, const char *uid)
{
    size_t i;
    json_t *one;
    json_array_foreach(rows, i, one)
    {
        if (json_object_set_new(one, "pod_uid", json_string(uid)) < 0 ||
            json_object_set_new(one, "revision", json_integer(1)) < 0 ||
            json_object_set_new(one, "final", json_true()) < 0)
            return -1;
    }
    return 0;
}

static json_t *layers(const pp_training *training, const char *uid, pp_error *err)
{
    PP_CLEANUP_FREE char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (!to)
        return NULL;
    const int rc = pp_rows_json(training, 1, to, err);
    if (fclose(to) != 0 || rc < 0)
        return NULL;
    PP_CLEANUP_JSON json_t *whole = pp_json_parse(text, n, err);
    json_t *rows = json_incref(json_object_get(whole, "items"));
    if (rows && complete_layers(rows, uid) == 0)
        return rows;
    json_decref(rows);
    return NULL;
}

/* ---- what stands with a GPU ---- */

/* A row of a metric, by its name; *ret is NULL where there is no such metric. */
static int begin_quality(const view *v, const json_t *gpu, const char *name, const json_t *one,
                         const char *method, json_t **ret)
{
    pp_metric metric;
    const char *uuid = pp_json_get_string(gpu, "gpu", NULL);
    const char *own = pp_json_get_string(one, "method", NULL);
    *ret = NULL;
    if (pp_metric_from_name(name, &metric) < 0)
        return 0;
    json_t *row = begin_row(v, one, quality_fields);
    if (!row || json_object_set_new(row, "gpu_uuid", json_string(uuid ? uuid : "")) < 0 ||
        json_object_set_new(row, "metric", json_string(pp_metric_get(metric)->column)) < 0 ||
        json_object_set_new(row, "method", json_string(own ? own : method)) < 0)
        return -1;
    *ret = row;
    return 0;
}

static int add_quality(const view *v, const json_t *gpu, const char *key, const char *method)
{
    const char *name;
    json_t *one, *row;
    json_object_foreach(json_object_get(gpu, key), name, one)
    {
        if (begin_quality(v, gpu, name, one, method, &row) < 0)
            return -1;
    }
    return 0;
}

/* What is known of all metrics of a process that was sampled. */
static int add_sampling(json_t *row, const json_t *sampling)
{
    const json_t *process = json_object_get(sampling, "process");
    if (copy_fields_of(row, sampling, sampling_fields) < 0)
        return -1;
    return json_object_set_new(row, "process", process ? json_deep_copy(process) : json_integer(0));
}

/* Of PM sampling, by process; the clock that samples have beside them has no quality of its own
 * (result_quality). */
static int add_sampling_quality(const view *v, const json_t *gpu)
{
    size_t i;
    json_t *sampling, *one, *row;
    const char *name;
    json_array_foreach(json_object_get(gpu, "fine"), i, sampling)
    {
        json_object_foreach(json_object_get(sampling, "closure"), name, one)
        {
            if (strcmp(name, pp_metric_get(PP_METRIC_SM_CLOCK)->spec_name) == 0)
                continue;
            if (begin_quality(v, gpu, name, one, "sampling", &row) < 0 ||
                (row && add_sampling(row, sampling) < 0))
                return -1;
        }
    }
    return 0;
}

/* ms of a step in which the item's kernels ran. */
static double sum_of_kernels(const json_t *kernels)
{
    size_t i;
    json_t *kernel;
    double sum = 0;
    json_array_foreach(kernels, i, kernel) sum += number_at(kernel, "millisecondsPerStep");
    return sum;
}

static int add_kernels_of(const view *v, const json_t *item, const char *phase)
{
    size_t i;
    json_t *kernel;
    const json_t *kernels = json_object_get(item, "kernels");
    const double all = sum_of_kernels(kernels);
    json_array_foreach(kernels, i, kernel)
    {
        json_t *row = begin_row(v, kernel, kernel_fields);
        const double share = number_at(kernel, "millisecondsPerStep") / all;
        if (!row || json_object_set_new(row, "process", json_integer(0)) < 0 ||
            json_object_set(row, "layer", json_object_get(item, "layer")) < 0 ||
            json_object_set_new(row, "phase", phase ? json_string(phase) : json_null()) < 0 ||
            json_object_set_new(row, "share", known(share)) < 0)
            return -1;
    }
    return 0;
}

static int add_kernels(const view *v, const json_t *gpu)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const char *kind = pp_json_get_string(item, "kind", NULL);
        if (!kind || strcmp(kind, "job") == 0) /* whose are sums */
            continue;
        const char *phase =
            strcmp(kind, "layer") == 0 ? pp_json_get_string(item, "phase", NULL) : kind;
        if (add_kernels_of(v, item, phase) < 0)
            return -1;
    }
    return 0;
}

static int add_of_gpus(const view *v, const char *name)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(json_object_get(v->training->results, "gpus"), i, gpu)
    {
        if (strcmp(name, "kernels") == 0) {
            if (add_kernels(v, gpu) < 0)
                return -1;
            continue;
        }
        if (add_quality(v, gpu, "quality", "") < 0 ||
            add_quality(v, gpu, "closure", "replay") < 0 || add_sampling_quality(v, gpu) < 0)
            return -1;
    }
    return 0;
}

json_t *pp_document_rows(const pp_training *training, const char *name, const char *uid,
                         pp_error *err)
{
    const json_t *results = training->results;
    view v = {training, uid, NULL};
    if (strcmp(name, "layers") == 0)
        return layers(training, uid, err);
    static const char *const known[] = {"quality", "kernels", "waits", "copies", "ranks"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i]) == 0)
            v.rows = json_array();
    }
    if (!v.rows)
        return NULL;
    const int rc =
        strcmp(name, "waits") == 0
            ? add_list(&v, pp_json_get(results, "hostWaits", "calls", NULL), wait_fields, false)
        : strcmp(name, "copies") == 0
            ? add_list(&v, pp_json_get(results, "copies", "items", NULL), copy_fields, false)
        : strcmp(name, "ranks") == 0 ? add_ranks(&v, json_object_get(results, "ranks"))
                                     : add_of_gpus(&v, name);
    if (rc == 0)
        return v.rows;
    (void)pp_error_nomem(err);
    json_decref(v.rows);
    return NULL;
}
