/*
 * The attribution problem of one GPU out of a pod's activity: which processes used it, which time
 * was observed of all of them, which steps and intervals lie in it.
 */
#include "estimate/problem/problem.h"

#include "common/wire.h"
#include "estimate/activity/apart.h"
#include "estimate/activity/spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pp_problem_done(pp_problem *p)
{
    free(p->items);
    free(p->names);
    free(p->intervals);
    free(p->cells);
    free(p->steps);
    free(p->observed);
    free(p->samples);
    free(p->all_samples);
    pp_replay_runs_done(&p->dwells);
    pp_counted_steps_done(&p->counted);
    memset(p, 0, sizeof(*p));
}

/* n elements of an array that may be empty. */
static int allocate(void *array, size_t n, size_t size, pp_error *err)
{
    *(void **)array = calloc(n + 1, size);
    return *(void **)array ? 0 : pp_error_nomem(err);
}

/* Items */

static int compare_items(const void *a, const void *b)
{
    const pp_problem_item *x = a;
    const pp_problem_item *y = b;
    const int order = strcmp(x->layer, y->layer);
    if (order != 0)
        return order;
    return x->phase < y->phase ? -1 : x->phase > y->phase;
}

/* A process' layers by id. */
typedef struct layer_index {
    const pp_activity *activity;
    const bool *uses; /* by process: whether it used the GPU */
} layer_index;

/* Of the training's time, on the GPU. */
static bool counts(const layer_index *x, const pp_activity_batch *b)
{
    return x->uses[b->process] && b->dwell == 0;
}

static const pp_activity_batch *batch_of(const layer_index *x, uint32_t batch)
{
    const pp_activity_batch *b = &x->activity->batches[batch];
    return counts(x, b) ? b : NULL;
}

static bool of_layer(unsigned phase)
{
    return pp_wire_phase_has_layer((pp_wire_phase)phase);
}

static pp_problem_item make_item(const pp_activity_layer *l, unsigned phase)
{
    return (pp_problem_item){.layer = l ? l->name : "",
                             .type = l ? l->type : "",
                             .phase = (pp_phase)phase,
                             .parameters = l ? l->parameters : -1};
}

/* Fills the key; false where the record is not of this GPU, is of no item (phase other) or its
 * layer is not known. */
static bool item_key(const layer_index *x, uint32_t batch, int32_t layer, uint8_t phase,
                     pp_problem_item *ret)
{
    const pp_activity_batch *b = batch_of(x, batch);
    if (!b || !pp_phase_of_item(phase))
        return false;
    const pp_activity_layer *l =
        of_layer(phase) ? pp_activity_find_layer(x->activity, b->process, layer) : NULL;
    *ret = make_item(l, phase);
    return l || !of_layer(phase);
}

/* Every layer of the GPU's processes in its phases, and the step's own phases: drop_unused leaves
 * those that were seen. */
static int collect_items(const layer_index *x, pp_problem *p, pp_error *err)
{
    const pp_activity *a = x->activity;
    size_t n = 0;
    if (allocate(&p->items, PP_PHASE_IDLE * (a->n_layers + 1), sizeof(*p->items), err) < 0)
        return -1;
    for (unsigned phase = 0; phase < PP_PHASE_IDLE; phase++) {
        if (!pp_phase_of_item(phase))
            continue;
        if (!of_layer(phase))
            p->items[n++] = make_item(NULL, phase);
        for (size_t i = 0; of_layer(phase) && i < a->n_layers; i++) {
            if (x->uses[a->layers[i].process])
                p->items[n++] = make_item(&a->layers[i], phase);
        }
    }
    qsort(p->items, n, sizeof(*p->items), compare_items);
    for (size_t i = 0; i < n; i++) {
        if (p->n_items == 0 || compare_items(&p->items[p->n_items - 1], &p->items[i]) != 0)
            p->items[p->n_items++] = p->items[i];
    }
    return 0;
}

static pp_problem_item *find_item(const pp_problem *p, const pp_problem_item *key)
{
    return bsearch(key, p->items, p->n_items, sizeof(*p->items), compare_items);
}

