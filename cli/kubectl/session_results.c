#include "cli/kubectl/session_results.h"

#include "cli/results/fold.h"
#include "cli/results/item_spread.h"
#include "cli/results/results.h"
#include "cli/results/row_results.h"
#include "common/cleanup.h"

#include <stdio.h>
#include <string.h>

enum { PATH_TEXT = 1024, MOST_STEPS = 1000 };

typedef struct asked {
    pp_session_api *api;
    char base[PATH_TEXT]; /* of the session */
    int depth;
} asked;

static int read_rows(const asked *a, const char *what, size_t limit, json_t **ret, pp_error *err)
{
    char path[2 * PATH_TEXT];
    (void)snprintf(path, sizeof path, "%s/%s", a->base, what);
    return pp_session_api_rows(a->api, path, limit, ret, err);
}

/* ---- steps that were kept one by one ---- */

static int64_t integer(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* Of the session's steps, those that were kept; and the numbers of their rows. */
typedef struct kept {
    pp_spread *spread;
    pp_item_numbers numbers;
} kept;

static int add_piece(kept *k, size_t step, const json_t *one, pp_error *err)
{
    const char *phase = pp_results_text(one, "phase");
    pp_spread_piece piece = {.step = step,
                             .item = PP_SPREAD_REST,
                             .ns = integer(one, "duration_ns", 0),
                             .busy_ns = integer(one, "busy_ns", -1)};
    if (strcmp(phase, "other") != 0 &&
        pp_item_number(&k->numbers, phase, pp_results_text(one, "layer"), false, &piece.item, err) <
            0)
        return -1;
    return pp_spread_add(k->spread, &piece, err);
}

static int add_step(kept *k, int64_t process, const json_t *step, pp_error *err)
{
    size_t number, i;
    json_t *one;
    if (pp_spread_step(k->spread, process, integer(step, "capture", 0),
                       integer(step, "duration_ns", 0), &number, err) < 0)
        return -1;
    json_array_foreach(json_object_get(step, "intervals"), i, one)
    {
        if (add_piece(k, number, one, err) < 0)
            return -1;
    }
    return 0;
}

static int add_process(const asked *a, kept *k, const char *pod, int64_t process, pp_error *err)
{
    char what[PATH_TEXT];
    PP_CLEANUP_JSON json_t *timeline = NULL;
    size_t i;
    json_t *step;
    (void)snprintf(what, sizeof what, "timeline?pod=%.64s&process=%lld", pod, (long long)process);
    if (read_rows(a, what, MOST_STEPS, &timeline, err) < 0)
        return -1;
    json_array_foreach(json_object_get(timeline, "items"), i, step)
    {
        if (add_step(k, process, step, err) < 0)
            return -1;
    }
    return 0;
}

/* The pod's in the session's document; NULL: there is none. */
static const json_t *pod_of(const json_t *session, const char *uid)
{
    size_t i;
    json_t *pod;
    json_array_foreach(json_object_get(session, "pods"), i, pod)
    {
        if (strcmp(pp_results_text(pod, "pod_uid"), uid) == 0)
            return pod;
    }
    return NULL;
}

static size_t gpus_of_pod(const json_t *results, const char *uid)
{
    size_t i, n = 0;
    json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu) n +=
        strcmp(pp_results_text(gpu, "podUid"), uid) == 0;
    return n;
}

static int add_spread(const asked *a, const json_t *session, const json_t *results, json_t *gpu,
                      pp_error *err)
{
    const char *uid = pp_results_text(gpu, "podUid");
    const json_t *pod = pod_of(session, uid);
    size_t i;
    json_t *process;
    if (!pod || gpus_of_pod(results, uid) != 1)
        return 0;
    PP_CLEANUP_JSON json_t *keys = json_object();
    kept k = {.spread = pp_spread_new(), .numbers = {keys, a->depth}};
    int rc = keys && k.spread ? 0 : pp_error_nomem(err);
    json_array_foreach(json_object_get(pod, "processes"), i, process)
    {
        if (rc == 0)
            rc = add_process(a, &k, uid, json_integer_value(process), err);
    }
    if (rc == 0)
        rc = pp_spread_settle(k.spread, err);
    if (rc == 0)
        rc = pp_item_spread_describe(k.spread, &k.numbers, gpu, err);
    pp_spread_free(k.spread);
    return rc;
}

/* Rows tell how sure their times are; layers put together do not, and the steps that were kept
 * have to. */
static int add_spreads(const asked *a, json_t *results, pp_error *err)
{
    PP_CLEANUP_JSON json_t *session = NULL;
    size_t i;
    json_t *gpu;
    if (pp_session_api_get(a->api, a->base, &session, err) < 0)
        return -1;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (add_spread(a, session, results, gpu, err) < 0)
            return -1;
    }
    return 0;
}

static int add_quality(const asked *a, json_t *results, pp_error *err)
{
    PP_CLEANUP_JSON json_t *rows = NULL;
    if (read_rows(a, "quality", 0, &rows, err) < 0)
        return -1;
    return pp_row_results_quality(results, rows, err);
}

int pp_session_results(pp_session_api *api, const char *namespace, const char *name, int depth,
                       json_t **ret, pp_error *err)
{
    asked a = {.api = api, .depth = depth};
    PP_CLEANUP_JSON json_t *rows = NULL;
    json_t *results = NULL;
    (void)snprintf(a.base, sizeof a.base, "/namespaces/%.63s/sessions/%.253s", namespace, name);
    if (read_rows(&a, "layers", 0, &rows, err) < 0 || pp_row_results(rows, &results, err) < 0)
        return -1;
    int rc = add_quality(&a, results, err);
    if (rc == 0 && depth > 0)
        rc = pp_results_fold(results, depth, err);
    if (rc == 0 && depth > 0)
        rc = add_spreads(&a, results, err);
    if (rc < 0)
        json_decref(results);
    else
        *ret = results;
    return rc;
}
