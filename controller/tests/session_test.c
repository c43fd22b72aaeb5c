#include "controller/tests/fixtures.h"

#include <math.h>
#include <string.h>

#define SPEC "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '100s', 'deadline': '10m'}"
#define REPLAY                                                                                     \
    "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '100s', 'deadline': '10m', "       \
    "'method': 'Replay', 'replay': {'duration': '2500ms', 'maxPause': '1m'}}"
#define T(seconds) (FIXTURE_CREATED + (int64_t)(seconds)*FIXTURE_SECOND)

/* ---- decoding and validation ---- */

static void test_defaults(void **state)
{
    (void)state;
    pp_session *s = fixture_session("{'selector': {'matchLabels': {'app': 'dlrm'}}}");
    assert_int_equal(s->invalid.code, PP_OK);
    assert_string_equal(s->namespace_, "ml");
    assert_string_equal(s->name, "dlrm");
    assert_string_equal(s->uid, FIXTURE_UID);
    assert_int_equal(s->generation, 3);
    assert_true(s->created_ns == FIXTURE_CREATED);
    assert_true(s->duration_ns == 120 * FIXTURE_SECOND);
    assert_true(s->deadline_ns == 24 * 3600 * FIXTURE_SECOND);
    assert_int_equal(s->phases, 7);
    assert_int_equal(s->metrics, PP_METRIC_ALL);
    assert_true(s->overhead_budget_percent == 1 && s->tolerance_percent == 5);
    assert_true(s->ttl_ns == -1 && !s->suspend);
    assert_int_equal(s->method, PP_METHOD_AUTO);
    assert_false(s->has_status);
    assert_true(pp_session_live(s) && pp_session_takes_batches(s));
    (void)pp_session_free(s);
}

static void test_every_field(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *cases = fixture_file("crds/tests/specs.json");
    json_t *spec = json_object_get(json_object_get(cases, "accepted"), "everything");
    PP_CLEANUP_JSON json_t *object = fixture_object(json_incref(spec), NULL);
    pp_session *s = NULL;
    assert_int_equal(pp_session_decode(object, &s, NULL), 0);
    assert_int_equal(s->invalid.code, PP_OK);
    assert_int_equal(s->selector.n_labels, 2);
    assert_int_equal(s->containers.count, 1);
    assert_true(s->duration_ns == 150 * FIXTURE_SECOND && s->deadline_ns == 5400 * FIXTURE_SECOND);
    assert_true(s->steps_skip == 3 && s->steps_max == 1000 && s->depth == 2);
    assert_string_equal(s->include.items[0], "top.*");
    assert_string_equal(s->exclude.items[0], "*.dropout");
    assert_string_equal(s->types.items[0], "Linear");
    assert_int_equal(s->phases, PP_SESSION_FORWARD | PP_SESSION_BACKWARD);
    assert_int_equal(s->metrics, 1U << PP_METRIC_SM_ACTIVE | 1U << PP_METRIC_GPU_MEM);
    assert_true(s->overhead_budget_percent == 0.5 && s->tolerance_percent == 2.5);
    assert_true(s->suspend && s->ttl_ns == 0);
    (void)pp_session_free(s);
}

static void test_replay_limits(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t dwell_ms, pause_s;
    } cases[] = {
        {REPLAY, 2500, 60},
        {"{'selector': {'matchLabels': {'a': 'b'}}, 'method': 'Replay'}", 0, 300},
        {"{'selector': {'matchLabels': {'a': 'b'}}, 'method': 'Replay', 'replay': null}", 0, 300},
        {"{'selector': {'matchLabels': {'a': 'b'}}, 'method': 'Replay', "
         "'replay': {'maxPause': '90s'}}",
         0, 90},
        {"{'selector': {'matchLabels': {'a': 'b'}}, 'method': 'Isolated', "
         "'isolation': {'dwell': '3s', 'maxPause': '80s'}}",
         3000, 80},
        {"{'selector': {'matchLabels': {'a': 'b'}}, 'method': 'Isolated', "
         "'replay': {'duration': '4s'}, 'isolation': null}",
         4000, 300},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pp_session *s = fixture_session(cases[i].spec);
        assert_int_equal(s->invalid.code, PP_OK);
        assert_true(pp_session_asks_replays(s) && !pp_session_asks_sampling(s, true));
        assert_true(s->dwell_ns == cases[i].dwell_ms * 1000000);
        assert_true(s->max_pause_ns == cases[i].pause_s * FIXTURE_SECOND);
        (void)pp_session_free(s);
    }
}

/* The training is paused for no dwell that cannot give a value. */
static void test_dwells_hold_windows(void **state)
{
    (void)state;
    static const struct {
        const char *replay;
        int64_t usual, least, sure; /* s */
        const char *field;          /* "": it is taken */
    } cases[] = {
        {"{}", 10, 0, 0, ""},
        {"{}", 10, 4, 10, ""},
        {"{}", 165, 45, 82, "spec.replay.duration"},
        {"{'duration': '45s'}", 165, 45, 82, ""},
        {"{'duration': '44s'}", 165, 45, 82, "spec.replay.duration"},
        {"{'duration': '1m'}", 300, 90, 165, "spec.replay.duration"},
        {"{'maxPause': '9s'}", 10, 4, 10, "spec.replay.maxPause"},
        {"{'maxPause': '10s'}", 10, 4, 10, ""},
        {"{'duration': '9s', 'maxPause': '9s'}", 10, 4, 10, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char spec[256];
        (void)snprintf(spec, sizeof spec,
                       "{'selector': {'matchLabels': {'a': 'b'}}, 'method': "
                       "'Replay', 'replay': %s}",
                       cases[i].replay);
        pp_session *s = fixture_session(spec);
        pp_session_allow(s, &(pp_session_limits){.replay = true,
                                                 .dwell_ns = cases[i].usual * FIXTURE_SECOND,
                                                 .dwell_least_ns = cases[i].least * FIXTURE_SECOND,
                                                 .dwell_sure_ns = cases[i].sure * FIXTURE_SECOND});
        assert_string_equal(s->invalid.field, cases[i].field);
        assert_int_equal(pp_session_live(s), !*cases[i].field);
        (void)pp_session_free(s);
    }
}

/* What the operator's configuration does not allow is no valid spec, and says what to do. */
static void test_replay_has_to_be_allowed(void **state)
{
    (void)state;
    for (int isolated = 0; isolated < 2; isolated++) {
        for (int allowed = 0; allowed < 2; allowed++) {
            pp_session *s = fixture_session(isolated ? REPLAY : SPEC);
            pp_session_allow(s, &(pp_session_limits){.replay = allowed});
            assert_int_equal(pp_session_live(s), !isolated || allowed);
            assert_int_equal(pp_session_takes_batches(s), !isolated || allowed);
            (void)pp_session_free(s);
        }
    }
    PP_CLEANUP_JSON json_t *sampled =
        fixture_object(fixture_json(REPLAY), fixture_json("{'phase': 'Finishing'}"));
    pp_session *s = NULL;
    assert_int_equal(pp_session_decode(sampled, &s, NULL), 0);
    pp_session_allow(s, &(pp_session_limits){0}); /* its training is not held any more */
    assert_true(pp_session_takes_batches(s));
    (void)pp_session_free(s);
    s = fixture_session("{'selector': {}, 'method': 'Replay'}");
    pp_session_allow(s, &(pp_session_limits){0});
    assert_string_equal(s->invalid.field, "spec.selector"); /* its own rules come first */
    (void)pp_session_free(s);
    s = fixture_session(REPLAY);
    pp_session_allow(s, &(pp_session_limits){0});
    pp_session_observation obs = {.session = s, .now_ns = T(1)};
    pp_session_decision d;
    assert_int_equal(pp_session_step(&obs, NULL, &d, NULL), 0);
    assert_int_equal(d.phase, PP_SESSION_FAILED);
    assert_false(d.sampling);
    const pp_condition *c = &d.conditions[PP_CONDITION_ACCEPTED];
    assert_int_equal(c->status, PP_CONDITION_FALSE);
    assert_string_equal(c->reason, "NotAllowed");
    assert_non_null(strstr(c->message, "spec.method Replay pauses the training"));
    assert_non_null(strstr(c->message, "set replay.allow"));
    assert_string_equal(d.conditions[PP_CONDITION_SUCCEEDED].reason, "NotAllowed");
    assert_string_equal(d.conditions[PP_CONDITION_INJECTED].reason, "NotAccepted");
    assert_true(d.n_events == 1 && strcmp(d.events[0].reason, "NotAllowed") == 0);
    pp_session_decision_done(&d);
    (void)pp_session_free(s);
}

/* The same table is held against the CRD on a real API server (e2e/scenarios/test_specs.py). */
static void test_shared_specs(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *cases = fixture_file("crds/tests/specs.json");
    const char *name;
    json_t *spec;
    json_object_foreach(json_object_get(cases, "accepted"), name, spec)
    {
        PP_CLEANUP_JSON json_t *object = fixture_object(json_incref(spec), NULL);
        pp_session *s = NULL;
        assert_int_equal(pp_session_decode(object, &s, NULL), 0);
        if (s->invalid.code != PP_OK)
            fail_msg("%s: %s %s", name, s->invalid.field, s->invalid.message);
        (void)pp_session_free(s);
    }
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(cases, "refused"), i, item)
    {
        PP_CLEANUP_JSON json_t *object =
            fixture_object(json_incref(json_object_get(item, "spec")), NULL);
        pp_session *s = NULL;
        assert_int_equal(pp_session_decode(object, &s, NULL), 0);
        const char *field = pp_json_get_string(item, "field", NULL);
        if (s->invalid.code == PP_OK || strcmp(s->invalid.field, field) != 0)
            fail_msg("%s: got \"%s\"", pp_json_get_string(item, "name", NULL), s->invalid.field);
        assert_false(pp_session_live(s));
        (void)pp_session_free(s);
    }
    assert_true(i > 20);
}

static void test_metadata_is_needed(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = fixture_json("{'metadata': {'name': 'x'}, 'spec': {}}");
    pp_session *s = NULL;
    pp_error err = {0};
    assert_int_equal(pp_session_decode(object, &s, &err), -1);
    assert_string_equal(err.field, "metadata.namespace");
    assert_null(s);
    PP_CLEANUP_JSON json_t *text = json_string("x");
    assert_int_equal(pp_session_decode(text, &s, &err), -1);
    assert_int_equal(pp_session_decode(NULL, &s, &err), -1);
}

/* ---- selector and containers ---- */

static void test_selector(void **state)
{
    (void)state;
    static const struct {
        const char *selector, *labels;
        bool matches;
    } cases[] = {
        {"{'matchLabels': {'a': '1'}}", "{'a': '1', 'b': '2'}", true},
        {"{'matchLabels': {'a': '1'}}", "{'a': '2'}", false},
        {"{'matchLabels': {'a': ''}}", "{'a': ''}", true},
        {"{'matchLabels': {'a': ''}}", "{}", false},
        {"{'matchLabels': {'a': '1', 'b': '2'}}", "{'a': '1'}", false},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['1', '2']}]}",
         "{'a': '2'}", true},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['1']}]}", "{}", false},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'NotIn', 'values': ['1']}]}", "{}", true},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'NotIn', 'values': ['1']}]}", "{'a': '1'}",
         false},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'Exists'}]}", "{'a': ''}", true},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'Exists'}]}", "{'b': ''}", false},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}", "{'b': ''}", true},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}", "{'a': ''}", false},
        {"{'matchLabels': {'a': '1'}, 'matchExpressions': [{'key': 'b', 'operator': 'Exists'}]}",
         "{'a': '1'}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[256];
        (void)snprintf(spec, sizeof spec, "{'selector': %s}", cases[i].selector);
        pp_session *s = fixture_session(spec);
        PP_CLEANUP_JSON json_t *labels = fixture_json(cases[i].labels);
        if (pp_selector_matches(&s->selector, labels) != cases[i].matches)
            fail_msg("%s on %s", cases[i].selector, cases[i].labels);
        (void)pp_session_free(s);
    }
    pp_session *empty = fixture_session("{'selector': {}}");
    PP_CLEANUP_JSON json_t *labels = json_object();
    assert_false(pp_selector_matches(&empty->selector, labels));
    assert_false(pp_selector_matches(&empty->selector, NULL));
    (void)pp_session_free(empty);
}

static void test_containers(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *pod;
        int n;
        size_t first;
    } cases[] = {
        {"", "[{'name': 'a'}, {'name': 'b'}]", 1, 0},
        {"", "[{'name': 'a'}, {'name': 'b', 'resources': {'limits': {'nvidia.com/gpu': '2'}}}]", 1,
         1},
        {"", "[{'name': 'a'}, {'name': 'b', 'resources': {'requests': {'amd.com/gpu': 1}}}]", 1, 1},
        {"", "[{'name': 'a', 'resources': {'limits': {'nvidia.com/gpu': '0'}}}, {'name': 'b'}]", 1,
         0},
        {", 'containers': ['b']", "[{'name': 'a'}, {'name': 'b'}]", 1, 1},
        {", 'containers': ['b', 'a', 'b']", "[{'name': 'a'}, {'name': 'b'}]", 2, 1},
        {", 'containers': ['c']", "[{'name': 'a'}]", -1, 0},
        {"", "[]", -1, 0},
        {"", "'none'", -1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[256], text[256];
        (void)snprintf(spec, sizeof spec, "{'selector': {'matchLabels': {'a': 'b'}}%s}",
                       cases[i].spec);
        (void)snprintf(text, sizeof text, "{'spec': {'containers': %s}}", cases[i].pod);
        pp_session *s = fixture_session(spec);
        PP_CLEANUP_JSON json_t *pod = fixture_json(text);
        size_t found[4] = {9, 9, 9, 9};
        assert_int_equal(pp_session_containers(s, pod, &fixture_gpus, found, 4, NULL), cases[i].n);
        if (cases[i].n > 0)
            assert_int_equal(found[0], cases[i].first);
        (void)pp_session_free(s);
    }
    pp_session *s = fixture_session(SPEC);
    PP_CLEANUP_JSON json_t *pod = fixture_json(
        "{'spec': {'containers': [{'name': 'a', 'resources': {'limits': {'nvidia.com/gpu': '1'}}},"
        " {'name': 'b', 'resources': {'limits': {'nvidia.com/mig-1g.5gb': '1'}}}]}}");
    char *names[] = {(char *)(uintptr_t) "nvidia.com/mig-1g.5gb"};
    pp_strings configured = {names, 1};
    size_t found[4];
    assert_int_equal(pp_session_containers(s, pod, &configured, found, 4, NULL), 1);
    assert_int_equal(found[0], 1);
    (void)pp_session_free(s);
}

