#include "operator/store/store_internal.h"

#include "common/cleanup.h"

#include <stdlib.h>
#include <string.h>

#define OR(value, otherwise) ((value) ? (value) : (otherwise))

enum { MAX_WARNINGS = 16 };

static void on_changed(void *user)
{
    pp_store *s = user;
    bool ready = true;
    const char *text = "connected";
    for (int i = PP_LANES - 1; i >= 0; i--) {
        if (!s->lanes[i])
            return; /* being built */
        if (!pp_connection_ready(s->lanes[i])) {
            ready = false;
            text = pp_connection_text(s->lanes[i]);
        }
    }
    if (s->closing || (ready == s->was_ready && strcmp(text, s->text) == 0))
        return;
    s->was_ready = ready;
    (void)snprintf(s->text, sizeof(s->text), "%s", text);
    if (s->options.on_health)
        s->options.on_health(s->options.user, ready, s->text);
}

static void on_counted(void *user, unsigned retried, bool lost)
{
    pp_store *s = user;
    s->counters.retried += retried;
    s->counters.disconnects += lost;
}

static void on_left(void *user, const pp_job *job, const pp_error *error)
{
    pp_store *s = user;
    s->counters.committed += !error;
    s->counters.failed += error != NULL;
    s->counters.queued--;
    s->counters.queued_bytes -= job->bytes;
}

/* Both connections hear it, each time that they connect: it is told once, until it is another. */
static void on_warned(void *user, const char *text)
{
    pp_store *s = user;
    for (size_t i = 0; i < s->warnings.count; i++) {
        if (strcmp(s->warnings.items[i], text) == 0)
            return;
    }
    if (s->closing || !s->options.on_warning || s->warnings.count >= MAX_WARNINGS ||
        pp_strings_add(&s->warnings, text, NULL) < 0)
        return;
    s->options.on_warning(s->options.user, text);
}

static void free_store(pp_store *s)
{
    pp_strings_free(&s->warnings);
    free(s->conninfo);
    free(s->conninfo_file);
    free(s);
}

static void on_closed(void *user)
{
    pp_store *s = user;
    if (--s->open_lanes == 0 && s->closing)
        free_store(s);
}

static int copy(const char *text, char **ret, const char **ret_option, pp_error *err)
{
    *ret = text ? strdup(text) : NULL;
    *ret_option = *ret;
    return text && !*ret ? pp_error_nomem(err) : 0;
}

static int set_options(pp_store *s, const pp_store_options *given, pp_error *err)
{
    pp_store_options *o = &s->options;
    *o = *given;
    o->connect_timeout_ns = OR(o->connect_timeout_ns, INT64_C(10000000000));
    o->stall_timeout_ns = OR(o->stall_timeout_ns, INT64_C(120000000000));
    o->backoff_min_ns = OR(o->backoff_min_ns, INT64_C(200000000));
    o->backoff_max_ns = OR(o->backoff_max_ns, INT64_C(10000000000));
    o->max_queued_bytes = OR(o->max_queued_bytes, (size_t)64 << 20);
    if (!given->conninfo && !given->conninfo_file)
        return pp_error_set(err, PP_ERR_INVALID, "no connection string for Postgres");
    if (copy(given->conninfo, &s->conninfo, &o->conninfo, err) < 0)
        return -1;
    return copy(given->conninfo_file, &s->conninfo_file, &o->conninfo_file, err);
}

pp_store *pp_store_new(uv_loop_t *loop, const pp_store_options *options, pp_error *err)
{
    pp_store *s = calloc(1, sizeof(*s));
    if (!s) {
        pp_error_nomem(err);
        return NULL;
    }
    if (set_options(s, options, err) < 0) {
        free_store(s);
        return NULL;
    }
    (void)snprintf(s->text, sizeof(s->text), "connecting");
    const pp_connection_events events = {on_changed, on_counted, on_left, on_closed, on_warned, s};
    for (int i = 0; i < PP_LANES; i++) {
        s->lanes[i] = pp_connection_new(loop, &s->options, &events, err);
        if (!s->lanes[i]) {
            pp_store_free(s);
            return NULL;
        }
        s->open_lanes++;
    }
    return s;
}

void pp_store_free(pp_store *s)
{
    if (!s || s->closing)
        return;
    s->closing = true;
    if (s->open_lanes == 0) {
        free_store(s);
        return;
    }
    for (int i = 0; i < PP_LANES; i++) {
        if (s->lanes[i])
            pp_connection_close(s->lanes[i]);
    }
}

void pp_store_try_now(pp_store *s)
{
    for (int i = 0; i < PP_LANES; i++)
        pp_connection_try_now(s->lanes[i]);
}

bool pp_store_got_no_lock(const pp_store *s)
{
    bool any = false;
    for (int i = 0; i < PP_LANES; i++)
        any |= s->lanes[i] && pp_connection_got_no_lock(s->lanes[i]);
    return any;
}

bool pp_store_ready(const pp_store *s, const char **ret_text)
{
    if (ret_text)
        *ret_text = s->text;
    return s->was_ready;
}

void pp_store_get_counters(const pp_store *s, pp_store_counters *ret)
{
    *ret = s->counters;
}

static void call_done(pp_job *job, const pp_error *error)
{
    const pp_call *call = (const pp_call *)job;
    if (call->done)
        call->done(call->user, error);
}

void *pp_call_new(size_t size, void (*ended)(pp_job *job, const pp_error *error), void *user,
                  pp_error *err)
{
    pp_call *call = calloc(1, size);
    if (!call) {
        pp_error_nomem(err);
        return NULL;
    }
    call->job.done = ended ? ended : call_done;
    call->user = user;
    return call;
}

static int measure(pp_job *job, pp_error *err)
{
    job->bytes = sizeof(pp_call);
    for (int i = 0; i < job->n; i++) {
        if (job->statements[i]->failed)
            return pp_error_set(err, PP_ERR_TOO_LARGE,
                                "a value is too large for the store, or memory is short");
        job->bytes += sizeof(pp_statement) + job->statements[i]->bytes;
    }
    return job->failed ? pp_error_nomem(err) : 0;
}

int pp_call_submit(pp_store *s, pp_lane lane, void *call, pp_error *err)
{
    pp_job *job = call;
    int rc = measure(job, err);
    if (rc == 0 && s->closing)
        rc = pp_error_set(err, PP_ERR_UNAVAILABLE, "the store is closed");
    /* One call always goes, however large; then the bound counts. */
    if (rc == 0 && s->counters.queued > 0 &&
        s->counters.queued_bytes + job->bytes > s->options.max_queued_bytes)
        rc = pp_error_set(err, PP_ERR_UNAVAILABLE, "too much waits for Postgres (%s)", s->text);
    if (rc < 0) {
        pp_job_free(job);
        return -1;
    }
    s->counters.queued++;
    s->counters.queued_bytes += job->bytes;
    pp_connection_submit(s->lanes[lane], job);
    return 0;
}

int pp_store_need(const char *text, const char *what, pp_error *err)
{
    return text && *text ? 0 : pp_error_field(err, what, "must be given");
}
