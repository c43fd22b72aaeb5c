/*
 * store_replay CONNINFO < LINES: plays sessions, pods, batches and samples into a database, through
 * the wire's decoder and the store, then solves, as the operator does. For scenario tests that hold
 * what a disturbed operator left against what the same input gives undisturbed.
 *
 * One JSON object in a line:
 *   {"type": "session", "uid", "namespace", "name", "method", "created", "spec": {...}}
 *   {"type": "target", "session", "pod", "namespace", "name", "workload"}
 *   {"type": "batch", "pod", "batch": {as on the wire}}
 *   {"type": "sample", "gpu", "metric", "at", "value"}
 *   {"type": "solve", "session", "pod", "window", "scrape", "lag", "error", "tolerance"}  (ns)
 * The exit status is 0 when every line was taken.
 */
#include "common/wire.h"
#include "operator/store/store.h"

#include "common/cleanup.h"
#include "estimate/solve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 5000 }; /* written at once */

typedef struct replay {
    uv_loop_t loop;
    pp_store *store;
    bool waiting;
    pp_error error;
    pp_activity *activity;
    pp_strings gpus;
    pp_activity_sample samples[SAMPLES];
    size_t n_samples;
} replay;

static void on_done(void *user, const pp_error *error)
{
    replay *r = user;
    r->waiting = false;
    if (error)
        r->error = *error;
}

static void on_batch(void *user, bool inserted, const pp_error *error)
{
    (void)inserted;
    on_done(user, error);
}

static void on_loaded(void *user, pp_activity **activity, const pp_error *error)
{
    replay *r = user;
    if (!error) {
        r->activity = *activity;
        *activity = NULL;
    }
    on_done(user, error);
}

/* Runs until the call's callback has come. */
static int finish(replay *r, int rc, pp_error *err)
{
    if (rc < 0)
        return -1;
    while (r->waiting)
        uv_run(&r->loop, UV_RUN_ONCE);
    if (r->error.code == PP_OK)
        return 0;
    *err = r->error;
    return -1;
}

