-- Rows of `sample` stand for runs of windows: with each metric's mean over them there is, from here on, that weighted by the share
-- which the layer took of each, in the metric's name with `_by_share`; NULL in rows that were made before.
DO $do$
BEGIN
    EXECUTE format($body$
        CREATE OR REPLACE FUNCTION %1$s.metric_columns() RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
        DECLARE
            missing text;
        BEGIN
            FOR missing IN
                SELECT m.name || kind FROM %1$s.metric m, unnest('{"",_by_share}'::text[]) kind
                WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = '%1$s.sample'::regclass
                                  AND a.attname = m.name || kind AND NOT a.attisdropped)
            LOOP
                EXECUTE format('ALTER TABLE %1$s.sample ADD COLUMN %%I double precision', missing);
            END LOOP;
        END $f$;
        $body$, quote_ident(current_schema()));
END $do$;

ALTER TABLE attribution
    ADD COLUMN samples_spread double precision;  -- how far windows are from their rows: root mean square, as a share of a metric's
                                                 -- range, of the item and metric where it is most; NULL: not known
