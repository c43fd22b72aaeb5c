/* The I/O of leader election: reads and writes the Lease as lease_state decides. */
#include "operator/kube/lease.h"

#include "common/backoff.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"
#include "operator/kube/lease_state.h"

#include <string.h>

enum {
    DEFAULT_LEASE_MS = 15 * 1000,
    DEFAULT_RENEW_MS = 10 * 1000,
    DEFAULT_RETRY_MS = 2 * 1000,
    RELEASE_MS = 5 * 1000,
};
static const int64_t NS_PER_MS = 1000000;

struct pp_kube_lease {
    pp_kube_client *client;
    pp_kube_lease_options options; /**< its strings are the ones below */
    char *ns, *name;
    json_t *owner, *labels, *annotations;
    json_t *object; /**< the Lease as the server last showed it, or NULL */
    pp_lease_state state;
    pp_lease_record writing;
    int64_t sent_ns;
    uv_timer_t timer;
    pp_kube_id call;
    pp_backoff random; /**< for jitter alone */
    char leader[PP_LEASE_TEXT_MAX];
    bool releasing;
    bool closing;
};

static void attempt(pp_kube_lease *lease);
static void release_look(pp_kube_lease *lease);

/* ---- records and objects ---- */

static void copy_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text ? text : "");
}

static void record_of(const json_t *object, pp_lease_record *ret)
{
    *ret = (pp_lease_record){0};
    copy_text(ret->holder, sizeof ret->holder,
              pp_json_get_string(object, "spec", "holderIdentity", NULL));
    copy_text(ret->acquire_time, sizeof ret->acquire_time,
              pp_json_get_string(object, "spec", "acquireTime", NULL));
    copy_text(ret->renew_time, sizeof ret->renew_time,
              pp_json_get_string(object, "spec", "renewTime", NULL));
    ret->duration_s = json_integer_value(pp_json_get(object, "spec", "leaseDurationSeconds", NULL));
    ret->transitions = json_integer_value(pp_json_get(object, "spec", "leaseTransitions", NULL));
}

static json_t *spec_of(const pp_lease_record *r)
{
    return json_pack("{s:s, s:I, s:s, s:s, s:I}", "holderIdentity", r->holder,
                     "leaseDurationSeconds", (json_int_t)r->duration_s, "acquireTime",
                     r->acquire_time, "renewTime", r->renew_time, "leaseTransitions",
                     (json_int_t)r->transitions);
}

/** Puts `marks` (NULL: none) among what metadata has under `key`. */
static int mark(json_t *object, const char *key, const json_t *marks)
{
    json_t *metadata = json_object_get(object, "metadata");
    if (!marks)
        return 0;
    if (!json_is_object(json_object_get(metadata, key)) &&
        json_object_set_new(metadata, key, json_object()) < 0)
        return -1;
    return json_object_update(json_object_get(metadata, key), (json_t *)(uintptr_t)marks);
}

/** The Lease to send: the server's with our spec, so that an older resourceVersion is a conflict.
 */
