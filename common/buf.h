/*
 * A growing byte buffer with a maximum given at its start: every place that gathers bytes from
 * outside has a limit. The bytes are always followed by a NUL that is not counted.
 */
#ifndef PP_COMMON_BUF_H
#define PP_COMMON_BUF_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct pp_buf {
    char *data;      /**< NUL-terminated when not NULL; owned */
    size_t len;      /**< bytes in use, the NUL not counted */
    size_t capacity; /**< bytes allocated */
    size_t max;      /**< len never passes this */
} pp_buf;

/** An empty buffer that holds at most max bytes; allocates nothing yet. */
void pp_buf_init(pp_buf *buf, size_t max);

/** Frees what it holds; the buffer may be used again with the same maximum. */
void pp_buf_done(pp_buf *buf);

/** Empties it, keeping the memory. */
void pp_buf_reset(pp_buf *buf);

/** Has the memory for n more bytes allocated; pp_buf_reserve() where there is too little of it. */
int pp_buf_grow(pp_buf *buf, size_t n, pp_error *err);

/** Makes room for n more bytes: until they are appended, what the buffer holds stays where it is.
 * Fails with PP_ERR_TOO_LARGE or PP_ERR_NOMEM. */
static inline int pp_buf_reserve(pp_buf *buf, size_t n, pp_error *err)
{
    const bool fits = n < buf->capacity - buf->len && n <= buf->max - buf->len;
    return fits ? 0 : pp_buf_grow(buf, n, err);
}

/** Appends n bytes. Fails with PP_ERR_TOO_LARGE or PP_ERR_NOMEM and then appends nothing. Inline,
 * as a page of results is made of hundreds of thousands of pieces. */
static inline int pp_buf_append(pp_buf *buf, const void *data, size_t n, pp_error *err)
{
    if (pp_buf_reserve(buf, n, err) < 0)
        return -1;
    if (n)
        memcpy(buf->data + buf->len, data, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
    return 0;
}

/** Appends formatted text; same failures. */
__attribute__((format(printf, 3, 4))) int pp_buf_printf(pp_buf *buf, pp_error *err, const char *fmt,
                                                        ...);

/** Hands the NUL-terminated bytes to the caller, who frees them; the buffer is empty after. */
char *pp_buf_take(pp_buf *buf);

/** Copies what fits of a text (not the NUL, in `size` - 1 bytes, 0 at least), cut at a character's
 * boundary: UTF-8 stays UTF-8. */
void pp_copy_cut(char *out, size_t size, const char *text);

#endif
