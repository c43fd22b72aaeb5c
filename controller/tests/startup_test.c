/* Injected pods that do not start: what is seen of them, what is said, which may be let go. */
#include "controller/pods/startup.h"

#include "controller/tests/inject_fixtures.h"

#define GUARANTEED                                                                                 \
    "'resources': {'limits': {'cpu': '2', 'memory': '1Gi', 'nvidia.com/gpu': '1'},"                \
    " 'requests': {'cpu': '2', 'memory': '1Gi', 'nvidia.com/gpu': '1'}}"
#define OWNER(kind, version)                                                                       \
    "'ownerReferences': [{'apiVersion': '" version "', 'kind': '" kind                             \
    "', 'name': 'own', 'uid': 'owner', 'controller': true}]"

/* A pod as the webhook leaves it, with this in its metadata, spec and status. */
static json_t *injected(const char *metadata, const char *more, const char *container,
                        const char *status)
{
    char text[4096];
    (void)snprintf(text, sizeof text,
                   "{'metadata': {'name': 'p', 'resourceVersion': '7', %s}, 'spec': {%s"
                   " 'containers': [{'name': 'c', 'image': 'i', %s}]}}",
                   metadata, more, container);
    PP_CLEANUP_JSON json_t *pod = fixture_json(text);
    pp_inject_options opt = options();
    PP_CLEANUP_JSON json_t *patch = NULL;
    assert_int_equal(pp_inject_patch(pod, NULL, &opt, &patch, NULL, NULL), PP_INJECT_PATCHED);
    json_t *got = apply(pod, patch);
    (void)json_object_set_new(got, "status", fixture_json(status));
    if (!strstr(status, "PodScheduled"))
        (void)json_object_set_new(json_object_get(got, "spec"), "nodeName", json_string("n"));
    return got;
}

static pp_startup look(const json_t *pod)
{
    pp_startup s;
    pp_startup_look(pod, &s);
    return s;
}

#define WAITING(name, reason)                                                                      \
    "{'name': '" name "', 'state': {'waiting': {'reason': '" reason "', 'message': 'the words'}}}"
#define INIT(statuses)                                                                             \
    "{'phase': 'Pending', 'initContainerStatuses': [" statuses                                     \
    "], 'containerStatuses': [" WAITING("c", "PodInitializing") "]}"
#define PLACE(message)                                                                             \
    "{'phase': 'Pending', 'conditions': [{'type': 'PodScheduled', 'status': 'False', 'reason':"    \
    " 'Unschedulable', 'message': '" message "'}]}"

