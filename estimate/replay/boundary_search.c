/*
 * When the windows end that a GPU's driver gives (docs/replay.md). It measures back to back, in
 * windows of its own, and whoever asks gets the sums up to the end of the latest one that is
 * published: so a value is of the time between two such ends, each up to a window and more before
 * it was read. Nothing says which; but replays come now faster, now slower, and each dwell has
 * another level: only where the ends are right are the values of a dwell as the number of replays
 * in their windows. Looked for are the length of a window, when one ends and how late it is
 * published; and, beside that, that a value is of the time since the one before, some time late.
 */
#include "estimate/replay/boundary_search.h"

#include <math.h>
#include <stdlib.h>

#define MS 1e6
/* Of a driver's window: NVML's GPM on an H100 and an H200, some 100.1 ms. */
#define EVERY (100 * MS)
#define EVERY_OFF 0.004
#define LATE_MOST (200 * MS) /* of what is read as it is */
#define FIRST (30e9)         /* ns that all is tried for; what is found there is carried on from */

/* Of a metric's range: dwells of less say nothing. */
#define LEVEL 0.02

/* How much worse ends are that can be no more: three standard errors, and what is no difference. */
#define WORSE 9.0
#define NOTHING 1e-6
/* And how much better than most that are tried they have to be, since the best of thousands is not
 * right for being best: by more standard errors than chance makes of so many, and by half. */
#define CHANCE 4.0
#define BETTER 0.5
/* Beyond that values are noise, whatever their ends. */
#define SCATTER_MOST 0.2

/* What is not looked at: it would take long, and tells no more. */
#define FIRST_MOST (4 * FIRST) /* ns */
#define FURTHER_MOST 4.0       /* times as long as what was looked at before */
enum { DWELL_SAMPLES_MOST = 1000, SAMPLES_MOST = 4096 };

#define MOST_WINDOWS 0.75
enum { LEAST_FREEDOM = 40, FITTED = 3, LEAST_WINDOWS = 3, AROUND = 2, CLIMBS_MOST = 8 };
enum { LATE_STEPS = 10, LATE_MOST_STEPS = 20 }; /* until EVERY, and LATE_MOST */

/* The dwells that are looked at, in the order of their ends. */
typedef struct evidence {
    const pp_problem *p;
    const pp_regression_metric *m;
    const pp_replay_run **dwells;
    size_t n;
    int64_t base_ns;
} evidence;

/* How far values are from what replays say, relative to their dwell's; less is better. */
typedef struct misfit {
    double squares;
    size_t freedom;
} misfit;

static double size_of(const misfit *f)
{
    return f->freedom < LEAST_FREEDOM ? (double)INFINITY
                                      : f->squares / (double)(f->freedom - FITTED);
}

typedef struct trial {
    pp_boundaries ticks;
    misfit misfit;
} trial;

typedef struct trials {
    trial *of;
    size_t n;
} trials;

/* Of a dwell: its windows' values and the replays in them. */
static void add_dwell(misfit *f, const evidence *e, const pp_replay_run *w, const pp_coverage *r)
{
    const pp_windows s = pp_coverage_windows(&e->p->dwells, e->m, w, r);
    if (s.n < LEAST_WINDOWS || s.value < LEVEL * (e->m->max - e->m->min))
        return;
    f->squares += s.squares / (s.value * s.value);
    f->freedom += s.n - 1;
}

/* Of the first `n` dwells. */
static misfit try(const evidence *e, size_t n, const pp_boundaries *ticks)
{
    pp_coverage r = e->p->reading;
    r.ticks = *ticks;
    misfit f = {0};
    for (size_t i = 0; i < n; i++)
        add_dwell(&f, e, e->dwells[i], &r);
    return f;
}

static void add_trial(trials *to, const evidence *e, size_t n, pp_boundaries ticks)
{
    to->of[to->n++] = (trial){ticks, try(e, n, &ticks)};
}

/* The least, but of those that have most of the windows: which has few of them fits them easily. */
static trial best_of(const trials *all)
{
    size_t most = 0;
    trial best = {0};
    for (size_t i = 0; i < all->n; i++)
        most = all->of[i].misfit.freedom > most ? all->of[i].misfit.freedom : most;
    for (size_t i = 0; i < all->n; i++)
        if ((double)all->of[i].misfit.freedom >= MOST_WINDOWS * (double)most &&
            size_of(&all->of[i].misfit) < size_of(&best.misfit))
            best = all->of[i];
    return best;
}

static pp_boundaries ticks_at(int64_t base, double every, double phase, double late)
{
    return (pp_boundaries){
        .known = true, .base_ns = base, .every_ns = every, .phase_ns = phase, .late_ns = late};
}

