#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "operator/cache/pod.h"

#include <math.h>
#include <string.h>

static pp_pod *decode(const char *text, pp_error *err)
{
    PP_CLEANUP_JSON json_t *object = pp_json_parse(text, strlen(text), err);
    assert_non_null(object);
    return pp_pod_decode(object, err);
}

static void test_keeps_what_is_used(void **state)
{
    (void)state;
    pp_pod *pod = decode(
        "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"dlrm-x\",\"uid\":\"u1\","
        "\"creationTimestamp\":"
        "\"2026-01-02T03:04:05Z\",\"labels\":{\"app\":\"dlrm\"},\"annotations\":{"
        "\"precisionprobe.io/session-uid\":\"s1\"},\"ownerReferences\":[{\"kind\":\"Job\",\"name\":"
        "\"dlrm\",\"controller\":true}]},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"name\":"
        "\"a\","
        "\"resources\":{\"requests\":{\"cpu\":\"250m\"}}},{\"name\":\"precisionprobe-agent\","
        "\"resources\":{\"requests\":{\"cpu\":\"50m\"}}},{\"name\":\"b\",\"resources\":{"
        "\"requests\":{"
        "\"cpu\":2}}}]},\"status\":{\"phase\":\"Running\",\"podIP\":\"10.0.0.7\"}}",
        NULL);
    assert_non_null(pod);
    assert_string_equal(pod->session_uid, "s1");
    assert_false(pod->hooked); /* an annotation alone is no injection */
    assert_string_equal(pod->owner_kind, "Job");
    assert_string_equal(pod->owner_name, "dlrm");
    assert_string_equal(pod->host_name, "dlrm-x");
    assert_string_equal(pod->ip, "10.0.0.7");
    assert_true(pod->running);
    assert_true(fabs(pod->cpu_request - 2.25) < 1e-9);
    assert_string_equal(json_string_value(json_object_get(pod->labels, "app")), "dlrm");
    pp_session_pod view;
    pp_pod_view(pod, &view);
    assert_string_equal(view.uid, "u1");
    assert_int_equal(view.rank, -1);
    pp_pod_free(pod);
}

static void test_what_runs_of_it(void **state)
{
    (void)state;
    static const char injected[] =
        "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"a\",\"uid\":\"u\",\"annotations\":{"
        "\"precisionprobe.io/settings\":\"{}\",\"precisionprobe.io/containers\":\"b,c\"}},"
        "\"spec\":{\"volumes\":[{\"name\":\"precisionprobe-ring\"}],\"initContainers\":[{\"name\":"
        "\"precisionprobe-hook\"},{\"name\":\"precisionprobe-agent\"}],\"containers\":[{\"name\":"
        "\"c\",\"command\":[\"/bin/bash\"]}]},\"status\":{\"containerStatuses\":[%s]}}";
    char text[1024];
    (void)snprintf(text, sizeof text, injected,
                   "{\"name\":\"c\",\"state\":{\"running\":{\"startedAt\":"
                   "\"2026-01-02T03:04:05Z\"}}}");
    pp_pod *pod = decode(text, NULL);
    assert_true(pod && pod->runs && pod->runs->trainer_runs && !pod->runs->agent_runs);
    assert_string_equal(pod->runs->program, "bash");
    pp_session_pod view;
    pp_pod_view(pod, &view);
    assert_false(view.trainer_waits);
    pod->running = true;
    pod->runs->trainer_runs = false;
    pp_pod_view(pod, &view);
    assert_true(view.trainer_waits);
    pp_pod_free(pod);
    (void)snprintf(text, sizeof text, injected, "");
    pod = decode(text, NULL);
    assert_true(pod && !pod->runs);
    pp_pod_free(pod);
}

