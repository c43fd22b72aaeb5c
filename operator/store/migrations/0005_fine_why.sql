-- Why fine sampling told nothing, or nothing more, of a process.

ALTER TABLE process
    ADD COLUMN fine text;                     -- why its GPU was not sampled; NULL: nothing is known of that
