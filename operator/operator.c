#include "operator/operator.h"
#include "operator/installation/rights_ask.h"

#include "common/log.h"
#include "common/time.h"
#include "operator/cache/limits_watch.h"
#include "operator/cache/session_runtime.h"
#include "operator/cache/watches.h"
#include "operator/installation/addresses.h"
#include "operator/installation/claims.h"
#include "operator/installation/cluster.h"
#include "operator/installation/replicas.h"
#include "operator/installation/tls.h"
#include "operator/leader.h"
#include "operator/patterns/patterns.h"
#include "operator/pods/admission.h"
#include "operator/pods/creations.h"
#include "operator/pods/silent.h"
#include "operator/pods/stuck.h"
#include "operator/reconcile.h"
#include "operator/results/results.h"
#include "operator/retention.h"
#include "operator/samples/agent_connections.h"
#include "operator/samples/clocks.h"
#include "operator/samples/collect.h"
#include "operator/samples/solve.h"
#include "operator/serve.h"
#include "operator/state/memory.h"
#include "operator/state/pending_call.h"
#include "operator/workloads/workload_metrics.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { TICK_MS = 500, ASK_AGAIN_MS = 2000, TRIM_EVERY_TICKS = 4 };

static const int64_t NS_PER_MS = 1000000;

/* Between repetitions of why the store is away. */
static const int64_t STORE_TOLD_EVERY_NS = INT64_C(300000000000);

static void give_up(pp_operator *op, const char *what, const pp_error *err)
{
    pp_err(NULL, "%s: %s", what, err->message);
    op->failed = true;
    pp_operator_stop(op);
}

static void on_store_health(void *user, bool is_ready, const char *text)
{
    pp_operator *op = user;
    op->store_told_ns = pp_time_monotonic();
    if (is_ready)
        pp_info(NULL, "Postgres: %s", text);
    else
        pp_warn(NULL, "Postgres: %s", text);
    pp_watches_enqueue_all(op);
}

/* A replica that never comes to lead, as of a release that is taken back, changes nothing under the
 * one that does. */
static bool may_migrate(void *user)
{
    const pp_operator *op = user;
    return op->leading;
}

static void on_store_warning(void *user, const char *text)
{
    (void)user;
    pp_warn(NULL, "Postgres: %s", text);
}

static void repeat_store_health(pp_operator *op)
{
    const char *text = NULL;
    if (!pp_store_ready(op->store, &text) &&
        pp_time_monotonic() - op->store_told_ns >= STORE_TOLD_EVERY_NS)
        on_store_health(op, false, text);
}

static void collect_and_solve(pp_runtime *runtime)
{
    pp_collect_tick(runtime);
    pp_solve_tick(runtime);
}

static void on_tick(uv_timer_t *timer)
{
    pp_operator *op = timer->data;
    repeat_store_health(op);
    if (op->rights_news)
        pp_watches_enqueue_all(op);
    op->rights_news = false;
    pp_clocks_watch_prometheus(op);
    pp_runtime_each_awake(op, collect_and_solve);
    if (pp_watches_synced(op))
        pp_workload_metrics_tick(op);
    if (++op->ticks % TRIM_EVERY_TICKS == 0)
        pp_memory_trim();
}

static void finish_stop(pp_operator *op)
{
    pp_runtime_drop_all(op);
    pp_solve_stop(op);
    pp_kube_lease_free(op->lease);
    pp_tls_stop(op);
    pp_admission_stop(op);
    pp_kube_informer_free(op->sessions);
    pp_kube_informer_free(op->pods);
    pp_creations_stop(op);
    pp_stuck_stop(op);
    pp_silent_stop(op);
    pp_limits_watch_stop(op);
    pp_claims_stop(op);
    pp_addresses_stop(op);
    pp_replicas_stop(op);
    pp_match_index_free(op->matches);
    pp_workqueue_free(op->queue);
    pp_results_stop(op);
    pp_workload_metrics_stop(op);
    pp_kube_reviewer_free(op->reviewer);
    pp_kube_recorder_free(op->recorder);
    op->lease = NULL;
    op->sessions = NULL;
    op->pods = NULL;
    op->matches = NULL;
    op->queue = NULL;
    pp_kube_client_free(op->kube);
    pp_prometheus_free(op->prometheus);
    pp_store_free(op->store);
    pp_http_client_free(op->http);
    pp_pending_call_free_all(op);
    pp_turns_stop(&op->turns);
    uv_close((uv_handle_t *)&op->tick, NULL);
    uv_close((uv_handle_t *)&op->retention, NULL);
    uv_close((uv_handle_t *)&op->recall, NULL);
    uv_close((uv_handle_t *)&op->rights_timer, NULL);
    uv_close((uv_handle_t *)&op->drain, NULL);
}

static void on_handed_over(void *user)
{
    pp_operator *op = user;
    op->handed_over = true;
    if (op->stopping)
        finish_stop(op);
}

