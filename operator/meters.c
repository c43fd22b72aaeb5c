#include "operator/meters.h"

#include "operator/state.h"

#include <stddef.h>

typedef enum kind { COUNTER, GAUGE } kind;

typedef struct description {
    size_t offset; /* of the pp_meter * */
    kind kind;
    const char *name;
    const char *labels;
    const char *help;
} description;

#define M(member) offsetof(pp_meters, member)

static const description descriptions[] = {
    {M(leading), GAUGE, "precisionprobe_leader", NULL, "Whether this replica leads: 1 or 0."},
    {M(sessions), GAUGE, "precisionprobe_sessions", NULL, "ProfileSessions in the cache."},
    {M(pods), GAUGE, "precisionprobe_pods", NULL, "Pods in the cache."},
    {M(queue), GAUGE, "precisionprobe_queue_depth", NULL, "Sessions waiting to be looked at."},
    {M(injected), COUNTER, "precisionprobe_injected_total", NULL, "Pods injected."},
    {M(injection_refused), COUNTER, "precisionprobe_injection_refused_total", NULL,
     "Pods that could not be injected."},
    {M(batches), COUNTER, "precisionprobe_batches_stored_total", NULL,
     "Batches stored, each once."},
    {M(events), COUNTER, "precisionprobe_events_stored_total", NULL,
     "Intervals and grid calls stored, each once."},
    {M(samples), COUNTER, "precisionprobe_samples_stored_total", NULL,
     "Raw metric samples given to the store."},
    {M(solutions), COUNTER, "precisionprobe_solutions_total", NULL, "Sessions solved."},
    {M(reconciles), COUNTER, "precisionprobe_reconciles_total", NULL, "Sessions looked at."},
    {M(status_failures), COUNTER, "precisionprobe_status_write_failures_total", NULL,
     "Writes of a session's status that failed."},
    {M(kube_lists[0]), COUNTER, "precisionprobe_kube_lists_total", "resource=\"profilesessions\"",
     "Full lists read from the API server; more than one: a watch was lost."},
    {M(kube_lists[1]), COUNTER, "precisionprobe_kube_lists_total", "resource=\"pods\"", ""},
    {M(kube_watches[0]), COUNTER, "precisionprobe_kube_watches_total",
     "resource=\"profilesessions\"", "Watches started."},
    {M(kube_watches[1]), COUNTER, "precisionprobe_kube_watches_total", "resource=\"pods\"", ""},
    {M(kube_changes[0]), COUNTER, "precisionprobe_kube_watch_events_total",
     "resource=\"profilesessions\"", "Changes taken from watches, bookmarks included."},
    {M(kube_changes[1]), COUNTER, "precisionprobe_kube_watch_events_total", "resource=\"pods\"",
     ""},
    {M(kube_errors[0]), COUNTER, "precisionprobe_kube_watch_errors_total",
     "resource=\"profilesessions\"", "Lists and watches that failed, objects left out."},
    {M(kube_errors[1]), COUNTER, "precisionprobe_kube_watch_errors_total", "resource=\"pods\"", ""},
    {M(kube_events_sent), COUNTER, "precisionprobe_kube_events_total", "result=\"sent\"",
     "Kubernetes Events written, or dropped (allowance, or refused by the API server)."},
    {M(kube_events_dropped), COUNTER, "precisionprobe_kube_events_total", "result=\"dropped\"", ""},
    {M(store_up), GAUGE, "precisionprobe_store_up", NULL, "Whether Postgres is connected: 1 or 0."},
    {M(prometheus_up), GAUGE, "precisionprobe_prometheus_up", NULL,
     "0: the last query to Prometheus failed, or none is configured; else 1."},
    {M(store_committed), COUNTER, "precisionprobe_store_transactions_total", "result=\"committed\"",
     "Transactions of the store, by how they ended."},
    {M(store_failed), COUNTER, "precisionprobe_store_transactions_total", "result=\"failed\"", ""},
    {M(store_retried), COUNTER, "precisionprobe_store_retries_total", NULL,
     "Transactions sent again after a lost connection or a conflict."},
    {M(store_lost), COUNTER, "precisionprobe_store_connections_lost_total", NULL,
     "Connections to Postgres that were lost."},
    {M(store_calls), GAUGE, "precisionprobe_store_queued_calls", NULL,
     "Calls that wait for Postgres."},
    {M(store_bytes), GAUGE, "precisionprobe_store_queued_bytes", NULL,
     "Bytes of the calls that wait for Postgres."},
};

static void collect_watch(pp_meters *m, int i, const pp_kube_informer *informer)
{
    if (!informer)
        return;
    pp_kube_informer_stats stats = pp_kube_informer_get_stats(informer);
    pp_meter_set(i ? m->pods : m->sessions, (double)pp_kube_informer_count(informer));
    pp_meter_set(m->kube_lists[i], (double)stats.lists);
    pp_meter_set(m->kube_watches[i], (double)stats.watches);
    pp_meter_set(m->kube_changes[i], (double)stats.events);
    pp_meter_set(m->kube_errors[i], (double)stats.errors);
}

static void collect(void *context)
{
    pp_operator *op = context;
    pp_meters *m = &op->meters;
    pp_meter_set(m->leading, op->leading);
    if (op->stopping) /* their owners may be gone */
        return;
    collect_watch(m, 0, op->sessions);
    collect_watch(m, 1, op->pods);
    pp_meter_set(m->queue, (double)pp_workqueue_depth(op->queue));
    pp_kube_recorder_stats events = pp_kube_recorder_get_stats(op->recorder);
    pp_meter_set(m->kube_events_sent, (double)events.sent);
    pp_meter_set(m->kube_events_dropped, (double)events.dropped);
    pp_meter_set(m->store_up, pp_store_ready(op->store, NULL));
    pp_meter_set(m->prometheus_up, op->prometheus && !op->prometheus_failed);
    pp_store_counters store;
    pp_store_get_counters(op->store, &store);
    pp_meter_set(m->store_committed, (double)store.committed);
    pp_meter_set(m->store_failed, (double)store.failed);
    pp_meter_set(m->store_retried, (double)store.retried);
    pp_meter_set(m->store_lost, (double)store.disconnects);
    pp_meter_set(m->store_calls, (double)store.queued);
    pp_meter_set(m->store_bytes, (double)store.queued_bytes);
}

int pp_meters_make(pp_operator *op, pp_error *err)
{
    pp_metrics *r = op->meters.registry = pp_metrics_new();
    if (!r)
        return pp_error_nomem(err);
    for (size_t i = 0; i < sizeof descriptions / sizeof descriptions[0]; i++) {
        const description *d = &descriptions[i];
        pp_meter *meter = d->kind == GAUGE
                              ? pp_metrics_gauge(r, d->name, d->help, d->labels, err)
                              : pp_metrics_counter(r, d->name, d->help, d->labels, err);
        if (!meter)
            return -1;
        *(pp_meter **)(void *)((char *)&op->meters + d->offset) = meter;
    }
    if (pp_metrics_add_process(r, err) < 0)
        return -1;
    return pp_metrics_on_render(r, collect, op, err);
}
