/* Conditions of a ProfileSession, as the HTTP API tells them. */
#include "operator/results/results_conditions.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"

static void expect(const char *status, const char *wanted)
{
    PP_CLEANUP_JSON json_t *object = status ? json_loads(status, 0, NULL) : NULL;
    PP_CLEANUP_FREE char *text = NULL;
    assert_int_equal(!status, !object);
    assert_int_equal(pp_results_conditions(object, &text, NULL), 0);
    assert_string_equal(text, wanted);
}

static void conditions_in_their_order(void **state)
{
    (void)state;
    expect("{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"Stalled\",\"status\":\"True\","
           "\"reason\":\"NoMatchingPods\",\"message\":\"\\u202e\\\"<b>\",\"observedGeneration\":3,"
           "\"lastTransitionTime\":\"2026-01-02T03:04:05Z\"},{\"type\":\"Ready\"}]}",
           "[{\"type\":\"Stalled\",\"status\":\"True\",\"reason\":\"NoMatchingPods\","
           "\"message\":\"\u202e\\\"<b>\",\"last_transition_time\":\"2026-01-02T03:04:05Z\"},"
           "{\"type\":\"Ready\",\"status\":null,\"reason\":null,\"message\":null,"
           "\"last_transition_time\":null}]");
}

static void conditions_that_are_not_there(void **state)
{
    (void)state;
    expect(NULL, "null");
    expect("{}", "[]");
    expect("{\"conditions\":[]}", "[]");
}

/* Whoever may patch the status may write there what the schema lets pass; and more. */
static void conditions_that_are_none(void **state)
{
    (void)state;
    expect("{\"conditions\":\"x\"}", "[]");
    expect("{\"conditions\":[7,{\"type\":{\"a\":1},\"status\":true}]}",
           "[{\"type\":null,\"status\":null,\"reason\":null,\"message\":null,"
           "\"last_transition_time\":null},{\"type\":null,\"status\":null,\"reason\":null,"
           "\"message\":null,\"last_transition_time\":null}]");
}

static void expect_reason(const char *status, const char *wanted)
{
    PP_CLEANUP_JSON json_t *object = json_loads(status, 0, NULL);
    const char *why = pp_results_reason(object);
    assert_non_null(object);
    assert_int_equal(!why, !wanted);
    if (why)
        assert_string_equal(why, wanted);
}

static void reason_of_succeeded(void **state)
{
    (void)state;
    expect_reason("{\"conditions\":[{\"type\":\"Stalled\",\"reason\":\"A\"},"
                  "{\"type\":\"Succeeded\",\"reason\":\"B\"}]}",
                  "B");
    expect_reason("{\"conditions\":[7,{\"type\":{}},{\"type\":\"Succeeded\",\"reason\":7}]}", NULL);
    expect_reason("{\"conditions\":[{\"type\":\"Stalled\",\"reason\":\"A\"}]}", NULL);
    expect_reason("{}", NULL);
    assert_null(pp_results_reason(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conditions_in_their_order),
        cmocka_unit_test(conditions_that_are_not_there),
        cmocka_unit_test(conditions_that_are_none),
        cmocka_unit_test(reason_of_succeeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
