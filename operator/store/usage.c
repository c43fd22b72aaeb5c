/* How a target's GPU was used, with its solution. */
#include "operator/store/store_internal.h"
#include "operator/store/usage_rows.h"

/* As solution.c has it: of the transaction whose solution stands. */
#define STANDS                                                                                     \
    "EXISTS (SELECT 1 FROM attribution WHERE session_uid = $1 AND pod_uid = $2 AND gpu_uuid = $3 " \
    "AND solved_at = now())"

static const char delete_sql[] =
    "DELETE FROM usage WHERE session_uid = $1 AND pod_uid = $2 AND gpu_uuid = $3 AND " STANDS;
static const char usage_sql[] =
    "INSERT INTO usage (session_uid, pod_uid, gpu_uuid, steps, undisturbed, busy, step_ns, "
    "step_ns_stderr, step_sd_ns, idle, idle_stderr, models, model_digests, batches, "
    "gpu_model, chip) "
    "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16 WHERE " STANDS;
static const char metrics_sql[] =
    "INSERT INTO usage_metric (session_uid, pod_uid, gpu_uuid, metric, source, mean, mean_stderr, "
    "p50, p50_stderr, p95, p95_stderr, most, achieved, achieved_stderr, peak, profile) "
    "SELECT $1, $2, $3, " PP_USAGE_ROWS_METRICS "WHERE " STANDS;
static const char shares_sql[] =
    "INSERT INTO usage_share (session_uid, pod_uid, gpu_uuid, kind, name, share, share_stderr, "
    "achieved, achieved_stderr) "
    "SELECT $1, $2, $3, " PP_USAGE_ROWS_SHARES "WHERE " STANDS;

static pp_statement *add(pp_job *job, const char *sql, const char *session_uid, const char *pod_uid,
                         const char *gpu)
{
    pp_statement *s = pp_job_add(job, sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    pp_sql_text(s, gpu);
    return s;
}

int pp_store_add_usage(pp_job *job, const char *session_uid, const char *pod_uid, const char *gpu,
                       const pp_usage *usage, pp_error *err)
{
    add(job, delete_sql, session_uid, pod_uid, gpu);
    if (usage->steps == 0)
        return 0;
    pp_statement *head = add(job, usage_sql, session_uid, pod_uid, gpu);
    pp_usage_rows_head(head, usage);
    pp_usage_rows_models(head, usage, usage->models.n);
    pp_usage_rows_gpu(head, &usage->gpu);
    pp_statement *metrics = add(job, metrics_sql, session_uid, pod_uid, gpu);
    if (pp_usage_rows_metrics(metrics, usage, err) < 0)
        return -1;
    return pp_usage_rows_shares(add(job, shares_sql, session_uid, pod_uid, gpu), usage, err);
}
