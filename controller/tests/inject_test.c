#include "common/volume.h"
#include "controller/injection/inject.h"
#include "controller/injection/quantity.h"
#include "controller/tests/inject_fixtures.h"

#include <string.h>

#define SPEC                                                                                       \
    "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'steps': {'skip': 2}, 'duration': '90s'}"

/* Injects; NULL for a refusal. The pod that goes in stays as it was. */
static json_t *inject(const json_t *pod, const pp_inject_options *opt, pp_inject_refusal *refusal)
{
    pp_session *session = fixture_session(SPEC);
    PP_CLEANUP_JSON json_t *before = json_deep_copy(pod);
    PP_CLEANUP_JSON json_t *patch = NULL;
    pp_error err = {0};
    int rc = pp_inject_patch(pod, session, opt, &patch, refusal, &err);
    (void)pp_session_free(session);
    assert_true(json_equal(before, pod));
    assert_true(rc == PP_INJECT_PATCHED || rc == PP_INJECT_REFUSED);
    assert_int_equal(json_array_size(patch) > 0, rc == PP_INJECT_PATCHED);
    return rc == PP_INJECT_PATCHED ? apply(pod, patch) : NULL;
}

static void check_restricted(const json_t *container)
{
    const json_t *sc = json_object_get(container, "securityContext");
    assert_true(json_is_true(json_object_get(sc, "runAsNonRoot")));
    assert_true(json_is_true(json_object_get(sc, "readOnlyRootFilesystem")));
    assert_true(json_is_false(json_object_get(sc, "allowPrivilegeEscalation")));
    assert_int_equal(json_integer_value(json_object_get(sc, "runAsUser")), 65532);
    assert_string_equal(pp_json_get_string(sc, "seccompProfile", "type", NULL), "RuntimeDefault");
    const json_t *drop = pp_json_get(sc, "capabilities", "drop", NULL);
    assert_string_equal(json_string_value(json_array_get(drop, 0)), "ALL");
}

static void check_trainer(const json_t *trainer)
{
    const json_t *env = json_object_get(trainer, "env");
    assert_string_equal(env_value(trainer, "PYTHONPATH"),
                        "/opt/precisionprobe/python:/app/$(EPOCHS):/app/lib");
    assert_string_equal(pp_json_get_string(json_array_get(env, 1), "name", NULL), "PYTHONPATH");
    assert_string_equal(env_value(trainer, "PRECISIONPROBE_RING"), "/run/precisionprobe");
    assert_int_equal(json_array_size(env), 4);
    const json_t *mounts = json_object_get(trainer, "volumeMounts");
    assert_int_equal(json_array_size(mounts), 4);
    const json_t *hook = named(mounts, PP_INJECT_HOOK), *ring = named(mounts, PP_INJECT_RING);
    assert_true(json_is_true(json_object_get(hook, "readOnly")));
    assert_string_equal(pp_json_get_string(hook, "mountPath", NULL), "/opt/precisionprobe");
    assert_null(json_object_get(ring, "readOnly"));
}

/* What an emptyDir may hold. */
static int64_t mebibytes(const json_t *volume)
{
    int64_t thousandths = 0;
    const char *text = pp_json_get_string(volume, "sizeLimit", NULL);
    assert_non_null(text);
    assert_true(pp_quantity_parse(text, &thousandths));
    return thousandths / 1000 >> 20;
}

static void check_volumes(const json_t *spec)
{
    const json_t *volumes = json_object_get(spec, "volumes");
    assert_int_equal(json_array_size(volumes), 6);
    const json_t *spool = json_object_get(named(volumes, PP_INJECT_SPOOL), "emptyDir");
    assert_int_equal(mebibytes(spool), PP_VOLUME_SPOOL);
    assert_null(json_object_get(spool, "medium"));
    const json_t *ring = json_object_get(named(volumes, PP_INJECT_RING), "emptyDir");
    assert_int_equal(mebibytes(ring), PP_VOLUME_RING);
    assert_string_equal(pp_json_get_string(ring, "medium", NULL), "Memory");
    const json_t *sources =
        pp_json_get(named(volumes, PP_INJECT_IDENTITY), "projected", "sources", NULL);
    const json_t *token = json_object_get(json_array_get(sources, 0), "serviceAccountToken");
    assert_string_equal(pp_json_get_string(token, "audience", NULL), "precisionprobe");
    const json_t *items = pp_json_get(json_array_get(sources, 1), "downwardAPI", "items", NULL);
    assert_string_equal(pp_json_get_string(json_array_get(items, 1), "fieldRef", "fieldPath", NULL),
                        "metadata.annotations['precisionprobe.io/ca']");
}

