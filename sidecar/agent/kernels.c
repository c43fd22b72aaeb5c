#include "sidecar/agent/kernels.h"

#include "common/array.h"

#include <stdlib.h>
#include <string.h>

enum { ACTIVE_MAX = 256 };

/* A launch so much later than a step's end shows that the step's own are all here: CUPTI hands its
 * buffers over every 50 ms, each thread's in order. */
#define SLACK INT64_C(200000000)
#define TIME_MAX (INT64_MAX / 4)
#define BYTES_MAX (UINT64_C(1) << 48) /* of one copy: more than a GPU's memory */

typedef struct item {
    pp_pairing_event event;
    pp_step step; /* owns its pieces and waits */
} item;

/* A piece on its way to GPU time. */
typedef struct span {
    pp_piece piece;     /* in GPU time once the sweep has passed it */
    int64_t host_start; /* ns */
    int64_t host_end;
    int64_t busy_until;
} span;

struct pp_kernels {
    pp_kernel *kernels; /* from `head` on; sorted by launch where `sorted` */
    size_t head, count, capacity;
    bool sorted;
    int64_t newest;   /* the latest launch */
    int64_t complete; /* what was launched before is here */
    bool finished;
    uint64_t lost;  /* kernels ever, as heeded */
    int64_t since;  /* kernels launched before are not here */
    int64_t passed; /* host time up to which steps were handed out */
    uint64_t late;

    item *items; /* a circle of PP_KERNELS_MAX_STEPS */
    size_t first, items_count, pieces;

    void (*watch)(void *user, const pp_kernels_placed *); /* NULL: nobody */
    void *watch_user;

    /* The capture as it is handed out. */
    bool running;    /* a START was handed out */
    bool stop_due;   /* and is to be ended by a STOP before anything else */
    bool fresh;      /* the next step only sets the time line */
    int64_t cursor;  /* the GPU's time line: end of all work launched so far, collectives apart */
    int64_t covered; /* the latest end of any kernel */

    /* The step that is being turned. */
    span *spans;
    size_t span_count, span_capacity;
    pp_step step;
    size_t piece_capacity;
};

pp_kernels *pp_kernels_new(void)
{
    pp_kernels *k = calloc(1, sizeof *k);
    if (k)
        k->items = calloc(PP_KERNELS_MAX_STEPS, sizeof *k->items);
    if (k && !k->items) {
        free(k);
        return NULL;
    }
    return k;
}

void pp_kernels_free(pp_kernels *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < PP_KERNELS_MAX_STEPS; i++) {
        free(k->items[i].step.pieces);
        free(k->items[i].step.waits);
    }
    free(k->items);
    free(k->kernels);
    free(k->spans);
    free(k->step.pieces);
    free(k->step.waits);
    free(k);
}

uint64_t pp_kernels_late(const pp_kernels *k)
{
    return k->late;
}

bool pp_kernels_waiting(const pp_kernels *k)
{
    return k->items_count > 0;
}

void pp_kernels_watch(pp_kernels *k, void (*watch)(void *user, const pp_kernels_placed *),
                      void *user)
{
    k->watch = watch;
    k->watch_user = user;
}

void pp_kernels_since(pp_kernels *k, int64_t since)
{
    k->since = since;
}

void pp_kernels_finish(pp_kernels *k)
{
    k->finished = true;
}

/* ---- what comes in ---- */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void drop_first_item(pp_kernels *k)
{
    item *i = &k->items[k->first];
    k->pieces -= i->step.count + i->step.wait_count;
    free(i->step.pieces);
    free(i->step.waits);
    *i = (item){0};
    k->first = (k->first + 1) % PP_KERNELS_MAX_STEPS;
    k->items_count--;
}

/* Drops what waits of the time before. */
static void lose_until(pp_kernels *k, int64_t time)
{
    bool stopped = false;
    while (k->items_count > 0 && k->items[k->first].step.end <= time) {
        stopped = k->items[k->first].event == PP_PAIRING_STOP;
        drop_first_item(k);
    }
    k->head = k->count = 0;
    k->stop_due = k->stop_due || k->running;
    k->running = false;
    k->fresh = !stopped; /* else the hook starts the next one */
}

/* What was lost since the last word of it is of the time before. */
static void heed_losses(pp_kernels *k, uint64_t lost, int64_t until)
{
    if (lost != k->lost)
        lose_until(k, until);
    k->lost = lost;
}

void pp_kernels_lost(pp_kernels *k, uint64_t lost)
{
    heed_losses(k, lost, INT64_MAX);
}

