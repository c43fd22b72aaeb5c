#include "cli/serve/serve.h"

#include "cli/serve/document_timeline.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "page/assets.h"

#include <arpa/inet.h>
#include <libwebsockets.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, HEAD_BYTES = 1024, PIECE = 16384, ANSWER_S = 30 };

static volatile sig_atomic_t stopped;
static struct lws_context *serving; /* for the signal's handler */

/* An answer that is being written. */
typedef struct answer {
    size_t head, length, written;
    unsigned char data[]; /* LWS_PRE bytes of room, head, body */
} answer;

static const char json_headers[] = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";

/* ---- answers ---- */

static int respond(struct lws *wsi, const char *status, const char *type, const char *headers,
                   const void *body, size_t n)
{
    char head[HEAD_BYTES];
    const int h = snprintf(head, sizeof head,
                           "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n",
                           status, type, n, headers);
    answer *a =
        h > 0 && (size_t)h < sizeof head ? malloc(sizeof *a + LWS_PRE + (size_t)h + n) : NULL;
    if (!a)
        return -1;
    *a = (answer){.head = (size_t)h, .length = (size_t)h + n};
    (void)memcpy(a->data + LWS_PRE, head, (size_t)h);
    if (n)
        (void)memcpy(a->data + LWS_PRE + h, body, n);
    lws_set_opaque_user_data(wsi, a);
    lws_set_timeout(wsi, PENDING_TIMEOUT_HTTP_CONTENT, ANSWER_S);
    lws_callback_on_writable(wsi);
    return 0;
}

static int refuse(struct lws *wsi, const char *status, const char *detail)
{
    char body[256];
    const int n =
        snprintf(body, sizeof body, "{\"title\":\"%s\",\"detail\":\"%s\"}\n", status, detail);
    return respond(wsi, status, "application/problem+json", json_headers, body, (size_t)n);
}

/* As the operator's API has it. */
static int refuse_integer(struct lws *wsi, const char *field, long long least, long long most)
{
    char body[512];
    const int n =
        snprintf(body, sizeof body,
                 "{\"type\":\"urn:precisionprobe:problem:invalid\",\"title\":\"The request is "
                 "not valid\",\"status\":400,\"detail\":\"%s must be an integer from %lld to "
                 "%lld\",\"field\":\"%s\"}\n",
                 field, least, most, field);
    return respond(wsi, "400 Bad Request", "application/problem+json", json_headers, body,
                   (size_t)n);
}

static int write_piece(struct lws *wsi)
{
    answer *a = lws_get_opaque_user_data(wsi);
    if (!a)
        return 0;
    const size_t end = a->written ? a->length : a->head;
    const size_t n = end - a->written < PIECE ? end - a->written : PIECE;
    const bool last = a->written + n == a->length;
    const enum lws_write_protocol how = a->written == 0 ? LWS_WRITE_HTTP_HEADERS
                                        : last          ? LWS_WRITE_HTTP_FINAL
                                                        : LWS_WRITE_HTTP;
    if (lws_write(wsi, a->data + LWS_PRE + a->written, n, how) < (int)n)
        return -1;
    a->written += n;
    if (!last) {
        lws_callback_on_writable(wsi);
        return 0;
    }
    lws_set_opaque_user_data(wsi, NULL);
    free(a);
    return lws_http_transaction_completed(wsi) ? -1 : 0;
}

/* ---- requests ---- */

/* Numbers that a query may have, with what the operator takes of them. */
typedef struct integer {
    const char *name;
    long long least, most;
} integer;

enum { CONTINUE, LIMIT, PROCESS, INTEGERS };

static const integer integers[INTEGERS] = {[CONTINUE] = {"continue", 1, 999999999},
                                           [LIMIT] = {"limit", 1, 5000},
                                           [PROCESS] = {"process", 0, 65535}};

static bool read_integer(const integer *of, const char *text, long long *ret)
{
    const size_t n = strlen(text);
    *ret = strtoll(text, NULL, 10);
    return n > 0 && n <= 9 && strspn(text, "0123456789") == n && *ret >= of->least &&
           *ret <= of->most;
}

