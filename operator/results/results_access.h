/*
 * Who may read which results: a token's user, by TokenReview, and what the API server lets that
 * user do with the very ProfileSessions and ConsumptionPatterns, by SubjectAccessReview. What was
 * allowed is kept for 10 s under the SHA-256 of the token and the question; the token itself is not
 * kept. What was not is asked anew.
 */
#ifndef PP_OPERATOR_RESULTS_RESULTS_ACCESS_H
#define PP_OPERATOR_RESULTS_RESULTS_ACCESS_H

#include "operator/kube/client.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pp_results_access pp_results_access;

typedef enum pp_access {
    PP_ACCESS_ALLOWED,
    PP_ACCESS_DENIED,
    PP_ACCESS_UNKNOWN,     /**< no token of this cluster for its API server */
    PP_ACCESS_UNAVAILABLE, /**< the API server cannot be asked; the log has why */
} pp_access;

/** `who` stands for the token's user; 0: it is not known. May be called before
 * pp_results_access_ask returns. */
typedef void (*pp_access_fn)(void *user, pp_access verdict, uint64_t who);

/** NULL on error. */
pp_results_access *pp_results_access_new(pp_kube_client *kube, pp_error *err);
/** What is under way gets no answer. Run the loop until closed. NULL is allowed. */
void pp_results_access_free(pp_results_access *access);

/** What a right is of. */
typedef enum pp_access_object {
    PP_ACCESS_SESSIONS, /**< profilesessions */
    PP_ACCESS_PATTERNS, /**< consumptionpatterns */
} pp_access_object;

/** Asks whether the token's user may `get` the object of that name, or, where it is "", `list` the
 * namespace's (""; those of all namespaces). Texts are borrowed during the call. */
void pp_results_access_ask(pp_results_access *access, const char *token, pp_access_object object,
                           const char *ns, const char *name, pp_access_fn done, void *user);
/** No answer comes for this user any more. */
void pp_results_access_forget(pp_results_access *access, const void *user);

#endif
