/*
 * What the API server lets this operator do, of that without which it can do nothing: as the API
 * server says when it is asked, and as calls that it refuses show meanwhile. An operator that lacks
 * one of these is not ready.
 */
#ifndef PP_OPERATOR_STATE_RIGHTS_H
#define PP_OPERATOR_STATE_RIGHTS_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pp_operator pp_operator;

typedef enum pp_right {
    PP_RIGHT_SESSIONS = 0,  /**< to list and watch ProfileSessions */
    PP_RIGHT_STATUS,        /**< to patch their status */
    PP_RIGHT_PODS,          /**< to list and watch pods */
    PP_RIGHT_TOKEN_REVIEWS, /**< to ask who an agent is */
    PP_RIGHT_TOKEN,         /**< to be known at all */
    PP_RIGHT_COUNT,
} pp_right;

/** Zeroed, nothing is denied. */
typedef struct pp_rights {
    int64_t denied_ns[PP_RIGHT_COUNT]; /**< monotonic, when it was last seen to be; 0: it is not */
} pp_rights;

/** What a message ends with that says what is missing. */
#define PP_RIGHTS_REMEDY "see that the chart's ClusterRoleBindings are there"

/** "watching pods", ... */
const char *pp_right_name(pp_right right);

/**
 * Takes note of an answer that depends on the right: `error` NULL grants it, 403 denies it, 401
 * denies PP_RIGHT_TOKEN, and any other error tells nothing. Returns whether that changes anything.
 */
bool pp_rights_note(pp_rights *rights, pp_right right, const pp_error *error, int64_t now_ns);

/** A denial that has not been seen for 3 minutes is none any more: what it was for may be over. */
bool pp_rights_denied(const pp_rights *rights, pp_right right, int64_t now_ns);

/** Names what is denied; false: nothing is. */
bool pp_rights_missing(const pp_rights *rights, int64_t now_ns, char *out, size_t size);

/** The same as pp_rights_note for the process, and for its log. */
void pp_rights_tell(pp_operator *op, pp_right right, const pp_error *error);

#endif
