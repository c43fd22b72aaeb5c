/* What the added containers ask for: the pod's QoS class, quotas and autoscaling see it. */
#include "controller/injection/inject.h"
#include "controller/tests/inject_fixtures.h"

#include <stdlib.h>

/* ---- the class as Kubernetes defines it (docs: Pod Quality of Service Classes) ---- */

/* Guaranteed: every container, init containers too, has limits of CPU and memory that are its
 * requests. BestEffort: none has any. */
static const char *class_of(const json_t *spec)
{
    static const char *const lists[] = {"containers", "initContainers"};
    static const char *const names[] = {"cpu", "memory"};
    bool guaranteed = true, none = true;
    for (size_t i = 0; i < 4; i++) {
        const json_t *list = json_object_get(spec, lists[i / 2]);
        for (size_t j = 0; j < json_array_size(list); j++) {
            const json_t *r = json_object_get(json_array_get(list, j), "resources");
            double limit = units(pp_json_get(r, "limits", names[i % 2], NULL));
            const json_t *asked = pp_json_get(r, "requests", names[i % 2], NULL);
            double request = asked ? units(asked) : limit; /* the API server's default */
            none = none && limit == 0 && request == 0;
            guaranteed = guaranteed && limit > 0 && request == limit;
        }
    }
    return none ? "BestEffort" : guaranteed ? "Guaranteed" : "Burstable";
}

/* What the scheduler sums up: the greater of the containers with native sidecars, and of each other
 * init container with the native sidecars before it. */
static double effective(const json_t *spec, const char *resource)
{
    double sum = 0, sidecars = 0, most = 0;
    const json_t *list = json_object_get(spec, "initContainers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        double request = units(pp_json_get(c, "resources", "requests", resource, NULL));
        if (json_object_get(c, "restartPolicy"))
            sidecars += request;
        else if (sidecars + request > most)
            most = sidecars + request;
    }
    list = json_object_get(spec, "containers");
    for (size_t i = 0; i < json_array_size(list); i++)
        sum += units(pp_json_get(json_array_get(list, i), "resources", "requests", resource, NULL));
    return sum + sidecars > most ? sum + sidecars : most;
}

#define AMOUNTS(cpu, memory) "{'cpu': " cpu ", 'memory': " memory "}"
#define FULL(cpu, memory)                                                                          \
    "{'limits': " AMOUNTS(cpu, memory) ", 'requests': " AMOUNTS(cpu, memory) "}"

static const struct kind {
    const char *what, *spec, *qos;
} kinds[] = {
    {"nothing", "'containers': [{'name': 'c', 'image': 'i'}]", "BestEffort"},
    {"a GPU alone",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': {'nvidia.com/gpu': 1},"
     " 'requests': {'nvidia.com/gpu': 1}}}]",
     "BestEffort"},
    {"zeros", "'containers': [{'name': 'c', 'image': 'i', 'resources': " FULL("'0'", "0") "}]",
     "BestEffort"},
    {"disk alone",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': {'ephemeral-storage': "
     "'1Gi'},"
     " 'requests': {'ephemeral-storage': '1Gi'}}}]",
     "BestEffort"},
    {"requests",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'requests': " AMOUNTS("'1'",
                                                                                     "'1Gi'") "}}]",
     "Burstable"},
    {"limits above requests",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': " AMOUNTS(
         "2", "'2Gi'") ", 'requests': " AMOUNTS("'500m'", "'1Gi'") "}}]",
     "Burstable"},
    {"CPU's limit of one of two",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': {'cpu': 4}, 'requests': "
     "{'cpu': 4}}},"
     " {'name': 'd'}]",
     "Burstable"},
    {"memory's limit alone",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': {'memory': '1Gi'},"
     " 'requests': {'memory': '1Gi'}}}]",
     "Burstable"},
    {"an init container alone",
     "'initContainers': [{'name': 'i', 'resources': {'requests': {'cpu': '100m'}}}],"
     " 'containers': [{'name': 'c'}]",
     "Burstable"},
    {"full but for an init container",
     "'initContainers': [{'name': 'i'}], 'containers': [{'name': 'c', 'image': 'i', "
     "'resources': " FULL("'4'", "'8Gi'") "}]",
     "Burstable"},
    {"full", "'containers': [{'name': 'c', 'image': 'i', 'resources': " FULL("'4'", "'8Gi'") "}]",
     "Guaranteed"},
    {"full in other words",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': " AMOUNTS(
         "'1000m'", "'1Gi'") ", 'requests': " AMOUNTS("1", "'1024Mi'") "}}]",
     "Guaranteed"},
    {"two, with an init container",
     "'initContainers': [{'name': 'i', 'resources': " FULL(
         "'1'", "'1Gi'") "}], 'containers':"
                         " [{'name': 'c', 'image': 'i', 'resources': " FULL(
                             "'4'", "'8Gi'") "}, {'name': 'd', 'resources': " FULL("'10m'",
                                                                                   "'16Mi'") "}]",
     "Guaranteed"},
    {"as much as one has, in all",
     "'containers': [{'name': 'c', 'image': 'i', 'resources': " FULL("'10m'", "'16Mi'") "}]",
     "Guaranteed"},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static json_t *pod_of(const struct kind *kind)
{
    char text[1024];
    (void)snprintf(text, sizeof text, "{'spec': {%s}}", kind->spec);
    json_t *pod = fixture_json(text);
    assert_string_equal(class_of(json_object_get(pod, "spec")), kind->qos);
    return pod;
}

