#include "cli/kubectl/session_api.h"

#include "cli/kubectl/remedies.h"
#include "cli/results/results.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/text.h"
#include "common/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 64 << 20,
    PATH_TEXT = 2048,
    PAGE_ROWS = 5000,
    COMPLAINT_MAX = 2048,
    TORN_AGAIN = 3
};
#define TOKEN_LIFE INT64_C(3600000000000) /* ns; no API server gives less than it is asked for */

struct pp_session_api {
    const pp_kubectl *kubectl;
    const pp_session_api_where *where;
    pid_t proxy;
    int out;        /* of the proxy */
    int complaints; /* what it has complained of since the last question; -1: nowhere to put it */
    char folder[64], socket[96];
    char *token, *base;
    int64_t renew_ns; /* of since_boot(): from then on another token is asked for */
};

char *pp_session_api_base(const pp_session_api_where *w)
{
    char text[PATH_TEXT];
    (void)snprintf(text, sizeof text, "/api/v1/namespaces/%s/services/https:%s:https/proxy",
                   w->system, w->service);
    return strdup(text);
}

char *pp_session_api_advice(const pp_session_api_where *w)
{
    char namespace[64], account[254], commands[PATH_TEXT], text[2 * PATH_TEXT];
    (void)snprintf(namespace, sizeof namespace, "%s", w->namespace);
    (void)snprintf(account, sizeof account, "%s", w->account);
    pp_text_tame(namespace);
    pp_text_tame(account);
    pp_remedy_reader(namespace, account, "\n  ", commands, sizeof commands);
    (void)snprintf(text, sizeof text,
                   "Give one in PRECISIONPROBE_TOKEN or with --token-file, or let there be an "
                   "account that may read and whose tokens you may create:\n  %s\n",
                   commands);
    return strdup(text);
}

/* Where the server is away, or knows nobody of us, that is the cause: any question gets it told. */
static int no_token(const pp_session_api *api, const char *complaint, pp_error *err)
{
    static const char *const ask[] = {"get", "--raw", "/version", "--request-timeout=20s", NULL};
    if (!err || pp_kubectl_try(api->kubectl, ask, "kubectl", err) < 0)
        return -1;
    return pp_error_set(err, PP_ERR_UNAUTHORIZED, "no token to read results with: %.*s",
                        (int)strcspn(complaint, "\n"), complaint);
}

