#include "operator/store/conninfo.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HOSTS = 8, MAX_ADDRESSES = 8 };

struct pp_conninfo_lookup {
    uv_getaddrinfo_t request; /* first */
    uv_timer_t start;         /* answers never come before resolve returned */
    pp_conninfo info;
    char *hosts[MAX_HOSTS];
    char *ports[MAX_HOSTS];
    int n_hosts;
    int at;
    bool busy; /* a request is with the thread pool */
    bool cancelled;
    pp_buf host, hostaddr, port; /* the lists that are given to libpq */
    int addresses;
    pp_error last;
    pp_conninfo_fn done;
    void *user;
};

static int set(pp_conninfo *info, const char *keyword, const char *value, pp_error *err)
{
    int i = 0;
    while (i < info->n && strcmp(info->keywords[i], keyword) != 0)
        i++;
    if (i >= PP_CONNINFO_PARAMS)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "too many connection parameters");
    char *k = strdup(keyword);
    char *v = strdup(value);
    if (!k || !v) {
        free(k);
        free(v);
        return pp_error_nomem(err);
    }
    free(info->keywords[i]);
    free(info->values[i]);
    info->keywords[i] = k;
    info->values[i] = v;
    info->n += i == info->n;
    return 0;
}

void pp_conninfo_done(pp_conninfo *info)
{
    for (int i = 0; i < info->n; i++) {
        free(info->keywords[i]);
        free(info->values[i]);
    }
    memset(info, 0, sizeof(*info));
}

const char *pp_conninfo_get(const pp_conninfo *info, const char *keyword)
{
    for (int i = 0; i < info->n; i++) {
        if (strcmp(info->keywords[i], keyword) == 0)
            return info->values[i];
    }
    return NULL;
}

/* ---- places ---- */

static const char *or_empty(const pp_conninfo *info, const char *keyword)
{
    const char *value = pp_conninfo_get(info, keyword);
    return value ? value : "";
}

static int count(const char *list)
{
    int n = 1;
    for (const char *p = list; *p; p++)
        n += *p == ',';
    return n;
}

/* From its `i`-th element on, in a list that has so many. */
static const char *element(const char *list, int i)
{
    for (; i > 0; i--)
        list += strcspn(list, ",") + 1;
    return list;
}

static bool is(const char *element, const char *text)
{
    const size_t n = strcspn(element, ",");
    return n == 0 || (text && strlen(text) == n && strncmp(element, text, n) == 0);
}

int pp_conninfo_places(const pp_conninfo *info)
{
    const char *addresses = or_empty(info, "hostaddr");
    return count(*addresses ? addresses : or_empty(info, "host"));
}

int pp_conninfo_place(const pp_conninfo *info, const PGconn *conn)
{
    const char *lists[] = {or_empty(info, "host"), or_empty(info, "hostaddr"),
                           or_empty(info, "port")};
    const char *tried[] = {PQhost(conn), PQhostaddr(conn), PQport(conn)};
    const int n = pp_conninfo_places(info);
    for (int place = 0; place < n; place++) {
        bool found = true;
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
            found &= is(count(lists[i]) == n ? element(lists[i], place) : lists[i], tried[i]);
        if (found)
            return place;
    }
    return -1;
}

int pp_conninfo_skip(pp_conninfo *info, int n, pp_error *err)
{
    static const char *const keywords[] = {"host", "hostaddr", "port"};
    const int all = pp_conninfo_places(info);
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const char *list = or_empty(info, keywords[i]);
        if (count(list) != all) /* nothing, or a port of all */
            continue;
        PP_CLEANUP_FREE char *rest = strdup(element(list, n));
        if (!rest)
            return pp_error_nomem(err);
        if (set(info, keywords[i], rest, err) < 0)
            return -1;
    }
    return 0;
}

int64_t pp_conninfo_patience(const pp_conninfo *info)
{
    const long seconds = strtol(or_empty(info, "connect_timeout"), NULL, 10);
    if (seconds <= 0)
        return 0;
    return (seconds < 2 ? 2 : seconds > 3600 ? 3600 : seconds) * INT64_C(1000000000);
}

