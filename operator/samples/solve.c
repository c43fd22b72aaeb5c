#include "operator/samples/solve.h"
#include "operator/state/solve_options.h"

#include "common/log.h"
#include "common/thread.h"
#include "common/time.h"
#include "controller/samples/solve_due.h"
#include "estimate/pattern/usage.h"
#include "estimate/solve.h"
#include "estimate/times/ranks.h"
#include "operator/cache/watches.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/*
 * Solving a session: each target in turn is loaded from the store, solved on the thread pool for
 * each of its GPUs, and its solutions are written. One target at a time, so that a large session
 * never takes more memory or more than one core; and a few of all sessions', the others wait, so
 * that many sessions do not either. While data still comes in a solution is made again when the
 * interval has passed, less often where that is much work (controller/samples/solve_due.h).
 */

static const int64_t SECOND = 1000000000;

enum { MAX_TARGETS = 4 }; /* in memory at once; half of the pool (main.c) */

/** One target's way from the store through the thread pool and back. */
typedef struct job {
    uv_work_t work;
    pp_operator *op;
    char uid[64];
    uint64_t serial; /* of the work */
    char pod_uid[64];
    bool final;
    bool placed;      /* one of the targets in memory is its */
    int64_t began_ns; /* the target that is */
    int64_t took_ns;  /* those before it, without what they waited */
    pp_estimates_options options;
    pp_activity *activity;
    pp_estimates **solutions; /* one per GPU of the target's processes */
    pp_usage **usages;        /* how each was used */
    size_t n_solutions;
    pp_ranks *ranks; /* its processes side by side */
    size_t writing;  /* of both, on their way into the store */
    bool failed;     /**< a target, for what `error` says */
    bool target_failed;
    pp_error error;
    pp_strings shared; /* GPUs, as the exporter says */
    pp_strings left;   /* targets still to come */
    size_t next;
    struct job *prev, *next_waiting;
} job;

/** Those of all sessions. */
struct pp_solves {
    unsigned placed;
    job *waiting; /* for a place, the first come first */
    bool filling;
};

static void next_target(job *j);

static void free_data(job *j)
{
    for (size_t i = 0; i < j->n_solutions; i++) {
        pp_estimates_free(j->solutions[i]);
        pp_usage_free(j->usages[i]);
    }
    free(j->solutions);
    free(j->usages);
    pp_ranks_free(j->ranks);
    j->ranks = NULL;
    j->usages = NULL;
    j->solutions = NULL;
    j->n_solutions = 0;
    j->activity = pp_activity_free(j->activity);
}

static void job_free(job *j)
{
    free_data(j);
    pp_strings_free(&j->shared);
    pp_strings_free(&j->left);
    free(j);
}

/* A store that is away says nothing about whether the session can be solved. */
static void note_outcome(pp_runtime *runtime, const job *j)
{
    const char *why = NULL;
    if (!j->failed) {
        runtime->solve_failures = 0;
        runtime->solve_error[0] = '\0';
    } else if (pp_store_ready(runtime->op->store, &why)) {
        runtime->solve_failures++;
        (void)snprintf(runtime->solve_error, sizeof runtime->solve_error, "%s", j->error.message);
    }
}

static void session_solved(job *j)
{
    pp_runtime *runtime = pp_runtime_same(j->op, j->uid, j->serial);
    if (runtime) {
        runtime->solving = false;
        runtime->solved_ns = pp_time_monotonic();
        pp_runtime_solve_took(runtime, j->final && !j->failed ? 0 : j->took_ns);
        runtime->stats_dirty = true;
        note_outcome(runtime, j);
        if (j->failed) {
            pp_runtime_unsolved(runtime);
            pp_warn(runtime->key, "solving: %s", j->error.message);
        } else {
            pp_meter_add(j->op->meters.solutions, 1);
        }
        pp_watches_enqueue(runtime->op, runtime->key);
    }
    job_free(j);
}

