#include "operator/leader.h"

#include "common/log.h"
#include "common/time.h"
#include "operator/state.h"
#include "operator/watches.h"
#include "operator/work.h"

static void on_started_leading(void *user)
{
    pp_operator *op = user;
    pp_info(NULL, "leading as %s", op->identity);
    op->leading = true;
    op->serving_since_ns = pp_time_now();
    pp_watches_touch_all(op);
}

static void on_stopped_leading(void *user)
{
    pp_operator *op = user;
    pp_info(NULL, "no longer leading");
    op->leading = false;
    op->prometheus_failed = false; /* it is not asked any more */
    pp_work_drop_all(op);
    if (op->server)
        pp_http_ingest_close_all(op->server, 1012, "another replica leads now");
}

static void on_lease_error(void *user, const pp_error *error)
{
    (void)user;
    pp_warn(NULL, "the Lease: %s", error->message);
}

int pp_leader_start(pp_operator *op, void (*released)(void *op), pp_error *err)
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
        .on_released = released,
        .user = op,
    };
    op->lease = pp_kube_lease_new(op->kube, &options, err);
    return op->lease ? 0 : -1;
}
