/*
 * Quotas and LimitRanges: a pod that the API server takes is taken with what is added, or left as
 * it is. The API server's rules are written down here a second time, on the pod that comes out.
 */
#include "controller/injection/inject.h"
#include "controller/tests/inject_fixtures.h"

#include <math.h>
#include <stdlib.h>

/* ---- the API server: LimitRanger and ResourceQuota ---- */

/* NaN: not stated. */
static double stated(const json_t *container, const char *kind, const char *name)
{
    const json_t *amount = pp_json_get(container, "resources", kind, name, NULL);
    return amount ? units(amount) : (double)NAN;
}

static double plus(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : a + b;
}

static double of_pod(const json_t *spec, const char *kind, const char *name)
{
    double sum = (double)NAN, sidecars = (double)NAN, most = (double)NAN;
    const json_t *list = json_object_get(spec, "initContainers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        most = fmax(most, plus(sidecars, stated(c, kind, name)));
        if (json_object_get(c, "restartPolicy"))
            sidecars = plus(sidecars, stated(c, kind, name));
    }
    list = json_object_get(spec, "containers");
    for (size_t i = 0; i < json_array_size(list); i++)
        sum = plus(sum, stated(json_array_get(list, i), kind, name));
    return fmax(plus(sum, sidecars), most);
}

static const char *const names[] = {"cpu", "memory", "nvidia.com/gpu"};
enum { N_NAMES = sizeof names / sizeof names[0] };

static bool kept(const json_t *item, const char *name, double request, double limit)
{
    const json_t *min = pp_json_get(item, "min", name, NULL);
    const json_t *max = pp_json_get(item, "max", name, NULL);
    const json_t *ratio = pp_json_get(item, "maxLimitRequestRatio", name, NULL);
    if (min && (isnan(request) || request < units(min) || limit < units(min)))
        return false;
    if (max && (isnan(limit) || limit > units(max) || request > units(max)))
        return false;
    return !ratio || (request > 0 && limit > 0 && limit / request <= units(ratio) + 1e-9);
}

static void give_default(json_t *container, const json_t *item, const char *from, const char *kind,
                         const char *name)
{
    json_t *value = (json_t *)(uintptr_t)pp_json_get(item, from, name, NULL);
    if (!value || !isnan(stated(container, kind, name)))
        return;
    json_t *resources = json_object_get(container, "resources");
    if (!resources)
        (void)json_object_set_new(container, "resources", resources = json_object());
    if (!json_object_get(resources, kind))
        (void)json_object_set_new(resources, kind, json_object());
    (void)json_object_set(json_object_get(resources, kind), name, value);
}

static bool range_taken(json_t *spec, const json_t *range)
{
    static const char *const lists[] = {"containers", "initContainers"};
    const json_t *items = pp_json_get(range, "spec", "limits", NULL);
    bool ok = true;
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const bool whole = strcmp(json_string_value(json_object_get(item, "type")), "Pod") == 0;
        for (size_t n = 0; n < N_NAMES; n++) {
            for (size_t k = 0; k < 2 && !whole; k++) {
                const json_t *list = json_object_get(spec, lists[k]);
                for (size_t j = 0; j < json_array_size(list); j++) {
                    json_t *c = json_array_get(list, j);
                    give_default(c, item, "default", "limits", names[n]);
                    give_default(c, item, "defaultRequest", "requests", names[n]);
                    ok = ok && kept(item, names[n], stated(c, "requests", names[n]),
                                    stated(c, "limits", names[n]));
                }
            }
            ok = ok && (!whole || kept(item, names[n], of_pod(spec, "requests", names[n]),
                                       of_pod(spec, "limits", names[n])));
        }
    }
    return ok;
}

static bool every_one_states(const json_t *spec, const char *kind, const char *name)
{
    static const char *const lists[] = {"containers", "initContainers"};
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = json_object_get(spec, lists[k]);
        for (size_t j = 0; j < json_array_size(list); j++) {
            if (isnan(stated(json_array_get(list, j), kind, name)))
                return false;
        }
    }
    return true;
}

