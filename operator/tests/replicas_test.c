/* Another replica is told of a session: a real server, found by the Service's endpoints. */
#include "operator/installation/replicas.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/installation/tls.h"
#include "operator/tests/api_server.h"

#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define END                                                                                        \
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\",\"annotations\":{" \
    "\"k8s.io/initial-events-end\":\"true\"}}}}\n"

typedef struct world {
    api_server *api;
    uv_tcp_t silent; /* takes connections and says nothing */
    int silent_port;
    int reviews;
    char name[64]; /* of the last one's session */
    bool relayed;
    bool has_spec;
    int told;
    uint64_t told_id;
} world;

static world *the_world; /* the server's handlers and `told` know the operator alone */

static void on_review(void *context, pp_http_id id, const pp_http_review *review)
{
    pp_operator *op = context;
    const char *name = pp_json_get_string(review->session, "metadata", "name", NULL);
    the_world->reviews++;
    the_world->relayed = review->relayed;
    the_world->has_spec = pp_json_get(review->session, "spec", "selector", NULL);
    (void)snprintf(the_world->name, sizeof the_world->name, "%s/%s", review->namespace_name,
                   name ? name : "");
    pp_http_admission_respond(op->server, id, NULL, NULL);
}

static void on_certificate(pp_operator *op, const pp_certificates *certificates)
{
    const pp_http_options options = {.loop = op->loop,
                                     .certificate = certificates->certificate,
                                     .key = certificates->key,
                                     .path_secret = certificates->path_secret,
                                     .max_connections = 8};
    const pp_http_handlers handlers = {.context = op, .review = on_review};
    assert_int_equal(pp_http_server_new(&options, &handlers, &op->server, NULL), 0);
}

static void on_silent_connection(uv_stream_t *listener, int status)
{
    (void)listener;
    (void)status;
}

static void listen_silently(world *w)
{
    struct sockaddr_in address;
    int length = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&w->api->loop, &w->silent);
    uv_tcp_bind(&w->silent, (struct sockaddr *)&address, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&w->silent, 8, on_silent_connection), 0);
    uv_tcp_getsockname(&w->silent, (struct sockaddr *)&address, &length);
    w->silent_port = ntohs(address.sin_port);
}

static int setup(void **state)
{
    static char secret[] = "certificates", service[] = "probe", ns[] = "system", none[] = "";
    void *api = NULL;
    world *w = the_world = calloc(1, sizeof *w);
    const int rc = api_server_setup(&api);
    w->api = api;
    w->api->config.webhook.secret_name = secret;
    w->api->config.webhook.service_name = service;
    w->api->config.webhook.service_namespace = ns;
    w->api->config.webhook.review_service_name = none;
    w->api->config.webhook.configuration_name = none;
    w->api->config.webhook.client_ca_file = none;
    w->api->config.lease.enabled = true;
    listen_silently(w);
    assert_int_equal(pp_tls_start(&w->api->op, on_certificate, NULL), 0);
    *state = w;
    return rc;
}

static int teardown(void **state)
{
    world *w = *state;
    void *api = w->api;
    char *bundle = w->api->op.ca_bundle;
    pp_replicas_stop(&w->api->op);
    pp_tls_stop(&w->api->op);
    uv_close((uv_handle_t *)&w->silent, NULL);
    const int left = api_server_teardown(&api);
    free(bundle);
    free(w);
    return left;
}

static bool serves(void *user)
{
    return ((world *)user)->api->op.server;
}

static bool is_synced(void *user)
{
    return pp_replicas_synced(&((world *)user)->api->op);
}

static bool was_told(void *user)
{
    return ((world *)user)->told;
}

static void on_told(pp_operator *op, uint64_t id)
{
    (void)op;
    the_world->told++;
    the_world->told_id = id;
}

/* The Service's endpoints: this pod, and one at each of these ports. */
static void find_replicas(world *w, const int *ports, size_t count)
{
    static char line[2048];
    char self[64] = "", endpoints[1024] = "";
    (void)gethostname(self, sizeof self - 1);
    assert_true(api_server_run(w->api, serves, w));
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(endpoints + strlen(endpoints), sizeof endpoints - strlen(endpoints),
                       "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"namespace\":\"system\","
                       "\"name\":\"probe-%zu\",\"resourceVersion\":\"3\"},\"ports\":[{\"name\":"
                       "\"https\",\"port\":%d}],\"endpoints\":[{\"addresses\":[\"127.0.0.9\"],"
                       "\"targetRef\":{\"name\":\"%s\"}},{\"addresses\":[\"127.0.0.1\"]}]}}\n",
                       i, ports[i], self);
    }
    (void)snprintf(line, sizeof line, "%s%s", endpoints, END);
    w->api->events = line;
    assert_int_equal(pp_replicas_start(&w->api->op, NULL), 0);
    assert_true(api_server_run(w->api, is_synced, w));
}

static void tell(world *w)
{
    PP_CLEANUP_JSON json_t *session = json_pack("{s:{s:s}, s:{s:{s:{s:s}}}}", "metadata", "name",
                                                "s", "spec", "selector", "matchLabels", "app", "a");
    pp_replicas_tell(&w->api->op, "ml", session, on_told, 7);
}

static void test_it_hears_before_the_answer(void **state)
{
    world *w = *state;
    assert_true(api_server_run(w->api, serves, w));
    const int port = pp_http_tls_port(w->api->op.server);
    find_replicas(w, &port, 1);
    tell(w);
    assert_int_equal(w->told, 0);
    assert_true(api_server_run(w->api, was_told, w));
    assert_int_equal(w->reviews, 1);
    assert_int_equal(w->told_id, 7);
    assert_string_equal(w->name, "ml/s");
    assert_true(w->relayed && w->has_spec);
}

/* One that says nothing, and one that is gone: the answer waits for a while, and the others hear.
 */
static void test_one_that_hangs(void **state)
{
    world *w = *state;
    assert_true(api_server_run(w->api, serves, w));
    const int ports[] = {w->silent_port, 1, pp_http_tls_port(w->api->op.server)};
    find_replicas(w, ports, 3);
    const int64_t begun = pp_time_monotonic();
    tell(w);
    assert_true(api_server_run(w->api, was_told, w));
    const int64_t took = pp_time_monotonic() - begun;
    assert_true(took > SECOND / 4);
    assert_int_equal(w->reviews, 1);
    assert_int_equal(w->told, 1);
}

static void test_alone(void **state)
{
    world *w = *state;
    find_replicas(w, NULL, 0);
    tell(w);
    assert_int_equal(w->told, 1);
}

static void test_without_a_lease(void **state)
{
    world *w = *state;
    w->api->config.lease.enabled = false;
    assert_int_equal(pp_replicas_start(&w->api->op, NULL), 0);
    assert_true(pp_replicas_synced(&w->api->op));
    tell(w);
    assert_int_equal(w->told, 1);
}

static void test_stops_while_it_tells(void **state)
{
    world *w = *state;
    find_replicas(w, &w->silent_port, 1);
    tell(w);
    api_server_run_for(w->api, SECOND / 10);
    assert_int_equal(w->told, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_hears_before_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_that_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_a_lease, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stops_while_it_tells, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
