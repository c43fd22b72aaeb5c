/* Whether a user may do something, asked of the API server (SubjectAccessReview). */
#ifndef PP_OPERATOR_KUBE_ACCESS_REVIEW_H
#define PP_OPERATOR_KUBE_ACCESS_REVIEW_H

#include "operator/kube/client.h"

#include <stdbool.h>

/** Texts are borrowed during the call. */
typedef struct pp_kube_access {
    const json_t *user; /**< as a TokenReview's status has it: username, uid, groups, extra */
    const char *verb;
    const pp_kube_resource *resource;
    const char *ns;   /**< "": all namespaces */
    const char *name; /**< "": any object */
} pp_kube_access;

/** `error` is NULL when the server answered; borrowed. */
typedef void (*pp_kube_access_fn)(void *user, bool allowed, const pp_error *error);

typedef struct pp_kube_access_review pp_kube_access_review;

/**
 * Asks; the answer never comes before this returns, and ends the review. NULL on error.
 */
pp_kube_access_review *pp_kube_access_ask(pp_kube_client *client, const pp_kube_access *access,
                                          pp_kube_access_fn done, void *user, pp_error *err);

/** No answer comes any more. NULL is allowed. */
void pp_kube_access_cancel(pp_kube_access_review *review);

#endif
