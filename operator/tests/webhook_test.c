/* What the operator writes into its MutatingWebhookConfiguration. */
#include "common/cleanup.h"
#include "common/json.h"
#include "common/tests/cmocka_all.h"
#include "operator/installation/webhook.h"

#include <string.h>

/** Both as JSON with ' for ". */
static json_t *parse(const char *text)
{
    PP_CLEANUP_FREE char *copy = strdup(text);
    for (char *c = strchr(copy, '\''); c; c = strchr(c, '\''))
        *c = '"';
    json_t *object = json_loads(copy, 0, NULL);
    assert_non_null(object);
    return object;
}

static void assert_patch(const char *object, const char *expected)
{
    PP_CLEANUP_JSON json_t *configuration = parse(object);
    PP_CLEANUP_JSON json_t *wanted = parse(expected);
    PP_CLEANUP_JSON json_t *patch = pp_webhook_patch(configuration, "Q0E=", "s3cret");
    PP_CLEANUP_FREE char *text = json_dumps(patch, JSON_COMPACT);
    if (!json_equal(patch, wanted))
        fail_msg("%s", text);
}

static void test_a_fresh_configuration(void **state)
{
    (void)state;
    assert_patch("{'webhooks':["
                 "{'name':'pods.precisionprobe.io','clientConfig':{'service':{'name':'a'}}},"
                 "{'name':'labelled.precisionprobe.io','clientConfig':{"
                 "'service':{'path':'/old/labelled'},'caBundle':'Q0E='}}]}",
                 "[{'op':'test','path':'/webhooks/0/name','value':'pods.precisionprobe.io'},"
                 "{'op':'add','path':'/webhooks/0/clientConfig/caBundle','value':'Q0E='},"
                 "{'op':'add','path':'/webhooks/0/clientConfig/service/path',"
                 "'value':'/s3cret/pods'},"
                 "{'op':'test','path':'/webhooks/1/name','value':'labelled.precisionprobe.io'},"
                 "{'op':'add','path':'/webhooks/1/clientConfig/service/path',"
                 "'value':'/s3cret/labelled'}]");
}

static void test_what_is_right_is_left_alone(void **state)
{
    (void)state;
    assert_patch("{'webhooks':[{'name':'sessions.precisionprobe.io','clientConfig':{"
                 "'service':{'path':'/s3cret/sessions'},'caBundle':'Q0E='}}]}",
                 "[]");
    assert_patch("{'webhooks':[]}", "[]");
    assert_patch("{}", "[]");
}

/* One with a URL is somebody's own way to us: its path is theirs to write. */
static void test_a_url_keeps_its_path(void **state)
{
    (void)state;
    assert_patch("{'webhooks':[{'name':'pods.precisionprobe.io','clientConfig':{"
                 "'url':'https://o.example/x','caBundle':'Q0E='}}]}",
                 "[]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fresh_configuration),
        cmocka_unit_test(test_what_is_right_is_left_alone),
        cmocka_unit_test(test_a_url_keeps_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
