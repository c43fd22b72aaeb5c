/*
 * The store against a real Postgres, which the CTest fixture starts and this program kills and
 * starts again. Every test has a database of its own.
 */
#include "operator/store/store.h"

#include "common/cleanup.h"
#include "operator/store/migrate.h"
#include "operator/store/tests/shared_postgres.h"
#include "operator/store/tests/sql.h"

#include <libpq-fe.h>
#include <math.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)
#define DAY (86400 * SECOND)
#define T0 (INT64_C(1769000000) * SECOND)

typedef struct fixture {
    uv_loop_t loop;
    pp_store *store;
    char conninfo[640];
    PGconn *direct; /* a look from outside */
    int waiting;    /* callbacks that have not come */
    int failed;
    int inserted;
    int repeated;
    pp_error last;
    bool expired;
    bool limit_closed;
    size_t n_sources; /* that sampled batches have */
} fixture;

static void server(const char *verb)
{
    char command[1024];
    (void)snprintf(command, sizeof(command), "'%s' %s '%s'", getenv("PP_POSTGRES"), verb,
                   getenv("PP_POSTGRES_STATE"));
    /* NOLINTNEXTLINE(cert-env33-c): our own script */
    assert_int_equal(system(command), 0);
}

static void expect(fixture *f, const char *sql, const char *answer)
{
    assert_string_equal(sql_ask(f->direct, sql), answer);
}

static void on_expired(uv_timer_t *timer)
{
    ((fixture *)timer->data)->expired = true;
}

static void on_limit_closed(uv_handle_t *handle)
{
    ((fixture *)handle->data)->limit_closed = true;
}

/* Runs the loop until every callback has come. */
static void wait_all(fixture *f)
{
    uv_timer_t limit;
    f->expired = false;
    limit.data = f;
    uv_timer_init(&f->loop, &limit);
    uv_timer_start(&limit, on_expired, 600000, 0);
    while (f->waiting > 0 && !f->expired)
        uv_run(&f->loop, UV_RUN_ONCE);
    f->limit_closed = false;
    uv_close((uv_handle_t *)&limit, on_limit_closed);
    while (!f->limit_closed)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    const char *text = NULL;
    (void)pp_store_ready(f->store, &text);
    if (f->expired)
        fail_msg("%d callbacks are missing: %s", f->waiting, text);
}

static void on_done(void *user, const pp_error *error)
{
    fixture *f = user;
    f->waiting--;
    if (error) {
        f->failed++;
        f->last = *error;
    }
}

static void on_batch(void *user, bool inserted, const pp_error *error)
{
    fixture *f = user;
    on_done(user, error);
    if (!error)
        *(inserted ? &f->inserted : &f->repeated) += 1;
}

/* What a call returned: its callback is waited for. */
static void called(fixture *f, int rc, const pp_error *err)
{
    if (rc < 0)
        fail_msg("%s", err->message);
    f->waiting++;
}

static void open_store(fixture *f)
{
    pp_error err = {0};
    const pp_store_options options = {.conninfo = f->conninfo,
                                      .backoff_min_ns = 20000000,
                                      .backoff_max_ns = 300000000,
                                      .max_queued_bytes = (size_t)256 << 20};
    f->store = pp_store_new(&f->loop, &options, &err);
    if (!f->store)
        fail_msg("%s", err.message);
}

/* Waits for a round trip of both connections: the schema is there. */
static void wait_schema(fixture *f);

static void close_store(fixture *f)
{
    pp_store_free(f->store);
    f->store = NULL;
    uv_run(&f->loop, UV_RUN_DEFAULT);
}

