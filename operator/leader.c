#include "operator/leader.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/time.h"
#include "controller/claim.h"
#include "operator/cache/session_runtime.h"
#include "operator/cache/watches.h"
#include "operator/installation/claims.h"
#include "operator/installation/deployment.h"
#include "operator/patterns/old_patterns.h"
#include "operator/patterns/patterns.h"
#include "operator/samples/agent_connections.h"
#include "operator/state/state.h"

#include <string.h>

/** By then another replica leads, if one can: the Lease is lost 10 s after it was renewed, runs for
 * 15, and is looked at every 2 to 4.4 s. */
enum { RECALL_MS = 10000 };

static void start_leading(pp_operator *op)
{
    pp_info(NULL, "leading as %s", op->identity);
    op->leading = true;
    op->serving_since_ns = pp_time_now();
    (void)uv_timer_stop(&op->recall);
    if (op->server)
        pp_http_ingest_hold(op->server, false);
    pp_store_try_now(op->store); /* it may have waited for who migrates */
    pp_connections_tell_all(op);
    pp_watches_enqueue_all(op);
    pp_patterns_resume(op);
    pp_old_patterns_due(op);
}

/* They go to the replica that leads now, or wait for one. */
static void send_agents_away(pp_operator *op, const char *why)
{
    (void)uv_timer_stop(&op->recall);
    if (!op->server)
        return;
    pp_http_ingest_close_all(op->server, 1012, why);
    pp_http_ingest_hold(op->server, false);
}

static void on_recall(uv_timer_t *timer)
{
    send_agents_away(timer->data, "this replica leads no more");
}

/*
 * An API server that is too busy to renew the Lease often gives it back soon. Agents that had to
 * come again meanwhile, each with a token to be reviewed, would keep it busy: so they are kept for
 * a while, and nothing is read of them.
 */
static void keep_agents(pp_operator *op)
{
    if (op->server)
        pp_http_ingest_hold(op->server, true);
    (void)uv_timer_start(&op->recall, on_recall, RECALL_MS, 0);
}

static void stop_leading(pp_operator *op)
{
    pp_info(NULL, "no longer leading");
    op->leading = false;
    op->prometheus_failed_ns = 0; /* it is not asked any more */
    pp_runtime_drop_all(op);
    if (op->idle || op->draining || op->stopping)
        send_agents_away(op, "this replica leads no more");
    else
        keep_agents(op);
}

/* To the log, and to whoever describes the Deployment. */
static void tell_rival(pp_operator *op)
{
    char why[512];
    bool idle = pp_claims_rival(op, why, sizeof why);
    if (idle == op->idle)
        return;
    op->idle = idle;
    if (!idle) {
        pp_info(NULL, "no other installation goes before this one any more");
        return;
    }
    pp_err(NULL, "%s", why);
    pp_deployment_event(op, "AnotherInstallation", "Lead", why);
}

/* Holding the Lease is not enough: no other installation may go before this one. */
static void consider(pp_operator *op)
{
    bool lead = op->holds_lease && pp_claims_clear(op);
    tell_rival(op);
    if (lead && !op->leading)
        start_leading(op);
    else if (!lead && op->leading)
        stop_leading(op);
}

static void on_lease_held(void *user)
{
    pp_operator *op = user;
    op->holds_lease = true;
    consider(op);
}

static void on_lease_lost(void *user)
{
    pp_operator *op = user;
    op->holds_lease = false;
    consider(op);
}

static void on_leader(void *user, const char *identity)
{
    pp_operator *op = user;
    if (!op->leading && strcmp(identity, op->identity) != 0)
        send_agents_away(op, "another replica leads now");
}

static void on_lease_error(void *user, const pp_error *error)
{
    (void)user;
    pp_warn(NULL, "the Lease: %s", error->message);
}

int pp_leader_start(pp_operator *op, void (*released)(void *op), pp_error *err)
{
    if (!op->config->lease.enabled) {
        on_lease_held(op);
        return 0;
    }
    PP_CLEANUP_JSON json_t *labels = NULL;
    PP_CLEANUP_JSON json_t *annotations = NULL;
    if (pp_claim_marks(op->config->kubernetes.ns, &labels, &annotations, err) < 0 ||
        pp_claims_start(op, consider, err) < 0)
        return -1;
    const pp_kube_lease_options options = {
        .ns = *op->config->lease.ns ? op->config->lease.ns : NULL,
        .name = op->config->lease.name,
        .identity = op->identity,
        .owner = op->owner,
        .labels = labels,
        .annotations = annotations,
        .on_started = on_lease_held,
        .on_stopped = on_lease_lost,
        .on_leader = on_leader,
        .on_error = on_lease_error,
        .on_released = released,
        .user = op,
    };
    op->lease = pp_kube_lease_new(op->kube, &options, err);
    return op->lease ? 0 : -1;
}
