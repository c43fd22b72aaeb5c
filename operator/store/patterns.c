/* What workloads are like: usages of their sessions out of the store, their patterns into it. */
#include "operator/store/store_internal.h"
#include "operator/store/usage_rows.h"

#include <stdlib.h>
#include <string.h>

/*
 * The GPUs of $1's workloads in the newest of their sessions that Succeeded, so many of each at
 * most. A pod's times of processes that name no GPU ('') count where it has nothing else.
 */
#define CHOSEN                                                                                     \
    "WITH workloads AS (SELECT DISTINCT namespace, workload_kind, workload_name FROM target "      \
    " WHERE session_uid = $1), "                                                                   \
    "sessions AS (SELECT w.*, s.uid, s.finished_at, row_number() OVER (PARTITION BY w.namespace, " \
    "  w.workload_kind, w.workload_name ORDER BY s.finished_at DESC, s.uid) AS age "               \
    " FROM workloads w CROSS JOIN LATERAL (SELECT DISTINCT t.session_uid FROM target t "           \
    "  WHERE t.namespace = w.namespace AND t.workload_kind = w.workload_kind "                     \
    "  AND t.workload_name = w.workload_name) t "                                                  \
    " JOIN session s ON s.uid = t.session_uid WHERE s.phase = 'Succeeded'), "                      \
    "numbered AS (SELECT c.namespace, c.workload_kind, c.workload_name, c.finished_at, u.*, "      \
    "  row_number() OVER (PARTITION BY c.namespace, c.workload_kind, c.workload_name, c.uid "      \
    "  ORDER BY u.pod_uid, u.gpu_uuid) AS number "                                                 \
    " FROM sessions c JOIN target t ON t.session_uid = c.uid AND t.namespace = c.namespace "       \
    "  AND t.workload_kind = c.workload_kind AND t.workload_name = c.workload_name "               \
    " JOIN usage u ON u.session_uid = c.uid AND u.pod_uid = t.pod_uid "                            \
    " JOIN attribution a ON a.session_uid = c.uid AND a.pod_uid = u.pod_uid "                      \
    "  AND a.gpu_uuid = u.gpu_uuid AND a.final "                                                   \
    " WHERE c.age <= 16 AND (u.gpu_uuid <> '' OR NOT EXISTS (SELECT 1 FROM usage o "               \
    "  WHERE o.session_uid = u.session_uid AND o.pod_uid = u.pod_uid AND o.gpu_uuid <> ''))), "    \
    "chosen AS (SELECT * FROM numbered WHERE number <= 64) "
#define IN_ORDER                                                                                   \
    "ORDER BY c.session_uid COLLATE \"C\", c.pod_uid COLLATE \"C\", c.gpu_uuid COLLATE \"C\""

static const char usages_sql[] = CHOSEN
    "SELECT c.session_uid, c.pod_uid, c.gpu_uuid, c.namespace, c.workload_kind, c.workload_name, "
    "(extract(epoch FROM c.finished_at) * 1e9)::bigint, c.steps, c.undisturbed, c.busy, "
    "c.step_ns, c.step_ns_stderr, c.step_sd_ns, c.idle, c.idle_stderr, c.models, "
    "c.model_digests, c.batches, c.gpu_model, c.chip FROM chosen c " IN_ORDER;
static const char metrics_sql[] = CHOSEN
    "SELECT c.session_uid, c.pod_uid, c.gpu_uuid, m.metric, m.source, m.mean, m.mean_stderr, "
    "m.p50, m.p50_stderr, m.p95, m.p95_stderr, m.most, m.achieved, m.achieved_stderr, m.peak, "
    "m.profile FROM chosen c "
    "JOIN usage_metric m USING (session_uid, pod_uid, gpu_uuid) " IN_ORDER ", m.metric";
static const char shares_sql[] =
    CHOSEN "SELECT c.session_uid, c.pod_uid, c.gpu_uuid, h.kind, h.name, h.share, h.share_stderr, "
           "h.achieved, h.achieved_stderr "
           "FROM chosen c JOIN usage_share h USING (session_uid, pod_uid, gpu_uuid) " IN_ORDER
           ", h.share DESC, h.kind, h.name COLLATE \"C\"";

enum { USAGES, METRICS, SHARES };

/* ---- usages out of the store ---- */

typedef struct usages_call {
    pp_call call;
    pp_store_usages_fn done;
    pp_workload_usages found; /* in IN_ORDER, until the end */
    char **gpus;              /* pod and GPU of each */
    size_t room, next;        /* the one whose rows come */
    int index;                /* statement that `next` is of */
} usages_call;