static void begin(replay *r)
{
    r->waiting = true;
    pp_error_clear(&r->error);
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static int64_t number_of(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

static int play_session(replay *r, const json_t *line, pp_error *err)
{
    PP_CLEANUP_FREE char *spec = json_dumps(json_object_get(line, "spec"), 0);
    const pp_store_session session = {.uid = text_of(line, "uid"),
                                      .ns = text_of(line, "namespace"),
                                      .name = text_of(line, "name"),
                                      .spec = spec,
                                      .method = text_of(line, "method"),
                                      .phase = "Finishing",
                                      .created_ns = number_of(line, "created")};
    begin(r);
    return finish(r, pp_store_put_session(r->store, &session, on_done, r, err), err);
}

static int play_target(replay *r, const json_t *line, pp_error *err)
{
    const pp_store_target target = {.session_uid = text_of(line, "session"),
                                    .pod_uid = text_of(line, "pod"),
                                    .ns = text_of(line, "namespace"),
                                    .pod_name = text_of(line, "name"),
                                    .workload_kind = "Job",
                                    .workload_name = text_of(line, "workload"),
                                    .cpu_request = 0.05};
    begin(r);
    return finish(r, pp_store_put_target(r->store, &target, on_done, r, err), err);
}

static int play_batch(replay *r, const json_t *line, pp_error *err)
{
    pp_wire_batch *batch = NULL;
    if (pp_wire_batch_decode(json_object_get(line, "batch"), &batch, err) < 0)
        return -1;
    begin(r);
    int rc = pp_store_put_batch(r->store, batch->session, text_of(line, "pod"), batch, NULL,
                                on_batch, r, err);
    rc = finish(r, rc, err);
    pp_wire_batch_free(batch);
    return rc;
}

static int flush_samples(replay *r, pp_error *err)
{
    if (r->n_samples == 0)
        return 0;
    begin(r);
    int rc = pp_store_put_samples(r->store, &r->gpus, r->samples, r->n_samples, on_done, r, err);
    r->n_samples = 0;
    return finish(r, rc, err);
}

static int play_sample(replay *r, const json_t *line, pp_error *err)
{
    const char *gpu = text_of(line, "gpu");
    pp_activity_sample *sample = &r->samples[r->n_samples];
    if (!pp_strings_contain(&r->gpus, gpu) && pp_strings_add(&r->gpus, gpu, err) < 0)
        return -1;
    sample->gpu = 0;
    while (strcmp(r->gpus.items[sample->gpu], gpu) != 0)
        sample->gpu++;
    if (pp_metric_from_name(text_of(line, "metric"), &sample->metric) < 0)
        return pp_error_set(err, PP_ERR_INVALID, "no such metric");
    sample->stamp_ns = number_of(line, "at");
    sample->value = json_number_value(json_object_get(line, "value"));
    return ++r->n_samples == SAMPLES ? flush_samples(r, err) : 0;
}

static int solve_gpu(replay *r, const json_t *line, const char *gpu, pp_error *err)
{
    const pp_estimates_options options = {
        .attribution = {.window_ns = number_of(line, "window"),
                        .scrape_ns = number_of(line, "scrape"),
                        .max_lag_ns = number_of(line, "lag"),
                        .max_standard_error = json_number_value(json_object_get(line, "error"))},
        .tolerance_percent = json_number_value(json_object_get(line, "tolerance")),
        .scraped = true}; /* as operator/samples/solve.c solves */
    pp_estimates *solution = NULL;
    if (pp_estimates_solve(r->activity, gpu, &options, &solution, err) < 0)
        return -1;
    begin(r);
    int rc = pp_store_put_solution(r->store, text_of(line, "session"), text_of(line, "pod"),
                                   solution, NULL, true, on_done, r, err);
    rc = finish(r, rc, err);
    pp_estimates_free(solution);
    return rc;
}

static int play_solve(replay *r, const json_t *line, pp_error *err)
{
    static const int64_t before_ns = INT64_C(90000000000);
    static const int64_t after_ns = INT64_C(120000000000);
    if (flush_samples(r, err) < 0)
        return -1;
    begin(r);
    int rc = pp_store_load(r->store, text_of(line, "session"), text_of(line, "pod"), before_ns,
                           after_ns, on_loaded, r, err);
    if (finish(r, rc, err) < 0)
        return -1;
    pp_strings done = {0};
    rc = 0;
    for (size_t p = 0; rc == 0 && p < r->activity->n_processes; p++) {
        const pp_strings *gpus = &r->activity->processes[p].gpus;
        for (size_t g = 0; rc == 0 && g < gpus->count; g++) {
            if (pp_strings_contain(&done, gpus->items[g]))
                continue;
            rc = pp_strings_add(&done, gpus->items[g], err);
            rc = rc < 0 ? rc : solve_gpu(r, line, gpus->items[g], err);
        }
    }
    pp_strings_free(&done);
    r->activity = pp_activity_free(r->activity);
    return rc;
}

static int play(replay *r, const json_t *line, pp_error *err)
{
    static const struct {
        const char *type;
        int (*play)(replay *r, const json_t *line, pp_error *err);
    } kinds[] = {{"session", play_session},
                 {"target", play_target},
                 {"batch", play_batch},
                 {"sample", play_sample},
                 {"solve", play_solve}};
    const char *type = text_of(line, "type");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].type, type) == 0)
            return kinds[i].play(r, line, err);
    }
    return pp_error_set(err, PP_ERR_INVALID, "no such type: %s", type);
}

static int play_all(replay *r, FILE *in, pp_error *err)
{
    PP_CLEANUP_FREE char *text = NULL;
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&text, &size, in)) > 0) {
        PP_CLEANUP_JSON json_t *line = json_loadb(text, (size_t)length, 0, NULL);
        if (!line)
            return pp_error_set(err, PP_ERR_INVALID, "a line is no JSON");
        if (play(r, line, err) < 0)
            return pp_error_prefix(err, "%s", text_of(line, "type"));
    }
    return flush_samples(r, err);
}

int main(int argc, char **argv)
{
    static replay r;
    pp_error err = {0};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: store_replay CONNINFO < LINES\n");
        return EXIT_FAILURE;
    }
    uv_loop_init(&r.loop);
    const pp_store_options options = {.conninfo = argv[1]};
    r.store = pp_store_new(&r.loop, &options, &err);
    int rc = r.store ? play_all(&r, stdin, &err) : -1;
    if (rc < 0)
        (void)fprintf(stderr, "store_replay: %s %s\n", err.field, err.message);
    pp_store_free(r.store);
    pp_strings_free(&r.gpus);
    uv_run(&r.loop, UV_RUN_DEFAULT);
    uv_loop_close(&r.loop);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