static void test_pod_from_json(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = fixture_json(
        "{'metadata': {'name': 'p', 'uid': 'u', 'creationTimestamp': '2026-01-21T12:53:21Z',"
        " 'annotations': {'precisionprobe.io/session-uid': 's'}}, 'spec': {'nodeName': 'n'},"
        " 'status': {'phase': 'Failed', 'containerStatuses': ["
        "  {'state': {'terminated': {'finishedAt': '2026-01-21T12:53:30Z'}}},"
        "  {'state': {'terminated': {'finishedAt': '2026-01-21T12:53:25Z'}}}]}}");
    pp_session_pod seen;
    assert_int_equal(pp_session_pod_from_json(pod, &seen), 0);
    assert_string_equal(seen.session_uid, "s");
    assert_string_equal(seen.node, "n");
    assert_true(seen.created_ns == T(1) && seen.finished_ns == T(10));
    assert_true(seen.finished && seen.failed && !seen.running);
    assert_true(seen.rank == -1 && seen.epoch == -1 && seen.batch == -1);
    PP_CLEANUP_JSON json_t *none = fixture_json("{'metadata': {'name': 'p'}}");
    assert_int_equal(pp_session_pod_from_json(none, &seen), -1);
}

/* ---- the state machine: a session object that the decisions are written back to ---- */

typedef struct world {
    json_t *object;
    pp_session *session;
    pp_session_pod pods[4];
    pp_session_observation obs;
    pp_session_decision did;
} world;

static const char *const one_gpu[] = {"GPU-1"};
static const char *const mig_instance[] = {"MIG-1"};

static void read_back(world *w)
{
    w->session = pp_session_free(w->session);
    pp_error err = {0};
    if (pp_session_decode(w->object, &w->session, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    w->obs.session = w->session;
}

static void world_init(world *w, const char *spec)
{
    *w = (world){.object = fixture_object(fixture_json(spec), NULL)};
    w->obs.pods = w->pods;
    w->obs.now_ns = T(1);
    read_back(w);
}

static void world_done(world *w)
{
    pp_session_decision_done(&w->did);
    (void)pp_session_free(w->session);
    json_decref(w->object);
}

static void apply_merge(json_t *to, json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach(patch, key, value)
    {
        json_t *there = json_object_get(to, key);
        if (json_is_null(value)) {
            (void)json_object_del(to, key);
        } else if (json_is_object(value)) {
            if (!json_is_object(there)) {
                (void)json_object_set_new(to, key, json_object());
                there = json_object_get(to, key);
            }
            apply_merge(there, value);
        } else {
            (void)json_object_set(to, key, value);
        }
    }
}

/* One turn at this second: decides, writes the status as the API server would, reads it back. */
static pp_session_phase step(world *w, double second)
{
    pp_session_decision_done(&w->did);
    w->obs.now_ns = FIXTURE_CREATED + (int64_t)(second * 1e9);
    assert_int_equal(pp_session_step(&w->obs, NULL, &w->did, NULL), 0);
    PP_CLEANUP_JSON json_t *patch =
        pp_session_status_json(&w->did, json_object_get(w->object, "status"));
    assert_non_null(patch);
    apply_merge(w->object, patch);
    PP_CLEANUP_JSON json_t *again =
        pp_session_status_json(&w->did, json_object_get(w->object, "status"));
    assert_int_equal(json_object_size(again), 0); /* written once is written */
    memcpy(w->obs.trouble_since_ns, w->did.trouble_since_ns, sizeof w->did.trouble_since_ns);
    read_back(w);
    return w->did.phase;
}

static const pp_condition *condition(const world *w, pp_condition_type type, const char *reason)
{
    const pp_condition *c = &w->did.conditions[type];
    if (strcmp(c->reason, reason) != 0)
        fail_msg("condition %d has reason %s, not %s: %s", type, c->reason, reason, c->message);
    return c;
}

static bool has_condition(const world *w, const char *type)
{
    const json_t *list = pp_json_get(w->object, "status", "conditions", NULL);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(pp_json_get_string(json_array_get(list, i), "type", NULL), type) == 0)
            return true;
    return false;
}

static bool told(const world *w, const char *reason, const char *pod)
{
    for (size_t i = 0; i < w->did.n_events; i++) {
        if (strcmp(w->did.events[i].reason, reason) == 0 &&
            strcmp(w->did.events[i].pod_name, pod) == 0)
            return true;
    }
    return false;
}

static void add_pod(world *w, const char *name, const char *session_uid, int64_t created_ns)
{
    w->pods[w->obs.n_pods++] = (pp_session_pod){.name = name,
                                                .uid = name,
                                                .node = "node-1",
                                                .session_uid = session_uid,
                                                .created_ns = created_ns,
                                                .running = true,
                                                .rank = 0,
                                                .epoch = -1,
                                                .batch = -1};
}

/* The pod reports its first steps, from this second on. */
static void report(world *w, size_t pod, double first, double last)
{
    pp_session_pod *p = &w->pods[pod];
    p->connected = true;
    p->gpus = one_gpu;
    p->n_gpus = 1;
    p->last_batch_ns = FIXTURE_CREATED + (int64_t)(last * 1e9);
    p->events += 100;
    p->steps += 10;
    p->epoch = 1;
    p->batch = 7;
    pp_session_stats *st = &w->obs.stats;
    st->first_step_ns =
        st->first_step_ns ? st->first_step_ns : FIXTURE_CREATED + (int64_t)(first * 1e9);
    st->last_step_ns = st->last_batch_ns = p->last_batch_ns;
    st->events += 100;
    st->steps += 10;
    st->counted_steps += 30;
    st->samples_stored = 300;
    st->samples_deduplicated = 100;
    st->samples_error = 0.00456;
    st->samples_spread = 0.123456;
    st->layers = 21;
}

static void samples_seen(world *w)
{
    w->obs.prometheus_asked = true;
    w->obs.stats.metrics_seen = PP_METRIC_ALL;
    w->obs.stats.samples_joined = 400;
}

static void final_solution(world *w)
{
    w->obs.stats.final_written = true;
    w->obs.stats.final_layers = 17;
    w->obs.stats.final_phases = 2;
    w->obs.stats.final_pods = 1;
    w->obs.stats.final_job_means = 6;
    w->obs.stats.final_own = 200;
    w->obs.stats.final_groups = 12;
}

static void main_path_waits_for_a_pod(world *w)
{
    assert_int_equal(step(w, 1), PP_SESSION_PENDING);
    assert_true(w->did.sampling && !w->did.collect && w->did.urgent);
    assert_true(w->did.requeue_ns == 45 * FIXTURE_SECOND); /* then a pod should have come */
    assert_int_equal(condition(w, PP_CONDITION_INJECTED, "NoMatchingPods")->status,
                     PP_CONDITION_FALSE);
    condition(w, PP_CONDITION_COLLECTING, "WaitingForPods");
    assert_int_equal(condition(w, PP_CONDITION_SUCCEEDED, "Pending")->status, PP_CONDITION_UNKNOWN);
    assert_int_equal(w->did.n_events, 0);
}

static void main_path_waits_for_steps(world *w)
{
    add_pod(w, "dlrm-0", FIXTURE_UID, T(2));
    assert_int_equal(step(w, 3), PP_SESSION_PENDING);
    assert_int_equal(condition(w, PP_CONDITION_INJECTED, "PodsInjected")->status,
                     PP_CONDITION_TRUE);
    condition(w, PP_CONDITION_COLLECTING, "WaitingForAgents");
    w->pods[0].connected = true;
    assert_int_equal(step(w, 4), PP_SESSION_PENDING);
    condition(w, PP_CONDITION_COLLECTING, "WaitingForSteps");
    assert_int_equal(step(w, 5), PP_SESSION_PENDING);
    assert_false(w->did.urgent);
}

static void main_path_collects(world *w)
{
    report(w, 0, 10, 20);
    assert_int_equal(step(w, 21), PP_SESSION_COLLECTING);
    assert_true(told(w, "CollectingStarted", ""));
    assert_true(w->did.collect && w->did.sampling);
    condition(w, PP_CONDITION_METRICS_AVAILABLE, "NotAsked");
    int64_t since = condition(w, PP_CONDITION_COLLECTING, "Sampling")->transition_ns;
    assert_true(since == T(21));
    samples_seen(w);
    assert_int_equal(step(w, 60), PP_SESSION_COLLECTING);
    assert_true(condition(w, PP_CONDITION_COLLECTING, "Sampling")->transition_ns == T(21));
    assert_int_equal(w->did.n_events, 0);
    assert_true(w->did.sampled_ns == 50 * FIXTURE_SECOND);
    const json_t *status = json_object_get(w->object, "status");
    assert_string_equal(pp_json_get_string(status, "progress", "sampled", NULL), "50s/1m40s");
    assert_string_equal(pp_json_get_string(status, "pods", NULL), "1/1");
    assert_true(w->did.requeue_ns == 5 * FIXTURE_SECOND);
}

static void main_path_reaches_its_duration(world *w)
{
    assert_int_equal(step(w, 109.9), PP_SESSION_COLLECTING);
    assert_true(w->did.requeue_ns <= FIXTURE_SECOND / 10);
    w->pods[0].open_capture = true;
    assert_int_equal(step(w, 110), PP_SESSION_FINISHING);
    assert_true(told(w, "DurationReached", ""));
    assert_false(w->did.sampling);
    assert_false(pp_session_live(w->session));
    assert_true(pp_session_takes_batches(w->session));
}

static void main_path_succeeds(world *w)
{
    w->obs.stats.samples_complete = true;
    assert_int_equal(step(w, 115), PP_SESSION_FINISHING); /* the open capture is awaited */
    assert_false(w->did.finalise);
    w->pods[0].open_capture = false;
    assert_int_equal(step(w, 116), PP_SESSION_FINISHING);
    assert_true(w->did.finalise);
    final_solution(w);
    assert_int_equal(step(w, 117), PP_SESSION_SUCCEEDED);
    assert_int_equal(condition(w, PP_CONDITION_SUCCEEDED, "Completed")->status, PP_CONDITION_TRUE);
    assert_string_equal(w->did.conditions[PP_CONDITION_SUCCEEDED].message,
                        "17 layers timed in 2 phases on 1 pod; 200 metric values of their own, "
                        "12 of groups of layers");
    assert_int_equal(condition(w, PP_CONDITION_READY, "Completed")->status, PP_CONDITION_TRUE);
    assert_int_equal(condition(w, PP_CONDITION_STALLED, "Completed")->status, PP_CONDITION_FALSE);
    condition(w, PP_CONDITION_COLLECTING, "DurationReached");
    assert_true(told(w, "Completed", ""));
    assert_true(w->session->completion_ns == T(117));
}

static void main_path_stays_ended(world *w)
{
    PP_CLEANUP_JSON json_t *before = json_deep_copy(w->object);
    w->obs.n_pods = 0;
    w->obs.stats = (pp_session_stats){0};
    assert_int_equal(step(w, 5000), PP_SESSION_SUCCEEDED); /* final is final */
    assert_true(json_equal(before, w->object));
    assert_true(w->did.n_events == 0 && w->did.requeue_ns == 0);
}

static void test_main_path(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    main_path_waits_for_a_pod(&w);
    main_path_waits_for_steps(&w);
    main_path_collects(&w);
    main_path_reaches_its_duration(&w);
    main_path_succeeds(&w);
    main_path_stays_ended(&w);
    world_done(&w);
}

static void test_restart_loses_nothing(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    assert_int_equal(step(&w, 21), PP_SESSION_COLLECTING);
    /* Another process, the store away, no agent connected yet. */
    w.pods[0].connected = false;
    w.pods[0].last_batch_ns = 0;
    w.obs.stats = (pp_session_stats){0};
    w.obs.store_error = "connection refused";
    w.obs.serving_since_ns = T(40);
    assert_int_equal(step(&w, 41), PP_SESSION_COLLECTING);
    assert_int_equal(condition(&w, PP_CONDITION_STORED, "StoreUnavailable")->status,
                     PP_CONDITION_FALSE);
    assert_true(told(&w, "StoreUnavailable", ""));
    assert_true(w.session->start_ns == T(10) && w.session->ends_at_ns == T(110));
    assert_int_equal(step(&w, 42), PP_SESSION_COLLECTING);
    assert_false(told(&w, "StoreUnavailable", ""));
    world_done(&w);
}

/* Sampling ended while no operator ran: agents get time to connect before it is over. */
static void test_late_restart_drains(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    samples_seen(&w);
    (void)step(&w, 21);
    assert_int_equal(step(&w, 111), PP_SESSION_FINISHING);
    w.obs.serving_since_ns = T(400);
    w.pods[0].open_capture = true;
    w.obs.stats.samples_complete = true;
    (void)step(&w, 401);
    assert_false(w.did.finalise);
    (void)step(&w, 461);
    assert_true(w.did.finalise); /* but not for ever */
    world_done(&w);
}

static void test_no_pod(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    (void)step(&w, 1);
    assert_int_equal(step(&w, 599), PP_SESSION_PENDING);
    assert_int_equal(step(&w, 600), PP_SESSION_FAILED);
    assert_int_equal(condition(&w, PP_CONDITION_SUCCEEDED, "NoMatchingPods")->status,
                     PP_CONDITION_FALSE);
    assert_int_equal(condition(&w, PP_CONDITION_STALLED, "NoMatchingPods")->status,
                     PP_CONDITION_TRUE);
    condition(&w, PP_CONDITION_INJECTED, "NoMatchingPods");
    assert_true(told(&w, "NoMatchingPods", ""));
    assert_true(w.did.events[0].warning);
    world_done(&w);
}

/* Somebody has to act: the message begins with who. */
static void assert_stalled(const world *w, const char *reason, const char *who)
{
    const pp_condition *c = condition(w, PP_CONDITION_STALLED, reason);
    assert_int_equal(c->status, PP_CONDITION_TRUE);
    if (strncmp(c->message, who, strlen(who)) != 0 || !strstr(c->message, " has to act: "))
        fail_msg("not %s: %s", who, c->message);
}

static void assert_not_stalled(const world *w)
{
    const pp_condition *c = &w->did.conditions[PP_CONDITION_STALLED];
    if (c->status != PP_CONDITION_FALSE)
        fail_msg("stalled: %s: %s", c->reason, c->message);
}

static void test_not_injected(void **state)
{
    (void)state;
    static const struct {
        const char *session_uid, *refusal_reason, *refusal, *reason;
        int created;
        const char *who;
    } cases[] = {
        {NULL, NULL, NULL, "CreatedBefore", -5, "Whoever runs the pods"},
        {NULL, NULL, NULL, "CreatedBefore", 0, "Whoever runs the pods"},
        {NULL, NULL, NULL, "WebhookMissed", 5, "The operator's administrator"},
        {"another", NULL, NULL, "OtherSession", 5, ""},
        {NULL, "ContainerNotFound", "name another", "ContainerNotFound", 5,
         "Whoever created the session"},
        {NULL, NULL, NULL, "OtherContainers", -5, "Whoever created the session"},
        {"another", NULL, NULL, "OtherSession", -5, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", cases[i].session_uid, T(cases[i].created));
        w.pods[0].hooked = i >= 5;
        w.pods[0].refusal_reason = cases[i].refusal_reason;
        w.pods[0].refusal = cases[i].refusal;
        assert_int_equal(step(&w, 6), PP_SESSION_PENDING);
        const pp_condition *c = condition(&w, PP_CONDITION_INJECTED, cases[i].reason);
        assert_int_equal(c->status, PP_CONDITION_FALSE);
        assert_non_null(
            strstr(c->message, "1 of 1 pods are not profiled by this session; dlrm-0: "));
        assert_int_equal(strstr(c->message, "in the same second") != NULL, cases[i].created == 0);
        assert_int_equal(strstr(c->message, "or had not seen the session yet") != NULL,
                         i == 1 || i == 2);
        assert_true(told(&w, cases[i].reason, "dlrm-0") && told(&w, cases[i].reason, ""));
        if (strcmp(cases[i].reason, "OtherSession") == 0) /* its turn comes: nobody has to act */
            assert_int_equal(condition(&w, PP_CONDITION_STALLED, "Pending")->status,
                             PP_CONDITION_FALSE);
        else
            assert_stalled(&w, "NoPodInjected", cases[i].who);
        (void)step(&w, 8);
        assert_int_equal(w.did.n_events, 0); /* once */
        assert_int_equal(step(&w, 601), PP_SESSION_FAILED);
        condition(&w, PP_CONDITION_SUCCEEDED, "NoPodInjected");
        world_done(&w);
    }
}

/* The pod carries the hook: another session has it, and is named. */
static void test_other_session_is_named(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", "another", T(-5));
    w.pods[0].hooked = true;
    w.pods[0].session_name = "first";
    (void)step(&w, 6);
    assert_string_equal(condition(&w, PP_CONDITION_INJECTED, "OtherSession")->message,
                        "1 of 1 pods are not profiled by this session; dlrm-0: ProfileSession "
                        "first has the pod; this one gets it when that one has ended");
    world_done(&w);
}

/* A selector that nobody meets is said after a minute, with what nearly meets it. */
static void test_no_pod_matches(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    (void)step(&w, 1);
    assert_false(pp_session_seeks_near(&w.obs, NULL));
    (void)step(&w, 45);
    assert_not_stalled(&w);
    w.obs.now_ns = T(46);
    assert_true(pp_session_seeks_near(&w.obs, NULL));
    pp_selector_near near = {.pods = 3, .text = "pod x has app=dlmr, where the selector has ..."};
    w.obs.near = &near;
    (void)step(&w, 46);
    assert_stalled(&w, "NoMatchingPods", "Whoever created the session");
    assert_non_null(strstr(w.did.conditions[PP_CONDITION_STALLED].message,
                           "no pod of namespace ml matches spec.selector, app=dlrm; the nearest: "
                           "pod x has app=dlmr"));
    assert_true(told(&w, "NoMatchingPods", ""));
    assert_true(w.did.requeue_ns == 300 * FIXTURE_SECOND); /* one may come that nearly matches */
    (void)step(&w, 62);
    assert_int_equal(w.did.n_events, 0);
    near = (pp_selector_near){0};
    (void)step(&w, 63);
    assert_non_null(strstr(w.did.conditions[PP_CONDITION_STALLED].message, "there is none at all"));
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(64));
    (void)step(&w, 64);
    assert_not_stalled(&w);
    world_done(&w);
}

static void test_nearest_pod(void **state)
{
    (void)state;
    static const struct {
        const char *selector, *labels, *text;
    } cases[] = {
        {"{'matchLabels': {'app': 'dlrm'}}", "{'app': 'dlmr'}",
         "pod p has app=dlmr, where the selector has app=dlrm"},
        {"{'matchLabels': {'app': 'dlrm'}}", "{'tier': 'x'}", ""},
        {"{'matchLabels': {'app': 'dlrm', 'tier': 'x'}}", "{'tier': 'x'}",
         "pod p has no label app, where the selector has app=dlrm"},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'In', 'values': ['1', '2']}]}",
         "{'a': '3'}", "pod p has a=3, where the selector has a in (1,2)"},
        {"{'matchExpressions': [{'key': 'a', 'operator': 'DoesNotExist'}]}", "{'a': '3'}",
         "pod p has a=3, where the selector has !a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char spec[256];
        (void)snprintf(spec, sizeof spec, "{'selector': %s}", cases[i].selector);
        pp_session *s = fixture_session(spec);
        PP_CLEANUP_JSON json_t *labels = fixture_json(cases[i].labels);
        PP_CLEANUP_JSON json_t *none = json_object();
        pp_selector_near near = {0};
        pp_selector_near_add(&near, &s->selector, "p", labels);
        pp_selector_near_add(&near, &s->selector, "q", none);
        pp_selector_near_add(&near, &s->selector, "r", NULL);
        assert_string_equal(near.text, cases[i].text);
        assert_int_equal(near.pods, 3);
        (void)pp_session_free(s);
    }
}

