/*
 * What the files of this folder share. A peer is one wsi's owner in libwebsockets' opaque user
 * data: an exchange (one HTTP request, from its headers to the end of its answer) or a connection
 * (a WebSocket). Peers are found by id from outside and by wsi from libwebsockets; they are freed
 * only when libwebsockets says that the transaction or the connection is over.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_INTERNAL_H
#define PP_OPERATOR_HTTP_SERVER_INTERNAL_H

#include "common/buf.h"
#include "operator/http_server/server.h"

#include <libwebsockets.h>
#include <openssl/ssl.h>
#include <uthash.h>

enum {
    DIGEST_BYTES = 32,
    WRITE_PIECE = 16384, /* bytes written in one turn of the loop */
    MAX_ANSWER = 6 << 20,
    MAX_WS_MESSAGE = 4096, /* bytes of one message of ours */
};

#define MILLISECOND INT64_C(1000000)
#define SECOND INT64_C(1000000000)
#define ANSWER_TIMEOUT (10 * SECOND) /* for a peer to read its answer */

typedef enum peer_kind { PEER_EXCHANGE, PEER_CONNECTION } peer_kind;

/** Common head of exchanges and connections. */
typedef struct peer {
    peer_kind kind;
    pp_http_id id;
    pp_http_server *server;
    struct lws *wsi;
    UT_hash_handle hh; /* by id */
} peer;

typedef enum exchange_stage {
    STAGE_BODY,      /* the request's body is coming in */
    STAGE_REVIEW,    /* the handler has the review */
    STAGE_AUTHORIZE, /* the token is being decided on */
    STAGE_ANSWER,    /* the answer is being written */
} exchange_stage;

typedef struct exchange {
    peer peer;
    exchange_stage stage;
    int64_t began;    /* monotonic ns */
    int64_t deadline; /* monotonic ns, of the stage */
    bool plain;       /* on the plain port */
    bool close;       /* the connection ends with the answer */
    size_t expected;  /* bytes of the body */
    pp_buf body;
    char uid[129];                      /* of the admission review */
    bool labelled;                      /* its namespace asks for the hook */
    unsigned char digest[DIGEST_BYTES]; /* of the token, in STAGE_AUTHORIZE */
    unsigned char *answer;              /* LWS_PRE bytes of room, head, body */
    size_t head_len;
    size_t answer_len; /* head and body */
    size_t written;
} exchange;

/** One message on its way out. */
typedef struct message {
    struct message *next;
    size_t len;
    unsigned char data[]; /* LWS_PRE bytes of room, then len bytes */
} message;

/** What the connections of one pod hold together. */
typedef struct pod_share {
    char uid[64];
    size_t connections;
    size_t receiving; /* bytes of unfinished messages */
    UT_hash_handle hh;
} pod_share;

typedef struct connection {
    peer peer;
    pp_http_identity identity;
    pod_share *pod;
    bool open; /* the handler knows of it */
    pp_buf incoming;
    message *queue;
    message *queue_last;
    size_t queued;
    size_t in_flight; /* batches handed over and not answered */
    int malformed;
    int close_code; /* not 0: to be closed when the queue is empty */
    bool closing;   /* the close is on its way: nothing more is read or written */
    char close_reason[124];
} connection;

/** What is known of a token, by its digest; the token itself is not kept. */
typedef struct verdict {
    unsigned char digest[DIGEST_BYTES];
    pp_http_id id; /* for the handler's answer */
    bool decided;
    pp_http_decision decision;
    pp_http_identity identity;
    char message[160];
    int64_t expires; /* monotonic ns */
    UT_hash_handle hh;
} verdict;

typedef struct server_metrics {
    pp_meter *review_seconds;
    pp_meter *reviews_late;
    pp_meter *connections;
    pp_meter *batches_taken;
    pp_meter *batches_refused;
    pp_meter *malformed;
    pp_meter *received_bytes;
    pp_meter *pending;
} server_metrics;

struct pp_http_server {
    pp_http_options options; /* with the defaults filled in; certificate and key are NULL */
    pp_http_handlers handlers;
    struct lws_context *context;
    struct lws_vhost *tls_vhost;
    struct lws_vhost *plain_vhost;
    SSL_CTX *ssl_ctx; /* of tls_vhost, borrowed */
    struct lws_protocols tls_protocols[3];
    struct lws_protocols plain_protocols[2];
    lws_retry_bo_t retry;
    pp_http_id last_id;
    peer *exchanges;
    peer *connections;
    pod_share *pods;
    verdict *verdicts;
    size_t open_connections;
    size_t pending_batches;
    size_t receiving; /* bytes of unfinished messages */
    bool paused;
    bool stopping;
    bool destroyed; /* the context has been told to go */
    uv_timer_t stop_timer;
    int64_t stop_deadline;
    server_metrics metrics;
};

/* server.c */
pp_http_server *http_server_of(struct lws *wsi);
pp_http_id http_next_id(pp_http_server *server);
/** Makes the server's own metrics; without a registry nothing. */
void http_make_metrics(pp_metrics *registry, server_metrics *ret);

/* exchange.c: one HTTP request and its answer. */
int http_exchange_callback(struct lws *wsi, enum lws_callback_reasons reason, void *in, size_t len,
                           bool plain);
exchange *http_exchange_find(pp_http_server *server, pp_http_id id);
/** The exchange enters a stage that may last so many ns. */
void http_exchange_enter(exchange *ex, exchange_stage stage, int64_t timeout);
/** Sends an answer; `headers` is "" or whole lines. Text and status line are made here. */
void http_exchange_answer(exchange *ex, int status, const char *type, const char *headers,
                          const char *body, size_t len);
/** A short text as answer. */
void http_exchange_answer_text(exchange *ex, int status, const char *headers, const char *text);
void http_exchange_free(exchange *ex);

/* admission.c */
void http_review_begin(exchange *ex);
void http_review_labelled_begin(exchange *ex);
void http_review_body(exchange *ex);
void http_review_late(exchange *ex);

/* authorization.c: who may upgrade. */
bool http_upgrade_allowed(pp_http_server *server, struct lws *wsi, pp_http_identity *ret_identity);
void http_upgrade_begin(exchange *ex);
void http_upgrade_late(exchange *ex);
void http_verdicts_forget(pp_http_server *server);

/* plain.c */
void http_metrics_begin(exchange *ex);
void http_healthz_begin(exchange *ex);
void http_readyz_begin(exchange *ex);

/* ingest.c */
int http_ingest_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                         size_t len);
/** A connection for an upgrade that is allowed; 0, or -1 without memory. */
int http_connection_new(pp_http_server *server, struct lws *wsi, const pp_http_identity *identity);
void http_connection_free(connection *c);

/* tls.c */
/** Certificate and key fit together and can be used: tried in a context of their own. */
int http_tls_try(const char *certificate, const char *key, pp_error *err);
int http_tls_use(SSL_CTX *ctx, const char *certificate, const char *key, pp_error *err);
/** What is the same for every certificate: versions, no renegotiation. */
void http_tls_configure(SSL_CTX *ctx);

#endif
