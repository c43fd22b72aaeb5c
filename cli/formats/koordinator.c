/*
 * Koordinator: a NodeMetric, with the training as the pod that it is on that node. Its GPUs are
 * devices of the pod's usage, as koordlet reports them: gpu-core is percent of one GPU, gpu-memory
 * bytes. What Koordinator has no field for, how the training consumes, is an extension of the
 * pod's: under "Object", since Go's decoder knows no inlined maps (ExtensionsMap).
 */
#include "cli/formats/figures.h"
#include "cli/formats/schedulers.h"
#include "common/cleanup.h"
#include "common/json.h"

#define DOMAIN "koordinator.sh/"
#define MIB 1048576.0

static const pp_told_field fields[] = {{"node", PP_TOLD_TEXT, true},
                                       {"namespace", PP_TOLD_TEXT, true},
                                       {"pod", PP_TOLD_TEXT, true},
                                       {NULL, PP_TOLD_TEXT, false}};

/* A quantity in thousandths; left out where it is not known. */
static void set_quantity(json_t *to, const char *name, double value, const char *suffix)
{
    char text[48];
    (void)snprintf(text, sizeof text, "%.0f%s", value, suffix);
    if (isfinite(value))
        (void)json_object_set_new(to, name, json_string(text));
}

/* Its health is not measured; koordlet, which does not either, says false. */
static json_t *device_of(const json_t *gpu)
{
    json_t *resources = json_object();
    set_quantity(resources, DOMAIN "gpu-core", 1000 * pp_figure_of_gpu(gpu, PP_METRIC_GPU_UTIL),
                 "m");
    set_quantity(resources, DOMAIN "gpu-memory", MIB * pp_figure_of_gpu(gpu, PP_METRIC_GPU_MEM),
                 "");
    if (json_object_size(resources) == 0) {
        json_decref(resources);
        return NULL;
    }
    return json_pack("{sssssbso}", "type", "gpu", "id", pp_figure_text(gpu, "gpu"), "health", 0,
                     "resources", resources);
}

static json_t *devices_of(const json_t *results)
{
    size_t i;
    json_t *gpu, *all = json_array();
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        json_t *device = *pp_figure_text(gpu, "gpu") ? device_of(gpu) : NULL;
        if (device)
            (void)json_array_append_new(all, device);
    }
    return all;
}

static json_t *pod_of(const pp_format_job *job, json_t *devices)
{
    json_t *pod =
        json_pack("{sOsOs{so}}", "name", json_object_get(job->told, "pod"), "namespace",
                  json_object_get(job->told, "namespace"), "podUsage", "devices", devices);
    json_t *pattern = json_object_get(job->trainings[0].results, "pattern");
    if (pod && json_is_object(pattern))
        (void)json_object_set_new(
            pod, "extensions",
            json_pack("{s{sO}}", "Object", "precisionprobe.io/pattern", pattern));
    return pod;
}

static int write_file(const pp_format_job *job, pp_error *err)
{
    const pp_training *t = &job->trainings[0];
    const char *finished = pp_json_get_string(t->results, "finished", NULL);
    json_t *devices = devices_of(t->results);
    if (json_array_size(devices) == 0 || !finished) {
        json_decref(devices);
        return pp_error_field(err, finished ? "devices" : "finished", "of %s %s", t->name,
                              finished ? "are not known: no GPU was measured" : "is not known");
    }
    PP_CLEANUP_JSON json_t *all =
        json_pack("{ssss s{sO} s{ss s[o]}}", "apiVersion", "slo.koordinator.sh/v1alpha1", "kind",
                  "NodeMetric", "metadata", "name", json_object_get(job->told, "node"), "status",
                  "updateTime", finished, "podsMetric", pod_of(job, devices));
    if (!all || json_dumpf(all, job->to, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) < 0)
        return pp_error_nomem(err);
    (void)fputc('\n', job->to);
    return 0;
}

const pp_format pp_format_koordinator = {
    .name = "koordinator", .single = true, .fields = fields, .write = write_file};
