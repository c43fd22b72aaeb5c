/*
 * Workloads at /metrics, read from a Postgres of its own, which the CTest fixture starts: what is
 * exported is what the views say, and goes with what it is of. Leaves its database, and the text in
 * the file PP_EXPOSITION, to those who ask both questions (charts/tests/dashboards.py).
 */
#include "operator/workloads/workload_metrics.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/time.h"
#include "operator/tests/test_database.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/*
 * Three workloads: dlrm, of two GPUs, in an older session and in the newest; gpt, of one; and one
 * whose pod named no GPU. l0002 has time on one GPU alone. The session s-failed has Failed.
 */
static const char data_sql[] =
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, finished_at) "
    "SELECT 's-' || n, CASE n WHEN 'gpt' THEN 'nlp' ELSE 'ml' END, n, "
    " CASE n WHEN 'new' THEN '{\"overheadBudgetPercent\": 2}' ELSE '{}' END::jsonb, 'Auto', "
    " CASE n WHEN 'failed' THEN 'Failed' ELSE 'Succeeded' END, '2026-01-01', "
    " '2026-01-02'::timestamptz + i * interval '1 hour' "
    " FROM unnest('{old,new,gpt,cpu,failed}'::text[]) WITH ORDINALITY AS u (n, i);"
    "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, node, workload_kind, "
    " workload_name, cost_ns) SELECT 's-' || s, 'p-' || s || p, CASE s WHEN 'gpt' THEN 'nlp' "
    "  ELSE 'ml' END, s || '-' || p, 'node-1', 'Job', CASE WHEN s IN ('old', 'new') THEN 'dlrm' "
    "  ELSE s END, 30000000 FROM unnest('{old,new,gpt,cpu,failed}'::text[]) s, "
    " generate_series(0, 1) p WHERE p = 0 OR s IN ('old', 'new');"
    "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, "
    " observed_ns, step_count, truncated, step_ns, gap_ns, counted_steps, counted_ns, captures, "
    " first_step_ns, last_step_ns) SELECT session_uid, pod_uid, CASE workload_name WHEN 'cpu' "
    "  THEN '' ELSE 'GPU-' || pod_name END, 4, true, 10, 10, 1000000000, 7, false, 900000007, "
    " 100000000, 11, 1300000007, 2, 1769000000000000001, 1769000900000000001 FROM target;"
    "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, "
    "calls, "
    " total_ns, share, windows, busy_ns, idle_share) SELECT session_uid, pod_uid, gpu_uuid, "
    " 'layer', 'l' || to_char(k, 'FM0000'), p, 'Linear', 10, 7, 700003 * (31 - k), "
    " (31 - k) / 1000.0, 5, 600000 * (31 - k), 0.1 FROM attribution, generate_series(0, 29) k, "
    " unnest('{forward,backward}'::text[]) p WHERE k <> 2 OR pod_uid NOT LIKE '%1';"
    "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, calls, total_ns, share, "
    " windows, busy_ns) SELECT a.session_uid, a.pod_uid, a.gpu_uuid, k, '', '', 7, CASE k "
    "  WHEN 'other' THEN a.step_ns - 50000000 - (SELECT sum(total_ns) FROM item i "
    "   WHERE i.session_uid = a.session_uid AND i.pod_uid = a.pod_uid) ELSE 50000000 END, "
    " 0.05, 5, NULL FROM attribution a, unnest('{optimizer,other,idle,job}'::text[]) k;"
    "INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, "
    " stderr, windows, method, source, reason, basis) SELECT session_uid, pod_uid, gpu_uuid, kind, "
    " layer, phase, m, CASE WHEN m = 'gpu_util' THEN 100 ELSE 1 END * total_ns / 1e9 / 7, 0.01, 3, "
    " 'regression', 'prometheus', NULL, 'busy' FROM item, "
    " unnest('{sm_active,gpu_util,gpu_mem}'::text[]) m WHERE layer <> 'l0001';"
    "INSERT INTO usage (session_uid, pod_uid, gpu_uuid, steps, undisturbed, busy, step_ns, "
    " step_ns_stderr, step_sd_ns, idle, idle_stderr, models, model_digests, batches) "
    "SELECT session_uid, pod_uid, gpu_uuid, 11, true, true, "
    " counted_ns / 11::float8 * CASE session_uid WHEN 's-old' THEN 0.5 ELSE 1 END, 1e5, 2e6, 0.1, "
    " 0.01, '{Net}', '{\"\"}', '{\"\"}' FROM attribution;"
    "INSERT INTO usage_metric SELECT session_uid, pod_uid, gpu_uuid, m, 'windows', 12.5, 1 "
    " FROM usage, unnest('{sm_active,gpu_util,gpu_mem,power,sm_clock,pcie_tx}'::text[]) m;"
    "INSERT INTO usage_share SELECT session_uid, pod_uid, gpu_uuid, 'bound', b, s, 0.01 FROM "
    "usage, "
    " (VALUES ('Memory', 0.625), ('Launch', 0.375)) v (b, s);"
    "INSERT INTO usage_share SELECT session_uid, pod_uid, gpu_uuid, 'layer', 'Linear', 0.75, 0.01 "
    " FROM usage;"
    "INSERT INTO pattern (namespace, workload_kind, workload_name, object_name, session_uid, "
    " sessions, gpus, first_at, last_at, bound, lead, steps, undisturbed, busy, step_ns, idle, "
    " models, model_digests, batches, sessions_of_other_models) "
    " SELECT 'ml', 'Job', 'dlrm', 'job-dlrm', 's-new', 2, 4, '2026-01-02', '2026-01-03', 'Memory', "
    " 0.25, 22, true, true, 1.2e8, 0.1, '{Net}', '{\"\"}', '{\"\"}', 0;"
    "INSERT INTO pattern_metric SELECT 'ml', 'Job', 'dlrm', metric, source, mean, mean_stderr "
    " FROM usage_metric WHERE pod_uid = 'p-new0';"
    "INSERT INTO pattern_share SELECT 'ml', 'Job', 'dlrm', kind, name, share, share_stderr "
    " FROM usage_share WHERE pod_uid = 'p-new0';"
    "UPDATE usage_share SET name = 'Latency' WHERE pod_uid = 'p-new1' AND name = 'Launch';"
    "INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, windows, dropped_samples, "
    " repeated_samples, judged, explained) SELECT session_uid, pod_uid, gpu_uuid, 'sm_active', 9, "
    " 0, 0, true, 0.75 FROM attribution;"
    "INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock, kernel_steps, "
    " wait_steps, copy_steps, rank) SELECT 's-new', 'p-new' || n, 'agent', 0, '{GPU-a}', "
    " 'kernels', 3, 3, 3, n FROM generate_series(0, 1) n;"
    "INSERT INTO kernel SELECT 's-new', 'p-new0', 0, 'l0000', 'forward', 'gemm' || k, 9, 1000 * k "
    " FROM generate_series(1, 3) k;"
    "INSERT INTO host_wait SELECT 's-new', 'p-new0', 0, '', 'other', 'item', 'train.py', k, 9, 2, "
    " 5000000 FROM generate_series(1, 3) k;"
    "INSERT INTO gpu_copy SELECT 's-new', 'p-new0', 0, '', 'data', 'h2d', k, 9, 4096, 700 "
    " FROM unnest('{pageable,pinned}'::text[]) k;"
    "INSERT INTO rank (session_uid, pod_uid, process, rank, world_size, steps, step_ns, wait_ns, "
    " own_ns) SELECT 's-new', 'p-new' || n, 0, n, 2, 9, 1e6, 1e5, 9e5 + n "
    " FROM generate_series(0, 1) n;";

