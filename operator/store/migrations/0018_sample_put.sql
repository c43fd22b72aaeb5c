-- Raw samples, parallel arrays; `gpu` and `metric` are places in `gpus` and `metrics`, from 0 on. Those that are there stay. Mostly
-- none is, and ON CONFLICT takes twice as long to find that out: it is for those that come again.
CREATE FUNCTION metric_sample_put(gpus text[], metrics text[], gpu integer[], metric integer[], at_ns bigint[],
                                  value double precision[], source text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO metric_sample (gpu_uuid, metric, source, at_ns, value)
    SELECT gpus[s.gpu + 1], metrics[s.metric + 1], $7, s.at_ns, s.value
    FROM unnest($3, $4, $5, $6) AS s (gpu, metric, at_ns, value);
EXCEPTION
    WHEN unique_violation THEN
        INSERT INTO metric_sample (gpu_uuid, metric, source, at_ns, value)
        SELECT gpus[s.gpu + 1], metrics[s.metric + 1], $7, s.at_ns, s.value
        FROM unnest($3, $4, $5, $6) AS s (gpu, metric, at_ns, value)
        ON CONFLICT DO NOTHING;
END $$;
