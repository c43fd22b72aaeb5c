/* Sessions, targets, batches and raw samples into the store. */
#include "operator/store/store_internal.h"

#include <math.h>

static const char session_sql[] =
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at) "
    "VALUES ($1, $2, $3, $4::jsonb, $5, $6, to_timestamp($7::bigint / 1e9)) "
    "ON CONFLICT (uid) DO UPDATE SET spec = excluded.spec, method = excluded.method, "
    "phase = excluded.phase WHERE session.finished_at IS NULL";

void pp_store_add_session(pp_job *job, const char *sql, const pp_store_session *in)
{
    pp_statement *s = pp_job_add(job, sql);
    pp_sql_text(s, in->uid);
    pp_sql_text(s, in->ns);
    pp_sql_text(s, in->name);
    pp_sql_text(s, in->spec);
    pp_sql_text(s, in->method);
    pp_sql_text(s, in->phase);
    pp_sql_int8(s, in->created_ns);
}

int pp_store_put_session(pp_store *store, const pp_store_session *in, pp_store_done_fn done,
                         void *user, pp_error *err)
{
    if (pp_store_need(in->uid, "uid", err) < 0 || pp_store_need(in->ns, "namespace", err) < 0 ||
        pp_store_need(in->name, "name", err) < 0 || pp_store_need(in->spec, "spec", err) < 0 ||
        pp_store_need(in->method, "method", err) < 0 || pp_store_need(in->phase, "phase", err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return -1;
    call->done = done;
    pp_store_add_session(&call->job, session_sql, in);
    return pp_call_submit(store, PP_LANE_INGEST, call, err);
}

static const char target_sql[] =
    "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, container, node, host_name, "
    "ip, "
    "workload_kind, workload_name, cpu_request) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) "
    "ON CONFLICT (session_uid, pod_uid) DO UPDATE SET "
    "container = coalesce(excluded.container, target.container), "
    "node = coalesce(excluded.node, target.node), "
    "host_name = coalesce(excluded.host_name, target.host_name), "
    "ip = coalesce(excluded.ip, target.ip), "
    "workload_kind = excluded.workload_kind, workload_name = excluded.workload_name, "
    "cpu_request = coalesce(excluded.cpu_request, target.cpu_request)";

void pp_store_add_target(pp_job *job, const pp_store_target *in)
{
    pp_statement *s = pp_job_add(job, target_sql);
    pp_sql_text(s, in->session_uid);
    pp_sql_text(s, in->pod_uid);
    pp_sql_text(s, in->ns);
    pp_sql_text(s, in->pod_name);
    pp_sql_text(s, in->container);
    pp_sql_text(s, in->node);
    pp_sql_text(s, in->host_name);
    pp_sql_text(s, in->ip);
    pp_sql_text(s, in->workload_kind);
    pp_sql_text(s, in->workload_name);
    pp_sql_float8(s, in->cpu_request);
}

int pp_store_put_target(pp_store *store, const pp_store_target *in, pp_store_done_fn done,
                        void *user, pp_error *err)
{
    if (pp_store_need(in->session_uid, "session_uid", err) < 0 ||
        pp_store_need(in->pod_uid, "pod_uid", err) < 0 ||
        pp_store_need(in->ns, "namespace", err) < 0 ||
        pp_store_need(in->pod_name, "pod_name", err) < 0 ||
        pp_store_need(in->workload_kind, "workload_kind", err) < 0 ||
        pp_store_need(in->workload_name, "workload_name", err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return -1;
    call->done = done;
    pp_store_add_target(&call->job, in);
    return pp_call_submit(store, PP_LANE_INGEST, call, err);
}

/*
 * The kernels of a batch, $68 to $73, by what their rows have as key, each key once. What is
 * beyond so many rows of a pod, which may name kernels and layers without end, goes to one row of
 * its process. Rows are counted only where a key is new. They are written in the order of their
 * keys, so that two transactions never wait for each other.
 */
#define MOST_KERNELS "100000"
#define MOST_OF_A_SUM "9223372036854775807"
#define KERNELS                                                                                    \
    "told AS ("                                                                                    \
    " SELECT coalesce(l.name, '') AS layer, k.phase, n.name, sum(k.count) AS count, "              \
    "  sum(k.ns) AS ns "                                                                           \
    " FROM new, unnest($68::integer[], $69::text[], $70::integer[], $71::bigint[], "               \
    "   $72::bigint[]) AS k (layer, phase, name, count, ns) "                                      \
    "  JOIN unnest($73::text[]) WITH ORDINALITY AS n (name, place) ON n.place = k.name + 1 "       \
    "  LEFT JOIN unnest($30::integer[], $31::text[]) AS l (layer, name) ON l.layer = k.layer "     \
    " GROUP BY 1, 2, 3), "                                                                         \
    "placed AS ("                                                                                  \
    " SELECT n.layer, n.phase, n.name, n.count, n.ns, o.name IS NOT NULL "                         \
    "   OR (SELECT count(*) FROM kernel WHERE session_uid = $1 AND pod_uid = $2) "                 \
    "    + row_number() OVER (PARTITION BY o.name IS NULL ORDER BY n.layer COLLATE \"C\", "        \
    "     n.phase, n.name COLLATE \"C\") <= " MOST_KERNELS " AS apart "                            \
    " FROM told n LEFT JOIN kernel o ON o.session_uid = $1 AND o.pod_uid = $2 "                    \
    "  AND o.process = $5 AND o.layer = n.layer AND o.phase = n.phase AND o.name = n.name), "      \
    "kept AS ("                                                                                    \
    " SELECT CASE WHEN apart THEN layer ELSE '' END AS layer, "                                    \
    "  CASE WHEN apart THEN phase ELSE 'other' END AS phase, "                                     \
    "  CASE WHEN apart THEN name ELSE '' END AS name, count, ns FROM placed), "                    \
    "summed AS ("                                                                                  \
    " INSERT INTO kernel AS o (session_uid, pod_uid, process, layer, phase, name, count, ns) "     \
    " SELECT $1, $2, $5, layer, phase, name, least(sum(count), " MOST_OF_A_SUM ")::bigint, "       \
    "  least(sum(ns), " MOST_OF_A_SUM ")::bigint FROM kept "                                       \
    " GROUP BY layer, phase, name ORDER BY layer COLLATE \"C\", phase, name COLLATE \"C\" "        \
    " ON CONFLICT (session_uid, pod_uid, process, layer, phase, name) DO UPDATE SET "              \
    "  count = least(o.count::numeric + excluded.count, " MOST_OF_A_SUM ")::bigint, "              \
    "  ns = least(o.ns::numeric + excluded.ns, " MOST_OF_A_SUM ")::bigint) "

/* Where the host waited, $75 to $84: as kernels. */
#define MOST_WAITS "20000"
#define WAITS                                                                                      \
    "told_waits AS ("                                                                              \
    " SELECT coalesce(l.name, '') AS layer, w.phase, c.name AS call, f.name AS file, w.line, "     \
    "  sum(w.count) AS count, sum(w.steps) AS steps, sum(w.ns) AS ns "                             \
    " FROM new, unnest($75::integer[], $76::text[], $77::integer[], $78::integer[], "              \
    "   $79::integer[], $80::bigint[], $81::bigint[], $82::bigint[]) "                             \
    "   AS w (layer, phase, call, file, line, count, steps, ns) "                                  \
    "  JOIN unnest($83::text[]) WITH ORDINALITY AS c (name, place) ON c.place = w.call + 1 "       \
    "  JOIN unnest($84::text[]) WITH ORDINALITY AS f (name, place) ON f.place = w.file + 1 "       \
    "  LEFT JOIN unnest($30::integer[], $31::text[]) AS l (layer, name) ON l.layer = w.layer "     \
    " GROUP BY 1, 2, 3, 4, 5), "                                                                   \
    "placed_waits AS ("                                                                            \
    " SELECT n.*, o.call IS NOT NULL "                                                             \
    "   OR (SELECT count(*) FROM host_wait WHERE session_uid = $1 AND pod_uid = $2) "              \
    "    + row_number() OVER (PARTITION BY o.call IS NULL ORDER BY n.layer COLLATE \"C\", "        \
    "     n.phase, n.call COLLATE \"C\", n.file COLLATE \"C\", n.line) <= " MOST_WAITS             \
    " AS apart "                                                                                   \
    " FROM told_waits n LEFT JOIN host_wait o ON o.session_uid = $1 AND o.pod_uid = $2 "           \
    "  AND o.process = $5 AND o.layer = n.layer AND o.phase = n.phase AND o.call = n.call "        \
    "  AND o.file = n.file AND o.line = n.line), "                                                 \
    "kept_waits AS ("                                                                              \
    " SELECT CASE WHEN apart THEN layer ELSE '' END AS layer, "                                    \
    "  CASE WHEN apart THEN phase ELSE 'other' END AS phase, "                                     \
    "  CASE WHEN apart THEN call ELSE '' END AS call, "                                            \
    "  CASE WHEN apart THEN file ELSE '' END AS file, "                                            \
    "  CASE WHEN apart THEN line ELSE 0 END AS line, count, steps, ns FROM placed_waits), "        \
    "summed_waits AS ("                                                                            \
    " INSERT INTO host_wait AS o (session_uid, pod_uid, process, layer, phase, call, file, line, " \
    "  count, steps, ns) "                                                                         \
    " SELECT $1, $2, $5, layer, phase, call, file, line, "                                         \
    "  least(sum(count), " MOST_OF_A_SUM ")::bigint, "                                             \
    "  least(sum(steps), " MOST_OF_A_SUM ")::bigint, "                                             \
    "  least(sum(ns), " MOST_OF_A_SUM ")::bigint FROM kept_waits "                                 \
    " GROUP BY layer, phase, call, file, line ORDER BY layer COLLATE \"C\", phase, "               \
    "  call COLLATE \"C\", file COLLATE \"C\", line "                                              \
    " ON CONFLICT (session_uid, pod_uid, process, layer, phase, call, file, line) DO UPDATE SET "  \
    "  count = least(o.count::numeric + excluded.count, " MOST_OF_A_SUM ")::bigint, "              \
    "  steps = least(o.steps::numeric + excluded.steps, " MOST_OF_A_SUM ")::bigint, "              \
    "  ns = least(o.ns::numeric + excluded.ns, " MOST_OF_A_SUM ")::bigint) "

/* Copies and fills, $86 to $92: as kernels. */
#define MOST_COPIES "20000"
#define COPIES                                                                                     \
    "told_copies AS ("                                                                             \
    " SELECT coalesce(l.name, '') AS layer, w.phase, w.type, w.memory, "                           \
    "  sum(w.count) AS count, sum(w.bytes) AS bytes, sum(w.ns) AS ns "                             \
    " FROM new, unnest($86::integer[], $87::text[], $88::text[], $89::text[], "                    \
    "   $90::bigint[], $91::bigint[], $92::bigint[]) "                                             \
    "   AS w (layer, phase, type, memory, count, bytes, ns) "                                      \
    "  LEFT JOIN unnest($30::integer[], $31::text[]) AS l (layer, name) ON l.layer = w.layer "     \
    " GROUP BY 1, 2, 3, 4), "                                                                      \
    "placed_copies AS ("                                                                           \
    " SELECT n.*, o.type IS NOT NULL "                                                             \
    "   OR (SELECT count(*) FROM gpu_copy WHERE session_uid = $1 AND pod_uid = $2) "               \
    "    + row_number() OVER (PARTITION BY o.type IS NULL ORDER BY n.layer COLLATE \"C\", "        \
    "     n.phase, n.type, n.memory) <= " MOST_COPIES " AS apart "                                 \
    " FROM told_copies n LEFT JOIN gpu_copy o ON o.session_uid = $1 AND o.pod_uid = $2 "           \
    "  AND o.process = $5 AND o.layer = n.layer AND o.phase = n.phase AND o.type = n.type "        \
    "  AND o.memory = n.memory), "                                                                 \
    "kept_copies AS ("                                                                             \
    " SELECT CASE WHEN apart THEN layer ELSE '' END AS layer, "                                    \
    "  CASE WHEN apart THEN phase ELSE 'other' END AS phase, "                                     \
    "  type, memory, count, bytes, ns FROM placed_copies), "                                       \
    "summed_copies AS ("                                                                           \
    " INSERT INTO gpu_copy AS o (session_uid, pod_uid, process, layer, phase, type, memory, "      \
    "count, "                                                                                      \
    "  bytes, ns) "                                                                                \
    " SELECT $1, $2, $5, layer, phase, type, memory, "                                             \
    "  least(sum(count), " MOST_OF_A_SUM ")::bigint, "                                             \
    "  least(sum(bytes), " MOST_OF_A_SUM ")::bigint, "                                             \
    "  least(sum(ns), " MOST_OF_A_SUM ")::bigint FROM kept_copies "                                \
    " GROUP BY layer, phase, type, memory ORDER BY layer COLLATE \"C\", phase, type, memory "      \
    " ON CONFLICT (session_uid, pod_uid, process, layer, phase, type, memory) DO UPDATE SET "      \
    "  count = least(o.count::numeric + excluded.count, " MOST_OF_A_SUM ")::bigint, "              \
    "  bytes = least(o.bytes::numeric + excluded.bytes, " MOST_OF_A_SUM ")::bigint, "              \
    "  ns = least(o.ns::numeric + excluded.ns, " MOST_OF_A_SUM ")::bigint) "

/*
 * One statement, so that everything hangs on whether the activity row was new: seen again, a batch
 * changes nothing. $41.. are figures derived from the batch: see pp_store_add_batch.
 */
static const char batch_sql[] =
    "WITH new AS ("
    " INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, stretch_last, "
    "  start_ns, end_ns, events, dropped, cost_ns, step_number, step_start, step_duration, "
    "  step_epoch, step_batch, layer, phase, step, start, duration, grid_start, grid_cell, "
    "  grid_cells, grid_layer, grid_phase, grid_busy, grid_calls, busy, step_gap, grid_kernels, "
    "  dwell, background, clock_shift_ns, counted_start, counted_duration, counted_steps, "
    "  goes_on, memory_steps, memory_layer, memory_phase, memory_peak, memory_left) "
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, "
    "$19, "
    "  $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $47, $48, $49, $51, $52, "
    "  nullif($58::bigint, 0), $64, $65, $66, $67, nullif($96::bigint, 0), $97, $98, $99, $100) "
    " ON CONFLICT DO NOTHING RETURNING 1), "
    "named AS ("
    " INSERT INTO layer (session_uid, pod_uid, instance, process, layer, name, type, parameters, "
    "  forward_left_out, backward_left_out, whole) "
    " SELECT $1, $2, $3, $5, l.layer, l.name, l.type, l.parameters, nullif(l.forward, 0), "
    "  nullif(l.backward, 0), nullif(l.whole, 0) FROM new, "
    "  unnest($30::integer[], $31::text[], $32::text[], "
    "  $33::bigint[], $53::smallint[], $54::smallint[], $102::smallint[]) "
    "  AS l (layer, name, type, parameters, forward, backward, whole) "
    " ON CONFLICT DO NOTHING), "
    /* Of rows that were there before. Reasons come while a session runs, and few have any. */
    "left_out AS ("
    " UPDATE layer l SET "
    "  forward_left_out = greatest(l.forward_left_out, nullif(i.forward, 0)), "
    "  backward_left_out = greatest(l.backward_left_out, nullif(i.backward, 0)), "
    "  whole = greatest(l.whole, nullif(i.whole, 0)) "
    " FROM new, unnest($30::integer[], $53::smallint[], $54::smallint[], $102::smallint[]) "
    "  AS i (layer, forward, backward, whole) "
    " WHERE l.session_uid = $1 AND l.pod_uid = $2 AND l.instance = $3 AND l.process = $5 "
    "  AND l.layer = i.layer AND (i.forward > coalesce(l.forward_left_out, 0) "
    "   OR i.backward > coalesce(l.backward_left_out, 0) "
    "   OR i.whole > coalesce(l.whole, 0))), "
    "seen AS ("
    " INSERT INTO process AS p (session_uid, pod_uid, instance, process, rank, world_size, gpus, "
    "  python, torch, clock, model, events, steps, last_end_ns, open_stretch, kernels, isolated, "
    "  replays, paused_ns, replaying, chip, kernel_steps, wait_steps, copy_steps, model_digest, "
    "  batch, gpu_model) "
    " SELECT $1, $2, $3, $5, $34::integer, $35::integer, $36::text[], $37, $38, $39, $40, $10, "
    "$41, "
    "  $9, NOT $7, $50, $55, $56, $57, $51::bigint IS NOT NULL, "
    "  nullif($63::bigint[], '{}'), $74, $85, $93, $94, $95, $101 FROM new "
    " ON CONFLICT (session_uid, pod_uid, instance, process) DO UPDATE SET "
    "  rank = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.rank ELSE p.rank END, "
    "  world_size = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.world_size "
    "   ELSE p.world_size END, "
    "  gpus = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.gpus ELSE p.gpus END, "
    "  clock = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.clock "
    "   ELSE p.clock END, "
    "  model = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.model "
    "   ELSE p.model END, "
    "  model_digest = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.model_digest "
    "   ELSE p.model_digest END, "
    "  batch = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.batch "
    "   ELSE p.batch END, "
    "  open_stretch = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.open_stretch "
    "   ELSE p.open_stretch END, "
    "  replaying = CASE WHEN excluded.last_end_ns >= p.last_end_ns THEN excluded.replaying "
    "   ELSE p.replaying END, "
    "  replays = p.replays + excluded.replays, paused_ns = p.paused_ns + excluded.paused_ns, "
    "  isolated = greatest(p.isolated, excluded.isolated), "
    "  events = p.events + excluded.events, steps = p.steps + excluded.steps, "
    "  last_end_ns = greatest(p.last_end_ns, excluded.last_end_ns), "
    "  chip = coalesce(excluded.chip, p.chip), "
    "  gpu_model = coalesce(excluded.gpu_model, p.gpu_model), "
    "  kernel_steps = p.kernel_steps + excluded.kernel_steps, "
    "  wait_steps = p.wait_steps + excluded.wait_steps, "
    "  copy_steps = p.copy_steps + excluded.copy_steps, "
    "  kernels = greatest(p.kernels, excluded.kernels)), "
    "advanced AS ("
    " UPDATE target t SET events = events + $10, steps = steps + $41, dropped = dropped + $11, "
    "  cost_ns = cost_ns + $12, batches = batches + 1, "
    "  last_batch_at = coalesce(to_timestamp($59::bigint / 1e9), clock_timestamp()), "
    "  began_ns = least(began_ns, $60), clock_shift_ns = $58, "
    "  clock_ahead_ns = coalesce($61, clock_ahead_ns), "
    "  clock_bound_ns = coalesce($62, clock_bound_ns), "
    "  host_name = coalesce(nullif($42, ''), host_name), "
    "  epoch = CASE WHEN $44 >= coalesce(last_ns, $44) THEN $45::bigint ELSE epoch END, "
    "  batch = CASE WHEN $44 >= coalesce(last_ns, $44) THEN $46::bigint ELSE batch END, "
    "  first_ns = least(first_ns, $43), last_ns = greatest(last_ns, $44), "
    "  observed_first_ns = least(observed_first_ns, $8), "
    "  observed_last_ns = greatest(observed_last_ns, $9) "
    " FROM new WHERE t.session_uid = $1 AND t.pod_uid = $2), " KERNELS ", " WAITS ", " COPIES
    "SELECT count(*) FROM new";

/* $14.. are the layers, $18.. how it was sampled, $27.. how it closes. Told again, or late, it
 * changes nothing. */
static const char pm_sql[] =
    "WITH new AS ("
    " INSERT INTO fine AS f (session_uid, pod_uid, instance, seq, process, gpu_uuid, kernel_count, "
    "  sources, layer, phase, kernels, mean, stderr, chip, period_ns, times, failed_times, "
    "  sampled_ns, samples, lag_ns, lag_stderr_ns, sampler_cpu_ns, held, difference, noise, "
    "  explained, miss, items, items_z, idle, idle_stderr, doubt) "
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $18, $19, $20, $21, $22, "
    "  $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36) "
    " ON CONFLICT (session_uid, pod_uid, instance, process) DO UPDATE SET seq = excluded.seq, "
    "  gpu_uuid = excluded.gpu_uuid, kernel_count = excluded.kernel_count, "
    "  sources = excluded.sources, layer = excluded.layer, phase = excluded.phase, "
    "  kernels = excluded.kernels, mean = excluded.mean, stderr = excluded.stderr, "
    "  chip = excluded.chip, period_ns = excluded.period_ns, times = excluded.times, "
    "  failed_times = excluded.failed_times, sampled_ns = excluded.sampled_ns, "
    "  samples = excluded.samples, lag_ns = excluded.lag_ns, "
    "  lag_stderr_ns = excluded.lag_stderr_ns, sampler_cpu_ns = excluded.sampler_cpu_ns, "
    "  held = excluded.held, difference = excluded.difference, noise = excluded.noise, "
    "  explained = excluded.explained, miss = excluded.miss, items = excluded.items, "
    "  items_z = excluded.items_z, idle = excluded.idle, idle_stderr = excluded.idle_stderr, "
    "  doubt = excluded.doubt "
    " WHERE excluded.seq > f.seq RETURNING 1), "
    "named AS ("
    " INSERT INTO layer (session_uid, pod_uid, instance, process, layer, name, type, parameters) "
    " SELECT $1, $2, $3, $5, l.* FROM new, unnest($14::integer[], $15::text[], $16::text[], "
    "  $17::bigint[]) AS l "
    " ON CONFLICT DO NOTHING) "
    "SELECT count(*) FROM new";

/* The process may be new here. Of several reasons the greatest, in whatever order they come. */
static const char pm_why_sql[] =
    "WITH new AS ("
    " INSERT INTO process AS p (session_uid, pod_uid, instance, process, rank, world_size, gpus, "
    "  python, torch, clock, model, fine) "
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) "
    " ON CONFLICT (session_uid, pod_uid, instance, process) DO UPDATE SET "
    "  fine = greatest(p.fine, excluded.fine) "
    " WHERE p.fine IS DISTINCT FROM greatest(p.fine, excluded.fine) RETURNING 1) "
    "SELECT count(*) FROM new";

typedef struct batch_call {
    pp_call call;
    pp_store_batch_fn done;
    bool inserted;
} batch_call;

#define GETTER(name, type, field)                                                                  \
    static int64_t name(const void *p)                                                             \
    {                                                                                              \
        return (int64_t)((const type *)p)->field;                                                  \
    }

#define FLOAT_GETTER(name, type, field)                                                            \
    static double name(const void *p)                                                              \
    {                                                                                              \
        return ((const type *)p)->field;                                                           \
    }

GETTER(step_number, pp_wire_step, number)
GETTER(step_start, pp_wire_step, start)
GETTER(step_duration, pp_wire_step, duration)
GETTER(step_epoch, pp_wire_step, epoch)
GETTER(step_batch, pp_wire_step, batch)
GETTER(step_gap, pp_wire_step, gap)
GETTER(run_start, pp_wire_run, start)
GETTER(run_duration, pp_wire_run, duration)
GETTER(run_steps, pp_wire_run, steps)
GETTER(interval_layer, pp_wire_interval, layer)
GETTER(interval_phase, pp_wire_interval, phase)
GETTER(interval_step, pp_wire_interval, step)
GETTER(interval_start, pp_wire_interval, start)
GETTER(interval_duration, pp_wire_interval, duration)
GETTER(interval_kernels, pp_wire_interval, kernels)
GETTER(interval_goes_on, pp_wire_interval, goes_on)
GETTER(cell_number, pp_wire_cell, cell)
GETTER(cell_layer, pp_wire_cell, layer)
GETTER(cell_phase, pp_wire_cell, phase)
GETTER(cell_busy, pp_wire_cell, busy)
GETTER(cell_calls, pp_wire_cell, calls)
GETTER(cell_kernels, pp_wire_cell, kernels)
GETTER(kernel_layer, pp_wire_kernel, layer)
GETTER(kernel_name, pp_wire_kernel, name)
GETTER(kernel_count, pp_wire_kernel, count)
GETTER(kernel_duration, pp_wire_kernel, duration)
GETTER(pm_layer, pp_wire_pm_row, layer)
GETTER(pm_phase, pp_wire_pm_row, phase)
GETTER(wait_layer, pp_wire_wait, layer)
GETTER(wait_call, pp_wire_wait, call)
GETTER(wait_file, pp_wire_wait, file)
GETTER(wait_line, pp_wire_wait, line)
GETTER(wait_count, pp_wire_wait, count)
GETTER(wait_steps, pp_wire_wait, steps)
GETTER(wait_duration, pp_wire_wait, duration)
GETTER(copy_layer, pp_wire_copy, layer)
GETTER(copy_count, pp_wire_copy, count)
GETTER(copy_bytes, pp_wire_copy, bytes)
GETTER(copy_duration, pp_wire_copy, duration)
GETTER(memory_layer, pp_wire_memory_row, layer)
GETTER(memory_phase, pp_wire_memory_row, phase)
GETTER(memory_peak, pp_wire_memory_row, peak)
GETTER(memory_left, pp_wire_memory_row, left)
GETTER(pm_kernels, pp_wire_pm_row, kernels)
GETTER(layer_id, pp_wire_layer, id)
GETTER(layer_parameters, pp_wire_layer, parameters)
GETTER(layer_forward_skip, pp_wire_layer, forward_skip)
GETTER(layer_backward_skip, pp_wire_layer, backward_skip)
GETTER(layer_whole, pp_wire_layer, whole)

static const char *layer_name(const void *p)
{
    return ((const pp_wire_layer *)p)->name;
}

static const char *layer_type(const void *p)
{
    const char *type = ((const pp_wire_layer *)p)->type;
    return type ? type : "";
}

static const char *wait_phase(const void *p)
{
    return pp_wire_phase_name(((const pp_wire_wait *)p)->phase);
}

static const char *copy_phase(const void *p)
{
    return pp_wire_phase_name(((const pp_wire_copy *)p)->phase);
}

static const char *copy_type(const void *p)
{
    return pp_wire_copy_type_name(((const pp_wire_copy *)p)->type);
}

static const char *copy_memory(const void *p)
{
    return pp_wire_copy_memory_name(((const pp_wire_copy *)p)->memory);
}

static const char *kernel_phase(const void *p)
{
    return pp_wire_phase_name(((const pp_wire_kernel *)p)->phase);
}

int64_t pp_store_count_events(const pp_wire_batch *b)
{
    int64_t calls = 0;
    if (b->capture.dwell)
        return 0;
    for (size_t i = 0; i < b->interval_count && b->grid.cell == 0; i++)
        calls += !b->intervals[i].goes_on;
    for (size_t i = 0; i < b->grid.count; i++)
        calls += b->grid.cells[i].calls;
    return calls;
}

/* Of a dwell: its layer's calls. */
static int64_t count_replays(const pp_wire_batch *b)
{
    int64_t calls = 0;
    if (!b->capture.dwell || b->capture.background)
        return 0;
    for (size_t i = 0; i < b->interval_count && b->grid.cell == 0; i++)
        calls += pp_wire_phase_has_layer(b->intervals[i].phase);
    for (size_t i = 0; i < b->grid.count; i++)
        calls += pp_wire_phase_has_layer(b->grid.cells[i].phase) ? b->grid.cells[i].calls : 0;
    return calls;
}

/* A dwell's are none of the training's. */
static size_t count_steps(const pp_wire_batch *b)
{
    return b->capture.dwell ? 0 : b->step_count;
}

/* $13 to $22 */
static void add_steps_and_intervals(pp_statement *s, const pp_wire_batch *b)
{
    const size_t n = count_steps(b);
    const size_t step = sizeof(*b->steps);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->steps, n, step, step_number);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->steps, n, step, step_start);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->steps, n, step, step_duration);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->steps, n, step, step_epoch);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->steps, n, step, step_batch);
    const size_t count = b->grid.cell ? 0 : b->interval_count;
    const size_t interval = sizeof(*b->intervals);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, b->intervals, count, interval, interval_layer);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, b->intervals, count, interval, interval_phase);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->intervals, count, interval, interval_step);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->intervals, count, interval, interval_start);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->intervals, count, interval, interval_duration);
}

