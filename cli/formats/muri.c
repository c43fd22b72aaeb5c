/*
 * Muri: a trace of jobs, as trace-data/ of its simulator and its cluster's runs, a row for each
 * training. Its parser divides most fields without asking whether they are there, and takes whole
 * numbers alone for all but the resources' times and the duration: what it needs and nothing tells
 * is refused. Times are ms.
 *
 * Resource 0 is what the step waits for its batch (storage and processors), 1 the GPU, 2 the
 * network.
 */
#include "cli/formats/csv.h"
#include "cli/formats/figures.h"
#include "cli/formats/schedulers.h"

#include <stdlib.h>

#define HEAD                                                                                       \
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"               \
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"

static const pp_told_field fields[] = {
    {"submit_time", PP_TOLD_WHOLE, true}, {"iterations", PP_TOLD_WHOLE, true},
    {"num_gpu", PP_TOLD_WHOLE, false},    {"model_name", PP_TOLD_TEXT, false},
    {"batch_size", PP_TOLD_WHOLE, false}, {"priority", PP_TOLD_WHOLE, false},
    {NULL, PP_TOLD_TEXT, false}};

typedef struct job_row {
    double gpus, batch, step_ms, resources[3];
    const char *model;
} job_row;

static const char *told(const pp_format_job *job, const char *name)
{
    return json_string_value(json_object_get(job->told, name));
}

static double told_or(const pp_format_job *job, const char *name, double measured)
{
    const char *text = told(job, name);
    return text ? strtod(text, NULL) : measured;
}

static int missing(const pp_training *t, const char *field, const char *what, pp_error *err)
{
    return pp_error_field(err, field, "of %s is not known, and Muri needs it: %s", t->name, what);
}

static int find_resources(const pp_training *t, job_row *row, pp_error *err)
{
    const double idle = pp_figure_idle_share(t->results);
    const double data = pp_figure_bound_share(t->results, "Data");
    const double network = pp_figure_bound_share(t->results, "Communication");
    if (isnan(row->step_ms) || row->step_ms < 0.5)
        return missing(t, "pattern.step.milliseconds", "how long a step takes, 1 ms at least", err);
    if (isnan(idle))
        return missing(t, "pattern.step.idleShare", "kernels were not recorded", err);
    if (isnan(data) || isnan(network))
        return missing(t, "pattern.bounds", "what a step waits for", err);
    row->resources[0] = pp_figure_rounded(data * row->step_ms);
    row->resources[1] = pp_figure_rounded(fmax(1 - idle - network, 0) * row->step_ms);
    row->resources[2] = pp_figure_rounded(network * row->step_ms);
    return 0;
}

static int find_row(const pp_format_job *job, const pp_training *t, job_row *row, pp_error *err)
{
    const char *model = told(job, "model_name");
    *row = (job_row){.gpus = told_or(job, "num_gpu", (double)pp_figure_gpus(t->results)),
                     .batch = told_or(job, "batch_size", pp_figure_batch(t->results)),
                     .step_ms = pp_figure_step_ms(t->results),
                     .model = model ? model : pp_figure_model(t->results)};
    if (row->gpus < 1)
        return missing(t, "num_gpu", "no GPU was used; --set num_gpu=VALUE", err);
    if (!row->model)
        return missing(t, "model_name", "--set model_name=VALUE", err);
    if (isnan(row->batch))
        return missing(t, "batch_size", "--set batch_size=VALUE", err);
    return find_resources(t, row, err);
}

static void write_row(const pp_format_job *job, size_t number, const job_row *row)
{
    const char *priority = told(job, "priority");
    const double iterations = strtod(told(job, "iterations"), NULL);
    (void)fprintf(job->to, "%zu,%.0f,%s,%s,", number, row->gpus, told(job, "submit_time"),
                  told(job, "iterations"));
    pp_csv_text(job->to, row->model);
    (void)fprintf(job->to, ",%.0f,%.0f,,%.0f", row->batch, iterations * row->step_ms, row->step_ms);
    for (size_t i = 0; i < sizeof row->resources / sizeof *row->resources; i++) {
        (void)fputc(',', job->to);
        pp_csv_number(job->to, row->resources[i]);
    }
    (void)fprintf(job->to, ",%s\n", priority ? priority : "");
}

/* Its parser takes no fraction there. */
static void note_rounded(const pp_format_job *job, const pp_training *t, double ms)
{
    if (fabs(round(ms) - ms) > 0.01 * ms)
        (void)fprintf(job->notes,
                      "precisionprobe: muri: iteration_time of %s is whole ms: %.0f for %.3f\n",
                      t->name, ms, ms);
}

static int write_file(const pp_format_job *job, pp_error *err)
{
    (void)fputs(HEAD, job->to);
    for (size_t t = 0; t < job->n; t++) {
        job_row row;
        if (find_row(job, &job->trainings[t], &row, err) < 0)
            return -1;
        note_rounded(job, &job->trainings[t], row.step_ms);
        write_row(job, t, &row);
    }
    return 0;
}

const pp_format pp_format_muri = {.name = "muri", .fields = fields, .write = write_file};
