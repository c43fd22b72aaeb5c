-- Training processes side by side: means over the marked steps of each. Of pods with several, and of jobs over several pods.
CREATE TABLE rank (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    process        integer NOT NULL,          -- its number in the pod, whichever agents saw it
    rank           integer NOT NULL,
    world_size     integer NOT NULL,
    steps          bigint NOT NULL,           -- marked ones
    step_ns        double precision NOT NULL,
    wait_ns        double precision NOT NULL, -- communication beside which it did nothing else
    own_ns         double precision NOT NULL, -- the rest of a step
    own_stderr_ns  double precision,          -- by its steps; NULL: too few
    PRIMARY KEY (session_uid, pod_uid, process),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);

CREATE TABLE rank_item (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    process        integer NOT NULL,
    layer          text NOT NULL,             -- its name; '' where phase is of the step as a whole
    phase          text NOT NULL,             -- as in kernel
    calls          double precision NOT NULL, -- of a step
    ns             double precision NOT NULL,
    PRIMARY KEY (session_uid, pod_uid, process, layer, phase),
    FOREIGN KEY (session_uid, pod_uid, process) REFERENCES rank ON DELETE CASCADE
);

-- The median of all elements but the one at place k, of which the array is in order; NULL where there are none.
CREATE FUNCTION median_of_others(sorted double precision[], k bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (sorted[l + (l >= k)::int] + sorted[h + (h >= k)::int]) / 2
    FROM (SELECT cardinality(sorted) / 2 AS l, (cardinality(sorted) + 1) / 2 AS h) n
    WHERE cardinality(sorted) > 1
$$;

-- Each rank once: a pod that was made anew stands for the one before. Processes without ranks are each their own.
CREATE VIEW rank_now AS
SELECT DISTINCT ON (k.session_uid, t.workload_kind, t.workload_name, k.rank, alone.pod, alone.process)
       k.*, t.namespace, t.workload_kind, t.workload_name, t.pod_name, t.node
FROM rank k
JOIN target t USING (session_uid, pod_uid)
CROSS JOIN LATERAL (
    SELECT CASE WHEN k.world_size > 1 THEN '' ELSE k.pod_uid END AS pod,
           CASE WHEN k.world_size > 1 THEN 0 ELSE k.process END AS process) alone
ORDER BY k.session_uid, t.workload_kind, t.workload_name, k.rank, alone.pod, alone.process,
         t.observed_last_ns DESC NULLS LAST, k.pod_uid, k.process;

-- Beside each rank are those of its workload in the session.
CREATE VIEW result_rank AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       r.workload_kind, r.workload_name, r.pod_name, r.pod_uid, r.node, r.process, r.rank, r.world_size, r.steps,
       r.step_ns / 1e6 AS ms_per_step, r.own_ns / 1e6 AS own_ms_per_step, r.own_stderr_ns / 1e6 AS own_stderr_ms,
       r.wait_ns / 1e6 AS wait_ms_per_step, median_of_others(o.sorted, r.place) / 1e6 AS others_own_ms_per_step,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = r.namespace
               AND l.workload_kind = r.workload_kind AND l.workload_name = r.workload_name) AS latest
FROM session s
CROSS JOIN LATERAL (
    SELECT *, row_number() OVER (PARTITION BY workload_kind, workload_name ORDER BY own_ns) AS place
    FROM rank_now WHERE session_uid = s.uid) r
JOIN LATERAL (
    SELECT workload_kind, workload_name, array_agg(own_ns ORDER BY own_ns) AS sorted
    FROM rank_now WHERE session_uid = s.uid GROUP BY workload_kind, workload_name) o
  ON o.workload_kind = r.workload_kind AND o.workload_name = r.workload_name;

CREATE VIEW result_rank_item AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       i.workload_kind, i.workload_name, i.pod_name, i.pod_uid, i.node, i.process, i.rank, i.world_size,
       i.layer, i.item_phase AS phase, i.calls AS calls_per_step, i.ns / 1e6 AS ms_per_step,
       median_of_others(o.sorted, i.place) / 1e6 AS others_ms_per_step,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = i.namespace
               AND l.workload_kind = i.workload_kind AND l.workload_name = i.workload_name) AS latest
FROM session s
CROSS JOIN LATERAL (
    SELECT r.*, k.layer, k.phase AS item_phase, k.calls, k.ns,
           row_number() OVER (PARTITION BY r.workload_kind, r.workload_name, k.layer, k.phase ORDER BY k.ns) AS place
    FROM rank_item k JOIN rank_now r USING (session_uid, pod_uid, process)
    WHERE k.session_uid = s.uid) i
JOIN LATERAL (
    SELECT r.workload_kind, r.workload_name, k.layer, k.phase, array_agg(k.ns ORDER BY k.ns) AS sorted
    FROM rank_item k JOIN rank_now r USING (session_uid, pod_uid, process)
    WHERE k.session_uid = s.uid GROUP BY r.workload_kind, r.workload_name, k.layer, k.phase) o
  ON o.workload_kind = i.workload_kind AND o.workload_name = i.workload_name AND o.layer = i.layer
  AND o.phase = i.item_phase;
