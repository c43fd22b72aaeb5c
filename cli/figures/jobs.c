#include "cli/figures/jobs.h"

#include "cli/formats/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN ((double)NAN)

pp_figure_value pp_figure_value_of(const json_t *row, pp_metric metric)
{
    const pp_metric_info *info = pp_metric_get(metric);
    const json_t *from = json_object_get(json_object_get(row, "metrics"), info->column);
    return (pp_figure_value){.mean = pp_figure_number(from, "mean") * info->shown,
                             .stderr_ = pp_figure_number(from, "stderr") * info->shown,
                             .group_mean = pp_figure_number(from, "group_mean") * info->shown,
                             .group = pp_figure_text(from, "group_name"),
                             .reason = pp_figure_text(from, "reason")};
}

static pp_figure_job *job_of(pp_figure_job *jobs, size_t *n, const json_t *row)
{
    const pp_figure_job found = {.session = pp_figure_text(row, "session"),
                                 .pod = pp_figure_text(row, "pod_name"),
                                 .gpu = pp_figure_text(row, "gpu_uuid"),
                                 .workload = pp_figure_text(row, "workload_name"),
                                 .step_ms = UNKNOWN,
                                 .step_stderr = UNKNOWN};
    for (size_t i = 0; i < *n; i++)
        if (strcmp(jobs[i].session, found.session) == 0 && strcmp(jobs[i].pod, found.pod) == 0 &&
            strcmp(jobs[i].gpu, found.gpu) == 0)
            return &jobs[i];
    jobs[*n] = found;
    return &jobs[(*n)++];
}

static bool phase_of(const json_t *row, pp_figure_phase *ret)
{
    const char *phase = pp_figure_text(row, "phase");
    *ret = strcmp(phase, "backward") == 0 ? PP_FIGURE_BACKWARD : PP_FIGURE_FORWARD;
    return *ret == PP_FIGURE_BACKWARD || strcmp(phase, "forward") == 0;
}

/* Both phases of a layer lie together, as the API sorts them, or anywhere. */
static int add_layer(pp_figure_job *job, const json_t *row, pp_error *err)
{
    const char *name = pp_figure_text(row, "layer");
    pp_figure_phase phase;
    size_t i = job->count;
    if (!phase_of(row, &phase))
        return 0;
    while (i > 0 && strcmp(job->layers[i - 1].name, name) != 0)
        i--;
    if (i == 0) {
        pp_figure_layer *more = realloc(job->layers, (job->count + 1) * sizeof *more);
        if (!more)
            return pp_error_nomem(err);
        job->layers = more;
        more[job->count] = (pp_figure_layer){.name = name, .ms = {UNKNOWN, UNKNOWN}};
        i = ++job->count;
    }
    job->layers[i - 1].rows[phase] = row;
    job->layers[i - 1].ms[phase] = pp_figure_number(row, "ms_per_step");
    return 0;
}

static double time_of(const pp_figure_layer *layer)
{
    double sum = 0;
    for (int phase = 0; phase < PP_FIGURE_PHASES; phase++)
        sum += layer->ms[phase] > 0 ? layer->ms[phase] : 0;
    return sum;
}

typedef struct ranked {
    pp_figure_layer *layer;
    double ms;
} ranked;

static int longest_first(const void *a, const void *b)
{
    const double x = ((const ranked *)a)->ms;
    const double y = ((const ranked *)b)->ms;
    return (x < y) - (x > y);
}

static int choose(pp_figure_job *job, size_t most, pp_error *err)
{
    ranked *order = calloc(job->count + 1, sizeof *order);
    if (!order)
        return pp_error_nomem(err);
    for (size_t i = 0; i < job->count; i++)
        order[i] = (ranked){&job->layers[i], time_of(&job->layers[i])};
    qsort(order, job->count, sizeof *order, longest_first);
    for (size_t i = 0; i < job->count; i++) {
        const bool timed = order[i].ms > 0;
        order[i].layer->shown = timed && i < most;
        job->timeless += !timed;
        job->hidden += timed && i >= most;
        *(timed && i < most ? &job->shown_ms : &job->hidden_ms) += order[i].ms;
    }
    free(order);
    return 0;
}

static int add_row(pp_figure_job *jobs, size_t *n, const json_t *row, pp_error *err)
{
    const char *kind = pp_figure_text(row, "kind");
    pp_figure_job *job = job_of(jobs, n, row);
    if (strcmp(kind, "layer") == 0)
        return add_layer(job, row, err);
    if (strcmp(kind, "job") != 0)
        return 0;
    const double counted = pp_figure_number(row, "counted_ms_per_step");
    const double marked = pp_figure_number(row, "marked_steps");
    job->row = row;
    job->step_ms = counted > 0  ? counted
                   : marked > 0 ? pp_figure_number(row, "step_ns") / 1e6 / marked
                                : (double)NAN;
    job->step_stderr =
        pp_figure_number(row, counted > 0 ? "counted_ms_per_step_stderr" : "step_ms_stderr");
    return 0;
}

int pp_figure_jobs(const json_t *document, size_t most, pp_figure_job **ret, size_t *ret_n,
                   pp_error *err)
{
    const json_t *items = json_object_get(document, "items");
    size_t i, n = 0, layers = 0;
    json_t *row;
    if (!json_is_array(items))
        return pp_error_field(err, "items", "is missing: these are no rows of results");
    pp_figure_job *jobs = calloc(json_array_size(items) + 1, sizeof *jobs);
    if (!jobs)
        return pp_error_nomem(err);
    int rc = 0;
    json_array_foreach(items, i, row)
    {
        if (rc == 0)
            rc = add_row(jobs, &n, row, err);
    }
    for (i = 0; rc == 0 && i < n; i++) {
        layers += jobs[i].count;
        rc = choose(&jobs[i], most, err);
    }
    if (rc == 0 && layers == 0)
        rc = pp_error_field(err, "items", "has no layer");
    if (rc < 0) {
        pp_figure_jobs_free(jobs, n);
        return -1;
    }
    *ret = jobs;
    *ret_n = n;
    return 0;
}

void pp_figure_jobs_free(pp_figure_job *jobs, size_t n)
{
    for (size_t i = 0; jobs && i < n; i++)
        free(jobs[i].layers);
    free(jobs);
}