static void test_realistic_pod(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_file("controller/tests/data/pod.json");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
    const json_t *spec = json_object_get(got, "spec"), *meta = json_object_get(got, "metadata");
    const json_t *notes = json_object_get(meta, "annotations");
    assert_string_equal(pp_json_get_string(notes, PP_ANNOTATION_SESSION, NULL), "dlrm");
    assert_string_equal(pp_json_get_string(notes, PP_ANNOTATION_SESSION_UID, NULL), FIXTURE_UID);
    assert_string_equal(pp_json_get_string(notes, PP_ANNOTATION_CONTAINERS, NULL), "trainer");
    assert_string_equal(pp_json_get_string(notes, PP_ANNOTATION_CA, NULL), opt.ca);
    assert_string_equal(pp_json_get_string(notes, PP_INJECT_EVICTABLE, NULL),
                        "precisionprobe-hook,precisionprobe-spool");
    assert_string_equal(pp_json_get_string(meta, "labels", PP_LABEL_INJECTED, NULL), "true");
    assert_string_equal(pp_json_get_string(meta, "labels", "app", NULL), "dlrm");

    const json_t *init = json_object_get(spec, "initContainers");
    assert_int_equal(json_array_size(init), 3);
    static const char *const order[] = {PP_INJECT_HOOK, PP_INJECT_AGENT, "fetch"};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(pp_json_get_string(json_array_get(init, i), "name", NULL), order[i]);
    const json_t *agent = json_array_get(init, 1);
    assert_string_equal(pp_json_get_string(agent, "restartPolicy", NULL), "Always");
    assert_null(json_object_get(agent, "env"));
    static const char *const command[] = {"/usr/bin/precisionprobe-agent",
                                          "run",
                                          "--ring=/run/precisionprobe",
                                          "--spool=/var/spool/precisionprobe",
                                          "--settings=/etc/precisionprobe/identity/settings.json",
                                          "--token=/etc/precisionprobe/identity/token",
                                          "--ca=/etc/precisionprobe/identity/ca.crt"};
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(json_string_value(json_array_get(json_object_get(agent, "command"), i)),
                            command[i]);
    assert_null(json_object_get(json_array_get(init, 0), "restartPolicy"));
    check_restricted(json_array_get(init, 0));
    check_restricted(agent);
    check_volumes(spec);
    const json_t *spool = named(json_object_get(agent, "volumeMounts"), PP_INJECT_SPOOL);
    assert_string_equal(pp_json_get_string(spool, "mountPath", NULL), "/var/spool/precisionprobe");
    const json_t *containers = json_object_get(spec, "containers");
    assert_int_equal(json_array_size(containers), 2);
    check_trainer(named(containers, "trainer"));
    /* The other container is as it was. */
    assert_true(json_equal(
        (json_t *)(uintptr_t)named(containers, "logger"),
        (json_t *)(uintptr_t)named(pp_json_get(pod, "spec", "containers", NULL), "logger")));
}

static void test_settings(void **state)
{
    (void)state;
    pp_session *s = fixture_session(
        "{'selector': {'matchLabels': {'a': 'b'}}, 'duration': '90s', 'steps': {'skip': 2, 'max':"
        " 50}, 'phases': ['Backward'], 'overheadBudgetPercent': 0.5,"
        " 'layers': {'include': ['top.*'], 'depth': 2}}");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *got = pp_inject_settings(s, &opt);
    PP_CLEANUP_JSON json_t *want = fixture_json(
        "{'version': 1, 'session': {'uid': '" FIXTURE_UID "', 'namespace': 'ml', 'name': 'dlrm'},"
        " 'endpoint': 'wss://precisionprobe.system.svc:443/v1/ingest',"
        " 'layers': {'include': ['top.*'], 'exclude': [], 'types': [], 'depth': 2},"
        " 'phases': ['Backward'], 'steps': {'skip': 2, 'max': 50}, 'durationSeconds': 90.0,"
        " 'overheadBudgetPercent': 0.5, 'stretch': {'seconds': 30.0}}");
    assert_true(json_equal(got, want));
    char addresses[][32] = {"10.96.3.4", "fd00:10:96::1a2b"};
    char *items[] = {addresses[0], addresses[1]};
    const pp_strings both = {.items = items, .count = 2};
    opt.addresses = &both;
    PP_CLEANUP_JSON json_t *at = pp_inject_settings(s, &opt);
    PP_CLEANUP_JSON json_t *idle = pp_inject_settings(NULL, &opt);
    json_object_set_new(want, "addresses", json_pack("[s, s]", addresses[0], addresses[1]));
    assert_true(json_equal(at, want));
    assert_true(json_equal(json_object_get(idle, "addresses"), json_object_get(want, "addresses")));
    opt.events_port = 9402;
    PP_CLEANUP_JSON json_t *with = pp_inject_settings(s, &opt);
    assert_int_equal(json_integer_value(pp_json_get(with, "events", "port", NULL)), 9402);
    PP_CLEANUP_JSON json_t *waiting = pp_inject_settings(NULL, &opt);
    assert_int_equal(json_integer_value(pp_json_get(waiting, "events", "port", NULL)), 9402);
    (void)pp_session_free(s);
}

/* Replays are asked for by name alone: the session's dwell, or the operator's, as agents take it.
 */
static void test_settings_of_replays(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        int64_t by_itself_ms, dwell, pause; /* 0: not asked for */
    } cases[] = {
        {"'method': 'Replay', 'replay': {'duration': '2500ms', 'maxPause': '90s'}", 10000, 2500,
         90000},
        {"'method': 'Replay'", 3500, 3500, 300000},
        {"'method': 'Replay'", 157500, 60000, 300000},
        {"'method': 'Auto'", 3500, 0, 0},
        {"'method': 'Sampling'", 3500, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[200];
        (void)snprintf(spec, sizeof spec, "{'selector': {'matchLabels': {'a': 'b'}}, %s}",
                       cases[i].more);
        pp_session *s = fixture_session(spec);
        pp_inject_options opt = options();
        opt.dwell_ns = cases[i].by_itself_ms * 1000000;
        PP_CLEANUP_JSON json_t *got = pp_inject_settings(s, &opt);
        const json_t *asked = json_object_get(got, "isolation");
        assert_int_equal(asked != NULL, cases[i].dwell != 0);
        assert_int_equal(json_integer_value(json_object_get(asked, "dwellMs")), cases[i].dwell);
        assert_int_equal(json_integer_value(json_object_get(asked, "maxPauseMs")), cases[i].pause);
        (void)pp_session_free(s);
    }
}

