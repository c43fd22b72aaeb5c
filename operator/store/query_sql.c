/*
 * What the reader asks. A column's name begins with its section: '@' version, '#' key, '^' head,
 * '+' nested, all else of the row. The views of docs/results.md say what the columns are; where a
 * page of a view would read all of it, the tables are paged, and the expressions are the views'.
 *
 * A version is made of the rows that stand for all others of a session: its own, its pods', its
 * solutions', and whether it is its workloads' latest. Whatever writes others writes one of these
 * in the same transaction, and a row that was written has another xmin.
 */
#include "operator/store/query_sql.h"

#include <stddef.h>

const char pp_query_begin_sql[] =
    "SELECT set_config('transaction_read_only', 'on', true), "
    "set_config('statement_timeout', $1, true), set_config('TimeZone', 'UTC', true), "
    "set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)";

/* ---- lists of sessions ---- */

/* Its row, and what its pods say of it; s is a row of session. */
#define LISTED                                                                                     \
    "s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase, s.method, "   \
    "s.created_at, s.finished_at, to_timestamp(s.first_step_ns / 1e9) AS first_step, "             \
    "to_timestamp(s.last_step_ns / 1e9) AS last_step, t.pods, t.workloads "
#define LISTED_PODS                                                                                \
    "CROSS JOIN LATERAL (SELECT coalesce(sum(n), 0)::bigint AS pods, coalesce(json_agg("           \
    " json_build_object('kind', workload_kind, 'name', workload_name, 'pods', n) "                 \
    " ORDER BY workload_kind, workload_name) FILTER (WHERE place <= 100), '[]') AS workloads "     \
    "FROM (SELECT workload_kind, workload_name, count(*) AS n, "                                   \
    "  row_number() OVER (ORDER BY workload_kind, workload_name) AS place FROM target "            \
    " WHERE session_uid = s.uid GROUP BY workload_kind, workload_name) w) t "
#define LIST(where, us, uid, limit)                                                                \
    "WITH p AS MATERIALIZED (SELECT * FROM (SELECT *, "                                            \
    "  (extract(epoch FROM created_at) * 1000000)::bigint AS us FROM session " where ") a "        \
    " WHERE (a.us, a.uid) < (" us "::bigint, " uid "::text) "                                      \
    " ORDER BY a.us DESC, a.uid DESC LIMIT " limit "::bigint) "                                    \
    "SELECT s.us AS \"#us\", s.uid AS \"#uid\", " LISTED "FROM p s " LISTED_PODS                   \
    "ORDER BY s.us DESC, s.uid DESC"

/* ---- of one session ---- */

/* s: the session, v: its version; l: its workloads, and whether it is their latest. $1 namespace,
 * $2 name, $3 UID, $4 versions that are known. */
#define SESSION                                                                                    \
    "WITH s AS MATERIALIZED (SELECT *, xmin AS row_version FROM session "                          \
    " WHERE namespace = $1::text AND name = $2::text AND ($3::text IS NULL OR uid = $3::text) "    \
    " ORDER BY created_at DESC, uid LIMIT 1), "
#define VERSION(more)                                                                              \
    "l AS MATERIALIZED (SELECT w.*, EXISTS (SELECT 1 FROM latest_session a "                       \
    "  WHERE a.session_uid = s.uid AND a.namespace = w.namespace "                                 \
    "  AND a.workload_kind = w.workload_kind AND a.workload_name = w.workload_name) AS latest "    \
    " FROM s CROSS JOIN LATERAL (SELECT DISTINCT namespace, workload_kind, workload_name "         \
    "  FROM target WHERE session_uid = s.uid) w), "                                                \
    "v AS MATERIALIZED (SELECT s.uid, s.namespace, s.name, s.phase, md5(concat_ws(' ', s.uid, "    \
    " s.row_version, "                                                                             \
    " (SELECT string_agg(concat_ws('/', t.pod_uid, t.xmin), ' ' ORDER BY t.pod_uid) "              \
    "  FROM target t WHERE t.session_uid = s.uid), '-', "                                          \
    " (SELECT string_agg(concat_ws('/', a.pod_uid, a.gpu_uuid, a.xmin), ' ' "                      \
    "  ORDER BY a.pod_uid, a.gpu_uuid) FROM attribution a WHERE a.session_uid = s.uid), '-', "     \
    " (SELECT string_agg(concat_ws('/', workload_kind, workload_name), ' ' "                       \
    "  ORDER BY workload_kind, workload_name) FROM l WHERE latest)" more ")) AS version FROM s) "
#define WITH_SESSION SESSION VERSION("")
/* Ranks are put by a transaction of their own, and activity goes before its session does. */
#define WITH_RANKS                                                                                 \
    SESSION VERSION(", '-', (SELECT string_agg(concat_ws('/', r.pod_uid, r.process, r.xmin), ' ' " \
                    " ORDER BY r.pod_uid, r.process) FROM rank r WHERE r.session_uid = s.uid)")
#define WITH_TIMELINE                                                                              \
    SESSION VERSION(", '-', (SELECT concat_ws('/', count(*), max(a.xmin::text::bigint)) "          \
                    " FROM activity a WHERE a.session_uid = s.uid)")
/* What sampling told comes without its pod's row being written. */
#define WITH_QUALITY                                                                               \
    SESSION VERSION(                                                                               \
        ", '-', (SELECT string_agg(concat_ws('/', f.pod_uid, f.instance, f.process, f.xmin), ' ' " \
        " ORDER BY f.pod_uid, f.instance, f.process) FROM fine f WHERE f.session_uid = s.uid), "   \
        "'-', (SELECT string_agg(concat_ws('/', p.pod_uid, p.instance, p.process, p.xmin), ' ' "   \
        " ORDER BY p.pod_uid, p.instance, p.process) FROM process p "                              \
        " WHERE p.session_uid = s.uid)")
