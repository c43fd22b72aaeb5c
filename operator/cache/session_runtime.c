#include "operator/cache/session_runtime.h"

#include "common/time.h"
#include "estimate/regression/regression.h"
#include "operator/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

pp_runtime *pp_runtime_find(const pp_operator *op, const char *uid)
{
    pp_runtime *runtime = NULL;
    HASH_FIND_STR(op->runtimes, uid, runtime);
    return runtime;
}

pp_runtime *pp_runtime_same(const pp_operator *op, const char *uid, uint64_t serial)
{
    pp_runtime *runtime = pp_runtime_find(op, uid);
    return runtime && runtime->serial == serial ? runtime : NULL;
}

pp_runtime *pp_runtime_of_key(const pp_operator *op, const char *key)
{
    pp_runtime *runtime = NULL;
    HASH_FIND(by_key, op->runtimes_by_key, key, strlen(key), runtime);
    return runtime;
}

/*
 * How long after the last step samples are still wanted: until the window that holds its end was
 * published and scraped. Where the intervals are not configured the plan's own defaults hold.
 */
void pp_runtime_plan_options(const pp_config *config, unsigned metrics, pp_plan_options *ret)
{
    static const int64_t margin = INT64_C(2000000000);
    const int64_t window = config->prometheus.collection_interval;
    const int64_t scrape = config->prometheus.scrape_interval;
    const int64_t lag =
        config->prometheus.max_lag ? config->prometheus.max_lag : pp_regression_max_lag(window);
    const int64_t after = window + lag + scrape + margin, visible = scrape + margin;
    const bool known = window && scrape; /* else what is not said may be as long as is usual */
    *ret = (pp_plan_options){
        .metrics = metrics,
        .scrape_ns = scrape,
        .lag_ns = known || after > PP_PLAN_LAG ? after : PP_PLAN_LAG,
        .settle_ns = known || visible > PP_PLAN_SETTLE ? visible : PP_PLAN_SETTLE,
        .wait_ns = config->prometheus.max_wait,
    };
}

pp_runtime *pp_runtime_get(pp_operator *op, const pp_session *session)
{
    pp_runtime *runtime = pp_runtime_find(op, session->uid);
    if (runtime)
        return runtime;
    runtime = calloc(1, sizeof *runtime);
    pp_plan_options plan;
    pp_runtime_plan_options(op->config, session->metrics, &plan);
    if (!runtime || !(runtime->plan = pp_plan_new(&op->source, &plan)) ||
        asprintf(&runtime->key, "%s/%s", session->namespace_, session->name) < 0) {
        if (runtime)
            pp_plan_free(runtime->plan);
        free(runtime);
        return NULL;
    }
    runtime->op = op;
    runtime->serial = ++op->works_made;
    runtime->known_ns = pp_time_monotonic();
    (void)snprintf(runtime->uid, sizeof runtime->uid, "%s", session->uid);
    pp_runtime *older = pp_runtime_of_key(op, runtime->key);
    if (older) /* of the session that had the name before */
        pp_runtime_drop(older);
    HASH_ADD_STR(op->runtimes, uid, runtime);
    HASH_ADD_KEYPTR(by_key, op->runtimes_by_key, runtime->key, strlen(runtime->key), runtime);
    return runtime;
}

void pp_runtime_wake(pp_runtime *runtime)
{
    if (!runtime->awake)
        DL_APPEND(runtime->op->awake, runtime);
    runtime->awake = true;
}

void pp_runtime_unsolved(pp_runtime *runtime)
{
    runtime->unsolved = true;
    pp_runtime_wake(runtime);
}

void pp_runtime_solve_took(pp_runtime *runtime, int64_t took_ns)
{
    runtime->op->solves_took_ns += took_ns - runtime->solve_took_ns;
    runtime->solve_took_ns = took_ns;
}

static void sleep_again(pp_runtime *runtime)
{
    if (runtime->awake)
        DL_DELETE(runtime->op->awake, runtime);
    runtime->awake = false;
}

void pp_runtime_each_awake(pp_operator *op, void (*fn)(pp_runtime *runtime))
{
    pp_runtime *runtime;
    pp_runtime *next;
    DL_FOREACH_SAFE(op->awake, runtime, next)
    {
        if (runtime->collect || runtime->unsolved)
            fn(runtime);
        else
            sleep_again(runtime);
    }
}

