#include "estimate/times/ranks.h"

#include "common/cleanup.h"
#include "common/student.h"
#include "common/vector.h"
#include "estimate/activity/spans.h"
#include "estimate/times/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_STEPS = 2 };

/* How likely some rank is called the slowest where none is. */
#define CHANCE 0.003
/* Of one short capture: in standard errors, and as a share of its step. Captures of one training on
 * an H200 differed by a tenth at most (docs/timing.md). */
#define SURE 3.0
#define UNSEEN 0.3
/* What the slowest is behind by, as a share of its step. */
#define NOTICEABLE 0.02
/* Longer than what is alike in a capture lasts. */
static const int64_t LONG_NS = INT64_C(10000000000);

/* Time of one process: its agents' entries together. */
typedef struct spans {
    pp_time_range *of; /* sorted and apart, once settled */
    size_t n;
} spans;

typedef struct own_step {
    int64_t number;
    int64_t capture;
    pp_time_range span;
    bool told; /* its pieces are, one by one */
    double own_ns;
} own_step;

typedef struct process {
    pp_rank *rank;
    spans waits; /* communication */
    spans work;  /* every other piece */
    own_step *steps;
    size_t n_steps;
    double covered_ns; /* of sums, by pieces of any kind */
    double waited_ns;  /* of sums: communication, as far as nothing else can have run beside it */
    double all_ns;     /* mean of all steps, told one by one or not */
} process;

typedef struct build {
    const pp_activity *activity;
    pp_ranks *ranks;
    process *processes; /* parallel to ranks->ranks, before these are sorted */
    uint32_t *of;       /* by the activity's process: index into processes */
} build;

/* ---- who there is ---- */

static int find_processes(build *b, pp_error *err)
{
    const pp_activity *a = b->activity;
    pp_ranks *r = b->ranks;
    r->ranks = calloc(a->n_processes + 1, sizeof *r->ranks);
    b->processes = calloc(a->n_processes + 1, sizeof *b->processes);
    b->of = calloc(a->n_processes + 1, sizeof *b->of);
    if (!r->ranks || !b->processes || !b->of)
        return pp_error_nomem(err);
    for (size_t i = 0; i < a->n_processes; i++) {
        const pp_activity_process *from = &a->processes[i];
        size_t at = 0;
        while (at < r->n && r->ranks[at].process != from->process)
            at++;
        if (at == r->n) {
            r->ranks[r->n++] = (pp_rank){.process = from->process};
            b->processes[at].rank = &r->ranks[at];
        }
        r->ranks[at].rank = from->rank;
        r->ranks[at].world_size = from->world_size;
        b->of[i] = (uint32_t)at;
    }
    return 0;
}

/* NULL: of replays, which are no training. */
static process *process_of(const build *b, uint32_t batch)
{
    const pp_activity_batch *of = &b->activity->batches[batch];
    return of->dwell == 0 ? &b->processes[b->of[of->process]] : NULL;
}

/* ---- time ---- */

/* Room for all that each may have. */
static int make_room(build *b, pp_error *err)
{
    const pp_activity *a = b->activity;
    PP_CLEANUP_FREE size_t *pieces = calloc(b->ranks->n + 1, sizeof *pieces);
    PP_CLEANUP_FREE size_t *waits = calloc(b->ranks->n + 1, sizeof *waits);
    PP_CLEANUP_FREE size_t *steps = calloc(b->ranks->n + 1, sizeof *steps);
    if (!pieces || !waits || !steps)
        return pp_error_nomem(err);
    for (size_t i = 0; i < a->n_intervals; i++) {
        const bool waited = a->intervals[i].phase == PP_PHASE_COMMUNICATION;
        (waited ? waits : pieces)[b->of[a->batches[a->intervals[i].batch].process]]++;
    }
    for (size_t i = 0; i < a->n_steps; i++)
        steps[b->of[a->batches[a->steps[i].batch].process]]++;
    for (size_t i = 0; i < b->ranks->n; i++) {
        process *p = &b->processes[i];
        p->waits.of = calloc(waits[i] + 1, sizeof *p->waits.of);
        p->work.of = calloc(pieces[i] + 1, sizeof *p->work.of);
        p->steps = calloc(steps[i] + 1, sizeof *p->steps);
        if (!p->waits.of || !p->work.of || !p->steps)
            return pp_error_nomem(err);
    }
    return 0;
}

