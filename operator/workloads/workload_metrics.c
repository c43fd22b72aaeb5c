#include "operator/workloads/workload_metrics.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/session/condition.h"
#include "operator/state/state.h"
#include "operator/store/query.h"
#include "operator/workloads/workload_text.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { MOST_SESSIONS = 5000 }; /* the newest, whose workloads are looked for */

#define SECOND INT64_C(1000000000)
static const int64_t PAUSE_NS = 2 * SECOND;  /* between two readings */
static const int64_t AGAIN_NS = 30 * SECOND; /* after one that failed */
static const int64_t QUERY_NS = 15 * SECOND; /* of one query in the database */
enum { MOST_TIMEOUTS = 3 };                  /* of a reading, until the database is too slow */

/** A session that has ended, as the cache has it. */
typedef struct ended {
    char uid[64];
    char ns[64];
    char name[254];
    char reason[64]; /* of a failed one */
    bool failed;
    int64_t at_ns;
    UT_hash_handle hh;
} ended;

/** A workload, by its newest session; texts are owned. */
typedef struct workload {
    char *ns, *kind, *name, *session, *uid;
    int64_t finished_ns;
    pp_workload_text text;
    bool has_text;
    bool is_known; /* what is shown has it */
    bool is_tried; /* and could not be read in time */
} workload;

typedef struct workloads {
    workload *items;
    size_t n;
    size_t all; /* with those that there is no room for */
} workloads;

struct pp_workload_metrics {
    pp_operator *op;
    ended *ended;      /* by UID, of all replicas */
    pp_reader *reader; /* NULL: this replica does not lead */
    pp_query_id query; /* 0: none */
    workloads shown;
    workloads next; /* in the making */
    size_t at;      /* of these, the one that is read */
    pp_workload_figures figures;
    pp_buf page;
    pp_workload_page cut;
    bool stale;   /* the page lacks a session that failed, or has one that is gone */
    bool changed; /* results may be others */
    bool failing;
    int timeouts;    /* of the reading */
    bool again;      /* one took too long that never did before */
    pp_strings slow; /* UIDs of sessions that were not read in time: they come last */
    int64_t due_ns;  /* monotonic */
    int64_t rest_ns;
};

static void read_next(struct pp_workload_metrics *m);

/* ---- sessions ---- */

static void forget_session(struct pp_workload_metrics *m, const char *uid)
{
    ended *e = NULL;
    HASH_FIND_STR(m->ended, uid, e);
    if (!e)
        return;
    HASH_DEL(m->ended, e);
    free(e);
    m->changed = m->stale = true;
}

static void keep_session(struct pp_workload_metrics *m, const pp_session *session)
{
    pp_condition failed = {0};
    ended *e = NULL;
    HASH_FIND_STR(m->ended, session->uid, e);
    if (e)
        return;
    e = calloc(1, sizeof *e);
    if (!e)
        return;
    (void)snprintf(e->uid, sizeof e->uid, "%s", session->uid);
    (void)snprintf(e->ns, sizeof e->ns, "%s", session->namespace_);
    (void)snprintf(e->name, sizeof e->name, "%s", session->name);
    pp_session_previous_condition(session, PP_CONDITION_FAILED, &failed);
    (void)snprintf(e->reason, sizeof e->reason, "%s", failed.reason);
    e->failed = session->phase == PP_SESSION_FAILED;
    e->at_ns = session->completion_ns;
    HASH_ADD_STR(m->ended, uid, e);
    m->changed = m->stale = true;
}

void pp_workload_metrics_session(pp_operator *op, const pp_session *before, const pp_session *now)
{
    struct pp_workload_metrics *m = op->workload_metrics;
    if (!m)
        return;
    if (before && (!now || strcmp(before->uid, now->uid) != 0))
        forget_session(m, before->uid);
    if (now && pp_session_final(now))
        keep_session(m, now);
}

