#include "operator/api/etag.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of the documents: another number with every change of what they hold. */
#define FORM "8-"
enum { MAX_TAGS = 16, MAX_VERSION = 64 };

/* FNV-1a, with the text's end. */
static uint64_t mix(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    while (*text++);
    return hash;
}

uint64_t pp_api_etag_of(const char *path, const pp_strings *query)
{
    uint64_t hash = mix(UINT64_C(14695981039346656037), path);
    for (size_t i = 0; i < query->count; i++)
        hash = mix(hash, query->items[i]);
    return hash;
}

void pp_api_etag(const char *version, uint64_t of, char out[PP_API_MAX_ETAG])
{
    (void)snprintf(out, PP_API_MAX_ETAG, "\"" FORM "%016" PRIx64 "%.64s\"", of, version);
}

/* The version within a tag's quotes into out; whether it is one of ours, of this. */
static bool version_of(const char *tag, size_t n, uint64_t of, char out[MAX_VERSION + 1])
{
    char begin[sizeof FORM + 16];
    (void)snprintf(begin, sizeof begin, FORM "%016" PRIx64, of);
    const size_t skip = strlen(begin);
    if (n <= skip || n - skip > MAX_VERSION || strncmp(tag, begin, skip) != 0)
        return false;
    for (size_t i = skip; i < n; i++) {
        if (!isalnum((unsigned char)tag[i]))
            return false;
    }
    (void)snprintf(out, MAX_VERSION + 1, "%.*s", (int)(n - skip), tag + skip);
    return true;
}

/* If-None-Match compares weakly: W/ says nothing there (RFC 9110, 13.1.2). */
int pp_api_etags_read(const char *header, uint64_t of, pp_strings *ret, bool *ret_any,
                      pp_error *err)
{
    *ret_any = header[strspn(header, " \t")] == '*';
    for (const char *at = strchr(header, '"'); at && ret->count < MAX_TAGS;) {
        char version[MAX_VERSION + 1];
        const size_t n = strcspn(at + 1, "\"");
        if (at[1 + n] != '"')
            break;
        if (version_of(at + 1, n, of, version) && pp_strings_add(ret, version, err) < 0)
            return -1;
        at = strchr(at + n + 2, '"');
    }
    return 0;
}
