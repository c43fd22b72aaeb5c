/* Pods that the API server refuses to their controllers: these controllers' next pods are left
 * alone. */
#include "operator/pods/creations.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/pods/stuck.h"
#include "operator/tests/api_server.h"

#include <string.h>

#define SETS "/apis/apps/v1/namespaces/ml/replicasets/"
#define END                                                                                        \
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\",\"annotations\":{" \
    "\"k8s.io/initial-events-end\":\"true\"}}}}\n"

/* A line of a watch: pods of this ReplicaSet were refused so many seconds ago. */
static void add_event(char *out, size_t size, const char *set, const char *reason, int64_t ago)
{
    char at[40];
    const size_t used = strlen(out);
    pp_time_format(pp_time_now() - ago * INT64_C(1000000000), 0, at, sizeof at);
    (void)snprintf(out + used, size - used,
                   "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"namespace\":\"ml\",\"name\":"
                   "\"%s.1\",\"resourceVersion\":\"3\"},\"involvedObject\":{\"apiVersion\":"
                   "\"apps/v1\",\"kind\":\"ReplicaSet\",\"namespace\":\"ml\",\"name\":\"%s\","
                   "\"uid\":\"uid-%s\"},\"reason\":\"%s\",\"message\":\"pods are forbidden\","
                   "\"lastTimestamp\":\"%s\"}}\n",
                   set, set, set, reason, at);
}

static const pp_inject_refusal *refusal_of(api_server *api, const char *set)
{
    char uid[64];
    (void)snprintf(uid, sizeof uid, "uid-%s", set);
    PP_CLEANUP_JSON json_t *pod = json_pack("{s:{s:[{s:s, s:b}]}}", "metadata", "ownerReferences",
                                            "uid", uid, "controller", 1);
    return pp_stuck_unprobed(&api->op, "ml", pod);
}

static bool is_told(void *user)
{
    return refusal_of(user, "refused");
}

static void test_refused_pods(void **state)
{
    static char lines[4096];
    api_server *api = *state;
    lines[0] = '\0';
    add_event(lines, sizeof lines, "old", "FailedCreate", 7200);
    add_event(lines, sizeof lines, "other", "FailedScheduling", 1);
    add_event(lines, sizeof lines, "anew", "FailedCreate", 1);
    add_event(lines, sizeof lines, "gone", "FailedCreate", 1);
    add_event(lines, sizeof lines, "refused", "FailedCreate", 1);
    const size_t used = strlen(lines);
    (void)snprintf(lines + used, sizeof lines - used, "%s", END);
    api->events = lines;
    api->objects[0].path = SETS "anew"; /* another one of that name by now */
    api->objects[0].text = "{\"metadata\":{\"uid\":\"uid-later\"},\"spec\":{\"template\":{}}}";
    api->objects[1].path = SETS "refused";
    api->objects[1].text =
        "{\"metadata\":{\"uid\":\"uid-refused\"},\"spec\":{\"template\":{\"metadata\":{\"labels\":"
        "{\"app\":\"dlrm\"}}}}}";
    assert_int_equal(pp_creations_start(&api->op, NULL), 0);
    assert_true(api_server_run(api, is_told, api));
    api_server_run_for(api, INT64_C(500000000));
    const pp_inject_refusal *why = refusal_of(api, "refused");
    assert_string_equal(why->reason, "CreationRefused");
    assert_non_null(strstr(why->message, "pods are forbidden"));
    static const char *const others[] = {"old", "other", "anew", "gone"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_null(refusal_of(api, others[i]));
    assert_int_equal(api_server_times(api, "GET " SETS "old"), 0); /* its hour is over */
    assert_int_equal(api_server_times(api, "GET " SETS "other"), 0);
    assert_int_equal(api_server_times(api, "GET " SETS "anew"), 1);
    assert_int_equal(api_server_times(api, "GET " SETS "gone"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refused_pods, api_server_setup, api_server_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
