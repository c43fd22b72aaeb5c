#include "operator/retention.h"

#include "common/log.h"
#include "common/time.h"
#include "controller/samples/clock_offset.h"
#include "operator/cache/watches.h"
#include "operator/patterns/old_patterns.h"
#include "operator/state/state.h"

#include <stdlib.h>

static const int64_t CLOCKS_APART_NS = INT64_C(3600000000000);

/* What the store holds open although it is over: the object is gone, or the store missed its end.
 */
static void on_orphans(void *user, const pp_strings *uids, const pp_error *error)
{
    pp_operator *op = user;
    for (size_t i = 0; !error && i < uids->count && op->leading && pp_watches_synced(op); i++) {
        const pp_session *session = pp_match_session(op->matches, uids->items[i]);
        if (session && !pp_session_final(session))
            continue;
        const char *phase = session ? pp_session_phase_name(session->phase) : "Failed";
        int64_t end = session && session->completion_ns ? session->completion_ns : pp_time_now();
        (void)pp_store_finish(op->store, uids->items[i], phase, end, NULL, NULL, NULL);
    }
}

/* Once, until they agree again. */
static void tell_clocks(pp_operator *op, int64_t ahead_ns)
{
    const bool apart = llabs(ahead_ns) > CLOCKS_APART_NS;
    char text[96];
    if (apart && !op->clocks_told) {
        pp_clock_describe(ahead_ns, text, sizeof text);
        pp_warn(NULL,
                "retention: by the database's, this replica's clock is %s: only what is old by "
                "both is deleted",
                text);
    }
    op->clocks_told = apart;
}

static void on_retired(void *user, const pp_store_retired *retired, const pp_error *error)
{
    pp_operator *op = user;
    if (error) {
        if (error->code != PP_ERR_UNAVAILABLE)
            pp_warn(NULL, "retention: %s", error->message);
        return;
    }
    tell_clocks(op, retired->ahead_ns);
    if (retired->batches || retired->sample_rows || retired->kernel_rows || retired->wait_rows ||
        retired->copy_rows || retired->sessions || retired->partitions)
        pp_info(NULL,
                "retention: %lld batches, %lld sample rows, %lld kernel rows, %lld rows of waits, "
                "%lld rows of copies, "
                "%lld sessions, %lld days of samples",
                (long long)retired->batches, (long long)retired->sample_rows,
                (long long)retired->kernel_rows, (long long)retired->wait_rows,
                (long long)retired->copy_rows, (long long)retired->sessions,
                (long long)retired->partitions);
    if (retired->sessions > 0)
        pp_old_patterns_due(op);
    if (!retired->more)
        pp_old_patterns_sweep(op);
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

void pp_retention_start(pp_operator *op)
{
    uint64_t interval = (uint64_t)(op->config->retention.interval / 1000000);
    uv_timer_start(&op->retention, on_retention, interval < 60000 ? interval : 60000, interval);
}