/* $23 to $29 */
static void add_grid(pp_statement *s, const pp_wire_grid *g)
{
    static const pp_sql_type none[] = {PP_SQL_INT8,       PP_SQL_INT8,       PP_SQL_INT8_ARRAY,
                                       PP_SQL_INT4_ARRAY, PP_SQL_INT2_ARRAY, PP_SQL_INT8_ARRAY,
                                       PP_SQL_INT8_ARRAY};
    if (g->cell == 0) {
        for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
            pp_sql_null(s, none[i]);
        return;
    }
    const size_t size = sizeof(*g->cells);
    pp_sql_int8(s, g->start);
    pp_sql_int8(s, g->cell);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, g->cells, g->count, size, cell_number);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, g->cells, g->count, size, cell_layer);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, g->cells, g->count, size, cell_phase);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, g->cells, g->count, size, cell_busy);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, g->cells, g->count, size, cell_calls);
}

static void add_layers(pp_statement *s, const pp_wire_batch *b)
{
    const size_t size = sizeof(*b->layers);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, b->layers, b->layer_count, size, layer_id);
    pp_sql_texts(s, b->layers, b->layer_count, size, layer_name);
    pp_sql_texts(s, b->layers, b->layer_count, size, layer_type);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->layers, b->layer_count, size, layer_parameters);
}

