#include "estimate/pattern/usage_time.h"

#include "common/cleanup.h"
#include "estimate/activity/marked_steps.h"
#include "estimate/activity/pauses.h"
#include "estimate/times/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PHASES = PP_PHASE_IDLE + 1, NO_ITEM = -1, LEAST = 2 /* values whose spread is told */ };

typedef struct dealt_step {
    pp_time_range span;
    uint32_t process;
    uint32_t block; /* in which it is */
} dealt_step;

typedef struct build {
    const pp_activity *activity;
    const pp_estimates *estimates;
    const pp_ranks *ranks;
    pp_usage_time *to;
    bool *uses;             /* of each process */
    pp_marked_step *marked; /* of these, by process, capture and start */
    dealt_step *steps;      /* the same by start */
    size_t n_steps;
    uint32_t *blocks;                  /* in which each step is */
    const pp_estimates_item **by_name; /* those that are layers, by name and phase */
    size_t n_by_name;
    int32_t *of_layer; /* item of each layer of the activity in each phase */
    int32_t of_phase[PHASES];
} build;

/* ---- the step ---- */

static bool is_of_one(const pp_marked_step *a, const pp_marked_step *b)
{
    return a->process == b->process && a->capture == b->capture;
}

/* Room for so many values of a series. */
typedef struct values {
    double *of, *weights;
    uint32_t *stretch;
} values;

static int make_values(values *v, size_t n, pp_error *err)
{
    v->of = calloc(n + 1, sizeof *v->of);
    v->weights = calloc(n + 1, sizeof *v->weights);
    v->stretch = calloc(n + 1, sizeof *v->stretch);
    return v->of && v->weights && v->stretch ? 0 : pp_error_nomem(err);
}

static void drop_values(values *v)
{
    free(v->of);
    free(v->weights);
    free(v->stretch);
}

static double error_of(const values *v, size_t n, bool drawn)
{
    const pp_series series = {.n = n,
                              .values = v->of,
                              .weights = v->weights,
                              .stretch = v->stretch,
                              .least = LEAST,
                              .drawn = drawn};
    return pp_series_mean(&series).standard_error;
}

