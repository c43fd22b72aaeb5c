/*
 * Where the time from a window's end until it can be read drifts, no phase of publication is that
 * of all readings. What one phase makes of them is right for some, though; what these say decides
 * the others, and so on until nothing changes. That may end beside the best, so it begins at
 * several.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/drift_search.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/match.h"
#include "estimate/regression/windows.h"

#define STARTS 4
#define ROUNDS 8
#define REACH 0.25 /* of a window, by which the lag may move from round to round */

/** One start, and where it has come to. */
typedef struct start {
    const pp_reg_problem *problem;
    const pp_reg_scrapes *scrapes;
    double phase;
    pp_reg_windows windows;
    pp_reg_lag lag;
} start;

/** One round; *ret_settled: it changed nothing. */
static int round_of(start *v, const pp_reg_lag_search *search, bool *ret_settled, pp_error *err)
{
    pp_reg_windows *w = &v->windows;
    const size_t n = w->n;
    PP_CLEANUP_FREE double *ends = malloc((n + 1) * sizeof *ends);
    if (!ends)
        return pp_error_nomem(err);
    memcpy(ends, w->ends, n * sizeof *ends);
    if (pp_reg_match(v->problem, v->scrapes, v->phase, search, w, &v->lag, err) < 0)
        return -1;
    *ret_settled = w->n == n && memcmp(ends, w->ends, n * sizeof *ends) == 0;
    return 0;
}

/** From what one phase makes of the readings. */
static int settle(start *v, pp_error *err)
{
    pp_reg_lag_search search = {0};
    bool settled = false;
    if (pp_reg_windows_init(&v->windows, v->scrapes, v->phase, NULL, false, err) < 0)
        return -1;
    for (int i = 0; i < ROUNDS && !settled; i++) {
        if (round_of(v, &search, &settled, err) < 0)
            return -1;
        if (!v->lag.known)
            return 0;
        search = (pp_reg_lag_search){
            .refine = true, .near = v->lag.lag, .reach = REACH * v->scrapes->window};
    }
    return settled ? 0 : pp_reg_lag_coarse(v->problem, &v->windows, &search, &v->lag, err);
}

static bool better(const start *a, const start *b)
{
    return a->lag.known && (!b->lag.known || a->lag.evidence < b->lag.evidence);
}

int pp_reg_drift_search(pp_reg_solver *s, pp_error *err)
{
    const double first = s->scrapes.phase, step = s->scrapes.window / STARTS;
    const pp_reg_problem usual = pp_reg_problem_usual(&s->problem, s->scrapes.window);
    start best = {0};
    int rc = 0;
    s->scrapes.drifts = true;
    for (int i = 0; i < STARTS && rc == 0; i++) {
        start v = {.problem = &usual, .scrapes = &s->scrapes, .phase = first + i * step};
        rc = settle(&v, err);
        if (rc == 0 && (i == 0 || better(&v, &best))) {
            pp_reg_windows_done(&best.windows);
            best = v;
        } else {
            pp_reg_windows_done(&v.windows);
        }
    }
    s->phase = best.phase;
    s->windows = best.windows;
    return rc;
}