static int name_items(pp_problem *p, pp_error *err)
{
    if (allocate(&p->names, p->n_items, sizeof(*p->names), err) < 0)
        return -1;
    for (size_t i = 0; i < p->n_items; i++)
        p->names[i] = (pp_regression_item){.layer = p->items[i].layer, .phase = p->items[i].phase};
    return 0;
}

/* The mark of pieces of phase other, until it is known how many items there are. */
#define OTHER UINT32_MAX

/* A layer that never ran is no item: it would stand in the table with nothing to say. */
static int drop_unused(pp_problem *p, pp_error *err)
{
    uint32_t *to = NULL;
    size_t n = 0;
    if (allocate(&to, p->n_items, sizeof(*to), err) < 0)
        return -1;
    for (size_t i = 0; i < p->n_items; i++) {
        to[i] = (uint32_t)n;
        if (p->items[i].pieces > 0)
            p->items[n++] = p->items[i];
    }
    for (size_t i = 0; i < p->n_intervals; i++)
        p->intervals[i].item =
            p->intervals[i].item == OTHER ? (uint32_t)n : to[p->intervals[i].item];
    for (size_t i = 0; i < p->n_cells; i++)
        p->cells[i].item = p->cells[i].item == OTHER ? (uint32_t)n : to[p->cells[i].item];
    p->n_items = n;
    free(to);
    return 0;
}

static const pp_problem_time *time_of(const pp_problem *p, uint32_t item)
{
    return item < p->n_items ? &p->items[item].time : &p->other_time;
}

/* Of a piece whose kernels were not recorded: as many as of the item's others. */
static int64_t kernels_of(const pp_problem *p, uint32_t item, int64_t elapsed, int64_t kernels)
{
    const pp_problem_time *t = time_of(p, item);
    if (kernels >= 0 || t->known_ns <= 0)
        return kernels < 0 ? 0 : kernels < elapsed ? kernels : elapsed;
    return llround((double)elapsed * fmin((double)t->part_ns / (double)t->known_ns, 1));
}

static bool are_kernels_known(const pp_problem *p)
{
    bool any = p->other_time.known;
    for (size_t i = 0; i < p->n_items; i++) {
        const pp_problem_time *t = &p->items[i].time;
        if (t->total_ns > 0 && (!t->known || t->known_ns <= 0))
            return false;
        any |= t->part_ns > 0;
    }
    return any && (p->other_time.total_ns == 0 || p->other_time.known_ns > 0);
}

/* Where the kernels of every item are known, each piece gets its own; else phase other has no
 * pieces, but what is left of steps. */
static void settle_kernels(pp_problem *p)
{
    p->kernels_known = are_kernels_known(p);
    size_t n = 0;
    for (size_t i = 0; i < p->n_intervals; i++) {
        pp_regression_interval v = p->intervals[i];
        if (v.item == p->n_items && !p->kernels_known)
            continue;
        v.kernels_ns = kernels_of(p, v.item, v.end_ns - v.start_ns, v.kernels_ns);
        p->intervals[n++] = v;
    }
    p->n_intervals = n;
    n = 0;
    for (size_t i = 0; i < p->n_cells; i++) {
        pp_regression_cell v = p->cells[i];
        if (v.item == p->n_items && !p->kernels_known)
            continue;
        v.kernels_ns = kernels_of(p, v.item, v.busy_ns, v.kernels_ns);
        p->cells[n++] = v;
    }
    p->n_cells = n;
}

/* Observed time within [start, end). */
static int64_t observed(const pp_problem *p, int64_t start, int64_t end)
{
    return pp_spans_cover(p->observed, p->n_observed, (pp_time_range){start, end});
}

/* As many of `of` as `inside` is of `length`; sums stop at the type's end, whatever their order. */
static void add_up(int64_t *sum, int64_t of, int64_t inside, int64_t length)
{
    const int64_t more =
        inside == length ? of : llround((double)of * (double)inside / (double)length);
    if (__builtin_add_overflow(*sum, more, sum))
        *sum = INT64_MAX;
}

/* A piece [start, start + length) that took `total` of that in so many calls, and has `part` (-1:
 * not known). */