static void on_pod_seen(pp_operator *op, const pp_pod *pod)
{
    pp_stuck_pod_seen(op, pod);
    pp_silent_pod_seen(op, pod);
}

static void on_pod_gone(pp_operator *op, const pp_pod *pod)
{
    pp_stuck_pod_gone(op, pod);
    pp_silent_pod_gone(op, pod);
}

static void on_certificate(pp_operator *op, const pp_certificates *certificates)
{
    static const pp_watches_events events = {.moved = pp_connections_pod_moved,
                                             .pod = pp_connections_pod_changed,
                                             .seen = on_pod_seen,
                                             .gone = on_pod_gone,
                                             .session = pp_admission_session_came};
    pp_error err = {0};
    if (pp_addresses_start(op, &err) < 0 || pp_replicas_start(op, &err) < 0 ||
        pp_admission_start(op, &err) < 0 || pp_results_start(op, &err) < 0 ||
        pp_serve_start(op, certificates, &err) < 0 || pp_stuck_start(op, &err) < 0 ||
        pp_silent_start(op, &err) < 0 || pp_watches_start(op, &events, &err) < 0 ||
        pp_limits_watch_start(op, &err) < 0 || pp_creations_start(op, &err) < 0 ||
        pp_leader_start(op, on_handed_over, &err) < 0) {
        give_up(op, "starting", &err);
        return;
    }
    uv_timer_start(&op->tick, on_tick, TICK_MS, TICK_MS);
    pp_retention_start(op);
    pp_rights_start(op);
    pp_info(NULL, "serving agents and the webhook on port %d, metrics and health on port %d",
            pp_http_tls_port(op->server), pp_http_plain_port(op->server));
}

static void ask_again(uv_timer_t *timer);

/* Nothing is served, and so nothing injected, before it is known which kind of sidecar fits. */
static void on_asked(pp_operator *op, const pp_error *error)
{
    pp_error err = {0};
    if (error) {
        pp_warn(NULL, "the server's version: %s", error->message);
        uv_timer_start(&op->tick, ask_again, ASK_AGAIN_MS, 0);
    } else if (pp_tls_start(op, on_certificate, &err) < 0) {
        give_up(op, "the certificate", &err);
    }
}

static void ask_again(uv_timer_t *timer)
{
    pp_error err = {0};
    pp_operator *op = timer->data;
    if (pp_cluster_ask(op, on_asked, &err) < 0)
        on_asked(op, &err);
}

static void process_key(void *user, const char *key)
{
    pp_operator *op = user;
    int64_t began = pp_time_monotonic();
    if (pp_watches_synced(op)) {
        pp_reconcile(op, key);
        pp_meter_observe(op->meters.reconcile_seconds, (double)(pp_time_monotonic() - began) / 1e9);
    }
    pp_workqueue_done(op->queue, key);
}

static void set_identity(pp_operator *op)
{
    char host[64] = "operator";
    uint32_t digits = 0;
    (void)gethostname(host, sizeof host - 1);
    if (getrandom(&digits, sizeof digits, 0) < 0)
        digits = (uint32_t)pp_time_monotonic();
    (void)snprintf(op->identity, sizeof op->identity, "%s_%08x", host, digits);
}

/* What agents would refuse. */
static int check_endpoint(const pp_operator *op, pp_error *err)
{
    static const char scheme[] = "wss://";
    const char *option =
        *op->config->ingest.endpoint ? "ingest.endpoint" : "webhook.serviceNamespace";
    const bool secure = strncmp(op->endpoint, scheme, sizeof scheme - 1) == 0;
    const size_t host = secure ? strcspn(op->endpoint + sizeof scheme - 1, ":/") : 0;
    if (!host)
        return pp_error_field(err, option, "must be wss://host[:port]/path");
    if (strlen(op->endpoint) > PP_WIRE_MAX_ENDPOINT || host > PP_WIRE_MAX_HOST)
        return pp_error_field(err, option,
                              "makes the URL for agents too long (%s): it may have %d bytes, its "
                              "host %d",
                              op->endpoint, PP_WIRE_MAX_ENDPOINT, PP_WIRE_MAX_HOST);
    return 0;
}

static int set_endpoint(pp_operator *op, pp_error *err)
{
    const pp_config *config = op->config;
    const char *ns = pp_addresses_namespace(op);
    int rc = *config->ingest.endpoint ? asprintf(&op->endpoint, "%s", config->ingest.endpoint)
                                      : asprintf(&op->endpoint, "wss://%s.%s.svc%s",
                                                 config->webhook.service_name, ns, PP_WIRE_PATH);
    return rc < 0 ? pp_error_nomem(err) : check_endpoint(op, err);
}