static double span_of(const evidence *e, size_t n)
{
    return fmax((double)(e->dwells[n - 1]->end_ns - e->base_ns), EVERY);
}

/* Lengths of windows that are tried, to each side of the usual one, `off` from each other. */
static int lengths_for(double off)
{
    return (int)floor(EVERY * EVERY_OFF / off);
}

/* All that ends may be, for the first `n` dwells. */
static int look_everywhere(const evidence *e, size_t n, trials *all, pp_error *err)
{
    const double off = EVERY * PP_BOUNDARIES_STEP / span_of(e, n);
    const int most = lengths_for(off);
    free(all->of);
    *all =
        (trials){.of = calloc((size_t)(2 * most + 1) * LATE_STEPS * LATE_STEPS, sizeof *all->of)};
    if (!all->of)
        return pp_error_nomem(err);
    for (int i = -most; i <= most; i++)
        for (int j = 0; j < LATE_STEPS; j++)
            for (int k = 0; k < LATE_STEPS; k++)
                add_trial(all, e, n,
                          ticks_at(e->base_ns, EVERY + i * off, j * PP_BOUNDARIES_STEP,
                                   k * PP_BOUNDARIES_STEP));
    return 0;
}

/* The same about what was found for fewer. */
static trial look_about(const evidence *e, size_t n, pp_boundaries found)
{
    enum { SIDE = 2 * AROUND + 1, ALL = (2 * SIDE - 1) * SIDE * SIDE };
    trial of[ALL];
    trials all = {.of = of};
    const double off = EVERY * PP_BOUNDARIES_STEP / span_of(e, n) / 2;
    for (int i = -2 * AROUND; i <= 2 * AROUND; i++)
        for (int j = -AROUND; j <= AROUND; j++)
            for (int k = -AROUND; k <= AROUND; k++) {
                pp_boundaries t = found;
                t.every_ns += i * off;
                t.phase_ns += j * PP_BOUNDARIES_STEP / 2;
                t.late_ns = fmin(LATE_MOST, fmax(0, t.late_ns + k * PP_BOUNDARIES_STEP / 2));
                if (fabs(t.every_ns - EVERY) <= EVERY * EVERY_OFF)
                    add_trial(&all, e, n, t);
            }
    return best_of(&all);
}

/* Again and again, as long as that is better. */
static trial climb(const evidence *e, size_t n, pp_boundaries from)
{
    trial best = look_about(e, n, from);
    for (int i = 0; i < CLIMBS_MOST && best.ticks.known; i++) {
        const trial next = look_about(e, n, best.ticks);
        if (!(size_of(&next.misfit) < size_of(&best.misfit)))
            break;
        best = next;
    }
    return best;
}

/* How many dwells end within so many ns. */
static size_t dwells_until(const evidence *e, double length)
{
    size_t n = 0;
    while (n < e->n && (double)(e->dwells[n]->end_ns - e->base_ns) <= length)
        n++;
    return n;
}

/* From the dwells that were looked at to more and more; `*n`: to which. */
static trial carry_on(const evidence *e, trial best, size_t *n)
{
    for (double length = 2 * span_of(e, *n); *n < e->n; length *= 2) {
        const size_t next = dwells_until(e, length);
        if (next == *n)
            continue;
        if (span_of(e, next) > FURTHER_MOST * span_of(e, *n))
            break;
        const trial more = climb(e, next, best.ticks);
        if (!more.ticks.known)
            break;
        best = more;
        *n = next;
    }
    return best;
}

static int find_ends(const evidence *e, trial *best, trials *all, size_t *n, pp_error *err)
{
    const size_t first = dwells_until(e, FIRST);
    *best = (trial){0};
    for (*n = first ? first : 1; span_of(e, *n) <= FIRST_MOST; *n = 2 * *n < e->n ? 2 * *n : e->n) {
        if (look_everywhere(e, *n, all, err) < 0)
            return -1;
        *best = best_of(all);
        if (best->ticks.known || *n == e->n)
            break;
    }
    if (!best->ticks.known)
        return 0;
    *best = carry_on(e, *best, n);
    const trial finer = climb(e, *n, best->ticks);
    *best = finer.ticks.known ? finer : *best;
    return 0;
}

static trial find_late(const evidence *e, size_t n, const trial *ends)
{
    trial of[LATE_MOST_STEPS + 2];
    trials all = {.of = of};
    for (int k = 0; k <= LATE_MOST_STEPS; k++)
        add_trial(&all, e, n, ticks_at(e->base_ns, 0, 0, k * PP_BOUNDARIES_STEP));
    all.of[all.n++] = *ends;
    return best_of(&all);
}

