-- The metrics by name, as the program that migrates knows them: it fills this table from its own whenever it connects, and
-- makes the columns of `sample` that are missing (metric_columns). A metric that is added later needs no migration.

CREATE TABLE metric (
    name           text PRIMARY KEY,          -- as in estimate.metric; a column of sample
    spec_name      text NOT NULL,             -- as in spec.metrics
    unit           text NOT NULL,
    peak_unit      text,                      -- of what a share of it is of, per second; NULL: of nothing known
    per_step       text,                      -- unit of a rate's amount in a step; NULL: it is no rate
    sampled        integer                    -- its place in fine.sources, from 1 on; NULL: PM sampling does not tell it
);

CREATE FUNCTION metric_columns() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    FOR missing IN
        SELECT m.name FROM metric m
        WHERE NOT EXISTS (SELECT FROM pg_attribute a
                          WHERE a.attrelid = 'sample'::regclass AND a.attname = m.name AND NOT a.attisdropped)
    LOOP
        EXECUTE format('ALTER TABLE sample ADD COLUMN %I double precision', missing);
    END LOOP;
END $$;

ALTER TABLE activity
    ADD COLUMN counted_start bigint[],        -- of runs of counted steps, in which nothing was marked; NULL: none
    ADD COLUMN counted_duration bigint[],
    ADD COLUMN counted_steps bigint[],
    ADD COLUMN goes_on bigint[];              -- of intervals: 1, the same call goes on in a later one; NULL: none does
ALTER TABLE attribution
    ADD COLUMN counted_steps bigint,          -- in which nothing was marked
    ADD COLUMN counted_ns bigint,             -- that they took
    ADD COLUMN captures bigint,               -- in which the steps of step_count were marked, NULL: not known
    ADD COLUMN first_step_ns bigint,          -- begin of the first of these, CLOCK_REALTIME; NULL: none, or not known
    ADD COLUMN last_step_ns bigint;           -- end of the last
ALTER TABLE item
    ADD COLUMN least_ns bigint;               -- total_ns without all that marks may have added; NULL: not known
ALTER TABLE estimate
    ADD COLUMN amount_per_step double precision,  -- of a rate, in metric.per_step; of the job alone
    ADD COLUMN achieved double precision,         -- of peak, at the clock that the SMs had; in metric.peak_unit
    ADD COLUMN peak double precision,             -- at the SMs' highest clock; NULL: not known
    ADD COLUMN basis text;                        -- of mean: the item's elapsed time, or busy, the part in which its
                                                  -- kernels ran; NULL: no value, or solved by an earlier release
ALTER TABLE process
    ADD COLUMN chip bigint[];                     -- compute capability, SMs, their kHz; memory's kHz, bits of its bus

-- A row for each GPU: values of several are never averaged. Recomputed forwards are no rows of the paper's table.
CREATE OR REPLACE VIEW result AS
SELECT t.namespace || '/' || t.workload_name AS job_id,
       t.host_name,
       t.ip,
       i.phase = 'forward' AS forward,
       i.layer,
       t.cpu_request AS cpu_num,
       i.windows::bigint AS data_num,
       e.gpu_util, e.gpu_mem, e.dram_active, e.fp32_active, e.sm_occupancy, e.sm_active,
       i.gpu_uuid
FROM latest_session l
JOIN target t ON t.session_uid = l.session_uid AND t.namespace = l.namespace
             AND t.workload_kind = l.workload_kind AND t.workload_name = l.workload_name
JOIN item i ON i.session_uid = t.session_uid AND i.pod_uid = t.pod_uid AND i.kind = 'layer'
           AND i.phase IN ('forward', 'backward')
CROSS JOIN LATERAL (
    SELECT max(mean) FILTER (WHERE metric = 'gpu_util') AS gpu_util,
           max(mean) FILTER (WHERE metric = 'gpu_mem') AS gpu_mem,
           max(mean) FILTER (WHERE metric = 'dram_active') AS dram_active,
           max(mean) FILTER (WHERE metric = 'fp32_active') AS fp32_active,
           max(mean) FILTER (WHERE metric = 'sm_occupancy') AS sm_occupancy,
           max(mean) FILTER (WHERE metric = 'sm_active') AS sm_active
    FROM estimate
    WHERE session_uid = i.session_uid AND pod_uid = i.pod_uid AND gpu_uuid = i.gpu_uuid
      AND kind = i.kind AND layer = i.layer AND phase = i.phase) e;