/* Samples are asked for by name, or by Auto where the operator is configured so. */
static void test_settings_of_pm_sampling(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        bool by_auto, asks;
    } cases[] = {
        {"Sampling", false, true}, {"Auto", false, false},      {"Auto", true, true},
        {"Job", true, false},      {"Regression", true, false}, {"Fine", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[128];
        (void)snprintf(spec, sizeof spec,
                       "{'selector': {'matchLabels': {'a': 'b'}}, 'method': '%s'}",
                       cases[i].method);
        pp_session *s = fixture_session(spec);
        pp_inject_options opt = options();
        opt.sampling_auto = cases[i].by_auto;
        opt.sampling_period_ns = 40000;
        assert_int_equal(pp_session_asks_sampling(s, cases[i].by_auto), cases[i].asks);
        PP_CLEANUP_JSON json_t *got = pp_inject_settings(s, &opt);
        const json_t *period = pp_json_get(got, "fine", "periodNs", NULL);
        assert_int_equal(json_integer_value(period), cases[i].asks ? 40000 : 0);
        assert_int_equal(json_object_get(got, "fine") != NULL, cases[i].asks);
        (void)pp_session_free(s);
    }
}

/* The loopback of a pod in the node's network is that of others too. */
static void test_no_events_in_the_nodes_network(void **state)
{
    (void)state;
    pp_inject_options opt = options();
    opt.events_port = 9402;
    for (int host = 0; host < 2; host++) {
        PP_CLEANUP_JSON json_t *pod = fixture_json(
            host ? "{'metadata': {}, 'spec': {'hostNetwork': true, 'containers': [{'name': 'c'}]}}"
                 : "{'metadata': {}, 'spec': {'containers': [{'name': 'c'}]}}");
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
        const char *settings =
            pp_json_get_string(got, "metadata", "annotations", PP_ANNOTATION_SETTINGS, NULL);
        assert_int_equal(strstr(settings, "9402") == NULL, host);
    }
}

static void test_native_sidecar_by_version(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        int native;
    } cases[] = {
        {"{'major': '1', 'minor': '31'}", 0},
        {"{'major': '1', 'minor': '29+'}", 0},
        {"{'major': '1', 'minor': '32'}", 1},
        {"{'major': '1', 'minor': '33+'}", 1},
        {"{'major': '2', 'minor': '0'}", 1},
        {"{'major': '1'}", -1},
        {"{'code': 403}", -1},
        {"[]", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *version = fixture_json(cases[i].version);
        assert_int_equal(pp_inject_native_sidecar(version), cases[i].native);
    }
    assert_int_equal(pp_inject_native_sidecar(NULL), -1);
}

static void test_bare_pod(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod =
        fixture_json("{'metadata': {'name': 'p'}, 'spec': {'containers': [{'name': 'c'}]}}");
    pp_inject_options opt = options();
    opt.native_sidecar = false;
    opt.pull_policy = "Never";
    PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
    const json_t *spec = json_object_get(got, "spec");
    const json_t *containers = json_object_get(spec, "containers");
    assert_int_equal(json_array_size(containers), 2);
    const json_t *agent = json_array_get(containers, 1);
    assert_string_equal(pp_json_get_string(agent, "name", NULL), PP_INJECT_AGENT);
    assert_string_equal(env_value(agent, "PRECISIONPROBE_EXIT_WITH_TRAINER"), "1");
    assert_string_equal(pp_json_get_string(agent, "imagePullPolicy", NULL), "Never");
    assert_null(json_object_get(agent, "restartPolicy"));
    check_restricted(agent);
    assert_int_equal(json_array_size(json_object_get(spec, "initContainers")), 1);
    assert_string_equal(env_value(json_array_get(containers, 0), "PYTHONPATH"),
                        "/opt/precisionprobe/python");
}

static void test_python_path(void **state)
{
    (void)state;
    static const struct {
        const char *container, *annotation, *path;
    } cases[] = {
        {"'env': []", NULL, "/opt/precisionprobe/python"},
        {"'env': [{'name': 'PYTHONPATH', 'value': ''}]", NULL, "/opt/precisionprobe/python"},
        {"'env': [{'name': 'PYTHONPATH'}]", NULL, "/opt/precisionprobe/python"},
        {"'env': [{'name': 'PYTHONPATH', 'value': '/a'}]", "/b",
         "/opt/precisionprobe/python:/a:/b"},
        {"'env': []", "/image/lib", "/opt/precisionprobe/python:/image/lib"},
        {"'envFrom': [{'configMapRef': {'name': 'x'}}]", NULL,
         "/opt/precisionprobe/python:$(PYTHONPATH)"},
        {"'envFrom': [{'configMapRef': {'name': 'x'}}],"
         " 'env': [{'name': 'PYTHONPATH', 'value': '/a'}]",
         NULL, "/opt/precisionprobe/python:/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "{'spec': {'containers': [{'name': 'c', %s}]}}",
                       cases[i].container);
        PP_CLEANUP_JSON json_t *pod = fixture_json(text);
        if (cases[i].annotation)
            (void)json_object_set_new(pod, "metadata",
                                      json_pack("{s:{s:s}}", "annotations",
                                                PP_ANNOTATION_PYTHONPATH, cases[i].annotation));
        pp_inject_options opt = options();
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
        const json_t *c = json_array_get(pp_json_get(got, "spec", "containers", NULL), 0);
        assert_string_equal(env_value(c, "PYTHONPATH"), cases[i].path);
    }
}