static bool quota_taken(const json_t *spec, const json_t *quota)
{
    const char *key;
    json_t *hard;
    json_object_foreach(pp_json_get(quota, "spec", "scopes", NULL)
                            ? NULL
                            : json_object_get(json_object_get(quota, "status"), "hard"),
                        key, hard)
    {
        const char *dot = strchr(key, '.');
        const char *name = dot ? dot + 1 : key;
        const char *kind = strncmp(key, "limits.", 7) == 0 ? "limits" : "requests";
        const double used = units(pp_json_get(quota, "status", "used", key, NULL));
        if (!every_one_states(spec, kind, name) ||
            used + of_pod(spec, kind, name) > units(hard) + 1e-9)
            return false;
    }
    return true;
}

/* How many GPUs the scheduler looks for: after the defaults of a LimitRange. */
static double gpus(const json_t *pod, const json_t *object)
{
    PP_CLEANUP_JSON json_t *spec = json_deep_copy(json_object_get(pod, "spec"));
    (void)range_taken(spec, object);
    return fmax(of_pod(spec, "requests", "nvidia.com/gpu"), 0);
}

static bool taken(const json_t *pod, const json_t *object)
{
    PP_CLEANUP_JSON json_t *spec = json_deep_copy(json_object_get(pod, "spec"));
    return strcmp(json_string_value(json_object_get(object, "kind")), "LimitRange") == 0
               ? range_taken(spec, object)
               : quota_taken(spec, object);
}

/* ---- the cases ---- */

#define LIMITS(item)                                                                               \
    "{'kind': 'LimitRange', 'metadata': {'name': 'lr'}, 'spec': {'limits': [" item "]}}"
#define QUOTA(hard, used)                                                                          \
    "{'kind': 'ResourceQuota', 'metadata': {'name': 'rq'}, 'spec': {}, 'status': {'hard': " hard   \
    ", 'used': " used "}}"
#define AMOUNTS(cpu, memory) "{'cpu': '" cpu "', 'memory': '" memory "'}"
#define POD(resources)                                                                             \
    "{'spec': {'containers': [{'name': 'c', 'image': 'i', 'resources': {" resources "}}]}}"
#define BURSTABLE POD("'requests': " AMOUNTS("1", "1Gi"))
#define LIMITED POD("'requests': " AMOUNTS("1", "1Gi") ", 'limits': " AMOUNTS("2", "2Gi"))
#define GUARANTEED POD("'requests': " AMOUNTS("2", "2Gi") ", 'limits': " AMOUNTS("2", "2Gi"))

/* As the API server completes {'max': {'nvidia.com/gpu': 4}}. */
#define FOUR_GPUS                                                                                  \
    "'max': {'nvidia.com/gpu': '4'}, 'default': {'nvidia.com/gpu': '4'}, 'defaultRequest': "       \
    "{'nvidia.com/gpu': '4'}"
#define GPUS POD("'requests': {'nvidia.com/gpu': '4'}, 'limits': {'nvidia.com/gpu': '4'}")

