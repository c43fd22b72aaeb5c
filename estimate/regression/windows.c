/*
 * From scrapes to distinct collections. Nominally the scrape at t read collection
 * floor((t - phase) / W); publication jitters by some ms, so a scrape close to a publication may
 * have read the one before or after. Which, the repeats and changes tell: the cheapest path
 * through three states per scrape (Viterbi).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/reading.h"
#include "estimate/regression/scrapes.h"
#include "estimate/regression/windows.h"

#define STATES PP_REG_STATES
#define MOST_WINDOWS 4 /* of a value that is of several */

typedef struct path {
    double cost[STATES];
    int from[STATES];
} path;

/** Cost of having read another collection than the nominal one, by how far off that would be. */
static double displacement(const pp_reg_scrapes *s, double u, int state)
{
    double frac = u - floor(u), scale = s->window / s->jitter;
    if (state == 0)
        return 0.1 + frac * scale;
    if (state == 2)
        return 0.1 + (1 - frac) * scale;
    return 0;
}

/** Too close to a publication to say by the clock alone which collection was read. */
static bool doubtful(const pp_reg_scrapes *s, double phase, size_t j)
{
    double u = (s->stamps[j] - phase) / s->window, frac = u - floor(u);
    double band = fmin(2 * s->jitter / s->window, 0.25);
    return frac < band || frac > 1 - band;
}

double pp_reg_windows_doubtful(const pp_reg_scrapes *s, double phase)
{
    size_t n = 0;
    for (size_t j = 0; j < s->n; j++)
        n += doubtful(s, phase, j);
    return s->n ? (double)n / (double)s->n : 0;
}

static void path_step(path *now, const path *before, double k, double k_before, int8_t change,
                      const double *misfit)
{
    for (int a = 0; a < STATES; a++) {
        now->cost[a] = PP_REG_INF;
        now->from[a] = 1;
        for (int b = 0; b < STATES; b++) {
            double c = before->cost[b] + pp_reg_change_cost(change, (k + a) - (k_before + b)) +
                       (misfit ? misfit[a * STATES + b] : 0);
            if (c < now->cost[a]) {
                now->cost[a] = c;
                now->from[a] = b;
            }
        }
    }
}

/** number[j]: which collection scrape j read; `misfit` as for pp_reg_windows_init. */
static int decode(const pp_reg_scrapes *s, double phase, const double *misfit, double *number,
                  pp_error *err)
{
    PP_CLEANUP_FREE path *paths = malloc((s->n + 1) * sizeof *paths);
    if (!paths)
        return pp_error_nomem(err);
    for (size_t j = 0; j < s->n; j++) {
        double u = (s->stamps[j] - phase) / s->window;
        number[j] = floor(u);
        paths[j] = (path){{0}, {1, 1, 1}};
        if (j > 0)
            path_step(&paths[j], &paths[j - 1], number[j], number[j - 1], s->change[j],
                      misfit ? misfit + j * PP_REG_PAIRS : NULL);
        for (int a = 0; a < STATES; a++)
            paths[j].cost[a] += displacement(s, u, a);
    }
    int at = 1;
    if (s->n > 0)
        for (int a = 0; a < STATES; a++)
            if (paths[s->n - 1].cost[a] < paths[s->n - 1].cost[at])
                at = a;
    for (size_t j = s->n; j-- > 0;) {
        int here = at;
        at = paths[j].from[here];
        number[j] += here - 1;
    }
    return 0;
}

static int number_find(const pp_reg_scrapes *s, double phase, const double *misfit, double *number,
                       pp_error *err)
{
    return s->drifts && misfit ? pp_reg_reading_decode(s, phase, misfit, number, err)
                               : decode(s, phase, misfit, number, err);
}

