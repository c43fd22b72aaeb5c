-- Whether others used the GPU at the same time, as far as that is known.

ALTER TABLE attribution
    ADD COLUMN shared boolean NOT NULL DEFAULT false; -- several pods held the GPU at a time: values are of all their work

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
       a.step_ns, a.gap_ns, a.shared
FROM item i
JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid
LEFT JOIN estimate e ON e.session_uid = i.session_uid AND e.pod_uid = i.pod_uid AND e.gpu_uuid = i.gpu_uuid
                    AND e.kind = i.kind AND e.layer = i.layer AND e.phase = i.phase;
