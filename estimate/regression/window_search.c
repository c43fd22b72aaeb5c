/* Windows where scrapes alone do not tell them: by when collections are published, and by values.
 */
#include <string.h>

#include "estimate/regression/drift_search.h"
#include "estimate/regression/lag.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/match.h"
#include "estimate/regression/parts.h"
#include "estimate/regression/solver.h"
#include "estimate/regression/window_search.h"
#include "estimate/regression/windows.h"

/* Where in the feasible arc collections are published, when scrapes alone do not tell. */
#define PHASE_STARTS 12
#define PHASE_ROUNDS 3
#define MATCH_ROUNDS 2
#define IN_STEP 0.5 /* of the scrapes, those that fall on a publication */
#define APART 2     /* times the jitter of publications */

/** Tries one publication phase; keeps it when the coarse fit is better than *best. */
static int phase_try(pp_reg_solver *s, double phase, double *best, pp_error *err)
{
    pp_reg_windows w;
    pp_reg_lag lag;
    if (pp_reg_windows_init(&w, &s->scrapes, phase, NULL, false, err) < 0)
        return -1;
    int rc = pp_reg_lag_coarse(&s->problem, &w, &(pp_reg_lag_search){0}, &lag, err);
    pp_reg_windows_done(&w);
    if (rc == 0 && lag.known && lag.evidence < *best) {
        *best = lag.evidence;
        s->phase = phase;
    }
    return rc;
}

/** Scrapes slower than collections do not tell when these are published: the fit does. */
static int phase_search(pp_reg_solver *s, pp_error *err)
{
    double best = PP_REG_INF, from = s->scrapes.phase - s->scrapes.half;
    double step = 2 * s->scrapes.half / PHASE_STARTS;
    for (size_t i = 0; i < PHASE_STARTS; i++)
        if (phase_try(s, from + step * ((double)i + 0.5), &best, err) < 0)
            return -1;
    for (int round = 0; round < PHASE_ROUNDS; round++) {
        double at = s->phase;
        step *= 0.5;
        if (phase_try(s, at - step, &best, err) < 0 || phase_try(s, at + step, &best, err) < 0)
            return -1;
    }
    return 0;
}

static bool can_match(const pp_reg_solver *s)
{
    return pp_reg_has(s->in, PP_REGRESSION_MATCHING) && s->scrapes.grid && s->columns.n > 0;
}

/** Windows of collections that are published at this phase. */
static int windows_at(pp_reg_solver *s, double phase, pp_error *err)
{
    s->phase = phase;
    if (pp_reg_windows_init(&s->windows, &s->scrapes, phase, NULL, true, err) < 0)
        return -1;
    const pp_reg_lag_search search = {.refine = true};
    pp_reg_lag lag;
    for (int round = 0; round < MATCH_ROUNDS && can_match(s); round++)
        if (pp_reg_match(&s->problem, &s->scrapes, phase, &search, &s->windows, &lag, err) < 0)
            return -1;
    return 0;
}

/** Tries another publication phase; its windows stay where they fit better than *best. */
static int side_try(pp_reg_solver *s, double phase, double *best, pp_error *err)
{
    pp_reg_windows before = s->windows;
    const double phase_before = s->phase;
    pp_reg_lag lag = {0};
    memset(&s->windows, 0, sizeof s->windows);
    int rc = windows_at(s, phase, err);
    if (rc == 0)
        rc = pp_reg_lag_coarse(&s->problem, &s->windows, &(pp_reg_lag_search){.refine = true}, &lag,
                               err);
    if (rc == 0 && lag.known && lag.evidence < *best) {
        *best = lag.evidence;
        pp_reg_windows_done(&before);
        return 0;
    }
    pp_reg_windows_done(&s->windows);
    s->windows = before;
    s->phase = phase_before;
    return rc;
}

/**
 * Where scrapes fall on publications, most may have read a collection before it was published, or
 * most of them behind: matching holds on to whichever the phase takes for usual. Which of the two
 * it is, the fit tells.
 */
static int side_search(pp_reg_solver *s, pp_error *err)
{
    const double phase = s->phase, apart = APART * s->scrapes.jitter;
    pp_reg_lag lag;
    if (pp_reg_lag_coarse(&s->problem, &s->windows, &(pp_reg_lag_search){.refine = true}, &lag,
                          err) < 0)
        return -1;
    double best = lag.known ? lag.evidence : PP_REG_INF;
    return side_try(s, phase + apart, &best, err) < 0 ? -1 : side_try(s, phase - apart, &best, err);
}

/** Whether values are enough to say what was read: no more than there are unknowns fit any windows.
 */
static bool tell_readings(const pp_reg_solver *s)
{
    const pp_reg_scrapes *r = &s->scrapes;
    size_t n = 0;
    for (size_t j = 0; j < r->n; j++)
        n += pp_reg_observed(&s->timeline, r->stamps[j] - r->window, r->stamps[j]);
    return n >= 2 * s->columns.n + 10;
}

int pp_reg_windows_make(pp_reg_solver *s, pp_error *err)
{
    s->phase = s->scrapes.phase;
    if (s->scrapes.since_before && can_match(s) && tell_readings(s))
        return pp_reg_drift_search(s, err);
    s->scrapes.drifts = false;
    if (s->scrapes.grid && s->scrapes.searched && s->columns.n > 0 && phase_search(s, err) < 0)
        return -1;
    if (windows_at(s, s->phase, err) < 0)
        return -1;
    return can_match(s) && pp_reg_windows_doubtful(&s->scrapes, s->phase) > IN_STEP
               ? side_search(s, err)
               : 0;
}