static const struct fit {
    const char *what, *pod, *object, *reason;
} cases[] = {
    {"room", BURSTABLE, QUOTA("{'requests.cpu': '2'}", "{'requests.cpu': '1'}"), NULL},
    {"exact room, and nothing is asked for", BURSTABLE,
     QUOTA("{'requests.cpu': '1', 'memory': '1Gi'}", "{'requests.cpu': '0', 'memory': '0'}"), NULL},
    {"exact room for limits", LIMITED,
     QUOTA("{'limits.memory': '4Gi'}", "{'limits.memory': '2Gi'}"), "QuotaExceeded"},
    {"room for the agent's limits", LIMITED,
     QUOTA("{'limits.memory': '4160Mi', 'limits.cpu': '2050m'}",
           "{'limits.memory': '2Gi', 'limits.cpu': '0'}"),
     NULL},
    {"a millicore short of them", LIMITED, QUOTA("{'limits.cpu': '2049m'}", "{'limits.cpu': '0'}"),
     "QuotaExceeded"},
    {"Guaranteed, exact room", GUARANTEED, QUOTA("{'requests.cpu': '2'}", "{'requests.cpu': '0'}"),
     "QuotaExceeded"},
    {"Guaranteed, room", GUARANTEED,
     QUOTA("{'cpu': '2050m', 'limits.memory': '2112Mi'}", "{'cpu': '0', 'limits.memory': '0'}"),
     NULL},
    {"the minimum of each container", LIMITED,
     LIMITS("{'type': 'Container', 'min': " AMOUNTS("100m", "128Mi") "}"), NULL},
    {"a minimum, requests alone", BURSTABLE,
     LIMITS("{'type': 'Container', 'min': " AMOUNTS("100m", "128Mi") "}"), NULL},
    {"a minimum, Guaranteed", GUARANTEED,
     LIMITS("{'type': 'Container', 'min': " AMOUNTS("100m", "128Mi") "}"), NULL},
    {"a maximum", LIMITED, LIMITS("{'type': 'Container', 'max': " AMOUNTS("2", "2Gi") "}"), NULL},
    {"a maximum below what the agent would have",
     POD("'requests': " AMOUNTS("1m", "1Mi") ", 'limits': " AMOUNTS("20m", "20Mi")),
     LIMITS("{'type': 'Container', 'max': " AMOUNTS("20m", "20Mi") "}"), NULL},
    {"a ratio", LIMITED,
     LIMITS("{'type': 'Container', 'maxLimitRequestRatio': " AMOUNTS("2", "2") "}"), NULL},
    {"minimum, maximum and ratio", LIMITED,
     LIMITS("{'type': 'Container', 'min': " AMOUNTS("60m", "100Mi") ", 'max': " AMOUNTS(
         "4", "4Gi") ", 'maxLimitRequestRatio': " AMOUNTS("2", "2") "}"),
     NULL},
    {"large defaults", BURSTABLE,
     LIMITS("{'type': 'Container', 'default': " AMOUNTS("8", "64Gi") ", 'defaultRequest': " AMOUNTS(
         "4", "32Gi") "}"),
     NULL},
    {"the maximum of a pod, reached", LIMITED,
     LIMITS("{'type': 'Pod', 'max': " AMOUNTS("2", "2Gi") "}"), "LimitRangeExceeded"},
    {"the maximum of a pod, with room", LIMITED,
     LIMITS("{'type': 'Pod', 'max': " AMOUNTS("3", "3Gi") "}"), NULL},
    {"the ratio of a pod, reached", LIMITED,
     LIMITS("{'type': 'Pod', 'maxLimitRequestRatio': " AMOUNTS("2", "2") "}"),
     "LimitRangeExceeded"},
    {"as many GPUs as a container may have", GPUS, LIMITS("{'type': 'Container', " FOUR_GPUS "}"),
     NULL},
    {"as many, Guaranteed and with CPUs", GUARANTEED,
     LIMITS("{'type': 'Container', 'default': {'nvidia.com/gpu': '1'}, 'defaultRequest': "
            "{'nvidia.com/gpu': '1'}}"),
     NULL},
    {"as few GPUs as a container may have", GPUS,
     LIMITS("{'type': 'Container', 'min': {'nvidia.com/gpu': '1'}, " FOUR_GPUS "}"),
     "LimitRangeExceeded"},
    {"a ratio of GPUs", GPUS,
     LIMITS("{'type': 'Container', 'maxLimitRequestRatio': {'nvidia.com/gpu': '1'}}"),
     "LimitRangeExceeded"},
    {"a pod that is refused itself: whatever becomes of it", GUARANTEED,
     QUOTA("{'requests.cpu': '1'}", "{'requests.cpu': '0'}"), NULL},
    {"another init container is the largest",
     "{'spec': {'initContainers': [{'name': 'i', 'resources': {'requests': {'cpu': '3'}}}],"
     " 'containers': [{'name': 'c', 'image': 'i', 'resources': {'requests': {'cpu': '1'}}}]}}",
     QUOTA("{'requests.cpu': '3'}", "{'requests.cpu': '0'}"), NULL},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void try_case(const struct fit *f, bool native)
{
    PP_CLEANUP_JSON json_t *pod = fixture_json(f->pod);
    PP_CLEANUP_JSON json_t *object = fixture_json(f->object);
    const json_t *const list[] = {object};
    const bool range =
        strcmp(json_string_value(json_object_get(object, "kind")), "LimitRange") == 0;
    const pp_inject_limits limits = {
        .ranges = list, .n_ranges = range, .quotas = list, .n_quotas = !range};
    pp_inject_options opt = options();
    opt.limits = &limits;
    opt.native_sidecar = native;
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal why = {0};
    const int rc = pp_inject_patch(pod, NULL, &opt, &patch, &why, NULL);
    if (f->reason ? rc != PP_INJECT_REFUSED || strcmp(why.reason, f->reason) != 0
                  : rc != PP_INJECT_PATCHED)
        fail_msg("%s: %d %s %s", f->what, rc, why.reason, why.message);
    if (f->reason)
        assert_non_null(strstr(why.message, range ? " lr " : " rq "));
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    if (f->reason)
        assert_true(json_equal(json_object_get(pod, "spec"), json_object_get(got, "spec")));
    if (taken(pod, object) != taken(got, object))
        fail_msg("%s: taken before, %d, and after, %d", f->what, taken(pod, object),
                 taken(got, object));
    if (range && gpus(pod, object) != gpus(got, object))
        fail_msg("%s: %g GPUs before, and %g after", f->what, gpus(pod, object), gpus(got, object));
}

/* Huge pages are stated beside CPU or memory, or the API server refuses the container. */
static void test_huge_pages(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *range =
        fixture_json(LIMITS("{'type': 'Container', 'max': {'hugepages-2Mi': '4Mi'}}"));
    PP_CLEANUP_JSON json_t *pod = fixture_json(GPUS);
    const json_t *const list[] = {range};
    const pp_inject_limits limits = {.ranges = list, .n_ranges = 1};
    pp_inject_options opt = options();
    opt.limits = &limits;
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    const json_t *added = pp_json_get(got, "spec", "initContainers", NULL);
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *asked = pp_json_get(json_array_get(added, i), "resources", "requests", NULL);
        assert_string_equal(json_string_value(json_object_get(asked, "hugepages-2Mi")), "0");
        assert_string_equal(json_string_value(json_object_get(asked, "cpu")), "0");
    }
    assert_true(json_array_size(added) >= 2);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        try_case(&cases[i], true);
        try_case(&cases[i], false);
    }
}

