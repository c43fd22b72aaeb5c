/*
 * solve_again FOLDER TO [MS]: the results of a recording, as `precisionprobe run` of today writes
 * them into TO: solved again, with the pattern, ranks, kernels, waits and copies that follow from
 * its batches and samples. MS: as an operator solves whose exporter is collected, and scraped,
 * every so many ms. For tests that hold readers of one session against each other.
 */
#include "cli/recording/chip.h"
#include "cli/recording/recording.h"
#include "cli/recording/solve.h"
#include "cli/results/results.h"
#include "cli/run/run_copies.h"
#include "cli/run/run_kernels.h"
#include "cli/run/run_pattern.h"
#include "cli/run/run_ranks.h"
#include "cli/run/run_waits.h"
#include "common/cleanup.h"
#include "common/json.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct again {
    pp_activity_builder *builder;
    const pp_activity *activity; /* the builder's */
    pp_run_kernels *kernels;
    pp_run_waits *waits;
    pp_run_copies *copies;
    pp_run_pattern pattern;
    pp_ranks *ranks;
    json_t *results, *gpus;
    int64_t scrape_ns; /* 0: a run's */
} again;

static int take_batch(void *user, const pp_wire_batch *batch, pp_error *err)
{
    again *a = user;
    return pp_activity_builder_add(a->builder, batch, err) < 0 ||
                   pp_run_kernels_add(a->kernels, batch, err) < 0 ||
                   pp_run_waits_add(a->waits, batch, err) < 0 ||
                   pp_run_copies_add(a->copies, batch, err) < 0
               ? -1
               : 0;
}

static int take_solution(void *user, const pp_estimates *solution, pp_error *err)
{
    again *a = user;
    json_t *gpu = pp_results_of_solution(solution);
    if (json_array_append_new(a->gpus, gpu) < 0)
        return pp_error_nomem(err);
    if (pp_run_kernels_describe(a->kernels, a->activity, gpu, err) < 0 ||
        pp_chip_describe(a->activity, gpu, err) < 0)
        return -1;
    return pp_run_pattern_add(&a->pattern, a->activity, solution, a->ranks, err);
}

/* Those of pp_import, or of operator/samples/solve.c. */
static pp_estimates_options options_of(const again *a)
{
    pp_estimates_options options = pp_solve_defaults();
    if (a->scrape_ns) {
        options.scraped = true;
        options.attribution = (pp_regression_options){
            .window_ns = a->scrape_ns, .scrape_ns = a->scrape_ns, .max_standard_error = 0.05};
    }
    return options;
}

static int solve(again *a, const char *folder, pp_error *err)
{
    pp_estimates_options options = options_of(a);
    const char *method = pp_json_get_string(a->results, "method", NULL);
    if (pp_method_from_spec_name(method, &options.method) < 0)
        return pp_error_field(err, "method", "is none");
    if (pp_recording_batches(folder, take_batch, a, err) < 0 ||
        pp_recording_samples(folder, a->builder, err) < 0)
        return -1;
    a->activity = pp_activity_builder_get(a->builder);
    if (pp_ranks_compare(a->activity, &a->ranks, err) < 0 ||
        pp_solve(a->activity, &options, take_solution, a, err) < 0 ||
        pp_run_pattern_describe(&a->pattern, a->results, err) < 0 ||
        pp_run_ranks_describe(a->ranks, a->results, err) < 0 ||
        pp_run_waits_describe(a->waits, a->results, err) < 0)
        return -1;
    return pp_run_copies_describe(a->copies, a->results, err);
}

static int run(again *a, const char *folder, const char *to, pp_error *err)
{
    a->builder = pp_activity_builder_new();
    a->kernels = pp_run_kernels_new();
    a->waits = pp_run_waits_new();
    a->copies = pp_run_copies_new();
    if (!a->builder || !a->kernels || !a->waits || !a->copies)
        return pp_error_nomem(err);
    if (pp_results_read(folder, &a->results, err) < 0)
        return -1;
    a->gpus = json_array();
    if (json_object_set_new(a->results, "gpus", a->gpus) < 0)
        return pp_error_nomem(err);
    if (solve(a, folder, err) < 0)
        return -1;
    return pp_results_write(a->results, to, err);
}

int main(int argc, char **argv)
{
    again a = {0};
    pp_error err = {0};
    if (argc != 3 && argc != 4) {
        (void)fputs("usage: solve_again FOLDER TO [MS]\n", stderr);
        return 2;
    }
    a.scrape_ns = argc == 4 ? strtoll(argv[3], NULL, 10) * 1000000 : 0;
    const int rc = run(&a, argv[1], argv[2], &err);
    if (rc < 0)
        (void)fprintf(stderr, "%s: %s %s\n", argv[1], err.field, err.message);
    json_decref(a.results);
    pp_run_pattern_done(&a.pattern);
    pp_ranks_free(a.ranks);
    pp_run_copies_free(a.copies);
    pp_run_waits_free(a.waits);
    pp_run_kernels_free(a.kernels);
    pp_activity_builder_free(a.builder);
    return rc < 0;
}