static void add_time(pp_problem_time *t, const pp_problem *p, int64_t start, int64_t length,
                     int64_t total, int64_t part, int64_t calls)
{
    const int64_t inside = observed(p, start, start + length);
    if (inside == 0 && length > 0)
        return;
    add_up(&t->total_ns, total, inside, length);
    if (part < 0)
        return;
    t->known = true;
    add_up(&t->known_ns, total, inside, length);
    add_up(&t->part_ns, part, inside, length);
    t->calls += (double)calls * (length > 0 ? (double)inside / (double)length : 1);
}

int64_t pp_problem_part(const pp_problem_time *time, const pp_problem_time *by)
{
    if (!by->known || (by->known_ns == 0 && by->total_ns > 0))
        return -1;
    if (by->known_ns == by->total_ns)
        return time->part_ns;
    const double all = (double)time->part_ns * ((double)by->total_ns / (double)by->known_ns);
    return all < (double)INT64_MAX ? llround(all) : INT64_MAX;
}

double pp_problem_busy_of_call(const pp_problem *p, const char *layer, pp_phase phase)
{
    const pp_problem_item key = {.layer = layer, .phase = phase};
    const pp_problem_item *item = find_item(p, &key);
    return item && item->time.calls > 0 ? (double)item->time.part_ns / item->time.calls : 0;
}

/* Adds a piece to its item's time, or to that of phase other. False where it is of neither. */
static bool add_piece(const layer_index *x, pp_problem *p, uint32_t batch, unsigned phase,
                      pp_problem_item *item, const int64_t piece[5])
{
    if (!item && (phase != PP_PHASE_OTHER || !batch_of(x, batch)))
        return false;
    add_time(item ? &item->time : &p->other_time, p, piece[0], piece[1], piece[2], piece[3],
             piece[4]);
    add_time(&p->piece_time, p, piece[0], piece[1], piece[2], piece[3], piece[4]);
    if (item) {
        item->calls += piece[4];
        item->pieces++;
    }
    return true;
}

/* The last cell of a capture ends with it: nothing of it is behind. */
static int64_t width_in(const pp_activity_batch *batch, const pp_activity_cell *cell)
{
    const int64_t left = batch->end_ns - cell->start_ns;
    return left > 0 && left < cell->width_ns ? left : cell->width_ns;
}

static int collect_intervals(const layer_index *x, pp_problem *p, pp_error *err)
{
    const pp_activity *a = x->activity;
    if (allocate(&p->intervals, a->n_intervals, sizeof(*p->intervals), err) < 0 ||
        allocate(&p->cells, a->n_cells, sizeof(*p->cells), err) < 0)
        return -1;
    pp_problem_item key;
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &a->intervals[i];
        pp_problem_item *item =
            item_key(x, v->batch, v->layer, v->phase, &key) ? find_item(p, &key) : NULL;
        if (!add_piece(x, p, v->batch, v->phase, item,
                       (int64_t[]){v->start_ns, v->duration_ns, v->duration_ns, v->kernels_ns,
                                   !v->goes_on}))
            continue;
        p->intervals[p->n_intervals++] =
            (pp_regression_interval){.start_ns = v->start_ns,
                                     .end_ns = v->start_ns + v->duration_ns,
                                     .item = item ? (uint32_t)(item - p->items) : OTHER,
                                     .kernels_ns = v->kernels_ns};
    }
    for (size_t i = 0; i < a->n_cells; i++) {
        const pp_activity_cell *v = &a->cells[i];
        const int64_t width = width_in(&a->batches[v->batch], v);
        pp_problem_item *item =
            item_key(x, v->batch, v->layer, v->phase, &key) ? find_item(p, &key) : NULL;
        if (!add_piece(x, p, v->batch, v->phase, item,
                       (int64_t[]){v->start_ns, width, v->busy_ns, v->kernels_ns, v->calls}))
            continue;
        p->cells[p->n_cells++] =
            (pp_regression_cell){.start_ns = v->start_ns,
                                 .width_ns = width,
                                 .busy_ns = v->busy_ns,
                                 .item = item ? (uint32_t)(item - p->items) : OTHER,
                                 .kernels_ns = v->kernels_ns};
    }
    return 0;
}

/* Steps and observed time */

