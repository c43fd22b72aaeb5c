#include "sidecar/agent/kernels.h"

#include "common/array.h"

#include <stdlib.h>
#include <string.h>

enum { ACTIVE_MAX = 256 };

/* A launch so much later than a step's end shows that the step's own are all here: CUPTI hands its
 * buffers over every 50 ms, each thread's in order. But a stream that is behind the others hands
 * its own over late: until each has shown a later launch steps wait longer, where few do and more
 * may come. */
#define SLACK INT64_C(200000000)
#define PATIENCE INT64_C(5000000000)
enum {
    FEW_KERNELS = PP_KERNELS_MAX / 4,
    FEW_STEPS = PP_KERNELS_MAX_STEPS / 4,
    FEW_PIECES = 8192, /* whose marks are a quarter of the ring: they stay in it meanwhile */
};
#define TIME_MAX (INT64_MAX / 4)
#define BYTES_MAX (UINT64_C(1) << 48) /* of one copy: more than a GPU's memory */

typedef struct item {
    pp_pairing_event event;
    pp_step step; /* owns its pieces and waits */
} item;

/* A piece on its way to GPU time. */
typedef struct span {
    pp_piece piece;     /* in GPU time once the sweep has passed it */
    size_t at;          /* its place in the step; SIZE_MAX: a kernel made it */
    int64_t host_start; /* ns */
    int64_t host_end;
    bool ran;            /* a kernel has, since it was cut last */
    size_t sum;          /* the place of its busy time */
    struct span *inside; /* of a region's: the piece of a layer in it that ran last, in `run`; NULL:
                            it was the region itself */
    uint32_t run;
} span;

/* A kernel on its GPU's time line. */
typedef struct execution {
    int64_t start;
    int64_t end;
    size_t sum; /* of the span that it is in */
} execution;

/* The time in which kernels of a span ran: added up in the order of their starts, which is not that
 * of their launches where a stream is behind another. */
typedef struct busy_sum {
    int64_t busy;
    int64_t until;
    size_t whole; /* the sum whose `until` counts: spans of one piece that was cut share it */
} busy_sum;

/* One of the process, by CUDA's number. */
typedef struct gpu {
    bool seen;       /* a kernel of it was, in this capture */
    bool running;    /* a START was handed out */
    bool stop_due;   /* and is to be ended by a STOP before anything else */
    int64_t end;     /* of the step that was handed out last */
    int64_t cursor;  /* its time line: end of all work launched so far, collectives apart */
    int64_t covered; /* the latest end of any kernel */
} gpu;

struct pp_kernels {
    pp_kernel *kernels; /* from `head` on; sorted by launch where `sorted` */
    size_t head, count, capacity;
    bool sorted;
    int64_t newest;   /* the latest launch */
    int64_t complete; /* what was launched before is here */
    int64_t so_far;   /* the same, on streams that have run anything */
    bool finished;
    uint64_t lost;  /* kernels ever, as heeded */
    int64_t since;  /* kernels launched before are not here */
    int64_t passed; /* host time up to which steps were handed out */
    pp_kernels_missing missing;

    item *items; /* a circle of PP_KERNELS_MAX_STEPS */
    size_t first, items_count, pieces;

    pp_graphs *graphs;                                    /* NULL: there are none */
    void (*watch)(void *user, const pp_kernels_placed *); /* NULL: nobody */
    void *watch_user;

    /* The capture as it is handed out. */
    bool on;      /* steps count: the first of each GPU sets its time line */
    bool in_item; /* the first item is being handed out: to the GPUs from `next` on */
    bool whole;   /* it is a step, with `launched` kernels */
    bool told;    /* to a GPU before */
    unsigned next;
    size_t launched;
    gpu gpus[PP_RING_DEVICES];
    unsigned seen;                    /* of these, how many */
    bool assumed;                     /* the first is, while none ran anything */
    uint8_t home[PP_RING_LAYERS + 1]; /* of each layer the GPU on which it ran last ... */
    bool at_home[PP_RING_LAYERS + 1]; /* ... where it did, in this capture */