/* NULL, or what is no number, or none that may be asked for: taken for another it would be answered
 * with a page that was not meant, whose `continue` leads back there. */
static const integer *read_query(struct lws *wsi, pp_document_query *ret)
{
    char part[PATH_BYTES];
    long long told[INTEGERS] = {[LIMIT] = PP_TIMELINE_STEPS, [PROCESS] = -1};
    *ret = (pp_document_query){0};
    for (int i = 0; lws_hdr_copy_fragment(wsi, part, sizeof part, WSI_TOKEN_HTTP_URI_ARGS, i) >= 0;
         i++) {
        const size_t n = strcspn(part, "=");
        const char *value = part[n] ? part + n + 1 : "";
        part[n] = '\0';
        if (strcmp(part, "uid") == 0)
            (void)snprintf(ret->uid, sizeof ret->uid, "%s", value);
        for (int k = 0; k < INTEGERS; k++)
            if (strcmp(part, integers[k].name) == 0 && !read_integer(&integers[k], value, &told[k]))
                return &integers[k];
    }
    ret->from = (size_t)told[CONTINUE];
    ret->limit = told[LIMIT] < PP_TIMELINE_STEPS ? (size_t)told[LIMIT] : PP_TIMELINE_STEPS;
    ret->process = told[PROCESS];
    return NULL;
}

static int serve_document(struct lws *wsi, const pp_documents *all, const char *path)
{
    pp_document_query query;
    pp_error err = {0};
    const integer *wrong = read_query(wsi, &query);
    if (wrong)
        return refuse_integer(wsi, wrong->name, wrong->least, wrong->most);
    PP_CLEANUP_JSON json_t *document = pp_document(all, path, &query, &err);
    if (!document && err.code != PP_OK)
        (void)fprintf(stderr, "precisionprobe: %s\n", err.message);
    if (!document)
        return err.code != PP_OK ? refuse(wsi, "500 Internal Server Error", "it could not be read")
                                 : refuse(wsi, "404 Not Found", "there is no such thing");
    PP_CLEANUP_FREE char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
    return text ? respond(wsi, "200 OK", "application/json", json_headers, text, strlen(text)) : -1;
}

static int serve_file(struct lws *wsi, const char *path)
{
    static const char folder[] = "/page/";
    if (strcmp(path, "/") == 0 || strcmp(path, "/page") == 0)
        return respond(wsi, "308 Permanent Redirect", "text/plain",
                       "Location: page/\r\n" PP_PAGE_HEADERS, "", 0);
    const pp_page_asset *asset = strncmp(path, folder, sizeof folder - 1) == 0
                                     ? pp_page_find(path + sizeof folder - 1)
                                     : NULL;
    return asset ? respond(wsi, "200 OK", asset->type, PP_PAGE_HEADERS, asset->data, asset->len)
                 : refuse(wsi, "404 Not Found", "there is no such thing");
}

/* The host of a Host header (RFC 9110, 7.2), in place and without brackets; NULL: it is none. */
static char *host_of(char *header, bool *ret_bracketed)
{
    *ret_bracketed = *header == '[';
    char *host = header + *ret_bracketed;
    char *end = host + strcspn(host, *ret_bracketed ? "]" : ":");
    const char *port = end + (*ret_bracketed && *end);
    if ((*ret_bracketed && !*end) || (*port && *port != ':') ||
        (*port && port[1 + strspn(port + 1, "0123456789")]))
        return NULL;
    *end = '\0';
    return host;
}

/* A name may lead anywhere, so that a website could read what is served here under its own. */
static bool host_is_address(struct lws *wsi)
{
    char header[128] = "";
    struct in6_addr address;
    bool bracketed;
    if (lws_hdr_copy(wsi, header, sizeof header, WSI_TOKEN_HOST) <= 0)
        return false;
    const char *host = host_of(header, &bracketed);
    if (!host)
        return false;
    return bracketed
               ? inet_pton(AF_INET6, host, &address) == 1
               : strcasecmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &address) == 1;
}

