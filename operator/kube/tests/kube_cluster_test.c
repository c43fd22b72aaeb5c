/* The Kubernetes client against the real API server that KUBECONFIG names; skipped without one. */
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "operator/kube/informer.h"
#include "operator/kube/lease.h"
#include "operator/kube/token_review.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77, TICK_MS = 20, PATIENCE_S = 300, LEASE_MS = 9000 };
static const pp_kube_resource SERVICE_ACCOUNTS = {"", "v1", "serviceaccounts"};

typedef struct world {
    uv_loop_t loop;
    uv_timer_t tick; /* so that a turn of the loop never waits for long */
    pp_kube_config config;
    pp_http_client *http;
    pp_kube_client *client;
    char ns[64];
} world;

static world W;

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/** Turns the loop until the condition holds; minutes without are a failure. */
#define RUN_UNTIL(condition)                                                                       \
    do {                                                                                           \
        int64_t patience_ends = pp_time_monotonic() + PATIENCE_S * INT64_C(1000000000);            \
        while (!(condition)) {                                                                     \
            uv_run(&W.loop, UV_RUN_ONCE);                                                          \
            if (pp_time_monotonic() > patience_ends)                                               \
                fail_msg("%s did not come true", #condition);                                      \
        }                                                                                          \
    } while (0)

/* ---- one call at a time ---- */

typedef struct answer {
    bool done;
    json_t *object;
    pp_error error;
} answer;

static void on_answer(void *user, json_t *object, const pp_error *error)
{
    answer *a = user;
    a->done = true;
    a->object = error ? NULL : json_incref(object);
    a->error = error ? *error : (pp_error){0};
}

static answer call(pp_kube_client *client, pp_kube_call options)
{
    answer a = {0};
    pp_error err = {0};
    options.done = on_answer;
    options.user = &a;
    int rc = pp_kube_call_start(client, &options, NULL, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(rc, 0);
    RUN_UNTIL(a.done);
    return a;
}

static json_t *must(pp_kube_call options)
{
    answer a = call(W.client, options);
    assert_string_equal(a.error.message, "");
    assert_non_null(a.object);
    return a.object;
}

static pp_error must_fail(pp_kube_call options)
{
    answer a = call(W.client, options);
    assert_null(a.object);
    assert_true(a.error.code != PP_OK);
    return a.error;
}

static json_t *config_map(const char *name, const char *value)
{
    return json_pack("{s:s, s:s, s:{s:s, s:{s:s}}, s:{s:s}}", "apiVersion", "v1", "kind",
                     "ConfigMap", "metadata", "name", name, "labels", "pp-test", "yes", "data", "a",
                     value);
}

static void create_map(const char *name, const char *value)
{
    PP_CLEANUP_JSON json_t *body = config_map(name, value);
    json_decref(must((pp_kube_call){
        .verb = PP_KUBE_CREATE, .resource = &PP_KUBE_CONFIGMAPS, .ns = W.ns, .body = body}));
}

static void patch_map(const char *name, const char *value)
{
    PP_CLEANUP_JSON json_t *body = json_pack("{s:{s:s}}", "data", "a", value);
    json_decref(must((pp_kube_call){.verb = PP_KUBE_PATCH_MERGE,
                                    .resource = &PP_KUBE_CONFIGMAPS,
                                    .ns = W.ns,
                                    .name = name,
                                    .body = body}));
}

static void delete_map(const char *name)
{
    json_decref(must((pp_kube_call){
        .verb = PP_KUBE_DELETE, .resource = &PP_KUBE_CONFIGMAPS, .ns = W.ns, .name = name}));
}

static pp_kube_call map_call(pp_kube_verb verb, const char *name, const json_t *body)
{
    return (pp_kube_call){
        .verb = verb, .resource = &PP_KUBE_CONFIGMAPS, .ns = W.ns, .name = name, .body = body};
}

static void test_verbs(void **state)
{
    (void)state;
    create_map("verbs", "1");
    PP_CLEANUP_JSON json_t *first = must(map_call(PP_KUBE_GET, "verbs", NULL));
    patch_map("verbs", "2");
    PP_CLEANUP_JSON json_t *patch =
        json_pack("[{s:s, s:s, s:s}]", "op", "replace", "path", "/data/a", "value", "3");
    PP_CLEANUP_JSON json_t *third = must(map_call(PP_KUBE_PATCH_JSON, "verbs", patch));
    assert_string_equal(pp_json_get_string(third, "data", "a", NULL), "3");
    assert_int_equal(must_fail(map_call(PP_KUBE_UPDATE, "verbs", first)).code, PP_ERR_CONFLICT);
    json_object_set_new(json_object_get(third, "data"), "a", json_string("4"));
    PP_CLEANUP_JSON json_t *fourth = must(map_call(PP_KUBE_UPDATE, "verbs", third));
    assert_string_equal(pp_json_get_string(fourth, "data", "a", NULL), "4");
    PP_CLEANUP_JSON json_t *again = config_map("verbs", "1");
    assert_int_equal(must_fail(map_call(PP_KUBE_CREATE, NULL, again)).code, PP_ERR_CONFLICT);
    delete_map("verbs");
    assert_int_equal(must_fail(map_call(PP_KUBE_GET, "verbs", NULL)).code, PP_ERR_NOT_FOUND);
    PP_CLEANUP_JSON json_t *bad = config_map("Not_A_Name", "1");
    pp_error err = must_fail(map_call(PP_KUBE_CREATE, NULL, bad));
    assert_int_equal(err.code, PP_ERR_INVALID);
    assert_string_equal(err.field, "metadata.name");
    assert_non_null(strstr(err.message, "POST /api/v1/namespaces/"));
}

static void test_pages_by_hand(void **state)
{
    (void)state;
    create_map("page-1", "1");
    create_map("page-2", "1");
    pp_kube_call list = map_call(PP_KUBE_LIST, NULL, NULL);
    list.label_selector = "pp-test in (yes)";
    list.limit = 1;
    PP_CLEANUP_JSON json_t *one = must(list);
    assert_int_equal(json_array_size(json_object_get(one, "items")), 1);
    list.continue_token = pp_json_get_string(one, "metadata", "continue", NULL);
    assert_non_null(list.continue_token);
    PP_CLEANUP_JSON json_t *two = must(list);
    assert_int_equal(json_array_size(json_object_get(two, "items")), 1);
    list.continue_token = "rubbish";
    assert_int_equal(must_fail(list).code, PP_ERR_INVALID);
    delete_map("page-1");
    delete_map("page-2");
}

/* ---- informers ---- */

typedef struct seen {
    pp_buf log;
    bool synced;
    pp_error error;
} seen;

static void *decode(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    (void)err;
    const char *a = pp_json_get_string(object, "data", "a", NULL);
    return strdup(a ? a : "-");
}

static void say(void *user, char what, const char *key, const void *object)
{
    seen *s = user;
    (void)pp_buf_printf(&s->log, NULL, "%c%s=%s ", what, strchr(key, '/') + 1,
                        (const char *)object);
}

static void on_add(void *user, const char *key, const void *object)
{
    say(user, '+', key, object);
}

static void on_update(void *user, const char *key, const void *old, const void *object)
{
    (void)old;
    say(user, '~', key, object);
}

static void on_delete(void *user, const char *key, const void *last)
{
    say(user, '-', key, last);
}

static void on_synced(void *user)
{
    ((seen *)user)->synced = true;
}

static void on_error(void *user, const pp_error *error)
{
    ((seen *)user)->error = *error;
}

static bool logged(const seen *s, const char *text)
{
    return s->log.data && strstr(s->log.data, text);
}

static pp_kube_informer *watch_maps(seen *s, bool no_watch_list)
{
    pp_kube_informer_options options = {
        .resource = &PP_KUBE_CONFIGMAPS,
        .ns = W.ns,
        .label_selector = "pp-test=yes",
        .page_limit = 1,
        .no_watch_list = no_watch_list,
        .handler = {decode, free, on_add, on_update, on_delete, on_synced, on_error, s}};
    pp_buf_init(&s->log, 1 << 16);
    pp_error err = {0};
    pp_kube_informer *informer = pp_kube_informer_new(W.client, &options, &err);
    assert_non_null(informer);
    return informer;
}

static void follow_maps(bool no_watch_list)
{
    seen s = {0};
    create_map("one", "1");
    create_map("two", "1");
    pp_kube_informer *informer = watch_maps(&s, no_watch_list);
    RUN_UNTIL(s.synced);
    assert_string_equal(s.log.data, "+one=1 +two=1 ");
    assert_int_equal(pp_kube_informer_count(informer), 2);
    create_map("three", "1");
    RUN_UNTIL(logged(&s, "+three=1 "));
    patch_map("two", "2");
    RUN_UNTIL(logged(&s, "~two=2 "));
    delete_map("one");
    RUN_UNTIL(logged(&s, "-one=1 "));
    char key[128];
    (void)snprintf(key, sizeof key, "%s/two", W.ns);
    assert_string_equal(pp_kube_informer_get(informer, key), "2");
    pp_kube_informer_stats stats = pp_kube_informer_get_stats(informer);
    assert_int_equal(stats.lists, 1);
    assert_int_equal(stats.watches, 1); /* a streamed list goes on as the watch */
    assert_int_equal(stats.errors, 0);
    assert_string_equal(s.error.message, "");
    pp_kube_informer_free(informer);
    delete_map("two");
    delete_map("three");
    pp_buf_done(&s.log);
}

static void test_informer_by_streamed_list(void **state)
{
    (void)state;
    follow_maps(false);
}

static void test_informer_by_pages(void **state)
{
    (void)state;
    follow_maps(true);
}

static void test_informer_of_an_absent_kind(void **state)
{
    (void)state;
    static const pp_kube_resource nowhere = {"nowhere.example", "v1", "things"};
    seen s = {0};
    pp_kube_informer_options options = {
        .resource = &nowhere,
        .handler = {decode, free, on_add, on_update, on_delete, on_synced, on_error, &s}};
    pp_kube_informer *informer = pp_kube_informer_new(W.client, &options, NULL);
    RUN_UNTIL(s.error.code);
    assert_int_equal(s.error.code, PP_ERR_NOT_FOUND);
    assert_false(pp_kube_informer_synced(informer));
    pp_kube_informer_free(informer);
}

static void test_many_watches_share_a_connection(void **state)
{
    (void)state;
    seen s[6] = {0};
    pp_kube_informer *informers[6];
    uint64_t before = pp_http_client_connections(W.http);
    for (int i = 0; i < 6; i++)
        informers[i] = watch_maps(&s[i], i % 2);
    for (int i = 0; i < 6; i++)
        RUN_UNTIL(s[i].synced);
    assert_true(pp_http_client_connections(W.http) - before <= 1);
    create_map("shared", "1");
    for (int i = 0; i < 6; i++) {
        RUN_UNTIL(logged(&s[i], "+shared=1 "));
        pp_kube_informer_free(informers[i]);
        pp_buf_done(&s[i].log);
    }
    delete_map("shared");
}

/* ---- leases ---- */

typedef struct contender {
    pp_kube_lease *lease;
    int started, stopped;
    bool released;
    char leader[64];
    pp_error error;
} contender;

static void on_started(void *user)
{
    ((contender *)user)->started++;
}

static void on_stopped(void *user)
{
    ((contender *)user)->stopped++;
}

static void on_released(void *user)
{
    ((contender *)user)->released = true;
}

static void on_leader(void *user, const char *identity)
{
    contender *c = user;
    (void)snprintf(c->leader, sizeof c->leader, "%s", identity);
}

static void on_lease_error(void *user, const pp_error *error)
{
    ((contender *)user)->error = *error;
}

static void contend(contender *c, const char *identity)
{
    pp_kube_lease_options options = {
        .ns = W.ns,
        .name = "leader",
        .identity = identity,
        .lease_ms = LEASE_MS,
        .renew_deadline_ms = 6000,
        .retry_ms = 500,
        .on_started = on_started,
        .on_stopped = on_stopped,
        .on_released = on_released,
        .on_leader = on_leader,
        .on_error = on_lease_error,
        .user = c,
    };
    pp_error err = {0};
    c->lease = pp_kube_lease_new(W.client, &options, &err);
    assert_non_null(c->lease);
}

static void run_for(int64_t ms)
{
    int64_t end = pp_time_monotonic() + ms * 1000000;
    RUN_UNTIL(pp_time_monotonic() >= end);
}

static void test_two_contenders(void **state)
{
    (void)state;
    contender a = {0}, b = {0}, c = {0};
    contend(&a, "a");
    RUN_UNTIL(a.started == 1);
    contend(&b, "b");
    RUN_UNTIL(strcmp(b.leader, "a") == 0);
    run_for(LEASE_MS + 1000); /* longer than a lease: it is renewed */
    assert_int_equal(a.started, 1);
    assert_int_equal(a.stopped, 0);
    assert_int_equal(b.started, 0);

    int64_t at = pp_time_monotonic();
    pp_kube_lease_release(a.lease);
    assert_int_equal(a.stopped, 1);
    RUN_UNTIL(a.released && b.started == 1);
    /* Handed over, not run out. */
    assert_true(pp_time_monotonic() - at < LEASE_MS * INT64_C(1000000));
    pp_kube_lease_free(a.lease);

    contend(&c, "c");
    RUN_UNTIL(strcmp(c.leader, "b") == 0);
    pp_kube_lease_free(b.lease); /* as if killed: no hand-over */
    at = pp_time_monotonic();
    RUN_UNTIL(c.started == 1);
    assert_true(pp_time_monotonic() - at > 2000 * INT64_C(1000000));
    PP_CLEANUP_JSON json_t *lease = must((pp_kube_call){
        .verb = PP_KUBE_GET, .resource = &PP_KUBE_LEASES, .ns = W.ns, .name = "leader"});
    assert_string_equal(pp_json_get_string(lease, "spec", "holderIdentity", NULL), "c");

    /* Somebody else takes it while c leads: c must notice and stop. */
    PP_CLEANUP_JSON json_t *steal = json_pack("{s:{s:s}}", "spec", "holderIdentity", "thief");
    json_decref(must((pp_kube_call){.verb = PP_KUBE_PATCH_MERGE,
                                    .resource = &PP_KUBE_LEASES,
                                    .ns = W.ns,
                                    .name = "leader",
                                    .body = steal}));
    RUN_UNTIL(c.stopped == 1);
    assert_string_equal(c.error.message[0] ? "told" : "", "told"); /* the conflict */
    pp_kube_lease_free(c.lease);
}

/* ---- token reviews ---- */

typedef struct verdict {
    int count;
    bool authenticated;
    char username[128], reason[256], ns[64], pod_name[64], pod_uid[64];
    pp_error error;
} verdict;

static void copy_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
}

static void on_review(void *user, const pp_kube_identity *who, const pp_error *error)
{
    verdict *v = user;
    v->count++;
    v->error = error ? *error : (pp_error){0};
    v->authenticated = who && who->authenticated;
    if (!who)
        return;
    copy_text(v->username, sizeof v->username, who->username);
    copy_text(v->reason, sizeof v->reason, who->reason);
    copy_text(v->ns, sizeof v->ns, who->ns);
    copy_text(v->pod_name, sizeof v->pod_name, who->pod_name);
    copy_text(v->pod_uid, sizeof v->pod_uid, who->pod_uid);
}

static verdict review(pp_kube_reviewer *reviewer, const char *token)
{
    verdict v = {0};
    pp_error err = {0};
    assert_int_equal(pp_kube_review(reviewer, token, on_review, &v, &err), 0);
    assert_int_equal(v.count, 0);
    RUN_UNTIL(v.count == 1);
    return v;
}

/** A pod that no node takes: a token can be bound to it all the same. */
static json_t *create_pod(void)
{
    PP_CLEANUP_JSON json_t *body =
        json_pack("{s:s, s:s, s:{s:s}, s:{s:s, s:[{s:s, s:s}]}}", "apiVersion", "v1", "kind", "Pod",
                  "metadata", "name", "bound", "spec", "nodeName", "no-such-node", "containers",
                  "name", "c", "image", "none.example/none");
    for (;;) { /* the namespace's default service account is made a moment after it */
        answer a =
            call(W.client,
                 (pp_kube_call){
                     .verb = PP_KUBE_CREATE, .resource = &PP_KUBE_PODS, .ns = W.ns, .body = body});
        if (a.object)
            return a.object;
        assert_int_equal(a.error.code, PP_ERR_DENIED);
        run_for(200);
    }
}

static char *make_token(const char *audience, const json_t *pod)
{
    PP_CLEANUP_JSON json_t *body =
        json_pack("{s:s, s:s, s:{s:[s], s:i, s:{s:s, s:s, s:s, s:s}}}", "apiVersion",
                  "authentication.k8s.io/v1", "kind", "TokenRequest", "spec", "audiences", audience,
                  "expirationSeconds", 600, "boundObjectRef", "apiVersion", "v1", "kind", "Pod",
                  "name", "bound", "uid", pp_json_get_string(pod, "metadata", "uid", NULL));
    PP_CLEANUP_JSON json_t *made = must((pp_kube_call){.verb = PP_KUBE_CREATE,
                                                       .resource = &SERVICE_ACCOUNTS,
                                                       .ns = W.ns,
                                                       .name = "default",
                                                       .subresource = "token",
                                                       .body = body});
    const char *token = pp_json_get_string(made, "status", "token", NULL);
    assert_non_null(token);
    return strdup(token);
}

static void test_token_review(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = create_pod();
    PP_CLEANUP_FREE char *good = make_token("precisionprobe", pod);
    PP_CLEANUP_FREE char *foreign = make_token("somebody-else", pod);
    pp_kube_reviewer *reviewer = pp_kube_reviewer_new(W.client, "precisionprobe", NULL);
    assert_non_null(reviewer);
    for (int i = 0; i < 2; i++) { /* asked, then kept */
        verdict v = review(reviewer, good);
        assert_true(v.authenticated);
        assert_string_equal(v.ns, W.ns);
        assert_string_equal(v.pod_name, "bound");
        assert_string_equal(v.pod_uid, pp_json_get_string(pod, "metadata", "uid", NULL));
        assert_non_null(strstr(v.username, "system:serviceaccount:"));
    }
    verdict v = review(reviewer, foreign);
    assert_int_equal(v.error.code, PP_OK);
    assert_false(v.authenticated);
    assert_true(v.reason[0] != '\0');
    assert_false(review(reviewer, "rubbish").authenticated);
    pp_error err = {0};
    assert_int_equal(pp_kube_review(reviewer, "", on_review, &v, &err), -1);
    pp_kube_reviewer_free(reviewer);
}

static void test_token_review_is_kept(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *pod = must((pp_kube_call){
        .verb = PP_KUBE_GET, .resource = &PP_KUBE_PODS, .ns = W.ns, .name = "bound"});
    PP_CLEANUP_FREE char *good = make_token("precisionprobe", pod);
    pp_kube_reviewer *reviewer = pp_kube_reviewer_new(W.client, "precisionprobe", NULL);
    assert_true(review(reviewer, good).authenticated);
    size_t active = pp_http_client_active(W.http);
    verdict v = {0};
    assert_int_equal(pp_kube_review(reviewer, good, on_review, &v, NULL), 0);
    assert_int_equal(pp_http_client_active(W.http), active); /* nothing is asked */
    RUN_UNTIL(v.count == 1);
    assert_true(v.authenticated);
    pp_kube_reviewer_free(reviewer);
}

/* ---- events ---- */

static json_t *events_of(const char *name)
{
    char selector[128];
    (void)snprintf(selector, sizeof selector, "regarding.name=%s", name);
    return must((pp_kube_call){
        .verb = PP_KUBE_LIST, .resource = &PP_KUBE_EVENTS, .ns = W.ns, .field_selector = selector});
}

static void test_events(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_kube_recorder *recorder =
        pp_kube_recorder_new(W.client, "precisionprobe.io/operator", "test", &err);
    assert_non_null(recorder);
    pp_kube_object_ref ref = {
        .api_version = "v1", .kind = "ConfigMap", .ns = W.ns, .name = "subject"};
    for (int i = 0; i < 3; i++)
        pp_kube_event(recorder, &ref, PP_KUBE_EVENT_WARNING, "InjectionRefused", "Inject",
                      "container %s is not found", "trainer");
    pp_kube_event(recorder, &ref, PP_KUBE_EVENT_NORMAL, "Accepted", "Accept", "fine");
    RUN_UNTIL(pp_kube_recorder_get_stats(recorder).sent == 3); /* two created, one series */
    PP_CLEANUP_JSON json_t *list = events_of("subject");
    const json_t *items = json_object_get(list, "items");
    assert_int_equal(json_array_size(items), 2);
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        const json_t *event = json_array_get(items, i);
        if (strcmp(pp_json_get_string(event, "reason", NULL), "InjectionRefused") != 0)
            continue;
        found = true;
        assert_string_equal(pp_json_get_string(event, "type", NULL), "Warning");
        assert_string_equal(pp_json_get_string(event, "note", NULL),
                            "container trainer is not found");
        assert_int_equal(json_integer_value(pp_json_get(event, "series", "count", NULL)), 3);
    }
    assert_true(found);
    pp_kube_recorder_free(recorder);
}

