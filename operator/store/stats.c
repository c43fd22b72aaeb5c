/* How a session stands in the store; which are not finished. */
#include "operator/store/store_internal.h"

#include <stdlib.h>
#include <string.h>

static const char known_sql[] = "SELECT prometheus_shift_ns FROM session WHERE uid = $1";

/* rank: of the newest agent's processes. open_capture too: an agent that was killed never closes
 * its own. replaying: the same, less processes of which nothing came in 30 s in which others' did,
 * as a process that is gone never ends its own. steps: of the process number that has fewest, over
 * all agents; paused_ns of the one that has most. */
static const char targets_sql[] =
    "SELECT t.pod_uid, coalesce(p.gpus, '{}'), coalesce(p.rank, -1), "
    "coalesce(p.open_stretch, false), "
    "coalesce((extract(epoch FROM t.last_batch_at) * 1000000)::bigint * 1000, 0), "
    "coalesce(t.first_ns, 0), coalesce(t.last_ns, 0), coalesce(t.observed_first_ns, 0), "
    "coalesce(t.observed_last_ns, 0), t.events, coalesce(n.steps, 0), t.dropped, "
    "coalesce(t.epoch, -1), coalesce(t.batch, -1), coalesce(p.fine, ''), "
    "EXISTS (SELECT 1 FROM fine f WHERE f.session_uid = t.session_uid AND f.pod_uid = t.pod_uid), "
    "coalesce(n.paused_ns, 0), coalesce(n.replays, 0), coalesce(p.replaying, false), "
    "coalesce(p.isolated, ''), coalesce(t.began_ns, t.first_ns, 0), t.clock_shift_ns, "
    "coalesce(t.clock_ahead_ns, 0), coalesce(t.clock_bound_ns, 0) "
    "FROM target t "
    "LEFT JOIN LATERAL (SELECT min(x.rank) AS rank, bool_or(x.open_stretch) AS open_stretch, "
    "  max(x.fine COLLATE \"C\") AS fine, max(x.isolated COLLATE \"C\") AS isolated, "
    "  bool_or(x.replaying AND x.last_end_ns > (SELECT max(y.last_end_ns) FROM process y "
    "   WHERE y.session_uid = t.session_uid AND y.pod_uid = t.pod_uid) - 30000000000) "
    "  AS replaying, "
    "  (SELECT array_agg(DISTINCT g ORDER BY g) FROM process y, unnest(y.gpus) g "
    "   WHERE y.session_uid = t.session_uid AND y.pod_uid = t.pod_uid) AS gpus "
    " FROM process x WHERE x.session_uid = t.session_uid AND x.pod_uid = t.pod_uid AND x.instance "
    "= "
    "  (SELECT z.instance FROM process z WHERE z.session_uid = t.session_uid "
    "   AND z.pod_uid = t.pod_uid ORDER BY z.last_end_ns DESC, z.instance COLLATE \"C\" LIMIT 1)) "
    "p "
    " ON true "
    "LEFT JOIN LATERAL (SELECT min(q.steps)::bigint AS steps, "
    " least(coalesce(max(q.paused_ns), 0), 9223372036854775807)::bigint AS paused_ns, "
    " least(coalesce(sum(q.replays), 0), 9223372036854775807)::bigint AS replays "
    " FROM (SELECT sum(x.steps) AS steps, "
    " sum(x.paused_ns) AS paused_ns, sum(x.replays) AS replays "
    " FROM process x WHERE x.session_uid = t.session_uid AND x.pod_uid = t.pod_uid "
    " GROUP BY x.process) q) n ON true "
    "WHERE t.session_uid = $1 ORDER BY t.pod_uid COLLATE \"C\" LIMIT 10000";

