#include "operator/api/value.h"

#include "common/number.h"
#include "common/time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character that begins there; 0: none does. Overlong forms, surrogates and what is
 * past U+10FFFF are none. */
static size_t character(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    const size_t n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : s[0] < 0xe0 ? 0 : s[0] <= 0xef ? 3 : 4;
    if (n == 0 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) { /* a NUL ends it */
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

bool pp_api_is_utf8(const char *text)
{
    for (size_t n; *text; text += n) {
        n = character(text);
        if (n == 0)
            return false;
    }
    return true;
}

bool pp_api_is_plain(const char *text)
{
    for (size_t n; *text; text += n) {
        n = character(text);
        if (n == 0 || (n == 1 && ((unsigned char)*text < 0x20 || *text == 0x7f)))
            return false;
    }
    return true;
}

/* Bytes up to the next one that cannot stand in a string as it is. */
static size_t plain_bytes(const char *text)
{
    size_t n = 0;
    for (;;) {
        const unsigned char c = (unsigned char)text[n];
        if (c < 0x20 || c == '"' || c == '\\')
            return n;
        const size_t k = c < 0x80 ? 1 : character(text + n);
        if (k == 0)
            return n;
        n += k;
    }
}

int pp_api_write_text(pp_buf *out, const char *text, pp_error *err)
{
    if (pp_buf_append(out, "\"", 1, err) < 0)
        return -1;
    while (*text) {
        const size_t n = plain_bytes(text);
        if (pp_buf_append(out, text, n, err) < 0)
            return -1;
        text += n;
        if (!*text)
            break;
        const unsigned char c = (unsigned char)*text++;
        const int rc = c >= 0x80  ? pp_buf_append(out, "\\ufffd", 6, err)
                       : c < 0x20 ? pp_buf_printf(out, err, "\\u%04x", c)
                                  : pp_buf_printf(out, err, "\\%c", c);
        if (rc < 0)
            return -1;
    }
    return pp_buf_append(out, "\"", 1, err);
}

int pp_api_write_real(pp_buf *out, double value, pp_error *err)
{
    if (!isfinite(value))
        return pp_buf_append(out, "null", 4, err);
    if (pp_buf_reserve(out, PP_NUMBER_TEXT, err) < 0)
        return -1;
    out->len += strlen(pp_number_text(value, out->data + out->len));
    return 0;
}

static int write_time(pp_buf *out, int64_t ns, pp_error *err)
{
    char text[40];
    pp_time_format(ns, 6, text, sizeof text);
    return pp_api_write_text(out, text, err);
}

static int write_integer(pp_buf *out, int64_t value, pp_error *err)
{
    char text[24];
    size_t at = sizeof text;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        text[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        text[--at] = '-';
    return pp_buf_append(out, text + at, sizeof text - at, err);
}

int pp_api_write_cell(pp_buf *out, const pp_cell *cell, pp_error *err)
{
    switch (cell->type) {
    case PP_CELL_NULL:
        break;
    case PP_CELL_BOOL:
        return cell->number ? pp_buf_append(out, "true", 4, err)
                            : pp_buf_append(out, "false", 5, err);
    case PP_CELL_INT:
        return write_integer(out, cell->number, err);
    case PP_CELL_FLOAT:
        return pp_api_write_real(out, cell->real, err);
    case PP_CELL_TEXT:
        return pp_api_write_text(out, cell->text, err);
    case PP_CELL_JSON:
        return pp_buf_append(out, cell->text, strlen(cell->text), err);
    case PP_CELL_TIME:
        return write_time(out, cell->number, err);
    }
    return pp_buf_append(out, "null", 4, err);
}
