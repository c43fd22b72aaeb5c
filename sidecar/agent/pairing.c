#include "sidecar/agent/pairing.h"

#include "common/array.h"
#include "sidecar/agent/outside.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS = PP_OUTSIDE_THREADS, DEPTH = 64, LOOKS = 256 };

/* Of times and steps: sums with an offset stay within int64_t. */
#define NUMBER_MAX (INT64_MAX / 4)

/* Work that has begun in a thread; `since` is when it went on last. */
typedef struct open_piece {
    int64_t since;
    uint32_t layer;
    uint8_t phase;
    bool trains;
    bool range;
} open_piece;

typedef struct thread {
    open_piece stack[DEPTH];
    int depth;
    ssize_t last; /* index of the piece that the thread's last mark closed in backward, or -1 */
} thread;

struct pp_pairing {
    bool running;
    bool whole; /* step was handed out by the last event */
    pp_step step;
    size_t capacity, wait_capacity, level_capacity, run_capacity;
    uint64_t broken;
    thread threads[THREADS];
    pp_outside outside;
};

pp_pairing *pp_pairing_new(void)
{
    return calloc(1, sizeof(pp_pairing));
}

void pp_pairing_free(pp_pairing *p)
{
    if (!p)
        return;
    free(p->step.pieces);
    free(p->step.waits);
    free(p->step.levels);
    free(p->step.runs);
    free(p);
}

const pp_step *pp_pairing_step(const pp_pairing *p)
{
    return &p->step;
}

bool pp_pairing_running(const pp_pairing *p)
{
    return p->running;
}

uint64_t pp_pairing_broken(const pp_pairing *p)
{
    return p->broken;
}

static void clear_threads(pp_pairing *p)
{
    for (int i = 0; i < THREADS; i++) {
        p->threads[i].depth = 0;
        p->threads[i].last = -1;
    }
    pp_outside_clear(&p->outside);
}

static void empty(pp_step *step)
{
    step->count = step->wait_count = step->level_count = step->run_count = 0;
}

static int start(pp_pairing *p, const pp_mark *mark)
{
    p->running = true;
    p->whole = false;
    p->step.number = mark->value;
    p->step.start = p->step.end = mark->time;
    empty(&p->step);
    p->step.gap = -1;
    p->step.kernels = mark->flags & PP_MARK_KERNELS;
    p->step.dwell = mark->flags & PP_MARK_DWELL ? mark->value : 0;
    p->step.background = mark->flags & PP_MARK_BACKGROUND;
    p->step.memory = mark->flags & PP_MARK_STEP_MEMORY;
    memset(p->step.engine, 0, sizeof p->step.engine);
    clear_threads(p);
    return PP_PAIRING_START;
}

static int break_capture(pp_pairing *p)
{
    bool was = p->running;
    p->running = false;
    empty(&p->step);
    if (was)
        p->broken++;
    return was ? PP_PAIRING_STOP : PP_PAIRING_NONE;
}

bool pp_pairing_end(pp_pairing *p)
{
    bool was = p->running;
    p->running = false;
    empty(&p->step);
    return was;
}

/* Adds a piece; 0, or -1 where memory is out. Pieces of no length are kept: they count as calls. */
static int add(pp_pairing *p, uint8_t in, const open_piece *o, int64_t end, bool goes_on,
               pp_error *err)
{
    if (p->step.count == p->capacity) {
        size_t more = p->capacity ? p->capacity * 2 : 256;
        pp_piece *pieces = realloc(p->step.pieces, more * sizeof *pieces);
        if (!pieces)
            return pp_error_nomem(err);
        p->step.pieces = pieces;
        p->capacity = more;
    }
    p->step.pieces[p->step.count++] = (pp_piece){.start = o->since,
                                                 .end = end > o->since ? end : o->since,
                                                 .layer = o->layer,
                                                 .phase = o->phase,
                                                 .thread = in,
                                                 .trains = o->trains,
                                                 .goes_on = goes_on,
                                                 .busy = -1};
    return 0;
}