/* Of a variable given twice the last counts, for Kubernetes and so for us. */
static void test_python_path_twice(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod =
        fixture_json("{'spec': {'containers': [{'name': 'c', 'env': [{'name': 'PYTHONPATH',"
                     " 'value': '/a'}, {'name': 'PYTHONPATH', 'value': '/b'}]}]}}");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
    const json_t *c = json_array_get(pp_json_get(got, "spec", "containers", NULL), 0);
    const json_t *last = json_array_get(json_object_get(c, "env"), 1);
    assert_string_equal(pp_json_get_string(last, "value", NULL), "/opt/precisionprobe/python:/b");
}

/* Whose users OpenShift's admission chooses, it chooses those of what is added, too. */
static void test_users_that_are_given(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod =
        fixture_json("{'metadata': {'annotations': {'openshift.io/scc': 'restricted-v2'}},"
                     " 'spec': {'containers': [{'name': 'c', 'image': 'i'}]}}");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    const json_t *added = pp_json_get(got, "spec", "initContainers", NULL);
    for (size_t i = 0; i < 2; i++) {
        const json_t *sc = json_object_get(json_array_get(added, i), "securityContext");
        assert_true(json_is_true(json_object_get(sc, "runAsNonRoot")));
        assert_null(json_object_get(sc, "runAsUser"));
        assert_null(json_object_get(sc, "runAsGroup"));
    }
}

/* An empty object asks for nothing. */
static void test_no_resources_of_the_pod(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod =
        fixture_json("{'spec': {'resources': {}, 'containers': [{'name': 'c', 'image': 'i'}]}}");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *reason;
    } cases[] = {
        {"'os': {'name': 'windows'}, 'containers': [{'name': 'c'}]", "NotLinux"},
        {"'nodeSelector': {'kubernetes.io/os': 'windows'}, 'containers': [{'name': 'c'}]",
         "NotLinux"},
        {"'resources': {'limits': {'cpu': '2'}}, 'containers': [{'name': 'c'}]",
         "PodLevelResources"},
        {"'volumes': [{'name': 'precisionprobe-ring'}], 'containers': [{'name': 'c'}]",
         "NameClash"},
        {"'containers': [{'name': 'c'}, {'name': 'precisionprobe-agent'}]", "NameClash"},
        {"'initContainers': [{'name': 'precisionprobe-hook'}], 'containers': [{'name': 'c'}]",
         "NameClash"},
        {"'containers': []", "ContainerNotFound"},
        {"'containers': [{'name': 'c', 'volumeMounts': [{'mountPath': '/opt/precisionprobe'}]}]",
         "MountPathClash"},
        {"'containers': [{'name': 'c', 'volumeMounts': [{'mountPath': '/opt/'}]}]",
         "MountPathClash"},
        {"'containers': [{'name': 'c', 'volumeMounts': [{'mountPath': '/'}]}]", "MountPathClash"},
        {"'containers': [{'name': 'c', 'volumeMounts': [{'mountPath': '/var/run'}]}]",
         "MountPathClash"},
        {"'containers': [{'name': 'c', 'volumeMounts': [{'mountPath':"
         " '/run/precisionprobe/x'}]}]",
         "MountPathClash"},
        {"'containers': [{'name': 'c', 'env': [{'name': 'PYTHONPATH', 'valueFrom':"
         " {'configMapKeyRef': {'name': 'x', 'key': 'y'}}}]}]",
         "PythonPathFromSource"},
        {"'containers': [{'name': 'c', 'command': ['python3', '-u', '-I', 'train.py']}]",
         "PythonIsolated"},
        {"'containers': [{'name': 'c', 'command': ['/usr/bin/python3.13'], 'args': ['-sE',"
         " 'train.py']}]",
         "PythonIsolated"},
        {"'containers': [{'name': 'c', 'args': ['nice', 'python', '-S', '-m', 'train']}]",
         "PythonIsolated"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "{'spec': {%s}}", cases[i].spec);
        PP_CLEANUP_JSON json_t *pod = fixture_json(text);
        pp_inject_options opt = options();
        pp_inject_refusal why = {0};
        json_t *got = inject(pod, &opt, &why);
        if (got || strcmp(why.reason, cases[i].reason) != 0)
            fail_msg("%s: %s", cases[i].spec, why.reason);
        assert_true(strlen(why.message) > 20);
    }
}

/* What looks like a reason to refuse, and is none. */
static void test_not_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "'os': {'name': 'linux'}, 'containers': [{'name': 'c'}]",
        "'nodeSelector': {'kubernetes.io/os': 'linux'}, 'containers': [{'name': 'c'}]",
        "'containers': [{'name': 'c', 'volumeMounts': [{'mountPath': '/optional'},"
        " {'mountPath': '/opt/precisionprobe2'}, {'mountPath': '/run/secrets'},"
        " {'mountPath': '/var/run/secrets/kubernetes.io/serviceaccount'},"
        " {'mountPath': '/opt/venv'}]}]",
        "'containers': [{'name': 'c', 'command': ['python3', 'train.py', '-S', '-I']}]",
        "'containers': [{'name': 'c', 'command': ['python3', '-c', 'x', '-S']}]",
        "'containers': [{'name': 'c', 'command': ['python3', '-mtrainS', '-E']}]",
        "'containers': [{'name': 'c', 'command': ['python3', '-Wignore', 'x']}]",
        "'containers': [{'name': 'c', 'command': ['train', '-S', '-I']}]",
        "'hostNetwork': true, 'hostUsers': false, 'containers': [{'name': 'c'}]",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "{'spec': {%s}}", cases[i]);
        PP_CLEANUP_JSON json_t *pod = fixture_json(text);
        pp_inject_options opt = options();
        pp_inject_refusal why = {0};
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt, &why);
        if (!got)
            fail_msg("%s: %s", cases[i], why.message);
    }
}

