/* A target's activity and samples out of the store. */
#include "operator/store/store_internal.h"

#include <stdlib.h>
#include <string.h>

/* Rows in an order that depends on the data alone. */
/* Waits are kept by process, whichever agents saw it: the first has them. What it trains is what it
 * said last, to whichever of them. */
#define LATEST(column)                                                                             \
    "first_value(" column ") OVER (PARTITION BY process ORDER BY last_end_ns DESC NULLS LAST, "    \
    "instance COLLATE \"C\")"
static const char processes_sql[] =
    "SELECT instance, process, gpus, kernels, fine, isolated, chip, "
    "rank, world_size, " LATEST("model") ", " LATEST("model_digest") ", " LATEST(
        "batch") ", CASE WHEN row_number() OVER (PARTITION BY process ORDER BY instance "
                 "COLLATE \"C\") = 1 THEN (SELECT least(coalesce(sum(w.ns), 0), "
                 "9e18)::bigint FROM host_wait w "
                 "WHERE "
                 "w.session_uid = p.session_uid AND w.pod_uid = p.pod_uid AND w.process = "
                 "p.process) END, gpu_model "
                 "FROM process p WHERE session_uid = $1 AND pod_uid = $2 "
                 "ORDER BY instance COLLATE \"C\", process LIMIT 4096";
static const char layers_sql[] =
    "SELECT instance, process, layer, name, type, parameters, forward_left_out, "
    "backward_left_out, whole FROM layer "
    "WHERE session_uid = $1 AND pod_uid = $2 "
    "ORDER BY instance COLLATE \"C\", process, layer LIMIT 200000";
static const char activity_sql[] =
    "SELECT instance, process, stretch, stretch_last, start_ns, end_ns, "
    "step_number, step_start, step_duration, layer, phase, start, duration, "
    "grid_start, grid_cell, grid_cells, grid_layer, grid_phase, grid_busy, grid_calls, "
    "busy, step_gap, grid_kernels, dwell, background, counted_start, counted_duration, "
    "counted_steps, goes_on, memory_steps, memory_layer, memory_phase, memory_peak, memory_left "
    "FROM activity WHERE session_uid = $1 AND pod_uid = $2 "
    "ORDER BY start_ns, instance COLLATE \"C\", seq";
/* Of a process that several agents saw, one after another, what tells most. */
static const char pm_sql[] =
    "SELECT DISTINCT ON (process) instance, process, gpu_uuid, sources, layer, phase, "
    "kernels, mean, stderr, coalesce(doubt, '{}') FROM fine WHERE session_uid = $1 AND pod_uid = "
    "$2 "
    "ORDER BY process, kernel_count DESC, instance COLLATE \"C\"";
#define SHIFT "(SELECT prometheus_shift_ns FROM session WHERE uid = $1) "
static const char samples_sql[] =
    "SELECT gpu_uuid, metric, at_ns - " SHIFT ", value FROM metric_sample "
    "WHERE gpu_uuid IN (SELECT unnest(gpus) FROM process WHERE session_uid = $1 AND pod_uid = $2) "
    "AND at_ns >= (SELECT observed_first_ns FROM target WHERE session_uid = $1 AND pod_uid = $2) - "
    "$3 + " SHIFT
    "AND at_ns <= (SELECT observed_last_ns FROM target WHERE session_uid = $1 AND pod_uid = $2) + "
    "$4 + " SHIFT "ORDER BY gpu_uuid COLLATE \"C\", metric COLLATE \"C\", at_ns LIMIT 4000000";

enum { PROCESSES, LAYERS, BATCHES, PM }; /* then samples */

/* Room of the growing arrays, in elements. */
typedef struct capacities {
    size_t processes, layers, batches, steps, runs, intervals, cells, memory, samples, pm;
} capacities;

typedef struct load_call {
    pp_call call;
    pp_store_load_fn done;
    pp_activity *activity;
    capacities room;
    size_t text; /* bytes of the layers' */
} load_call;

static int copy_text(const PGresult *r, int row, int column, char **ret, pp_error *err)
{
    const char *text = pp_row_text(r, row, column);
    *ret = strdup(text ? text : "");
    return *ret ? 0 : pp_error_nomem(err);
}