static const char figures_sql[] =
    "SELECT (SELECT count(DISTINCT name) FROM layer WHERE session_uid = $1), "
    "(SELECT coalesce(sum(samples), 0)::bigint FROM attribution WHERE session_uid = $1), "
    "(SELECT count(*) FROM sample WHERE session_uid = $1), "
    "(SELECT coalesce(sum(windows) - count(*), 0)::bigint FROM sample WHERE session_uid = $1), "
    "(SELECT coalesce(bool_and(EXISTS (SELECT 1 FROM attribution a WHERE a.session_uid = $1 "
    " AND a.pod_uid = t.pod_uid AND a.final)), false) FROM target t WHERE t.session_uid = $1 "
    " AND t.batches > 0), "
    "l.layers, l.phases, l.pods, "
    "(SELECT count(*) FROM estimate e JOIN attribution a USING (session_uid, pod_uid, gpu_uuid) "
    " WHERE a.session_uid = $1 AND a.final AND e.kind = 'job' AND e.mean IS NOT NULL), "
    "e.own, e.groups, q.judged, q.doubted, q.predicted, q.least, coalesce(q.doubt, q.untold), "
    "(SELECT coalesce(sum(c), 0)::bigint FROM (SELECT min(counted_steps) AS c FROM attribution "
    " WHERE session_uid = $1 GROUP BY pod_uid) least), "
    "(SELECT max(samples_error) FROM attribution WHERE session_uid = $1), "
    "(SELECT max(samples_spread) FROM attribution WHERE session_uid = $1) FROM "
    /* A metric of a GPU is in doubt where nothing tells it that is not. */
    "(SELECT count(*) AS judged, count(*) FILTER (WHERE doubted) AS doubted, "
    " count(explained) FILTER (WHERE NOT doubted) AS predicted, "
    " min(explained) FILTER (WHERE NOT doubted) AS least, "
    " min(metric || ': ' || doubt COLLATE \"C\") FILTER (WHERE doubted) AS doubt, "
    " min(metric || ': ' || untold COLLATE \"C\") AS untold FROM "
    " (SELECT metric, bool_and(doubt IS NOT NULL) AS doubted, min(doubt) AS doubt, "
    "  min(untold) AS untold, max(explained) FILTER (WHERE doubt IS NULL) AS explained "
    "  FROM result_quality WHERE session_uid = $1 AND method <> 'replay' "
    "  GROUP BY pod_uid, gpu_uuid, metric) m) q, "
    "(SELECT count(DISTINCT layer) AS layers, count(DISTINCT phase) AS phases, "
    " count(DISTINCT pod_uid) AS pods "
    " FROM item JOIN attribution a USING (session_uid, pod_uid, gpu_uuid) "
    " WHERE session_uid = $1 AND a.final AND kind = 'layer') l, "
    "(SELECT count(mean) AS own, count(DISTINCT (pod_uid, gpu_uuid, metric, group_name)) "
    " FILTER (WHERE mean IS NULL AND group_mean IS NOT NULL) AS groups "
    " FROM estimate JOIN attribution a USING (session_uid, pod_uid, gpu_uuid) "
    " WHERE session_uid = $1 AND a.final AND kind = 'layer') e";

/* One descent of the key's index per GPU and metric and day. */
static const char seen_sql[] =
    "SELECT m.metric, count(*) FILTER (WHERE whole), count(*) FILTER (WHERE whole AND NOT has), "
    " min(g.gpu) FILTER (WHERE whole AND NOT has) "
    "FROM (SELECT min(t.observed_first_ns) + min(c.prometheus_shift_ns) AS first, "
    "  max(t.observed_last_ns) + min(c.prometheus_shift_ns) AS last "
    " FROM target t JOIN session c ON c.uid = t.session_uid WHERE t.session_uid = $1) r, "
    "(SELECT gpu, gpu NOT LIKE 'MIG-%' AS whole FROM "
    " (SELECT DISTINCT unnest(gpus) AS gpu FROM process WHERE session_uid = $1) d) g, "
    "unnest($3::text[]) AS m (metric), "
    "LATERAL (SELECT (SELECT max(s.at_ns) FROM metric_sample s WHERE s.gpu_uuid = g.gpu "
    " AND s.metric = m.metric AND s.source = 'prometheus' AND s.at_ns >= r.first "
    " AND s.at_ns <= r.last + $2) IS NOT NULL AS has) h "
    "GROUP BY m.metric HAVING bool_or(has)";

enum { KNOWN, TARGETS, FIGURES }; /* then the metrics seen */

typedef struct stats_call {
    pp_call call;
    pp_store_stats_fn done;
    pp_store_stats stats;
} stats_call;

static void clear(pp_store_stats *s)
{
    for (size_t i = 0; i < s->n_targets; i++) {
        free(s->targets[i].pod_uid);
        pp_strings_free(&s->targets[i].gpus);
    }
    free(s->targets);
    memset(s, 0, sizeof(*s));
}