/* A piece of time: what a process was observed in, or lost. */
typedef struct piece {
    uint32_t process;
    int64_t capture;
    bool last;
    pp_time_range span;
} piece;

static int compare_pieces(const void *a, const void *b)
{
    const piece *x = a;
    const piece *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->capture != y->capture)
        return x->capture < y->capture ? -1 : 1;
    return x->span.start_ns < y->span.start_ns ? -1 : x->span.start_ns > y->span.start_ns;
}

static bool same_capture(uint32_t process, int64_t capture, const piece *p)
{
    return p->process == process && p->capture == capture;
}

/* Back-to-back batches of a capture become one piece; a batch that is missing leaves a gap. */
static size_t join_pieces(piece *pieces, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        piece *last = kept ? &pieces[kept - 1] : NULL;
        if (last && same_capture(pieces[i].process, pieces[i].capture, last) &&
            pieces[i].span.start_ns <= last->span.end_ns) {
            if (pieces[i].span.end_ns > last->span.end_ns)
                last->span.end_ns = pieces[i].span.end_ns;
            last->last |= pieces[i].last;
        } else {
            pieces[kept++] = pieces[i];
        }
    }
    return kept;
}

/*
 * Takes out of the pieces what nobody can attribute: the end of a piece that goes on (intervals
 * that are open come with a later batch; only whole steps count), and the time of steps that were
 * left out because marks were lost (their numbers are missing). Writes at most n + n_steps spans.
 */
static size_t cut_pieces(const piece *pieces, size_t n, const pp_marked_step *steps, size_t n_steps,
                         piece *ret)
{
    size_t kept = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        piece now = pieces[i];
        const pp_marked_step *before = NULL;
        while (at < n_steps &&
               (steps[at].process < now.process ||
                (steps[at].process == now.process && steps[at].capture < now.capture)))
            at++;
        for (; at < n_steps && same_capture(steps[at].process, steps[at].capture, &now) &&
               steps[at].span.start_ns < pieces[i].span.end_ns;
             at++) {
            const pp_marked_step *s = &steps[at];
            if (before && s->number != before->number + 1 &&
                before->span.end_ns < s->span.start_ns) {
                now.span.end_ns = before->span.end_ns;
                ret[kept++] = now;
                now.span.start_ns = s->span.start_ns;
                now.span.end_ns = pieces[i].span.end_ns;
            }
            before = s;
        }
        if (!pieces[i].last)
            now.span.end_ns = before && before->span.end_ns < now.span.end_ns ? before->span.end_ns
                              : before                                        ? now.span.end_ns
                                                                              : now.span.start_ns;
        if (now.span.end_ns > now.span.start_ns)
            ret[kept++] = now;
    }
    return kept;
}

typedef struct edge {
    int64_t at;
    int alive;    /* change of the number of processes that live */
    int observed; /* change of the number of those that are observed */
} edge;

static int compare_edges(const void *a, const void *b)
{
    const edge *x = a;
    const edge *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* A process lives from its first to its last observed moment. */
static size_t add_edges(const piece *pieces, size_t n, edge *ret)
{
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        int64_t first = INT64_MAX;
        int64_t last = INT64_MIN;
        size_t j = i;
        for (; j < n && pieces[j].process == pieces[i].process; j++) {
            const pp_time_range s = pieces[j].span;
            ret[count++] = (edge){.at = s.start_ns, .observed = 1};
            ret[count++] = (edge){.at = s.end_ns, .observed = -1};
            first = s.start_ns < first ? s.start_ns : first;
            last = s.end_ns > last ? s.end_ns : last;
        }
        ret[count++] = (edge){.at = first, .alive = 1};
        ret[count++] = (edge){.at = last, .alive = -1};
        i = j;
    }
    return count;
}