int pp_store_take_chip(const PGresult *r, int row, int column, pp_chip *ret, pp_error *err)
{
    pp_row_array array;
    if (pp_row_array_open(r, row, column, &array, err) < 0)
        return -1;
    if (array.count != PP_STORE_CHIP)
        return 0;
    ret->capability = pp_row_array_int(&array);
    ret->multiprocessors = pp_row_array_int(&array);
    ret->sm_khz = pp_row_array_int(&array);
    ret->memory_khz = pp_row_array_int(&array);
    ret->memory_bits = pp_row_array_int(&array);
    return 0;
}

static int take_process(load_call *c, const PGresult *r, int row, pp_error *err)
{
    pp_activity *a = c->activity;
    if (pp_activity_grow(&a->processes, &c->room.processes, a->n_processes, 1,
                         sizeof(*a->processes), err) < 0)
        return -1;
    pp_activity_process *p = &a->processes[a->n_processes++];
    *p = (pp_activity_process){.process = (int32_t)pp_row_int(r, row, 1, 0),
                               .rank = (int32_t)pp_row_int(r, row, 7, 0),
                               .world_size = (int32_t)pp_row_int(r, row, 8, 1),
                               .waited_ns = pp_row_int(r, row, 12, 0)};
    if (copy_text(r, row, 0, &p->instance, err) < 0 ||
        pp_row_strings(r, row, 2, &p->gpus, err) < 0 ||
        copy_text(r, row, 3, &p->kernels, err) < 0 || copy_text(r, row, 4, &p->pm, err) < 0 ||
        copy_text(r, row, 5, &p->isolated, err) < 0 ||
        pp_store_take_chip(r, row, 6, &p->chip, err) < 0 ||
        copy_text(r, row, 9, &p->model, err) < 0 || copy_text(r, row, 10, &p->digest, err) < 0 ||
        copy_text(r, row, 11, &p->batch, err) < 0 || copy_text(r, row, 13, &p->gpu_model, err) < 0)
        return -1;
    for (size_t i = 0; i < p->gpus.count; i++) {
        if (pp_strings_add_once(&a->gpus, p->gpus.items[i], err) < 0)
            return -1;
    }
    return 0;
}

static int find_process(const pp_activity *a, const PGresult *r, int row, uint32_t *ret)
{
    const char *instance = pp_row_text(r, row, 0);
    const int64_t number = pp_row_int(r, row, 1, 0);
    for (size_t i = 0; i < a->n_processes; i++) {
        if (a->processes[i].process == number && strcmp(a->processes[i].instance, instance) == 0) {
            *ret = (uint32_t)i;
            return 0;
        }
    }
    return -1;
}

static size_t bytes_of(const PGresult *r, int row, int column)
{
    const char *text = pp_row_text(r, row, column);
    return text ? strlen(text) : 0;
}

static int take_layer(load_call *c, const PGresult *r, int row, pp_error *err)
{
    pp_activity *a = c->activity;
    uint32_t process = 0;
    /* One that came after the processes were read: the next solution will have it. */
    if (find_process(a, r, row, &process) < 0)
        return 0;
    c->text += bytes_of(r, row, 3) + bytes_of(r, row, 4);
    if (c->text > PP_ACTIVITY_MAX_TEXT)
        return 0;
    if (pp_activity_grow(&a->layers, &c->room.layers, a->n_layers, 1, sizeof(*a->layers), err) < 0)
        return -1;
    pp_activity_layer *l = &a->layers[a->n_layers++];
    *l = (pp_activity_layer){
        .process = process,
        .id = (int32_t)pp_row_int(r, row, 2, 0),
        .parameters = pp_row_int(r, row, 5, -1),
        .skip_reason = {(uint8_t)pp_row_int(r, row, 6, 0), (uint8_t)pp_row_int(r, row, 7, 0)},
        .whole_reason = (uint8_t)pp_row_int(r, row, 8, 0)};
    return copy_text(r, row, 3, &l->name, err) < 0 ? -1 : copy_text(r, row, 4, &l->type, err);
}

static int open_arrays(const PGresult *r, int row, int first, int n, pp_row_array *ret,
                       pp_error *err)
{
    for (int i = 0; i < n; i++) {
        if (pp_row_array_open(r, row, first + i, &ret[i], err) < 0)
            return -1;
        if (ret[i].count != ret[0].count)
            return pp_error_set(err, PP_ERR_INTERNAL, "arrays of a batch differ in length");
    }
    return 0;
}

enum {
    BUSY = 20,
    STEP_GAP,
    GRID_KERNELS,
    DWELL,
    BACKGROUND,
    COUNTED,
    GOES_ON = COUNTED + 3,
    MEMORY_STEPS,
    MEMORY,
}; /* columns of activity_sql */

