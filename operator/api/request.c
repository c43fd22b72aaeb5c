#include "operator/api/request.h"

#include "operator/api/value.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX "/api/v1/"
enum { MAX_SEGMENTS = 6, MAX_PROCESS = 65535 };

/** What follows PREFIX; N, S and P are a namespace's, a session's and a pattern's name. */
static const struct {
    const char *segments[MAX_SEGMENTS];
    pp_api_kind kind;
} paths[] = {
    {{"openapi.yaml"}, PP_API_OPENAPI},
    {{"sessions"}, PP_API_SESSIONS},
    {{"namespaces", "N", "sessions"}, PP_API_SESSIONS},
    {{"namespaces", "N", "sessions", "S"}, PP_API_SESSION},
    {{"namespaces", "N", "sessions", "S", "layers"}, PP_API_LAYERS},
    {{"namespaces", "N", "sessions", "S", "quality"}, PP_API_QUALITY},
    {{"namespaces", "N", "sessions", "S", "kernels"}, PP_API_KERNELS},
    {{"namespaces", "N", "sessions", "S", "waits"}, PP_API_WAITS},
    {{"namespaces", "N", "sessions", "S", "copies"}, PP_API_COPIES},
    {{"namespaces", "N", "sessions", "S", "ranks"}, PP_API_RANKS},
    {{"namespaces", "N", "sessions", "S", "ranks", "items"}, PP_API_RANK_ITEMS},
    {{"namespaces", "N", "sessions", "S", "timeline"}, PP_API_TIMELINE},
    {{"namespaces", "N", "patterns"}, PP_API_PATTERNS},
    {{"namespaces", "N", "patterns", "P"}, PP_API_PATTERN},
};

/* ---- the path ---- */

/* Cuts the text at its slashes; how many pieces, MAX_SEGMENTS + 1 for more than there may be. */
static size_t cut(char *text, const char **ret)
{
    size_t n = 0;
    for (char *piece = text; piece && n <= MAX_SEGMENTS; n++) {
        char *end = strchr(piece, '/');
        if (end)
            *end++ = '\0';
        if (n < MAX_SEGMENTS)
            ret[n] = piece;
        piece = end;
    }
    return n;
}

static bool is_name(const char *segment)
{
    return segment[1] == '\0' && strchr("NSP", segment[0]);
}

static bool fits(const char *const *segments, const char *const *given, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!segments[i] || (!is_name(segments[i]) && strcmp(segments[i], given[i]) != 0))
            return false;
    }
    return n == MAX_SEGMENTS || !segments[n];
}

/* As Kubernetes has them: what else a namespace could be named, it cannot be. */
static bool is_label(const char *text)
{
    const size_t n = strlen(text);
    return n >= 1 && n <= 63 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n &&
           text[0] != '-' && text[n - 1] != '-';
}

static int take_name(const char *segment, const char *given, pp_api_request *ret,
                     pp_api_problem *problem)
{
    if (segment[0] == 'N') {
        if (!is_label(given))
            return pp_api_problem_set(problem, PP_API_INVALID, "namespace",
                                      "must be a namespace's name");
        pp_copy_cut(ret->ns, sizeof ret->ns, given);
        return 0;
    }
    if (!*given || strlen(given) >= sizeof ret->name || !pp_api_is_plain(given))
        return segment[0] == 'S' ? pp_api_problem_set(problem, PP_API_INVALID, "session",
                                                      "must be a session's name")
                                 : pp_api_problem_set(problem, PP_API_INVALID, "pattern",
                                                      "must be a pattern's name");
    pp_copy_cut(ret->name, sizeof ret->name, given);
    return 0;
}

static int read_path(const char *path, pp_api_request *ret, pp_api_problem *problem)
{
    char text[PP_API_MAX_PATH];
    const char *given[MAX_SEGMENTS] = {NULL};
    if (strncmp(path, PREFIX, sizeof PREFIX - 1) != 0)
        return pp_api_problem_set(problem, PP_API_NOT_FOUND, "", "the API is below " PREFIX);
    path += sizeof PREFIX - 1;
    if (strlen(path) >= sizeof text)
        return pp_api_problem_set(problem, PP_API_URI_TOO_LONG, "", "no path is that long");
    pp_copy_cut(text, sizeof text, path);
    const size_t n = cut(text, given);
    for (size_t i = 0; n <= MAX_SEGMENTS && i < sizeof paths / sizeof *paths; i++) {
        if (!fits(paths[i].segments, given, n))
            continue;
        ret->kind = paths[i].kind;
        for (size_t k = 0; k < n; k++) {
            if (is_name(paths[i].segments[k]) &&
                take_name(paths[i].segments[k], given[k], ret, problem) < 0)
                return -1;
        }
        return 0;
    }
    return pp_api_problem_set(problem, PP_API_NOT_FOUND, "",
                              "no path is so: " PREFIX "openapi.yaml has them all");
}

/* ---- the query ---- */

static int wrong(pp_api_problem *problem, const char *name, const char *why)
{
    return pp_api_problem_set(problem, PP_API_INVALID, name, "%s %s", name, why);
}