static json_t *inject_for(const json_t *pod, const char *session, const pp_inject_options *opt)
{
    pp_session *s = fixture_session(session);
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, s, opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
    (void)pp_session_free(s);
    return apply(pod, patch);
}

static json_t *inject(const json_t *pod, const pp_inject_options *opt)
{
    return inject_for(pod, "{'selector': {'matchLabels': {'a': 'b'}}}", opt);
}

static const json_t *ours(const json_t *pod, const char *name)
{
    const json_t *found = named(pp_json_get(pod, "spec", "initContainers", NULL), name);
    return found ? found : named(pp_json_get(pod, "spec", "containers", NULL), name);
}

static const char *stated(const json_t *pod, const char *name, const char *kind,
                          const char *resource)
{
    const char *text = pp_json_get_string(ours(pod, name), "resources", kind, resource, NULL);
    return text ? text : "";
}

static void test_class_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS * 4; i++) {
        const struct kind *kind = &kinds[i / 4];
        PP_CLEANUP_JSON json_t *pod = pod_of(kind);
        pp_inject_options opt = options();
        opt.native_sidecar = i % 2;
        if (i % 4 >= 2) {
            opt.cpu = "70m";
            opt.memory = "100Mi";
        }
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt);
        const char *qos = class_of(json_object_get(got, "spec"));
        if (strcmp(qos, kind->qos) != 0)
            fail_msg("%s (%zu): %s becomes %s", kind->what, i % 4, kind->qos, qos);
    }
}

/* Where the class allows it the pod fits wherever it fitted before. */
static void test_nothing_is_asked_for(void **state)
{
    (void)state;
    static const char *const resources[] = {"cpu", "memory", "ephemeral-storage"};
    for (size_t i = 0; i < N_KINDS * 6; i++) {
        const struct kind *kind = &kinds[i / 6];
        const char *resource = resources[i / 2 % 3];
        PP_CLEANUP_JSON json_t *pod = pod_of(kind);
        pp_inject_options opt = options();
        opt.native_sidecar = i % 2;
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt);
        const double before = effective(json_object_get(pod, "spec"), resource);
        const double after = effective(json_object_get(got, "spec"), resource);
        const bool asks = strcmp(kind->qos, "Guaranteed") == 0 && i / 2 % 3 < 2;
        if ((after > before) != asks || after < before)
            fail_msg("%s: %s from %g to %g", kind->what, resource, before, after);
    }
}

static void test_guaranteed(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = pod_of(&kinds[10]);
    pp_inject_options opt = options();
    for (int given = 0; given < 2; given++) {
        opt.cpu = given ? "70m" : "";
        opt.memory = given ? "100Mi" : "";
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt);
        const char *cpu = given ? "70m" : "50m", *memory = given ? "100Mi" : "64Mi";
        assert_string_equal(stated(got, PP_INJECT_AGENT, "requests", "cpu"), cpu);
        assert_string_equal(stated(got, PP_INJECT_AGENT, "limits", "cpu"), cpu);
        assert_string_equal(stated(got, PP_INJECT_AGENT, "requests", "memory"), memory);
        assert_string_equal(stated(got, PP_INJECT_AGENT, "limits", "memory"), memory);
        /* Before the trainer the hook may use its CPU. */
        assert_string_equal(stated(got, PP_INJECT_HOOK, "limits", "cpu"), "4");
    }
}

static void test_given_amounts(void **state)
{
    (void)state;
    pp_inject_options opt = options();
    opt.cpu = "70m";
    opt.memory = "100Mi";
    PP_CLEANUP_JSON json_t *burstable = pod_of(&kinds[4]);
    PP_CLEANUP_JSON json_t *got = inject(burstable, &opt);
    assert_string_equal(stated(got, PP_INJECT_AGENT, "requests", "cpu"), "70m");
    assert_string_equal(stated(got, PP_INJECT_AGENT, "limits", "cpu"), "");
    assert_string_equal(stated(got, PP_INJECT_AGENT, "requests", "memory"), "100Mi");
    assert_string_equal(stated(got, PP_INJECT_AGENT, "limits", "memory"), "100Mi");
}

