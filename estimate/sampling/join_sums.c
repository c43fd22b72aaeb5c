/* Columns, and the sums of windows over them. */
#include "common/array.h"
#include "common/cleanup.h"
#include "common/draw.h"
#include "estimate/sampling/join_internal.h"

#include <math.h>
#include <string.h>
#include <uthash.h>

enum {
    PARTS_MAX = 48, /* of a kernel, between those near its ends: longer ones have longer parts */
    SEGMENTS_MAX = 4000000,
    ACTIVE_MAX = 256, /* segments of one window */
    HELD_STEPS = 8,   /* of so many steps one is held out */
    STEPS_AT_ONCE = 16,
};

/* Of a column or an item that captures before did not have. */
#define UNKNOWN UINT32_MAX
/* ns: by more a kernel is not cut any less. */
#define UNIT_MAX 1e9
/* Of a window, at least: it is an item's. */
#define OWNER 0.75
/* ns about a sample in which no kernel ran, either: what one leaves behind lasts some us. */
#define GAP_MARGIN 3000

/* No column: of a kernel that is not like those of the other steps, and the gap behind it. */
#define ODD UINT32_MAX

/* GHz: how much slower the clock is in samples of a kernel behind which it is looked at, and the ns
 * in which it recovers: 5 to 15 us on an H200 (docs/sampling.md). */
#define SLOW 0.05
#define RECOVERS 10000

/* ns: the last part of a gap so long, before the next kernel, is one of its own: half of it, and at
 * most so much. What runs without a record is mostly what the host launched right before. */
#define LONG_GAP 10000
#define LAST 15000

/* Without that part nothing is lost; without its own column a copy's neighbours are: room is left
 * for these. */
#define LAST_COLUMNS_MAX (PP_SAMPLING_MAX_COLUMNS / 4 * 3)

enum { COPIES = PP_SAMPLING_COPY_PARTS * (PP_SAMPLING_COPY_ACROSS + 1) };

/* A kernel of a layer, and the gap behind it: parts + 1 columns from `first` on. */
typedef struct place {
    UT_hash_handle hh;
    struct {
        uint32_t layer, kernel;
        uint32_t phase;
    } of;
    double time; /* ns of all of these */
    uint64_t like;
    uint32_t count;
    uint32_t first, parts;
    double slower;           /* GHz by which samples of it tell a slower clock, times ns */
    uint32_t in_gap[COPIES]; /* columns of what the gap has, by part, but of its part 0; 0: none
                                yet */
    double *cuts;            /* parts + 1, as shares of the kernel's time */
} place;

/* Sums of x x' of a column with those that are not before it. */
typedef struct row {
    pp_sampling_pair *pairs;
    size_t n, capacity;
} row;

/* Time that belongs to one column. */
typedef struct segment {
    int64_t start, end;
    uint32_t column;
    uint32_t step; /* its number, modulo 2^32 */
} segment;

/* The steps that run; more do not at once. */
typedef struct steps {
    int64_t number[STEPS_AT_ONCE];
    int64_t begun[STEPS_AT_ONCE];
} steps;

/* What the samples that are an item's are off by: share times sample less prediction, summed up. */
typedef struct off {
    uint32_t step;
    bool some;                           /* it ran in that step */
    double steps;                        /* in so many before */
    double squares;                      /* sum of its share of a sample, squared */
    double of_step[PP_SAMPLING_METRICS]; /* of that step */
    double rest[PP_SAMPLING_METRICS];    /* of those before */
    double spread[PP_SAMPLING_METRICS];  /* their squares: a step's samples go along */
} off;

typedef struct summing {
    const pp_sampling *sampling;
    const pp_sampling_result *known; /* NULL: nothing yet */
    uint32_t *known_column;          /* of each column, there; UNKNOWN */
    uint32_t *known_item;
    off *off;                                   /* of each item of `known` */
    uint64_t salt, held_most;                   /* steps whose draw is at most that are held out */
    const segment *gap;                         /* that samples fall into now */
    double gap_n, gap_sum[PP_SAMPLING_METRICS]; /* how many, and their sums */
    uint32_t *numbers;                          /* of its kernels */
    double unit;                                /* ns: the period that kernels are cut by */
    place *places;
    pp_sampling_sums *sums;
    size_t columns_max;
    row *rows; /* one for each column */
    size_t rows_max;
    segment *segments;
    size_t n_segments, segments_max;
    size_t copy; /* the next */
} summing;

/* ---- columns ---- */

/* Where a kernel is cut near its ends, in 25ths of the sampling period: it rises within a
 * microsecond, and what runs out at its end takes longer. */