/* Of several that lack as much, the one whose value is most like what was asked for. */
static void test_nearest_of_several_pods(void **state)
{
    (void)state;
    static const char *const values[] = {"before", "dlrmx", "dlrm", "a-much-longer-name"};
    pp_session *s = fixture_session("{'selector': {'matchLabels': {'app': 'dlrm-x'}}}");
    for (size_t from = 0; from < 4; from++) {
        pp_selector_near near = {0};
        for (size_t i = 0; i < 4; i++) {
            const char *value = values[(from + i) % 4];
            PP_CLEANUP_JSON json_t *labels = json_pack("{s:s}", "app", value);
            pp_selector_near_add(&near, &s->selector, value, labels);
        }
        assert_string_equal(near.text,
                            "pod dlrmx has app=dlrmx, where the selector has app=dlrm-x");
    }
    (void)pp_session_free(s);
}

/* Pods run for a minute, and no agent of theirs is there, or none any more. */
static void test_no_agent(void **state)
{
    (void)state;
    for (int reported = 0; reported < 2; reported++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        if (reported)
            report(&w, 0, 3, 5);
        samples_seen(&w);
        w.pods[0].connected = false;
        (void)step(&w, 6);
        (void)step(&w, 50);
        assert_not_stalled(&w);
        (void)step(&w, 51);
        assert_stalled(&w, reported ? "AgentsLost" : "NoAgent", "Whoever runs the pods");
        assert_true(told(&w, reported ? "AgentsLost" : "NoAgent", ""));
        assert_int_equal(w.did.conditions[PP_CONDITION_COLLECTING].status, PP_CONDITION_FALSE);
        w.pods[0].connected = true;
        (void)step(&w, 67);
        assert_not_stalled(&w);
        assert_int_equal(w.did.conditions[PP_CONDITION_COLLECTING].status,
                         reported ? PP_CONDITION_TRUE : PP_CONDITION_FALSE);
        world_done(&w);
    }
}

/* An agent that has never come is named with its pod, in time and once. */
static void assert_waits(const world *w, const char *what)
{
    const pp_condition *c = &w->did.conditions[PP_CONDITION_STALLED];
    assert_not_stalled(w);
    if (!strstr(c->message, what) || !strstr(c->message, "Nobody has to act, "))
        fail_msg("%s", c->message);
}

/* What is in the way is named also where nobody has to act. */
static void test_what_is_waited_for(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    w.pods[0].running = false;
    w.pods[0].node = NULL;
    (void)step(&w, 3);
    (void)step(&w, 500);
    assert_waits(&w, "unless it lasts (PodsPending): pod dlrm-0 waits for a node");
    w.pods[0].node = "node-1";
    (void)step(&w, 501);
    assert_waits(&w, "pod dlrm-0 has not started");
    w.pods[0].running = w.pods[0].connected = true;
    (void)step(&w, 502);
    (void)step(&w, 580);
    assert_waits(&w, "unless it lasts (WaitingForSteps): agents are connected, and no training");
    report(&w, 0, 581, 582);
    (void)step(&w, 583);
    assert_string_equal(w.did.conditions[PP_CONDITION_STALLED].message, "Nothing is in the way");
    world_done(&w);
}

/* One of several agents is gone for good, while the others sample. */
static void test_one_agent_is_lost(void **state)
{
    (void)state;
    world w;
    world_init(&w, "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '1h'}");
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    report(&w, 1, 10, 20);
    w.obs.stats.metrics_seen = PP_METRIC_ALL;
    w.pods[1].connected = false;
    w.pods[1].heard_to_ns = T(30);
    (void)step(&w, 74);
    assert_not_stalled(&w);
    (void)step(&w, 75);
    assert_stalled(&w, "AgentsLost", "Whoever runs the pods");
    assert_non_null(strstr(w.did.conditions[PP_CONDITION_STALLED].message, "of pod dlrm-1 was"));
    condition(&w, PP_CONDITION_COLLECTING, "Sampling");
    w.pods[1].trainer_waits = true; /* its training has ended, and the agent with it */
    (void)step(&w, 91);
    assert_not_stalled(&w);
    w.pods[1].trainer_waits = false;
    w.obs.serving_since_ns = T(60); /* agents are on their way to an operator that came anew */
    (void)step(&w, 92);
    assert_not_stalled(&w);
    w.pods[1].connected = true;
    (void)step(&w, 200);
    assert_not_stalled(&w);
    world_done(&w);
}

static void test_agent_not_connected(void **state)
{
    (void)state;
    static const pp_session_pod_trouble trouble = {
        .reason = "AgentNotConnected", .text = "see the log", .of_pod = true};
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    w.pods[0].connected = false;
    w.pods[0].awaits_agent = true;
    (void)step(&w, 6);
    (void)step(&w, 67);
    assert_not_stalled(&w); /* it has run for less than a minute, as it may be */
    w.pods[0].trouble = &trouble;
    (void)step(&w, 68);
    assert_stalled(&w, "AgentNotConnected", "Whoever runs the pods");
    assert_true(told(&w, "AgentNotConnected", "") && told(&w, "AgentNotConnected", "dlrm-0"));
    assert_string_equal(w.did.targets[0].reason, "AgentNotConnected");
    /* Another process serves: it waits for the agent, and what was said stays. */
    w.pods[0].trouble = NULL;
    memset(w.obs.trouble_since_ns, 0, sizeof w.obs.trouble_since_ns);
    (void)step(&w, 69);
    assert_stalled(&w, "AgentNotConnected", "Whoever runs the pods");
    assert_int_equal(w.did.n_events, 0);
    w.pods[0].awaits_agent = false;
    w.pods[0].connected = true;
    (void)step(&w, 70);
    assert_not_stalled(&w);
    assert_string_equal(w.did.targets[0].reason, "");
    world_done(&w);
}

/* Named while it lasts, also where other pods report. */
static void test_hook_not_loaded(void **state)
{
    (void)state;
    static const pp_session_pod_trouble trouble = {
        .reason = "HookNotLoaded", .text = "no Python yet", .of_pod = true};
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 3, 5);
    samples_seen(&w);
    (void)step(&w, 6);
    w.pods[1].trouble = &trouble;
    (void)step(&w, 62);
    assert_stalled(&w, "HookNotLoaded", "Whoever runs the pods");
    assert_true(told(&w, "HookNotLoaded", "") && told(&w, "HookNotLoaded", "dlrm-1"));
    w.pods[1].trouble = NULL;
    (void)step(&w, 63);
    assert_not_stalled(&w);
    world_done(&w);
}

static void test_prometheus_away_for_a_moment(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    w.obs.prometheus_error = "connection refused";
    (void)step(&w, 21);
    condition(&w, PP_CONDITION_METRICS_AVAILABLE, "PrometheusUnavailable");
    (void)step(&w, 65);
    assert_not_stalled(&w);
    w.obs.prometheus_error = NULL;
    samples_seen(&w);
    (void)step(&w, 81);
    w.obs.prometheus_error = "connection refused";
    (void)step(&w, 82); /* it begins anew */
    assert_not_stalled(&w);
    assert_int_equal(step(&w, 142), PP_SESSION_FINISHING);
    assert_stalled(&w, "PrometheusUnavailable", "The operator's administrator");
    world_done(&w);
}

/* A pod is often seen before it is known why it has no hook: nothing is guessed meanwhile, also
 * where session and pod are of one second, or the pod is older. */
static void explained_later(int created)
{
    world w;
    world_init(&w, SPEC);
    (void)step(&w, 1);
    add_pod(&w, "dlrm-0", NULL, T(created));
    w.pods[0].unexplained = true;
    (void)step(&w, 6);
    assert_int_equal(w.did.n_events, 0);
    condition(&w, PP_CONDITION_INJECTED, "NoMatchingPods");
    w.pods[0].unexplained = false;
    w.pods[0].refusal_reason = "PythonIsolated";
    w.pods[0].refusal = "start it without";
    (void)step(&w, 7);
    condition(&w, PP_CONDITION_INJECTED, "PythonIsolated");
    assert_int_equal(w.did.n_events, 2);
    assert_true(told(&w, "PythonIsolated", "dlrm-0") && told(&w, "PythonIsolated", ""));
    w.pods[0].unexplained = true; /* another process, that has not asked yet */
    w.pods[0].refusal_reason = NULL;
    (void)step(&w, 8);
    assert_int_equal(w.did.n_events, 0);
    condition(&w, PP_CONDITION_INJECTED, "PythonIsolated");
    assert_string_equal(w.did.targets[0].reason, "PythonIsolated");
    world_done(&w);
}

static void test_not_explained_yet(void **state)
{
    (void)state;
    static const int created[] = {5, 0, -5};
    for (size_t i = 0; i < sizeof created / sizeof created[0]; i++)
        explained_later(created[i]);

    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", NULL, T(5));
    w.pods[0].unexplained = true;
    (void)step(&w, 6);
    assert_int_equal(condition(&w, PP_CONDITION_INJECTED, "Diagnosing")->status,
                     PP_CONDITION_UNKNOWN);
    world_done(&w);
}

static void test_one_of_two_injected(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "old", NULL, T(-100));
    add_pod(&w, "new", FIXTURE_UID, T(3));
    add_pod(&w, "done", NULL, T(-200));
    w.pods[2].finished = true; /* over before: does not matter */
    report(&w, 1, 10, 12);
    assert_int_equal(step(&w, 13), PP_SESSION_COLLECTING);
    assert_non_null(
        strstr(condition(&w, PP_CONDITION_INJECTED, "CreatedBefore")->message, "1 of 2 pods"));
    condition(&w, PP_CONDITION_STALLED, "Collecting");
    assert_int_equal(w.did.n_targets, 2);
    assert_string_equal(w.did.targets[0].pod, "old");
    assert_string_equal(w.did.targets[1].gpus, "GPU-1");
    world_done(&w);
}

