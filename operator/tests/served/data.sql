-- What the tests read: two namespaces that share names (`a` and `b`), with texts that programs trip over, values that are
-- not known, and extremes; and one with a large session (`large`). All sessions have ended, so that the operator leaves
-- them alone.

CREATE TABLE hostile AS SELECT row_number() OVER () - 1 AS n, t AS name FROM unnest(ARRAY[
    '', ' ', 'plain', 'a.b.c', '<script>alert(1)</script>', 'quote"back\slash/''single''', E'tab\tline\nreturn\rbell\x07',
    E'\x01\x1b[31mred\x7f', 'ünïcödé 層 🜁', E'\u202Eright to left\u2066', E'zero\u200Bwidth\uFEFF', '%s%n%d%00%2e%2e/',
    '../../../etc/passwd', '{"json": [1, null]}', 'null', 'NaN', '&amp;=?#', '''; DROP TABLE session; --', E'\uFFFD\U0010FFFF',
    repeat('x', 512), repeat('é', 256), '\u0000', 'continue', E'  \n  '
]) AS t;

INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, first_step_ns, last_step_ns, finished_at)
SELECT ns || '-' || name || '-' || n, ns, name, spec::jsonb, 'Auto', phase, at::timestamptz, first, last, at::timestamptz + interval '1 hour'
FROM unnest('{a,b,large}'::text[]) ns CROSS JOIN (VALUES
    ('dlrm', 1, '{"duration": "2m"}', 'Failed', '2026-01-01', NULL::bigint, NULL::bigint),
    ('dlrm', 2, '{"duration": "2m", "nested": {"a": [1, 2.5, null, "é\"\\"]}}', 'Succeeded', '2026-01-03', 1769000000000000001,
     1769000060000000000),
    ('empty', 1, '{}', 'Succeeded', '2026-01-02 03:04:05.678901', 0, 9223372036854775807),
    ('hostile', 1, '{}', 'Succeeded', '2026-01-04', 1, 1)) s (name, n, spec, phase, at, first, last);
-- Only one of the two has it.
INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, finished_at)
VALUES ('b-secret-1', 'b', 'secret', '{}', 'Auto', 'Succeeded', '2026-01-05', '2026-01-06');

INSERT INTO target (session_uid, pod_uid, namespace, pod_name, workload_kind, workload_name, node, host_name, ip, container, steps)
SELECT s.uid, 'p-' || n, s.namespace, s.name || '-' || n, 'Job', s.name, CASE n WHEN 0 THEN 'node-1' END,
       CASE n WHEN 0 THEN '<host>' END, CASE n WHEN 0 THEN '10.0.0.1' END, CASE n WHEN 0 THEN 'main' END, 40
FROM session s CROSS JOIN generate_series(0, 1) n WHERE s.name <> 'empty';
INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock, kernel_steps, wait_steps, copy_steps, rank)
SELECT session_uid, pod_uid, 'agent', 0, '{GPU-a}', 'kernels', k, k, k, substr(pod_uid, 3)::int
FROM target CROSS JOIN LATERAL (SELECT CASE pod_uid WHEN 'p-0' THEN 3 ELSE 0 END AS k) k; -- 0: no steps to divide by
INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, observed_ns, step_count, truncated,
                         step_ns, gap_ns, counted_steps, counted_ns, captures, first_step_ns, lag_ns)
SELECT session_uid, pod_uid, 'GPU-a', 4, true, 10, 10, 1000000000, CASE pod_uid WHEN 'p-0' THEN 7 ELSE 0 END, false,
       CASE pod_uid WHEN 'p-0' THEN 900000000 END, CASE pod_uid WHEN 'p-0' THEN 100000000 END, CASE pod_uid WHEN 'p-0' THEN 11 END,
       CASE pod_uid WHEN 'p-0' THEN 1300000007 END, CASE pod_uid WHEN 'p-0' THEN 2 END,
       CASE pod_uid WHEN 'p-0' THEN 1769000000000000001 END, NULL FROM target;

-- 1,200 rows in `large`, with six metrics each; texts of all kinds elsewhere.
INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, calls, total_ns, share, windows, busy_ns, idle_share)
SELECT 'large-dlrm-2', 'p-0', 'GPU-a', 'layer', 'blocks.' || k || '.linear', p, 'Linear', 1024 * k, 7, 123456789 + k, 0.001, 5,
       1000 + k, 1.0 / 3
FROM generate_series(1, 400) k CROSS JOIN unnest('{forward,backward,optimizer}'::text[]) p;
INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, calls, total_ns, share, windows, busy_ns, idle_share)
SELECT t.session_uid, t.pod_uid, 'GPU-a', 'layer', h.name, 'forward', CASE WHEN h.n % 2 = 0 THEN h.name END,
       CASE WHEN h.n % 3 = 0 THEN 9223372036854775807 END, 7, 9007199254740993 + h.n, 'NaN'::float8 * (h.n % 2), 5,
       CASE WHEN h.n % 2 = 0 THEN 1000 + h.n END, CASE WHEN h.n % 2 = 0 THEN '-Infinity'::float8 END
FROM target t CROSS JOIN hostile h WHERE t.session_uid IN ('a-dlrm-2', 'b-dlrm-2', 'a-hostile-1', 'b-hostile-1', 'b-secret-1');
INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, stderr, windows, method, source, reason, basis)
SELECT session_uid, pod_uid, gpu_uuid, kind, layer, phase, m, CASE WHEN m <> 'gpu_mem' THEN '0.1'::float8 + '0.2'::float8 END,
       CASE m WHEN 'sm_active' THEN 'NaN'::float8 WHEN 'gpu_util' THEN 'Infinity'::float8 WHEN 'dram_active' THEN 5e-324::float8 END,
       3, 'regression', 'prometheus', CASE WHEN m = 'gpu_mem' THEN 'took no "time" while observed' END, 'busy'
FROM item CROSS JOIN unnest('{sm_active,gpu_util,gpu_mem,dram_active,fp32_active,sm_occupancy}'::text[]) m;
INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, windows, dropped_samples, repeated_samples, judged, explained)
SELECT session_uid, pod_uid, 'GPU-a', m, 9, 0, 0, true, CASE m WHEN 'sm_active' THEN 0.75 END
FROM target CROSS JOIN unnest('{sm_active,gpu_util}'::text[]) m;

INSERT INTO kernel
SELECT t.session_uid, t.pod_uid, 0, h.name, 'forward', coalesce(nullif(repeat(h.name, 1 + 1024 / greatest(octet_length(h.name), 1) / 2), ''),
       'k'), 9, 1000 * h.n FROM target t CROSS JOIN hostile h WHERE octet_length(h.name) < 512 AND t.session_uid LIKE '%-dlrm-2';
INSERT INTO host_wait
SELECT t.session_uid, t.pod_uid, 0, h.name, 'other', left(h.name, 20), h.name, 2147483647, 9, 2, 5000000
FROM target t CROSS JOIN hostile h WHERE t.session_uid LIKE '%-dlrm-2';
INSERT INTO gpu_copy
SELECT t.session_uid, t.pod_uid, 0, h.name, 'data', 'h2d', m, 9, 9223372036854775807, h.n
FROM target t CROSS JOIN hostile h CROSS JOIN unnest('{pageable,pinned}'::text[]) m WHERE t.session_uid LIKE '%-dlrm-2';
INSERT INTO rank (session_uid, pod_uid, process, rank, world_size, steps, step_ns, wait_ns, own_ns, own_stderr_ns)
SELECT session_uid, pod_uid, 0, substr(pod_uid, 3)::int, 2, 9, 1e6, 1e5, 9e5 + substr(pod_uid, 3)::int, CASE pod_uid WHEN 'p-0' THEN 7.5 END
FROM target WHERE session_uid LIKE '%-dlrm-2';
INSERT INTO rank_item
SELECT r.session_uid, r.pod_uid, 0, h.name, p, 2.5, 1e5 + h.n + r.rank FROM rank r CROSS JOIN hostile h
CROSS JOIN unnest('{forward,backward}'::text[]) p WHERE h.n < 20 OR r.rank = 0;
INSERT INTO layer SELECT t.session_uid, t.pod_uid, 'agent', 0, h.n + 1, h.name, 'Linear', 4 FROM target t CROSS JOIN hostile h
WHERE t.session_uid LIKE '%-dlrm-2';
INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, stretch_last, start_ns, end_ns, events, dropped, cost_ns,
                      step_number, step_start, step_duration, step_epoch, step_batch, step_gap, layer, phase, step, start, duration, busy)
SELECT uid, 'p-0', 'agent', n, 0, 1, true, 1000 * n, 1000 * n + 2000, 3, 0, 0, ARRAY[2 * n, 2 * n + 1], ARRAY[1000 * n, 1000 * n + 500],
       '{500,500}', '{0,0}', '{0,1}', '{5,-1}', '{1,0,9}', '{0,2,1}', ARRAY[2 * n, 2 * n, 2 * n + 1],
       ARRAY[1000 * n + 100, 1000 * n + 200, 1000 * n + 700], '{50,60,70}', '{40,-1,70}'
FROM unnest('{a-dlrm-2,b-dlrm-2,large-dlrm-2}'::text[]) uid CROSS JOIN generate_series(1, 200) n;

INSERT INTO pattern (namespace, workload_kind, workload_name, object_name, session_uid, sessions, gpus, first_at, last_at, bound, lead,
                     lead_stderr, steps, undisturbed, busy, step_ns, step_ns_stderr, step_sd_ns, idle, idle_stderr, models, model_digests,
                     batches, sessions_of_other_models)
SELECT ns, 'Job', w, 'job-' || w, ns || '-dlrm-2', 2, 3, '2026-01-01', '2026-01-02', 'Memory', 0.1, NULL, 400, true, true, 1e7 / 3, 1234.5,
       NULL, 'NaN', 0.01, '{"",<b>}', '{"",0123456789abcdef}', '{"",8x16 float32}', 4
FROM unnest('{a,b}'::text[]) ns CROSS JOIN unnest('{one,two,three}'::text[]) w;
INSERT INTO pattern SELECT namespace, workload_kind, 'secret', 'job-secret', session_uid, sessions, gpus, first_at, last_at, bound, lead,
       lead_stderr, steps, undisturbed, busy, step_ns, step_ns_stderr, step_sd_ns, idle, idle_stderr, models, model_digests, batches,
       sessions_of_other_models FROM pattern WHERE namespace = 'b' AND workload_name = 'one';
INSERT INTO pattern_metric SELECT namespace, 'Job', workload_name, m, 'layers', 1.0 / 3, 'Infinity', 0.5, NULL, NULL, NULL, NULL,
       ARRAY[0.1, 1.0 / 3, 'NaN'] FROM pattern CROSS JOIN unnest('{sm_active,gpu_util}'::text[]) m;
INSERT INTO pattern_share SELECT p.namespace, 'Job', p.workload_name, 'layer', h.name, 0.01 * h.n, NULL FROM pattern p CROSS JOIN hostile h;
INSERT INTO pattern_share SELECT namespace, 'Job', workload_name, 'bound', 'Memory', 'NaN', 0.01 FROM pattern;
DROP TABLE hostile;
