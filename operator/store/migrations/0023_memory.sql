-- What torch's CUDA allocator had allocated while each layer's phase ran (docs/timing.md), in single steps of a session.
ALTER TABLE activity                           -- of a batch that tells it; else NULL
    ADD COLUMN memory_steps bigint,
    ADD COLUMN memory_layer integer[],
    ADD COLUMN memory_phase smallint[],
    ADD COLUMN memory_peak bigint[],           -- bytes, the most
    ADD COLUMN memory_left bigint[];           -- bytes at its ends less those at its begins, of all the steps
ALTER TABLE item
    ADD COLUMN memory_peak_bytes bigint,       -- the most; NULL: not known, as the next
    ADD COLUMN memory_live_bytes bigint;       -- that it leaves allocated in a step
-- (result_detail has them with its next columns, in 0025.)
