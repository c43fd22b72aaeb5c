-- A session of a model with 1,200 layers, each forward and backward, with the eight metrics that a session has by default.
SET session_replication_role = replica;
CREATE TEMP TABLE parts AS
SELECT 'layer' AS kind, format('model.layers.%s.%s', l / 12, (ARRAY['input_layernorm', 'self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj',
       'self_attn.rotary_emb', 'self_attn.o_proj', 'post_attention_layernorm', 'mlp.gate_proj', 'mlp.up_proj', 'mlp.act_fn', 'mlp.down_proj',
       'mlp.dropout'])[1 + l % 12]) AS layer, phase, l FROM generate_series(0, 1199) l, (VALUES ('forward'), ('backward')) v (phase)
UNION ALL SELECT v.kind, '', '', 0
FROM (VALUES ('optimizer'), ('zero_grad'), ('data'), ('communication'), ('other'), ('idle'), ('job')) v (kind);
CREATE TEMP TABLE metrics AS SELECT name FROM metric ORDER BY sampled NULLS LAST, name LIMIT 8;

INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, first_step_ns, last_step_ns, finished_at)
VALUES ('large', 'ml', 'large', '{"duration": "120s"}', 'Auto', 'Succeeded', '2026-01-01', 1767225600000000000, 1767225720000000000, '2026-01-01 00:03');
INSERT INTO target (session_uid, pod_uid, namespace, pod_name, container, node, host_name, ip, workload_kind, workload_name,
                    cpu_request, events, steps, cost_ns, batches, first_ns, last_ns, observed_first_ns, observed_last_ns)
VALUES ('large', 'pod', 'ml', 'large-0', 'train', 'node', 'large-0', '10.0.0.1', 'Job', 'large', 8, 20000, 200, 1000000, 10, 1767225600000000000,
        1767225720000000000, 1767225600000000000, 1767225720000000000);
INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, lag_ns, lag_stderr_ns, window_ns,
                         observed_ns, step_count, step_mean_ns, truncated, step_ns, gap_ns, counted_steps, counted_ns, captures,
                         first_step_ns, last_step_ns)
VALUES ('large', 'pod', 'GPU-1', 4, true, 480, 3840, 1000000, 1000, 250000000, 120000000000, 200, 5e8, false, 100000000000, 10000000000, 40,
        19000000000, 3, 1767225600000000000, 1767225720000000000);
INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, r2, noise, closure, windows, dropped_samples, repeated_samples, judged,
                 explained, miss, expected_miss, items, items_z)
SELECT 'large', 'pod', 'GPU-1', name, 0.9, 0.01, 0.001, 480, 0, 0, true, 0.9, 0.01, 0.01, 100, 1 FROM metrics;
INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, calls, total_ns, share, windows, busy_ns, idle_share)
SELECT 'large', 'pod', 'GPU-1', kind, layer, phase, CASE kind WHEN 'layer' THEN 'Linear' END, 1048576, 200, 10000000 + l * 7 % 1200 * 50000,
       0.0003 + l * 7 % 1200 * 1e-7, 480, 9000000 + l, 0.1 FROM parts;
INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, stderr, windows, method, source, basis)
SELECT 'large', 'pod', 'GPU-1', kind, layer, phase, name, (1 + l % 90) / 100.0, 0.01, 24, 'sampling', 'prometheus', 'busy' FROM parts, metrics;
