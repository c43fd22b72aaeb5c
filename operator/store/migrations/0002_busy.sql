-- Busy times, and the phases of docs/timing.md. NULL: not known, as in all that was stored before.

ALTER TABLE process
    ADD COLUMN kernels text;                  -- why busy times are not known; '' where they are

-- Parallel to the arrays beside them; -1: not known, NULL: none of them is.
ALTER TABLE activity
    ADD COLUMN busy bigint[],                 -- of an interval, in which a kernel of it ran
    ADD COLUMN step_gap bigint[],             -- of a step, in which no kernel ran
    ADD COLUMN grid_kernels bigint[];         -- as busy, summed in the cell

ALTER TABLE attribution
    ADD COLUMN step_ns bigint,                -- of the steps, in the observed stretches
    ADD COLUMN gap_ns bigint;                 -- of that, in which no kernel ran

-- kind: layer, optimizer, zero_grad, data, communication, other, idle, job. A layer's phase:
-- forward, backward, recompute.
ALTER TABLE item
    ADD COLUMN busy_ns bigint,                -- time in the observed stretches in which a kernel of it ran
    ADD COLUMN idle_share double precision,   -- of its own time, shared with none, in which none ran
    ADD COLUMN busy_reason text;              -- why busy_ns is NULL

-- Recomputed forwards are no rows of the paper's table.
CREATE OR REPLACE VIEW result AS
SELECT t.namespace || '/' || t.workload_name AS job_id,
       t.host_name,
       t.ip,
       i.phase = 'forward' AS forward,
       i.layer,
       t.cpu_request AS cpu_num,
       sum(i.windows)::bigint AS data_num,
       avg(e.gpu_util) AS gpu_util,
       avg(e.gpu_mem) AS gpu_mem,
       avg(e.dram_active) AS dram_active,
       avg(e.fp32_active) AS fp32_active,
       avg(e.sm_occupancy) AS sm_occupancy,
       avg(e.sm_active) AS sm_active
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
      AND kind = i.kind AND layer = i.layer AND phase = i.phase) e
GROUP BY t.namespace, t.workload_kind, t.workload_name, t.pod_uid, t.host_name, t.ip, i.layer,
         i.phase, t.cpu_request;

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
       a.step_ns, a.gap_ns
FROM item i
JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid
LEFT JOIN estimate e ON e.session_uid = i.session_uid AND e.pod_uid = i.pod_uid AND e.gpu_uuid = i.gpu_uuid
                    AND e.kind = i.kind AND e.layer = i.layer AND e.phase = i.phase;