static int compare_runs(const void *a, const void *b)
{
    const pp_activity_run *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Of runs of steps in which nothing was marked, those without a pause, in order; how many. */
static size_t list_runs(const build *b, double limit, pp_activity_run *ret)
{
    const pp_activity *a = b->activity;
    size_t n = 0;
    for (size_t i = 0; i < a->n_runs; i++) {
        const pp_activity_run *run = &a->runs[i];
        if (b->uses[run->process] && run->steps > 0 && pp_run_step_ns(run) <= limit)
            ret[n++] = *run;
    }
    if (n > 0)
        qsort(ret, n, sizeof *ret, compare_runs);
    return n;
}

/* Steps in which nothing was marked, as the estimates' own mean has them. */
static int find_counted(build *b, pp_error *err)
{
    const size_t room = b->activity->n_runs + 1;
    PP_CLEANUP_FREE pp_activity_run *runs = calloc(room, sizeof *runs);
    values v = {0};
    double limit;
    if (!runs)
        return pp_error_nomem(err);
    int rc = make_values(&v, room, err);
    const pp_estimates *e = b->estimates;
    if (rc == 0)
        rc = pp_pauses_limit(b->activity, b->uses, &limit, err);
    if (rc == 0) {
        const size_t n = list_runs(b, limit, runs);
        for (size_t i = 0; i < n; i++) {
            v.of[i] = (double)runs[i].duration_ns;
            v.weights[i] = (double)runs[i].steps;
            v.stretch[i] = runs[i].process;
        }
        b->to->steps = e->counted_steps;
        b->to->step_ns =
            (pp_figure){(double)e->counted_ns / (double)e->counted_steps, error_of(&v, n, false)};
    }
    drop_values(&v);
    return rc;
}

/* What differs from step to step, and where no step was counted the step's time itself. */
static int find_marked(build *b, pp_error *err)
{
    values v = {0};
    double sum = 0, squares = 0;
    if (make_values(&v, b->n_steps, err) < 0) {
        drop_values(&v);
        return -1;
    }
    for (size_t i = 0; i < b->n_steps; i++) {
        v.of[i] = (double)(b->marked[i].span.end_ns - b->marked[i].span.start_ns);
        v.weights[i] = 1;
        v.stretch[i] = i > 0 ? v.stretch[i - 1] + !is_of_one(&b->marked[i - 1], &b->marked[i]) : 0;
        sum += v.of[i];
        squares += v.of[i] * v.of[i];
    }
    const double n = (double)b->n_steps;
    b->to->step_sd_ns = n > 1 ? sqrt(fmax(squares - sum * sum / n, 0) / (n - 1)) : (double)NAN;
    if (!b->to->undisturbed) {
        b->to->steps = b->estimates->step_count;
        b->to->step_ns = (pp_figure){b->estimates->step_mean_ns, error_of(&v, b->n_steps, true)};
    }
    drop_values(&v);
    return 0;
}

typedef struct busy_step {
    uint32_t process;
    int64_t capture, start_ns, busy_ns;
} busy_step;

static int compare_busy(const void *a, const void *b)
{
    const busy_step *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->capture != y->capture)
        return x->capture < y->capture ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Of steps, by process and capture, those of which it is known when kernels ran; how many. */
static size_t list_busy(const build *b, busy_step *ret)
{
    const pp_activity *a = b->activity;
    size_t n = 0;
    for (size_t i = 0; i < a->n_steps; i++) {
        const pp_activity_step *step = &a->steps[i];
        const pp_activity_batch *batch = &a->batches[step->batch];
        if (b->uses[batch->process] && batch->dwell == 0 && step->gap_ns >= 0)
            ret[n++] = (busy_step){batch->process, batch->capture, step->start_ns,
                                   step->duration_ns - step->gap_ns};
    }
    if (n > 0)
        qsort(ret, n, sizeof *ret, compare_busy);
    return n;
}

/* Of the mean time in which kernels ran in a step; NaN. */
static int find_busy_error(const build *b, double *ret, pp_error *err)
{
    const size_t room = b->activity->n_steps + 1;
    PP_CLEANUP_FREE busy_step *steps = calloc(room, sizeof *steps);
    values v = {0};
    *ret = (double)NAN;
    if (!steps)
        return pp_error_nomem(err);
    const int rc = make_values(&v, room, err);
    if (rc == 0) {
        const size_t n = list_busy(b, steps);
        for (size_t i = 0; i < n; i++) {
            const bool follows = i > 0 && steps[i].process == steps[i - 1].process &&
                                 steps[i].capture == steps[i - 1].capture;
            v.of[i] = (double)steps[i].busy_ns;
            v.weights[i] = 1;
            v.stretch[i] = i > 0 ? v.stretch[i - 1] + !follows : 0;
        }
        *ret = error_of(&v, n, true);
    }
    drop_values(&v);
    return rc;
}

/* Kernels take as long in a marked step as in another, so what is left of an undisturbed one has
 * the errors of both. */
static int find_idle(build *b, pp_error *err)
{
    const pp_estimates *e = b->estimates;
    double of_kernels;
    b->to->idle = PP_UNKNOWN;
    if (e->gap_ns < 0 || e->step_ns <= 0)
        return 0;
    if (find_busy_error(b, &of_kernels, err) < 0)
        return -1;
    const double step = b->to->step_ns.value;
    const double kernels = (double)(e->step_ns - e->gap_ns) / (double)e->step_count;
    const double from_step = kernels * b->to->step_ns.standard_error / step;
    b->to->idle =
        (pp_figure){fmin(fmax(1 - kernels / step, 0), 1), hypot(of_kernels, from_step) / step};
    return 0;
}

/* ---- items ---- */

static int compare_names(const pp_estimates_item *x, const char *layer, pp_phase phase)
{
    const int by = strcmp(x->layer, layer);
    return by ? by : (x->phase > phase) - (x->phase < phase);
}

static int compare_items(const void *a, const void *b)
{
    const pp_estimates_item *const *x = a, *const *y = b;
    return compare_names(*x, (*y)->layer, (*y)->phase);
}

static int32_t find_by_name(const build *b, const char *layer, pp_phase phase)
{
    size_t from = 0, to = b->n_by_name;
    while (from < to) {
        const size_t at = (from + to) / 2;
        const int by = compare_names(b->by_name[at], layer, phase);
        if (by == 0)
            return (int32_t)(b->by_name[at] - b->estimates->items);
        if (by < 0)
            from = at + 1;
        else
            to = at;
    }
    return NO_ITEM;
}

static int index_items(build *b, pp_error *err)
{
    const pp_estimates *e = b->estimates;
    const pp_activity *a = b->activity;
    b->by_name = calloc(e->n_items + 1, sizeof(const pp_estimates_item *));
    b->of_layer = calloc(a->n_layers * PHASES + 1, sizeof *b->of_layer);
    if (!b->by_name || !b->of_layer)
        return pp_error_nomem(err);
    for (int i = 0; i < PHASES; i++)
        b->of_phase[i] = NO_ITEM;
    for (size_t i = 0; i < e->n_items; i++) {
        if (e->items[i].kind == PP_ITEM_LAYER)
            b->by_name[b->n_by_name++] = &e->items[i];
        else if (e->items[i].kind != PP_ITEM_JOB && e->items[i].kind != PP_ITEM_IDLE)
            b->of_phase[e->items[i].phase] = (int32_t)i;
    }
    qsort(b->by_name, b->n_by_name, sizeof(const pp_estimates_item *), compare_items);
    for (size_t i = 0; i < a->n_layers; i++)
        for (int phase = 0; b->uses[a->layers[i].process] && phase < PHASES; phase++)
            b->of_layer[i * PHASES + (size_t)phase] =
                find_by_name(b, a->layers[i].name, (pp_phase)phase);
    return 0;
}

static int32_t item_of(const build *b, uint32_t process, int32_t layer, uint8_t phase)
{
    if (phase >= PHASES)
        return NO_ITEM;
    if (layer == 0)
        return b->of_phase[phase];
    const pp_activity_layer *l = pp_activity_find_layer(b->activity, process, layer);
    return l ? b->of_layer[(size_t)(l - b->activity->layers) * PHASES + phase] : NO_ITEM;
}

/* Of a step, ns in which a process on this GPU waited for others and did nothing else; NaN where
 * that is not known. */
static double wait_of_step(const build *b)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; b->ranks && i < b->ranks->n; i++)
        for (size_t k = 0; k < b->activity->n_processes; k++)
            if (b->uses[k] && b->activity->processes[k].process == b->ranks->ranks[i].process &&
                b->ranks->ranks[i].steps > 0) {
                sum += b->ranks->ranks[i].wait_ns;
                n++;
            }
    return n ? sum / (double)n : (double)NAN;
}