static int64_t least_known(int64_t a, int64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void sum_up(pp_session_stats *all, const pp_store_target_stats *t)
{
    all->first_step_ns = least_known(all->first_step_ns, t->began_ns);
    all->last_step_ns = t->last_ns > all->last_step_ns ? t->last_ns : all->last_step_ns;
    all->last_batch_ns =
        t->last_batch_ns > all->last_batch_ns ? t->last_batch_ns : all->last_batch_ns;
    all->steps += t->steps;
    all->events += t->events;
    all->dropped += t->dropped;
    all->paused_ns = t->paused_ns > all->paused_ns ? t->paused_ns : all->paused_ns;
}

static int take_target(pp_store_stats *s, const PGresult *r, int row, pp_error *err)
{
    pp_store_target_stats *bigger = realloc(s->targets, (s->n_targets + 1) * sizeof(*bigger));
    if (!bigger)
        return pp_error_nomem(err);
    s->targets = bigger;
    pp_store_target_stats *t = &s->targets[s->n_targets++];
    *t = (pp_store_target_stats){
        .rank = pp_row_int(r, row, 2, -1),
        .open_capture = pp_row_bool(r, row, 3),
        .last_batch_ns = pp_row_int(r, row, 4, 0),
        .first_ns = pp_row_int(r, row, 5, 0),
        .last_ns = pp_row_int(r, row, 6, 0),
        .observed_first_ns = pp_row_int(r, row, 7, 0),
        .observed_last_ns = pp_row_int(r, row, 8, 0),
        .events = pp_row_int(r, row, 9, 0),
        .steps = pp_row_int(r, row, 10, 0),
        .dropped = pp_row_int(r, row, 11, 0),
        .epoch = pp_row_int(r, row, 12, -1),
        .batch = pp_row_int(r, row, 13, -1),
        .pm = pp_row_bool(r, row, 15),
        .paused_ns = pp_row_int(r, row, 16, 0),
        .replays = pp_row_int(r, row, 17, 0),
        .replaying = pp_row_bool(r, row, 18),
        .began_ns = pp_row_int(r, row, 20, 0),
        .clock_shift_ns = pp_row_int(r, row, 21, 0),
        .clock_ahead_ns = pp_row_int(r, row, 22, 0),
        .clock_bound_ns = pp_row_int(r, row, 23, 0),
    };
    (void)snprintf(t->isolated, sizeof(t->isolated), "%s", pp_row_text(r, row, 19));
    (void)snprintf(t->pm_why, sizeof(t->pm_why), "%s", pp_row_text(r, row, 14));
    t->pod_uid = strdup(pp_row_text(r, row, 0));
    if (!t->pod_uid)
        return pp_error_nomem(err);
    sum_up(&s->session, t);
    return pp_row_strings(r, row, 1, &t->gpus, err);
}

static void take_figures(pp_session_stats *all, const PGresult *r, int row)
{
    all->layers = pp_row_int(r, row, 0, 0);
    all->samples_joined = pp_row_int(r, row, 1, 0);
    all->samples_stored = pp_row_int(r, row, 2, 0);
    all->samples_deduplicated = pp_row_int(r, row, 3, 0);
    all->final_written = pp_row_bool(r, row, 4);
    all->final_layers = pp_row_int(r, row, 5, 0);
    all->final_phases = pp_row_int(r, row, 6, 0);
    all->final_pods = pp_row_int(r, row, 7, 0);
    all->final_job_means = pp_row_int(r, row, 8, 0);
    all->final_own = pp_row_int(r, row, 9, 0);
    all->final_groups = pp_row_int(r, row, 10, 0);
    all->judged = pp_row_int(r, row, 11, 0);
    all->doubted = pp_row_int(r, row, 12, 0);
    all->predicted = pp_row_int(r, row, 13, 0);
    all->least_explained = pp_row_float(r, row, 14);
    const char *doubt = pp_row_text(r, row, 15);
    (void)snprintf(all->doubt, sizeof(all->doubt), "%s", doubt ? doubt : "");
    all->counted_steps = pp_row_int(r, row, 16, 0);
    all->samples_error = pp_row_float(r, row, 17);
    all->samples_spread = pp_row_float(r, row, 18);
}

static void take_seen(pp_session_stats *all, const PGresult *r, int row)
{
    pp_metric metric = PP_METRIC_COUNT;
    if (pp_metric_from_name(pp_row_text(r, row, 0), &metric) < 0)
        return;
    all->metrics_seen |= 1U << metric;
    all->gpus = pp_row_int(r, row, 1, 0);
    const int64_t without = pp_row_int(r, row, 2, 0);
    if (without == 0)
        return;
    const char *gpu = pp_row_text(r, row, 3);
    all->metrics_partly |= 1U << metric;
    all->unseen[metric].count = without;
    (void)snprintf(all->unseen[metric].gpu, sizeof(all->unseen[metric].gpu), "%s", gpu ? gpu : "");
}

static int stats_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    pp_store_stats *s = &((stats_call *)job)->stats;
    switch (index) {
    case KNOWN:
        s->known = true;
        s->prometheus_shift_ns = pp_row_int(r, row, 0, 0);
        return 0;
    case TARGETS:
        return take_target(s, r, row, err);
    case FIGURES:
        take_figures(&s->session, r, row);
        return 0;
    default:
        take_seen(&s->session, r, row);
        return 0;
    }
}

static void stats_reset(pp_job *job)
{
    clear(&((stats_call *)job)->stats);
}

static void stats_ended(pp_job *job, const pp_error *error)
{
    const stats_call *c = (const stats_call *)job;
    c->done(c->call.user, error ? NULL : &c->stats, error);
}

