/* The plain port: health for the kubelet, metrics for Prometheus. */
#include "operator/http_server/http_server_internal.h"

void http_healthz_begin(exchange *ex)
{
    http_exchange_answer_text(ex, 200, "", "ok"); /* that the loop turns is what is asked */
}

void http_readyz_begin(exchange *ex)
{
    const pp_http_server *server = ex->peer.server;
    char reason[256] = "the operator stops";
    bool ready = !server->stopping &&
                 server->handlers.ready(server->handlers.context, reason, sizeof reason);
    http_exchange_answer_text(ex, ready ? 200 : 503, "", ready ? "ok" : reason);
}

void http_metrics_begin(exchange *ex)
{
    pp_metrics *metrics = ex->peer.server->options.metrics;
    pp_buf text;
    pp_buf_init(&text, PP_METRICS_MAX_TEXT);
    if (metrics && pp_metrics_render(metrics, &text, NULL) < 0)
        http_exchange_answer_text(ex, 503, "", "the metrics do not fit");
    else
        http_exchange_answer(ex, 200, "text/plain; version=0.0.4; charset=utf-8", "", text.data,
                             text.len);
    pp_buf_done(&text);
}
