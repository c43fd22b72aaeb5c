-- The result store. Times are bigint nanoseconds since 1970 where they take part in arithmetic,
-- timestamptz where people read them. Unmeasured is NULL, never 0.

CREATE TABLE session (
    uid            text PRIMARY KEY,          -- metadata.uid of the ProfileSession
    namespace      text NOT NULL,
    name           text NOT NULL,
    spec           jsonb NOT NULL,
    method         text NOT NULL,             -- as asked for
    phase          text NOT NULL,             -- as in status.phase
    created_at     timestamptz NOT NULL,
    first_step_ns  bigint,                    -- start of the first sampled step of any target
    last_step_ns   bigint,                    -- end of the last one
    finished_at    timestamptz
);
CREATE INDEX session_by_name ON session (namespace, name);

-- One row per injected pod of a session.
CREATE TABLE target (
    session_uid    text NOT NULL REFERENCES session (uid) ON DELETE CASCADE,
    pod_uid        text NOT NULL,
    namespace      text NOT NULL,
    pod_name       text NOT NULL,
    container      text,
    node           text,
    host_name      text,                      -- host name inside the pod
    ip             text,                      -- the pod's address
    workload_kind  text NOT NULL,             -- controlling owner (ReplicaSet: Deployment), or Pod
    workload_name  text NOT NULL,
    cpu_request    double precision,          -- cores that the pod's containers request; NULL: none
    events         bigint NOT NULL DEFAULT 0, -- intervals (or grid calls) stored, each once
    steps          bigint NOT NULL DEFAULT 0,
    dropped        bigint NOT NULL DEFAULT 0, -- marks lost before they reached the operator
    cost_ns        bigint NOT NULL DEFAULT 0, -- the hook's own measured cost
    batches        bigint NOT NULL DEFAULT 0,
    last_batch_at  timestamptz,               -- when the newest batch was stored
    first_ns       bigint,                    -- start of the first sampled step
    last_ns        bigint,                    -- end of the last one
    observed_first_ns bigint,                 -- what the batches cover
    observed_last_ns  bigint,
    epoch          bigint,                    -- of the last step seen
    batch          bigint,
    PRIMARY KEY (session_uid, pod_uid)
);

-- One row per training process of a target: a pod may run several ranks.
CREATE TABLE process (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    instance       text NOT NULL,             -- the agent process that saw it
    process        integer NOT NULL,
    rank           integer,
    world_size     integer,
    gpus           text[] NOT NULL,
    python         text,
    torch          text,
    clock          text NOT NULL,             -- host, or cuda
    model          text,
    events         bigint NOT NULL DEFAULT 0,
    steps          bigint NOT NULL DEFAULT 0,
    last_end_ns    bigint NOT NULL DEFAULT 0, -- end of its latest batch
    open_stretch   boolean NOT NULL DEFAULT false, -- that batch did not end its stretch
    PRIMARY KEY (session_uid, pod_uid, instance, process),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);

CREATE TABLE layer (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    instance       text NOT NULL,
    process        integer NOT NULL,
    layer          integer NOT NULL,          -- the id used in activity
    name           text NOT NULL,             -- qualified module name
    type           text NOT NULL,             -- class name
    parameters     bigint,
    PRIMARY KEY (session_uid, pod_uid, instance, process, layer),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);

-- One row per acknowledged batch: what ran when. Parallel arrays, absolute values.
CREATE TABLE activity (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    instance       text NOT NULL,
    seq            bigint NOT NULL,
    process        integer NOT NULL,
    stretch        bigint NOT NULL,
    stretch_last   boolean NOT NULL,          -- the stretch ends with this batch
    start_ns       bigint NOT NULL,           -- what the batch says everything about
    end_ns         bigint NOT NULL,
    events         bigint NOT NULL,
    dropped        bigint NOT NULL,           -- marks lost since the batch before
    cost_ns        bigint NOT NULL,
    step_number    bigint[] NOT NULL,
    step_start     bigint[] NOT NULL,
    step_duration  bigint[] NOT NULL,
    step_epoch     bigint[] NOT NULL,
    step_batch     bigint[] NOT NULL,
    -- intervals; empty where the batch came as a grid
    layer          integer[] NOT NULL,
    phase          smallint[] NOT NULL,       -- 0 forward, 1 backward, 2 optimizer
    step           bigint[] NOT NULL,
    start          bigint[] NOT NULL,
    duration       bigint[] NOT NULL,
    -- grid; NULL where the batch came as intervals
    grid_start     bigint,
    grid_cell      bigint,
    grid_cells     bigint[],
    grid_layer     integer[],
    grid_phase     smallint[],
    grid_busy      bigint[],
    grid_calls     bigint[],
    received_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_uid, pod_uid, instance, seq),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);