/* What an item takes of a step, ns. */
static double taken_by(const build *b, const pp_estimates_item *item)
{
    const int64_t ns = b->to->busy ? item->busy_ns : item->total_ns;
    const bool takes = item->kind != PP_ITEM_JOB && item->kind != PP_ITEM_IDLE && ns > 0;
    return takes ? (double)ns / (double)b->estimates->step_count : 0;
}

static bool is_beside(const build *b, size_t item)
{
    return b->to->busy && b->estimates->items[item].kind == PP_ITEM_COMMUNICATION;
}

/* Communication that runs beside others' kernels takes none of the step: it has what these leave of
 * the time in which any kernel ran, or what ranks say that they waited in it, if that is more. */
static void expose_communication(build *b, double others, double step, double room)
{
    pp_usage_time *to = b->to;
    double sum = 0;
    for (size_t i = 0; i < to->n; i++)
        sum += is_beside(b, i) ? to->share[i] : 0;
    if (!(sum > 0))
        return;
    const double wait = wait_of_step(b) / step, left = fmax(room - others, 0);
    const double exposed = fmin(sum, isfinite(wait) ? fmax(left, wait) : left);
    for (size_t i = 0; i < to->n; i++)
        to->share[i] *= is_beside(b, i) ? exposed / sum : 1;
}