/* $30 to $40 */
static void add_process(pp_statement *s, const pp_wire_process *p)
{
    pp_sql_int4(s, p->rank);
    pp_sql_int4(s, p->world_size);
    pp_sql_strings(s, &p->gpus);
    pp_sql_text(s, p->python);
    pp_sql_text(s, p->torch);
    pp_sql_text(s, p->clock ? p->clock : "host");
    pp_sql_text(s, p->model);
}

/* $41 to $46: steps, host name; first start, last end, epoch and batch of the steps */
static void add_progress(pp_statement *s, const pp_wire_batch *b)
{
    const size_t n = count_steps(b);
    pp_sql_int8(s, (int64_t)n);
    pp_sql_text(s, b->process.hostname ? b->process.hostname : "");
    int64_t first = INT64_MAX;
    const pp_wire_step *last = NULL;
    for (size_t i = 0; i < n; i++) {
        const pp_wire_step *step = &b->steps[i];
        first = step->start < first ? step->start : first;
        if (!last || step->start + step->duration >= last->start + last->duration)
            last = step;
    }
    if (!last) {
        for (int i = 0; i < 4; i++)
            pp_sql_null(s, PP_SQL_INT8);
        return;
    }
    pp_sql_int8(s, first);
    pp_sql_int8(s, last->start + last->duration);
    pp_sql_int8(s, last->epoch);
    pp_sql_int8(s, last->batch);
}

