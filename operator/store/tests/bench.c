/*
 * How fast the store is, for e2e/bench/store.py; not a test.
 *
 *   store_bench schema CONNINFO         makes the schema
 *   store_bench write CONNINFO          rows by the store, then the same by COPY into the emptied
 * table, in a database of its own: a line for each, "NAME ROWS SECONDS SECONDS_OF_COPY" store_bench
 * read CONNINFO LIMIT     queries of the API from stdin, a line for each, "KIND NAMESPACE SESSION
 * UID WORKLOAD" (- for none): "KIND ROWS SECONDS"
 *   store_bench retire CONNINFO NS N    N pieces of retention, of what ended before NS: "SECONDS
 * ROWS" for each
 */
#include "common/time.h"
#include "operator/store/query.h"
#include "operator/store/store.h"

#include <libpq-fe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define T0 (INT64_C(1769000000) * SECOND)

enum {
    TARGETS = 8,
    LAYERS = 50,
    SAMPLES = 100000, /* of a call, which takes no more */
    CALLS = 5,
    ROWS = 250, /* of each item, of a solution */
    BATCHES = 250,
    INTERVALS = 400,
};

typedef struct bench {
    uv_loop_t loop;
    pp_store *store;
    PGconn *conn;
    int waiting;
    long rows;
} bench;

static void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "store_bench: %s: %s\n", what, why);
    exit(1);
}

static void on_done(void *user, const pp_error *error)
{
    if (error)
        fail("the store", error->message);
    ((bench *)user)->waiting--;
}

static void on_batch(void *user, bool inserted, const pp_error *error)
{
    on_done(user, error);
    if (!inserted)
        fail("the store", "a batch was there already");
}

static void on_uids(void *user, const pp_strings *uids, const pp_error *error)
{
    (void)uids;
    on_done(user, error);
}

static void called(bench *b, int rc, const pp_error *err)
{
    if (rc < 0)
        fail("the store", err->message);
    b->waiting++;
}

static void wait_all(bench *b)
{
    while (b->waiting > 0)
        uv_run(&b->loop, UV_RUN_ONCE);
}