/* Where items overlap each has its kernels in full: together they take no more than there is. */
static void find_shares(build *b)
{
    pp_usage_time *to = b->to;
    const pp_estimates *e = b->estimates;
    const double step = to->busy ? to->step_ns.value : e->step_mean_ns;
    const double room = to->busy ? 1 - to->idle.value : 1;
    double others = 0, sum = 0;
    for (size_t i = 0; i < to->n; i++) {
        to->share[i] = taken_by(b, &e->items[i]) / step;
        others += is_beside(b, i) ? 0 : to->share[i];
    }
    expose_communication(b, others, step, room);
    for (size_t i = 0; i < to->n; i++)
        sum += to->share[i];
    for (size_t i = 0; sum > room && i < to->n; i++)
        to->share[i] *= room / sum;
}

/* ---- runs of steps ---- */

static int compare_starts(const void *a, const void *b)
{
    const dealt_step *x = a, *y = b;
    if (x->span.start_ns != y->span.start_ns)
        return x->span.start_ns < y->span.start_ns ? -1 : 1;
    return (x->process > y->process) - (x->process < y->process);
}

/* The step in which a moment is; of several processes any that has begun by then. */
static size_t step_at(const build *b, int64_t at)
{
    size_t from = 0, to = b->n_steps;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (b->steps[middle].span.start_ns <= at)
            from = middle + 1;
        else
            to = middle;
    }
    return from ? from - 1 : 0;
}

static void add_time(build *b, size_t step, int32_t item, double ns)
{
    if (b->to->n_blocks > 0)
        b->to->blocks[(size_t)item * PP_USAGE_BLOCKS + b->steps[step].block] += ns;
}

/* To parts of equal length, `by` for each unit of the span that lies in one. */
static void add_span(double parts[PP_USAGE_BINS], double from, double to, double length, double by)
{
    for (int i = (int)(from / length); i < PP_USAGE_BINS && i * length < to; i++) {
        const double in = fmin(to, (i + 1) * length) - fmax(from, i * length);
        if (in > 0)
            parts[i] += in * by;
    }
}

/* An interval's time to the parts of its step that it lies in. */
static void add_to_bins(build *b, size_t step, int32_t item, const pp_activity_interval *v,
                        double part)
{
    const pp_time_range span = b->steps[step].span;
    const double length = (double)(span.end_ns - span.start_ns);
    if (length <= 0 || v->start_ns < span.start_ns || v->start_ns >= span.end_ns)
        return;
    const double from = (double)(v->start_ns - span.start_ns);
    const double to = fmin(from + (double)v->duration_ns, length);
    add_span(&b->to->bins[(size_t)item * PP_USAGE_BINS], from, to, length / PP_USAGE_BINS,
             part / length);
    b->to->has_bins = true;
}

static void add_intervals(build *b)
{
    const pp_activity *a = b->activity;
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &a->intervals[i];
        const pp_activity_batch *batch = &a->batches[v->batch];
        if (!b->uses[batch->process] || batch->dwell != 0 || v->duration_ns <= 0 ||
            (b->to->busy && v->kernels_ns < 0))
            continue;
        const int32_t item = item_of(b, batch->process, v->layer, v->phase);
        if (item == NO_ITEM)
            continue;
        const double ns = (double)(b->to->busy ? v->kernels_ns : v->duration_ns);
        const size_t step = step_at(b, v->start_ns);
        add_time(b, step, item, ns);
        add_to_bins(b, step, item, v, ns / (double)v->duration_ns);
    }
}

static void add_cells(build *b)
{
    const pp_activity *a = b->activity;
    for (size_t i = 0; i < a->n_cells; i++) {
        const pp_activity_cell *c = &a->cells[i];
        const pp_activity_batch *batch = &a->batches[c->batch];
        const int64_t ns = b->to->busy ? c->kernels_ns : c->busy_ns;
        if (!b->uses[batch->process] || batch->dwell != 0 || ns < 0)
            continue;
        const int32_t item = item_of(b, batch->process, c->layer, c->phase);
        if (item != NO_ITEM)
            add_time(b, step_at(b, c->start_ns), item, (double)ns);
    }
}

