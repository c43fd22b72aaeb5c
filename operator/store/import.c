/* A whole session at once: the results of a run without a cluster. */
#include "operator/store/store_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES_OF_A_STATEMENT = 100000 };

/* No ON CONFLICT: a session that is there ends the transaction before anything else is done. */
static const char session_sql[] =
    "INSERT INTO session (uid, namespace, name, spec, method, phase, created_at) "
    "VALUES ($1, $2, $3, $4::jsonb, $5, $6, to_timestamp($7::bigint / 1e9)) RETURNING 1";

struct pp_store_import {
    pp_call call;
    pp_store_batch_fn done;
    const char *source;
    bool created; /* the session's row was written */
    char *session_uid;
    char *pod_uid;
    char *phase;
};

static int import_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    (void)r;
    (void)row;
    (void)err;
    if (index == 0)
        ((pp_store_import *)job)->created = true;
    return 0;
}

static void import_reset(pp_job *job)
{
    ((pp_store_import *)job)->created = false;
}

static void import_release(pp_job *job)
{
    pp_store_import *i = (pp_store_import *)job;
    free(i->session_uid);
    free(i->pod_uid);
    free(i->phase);
}

static void import_ended(pp_job *job, const pp_error *error)
{
    const pp_store_import *i = (const pp_store_import *)job;
    const bool there = error && error->code == PP_ERR_CONFLICT && !i->created;
    i->done(i->call.user, !error, there ? NULL : error);
}

pp_store_import *pp_store_import_new(const pp_store_session *session, const pp_store_target *target,
                                     const char *source, pp_error *err)
{
    pp_store_import *i = pp_call_new(sizeof(*i), import_ended, NULL, err);
    if (!i)
        return NULL;
    i->call.job.row = import_row;
    i->call.job.reset = import_reset;
    i->call.job.release = import_release;
    i->source = source;
    i->session_uid = strdup(session->uid);
    i->pod_uid = strdup(target->pod_uid);
    i->phase = strdup(session->phase);
    if (!i->session_uid || !i->pod_uid || !i->phase) {
        pp_store_import_free(i);
        pp_error_nomem(err);
        return NULL;
    }
    pp_store_add_session(&i->call.job, session_sql, session);
    pp_store_add_target(&i->call.job, target);
    return i;
}

void pp_store_import_free(pp_store_import *i)
{
    if (i)
        pp_job_free(&i->call.job);
}

void pp_store_import_batch(pp_store_import *i, const pp_wire_batch *batch)
{
    pp_store_add_batch(&i->call.job, i->session_uid, i->pod_uid, batch, NULL);
}

int pp_store_import_samples(pp_store_import *i, const pp_activity *a, pp_error *err)
{
    int64_t first = 0;
    int64_t last = 0;
    if (a->n_samples == 0)
        return 0;
    if (pp_store_check_samples(&a->gpus, a->samples, a->n_samples, SIZE_MAX, &first, &last, err) <
        0)
        return -1;
    for (size_t k = 0; k < a->n_samples; k += SAMPLES_OF_A_STATEMENT) {
        const size_t left = a->n_samples - k;
        pp_store_add_samples(&i->call.job, &a->gpus, &a->samples[k],
                             left < SAMPLES_OF_A_STATEMENT ? left : SAMPLES_OF_A_STATEMENT,
                             i->source, first, last);
    }
    return 0;
}

int pp_store_import_solution(pp_store_import *i, const pp_estimates *solution,
                             const pp_usage *usage, pp_error *err)
{
    return pp_store_add_solution(&i->call.job, i->session_uid, i->pod_uid, solution, usage,
                                 i->source, true, err);
}

int pp_store_import_ranks(pp_store_import *i, const pp_ranks *ranks, pp_error *err)
{
    return pp_store_add_ranks(&i->call.job, i->session_uid, i->pod_uid, ranks, true, err);
}

int pp_store_import_submit(pp_store *store, pp_store_import *i, int64_t finished_ns,
                           pp_store_batch_fn done, void *user, pp_error *err)
{
    i->done = done;
    i->call.user = user;
    pp_store_add_finish(&i->call.job, i->session_uid, i->phase, finished_ns);
    return pp_call_submit(store, PP_LANE_BULK, i, err);
}