/* All ends so much later, of the same windows: they are published as much sooner after. */
static pp_boundaries shifted(pp_boundaries t, double by)
{
    t.phase_ns += by;
    t.late_ns -= by;
    return t;
}

/* By how much all ends may be earlier (-1) or later: what leaves too few windows to say is no
 * worse. */
static double doubt(const evidence *e, size_t n, const trial *best, int sign)
{
    const double freedom = (double)best->misfit.freedom;
    const double most = size_of(&best->misfit) * (1 + WORSE / freedom) + NOTHING;
    double off = 0;
    while (off < LATE_MOST) {
        const pp_boundaries t = shifted(best->ticks, sign * (off + PP_BOUNDARIES_STEP / 2));
        const misfit f = try(e, n, &t);
        if (f.freedom >= LEAST_FREEDOM && size_of(&f) > most)
            break;
        off += PP_BOUNDARIES_STEP / 2;
    }
    return off;
}

static int compare_trials(const void *left, const void *right)
{
    const double a = size_of(&((const trial *)left)->misfit);
    const double b = size_of(&((const trial *)right)->misfit);
    return a < b ? -1 : a > b;
}

static bool is_better_than_most(const trial *best, trials *all)
{
    size_t told = 0;
    qsort(all->of, all->n, sizeof *all->of, compare_trials);
    while (told < all->n && isfinite(size_of(&all->of[told].misfit)))
        told++;
    const double chance = 1 - CHANCE * sqrt(2 / (double)best->misfit.freedom);
    return told && best->ticks.known && size_of(&best->misfit) < SCATTER_MOST * SCATTER_MOST &&
           size_of(&best->misfit) < fmin(BETTER, chance) * size_of(&all->of[told / 2].misfit);
}

static void take_ticks(pp_coverage *to, const evidence *e, size_t n, const trial *best)
{
    pp_boundaries t = best->ticks;
    t.before_ns = doubt(e, n, best, -1);
    t.after_ns = doubt(e, n, best, 1);
    t.seen_ns = span_of(e, n);
    to->ticks = t;
}

static int find_in(pp_problem *p, const evidence *e, pp_error *err)
{
    trial ends;
    trials all = {0};
    size_t n = 0;
    const int rc = find_ends(e, &ends, &all, &n, err);
    if (rc == 0 && ends.ticks.known) {
        const trial best = find_late(e, n, &ends);
        if (is_better_than_most(&best, &all))
            take_ticks(&p->reading, e, n, &best);
    }
    free(all.of);
    return rc;
}

/* ---- what is looked at ---- */

static int compare_ends(const void *left, const void *right)
{
    const pp_replay_run *a = *(const pp_replay_run *const *)left;
    const pp_replay_run *b = *(const pp_replay_run *const *)right;
    if (a->end_ns != b->end_ns)
        return a->end_ns < b->end_ns ? -1 : 1;
    return a < b ? -1 : a > b;
}

static size_t samples_in(const pp_regression_metric *m, const pp_replay_run *w)
{
    return pp_coverage_first(m, w->end_ns) - pp_coverage_first(m, w->start_ns);
}

/* Those with some replays and samples, neither of them too many in all. */
static int gather(const pp_problem *p, const pp_regression_metric *m, evidence *ret, pp_error *err)
{
    const pp_replay_runs *d = &p->dwells;
    size_t samples = 0;
    size_t kept = 0;
    *ret = (evidence){.p = p, .m = m, .dwells = calloc(d->count + 1, sizeof(pp_replay_run *))};
    if (!ret->dwells)
        return pp_error_nomem(err);
    for (size_t i = 0; i < d->count; i++)
        if (d->items[i].calls > 0)
            ret->dwells[ret->n++] = &d->items[i];
    qsort(ret->dwells, ret->n, sizeof(pp_replay_run *), compare_ends);
    for (size_t i = 0; i < ret->n; i++) {
        const size_t more = samples_in(m, ret->dwells[i]);
        if (more < LEAST_WINDOWS || more > DWELL_SAMPLES_MOST || samples + more > SAMPLES_MOST)
            continue;
        samples += more;
        ret->dwells[kept++] = ret->dwells[i];
    }
    ret->n = kept;
    ret->base_ns = kept ? ret->dwells[0]->start_ns : 0;
    return 0;
}

/* All metrics are read at once: the first that tells it. */
int pp_boundaries_find(pp_problem *p, pp_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_metrics && !p->reading.ticks.known; i++) {
        evidence e;
        if (p->reading.window_ns != 0 || p->dwells.count == 0 ||
            !pp_metric_is_replayed(p->metric_ids[i]))
            continue;
        rc = gather(p, &p->all[i], &e, err);
        if (rc == 0 && e.n > 0)
            rc = find_in(p, &e, err);
        free(e.dwells);
    }
    return rc;
}
