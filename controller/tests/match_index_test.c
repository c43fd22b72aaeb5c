/*
 * The index against the definitions that it saves walking for: after each of many random changes,
 * every pod's holder and every session's pods are what a walk over everything says they are.
 */
#include "controller/match_index.h"
#include "controller/tests/fixtures.h"

#include <string.h>

enum { PODS = 24, SESSIONS = 10, ROUNDS = 4000, CHECK_EVERY = 7 };

typedef struct world_pod {
    char uid[64];
    const char *ns;
    json_t *labels;
    pp_inject_pod_view view;
    bool there;
} world_pod;

typedef struct world {
    uint32_t random;
    unsigned asked; /* of the namespaces */
    pp_match_index *index;
    world_pod pods[PODS];
    pp_session *sessions[SESSIONS];
    char uids[SESSIONS][64];
} world;

static unsigned pick(world *w, unsigned n)
{
    w->random = w->random * 1664525U + 1013904223U;
    return (w->random >> 8) % n;
}

static const char *pick_text(world *w, const char *const *list, unsigned n)
{
    return list[pick(w, n)];
}

static const char *const spaces[] = {"ml", "nlp"};
static const char *const apps[] = {"a", "b", "c"};
static const char *const tiers[] = {"gold", "iron"};

/* ---- what may happen ---- */

static json_t *random_selector(world *w)
{
    json_t *selector = json_object();
    if (pick(w, 2))
        json_object_set_new(selector, "matchLabels",
                            json_pack("{s:s}", "app", pick_text(w, apps, 3)));
    if (pick(w, 4) == 0)
        (void)json_object_set_new(
            selector, "matchLabels",
            json_pack("{s:s, s:s}", "app", pick_text(w, apps, 3), "tier", pick_text(w, tiers, 2)));
    static const char *const rules[] = {
        "{'key': 'app', 'operator': 'In', 'values': ['a', 'b', 'a']}",
        "{'key': 'tier', 'operator': 'In', 'values': ['iron']}",
        "{'key': 'tier', 'operator': 'NotIn', 'values': ['iron']}",
        "{'key': 'tier', 'operator': 'Exists'}",
        "{'key': 'app', 'operator': 'DoesNotExist'}",
    };
    if (json_object_size(selector) == 0 || pick(w, 3) == 0)
        json_object_set_new(selector, "matchExpressions",
                            json_pack("[o]", fixture_json(rules[pick(w, 5)])));
    return selector;
}

static pp_session *random_session(world *w, unsigned i)
{
    static const char *const phases[] = {"Pending",   "Collecting", "Collecting",
                                         "Finishing", "Succeeded",  "Failed"};
    json_t *spec = json_pack("{s:o, s:s}", "selector", random_selector(w), "duration", "90s");
    if (pick(w, 4) == 0)
        json_object_set_new(spec, "containers", json_pack("[s]", pick(w, 2) ? "c" : "cc"));
    json_t *object = fixture_object(spec, json_pack("{s:s}", "phase", phases[pick(w, 6)]));
    json_t *metadata = json_object_get(object, "metadata");
    char name[16];
    (void)snprintf(name, sizeof name, "s%u", i);
    json_object_set_new(metadata, "uid", json_string(w->uids[i]));
    json_object_set_new(metadata, "name", json_string(name));
    json_object_set_new(metadata, "namespace", json_string(spaces[i % 2]));
    pp_session *session = NULL;
    assert_int_equal(pp_session_decode(object, &session, NULL), 0);
    session->created_ns += (int64_t)pick(w, 3) * FIXTURE_SECOND;
    json_decref(object);
    return session;
}

static void put_session(world *w, unsigned i)
{
    pp_session *old = w->sessions[i];
    pp_session *now = random_session(w, i);
    if (old && pick(w, 2)) { /* only its status has changed, as mostly */
        pp_session *same = NULL;
        PP_CLEANUP_JSON json_t *object = fixture_object(
            json_incref(old->spec), json_pack("{s:s}", "phase", pp_session_phase_name(now->phase)));
        json_t *metadata = json_object_get(object, "metadata");
        json_object_set_new(metadata, "uid", json_string(old->uid));
        json_object_set_new(metadata, "name", json_string(old->name));
        json_object_set_new(metadata, "namespace", json_string(old->namespace_));
        assert_int_equal(pp_session_decode(object, &same, NULL), 0);
        same->created_ns = old->created_ns;
        (void)pp_session_free(now);
        now = same;
    }
    w->sessions[i] = now;
    assert_int_equal(pp_match_put_session(w->index, now, NULL), 0);
    (void)pp_session_free(old);
}

