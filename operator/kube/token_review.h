/*
 * Who stands behind a bearer token, asked of the API server (TokenReview). Good answers are kept
 * for at most 60 s under the token's SHA-256; the token itself is not kept.
 */
#ifndef PP_OPERATOR_KUBE_TOKEN_REVIEW_H
#define PP_OPERATOR_KUBE_TOKEN_REVIEW_H

#include "operator/kube/client.h"

#include <stdbool.h>

typedef struct pp_kube_reviewer pp_kube_reviewer;

/** Strings are borrowed for the call and never NULL: "" where the server said nothing. */
typedef struct pp_kube_identity {
    bool authenticated;   /**< and the token is for our audience */
    const char *reason;   /**< why not authenticated, for the log */
    const char *username; /**< "system:serviceaccount:ml:default" */
    const char *ns;       /**< of the service account */
    const char *service_account;
    const char *pod_name; /**< of a pod-bound token, else "" */
    const char *pod_uid;
    const json_t *user; /**< all that the server says of the user, for an access review; or NULL */
} pp_kube_identity;

/** `error` is NULL when the server answered, whatever it said. Both borrowed for the call. */
typedef void (*pp_kube_review_fn)(void *user, const pp_kube_identity *identity,
                                  const pp_error *error);

/** `audience` is what tokens must be made for ("precisionprobe"); NULL: for the API server itself,
 * and so asked for readers of results.
 * NULL on error. */
pp_kube_reviewer *pp_kube_reviewer_new(pp_kube_client *client, const char *audience, pp_error *err);

/** Cancels what is under way without callbacks. Run the loop until closed. */
void pp_kube_reviewer_free(pp_kube_reviewer *reviewer);

/**
 * Asks about a token; the answer never comes before this returns. Fails for an empty token, one
 * longer than 16 KiB, or more than 1024 questions at once.
 */
int pp_kube_review(pp_kube_reviewer *reviewer, const char *token, pp_kube_review_fn done,
                   void *user, pp_error *err);

#endif
