/*
 * Over few windows a wrong period does little harm, so few candidates are tried there; each longer
 * stretch of windows then tells the period more exactly, near the best one so far.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/parts.h"
#include "estimate/regression/period.h"
#include "estimate/regression/window_search.h"
#include "estimate/regression/windows.h"

#define REACH 0.004       /* of the period, on either side */
#define STEP (1.0 / 3)    /* of a window, by which neighbouring candidates differ in the end */
#define LEAST_WINDOWS 120 /* of the first stretch; four for each unknown besides */
#define GROWTH 3
#define HALVINGS 5
/* In -2 log evidence by window and metric, against the period as given. Squares overstate
 * differences, since a step's draw is shared by many windows. */
#define CLEARLY 0.2

typedef struct candidate {
    double period;
    double evidence; /* by window; less is better */
    bool known;
} candidate;

/** Scrapes from .. to - 1, with no long pause between: behind one windows may have another phase,
 * of an exporter that was started anew. */
typedef struct run {
    size_t from, to;
} run;

static run longest_run(const pp_reg_scrapes *s)
{
    run best = {0, 0}, now = {0, 0};
    for (size_t j = 0; j < s->n; j++) {
        if (j > 0 && s->stamps[j] - s->stamps[j - 1] > pp_reg_pause(s))
            now.from = j;
        now.to = j + 1;
        if (now.to - now.from > best.to - best.from)
            best = now;
    }
    return best;
}

/** The newest scrapes of a run, which as many windows were read by. */
typedef struct stretch {
    pp_reg_scrapes scrapes;
    size_t windows;
    double step; /* between candidates, of the period */
} stretch;

static int stretch_init(stretch *r, const pp_reg_solver *s, run of, double windows, pp_error *err)
{
    const pp_reg_scrapes *all = &s->scrapes;
    double each = fmax(1, all->window / fmax(all->scrape, 1));
    double lag = s->problem.max_lag / fmax(all->scrape, 1);
    double want = ceil(windows * each + lag);
    size_t n = want < (double)(of.to - of.from) ? (size_t)want : of.to - of.from;
    PP_CLEANUP_FREE bool *pick = calloc(all->n + 1, 1);
    if (!pick)
        return pp_error_nomem(err);
    memset(pick + (of.to - n), 1, n);
    *r = (stretch){.windows = (size_t)windows, .step = STEP / windows};
    return pp_reg_scrapes_pick(all, pick, &r->scrapes, err);
}

/** Windows of a stretch by the clock alone. */
static int stretch_by_clock(pp_reg_solver *s, const stretch *r, pp_reg_lag *ret, pp_error *err)
{
    pp_reg_windows w;
    if (pp_reg_windows_init(&w, &r->scrapes, r->scrapes.phase, NULL, true, err) < 0)
        return -1;
    int rc =
        pp_reg_lag_coarse(&s->problem, &w, &(pp_reg_lag_search){.windows = r->windows}, ret, err);
    pp_reg_windows_done(&w);
    return rc;
}

/** And by their values: where delays drift, the clock alone would tell the period of these. */
static int stretch_by_values(pp_reg_solver *s, stretch *r, pp_reg_lag *ret, pp_error *err)
{
    const pp_reg_scrapes all = s->scrapes;
    const pp_reg_problem usual = pp_reg_problem_usual(&s->problem, r->scrapes.window);
    s->scrapes = r->scrapes;
    int rc = pp_reg_windows_make(s, err);
    if (rc == 0)
        rc = pp_reg_lag_coarse(&usual, &s->windows,
                               &(pp_reg_lag_search){.windows = r->windows, .refine = true}, ret,
                               err);
    pp_reg_windows_done(&s->windows);
    s->scrapes = all;
    return rc;
}