/* An array beside others of n elements that is NULL where none of it is known. */
static int open_known(const PGresult *r, int row, int column, size_t n, pp_row_array *ret,
                      pp_error *err)
{
    if (pp_row_array_open(r, row, column, ret, err) < 0)
        return -1;
    if (ret->count != n && !PQgetisnull(r, row, column))
        return pp_error_set(err, PP_ERR_INTERNAL, "arrays of a batch differ in length");
    return 0;
}

static int64_t known_or_none(pp_row_array *a)
{
    return a->count ? pp_row_array_int(a) : -1;
}

static int take_steps(load_call *c, const PGresult *r, int row, uint32_t batch, pp_error *err)
{
    pp_activity *a = c->activity;
    pp_row_array in[3];
    pp_row_array gaps;
    if (open_arrays(r, row, 6, 3, in, err) < 0 ||
        open_known(r, row, STEP_GAP, in[0].count, &gaps, err) < 0 ||
        pp_activity_grow(&a->steps, &c->room.steps, a->n_steps, in[0].count, sizeof(*a->steps),
                         err) < 0)
        return -1;
    for (size_t i = 0; i < in[0].count; i++) {
        pp_activity_step *s = &a->steps[a->n_steps++];
        s->batch = batch;
        s->number = pp_row_array_int(&in[0]);
        s->start_ns = pp_row_array_int(&in[1]);
        s->duration_ns = pp_row_array_int(&in[2]);
        s->gap_ns = known_or_none(&gaps);
    }
    return 0;
}

static int take_runs(load_call *c, const PGresult *r, int row, uint32_t process, pp_error *err)
{
    pp_activity *a = c->activity;
    pp_row_array in[3];
    if (PQgetisnull(r, row, COUNTED))
        return 0;
    if (open_arrays(r, row, COUNTED, 3, in, err) < 0 ||
        pp_activity_grow(&a->runs, &c->room.runs, a->n_runs, in[0].count, sizeof(*a->runs), err) <
            0)
        return -1;
    for (size_t i = 0; i < in[0].count; i++) {
        pp_activity_run *run = &a->runs[a->n_runs++];
        run->process = process;
        run->start_ns = pp_row_array_int(&in[0]);
        run->duration_ns = pp_row_array_int(&in[1]);
        run->steps = pp_row_array_int(&in[2]);
    }
    return 0;
}

static int take_intervals(load_call *c, const PGresult *r, int row, uint32_t batch, pp_error *err)
{
    pp_activity *a = c->activity;
    pp_row_array in[4];
    pp_row_array busy, goes_on;
    if (open_arrays(r, row, 9, 4, in, err) < 0 ||
        open_known(r, row, BUSY, in[0].count, &busy, err) < 0 ||
        open_known(r, row, GOES_ON, in[0].count, &goes_on, err) < 0 ||
        pp_activity_grow(&a->intervals, &c->room.intervals, a->n_intervals, in[0].count,
                         sizeof(*a->intervals), err) < 0)
        return -1;
    for (size_t i = 0; i < in[0].count; i++) {
        pp_activity_interval *v = &a->intervals[a->n_intervals++];
        v->batch = batch;
        v->layer = (int32_t)pp_row_array_int(&in[0]);
        v->phase = (uint8_t)pp_row_array_int(&in[1]);
        v->start_ns = pp_row_array_int(&in[2]);
        v->duration_ns = pp_row_array_int(&in[3]);
        v->kernels_ns = known_or_none(&busy);
        v->goes_on = goes_on.count && pp_row_array_int(&goes_on);
    }
    return 0;
}

static int take_cells(load_call *c, const PGresult *r, int row, uint32_t batch, pp_error *err)
{
    pp_activity *a = c->activity;
    const int64_t start = pp_row_int(r, row, 13, 0);
    const int64_t width = pp_row_int(r, row, 14, 0);
    pp_row_array in[5];
    pp_row_array kernels;
    if (open_arrays(r, row, 15, 5, in, err) < 0 ||
        open_known(r, row, GRID_KERNELS, in[0].count, &kernels, err) < 0 ||
        pp_activity_grow(&a->cells, &c->room.cells, a->n_cells, in[0].count, sizeof(*a->cells),
                         err) < 0)
        return -1;
    for (size_t i = 0; i < in[0].count; i++) {
        pp_activity_cell *v = &a->cells[a->n_cells++];
        v->batch = batch;
        v->start_ns = start + width * pp_row_array_int(&in[0]);
        v->width_ns = width;
        v->layer = (int32_t)pp_row_array_int(&in[1]);
        v->phase = (uint8_t)pp_row_array_int(&in[2]);
        v->busy_ns = pp_row_array_int(&in[3]);
        v->calls = pp_row_array_int(&in[4]);
        v->kernels_ns = known_or_none(&kernels);
    }
    return 0;
}