/* The schema is its owner's; whatever else the store does it may do as a member of the writers. */
static void go_on_as_writer(fixture *f)
{
    close_store(f);
    sql_execute(f->direct,
                "DO $$ BEGIN CREATE ROLE store_writer LOGIN IN ROLE precisionprobe_writer; "
                "EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    const size_t n = strlen(f->conninfo);
    (void)snprintf(f->conninfo + n, sizeof(f->conninfo) - n, " user=store_writer");
    open_store(f);
    wait_schema(f);
}

static fixture *start(const char *database)
{
    fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->n_sources = PP_WIRE_PM_LEAST;
    shared_postgres_create(database, f->conninfo);
    open_store(f);
    wait_schema(f);
    f->direct = sql_connect(f->conninfo);
    sql_execute(f->direct, "SET timezone = 'UTC'");
    go_on_as_writer(f);
    return f;
}

static void finish(fixture *f)
{
    close_store(f);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    PQfinish(f->direct);
    free(f);
}

static void on_uids(void *user, const pp_strings *uids, const pp_error *error)
{
    (void)uids;
    on_done(user, error);
}

static void wait_schema(fixture *f)
{
    pp_error err = {0};
    called(f, pp_store_load_unfinished(f->store, NULL, on_uids, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
}

static void put_session(fixture *f, const char *uid, const char *phase)
{
    pp_error err = {0};
    const pp_store_session s = {.uid = uid,
                                .ns = "ml",
                                .name = uid,
                                .spec = "{\"duration\": \"120s\"}",
                                .method = "Auto",
                                .phase = phase,
                                .created_ns = T0};
    called(f, pp_store_put_session(f->store, &s, on_done, f, &err), &err);
}

static void put_target(fixture *f, const char *session, const char *pod)
{
    pp_error err = {0};
    const pp_store_target t = {.session_uid = session,
                               .pod_uid = pod,
                               .ns = "ml",
                               .pod_name = "dlrm-0",
                               .node = "node-1",
                               .ip = "10.1.2.3",
                               .workload_kind = "Job",
                               .workload_name = "dlrm",
                               .cpu_request = 1.5};
    called(f, pp_store_put_target(f->store, &t, on_done, f, &err), &err);
}

static const char hostile[] = "l'); DROP TABLE target; -- \"{},\\\\ \xc3\xa9 {NULL}";

/* A batch of three intervals of two layers and the optimizer in one step. */
typedef struct sample_batch {
    pp_wire_batch batch;
    pp_wire_layer layers[2];
    pp_wire_step steps[1];
    pp_wire_interval intervals[3];
    char *gpus[1];
} sample_batch;

static void make_batch(sample_batch *b, int64_t seq)
{
    const int64_t start = T0 + seq * SECOND;
    *b = (sample_batch){
        .layers = {{1, (char *)(uintptr_t) "bot.0", (char *)(uintptr_t) "Linear", 1024},
                   {2, (char *)(uintptr_t)hostile, (char *)(uintptr_t) "Linear", 0}},
        .steps = {{seq, start, SECOND, seq / 10, seq % 10, SECOND / 8}},
        .intervals = {{1, seq, start, SECOND / 4, PP_WIRE_FORWARD, SECOND / 5},
                      {2, seq, start + SECOND / 4, SECOND / 4, PP_WIRE_BACKWARD, -1},
                      {0, seq, start + SECOND / 2, SECOND / 4, PP_WIRE_OPTIMIZER, 0}},
        .gpus = {(char *)(uintptr_t) "GPU-a"},
    };
    b->batch = (pp_wire_batch){
        .session = (char *)(uintptr_t) "s1",
        .instance = (char *)(uintptr_t) "agent-1",
        .seq = seq,
        .process = {.rank = 0,
                    .world_size = 1,
                    .gpus = {.items = b->gpus, .count = 1},
                    .hostname = (char *)(uintptr_t) "dlrm-0",
                    .python = (char *)(uintptr_t) "3.11",
                    .torch = (char *)(uintptr_t) "2.6",
                    .clock = (char *)(uintptr_t) "host",
                    .model = (char *)(uintptr_t) "DLRM"},
        .capture = {.id = 1, .start = start, .end = start + SECOND, .last = false},
        .layers = b->layers,
        .layer_count = 2,
        .steps = b->steps,
        .step_count = 1,
        .intervals = b->intervals,
        .interval_count = 3,
        .dropped = 1,
        .cost = {.nanoseconds = 100, .marks = 6},
    };
}

static void put_pod_batch(fixture *f, const char *pod, int64_t seq)
{
    sample_batch b;
    pp_error err = {0};
    make_batch(&b, seq);
    called(f, pp_store_put_batch(f->store, "s1", pod, &b.batch, NULL, on_batch, f, &err), &err);
}

static void put_batch(fixture *f, int64_t seq)
{
    put_pod_batch(f, "p1", seq);
}

static void prepare_target(fixture *f)
{
    put_session(f, "s1", "Pending");
    put_target(f, "s1", "p1");
    wait_all(f);
    assert_int_equal(f->failed, 0);
}

/* Tests */

static void schema_is_made_once(void **state)
{
    (void)state;
    fixture *f = start("t_once");
    char before[2048];
    (void)snprintf(before, sizeof(before), "%s",
                   sql_ask(f->direct, "SELECT version, name, applied_at FROM schema_migration"));
    assert_non_null(strstr(before, "1|0001_initial|"));
    close_store(f);
    open_store(f);
    wait_schema(f);
    expect(f, "SELECT version, name, applied_at FROM schema_migration", before);
    finish(f);
}

/* A process of its own that opens the store and ends 0 when the schema is there. */
static pid_t migrate_elsewhere(const char *conninfo)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    fixture f = {0};
    (void)snprintf(f.conninfo, sizeof(f.conninfo), "%s", conninfo);
    (void)uv_loop_init(&f.loop);
    open_store(&f);
    wait_schema(&f);
    _exit(f.failed ? 1 : 0);
}

static void two_processes_migrate_at_once(void **state)
{
    (void)state;
    fixture f = {0};
    for (int round = 0; round < 3; round++) {
        pid_t pids[4];
        shared_postgres_create("t_race", f.conninfo);
        for (int i = 0; i < 4; i++)
            pids[i] = migrate_elsewhere(f.conninfo);
        for (int i = 0; i < 4; i++) {
            int status = -1;
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            assert_int_equal(status, 0);
        }
        f.direct = sql_connect(f.conninfo);
        char count[16];
        (void)snprintf(count, sizeof(count), "%zu", pp_migrations_count);
        expect(&f, "SELECT count(*) FROM schema_migration", count);
        PQfinish(f.direct);
    }
}

typedef struct health {
    bool told;
    char text[512];
} health;

static void on_health(void *user, bool ready, const char *text)
{
    health *h = user;
    (void)ready;
    h->told |= strstr(text, "needs a newer release") != NULL;
    (void)snprintf(h->text, sizeof(h->text), "%s", text);
}

static void newer_schema_is_refused(void **state)
{
    (void)state;
    fixture *f = start("t_newer");
    health h = {0};
    pp_error err = {0};
    close_store(f);
    char future[96];
    (void)snprintf(future, sizeof(future),
                   "INSERT INTO schema_migration VALUES (%zu, 'future', 'x')",
                   pp_migrations_count + 1);
    sql_execute(f->direct, future);
    const pp_store_options options = {.conninfo = f->conninfo, .on_health = on_health, .user = &h};
    f->store = pp_store_new(&f->loop, &options, &err);
    assert_non_null(f->store);
    for (int i = 0; i < 1000 && !h.told; i++)
        uv_run(&f->loop, UV_RUN_ONCE);
    if (!h.told)
        fail_msg("%s", h.text);
    assert_false(pp_store_ready(f->store, NULL));
    finish(f);
}

static void changed_migration_is_refused(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_buf out;
    pp_buf_init(&out, 1024);
    const pp_migration known[] = {{1, "0001_a", "abc", "SELECT 1"},
                                  {2, "0002_b", "def", "SELECT 2"}};
    char conninfo[SHARED_POSTGRES_CONNINFO];
    shared_postgres_conninfo(conninfo);
    PGconn *conn = sql_connect(conninfo);
    PGresult *r = PQexec(conn, "VALUES (1, '0001_a', 'other')");
    assert_int_equal(pp_migrate_next(r, known, 2, &out, &err), -1);
    assert_int_equal(err.code, PP_ERR_CONFLICT);
    PQclear(r);
    r = PQexec(conn, "VALUES (1, '0001_a', 'abc')");
    assert_int_equal(pp_migrate_next(r, known, 2, &out, &err), 1);
    assert_non_null(strstr(out.data, "SELECT 2\n;INSERT INTO schema_migration"));
    PQclear(r);
    PQfinish(conn);
    pp_buf_done(&out);
}

static const char counters_sql[] =
    "SELECT events, steps, dropped, cost_ns, batches, first_ns, last_ns, epoch, batch, host_name, "
    "observed_first_ns, observed_last_ns FROM target";

static void lost_kernels_count_as_dropped(void **state)
{
    (void)state;
    fixture *f = start("t_kernels_lost");
    sample_batch b;
    pp_error err = {0};
    prepare_target(f);
    make_batch(&b, 0);
    b.batch.left_out = (pp_wire_left_out){.steps = 3, .lost = 40, .late = 500};
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    wait_all(f);
    expect(f, "SELECT dropped FROM target", "41");
    finish(f);
}

static void batch_twice_counts_once(void **state)
{
    (void)state;
    fixture *f = start("t_twice");
    prepare_target(f);
    put_batch(f, 1);
    put_batch(f, 0); /* late: counts, but is not the last seen */
    put_batch(f, 1);
    wait_all(f);
    assert_int_equal(f->inserted, 2);
    assert_int_equal(f->repeated, 1);
    expect(f, counters_sql,
           "6|2|2|200|2|1769000000000000000|1769000002000000000|0|1|dlrm-0|1769000000000000000|"
           "1769000002000000000");
    expect(f, "SELECT events, steps, open_stretch, last_end_ns FROM process",
           "6|2|t|1769000002000000000");
    expect(f, "SELECT layer, phase, step, start, duration, step_number FROM activity WHERE seq = 1",
           "{1,2,0}|{0,1,2}|{1,1,1}|{1769000001000000000,1769000001250000000,1769000001500000000}|"
           "{250000000,250000000,250000000}|{1}");
    put_target(f, "s1", "p1"); /* described again: counters and what batches said stay */
    wait_all(f);
    expect(f, "SELECT events, host_name, cpu_request FROM target", "6|dlrm-0|1.5");
    finish(f);
}

static void hostile_names_are_data(void **state)
{
    (void)state;
    fixture *f = start("t_hostile");
    prepare_target(f);
    put_batch(f, 0);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_string_equal(sql_ask(f->direct, "SELECT name FROM layer WHERE layer = 2"), hostile);
    finish(f);
}

static void unknown_target_is_told(void **state)
{
    (void)state;
    fixture *f = start("t_unknown");
    put_batch(f, 0);
    wait_all(f);
    assert_int_equal(f->failed, 1);
    assert_int_equal(f->last.code, PP_ERR_NOT_FOUND);
    f->failed = 0;
    prepare_target(f);
    put_batch(f, 0);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(f->inserted, 1);
    finish(f);
}

/* Keeps the loop turning until `n` batches are stored, so that the server dies amid them. */
static void run_until_inserted(fixture *f, int n)
{
    while (f->inserted < n)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static void killed_server_loses_and_doubles_nothing(void **state)
{
    (void)state;
    fixture *f = start("t_kill");
    pp_store_counters counters;
    prepare_target(f);
    for (int64_t seq = 0; seq < 1000; seq++)
        put_batch(f, seq);
    run_until_inserted(f, 100);
    assert_true(f->waiting > 100);
    server("kill");
    server("restart");
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(f->inserted + f->repeated, 1000);
    pp_store_get_counters(f->store, &counters);
    assert_true(counters.disconnects >= 1 && counters.retried >= 1);
    assert_int_equal(counters.queued, 0);
    assert_int_equal(counters.queued_bytes, 0);
    PQfinish(f->direct);
    f->direct = sql_connect(f->conninfo);
    expect(f, "SELECT events, steps, dropped, cost_ns, batches FROM target",
           "3000|1000|1000|100000|1000");
    expect(f, "SELECT count(*), sum(events) FROM activity", "1000|3000");
    finish(f);
}

static void full_queue_refuses(void **state)
{
    (void)state;
    fixture f = {0};
    sample_batch b;
    pp_error err = {0};
    assert_int_equal(uv_loop_init(&f.loop), 0);
    const pp_store_options options = {.conninfo = "host=127.0.0.1 port=1 connect_timeout=1",
                                      .max_queued_bytes = 20000};
    f.store = pp_store_new(&f.loop, &options, &err);
    assert_non_null(f.store);
    make_batch(&b, 0);
    int taken = 0;
    while (pp_store_put_batch(f.store, "s1", "p1", &b.batch, NULL, on_batch, &f, &err) == 0)
        taken++;
    assert_true(taken > 2 && taken < 50);
    assert_int_equal(err.code, PP_ERR_UNAVAILABLE);
    f.waiting = taken;
    pp_store_free(f.store); /* everything that waits is told */
    assert_int_equal(f.waiting, 0);
    assert_int_equal(f.failed, taken);
    assert_int_equal(f.last.code, PP_ERR_UNAVAILABLE);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

static void host_names_are_resolved(void **state)
{
    (void)state;
    fixture *f = start("t_names");
    char conninfo[640];
    char *host = strstr(f->conninfo, "127.0.0.1");
    assert_non_null(host);
    (void)snprintf(conninfo, sizeof(conninfo), "host=nosuch.invalid,localhost %s",
                   host + strlen("127.0.0.1"));
    close_store(f);
    (void)snprintf(f->conninfo, sizeof(f->conninfo), "%s", conninfo);
    open_store(f);
    wait_schema(f);
    finish(f);
}

/** A port of 127.0.0.1 that takes connections, and says nothing on them. */
static int open_silent(int *ret_fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*ret_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(*ret_fd, 100), 0);
    assert_int_equal(getsockname(*ret_fd, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

/* Hosts that refuse, and that say nothing, do not keep it from the one that answers. */
static void a_silent_host_is_passed_over(void **state)
{
    (void)state;
    fixture *f = start("t_silent");
    char conninfo[640], *rest = NULL;
    int silent;
    assert_int_equal(strncmp(f->conninfo, "host=127.0.0.1 port=", 20), 0);
    const long port = strtol(f->conninfo + 20, &rest, 10);
    const int mute = open_silent(&silent);
    close_store(f);
    (void)snprintf(conninfo, sizeof conninfo,
                   "host=127.0.0.1,localhost,127.0.0.1 port=1,%d,%ld connect_timeout=2%s", mute,
                   port, rest);
    (void)snprintf(f->conninfo, sizeof f->conninfo, "%s", conninfo);
    open_store(f);
    wait_schema(f);
    close(silent);
    finish(f);
}

static pp_activity_sample samples[] = {
    {0, PP_METRIC_SM_ACTIVE, T0, 0.5},
    {0, PP_METRIC_SM_ACTIVE, T0 + SECOND, 0.25},
    {0, PP_METRIC_GPU_UTIL, T0 + SECOND, 80},
    {1, PP_METRIC_GPU_UTIL, T0 + DAY, 70},
};

static void put_samples(fixture *f, const pp_activity_sample *in, size_t n)
{
    char *names[] = {(char *)(uintptr_t) "GPU-a", (char *)(uintptr_t) "GPU-b"};
    const pp_strings gpus = {.items = names, .count = 2};
    pp_error err = {0};
    called(f, pp_store_put_samples(f->store, &gpus, in, n, on_done, f, &err), &err);
}

static void samples_are_stored_once(void **state)
{
    (void)state;
    fixture *f = start("t_samples");
    pp_error err = {0};
    const pp_strings none = {0};
    put_samples(f, samples, 4);
    put_samples(f, samples, 4);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f, "SELECT gpu_uuid, metric, source, at_ns, value FROM metric_sample ORDER BY 1, 2, 4",
           "GPU-a|gpu_util|prometheus|1769000001000000000|80\n"
           "GPU-a|sm_active|prometheus|1769000000000000000|0.5\n"
           "GPU-a|sm_active|prometheus|1769000001000000000|0.25\n"
           "GPU-b|gpu_util|prometheus|1769086400000000000|70");
    expect(f, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'metric_sample'::regclass", "2");
    const pp_activity_sample blank = {0, PP_METRIC_GPU_UTIL, T0, (double)NAN};
    assert_int_equal(pp_store_put_samples(f->store, &none, &blank, 1, on_done, f, &err), -1);
    assert_int_equal(err.code, PP_ERR_INVALID);
    finish(f);
}

typedef struct loaded {
    fixture *f;
    pp_activity *activity;
} loaded;

static void on_loaded(void *user, pp_activity **activity, const pp_error *error)
{
    loaded *l = user;
    on_done(l->f, error);
    if (!error)
        l->activity = PP_TAKE(*activity);
}

static pp_activity *load(fixture *f)
{
    loaded l = {.f = f};
    pp_error err = {0};
    called(f, pp_store_load(f->store, "s1", "p1", 10 * SECOND, 10 * SECOND, on_loaded, &l, &err),
           &err);
    wait_all(f);
    assert_non_null(l.activity);
    return l.activity;
}

/* A pod may name layers without end; what is loaded of their texts has a bound. */
static void texts_without_end_are_cut(void **state)
{
    (void)state;
    fixture *f = start("t_load_texts");
    prepare_target(f);
    put_batch(f, 1);
    wait_all(f);
    sql_execute(f->direct,
                "INSERT INTO layer (session_uid, pod_uid, instance, process, layer, name, type) "
                "SELECT session_uid, pod_uid, instance, process, 1000 + n, repeat('n', 512), "
                "repeat('t', 512) FROM process, generate_series(1, 40000) n");
    pp_activity *a = load(f);
    size_t bytes = 0;
    for (size_t i = 0; i < a->n_layers; i++)
        bytes += strlen(a->layers[i].name) + strlen(a->layers[i].type);
    assert_true(bytes <= PP_ACTIVITY_MAX_TEXT && bytes > PP_ACTIVITY_MAX_TEXT - 1024);
    assert_int_equal(a->n_batches, 1);
    pp_activity_free(a);
    finish(f);
}

static void stored_is_loaded(void **state)
{
    (void)state;
    fixture *f = start("t_load");
    sample_batch b;
    pp_error err = {0};
    prepare_target(f);
    make_batch(&b, 1);
    b.intervals[2].goes_on = 1;
    pp_wire_memory_row rows[] = {{1, PP_WIRE_FORWARD, 5000000000, 70000},
                                 {0, PP_WIRE_OTHER, 4000000000, -70000}};
    b.batch.memory = (pp_wire_memory){.steps = 2, .rows = rows, .count = 2};
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    put_batch(f, 0);
    put_samples(f, samples, 4);
    wait_all(f);
    pp_activity *a = load(f);
    assert_int_equal(a->n_processes, 1);
    assert_int_equal(a->n_layers, 2);
    assert_string_equal(a->layers[1].name, hostile);
    assert_int_equal(a->n_batches, 2);
    assert_int_equal(a->batches[0].start_ns, T0);
    assert_int_equal(a->n_steps, 2);
    assert_int_equal(a->steps[1].number, 1);
    assert_int_equal(a->n_intervals, 6);
    assert_int_equal(a->intervals[1].layer, 2);
    assert_int_equal(a->intervals[1].phase, 1);
    assert_int_equal(a->intervals[1].duration_ns, SECOND / 4);
    assert_int_equal(a->intervals[0].kernels_ns, SECOND / 5);
    assert_int_equal(a->intervals[1].kernels_ns, -1);
    assert_int_equal(a->intervals[2].kernels_ns, 0);
    assert_false(a->intervals[2].goes_on);
    assert_true(a->intervals[5].goes_on);
    assert_false(a->intervals[4].goes_on);
    assert_int_equal(a->steps[1].gap_ns, SECOND / 8);
    assert_string_equal(a->processes[0].kernels, "");
    assert_int_equal(a->processes[0].waited_ns, 0);
    assert_int_equal(a->processes[0].memory_steps, 2);
    assert_int_equal(a->n_memory, 2); /* the other batch has none */
    assert_true(a->memory[0].layer == 1 && a->memory[0].phase == PP_WIRE_FORWARD);
    assert_true(a->memory[0].peak == 5000000000 && a->memory[0].left == 70000);
    assert_true(a->memory[1].phase == PP_WIRE_OTHER && a->memory[1].left == -70000);
    assert_int_equal(a->n_samples, 3); /* GPU-b is not this pod's */
    assert_int_equal(a->samples[2].stamp_ns, T0 + SECOND);
    pp_activity_free(a);
    finish(f);
}

static void check_memory(fixture *f, size_t rows, int64_t steps)
{
    pp_activity *a = load(f);
    assert_int_equal(a->n_batches, 2);
    assert_int_equal(a->n_memory, rows);
    assert_int_equal(a->processes[0].memory_steps, steps);
    pp_activity_free(a);
}

/* A batch's memory is loaded whole or not at all, and its steps with it. */
static void too_much_memory_is_left_out(void **state)
{
    (void)state;
    fixture *f = start("t_load_memory");
    prepare_target(f);
    put_batch(f, 0);
    put_batch(f, 1);
    wait_all(f);
    sql_execute(f->direct, "UPDATE activity SET memory_steps = 7, "
                           "memory_layer = array_fill(1, ARRAY[600000]), "
                           "memory_phase = array_fill(0::smallint, ARRAY[600000]), "
                           "memory_peak = array_fill(5::bigint, ARRAY[600000]), "
                           "memory_left = array_fill(3::bigint, ARRAY[600000])");
    check_memory(f, 600000, 7);
    sql_execute(f->direct, "UPDATE activity SET memory_steps = 9223372036854775807, "
                           "memory_layer = '{1}', memory_phase = '{0}', memory_peak = '{5}', "
                           "memory_left = '{3}'");
    check_memory(f, 1, INT64_MAX);
    finish(f);
}

/* With how it was sampled where `lag` is not 0: an agent of an earlier release does not know. */
static void put_sampled(fixture *f, const char *instance, int64_t seq, int64_t kernels,
                        int64_t mean, int64_t lag)
{
    static char *sources[] = {(char *)(uintptr_t) "sm",     (char *)(uintptr_t) "",
                              (char *)(uintptr_t) "dram",   (char *)(uintptr_t) "",
                              (char *)(uintptr_t) "tensor", (char *)(uintptr_t) "cycles"};
    sample_batch b;
    pp_error err = {0};
    make_batch(&b, seq);
    pp_wire_pm_row rows[] = {
        {1,
         PP_WIRE_FORWARD,
         kernels,
         {mean, -1, 20, -1, 125000, 1715000},
         {300, -1, -1, -1, 500, 9000}},
        {0, PP_WIRE_OTHER, 1, {-1, -1, 250000, -1, -1, -1}, {-1, -1, 400, -1, -1, -1}},
    };
    b.batch.instance = (char *)(uintptr_t)instance;
    b.batch.capture = (pp_wire_capture){
        .id = 9, .start = b.batch.capture.end, .end = b.batch.capture.end, .last = true};
    b.batch.step_count = b.batch.interval_count = 0;
    b.batch.pm = (pp_wire_pm){.gpu = (char *)(uintptr_t) "GPU-a",
                              .sources = {sources, f->n_sources},
                              .rows = rows,
                              .count = 2};
    pp_wire_pm_closure closures[] = {{0, 400000, -2500, 30000}, {2, 250000, kernels, -1}};
    pp_wire_pm_quality qualities[] = {
        {0, 970000, 15000, 80, 1100000, 50000, 100, PP_WIRE_DOUBT_TENANT}};
    if (lag) {
        b.batch.pm.closures = closures;
        b.batch.pm.closure_count = 2;
        b.batch.pm.qualities = qualities;
        b.batch.pm.quality_count = 1;
        b.batch.pm.sampling = (pp_wire_pm_sampling){.chip = (char *)(uintptr_t) "GH100",
                                                    .period = 25000,
                                                    .times = seq,
                                                    .failed = 1,
                                                    .sampled = 4 * SECOND,
                                                    .samples = 1000 * kernels,
                                                    .lag = lag,
                                                    .lag_error = 31,
                                                    .sampler_cpu = 5 * SECOND};
    }
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
}

static void put_pm(fixture *f, const char *instance, int64_t seq, int64_t kernels, int64_t mean)
{
    put_sampled(f, instance, seq, kernels, mean, 0);
}

static void check_pm(fixture *f, double mean)
{
    wait_all(f);
    pp_activity *a = load(f);
    assert_int_equal(a->n_pm, 2); /* one has no standard error, the others are not known */
    assert_int_equal(a->pm[0].metric, PP_METRIC_SM_ACTIVE);
    assert_int_equal(a->pm[0].layer, 1);
    assert_true(a->pm[0].mean == mean && a->pm[0].standard_error == 0.0003);
    assert_string_equal(a->sources.items[a->pm[0].source], "sm");
    assert_string_equal(a->gpus.items[a->pm[0].gpu], "GPU-a");
    assert_int_equal(a->pm[1].phase, PP_WIRE_OTHER);
    assert_true(a->pm[1].mean == 0.25);
    assert_string_equal(a->sources.items[a->pm[1].source], "dram");
    pp_activity_free(a);
}

static void pm_values_are_replaced(void **state)
{
    (void)state;
    fixture *f = start("t_fine");
    prepare_target(f);
    put_batch(f, 0);
    put_pm(f, "agent-1", 2, 50, 500000);
    check_pm(f, 0.5);
    expect(f, "SELECT batches, observed_last_ns - observed_first_ns FROM target", "1|1000000000");
    expect(f, "SELECT open_stretch, steps FROM process", "t|1");
    put_pm(f, "agent-1", 3, 60, 750000);
    put_pm(f, "agent-1", 3, 60, 100000); /* told again */
    put_pm(f, "agent-1", 1, 90, 125000); /* told late */
    check_pm(f, 0.75);
    expect(f, "SELECT count(*), max(seq), max(kernel_count) FROM fine", "1|3|61");
    expect(f, "SELECT count(*) FROM activity", "1");

    /* An agent after it begins anew: it counts once it knows more. */
    sample_batch b;
    pp_error err = {0};
    make_batch(&b, 7);
    b.batch.instance = (char *)(uintptr_t) "agent-2";
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    put_pm(f, "agent-2", 8, 10, 62500);
    check_pm(f, 0.75);
    put_pm(f, "agent-2", 9, 80, 31250);
    check_pm(f, 0.03125);
    finish(f);
}

/* An agent of 0.1 tells four metrics, a later one five or six; a database may hold both. */
static void agents_of_two_releases(void **state)
{
    (void)state;
    fixture *f = start("t_releases");
    prepare_target(f);
    put_batch(f, 0);
    put_pm(f, "agent-1", 2, 50, 500000);
    check_pm(f, 0.5);
    expect(f, "SELECT cardinality(sources), cardinality(mean), cardinality(layer) FROM fine",
           "4|8|2");
    f->n_sources = PP_WIRE_PM_METRICS;
    put_pm(f, "agent-1", 3, 60, 500000);
    wait_all(f);
    expect(f, "SELECT cardinality(sources), cardinality(mean), cardinality(layer) FROM fine",
           "6|12|2");
    pp_activity *a = load(f);
    assert_int_equal(a->n_pm, 4);
    assert_int_equal(a->pm[2].metric, PP_METRIC_SM_CLOCK);
    assert_true(a->pm[2].mean == 1715 && a->pm[2].standard_error == 9); /* MHz */
    assert_int_equal(a->pm[1].metric, PP_METRIC_TENSOR_ACTIVE);
    assert_true(a->pm[1].mean == 0.125 && a->pm[1].standard_error == 0.0005);
    assert_string_equal(a->sources.items[a->pm[1].source], "tensor");
    pp_activity_free(a);
    finish(f);
}

/* The table of metrics is the program's, and `sample` has a column for each. */
static void metrics_are_the_programs(void **state)
{
    (void)state;
    fixture *f = start("t_metrics");
    char all[32];
    (void)snprintf(all, sizeof all, "%d|%d", PP_METRIC_COUNT, PP_METRIC_SAMPLED_COUNT);
    expect(f, "SELECT count(*), count(sampled) FROM metric", all);
    expect(f, "SELECT spec_name, unit, per_step, sampled FROM metric WHERE name = 'power'",
           "Power|watts|joules|NULL");
    expect(f,
           "SELECT count(*) FROM metric m WHERE NOT EXISTS (SELECT FROM information_schema.columns "
           "WHERE table_name = 'sample' AND column_name = m.name)",
           "0");
    finish(f);
}

static const char sampling_sql[] =
    "SELECT chip, period_ns, times, failed_times, sampled_ns, samples, lag_ns, lag_stderr_ns, "
    "sampler_cpu_ns, held, difference, noise FROM fine WHERE instance = 'agent-1'";

static void check_sampling(fixture *f, const char *answer)
{
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f, sampling_sql, answer);
}

/* All of it is one batch's, whatever came before and comes late. */
static void how_it_was_sampled_is_replaced(void **state)
{
    (void)state;
    static const char latest[] = "GH100|25000|4|1|4000000000|70000|-1400123|31|5000000000|"
                                 "{0.4,NULL,0.25,NULL}|{-0.0025,NULL,7e-05,NULL}|"
                                 "{0.03,NULL,NULL,NULL}";
    fixture *f = start("t_sampling");
    prepare_target(f);
    put_batch(f, 0);
    put_pm(f, "agent-1", 1, 50, 500000);
    check_sampling(f, "NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL");
    put_sampled(f, "agent-1", 3, 60, 500000, 1400456);
    put_sampled(f, "agent-1", 4, 70, 500000, -1400123);
    put_sampled(f, "agent-1", 4, 80, 500000, 99); /* told again */
    put_sampled(f, "agent-1", 2, 90, 500000, 98); /* told late */
    check_sampling(f, latest);
    put_pm(f, "agent-1", 5, 80, 500000); /* and knows nothing of it */
    check_sampling(f, "NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL");
    finish(f);
}

static const char quality_sql[] =
    "SELECT method, process, metric, held, difference, noise, windows, lag_ns, lag_stderr_ns, "
    "period_ns, times, failed_times FROM result_quality "
    "ORDER BY method, metric COLLATE \"C\"";

/* One row a metric that the GPU offers, of the agent that values are taken from. */
static void quality_of_pm_values(void **state)
{
    (void)state;
    fixture *f = start("t_quality");
    prepare_target(f);
    put_batch(f, 0);
    put_sampled(f, "agent-2", 4, 70, 500000, -1400123);
    put_sampled(f, "agent-1", 9, 60, 500000, 500); /* fewer kernels */
    wait_all(f);
    expect(f, quality_sql,
           "sampling|0|dram_active|0.25|7e-05|NULL|70000|-1400123|31|25000|4|1\n"
           "sampling|0|sm_active|0.4|-0.0025|0.03|70000|-1400123|31|25000|4|1");
    expect(f,
           "SELECT DISTINCT namespace, session, session_uid, session_phase, workload_kind, "
           "workload_name, pod_name, pod_uid, node, gpu_uuid, chip, sampled_ns, sampler_cpu_ns, "
           "latest FROM result_quality",
           "ml|s1|s1|Pending|Job|dlrm|dlrm-0|p1|node-1|GPU-a|GH100|4000000000|5000000000|f");
    expect(f,
           "SELECT metric, doubt, explained, miss, items, items_z, idle, idle_stderr FROM "
           "result_quality ORDER BY metric",
           "dram_active|NULL|NULL|NULL|NULL|NULL|NULL|NULL\n"
           "sm_active|others use the GPU: it is busy where no kernel of this process runs|0.97|"
           "0.015|80|1.1|0.05|0.0001");
    put_pm(f, "agent-1", 10, 80, 500000); /* an earlier release, with more to tell */
    wait_all(f);
    expect(f, quality_sql,
           "sampling|0|dram_active|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL\n"
           "sampling|0|sm_active|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL");
    finish(f);
}

static void put_why(fixture *f, const char *instance, int64_t seq, const char *why)
{
    sample_batch b;
    pp_error err = {0};
    make_batch(&b, seq);
    b.batch.instance = (char *)(uintptr_t)instance;
    b.batch.capture.start = b.batch.capture.end;
    b.batch.step_count = b.batch.interval_count = b.batch.layer_count = 0;
    b.batch.pm = (pp_wire_pm){.why = (char *)(uintptr_t)why};
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    wait_all(f);
}

/* Told of a process that is not known yet, told again, and of one that is. */
static void why_nothing_is_sampled_is_kept(void **state)
{
    (void)state;
    fixture *f = start("t_fine_why");
    prepare_target(f);
    put_why(f, "agent-1", 0, "no CUPTI is loaded");
    put_why(f, "agent-1", 0, "no CUPTI is loaded");
    expect(f, "SELECT fine, steps, events, last_end_ns FROM process", "no CUPTI is loaded|0|0|0");
    put_batch(f, 1);
    put_batch(f, 2);
    wait_all(f);
    expect(f, "SELECT fine, steps, open_stretch FROM process", "no CUPTI is loaded|2|t");
    put_why(f, "agent-1", 3, "a sampler that ended");
    expect(f, "SELECT fine, steps, open_stretch FROM process", "no CUPTI is loaded|2|t");
    pp_activity *a = load(f);
    assert_string_equal(a->processes[0].pm, "no CUPTI is loaded");
    assert_int_equal(a->n_pm, 0);
    pp_activity_free(a);
    finish(f);
}

static void grid_is_loaded(void **state)
{
    (void)state;
    fixture *f = start("t_grid");
    sample_batch b;
    pp_error err = {0};
    pp_wire_cell cells[] = {{0, 1, 7000000, 3, PP_WIRE_FORWARD, 6000000},
                            {1, 2, 10000000, 4, PP_WIRE_BACKWARD, -1}};
    prepare_target(f);
    make_batch(&b, 0);
    b.batch.interval_count = 0;
    b.batch.grid = (pp_wire_grid){.start = T0, .cell = 10000000, .cells = cells, .count = 2};
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    wait_all(f);
    expect(f, "SELECT events FROM target", "7");
    assert_int_equal(pp_store_count_events(&b.batch), 7);
    pp_activity *a = load(f);
    assert_int_equal(a->n_intervals, 0);
    assert_int_equal(a->n_cells, 2);
    assert_int_equal(a->cells[1].start_ns, T0 + 10000000);
    assert_int_equal(a->cells[1].busy_ns, 10000000);
    assert_int_equal(a->cells[1].calls, 4);
    assert_int_equal(a->cells[1].layer, 2);
    assert_int_equal(a->cells[0].kernels_ns, 6000000);
    assert_int_equal(a->cells[1].kernels_ns, -1);
    pp_activity_free(a);
    finish(f);
}

/* Runs of counted steps come back as they were, with a batch of no time too. */
static void counted_steps_are_kept(void **state)
{
    (void)state;
    fixture *f = start("t_counted");
    sample_batch b;
    pp_error err = {0};
    prepare_target(f);
    put_batch(f, 0);
    make_batch(&b, 5);
    pp_wire_run runs[] = {{T0 + SECOND, SECOND, 40}, {T0 + 3 * SECOND, SECOND / 2, 20}};
    b.batch.runs = runs;
    b.batch.run_count = 2;
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    make_batch(&b, 6);
    pp_wire_run last = {T0 + 6 * SECOND, SECOND, 39};
    b.batch.capture =
        (pp_wire_capture){.id = 2, .start = T0 + 7 * SECOND, .end = T0 + 7 * SECOND, .last = true};
    b.batch.layer_count = b.batch.step_count = b.batch.interval_count = 0;
    b.batch.runs = &last;
    b.batch.run_count = 1;
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    wait_all(f);
    expect(f, "SELECT counted_duration, counted_steps FROM activity ORDER BY seq",
           "NULL|NULL\n{1000000000,500000000}|{40,20}\n{1000000000}|{39}");
    expect(f, "SELECT steps, open_stretch FROM process", "2|f");
    pp_activity *a = load(f);
    assert_int_equal(a->n_runs, 3);
    assert_int_equal(a->runs[1].start_ns, T0 + 3 * SECOND);
    assert_int_equal(a->runs[1].duration_ns, SECOND / 2);
    assert_int_equal(a->runs[2].steps, 39);
    assert_int_equal(a->n_steps, 2);
    pp_activity_free(a);
    finish(f);
}

/* What is not known is NULL in the table; a reason stays once it was told, the clock is the last.
 */
static void unknown_busy_times_are_null(void **state)
{
    (void)state;
    fixture *f = start("t_unknown_busy");
    sample_batch b;
    pp_error err = {0};
    prepare_target(f);
    put_batch(f, 0);
    make_batch(&b, 1);
    for (int i = 0; i < 3; i++)
        b.intervals[i].kernels = -1;
    b.steps[0].gap = -1;
    b.batch.process.kernels = (char *)(uintptr_t) "another CUPTI client";
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    make_batch(&b, 2);
    b.batch.process.clock = (char *)(uintptr_t) "kernels";
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    wait_all(f);
    expect(f, "SELECT busy, step_gap, grid_kernels FROM activity ORDER BY seq",
           "{200000000,-1,0}|{125000000}|NULL\nNULL|NULL|NULL\n{200000000,-1,0}|{125000000}|NULL");
    expect(f, "SELECT kernels, clock FROM process", "another CUPTI client|kernels");
    pp_activity *a = load(f);
    assert_int_equal(a->intervals[3].kernels_ns, -1);
    assert_int_equal(a->steps[1].gap_ns, -1);
    assert_int_equal(a->steps[2].gap_ns, SECOND / 8);
    assert_string_equal(a->processes[0].kernels, "another CUPTI client");
    pp_activity_free(a);
    finish(f);
}

/* Many batches in one load, streamed row by row: far more than one read of the socket. */
static void large_load(void **state)
{
    (void)state;
    enum { COUNT = 60, INTERVALS = 20000 };
    fixture *f = start("t_large");
    pp_error err = {0};
    sample_batch b;
    pp_wire_interval *many = calloc(INTERVALS, sizeof(*many));
    assert_non_null(many);
    prepare_target(f);
    for (int64_t seq = 0; seq < COUNT; seq++) {
        make_batch(&b, seq);
        for (int i = 0; i < INTERVALS; i++)
            many[i] =
                (pp_wire_interval){1, seq, T0 + seq * SECOND + i * 40000, 30000, i % 2, -1, 0};
        b.batch.intervals = many;
        b.batch.interval_count = INTERVALS;
        called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err),
               &err);
    }
    wait_all(f);
    pp_activity *a = load(f);
    assert_int_equal(a->n_intervals, COUNT * INTERVALS);
    assert_false(a->truncated);
    int64_t sum = 0;
    for (size_t i = 0; i < a->n_intervals; i++)
        sum += a->intervals[i].duration_ns;
    assert_int_equal(sum, INT64_C(30000) * COUNT * INTERVALS);
    pp_activity_free(a);
    free(many);
    finish(f);
}

/* ---- a solution with something in each column ---- */

#define NONE ((double)NAN)

enum { ITEMS = 6, ESTIMATES = 6, FITS = 2 };

/* Nobody writes to a solution's strings, though their pointers let them. */
static char *unconst(const char *literal)
{
    return (char *)(uintptr_t)literal;
}

static void make_items(pp_estimates_item items[ITEMS])
{
    static const pp_estimates_item made[ITEMS] = {
        {.kind = PP_ITEM_LAYER,
         .phase = PP_PHASE_FORWARD,
         .parameters = 1024,
         .calls = 5,
         .total_ns = SECOND,
         .least_ns = SECOND / 2,
         .share = 0.25,
         .windows = 7,
         .busy_ns = SECOND / 4,
         .idle_share = 0.75,
         .bound = PP_BOUND_MEMORY,
         .bound_likely = 0.9,
         .step_error = {2e6, 19},
         .busy_error = {1e6, 7},
         .idle_error = {0.01, 7},
         .memory_peak = 5000000000,
         .memory_live = 70000,
         .whole_reason = "no kernels were recorded"},
        {.kind = PP_ITEM_LAYER,
         .phase = PP_PHASE_BACKWARD,
         .parameters = 1024,
         .calls = 5,
         .total_ns = SECOND,
         .least_ns = -1,
         .share = 0.5,
         .windows = 9,
         .busy_ns = -1,
         .idle_share = NONE,
         .busy_reason = "another CUPTI client",
         .bound = PP_BOUND_UNKNOWN,
         .bound_likely = 1,
         .step_error = {3e6, 19},
         .busy_error = {NONE, NONE},
         .idle_error = {NONE, NONE},
         .memory_peak = 6000000000,
         .memory_live = -70000},
        {.kind = PP_ITEM_IDLE,
         .phase = PP_PHASE_IDLE,
         .parameters = -1,
         .total_ns = SECOND,
         .least_ns = -1,
         .share = 0.1,
         .windows = 1,
         .busy_ns = -1,
         .idle_share = NONE,
         .busy_reason = "not measured outside of steps",
         .bound = PP_BOUND_UNKNOWN,
         .bound_likely = NONE,
         .step_error = {NONE, NONE},
         .busy_error = {NONE, NONE},
         .idle_error = {NONE, NONE}},
        {.kind = PP_ITEM_JOB,
         .phase = PP_PHASE_IDLE,
         .parameters = -1,
         .total_ns = 4 * SECOND,
         .least_ns = -1,
         .share = NONE,
         .windows = 10,
         .busy_ns = -1,
         .idle_share = NONE,
         .busy_reason = "known of the steps: gap_ns",
         .bound = PP_BOUND_UNKNOWN,
         .bound_likely = NONE,
         .step_error = {NONE, NONE},
         .busy_error = {NONE, NONE},
         .idle_error = {NONE, NONE},
         .memory_peak = 6000000000},
        {.kind = PP_ITEM_LAYER,
         .phase = PP_PHASE_RECOMPUTE,
         .parameters = 1024,
         .calls = 5,
         .total_ns = SECOND,
         .least_ns = SECOND,
         .share = 0.25,
         .windows = 7,
         .idle_share = 1,
         .bound = PP_BOUND_UNKNOWN,
         .bound_likely = 1,
         .step_error = {NONE, NONE},
         .busy_error = {NONE, NONE},
         .idle_error = {NONE, NONE}},
        {.kind = PP_ITEM_DATA,
         .phase = PP_PHASE_DATA,
         .parameters = -1,
         .calls = 5,
         .total_ns = SECOND,
         .least_ns = -1,
         .share = 0.1,
         .windows = 1,
         .idle_share = 1,
         .bound = PP_BOUND_DATA,
         .bound_likely = 1,
         .step_error = {4e6, 19},
         .busy_error = {NONE, NONE},
         .idle_error = {NONE, NONE}},
    };
    for (int i = 0; i < ITEMS; i++) {
        const bool layer = made[i].kind == PP_ITEM_LAYER;
        items[i] = made[i];
        items[i].layer = unconst(layer ? "bot.0" : "");
        items[i].type = unconst(layer ? "Linear" : "");
    }
}

/* Of which no number is known. */
static pp_estimate make_estimate(uint32_t item, pp_metric metric, pp_method method, pp_basis basis)
{
    return (pp_estimate){.item = item,
                         .metric = metric,
                         .mean = NONE,
                         .standard_error = NONE,
                         .method = method,
                         .basis = basis,
                         .group_mean = NONE,
                         .group_standard_error = NONE,
                         .amount_per_step = NONE,
                         .peak = NONE,
                         .achieved = NONE};
}

static pp_estimate known_estimate(pp_estimate e, double mean, double standard_error, double windows)
{
    e.mean = mean;
    e.standard_error = standard_error;
    e.windows = windows;
    return e;
}

static void make_layer_estimates(pp_estimate estimates[3], double mean)
{
    estimates[0] = known_estimate(
        make_estimate(0, PP_METRIC_SM_ACTIVE, PP_METHOD_SAMPLING, PP_BASIS_BUSY), mean, 0.01, 6);
    estimates[0].source = unconst("sm__cycles");
    estimates[1] =
        known_estimate(make_estimate(0, PP_METRIC_GPU_UTIL, PP_METHOD_REGRESSION, PP_BASIS_ELAPSED),
                       100 * mean, 1, 6);
    estimates[2] = make_estimate(1, PP_METRIC_SM_ACTIVE, PP_METHOD_REGRESSION, PP_BASIS_BUSY);
    estimates[2].group_name = unconst("bot.0+bot.2");
    estimates[2].group_mean = 0.3;
    estimates[2].group_standard_error = 0.02;
    estimates[2].reason = "known only together with its group";
}

static void make_job_estimates(pp_estimate estimates[3], double mean)
{
    estimates[0] =
        known_estimate(make_estimate(3, PP_METRIC_SM_ACTIVE, PP_METHOD_JOB, PP_BASIS_ELAPSED),
                       mean / 2, 0.001, 10);
    estimates[1] = make_estimate(3, PP_METRIC_FP32_ACTIVE, PP_METHOD_NONE, PP_BASIS_NONE);
    estimates[1].reason = "no samples of this metric";
    estimates[1].peak = 67e12;
    estimates[1].achieved = 2.5e12;
    estimates[2] = known_estimate(
        make_estimate(3, PP_METRIC_POWER, PP_METHOD_JOB, PP_BASIS_ELAPSED), 400, 2, 10);
    estimates[2].amount_per_step = 180;
}

static void make_sample(pp_estimates_sample *sample, double mean)
{
    *sample = (pp_estimates_sample){0, {T0, T0 + SECOND, 3, 0.5, {0}, {0}}};
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        sample->row.values[m] = sample->row.by_share[m] = NONE;
    sample->row.values[PP_METRIC_GPU_UTIL] = 80;
    sample->row.by_share[PP_METRIC_GPU_UTIL] = 85;
    sample->row.values[PP_METRIC_SM_ACTIVE] = mean;
    sample->row.by_share[PP_METRIC_SM_ACTIVE] = 2 * mean;
}

static void make_fits(pp_estimates_fit fits[FITS])
{
    fits[0] = (pp_estimates_fit){.metric = PP_METRIC_SM_ACTIVE,
                                 .r2 = 0.9,
                                 .noise = 0.01,
                                 .step_variation = 0.05,
                                 .closure = 0.001,
                                 .judged = true,
                                 .doubt = "others use the GPU",
                                 .untold = "too few",
                                 .explained = 0.875,
                                 .miss = 0.02,
                                 .expected_miss = 0.01,
                                 .items_z = 1.5,
                                 .items = 7,
                                 .idle = 0.1,
                                 .idle_stderr = NONE,
                                 .shift_ns = -2000,
                                 .shift_stderr_ns = 1000,
                                 .windows = 10,
                                 .dropped_samples = 1,
                                 .repeated_samples = 2};
    fits[1] = (pp_estimates_fit){.metric = PP_METRIC_GPU_UTIL,
                                 .r2 = NONE,
                                 .noise = NONE,
                                 .step_variation = NONE,
                                 .closure = NONE};
}

static void make_solution(pp_estimates *s, double mean)
{
    static pp_estimates_item items[ITEMS];
    static pp_estimate estimates[ESTIMATES];
    static pp_estimates_sample rows[1];
    static pp_estimates_fit fits[FITS];
    make_items(items);
    make_layer_estimates(&estimates[0], mean);
    make_job_estimates(&estimates[3], mean);
    make_sample(&rows[0], mean);
    make_fits(fits);
    *s = (pp_estimates){.gpu = unconst("GPU-a"),
                        .windows = 10,
                        .samples = 20,
                        .lag_ns = 123456.4,
                        .lag_stderr_ns = 10,
                        .window_ns = 250000000,
                        .observed_ns = 4 * SECOND,
                        .step_count = 5,
                        .step_mean_ns = 0.5e9,
                        .step_ns = 5 * SECOND / 2,
                        .gap_ns = SECOND / 2,
                        .captures = 3,
                        .first_step_ns = T0 + SECOND,
                        .last_step_ns = T0 + 31 * SECOND,
                        .counted_steps = 40,
                        .counted_ns = 18 * SECOND,
                        .step_error = {5e6, 4},
                        .counted_error = {2.5e6, 39},
                        .items = items,
                        .n_items = ITEMS,
                        .estimates = estimates,
                        .n_estimates = ESTIMATES,
                        .fits = fits,
                        .n_fits = FITS,
                        .closures = {{PP_METRIC_SM_ACTIVE, 0.5, -0.01, 9}},
                        .n_closures = 1,
                        .sample_rows = rows,
                        .n_sample_rows = 1,
                        .samples_error = 0.0025,
                        .samples_spread = 0.125};
}

static void put_solution(fixture *f, double mean, bool final)
{
    pp_estimates s;
    pp_error err = {0};
    make_solution(&s, mean);
    called(f, pp_store_put_solution(f->store, "s1", "p1", &s, NULL, final, on_done, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
}

static void finish_session(fixture *f, const char *phase, int64_t at)
{
    pp_error err = {0};
    called(f, pp_store_finish(f->store, "s1", phase, at, on_done, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
}

/* A batch that tells kernels, whose names are "gemm", "relu" and "". */
typedef struct kernel_batch {
    sample_batch base;
    char *names[3];
} kernel_batch;

static void make_kernels(kernel_batch *b, int64_t seq, pp_wire_kernel *rows, size_t n)
{
    make_batch(&b->base, seq);
    b->names[0] = (char *)(uintptr_t) "gemm";
    b->names[1] = (char *)(uintptr_t) "relu";
    b->names[2] = (char *)(uintptr_t) "";
    b->base.batch.kernels = (pp_wire_kernels){.steps = n ? (int64_t)b->base.batch.step_count : 0,
                                              .names = {b->names, 3},
                                              .rows = rows,
                                              .count = n};
}

static void put_made(fixture *f, kernel_batch *b)
{
    pp_error err = {0};
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b->base.batch, NULL, on_batch, f, &err),
           &err);
}

/* Of one step, and of one name in one layer and phase two rows. */
static void put_kernels(fixture *f, int64_t seq, const char *instance, int64_t process)
{
    kernel_batch b;
    pp_wire_kernel rows[] = {{1, PP_WIRE_FORWARD, 0, 2, 3000000},
                             {2, PP_WIRE_BACKWARD, 0, 1, 500000},
                             {1, PP_WIRE_FORWARD, 1, 4, 1000000},
                             {0, PP_WIRE_OPTIMIZER, 2, 7, 0},
                             {1, PP_WIRE_FORWARD, 0, 1, 1000000}};
    make_kernels(&b, seq, rows, 5);
    b.base.batch.instance = (char *)(uintptr_t)instance;
    b.base.batch.process.id = process;
    put_made(f, &b);
}

static const char kernels_sql[] =
    "SELECT process, layer, phase, name, count, ns FROM kernel WHERE phase <> 'backward' "
    "ORDER BY process, layer COLLATE \"C\", phase, name COLLATE \"C\"";

/* Each batch once, whichever agent had it; of steps only those whose kernels were told. */
static void kernels_are_summed(void **state)
{
    (void)state;
    fixture *f = start("t_kernels");
    prepare_target(f);
    put_batch(f, 0);
    wait_all(f);
    expect(f, "SELECT kernel_steps, (SELECT count(*) FROM kernel) FROM process", "0|0");
    put_kernels(f, 1, "agent-1", 0);
    put_kernels(f, 2, "agent-1", 0);
    put_kernels(f, 1, "agent-1", 0);
    put_kernels(f, 3, "agent-1", 1);
    wait_all(f);
    assert_int_equal(f->repeated, 1);
    expect(f, kernels_sql,
           "0||optimizer||14|0\n0|bot.0|forward|gemm|6|8000000\n0|bot.0|forward|relu|8|2000000\n"
           "1||optimizer||7|0\n1|bot.0|forward|gemm|3|4000000\n1|bot.0|forward|relu|4|1000000");
    assert_string_equal(
        sql_ask(f->direct, "SELECT DISTINCT layer FROM kernel WHERE phase = 'backward'"), hostile);
    put_kernels(f, 1, "agent-2", 0);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f, "SELECT instance, process, steps, kernel_steps FROM process ORDER BY 1, 2",
           "agent-1|0|3|2\nagent-1|1|1|1\nagent-2|0|1|1");
    expect(f, "SELECT count, ns FROM kernel WHERE process = 0 AND name = 'relu'", "12|3000000");
    finish(f);
}

static void kernels_of_replays_are_no_trainings(void **state)
{
    (void)state;
    fixture *f = start("t_kernels_dwell");
    kernel_batch b;
    pp_wire_kernel row = {1, PP_WIRE_FORWARD, 0, 300, 3000000};
    prepare_target(f);
    make_kernels(&b, 1, &row, 1);
    b.base.batch.capture.dwell = 3;
    put_made(f, &b);
    wait_all(f);
    assert_int_equal(f->inserted, 1);
    expect(f, "SELECT kernel_steps, (SELECT count(*) FROM kernel) FROM process", "0|0");
    finish(f);
}

/* Of two steps: in a layer's line two rows, of which each is in one of them. */
static void put_waits(fixture *f, int64_t seq, pp_wire_wait *rows, size_t n)
{
    kernel_batch b;
    char *calls[] = {(char *)(uintptr_t) "item", (char *)(uintptr_t) "bool"};
    char *files[] = {(char *)(uintptr_t) "train.py", (char *)(uintptr_t) ""};
    make_kernels(&b, seq, NULL, 0);
    b.base.batch.waits = (pp_wire_waits){
        .steps = 2, .calls = {calls, 2}, .files = {files, 2}, .rows = rows, .count = n};
    put_made(f, &b);
}

static void waits_are_summed(void **state)
{
    (void)state;
    fixture *f = start("t_waits");
    pp_wire_wait rows[] = {{1, PP_WIRE_FORWARD, 0, 0, 41, 1, 1, 3000000},
                           {1, PP_WIRE_FORWARD, 0, 0, 41, 3, 1, 1000000},
                           {0, PP_WIRE_OTHER, 1, 1, 0, 5, 2, 500000}};
    prepare_target(f);
    put_waits(f, 1, rows, 3);
    put_waits(f, 2, rows, 1);
    put_waits(f, 3, NULL, 0); /* no wait in them: they count all the same */
    put_waits(f, 1, rows, 3); /* again */
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(f->repeated, 1);
    expect(f, "SELECT wait_steps FROM process", "6");
    expect(f,
           "SELECT layer, phase, call, file, line, count, steps, ns FROM host_wait "
           "ORDER BY layer COLLATE \"C\"",
           "|other|bool||0|5|2|500000\nbot.0|forward|item|train.py|41|5|3|7000000");
    sql_execute(f->direct, "UPDATE process SET wait_steps = 10");
    expect(f,
           "SELECT process, layer, phase, call, file, line, calls_per_step, share_of_steps, "
           "ms_per_step, session, pod_name, latest FROM result_wait ORDER BY layer COLLATE \"C\"",
           "0||other|bool||0|0.5|0.2|0.05|s1|dlrm-0|f\n"
           "0|bot.0|forward|item|train.py|41|0.5|0.3|0.7|s1|dlrm-0|f");
    sql_execute(f->direct, "DELETE FROM session");
    expect(f, "SELECT count(*) FROM host_wait", "0");
    finish(f);
}

/* A pod may name lines without end; beyond a bound they are not told apart. */
static void waits_without_end(void **state)
{
    (void)state;
    fixture *f = start("t_wait_bound");
    pp_wire_wait rows[] = {{1, PP_WIRE_FORWARD, 0, 0, 3, 1, 1, 10},
                           {1, PP_WIRE_FORWARD, 0, 0, 1, 1, 1, 20},
                           {1, PP_WIRE_FORWARD, 0, 0, 2, 1, 1, 30}};
    prepare_target(f);
    sql_execute(
        f->direct,
        "INSERT INTO host_wait SELECT 's1', 'p1', 7, 'other', 'forward', 'item', 'f', n, 1, 1, "
        "1 FROM generate_series(1, 19999) n");
    put_waits(f, 1, rows, 3);
    put_waits(f, 2, rows, 3);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f,
           "SELECT phase, call, file, line, count, steps, ns FROM host_wait WHERE process = 0 "
           "ORDER BY phase",
           "forward|item|train.py|1|2|2|40\nother|||0|4|4|80");
    finish(f);
}

static void waits_of_replays_are_no_trainings(void **state)
{
    (void)state;
    fixture *f = start("t_waits_dwell");
    kernel_batch b;
    pp_wire_wait row = {0, PP_WIRE_OTHER, 0, 0, 1, 1, 1, 1};
    char *text = (char *)(uintptr_t) "item";
    prepare_target(f);
    make_kernels(&b, 1, NULL, 0);
    b.base.batch.capture.dwell = 3;
    b.base.batch.waits = (pp_wire_waits){2, {&text, 1}, {&text, 1}, &row, 1};
    put_made(f, &b);
    wait_all(f);
    expect(f, "SELECT wait_steps, (SELECT count(*) FROM host_wait) FROM process", "0|0");
    finish(f);
}

static void put_copies(fixture *f, int64_t seq, pp_wire_copy *rows, size_t n)
{
    kernel_batch b;
    make_kernels(&b, seq, NULL, 0);
    b.base.batch.copies = (pp_wire_copies){.steps = 2, .rows = rows, .count = n};
    put_made(f, &b);
}

static void copies_are_summed(void **state)
{
    (void)state;
    fixture *f = start("t_copies");
    pp_wire_copy rows[] = {{1, PP_WIRE_FORWARD, PP_WIRE_H2D, PP_WIRE_PINNED, 1, 4000, 1000},
                           {0, PP_WIRE_OTHER, PP_WIRE_FILL, 0, 5, 0, 0}};
    prepare_target(f);
    put_copies(f, 1, rows, 2);
    put_copies(f, 2, rows, 1);
    put_copies(f, 3, NULL, 0); /* none in them: they count all the same */
    put_copies(f, 1, rows, 2); /* again */
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(f->repeated, 1);
    expect(f, "SELECT copy_steps FROM process", "6");
    sql_execute(f->direct, "UPDATE process SET copy_steps = 8");
    expect(f,
           "SELECT process, layer, phase, type, memory, per_step, bytes_per_step, "
           "ms_per_step * 1e6, gb_per_second, session, pod_name, latest FROM result_copy "
           "ORDER BY layer COLLATE \"C\"",
           "0||other|fill||0.625|0|0|NULL|s1|dlrm-0|f\n"
           "0|bot.0|forward|h2d|pinned|0.25|1000|250|4|s1|dlrm-0|f");
    sql_execute(f->direct, "DELETE FROM session");
    expect(f, "SELECT count(*) FROM gpu_copy", "0");
    finish(f);
}

/* A pod may name layers without end; beyond a bound they are not told apart. */
static void copies_without_end(void **state)
{
    (void)state;
    fixture *f = start("t_copy_bound");
    pp_wire_copy rows[] = {{1, PP_WIRE_FORWARD, PP_WIRE_D2D, 0, 1, 10, 100},
                           {1, PP_WIRE_BACKWARD, PP_WIRE_D2D, 0, 1, 20, 200}};
    prepare_target(f);
    sql_execute(f->direct,
                "INSERT INTO gpu_copy SELECT 's1', 'p1', 7, n::text, 'forward', 'd2d', '', 1, 1, 1 "
                "FROM generate_series(1, 19999) n");
    put_copies(f, 1, rows, 2);
    put_copies(f, 2, rows, 2);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f,
           "SELECT layer, phase, type, memory, count, bytes, ns FROM gpu_copy WHERE process = 0 "
           "ORDER BY layer COLLATE \"C\"",
           "|other|d2d||2|20|200\nbot.0|backward|d2d||2|40|400");
    finish(f);
}

/* Of a process by its steps, whichever agents told them. */
static void result_has_kernels(void **state)
{
    (void)state;
    fixture *f = start("t_result_kernel");
    prepare_target(f);
    put_kernels(f, 1, "agent-1", 0);
    put_kernels(f, 2, "agent-1", 0);
    put_kernels(f, 3, "agent-2", 0);
    put_kernels(f, 4, "agent-1", 1);
    put_batch(f, 5);
    wait_all(f);
    expect(f,
           "SELECT process, layer, phase, kernel, calls_per_step, ms_per_step, share FROM "
           "result_kernel WHERE phase <> 'backward' "
           "ORDER BY process, layer COLLATE \"C\", kernel COLLATE \"C\"",
           "0||optimizer||7|0|NULL\n0|bot.0|forward|gemm|3|4|0.8\n0|bot.0|forward|relu|4|1|0.2\n"
           "1||optimizer||7|0|NULL\n1|bot.0|forward|gemm|3|4|0.8\n1|bot.0|forward|relu|4|1|0.2");
    expect(f,
           "SELECT DISTINCT namespace, session, session_uid, session_phase, workload_kind, "
           "workload_name, pod_name, pod_uid, node, latest FROM result_kernel",
           "ml|s1|s1|Pending|Job|dlrm|dlrm-0|p1|node-1|f");
    put_solution(f, 0.5, true);
    finish_session(f, "Succeeded", T0 + 6 * SECOND);
    expect(f, "SELECT DISTINCT session_phase, latest FROM result_kernel", "Succeeded|t");
    sql_execute(f->direct, "UPDATE process SET kernel_steps = 0");
    expect(f, "SELECT DISTINCT calls_per_step, ms_per_step FROM result_kernel", "NULL|NULL");
    sql_execute(f->direct, "DELETE FROM session");
    expect(f, "SELECT count(*) FROM kernel", "0");
    finish(f);
}

static void put_ranks(fixture *f, const char *pod, pp_rank *ranks, size_t n, bool final)
{
    pp_error err = {0};
    const pp_ranks all = {.ranks = ranks, .n = n};
    called(f, pp_store_put_ranks(f->store, "s1", pod, &all, final, on_done, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
}

/* One with a layer and what is outside of all; `wait` of a step of 100 ms. */
static pp_rank make_rank(int number, int rank, double wait_ms, pp_rank_item items[2])
{
    items[0] = (pp_rank_item){"", PP_PHASE_OTHER, 1, 1e6};
    items[1] = (pp_rank_item){"bot.0", PP_PHASE_FORWARD, 2, (99 - wait_ms) * 1e6};
    return (pp_rank){.process = number,
                     .rank = rank,
                     .world_size = 3,
                     .steps = 20,
                     .step_ns = 100e6,
                     .wait_ns = wait_ms * 1e6,
                     .own_ns = (100 - wait_ms) * 1e6,
                     .own_stderr = rank == 0 ? (double)NAN : 5e5,
                     .items = items,
                     .n_items = 2};
}

/* Three ranks in two pods, the last the slow one. */
static void ranks_side_by_side(void **state)
{
    (void)state;
    fixture *f = start("t_ranks");
    pp_rank_item items[3][2];
    pp_rank first[2] = {make_rank(0, 0, 40, items[0]), make_rank(1, 1, 30, items[1])};
    pp_rank second = make_rank(0, 2, 10, items[2]);
    pp_rank silent = {.process = 7, .rank = 1, .world_size = 3};
    prepare_target(f);
    put_target(f, "s1", "p2");
    put_ranks(f, "p1", first, 2, false);
    put_ranks(f, "p1", first, 2, false);
    put_ranks(f, "p2", (pp_rank[]){second, silent}, 2, false);
    expect(f,
           "SELECT pod_uid, process, rank, world_size, steps, ms_per_step, own_ms_per_step, "
           "own_stderr_ms, wait_ms_per_step, others_own_ms_per_step, latest FROM result_rank "
           "ORDER BY rank",
           "p1|0|0|3|20|100|60|NULL|40|80|f\n"
           "p1|1|1|3|20|100|70|0.5|30|75|f\n"
           "p2|0|2|3|20|100|90|0.5|10|65|f");
    expect(f,
           "SELECT rank, layer, phase, calls_per_step, ms_per_step, others_ms_per_step FROM "
           "result_rank_item WHERE layer <> '' ORDER BY rank",
           "0|bot.0|forward|2|59|79\n1|bot.0|forward|2|69|74\n2|bot.0|forward|2|89|64");
    put_target(f, "s1", "p3"); /* in place of p2, and seen later */
    wait_all(f);
    sql_execute(f->direct,
                "UPDATE target SET observed_last_ns = CASE pod_uid WHEN 'p3' THEN 2 ELSE 1 END");
    second.own_ns = 95e6;
    put_ranks(f, "p3", &second, 1, false);
    expect(f, "SELECT pod_uid, own_ms_per_step FROM result_rank WHERE rank = 2", "p3|95");
    expect(f, "SELECT count(*), count(DISTINCT rank) FROM result_rank", "3|3");
    put_solution(f, 0.5, true);
    put_ranks(f, "p1", first, 2, true);
    put_ranks(f, "p1", first, 1, false); /* of an operator that has not heard of the end */
    expect(f, "SELECT count(*) FROM rank WHERE pod_uid = 'p1'", "2");
    sql_execute(f->direct, "DELETE FROM session");
    expect(f, "SELECT count(*) FROM rank_item", "0");
    finish(f);
}

/* In its pod and its job: it has nobody beside it. */
static void a_rank_alone_is_not_kept(void **state)
{
    (void)state;
    fixture *f = start("t_rank_alone");
    pp_rank_item items[2];
    pp_rank alone = make_rank(0, 0, 0, items);
    prepare_target(f);
    put_ranks(f, "p1", &alone, 1, false);
    expect(f, "SELECT others_own_ms_per_step, count(*) OVER () FROM result_rank", "NULL|1");
    alone.world_size = 1;
    put_ranks(f, "p1", &alone, 1, false);
    expect(f, "SELECT count(*) FROM result_rank", "0");
    finish(f);
}

/* The longest names that the wire takes, of a layer and of a kernel, are a key like others. */
static void longest_kernel_names(void **state)
{
    (void)state;
    fixture *f = start("t_kernel_names");
    kernel_batch b;
    pp_wire_kernel row = {1, PP_WIRE_COMMUNICATION, 0, 1, 5};
    char layer[PP_WIRE_MAX_TEXT + 1] = {0};
    char name[PP_WIRE_MAX_NAME + 1] = {0};
    for (int i = 0; i < PP_WIRE_MAX_NAME; i++) /* nothing that could be compressed */
        name[i] = (char)('0' + (i * i / 7 + i * 31 + i / 64) % 75);
    memcpy(layer, name, PP_WIRE_MAX_TEXT);
    put_session(f, "s1", "Pending");
    put_target(f, "s1", "p1");
    make_kernels(&b, 1, &row, 1);
    b.base.layers[0].name = layer;
    b.names[0] = name;
    put_made(f, &b);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f, "SELECT length(layer), length(name), count FROM kernel", "512|1024|1");
    finish(f);
}

/* A pod may name kernels without end; beyond a bound they are not told apart. */
static void kernels_without_end(void **state)
{
    (void)state;
    fixture *f = start("t_kernel_bound");
    kernel_batch b;
    pp_wire_kernel rows[] = {{1, PP_WIRE_FORWARD, 1, 4, 1000000},
                             {1, PP_WIRE_FORWARD, 0, 3, 4000000},
                             {1, PP_WIRE_FORWARD, 2, 5, 0},
                             {2, PP_WIRE_BACKWARD, 0, 1, 500000}};
    prepare_target(f);
    sql_execute(f->direct,
                "INSERT INTO kernel SELECT 's1', 'p1', 7, 'other', 'forward', 'k' || n, 1, 1 "
                "FROM generate_series(1, 99998) n");
    for (int64_t seq = 1; seq <= 2; seq++) {
        make_kernels(&b, seq, rows, 4); /* there is room for "" and "gemm" */
        put_made(f, &b);
    }
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f, "SELECT count(*) FROM kernel WHERE name <> ''", "99999");
    expect(f,
           "SELECT phase, name, count, ns FROM kernel WHERE process = 0 "
           "ORDER BY phase, name COLLATE \"C\"",
           "forward||10|0\nforward|gemm|6|8000000\nother||10|3000000");
    finish(f);
}

static const char old_rows[] =
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at) VALUES "
    "('s1', 'ml', 's1', '{}', 'Auto', 'Collecting', now());"
    "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, workload_kind, workload_name) "
    "VALUES ('s1', 'p1', 'ml', 'dlrm-0', 'Job', 'dlrm');"
    "INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock) VALUES "
    "('s1', 'p1', 'agent-1', 0, '{GPU-a}', 'host');"
    "INSERT INTO layer VALUES ('s1', 'p1', 'agent-1', 0, 1, 'bot.0', 'Linear', 1024);"
    "INSERT INTO activity VALUES ('s1', 'p1', 'agent-1', 0, 0, 1, false, 1769000000000000000, "
    "1769000001000000000, 1, 0, 0, '{0}', '{1769000000000000000}', '{1000000000}', '{0}', '{0}', "
    "'{1}', '{0}', '{0}', '{1769000000000000000}', '{250000000}');"
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at) VALUES "
    "('s2', 'ml', 's2', '{}', 'Isolated', 'Succeeded', now());"
    "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, "
    "observed_ns, step_count, truncated) VALUES ('s1', 'p1', 'GPU-a', 1, false, 0, 0, 1, 1, false);"
    "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, calls, total_ns, "
    "windows) VALUES ('s1', 'p1', 'GPU-a', 'layer', 'bot.0', 'forward', 1, 250000000, 0);"
    "INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, "
    "stderr, windows, method, source) VALUES "
    "('s1', 'p1', 'GPU-a', 'layer', 'bot.0', 'forward', 'sm_active', 0.5, 0.1, 9, 'direct', 'p')";