#define PHASES                                                                                     \
    "'forward', 'backward', 'optimizer', 'recompute', 'zero_grad', 'data', 'communication', "      \
    "'other', 'inference'"
#define HEAD                                                                                       \
    "v.version AS \"@version\", v.namespace AS \"^namespace\", v.name AS \"^session\", "           \
    "v.uid AS \"^session_uid\", v.phase AS \"^session_phase\", "
#define UNKNOWN "v.version <> ALL ($4::text[])"
/* Of a target t. */
#define POD "t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, "
#define LATEST                                                                                     \
    "(SELECT l.latest FROM l WHERE l.namespace = t.namespace "                                     \
    " AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest "

static const char session_sql[] = WITH_SESSION
    "SELECT v.version AS \"@version\", "
    "s.namespace AS \"^namespace\", s.name AS \"^session\", s.uid AS \"^session_uid\", "
    "s.phase AS \"^session_phase\", s.method AS \"^method\", s.created_at AS \"^created_at\", "
    "s.finished_at AS \"^finished_at\", to_timestamp(s.first_step_ns / 1e9) AS "
    "\"^first_step\", "
    "to_timestamp(s.last_step_ns / 1e9) AS \"^last_step\", s.spec AS \"^spec\", "
    "t.pods AS \"^pods\" "
    "FROM s JOIN v ON true CROSS JOIN LATERAL (SELECT coalesce(json_agg(json_build_object("
    " 'workload_kind', t.workload_kind, 'workload_name', t.workload_name, 'pod_name', "
    "t.pod_name, "
    " 'pod_uid', t.pod_uid, 'container', t.container, 'node', t.node, 'host_name', "
    "t.host_name,  'ip', t.ip, 'latest', t.latest, 'steps', t.steps, 'events', t.events, "
    " 'dropped', t.dropped, 'processes', t.processes, 'gpus', t.gpus) ORDER BY t.pod_name, "
    " t.pod_uid), '[]') AS pods FROM (SELECT t.*, " LATEST
    ", (SELECT coalesce(json_agg(DISTINCT p.process), '[]') FROM process p "
    "  WHERE p.session_uid = s.uid AND p.pod_uid = t.pod_uid) AS processes, "
    " (SELECT coalesce(json_agg(json_build_object('gpu_uuid', a.gpu_uuid, "
    "   'revision', a.revision, 'final', a.final) ORDER BY a.gpu_uuid), '[]') FROM attribution "
    "a   WHERE a.session_uid = s.uid AND a.pod_uid = t.pod_uid) AS gpus "
    " FROM target t WHERE t.session_uid = s.uid ORDER BY t.pod_name, t.pod_uid LIMIT 5000) t) "
    "t ";

/* g: the GPUs' attributions, with what the view makes of each. A row has its metrics in an array of
 * records: as rows of their own they would bring the other fifty columns once more each. What is
 * the same of a metric in all rows is read once: joined, it took as long as the estimates. The last
 * LIMIT leaves nothing out: with it Postgres sorts before it reads estimates, and a row goes out
 * while the next is read. */
static const char layers_sql[] = WITH_SESSION
    ", g AS MATERIALIZED (SELECT a.*, t.workload_kind, t.workload_name, t.pod_name, t.node, " LATEST
    ", (a.counted_ns / 1e6 / nullif(a.counted_steps, 0))::float8 AS counted_ms_per_step, "
    " CASE WHEN c.idle < 0 THEN 0 ELSE c.idle END AS counted_idle_share, "
    " to_timestamp(a.first_step_ns / 1e9) AS first_marked, "
    " to_timestamp(a.last_step_ns / 1e9) AS last_marked "
    " FROM v JOIN attribution a ON a.session_uid = v.uid "
    " JOIN target t ON t.session_uid = v.uid AND t.pod_uid = a.pod_uid "
    " CROSS JOIN LATERAL (SELECT 1 - (a.step_ns - a.gap_ns) "
    "  / nullif(a.step_count, 0)::double precision "
    "  / nullif(a.counted_ns::double precision / nullif(a.counted_steps, 0), 0) AS idle) c), "
    "p AS MATERIALIZED (SELECT i.* FROM v CROSS JOIN LATERAL (SELECT * FROM item "
    "  WHERE session_uid = v.uid AND " UNKNOWN "  AND (pod_uid, gpu_uuid, kind, layer, phase) > "
    "   ($5::text, $6::text, $7::text, $8::text, $9::text) "
    "  ORDER BY pod_uid, gpu_uuid, kind, layer, phase LIMIT $10::bigint) i) "
    "SELECT " HEAD "v.uid AS \"#uid\", i.pod_uid AS \"#pod\", "
    "i.gpu_uuid AS \"#gpu\", i.kind AS \"#kind\", i.layer AS \"#layer\", i.phase AS "
    "\"#phase\", "
    "g.workload_kind, g.workload_name, g.pod_name, i.pod_uid, g.node, i.gpu_uuid, g.latest, "
    "i.kind, i.layer, i.phase, i.type, i.parameters, i.calls, i.total_ns, "
    "(i.total_ns / 1e6 / nullif(g.step_count, 0))::float8 AS ms_per_step, "
    "(i.least_ns / 1e6 / nullif(g.step_count, 0))::float8 AS least_ms_per_step, "
    "i.share, i.windows AS data_num, i.busy_ns, "
    "(i.busy_ns / 1e6 / nullif(g.step_count, 0))::float8 AS busy_ms_per_step, "
    "i.idle_share, i.busy_reason, i.bound, i.bound_likely, i.memory_peak_bytes, "
    "i.memory_live_bytes, i.whole_reason, (i.step_stderr_ns / 1e6)::float8 AS ms_per_step_stderr, "
    "i.step_freedom AS ms_per_step_freedom, "
    "(i.busy_stderr_ns / 1e6)::float8 AS busy_ms_per_step_stderr, "
    "i.busy_freedom AS busy_ms_per_step_freedom, g.step_ns, "
    "(g.step_stderr_ns / 1e6)::float8 AS step_ms_stderr, g.step_freedom AS step_ms_freedom, "
    "g.gap_ns, g.shared, "
    "g.counted_steps, g.counted_ms_per_step, "
    "(g.counted_stderr_ns / 1e6)::float8 AS counted_ms_per_step_stderr, "
    "g.counted_freedom AS counted_ms_per_step_freedom, g.counted_idle_share, g.step_count AS "
    "marked_steps, "
    "g.captures, g.first_marked, g.last_marked, g.lag_ns, g.lag_stderr_ns, g.window_ns, "
    "g.revision, g.final, "
    "ARRAY(SELECT ROW(e.metric, e.mean, e.stderr, e.windows, e.basis, e.method, e.source, "
    "  e.reason, e.group_name, e.group_mean, e.group_stderr, "
    "  CASE e.basis WHEN 'elapsed' THEN e.mean WHEN 'busy' THEN e.mean * (1 - i.idle_share) END, "
    "  e.amount_per_step, e.achieved, e.peak) "
    " FROM estimate e WHERE e.session_uid = i.session_uid AND e.pod_uid = i.pod_uid AND e.gpu_uuid "
    "= i.gpu_uuid "
    "  AND e.kind = i.kind AND e.layer = i.layer AND e.phase = i.phase ORDER BY e.metric) "
    "AS \"+metrics\" "
    "FROM v LEFT JOIN p i ON true "
    "LEFT JOIN g ON g.pod_uid = i.pod_uid AND g.gpu_uuid = i.gpu_uuid "
    "ORDER BY i.pod_uid, i.gpu_uuid, i.kind, i.layer, i.phase LIMIT $10::bigint";
