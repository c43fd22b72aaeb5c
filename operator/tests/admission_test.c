/* A pod whose session was announced and that the watch does not bring: it is asked for by name. */
#include "operator/pods/admission.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/http_server/certificates.h"
#include "operator/http_server/metrics.h"
#include "operator/tests/api_server.h"

#include <string.h>

#define SECOND INT64_C(1000000000)
#define PATIENCE (3 * SECOND)
#define PATH "/apis/precisionprobe.io/v1alpha1/namespaces/ml/profilesessions/s"
#define SPEC "\"spec\":{\"selector\":{\"matchLabels\":{\"app\":\"a\"}},\"duration\":\"10m\"}"
#define STORED(phase)                                                                              \
    "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"s\",\"uid\":\"u-s\",\"resourceVersion\":"      \
    "\"1\",\"generation\":1,\"creationTimestamp\":\"2026-01-21T12:00:00Z\"}," SPEC                 \
    ",\"status\":{\"phase\":\"" phase "\"}}"
#define NEW_SESSION "{\"metadata\":{\"name\":\"s\"}," SPEC "}"
#define NEW_SESSIONS "{\"metadata\":{\"generateName\":\"s-\"}," SPEC "}"

typedef struct world {
    api_server *api;
    pp_certificates certificates;
    pp_metrics *metrics;
} world;

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

static int setup(void **state)
{
    static char image[] = "example.invalid/probe";
    static char policy[] = "IfNotPresent";
    static char ca[] = "ca";
    static char endpoint[] = "wss://example.invalid/v1/ingest";
    void *api = NULL;
    world *w = calloc(1, sizeof *w);
    const int rc = api_server_setup(&api);
    w->api = api;
    w->metrics = pp_metrics_new();
    w->api->config.injection.image = image;
    w->api->config.injection.image_pull_policy = policy;
    w->api->op.ca_bundle = ca;
    w->api->op.endpoint = endpoint;
    w->api->op.meters.injected = pp_metrics_counter(w->metrics, "injected", "", NULL, NULL);
    start_server(w);
    assert_int_equal(pp_admission_start(&w->api->op, NULL), 0);
    *state = w;
    return rc;
}

static int teardown(void **state)
{
    world *w = *state;
    void *api = w->api;
    pp_admission_stop(&w->api->op);
    const int left = api_server_teardown(&api);
    pp_metrics_free(w->metrics);
    pp_certificates_done(&w->certificates);
    free(w);
    return left;
}

/* How many pods were given a patch. */
static int injected(void *user)
{
    const world *w = user;
    pp_buf text;
    pp_buf_init(&text, 1 << 16);
    assert_int_equal(pp_metrics_render(w->metrics, &text, NULL), 0);
    const char *line = strstr(text.data, "\ninjected ");
    assert_non_null(line);
    const int n = atoi(line + strlen("\ninjected "));
    pp_buf_done(&text);
    return n;
}

static bool is_injected(void *user)
{
    return injected(user) > 0;
}

static bool are_both(void *user)
{
    return injected(user) > 1;
}

static bool was_asked(void *user)
{
    return api_server_times(((world *)user)->api, "GET " PATH " ") > 0;
}

static void announce(world *w, const char *text)
{
    PP_CLEANUP_JSON json_t *object = json_loads(text, 0, NULL);
    const pp_http_review review = {.uid = "r1", .namespace_name = "ml", .session = object};
    assert_non_null(object);
    pp_admission_review(&w->api->op, 1, &review);
}

/** `patience`: ns in which it has to be decided. */
static void create_pod_within(world *w, const char *app, int64_t patience)
{
    PP_CLEANUP_JSON json_t *object =
        json_pack("{s:{s:s, s:{s:s}}, s:{s:[{s:s, s:s}]}}", "metadata", "name", "p", "labels",
                  "app", app, "spec", "containers", "name", "c", "image", "i");
    const pp_http_review review = {
        .uid = "r2", .namespace_name = "ml", .pod = object, .patience = patience};
    assert_non_null(object);
    pp_admission_review(&w->api->op, 2, &review);
}

static void create_pod(world *w, const char *app)
{
    create_pod_within(w, app, PATIENCE);
}

