#include "operator/samples/agent_connections.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/batch_rules.h"
#include "operator/cache/session_runtime.h"
#include "operator/cache/watches.h"
#include "operator/pods/admission.h"
#include "operator/pods/silent.h"
#include "operator/samples/clocks.h"
#include "operator/samples/record.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/*
 * Agents: who is it (TokenReview, then: does its pod carry the hook), which session has its pod,
 * what does it send, and the acknowledgement once the store has it. A batch that the store cannot
 * take now is not answered: its connection is closed, and the agent sends it again to whoever
 * leads.
 */

/** One agent's connection. */
typedef struct pp_pod_peers pp_pod_peers;
typedef struct pp_peer {
    pp_http_id connection; /**< key */
    pp_http_identity identity;
    char session_uid[64]; /**< of the session that it was told last; "": none */
    bool sampling;        /**< and whether to sample */
    bool displaced;       /**< its place is another's: it is about to go */
    pp_clock clock;       /**< its node's */
    UT_hash_handle hh;
    pp_pod_peers *pod;
    struct pp_peer *prev, *next; /**< of the same pod */
} pp_peer;

/** The connections of one pod; there is one at least. */
struct pp_pod_peers {
    char pod_uid[64]; /**< key */
    pp_peer *peers;
    UT_hash_handle hh;
};

/* ---- who is it ---- */

typedef struct question {
    pp_pending_call context;
    pp_http_id id;
} question;

static void answer(pp_operator *op, pp_http_id id, pp_http_decision decision, const char *message)
{
    pp_http_authorize_respond(op->server, id, decision, NULL, message);
}

static const pp_pod *pod_of(const pp_operator *op, const char *ns, const char *name)
{
    char key[330];
    (void)snprintf(key, sizeof key, "%s/%s", ns, name);
    return pp_kube_informer_get(op->pods, key);
}

/* The session that a pod says it was injected for. The annotation is the pod's owner's to write: a
 * session of another namespace is none. */
static const pp_session *session_of(const pp_operator *op, const pp_pod *pod)
{
    const pp_session *session =
        pod && pod->session_uid ? pp_match_session(op->matches, pod->session_uid) : NULL;
    return session && strcmp(session->namespace_, pod->ns) == 0 ? session : NULL;
}

/* A pod that carries the hook waits for sessions all its life. */
static bool may_speak(const pp_operator *op, const pp_pod *pod)
{
    const pp_session *session = session_of(op, pod);
    return pod->hooked || (session && pp_session_takes_batches(session));
}

static void decide(pp_operator *op, pp_http_id id, const pp_kube_identity *who)
{
    if (!who->authenticated) {
        answer(op, id, PP_HTTP_UNAUTHORIZED, who->reason);
        return;
    }
    if (!*who->pod_name || !*who->pod_uid) {
        answer(op, id, PP_HTTP_FORBIDDEN, "the token is not bound to a pod");
        return;
    }
    const pp_pod *pod = pod_of(op, who->ns, who->pod_name);
    if (!pod || strcmp(pod->uid, who->pod_uid) != 0) {
        answer(op, id, PP_HTTP_UNAVAILABLE, "the pod is not known here yet");
        return;
    }
    if (!may_speak(op, pod)) {
        answer(op, id, PP_HTTP_FORBIDDEN, "the pod does not carry the hook");
        return;
    }
    pp_http_identity identity = {{0}, {0}, {0}};
    (void)snprintf(identity.namespace_name, sizeof identity.namespace_name, "%s", who->ns);
    (void)snprintf(identity.pod, sizeof identity.pod, "%s", who->pod_name);
    (void)snprintf(identity.pod_uid, sizeof identity.pod_uid, "%s", who->pod_uid);
    pp_http_authorize_respond(op->server, id, PP_HTTP_GRANTED, &identity, NULL);
}