static void test_carries_the_hook(void **state)
{
    (void)state;
    pp_pod *pod = decode(
        "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"a\",\"uid\":\"u\",\"labels\":{\"app\":"
        "\"x\"},"
        "\"annotations\":{\"precisionprobe.io/settings\":\"{}\",\"precisionprobe.io/containers\":"
        "\"c\"}},\"spec\":{\"volumes\":[{\"name\":\"precisionprobe-ring\"}],\"initContainers\":[{"
        "\"name\":"
        "\"precisionprobe-hook\"},{\"name\":\"precisionprobe-agent\"}],\"containers\":[{\"name\":"
        "\"c\"}]}}",
        NULL);
    assert_non_null(pod);
    assert_true(pod->hooked);
    pp_inject_pod_view pod_view;
    pp_pod_for_inject(pod, &pod_view);
    assert_true(pod_view.hooked);
    assert_null(pod_view.session_uid);
    assert_string_equal(pod_view.containers, "c");
    assert_string_equal(pod_view.namespace_, "ml");
    pp_session_pod view;
    pp_pod_view(pod, &view);
    assert_true(view.hooked);
    pp_pod_free(pod);
}

static void test_owner_of_a_deployment_and_of_nobody(void **state)
{
    (void)state;
    pp_pod *pod =
        decode("{\"metadata\":{\"namespace\":\"ml\",\"name\":\"web-6f7d-x\",\"uid\":\"u\","
               "\"labels\":{\"pod-template-hash\":\"6f7d\"},\"ownerReferences\":[{\"kind\":"
               "\"ReplicaSet\",\"name\":\"web-6f7d\",\"controller\":true}]}}",
               NULL);
    assert_string_equal(pod->owner_kind, "Deployment");
    assert_string_equal(pod->owner_name, "web");
    assert_true(isnan(pod->cpu_request));
    pp_pod_free(pod);
    pod = decode("{\"metadata\":{\"namespace\":\"ml\",\"name\":\"alone\",\"uid\":\"u\"}}", NULL);
    assert_string_equal(pod->owner_kind, "Pod");
    assert_string_equal(pod->owner_name, "alone");
    assert_null(pod->workload);
    pp_pod_free(pod);
    pod = decode("{\"metadata\":{\"namespace\":\"ml\",\"name\":\"alone\",\"uid\":\"u\","
                 "\"labels\":{\"precisionprobe.io/workload\":\"ranker\"}}}",
                 NULL);
    assert_string_equal(pod->owner_name, "alone"); /* whom to ask whether a pod follows */
    assert_string_equal(pod->workload, "ranker");
    assert_false(pod->managed);
    pp_pod_free(pod);
    pod = decode("{\"metadata\":{\"namespace\":\"ml\",\"name\":\"dlrm-node-0-0-x\",\"uid\":\"u\","
                 "\"labels\":{\"jobset.sigs.k8s.io/jobset-name\":\"dlrm\"},\"ownerReferences\":[{"
                 "\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"name\":\"dlrm-node-0\","
                 "\"controller\":true}]}}",
                 NULL);
    assert_int_equal(pod->owner, PP_OWNER_JOB);
    assert_string_equal(pod->owner_name, "dlrm-node-0");
    assert_true(pod->managed);
    pp_pod_free(pod);
}