/* ns, also of those in which the machine sleeps. */
static int64_t since_boot(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* How long a token lasts by its TokenRequest; one that has ended says more of our clock than of it.
 */
static int64_t life_of(const json_t *request)
{
    int64_t end = 0;
    const char *text = pp_json_get_string(request, "status", "expirationTimestamp", NULL);
    if (!text || pp_time_parse(text, &end, NULL) < 0)
        return TOKEN_LIFE;
    const int64_t life = end - pp_time_now();
    return life > 0 && life < TOKEN_LIFE ? life : TOKEN_LIFE;
}

/* Another token in place of the one that is there; that stays where there is none to be had. */
static int renew(pp_session_api *api, pp_error *err)
{
    const pp_session_api_where *w = api->where;
    const char *const ask[] = {
        "-n", w->namespace, "create", "token", w->account, "--duration=1h", "--request-timeout=20s",
        "-o", "json",       NULL};
    pp_kubectl_answer answer;
    const int64_t before = since_boot();
    if (pp_kubectl_run(api->kubectl, ask, NULL, &answer, err) < 0)
        return -1;
    PP_CLEANUP_JSON json_t *request =
        answer.status == 0 ? pp_json_parse(answer.out, strlen(answer.out), NULL) : NULL;
    const char *token = pp_json_get_string(request, "status", "token", NULL);
    char *copy = token ? strdup(token) : NULL;
    const int rc = copy    ? 0
                   : token ? pp_error_nomem(err)
                           : no_token(api, pp_kubectl_complaint(&answer), err);
    pp_kubectl_answer_done(&answer);
    if (rc < 0)
        return -1;
    free(api->token);
    api->token = copy;
    api->renew_ns = before + life_of(request) / 4 * 3;
    return 0;
}

/* The one that was given, or the first of the account. */
static int take_token(pp_session_api *api, pp_error *err)
{
    if (!api->where->token)
        return renew(api, err);
    api->token = strdup(api->where->token);
    return api->token ? 0 : pp_error_nomem(err);
}

/* ---- the proxy ---- */

/* Fails with the first line that the proxy complains in, if it does. */
static int fail(const pp_session_api *api, const char *what, pp_error *err)
{
    char text[COMPLAINT_MAX];
    const ssize_t n = api->complaints >= 0 ? pread(api->complaints, text, sizeof text - 1, 0) : 0;
    text[n > 0 ? n : 0] = '\0';
    const bool told = *text && pp_kubectl_tidy(text) == text;
    return pp_error_set(err, PP_ERR_UNAVAILABLE, "kubectl proxy %s%s%.*s", what, told ? ": " : "",
                        told ? (int)strcspn(text, "\n") : 0, text);
}

/* It says so once it serves. */
static int wait_for_proxy(const pp_session_api *api, pp_error *err)
{
    char c;
    ssize_t n;
    while ((n = read(api->out, &c, 1)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        if (n == 1 && c == '\n')
            return 0;
    }
    return fail(api, "did not start", err);
}

/* Not on the screen that `top` draws; appended, so that it can be emptied. */
static void open_complaints(pp_session_api *api)
{
    api->complaints = memfd_create("complaints of kubectl proxy", MFD_CLOEXEC);
    if (api->complaints < 0)
        api->complaints = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (api->complaints >= 0)
        (void)fcntl(api->complaints, F_SETFL, O_APPEND);
}

static int start_proxy(pp_session_api *api, pp_error *err)
{
    char socket[128], accepted[PATH_TEXT];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    (void)snprintf(api->folder, sizeof api->folder, "%.30s/precisionprobe-XXXXXX",
                   runtime && *runtime && strlen(runtime) < 30 ? runtime : "/tmp");
    if (!mkdtemp(api->folder)) {
        *api->folder = '\0';
        return pp_error_errno(err, "making a folder for kubectl proxy");
    }
    (void)snprintf(api->socket, sizeof api->socket, "%s/proxy", api->folder);
    (void)snprintf(socket, sizeof socket, "--unix-socket=%s", api->socket);
    (void)snprintf(accepted, sizeof accepted, "--accept-paths=^%s/api/v1/", api->base);
    const char *const serve[] = {"proxy", socket, accepted,
                                 "--reject-methods=POST,PUT,PATCH,DELETE", NULL};
    open_complaints(api);
    if (pp_kubectl_start(api->kubectl, serve, api->complaints, &api->proxy, &api->out, err) < 0)
        return -1;
    pp_kubectl_guard(api->proxy, api->socket, api->folder);
    return wait_for_proxy(api, err);
}

int pp_session_api_open(const pp_kubectl *k, const pp_session_api_where *w, pp_session_api **ret,
                        pp_error *err)
{
    pp_session_api *api = calloc(1, sizeof *api);
    if (!api)
        return pp_error_nomem(err);
    *api = (pp_session_api){.kubectl = k, .where = w, .out = -1, .complaints = -1};
    api->base = pp_session_api_base(w);
    int rc = api->base ? take_token(api, err) : pp_error_nomem(err);
    if (rc == 0)
        rc = start_proxy(api, err);
    if (rc < 0)
        pp_session_api_close(api);
    else
        *ret = api;
    return rc;
}

void pp_session_api_close(pp_session_api *api)
{
    if (!api)
        return;
    pp_kubectl_stop(api->proxy);
    if (api->out >= 0)
        (void)close(api->out);
    if (api->complaints >= 0)
        (void)close(api->complaints);
    if (*api->socket)
        (void)unlink(api->socket);
    if (*api->folder)
        (void)rmdir(api->folder);
    free(api->token);
    free(api->base);
    free(api);
}

/* ---- questions ---- */

static int send_all(int fd, const char *text, pp_error *err)
{
    size_t left = strlen(text);
    while (left > 0) {
        const ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return pp_error_errno(err, "asking kubectl proxy");
        if (n > 0) {
            text += n;
            left -= (size_t)n;
        }
    }
    return 0;
}

static int receive_all(int fd, pp_buf *to, pp_error *err)
{
    char piece[65536];
    ssize_t n;
    while ((n = recv(fd, piece, sizeof piece, 0)) != 0) {
        if (n < 0 && errno != EINTR)
            return pp_error_errno(err, "reading from kubectl proxy");
        if (n > 0 && pp_buf_append(to, piece, (size_t)n, err) < 0)
            return -1;
    }
    return pp_buf_append(to, "", 1, err);
}

/* HTTP/1.0: the answer ends with the connection, and comes in no chunks. */
static int exchange(const pp_session_api *api, const char *path, pp_buf *answer, pp_error *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    pp_buf request;
    pp_buf_init(&request, ANSWER_MAX);
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", api->socket);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0
                 ? pp_buf_printf(&request, err,
                                 "GET %s/api/v1%s HTTP/1.0\r\nHost: localhost\r\n"
                                 "Accept: application/json, application/problem+json\r\n"
                                 "X-PrecisionProbe-Token: %s\r\n\r\n",
                                 api->base, path, api->token)
                 : pp_error_errno(err, "kubectl proxy");
    if (rc == 0)
        rc = send_all(fd, request.data ? request.data : "", err);
    if (rc == 0)
        rc = receive_all(fd, answer, err);
    if (fd >= 0)
        (void)close(fd);
    pp_buf_done(&request);
    return rc;
}

/* The operator's own words are a problem document, the API server's a Status; whoever on the way
 * reaches neither has a line of text. */
static int refuse(long status, const char *body, pp_error *err)
{
    PP_CLEANUP_JSON json_t *told = pp_json_parse(body, strlen(body), NULL);
    const pp_error_code code = status == 404                    ? PP_ERR_NOT_FOUND
                               : status == 401 || status == 403 ? PP_ERR_DENIED
                                                                : PP_ERR_UNAVAILABLE;
    const char *why = pp_json_get_string(told, "detail", NULL);
    if (!why)
        why = pp_json_get_string(told, "message", NULL);
    if (!why)
        why = pp_json_get_string(told, "title", NULL);
    if (!told && *body)
        return pp_error_set(err, code, "kubectl proxy answers %ld: %.*s", status,
                            (int)strcspn(body, "\r\n"), body);
    return pp_error_set(err, code, "the operator's API answers %ld: %s%s", status,
                        why ? why : "no reason",
                        status == 404 ? " (or the token's user may not read it)" : "");
}

/* What it said of an earlier question is no reason of this one; a file that stays is cut as it is
 * read. */
static void forget_complaints(const pp_session_api *api)
{
    if (api->complaints >= 0 && ftruncate(api->complaints, 0) < 0)
        return;
}

/* `ret_status` of HTTP; 0: there is none. */
static int ask_once(const pp_session_api *api, const char *path, long *ret_status, json_t **ret,
                    pp_error *err)
{
    pp_buf answer;
    pp_buf_init(&answer, ANSWER_MAX);
    forget_complaints(api);
    int rc = exchange(api, path, &answer, err);
    const char *head = rc == 0 && answer.data ? answer.data : "";
    const char *body = strstr(head, "\r\n\r\n"), *space = strchr(head, ' ');
    const long status = strncmp(head, "HTTP/1.", 7) == 0 && space ? strtol(space, NULL, 10) : 0;
    *ret_status = status;
    if (rc == 0 && (!body || status <= 0))
        rc = fail(api, "gave no answer", err);
    if (rc == 0 && body && status != 200)
        rc = refuse(status, body + 4, err);
    if (rc == 0 && body) {
        *ret = pp_json_parse(body + 4, strlen(body + 4), err);
        rc = *ret ? 0 : -1;
    }
    pp_buf_done(&answer);
    return rc;
}

int pp_session_api_get(pp_session_api *api, const char *path, json_t **ret, pp_error *err)
{
    long status = 0;
    pp_error first = {0};
    const bool renewable = !api->where->token;
    if (renewable && since_boot() >= api->renew_ns)
        (void)renew(api, NULL); /* else the one that is there may still do */
    int rc = ask_once(api, path, &status, ret, &first);
    if (rc == 0)
        return 0;
    if (status == 401 && renewable)
        return renew(api, err) < 0 ? -1 : ask_once(api, path, &status, ret, err);
    return pp_error_set(err, first.code, "%s", first.message);
}

/* Whether a GPU's rows are of two revisions: it was evaluated anew between two pages. */
static bool is_torn(const json_t *document)
{
    json_t *revisions = json_object(), *row;
    bool torn = false;
    size_t i;
    json_array_foreach(json_object_get(document, "items"), i, row)
    {
        char gpu[256];
        json_t *revision = json_object_get(row, "revision");
        if (!revision) /* of another view */
            continue;
        (void)snprintf(gpu, sizeof gpu, "%s %s", pp_results_text(row, "pod_uid"),
                       pp_results_text(row, "gpu_uuid"));
        if (!json_object_get(revisions, gpu))
            (void)json_object_set(revisions, gpu, revision);
        torn = torn || !json_equal(json_object_get(revisions, gpu), revision);
    }
    json_decref(revisions);
    return torn;
}

static int read_pages(pp_session_api *api, const char *path, size_t limit, json_t **ret,
                      pp_error *err)
{
    json_t *all = NULL;
    char asked[PATH_TEXT];
    const char *mark = strchr(path, '?') ? "&" : "?";
    (void)snprintf(asked, sizeof asked, "%s%slimit=%zu", path, mark,
                   limit && limit < PAGE_ROWS ? limit : (size_t)PAGE_ROWS);
    for (;;) {
        PP_CLEANUP_JSON json_t *page = NULL;
        if (pp_session_api_get(api, asked, &page, err) < 0) {
            json_decref(all);
            return -1;
        }
        const char *next = pp_json_get_string(page, "continue", NULL);
        if (next)
            (void)snprintf(asked, sizeof asked, "%s%slimit=%d&continue=%s", path, mark, PAGE_ROWS,
                           next);
        if (all)
            (void)json_array_extend(json_object_get(all, "items"), json_object_get(page, "items"));
        else
            all = json_incref(page);
        if (!next || (limit && json_array_size(json_object_get(all, "items")) >= limit))
            break;
    }
    *ret = all;
    return 0;
}

int pp_session_api_rows(pp_session_api *api, const char *path, size_t limit, json_t **ret,
                        pp_error *err)
{
    int rc = read_pages(api, path, limit, ret, err);
    for (int again = 0; rc == 0 && again < TORN_AGAIN && is_torn(*ret); again++) {
        json_decref(*ret);
        *ret = NULL;
        rc = read_pages(api, path, limit, ret, err);
    }
    return rc;
}