/* What makes a lost server noticed, unless the user said otherwise. */
static int set_defaults(pp_conninfo *info, pp_error *err)
{
    static const char *const defaults[][2] = {
        {"fallback_application_name", "precisionprobe"},
        {"keepalives_idle", "30"},
        {"keepalives_interval", "10"},
        {"keepalives_count", "3"},
        {"tcp_user_timeout", "60000"},
    };
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        if (!pp_conninfo_get(info, defaults[i][0]) &&
            set(info, defaults[i][0], defaults[i][1], err) < 0)
            return -1;
    }
    return set(info, "client_encoding", "UTF8", err);
}

static int parse(const char *text, pp_conninfo *info, pp_error *err)
{
    char *why = NULL;
    PQconninfoOption *options = PQconninfoParse(text, &why);
    if (!options) {
        /* libpq's text may quote what it did not understand, a password among it. */
        PQfreemem(why);
        return pp_error_set(err, PP_ERR_INVALID, "not a libpq connection string or URI");
    }
    int rc = 0;
    for (const PQconninfoOption *o = options; rc == 0 && o->keyword; o++)
        rc = o->val ? set(info, o->keyword, o->val, err) : 0;
    PQconninfoFree(options);
    return rc < 0 ? -1 : set_defaults(info, err);
}

/* Splits a comma list; "" gives one empty element, as libpq sees it. */
static int split(const char *list, char **ret, int max, int *ret_n, pp_error *err)
{
    const char *p = list;
    for (*ret_n = 0;; p += strcspn(p, ",") + 1) {
        if (*ret_n == max)
            return pp_error_set(err, PP_ERR_TOO_LARGE, "more than %d hosts", max);
        ret[*ret_n] = strndup(p, strcspn(p, ","));
        if (!ret[*ret_n])
            return pp_error_nomem(err);
        (*ret_n)++;
        if (!p[strcspn(p, ",")])
            return 0;
    }
}

static bool needs_lookup(const char *host)
{
    unsigned char address[16];
    return *host && *host != '/' && *host != '@' && inet_pton(AF_INET, host, address) != 1 &&
           inet_pton(AF_INET6, host, address) != 1;
}

static void free_lookup(uv_handle_t *handle)
{
    pp_conninfo_lookup *l = handle->data;
    pp_conninfo_done(&l->info);
    for (int i = 0; i < MAX_HOSTS; i++) {
        free(l->hosts[i]);
        free(l->ports[i]);
    }
    pp_buf_done(&l->host);
    pp_buf_done(&l->hostaddr);
    pp_buf_done(&l->port);
    free(l);
}

static void finish(pp_conninfo_lookup *l, const pp_error *error)
{
    if (!l->cancelled) {
        pp_conninfo info = l->info;
        if (!error)
            l->info = (pp_conninfo){0};
        l->done(l->user, error ? NULL : &info, error);
    }
    uv_close((uv_handle_t *)&l->start, free_lookup);
}

static int append(pp_conninfo_lookup *l, const char *address, pp_error *err)
{
    const char *comma = l->addresses++ ? "," : "";
    const char *port = l->ports[l->at] ? l->ports[l->at] : l->ports[0] ? l->ports[0] : "";
    if (pp_buf_printf(&l->host, err, "%s%s", comma, l->hosts[l->at]) < 0 ||
        pp_buf_printf(&l->hostaddr, err, "%s%s", comma, address) < 0 ||
        pp_buf_printf(&l->port, err, "%s%s", comma, port) < 0)
        return -1;
    return 0;
}

static int conclude(pp_conninfo_lookup *l, pp_error *err)
{
    if (l->addresses == 0) {
        *err = l->last;
        return -1;
    }
    if (set(&l->info, "host", l->host.data, err) < 0 ||
        set(&l->info, "hostaddr", l->hostaddr.data, err) < 0)
        return -1;
    return l->ports[0] ? set(&l->info, "port", l->port.data, err) : 0;
}

static void look_up(pp_conninfo_lookup *l);

static int take_addresses(pp_conninfo_lookup *l, const struct addrinfo *list, pp_error *err)
{
    int taken = 0;
    for (const struct addrinfo *a = list; a && taken < MAX_ADDRESSES; a = a->ai_next, taken++) {
        char text[INET6_ADDRSTRLEN] = "";
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ==
                0 &&
            append(l, text, err) < 0)
            return -1;
    }
    return 0;
}