static void execute(bench *b, const char *sql)
{
    PGresult *r = PQexec(b->conn, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
        fail(sql, PQerrorMessage(b->conn));
    PQclear(r);
}

static void open_store(bench *b, const char *conninfo)
{
    pp_error err = {0};
    const pp_store_options options = {.conninfo = conninfo, .max_queued_bytes = (size_t)1024 << 20};
    b->store = pp_store_new(&b->loop, &options, &err);
    b->conn = PQconnectdb(conninfo);
    if (!b->store || PQstatus(b->conn) != CONNECTION_OK)
        fail("connecting", b->store ? PQerrorMessage(b->conn) : err.message);
    called(b, pp_store_load_unfinished(b->store, NULL, on_uids, b, &err), &err);
    wait_all(b);
}

static void close_store(bench *b)
{
    pp_store_free(b->store);
    PQfinish(b->conn);
    uv_run(&b->loop, UV_RUN_DEFAULT);
}

/* ---- rows by the store ---- */

static char *text(const char *literal)
{
    return (char *)(uintptr_t)literal; /* nobody writes to it */
}

static void put_targets(bench *b)
{
    pp_error err = {0};
    const pp_store_session session = {.uid = "s",
                                      .ns = "ml",
                                      .name = "s",
                                      .spec = "{}",
                                      .method = "Auto",
                                      .phase = "Collecting",
                                      .created_ns = T0};
    called(b, pp_store_put_session(b->store, &session, on_done, b, &err), &err);
    for (int i = 0; i < TARGETS; i++) {
        char pod[16];
        (void)snprintf(pod, sizeof pod, "pod-%d", i);
        const pp_store_target target = {.session_uid = "s",
                                        .pod_uid = pod,
                                        .ns = "ml",
                                        .pod_name = pod,
                                        .workload_kind = "Job",
                                        .workload_name = "train",
                                        .cpu_request = (double)NAN};
        called(b, pp_store_put_target(b->store, &target, on_done, b, &err), &err);
    }
    wait_all(b);
}

/* As scrapes of 8 GPUs with eight metrics each. */
static void put_samples(bench *b)
{
    char *names[] = {text("GPU-0"), text("GPU-1"), text("GPU-2"), text("GPU-3"),
                     text("GPU-4"), text("GPU-5"), text("GPU-6"), text("GPU-7")};
    const pp_strings gpus = {.items = names, .count = 8};
    pp_activity_sample *samples = calloc(SAMPLES, sizeof *samples);
    pp_error err = {0};
    for (int c = 0; samples && c < CALLS; c++) {
        for (int i = 0; i < SAMPLES; i++) {
            const int64_t n = (int64_t)c * SAMPLES + i;
            samples[i] = (pp_activity_sample){.gpu = (uint32_t)(n % 8),
                                              .metric = (pp_metric)(n / 8 % 8),
                                              .stamp_ns = T0 + n / 64 * SECOND / 4,
                                              .value = (double)(n % 1000) / 1000};
        }
        called(b, pp_store_put_samples(b->store, &gpus, samples, SAMPLES, on_done, b, &err), &err);
    }
    free(samples);
    wait_all(b);
}

static void make_items(pp_estimates_item *items, pp_estimates_sample *rows, char names[LAYERS][64])
{
    for (int i = 0; i < 2 * LAYERS; i++) {
        (void)snprintf(names[i / 2], sizeof names[0], "model.blocks.%02d.attention", i / 2);
        items[i] = (pp_estimates_item){.kind = PP_ITEM_LAYER,
                                       .phase = i % 2 ? PP_PHASE_BACKWARD : PP_PHASE_FORWARD,
                                       .layer = names[i / 2],
                                       .type = text("Attention"),
                                       .calls = 200,
                                       .total_ns = SECOND,
                                       .share = 0.01,
                                       .windows = ROWS,
                                       .busy_ns = SECOND,
                                       .least_ns = -1};
        for (int w = 0; w < ROWS; w++) {
            pp_estimates_sample *s = &rows[i * ROWS + w];
            *s = (pp_estimates_sample){.item = (uint32_t)i,
                                       .row = {.first_ns = T0 + w * SECOND,
                                               .last_ns = T0 + w * SECOND + 1,
                                               .windows = 2,
                                               .share = 0.01}};
            for (int m = 0; m < PP_METRIC_COUNT; m++)
                s->row.values[m] = s->row.by_share[m] =
                    m < 8 ? (w * 31 + m) % 100 / 100.0 : (double)NAN;
        }
    }
}

/* Sample rows of each target's solution, with its items. */
static void put_rows(bench *b)
{
    static pp_estimates_item items[2 * LAYERS];
    static pp_estimates_sample rows[2 * LAYERS * ROWS];
    static char names[LAYERS][64];
    pp_error err = {0};
    make_items(items, rows, names);
    for (int i = 0; i < TARGETS; i++) {
        char pod[16];
        (void)snprintf(pod, sizeof pod, "pod-%d", i);
        const pp_estimates s = {.gpu = text("GPU-0"),
                                .lag_ns = (double)NAN,
                                .lag_stderr_ns = (double)NAN,
                                .step_mean_ns = (double)NAN,
                                .gap_ns = -1,
                                .items = items,
                                .n_items = 2 * LAYERS,
                                .sample_rows = rows,
                                .n_sample_rows = 2 * LAYERS * ROWS};
        called(b, pp_store_put_solution(b->store, "s", pod, &s, NULL, false, on_done, b, &err),
               &err);
    }
    wait_all(b);
}

/* What a capture of two steps is, with its counters of process and target. */
static void put_batches(bench *b)
{
    static pp_wire_interval intervals[INTERVALS];
    char *gpu[] = {text("GPU-0")};
    pp_error err = {0};
    for (int n = 0; n < BATCHES; n++) {
        const int64_t start = T0 + n * SECOND;
        pp_wire_step steps[] = {{2 * n, start, SECOND / 2, 0, 2 * n, 1000},
                                {2 * n + 1, start + SECOND / 2, SECOND / 2, 0, 2 * n + 1, 1000}};
        for (int i = 0; i < INTERVALS; i++)
            intervals[i] = (pp_wire_interval){1 + i % LAYERS,
                                              2 * n + 2 * i / INTERVALS,
                                              start + i * (SECOND / INTERVALS),
                                              SECOND / INTERVALS - 1000 + i,
                                              i / LAYERS % 2 ? PP_WIRE_BACKWARD : PP_WIRE_FORWARD,
                                              1000 + i,
                                              false};
        const pp_wire_batch batch = {.session = text("s"),
                                     .instance = text("agent"),
                                     .seq = n / TARGETS,
                                     .process = {.world_size = 1,
                                                 .gpus = {.items = gpu, .count = 1},
                                                 .hostname = text("h"),
                                                 .python = text("3.11"),
                                                 .torch = text("2.6"),
                                                 .clock = text("kernels"),
                                                 .model = text("GPT")},
                                     .capture = {.id = 1, .start = start, .end = start + SECOND},
                                     .steps = steps,
                                     .step_count = 2,
                                     .intervals = intervals,
                                     .interval_count = INTERVALS};
        char pod[16];
        (void)snprintf(pod, sizeof pod, "pod-%d", n % TARGETS);
        called(b, pp_store_put_batch(b->store, "s", pod, &batch, NULL, on_batch, b, &err), &err);
    }
    wait_all(b);
}

/* ---- the same by COPY ---- */

typedef struct copied {
    char **lines;
    int *lengths;
    int n, room;
} copied;

static void copy_out(bench *b, const char *table, copied *c)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "COPY (SELECT * FROM %s) TO STDOUT", table);
    PQclear(PQexec(b->conn, sql));
    char *line = NULL;
    for (int n = PQgetCopyData(b->conn, &line, 0); n > 0; n = PQgetCopyData(b->conn, &line, 0)) {
        if (c->n == c->room) {
            c->room = 2 * c->room + 1024;
            c->lines = realloc(c->lines, (size_t)c->room * sizeof *c->lines);
            c->lengths = realloc(c->lengths, (size_t)c->room * sizeof *c->lengths);
        }
        if (!c->lines || !c->lengths)
            fail("memory", "there is no more");
        c->lines[c->n] = line;
        c->lengths[c->n++] = n;
    }
    PQclear(PQgetResult(b->conn));
}