static void take_intervals(build *b)
{
    const pp_activity *a = b->activity;
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &a->intervals[i];
        process *p = process_of(b, v->batch);
        if (!p || v->phase == PP_PHASE_OTHER)
            continue;
        spans *to = v->phase == PP_PHASE_COMMUNICATION ? &p->waits : &p->work;
        to->of[to->n++] = (pp_time_range){v->start_ns, v->start_ns + v->duration_ns};
    }
}

/* Of a cell it is not known what ran beside what: communication has what work leaves of it. Cells
 * of one batch and time follow each other. */
static void take_cells(build *b)
{
    const pp_activity *a = b->activity;
    for (size_t i = 0; i < a->n_cells;) {
        const pp_activity_cell *first = &a->cells[i];
        double waited = 0, worked = 0;
        for (; i < a->n_cells && a->cells[i].batch == first->batch &&
               a->cells[i].start_ns == first->start_ns;
             i++) {
            const pp_activity_cell *c = &a->cells[i];
            waited += c->phase == PP_PHASE_COMMUNICATION ? (double)c->busy_ns : 0;
            worked += c->phase == PP_PHASE_COMMUNICATION || c->phase == PP_PHASE_OTHER
                          ? 0
                          : (double)c->busy_ns;
        }
        process *p = process_of(b, first->batch);
        const double room = (double)first->width_ns;
        if (!p)
            continue;
        worked = fmin(worked, room);
        waited = fmin(waited, room - worked);
        p->waited_ns += waited;
        p->covered_ns += worked + waited;
    }
}

/* Batches whose pieces came as sums. */
static int find_sums(const pp_activity *a, bool **ret, pp_error *err)
{
    *ret = calloc(a->n_batches + 1, sizeof **ret);
    if (!*ret)
        return pp_error_nomem(err);
    for (size_t i = 0; i < a->n_cells; i++)
        (*ret)[a->cells[i].batch] = true;
    return 0;
}

static int compare_steps(const void *a, const void *b)
{
    const own_step *x = a, *y = b;
    return (x->span.start_ns > y->span.start_ns) - (x->span.start_ns < y->span.start_ns);
}

/* Steps follow each other: whatever a process says of itself, no time is two steps'. */
static void set_apart(process *p)
{
    int64_t end = INT64_MIN;
    for (size_t i = 0; i < p->n_steps; i++) {
        pp_time_range *span = &p->steps[i].span;
        span->start_ns = span->start_ns > end ? span->start_ns : end;
        span->end_ns = span->end_ns > span->start_ns ? span->end_ns : span->start_ns;
        end = span->end_ns;
        p->rank->step_ns += (double)(span->end_ns - span->start_ns);
    }
}

