/* Pods that were refused to what makes them. */
#include "controller/pods/creation.h"

#include "common/time.h"
#include "controller/pods/startup.h"
#include "controller/tests/fixtures.h"

#define EVENT(kind, version, more)                                                                 \
    "{'reason': 'FailedCreate', 'message': 'Error creating: pods \\\"p\\\" is forbidden: "         \
    "no'," more "'involvedObject': {'kind': '" kind "', 'apiVersion': '" version                   \
    "', 'namespace': 'ml', 'name': 'dlrm', 'uid': 'owner'}}"
#define AT "'lastTimestamp': '2026-01-21T12:53:20Z',"

static pp_creation creation_of(const char *text, bool is_one)
{
    PP_CLEANUP_JSON json_t *event = fixture_json(text);
    pp_creation c;
    if (pp_creation_of(event, &c) != is_one)
        fail_msg("%s", text);
    return c;
}

static void test_events(void **state)
{
    (void)state;
    pp_creation c = creation_of(EVENT("Job", "batch/v1", AT), true);
    assert_int_equal(c.kind, PP_OWNER_JOB);
    assert_string_equal(c.ns, "ml");
    assert_string_equal(c.name, "dlrm");
    assert_string_equal(c.uid, "owner");
    assert_int_equal(c.at_ns, FIXTURE_CREATED);
    assert_non_null(strstr(c.message, "is forbidden"));
    c = creation_of(EVENT("ReplicaSet", "apps/v1",
                          "'lastTimestamp': null, 'eventTime':"
                          " '2026-01-21T12:53:20.000000Z',"),
                    true);
    assert_int_equal(c.at_ns, FIXTURE_CREATED);
    c = creation_of(EVENT("StatefulSet", "apps/v1",
                          AT "'series': {'lastObservedTime': '2026-01-21T12:53:21Z'},"),
                    true);
    assert_int_equal(c.at_ns, FIXTURE_CREATED + FIXTURE_SECOND);
    (void)creation_of(EVENT("Job", "batch.volcano.sh/v1alpha1", AT), false);
    (void)creation_of(EVENT("Job", "batch/v1", ""), false); /* without a time */
    (void)creation_of("{'reason': 'FailedCreate'}", false);
    (void)creation_of("{'reason': 'Created', " AT "'involvedObject': {'kind': 'Job', 'apiVersion':"
                      " 'batch/v1', 'namespace': 'ml', 'name': 'dlrm', 'uid': 'owner'}}",
                      false);
    (void)creation_of("[]", false);
}

#define JOB                                                                                        \
    "{'metadata': {'uid': 'owner'}, 'spec': {'template': {'metadata': {'labels': {'app': "         \
    "'dlrm'}},"                                                                                    \
    " 'spec': {'containers': [{'name': 'c', 'resources': {'requests': {'cpu': '2'}, 'limits':"     \
    " {'nvidia.com/gpu': '1'}}}]}}}}"

static bool ours(const char *message, const char *hard, const char *used)
{
    char text[400];
    (void)snprintf(text, sizeof text,
                   "{'metadata': {'name': 'rq'}, 'spec': {}, 'status': {'hard': %s, 'used': %s}}",
                   hard, used);
    PP_CLEANUP_JSON json_t *quota = fixture_json(text);
    PP_CLEANUP_JSON json_t *job = fixture_json(JOB);
    const json_t *const list[] = {quota};
    const pp_inject_limits limits = {.quotas = list, .n_quotas = 1};
    pp_creation c = creation_of(EVENT("Job", "batch/v1", AT), true);
    (void)snprintf(c.message, sizeof c.message, "%s", message);
    return pp_creation_may_be_ours(&c, job, &limits);
}

