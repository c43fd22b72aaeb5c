#include "operator/operator.h"

#include "common/cleanup.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <utlist.h>

enum { TICK_MS = 500, SOON_MS = 200 };

const pp_kube_resource PP_PROFILESESSIONS = {"precisionprobe.io", "v1alpha1", "profilesessions"};
const pp_kube_resource PP_DEPLOYMENTS = {"apps", "v1", "deployments"};

static void give_up(pp_operator *op, const char *what, const pp_error *err)
{
    pp_err(NULL, "%s: %s", what, err->message);
    op->failed = true;
    pp_operator_stop(op);
}

/* ---- contexts of calls ---- */

void *pp_context_new(pp_operator *op, size_t size, void (*release)(void *context))
{
    pp_context *context = calloc(1, size);
    if (!context)
        return NULL;
    context->op = op;
    context->release = release;
    DL_APPEND(op->contexts, context);
    return context;
}

void pp_context_free(void *context)
{
    pp_context *c = context;
    if (!c)
        return;
    DL_DELETE(c->op->contexts, c);
    if (c->release)
        c->release(c);
    free(c);
}

/* ---- the work of sessions ---- */

pp_work *pp_operator_find_work(pp_operator *op, const char *uid)
{
    pp_work *work = NULL;
    HASH_FIND_STR(op->works, uid, work);
    return work;
}

pp_work *pp_operator_same_work(pp_operator *op, const char *uid, uint64_t serial)
{
    pp_work *work = pp_operator_find_work(op, uid);
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
    int64_t lag = op->config->prometheus.max_lag ? op->config->prometheus.max_lag : 5 * window / 2;
    *ret = (pp_plan_options){.metrics = session->metrics,
                             .scrape_ns = scrape,
                             .wait_ns = op->config->prometheus.max_wait};
    if (window && scrape) {
        ret->lag_ns = window + lag + scrape + margin;
        ret->settle_ns = scrape + margin;
    }
}

