/* How many targets are in memory at once, whatever number of sessions is due. */
#include "operator/samples/solve.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "operator/tests/api_server.h"

#include <stdio.h>
#include <string.h>

enum { SESSIONS = 20, PODS = 3, PLACES = 4 };

/** Sessions that are all due, and a store that nobody serves: what is loaded waits in its queue. */
typedef struct world {
    api_server *api;
    pp_session *sessions[SESSIONS];
} world;

static pp_session *make_session(int n)
{
    pp_session *session = NULL;
    char uid[16];
    (void)snprintf(uid, sizeof uid, "u-%d", n);
    PP_CLEANUP_JSON json_t *object = json_pack(
        "{s:{s:s, s:s, s:s, s:s, s:i, s:s}, s:{s:{s:{s:s}}, s:s}}", "metadata", "namespace", "ml",
        "name", uid, "uid", uid, "resourceVersion", "1", "generation", 1, "creationTimestamp",
        "2026-01-21T12:00:00Z", "spec", "selector", "matchLabels", "app", uid, "duration", "10m");
    assert_int_equal(pp_session_decode(object, &session, NULL), 0);
    return session;
}

static void make_due(pp_operator *op, const pp_session *session)
{
    assert_int_equal(pp_match_put_session(op->matches, session, NULL), 0);
    pp_runtime *runtime = pp_runtime_get(op, session);
    assert_non_null(runtime);
    for (int i = 0; i < PODS; i++) {
        char uid[16];
        (void)snprintf(uid, sizeof uid, "p-%d", i);
        pp_runtime_target *target = pp_runtime_get_target(runtime, uid);
        assert_non_null(target);
        target->last_batch_ns = 1;
    }
    pp_runtime_unsolved(runtime);
}

static int setup(void **state)
{
    void *api = NULL;
    world *w = calloc(1, sizeof *w);
    const int rc = api_server_setup(&api);
    const pp_store_options store = {.conninfo = "host=127.0.0.1 port=1"};
    w->api = api;
    pp_operator *op = &w->api->op;
    op->store = pp_store_new(op->loop, &store, NULL);
    assert_non_null(op->store);
    assert_int_equal(pp_solve_start(op, NULL), 0);
    for (int i = 0; i < SESSIONS; i++) {
        w->sessions[i] = make_session(i);
        make_due(op, w->sessions[i]);
    }
    *state = w;
    return rc;
}

static void free_store(pp_operator *op)
{
    pp_store_free(op->store);
    op->store = NULL;
}

static int teardown(void **state)
{
    world *w = *state;
    pp_operator *op = &w->api->op;
    void *api = w->api;
    pp_runtime_drop_all(op);
    pp_solve_stop(op);
    if (op->store)
        free_store(op);
    api_server_run_for(w->api, 100000000);
    pp_solve_done(op);
    for (int i = 0; i < SESSIONS; i++) {
        pp_match_drop_session(op->matches, w->sessions[i]->uid);
        (void)pp_session_free(w->sessions[i]);
    }
    const int left = api_server_teardown(&api);
    free(w);
    return left;
}

static size_t loading(const world *w)
{
    pp_store_counters counters;
    pp_store_get_counters(w->api->op.store, &counters);
    return counters.queued;
}

static void tick_all(world *w)
{
    for (int i = 0; i < SESSIONS; i++)
        pp_solve_tick(pp_runtime_find(&w->api->op, w->sessions[i]->uid));
}

static void test_a_few_at_a_time(void **state)
{
    world *w = *state;
    tick_all(w);
    assert_int_equal(loading(w), PLACES);
    tick_all(w); /* each is under way, those that wait too */
    assert_int_equal(loading(w), PLACES);
    for (int i = 0; i < SESSIONS; i++)
        assert_true(pp_runtime_find(&w->api->op, w->sessions[i]->uid)->solving);
}

/* A store that takes no more ends all others, to be tried again. */
static void test_a_store_that_takes_none(void **state)
{
    world *w = *state;
    pp_operator *op = &w->api->op;
    const pp_store_options full = {.conninfo = "host=127.0.0.1 port=1", .max_queued_bytes = 1};
    free_store(op);
    op->store = pp_store_new(op->loop, &full, NULL);
    tick_all(w);
    assert_int_equal(loading(w), 1); /* an empty queue takes anything */
    for (int i = 1; i < SESSIONS; i++) {
        const pp_runtime *runtime = pp_runtime_find(op, w->sessions[i]->uid);
        assert_false(runtime->solving);
        assert_true(runtime->unsolved);
    }
}

/* Those of sessions that are gone make place, and nothing of them is left. */
static void test_sessions_go_while_they_wait(void **state)
{
    world *w = *state;
    tick_all(w);
    for (int i = 0; i < SESSIONS - 1; i++)
        pp_runtime_drop(pp_runtime_find(&w->api->op, w->sessions[i]->uid));
    free_store(&w->api->op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_few_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_store_that_takes_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sessions_go_while_they_wait, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