/* Of a text of 1.2 MB, and seventy times that in memory. */
static void create_fat_pod(world *w)
{
    PP_CLEANUP_JSON json_t *object =
        json_pack("{s:{s:s, s:{s:s}}, s:{s:[{s:s, s:s}]}, s:[]}", "metadata", "name", "fat",
                  "labels", "app", "a", "spec", "containers", "name", "c", "image", "i", "status");
    const pp_http_review review = {
        .uid = "r3", .namespace_name = "ml", .pod = object, .patience = PATIENCE};
    assert_non_null(object);
    for (int i = 0; i < 400000; i++)
        assert_int_equal(json_array_append_new(json_object_get(object, "status"), json_object()),
                         0);
    pp_admission_review(&w->api->op, 3, &review);
}

static void api_has(world *w, const char *session)
{
    w->api->objects[0].path = PATH;
    w->api->objects[0].text = session;
}

static void test_one_question_serves_all(void **state)
{
    world *w = *state;
    api_has(w, STORED("Pending"));
    announce(w, NEW_SESSION);
    create_pod(w, "a");
    create_pod(w, "a");
    assert_false(was_asked(w));
    assert_int_equal(injected(w), 0);
    assert_true(api_server_run(w->api, are_both, w));
    assert_int_equal(api_server_times(w->api, "GET " PATH " "), 1);
}

/* The first answer is that there is none: it was not stored yet. */
static void test_asks_again(void **state)
{
    world *w = *state;
    announce(w, NEW_SESSION);
    create_pod(w, "a");
    assert_true(api_server_run(w->api, was_asked, w));
    api_has(w, STORED("Pending"));
    assert_true(api_server_run(w->api, is_injected, w));
    assert_true(api_server_times(w->api, "GET " PATH " ") > 1);
}

static void test_nobody_else_asks(void **state)
{
    world *w = *state;
    api_has(w, STORED("Pending"));
    create_pod(w, "a"); /* none is announced */
    announce(w, NEW_SESSION);
    create_pod(w, "b");
    api_server_run_for(w->api, SECOND / 2);
    assert_false(was_asked(w));
    assert_int_equal(injected(w), 0);
}

/* The API server waits for less than a question takes. */
static void test_nobody_waits_longer_than_the_api_server(void **state)
{
    world *w = *state;
    api_has(w, STORED("Pending"));
    announce(w, NEW_SESSION);
    create_pod_within(w, "a", SECOND / 100);
    api_server_run_for(w->api, SECOND / 2);
    assert_false(was_asked(w));
    assert_int_equal(injected(w), 0);
}

static void test_one_that_has_ended_has_no_pod(void **state)
{
    world *w = *state;
    api_has(w, STORED("Succeeded"));
    announce(w, NEW_SESSION);
    create_pod(w, "a");
    api_server_run_for(w->api, 2 * SECOND);
    assert_true(was_asked(w));
    assert_int_equal(injected(w), 0);
}

/* Pods that wait may take so much memory; one beyond that is let through, and the others wait on.
 */
static void test_a_pod_too_large_to_wait(void **state)
{
    world *w = *state;
    api_has(w, STORED("Pending"));
    announce(w, NEW_SESSION);
    create_fat_pod(w);
    create_pod(w, "a");
    assert_true(api_server_run(w->api, is_injected, w));
    api_server_run_for(w->api, SECOND / 2);
    assert_int_equal(injected(w), 1);
}

/* A name that is generated is not known before the watch has it. */
static void test_a_name_to_come_is_not_asked_for(void **state)
{
    world *w = *state;
    announce(w, NEW_SESSIONS);
    create_pod(w, "a");
    api_server_run_for(w->api, SECOND / 2);
    assert_int_equal(w->api->count, 0);
}

/* The answer comes when nobody waits any more, or never. */
static void test_stops_while_it_asks(void **state)
{
    world *w = *state;
    api_has(w, STORED("Pending"));
    announce(w, NEW_SESSION);
    create_pod(w, "a");
    assert_true(api_server_run(w->api, was_asked, w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_question_serves_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asks_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody_else_asks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody_waits_longer_than_the_api_server, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_one_that_has_ended_has_no_pod, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_pod_too_large_to_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_name_to_come_is_not_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stops_while_it_asks, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