static const char *const layers_parts[] = {
    "metric",          "mean",     "stderr",     "windows",    "basis",        "method",
    "source",          "reason",   "group_name", "group_mean", "group_stderr", "elapsed_mean",
    "amount_per_step", "achieved", "peak",       NULL};
static const char layers_terms_sql[] =
    "SELECT name, unit, per_step AS amount_unit, peak_unit FROM metric ORDER BY name";

static const char quality_sql[] = WITH_QUALITY
    "SELECT " HEAD "v.uid AS \"#uid\", q.pod_uid AS \"#pod\", "
    "q.gpu_uuid AS \"#gpu\", q.method AS \"#method\", q.place AS \"#process\", "
    "q.metric AS \"#metric\", q.workload_kind, q.workload_name, q.pod_name, q.pod_uid, q.node, "
    "q.gpu_uuid, (SELECT l.latest FROM l WHERE l.workload_kind = q.workload_kind "
    " AND l.workload_name = q.workload_name AND l.namespace = q.namespace) AS latest, "
    "q.method, q.process, q.metric, q.doubt, q.untold, q.explained, q.miss, q.expected_miss, "
    "q.items, q.items_z, q.idle, q.idle_stderr, q.lag_ns, q.lag_stderr_ns::float8 AS "
    "lag_stderr_ns, q.shift_ns, q.shift_stderr_ns, q.held, q.difference, q.noise, q.windows, "
    "q.chip, q.period_ns, q.times, q.failed_times, q.sampled_ns, q.sampler_cpu_ns "
    "FROM v LEFT JOIN LATERAL (SELECT * FROM (SELECT *, coalesce(process, -1)::bigint AS place "
    "  FROM result_quality WHERE session_uid = v.uid) q WHERE " UNKNOWN
    " AND (pod_uid, gpu_uuid, method, place, metric) > "
    "  ($5::text, $6::text, $7::text, $8::bigint, $9::text) "
    " ORDER BY pod_uid, gpu_uuid, method, place, metric LIMIT $10::bigint) q ON true "
    "ORDER BY q.pod_uid, q.gpu_uuid, q.method, q.place, q.metric";

/* Steps of the process that p's row is of, in the batches that told what `steps` counts. */
#define STEPS_OF(steps)                                                                            \
    "LEFT JOIN LATERAL (SELECT nullif(sum(" steps "), 0)::double precision AS steps FROM process " \
    " WHERE session_uid = v.uid AND pod_uid = p.pod_uid AND process = p.process) n ON true "
#define KERNEL_STEPS STEPS_OF("kernel_steps")
#define WAIT_STEPS STEPS_OF("wait_steps")
#define COPY_STEPS STEPS_OF("copy_steps")
#define TARGET "LEFT JOIN target t ON t.session_uid = v.uid AND t.pod_uid = p.pod_uid "