static const double edges[] = {1, 3, 6, 10, 16, 23, 31, 40};
enum { EDGES = sizeof edges / sizeof *edges };

/* Where the parts of a kernel of `length` ns are cut, as shares of it; returns how many parts. */
static uint32_t cut_kernel(double length, double period, double *cuts)
{
    double unit = period / 25;
    uint32_t n = 0;
    uint32_t ends = 0;
    while (ends < EDGES && edges[ends] * unit <= length / 2)
        ends++;
    double edge = ends ? edges[ends - 1] * unit : 0;
    double inner = length - 2 * edge;
    uint32_t middle =
        ends < EDGES ? (inner > unit / 2) : (uint32_t)fmin(PARTS_MAX, 1 + inner / period);
    cuts[0] = 0;
    for (uint32_t i = 0; i < ends; i++)
        cuts[++n] = edges[i] * unit / length;
    for (uint32_t i = 1; i <= middle; i++)
        cuts[++n] = (edge + inner * i / middle) / length;
    for (uint32_t i = ends; i-- > 0;)
        cuts[++n] = 1 - (i ? edges[i - 1] * unit / length : 0);
    if (n == 0)
        n = 1;
    cuts[n] = 1;
    return n;
}

static int make_room(summing *s, size_t more, pp_error *err)
{
    pp_sampling_sums *to = s->sums;
    const size_t needed = to->n + more;
    if (needed > PP_SAMPLING_MAX_COLUMNS)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "kernels of a step need more than %d columns",
                            PP_SAMPLING_MAX_COLUMNS);
    if (pp_array_reserve(&to->columns, &s->columns_max, needed, sizeof *to->columns, err) < 0)
        return -1;
    return pp_array_reserve(&s->rows, &s->rows_max, needed, sizeof *s->rows, err);
}

static int add_columns(summing *s, const place *p, pp_error *err)
{
    pp_sampling_sums *to = s->sums;
    if (make_room(s, p->parts + 1, err) < 0)
        return -1;
    for (uint32_t i = 0; i <= p->parts; i++) {
        bool gap = i == p->parts;
        s->rows[to->n] = (row){0};
        to->columns[to->n++] =
            (pp_sampling_column){.key = {.layer = p->of.layer,
                                         .kernel = p->of.kernel,
                                         .part = gap ? 0 : pp_sampling_part(i, p->parts),
                                         .phase = (uint8_t)p->of.phase,
                                         .gap = gap},
                                 .like = gap ? 0 : p->like};
    }
    return 0;
}

static place *new_place(summing *s, const place *like, pp_error *err)
{
    place *p = malloc(sizeof *p);
    if (!p) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    *p = *like;
    HASH_ADD(hh, s->places, of, sizeof p->of, p);
    return p;
}

/* By its mean length: it is the same one in all steps, and its first may be a long one. */
static int cut_place(summing *s, place *p, pp_error *err)
{
    double cuts[PARTS_MAX + 2 * EDGES + 1];
    p->first = (uint32_t)s->sums->n;
    p->parts = cut_kernel(p->time / p->count, s->unit, cuts);
    p->cuts = malloc((p->parts + 1) * sizeof *p->cuts);
    if (!p->cuts)
        return pp_error_nomem(err);
    memcpy(p->cuts, cuts, (p->parts + 1) * sizeof *p->cuts);
    return add_columns(s, p, err);
}

static size_t count_columns(const summing *s, double unit)
{
    double cuts[PARTS_MAX + 2 * EDGES + 1];
    size_t n = 0;
    for (const place *p = s->places; p; p = p->hh.next)
        n += cut_kernel(p->time / p->count, unit, cuts) + 1;
    return n;
}

/* By the sampling period; the kernels of a long step into fewer parts each, as many as there is
 * room for. */
static int cut_places(summing *s, pp_error *err)
{
    s->unit = (double)s->sampling->period;
    while (count_columns(s, s->unit) > PP_SAMPLING_MAX_COLUMNS && s->unit < UNIT_MAX)
        s->unit *= 2;
    for (place *p = s->places; p; p = p->hh.next)
        if (cut_place(s, p, err) < 0)
            return -1;
    return 0;
}

/* NULL, without an error, where there is none yet. */
static place *find_place(const summing *s, size_t kernel, place *like)
{
    place *found = NULL;
    const pp_sampling_kernel *k = &s->sampling->kernels[kernel];
    memset(like, 0, sizeof *like); /* its padding is part of the key */
    like->of.layer = k->layer;
    like->of.phase = k->phase;
    like->of.kernel = s->numbers[kernel];
    HASH_FIND(hh, s->places, &like->of, sizeof like->of, found);
    return found;
}