static const struct {
    const char *container, *status;
    pp_startup_cause cause;
    const char *name, *why;
} pods_seen[] = {
    {GUARANTEED, INIT(WAITING("precisionprobe-hook", "ImagePullBackOff")), PP_STARTUP_IMAGE,
     "precisionprobe-hook", "ImagePullBackOff: the words"},
    {GUARANTEED, INIT(WAITING("precisionprobe-hook", "ErrImageNeverPull")), PP_STARTUP_IMAGE,
     "precisionprobe-hook", "ErrImageNeverPull: the words"},
    {GUARANTEED, INIT(WAITING("precisionprobe-hook", "CrashLoopBackOff")), PP_STARTUP_CONTAINER,
     "precisionprobe-hook", "CrashLoopBackOff: the words"},
    {GUARANTEED, INIT(WAITING("precisionprobe-environment-0", "RunContainerError")),
     PP_STARTUP_CONTAINER, "precisionprobe-environment-0", "RunContainerError: the words"},
    {GUARANTEED, INIT(WAITING("precisionprobe-environment-0", "ImagePullBackOff")),
     PP_STARTUP_OWN_IMAGE, "precisionprobe-environment-0", "ImagePullBackOff: the words"},
    /* A ConfigMap that is not there keeps the trainer, too. */
    {GUARANTEED, INIT(WAITING("precisionprobe-environment-0", "CreateContainerConfigError")),
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED, INIT(WAITING("precisionprobe-hook", "PodInitializing")), PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     INIT("{'name': 'precisionprobe-hook', 'state': {'terminated': {'exitCode': 1, 'reason':"
          " 'Error'}}}"),
     PP_STARTUP_CONTAINER, "precisionprobe-hook", "Error: exit code 1"},
    /* It runs again, for a moment. */
    {GUARANTEED,
     INIT("{'name': 'precisionprobe-hook', 'restartCount': 3, 'state': {'running': {}},"
          " 'lastState': {'terminated': {'exitCode': 137, 'reason': 'OOMKilled'}}}"),
     PP_STARTUP_CONTAINER, "precisionprobe-hook", "OOMKilled: exit code 137"},
    {GUARANTEED,
     INIT("{'name': 'precisionprobe-hook', 'state': {'terminated': {'exitCode': 0}},"
          " 'lastState': {'terminated': {'exitCode': 1}}}"),
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     INIT("{'name': 'precisionprobe-agent', 'started': true, 'state': {'running': {}},"
          " 'lastState': {'terminated': {'exitCode': 1}}}"),
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     INIT("{'name': 'precisionprobe-agent', 'started': false, 'state': {'terminated':"
          " {'exitCode': 1}}}"),
     PP_STARTUP_CONTAINER, "precisionprobe-agent", "failed: exit code 1"},
    /* What the user's own containers do is theirs. */
    {GUARANTEED, INIT(WAITING("own", "ImagePullBackOff")), PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     INIT("{'name': 'own', 'state': {'terminated': {'exitCode': 0}}}, " WAITING(
         "precisionprobe-environment-0", "RunContainerError")),
     PP_STARTUP_CONTAINER, "precisionprobe-environment-0", "RunContainerError"},
    {GUARANTEED,
     "{'phase': 'Pending', 'initContainerStatuses': [" WAITING(
         "precisionprobe-hook",
         "CrashLoopBackOff") "], 'containerStatuses': [{'name': 'c', 'restartCount': 1}]}",
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     PLACE("0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are"
           " available: 1 No preemption victims found for incoming pod."),
     PP_STARTUP_ROOM, "cpu", "0/1 nodes are available: 1 Insufficient cpu. pre"},
    {GUARANTEED, PLACE("0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."),
     PP_STARTUP_ROOM, "memory", "0/2 nodes"},
    {GUARANTEED, PLACE("0/1 nodes are available: 1 Insufficient nvidia.com/gpu. x"),
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     PLACE("0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient"
           " nvidia.com/gpu."),
     PP_STARTUP_NONE, "", ""},
    /* A full node with GPUs, in a cluster that has others. */
    {GUARANTEED,
     PLACE("0/4 nodes are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu. x"),
     PP_STARTUP_ROOM, "cpu", "0/4 nodes"},
    {GUARANTEED,
     PLACE("0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint"
           " {a: b}, 2 node(s) were unschedulable."),
     PP_STARTUP_ROOM, "cpu", "0/4 nodes"},
    {GUARANTEED,
     PLACE("0/4 nodes are available: 2 Insufficient cpu, 3 Insufficient nvidia.com/gpu, 1 node"
           "(s) were unschedulable. preemption: 0/4 nodes are available: 4 x."),
     PP_STARTUP_NONE, "", ""},
    /* Refused by its node: no scheduler has chosen that. */
    {GUARANTEED,
     "{'phase': 'Failed', 'reason': 'OutOfcpu', 'message': 'Pod was rejected: not enough cpu'}",
     PP_STARTUP_ROOM, "cpu", "OutOfcpu: Pod was rejected"},
    {GUARANTEED, "{'phase': 'Failed', 'reason': 'TopologyAffinityError'}", PP_STARTUP_ROOM, "cpu",
     "TopologyAffinityError"},
    {GUARANTEED, "{'phase': 'Failed', 'reason': 'OutOfnvidia.com/gpu'}", PP_STARTUP_NONE, "", ""},
    {"'resources': {'requests': {'cpu': '2'}}", "{'phase': 'Failed', 'reason': 'OutOfcpu'}",
     PP_STARTUP_NONE, "", ""},
    /* GPUs that are asked for by a claim. */
    {GUARANTEED,
     PLACE("0/2 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims. x"),
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     PLACE("0/2 nodes are available: 1 Insufficient cpu, 1 resourceclaim not available on the"
           " node."),
     PP_STARTUP_NONE, "", ""},
    /* Others are ended for it: it has its place. */
    {GUARANTEED,
     "{'phase': 'Pending', 'nominatedNodeName': 'n', 'conditions': [{'type': 'PodScheduled',"
     " 'status': 'False', 'reason': 'Unschedulable', 'message': '1 Insufficient cpu.'}]}",
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED, PLACE("0/1 nodes are available: 1 node(s) had untolerated taint {a: b}."),
     PP_STARTUP_NONE, "", ""},
    {"'resources': {'requests': {'cpu': '2'}}", PLACE("0/1 nodes: 1 Insufficient cpu."),
     PP_STARTUP_NONE, "", ""}, /* the agent asks for nothing */
    {GUARANTEED,
     "{'phase': 'Pending', 'conditions': [{'type': 'PodScheduled', 'status': 'False', 'reason':"
     " 'SchedulingGated', 'message': '1 Insufficient cpu'}]}",
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     "{'phase': 'Running', 'initContainerStatuses': [" WAITING("precisionprobe-hook",
                                                               "ImagePullBackOff") "]}",
     PP_STARTUP_NONE, "", ""},
    /* It was ended before it had started, by its node or for another. */
    {GUARANTEED,
     "{'phase': 'Failed', 'reason': 'Evicted', 'initContainerStatuses': [{'name':"
     " 'precisionprobe-agent', 'state': {'terminated': {'exitCode': 137}}}]}",
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     "{'phase': 'Failed', 'conditions': [{'type': 'DisruptionTarget', 'status': 'True'}],"
     " 'initContainerStatuses': [{'name': 'precisionprobe-agent', 'state': {'terminated':"
     " {'exitCode': 137}}}]}",
     PP_STARTUP_NONE, "", ""},
    {GUARANTEED,
     "{'phase': 'Failed', 'initContainerStatuses': [{'name': 'precisionprobe-hook', 'state':"
     " {'terminated': {'exitCode': 137}}}]}",
     PP_STARTUP_CONTAINER, "precisionprobe-hook", "failed: exit code 137"},
    {GUARANTEED, "{}", PP_STARTUP_NONE, "", ""},
};

