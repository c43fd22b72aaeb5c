/*
 * Who may connect, how long a peer may take to ask for something, and how many descriptors all of
 * it may take. What is counted and decided is visitors.c's.
 */
#include "operator/http_server/http_server_internal.h"

#include "common/log.h"
#include "common/time.h"

#include <poll.h>
#include <sys/resource.h>

enum {
    SWEEP_MS = 250,
    MAX_OPEN_FILES = 65536,
    /* For the API server, Prometheus, Postgres, name lookups, files, libuv, and listening. */
    RESERVED_FILES = 128,
    MIN_CONNECTIONS = 16,
};

static int make_visitors(pp_http_server *server)
{
    const pp_http_options *o = &server->options;
    const visitor_limits limits[SHARES] = {
        [SHARE_UNPROVEN] = {o->max_unproven, o->max_unproven_each, o->request_timeout,
                            o->request_timeout},
        [SHARE_REVIEW] = {PP_HTTP_MAX_REVIEWERS, 0, o->request_timeout, KEPT_OPEN},
        [SHARE_API] = {PP_HTTP_MAX_API_CONNECTIONS, 0, o->request_timeout, KEPT_OPEN},
        [SHARE_PLAIN] = {PP_HTTP_MAX_PLAIN, PP_HTTP_MAX_PLAIN_EACH, o->request_timeout, KEPT_OPEN},
    };
    server->visitors = visitors_new(limits);
    return server->visitors ? 0 : -1;
}

/** Takes effect on the loop's next turn: the wsi may be anywhere in libwebsockets now. */
static void cut(pp_http_server *server, const void *who)
{
    struct lws *wsi = (struct lws *)(uintptr_t)who;
    if (who == server) { /* admitted, and libwebsockets made no wsi of it */
        visitors_leave(server->visitors, who);
        return;
    }
    lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    lws_cancel_service(server->context);
}

void http_arrival_cut(pp_http_server *server, struct lws *wsi)
{
    cut(server, wsi);
}

static void tell_counts(pp_http_server *server)
{
    for (int share = 0; share < SHARES; share++)
        pp_meter_set(server->metrics.in_share[share],
                     (double)visitors_count(server->visitors, share));
}

static size_t cut_overdue(pp_http_server *server)
{
    const void *who;
    size_t n = 0;
    visitors_sweep(server->visitors);
    while ((who = visitors_overdue(server->visitors, pp_time_monotonic()))) {
        cut(server, who);
        n++;
    }
    return n;
}

void http_arrivals_drain(pp_http_server *server)
{
    visitors_end_idle(server->visitors, SHARE_REVIEW, pp_time_monotonic());
    (void)cut_overdue(server);
}

/** Who reads results may leave before they are there. A reset that comes with the request is told
 * to libuv once, which then watches the socket no more, and libwebsockets may be amid the handshake
 * and miss it: so it is looked for. */
static void cut_those_that_left(pp_http_server *server)
{
    for (peer *p = server->exchanges; p; p = p->hh.next) {
        struct pollfd at = {.fd = lws_get_socket_fd(p->wsi)};
        if (((exchange *)p)->stage == STAGE_API && poll(&at, 1, 0) > 0 &&
            (at.revents & (POLLERR | POLLHUP)))
            cut(server, p->wsi);
    }
}

static void sweep(uv_timer_t *timer)
{
    pp_http_server *server = timer->data;
    cut_those_that_left(server);
    pp_meter_add(server->metrics.overdue, (double)cut_overdue(server));
    tell_counts(server);
    http_ingest_sweep(server);
}

int http_arrivals_start(pp_http_server *server)
{
    if (make_visitors(server) < 0)
        return -1;
    (void)uv_timer_init(server->options.loop, &server->sweep_timer);
    server->sweep_timer.data = server;
    (void)uv_timer_start(&server->sweep_timer, sweep, SWEEP_MS, SWEEP_MS);
    return 0;
}

void http_arrivals_stop(pp_http_server *server)
{
    uv_close((uv_handle_t *)&server->sweep_timer, NULL);
}

void http_arrivals_free(pp_http_server *server)
{
    visitors_free(server->visitors);
    server->visitors = NULL;
}

/* What is admitted before libwebsockets has made a wsi of it is known by the server's own address.
 */
bool http_arrival_admitted(pp_http_server *server, const struct lws_filter_network_conn_args *from,
                           http_port port)
{
    visitor_share share = port == PORT_TLS ? SHARE_UNPROVEN : SHARE_PLAIN;
    visitor_address address = visitor_address_of((const struct sockaddr *)&from->cli_addr);
    const void *victim = NULL;
    bool admitted =
        visitors_admit(server->visitors, server, share, &address, pp_time_monotonic(), &victim);
    if (victim)
        cut(server, victim);
    if (victim || !admitted)
        pp_meter_add(server->metrics.turned_away[share], 1);
    return admitted;
}

void http_arrival_is(pp_http_server *server, struct lws *wsi)
{
    visitors_rename(server->visitors, server, wsi);
}

static bool promote(pp_http_server *server, struct lws *wsi, visitor_share share)
{
    const void *victim = NULL;
    bool taken = visitors_promote(server->visitors, wsi, share, pp_time_monotonic(), &victim);
    if (victim)
        cut(server, victim);
    if (victim || !taken)
        pp_meter_add(server->metrics.turned_away[share], 1);
    return taken;
}

bool http_arrival_reviews(pp_http_server *server, struct lws *wsi)
{
    return promote(server, wsi, SHARE_REVIEW);
}

bool http_arrival_proved(pp_http_server *server, struct lws *wsi)
{
    return promote(server, wsi, SHARE_API);
}

/* ---- descriptors ------------------------------------------------------------------------------
 */

/** Up to the hard limit; libwebsockets allocates by it, and containers set it to a billion. */
static size_t open_files(void)
{
    struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return limit.rlim_cur;
    struct rlimit wanted = limit;
    wanted.rlim_cur = limit.rlim_max < MAX_OPEN_FILES ? limit.rlim_max : MAX_OPEN_FILES;
    if (wanted.rlim_cur == limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &wanted) == 0)
        return wanted.rlim_cur;
    return limit.rlim_cur < MAX_OPEN_FILES ? limit.rlim_cur : MAX_OPEN_FILES;
}

size_t http_arrivals_fit(const pp_http_options *options)
{
    size_t files = open_files();
    size_t others = RESERVED_FILES + options->max_unproven + PP_HTTP_MAX_REVIEWERS +
                    PP_HTTP_MAX_API_CONNECTIONS + PP_HTTP_MAX_PLAIN;
    size_t fit = files > others + MIN_CONNECTIONS ? files - others : MIN_CONNECTIONS;
    if (options->max_connections <= fit)
        return options->max_connections;
    pp_warn("http", "the limit of %zu open files has room for %zu connections of agents, not %zu",
            files, fit, options->max_connections);
    return fit;
}
