/* The LimitRanges and ResourceQuotas of each namespace. No I/O. */
#ifndef PP_OPERATOR_CACHE_LIMITS_H
#define PP_OPERATOR_CACHE_LIMITS_H

#include "controller/injection/inject_fit.h"

typedef struct pp_limits pp_limits;

typedef enum pp_limits_kind {
    PP_LIMITS_RANGES = 0,
    PP_LIMITS_QUOTAS,
} pp_limits_kind;

pp_limits *pp_limits_new(void);
/** Accepts NULL. */
void pp_limits_free(pp_limits *limits);

/**
 * Keeps a new reference to an object of this namespace in the place of one with the same key. On
 * failure (memory) the namespace is as it was.
 */
int pp_limits_put(pp_limits *limits, pp_limits_kind kind, const char *key, const json_t *object);
void pp_limits_drop(pp_limits *limits, pp_limits_kind kind, const char *key);

/** What bounds pods there, borrowed until the next change; NULL: nothing, or `limits` is NULL. */
const pp_inject_limits *pp_limits_of(const pp_limits *limits, const char *ns);

#endif