static json_t *object_with(const pp_kube_lease *lease, const pp_lease_record *record)
{
    json_t *object = NULL;
    if (lease->object) {
        object = json_deep_copy(lease->object);
    } else {
        object =
            json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "coordination.k8s.io/v1", "kind",
                      "Lease", "metadata", "name", lease->name, "namespace", lease->ns);
        if (object && lease->owner)
            json_object_set_new(json_object_get(object, "metadata"), "ownerReferences",
                                json_pack("[O]", lease->owner));
    }
    if (object && (json_object_set_new(object, "spec", spec_of(record)) < 0 ||
                   mark(object, "labels", lease->labels) < 0 ||
                   mark(object, "annotations", lease->annotations) < 0)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static void keep_object(pp_kube_lease *lease, json_t *object)
{
    json_decref(lease->object);
    lease->object = json_incref(object);
}

/* ---- telling ---- */

static void tell_error(const pp_kube_lease *lease, const pp_error *error)
{
    if (lease->options.on_error && !lease->closing)
        lease->options.on_error(lease->options.user, error);
}

static void tell_leader(pp_kube_lease *lease)
{
    const char *holder = lease->state.observed.holder;
    if (!*holder || strcmp(holder, lease->leader) == 0)
        return;
    copy_text(lease->leader, sizeof lease->leader, holder);
    if (lease->options.on_leader && !lease->closing)
        lease->options.on_leader(lease->options.user, lease->leader);
}

static void check_lost(pp_kube_lease *lease)
{
    if (!pp_lease_lost(&lease->state, pp_time_monotonic()))
        return;
    lease->leader[0] = '\0';
    if (lease->options.on_stopped && !lease->closing)
        lease->options.on_stopped(lease->options.user);
}

/* ---- tries ---- */

static void on_timer(uv_timer_t *timer)
{
    pp_kube_lease *lease = timer->data;
    if (lease->call && lease->state.leading) { /* the deadline, with a try still under way */
        pp_kube_call_cancel(lease->client, lease->call);
        lease->call = 0;
    }
    check_lost(lease);
    if (!lease->closing && !lease->releasing && !lease->call)
        attempt(lease);
}

/** Milliseconds until our term ends unless it is renewed. */
static int64_t deadline_in_ms(const pp_kube_lease *lease)
{
    int64_t end = lease->state.renewed_ns + lease->state.renew_deadline_ns;
    int64_t left = (end - pp_time_monotonic() + NS_PER_MS - 1) / NS_PER_MS;
    return left > 0 ? left : 0;
}

static void arm(pp_kube_lease *lease, int64_t ms)
{
    if (lease->closing || lease->releasing)
        return;
    if (lease->state.leading && deadline_in_ms(lease) < ms)
        ms = deadline_in_ms(lease);
    uv_update_time(lease->timer.loop);
    uv_timer_start(&lease->timer, on_timer, (uint64_t)ms, 0);
}

/** While one try is under way the timer only guards the deadline. */
static void guard_deadline(pp_kube_lease *lease)
{
    if (lease->state.leading)
        arm(lease, deadline_in_ms(lease));
    else
        uv_timer_stop(&lease->timer);
}

/** The pause: regular for the leader, spread out by up to 1.2 of itself again for the others. */
static void try_later(pp_kube_lease *lease)
{
    int64_t ms = lease->state.retry_ns / NS_PER_MS;
    if (!lease->state.leading)
        ms += pp_backoff_random(&lease->random, 0, ms + ms / 5);
    arm(lease, ms);
}

static int start(pp_kube_lease *lease, pp_kube_verb verb, json_t *body, pp_kube_done_fn done,
                 int64_t timeout_ms, pp_error *err)
{
    pp_kube_call call = {.verb = verb,
                         .resource = &PP_KUBE_LEASES,
                         .ns = lease->ns,
                         .name = verb == PP_KUBE_CREATE ? NULL : lease->name,
                         .body = body,
                         .timeout_ms = timeout_ms,
                         .done = done,
                         .user = lease};
    return pp_kube_call_start(lease->client, &call, &lease->call, err);
}

static void failed(pp_kube_lease *lease, const pp_error *error)
{
    tell_error(lease, error);
    if (lease->closing || lease->releasing)
        return;
    check_lost(lease);
    try_later(lease);
}

static void on_written(void *user, json_t *object, const pp_error *error)
{
    pp_kube_lease *lease = user;
    lease->call = 0;
    if (error) {
        json_decref(lease->object); /* somebody else may have written: look at it anew */
        lease->object = NULL;
        failed(lease, error);
        return;
    }
    keep_object(lease, object);
    if (pp_lease_written(&lease->state, &lease->writing, lease->sent_ns, pp_time_monotonic())) {
        if (lease->options.on_started)
            lease->options.on_started(lease->options.user);
        if (lease->closing || lease->releasing)
            return;
    }
    tell_leader(lease);
    if (lease->closing || lease->releasing)
        return;
    check_lost(lease);
    try_later(lease);
}

static int64_t call_timeout_ms(const pp_kube_lease *lease)
{
    return lease->state.renew_deadline_ns / NS_PER_MS / 2;
}

static void write_ours(pp_kube_lease *lease)
{
    char now[40];
    pp_error err = {0};
    pp_time_format(pp_time_now(), 6, now, sizeof now);
    pp_lease_fill(&lease->state, now, &lease->writing);
    PP_CLEANUP_JSON json_t *body = object_with(lease, &lease->writing);
    lease->sent_ns = pp_time_monotonic();
    pp_kube_verb verb = lease->object ? PP_KUBE_UPDATE : PP_KUBE_CREATE;
    int rc = body ? start(lease, verb, body, on_written, call_timeout_ms(lease), &err)
                  : pp_error_nomem(&err);
    if (rc < 0)
        failed(lease, &err);
    else
        guard_deadline(lease);
}

static void on_seen(void *user, json_t *object, const pp_error *error)
{
    pp_kube_lease *lease = user;
    lease->call = 0;
    if (error && error->code != PP_ERR_NOT_FOUND) {
        failed(lease, error);
        return;
    }
    keep_object(lease, error ? NULL : object);
    pp_lease_record record;
    record_of(lease->object, &record);
    pp_lease_action action =
        pp_lease_observe(&lease->state, lease->object ? &record : NULL, pp_time_monotonic());
    check_lost(lease);
    if (!lease->closing && !lease->releasing)
        tell_leader(lease);
    if (lease->closing || lease->releasing)
        return;
    if (action == PP_LEASE_WAIT)
        try_later(lease);
    else
        write_ours(lease);
}

static void attempt(pp_kube_lease *lease)
{
    pp_error err = {0};
    if (lease->state.leading && lease->object) { /* what we wrote last is enough to renew it */
        write_ours(lease);
        return;
    }
    if (start(lease, PP_KUBE_GET, NULL, on_seen, call_timeout_ms(lease), &err) < 0)
        failed(lease, &err);
    else
        guard_deadline(lease);
}

/* ---- release ---- */

static void released(pp_kube_lease *lease)
{
    uv_timer_stop(&lease->timer);
    pp_kube_call_cancel(lease->client, lease->call);
    lease->call = 0;
    if (lease->options.on_released && !lease->closing)
        lease->options.on_released(lease->options.user);
}

static void on_release_late(uv_timer_t *timer)
{
    released(timer->data);
}

static void on_release_written(void *user, json_t *object, const pp_error *error)
{
    (void)object;
    pp_kube_lease *lease = user;
    lease->call = 0;
    if (error)
        tell_error(lease, error);
    if (!lease->closing)
        released(lease);
}

/** Nothing is handed over unless the server says that it is ours. */
static void on_release_seen(void *user, json_t *object, const pp_error *error)
{
    pp_kube_lease *lease = user;
    lease->call = 0;
    pp_lease_record record;
    record_of(object, &record);
    if (error || strcmp(record.holder, lease->state.identity) != 0) {
        released(lease);
        return;
    }
    keep_object(lease, object);
    record.holder[0] = '\0';
    record.duration_s = 1;
    pp_time_format(pp_time_now(), 6, record.renew_time, sizeof record.renew_time);
    (void)snprintf(record.acquire_time, sizeof record.acquire_time, "%.40s", record.renew_time);
    PP_CLEANUP_JSON json_t *body = object_with(lease, &record);
    if (!body || start(lease, PP_KUBE_UPDATE, body, on_release_written, RELEASE_MS, NULL) < 0)
        released(lease);
}

static void release_look(pp_kube_lease *lease)
{
    if (start(lease, PP_KUBE_GET, NULL, on_release_seen, RELEASE_MS, NULL) < 0)
        released(lease);
}

void pp_kube_lease_release(pp_kube_lease *lease)
{
    if (lease->closing || lease->releasing)
        return;
    lease->releasing = true;
    pp_kube_call_cancel(lease->client, lease->call);
    lease->call = 0;
    bool led = lease->state.leading;
    lease->state.leading = false;
    if (led && lease->options.on_stopped)
        lease->options.on_stopped(lease->options.user);
    if (lease->closing)
        return;
    uv_timer_start(&lease->timer, on_release_late, RELEASE_MS, 0);
    release_look(lease);
}

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
    pp_kube_lease *lease = handle->data;
    json_decref(lease->owner);
    json_decref(lease->labels);
    json_decref(lease->annotations);
    json_decref(lease->object);
    free(lease->ns);
    free(lease->name);
    free(lease);
}