/* A training that waits for its quota is profiled when it gets it. */
static void test_whose_fault(void **state)
{
    (void)state;
    static const char quota[] = "Error creating: pods p is forbidden: exceeded quota: rq";
    assert_true(ours("admission webhook denied the request", "{'cpu': '1'}", "{'cpu': '0'}"));
    assert_true(ours(quota, "{'cpu': '2'}", "{'cpu': '0'}"));
    assert_false(ours(quota, "{'cpu': '2'}", "{'cpu': '1'}"));
    assert_false(ours(quota, "{'requests.cpu': '1999m'}", "{'requests.cpu': '0'}"));
    assert_true(ours(quota, "{'limits.cpu': '1'}", "{'limits.cpu': '0'}"));
    assert_false(ours(quota, "{'pods': '3'}", "{'pods': '3'}"));
    assert_true(ours(quota, "{'pods': '3'}", "{'pods': '2'}"));
    assert_false(ours(quota, "{'count/pods': '3'}", "{'count/pods': '3'}"));
    PP_CLEANUP_JSON json_t *job = fixture_json(JOB);
    pp_creation c = creation_of(EVENT("Job", "batch/v1", AT), true);
    assert_true(pp_creation_may_be_ours(&c, job, NULL));
    c.uid[0] = 'x'; /* made anew under the same name */
    assert_false(pp_creation_may_be_ours(&c, job, NULL));
    assert_false(pp_creation_may_be_ours(&c, NULL, NULL));
}

static void test_for_an_hour(void **state)
{
    (void)state;
    const int64_t hour = INT64_C(3600) * FIXTURE_SECOND;
    PP_CLEANUP_JSON json_t *job = fixture_json(JOB);
    pp_creation c = creation_of(EVENT("Job", "batch/v1", AT), true);
    pp_unprobed_owner o;
    assert_true(pp_creation_leave_alone(&c, job, 1000, FIXTURE_CREATED, &o));
    assert_int_equal(o.until_ns, 1000 + hour);
    assert_string_equal(o.uid, "owner");
    assert_string_equal(o.what, "Job dlrm");
    assert_string_equal(o.refusal.reason, "CreationRefused");
    assert_non_null(strstr(o.refusal.message, "Job dlrm could not be created"));
    assert_non_null(strstr(o.refusal.message, "is forbidden"));
    assert_string_equal(pp_json_get_string(o.labels, "app", NULL), "dlrm");
    assert_true(pp_creation_leave_alone(&c, job, 1000, FIXTURE_CREATED + hour - 5, &o));
    assert_int_equal(o.until_ns, 1005);
    assert_false(pp_creation_leave_alone(&c, job, 1000, FIXTURE_CREATED + hour, &o));
    /* A clock that is ahead does not make it longer. */
    assert_true(pp_creation_leave_alone(&c, job, 1000, FIXTURE_CREATED - 9 * hour, &o));
    assert_int_equal(o.until_ns, 1000 + hour);
}

/* What the session says while it has no pod. */
static void test_the_session_says_it(void **state)
{
    (void)state;
    pp_session *session = fixture_session("{'selector': {'matchLabels': {'app': 'dlrm'}}}");
    pp_session_observation obs = {.session = session,
                                  .now_ns = FIXTURE_CREATED,
                                  .creation_refused = "pods of Job dlrm could not be created"};
    pp_session_decision did;
    assert_int_equal(pp_session_step(&obs, NULL, &did, NULL), 0);
    const pp_condition *stalled = &did.conditions[PP_CONDITION_STALLED];
    assert_int_equal(stalled->status, PP_CONDITION_TRUE);
    assert_string_equal(stalled->reason, "CreationRefused");
    assert_non_null(strstr(stalled->message, "Job dlrm"));
    bool told = false;
    for (size_t i = 0; i < did.n_events; i++)
        told = told || strcmp(did.events[i].reason, "CreationRefused") == 0;
    assert_true(told);
    pp_session_decision_done(&did);
    (void)pp_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_whose_fault),
        cmocka_unit_test(test_for_an_hour),
        cmocka_unit_test(test_the_session_says_it),
    };
    return cmocka_run_group_tests_name("creation", tests, NULL, NULL);
}