/* Without knowing them the pod would be refused: each object is one that matters. */
static void test_they_matter(void **state)
{
    (void)state;
    size_t refused = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        PP_CLEANUP_JSON json_t *pod = fixture_json(cases[i].pod);
        PP_CLEANUP_JSON json_t *object = fixture_json(cases[i].object);
        pp_inject_options opt = options();
        PP_CLEANUP_JSON json_t *patch = NULL;
        assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
        PP_CLEANUP_JSON json_t *got = apply(pod, patch);
        refused += taken(pod, object) && !taken(got, object);
        const bool more =
            pp_json_get(object, "spec", "limits", NULL) && gpus(got, object) > gpus(pod, object);
        if (cases[i].reason && (!taken(pod, object) || (taken(got, object) && !more)))
            fail_msg("%s: left alone without need", cases[i].what);
    }
    assert_true(refused >= 10);
}

/* In a namespace with one quota. */
static int patch_beside(const json_t *quota, const json_t *pod, json_t **patch,
                        pp_inject_refusal *why)
{
    const json_t *const list[] = {quota};
    const pp_inject_limits limits = {.quotas = list, .n_quotas = 1};
    pp_inject_options opt = options();
    opt.limits = &limits;
    return pp_inject_patch(pod, NULL, &opt, patch, why, NULL);
}