static int check(const pp_kube_lease_options *o, pp_error *err)
{
    if (!o->name || !o->identity || !*o->identity || strlen(o->identity) >= PP_LEASE_TEXT_MAX)
        return pp_error_field(err, "identity", "a name and an identity of at most %d bytes",
                              PP_LEASE_TEXT_MAX - 1);
    if (!(o->retry_ms < o->renew_deadline_ms && o->renew_deadline_ms < o->lease_ms))
        return pp_error_field(err, "lease_ms", "must be above renew_deadline_ms above retry_ms");
    return 0;
}

static void set_defaults(pp_kube_lease_options *o)
{
    o->lease_ms = o->lease_ms ? o->lease_ms : DEFAULT_LEASE_MS;
    o->renew_deadline_ms = o->renew_deadline_ms ? o->renew_deadline_ms : DEFAULT_RENEW_MS;
    o->retry_ms = o->retry_ms ? o->retry_ms : DEFAULT_RETRY_MS;
}

pp_kube_lease *pp_kube_lease_new(pp_kube_client *client, const pp_kube_lease_options *options,
                                 pp_error *err)
{
    pp_kube_lease_options o = *options;
    set_defaults(&o);
    if (check(&o, err) < 0)
        return NULL;
    pp_kube_lease *lease = calloc(1, sizeof *lease);
    char *ns = strdup(o.ns ? o.ns : pp_kube_client_namespace(client));
    char *name = strdup(o.name);
    if (!lease || !ns || !name) {
        free(lease);
        free(ns);
        free(name);
        (void)pp_error_nomem(err);
        return NULL;
    }
    pp_lease_state_init(&lease->state, o.identity, o.lease_ms, o.renew_deadline_ms, o.retry_ms);
    pp_backoff_init(&lease->random, 1, 2, 0);
    lease->client = client;
    lease->ns = ns;
    lease->name = name;
    lease->owner = o.owner ? json_deep_copy(o.owner) : NULL;
    lease->labels = o.labels ? json_deep_copy(o.labels) : NULL;
    lease->annotations = o.annotations ? json_deep_copy(o.annotations) : NULL;
    o.ns = o.name = o.identity = NULL;
    o.owner = o.labels = o.annotations = NULL;
    lease->options = o;
    uv_timer_init(pp_kube_client_loop(client), &lease->timer);
    lease->timer.data = lease;
    uv_timer_start(&lease->timer, on_timer, 0, 0);
    return lease;
}

void pp_kube_lease_free(pp_kube_lease *lease)
{
    if (!lease || lease->closing)
        return;
    lease->closing = true;
    pp_kube_call_cancel(lease->client, lease->call);
    uv_close((uv_handle_t *)&lease->timer, on_closed);
}
