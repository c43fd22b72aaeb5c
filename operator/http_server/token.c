/* What a request brings to prove itself. */
#include "operator/http_server/http_server_internal.h"

#include <string.h>

bool http_is_token(const char *text)
{
    static const char legal[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=";
    const size_t n = strlen(text);
    return n > 0 && n <= PP_HTTP_MAX_TOKEN && strspn(text, legal) == n;
}

const char *http_bearer_token(struct lws *wsi, char *out)
{
    static const char scheme[] = "Bearer ";
    if (lws_hdr_copy(wsi, out, PP_HTTP_MAX_TOKEN + 16, WSI_TOKEN_HTTP_AUTHORIZATION) <= 0 ||
        strncasecmp(out, scheme, sizeof scheme - 1) != 0)
        return NULL;
    const char *token = out + sizeof scheme - 1;
    return http_is_token(token) ? token : NULL;
}
