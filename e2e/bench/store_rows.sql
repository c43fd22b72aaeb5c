-- What a cluster has left in the store after months: the same at each run. psql variable `sessions`: how many; 2,000 have ten
-- million rows of samples. Of eight namespaces with 50 workloads each; nine of ten sessions are of one pod, one of a hundred of
-- 32, the others of eight; a pod has 50 layers, of which each knows eight metrics.
SET session_replication_role = replica;
SET synchronous_commit = off;
SET max_parallel_workers_per_gather = 0;

CREATE TEMP TABLE made AS
SELECT n, 's-' || lpad(n::text, 6, '0') AS uid, 'ns-' || n % 8 AS namespace, 'job-' || n / 8 % 50 AS workload,
       CASE WHEN n % 97 = 96 THEN 32 WHEN n % 11 = 10 THEN 8 ELSE 1 END AS pods,
       timestamptz '2026-01-01' + n * interval '1 hour' AS at, (1767225600 + n * 3600) * 1000000000::bigint AS ns
FROM generate_series(0, :sessions - 1) n;
CREATE TEMP TABLE pods AS
SELECT m.*, p, m.uid || '-p' || lpad(p::text, 2, '0') AS pod, 'GPU-' || (m.n * 7 + p) % 512 AS gpu
FROM made m CROSS JOIN LATERAL generate_series(0, m.pods - 1) p;
CREATE TEMP TABLE parts AS
SELECT 'layer' AS kind, 'model.blocks.' || lpad(l::text, 2, '0') || '.attention' AS layer, phase, l FROM generate_series(1, 50) l,
       (VALUES ('forward'), ('backward')) v (phase)
UNION ALL SELECT v.kind, '', '', 0
FROM (VALUES ('optimizer'), ('zero_grad'), ('data'), ('communication'), ('other'), ('idle'), ('job')) v (kind);
-- The eight that a session has by default.
CREATE TEMP TABLE metrics AS SELECT name FROM metric ORDER BY sampled NULLS LAST, name LIMIT 8;

INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, first_step_ns, last_step_ns, finished_at)
SELECT uid, namespace, workload || '-' || n, '{"duration": "120s"}', 'Auto', CASE WHEN n % 20 = 7 THEN 'Failed' ELSE 'Succeeded' END,
       at, ns, ns + 120000000000, at + interval '3 minutes' FROM made;
INSERT INTO target (session_uid, pod_uid, namespace, pod_name, container, node, host_name, ip, workload_kind, workload_name,
                    cpu_request, events, steps, cost_ns, batches, first_ns, last_ns, observed_first_ns, observed_last_ns)
SELECT uid, pod, namespace, pod, 'train', 'node-' || (n + p) % 64, pod, '10.0.0.1', 'Job', workload, 8, 20000, 200, 1000000, 10, ns,
       ns + 120000000000, ns, ns + 120000000000 FROM pods;
INSERT INTO process (session_uid, pod_uid, instance, process, rank, world_size, gpus, python, torch, clock, model, kernel_steps,
                     wait_steps, copy_steps)
SELECT uid, pod, 'agent', 0, p, pods, ARRAY[gpu], '3.11', '2.6', 'kernels', 'GPT', 200, 200, 200 FROM pods;
INSERT INTO layer (session_uid, pod_uid, instance, process, layer, name, type, parameters)
SELECT uid, pod, 'agent', 0, l, 'model.blocks.' || lpad(l::text, 2, '0') || '.attention', 'Attention', 1048576
FROM pods, generate_series(1, 50) l;
INSERT INTO activity (session_uid, pod_uid, instance, seq, process, stretch, stretch_last, start_ns, end_ns, events, dropped, cost_ns,
                      step_number, step_start, step_duration, step_epoch, step_batch, step_gap, layer, phase, step, start, duration, busy)
SELECT uid, pod, 'agent', b, 0, 1, false, ns + b * 1000000000::bigint, ns + (b + 1) * 1000000000::bigint, 200, 0, 1000,
       ARRAY[2 * b, 2 * b + 1], ARRAY[ns + b * 1000000000::bigint, ns + b * 1000000000::bigint + 500000000], '{500000000,500000000}',
       '{0,0}', ARRAY[2 * b, 2 * b + 1], '{1000,1000}', i.layer, i.phase, i.step, i.start, i.duration, i.duration
FROM pods, generate_series(0, 9) b CROSS JOIN LATERAL (
    SELECT array_agg(1 + k % 50) AS layer, array_agg((k / 50 % 2)::smallint) AS phase, array_agg((2 * b + k / 100)::bigint) AS step,
           array_agg(ns + b * 1000000000::bigint + k * 5000000::bigint) AS start, array_agg((4000000 + k * 1000)::bigint) AS duration
    FROM generate_series(0, 199) k WHERE b >= 0) i;
INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, lag_ns, lag_stderr_ns, window_ns,
                         observed_ns, step_count, step_mean_ns, truncated, step_ns, gap_ns, counted_steps, counted_ns, captures,
                         first_step_ns, last_step_ns)
SELECT uid, pod, gpu, 4, true, 480, 3840, 1000000, 1000, 250000000, 120000000000, 200, 5e8, false, 100000000000, 10000000000, 40,
       19000000000, 3, ns, ns + 120000000000 FROM pods;
INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, r2, noise, closure, windows, dropped_samples, repeated_samples, judged,
                 explained, miss, expected_miss, items, items_z)
SELECT uid, pod, gpu, name, 0.9, 0.01, 0.001, 480, 0, 0, true, 0.9, 0.01, 0.01, 100, 1 FROM pods, metrics;
INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, calls, total_ns, share, windows, busy_ns, idle_share)
SELECT uid, pod, gpu, kind, layer, phase, CASE kind WHEN 'layer' THEN 'Attention' END, 1048576, 200, 1000000000 + l * 1000000, 0.009,
       480, 900000000, 0.1 FROM pods, parts;
INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, stderr, windows, method, source, basis)
SELECT uid, pod, gpu, kind, layer, phase, name, (l + n % 40) / 100.0, 0.01, 24, 'sampling', 'prometheus', 'busy'
FROM pods, parts, metrics;
INSERT INTO sample (session_uid, pod_uid, gpu_uuid, layer, phase, first_ns, last_ns, windows, share, gpu_util, gpu_mem, dram_active,
                    fp32_active, sm_occupancy, sm_active)
SELECT uid, pod, gpu, layer, CASE kind WHEN 'layer' THEN phase ELSE kind END, ns + w * 5000000000::bigint, ns + w * 5000000000::bigint + 4750000000,
       20, 0.009, 90 + (w + l) % 10, 40000, 0.3 + w * 0.01, 0.2, 0.5, 0.6 + (l + w) % 30 * 0.01
FROM pods, parts, generate_series(0, 24) w WHERE kind <> 'job' ORDER BY uid, pod, gpu, layer, 5, 6;
INSERT INTO kernel (session_uid, pod_uid, process, layer, phase, name, count, ns)
SELECT uid, pod, 0, layer, CASE kind WHEN 'layer' THEN phase ELSE kind END, 'void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_' || k || '>', 200,
       1000000 * (l + k + 1) FROM pods, parts, generate_series(1, 4) k WHERE kind NOT IN ('idle', 'job');
INSERT INTO host_wait (session_uid, pod_uid, process, layer, phase, call, file, line, count, steps, ns)
SELECT uid, pod, 0, '', 'other', 'item', '/app/train.py', k, 200, 200, 1000000 * k FROM pods, generate_series(1, 20) k;
INSERT INTO gpu_copy (session_uid, pod_uid, process, layer, phase, type, memory, count, bytes, ns)
SELECT uid, pod, 0, layer, phase, 'd2d', '', 200, 1048576, 1000000 * (l + 1) FROM pods, parts WHERE kind = 'layer' AND l <= 10;
INSERT INTO rank (session_uid, pod_uid, process, rank, world_size, steps, step_ns, wait_ns, own_ns, own_stderr_ns)
SELECT uid, pod, 0, p, pods, 200, 5e8, 1e7, 4.9e8 + p * 1e5, 1e5 FROM pods WHERE pods > 1;
INSERT INTO rank_item (session_uid, pod_uid, process, layer, phase, calls, ns)
SELECT uid, pod, 0, layer, phase, 1, 5e6 + p * 1e4 FROM pods, parts WHERE pods > 1 AND kind = 'layer';
INSERT INTO usage (session_uid, pod_uid, gpu_uuid, steps, undisturbed, busy, step_ns, step_ns_stderr, step_sd_ns, idle, idle_stderr,
                   models, model_digests, batches)
SELECT uid, pod, gpu, 40, true, true, 4.75e8, 1e6, 1e7, 0.1, 0.01, '{GPT}', '{abc}', '{8x1024 int64}' FROM pods;
INSERT INTO usage_metric (session_uid, pod_uid, gpu_uuid, metric, source, mean, mean_stderr, p50, p50_stderr, p95, p95_stderr)
SELECT uid, pod, gpu, name, 'layers', 0.5, 0.01, 0.5, 0.01, 0.8, 0.02 FROM pods, metrics;
INSERT INTO usage_share (session_uid, pod_uid, gpu_uuid, kind, name, share, share_stderr)
SELECT uid, pod, gpu, kind, name, 0.1, 0.01 FROM pods, (VALUES ('bound', 'Memory'), ('bound', 'Tensor'), ('bound', 'Launch'),
    ('layer', 'Attention'), ('layer', 'Linear'), ('phase', 'optimizer')) v (kind, name);
INSERT INTO pattern (namespace, workload_kind, workload_name, object_name, session_uid, sessions, gpus, first_at, last_at, bound, lead,
                     lead_stderr, steps, undisturbed, busy, step_ns, idle, models, model_digests, batches, sessions_of_other_models)
SELECT DISTINCT ON (namespace, workload) namespace, 'Job', workload, 'job-' || workload, uid, 5, 5, at, at, 'Memory', 0.2, 0.01, 200, true,
       true, 4.75e8, 0.1, ARRAY['GPT'], ARRAY['abc'], ARRAY['8x1024 int64'], 0 FROM made ORDER BY namespace, workload, n DESC;
INSERT INTO pattern_metric (namespace, workload_kind, workload_name, metric, source, mean)
SELECT namespace, 'Job', workload_name, name, 'layers', 0.5 FROM pattern, metrics;
INSERT INTO pattern_share (namespace, workload_kind, workload_name, kind, name, share)
SELECT namespace, 'Job', workload_name, 'bound', v.name, 0.1 FROM pattern, (VALUES ('Memory'), ('Tensor'), ('Launch')) v (name);
-- As Prometheus had them, for the newest sessions.
SELECT FROM (SELECT metric_sample_partitions(min(ns), max(ns) + 120000000000) FROM (SELECT ns FROM made ORDER BY n DESC LIMIT 100) m) made;
INSERT INTO metric_sample (gpu_uuid, metric, source, at_ns, value)
SELECT gpu, name, 'prometheus', ns + w * 1000000000::bigint, 0.5
FROM (SELECT * FROM pods WHERE n >= :sessions - 100) p, metrics, generate_series(0, 119) w ON CONFLICT DO NOTHING;
RESET session_replication_role;
VACUUM ANALYZE;
