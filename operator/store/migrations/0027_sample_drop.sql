-- A day is dropped where nobody reads it, or the whole table: while the drop waits for a lock, all that comes after it waits, too. So
-- it does not wait for long, and what is left is tried again at the next call. Longer than deadlock_timeout (1 s), by which an
-- autovacuum gives way.
DO $do$
BEGIN
    EXECUTE format($body$
        CREATE OR REPLACE FUNCTION %1$s.metric_sample_drop(before_ns bigint, max_parts integer) RETURNS bigint
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $f$
        DECLARE
            part text;
            dropped bigint := 0;
        BEGIN
            IF NOT pg_try_advisory_xact_lock(7738142, 1) THEN
                RETURN 0;                     -- days are being made
            END IF;
            FOR part IN
                -- Apart, or names of other relations may be taken for numbers: which comes first is the planner's choice.
                WITH parts AS MATERIALIZED (
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent = '%1$s.metric_sample'::regclass)
                SELECT p.relname FROM parts p
                WHERE (substr(p.relname, 15)::bigint + 1) * 86400000000000 <= before_ns
                ORDER BY substr(p.relname, 15)::bigint LIMIT max_parts
            LOOP
                BEGIN
                    EXECUTE format('DROP TABLE %1$s.%%I', part);
                EXCEPTION
                    WHEN lock_not_available THEN
                        RETURN dropped;
                END;
                dropped := dropped + 1;
            END LOOP;
            RETURN dropped;
        END $f$;
        $body$, quote_ident(current_schema()));
END $do$;