static int find(const thread *t, uint32_t layer, uint8_t phase)
{
    int at = t->depth - 1;
    while (at >= 0 && (t->stack[at].layer != layer || t->stack[at].phase != phase))
        at--;
    return at;
}

/* A backward that never ended: only a forward that is run again can begin inside one. */
static bool is_stale(const open_piece *o, const pp_mark *mark)
{
    return o->phase == PP_MARK_BACKWARD && mark->phase != PP_MARK_BACKWARD &&
           mark->phase != PP_MARK_RECOMPUTE;
}

/* The thread's latest piece of this layer was no end of its call. It is near: other threads' may
 * lie between. */
static void resume(pp_pairing *p, const pp_mark *mark)
{
    const size_t least = p->step.count > LOOKS ? p->step.count - LOOKS : 0;
    for (size_t i = p->step.count; i > least; i--) {
        pp_piece *piece = &p->step.pieces[i - 1];
        if (piece->layer != mark->layer || piece->phase != mark->phase ||
            piece->thread != mark->thread)
            continue;
        piece->goes_on = true;
        return;
    }
}

static int begin(pp_pairing *p, thread *t, const pp_mark *mark, int64_t time, pp_error *err)
{
    t->last = -1;
    int known = find(t, mark->layer, mark->phase);
    if (known >= 0) {
        if (mark->phase == PP_MARK_BACKWARD && known == t->depth - 1)
            return 0;     /* a second output of the layer: its work goes on */
        t->depth = known; /* it was left by an exception and begins again */
    }
    if (mark->phase == PP_MARK_BACKWARD && (mark->flags & PP_MARK_RESUMES))
        resume(p, mark);
    if (t->depth > 0 && !(mark->flags & PP_MARK_RANGE) && is_stale(&t->stack[t->depth - 1], mark))
        t->depth--;
    if (t->depth > 0) {
        open_piece *outer = &t->stack[t->depth - 1];
        /* Nodes run one after the other: one that has begun and not ended has no end hook left. */
        const bool over = outer->phase == PP_MARK_BACKWARD && mark->phase == PP_MARK_BACKWARD;
        if (time > outer->since && add(p, mark->thread, outer, time, !over, err) < 0)
            return -1;
        outer->since = time;
        if (over)
            t->depth--;
    }
    if (t->depth == DEPTH)
        t->depth = 0; /* begins that never ended */
    t->stack[t->depth++] = (open_piece){
        .since = time,
        .layer = mark->layer,
        .phase = mark->phase,
        .trains = mark->phase == PP_MARK_INFERENCE && (mark->flags & PP_MARK_TRAINS),
        .range = mark->flags & PP_MARK_RANGE,
    };
    return 0;
}

/* An end without a begin: in backward it prolongs the piece that the mark before it closed. Whether
 * it did. */
static bool prolong(pp_pairing *p, thread *t, const pp_mark *mark, int64_t time)
{
    if (mark->phase != PP_MARK_BACKWARD || t->last < 0)
        return false;
    pp_piece *piece = &p->step.pieces[t->last];
    const bool longer =
        piece->layer == mark->layer && piece->phase == mark->phase && time > piece->end;
    if (longer)
        piece->end = time;
    else if (piece->layer != mark->layer)
        t->last = -1;
    return longer;
}

/* A range that the program ends within something that began in it: its own time ended there. */
static int end_within(pp_pairing *p, thread *t, int at, bool pauses, pp_error *err)
{
    const uint8_t number = (uint8_t)(t - p->threads);
    if (add(p, number, &t->stack[at], t->stack[at].since, pauses, err) < 0)
        return -1;
    t->depth--;
    memmove(&t->stack[at], &t->stack[at + 1], (size_t)(t->depth - at) * sizeof *t->stack);
    return 0;
}

