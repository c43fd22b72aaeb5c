#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256 };

void pp_buf_init(pp_buf *buf, size_t max)
{
    *buf = (pp_buf){.max = max};
}

void pp_buf_done(pp_buf *buf)
{
    free(buf->data);
    pp_buf_init(buf, buf->max);
}

void pp_buf_reset(pp_buf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

/* Doubling, so that appending stays linear overall. */
int pp_buf_grow(pp_buf *buf, size_t n, pp_error *err)
{
    if (n > buf->max - buf->len)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "more than %zu bytes", buf->max);
    size_t need = buf->len + n + 1;
    if (need <= buf->capacity)
        return 0;
    size_t capacity = buf->capacity ? buf->capacity : FIRST_CAPACITY;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(buf->data, capacity);
    if (!data)
        return pp_error_nomem(err);
    buf->data = data;
    buf->capacity = capacity;
    return 0;
}

int pp_buf_printf(pp_buf *buf, pp_error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        return pp_error_set(err, PP_ERR_INTERNAL, "bad format");
    if (pp_buf_reserve(buf, (size_t)n, err) < 0)
        return -1;
    va_start(args, fmt);
    (void)vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, args);
    va_end(args);
    buf->len += (size_t)n;
    return 0;
}

char *pp_buf_take(pp_buf *buf)
{
    if (!buf->data && pp_buf_reserve(buf, 0, NULL) == 0)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): pp_buf_reserve() has made it */
        buf->data[0] = '\0';
    char *data = buf->data;
    pp_buf_init(buf, buf->max);
    return data;
}

void pp_copy_cut(char *out, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n >= size) {
        n = size - 1;
        while (n && ((unsigned char)text[n] & 0xC0U) == 0x80U)
            n--;
    }
    (void)memcpy(out, text, n);
    out[n] = '\0';
}
