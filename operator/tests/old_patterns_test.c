/* Objects past their retention are deleted, and no others: against a Postgres, which knows whose
 * workloads have results, and a small API server. */
#include "operator/patterns/old_patterns.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/tests/test_database.h"

#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define LIST "/apis/precisionprobe.io/v1alpha1/consumptionpatterns?limit=200"
#define DELETED "DELETE /apis/precisionprobe.io/v1alpha1/namespaces/ml/consumptionpatterns/"

/* `kept` has a pattern; `again` has none yet, but a GPU's usage in a newer session. */
static const char data_sql[] =
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, finished_at) "
    "VALUES ('s', 'ml', 's', '{}', 'Auto', 'Succeeded', now(), now());"
    "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, workload_kind, workload_name) "
    "VALUES ('s', 'a', 'ml', 'a', 'Job', 'again');"
    "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, "
    "observed_ns, step_count, truncated) VALUES ('s', 'a', 'g', 1, false, 0, 0, 1, 1, false);"
    "INSERT INTO usage (session_uid, pod_uid, gpu_uuid, steps, undisturbed, busy, models, "
    "model_digests, batches) VALUES ('s', 'a', 'g', 1, true, true, '{}', '{}', '{}');"
    "INSERT INTO pattern (namespace, workload_kind, workload_name, object_name, session_uid, "
    "sessions, gpus, first_at, last_at, bound, lead, steps, undisturbed, busy, models, "
    "model_digests, batches, sessions_of_other_models) VALUES ('ml', 'Job', 'kept', 'job-kept', "
    "'s', 1, 1, now(), now(), 'Memory', 1, 1, true, true, '{}', '{}', '{}', 0)";

typedef struct world {
    api_server *api;
    test_database db;
    char first[4096], second[1024];
} world;

static json_t *object_of(const char *name, const char *workload, const char *last)
{
    json_t *object =
        json_pack("{s:{s:s, s:s, s:s+, s:s}, s:{s:{s:s, s:s}}}", "metadata", "namespace", "ml",
                  "name", name, "uid", "uid-", name, "resourceVersion", "7", "spec", "workload",
                  "kind", "Job", "name", workload);
    assert_non_null(object);
    if (last)
        (void)json_object_set_new(object, "status", json_pack("{s:s}", "lastFinished", last));
    return object;
}

static void put_list(char *out, size_t size, json_t *items, const char *behind)
{
    PP_CLEANUP_JSON json_t *list =
        json_pack("{s:{s:s}, s:o}", "metadata", "continue", behind, "items", items);
    char *text = json_dumps(list, JSON_COMPACT);
    assert_true(text && strlen(text) < size);
    (void)snprintf(out, size, "%s", text);
    free(text);
}

static int setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    void *api = NULL;
    char recent[64];
    assert_int_equal(api_server_setup(&api), 0);
    w->api = api;
    test_database_make(&w->db, "t_old_patterns", w->api);
    test_database_execute(&w->db, data_sql);
    w->api->config.retention.results = 86400 * SECOND;
    pp_time_format(pp_time_now() - 3600 * SECOND, 0, recent, sizeof recent);
    const char *old = "2025-01-21T12:00:00Z";
    json_t *leaving = object_of("job-leaving", "leaving", old);
    (void)json_object_set_new(json_object_get(leaving, "metadata"), "deletionTimestamp",
                              json_string(old));
    put_list(w->first, sizeof w->first,
             json_pack("[o, o, o, o, o, o, o]", object_of("job-gone", "gone", old),
                       object_of("job-kept", "kept", old), object_of("job-again", "again", old),
                       object_of("job-recent", "recent", recent),
                       object_of("somebodys", "gone", old), object_of("job-new", "new", NULL),
                       leaving),
             "more");
    put_list(w->second, sizeof w->second, json_pack("[o]", object_of("job-last", "last", old)), "");
    *state = w;
    return 0;
}

static void serve(world *w)
{
    w->api->objects[0].path = LIST;
    w->api->objects[0].text = w->first;
    w->api->objects[1].path = LIST "&continue=more";
    w->api->objects[1].text = w->second;
}

static int teardown(void **state)
{
    world *w = *state;
    void *api = w->api;
    test_database_done(&w->db, w->api);
    const int rc = api_server_teardown(&api);
    free(w);
    return rc;
}

static bool is_listed(void *user)
{
    return api_server_find(user, "GET " LIST) && ((api_server *)user)->op.old_patterns_due;
}

static bool is_deleted(void *user)
{
    return api_server_times(user, "DELETE ") == 2;
}

/* Nothing is asked, let alone deleted. */
static void idle(world *w)
{
    pp_old_patterns_sweep(&w->api->op);
    api_server_run_for(w->api, SECOND / 5);
    assert_int_equal(w->api->count, 0);
}

static void test_who_may_not_deletes_nothing(void **state)
{
    world *w = *state;
    pp_operator *op = &w->api->op;
    idle(w); /* nothing is due */
    pp_old_patterns_due(op);
    op->leading = false;
    idle(w);
    op->leading = true;
    w->api->config.retention.results = 0; /* for ever */
    idle(w);
    w->api->config.retention.results = 86400 * SECOND;
}

static void test_what_fails_is_due_again(void **state)
{
    world *w = *state;
    pp_old_patterns_sweep(&w->api->op);
    assert_true(api_server_run(w->api, is_listed, w->api)); /* 404: it is served below alone */
    assert_int_equal(api_server_times(w->api, "DELETE "), 0);
}

static void test_past_their_retention(void **state)
{
    world *w = *state;
    serve(w);
    pp_old_patterns_sweep(&w->api->op);
    assert_true(api_server_run(w->api, is_deleted, w->api));
    api_server_run_for(w->api, SECOND / 2);
    assert_int_equal(api_server_times(w->api, "DELETE "), 2);
    const api_request *gone = api_server_find(w->api, DELETED "job-gone ");
    assert_non_null(gone);
    assert_non_null(api_server_find(w->api, DELETED "job-last "));
    assert_non_null(strstr(gone->body, "\"uid\":\"uid-job-gone\""));
    assert_non_null(strstr(gone->body, "\"resourceVersion\":\"7\""));
    assert_false(w->api->op.old_patterns_due);
}

int main(void)
{
    if (!getenv("PP_POSTGRES_STATE")) {
        (void)fputs("run by ctest, which starts Postgres\n", stderr);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_may_not_deletes_nothing),
        cmocka_unit_test(test_what_fails_is_due_again),
        cmocka_unit_test(test_past_their_retention),
    };
    return cmocka_run_group_tests_name("old_patterns", tests, setup, teardown);
}
