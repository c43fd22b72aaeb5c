/* Agents that come and go: how often their session is looked at, and who makes room for whom. */
#include "operator/samples/agent_connections.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/cache/session_runtime.h"
#include "operator/cache/watches.h"
#include "operator/http_server/certificates.h"
#include "operator/pods/silent.h"
#include "operator/tests/api_server.h"

#include <string.h>

#define SECOND INT64_C(1000000000)
#define SESSION                                                                                    \
    "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"s\",\"uid\":\"u-s\",\"resourceVersion\":"      \
    "\"1\",\"generation\":1,\"creationTimestamp\":\"2026-01-21T12:00:00Z\"},\"spec\":{"            \
    "\"selector\":{\"matchLabels\":{\"app\":\"wanted\"}},\"duration\":\"10m\"}}"

enum { PODS = 3 }; /* the last is the session's */

/** An operator with pods that carry the hook, a session of one of them, and a server for agents
 * that none comes to. */
typedef struct world {
    api_server *api;
    pp_certificates certificates;
    pp_session *session;
    char lines[8192];
    int looks;
} world;

static void look(void *user, const char *key)
{
    world *w = user;
    w->looks++;
    pp_workqueue_done(w->api->op.queue, key);
}

static void *decode_pod(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    return pp_pod_decode(object, err);
}

static void free_pod(void *object)
{
    pp_pod_free(object);
}

static void on_pod(void *user, const char *key, const void *object)
{
    world *w = user;
    const pp_pod *pod = object;
    pp_inject_pod_view view;
    (void)key;
    pp_pod_for_inject(pod, &view);
    assert_int_equal(pp_match_put_pod(w->api->op.matches, pod->uid, &view, pod, NULL), 0);
}

/* The lines of a watch that bring the pods. */
static void write_pods(world *w)
{
    size_t used = 0;
    char now[40];
    pp_time_format(pp_time_now(), 0, now, sizeof now);
    for (int i = 0; i < PODS; i++)
        used += (size_t)snprintf(
            w->lines + used, sizeof w->lines - used,
            "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"namespace\":\"ml\",\"name\":\"p%d\","
            "\"uid\":\"u-p%d\",\"resourceVersion\":\"3\",\"creationTimestamp\":\"%s\",\"labels\":{"
            "\"app\":\"%s\"},\"annotations\":{\"precisionprobe.io/settings\":\"{}\","
            "\"precisionprobe.io/containers\":\"c\"}},\"spec\":{\"nodeName\":\"n\",\"volumes\":[{"
            "\"name\":\"precisionprobe-ring\"}],\"initContainers\":[{\"name\":"
            "\"precisionprobe-hook\"},{\"name\":\"precisionprobe-agent\"}],\"containers\":[{"
            "\"name\":\"c\"}]},\"status\":{\"phase\":\"Running\"}}}\n",
            i, i, now, i == PODS - 1 ? "wanted" : "other");
    (void)snprintf(w->lines + used, sizeof w->lines - used,
                   "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\","
                   "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n");
}

static void start_server(world *w)
{
    pp_strings names = {0};
    bool changed = false;
    assert_int_equal(pp_strings_add(&names, "localhost", NULL), 0);
    assert_int_equal(pp_certificates_renew(&w->certificates, &names, pp_time_now(), &changed, NULL),
                     0);
    pp_strings_free(&names);
    const pp_http_options options = {.loop = &w->api->loop,
                                     .certificate = w->certificates.certificate,
                                     .key = w->certificates.key,
                                     .max_connections = 8};
    const pp_http_handlers nobody = {0};
    assert_int_equal(pp_http_server_new(&options, &nobody, &w->api->op.server, NULL), 0);
}

static bool is_synced(void *user)
{
    return pp_kube_informer_synced(((world *)user)->api->op.pods);
}