static int begin(struct lws *wsi, const pp_documents *all)
{
    static const char api[] = "/api/v1/";
    char path[PATH_BYTES];
    if (lws_get_opaque_user_data(wsi))
        return -1; /* a request behind an unanswered one */
    if (lws_hdr_copy(wsi, path, sizeof path, WSI_TOKEN_GET_URI) <= 0)
        return -1; /* another method may have a body, which nobody reads */
    if (!host_is_address(wsi))
        return refuse(wsi, "421 Misdirected Request", "name it by its address, or localhost");
    return strncmp(path, api, sizeof api - 1) == 0 ? serve_document(wsi, all, path + sizeof api - 1)
                                                   : serve_file(wsi, path);
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t n)
{
    (void)user;
    (void)in;
    (void)n;
    switch (reason) {
    case LWS_CALLBACK_HTTP:
        return begin(wsi, lws_context_user(lws_get_context(wsi)));
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return write_piece(wsi);
    case LWS_CALLBACK_WSI_DESTROY:
        free(lws_get_opaque_user_data(wsi));
        lws_set_opaque_user_data(wsi, NULL);
        return 0;
    default:
        return 0;
    }
}

/* ---- the server ---- */

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
    lws_cancel_service(serving);
}

/* "[ADDRESS:]PORT" cut in two; the address without brackets, which one of IPv6 has to have. */
static int parse(const char *where, char *address, size_t size, int *ret_port, pp_error *err)
{
    const char *colon = strrchr(where, ':');
    const char *digits = colon ? colon + 1 : where;
    char *end = NULL;
    const long port = strtol(digits, &end, 10);
    const bool brackets = *where == '[';
    const bool whole = !brackets ? strchr(where, ':') == colon : colon && colon[-1] == ']';
    if (end == digits || *end || port < 0 || port > 65535 || !whole)
        return pp_error_field(err, "--serve", "must be [ADDRESS:]PORT, of 0 to 65535, not %s",
                              where);
    (void)snprintf(address, size, "%.*s", colon ? (int)(colon - where) - 2 * brackets : 9,
                   colon ? where + brackets : "127.0.0.1");
    *ret_port = (int)port;
    return 0;
}

int pp_serve(const char *where, const pp_documents *all, pp_error *err)
{
    char address[128];
    int port = 0;
    static const struct lws_protocols protocols[] = {{.name = "http", .callback = callback}, {0}};
    if (parse(where, address, sizeof address, &port, err) < 0)
        return -1;
    pp_documents copy = *all;
    struct lws_context_creation_info info = {.port = port,
                                             .iface = address,
                                             .protocols = protocols,
                                             .user = &copy,
                                             .max_http_header_data = PATH_BYTES,
                                             .options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND |
                                                        LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS |
                                                        LWS_SERVER_OPTION_EXPLICIT_VHOSTS};
    /* With IPv6 libwebsockets takes no notice of an address of IPv4, and listens on all. */
    if (!strchr(address, ':'))
        info.options |= LWS_SERVER_OPTION_DISABLE_IPV6;
    lws_set_log_level(0, NULL);
    serving = lws_create_context(&info);
    struct lws_vhost *host = serving ? lws_create_vhost(serving, &info) : NULL;
    if (!host) {
        lws_context_destroy(serving);
        return pp_error_field(err, "--serve",
                              "cannot listen on %s: another program does, or it is no address "
                              "of this machine",
                              where);
    }
    const struct sigaction action = {.sa_handler = stop};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)printf(strchr(address, ':') ? "http://[%s]:%d/page/\n" : "http://%s:%d/page/\n", address,
                 lws_get_vhost_listen_port(host));
    (void)fflush(stdout);
    while (!stopped && lws_service(serving, 0) >= 0)
        ;
    lws_context_destroy(serving);
    return 0;
}
