#include "estimate/problem/counted_steps.h"

#include "common/cleanup.h"
#include "estimate/activity/spans.h"

#include <math.h>
#include <stdlib.h>

/* NVML's and DCGM's power is the mean of the last second (nvmlDeviceGetPowerUsage). */
#define AVERAGED_NS INT64_C(1000000000)
/* Samples below which all of them say more of a rate than those between captures alone. */
#define LEAST_SAMPLES 5

/* ---- runs ---- */

/* A run whose steps took so many times as long as the median one is one with a pause. */
#define PAUSED 2.0

static double step_of(const pp_activity_run *run)
{
    return (double)run->duration_ns / (double)run->steps;
}

static int compare_runs(const void *a, const void *b)
{
    const double x = step_of(a), y = step_of(b);
    return (x > y) - (x < y);
}

/* Of the n runs' steps, ns; they are sorted by it. */
static double median_step(const pp_activity_run *runs, size_t n)
{
    double all = 0, below = 0;
    size_t i = 0;
    for (size_t k = 0; k < n; k++)
        all += (double)runs[k].steps;
    while (i + 1 < n && (below += (double)runs[i].steps) < all / 2)
        i++;
    return step_of(&runs[i]);
}

static void add_run(const pp_activity_run *run, double median, pp_counted_steps *to)
{
    if (run->steps > INT64_MAX - to->steps - to->paused || run->duration_ns > INT64_MAX - to->ns)
        return;
    if (step_of(run) > PAUSED * median) {
        to->paused += run->steps;
        return;
    }
    to->steps += run->steps;
    to->ns += run->duration_ns;
    to->between[to->count++] = (pp_time_range){run->start_ns, run->start_ns + run->duration_ns};
}

/* As many as there are of the processes. */
static size_t add_runs(const pp_activity *a, const bool *uses, pp_activity_run *scratch,
                       pp_counted_steps *to)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_runs; i++)
        if (uses[a->runs[i].process])
            scratch[n++] = a->runs[i];
    if (n == 0)
        return 0;
    qsort(scratch, n, sizeof *scratch, compare_runs);
    const double median = median_step(scratch, n);
    for (size_t i = 0; i < n; i++)
        add_run(&scratch[i], median, to);
    return n;
}

/* ---- between captures ---- */

/* Numbers that are missing within one capture, or behind one whose end is not known, may be those
 * of marked steps that were lost. */
static void add_between(const pp_marked_step *left, const pp_marked_step *right,
                        const pp_replay_runs *dwells, pp_counted_steps *to)
{
    const pp_time_range range = {left->span.end_ns, right->span.start_ns};
    const int64_t steps = right->number - left->number - 1;
    if (left->process != right->process || left->capture == right->capture || !left->ended ||
        steps <= 0 || range.end_ns <= range.start_ns || pp_replay_runs_touch(dwells, range))
        return;
    const int64_t ns = range.end_ns - range.start_ns;
    if (ns > INT64_MAX - to->ns || steps > INT64_MAX - to->steps)
        return;
    to->steps += steps;
    to->ns += ns;
    to->between[to->count++] = range;
}

int pp_counted_steps_find(const pp_activity *activity, const bool *uses,
                          const pp_marked_step *marked, size_t n, const pp_replay_runs *dwells,
                          pp_counted_steps *ret, pp_error *err)
{
    PP_CLEANUP_FREE pp_activity_run *scratch = calloc(activity->n_runs + 1, sizeof *scratch);
    *ret = (pp_counted_steps){.between = calloc(n + activity->n_runs + 1, sizeof *ret->between)};
    if (!ret->between || !scratch)
        return pp_error_nomem(err);
    const bool told = add_runs(activity, uses, scratch, ret) > 0;
    for (size_t i = 1; i < n && !told; i++)
        add_between(&marked[i - 1], &marked[i], dwells, ret);
    ret->count = pp_spans_join(ret->between, ret->count);
    return 0;
}

void pp_counted_steps_done(pp_counted_steps *counted)
{
    free(counted->between);
    *counted = (pp_counted_steps){0};
}

double pp_counted_step_ns(const pp_counted_steps *counted)
{
    return counted->steps > 0 ? (double)counted->ns / (double)counted->steps : (double)NAN;
}

static bool holds(const pp_counted_steps *counted, int64_t from, int64_t to)
{
    const size_t at = pp_spans_find(counted->between, counted->count, from);
    return at < counted->count && counted->between[at].start_ns <= from &&
           to <= counted->between[at].end_ns;
}

double pp_counted_steps_amount(const pp_counted_steps *counted, const pp_coverage *reading,
                               const pp_regression_metric *metric, double mean)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < metric->n_samples; i++) {
        const pp_time_range told = pp_coverage_time(reading, metric, i);
        if (!holds(counted, told.start_ns - AVERAGED_NS, told.end_ns))
            continue;
        sum += metric->samples[i].value;
        n++;
    }
    return (n >= LEAST_SAMPLES ? sum / (double)n : mean) * pp_counted_step_ns(counted) / 1e9;
}