-- New columns come last: views of others may stand on this one.
CREATE OR REPLACE VIEW result_detail AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, i.gpu_uuid,
       i.kind, i.layer, i.phase, i.type, i.parameters, i.calls, i.total_ns, i.windows AS data_num,
       i.total_ns / 1e6 / nullif(a.step_count, 0) AS ms_per_step, i.share,
       e.metric, e.mean, e.stderr, e.windows, e.method, e.source,
       e.group_name, e.group_mean, e.group_stderr, e.reason,
       a.lag_ns, a.lag_stderr_ns, a.window_ns, a.revision, a.final,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest,
       i.busy_ns, i.busy_ns / 1e6 / nullif(a.step_count, 0) AS busy_ms_per_step, i.idle_share, i.busy_reason,
       a.step_ns, a.gap_ns, a.shared,
       m.unit,
       e.amount_per_step, m.per_step AS amount_unit,
       a.counted_steps, a.counted_ns / 1e6 / nullif(a.counted_steps, 0) AS counted_ms_per_step,
       e.achieved, e.peak, m.peak_unit,
       greatest(1 - (a.step_ns - a.gap_ns) / nullif(a.step_count, 0)::double precision
                    / nullif(a.counted_ns::double precision / nullif(a.counted_steps, 0), 0), 0) AS counted_idle_share,
       e.basis, CASE e.basis WHEN 'elapsed' THEN e.mean WHEN 'busy' THEN e.mean * (1 - i.idle_share) END AS elapsed_mean,
       i.least_ns / 1e6 / nullif(a.step_count, 0) AS least_ms_per_step,
       a.step_count AS marked_steps, a.captures,
       to_timestamp(a.first_step_ns / 1e9) AS first_marked, to_timestamp(a.last_step_ns / 1e9) AS last_marked
FROM item i
JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid
LEFT JOIN estimate e ON e.session_uid = i.session_uid AND e.pod_uid = i.pod_uid AND e.gpu_uuid = i.gpu_uuid
                    AND e.kind = i.kind AND e.layer = i.layer AND e.phase = i.phase
LEFT JOIN metric m ON m.name = e.metric;

-- How values of windows hold against windows that were held out; idle and what follows in the metric's unit and ns.
ALTER TABLE fit
    ADD COLUMN judged boolean,                -- layers' values are of windows: what follows says how right they are
    ADD COLUMN doubt text,                    -- what speaks against them; NULL: nothing
    ADD COLUMN untold text,                   -- why windows say nothing of layers; NULL: they do
    ADD COLUMN explained double precision,    -- share of the variance of windows held out that the others predict
    ADD COLUMN miss double precision,         -- root mean square of these predictions less the values
    ADD COLUMN expected_miss double precision,
    ADD COLUMN items bigint,                  -- that both halves of the windows tell
    ADD COLUMN items_z double precision,      -- root mean square of their differences over their standard errors
    ADD COLUMN idle double precision,         -- where no kernel of the training ran
    ADD COLUMN idle_stderr double precision,
    ADD COLUMN shift_ns double precision,     -- by how much later windows ended than the lag says
    ADD COLUMN shift_stderr_ns double precision;

-- Of what PM sampling told of a process, a place for each metric: how captures were predicted by those before them.
ALTER TABLE fine
    ADD COLUMN explained double precision[],
    ADD COLUMN miss double precision[],
    ADD COLUMN items double precision[],
    ADD COLUMN items_z double precision[],
    ADD COLUMN idle double precision[],
    ADD COLUMN idle_stderr double precision[],
    ADD COLUMN doubt smallint[];              -- docs/wire.md has the numbers; 0: none

-- One row per method, GPU and metric: how right its values are as a whole. New columns come last.
CREATE OR REPLACE VIEW result_quality AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, q.gpu_uuid, q.method, q.process, q.metric,
       q.held, q.difference, q.noise, q.windows, q.lag_ns, q.lag_stderr_ns,
       q.chip, q.period_ns, q.times, q.failed_times, q.sampled_ns, q.sampler_cpu_ns,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest,
       q.doubt, q.untold, q.explained, q.miss, q.expected_miss, q.items, q.items_z, q.idle, q.idle_stderr,
       q.shift_ns, q.shift_stderr_ns