static void on_reviewed(void *user, const pp_kube_identity *who, const pp_error *error)
{
    question *q = user;
    pp_operator *op = q->context.op;
    pp_rights_tell(op, PP_RIGHT_TOKEN_REVIEWS, error);
    if (error) {
        pp_warn(NULL, "reviewing an agent's token: %s", error->message);
        answer(op, q->id, PP_HTTP_UNAVAILABLE, "the token cannot be reviewed now");
    } else {
        decide(op, q->id, who);
    }
    pp_pending_call_free(q);
}

void pp_connections_authorize(pp_operator *op, pp_http_id id, const char *token)
{
    question *q = pp_pending_call_new(op, sizeof *q, NULL);
    pp_error err = {0};
    if (!q) {
        answer(op, id, PP_HTTP_UNAVAILABLE, "out of memory");
        return;
    }
    q->id = id;
    if (pp_kube_review(op->reviewer, token, on_reviewed, q, &err) < 0) {
        pp_pending_call_free(q);
        answer(op, id, err.code == PP_ERR_INVALID ? PP_HTTP_UNAUTHORIZED : PP_HTTP_UNAVAILABLE,
               err.message);
    }
}

/* ---- connections ---- */

static void welcome(pp_operator *op, pp_peer *peer, const char *uid, const pp_session *session,
                    bool sampling)
{
    pp_inject_options options;
    pp_admission_options(op, NULL, &options);
    PP_CLEANUP_JSON json_t *settings = session ? pp_inject_settings(session, &options) : NULL;
    /* An agent of an earlier release knows no such questions. */
    pp_wire_welcome text = {
        .hook = true,
        .sampling = sampling,
        .settings = settings,
        .time = (int64_t)pp_clock_ask(&peer->clock, pp_time_monotonic()),
    };
    (void)snprintf(text.session, sizeof text.session, "%s", uid);
    pp_http_ingest_welcome(op->server, peer->connection, &text);
}

static void enqueue_session(pp_operator *op, const char *session_uid)
{
    const pp_runtime *runtime = pp_runtime_find(op, session_uid);
    if (runtime)
        pp_watches_enqueue_soon(op, runtime->key);
}

/*
 * Says which session has the peer's pod, where that or the wish to sample has changed. The session
 * before is ended by name first: an agent of an earlier release knows no other.
 */
static void tell_peer(pp_operator *op, pp_peer *peer, bool first)
{
    const pp_pod *pod = pod_of(op, peer->identity.namespace_name, peer->identity.pod);
    bool same = pod && strcmp(pod->uid, peer->identity.pod_uid) == 0;
    const pp_session *session = same ? pp_match_holder(op->matches, pod->uid) : NULL;
    const pp_runtime *runtime = session ? pp_runtime_get(op, session) : NULL;
    const char *uid = session ? session->uid : "";
    bool sampling =
        session && !session->suspend && (!runtime || !runtime->decided || runtime->sampling);
    bool change = strcmp(peer->session_uid, uid) != 0;
    if (!first && !change && peer->sampling == sampling)
        return;
    if (change && *peer->session_uid) {
        welcome(op, peer, peer->session_uid, NULL, false);
        enqueue_session(op, peer->session_uid);
    }
    welcome(op, peer, uid, session, sampling);
    (void)snprintf(peer->session_uid, sizeof peer->session_uid, "%s", uid);
    peer->sampling = sampling;
    enqueue_session(op, uid);
}

static void tell_to_leave(pp_operator *op, const pp_peer *peer, const pp_pod *pod)
{
    if (pod->agent_alone)
        pp_http_ingest_leave(op->server, peer->connection,
                             pod->session_uid ? pod->session_uid : peer->session_uid);
}

static pp_pod_peers *peers_of(const pp_operator *op, const char *pod_uid)
{
    pp_pod_peers *found = NULL;
    HASH_FIND_STR(op->peers_by_pod, pod_uid, found);
    return found;
}