static void test_pods_finish_early(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    w.pods[0].finished = true;
    w.pods[0].finished_ns = T(4);
    assert_int_equal(step(&w, 30), PP_SESSION_PENDING); /* nothing sampled: another may come */
    condition(&w, PP_CONDITION_COLLECTING, "WaitingForPods");
    assert_not_stalled(&w);
    (void)step(&w, 90);
    assert_stalled(&w, "PodsEnded", "Whoever runs the pods");
    w.pods[0].finished = false;
    report(&w, 0, 70, 90);
    assert_int_equal(step(&w, 91), PP_SESSION_COLLECTING);
    w.pods[0].finished = true;
    w.pods[0].connected = false;
    w.pods[0].finished_ns = T(100);
    assert_int_equal(step(&w, 105), PP_SESSION_COLLECTING); /* a Job may try again */
    w.obs.store_error = "away";
    assert_int_equal(step(&w, 111), PP_SESSION_COLLECTING);
    w.obs.store_error = NULL;
    assert_int_equal(step(&w, 112), PP_SESSION_FINISHING);
    assert_true(told(&w, "PodsFinished", ""));
    w.obs.n_pods = 0; /* deleted with its Job */
    w.obs.stats.samples_complete = true;
    (void)step(&w, 113);
    condition(&w, PP_CONDITION_INJECTED, "PodsInjected");
    assert_int_equal(w.did.n_targets, 1);
    assert_string_equal(w.did.targets[0].pod, "dlrm-0");
    assert_string_equal(w.did.targets[0].gpus, "GPU-1");
    assert_int_equal(w.did.pods_injected, 1);
    assert_true(w.did.finalise);
    world_done(&w);
}

static void owned(world *w, size_t pod, const char *job)
{
    w->pods[pod].owner = PP_OWNER_JOB;
    w->pods[pod].owner_name = job;
}

/* The Job controller's own pause before a retry is as long as the grace: the session follows the
 * Job, not the pod. */
static void test_a_retried_job_goes_on(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    pp_session_owner job = {.kind = PP_OWNER_JOB, .name = "dlrm"};
    w.obs.owners = &job;
    w.obs.n_owners = 1;
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    owned(&w, 0, "dlrm");
    report(&w, 0, 10, 25);
    (void)step(&w, 25);
    assert_false(w.did.ask_owners);
    w.pods[0].finished = w.pods[0].failed = true;
    w.pods[0].running = w.pods[0].connected = false;
    w.pods[0].finished_ns = w.pods[0].lived_to_ns = T(26);
    (void)step(&w, 30);
    assert_true(w.did.ask_owners);
    assert_int_equal(step(&w, 37), PP_SESSION_COLLECTING); /* the Job has not answered yet */
    job.state = PP_OWNER_MAKES_PODS;
    assert_int_equal(step(&w, 70), PP_SESSION_COLLECTING);
    const pp_condition *c = condition(&w, PP_CONDITION_COLLECTING, "WaitingForPods");
    assert_int_equal(c->status, PP_CONDITION_FALSE);
    assert_string_equal(c->message, "No pod runs; Job dlrm is to make another");
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(71));
    owned(&w, 1, "dlrm");
    w.pods[1].lived_from_ns = w.pods[1].heard_from_ns = T(71);
    report(&w, 1, 10, 75);
    (void)step(&w, 76);
    assert_int_equal(w.did.conditions[PP_CONDITION_COLLECTING].status, PP_CONDITION_TRUE);
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    condition(&w, PP_CONDITION_COLLECTING, "DurationReached");
    w.obs.stats.samples_complete = true;
    final_solution(&w);
    assert_int_equal(step(&w, 111), PP_SESSION_FAILED); /* no pod lived for 90 s */
    assert_string_equal(condition(&w, PP_CONDITION_SUCCEEDED, "Incomplete")->message,
                        "No pod was profiled for 90 % of 1m40s; dlrm-1 for 39s: retried: Job dlrm "
                        "made 2 pods, one after another. What was measured is kept: 17 layers "
                        "timed in 2 phases on 1 pod; 200 metric values of their own, 12 of groups "
                        "of layers");
    world_done(&w);
}

/* How long a session waits for another pod, by what is known of its owner. */
static void test_pods_to_come(void **state)
{
    (void)state;
    static const struct {
        pp_owner_kind kind;
        pp_owner_state state;
        int waits; /* s; 1000: to the end of the duration */
    } cases[] = {
        {PP_OWNER_JOB, PP_OWNER_DONE, 10},
        {PP_OWNER_STATEFUL_SET, PP_OWNER_MAKES_PODS, 1000},
        {PP_OWNER_DEPLOYMENT, PP_OWNER_DONE, 10},
        {PP_OWNER_OTHER, PP_OWNER_UNKNOWN, 60},
        {PP_OWNER_JOB, PP_OWNER_UNKNOWN, 360},
        {PP_OWNER_JOB, PP_OWNER_MANAGED, 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '900s'}");
        const pp_session_owner owner = {cases[i].kind, "dlrm", cases[i].state, false};
        w.obs.owners = &owner;
        w.obs.n_owners = 1;
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        (void)step(&w, 20);
        w.obs.n_pods = 0; /* deleted */
        w.obs.serving_since_ns = T(20);
        if (cases[i].waits < 1000) {
            assert_int_equal(step(&w, 19 + cases[i].waits), PP_SESSION_COLLECTING);
            assert_int_equal(step(&w, 20 + cases[i].waits), PP_SESSION_FINISHING);
            condition(&w, PP_CONDITION_COLLECTING, "PodsFinished");
        } else {
            assert_int_equal(step(&w, 909), PP_SESSION_COLLECTING);
            assert_int_equal(step(&w, 910), PP_SESSION_FINISHING);
        }
        world_done(&w);
    }
}

/* From sampling's end to the session's, with what was solved. */
static void conclude(world *w, double second)
{
    w->obs.stats.samples_complete = true;
    w->obs.stats.final_written = false;
    (void)step(w, second);
    assert_true(w->did.finalise);
    final_solution(w);
    (void)step(w, second + 1);
}

/* The operator was installed anew: the agents trust the one before, and never come back. */
static void test_agents_cut_off(void **state)
{
    (void)state;
    for (int deleted = 0; deleted < 2; deleted++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        w.pods[0].lived_from_ns = w.pods[0].heard_from_ns = T(3);
        samples_seen(&w);
        (void)step(&w, 21);
        w.pods[0].connected = false;
        w.pods[0].heard_to_ns = T(25);
        w.obs.serving_since_ns = T(40);
        assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
        w.pods[0].gone = deleted;
        w.pods[0].lived_to_ns = T(111);
        w.obs.stats.samples_complete = true;
        (void)step(&w, 112);
        assert_int_equal(w.did.finalise, deleted); /* one that runs may come back */
        (void)step(&w, 169);
        assert_int_equal(w.did.finalise, deleted);
        conclude(&w, 170);
        const pp_condition *c = condition(&w, PP_CONDITION_SUCCEEDED, "Incomplete");
        assert_int_equal(w.did.phase, PP_SESSION_FAILED);
        assert_int_equal(c->status, PP_CONDITION_FALSE);
        assert_non_null(strstr(c->message,
                               "1 of 1 pods that ran for 1m40s were profiled for less than 90 % of "
                               "it; dlrm-0 for 15s: cut off: its agent, last heard of at "
                               "2026-01-21T12:53:45Z, has not come back to the operator that "
                               "serves since"));
        assert_non_null(strstr(c->message, "17 layers timed"));
        assert_true(told(&w, "Incomplete", ""));
        assert_int_equal(w.did.n_targets, 1);
        assert_int_equal(w.did.conditions[PP_CONDITION_FAILED].status, PP_CONDITION_TRUE);
        world_done(&w);
    }
}

/* An operator that was away for a while finds its agents again, and with them what they kept. */
static void test_agents_that_come_back(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    w.pods[0].lived_from_ns = w.pods[0].heard_from_ns = T(3);
    (void)step(&w, 21);
    w.pods[0].connected = false;
    w.obs.serving_since_ns = T(109);
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    w.obs.stats.samples_complete = true;
    (void)step(&w, 111);
    assert_false(w.did.finalise);
    report(&w, 0, 10, 112);
    conclude(&w, 113);
    condition(&w, PP_CONDITION_SUCCEEDED, "Completed");
    world_done(&w);
}

/* What counts as all that was asked for. */
static void test_complete_or_not(void **state)
{
    (void)state;
    static const struct {
        int max;            /* steps */
        int from[2], to[2]; /* s: two pods live; 0: to the end */
        int heard[2];       /* s: their agents are there until then; 0: to the end */
        int steps[2];
        const char *why; /* NULL: it is complete */
    } cases[] = {
        {0, {3, 3}, {0, 0}, {0, 0}, {40, 40}, NULL},
        {0, {3, 3}, {0, 0}, {0, 101}, {40, 40}, NULL},
        {0, {3, 3}, {0, 0}, {0, 98}, {40, 40}, "; dlrm-1 for 1m28s: its agent was lost at "},
        {0, {3, 3}, {0, 60}, {0, 60}, {40, 40}, NULL}, /* it ended before */
        {0, {3, 50}, {0, 0}, {0, 0}, {40, 40}, NULL},  /* it began later */
        {0, {3, 3}, {60, 60}, {60, 60}, {40, 40}, "dlrm-0 for 50s: the pod had ended by then"},
        {0, {3, 3}, {0, 0}, {0, -1}, {40, 0}, "; dlrm-1 for 0s: its agent has never been there"},
        {0, {3, 3}, {0, 0}, {0, 0}, {40, 0}, "; dlrm-1 for 0s: its agent was there, and no step"},
        {50, {3, 3}, {60, 60}, {60, 60}, {45, 0}, NULL},
        {50, {3, 3}, {60, 60}, {60, 60}, {44, 0}, "No pod was profiled for 90 % of 1m40s"},
        {50, {3, 3}, {0, 0}, {30, 30}, {45, 45}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, SPEC);
        w.session->steps_max = cases[i].max;
        json_t *spec = json_object_get(w.object, "spec");
        if (cases[i].max)
            (void)json_object_set_new(spec, "steps", json_pack("{s:i}", "max", cases[i].max));
        read_back(&w);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
        report(&w, 0, 10, 11);
        (void)step(&w, 12);
        for (int p = 0; p < 2; p++) {
            pp_session_pod *pod = &w.pods[p];
            pod->steps = cases[i].steps[p];
            pod->lived_from_ns = pod->heard_from_ns = T(cases[i].from[p]);
            pod->lived_to_ns = T(cases[i].to[p]);
            pod->finished = cases[i].to[p] != 0;
            pod->connected = cases[i].heard[p] == 0;
            pod->heard_to_ns = pod->connected ? T(110) : T(cases[i].heard[p]);
            pod->last_batch_ns = pod->steps ? T(12) : 0;
            if (cases[i].heard[p] < 0)
                pod->heard_from_ns = pod->heard_to_ns = 0;
        }
        assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
        conclude(&w, 171);
        const pp_condition *c = &w.did.conditions[PP_CONDITION_SUCCEEDED];
        if (strcmp(c->reason, cases[i].why ? "Incomplete" : "Completed") != 0 ||
            (cases[i].why && !strstr(c->message, cases[i].why)))
            fail_msg("case %zu: %s: %s", i, c->reason, c->message);
        world_done(&w);
    }
}

/* Its stamps are refused, so nothing of it counts: that is why, not that it was silent. */
static void test_refused_batches_are_why(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    w.pods[1].connected = true;
    w.pods[1].refused_why = "node-2's clock is 3m behind";
    (void)step(&w, 21);
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    conclude(&w, 171);
    assert_non_null(strstr(condition(&w, PP_CONDITION_SUCCEEDED, "Incomplete")->message,
                           "dlrm-1 for 0s: what it sent was refused: node-2's clock is 3m behind"));
    world_done(&w);
}

/* Wrong clocks are told with their node's name; nothing is said where there is none. */
static void test_wrong_clocks_are_told(void **state)
{
    (void)state;
    world w;
    pp_session_clock clocks[2] = {{0}};
    world_init(&w, SPEC);
    for (int i = 0; i < 2; i++) {
        add_pod(&w, i ? "dlrm-1" : "dlrm-0", FIXTURE_UID, T(2));
        w.pods[i].clock = &clocks[i];
        w.pods[i].node = i ? "node-2" : "node-1";
        report(&w, (size_t)i, 10, 11);
    }
    (void)step(&w, 12);
    assert_false(has_condition(&w, "ClockSkewed"));

    clocks[1].shift_ns = -180 * FIXTURE_SECOND;
    (void)step(&w, 13);
    const pp_condition *c = condition(&w, PP_CONDITION_CLOCK_SKEWED, "OffsetTakenOut");
    assert_int_equal(c->status, PP_CONDITION_TRUE);
    assert_string_equal(c->message, "The nodes' clocks of 1 pods are wrong, which is taken out of "
                                    "their stamps; that of node node-2, by pod dlrm-1, is 3m "
                                    "behind");
    assert_true(told(&w, "ClockSkewed", ""));
    assert_int_equal(w.did.conditions[PP_CONDITION_STALLED].status, PP_CONDITION_FALSE);

    clocks[1].refused = 3;
    clocks[1].refusing = true;
    (void)snprintf(clocks[1].why, sizeof clocks[1].why, "the clock of node node-2 jumps");
    (void)step(&w, 14);
    c = condition(&w, PP_CONDITION_CLOCK_SKEWED, "BatchesRefused");
    assert_string_equal(c->message,
                        "Batches of 1 pods are refused; dlrm-1: the clock of node node-2 jumps");
    assert_true(told(&w, "ClockSkewed", ""));
    c = condition(&w, PP_CONDITION_STALLED, "ClockSkewed");
    assert_int_equal(c->status, PP_CONDITION_TRUE);
    assert_string_equal(c->message, "Whoever looks after the nodes has to act: nothing of pod "
                                    "dlrm-1 can be taken: the clock of node node-2 jumps");
    (void)step(&w, 15);
    assert_false(told(&w, "ClockSkewed", ""));

    clocks[1].refusing = false; /* it was set: what was refused stays told */
    (void)step(&w, 16);
    condition(&w, PP_CONDITION_CLOCK_SKEWED, "BatchesRefused");
    condition(&w, PP_CONDITION_STALLED, "Collecting");
    clocks[1].refused = 0; /* another process counts anew */
    (void)step(&w, 17);
    condition(&w, PP_CONDITION_CLOCK_SKEWED, "BatchesRefused");
    w.obs.n_pods = 0;
    (void)step(&w, 18);
    condition(&w, PP_CONDITION_CLOCK_SKEWED, "BatchesRefused");
    world_done(&w);
}

static void test_a_wrong_clock_of_prometheus_is_told(void **state)
{
    (void)state;
    world w;
    pp_session_clock clock = {0};
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    w.pods[0].clock = &clock;
    report(&w, 0, 10, 11);
    w.obs.prometheus_shift_ns = 3600 * FIXTURE_SECOND;
    for (int i = 0; i < 2; i++) {
        (void)step(&w, 12 + i);
        assert_string_equal(
            condition(&w, PP_CONDITION_CLOCK_SKEWED, "OffsetTakenOut")->message,
            "Every node's clock is right; Prometheus' clock is 1h ahead, which is taken out");
    }
    clock.shift_ns = -60 * FIXTURE_SECOND;
    (void)step(&w, 14);
    assert_non_null(strstr(condition(&w, PP_CONDITION_CLOCK_SKEWED, "OffsetTakenOut")->message,
                           "that of node node-1, by pod dlrm-0, is 1m behind; Prometheus' clock is "
                           "1h ahead, which is taken out"));
    world_done(&w);
}