/* A pod that is there already is in what a quota counts. */
static void test_a_pod_that_is_counted(void **state)
{
    (void)state;
    static const struct {
        const char *used, *reason;
    } rows[] = {{"{'requests.cpu': '2'}", "QuotaExceeded"}, {"{'requests.cpu': '1'}", ""}};
    for (size_t i = 0; i < 2; i++) {
        char text[300];
        (void)snprintf(text, sizeof text, QUOTA("{'requests.cpu': '2049m'}", "%s"), rows[i].used);
        PP_CLEANUP_JSON json_t *quota = fixture_json(text);
        PP_CLEANUP_JSON json_t *pod = fixture_json(GUARANTEED);
        (void)json_object_set_new(pod, "metadata",
                                  json_pack("{s:s, s:s}", "uid", "u", "name", "p"));
        PP_CLEANUP_JSON json_t *patch = NULL;
        pp_inject_refusal why = {0};
        (void)patch_beside(quota, pod, &patch, &why);
        assert_string_equal(why.reason, rows[i].reason);
    }
}

/* By how much a quota is to be raised. */
static void test_what_a_quota_lacks(void **state)
{
    (void)state;
    static const struct {
        const char *quota, *lacks;
    } rows[] = {{QUOTA("{'requests.cpu': '2'}", "{'requests.cpu': '0'}"), "which lacks 50m"},
                {QUOTA("{'requests.cpu': '2030m'}", "{'requests.cpu': '0'}"), "which lacks 20m"},
                {QUOTA("{'memory': '2Gi'}", "{'memory': '0'}"), "which lacks 64Mi"},
                {QUOTA("{'memory': '2111Mi'}", "{'memory': '0'}"), "which lacks 1Mi"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        PP_CLEANUP_JSON json_t *quota = fixture_json(rows[i].quota);
        PP_CLEANUP_JSON json_t *pod = fixture_json(GUARANTEED);
        PP_CLEANUP_JSON json_t *patch = NULL;
        pp_inject_refusal why = {0};
        assert_int_equal(patch_beside(quota, pod, &patch, &why), PP_INJECT_REFUSED);
        if (!strstr(why.message, rows[i].lacks))
            fail_msg("%s, not %s", why.message, rows[i].lacks);
    }
}

/* Quotas change: what was in the way when the pod came is noted on it. */
static void test_the_reason_stays(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *quota =
        fixture_json(QUOTA("{'requests.cpu': '2'}", "{'requests.cpu': '0'}"));
    PP_CLEANUP_JSON json_t *pod = fixture_json(GUARANTEED);
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal why = {0}, later;
    assert_int_equal(patch_beside(quota, pod, &patch, &why), PP_INJECT_REFUSED);
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    pp_session *s = fixture_session("{'selector': {'matchLabels': {'a': 'b'}}}");
    const pp_inject_options opt = options();
    pp_inject_explain(got, s, &opt, &later);
    assert_string_equal(later.reason, "QuotaExceeded");
    assert_string_equal(later.message, why.message);
    pp_inject_explain(pod, s, &opt, &later);
    assert_string_not_equal(later.reason, "QuotaExceeded");
    (void)pp_session_free(s);
}

/* Where others of its controller did not start, a pod starts as it is, and says why. */
static void test_others_did_not_start(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_json(BURSTABLE);
    pp_inject_options opt = options();
    const pp_inject_refusal others = {"NotStarted", "others of Job x did not start"};
    opt.unprobed = &others;
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal why = {0};
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, &why, NULL), PP_INJECT_REFUSED);
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    assert_true(json_equal(json_object_get(pod, "spec"), json_object_get(got, "spec")));
    assert_string_equal(
        pp_json_get_string(got, "metadata", "annotations", PP_ANNOTATION_LEFT, NULL),
        "NotStarted: others of Job x did not start");
}

/* The reason may be in any script, and cut. */
static void test_a_cut_reason_is_noted(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_json(BURSTABLE);
    pp_inject_options opt = options();
    const pp_inject_refusal others = {"CreationRefused", "denied: \xe7\xa6\x81\xe6\xad"};
    opt.unprobed = &others;
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_inject_refusal why = {0};
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, &why, NULL), PP_INJECT_REFUSED);
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    assert_string_equal(
        pp_json_get_string(got, "metadata", "annotations", PP_ANNOTATION_LEFT, NULL),
        "CreationRefused: denied: \xe7\xa6\x81");
}

