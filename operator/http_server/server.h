/*
 * The operator's HTTP edge: libwebsockets on the caller's libuv loop, two ports or three.
 *
 *   TLS    POST /SECRET/pods   admission review of pods and sessions, always answered allowed
 *          POST /SECRET/labelled   the same, in namespaces that ask for the hook
 *          POST /SECRET/replica    a session's, passed on by another replica
 *          GET  /v1/ingest     WebSocket of the agents (docs/wire.md)
 *          GET  /api/...       results (docs/api.md)
 *          GET  files that are the same for everybody
 *   plain  GET  /metrics, /healthz, /readyz
 *   open   on loopback, where it is asked for: results without a token, and the files
 *
 * What is decided lies with the caller: each request reaches it through pp_http_handlers with an
 * id, and it answers with that id, at once or later. Nothing is sent for an id whose peer has gone,
 * so that nobody has to track what the network does. Everything runs on the loop's thread. Handlers
 * may call any function of this header but pp_http_server_free.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_SERVER_H
#define PP_OPERATOR_HTTP_SERVER_SERVER_H

#include "common/error.h"
#include "common/wire.h"
#include "operator/http_server/metrics.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct pp_http_server pp_http_server;

/** A request or a connection; never used twice in a process, never 0. */
typedef uint64_t pp_http_id;

enum {
    PP_HTTP_MAX_REVIEW = 3 << 20,       /**< bytes of an admission review */
    PP_HTTP_MAX_TOKEN = 6144,           /**< bytes of a bearer token */
    PP_HTTP_MAX_BATCHES = 256,          /**< default of max_batches */
    PP_HTTP_MAX_BATCH_BYTES = 32 << 20, /**< default of max_batch_bytes */
    PP_HTTP_POD_RATE = 1 << 20,         /**< default of pod_rate */
    PP_HTTP_MAX_RECEIVING = 64 << 20, /**< bytes of unfinished messages, all connections together */
    PP_HTTP_MAX_POD_RECEIVING = 2 << 20, /**< the same of one pod; past either the oldest goes */
    PP_HTTP_MAX_POD_CONNECTIONS = 8,     /**< WebSockets of one pod; past it the oldest goes */
    PP_HTTP_MAX_QUEUE = 256,             /**< messages waiting to be written to one connection */
    PP_HTTP_MAX_WARNINGS = 8,            /**< of one admission answer */
    PP_HTTP_MAX_REVIEWS = 32 << 20, /**< bytes of reviews being read or answered, all together */
    PP_HTTP_MAX_UNPROVEN = 256,     /**< connections of the TLS port that have proved nothing yet */
    PP_HTTP_MAX_UNPROVEN_EACH = 128, /**< the same of one address */
    PP_HTTP_MAX_REVIEWERS = 128,     /**< connections that reviews come by */
    PP_HTTP_MAX_ASKED = 64,          /**< tokens that are asked about at once */
    PP_HTTP_MAX_ASKED_EACH = 32,     /**< of these from one address */
    PP_HTTP_MAX_REFUSED = 64,        /**< tokens of one address refused at once, after a rest */
    PP_HTTP_MAX_API = 32,        /**< requests of the API that are not answered, at once, of tokens
                                      that are not known to be good */
    PP_HTTP_MAX_API_EACH = 16,   /**< of these from one address */
    PP_HTTP_MAX_READS = 64,      /**< the same, of tokens that are */
    PP_HTTP_MAX_READS_EACH = 16, /**< of these of one user */
    PP_HTTP_MAX_API_CONNECTIONS = 256, /**< connections that results were read by */
    PP_HTTP_MAX_API_BYTES = 32 << 20,  /**< of answers that are not read yet, all together */
    PP_HTTP_MAX_PARAMETERS = 16,       /**< of a request's query */
    PP_HTTP_MAX_PLAIN = 64,            /**< connections of the plain port */
    PP_HTTP_MAX_PLAIN_EACH = 32,       /**< the same of one address */
};