void pp_runtime_drop(pp_runtime *runtime)
{
    sleep_again(runtime);
    pp_runtime_solve_took(runtime, 0);
    pp_runtime_target *target;
    pp_runtime_target *next;
    HASH_ITER(hh, runtime->targets, target, next)
    {
        HASH_DEL(runtime->targets, target);
        pp_strings_free(&target->gpus);
        pp_allowance_done(&target->allowance);
        free(target->name);
        free(target->owner_name);
        free(target->refused_why);
        free(target);
    }
    HASH_DEL(runtime->op->runtimes, runtime);
    HASH_DELETE(by_key, runtime->op->runtimes_by_key, runtime);
    pp_refusals_done(&runtime->refusals);
    pp_owners_done(&runtime->owners);
    free(runtime->near);
    pp_plan_free(runtime->plan);
    pp_strings_free(&runtime->shared);
    free(runtime->key);
    free(runtime);
}

void pp_runtime_drop_all(pp_operator *op)
{
    pp_runtime *runtime;
    pp_runtime *next;
    HASH_ITER(hh, op->runtimes, runtime, next)
    {
        pp_runtime_drop(runtime);
    }
}

pp_runtime_target *pp_runtime_get_target(pp_runtime *runtime, const char *pod_uid)
{
    pp_runtime_target *target = NULL;
    HASH_FIND_STR(runtime->targets, pod_uid, target);
    if (target)
        return target;
    target = calloc(1, sizeof *target);
    if (!target)
        return NULL;
    (void)snprintf(target->pod_uid, sizeof target->pod_uid, "%s", pod_uid);
    target->rank = -1;
    target->epoch = -1;
    target->batch = -1;
    HASH_ADD_STR(runtime->targets, pod_uid, target);
    return target;
}

/* More captures than there is room for count as one, with what was between them. */
static void see_idle(pp_runtime_target *target, int64_t now_ns)
{
    if (!target->is_idle && target->n_idle < PP_RUNTIME_MAX_IDLE)
        target->idle[target->n_idle++].from_ns = now_ns;
    target->idle[target->n_idle - 1].to_ns = now_ns;
}

void pp_runtime_see(pp_runtime_target *target, const pp_session_pod *pod, int64_t now_ns)
{
    if (pod->running && !target->lived_from_ns)
        target->lived_from_ns = now_ns;
    if (pod->connected && !pod->trainer_waits && !target->heard_from_ns)
        target->heard_from_ns = now_ns;
    if (pod->connected && target->heard_from_ns)
        target->heard_to_ns = now_ns;
    if (pod->trainer_waits && target->heard_from_ns)
        see_idle(target, now_ns);
    else if (target->is_idle)
        target->idle[target->n_idle - 1].to_ns = now_ns;
    target->is_idle = pod->trainer_waits && target->heard_from_ns;
    if (target->over)
        return;
    bool known =
        pod->finished && target->lived_to_ns == 0 && pod->finished_ns && pod->finished_ns <= now_ns;
    target->lived_to_ns = known ? pod->finished_ns : now_ns;
    target->over = pod->finished;
}

void pp_runtime_restore(pp_runtime_target *target, int64_t first_ns, int64_t now_ns)
{
    if (!first_ns)
        return;
    if (first_ns > now_ns)
        first_ns = now_ns;
    if (!target->lived_from_ns || first_ns < target->lived_from_ns)
        target->lived_from_ns = first_ns;
    if (!target->heard_from_ns || first_ns < target->heard_from_ns)
        target->heard_from_ns = first_ns;
}

void pp_runtime_refused(pp_runtime *runtime, const char *pod_uid, const char *why)
{
    pp_runtime_target *target = pp_runtime_get_target(runtime, pod_uid);
    char *copy = target ? strdup(why) : NULL;
    if (!copy)
        return;
    free(target->refused_why);
    target->refused_why = copy;
}

bool pp_runtime_is_steady(const pp_runtime *runtime, const pp_session *session)
{
    return session->phase == PP_SESSION_COLLECTING && session->steps_max == 0 &&
           !pp_session_asks_replays(session) && runtime->stats.steps > 0;
}

int64_t pp_runtime_status_wait(const pp_runtime *runtime, pp_status_news news, size_t sessions,
                               int64_t now_ns)
{
    static const struct {
        int64_t apart_ms, a_second, most_ms;
    } pace[] = {
        [PP_STATUS_FIGURES] = {30000, 10, INT64_MAX},
        [PP_STATUS_TEXTS] = {3000, 30, 60000},
        [PP_STATUS_CONDITION] = {1000, 100, 20000},
        [PP_STATUS_PHASE] = {0, 1, 0},
    };
    int64_t apart = (int64_t)sessions * 1000 / pace[news].a_second;
    apart = apart > pace[news].most_ms ? pace[news].most_ms : apart;
    apart = apart < pace[news].apart_ms ? pace[news].apart_ms : apart;
    int64_t from = runtime->status_retry_ns;
    int64_t next = runtime->status_written_ns + apart * INT64_C(1000000);
    if (runtime->status_written_ns && next > from)
        from = next;
    return from > now_ns ? from - now_ns : 0;
}
