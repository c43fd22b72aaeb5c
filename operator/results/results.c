#include "operator/results/results.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "operator/api/etag.h"
#include "operator/api/openapi.h"
#include "operator/api/page.h"
#include "operator/api/request.h"
#include "operator/results/answers.h"
#include "operator/results/results_access.h"
#include "operator/results/results_conditions.h"
#include "operator/state/state.h"
#include "operator/store/query.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define JSON_TYPE "application/json"

/** A request that is not answered. */
typedef struct reading {
    pp_operator *op;
    pp_http_id id;
    pp_api_request request;
    pp_api_page page;
    uint64_t of;      /**< pp_api_etag_of it: anybody can make another request of this number */
    pp_buf asked;     /**< its text: no other request has it */
    pp_strings known; /**< versions that the client has */
    bool any;         /**< whatever there is, the client has it */
    pp_answer *kept;  /**< what was answered to the same request before; NULL: not known */
    uint64_t who;     /**< whose token it is; 0: not known yet */
    pp_query_id query;
    UT_hash_handle hh;
} reading;

struct pp_results {
    pp_results_access *access;
    pp_reader *reader;
    pp_answers *answers;
    reading *readings; /**< by id */
};

enum { KEPT_BYTES = 32 << 20 };

static const pp_query_kind queries[PP_API_KINDS] = {
    [PP_API_SESSIONS] = PP_QUERY_SESSIONS_OF, /* of all namespaces: PP_QUERY_SESSIONS */
    [PP_API_SESSION] = PP_QUERY_SESSION,       [PP_API_LAYERS] = PP_QUERY_LAYERS,
    [PP_API_QUALITY] = PP_QUERY_QUALITY,       [PP_API_KERNELS] = PP_QUERY_KERNELS,
    [PP_API_WAITS] = PP_QUERY_WAITS,           [PP_API_COPIES] = PP_QUERY_COPIES,
    [PP_API_RANKS] = PP_QUERY_RANKS,           [PP_API_TIMELINE] = PP_QUERY_TIMELINE,
    [PP_API_PATTERNS] = PP_QUERY_PATTERNS,     [PP_API_PATTERN] = PP_QUERY_PATTERN,
    [PP_API_RANK_ITEMS] = PP_QUERY_RANK_ITEMS,
};

static pp_query_kind query_of(const pp_api_request *q)
{
    return q->kind == PP_API_SESSIONS && !*q->ns ? PP_QUERY_SESSIONS : queries[q->kind];
}

/* ---- answers ---- */

static void free_reading(reading *r)
{
    struct pp_results *all = r->op->results;
    HASH_DEL(all->readings, r);
    pp_api_page_done(&r->page);
    pp_strings_free(&r->known);
    pp_buf_done(&r->asked);
    pp_answer_release(r->kept);
    free(r);
}

static void answer_problem(pp_operator *op, pp_http_id id, const pp_api_problem *problem,
                           uint64_t who)
{
    pp_buf body;
    const char *headers =
        problem->trouble == PP_API_UNAUTHORIZED ? "WWW-Authenticate: Bearer\r\n"
        : problem->trouble == PP_API_UNAVAILABLE || problem->trouble == PP_API_BUSY
            ? "Retry-After: 2\r\n"
            : NULL;
    pp_buf_init(&body, 4096);
    (void)pp_api_problem_write(problem, &body, NULL);
    const pp_http_api_answer answer = {.status = pp_api_trouble_status(problem->trouble),
                                       .who = who,
                                       .type = PP_API_PROBLEM_TYPE,
                                       .headers = headers,
                                       .body = body.data,
                                       .len = body.len};
    pp_http_api_respond(op->server, id, &answer);
    pp_buf_done(&body);
}

static void fail(reading *r, pp_api_trouble trouble, const char *detail)
{
    pp_api_problem problem = {0};
    (void)pp_api_problem_set(&problem, trouble, "", "%s", detail);
    answer_problem(r->op, r->id, &problem, r->who);
    free_reading(r);
}

static bool is_list(const reading *r)
{
    return r->request.kind == PP_API_SESSIONS || r->request.kind == PP_API_PATTERNS;
}

static pp_access_object object_of(const reading *r)
{
    return r->request.kind == PP_API_PATTERNS || r->request.kind == PP_API_PATTERN
               ? PP_ACCESS_PATTERNS
               : PP_ACCESS_SESSIONS;
}

/** Nothing of the user's tells it from one that is not there. */
static void fail_not_found(reading *r)
{
    fail(r, PP_API_NOT_FOUND,
         object_of(r) == PP_ACCESS_PATTERNS ? "there is no such pattern, or no right to get it"
                                            : "there is no such session, or no right to get it");
}

