/* The processes of a target side by side. */
#include "operator/store/store_internal.h"

#include "estimate/items/estimates.h"

#include <math.h>
#include <stdlib.h>

/* As solutions: what was solved once the session had ended stays. */
#define STANDS                                                                                     \
    "($3 OR NOT EXISTS (SELECT 1 FROM attribution WHERE session_uid = $1 AND pod_uid = $2 "        \
    "AND final))"

static const char delete_sql[] =
    "DELETE FROM rank WHERE session_uid = $1 AND pod_uid = $2 AND " STANDS;

static const char ranks_sql[] =
    "INSERT INTO rank (session_uid, pod_uid, process, rank, world_size, steps, step_ns, wait_ns, "
    "own_ns, own_stderr_ns) SELECT $1, $2, r.* FROM unnest($4::int[], $5::int[], $6::int[], "
    "$7::bigint[], $8::float8[], $9::float8[], $10::float8[], $11::float8[]) AS r WHERE " STANDS;

static const char items_sql[] =
    "INSERT INTO rank_item (session_uid, pod_uid, process, layer, phase, calls, ns) "
    "SELECT $1, $2, i.* FROM unnest($4::int[], $5::text[], $6::text[], $7::float8[], "
    "$8::float8[]) AS i WHERE " STANDS;

#define RANK_GETTER(type, name, field)                                                             \
    static type name(const void *p)                                                                \
    {                                                                                              \
        return ((const pp_rank *)p)->field;                                                        \
    }
RANK_GETTER(int64_t, get_process, process)
RANK_GETTER(int64_t, get_rank, rank)
RANK_GETTER(int64_t, get_world_size, world_size)
RANK_GETTER(int64_t, get_steps, steps)
RANK_GETTER(double, get_step, step_ns)
RANK_GETTER(double, get_wait, wait_ns)
RANK_GETTER(double, get_own, own_ns)
RANK_GETTER(double, get_own_stderr, own_stderr)

typedef struct item {
    const pp_rank *rank;
    const pp_rank_item *of;
} item;

static int64_t item_process(const void *p)
{
    return ((const item *)p)->rank->process;
}

static const char *item_layer(const void *p)
{
    return ((const item *)p)->of->layer;
}

static const char *item_phase(const void *p)
{
    return pp_phase_name(((const item *)p)->of->phase);
}

static double item_calls(const void *p)
{
    return ((const item *)p)->of->calls;
}

static double item_ns(const void *p)
{
    return ((const item *)p)->of->ns;
}

/* Those of which something is known, and their items. */
typedef struct rows {
    pp_rank *ranks;
    size_t n_ranks;
    item *items;
    size_t n_items;
} rows;

static int gather(const pp_ranks *in, rows *ret, pp_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < in->n; i++)
        n += in->ranks[i].n_items;
    ret->ranks = calloc(in->n + 1, sizeof *ret->ranks);
    ret->items = calloc(n + 1, sizeof *ret->items);
    if (!ret->ranks || !ret->items)
        return pp_error_nomem(err);
    for (size_t i = 0; i < in->n; i++) {
        const pp_rank *r = &in->ranks[i];
        if (r->steps == 0)
            continue;
        ret->ranks[ret->n_ranks++] = *r;
        for (size_t k = 0; k < r->n_items; k++)
            ret->items[ret->n_items++] = (item){r, &r->items[k]};
    }
    return 0;
}

static pp_statement *add(pp_job *job, const char *sql, const char *session_uid, const char *pod_uid,
                         bool final)
{
    pp_statement *s = pp_job_add(job, sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    pp_sql_bool(s, final);
    return s;
}

static void add_ranks(pp_statement *s, const rows *in)
{
    const size_t n = in->n_ranks, size = sizeof *in->ranks;
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, in->ranks, n, size, get_process);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, in->ranks, n, size, get_rank);
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, in->ranks, n, size, get_world_size);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->ranks, n, size, get_steps);
    pp_sql_floats(s, in->ranks, n, size, get_step);
    pp_sql_floats(s, in->ranks, n, size, get_wait);
    pp_sql_floats(s, in->ranks, n, size, get_own);
    pp_sql_floats(s, in->ranks, n, size, get_own_stderr);
}

static void add_items(pp_statement *s, const rows *in)
{
    const size_t n = in->n_items, size = sizeof *in->items;
    pp_sql_ints(s, PP_SQL_INT4_ARRAY, in->items, n, size, item_process);
    pp_sql_texts(s, in->items, n, size, item_layer);
    pp_sql_texts(s, in->items, n, size, item_phase);
    pp_sql_floats(s, in->items, n, size, item_calls);
    pp_sql_floats(s, in->items, n, size, item_ns);
}

/* A process that is alone, in its pod and its job, has nobody beside it. */
static bool has_others(const pp_ranks *in)
{
    size_t told = 0;
    bool of_many = false;
    for (size_t i = 0; i < in->n; i++) {
        told += in->ranks[i].steps > 0;
        of_many |= in->ranks[i].world_size > 1;
    }
    return told > 1 || of_many;
}

int pp_store_add_ranks(pp_job *job, const char *session_uid, const char *pod_uid,
                       const pp_ranks *in, bool final, pp_error *err)
{
    rows all = {0};
    int rc = has_others(in) ? gather(in, &all, err) : 0;
    if (rc == 0) {
        pp_store_lock_target(job, session_uid, pod_uid);
        add(job, delete_sql, session_uid, pod_uid, final);
        add_ranks(add(job, ranks_sql, session_uid, pod_uid, final), &all);
        add_items(add(job, items_sql, session_uid, pod_uid, final), &all);
    }
    free(all.ranks);
    free(all.items);
    return rc;
}

int pp_store_put_ranks(pp_store *store, const char *session_uid, const char *pod_uid,
                       const pp_ranks *ranks, bool final, pp_store_done_fn done, void *user,
                       pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0 || pp_store_need(pod_uid, "pod", err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return pp_error_nomem(err);
    call->done = done;
    call->job.row = pp_store_skip_row;
    if (pp_store_add_ranks(&call->job, session_uid, pod_uid, ranks, final, err) < 0) {
        pp_job_free(&call->job);
        return -1;
    }
    return pp_call_submit(store, PP_LANE_BULK, call, err);
}
