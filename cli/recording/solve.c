#include "cli/recording/solve.h"

#include "estimate/solve.h"
#include "sidecar/gpu/nvml.h"

#include <string.h>

/* A GPU's counters come a window late at most, and nothing passes them on. */
#define MAX_LAG_NS INT64_C(200000000)
#define MAX_STANDARD_ERROR 0.05

pp_estimates_options pp_solve_defaults(void)
{
    return (pp_estimates_options){.method = PP_METHOD_AUTO,
                                  .attribution = {.window_ns = PP_NVML_WINDOW_NS,
                                                  .scrape_ns = PP_NVML_WINDOW_NS,
                                                  .max_lag_ns = MAX_LAG_NS,
                                                  .max_standard_error = MAX_STANDARD_ERROR}};
}

static int solve_gpu(const pp_activity *activity, const char *gpu,
                     const pp_estimates_options *options, pp_solve_fn each, void *user,
                     pp_error *err)
{
    pp_estimates *solution = NULL;
    if (pp_estimates_solve(activity, gpu, options, &solution, err) < 0)
        return -1;
    int rc = each(user, solution, err);
    (void)pp_estimates_free(solution);
    return rc;
}

int pp_solve(const pp_activity *activity, const pp_estimates_options *options, pp_solve_fn each,
             void *user, pp_error *err)
{
    pp_strings gpus = {0};
    int rc = pp_activity_list_gpus(activity, &gpus, err);
    for (size_t i = 0; rc == 0 && i < gpus.count; i++)
        rc = solve_gpu(activity, gpus.items[i], options, each, user, err);
    pp_strings_free(&gpus);
    return rc;
}