static void test_too_many_annotations(void **state)
{
    (void)state;
    PP_CLEANUP_FREE char *large = calloc(1, 250 * 1024);
    memset(large, 'x', 250 * 1024 - 1);
    PP_CLEANUP_JSON json_t *pod = fixture_json("{'spec': {'containers': [{'name': 'c'}]}}");
    (void)json_object_set_new(pod, "metadata", json_pack("{s:{s:s}}", "annotations", "a", large));
    pp_inject_options opt = options();
    pp_inject_refusal why = {0};
    assert_null(inject(pod, &opt, &why));
    assert_string_equal(why.reason, "AnnotationsTooLarge");
}

/* The annotation of a pod that was injected with `own` there; NULL: with none. Owned. */
static char *evictable_with(const char *own, const pp_session *session)
{
    pp_inject_options opt = options();
    pp_inject_refusal why = {0};
    PP_CLEANUP_JSON json_t *pod = fixture_json("{'spec': {'containers': [{'name': 'c'}]}}");
    PP_CLEANUP_JSON json_t *patch = NULL, *again = NULL;
    if (own)
        (void)json_object_set_new(pod, "metadata",
                                  json_pack("{s:{s:s}}", "annotations", PP_INJECT_EVICTABLE, own));
    assert_int_equal(pp_inject_patch(pod, session, &opt, &patch, &why, NULL), PP_INJECT_PATCHED);
    PP_CLEANUP_JSON json_t *got = apply(pod, patch);
    assert_int_equal(pp_inject_patch(got, session, &opt, &again, &why, NULL), PP_INJECT_ALREADY);
    assert_int_equal(json_array_size(again), 0);
    return strdup(pp_json_get_string(got, "metadata", "annotations", PP_INJECT_EVICTABLE, NULL));
}

/* What the user says of volumes stays, whatever it is, and each of ours is there once. */
static void test_evictable_volumes(void **state)
{
    (void)state;
    static const struct {
        const char *own, *list;
    } cases[] = {
        {NULL, "precisionprobe-hook,precisionprobe-spool"},
        {"", "precisionprobe-hook,precisionprobe-spool"},
        {"data", "data,precisionprobe-hook,precisionprobe-spool"},
        {"precisionprobe-spool,data", "precisionprobe-spool,data,precisionprobe-hook"},
        {"precisionprobe-hook,precisionprobe-spool", "precisionprobe-hook,precisionprobe-spool"},
        {"my-precisionprobe-hook", "my-precisionprobe-hook,precisionprobe-hook,"
                                   "precisionprobe-spool"},
        {"a, precisionprobe-hook", "a, precisionprobe-hook,precisionprobe-hook,"
                                   "precisionprobe-spool"},
        {",,\"~/%s\n\xc3\xa4,", ",,\"~/%s\n\xc3\xa4,,precisionprobe-hook,precisionprobe-spool"},
    };
    pp_session *session = fixture_session(SPEC);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PP_CLEANUP_FREE char *list = evictable_with(cases[i].own, session);
        assert_string_equal(list, cases[i].list);
    }
    enum { LONG = 150 * 1024 };
    PP_CLEANUP_FREE char *large = calloc(1, LONG + 1);
    memset(large, 'x', LONG);
    PP_CLEANUP_FREE char *list = evictable_with(large, session);
    assert_int_equal(strlen(list), LONG + strlen(",precisionprobe-hook,precisionprobe-spool"));
    assert_memory_equal(list, large, LONG);
    (void)pp_session_free(session);
}

/* Those that are named are those that Cluster Autoscaler looks at: on disk, and ours. */
static void test_evictable_volumes_are_on_disk(void **state)
{
    (void)state;
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *pod = fixture_file("controller/tests/data/pod.json");
    PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
    const json_t *volumes = pp_json_get(got, "spec", "volumes", NULL);
    char expected[256] = "";
    for (size_t i = 0; i < json_array_size(volumes); i++) {
        const json_t *volume = json_array_get(volumes, i);
        const json_t *disk = json_object_get(volume, "emptyDir");
        const char *name = pp_json_get_string(volume, "name", NULL);
        if (!disk || !pp_inject_is_ours(name) || json_object_get(disk, "medium"))
            continue;
        const size_t n = strlen(expected);
        (void)snprintf(expected + n, sizeof expected - n, "%s%s", n ? "," : "", name);
    }
    assert_string_equal(
        pp_json_get_string(got, "metadata", "annotations", PP_INJECT_EVICTABLE, NULL), expected);
}

static size_t mounts_at(const json_t *container, const char *path)
{
    const json_t *mounts = json_object_get(container, "volumeMounts");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(mounts); i++)
        n += strcmp(pp_json_get_string(json_array_get(mounts, i), "mountPath", NULL), path) == 0;
    return n;
}