static void fail_forbidden(reading *r)
{
    fail(r, PP_API_FORBIDDEN,
         object_of(r) == PP_ACCESS_PATTERNS
             ? "the right to list consumptionpatterns in this namespace is needed"
         : *r->request.ns ? "the right to list profilesessions in this namespace is needed"
                          : "the right to list profilesessions in all namespaces is needed");
}

static bool is_known(const reading *r)
{
    return r->any || pp_strings_contain(&r->known, r->page.version);
}

/** Whether its rows are read only where nobody here has them in that version. */
static bool has_version(const reading *r)
{
    return pp_query_has_versions(query_of(&r->request));
}

/** What is answered, to be released; NULL: there is no memory. */
static pp_answer *make_answer(reading *r)
{
    if (r->kept && strcmp(r->kept->version, r->page.version) == 0)
        return pp_answer_hold(r->kept);
    const size_t len = r->page.body.len;
    return pp_answers_put(r->op->results->answers, &r->asked, has_version(r) ? r->page.version : "",
                          pp_buf_take(&r->page.body), len);
}

static void answer_page(reading *r)
{
    char etag[PP_API_MAX_ETAG];
    pp_api_etag(r->page.version, r->of, etag);
    pp_http_api_answer answer = {
        .status = 304, .who = r->who, .type = JSON_TYPE, .etag = etag, .body = ""};
    if (!is_known(r)) {
        pp_answer *made = make_answer(r);
        if (!made) {
            fail(r, PP_API_UNAVAILABLE, "out of memory");
            return;
        }
        answer.status = 200;
        answer.body = made->body;
        answer.len = made->len;
        answer.release = pp_answer_release;
        answer.owner = made;
    }
    pp_http_api_respond(r->op->server, r->id, &answer);
    free_reading(r);
}

/* ---- reading ---- */

/** So many bytes of a text's digest, in hexadecimal digits. */
static int digest(const char *text, size_t length, int bytes, char *out, pp_error *err)
{
    unsigned char found[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(text, length, found, NULL, EVP_sha256(), NULL))
        return pp_error_set(err, PP_ERR_INTERNAL, "SHA-256 is not available");
    for (int i = 0; i < bytes; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", found[i]);
    return 0;
}

/** Lists have no version of their own: theirs is the body's. */
static int make_version(reading *r, pp_error *err)
{
    pp_api_page *page = &r->page;
    return *page->version || !is_list(r)
               ? 0
               : digest(page->body.data, page->body.len, 16, page->version, err);
}

static const char *text_of(const pp_cell *cells, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cells[i].name, name) == 0)
            return cells[i].text;
    }
    return NULL;
}

/** The status of the session that a row is of, as this replica knows it; NULL: the object is gone,
 * or not here yet. */
static const json_t *status_of(const reading *r, const pp_cell *cells, size_t n)
{
    char key[sizeof r->request.ns + sizeof r->request.name];
    const char *ns = text_of(cells, n, "namespace"), *name = text_of(cells, n, "session");
    const char *uid = text_of(cells, n, "session_uid");
    if (!r->op->sessions || !ns || !name || !uid)
        return NULL;
    (void)snprintf(key, sizeof key, "%s/%s", ns, name);
    const pp_session *session = pp_kube_informer_get(r->op->sessions, key);
    return session && strcmp(uid, session->uid) == 0 ? session->status : NULL;
}

