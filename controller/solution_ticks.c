/*
 * When the windows end that a GPU's driver gives (docs/isolated.md). It measures back to back, in
 * windows of its own, and whoever asks gets the sums up to the end of the latest one that is
 * published: so a value is of the time between two such ends, each up to a window and more before
 * it was read. Nothing says which; but replays come now faster, now slower, and each dwell has
 * another level: only where the ends are right are the values of a dwell as the number of replays
 * in their windows. Looked for are the length of a window, when one ends and how late it is
 * published; and, beside that, that a value is of the time since the one before, some time late.
 */
#include "controller/solution_internal.h"

#include <math.h>

#define MS 1e6
/* Of a driver's window: NVML's GPM on an H100 and an H200, some 100.1 ms. */
#define EVERY (100 * MS)
#define EVERY_OFF 0.004
/* ns between two that are tried, for each of what is looked for at the end of the time. */
#define STEP (10 * MS)
/* ns about the publication of a window: it is found no better, and reading all metrics takes 5 ms.
 */
#define UNSURE (20 * MS)
#define LATE_MOST (200 * MS) /* of what is read as it is */
#define FIRST (30e9)         /* ns that all is tried for; what is found there is carried on from */

/* Of a metric's range: dwells of less say nothing. */
#define LEVEL 0.02

/* How much worse ends are that can be no more: three standard errors, and what is no difference. */
#define WORSE 9.0
#define NOTHING 1e-6

enum { LEAST_FREEDOM = 8, LEAST_WINDOWS = 3, AROUND = 2 };

/* How far values are from what replays say, relative to their dwell's; less is better. */
typedef struct misfit {
    double squares;
    size_t freedom;
} misfit;

static double size_of(const misfit *f)
{
    return f->freedom < LEAST_FREEDOM ? (double)INFINITY : f->squares / (double)f->freedom;
}

typedef struct trial {
    pp_ticks ticks;
    misfit misfit;
} trial;

/* Of a dwell: its windows' values and the replays in them. */
static void add_dwell(misfit *f, const pp_problem *p, const pp_attribution_metric *m,
                      const pp_dwell *w, const pp_reading *r)
{
    const pp_windows s = pp_windows_of(&p->dwells, m, w, r);
    if (s.n < LEAST_WINDOWS || s.value < LEVEL * (m->max - m->min))
        return;
    f->squares += s.squares / (s.value * s.value);
    f->freedom += s.n - 1;
}

/* Of dwells that end until then. */
static misfit try(const pp_problem *p, const pp_attribution_metric *m, const pp_ticks *ticks,
                  int64_t until)
{
    pp_reading r = p->reading;
    r.ticks = *ticks;
    misfit f = {0};
    for (size_t i = 0; i < p->dwells.count; i++)
        if (p->dwells.items[i].end_ns <= until && p->dwells.items[i].calls > 0)
            add_dwell(&f, p, m, &p->dwells.items[i], &r);
    return f;
}

static void keep_better(trial *best, const pp_problem *p, const pp_attribution_metric *m,
                        pp_ticks ticks, int64_t until)
{
    const misfit f = try(p, m, &ticks, until);
    if (size_of(&f) < size_of(&best->misfit))
        *best = (trial){ticks, f};
}

static pp_ticks ticks_at(int64_t base, double every, double phase, double late)
{
    return (pp_ticks){
        .known = true, .base_ns = base, .every_ns = every, .phase_ns = phase, .late_ns = late};
}

/* All that ends may be, for the time until then. */
static trial look_everywhere(const pp_problem *p, const pp_attribution_metric *m, int64_t base,
                             int64_t until)
{
    trial best = {0};
    const double off = EVERY * STEP / fmax((double)(until - base), EVERY);
    const int most = (int)ceil(EVERY * EVERY_OFF / off);
    const int steps = (int)(EVERY / STEP);
    for (int i = -most; i <= most; i++)
        for (int j = 0; j < steps; j++)
            for (int k = 0; k < steps; k++)
                keep_better(&best, p, m, ticks_at(base, EVERY + i * off, j * STEP, k * STEP),
                            until);
    return best;
}

