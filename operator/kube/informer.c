/*
 * The I/O of an informer: carries out what the reflector asks for. What a watch brings is kept and
 * read a little in each turn of the loop: libcurl hands over all that the server has sent, and in a
 * busy cluster that is more than others can wait for.
 */
#include "operator/kube/informer.h"

#include "common/buf.h"
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
    MAX_UNREAD = 2 * 1024 * 1024,   /* what comes past it is made room for at once */
    SLICE = 16 * 1024,              /* between two looks at the clock */
};

/** For reading, in a turn of the loop. */
static const int64_t TURN_NS = 5 * 1000000;

struct pp_kube_informer {
    pp_kube_client *client;
    pp_kube_resource resource;
    char *ns, *label_selector, *field_selector;
    pp_reflector *reflector;
    uv_timer_t timer;
    pp_kube_id call; /**< the list or watch under way; 0: none */
    bool watching;   /**< the timer guards a streamed list, rather than a pause */
    pp_buf bytes;    /**< of the watch, of which so many are read */
    size_t read;
    int64_t turn_ns;
    uv_idle_t reader; /**< runs while there are others */
    bool ended;       /**< the watch, which is told once all is read */
    pp_error end;     /**< why; without a code: the server ended it */
    unsigned handles; /**< that are not closed */
    bool closing;
};

static void step(pp_kube_informer *informer);

/* ---- what a watch brings ---- */

static void forget_bytes(pp_kube_informer *informer)
{
    pp_buf_done(&informer->bytes);
    informer->read = 0;
    uv_idle_stop(&informer->reader);
}

/** No more comes of the watch, and what is not read is not wanted. */
static void end_watch(pp_kube_informer *informer, const pp_error *error)
{
    const pp_error why = error ? *error : (pp_error){0};
    pp_kube_call_cancel(informer->client, informer->call);
    informer->call = 0;
    informer->watching = informer->ended = false;
    uv_timer_stop(&informer->timer);
    forget_bytes(informer);
    if (why.code)
        pp_reflector_failed(informer->reflector, &why, pp_time_monotonic());
    else
        pp_reflector_ended(informer->reflector, pp_time_monotonic());
    step(informer);
}

static int read_slice(pp_kube_informer *informer, pp_error *err)
{
    const size_t left = informer->bytes.len - informer->read;
    const size_t n = left < SLICE ? left : SLICE;
    const char *data = informer->bytes.data + informer->read;
    informer->read += n;
    return pp_reflector_bytes(informer->reflector, data, n, err);
}

static void prefix_watch(const pp_kube_informer *informer, pp_error *err)
{
    (void)pp_error_prefix(err, "watch %s", informer->resource.plural);
}

static void on_read(uv_idle_t *reader)
{
    pp_kube_informer *informer = reader->data;
    const int64_t end = pp_time_monotonic() + informer->turn_ns;
    pp_error err = {0};
    int rc = 0;
    do {
        if (informer->read < informer->bytes.len)
            rc = read_slice(informer, &err);
    } while (rc >= 0 && !informer->closing && informer->read < informer->bytes.len &&
             pp_time_monotonic() < end);
    if (informer->closing)
        return;
    if (rc < 0) {
        prefix_watch(informer, &err);
        end_watch(informer, &err);
    } else if (informer->read == informer->bytes.len) {
        forget_bytes(informer);
        if (informer->ended)
            end_watch(informer, &informer->end);
    }
}

/** Reads until n more have room; what is read makes it. */
static int make_room(pp_kube_informer *informer, size_t n, pp_error *err)
{
    while (informer->bytes.len - informer->read + n > MAX_UNREAD &&
           informer->read < informer->bytes.len) {
        if (read_slice(informer, err) < 0) {
            informer->read = informer->bytes.len; /* the watch ends here: nothing after it counts */
            return -1;
        }
        if (informer->closing)
            return pp_error_set(err, PP_ERR_INTERNAL, "stopped");
    }
    if (informer->read > MAX_UNREAD) {
        informer->bytes.len -= informer->read;
        memmove(informer->bytes.data, informer->bytes.data + informer->read, informer->bytes.len);
        informer->read = 0;
    }
    return 0;
}

static void on_wait_over(uv_timer_t *timer)
{
    pp_kube_informer *informer = timer->data;
    if (!informer->watching)
        step(informer);
    else if (pp_reflector_streaming(informer->reflector))
        end_watch(informer, NULL);
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
    if (make_room(informer, n, err) < 0 || pp_buf_append(&informer->bytes, data, n, err) < 0)
        return -1;
    uv_idle_start(&informer->reader, on_read);
    return 0;
}

static void on_watch_done(void *user, pp_http_client_id id, const pp_http_client_response *response,
                          const pp_error *error)
{
    (void)id;
    pp_kube_informer *informer = user;
    informer->call = 0;
    pp_error err = {0};
    if (error) {
        err = *error;
    } else if (response->status < 200 || response->status >= 300) {
        PP_CLEANUP_JSON json_t *status = kube_json_parse(response->body, response->body_len, NULL);
        (void)pp_kube_status_error(response->status, status, &err);
    }
    if (err.code)
        prefix_watch(informer, &err);
    informer->ended = true;
    informer->end = err;
    uv_idle_start(&informer->reader, on_read);
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
    if (--informer->handles)
        return;
    pp_reflector_free(informer->reflector);
    pp_buf_done(&informer->bytes);
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
    informer->turn_ns = options->turn_ns ? options->turn_ns : TURN_NS;
    uv_timer_init(pp_kube_client_loop(client), &informer->timer);
    uv_idle_init(pp_kube_client_loop(client), &informer->reader);
    informer->timer.data = informer;
    informer->reader.data = informer;
    informer->handles = 2;
    pp_buf_init(&informer->bytes, 3 * (size_t)MAX_UNREAD);
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
    uv_close((uv_handle_t *)&informer->reader, on_closed);
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