static pp_peer *new_peer(pp_operator *op, pp_http_id connection, const pp_http_identity *identity)
{
    pp_pod_peers *pod = peers_of(op, identity->pod_uid);
    pp_peer *peer = calloc(1, sizeof *peer);
    if (!pod && (pod = calloc(1, sizeof *pod))) {
        (void)snprintf(pod->pod_uid, sizeof pod->pod_uid, "%s", identity->pod_uid);
        HASH_ADD_STR(op->peers_by_pod, pod_uid, pod);
    }
    if (!pod || !peer) {
        if (pod && !pod->peers) {
            HASH_DEL(op->peers_by_pod, pod);
            free(pod);
        }
        free(peer);
        return NULL;
    }
    peer->connection = connection;
    peer->identity = *identity;
    peer->pod = pod;
    HASH_ADD(hh, op->peers, connection, sizeof peer->connection, peer);
    DL_APPEND(pod->peers, peer);
    return peer;
}

void pp_connections_connected(pp_operator *op, pp_http_id connection,
                              const pp_http_identity *identity)
{
    bool serving = op->leading && !op->stopping;
    const pp_pod *pod = serving ? pod_of(op, identity->namespace_name, identity->pod) : NULL;
    pp_peer *peer = pod && may_speak(op, pod) ? new_peer(op, connection, identity) : NULL;
    if (!peer) {
        pp_http_ingest_close(op->server, connection, 1013, "no session for this pod");
        return;
    }
    if (pod->session_uid)
        (void)snprintf(peer->session_uid, sizeof peer->session_uid, "%s", pod->session_uid);
    pp_silent_connected(op, identity->pod_uid, true);
    tell_peer(op, peer, true);
    tell_to_leave(op, peer, pod);
}

pp_http_id pp_connections_displace(pp_operator *op, const pp_http_identity *identity)
{
    if (!pp_match_holder(op->matches, identity->pod_uid))
        return 0;
    for (pp_peer *peer = op->peers; peer; peer = peer->hh.next) {
        if (peer->displaced || *peer->session_uid)
            continue;
        peer->displaced = true;
        return peer->connection;
    }
    return 0;
}

static pp_peer *find_peer(const pp_operator *op, pp_http_id connection)
{
    pp_peer *peer = NULL;
    HASH_FIND(hh, op->peers, &connection, sizeof connection, peer);
    return peer;
}

static void ask_time(pp_operator *op, pp_peer *peer)
{
    const int64_t now = pp_time_monotonic();
    if (pp_clock_is_due(&peer->clock, now))
        pp_http_ingest_ask_time(op->server, peer->connection,
                                (int64_t)pp_clock_ask(&peer->clock, now));
}

void pp_connections_time(pp_operator *op, pp_http_id connection, const pp_wire_time *answer)
{
    pp_peer *peer = find_peer(op, connection);
    const pp_clock_trip trip = {.received_ns = pp_time_monotonic(),
                                .real_ns = answer->realtime,
                                .monotonic_ns = answer->monotonic};
    if (!peer)
        return;
    if (pp_clock_answered(&peer->clock, (uint64_t)answer->id, &trip) < 0)
        pp_debug(peer->identity.pod, "an answer about the time does not count");
    ask_time(op, peer);
}

void pp_connections_hook(pp_operator *op, pp_http_id connection, const pp_wire_hook *hook)
{
    const pp_peer *peer = find_peer(op, connection);
    if (peer)
        pp_silent_told(op, peer->identity.pod_uid, hook);
}

static void peer_free(pp_operator *op, pp_peer *peer)
{
    pp_pod_peers *pod = peer->pod;
    HASH_DEL(op->peers, peer);
    DL_DELETE(pod->peers, peer);
    free(peer);
    if (pod->peers)
        return;
    pp_silent_connected(op, pod->pod_uid, false);
    HASH_DEL(op->peers_by_pod, pod);
    free(pod);
}

