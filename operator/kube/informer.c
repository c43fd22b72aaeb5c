/* The I/O of an informer: carries out what the reflector asks for. */
#include "operator/kube/informer.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"
#include "operator/kube/kube_internal.h"
#include "operator/kube/reflector.h"

#include <string.h>

enum {
    LIST_MAX_BODY = 64 * 1024 * 1024, /* for the fallback that asks for everything at once */
    LIST_TIMEOUT_MS = 60 * 1000,
    STREAM_LIST_MAX_MS = 60 * 1000, /* then the streamed list is given up for a paged one */
    WATCH_GRACE_MS = 30 * 1000,     /* beyond the time after which the server ends a watch */
};

struct pp_kube_informer {
    pp_kube_client *client;
    pp_kube_resource resource;
    char *ns, *label_selector, *field_selector;
    pp_reflector *reflector;
    uv_timer_t timer;
    pp_kube_id call; /**< the list or watch under way; 0: none */
    bool watching;   /**< the timer guards a streamed list, rather than a pause */
    bool closing;
};

static void step(pp_kube_informer *informer);

static void on_wait_over(uv_timer_t *timer)
{
    pp_kube_informer *informer = timer->data;
    if (!informer->watching) {
        step(informer);
        return;
    }
    if (!pp_reflector_streaming(informer->reflector))
        return;
    pp_kube_call_cancel(informer->client, informer->call);
    informer->call = 0;
    informer->watching = false;
    pp_reflector_ended(informer->reflector, pp_time_monotonic());
    step(informer);
}

static void on_list_done(void *user, json_t *object, const pp_error *error)
{
    pp_kube_informer *informer = user;
    informer->call = 0;
    if (error)
        pp_reflector_failed(informer->reflector, error, pp_time_monotonic());
    else
        pp_reflector_page(informer->reflector, object, pp_time_monotonic());
    step(informer);
}

static int on_watch_bytes(void *user, pp_http_client_id id, int status, const char *data, size_t n,
                          pp_error *err)
{
    (void)id;
    (void)status;
    pp_kube_informer *informer = user;
    return pp_reflector_bytes(informer->reflector, data, n, err);
}

static void on_watch_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                          const pp_error *error)
{
    (void)id;
    pp_kube_informer *informer = user;
    informer->call = 0;
    informer->watching = false;
    uv_timer_stop(&informer->timer);
    pp_error err = {0};
    if (error) {
        err = *error;
    } else if (response->status < 200 || response->status >= 300) {
        PP_CLEANUP_JSON json_t *status = kube_json_parse(response->body, response->body_len, NULL);
        (void)pp_kube_status_error(response->status, status, &err);
    }
    if (err.code) {
        (void)pp_error_prefix(&err, "watch %s", informer->resource.plural);
        pp_reflector_failed(informer->reflector, &err, pp_time_monotonic());
    } else {
        pp_reflector_ended(informer->reflector, pp_time_monotonic());
    }
    step(informer);
}

static pp_kube_call list_call(const pp_kube_informer *informer)
{
    return (pp_kube_call){.verb = PP_KUBE_LIST,
                          .resource = &informer->resource,
                          .ns = informer->ns,
                          .label_selector = informer->label_selector,
                          .field_selector = informer->field_selector};
}

static int start_list(pp_kube_informer *informer, const pp_reflector_step *s, pp_error *err)
{
    pp_kube_call call = list_call(informer);
    call.limit = s->limit;
    call.continue_token = s->continue_token;
    call.timeout_ms = LIST_TIMEOUT_MS;
    call.max_body = LIST_MAX_BODY;
    call.done = on_list_done;
    call.user = informer;
    return pp_kube_call_start(informer->client, &call, &informer->call, err);
}

static int start_watch(pp_kube_informer *informer, const pp_reflector_step *s, pp_error *err)
{
    pp_kube_call call = list_call(informer);
    PP_CLEANUP_FREE char *path = pp_kube_call_path(&call, s->query, err);
    if (!path ||
        pp_kube_stream_start(informer->client, PP_KUBE_WATCH, path, s->timeout_ms + WATCH_GRACE_MS,
                             on_watch_bytes, on_watch_done, informer, &informer->call, err) < 0)
        return -1;
    informer->watching = s->streams_list;
    if (s->streams_list)
        uv_timer_start(&informer->timer, on_wait_over, STREAM_LIST_MAX_MS, 0);
    return 0;
}

/** Does the next thing, until something is under way or waited for. */
static void step(pp_kube_informer *informer)
{
    while (!informer->closing) {
        pp_reflector_step s;
        pp_error err = {0};
        pp_reflector_next(informer->reflector, pp_time_monotonic(), &s);
        if (s.what == PP_REFLECT_WAIT) {
            informer->watching = false;
            uv_timer_start(&informer->timer, on_wait_over, (uint64_t)s.wait_ms, 0);
            return;
        }
        int rc = s.what == PP_REFLECT_LIST ? start_list(informer, &s, &err)
                                           : start_watch(informer, &s, &err);
        if (rc == 0)
            return;
        /* Not started: never the server's refusal, which would switch streamed lists off. */
        err.code = err.code == PP_ERR_INVALID ? PP_ERR_INTERNAL : err.code;
        pp_reflector_failed(informer->reflector, &err, pp_time_monotonic());
    }
}

static void on_first_turn(uv_timer_t *timer)
{
    step(timer->data);
}

static void on_closed(uv_handle_t *handle)
{
    pp_kube_informer *informer = handle->data;
    pp_reflector_free(informer->reflector);
    free(informer->ns);
    free(informer->label_selector);
    free(informer->field_selector);
    free(informer);
}

static bool copy(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

pp_kube_informer *pp_kube_informer_new(pp_kube_client *client,
                                       const pp_kube_informer_options *options, pp_error *err)
{
    pp_kube_informer *informer = calloc(1, sizeof *informer);
    if (!informer) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    informer->client = client;
    informer->resource = *options->resource;
    uv_timer_init(pp_kube_client_loop(client), &informer->timer);
    informer->timer.data = informer;
    informer->reflector = pp_reflector_new(options, 0, err);
    bool copied = copy(&informer->ns, options->ns) &&
                  copy(&informer->label_selector, options->label_selector) &&
                  copy(&informer->field_selector, options->field_selector);
    if (!copied)
        (void)pp_error_nomem(err);
    if (!copied || !informer->reflector) {
        pp_kube_informer_free(informer);
        return NULL;
    }
    uv_timer_start(&informer->timer, on_first_turn, 0, 0);
    return informer;
}

void pp_kube_informer_free(pp_kube_informer *informer)
{
    if (!informer || informer->closing)
        return;
    informer->closing = true;
    if (informer->reflector)
        pp_reflector_stop(informer->reflector);
    pp_kube_call_cancel(informer->client, informer->call);
    uv_close((uv_handle_t *)&informer->timer, on_closed);
}

bool pp_kube_informer_synced(const pp_kube_informer *informer)
{
    return pp_reflector_synced(informer->reflector);
}

const void *pp_kube_informer_get(const pp_kube_informer *informer, const char *key)
{
    return pp_reflector_get(informer->reflector, key);
}

size_t pp_kube_informer_count(const pp_kube_informer *informer)
{
    return pp_reflector_count(informer->reflector);
}

void pp_kube_informer_each(const pp_kube_informer *informer,
                           bool (*fn)(void *user, const char *key, const void *object), void *user)
{
    pp_reflector_each(informer->reflector, fn, user);
}

pp_kube_informer_stats pp_kube_informer_get_stats(const pp_kube_informer *informer)
{
    return pp_reflector_get_stats(informer->reflector);
}