static int end(pp_pairing *p, thread *t, const pp_mark *mark, int64_t time, bool *ret_prolonged,
               pp_error *err)
{
    int at = find(t, mark->layer, mark->phase);
    if (at < 0) {
        *ret_prolonged = prolong(p, t, mark, time);
        return 0;
    }
    const bool pauses = mark->flags & PP_MARK_PAUSES;
    if ((mark->flags & PP_MARK_RANGE) && mark->phase != PP_MARK_BACKWARD && at < t->depth - 1)
        return end_within(p, t, at, pauses, err);
    if (add(p, mark->thread, &t->stack[at], time, pauses, err) < 0)
        return -1;
    t->last = mark->phase == PP_MARK_BACKWARD ? (ssize_t)p->step.count - 1 : -1;
    t->depth = at;
    if (t->depth > 0)
        t->stack[t->depth - 1].since = time; /* what was around it goes on */
    return 0;
}

/* What is known now of work outside of pieces. */
static int add_outside(pp_pairing *p, pp_error *err)
{
    for (size_t i = 0; i < p->outside.told_count; i++) {
        const pp_outside_part *part = &p->outside.told[i];
        const open_piece o = {.since = part->start, .layer = part->layer, .phase = part->phase};
        const bool forward = part->phase == PP_MARK_FORWARD;
        if (add(p, forward ? p->outside.thread : PP_THREAD_UNKNOWN, &o, part->end, part->goes_on,
                err) < 0)
            return -1;
    }
    return 0;
}

/* What is open in a thread, for work outside of pieces. */
static pp_outside_open open_in(const thread *t)
{
    for (int i = 0; i < t->depth; i++)
        if (!t->stack[i].range)
            return PP_OUTSIDE_PIECE;
    return t->depth > 0 ? PP_OUTSIDE_RANGE : PP_OUTSIDE_NONE;
}

/* Backward is run in this thread, or called from it: it may run what is on the CPU itself. */
static void note_engine(pp_pairing *p, const pp_mark *mark)
{
    if (mark->phase == PP_MARK_BACKWARD)
        p->step.engine[mark->thread / 64] |= UINT64_C(1) << mark->thread % 64;
}

static int work(pp_pairing *p, const pp_mark *mark, int64_t time, pp_error *err)
{
    thread *t = &p->threads[mark->thread];
    note_engine(p, mark);
    bool prolonged = false;
    if (mark->kind == PP_MARK_BEGIN ? begin(p, t, mark, time, err) < 0
                                    : end(p, t, mark, time, &prolonged, err) < 0)
        return -1;
    pp_outside_mark(&p->outside, mark, time, open_in(t), prolonged);
    return add_outside(p, err);
}

/* Backward begins or ends: what began in another one and never ended has no end left. */
static int engine(pp_pairing *p, const pp_mark *mark, int64_t time, pp_error *err)
{
    note_engine(p, mark);
    for (int i = 0; i < THREADS && p->outside.engines <= (mark->kind == PP_MARK_END); i++) {
        thread *t = &p->threads[i];
        while (t->depth > 0 && t->stack[t->depth - 1].phase == PP_MARK_BACKWARD)
            t->depth--;
        if (t->depth == 0)
            pp_outside_left(&p->outside, (uint8_t)i);
    }
    pp_outside_engine(&p->outside, mark, time);
    return add_outside(p, err);
}

static int add_wait(pp_pairing *p, const thread *t, const pp_mark *mark, pp_error *err)
{
    const open_piece outside = {.phase = PP_MARK_OTHER};
    const open_piece *in = t->depth > 0 ? &t->stack[t->depth - 1] : &outside;
    if (pp_array_reserve(&p->step.waits, &p->wait_capacity, p->step.wait_count + 1,
                         sizeof *p->step.waits, err) < 0)
        return -1;
    p->step.waits[p->step.wait_count++] = (pp_wait){.layer = in->layer,
                                                    .phase = in->phase,
                                                    .trains = in->trains,
                                                    .call = mark->phase,
                                                    .site = mark->layer,
                                                    .count = mark->epoch,
                                                    .ns = mark->value};
    return 0;
}