static int take_steps(build *b, pp_error *err)
{
    const pp_activity *a = b->activity;
    PP_CLEANUP_FREE bool *sums = NULL;
    if (find_sums(a, &sums, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_steps; i++) {
        const pp_activity_step *s = &a->steps[i];
        process *p = process_of(b, s->batch);
        if (!p)
            continue;
        p->steps[p->n_steps++] = (own_step){.number = s->number,
                                            .capture = a->batches[s->batch].capture,
                                            .span = {s->start_ns, s->start_ns + s->duration_ns},
                                            .told = !sums[s->batch]};
        p->rank->steps++;
    }
    for (size_t i = 0; i < b->ranks->n; i++)
        if (b->processes[i].n_steps > 0)
            qsort(b->processes[i].steps, b->processes[i].n_steps, sizeof(own_step), compare_steps);
    for (size_t i = 0; i < b->ranks->n; i++)
        set_apart(&b->processes[i]);
    return 0;
}

/* Of a span, communication beside which nothing else ran. */
static int64_t waited(const process *p, pp_time_range span)
{
    int64_t sum = 0;
    for (size_t i = pp_spans_find(p->waits.of, p->waits.n, span.start_ns);
         i < p->waits.n && p->waits.of[i].start_ns < span.end_ns; i++) {
        pp_time_range wait = p->waits.of[i];
        wait.start_ns = wait.start_ns > span.start_ns ? wait.start_ns : span.start_ns;
        wait.end_ns = wait.end_ns < span.end_ns ? wait.end_ns : span.end_ns;
        sum += wait.end_ns - wait.start_ns - pp_spans_cover(p->work.of, p->work.n, wait);
    }
    return sum;
}

/* Of the mean of own times: steps of one capture are alike, and ranks are captured at times of
 * their own. */
static int find_own_error(process *p, pp_error *err)
{
    PP_CLEANUP_FREE double *values = calloc(p->n_steps + 1, sizeof *values);
    PP_CLEANUP_FREE uint32_t *stretch = calloc(p->n_steps + 1, sizeof *stretch);
    size_t n = 0;
    const own_step *first = NULL, *last = NULL;
    if (!values || !stretch)
        return pp_error_nomem(err);
    for (size_t i = 0; i < p->n_steps; i++) {
        const own_step *s = &p->steps[i];
        if (!s->told)
            continue;
        values[n] = s->own_ns;
        stretch[n] = last ? stretch[n - 1] + (s->capture != last->capture) : 0;
        first = first ? first : s;
        last = s;
        n++;
    }
    const pp_series series = {
        .n = n, .values = values, .stretch = stretch, .least = LEAST_STEPS, .drawn = true};
    const pp_spread_mean own = pp_series_mean(&series);
    p->rank->own_stderr = own.standard_error;
    const bool drawn_well =
        n > 0 && (stretch[n - 1] > 0 || last->span.end_ns - first->span.start_ns >= LONG_NS);
    p->rank->own_freedom = drawn_well ? own.freedom : (double)NAN;
    return 0;
}

/* Sums become means of a step. */
static int settle(process *p, pp_error *err)
{
    pp_rank *r = p->rank;
    double told = 0, step = 0, wait = 0;
    p->waits.n = pp_spans_join(p->waits.of, p->waits.n);
    p->work.n = pp_spans_join(p->work.of, p->work.n);
    r->wait_ns = p->waited_ns;
    for (size_t i = 0; i < p->n_steps; i++) {
        own_step *s = &p->steps[i];
        const double length = (double)(s->span.end_ns - s->span.start_ns);
        const double waits = (double)waited(p, s->span);
        s->own_ns = length - waits;
        r->wait_ns += waits;
        p->covered_ns += waits + (double)pp_spans_cover(p->work.of, p->work.n, s->span);
        told += s->told;
        step += s->told ? length : 0;
        wait += s->told ? waits : 0;
    }
    if (find_own_error(p, err) < 0)
        return -1;
    if (r->steps == 0)
        return 0;
    p->all_ns = r->step_ns / (double)r->steps;
    r->step_ns = told >= LEAST_STEPS ? step / told : p->all_ns;
    r->wait_ns = told >= LEAST_STEPS ? wait / told : r->wait_ns / (double)r->steps;
    r->own_ns = r->step_ns - r->wait_ns;
    return 0;
}

/* ---- what for ---- */

/* Sums of each layer of the activity, and before them of each process' own phases. */
typedef struct sums {
    double ns[PP_PHASE_IDLE];
    double calls[PP_PHASE_IDLE];
} sums;

static sums *sums_of(const pp_activity *a, sums *all, uint32_t batch, int32_t layer)
{
    const pp_activity_batch *b = &a->batches[batch];
    if (b->dwell)
        return NULL;
    if (layer == 0)
        return &all[b->process];
    const pp_activity_layer *found = pp_activity_find_layer(a, b->process, layer);
    return found ? &all[a->n_processes + (size_t)(found - a->layers)] : NULL;
}

static void add_up(const pp_activity *a, sums *all)
{
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *v = &a->intervals[i];
        sums *to = sums_of(a, all, v->batch, v->layer);
        if (!to || !pp_phase_of_item(v->phase))
            continue;
        to->ns[v->phase] += (double)v->duration_ns;
        to->calls[v->phase] += !v->goes_on;
    }
    for (size_t i = 0; i < a->n_cells; i++) {
        const pp_activity_cell *c = &a->cells[i];
        sums *to = sums_of(a, all, c->batch, c->layer);
        if (!to || !pp_phase_of_item(c->phase))
            continue;
        to->ns[c->phase] += (double)c->busy_ns;
        to->calls[c->phase] += (double)c->calls;
    }
}