static void test_scopes(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *pod;
        bool concerned;
    } rows[] = {
        {"'scopes': ['BestEffort']", "", false},
        {"'scopes': ['NotBestEffort']", "", true},
        {"'scopes': ['Terminating']", "", false},
        {"'scopes': ['Terminating']", "'activeDeadlineSeconds': 9,", true},
        {"'scopes': ['NotTerminating', 'NotBestEffort']", "", true},
        {"'scopes': ['NotTerminating', 'NotBestEffort']", "'activeDeadlineSeconds': 9,", false},
        {"'scopes': ['Unheard']", "", true},
        {"'scopeSelector': {'matchExpressions': [{'scopeName': 'PriorityClass', 'operator': 'In',"
         " 'values': ['high']}]}",
         "'priorityClassName': 'high',", true},
        {"'scopeSelector': {'matchExpressions': [{'scopeName': 'PriorityClass', 'operator': 'In',"
         " 'values': ['high']}]}",
         "'priorityClassName': 'low',", false},
        {"'scopeSelector': {'matchExpressions': [{'scopeName': 'PriorityClass', 'operator':"
         " 'NotIn', 'values': ['high']}]}",
         "'priorityClassName': 'high',", false},
        {"'scopeSelector': {'matchExpressions': [{'scopeName': 'PriorityClass', 'operator':"
         " 'Exists'}]}",
         "", false},
        {"'scopeSelector': {'matchExpressions': [{'scopeName': 'PriorityClass', 'operator':"
         " 'DoesNotExist'}]}",
         "", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[600];
        (void)snprintf(text, sizeof text,
                       "{'metadata': {'name': 'rq'}, 'spec': {%s}, 'status': {'hard': {'cpu': '2'},"
                       " 'used': {'cpu': '0'}}}",
                       rows[i].spec);
        PP_CLEANUP_JSON json_t *quota = fixture_json(text);
        (void)snprintf(
            text, sizeof text,
            "{'spec': {%s 'containers': [{'name': 'c', 'resources': {'requests': " AMOUNTS(
                "2", "2Gi") ", 'limits': " AMOUNTS("2", "2Gi") "}}]}}",
            rows[i].pod);
        PP_CLEANUP_JSON json_t *pod = fixture_json(text);
        PP_CLEANUP_JSON json_t *patch = NULL;
        pp_inject_refusal why = {0};
        const int rc = patch_beside(quota, pod, &patch, &why);
        if ((rc == PP_INJECT_REFUSED) != rows[i].concerned)
            fail_msg("%s, %s: %d", rows[i].spec, rows[i].pod, rc);
    }
}

/* What comes from the API is not to be relied on. */
static void test_odd_objects(void **state)
{
    (void)state;
    static const char *const objects[] = {
        "{}", "[]", "{'spec': {'limits': [1, {'type': 3}, {'type': 'Container', 'min': 7}]}}",
        "{'spec': {'scopes': [1], 'hard': {'cpu': []}}}",
        "{'spec': {'hard': {'cpu': 'x', 'pods': '1'}}, 'status': {'used': 3}}"};
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        PP_CLEANUP_JSON json_t *object = fixture_json(objects[i]);
        PP_CLEANUP_JSON json_t *pod = fixture_json(GUARANTEED);
        const json_t *const list[] = {object};
        const pp_inject_limits limits = {
            .ranges = list, .n_ranges = 1, .quotas = list, .n_quotas = 1};
        pp_inject_options opt = options();
        opt.limits = &limits;
        PP_CLEANUP_JSON json_t *patch = NULL;
        pp_inject_refusal why = {0};
        assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, &why, NULL), PP_INJECT_PATCHED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_huge_pages),
        cmocka_unit_test(test_they_matter),
        cmocka_unit_test(test_a_pod_that_is_counted),
        cmocka_unit_test(test_what_a_quota_lacks),
        cmocka_unit_test(test_the_reason_stays),
        cmocka_unit_test(test_others_did_not_start),
        cmocka_unit_test(test_a_cut_reason_is_noted),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_odd_objects),
    };
    return cmocka_run_group_tests_name("inject_fit", tests, NULL, NULL);
}