/* The same about what was found for a shorter time. */
static trial look_about(const pp_problem *p, const pp_attribution_metric *m, pp_ticks found,
                        int64_t until)
{
    trial best = {0};
    const double off = EVERY * STEP / (double)(until - found.base_ns) / 2;
    for (int i = -2 * AROUND; i <= 2 * AROUND; i++)
        for (int j = -AROUND; j <= AROUND; j++)
            for (int k = -AROUND; k <= AROUND; k++) {
                pp_ticks t = found;
                t.every_ns += i * off;
                t.phase_ns += j * STEP / 2;
                t.late_ns = fmax(0, t.late_ns + k * STEP / 2);
                keep_better(&best, p, m, t, until);
            }
    return best;
}

static trial find_ends(const pp_problem *p, const pp_attribution_metric *m, int64_t base,
                       int64_t end)
{
    double length = FIRST;
    int64_t until = (double)(end - base) <= length ? end : base + (int64_t)length;
    trial best = look_everywhere(p, m, base, until);
    while (best.ticks.known && until < end) {
        length *= 2;
        until = (double)(end - base) <= length ? end : base + (int64_t)length;
        best = look_about(p, m, best.ticks, until);
    }
    return best.ticks.known ? look_about(p, m, best.ticks, until) : best;
}

static trial find_late(const pp_problem *p, const pp_attribution_metric *m, int64_t base,
                       int64_t end)
{
    trial best = {0};
    for (int k = 0; k * STEP <= LATE_MOST; k++)
        keep_better(&best, p, m, ticks_at(base, 0, 0, k * STEP), end);
    return best;
}

/* By how much all ends may be earlier (-1) or later: where replays are even, and no dwell's windows
 * are few, nothing tells. */
static double doubt(const pp_problem *p, const pp_attribution_metric *m, const trial *best,
                    int sign)
{
    const double freedom = (double)best->misfit.freedom;
    const double most = size_of(&best->misfit) * (1 + WORSE / freedom) + NOTHING;
    double off = 0;
    while (off < LATE_MOST) {
        pp_ticks t = best->ticks;
        t.shift_ns = sign * (off + STEP / 2);
        const misfit f = try(p, m, &t, INT64_MAX);
        if (size_of(&f) > most)
            break;
        off += STEP / 2;
    }
    return off;
}

/* The first of the metrics that replays tell: all are read at once. */
static const pp_attribution_metric *metric_of(const pp_problem *p)
{
    for (size_t i = 0; i < p->n_metrics; i++)
        if (pp_isolated_tells(p->metric_ids[i]) && p->all[i].n_samples > 1)
            return &p->all[i];
    return NULL;
}

void pp_ticks_find(pp_problem *p)
{
    const pp_attribution_metric *m = metric_of(p);
    if (p->reading.window_ns != 0 || p->dwells.n_spans == 0 || !m)
        return;
    const int64_t base = p->dwells.spans[0].start_ns;
    const int64_t end = p->dwells.spans[p->dwells.n_spans - 1].end_ns;
    const trial late = find_late(p, m, base, end);
    const trial ends = find_ends(p, m, base, end);
    const trial *best = size_of(&ends.misfit) < size_of(&late.misfit) ? &ends : &late;
    if (!best->ticks.known)
        return;
    p->reading.ticks = best->ticks;
    p->reading.ticks.before_ns = doubt(p, m, best, -1);
    p->reading.ticks.after_ns = doubt(p, m, best, 1);
}

/* ns after the base up to which windows have ended that are published by then. */
static double read_until(const pp_ticks *t, int64_t stamp)
{
    return (double)(stamp - t->base_ns) - t->late_ns;
}

pp_attribution_span pp_ticks_range(const pp_ticks *t, int64_t stamp)
{
    const double end = pp_ticks_end(t, stamp);
    const double since = read_until(t, stamp) - (end - t->shift_ns);
    const bool earlier = t->every_ns > 0 && since < UNSURE;
    const bool later = t->every_ns > 0 && since > t->every_ns - UNSURE;
    return (pp_attribution_span){
        t->base_ns + llround(end - t->before_ns - STEP - (earlier ? t->every_ns : 0)),
        t->base_ns + llround(end + t->after_ns + STEP + (later ? t->every_ns : 0))};
}

double pp_ticks_end(const pp_ticks *t, int64_t stamp)
{
    const double read = read_until(t, stamp);
    const double end = t->every_ns > 0
                           ? t->phase_ns + t->every_ns * floor((read - t->phase_ns) / t->every_ns)
                           : read;
    return end + t->shift_ns;
}
