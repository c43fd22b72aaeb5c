/* Paths, and Status objects as errors: what a client decides without a server. */
#include "common/cleanup.h"
#include "operator/kube/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const pp_kube_resource SESSIONS = {"precisionprobe.io", "v1alpha1", "profilesessions"};

static void expect_path(const pp_kube_call *call, const char *watch, const char *want)
{
    pp_error err = {0};
    PP_CLEANUP_FREE char *path = pp_kube_call_path(call, watch, &err);
    assert_string_equal(err.message, "");
    assert_string_equal(path, want);
}

static void test_paths(void **state)
{
    (void)state;
    expect_path(&(pp_kube_call){.verb = PP_KUBE_LIST, .resource = &PP_KUBE_PODS}, NULL,
                "/api/v1/pods");
    expect_path(
        &(pp_kube_call){
            .verb = PP_KUBE_GET, .resource = &PP_KUBE_SECRETS, .ns = "ml", .name = "tls"},
        NULL, "/api/v1/namespaces/ml/secrets/tls");
    expect_path(&(pp_kube_call){.verb = PP_KUBE_PATCH_MERGE,
                                .resource = &SESSIONS,
                                .ns = "ml",
                                .name = "dlrm",
                                .subresource = "status"},
                NULL, "/apis/precisionprobe.io/v1alpha1/namespaces/ml/profilesessions/dlrm/status");
    expect_path(&(pp_kube_call){.verb = PP_KUBE_LIST,
                                .resource = &PP_KUBE_PODS,
                                .ns = "ml",
                                .label_selector = "a in (b,c),d=e",
                                .field_selector = "spec.nodeName=x&limit=1",
                                .limit = 250,
                                .continue_token = "eyJ+/=="},
                "watch=1",
                "/api/v1/namespaces/ml/pods?labelSelector=a%20in%20%28b%2Cc%29%2Cd%3De"
                "&fieldSelector=spec.nodeName%3Dx%26limit%3D1&limit=250&continue=eyJ%2B%2F%3D%3D"
                "&watch=1");
}

static void test_hostile_names(void **state)
{
    (void)state;
    static const char *const names[] = {"",    ".",   "..",   "a/b",  "a%2fb",   "a?b",
                                        "a#b", "a b", "a\nb", "../x", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pp_error err = {0};
        pp_kube_call by_name = {
            .verb = PP_KUBE_GET, .resource = &PP_KUBE_PODS, .ns = "ml", .name = names[i]};
        assert_null(pp_kube_call_path(&by_name, NULL, &err));
        assert_int_equal(err.code, PP_ERR_INVALID);
        assert_string_equal(err.field, "name");
        pp_kube_call by_ns = {
            .verb = PP_KUBE_GET, .resource = &PP_KUBE_PODS, .ns = names[i], .name = "x"};
        assert_null(pp_kube_call_path(&by_ns, NULL, &err));
    }
    /* A DELETE without a name would be one of the whole collection. */
    pp_error err = {0};
    pp_kube_call all = {.verb = PP_KUBE_DELETE, .resource = &PP_KUBE_PODS, .ns = "ml"};
    assert_null(pp_kube_call_path(&all, NULL, &err));
    assert_string_equal(err.field, "name");
}

static pp_error status_error(int http, const char *text)
{
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    assert_int_equal(pp_kube_status_error(http, status, &err), -1);
    return err;
}

static void test_status_codes(void **state)
{
    (void)state;
    static const struct {
        int http;
        pp_error_code code;
    } want[] = {{400, PP_ERR_INVALID},     {401, PP_ERR_UNAUTHORIZED}, {403, PP_ERR_DENIED},
                {404, PP_ERR_NOT_FOUND},   {409, PP_ERR_CONFLICT},     {410, PP_ERR_GONE},
                {413, PP_ERR_TOO_LARGE},   {422, PP_ERR_INVALID},      {429, PP_ERR_UNAVAILABLE},
                {500, PP_ERR_UNAVAILABLE}, {503, PP_ERR_UNAVAILABLE},  {504, PP_ERR_TIMEOUT},
                {418, PP_ERR_INVALID},     {301, PP_ERR_UNAVAILABLE},  {0, PP_ERR_UNAVAILABLE}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        pp_error err = status_error(want[i].http, NULL); /* a proxy's answer: no Status */
        assert_int_equal(err.code, want[i].code);
        assert_true(err.message[0] != '\0');
    }
}

static void test_status_objects(void **state)
{
    (void)state;
    pp_error err = status_error(
        422,
        "{\"kind\":\"Status\",\"reason\":\"Invalid\",\"message\":\"is invalid: spec.duration\","
        "\"details\":{\"causes\":[{\"reason\":\"FieldValueInvalid\",\"message\":\"m\","
        "\"field\":\"spec.duration\"}]},\"code\":422}");
    assert_int_equal(err.code, PP_ERR_INVALID);
    assert_string_equal(err.field, "spec.duration");
    assert_string_equal(err.message, "is invalid: spec.duration");
    /* in a watch's ERROR event the reason may be all there is */
    assert_int_equal(status_error(0, "{\"reason\":\"Expired\",\"message\":\"m\"}").code,
                     PP_ERR_GONE);
    assert_int_equal(status_error(500, "{\"reason\":\"Gone\"}").code, PP_ERR_GONE);
    assert_int_equal(status_error(404, "[1]").code, PP_ERR_NOT_FOUND);
    assert_int_equal(status_error(403, "{\"reason\":7,\"details\":[]}").code, PP_ERR_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_status_codes),
        cmocka_unit_test(test_status_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
