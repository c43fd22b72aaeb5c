/*
 * What the files of this folder share. A peer is one wsi's owner in libwebsockets' opaque user
 * data: an exchange (one HTTP request, from its headers to the end of its answer) or a connection
 * (a WebSocket). Peers are found by id from outside and by wsi from libwebsockets; they are freed
 * only when libwebsockets says that the transaction or the connection is over.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_INTERNAL_H
#define PP_OPERATOR_HTTP_SERVER_INTERNAL_H

#include "common/buf.h"
#include "operator/http_server/askers.h"
#include "operator/http_server/decoder.h"
#include "operator/http_server/known_tokens.h"
#include "operator/http_server/server.h"
#include "operator/http_server/visitors.h"

#include <libwebsockets.h>
#include <openssl/ssl.h>
#include <uthash.h>

enum {
    HEADER_BYTES = 8192, /* a projected token has 1 to 2 KB; past this the peer is cut off */
    DIGEST_BYTES = 32,
    WRITE_PIECE = 16384, /* bytes written at once: a TLS record */
    TURN_PIECES = 4,     /* at most, in one turn of the loop */
    MAX_ANSWER = 6 << 20,
    MAX_WS_MESSAGE = 4096, /* bytes of one message of ours */
    MAX_DISPLACED = 32,    /* connections that close for others at once */
};

#define MILLISECOND INT64_C(1000000)
#define SECOND INT64_C(1000000000)
/* A connection that is kept for its client. Go's end theirs after 90 s without a request, and do
 * not send a POST again that meets the end of ours. */
#define KEPT_OPEN (120 * SECOND)
#define ANSWER_TIMEOUT (10 * SECOND)     /* for a peer to read its answer */
#define API_ANSWER_TIMEOUT (30 * SECOND) /* the same of the API's, which are large */

typedef enum peer_kind { PEER_EXCHANGE, PEER_CONNECTION } peer_kind;

/** Common head of exchanges and connections. */
typedef struct peer {
    peer_kind kind;
    pp_http_id id;
    pp_http_server *server;
    struct lws *wsi;
    UT_hash_handle hh; /* by id */
} peer;

/** Which of the server's ports. */
typedef enum http_port {
    PORT_TLS,
    PORT_PLAIN,
    PORT_OPEN, /* on loopback: results without a token */
} http_port;

typedef enum exchange_stage {
    STAGE_BODY,      /* the request's body is coming in */
    STAGE_REVIEW,    /* the handler has the review */
    STAGE_AUTHORIZE, /* the token is being decided on */
    STAGE_API,       /* the handler has a request of the API */
    STAGE_ANSWER,    /* the answer is being written */
} exchange_stage;

typedef struct exchange exchange;
struct exchange {
    peer peer;
    exchange_stage stage;
    int64_t began;    /* monotonic ns */
    int64_t patience; /* ns in which a review has to be answered */
    int64_t deadline; /* monotonic ns, of the stage */
    http_port port;
    bool close;      /* the connection ends with the answer */
    size_t expected; /* bytes of the body */
    size_t reserved; /* of them, as counted in the server's review_bytes */
    pp_buf body;
    char uid[129];                      /* of the admission review */
    bool labelled;                      /* its namespace asks for the hook */
    bool relayed;                       /* by another replica */
    unsigned char digest[DIGEST_BYTES]; /* of the token, in STAGE_AUTHORIZE and STAGE_API */
    unsigned char *answer;        /* LWS_PRE bytes of room, head, body unless it is a file's */
    const unsigned char *file;    /* the answer's body where it is not in `answer` */
    void (*release)(void *owner); /* of `file`, with the exchange; NULL: it outlives that */
    void *owner;
    size_t head_len;
    size_t answer_len; /* head and body */
    size_t written;
    void (*given_up)(exchange *ex); /* where it ends in STAGE_REVIEW or STAGE_API */
    bool head_only;                 /* the answer's body is not wanted */
    askers *asks;                   /* whose place it has, for `question`; NULL: none */
    bool has_token;                 /* of the API; digest is its */
    asking question;
    size_t api_bytes;       /* as counted in the server's api_bytes */
    int64_t moved;          /* monotonic ns: when some of the answer was taken off last */
    int64_t answer_timeout; /* ns to read the answer; 0: ANSWER_TIMEOUT */
};

/** One message on its way out. */
typedef struct message {
    struct message *next;
    size_t len;
    unsigned char data[]; /* LWS_PRE bytes of room, then len bytes */
} message;

