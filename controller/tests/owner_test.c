#include "controller/session/owner.h"
#include "controller/tests/fixtures.h"

#include <stdio.h>

static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(pp_owner_kind_of("batch/v1", "Job"), PP_OWNER_JOB);
    assert_int_equal(pp_owner_kind_of("batch.volcano.sh/v1alpha1", "Job"), PP_OWNER_OTHER);
    assert_int_equal(pp_owner_kind_of("apps/v1", "StatefulSet"), PP_OWNER_STATEFUL_SET);
    assert_int_equal(pp_owner_kind_of("apps/v1", "ReplicaSet"), PP_OWNER_REPLICA_SET);
    assert_int_equal(pp_owner_kind_of("kubeflow.org/v1", "PyTorchJob"), PP_OWNER_OTHER);
    assert_int_equal(pp_owner_kind_of(NULL, "Job"), PP_OWNER_OTHER);
    assert_int_equal(pp_owner_kind_of(NULL, NULL), PP_OWNER_NONE);
}

static void test_states(void **state)
{
    (void)state;
    static const struct {
        pp_owner_kind kind;
        const char *object;
        pp_owner_state state;
    } cases[] = {
        {PP_OWNER_JOB, "{'spec': {'backoffLimit': 4, 'completions': 1}, 'status': {'failed': 1}}",
         PP_OWNER_MAKES_PODS},
        {PP_OWNER_JOB, "{'spec': {'backoffLimit': 4, 'completions': 1}, 'status': {'failed': 5}}",
         PP_OWNER_DONE},
        {PP_OWNER_JOB,
         "{'spec': {'backoffLimit': 0, 'backoffLimitPerIndex': 1, 'completions': 4}, 'status': "
         "{'failed': 1}}",
         PP_OWNER_MAKES_PODS},
        {PP_OWNER_JOB, "{'spec': {'completions': 3}, 'status': {'succeeded': 2}}",
         PP_OWNER_MAKES_PODS},
        {PP_OWNER_JOB, "{'spec': {'completions': 3}, 'status': {'succeeded': 3}}", PP_OWNER_DONE},
        {PP_OWNER_JOB, "{'spec': {'parallelism': 3}, 'status': {'succeeded': 1}}", PP_OWNER_DONE},
        {PP_OWNER_JOB,
         "{'spec': {'completions': 1}, 'status': {'conditions': [{'type': 'Failed', 'status': "
         "'True'}]}}",
         PP_OWNER_DONE},
        {PP_OWNER_JOB,
         "{'spec': {'completions': 1, 'suspend': true}, 'status': {'conditions': [{'type': "
         "'Suspended', 'status': 'True'}, {'type': 'Complete', 'status': 'False'}]}}",
         PP_OWNER_MAKES_PODS},
        {PP_OWNER_JOB,
         "{'metadata': {'deletionTimestamp': '2026-01-21T12:53:20Z'}, 'spec': {'completions': 1}}",
         PP_OWNER_DONE},
        {PP_OWNER_DEPLOYMENT, "{'spec': {'replicas': 2}}", PP_OWNER_MAKES_PODS},
        {PP_OWNER_DEPLOYMENT, "{'spec': {'replicas': 0}}", PP_OWNER_DONE},
        {PP_OWNER_STATEFUL_SET, "{'spec': {'replicas': 1}}", PP_OWNER_MAKES_PODS},
        {PP_OWNER_STATEFUL_SET, "{'spec': {}}", PP_OWNER_MAKES_PODS},
        {PP_OWNER_REPLICA_SET, "{'spec': {'replicas': 0}}", PP_OWNER_DONE},
        {PP_OWNER_DAEMON_SET, "{'status': {'desiredNumberScheduled': 1}}", PP_OWNER_MAKES_PODS},
        {PP_OWNER_DAEMON_SET, "{'status': {'desiredNumberScheduled': 0}}", PP_OWNER_DONE},
        {PP_OWNER_OTHER, "{'spec': {'replicas': 0}}", PP_OWNER_UNKNOWN},
        {PP_OWNER_NONE, "{}", PP_OWNER_DONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PP_CLEANUP_JSON json_t *object = fixture_json(cases[i].object);
        if (pp_owner_state_of(cases[i].kind, object, false) != cases[i].state)
            fail_msg("case %zu", i);
    }
    assert_int_equal(pp_owner_state_of(PP_OWNER_JOB, NULL, false), PP_OWNER_DONE);
    assert_int_equal(pp_owner_state_of(PP_OWNER_OTHER, NULL, false), PP_OWNER_UNKNOWN);
}

static json_t *job_of(const char *version, const char *kind, const char *controller,
                      const char *failed)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{'metadata': {'ownerReferences': [{'apiVersion': 'v1', 'kind': 'Namespace'},"
                   " {'apiVersion': '%s', 'kind': '%s', 'controller': %s}]},"
                   " 'spec': {'completions': 1}, 'status': {'failed': 1, 'conditions':"
                   " [{'type': 'Failed', 'status': '%s'}]}}",
                   version, kind, controller, failed);
    return fixture_json(text);
}

/* A child Job that is over or gone may be made anew by its own controller: JobSet does. */
static void test_managed(void **state)
{
    (void)state;
    static const struct {
        const char *version, *kind, *controller;
        bool managed;
    } cases[] = {
        {"jobset.x-k8s.io/v1alpha2", "JobSet", "true", true},
        {"workload.codeflare.dev/v1beta2", "AppWrapper", "true", true},
        {"example.com/v1", "CronJob", "true", true},
        {"batch/v1", "CronJob", "true", false},
        {"example.com/v1", "Project", "false", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PP_CLEANUP_JSON json_t *failed =
            job_of(cases[i].version, cases[i].kind, cases[i].controller, "True");
        PP_CLEANUP_JSON json_t *retried =
            job_of(cases[i].version, cases[i].kind, cases[i].controller, "False");
        const bool managed = pp_owner_is_managed(failed);
        const pp_owner_state over = managed ? PP_OWNER_MANAGED : PP_OWNER_DONE;
        assert_int_equal(managed, cases[i].managed);
        assert_int_equal(pp_owner_state_of(PP_OWNER_JOB, failed, managed), over);
        assert_int_equal(pp_owner_state_of(PP_OWNER_JOB, NULL, managed), over);
        assert_int_equal(pp_owner_state_of(PP_OWNER_JOB, retried, managed), PP_OWNER_MAKES_PODS);
    }
    assert_false(pp_owner_is_managed(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_managed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