static int compare_items(const void *a, const void *b)
{
    const pp_rank_item *x = a, *y = b;
    const int by = strcmp(x->layer, y->layer);
    return by ? by : (x->phase > y->phase) - (x->phase < y->phase);
}

/* The items of one activity's process, behind those that are there. */
static void list_items(const build *b, const sums *all, uint32_t of, pp_rank *to)
{
    const pp_activity *a = b->activity;
    for (size_t i = 0; i <= a->n_layers; i++) {
        const pp_activity_layer *l = i ? &a->layers[i - 1] : NULL;
        const sums *from = l ? &all[a->n_processes + i - 1] : &all[of];
        if (l && l->process != of)
            continue;
        for (unsigned phase = 0; phase < PP_PHASE_IDLE; phase++)
            if (from->ns[phase] > 0 || from->calls[phase] > 0)
                to->items[to->n_items++] =
                    (pp_rank_item){.layer = l ? l->name : "",
                                   .phase = (pp_phase)phase,
                                   .calls = from->calls[phase] / (double)to->steps,
                                   .ns = from->ns[phase] / (double)to->steps};
    }
}

/* Layers of one name are one, whichever agent saw them. */
static void merge_items(pp_rank *r)
{
    size_t kept = 0;
    qsort(r->items, r->n_items, sizeof *r->items, compare_items);
    for (size_t i = 0; i < r->n_items; i++) {
        if (kept == 0 || compare_items(&r->items[kept - 1], &r->items[i]) != 0) {
            r->items[kept++] = r->items[i];
            continue;
        }
        r->items[kept - 1].calls += r->items[i].calls;
        r->items[kept - 1].ns += r->items[i].ns;
    }
    r->n_items = kept;
}

/* Of each rank, and one more for what is of no layer. */
static void count_layers(const build *b, size_t *ret)
{
    for (size_t i = 0; i < b->activity->n_layers; i++)
        ret[b->of[b->activity->layers[i].process]]++;
    for (size_t i = 0; i < b->activity->n_processes; i++)
        ret[b->of[i]]++;
}

static int describe_items(build *b, pp_error *err)
{
    const pp_activity *a = b->activity;
    PP_CLEANUP_FREE sums *all = calloc(a->n_processes + a->n_layers + 1, sizeof *all);
    PP_CLEANUP_FREE size_t *layers = calloc(b->ranks->n + 1, sizeof *layers);
    if (!all || !layers)
        return pp_error_nomem(err);
    count_layers(b, layers);
    add_up(a, all);
    for (size_t at = 0; at < b->ranks->n; at++) {
        pp_rank *r = &b->ranks->ranks[at];
        r->items = calloc(layers[at] * PP_PHASE_IDLE + 1, sizeof *r->items);
        if (!r->items)
            return pp_error_nomem(err);
        for (uint32_t of = 0; r->steps > 0 && of < a->n_processes; of++)
            if (b->of[of] == at)
                list_items(b, all, of, r);
        if (r->steps > 0)
            r->items[r->n_items++] = (pp_rank_item){
                .layer = "",
                .phase = PP_PHASE_OTHER,
                .calls = 1,
                .ns = fmax(b->processes[at].all_ns - b->processes[at].covered_ns / (double)r->steps,
                           0)};
        merge_items(r);
    }
    return 0;
}