void pp_workload_metrics_changed(pp_operator *op)
{
    if (op->workload_metrics)
        op->workload_metrics->changed = true;
}

static int latest_first(const void *a, const void *b)
{
    const ended *x = *(ended *const *)a, *y = *(ended *const *)b;
    return x->at_ns != y->at_ns ? (x->at_ns < y->at_ns) - (x->at_ns > y->at_ns)
                                : strcmp(x->uid, y->uid);
}

/** Those that failed, or Succeeded, the latest first; owned, as an array. */
static ended **list_ended(const struct pp_workload_metrics *m, bool failed, size_t *ret_n)
{
    ended **all = calloc(HASH_COUNT(m->ended) + 1, sizeof(ended *));
    *ret_n = 0;
    for (ended *e = m->ended; all && e; e = e->hh.next) {
        if (e->failed == failed)
            all[(*ret_n)++] = e;
    }
    if (all)
        qsort(all, *ret_n, sizeof(ended *), latest_first);
    return all;
}

/* ---- workloads ---- */

static void free_workload(workload *w)
{
    free(w->ns);
    free(w->kind);
    free(w->name);
    free(w->session);
    free(w->uid);
    if (w->has_text)
        pp_workload_text_done(&w->text);
    *w = (workload){0};
}

static void free_workloads(workloads *all)
{
    for (size_t i = 0; i < all->n; i++)
        free_workload(&all->items[i]);
    free(all->items);
    *all = (workloads){0};
}

static bool is_same(const workload *a, const workload *b)
{
    return strcmp(a->uid, b->uid) == 0 && strcmp(a->kind, b->kind) == 0 &&
           strcmp(a->name, b->name) == 0;
}

/** What was read of the same workload in the same session; NULL: nothing was. */
static workload *find_same(const workloads *all, const workload *wanted)
{
    for (size_t i = 0; i < all->n; i++) {
        if (all->items[i].has_text && is_same(&all->items[i], wanted))
            return &all->items[i];
    }
    return NULL;
}

static void keep_text(workload *from, workload *to)
{
    to->text = from->text;
    to->has_text = true;
    from->has_text = false;
}

/** Leaves out those whose session's object is gone. */
static void drop_gone(struct pp_workload_metrics *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->shown.n; i++) {
        ended *e = NULL;
        HASH_FIND_STR(m->ended, m->shown.items[i].uid, e);
        if (e)
            m->shown.items[kept++] = m->shown.items[i];
        else
            free_workload(&m->shown.items[i]);
    }
    m->shown.all -= m->shown.n - kept;
    m->shown.n = kept;
}

/* ---- the page ---- */

static int put_failed(struct pp_workload_metrics *m, pp_error *err)
{
    size_t n = 0;
    PP_CLEANUP_FREE ended **failed = list_ended(m, true, &n);
    const size_t most = (size_t)m->op->config->metrics.workloads;
    int rc = n > 0 ? pp_workload_text_head(&pp_session_failed_info, &m->page, err) : 0;
    for (size_t i = 0; rc == 0 && i < n && i < most; i++)
        rc = pp_workload_text_failed(failed[i]->ns, failed[i]->name, failed[i]->reason,
                                     failed[i]->at_ns, &m->page, err);
    return rc;
}

static int put_workloads(struct pp_workload_metrics *m, pp_error *err)
{
    size_t n = 0;
    PP_CLEANUP_FREE const pp_workload_text **texts =
        calloc(m->shown.n + 1, sizeof(const pp_workload_text *));
    if (!texts)
        return pp_error_nomem(err);
    for (size_t i = 0; i < m->shown.n; i++) {
        if (m->shown.items[i].has_text)
            texts[n++] = &m->shown.items[i].text;
    }
    if (pp_workload_text_page(texts, n, &m->page, &m->cut, err) < 0)
        return -1;
    m->cut.left_out += m->shown.all - n;
    return 0;
}

