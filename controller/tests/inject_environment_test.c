/* The containers that write down what an image sets: which there are, and what they are made of. */
#include "controller/injection/inject.h"
#include "controller/tests/inject_fixtures.h"

static json_t *inject(const char *spec, const char *annotations)
{
    char text[2048];
    (void)snprintf(text, sizeof text, "{'metadata': {'annotations': {%s}}, 'spec': {%s}}",
                   annotations, spec);
    PP_CLEANUP_JSON json_t *pod = fixture_json(text);
    pp_inject_options opt = options();
    pp_session *s = fixture_session("{'selector': {'matchLabels': {'a': 'b'}},"
                                    " 'containers': ['c', 'd', 'e']}");
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal why = {0};
    if (pp_inject_patch(pod, s, &opt, &patch, &why, NULL) != PP_INJECT_PATCHED)
        fail_msg("%s", why.message);
    (void)pp_session_free(s);
    return apply(pod, patch);
}

#define REST                                                                                       \
    "{'name': 'd', 'image': 'i', 'env': [{'name': 'PYTHONPATH', 'value': ''}]}, {'name': 'e'}"

static const json_t *recorder(const json_t *pod, int number)
{
    char name[64];
    (void)snprintf(name, sizeof name, "precisionprobe-environment-%d", number);
    return named(pp_json_get(pod, "spec", "initContainers", NULL), name);
}

static const char *record_of(const json_t *pod, const char *container)
{
    const json_t *c = named(pp_json_get(pod, "spec", "containers", NULL), container);
    const char *value = env_value(c, "PRECISIONPROBE_ENVIRONMENT");
    return value ? value : "";
}

static void test_in_the_trainers_image(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *got = inject(
        "'initContainers': [{'name': 'own'}], 'containers': [{'name': 'c', 'image': 'torch:1',"
        " 'imagePullPolicy': 'Always', 'workingDir': '/secret', 'env': [{'name': 'A', 'value': "
        "'b'}],"
        " 'envFrom': [{'configMapRef': {'name': 'x'}}],"
        " 'securityContext': {'runAsUser': 7, 'privileged': false},"
        " 'resources': {'limits': {'nvidia.com/gpu': 1}, 'requests': {'nvidia.com/gpu': 1}},"
        " 'volumeMounts': [{'name': 'data', 'mountPath': '/data'}]}, " REST "]",
        "");
    PP_CLEANUP_JSON json_t *want = fixture_json(
        "{'name': 'precisionprobe-environment-0', 'image': 'torch:1', 'imagePullPolicy': 'Always',"
        " 'command': ['/opt/precisionprobe/precisionprobe-environment',"
        "             '/run/precisionprobe/environment-0'],"
        " 'workingDir': '/', 'env': [{'name': 'NVIDIA_VISIBLE_DEVICES', 'value': 'void'}],"
        " 'envFrom': [{'configMapRef': {'name': 'x'}}],"
        " 'securityContext': {'runAsUser': 7, 'privileged': false}, 'resources': {},"
        " 'volumeMounts': [{'name': 'precisionprobe-hook', 'mountPath': '/opt/precisionprobe',"
        "                   'readOnly': true},"
        "                  {'name': 'precisionprobe-ring', 'mountPath': '/run/precisionprobe'}]}");
    json_t *is = (json_t *)(uintptr_t)recorder(got, 0);
    if (!json_equal(is, want))
        fail_msg("%s", json_dumps(is, JSON_INDENT(1)));
    assert_string_equal(record_of(got, "c"), "/run/precisionprobe/environment-0");
    /* Behind the pod's own: nothing of the image is pulled earlier than without it. */
    const json_t *init = pp_json_get(got, "spec", "initContainers", NULL);
    assert_int_equal(json_array_size(init), 4);
    assert_ptr_equal(json_array_get(init, 3), is);
}

/* What the pod says is all that counts, and is known: nothing has to be looked for. */
static void test_where_it_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *container, *annotations;
    } cases[] = {
        {"'image': 'i', 'env': [{'name': 'PYTHONPATH', 'value': '/a'}]", ""},
        {"'image': 'i', 'env': [{'name': 'PYTHONPATH'}]", ""},
        {"'image': 'i'", "'precisionprobe.io/pythonpath': '/a'"},
        {"'image': 'i'", "'precisionprobe.io/pythonpath': ''"},
        {"'command': ['x']", ""}, /* damaged: without an image */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[512];
        (void)snprintf(spec, sizeof spec, "'containers': [{'name': 'c', %s}, " REST "]",
                       cases[i].container);
        PP_CLEANUP_JSON json_t *got = inject(spec, cases[i].annotations);
        assert_null(recorder(got, 0));
        assert_string_equal(record_of(got, "c"), "");
    }
}

static void test_one_for_each_image(void **state)
{
    (void)state;
    static const struct {
        const char *e;
        int record;
    } cases[] = {
        {"'image': 'i'", 0},
        {"'image': 'j'", 2},
        {"'image': 'i', 'envFrom': [{'configMapRef': {'name': 'x'}}]", 2},
        {"'image': 'i', 'workingDir': '/x'", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[512], want[64];
        (void)snprintf(spec, sizeof spec,
                       "'containers': [{'name': 'c', 'image': 'i'}, {'name': 'd', 'image': 'i',"
                       " 'env': [{'name': 'PYTHONPATH', 'value': '/a'}]}, {'name': 'e', %s}]",
                       cases[i].e);
        PP_CLEANUP_JSON json_t *got = inject(spec, "");
        assert_non_null(recorder(got, 0));
        assert_null(recorder(got, 1));
        assert_int_equal(recorder(got, 2) != NULL, cases[i].record == 2);
        (void)snprintf(want, sizeof want, "/run/precisionprobe/environment-%d", cases[i].record);
        assert_string_equal(record_of(got, "c"), "/run/precisionprobe/environment-0");
        assert_string_equal(record_of(got, "d"), "");
        assert_string_equal(record_of(got, "e"), want);
    }
}

/* Left in a copied manifest it would be in our way, as our other parts are. */
static void test_a_copied_one_is_a_clash(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_json(
        "{'spec': {'initContainers': [{'name': 'precisionprobe-environment-0'}], 'containers':"
        " [{'name': 'c'}]}}");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal why = {0};
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, &why, NULL), PP_INJECT_REFUSED);
    assert_string_equal(why.reason, "NameClash");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_the_trainers_image),
        cmocka_unit_test(test_where_it_is_known),
        cmocka_unit_test(test_one_for_each_image),
        cmocka_unit_test(test_a_copied_one_is_a_clash),
    };
    return cmocka_run_group_tests_name("inject_environment", tests, NULL, NULL);
}