int pp_store_load_stats(pp_store *store, const char *session_uid, int64_t after_ns,
                        pp_store_stats_fn done, void *user, pp_error *err)
{
    static const char *const statements[] = {known_sql, targets_sql, figures_sql, seen_sql};
    pp_statement *last = NULL;
    char *names[PP_METRIC_COUNT];
    if (pp_store_need(session_uid, "session", err) < 0)
        return -1;
    stats_call *c = pp_call_new(sizeof(*c), stats_ended, user, err);
    if (!c)
        return -1;
    c->done = done;
    c->call.job.row = stats_row;
    c->call.job.reset = c->call.job.release = stats_reset;
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        last = pp_job_add(&c->call.job, statements[i]);
        pp_sql_text(last, session_uid);
    }
    for (int i = 0; i < PP_METRIC_COUNT; i++)
        names[i] = (char *)(uintptr_t)pp_metric_get((pp_metric)i)->column;
    pp_sql_int8(last, after_ns);
    pp_sql_strings(last, &(pp_strings){.items = names, .count = PP_METRIC_COUNT});
    return pp_call_submit(store, PP_LANE_BULK, c, err);
}

static const char unfinished_sql[] = "SELECT uid FROM session WHERE finished_at IS NULL "
                                     "AND ($1::text IS NULL OR namespace = $1) "
                                     "ORDER BY created_at, uid COLLATE \"C\" LIMIT 10000";

/* A session has more than one workload at times: each once. What a replica that begins to lead
 * makes anew is bounded: the API server has other things to do then. */
static const char pattern_sessions_sql[] =
    "SELECT session_uid FROM (SELECT DISTINCT session_uid FROM latest_session "
    "WHERE namespace = $1 OR $1 IS NULL) l JOIN session s ON s.uid = l.session_uid "
    "ORDER BY s.finished_at DESC, s.uid LIMIT 1000";

typedef struct uids_call {
    pp_call call;
    pp_store_uids_fn done;
    pp_strings uids;
} uids_call;

static int uids_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    (void)index;
    return pp_strings_add(&((uids_call *)job)->uids, pp_row_text(r, row, 0), err);
}

static void uids_reset(pp_job *job)
{
    pp_strings_free(&((uids_call *)job)->uids);
}

static void uids_ended(pp_job *job, const pp_error *error)
{
    const uids_call *c = (const uids_call *)job;
    c->done(c->call.user, error ? NULL : &c->uids, error);
}

static uids_call *uids_call_new(pp_store_uids_fn done, void *user, pp_error *err)
{
    uids_call *c = pp_call_new(sizeof(*c), uids_ended, user, err);
    if (!c)
        return NULL;
    c->done = done;
    c->call.job.row = uids_row;
    c->call.job.reset = c->call.job.release = uids_reset;
    return c;
}

static int load_uids(pp_store *store, const char *sql, const char *ns, pp_store_uids_fn done,
                     void *user, pp_error *err)
{
    uids_call *c = uids_call_new(done, user, err);
    if (!c)
        return -1;
    pp_sql_text(pp_job_add(&c->call.job, sql), ns);
    return pp_call_submit(store, PP_LANE_BULK, c, err);
}

static const char without_results_sql[] =
    "SELECT k FROM unnest($1::text[]) WITH ORDINALITY AS a (k, n) "
    "CROSS JOIN LATERAL (SELECT string_to_array(k, '/') AS w) p "
    "WHERE NOT EXISTS (SELECT 1 FROM pattern WHERE namespace = w[1] AND workload_kind = w[2] "
    " AND workload_name = w[3]) "
    "AND NOT EXISTS (SELECT 1 FROM target t JOIN usage u USING (session_uid, pod_uid) "
    " WHERE t.namespace = w[1] AND t.workload_kind = w[2] AND t.workload_name = w[3]) ORDER BY n";

int pp_store_load_without_results(pp_store *store, const pp_strings *workloads,
                                  pp_store_uids_fn done, void *user, pp_error *err)
{
    uids_call *c = uids_call_new(done, user, err);
    if (!c)
        return -1;
    pp_sql_strings(pp_job_add(&c->call.job, without_results_sql), workloads);
    return pp_call_submit(store, PP_LANE_BULK, c, err);
}

int pp_store_load_unfinished(pp_store *store, const char *ns, pp_store_uids_fn done, void *user,
                             pp_error *err)
{
    return load_uids(store, unfinished_sql, ns, done, user, err);
}

int pp_store_load_pattern_sessions(pp_store *store, const char *ns, pp_store_uids_fn done,
                                   void *user, pp_error *err)
{
    return load_uids(store, pattern_sessions_sql, ns, done, user, err);
}