static void test_event_allowance(void **state)
{
    (void)state;
    pp_kube_recorder *recorder =
        pp_kube_recorder_new(W.client, "precisionprobe.io/operator", "test", NULL);
    pp_kube_object_ref ref = {.api_version = "v1", .kind = "ConfigMap", .ns = W.ns, .name = "loud"};
    for (int i = 0; i < 40; i++)
        pp_kube_event(recorder, &ref, PP_KUBE_EVENT_NORMAL, "Loud", "Shout", "number %d", i);
    RUN_UNTIL(pp_kube_recorder_get_stats(recorder).sent == 25);
    assert_int_equal(pp_kube_recorder_get_stats(recorder).dropped, 15);
    pp_kube_recorder_free(recorder);
}

/* ---- trust ---- */

static void test_unknown_authority_is_refused(void **state)
{
    (void)state;
    pp_kube_config config = W.config;
    config.ca_file = config.ca_pem = NULL;
    pp_http_client *http = pp_http_client_new(&W.loop, NULL, NULL);
    pp_kube_client *client = pp_kube_client_new(http, &config, NULL);
    answer a = call(client, (pp_kube_call){.verb = PP_KUBE_LIST, .resource = &PP_KUBE_NAMESPACES});
    assert_null(a.object);
    assert_int_equal(a.error.code, PP_ERR_UNAVAILABLE);
    assert_non_null(strstr(a.error.message, "certificate"));
    pp_kube_client_free(client);
    pp_http_client_free(http);
}

