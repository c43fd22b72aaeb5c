#include "operator/api/cursor.h"

#include "operator/api/value.h"

#include <string.h>

/* A text of another form, as an earlier or later release may have made, is refused. */
enum { FORM = 1, HEAD = 2, MAX_BYTES = PP_API_MAX_CURSOR / 4 * 3 };

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static const char *const keys_of[PP_API_KINDS] = {
    [PP_API_OPENAPI] = "",
    [PP_API_SESSIONS] = "it",
    [PP_API_SESSION] = "",
    [PP_API_LAYERS] = "tttttt",
    [PP_API_QUALITY] = "ttttit",
    [PP_API_KERNELS] = "ttittt",
    [PP_API_WAITS] = "ttitttti",
    [PP_API_COPIES] = "ttitttt",
    [PP_API_RANKS] = "tttiti",
    [PP_API_TIMELINE] = "ttiii",
    [PP_API_PATTERNS] = "t",
    [PP_API_PATTERN] = "",
    [PP_API_RANK_ITEMS] = "tttititt",
};

const char *pp_api_keys_of(pp_api_kind kind)
{
    return keys_of[kind];
}

/* ---- writing ---- */

static int write_base64(const unsigned char *in, size_t n, pp_buf *out, pp_error *err)
{
    for (size_t i = 0; i < n; i += 3) {
        const unsigned more = (unsigned)(n - i < 3 ? n - i : 3);
        const uint32_t bits = (uint32_t)in[i] << 16 | (more > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                              (more > 2 ? in[i + 2] : 0);
        const char four[] = {digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63],
                             digits[bits & 63]};
        if (pp_buf_append(out, four, more + 1, err) < 0)
            return -1;
    }
    return 0;
}

static int write_key(const pp_api_key *key, pp_buf *out, pp_error *err)
{
    unsigned char bytes[8];
    if (!key->is_text) {
        for (int i = 0; i < 8; i++)
            bytes[i] = (unsigned char)((uint64_t)key->number >> (56 - 8 * i));
        return pp_buf_append(out, bytes, 8, err);
    }
    const size_t n = strlen(key->text);
    if (n > PP_API_MAX_KEY)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a key is too long");
    bytes[0] = (unsigned char)(n >> 8);
    bytes[1] = (unsigned char)n;
    return pp_buf_append(out, bytes, 2, err) < 0 ? -1 : pp_buf_append(out, key->text, n, err);
}

int pp_api_cursor_write(pp_api_kind kind, const pp_api_key *keys, size_t n, pp_buf *out,
                        pp_error *err)
{
    const char *types = keys_of[kind];
    const unsigned char head[HEAD] = {FORM, (unsigned char)kind};
    pp_buf plain;
    if (n == 0 || n != strlen(types))
        return pp_error_set(err, PP_ERR_INTERNAL, "a row has %zu keys", n);
    pp_buf_init(&plain, PP_API_MAX_KEY_BYTES);
    int rc = pp_buf_append(&plain, head, sizeof head, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = keys[i].is_text == (types[i] == 't')
                 ? write_key(&keys[i], &plain, err)
                 : pp_error_set(err, PP_ERR_INTERNAL, "key %zu has another type", i);
    }
    if (rc == 0)
        rc = write_base64((const unsigned char *)plain.data, plain.len, out, err);
    pp_buf_done(&plain);
    return rc;
}

/* ---- reading ---- */

/* Into `out` (MAX_BYTES); -1: no base64 without padding, or bits in it that nobody wrote. */
static int read_base64(const char *text, unsigned char *out, size_t *ret_n)
{
    const size_t n = strnlen(text, PP_API_MAX_CURSOR + 1);
    uint32_t bits = 0;
    unsigned held = 0;
    *ret_n = 0;
    if (n == 0 || n > PP_API_MAX_CURSOR || n % 4 == 1)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const char *at = strchr(digits, text[i]);
        if (!at)
            return -1;
        bits = (bits << 6 | (uint32_t)(at - digits)) & 0xffff;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[(*ret_n)++] = (unsigned char)(bits >> held);
        }
    }
    return bits & ((1U << held) - 1) ? -1 : 0;
}

/* What is left of the bytes, and of the room for texts. */
typedef struct source {
    const unsigned char *data;
    size_t left;
    char *room;
    size_t room_left;
} source;

static int read_number(source *in, int64_t *ret)
{
    uint64_t value = 0;
    if (in->left < 8)
        return -1;
    for (int i = 0; i < 8; i++)
        value = value << 8 | in->data[i];
    *ret = (int64_t)value;
    in->data += 8;
    in->left -= 8;
    return 0;
}

static int read_text(source *in, const char **ret)
{
    const size_t n = in->left < 2 ? SIZE_MAX : (size_t)in->data[0] << 8 | in->data[1];
    if (n > PP_API_MAX_KEY || n > in->left - 2 || n >= in->room_left)
        return -1;
    memcpy(in->room, in->data + 2, n);
    in->room[n] = '\0';
    *ret = in->room;
    in->room += n + 1;
    in->room_left -= n + 1;
    in->data += 2 + n;
    in->left -= 2 + n;
    return strlen(*ret) == n && pp_api_is_utf8(*ret) ? 0 : -1;
}

int pp_api_cursor_read(pp_api_kind kind, const char *text, pp_api_cursor *ret, pp_error *err)
{
    unsigned char bytes[MAX_BYTES];
    const char *types = keys_of[kind];
    size_t n = 0;
    ret->n = 0;
    int rc = read_base64(text, bytes, &n);
    if (rc < 0 || !*types || n < HEAD || bytes[0] != FORM || bytes[1] != kind)
        return pp_error_set(err, PP_ERR_INVALID, "is not what an answer of this path held");
    source in = {bytes + HEAD, n - HEAD, ret->room, sizeof ret->room};
    for (size_t i = 0; rc == 0 && types[i]; i++) {
        pp_api_key *key = &ret->keys[i];
        *key = (pp_api_key){.is_text = types[i] == 't'};
        rc = key->is_text ? read_text(&in, &key->text) : read_number(&in, &key->number);
    }
    if (rc < 0 || in.left > 0)
        return pp_error_set(err, PP_ERR_INVALID, "is not what an answer of this path held");
    ret->n = strlen(types);
    return 0;
}
