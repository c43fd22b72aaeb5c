#include "sidecar/agent/events.h"

#include "common/json.h"
#include "common/log.h"
#include "sidecar/agent/batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define SECOND INT64_C(1000000000)
#define OLDEST (3600 * SECOND)
#define FUTURE (10 * SECOND)

static const char why_no_kernels[] = "a foreign hook tells no kernels";

typedef struct layer {
    UT_hash_handle hh;
    uint32_t id;
    char name[];
} layer;

/* One GPU's events. */
typedef struct stream {
    char gpu[PP_WIRE_MAX_GPU + 1];
    int64_t id; /* of the process; -1: nothing was sampled yet */
    layer *layers;
    layer *by_id[PP_RING_LAYERS + 1];
    uint32_t layer_count;
    pp_batcher *batcher;
    bool running; /* a capture */
    int64_t cut_at;
    int64_t heard;    /* monotonic ns; of the last event */
    int64_t last_end; /* of the last step, ns since 1970 */
    int64_t seen;     /* steps that ended */
    int64_t sampled;  /* of them, those that were taken */
    int64_t dropped;  /* events since the last batch */
    /* the open step */
    bool open;
    int64_t epoch, batch;
    pp_piece *pieces;
    size_t count, room;
    int64_t latest; /* end of its last piece */
} stream;

struct pp_events {
    char *job;      /* "": no session */
    char *full_job; /* with the namespace */
    char *pod;
    stream *streams[PP_WIRE_MAX_GPUS];
    size_t count;
};

/* As posted. */
typedef struct event {
    char *job;
    char *pod;
    char *gpu;
    int64_t epoch;
    int64_t batch;
    char *layer;
    char *phase_name;
    int64_t start;
    int64_t end;
    pp_wire_phase phase;
    stream *stream;
} event;

#define AT(member) offsetof(event, member)

static const pp_json_field fields[] = {
    {"job", PP_JSON_STRING, AT(job), false, 512},
    {"pod", PP_JSON_STRING, AT(pod), false, 253},
    {"gpu_uuid", PP_JSON_STRING, AT(gpu), true, PP_WIRE_MAX_GPU},
    {"epoch", PP_JSON_INT, AT(epoch), true, INT32_MAX},
    {"batch", PP_JSON_INT, AT(batch), true, INT32_MAX},
    {"layer", PP_JSON_STRING, AT(layer), false, PP_WIRE_MAX_TEXT},
    {"phase", PP_JSON_STRING, AT(phase_name), true, 64},
    {"start", PP_JSON_INT, AT(start), true, PP_WIRE_TIME_MAX},
    {"end", PP_JSON_INT, AT(end), true, PP_WIRE_TIME_MAX},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

pp_events *pp_events_new(const char *pod)
{
    pp_events *e = calloc(1, sizeof *e);
    if (e)
        e->pod = strdup(pod);
    if (e && !e->pod) {
        free(e);
        e = NULL;
    }
    return e;
}

int pp_events_session(pp_events *e, const char *namespace_, const char *name, pp_error *err)
{
    char *job = strdup(name ? name : "");
    char *full_job = NULL;
    if (!job || asprintf(&full_job, "%s/%s", namespace_ ? namespace_ : "", job) < 0) {
        free(job);
        return pp_error_nomem(err);
    }
    free(e->job);
    free(e->full_job);
    e->job = job;
    e->full_job = full_job;
    for (size_t i = 0; i < e->count; i++) {
        stream *s = e->streams[i];
        s->open = false;
        s->count = 0;
        s->seen = s->sampled = s->dropped = 0;
    }
    return 0;
}

static void free_stream(stream *s)
{
    layer *l;
    layer *next;
    HASH_ITER(hh, s->layers, l, next)
    {
        HASH_DEL(s->layers, l);
        free(l);
    }
    pp_batcher_free(s->batcher);
    free(s->pieces);
    free(s);
}

void pp_events_free(pp_events *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->count; i++)
        free_stream(e->streams[i]);
    free(e->job);
    free(e->full_job);
    free(e->pod);
    free(e);
}