/* As the first release has it. */
static void make_first_schema(const char *conninfo)
{
    pp_error err = {0};
    pp_buf sql;
    pp_buf_init(&sql, 1 << 20);
    PGconn *conn = sql_connect(conninfo);
    PGresult *none = PQexec(conn, pp_migrate_begin());
    assert_int_equal(pp_migrate_next(none, pp_migrations, 1, &sql, &err), 1);
    PQclear(none);
    sql_execute(conn, sql.data);
    sql_execute(conn, old_rows);
    PQfinish(conn);
    pp_buf_done(&sql);
}

/* What the first release stored, under the store of today. */
static fixture *start_from_first(const char *name)
{
    fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    shared_postgres_create(name, f->conninfo);
    make_first_schema(f->conninfo);
    open_store(f);
    wait_schema(f);
    f->direct = sql_connect(f->conninfo);
    return f;
}

static void old_rows_have_methods_by_todays_names(void **state)
{
    (void)state;
    fixture *f = start_from_first("t_old_methods");
    expect(f, "SELECT method FROM estimate", "regression");
    expect(f, "SELECT uid, method FROM session ORDER BY uid", "s1|Auto\ns2|Replay");
    finish(f);
}

static void old_rows_know_no_busy_times(void **state)
{
    (void)state;
    fixture *f = start_from_first("t_old");
    expect(f, "SELECT busy, step_gap, grid_kernels FROM activity", "NULL|NULL|NULL");
    expect(f,
           "SELECT total_ns, busy_ns, busy_ms_per_step, idle_share, busy_reason FROM result_detail",
           "250000000|NULL|NULL|NULL|NULL");
    pp_activity *a = load(f);
    assert_int_equal(a->n_intervals, 1);
    assert_int_equal(a->intervals[0].kernels_ns, -1);
    assert_int_equal(a->steps[0].gap_ns, -1);
    assert_string_equal(a->processes[0].kernels, "");
    pp_activity_free(a);
    put_batch(f, 1); /* and what is new goes beside it */
    put_solution(f, 0.5, true);
    expect(f, "SELECT busy FROM activity ORDER BY seq", "NULL\n{200000000,-1,0}");
    expect(f, "SELECT kernels, events FROM process", "|3");
    expect(f, "SELECT busy_ns FROM item WHERE layer = 'bot.0' AND phase = 'forward'", "250000000");
    finish(f);
}