/* The API server would mount it, and ask once more; where it mounts none nothing hides it. */
static void test_no_token_for_what_is_added(void **state)
{
    (void)state;
    static const char path[] = "/var/run/secrets/kubernetes.io/serviceaccount";
    static const char *const pods[] = {
        "{'spec': {'containers': [{'name': 'c', 'image': 'i'}]}}",
        "{'spec': {'containers': [{'name': 'b', 'image': 'i'}, {'name': 'c', 'image': 'i',"
        " 'volumeMounts': [{'name': 't', 'mountPath': "
        "'/var/run/secrets/kubernetes.io/serviceaccount'}]}]}}"};
    for (size_t token = 0; token < 2; token++) {
        PP_CLEANUP_JSON json_t *pod = fixture_json(pods[token]);
        pp_inject_options opt = options();
        PP_CLEANUP_JSON json_t *got = inject(pod, &opt, NULL);
        const json_t *init = pp_json_get(got, "spec", "initContainers", NULL);
        assert_true(json_array_size(init) >= 3);
        for (size_t i = 0; i < json_array_size(init); i++)
            assert_int_equal(mounts_at(json_array_get(init, i), path), token);
        const json_t *own = pp_json_get(got, "spec", "containers", NULL);
        assert_int_equal(mounts_at(json_array_get(own, 0), path), 0);
    }
}

static void test_idempotent(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_file("controller/tests/data/pod.json");
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *injected = inject(pod, &opt, NULL);
    pp_session *session = fixture_session(SPEC);
    pp_inject_refusal why = {0};
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(injected, session, &opt, &patch, &why, NULL),
                     PP_INJECT_ALREADY);
    assert_int_equal(json_array_size(patch), 0);

    json_t *notes = json_object_get(json_object_get(injected, "metadata"), "annotations");
    (void)json_object_set_new(notes, PP_ANNOTATION_SESSION_UID, json_string("other"));
    PP_CLEANUP_JSON json_t *second = NULL;
    assert_int_equal(pp_inject_patch(injected, session, &opt, &second, &why, NULL),
                     PP_INJECT_OTHER);
    assert_int_equal(json_array_size(second), 0);

    /* Our parts without the annotations, as a copied manifest has them: not ours to touch. */
    (void)json_object_del(notes, PP_ANNOTATION_SESSION_UID);
    (void)json_object_del(notes, PP_ANNOTATION_SETTINGS);
    PP_CLEANUP_JSON json_t *third = NULL;
    assert_int_equal(pp_inject_patch(injected, session, &opt, &third, &why, NULL),
                     PP_INJECT_REFUSED);
    assert_string_equal(why.reason, "NameClash");
    (void)pp_session_free(session);

    /* The annotation without our parts is no injection. */
    json_t *meta = json_object_get(pod, "metadata");
    (void)json_object_set_new(meta, "annotations",
                              json_pack("{s:s}", PP_ANNOTATION_SESSION_UID, FIXTURE_UID));
    PP_CLEANUP_JSON json_t *again = inject(pod, &opt, NULL);
    assert_non_null(again);
}

static void test_without_a_session(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_file("controller/tests/data/pod.json");
    pp_inject_options opt = options();
    pp_inject_refusal why = {0};
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, &why, NULL), PP_INJECT_PATCHED);
    PP_CLEANUP_JSON json_t *idle = apply(pod, patch);
    const json_t *notes = pp_json_get(idle, "metadata", "annotations", NULL);
    assert_null(json_object_get(notes, PP_ANNOTATION_SESSION));
    assert_null(json_object_get(notes, PP_ANNOTATION_SESSION_UID));
    assert_string_equal(json_string_value(json_object_get(notes, PP_ANNOTATION_SETTINGS)),
                        "{\"version\":1,\"endpoint\":"
                        "\"wss://precisionprobe.system.svc:443/v1/ingest\"}");
    assert_false(pp_inject_carried(pod));
    assert_true(pp_inject_carried(idle));
    /* All else is what a session's pod gets. */
    PP_CLEANUP_JSON json_t *full = inject(pod, &opt, NULL);
    assert_true(json_equal(json_object_get(idle, "spec"), json_object_get(full, "spec")));
    /* Neither it nor a session's pod is injected again. */
    pp_session *session = fixture_session(SPEC);
    PP_CLEANUP_JSON json_t *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(pp_inject_patch(idle, session, &opt, &a, &why, NULL), PP_INJECT_OTHER);
    assert_int_equal(pp_inject_patch(idle, NULL, &opt, &b, &why, NULL), PP_INJECT_ALREADY);
    assert_int_equal(pp_inject_patch(full, NULL, &opt, &c, &why, NULL), PP_INJECT_ALREADY);
    assert_int_equal(json_array_size(a) + json_array_size(b) + json_array_size(c), 0);
    (void)pp_session_free(session);
}

static void test_wanted(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *yes = fixture_json("{'precisionprobe.io/inject': 'true'}");
    PP_CLEANUP_JSON json_t *no = fixture_json("{'precisionprobe.io/inject': 'false'}");
    assert_true(pp_inject_wanted(yes));
    assert_false(pp_inject_wanted(no));
    assert_false(pp_inject_wanted(NULL));
}

/* Of two sessions, the second a second older, the pod is whose? */
static int holder(const char *first, const char *second, const pp_inject_pod_view *pod)
{
    pp_session *a = fixture_session(first), *b = fixture_session(second);
    a->uid[0] = 'a';
    b->uid[0] = 'b';
    b->created_ns -= FIXTURE_SECOND;
    const pp_session *list[] = {a, NULL, b};
    const pp_session *found = pp_inject_holder(list, 3, pod);
    const pp_session *const one[] = {a, b};
    const pp_session *const other[] = {b, a};
    assert_ptr_equal(pp_inject_holder(one, 2, pod), found);
    assert_ptr_equal(pp_inject_holder(other, 2, pod), found);
    int which = found == a ? 1 : found == b ? 2 : 0;
    (void)pp_session_free(a);
    (void)pp_session_free(b);
    return which;
}

