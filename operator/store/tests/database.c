#include "operator/store/tests/database.h"

#include "common/tests/cmocka_all.h"
#include "operator/store/migrate.h"
#include "operator/store/tests/shared_postgres.h"
#include "operator/store/tests/sql.h"

#include <stdio.h>

PGconn *database_make(const char *name)
{
    char conninfo[SHARED_POSTGRES_CONNINFO];
    shared_postgres_create(name, conninfo);
    return sql_connect(conninfo);
}

PGconn *database_open(const char *name, const char *role)
{
    char base[SHARED_POSTGRES_CONNINFO];
    char conninfo[sizeof base + 256];
    shared_postgres_conninfo(base);
    (void)snprintf(conninfo, sizeof conninfo, "%s dbname=%s user=%s", base, name, role);
    return sql_connect(conninfo);
}

void database_login(PGconn *conn, const char *role, const char *rights)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM pg_roles WHERE rolname = '%s'", role);
    if (sql_count(conn, sql) == 0) {
        (void)snprintf(sql, sizeof sql, "CREATE ROLE %s LOGIN %s", role, rights);
        sql_execute(conn, sql);
    }
}

void database_migrate(PGconn *conn, size_t version)
{
    pp_buf sql;
    pp_error err = {0};
    int rc = 1;
    pp_buf_init(&sql, 4 << 20);
    for (size_t done = 0; rc == 1 && (done < version || version == pp_migrations_count); done++) {
        PGresult *applied = PQexec(conn, pp_migrate_begin());
        if (PQresultStatus(applied) != PGRES_TUPLES_OK)
            fail_msg("%s", PQerrorMessage(conn));
        pp_buf_reset(&sql);
        rc = pp_migrate_next(applied, pp_migrations, version, &sql, &err);
        if (rc < 0)
            fail_msg("%s", err.message);
        PQclear(applied);
        sql_execute(conn, sql.data);
    }
    pp_buf_done(&sql);
}