void pp_connections_disconnected(pp_operator *op, pp_http_id connection)
{
    pp_peer *peer = find_peer(op, connection);
    if (!peer)
        return;
    char uid[sizeof peer->session_uid];
    (void)snprintf(uid, sizeof uid, "%s", peer->session_uid);
    peer_free(op, peer);
    enqueue_session(op, uid);
}

void pp_connections_tell_all(pp_operator *op)
{
    pp_peer *peer;
    pp_peer *next;
    HASH_ITER(hh, op->peers, peer, next)
    {
        tell_peer(op, peer, false);
    }
}

void pp_connections_pod_moved(pp_operator *op, const pp_pod *pod)
{
    /* Who does not lead tells nothing: agents may be kept meanwhile, and hear of it afterwards. */
    pp_pod_peers *of_pod = op->server && op->leading ? peers_of(op, pod->uid) : NULL;
    pp_peer *peer;
    DL_FOREACH(of_pod ? of_pod->peers : NULL, peer)
    {
        tell_peer(op, peer, false);
    }
}

static bool tell_pod(void *user, const void *object, const pp_session *holder)
{
    (void)holder;
    pp_connections_pod_moved(user, object);
    return true;
}

void pp_connections_tell_session(pp_operator *op, const char *session_uid)
{
    pp_match_each_pod(op->matches, session_uid, tell_pod, op);
}

void pp_connections_pod_changed(pp_operator *op, const pp_pod *pod)
{
    const pp_pod_peers *of_pod = op->server ? peers_of(op, pod->uid) : NULL;
    const pp_peer *peer;
    DL_FOREACH(of_pod ? of_pod->peers : NULL, peer)
    {
        tell_to_leave(op, peer, pod);
    }
}

bool pp_connections_has_peer(const pp_operator *op, const char *pod_uid)
{
    return peers_of(op, pod_uid) != NULL;
}

void pp_connections_forget_all(pp_operator *op)
{
    pp_peer *peer;
    pp_peer *next;
    HASH_ITER(hh, op->peers, peer, next)
    {
        peer_free(op, peer);
    }
}

/* ---- batches ---- */

/** A batch on its way into the store. */
typedef struct delivery {
    pp_operator *op;
    pp_http_id connection;
    char session_uid[64];
    uint64_t serial; /* of the work that counts it */
    char pod_uid[64];
    pp_wire_batch *batch;
} delivery;

static void delivery_free(delivery *d)
{
    if (d)
        pp_wire_batch_free(d->batch);
    free(d);
}

/* What the batch says about its pod, for the session's status and for the questions to Prometheus.
 */
static void take_note(pp_runtime *runtime, const delivery *d)
{
    const pp_wire_batch *batch = d->batch;
    pp_runtime_target *target = pp_runtime_get_target(runtime, d->pod_uid);
    if (!target)
        return;
    for (size_t i = 0; i < batch->process.gpus.count; i++) {
        const char *gpu = batch->process.gpus.items[i];
        (void)pp_strings_add_once(&target->gpus, gpu, NULL);
        (void)pp_plan_need(runtime->plan, gpu, batch->capture.start, batch->capture.end, NULL);
    }
    if (target->rank < 0 || batch->process.rank < target->rank)
        target->rank = batch->process.rank;
    if (!pp_wire_is_pm_only(batch)) { /* which is of no capture */
        target->open_capture = !batch->capture.last;
        target->replaying |= batch->capture.dwell != 0; /* that none replays the store knows */
    }
    target->last_batch_ns = pp_time_now();
    runtime->stats_dirty = true;
    pp_runtime_unsolved(runtime);
}

