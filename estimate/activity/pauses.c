#include "estimate/activity/pauses.h"

#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>

/* Of the median step. */
#define PAUSED 2.0
/* Of the next shorter run's step, and of all steps: for runs of one step. */
#define APART 1.5
#define MOST_PAUSED 0.1

double pp_run_step_ns(const pp_activity_run *run)
{
    return (double)run->duration_ns / (double)run->steps;
}

static int compare_runs(const void *a, const void *b)
{
    const double x = pp_run_step_ns(a), y = pp_run_step_ns(b);
    return (x > y) - (x < y);
}

/* Of the sorted runs: the one in which the middle step is. */
static size_t median_of(const pp_activity_run *runs, size_t n, double all)
{
    double below = 0;
    size_t i = 0;
    while (i + 1 < n && (below += (double)runs[i].steps) < all / 2)
        i++;
    return i;
}

static double limit_of(const pp_activity_run *runs, size_t n)
{
    double all = 0, above = 0;
    for (size_t i = 0; i < n; i++)
        all += (double)runs[i].steps;
    const size_t median = median_of(runs, n, all);
    const double limit = PAUSED * pp_run_step_ns(&runs[median]);
    double apart = (double)INFINITY;
    for (size_t i = n; i-- > 0 && pp_run_step_ns(&runs[i]) > limit;) {
        above += (double)runs[i].steps;
        const double shorter = i > 0 ? pp_run_step_ns(&runs[i - 1]) : 0;
        if (above <= fmax(1, MOST_PAUSED * all) && pp_run_step_ns(&runs[i]) >= APART * shorter)
            apart = fmax(shorter, limit);
    }
    if (above <= 0)
        return (double)INFINITY;
    return runs[median].steps == 1 ? apart : limit;
}

int pp_pauses_limit(const pp_activity *a, const bool *uses, double *ret, pp_error *err)
{
    PP_CLEANUP_FREE pp_activity_run *runs = calloc(a->n_runs + 1, sizeof *runs);
    size_t n = 0;
    if (!runs)
        return pp_error_nomem(err);
    for (size_t i = 0; i < a->n_runs; i++)
        if (uses[a->runs[i].process] && a->runs[i].steps > 0)
            runs[n++] = a->runs[i];
    if (n > 0)
        qsort(runs, n, sizeof *runs, compare_runs);
    *ret = n > 0 ? limit_of(runs, n) : (double)INFINITY;
    return 0;
}
