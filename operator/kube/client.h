/*
 * The Kubernetes API as verbs over JSON: a resource is named by group, version and plural, a call
 * is an options struct, the answer comes to a callback on the loop's thread.
 */
#ifndef PP_OPERATOR_KUBE_CLIENT_H
#define PP_OPERATOR_KUBE_CLIENT_H

#include "common/error.h"
#include "operator/http_client/http_client.h"
#include "operator/kube/config.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

typedef struct pp_kube_client pp_kube_client;

/** Names one call of one client; 0 names none. */
typedef uint64_t pp_kube_id;

/** For instance {"apps", "v1", "deployments"}; the core group is "". */
typedef struct pp_kube_resource {
    const char *group;
    const char *version;
    const char *plural;
} pp_kube_resource;

extern const pp_kube_resource PP_KUBE_PODS;
extern const pp_kube_resource PP_KUBE_CONFIGMAPS;
extern const pp_kube_resource PP_KUBE_SECRETS;
extern const pp_kube_resource PP_KUBE_NAMESPACES;
extern const pp_kube_resource PP_KUBE_EVENTS; /**< events.k8s.io/v1 */
extern const pp_kube_resource PP_KUBE_LEASES;
extern const pp_kube_resource PP_KUBE_TOKENREVIEWS;
extern const pp_kube_resource PP_KUBE_ACCESS_REVIEWS; /**< SubjectAccessReviews */
extern const pp_kube_resource PP_KUBE_MUTATING_WEBHOOKS;

typedef enum pp_kube_verb {
    PP_KUBE_GET,
    PP_KUBE_LIST,
    PP_KUBE_CREATE, /**< POST to the collection (or to name/subresource where a name is given) */
    PP_KUBE_UPDATE, /**< PUT; fails with PP_ERR_CONFLICT on an old metadata.resourceVersion */
    PP_KUBE_PATCH_MERGE, /**< RFC 7386 */
    PP_KUBE_PATCH_JSON,  /**< RFC 6902 */
    PP_KUBE_DELETE,      /**< the body, if any, is DeleteOptions */
    PP_KUBE_WATCH,       /**< of streams only */
    PP_KUBE_VERBS,
} pp_kube_verb;

/**
 * Called once per call that was not cancelled. On success `error` is NULL and `object` is the
 * answer (an object, a list, or a Status after DELETE), borrowed: json_incref to keep it. On
 * failure `object` is the server's Status where it sent one, else NULL; see pp_kube_status_error
 * for codes.
 */
typedef void (*pp_kube_done_fn)(void *user, json_t *object, const pp_error *error);

typedef struct pp_kube_call {
    pp_kube_verb verb;
    const pp_kube_resource *resource; /**< needed */
    const char *ns;                   /**< NULL: cluster-scoped, or a list over all namespaces */
    const char *name;                 /**< NULL for LIST and plain CREATE */
    const char *subresource;          /**< "status" and the like, or NULL */
    const char *label_selector;       /**< LIST; percent-encoded for you */
    const char *field_selector;       /**< LIST */
    const char *resource_version;     /**< LIST and GET; opaque */
    const char *continue_token;       /**< LIST: the next page */
    int limit;                        /**< LIST: objects per page; 0: all in one answer */
    const json_t *body;               /**< serialized at once, not kept */
    int64_t timeout_ms;               /**< 0: 30 s */
    size_t max_body;                  /**< 0: 16 MiB */
    bool for_readers;                 /**< asked for readers of results: in a share of its own */
    bool first;                       /**< somebody waits for it: before calls that wait */
    pp_kube_done_fn done;             /**< needed */
    void *user;
} pp_kube_call;

/*
 * Calls of the Lease, TokenReviews, those for readers of results, and all others each have a share
 * of the requests in flight and a pace of their own; past it they wait, and their timeout runs
 * meanwhile. Where the API server answers 429, or 503 with a Retry-After, the share rests so long
 * and the call is sent again, if its timeout allows (streams are not sent again). The Lease does
 * neither.
 */

/** `config` is copied; `http` outlives the client. NULL on error (e.g. the token is unreadable). */
pp_kube_client *pp_kube_client_new(pp_http_client *http, const pp_kube_config *config,
                                   pp_error *err);

/** Calls a second, of which four seconds' worth may come at once; 100 until this is called. That
 * of TokenReviews is 100, and 500 at once; of calls for readers 50, and 200 at once. */
void pp_kube_client_set_rate(pp_kube_client *client, double per_second);

/** Told of each request that the API server has answered, a stream when it ends; status 0: it gave
 * no answer. A call that is sent again is told of each time, a cancelled one is not. */
typedef void (*pp_kube_answered_fn)(void *user, pp_kube_verb verb, int status);
void pp_kube_client_on_answer(pp_kube_client *client, pp_kube_answered_fn answered, void *user);

/** Cancels its calls; no callback is called any more. Run the loop until its handles are closed. */
void pp_kube_client_free(pp_kube_client *client);

/** Starts a call; `ret_id` may be NULL. On failure nothing was started. */
int pp_kube_call_start(pp_kube_client *client, const pp_kube_call *call, pp_kube_id *ret_id,
                       pp_error *err);

/** Ends the call without a callback. Unknown and finished ids are fine. */
void pp_kube_call_cancel(pp_kube_client *client, pp_kube_id id);

/** The namespace we run in. */
const char *pp_kube_client_namespace(const pp_kube_client *client);
uv_loop_t *pp_kube_client_loop(const pp_kube_client *client);

/**
 * Sets err from an HTTP status and the server's Status object (may be NULL): 400 and 422 INVALID
 * (with the first cause's field), 401 UNAUTHORIZED, 403 DENIED, 404 NOT_FOUND, 409 CONFLICT (also
 * AlreadyExists), 410 GONE, 413 TOO_LARGE, 408 and 504 TIMEOUT, 429 and other 5xx UNAVAILABLE.
 * Returns -1.
 */
int pp_kube_status_error(int http_status, const json_t *status, pp_error *err);

/**
 * The path (and query) of a call below the server's URL, newly allocated; names are checked to be
 * path-safe. `watch_query`, when not NULL, is appended to the query as it is. NULL on error.
 */
char *pp_kube_call_path(const pp_kube_call *call, const char *watch_query, pp_error *err);

/**
 * Streams GET `path` ("/api/v1/pods?watch=1..."), which is this verb; the informer's way in.
 * Callbacks as in pp_http_client_send; the id goes to pp_kube_call_cancel.
 */
int pp_kube_stream_start(pp_kube_client *client, pp_kube_verb verb, const char *path,
                         int64_t timeout_ms, pp_http_client_chunk_fn chunk,
                         pp_http_client_done_fn done, void *user, pp_kube_id *ret_id,
                         pp_error *err);

#endif
