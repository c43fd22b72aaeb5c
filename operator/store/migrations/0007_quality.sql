-- How right values are: how fine sampling went, and how values hold against what was held out.

-- Of all that was sampled by the batch that told it. NULL: not known, as of agents of earlier releases.
ALTER TABLE fine
    ADD COLUMN chip           text,           -- as CUPTI calls it
    ADD COLUMN period_ns      bigint,         -- between samples, as they were taken last
    ADD COLUMN times          bigint,         -- that the GPU was sampled
    ADD COLUMN failed_times   bigint,         -- of these, of which nothing could be told
    ADD COLUMN sampled_ns     bigint,         -- of samples in the others
    ADD COLUMN samples        bigint,         -- that values come from
    ADD COLUMN lag_ns         bigint,         -- by which the GPU's clock is ahead of the host's CLOCK_REALTIME
    ADD COLUMN lag_stderr_ns  bigint,
    ADD COLUMN sampler_cpu_ns bigint,         -- of processors that the sampler has taken
    -- by sources; an element is NULL where no sample of that metric was held out
    ADD COLUMN held           double precision[], -- mean of the samples held out
    ADD COLUMN difference     double precision[], -- estimates of them, less that
    ADD COLUMN noise          double precision[]; -- what is left of a sample, standard deviation

-- One row per way to values, GPU and metric: how right its values are as a whole.
CREATE VIEW result_quality AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, q.gpu_uuid, q.method, q.process, q.metric,
       q.held, q.difference, q.noise, q.windows, q.lag_ns, q.lag_stderr_ns,
       q.chip, q.period_ns, q.times, q.failed_times, q.sampled_ns, q.sampler_cpu_ns,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest
FROM (
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'direct' AS method, NULL::integer AS process, f.metric,
           NULL::double precision AS held, f.closure AS difference, f.noise, f.windows,
           a.lag_ns, a.lag_stderr_ns,
           NULL::text AS chip, NULL::bigint AS period_ns, NULL::bigint AS times, NULL::bigint AS failed_times,
           NULL::bigint AS sampled_ns, NULL::bigint AS sampler_cpu_ns
    FROM fit f JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
    WHERE f.closure IS NOT NULL
    UNION ALL
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'isolated', NULL, f.metric, f.held, f.held_difference, NULL,
           f.held_windows, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM fit f
    WHERE f.held_windows IS NOT NULL
    UNION ALL
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'fine', f.process, m.metric, f.held[m.place], f.difference[m.place],
           f.noise[m.place], f.samples, f.lag_ns, f.lag_stderr_ns,
           f.chip, f.period_ns, f.times, f.failed_times, f.sampled_ns, f.sampler_cpu_ns
    FROM (SELECT DISTINCT ON (session_uid, pod_uid, process) * FROM fine
          -- of several agents' the one that solutions are made with
          ORDER BY session_uid, pod_uid, process, kernel_count DESC, instance COLLATE "C") f
    CROSS JOIN (VALUES (1, 'sm_active'), (2, 'sm_occupancy'), (3, 'dram_active'), (4, 'fp32_active')) m (place, metric)
    WHERE f.sources[m.place] <> '') q
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid;
