#include "operator/api/etag.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Of the documents: another number with every change of what they hold. */
#define FORM "1-"
enum { MAX_TAGS = 16, MAX_VERSION = 64 };

void pp_api_etag(const char *version, char out[PP_API_MAX_ETAG])
{
    (void)snprintf(out, PP_API_MAX_ETAG, "\"" FORM "%.64s\"", version);
}

/* The version within a tag's quotes into out; whether it is one of ours. */
static bool version_of(const char *tag, size_t n, char out[MAX_VERSION + 1])
{
    if (n <= sizeof FORM - 1 || strncmp(tag, FORM, sizeof FORM - 1) != 0)
        return false;
    tag += sizeof FORM - 1;
    n -= sizeof FORM - 1;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)tag[i]))
            return false;
    }
    if (n > MAX_VERSION)
        return false;
    (void)snprintf(out, MAX_VERSION + 1, "%.*s", (int)n, tag);
    return true;
}

/* If-None-Match compares weakly: W/ says nothing there (RFC 9110, 13.1.2). */
int pp_api_etags_read(const char *header, pp_strings *ret, bool *ret_any, pp_error *err)
{
    *ret_any = header[strspn(header, " \t")] == '*';
    for (const char *at = strchr(header, '"'); at && ret->count < MAX_TAGS;) {
        char version[MAX_VERSION + 1];
        const size_t n = strcspn(at + 1, "\"");
        if (at[1 + n] != '"')
            break;
        if (version_of(at + 1, n, version) && pp_strings_add(ret, version, err) < 0)
            return -1;
        at = strchr(at + n + 2, '"');
    }
    return 0;
}