static char *copy(const PGresult *r, int row, int column)
{
    const char *text = pp_row_text(r, row, column);
    return strdup(text ? text : "");
}

static int take_usage(usages_call *c, const PGresult *r, int row, pp_error *err)
{
    if (c->found.n == c->room) {
        const size_t room = c->room ? 2 * c->room : 64;
        pp_workload_usage *items = realloc(c->found.items, room * sizeof *items);
        if (!items)
            return pp_error_nomem(err);
        c->found.items = items;
        char **gpus = realloc(c->gpus, room * sizeof *gpus);
        if (!gpus)
            return pp_error_nomem(err);
        c->gpus = gpus;
        c->room = room;
    }
    pp_workload_usage *u = &c->found.items[c->found.n];
    char **gpu = &c->gpus[c->found.n++];
    *gpu = NULL;
    *u = (pp_workload_usage){.session = copy(r, row, 0),
                             .namespace_ = copy(r, row, 3),
                             .kind = copy(r, row, 4),
                             .name = copy(r, row, 5),
                             .finished_ns = pp_row_int(r, row, 6, 0),
                             .usage = calloc(1, sizeof *u->usage)};
    if (!u->session || !u->namespace_ || !u->kind || !u->name || !u->usage ||
        asprintf(gpu, "%s/%s", pp_row_text(r, row, 1), pp_row_text(r, row, 2)) < 0) {
        *gpu = NULL;
        return pp_error_nomem(err);
    }
    pp_usage_rows_take_head(u->usage, r, row, 7);
    return pp_usage_rows_take_models(u->usage, r, row, 15, err) < 0
               ? -1
               : pp_usage_rows_take_gpu(&u->usage->gpu, r, row, 18, err);
}

static bool is_of(const usages_call *c, const PGresult *r, int row)
{
    const char *pod = pp_row_text(r, row, 1), *gpu = pp_row_text(r, row, 2);
    const char *its = c->gpus[c->next];
    const size_t length = strlen(pod);
    return strcmp(pp_row_text(r, row, 0), c->found.items[c->next].session) == 0 &&
           strncmp(its, pod, length) == 0 && its[length] == '/' &&
           strcmp(its + length + 1, gpu) == 0;
}

/* Rows come in the order of their usages. */
static pp_usage *usage_of(usages_call *c, int index, const PGresult *r, int row)
{
    if (c->index != index) {
        c->index = index;
        c->next = 0;
    }
    while (c->next < c->found.n && !is_of(c, r, row))
        c->next++;
    return c->next < c->found.n ? c->found.items[c->next].usage : NULL;
}

static int usages_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    usages_call *c = (usages_call *)job;
    if (index == USAGES)
        return take_usage(c, r, row, err);
    pp_usage *usage = usage_of(c, index, r, row);
    if (!usage)
        return 0;
    return index == METRICS ? pp_usage_rows_take_metric(usage, r, row, 3, err)
                            : pp_usage_rows_take_share(usage, r, row, 3, err);
}

static void forget(usages_call *c)
{
    for (size_t i = 0; i < c->found.n; i++)
        free(c->gpus[i]);
    free(c->gpus);
    c->gpus = NULL;
    pp_workload_usages_done(&c->found);
    c->room = c->next = 0;
    c->index = USAGES;
}

static void usages_reset(pp_job *job)
{
    forget((usages_call *)job);
}

static void usages_ended(pp_job *job, const pp_error *error)
{
    usages_call *c = (usages_call *)job;
    if (!error) {
        for (size_t i = 0; i < c->found.n; i++)
            free(c->gpus[i]);
        free(c->gpus);
        c->gpus = NULL;
        pp_workload_usages_sort(&c->found);
    }
    c->done(c->call.user, error ? NULL : &c->found, error);
    if (!error)
        pp_workload_usages_done(&c->found);
}

int pp_store_load_usages(pp_store *store, const char *session_uid, pp_store_usages_fn done,
                         void *user, pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0)
        return -1;
    usages_call *c = pp_call_new(sizeof(*c), usages_ended, user, err);
    if (!c)
        return -1;
    c->done = done;
    c->call.job.row = usages_row;
    c->call.job.reset = c->call.job.release = usages_reset;
    pp_sql_text(pp_job_add(&c->call.job, usages_sql), session_uid);
    pp_sql_text(pp_job_add(&c->call.job, metrics_sql), session_uid);
    pp_sql_text(pp_job_add(&c->call.job, shares_sql), session_uid);
    return pp_call_submit(store, PP_LANE_BULK, c, err);
}