static const char kernels_sql[] = WITH_SESSION
    ", p AS MATERIALIZED (SELECT k.* FROM v CROSS JOIN LATERAL (SELECT * "
    " FROM kernel WHERE session_uid = v.uid AND " UNKNOWN
    " AND (pod_uid, process, layer, phase, name) > "
    "  ($5::text, $6::bigint, $7::text, $8::text, $9::text) "
    " ORDER BY pod_uid, process, layer, phase, name LIMIT $10::bigint) k), "
    "g AS MATERIALIZED (SELECT pod_uid, process, layer, phase, a.ns FROM (SELECT DISTINCT "
    "  session_uid, pod_uid, process, layer, phase FROM p) d CROSS JOIN LATERAL ("
    " SELECT nullif(sum(ns), 0)::double precision AS ns FROM kernel k WHERE "
    "  k.session_uid = d.session_uid AND k.pod_uid = d.pod_uid AND k.process = d.process "
    "  AND k.layer = d.layer AND k.phase = d.phase) a) "
    "SELECT " HEAD "v.uid AS \"#uid\", p.pod_uid AS \"#pod\", p.process AS \"#process\", "
    "p.layer AS \"#layer\", p.phase AS \"#phase\", p.name AS \"#kernel\", " POD LATEST
    ", p.process, p.layer, p.phase, p.name AS kernel, p.count / n.steps AS calls_per_step, "
    "p.ns / 1e6 / n.steps AS ms_per_step, p.ns / g.ns AS share "
    "FROM v LEFT JOIN p ON true " TARGET KERNEL_STEPS
    "LEFT JOIN g ON g.pod_uid = p.pod_uid AND g.process = p.process AND "
    "g.layer = p.layer "
    " AND g.phase = p.phase ORDER BY p.pod_uid, p.process, p.layer, "
    "p.phase, p.name";

static const char waits_sql[] = WITH_SESSION
    ", p AS MATERIALIZED (SELECT k.* FROM v CROSS JOIN LATERAL (SELECT * "
    " FROM host_wait WHERE session_uid = v.uid AND " UNKNOWN
    " AND (pod_uid, process, layer, phase, call, file, line) > "
    "  ($5::text, $6::bigint, $7::text, $8::text, $9::text, $10::text, $11::bigint) "
    " ORDER BY pod_uid, process, layer, phase, call, file, line LIMIT $12::bigint) k) "
    "SELECT " HEAD "v.uid AS \"#uid\", p.pod_uid AS \"#pod\", p.process AS \"#process\", "
    "p.layer AS \"#layer\", p.phase AS \"#phase\", p.call AS \"#call\", p.file AS \"#file\", "
    "p.line AS \"#line\", " POD LATEST ", p.process, p.layer, p.phase, p.call, p.file, p.line, "
    "p.count / n.steps AS calls_per_step, p.ns / 1e6 / n.steps AS ms_per_step, "
    "CASE WHEN p.steps > n.steps THEN 1 ELSE p.steps / n.steps END AS share_of_steps "
    "FROM v LEFT JOIN p ON true " TARGET WAIT_STEPS
    "ORDER BY p.pod_uid, p.process, p.layer, p.phase, p.call, p.file, p.line";

static const char copies_sql[] = WITH_SESSION
    ", p AS MATERIALIZED (SELECT k.* FROM v CROSS JOIN LATERAL (SELECT * "
    " FROM gpu_copy WHERE session_uid = v.uid AND " UNKNOWN
    " AND (pod_uid, process, layer, phase, type, memory) > "
    "  ($5::text, $6::bigint, $7::text, $8::text, $9::text, $10::text) "
    " ORDER BY pod_uid, process, layer, phase, type, memory LIMIT $11::bigint) k) "
    "SELECT " HEAD "v.uid AS \"#uid\", p.pod_uid AS \"#pod\", p.process AS \"#process\", "
    "p.layer AS \"#layer\", p.phase AS \"#phase\", p.type AS \"#type\", "
    "p.memory AS \"#memory\", " POD LATEST ", p.process, p.layer, p.phase, p.type, p.memory, "
    "p.count / n.steps AS per_step, p.bytes / n.steps AS bytes_per_step, "
    "p.ns / 1e6 / n.steps AS ms_per_step, "
    "p.bytes / nullif(p.ns, 0)::double precision AS gb_per_second "
    "FROM v LEFT JOIN p ON true " TARGET COPY_STEPS
    "ORDER BY p.pod_uid, p.process, p.layer, p.phase, p.type, p.memory";

static const char ranks_sql[] = WITH_RANKS
    "SELECT " HEAD "v.uid AS \"#uid\", r.workload_kind AS \"#kind\", r.workload_name AS \"#name\", "
    "r.rank AS \"#rank\", r.pod_uid AS \"#pod\", r.process AS \"#process\", r.workload_kind, "
    "r.workload_name, r.pod_name, r.pod_uid, r.node, r.latest, r.process, r.rank, r.world_size, "
    "r.steps, r.ms_per_step, r.own_ms_per_step, r.own_stderr_ms, r.wait_ms_per_step, "
    "r.others_own_ms_per_step "
    "FROM v LEFT JOIN LATERAL (SELECT * FROM result_rank WHERE session_uid = v.uid AND " UNKNOWN
    " AND (workload_kind, workload_name, rank, pod_uid, process) > "
    "  ($5::text, $6::text, $7::bigint, $8::text, $9::bigint) "
    " ORDER BY workload_kind, workload_name, rank, pod_uid, process LIMIT $10::bigint) r ON true "
    "ORDER BY r.workload_kind, r.workload_name, r.rank, r.pod_uid, r.process";