/** Zero or NULL means the default; loop, certificate and max_connections are needed. */
typedef struct pp_http_options {
    uv_loop_t *loop;
    const char *address;       /**< interface or address to listen on; NULL: all */
    int tls_port;              /**< 0: the kernel picks one (pp_http_tls_port tells) */
    int plain_port;            /**< 0: the same */
    int open_port;             /**< of 127.0.0.1; 0: there is none */
    const char *certificate;   /**< PEM: the serving certificate, then any intermediate ones */
    const char *key;           /**< PEM of its private key */
    const char *path_secret;   /**< SECRET of the paths above; NULL: no review is taken */
    const char *client_ca;     /**< PEM: reviews need a client certificate of these; NULL: none */
    size_t max_connections;    /**< WebSocket connections; further upgrades get another's place
                                    (displace), or 503 */
    size_t max_review_bytes;   /**< default PP_HTTP_MAX_REVIEWS; further reviews get 503 */
    size_t max_unproven;       /**< default PP_HTTP_MAX_UNPROVEN; further ones are cut off */
    size_t max_unproven_each;  /**< default PP_HTTP_MAX_UNPROVEN_EACH */
    size_t max_batches;        /**< batches handed over and not answered; past it nothing is read,
                                    and of a pod that holds as many as are still free none */
    size_t max_batch_bytes;    /**< the same in bytes, decoded */
    int64_t pod_rate;          /**< bytes a second that one pod sends; 4 s of them at once */
    int64_t request_timeout;   /**< ns from connecting to the end of a request's headers, and for a
                                    peer that proved nothing between two requests; default 10 s */
    int64_t body_timeout;      /**< ns for a whole request body; default 5 s */
    int64_t admission_timeout; /**< ns for the answer, then allowed without patch; default 3 s */
    int64_t authorize_timeout; /**< ns for the decision, then 503; default 5 s */
    int64_t api_timeout;       /**< ns for the API's answer, then 503; default 20 s */
    int64_t refusal_interval;  /**< ns between refused tokens of an address in the long run; default
                                    0.1 s */
    int64_t message_timeout;   /**< ns for a whole message of an agent; default 30 s */
    int ping_after;            /**< s without traffic before a ping; default 20 */
    int hangup_after;          /**< s without traffic before hanging up; default 45 */
    pp_metrics *metrics; /**< where the server's own metrics go and what /metrics shows; or NULL */
} pp_http_options;

/** What is about to be created. Texts and the object are the server's, valid during the call only.
 */
typedef struct pp_http_review {
    const char *uid;
    const char *namespace_name; /**< of the request; a pod being created may not name it itself */
    const json_t *pod;          /**< take a reference (json_incref) to keep it; NULL: a session */
    const json_t *session;      /**< a ProfileSession; NULL: a pod */
    bool labelled;              /**< the namespace asks for the hook: precisionprobe.io/inject */
    int64_t patience;           /**< ns: an answer that takes longer is of no use */
    bool dry_run;               /**< nothing may be changed elsewhere because of this request */
    bool relayed;               /**< another replica has it, and passes it on: a session */
} pp_http_review;

/** Who an agent's connection speaks for: from its token, never from a message. */
typedef struct pp_http_identity {
    char namespace_name[64];
    char pod[256];
    char pod_uid[64];
} pp_http_identity;

typedef enum pp_http_decision {
    PP_HTTP_GRANTED,
    PP_HTTP_UNAUTHORIZED, /**< 401: not a token of this cluster for this audience */
    PP_HTTP_FORBIDDEN,    /**< 403: a token, but not of a pod that may speak */
    PP_HTTP_UNAVAILABLE,  /**< 503: cannot be said now */
} pp_http_decision;

/** A request of the API. Texts are the server's, valid during the call only. */
typedef struct pp_http_api_request {
    const char *path;          /**< decoded */
    const pp_strings *query;   /**< its parts, "name=value", decoded */
    const char *token;         /**< NULL: none */
    bool open;                 /**< whoever asks may read all: it came by the open port */
    const char *if_none_match; /**< "": none */
} pp_http_api_request;