typedef struct world {
    api_server *api;
    test_database database;
} world;

/* ---- the database ---- */

/** The first cell as a number. */
static double ask(const world *w, const char *sql)
{
    PGresult *r = PQexec(w->database.direct, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK || PQntuples(r) < 1 || PQgetisnull(r, 0, 0))
        fail_msg("%s: %s", sql, PQerrorMessage(w->database.direct));
    const double value = strtod(PQgetvalue(r, 0, 0), NULL);
    PQclear(r);
    return value;
}

/* ---- the operator ---- */

static char reason_status[] =
    "{\"conditions\":[{\"type\":\"Failed\",\"status\":\"True\",\"reason\":"
    "\"Incomplete\",\"message\":\"\"}]}";
static const char *const sessions[] = {"old", "new", "gpt", "cpu", "failed"};
enum { SESSIONS = sizeof sessions / sizeof sessions[0] };

/** The object of one, as the cache has it, or goes. */
static void session(world *w, int i, bool there)
{
    char uid[32];
    char name[32];
    char ns[] = "ml";
    (void)snprintf(uid, sizeof uid, "s-%s", sessions[i]);
    (void)snprintf(name, sizeof name, "%s", sessions[i]);
    const bool failed = strcmp(name, "failed") == 0;
    PP_CLEANUP_JSON json_t *status = json_loads(failed ? reason_status : "{}", 0, NULL);
    const pp_session s = {.uid = uid,
                          .name = name,
                          .namespace_ = ns,
                          .phase = failed ? PP_SESSION_FAILED : PP_SESSION_SUCCEEDED,
                          .completion_ns = (int64_t)(1 + i) * 1000000000,
                          .status = status};
    pp_workload_metrics_session(&w->api->op, there ? NULL : &s, there ? &s : NULL);
}