/* The array, or NULL where all of it is `none`. */
static void add_unless(int64_t none, pp_statement *s, const void *items, size_t n, size_t size,
                       int64_t (*get)(const void *item))
{
    size_t i = 0;
    while (i < n && get((const char *)items + i * size) == none)
        i++;
    if (i == n)
        pp_sql_null(s, PP_SQL_INT8_ARRAY);
    else
        pp_sql_ints(s, PP_SQL_INT8_ARRAY, items, n, size, get);
}

/* $47 to $50 */
static void add_busy(pp_statement *s, const pp_wire_batch *b)
{
    const size_t intervals = b->grid.cell ? 0 : b->interval_count;
    const size_t cells = b->grid.cell ? b->grid.count : 0;
    add_unless(-1, s, b->intervals, intervals, sizeof(*b->intervals), interval_kernels);
    add_unless(-1, s, b->steps, count_steps(b), sizeof(*b->steps), step_gap);
    add_unless(-1, s, b->grid.cells, cells, sizeof(*b->grid.cells), cell_kernels);
    pp_sql_text(s, b->process.kernels ? b->process.kernels : "");
}

/* $51 to $57 */
static void add_replays(pp_statement *s, const pp_wire_batch *b)
{
    const size_t size = sizeof(*b->layers);
    if (b->capture.dwell) {
        pp_sql_int8(s, b->capture.dwell);
        pp_sql_bool(s, b->capture.background);
    } else {
        pp_sql_null(s, PP_SQL_INT8);
        pp_sql_null(s, PP_SQL_BOOL);
    }
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, b->layers, b->layer_count, size, layer_forward_skip);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, b->layers, b->layer_count, size, layer_backward_skip);
    pp_sql_text(s, b->process.isolated ? b->process.isolated : "");
    pp_sql_int8(s, count_replays(b));
    pp_sql_int8(s, b->cost.paused);
}