/* @ stands for the namespace; `until` is the first version that takes the row away, 0: none. */
static const struct {
    size_t since, until;
    const char *sql;
} rows[] = {
    {1, 0,
     "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, finished_at) "
     "VALUES ('@-s', '@', 's', '{}', 'Direct', 'Succeeded', now(), now())"},
    {1, 0,
     "INSERT INTO target (session_uid, pod_uid, namespace, pod_name, workload_kind, workload_name, "
     "observed_first_ns, observed_last_ns) VALUES ('@-s', '@-pod', '@', 'pod', 'Job', '@-job', "
     "1769000000000000000, 1769000100000000000)"},
    {1, 0,
     "INSERT INTO process (session_uid, pod_uid, instance, process, gpus, clock) VALUES ('@-s', "
     "'@-pod', 'agent', 0, '{@-gpu}', 'host')"},
    {1, 0, "INSERT INTO layer VALUES ('@-s', '@-pod', 'agent', 0, 1, '@-layer', 'Linear', 8)"},
    {1, 0,
     "INSERT INTO activity VALUES ('@-s', '@-pod', 'agent', 0, 0, 1, false, 1769000000000000000, "
     "1769000001000000000, 1, 0, 0, '{0}', '{1769000000000000000}', '{1000000000}', '{0}', '{0}', "
     "'{1}', '{0}', '{0}', '{1769000000000000000}', '{250000000}')"},
    {1, 0,
     "SELECT metric_sample_partitions(1769000000000000000, 1769000000000000000); "
     "INSERT INTO metric_sample VALUES ('@-gpu', 'sm_active', 'prometheus', 1769000001000000000, "
     "0.5)"},
    {1, 0,
     "INSERT INTO sample (session_uid, pod_uid, gpu_uuid, layer, phase, first_ns, last_ns, "
     "windows, share, sm_active) VALUES ('@-s', '@-pod', '@-gpu', '@-layer', 'forward', "
     "1769000001000000000, 1769000002000000000, 2, 0.5, 0.5)"},
    {1, 0,
     "INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, "
     "observed_ns, step_count, truncated) VALUES ('@-s', '@-pod', '@-gpu', 1, true, 2, 2, 1, 1, "
     "false)"},
    {1, 0,
     "INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, closure, windows, dropped_samples, "
     "repeated_samples) VALUES ('@-s', '@-pod', '@-gpu', 'sm_active', 0.01, 2, 0, 0)"},
    {1, 0,
     "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, calls, total_ns, "
     "windows) VALUES ('@-s', '@-pod', '@-gpu', 'layer', '@-layer', 'forward', 1, 250000000, 2)"},
    {1, 0,
     "INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, "
     "stderr, windows, method, source) VALUES ('@-s', '@-pod', '@-gpu', 'layer', '@-layer', "
     "'forward', 'sm_active', 0.5, 0.1, 9, 'direct', 'prometheus')"},
    {1, 15,
     "INSERT INTO pattern VALUES ('@', 'Job', '@-job', '@-s', 'sm_active', 0.5, 0.6, now())"},
    {4, 0,
     "INSERT INTO fine VALUES ('@-s', '@-pod', 'agent', 0, '@-gpu', 1, 1, '{w,x,y,z}', '{1}', "
     "'{0}', '{1}', '{1,1,1,1}', '{1,1,1,1}')"},
    {11, 0, "UPDATE process SET chip = '{90,132,1980000,3201000,6144}'"},
    {11, 0, "INSERT INTO kernel VALUES ('@-s', '@-pod', 0, '@-layer', 'forward', 'gemm', 1, 1000)"},
    {12, 0, "INSERT INTO rank VALUES ('@-s', '@-pod', 0, 0, 2, 1, 1000, 100, 900, NULL)"},
    {12, 0, "INSERT INTO rank_item VALUES ('@-s', '@-pod', 0, '@-layer', 'forward', 1, 900)"},
    {13, 0,
     "INSERT INTO host_wait VALUES ('@-s', '@-pod', 0, '@-layer', 'forward', 'item', 'a.py', 1, 1, "
     "1, 1000)"},
    {14, 0,
     "INSERT INTO gpu_copy VALUES ('@-s', '@-pod', 0, '@-layer', 'forward', 'h2d', 'pinned', 1, 1, "
     "1000)"},
    {15, 0,
     "INSERT INTO usage (session_uid, pod_uid, gpu_uuid, steps, undisturbed, busy, models, "
     "model_digests, batches) VALUES ('@-s', '@-pod', '@-gpu', 1, true, true, '{}', '{}', '{}')"},
    {15, 0,
     "INSERT INTO usage_metric (session_uid, pod_uid, gpu_uuid, metric, source, mean) VALUES "
     "('@-s', '@-pod', '@-gpu', 'sm_active', 'layers', 0.5)"},
    {15, 0, "INSERT INTO usage_share VALUES ('@-s', '@-pod', '@-gpu', 'bound', 'Memory', 1)"},
    {15, 0,
     "INSERT INTO pattern (namespace, workload_kind, workload_name, object_name, session_uid, "
     "sessions, gpus, first_at, last_at, bound, lead, steps, undisturbed, busy, models, "
     "model_digests, batches, sessions_of_other_models) VALUES ('@', 'Job', '@-job', 'job-@', "
     "'@-s', 1, 1, now(), now(), 'Memory', 1, 1, true, true, '{}', '{}', '{}', 0)"},
    {15, 0,
     "INSERT INTO pattern_metric (namespace, workload_kind, workload_name, metric, source, mean) "
     "VALUES ('@', 'Job', '@-job', 'sm_active', 'layers', 0.5)"},
    {15, 0, "INSERT INTO pattern_share VALUES ('@', 'Job', '@-job', 'bound', 'Memory', 1)"},
};

void database_fill(PGconn *conn, size_t version, const char *ns)
{
    char sql[2048];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = 0;
        if (rows[i].since > version || (rows[i].until && rows[i].until <= version))
            continue;
        for (const char *c = rows[i].sql; *c; c++)
            n += (size_t)snprintf(sql + n, sizeof sql - n, *c == '@' ? "%s" : "%.1s",
                                  *c == '@' ? ns : c);
        sql_execute(conn, sql);
    }
}
