#include "operator/intake.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "operator/admission.h"
#include "operator/context.h"
#include "operator/record.h"
#include "operator/state.h"
#include "operator/watches.h"
#include "operator/work.h"

#include <stdlib.h>
#include <string.h>

/*
 * Agents: who is it (TokenReview, then: does its pod carry the hook), which session has its pod,
 * what does it send, and the acknowledgement once the store has it. A batch that the store cannot
 * take now is not answered: its connection is closed, and the agent sends it again to whoever
 * leads.
 */

/** One agent's connection. */
typedef struct pp_peer {
    pp_http_id connection; /**< key */
    pp_http_identity identity;
    char session_uid[64]; /**< of the session that it was told last; "": none */
    bool sampling;        /**< and whether to sample */
    UT_hash_handle hh;
    UT_hash_handle by_pod; /**< the same pod may have several */
} pp_peer;

/* ---- who is it ---- */

typedef struct question {
    pp_context context;
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
        pod && pod->session_uid ? pp_watches_find_session(op, pod->session_uid) : NULL;
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
    if (error) {
        pp_warn(NULL, "reviewing an agent's token: %s", error->message);
        answer(op, q->id, PP_HTTP_UNAVAILABLE, "the token cannot be reviewed now");
    } else {
        decide(op, q->id, who);
    }
    pp_context_free(q);
}

void pp_intake_authorize(pp_operator *op, pp_http_id id, const char *token)
{
    question *q = pp_context_new(op, sizeof *q, NULL);
    pp_error err = {0};
    if (!q) {
        answer(op, id, PP_HTTP_UNAVAILABLE, "out of memory");
        return;
    }
    q->id = id;
    if (pp_kube_review(op->reviewer, token, on_reviewed, q, &err) < 0) {
        pp_context_free(q);
        answer(op, id, err.code == PP_ERR_INVALID ? PP_HTTP_UNAUTHORIZED : PP_HTTP_UNAVAILABLE,
               err.message);
    }
}

/* ---- connections ---- */

static void welcome(pp_operator *op, const pp_peer *peer, const char *uid,
                    const pp_session *session, bool sampling)
{
    pp_inject_options options;
    pp_admission_options(op, &options);
    PP_CLEANUP_JSON json_t *settings = session ? pp_inject_settings(session, &options) : NULL;
    pp_wire_welcome text = {.sampling = sampling, .settings = settings};
    (void)snprintf(text.session, sizeof text.session, "%s", uid);
    pp_http_ingest_welcome(op->server, peer->connection, &text);
}

static void touch_work(pp_operator *op, const char *session_uid)
{
    const pp_work *work = pp_work_find(op, session_uid);
    if (work)
        pp_watches_touch(op, work->key);
}

/*
 * Says which session has the peer's pod, where that or the wish to sample has changed. The session
 * before is ended by name first: an agent of an earlier release knows no other.
 */
static void tell_peer(pp_operator *op, pp_peer *peer, bool first)
{
    const pp_pod *pod = pod_of(op, peer->identity.namespace_name, peer->identity.pod);
    bool same = pod && strcmp(pod->uid, peer->identity.pod_uid) == 0;
    const pp_session *session = same ? pp_watches_holder(op, pod) : NULL;
    const pp_work *work = session ? pp_work_get(op, session) : NULL;
    const char *uid = session ? session->uid : "";
    bool sampling = session && !session->suspend && (!work || !work->decided || work->sampling);
    bool change = strcmp(peer->session_uid, uid) != 0;
    if (!first && !change && peer->sampling == sampling)
        return;
    if (change && *peer->session_uid) {
        welcome(op, peer, peer->session_uid, NULL, false);
        touch_work(op, peer->session_uid);
    }
    welcome(op, peer, uid, session, sampling);
    (void)snprintf(peer->session_uid, sizeof peer->session_uid, "%s", uid);
    peer->sampling = sampling;
    touch_work(op, uid);
}

static void tell_to_leave(pp_operator *op, const pp_peer *peer, const pp_pod *pod)
{
    if (pod->agent_alone)
        pp_http_ingest_leave(op->server, peer->connection,
                             pod->session_uid ? pod->session_uid : peer->session_uid);
}