/** A row of a list of sessions, to which the reason comes that the object tells. */
static int add_listed(reading *r, const pp_cell *cells, size_t n, pp_error *err)
{
    PP_CLEANUP_FREE pp_cell *all = calloc(n + 1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    memcpy(all, cells, n * sizeof *all);
    const char *why = pp_results_reason(status_of(r, cells, n));
    all[n] = (pp_cell){PP_CELL_ROW, "reason", why ? PP_CELL_TEXT : PP_CELL_NULL, .text = why};
    return pp_api_page_row(&r->page, all, n + 1, err);
}

/** A session's row, to which its conditions come: they are the object's, not the store's, and part
 * of the version. */
static int add_session(reading *r, const pp_cell *cells, size_t n, pp_error *err)
{
    char version[sizeof r->page.version];
    PP_CLEANUP_FREE char *conditions = NULL;
    PP_CLEANUP_FREE pp_cell *all = calloc(n + 1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    if (pp_results_conditions(status_of(r, cells, n), &conditions, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        all[i] = cells[i];
        if (cells[i].section != PP_CELL_VERSION || cells[i].type != PP_CELL_TEXT)
            continue;
        (void)snprintf(version, sizeof version - 16, "%s", cells[i].text);
        all[i].text = version;
        if (digest(conditions, strlen(conditions), 8, version + strlen(version), err) < 0)
            return -1;
    }
    all[n] = (pp_cell){PP_CELL_HEAD, "conditions", PP_CELL_JSON, .text = conditions};
    return pp_api_page_row(&r->page, all, n + 1, err);
}

static int add_row(reading *r, const pp_cell *cells, size_t n, pp_error *err)
{
    switch (r->request.kind) {
    case PP_API_SESSION:
        return add_session(r, cells, n, err);
    case PP_API_SESSIONS:
        return add_listed(r, cells, n, err);
    default:
        return pp_api_page_row(&r->page, cells, n, err);
    }
}

static int on_row(void *user, const pp_cell *cells, size_t n, pp_error *err)
{
    reading *r = user;
    const int rc = add_row(r, cells, n, err);
    if (r->kept && *r->page.version && strcmp(r->kept->version, r->page.version) != 0) {
        pp_answer_release(r->kept); /* not both at once */
        r->kept = NULL;
    }
    /* Of a page that is full by its rows the one too many is the last that was asked for. */
    return rc == 0 && r->page.more && r->page.rows < r->page.limit ? 1 : rc;
}

static void on_reset(void *user)
{
    pp_api_page_reset(&((reading *)user)->page);
}

static void fail_read(reading *r, const pp_error *error)
{
    pp_warn("api", "reading results: %s", error->message);
    if (error->code == PP_ERR_UNAVAILABLE || error->code == PP_ERR_TIMEOUT)
        fail(r, PP_API_UNAVAILABLE, "the database is away, or took too long");
    else
        fail(r, PP_API_INTERNAL, "it could not be read");
}

static void on_read(void *user, const pp_error *error)
{
    reading *r = user;
    pp_error err = {0};
    r->query = 0;
    if (error) {
        fail_read(r, error);
        return;
    }
    if (!r->page.begun && !is_list(r)) {
        fail_not_found(r);
        return;
    }
    if (pp_api_page_end(&r->page, &err) < 0 || make_version(r, &err) < 0) {
        fail_read(r, &err);
        return;
    }
    answer_page(r);
}

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

/** The page ends where the rows do that are read, else the last one would look like the end. */
static void begin_page(reading *r)
{
    const int64_t most = pp_query_most(query_of(&r->request)), limit = r->request.limit;
    pp_api_page_init(&r->page, r->request.kind, most && most < limit ? most : limit);
}

/** The versions whose rows are not read: the client has them, or they are here. */
static int add_known(const reading *r, pp_strings *ret, pp_error *err)
{
    for (size_t i = 0; i < r->known.count; i++) {
        if (pp_strings_add(ret, r->known.items[i], err) < 0)
            return -1;
    }
    return r->kept ? pp_strings_add(ret, r->kept->version, err) : 0;
}

static void read_results(reading *r)
{
    const pp_api_request *q = &r->request;
    pp_query_key after[PP_API_MAX_KEYS];
    pp_strings known = {0};
    pp_error err = {0};
    for (size_t i = 0; i < q->cursor.n; i++)
        after[i] = (pp_query_key){.text = q->cursor.keys[i].is_text ? q->cursor.keys[i].text : NULL,
                                  .number = q->cursor.keys[i].number};
    const pp_query query = {.kind = query_of(q),
                            .ns = or_null(q->ns),
                            .session = or_null(q->name),
                            .uid = or_null(q->uid),
                            .who = r->who,
                            .pod = or_null(q->pod),
                            .process = q->process,
                            .limit = q->limit,
                            .known = &known,
                            .after = after,
                            .n_after = q->cursor.n};
    r->kept = pp_answers_find(r->op->results->answers, &r->asked);
    int rc = add_known(r, &known, &err);
    if (rc == 0)
        rc = pp_reader_query(r->op->results->reader, &query, on_row, on_reset, on_read, r,
                             &r->query, &err);
    pp_strings_free(&known);
    if (rc == 0)
        return;
    if (err.code == PP_ERR_UNAVAILABLE)
        fail(r, PP_API_BUSY, "too much is read at once");
    else
        fail_read(r, &err);
}

static void on_access(void *user, pp_access verdict, uint64_t who)
{
    reading *r = user;
    r->who = who;
    switch (verdict) {
    case PP_ACCESS_ALLOWED:
        read_results(r);
        return;
    case PP_ACCESS_DENIED:
        if (*r->request.name)
            fail_not_found(r);
        else
            fail_forbidden(r);
        return;
    case PP_ACCESS_UNKNOWN:
        fail(r, PP_API_UNAUTHORIZED, "the token is none of this cluster's, for its API server");
        return;
    case PP_ACCESS_UNAVAILABLE:
        fail(r, PP_API_UNAVAILABLE, "the API server cannot be asked who may read");
        return;
    }
}

/* ---- requests ---- */

static void answer_document(pp_operator *op, pp_http_id id)
{
    const pp_http_api_answer answer = {.status = 200,
                                       .type = "application/yaml",
                                       .body = pp_api_openapi,
                                       .len = strlen(pp_api_openapi)};
    pp_http_api_respond(op->server, id, &answer);
}

static void refuse(pp_operator *op, pp_http_id id, pp_api_trouble trouble, const char *detail)
{
    pp_api_problem problem = {0};
    (void)pp_api_problem_set(&problem, trouble, "", "%s", detail);
    answer_problem(op, id, &problem, 0);
}

/** Path and parameters, each with its end: of a head that was read whole. */
static int write_request(const pp_http_api_request *request, pp_buf *to)
{
    pp_buf_init(to, SIZE_MAX);
    int rc = pp_buf_append(to, request->path, strlen(request->path) + 1, NULL);
    for (size_t i = 0; rc == 0 && i < request->query->count; i++) {
        const char *part = request->query->items[i];
        rc = pp_buf_append(to, part, strlen(part) + 1, NULL);
    }
    return rc;
}

static void begin(pp_operator *op, pp_http_id id, const pp_http_api_request *request)
{
    struct pp_results *all = op->results;
    pp_api_problem problem = {0};
    reading *r = calloc(1, sizeof *r);
    if (!r) {
        refuse(op, id, PP_API_UNAVAILABLE, "out of memory");
        return;
    }
    const int rc = pp_api_parse(request->path, request->query, &r->request, &problem);
    if (rc < 0 || r->request.kind == PP_API_OPENAPI || !(request->token || request->open)) {
        if (rc < 0)
            answer_problem(op, id, &problem, 0);
        else if (r->request.kind == PP_API_OPENAPI)
            answer_document(op, id);
        else
            refuse(op, id, PP_API_UNAUTHORIZED, "a bearer token is needed");
        free(r);
        return;
    }
    r->op = op;
    r->id = id;
    r->of = pp_api_etag_of(request->path, request->query);
    begin_page(r);
    HASH_ADD(hh, all->readings, id, sizeof r->id, r);
    if (write_request(request, &r->asked) < 0 ||
        pp_api_etags_read(request->if_none_match, r->of, &r->known, &r->any, NULL) < 0) {
        fail(r, PP_API_UNAVAILABLE, "out of memory");
        return;
    }
    if (request->open) {
        read_results(r);
        return;
    }
    pp_results_access_ask(all->access, request->token, object_of(r), r->request.ns, r->request.name,
                          on_access, r);
}

void pp_results_request(pp_operator *op, pp_http_id id, const pp_http_api_request *request)
{
    if (op->results)
        begin(op, id, request);
    else
        refuse(op, id, PP_API_UNAVAILABLE, "the operator stops");
}

/** Nobody is told anything of it any more. */
static void drop(reading *r)
{
    struct pp_results *all = r->op->results;
    pp_results_access_forget(all->access, r);
    pp_reader_cancel(all->reader, r->query);
    free_reading(r);
}

void pp_results_gone(pp_operator *op, pp_http_id id)
{
    reading *r = NULL;
    if (!op->results)
        return;
    HASH_FIND(hh, op->results->readings, &id, sizeof id, r);
    if (r)
        drop(r);
}

/* ---- life ---- */

int pp_results_start(pp_operator *op, pp_error *err)
{
    const pp_config *config = op->config;
    if (!config->api.enabled)
        return 0;
    const pp_reader_options options = {.conninfo_file = config->postgres.conninfo_file,
                                       .connect_timeout_ns = config->postgres.connect_timeout,
                                       .connections = (int)config->api.connections,
                                       .max_waiting = (size_t)config->api.max_waiting,
                                       .timeout_ns = config->api.query_timeout};
    struct pp_results *all = calloc(1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    all->access = pp_results_access_new(op->kube, err);
    all->answers = pp_answers_new(KEPT_BYTES);
    if (!all->answers)
        (void)pp_error_nomem(err);
    all->reader = all->access && all->answers ? pp_reader_new(op->loop, &options, err) : NULL;
    if (!all->reader) {
        pp_results_access_free(all->access);
        pp_answers_free(all->answers);
        free(all);
        return -1;
    }
    op->results = all;
    return 0;
}

void pp_results_stop(pp_operator *op)
{
    struct pp_results *all = op->results;
    if (!all)
        return;
    while (all->readings)
        drop(all->readings);
    pp_results_access_free(all->access);
    pp_reader_free(all->reader);
    pp_answers_free(all->answers);
    op->results = NULL;
    free(all);
}