static double copy_in(bench *b, const char *table, const copied *c)
{
    char sql[128];
    (void)snprintf(sql, sizeof sql, "TRUNCATE %s", table);
    execute(b, sql);
    (void)snprintf(sql, sizeof sql, "COPY %s FROM STDIN", table);
    const int64_t from = pp_time_monotonic();
    PQclear(PQexec(b->conn, sql));
    for (int i = 0; i < c->n; i++)
        (void)PQputCopyData(b->conn, c->lines[i], c->lengths[i]);
    (void)PQputCopyEnd(b->conn, NULL);
    PGresult *r = PQgetResult(b->conn);
    const double took = (double)(pp_time_monotonic() - from) / 1e9;
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        fail(sql, PQerrorMessage(b->conn));
    PQclear(r);
    PQclear(PQgetResult(b->conn));
    return took;
}

static void compare(bench *b, const char *table, void (*put)(bench *b))
{
    copied c = {0};
    execute(b, "CHECKPOINT");
    const int64_t from = pp_time_monotonic();
    put(b);
    const double took = (double)(pp_time_monotonic() - from) / 1e9;
    copy_out(b, table, &c);
    execute(b, "CHECKPOINT");
    const double copy = copy_in(b, table, &c);
    (void)printf("%s %d %.6f %.6f\n", table, c.n, took, copy);
    for (int i = 0; i < c.n; i++)
        PQfreemem(c.lines[i]);
    free(c.lines);
    free(c.lengths);
}

static void write_rows(bench *b)
{
    execute(b, "TRUNCATE session CASCADE; TRUNCATE metric_sample");
    put_targets(b);
    /* Days are made once, rows come for hours: */
    execute(b, "SELECT metric_sample_partitions(1769000000000000000, 1769004000000000000)");
    /* With statistics, as a store has them that is older than a minute. */
    put_batches(b);
    execute(b, "ANALYZE; TRUNCATE activity");
    compare(b, "metric_sample", put_samples);
    compare(b, "sample", put_rows);
    compare(b, "activity", put_batches);
}

/* ---- the API's queries ---- */

static const char *const kinds[PP_QUERY_KINDS] = {
    [PP_QUERY_SESSIONS_OF] = "sessions_of",
    [PP_QUERY_SESSIONS] = "sessions",
    [PP_QUERY_SESSION] = "session",
    [PP_QUERY_LAYERS] = "layers",
    [PP_QUERY_QUALITY] = "quality",
    [PP_QUERY_KERNELS] = "kernels",
    [PP_QUERY_WAITS] = "waits",
    [PP_QUERY_COPIES] = "copies",
    [PP_QUERY_RANKS] = "ranks",
    [PP_QUERY_RANK_ITEMS] = "rank_items",
    [PP_QUERY_TIMELINE] = "timeline",
    [PP_QUERY_PATTERNS] = "patterns",
    [PP_QUERY_PATTERN] = "pattern",
    [PP_QUERY_WORKLOADS] = "workloads",
    [PP_QUERY_WORKLOAD] = "workload",
};