static void test_causes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pods_seen / sizeof pods_seen[0]; i++) {
        PP_CLEANUP_JSON json_t *pod =
            injected("'uid': 'u'", "", pods_seen[i].container, pods_seen[i].status);
        const pp_startup s = look(pod);
        if (s.cause != pods_seen[i].cause || strcmp(s.container, pods_seen[i].name) != 0 ||
            strncmp(s.why, pods_seen[i].why, strlen(pods_seen[i].why)) != 0)
            fail_msg("%s: %d %s: %s", pods_seen[i].status, s.cause, s.container, s.why);
        pp_session_pod_trouble told;
        pp_startup_tell(&s, &told);
        assert_int_equal(told.reason[0] != '\0', s.cause != PP_STARTUP_NONE);
        assert_int_equal(strlen(told.text) > 40, s.cause != PP_STARTUP_NONE);
        assert_true(strlen(told.text) + 1 < sizeof told.text);
    }
}

static void test_a_failed_pod(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = injected(
        "'uid': 'u', " OWNER("Job", "batch/v1"), "'restartPolicy': 'Never',", GUARANTEED,
        "{'phase': 'Failed', 'initContainerStatuses': [{'name': 'precisionprobe-environment-0',"
        " 'state': {'terminated': {'exitCode': 128, 'reason': 'StartError', 'message': 'exec:"
        " permission denied'}}}]}");
    const pp_startup s = look(pod);
    assert_int_equal(s.cause, PP_STARTUP_CONTAINER);
    assert_true(s.over && pp_startup_is_ours(&s));
    assert_int_equal(s.kind, PP_OWNER_JOB);
    assert_string_equal(s.owner_uid, "owner");
    assert_string_equal(s.owner_name, "own");
    pp_session_pod_trouble told;
    pp_startup_tell(&s, &told);
    assert_non_null(strstr(told.text, "permission denied"));
    assert_non_null(strstr(told.text, "for an hour"));
    /* Evicted before anything ran: nothing of ours did it. */
    PP_CLEANUP_JSON json_t *evicted =
        injected("'uid': 'u'", "", GUARANTEED, "{'phase': 'Failed', 'reason': 'Evicted'}");
    assert_int_equal(look(evicted).cause, PP_STARTUP_NONE);
}