static void on_key(void *user, const char *key)
{
    (void)user;
    (void)key;
}

static int setup(void **state)
{
    void *api = NULL;
    pp_error err = {0};
    world *w = calloc(1, sizeof *w);
    assert_int_equal(api_server_setup(&api), 0);
    w->api = api;
    pp_operator *op = &w->api->op;
    w->api->config.metrics.workloads = 200;
    w->api->config.metrics.layers = 20;
    w->api->config.retention.interval = INT64_C(600000000000);
    test_database_make(&w->database, "t_workloads", w->api);
    test_database_execute(&w->database, data_sql);
    const pp_workqueue_options queue = {.process = on_key};
    op->queue = pp_workqueue_new(op->loop, &queue, &err);
    assert_int_equal(pp_meters_make(op, &err), 0);
    assert_int_equal(pp_workload_metrics_start(op, &err), 0);
    for (int i = 0; i < SESSIONS; i++)
        session(w, i, true);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    pp_operator *op = &w->api->op;
    void *api = w->api;
    pp_metrics *registry = op->meters.registry;
    pp_workload_metrics_stop(op);
    pp_workload_metrics_done(op);
    pp_workqueue_free(op->queue);
    test_database_done(&w->database, w->api);
    const int left = api_server_teardown(&api);
    pp_metrics_free(registry);
    free(w);
    return left;
}

/* ---- what is exported ---- */

static char *render(const world *w)
{
    pp_buf text;
    pp_error err = {0};
    pp_buf_init(&text, PP_METRICS_MAX_TEXT);
    assert_int_equal(pp_metrics_render(w->api->op.meters.registry, &text, &err), 0);
    return pp_buf_take(&text);
}

typedef struct expected {
    world *w;
    const char *line;
    bool there;
} expected;

static bool is_as_expected(void *user)
{
    const expected *e = user;
    pp_workload_metrics_tick(&e->w->api->op);
    PP_CLEANUP_FREE char *text = render(e->w);
    return !strstr(text, e->line) == !e->there;
}

static void comes(world *w, const char *line)
{
    expected e = {w, line, true};
    if (!api_server_run(w->api, is_as_expected, &e))
        fail_msg("this does not come: %s\n%s", line, render(w));
}

static void goes(world *w, const char *line)
{
    expected e = {w, line, false};
    if (!api_server_run(w->api, is_as_expected, &e))
        fail_msg("this does not go: %s", line);
}

#define DLRM "workload_namespace=\"ml\",workload_kind=\"Job\",workload_name=\"dlrm\""
#define GPT "workload_namespace=\"nlp\",workload_kind=\"Job\",workload_name=\"gpt\""

/** The sum of a family's series that hold a text; *ret_n: how many these are. */
static double sum_of(const char *text, const char *family, const char *with, int *ret_n)
{
    double sum = 0;
    *ret_n = 0;
    for (const char *at = text; (at = strstr(at, family)); at += strlen(family)) {
        PP_CLEANUP_FREE char *line = strndup(at, strcspn(at, "\n"));
        assert_non_null(line);
        if (at[-1] != '\n' || !strstr(line, with))
            continue;
        sum += strtod(strrchr(line, ' '), NULL);
        (*ret_n)++;
    }
    return sum;
}

