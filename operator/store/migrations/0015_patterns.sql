-- How each GPU of a session was used, and what its workload is like by its sessions (docs/patterns.md).
-- Every figure has its standard error; NULL: it is not known.
ALTER TABLE process
    ADD COLUMN model_digest text,              -- of its modules and parameters; '' or NULL: not known, as of the next one
    ADD COLUMN batch text;                     -- shapes of what it is trained with, as 64x3x224x224 float32
CREATE TABLE usage (
    session_uid     text NOT NULL,
    pod_uid         text NOT NULL,
    gpu_uuid        text NOT NULL,
    steps           bigint NOT NULL,           -- that the step's time is of
    undisturbed     boolean NOT NULL,          -- nothing was marked in these
    busy            boolean NOT NULL,          -- shares are of time in which kernels ran; else of elapsed time
    step_ns         double precision,
    step_ns_stderr  double precision,
    step_sd_ns      double precision,          -- from step to step
    idle            double precision,          -- share of a step in which no kernel ran
    idle_stderr     double precision,
    models          text[] NOT NULL,           -- that were trained: class of each; '' where it is not known, as of the others
    model_digests   text[] NOT NULL,           -- of its modules and parameters
    batches         text[] NOT NULL,           -- shapes of what it was trained with
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid),
    FOREIGN KEY (session_uid, pod_uid, gpu_uuid) REFERENCES attribution ON DELETE CASCADE
);
CREATE TABLE usage_metric (
    session_uid     text NOT NULL,
    pod_uid         text NOT NULL,
    gpu_uuid        text NOT NULL,
    metric          text NOT NULL,
    source          text NOT NULL,             -- layers, windows
    mean            double precision,
    mean_stderr     double precision,
    p50             double precision,
    p50_stderr      double precision,
    p95             double precision,
    p95_stderr      double precision,
    most            double precision,          -- of a level
    profile         double precision[],        -- means over parts of a step, of equal length
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid, metric),
    FOREIGN KEY (session_uid, pod_uid, gpu_uuid) REFERENCES usage ON DELETE CASCADE
);
CREATE TABLE usage_share (
    session_uid     text NOT NULL,
    pod_uid         text NOT NULL,
    gpu_uuid        text NOT NULL,
    kind            text NOT NULL,             -- bound; layer: by its type; phase: time that is no layer's
    name            text NOT NULL,             -- Memory, Launch, ...; Linear, ...; optimizer, ...; '': types not told apart
    share           double precision NOT NULL, -- of a step
    share_stderr    double precision,
    PRIMARY KEY (session_uid, pod_uid, gpu_uuid, kind, name),
    FOREIGN KEY (session_uid, pod_uid, gpu_uuid) REFERENCES usage ON DELETE CASCADE
);

-- Until now the job averages and a percentile of the latest session alone.
DROP TABLE pattern;
CREATE TABLE pattern (
    namespace       text NOT NULL,
    workload_kind   text NOT NULL,
    workload_name   text NOT NULL,
    object_name     text NOT NULL,             -- of its ConsumptionPattern
    session_uid     text NOT NULL REFERENCES session (uid) ON DELETE CASCADE, -- the newest of its sessions
    sessions        integer NOT NULL,
    gpus            integer NOT NULL,          -- of all of them
    first_at        timestamptz NOT NULL,      -- when the first of them finished
    last_at         timestamptz NOT NULL,
    bound           text NOT NULL,             -- the bound of the largest share
    lead            double precision NOT NULL, -- by how much it is larger than the next one's
    lead_stderr     double precision,
    steps           bigint NOT NULL,
    undisturbed     boolean NOT NULL,
    busy            boolean NOT NULL,
    step_ns         double precision,
    step_ns_stderr  double precision,
    step_sd_ns      double precision,
    idle            double precision,
    idle_stderr     double precision,
    models          text[] NOT NULL,           -- of the newest session, and of all that it is made of; as of usage, 16 at most
    model_digests   text[] NOT NULL,
    batches         text[] NOT NULL,
    sessions_of_other_models integer NOT NULL, -- that are not part of it
    PRIMARY KEY (namespace, workload_kind, workload_name)
);
CREATE TABLE pattern_metric (
    namespace       text NOT NULL,
    workload_kind   text NOT NULL,
    workload_name   text NOT NULL,
    metric          text NOT NULL,
    source          text NOT NULL,
    mean            double precision,
    mean_stderr     double precision,
    p50             double precision,
    p50_stderr      double precision,
    p95             double precision,
    p95_stderr      double precision,
    most            double precision,
    profile         double precision[],
    PRIMARY KEY (namespace, workload_kind, workload_name, metric),
    FOREIGN KEY (namespace, workload_kind, workload_name) REFERENCES pattern ON DELETE CASCADE
);
CREATE TABLE pattern_share (
    namespace       text NOT NULL,
    workload_kind   text NOT NULL,
    workload_name   text NOT NULL,
    kind            text NOT NULL,
    name            text NOT NULL,
    share           double precision NOT NULL,
    share_stderr    double precision,
    PRIMARY KEY (namespace, workload_kind, workload_name, kind, name),
    FOREIGN KEY (namespace, workload_kind, workload_name) REFERENCES pattern ON DELETE CASCADE
);
CREATE INDEX ON pattern (session_uid);
CREATE UNIQUE INDEX ON pattern (namespace, object_name);
CREATE INDEX ON target (namespace, workload_kind, workload_name);
