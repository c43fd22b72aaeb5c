/*
 * peers_again FOLDER TRUTH: what others make of a recording's metric windows, which Regression has
 * found, beside Regression: one JSON object per metric and line, time-weighted mean differences
 * from the values that the run in TRUTH has by PM sampling, in points, of rows of 20 ms and more
 * that Regression tells. Both are of the same training. PM samples in FOLDER itself have no say.
 */
#include "cli/recording/recording.h"
#include "cli/recording/solve.h"
#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/metric.h"
#include "estimate/problem/problem.h"
#include "estimate/regression/tests/peers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_MS 20

typedef struct solved {
    pp_problem problem;
    pp_regression_input in;
    pp_regression_result *result;
    pp_peers peers;
} solved;

static void solved_done(solved *s)
{
    pp_peers_done(&s->peers);
    s->result = pp_regression_result_free(s->result);
    pp_problem_done(&s->problem);
}

static int take_batch(void *user, const pp_wire_batch *batch, pp_error *err)
{
    return pp_activity_builder_add(user, batch, err);
}

static int solve(const pp_activity *activity, solved *s, pp_error *err)
{
    const pp_estimates_options options = pp_solve_defaults();
    pp_strings gpus = {0};
    int rc = pp_activity_list_gpus(activity, &gpus, err);
    if (rc == 0 && gpus.count != 1)
        rc = pp_error_set(err, PP_ERR_INVALID, "it has %zu GPUs", gpus.count);
    if (rc == 0)
        rc = pp_problem_build(activity, gpus.items[0], &options, &s->problem, err);
    pp_strings_free(&gpus);
    s->in = pp_problem_regression(&s->problem, &options);
    if (rc == 0)
        rc = pp_regression_solve(&s->in, &s->result, err);
    const pp_regression_result *r = s->result;
    return rc < 0 || !r ? -1 : pp_peers_solve(&s->in, r->windows, r->n_windows, &s->peers, err);
}

/** "" where it has none. */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = pp_json_get_string(object, key, NULL);
    return text ? text : "";
}

/** The row's item in results of a run; NULL: it has none. */
static const json_t *item_of(const json_t *items, const pp_regression_item *row)
{
    size_t i;
    const json_t *item;
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (strcmp(text_of(item, "kind"), "layer") == 0 &&
            strcmp(text_of(item, "layer"), row->layer) == 0 &&
            strcmp(text_of(item, "phase"), pp_phase_name(row->phase)) == 0)
            return item;
    }
    return NULL;
}

static void metric_print(const solved *s, size_t metric, const json_t *items)
{
    const pp_metric_info *info = pp_metric_get(s->problem.metric_ids[metric]);
    double sums[3] = {0}, weight = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->in.n_items; i++) {
        const pp_regression_estimate *e = pp_regression_get(s->result, i, metric);
        const json_t *item = item_of(items, &s->in.items[i]);
        const json_t *value =
            pp_json_get(pp_json_get(item, "metrics", NULL), info->spec_name, NULL);
        const double ms = json_number_value(pp_json_get(item, "busyMillisecondsPerStep", NULL));
        const json_t *truth = pp_json_get(value, "mean", NULL);
        if (!e->identifiable || ms < LEAST_MS || !json_is_number(truth) ||
            strcmp(text_of(value, "method"), "sampling") != 0)
            continue;
        const size_t at = i * s->in.n_metrics + metric;
        const double told[3] = {e->mean, s->peers.overlap[at], s->peers.squares[at]};
        for (int k = 0; k < 3; k++)
            sums[k] += ms * 100 * fabs(told[k] - json_number_value(truth));
        weight += ms;
        n++;
    }
    if (n > 0)
        printf("{\"metric\": \"%s\", \"rows\": %zu, \"regression_points\": %.3g, "
               "\"overlap_points\": %.3g, \"squares_points\": %.3g}\n",
               info->spec_name, n, sums[0] / weight, sums[1] / weight, sums[2] / weight);
}

static int run(const char *folder, const char *truth, pp_activity_builder *builder, pp_error *err)
{
    PP_CLEANUP_JSON json_t *results = NULL;
    solved s = {0};
    if (pp_results_read(truth, &results, err) < 0 ||
        pp_recording_batches(folder, take_batch, builder, err) < 0 ||
        pp_recording_samples(folder, builder, err) < 0)
        return -1;
    const int rc = solve(pp_activity_builder_get(builder), &s, err);
    const json_t *items =
        pp_json_get(json_array_get(pp_json_get(results, "gpus", NULL), 0), "items", NULL);
    for (size_t m = 0; rc == 0 && m < s.in.n_metrics; m++)
        if (pp_metric_get(s.problem.metric_ids[m])->kind == PP_METRIC_SHARE)
            metric_print(&s, m, items);
    solved_done(&s);
    return rc;
}

int main(int argc, char **argv)
{
    pp_error err = {0};
    if (argc != 3) {
        (void)fputs("usage: peers_again FOLDER TRUTH\n", stderr);
        return 2;
    }
    pp_activity_builder *builder = pp_activity_builder_new();
    const int rc = builder ? run(argv[1], argv[2], builder, &err) : pp_error_nomem(&err);
    if (rc < 0)
        (void)fprintf(stderr, "%s: %s %s\n", argv[1], err.field, err.message);
    pp_activity_builder_free(builder);
    return rc < 0;
}