static void test_holder(void **state)
{
    (void)state;
    static const char of_c[] =
        "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'containers': ['c']}";
    static const char of_both[] =
        "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'containers': ['cc', 'c']}";
    static const char stranger[] = "{'selector': {'matchLabels': {'app': 'other'}}}";
    PP_CLEANUP_JSON json_t *labels = fixture_json("{'app': 'dlrm'}");
    pp_inject_pod_view pod = {
        .namespace_ = "ml", .labels = labels, .containers = "c", .hooked = true};
    assert_int_equal(holder(SPEC, SPEC, &pod), 2); /* the oldest */
    assert_int_equal(holder(SPEC, stranger, &pod), 1);
    assert_int_equal(holder(SPEC, of_both, &pod), 1);
    assert_int_equal(holder(of_c, stranger, &pod), 1);
    assert_int_equal(holder(of_both, stranger, &pod), 0);
    pod.containers = "c,cc";
    assert_int_equal(holder(of_both, of_c, &pod), 1);
    assert_int_equal(holder(stranger, of_c, &pod), 0);
    pod.containers = NULL;
    assert_int_equal(holder(SPEC, of_c, &pod), 1);

    pod.session_uid =
        "ab0c2a3e-6a65-4b9e-a8a5-1d8f2f3c4d5e"; /* of the first, whatever it selects */
    assert_int_equal(holder(SPEC, SPEC, &pod), 1);
    assert_int_equal(holder(stranger, SPEC, &pod), 1);
    assert_int_equal(holder("{'selector': {}}", SPEC, &pod), 2); /* not live */
    pod.hooked = false;
    assert_int_equal(holder(SPEC, SPEC, &pod), 1);
    pod.session_uid = NULL;
    assert_int_equal(holder(SPEC, SPEC, &pod), 0);
    pod.hooked = true;
    pod.namespace_ = "other";
    assert_int_equal(holder(SPEC, SPEC, &pod), 0);
}

/* A session that is finishing gets the rest of what its pods had for it. */
static void test_suits_while_finishing(void **state)
{
    (void)state;
    pp_session *s = fixture_session(SPEC);
    PP_CLEANUP_JSON json_t *labels = fixture_json("{'app': 'dlrm'}");
    const pp_inject_pod_view pod = {.namespace_ = "ml", .labels = labels, .hooked = true};
    s->phase = PP_SESSION_FINISHING;
    assert_true(pp_inject_eligible(s, &pod));
    assert_null(pp_inject_holder((const pp_session *const[]){s}, 1, &pod));
    (void)pp_session_free(s);
}

static void test_explain(void **state)
{
    (void)state;
    static const struct {
        const char *pod, *reason;
    } cases[] = {
        {"{'metadata': {'name': 'p', 'uid': 'u', 'creationTimestamp': '2026-01-21T12:00:00Z'},"
         " 'spec': {'containers': [{'name': 'c'}]}}",
         "CreatedBefore"},
        {"{'metadata': {'name': 'p', 'uid': 'u', 'creationTimestamp': '2026-01-21T13:00:00Z'},"
         " 'spec': {'containers': [{'name': 'c'}]}}",
         "WebhookMissed"},
        {"{'metadata': {'name': 'p', 'uid': 'u', 'creationTimestamp': '2026-01-21T12:00:00Z'},"
         " 'spec': {'containers': [{'name': 'c', 'command': ['python', '-I', 'x']}]}}",
         "PythonIsolated"},
        {"{'metadata': {'name': 'p', 'uid': 'u', 'creationTimestamp': '2026-01-21T13:00:00Z',"
         " 'labels': {'precisionprobe.io/inject': 'false'}}, 'spec': {'containers': [{'name': "
         "'c'}]}}",
         "OptedOut"},
        {"{'metadata': {'name': 'p', 'uid': 'u', 'creationTimestamp': '2026-01-21T12:00:00Z',"
         " 'annotations': {'precisionprobe.io/inject': 'false'}}, 'spec': {'containers': [{'name':"
         " 'c'}]}}",
         "OptedOut"},
        {"{'metadata': {'name': 'p', 'namespace': 'kube-system', 'uid': 'u'},"
         " 'spec': {'containers': [{'name': 'c'}]}}",
         "NamespaceExcluded"},
        {"{'metadata': {'name': 'p', 'namespace': 'probe-system', 'uid': 'u'},"
         " 'spec': {'containers': [{'name': 'c'}]}}",
         "NamespaceExcluded"},
    };
    pp_session *session = fixture_session(SPEC);
    pp_inject_options opt = options();
    opt.own_namespace = "probe-system";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PP_CLEANUP_JSON json_t *pod = fixture_json(cases[i].pod);
        pp_inject_refusal why;
        pp_inject_explain(pod, session, &opt, &why);
        assert_string_equal(why.reason, cases[i].reason);
        assert_true(strlen(why.message) > 20);
    }
    (void)pp_session_free(session);
}

static void test_matching(void **state)
{
    (void)state;
    pp_session *a = fixture_session(SPEC), *b = fixture_session(SPEC), *c = fixture_session(SPEC);
    PP_CLEANUP_JSON json_t *labels = fixture_json("{'app': 'dlrm'}");
    const pp_session *list[] = {a, NULL, b, c};
    b->created_ns -= FIXTURE_SECOND;
    assert_ptr_equal(pp_inject_matching(list, 4, "ml", labels), b);
    b->created_ns = a->created_ns;
    c->name[0] = 'a'; /* the first by name */
    assert_ptr_equal(pp_inject_matching(list, 4, "ml", labels), c);
    c->phase = PP_SESSION_FINISHING;
    b->deleting = true;
    assert_ptr_equal(pp_inject_matching(list, 4, "ml", labels), a);
    assert_null(pp_inject_matching(list, 4, "other", labels));
    assert_null(pp_inject_matching(list, 4, "ml", NULL));
    assert_null(pp_inject_matching(list, 0, "ml", labels));
    (void)pp_session_free(a);
    (void)pp_session_free(b);
    (void)pp_session_free(c);
}

