#include "estimate/times/spread.h"

#include "common/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct step {
    int64_t process, capture;
    double ns;
    double pieces; /* ns of its pieces together */
} step;

typedef struct piece {
    uint32_t item, step;
    double ns, busy; /* busy NaN: not known */
} piece;

typedef struct run {
    int64_t process, start_ns;
    double steps, ns;
} run;

/* An item's values of each step. */
typedef struct series {
    double *ns, *busy, *known; /* known: of ns, in pieces whose busy time is */
} series;

struct pp_spread {
    bool coarse; /* single steps' times are not known */
    step *steps;
    size_t n_steps, room_steps;
    piece *pieces; /* once settled by item; those of none are last */
    size_t n_pieces, room_pieces;
    size_t *first; /* of each item's pieces, and of those after the last item's */
    uint32_t n_items;
    run *runs; /* once settled by process and time */
    size_t n_runs, room_runs;
    double *values[3];   /* of each step, or run: room of a series */
    uint32_t *stretches; /* in which each step is */
    uint32_t *processes; /* in which each run is */
};

pp_spread *pp_spread_new(void)
{
    return calloc(1, sizeof(pp_spread));
}

void pp_spread_free(pp_spread *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < sizeof s->values / sizeof *s->values; i++)
        free(s->values[i]);
    free(s->stretches);
    free(s->processes);
    free(s->first);
    free(s->steps);
    free(s->pieces);
    free(s->runs);
    free(s);
}

int pp_spread_step(pp_spread *s, int64_t process, int64_t capture, int64_t ns, size_t *ret,
                   pp_error *err)
{
    if (s->n_steps == UINT32_MAX)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "there are too many steps");
    if (pp_array_reserve(&s->steps, &s->room_steps, s->n_steps + 1, sizeof *s->steps, err) < 0)
        return -1;
    s->steps[s->n_steps] = (step){.process = process, .capture = capture, .ns = (double)ns};
    *ret = s->n_steps++;
    return 0;
}

int pp_spread_add(pp_spread *s, const pp_spread_piece *p, pp_error *err)
{
    if (p->step >= s->n_steps)
        return pp_error_set(err, PP_ERR_INVALID, "a piece is of no step");
    if (pp_array_reserve(&s->pieces, &s->room_pieces, s->n_pieces + 1, sizeof *s->pieces, err) < 0)
        return -1;
    s->pieces[s->n_pieces++] = (piece){p->item, (uint32_t)p->step, (double)p->ns,
                                       p->busy_ns < 0 ? (double)NAN : (double)p->busy_ns};
    if (p->item != PP_SPREAD_REST) {
        s->steps[p->step].pieces += (double)p->ns;
        s->n_items = p->item >= s->n_items ? p->item + 1 : s->n_items;
    }
    s->coarse |= p->coarse;
    return 0;
}

int pp_spread_count(pp_spread *s, const pp_spread_run *r, pp_error *err)
{
    if (pp_array_reserve(&s->runs, &s->room_runs, s->n_runs + 1, sizeof *s->runs, err) < 0)
        return -1;
    s->runs[s->n_runs++] = (run){r->process, r->start_ns, (double)r->steps, (double)r->ns};
    return 0;
}

/* ---- means and their standard errors ---- */

static pp_spread_mean tell_of_steps(const pp_spread *s, const double *values, const double *weights)
{
    const pp_series all = {.n = s->n_steps,
                           .values = values,
                           .weights = weights,
                           .stretch = s->stretches,
                           .drawn = true,
                           .coarse = s->coarse};
    return pp_series_mean(&all);
}