static int windows_alloc(pp_reg_windows *w, const pp_reg_scrapes *s, pp_error *err)
{
    memset(w, 0, sizeof *w);
    w->n_metrics = s->n_metrics;
    w->window = s->window;
    w->scrape = s->scrape;
    w->grid = s->grid;
    w->half = s->half;
    w->min_lag = 0;
    w->stamps = malloc((s->n + 1) * sizeof *w->stamps);
    w->ends = malloc((s->n + 1) * sizeof *w->ends);
    w->lengths = malloc((s->n + 1) * sizeof *w->lengths);
    w->since_before = s->since_before;
    w->values = malloc((s->n * s->n_metrics + 1) * sizeof *w->values);
    if (!w->stamps || !w->ends || !w->lengths || !w->values) {
        pp_reg_windows_done(w);
        return pp_error_nomem(err);
    }
    return 0;
}

/** Opens a window for scrape j, or fills gaps of the last one from another reading of it. */
static void window_add(pp_reg_windows *w, const pp_reg_scrapes *s, size_t j, bool fresh, double end,
                       double length)
{
    if (fresh) {
        w->stamps[w->n] = s->stamps[j];
        w->ends[w->n] = end;
        w->lengths[w->n] = length;
        w->n++;
    }
    for (size_t m = 0; m < s->n_metrics; m++) {
        double *v = &w->values[m * s->n + w->n - 1];
        if (fresh || isnan(*v))
            *v = s->values[m * s->n + j];
    }
}

/** Whether leaving out the doubtful scrapes leaves enough of them. */
static bool sure_enough(const pp_reg_scrapes *s, double phase)
{
    return pp_reg_windows_doubtful(s, phase) <= 0.75;
}

/*
 * A stamp is when its scrape started; the value may have been read a scrape interval later, and its
 * window may have ended after the stamp. Numbers of windows may all be one too high besides, where
 * scrapes go in step with collections. So only that no window was read before it ended is certain.
 */
static double least_lag(const pp_reg_windows *w, const pp_reg_scrapes *s)
{
    double most = -PP_REG_INF;
    for (size_t i = 0; i < w->n; i++)
        most = fmax(most, w->ends[i] - w->stamps[i]);
    return fmin(-s->half, most - fmin(s->scrape, 2 * s->window));
}

/** What scrape j's value is of, where each is of all windows since the one before; 0: not known, or
 * of too long. */
static double length_of(const pp_reg_scrapes *s, double phase, const double *number, bool sure,
                        size_t j)
{
    if (!s->since_before)
        return s->window;
    if (j == 0 || (sure && doubtful(s, phase, j - 1)))
        return 0;
    const double windows = number[j] - number[j - 1];
    return windows <= MOST_WINDOWS ? windows * s->window : 0;
}

int pp_reg_windows_init(pp_reg_windows *w, const pp_reg_scrapes *s, double phase,
                        const double *misfit, bool sure, pp_error *err)
{
    sure = sure && s->grid && sure_enough(s, phase);
    PP_CLEANUP_FREE double *number = malloc((s->n + 1) * sizeof *number);
    if (!number)
        return pp_error_nomem(err);
    if (s->grid && number_find(s, phase, misfit, number, err) < 0)
        return -1;
    if (windows_alloc(w, s, err) < 0)
        return -1;
    for (size_t j = 0; j < s->n; j++) {
        bool same = s->change[j] == PP_REG_SAME;
        if (s->change[j] == PP_REG_STALE || (sure && doubtful(s, phase, j)))
            continue;
        if (!s->grid) {
            if (!same || w->n == 0)
                window_add(w, s, j, true, s->stamps[j], s->window);
            continue;
        }
        /* decode() sets all of it */
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        double end = phase + number[j] * s->window;
        double length = length_of(s, phase, number, sure, j);
        bool fresh = w->n == 0 || end > w->ends[w->n - 1] + 0.5 * s->window;
        if (length > 0)
            window_add(w, s, j, fresh, end, length);
    }
    if (w->grid)
        w->min_lag = least_lag(w, s);
    /* Rows were laid out for every scrape; close the gaps. */
    for (size_t m = 1; m < s->n_metrics; m++)
        memmove(w->values + m * w->n, w->values + m * s->n, w->n * sizeof *w->values);
    return 0;
}

void pp_reg_windows_done(pp_reg_windows *w)
{
    free(w->stamps);
    free(w->ends);
    free(w->lengths);
    free(w->values);
    memset(w, 0, sizeof *w);
}
