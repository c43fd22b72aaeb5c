-- Whether a session is its workload's latest is found once for each workload, not for each row, of which it took 2 ms each.
CREATE OR REPLACE VIEW result_rank_item AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       i.workload_kind, i.workload_name, i.pod_name, i.pod_uid, i.node, i.process, i.rank, i.world_size,
       i.layer, i.item_phase AS phase, i.calls AS calls_per_step, i.ns / 1e6 AS ms_per_step,
       median_of_others(i.sorted, i.place) / 1e6 AS others_ms_per_step, w.latest
FROM session s
CROSS JOIN LATERAL (
    SELECT d.*, EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = d.namespace
                        AND l.workload_kind = d.workload_kind AND l.workload_name = d.workload_name) AS latest
    FROM (SELECT DISTINCT namespace, workload_kind, workload_name FROM target WHERE session_uid = s.uid) d OFFSET 0) w
CROSS JOIN LATERAL (
    SELECT r.*, k.layer, k.phase AS item_phase, k.calls, k.ns, row_number() OVER item AS place,
           array_agg(k.ns) OVER (item ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS sorted
    FROM rank_item k JOIN rank_now r USING (session_uid, pod_uid, process)
    WHERE k.session_uid = s.uid AND r.namespace = w.namespace AND r.workload_kind = w.workload_kind
      AND r.workload_name = w.workload_name
    WINDOW item AS (PARTITION BY k.layer, k.phase ORDER BY k.ns)) i;