    /* The step that is being turned, for one GPU. */
    gpu *of;
    pp_kernel *own;           /* its kernels */
    pp_graphs_kernel *inside; /* whose each of them is, where graphs ran */
    size_t own_capacity, inside_capacity;
    struct {
        span *last; /* the latest piece of this layer inside of a region ... */
        uint32_t run;
    } parts[PP_RING_LAYERS + 1]; /* ... of the step and GPU */
    uint16_t *ran;               /* by piece: GPUs on which kernels of it ran, as bits */
    bool *kept;                  /* by piece: it is this GPU's */
    bool *ends;                  /* by piece: its call goes on where it is not this GPU's */
    size_t ran_capacity, kept_capacity, ends_capacity;
    span *spans;
    busy_sum *sums; /* as many */
    size_t span_count, span_capacity, sum_capacity;
    execution *executions;
    size_t execution_count, execution_capacity;
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

static void free_parts(pp_step *step)
{
    free(step->pieces);
    free(step->waits);
    free(step->runs);
}

void pp_kernels_free(pp_kernels *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < PP_KERNELS_MAX_STEPS; i++)
        free_parts(&k->items[i].step);
    free(k->items);
    free(k->kernels);
    free(k->own);
    free(k->inside);
    free(k->ran);
    free(k->kept);
    free(k->ends);
    free(k->spans);
    free(k->sums);
    free(k->executions);
    free_parts(&k->step);
    free(k);
}

