#include "sidecar/agent/windows.h"

#include <math.h>
#include <string.h>

#define APART INT64_C(1000000) /* ns from the likely lag, of one that another clock has */

/* Whether two groups know the same metrics. */
static bool are_alike(const pp_sampling_sums *a, const pp_sampling_sums *b)
{
    return memcmp(a->known, b->known, sizeof a->known) == 0;
}

/* Of two that know the same, if there are two, those of the fewest windows. */
static void choose_two(const pp_sampled *w, size_t *ret_one, size_t *ret_other)
{
    uint64_t least = 0;
    bool found = false, alike = false;
    for (size_t i = 0; i < w->n_groups; i++)
        for (size_t k = i + 1; k < w->n_groups; k++) {
            const bool same = are_alike(w->groups[i], w->groups[k]);
            const uint64_t windows = w->groups[i]->windows + w->groups[k]->windows;
            if (found && (same != alike ? alike : windows >= least))
                continue;
            found = true;
            alike = same;
            least = windows;
            *ret_one = i;
            *ret_other = k;
        }
}

/* Two groups become one. */
static int make_room(pp_sampled *w, pp_error *err)
{
    size_t one = 0, other = 1;
    if (w->n_groups < PP_SAMPLED_GROUPS)
        return 0;
    choose_two(w, &one, &other);
    if (pp_sampling_sums_merge(w->groups[one], w->groups[other], err) < 0)
        return -1;
    pp_sampling_sums_free(w->groups[other]);
    w->groups[other] = w->groups[--w->n_groups];
    return 0;
}

static int solve_all(pp_sampled *w, pp_error *err)
{
    pp_sampling_result *result = NULL;
    if (pp_sampling_solve((const pp_sampling_sums *const *)w->groups, w->n_groups, &result, err) <
        0)
        return -1;
    pp_sampling_result_free(w->result);
    w->result = result;
    return 0;
}

static void note_lag(pp_sampled *w, const pp_sampling_sums *sums, int64_t likely)
{
    const int64_t off = sums->lag - likely;
    w->joined = true;
    w->stamped = sums->stamped;
    w->lag = sums->lag;
    w->lag_stderr = (int64_t)hypot((double)sums->lag_stderr, (double)sums->lag_common);
    w->apart = w->apart || off > APART || off < -APART;
}

int pp_sampled_add(pp_sampled *w, pp_sampling *window, const pp_sampling_clock *clock,
                   pp_error *err)
{
    pp_sampling_sums *sums = NULL;
    w->joined = false;
    if (pp_sampling_join(window, clock, w->result, &sums, err) < 0)
        return -1;
    note_lag(w, sums, clock->likely);
    if (make_room(w, err) < 0) {
        pp_sampling_sums_free(sums);
        return -1;
    }
    w->groups[w->n_groups++] = sums;
    if (solve_all(w, err) < 0) {
        /* With it there are too many kernels for one solution, say: the others are still good. */
        pp_sampling_sums_free(w->groups[--w->n_groups]);
        return -1;
    }
    return 0;
}

void pp_sampled_free(pp_sampled *w)
{
    pp_sampling_result_free(w->result);
    for (size_t i = 0; i < w->n_groups; i++)
        pp_sampling_sums_free(w->groups[i]);
    *w = (pp_sampled){0};
}
