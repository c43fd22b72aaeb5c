/* The agents' WebSocket: messages in, and what they say handed over; answers out, queued. */
#include "operator/http_server/http_server_internal.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"
#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { POLICY_VIOLATION = 1008, TOO_LARGE = 1009, TRY_LATER = 1013, NOT_TEXT = 1003 };

/** How far ahead of its rate a pod may be. */
#define POD_BURST (4 * SECOND)
/** For a peer to take its close and answer it. */
#define CLOSE_GRACE SECOND
/** Bytes of a message from which it is decoded in a thread of its own. */
#define LARGE (8 << 10)
/** What TLS may have read that no message has yet, bytes: records that are not whole. */
#define UNFINISHED_RECORDS (64 << 10)

static connection *connection_of(struct lws *wsi)
{
    peer *p = lws_get_opaque_user_data(wsi);
    return p && p->kind == PEER_CONNECTION ? (connection *)p : NULL;
}

/** From now on it is closing. */
static void set_close(connection *c, int code)
{
    c->close_code = code;
    c->close_by = pp_time_monotonic() + CLOSE_GRACE;
}

static void cut(const connection *c)
{
    lws_set_timeout(c->peer.wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
}

static connection *find(pp_http_server *server, pp_http_id id)
{
    peer *p = NULL;
    HASH_FIND(hh, server->connections, &id, sizeof id, p);
    return (connection *)p;
}

/* ---- a pod's share ------------------------------------------------------------------------------
 */

/** The oldest connection of a pod that is not closing; `unfinished`: that holds part of a message.
 */
static connection *oldest(const pod_share *pod, bool unfinished)
{
    connection *c;
    DL_FOREACH(pod->members, c)
    {
        if (!c->close_code && (!unfinished || c->incoming.len))
            return c;
    }
    return NULL;
}

/** Joins the pod's share. Past the limit its oldest connection is cut, without a word that a peer
 * could leave unread. */
static int join_pod(pp_http_server *server, connection *c)
{
    const char *uid = c->identity.pod_uid;
    pod_share *pod = NULL;
    HASH_FIND_STR(server->pods, uid, pod);
    if (!pod) {
        pod = calloc(1, sizeof *pod);
        if (!pod)
            return -1;
        (void)snprintf(pod->uid, sizeof pod->uid, "%s", uid);
        HASH_ADD_STR(server->pods, uid, pod);
    }
    connection *old = pod->connections >= PP_HTTP_MAX_POD_CONNECTIONS ? oldest(pod, false) : NULL;
    if (old) {
        set_close(old, POLICY_VIOLATION);
        old->closing = true;
        cut(old);
    }
    pod->connections++;
    DL_APPEND(pod->members, c);
    c->pod = pod;
    return 0;
}

/** A pod of which nothing is left. What it has sent too much of is not forgotten with a connection,
 * nor what of its batches is not answered: it could come again at once. */
static void release_pod(pp_http_server *server, pod_share *pod)
{
    if (pod->connections || pod->batches || pod->paid > pp_time_monotonic())
        return;
    HASH_DEL(server->pods, pod);
    free(pod);
}

static int hold(pp_http_server *server, connection *c)
{
    holding *h = c->held = calloc(1, sizeof *h);
    if (!h)
        return -1;
    h->id = c->peer.id;
    h->pod = c->pod;
    HASH_ADD(hh, server->holdings, id, sizeof h->id, h);
    return 0;
}

static void release_holding(pp_http_server *server, holding *h)
{
    if (!h->orphaned || h->count)
        return;
    HASH_DEL(server->holdings, h);
    free(h);
}

static void leave_pod(connection *c)
{
    pp_http_server *server = c->peer.server;
    c->pod->connections--;
    DL_DELETE(c->pod->members, c);
    if (c->held) {
        c->held->orphaned = true;
        release_holding(server, c->held);
    }
    release_pod(server, c->pod);
}

void http_ingest_free(pp_http_server *server)
{
    holding *h, *next_holding;
    pod_share *pod, *next_pod;
    HASH_ITER(hh, server->holdings, h, next_holding)
    {
        HASH_DEL(server->holdings, h);
        free(h);
    }
    HASH_ITER(hh, server->pods, pod, next_pod)
    {
        HASH_DEL(server->pods, pod);
        free(pod);
    }
}

/** What TLS has read of the connection so far: messages, control frames and all. */
static uint64_t bytes_read(const connection *c)
{
    const SSL *ssl = lws_get_ssl(c->peer.wsi);
    BIO *bio = ssl ? SSL_get_rbio(ssl) : NULL;
    return bio ? BIO_number_read(bio) : c->charged;
}

int http_connection_new(pp_http_server *server, struct lws *wsi, const pp_http_identity *identity)
{
    connection *c = calloc(1, sizeof *c);
    if (!c)
        return -1;
    c->peer =
        (peer){.kind = PEER_CONNECTION, .id = http_next_id(server), .server = server, .wsi = wsi};
    c->identity = *identity;
    if (join_pod(server, c) < 0) {
        free(c);
        return -1;
    }
    if (hold(server, c) < 0) {
        leave_pod(c);
        free(c);
        return -1;
    }
    c->charged = bytes_read(c);
    pp_buf_init(&c->incoming, PP_WIRE_MAX_MESSAGE);
    peer *p = &c->peer;
    HASH_ADD(hh, server->connections, id, sizeof p->id, p);
    lws_set_opaque_user_data(wsi, p);
    visitors_leave(server->visitors, wsi);
    return 0;
}

/* ---- not reading more than can be handled -------------------------------------------------------
 */

static bool is_paused(const connection *c)
{
    return c->peer.server->paused || c->peer.server->held || c->pod->paused || c->pod->resting;
}

/** Whether anything is read, as it is now. */
static void apply_pause(connection *c)
{
    if (c->open)
        (void)lws_rx_flow_control(c->peer.wsi, !is_paused(c));
}

/** libwebsockets drops a peer that has not answered a ping for so long. One that we do not read, or
 * that sends so much that its answer waits behind it, is there all the same: it is told so between
 * the ping, whose writing finds out who is gone, and the end. */
static void confirm(connection *c, int64_t now)
{
    const pp_http_options *o = &c->peer.server->options;
    const int64_t between = (o->ping_after + o->hangup_after) * SECOND / 2;
    bool lives = is_paused(c) || now - c->heard < o->hangup_after * SECOND - between;
    if (!c->open || !lives || now - c->confirmed < between)
        return;
    c->confirmed = now;
    lws_validity_confirmed(c->peer.wsi);
}

/** An agent's libwebsockets, too, ends a connection on which no pong has come for so long, and the
 * pings of one that is paused are not read: it gets pongs that answer none (RFC 6455, 5.5.3). */
static void tell_paused(connection *c, int64_t now)
{
    const int64_t between = c->peer.server->options.ping_after * SECOND / 2;
    const int64_t last = c->heard > c->ponged ? c->heard : c->ponged;
    if (!c->open || c->close_code || !is_paused(c) || now - last < between)
        return;
    c->ponged = now;
    c->pong_due = true;
    lws_callback_on_writable(c->peer.wsi);
}

static void apply_pauses(const pod_share *pod)
{
    connection *c;
    DL_FOREACH(pod->members, c)
    {
        apply_pause(c);
    }
}

static size_t left(size_t max, size_t taken)
{
    return max > taken ? max - taken : 0;
}

static void apply_all_pauses(pp_http_server *server)
{
    for (peer *p = server->connections; p; p = p->hh.next)
        apply_pause((connection *)p);
}

/** A pod may hold as much as is left for others: one alone gets half, each of n gets 1/(n + 1), and
 * there is always room for one that holds nothing. Read again below half of that. */
static void regulate_pod(pp_http_server *server, pod_share *pod)
{
    const pp_http_options *o = &server->options;
    size_t weight = pod->paused ? 2 : 1;
    bool pause = pod->batches &&
                 (pod->batches * weight >= left(o->max_batches, server->pending_batches) ||
                  pod->batch_bytes * weight >= left(o->max_batch_bytes, server->pending_bytes));
    if (pause == pod->paused)
        return;
    pod->paused = pause;
    apply_pauses(pod);
}

static bool is_full(bool was_full, size_t taken, size_t max)
{
    return was_full ? taken > max / 2 : taken >= max;
}

/** Past max_batches nothing is read from anybody until half of them are answered. */
static void regulate(pp_http_server *server)
{
    const pp_http_options *o = &server->options;
    bool pause = is_full(server->paused, server->pending_batches, o->max_batches) ||
                 is_full(server->paused, server->pending_bytes, o->max_batch_bytes);
    pp_meter_set(server->metrics.pending, (double)server->pending_batches);
    if (pause != server->paused) {
        server->paused = pause;
        apply_all_pauses(server);
    }
    pod_share *pod;
    DL_FOREACH(server->holders, pod)
    {
        regulate_pod(server, pod);
    }
}

/** What a pod sends costs time of the loop, whatever becomes of it. */
static void charge(connection *c)
{
    pod_share *pod = c->pod;
    pp_http_server *server = c->peer.server;
    int64_t now = pp_time_monotonic();
    const uint64_t read = bytes_read(c);
    pod->paid = (pod->paid > now ? pod->paid : now) +
                (int64_t)(read - c->charged) * SECOND / server->options.pod_rate;
    c->charged = read;
    if (pod->resting || pod->paid - now <= POD_BURST)
        return;
    pod->resting = true;
    apply_pauses(pod);
}

/** Messages are paid for when they are whole; libwebsockets tells of nothing else that comes. */
static void charge_rest(connection *c)
{
    if (bytes_read(c) - c->charged > c->incoming.len + UNFINISHED_RECORDS)
        charge(c);
}

/** One batch more that waits. */
static void count_waiting(pp_http_server *server, pod_share *pod, size_t bytes)
{
    if (!pod->batches)
        DL_APPEND(server->holders, pod);
    pod->batches++;
    pod->batch_bytes += bytes;
    server->pending_batches++;
    server->pending_bytes += bytes;
}

static void discount_waiting(pp_http_server *server, pod_share *pod, size_t bytes)
{
    pod->batches--;
    pod->batch_bytes -= bytes;
    server->pending_batches--;
    server->pending_bytes -= bytes;
    if (!pod->batches) {
        DL_DELETE(server->holders, pod);
        regulate_pod(server, pod);
    }
}

/** A batch is handed over. */
static void take_up(connection *c, size_t bytes)
{
    holding *h = c->held;
    h->bytes[(h->first + h->count) % PP_WIRE_MAX_IN_FLIGHT] = bytes;
    h->count++;
    count_waiting(c->peer.server, c->pod, bytes);
    regulate(c->peer.server);
}

/** The oldest batch is answered: answers come in the order of batches, but for refused ones. */
static void let_go(pp_http_server *server, holding *h)
{
    size_t bytes = h->bytes[h->first];
    pod_share *pod = h->pod;
    h->first = (h->first + 1) % PP_WIRE_MAX_IN_FLIGHT;
    h->count--;
    discount_waiting(server, pod, bytes);
    release_holding(server, h);
    release_pod(server, pod);
}

static void forget_incoming(connection *c)
{
    c->peer.server->receiving -= c->incoming.len;
    c->pod->receiving -= c->incoming.len;
    pp_buf_done(&c->incoming);
}

void http_connection_free(connection *c)
{
    pp_http_server *server = c->peer.server;
    peer *p = &c->peer;
    HASH_DEL(server->connections, p);
    server->displaced -= c->displaced;
    forget_incoming(c);
    for (message *m = c->queue, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    charge(c);
    if (c->open) {
        server->open_connections--;
        pp_meter_set(server->metrics.connections, (double)server->open_connections);
        server->handlers.disconnected(server->handlers.context, p->id);
    }
    leave_pod(c);
    free(c);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

static void begin_close(connection *c, int code, const char *reason)
{
    if (c->close_code)
        return;
    set_close(c, code);
    (void)snprintf(c->close_reason, sizeof c->close_reason, "%s", reason);
    forget_incoming(c);
    lws_callback_on_writable(c->peer.wsi);
}

/** Queues a text; a peer that reads nothing is closed rather than written for without end. */
static void send_text(connection *c, const pp_buf *text)
{
    if (c->close_code)
        return;
    message *m = c->queued < PP_HTTP_MAX_QUEUE ? malloc(sizeof *m + LWS_PRE + text->len) : NULL;
    if (!m) {
        begin_close(c, POLICY_VIOLATION, "answers are not read");
        return;
    }
    m->next = NULL;
    m->len = text->len;
    (void)memcpy(m->data + LWS_PRE, text->data, text->len);
    if (c->queue_last)
        c->queue_last->next = m;
    else
        c->queue = m;
    c->queue_last = m;
    c->queued++;
    lws_callback_on_writable(c->peer.wsi);
}

/** Ends the connection from within one of its callbacks, which returns the -1. */
static int hang_up(connection *c, int code, const char *reason)
{
    set_close(c, code);
    c->closing = true;
    lws_close_reason(c->peer.wsi, (enum lws_close_status)code, (unsigned char *)(uintptr_t)reason,
                     strlen(reason));
    return -1;
}

static int write_pong(connection *c)
{
    unsigned char frame[LWS_PRE + 1];
    c->pong_due = false;
    if (lws_write(c->peer.wsi, frame + LWS_PRE, 0, LWS_WRITE_PONG) < 0)
        return -1;
    lws_callback_on_writable(c->peer.wsi);
    return 0;
}

static int write_one(connection *c)
{
    message *m = c->queue;
    if (c->closing)
        return 0;
    if (c->pong_due)
        return write_pong(c);
    if (m) {
        c->queue = m->next;
        c->queue_last = c->queue ? c->queue_last : NULL;
        c->queued--;
        int n = lws_write(c->peer.wsi, m->data + LWS_PRE, m->len, LWS_WRITE_TEXT);
        bool failed = n < (int)m->len;
        free(m);
        if (failed)
            return -1;
    }
    if (c->queue || (m && c->close_code)) {
        lws_callback_on_writable(c->peer.wsi);
        return 0;
    }
    /* Builds of libwebsockets with _DEBUG, Debian's among them, close twice on -1 from here, which
     * cuts the close frame off; from a timer they do not. */
    if (c->close_code)
        lws_set_timer_usecs(c->peer.wsi, 1);
    return 0;
}

static int close_now(connection *c)
{
    if (c->closing || !c->close_code || c->queue)
        return 0;
    return hang_up(c, c->close_code, c->close_reason);
}

static void send_refused(connection *c, const pp_error *why, int64_t seq)
{
    pp_wire_refused refused;
    pp_buf text;
    pp_buf_init(&text, MAX_WS_MESSAGE);
    pp_wire_refused_from_error(why, seq, &refused);
    if (pp_wire_refused_encode(&refused, &text, NULL) == 0)
        send_text(c, &text);
    pp_buf_done(&text);
}

static refusal refusal_of(pp_error_code code)
{
    switch (code) {
    case PP_ERR_INVALID:
        return REFUSED_INVALID;
    case PP_ERR_DENIED:
        return REFUSED_DENIED;
    case PP_ERR_GONE:
        return REFUSED_GONE;
    case PP_ERR_TOO_LARGE:
        return REFUSED_TOO_LARGE;
    default:
        return REFUSED_OTHER;
    }
}

static void refuse_batch(connection *c, const pp_error *why, int64_t seq)
{
    const server_metrics *metrics = &c->peer.server->metrics;
    pp_meter_add(metrics->batches_refused, 1);
    pp_meter_add(metrics->refused_for[refusal_of(why->code)], 1);
    send_refused(c, why, seq);
}

/** One batch of that connection is answered, whether it is still there or not. */
static void answered(pp_http_server *server, pp_http_id id)
{
    holding *h = NULL;
    HASH_FIND(hh, server->holdings, &id, sizeof id, h);
    if (!h || !h->count)
        return;
    let_go(server, h);
    regulate(server);
}

void pp_http_ingest_ack(pp_http_server *server, pp_http_id id, const char *instance, int64_t seq)
{
    connection *c = find(server, id);
    pp_wire_ack ack = {.seq = seq};
    pp_buf text;
    pp_buf_init(&text, MAX_WS_MESSAGE);
    (void)snprintf(ack.instance, sizeof ack.instance, "%s", instance);
    if (c && pp_wire_ack_encode(&ack, &text, NULL) == 0)
        send_text(c, &text);
    pp_buf_done(&text);
    answered(server, id);
}

void pp_http_ingest_refuse(pp_http_server *server, pp_http_id id, int64_t seq, const pp_error *why)
{
    connection *c = find(server, id);
    if (c)
        refuse_batch(c, why, seq);
    answered(server, id);
}

void pp_http_ingest_put_off(pp_http_server *server, pp_http_id id)
{
    connection *c = find(server, id);
    if (c)
        begin_close(c, TRY_LATER, "try again later");
    answered(server, id);
}

void pp_http_ingest_welcome(pp_http_server *server, pp_http_id id, const pp_wire_welcome *welcome)
{
    connection *c = find(server, id);
    if (!c)
        return;
    pp_error err = {0};
    pp_buf text;
    pp_buf_init(&text, PP_WIRE_MAX_ANSWER);
    if (pp_wire_welcome_encode(welcome, &text, &err) == 0)
        send_text(c, &text);
    else
        pp_warn(welcome->session, "an agent is not told of the session: %s", err.message);
    pp_buf_done(&text);
}

void pp_http_ingest_ask_time(pp_http_server *server, pp_http_id id, int64_t number)
{
    connection *c = find(server, id);
    if (!c)
        return;
    const pp_wire_time question = {.id = number};
    pp_buf text;
    pp_buf_init(&text, MAX_WS_MESSAGE);
    if (pp_wire_time_encode(&question, &text, NULL) == 0)
        send_text(c, &text);
    pp_buf_done(&text);
}

void pp_http_ingest_leave(pp_http_server *server, pp_http_id id, const char *session)
{
    connection *c = find(server, id);
    if (!c)
        return;
    pp_wire_leave leave;
    pp_buf text;
    pp_buf_init(&text, MAX_WS_MESSAGE);
    (void)snprintf(leave.session, sizeof leave.session, "%s", session);
    if (pp_wire_leave_encode(&leave, &text, NULL) == 0)
        send_text(c, &text);
    pp_buf_done(&text);
}

void pp_http_ingest_close(pp_http_server *server, pp_http_id id, int code, const char *reason)
{
    connection *c = find(server, id);
    if (c)
        begin_close(c, code, reason);
}

bool http_ingest_has_place(const pp_http_server *server)
{
    return HASH_COUNT(server->connections) - server->displaced < server->options.max_connections;
}

bool http_ingest_make_place(pp_http_server *server, const pp_http_identity *identity)
{
    if (http_ingest_has_place(server))
        return true;
    if (server->displaced >= MAX_DISPLACED)
        return false;
    connection *c = find(server, server->handlers.displace(server->handlers.context, identity));
    if (!c || c->displaced)
        return false;
    c->displaced = true;
    server->displaced++;
    begin_close(c, TRY_LATER, "the place is another's");
    return true;
}

void pp_http_ingest_hold(pp_http_server *server, bool held)
{
    if (held == server->held)
        return;
    server->held = held;
    apply_all_pauses(server);
}

void pp_http_ingest_close_all(pp_http_server *server, int code, const char *reason)
{
    for (peer *p = server->connections; p; p = p->hh.next)
        begin_close((connection *)p, code, reason);
    http_verdicts_forget(server);
}

/* ---- in ----------------------------------------------------------------------------------------
 */

/** A message that is none of ours; the third one ends the connection. */
static void take_malformed(connection *c, const pp_error *why)
{
    pp_meter_add(c->peer.server->metrics.malformed, 1);
    send_refused(c, why, -1);
    if (++c->malformed >= PP_WIRE_MAX_MALFORMED)
        begin_close(c, POLICY_VIOLATION, "too many malformed messages");
}

static void take_batch(connection *c, agent_message *m)
{
    pp_http_server *server = c->peer.server;
    pp_wire_batch *batch = m->batch;
    m->batch = NULL;
    pp_meter_add(server->metrics.batches_taken, 1);
    take_up(c, pp_wire_batch_bytes(batch));
    server->handlers.batch(server->handlers.context, c->peer.id, batch);
}

static void take_message(connection *c, agent_message *m)
{
    const pp_http_handlers *handlers = &c->peer.server->handlers;
    bool is_batch = m->kind == MESSAGE_BATCH || m->kind == MESSAGE_REFUSED;
    if (is_batch && c->held->count >= PP_WIRE_MAX_IN_FLIGHT) {
        begin_close(c, POLICY_VIOLATION, "too many batches in flight");
        return;
    }
    switch (m->kind) {
    case MESSAGE_MALFORMED:
        take_malformed(c, &m->error);
        break;
    case MESSAGE_REFUSED:
        refuse_batch(c, &m->error, m->seq);
        break;
    case MESSAGE_BATCH:
        take_batch(c, m);
        break;
    case MESSAGE_BYE:
        handlers->bye(handlers->context, c->peer.id, &m->bye);
        break;
    case MESSAGE_TIME:
        handlers->time(handlers->context, c->peer.id, &m->time);
        break;
    case MESSAGE_HOOK:
        handlers->hook(handlers->context, c->peer.id, &m->hook);
        break;
    }
}

/** Back from the decoder. A connection that is gone, or closing, brings it again elsewhere. */
static void on_decoded(void *user, agent_message *m)
{
    pp_http_server *server = user;
    connection *c = find(server, m->from);
    pod_share *pod = m->pod;
    discount_waiting(server, pod, m->bytes);
    if (c) {
        c->decoding--;
        if (!c->close_code)
            take_message(c, m);
    }
    agent_message_free(m);
    regulate(server);
    release_pod(server, pod);
}

/** Until it is decoded it waits like a batch, so that no more is read than can be handled. */
static void submit(connection *c, agent_message *m)
{
    pp_http_server *server = c->peer.server;
    if (!server->decoder) {
        agent_message_free(m);
        return;
    }
    m->from = c->peer.id;
    m->pod = c->pod;
    c->decoding++;
    count_waiting(server, c->pod, m->bytes);
    decoder_submit(server->decoder, m);
    regulate(server);
}

int http_ingest_start(pp_http_server *server)
{
    server->decoder = decoder_new(server->options.loop, on_decoded, server);
    return server->decoder ? 0 : -1;
}

void http_ingest_stop(pp_http_server *server)
{
    decoder_stop(server->decoder);
    server->decoder = NULL;
}

/** Cuts the oldest unfinished message of the pod, or of the one that holds most, until there is
 * room; false: this is the one that has to go. */
static bool make_room(connection *c, size_t len)
{
    pp_http_server *server = c->peer.server;
    for (;;) {
        pod_share *pod = c->pod;
        if (pod->receiving + len <= PP_HTTP_MAX_POD_RECEIVING) {
            if (server->receiving + len <= PP_HTTP_MAX_RECEIVING)
                return true;
            for (pod_share *other = server->pods; other; other = other->hh.next)
                pod = other->receiving > pod->receiving ? other : pod;
        }
        connection *victim = oldest(pod, true);
        if (!victim || victim == c)
            return false;
        begin_close(victim, TRY_LATER, "too much at once");
    }
}

/** Small ones are read at once. What says what time it is there is worth less with every moment; of
 * anything else none comes before one that the decoder still has. */
static void take_whole(connection *c)
{
    pp_http_server *server = c->peer.server;
    pp_meter_add(server->metrics.received_bytes, (double)c->incoming.len);
    pp_buf whole = c->incoming; /* the handler may end up here again: keep what it reads apart */
    server->receiving -= whole.len;
    c->pod->receiving -= whole.len;
    pp_buf_init(&c->incoming, PP_WIRE_MAX_MESSAGE);
    c->finish_by = 0;
    charge(c);
    agent_message *m = agent_message_new(&whole);
    if (!m) {
        begin_close(c, TRY_LATER, "no memory");
        return;
    }
    if (m->bytes < LARGE)
        agent_message_decode(m);
    if (!m->decoded || (c->decoding && m->kind != MESSAGE_TIME)) {
        submit(c, m);
        return;
    }
    take_message(c, m);
    agent_message_free(m);
}

/** Gathers a message's pieces; -1 ends the connection. */
static int receive(connection *c, const void *data, size_t len)
{
    pp_http_server *server = c->peer.server;
    struct lws *wsi = c->peer.wsi;
    if (c->close_code) /* closing: what still comes is not looked at */
        return 0;
    c->heard = pp_time_monotonic();
    if (lws_frame_is_binary(wsi))
        return hang_up(c, NOT_TEXT, "messages are text");
    if (!make_room(c, len))
        return hang_up(c, TRY_LATER, "too much at once");
    bool first = c->incoming.len == 0;
    if (pp_buf_append(&c->incoming, data, len, NULL) < 0)
        return hang_up(c, TOO_LARGE, "the message is too large");
    server->receiving += len;
    c->pod->receiving += len;
    if (lws_is_final_fragment(wsi) && !lws_remaining_packet_payload(wsi))
        take_whole(c);
    else if (first)
        c->finish_by = c->heard + server->options.message_timeout;
    return 0;
}

/** A message that is not finished in time ends its connection, unless it is we who do not read. A
 * timer of libwebsockets for each message would cost a walk through those of all connections. */
static void see_to_the_rest(connection *c, int64_t now)
{
    if (!c->finish_by || now < c->finish_by || c->close_code)
        return;
    if (is_paused(c))
        c->finish_by = now + c->peer.server->options.message_timeout;
    else
        begin_close(c, POLICY_VIOLATION, "a message was not finished in time");
}

void http_ingest_sweep(pp_http_server *server)
{
    int64_t now = pp_time_monotonic();
    pod_share *pod, *next;
    for (peer *p = server->connections; p; p = p->hh.next) {
        connection *c = (connection *)p;
        charge_rest(c);
        confirm(c, now);
        tell_paused(c, now);
        see_to_the_rest(c, now);
        if (c->close_code && now >= c->close_by)
            cut(c);
    }
    HASH_ITER(hh, server->pods, pod, next)
    {
        if (pod->resting && pod->paid - now <= POD_BURST / 2) {
            pod->resting = false;
            apply_pauses(pod);
        }
        release_pod(server, pod);
    }
}

static void established(connection *c)
{
    pp_http_server *server = c->peer.server;
    c->open = true;
    c->heard = c->confirmed = pp_time_monotonic();
    server->open_connections++;
    pp_meter_set(server->metrics.connections, (double)server->open_connections);
    if (is_paused(c))
        (void)lws_rx_flow_control(c->peer.wsi, 0);
    if (server->stopping)
        begin_close(c, LWS_CLOSE_STATUS_GOINGAWAY, "the operator stops");
    server->handlers.connected(server->handlers.context, c->peer.id, &c->identity);
}

int http_ingest_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                         size_t len)
{
    (void)user;
    connection *c = connection_of(wsi);
    switch (reason) {
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return c ? 0 : -1; /* made when the upgrade was allowed */
    case LWS_CALLBACK_ESTABLISHED:
        if (!c)
            return -1;
        established(c);
        return 0;
    case LWS_CALLBACK_RECEIVE:
        return c ? receive(c, in, len) : -1;
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return c ? write_one(c) : -1;
    case LWS_CALLBACK_TIMER:
        return c ? close_now(c) : 0;
    case LWS_CALLBACK_CLOSED:
        if (c) {
            lws_set_opaque_user_data(wsi, NULL);
            http_connection_free(c);
        }
        return 0;
    default:
        return 0;
    }
}