/* All kernels that there are, in order of their first. */
static int make_places(summing *s, const pp_sampling_line *line, pp_error *err)
{
    const pp_sampling *f = s->sampling;
    s->numbers = malloc((f->n_kernels + 1) * sizeof *s->numbers);
    PP_CLEANUP_FREE double *slower = malloc((f->n_kernels + 1) * sizeof *slower);
    if (!s->numbers || !slower)
        return pp_error_nomem(err);
    pp_sampling_find_slower(f, line, slower);
    if (pp_sampling_number(f, s->numbers, NULL, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < f->n_kernels; i++) {
        if (s->numbers[i] == PP_SAMPLING_ODD)
            continue;
        place like;
        place *p = find_place(s, i, &like);
        like.like = f->kernels[i].like;
        p = p ? p : new_place(s, &like, err);
        if (!p)
            return -1;
        p->time += (double)(f->kernels[i].end - f->kernels[i].start);
        p->count++;
        p->slower += slower[i];
        p->like = p->like == f->kernels[i].like ? p->like : 0;
    }
    return cut_places(s, err);
}

/* ---- segments ---- */

/* When a step's first kernel began. They come in order of time, those of some steps mixed. */
static int64_t begin_of(steps *s, const pp_sampling_kernel *k)
{
    const size_t at = (uint64_t)k->step % STEPS_AT_ONCE;
    if (s->number[at] != k->step) {
        s->number[at] = k->step;
        s->begun[at] = k->start;
    }
    return s->begun[at];
}

static uint64_t draw_of(const summing *s, uint32_t step)
{
    return pp_draw(s->salt + step);
}

/* One step in so many, drawn for each capture anew, so that no rhythm of the training's falls into
 * step with it; where a capture has so many steps, one at least. */
static bool is_held(const summing *s, uint32_t step)
{
    return draw_of(s, step) <= s->held_most;
}

static void choose_held(summing *s)
{
    const pp_sampling *f = s->sampling;
    const uint32_t first = (uint32_t)f->kernels[0].step;
    uint32_t last = first;
    uint64_t least = UINT64_MAX;
    s->salt = pp_draw((uint64_t)f->kernels[0].step ^ (uint64_t)f->n_kernels << 32);
    for (size_t i = 0; i < f->n_kernels; i++) {
        last = (uint32_t)f->kernels[i].step;
        least = draw_of(s, last) < least ? draw_of(s, last) : least;
    }
    s->held_most = UINT64_MAX / HELD_STEPS;
    if (last - first + 1 >= HELD_STEPS && least > s->held_most)
        s->held_most = least;
}

static int add_segment(summing *s, int64_t start, int64_t end, uint32_t column, int64_t step,
                       int64_t begun, pp_error *err)
{
    if (end <= start)
        return 0;
    if (s->n_segments == SEGMENTS_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a capture of more than %d parts of kernels",
                            SEGMENTS_MAX);
    if (pp_array_reserve(&s->segments, &s->segments_max, s->n_segments + 1, sizeof *s->segments,
                         err) < 0)
        return -1;
    s->segments[s->n_segments++] = (segment){start, end, column, (uint32_t)step};
    if (column == ODD)
        return 0;
    pp_sampling_column *c = &s->sums->columns[column];
    c->count++;
    c->time += (double)(end - start);
    c->place += (double)(start - begun);
    return 0;
}

static int add_kernel(summing *s, size_t kernel, int64_t begun, place **ret_place, pp_error *err)
{
    const pp_sampling_kernel *k = &s->sampling->kernels[kernel];
    place like;
    const place *p = *ret_place = find_place(s, kernel, &like);
    if (!p)
        return add_segment(s, k->start, k->end, ODD, k->step, begun, err);
    double length = (double)(k->end - k->start);
    int64_t from = k->start;
    for (uint32_t i = 0; i < p->parts; i++) {
        int64_t to = i + 1 == p->parts ? k->end : k->start + (int64_t)(p->cuts[i + 1] * length);
        if (add_segment(s, from, to, p->first + i, k->step, begun, err) < 0)
            return -1;
        from = to;
    }
    return 0;
}

/* The column of what runs in the gap behind a kernel; that of a copy comes to be with the first, as
 * long as there is room: what is left without one tells nothing. */
static int gap_column(summing *s, place *p, uint16_t part, uint32_t *ret, pp_error *err)
{
    pp_sampling_sums *to = s->sums;
    *ret = !p ? ODD : part == 0 ? p->first + p->parts : p->in_gap[part];
    if (*ret != 0)
        return 0;
    if (to->n >= PP_SAMPLING_MAX_COLUMNS) {
        *ret = ODD;
        return 0;
    }
    if (make_room(s, 1, err) < 0)
        return -1;
    *ret = p->in_gap[part] = (uint32_t)to->n;
    s->rows[to->n] = (row){0};
    to->columns[to->n++] = (pp_sampling_column){.key = {.layer = p->of.layer,
                                                        .kernel = p->of.kernel,
                                                        .part = part,
                                                        .phase = (uint8_t)p->of.phase,
                                                        .gap = true}};
    return 0;
}

/* Cut at the first two of the edges; a short one has no middle, or less. */
static int add_copy(summing *s, place *p, const pp_sampling_kernel *c, int64_t step, int64_t begun,
                    pp_error *err)
{
    const double unit = (double)s->sampling->period / 25;
    const int64_t half = (c->end - c->start) / 2;
    const int64_t one = (int64_t)fmin(edges[0] * unit, (double)half);
    const int64_t other = (int64_t)fmin(edges[1] * unit, (double)half);
    const int64_t at[] = {c->start,       c->start + one, c->start + other,
                          c->end - other, c->end - one,   c->end};
    for (int i = 0; i < PP_SAMPLING_COPY_PARTS; i++) {
        uint32_t column;
        if (at[i + 1] <= at[i])
            continue;
        if (gap_column(s, p, (uint16_t)(PP_SAMPLING_COPY_PARTS * c->work % COPIES + i), &column,
                       err) < 0 ||
            add_segment(s, at[i], at[i + 1], column, step, begun, err) < 0)
            return -1;
    }
    return 0;
}

/* The time in which the clock recovers from a kernel, as long as there is room for its column: it
 * would be the kernel's own else, and its clock too slow. *start: where it ends. */
static int add_recovery(summing *s, place *p, int64_t *start, int64_t end, int64_t step,
                        int64_t begun, pp_error *err)
{
    uint32_t column;
    if (!p || p->slower < SLOW * p->time || end - *start < 2 * RECOVERS ||
        (p->in_gap[PP_SAMPLING_RECOVERY] == 0 && s->sums->n >= PP_SAMPLING_MAX_COLUMNS))
        return 0;
    if (gap_column(s, p, PP_SAMPLING_RECOVERY, &column, err) < 0 ||
        add_segment(s, *start, *start + RECOVERS, column, step, begun, err) < 0)
        return -1;
    *start += RECOVERS;
    return 0;
}

/* What is left of a gap, column `gap`. */
static int add_rest(summing *s, place *p, int64_t start, int64_t end, uint32_t gap, int64_t step,
                    int64_t begun, pp_error *err)
{
    uint32_t last = gap;
    const bool room = p && (p->in_gap[PP_SAMPLING_LAST] != 0 || s->sums->n < LAST_COLUMNS_MAX);
    if (room && end - start >= LONG_GAP && gap_column(s, p, PP_SAMPLING_LAST, &last, err) < 0)
        return -1;
    const int64_t half = (end - start) / 2;
    const int64_t at = last == gap ? end : end - (half < LAST ? half : LAST);
    if (add_segment(s, start, at, gap, step, begun, err) < 0)
        return -1;
    return add_segment(s, at, end, last, step, begun, err);
}

/* A gap behind a kernel, and the copies and fills in it, which lie in gaps as a whole. */
static int add_gap(summing *s, place *p, int64_t start, int64_t end, int64_t step, int64_t begun,
                   pp_error *err)
{
    const pp_sampling *f = s->sampling;
    uint32_t gap;
    const int64_t next = s->copy < f->n_copies ? f->copies[s->copy].start : end;
    if (gap_column(s, p, 0, &gap, err) < 0 ||
        add_recovery(s, p, &start, next < end ? next : end, step, begun, err) < 0)
        return -1;
    for (; s->copy < f->n_copies && f->copies[s->copy].start < end; s->copy++) {
        const pp_sampling_kernel *c = &f->copies[s->copy];
        if (c->start < start)
            continue; /* before all kernels */
        if (add_segment(s, start, c->start, gap, step, begun, err) < 0 ||
            add_copy(s, p, c, step, begun, err) < 0)
            return -1;
        start = c->end;
    }
    return add_rest(s, p, start, end, gap, step, begun, err);
}

/* All kernels' parts, and behind each that nothing runs beside the gap to the next. */
static int make_segments(summing *s, pp_error *err)
{
    const pp_sampling *f = s->sampling;
    const pp_sampling_kernel *last = &f->kernels[0]; /* the one that ends last of those before */
    int64_t last_begun = last->start;
    place *of_gap = NULL, *of_kernel;
    steps at = {0};
    for (size_t i = 0; i < STEPS_AT_ONCE; i++)
        at.number[i] = INT64_MIN;
    for (size_t i = 0; i < f->n_kernels; i++) {
        const pp_sampling_kernel *k = &f->kernels[i];
        const int64_t begun = begin_of(&at, k);
        if (k->step > last->step + 1)
            of_gap = NULL; /* the kernels of steps between are missing: it is no gap */
        if (i > 0 && k->start > last->end &&
            add_gap(s, of_gap, last->end, k->start, last->step, last_begun, err) < 0)
            return -1;
        if (add_kernel(s, i, begun, &of_kernel, err) < 0)
            return -1;
        if (i == 0 || k->end > last->end) {
            last = k;
            last_begun = begun;
            of_gap = of_kernel;
        }
    }
    return 0;
}

static int compare_segments(const void *a, const void *b)
{
    const segment *x = a;
    const segment *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

/* ---- windows ---- */

typedef struct window {
    uint32_t columns[ACTIVE_MAX];
    double shares[ACTIVE_MAX];
    double shifts[ACTIVE_MAX]; /* what each takes more where the window lies 1 ns later */
    size_t n;
    uint32_t step;       /* of what it meets first */
    const segment *last; /* that it meets, of one gap; NULL: it meets others too */
} window;

/* Of two columns of a window, by their places in it; the first's is not the larger one. */
static int add_product(summing *s, const window *w, size_t i, size_t j, pp_error *err)
{
    const pp_sampling_pair more = {.a = w->columns[i],
                                   .b = w->columns[j],
                                   .sum = w->shares[i] * w->shares[j],
                                   .shift_a = w->shares[i] * w->shifts[j],
                                   .shift_b = i == j ? 0 : w->shares[j] * w->shifts[i]};
    row *r = &s->rows[more.a];
    for (size_t k = r->n; k-- > 0;)
        if (r->pairs[k].b == more.b) {
            pp_sampling_pair_add(&r->pairs[k], &more);
            return 0;
        }
    if (r->n == r->capacity) {
        size_t capacity = r->capacity * 2 + 8;
        pp_sampling_pair *grown = realloc(r->pairs, capacity * sizeof *grown);
        if (!grown)
            return pp_error_nomem(err);
        r->pairs = grown;
        r->capacity = capacity;
    }
    r->pairs[r->n++] = more;
    return 0;
}

static void hold_window(pp_sampling_sums *to, const window *w, const pp_sampling_sample *sample)
{
    for (size_t i = 0; i < w->n; i++)
        to->columns[w->columns[i]].held += w->shares[i];
    for (int m = 0; m < PP_SAMPLING_METRICS; m++)
        if (to->known[m])
            to->held_y[m] += (double)sample->values[m];
    to->held_windows++;
}

/* ---- what others say of a window ---- */

static int compare_keys(const void *a, const void *b)
{
    return pp_sampling_key_compare(a, b);
}

static uint32_t item_of(const pp_sampling_result *r, const pp_sampling_key *key)
{
    size_t low = 0, high = r->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const pp_sampling_item *at = &r->items[middle];
        if (at->layer < key->layer || (at->layer == key->layer && at->phase < key->phase))
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n && r->items[low].layer == key->layer && r->items[low].phase == key->phase
               ? (uint32_t)low
               : UNKNOWN;
}

/* Where the capture's columns are in what is known. */
static int find_known(summing *s, pp_error *err)
{
    const pp_sampling_result *r = s->known;
    if (!r)
        return 0;
    s->known_column = malloc((s->sums->n + 1) * sizeof *s->known_column);
    s->known_item = malloc((s->sums->n + 1) * sizeof *s->known_item);
    s->off = calloc(r->n + 1, sizeof *s->off);
    if (!s->known_column || !s->known_item || !s->off)
        return pp_error_nomem(err);
    for (size_t i = 0; i < s->sums->n; i++) {
        const pp_sampling_key *key = &s->sums->columns[i].key;
        const pp_sampling_key *at =
            r->n_columns ? bsearch(key, r->keys, r->n_columns, sizeof *r->keys, compare_keys)
                         : NULL;
        s->known_column[i] = at ? (uint32_t)(at - r->keys) : UNKNOWN;
        s->known_item[i] = key->gap ? UNKNOWN : item_of(r, key);
    }
    return 0;
}

static void end_step(off *o, uint32_t next)
{
    for (int m = 0; m < PP_SAMPLING_METRICS && o->some; m++) {
        o->rest[m] += o->of_step[m];
        o->spread[m] += o->of_step[m] * o->of_step[m];
        o->of_step[m] = 0;
    }
    o->steps += o->some;
    o->some = false;
    o->step = next;
}

static double share_of(const summing *s, const window *w, uint32_t item)
{
    double share = 0;
    for (size_t i = 0; i < w->n; i++)
        share += s->known_item[w->columns[i]] == item ? w->shares[i] : 0;
    return share;
}

/* The item that most of a window is of, with its share; UNKNOWN: none, or another runs beside it.
 * What a window is off by says little of items that have less of it: their neighbours' errors are
 * larger. */
static uint32_t owner_of(const summing *s, const window *w, double *ret_share)
{
    uint32_t owner = UNKNOWN;
    for (size_t i = 0; i < w->n; i++) {
        const uint32_t item = s->known_item[w->columns[i]];
        const double share = item == UNKNOWN || item == owner ? 0 : share_of(s, w, item);
        if (share > 1 - OWNER && share < OWNER)
            return UNKNOWN;
        if (share >= OWNER && owner != UNKNOWN)
            return UNKNOWN;
        if (share >= OWNER) {
            owner = item;
            *ret_share = share;
        }
    }
    return owner;
}

/* What a sample is off by; NaN where it is not known. */
static double predict_metric(summing *s, const window *w, double y, int m)
{
    const double *values = s->known->values[m];
    pp_sampling_predicted *to = &s->sums->predicted[m];
    double e = y;
    for (size_t i = 0; i < w->n; i++)
        e -= w->shares[i] * values[s->known_column[w->columns[i]]];
    if (!isfinite(e))
        return (double)NAN;
    to->n++;
    to->y += y;
    to->yy += y * y;
    to->rest += e * e;
    return e;
}

static void predict_window(summing *s, const window *w, const pp_sampling_sample *sample)
{
    for (size_t i = 0; i < w->n; i++)
        if (s->known_column[w->columns[i]] == UNKNOWN)
            return;
    double share;
    const uint32_t owner = owner_of(s, w, &share);
    off *o = owner == UNKNOWN ? NULL : &s->off[owner];
    if (o && o->step != w->step)
        end_step(o, w->step);
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        const double e =
            s->sums->known[m] ? predict_metric(s, w, (double)sample->values[m], m) : (double)NAN;
        if (o && isfinite(e))
            o->of_step[m] += share * e;
    }
    if (o) {
        o->some = true;
        o->squares += share * share;
    }
}

/* Samples of one gap go along: it counts once. */
static void end_gap(summing *s)
{
    for (int m = 0; m < PP_SAMPLING_METRICS && s->gap_n > 0; m++) {
        pp_sampling_predicted *to = &s->sums->predicted[m];
        const double y = s->gap_sum[m], n = s->gap_n;
        s->gap_sum[m] = 0;
        if (!s->sums->known[m])
            continue;
        to->gaps++;
        to->gap_samples += n;
        to->gap_y += y;
        to->gap_yy += y * y;
        to->gap_yn += y * n;
        to->gap_nn += n * n;
    }
    s->gap_n = 0;
}

/* Whether nothing runs in a segment, and the clock is not what a kernel leaves. */
static bool is_empty(const summing *s, const segment *g)
{
    if (g->column == ODD)
        return false;
    const pp_sampling_key *key = &s->sums->columns[g->column].key;
    return key->gap && (key->part == 0 || key->part == PP_SAMPLING_LAST);
}

/* Where the gap begins that a segment is the last part of. */
static const segment *first_part(const summing *s, const segment *g)
{
    const bool follows = g > s->segments && g[-1].end == g->start && is_empty(s, g - 1);
    return follows ? g - 1 : g;
}

/* A sample of a gap, and the time about it too. */
static void take_gap(summing *s, const window *w, int64_t start, int64_t end,
                     const pp_sampling_sample *sample)
{
    if (!w->last || !is_empty(s, w->last))
        return;
    const segment *g = first_part(s, w->last);
    const segment *next = w->last + 1;
    const bool more =
        next < s->segments + s->n_segments && first_part(s, next) == w->last && is_empty(s, next);
    if (g->start > start - GAP_MARGIN || (more ? next : w->last)->end < end + GAP_MARGIN)
        return;
    if (g != s->gap)
        end_gap(s);
    s->gap = g;
    s->gap_n++;
    for (int m = 0; m < PP_SAMPLING_METRICS; m++)
        s->gap_sum[m] += s->sums->known[m] ? (double)sample->values[m] : 0;
}

/* What an item's share is to be multiplied by to be as the samples are. */
static double rate_of(const summing *s, const pp_sampling_item *item, int m)
{
    const bool rates = s->sums->known[PP_SAMPLING_CLOCK] && pp_sampling_is_of_cycles(m);
    return rates ? item->mean[PP_SAMPLING_CLOCK] / PP_SAMPLING_RATED_GHZ : 1;
}

/* Variance of what an item may be off by in this capture, if captures do not differ: as its
 * standard error says, as this one's lag is known, and as its samples of a step, which go along,
 * scatter. */
static double allowed(const pp_sampling_item *item, const off *o, int m, double lag_stderr,
                      double rate)
{
    const double se = item->stderr_of[m], shifted_by = item->per_ns[m] * lag_stderr;
    const double about = (o->spread[m] - o->rest[m] * o->rest[m] / o->steps) / (rate * rate);
    return se * se + shifted_by * shifted_by +
           about * o->steps / (o->steps - 1) / (o->squares * o->squares);
}

/* By item: the mean that its samples are off by, over what that may be. By how much captures differ
 * is known in the end. */
static void judge_items(summing *s, double lag_stderr)
{
    for (size_t i = 0; s->known && i < s->known->n; i++) {
        off *o = &s->off[i];
        const pp_sampling_item *item = &s->known->items[i];
        end_step(o, 0);
        for (int m = 0; m < PP_SAMPLING_METRICS && o->steps >= 2; m++) {
            const double rate = rate_of(s, item, m);
            const double miss = o->rest[m] / o->squares / rate;
            const double variance = allowed(item, o, m, lag_stderr, rate);
            if (!s->sums->known[m] || !isfinite(miss * miss / variance))
                continue;
            s->sums->predicted[m].items++;
            s->sums->predicted[m].z2 += miss * miss / variance;
            s->sums->predicted[m].squares += item->mean[m] * item->mean[m] / variance;
        }
    }
}

static int take_window(summing *s, const window *w, const pp_sampling_sample *sample, pp_error *err)
{
    pp_sampling_sums *to = s->sums;
    if (is_held(s, w->step)) {
        hold_window(to, w, sample);
        return 0;
    }
    for (size_t i = 0; i < w->n; i++) {
        pp_sampling_column *c = &to->columns[w->columns[i]];
        c->share += w->shares[i];
        for (int m = 0; m < PP_SAMPLING_METRICS; m++)
            if (to->known[m])
                c->rhs[m] += w->shares[i] * (double)sample->values[m];
        for (size_t j = 0; j < w->n; j++)
            if (w->columns[j] >= w->columns[i] && add_product(s, w, i, j, err) < 0)
                return -1;
    }
    for (int m = 0; m < PP_SAMPLING_METRICS; m++) {
        double y = to->known[m] ? (double)sample->values[m] : 0;
        to->y[m] += y;
        to->yy[m] += y * y;
    }
    to->windows++;
    return 0;
}

/* A column comes twice where two kernels of the same place touch one window. */
static void add_share(window *w, uint32_t column, double share, double shift)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->columns[i] == column) {
            w->shares[i] += share;
            w->shifts[i] += shift;
            return;
        }
    w->columns[w->n] = column;
    w->shares[w->n] = share;
    w->shifts[w->n++] = shift;
}