/* One of two pods cannot even come in: the honest one is profiled, and the other's reason is said.
 */
static void test_an_agent_shut_out_by_its_clock_is_told(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    w.pods[1].node = "node-2";
    w.pods[1].lived_from_ns = T(2);
    (void)step(&w, 21);
    assert_false(has_condition(&w, "ClockSkewed"));
    w.pods[1].clock_said_ns = -820000000 * FIXTURE_SECOND;
    (void)step(&w, 40);
    static const char why[] = "its agent cannot come in: by the clock of node node-2, at least 25 "
                              "years behind, the operator's certificate is not valid; set that "
                              "clock";
    const pp_condition *c = condition(&w, PP_CONDITION_CLOCK_SKEWED, "AgentsShutOut");
    assert_non_null(
        strstr(c->message, "1 pods are not profiled for their nodes' clocks; dlrm-1: "));
    assert_non_null(strstr(c->message, why));
    assert_true(told(&w, "ClockSkewed", ""));
    c = condition(&w, PP_CONDITION_STALLED, "ClockSkewed");
    assert_non_null(strstr(c->message, why));
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    conclude(&w, 112); /* nobody waits for it */
    assert_non_null(strstr(condition(&w, PP_CONDITION_SUCCEEDED, "Incomplete")->message, why));
    world_done(&w);

    world_init(&w, SPEC); /* the clock is set: the agent comes in */
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    w.pods[0].clock_said_ns = -820000000 * FIXTURE_SECOND;
    (void)step(&w, 20);
    condition(&w, PP_CONDITION_STALLED, "ClockSkewed");
    report(&w, 0, 30, 40);
    (void)step(&w, 41);
    condition(&w, PP_CONDITION_STALLED, "Collecting");
    world_done(&w);
}

/* A clock is in nobody's way where the pod has ended, or its agent came in after all. */
static void test_clocks_of_the_past(void **state)
{
    (void)state;
    static const pp_session_clock clock = {.refused = 3, .refusing = true, .why = "days ahead"};
    static const struct {
        bool gone, finished, heard, shut_out;
        const char *stalled;
    } cases[] = {
        {false, false, true, false, "ClockSkewed"}, {true, false, true, false, "Collecting"},
        {false, true, true, false, "Collecting"},   {false, false, false, true, "ClockSkewed"},
        {false, false, true, true, "Collecting"},   {false, true, false, true, "Collecting"},
        {true, false, false, true, "Collecting"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        pp_session_pod *pod = &w.pods[1];
        pod->gone = cases[i].gone;
        pod->finished = cases[i].finished;
        pod->clock = cases[i].shut_out ? NULL : &clock;
        pod->clock_said_ns = cases[i].shut_out ? 90 * FIXTURE_SECOND : 0;
        pod->last_batch_ns = pod->heard_to_ns = cases[i].heard ? T(18) : 0;
        (void)step(&w, 21);
        condition(&w, PP_CONDITION_STALLED, cases[i].stalled);
        world_done(&w);
    }
}

/* Its clock jumped in the middle: that it is connected does not make up for it. */
static void test_a_refused_clock_is_why(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    report(&w, 1, 10, 20);
    (void)step(&w, 21);
    pp_session_clock clock = {.refused = 3, .refusing = true, .why = "two days ahead"};
    w.pods[1].clock = &clock;
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    conclude(&w, 171);
    assert_non_null(strstr(condition(&w, PP_CONDITION_SUCCEEDED, "Incomplete")->message,
                           "dlrm-1 for 10s: what it sends is refused: two days ahead"));
    world_done(&w);
}

static void test_the_deadline_is_why(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 550, 560);
    (void)step(&w, 561);
    assert_int_equal(step(&w, 600), PP_SESSION_FINISHING);
    conclude(&w, 601);
    assert_non_null(strstr(condition(&w, PP_CONDITION_SUCCEEDED, "Incomplete")->message,
                           "dlrm-0 for 50s: the deadline came first"));
    world_done(&w);
}

/* Finishing has an end of its own, whatever is missing: then the session ends with what there is.
 */
static void test_finishing_has_a_deadline(void **state)
{
    (void)state;
    static const struct {
        bool samples, open, store_away, solved;
        const char *reason, *says;
    } cases[] = {
        {true, false, false, true, "Completed", NULL},
        {false, false, false, true, "Completed", "went without samples that Prometheus did not"},
        {false, true, false, true, "Completed", "went without samples that Prometheus did not"},
        {false, false, true, false, "StoreUnavailable", "the store cannot be reached"},
        {false, false, false, false, "FinishingTimedOut", "what was measured is in the store"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '100s'}");
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        w.pods[0].open_capture = cases[i].open;
        (void)step(&w, 21);
        assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
        w.obs.stats.samples_complete = cases[i].samples;
        w.obs.store_error = cases[i].store_away ? "away" : NULL;
        assert_int_equal(step(&w, 1009), PP_SESSION_FINISHING);
        assert_int_equal(w.did.finalise, cases[i].samples);
        assert_int_equal(step(&w, 1010), PP_SESSION_FINISHING);
        assert_int_equal(w.did.finalise, !cases[i].store_away);
        if (cases[i].solved)
            final_solution(&w);
        else
            assert_int_equal(step(&w, 1609), PP_SESSION_FINISHING);
        assert_int_equal(step(&w, cases[i].solved ? 1011 : 1610),
                         cases[i].solved ? PP_SESSION_SUCCEEDED : PP_SESSION_FAILED);
        const pp_condition *c = condition(&w, PP_CONDITION_FINISHED, cases[i].reason);
        if (!cases[i].says != !strstr(c->message, "inishing took too long") ||
            (cases[i].says && !strstr(c->message, cases[i].says)))
            fail_msg("case %zu: %s", i, c->message);
        world_done(&w);
    }
}

/* An operator that comes back after that gives the agents a minute; data that keeps coming does not
 * keep the session. */
static void test_finishing_after_a_long_absence(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 21);
    (void)step(&w, 110);
    w.obs.serving_since_ns = T(5000);
    w.pods[0].open_capture = true;
    (void)step(&w, 5059);
    assert_false(w.did.finalise);
    (void)step(&w, 5060);
    assert_true(w.did.finalise);
    final_solution(&w);
    w.obs.under_way = true; /* a batch has come since, again and again */
    assert_int_equal(step(&w, 5659), PP_SESSION_FINISHING);
    assert_int_equal(step(&w, 5660), PP_SESSION_SUCCEEDED);
    assert_non_null(strstr(condition(&w, PP_CONDITION_SUCCEEDED, "Completed")->message,
                           "went without the values of the last data"));
    world_done(&w);
}

/* As the session itself has it: what was injected for it, or reported to it, stays its own. */
static void test_whose_a_pod_is(void **state)
{
    (void)state;
    pp_session *own = fixture_session(SPEC), *other = fixture_session(SPEC);
    free(other->uid);
    other->uid = strdup("other");
    const struct {
        pp_session_claim pod;
        const char *whose;
    } cases[] = {
        {{0}, NULL},
        {{.injected_for = own->uid}, own->uid},
        {{.injected_for = own->uid, .hooked = true, .holder = other}, own->uid},
        {{.reported = true, .hooked = true, .holder = other}, own->uid},
        {{.injected_for = "other"}, "other"},
        {{.injected_for = "other", .hooked = true}, NULL},
        {{.injected_for = "other", .hooked = true, .holder = own}, own->uid},
        {{.hooked = true, .holder = other}, "other"},
        {{.holder = other}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *whose = pp_session_whose(own, &cases[i].pod);
        if (!whose || !cases[i].whose)
            assert_true(whose == NULL && cases[i].whose == NULL);
        else
            assert_string_equal(whose, cases[i].whose);
    }
    (void)pp_session_free(own);
    (void)pp_session_free(other);
}

/* Once the status' list is full nobody knows who was told: then nobody else is. */
static void test_more_refusals_than_listed(void **state)
{
    (void)state;
    enum { MANY = PP_SESSION_MAX_TARGETS + 20 };
    static char names[MANY][16];
    pp_session_pod *pods = calloc(MANY, sizeof *pods);
    world w;
    world_init(&w, SPEC);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "pod-%03d", i);
        pods[i] = (pp_session_pod){.name = names[i], .uid = names[i], .rank = -1};
    }
    w.obs.pods = pods;
    w.obs.n_pods = MANY;
    (void)step(&w, 5);
    assert_true(w.did.n_events > 0);
    (void)step(&w, 6);
    assert_int_equal(w.did.n_events, 0);
    free(pods);
    world_done(&w);
}

/* The store was emptied behind our back: there is nothing to solve, and nothing to wait for. */
static void test_store_lost_everything(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 30);
    assert_int_equal(step(&w, 31), PP_SESSION_COLLECTING);
    w.pods[0].finished = true;
    w.pods[0].finished_ns = T(40);
    assert_int_equal(step(&w, 60), PP_SESSION_FINISHING);
    w.obs.stats = (pp_session_stats){.samples_complete = true};
    assert_int_equal(step(&w, 130), PP_SESSION_FAILED);
    condition(&w, PP_CONDITION_SUCCEEDED, "NoLayerTimed");
    world_done(&w);
}

static void test_the_service_is_gone(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    w.obs.service_error = "the operator's Service probe/probe is gone";
    assert_int_equal(step(&w, 3), PP_SESSION_PENDING);
    assert_stalled(&w, "ServiceUnavailable", "The operator's administrator");
    assert_non_null(strstr(w.did.conditions[PP_CONDITION_STALLED].message, "probe/probe is gone"));
    w.obs.service_error = NULL;
    (void)step(&w, 4);
    assert_not_stalled(&w);
    world_done(&w);
}

/* What its pods show is the operator's own fault. */
static void test_the_operator_lacks_rights(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    w.obs.service_error = "the operator's Service probe/probe is gone";
    w.obs.rights_error = "denied by the API server: reviewing tokens";
    assert_int_equal(step(&w, 3), PP_SESSION_PENDING);
    assert_stalled(&w, "RightsMissing", "The operator's administrator");
    assert_non_null(strstr(w.did.conditions[PP_CONDITION_STALLED].message, "reviewing tokens"));
    world_done(&w);
}

/* A pod that was not injected for it is no fault of whoever runs it; one that was needs it no more.
 */
static void test_the_webhook_is_missing(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    w.obs.webhook_error = "the MutatingWebhookConfiguration probe does not exist";
    assert_int_equal(step(&w, 3), PP_SESSION_PENDING);
    assert_stalled(&w, "WebhookMissing", "The operator's administrator");
    add_pod(&w, "dlrm-0", NULL, T(2));
    (void)step(&w, 4);
    assert_stalled(&w, "WebhookMissing", "The operator's administrator");
    w.pods[0].session_uid = FIXTURE_UID;
    (void)step(&w, 5);
    assert_not_stalled(&w);
    world_done(&w);
}

/* Named at once, as what somebody has to mend if it lasts. */
static void assert_no_layer(const char *spec, const char *who, const char *why)
{
    world w;
    world_init(&w, spec);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    w.obs.stats.layers = 0;
    assert_int_equal(step(&w, 21), PP_SESSION_COLLECTING);
    assert_non_null(strstr(condition(&w, PP_CONDITION_STALLED, "Collecting")->message, why));
    (void)step(&w, 81);
    assert_stalled(&w, "NoLayerTimed", who);
    w.obs.stats.layers = 1;
    (void)step(&w, 82);
    assert_not_stalled(&w);
    world_done(&w);
}

static void test_no_layer_is_timed(void **state)
{
    (void)state;
    assert_no_layer("{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '100s',"
                    " 'layers': {'include': ['none']}}",
                    "Whoever created the session", "spec.layers");
    assert_no_layer(SPEC, "Whoever runs the pods", "precisionprobe-agent");
}

static void test_sampling_alone_and_none_is_sampled(void **state)
{
    (void)state;
    world w;
    world_init(&w, "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '100s',"
                   " 'method': 'Sampling'}");
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    report(&w, 1, 10, 20);
    w.obs.stats.layers = 1;
    w.obs.sampling_asked = true;
    w.pods[0].pm_why = "the driver lets nobody";
    (void)step(&w, 21);
    assert_not_stalled(&w); /* the other may be */
    w.pods[1].pm_why = "the driver lets nobody";
    (void)step(&w, 22);
    assert_stalled(&w, "NotSampled", "The operator's administrator");
    w.pods[0].pm_why = "\x1b[2Jno\nwhy \xe2\x80\xae"; /* it is the pod's own to say */
    (void)step(&w, 23);
    assert_non_null(
        strstr(condition(&w, PP_CONDITION_SAMPLED, "NotSampled")->message, "dlrm-0: ?[2Jno?why ?"));
    world_done(&w);
}

/* Nothing goes on without the store: it is what every condition that waits names. */
static void test_store_away(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    w.obs.store_error = "connecting";
    assert_int_equal(step(&w, 3), PP_SESSION_PENDING);
    assert_true(told(&w, "StoreUnavailable", ""));
    (void)step(&w, 4);
    assert_int_equal(w.did.n_events, 0);
    w.obs.store_error = "no such host";
    (void)step(&w, 5);
    static const pp_condition_type types[] = {PP_CONDITION_COLLECTING, PP_CONDITION_STORED};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        assert_non_null(
            strstr(condition(&w, types[i], "StoreUnavailable")->message, "no such host"));
    condition(&w, PP_CONDITION_SUCCEEDED, "StoreUnavailable"); /* which kubectl prints */
    assert_not_stalled(&w);                                    /* it may come back by itself */
    assert_true(w.did.n_events == 1 && strstr(w.did.events[0].message, "no such host"));
    assert_true(w.did.requeue_ns == 43 * FIXTURE_SECOND);
    (void)step(&w, 47.9);
    assert_not_stalled(&w);
    (void)step(&w, 48);
    assert_stalled(&w, "StoreUnavailable", "The operator's administrator");
    assert_non_null(strstr(w.did.conditions[PP_CONDITION_STALLED].message, "no such host"));
    memset(w.obs.trouble_since_ns, 0, sizeof w.obs.trouble_since_ns); /* another process */
    (void)step(&w, 64);
    assert_stalled(&w, "StoreUnavailable", "The operator's administrator");
    w.obs.store_error = NULL;
    (void)step(&w, 65);
    condition(&w, PP_CONDITION_COLLECTING, "WaitingForAgents");
    condition(&w, PP_CONDITION_SUCCEEDED, "Pending");
    assert_true(condition(&w, PP_CONDITION_STALLED, "Pending")->status == PP_CONDITION_FALSE);
    report(&w, 0, 66, 70);
    w.obs.store_error = "away";
    assert_int_equal(step(&w, 71), PP_SESSION_COLLECTING);
    condition(&w, PP_CONDITION_COLLECTING, "Sampling"); /* agents keep what they sample */
    world_done(&w);
}

