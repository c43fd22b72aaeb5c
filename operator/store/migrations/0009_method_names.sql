-- Methods by the names of statistics and of NVIDIA's documents: direct is regression, fine is sampling, isolated is
-- replay. Rows of earlier releases are renamed, so that whoever reads `method` meets one name for each.

UPDATE estimate SET method = CASE method WHEN 'direct' THEN 'regression' WHEN 'fine' THEN 'sampling' ELSE 'replay' END
WHERE method IN ('direct', 'fine', 'isolated');

UPDATE session SET method = CASE method WHEN 'Direct' THEN 'Regression' WHEN 'Fine' THEN 'Sampling' ELSE 'Replay' END
WHERE method IN ('Direct', 'Fine', 'Isolated');

-- One row per method, GPU and metric: how right its values are as a whole.
CREATE OR REPLACE VIEW result_quality AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, q.gpu_uuid, q.method, q.process, q.metric,
       q.held, q.difference, q.noise, q.windows, q.lag_ns, q.lag_stderr_ns,
       q.chip, q.period_ns, q.times, q.failed_times, q.sampled_ns, q.sampler_cpu_ns,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest
FROM (
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'regression' AS method, NULL::integer AS process, f.metric,
           NULL::double precision AS held, f.closure AS difference, f.noise, f.windows,
           a.lag_ns, a.lag_stderr_ns,
           NULL::text AS chip, NULL::bigint AS period_ns, NULL::bigint AS times, NULL::bigint AS failed_times,
           NULL::bigint AS sampled_ns, NULL::bigint AS sampler_cpu_ns
    FROM fit f JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
    WHERE f.closure IS NOT NULL
    UNION ALL
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'replay', NULL, f.metric, f.held, f.held_difference, NULL,
           f.held_windows, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM fit f
    WHERE f.held_windows IS NOT NULL
    UNION ALL
    SELECT f.session_uid, f.pod_uid, f.gpu_uuid, 'sampling', f.process, m.metric, f.held[m.place], f.difference[m.place],
           f.noise[m.place], f.samples, f.lag_ns, f.lag_stderr_ns,
           f.chip, f.period_ns, f.times, f.failed_times, f.sampled_ns, f.sampler_cpu_ns
    FROM (SELECT DISTINCT ON (session_uid, pod_uid, process) * FROM fine
          -- of several agents' the one that solutions are made with
          ORDER BY session_uid, pod_uid, process, kernel_count DESC, instance COLLATE "C") f
    CROSS JOIN (VALUES (1, 'sm_active'), (2, 'sm_occupancy'), (3, 'dram_active'), (4, 'fp32_active')) m (place, metric)
    WHERE f.sources[m.place] <> '') q
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid;
