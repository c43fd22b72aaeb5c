/* What the API server says of a Job whose pods are gone: whether another will make it anew. */
#include "operator/pods/owners_ask.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "operator/cache/session_runtime.h"
#include "operator/tests/api_server.h"

#define PATH "/apis/batch/v1/namespaces/ml/jobs/dlrm-0"
#define OF(kind, version)                                                                          \
    "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"" version "\",\"kind\":\"" kind "\","   \
    "\"name\":\"dlrm\",\"controller\":true}]},\"status\":{\"conditions\":[{\"type\":\"Failed\","   \
    "\"status\":\"True\"}]}}"

static bool answered(void *user)
{
    const pp_owners *owners = user;
    return !owners->asking;
}

static pp_owner_state asked(api_server *api, pp_runtime *runtime, const pp_session *session)
{
    pp_owners_forget(&runtime->owners);
    pp_owners_ask(runtime, session);
    assert_true(runtime->owners.asking);
    assert_true(api_server_run(api, answered, &runtime->owners));
    return runtime->owners.items[0].state;
}

static pp_session *make_session(void)
{
    pp_session *session = NULL;
    PP_CLEANUP_JSON json_t *object = json_pack(
        "{s:{s:s, s:s, s:s, s:s, s:i, s:s}, s:{s:{s:{s:s}}}}", "metadata", "namespace", "ml",
        "name", "dlrm", "uid", "u", "resourceVersion", "1", "generation", 1, "creationTimestamp",
        "2026-01-21T12:00:00Z", "spec", "selector", "matchLabels", "app", "dlrm");
    assert_int_equal(pp_session_decode(object, &session, NULL), 0);
    return session;
}

/* A JobSet deletes its Jobs and makes them anew by the same names: what was seen of one that has
 * failed holds while there is none; and what its pods' label says, where none was seen. */
static void test_a_job_that_another_makes_anew(void **state)
{
    api_server *api = *state;
    static const struct {
        const char *object;
        bool labelled;
        pp_owner_state failed, gone;
    } cases[] = {
        {OF("JobSet", "jobset.x-k8s.io/v1alpha2"), false, PP_OWNER_MANAGED, PP_OWNER_MANAGED},
        {OF("CronJob", "batch/v1"), false, PP_OWNER_DONE, PP_OWNER_DONE},
        {NULL, true, PP_OWNER_MANAGED, PP_OWNER_MANAGED},
        {NULL, false, PP_OWNER_DONE, PP_OWNER_DONE},
    };
    pp_session *session = make_session();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static char name[] = "dlrm-0";
        const pp_pod pod = {
            .owner = PP_OWNER_JOB, .owner_name = name, .managed = cases[i].labelled};
        pp_runtime *runtime = pp_runtime_get(&api->op, session);
        assert_non_null(runtime);
        pp_owners_note(&runtime->owners, &pod);
        api->objects[0].path = cases[i].object ? PATH : NULL;
        api->objects[0].text = cases[i].object;
        assert_int_equal(asked(api, runtime, session), cases[i].failed);
        api->objects[0].path = NULL;
        assert_int_equal(asked(api, runtime, session), cases[i].gone);
        api->objects[0].path = PATH;
        api->objects[0].text = "{\"spec\":{\"completions\":1}}";
        assert_int_equal(asked(api, runtime, session), PP_OWNER_MAKES_PODS);
        pp_runtime_drop(runtime);
    }
    assert_int_equal(api_server_times(api, "GET " PATH), api->count);
    (void)pp_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_job_that_another_makes_anew, api_server_setup,
                                        api_server_teardown),
    };
    return cmocka_run_group_tests_name("owners_ask", tests, NULL, NULL);
}