/* n: the session's ranks, p: the page's items, o: of each of these what all ranks take. */
static const char rank_items_sql[] = WITH_RANKS
    ", n AS MATERIALIZED (SELECT * FROM rank_now WHERE session_uid = (SELECT uid FROM v)), "
    "p AS MATERIALIZED (SELECT n.*, k.layer, k.phase AS item_phase, k.calls, k.ns FROM v "
    " CROSS JOIN n CROSS JOIN LATERAL (SELECT * FROM rank_item WHERE session_uid = n.session_uid "
    "  AND pod_uid = n.pod_uid AND process = n.process AND " UNKNOWN
    "  AND (n.workload_kind, n.workload_name, n.rank, n.pod_uid, n.process, layer, phase) > "
    "   ($5::text, $6::text, $7::bigint, $8::text, $9::bigint, $10::text, $11::text)) k "
    " ORDER BY n.workload_kind, n.workload_name, n.rank, n.pod_uid, n.process, k.layer, k.phase "
    " LIMIT $12::bigint), "
    "o AS MATERIALIZED (SELECT n.workload_kind, n.workload_name, k.layer, k.phase AS item_phase, "
    "  array_agg(k.ns ORDER BY k.ns) AS sorted "
    " FROM n JOIN rank_item k USING (session_uid, pod_uid, process) "
    " WHERE (n.workload_kind, n.workload_name, k.layer, k.phase) IN "
    "  (SELECT workload_kind, workload_name, layer, item_phase FROM p) GROUP BY 1, 2, 3, 4) "
    "SELECT " HEAD "v.uid AS \"#uid\", t.workload_kind AS \"#kind\", t.workload_name AS \"#name\", "
    "t.rank::bigint AS \"#rank\", t.pod_uid AS \"#pod\", t.process::bigint AS \"#process\", "
    "t.layer AS \"#layer\", t.item_phase AS \"#phase\", t.workload_kind, t.workload_name, "
    "t.pod_name, t.pod_uid, t.node, " LATEST ", t.process, t.rank, t.world_size, t.layer, "
    "t.item_phase AS phase, t.calls AS calls_per_step, t.ns / 1e6 AS ms_per_step, "
    "median_of_others(o.sorted, array_position(o.sorted, t.ns)) / 1e6 AS others_ms_per_step "
    "FROM v LEFT JOIN p t ON true "
    "LEFT JOIN o USING (workload_kind, workload_name, layer, item_phase) "
    "ORDER BY t.workload_kind, t.workload_name, t.rank, t.pod_uid, t.process, t.layer, "
    "t.item_phase";

/*
 * Steps whose intervals were kept one by one: those that batches of intervals hold. A step stands
 * in the batch in which it ended, its intervals in those in which they ended, which are batches of
 * the same process that touch its time. c: the process, p: the page's steps. As in layers_sql, a
 * step goes out with its intervals while the next one's are read: few of many intervals fill a
 * page.
 */
static const char timeline_sql[] = WITH_TIMELINE
    ", c AS MATERIALIZED (SELECT t.pod_name, t.pod_uid, t.node, q.process, q.rank FROM v "
    " JOIN target t ON t.session_uid = v.uid "
    " JOIN process q ON q.session_uid = t.session_uid AND q.pod_uid = t.pod_uid "
    " WHERE ($5::text IS NULL OR t.pod_uid = $5::text) "
    " AND ($6::bigint IS NULL OR q.process = $6::bigint) ORDER BY t.pod_uid, q.process LIMIT 1), "
    "p AS MATERIALIZED (SELECT b.* FROM v CROSS JOIN c CROSS JOIN LATERAL (SELECT a.instance, "
    "  a.stretch, u.number, u.begun, u.took, u.gap, u.epoch, u.batch "
    " FROM activity a CROSS JOIN LATERAL unnest(a.step_number, a.step_start, a.step_duration, "
    "   a.step_gap, a.step_epoch, a.step_batch) AS u (number, begun, took, gap, epoch, batch) "
    " WHERE " UNKNOWN " AND a.session_uid = v.uid AND a.pod_uid = c.pod_uid "
    "  AND a.process = c.process AND a.dwell IS NULL AND a.grid_start IS NULL "
    "  AND a.end_ns >= $9::bigint AND (u.begun, u.number) > ($9::bigint, $10::bigint) "
    " ORDER BY u.begun, u.number LIMIT $11::bigint) b) "
    "SELECT " HEAD "c.pod_name AS \"^pod_name\", c.pod_uid AS \"^pod_uid\", "
    "c.node AS \"^node\", c.process AS \"^process\", c.rank AS \"^rank\", "
    "v.uid AS \"#uid\", c.pod_uid AS \"#pod\", c.process AS \"#process\", "
    "p.begun AS \"#begin\", p.number AS \"#number\", p.number AS step, p.stretch AS capture, "
    "p.begun AS start_ns, p.took AS duration_ns, nullif(p.gap, -1) AS gap_ns, "
    "nullif(p.epoch, -1) AS epoch, nullif(p.batch, -1) AS batch, "
    "ARRAY(SELECT ROW(i.begun - p.begun, i.took, nullif(i.busy, -1), coalesce(y.name, ''), "
    "  coalesce((ARRAY[" PHASES "])[i.code + 1], 'other')) "
    " FROM (SELECT u.* FROM activity a CROSS JOIN LATERAL unnest(a.layer, a.phase, a.step, "
    "   a.start, a.duration, a.busy) AS u (layer, code, step, begun, took, busy) "
    "  WHERE a.session_uid = v.uid AND a.pod_uid = c.pod_uid AND a.instance = p.instance "
    "   AND a.process = c.process AND a.stretch = p.stretch AND a.dwell IS NULL "
    "   AND a.start_ns <= p.begun + p.took AND a.end_ns >= p.begun AND u.step = p.number "
    "  ORDER BY u.begun, u.took DESC LIMIT 20000) i "
    " LEFT JOIN layer y ON y.session_uid = v.uid AND y.pod_uid = c.pod_uid "
    "  AND y.instance = p.instance AND y.process = c.process AND y.layer = i.layer "
    " ORDER BY i.begun, i.took DESC, i.layer, i.code) AS \"+intervals\" "
    "FROM v LEFT JOIN c ON true LEFT JOIN p ON true ORDER BY p.begun, p.number LIMIT $11::bigint";
