/*
 * A libpq connection string with its host names resolved on the loop: PQconnectStart would resolve
 * them synchronously. Everything else in it passes through to libpq.
 */
#ifndef PP_OPERATOR_STORE_CONNINFO_H
#define PP_OPERATOR_STORE_CONNINFO_H

#include "common/error.h"

#include <libpq-fe.h>
#include <stdint.h>
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

/** How many places to connect to it lists, of all hosts and their addresses; at least 1. */
int pp_conninfo_places(const pp_conninfo *info);
/** Which of them libpq tries, from 0; -1 where its words do not tell. */
int pp_conninfo_place(const pp_conninfo *info, const PGconn *conn);
/** Leaves the first `n` of them out; there have to be more. */
int pp_conninfo_skip(pp_conninfo *info, int n, pp_error *err);
/** ns that one of them may take, by `connect_timeout`, as libpq's manual has it; 0: no limit is
 * asked for. */
int64_t pp_conninfo_patience(const pp_conninfo *info);

typedef struct pp_conninfo_lookup pp_conninfo_lookup;
/** Called once, never before pp_conninfo_resolve returned; *info is the callee's. */
typedef void (*pp_conninfo_fn)(void *user, pp_conninfo *info, const pp_error *error);

/** Parses text (or the content of `file` when text is NULL) and resolves. NULL on error. */
pp_conninfo_lookup *pp_conninfo_resolve(uv_loop_t *loop, const char *text, const char *file,
                                        pp_conninfo_fn done, void *user, pp_error *err);

/** The callback is not called any more; the memory goes with the loop's next turns. */
void pp_conninfo_cancel(pp_conninfo_lookup *lookup);

#endif