static void test_steps_max(void **state)
{
    (void)state;
    world w;
    world_init(&w, "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'steps': {'max': 20}}");
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 11);
    report(&w, 0, 10, 12);
    report(&w, 1, 10, 12);
    assert_int_equal(step(&w, 13), PP_SESSION_COLLECTING);
    report(&w, 1, 10, 13);
    assert_int_equal(step(&w, 14), PP_SESSION_FINISHING);
    condition(&w, PP_CONDITION_COLLECTING, "StepsReached");
    world_done(&w);
}

static void test_suspend(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 21);
    json_t *spec = json_object_get(w.object, "spec");
    (void)json_object_set_new(spec, "suspend", json_true());
    read_back(&w);
    assert_int_equal(step(&w, 60), PP_SESSION_SUSPENDED);
    assert_false(w.did.sampling);
    assert_true(w.did.collect && w.did.requeue_ns == 0);
    assert_true(told(&w, "Suspended", ""));
    assert_true(pp_session_live(w.session));                /* new pods get the hook all the same */
    assert_int_equal(step(&w, 1000), PP_SESSION_SUSPENDED); /* past deadline and duration */
    assert_true(w.did.sampled_ns == 50 * FIXTURE_SECOND);
    (void)json_object_set_new(spec, "suspend", json_false());
    read_back(&w);
    assert_int_equal(step(&w, 1060), PP_SESSION_COLLECTING);
    assert_true(w.did.sampling && told(&w, "Resumed", "") && !told(&w, "CollectingStarted", ""));
    assert_true(w.session->ends_at_ns == T(1110) && w.session->deadline_at_ns == T(1600));
    assert_true(w.session->suspended_at_ns == 0);
    assert_int_equal(step(&w, 1109), PP_SESSION_COLLECTING);
    assert_int_equal(step(&w, 1110), PP_SESSION_FINISHING);
    world_done(&w);
}

static void suspend(world *w, bool suspended)
{
    (void)json_object_set_new(json_object_get(w->object, "spec"), "suspend",
                              json_boolean(suspended));
    read_back(w);
}

/* What passes in suspension was neither asked for nor measured. */
static void test_suspension_is_not_measured(void **state)
{
    (void)state;
    static const struct {
        int heard_to, began, gone; /* s: the agent's, and of a pod in the place of the first */
        const char *why;
    } cases[] = {
        {2010, 0, 0, NULL},
        {1062, 0, 0, "dlrm-0 for 52s: its agent was lost at "},
        {2010, 900, 19, NULL}, /* made anew in the pause, soon after the first step */
        {2010, 900, 60, "No pod was profiled for 90 % of 1m40s; "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 11);
        (void)step(&w, 12);
        const int paused = cases[i].gone ? cases[i].gone : 60;
        suspend(&w, true);
        assert_int_equal(step(&w, paused), PP_SESSION_SUSPENDED);
        w.pods[0].lived_from_ns = w.pods[0].heard_from_ns = T(3);
        if (cases[i].began) {
            w.pods[0].gone = true;
            w.pods[0].connected = false;
            w.pods[0].lived_to_ns = w.pods[0].heard_to_ns = T(paused);
            add_pod(&w, "dlrm-1", FIXTURE_UID, T(cases[i].began));
            report(&w, 1, 10, 1061);
            w.pods[1].lived_from_ns = w.pods[1].heard_from_ns = T(cases[i].began);
        }
        suspend(&w, false);
        assert_int_equal(step(&w, 1060), PP_SESSION_COLLECTING);
        pp_session_pod *last = &w.pods[w.obs.n_pods - 1];
        last->connected = cases[i].heard_to > 2000;
        last->heard_to_ns = T(cases[i].heard_to);
        assert_int_equal(step(&w, 1060 + 110 - paused), PP_SESSION_FINISHING);
        conclude(&w, 1231);
        const pp_condition *c = &w.did.conditions[PP_CONDITION_SUCCEEDED];
        if (strcmp(c->reason, cases[i].why ? "Incomplete" : "Completed") != 0 ||
            (cases[i].why && !strstr(c->message, cases[i].why)))
            fail_msg("case %zu: %s: %s", i, c->reason, c->message);
        world_done(&w);
    }
}

/* More pauses than are told apart. */
static void test_many_pauses(void **state)
{
    (void)state;
    world w;
    world_init(&w, "{'selector': {'matchLabels': {'app': 'dlrm'}}, 'duration': '100s'}");
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 20);
    for (int i = 0; i < PP_SESSION_MAX_PAUSES + 3; i++) {
        suspend(&w, true);
        (void)step(&w, 20 + 2 * i);
        suspend(&w, false);
        (void)step(&w, 21 + 2 * i);
    }
    assert_int_equal(w.session->n_pauses, PP_SESSION_MAX_PAUSES);
    assert_true(w.session->pauses[0].from_ns == T(20) && w.session->pauses[0].to_ns == T(21));
    assert_true(w.session->pauses[PP_SESSION_MAX_PAUSES - 1].to_ns == w.obs.now_ns);
    world_done(&w);
}

/* An agent is there, and no training: nothing is measured, and the session says so. */
static void test_a_training_that_is_not_there(void **state)
{
    (void)state;
    static const struct {
        pp_session_span idle[2];
        const char *why;
    } cases[] = {
        {{{0, 0}, {0, 0}}, NULL},
        {{{T(30), T(34)}, {T(50), T(55)}}, NULL},
        {{{T(30), T(36)}, {T(50), T(55)}}, "dlrm-0 for 1m29s: its agent was there, and for the"},
        {{{T(20), T(2000)}, {0, 0}}, "dlrm-0 for 10s: its agent was there, and for the rest no"},
        {{{T(105), T(2000)}, {0, 0}}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        (void)step(&w, 21);
        w.pods[0].lived_from_ns = w.pods[0].heard_from_ns = T(3);
        w.pods[0].idle = cases[i].idle;
        w.pods[0].n_idle = cases[i].idle[0].to_ns ? 2 : 0;
        assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
        conclude(&w, 171);
        const pp_condition *c = &w.did.conditions[PP_CONDITION_SUCCEEDED];
        if (strcmp(c->reason, cases[i].why ? "Incomplete" : "Completed") != 0 ||
            (cases[i].why && !strstr(c->message, cases[i].why)))
            fail_msg("case %zu: %s: %s", i, c->reason, c->message);
        world_done(&w);
    }
}

/* A process that comes while the store is away does not know what is stored: what the status says
 * stays, the session goes on by its times, and its end is told. */
static void test_unread(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    samples_seen(&w);
    assert_int_equal(step(&w, 21), PP_SESSION_COLLECTING);
    w.obs.stats = (pp_session_stats){0};
    w.obs.n_pods = 0;
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    w.pods[0].rank = -1;
    w.obs.serving_since_ns = T(30);
    w.obs.store_error = "away";
    w.obs.unread = true;
    assert_int_equal(step(&w, 31), PP_SESSION_COLLECTING);
    condition(&w, PP_CONDITION_STORED, "StoreUnavailable");
    condition(&w, PP_CONDITION_METRICS_AVAILABLE, "SamplesFound");
    const json_t *status = json_object_get(w.object, "status");
    assert_int_equal(json_integer_value(pp_json_get(status, "counts", "steps", NULL)), 10);
    assert_int_equal(json_integer_value(pp_json_get(status, "counts", "countedSteps", NULL)), 30);
    assert_true(json_real_value(pp_json_get(status, "counts", "sampleReductionPercent", NULL)) ==
                25);
    assert_true(json_real_value(pp_json_get(status, "counts", "sampleErrorPercent", NULL)) == 0.46);
    assert_true(json_real_value(pp_json_get(status, "counts", "sampleSpreadPercent", NULL)) ==
                12.35);
    assert_int_equal(json_integer_value(pp_json_get(status, "counts", "podsReporting", NULL)), 1);
    assert_int_equal(json_integer_value(pp_json_get(status, "progress", "batch", NULL)), 7);
    assert_true(w.did.n_targets == 1 && w.did.targets[0].steps == 10 &&
                w.did.targets[0].rank == 0 && w.did.targets[0].last_seen_ns == T(20));
    assert_int_equal(step(&w, 92), PP_SESSION_COLLECTING);
    assert_stalled(&w, "StoreUnavailable", "The operator's administrator");
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    assert_int_equal(step(&w, 1609), PP_SESSION_FINISHING);
    assert_int_equal(step(&w, 1610), PP_SESSION_FAILED);
    condition(&w, PP_CONDITION_FINISHED, "StoreUnavailable");
    assert_true(w.did.stats.steps == 10);
    world_done(&w);
}

static void test_suspended_from_the_start(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    json_t *spec = json_object_get(w.object, "spec");
    (void)json_object_set_new(spec, "suspend", json_true());
    read_back(&w);
    assert_int_equal(step(&w, 1), PP_SESSION_SUSPENDED);
    assert_int_equal(step(&w, 5000), PP_SESSION_SUSPENDED);
    (void)json_object_set_new(spec, "suspend", json_false());
    read_back(&w);
    assert_int_equal(step(&w, 5001), PP_SESSION_PENDING);
    assert_int_equal(step(&w, 5599), PP_SESSION_PENDING);
    assert_int_equal(step(&w, 5600), PP_SESSION_FAILED);
    world_done(&w);
}

static void test_deadline_while_collecting(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 550, 560);
    assert_int_equal(step(&w, 561), PP_SESSION_COLLECTING);
    assert_int_equal(step(&w, 600), PP_SESSION_FINISHING);
    condition(&w, PP_CONDITION_COLLECTING, "DeadlineReached");
    world_done(&w);
}

/* What a pod's stamps say moves the session's time neither before its own nor past now. */
static void test_stamps_do_not_move_the_session(void **state)
{
    (void)state;
    static const double first[] = {-180, -3600, -8e8, 200, 3600, 2.3e9}; /* s from its creation */
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
        (void)step(&w, 3);
        report(&w, 0, first[i], 12);
        report(&w, 1, first[i], 12);
        assert_int_equal(step(&w, 12), PP_SESSION_COLLECTING);
        int64_t start = first[i] < 0 ? T(0) : T(12);
        assert_true(w.session->start_ns == start);
        assert_true(w.session->ends_at_ns == start + 100 * FIXTURE_SECOND);
        assert_int_equal(step(&w, 50), PP_SESSION_COLLECTING);
        assert_true(w.session->start_ns == start);
        assert_int_equal(step(&w, 112), PP_SESSION_FINISHING);
        assert_true(told(&w, "DurationReached", ""));
        world_done(&w);
    }
}

/* A later pod's earlier step moves the beginning, which then stands; the end is set already. */
static void test_the_beginning_moves_back_only(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 20, 30);
    (void)step(&w, 30);
    w.obs.stats.first_step_ns = T(10);
    (void)step(&w, 31);
    assert_true(w.session->start_ns == T(10) && w.session->ends_at_ns == T(120));
    w.obs.stats.first_step_ns = T(25);
    (void)step(&w, 32);
    assert_true(w.session->start_ns == T(10) && w.session->ends_at_ns == T(120));
    world_done(&w);
}

/* The API server's clock and a node's stamp of a container's end may lie ahead. */
static void test_stamps_ahead_delay_no_end(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    assert_int_equal(step(&w, -3600), PP_SESSION_PENDING);
    assert_true(w.session->deadline_at_ns == T(-3000));
    assert_int_equal(step(&w, -3000), PP_SESSION_FAILED);
    world_done(&w);

    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 30);
    (void)step(&w, 30);
    w.pods[0].finished = true;
    w.pods[0].finished_ns = T(3640);
    assert_int_equal(step(&w, 39), PP_SESSION_COLLECTING);
    assert_int_equal(step(&w, 40), PP_SESSION_FINISHING);
    assert_true(told(&w, "PodsFinished", ""));
    world_done(&w);
}

static void assert_ends(const world *w, pp_condition_status finished, pp_condition_status succeeded,
                        pp_condition_status failed)
{
    assert_int_equal(w->did.conditions[PP_CONDITION_FINISHED].status, finished);
    assert_int_equal(w->did.conditions[PP_CONDITION_SUCCEEDED].status, succeeded);
    assert_int_equal(w->did.conditions[PP_CONDITION_FAILED].status, failed);
    assert_true(has_condition(w, "Finished") && has_condition(w, "Failed"));
}

/* kubectl wait --for=condition=Finished returns whatever the end; Succeeded and Failed tell which.
 */
static void test_every_end_is_told(void **state)
{
    (void)state;
    for (int timed = 0; timed < 2; timed++) {
        world w;
        world_init(&w, SPEC);
        (void)step(&w, 1);
        assert_ends(&w, PP_CONDITION_FALSE, PP_CONDITION_UNKNOWN, PP_CONDITION_UNKNOWN);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        (void)step(&w, 21);
        (void)step(&w, 111);
        assert_ends(&w, PP_CONDITION_FALSE, PP_CONDITION_UNKNOWN, PP_CONDITION_UNKNOWN);
        w.obs.stats.samples_complete = w.obs.stats.final_written = true;
        w.obs.stats.final_layers = timed;
        w.obs.stats.final_own = 1;
        assert_int_equal(step(&w, 112), timed ? PP_SESSION_SUCCEEDED : PP_SESSION_FAILED);
        assert_ends(&w, PP_CONDITION_TRUE, timed ? PP_CONDITION_TRUE : PP_CONDITION_FALSE,
                    timed ? PP_CONDITION_FALSE : PP_CONDITION_TRUE);
        assert_string_equal(w.did.conditions[PP_CONDITION_FINISHED].reason,
                            timed ? "Completed" : "NoLayerTimed");
        condition(&w, PP_CONDITION_FAILED, timed ? "Completed" : "NoLayerTimed");
        world_done(&w);
    }
}