static const char estimate_sql[] =
    "SELECT a.revision, a.final, e.mean FROM attribution a JOIN estimate e USING (session_uid, "
    "pod_uid, gpu_uuid) WHERE e.layer = 'bot.0' AND e.phase = 'forward' AND metric = 'sm_active'";

static void solution_is_replaced(void **state)
{
    (void)state;
    fixture *f = start("t_solution");
    prepare_target(f);
    put_batch(f, 0);
    put_solution(f, 0.5, false);
    put_solution(f, 0.25, false);
    expect(f, estimate_sql, "2|f|0.25");
    put_solution(f, 0.125, true);
    put_solution(f, 0.75, false); /* of an operator that has not heard of the end */
    expect(f, estimate_sql, "3|t|0.125");
    expect(f, "SELECT count(*) FROM item", "6");
    expect(f,
           "SELECT kind, layer, phase, reason, mean, stderr FROM estimate WHERE mean IS NULL "
           "ORDER BY kind",
           "job|||no samples of this metric|NULL|NULL\n"
           "layer|bot.0|backward|known only together with its group|NULL|NULL");
    expect(f, "SELECT metric, method, source FROM estimate WHERE phase = 'forward' ORDER BY metric",
           "gpu_util|regression|prometheus\nsm_active|sampling|sm__cycles");
    expect(
        f,
        "SELECT DISTINCT kind, phase, bound, bound_likely FROM result_detail ORDER BY kind, phase",
        "data||Data|1\nidle||NULL|NULL\njob||NULL|NULL\nlayer|backward|NULL|NULL\n"
        "layer|forward|Memory|0.9\nlayer|recompute|NULL|NULL");
    expect(f,
           "SELECT layer, phase, windows, gpu_util, gpu_mem, sm_active, gpu_util_by_share, "
           "gpu_mem_by_share, sm_active_by_share FROM sample",
           "bot.0|forward|3|80|NULL|0.125|85|NULL|0.25");
    expect(f,
           "SELECT DISTINCT kind, phase, memory_peak_bytes, memory_live_bytes FROM result_detail "
           "ORDER BY kind, phase",
           "data||NULL|NULL\nidle||NULL|NULL\njob||6000000000|0\n"
           "layer|backward|6000000000|-70000\nlayer|forward|5000000000|70000\n"
           "layer|recompute|NULL|NULL");
    expect(f,
           "SELECT DISTINCT kind, phase, whole_reason FROM result_detail "
           "WHERE whole_reason IS NOT NULL",
           "layer|forward|no kernels were recorded");
    expect(f, "SELECT lag_ns, window_ns, truncated, step_ns, gap_ns FROM attribution",
           "123456|250000000|f|2500000000|500000000");
    expect(f,
           "SELECT DISTINCT kind, phase, busy_ns, round(busy_ms_per_step::numeric, 1), idle_share, "
           "busy_reason, gap_ns, round(least_ms_per_step) FROM result_detail ORDER BY kind, phase",
           "data||0|0.0|1|NULL|500000000|NULL\n"
           "idle||NULL|NULL|NULL|not measured outside of steps|500000000|NULL\n"
           "job||NULL|NULL|NULL|known of the steps: gap_ns|500000000|NULL\n"
           "layer|backward|NULL|NULL|NULL|another CUPTI client|500000000|NULL\n"
           "layer|forward|250000000|50.0|0.75|NULL|500000000|100\n"
           "layer|recompute|0|0.0|1|NULL|500000000|200");
    expect(f,
           "SELECT DISTINCT kind, phase, ms_per_step_stderr, ms_per_step_freedom, "
           "busy_ms_per_step_stderr, busy_ms_per_step_freedom FROM result_detail ORDER BY kind, "
           "phase",
           "data||4|19|NULL|NULL\nidle||NULL|NULL|NULL|NULL\njob||NULL|NULL|NULL|NULL\n"
           "layer|backward|3|19|NULL|NULL\nlayer|forward|2|19|1|7\n"
           "layer|recompute|NULL|NULL|NULL|NULL");
    expect(f,
           "SELECT DISTINCT step_ms_stderr, step_ms_freedom, counted_ms_per_step_stderr, "
           "counted_ms_per_step_freedom FROM result_detail",
           "5|4|2.5|39");
    expect(f, "SELECT share FROM item WHERE kind = 'job'", "NULL");
    expect(f,
           "SELECT DISTINCT marked_steps, captures, last_marked - first_marked FROM result_detail",
           "5|3|00:00:30");
    expect(f,
           "SELECT kind, metric, mean, amount_per_step, amount_unit, counted_steps, "
           "round(counted_ms_per_step) FROM result_detail WHERE amount_per_step IS NOT NULL",
           "job|power|400|180|joules|40|450");
    expect(f, "SELECT metric, achieved, peak, peak_unit FROM result_detail WHERE peak IS NOT NULL",
           "fp32_active|2500000000000|67000000000000|FLOP per second");
    expect(f,
           "SELECT metric, r2, windows, held, held_difference, held_windows FROM fit ORDER BY r2",
           "sm_active|0.9|10|0.5|-0.01|9\ngpu_util|NULL|0|NULL|NULL|NULL");
    finish(f);
}