static void test_no_credentials_are_refused(void **state)
{
    (void)state;
    pp_kube_config config = W.config;
    config.cert_file = config.cert_pem = config.key_file = config.key_pem = NULL;
    char token[] = "rubbish";
    config.token = token;
    pp_http_client *http = pp_http_client_new(&W.loop, NULL, NULL);
    pp_kube_client *client = pp_kube_client_new(http, &config, NULL);
    answer a = call(client, (pp_kube_call){.verb = PP_KUBE_LIST, .resource = &PP_KUBE_NAMESPACES});
    assert_int_equal(a.error.code, PP_ERR_UNAUTHORIZED);
    pp_kube_client_free(client);
    pp_http_client_free(http);
}

/* ---- the run ---- */

static int group_setup(void **state)
{
    (void)state;
    pp_error err = {0};
    uv_loop_init(&W.loop);
    uv_timer_init(&W.loop, &W.tick);
    uv_timer_start(&W.tick, on_tick, TICK_MS, TICK_MS);
    if (pp_kube_config_load(&W.config, NULL, &err) < 0)
        fail_msg("%s", err.message);
    W.http = pp_http_client_new(&W.loop, NULL, &err);
    W.client = pp_kube_client_new(W.http, &W.config, &err);
    (void)snprintf(W.ns, sizeof W.ns, "pp-kube-test-%d", (int)getpid());
    PP_CLEANUP_JSON json_t *body = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind",
                                             "Namespace", "metadata", "name", W.ns);
    json_decref(must(
        (pp_kube_call){.verb = PP_KUBE_CREATE, .resource = &PP_KUBE_NAMESPACES, .body = body}));
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *now = json_pack("{s:i}", "gracePeriodSeconds", 0);
    answer a = call(W.client, (pp_kube_call){.verb = PP_KUBE_DELETE,
                                             .resource = &PP_KUBE_PODS,
                                             .ns = W.ns,
                                             .name = "bound",
                                             .body = now});
    json_decref(a.object);
    json_decref(must(
        (pp_kube_call){.verb = PP_KUBE_DELETE, .resource = &PP_KUBE_NAMESPACES, .name = W.ns}));
    pp_kube_client_free(W.client);
    pp_http_client_free(W.http);
    pp_kube_config_done(&W.config);
    uv_close((uv_handle_t *)&W.tick, NULL);
    uv_run(&W.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&W.loop), 0);
    return 0;
}

int main(void)
{
    if (!getenv("KUBECONFIG"))
        return SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verbs),
        cmocka_unit_test(test_pages_by_hand),
        cmocka_unit_test(test_informer_by_streamed_list),
        cmocka_unit_test(test_informer_by_pages),
        cmocka_unit_test(test_informer_of_an_absent_kind),
        cmocka_unit_test(test_many_watches_share_a_connection),
        cmocka_unit_test(test_two_contenders),
        cmocka_unit_test(test_token_review),
        cmocka_unit_test(test_token_review_is_kept),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_event_allowance),
        cmocka_unit_test(test_unknown_authority_is_refused),
        cmocka_unit_test(test_no_credentials_are_refused),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