/* The segments that are open as the sweep goes along. */
typedef struct sweep {
    size_t next;
    const segment *open[ACTIVE_MAX];
    size_t n;
    int64_t blind; /* until then some are missing, for want of room */
} sweep;

/* False where a window meets more segments than are kept, or what has no column: it tells nothing
 * then. */
static bool fill_window(const summing *s, sweep *at, int64_t start, int64_t end, window *w)
{
    size_t kept = 0;
    bool odd = false;
    for (; at->next < s->n_segments && s->segments[at->next].start < end; at->next++) {
        const segment *g = &s->segments[at->next];
        if (g->end > start && at->n < ACTIVE_MAX)
            at->open[at->n++] = g;
        else if (g->end > start && g->end > at->blind)
            at->blind = g->end;
    }
    w->n = 0;
    w->step = 0;
    w->last = at->n == 1 || (at->n == 2 && first_part(s, at->open[1]) == at->open[0])
                  ? at->open[at->n - 1]
                  : NULL;
    for (size_t i = 0; i < at->n; i++) {
        const segment *g = at->open[i];
        int64_t from = g->start > start ? g->start : start;
        int64_t to = g->end < end ? g->end : end;
        odd = odd || (to > from && g->column == ODD);
        if (to > from)
            add_share(w, g->column, (double)(to - from) / (double)(end - start),
                      ((g->end >= end) - (g->start <= start)) / (double)(end - start));
        w->step = w->n == 1 ? g->step : w->step;
        if (g->end > end)
            at->open[kept++] = g;
    }
    at->n = kept;
    return start >= at->blind && !odd;
}