static double value_of(const char *text, const char *series)
{
    char line[512];
    (void)snprintf(line, sizeof line, "\n%s ", series);
    const char *at = strstr(text, line);
    if (!at)
        fail_msg("there is no %s", series);
    return at ? strtod(at + strlen(line), NULL) : (double)NAN;
}

static void close_to(double value, double other)
{
    if (!(fabs(value - other) <= 1e-12 * fabs(other)))
        fail_msg("%.17g is not %.17g", value, other);
}

/* To the last digit where one GPU is all there is; of two their mean. */
static void values_are_those_of_the_views(void **state)
{
    world *w = *state;
    comes(w, "\nprecisionprobe_workload_info{" GPT);
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"new\",session_uid=\"s-new\"");
    PP_CLEANUP_FREE char *text = render(w);
    assert_true(value_of(text, "precisionprobe_layer_step_seconds{" GPT
                               ",layer=\"l0003\",phase=\"backward\"}") ==
                ask(w, "SELECT total_ns / 1e9::float8 / marked_steps FROM result_detail WHERE "
                       "session = 'gpt' AND layer = 'l0003' AND phase = 'backward' LIMIT 1"));
    assert_true(value_of(text, "precisionprobe_layer_busy_seconds{" GPT
                               ",layer=\"l0003\",phase=\"backward\"}") ==
                ask(w, "SELECT busy_ns / 1e9::float8 / marked_steps FROM result_detail WHERE "
                       "session = 'gpt' AND layer = 'l0003' AND phase = 'backward' LIMIT 1"));
    assert_true(value_of(text, "precisionprobe_layer_usage_ratio{" GPT
                               ",layer=\"l0003\",phase=\"backward\",metric=\"sm_active\"}") ==
                ask(w, "SELECT mean FROM result_detail WHERE session = 'gpt' AND layer = 'l0003' "
                       "AND phase = 'backward' AND metric = 'sm_active'"));
    close_to(value_of(text, "precisionprobe_layer_usage_ratio{" DLRM
                            ",layer=\"\",phase=\"optimizer\",metric=\"gpu_util\"}"),
             0.05 / 7);
    close_to(value_of(text, "precisionprobe_layer_step_seconds{" DLRM
                            ",layer=\"l0002\",phase=\"forward\"}"),
             ask(w, "SELECT max(ms_per_step) / 2e3 FROM result_detail WHERE session = 'new' "
                    "AND layer = 'l0002' AND phase = 'forward'"));
    close_to(value_of(text, "precisionprobe_workload_step_seconds{" DLRM "}"), 1300000007e-9 / 11);
    close_to(value_of(text, "precisionprobe_workload_probe_cost_ratio{" DLRM "}"),
             30000000.0 / (900000007.0 + 1300000007.0));
    close_to(value_of(text, "precisionprobe_workload_probe_budget_ratio{" DLRM "}"), 0.02);
    close_to(value_of(text, "precisionprobe_workload_probe_budget_ratio{" GPT "}"), 0.01);
    close_to(value_of(text, "precisionprobe_workload_bound_ratio{" DLRM ",bound=\"Memory\"}"),
             0.625);
    close_to(value_of(text, "precisionprobe_workload_gpus{" DLRM "}"), 2);
    close_to(value_of(text, "precisionprobe_workload_usage_ratio{" DLRM ",metric=\"gpu_util\"}"),
             0.125);
    close_to(value_of(text, "precisionprobe_workloads"), 3);
    close_to(value_of(text, "precisionprobe_workloads_left_out"), 0);
    assert_null(strstr(text, "precisionprobe_layer_usage_ratio{" GPT ",layer=\"l0001\""));
    if (getenv("PP_EXPOSITION")) {
        FILE *file = fopen(getenv("PP_EXPOSITION"), "w");
        assert_non_null(file);
        (void)fputs(text, file);
        (void)fclose(file);
    }
}

#define LAYER_OF(ns) ns ",layer=\"l0003\",phase=\"backward\",metric=\"sm_active\"}"

/* Of dlrm's two GPUs one has values of another basis, of another source, and shares of another
 * time: those of most GPUs are told, and of as many one kind. */