static int add_run(pp_pairing *p, const pp_mark *mark, pp_error *err)
{
    const size_t n = p->step.run_count;
    if (n >= PP_PAIRING_MAX_RUNS)
        return PP_PAIRING_NONE;
    if (pp_array_reserve(&p->step.runs, &p->run_capacity, n + 1, sizeof *p->step.runs, err) < 0)
        return -1;
    p->step.runs[p->step.run_count++] = (pp_graph_run){.start = mark->time - mark->value,
                                                       .end = mark->time,
                                                       .graph = mark->layer,
                                                       .thread = mark->thread};
    return PP_PAIRING_NONE;
}

static int add_level(pp_pairing *p, const pp_mark *mark, pp_error *err)
{
    const size_t n = p->step.level_count;
    if (!p->step.memory || n >= PP_PAIRING_MAX_PIECES ||
        (n > 0 && mark->time < p->step.levels[n - 1].time))
        return break_capture(p);
    if (pp_array_reserve(&p->step.levels, &p->level_capacity, n + 1, sizeof *p->step.levels, err) <
        0)
        return -1;
    p->step.levels[p->step.level_count++] = (pp_level){mark->time, mark->value, mark->peak};
    return PP_PAIRING_NONE;
}

static int compare_ends(const void *a, const void *b)
{
    const pp_piece *x = a;
    const pp_piece *y = b;
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : 0;
}

/* Forwards of a checkpoint, which records nothing of them, are known by their layers' being run
 * again. */
static void name_forwards(pp_step *step)
{
    bool again[PP_RING_LAYERS + 1] = {false};
    for (size_t i = 0; i < step->count; i++)
        if (step->pieces[i].phase == PP_MARK_RECOMPUTE)
            again[step->pieces[i].layer] = true;
    for (size_t i = 0; i < step->count; i++)
        if (step->pieces[i].trains && again[step->pieces[i].layer])
            step->pieces[i].phase = PP_MARK_FORWARD;
    for (size_t i = 0; i < step->wait_count; i++)
        if (step->waits[i].trains && again[step->waits[i].layer])
            step->waits[i].phase = PP_MARK_FORWARD;
}

/* The next step starts where this one ended. */
static void next_step(pp_pairing *p)
{
    p->whole = false;
    p->step.start = p->step.end;
    empty(&p->step);
}

/* A step that ends within backward, by optimizers that step there, has its gradients as one call.
 */
static void end_gradients(pp_pairing *p)
{
    const uint32_t layer = p->outside.engines > 0 && p->outside.any ? p->outside.gradients : 0;
    for (size_t i = p->step.count; layer && i-- > 0;)
        if (p->step.pieces[i].layer == layer) {
            p->step.pieces[i].goes_on = false;
            break;
        }
}

static int end_step(pp_pairing *p, const pp_mark *mark)
{
    if (mark->value <= p->step.number || mark->time < p->step.start)
        return break_capture(p);
    p->step.number = mark->value;
    p->step.end = mark->time;
    p->step.epoch = mark->epoch < 0 ? PP_MARK_UNKNOWN : mark->epoch;
    p->step.batch = mark->batch < 0 ? PP_MARK_UNKNOWN : mark->batch;
    /* Streams of a GPU may finish out of order: nothing reaches over the step's end. */
    for (size_t i = 0; i < p->step.count; i++) {
        pp_piece *piece = &p->step.pieces[i];
        piece->end = piece->end > mark->time ? mark->time : piece->end;
        piece->start = piece->start > piece->end ? piece->end : piece->start;
    }
    name_forwards(&p->step);
    end_gradients(p);
    if (p->step.count > 1)
        qsort(p->step.pieces, p->step.count, sizeof *p->step.pieces, compare_ends);
    clear_threads(p);
    p->whole = true;
    return PP_PAIRING_STEP;
}

