/* Kubeconfig files, good and hostile, and the in-cluster settings. */
#include "common/cleanup.h"
#include "operator/kube/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define CONTEXTS                                                                                   \
    "apiVersion: v1\nkind: Config\ncurrent-context: dev\ncontexts:\n"                              \
    "- {name: other, context: {cluster: nope, user: nope}}\n"                                      \
    "- {name: dev, context: {cluster: here, user: me, namespace: ml}}\n"
#define CLUSTER(more)                                                                              \
    "clusters:\n- {name: here, cluster: {server: 'https://10.0.0.1:6443/'" more "}}\n"
#define USER(what) "users:\n- {name: me, user: {" what "}}\n"

static int parse(pp_kube_config *config, const char *text, pp_error *err)
{
    return pp_kube_config_parse(config, text, strlen(text), "/etc/kube", err);
}

static void test_files_and_token(void **state)
{
    (void)state;
    pp_kube_config c;
    pp_error err = {0};
    int rc =
        parse(&c, CONTEXTS CLUSTER(", certificate-authority: ca.pem") USER("token: 'abc'"), &err);
    assert_string_equal(err.message, "");
    assert_int_equal(rc, 0);
    assert_string_equal(c.server, "https://10.0.0.1:6443");
    assert_string_equal(c.ns, "ml");
    assert_string_equal(c.ca_file, "/etc/kube/ca.pem");
    assert_null(c.ca_pem);
    assert_string_equal(c.token, "abc");
    pp_kube_config_done(&c);
    assert_null(c.server);
}

static void test_data_wins_over_files(void **state)
{
    (void)state;
    pp_kube_config c;
    /* "-----PEM\n" and "key" */
    assert_int_equal(parse(&c,
                           CONTEXTS CLUSTER(", certificate-authority: x, "
                                            "certificate-authority-data: LS0tLS1QRU0K")
                               USER("client-certificate-data: LS0tLS1QRU0K, client-key: /abs/key"),
                           NULL),
                     0);
    assert_string_equal(c.ca_pem, "-----PEM\n");
    assert_null(c.ca_file);
    assert_string_equal(c.cert_pem, "-----PEM\n");
    assert_string_equal(c.key_file, "/abs/key");
    pp_kube_config_done(&c);
}

static void expect_refused(const char *text, const char *field)
{
    pp_kube_config c;
    pp_error err = {0};
    assert_int_equal(parse(&c, text, &err), -1);
    assert_int_equal(err.code, PP_ERR_INVALID);
    if (field)
        assert_non_null(strstr(err.field, field));
    assert_true(err.message[0] != '\0');
    assert_null(c.server); /* nothing half-built is left behind */
    assert_null(c.token);
    assert_null(c.ca_pem);
}

static void test_refused_by_name(void **state)
{
    (void)state;
    expect_refused(CONTEXTS CLUSTER("") USER("exec: {command: aws}"), "exec");
    expect_refused(CONTEXTS CLUSTER("") USER("auth-provider: {name: gcp}"), "auth-provider");
    expect_refused(CONTEXTS CLUSTER("") USER("as: root"), "as");
    expect_refused(CONTEXTS CLUSTER(", insecure-skip-tls-verify: true") USER(""),
                   "insecure-skip-tls-verify");
    expect_refused(CONTEXTS CLUSTER(", proxy-url: 'http://p'") USER(""), "proxy-url");
    expect_refused(CONTEXTS CLUSTER(", certificate-authority-data: '!!!'") USER(""),
                   "certificate-authority-data");
    expect_refused(CONTEXTS CLUSTER(", certificate-authority-data: AAAA") USER(""), /* NUL bytes */
                   "certificate-authority-data");
}

static void test_hostile(void **state)
{
    (void)state;
    expect_refused("", NULL);
    expect_refused("- a\n- b\n", NULL);
    expect_refused("{", NULL);
    expect_refused("clusters: []\n", "current-context");
    expect_refused("current-context: dev\n", "contexts");
    expect_refused("current-context: dev\ncontexts: {a: b}\n", "contexts");
    expect_refused("current-context: dev\ncontexts: [1, {name: dev}, {name: 2}]\n", "contexts");
    expect_refused(CONTEXTS, "clusters");
    expect_refused(CONTEXTS CLUSTER(""), "users");
    expect_refused(CONTEXTS "clusters: [{name: here, cluster: {server: 7}}]\n" USER(""), "server");
    expect_refused(CONTEXTS "clusters: [{name: here, cluster: {server: 'ftp://x'}}]\n" USER(""),
                   "server");
    expect_refused(CONTEXTS "clusters: [{name: here, cluster: {}}]\n" USER(""), "server");
    expect_refused(CONTEXTS CLUSTER("") USER("token: {a: b}"), "token");
}

static void test_every_prefix_is_survived(void **state)
{
    (void)state;
    static const char text[] =
        CONTEXTS CLUSTER(", certificate-authority-data: LS0tLS1QRU0K") USER("token: abc");
    for (size_t n = 0; n < sizeof text; n++) {
        pp_kube_config c;
        pp_error err = {0};
        if (pp_kube_config_parse(&c, text, n, NULL, &err) < 0)
            assert_true(err.code != PP_OK);
        pp_kube_config_done(&c);
    }
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    PP_CLEANUP_FILE FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
}

static void test_in_cluster(void **state)
{
    (void)state;
    char dir[] = "/tmp/pp-kube-config-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    pp_kube_config c;
    pp_error err = {0};
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(pp_kube_config_in_cluster(&c, dir, &err), -1);
    assert_int_equal(err.code, PP_ERR_NOT_FOUND);
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(pp_kube_config_in_cluster(&c, dir, &err), -1); /* no token */
    write_text(dir, "token", "tok\n");
    write_text(dir, "namespace", "precisionprobe\n");
    assert_int_equal(pp_kube_config_in_cluster(&c, dir, &err), 0);
    assert_string_equal(c.server, "https://[fd00::1]:443");
    assert_string_equal(c.ns, "precisionprobe");
    (void)snprintf(path, sizeof path, "%s/token", dir);
    assert_string_equal(c.token_file, path);
    pp_kube_config_done(&c);
    unlink(path);
    (void)snprintf(path, sizeof path, "%s/namespace", dir);
    unlink(path);
    rmdir(dir);
    unsetenv("KUBERNETES_SERVICE_HOST");
}

static void test_load_errors_name_the_file(void **state)
{
    (void)state;
    pp_kube_config c;
    pp_error err = {0};
    assert_int_equal(pp_kube_config_load(&c, "/nonexistent/kubeconfig", &err), -1);
    assert_non_null(strstr(err.message, "/nonexistent/kubeconfig"));
    setenv("KUBECONFIG", "/a:/b", 1);
    assert_int_equal(pp_kube_config_load(&c, NULL, &err), -1);
    assert_non_null(strstr(err.message, "several files"));
    unsetenv("KUBECONFIG");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_and_token),
        cmocka_unit_test(test_data_wins_over_files),
        cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_every_prefix_is_survived),
        cmocka_unit_test(test_in_cluster),
        cmocka_unit_test(test_load_errors_name_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