static const char shared_sql[] = "SELECT DISTINCT pod_uid, shared FROM result_detail";

/* The exporter says so, or another pod of the session was on the GPU at the time. */
static void shared_gpus_are_told(void **state)
{
    (void)state;
    fixture *f = start("t_shared");
    pp_estimates s;
    pp_error err = {0};
    prepare_target(f);
    put_target(f, "s1", "p2");
    put_batch(f, 0);
    put_pod_batch(f, "p2", 1); /* after the other */
    wait_all(f);
    put_solution(f, 0.5, false);
    expect(f, shared_sql, "p1|f");
    put_pod_batch(f, "p2", 0);
    wait_all(f);
    put_solution(f, 0.5, false);
    expect(f, shared_sql, "p1|t");
    sql_execute(f->direct, "UPDATE process SET gpus = '{GPU-b}' WHERE pod_uid = 'p2'");
    sql_execute(f->direct, "DELETE FROM attribution");
    put_solution(f, 0.5, false);
    expect(f, shared_sql, "p1|f");
    make_solution(&s, 0.5);
    s.shared = true;
    called(f, pp_store_put_solution(f->store, "s1", "p1", &s, NULL, false, on_done, f, &err), &err);
    wait_all(f);
    put_solution(f, 0.5, true); /* an operator that was started since has not heard of it yet */
    expect(f, shared_sql, "p1|t");
    finish(f);
}

