/*
 * Trimaran: what load-watcher answers at /watcher, as its own client decodes it (WatcherMetrics).
 * Values are percent. Trimaran's plugins read the types CPU and Memory, which are not measured
 * here, and leave others alone: these are of the type GPU.
 */
#include "cli/formats/figures.h"
#include "cli/formats/schedulers.h"
#include "common/cleanup.h"
#include "common/json.h"

#include <string.h>

static const pp_told_field fields[] = {{"host", PP_TOLD_TEXT, false}, {NULL, PP_TOLD_TEXT, false}};

/* Of the GPUs that the training uses on its node. */
static json_t *metrics_of(const json_t *results)
{
    json_t *all = json_array();
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const double mean = pp_figure_of_gpus(results, (pp_metric)m);
        if (info->kind != PP_METRIC_SHARE || isnan(mean))
            continue;
        (void)json_array_append_new(
            all, json_pack("{ssssssso}", "name", info->spec_name, "type", "GPU", "operator", "AVG",
                           "value", json_real(pp_figure_rounded(mean * info->shown))));
    }
    return all;
}

static int add_node(const pp_format_job *job, const pp_training *t, json_t *nodes, pp_error *err)
{
    const char *told = json_string_value(json_object_get(job->told, "host"));
    const char *host = told ? told : t->recorded ? t->recorded->host : NULL;
    if (!host)
        return pp_error_field(err, "host", "of %s is not known: --set host=NODE", t->name);
    if (json_object_get(nodes, host))
        return pp_error_field(err, "host", "%s has several trainings: load-watcher has one each",
                              host);
    json_t *metrics = metrics_of(t->results);
    if (json_array_size(metrics) == 0) {
        json_decref(metrics);
        return pp_error_field(err, "metrics", "of %s are not known: no GPU was measured", t->name);
    }
    return json_object_set_new(nodes, host, json_pack("{so}", "metrics", metrics)) == 0
               ? 0
               : pp_error_nomem(err);
}

/* Seconds since 1970 of the first and the last step that was measured. */
static void widen(const json_t *results, json_int_t *start, json_int_t *end)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        const json_int_t first = json_integer_value(json_object_get(gpu, "firstStepNs"));
        const json_int_t last = json_integer_value(json_object_get(gpu, "lastStepNs"));
        if (first > 0 && (*start == 0 || first / 1000000000 < *start))
            *start = first / 1000000000;
        if (last / 1000000000 > *end)
            *end = last / 1000000000;
    }
}

static int write_file(const pp_format_job *job, pp_error *err)
{
    char duration[32];
    json_int_t start = 0, end = 0;
    PP_CLEANUP_JSON json_t *nodes = json_object();
    for (size_t t = 0; t < job->n; t++) {
        if (add_node(job, &job->trainings[t], nodes, err) < 0)
            return -1;
        widen(job->trainings[t].results, &start, &end);
    }
    (void)snprintf(duration, sizeof duration, "%llds", (long long)(end - start));
    PP_CLEANUP_JSON json_t *all =
        json_pack("{sIs{sssIsI}sss{sO}}", "timestamp", end, "window", "duration", duration, "start",
                  start, "end", end, "source", "PrecisionProbe", "data", "NodeMetricsMap", nodes);
    if (!all || json_dumpf(all, job->to, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) < 0)
        return pp_error_nomem(err);
    (void)fputc('\n', job->to);
    return 0;
}

const pp_format pp_format_trimaran = {
    .name = "trimaran", .recorded = true, .fields = fields, .write = write_file};