/* ---- decoding ---- */

static bool has_control_character(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    }
    return false;
}

/* The event's GPU; a new one is remembered, until its post is refused. */
static stream *find_stream(pp_events *e, const char *gpu)
{
    for (size_t i = 0; i < e->count; i++) {
        if (strcmp(e->streams[i]->gpu, gpu) == 0)
            return e->streams[i];
    }
    stream *s = e->count < PP_WIRE_MAX_GPUS ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->batcher = pp_batcher_new();
    if (!s->batcher) {
        free(s);
        return NULL;
    }
    (void)snprintf(s->gpu, sizeof s->gpu, "%s", gpu);
    s->id = -1;
    e->streams[e->count++] = s;
    return s;
}

static int not_ours(const char *field, const char *ours, pp_error *err)
{
    (void)pp_error_field(err, field, "is not %s, which this agent serves", ours);
    if (err)
        err->code = PP_ERR_CONFLICT;
    return -1;
}

static int check_names(pp_events *e, event *v, pp_error *err)
{
    if (v->job && strcmp(v->job, e->job) != 0 && strcmp(v->job, e->full_job) != 0)
        return not_ours("job", e->full_job, err);
    if (v->pod && strcmp(v->pod, e->pod) != 0)
        return not_ours("pod", e->pod, err);
    if (!pp_wire_is_id(v->gpu, PP_WIRE_MAX_GPU))
        return pp_error_field(err, "gpu_uuid", "must have letters, digits and -_.:/ only");
    if (pp_wire_phase_from_name(v->phase_name, &v->phase) < 0)
        return pp_error_field(err, "phase", "no such phase");
    const bool named = v->layer && *v->layer;
    if (named != pp_wire_phase_has_layer(v->phase))
        return pp_error_field(err, "layer",
                              named ? "is given in a phase of the whole step"
                                    : "is needed in this phase");
    if (named && has_control_character(v->layer))
        return pp_error_field(err, "layer", "has control characters");
    v->stream = find_stream(e, v->gpu);
    return v->stream ? 0
                     : pp_error_field(err, "gpu_uuid", "is one of more than %d", PP_WIRE_MAX_GPUS);
}

static int check_numbers(const event *v, int64_t real, pp_error *err)
{
    if (v->epoch < 0)
        return pp_error_field(err, "epoch", "must not be negative");
    if (v->batch < 0)
        return pp_error_field(err, "batch", "must not be negative");
    if (v->start < real - OLDEST)
        return pp_error_field(err, "start", "is more than an hour ago");
    if (v->end < v->start)
        return pp_error_field(err, "end", "is before start");
    if (v->end > real + FUTURE)
        return pp_error_field(err, "end", "is in the future");
    return 0;
}

static int decode(pp_events *e, const json_t *object, int64_t real, event *ret, pp_error *err)
{
    if (!json_is_object(object))
        return pp_error_field(err, "", "an event is an object");
    if (pp_json_decode(object, fields, true, "", ret, err) < 0)
        return -1;
    return check_names(e, ret, err) < 0 ? -1 : check_numbers(ret, real, err);
}

/* ---- folding ---- */

static int describe(const pp_events *e, const stream *s, pp_wire_process *to, pp_error *err)
{
    to->id = s->id;
    to->world_size = 1;
    to->hostname = strdup(e->pod);
    to->clock = strdup("foreign");
    to->kernels = strdup(why_no_kernels);
    if (!to->hostname || !to->clock || !to->kernels)
        return pp_error_nomem(err);
    return pp_strings_add(&to->gpus, s->gpu, err);
}

static int describe_layer(void *user, uint32_t id, pp_wire_layer *to, pp_error *err)
{
    const stream *s = user;
    to->name = strdup(s->by_id[id]->name);
    to->type = strdup("?");
    return to->name && to->type ? 0 : pp_error_nomem(err);
}