/* The time in which every living process on the GPU was observed. */
static int intersect(const piece *pieces, size_t n, pp_problem *p, pp_error *err)
{
    edge *edges = calloc(4 * n + 1, sizeof(*edges));
    p->observed = calloc(2 * n + 1, sizeof(*p->observed));
    if (!edges || !p->observed) {
        free(edges);
        return pp_error_nomem(err);
    }
    const size_t count = add_edges(pieces, n, edges);
    qsort(edges, count, sizeof(*edges), compare_edges);
    int alive = 0;
    int observed = 0;
    for (size_t i = 0; i < count;) {
        const int64_t at = edges[i].at;
        for (; i < count && edges[i].at == at; i++) {
            alive += edges[i].alive;
            observed += edges[i].observed;
        }
        if (observed == 0 || observed < alive || i == count)
            continue;
        pp_time_range *last = p->n_observed ? &p->observed[p->n_observed - 1] : NULL;
        if (last && last->end_ns == at)
            last->end_ns = edges[i].at;
        else
            p->observed[p->n_observed++] = (pp_time_range){at, edges[i].at};
    }
    free(edges);
    return 0;
}

static int take_steps(const layer_index *x, pp_problem *p, pp_error *err)
{
    const pp_activity *a = x->activity;
    if (allocate(&p->steps, a->n_steps, sizeof(*p->steps), err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_steps; i++) {
        const pp_activity_step *s = &a->steps[i];
        if (batch_of(x, s->batch))
            p->steps[p->n_steps++] = (pp_time_range){s->start_ns, s->start_ns + s->duration_ns};
    }
    return 0;
}

/* How many captures there were, and when; steps are by process and capture. */
static void count_captures(const pp_marked_step *steps, size_t n, pp_problem *p)
{
    int64_t captures = 0;
    for (size_t i = 0; i < n; i++) {
        const pp_marked_step *s = &steps[i];
        const bool same = i > 0 && s->process == s[-1].process;
        if (!same)
            captures = 0;
        captures += !same || s->capture != s[-1].capture;
        p->captures = captures > p->captures ? captures : p->captures;
        if (i == 0 || s->span.start_ns < p->captured.start_ns)
            p->captured.start_ns = s->span.start_ns;
        if (i == 0 || s->span.end_ns > p->captured.end_ns)
            p->captured.end_ns = s->span.end_ns;
    }
}

static int collect_time(const layer_index *x, pp_problem *p, pp_error *err)
{
    const pp_activity *a = x->activity;
    pp_marked_step *steps = NULL;
    piece *pieces = NULL;
    piece *cut = NULL;
    size_t n_steps = 0;
    size_t n = 0;
    int rc = take_steps(x, p, err);
    if (rc == 0)
        rc = pp_marked_steps_collect(a, x->uses, &steps, &n_steps, err);
    if (rc == 0)
        count_captures(steps, n_steps, p);
    if (rc == 0)
        rc = pp_counted_steps_find(a, x->uses, steps, n_steps, &p->dwells, &p->counted, err);
    if (rc == 0)
        rc = allocate(&pieces, a->n_batches, sizeof(*pieces), err);
    if (rc == 0)
        rc = allocate(&cut, a->n_batches + n_steps, sizeof(*cut), err);
    for (size_t i = 0; rc == 0 && i < a->n_batches; i++) {
        const pp_activity_batch *b = &a->batches[i];
        if (counts(x, b))
            pieces[n++] = (piece){b->process, b->capture, b->last, {b->start_ns, b->end_ns}};
    }
    if (rc == 0) {
        qsort(pieces, n, sizeof(*pieces), compare_pieces);
        n = join_pieces(pieces, n);
        n = cut_pieces(pieces, n, steps, n_steps, cut);
        rc = intersect(cut, n, p, err);
    }
    free(steps);
    free(pieces);
    free(cut);
    return rc;
}

static void collect_gaps(const layer_index *x, pp_problem *p)
{
    for (size_t i = 0; i < x->activity->n_steps; i++) {
        const pp_activity_step *s = &x->activity->steps[i];
        if (!batch_of(x, s->batch))
            continue;
        add_time(&p->step_time, p, s->start_ns, s->duration_ns, s->duration_ns, s->gap_ns, 1);
        if (s->duration_ns > 0)
            p->observed_steps += (double)observed(p, s->start_ns, s->start_ns + s->duration_ns) /
                                 (double)s->duration_ns;
    }
}

/* Of several processes' reasons the greatest, whatever their order. */
static void find_reasons(const layer_index *x, pp_problem *p)
{
    p->kernels = p->isolated = "";
    for (size_t i = 0; i < x->activity->n_processes; i++) {
        const pp_activity_process *from = &x->activity->processes[i];
        if (x->uses[i] && from->kernels && strcmp(from->kernels, p->kernels) > 0)
            p->kernels = from->kernels;
        if (x->uses[i] && from->isolated && strcmp(from->isolated, p->isolated) > 0)
            p->isolated = from->isolated;
    }
}

/* Metrics */

/* The samples that hold nothing of a dwell: those say nothing of the training. */
static void leave_dwells_out(pp_problem *p, size_t m)
{
    const pp_regression_metric *all = &p->all[m];
    pp_regression_metric *to = &p->metrics[m];
    pp_regression_sample *samples = p->samples + (all->samples - p->all_samples);
    *to = *all;
    to->samples = samples;
    to->n_samples = 0;
    for (size_t i = 0; i < all->n_samples; i++)
        if (!pp_replay_runs_touch(&p->dwells, pp_coverage_time(&p->reading, all, i)))
            samples[to->n_samples++] = all->samples[i];
}

/* Where there are dwells it has to be known how long windows are. */
static int find_reading(const pp_estimates_options *options, pp_problem *p, pp_error *err)
{
    pp_estimates_options o = *options;
    if (o.scraped && p->dwells.count > 0 &&
        pp_regression_intervals(p->all, p->n_metrics, &o.attribution, err) < 0)
        return -1;
    p->reading = pp_coverage_of(&o);
    return 0;
}

/* Where all are asked for, those that somebody misses and those that the GPU has. */
static unsigned wanted_metrics(const pp_activity *a, const char *gpu, unsigned asked)
{
    unsigned wanted = pp_metric_expected(asked ? asked : PP_METRIC_ALL);
    if (asked && asked != PP_METRIC_ALL)
        return wanted;
    const size_t at = pp_strings_index(&a->gpus, gpu);
    for (size_t i = 0; i < a->n_samples; i++)
        wanted |= a->samples[i].gpu == at ? 1U << a->samples[i].metric : 0;
    for (size_t i = 0; i < a->n_pm; i++)
        wanted |= a->pm[i].gpu == at ? 1U << a->pm[i].metric : 0;
    return wanted;
}

/**
 * Whether a metric's values say when windows lie: means over these, by the clock that all share. A
 * level is of a moment. What a driver tells beside GPM, such as NVML's utilisation, has sample
 * periods of its own.
 */
static bool tells_windows(const pp_metric_info *info, const pp_estimates_options *options)
{
    return info->kind == PP_METRIC_SHARE && (options->scraped || info->gpm.id != 0);
}

static int collect_metrics(const pp_activity *a, const char *gpu,
                           const pp_estimates_options *options, pp_problem *p, pp_error *err)
{
    const unsigned wanted = wanted_metrics(a, gpu, options->metrics);
    size_t n = 0;
    if (allocate(&p->samples, a->n_samples, sizeof(*p->samples), err) < 0 ||
        allocate(&p->all_samples, a->n_samples, sizeof(*p->all_samples), err) < 0)
        return -1;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        if (!(wanted & (1U << m)))
            continue;
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        pp_regression_metric *to = &p->all[p->n_metrics];
        *to = (pp_regression_metric){.name = info->column,
                                     .min = info->min,
                                     .max = info->max,
                                     .job_only = !tells_windows(info, options),
                                     .idle_is_zero = info->within_sms,
                                     .of_cycles = info->within_sms,
                                     .samples = &p->all_samples[n]};
        for (size_t i = 0; i < a->n_samples && to->n_samples < PP_REGRESSION_MAX_SAMPLES; i++) {
            const pp_activity_sample *s = &a->samples[i];
            if (s->metric != (pp_metric)m || strcmp(a->gpus.items[s->gpu], gpu) != 0)
                continue;
            p->all_samples[n++] = (pp_regression_sample){s->stamp_ns, s->value};
            to->n_samples++;
        }
        p->truncated |= to->n_samples == PP_REGRESSION_MAX_SAMPLES;
        p->metric_ids[p->n_metrics++] = (pp_metric)m;
    }
    if (find_reading(options, p, err) < 0)
        return -1;
    for (size_t m = 0; m < p->n_metrics; m++)
        leave_dwells_out(p, m);
    return 0;
}