/** What the connections of one pod hold together, and what it owes when they are gone. */
typedef struct pod_share {
    char uid[64];
    size_t connections;
    struct connection *members; /* these, the oldest first */
    size_t receiving;           /* bytes of unfinished messages */
    size_t batches; /* being decoded, or handed over and not answered, whether their connection is
                       there or not */
    size_t batch_bytes;
    bool paused;  /* it holds more of these than its part: nothing of it is read */
    int64_t paid; /* monotonic ns: when its bytes so far are what it may send */
    bool resting; /* it has sent too many of them: nothing of it is read for a while */
    struct pod_share *prev, *next; /* in the server's holders */
    UT_hash_handle hh;
} pod_share;

/** The batches of a connection that are handed over and not answered; they outlive it. */
typedef struct holding {
    pp_http_id id; /* of the connection */
    pod_share *pod;
    bool orphaned; /* the connection is gone */
    size_t count;
    size_t first;
    size_t bytes[PP_WIRE_MAX_IN_FLIGHT]; /* a ring; answers take the oldest off */
    UT_hash_handle hh;
} holding;

typedef struct connection {
    peer peer;
    pp_http_identity identity;
    pod_share *pod;
    struct connection *prev, *next; /* of the same pod */
    holding *held;
    uint64_t charged;  /* bytes that TLS has read, as far as the pod has paid for them */
    int64_t heard;     /* monotonic ns: when something came last */
    int64_t confirmed; /* monotonic ns: when libwebsockets was last told that the peer is there */
    int64_t ponged; /* monotonic ns: when the peer was last told that we are, while it is paused */
    bool pong_due;
    bool open; /* the handler knows of it */
    pp_buf incoming;
    int64_t finish_by; /* monotonic ns: what comes in is to be whole then; 0: nothing does */
    size_t decoding;   /* messages of it that decoder.c has */
    message *queue;
    message *queue_last;
    size_t queued;
    int malformed;
    int close_code;   /* not 0: to be closed when the queue is empty */
    int64_t close_by; /* monotonic ns: it is cut then, where close_code is not 0 */
    bool closing;     /* the close is on its way: nothing more is read or written */
    bool displaced;   /* closes for another, and has no place any more */
    char close_reason[124];
} connection;

/** What is known of tokens is kept apart, so that one kind never takes another's room. */
typedef enum verdict_kind {
    VERDICT_OPEN, /**< somebody asks */
    VERDICT_GRANTED,
    VERDICT_REFUSED,
    VERDICT_KINDS,
} verdict_kind;

/** What is known of a token, by its digest; the token itself is not kept. */
typedef struct verdict {
    unsigned char digest[DIGEST_BYTES];
    verdict_kind kind;
    pp_http_id id;   /* for the handler's answer */
    asking question; /* while it is open */
    pp_http_decision decision;
    pp_http_identity identity;
    char message[160];
    int64_t expires; /* monotonic ns */
    UT_hash_handle hh;
} verdict;

/** Why a batch was refused, as docs/wire.md has it; REFUSED_OTHER: for any other reason. */
typedef enum refusal {
    REFUSED_INVALID,
    REFUSED_DENIED,
    REFUSED_GONE,
    REFUSED_TOO_LARGE,
    REFUSED_OTHER,
    REFUSALS,
} refusal;

/** What became of a token that an agent brought. */
typedef enum token_result {
    TOKEN_GRANTED,
    TOKEN_REFUSED,
    TOKEN_UNAVAILABLE,
    TOKEN_LIMITED, /**< it was not asked about */
    TOKEN_RESULTS,
} token_result;

/** What a review got. */
typedef enum review_result {
    REVIEW_PATCHED,
    REVIEW_REFUSED, /**< a warning that says why, and no patch */
    REVIEW_PASSED,  /**< neither: nothing asked for its object */
    REVIEW_LATE,    /**< nothing, time ran out */
    REVIEW_RESULTS,
} review_result;

typedef struct server_metrics {
    pp_meter *in_share[SHARES];
    pp_meter *turned_away[SHARES];
    pp_meter *overdue;
    pp_meter *review_seconds[REVIEW_RESULTS];
    pp_meter *connections;
    pp_meter *batches_taken;
    pp_meter *batches_refused;
    pp_meter *refused_for[REFUSALS];
    pp_meter *malformed;
    pp_meter *tokens[TOKEN_RESULTS];
    pp_meter *received_bytes;
    pp_meter *pending;
} server_metrics;