static int on_row(void *user, const pp_cell *cells, size_t n, pp_error *err)
{
    (void)cells;
    (void)n;
    (void)err;
    ((bench *)user)->rows++;
    return 0;
}

static void on_reset(void *user)
{
    ((bench *)user)->rows = 0;
}

static void read_one(bench *b, pp_reader *reader, const char *kind, const char *fields[4],
                     int64_t limit)
{
    pp_error err = {0};
    char *uid = text(fields[2]);
    const pp_strings known = {.items = &uid, .count = 1};
    const pp_strings none = {0};
    pp_query query = {.ns = fields[0],
                      .session = fields[1],
                      .uid = fields[2],
                      .workload_kind = fields[3] ? "Job" : NULL,
                      .workload_name = fields[3],
                      .process = -1,
                      .limit = limit};
    while (query.kind < PP_QUERY_KINDS &&
           (!kinds[query.kind] || strcmp(kinds[query.kind], kind) != 0))
        query.kind++;
    if (query.kind == PP_QUERY_KINDS)
        fail("a kind of query that is not known", kind);
    query.known = query.kind == PP_QUERY_WORKLOADS ? &known : &none;
    pp_query_id id = 0;
    b->rows = 0;
    const int64_t from = pp_time_monotonic();
    called(b, pp_reader_query(reader, &query, on_row, on_reset, on_done, b, &id, &err), &err);
    wait_all(b);
    (void)printf("%s %ld %.6f\n", kind, b->rows, (double)(pp_time_monotonic() - from) / 1e9);
}

static void read_all(bench *b, const char *conninfo, int64_t limit)
{
    pp_error err = {0};
    char line[1024];
    const pp_reader_options options = {
        .conninfo = conninfo, .connections = 1, .max_waiting = 4, .timeout_ns = 60 * SECOND};
    pp_reader *reader = pp_reader_new(&b->loop, &options, &err);
    if (!reader)
        fail("the reader", err.message);
    while (fgets(line, sizeof line, stdin)) {
        char kind[64];
        char parts[4][200];
        const char *fields[4];
        if (sscanf(line, "%63s %199s %199s %199s %199s", kind, parts[0], parts[1], parts[2],
                   parts[3]) != 5)
            fail("not a query", line);
        for (int i = 0; i < 4; i++)
            fields[i] = strcmp(parts[i], "-") == 0 ? NULL : parts[i];
        read_one(b, reader, kind, fields, limit);
    }
    pp_reader_free(reader);
    uv_run(&b->loop, UV_RUN_DEFAULT);
}

/* ---- retention ---- */

static void on_retired(void *user, const pp_store_retired *retired, const pp_error *error)
{
    bench *b = user;
    on_done(b, error);
    b->rows = (long)(retired->sample_rows + retired->batches);
}

static void retire(bench *b, int64_t before_ns, long pieces)
{
    const pp_store_retention ages = {.activity = 1, .samples = 1};
    pp_error err = {0};
    for (; pieces > 0; pieces--) {
        const int64_t from = pp_time_monotonic();
        called(b, pp_store_retire(b->store, &ages, before_ns + 1, on_retired, b, &err), &err);
        wait_all(b);
        (void)printf("%.6f %ld\n", (double)(pp_time_monotonic() - from) / 1e9, b->rows);
    }
}

int main(int argc, char **argv)
{
    bench b = {0};
    (void)uv_loop_init(&b.loop);
    if (argc == 4 && strcmp(argv[1], "read") == 0) {
        read_all(&b, argv[2], strtol(argv[3], NULL, 10));
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "retire") == 0) {
        open_store(&b, argv[2]);
        retire(&b, strtoll(argv[3], NULL, 10), strtol(argv[4], NULL, 10));
        close_store(&b);
        return 0;
    }
    if (argc != 3 || (strcmp(argv[1], "schema") != 0 && strcmp(argv[1], "write") != 0)) {
        (void)fputs(
            "usage: store_bench schema|write CONNINFO, read CONNINFO LIMIT, retire CONNINFO NS N\n",
            stderr);
        return 2;
    }
    open_store(&b, argv[2]);
    if (strcmp(argv[1], "write") == 0)
        write_rows(&b);
    close_store(&b);
    return 0;
}
