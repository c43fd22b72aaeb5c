/*
 * Files that are the same for everybody, as the page's: no token is needed, and the body goes out
 * of the program's own memory.
 */
#include "operator/http_server/http_server_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct method {
    enum lws_token_indexes token;
    bool reads;
} method;

/** The path into out (HEADER_BYTES), and by which method; NULL: by none that is known. */
static const method *read_path(struct lws *wsi, char *out)
{
    static const method methods[] = {{WSI_TOKEN_GET_URI, true},     {WSI_TOKEN_HEAD_URI, true},
                                     {WSI_TOKEN_POST_URI, false},   {WSI_TOKEN_PUT_URI, false},
                                     {WSI_TOKEN_PATCH_URI, false},  {WSI_TOKEN_DELETE_URI, false},
                                     {WSI_TOKEN_OPTIONS_URI, false}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (lws_hdr_total_length(wsi, methods[i].token) > 0)
            return lws_hdr_copy(wsi, out, HEADER_BYTES, methods[i].token) > 0 ? &methods[i] : NULL;
    }
    return NULL;
}

/** Tags are of the bytes, and none is part of another. */
static bool is_known(struct lws *wsi, const char *etag)
{
    char known[1024] = "";
    (void)lws_hdr_copy(wsi, known, sizeof known, WSI_TOKEN_HTTP_IF_NONE_MATCH);
    return strcmp(known, "*") == 0 || strstr(known, etag) != NULL;
}

static void answer(exchange *ex, const pp_http_file *file)
{
    char headers[768];
    const bool elsewhere = file->location != NULL;
    const bool known = !elsewhere && is_known(ex->peer.wsi, file->etag);
    (void)snprintf(headers, sizeof headers, "%s%s%s\r\n", file->headers,
                   elsewhere ? "Location: " : "ETag: ", elsewhere ? file->location : file->etag);
    http_exchange_answer_file(ex,
                              elsewhere ? 308
                              : known   ? 304
                                        : 200,
                              file->type, headers, file->data, elsewhere ? 0 : file->len);
}

bool http_file_answered(exchange *ex)
{
    const pp_http_handlers *h = &ex->peer.server->handlers;
    char path[HEADER_BYTES];
    pp_http_file file = {0};
    const method *by = h->file ? read_path(ex->peer.wsi, path) : NULL;
    if (!by || !h->file(h->context, path, &file))
        return false;
    ex->close = ex->close || ex->expected > 0; /* a body that comes is not read */
    ex->head_only = by->token == WSI_TOKEN_HEAD_URI;
    if (by->reads)
        answer(ex, &file);
    else
        http_exchange_answer_text(ex, 405, "Allow: GET, HEAD\r\n", "files are read only");
    return true;
}