static void drop_session(world *w, unsigned i)
{
    pp_session *old = w->sessions[i];
    if (!old)
        return;
    w->sessions[i] = NULL;
    pp_match_drop_session(w->index, old->uid);
    (void)pp_session_free(old);
}

static void put_pod(world *w, unsigned i)
{
    world_pod *pod = &w->pods[i];
    json_t *old = pod->labels;
    (void)snprintf(pod->uid, sizeof pod->uid, "b0d00000-0000-4000-8000-%012u", i);
    pod->ns = spaces[pick(w, 8) == 0 ? 1 - i % 2 : i % 2];
    pod->labels = pick(w, 8) == 0 ? NULL : json_object();
    if (pod->labels && pick(w, 4))
        json_object_set_new(pod->labels, "app", json_string(pick_text(w, apps, 3)));
    if (pod->labels && pick(w, 2))
        json_object_set_new(pod->labels, "tier", json_string(pick_text(w, tiers, 2)));
    bool injected = pick(w, 3) == 0;
    pod->view = (pp_inject_pod_view){.namespace_ = pod->ns,
                                     .labels = pod->labels,
                                     .session_uid = injected ? w->uids[pick(w, SESSIONS)] : NULL,
                                     .containers = pick(w, 2) ? "c" : NULL,
                                     .hooked = injected || pick(w, 2)};
    pod->there = true;
    assert_int_equal(pp_match_put_pod(w->index, pod->uid, &pod->view, pod, NULL), 0);
    json_decref(old);
}

static void drop_pod(world *w, unsigned i)
{
    world_pod *pod = &w->pods[i];
    if (!pod->there)
        return;
    pp_match_drop_pod(w->index, pod->uid);
    pod->there = false;
    json_decref(pod->labels);
    pod->labels = NULL;
}

static void change(world *w)
{
    switch (pick(w, 8)) {
    case 0:
        drop_session(w, pick(w, SESSIONS));
        break;
    case 1:
    case 2:
        put_session(w, pick(w, SESSIONS));
        break;
    case 3:
        drop_pod(w, pick(w, PODS));
        break;
    default:
        put_pod(w, pick(w, PODS));
    }
}

/* ---- the definitions ---- */

static bool is_of(const world_pod *pod, const pp_session *s)
{
    bool injected = pod->view.session_uid && strcmp(pod->view.session_uid, s->uid) == 0;
    return strcmp(pod->ns, s->namespace_) == 0 && !pp_session_final(s) &&
           (injected || pp_selector_matches(&s->selector, pod->labels));
}

typedef struct seen {
    const world *w;
    unsigned count;
} seen;

static bool see_pod(void *user, const void *object, const pp_session *holder)
{
    seen *s = user;
    const world_pod *pod = object;
    assert_true(pod->there);
    assert_ptr_equal(holder, pp_match_holder(s->w->index, pod->uid));
    s->count++;
    return true;
}

static bool see_session(void *user, const pp_session *session)
{
    seen *s = user;
    assert_non_null(session);
    s->count++;
    return true;
}

static void check_pod(const world *w, const world_pod *pod)
{
    const pp_session *const *all = (const pp_session *const *)w->sessions;
    const pp_session *holder = pp_inject_holder(all, SESSIONS, &pod->view);
    assert_ptr_equal(pp_match_holder(w->index, pod->uid), holder);
    assert_ptr_equal(pp_match_pod(w->index, pod->uid), pod);
    assert_ptr_equal(pp_match_new_pod(w->index, pod->ns, pod->labels),
                     pp_inject_matching(all, SESSIONS, pod->ns, pod->labels));
    unsigned expected = 0;
    for (unsigned i = 0; i < SESSIONS; i++)
        expected += w->sessions[i] && is_of(pod, w->sessions[i]);
    seen s = {.w = w};
    pp_match_each_session(w->index, pod->uid, see_session, &s);
    assert_int_equal(s.count, expected);
}

static bool count_pod(void *user, const void *object)
{
    seen *s = user;
    assert_string_equal(((const world_pod *)object)->ns, spaces[s->w->asked]);
    s->count++;
    return true;
}

static void check_namespace(world *w)
{
    unsigned expected = 0;
    seen s = {.w = w};
    w->asked = pick(w, 2);
    for (unsigned i = 0; i < PODS; i++)
        expected += w->pods[i].there && strcmp(w->pods[i].ns, spaces[w->asked]) == 0;
    pp_match_each_of_namespace(w->index, spaces[w->asked], count_pod, &s);
    assert_int_equal(s.count, expected);
}

