#include "cli/serve/document_timeline.h"

#include "cli/recording/recording.h"
#include "common/cleanup.h"

enum { INTERVALS = 20000 };

typedef struct reading {
    int64_t process; /* -1: that of the first step */
    size_t from, limit, seen;
    json_t *steps;
    json_t *processes;
} reading;

static bool is_kept(const reading *r, const pp_wire_batch *b)
{
    return pp_wire_has_order(b) && (r->process < 0 || b->process.id == r->process);
}

static json_t *known(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

static int add_step(reading *r, const pp_wire_batch *b, const pp_wire_step *s)
{
    r->process = b->process.id;
    if (r->seen++ < r->from || json_array_size(r->steps) >= r->limit)
        return 0;
    return json_array_append_new(
        r->steps,
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:[]}", "step", (json_int_t)s->number,
                  "capture", (json_int_t)b->capture.id, "start_ns", (json_int_t)s->start,
                  "duration_ns", (json_int_t)s->duration, "gap_ns", known(s->gap), "epoch",
                  known(s->epoch), "batch", known(s->batch), "intervals"));
}

/* The latest step of that number: it may have ended in a later batch than the interval. */
static json_t *find_step(const reading *r, int64_t number)
{
    for (size_t i = json_array_size(r->steps); i > 0; i--) {
        json_t *step = json_array_get(r->steps, i - 1);
        if (json_integer_value(json_object_get(step, "step")) == number)
            return step;
    }
    return NULL;
}

static int add_interval(const reading *r, const pp_wire_batch *b, const pp_wire_interval *v)
{
    json_t *step = find_step(r, v->step);
    json_t *list = json_object_get(step, "intervals");
    if (!step || json_array_size(list) >= INTERVALS)
        return 0;
    const json_int_t begin = json_integer_value(json_object_get(step, "start_ns"));
    json_t *name = v->layer ? pp_json_text(pp_wire_layer_name(b, v->layer)) : json_string("");
    return json_array_append_new(
        list, json_pack("{s:I, s:I, s:o, s:o, s:s}", "start_ns", (json_int_t)v->start - begin,
                        "duration_ns", (json_int_t)v->duration, "busy_ns", known(v->kernels),
                        "layer", name, "phase", pp_wire_phase_name(v->phase)));
}

static int take_steps(void *user, const pp_wire_batch *b, pp_error *err)
{
    reading *r = user;
    for (size_t i = 0; is_kept(r, b) && i < b->step_count; i++) {
        if (add_step(r, b, &b->steps[i]) < 0)
            return pp_error_nomem(err);
    }
    return 0;
}

static int take_intervals(void *user, const pp_wire_batch *b, pp_error *err)
{
    reading *r = user;
    for (size_t i = 0; r->process >= 0 && is_kept(r, b) && i < b->interval_count; i++) {
        if (add_interval(r, b, &b->intervals[i]) < 0)
            return pp_error_nomem(err);
    }
    return 0;
}

json_t *pp_document_timeline(const char *folder, pp_timeline_page *page, pp_error *err)
{
    reading r = {
        .process = page->process, .from = page->from, .limit = page->limit, .steps = json_array()};
    if (!r.steps || pp_recording_batches(folder, take_steps, &r, err) < 0 ||
        pp_recording_batches(folder, take_intervals, &r, err) < 0) {
        json_decref(r.steps);
        return NULL;
    }
    page->process = json_array_size(r.steps) ? r.process : -1;
    page->more = r.seen > r.from + json_array_size(r.steps);
    return r.steps;
}

static int take_process(void *user, const pp_wire_batch *b, pp_error *err)
{
    const reading *r = user;
    for (size_t i = 0; i < json_array_size(r->processes); i++) {
        if (json_integer_value(json_array_get(r->processes, i)) == b->process.id)
            return 0;
    }
    return json_array_append_new(r->processes, json_integer(b->process.id)) < 0
               ? pp_error_nomem(err)
               : 0;
}

json_t *pp_document_processes(const char *folder, pp_error *err)
{
    reading r = {.processes = json_array()};
    if (r.processes && pp_recording_batches(folder, take_process, &r, err) == 0)
        return r.processes;
    json_decref(r.processes);
    return NULL;
}