/* ns: by how much this capture's lag may be off from those that values are known by. What all are
 * off by alike is none of it, but where one goes by stamps and the others do not; and where less is
 * known of one than of the others, that. */
static double lag_differs_by(const summing *s, const pp_sampling_line *line)
{
    if (!s->known)
        return line->stderr_ns;
    const double mine = line->common_ns * line->common_ns;
    const double theirs = s->known->lag_common * s->known->lag_common;
    const double apart = s->known->stamped != line->stamped ? mine + theirs : fabs(mine - theirs);
    return sqrt(line->stderr_ns * line->stderr_ns + apart);
}

static int take_windows(summing *s, const pp_sampling_line *line, pp_error *err)
{
    const pp_sampling *f = s->sampling;
    sweep at = {.blind = INT64_MIN};
    window w;
    int64_t last = f->kernels[0].start;
    int64_t end_of_all = 0;
    for (size_t i = 0; i < f->n_kernels; i++)
        end_of_all = f->kernels[i].end > end_of_all ? f->kernels[i].end : end_of_all;
    for (size_t i = 0; i < f->n_samples; i++) {
        int64_t start = pp_sampling_shifted(line, f->samples[i].start);
        int64_t end = pp_sampling_shifted(line, f->samples[i].end);
        if (start < last - f->sampled / 2 || end > end_of_all)
            continue; /* outside; two that touch may overlap by what their clocks tell */
        last = end;
        if (!fill_window(s, &at, start, end, &w) ||
            !pp_sampling_has_known(s->sums->known, &f->samples[i]))
            continue;
        take_gap(s, &w, start, end, &f->samples[i]);
        if (s->known)
            predict_window(s, &w, &f->samples[i]);
        if (take_window(s, &w, &f->samples[i], err) < 0)
            return -1;
    }
    end_gap(s);
    judge_items(s, lag_differs_by(s, line));
    return 0;
}