/* What a solution knows of itself: of regression, and of replays against windows held out. */
static void quality_of_solutions(void **state)
{
    (void)state;
    static const char direct[] =
        "regression|NULL|sm_active|NULL|NULL|0.01|10|123456|10|NULL|NULL|NULL";
    char both[256];
    (void)snprintf(both, sizeof(both), "%s\n%s", direct,
                   "replay|NULL|sm_active|0.5|-0.01|NULL|9|NULL|NULL|NULL|NULL|NULL");
    fixture *f = start("t_closure");
    pp_estimates s;
    pp_error err = {0};
    prepare_target(f);
    put_batch(f, 0);
    put_solution(f, 0.5, false);
    expect(f, quality_sql, both);
    make_solution(&s, 0.5);
    s.n_closures = 0;
    called(f, pp_store_put_solution(f->store, "s1", "p1", &s, NULL, false, on_done, f, &err), &err);
    wait_all(f);
    expect(f, quality_sql, direct);
    put_solution(f, 0.5, true);
    expect(f, quality_sql, both);
    expect(f, "SELECT DISTINCT session_uid, pod_uid, gpu_uuid, latest FROM result_quality",
           "s1|p1|GPU-a|f");
    finish_session(f, "Succeeded", T0 + 100 * SECOND);
    expect(f, "SELECT DISTINCT latest FROM result_quality", "t");
    expect(f,
           "SELECT doubt, untold, explained, miss, expected_miss, items, items_z, idle, "
           "idle_stderr, shift_ns, shift_stderr_ns FROM result_quality WHERE method = 'regression'",
           "others use the GPU|too few|0.875|0.02|0.01|7|1.5|0.1|NULL|-2000|1000");
    sql_execute(f->direct, "UPDATE fit SET judged = NULL"); /* an earlier release's */
    expect(f, "SELECT method, difference FROM result_quality ORDER BY method",
           "regression|0.001\nreplay|-0.01");
    sql_execute(f->direct, "UPDATE fit SET judged = false"); /* of other methods' values */
    expect(f, "SELECT method FROM result_quality", "replay");
    finish(f);
}

static void result_has_the_papers_columns(void **state)
{
    (void)state;
    fixture *f = start("t_result");
    expect(f,
           "SELECT column_name FROM information_schema.columns WHERE table_name = 'result' "
           "ORDER BY ordinal_position",
           "job_id\nhost_name\nip\nforward\nlayer\ncpu_num\ndata_num\ngpu_util\ngpu_mem\n"
           "dram_active\nfp32_active\nsm_occupancy\nsm_active\ngpu_uuid");
    prepare_target(f);
    put_batch(f, 0);
    put_samples(f, samples, 4);
    put_solution(f, 0.5, true);
    expect(f, "SELECT count(*) FROM result", "0"); /* not finished yet */
    finish_session(f, "Succeeded", T0 + 100 * SECOND);
    expect(f, "SELECT * FROM result ORDER BY forward DESC",
           "ml/dlrm|dlrm-0|10.1.2.3|t|bot.0|1.5|7|50|NULL|NULL|NULL|NULL|0.5|GPU-a\n"
           "ml/dlrm|dlrm-0|10.1.2.3|f|bot.0|1.5|9|NULL|NULL|NULL|NULL|NULL|NULL|GPU-a");
    expect(f,
           "SELECT metric, basis, mean, elapsed_mean FROM result_detail WHERE layer = 'bot.0' "
           "AND mean IS NOT NULL ORDER BY metric",
           "gpu_util|elapsed|50|50\nsm_active|busy|0.5|0.125");
    expect(f,
           "SELECT layer, phase, metric, group_name, group_mean, latest FROM result_detail "
           "WHERE group_name IS NOT NULL",
           "bot.0|backward|sm_active|bot.0+bot.2|0.3|t");
    expect(f,
           "SELECT phase, first_step_ns, last_step_ns, extract(epoch FROM finished_at)::bigint "
           "FROM session",
           "Succeeded|1769000000000000000|1769000001000000000|1769000100");
    put_session(f, "s1", "Collecting"); /* late: what is finished stays */
    finish_session(f, "Failed", T0 + 200 * SECOND);
    expect(f, "SELECT phase, extract(epoch FROM finished_at)::bigint FROM session",
           "Succeeded|1769000100");
    finish(f);
}

typedef struct stats_seen {
    fixture *f;
    pp_session_stats session;
    pp_store_target_stats target;
    size_t n_targets;
    bool known;
} stats_seen;

static void on_stats(void *user, const pp_store_stats *stats, const pp_error *error)
{
    stats_seen *s = user;
    on_done(s->f, error);
    if (error)
        return;
    s->known = stats->known;
    s->session = stats->session;
    s->n_targets = stats->n_targets;
    if (stats->n_targets)
        s->target = stats->targets[0];
}

static stats_seen stats_of(fixture *f, const char *session)
{
    stats_seen s = {.f = f};
    pp_error err = {0};
    called(f, pp_store_load_stats(f->store, session, 60 * SECOND, on_stats, &s, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    return s;
}

/* Raw samples stay as they came; what reads them for a session takes its Prometheus' offset out. */
static void samples_on_another_clock(void **state)
{
    (void)state;
    fixture *f = start("t_clock_samples");
    pp_error err = {0};
    pp_activity_sample late[4];
    prepare_target(f);
    put_batch(f, 1);
    put_batch(f, 0);
    memcpy(late, samples, sizeof(late));
    for (size_t i = 0; i < 4; i++)
        late[i].stamp_ns += 3600 * SECOND;
    put_samples(f, late, 4);
    wait_all(f);
    pp_activity *a = load(f);
    assert_int_equal(a->n_samples, 0);
    pp_activity_free(a);
    assert_int_equal(stats_of(f, "s1").session.metrics_seen, 0);
    called(f,
           pp_store_put_prometheus_clock(f->store, "s1", 3600 * SECOND, 3600 * SECOND + 5, 7,
                                         on_done, f, &err),
           &err);
    wait_all(f);
    expect(f, "SELECT prometheus_shift_ns, prometheus_ahead_ns, prometheus_bound_ns FROM session",
           "3600000000000|3600000000005|7");
    a = load(f);
    assert_int_equal(a->n_samples, 3);
    assert_int_equal(a->samples[2].stamp_ns, T0 + SECOND);
    pp_activity_free(a);
    assert_int_not_equal(stats_of(f, "s1").session.metrics_seen, 0);
    expect(f, "SELECT max(at_ns) FROM metric_sample", "1769090000000000000");
    finish(f);
}

static void put_clocked(fixture *f, int64_t seq, const pp_store_clock *clock)
{
    sample_batch b;
    pp_error err = {0};
    make_batch(&b, seq);
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, clock, on_batch, f, &err), &err);
    wait_all(f);
}

/* What was taken out of a batch's stamps is kept with it; its target has what is known by now. */
static void clocks_are_kept(void **state)
{
    (void)state;
    fixture *f = start("t_clocks");
    static const char target_sql[] = "SELECT began_ns, clock_shift_ns, clock_ahead_ns, "
                                     "clock_bound_ns, extract(epoch FROM last_batch_at)::bigint "
                                     "FROM target";
    prepare_target(f);
    expect(f, target_sql, "NULL|0|NULL|NULL|NULL");
    put_clocked(f, 0,
                &(pp_store_clock){.now_ns = 1700000000 * SECOND,
                                  .shift_ns = -180 * SECOND,
                                  .began_ns = T0 + 5,
                                  .known = true,
                                  .ahead_ns = -180 * SECOND + 7,
                                  .bound_ns = 900});
    expect(f, target_sql, "1769000000000000005|-180000000000|-179999999993|900|1700000000");
    put_clocked(f, 1, &(pp_store_clock){.now_ns = 1700000001 * SECOND, .began_ns = T0 + 9});
    expect(f, target_sql, "1769000000000000005|0|-179999999993|900|1700000001");
    put_clocked(f, 1, &(pp_store_clock){.now_ns = 1700000009 * SECOND, .began_ns = 1});
    expect(f, target_sql, "1769000000000000005|0|-179999999993|900|1700000001");
    expect(f, "SELECT seq, clock_shift_ns FROM activity ORDER BY seq", "0|-180000000000\n1|NULL");
    const stats_seen s = stats_of(f, "s1");
    assert_true(s.session.first_step_ns == T0 + 5);
    assert_true(s.target.began_ns == T0 + 5 && s.target.first_ns == T0);
    assert_true(s.target.clock_shift_ns == 0 && s.target.clock_bound_ns == 900);
    assert_true(s.target.clock_ahead_ns == -180 * SECOND + 7);
    assert_true(s.target.last_batch_ns == 1700000001 * SECOND);
    finish(f);
}

static const pp_chip h200 = {90, 132, 1980000, 3201000, 6144};

/* A second of one layer's replays; number 3, of which the agent tells what kept it from others. */
static void put_replays(fixture *f, int64_t seq, bool background)
{
    sample_batch b;
    pp_error err = {0};
    pp_wire_cell cells[] = {{0, 1, 7000000, 300, PP_WIRE_BACKWARD, background ? 0 : 6000000},
                            {0, 0, 3000000, 9, PP_WIRE_OTHER, 1000000}};
    make_batch(&b, seq);
    b.batch.interval_count = 0;
    b.batch.grid =
        (pp_wire_grid){.start = T0 + seq * SECOND, .cell = 10000000, .cells = cells, .count = 2};
    b.batch.capture.id = 2;
    b.batch.capture.dwell = 3;
    b.batch.capture.background = background;
    b.batch.cost.paused = 1100000000;
    b.layers[1].forward_skip = background ? 4 : 0;  /* told by the first that names it, */
    b.layers[0].backward_skip = background ? 0 : 8; /* and later */
    b.layers[0].whole = background ? 3 : 8;
    b.layers[1].whole = background ? 0 : 5;
    b.batch.process.isolated = (char *)(uintptr_t) "compiled code";
    if (background) /* the later batch says nothing of it */
        b.batch.process.chip = h200;
    b.batch.process.gpu_model = background ? (char *)(uintptr_t) "NVIDIA H200" : NULL;
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    assert_int_equal(pp_store_count_events(&b.batch), 0);
}

static void check_replays(fixture *f)
{
    pp_activity *a = load(f);
    assert_int_equal(a->n_batches, 5);
    assert_int_equal(a->n_steps, 3);
    assert_int_equal(a->batches[0].dwell, 0);
    assert_true(a->batches[1].dwell == 3 && a->batches[1].background);
    assert_true(a->batches[2].dwell == 3 && !a->batches[2].background);
    assert_int_equal(a->n_cells, 4);
    assert_true(a->cells[2].batch == 2 && a->cells[2].calls == 300);
    assert_int_equal(a->cells[2].kernels_ns, 6000000);
    assert_string_equal(a->processes[0].isolated, "compiled code");
    assert_memory_equal(&a->processes[0].chip, &h200, sizeof h200);
    assert_string_equal(a->processes[0].gpu_model, "NVIDIA H200");
    assert_true(a->layers[0].skip_reason[0] == 0 && a->layers[0].skip_reason[1] == 8);
    assert_true(a->layers[1].skip_reason[0] == 4 && a->layers[1].skip_reason[1] == 0);
    assert_true(a->layers[0].whole_reason == 8 && a->layers[1].whole_reason == 5);
    pp_activity_free(a);
}

/* Replays are kept, and are in no count of the training; told again they change nothing. */
static void replays_are_no_training(void **state)
{
    (void)state;
    fixture *f = start("t_replays");
    prepare_target(f);
    for (int again = 0; again < 2; again++) {
        put_replays(f, 1, true);
        put_batch(f, 0);
        put_replays(f, 2, false);
    }
    wait_all(f);
    stats_seen seen = stats_of(f, "s1");
    assert_true(seen.target.replaying);
    assert_int_equal(seen.target.steps, 1);
    put_batch(f, 3);
    put_batch(f, 5);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    expect(f, "SELECT steps, events, batches, dropped FROM target", "3|9|5|5");
    expect(f, "SELECT observed_last_ns - observed_first_ns, last_ns - first_ns FROM target",
           "6000000000|6000000000");
    expect(f, "SELECT steps, events, replays, paused_ns, isolated, replaying FROM process",
           "3|9|300|2200000000|compiled code|f");
    expect(f, "SELECT dwell, background, events, step_number, step_gap FROM activity ORDER BY seq",
           "NULL|NULL|3|{0}|{125000000}\n3|t|0|{}|NULL\n3|f|0|{}|NULL\n"
           "NULL|NULL|3|{3}|{125000000}\nNULL|NULL|3|{5}|{125000000}");
    expect(f, "SELECT forward_left_out, backward_left_out, whole FROM layer ORDER BY layer",
           "NULL|8|8\n4|NULL|5");
    check_replays(f);
    seen = stats_of(f, "s1");
    assert_false(seen.target.replaying);
    assert_int_equal(seen.target.replays, 300);
    assert_int_equal(seen.target.paused_ns, 2200000000);
    assert_int_equal(seen.session.paused_ns, 2200000000);
    assert_string_equal(seen.target.isolated, "compiled code");
    finish(f);
}

static void put_model(fixture *f, const char *instance, int64_t seq, const char *digest,
                      const char *shapes)
{
    sample_batch b;
    pp_error err = {0};
    make_batch(&b, seq);
    b.batch.instance = (char *)(uintptr_t)instance;
    b.batch.process.digest = (char *)(uintptr_t)digest;
    b.batch.process.batch = (char *)(uintptr_t)shapes;
    called(f, pp_store_put_batch(f->store, "s1", "p1", &b.batch, NULL, on_batch, f, &err), &err);
    wait_all(f);
}

/* What it said last, to whichever agent, and in whatever order that comes. */
static void what_a_process_trains(void **state)
{
    (void)state;
    fixture *f = start("t_models");
    prepare_target(f);
    put_model(f, "agent-1", 1, "0123456789abcdef", "");
    put_model(f, "agent-1", 3, "0123456789abcdef", hostile);
    put_model(f, "agent-1", 2, "ffffffffffffffff", "8 int64");
    expect(f, "SELECT model, model_digest, batch <> '' FROM process", "DLRM|0123456789abcdef|t");
    pp_activity *a = load(f);
    assert_string_equal(a->processes[0].model, "DLRM");
    assert_string_equal(a->processes[0].digest, "0123456789abcdef");
    assert_string_equal(a->processes[0].batch, hostile);
    pp_activity_free(a);
    put_model(f, "agent-0", 4, "ffffffffffffffff", "8 int64");
    a = load(f);
    assert_int_equal(a->n_processes, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(a->processes[i].digest, "ffffffffffffffff");
        assert_string_equal(a->processes[i].batch, "8 int64");
    }
    pp_activity_free(a);
    finish(f);
}

/* A pod of which nothing has come yet has done nothing. */
static void a_pod_that_has_said_nothing(void **state)
{
    (void)state;
    fixture *f = start("t_said_nothing");
    prepare_target(f);
    const stats_seen seen = stats_of(f, "s1");
    assert_int_equal(seen.n_targets, 1);
    assert_int_equal(seen.target.paused_ns, 0);
    assert_int_equal(seen.target.replays, 0);
    finish(f);
}