static void add_int_or_null(pp_statement *s, bool known, int64_t value)
{
    if (known)
        pp_sql_int8(s, value);
    else
        pp_sql_null(s, PP_SQL_INT8);
}

/* $58 to $62 */
static void add_clock(pp_statement *s, const pp_wire_batch *b, const pp_store_clock *c)
{
    const bool stepped = count_steps(b) > 0;
    int64_t first = stepped ? b->steps[0].start : 0;
    for (size_t i = 1; i < count_steps(b); i++)
        first = b->steps[i].start < first ? b->steps[i].start : first;
    const pp_store_clock none = {.began_ns = first};
    const pp_store_clock *clock = c ? c : &none;
    pp_sql_int8(s, clock->shift_ns);
    add_int_or_null(s, clock->now_ns != 0, clock->now_ns);
    add_int_or_null(s, stepped && clock->began_ns != 0, clock->began_ns);
    add_int_or_null(s, clock->known, clock->ahead_ns);
    add_int_or_null(s, clock->known, clock->bound_ns);
}

static int64_t number_of(const void *number)
{
    return *(const int64_t *)number;
}

/* $63, in the order of load.c */
static void add_chip(pp_statement *s, const pp_chip *c)
{
    const int64_t numbers[PP_STORE_CHIP] = {c->capability, c->multiprocessors, c->sm_khz,
                                            c->memory_khz, c->memory_bits};
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, numbers, c->capability ? PP_STORE_CHIP : 0, sizeof *numbers,
                number_of);
}