static void test_a_pod_without_the_hook(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_json(
        "{'metadata': {'name': 'p', 'uid': 'u'}, 'spec': {'nodeName': 'n', 'initContainers':"
        " [{'name': 'precisionprobe-hook'}], 'containers': [{'name': 'c'}]}, 'status': " INIT(
            WAITING("precisionprobe-hook", "ImagePullBackOff")) "}");
    assert_int_equal(look(pod).cause, PP_STARTUP_NONE);
}

/* ---- letting go ---- */

#define REPLICAS "'spec': {'replicas': 2}"

static bool may(const char *metadata, const char *more, const char *owner, int64_t failed,
                int64_t stuck)
{
    char text[1024];
    PP_CLEANUP_JSON json_t *pod = injected(
        metadata, more, GUARANTEED, INIT(WAITING("precisionprobe-hook", "ImagePullBackOff")));
    const pp_startup s = look(pod);
    (void)snprintf(text, sizeof text, "{'metadata': {'uid': 'owner'}, %s}", owner);
    PP_CLEANUP_JSON json_t *object = fixture_json(text);
    return pp_startup_may_release(&s, object, failed, stuck);
}

static void test_owners(void **state)
{
    (void)state;
    static const struct {
        const char *metadata, *more, *owner;
        int64_t failed, stuck;
        bool may;
    } cases[] = {
        {OWNER("ReplicaSet", "apps/v1"), "", REPLICAS, 0, 1, true},
        {OWNER("StatefulSet", "apps/v1"), "", REPLICAS, 0, 9, true},
        {OWNER("ReplicaSet", "apps/v1"), "", "'spec': {'replicas': 0}", 0, 1, false},
        {OWNER("DaemonSet", "apps/v1"), "", "'spec': {}", 0, 1, false},
        {OWNER("ReplicaSet", "other.io/v1"), "", REPLICAS, 0, 1, false},
        {"'uid': 'u'", "", REPLICAS, 0, 1, false}, /* bare */
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimit': 2}", 1, 1, true},
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimit': 2}", 2, 1, false},
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimit': 2}", 0, 3, false},
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimit': 0}", 0, 1, false},
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimit': 6, 'suspend': true}", 0, 1, false},
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimit': 6, 'podFailurePolicy': {}}", 0, 1,
         false},
        {OWNER("Job", "batch/v1"), "",
         "'spec': {'backoffLimit': 6}, 'status': {'conditions': [{'type': 'FailureTarget',"
         " 'status': 'True'}]}",
         0, 1, false},
        {OWNER("Job", "batch/v1"), "", "'spec': {'backoffLimitPerIndex': 1}", 0, 1, false},
        {OWNER("Job",
               "batch/v1") ", 'annotations': {'batch.kubernetes.io/job-index-failure-count': '0'}",
         "", "'spec': {'backoffLimitPerIndex': 1}", 9, 9, true},
        {OWNER("Job",
               "batch/v1") ", 'annotations': {'batch.kubernetes.io/job-index-failure-count': '1'}",
         "", "'spec': {'backoffLimitPerIndex': 1}", 0, 1, false},
        /* gangs and queues */
        {OWNER("ReplicaSet", "apps/v1") ", 'labels': {'kueue.x-k8s.io/queue-name': 'q'}", "",
         REPLICAS, 0, 1, false},
        {OWNER("ReplicaSet", "apps/v1") ", 'annotations': {'scheduling.k8s.io/group-name': 'g'}",
         "", REPLICAS, 0, 1, false},
        {OWNER("ReplicaSet", "apps/v1"), "'schedulerName': 'volcano',", REPLICAS, 0, 1, false},
        {OWNER("ReplicaSet", "apps/v1"), "'schedulerName': 'default-scheduler',", REPLICAS, 0, 1,
         true},
        {OWNER("ReplicaSet", "apps/v1"), "'schedulingGates': [{'name': 'g'}],", REPLICAS, 0, 1,
         false},
        {OWNER("ReplicaSet", "apps/v1"), "'workloadRef': {'name': 'w'},", REPLICAS, 0, 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (may(cases[i].metadata, cases[i].more, cases[i].owner, cases[i].failed,
                cases[i].stuck) != cases[i].may)
            fail_msg("%zu: %s %s %s", i, cases[i].metadata, cases[i].more, cases[i].owner);
    }
}