static int candidate_try(pp_reg_solver *s, stretch *r, double period, candidate *best,
                         pp_error *err)
{
    pp_reg_lag lag;
    if (pp_reg_scrapes_set_window(&r->scrapes, period, err) < 0)
        return -1;
    if (!r->scrapes.grid)
        return 0;
    const bool drifts = s->scrapes.since_before && pp_reg_has(s->in, PP_REGRESSION_MATCHING);
    int rc = drifts ? stretch_by_values(s, r, &lag, err) : stretch_by_clock(s, r, &lag, err);
    if (rc == 0 && lag.known && (!best->known || lag.evidence < best->evidence))
        *best = (candidate){period, lag.evidence, true};
    return rc;
}

/** Tries `n` steps on either side of the best one so far. */
static int candidates_try(pp_reg_solver *s, stretch *r, int n, candidate *best, pp_error *err)
{
    double middle = best->period;
    best->known = false;
    for (int i = -n; i <= n; i++)
        /* the step is set by stretch_init() */
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        if (candidate_try(s, r, middle * (1 + i * r->step), best, err) < 0)
            return -1;
    return 0;
}

static int refine(pp_reg_solver *s, stretch *r, candidate *best, pp_error *err)
{
    double step = r->step;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = best->period;
        step *= 0.5;
        if (candidate_try(s, r, middle * (1 - step), best, err) < 0 ||
            candidate_try(s, r, middle * (1 + step), best, err) < 0)
            return -1;
    }
    return 0;
}

/** One stretch: better ones near the best so far; the last one refines that. */
static int stretch_try(pp_reg_solver *s, run of, double windows, bool last, candidate *best,
                       pp_error *err)
{
    const bool first = windows < 1.5 * fmax(LEAST_WINDOWS, 4 * (double)s->columns.n);
    stretch r = {.step = 1};
    if (stretch_init(&r, s, of, windows, err) < 0)
        return -1;
    int rc = candidates_try(s, &r, first ? (int)ceil(REACH / r.step) : GROWTH, best, err);
    if (rc == 0 && last)
        rc = refine(s, &r, best, err);
    pp_reg_scrapes_done(&r.scrapes);
    return rc;
}

/** By all windows, each scrape's decided by its values where the clock leaves it open. */
static int period_judge(pp_reg_solver *s, double period, candidate *ret, pp_error *err)
{
    pp_reg_lag lag;
    *ret = (candidate){period, 0, false};
    if (pp_reg_scrapes_set_window(&s->scrapes, period, err) < 0)
        return -1;
    if (!s->scrapes.grid)
        return 0;
    if (pp_reg_windows_make(s, err) < 0)
        return -1;
    int rc = pp_reg_lag_coarse(&s->problem, &s->windows, &(pp_reg_lag_search){.refine = true}, &lag,
                               err);
    pp_reg_windows_done(&s->windows);
    *ret = (candidate){period, lag.evidence, lag.known};
    return rc;
}

static int period_choose(pp_reg_solver *s, double found, pp_error *err)
{
    const double given = s->scrapes.window, metrics = (double)s->in->n_metrics;
    candidate same, other;
    if (found == given)
        return 0;
    if (period_judge(s, found, &other, err) < 0 || period_judge(s, given, &same, err) < 0)
        return -1;
    if (!other.known || (same.known && same.evidence - other.evidence < CLEARLY * metrics))
        return 0;
    return pp_reg_scrapes_set_window(&s->scrapes, found, err);
}

int pp_reg_period_find(pp_reg_solver *s, pp_error *err)
{
    const run of = longest_run(&s->scrapes);
    const double all = fmin((double)(of.to - of.from), PP_REG_MAX_SEARCH_WINDOWS);
    double windows = fmax(LEAST_WINDOWS, 4 * (double)s->columns.n);
    candidate best = {s->scrapes.window, 0, false};
    if (!s->scrapes.grid || s->columns.n == 0 || all < LEAST_WINDOWS)
        return 0;
    for (bool last = false; !last; windows *= GROWTH) {
        last = windows >= all;
        if (stretch_try(s, of, fmin(windows, all), last, &best, err) < 0)
            return -1;
        if (!best.known)
            return 0;
    }
    return period_choose(s, best.period, err);
}
