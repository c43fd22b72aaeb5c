-- What each GPU is, and what its units do per second of what they can at most, over a step and while they bound it
-- (docs/patterns.md): evidence of a bound, and what keeps unlike GPUs out of one pattern.
ALTER TABLE process
    ADD COLUMN gpu_model text;                 -- of its one GPU, as its driver calls it; NULL: not known
ALTER TABLE usage
    ADD COLUMN gpu_model text,                 -- the same
    ADD COLUMN chip bigint[];                  -- as of process; NULL: not known
ALTER TABLE usage_metric                       -- NULL: not known, or a metric that has no peak
    ADD COLUMN achieved double precision,      -- in the metric's peak_unit, over a step
    ADD COLUMN achieved_stderr double precision,
    ADD COLUMN peak double precision;          -- at the highest clock
ALTER TABLE usage_share
    ADD COLUMN achieved double precision,      -- of a bound by Tensor, FP32 or Memory: the unit's, over the time that is so bound
    ADD COLUMN achieved_stderr double precision;
ALTER TABLE pattern
    ADD COLUMN gpu_model text,
    ADD COLUMN sessions_on_other_gpus integer NOT NULL DEFAULT 0; -- of the same models; they are not part of it
ALTER TABLE pattern_metric
    ADD COLUMN achieved double precision,
    ADD COLUMN achieved_stderr double precision,
    ADD COLUMN peak double precision;
ALTER TABLE pattern_share
    ADD COLUMN achieved double precision,
    ADD COLUMN achieved_stderr double precision;

-- Sessions of earlier releases go on with those to come where the GPU is the same.
UPDATE usage u SET chip = (SELECT p.chip FROM process p WHERE p.session_uid = u.session_uid AND p.pod_uid = u.pod_uid
                           AND p.chip IS NOT NULL AND (u.gpu_uuid = ANY (p.gpus) OR (u.gpu_uuid = '' AND p.gpus = '{}'))
                           ORDER BY p.instance COLLATE "C", p.process LIMIT 1);
