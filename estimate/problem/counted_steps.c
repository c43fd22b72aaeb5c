#include "estimate/problem/counted_steps.h"

#include "estimate/activity/pauses.h"
#include "estimate/activity/spans.h"

#include <math.h>
#include <stdlib.h>

/* NVML's and DCGM's power is the mean of the last second (nvmlDeviceGetPowerUsage). */
#define AVERAGED_NS INT64_C(1000000000)
/* Samples below which all of them say more of a rate than those between captures alone. */
#define LEAST_SAMPLES 5

/* ---- runs ---- */

static void add_run(const pp_activity_run *run, double limit, pp_counted_steps *to)
{
    if (run->steps > INT64_MAX - to->steps - to->paused || run->duration_ns > INT64_MAX - to->ns)
        return;
    if (pp_run_step_ns(run) > limit) {
        to->paused += run->steps;
        return;
    }
    to->steps += run->steps;
    to->ns += run->duration_ns;
    to->between[to->count++] = (pp_time_range){run->start_ns, run->start_ns + run->duration_ns};
}

/* *ret: as many as there are of the processes. */
static int add_runs(const pp_activity *a, const bool *uses, pp_counted_steps *to, size_t *ret,
                    pp_error *err)
{
    double limit;
    *ret = 0;
    if (pp_pauses_limit(a, uses, &limit, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_runs; i++) {
        if (!uses[a->runs[i].process])
            continue;
        add_run(&a->runs[i], limit, to);
        ++*ret;
    }
    return 0;
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
    size_t told;
    *ret = (pp_counted_steps){.between = calloc(n + activity->n_runs + 1, sizeof *ret->between)};
    if (!ret->between)
        return pp_error_nomem(err);
    if (add_runs(activity, uses, ret, &told, err) < 0)
        return -1;
    for (size_t i = 1; i < n && told == 0; i++)
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
