-- Whose clock stamps are on (docs/clocks.md): all of `activity` and of `target` are on the operator's.

ALTER TABLE target
    ADD COLUMN began_ns       bigint,         -- its first sampled step, never before the session; NULL: first_ns
    ADD COLUMN clock_ahead_ns bigint,         -- the node's clock less the operator's, as measured last; NULL: not known
    ADD COLUMN clock_bound_ns bigint,         -- it is within this of clock_ahead_ns
    ADD COLUMN clock_shift_ns bigint NOT NULL DEFAULT 0; -- taken out of the stamps of its latest batch

ALTER TABLE activity
    ADD COLUMN clock_shift_ns bigint;         -- the same, of this batch: add it to have the node's own stamps; NULL: 0

ALTER TABLE session
    ADD COLUMN prometheus_ahead_ns bigint,    -- Prometheus' clock less the operator's, as measured last; NULL: not known
    ADD COLUMN prometheus_bound_ns bigint,
    ADD COLUMN prometheus_shift_ns bigint NOT NULL DEFAULT 0; -- taken out of the stamps of metric_sample