static const char *const timeline_parts[] = {"start_ns", "duration_ns", "busy_ns",
                                             "layer",    "phase",       NULL};

/* ---- patterns ---- */

/* JSON has no number for what is none: it is not known. */
#define FINITE(x) "CASE WHEN " x " > '-Infinity' AND " x " < 'Infinity' THEN " x " END"
#define MEASURED(column) "'" column "', " FINITE(column)
/* Of a pattern p. */
#define PATTERN(at)                                                                                \
    "p.namespace AS \"" at "namespace\", p.object_name AS \"" at "pattern\", "                     \
    "p.workload_kind AS \"" at "workload_kind\", p.workload_name AS \"" at "workload_name\", "     \
    "p.bound AS \"" at "bound\", p.lead AS \"" at "lead\", p.lead_stderr AS \"" at                 \
    "lead_stderr\", p.sessions AS \"" at "sessions\", p.gpus AS \"" at "gpus\", p.steps AS \"" at  \
    "steps\", p.first_at AS \"" at "first_finished\", p.last_at AS \"" at "last_finished\", "      \
    "p.session_uid AS \"" at "last_session\", p.undisturbed AS \"" at "undisturbed\", p.busy "     \
    "AS \"" at "busy\", p.step_ns AS \"" at "step_ns\", p.step_ns_stderr AS \"" at                 \
    "step_ns_stderr\", p.step_sd_ns AS \"" at "step_sd_ns\", p.idle AS \"" at "idle\", "           \
    "p.idle_stderr AS \"" at "idle_stderr\", p.sessions_of_other_models AS \"" at                  \
    "sessions_of_other_models\", p.sessions_on_other_gpus AS \"" at                                \
    "sessions_on_other_gpus\", p.gpu_model AS \"" at                                               \
    "gpu_model\", (SELECT coalesce(json_agg(json_build_object('class', m.class, "                  \
    " 'digest', m.digest, 'batch', m.batch) ORDER BY m.n), '[]') "                                 \
    "FROM unnest(p.models, p.model_digests, p.batches) WITH ORDINALITY "                           \
    "AS m (class, digest, batch, n)) AS \"" at "models\""
#define OF_PATTERN                                                                                 \
    "namespace = p.namespace AND workload_kind = p.workload_kind AND "                             \
    "workload_name = p.workload_name"
#define OF_PEAK MEASURED("achieved") ", " MEASURED("achieved_stderr")
#define SHARES(kinds)                                                                              \
    "(SELECT coalesce(json_agg(json_build_object('kind', kind, 'name', name, "                     \
    " 'share', " FINITE("share") ", 'share_stderr', " FINITE(                                      \
        "share_stderr") ", " OF_PEAK ") ORDER BY share DESC, kind, name), '[]') "                  \
                        "FROM pattern_share WHERE " OF_PATTERN " AND kind IN (" kinds "))"

static const char patterns_sql[] = "SELECT p.object_name AS \"#name\", " PATTERN(
    "") " FROM pattern p "
        "WHERE p.namespace = $1::text AND p.object_name > $2::text ORDER BY p.object_name "
        "LIMIT $3::bigint";

#define LEVELS                                                                                     \
    MEASURED("mean")                                                                               \
    ", " MEASURED("mean_stderr") ", " MEASURED("p50") ", " MEASURED("p50_stderr") ", " MEASURED(   \
        "p95") ", " MEASURED("p95_stderr") ", " MEASURED("most") ", " OF_PEAK                      \
                                                                 ", " MEASURED("peak")
#define PROFILE                                                                                    \
    "(SELECT json_agg(" FINITE(                                                                    \
        "u.v") " ORDER BY u.n) FROM unnest(profile) WITH ORDINALITY u (v, n))"
#define METRICS                                                                                    \
    "(SELECT coalesce(json_agg(json_build_object('metric', metric, 'source', source, " LEVELS      \
    ", 'profile', " PROFILE ") ORDER BY metric), '[]') FROM pattern_metric WHERE " OF_PATTERN ")"

/* Its parts are written with it: they have no version of their own. */
static const char pattern_sql[] =
    "SELECT md5(concat_ws('/', p.xmin, p.last_at, p.session_uid)) AS "
    "\"@version\", " PATTERN("^") ", " SHARES("'bound'") " AS \"^bounds\", " SHARES(
        "'layer', 'phase'") " AS \"^time\", " METRICS
                            " AS \"^metrics\" FROM pattern p WHERE p.namespace = "
                            "$1::text AND p.object_name = $2::text "
                            "AND ($3::text IS NULL OR p.session_uid = $3::text)";

/* ---- workloads ---- */

/* $1: UIDs of sessions. As in latest_session, of these alone. */
static const char workloads_sql[] =
    "SELECT w.*, count(*) OVER () AS workloads FROM (SELECT DISTINCT ON (t.namespace, "
    "  t.workload_kind, t.workload_name) t.namespace, t.workload_kind, t.workload_name, "
    "  s.uid AS session_uid, s.name AS session, s.finished_at "
    " FROM session s JOIN target t ON t.session_uid = s.uid "
    " WHERE s.uid = ANY ($1::text[]) AND s.phase = 'Succeeded' AND EXISTS (SELECT 1 "
    "  FROM attribution a WHERE a.session_uid = s.uid AND a.pod_uid = t.pod_uid AND a.final) "
    " ORDER BY t.namespace, t.workload_kind, t.workload_name, s.finished_at DESC NULLS LAST, "
    "  s.uid) w ORDER BY w.finished_at DESC NULLS LAST, w.namespace, w.workload_kind, "
    "w.workload_name LIMIT $2::bigint";

