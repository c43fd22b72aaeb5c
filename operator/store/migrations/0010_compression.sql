-- A batch's arrays are compressed by lz4 where the server has it: pglz, the default, took three times as long for a
-- batch as all else together. What was stored before stays as it is, and is read all the same.
DO $$
DECLARE
    name name;
BEGIN
    IF EXISTS (SELECT FROM pg_settings s WHERE s.name = 'default_toast_compression' AND 'lz4' = ANY (s.enumvals)) THEN
        FOR name IN
            SELECT attname FROM pg_attribute
            WHERE attrelid = 'activity'::regclass AND attnum > 0 AND NOT attisdropped AND attstorage = 'x'
        LOOP
            EXECUTE format('ALTER TABLE activity ALTER COLUMN %I SET COMPRESSION lz4', name);
        END LOOP;
    END IF;
END
$$;
