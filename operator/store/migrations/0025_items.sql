-- How sure times of a step are, by how far steps are apart (docs/timing.md). NULL: fewer than eight steps tell it.
ALTER TABLE item
    ADD COLUMN step_stderr_ns double precision,    -- of total_ns a step
    ADD COLUMN step_freedom double precision,      -- of how many degrees of freedom that is an estimate
    ADD COLUMN busy_stderr_ns double precision,    -- of busy_ns a step
    ADD COLUMN busy_freedom double precision;
ALTER TABLE attribution
    ADD COLUMN step_stderr_ns double precision,    -- of a marked step
    ADD COLUMN step_freedom double precision,
    ADD COLUMN counted_stderr_ns double precision, -- of a step in which nothing is marked
    ADD COLUMN counted_freedom double precision;

-- Layers that stand for those in them, as compiled regions that cannot be told by layer, and why (docs/timing.md).
ALTER TABLE layer
    ADD COLUMN whole smallint;                 -- by the numbers of pp_whole_reason in sidecar/ring.h; NULL: no reason
ALTER TABLE item
    ADD COLUMN whole_reason text;              -- in words; NULL: no reason is known

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
       CASE WHEN c.idle < 0 THEN 0 ELSE c.idle END AS counted_idle_share,
       e.basis, CASE e.basis WHEN 'elapsed' THEN e.mean WHEN 'busy' THEN e.mean * (1 - i.idle_share) END AS elapsed_mean,
       i.least_ns / 1e6 / nullif(a.step_count, 0) AS least_ms_per_step,
       a.step_count AS marked_steps, a.captures,
       to_timestamp(a.first_step_ns / 1e9) AS first_marked, to_timestamp(a.last_step_ns / 1e9) AS last_marked,
       i.bound, i.bound_likely, i.memory_peak_bytes, i.memory_live_bytes,
       i.step_stderr_ns / 1e6 AS ms_per_step_stderr, i.step_freedom AS ms_per_step_freedom,
       i.busy_stderr_ns / 1e6 AS busy_ms_per_step_stderr, i.busy_freedom AS busy_ms_per_step_freedom,
       a.step_stderr_ns / 1e6 AS step_ms_stderr, a.step_freedom AS step_ms_freedom,
       a.counted_stderr_ns / 1e6 AS counted_ms_per_step_stderr, a.counted_freedom AS counted_ms_per_step_freedom, i.whole_reason
FROM item i
JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid
CROSS JOIN LATERAL (
    SELECT 1 - (a.step_ns - a.gap_ns) / nullif(a.step_count, 0)::double precision
           / nullif(a.counted_ns::double precision / nullif(a.counted_steps, 0), 0) AS idle) c
LEFT JOIN estimate e ON e.session_uid = i.session_uid AND e.pod_uid = i.pod_uid AND e.gpu_uuid = i.gpu_uuid
                    AND e.kind = i.kind AND e.layer = i.layer AND e.phase = i.phase
LEFT JOIN metric m ON m.name = e.metric;