pp_kernels_missing pp_kernels_what_is_missing(const pp_kernels *k)
{
    return k->missing;
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

void pp_kernels_use_graphs(pp_kernels *k, pp_graphs *graphs)
{
    k->graphs = graphs;
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
    k->pieces -= i->step.count + i->step.wait_count + i->step.run_count;
    free_parts(&i->step);
    *i = (item){0};
    k->first = (k->first + 1) % PP_KERNELS_MAX_STEPS;
    k->items_count--;
}

/* Drops the steps that wait of the time before. */
static void drop_steps(pp_kernels *k, int64_t time)
{
    bool stopped = false;
    while (k->items_count > 0 && k->items[k->first].step.end <= time) {
        const item *i = &k->items[k->first];
        stopped = i->event == PP_PAIRING_STOP;
        k->missing.steps += i->event == PP_PAIRING_STEP && !i->step.dwell;
        drop_first_item(k);
    }
    k->in_item = false;
    for (int i = 0; i < PP_RING_DEVICES; i++) {
        gpu *g = &k->gpus[i];
        g->stop_due = g->stop_due || g->running;
        g->running = false;
    }
    k->on = !stopped; /* else the hook starts the next one */
}

/* And all kernels. */
static void lose_until(pp_kernels *k, int64_t time)
{
    drop_steps(k, time);
    k->head = k->count = 0;
}

static bool is_copy(const pp_kernel *kernel)
{
    return kernel->flags & PP_KERNEL_COPY;
}

/* These here are too many. */
static void lose_waiting(pp_kernels *k)
{
    for (size_t i = k->head; i < k->count; i++)
        k->missing.lost += !is_copy(&k->kernels[i]);
    lose_until(k, INT64_MAX);
}

/* What was lost since the last word of it is of the time before. Words come late: a recording's own
 * may be read behind a count that has the next one's losses. */
static void heed_losses(pp_kernels *k, uint64_t lost, int64_t until)
{
    if (lost <= k->lost)
        return;
    lose_until(k, until);
    k->missing.lost += lost - k->lost;
    k->lost = lost;
}

void pp_kernels_lost_before(pp_kernels *k, uint64_t lost)
{
    k->lost = lost;
}

uint64_t pp_kernels_heeded(const pp_kernels *k)
{
    return k->lost;
}

void pp_kernels_lost(pp_kernels *k, uint64_t lost)
{
    heed_losses(k, lost, INT64_MAX);
}

static int64_t end_of(const pp_kernel *kernel)
{
    return kernel->start + pp_kernel_duration(kernel);
}

int pp_kernels_add(pp_kernels *k, const pp_kernel *kernel, pp_error *err)
{
    if (kernel->launched < 0 || kernel->launched > TIME_MAX || kernel->start < 0 ||
        kernel->start > TIME_MAX || pp_kernel_duration(kernel) > TIME_MAX) {
        k->missing.lost++;
        lose_until(k, INT64_MAX);
        return 0;
    }
    if (kernel->flags & PP_KERNEL_COMPLETE && kernel->flags & PP_KERNEL_SO_FAR) {
        k->so_far = later(k->so_far, kernel->launched);
        return 0;
    }
    if (kernel->flags & PP_KERNEL_COMPLETE) {
        /* The recording after it may have begun before this is seen here. */
        heed_losses(k, (uint64_t)kernel->start, kernel->launched);
        k->complete = later(k->complete, kernel->launched);
        return 0;
    }
    if (kernel->launched < k->passed) {
        k->missing.late += !is_copy(kernel);
        if (!is_copy(kernel))
            drop_steps(k, INT64_MAX);
        return 0;
    }
    if (k->head > k->count / 2) {
        k->count -= k->head;
        memmove(k->kernels, k->kernels + k->head, k->count * sizeof *k->kernels);
        k->head = 0;
    }
    if (k->count - k->head >= PP_KERNELS_MAX)
        lose_waiting(k);
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
    const size_t runs = event == PP_PAIRING_STEP ? step->run_count : 0;
    if (k->items_count == PP_KERNELS_MAX_STEPS ||
        k->pieces + count + waits + runs > PP_KERNELS_MAX_PIECES)
        lose_waiting(k);
    k->finished = false;
    item *i = &k->items[(k->first + k->items_count) % PP_KERNELS_MAX_STEPS];
    *i = (item){.event = event, .step = *step};
    i->step.count = count;
    i->step.wait_count = waits;
    i->step.pieces = copy_of(step->pieces, count * sizeof *step->pieces);
    i->step.waits = copy_of(step->waits, waits * sizeof *step->waits);
    i->step.run_count = runs;
    i->step.runs = copy_of(step->runs, runs * sizeof *step->runs);
    if ((count && !i->step.pieces) || (waits && !i->step.waits) || (runs && !i->step.runs)) {
        free_parts(&i->step);
        *i = (item){0};
        return pp_error_nomem(err);
    }
    k->items_count++;
    k->pieces += count + waits + runs;
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
    const execution *x = a;
    const execution *y = b;
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

/* With a sum of its own. */
static span *new_span(pp_kernels *k)
{
    const size_t at = k->span_count++;
    k->sums[at] = (busy_sum){.whole = at};
    return &k->spans[at];
}

/* Pieces as spans, in order of their starts. */
static int set_spans(pp_kernels *k, const pp_step *step, size_t kernels, pp_error *err)
{
    /* Each kernel may make a piece of its own, where it is a collective or outside of all; or where
     * it is of a layer inside of a region, whose piece it then cuts. */
    const size_t most = step->count + 2 * kernels;
    if (pp_array_reserve(&k->spans, &k->span_capacity, most, sizeof *k->spans, err) < 0 ||
        pp_array_reserve(&k->sums, &k->sum_capacity, most, sizeof *k->sums, err) < 0 ||
        pp_array_reserve(&k->executions, &k->execution_capacity, kernels, sizeof *k->executions,
                         err) < 0)
        return -1;
    k->span_count = k->execution_count = 0;
    for (size_t i = 0; i < step->count; i++)
        *new_span(k) = (span){.piece = step->pieces[i],
                              .at = i,
                              .sum = i,
                              .host_start = step->pieces[i].start,
                              .host_end = step->pieces[i].end};
    if (k->span_count > 1)
        qsort(k->spans, k->span_count, sizeof *k->spans, compare_span_starts);
    return 0;
}

static span *add_span(pp_kernels *k, uint8_t phase, int64_t start)
{
    const size_t sum = k->span_count;
    span *s = new_span(k);
    *s =
        (span){.piece = {.start = start, .end = start, .phase = phase}, .at = SIZE_MAX, .sum = sum};
    return s;
}

static void run_in(pp_kernels *k, span *s, const pp_kernel *kernel)
{
    int64_t end = end_of(kernel);
    if (kernel->start < s->piece.start)
        s->piece.start = kernel->start; /* on another stream than what came before */
    s->piece.end = later(s->piece.end, end);
    s->ran = s->ran || end > kernel->start;
    k->executions[k->execution_count++] =
        (execution){.start = kernel->start, .end = end, .sum = s->sum};
}

/* The pieces that are open as the sweep goes along the host's time, innermost last. */
typedef struct sweep {
    span *active[ACTIVE_MAX];
    int depth;
    const uint64_t *engine; /* threads that ran backward */
    span *other;            /* of kernels outside all pieces; NULL: none is open */
    size_t next;            /* span that begins next */
    size_t count;           /* spans that were pieces */
} sweep;

static void end_spans(pp_kernels *k, sweep *s, int64_t until)
{
    for (int i = s->depth - 1; i >= 0; i--) {
        span *a = s->active[i];
        if (a->host_end > until)
            continue;
        a->piece.end = later(a->piece.end, later(a->host_end, k->of->cursor));
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
        b->piece.start = b->piece.end = later(b->host_start, k->of->cursor);
        s->other = NULL;
        if (s->depth < ACTIVE_MAX)
            s->active[s->depth++] = b;
    }
    end_spans(k, s, until);
}

/* Whether what runs in this thread may be a piece's. */
static bool is_of(const sweep *s, const span *in, uint8_t thread)
{
    const uint8_t of = in->piece.thread;
    if (thread == PP_THREAD_UNKNOWN || of == thread)
        return true;
    return of == PP_THREAD_UNKNOWN && (s->engine[thread / 64] >> thread % 64 & 1);
}

/* The innermost piece that is open where it was launched; NULL: none is. */
static span *find_piece(pp_kernels *k, sweep *s, const pp_kernel *kernel)
{
    advance(k, s, kernel->launched);
    for (int i = s->depth - 1; i >= 0; i--)
        if (is_of(s, s->active[i], pp_kernel_thread(kernel)))
            return s->active[i];
    return NULL;
}

/* The piece of a region's that is over where a layer in it begins; nothing is left of no time. */
static void cut_region(pp_kernels *k, span *in, int64_t end)
{
    if (end <= in->piece.start && !in->ran)
        return;
    span *head = add_span(k, in->piece.phase, in->piece.start);
    const size_t sum = head->sum;
    k->sums[sum].whole = k->sums[in->sum].whole;
    head->sum = in->sum;
    in->sum = sum;
    head->piece = in->piece;
    head->piece.end = later(in->piece.end, end);
    head->piece.goes_on = true;
}

/* The piece of a layer inside of a region; a further one of the same run is the same call. */
static span *piece_inside(pp_kernels *k, span *in, const pp_kernel *kernel,
                          const pp_graphs_kernel *whose)
{
    if (in->inside && in->inside->piece.layer == whose->layer && in->run == whose->run)
        return in->inside;
    const bool follows = in->inside && in->run == whose->run;
    const int64_t start = follows ? in->piece.start : later(kernel->launched, k->of->cursor);
    cut_region(k, in, start);
    span *s = add_span(k, in->piece.phase, later(start, in->piece.start));
    s->piece.thread = in->piece.thread;
    s->piece.layer = whose->layer;
    if (k->parts[whose->layer].last && k->parts[whose->layer].run == whose->run)
        k->parts[whose->layer].last->piece.goes_on = true;
    k->parts[whose->layer].last = s;
    k->parts[whose->layer].run = whose->run;
    in->inside = s;
    in->run = whose->run;
    in->ran = false;
    return s;
}

/* A kernel of a region runs, of a layer inside of it or of its own: where the region goes on is
 * behind it. */
static span *run_inside(pp_kernels *k, span *in, const pp_kernel *kernel,
                        const pp_graphs_kernel *whose)
{
    if (!whose || whose->layer == 0) {
        in->inside = NULL;
        run_in(k, in, kernel);
        return in;
    }
    span *s = piece_inside(k, in, kernel, whose);
    run_in(k, s, kernel);
    in->piece.start = in->piece.end = later(in->piece.start, s->piece.end);
    return s;
}

static const pp_piece *place(pp_kernels *k, sweep *s, const pp_kernel *kernel,
                             const pp_graphs_kernel *whose)
{
    static const pp_piece outside = {.phase = PP_MARK_OTHER};
    span *in = find_piece(k, s, kernel);
    if (is_copy(kernel))
        return in ? &in->piece : &outside;
    if (kernel->flags & PP_KERNEL_COLLECTIVE) {
        in = add_span(k, PP_MARK_COMMUNICATION, kernel->start);
        run_in(k, in, kernel);
        return &in->piece;
    }
    if (!in && !s->other)
        s->other = add_span(k, PP_MARK_OTHER, later(kernel->launched, k->of->cursor));
    in = run_inside(k, in ? in : s->other, kernel, whose);
    k->of->cursor = later(k->of->cursor, end_of(kernel));
    return &in->piece;
}

/* What the user's process has written of a copy is made one that there is. */
static pp_kernels_placed copy_of_kernel(const pp_kernel *kernel)
{
    const unsigned type = kernel->flags >> PP_KERNEL_COPY_SHIFT & PP_KERNEL_COPY_MASK;
    const unsigned memory = kernel->flags >> PP_KERNEL_MEMORY_SHIFT & PP_KERNEL_MEMORY_MASK;
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
    if (!k->watch || !k->of->running)
        return;
    if (is_copy(kernel))
        placed = copy_of_kernel(kernel);
    placed.gpu = (uint8_t)pp_kernel_device(kernel);
    placed.start = kernel->start;
    placed.end = end_of(kernel);
    placed.step = step;
    placed.layer = in->layer;
    placed.phase = in->phase;
    k->watch(k->watch_user, &placed);
}

/* What of a step's kernels is in it is each span's busy time; gives the time of the step in which
 * no kernel ran. */
static int64_t add_up(pp_kernels *k, int64_t start, int64_t end)
{
    gpu *g = k->of;
    int64_t gap = 0;
    int64_t at = later(start, g->covered);
    if (k->execution_count > 1)
        qsort(k->executions, k->execution_count, sizeof *k->executions, compare_starts);
    for (size_t i = 0; i < k->execution_count; i++) {
        const execution *e = &k->executions[i];
        busy_sum *own = &k->sums[e->sum];
        int64_t *until = &k->sums[own->whole].until;
        const int64_t from = later(later(e->start, *until), start);
        const int64_t to = e->end < end ? e->end : end;
        const int64_t begin = e->start < end ? e->start : end;
        own->busy += to > from ? to - from : 0;
        *until = later(*until, e->end);
        gap += begin > at ? begin - at : 0;
        at = later(at, e->end);
    }
    g->covered = later(g->covered, at);
    return gap + (end > at ? end - at : 0);
}

/* Whether a piece is this GPU's: kernels of it ran here, or nowhere, and this is its layer's. What
 * is the step's is everybody's. */
static bool is_kept(const pp_kernels *k, const pp_piece *p, unsigned ran)
{
    const unsigned own = (unsigned)(k->of - k->gpus);
    unsigned home = 0;
    if (ran)
        return ran >> own & 1;
    while (home < PP_RING_DEVICES && !k->gpus[home].seen)
        home++;
    return p->layer == 0 || own == (k->at_home[p->layer] ? k->home[p->layer] : home);
}

enum { CALLS = 64 };

/* Calls that go on in later pieces. */
typedef struct calls {
    struct {
        const pp_piece *of; /* the latest piece; NULL: no call is open */
        size_t kept;        /* the latest that was kept; SIZE_MAX: none was */
    } open[CALLS];
} calls;

static bool is_same_call(const pp_piece *a, const pp_piece *b)
{
    return a && a->layer == b->layer && a->phase == b->phase && a->thread == b->thread;
}

/* Its place, or that of a free one; CALLS: there are too many. */
static size_t find_call(const calls *c, const pp_piece *p)
{
    size_t empty = CALLS;
    for (size_t i = 0; i < CALLS; i++) {
        if (is_same_call(c->open[i].of, p))
            return i;
        if (!c->open[i].of && empty == CALLS)
            empty = i;
    }
    return empty;
}

/* Chooses this GPU's pieces of a step, which are in the order of their ends. A call whose last
 * piece is another's ends here with the last of its own. */
static void keep_pieces(pp_kernels *k, pp_step *step)
{
    calls c = {0};
    for (size_t i = 0; i < step->count; i++) {
        const pp_piece *p = &step->pieces[i];
        k->ends[i] = false;
        k->kept[i] = k->seen == 1 || is_kept(k, p, k->ran[i]);
        if (k->seen == 1)
            continue;
        const size_t at = find_call(&c, p);
        if (at == CALLS)
            continue;
        if (!c.open[at].of)
            c.open[at].kept = SIZE_MAX;
        c.open[at].of = p->goes_on ? p : NULL;
        if (k->kept[i])
            c.open[at].kept = i;
        else if (!p->goes_on && c.open[at].kept != SIZE_MAX)
            k->ends[c.open[at].kept] = true;
    }
}

static void add_piece(pp_kernels *k, const span *s, int64_t end)
{
    pp_step *to = &k->step;
    pp_piece p = s->piece;
    if (s->at != SIZE_MAX && !k->kept[s->at])
        return;
    p.goes_on = p.goes_on && !(s->at != SIZE_MAX && k->ends[s->at]);
    p.end = p.end > end ? end : p.end; /* a collective that goes on */
    p.start = p.start < to->start ? to->start : p.start > p.end ? p.end : p.start;
    p.end = later(p.start, p.end);
    p.busy = k->sums[s->sum].busy;
    p.busy = p.busy > p.end - p.start ? p.end - p.start : p.busy;
    to->pieces[to->count++] = p;
}

static int hand_over(pp_kernels *k, const pp_step *host, int64_t end, pp_error *err)
{
    pp_step *to = &k->step;
    if (pp_array_reserve(&to->pieces, &k->piece_capacity, k->span_count, sizeof *to->pieces, err) <
        0)
        return -1;
    to->number = host->number;
    to->at = host->at;
    to->start = k->of->end;
    to->end = k->of->end = end;
    to->epoch = host->epoch;
    to->batch = host->batch;
    to->kernels = host->kernels;
    to->dwell = host->dwell;
    to->background = host->background;
    to->count = 0;
    for (size_t i = 0; i < k->span_count; i++)
        add_piece(k, &k->spans[i], end);
    if (to->count > 1)
        qsort(to->pieces, to->count, sizeof *to->pieces, compare_ends);
    return 0;
}

/* Kernels that wait and were launched before. */
static size_t launched_before(pp_kernels *k, int64_t time)
{
    if (!k->sorted && k->count > k->head)
        qsort(k->kernels + k->head, k->count - k->head, sizeof *k->kernels, compare_launches);
    k->sorted = true;
    size_t n = 0;
    while (k->head + n < k->count && k->kernels[k->head + n].launched < time)
        n++;
    return n;
}

/* Room for what is known of each piece; and, of several GPUs, on which kernels of it ran. */
static int find_gpus(pp_kernels *k, const pp_step *host, pp_error *err)
{
    const pp_kernel *kernels = k->kernels + k->head;
    sweep s = {.count = host->count, .engine = host->engine};
    k->of = &k->gpus[0]; /* its time line is none of what is looked for */
    if (pp_array_reserve(&k->ran, &k->ran_capacity, host->count + 1, sizeof *k->ran, err) < 0 ||
        pp_array_reserve(&k->kept, &k->kept_capacity, host->count + 1, sizeof *k->kept, err) < 0 ||
        pp_array_reserve(&k->ends, &k->ends_capacity, host->count + 1, sizeof *k->ends, err) < 0 ||
        set_spans(k, host, 0, err) < 0)
        return -1;
    if (host->count > 0)
        memset(k->ran, 0, host->count * sizeof *k->ran);
    for (size_t i = 0; i < k->launched && k->seen > 1; i++) {
        const bool counts = !is_copy(&kernels[i]) && !(kernels[i].flags & PP_KERNEL_COLLECTIVE);
        const span *in = find_piece(k, &s, &kernels[i]);
        if (!counts || !in)
            continue;
        const unsigned on = pp_kernel_device(&kernels[i]);
        k->ran[in->at] |= (uint16_t)(1U << on);
        k->home[in->piece.layer] = (uint8_t)on;
        k->at_home[in->piece.layer] = true;
    }
    return 0;
}

static void see_gpu(pp_kernels *k, unsigned on)
{
    gpu *first = &k->gpus[0];
    if (k->assumed && on != 0) {
        first->stop_due = first->stop_due || first->running;
        first->seen = first->running = false;
        k->seen = 0;
    }
    k->assumed = false;
    k->seen += !k->gpus[on].seen;
    k->gpus[on].seen = true;
}

/* Which GPUs ran something; false: kernels of several cannot be told apart, since threads of theirs
 * are not known. Where nothing ran at all the first is taken for the one. */
static bool see_gpus(pp_kernels *k, int64_t since)
{
    bool unknown = false;
    for (size_t i = 0; i < k->launched; i++) {
        const pp_kernel *kernel = &k->kernels[k->head + i];
        if (is_copy(kernel) || kernel->launched < since)
            continue; /* what is left of a capture before says nothing of this one */
        see_gpu(k, pp_kernel_device(kernel));
        unknown = unknown || pp_kernel_thread(kernel) == PP_THREAD_UNKNOWN;
    }
    if (k->seen == 0) {
        k->gpus[0].seen = k->assumed = true;
        k->seen = 1;
    }
    return k->seen == 1 || !unknown;
}

static void forget_gpus(pp_kernels *k)
{
    for (int i = 0; i < PP_RING_DEVICES; i++)
        k->gpus[i].seen = false;
    k->seen = 0;
    k->assumed = false;
    memset(k->at_home, 0, sizeof k->at_home);
}

/* The kernels of a step that ran on this GPU, in the order of their launches; -1: memory is out. */
static long take_own(pp_kernels *k, pp_error *err)
{
    const unsigned on = (unsigned)(k->of - k->gpus);
    long n = 0;
    if (pp_array_reserve(&k->own, &k->own_capacity, k->launched + 1, sizeof *k->own, err) < 0)
        return -1;
    for (size_t i = 0; i < k->launched; i++)
        if (pp_kernel_device(&k->kernels[k->head + i]) == on)
            k->own[n++] = k->kernels[k->head + i];
    return n;
}

/* Whose each of the GPU's own kernels is, where compiled graphs ran. */
static int find_inside(pp_kernels *k, const pp_step *host, size_t n, pp_error *err)
{
    sweep s = {.count = host->count, .engine = host->engine};
    memset(k->parts, 0, sizeof k->parts);
    if (pp_array_reserve(&k->inside, &k->inside_capacity, n + 1, sizeof *k->inside, err) < 0 ||
        set_spans(k, host, 0, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const pp_kernel *kernel = &k->own[i];
        const bool counts = !is_copy(kernel) && !(kernel->flags & PP_KERNEL_COLLECTIVE);
        const span *in = counts ? find_piece(k, &s, kernel) : NULL;
        k->inside[i] = (pp_graphs_kernel){.launched = kernel->launched,
                                          .name = kernel->flags >> PP_KERNEL_NAME_SHIFT,
                                          .in = in ? in->piece.layer : 0,
                                          .thread = pp_kernel_thread(kernel)};
    }
    return pp_graphs_tell(k->graphs, host->runs, host->run_count, k->inside, n, err);
}

static int turn(pp_kernels *k, pp_step *host, pp_error *err)
{
    const long n = take_own(k, err);
    const bool inside = k->graphs && host->run_count > 0;
    sweep s = {.count = host->count, .engine = host->engine};
    if (n < 0 || (inside && find_inside(k, host, (size_t)n, err) < 0) ||
        set_spans(k, host, (size_t)n, err) < 0)
        return -1;
    keep_pieces(k, host);
    for (long i = 0; i < n; i++)
        tell(k, host->number, &k->own[i], place(k, &s, &k->own[i], inside ? &k->inside[i] : NULL));
    advance(k, &s, INT64_MAX);
    int64_t end = later(host->end, k->of->cursor);
    k->step.gap = add_up(k, k->of->end, end);
    return hand_over(k, host, end, err);
}

/* ---- what goes out ---- */

static bool all_here(const pp_kernels *k, const item *i)
{
    const bool few =
        k->count - k->head < FEW_KERNELS && k->items_count < FEW_STEPS && k->pieces < FEW_PIECES;
    const int64_t slack = few && k->so_far < i->step.end ? PATIENCE : SLACK;
    return k->complete >= i->step.end || k->newest >= i->step.end + slack;
}

/* Once nothing more comes, what was launched last may be missing for ever. */
static bool ready(const pp_kernels *k, const item *i)
{
    return i->event != PP_PAIRING_STEP || k->finished || all_here(k, i);
}

/* Waits are the host's and stay as they are: they go with one GPU. */
static void take_waits(pp_kernels *k, pp_step *from)
{
    free(k->step.waits);
    k->pieces -= from->wait_count;
    k->step.waits = from->waits;
    k->step.wait_count = from->wait_count;
    from->waits = NULL;
    from->wait_count = 0;
}

/* The time line of one capture says nothing about another's. */
static int end_gpu(gpu *g)
{
    const bool was = g->running;
    g->running = false;
    g->cursor = g->covered = g->end = 0;
    return was ? PP_PAIRING_STOP : PP_PAIRING_NONE;
}

/* The first item's event for one GPU. */
static int gpu_event(pp_kernels *k, item *i, pp_error *err)
{
    if (!k->whole)
        return end_gpu(k->of);
    if (!k->on || !k->of->seen)
        return PP_PAIRING_NONE;
    if (turn(k, &i->step, err) < 0)
        return -1;
    if (!k->of->running) {
        k->of->running = true;
        return PP_PAIRING_START;
    }
    take_waits(k, &i->step);
    k->step.first = !k->told;
    k->told = true;
    return PP_PAIRING_STEP;
}

static int begin_item(pp_kernels *k, item *i, pp_error *err)
{
    k->in_item = true;
    k->told = false;
    k->next = 0;
    k->step.at = i->step.at;
    k->launched = 0;
    k->whole = i->event == PP_PAIRING_STEP && all_here(k, i);
    if (!k->whole) {
        k->missing.steps += i->event == PP_PAIRING_STEP && !i->step.dwell;
        k->on = i->event == PP_PAIRING_START;
        return 0;
    }
    if (i->step.start < k->since) {
        k->on = true; /* the step after it may be the first */
        k->next = PP_RING_DEVICES;
        return 0;
    }
    k->launched = launched_before(k, i->step.end);
    k->passed = i->step.end;
    if (k->on && !see_gpus(k, i->step.start))
        k->whole = k->on = false; /* the capture ends here */
    return find_gpus(k, &i->step, err);
}

static void end_item(pp_kernels *k)
{
    if (!k->whole)
        forget_gpus(k);
    k->head += k->launched;
    drop_first_item(k);
    k->in_item = false;
}

/* Whether the first item is anything to a GPU that comes later. */
static bool goes_on(const pp_kernels *k)
{
    for (unsigned i = k->next; i < PP_RING_DEVICES; i++)
        if (k->whole ? k->on && k->gpus[i].seen : k->gpus[i].running)
            return true;
    return false;
}

/* What the first item is to each GPU in turn. */
static int item_event(pp_kernels *k, pp_error *err)
{
    item *i = &k->items[k->first];
    int event = PP_PAIRING_NONE;
    if (!k->in_item && begin_item(k, i, err) < 0)
        return -1;
    while (event == PP_PAIRING_NONE && k->next < PP_RING_DEVICES) {
        k->step.gpu = (uint8_t)k->next;
        k->of = &k->gpus[k->next++];
        event = gpu_event(k, i, err);
    }
    if (event >= 0 && !goes_on(k))
        end_item(k);
    return event;
}

/* A capture that was broken ends on each GPU that had one. */
static int due_event(pp_kernels *k)
{
    for (unsigned i = 0; i < PP_RING_DEVICES; i++)
        if (k->gpus[i].stop_due) {
            k->gpus[i].stop_due = false;
            k->step.gpu = (uint8_t)i;
            return PP_PAIRING_STOP;
        }
    return PP_PAIRING_NONE;
}

int pp_kernels_next(pp_kernels *k, const pp_step **ret_step, pp_error *err)
{
    *ret_step = &k->step;
    int event = due_event(k);
    while (event == PP_PAIRING_NONE && k->items_count > 0 &&
           (k->in_item || ready(k, &k->items[k->first])))
        event = item_event(k, err);
    return event;
}