static int compare_times(const void *a, const void *b)
{
    const run *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static int settle_runs(pp_spread *s, pp_error *err)
{
    if (s->n_runs == 0)
        return 0;
    qsort(s->runs, s->n_runs, sizeof *s->runs, compare_times);
    free(s->processes);
    s->processes = calloc(s->n_runs + 1, sizeof *s->processes);
    if (!s->processes)
        return pp_error_nomem(err);
    for (size_t i = 1; i < s->n_runs; i++)
        s->processes[i] =
            s->processes[i - 1] + (s->runs[i].process != s->runs[i - 1].process ? 1 : 0);
    return 0;
}

/* A stretch is a capture of a process. */
static int settle_stretches(pp_spread *s, pp_error *err)
{
    free(s->stretches);
    s->stretches = calloc(s->n_steps + 1, sizeof *s->stretches);
    if (!s->stretches)
        return pp_error_nomem(err);
    for (size_t i = 1; i < s->n_steps; i++) {
        const step *now = &s->steps[i], *before = &s->steps[i - 1];
        const bool follows = now->process == before->process && now->capture == before->capture;
        s->stretches[i] = s->stretches[i - 1] + (follows ? 0 : 1);
    }
    return 0;
}

/* ---- what is asked ---- */

static size_t place_of(const pp_spread *s, const piece *p)
{
    return p->item < s->n_items ? p->item : s->n_items;
}

/* By item, in the order in which they came: those of one are then a stretch of the array. `next`
 * has room as `first` has. */
static void deal_pieces(const pp_spread *s, piece *sorted, size_t *first, size_t *next)
{
    for (size_t i = 0; i < s->n_pieces; i++)
        first[place_of(s, &s->pieces[i]) + 1]++;
    for (size_t i = 0; i <= s->n_items; i++) {
        first[i + 1] += first[i];
        next[i] = first[i];
    }
    for (size_t i = 0; i < s->n_pieces; i++)
        sorted[next[place_of(s, &s->pieces[i])]++] = s->pieces[i];
}

static int sort_pieces(pp_spread *s, pp_error *err)
{
    piece *sorted = malloc((s->n_pieces + 1) * sizeof *sorted);
    size_t *first = calloc((size_t)s->n_items + 2, sizeof *first);
    size_t *next = calloc((size_t)s->n_items + 2, sizeof *next);
    if (!sorted || !first || !next) {
        free(sorted);
        free(first);
        free(next);
        return pp_error_nomem(err);
    }
    deal_pieces(s, sorted, first, next);
    free(next);
    free(s->pieces);
    free(s->first);
    s->pieces = sorted;
    s->room_pieces = s->n_pieces + 1;
    s->first = first;
    return 0;
}

int pp_spread_settle(pp_spread *s, pp_error *err)
{
    const size_t most = s->n_steps > s->n_runs ? s->n_steps : s->n_runs;
    for (size_t i = 0; i < sizeof s->values / sizeof *s->values; i++) {
        free(s->values[i]);
        s->values[i] = calloc(most + 1, sizeof **s->values);
        if (!s->values[i])
            return pp_error_nomem(err);
    }
    if (settle_stretches(s, err) < 0 || settle_runs(s, err) < 0)
        return -1;
    return sort_pieces(s, err);
}

/* An item's values of all steps; whether all its busy times are known. */
static bool take_values(pp_spread *s, uint32_t item, series *to)
{
    bool all = true;
    *to = (series){s->values[0], s->values[1], s->values[2]};
    for (size_t i = 0; i < sizeof s->values / sizeof *s->values; i++)
        memset(s->values[i], 0, s->n_steps * sizeof *s->values[i]);
    for (size_t i = s->first[item]; i < s->first[item + 1]; i++) {
        const piece *p = &s->pieces[i];
        to->ns[p->step] += p->ns;
        all &= !isnan(p->busy);
        if (isnan(p->busy))
            continue;
        to->known[p->step] += p->ns;
        to->busy[p->step] += p->busy;
    }
    return all && s->first[item] < s->first[item + 1];
}

static const pp_spread_mean unknown = {(double)NAN, (double)NAN, (double)NAN};

pp_spread_times pp_spread_item(pp_spread *s, uint32_t item)
{
    series v;
    if (item >= s->n_items || s->first[item] == s->first[item + 1])
        return (pp_spread_times){unknown, unknown, unknown};
    const bool all = take_values(s, item, &v);
    return (pp_spread_times){.total = tell_of_steps(s, v.ns, NULL),
                             .busy = all ? tell_of_steps(s, v.busy, NULL) : unknown,
                             .busy_share = tell_of_steps(s, v.busy, v.known)};
}

pp_spread_times pp_spread_rest(pp_spread *s)
{
    series v;
    const bool all = take_values(s, s->n_items, &v);
    for (size_t i = 0; i < s->n_steps; i++)
        v.ns[i] = s->steps[i].ns - s->steps[i].pieces;
    return (pp_spread_times){.total = tell_of_steps(s, v.ns, NULL),
                             .busy = all ? tell_of_steps(s, v.busy, NULL) : unknown,
                             .busy_share = all ? tell_of_steps(s, v.busy, v.ns) : unknown};
}

pp_spread_mean pp_spread_marked(pp_spread *s)
{
    for (size_t i = 0; i < s->n_steps; i++)
        s->values[0][i] = s->steps[i].ns;
    return tell_of_steps(s, s->values[0], NULL);
}

pp_spread_mean pp_spread_shared(pp_spread_mean whole, double told)
{
    if (!(whole.mean > 0) || !(told >= 0))
        return unknown;
    return (pp_spread_mean){told, told / whole.mean * whole.standard_error, whole.freedom};
}

pp_spread_mean pp_spread_counted(pp_spread *s)
{
    for (size_t i = 0; i < s->n_runs; i++) {
        s->values[0][i] = s->runs[i].ns;
        s->values[1][i] = s->runs[i].steps;
    }
    const pp_series all = {
        .n = s->n_runs, .values = s->values[0], .weights = s->values[1], .stretch = s->processes};
    return pp_series_mean(&all);
}
