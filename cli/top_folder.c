/* What a run has written so far, as results. */
#include "cli/recording/recording.h"
#include "cli/recording/solve.h"
#include "cli/results/results.h"
#include "cli/top.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static int take_batch(void *user, const pp_wire_batch *batch, pp_error *err)
{
    return pp_activity_builder_add(user, batch, err);
}

static int take_solution(void *user, const pp_estimates *solution, pp_error *err)
{
    json_t *gpus = user;
    return json_array_append_new(gpus, pp_results_of_solution(solution)) == 0 ? 0
                                                                              : pp_error_nomem(err);
}

/* Samples of the GPUs are written at the end: times are known before. */
static int solve(const char *folder, pp_activity_builder *builder, json_t *results, pp_error *err)
{
    pp_estimates_options options = pp_solve_defaults();
    if (pp_recording_batches(folder, take_batch, builder, err) < 0)
        return -1;
    return pp_solve(pp_activity_builder_get(builder), &options, take_solution,
                    json_object_get(results, "gpus"), err);
}

int pp_top_read_folder(void *folder, json_t **ret, pp_error *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/batches.jsonl", (const char *)folder);
    const bool recorded = access(path, F_OK) == 0;
    (void)snprintf(path, sizeof path, "%.4000s/results.json", (const char *)folder);
    if (!recorded || access(path, F_OK) == 0)
        return pp_results_read(folder, ret, err);
    pp_activity_builder *builder = pp_activity_builder_new();
    json_t *results = json_pack("{s:i, s:[]}", "version", 1, "gpus");
    int rc = builder && results ? solve(folder, builder, results, err) : pp_error_nomem(err);
    pp_activity_builder_free(builder);
    if (rc < 0)
        json_decref(results);
    else
        *ret = results;
    return rc;
}
