-- Layers that are replayed by themselves while the training waits (docs/isolated.md).

ALTER TABLE process
    ADD COLUMN isolated text,                 -- why its layers are not replayed; '' or NULL: they are, or need not be
    ADD COLUMN replays bigint NOT NULL DEFAULT 0,   -- of layers, stored
    ADD COLUMN paused_ns bigint NOT NULL DEFAULT 0, -- the training was held for them
    ADD COLUMN replaying boolean NOT NULL DEFAULT false; -- its latest batch is of replays

-- Why it is not replayed, by the numbers of pp_left_out in sidecar/ring.h; NULL: no reason.
ALTER TABLE layer
    ADD COLUMN forward_left_out smallint,
    ADD COLUMN backward_left_out smallint;

-- Rows with a dwell are none of the training: they have no steps, and are in no count of steps or events.
ALTER TABLE activity
    ADD COLUMN dwell bigint,                  -- number of the stretch of replays; NULL: the training's
    ADD COLUMN background boolean;            -- of a dwell: its layer was not run

-- Whether values of replays, and one of all that is left, reproduce windows of the training that were held out.
ALTER TABLE fit
    ADD COLUMN held double precision,            -- mean of those windows; NULL: none were
    ADD COLUMN held_difference double precision, -- what the values say of them, less that
    ADD COLUMN held_windows bigint;