static void on_stored(void *user, bool inserted, const pp_error *error)
{
    delivery *d = user;
    pp_operator *op = d->op;
    pp_runtime *runtime = pp_runtime_find(op, d->session_uid);
    if (runtime && runtime->serial == d->serial)
        runtime->deliveries--;
    if (!error) {
        if (inserted) {
            pp_meter_add(op->meters.batches, 1);
            pp_meter_add(op->meters.events, (double)pp_store_count_events(d->batch));
        }
        if (runtime) {
            const pp_session *session = pp_kube_informer_get(op->sessions, runtime->key);
            /* Its figures are dirty already: it will be looked at when it is time to read them. */
            bool expected =
                runtime->stats_dirty && session && pp_runtime_is_steady(runtime, session);
            take_note(runtime, d);
            if (!expected)
                pp_watches_enqueue_soon(op, runtime->key);
        }
        if (op->server)
            pp_http_ingest_ack(op->server, d->connection, d->batch->instance, d->batch->seq);
    } else if (error->code == PP_ERR_INVALID || error->code == PP_ERR_TOO_LARGE) {
        pp_warn(runtime ? runtime->key : NULL, "a batch is refused: %s", error->message);
        if (runtime)
            pp_runtime_refused(runtime, d->pod_uid, error->message);
        if (op->server)
            pp_http_ingest_refuse(op->server, d->connection, d->batch->seq, error);
    } else {
        pp_warn(runtime ? runtime->key : NULL, "a batch cannot be stored now: %s", error->message);
        if (runtime && error->code == PP_ERR_NOT_FOUND) { /* its rows are gone: write them again */
            runtime->row_written = false;
            pp_runtime_target *target = pp_runtime_get_target(runtime, d->pod_uid);
            if (target)
                target->row_written = false;
        }
        if (op->server)
            pp_http_ingest_put_off(op->server, d->connection);
    }
    delivery_free(d);
}

/* The rows that the batch refers to are on their way before it. */
static bool rows_ahead(pp_runtime *runtime, const pp_session *session, const pp_pod *pod)
{
    if (!runtime->row_written) {
        const pp_session_decision now = {.phase = session->phase};
        if (pp_record_session(runtime, session, &now) < 0)
            return false;
        runtime->row_written = true;
        runtime->row_generation = session->generation;
        runtime->row_phase = session->phase;
    }
    pp_record_target(runtime, pod);
    const pp_runtime_target *target = pp_runtime_get_target(runtime, pod->uid);
    return target && target->row_written;
}

static int refuse(pp_operator *op, pp_http_id connection, pp_wire_batch *batch, pp_error_code code,
                  const char *field, const char *message)
{
    pp_error why = {.code = code};
    (void)snprintf(why.field, sizeof why.field, "%s", field);
    (void)snprintf(why.message, sizeof why.message, "%s", message);
    pp_http_ingest_refuse(op->server, connection, batch->seq, &why);
    pp_wire_batch_free(batch);
    return -1;
}

/* Its end was decided; that its status says so is a matter of moments. */
static bool ended(const pp_runtime *runtime)
{
    return runtime->row_written &&
           (runtime->row_phase == PP_SESSION_SUCCEEDED || runtime->row_phase == PP_SESSION_FAILED);
}

/* Whether the pod has been a session's that is not there any more. */
static bool was_of(const pp_pod *pod, const pp_peer *peer, const char *session_uid)
{
    return strcmp(peer->session_uid, session_uid) == 0 ||
           (pod->session_uid && strcmp(pod->session_uid, session_uid) == 0);
}

/* Whether the batch may be taken from this peer. Answers and frees it where it may not. */
static int check(pp_operator *op, const pp_peer *peer, pp_http_id connection, pp_wire_batch *batch,
                 const pp_session **ret_session, const pp_pod **ret_pod)
{
    const pp_pod *pod = peer ? pod_of(op, peer->identity.namespace_name, peer->identity.pod) : NULL;
    if (pod && strcmp(pod->uid, peer->identity.pod_uid) != 0)
        pod = NULL;
    const pp_session *session = pp_match_session(op->matches, batch->session);
    const pp_runtime *runtime = pp_runtime_find(op, batch->session);
    pp_inject_pod_view view = {0};
    if (pod)
        pp_pod_for_inject(pod, &view);
    const pp_batch_claim claim = {.pod_there = pod,
                                  .was_of = pod && was_of(pod, peer, batch->session),
                                  .eligible = pod && session && pp_inject_eligible(session, &view),
                                  .session = session,
                                  .end_stored = runtime && ended(runtime),
                                  .replays = batch->capture.dwell != 0};
    pp_error err = {0};
    if (pp_batch_check(&claim, &err) < 0 || !session || !pod) /* it takes none without both */
        return refuse(op, connection, batch, err.code, err.field, err.message);
    *ret_session = session;
    *ret_pod = pod;
    return 0;
}