/* ---- out ---- */

static int gather_pairs(summing *s, pp_error *err)
{
    pp_sampling_sums *to = s->sums;
    size_t n = 0;
    for (size_t i = 0; s->rows && i < to->n; i++)
        n += s->rows[i].n;
    to->pairs = malloc((n + 1) * sizeof *to->pairs);
    if (!to->pairs)
        return pp_error_nomem(err);
    for (size_t i = 0; s->rows && i < to->n; i++) {
        if (s->rows[i].n)
            memcpy(to->pairs + to->n_pairs, s->rows[i].pairs, s->rows[i].n * sizeof *to->pairs);
        to->n_pairs += s->rows[i].n;
    }
    if (n > 1)
        qsort(to->pairs, n, sizeof *to->pairs, pp_sampling_pair_compare);
    return 0;
}

static void free_summing(summing *s)
{
    place *p, *next_place;
    HASH_ITER(hh, s->places, p, next_place)
    {
        HASH_DEL(s->places, p);
        free(p->cuts);
        free(p);
    }
    for (size_t i = 0; s->rows && i < s->sums->n; i++)
        free(s->rows[i].pairs);
    free(s->rows);
    free(s->segments);
    free(s->numbers);
    free(s->known_column);
    free(s->known_item);
    free(s->off);
}

int pp_sampling_sum(const pp_sampling *f, const pp_sampling_line *line,
                    const pp_sampling_result *known, pp_sampling_sums **ret, pp_error *err)
{
    summing s = {.sampling = f, .known = known, .sums = calloc(1, sizeof *s.sums)};
    if (!s.sums)
        return pp_error_nomem(err);
    s.sums->captures = 1;
    s.sums->lag = (int64_t)line->lag;
    s.sums->lag_stderr = (int64_t)line->stderr_ns;
    s.sums->lag_common = (int64_t)line->common_ns;
    s.sums->stamped = line->stamped;
    pp_sampling_find_known(f, s.sums->known);
    int rc = make_places(&s, line, err);
    if (rc == 0)
        rc = make_segments(&s, err);
    if (rc == 0)
        rc = find_known(&s, err);
    if (rc == 0 && s.n_segments > 0) {
        qsort(s.segments, s.n_segments, sizeof *s.segments, compare_segments);
        choose_held(&s);
        rc = take_windows(&s, line, err);
    }
    if (rc == 0)
        rc = gather_pairs(&s, err);
    free_summing(&s);
    if (rc < 0)
        pp_sampling_sums_free(s.sums);
    else
        *ret = s.sums;
    return rc;
}