static bool is_copy(const pp_kernel *kernel)
{
    return kernel->flags & PP_KERNEL_COPY;
}

int pp_kernels_add(pp_kernels *k, const pp_kernel *kernel, pp_error *err)
{
    if (kernel->launched < 0 || kernel->launched > TIME_MAX || kernel->start < 0 ||
        kernel->start > TIME_MAX) {
        lose_until(k, INT64_MAX);
        return 0;
    }
    if (kernel->flags & PP_KERNEL_COMPLETE) {
        /* The recording after it may have begun before this is seen here. */
        heed_losses(k, (uint64_t)kernel->start, kernel->launched);
        k->complete = later(k->complete, kernel->launched);
        return 0;
    }
    if (kernel->launched < k->passed) {
        k->late += !is_copy(kernel);
        return 0;
    }
    if (k->head > k->count / 2) {
        k->count -= k->head;
        memmove(k->kernels, k->kernels + k->head, k->count * sizeof *k->kernels);
        k->head = 0;
    }
    if (k->count - k->head >= PP_KERNELS_MAX)
        lose_until(k, INT64_MAX);
    if (pp_array_reserve(&k->kernels, &k->capacity, k->count + 1, sizeof *k->kernels, err) < 0)
        return -1;
    k->kernels[k->count++] = *kernel;
    k->sorted = false;
    if (kernel->launched > k->newest && !is_copy(kernel)) /* which says nothing of kernels */
        k->newest = kernel->launched;
    return 0;
}

/* NULL where there is nothing to copy, or memory is out. */
static void *copy_of(const void *from, size_t size)
{
    void *copy = size ? malloc(size) : NULL;
    return copy ? memcpy(copy, from, size) : NULL;
}

int pp_kernels_queue(pp_kernels *k, pp_pairing_event event, const pp_step *step, pp_error *err)
{
    const size_t count = event == PP_PAIRING_STEP ? step->count : 0;
    const size_t waits = event == PP_PAIRING_STEP ? step->wait_count : 0;
    if (k->items_count == PP_KERNELS_MAX_STEPS || k->pieces + count + waits > PP_KERNELS_MAX_PIECES)
        lose_until(k, INT64_MAX);
    k->finished = false;
    item *i = &k->items[(k->first + k->items_count) % PP_KERNELS_MAX_STEPS];
    *i = (item){.event = event, .step = *step};
    i->step.count = count;
    i->step.wait_count = waits;
    i->step.pieces = copy_of(step->pieces, count * sizeof *step->pieces);
    i->step.waits = copy_of(step->waits, waits * sizeof *step->waits);
    if ((count && !i->step.pieces) || (waits && !i->step.waits)) {
        free(i->step.pieces);
        free(i->step.waits);
        *i = (item){0};
        return pp_error_nomem(err);
    }
    k->items_count++;
    k->pieces += count + waits;
    return 0;
}

/* ---- one step, from host to GPU time ---- */