/* $64 to $66; NULL: none */
static void add_runs(pp_statement *s, const pp_wire_batch *b)
{
    int64_t (*const get[])(const void *run) = {run_start, run_duration, run_steps};
    for (size_t i = 0; i < sizeof get / sizeof *get; i++) {
        if (b->run_count)
            pp_sql_ints(s, PP_SQL_INT8_ARRAY, b->runs, b->run_count, sizeof *b->runs, get[i]);
        else
            pp_sql_null(s, PP_SQL_INT8_ARRAY);
    }
}

/* $68 to $74; a dwell's are none of the training's. */
static void add_kernels(pp_statement *s, const pp_wire_batch *b)
{
    static const pp_strings no_names = {0};
    const pp_wire_kernel *rows = b->kernels.rows;
    const size_t n = b->capture.dwell ? 0 : b->kernels.count;
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, kernel_layer);
    pp_sql_texts(s, rows, n, sizeof *rows, kernel_phase);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, kernel_name);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, kernel_count);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, kernel_duration);
    pp_sql_strings(s, n ? &b->kernels.names : &no_names);
    pp_sql_int8(s, n ? b->kernels.steps : 0);
}

/* $75 to $85; as kernels. */
static void add_waits(pp_statement *s, const pp_wire_batch *b)
{
    static const pp_strings no_names = {0};
    const pp_wire_wait *rows = b->waits.rows;
    const bool dwell = b->capture.dwell != 0;
    const size_t n = dwell ? 0 : b->waits.count;
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, wait_layer);
    pp_sql_texts(s, rows, n, sizeof *rows, wait_phase);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, wait_call);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, wait_file);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, wait_line);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, wait_count);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, wait_steps);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, wait_duration);
    pp_sql_strings(s, n ? &b->waits.calls : &no_names);
    pp_sql_strings(s, n ? &b->waits.files : &no_names);
    pp_sql_int8(s, dwell ? 0 : b->waits.steps);
}

/* $86 to $93; as kernels. */
static void add_copies(pp_statement *s, const pp_wire_batch *b)
{
    const pp_wire_copy *rows = b->copies.rows;
    const bool dwell = b->capture.dwell != 0;
    const size_t n = dwell ? 0 : b->copies.count;
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, rows, n, sizeof *rows, copy_layer);
    pp_sql_texts(s, rows, n, sizeof *rows, copy_phase);
    pp_sql_texts(s, rows, n, sizeof *rows, copy_type);
    pp_sql_texts(s, rows, n, sizeof *rows, copy_memory);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, copy_count);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, copy_bytes);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, sizeof *rows, copy_duration);
    pp_sql_int8(s, dwell ? 0 : b->copies.steps);
}

/* $94 and $95 */
static void add_model(pp_statement *s, const pp_wire_process *p)
{
    pp_sql_text(s, p->digest ? p->digest : "");
    pp_sql_text(s, p->batch ? p->batch : "");
}

/* $96 to $100; NULL: none */
static void add_memory(pp_statement *s, const pp_wire_batch *b)
{
    static const struct {
        pp_sql_type type;
        int64_t (*get)(const void *row);
    } columns[] = {{PP_SQL_INT4_ARRAY, memory_layer},
                   {PP_SQL_INT2_ARRAY, memory_phase},
                   {PP_SQL_INT8_ARRAY, memory_peak},
                   {PP_SQL_INT8_ARRAY, memory_left}};
    const pp_wire_memory_row *rows = b->memory.rows;
    const size_t n = b->capture.dwell ? 0 : b->memory.count;
    pp_sql_int8(s, b->capture.dwell ? 0 : b->memory.steps);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (n)
            pp_sql_ints(s, columns[i].type, rows, n, sizeof *rows, columns[i].get);
        else
            pp_sql_null(s, columns[i].type);
    }
}

/* One of the values that all rows have beside each other. */
typedef struct pm_value {
    int64_t mean, error;
} pm_value;

