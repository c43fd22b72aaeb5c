/* Injected pods that do not start: named in time, their successors left alone, and let go once. */
#include "operator/pods/stuck.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "controller/pods/startup.h"
#include "operator/tests/api_server.h"

#include <string.h>

#define SECOND INT64_C(1000000000)
#define OWNER "/apis/apps/v1/namespaces/ml/replicasets/web"
#define JOB "/apis/batch/v1/namespaces/ml/jobs/once"
#define WAITING "\"state\":{\"waiting\":{\"reason\":\"ImagePullBackOff\"}}"
#define FAILED "\"state\":{\"terminated\":{\"exitCode\":1}}"

/** What a pod is made of that matters here. */
typedef struct shape {
    const char *uid, *kind, *version, *owner, *phase, *state;
} shape;

static const shape stuck_one = {"p", "ReplicaSet", "apps/v1", "web", "Pending", WAITING};
static const shape of_job = {"j", "Job", "batch/v1", "once", "Pending", WAITING};
static const shape failed_one = {"f", "ReplicaSet", "apps/v1", "web", "Failed", FAILED};

static const shape without_room = {"p", "ReplicaSet", "apps/v1", "web", "Pending", NULL};
static const shape leaving_one = {"p", "ReplicaSet", "apps/v1", "web", "Leaving", NULL};

/* No node has room. */
static void unplace(json_t *object, bool leaving)
{
    static const char message[] = "0/1 nodes are available: 1 Insufficient cpu.";
    json_t *spec = json_object_get(object, "spec");
    json_t *agent = json_array_get(json_object_get(spec, "initContainers"), 1);
    (void)json_object_del(spec, "nodeName");
    (void)json_object_set_new(agent, "resources", json_pack("{s:{s:s}}", "requests", "cpu", "50m"));
    (void)json_object_set_new(object, "status",
                              json_pack("{s:s, s:[{s:s, s:s, s:s, s:s}]}", "phase", "Pending",
                                        "conditions", "type", "PodScheduled", "status", "False",
                                        "reason", "Unschedulable", "message", message));
    if (leaving)
        (void)json_object_set_new(json_object_get(object, "metadata"), "deletionTimestamp",
                                  json_string("2026-01-01T00:00:00Z"));
}

static json_t *object_of(const shape *s)
{
    char now[40], text[2048];
    pp_time_format(pp_time_now(), 0, now, sizeof now);
    (void)snprintf(
        text, sizeof text,
        "{\"metadata\":{\"namespace\":\"ml\",\"name\":\"pod-%s\",\"uid\":\"%s\","
        "\"resourceVersion\":\"7\",\"creationTimestamp\":\"%s\",\"annotations\":{"
        "\"precisionprobe.io/settings\":\"{}\",\"precisionprobe.io/containers\":\"c\"},"
        "\"ownerReferences\":[{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"name\":\"%s\","
        "\"uid\":\"uid-%s\",\"controller\":true}]},\"spec\":{\"nodeName\":\"n\",\"volumes\":[{"
        "\"name\":\"precisionprobe-ring\"}],\"initContainers\":[{\"name\":\"precisionprobe-hook\"},"
        "{\"name\":\"precisionprobe-agent\"}],\"containers\":[{\"name\":\"c\"}]},\"status\":{"
        "\"phase\":\"%s\",\"initContainerStatuses\":[{\"name\":\"precisionprobe-hook\",%s}]}}",
        s->uid, s->uid, now, s->version, s->kind, s->owner, s->owner, s->phase,
        s->state ? s->state : WAITING);
    json_t *object = pp_json_parse(text, strlen(text), NULL);
    assert_non_null(object);
    if (!s->state)
        unplace(object, strcmp(s->phase, "Leaving") == 0);
    return object;
}

/* As the watch brings it. */
static pp_pod *bring(api_server *api, const shape *s)
{
    PP_CLEANUP_JSON json_t *object = object_of(s);
    pp_pod *pod = pp_pod_decode(object, NULL);
    pp_inject_pod_view view;
    assert_non_null(pod);
    pp_pod_for_inject(pod, &view);
    assert_int_equal(pp_match_put_pod(api->op.matches, pod->uid, &view, pod, NULL), 0);
    pp_stuck_pod_seen(&api->op, pod);
    return pod;
}

static void take_away(api_server *api, pp_pod *pod)
{
    pp_stuck_pod_gone(&api->op, pod);
    pp_match_drop_pod(api->op.matches, pod->uid);
    pp_pod_free(pod);
}

static bool is_left_alone(api_server *api, const shape *s)
{
    PP_CLEANUP_JSON json_t *successor = object_of(s);
    const pp_inject_refusal *why = pp_stuck_unprobed(&api->op, "ml", successor);
    assert_null(pp_stuck_unprobed(&api->op, "other", successor)); /* whose word counts here alone */
    assert_true(!why || strcmp(why->reason, "OthersDidNotStart") == 0);
    return why;
}

static bool is_named(void *user)
{
    return pp_stuck_trouble(&((api_server *)user)->op, stuck_one.uid);
}