static int build(const layer_index *x, const char *gpu, const pp_estimates_options *options,
                 pp_problem *p, pp_error *err)
{
    p->truncated = x->activity->truncated;
    if (pp_replay_runs_make(x->activity, gpu, &p->dwells, err) < 0 ||
        collect_items(x, p, err) < 0 || collect_time(x, p, err) < 0 ||
        collect_intervals(x, p, err) < 0 || drop_unused(p, err) < 0 || name_items(p, err) < 0)
        return -1;
    settle_kernels(p);
    collect_gaps(x, p);
    find_reasons(x, p);
    return collect_metrics(x->activity, gpu, options, p, err);
}

static int build_of(const pp_activity *activity, const char *gpu,
                    const pp_estimates_options *options, pp_problem *ret, pp_error *err)
{
    bool *uses = NULL;
    bool any = false;
    if (allocate(&uses, activity->n_processes, sizeof(*uses), err) < 0)
        return -1;
    for (size_t i = 0; i < activity->n_processes; i++) {
        uses[i] = pp_activity_uses(activity, (uint32_t)i, gpu);
        any |= uses[i];
    }
    const layer_index x = {activity, uses};
    const int rc = any ? build(&x, gpu, options, ret, err)
                       : pp_error_set(err, PP_ERR_NOT_FOUND, "no process used GPU %s", gpu);
    free(uses);
    return rc;
}

