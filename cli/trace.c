#include "cli/trace.h"

#include "cli/recording/recording.h"
#include "common/cleanup.h"

#include <inttypes.h>

/* Written with the first event: a folder that cannot be read leaves no beginning of a trace. */
#define HEAD "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["

enum { STEPS_THREAD = 0, PROCESSES = PP_WIRE_MAX_PROCESS + 1 };

typedef struct trace {
    FILE *to;
    int rank;           /* of whose processes alone there is a trace; PP_TRACE_ALL */
    int64_t world_size; /* of that rank's; 0: it is not there */
    int64_t start;      /* ns since 1970; 0: no batch yet */
    size_t events;
    size_t batches; /* of which the start is known: a run that goes on writes more meanwhile */
    bool named[PROCESSES]; /* process and threads of that number */
} trace;

/* Takes the object over. Names are the user's: jansson escapes them. */
static int put(trace *t, json_t *event, pp_error *err)
{
    PP_CLEANUP_JSON json_t *owned = event;
    if (!owned)
        return pp_error_nomem(err);
    if (fputs(t->events++ ? ",\n" : HEAD "\n", t->to) == EOF ||
        json_dumpf(owned, t->to, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0)
        return pp_error_errno(err, "writing the trace");
    return 0;
}

static json_t *microseconds(int64_t ns)
{
    return json_real((double)ns / 1e3);
}

/* Of what is not known there is no word. */
static void set_known(json_t *args, const char *name, int64_t value, json_t *shown)
{
    if (value >= 0)
        (void)json_object_set(args, name, shown);
    json_decref(shown);
}

/* ---- who ---- */

/* Its rank; without ranks the process' own number, since all would have rank 0. */
static int64_t number_of(const pp_wire_process *p)
{
    return p->world_size > 1 ? p->rank : p->id;
}

static int put_name(trace *t, const char *what, int64_t process, int64_t thread, const char *name,
                    pp_error *err)
{
    return put(t,
               json_pack("{s:s, s:s, s:I, s:I, s:{s:s}}", "ph", "M", "name", what, "pid",
                         (json_int_t)process, "tid", (json_int_t)thread, "args", "name", name),
               err);
}

static int name_process(trace *t, const pp_wire_process *p, pp_error *err)
{
    const int64_t number = number_of(p);
    char name[PP_WIRE_MAX_TEXT + 64];
    if (t->named[number])
        return 0;
    t->named[number] = true;
    (void)snprintf(name, sizeof name, "rank %" PRId64 " of %" PRId64 " %s", p->rank, p->world_size,
                   p->model ? p->model : "");
    if (put_name(t, "process_name", number, STEPS_THREAD, name, err) < 0 ||
        put_name(t, "thread_name", number, STEPS_THREAD, "steps", err) < 0)
        return -1;
    for (int phase = 0; phase < PP_WIRE_PHASES; phase++) {
        if (put_name(t, "thread_name", number, 1 + phase, pp_wire_phase_name((pp_wire_phase)phase),
                     err) < 0)
            return -1;
    }
    return 0;
}

/* ---- what ---- */

/* A complete event; takes args over. */
static int put_event(trace *t, const char *name, const char *category, int64_t process,
                     int64_t thread, int64_t start, int64_t duration, json_t *args, pp_error *err)
{
    return put(t,
               json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "ph", "X", "name", name, "cat",
                         category, "pid", (json_int_t)process, "tid", (json_int_t)thread, "ts",
                         microseconds(start - t->start), "dur", microseconds(duration), "args",
                         args),
               err);
}

static int put_step(trace *t, int64_t process, const pp_wire_step *s, pp_error *err)
{
    char name[48];
    json_t *args = json_pack("{s:I}", "step", (json_int_t)s->number);
    set_known(args, "epoch", s->epoch, json_integer(s->epoch));
    set_known(args, "batch", s->batch, json_integer(s->batch));
    set_known(args, "gap", s->gap, microseconds(s->gap));
    (void)snprintf(name, sizeof name, "ProfilerStep#%" PRId64, s->number);
    return put_event(t, name, "user_annotation", process, STEPS_THREAD, s->start, s->duration, args,
                     err);
}

static int put_interval(trace *t, const pp_wire_batch *b, const pp_wire_interval *v, pp_error *err)
{
    const char *phase = pp_wire_phase_name(v->phase);
    const pp_wire_layer *layer = pp_wire_find_layer(b, v->layer);
    json_t *args = json_pack("{s:s, s:I}", "phase", phase, "step", (json_int_t)v->step);
    if (layer) {
        (void)json_object_set_new(args, "layer", json_string(layer->name));
        (void)json_object_set_new(args, "type", json_string(layer->type));
    }
    set_known(args, "busy", v->kernels, microseconds(v->kernels));
    return put_event(t, layer ? layer->name : phase, phase, number_of(&b->process), 1 + v->phase,
                     v->start, v->duration, args, err);
}

static void begin_by(trace *t, int64_t at)
{
    t->start = t->start == 0 || at < t->start ? at : t->start;
}

/* Of all ranks: traces of each begin alike, and readers leave out what lies before 0. */
static int find_start(void *user, const pp_wire_batch *b, pp_error *err)
{
    trace *t = user;
    (void)err;
    t->batches++;
    if (!pp_wire_has_order(b))
        return 0;
    begin_by(t, b->capture.start);
    for (size_t i = 0; i < b->step_count; i++)
        begin_by(t, b->steps[i].start);
    for (size_t i = 0; i < b->interval_count; i++)
        begin_by(t, b->intervals[i].start);
    return 0;
}

static int take_batch(void *user, const pp_wire_batch *b, pp_error *err)
{
    trace *t = user;
    if (t->batches == 0)
        return 0;
    t->batches--;
    if (t->rank != PP_TRACE_ALL && t->rank != number_of(&b->process))
        return 0;
    t->world_size = b->process.world_size;
    if (!pp_wire_has_order(b))
        return 0;
    if (name_process(t, &b->process, err) < 0)
        return -1;
    for (size_t i = 0; i < b->step_count; i++) {
        if (put_step(t, number_of(&b->process), &b->steps[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < b->interval_count; i++) {
        if (put_interval(t, b, &b->intervals[i], err) < 0)
            return -1;
    }
    return 0;
}

/* With a space: Holistic Trace Analysis looks for the rank in the text. */
static void put_rank(const trace *t)
{
    if (t->rank != PP_TRACE_ALL)
        (void)fprintf(t->to, ",\"distributedInfo\":{\"rank\": %d, \"world_size\": %" PRId64 "}",
                      t->rank, t->world_size);
}

int pp_trace(const char *folder, int rank, FILE *to, pp_error *err)
{
    PP_CLEANUP_FREE trace *t = calloc(1, sizeof *t);
    if (!t)
        return pp_error_nomem(err);
    t->to = to;
    t->rank = rank;
    if (pp_recording_batches(folder, find_start, t, err) < 0 ||
        pp_recording_batches(folder, take_batch, t, err) < 0)
        return -1;
    if (rank != PP_TRACE_ALL && t->world_size == 0)
        return pp_error_field(err, "--rank", "names no process of the run");
    (void)fprintf(to, "%s\n]", t->events ? "" : HEAD);
    put_rank(t);
    (void)fprintf(to, ",\"otherData\":{\"startNs\":\"%" PRId64 "\"}}\n", t->start);
    return fflush(to) == 0 && !ferror(to) ? 0 : pp_error_errno(err, "writing the trace");
}