FROM (
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'regression' AS method, NULL::integer AS process, f.metric,
           NULL::double precision AS held,
           -- of what it was solved with, which earlier releases told
           CASE WHEN f.judged IS NULL THEN f.closure END AS difference, f.noise, f.windows,
           a.lag_ns, a.lag_stderr_ns,
           NULL::text AS chip, NULL::bigint AS period_ns, NULL::bigint AS times, NULL::bigint AS failed_times,
           NULL::bigint AS sampled_ns, NULL::bigint AS sampler_cpu_ns,
           f.doubt, f.untold, f.explained, f.miss, f.expected_miss, f.items, f.items_z, f.idle, f.idle_stderr,
           f.shift_ns, f.shift_stderr_ns
    FROM fit f JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
    WHERE coalesce(f.judged, f.closure IS NOT NULL)
    UNION ALL
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'replay', NULL, f.metric, f.held, f.held_difference, NULL,
           f.held_windows, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM fit f
    WHERE f.held_windows IS NOT NULL
    UNION ALL
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'sampling', f.process, m.name, f.held[m.sampled], f.difference[m.sampled],
           f.noise[m.sampled], f.samples, f.lag_ns, f.lag_stderr_ns,
           f.chip, f.period_ns, f.times, f.failed_times, f.sampled_ns, f.sampler_cpu_ns,
           CASE f.doubt[m.sampled]
               WHEN 1 THEN 'samples differ by more than the kernels in them explain'
               WHEN 2 THEN 'others use the GPU: it is busy where no kernel of this process runs' END,
           NULL, f.explained[m.sampled], f.miss[m.sampled], NULL, f.items[m.sampled]::bigint, f.items_z[m.sampled],
           f.idle[m.sampled], f.idle_stderr[m.sampled], NULL, NULL
    FROM (SELECT DISTINCT ON (session_uid, pod_uid, process) * FROM fine
          -- of several agents' the one that solutions are made with
          ORDER BY session_uid, pod_uid, process, kernel_count DESC, instance COLLATE "C") f
    JOIN metric m ON f.sources[m.sampled] <> '') q
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid;

-- Which kernels ran in the steps of all batches that told them, dwells' left out, by layer and phase: of a process by its
-- number in the pod, whichever agents saw it. The key has some 1,700 bytes at most, of the 2,700 that an index takes.
CREATE TABLE kernel (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    process        integer NOT NULL,
    layer          text NOT NULL,             -- its name; '' where phase is of the step as a whole
    phase          text NOT NULL,             -- as in item, or the step's own: optimizer, other, ...
    name           text NOT NULL,             -- demangled; '': all that are not told apart
    count          bigint NOT NULL,           -- how many ran
    ns             bigint NOT NULL,           -- their own times added up, whatever ran beside them
    PRIMARY KEY (session_uid, pod_uid, process, layer, phase, name),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
) WITH (fillfactor = 70);                     -- rows are updated with each batch, and no index with them
ALTER TABLE process
    ADD COLUMN kernel_steps bigint NOT NULL DEFAULT 0; -- of the batches that told kernels

CREATE VIEW result_kernel AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, k.process, k.layer, k.phase, k.name AS kernel,
       k.count / p.steps AS calls_per_step, k.ns / 1e6 / p.steps AS ms_per_step, k.share,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest
FROM session s
JOIN target t ON t.session_uid = s.uid
CROSS JOIN LATERAL (
    SELECT process, nullif(sum(kernel_steps), 0)::double precision AS steps
    FROM process
    WHERE session_uid = t.session_uid AND pod_uid = t.pod_uid
    GROUP BY process) p
CROSS JOIN LATERAL (
    SELECT process, layer, phase, name, count, ns,
           ns / nullif(sum(ns) OVER (PARTITION BY layer, phase), 0)::double precision AS share
    FROM kernel
    WHERE session_uid = t.session_uid AND pod_uid = t.pod_uid AND process = p.process) k;
