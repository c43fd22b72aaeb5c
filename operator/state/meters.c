#include "operator/state/meters.h"

#include "common/time.h"
#include "operator/state/state.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum kind { COUNTER, GAUGE, HISTOGRAM } kind;

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
    {M(idle), GAUGE, "precisionprobe_idle", NULL,
     "1: another installation came first, and this one stays idle; else 0."},
    {M(sessions[PP_SESSION_PENDING]), GAUGE, "precisionprobe_sessions", "phase=\"Pending\"",
     "ProfileSessions in the cache, by phase."},
    {M(sessions[PP_SESSION_COLLECTING]), GAUGE, "precisionprobe_sessions", "phase=\"Collecting\"",
     ""},
    {M(sessions[PP_SESSION_FINISHING]), GAUGE, "precisionprobe_sessions", "phase=\"Finishing\"",
     ""},
    {M(sessions[PP_SESSION_SUCCEEDED]), GAUGE, "precisionprobe_sessions", "phase=\"Succeeded\"",
     ""},
    {M(sessions[PP_SESSION_FAILED]), GAUGE, "precisionprobe_sessions", "phase=\"Failed\"", ""},
    {M(sessions[PP_SESSION_SUSPENDED]), GAUGE, "precisionprobe_sessions", "phase=\"Suspended\"",
     ""},
    {M(pods), GAUGE, "precisionprobe_pods", NULL, "Pods in the cache."},
    {M(queue), GAUGE, "precisionprobe_queue_depth", NULL, "Sessions waiting to be looked at."},
    {M(queue_oldest), GAUGE, "precisionprobe_queue_oldest_seconds", NULL,
     "For how long the first of these has waited."},
    {M(reconcile_seconds), HISTOGRAM, "precisionprobe_reconcile_seconds", NULL,
     "Time of one look at a session; what it asks for is answered later."},
    {M(turn_seconds), HISTOGRAM, "precisionprobe_loop_turn_seconds", NULL,
     "Time of one turn of the event loop, the wait for events not counted: what is ready waits for "
     "so long."},
    {M(injected), COUNTER, "precisionprobe_injected_total", NULL, "Pods injected."},
    {M(injection_refused), COUNTER, "precisionprobe_injection_refused_total", NULL,
     "Pods that could not be injected."},
    {M(batches), COUNTER, "precisionprobe_batches_stored_total", NULL,
     "Batches stored, each once."},
    {M(events), COUNTER, "precisionprobe_events_stored_total", NULL,
     "Intervals and grid calls stored, each once."},
    {M(clock_refused[PP_CLOCK_FAR]), COUNTER, "precisionprobe_batches_clock_refused_total",
     "reason=\"far\"",
     "Batches refused for their node's clock, more than a day off or jumping, or for stamps before "
     "their session or after now."},
    {M(clock_refused[PP_CLOCK_UNSTEADY]), COUNTER, "precisionprobe_batches_clock_refused_total",
     "reason=\"unsteady\"", ""},
    {M(clock_refused[PP_CLOCK_BEFORE]), COUNTER, "precisionprobe_batches_clock_refused_total",
     "reason=\"before\"", ""},
    {M(clock_refused[PP_CLOCK_AFTER]), COUNTER, "precisionprobe_batches_clock_refused_total",
     "reason=\"after\"", ""},
    {M(samples), COUNTER, "precisionprobe_samples_stored_total", NULL,
     "Raw metric samples given to the store."},
    {M(solutions), COUNTER, "precisionprobe_solutions_total", NULL, "Sessions solved."},
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
     "Kubernetes Events written, or dropped (allowance, refused by the API server, or 4,096 were "
     "waiting)."},
    {M(kube_events_dropped), COUNTER, "precisionprobe_kube_events_total", "result=\"dropped\"", ""},
    {M(denied[PP_RIGHT_SESSIONS]), GAUGE, "precisionprobe_kube_denied",
     "what=\"watch profilesessions\"",
     "1: the API server denies this to the operator, which is not ready then; else 0."},
    {M(denied[PP_RIGHT_STATUS]), GAUGE, "precisionprobe_kube_denied", "what=\"write status\"", ""},
    {M(denied[PP_RIGHT_PODS]), GAUGE, "precisionprobe_kube_denied", "what=\"watch pods\"", ""},
    {M(denied[PP_RIGHT_TOKEN_REVIEWS]), GAUGE, "precisionprobe_kube_denied",
     "what=\"review tokens\"", ""},
    {M(denied[PP_RIGHT_TOKEN]), GAUGE, "precisionprobe_kube_denied", "what=\"be authenticated\"",
     ""},
    {M(workloads), GAUGE, "precisionprobe_workloads", NULL, "Workloads told below, by the leader."},
    {M(workloads_left_out), GAUGE, "precisionprobe_workloads_left_out", NULL,
     "Workloads that there is no room for, or that are still to be read."},
    {M(workloads_without_layers), GAUGE, "precisionprobe_workloads_without_layers", NULL,
     "Workloads that are told without their layers, for want of room."},
    {M(workload_read_failures), COUNTER, "precisionprobe_workload_read_failures_total", NULL,
     "Readings of workloads from Postgres that failed; what was read before stays."},
    {M(store_up), GAUGE, "precisionprobe_store_up", NULL, "Whether Postgres is connected: 1 or 0."},
    {M(prometheus_up), GAUGE, "precisionprobe_prometheus_up", NULL,
     "0: Prometheus answers neither queries nor the leader, who asks for its time every 15 s, or "
     "none is configured; else 1."},
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
    if (i)
        pp_meter_set(m->pods, (double)pp_kube_informer_count(informer));
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
    pp_meter_set(m->idle, op->idle);
    if (op->stopping) /* their owners may be gone */
        return;
    collect_watch(m, 0, op->sessions);
    collect_watch(m, 1, op->pods);
    int64_t now = pp_time_monotonic();
    for (int i = 0; i < PP_RIGHT_COUNT; i++)
        pp_meter_set(m->denied[i], pp_rights_denied(&op->rights, (pp_right)i, now));
    pp_meter_set(m->queue, (double)pp_workqueue_depth(op->queue));
    pp_meter_set(m->queue_oldest, (double)pp_workqueue_oldest_ns(op->queue) / 1e9);
    pp_kube_recorder_stats events = pp_kube_recorder_get_stats(op->recorder);
    pp_meter_set(m->kube_events_sent, (double)events.sent);
    pp_meter_set(m->kube_events_dropped, (double)events.dropped);
    pp_meter_set(m->store_up, pp_store_ready(op->store, NULL));
    pp_meter_set(m->prometheus_up, op->prometheus && op->prometheus_failed_ns == 0);
    pp_store_counters store;
    pp_store_get_counters(op->store, &store);
    pp_meter_set(m->store_committed, (double)store.committed);
    pp_meter_set(m->store_failed, (double)store.failed);
    pp_meter_set(m->store_retried, (double)store.retried);
    pp_meter_set(m->store_lost, (double)store.disconnects);
    pp_meter_set(m->store_calls, (double)store.queued);
    pp_meter_set(m->store_bytes, (double)store.queued_bytes);
}