static void start_caches(world *w)
{
    pp_operator *op = &w->api->op;
    const pp_workqueue_options queue = {.process = look, .user = w};
    const pp_kube_informer_options pods = {
        .resource = &PP_KUBE_PODS,
        .handler = {.decode = decode_pod, .free_object = free_pod, .on_add = on_pod, .user = w}};
    write_pods(w);
    w->api->events = w->lines;
    op->queue = pp_workqueue_new(op->loop, &queue, NULL);
    op->pods = pp_kube_informer_new(op->kube, &pods, NULL);
    assert_true(op->queue && op->pods);
    assert_int_equal(pp_silent_start(op, NULL), 0);
    PP_CLEANUP_JSON json_t *object = json_loads(SESSION, 0, NULL);
    assert_int_equal(pp_session_decode(object, &w->session, NULL), 0);
    assert_int_equal(pp_match_put_session(op->matches, w->session, NULL), 0);
    assert_true(api_server_run(w->api, is_synced, w));
    assert_non_null(pp_runtime_get(op, w->session));
}

static int setup(void **state)
{
    void *api = NULL;
    world *w = calloc(1, sizeof *w);
    const int rc = api_server_setup(&api);
    w->api = api;
    start_server(w);
    start_caches(w);
    *state = w;
    return rc;
}

static int teardown(void **state)
{
    world *w = *state;
    pp_operator *op = &w->api->op;
    void *api = w->api;
    pp_connections_forget_all(op);
    pp_runtime_drop_all(op);
    pp_http_server_stop(op->server);
    for (int i = 0; i < PODS; i++) {
        char uid[16];
        (void)snprintf(uid, sizeof uid, "u-p%d", i);
        pp_match_drop_pod(op->matches, uid);
    }
    pp_match_drop_session(op->matches, w->session->uid);
    pp_kube_informer_free(op->pods);
    pp_silent_stop(op);
    pp_workqueue_free(op->queue);
    const int left = api_server_teardown(&api);
    pp_session_free(w->session);
    pp_certificates_done(&w->certificates);
    free(w);
    return left;
}

static pp_http_identity identity_of(int pod)
{
    pp_http_identity identity = {.namespace_name = "ml"};
    (void)snprintf(identity.pod, sizeof identity.pod, "p%d", pod);
    (void)snprintf(identity.pod_uid, sizeof identity.pod_uid, "u-p%d", pod);
    return identity;
}

static void connect_agent(world *w, pp_http_id id, int pod)
{
    const pp_http_identity identity = identity_of(pod);
    pp_connections_connected(&w->api->op, id, &identity);
    assert_true(pp_connections_has_peer(&w->api->op, identity.pod_uid));
}

static bool is_looked_at(void *user)
{
    return ((world *)user)->looks > 0;
}

/* A training of many pods is not looked at as often as it has pods. */
static void test_agents_that_come_together(void **state)
{
    world *w = *state;
    for (pp_http_id id = 1; id <= 100; id++) {
        connect_agent(w, id, PODS - 1);
        (void)uv_run(&w->api->loop, UV_RUN_NOWAIT);
        if (id == 1)
            assert_int_equal(w->looks, 0);
    }
    assert_true(api_server_run(w->api, is_looked_at, w));
    assert_true(w->looks < 50);
}

/* Only for a pod that a session has, and never in the place of such a one. */
static void test_who_makes_room(void **state)
{
    world *w = *state;
    const pp_http_identity wanted = identity_of(PODS - 1), other = identity_of(0);
    connect_agent(w, 1, PODS - 1);
    connect_agent(w, 2, 0);
    connect_agent(w, 3, 1);
    assert_int_equal(pp_connections_displace(&w->api->op, &other), 0);
    assert_int_equal(pp_connections_displace(&w->api->op, &wanted), 2);
    assert_int_equal(pp_connections_displace(&w->api->op, &wanted), 3); /* nobody goes twice */
    assert_int_equal(pp_connections_displace(&w->api->op, &wanted), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_agents_that_come_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_makes_room, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