/* Puts the batch's stamps onto this clock. Answers and frees it where that cannot be. */
static int place(pp_operator *op, pp_peer *peer, const pp_session *session, const pp_pod *pod,
                 pp_wire_batch *batch, pp_store_clock *ret)
{
    pp_error err = {.code = PP_ERR_UNAVAILABLE};
    pp_runtime *runtime = pp_runtime_get(op, session);
    ask_time(op, peer);
    if (runtime && pp_clocks_place(runtime, session, pod, &peer->clock, batch, ret, &err) == 0)
        return 0;
    if (err.code == PP_ERR_INVALID)
        return refuse(op, peer->connection, batch, err.code, err.field, err.message);
    pp_wire_batch_free(batch);
    pp_http_ingest_put_off(op->server, peer->connection);
    return -1;
}

/* Whether the pod may name what the batch names. Answers and frees it where it may not. */
static int allow(pp_operator *op, pp_http_id connection, const pp_session *session,
                 const pp_pod *pod, pp_wire_batch *batch)
{
    pp_runtime *runtime = pp_runtime_get(op, session);
    pp_runtime_target *target = runtime ? pp_runtime_get_target(runtime, pod->uid) : NULL;
    pp_error err = {0};
    if (!target) {
        pp_wire_batch_free(batch);
        pp_http_ingest_put_off(op->server, connection);
        return -1;
    }
    if (pp_allowance_take(&target->allowance, &batch->process, &err) == 0)
        return 0;
    pp_runtime_refused(runtime, pod->uid, err.message);
    return refuse(op, connection, batch, err.code, err.field, err.message);
}

void pp_connections_batch(pp_operator *op, pp_http_id connection, pp_wire_batch *batch)
{
    pp_peer *peer = op->stopping ? NULL : find_peer(op, connection);
    pp_store_clock clock;
    if (!op->leading) { /* it was being decoded when the Lease was lost */
        pp_wire_batch_free(batch);
        pp_http_ingest_put_off(op->server, connection);
        return;
    }
    const pp_session *session = NULL;
    const pp_pod *pod = NULL;
    if (check(op, peer, connection, batch, &session, &pod) < 0 ||
        allow(op, connection, session, pod, batch) < 0 ||
        place(op, peer, session, pod, batch, &clock) < 0)
        return;
    pp_runtime *runtime = pp_runtime_get(op, session);
    delivery *d = calloc(1, sizeof *d);
    pp_error err = {0};
    if (!runtime || !d || !rows_ahead(runtime, session, pod)) {
        pp_wire_batch_free(batch);
        free(d);
        pp_http_ingest_put_off(op->server, connection);
        return;
    }
    *d = (delivery){.op = op, .serial = runtime->serial, .connection = connection, .batch = batch};
    (void)snprintf(d->session_uid, sizeof d->session_uid, "%s", session->uid);
    (void)snprintf(d->pod_uid, sizeof d->pod_uid, "%s", pod->uid);
    runtime->deliveries++;
    if (pp_store_put_batch(op->store, session->uid, pod->uid, batch, &clock, on_stored, d, &err) <
        0) {
        runtime->deliveries--;
        delivery_free(d);
        pp_warn(runtime->key, "a batch cannot be stored now: %s", err.message);
        pp_http_ingest_put_off(op->server, connection);
    }
}