static void check(const world *w)
{
    for (unsigned i = 0; i < PODS; i++) {
        if (w->pods[i].there)
            check_pod(w, &w->pods[i]);
        else
            assert_null(pp_match_holder(w->index, w->pods[i].uid));
    }
    for (unsigned i = 0; i < SESSIONS; i++) {
        const pp_session *s = w->sessions[i];
        seen found = {.w = w};
        unsigned expected = 0;
        for (unsigned k = 0; s && k < PODS; k++)
            expected += w->pods[k].there && is_of(&w->pods[k], s);
        assert_ptr_equal(pp_match_session(w->index, w->uids[i]), s);
        pp_match_each_pod(w->index, w->uids[i], see_pod, &found);
        assert_int_equal(found.count, expected);
    }
}

static void test_a_random_world(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 3; seed++) {
        world *w = calloc(1, sizeof *w);
        assert_non_null(w);
        w->random = seed;
        w->index = pp_match_index_new(NULL, NULL);
        for (unsigned i = 0; i < SESSIONS; i++)
            (void)snprintf(w->uids[i], sizeof w->uids[i], "5e550000-0000-4000-8000-%012u", i);
        for (unsigned i = 0; i < ROUNDS; i++) {
            change(w);
            if (i % CHECK_EVERY)
                continue;
            check(w);
            check_namespace(w);
        }
        check(w);
        pp_match_index_free(w->index);
        for (unsigned i = 0; i < SESSIONS; i++)
            (void)pp_session_free(w->sessions[i]);
        for (unsigned i = 0; i < PODS; i++)
            json_decref(w->pods[i].labels);
        free(w);
    }
}

/* ---- who is told ---- */

typedef struct telling {
    pp_match_index *index;
    const char *uid;
    const pp_session *holder;
    unsigned times;
} telling;

static void on_moved(void *user, const void *object)
{
    telling *t = user;
    assert_ptr_equal(object, t);
    t->holder = pp_match_holder(t->index, t->uid);
    t->times++;
}

static pp_session *session_of(const char *uid, const char *phase)
{
    json_t *object = fixture_object(
        fixture_json("{'selector': {'matchLabels': {'app': 'a'}}, 'duration': '90s'}"),
        json_pack("{s:s}", "phase", phase));
    json_object_set_new(json_object_get(object, "metadata"), "uid", json_string(uid));
    pp_session *s = NULL;
    assert_int_equal(pp_session_decode(object, &s, NULL), 0);
    json_decref(object);
    return s;
}

/* A pod is told of once for each time that it changes hands, and not when it comes or goes. */
static void test_moves_are_told(void **state)
{
    (void)state;
    static const char first[] = "5e550000-0000-4000-8000-000000000001";
    static const char second[] = "5e550000-0000-4000-8000-000000000002";
    telling t = {.uid = "pod"};
    t.index = pp_match_index_new(on_moved, &t);
    PP_CLEANUP_JSON json_t *labels = json_pack("{s:s}", "app", "a");
    pp_inject_pod_view pod = {.namespace_ = "ml", .labels = labels, .hooked = true};
    assert_int_equal(pp_match_put_pod(t.index, "pod", &pod, &t, NULL), 0);
    pp_session *a = session_of(first, "Collecting");
    pp_session *b = session_of(second, "Pending");
    b->created_ns += FIXTURE_SECOND;
    assert_int_equal(pp_match_put_session(t.index, a, NULL), 0);
    assert_int_equal(t.times, 1);
    assert_ptr_equal(t.holder, a);
    assert_int_equal(pp_match_put_session(t.index, b, NULL), 0);
    assert_int_equal(t.times, 1); /* the older one has it */

    pp_session *ending = session_of(first, "Finishing");
    assert_int_equal(pp_match_put_session(t.index, ending, NULL), 0);
    (void)pp_session_free(a);
    assert_int_equal(t.times, 2);
    assert_ptr_equal(t.holder, b);
    pp_match_drop_session(t.index, second);
    assert_int_equal(t.times, 3);
    assert_null(t.holder);

    pod.session_uid = second; /* whose session comes after its pod */
    assert_int_equal(pp_match_put_pod(t.index, "pod", &pod, &t, NULL), 0);
    assert_int_equal(pp_match_put_session(t.index, b, NULL), 0);
    assert_int_equal(t.times, 4);
    assert_ptr_equal(t.holder, b);
    pp_match_drop_pod(t.index, "pod");
    pp_match_drop_session(t.index, second);
    assert_int_equal(t.times, 4);
    pp_match_index_free(t.index);
    (void)pp_session_free(ending);
    (void)pp_session_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_random_world),
        cmocka_unit_test(test_moves_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