/*
 * g: the workload's GPUs that are like most of them, as pp_merge_select() has it; a pod's times of
 * processes that name none ('') count where it has nothing else. i: of its items, per step, the
 * mean over these GPUs: one that lacks an item has none of its time. k: layers by their time. $6:
 * one more than are told apart.
 */
#define LIKE_MOST                                                                                  \
    "(SELECT f.chip, f.gpu_model FROM found f GROUP BY 1, 2 ORDER BY count(*) DESC, f.chip[2] "    \
    " DESC NULLS LAST, f.chip DESC NULLS LAST, f.gpu_model COLLATE \"C\" DESC NULLS LAST LIMIT "   \
    "1) "
#define GPU_ITEMS                                                                                  \
    "WITH found AS MATERIALIZED (SELECT a.*, t.cost_ns, u.chip, u.gpu_model FROM session s "       \
    " JOIN target t ON t.session_uid = s.uid AND t.namespace = s.namespace "                       \
    "  AND t.workload_kind = $4::text AND t.workload_name = $5::text "                             \
    " JOIN attribution a ON a.session_uid = t.session_uid AND a.pod_uid = t.pod_uid "              \
    "  AND a.final AND a.step_count > 0 AND (a.gpu_uuid <> '' OR NOT EXISTS (SELECT 1 "            \
    "   FROM attribution o WHERE o.session_uid = a.session_uid AND o.pod_uid = a.pod_uid "         \
    "   AND o.gpu_uuid <> '')) "                                                                   \
    " LEFT JOIN usage u ON u.session_uid = a.session_uid AND u.pod_uid = a.pod_uid "               \
    "  AND u.gpu_uuid = a.gpu_uuid "                                                               \
    " WHERE s.uid = $3::text AND s.namespace = $1::text AND s.name = $2::text), "                  \
    "g AS MATERIALIZED (SELECT f.* FROM found f JOIN " LIKE_MOST                                   \
    " m ON f.chip IS NOT DISTINCT FROM m.chip AND f.gpu_model IS NOT DISTINCT FROM m.gpu_model), " \
    "n AS MATERIALIZED (SELECT nullif(count(*), 0)::float8 AS gpus FROM g), "                      \
    "i AS MATERIALIZED (SELECT i.kind, i.layer, i.phase, "                                         \
    "  sum(i.total_ns / 1e9::float8 / g.step_count) / min(n.gpus) AS seconds, "                    \
    "  sum(i.share) / min(n.gpus) AS share, CASE WHEN bool_and(i.busy_ns IS NOT NULL) "            \
    "   THEN sum(i.busy_ns / 1e9::float8 / g.step_count) / min(n.gpus) END AS busy "               \
    " FROM n CROSS JOIN g JOIN item i USING (session_uid, pod_uid, gpu_uuid) "                     \
    " WHERE i.kind NOT IN ('idle', 'job') GROUP BY i.kind, i.layer, i.phase), "                    \
    "k AS MATERIALIZED (SELECT layer, row_number() OVER (ORDER BY sum(seconds) DESC, "             \
    "  layer COLLATE \"C\") AS place FROM i WHERE kind = 'layer' GROUP BY layer), "
/* Of values of unlike kinds, which are never averaged, those of most GPUs. */
#define MEANS_OF_MOST(kinds, rows)                                                                 \
    "(SELECT json_object_agg(metric, mean) FROM (SELECT DISTINCT ON (metric) metric, mean "        \
    " FROM (SELECT metric, told, avg(mean) AS mean, count(*) AS n FROM (SELECT x.metric, x.mean, " \
    "concat_ws('/', " kinds ") AS told " rows                                                      \
    "   AND x.mean IS NOT NULL) x GROUP BY metric, told) x ORDER BY metric, n DESC, told) x) "
#define MEANS_OF_USAGES                                                                            \
    MEANS_OF_MOST("x.source", "FROM g JOIN usage_metric x USING (session_uid, pod_uid, gpu_uuid) " \
                              "WHERE true ")
#define MEANS_OF_ITEMS                                                                             \
    MEANS_OF_MOST("x.method, x.source, x.basis",                                                   \
                  "FROM g JOIN estimate x ON x.session_uid = g.session_uid "                       \
                  "AND x.pod_uid = g.pod_uid AND x.gpu_uuid = g.gpu_uuid AND x.kind = r.kind "     \
                  "AND x.layer = r.layer WHERE x.phase = r.phase ")
/* u: usages, and whether its shares are of the time that all are told of: of the time in which
 * kernels ran, where any is. What one GPU has cost the training is its pod's: it counts once. */
