-- What fine sampling told of a process, all of it by now: solutions are made with it.

CREATE TABLE fine (
    session_uid    text NOT NULL,
    pod_uid        text NOT NULL,
    instance       text NOT NULL,             -- the agent process that saw it
    process        integer NOT NULL,
    gpu_uuid       text NOT NULL,
    seq            bigint NOT NULL,           -- of the batch that told it; a later one replaces it
    kernel_count   bigint NOT NULL,           -- kernels that ran while the GPU was sampled
    sources        text[] NOT NULL,           -- of SMActive, SMOccupancy, DRAMActive and FP32Active; '' : not offered
    layer          integer[] NOT NULL,        -- as in activity, as phase
    phase          smallint[] NOT NULL,
    kernels        bigint[] NOT NULL,
    mean           bigint[] NOT NULL,         -- millionths, -1 where not known: four for each layer and phase
    stderr         bigint[] NOT NULL,
    PRIMARY KEY (session_uid, pod_uid, instance, process),
    FOREIGN KEY (session_uid, pod_uid) REFERENCES target ON DELETE CASCADE
);
