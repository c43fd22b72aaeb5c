/*
 * Parts: an exporter that is started anew collects on another grid than before. Where scrapes pause
 * for long it may have been; whether it was, the windows tell, which are found for each part by
 * itself. What is not on the grid of the part with most windows is left out: a fit over both would
 * smear the edges of all windows, and its standard errors would not know.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/exporter_restarts.h"
#include "estimate/regression/lag.h"
#include "estimate/regression/scrapes.h"
#include "estimate/regression/solver.h"
#include "estimate/regression/window_search.h"
#include "estimate/regression/windows.h"

#define MAX_PARTS 64
#define CLEAR 30.0           /* contrast from which a part's lag is taken to be found */
#define SAME_GRID (1 / 25.0) /* of a window: edges that are off by less do no harm */

/** Scrapes between two long pauses. */
typedef struct part {
    size_t from, to; /* scrapes from .. to - 1 */
    size_t windows;
    bool clear;   /* on a grid, whose place is known: */
    double place; /* of the windows' ends, modulo W */
} part;

static size_t parts_find(const pp_reg_scrapes *s, part *parts)
{
    size_t n = 0;
    for (size_t j = 0; j < s->n; j++) {
        bool pause = n == 0 || s->stamps[j] - s->stamps[j - 1] > pp_reg_pause(s);
        if (pause && n < MAX_PARTS)
            parts[n++] = (part){.from = j};
        parts[n - 1].to = j + 1;
    }
    return n;
}

/** Solves the solver's scrapes, which are the part's alone, for where the windows lie. */
static int place_find(pp_reg_solver *s, part *v, pp_error *err)
{
    pp_reg_lag lag;
    if (pp_reg_windows_make(s, err) < 0 ||
        pp_reg_lag_coarse(&s->problem, &s->windows, &(pp_reg_lag_search){.refine = true}, &lag,
                          err) < 0)
        return -1;
    v->windows = s->windows.n;
    v->clear = s->scrapes.grid && lag.known && lag.contrast > CLEAR;
    v->place = s->phase - lag.lag;
    return 0;
}

static int part_solve(pp_reg_solver *s, part *v, bool *pick, pp_error *err)
{
    pp_reg_scrapes all = s->scrapes;
    memset(pick, 0, all.n);
    memset(pick + v->from, 1, v->to - v->from);
    if (pp_reg_scrapes_pick(&all, pick, &s->scrapes, err) < 0) {
        s->scrapes = all;
        return -1;
    }
    int rc = place_find(s, v, err);
    pp_reg_windows_done(&s->windows);
    pp_reg_scrapes_done(&s->scrapes);
    s->scrapes = all;
    return rc;
}

static bool other_grid(const part *a, const part *b, double window)
{
    double apart = (a->place - b->place) / window;
    return fabs(apart - round(apart)) >= SAME_GRID;
}

/* Whether a part's place is sure: fewer windows than unknowns fit any. */
static bool placed(const pp_reg_solver *s, const part *v)
{
    return v->clear && v->windows >= s->columns.n + 10;
}

/** Marks what is on the grid of the part with most windows; true where that is not all. */
static bool parts_pick(const pp_reg_solver *s, const part *parts, size_t n, bool *pick)
{
    const part *most = parts;
    double window = s->scrapes.window;
    bool all = true;
    for (size_t i = 1; i < n; i++)
        most = parts[i].windows > most->windows ? &parts[i] : most;
    for (size_t i = 0; i < n; i++) {
        bool keep =
            !placed(s, most) || !placed(s, &parts[i]) || !other_grid(&parts[i], most, window);
        memset(pick + parts[i].from, keep, parts[i].to - parts[i].from);
        all = all && keep;
    }
    return !all;
}

int pp_reg_parts_keep(pp_reg_solver *s, pp_error *err)
{
    part parts[MAX_PARTS] = {{0}};
    size_t n = parts_find(&s->scrapes, parts);
    pp_reg_scrapes kept;
    if (n < 2)
        return 0;
    PP_CLEANUP_FREE bool *pick = calloc(s->scrapes.n + 1, 1);
    if (!pick)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        if (part_solve(s, &parts[i], pick, err) < 0)
            return -1;
    if (!parts_pick(s, parts, n, pick))
        return 0;
    if (pp_reg_scrapes_pick(&s->scrapes, pick, &kept, err) < 0)
        return -1;
    pp_reg_scrapes_done(&s->scrapes);
    s->scrapes = kept;
    return 0;
}