static void on_addresses(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    pp_conninfo_lookup *l = (pp_conninfo_lookup *)request;
    pp_error err = {0};
    l->busy = false;
    if (status != 0)
        pp_error_set(&l->last, PP_ERR_UNAVAILABLE, "cannot resolve %s: %s", l->hosts[l->at],
                     uv_strerror(status));
    const int rc = status == 0 ? take_addresses(l, list, &err) : 0;
    uv_freeaddrinfo(list);
    l->at++;
    if (rc < 0 || l->cancelled)
        finish(l, &err);
    else
        look_up(l);
}

/* Goes on with the next host; ends the lookup after the last. */
static void look_up(pp_conninfo_lookup *l)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    pp_error err = {0};
    for (; l->at < l->n_hosts; l->at++) {
        const char *host = l->hosts[l->at];
        if (!needs_lookup(host)) {
            if (append(l, *host == '/' || *host == '@' ? "" : host, &err) < 0) {
                finish(l, &err);
                return;
            }
            continue;
        }
        const int rc = uv_getaddrinfo(l->start.loop, &l->request, on_addresses, host, NULL, &hints);
        if (rc == 0) {
            l->busy = true;
            return;
        }
        pp_error_set(&l->last, PP_ERR_UNAVAILABLE, "cannot resolve %s: %s", host, uv_strerror(rc));
    }
    finish(l, conclude(l, &err) < 0 ? &err : NULL);
}

static void on_start(uv_timer_t *timer)
{
    pp_conninfo_lookup *l = timer->data;
    bool needed = false;
    for (int i = 0; i < l->n_hosts; i++)
        needed |= needs_lookup(l->hosts[i]);
    if (needed && !pp_conninfo_get(&l->info, "hostaddr"))
        look_up(l);
    else
        finish(l, NULL);
}

static int prepare(pp_conninfo_lookup *l, const char *text, const char *file, pp_error *err)
{
    PP_CLEANUP_FREE char *content = NULL;
    if (!text && !(content = pp_file_read(file, PP_CONNINFO_MAX, NULL, err)))
        return -1;
    if (parse(text ? text : content, &l->info, err) < 0)
        return file && !text ? pp_error_prefix(err, "%s", file) : -1;
    const char *host = pp_conninfo_get(&l->info, "host");
    const char *port = pp_conninfo_get(&l->info, "port");
    int n_ports = 0;
    if (host && split(host, l->hosts, MAX_HOSTS, &l->n_hosts, err) < 0)
        return -1;
    if (port && split(port, l->ports, MAX_HOSTS, &n_ports, err) < 0)
        return -1;
    if (n_ports > 1 && n_ports != l->n_hosts)
        return pp_error_set(err, PP_ERR_INVALID, "%d ports for %d hosts", n_ports, l->n_hosts);
    return 0;
}

pp_conninfo_lookup *pp_conninfo_resolve(uv_loop_t *loop, const char *text, const char *file,
                                        pp_conninfo_fn done, void *user, pp_error *err)
{
    pp_conninfo_lookup *l = calloc(1, sizeof(*l));
    if (!l) {
        pp_error_nomem(err);
        return NULL;
    }
    l->done = done;
    l->user = user;
    pp_buf_init(&l->host, PP_CONNINFO_MAX);
    pp_buf_init(&l->hostaddr, PP_CONNINFO_MAX);
    pp_buf_init(&l->port, PP_CONNINFO_MAX);
    uv_timer_init(loop, &l->start);
    l->start.data = l;
    if (prepare(l, text, file, err) < 0) {
        uv_close((uv_handle_t *)&l->start, free_lookup);
        return NULL;
    }
    uv_timer_start(&l->start, on_start, 0, 0);
    return l;
}

void pp_conninfo_cancel(pp_conninfo_lookup *l)
{
    if (!l || l->cancelled)
        return;
    l->cancelled = true;
    if (l->busy)
        uv_cancel((uv_req_t *)&l->request); /* on_addresses ends it, now or later */
    else
        uv_close((uv_handle_t *)&l->start, free_lookup);
}