static void test_never(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *owner =
        fixture_json("{'metadata': {'uid': 'owner'}, 'spec': {'replicas': 1}}");
    PP_CLEANUP_JSON json_t *deleted = fixture_json(
        "{'metadata': {'uid': 'owner', 'deletionTimestamp': 'x'}, 'spec': {'replicas': 1}}");
    PP_CLEANUP_JSON json_t *other =
        fixture_json("{'metadata': {'uid': 'anew'}, 'spec': {'replicas': 1}}");
    PP_CLEANUP_JSON json_t *pod =
        injected(OWNER("ReplicaSet", "apps/v1"), "", GUARANTEED,
                 INIT(WAITING("precisionprobe-hook", "ImagePullBackOff")));
    const pp_startup s = look(pod);
    assert_true(pp_startup_may_release(&s, owner, 0, 1));
    assert_false(pp_startup_may_release(&s, deleted, 0, 1));
    assert_false(pp_startup_may_release(&s, other, 0, 1));
    assert_false(pp_startup_may_release(&s, NULL, 0, 1));
    PP_CLEANUP_JSON json_t *touched =
        injected(OWNER("ReplicaSet", "apps/v1"), "", GUARANTEED,
                 INIT("{'name': 'own', 'state': {'terminated': {'exitCode': 0}}}, " WAITING(
                     "precisionprobe-environment-0", "RunContainerError")));
    pp_startup t = look(touched);
    assert_int_equal(t.cause, PP_STARTUP_CONTAINER);
    assert_false(pp_startup_may_release(&t, owner, 0, 1));
    t = s;
    t.untouched = false;
    assert_false(pp_startup_may_release(&t, owner, 0, 1));
    t = s;
    t.cause = PP_STARTUP_OWN_IMAGE;
    assert_false(pp_startup_may_release(&t, owner, 0, 1));
    t.cause = PP_STARTUP_NONE;
    assert_false(pp_startup_may_release(&t, owner, 0, 1));
    t = s;
    t.over = true;
    assert_false(pp_startup_may_release(&t, owner, 0, 1));
}

/* ---- what the session says ---- */

static const pp_condition *stalled(const pp_session_decision *did)
{
    return &did->conditions[PP_CONDITION_STALLED];
}

static void test_the_session_says_it(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = injected(
        "'uid': 'u'", "", GUARANTEED, INIT(WAITING("precisionprobe-hook", "ImagePullBackOff")));
    const pp_startup s = look(pod);
    pp_session_pod_trouble told;
    pp_startup_tell(&s, &told);
    pp_session *session = fixture_session("{'selector': {'matchLabels': {'a': 'b'}}}");
    pp_session_pod view = {.name = "p", .uid = "u", .session_uid = session->uid, .hooked = true};
    pp_session_observation obs = {
        .session = session, .now_ns = FIXTURE_CREATED, .pods = &view, .n_pods = 1};
    pp_session_decision did;
    assert_int_equal(pp_session_step(&obs, NULL, &did, NULL), 0);
    assert_int_equal(stalled(&did)->status, PP_CONDITION_FALSE);
    pp_session_decision_done(&did);
    view.trouble = &told;
    assert_int_equal(pp_session_step(&obs, NULL, &did, NULL), 0);
    assert_int_equal(stalled(&did)->status, PP_CONDITION_TRUE);
    assert_string_equal(stalled(&did)->reason, "ImageNotPulled");
    assert_non_null(
        strstr(stalled(&did)->message, "administrator has to act: p: the pod does not"));
    assert_string_equal(did.targets[0].reason, "ImageNotPulled");
    assert_true(did.urgent);
    bool of_pod = false, of_session = false;
    for (size_t i = 0; i < did.n_events; i++) {
        const bool is =
            did.events[i].warning && strcmp(did.events[i].reason, "ImageNotPulled") == 0;
        of_pod = of_pod || (is && strcmp(did.events[i].pod_uid, "u") == 0);
        of_session = of_session || (is && !did.events[i].pod_uid[0]);
    }
    assert_true(of_pod && of_session);
    pp_session_decision_done(&did);
    (void)pp_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causes),
        cmocka_unit_test(test_a_failed_pod),
        cmocka_unit_test(test_a_pod_without_the_hook),
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_the_session_says_it),
    };
    return cmocka_run_group_tests_name("startup", tests, NULL, NULL);
}
