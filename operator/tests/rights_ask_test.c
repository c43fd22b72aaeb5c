/* What the API server grants, and what one session's denial says of it. */
#include "operator/installation/rights_ask.h"
#include "operator/state/rights.h"

#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/tests/api_server.h"

#define REVIEWS "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

enum { QUESTIONS = 6 };

static int setup(void **state)
{
    const int rc = api_server_setup(state);
    api_server *api = *state;
    api->objects[0].path = REVIEWS;
    api->objects[0].text = "{\"status\":{\"allowed\":true}}";
    uv_timer_init(&api->loop, &api->op.rights_timer);
    api->op.rights_timer.data = &api->op;
    return rc;
}

static int teardown(void **state)
{
    uv_close((uv_handle_t *)&((api_server *)*state)->op.rights_timer, NULL);
    return api_server_teardown(state);
}

static bool is_denied(void *user)
{
    const api_server *api = user;
    return pp_rights_denied(&api->op.rights, PP_RIGHT_STATUS, pp_time_monotonic());
}

/* Runs until a round of questions is over, the n-th. */
typedef struct rounds {
    const api_server *api;
    int count;
} rounds;

static bool are_over(void *user)
{
    const rounds *r = user;
    return api_server_times(r->api, "POST " REVIEWS) >= r->count * QUESTIONS &&
           pp_http_client_active(r->api->op.http) == 0;
}

static void wait_for(api_server *api, int count)
{
    rounds r = {api, count};
    assert_true(api_server_run(api, are_over, &r));
}

/* A policy's word about one session is not the API server's about all. */
static void test_one_denied_status(void **state)
{
    static const pp_error denied = {.code = PP_ERR_DENIED};
    api_server *api = *state;
    pp_rights_start(&api->op);
    wait_for(api, 1);
    pp_rights_tell_written(&api->op, &denied);
    pp_rights_tell_written(&api->op, &denied);
    assert_false(is_denied(api));
    wait_for(api, 2); /* asked at once, and not twice */
    assert_false(is_denied(api));
    api->objects[0].text = "{\"status\":{\"allowed\":false}}";
    pp_rights_tell_written(&api->op, &denied);
    assert_true(api_server_run(api, is_denied, api));
    assert_int_equal(api_server_times(api, "POST " REVIEWS), 3 * QUESTIONS);
    pp_rights_tell_written(&api->op, NULL); /* one that is written says enough */
    assert_false(is_denied(api));
    pp_rights_stop(&api->op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_denied_status, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