/** A file; all of it is the handler's and outlives the server. */
typedef struct pp_http_file {
    const char *type;
    const char *etag;    /**< with its quotes */
    const char *headers; /**< further ones, whole lines */
    const char
        *location; /**< where it is found instead, relative to the request's path; NULL: here */
    const unsigned char *data;
    size_t len;
} pp_http_file;

/** Texts are borrowed during the call. */
typedef struct pp_http_api_answer {
    int status;   /**< 401 counts against the address that asked */
    uint64_t who; /**< not 0: the token was a good one, of the user that this number stands for. Its
                       connection is none of the unproven any more, and what the token asks next is
                       counted as that user's, not the address's */
    const char *type;
    const char *etag;    /**< with its quotes; NULL: none */
    const char *headers; /**< further ones, whole lines; NULL: none */
    const char *body;
    size_t len;
    /** Not NULL: the body is not copied, and called once with `owner` when it is not needed any
     * more, whatever comes of the answer. */
    void (*release)(void *owner);
    void *owner;
} pp_http_api_answer;

/** What the caller does. Every member but context, api, api_gone and file must be given. */
typedef struct pp_http_handlers {
    void *context;

    /** Answer with pp_http_admission_respond. */
    void (*review)(void *context, pp_http_id id, const pp_http_review *review);

    /**
     * Whether a bearer token may speak; answer with pp_http_authorize_respond. Answers are kept
     * for a while by the token's digest, so that not every connection asks, and an address that
     * brings bad tokens is asked for less often (askers.h).
     */
    void (*authorize)(void *context, pp_http_id id, const char *token);

    /**
     * Whether agents are taken at all now: false gives every upgrade 503 (the Lease is elsewhere,
     * the store is away). To end running connections as well, use pp_http_ingest_close_all.
     */
    bool (*accepting)(void *context);

    /**
     * There are max_connections, and one more agent with a good token: the connection that is to be
     * closed for it, each at most once; 0: none.
     */
    pp_http_id (*displace)(void *context, const pp_http_identity *identity);

    /** An agent's connection stands; welcome it. */
    void (*connected)(void *context, pp_http_id connection, const pp_http_identity *identity);

    /**
     * A valid batch; the handler owns it. Answer each with pp_http_ingest_ack,
     * pp_http_ingest_refuse or pp_http_ingest_put_off, in any order, and also when its connection
     * has gone: until then it counts as its pod's. Whether its session may come from this pod is
     * the handler's to check.
     */
    void (*batch)(void *context, pp_http_id connection, pp_wire_batch *batch);

    void (*bye)(void *context, pp_http_id connection, const pp_wire_bye *bye);

    /** An answer of the agent's to "what time is it there?"; it may be one that nobody asked for.
     */
    void (*time)(void *context, pp_http_id connection, const pp_wire_time *answer);

    /** What the agent sees of the hook in its pod. */
    void (*hook)(void *context, pp_http_id connection, const pp_wire_hook *hook);

    /** The connection has gone; nobody reads answers to what it still had. */
    void (*disconnected)(void *context, pp_http_id connection);

    /** Answer with pp_http_api_respond. NULL: there is no API. Of HEAD the answer's body is left
     * out here. */
    void (*api)(void *context, pp_http_id id, const pp_http_api_request *request);

    /** Nobody waits for the API's answer any more. */
    void (*api_gone)(void *context, pp_http_id id);

    /** The file of a path, which needs no token, into *ret; false: there is none. NULL: there are
     * none at all. */
    bool (*file)(void *context, const char *path, pp_http_file *ret);

    /** For /readyz: false with the reason why not. */
    bool (*ready)(void *context, char *reason, size_t size);
} pp_http_handlers;

/**
 * Starts listening. Options and handlers are copied. Fails when a port is taken or the certificate
 * and key do not fit. One server per process: libwebsockets' log is global, and so is the limit of
 * open files, which this raises to the hard one, or to 65,536 (libwebsockets allocates by it).
 * Where that is too few for max_connections, it is lowered, with a warning: descriptors are kept
 * for health, reviews and the connections that the process itself makes. On failure *ret is NULL,
 * or a server that is stopped already: then pp_http_server_free is due.
 */
