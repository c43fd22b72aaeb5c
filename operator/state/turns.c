#include "operator/state/turns.h"

static const double NS_PER_SECOND = 1e9;

/* Called once a turn, before the wait. */
static void on_prepare(uv_prepare_t *prepare)
{
    pp_turns *turns = prepare->data;
    uint64_t now = uv_hrtime();
    uint64_t idle = uv_metrics_idle_time(prepare->loop);
    if (turns->began_ns) {
        uint64_t waited = idle - turns->idle_ns;
        uint64_t took = now - turns->began_ns;
        /* The two clocks are not read at the same moment. */
        pp_meter_observe(turns->seconds,
                         took > waited ? (double)(took - waited) / NS_PER_SECOND : 0);
    }
    turns->began_ns = now;
    turns->idle_ns = idle;
}

int pp_turns_start(pp_turns *turns, uv_loop_t *loop, pp_meter *seconds, pp_error *err)
{
    int rc = uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
    if (rc < 0)
        return pp_error_set(err, PP_ERR_IO, "measuring the loop's turns: %s", uv_strerror(rc));
    *turns = (pp_turns){.seconds = seconds};
    (void)uv_prepare_init(loop, &turns->prepare);
    turns->prepare.data = turns;
    (void)uv_prepare_start(&turns->prepare, on_prepare);
    uv_unref((uv_handle_t *)&turns->prepare);
    return 0;
}

void pp_turns_stop(pp_turns *turns)
{
    if (turns->seconds)
        uv_close((uv_handle_t *)&turns->prepare, NULL);
    turns->seconds = NULL;
}