#define WORKLOAD_HEAD                                                                              \
    "u AS MATERIALIZED (SELECT x.*, x.busy = bool_or(x.busy) OVER () AS alike "                    \
    " FROM g JOIN usage x USING (session_uid, pod_uid, gpu_uuid)), "                               \
    "h AS MATERIALIZED (SELECT n.gpus, (SELECT count(*) FROM k) AS layers, "                       \
    "  t.step_ns / 1e9 AS step_seconds, t.idle, "                                                  \
    "  c.cost / nullif(c.took, 0) AS cost, (SELECT coalesce((spec->>'overheadBudgetPercent')"      \
    "   ::float8, 1) / 100 FROM session WHERE uid = $3::text) AS budget, "                         \
    "  (SELECT json_object_agg(name, share) FROM (SELECT x.name, "                                 \
    "    sum(x.share / t.gpus) AS share FROM u JOIN usage_share x "                                \
    "    USING (session_uid, pod_uid, gpu_uuid) WHERE u.alike AND x.kind = 'bound' "               \
    "    GROUP BY x.name) b) AS bounds, " MEANS_OF_USAGES " AS metrics "                           \
    " FROM n CROSS JOIN (SELECT nullif(count(*) FILTER (WHERE alike), 0)::float8 AS gpus, "        \
    "  avg(step_ns) AS step_ns, avg(idle) AS idle FROM u) t "                                      \
    " CROSS JOIN (SELECT sum(cost)::float8 AS cost, sum(took)::float8 AS took FROM (SELECT "       \
    "  max(cost_ns) AS cost, sum(step_ns + coalesce(counted_ns, 0)) AS took FROM g "               \
    "  GROUP BY pod_uid) p) c), "
static const char workload_sql[] = GPU_ITEMS WORKLOAD_HEAD
    "r AS (SELECT i.kind, CASE WHEN k.place >= $6::bigint THEN NULL ELSE i.layer END AS layer, "
    "  i.phase, sum(i.seconds) AS seconds, sum(i.share) AS share, "
    "  CASE WHEN bool_and(i.busy IS NOT NULL) THEN sum(i.busy) END AS busy, min(k.place) AS place "
    " FROM i LEFT JOIN k ON i.kind = 'layer' AND k.layer = i.layer GROUP BY 1, 2, 3) "
    "SELECT h.gpus AS \"^gpus\", h.layers AS \"^layers\", h.step_seconds AS \"^step_seconds\", "
    "h.idle AS \"^idle\", h.cost AS \"^cost\", h.budget AS \"^budget\", h.bounds AS \"^bounds\", "
    "h.metrics AS \"^metrics\", r.layer, "
    "CASE WHEN r.kind = 'layer' THEN r.phase ELSE r.kind END AS phase, r.seconds, r.share, "
    "r.busy, " MEANS_OF_ITEMS " AS metrics "
    "FROM h LEFT JOIN r ON true ORDER BY r.place NULLS LAST, r.kind, r.phase";

/* A row of layers has a dozen parts, a step thousands of intervals. */
enum { MOST_ITEMS = 1000, MOST_STEPS = 100, MOST_ROWS = 5000 };

const pp_query_text pp_query_texts[PP_QUERY_KINDS] = {
    [PP_QUERY_SESSIONS_OF] = {.sql = LIST("WHERE namespace = $1::text", "$2", "$3", "$4"),
                              .ns = true,
                              .keys = "it",
                              .most = MOST_ROWS},
    [PP_QUERY_SESSIONS] = {.sql = LIST("", "$1", "$2", "$3"), .keys = "it", .most = MOST_ROWS},
    [PP_QUERY_SESSION] = {.sql = session_sql, .ns = true, .session = true, .keys = ""},
    [PP_QUERY_LAYERS] = {.sql = layers_sql,
                         .parts = layers_parts,
                         .terms = layers_terms_sql,
                         .ns = true,
                         .session = true,
                         .known = true,
                         .keys = "ttttt",
                         .uid_is_first = true,
                         .most = MOST_ITEMS},
    [PP_QUERY_QUALITY] = {.sql = quality_sql,
                          .ns = true,
                          .session = true,
                          .known = true,
                          .keys = "tttit",
                          .uid_is_first = true,
                          .most = MOST_ROWS},
    [PP_QUERY_KERNELS] = {.sql = kernels_sql,
                          .ns = true,
                          .session = true,
                          .known = true,
                          .keys = "tittt",
                          .uid_is_first = true,
                          .most = MOST_ROWS},
    [PP_QUERY_WAITS] = {.sql = waits_sql,
                        .ns = true,
                        .session = true,
                        .known = true,
                        .keys = "titttti",
                        .uid_is_first = true,
                        .most = MOST_ROWS},
    [PP_QUERY_COPIES] = {.sql = copies_sql,
                         .ns = true,
                         .session = true,
                         .known = true,
                         .keys = "titttt",
                         .uid_is_first = true,
                         .most = MOST_ROWS},
    [PP_QUERY_RANKS] = {.sql = ranks_sql,
                        .ns = true,
                        .session = true,
                        .known = true,
                        .keys = "ttiti",
                        .uid_is_first = true,
                        .most = MOST_ROWS},
    [PP_QUERY_RANK_ITEMS] = {.sql = rank_items_sql,
                             .ns = true,
                             .session = true,
                             .known = true,
                             .keys = "ttititt",
                             .uid_is_first = true,
                             .most = MOST_ROWS},
    [PP_QUERY_TIMELINE] = {.sql = timeline_sql,
                           .parts = timeline_parts,
                           .ns = true,
                           .session = true,
                           .known = true,
                           .process = true,
                           .keys = "tiii",
                           .uid_is_first = true,
                           .most = MOST_STEPS},
    [PP_QUERY_PATTERNS] = {.sql = patterns_sql, .ns = true, .keys = "t", .most = MOST_ROWS},
    [PP_QUERY_PATTERN] = {.sql = pattern_sql, .ns = true, .session = true, .keys = ""},
    [PP_QUERY_WORKLOADS] = {.sql = workloads_sql, .known = true, .keys = "", .most = MOST_ROWS},
    [PP_QUERY_WORKLOAD] = {.sql = workload_sql,
                           .ns = true,
                           .session = true,
                           .workload = true,
                           .keys = "",
                           .most = MOST_ITEMS},
};