/* Of the marked steps' parts: how much of a step no kernel ran in each. */
static void find_gaps(const build *b, double gaps[PP_USAGE_BINS])
{
    const pp_usage_time *to = b->to;
    for (size_t k = 0; k < PP_USAGE_BINS; k++) {
        double ran = 0;
        for (size_t i = 0; i < to->n; i++)
            ran += to->bins[i * PP_USAGE_BINS + k] / (double)b->n_steps;
        gaps[k] = fmax(1.0 / PP_USAGE_BINS - ran, 0);
    }
}

/* Where in an undisturbed step each part of a marked one begins, as shares of it: gaps are longer
 * there, and kernels are not. */
static void find_edges(const build *b, const double gaps[PP_USAGE_BINS],
                       double edges[PP_USAGE_BINS + 1])
{
    const pp_usage_time *to = b->to;
    double all = 0;
    for (size_t k = 0; k < PP_USAGE_BINS; k++)
        all += gaps[k];
    edges[0] = 0;
    for (size_t k = 0; k < PP_USAGE_BINS; k++) {
        double length = to->idle.value * (all > 0 ? gaps[k] / all : 1.0 / PP_USAGE_BINS);
        for (size_t i = 0; i < to->n; i++)
            length += to->bins[i * PP_USAGE_BINS + k];
        edges[k + 1] = edges[k] + length;
    }
}

/* From parts between these edges to parts of equal length. */
static void spread(double bin[PP_USAGE_BINS], const double edges[PP_USAGE_BINS + 1])
{
    const double part = edges[PP_USAGE_BINS] / PP_USAGE_BINS;
    double even[PP_USAGE_BINS] = {0};
    for (size_t k = 0; k < PP_USAGE_BINS; k++) {
        const double length = edges[k + 1] - edges[k];
        if (length > 0)
            add_span(even, edges[k], edges[k + 1], part, bin[k] / length);
    }
    memcpy(bin, even, sizeof even);
}

/* Sums of time into shares of a step, on the scale of the items' own. */
static void scale(build *b)
{
    pp_usage_time *to = b->to;
    double gaps[PP_USAGE_BINS], edges[PP_USAGE_BINS + 1];
    find_gaps(b, gaps);
    for (size_t i = 0; i < to->n; i++) {
        double sum = 0, *blocks = &to->blocks[i * PP_USAGE_BLOCKS];
        double bins = 0, *bin = &to->bins[i * PP_USAGE_BINS];
        for (size_t k = 0; k < to->n_blocks; k++)
            sum += blocks[k];
        const double mean = sum / (double)b->n_steps;
        for (size_t k = 0; k < to->n_blocks; k++)
            blocks[k] = mean > 0 ? blocks[k] / to->block_steps[k] * to->share[i] / mean : 0;
        for (size_t k = 0; k < PP_USAGE_BINS; k++)
            bins += bin[k];
        for (size_t k = 0; k < PP_USAGE_BINS; k++)
            bin[k] = bins > 0 ? bin[k] * to->share[i] / bins : 0;
    }
    if (!to->busy)
        return;
    find_edges(b, gaps, edges);
    for (size_t i = 0; i < to->n && edges[PP_USAGE_BINS] > 0; i++)
        spread(&to->bins[i * PP_USAGE_BINS], edges);
}

/* Of captures that stand side by side, or each of one in as many parts as its steps make. */
static void deal_blocks(build *b, size_t captures)
{
    pp_usage_time *to = b->to;
    const size_t spare = captures < PP_USAGE_BLOCKS ? PP_USAGE_BLOCKS - captures : 0;
    size_t begin = 0, capture = 0, first = 0;
    while (begin < b->n_steps) {
        size_t end = begin + 1;
        while (end < b->n_steps && is_of_one(&b->marked[begin], &b->marked[end]))
            end++;
        const size_t n = end - begin, more = 1 + spare * n / b->n_steps,
                     parts = more < n ? more : n;
        if (captures > PP_USAGE_BLOCKS)
            first = capture * PP_USAGE_BLOCKS / captures;
        for (size_t i = begin; i < end; i++) {
            const size_t block = first + (i - begin) * parts / n;
            b->steps[i].block = (uint32_t)block;
            to->block_steps[block]++;
            to->block_captures[block] = (uint32_t)capture;
        }
        to->n_blocks = first + parts;
        first += parts;
        begin = end;
        capture++;
    }
}

