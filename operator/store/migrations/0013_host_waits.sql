-- Calls in which the host waited, in the marked steps of all batches that told them, dwells' left out, by layer and phase:
-- of a process by its number in the pod, whichever agents saw it. The key has some 1,300 bytes at most.
CREATE TABLE host_wait (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    process        integer NOT NULL,
    layer          text NOT NULL,             -- its name; '' where phase is of the step as a whole
    phase          text NOT NULL,             -- as in kernel
    call           text NOT NULL,             -- 'item'; '': all that are not told apart
    file           text NOT NULL,             -- of the program; '': not known
    line           integer NOT NULL,
    count          bigint NOT NULL,           -- calls
    steps          bigint NOT NULL,           -- with any of them
    ns             bigint NOT NULL,           -- that the host was in them
    PRIMARY KEY (session_uid, pod_uid, process, layer, phase, call, file, line),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
) WITH (fillfactor = 70);                     -- rows are updated with each batch, and no index with them
ALTER TABLE process
    ADD COLUMN wait_steps bigint NOT NULL DEFAULT 0; -- of the batches that told waits

CREATE VIEW result_wait AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, w.process, w.layer, w.phase, w.call, w.file, w.line,
       w.count / p.steps AS calls_per_step, least(w.steps / p.steps, 1) AS share_of_steps, w.ns / 1e6 / p.steps AS ms_per_step,
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