static void test_only_an_ordinary_agent_is_left(void **state)
{
    (void)state;
    static const char agent[] = "{\"name\":\"precisionprobe-agent\"}";
    static const struct {
        const char *policy;
        const char *containers; /* besides the trainer */
        const char *state;      /* of the trainer */
        bool trained;
    } cases[] = {
        {"Never", agent, "{\"terminated\":{\"exitCode\":1}}", true},
        {"Never", agent, "{\"running\":{}}", false},
        {"Never", agent, "{\"waiting\":{}}", false},
        {"Never", "{\"name\":\"helper\"}", "{\"terminated\":{\"exitCode\":0}}", false},
        {"OnFailure", agent, "{\"terminated\":{\"exitCode\":0}}", true},
        {"OnFailure", agent, "{\"terminated\":{\"exitCode\":1}}", false},
        {"Always", agent, "{\"terminated\":{\"exitCode\":0}}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
                       "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"x\",\"uid\":\"u\"},"
                       "\"spec\":{\"restartPolicy\":\"%s\",\"containers\":[{\"name\":\"trainer\"},"
                       "%s]},\"status\":{\"containerStatuses\":[{\"name\":\"precisionprobe-agent\","
                       "\"state\":{\"running\":{}}},{\"name\":\"trainer\",\"state\":%s}]}}",
                       cases[i].policy, cases[i].containers, cases[i].state);
        pp_pod *pod = decode(text, NULL);
        assert_non_null(pod);
        assert_int_equal(pod->agent_alone, cases[i].trained);
        pp_pod_free(pod);
    }
}

/* An agent's last words: of one that was started anew since, or not yet, native or not. */
static void test_last_words_of_the_agent(void **state)
{
    (void)state;
#define SAID(state, words)                                                                         \
    "{\"name\":\"precisionprobe-agent\",\"" state "\":{\"terminated\":{\"exitCode\":0,"            \
    "\"message\":\"" words "\"}}}"
    static const struct {
        const char *kind, *status;
        int64_t said;
    } cases[] = {
        {"initContainerStatuses", SAID("lastState", "clock behind by 820000000 s or more: by"),
         -820000000},
        {"containerStatuses", SAID("state", "clock ahead by 90000 s or more: by it"), 90000},
        {"initContainerStatuses", SAID("lastState", "out of memory"), 0},
        {"containerStatuses", SAID("state", "clock ahead by 999999999999 s or more: by it"), 0},
        {"initContainerStatuses", "{\"name\":\"precisionprobe-agent\",\"lastState\":{}}", 0},
        {"containerStatuses",
         "{\"name\":\"trainer\",\"lastState\":{\"terminated\":{\"message\":\"clock ahead by 90000 "
         "s "
         "or more: by it\"}}}",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
                       "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"x\",\"uid\":\"u\"},"
                       "\"status\":{\"%s\":[{\"name\":\"other\"},%s]}}",
                       cases[i].kind, cases[i].status);
        pp_pod *pod = decode(text, NULL);
        pp_session_pod view;
        assert_non_null(pod);
        pp_pod_view(pod, &view);
        assert_true(pod->clock_said_s == cases[i].said);
        assert_true(view.clock_said_ns == cases[i].said * 1000000000);
        pp_pod_free(pod);
    }
}

static void test_refuses_what_is_no_pod(void **state)
{
    (void)state;
    static const char *const bad[] = {"{}", "[]", "{\"metadata\":7}",
                                      "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"x\"}}",
                                      "{\"metadata\":{\"name\":\"x\",\"uid\":\"u\"}}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pp_error err = {0};
        assert_null(decode(bad[i], &err));
        assert_int_equal(err.code, PP_ERR_INVALID);
    }
}

static void test_cores(void **state)
{
    (void)state;
    assert_true(pp_pod_parse_cores("100m") == 0.1);
    assert_true(pp_pod_parse_cores("1.5") == 1.5);
    assert_true(pp_pod_parse_cores("2k") == 2000.0);
    static const char *const bad[] = {"", "m", "-1", "1x", "nan", "inf"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(pp_pod_parse_cores(bad[i]) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_what_is_used),
        cmocka_unit_test(test_carries_the_hook),
        cmocka_unit_test(test_what_runs_of_it),
        cmocka_unit_test(test_owner_of_a_deployment_and_of_nobody),
        cmocka_unit_test(test_only_an_ordinary_agent_is_left),
        cmocka_unit_test(test_last_words_of_the_agent),
        cmocka_unit_test(test_refuses_what_is_no_pod),
        cmocka_unit_test(test_cores),
    };
    return cmocka_run_group_tests_name("pod", tests, NULL, NULL);
}