/* How a session ends, by what the final solution holds. */
static void test_conclusions(void **state)
{
    (void)state;
    static const struct {
        int64_t layers, means, own;
        int gpu; /* 2: a MIG instance */
        bool off;
        const char *error, *reason;
        pp_session_phase phase;
    } cases[] = {
        {42, 6, 0, 1, false, "away", "Completed", PP_SESSION_SUCCEEDED},
        {42, 0, 0, 1, false, "HTTP 404", "PrometheusUnavailable", PP_SESSION_FAILED},
        {42, 0, 7, 1, false, "HTTP 404", "Completed", PP_SESSION_SUCCEEDED},
        {42, 0, 0, 1, false, NULL, "NoMetrics", PP_SESSION_FAILED},
        {42, 0, 7, 1, true, NULL, "Completed", PP_SESSION_SUCCEEDED},
        {42, 0, 0, 2, false, NULL, "MIGInstance", PP_SESSION_FAILED},
        {42, 6, 0, 2, false, NULL, "Completed", PP_SESSION_SUCCEEDED},
        {42, 0, 0, 0, false, NULL, "NoGPU", PP_SESSION_FAILED},
        {42, 0, 0, 0, true, NULL, "TimedOnly", PP_SESSION_SUCCEEDED},
        {0, 6, 0, 1, false, NULL, "NoLayerTimed", PP_SESSION_FAILED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        w.pods[0].n_gpus = cases[i].gpu > 0;
        w.pods[0].gpus = cases[i].gpu == 2 ? mig_instance : one_gpu;
        w.obs.prometheus_off = cases[i].off;
        w.obs.prometheus_error = cases[i].error;
        (void)step(&w, 21);
        (void)step(&w, 111);
        w.obs.stats.samples_complete = w.obs.stats.final_written = true;
        w.obs.stats.final_layers = cases[i].layers;
        w.obs.stats.final_job_means = cases[i].means;
        w.obs.stats.final_own = cases[i].own;
        assert_int_equal(step(&w, 112), cases[i].phase);
        const pp_condition *c = condition(&w, PP_CONDITION_SUCCEEDED, cases[i].reason);
        assert_true(strcmp(c->reason, "PrometheusUnavailable") != 0 ||
                    strstr(c->message, cases[i].error));
        assert_true(told(&w, cases[i].reason, ""));
        world_done(&w);
    }
}

/* What cannot be worked out is tried again a bounded number of times, and said meanwhile. */
static void test_attribution_fails(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    samples_seen(&w);
    (void)step(&w, 21);
    (void)step(&w, 111);
    w.obs.stats.samples_complete = true;
    assert_int_equal(step(&w, 112), PP_SESSION_FINISHING);
    assert_true(w.did.finalise);
    condition(&w, PP_CONDITION_STALLED, "Finishing");
    w.obs.solve_error = "no room";
    w.obs.solve_failures = 7;
    assert_int_equal(step(&w, 113), PP_SESSION_FINISHING);
    assert_true(w.did.finalise);
    assert_not_stalled(&w);
    (void)step(&w, 173);
    assert_stalled(&w, "AttributionFailing", "The operator's administrator");
    assert_true(told(&w, "AttributionFailing", ""));
    (void)step(&w, 174);
    assert_false(told(&w, "AttributionFailing", "")); /* once */
    w.obs.solve_failures = 8;
    w.obs.store_error = "away";
    assert_int_equal(step(&w, 175), PP_SESSION_FINISHING);
    w.obs.store_error = NULL;
    assert_int_equal(step(&w, 176), PP_SESSION_FAILED);
    condition(&w, PP_CONDITION_SUCCEEDED, "AttributionFailed");
    world_done(&w);
}

static void test_metrics_condition(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    w.obs.prometheus_asked = true;
    w.obs.stats.samples_complete = true; /* nothing is left to ask before the next capture */
    (void)step(&w, 80);                  /* the first was long in coming */
    assert_int_equal(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "WaitingForSamples")->status,
                     PP_CONDITION_UNKNOWN);
    assert_int_equal(step(&w, 109), PP_SESSION_COLLECTING);
    condition(&w, PP_CONDITION_METRICS_AVAILABLE, "WaitingForSamples");
    w.obs.stats.samples_complete = false;
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    condition(&w, PP_CONDITION_METRICS_AVAILABLE, "WaitingForSamples");
    (void)step(&w, 171);
    assert_int_equal(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "NoSamples")->status,
                     PP_CONDITION_FALSE);
    w.pods[0].gpus = mig_instance;
    (void)step(&w, 171);
    assert_non_null(strstr(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "MIGInstance")->message,
                           "use whole GPUs"));
    w.pods[0].gpus = one_gpu;
    w.obs.stats.metrics_seen = 1U << PP_METRIC_GPU_UTIL | 1U << PP_METRIC_GPU_MEM;
    (void)step(&w, 172);
    assert_non_null(strstr(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "MetricsMissing")->message,
                           "SMActive, SMOccupancy, DRAMActive, FP32Active"));
    assert_true(told(&w, "MetricsMissing", ""));
    w.obs.prometheus_error = "connection refused";
    (void)step(&w, 173);
    condition(&w, PP_CONDITION_METRICS_AVAILABLE, "PrometheusUnavailable");
    w.obs.prometheus_error = NULL;
    w.obs.prometheus_warning = "series of MIG instances are left out";
    w.obs.stats.metrics_seen = 0;
    (void)step(&w, 174);
    assert_non_null(strstr(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "NoSamples")->message,
                           "label names; note: series of MIG instances are left out"));
    w.obs.stats.metrics_seen = PP_METRIC_ALL;
    (void)step(&w, 175);
    assert_non_null(strstr(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "SamplesFound")->message,
                           "; note: series of MIG"));
    w.obs.prometheus_warning = NULL;
    (void)step(&w, 176);
    assert_int_equal(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "SamplesFound")->status,
                     PP_CONDITION_TRUE);
    assert_true(w.did.conditions[PP_CONDITION_METRICS_AVAILABLE].transition_ns == T(175));
    w.obs.stats.metrics_partly = 1U << PP_METRIC_SM_ACTIVE | 1U << PP_METRIC_POWER; /* not asked */
    w.obs.stats.gpus = 8;
    w.obs.stats.unseen[PP_METRIC_SM_ACTIVE].count = 6;
    w.obs.stats.unseen[PP_METRIC_POWER].count = 7;
    (void)snprintf(w.obs.stats.unseen[PP_METRIC_SM_ACTIVE].gpu, 97, "GPU-7");
    (void)step(&w, 177); /* a pod may have come just now */
    assert_non_null(
        strstr(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "WaitingForSamples")->message,
               "no sample of SMActive for 6 of 8 profiled GPUs yet"));
    (void)step(&w, 221);
    condition(&w, PP_CONDITION_METRICS_AVAILABLE, "WaitingForSamples");
    (void)step(&w, 223);
    assert_non_null(strstr(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "GPUsMissing")->message,
                           "no sample of SMActive for 6 of 8 profiled GPUs, as GPU-7;"));
    assert_int_equal(condition(&w, PP_CONDITION_METRICS_AVAILABLE, "GPUsMissing")->status,
                     PP_CONDITION_FALSE);
    world_done(&w);
}

/* Two pods: what is said of them while one after the other tells something, and in the end. */
static void test_pm_condition(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    report(&w, 1, 10, 20);
    (void)step(&w, 21);
    assert_false(has_condition(&w, "Sampled")); /* nobody has asked for it */
    w.obs.sampling_asked = true;
    w.obs.n_pods = 0;
    (void)step(&w, 21);
    assert_string_equal(condition(&w, PP_CONDITION_SAMPLED, "WaitingForSamples")->message,
                        "No pod has reported yet");
    w.obs.n_pods = 2;
    w.pods[0].pm_why = "";
    (void)step(&w, 22);
    const pp_condition *c = condition(&w, PP_CONDITION_SAMPLED, "WaitingForSamples");
    assert_true(c->status == PP_CONDITION_UNKNOWN && strstr(c->message, "0 of 2 pods"));
    assert_true(has_condition(&w, "Sampled"));
    w.pods[0].pm = true;
    (void)step(&w, 23);
    condition(&w, PP_CONDITION_SAMPLED, "WaitingForSamples");
    w.pods[1].pm_why = "the driver lets only root read the counters";
    (void)step(&w, 24);
    c = condition(&w, PP_CONDITION_SAMPLED, "NotSampled");
    assert_string_equal(c->message, "1 of 2 pods are not sampled; dlrm-1: "
                                    "the driver lets only root read the counters");
    assert_true(c->status == PP_CONDITION_FALSE && told(&w, "NotSampled", ""));
    (void)step(&w, 25);
    assert_false(told(&w, "NotSampled", "")); /* once is enough */
    w.pods[1].pm = true;                      /* its sampler has ended since */
    (void)step(&w, 26);
    assert_int_equal(condition(&w, PP_CONDITION_SAMPLED, "Sampled")->status, PP_CONDITION_TRUE);
    w.obs.n_pods = 0; /* deleted: what is said of them stays */
    (void)step(&w, 27);
    condition(&w, PP_CONDITION_SAMPLED, "Sampled");
    world_done(&w);
}

/* How right values are: while data come that may change, and is no news. */
static void test_explained_condition(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 21);
    assert_false(has_condition(&w, "Explained"));
    w.obs.stats.judged = 5;
    w.obs.stats.doubted = 1;
    w.obs.stats.least_explained = 0.978;
    (void)snprintf(w.obs.stats.doubt, sizeof w.obs.stats.doubt, "%s", "fp32_active: others use it");
    (void)step(&w, 22);
    const pp_condition *c = condition(&w, PP_CONDITION_EXPLAINED, "NotFinal");
    assert_int_equal(c->status, PP_CONDITION_UNKNOWN);
    assert_false(told(&w, "NotFinal", ""));
    w.obs.stats.final_written = true;
    (void)step(&w, 23);
    c = condition(&w, PP_CONDITION_EXPLAINED, "InDoubt");
    assert_int_equal(c->status, PP_CONDITION_FALSE);
    assert_string_equal(c->message, "In the end, values of layers are withheld for 1 of 5 metrics "
                                    "of GPUs; fp32_active: others use it");
    assert_true(told(&w, "InDoubt", ""));
    w.obs.stats.doubted = 0;
    w.obs.stats.predicted = 4;
    (void)snprintf(w.obs.stats.doubt, sizeof w.obs.stats.doubt, "%s", "gpu_util: it did not vary");
    (void)step(&w, 24);
    c = condition(&w, PP_CONDITION_EXPLAINED, "Predicted");
    assert_int_equal(c->status, PP_CONDITION_TRUE);
    assert_string_equal(c->message, "In the end, values of layers predict 97 % or more of the "
                                    "variance of what was held out, in each of 4 of 5 metrics of "
                                    "GPUs; gpu_util: it did not vary");
    w.obs.stats.least_explained = -0.2;
    (void)step(&w, 25);
    c = condition(&w, PP_CONDITION_EXPLAINED, "LittleExplained");
    assert_true(c->status == PP_CONDITION_UNKNOWN && strstr(c->message, "predict 0 % or more"));
    w.obs.stats.predicted = 0;
    w.obs.stats.least_explained = (double)NAN;
    (void)step(&w, 25);
    c = condition(&w, PP_CONDITION_EXPLAINED, "NothingHeldOut");
    assert_int_equal(c->status, PP_CONDITION_UNKNOWN);
    assert_string_equal(c->message,
                        "In the end, nothing could be held out to hold values of layers "
                        "against; gpu_util: it did not vary");
    w.obs.stats.judged = 0; /* its rows are deleted: what is said of them stays */
    (void)step(&w, 26);
    condition(&w, PP_CONDITION_EXPLAINED, "NothingHeldOut");
    world_done(&w);
}

/* What is solved of the last capture comes a moment after it; not where nothing is sampled. */
static void test_pm_values_are_awaited(void **state)
{
    (void)state;
    for (int denied = 0; denied < 2; denied++) {
        world w;
        world_init(&w, SPEC);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        w.obs.sampling_asked = true;
        w.pods[0].pm_why = denied ? "no CUPTI is loaded" : NULL;
        (void)step(&w, 21);
        assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
        w.obs.stats.samples_complete = true;
        (void)step(&w, 111);
        assert_int_equal(w.did.finalise, denied);
        report(&w, 0, 10, 112); /* a batch has come */
        (void)step(&w, 121.5);
        assert_int_equal(w.did.finalise, denied);
        (void)step(&w, 122);
        assert_true(w.did.finalise);
        final_solution(&w);
        assert_int_equal(step(&w, 123), PP_SESSION_SUCCEEDED);
        condition(&w, PP_CONDITION_SAMPLED, denied ? "NotSampled" : "NoEstimates");
        world_done(&w);
    }
}

static void test_replayed_condition(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 21);
    assert_false(has_condition(&w, "Replayed")); /* nobody has asked for it */
    world_done(&w);

    world_init(&w, REPLAY);
    (void)step(&w, 1);
    assert_string_equal(condition(&w, PP_CONDITION_REPLAYED, "WaitingForReplays")->message,
                        "No pod has reported yet");
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    add_pod(&w, "dlrm-1", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    report(&w, 1, 10, 20);
    w.pods[1].isolated = "";
    (void)step(&w, 21);
    const pp_condition *c = condition(&w, PP_CONDITION_REPLAYED, "WaitingForReplays");
    assert_true(c->status == PP_CONDITION_UNKNOWN && strstr(c->message, "0 of 2 pods"));
    w.pods[0].replays = 9;
    w.pods[1].isolated = "compiled code";
    (void)step(&w, 22);
    c = condition(&w, PP_CONDITION_REPLAYED, "NotReplayed");
    assert_string_equal(c->message,
                        "Layers of 1 of 2 pods are not replayed; dlrm-1: compiled code");
    assert_true(c->status == PP_CONDITION_FALSE && told(&w, "NotReplayed", ""));
    w.pods[1].replays = 1; /* they were, before */
    w.obs.stats.paused_ns = 12500000000;
    (void)step(&w, 23);
    c = condition(&w, PP_CONDITION_REPLAYED, "Replayed");
    assert_int_equal(c->status, PP_CONDITION_TRUE);
    assert_non_null(strstr(c->message, "paused for 12s500ms"));
    w.obs.n_pods = 0; /* deleted: what is said of them stays */
    (void)step(&w, 24);
    condition(&w, PP_CONDITION_REPLAYED, "Replayed");
    world_done(&w);
}

static void test_nothing_was_replayed(void **state)
{
    (void)state;
    world w;
    world_init(&w, REPLAY);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    assert_int_equal(step(&w, 110), PP_SESSION_FINISHING);
    condition(&w, PP_CONDITION_REPLAYED, "WaitingForReplays");
    w.obs.stats.samples_complete = true;
    final_solution(&w);
    assert_int_equal(step(&w, 111), PP_SESSION_SUCCEEDED);
    assert_int_equal(condition(&w, PP_CONDITION_REPLAYED, "NothingReplayed")->status,
                     PP_CONDITION_FALSE);
    world_done(&w);
}

static const char *progress(const world *w, const char *what)
{
    return pp_json_get_string(w->object, "status", "progress", what, NULL);
}

/* While the training is paused nothing is sampled: the end is later by that, and by no more. */
static void test_pauses_move_the_end(void **state)
{
    (void)state;
    world w;
    world_init(&w, REPLAY);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 21);
    assert_true(w.did.ends_at_ns == T(110));
    assert_null(progress(&w, "paused"));
    w.obs.stats.paused_ns = 20000700000; /* what is less than a ms the status does not have */
    (void)step(&w, 50);
    assert_true(w.did.ends_at_ns == T(130));
    assert_string_equal(progress(&w, "paused"), "20s");
    assert_string_equal(progress(&w, "sampled"), "20s/1m40s");
    (void)step(&w, 51);
    w.obs.stats.paused_ns = 0; /* the store is away */
    (void)step(&w, 52);
    assert_true(w.did.ends_at_ns == T(130));
    w.obs.stats.paused_ns = 30000000000;
    assert_int_equal(step(&w, 139), PP_SESSION_COLLECTING);
    assert_true(w.did.ends_at_ns == T(140));
    assert_int_equal(step(&w, 140), PP_SESSION_FINISHING);
    assert_string_equal(progress(&w, "sampled"), "1m40s/1m40s");
    world_done(&w);
}