void pp_intake_connected(pp_operator *op, pp_http_id connection, const pp_http_identity *identity)
{
    bool serving = op->leading && !op->stopping;
    const pp_pod *pod = serving ? pod_of(op, identity->namespace_name, identity->pod) : NULL;
    pp_peer *peer = pod && may_speak(op, pod) ? calloc(1, sizeof *peer) : NULL;
    if (!peer) {
        pp_http_ingest_close(op->server, connection, 1013, "no session for this pod");
        return;
    }
    peer->connection = connection;
    peer->identity = *identity;
    if (pod->session_uid)
        (void)snprintf(peer->session_uid, sizeof peer->session_uid, "%s", pod->session_uid);
    HASH_ADD(hh, op->peers, connection, sizeof peer->connection, peer);
    HASH_ADD(by_pod, op->peers_by_pod, identity.pod_uid, strlen(peer->identity.pod_uid), peer);
    tell_peer(op, peer, true);
    tell_to_leave(op, peer, pod);
}

static pp_peer *find_peer(const pp_operator *op, pp_http_id connection)
{
    pp_peer *peer = NULL;
    HASH_FIND(hh, op->peers, &connection, sizeof connection, peer);
    return peer;
}

static void peer_free(pp_operator *op, pp_peer *peer)
{
    HASH_DEL(op->peers, peer);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a peer is in both tables or in none */
    HASH_DELETE(by_pod, op->peers_by_pod, peer);
    free(peer);
}

void pp_intake_disconnected(pp_operator *op, pp_http_id connection)
{
    pp_peer *peer = find_peer(op, connection);
    if (!peer)
        return;
    char uid[sizeof peer->session_uid];
    (void)snprintf(uid, sizeof uid, "%s", peer->session_uid);
    peer_free(op, peer);
    touch_work(op, uid);
}

void pp_intake_tell(pp_operator *op)
{
    for (pp_peer *peer = op->peers; peer && op->server; peer = peer->hh.next)
        tell_peer(op, peer, false);
}

void pp_intake_tell_pod(pp_operator *op, const pp_pod *pod)
{
    for (pp_peer *peer = op->peers; peer && op->server; peer = peer->hh.next) {
        if (strcmp(peer->identity.pod_uid, pod->uid) == 0)
            tell_to_leave(op, peer, pod);
    }
}

bool pp_intake_has_peer(const pp_operator *op, const char *pod_uid)
{
    const pp_peer *peer = NULL;
    HASH_FIND(by_pod, op->peers_by_pod, pod_uid, strlen(pod_uid), peer);
    return peer != NULL;
}

void pp_intake_forget_all(pp_operator *op)
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
static void take_note(pp_work *work, const delivery *d)
{
    const pp_wire_batch *batch = d->batch;
    pp_work_target *target = pp_work_get_target(work, d->pod_uid);
    if (!target)
        return;
    for (size_t i = 0; i < batch->process.gpus.count; i++) {
        const char *gpu = batch->process.gpus.items[i];
        (void)pp_strings_add_once(&target->gpus, gpu, NULL);
        (void)pp_plan_need(work->plan, gpu, batch->stretch.start, batch->stretch.end, NULL);
    }
    if (target->rank < 0 || batch->process.rank < target->rank)
        target->rank = batch->process.rank;
    if (!pp_wire_is_fine_only(batch)) { /* which is of no stretch */
        target->open_stretch = !batch->stretch.last;
        target->replaying |= batch->stretch.dwell != 0; /* that none replays the store knows */
    }
    target->last_batch_ns = pp_time_now();
    work->stats_dirty = true;
    work->unsolved = true;
}

static void on_stored(void *user, bool inserted, const pp_error *error)
{
    delivery *d = user;
    pp_operator *op = d->op;
    pp_work *work = pp_work_find(op, d->session_uid);
    if (work && work->serial == d->serial)
        work->deliveries--;
    if (!error) {
        if (inserted) {
            pp_meter_add(op->meters.batches, 1);
            pp_meter_add(op->meters.events, (double)pp_store_count_events(d->batch));
        }
        if (work) {
            take_note(work, d);
            pp_watches_touch_soon(op, work->key);
        }
        if (op->server)
            pp_http_ingest_ack(op->server, d->connection, d->batch->instance, d->batch->seq);
    } else if (error->code == PP_ERR_INVALID || error->code == PP_ERR_TOO_LARGE) {
        pp_warn(work ? work->key : NULL, "a batch is refused: %s", error->message);
        if (op->server)
            pp_http_ingest_refuse(op->server, d->connection, d->batch->seq, error);
    } else {
        pp_warn(work ? work->key : NULL, "a batch cannot be stored now: %s", error->message);
        if (work && error->code == PP_ERR_NOT_FOUND) { /* its rows are gone: write them again */
            work->row_written = false;
            pp_work_target *target = pp_work_get_target(work, d->pod_uid);
            if (target)
                target->row_written = false;
        }
        if (op->server)
            pp_http_ingest_close(op->server, d->connection, 1013, "try again later");
    }
    delivery_free(d);
}