static void write_page(struct pp_workload_metrics *m)
{
    pp_error err = {0};
    pp_buf_reset(&m->page);
    if (put_failed(m, &err) == 0 && put_workloads(m, &err) == 0)
        return;
    pp_warn("metrics", "writing workloads: %s", err.message);
    pp_buf_reset(&m->page);
}

static int append(void *context, pp_buf *out, pp_error *err)
{
    const struct pp_workload_metrics *m = context;
    if (!m->op->leading || m->op->stopping || m->page.len == 0)
        return 0;
    return pp_buf_append(out, m->page.data, m->page.len, err);
}

static void collect(void *context)
{
    const struct pp_workload_metrics *m = context;
    const pp_meters *meters = &m->op->meters;
    const bool counts = m->op->leading && !m->op->stopping;
    const size_t cut = m->cut.left_out;
    pp_meter_set(meters->workloads, counts ? (double)(m->shown.all - cut) : 0);
    pp_meter_set(meters->workloads_left_out, counts ? (double)cut : 0);
    pp_meter_set(meters->workloads_without_layers, counts ? (double)m->cut.without_layers : 0);
}

/* ---- reading ---- */

static void rest(struct pp_workload_metrics *m, int64_t ns)
{
    m->rest_ns = pp_time_monotonic() + ns;
    m->due_ns = pp_time_monotonic() + m->op->config->retention.interval;
}

/** What was shown stays until a reading succeeds. */
static void fail(struct pp_workload_metrics *m, const pp_error *error)
{
    if (!m->failing)
        pp_warn("metrics", "reading workloads: %s", error->message);
    m->failing = true;
    pp_meter_add(m->op->meters.workload_read_failures, 1);
    free_workloads(&m->next);
    pp_workload_figures_done(&m->figures);
    m->changed = true;
    rest(m, AGAIN_NS);
}

/* Of a workload that could not be read in time what was shown of it stays, of a session before. */
static void keep_older(struct pp_workload_metrics *m, workload *to)
{
    for (size_t i = 0; i < m->shown.n; i++) {
        workload *w = &m->shown.items[i];
        if (w->has_text && strcmp(w->ns, to->ns) == 0 && strcmp(w->kind, to->kind) == 0 &&
            strcmp(w->name, to->name) == 0) {
            free_workload(to);
            *to = *w;
            *w = (workload){0};
            return;
        }
    }
}

static void succeed(struct pp_workload_metrics *m)
{
    for (size_t i = 0; i < m->next.n; i++) {
        workload *w = m->next.items[i].is_known ? find_same(&m->shown, &m->next.items[i]) : NULL;
        if (w)
            keep_text(w, &m->next.items[i]);
    }
    for (size_t i = 0; m->timeouts > 0 && i < m->next.n; i++)
        if (!m->next.items[i].has_text)
            keep_older(m, &m->next.items[i]);
    m->failing = false;
    free_workloads(&m->shown);
    m->shown = m->next;
    m->next = (workloads){0};
    drop_gone(m); /* meanwhile */
    write_page(m);
    m->changed = m->changed || m->again;
    rest(m, m->again ? AGAIN_NS : PAUSE_NS);
}

static const pp_cell *find(const pp_cell *cells, size_t n, pp_cell_section section,
                           const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (cells[i].section == section && strcmp(cells[i].name, name) == 0)
            return &cells[i];
    }
    return NULL;
}

static double number_of(const pp_cell *cell)
{
    return !cell || cell->type == PP_CELL_NULL ? (double)NAN
           : cell->type == PP_CELL_FLOAT       ? cell->real
                                               : (double)cell->number;
}

static char *copy_of(const pp_cell *cell)
{
    return strdup(cell && cell->type == PP_CELL_TEXT ? cell->text : "");
}

/** An object of numbers; the caller's. NULL: there is none. */
static json_t *object_of(const pp_cell *cell)
{
    return cell && cell->type == PP_CELL_JSON ? json_loads(cell->text, 0, NULL) : NULL;
}

