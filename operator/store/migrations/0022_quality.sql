-- The SMs' clock is sampled, too, but no sample of it is held out: others' shares are over it.
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
    JOIN metric m ON f.sources[m.sampled] <> '' AND m.name <> 'sm_clock') q
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid;