/* ---- whatever arrives, nothing crashes: pods with parts replaced at random ---- */

static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static json_t *random_value(uint32_t *seed)
{
    switch (next_random(seed) % 8) {
    case 0:
        return json_null();
    case 1:
        return json_integer((json_int_t)next_random(seed) - 1000);
    case 2:
        return json_string("PYTHONPATH");
    case 3:
        return json_array();
    case 4:
        return json_object();
    case 5:
        return json_pack("[n, s, {s:s}]", "x", "name", "precisionprobe-agent");
    case 6:
        return json_pack("{s:n, s:[i]}", "name", "env", 1);
    default:
        return json_true();
    }
}

/* Replaces about one value in `rate` somewhere below. */
static void damage(json_t *value, uint32_t *seed, uint32_t rate)
{
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (next_random(seed) % rate == 0)
                (void)json_array_set_new(value, i, random_value(seed));
            else
                damage(json_array_get(value, i), seed, rate);
        }
        return;
    }
    void *at = json_object_iter(value);
    while (at) {
        if (next_random(seed) % rate == 0)
            (void)json_object_iter_set_new(value, at, random_value(seed));
        else
            damage(json_object_iter_value(at), seed, rate);
        at = json_object_iter_next(value, at);
    }
}

static void try_damaged(const json_t *pod, const pp_session *session, size_t *patched)
{
    pp_inject_options opt = options();
    pp_inject_refusal why = {0};
    PP_CLEANUP_JSON json_t *patch = NULL;
    int rc = pp_inject_patch(pod, session, &opt, &patch, &why, NULL);
    if (rc == PP_INJECT_PATCHED) {
        PP_CLEANUP_JSON json_t *got = apply(pod, patch);
        PP_CLEANUP_JSON json_t *second = NULL;
        assert_int_equal(pp_inject_patch(got, session, &opt, &second, &why, NULL),
                         PP_INJECT_ALREADY);
        (*patched)++;
    }
    pp_inject_explain(pod, session, &opt, &why);
    pp_session_pod seen;
    (void)pp_session_pod_from_json(pod, &seen);
}

static void test_damaged_pods(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_file("controller/tests/data/pod.json");
    pp_session *session = fixture_session(SPEC);
    uint32_t seed = 2463534242U;
    size_t patched = 0;
    for (int i = 0; i < 3000; i++) {
        PP_CLEANUP_JSON json_t *copy = json_deep_copy(pod);
        damage(copy, &seed, i % 2 ? 10 : 60);
        try_damaged(copy, session, &patched);
    }
    assert_in_range(patched, 100, 2900); /* both ways were taken */
    (void)pp_session_free(session);
}

static void test_damaged_sessions(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *cases = fixture_file("crds/tests/specs.json");
    json_t *spec = json_object_get(json_object_get(cases, "accepted"), "everything");
    uint32_t seed = 88172645U;
    size_t valid = 0, invalid = 0;
    for (int i = 0; i < 3000; i++) {
        PP_CLEANUP_JSON json_t *object = fixture_object(
            json_deep_copy(spec),
            fixture_json("{'phase': 'Collecting', 'targets': [{'uid': 'u', 'gpus': ['a', 'b'],"
                         " 'lastSeen': '2026-01-21T12:53:20Z'}], 'conditions': [{'type':"
                         " 'Injected', 'status': 'True', 'reason': 'x'}],"
                         " 'startTime': '2026-01-21T12:53:20.5Z', 'counts': {'podsMatched': 3}}"));
        damage(object, &seed, 15);
        pp_session *s = NULL;
        if (pp_session_decode(object, &s, NULL) < 0)
            continue;
        valid += s->invalid.code == PP_OK;
        invalid += s->invalid.code != PP_OK;
        pp_session_observation obs = {.session = s, .now_ns = FIXTURE_CREATED};
        pp_session_decision did;
        assert_int_equal(pp_session_step(&obs, NULL, &did, NULL), 0);
        PP_CLEANUP_JSON json_t *status = pp_session_status_json(&did, s->status);
        assert_non_null(status);
        pp_session_decision_done(&did);
        (void)pp_session_free(s);
    }
    assert_true(valid > 50 && invalid > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_realistic_pod),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_settings_of_pm_sampling),
        cmocka_unit_test(test_settings_of_replays),
        cmocka_unit_test(test_no_events_in_the_nodes_network),
        cmocka_unit_test(test_native_sidecar_by_version),
        cmocka_unit_test(test_bare_pod),
        cmocka_unit_test(test_python_path),
        cmocka_unit_test(test_python_path_twice),
        cmocka_unit_test(test_users_that_are_given),
        cmocka_unit_test(test_no_resources_of_the_pod),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_refused),
        cmocka_unit_test(test_no_token_for_what_is_added),
        cmocka_unit_test(test_too_many_annotations),
        cmocka_unit_test(test_evictable_volumes),
        cmocka_unit_test(test_evictable_volumes_are_on_disk),
        cmocka_unit_test(test_idempotent),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_without_a_session),
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_holder),
        cmocka_unit_test(test_suits_while_finishing),
        cmocka_unit_test(test_matching),
        cmocka_unit_test(test_damaged_pods),
        cmocka_unit_test(test_damaged_sessions),
    };
    return cmocka_run_group_tests_name("inject", tests, NULL, NULL);
}