/* ---- who is waited for ---- */

static double median(double *values, size_t n)
{
    if (n == 0)
        return (double)NAN;
    pp_sort_doubles(values, n);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The median of the others' value; room for one each. */
static double of_others(const pp_ranks *r, const pp_rank *but, double (*value)(const pp_rank *),
                        double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (&r->ranks[i] != but && r->ranks[i].steps >= LEAST_STEPS)
            room[n++] = value(&r->ranks[i]);
    return median(room, n);
}

static double own_of(const pp_rank *r)
{
    return r->own_ns;
}

static double wait_of(const pp_rank *r)
{
    return r->wait_ns;
}

static double freedom(const pp_rank *r)
{
    return isfinite(r->own_freedom) ? r->own_freedom : 0;
}

static double variance(const pp_rank *r)
{
    return isfinite(r->own_stderr) ? r->own_stderr * r->own_stderr : (double)INFINITY;
}

static const pp_rank_item *find_item(const pp_rank *r, const pp_rank_item *like)
{
    return bsearch(like, r->items, r->n_items, sizeof *r->items, compare_items);
}

static int compare_excesses(const void *a, const void *b)
{
    const pp_rank_excess *x = a, *y = b;
    const double more = (y->item->ns - y->others_ns) - (x->item->ns - x->others_ns);
    return (more > 0) - (more < 0);
}

/* Communication is what others wait in, never what makes one slow. What no other has cannot be
 * compared. */
static void find_excesses(pp_ranks *r, double *room, pp_rank_excess *all)
{
    size_t found = 0;
    for (size_t i = 0; i < r->slowest->n_items; i++) {
        const pp_rank_item *item = &r->slowest->items[i];
        size_t n = 0;
        for (size_t k = 0; k < r->n; k++) {
            const pp_rank_item *its =
                &r->ranks[k] != r->slowest ? find_item(&r->ranks[k], item) : NULL;
            if (its)
                room[n++] = its->ns;
        }
        const pp_rank_excess e = {item, median(room, n)};
        if (item->phase != PP_PHASE_COMMUNICATION && item->ns - e.others_ns > r->behind_ns / 10)
            all[found++] = e;
    }
    qsort(all, found, sizeof *all, compare_excesses);
    r->n_excesses = found < PP_RANKS_EXCESSES ? found : PP_RANKS_EXCESSES;
    memcpy(r->excesses, all, r->n_excesses * sizeof *all);
}

static void find_late_steps(pp_ranks *r, const process *p, double others_ns)
{
    for (size_t i = 0; i < p->n_steps; i++) {
        const own_step *s = &p->steps[i];
        if (!s->told)
            continue;
        r->told_steps++;
        r->late_steps += s->own_ns > others_ns + r->behind_ns / 2;
        if (s->own_ns > r->worst_ns) {
            r->worst_ns = s->own_ns;
            r->worst_step = s->number;
        }
    }
}

/* Whether what it is behind by is more than chance, of any of n. How captures differ a single short
 * one does not say: then by more than any were seen to. */
static bool is_beyond_chance(const pp_ranks *r, const pp_rank *who, double others_stderr, size_t n,
                             double *room)
{
    const double theirs = of_others(r, who, freedom, room);
    if (!(r->behind_stderr < (double)INFINITY))
        return false;
    if (isnan(who->own_freedom) || !(theirs > 0))
        return r->behind_ns > UNSEEN * who->step_ns && r->behind_ns > SURE * r->behind_stderr;
    const double of = pp_student_freedom(who->own_stderr, who->own_freedom, others_stderr, theirs);
    return pp_student_p(r->behind_ns / r->behind_stderr, of) < CHANCE / (double)n;
}

/* It is so, and noticeably, and the others wait as it does not. */
static bool is_slowest(const pp_ranks *r, const pp_rank *who, double others_stderr, size_t n,
                       double *room)
{
    const double waits_less = of_others(r, who, wait_of, room) - who->wait_ns;
    return r->behind_ns > NOTICEABLE * who->step_ns && waits_less > r->behind_ns / 2 &&
           is_beyond_chance(r, who, others_stderr, n, room);
}

static int find_slowest(build *b, pp_error *err)
{
    pp_ranks *r = b->ranks;
    const pp_rank *who = NULL;
    size_t at = 0, n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const bool told = r->ranks[i].steps >= LEAST_STEPS;
        n += told;
        if (told && (!who || r->ranks[i].own_ns > who->own_ns)) {
            who = &r->ranks[i];
            at = i;
        }
    }
    PP_CLEANUP_FREE double *room = calloc(r->n + 1, sizeof *room);
    PP_CLEANUP_FREE pp_rank_excess *all = calloc(who ? who->n_items + 1 : 1, sizeof *all);
    if (!room || !all)
        return pp_error_nomem(err);
    if (n < 2)
        return 0;
    const double others_ns = of_others(r, who, own_of, room);
    r->behind_ns = who->own_ns - others_ns;
    const double others_stderr = sqrt(of_others(r, who, variance, room));
    r->behind_stderr = hypot(who->own_stderr, others_stderr);
    if (!is_slowest(r, who, others_stderr, n, room)) {
        r->behind_ns = r->behind_stderr = 0;
        return 0;
    }
    r->slowest = who;
    find_late_steps(r, &b->processes[at], others_ns);
    find_excesses(r, room, all);
    return 0;
}