static int take_memory(load_call *c, const PGresult *r, int row, uint32_t process, pp_error *err)
{
    pp_activity *a = c->activity;
    pp_row_array in[4];
    if (open_arrays(r, row, MEMORY, 4, in, err) < 0 ||
        pp_activity_grow(&a->memory, &c->room.memory, a->n_memory, in[0].count, sizeof(*a->memory),
                         err) < 0)
        return -1;
    if (!pp_activity_take_memory(a, process, pp_row_int(r, row, MEMORY_STEPS, 0), in[0].count))
        return 0;
    for (size_t i = 0; i < in[0].count; i++) {
        pp_activity_memory *m = &a->memory[a->n_memory++];
        m->process = process;
        m->layer = (int32_t)pp_row_array_int(&in[0]);
        m->phase = (uint8_t)pp_row_array_int(&in[1]);
        m->peak = pp_row_array_int(&in[2]);
        m->left = pp_row_array_int(&in[3]);
    }
    return 0;
}

static int take_batch(load_call *c, const PGresult *r, int row, pp_error *err)
{
    pp_activity *a = c->activity;
    uint32_t process = 0;
    if (find_process(a, r, row, &process) < 0)
        return 0;
    /* Batches come in the order of time: what passes the limits is left out from there on. */
    a->truncated |= pp_activity_is_full(a);
    if (a->truncated)
        return 0;
    if (pp_activity_grow(&a->batches, &c->room.batches, a->n_batches, 1, sizeof(*a->batches), err) <
        0)
        return -1;
    const uint32_t batch = (uint32_t)a->n_batches;
    a->batches[a->n_batches++] = (pp_activity_batch){.process = process,
                                                     .capture = pp_row_int(r, row, 2, 0),
                                                     .last = pp_row_bool(r, row, 3),
                                                     .start_ns = pp_row_int(r, row, 4, 0),
                                                     .end_ns = pp_row_int(r, row, 5, 0),
                                                     .dwell = pp_row_int(r, row, DWELL, 0),
                                                     .background = pp_row_bool(r, row, BACKGROUND)};
    if (take_steps(c, r, row, batch, err) < 0 || take_runs(c, r, row, process, err) < 0 ||
        take_memory(c, r, row, process, err) < 0 || take_intervals(c, r, row, batch, err) < 0)
        return -1;
    return take_cells(c, r, row, batch, err);
}

static int read_pm_rows(const PGresult *r, int row, pp_wire_pm *to, pp_error *err)
{
    pp_row_array in[3], values[2];
    if (open_arrays(r, row, 4, 3, in, err) < 0 || open_arrays(r, row, 7, 2, values, err) < 0)
        return -1;
    /* As many as the release knew that stored them; one that is newer may have more. */
    const size_t each = to->sources.count;
    if (values[0].count != in[0].count * each)
        return pp_error_set(err, PP_ERR_INTERNAL, "arrays of fine values differ in length");
    to->rows = calloc(in[0].count + 1, sizeof(*to->rows));
    if (!to->rows)
        return pp_error_nomem(err);
    to->count = in[0].count;
    for (size_t i = 0; i < to->count; i++) {
        pp_wire_pm_row *v = &to->rows[i];
        v->layer = pp_row_array_int(&in[0]);
        v->phase = (pp_wire_phase)pp_row_array_int(&in[1]);
        v->kernels = pp_row_array_int(&in[2]);
        memset(v->mean, 0xff, sizeof(v->mean)); /* -1: not known */
        memset(v->error, 0xff, sizeof(v->error));
        for (size_t m = 0; m < each; m++) {
            const int64_t mean = pp_row_array_int(&values[0]), error = pp_row_array_int(&values[1]);
            if (m >= PP_WIRE_PM_METRICS)
                continue;
            v->mean[m] = mean;
            v->error[m] = error;
        }
    }
    return 0;
}

/* In `room`, which pm refers to then. */
static int read_doubts(const PGresult *r, int row, pp_wire_pm_quality *room, pp_wire_pm *pm,
                       pp_error *err)
{
    pp_row_array in;
    if (open_arrays(r, row, 9, 1, &in, err) < 0)
        return -1;
    pm->qualities = room;
    for (size_t m = 0; m < in.count && m < PP_WIRE_PM_METRICS; m++)
        room[pm->quality_count++] =
            (pp_wire_pm_quality){.metric = (int64_t)m, .doubt = pp_row_array_int(&in)};
    return 0;
}

