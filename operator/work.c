#include "operator/work.h"

#include "controller/attribution.h"
#include "operator/state.h"

#include <stdio.h>
#include <stdlib.h>

pp_work *pp_work_find(const pp_operator *op, const char *uid)
{
    pp_work *work = NULL;
    HASH_FIND_STR(op->works, uid, work);
    return work;
}

pp_work *pp_work_same(const pp_operator *op, const char *uid, uint64_t serial)
{
    pp_work *work = pp_work_find(op, uid);
    return work && work->serial == serial ? work : NULL;
}

/*
 * How long after the last step samples are still wanted: until the window that holds its end was
 * published and scraped. Where the intervals are not configured the plan's own defaults hold.
 */
static void set_plan_options(const pp_operator *op, const pp_session *session, pp_plan_options *ret)
{
    static const int64_t margin = INT64_C(2000000000);
    int64_t window = op->config->prometheus.collection_interval;
    int64_t scrape = op->config->prometheus.scrape_interval;
    int64_t lag = op->config->prometheus.max_lag ? op->config->prometheus.max_lag
                                                 : pp_attribution_max_lag(window);
    *ret = (pp_plan_options){.metrics = session->metrics,
                             .scrape_ns = scrape,
                             .wait_ns = op->config->prometheus.max_wait};
    if (window && scrape) {
        ret->lag_ns = window + lag + scrape + margin;
        ret->settle_ns = scrape + margin;
    }
}

pp_work *pp_work_get(pp_operator *op, const pp_session *session)
{
    pp_work *work = pp_work_find(op, session->uid);
    if (work)
        return work;
    work = calloc(1, sizeof *work);
    pp_plan_options plan;
    set_plan_options(op, session, &plan);
    if (!work || !(work->plan = pp_plan_new(&op->source, &plan)) ||
        asprintf(&work->key, "%s/%s", session->namespace_, session->name) < 0) {
        if (work)
            pp_plan_free(work->plan);
        free(work);
        return NULL;
    }
    work->op = op;
    work->serial = ++op->works_made;
    (void)snprintf(work->uid, sizeof work->uid, "%s", session->uid);
    HASH_ADD_STR(op->works, uid, work);
    return work;
}

void pp_work_drop(pp_work *work)
{
    pp_work_target *target;
    pp_work_target *next;
    HASH_ITER(hh, work->targets, target, next)
    {
        HASH_DEL(work->targets, target);
        pp_strings_free(&target->gpus);
        free(target);
    }
    HASH_DEL(work->op->works, work);
    pp_plan_free(work->plan);
    pp_strings_free(&work->shared);
    free(work->key);
    free(work);
}

void pp_work_drop_all(pp_operator *op)
{
    pp_work *work;
    pp_work *next;
    HASH_ITER(hh, op->works, work, next)
    {
        pp_work_drop(work);
    }
}

pp_work_target *pp_work_get_target(pp_work *work, const char *pod_uid)
{
    pp_work_target *target = NULL;
    HASH_FIND_STR(work->targets, pod_uid, target);
    if (target)
        return target;
    target = calloc(1, sizeof *target);
    if (!target)
        return NULL;
    (void)snprintf(target->pod_uid, sizeof target->pod_uid, "%s", pod_uid);
    target->rank = -1;
    target->epoch = -1;
    target->batch = -1;
    HASH_ADD_STR(work->targets, pod_uid, target);
    return target;
}
