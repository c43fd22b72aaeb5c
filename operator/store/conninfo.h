/*
 * A libpq connection string with its host names resolved on the loop: PQconnectStart would resolve
 * them synchronously. Everything else in it passes through to libpq.
 */
#ifndef PP_OPERATOR_STORE_CONNINFO_H
#define PP_OPERATOR_STORE_CONNINFO_H

#include "common/error.h"

#include <uv.h>

enum { PP_CONNINFO_MAX = 16384, PP_CONNINFO_PARAMS = 64 };

/** For PQconnectStartParams: NULL-terminated, owned. */
typedef struct pp_conninfo {
    char *keywords[PP_CONNINFO_PARAMS + 1];
    char *values[PP_CONNINFO_PARAMS + 1];
    int n;
} pp_conninfo;

void pp_conninfo_done(pp_conninfo *info);
/** The value of a keyword, borrowed, or NULL. */
const char *pp_conninfo_get(const pp_conninfo *info, const char *keyword);

typedef struct pp_conninfo_lookup pp_conninfo_lookup;
/** Called once, never before pp_conninfo_resolve returned; *info is the callee's. */
typedef void (*pp_conninfo_fn)(void *user, pp_conninfo *info, const pp_error *error);

/** Parses text (or the content of `file` when text is NULL) and resolves. NULL on error. */
pp_conninfo_lookup *pp_conninfo_resolve(uv_loop_t *loop, const char *text, const char *file,
                                        pp_conninfo_fn done, void *user, pp_error *err);

/** The callback is not called any more; the memory goes with the loop's next turns. */
void pp_conninfo_cancel(pp_conninfo_lookup *lookup);

#endif