pp_work *pp_operator_work(pp_operator *op, const pp_session *session)
{
    pp_work *work = pp_operator_find_work(op, session->uid);
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

void pp_operator_drop_work(pp_operator *op, pp_work *work)
{
    pp_work_target *target;
    pp_work_target *next;
    HASH_ITER(hh, work->targets, target, next)
    {
        HASH_DEL(work->targets, target);
        pp_strings_free(&target->gpus);
        free(target);
    }
    HASH_DEL(op->works, work);
    pp_plan_free(work->plan);
    free(work->key);
    free(work);
}

static void drop_all_work(pp_operator *op)
{
    pp_work *work;
    pp_work *next;
    HASH_ITER(hh, op->works, work, next)
    {
        pp_operator_drop_work(op, work);
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

typedef struct search {
    const char *uid;
    const pp_session *found;
} search;

static bool look_for_uid(void *user, const char *key, const void *object)
{
    search *s = user;
    const pp_session *session = object;
    (void)key;
    if (strcmp(session->uid, s->uid) == 0)
        s->found = session;
    return !s->found;
}

const pp_session *pp_operator_find_session(const pp_operator *op, const char *uid)
{
    search s = {.uid = uid};
    pp_work *work = pp_operator_find_work((pp_operator *)(uintptr_t)op, uid);
    if (!op->sessions)
        return NULL;
    if (work) { /* its key saves the search */
        s.found = pp_kube_informer_get(op->sessions, work->key);
        return s.found && strcmp(s.found->uid, uid) == 0 ? s.found : NULL;
    }
    pp_kube_informer_each(op->sessions, look_for_uid, &s);
    return s.found;
}

void pp_operator_touch(pp_operator *op, const char *key)
{
    pp_error err = {0};
    if (op->queue && !op->stopping && pp_workqueue_add(op->queue, key, &err) < 0)
        pp_warn(key, "cannot be queued: %s", err.message);
}

void pp_operator_touch_soon(pp_operator *op, const char *key)
{
    pp_error err = {0};
    if (op->queue && !op->stopping && pp_workqueue_add_after(op->queue, key, SOON_MS, &err) < 0)
        pp_warn(key, "cannot be queued: %s", err.message);
}

void pp_operator_inject_options(const pp_operator *op, pp_inject_options *ret)
{
    const pp_config *config = op->config;
    *ret = (pp_inject_options){.image = config->injection.image,
                               .pull_policy = config->injection.image_pull_policy,
                               .endpoint = op->endpoint,
                               .ca = op->ca_bundle,
                               .native_sidecar = op->native_sidecar,
                               .cpu = config->injection.cpu,
                               .memory = config->injection.memory,
                               .gpu_resources = &config->injection.gpu_resources,
                               .stretch_seconds = config->injection.stretch_seconds};
}

/* ---- what the watches tell ---- */

static void on_watch_error(void *user, const pp_error *error)
{
    (void)user;
    pp_warn(NULL, "watching: %s", error->message);
}

static void *decode_session(void *user, const json_t *object, pp_error *err)
{
    pp_session *session = NULL;
    (void)user;
    return pp_session_decode(object, &session, err) < 0 ? NULL : session;
}

static void free_session(void *object)
{
    pp_session_free(object);
}

static void on_session(void *user, const char *key, const void *object)
{
    (void)object;
    pp_operator_touch(user, key);
}

static void on_session_update(void *user, const char *key, const void *old, const void *object)
{
    (void)old;
    (void)object;
    pp_operator_touch(user, key);
}

static void *decode_pod(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    return pp_pod_decode(object, err);
}

static void free_pod(void *object)
{
    pp_pod_free(object);
}

typedef struct touch_context {
    pp_operator *op;
    const pp_pod *pod;
} touch_context;

/* Looks again at the sessions that a pod is of, or would be. */
static bool touch_if_concerned(void *user, const char *key, const void *object)
{
    const touch_context *c = user;
    const pp_session *session = object;
    if (strcmp(session->namespace_, c->pod->ns) == 0 &&
        ((c->pod->session_uid && strcmp(c->pod->session_uid, session->uid) == 0) ||
         pp_selector_matches(&session->selector, c->pod->labels)))
        pp_operator_touch_soon(c->op, key);
    return true;
}

static void on_pod(void *user, const char *key, const void *object)
{
    pp_operator *op = user;
    touch_context c = {.op = op, .pod = object};
    (void)key;
    if (op->leading)
        pp_kube_informer_each(op->sessions, touch_if_concerned, &c);
}

static void on_pod_update(void *user, const char *key, const void *old, const void *object)
{
    const pp_pod *before = old;
    pp_pod *now = (pp_pod *)(uintptr_t)object; /* the cache is ours */
    if (strcmp(before->uid, now->uid) == 0) {
        now->ask_ns = before->ask_ns;
        now->refusal = before->refusal;
    }
    on_pod(user, key, object);
}

static bool touch_any(void *user, const char *key, const void *object)
{
    (void)object;
    pp_operator_touch(user, key);
    return true;
}

static void touch_all(pp_operator *op)
{
    if (op->sessions && op->leading)
        pp_kube_informer_each(op->sessions, touch_any, op);
}

/* What was looked at before both lists were there was put off: now is the time. */
static void on_synced(void *user)
{
    touch_all(user);
}

static int start_watches(pp_operator *op, pp_error *err)
{
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    const pp_kube_informer_options sessions = {.resource = &PP_PROFILESESSIONS,
                                               .ns = ns,
                                               .handler = {.decode = decode_session,
                                                           .free_object = free_session,
                                                           .on_add = on_session,
                                                           .on_update = on_session_update,
                                                           .on_delete = on_session,
                                                           .on_synced = on_synced,
                                                           .on_error = on_watch_error,
                                                           .user = op}};
    const pp_kube_informer_options pods = {.resource = &PP_KUBE_PODS,
                                           .ns = ns,
                                           .handler = {.decode = decode_pod,
                                                       .free_object = free_pod,
                                                       .on_add = on_pod,
                                                       .on_update = on_pod_update,
                                                       .on_delete = on_pod,
                                                       .on_synced = on_synced,
                                                       .on_error = on_watch_error,
                                                       .user = op}};
    op->sessions = pp_kube_informer_new(op->kube, &sessions, err);
    op->pods = op->sessions ? pp_kube_informer_new(op->kube, &pods, err) : NULL;
    return op->pods ? 0 : -1;
}

static bool synced(const pp_operator *op)
{
    return op->sessions && op->pods && pp_kube_informer_synced(op->sessions) &&
           pp_kube_informer_synced(op->pods);
}

/* ---- the HTTP edge ---- */

static void on_review(void *context, pp_http_id id, const pp_http_review *review)
{
    pp_admission_review(context, id, review);
}

static void on_authorize(void *context, pp_http_id id, const char *token)
{
    pp_intake_authorize(context, id, token);
}

static bool accepting(void *context)
{
    const pp_operator *op = context;
    return op->leading && !op->stopping && synced(op) && pp_store_ready(op->store, NULL);
}

static void on_connected(void *context, pp_http_id connection, const pp_http_identity *identity)
{
    pp_intake_connected(context, connection, identity);
}

static void on_batch(void *context, pp_http_id connection, pp_wire_batch *batch)
{
    pp_intake_batch(context, connection, batch);
}

static void on_bye(void *context, pp_http_id connection, const pp_wire_bye *bye)
{
    (void)context;
    (void)connection;
    pp_info(bye->session, "an agent is done: %s", bye->reason);
}

static void on_disconnected(void *context, pp_http_id connection)
{
    pp_intake_disconnected(context, connection);
}

static bool ready(void *context, char *reason, size_t size)
{
    const pp_operator *op = context;
    const char *why = op->stopping     ? "stopping"
                      : !op->ca_bundle ? "no certificate yet"
                      : !synced(op)    ? "the first lists are not complete"
                                       : NULL;
    if (why)
        (void)snprintf(reason, size, "%s", why);
    return !why;
}

static int start_server(pp_operator *op, const char *certificate, const char *key, pp_error *err)
{
    const pp_config *config = op->config;
    const pp_http_options options = {
        .loop = op->loop,
        .address = *config->http.bind_address ? config->http.bind_address : NULL,
        .tls_port = (int)config->http.tls_port,
        .plain_port = (int)config->http.plain_port,
        .certificate = certificate,
        .key = key,
        .max_connections = (size_t)config->ingest.max_connections,
        .metrics = op->meters.registry,
    };
    const pp_http_handlers handlers = {.context = op,
                                       .review = on_review,
                                       .authorize = on_authorize,
                                       .accepting = accepting,
                                       .connected = on_connected,
                                       .batch = on_batch,
                                       .bye = on_bye,
                                       .disconnected = on_disconnected,
                                       .ready = ready};
    return pp_http_server_new(&options, &handlers, &op->server, err);
}

/* ---- leading ---- */

/* What the store holds open although it is over: the object is gone, or the store missed its end.
 */
static void on_orphans(void *user, const pp_strings *uids, const pp_error *error)
{
    pp_operator *op = user;
    for (size_t i = 0; !error && i < uids->count && op->leading && synced(op); i++) {
        const pp_session *session = pp_operator_find_session(op, uids->items[i]);
        if (session && !pp_session_final(session))
            continue;
        const char *phase = session ? pp_session_phase_name(session->phase) : "Failed";
        int64_t end = session && session->completion_ns ? session->completion_ns : pp_time_now();
        (void)pp_store_finish(op->store, uids->items[i], phase, end, NULL, NULL, NULL);
    }
}

static void on_started_leading(void *user)
{
    pp_operator *op = user;
    pp_info(NULL, "leading as %s", op->identity);
    op->leading = true;
    op->serving_since_ns = pp_time_now();
    pp_meter_set(op->meters.leading, 1);
    touch_all(op);
}

static void on_stopped_leading(void *user)
{
    pp_operator *op = user;
    pp_info(NULL, "no longer leading");
    op->leading = false;
    pp_meter_set(op->meters.leading, 0);
    drop_all_work(op);
    if (op->server)
        pp_http_ingest_close_all(op->server, 1012, "another replica leads now");
}

static void on_lease_error(void *user, const pp_error *error)
{
    (void)user;
    pp_warn(NULL, "the Lease: %s", error->message);
}

static void finish_stop(pp_operator *op);

static void on_released(void *user)
{
    finish_stop(user);
}

static int start_lease(pp_operator *op, pp_error *err)
{
    if (!op->config->lease.enabled) {
        on_started_leading(op);
        return 0;
    }
    const pp_kube_lease_options options = {
        .ns = *op->config->lease.ns ? op->config->lease.ns : NULL,
        .name = op->config->lease.name,
        .identity = op->identity,
        .owner = op->owner,
        .on_started = on_started_leading,
        .on_stopped = on_stopped_leading,
        .on_error = on_lease_error,
        .on_released = on_released,
        .user = op,
    };
    op->lease = pp_kube_lease_new(op->kube, &options, err);
    return op->lease ? 0 : -1;
}

/* ---- time ---- */

static void on_tick(uv_timer_t *timer)
{
    pp_operator *op = timer->data;
    pp_work *work;
    pp_work *next;
    HASH_ITER(hh, op->works, work, next)
    {
        pp_collect_tick(work);
        pp_solve_tick(work);
    }
}

static void on_retired(void *user, const pp_store_retired *retired, const pp_error *error)
{
    pp_operator *op = user;
    if (error) {
        if (error->code != PP_ERR_UNAVAILABLE)
            pp_warn(NULL, "retention: %s", error->message);
        return;
    }
    if (retired->batches || retired->sample_rows || retired->sessions || retired->partitions)
        pp_info(NULL,
                "retention: %lld batches, %lld sample rows, %lld sessions, %lld days of samples",
                (long long)retired->batches, (long long)retired->sample_rows,
                (long long)retired->sessions, (long long)retired->partitions);
    if (retired->more && !op->stopping)
        uv_timer_start(&op->retention, op->retention.timer_cb, 1000,
                       (uint64_t)(op->config->retention.interval / 1000000));
}

static void on_retention(uv_timer_t *timer)
{
    pp_operator *op = timer->data;
    const pp_store_retention ages = {.activity = op->config->retention.activity,
                                     .samples = op->config->retention.samples,
                                     .results = op->config->retention.results};
    if (!op->leading)
        return;
    (void)pp_store_retire(op->store, &ages, pp_time_now(), on_retired, op, NULL);
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    (void)pp_store_load_unfinished(op->store, ns, on_orphans, op, NULL);
}

static void start_timers(pp_operator *op)
{
    uint64_t interval = (uint64_t)(op->config->retention.interval / 1000000);
    uv_timer_start(&op->tick, on_tick, TICK_MS, TICK_MS);
    uv_timer_start(&op->retention, on_retention, interval < 60000 ? interval : 60000, interval);
}

/* ---- starting: owner, version, certificate, then everything that serves ---- */

static void on_certificate(pp_operator *op, const char *certificate, const char *key)
{
    pp_error err = {0};
    if (start_server(op, certificate, key, &err) < 0 || start_watches(op, &err) < 0 ||
        start_lease(op, &err) < 0) {
        give_up(op, "starting", &err);
        return;
    }
    start_timers(op);
    pp_info(NULL, "serving agents and the webhook on port %d, metrics and health on port %d",
            pp_http_tls_port(op->server), pp_http_plain_port(op->server));
}

/* Native sidecars are on by default from 1.29 on. */
static bool has_native_sidecars(const char *body, size_t n)
{
    PP_CLEANUP_JSON json_t *version = pp_json_parse(body, n, NULL);
    const char *major = pp_json_get_string(version, "major", NULL);
    const char *minor = pp_json_get_string(version, "minor", NULL);
    if (!major || !minor)
        return false;
    long first = strtol(major, NULL, 10);
    return first > 1 || (first == 1 && strtol(minor, NULL, 10) >= 29); /* "29+" is a 29 */
}

static int on_version_text(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                           pp_error *err)
{
    pp_operator *op = user;
    (void)id;
    (void)status;
    return pp_buf_append(&op->version, data, n, err);
}

static void on_version(void *user, pp_http_client_id id, const pp_http_client_response *response,
                       const pp_error *error)
{
    pp_operator *op = user;
    const char *wish = op->config->injection.native_sidecar;
    (void)id;
    if (error || response->status != 200)
        pp_warn(NULL, "the server's version is unknown (%s): ordinary sidecars are injected",
                error ? error->message : "refused");
    else
        op->native_sidecar =
            has_native_sidecars(op->version.data ? op->version.data : "", op->version.len);
    if (strcmp(wish, "Auto") != 0)
        op->native_sidecar = strcmp(wish, "Always") == 0;
    pp_error err = {0};
    if (!op->stopping && pp_tls_start(op, on_certificate, &err) < 0)
        give_up(op, "the certificate", &err);
}

static void ask_version(pp_operator *op)
{
    pp_error err = {0};
    pp_buf_init(&op->version, 65536);
    if (pp_kube_stream_start(op->kube, "/version", 10000, on_version_text, on_version, op, NULL,
                             &err) < 0)
        give_up(op, "asking the server's version", &err);
}

static void on_owner(void *user, json_t *object, const pp_error *error)
{
    pp_operator *op = user;
    const char *uid = error ? NULL : pp_json_get_string(object, "metadata", "uid", NULL);
    if (uid)
        op->owner = json_pack("{s:s, s:s, s:s, s:s}", "apiVersion", "apps/v1", "kind", "Deployment",
                              "name", op->config->owner.deployment, "uid", uid);
    else
        pp_warn(NULL, "the Deployment %s cannot own what is created here: %s",
                op->config->owner.deployment, error ? error->message : "it has no UID");
    if (!op->stopping)
        ask_version(op);
}

static int ask_owner(pp_operator *op, pp_error *err)
{
    if (!*op->config->owner.deployment) {
        ask_version(op);
        return 0;
    }
    const pp_kube_call call = {.verb = PP_KUBE_GET,
                               .resource = &PP_DEPLOYMENTS,
                               .ns = pp_kube_client_namespace(op->kube),
                               .name = op->config->owner.deployment,
                               .done = on_owner,
                               .user = op};
    return pp_kube_call_start(op->kube, &call, NULL, err);
}

static void process_key(void *user, const char *key)
{
    pp_operator *op = user;
    if (synced(op))
        pp_reconcile(op, key);
    pp_workqueue_done(op->queue, key);
}

static void on_store_health(void *user, bool is_ready, const char *text)
{
    pp_operator *op = user;
    if (is_ready)
        pp_info(NULL, "Postgres: %s", text);
    else
        pp_warn(NULL, "Postgres: %s", text);
    touch_all(op);
}

static void collect_meters(void *context)
{
    const pp_operator *op = context;
    pp_meter_set(op->meters.sessions,
                 op->sessions ? (double)pp_kube_informer_count(op->sessions) : 0);
    pp_meter_set(op->meters.pods, op->pods ? (double)pp_kube_informer_count(op->pods) : 0);
    pp_meter_set(op->meters.agents, HASH_COUNT(op->peers));
}

static int make_meters(pp_operator *op, pp_error *err)
{
    pp_operator_meters *m = &op->meters;
    pp_metrics *r = m->registry = pp_metrics_new();
    if (!r)
        return pp_error_nomem(err);
    m->leading = pp_metrics_gauge(r, "precisionprobe_leader",
                                  "Whether this replica holds the Lease.", NULL, err);
    m->sessions =
        pp_metrics_gauge(r, "precisionprobe_sessions", "ProfileSessions in the cache.", NULL, err);
    m->pods = pp_metrics_gauge(r, "precisionprobe_pods", "Pods in the cache.", NULL, err);
    m->agents = pp_metrics_gauge(r, "precisionprobe_agents", "Agents connected.", NULL, err);
    m->injected =
        pp_metrics_counter(r, "precisionprobe_injected_total", "Pods injected.", NULL, err);
    m->injection_refused = pp_metrics_counter(r, "precisionprobe_injection_refused_total",
                                              "Pods that could not be injected.", NULL, err);
    m->batches = pp_metrics_counter(r, "precisionprobe_batches_stored_total",
                                    "Batches stored, each once.", NULL, err);
    m->events = pp_metrics_counter(r, "precisionprobe_intervals_stored_total",
                                   "Intervals stored, each once.", NULL, err);
    m->samples = pp_metrics_counter(r, "precisionprobe_samples_stored_total",
                                    "Raw metric samples given to the store.", NULL, err);
    m->solutions =
        pp_metrics_counter(r, "precisionprobe_solutions_total", "Sessions solved.", NULL, err);
    m->reconciles =
        pp_metrics_counter(r, "precisionprobe_reconciles_total", "Sessions looked at.", NULL, err);
    m->reconcile_errors = pp_metrics_counter(r, "precisionprobe_reconcile_errors_total",
                                             "Status writes that failed.", NULL, err);
    if (!m->reconcile_errors || pp_metrics_add_process(r, err) < 0)
        return -1;
    return pp_metrics_on_render(r, collect_meters, op, err);
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

static int set_endpoint(pp_operator *op, pp_error *err)
{
    const pp_config *config = op->config;
    const char *ns = *config->webhook.service_namespace ? config->webhook.service_namespace
                                                        : pp_kube_client_namespace(op->kube);
    int rc = *config->ingest.endpoint ? asprintf(&op->endpoint, "%s", config->ingest.endpoint)
                                      : asprintf(&op->endpoint, "wss://%s.%s.svc%s",
                                                 config->webhook.service_name, ns, PP_WIRE_PATH);
    return rc < 0 ? pp_error_nomem(err) : 0;
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
    if (!op->kube)
        return -1;
    const pp_store_options store = {.conninfo_file = config->postgres.conninfo_file,
                                    .connect_timeout_ns = config->postgres.connect_timeout,
                                    .max_queued_bytes =
                                        (size_t)config->postgres.max_queued_mebibytes << 20,
                                    .on_health = on_store_health,
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
    op->tick.data = op;
    op->retention.data = op;
    set_identity(op);
    if (make_meters(op, err) < 0 || connect_edges(op, err) < 0 || set_endpoint(op, err) < 0)
        return -1;
    const pp_workqueue_options queue = {.process = process_key, .user = op};
    op->queue = pp_workqueue_new(loop, &queue, err);
    op->recorder =
        op->queue ? pp_kube_recorder_new(op->kube, "precisionprobe.io/operator", op->identity, err)
                  : NULL;
    op->reviewer = op->recorder ? pp_kube_reviewer_new(op->kube, PP_WIRE_AUDIENCE, err) : NULL;
    if (!op->reviewer)
        return -1;
    return ask_owner(op, err);
}

/* ---- stopping ---- */

static void finish_stop(pp_operator *op)
{
    drop_all_work(op);
    pp_kube_lease_free(op->lease);
    pp_tls_stop(op);
    pp_kube_informer_free(op->sessions);
    pp_kube_informer_free(op->pods);
    pp_workqueue_free(op->queue);
    pp_kube_reviewer_free(op->reviewer);
    pp_kube_recorder_free(op->recorder);
    op->lease = NULL;
    op->sessions = NULL;
    op->pods = NULL;
    op->queue = NULL;
    pp_kube_client_free(op->kube);
    pp_prometheus_free(op->prometheus);
    pp_store_free(op->store);
    pp_http_client_free(op->http);
    while (op->contexts) /* of calls that were cancelled */
        pp_context_free(op->contexts);
    uv_close((uv_handle_t *)&op->tick, NULL);
    uv_close((uv_handle_t *)&op->retention, NULL);
}

void pp_operator_stop(pp_operator *op)
{
    if (op->stopping)
        return;
    op->stopping = true;
    pp_info(NULL, "stopping");
    uv_timer_stop(&op->tick);
    uv_timer_stop(&op->retention);
    if (op->server)
        pp_http_server_stop(op->server);
    if (op->lease)
        pp_kube_lease_release(op->lease);
    else
        finish_stop(op);
}

void pp_operator_done(pp_operator *op)
{
    pp_http_server_free(op->server);
    pp_intake_forget_all(op);
    pp_metrics_free(op->meters.registry);
    json_decref(op->owner);
    pp_buf_done(&op->version);
    free(op->ca_bundle);
    free(op->endpoint);
}