CREATE INDEX activity_by_time ON activity (session_uid, pod_uid, start_ns);

-- Raw samples as Prometheus had them, one row per GPU, metric and scrape.
CREATE TABLE metric_sample (
    gpu_uuid       text NOT NULL,
    metric         text NOT NULL,             -- gpu_util, gpu_mem, dram_active, ...
    source         text NOT NULL,             -- prometheus
    at_ns          bigint NOT NULL,           -- the sample's own stamp
    value          double precision NOT NULL, -- in the units of the result view
    PRIMARY KEY (gpu_uuid, metric, source, at_ns)
) PARTITION BY RANGE (at_ns);

-- The days' partitions, named metric_sample_<day since 1970>. Made before samples are inserted, so
-- there is no default partition: rows in one would forbid to make their day's. Made as tables of
-- their own and attached, which does not lock readers of the other days out.
CREATE FUNCTION metric_sample_partitions(from_ns bigint, to_ns bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    day_ns CONSTANT bigint := 86400000000000;
    part text;
BEGIN
    FOR day IN from_ns / day_ns .. to_ns / day_ns LOOP
        part := 'metric_sample_' || day;
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        PERFORM pg_advisory_xact_lock(7738142, 1);
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE metric_sample INCLUDING ALL)', part);
        EXECUTE format('ALTER TABLE metric_sample ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                       part, day * day_ns, (day + 1) * day_ns);
    END LOOP;
END $$;

-- Drops at most max_parts days that ended before before_ns, oldest first; returns how many.
CREATE FUNCTION metric_sample_drop(before_ns bigint, max_parts integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    part text;
    dropped bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(7738142, 1);
    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'metric_sample'::regclass
          AND (substr(c.relname, 15)::bigint + 1) * 86400000000000 <= before_ns
        ORDER BY substr(c.relname, 15)::bigint LIMIT max_parts
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- What each metric window held for a layer, repeated values folded into one row.
CREATE TABLE sample (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    gpu_uuid       text NOT NULL,
    layer          text NOT NULL,             -- '' where phase is optimizer, other or idle
    phase          text NOT NULL,             -- forward, backward, optimizer, other, idle
    first_ns       bigint NOT NULL,           -- end of the first window folded into this row
    last_ns        bigint NOT NULL,
    windows        bigint NOT NULL,           -- how many windows this row stands for
    share          double precision NOT NULL, -- mean share of those windows that the layer took
    gpu_util       double precision,
    gpu_mem        double precision,
    dram_active    double precision,
    fp32_active    double precision,
    sm_occupancy   double precision,
    sm_active      double precision,
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid, layer, phase, first_ns),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);

-- One row per target and GPU: how the last solution stands.
CREATE TABLE attribution (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    gpu_uuid       text NOT NULL,
    revision       bigint NOT NULL,           -- counts solutions; the last one is kept
    solved_at      timestamptz NOT NULL DEFAULT now(),
    final          boolean NOT NULL,
    windows        bigint NOT NULL,           -- metric windows used
    samples        bigint NOT NULL,           -- raw samples joined
    lag_ns         bigint,                    -- from a window's end to its sample's stamp
    lag_stderr_ns  double precision,
    window_ns      bigint,                    -- the exporter's collection window
    observed_ns    bigint NOT NULL,           -- length of the observed stretches
    step_count     bigint NOT NULL,
    step_mean_ns   double precision,
    truncated      boolean NOT NULL,          -- more was stored than one solution may hold
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);

-- How one metric's fit stands. NULL: no fit.
CREATE TABLE fit (
    session_uid      text NOT NULL,
    pod_uid          text NOT NULL,
    gpu_uuid         text NOT NULL,
    metric           text NOT NULL,
    r2               double precision,
    noise            double precision,        -- sd of a window's value around the model
    step_variation   double precision,        -- cv of an item's value from step to step
    closure          double precision,        -- time-weighted estimates less the windows' mean
    windows          bigint NOT NULL,
    dropped_samples  bigint NOT NULL,
    repeated_samples bigint NOT NULL,
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid, metric),
    FOREIGN KEY (session_uid, pod_uid, gpu_uuid) REFERENCES attribution ON DELETE CASCADE
);