static void unlike_values_are_not_averaged(void **state)
{
    world *w = *state;
    test_database_execute(
        &w->database,
        "UPDATE estimate SET basis = 'elapsed', mean = 1e-3 WHERE pod_uid = 'p-new1';"
        "UPDATE usage_metric SET source = 'layers', mean = 80 WHERE pod_uid = 'p-new1' "
        " AND metric = 'gpu_util';"
        "UPDATE usage SET busy = false WHERE pod_uid = 'p-new1';"
        "UPDATE usage_share SET share = 1 WHERE pod_uid = 'p-new1' AND name = 'Memory'");
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"new\"");
    PP_CLEANUP_FREE char *text = render(w);
    close_to(value_of(text, "precisionprobe_layer_usage_ratio{" LAYER_OF(DLRM)),
             ask(w, "SELECT mean FROM estimate WHERE pod_uid = 'p-new0' AND layer = 'l0003' "
                    "AND phase = 'backward' AND metric = 'sm_active'"));
    close_to(value_of(text, "precisionprobe_workload_usage_ratio{" DLRM ",metric=\"gpu_util\"}"),
             0.8);
    close_to(value_of(text, "precisionprobe_workload_usage_ratio{" DLRM ",metric=\"sm_active\"}"),
             12.5);
    close_to(value_of(text, "precisionprobe_workload_bound_ratio{" DLRM ",bound=\"Memory\"}"),
             0.625);
    close_to(value_of(text, "precisionprobe_workload_gpus{" DLRM "}"), 2);
}

/* As patterns leave them out: of as many GPUs those with more SMs stand for the workload. */
static void unlike_gpus_are_left_out(void **state)
{
    world *w = *state;
    test_database_execute(
        &w->database,
        "UPDATE usage SET gpu_model = 'NVIDIA A100', chip = '{80,108,1410000,1215000,5120}', "
        " step_ns = 1e9, idle = 0.9 WHERE pod_uid = 'p-new0';"
        "UPDATE usage SET gpu_model = 'NVIDIA H200', chip = '{90,132,1980000,3201000,6144}' "
        " WHERE pod_uid = 'p-new1';"
        "UPDATE usage_metric SET mean = 99 WHERE pod_uid = 'p-new0';"
        "UPDATE estimate SET mean = 1e-3 WHERE pod_uid = 'p-new0'");
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"new\"");
    PP_CLEANUP_FREE char *text = render(w);
    close_to(value_of(text, "precisionprobe_workload_gpus{" DLRM "}"), 1);
    close_to(value_of(text, "precisionprobe_workload_step_seconds{" DLRM "}"), 1300000007e-9 / 11);
    close_to(value_of(text, "precisionprobe_workload_idle_ratio{" DLRM "}"), 0.1);
    close_to(value_of(text, "precisionprobe_workload_usage_ratio{" DLRM ",metric=\"gpu_util\"}"),
             0.125);
    close_to(value_of(text, "precisionprobe_layer_usage_ratio{" LAYER_OF(DLRM)),
             ask(w, "SELECT mean FROM estimate WHERE pod_uid = 'p-new1' AND layer = 'l0003' "
                    "AND phase = 'backward' AND metric = 'sm_active'"));
}

/* Of 30 layers 20 are told apart; with the rest, and what is no layer's, all of the step is there.
 */
static void the_rest_makes_up_the_step(void **state)
{
    world *w = *state;
    int n = 0, rest = 0;
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"new\"");
    PP_CLEANUP_FREE char *text = render(w);
    close_to(sum_of(text, "precisionprobe_layer_step_seconds{", DLRM, &n), 900000007e-9 / 7);
    assert_int_equal(n, 2 * 20 + 2 + 2);
    close_to(sum_of(text, "precisionprobe_layer_step_seconds{", DLRM ",layer=\"(rest)\"", &rest),
             ask(w, "SELECT sum(total_ns) / 7e9 / 2 FROM item WHERE session_uid = 's-new' AND "
                    "layer >= 'l0020'")); /* l0002, of one GPU alone, is the 17th */
    assert_int_equal(rest, 2);
    close_to(sum_of(text, "precisionprobe_layer_step_ratio{", GPT, &n),
             ask(w, "SELECT sum(share) FROM item WHERE session_uid = 's-gpt' AND kind NOT IN "
                    "('idle', 'job')"));
    assert_null(strstr(text, ",layer=\"\",phase=\"idle\""));
}