static void test_pm_sampling(void **state)
{
    (void)state;
    static const struct {
        const char *given, *guaranteed, *burstable;
    } cases[] = {{"", "192Mi", "0"}, {"1Gi", "1Gi", "1Gi"}};
    static const char pm[] = "{'selector': {'matchLabels': {'a': 'b'}}, 'method': 'Sampling'}";
    PP_CLEANUP_JSON json_t *full = pod_of(&kinds[10]);
    PP_CLEANUP_JSON json_t *some = pod_of(&kinds[4]);
    pp_inject_options opt = options();
    for (size_t i = 0; i < 2; i++) {
        opt.sampling_memory = cases[i].given;
        PP_CLEANUP_JSON json_t *a = inject_for(full, pm, &opt);
        PP_CLEANUP_JSON json_t *b = inject_for(some, pm, &opt);
        assert_string_equal(stated(a, PP_INJECT_AGENT, "limits", "memory"), cases[i].guaranteed);
        assert_string_equal(stated(b, PP_INJECT_AGENT, "requests", "memory"), cases[i].burstable);
    }
}

/* What every container states, a quota may demand of each, and autoscaling of each request. */
static void test_what_all_state_ours_states(void **state)
{
    (void)state;
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *requests = pod_of(&kinds[4]);
    PP_CLEANUP_JSON json_t *limits = pod_of(&kinds[5]);
    PP_CLEANUP_JSON json_t *one = pod_of(&kinds[6]);
    PP_CLEANUP_JSON json_t *a = inject(requests, &opt);
    PP_CLEANUP_JSON json_t *b = inject(limits, &opt);
    PP_CLEANUP_JSON json_t *c = inject(one, &opt);
    assert_string_equal(stated(a, PP_INJECT_AGENT, "requests", "cpu"), "0");
    assert_string_equal(stated(a, PP_INJECT_AGENT, "requests", "memory"), "0");
    assert_null(pp_json_get(ours(a, PP_INJECT_AGENT), "resources", "limits", NULL));
    assert_string_equal(stated(b, PP_INJECT_AGENT, "requests", "memory"), "0");
    assert_string_equal(stated(b, PP_INJECT_AGENT, "limits", "memory"), "64Mi");
    assert_string_equal(stated(b, PP_INJECT_AGENT, "limits", "cpu"), "50m");
    /* One container without a limit: nothing of ours is throttled. */
    assert_int_equal(json_object_size(pp_json_get(ours(c, PP_INJECT_AGENT), "resources", NULL)), 0);
}

/* They run before it, alone: what it asks for is there. */
static void test_early_ones_have_the_trainers_amounts(void **state)
{
    (void)state;
    static const char *const names[] = {PP_INJECT_HOOK, PP_INJECT_ENVIRONMENT "-0"};
    pp_inject_options opt = options();
    for (size_t i = 0; i < 2; i++) {
        PP_CLEANUP_JSON json_t *limits = pod_of(&kinds[5]);
        PP_CLEANUP_JSON json_t *gpu = pod_of(&kinds[1]);
        PP_CLEANUP_JSON json_t *a = inject(limits, &opt);
        PP_CLEANUP_JSON json_t *b = inject(gpu, &opt);
        assert_string_equal(stated(a, names[i], "requests", "cpu"), "500m");
        assert_string_equal(stated(a, names[i], "limits", "memory"), "2Gi");
        assert_int_equal(json_object_size(pp_json_get(ours(b, names[i]), "resources", NULL)), 0);
    }
}

/* The limits of all containers together bound the pod: ours must not use up the trainer's. */
static void test_storage_limits(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod =
        fixture_json("{'spec': {'containers': [{'name': 'c'}, {'name': 'd', 'resources': "
                     "{'limits': {'ephemeral-storage': '1Gi'}}}]}}");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *got = inject(pod, &opt);
    assert_string_equal(stated(got, PP_INJECT_AGENT, "limits", "ephemeral-storage"), "192Mi");
    assert_string_equal(stated(got, PP_INJECT_AGENT, "requests", "ephemeral-storage"), "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class_is_kept),
        cmocka_unit_test(test_nothing_is_asked_for),
        cmocka_unit_test(test_guaranteed),
        cmocka_unit_test(test_given_amounts),
        cmocka_unit_test(test_pm_sampling),
        cmocka_unit_test(test_what_all_state_ours_states),
        cmocka_unit_test(test_early_ones_have_the_trainers_amounts),
        cmocka_unit_test(test_storage_limits),
    };
    return cmocka_run_group_tests_name("inject_resources", tests, NULL, NULL);
}