/* ---- requests to the API server ---- */

static const struct {
    const char *name;
    int usual; /* status of the answer; the series that are there from the start */
} verbs[PP_KUBE_VERBS] = {
    [PP_KUBE_GET] = {"get", 200},           [PP_KUBE_LIST] = {"list", 200},
    [PP_KUBE_CREATE] = {"create", 201},     [PP_KUBE_UPDATE] = {"update", 200},
    [PP_KUBE_PATCH_MERGE] = {"patch", 200}, [PP_KUBE_PATCH_JSON] = {"patch", 200},
    [PP_KUBE_DELETE] = {"delete", 200},     [PP_KUBE_WATCH] = {"watch", 200},
};

/* Any other is "other", so that a proxy's fancies make no series. */
static const int codes[PP_METERS_CODES - 1] = {200, 201, 202, 400, 401, 403, 404,
                                               405, 406, 408, 409, 410, 413, 415,
                                               422, 429, 500, 502, 503, 504, 0};

static pp_meter *requests_meter(pp_metrics *registry, pp_kube_verb verb, size_t code, pp_error *err)
{
    char labels[64];
    char number[16] = "other";
    if (code < PP_METERS_CODES - 1)
        (void)snprintf(number, sizeof number, "%d", codes[code]);
    (void)snprintf(labels, sizeof labels, "verb=\"%s\",code=\"%s\"", verbs[verb].name,
                   strcmp(number, "0") == 0 ? "none" : number);
    return pp_metrics_counter(registry, "precisionprobe_kube_requests_total",
                              "Requests that the API server answered, a watch when it ends, by the "
                              "answer's code; none: it gave no answer.",
                              labels, err);
}