static void note_failure(job *j, const pp_error *error)
{
    j->failed = j->target_failed = true;
    j->error = *error;
}

static void on_written(void *user, const pp_error *error)
{
    job *j = user;
    if (error)
        note_failure(j, error);
    if (--j->writing == 0)
        next_target(j);
}

static void write_ranks(job *j)
{
    pp_error err = {0};
    j->writing++;
    if (pp_store_put_ranks(j->op->store, j->uid, j->pod_uid, j->ranks, j->final, on_written, j,
                           &err) < 0) {
        j->writing--;
        note_failure(j, &err);
    }
}

static void on_solved(uv_work_t *request, int status)
{
    job *j = request->data;
    bool wanted = status == 0 && pp_runtime_same(j->op, j->uid, j->serial);
    j->writing = 1; /* ours, until all are handed over */
    for (size_t i = 0; wanted && !j->target_failed && i < j->n_solutions; i++) {
        pp_error err = {0};
        j->writing++;
        if (pp_store_put_solution(j->op->store, j->uid, j->pod_uid, j->solutions[i], j->usages[i],
                                  j->final, on_written, j, &err) < 0) {
            j->writing--;
            note_failure(j, &err);
        }
    }
    if (wanted && !j->target_failed)
        write_ranks(j);
    if (--j->writing == 0)
        next_target(j);
}

static int solve_gpu(job *j, const char *gpu, pp_error *err)
{
    pp_estimates **to = &j->solutions[j->n_solutions];
    if (pp_estimates_solve(j->activity, gpu, &j->options, to, err) < 0)
        return -1;
    (*to)->shared |= pp_strings_contain(&j->shared, gpu);
    const pp_usage_input in = {.activity = j->activity, .estimates = *to, .ranks = j->ranks};
    return pp_usage_find(&in, &j->usages[j->n_solutions++], err);
}

static int solve_target(job *j, pp_error *err)
{
    pp_strings gpus = {0};
    int rc = pp_activity_list_gpus(j->activity, &gpus, err);
    if (rc == 0)
        rc = pp_ranks_compare(j->activity, &j->ranks, err);
    if (rc == 0) {
        j->solutions = calloc(gpus.count + 1, sizeof(pp_estimates *));
        j->usages = calloc(gpus.count + 1, sizeof(pp_usage *));
        rc = j->solutions && j->usages ? 0 : pp_error_nomem(err);
    }
    for (size_t i = 0; rc == 0 && i < gpus.count; i++)
        rc = solve_gpu(j, gpus.items[i], err);
    pp_strings_free(&gpus);
    return rc;
}

/* On a thread of the pool, on the job's own data. */
static void solve(uv_work_t *request)
{
    pp_thread_step_back();
    job *j = request->data;
    if (solve_target(j, &j->error) < 0)
        j->failed = j->target_failed = true;
}

static void on_loaded(void *user, pp_activity **activity, const pp_error *error)
{
    job *j = user;
    if (error && error->code == PP_ERR_NOT_FOUND) {
        next_target(j);
        return;
    }
    if (error) {
        note_failure(j, error);
        next_target(j);
        return;
    }
    j->activity = *activity;
    *activity = NULL;
    j->work.data = j;
    if (uv_queue_work(j->op->loop, &j->work, solve, on_solved) < 0) {
        const pp_error why = {.code = PP_ERR_INTERNAL, .message = "the thread pool refused work"};
        note_failure(j, &why);
        next_target(j);
    }
}

static bool is_over(const job *j)
{
    return j->next >= j->left.count || !pp_runtime_same(j->op, j->uid, j->serial);
}