static int find_blocks(build *b, pp_error *err)
{
    size_t captures = 1;
    if (b->n_steps == 0)
        return 0;
    b->steps = calloc(b->n_steps, sizeof *b->steps);
    if (!b->steps)
        return pp_error_nomem(err);
    for (size_t i = 0; i < b->n_steps; i++) {
        captures += i > 0 && !is_of_one(&b->marked[i - 1], &b->marked[i]);
        b->steps[i] = (dealt_step){.span = b->marked[i].span, .process = b->marked[i].process};
    }
    if (b->n_steps > 1)
        deal_blocks(b, captures);
    qsort(b->steps, b->n_steps, sizeof *b->steps, compare_starts);
    add_intervals(b);
    add_cells(b);
    scale(b);
    return 0;
}

/* ---- in and out ---- */

static int find_steps(build *b, pp_error *err)
{
    const pp_activity *a = b->activity;
    b->uses = calloc(a->n_processes + 1, sizeof *b->uses);
    if (!b->uses)
        return pp_error_nomem(err);
    for (size_t i = 0; i < a->n_processes; i++)
        b->uses[i] = pp_activity_uses(a, (uint32_t)i, b->estimates->gpu);
    if (pp_marked_steps_collect(a, b->uses, &b->marked, &b->n_steps, err) < 0)
        return -1;
    b->to->undisturbed = b->estimates->counted_steps > 0 && b->estimates->counted_ns > 0;
    if ((b->to->undisturbed && find_counted(b, err) < 0) || find_marked(b, err) < 0 ||
        find_idle(b, err) < 0)
        return -1;
    b->to->busy = b->estimates->gap_ns >= 0;
    return 0;
}

static int find(build *b, pp_error *err)
{
    pp_usage_time *to = b->to;
    to->n = b->estimates->n_items;
    to->share = calloc(to->n + 1, sizeof *to->share);
    to->blocks = calloc(to->n * PP_USAGE_BLOCKS + 1, sizeof *to->blocks);
    to->bins = calloc(to->n * PP_USAGE_BINS + 1, sizeof *to->bins);
    if (!to->share || !to->blocks || !to->bins)
        return pp_error_nomem(err);
    if (b->estimates->step_count <= 0 || b->estimates->step_ns <= 0)
        return 0;
    if (find_steps(b, err) < 0 || index_items(b, err) < 0)
        return -1;
    find_shares(b);
    return find_blocks(b, err);
}

int pp_usage_time_find(const pp_usage_input *in, pp_usage_time *ret, pp_error *err)
{
    *ret = (pp_usage_time){.step_ns = PP_UNKNOWN, .step_sd_ns = (double)NAN, .idle = PP_UNKNOWN};
    build b = {.activity = in->activity, .estimates = in->estimates, .ranks = in->ranks, .to = ret};
    const int rc = find(&b, err);
    free(b.uses);
    free(b.steps);
    free(b.marked);
    free(b.by_name);
    free(b.of_layer);
    return rc;
}

void pp_usage_time_done(pp_usage_time *time)
{
    free(time->share);
    free(time->blocks);
    free(time->bins);
    *time = (pp_usage_time){0};
}

double pp_usage_time_error(const pp_usage_time *time, const double *factor)
{
    double sums[PP_USAGE_BLOCKS];
    for (size_t k = 0; k < time->n_blocks; k++) {
        sums[k] = 0;
        for (size_t i = 0; i < time->n; i++)
            sums[k] += factor[i] * time->blocks[i * PP_USAGE_BLOCKS + k] * time->block_steps[k];
    }
    const pp_series series = {.n = time->n_blocks,
                              .values = sums,
                              .weights = time->block_steps,
                              .stretch = time->block_captures,
                              .least = LEAST,
                              .drawn = true};
    return pp_series_mean(&series).standard_error;
}

double pp_usage_step_error(const pp_usage_time *time, double sum)
{
    return time->busy ? sum * time->step_ns.standard_error / time->step_ns.value : 0;
}