/* What a pod says of pauses is its own to say: they move the end by no more than was allowed, and
 * that of a session without replays not at all. */
static void test_pauses_that_cannot_be(void **state)
{
    (void)state;
    static const int64_t lies[] = {61 * FIXTURE_SECOND, 900 * FIXTURE_SECOND, INT64_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        world w;
        world_init(&w, REPLAY);
        add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
        report(&w, 0, 10, 20);
        (void)step(&w, 21);
        w.obs.stats.paused_ns = lies[i] / 2;
        (void)step(&w, 22);
        w.obs.stats.paused_ns = lies[i];
        assert_int_equal(step(&w, 23), PP_SESSION_COLLECTING);
        assert_true(w.did.ends_at_ns == T(170));
        (void)step(&w, 24);
        assert_true(w.did.ends_at_ns == T(170));
        report(&w, 0, 10, 170);
        w.pods[0].replaying = true;
        assert_int_equal(step(&w, 170), PP_SESSION_FINISHING);
        world_done(&w);
    }
    world w;
    world_init(&w, SPEC);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 20);
    (void)step(&w, 21);
    const int64_t ends_at = w.did.ends_at_ns;
    w.obs.stats.paused_ns = 20 * FIXTURE_SECOND;
    (void)step(&w, 22);
    assert_true(w.did.ends_at_ns == ends_at);
    assert_null(progress(&w, "paused"));
    world_done(&w);
}

/* Replays that are under way are let end, for as long as the training may be paused and the agent
 * is heard of. */
static void test_replays_are_let_end(void **state)
{
    (void)state;
    world w;
    world_init(&w, REPLAY);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 109);
    w.pods[0].replaying = true;
    (void)step(&w, 109);
    assert_int_equal(step(&w, 111), PP_SESSION_COLLECTING);
    assert_true(w.did.sampling && w.did.requeue_ns == 2 * FIXTURE_SECOND);
    assert_int_equal(step(&w, 138), PP_SESSION_COLLECTING);
    report(&w, 0, 10, 138);
    assert_int_equal(step(&w, 160), PP_SESSION_COLLECTING);
    report(&w, 0, 10, 169);
    assert_int_equal(step(&w, 170), PP_SESSION_FINISHING); /* a minute at most */
    world_done(&w);

    world_init(&w, REPLAY);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 109);
    w.pods[0].replaying = true;
    (void)step(&w, 138);
    assert_int_equal(step(&w, 139), PP_SESSION_FINISHING);
    world_done(&w);

    world_init(&w, REPLAY);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 100);
    w.pods[0].replaying = true;
    w.obs.serving_since_ns = T(131); /* agents kept what came meanwhile, and send it now */
    (void)step(&w, 109);
    assert_int_equal(step(&w, 160), PP_SESSION_COLLECTING);
    assert_int_equal(step(&w, 161), PP_SESSION_FINISHING);
    world_done(&w);

    world_init(&w, REPLAY);
    add_pod(&w, "dlrm-0", FIXTURE_UID, T(2));
    report(&w, 0, 10, 109);
    assert_int_equal(step(&w, 111), PP_SESSION_FINISHING); /* the training goes on */
    world_done(&w);
}

static void test_invalid_spec(void **state)
{
    (void)state;
    world w;
    world_init(&w, "{'selector': {'matchLabels': {'a': 'b'}}, 'duration': '25h'}");
    assert_int_equal(step(&w, 1), PP_SESSION_FAILED);
    const pp_condition *c = condition(&w, PP_CONDITION_ACCEPTED, "InvalidSpec");
    assert_int_equal(c->status, PP_CONDITION_FALSE);
    assert_string_equal(c->message, "spec.duration must be from 1s to 24h");
    assert_true(w.did.n_events == 1 && told(&w, "InvalidSpec", ""));
    assert_false(w.did.sampling);
    world_done(&w);
}

static void test_ttl(void **state)
{
    (void)state;
    world w;
    world_init(&w, "{'selector': {'matchLabels': {'a': 'b'}}, 'duration': '1s', 'deadline': '10s',"
                   " 'ttlSecondsAfterFinished': 30}");
    w.obs.expire_s = 604800; /* its own value wins */
    (void)step(&w, 1);
    assert_true(pp_session_expires_ns(w.session) == 0);
    assert_int_equal(step(&w, 10), PP_SESSION_FAILED);
    assert_true(pp_session_expires_ns(w.session) == T(40));
    world_done(&w);
}

#define SHORT "{'selector': {'matchLabels': {'a': 'b'}}, 'duration': '1s', 'deadline': '10s'}"

/* A session expires by the setting under which it was accepted. */
static void test_expiry_by_the_operators_setting(void **state)
{
    (void)state;
    world w;
    world_init(&w, SHORT);
    w.obs.expire_s = 60;
    (void)step(&w, 1);
    w.obs.expire_s = 5; /* of the sessions to come */
    assert_int_equal(step(&w, 10), PP_SESSION_FAILED);
    assert_true(pp_session_expires_ns(w.session) == T(70));
    /* What its owner says later wins. */
    json_t *spec = json_object_get(w.object, "spec");
    json_object_set_new(spec, "ttlSecondsAfterFinished", json_integer(0));
    read_back(&w);
    assert_true(pp_session_expires_ns(w.session) == T(10));
    world_done(&w);
}

static void test_no_expiry_of_sessions_accepted_without(void **state)
{
    (void)state;
    world w;
    world_init(&w, SHORT);
    (void)step(&w, 1);
    w.obs.expire_s = 60;
    (void)step(&w, 2);
    assert_null(pp_json_get(w.object, "status", "expiresAfterSeconds", NULL));
    assert_int_equal(step(&w, 10), PP_SESSION_FAILED);
    assert_true(pp_session_expires_ns(w.session) == 0);
    world_done(&w);
}

static void test_many_targets(void **state)
{
    (void)state;
    world w;
    world_init(&w, SPEC);
    enum { N = 300 };
    pp_session_pod *pods = calloc(N, sizeof *pods);
    char names[N][16];
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "pod-%03zu", i);
        pods[i] = (pp_session_pod){.name = names[i], .uid = names[i], .created_ns = T(3)};
        if (i != 299)
            pods[i].session_uid = FIXTURE_UID;
    }
    w.obs.pods = pods;
    w.obs.n_pods = N;
    (void)step(&w, 5);
    assert_int_equal(w.did.n_targets, PP_SESSION_MAX_TARGETS);
    assert_string_equal(w.did.targets[0].pod, "pod-299"); /* the one with a problem */
    assert_int_equal(w.did.pods_matched, N);
    for (size_t i = 0; i < N; i++)
        pods[i].session_uid = NULL;
    (void)step(&w, 6);
    assert_true(w.did.n_events <= PP_SESSION_MAX_EVENTS);
    world_done(&w);
    free(pods);
}

/* A pod of which every condition has something to say. */
static void add_skewed_pod(world *w)
{
    static const pp_session_clock skewed = {.shift_ns = FIXTURE_SECOND};
    add_pod(w, "dlrm-0", FIXTURE_UID, T(0));
    w->pods[0].clock = &skewed;
    w->obs.sampling_asked = true;
}

/* A cut-off text in another script must not break the patch. */
static void test_cut_text(void **state)
{
    (void)state;
    world w;
    world_init(&w, REPLAY);
    add_skewed_pod(&w);
    w.obs.stats.judged = 1;
    char text[700];
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 4);
    for (size_t shift = 0; shift < 3; shift++) {
        char shifted[710];
        (void)snprintf(shifted, sizeof shifted, "%.*s%s", (int)shift, "xx", text);
        w.obs.store_error = shifted;
        (void)step(&w, 5);
        const json_t *list = pp_json_get(w.object, "status", "conditions", NULL);
        assert_int_equal(json_array_size(list), PP_CONDITION_COUNT);
        const char *message =
            pp_json_get_string(json_array_get(list, PP_CONDITION_STORED), "message", NULL);
        assert_true(message && strlen(message) > 400);
        (void)step(&w, 6); /* it is the same as before, and told once */
        assert_int_equal(w.did.n_events, 0);
    }
    w.obs.store_error = "\xe2\x82: mend it";
    (void)step(&w, 5);
    const json_t *list = pp_json_get(w.object, "status", "conditions", NULL);
    assert_non_null(strstr(
        pp_json_get_string(json_array_get(list, PP_CONDITION_STORED), "message", NULL), "mend it"));
    world_done(&w);
}

static void test_conditions_are_complete(void **state)
{
    (void)state;
    world w;
    world_init(&w, REPLAY);
    add_skewed_pod(&w);
    w.obs.stats.judged = 1;
    (void)step(&w, 1);
    const json_t *list = pp_json_get(w.object, "status", "conditions", NULL);
    assert_int_equal(json_array_size(list), PP_CONDITION_COUNT);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        assert_true(*pp_json_get_string(c, "reason", NULL) != '\0');
        assert_true(*pp_json_get_string(c, "message", NULL) != '\0');
        assert_string_equal(pp_json_get_string(c, "lastTransitionTime", NULL),
                            "2026-01-21T12:53:21Z");
        assert_int_equal(json_integer_value(json_object_get(c, "observedGeneration")), 3);
    }
    world_done(&w);
}

/* What a person would miss is written soon; figures that grow by themselves may wait. */
static void test_what_matters_of_a_patch(void **state)
{
    (void)state;
    static const struct {
        const char *patch;
        size_t n_events;
        bool matters;
    } cases[] = {
        {"{}", 0, false},
        {"{'status': {'progress': {'sampled': '3s/1m'}}}", 0, false},
        {"{'status': {'counts': {'steps': 7, 'events': 90}, 'targets': []}}", 0, false},
        {"{'status': {'targets': [{'pod': 'p', 'reason': 'ImageNotPulled'}]}}", 1, true},
        {"{'status': {'counts': {'steps': 7, 'podsReporting': 2}}}", 0, true},
        {"{'status': {'pods': '1/2', 'progress': {'sampled': '3s/1m'}}}", 0, true},
        {"{'status': {'conditions': []}}", 0, true},
        {"{'status': {'endsAt': '2026-01-21T12:00:00Z'}}", 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PP_CLEANUP_JSON json_t *patch = fixture_json(cases[i].patch);
        const pp_session_decision decision = {.n_events = cases[i].n_events};
        assert_int_equal(pp_session_status_matters(&decision, patch), cases[i].matters);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_defaults),
    cmocka_unit_test(test_whose_a_pod_is),
    cmocka_unit_test(test_every_field),
    cmocka_unit_test(test_replay_limits),
    cmocka_unit_test(test_replay_has_to_be_allowed),
    cmocka_unit_test(test_dwells_hold_windows),
    cmocka_unit_test(test_shared_specs),
    cmocka_unit_test(test_metadata_is_needed),
    cmocka_unit_test(test_selector),
    cmocka_unit_test(test_containers),
    cmocka_unit_test(test_pod_from_json),
    cmocka_unit_test(test_main_path),
    cmocka_unit_test(test_what_matters_of_a_patch),
    cmocka_unit_test(test_a_retried_job_goes_on),
    cmocka_unit_test(test_pods_to_come),
    cmocka_unit_test(test_agents_cut_off),
    cmocka_unit_test(test_agents_that_come_back),
    cmocka_unit_test(test_complete_or_not),
    cmocka_unit_test(test_refused_batches_are_why),
    cmocka_unit_test(test_wrong_clocks_are_told),
    cmocka_unit_test(test_an_agent_shut_out_by_its_clock_is_told),
    cmocka_unit_test(test_a_wrong_clock_of_prometheus_is_told),
    cmocka_unit_test(test_clocks_of_the_past),
    cmocka_unit_test(test_a_refused_clock_is_why),
    cmocka_unit_test(test_the_deadline_is_why),
    cmocka_unit_test(test_finishing_has_a_deadline),
    cmocka_unit_test(test_finishing_after_a_long_absence),
    cmocka_unit_test(test_restart_loses_nothing),
    cmocka_unit_test(test_late_restart_drains),
    cmocka_unit_test(test_no_pod),
    cmocka_unit_test(test_not_injected),
    cmocka_unit_test(test_other_session_is_named),
    cmocka_unit_test(test_no_pod_matches),
    cmocka_unit_test(test_nearest_pod),
    cmocka_unit_test(test_nearest_of_several_pods),
    cmocka_unit_test(test_no_agent),
    cmocka_unit_test(test_what_is_waited_for),
    cmocka_unit_test(test_one_agent_is_lost),
    cmocka_unit_test(test_agent_not_connected),
    cmocka_unit_test(test_hook_not_loaded),
    cmocka_unit_test(test_prometheus_away_for_a_moment),
    cmocka_unit_test(test_not_explained_yet),
    cmocka_unit_test(test_one_of_two_injected),
    cmocka_unit_test(test_pods_finish_early),
    cmocka_unit_test(test_the_service_is_gone),
    cmocka_unit_test(test_the_operator_lacks_rights),
    cmocka_unit_test(test_the_webhook_is_missing),
    cmocka_unit_test(test_no_layer_is_timed),
    cmocka_unit_test(test_sampling_alone_and_none_is_sampled),
    cmocka_unit_test(test_store_away),
    cmocka_unit_test(test_steps_max),
    cmocka_unit_test(test_more_refusals_than_listed),
    cmocka_unit_test(test_store_lost_everything),
    cmocka_unit_test(test_suspend),
    cmocka_unit_test(test_suspension_is_not_measured),
    cmocka_unit_test(test_many_pauses),
    cmocka_unit_test(test_a_training_that_is_not_there),
    cmocka_unit_test(test_unread),
    cmocka_unit_test(test_suspended_from_the_start),
    cmocka_unit_test(test_deadline_while_collecting),
    cmocka_unit_test(test_stamps_do_not_move_the_session),
    cmocka_unit_test(test_the_beginning_moves_back_only),
    cmocka_unit_test(test_stamps_ahead_delay_no_end),
    cmocka_unit_test(test_every_end_is_told),
    cmocka_unit_test(test_conclusions),
    cmocka_unit_test(test_attribution_fails),
    cmocka_unit_test(test_metrics_condition),
    cmocka_unit_test(test_pm_condition),
    cmocka_unit_test(test_explained_condition),
    cmocka_unit_test(test_pm_values_are_awaited),
    cmocka_unit_test(test_replayed_condition),
    cmocka_unit_test(test_nothing_was_replayed),
    cmocka_unit_test(test_pauses_move_the_end),
    cmocka_unit_test(test_pauses_that_cannot_be),
    cmocka_unit_test(test_replays_are_let_end),
    cmocka_unit_test(test_invalid_spec),
    cmocka_unit_test(test_ttl),
    cmocka_unit_test(test_expiry_by_the_operators_setting),
    cmocka_unit_test(test_no_expiry_of_sessions_accepted_without),
    cmocka_unit_test(test_many_targets),
    cmocka_unit_test(test_cut_text),
    cmocka_unit_test(test_conditions_are_complete),
};

int main(void)
{
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