static bool is_released(void *user)
{
    return api_server_find(user, "DELETE ") && api_server_find(user, "POST ");
}

static void test_named_and_let_go(void **state)
{
    api_server *api = *state;
    api->config.injection.release = true;
    api->objects[0].path = OWNER;
    api->objects[0].text = "{\"metadata\":{\"uid\":\"uid-web\"},\"spec\":{\"replicas\":1}}";
    api->objects[1].path = JOB; /* none of its retries is left */
    api->objects[1].text = "{\"metadata\":{\"uid\":\"uid-once\"},\"spec\":{\"backoffLimit\":0}}";
    const int64_t from = pp_time_monotonic();
    pp_pod *pod = bring(api, &stuck_one), *kept = bring(api, &of_job);
    assert_false(is_named(api) || is_left_alone(api, &stuck_one)); /* it may pass */
    assert_true(api_server_run(api, is_named, api));
    assert_true(pp_time_monotonic() - from >= PP_STARTUP_NAMED_NS);
    assert_string_equal(pp_stuck_trouble(&api->op, "p")->reason, "ImageNotPulled");
    assert_true(is_left_alone(api, &stuck_one));
    assert_int_equal(api->count, 0); /* every replica is to know first */
    assert_true(api_server_run(api, is_released, api));
    assert_true(pp_time_monotonic() - from >= PP_STARTUP_RELEASE_NS);
    const api_request *deletion = api_server_find(api, "DELETE ");
    assert_non_null(strstr(deletion->line, "/api/v1/namespaces/ml/pods/pod-p"));
    assert_non_null(strstr(deletion->body, "\"uid\":\"p\""));
    assert_non_null(strstr(deletion->body, "\"resourceVersion\":\"7\""));
    assert_non_null(strstr(api_server_find(api, "POST ")->body, "\"Released\""));
    api_server_run_for(api, 3 * SECOND);
    assert_int_equal(api_server_times(api, "DELETE "), 1);
    assert_int_equal(api_server_times(api, "GET " JOB), 1); /* asked, and let be */
    take_away(api, pod);
    take_away(api, kept);
    assert_null(pp_stuck_trouble(&api->op, "p"));
}

/* It has ended: its successor is about to be made. And nobody is deleted where that is not wanted.
 */
static void test_a_failed_pod_is_named_at_once(void **state)
{
    api_server *api = *state;
    pp_pod *pod = bring(api, &failed_one);
    assert_string_equal(pp_stuck_trouble(&api->op, "f")->reason, "AddedContainerFails");
    assert_true(is_left_alone(api, &failed_one));
    assert_false(is_left_alone(api, &of_job));
    api_server_run_for(api, 2 * SECOND);
    assert_int_equal(api->count, 0);
    take_away(api, pod);
}

/* A cause that passes is not named, and one that follows begins its time anew. */
static void test_what_passes_is_forgotten(void **state)
{
    api_server *api = *state;
    const shape started = {"p", "ReplicaSet", "apps/v1", "web", "Running", "\"ready\":true"};
    pp_pod *before = bring(api, &stuck_one);
    api_server_run_for(api, 2 * SECOND);
    pp_pod *pod = bring(api, &started);
    pp_pod_free(before);
    api_server_run_for(api, PP_STARTUP_NAMED_NS);
    assert_false(is_named(api) || is_left_alone(api, &stuck_one));
    take_away(api, pod);
}

/* A pod that finds no room beside the agent: a node may be on its way, so pods that follow are left
 * alone only once somebody has deleted it, whatever holds its end up. */
static void test_room_may_come(void **state)
{
    api_server *api = *state;
    pp_pod *pod = bring(api, &without_room);
    assert_true(api_server_run(api, is_named, api));
    assert_string_equal(pp_stuck_trouble(&api->op, "p")->reason, "NoRoomForAgent");
    assert_false(is_left_alone(api, &without_room));
    pp_pod *placed = bring(api, &stuck_one);
    pp_pod_free(pod);
    assert_false(is_left_alone(api, &without_room));
    take_away(api, placed);
    assert_false(is_left_alone(api, &without_room));

    pod = bring(api, &without_room);
    assert_true(api_server_run(api, is_named, api));
    pp_pod *leaving = bring(api, &leaving_one);
    pp_pod_free(pod);
    assert_true(is_left_alone(api, &without_room));
    take_away(api, leaving);
}

/* Where such pods are let go, their successors are to be left alone before. */
static void test_room_with_release(void **state)
{
    api_server *api = *state;
    api->config.injection.release = true;
    pp_pod *pod = bring(api, &without_room);
    assert_true(api_server_run(api, is_named, api));
    assert_true(is_left_alone(api, &without_room));
    take_away(api, pod);
}

#define ON_SERVER(test) cmocka_unit_test_setup_teardown(test, api_server_setup, api_server_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(test_named_and_let_go),
        ON_SERVER(test_a_failed_pod_is_named_at_once),
        ON_SERVER(test_room_may_come),
        ON_SERVER(test_room_with_release),
        ON_SERVER(test_what_passes_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
