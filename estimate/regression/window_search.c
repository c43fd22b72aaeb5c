/* Windows where scrapes alone do not tell them: by when collections are published, and by values.
 */
#include <stdlib.h>

#include "common/cleanup.h"
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

/** Decides by the values which collection each scrape read, where the clock leaves it open. */
static int windows_match(pp_reg_solver *s, pp_error *err)
{
    PP_CLEANUP_FREE double *misfit = calloc(s->scrapes.n * PP_REG_PAIRS + 1, sizeof *misfit);
    pp_reg_lag lag;
    if (!misfit)
        return pp_error_nomem(err);
    if (pp_reg_lag_coarse(&s->problem, &s->windows, &(pp_reg_lag_search){.refine = true}, &lag,
                          err) < 0)
        return -1;
    if (lag.known &&
        pp_reg_misfit(&s->problem, &s->scrapes, &s->windows, lag.lag, s->phase, misfit, err) < 0)
        return -1;
    pp_reg_windows_done(&s->windows);
    return pp_reg_windows_init(&s->windows, &s->scrapes, s->phase, misfit, false, err);
}

int pp_reg_windows_make(pp_reg_solver *s, pp_error *err)
{
    s->phase = s->scrapes.phase;
    if (s->scrapes.grid && s->scrapes.searched && s->columns.n > 0 && phase_search(s, err) < 0)
        return -1;
    if (pp_reg_windows_init(&s->windows, &s->scrapes, s->phase, NULL, true, err) < 0)
        return -1;
    const int rounds = pp_reg_has(s->in, PP_REGRESSION_MATCHING) ? MATCH_ROUNDS : 0;
    for (int round = 0; round < rounds && s->scrapes.grid && s->columns.n > 0; round++)
        if (windows_match(s, err) < 0)
            return -1;
    return 0;
}