static void cut(const pp_events *e, stream *s, pp_agent_pod *pod, bool last)
{
    pp_error err = {0};
    int64_t events = 0;
    const pp_place nowhere = {.ring = "events"};
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    if (batch && describe(e, s, &batch->process, &err) == 0 &&
        pp_batcher_cut(s->batcher, last, describe_layer, s, batch, &events, &err) == 0) {
        batch->dropped = s->dropped;
        s->dropped = 0;
        pod->emit(pod->user, batch, events, &nowhere);
    } else {
        pp_warn("events", "a batch could not be made: %s", batch ? err.message : "out of memory");
        pp_batcher_renumber(s->batcher, pod->captures++);
    }
    pp_wire_batch_free(batch);
}

static void end_capture(const pp_events *e, stream *s, pp_agent_pod *pod)
{
    if (s->running)
        cut(e, s, pod, true);
    s->running = false;
}

static int compare(const void *left, const void *right)
{
    const pp_piece *a = left;
    const pp_piece *b = right;
    const int64_t keys[][2] = {
        {a->end, b->end}, {a->start, b->start}, {a->layer, b->layer}, {a->phase, b->phase}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

/* In order of their ends, each once, none before the step's start; returns how many are left. */
static size_t tidy(stream *s, int64_t start)
{
    size_t kept = 0;
    pp_piece before = {.start = -1};
    qsort(s->pieces, s->count, sizeof *s->pieces, compare);
    for (size_t i = 0; i < s->count; i++) {
        pp_piece p = s->pieces[i];
        if (compare(&p, &before) == 0)
            continue; /* posted again */
        before = p;
        s->dropped += p.end < start;
        if (p.end < start)
            continue;
        p.start = p.start < start ? start : p.start;
        s->pieces[kept++] = p;
    }
    return kept;
}

/* Whether a step that ends now is to be taken. */
static bool is_wanted(const stream *s, const pp_agent_pod *pod, int64_t now)
{
    const pp_schedule_policy *p = &pod->policy;
    return pod->allowed && s->seen > p->skip && (p->max == 0 || s->sampled < p->max) &&
           (p->duration == 0 || pod->first == 0 || now - pod->first < p->duration);
}

static void begin_capture(stream *s, pp_agent_pod *pod, int64_t start, int64_t now)
{
    if (s->id < 0)
        s->id = pod->processes++ % (PP_WIRE_MAX_PROCESS + 1);
    if (pod->first == 0)
        pod->first = now;
    pp_batcher_timeline(s->batcher, pod->timeline);
    pp_batcher_start(s->batcher, pod->captures++, start, 0);
    s->running = true;
    s->cut_at = now;
}

static void take_step(const pp_events *e, stream *s, pp_agent_pod *pod, int64_t start, int64_t now)
{
    pp_error err = {0};
    if (!s->running)
        begin_capture(s, pod, start, now);
    const pp_step step = {.number = s->seen,
                          .start = start,
                          .end = s->latest,
                          .epoch = (int32_t)s->epoch,
                          .batch = (int32_t)s->batch,
                          .gap = -1,
                          .pieces = s->pieces,
                          .count = s->count};
    if (!pp_batcher_fits(s->batcher, step.count))
        cut(e, s, pod, false);
    s->sampled++;
    if (pp_batcher_add(s->batcher, &step, &err) < 0) {
        pp_warn("events", "%s", err.message);
        end_capture(e, s, pod); /* its time must not count as observed */
    }
}

static int64_t earliest(const stream *s)
{
    int64_t start = INT64_MAX;
    for (size_t i = 0; i < s->count; i++)
        start = s->pieces[i].start < start ? s->pieces[i].start : start;
    return start;
}

static void close_step(const pp_events *e, stream *s, pp_agent_pod *pod, int64_t now)
{
    if (!s->open)
        return;
    int64_t start = earliest(s);
    if (s->running || start < s->last_end)
        start = s->last_end;
    s->open = false;
    s->seen++;
    s->count = tidy(s, start);
    if (s->latest <= start) {
        s->count = 0; /* nothing of it is after the step before */
        return;
    }
    if (is_wanted(s, pod, now))
        take_step(e, s, pod, start, now);
    else
        end_capture(e, s, pod);
    s->last_end = s->latest;
    s->count = 0;
}

static layer *find_layer(stream *s, const char *name)
{
    layer *found = NULL;
    const size_t n = strlen(name);
    HASH_FIND(hh, s->layers, name, n, found);
    if (found || s->layer_count == PP_RING_LAYERS)
        return found;
    found = calloc(1, sizeof *found + n + 1);
    if (!found)
        return NULL;
    memcpy(found->name, name, n + 1);
    found->id = ++s->layer_count;
    s->by_id[found->id] = found;
    HASH_ADD(hh, s->layers, name, n, found);
    return found;
}

static bool reserve(stream *s)
{
    if (s->count < s->room)
        return true;
    const size_t room = s->room ? 2 * s->room : 256;
    pp_piece *pieces = realloc(s->pieces, room * sizeof *pieces);
    if (!pieces)
        return false;
    s->pieces = pieces;
    s->room = room;
    return true;
}

static bool is_of_open_step(const stream *s, const event *v)
{
    return s && s->open && s->epoch == v->epoch && s->batch == v->batch;
}

/* An earlier step's: its number is lower, and it began before this one ended. Else a lower number
 * is that of a training that began anew. */
static bool is_late(const stream *s, const event *v)
{
    const bool lower = v->epoch < s->epoch || (v->epoch == s->epoch && v->batch <= s->batch);
    return s->open ? lower && v->start < s->latest : lower && v->start < s->last_end;
}

static void fold(const pp_events *e, const event *v, pp_agent_pod *pod, int64_t now)
{
    stream *s = v->stream;
    const layer *l = NULL;
    if (!s) /* decoded events have one */
        return;
    s->heard = now;
    if (!is_of_open_step(s, v)) {
        if (is_late(s, v)) {
            s->dropped++;
            return;
        }
        close_step(e, s, pod, now);
        s->open = true;
        s->epoch = v->epoch;
        s->batch = v->batch;
        s->latest = v->end;
    }
    if (pp_wire_phase_has_layer(v->phase) && !(l = find_layer(s, v->layer))) {
        s->dropped++; /* one of too many layers */
        return;
    }
    if (!reserve(s)) {
        s->dropped++;
        return;
    }
    s->pieces[s->count++] = (pp_piece){.start = v->start,
                                       .end = v->end,
                                       .layer = l ? l->id : 0,
                                       .phase = (uint8_t)v->phase,
                                       .busy = -1};
    s->latest = v->end > s->latest ? v->end : s->latest;
}

/* ---- posts ---- */

/* Steps that go on have no room, whichever event goes on with one; one that ends makes room. */
static bool is_full(const pp_events *e, const event *all, size_t n)
{
    size_t open = 0;
    for (size_t i = 0; i < e->count; i++)
        open += e->streams[i]->count;
    for (size_t i = 0; open >= PP_EVENTS_OPEN && i < n; i++) {
        if (is_of_open_step(all[i].stream, &all[i]))
            return true;
    }
    return false;
}

/* Puts the event's place before the field's name. */
static void locate(size_t i, pp_error *err)
{
    char field[sizeof err->field];
    (void)snprintf(field, sizeof field, "[%zu]%s%.100s", i, *err->field ? "." : "", err->field);
    memcpy(err->field, field, sizeof field);
}

static int decode_all(pp_events *e, const json_t *body, int64_t real, event *to, size_t n,
                      pp_error *err)
{
    if (!json_is_array(body))
        return decode(e, body, real, to, err);
    for (size_t i = 0; i < n; i++) {
        if (decode(e, json_array_get(body, i), real, &to[i], err) < 0) {
            locate(i, err);
            return -1;
        }
    }
    return 0;
}

static int status_of(const pp_error *err)
{
    return err->code == PP_ERR_NOMEM ? 500 : err->code == PP_ERR_CONFLICT ? 409 : 422;
}

/* A post that is refused leaves nothing, no GPU either. */
static void forget_streams(pp_events *e, size_t from)
{
    while (e->count > from) {
        free_stream(e->streams[--e->count]);
        e->streams[e->count] = NULL;
    }
}

static void take_body(pp_events *e, const json_t *body, pp_agent_pod *pod, int64_t now,
                      int64_t real, pp_events_answer *ret)
{
    const size_t n = json_is_array(body) ? json_array_size(body) : 1;
    const size_t known = e->count;
    event *all = calloc(n + 1, sizeof *all);
    if (!all || decode_all(e, body, real, all, n, &ret->error) < 0) {
        ret->status = all ? status_of(&ret->error) : 500;
    } else if (is_full(e, all, n)) {
        ret->status = 429;
        (void)pp_error_field(&ret->error, "batch", "has %d events already", PP_EVENTS_OPEN);
    } else {
        ret->status = 202;
        ret->accepted = (int64_t)n;
        for (size_t i = 0; i < n; i++)
            fold(e, &all[i], pod, now);
    }
    if (ret->status != 202)
        forget_streams(e, known);
    for (size_t i = 0; all && i < n; i++)
        pp_json_free_fields(fields, &all[i]);
    free(all);
}

/* Whether a body has brackets as no events have: each is a hundred times its size once it is
 * parsed, which the agent has no memory for. */
static bool is_dense(const char *text, size_t n)
{
    size_t brackets = 0;
    for (size_t i = 0; i < n; i++)
        brackets += text[i] == '{' || text[i] == '[';
    return brackets > 4 + n / 32;
}

void pp_events_post(pp_events *e, const char *text, size_t n, pp_agent_pod *pod, int64_t now,
                    int64_t real, pp_events_answer *ret)
{
    const pp_schedule_policy *p = &pod->policy;
    *ret = (pp_events_answer){.status = 422};
    if (is_dense(text, n)) {
        (void)pp_error_field(&ret->error, "", "has more brackets than events need");
        return;
    }
    ret->status = 400;
    json_t *body = pp_json_parse(text, n, &ret->error);
    if (!body)
        return;
    take_body(e, body, pod, now, real, ret);
    ret->sampling = pod->allowed && !pod->leaving &&
                    (p->duration == 0 || pod->first == 0 || now - pod->first < p->duration);
    json_decref(body);
}

void pp_events_poll(pp_events *e, pp_agent_pod *pod, int64_t now)
{
    for (size_t i = 0; i < e->count; i++) {
        stream *s = e->streams[i];
        if (now - s->heard >= PP_EVENTS_IDLE_S * SECOND)
            close_step(e, s, pod, now);
        if (s->running && (!pod->allowed || now - s->heard >= PP_EVENTS_IDLE_S * SECOND))
            end_capture(e, s, pod);
        if (s->running && now - s->cut_at >= SECOND && pp_batcher_steps(s->batcher) > 0) {
            cut(e, s, pod, false);
            s->cut_at = now;
        }
    }
}

void pp_events_finish(pp_events *e, pp_agent_pod *pod, int64_t now)
{
    for (size_t i = 0; i < e->count; i++) {
        close_step(e, e->streams[i], pod, now);
        end_capture(e, e->streams[i], pod);
    }
}

size_t pp_events_active(const pp_events *e)
{
    size_t active = 0;
    for (size_t i = 0; i < e->count; i++)
        active += e->streams[i]->open || e->streams[i]->running;
    return active;
}