/* No share of steps that were not counted, or of which nobody told whether the host waited. */
static void what_is_not_known_is_null(void **state)
{
    (void)state;
    fixture *f = start("t_null");
    prepare_target(f);
    sql_execute(
        f->direct,
        "INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock) VALUES "
        "('s1', 'p1', 'agent', 0, '{GPU-a}', 'cuda');"
        "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, "
        " samples, observed_ns, step_count, truncated, step_ns, gap_ns, counted_steps, "
        " counted_ns) SELECT 's1', 'p1', 'GPU-' || name, 1, true, 0, 0, 1000, 5, false, 1000, "
        " gap, counted, ns FROM (VALUES ('counted', 600, 10, 1000), ('gap', NULL, 10, 1000), "
        "  ('longer', 0, 10, 1000), ('none', 500, 0, 0), ('old', 500, NULL, NULL)) "
        " AS v (name, gap, counted, ns);"
        "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, calls, "
        " total_ns, windows) SELECT 's1', 'p1', gpu_uuid, 'job', '', '', 0, 0, 0 "
        " FROM attribution;"
        "INSERT INTO host_wait VALUES ('s1', 'p1', 0, '', 'other', 'item', 'f.py', 1, 9, 2, "
        " 50)");
    expect(f,
           "SELECT gpu_uuid, round(counted_idle_share::numeric, 9)::float8 FROM result_detail "
           "ORDER BY gpu_uuid COLLATE \"C\"",
           "GPU-counted|0.2\nGPU-gap|NULL\nGPU-longer|0\nGPU-none|NULL\nGPU-old|NULL");
    expect(f, "SELECT calls_per_step, share_of_steps, ms_per_step FROM result_wait",
           "NULL|NULL|NULL");
    sql_execute(f->direct, "UPDATE process SET wait_steps = 1");
    expect(f, "SELECT calls_per_step, share_of_steps FROM result_wait", "9|1");
    finish(f);
}

/* What an agent counts is its own to say: figures that cannot be summed keep no session from its
 * end. */
static void figures_that_cannot_be(void **state)
{
    (void)state;
    fixture *f = start("t_figures");
    prepare_target(f);
    put_replays(f, 1, false);
    put_replays(f, 2, false);
    wait_all(f);
    sql_execute(f->direct,
                "INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock, "
                "replays, paused_ns) VALUES ('s1', 'p1', 'agent-0', 0, '{}', 'cuda', "
                "9223372036854775807, 9223372036854775807)");
    const stats_seen seen = stats_of(f, "s1");
    assert_true(seen.target.paused_ns == INT64_MAX && seen.target.replays == INT64_MAX);
    finish(f);
}

/* A process that is gone amid replays never ends them: by the others' time it is known to be. */
static void replays_of_who_is_gone(void **state)
{
    (void)state;
    static const char later[] = "UPDATE process SET last_end_ns = last_end_ns + 29000000000 "
                                "WHERE process = 1";
    fixture *f = start("t_gone");
    prepare_target(f);
    put_replays(f, 1, false);
    wait_all(f);
    sql_execute(f->direct, "INSERT INTO process SELECT (jsonb_populate_record(p, "
                           "'{\"process\": 1, \"replaying\": false}')).* FROM process p");
    sql_execute(f->direct, later);
    assert_true(stats_of(f, "s1").target.replaying);
    sql_execute(f->direct, later);
    assert_false(stats_of(f, "s1").target.replaying);
    sql_execute(f->direct, "UPDATE process SET replaying = true WHERE process = 1");
    assert_true(stats_of(f, "s1").target.replaying);
    finish(f);
}

static void statistics(void **state)
{
    (void)state;
    fixture *f = start("t_stats");
    assert_false(stats_of(f, "nobody").known);
    prepare_target(f);
    stats_seen s = stats_of(f, "s1");
    assert_true(s.known && s.n_targets == 1);
    assert_int_equal(s.target.rank, -1);
    assert_int_equal(s.target.epoch, -1);
    assert_int_equal(s.target.last_batch_ns, 0);
    assert_false(s.session.final_written);
    put_batch(f, 0);
    put_batch(f, 1);
    put_samples(f, samples, 4);
    put_solution(f, 0.5, true);
    s = stats_of(f, "s1");
    assert_true(s.session.judged == 1 && s.session.doubted == 1 && s.session.predicted == 0);
    assert_true(isnan(s.session.least_explained));
    assert_string_equal(s.session.doubt, "sm_active: others use the GPU");
    sql_execute(f->direct, "UPDATE fit SET doubt = NULL");
    s = stats_of(f, "s1");
    assert_true(s.session.doubted == 0 && s.session.least_explained == 0.875);
    assert_true(s.session.judged == 1 && s.session.predicted == 1);
    assert_string_equal(s.session.doubt, "sm_active: too few");
    assert_int_equal(s.session.first_step_ns, T0);
    assert_int_equal(s.session.last_step_ns, T0 + 2 * SECOND);
    assert_int_equal(s.session.events, 6);
    assert_int_equal(s.session.steps, 2);
    assert_int_equal(s.session.counted_steps, 40);
    assert_int_equal(s.session.dropped, 2);
    assert_int_equal(s.session.layers, 2);
    assert_int_equal(s.session.samples_joined, 20);
    assert_int_equal(s.session.samples_stored, 1);
    assert_int_equal(s.session.samples_deduplicated, 2);
    assert_true(s.session.samples_error == 0.0025 && s.session.samples_spread == 0.125);
    assert_int_equal(s.session.metrics_seen, 1U << PP_METRIC_GPU_UTIL | 1U << PP_METRIC_SM_ACTIVE);
    assert_true(s.session.metrics_partly == 0 && s.session.gpus == 1);
    sql_execute(f->direct, "UPDATE process SET gpus = gpus || '{GPU-x,GPU-y,MIG-z}'");
    s = stats_of(f, "s1");
    assert_int_equal(s.session.metrics_partly, s.session.metrics_seen);
    assert_true(s.session.gpus == 3 && s.session.unseen[PP_METRIC_SM_ACTIVE].count == 2);
    assert_string_equal(s.session.unseen[PP_METRIC_SM_ACTIVE].gpu, "GPU-x");
    assert_true(s.session.final_written);
    assert_int_equal(s.session.final_layers, 1);
    assert_int_equal(s.session.final_job_means, 2);
    assert_true(s.session.final_phases == 3 && s.session.final_pods == 1);
    assert_int_equal(s.session.final_own, 2);
    assert_int_equal(s.session.final_groups, 1);
    assert_true(s.session.last_batch_ns > T0);
    assert_int_equal(s.target.rank, 0);
    assert_true(s.target.open_capture);
    assert_int_equal(s.target.epoch, 0);
    assert_int_equal(s.target.batch, 1);
    assert_true(!s.target.pm && !*s.target.pm_why);
    put_why(f, "agent-1", 2, "no CUPTI is loaded");
    s = stats_of(f, "s1");
    assert_string_equal(s.target.pm_why, "no CUPTI is loaded");
    assert_false(s.target.pm);
    put_pm(f, "agent-1", 3, 50, 500000);
    wait_all(f);
    assert_true(stats_of(f, "s1").target.pm);
    finish(f);
}

typedef struct retired_seen {
    fixture *f;
    pp_store_retired retired;
} retired_seen;

static void on_retired(void *user, const pp_store_retired *retired, const pp_error *error)
{
    retired_seen *s = user;
    on_done(s->f, error);
    if (retired)
        s->retired = *retired;
}

