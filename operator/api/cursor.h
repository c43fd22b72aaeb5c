/*
 * The `continue` of a page: where the next one begins, as an opaque text. It holds the key of the
 * page's last row and, of a session's rows, the session's UID. Nothing in it says what may be read:
 * whoever makes one up begins at another place among rows that the same right lets through. No I/O.
 */
#ifndef PP_OPERATOR_API_CURSOR_H
#define PP_OPERATOR_API_CURSOR_H

#include "common/buf.h"
#include "common/cell.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What can be read. */
typedef enum pp_api_kind {
    PP_API_OPENAPI,
    PP_API_SESSIONS,
    PP_API_SESSION,
    PP_API_LAYERS,
    PP_API_QUALITY,
    PP_API_KERNELS,
    PP_API_WAITS,
    PP_API_COPIES,
    PP_API_RANKS,
    PP_API_TIMELINE,
    PP_API_PATTERNS, /**< of a namespace's workloads */
    PP_API_PATTERN,
    PP_API_RANK_ITEMS, /**< where the ranks' time goes */
    PP_API_KINDS,
} pp_api_kind;

enum {
    PP_API_MAX_KEYS = 8,
    PP_API_MAX_KEY = 1024,      /**< bytes of a text */
    PP_API_MAX_CURSOR = 4096,   /**< bytes of a cursor's text */
    PP_API_MAX_KEY_BYTES = 3000 /**< of all keys of a cursor */
};

typedef struct pp_api_key {
    bool is_text;
    int64_t number;
    const char *text; /**< in the cursor's room */
} pp_api_key;

/** It must not be moved: its keys point into it. */
typedef struct pp_api_cursor {
    size_t n; /**< 0: from the first row on */
    pp_api_key keys[PP_API_MAX_KEYS];
    char room[PP_API_MAX_KEY_BYTES + PP_API_MAX_KEYS];
} pp_api_cursor;

/** The keys of a kind's rows, 't' for a text and 'i' for an integer; "": it has no pages. Of a
 * session's rows its UID is the first. */
const char *pp_api_keys_of(pp_api_kind kind);

/** Appends the text. Fails where the keys are not that kind's, or are too long. */
int pp_api_cursor_write(pp_api_kind kind, const pp_api_key *keys, size_t n, pp_buf *out,
                        pp_error *err);

/** Reads what pp_api_cursor_write made for that kind; anything else is PP_ERR_INVALID. */
int pp_api_cursor_read(pp_api_kind kind, const char *text, pp_api_cursor *ret, pp_error *err);

#endif