GETTER(pm_mean, pm_value, mean)
GETTER(pm_error, pm_value, error)

static void add_pm_values(pp_job *job, pp_statement *s, const pp_wire_pm *f)
{
    const size_t each = f->sources.count;
    const size_t n = f->count * each;
    pm_value *values = calloc(n + 1, sizeof(*values));
    if (!values) {
        job->failed = true;
        pp_error_nomem(&job->error);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const pp_wire_pm_row *row = &f->rows[i / each];
        values[i] = (pm_value){row->mean[i % each], row->error[i % each]};
    }
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, values, n, sizeof(*values), pm_mean);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, values, n, sizeof(*values), pm_error);
    free(values);
}

/* $18 to $26 */
static void add_sampling(pp_statement *s, const pp_wire_pm_sampling *from)
{
    pp_sql_text(s, from->chip);
    if (from->period == 0) {
        for (int i = 0; i < 8; i++)
            pp_sql_null(s, PP_SQL_INT8);
        return;
    }
    pp_sql_int8(s, from->period);
    pp_sql_int8(s, from->times);
    pp_sql_int8(s, from->failed);
    pp_sql_int8(s, from->sampled);
    pp_sql_int8(s, from->samples);
    pp_sql_int8(s, from->lag);
    pp_sql_int8(s, from->lag_error);
    pp_sql_int8(s, from->sampler_cpu);
}

/* How right a metric's values are, as the table has it: shares of 1, NaN where not known. */
typedef struct pm_quality {
    double held, difference, noise, explained, miss, items, items_z, gap, gap_error;
    int64_t doubt;
} pm_quality;

FLOAT_GETTER(quality_held, pm_quality, held)
FLOAT_GETTER(quality_difference, pm_quality, difference)
FLOAT_GETTER(quality_noise, pm_quality, noise)
FLOAT_GETTER(quality_explained, pm_quality, explained)
FLOAT_GETTER(quality_miss, pm_quality, miss)
FLOAT_GETTER(quality_items, pm_quality, items)
FLOAT_GETTER(quality_items_z, pm_quality, items_z)
FLOAT_GETTER(quality_gap, pm_quality, gap)
FLOAT_GETTER(quality_gap_error, pm_quality, gap_error)

static int64_t quality_doubt(const void *p)
{
    return ((const pm_quality *)p)->doubt;
}

static double share_of(int64_t millionths)
{
    return millionths < 0 ? (double)NAN : (double)millionths / 1e6;
}

static void take_closure(pm_quality *to, const pp_wire_pm_closure *c)
{
    to->held = (double)c->held / 1e6;
    to->difference = (double)c->difference / 1e6;
    to->noise = share_of(c->noise);
}

static void take_quality(pm_quality *to, const pp_wire_pm_quality *q)
{
    to->explained = share_of(q->explained);
    to->miss = share_of(q->miss);
    to->items = q->items < 0 ? (double)NAN : (double)q->items;
    to->items_z = share_of(q->items_z);
    to->gap = share_of(q->gap);
    to->gap_error = share_of(q->gap_error);
    to->doubt = q->doubt > 0 ? q->doubt : 0;
}

/* $27 to $36 */
static void add_quality(pp_statement *s, const pp_wire_pm *f)
{
    static double (*const getters[])(const void *) = {
        quality_held,  quality_difference, quality_noise, quality_explained, quality_miss,
        quality_items, quality_items_z,    quality_gap,   quality_gap_error};
    enum { GETTERS = sizeof getters / sizeof *getters };
    const double none = (double)NAN;
    pm_quality all[PP_WIRE_PM_METRICS];
    if (f->closure_count == 0 && f->quality_count == 0) {
        for (size_t i = 0; i < GETTERS; i++)
            pp_sql_null(s, PP_SQL_FLOAT8_ARRAY);
        pp_sql_null(s, PP_SQL_INT2_ARRAY);
        return;
    }
    for (int m = 0; m < PP_WIRE_PM_METRICS; m++)
        all[m] = (pm_quality){none, none, none, none, none, none, none, none, none, 0};
    for (size_t i = 0; i < f->closure_count; i++)
        take_closure(&all[f->closures[i].metric], &f->closures[i]);
    for (size_t i = 0; i < f->quality_count; i++)
        take_quality(&all[f->qualities[i].metric], &f->qualities[i]);
    for (size_t i = 0; i < GETTERS; i++)
        pp_sql_floats(s, all, f->sources.count, sizeof(*all), getters[i]);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, all, f->sources.count, sizeof(*all), quality_doubt);
}

static void add_pm(pp_job *job, const char *session_uid, const char *pod_uid,
                   const pp_wire_batch *b)
{
    const pp_wire_pm *f = &b->pm;
    const size_t size = sizeof(*f->rows);
    int64_t kernels = 0;
    for (size_t i = 0; i < f->count; i++)
        kernels += f->rows[i].kernels;
    pp_statement *s = pp_job_add(job, pm_sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    pp_sql_text(s, b->instance);
    pp_sql_int8(s, b->seq);
    pp_sql_int4(s, b->process.id);
    pp_sql_text(s, f->gpu);
    pp_sql_int8(s, kernels);
    pp_sql_strings(s, &f->sources);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, f->rows, f->count, size, pm_layer);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, f->rows, f->count, size, pm_phase);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, f->rows, f->count, size, pm_kernels);
    add_pm_values(job, s, f);
    add_layers(s, b);
    add_sampling(s, &f->sampling);
    add_quality(s, f);
}