static int read_integer(const char *name, const char *value, int64_t least, int64_t most,
                        int64_t *ret, pp_api_problem *problem)
{
    const size_t n = strlen(value);
    *ret = strtoll(value, NULL, 10);
    if (n == 0 || n > 9 || strspn(value, "0123456789") != n || *ret < least || *ret > most)
        return pp_api_problem_set(problem, PP_API_INVALID, name,
                                  "%s must be an integer from %lld to %lld", name, (long long)least,
                                  (long long)most);
    return 0;
}

static int read_limit(pp_api_request *r, const char *value, pp_api_problem *problem)
{
    return read_integer("limit", value, 1, PP_API_MAX_LIMIT, &r->limit, problem);
}

static int read_process(pp_api_request *r, const char *value, pp_api_problem *problem)
{
    return read_integer("process", value, 0, MAX_PROCESS, &r->process, problem);
}

static int read_continue(pp_api_request *r, const char *value, pp_api_problem *problem)
{
    pp_error err = {0};
    return pp_api_cursor_read(r->kind, value, &r->cursor, &err) < 0
               ? wrong(problem, "continue", err.message)
               : 0;
}

static int read_id(const char *name, const char *value, char *out, size_t size,
                   pp_api_problem *problem)
{
    if (!*value || strlen(value) >= size || !pp_api_is_plain(value))
        return wrong(problem, name, "must be a UID");
    pp_copy_cut(out, size, value);
    return 0;
}

static int read_uid(pp_api_request *r, const char *value, pp_api_problem *problem)
{
    return read_id("uid", value, r->uid, sizeof r->uid, problem);
}

static int read_pod(pp_api_request *r, const char *value, pp_api_problem *problem)
{
    return read_id("pod", value, r->pod, sizeof r->pod, problem);
}

#define BIT(kind) (1U << (kind))
#define PAGES                                                                                      \
    (BIT(PP_API_LAYERS) | BIT(PP_API_QUALITY) | BIT(PP_API_KERNELS) | BIT(PP_API_WAITS) |          \
     BIT(PP_API_COPIES) | BIT(PP_API_RANKS) | BIT(PP_API_RANK_ITEMS) | BIT(PP_API_TIMELINE))

#define LISTS (BIT(PP_API_SESSIONS) | BIT(PP_API_PATTERNS))

/** In the order in which they are read. */
static const struct {
    const char *name;
    unsigned kinds;
    int (*read)(pp_api_request *r, const char *value, pp_api_problem *problem);
} parameters[] = {
    {"limit", PAGES | LISTS, read_limit},
    {"continue", PAGES | LISTS, read_continue},
    {"uid", PAGES | BIT(PP_API_SESSION), read_uid},
    {"pod", BIT(PP_API_TIMELINE), read_pod},
    {"process", BIT(PP_API_TIMELINE), read_process},
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

static int read_parameter(pp_api_request *r, const char *text, unsigned *seen,
                          pp_api_problem *problem)
{
    const size_t n = strcspn(text, "=");
    for (unsigned i = 0; i < PARAMETERS; i++) {
        const char *name = parameters[i].name;
        if (strlen(name) != n || strncmp(name, text, n) != 0 ||
            !(parameters[i].kinds & BIT(r->kind)))
            continue;
        if (*seen & BIT(i))
            return wrong(problem, name, "is given twice");
        *seen |= BIT(i);
        return parameters[i].read(r, text[n] ? text + n + 1 : "", problem);
    }
    char name[sizeof problem->field];
    (void)snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), text);
    return pp_api_problem_set(problem, PP_API_INVALID, pp_api_is_plain(name) ? name : "?",
                              "this path has no such parameter");
}

/* A page that goes on stays in the session that the first one was of. */
static int agree(pp_api_request *r, pp_api_problem *problem)
{
    if (r->cursor.n == 0 || BIT(r->kind) & LISTS)
        return 0;
    const char *uid = r->cursor.keys[0].text;
    if (!*uid || strlen(uid) >= sizeof r->uid || (*r->uid && strcmp(r->uid, uid) != 0))
        return wrong(problem, "continue", "is of another session");
    pp_copy_cut(r->uid, sizeof r->uid, uid);
    if (r->kind != PP_API_TIMELINE)
        return 0;
    const pp_api_key *pod = &r->cursor.keys[1], *process = &r->cursor.keys[2];
    if (!*pod->text || strlen(pod->text) >= sizeof r->pod || process->number < 0 ||
        process->number > MAX_PROCESS || (*r->pod && strcmp(r->pod, pod->text) != 0) ||
        (r->process >= 0 && r->process != process->number))
        return wrong(problem, "continue", "is of another process");
    pp_copy_cut(r->pod, sizeof r->pod, pod->text);
    r->process = process->number;
    return 0;
}

int pp_api_parse(const char *path, const pp_strings *query, pp_api_request *ret,
                 pp_api_problem *ret_problem)
{
    unsigned seen = 0;
    *ret = (pp_api_request){.limit = PP_API_DEFAULT_LIMIT, .process = -1};
    if (read_path(path, ret, ret_problem) < 0)
        return -1;
    for (size_t i = 0; i < query->count; i++) {
        if (*query->items[i] && read_parameter(ret, query->items[i], &seen, ret_problem) < 0)
            return -1;
    }
    return agree(ret, ret_problem);
}