static void take_metrics(const pp_cell *cell, double ret[PP_METRIC_COUNT])
{
    PP_CLEANUP_JSON json_t *object = object_of(cell);
    const char *name;
    const json_t *value;
    json_object_foreach(object, name, value)
    {
        pp_metric metric;
        if (pp_metric_from_name(name, &metric) == 0 && json_is_number(value))
            ret[metric] = json_number_value(value);
    }
}

static void take_bounds(const pp_cell *cell, double ret[PP_BOUND_COUNT])
{
    PP_CLEANUP_JSON json_t *object = object_of(cell);
    for (int i = 0; i < PP_BOUND_COUNT; i++) {
        const json_t *value = json_object_get(object, pp_bound_name((pp_bound)i));
        if (json_is_number(value))
            ret[i] = json_number_value(value);
    }
}

static void take_head(pp_workload_figures *f, const pp_cell *cells, size_t n)
{
    f->gpus = number_of(find(cells, n, PP_CELL_HEAD, "gpus"));
    f->layers = number_of(find(cells, n, PP_CELL_HEAD, "layers"));
    f->step_seconds = number_of(find(cells, n, PP_CELL_HEAD, "step_seconds"));
    f->idle = number_of(find(cells, n, PP_CELL_HEAD, "idle"));
    f->cost = number_of(find(cells, n, PP_CELL_HEAD, "cost"));
    f->budget = number_of(find(cells, n, PP_CELL_HEAD, "budget"));
    take_bounds(find(cells, n, PP_CELL_HEAD, "bounds"), f->bounds);
    take_metrics(find(cells, n, PP_CELL_HEAD, "metrics"), f->metrics);
}

static int on_row(void *user, const pp_cell *cells, size_t n, pp_error *err)
{
    pp_workload_figures *f = &((struct pp_workload_metrics *)user)->figures;
    const pp_cell *phase = find(cells, n, PP_CELL_ROW, "phase");
    const pp_cell *layer = find(cells, n, PP_CELL_ROW, "layer");
    if (f->n_rows == 0)
        take_head(f, cells, n);
    if (!phase || phase->type != PP_CELL_TEXT) /* it has no items */
        return 0;
    pp_layer_figures *row = pp_workload_figures_add(f);
    if (!row)
        return pp_error_nomem(err);
    (void)snprintf(row->phase, sizeof row->phase, "%s", phase->text);
    row->layer = layer && layer->type == PP_CELL_TEXT ? strdup(layer->text) : NULL;
    row->seconds = number_of(find(cells, n, PP_CELL_ROW, "seconds"));
    row->busy_seconds = number_of(find(cells, n, PP_CELL_ROW, "busy"));
    row->share = number_of(find(cells, n, PP_CELL_ROW, "share"));
    take_metrics(find(cells, n, PP_CELL_ROW, "metrics"), row->metrics);
    return 0;
}

static void on_reset(void *user)
{
    struct pp_workload_metrics *m = user;
    pp_workload_figures_done(&m->figures);
    pp_workload_figures_init(&m->figures);
}

/** The figures' texts are the workload's, for as long as it takes. */
static int write_text(workload *w, pp_workload_figures *f, pp_error *err)
{
    f->ns = w->ns;
    f->kind = w->kind;
    f->name = w->name;
    f->session = w->session;
    f->uid = w->uid;
    f->finished_ns = w->finished_ns;
    const int rc = pp_workload_text_write(f, &w->text, err);
    f->ns = f->kind = f->name = f->session = f->uid = NULL;
    w->has_text = rc == 0;
    return rc;
}

static bool is_slow(const struct pp_workload_metrics *m, const workload *w)
{
    return pp_strings_index(&m->slow, w->uid) < m->slow.count;
}