/* ---- patterns into it ---- */

/* Of two that were made at the same time the one that knows of more sessions stands. */
#define NEWER                                                                                      \
    "NOT EXISTS (SELECT 1 FROM pattern WHERE namespace = $1 AND workload_kind = $2 "               \
    "AND workload_name = $3)"
static const char delete_sql[] =
    "DELETE FROM pattern WHERE namespace = $1 AND workload_kind = $2 AND workload_name = $3 "
    "AND last_at <= to_timestamp($4::bigint / 1e9)";
static const char pattern_sql[] =
    "INSERT INTO pattern (namespace, workload_kind, workload_name, steps, undisturbed, busy, "
    "step_ns, step_ns_stderr, step_sd_ns, idle, idle_stderr, session_uid, sessions, gpus, "
    "first_at, last_at, bound, lead, lead_stderr, object_name, models, model_digests, batches, "
    "sessions_of_other_models, sessions_on_other_gpus, gpu_model) "
    "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::int, $14::int, "
    "to_timestamp($15::bigint / 1e9), to_timestamp($16::bigint / 1e9), $17, $18, $19, $20, "
    "$21, $22, $23, $24::int, $25::int, $26 "
    "WHERE " NEWER;
#define IS_MADE                                                                                    \
    "EXISTS (SELECT 1 FROM pattern WHERE namespace = $1 AND workload_kind = $2 "                   \
    "AND workload_name = $3) AND NOT EXISTS (SELECT 1 FROM "
static const char pattern_metrics_sql[] =
    "INSERT INTO pattern_metric (namespace, workload_kind, workload_name, metric, source, mean, "
    "mean_stderr, p50, p50_stderr, p95, p95_stderr, most, achieved, "
    "achieved_stderr, peak, profile) "
    "SELECT $1, $2, $3, " PP_USAGE_ROWS_METRICS "WHERE " IS_MADE
    "pattern_metric WHERE namespace = $1 AND workload_kind = $2 AND workload_name = $3)";
static const char pattern_shares_sql[] =
    "INSERT INTO pattern_share (namespace, workload_kind, workload_name, kind, name, share, "
    "share_stderr, achieved, achieved_stderr) SELECT $1, $2, $3, " PP_USAGE_ROWS_SHARES
    "WHERE " IS_MADE
    "pattern_share WHERE namespace = $1 AND workload_kind = $2 AND workload_name = $3)";

static pp_statement *add(pp_job *job, const char *sql, const pp_pattern *p)
{
    pp_statement *s = pp_job_add(job, sql);
    pp_sql_text(s, p->namespace_);
    pp_sql_text(s, p->kind);
    pp_sql_text(s, p->name);
    return s;
}

static int add_pattern(pp_job *job, const pp_pattern *p, pp_error *err)
{
    pp_sql_int8(add(job, delete_sql, p), p->last_ns);
    pp_statement *s = add(job, pattern_sql, p);
    pp_usage_rows_head(s, p->usage);
    pp_sql_text(s, p->session);
    pp_sql_int8(s, p->sessions);
    pp_sql_int8(s, p->gpus);
    pp_sql_int8(s, p->first_ns);
    pp_sql_int8(s, p->last_ns);
    pp_sql_text(s, pp_bound_name(p->bound));
    pp_sql_float8(s, p->lead.value);
    pp_sql_float8(s, p->lead.standard_error);
    pp_sql_text(s, p->object);
    pp_usage_rows_models(s, p->usage, PP_MODELS_TOLD);
    pp_sql_int8(s, p->left.other_models);
    pp_sql_int8(s, p->left.other_gpus);
    pp_sql_text(s, *p->usage->gpu.model ? p->usage->gpu.model : NULL);
    if (pp_usage_rows_metrics(add(job, pattern_metrics_sql, p), p->usage, err) < 0)
        return -1;
    return pp_usage_rows_shares(add(job, pattern_shares_sql, p), p->usage, err);
}

int pp_store_put_patterns(pp_store *store, const pp_patterns *patterns, pp_store_done_fn done,
                          void *user, pp_error *err)
{
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return -1;
    call->done = done;
    for (size_t i = 0; i < patterns->n; i++)
        if (add_pattern(&call->job, &patterns->items[i], err) < 0) {
            pp_job_free(&call->job);
            return -1;
        }
    return pp_call_submit(store, PP_LANE_BULK, call, err);
}
