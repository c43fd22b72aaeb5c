/* Cuts a stream of bytes into lines, whatever the pieces it comes in; the tail is kept. */
#ifndef PP_OPERATOR_KUBE_FRAMER_H
#define PP_OPERATOR_KUBE_FRAMER_H

#include "common/buf.h"

typedef struct pp_framer {
    pp_buf tail;
} pp_framer;

/** One line without its end, not NUL-terminated. A negative return with err set stops the feeding.
 */
typedef int (*pp_framer_fn)(void *user, const char *line, size_t n, pp_error *err);

/** A line may have max_line bytes. */
void pp_framer_init(pp_framer *framer, size_t max_line);
void pp_framer_done(pp_framer *framer);

/** Forgets the tail. */
void pp_framer_reset(pp_framer *framer);

/**
 * Feeds n bytes; calls fn for each whole line that is not empty. Fails with PP_ERR_TOO_LARGE for a
 * line over the limit, or as fn did; the framer must be reset then.
 */
int pp_framer_feed(pp_framer *framer, const char *data, size_t n, pp_framer_fn fn, void *user,
                   pp_error *err);

#endif