static bool is_engine(const pp_mark *mark)
{
    return mark->phase == PP_MARK_BACKWARD && (mark->flags & PP_MARK_ENGINE);
}

/* Whether a mark can be what the hook writes. */
static bool possible(const pp_mark *mark)
{
    bool work = mark->kind == PP_MARK_BEGIN || mark->kind == PP_MARK_END;
    if (mark->kind == PP_MARK_WAIT)
        return mark->phase < PP_WAIT_CALLS && mark->layer <= PP_RING_SITES && mark->epoch > 0 &&
               mark->value >= 0 && mark->value <= NUMBER_MAX;
    if (mark->kind == PP_MARK_MEMORY)
        return mark->time >= 0 && mark->time <= NUMBER_MAX && mark->value >= 0 &&
               mark->value <= mark->peak && mark->peak <= PP_PAIRING_MAX_BYTES;
    if (mark->kind == PP_MARK_GRAPH)
        return mark->time <= NUMBER_MAX && mark->value >= 0 && mark->value <= mark->time;
    if (mark->kind < PP_MARK_BEGIN || mark->kind > PP_MARK_LOST || mark->time < 0 ||
        mark->time > NUMBER_MAX)
        return false;
    if (mark->kind != PP_MARK_LOST && !work && (mark->value < -1 || mark->value > NUMBER_MAX))
        return false;
    if (mark->kind == PP_MARK_START && (mark->flags & PP_MARK_DWELL) &&
        (mark->value < 1 || mark->value > PP_RING_DWELLS))
        return false;
    if (work && (mark->phase == PP_MARK_OTHER || mark->phase >= PP_MARK_PHASES ||
                 mark->layer > PP_RING_LAYERS))
        return false;
    if (work && is_engine(mark))
        return mark->layer != 0 && mark->value >= 0 && mark->value <= PP_RING_LAYERS;
    return !work || pp_mark_of_layer(mark->phase) == (mark->layer != 0);
}

static int feed_outside(pp_pairing *p, const pp_mark *mark)
{
    /* After a break, or where an agent before this one saw the start, any step's end will do; but
     * of a dwell the start alone says which it is. */
    bool step =
        mark->kind == PP_MARK_STEP && !(mark->flags & (PP_MARK_DWELL | PP_MARK_STEP_MEMORY));
    if (mark->kind == PP_MARK_START || step)
        return start(p, mark);
    return PP_PAIRING_NONE;
}

int pp_pairing_feed(pp_pairing *p, const pp_mark *mark, pp_error *err)
{
    if (!possible(mark) || mark->kind == PP_MARK_LOST)
        return break_capture(p);
    if (!p->running)
        return feed_outside(p, mark);
    if (p->whole)
        next_step(p);
    int64_t time = mark->time > p->step.start ? mark->time : p->step.start;
    switch ((pp_mark_kind)mark->kind) {
    case PP_MARK_BEGIN:
    case PP_MARK_END:
        if (p->step.count + 3 + PP_OUTSIDE_KEPT > PP_PAIRING_MAX_PIECES)
            return break_capture(p);
        return is_engine(mark) ? engine(p, mark, time, err) : work(p, mark, time, err);
    case PP_MARK_WAIT:
        return p->step.wait_count < PP_PAIRING_MAX_PIECES
                   ? add_wait(p, &p->threads[mark->thread], mark, err)
                   : break_capture(p);
    case PP_MARK_MEMORY:
        return add_level(p, mark, err);
    case PP_MARK_GRAPH:
        return add_run(p, mark, err);
    case PP_MARK_STEP:
        return end_step(p, mark);
    case PP_MARK_STOP:
        (void)pp_pairing_end(p);
        return PP_PAIRING_STOP;
    case PP_MARK_START:
        return start(p, mark);
    case PP_MARK_LOST:
    case PP_MARK_COUNTED: /* the caller's to take */
        break;
    }
    return PP_PAIRING_NONE;
}
