/*
 * One HTTP client for the whole operator: libcurl's multi interface on a libuv loop.
 *
 * Everything happens on the loop's thread. A request is an options struct that is copied at once;
 * it is known by an id afterwards, so a caller never holds a pointer into the client. Connections
 * are kept and shared: requests to one HTTP/2 server share one connection.
 *
 * Every callback may start and cancel requests (its own too) and may free the client.
 */
#ifndef PP_OPERATOR_HTTP_CLIENT_H
#define PP_OPERATOR_HTTP_CLIENT_H

#include "common/error.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct pp_http_client pp_http_client;

/** Names one request of one client; 0 names none, and an id is never used again. */
typedef uint64_t pp_http_client_id;

/** What requests are for. Each share has a number of its own, so that a server that hangs keeps out
 * none of another's. */
typedef enum pp_http_client_share {
    PP_HTTP_CLIENT_OTHER,      /**< 512 at once */
    PP_HTTP_CLIENT_LEASE,      /**< 16 */
    PP_HTTP_CLIENT_TOKENS,     /**< 128: TokenReviews */
    PP_HTTP_CLIENT_READERS,    /**< 64: reviews of who reads results, and may */
    PP_HTTP_CLIENT_PROMETHEUS, /**< 512 */
    PP_HTTP_CLIENT_REPLICAS,   /**< 64: the operator's other replicas */
    PP_HTTP_CLIENT_SHARES,
} pp_http_client_share;

/** How to trust the server and how to prove who we are. PEM text wins over a file. */
typedef struct pp_http_client_tls {
    const char *ca_file; /**< PEM, read for each connection; NULL with ca_pem NULL: the system's
                            authorities */
    const char *ca_pem;  /**< PEM text */
    const char *cert_file;
    const char *cert_pem;
    const char *key_file;
    const char *key_pem;
} pp_http_client_tls;

typedef struct pp_http_client_response {
    int status;               /**< HTTP status; 0 when no answer came */
    const char *body;         /**< NUL-terminated, borrowed for the call; "" when streamed */
    size_t body_len;          /**< bytes in body */
    const char *content_type; /**< "" when absent */
    int64_t retry_after_ms;   /**< from Retry-After; -1 when absent */
} pp_http_client_response;

/**
 * Called once per request that was not cancelled. `error` is NULL when a whole response arrived,
 * whatever its status; otherwise the response holds what is known (the status may be 0 or that of
 * a response cut off). Both are borrowed for the call.
 */
typedef void (*pp_http_client_done_fn)(void *user, pp_http_client_id id,
                                       const pp_http_client_response *response,
                                       const pp_error *error);

/**
 * Called with each piece of the body as it arrives, in pieces of any size. Returns 0 to go on; a
 * negative value with `err` set ends the request, whose done callback then gets that error.
 */
typedef int (*pp_http_client_chunk_fn)(void *user, pp_http_client_id id, int status,
                                       const char *data, size_t n, pp_error *err);

typedef struct pp_http_client_request {
    const char *method;         /**< NULL: GET, or POST where there is a body */
    const char *url;            /**< http or https; needed */
    const char *connect_to;     /**< "ADDRESS:PORT" that is connected to in place of the URL's host
                                   and port, "[ADDRESS]:PORT" for IPv6; may be NULL */
    const char *const *headers; /**< "Name: value", NULL-terminated; may be NULL */
    pp_http_client_share share;
    const char *bearer_token; /**< sent as Authorization: Bearer; may be NULL */
    const char *username;     /**< HTTP basic authentication, with password; may be NULL */
    const char *password;
    const void *body; /**< copied */
    size_t body_len;
    int64_t timeout_ms;         /**< for the whole exchange; 0: 30 s */
    int64_t connect_timeout_ms; /**< 0: 10 s */
    size_t max_body; /**< greatest response body; 0: 4 MiB; not applied when streaming 2xx */
    const pp_http_client_tls *tls; /**< copied; may be NULL */
    pp_http_client_chunk_fn
        chunk; /**< streams a 2xx body; bodies of other statuses are always whole */
    pp_http_client_done_fn done; /**< needed */
    void *user;
} pp_http_client_request;

typedef struct pp_http_client_options {
    unsigned max_host_connections; /**< 0: 32; requests over one HTTP/2 connection count once */
    unsigned max_requests;  /**< of each share, where that is less than its own; 0: no less */
    const char *user_agent; /**< NULL: "precisionprobe" */
} pp_http_client_options;

/** A client on the loop, which outlives it. `options` may be NULL. NULL on error. */
pp_http_client *pp_http_client_new(uv_loop_t *loop, const pp_http_client_options *options,
                                   pp_error *err);

/**
 * Cancels every request and closes the client's handles; run the loop afterwards until they are
 * closed. No callback is called any more. NULL is allowed.
 */
void pp_http_client_free(pp_http_client *client);

/**
 * Starts a request. The done callback is never called before this returns. On failure nothing was
 * started: PP_ERR_INVALID for a wrong option, PP_ERR_TOO_LARGE for too many of its share at once.
 */
int pp_http_client_send(pp_http_client *client, const pp_http_client_request *request,
                        pp_http_client_id *ret_id, pp_error *err);

/** Ends the request; none of its callbacks is called any more. Unknown and finished ids are fine.
 */
void pp_http_client_cancel(pp_http_client *client, pp_http_client_id id);

/** Requests in flight. */
size_t pp_http_client_active(const pp_http_client *client);

/** Connections made since the start: tells whether they are reused. */
uint64_t pp_http_client_connections(const pp_http_client *client);

uv_loop_t *pp_http_client_loop(const pp_http_client *client);

#endif