static void begin_target(job *j)
{
    static const int64_t before_ns = 90 * SECOND;
    static const int64_t after_ns = 120 * SECOND;
    pp_error err = {0};
    j->placed = true;
    j->op->solves->placed++;
    j->began_ns = pp_time_monotonic();
    (void)snprintf(j->pod_uid, sizeof j->pod_uid, "%s", j->left.items[j->next++]);
    if (pp_store_load(j->op->store, j->uid, j->pod_uid, before_ns, after_ns, on_loaded, j, &err) <
        0) {
        note_failure(j, &err);
        j->next = j->left.count; /* the store takes no more of them, either */
        next_target(j);
    }
}

/* What ends at once comes back here: the loop below goes on with the next. */
static void fill_places(struct pp_solves *solves)
{
    if (solves->filling)
        return;
    solves->filling = true;
    while (solves->waiting && solves->placed < MAX_TARGETS) {
        job *j = solves->waiting;
        DL_DELETE2(solves->waiting, j, prev, next_waiting);
        if (is_over(j))
            session_solved(j);
        else
            begin_target(j);
    }
    solves->filling = false;
}

static void leave_place(job *j)
{
    if (!j->placed)
        return;
    j->placed = false;
    j->op->solves->placed--;
    j->took_ns += pp_time_monotonic() - j->began_ns;
}

/* Behind those of other sessions. */
static void next_target(job *j)
{
    struct pp_solves *solves = j->op->solves;
    leave_place(j);
    free_data(j);
    j->target_failed = false;
    if (is_over(j))
        session_solved(j);
    else
        DL_APPEND2(solves->waiting, j, prev, next_waiting);
    fill_places(solves);
}

int pp_solve_start(pp_operator *op, pp_error *err)
{
    op->solves = calloc(1, sizeof *op->solves);
    return op->solves ? 0 : pp_error_nomem(err);
}

void pp_solve_stop(pp_operator *op)
{
    while (op->solves && op->solves->waiting) {
        job *j = op->solves->waiting;
        DL_DELETE2(op->solves->waiting, j, prev, next_waiting);
        job_free(j);
    }
}

void pp_solve_done(pp_operator *op)
{
    free(op->solves);
    op->solves = NULL;
}

static void set_options(job *j, const pp_session *session)
{
    j->options = (pp_estimates_options){
        .attribution = pp_solve_attribution(j->op->config),
        .metrics = session->metrics,
        .tolerance_percent = session->tolerance_percent,
        .method = session->method,
        .scraped = true,
    };
}

static bool is_due(const pp_runtime *runtime)
{
    const pp_solve_state state = {.solving = runtime->solving,
                                  .unsolved = runtime->unsolved,
                                  .finalise = runtime->finalise,
                                  .failures = runtime->solve_failures,
                                  .known_ns = runtime->known_ns,
                                  .ended_ns = runtime->solved_ns,
                                  .took_ns = runtime->solve_took_ns,
                                  .all_took_ns = runtime->op->solves_took_ns};
    return runtime->targets &&
           pp_solve_is_due(&state, runtime->op->config->attribution.solve_interval,
                           pp_time_monotonic());
}

void pp_solve_tick(pp_runtime *runtime)
{
    const pp_session *session = pp_match_session(runtime->op->matches, runtime->uid);
    if (!session || !is_due(runtime))
        return;
    job *j = calloc(1, sizeof *j);
    if (!j)
        return;
    j->op = runtime->op;
    j->serial = runtime->serial;
    j->final = runtime->finalise;
    (void)snprintf(j->uid, sizeof j->uid, "%s", runtime->uid);
    set_options(j, session);
    for (size_t i = 0; i < runtime->shared.count; i++) {
        pp_error err = {0};
        if (pp_strings_add(&j->shared, runtime->shared.items[i], &err) < 0)
            note_failure(j, &err);
    }
    for (pp_runtime_target *target = runtime->targets; target; target = target->hh.next) {
        pp_error err = {0};
        if (target->last_batch_ns && pp_strings_add(&j->left, target->pod_uid, &err) < 0)
            note_failure(j, &err);
    }
    runtime->solving = true;
    runtime->unsolved = false;
    next_target(j);
}