/* One workload that takes too long to read is no reason to lack the others'. */
static void leave_out(struct pp_workload_metrics *m, const pp_error *error)
{
    workload *w = &m->next.items[m->at];
    pp_warn("metrics", "workload %s %s of namespace %s is left out: %s", w->kind, w->name, w->ns,
            error->message);
    pp_meter_add(m->op->meters.workload_read_failures, 1);
    pp_workload_figures_done(&m->figures);
    w->is_tried = true;
    if (!is_slow(m, w)) { /* else it is tried again when all are */
        m->again = true;
        (void)pp_strings_add(&m->slow, w->uid, NULL);
    }
    if (++m->timeouts < MOST_TIMEOUTS)
        read_next(m);
    else
        succeed(m);
}

static void on_read(void *user, const pp_error *error)
{
    struct pp_workload_metrics *m = user;
    pp_error err = {0};
    m->query = 0;
    if (error && error->code == PP_ERR_TIMEOUT) {
        leave_out(m, error);
        return;
    }
    if (error) {
        fail(m, error);
        return;
    }
    const int rc = write_text(&m->next.items[m->at], &m->figures, &err);
    pp_workload_figures_done(&m->figures);
    if (rc < 0 && err.code != PP_ERR_TOO_LARGE) {
        fail(m, &err);
        return;
    }
    m->next.items[m->at].is_tried = true;
    read_next(m);
}

static void start(struct pp_workload_metrics *m, const pp_query *query, pp_query_row_fn row,
                  pp_query_reset_fn reset, pp_query_done_fn done)
{
    pp_error err = {0};
    if (pp_reader_query(m->reader, query, row, reset, done, m, &m->query, &err) < 0)
        fail(m, &err);
}

/* The first workload that nothing is known of yet. */
static size_t find_unread(const struct pp_workload_metrics *m, bool slow)
{
    for (size_t i = 0; i < m->next.n; i++) {
        const workload *w = &m->next.items[i];
        if (!w->is_known && !w->is_tried && is_slow(m, w) == slow)
            return i;
    }
    return m->next.n;
}

/** The next of these. */
static void read_next(struct pp_workload_metrics *m)
{
    m->at = find_unread(m, false);
    if (m->at == m->next.n)
        m->at = find_unread(m, true);
    if (m->at == m->next.n) {
        succeed(m);
        return;
    }
    const workload *w = &m->next.items[m->at];
    const pp_query query = {.kind = PP_QUERY_WORKLOAD,
                            .ns = w->ns,
                            .session = w->session,
                            .uid = w->uid,
                            .workload_kind = w->kind,
                            .workload_name = w->name,
                            .limit = m->op->config->metrics.layers};
    pp_workload_figures_init(&m->figures);
    start(m, &query, on_row, on_reset, on_read);
}

static int on_listed_row(void *user, const pp_cell *cells, size_t n, pp_error *err)
{
    struct pp_workload_metrics *m = user;
    const size_t most = (size_t)m->op->config->metrics.workloads;
    m->next.all = (size_t)number_of(find(cells, n, PP_CELL_ROW, "workloads"));
    if (!m->next.items)
        m->next.items = calloc(most, sizeof *m->next.items);
    if (!m->next.items)
        return pp_error_nomem(err);
    if (m->next.n == most) /* one more than was asked for */
        return 0;
    workload *w = &m->next.items[m->next.n++];
    const pp_cell *finished = find(cells, n, PP_CELL_ROW, "finished_at");
    w->ns = copy_of(find(cells, n, PP_CELL_ROW, "namespace"));
    w->kind = copy_of(find(cells, n, PP_CELL_ROW, "workload_kind"));
    w->name = copy_of(find(cells, n, PP_CELL_ROW, "workload_name"));
    w->session = copy_of(find(cells, n, PP_CELL_ROW, "session"));
    w->uid = copy_of(find(cells, n, PP_CELL_ROW, "session_uid"));
    w->finished_ns = finished ? finished->number : 0;
    return w->ns && w->kind && w->name && w->session && w->uid ? 0 : pp_error_nomem(err);
}

static void on_listed_reset(void *user)
{
    free_workloads(&((struct pp_workload_metrics *)user)->next);
}