struct pp_http_server {
    pp_http_options options; /* with the defaults filled in; what points to texts is NULL */
    char path_secret[65];    /* "": no review is taken */
    bool client_certificate; /* reviews need one */
    pp_http_handlers handlers;
    struct lws_context *context;
    struct lws_vhost *tls_vhost;
    struct lws_vhost *plain_vhost;
    struct lws_vhost *open_vhost; /* NULL: there is none */
    SSL_CTX *ssl_ctx;             /* of tls_vhost, borrowed */
    struct lws_protocols tls_protocols[3];
    struct lws_protocols plain_protocols[2];
    struct lws_protocols open_protocols[2];
    lws_retry_bo_t retry;
    pp_http_id last_id;
    visitors *visitors;
    uv_timer_t sweep_timer;
    size_t review_bytes; /* of reviews being read or answered */
    peer *exchanges;
    peer *connections;
    holding *holdings; /* by id */
    pod_share *pods;
    pod_share *holders;               /* those of which batches are not answered */
    verdict *verdicts[VERDICT_KINDS]; /* by digest */
    askers *askers;
    askers *api_askers;    /* by address */
    askers *reader_askers; /* by whose token it is, of those that are known */
    known_tokens *known_tokens;
    size_t api_bytes; /* of answers of the API that are not read yet */
    decoder *decoder;
    size_t open_connections;
    size_t displaced; /* connections that have no place any more */
    size_t pending_batches;
    size_t pending_bytes;
    size_t receiving; /* bytes of unfinished messages */
    bool held;        /* by pp_http_ingest_hold() */
    bool paused;
    bool draining;
    bool stopping;
    bool destroyed; /* the context has been told to go */
    uv_timer_t stop_timer;
    int64_t stop_deadline;
    server_metrics metrics;
};

/* arrivals.c: who may connect, and who has to go. */
/** Before anybody can connect: the bookkeeping and its timer; -1 without memory. */
int http_arrivals_start(pp_http_server *server);
/** Closes connections that reviews come by and no request is on. */
void http_arrivals_drain(pp_http_server *server);
/** Closes the timer; the rest goes with http_arrivals_free, when no wsi is left. */
void http_arrivals_stop(pp_http_server *server);
void http_arrivals_free(pp_http_server *server);
/** A connection was accepted: whether it may stay. */
bool http_arrival_admitted(pp_http_server *server, const struct lws_filter_network_conn_args *from,
                           http_port port);
/** What was admitted last is this. */
void http_arrival_is(pp_http_server *server, struct lws *wsi);
/** It has proved to come for reviews; false where there is no place for it. */
bool http_arrival_reviews(pp_http_server *server, struct lws *wsi);
/** It has proved to come for results; false where there is no place for it. */
bool http_arrival_proved(pp_http_server *server, struct lws *wsi);
/** Ends a connection, on the loop's next turn. */
void http_arrival_cut(pp_http_server *server, struct lws *wsi);
/** How many connections of agents fit beside all else; raises the limit of open files first. */
size_t http_arrivals_fit(const pp_http_options *options);

/* peers.c */
pp_http_server *http_server_of(struct lws *wsi);
pp_http_id http_next_id(pp_http_server *server);

/* server.c */
/** Makes the server's own metrics; without a registry nothing. */
void http_make_metrics(pp_metrics *registry, server_metrics *ret);

/* routing.c: which request goes where. */
int http_routing_callback(struct lws *wsi, enum lws_callback_reasons reason, void *in, size_t len,
                          http_port port);

/* exchange.c: one HTTP request and its answer. */
/** A connection's request that is not answered whole; NULL: none. */
exchange *http_exchange_of(struct lws *wsi);
/** NULL without memory. */
exchange *http_exchange_new(struct lws *wsi, http_port port);
/** Writes the next piece of the answer; -1 ends the connection. */
int http_exchange_write(exchange *ex);
exchange *http_exchange_find(pp_http_server *server, pp_http_id id);
/** The exchange enters a stage that may last so many ns. */
void http_exchange_enter(exchange *ex, exchange_stage stage, int64_t timeout);
/** Sends an answer; `headers` is "" or whole lines. Text and status line are made here. */
void http_exchange_answer(exchange *ex, int status, const char *type, const char *headers,
                          const char *body, size_t len);
/** The same with a body that outlives the exchange, and is not copied as a whole. */
void http_exchange_answer_file(exchange *ex, int status, const char *type, const char *headers,
                               const unsigned char *body, size_t len);
