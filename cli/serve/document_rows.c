#include "cli/serve/document_rows.h"

#include "cli/formats/rows.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/metric.h"

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

static int add_quality(const view *v, const json_t *gpu, const char *key, const char *method)
{
    const char *name;
    json_t *one;
    const char *uuid = pp_json_get_string(gpu, "gpu", NULL);
    json_object_foreach(json_object_get(gpu, key), name, one)
    {
        pp_metric metric;
        if (pp_metric_from_name(name, &metric) < 0)
            continue;
        const char *own = pp_json_get_string(one, "method", NULL);
        json_t *row = begin_row(v, one, quality_fields);
        if (!row || json_object_set_new(row, "gpu_uuid", json_string(uuid ? uuid : "")) < 0 ||
            json_object_set_new(row, "metric", json_string(pp_metric_get(metric)->column)) < 0 ||
            json_object_set_new(row, "method", json_string(own ? own : method)) < 0)
            return -1;
    }
    return 0;
}

static int add_kernels(const view *v, const json_t *gpu)
{
    size_t i, k;
    json_t *item, *kernel;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const char *kind = pp_json_get_string(item, "kind", NULL);
        const bool layer = kind && strcmp(kind, "layer") == 0;
        if (!kind || strcmp(kind, "job") == 0) /* whose are sums */
            continue;
        json_array_foreach(json_object_get(item, "kernels"), k, kernel)
        {
            json_t *row = begin_row(v, kernel, kernel_fields);
            json_t *phase = layer ? json_incref(json_object_get(item, "phase")) : json_string(kind);
            if (!row || json_object_set_new(row, "process", json_integer(0)) < 0 ||
                json_object_set(row, "layer", json_object_get(item, "layer")) < 0 ||
                json_object_set_new(row, "phase", phase) < 0)
                return -1;
        }
    }
    return 0;
}

static int add_of_gpus(const view *v, const char *name)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(json_object_get(v->training->results, "gpus"), i, gpu)
    {
        if (strcmp(name, "kernels") == 0 ? add_kernels(v, gpu) < 0
                                         : add_quality(v, gpu, "quality", "") < 0 ||
                                               add_quality(v, gpu, "closure", "replay") < 0)
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
        : strcmp(name, "ranks") == 0
            ? add_list(&v, json_object_get(results, "ranks"), rank_fields, true)
            : add_of_gpus(&v, name);
    if (rc == 0)
        return v.rows;
    (void)pp_error_nomem(err);
    json_decref(v.rows);
    return NULL;
}