int pp_http_server_new(const pp_http_options *options, const pp_http_handlers *handlers,
                       pp_http_server **ret, pp_error *err);

/** The ports in use. */
int pp_http_tls_port(const pp_http_server *server);
int pp_http_plain_port(const pp_http_server *server);

/** From now on new handshakes get this certificate; on failure nothing changes. */
int pp_http_server_set_certificate(pp_http_server *server, const char *certificate, const char *key,
                                   pp_error *err);

/**
 * From now on reviews are taken under this secret alone (1 to 64 characters; NULL: none is). Its
 * text is copied.
 */
int pp_http_server_set_path_secret(pp_http_server *server, const char *secret, pp_error *err);

/**
 * From now on reviews need a client certificate that one of these authorities (PEM) has signed;
 * NULL: they need none. On failure nothing changes. Connections for anything else need none ever,
 * nor do reviews that another replica passes on, which knows the path alone.
 */
int pp_http_server_set_client_ca(pp_http_server *server, const char *pem, pp_error *err);

/**
 * Closes the connections that reviews came by, and ends with each answer that by which it goes: a
 * client that keeps connections comes anew, by then to another replica. All else goes on.
 */
void pp_http_server_drain(pp_http_server *server);

/**
 * Begins to stop: pending reviews are answered allowed, connections closed with 1001, and after at
 * most half a second everything is torn down. When uv_run has returned, call pp_http_server_free.
 * Handlers are not called any more, except disconnected.
 */
void pp_http_server_stop(pp_http_server *server);

/** After stop, and after the loop has run out of handles. NULL is allowed. */
void pp_http_server_free(pp_http_server *server);

/**
 * Answers a review: a JSON Patch (array; NULL for none; borrowed) and up to PP_HTTP_MAX_WARNINGS
 * texts for the person at kubectl. The pod is always allowed.
 */
void pp_http_admission_respond(pp_http_server *server, pp_http_id id, const json_t *patch,
                               const pp_strings *warnings);

/** Answers a request of the API. */
void pp_http_api_respond(pp_http_server *server, pp_http_id id, const pp_http_api_answer *answer);

/** Answers authorize. identity is needed with PP_HTTP_GRANTED only; text goes to the agent. */
void pp_http_authorize_respond(pp_http_server *server, pp_http_id id, pp_http_decision decision,
                               const pp_http_identity *identity, const char *text);

/** After the transaction that holds the batch committed. */
void pp_http_ingest_ack(pp_http_server *server, pp_http_id connection, const char *instance,
                        int64_t seq);

/** The batch will never be taken; why's code and field go to the agent. */
void pp_http_ingest_refuse(pp_http_server *server, pp_http_id connection, int64_t seq,
                           const pp_error *why);

/** The batch cannot be taken now: the connection is closed, so that its agent sends it again. */
void pp_http_ingest_put_off(pp_http_server *server, pp_http_id connection);

/** Which session the pod has now and whether its captures shall be sampled; first message, and at
 * every change. */
void pp_http_ingest_welcome(pp_http_server *server, pp_http_id connection,
                            const pp_wire_welcome *welcome);

/** Asks an agent what time it is there: only one whose welcome asked and that has answered. */
void pp_http_ingest_ask_time(pp_http_server *server, pp_http_id connection, int64_t number);

/** All trainers of the agent's pod have ended: an ordinary sidecar shall end too. The session may
 * be "". */
void pp_http_ingest_leave(pp_http_server *server, pp_http_id connection, const char *session);

/** Closes after what is queued is written; code and reason as in RFC 6455 (reason <= 120 bytes). */
void pp_http_ingest_close(pp_http_server *server, pp_http_id connection, int code,
                          const char *reason);

/** While held nothing is read of agents' connections, which stay open; a message that is being
 * decoded still comes. */
void pp_http_ingest_hold(pp_http_server *server, bool held);

/** Closes every agent's connection (the Lease was lost: 1012) and forgets all decisions. */
void pp_http_ingest_close_all(pp_http_server *server, int code, const char *reason);

#endif