/** A short text as answer. */
void http_exchange_answer_text(exchange *ex, int status, const char *headers, const char *text);
void http_exchange_free(exchange *ex);

/* admission.c */
/** Whether the path, NUL-terminated, is one of reviews, and which is noted in the exchange; in time
 * that says nothing of the secret. */
bool http_review_path(exchange *ex, const char *path);
void http_review_begin(exchange *ex);
void http_review_body(exchange *ex);
void http_review_late(exchange *ex);

/* api.c: the HTTP API. */
/** Before anybody can connect; -1 without memory. */
int http_api_start(pp_http_server *server);
void http_api_free(pp_http_server *server);
/** Whether the request is one of the API's, whatever its method. */
bool http_api_path(exchange *ex);
void http_api_begin(exchange *ex);
void http_api_late(exchange *ex);

/* files.c: files that are the same for everybody. */
/** Answers a request for one; false: there is none of that path, and nothing is answered. */
bool http_file_answered(exchange *ex);

/* token.c: what a request brings to prove itself. */
/** Whether a text can be a token, of PP_HTTP_MAX_TOKEN bytes at most. */
bool http_is_token(const char *text);
/** The request's bearer token, in out (PP_HTTP_MAX_TOKEN + 16 bytes); NULL: none. */
const char *http_bearer_token(struct lws *wsi, char *out);

/* authorization.c: who may upgrade. */
bool http_upgrade_allowed(pp_http_server *server, struct lws *wsi, pp_http_identity *ret_identity);
void http_upgrade_begin(exchange *ex);
void http_upgrade_late(exchange *ex);

/* verdicts.c: what is known of tokens. */
/** By a token's digest; NULL: nothing, or not any more. */
verdict *http_verdict_find(pp_http_server *server, const unsigned char *digest);
/** An open verdict, so that the next request with this token does not ask again; NULL: too many
 * are, of this address or in all. */
verdict *http_verdict_new(pp_http_server *server, const void *who, const unsigned char *digest);
verdict *http_verdict_find_open(pp_http_server *server, pp_http_id id);
/** The open question is answered. */
void http_verdict_settle(pp_http_server *server, verdict *v, pp_http_decision decision,
                         const pp_http_identity *identity);
/** Whoever still waits for an open one is told by the exchange's own deadline. */
void http_verdict_drop(pp_http_server *server, verdict *v);
/** Before anybody can connect; -1 without memory. */
int http_verdicts_start(pp_http_server *server);
void http_verdicts_forget(pp_http_server *server);
void http_verdicts_free(pp_http_server *server);

/* plain.c */
void http_metrics_begin(exchange *ex);
void http_healthz_begin(exchange *ex);
void http_readyz_begin(exchange *ex);

/* ingest.c */
/** Pods pay for what they sent beside messages, and are read again when they have rested; what
 * does not close is cut. */
void http_ingest_sweep(pp_http_server *server);
/** Before anybody can connect; -1 without memory or a thread. */
int http_ingest_start(pp_http_server *server);
/** No message is decoded any more. */
void http_ingest_stop(pp_http_server *server);
/** When no connection is left. */
void http_ingest_free(pp_http_server *server);
int http_ingest_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                         size_t len);
/** A connection for an upgrade that is allowed; 0, or -1 without memory. */
int http_connection_new(pp_http_server *server, struct lws *wsi, const pp_http_identity *identity);
void http_connection_free(connection *c);
/** Whether there is a place for one connection more. */
bool http_ingest_has_place(const pp_http_server *server);
/** The same, in another's where there is none and the handler says whose. */
bool http_ingest_make_place(pp_http_server *server, const pp_http_identity *identity);

/* tls.c */
/** Certificate and key fit together and can be used: tried in a context of their own. */
int http_tls_try(const char *certificate, const char *key, pp_error *err);
int http_tls_use(SSL_CTX *ctx, const char *certificate, const char *key, pp_error *err);
/** What is the same for every certificate: versions, no renegotiation, nothing kept. */
void http_tls_configure(SSL_CTX *ctx);
/** Asks every client for a certificate of these authorities, or, with NULL, nobody; none has to
 * show one. */
int http_tls_ask_clients(SSL_CTX *ctx, const char *pem, pp_error *err);
/** The peer has shown a certificate of these authorities. */
bool http_tls_client_known(struct lws *wsi);

#endif