static pp_store_retired retire(fixture *f, pp_store_retention ages, int64_t now)
{
    retired_seen s = {.f = f};
    pp_error err = {0};
    called(f, pp_store_retire(f->store, &ages, now, on_retired, &s, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    return s.retired;
}

static void retention(void **state)
{
    (void)state;
    fixture *f = start("t_retention");
    const pp_store_retention ages = {.activity = DAY, .samples = 2 * DAY, .results = 10 * DAY};
    prepare_target(f);
    for (int i = 0; i < 3; i++)
        put_batch(f, i);
    put_sampled(f, "agent-1", 3, 70, 500000, -1400123);
    put_kernels(f, 2, "agent-2", 0);
    put_waits(f, 9, &(pp_wire_wait){0, PP_WIRE_OTHER, 0, 0, 1, 1, 1, 1}, 1);
    put_copies(f, 10, &(pp_wire_copy){0, PP_WIRE_OTHER, PP_WIRE_FILL, 0, 1, 1, 1}, 1);
    put_samples(f, samples, 4);
    put_solution(f, 0.5, true);
    pp_store_retired r = retire(f, ages, T0 + 100 * DAY); /* not finished: only old samples go */
    assert_int_equal(r.batches + r.sample_rows + r.sessions, 0);
    assert_int_equal(r.partitions, 2);
    put_samples(f, samples, 4); /* their days can be made again */
    finish_session(f, "Succeeded", T0);
    r = retire(f, ages, T0 + DAY / 2);
    assert_int_equal(r.batches + r.sample_rows + r.sessions + r.partitions, 0);
    r = retire(f, ages, T0 + DAY + SECOND);
    assert_int_equal(r.batches, 6);
    assert_int_equal(r.sample_rows + r.kernel_rows, 0);
    r = retire(f, ages, T0 + 3 * DAY + SECOND);
    assert_int_equal(r.sample_rows, 1);
    assert_int_equal(r.partitions, 1); /* the day of T0 + DAY has not been over for long enough */
    expect(f, "SELECT count(*) FROM metric_sample", "1");
    expect(f, "SELECT count(*) FROM result", "2"); /* results outlive what they come from */
    expect(f, "SELECT count(*) FROM result_quality", "4");
    expect(f, "SELECT count(*) FROM result_kernel", "4");
    r = retire(f, ages, T0 + 11 * DAY);
    assert_int_equal(r.kernel_rows, 4);
    assert_int_equal(r.wait_rows, 1);
    assert_int_equal(r.copy_rows, 1);
    assert_int_equal(r.sessions, 1);
    expect(f,
           "SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM item) + "
           "(SELECT count(*) FROM layer) + (SELECT count(*) FROM pattern) + "
           "(SELECT count(*) FROM fine) + (SELECT count(*) FROM fit)",
           "0");
    finish(f);
}

/* Of so many that a plan reads the catalog's relations first, whose names are no days. */
static void days_among_other_relations(void **state)
{
    (void)state;
    fixture *f = start("t_days");
    const pp_store_retention ages = {.samples = DAY};
    sql_execute(f->direct, "SELECT metric_sample_partitions(86400000000000, 86400000000000 * 100)");
    sql_execute(f->direct, "ANALYZE pg_class; ANALYZE pg_inherits");
    pp_store_retired r = retire(f, ages, T0);
    assert_int_equal(r.partitions, 10);
    assert_true(r.more);
    expect(f,
           "SELECT min(substr(relname, 15)::int) FROM pg_class WHERE relname LIKE "
           "'metric_sample_%' AND relkind = 'r'",
           "11");
    finish(f);
}

static const char dropping_sql[] =
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'metric_sample'::regclass";

/* As pg_dump does, or whoever has left a transaction open. */
static void an_old_day_that_is_read(void **state)
{
    (void)state;
    fixture *f = start("t_day_read");
    retired_seen s = {.f = f};
    pp_error err = {0};
    const pp_store_retention ages = {.activity = DAY, .samples = DAY};
    prepare_target(f);
    put_batch(f, 0);
    put_samples(f, samples, 4);
    finish_session(f, "Succeeded", T0);
    PGconn *reader = sql_connect(f->conninfo);
    sql_execute(reader,
                "BEGIN; SELECT count(*) FROM metric_sample WHERE at_ns = 1769000000000000000");
    called(f, pp_store_retire(f->store, &ages, T0 + 2 * DAY, on_retired, &s, &err), &err);
    bool waits = false;
    for (int i = 0; i < 6000 && !waits; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        usleep(10000);
        waits = sql_count(f->direct, dropping_sql) == 1;
    }
    assert_true(waits);
    /* Another day is written and read meanwhile. */
    sql_execute(f->direct, "SET statement_timeout = '30s'; "
                           "INSERT INTO metric_sample SELECT 'GPU-c', metric, source, at_ns, value "
                           "FROM metric_sample WHERE at_ns = 1769086400000000000");
    expect(f, "SELECT count(*) FROM metric_sample WHERE gpu_uuid = 'GPU-c'", "1");
    wait_all(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(s.retired.batches, 1);
    assert_int_equal(s.retired.partitions, 0);
    assert_false(s.retired.more);
    sql_execute(reader, "COMMIT");
    PQfinish(reader);
    assert_int_equal(retire(f, ages, T0 + 2 * DAY).partitions, 1);
    expect(f, "SELECT count(*) FROM metric_sample", "2");
    finish(f);
}

static int64_t days_ago(fixture *f, int days)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql,
                   "SELECT ((extract(epoch FROM now()) - %d * 86400) * 1000000000)::bigint", days);
    return strtoll(sql_ask(f->direct, sql), NULL, 10);
}

/* A clock that is ahead deletes nothing before its time, by the database's, and one that is behind
 * nothing before its own. */
static void the_later_of_two_clocks_deletes_nothing(void **state)
{
    (void)state;
    fixture *f = start("t_ahead");
    const pp_store_retention ages = {.activity = 7 * DAY, .samples = 7 * DAY, .results = 7 * DAY};
    const int64_t now = days_ago(f, 0);
    pp_activity_sample days[] = {{0, PP_METRIC_SM_ACTIVE, days_ago(f, 2), 0.5},
                                 {0, PP_METRIC_SM_ACTIVE, days_ago(f, 12), 0.5}};
    prepare_target(f);
    put_batch(f, 0);
    put_kernels(f, 2, "agent-2", 0);
    put_samples(f, days, 1);
    put_solution(f, 0.5, true);
    finish_session(f, "Succeeded", days_ago(f, 1));
    pp_store_retired r = retire(f, ages, now + 10 * DAY);
    assert_int_equal(r.batches + r.sample_rows + r.kernel_rows + r.sessions + r.partitions, 0);
    assert_true(llabs(r.ahead_ns - 10 * DAY) < 600 * SECOND);
    put_samples(f, days + 1, 1);
    sql_execute(f->direct, "UPDATE session SET finished_at = now() - interval '12 days'");
    r = retire(f, ages, now - 10 * DAY);
    assert_int_equal(r.batches + r.sample_rows + r.kernel_rows + r.sessions + r.partitions, 0);
    assert_true(llabs(r.ahead_ns + 10 * DAY) < 600 * SECOND);
    r = retire(f, ages, now + 10 * DAY);
    assert_int_equal(r.batches, 2);
    assert_int_equal(r.sample_rows, 1);
    assert_true(r.kernel_rows > 0);
    assert_int_equal(r.sessions, 1);
    assert_int_equal(r.partitions, 1);
    expect(f, "SELECT count(*) FROM metric_sample", "1");
    finish(f);
}

/* ---- patterns ---- */

static void put_usage_of(fixture *f, const char *session, double step_ms, double sm,
                         const char *batch, const pp_chip *chip)
{
    pp_error err = {0};
    pp_estimates s;
    make_solution(&s, 0.5);
    pp_usage_metric metrics[] = {{.metric = PP_METRIC_SM_ACTIVE,
                                  .source = PP_USAGE_LAYERS,
                                  .mean = {sm, 0.01},
                                  .p50 = {sm, (double)NAN},
                                  .p95 = {(double)NAN, (double)NAN},
                                  .most = {(double)NAN, (double)NAN},
                                  .achieved = PP_UNKNOWN,
                                  .peak = (double)NAN,
                                  .has_profile = true,
                                  .profile = {0.25, [PP_USAGE_BINS - 1] = 1.0 / 3}},
                                 {.metric = PP_METRIC_GPU_MEM,
                                  .source = PP_USAGE_WINDOWS,
                                  .mean = {1000, 1},
                                  .p50 = {1000, 1},
                                  .p95 = {1001, 1},
                                  .most = {1002, 0},
                                  .achieved = PP_UNKNOWN,
                                  .peak = (double)NAN},
                                 {.metric = PP_METRIC_DRAM_ACTIVE,
                                  .source = PP_USAGE_LAYERS,
                                  .mean = {0.5, 0.01},
                                  .p50 = PP_UNKNOWN,
                                  .p95 = PP_UNKNOWN,
                                  .most = PP_UNKNOWN,
                                  .achieved = {2e12, 1e10},
                                  .peak = 4e12}};
    pp_usage u = {.steps = 40,
                  .undisturbed = true,
                  .busy = true,
                  .step_ns = {step_ms * 1e6, 1e3},
                  .step_sd_ns = (double)NAN,
                  .idle = {0.125, 0.01},
                  .bounds = {[PP_BOUND_MEMORY] = {0.75, 0.02}, [PP_BOUND_LAUNCH] = {0.25, 0.02}},
                  .rates = {PP_UNKNOWN, PP_UNKNOWN, {3e12, 2e10}},
                  .gpu = {.model = "NVIDIA H200", .chip = *chip},
                  .metrics = metrics,
                  .n_metrics = 3};
    assert_int_equal(pp_usage_add_type(&u, hostile, true, (pp_figure){0.5, 0.1}, NULL), 0);
    assert_int_equal(
        pp_usage_add_type(&u, "optimizer", false, (pp_figure){0.25, (double)NAN}, NULL), 0);
    assert_int_equal(pp_models_add(&u.models, hostile, "0123456789abcdef", batch, NULL), 0);
    assert_int_equal(pp_models_add(&u.models, "", "", "", NULL), 0);
    called(f, pp_store_put_solution(f->store, session, "p1", &s, &u, true, on_done, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    pp_strings_free(&u.names);
    pp_models_done(&u.models);
}

static void put_usage(fixture *f, const char *session, double step_ms, double sm)
{
    put_usage_of(f, session, step_ms, sm, "8x16 float32", &h200);
}

typedef struct seen_usages {
    fixture *f;
    size_t n;
    double steps[4];
    char type[sizeof hostile];
} seen_usages;

static void on_usages(void *user, const pp_workload_usages *usages, const pp_error *error)
{
    seen_usages *s = user;
    pp_error err = {0};
    pp_patterns patterns = {0};
    assert_null(error);
    s->n = usages->n;
    for (size_t i = 0; i < usages->n && i < 4; i++) {
        const pp_usage *one = usages->items[i].usage;
        s->steps[i] = one->step_ns.value;
        /* What bounds nothing has no rate, and not one of 0. */
        assert_true(isnan(one->rates[PP_BOUND_TENSOR].value));
        assert_true(one->rates[PP_BOUND_MEMORY].value == 3e12);
        (void)snprintf(s->type, sizeof s->type, "%s", one->types[0].name);
    }
    assert_int_equal(pp_patterns_make(usages, T0 + 3 * DAY, &patterns, &err), 0);
    called(s->f, pp_store_put_patterns(s->f->store, &patterns, on_done, s->f, &err), &err);
    pp_patterns_done(&patterns);
    on_done(s->f, NULL);
}

static seen_usages make_patterns(fixture *f, const char *session)
{
    pp_error err = {0};
    seen_usages seen = {.f = f};
    called(f, pp_store_load_usages(f->store, session, on_usages, &seen, &err), &err);
    wait_all(f);
    assert_int_equal(f->failed, 0);
    return seen;
}

static void finish_one(fixture *f, const char *session, const char *phase, int64_t at)
{
    pp_error err = {0};
    called(f, pp_store_finish(f->store, session, phase, at, on_done, f, &err), &err);
    wait_all(f);
}

static void a_workload_is_what_its_sessions_are(void **state)
{
    (void)state;
    fixture *f = start("t_patterns");
    prepare_target(f);
    put_usage(f, "s1", 10, 0.5);
    expect(f, "SELECT steps, undisturbed, busy, step_ns, step_sd_ns, idle FROM usage",
           "40|t|t|10000000|NULL|0.125");
    expect(f,
           "SELECT metric, source, mean, p50, p50_stderr, p95, most, cardinality(profile), "
           "profile[1], profile[20] FROM usage_metric ORDER BY metric",
           "dram_active|layers|0.5|NULL|NULL|NULL|NULL|NULL|NULL|NULL\n"
           "gpu_mem|windows|1000|1000|1|1001|1002|NULL|NULL|NULL\n"
           "sm_active|layers|0.5|0.5|NULL|NULL|NULL|20|0.25|0.3333333333333333");
    expect(f,
           "SELECT kind, name, share, share_stderr FROM usage_share WHERE kind <> 'layer' "
           "ORDER BY kind, name",
           "bound|Launch|0.25|0.02\nbound|Memory|0.75|0.02\nphase|optimizer|0.25|NULL");
    expect(f, "SELECT gpu_model, chip FROM usage", "NVIDIA H200|{90,132,1980000,3201000,6144}");
    expect(f, "SELECT metric, achieved, achieved_stderr, peak FROM usage_metric ORDER BY metric",
           "dram_active|2000000000000|10000000000|4000000000000\ngpu_mem|NULL|NULL|NULL\n"
           "sm_active|NULL|NULL|NULL");
    expect(f, "SELECT name, achieved, achieved_stderr FROM usage_share ORDER BY achieved LIMIT 2",
           "Memory|3000000000000|20000000000\n"
           "Launch|NULL|NULL");
    assert_int_equal(make_patterns(f, "s1").n, 0); /* it has not succeeded */
    expect(f, "SELECT count(*) FROM pattern", "0");
    finish_one(f, "s1", "Succeeded", T0 + DAY);
    seen_usages seen = make_patterns(f, "s1");
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.type, hostile);
    expect(f,
           "SELECT namespace, workload_kind, workload_name, session_uid, sessions, gpus, bound, "
           "lead, steps, step_ns, idle FROM pattern",
           "ml|Job|dlrm|s1|1|1|Memory|0.5|40|10000000|0.125");
    expect(f,
           "SELECT metric, source, mean, mean_stderr, most, profile[20] FROM pattern_metric "
           "ORDER BY metric",
           "dram_active|layers|0.5|0.01414213562373095|NULL|NULL\n"
           "gpu_mem|windows|1000|1|1002|NULL\nsm_active|layers|0.5|0.01414213562373095|NULL|0."
           "3333333333333333");
    expect(f,
           "SELECT p.gpu_model, m.achieved, round(m.achieved_stderr), m.peak, s.achieved, "
           "s.achieved_stderr FROM pattern p JOIN pattern_metric m USING (workload_name) "
           "JOIN pattern_share s USING (workload_name) WHERE metric = 'dram_active' "
           "AND s.name = 'Memory'",
           "NVIDIA H200|2000000000000|41231056256|4000000000000|3000000000000|20000000000");
    put_session(f, "s2", "Collecting");
    put_target(f, "s2", "p1");
    wait_all(f);
    put_usage(f, "s2", 20, 0.75);
    finish_one(f, "s2", "Succeeded", T0 + 2 * DAY);
    seen = make_patterns(f, "s1"); /* whichever of its sessions is named */
    assert_int_equal(seen.n, 2);
    assert_true(seen.steps[0] == 10e6 && seen.steps[1] == 20e6);
    expect(f,
           "SELECT session_uid, sessions, gpus, steps, step_ns BETWEEN 15e6 AND 15.3e6, "
           "step_ns_stderr > 4e6, last_at - first_at FROM pattern",
           "s2|2|2|80|t|t|1 day");
    expect(f, "SELECT count(*), count(DISTINCT kind) FROM pattern_share", "4|3");
    /* What knows of fewer sessions does not come after it. */
    sql_execute(f->direct, "UPDATE session SET phase = 'Failed' WHERE uid = 's2'");
    assert_int_equal(make_patterns(f, "s1").n, 1);
    expect(f, "SELECT session_uid, sessions FROM pattern", "s2|2");
    expect(f, "SELECT count(*) FROM pattern_metric", "3");
    /* So does another GPU. */
    sql_execute(f->direct, "UPDATE session SET phase = 'Succeeded' WHERE uid = 's2'");
    put_usage_of(f, "s2", 20, 0.75, "8x16 float32", &(pp_chip){90, 114, 1755000, 1593000, 5120});
    assert_int_equal(make_patterns(f, "s1").n, 2);
    expect(f,
           "SELECT session_uid, sessions, sessions_of_other_models, sessions_on_other_gpus, gpus, "
           "step_ns FROM pattern",
           "s2|1|0|1|1|20000000");
    /* Another batch is another version, which begins anew. */
    put_usage_of(f, "s2", 20, 0.75, "16x16 float32", &h200);
    assert_int_equal(make_patterns(f, "s1").n, 2);
    expect(f,
           "SELECT session_uid, sessions, sessions_of_other_models, gpus, steps, step_ns, "
           "last_at - first_at, models[1], model_digests, batches FROM pattern",
           "s2|1|1|1|40|20000000|00:00:00||{\"\",0123456789abcdef}|{\"\",\"16x16 float32\"}");
    sql_execute(f->direct, "DELETE FROM session WHERE uid = 's2'");
    expect(f, "SELECT count(*) FROM pattern", "0");
    finish(f);
}

static void a_usage_stands_and_falls_with_its_solution(void **state)
{
    (void)state;
    fixture *f = start("t_usage");
    prepare_target(f);
    put_usage(f, "s1", 10, 0.5);
    put_solution(f, 0.25, false); /* the final one stays, and its usage */
    expect(f, "SELECT count(*) FROM usage", "1");
    put_usage(f, "s1", 11, 0.5);
    expect(f, "SELECT step_ns FROM usage", "11000000");
    expect(f, "SELECT count(*) FROM usage_share", "4");
    finish(f);
}

static const char everything_sql[] =
    "SELECT md5(string_agg(x, E'\\n' ORDER BY x)) FROM ("
    "SELECT (to_jsonb(a) - 'received_at')::text AS x FROM activity a UNION ALL "
    "SELECT (to_jsonb(t) - 'last_batch_at')::text FROM target t UNION ALL "
    "SELECT to_jsonb(p)::text FROM process p UNION ALL SELECT to_jsonb(l)::text FROM layer l "
    "UNION ALL SELECT to_jsonb(m)::text FROM metric_sample m UNION ALL "
    "SELECT to_jsonb(e)::text FROM estimate e UNION ALL SELECT to_jsonb(i)::text FROM item i "
    "UNION ALL SELECT to_jsonb(v)::text FROM fine v UNION ALL SELECT to_jsonb(c)::text FROM fit c "
    "UNION ALL SELECT to_jsonb(k)::text FROM kernel k) q";

/* What is in the store does not depend on the order in which it came, nor on repeats. */
static void replay_gives_the_same(void **state)
{
    (void)state;
    fixture *f = start("t_replay_a");
    char first[64];
    prepare_target(f);
    for (int i = 0; i < 20; i++)
        put_batch(f, i);
    put_kernels(f, 30, "agent-1", 0);
    put_kernels(f, 31, "agent-1", 1);
    put_kernels(f, 32, "agent-1", 0);
    put_sampled(f, "agent-1", 20, 60, 500000, 7);
    put_sampled(f, "agent-1", 21, 70, 500000, -1400123);
    put_samples(f, samples, 4);
    put_solution(f, 0.5, true);
    (void)snprintf(first, sizeof(first), "%s", sql_ask(f->direct, everything_sql));
    finish(f);
    f = start("t_replay_b");
    prepare_target(f);
    for (int i = 0; i < 20; i++) {
        put_batch(f, 19 - i);
        put_batch(f, (7 * i) % 20);
        put_kernels(f, 32 - i % 3, "agent-1", i % 3 == 1);
    }
    put_sampled(f, "agent-1", 21, 70, 500000, -1400123);
    put_sampled(f, "agent-1", 20, 60, 500000, 7);
    put_sampled(f, "agent-1", 21, 70, 500000, -1400123);
    put_samples(f, samples + 2, 2);
    put_samples(f, samples, 3);
    put_solution(f, 0.5, true);
    expect(f, everything_sql, first);
    finish(f);
}

static void unfinished_seen(void *user, const pp_strings *uids, const pp_error *error)
{
    fixture *f = user;
    on_done(f, error);
    f->inserted = (int)uids->count;
}

static void unfinished_sessions(void **state)
{
    (void)state;
    fixture *f = start("t_unfinished");
    pp_error err = {0};
    put_session(f, "s1", "Pending");
    put_session(f, "s2", "Pending");
    wait_all(f);
    finish_session(f, "Failed", T0);
    called(f, pp_store_load_unfinished(f->store, NULL, unfinished_seen, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->inserted, 1);
    called(f, pp_store_load_unfinished(f->store, "ml", unfinished_seen, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->inserted, 1);
    called(f, pp_store_load_unfinished(f->store, "other", unfinished_seen, f, &err), &err);
    wait_all(f);
    assert_int_equal(f->inserted, 0);
    finish(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema_is_made_once),
        cmocka_unit_test(two_processes_migrate_at_once),
        cmocka_unit_test(newer_schema_is_refused),
        cmocka_unit_test(changed_migration_is_refused),
        cmocka_unit_test(a_workload_is_what_its_sessions_are),
        cmocka_unit_test(a_usage_stands_and_falls_with_its_solution),
        cmocka_unit_test(lost_kernels_count_as_dropped),
        cmocka_unit_test(batch_twice_counts_once),
        cmocka_unit_test(clocks_are_kept),
        cmocka_unit_test(samples_on_another_clock),
        cmocka_unit_test(hostile_names_are_data),
        cmocka_unit_test(unknown_target_is_told),
        cmocka_unit_test(full_queue_refuses),
        cmocka_unit_test(host_names_are_resolved),
        cmocka_unit_test(a_silent_host_is_passed_over),
        cmocka_unit_test(samples_are_stored_once),
        cmocka_unit_test(stored_is_loaded),
        cmocka_unit_test(too_much_memory_is_left_out),
        cmocka_unit_test(texts_without_end_are_cut),
        cmocka_unit_test(pm_values_are_replaced),
        cmocka_unit_test(agents_of_two_releases),
        cmocka_unit_test(metrics_are_the_programs),
        cmocka_unit_test(how_it_was_sampled_is_replaced),
        cmocka_unit_test(quality_of_pm_values),
        cmocka_unit_test(quality_of_solutions),
        cmocka_unit_test(why_nothing_is_sampled_is_kept),
        cmocka_unit_test(grid_is_loaded),
        cmocka_unit_test(counted_steps_are_kept),
        cmocka_unit_test(unknown_busy_times_are_null),
        cmocka_unit_test(kernels_are_summed),
        cmocka_unit_test(kernels_of_replays_are_no_trainings),
        cmocka_unit_test(result_has_kernels),
        cmocka_unit_test(ranks_side_by_side),
        cmocka_unit_test(a_rank_alone_is_not_kept),
        cmocka_unit_test(longest_kernel_names),
        cmocka_unit_test(waits_are_summed),
        cmocka_unit_test(waits_without_end),
        cmocka_unit_test(waits_of_replays_are_no_trainings),
        cmocka_unit_test(copies_are_summed),
        cmocka_unit_test(copies_without_end),
        cmocka_unit_test(kernels_without_end),
        cmocka_unit_test(replays_are_no_training),
        cmocka_unit_test(what_a_process_trains),
        cmocka_unit_test(a_pod_that_has_said_nothing),
        cmocka_unit_test(what_is_not_known_is_null),
        cmocka_unit_test(figures_that_cannot_be),
        cmocka_unit_test(replays_of_who_is_gone),
        cmocka_unit_test(large_load),
        cmocka_unit_test(solution_is_replaced),
        cmocka_unit_test(shared_gpus_are_told),
        cmocka_unit_test(old_rows_have_methods_by_todays_names),
        cmocka_unit_test(old_rows_know_no_busy_times),
        cmocka_unit_test(result_has_the_papers_columns),
        cmocka_unit_test(statistics),
        cmocka_unit_test(retention),
        cmocka_unit_test(days_among_other_relations),
        cmocka_unit_test(an_old_day_that_is_read),
        cmocka_unit_test(the_later_of_two_clocks_deletes_nothing),
        cmocka_unit_test(replay_gives_the_same),
        cmocka_unit_test(unfinished_sessions),
        cmocka_unit_test(killed_server_loses_and_doubles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