/* From the first marked step's begin to the last one's end, of the processes without a GPU. */
static pp_time_range find_captured(const pp_activity *a)
{
    pp_time_range r = {0, 0};
    for (size_t i = 0; i < a->n_steps; i++) {
        const pp_activity_step *s = &a->steps[i];
        const pp_activity_batch *b = &a->batches[s->batch];
        const int64_t end = s->start_ns + s->duration_ns;
        if (b->dwell || !pp_activity_uses(a, b->process, ""))
            continue;
        r.start_ns = r.end_ns == 0 || s->start_ns < r.start_ns ? s->start_ns : r.start_ns;
        r.end_ns = end > r.end_ns ? end : r.end_ns;
    }
    return r;
}

/* Whether several processes named no GPU; one that two agents saw is one. */
static bool are_several(const pp_activity *a)
{
    const pp_activity_process *first = NULL;
    for (size_t i = 0; i < a->n_processes; i++) {
        if (!pp_activity_uses(a, (uint32_t)i, ""))
            continue;
        if (first && first->process != a->processes[i].process)
            return true;
        first = &a->processes[i];
    }
    return false;
}

/* Without a GPU there are no samples, and times are each process' own. */
static int build_apart(const pp_activity *activity, const pp_estimates_options *options,
                       pp_problem *ret, pp_error *err)
{
    pp_activity apart;
    int rc = pp_apart_make(activity, &apart, err);
    if (rc == 0)
        rc = build_of(&apart, "", options, ret, err);
    if (rc == 0)
        ret->captured = find_captured(activity);
    pp_apart_done(&apart);
    return rc;
}

int pp_problem_build(const pp_activity *activity, const char *gpu,
                     const pp_estimates_options *options, pp_problem *ret, pp_error *err)
{
    return *gpu || !are_several(activity) ? build_of(activity, gpu, options, ret, err)
                                          : build_apart(activity, options, ret, err);
}

pp_regression_input pp_problem_regression(const pp_problem *p, const pp_estimates_options *options)
{
    pp_regression_input in = {
        .items = p->names,
        .n_items = p->n_items,
        .intervals = p->intervals,
        .n_intervals = p->n_intervals,
        .cells = p->cells,
        .n_cells = p->n_cells,
        .kernels_known = p->kernels_known,
        .steps = p->steps,
        .n_steps = p->n_steps,
        .observed = p->observed,
        .n_observed = p->n_observed,
        .metrics = p->metrics,
        .n_metrics = p->n_metrics,
        .options = options->attribution,
    };
    in.options.since_before = !options->scraped;
    return in;
}