static int connect_edges(pp_operator *op, pp_error *err)
{
    const pp_config *config = op->config;
    pp_kube_config kube = {0};
    if (pp_kube_config_load(
            &kube, *config->kubernetes.kubeconfig ? config->kubernetes.kubeconfig : NULL, err) < 0)
        return -1;
    op->http = pp_http_client_new(op->loop, NULL, err);
    op->kube = op->http ? pp_kube_client_new(op->http, &kube, err) : NULL;
    pp_kube_config_done(&kube);
    if (op->kube)
        pp_kube_client_set_rate(op->kube, config->kubernetes.requests_per_second);
    if (!op->kube)
        return -1;
    pp_kube_client_on_answer(op->kube, pp_meters_request, &op->meters);
    const pp_store_options store = {.conninfo_file = config->postgres.conninfo_file,
                                    .connect_timeout_ns = config->postgres.connect_timeout,
                                    .max_queued_bytes =
                                        (size_t)config->postgres.max_queued_mebibytes << 20,
                                    .may_migrate = may_migrate,
                                    .on_health = on_store_health,
                                    .on_warning = on_store_warning,
                                    .user = op};
    op->store = pp_store_new(op->loop, &store, err);
    if (!op->store || pp_metric_preset(config->prometheus.preset, &op->source, err) < 0)
        return -1;
    if (*config->prometheus.url) {
        const pp_prometheus_options prometheus = {.url = config->prometheus.url,
                                                  .bearer_token_file =
                                                      config->prometheus.bearer_token_file,
                                                  .ca_file = config->prometheus.ca_file,
                                                  .source = op->source,
                                                  .timeout_ns = config->prometheus.query_timeout};
        op->prometheus = pp_prometheus_new(op->http, &prometheus, err);
        if (!op->prometheus)
            return -1;
    }
    return 0;
}

int pp_operator_start(pp_operator *op, uv_loop_t *loop, const pp_config *config, pp_error *err)
{
    *op = (pp_operator){.loop = loop, .config = config};
    uv_timer_init(loop, &op->tick);
    uv_timer_init(loop, &op->retention);
    uv_timer_init(loop, &op->recall);
    op->recall.data = op;
    uv_timer_init(loop, &op->drain);
    op->drain.data = op;
    uv_timer_init(loop, &op->rights_timer);
    op->rights_timer.data = op;
    op->tick.data = op;
    op->retention.data = op;
    set_identity(op);
    if (pp_meters_make(op, err) < 0 || pp_workload_metrics_start(op, err) < 0 ||
        pp_meters_add_build(op->meters.registry, PP_VERSION, PP_ARCHITECTURE, err) < 0 ||
        pp_turns_start(&op->turns, loop, op->meters.turn_seconds, err) < 0 ||
        pp_solve_start(op, err) < 0 || connect_edges(op, err) < 0 || set_endpoint(op, err) < 0)
        return -1;
    const pp_workqueue_options queue = {.process = process_key, .user = op};
    op->queue = pp_workqueue_new(loop, &queue, err);
    op->recorder =
        op->queue ? pp_kube_recorder_new(op->kube, "precisionprobe.io/operator", op->identity, err)
                  : NULL;
    op->reviewer = op->recorder ? pp_kube_reviewer_new(op->kube, PP_WIRE_AUDIENCE, err) : NULL;
    if (!op->reviewer)
        return -1;
    return pp_cluster_ask(op, on_asked, err);
}

/* ---- stopping ---- */

static void on_drained(uv_timer_t *timer)
{
    pp_operator_stop(timer->data);
}

void pp_operator_drain(pp_operator *op)
{
    if (op->draining || op->stopping)
        return;
    if (!op->server) {
        pp_operator_stop(op);
        return;
    }
    op->draining = true;
    pp_http_server_drain(op->server);
    (void)uv_timer_start(&op->drain, on_drained, (uint64_t)(op->config->http.drain / NS_PER_MS), 0);
    if (op->lease)
        pp_kube_lease_release(op->lease);
}

void pp_operator_stop(pp_operator *op)
{
    if (op->stopping)
        return;
    op->stopping = true;
    pp_info(NULL, "stopping");
    uv_timer_stop(&op->tick);
    uv_timer_stop(&op->retention);
    uv_timer_stop(&op->recall);
    uv_timer_stop(&op->drain);
    pp_rights_stop(op);
    if (op->server)
        pp_http_server_stop(op->server);
    if (op->lease && !op->handed_over)
        pp_kube_lease_release(op->lease);
    else
        finish_stop(op);
}

void pp_operator_done(pp_operator *op)
{
    pp_http_server_free(op->server);
    pp_connections_forget_all(op);
    pp_solve_done(op);
    pp_patterns_done_all(op);
    pp_workload_metrics_done(op);
    pp_metrics_free(op->meters.registry);
    json_decref(op->owner);
    json_decref(op->labels);
    free(op->ca_bundle);
    free(op->endpoint);
}