static void add_pm_why(pp_job *job, const char *session_uid, const char *pod_uid,
                       const pp_wire_batch *b)
{
    pp_statement *s = pp_job_add(job, pm_why_sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    pp_sql_text(s, b->instance);
    pp_sql_int4(s, b->process.id);
    add_process(s, &b->process);
    pp_sql_text(s, b->pm.why);
}

void pp_store_add_batch(pp_job *job, const char *session_uid, const char *pod_uid,
                        const pp_wire_batch *b, const pp_store_clock *clock)
{
    if (b->pm.gpu)
        add_pm(job, session_uid, pod_uid, b);
    if (b->pm.why)
        add_pm_why(job, session_uid, pod_uid, b);
    if (pp_wire_is_pm_only(b))
        return;
    pp_statement *s = pp_job_add(job, batch_sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    pp_sql_text(s, b->instance);
    pp_sql_int8(s, b->seq);
    pp_sql_int4(s, b->process.id);
    pp_sql_int8(s, b->capture.id);
    pp_sql_bool(s, b->capture.last);
    pp_sql_int8(s, b->capture.start);
    pp_sql_int8(s, b->capture.end);
    pp_sql_int8(s, pp_store_count_events(b));
    pp_sql_int8(s, b->dropped + b->left_out.lost);
    pp_sql_int8(s, b->cost.nanoseconds);
    add_steps_and_intervals(s, b);
    add_grid(s, &b->grid);
    add_layers(s, b);
    add_process(s, &b->process);
    add_progress(s, b);
    add_busy(s, b);
    add_replays(s, b);
    add_clock(s, b, clock);
    add_chip(s, &b->process.chip);
    add_runs(s, b);
    add_unless(0, s, b->intervals, b->grid.cell ? 0 : b->interval_count, sizeof(*b->intervals),
               interval_goes_on); /* $67 */
    add_kernels(s, b);
    add_waits(s, b);
    add_copies(s, b);
    add_model(s, &b->process);
    add_memory(s, b);
    pp_sql_text(s, b->process.gpu_model && *b->process.gpu_model ? b->process.gpu_model
                                                                 : NULL); /* $101 */
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, b->layers, b->layer_count, sizeof *b->layers,
                layer_whole); /* $102 */
}

static int batch_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    (void)err;
    bool *inserted = &((batch_call *)job)->inserted;
    *inserted = (index > 0 && *inserted) || pp_row_int(r, row, 0, 0) > 0;
    return 0;
}

static void batch_ended(pp_job *job, const pp_error *error)
{
    const batch_call *call = (const batch_call *)job;
    if (call->done)
        call->done(call->call.user, !error && call->inserted, error);
}

int pp_store_put_batch(pp_store *store, const char *session_uid, const char *pod_uid,
                       const pp_wire_batch *batch, const pp_store_clock *clock,
                       pp_store_batch_fn done, void *user, pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0 || pp_store_need(pod_uid, "pod", err) < 0 ||
        pp_store_need(batch->instance, "instance", err) < 0)
        return -1;
    batch_call *call = pp_call_new(sizeof(*call), batch_ended, user, err);
    if (!call)
        return -1;
    call->done = done;
    call->call.job.row = batch_row;
    pp_store_add_batch(&call->call.job, session_uid, pod_uid, batch, clock);
    return pp_call_submit(store, PP_LANE_INGEST, call, err);
}

static const char prometheus_clock_sql[] =
    "UPDATE session SET prometheus_shift_ns = $2, prometheus_ahead_ns = $3, "
    "prometheus_bound_ns = $4 WHERE uid = $1";

int pp_store_put_prometheus_clock(pp_store *store, const char *session_uid, int64_t shift_ns,
                                  int64_t ahead_ns, int64_t bound_ns, pp_store_done_fn done,
                                  void *user, pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return -1;
    call->done = done;
    pp_statement *s = pp_job_add(&call->job, prometheus_clock_sql);
    pp_sql_text(s, session_uid);
    pp_sql_int8(s, shift_ns);
    pp_sql_int8(s, ahead_ns);
    pp_sql_int8(s, bound_ns);
    return pp_call_submit(store, PP_LANE_BULK, call, err); /* before the loads that need it */
}

enum { MAX_SAMPLES = 100000 };
#define DAY_NS INT64_C(86400000000000)

static const char partitions_sql[] = "SELECT metric_sample_partitions($1, $2)";
static const char samples_sql[] = "SELECT metric_sample_put($1, $2, $3, $4, $5, $6, $7)";

GETTER(sample_gpu, pp_activity_sample, gpu)
GETTER(sample_metric, pp_activity_sample, metric)
GETTER(sample_stamp, pp_activity_sample, stamp_ns)

static double sample_value(const void *p)
{
    return ((const pp_activity_sample *)p)->value;
}

int pp_store_check_samples(const pp_strings *gpus, const pp_activity_sample *samples, size_t n,
                           size_t most, int64_t *ret_first, int64_t *ret_last, pp_error *err)
{
    if (n == 0 || n > most)
        return pp_error_field(err, "samples", "must be 1 to %zu", most);
    *ret_first = INT64_MAX;
    *ret_last = 0;
    for (size_t i = 0; i < n; i++) {
        const pp_activity_sample *s = &samples[i];
        if (s->gpu >= gpus->count || s->metric >= PP_METRIC_COUNT || !isfinite(s->value) ||
            s->stamp_ns < 0)
            return pp_error_field(err, "samples", "sample %zu is none", i);
        *ret_first = s->stamp_ns < *ret_first ? s->stamp_ns : *ret_first;
        *ret_last = s->stamp_ns > *ret_last ? s->stamp_ns : *ret_last;
    }
    if (*ret_last / DAY_NS - *ret_first / DAY_NS > 400)
        return pp_error_field(err, "samples", "must lie within 400 days");
    return 0;
}

static void add_metric_names(pp_statement *s)
{
    char *names[PP_METRIC_COUNT];
    for (int i = 0; i < PP_METRIC_COUNT; i++)
        names[i] = (char *)(uintptr_t)pp_metric_get((pp_metric)i)->column;
    pp_sql_strings(s, &(pp_strings){.items = names, .count = PP_METRIC_COUNT});
}

void pp_store_add_samples(pp_job *job, const pp_strings *gpus, const pp_activity_sample *samples,
                          size_t n, const char *source, int64_t first, int64_t last)
{
    pp_statement *s = pp_job_add(job, partitions_sql);
    pp_sql_int8(s, first);
    pp_sql_int8(s, last);
    s = pp_job_add(job, samples_sql);
    pp_sql_strings(s, gpus);
    add_metric_names(s);
    const size_t size = sizeof(*samples);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, samples, n, size, sample_gpu);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, samples, n, size, sample_metric);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, samples, n, size, sample_stamp);
    pp_sql_floats(s, samples, n, size, sample_value);
    pp_sql_text(s, source);
}

int pp_store_put_samples(pp_store *store, const pp_strings *gpus, const pp_activity_sample *samples,
                         size_t n, pp_store_done_fn done, void *user, pp_error *err)
{
    int64_t first = 0;
    int64_t last = 0;
    if (pp_store_check_samples(gpus, samples, n, MAX_SAMPLES, &first, &last, err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return -1;
    call->done = done;
    pp_store_add_samples(&call->job, gpus, samples, n, "prometheus", first, last);
    return pp_call_submit(store, PP_LANE_BULK, call, err);
}