static int take_pm(load_call *c, const PGresult *r, int row, pp_error *err)
{
    uint32_t process = 0;
    if (find_process(c->activity, r, row, &process) < 0)
        return 0;
    c->activity->truncated |= c->activity->n_pm > PP_ACTIVITY_MAX_PM;
    if (c->activity->n_pm > PP_ACTIVITY_MAX_PM)
        return 0;
    pp_wire_pm_quality qualities[PP_WIRE_PM_METRICS];
    pp_wire_pm pm = {.gpu = (char *)(uintptr_t)pp_row_text(r, row, 2)};
    int rc = pp_row_strings(r, row, 3, &pm.sources, err);
    if (rc == 0)
        rc = read_pm_rows(r, row, &pm, err);
    if (rc == 0)
        rc = read_doubts(r, row, qualities, &pm, err);
    if (rc == 0)
        rc = pp_activity_take_pm(c->activity, &c->room.pm, process, &pm, err);
    pp_strings_free(&pm.sources);
    free(pm.rows);
    return rc;
}

static int take_sample(load_call *c, const PGresult *r, int row, pp_error *err)
{
    pp_activity *a = c->activity;
    pp_metric metric = PP_METRIC_COUNT;
    const char *gpu = pp_row_text(r, row, 0);
    const size_t i = pp_strings_index(&a->gpus, gpu);
    if (i == a->gpus.count || pp_metric_from_name(pp_row_text(r, row, 1), &metric) < 0)
        return 0;
    if (pp_activity_grow(&a->samples, &c->room.samples, a->n_samples, 1, sizeof(*a->samples), err) <
        0)
        return -1;
    a->samples[a->n_samples++] = (pp_activity_sample){.gpu = (uint32_t)i,
                                                      .metric = metric,
                                                      .stamp_ns = pp_row_int(r, row, 2, 0),
                                                      .value = pp_row_float(r, row, 3)};
    return 0;
}

static int load_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    load_call *c = (load_call *)job;
    switch (index) {
    case PROCESSES:
        return take_process(c, r, row, err);
    case LAYERS:
        return take_layer(c, r, row, err);
    case BATCHES:
        return take_batch(c, r, row, err);
    case PM:
        return take_pm(c, r, row, err);
    default:
        return take_sample(c, r, row, err);
    }
}

static void load_reset(pp_job *job)
{
    load_call *c = (load_call *)job;
    pp_activity_free(c->activity);
    c->activity = calloc(1, sizeof(*c->activity));
    c->room = (capacities){0};
    c->text = 0;
    if (!c->activity) {
        job->failed = true;
        pp_error_nomem(&job->error);
    }
}

static void load_release(pp_job *job)
{
    pp_activity_free(((load_call *)job)->activity);
}

static void load_ended(pp_job *job, const pp_error *error)
{
    load_call *c = (load_call *)job;
    pp_activity *none = NULL;
    c->done(c->call.user, error ? &none : &c->activity, error);
}

static pp_statement *add_load(pp_job *job, const char *sql, const char *session_uid,
                              const char *pod_uid)
{
    pp_statement *s = pp_job_add(job, sql);
    s->streamed = true;
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    return s;
}

int pp_store_load(pp_store *store, const char *session_uid, const char *pod_uid, int64_t before_ns,
                  int64_t after_ns, pp_store_load_fn done, void *user, pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0 || pp_store_need(pod_uid, "pod", err) < 0)
        return -1;
    load_call *c = pp_call_new(sizeof(*c), load_ended, user, err);
    if (!c)
        return -1;
    pp_job *job = &c->call.job;
    c->done = done;
    job->row = load_row;
    job->reset = load_reset;
    job->release = load_release;
    load_reset(job);
    add_load(job, processes_sql, session_uid, pod_uid);
    add_load(job, layers_sql, session_uid, pod_uid);
    add_load(job, activity_sql, session_uid, pod_uid);
    add_load(job, pm_sql, session_uid, pod_uid);
    pp_statement *s = add_load(job, samples_sql, session_uid, pod_uid);
    pp_sql_int8(s, before_ns);
    pp_sql_int8(s, after_ns);
    return pp_call_submit(store, PP_LANE_BULK, c, err);
}