static pp_meter *request_of(pp_meters *m, pp_kube_verb verb, int status, pp_error *err)
{
    size_t code = 0;
    while (code < PP_METERS_CODES - 1 && codes[code] != status)
        code++;
    pp_meter **meter = &m->kube_requests[verb][code];
    if (!*meter)
        *meter = requests_meter(m->registry, verb, code, err);
    return *meter;
}

void pp_meters_request(void *user, pp_kube_verb verb, int status)
{
    pp_meter_add(request_of(user, verb, status, NULL), 1);
}

/* ---- sessions ---- */

/* Counted as they change, so that no scrape walks over all. */
void pp_meters_session(pp_meters *meters, const pp_session *before, const pp_session *now)
{
    if (before)
        pp_meter_add(meters->sessions[before->phase], -1);
    if (now)
        pp_meter_add(meters->sessions[now->phase], 1);
}

/* ---- making ---- */

int pp_meters_add_build(pp_metrics *registry, const char *version, const char *architecture,
                        pp_error *err)
{
    char labels[128];
    (void)snprintf(labels, sizeof labels, "version=\"%s\",architecture=\"%s\"", version,
                   architecture);
    pp_meter *build = pp_metrics_gauge(registry, "precisionprobe_build_info",
                                       "1; which program this is.", labels, err);
    pp_meter_set(build, 1);
    return build ? 0 : -1;
}

static pp_meter *make(pp_metrics *r, const description *d, pp_error *err)
{
    static const double bounds[] = {.0001, .0002, .0005, .001, .002, .005, .01,
                                    .02,   .05,   .1,    .2,   .5,   1,    5};
    switch (d->kind) {
    case COUNTER:
        return pp_metrics_counter(r, d->name, d->help, d->labels, err);
    case GAUGE:
        return pp_metrics_gauge(r, d->name, d->help, d->labels, err);
    case HISTOGRAM:
        break;
    }
    return pp_metrics_histogram(r, d->name, d->help, d->labels, bounds,
                                sizeof bounds / sizeof bounds[0], err);
}

int pp_meters_make(pp_operator *op, pp_error *err)
{
    pp_metrics *r = op->meters.registry = pp_metrics_new();
    if (!r)
        return pp_error_nomem(err);
    for (size_t i = 0; i < sizeof descriptions / sizeof descriptions[0]; i++) {
        const description *d = &descriptions[i];
        pp_meter *meter = make(r, d, err);
        if (!meter)
            return -1;
        *(pp_meter **)(void *)((char *)&op->meters + d->offset) = meter;
    }
    for (int verb = 0; verb < PP_KUBE_VERBS; verb++) {
        if (!request_of(&op->meters, (pp_kube_verb)verb, verbs[verb].usual, err))
            return -1;
    }
    if (pp_metrics_add_process(r, err) < 0)
        return -1;
    return pp_metrics_on_render(r, collect, op, err);
}