static void on_listed(void *user, const pp_error *error)
{
    struct pp_workload_metrics *m = user;
    m->query = 0;
    if (error) {
        fail(m, error);
        return;
    }
    for (size_t i = 0; i < m->next.n; i++)
        m->next.items[i].is_known = find_same(&m->shown, &m->next.items[i]);
    m->at = 0;
    read_next(m);
}

static void begin(struct pp_workload_metrics *m)
{
    size_t n = 0;
    pp_strings uids = {0};
    PP_CLEANUP_FREE ended **succeeded = list_ended(m, false, &n);
    for (size_t i = 0; i < n && i < MOST_SESSIONS; i++)
        (void)pp_strings_add(&uids, succeeded[i]->uid, NULL);
    m->changed = false;
    m->timeouts = 0;
    m->again = false;
    const pp_query query = {
        .kind = PP_QUERY_WORKLOADS, .known = &uids, .limit = m->op->config->metrics.workloads};
    start(m, &query, on_listed_row, on_listed_reset, on_listed);
    pp_strings_free(&uids);
}

/* ---- life ---- */

static void lead(struct pp_workload_metrics *m)
{
    const pp_config *config = m->op->config;
    const pp_reader_options options = {.conninfo_file = config->postgres.conninfo_file,
                                       .connect_timeout_ns = config->postgres.connect_timeout,
                                       .connections = 1,
                                       .max_waiting = 1,
                                       .timeout_ns = QUERY_NS};
    pp_error err = {0};
    m->reader = pp_reader_new(m->op->loop, &options, &err);
    if (!m->reader)
        pp_warn("metrics", "reading workloads: %s", err.message);
    m->changed = m->stale = true;
    rest(m, 0);
}

static void forget(struct pp_workload_metrics *m)
{
    if (m->query)
        pp_reader_cancel(m->reader, m->query);
    pp_reader_free(m->reader);
    m->reader = NULL;
    m->query = 0;
    free_workloads(&m->shown);
    free_workloads(&m->next);
    pp_workload_figures_done(&m->figures);
    pp_buf_done(&m->page);
    m->cut = (pp_workload_page){0};
    pp_strings_free(&m->slow);
    m->failing = false;
}

void pp_workload_metrics_tick(pp_operator *op)
{
    struct pp_workload_metrics *m = op->workload_metrics;
    const int64_t now = pp_time_monotonic();
    if (!m || op->stopping)
        return;
    if (!op->leading) {
        forget(m);
        return;
    }
    if (!m->reader)
        lead(m);
    if (m->stale) { /* whether the database is there or not */
        m->stale = false;
        drop_gone(m);
        write_page(m);
    }
    if (m->reader && !m->query && now >= m->rest_ns && (m->changed || now >= m->due_ns) &&
        pp_reader_ready(m->reader))
        begin(m);
}

int pp_workload_metrics_start(pp_operator *op, pp_error *err)
{
    if (op->config->metrics.workloads == 0)
        return 0;
    struct pp_workload_metrics *m = calloc(1, sizeof *m);
    if (!m)
        return pp_error_nomem(err);
    m->op = op;
    pp_buf_init(&m->page, PP_WORKLOAD_TEXT_MAX);
    op->workload_metrics = m;
    if (pp_metrics_on_render(op->meters.registry, collect, m, err) < 0)
        return -1;
    return pp_metrics_on_append(op->meters.registry, append, m, err);
}

void pp_workload_metrics_stop(pp_operator *op)
{
    if (op->workload_metrics)
        forget(op->workload_metrics);
}

void pp_workload_metrics_done(pp_operator *op)
{
    struct pp_workload_metrics *m = op->workload_metrics;
    ended *e, *next;
    if (!m)
        return;
    HASH_ITER(hh, m->ended, e, next)
    {
        HASH_DEL(m->ended, e);
        free(e);
    }
    op->workload_metrics = NULL;
    free(m);
}
