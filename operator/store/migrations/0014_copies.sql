-- Copies and fills on the GPU, in the marked steps of all batches that told them, dwells' left out, by who launched them: of a
-- process by its number in the pod, whichever agents saw it. The key has some 700 bytes at most.
CREATE TABLE gpu_copy (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    process        integer NOT NULL,
    layer          text NOT NULL,             -- its name; '' where phase is of the step as a whole
    phase          text NOT NULL,             -- as in kernel
    type           text NOT NULL,             -- 'h2d', 'd2h', 'd2d', 'p2p', 'fill', 'other'
    memory         text NOT NULL,             -- of the host: 'pageable', 'pinned'; '': not known, or it has no part
    count          bigint NOT NULL,
    bytes          bigint NOT NULL,
    ns             bigint NOT NULL,           -- that they ran, each in full
    PRIMARY KEY (session_uid, pod_uid, process, layer, phase, type, memory),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
) WITH (fillfactor = 70);                     -- rows are updated with each batch, and no index with them
ALTER TABLE process
    ADD COLUMN copy_steps bigint NOT NULL DEFAULT 0; -- of the batches that told copies

CREATE VIEW result_copy AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, c.process, c.layer, c.phase, c.type, c.memory,
       c.count / p.steps AS per_step, c.bytes / p.steps AS bytes_per_step, c.ns / 1e6 / p.steps AS ms_per_step,
       c.bytes / nullif(c.ns, 0)::double precision AS gb_per_second,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest
FROM session s
JOIN target t ON t.session_uid = s.uid
CROSS JOIN LATERAL (
    SELECT process, nullif(sum(copy_steps), 0)::double precision AS steps
    FROM process
    WHERE session_uid = t.session_uid AND pod_uid = t.pod_uid
    GROUP BY process) p
CROSS JOIN LATERAL (
    SELECT process, layer, phase, type, memory, count, bytes, ns
    FROM gpu_copy
    WHERE session_uid = t.session_uid AND pod_uid = t.pod_uid AND process = p.process) c;
