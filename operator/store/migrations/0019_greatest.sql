-- greatest(NULL, 0) is 0 and least(NULL, 1) is 1 in Postgres: what is not known was told as a share.
-- (result_detail's counted_idle_share is mended with its next columns, in 0020.)
CREATE OR REPLACE VIEW result_wait AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, w.process, w.layer, w.phase, w.call, w.file, w.line,
       w.count / p.steps AS calls_per_step,
       CASE WHEN w.steps > p.steps THEN 1 ELSE w.steps / p.steps END AS share_of_steps, w.ns / 1e6 / p.steps AS ms_per_step,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest
FROM session s
JOIN target t ON t.session_uid = s.uid
CROSS JOIN LATERAL (
    SELECT process, nullif(sum(wait_steps), 0)::double precision AS steps
    FROM process
    WHERE session_uid = t.session_uid AND pod_uid = t.pod_uid
    GROUP BY process) p
CROSS JOIN LATERAL (
    SELECT process, layer, phase, call, file, line, count, steps, ns
    FROM host_wait
    WHERE session_uid = t.session_uid AND pod_uid = t.pod_uid AND process = p.process) w;
