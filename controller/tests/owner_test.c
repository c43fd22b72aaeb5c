#include "controller/session/owner.h"
#include "controller/tests/fixtures.h"

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
        if (pp_owner_state_of(cases[i].kind, object) != cases[i].state)
            fail_msg("case %zu", i);
    }
    assert_int_equal(pp_owner_state_of(PP_OWNER_JOB, NULL), PP_OWNER_DONE);
    assert_int_equal(pp_owner_state_of(PP_OWNER_OTHER, NULL), PP_OWNER_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