static int compare_launches(const void *a, const void *b)
{
    const pp_kernel *x = a;
    const pp_kernel *y = b;
    if (x->launched != y->launched)
        return x->launched < y->launched ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int compare_starts(const void *a, const void *b)
{
    const pp_kernel *x = a;
    const pp_kernel *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int compare_span_starts(const void *a, const void *b)
{
    const span *x = a;
    const span *y = b;
    if (x->host_start != y->host_start)
        return x->host_start < y->host_start ? -1 : 1;
    return x->host_end < y->host_end ? -1 : x->host_end > y->host_end;
}

static int compare_ends(const void *a, const void *b)
{
    const pp_piece *x = a;
    const pp_piece *y = b;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Pieces as spans, in order of their starts. */
static int set_spans(pp_kernels *k, const pp_step *step, size_t kernels, pp_error *err)
{
    /* Each kernel may make a piece of its own, where it is a collective or outside of all. */
    if (pp_array_reserve(&k->spans, &k->span_capacity, step->count + kernels, sizeof *k->spans,
                         err) < 0)
        return -1;
    for (size_t i = 0; i < step->count; i++)
        k->spans[i] = (span){.piece = step->pieces[i],
                             .host_start = step->pieces[i].start,
                             .host_end = step->pieces[i].end};
    k->span_count = step->count;
    qsort(k->spans, k->span_count, sizeof *k->spans, compare_span_starts);
    return 0;
}

static span *add_span(pp_kernels *k, uint8_t phase, int64_t start)
{
    span *s = &k->spans[k->span_count++];
    *s = (span){.piece = {.start = start, .end = start, .phase = phase}};
    return s;
}

static void run_in(span *s, const pp_kernel *kernel)
{
    int64_t end = kernel->start + kernel->duration;
    int64_t from = later(kernel->start, s->busy_until);
    if (kernel->start < s->piece.start)
        s->piece.start = kernel->start; /* on another stream than what came before */
    s->piece.end = later(s->piece.end, end);
    s->piece.busy += end > from ? end - from : 0;
    s->busy_until = later(s->busy_until, end);
}

/* The pieces that are open as the sweep goes along the host's time, innermost last. */
typedef struct sweep {
    span *active[ACTIVE_MAX];
    int depth;
    span *other;  /* of kernels outside all pieces; NULL: none is open */
    size_t next;  /* span that begins next */
    size_t count; /* spans that were pieces */
} sweep;

static void end_spans(pp_kernels *k, sweep *s, int64_t until)
{
    for (int i = s->depth - 1; i >= 0; i--) {
        span *a = s->active[i];
        if (a->host_end > until)
            continue;
        a->piece.end = later(a->piece.end, later(a->host_end, k->cursor));
        s->other = NULL;
        for (int j = i; j + 1 < s->depth; j++)
            s->active[j] = s->active[j + 1];
        s->depth--;
    }
}

/* Passes all begins and ends up to a moment of the host's. */
static void advance(pp_kernels *k, sweep *s, int64_t until)
{
    while (s->next < s->count && k->spans[s->next].host_start <= until) {
        span *b = &k->spans[s->next++];
        end_spans(k, s, b->host_start);
        b->piece.start = b->piece.end = later(b->host_start, k->cursor);
        b->piece.busy = 0;
        s->other = NULL;
        if (s->depth < ACTIVE_MAX)
            s->active[s->depth++] = b;
    }
    end_spans(k, s, until);
}

static const pp_piece *place(pp_kernels *k, sweep *s, const pp_kernel *kernel)
{
    static const pp_piece outside = {.phase = PP_MARK_OTHER};
    span *in;
    advance(k, s, kernel->launched);
    if (is_copy(kernel))
        return s->depth ? &s->active[s->depth - 1]->piece : &outside;
    if (kernel->flags & PP_KERNEL_COLLECTIVE) {
        in = add_span(k, PP_MARK_COMMUNICATION, kernel->start);
    } else {
        if (s->depth == 0 && !s->other)
            s->other = add_span(k, PP_MARK_OTHER, later(kernel->launched, k->cursor));
        in = s->depth ? s->active[s->depth - 1] : s->other;
        k->cursor = later(k->cursor, kernel->start + kernel->duration);
    }
    run_in(in, kernel);
    return &in->piece;
}

/* What the user's process has written of a copy is made one that there is. */
static pp_kernels_placed copy_of_kernel(const pp_kernel *kernel)
{
    const unsigned type = kernel->flags >> PP_KERNEL_COPY_SHIFT & PP_KERNEL_COPY_MASK;
    const unsigned memory = kernel->flags >> PP_KERNEL_MEMORY_SHIFT & PP_KERNEL_COPY_MASK;
    return (pp_kernels_placed){
        .copy = true,
        .type = (uint8_t)(type < PP_COPY_TYPES ? type : PP_COPY_OTHER),
        .memory = (uint8_t)(memory < PP_COPY_MEMORIES ? memory : PP_COPY_UNKNOWN),
        .bytes = kernel->bytes <= BYTES_MAX ? (int64_t)kernel->bytes : 0,
    };
}

static void tell(const pp_kernels *k, int64_t step, const pp_kernel *kernel, const pp_piece *in)
{
    pp_kernels_placed placed = {.name = kernel->flags >> PP_KERNEL_NAME_SHIFT,
                                .shape = kernel->shape};
    if (!k->watch || !k->running)
        return;
    if (is_copy(kernel))
        placed = copy_of_kernel(kernel);
    placed.start = kernel->start;
    placed.end = kernel->start + kernel->duration;
    placed.step = step;
    placed.layer = in->layer;
    placed.phase = in->phase;
    k->watch(k->watch_user, &placed);
}

/* The time of the step in which no kernel ran; sorts the kernels by start. */
static int64_t gap_of(pp_kernels *k, pp_kernel *kernels, size_t n, int64_t start, int64_t end)
{
    int64_t gap = 0;
    int64_t at = later(start, k->covered);
    qsort(kernels, n, sizeof *kernels, compare_starts);
    for (size_t i = 0; i < n; i++) {
        if (is_copy(&kernels[i]))
            continue;
        int64_t begin = kernels[i].start < end ? kernels[i].start : end;
        gap += begin > at ? begin - at : 0;
        at = later(at, kernels[i].start + kernels[i].duration);
    }
    k->covered = later(k->covered, at);
    return gap + (end > at ? end - at : 0);
}

static int hand_over(pp_kernels *k, const pp_step *host, int64_t end, pp_error *err)
{
    pp_step *to = &k->step;
    if (pp_array_reserve(&to->pieces, &k->piece_capacity, k->span_count, sizeof *to->pieces, err) <
        0)
        return -1;
    to->number = host->number;
    to->at = host->at;
    to->start = to->end;
    to->end = end;
    to->epoch = host->epoch;
    to->batch = host->batch;
    to->kernels = host->kernels;
    to->dwell = host->dwell;
    to->background = host->background;
    to->count = k->span_count;
    for (size_t i = 0; i < k->span_count; i++) {
        pp_piece p = k->spans[i].piece;
        p.end = p.end > end ? end : p.end; /* a collective that goes on */
        p.start = p.start < to->start ? to->start : p.start > p.end ? p.end : p.start;
        p.end = later(p.start, p.end);
        p.busy = p.busy > p.end - p.start ? p.end - p.start : p.busy;
        to->pieces[i] = p;
    }
    if (to->count > 1)
        qsort(to->pieces, to->count, sizeof *to->pieces, compare_ends);
    return 0;
}

/* Kernels that wait and were launched before. */
static size_t launched_before(pp_kernels *k, int64_t time)
{
    if (!k->sorted)
        qsort(k->kernels + k->head, k->count - k->head, sizeof *k->kernels, compare_launches);
    k->sorted = true;
    size_t n = 0;
    while (k->head + n < k->count && k->kernels[k->head + n].launched < time)
        n++;
    return n;
}

static int turn(pp_kernels *k, const pp_step *host, pp_error *err)
{
    size_t n = launched_before(k, host->end);
    pp_kernel *kernels = k->kernels + k->head;
    sweep s = {.count = host->count};
    if (set_spans(k, host, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        tell(k, host->number, &kernels[i], place(k, &s, &kernels[i]));
    advance(k, &s, INT64_MAX);
    int64_t end = later(host->end, k->cursor);
    k->step.gap = gap_of(k, kernels, n, k->step.end, end);
    k->head += n;
    k->passed = host->end;
    return hand_over(k, host, end, err);
}

/* ---- what goes out ---- */

static bool all_here(const pp_kernels *k, const item *i)
{
    return k->complete >= i->step.end || k->newest >= i->step.end + SLACK;
}

/* Once nothing more comes, what was launched last may be missing for ever. */
static bool ready(const pp_kernels *k, const item *i)
{
    return i->event != PP_PAIRING_STEP || k->finished || all_here(k, i);
}

/* Waits are the host's and stay as they are. */
static void take_waits(pp_kernels *k, pp_step *from)
{
    free(k->step.waits);
    k->pieces -= from->wait_count;
    k->step.waits = from->waits;
    k->step.wait_count = from->wait_count;
    from->waits = NULL;
    from->wait_count = 0;
}

static int step_event(pp_kernels *k, item *i, pp_error *err)
{
    if (i->step.start < k->since) {
        k->fresh = true;
        return PP_PAIRING_NONE;
    }
    if (turn(k, &i->step, err) < 0)
        return -1;
    take_waits(k, &i->step);
    if (k->running)
        return PP_PAIRING_STEP;
    if (!k->fresh)
        return PP_PAIRING_NONE;
    k->fresh = false;
    k->running = true;
    return PP_PAIRING_START;
}

/* The time line of one capture says nothing about another's. */
static int end_capture(pp_kernels *k, bool fresh)
{
    bool was = k->running;
    k->running = false;
    k->fresh = fresh;
    k->cursor = k->covered = k->step.end = 0;
    return was ? PP_PAIRING_STOP : PP_PAIRING_NONE;
}

int pp_kernels_next(pp_kernels *k, const pp_step **ret_step, pp_error *err)
{
    *ret_step = &k->step;
    if (k->stop_due) {
        k->stop_due = false;
        return PP_PAIRING_STOP;
    }
    while (k->items_count > 0) {
        item *i = &k->items[k->first];
        if (!ready(k, i))
            break;
        k->step.at = i->step.at;
        int event = i->event == PP_PAIRING_STEP && all_here(k, i)
                        ? step_event(k, i, err)
                        : end_capture(k, i->event == PP_PAIRING_START);
        drop_first_item(k);
        if (event != PP_PAIRING_NONE)
            return event;
    }
    return PP_PAIRING_NONE;
}
