#include "operator/workloads/label_value.h"

#include "common/cleanup.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    DIGEST_BYTES = 6, /* written in twice as many digits */
    MARK = 24,        /* bytes of the digest and what surrounds it, at most */
    PART = (PP_LABEL_BYTES - MARK) / 2,
};

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define ELLIPSIS "\xe2\x80\xa6"    /* U+2026 */

/** Bytes of the UTF-8 character at `p`, its code in *ret; 0: there is none (RFC 3629). */
static size_t decode(const unsigned char *p, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = *p < 0x80             ? 1
                     : (*p & 0xe0) == 0xc0 ? 2
                     : (*p & 0xf0) == 0xe0 ? 3
                     : (*p & 0xf8) == 0xf0 ? 4
                                           : 0;
    uint32_t code = n == 1 ? *p : n ? *p & (0x7fU >> n) : 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) /* the NUL, too */
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (n == 0 || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret = code;
    return n;
}

/** Whether it is seen, and leaves what stands around it where it is. */
static bool is_printable(uint32_t code)
{
    static const uint32_t hidden[][2] = {{0x00, 0x09},     {0x0b, 0x1f},     {0x7f, 0x9f},
                                         {0x061c, 0x061c}, {0x200b, 0x200b}, {0x200e, 0x200f},
                                         {0x2028, 0x202e}, {0x2060, 0x2069}, {0xfeff, 0xfeff},
                                         {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff}};
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        if (code >= hidden[i][0] && code <= hidden[i][1])
            return false;
    }
    return true;
}

/** The name with a replacement for each thing that cannot be printed; owned. */
static char *clean(const char *name, bool *ret_changed)
{
    char *out = calloc(3 * strlen(name) + 1, 1);
    char *to = out;
    *ret_changed = false;
    for (const unsigned char *p = (const unsigned char *)name; out && *p;) {
        uint32_t code = 0;
        const size_t n = decode(p, &code);
        const bool kept = n && is_printable(code);
        to = mempcpy(to, kept ? (const char *)p : REPLACEMENT, kept ? n : 3);
        *ret_changed |= !kept;
        p += n ? n : 1;
    }
    if (out)
        *to = '\0';
    return out;
}

static bool is_inside(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static void digest_of(const char *name, char ret[2 * DIGEST_BYTES + 1])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    (void)EVP_Digest(name, strlen(name), digest, NULL, EVP_sha256(), NULL);
    for (int i = 0; i < DIGEST_BYTES; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

/** Its first and its last bytes, whole characters, and the digest between. */
static void shorten(const char *text, const char *digest, char *out, size_t size)
{
    const size_t length = strlen(text);
    size_t head = PART;
    size_t tail = length - PART;
    if (length + 1 + strlen(digest) <= PP_LABEL_BYTES) {
        (void)snprintf(out, size, "%s~%s", text, digest);
        return;
    }
    if (length < 2 * PART)
        tail = head;
    while (head > 0 && is_inside(text[head]))
        head--;
    while (is_inside(text[tail]))
        tail++;
    (void)snprintf(out, size, "%.*s" ELLIPSIS "~%s" ELLIPSIS "%s", (int)head, text, digest,
                   text + tail);
}

/** As the text format has it. */
static void escape(const char *text, char *out)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            *out++ = '\\';
        if (*text == '\n')
            *out++ = 'n';
        else
            *out++ = *text;
    }
    *out = '\0';
}

void pp_label_value(const char *name, char ret[PP_LABEL_VALUE])
{
    char digest[2 * DIGEST_BYTES + 1];
    char cut[PP_LABEL_BYTES + 1];
    bool changed = false;
    PP_CLEANUP_FREE char *text = clean(name, &changed);
    *ret = '\0';
    if (!text)
        return;
    if (!changed && strlen(text) <= PP_LABEL_BYTES && strcmp(text, PP_LABEL_REST) != 0) {
        escape(text, ret);
        return;
    }
    digest_of(name, digest);
    shorten(text, digest, cut, sizeof cut);
    escape(cut, ret);
}