/* The rows that the batch refers to are on their way before it. */
static bool rows_ahead(pp_work *work, const pp_session *session, const pp_pod *pod)
{
    if (!work->row_written) {
        const pp_session_decision now = {.phase = session->phase};
        if (pp_record_session(work, session, &now) < 0)
            return false;
        work->row_written = true;
        work->row_generation = session->generation;
        work->row_phase = session->phase;
    }
    pp_record_target(work, pod);
    const pp_work_target *target = pp_work_get_target(work, pod->uid);
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
static bool ended(const pp_work *work)
{
    return work->row_written &&
           (work->row_phase == PP_SESSION_SUCCEEDED || work->row_phase == PP_SESSION_FAILED);
}

/* Whether the pod has been a session's that is not there any more. */
static bool was_of(const pp_pod *pod, const pp_peer *peer, const char *session_uid)
{
    return strcmp(peer->session_uid, session_uid) == 0 ||
           (pod->session_uid && strcmp(pod->session_uid, session_uid) == 0);
}

/* Whether the batch may be taken from this peer: for the session that has its pod, and for one that
 * had it and still waits for the rest. Answers and frees it where it may not. */
static int check(pp_operator *op, const pp_peer *peer, pp_http_id connection, pp_wire_batch *batch,
                 const pp_session **ret_session, const pp_pod **ret_pod)
{
    const pp_pod *pod = peer ? pod_of(op, peer->identity.namespace_name, peer->identity.pod) : NULL;
    if (!pod || strcmp(pod->uid, peer->identity.pod_uid) != 0)
        return refuse(op, connection, batch, PP_ERR_GONE, "session", "the pod is gone");
    const pp_session *session = pp_watches_find_session(op, batch->session);
    const pp_work *work = pp_work_find(op, batch->session);
    pp_inject_carrier carrier;
    pp_pod_carrier(pod, &carrier);
    if (session ? !pp_inject_suits(session, &carrier) : !was_of(pod, peer, batch->session))
        return refuse(op, connection, batch, PP_ERR_DENIED, "session",
                      "the pod is not this session's");
    if (!session || !pp_session_takes_batches(session) || (work && ended(work)))
        return refuse(op, connection, batch, PP_ERR_GONE, "session", "the session has ended");
    if (batch->stretch.dwell && !pp_session_asks_replays(session))
        return refuse(op, connection, batch, PP_ERR_INVALID, "stretch.dwell",
                      "the session asks for no replays");
    *ret_session = session;
    *ret_pod = pod;
    return 0;
}

void pp_intake_batch(pp_operator *op, pp_http_id connection, pp_wire_batch *batch)
{
    const pp_peer *peer = op->stopping ? NULL : find_peer(op, connection);
    const pp_session *session = NULL;
    const pp_pod *pod = NULL;
    if (check(op, peer, connection, batch, &session, &pod) < 0)
        return;
    pp_work *work = pp_work_get(op, session);
    delivery *d = calloc(1, sizeof *d);
    pp_error err = {0};
    if (!work || !d || !rows_ahead(work, session, pod)) {
        pp_wire_batch_free(batch);
        free(d);
        pp_http_ingest_close(op->server, connection, 1013, "try again later");
        return;
    }
    *d = (delivery){.op = op, .serial = work->serial, .connection = connection, .batch = batch};
    (void)snprintf(d->session_uid, sizeof d->session_uid, "%s", session->uid);
    (void)snprintf(d->pod_uid, sizeof d->pod_uid, "%s", pod->uid);
    work->deliveries++;
    if (pp_store_put_batch(op->store, session->uid, pod->uid, batch, on_stored, d, &err) < 0) {
        work->deliveries--;
        delivery_free(d);
        pp_warn(work->key, "a batch cannot be stored now: %s", err.message);
        pp_http_ingest_close(op->server, connection, 1013, "try again later");
    }
}