/* With the object of its session, or with its results. */
static void what_is_gone_has_no_series(void **state)
{
    world *w = *state;
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"new\"");
    comes(w, "\nprecisionprobe_session_failed_timestamp_seconds{session_namespace=\"ml\",session="
             "\"failed\",reason=\"Incomplete\"} 5\n");
    session(w, 1, false);
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"old\"");
    session(w, 0, false);
    goes(w, DLRM);
    session(w, 4, false);
    goes(w, "precisionprobe_session_failed_timestamp_seconds");
    test_database_execute(&w->database, "DELETE FROM session WHERE uid = 's-gpt'");
    pp_workload_metrics_changed(&w->api->op);
    goes(w, GPT);
    comes(w, "workload_name=\"cpu\"");
}

/* So that the series of several replicas are each there once. */
static void only_the_leader_tells_them(void **state)
{
    world *w = *state;
    comes(w, GPT);
    w->api->op.leading = false;
    PP_CLEANUP_FREE char *text = render(w);
    assert_null(strstr(text, "workload_name"));
    assert_non_null(strstr(text, "\nprecisionprobe_workloads 0\n"));
    pp_workload_metrics_tick(&w->api->op);
    w->api->op.leading = true;
    comes(w, GPT);
}

static void the_newest_win(void **state)
{
    world *w = *state;
    w->api->config.metrics.workloads = 1;
    comes(w, "workload_name=\"cpu\""); /* whose session ended last */
    PP_CLEANUP_FREE char *text = render(w);
    assert_null(strstr(text, DLRM));
    assert_non_null(strstr(text, "\nprecisionprobe_workloads 1\n"));
    assert_non_null(strstr(text, "\nprecisionprobe_workloads_left_out 2\n"));
}

/* What was read stays where nothing can be read, but for what is gone by the cache. */
static void a_reading_that_fails_takes_nothing_away(void **state)
{
    world *w = *state;
    comes(w, GPT);
    test_database_execute(&w->database, "ALTER TABLE session RENAME TO away");
    session(w, 2, false);
    goes(w, GPT);
    comes(w, "\nprecisionprobe_workload_read_failures_total 1\n");
    comes(w, DLRM);
    test_database_execute(&w->database, "ALTER TABLE away RENAME TO session");
}

static void sessions_change_while_the_database_is_away(void **state)
{
    world *w = *state;
    comes(w, GPT);
    test_database_refuse(&w->database, true);
    api_server_run_for(w->api, INT64_C(300000000)); /* it is seen that nobody is there */
    assert_false(pp_store_ready(w->api->op.store, NULL));
    session(w, 2, false);
    goes(w, GPT);
    session(w, 4, false);
    goes(w, "precisionprobe_session_failed_timestamp_seconds");
    session(w, 4, true);
    comes(w, "\nprecisionprobe_session_failed_timestamp_seconds{session_namespace=\"ml\",session="
             "\"failed\",reason=\"Incomplete\"} 5\n");
    comes(w, DLRM);
    test_database_refuse(&w->database, false);
}

static void one_that_is_slow_to_read_is_left_out(void **state)
{
    world *w = *state;
    test_database_execute(
        &w->database,
        "ALTER TABLE usage RENAME TO usage_itself; CREATE VIEW usage AS SELECT * FROM usage_itself "
        "WHERE session_uid <> 's-gpt' OR pg_sleep(30)::text = ''");
    comes(w, "\nprecisionprobe_workload_info{" DLRM ",session=\"new\"");
    PP_CLEANUP_FREE char *text = render(w);
    assert_null(strstr(text, GPT));
    assert_non_null(strstr(text, "\nprecisionprobe_workloads 2\n"));
    assert_non_null(strstr(text, "\nprecisionprobe_workloads_left_out 1\n"));
    test_database_execute(&w->database,
                          "DROP VIEW usage; ALTER TABLE usage_itself RENAME TO usage");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_rest_makes_up_the_step),
        TEST(what_is_gone_has_no_series),
        TEST(only_the_leader_tells_them),
        TEST(the_newest_win),
        TEST(a_reading_that_fails_takes_nothing_away),
        TEST(sessions_change_while_the_database_is_away),
        TEST(one_that_is_slow_to_read_is_left_out),
        TEST(unlike_values_are_not_averaged),
        TEST(unlike_gpus_are_left_out),
        TEST(values_are_those_of_the_views), /* the last, whose database is left */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
