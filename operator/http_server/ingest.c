/* The agents' WebSocket: messages in, decoded and handed over; answers out, queued. */
#include "operator/http_server/http_server_internal.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLICY_VIOLATION = 1008, TOO_LARGE = 1009, TRY_LATER = 1013, NOT_TEXT = 1003 };

static connection *connection_of(struct lws *wsi)
{
    peer *p = lws_get_opaque_user_data(wsi);
    return p && p->kind == PEER_CONNECTION ? (connection *)p : NULL;
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
static connection *oldest(const pp_http_server *server, const pod_share *pod, bool unfinished)
{
    for (peer *p = server->connections; p; p = p->hh.next) { /* in the order of insertion */
        connection *c = (connection *)p;
        if (c->pod == pod && !c->close_code && (!unfinished || c->incoming.len))
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
    connection *old =
        pod->connections >= PP_HTTP_MAX_POD_CONNECTIONS ? oldest(server, pod, false) : NULL;
    if (old) {
        old->close_code = POLICY_VIOLATION;
        old->closing = true;
        lws_set_timeout(old->peer.wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    }
    pod->connections++;
    c->pod = pod;
    return 0;
}

static void leave_pod(connection *c)
{
    if (--c->pod->connections > 0)
        return;
    HASH_DEL(c->peer.server->pods, c->pod);
    free(c->pod);
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
    pp_buf_init(&c->incoming, PP_WIRE_MAX_MESSAGE);
    peer *p = &c->peer;
    HASH_ADD(hh, server->connections, id, sizeof p->id, p);
    lws_set_opaque_user_data(wsi, p);
    return 0;
}

/* ---- not reading more than can be handled -------------------------------------------------------
 */

/** Past max_batches nothing is read from anybody until half of them are answered. */
static void regulate(pp_http_server *server)
{
    size_t max = server->options.max_batches;
    bool pause =
        server->paused ? server->pending_batches > max / 2 : server->pending_batches >= max;
    pp_meter_set(server->metrics.pending, (double)server->pending_batches);
    if (pause == server->paused)
        return;
    server->paused = pause;
    for (peer *p = server->connections; p; p = p->hh.next) {
        if (((connection *)p)->open)
            (void)lws_rx_flow_control(p->wsi, !pause);
    }
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
    forget_incoming(c);
    for (message *m = c->queue, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    server->pending_batches -= c->in_flight;
    if (c->open) {
        server->open_connections--;
        pp_meter_set(server->metrics.connections, (double)server->open_connections);
        server->handlers.disconnected(server->handlers.context, p->id);
    }
    leave_pod(c);
    free(c);
    regulate(server);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

static void begin_close(connection *c, int code, const char *reason)
{
    if (c->close_code)
        return;
    c->close_code = code;
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
    c->close_code = code;
    c->closing = true;
    lws_close_reason(c->peer.wsi, (enum lws_close_status)code, (unsigned char *)(uintptr_t)reason,
                     strlen(reason));
    return -1;
}

static int write_one(connection *c)
{
    message *m = c->queue;
    if (c->closing)
        return 0;
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

static void answered(connection *c)
{
    if (c->in_flight) {
        c->in_flight--;
        c->peer.server->pending_batches--;
        regulate(c->peer.server);
    }
}

void pp_http_ingest_ack(pp_http_server *server, pp_http_id id, const char *instance, int64_t seq)
{
    connection *c = find(server, id);
    if (!c)
        return;
    pp_wire_ack ack = {.seq = seq};
    pp_buf text;
    pp_buf_init(&text, MAX_WS_MESSAGE);
    (void)snprintf(ack.instance, sizeof ack.instance, "%s", instance);
    if (pp_wire_ack_encode(&ack, &text, NULL) == 0)
        send_text(c, &text);
    pp_buf_done(&text);
    answered(c);
}

void pp_http_ingest_refuse(pp_http_server *server, pp_http_id id, int64_t seq, const pp_error *why)
{
    connection *c = find(server, id);
    if (!c)
        return;
    pp_meter_add(server->metrics.batches_refused, 1);
    send_refused(c, why, seq);
    answered(c);
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

/** The sequence number of a batch that may be wrong otherwise; -1 when it has none. */
static int64_t seq_of(const json_t *object)
{
    const json_t *seq = json_object_get(object, "seq");
    json_int_t value = json_integer_value(seq);
    return json_is_integer(seq) && value >= 0 && value <= PP_WIRE_MAX_COUNT ? value : -1;
}

static void take_batch(connection *c, const json_t *object)
{
    pp_http_server *server = c->peer.server;
    pp_error err = {0};
    pp_wire_batch *batch = NULL;
    if (c->in_flight >= PP_WIRE_MAX_IN_FLIGHT) {
        begin_close(c, POLICY_VIOLATION, "too many batches in flight");
        return;
    }
    if (pp_wire_batch_decode(object, &batch, &err) < 0) {
        pp_meter_add(server->metrics.batches_refused, 1);
        send_refused(c, &err, seq_of(object));
        return;
    }
    c->in_flight++;
    server->pending_batches++;
    pp_meter_add(server->metrics.batches_taken, 1);
    regulate(server);
    server->handlers.batch(server->handlers.context, c->peer.id, batch);
}

static void take_bye(connection *c, const json_t *object)
{
    pp_http_server *server = c->peer.server;
    pp_wire_bye bye;
    pp_error err = {0};
    if (pp_wire_bye_decode(object, &bye, &err) < 0)
        take_malformed(c, &err);
    else
        server->handlers.bye(server->handlers.context, c->peer.id, &bye);
}

static void take_message(connection *c, const char *text, size_t len)
{
    pp_error err = {0};
    pp_wire_type type = PP_WIRE_BATCH;
    PP_CLEANUP_JSON json_t *object = pp_json_parse(text, len, &err);
    if (!object || pp_wire_type_of(object, &type, &err) < 0) {
        take_malformed(c, &err);
    } else if (type == PP_WIRE_BATCH) {
        take_batch(c, object);
    } else if (type == PP_WIRE_BYE) {
        take_bye(c, object);
    } else {
        (void)pp_error_field(&err, "type", "is not for an agent to send");
        take_malformed(c, &err);
    }
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
        connection *victim = oldest(server, pod, true);
        if (!victim || victim == c)
            return false;
        begin_close(victim, TRY_LATER, "too much at once");
    }
}

static void take_whole(connection *c)
{
    pp_http_server *server = c->peer.server;
    pp_meter_add(server->metrics.received_bytes, (double)c->incoming.len);
    pp_buf whole = c->incoming; /* the handler may end up here again: keep what it reads apart */
    server->receiving -= whole.len;
    c->pod->receiving -= whole.len;
    pp_buf_init(&c->incoming, PP_WIRE_MAX_MESSAGE);
    take_message(c, whole.data ? whole.data : "", whole.len);
    pp_buf_done(&whole);
}

/** Gathers a message's pieces; -1 ends the connection. */
static int receive(connection *c, const void *data, size_t len)
{
    pp_http_server *server = c->peer.server;
    struct lws *wsi = c->peer.wsi;
    if (c->close_code) /* closing: what still comes is not looked at */
        return 0;
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
        lws_set_timer_usecs(wsi, server->options.message_timeout / 1000);
    return 0;
}

/** A close that is due, or a message that is not finished in time. */
static int timer_fired(connection *c)
{
    pp_http_server *server = c->peer.server;
    if (c->close_code)
        return close_now(c);
    if (server->paused) /* it is we who do not read */
        lws_set_timer_usecs(c->peer.wsi, server->options.message_timeout / 1000);
    else if (c->incoming.len) /* a timer of a finished message has nothing to say */
        begin_close(c, POLICY_VIOLATION, "a message was not finished in time");
    return 0;
}

static void established(connection *c)
{
    pp_http_server *server = c->peer.server;
    c->open = true;
    server->open_connections++;
    pp_meter_set(server->metrics.connections, (double)server->open_connections);
    if (server->paused)
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
        return c ? timer_fired(c) : 0;
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