/* ---- in and out ---- */

static int compare_ranks(const void *a, const void *b)
{
    const pp_rank *x = a, *y = b;
    const int by = (x->rank > y->rank) - (x->rank < y->rank);
    return by ? by : (x->process > y->process) - (x->process < y->process);
}

/* Whoever is slowest stays so, wherever it comes to stand. */
static void sort_ranks(pp_ranks *r)
{
    const int32_t slowest = r->slowest ? r->slowest->process : 0;
    qsort(r->ranks, r->n, sizeof *r->ranks, compare_ranks);
    for (size_t i = 0; r->slowest && i < r->n; i++)
        if (r->ranks[i].process == slowest) {
            r->slowest = &r->ranks[i];
            return;
        }
}

static bool is_alone(const pp_ranks *r)
{
    return r->n == 1 && r->ranks[0].world_size <= 1;
}

static int compare(build *b, pp_error *err)
{
    if (find_processes(b, err) < 0)
        return -1;
    if (is_alone(b->ranks) || b->ranks->n > PP_RANKS_MOST) {
        b->ranks->n = 0;
        return 0;
    }
    if (make_room(b, err) < 0 || take_steps(b, err) < 0)
        return -1;
    take_intervals(b);
    take_cells(b);
    for (size_t i = 0; i < b->ranks->n; i++)
        if (settle(&b->processes[i], err) < 0)
            return -1;
    if (describe_items(b, err) < 0 || find_slowest(b, err) < 0)
        return -1;
    sort_ranks(b->ranks);
    return 0;
}

int pp_ranks_compare(const pp_activity *activity, pp_ranks **ret, pp_error *err)
{
    build b = {.activity = activity, .ranks = calloc(1, sizeof(pp_ranks))};
    const int rc = b.ranks ? compare(&b, err) : pp_error_nomem(err);
    for (size_t i = 0; b.processes && i < b.ranks->n; i++) {
        free(b.processes[i].waits.of);
        free(b.processes[i].work.of);
        free(b.processes[i].steps);
    }
    free(b.processes);
    free(b.of);
    if (rc < 0) {
        pp_ranks_free(b.ranks);
        b.ranks = NULL;
    }
    *ret = b.ranks;
    return rc;
}

void pp_ranks_free(pp_ranks *ranks)
{
    for (size_t i = 0; ranks && i < ranks->n; i++)
        free(ranks->ranks[i].items);
    if (ranks)
        free(ranks->ranks);
    free(ranks);
}
