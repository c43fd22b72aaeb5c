#include "operator/samples/collect.h"

#include "common/log.h"
#include "common/time.h"
#include "operator/cache/watches.h"
#include "operator/samples/clocks.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdlib.h>
#include <string.h>

/*
 * Raw samples: the plan says what to ask, Prometheus answers, the store keeps it, and only then is
 * the plan told that it is there. A query that failed anywhere on this way is asked again.
 */

/** One query on its way. */
typedef struct query_request {
    pp_pending_call context;
    char uid[64];
    uint64_t serial; /* of the work */
    uint64_t plan_id;
    int64_t sent_ns;
    int64_t shift_ns; /* taken out of stamps */
    /* newest stamp per GPU and metric of the answer, for the plan once it is stored */
    pp_strings gpus;
    int64_t *newest; /* [gpu * PP_METRIC_COUNT + metric]; 0: none */
    size_t n_samples;
    bool too_large; /* it failed for that */
    bool partial;   /* the answer may lack some */
} query_request;

static void query_request_release(void *context)
{
    query_request *e = context;
    pp_strings_free(&e->gpus);
    free(e->newest);
}

static void finish(query_request *e, bool ok)
{
    pp_runtime *runtime = pp_runtime_same(e->context.op, e->uid, e->serial);
    if (runtime) {
        runtime->queries--;
        for (size_t i = 0; ok && !e->partial && e->newest && i < e->gpus.count * PP_METRIC_COUNT;
             i++) {
            if (e->newest[i])
                pp_plan_stored(runtime->plan, e->gpus.items[i / PP_METRIC_COUNT],
                               (pp_metric)(i % PP_METRIC_COUNT), e->newest[i]);
        }
        if (e->too_large)
            pp_plan_too_large(runtime->plan, e->plan_id, pp_time_now());
        else if (ok && e->partial)
            pp_plan_partial(runtime->plan, e->plan_id, e->sent_ns);
        else
            pp_plan_answered(runtime->plan, e->plan_id, ok ? e->sent_ns : pp_time_now(), ok);
        if (ok && e->n_samples) {
            pp_runtime_unsolved(runtime);
            runtime->stats_dirty = true;
        }
        pp_watches_enqueue_soon(runtime->op, runtime->key);
    }
    pp_pending_call_free(e);
}

static void on_stored(void *user, const pp_error *error)
{
    query_request *e = user;
    if (error)
        pp_warn(NULL, "storing samples: %s", error->message);
    else
        pp_meter_add(e->context.op->meters.samples, (double)e->n_samples);
    finish(e, !error);
}

static int note_newest(query_request *e, const pp_prometheus_answer *answer)
{
    e->newest = calloc(answer->gpus.count * PP_METRIC_COUNT + 1, sizeof *e->newest);
    if (!e->newest)
        return -1;
    for (size_t i = 0; i < answer->gpus.count; i++) {
        if (pp_strings_add(&e->gpus, answer->gpus.items[i], NULL) < 0)
            return -1;
    }
    for (size_t i = 0; i < answer->n_samples; i++) {
        const pp_activity_sample *s = &answer->samples[i];
        int64_t *newest = &e->newest[s->gpu * PP_METRIC_COUNT + s->metric];
        if (s->stamp_ns - e->shift_ns > *newest)
            *newest = s->stamp_ns - e->shift_ns;
    }
    e->n_samples = answer->n_samples;
    return 0;
}

/* Logs what is new, where it is not "". */
static void set_error(pp_runtime *runtime, const char *text)
{
    if (strcmp(runtime->prometheus_error, text) != 0 && *text)
        pp_warn(runtime->key, "Prometheus: %s", text);
    (void)snprintf(runtime->prometheus_error, sizeof runtime->prometheus_error, "%s", text);
}

static void remember_error(const query_request *e, const char *text)
{
    pp_runtime *runtime = pp_runtime_same(e->context.op, e->uid, e->serial);
    e->context.op->prometheus_failed_ns = pp_time_monotonic();
    e->context.op->prometheus_refused = true;
    if (runtime)
        set_error(runtime, text);
}

static void remember_answer(const query_request *e, const pp_prometheus_answer *answer)
{
    pp_runtime *runtime = pp_runtime_same(e->context.op, e->uid, e->serial);
    e->context.op->prometheus_failed_ns = 0;
    if (!runtime)
        return;
    runtime->asked = true;
    set_error(runtime, "");
    for (size_t i = 0; i < answer->shared.count; i++)
        (void)pp_strings_add_once(&runtime->shared, answer->shared.items[i], NULL);
    if (pp_prometheus_add_warnings(runtime->prometheus_warning, sizeof runtime->prometheus_warning,
                                   answer->warning))
        pp_warn(runtime->key, "Prometheus: %s", runtime->prometheus_warning);
}

static void on_answer(void *user, uint64_t id, const pp_prometheus_answer *answer,
                      const pp_error *error)
{
    query_request *e = user;
    pp_error err = {0};
    (void)id;
    if (error) {
        remember_error(e, error->message);
        e->too_large = error->code == PP_ERR_TOO_LARGE;
        finish(e, false);
        return;
    }
    remember_answer(e, answer);
    e->partial = answer->partial;
    if (answer->n_samples == 0) {
        finish(e, true);
        return;
    }
    if (note_newest(e, answer) < 0 ||
        pp_store_put_samples(e->context.op->store, &answer->gpus, answer->samples,
                             answer->n_samples, on_stored, e, &err) < 0) {
        pp_warn(NULL, "storing samples: %s", err.message);
        finish(e, false);
    }
}

/* Of a Prometheus without a clock nothing can be asked: `why`, else NULL. */
static void ask(pp_runtime *runtime, const pp_plan_query *query, const pp_error *why)
{
    pp_operator *op = runtime->op;
    query_request *e = pp_pending_call_new(op, sizeof *e, query_request_release);
    pp_error err = {0};
    if (!e) {
        pp_plan_answered(runtime->plan, query->id, pp_time_now(), false);
        return;
    }
    e->serial = runtime->serial;
    e->plan_id = query->id;
    e->sent_ns = pp_time_now();
    e->shift_ns = runtime->prometheus_shift_ns;
    (void)snprintf(e->uid, sizeof e->uid, "%s", runtime->uid);
    runtime->queries++;
    if (why) {
        remember_error(e, why->message);
        finish(e, false);
    } else if (pp_prometheus_query(op->prometheus, query->text, query->time_ns + e->shift_ns,
                                   query->range_ns, on_answer, e, NULL, &err) < 0) {
        remember_error(e, err.message);
        finish(e, false);
    }
}

void pp_collect_tick(pp_runtime *runtime)
{
    pp_operator *op = runtime->op;
    int64_t now = pp_time_now();
    if (!runtime->collect || !op->prometheus || pp_plan_due(runtime->plan) > now)
        return;
    pp_plan_queries queries;
    pp_error err = {0};
    if (!pp_clocks_prometheus_known(op))
        return;
    bool clock = pp_clocks_follow_prometheus(runtime, &err) == 0;
    const pp_error why = err;
    if (pp_plan_next(runtime->plan, now, &queries, &err) < 0) {
        pp_warn(runtime->key, "planning queries: %s", err.message);
        return;
    }
    for (size_t i = 0; i < queries.count; i++)
        ask(runtime, &queries.items[i], clock ? NULL : &why);
    pp_plan_queries_done(&queries);
}