-- One row per item of a target's GPU. kind: layer, optimizer, other, idle, job.
CREATE TABLE item (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    gpu_uuid       text NOT NULL,
    kind           text NOT NULL,
    layer          text NOT NULL,             -- '' where kind is not layer
    phase          text NOT NULL,             -- forward, backward; '' where kind is not layer
    type           text,
    parameters     bigint,
    calls          bigint NOT NULL,
    total_ns       bigint NOT NULL,           -- time in the observed stretches
    share          double precision,          -- of the steps' time; idle: of the observed time
    windows        bigint NOT NULL,           -- metric windows in which it ran
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid, kind, layer, phase),
    FOREIGN KEY (session_uid, pod_uid, gpu_uuid) REFERENCES attribution ON DELETE CASCADE
);

-- One row per item and metric.
CREATE TABLE estimate (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    gpu_uuid       text NOT NULL,
    kind           text NOT NULL,
    layer          text NOT NULL,
    phase          text NOT NULL,
    metric         text NOT NULL,
    mean           double precision,          -- NULL: not identifiable on its own
    stderr         double precision,
    windows        double precision,          -- effective number of windows
    method         text NOT NULL,             -- job, direct, none
    source         text NOT NULL,             -- prometheus
    group_name     text,                      -- the named group this item was merged into
    group_mean     double precision,
    group_stderr   double precision,
    reason         text,                      -- why mean is NULL
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric),
    FOREIGN KEY (session_uid, pod_uid, gpu_uuid, kind, layer, phase) REFERENCES item ON DELETE CASCADE
);

-- Per workload: what a scheduler wants to know; the latest session that Succeeded wins.
CREATE TABLE pattern (
    namespace      text NOT NULL,
    workload_kind  text NOT NULL,
    workload_name  text NOT NULL,
    session_uid    text NOT NULL REFERENCES session (uid) ON DELETE CASCADE,
    metric         text NOT NULL,
    mean           double precision,          -- mean of the pods' job averages
    p95            double precision,          -- of the raw samples of their GPUs
    finished_at    timestamptz NOT NULL,
    PRIMARY KEY (namespace, workload_kind, workload_name, metric)
);

CREATE VIEW latest_session AS
SELECT DISTINCT ON (t.namespace, t.workload_kind, t.workload_name)
       t.namespace, t.workload_kind, t.workload_name, s.uid AS session_uid
FROM target t
JOIN session s ON s.uid = t.session_uid
WHERE s.phase = 'Succeeded'
  AND EXISTS (SELECT 1 FROM attribution a WHERE a.session_uid = s.uid AND a.pod_uid = t.pod_uid AND a.final)
ORDER BY t.namespace, t.workload_kind, t.workload_name, s.finished_at DESC NULLS LAST, s.uid;

-- Exactly the columns of Table II of the paper (docs/results.md), in its order: one row per pod, layer and phase.
-- Where a pod has several GPUs, the mean over those for which the value is known.
CREATE VIEW result AS
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

-- The same and everything else, one row per item and metric.
CREATE VIEW result_detail AS
SELECT s.namespace, s.name AS session, s.uid AS session_uid, s.phase AS session_phase,
       t.workload_kind, t.workload_name, t.pod_name, t.pod_uid, t.node, i.gpu_uuid,
       i.kind, i.layer, i.phase, i.type, i.parameters, i.calls, i.total_ns, i.windows AS data_num,
       i.total_ns / 1e6 / nullif(a.step_count, 0) AS ms_per_step, i.share,
       e.metric, e.mean, e.stderr, e.windows, e.method, e.source,
       e.group_name, e.group_mean, e.group_stderr, e.reason,
       a.lag_ns, a.lag_stderr_ns, a.window_ns, a.revision, a.final,
       EXISTS (SELECT 1 FROM latest_session l WHERE l.session_uid = s.uid AND l.namespace = t.namespace
               AND l.workload_kind = t.workload_kind AND l.workload_name = t.workload_name) AS latest
FROM item i
JOIN attribution a USING (session_uid, pod_uid, gpu_uuid)
JOIN target t USING (session_uid, pod_uid)
JOIN session s ON s.uid = t.session_uid
LEFT JOIN estimate e ON e.session_uid = i.session_uid AND e.pod_uid = i.pod_uid AND e.gpu_uuid = i.gpu_uuid
                    AND e.kind = i.kind AND e.layer = i.layer AND e.phase = i.phase;
