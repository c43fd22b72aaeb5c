#include "operator/kube/kube_internal.h"

#include "common/cleanup.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

char *kube_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    return n < 0 ? NULL : text; /* text is undefined after a failure */
}

char *kube_encode(const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    static const char digits[] = "0123456789ABCDEF";
    char *out = malloc(3 * strlen(text) + 1);
    if (!out)
        return NULL;
    char *at = out;
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (strchr(plain, c)) {
            *at++ = *p;
            continue;
        }
        *at++ = '%';
        *at++ = digits[c >> 4];
        *at++ = digits[c & 15];
    }
    *at = '\0';
    return out;
}

char *kube_trim(char *text)
{
    size_t n = strlen(text), start = 0;
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    while (start < n && isspace((unsigned char)text[start]))
        start++;
    memmove(text, text + start, n - start);
    text[n - start] = '\0';
    return text;
}

json_t *kube_json_parse(const char *text, size_t n, pp_error *err)
{
    json_error_t where;
    json_t *value = json_loadb(text, n, JSON_ALLOW_NUL, &where);
    if (!value)
        (void)pp_error_set(err, PP_ERR_UNAVAILABLE, "the API server's answer is not JSON: %s",
                           where.text);
    return value;
}
