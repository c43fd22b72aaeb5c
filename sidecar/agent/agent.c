#include "sidecar/agent/agent.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"
#include "common/time.h"
#include "common/volume.h"
#include "common/wire.h"
#include "sidecar/agent/events.h"
#include "sidecar/agent/events_server.h"
#include "sidecar/agent/link.h"
#include "sidecar/agent/outbox.h"
#include "sidecar/agent/presence.h"
#include "sidecar/agent/retry.h"
#include "sidecar/agent/settings.h"
#include "sidecar/agent/spool.h"
#include "sidecar/agent/trainers.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

enum {
    TICK_MS = 50,
    SCAN_TICKS = 4,   /* the directory is looked at every fourth tick */
    HOOK_TICKS = 20,  /* and what it tells of the hook once a second */
    LEAVE_MS = 20000, /* for acknowledgements, at the end */
    CLOCK_MS = 15000, /* before last words are left: a clock may be set right after the start */
};

typedef struct agent {
    const pp_agent_options *options;
    uv_loop_t loop;
    uv_timer_t tick;
    uv_timer_t retry;
    uv_signal_t signals[2];
    pp_settings settings;
    pp_settings next;  /* of the session that is to follow; its session is NULL where none is */
    json_t *next_text; /* the same, as it came */
    bool next_sampling;
    int64_t paused_at; /* since when sampling is not wanted, monotonic ns */
    pp_agent_pod pod;
    pp_trainers *trainers;
    pp_events *events; /* of foreign hooks; NULL: none are taken */
    pp_events_server *events_server;
    pp_idle_exit idle_exit; /* where exit_with_trainer is set */
    unsigned ticks;
    const char *mode; /* in the control file */
    bool unwritten;   /* the control file could not be written, which was said */
    pp_outbox *outbox;
    pp_spool *spool; /* NULL when dumping */
    bool unspooled;  /* the spool could not be used, which was said */
    pp_link *link;   /* NULL when dumping */
    pp_retry attempts;
    char instance[40];
    int64_t seq;     /* of the next batch */
    int64_t first;   /* the instance's first: those before it are of agents before this one */
    int64_t dropped; /* events of batches that were given up */
    bool leaving;
    bool bye_sent;
    bool stopped;
    const char *reason;
    int64_t leave_by;    /* ns, monotonic */
    int64_t clock_since; /* since when the operator's certificate is not valid by this clock */
    bool said;           /* the container's last words are written: the agent ends */
    char *bye;           /* text to send last; owned */
    bool welcomed;       /* on this connection: batches go only where somebody takes them */
    int64_t asked;       /* the operator's latest question what time it is here; 0: none is open */
    char *time;          /* text of the answer; owned */
    bool foreign;        /* a foreign hook has posted events */
    bool asked_hook;     /* on this connection the operator wants to be told of the hook */
    pp_presence presence;
    bool hook_known; /* and has been told, or is about to be, of: */
    bool hook_due;   /* it is yet to go out */
    pp_wire_hook hook;
    char *hook_text; /* owned */
} agent;

static int make_instance(char *out, size_t size, pp_error *err)
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return pp_error_errno(err, "random numbers");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(out, size,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
    return 0;
}

static void leave(agent *a, const char *reason);

/* ---- batches ---- */

static void log_sent(const agent *a, const char *instance, int64_t seq, int64_t events,
                     size_t bytes)
{
    pp_info(a->settings.name, "batch sent instance=%s seq=%" PRId64 " events=%" PRId64 " bytes=%zu",
            instance, seq, events, bytes);
}

static void log_session(const agent *a)
{
    const pp_settings *s = &a->settings;
    if (s->session)
        pp_info(s->name, "session %s/%s uid=%s instance=%s", s->namespace_, s->name, s->session,
                a->instance);
    else
        pp_info(NULL, "no session yet, instance=%s", a->instance);
}

static void dump(agent *a, int64_t events, const pp_buf *text)
{
    (void)fwrite(text->data, 1, text->len, stdout);
    (void)fputc('\n', stdout);
    (void)fflush(stdout);
    log_sent(a, a->instance, a->seq, events, text->len);
}

static void on_gone(void *user, int64_t seq)
{
    agent *a = user;
    if (a->spool)
        pp_spool_remove(a->spool, seq);
}

static void on_found(void *user, const pp_spool_batch *batch, size_t size)
{
    agent *a = user;
    pp_error err = {0};
    if (pp_reader_resume(a->options->ring_directory, &batch->place, &err) < 0)
        pp_debug(batch->place.ring, "not gone on with: %s", err.message); /* its process is gone */
    if (pp_outbox_add(a->outbox, batch->seq, batch->events, NULL, size, &err) < 0)
        pp_err(a->settings.name, "a batch is given up: %s", err.message);
    a->seq = a->first = batch->seq + 1;
}

static void say_unspooled(agent *a, const pp_error *err)
{
    if (!a->unspooled)
        pp_warn(a->settings.name, "batches are kept in memory only: %s", err->message);
    a->unspooled = true;
}

/* On the disk, so that it outlives the agent; in memory where that cannot be. */
static int keep(agent *a, int64_t events, pp_buf *text, const pp_place *place, pp_error *err)
{
    size_t size = text->len;
    pp_spool_batch batch = {.seq = a->seq,
                            .events = events,
                            .instance = a->instance,
                            .place = *place,
                            .text = text->data,
                            .length = text->len};
    if (pp_spool_put(a->spool, &batch, &size, err) == 0) {
        a->unspooled = false;
        return pp_outbox_add(a->outbox, a->seq, events, NULL, size, err);
    }
    say_unspooled(a, err);
    return pp_outbox_add(a->outbox, a->seq, events, pp_buf_take(text), size, err);
}

static void emit(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    agent *a = user;
    pp_error err = {0};
    pp_buf text;
    if (!a->settings.session)
        return; /* nobody has asked for it */
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    batch->session = strdup(a->settings.session);
    batch->instance = strdup(a->instance);
    batch->seq = a->seq;
    a->dropped += pp_outbox_take_dropped(a->outbox);
    batch->dropped += a->dropped;
    if (!batch->session || !batch->instance || pp_wire_batch_encode(batch, &text, &err) < 0) {
        pp_err(a->settings.name, "a batch of %" PRId64 " events is given up: %s %s", events,
               err.field, err.message);
        a->dropped += events;
        pp_buf_done(&text);
        return;
    }
    a->dropped = 0;
    if (a->options->dump)
        dump(a, events, &text);
    else if (keep(a, events, &text, place, &err) < 0)
        pp_err(a->settings.name, "a batch is given up: %s", err.message);
    a->seq++;
    pp_buf_done(&text);
    if (a->link)
        pp_link_wake(a->link);
}

/* ---- foreign hooks ---- */

static void on_post(void *user, const char *text, size_t n, pp_events_answer *ret)
{
    agent *a = user;
    *ret = (pp_events_answer){.status = 503};
    if (a->leaving) {
        (void)pp_error_set(&ret->error, PP_ERR_UNAVAILABLE, "the agent is ending");
        return;
    }
    pp_events_post(a->events, text, n, &a->pod, pp_time_monotonic(), pp_time_now(), ret);
    a->foreign = a->foreign || ret->accepted > 0;
    a->idle_exit.trained = a->idle_exit.trained || ret->accepted > 0;
}

/* Nothing else of the agent depends on it: a port that is taken is told, no more. */
static void serve_events(agent *a)
{
    pp_error err = {0};
    char host[256] = "";
    const int port = (int)a->settings.events_port;
    if (port == 0)
        return;
    (void)gethostname(host, sizeof host - 1);
    a->events = pp_events_new(host);
    if (!a->events)
        (void)pp_error_nomem(&err);
    else if (pp_events_session(a->events, a->settings.namespace_, a->settings.name, &err) == 0 &&
             pp_events_server_new(&a->loop, port, on_post, a, &a->events_server, &err) == 0)
        pp_info(a->settings.name, "events are taken on port %d", port);
    if (err.code != PP_OK)
        pp_warn(a->settings.name, "no events are taken: %s", err.message);
}

/* ---- the operator ---- */

static void on_opened(void *user)
{
    agent *a = user;
    pp_outbox_rewind(a->outbox);
    a->welcomed = false;
    a->asked = 0;
    a->asked_hook = a->hook_known = a->hook_due = false;
    pp_info(a->settings.name, "connected, %zu batches to send", pp_outbox_count(a->outbox));
}

static void write_control(agent *a)
{
    pp_error err = {0};
    const pp_schedule_policy *policy = &a->pod.policy;
    bool over = policy->duration > 0 && a->pod.first > 0 &&
                pp_time_monotonic() - a->pod.first >= policy->duration;
    bool idle = !a->pod.allowed || a->leaving || over;
    const char *mode = idle ? "idle" : policy->skip > 0 ? "count" : "sample";
    if (a->mode == mode)
        return;
    bool failed = pp_settings_control(&a->settings, a->options->ring_directory, mode, &err) < 0;
    if (failed && !a->unwritten)
        pp_err(a->settings.name, "%s", err.message);
    else if (!failed)
        a->mode = mode;
    a->unwritten = failed;
}

static void allow(agent *a, bool sampling)
{
    int64_t now = pp_time_monotonic();
    if (a->pod.allowed != sampling)
        pp_info(a->settings.name, "sampling is %s", sampling ? "wanted" : "not wanted");
    if (a->pod.allowed && !sampling)
        a->paused_at = now;
    else if (!a->pod.allowed && sampling && a->pod.first > 0)
        a->pod.first += now - a->paused_at; /* a pause does not count for the duration */
    a->pod.allowed = sampling;
    write_control(a);
}

static void forget_next(agent *a)
{
    pp_settings_free(&a->next);
    json_decref(a->next_text);
    a->next_text = NULL;
}

/* Another session is to follow: the one before ends here. */
static void expect(agent *a, const pp_wire_welcome *welcome)
{
    pp_error err = {0};
    allow(a, false);
    if (pp_settings_decode(welcome->settings, &a->next, &err) == 0 && a->next.session &&
        strcmp(a->next.session, welcome->session) == 0) {
        a->next_sampling = welcome->sampling;
        a->next_text = json_incref(welcome->settings);
        return;
    }
    forget_next(a);
    pp_err(a->settings.name, "settings of session %s cannot be used: %s %s", welcome->session,
           err.field, err.message);
}

/* Begins the session that is to follow, once all of the one before is acknowledged. */
static void follow(agent *a)
{
    pp_error err = {0};
    if (!a->next.session)
        return;
    pp_trainers_cut(a->trainers, &a->pod);
    if (a->events)
        pp_events_finish(a->events, &a->pod, pp_time_monotonic());
    if (pp_outbox_count(a->outbox) > 0)
        return;
    a->mode = NULL;
    if (pp_settings_control(&a->next, a->options->ring_directory, "idle", &err) < 0) {
        if (!a->unwritten)
            pp_err(a->next.name, "%s", err.message);
        a->unwritten = true;
        return;
    }
    if (a->spool && pp_settings_keep(a->next_text, a->options->spool_directory, &err) < 0)
        say_unspooled(a, &err);
    pp_settings_free(&a->settings);
    a->settings = a->next;
    a->next = (pp_settings){0};
    forget_next(a);
    a->pod.policy = pp_settings_policy(&a->settings);
    a->pod.session = pp_settings_number(&a->settings);
    a->pod.timeline = a->settings.timeline;
    a->pod.sampling_period = a->settings.sampling_period;
    a->pod.first = 0;
    a->pod.over = false;
    if (a->events &&
        pp_events_session(a->events, a->settings.namespace_, a->settings.name, &err) < 0)
        pp_err(a->settings.name, "%s", err.message);
    log_session(a);
    allow(a, a->next_sampling);
}

/* What is told of the hook, where it is not what was told last. */
static void look_at_hook(agent *a)
{
    pp_wire_hook now = {.torch = a->foreign || pp_trainers_seen(a->trainers)};
    if (!a->asked_hook)
        return;
    pp_presence_look(&a->presence, a->options->ring_directory, pp_time_monotonic(), &now);
    if (a->pod.first == 0) /* a pod of which something is profiled has helpers that are not */
        (void)snprintf(now.refusal, sizeof now.refusal, "%s", pp_trainers_refusal(a->trainers));
    if (a->hook_known && now.loaded == a->hook.loaded && now.torch == a->hook.torch &&
        strcmp(now.libc, a->hook.libc) == 0 && strcmp(now.refusal, a->hook.refusal) == 0)
        return;
    a->hook = now;
    a->hook_known = a->hook_due = true;
    pp_link_wake(a->link);
}

static void on_welcome(agent *a, const json_t *message)
{
    pp_error err = {0};
    pp_wire_welcome welcome;
    if (pp_wire_welcome_decode(message, &welcome, &err) < 0) {
        pp_warn(a->settings.name, "the operator's welcome is wrong: %s %s", err.field, err.message);
        return;
    }
    pp_retry_reset(&a->attempts);
    a->welcomed = true;
    a->asked = welcome.time;
    a->asked_hook = a->asked_hook || welcome.hook;
    look_at_hook(a);
    bool same = a->settings.session && strcmp(welcome.session, a->settings.session) == 0;
    if (!same && *welcome.session && !welcome.settings)
        return; /* of a session that this agent does not carry */
    forget_next(a);
    a->pod.over = !same;
    if (same || !welcome.settings)
        allow(a, welcome.sampling && same);
    else
        expect(a, &welcome);
}

static void on_ack(agent *a, const json_t *message)
{
    pp_error err = {0};
    pp_wire_ack ack;
    if (pp_wire_ack_decode(message, &ack, &err) < 0)
        pp_warn(a->settings.name, "the operator's ack is wrong: %s %s", err.field, err.message);
    else if (ack.seq < a->first || strcmp(ack.instance, a->instance) == 0)
        (void)pp_outbox_remove(a->outbox, ack.seq);
}

static void on_refused(agent *a, const json_t *message)
{
    pp_error err = {0};
    pp_wire_refused refused;
    if (pp_wire_refused_decode(message, &refused, &err) < 0) {
        pp_warn(a->settings.name, "the operator's refusal is wrong: %s", err.message);
        return;
    }
    pp_err(a->settings.name, "batch refused seq=%" PRId64 " code=%s field=%s: %s", refused.seq,
           refused.code, refused.field, refused.message);
    if (refused.seq >= 0)
        (void)pp_outbox_remove(a->outbox, refused.seq);
}

static void on_leave(agent *a, const json_t *message)
{
    pp_error err = {0};
    pp_wire_leave wish;
    if (pp_wire_leave_decode(message, &wish, &err) < 0)
        pp_warn(a->settings.name, "the operator's wish is wrong: %s %s", err.field, err.message);
    else if (a->options->exit_with_trainer)
        leave(a, "trainer finished");
}

static void on_time(agent *a, const json_t *message)
{
    pp_error err = {0};
    pp_wire_time question;
    if (pp_wire_time_decode(message, &question, &err) < 0)
        pp_warn(a->settings.name, "the operator's question is wrong: %s %s", err.field,
                err.message);
    else
        a->asked = question.id;
}

static void on_message(void *user, const char *text, size_t n)
{
    agent *a = user;
    pp_error err = {0};
    pp_wire_type type;
    PP_CLEANUP_JSON json_t *message = pp_json_parse(text, n, &err);
    if (!message || pp_wire_type_of(message, &type, &err) < 0) {
        pp_warn(a->settings.name, "the operator's message is wrong: %s", err.message);
        return;
    }
    if (type == PP_WIRE_WELCOME)
        on_welcome(a, message);
    else if (type == PP_WIRE_ACK)
        on_ack(a, message);
    else if (type == PP_WIRE_REFUSED)
        on_refused(a, message);
    else if (type == PP_WIRE_LEAVE)
        on_leave(a, message);
    else if (type == PP_WIRE_TIME)
        on_time(a, message);
    pp_link_wake(a->link);
}

/* What time it is here, right before it goes out: what waits in between is the operator's doubt. */
static bool next_time(agent *a, const char **ret_text, size_t *ret_n)
{
    pp_error err = {0};
    pp_buf text;
    if (!a->asked)
        return false;
    const pp_wire_time answer = {
        .id = a->asked, .realtime = pp_time_now(), .monotonic = pp_time_monotonic()};
    a->asked = 0;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    if (pp_wire_time_encode(&answer, &text, &err) < 0)
        return false;
    free(a->time);
    *ret_n = text.len;
    *ret_text = a->time = pp_buf_take(&text);
    return true;
}

static bool next_hook(agent *a, const char **ret_text, size_t *ret_n)
{
    pp_error err = {0};
    pp_buf text;
    if (!a->hook_due)
        return false;
    a->hook_due = false;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    if (pp_wire_hook_encode(&a->hook, &text, &err) < 0)
        return false;
    free(a->hook_text);
    *ret_n = text.len;
    *ret_text = a->hook_text = pp_buf_take(&text);
    return true;
}

/* After the last acknowledgement, on the agent's way out. */
static bool next_bye(agent *a, const char **ret_text, size_t *ret_n)
{
    pp_error err = {0};
    if (!a->leaving || a->bye_sent || pp_outbox_count(a->outbox) > 0)
        return false;
    if (!a->settings.session) {
        a->bye_sent = true; /* there was none to take leave of */
        return false;
    }
    pp_wire_bye bye = {0};
    pp_buf text;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    (void)snprintf(bye.session, sizeof bye.session, "%s", a->settings.session);
    (void)snprintf(bye.instance, sizeof bye.instance, "%s", a->instance);
    (void)snprintf(bye.reason, sizeof bye.reason, "%s", a->reason);
    a->bye_sent = true;
    if (pp_wire_bye_encode(&bye, &text, &err) < 0)
        return false;
    *ret_n = text.len;
    a->bye = pp_buf_take(&text);
    *ret_text = a->bye;
    return true;
}

/* The next batch to send, from memory or from the spool; one that cannot be read is given up. */
static bool next_batch(agent *a, pp_outbox_item *item, pp_spool_batch *ret)
{
    while (pp_outbox_next(a->outbox, item)) {
        pp_error err = {0};
        *ret =
            (pp_spool_batch){.text = item->text, .length = item->length, .instance = a->instance};
        if (item->text || (pp_spool_get(a->spool, item->seq, ret, &err) == 0 &&
                           (item->seq >= a->first || pp_spool_check(ret, &err) == 0)))
            return true;
        pp_err(a->settings.name, "batch %" PRId64 " is given up: %s %s", item->seq, err.field,
               err.message);
        a->dropped += item->events;
        (void)pp_outbox_remove(a->outbox, item->seq);
    }
    return false;
}

static bool on_next(void *user, const char **ret_text, size_t *ret_n)
{
    agent *a = user;
    pp_outbox_item item;
    pp_spool_batch batch;
    if (next_time(a, ret_text, ret_n) || next_hook(a, ret_text, ret_n))
        return true;
    if (!a->welcomed)
        return false;
    if (!next_batch(a, &item, &batch))
        return next_bye(a, ret_text, ret_n);
    if (item.first)
        log_sent(a, batch.instance, item.seq, item.events, batch.length);
    *ret_text = batch.text;
    *ret_n = batch.length;
    return true;
}

static void on_retry(uv_timer_t *timer)
{
    agent *a = timer->data;
    pp_link_connect(a->link);
}

/* Once in the pod's life: one that was told does not end again. Where there is no spool to tell by,
 * or nobody starts the container anew, nothing is said. */
static bool claim_last_words(const agent *a)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/%s", a->options->spool_directory, PP_SPOOL_SAID);
    if (n < 0 || (size_t)n >= sizeof path || a->options->exit_with_trainer)
        return false;
    PP_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd >= 0;
}

static void leave_last_words(agent *a, int64_t ahead)
{
    char text[PP_WIRE_CLOCK_SAID];
    const char *path = a->options->last_words;
    PP_CLEANUP_FD int fd = path ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) : -1;
    if (fd < 0 || !claim_last_words(a))
        return;
    pp_wire_clock_said(ahead, text, sizeof text);
    a->said = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* The operator cannot be told of a clock by which its certificate is not valid: it looks at what
 * the kubelet keeps of a container that has ended. */
static void heed_clock(agent *a)
{
    const int64_t ahead = pp_link_clock_ahead(a->link), now = pp_time_monotonic();
    char text[PP_WIRE_CLOCK_SAID];
    if (!ahead) {
        a->clock_since = 0;
        return;
    }
    if (!a->clock_since) {
        a->clock_since = now;
        pp_wire_clock_said(ahead, text, sizeof text);
        pp_err(a->settings.name, "%s", text);
    }
    if (now - a->clock_since >= (int64_t)CLOCK_MS * 1000000 && !a->said)
        leave_last_words(a, ahead);
}

static void on_closed(void *user, int status, int retry_after, const char *why)
{
    agent *a = user;
    if (a->stopped)
        return;
    if (status == 403) {
        a->next_sampling = false;
        allow(a, false); /* until a welcome says otherwise */
    }
    heed_clock(a);
    int64_t wait = pp_retry_next(&a->attempts, retry_after);
    pp_info(a->settings.name, "not connected (%s, status %d), next attempt in %" PRId64 " ms", why,
            status, wait);
    uv_timer_start(&a->retry, on_retry, (uint64_t)wait, 0);
}

static const pp_link_events link_events = {on_opened, on_message, on_next, on_closed};

/* ---- leaving ---- */

static void stop(agent *a)
{
    if (a->stopped)
        return;
    a->stopped = true;
    uv_close((uv_handle_t *)&a->tick, NULL);
    uv_close((uv_handle_t *)&a->retry, NULL);
    for (size_t i = 0; i < sizeof a->signals / sizeof *a->signals; i++)
        uv_close((uv_handle_t *)&a->signals[i], NULL);
    if (a->link)
        pp_link_stop(a->link);
    pp_events_server_stop(a->events_server);
}

/* Everything that is there is emitted; then only acknowledgements are waited for. */
static void leave(agent *a, const char *reason)
{
    if (a->leaving)
        return;
    a->leaving = a->pod.leaving = true;
    a->reason = reason;
    a->leave_by = pp_time_monotonic() + (int64_t)LEAVE_MS * 1000000;
    write_control(a);
    pp_trainers_finish(a->trainers, &a->pod, pp_time_monotonic(), pp_time_offset());
    if (a->events)
        pp_events_finish(a->events, &a->pod, pp_time_monotonic());
    pp_info(a->settings.name, "leaving (%s), %zu batches to be acknowledged", reason,
            pp_outbox_count(a->outbox));
    if (a->link)
        pp_link_wake(a->link);
}

static void check_leave(agent *a)
{
    size_t left = pp_outbox_count(a->outbox);
    bool done = left == 0 && (!a->link || a->bye_sent || !pp_link_is_open(a->link));
    if (!done && pp_time_monotonic() < a->leave_by) {
        if (a->link)
            pp_link_wake(a->link);
        return;
    }
    if (left)
        pp_err(a->settings.name, "%zu batches were never acknowledged", left);
    stop(a);
}

static void on_signal(uv_signal_t *handle, int number)
{
    agent *a = handle->data;
    leave(a, number == SIGTERM ? "trainer finished" : "interrupted");
}

static void on_tick(uv_timer_t *timer)
{
    agent *a = timer->data;
    if (a->said && !a->leaving) {
        pp_info(a->settings.name, "ending once, so that the reason is seen; what is here stays");
        stop(a);
        return;
    }
    if (a->leaving) {
        check_leave(a);
        return;
    }
    if (a->ticks++ % SCAN_TICKS == 0)
        pp_trainers_scan(a->trainers);
    const int64_t now = pp_time_monotonic();
    pp_trainers_poll(a->trainers, &a->pod, now, pp_time_offset());
    if (a->ticks % HOOK_TICKS == 0)
        look_at_hook(a);
    if (a->events)
        pp_events_poll(a->events, &a->pod, pp_time_monotonic());
    follow(a);
    a->idle_exit.trained = a->idle_exit.trained || pp_trainers_trained(a->trainers);
    write_control(a);
    bool connected = a->link && pp_link_is_open(a->link);
    size_t trainers =
        pp_trainers_count(a->trainers) + (a->events ? pp_events_active(a->events) : 0);
    if (a->options->exit_with_trainer &&
        pp_idle_exit_is_due(&a->idle_exit, pp_time_monotonic(), trainers, connected))
        leave(a, a->idle_exit.trained ? "trainer finished" : "no trainer came");
}

/* ---- start ---- */

static int start_handles(agent *a, pp_error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    enum { N = sizeof numbers / sizeof *numbers };
    size_t made = 0;
    a->tick.data = a->retry.data = a;
    (void)uv_timer_init(&a->loop, &a->tick);
    (void)uv_timer_init(&a->loop, &a->retry);
    bool ok = true;
    while (made < N && ok && uv_signal_init(&a->loop, &a->signals[made]) == 0) {
        a->signals[made].data = a;
        ok = uv_signal_start(&a->signals[made], on_signal, numbers[made]) == 0;
        made++;
    }
    if (ok && made == N && uv_timer_start(&a->tick, on_tick, 0, TICK_MS) == 0)
        return 0;
    while (made > 0)
        uv_close((uv_handle_t *)&a->signals[--made], NULL);
    return pp_error_set(err, PP_ERR_INTERNAL, "libuv handles could not be made");
}

/* What the pod was injected with; in its place the session that an agent before this one had last,
 * but for how to reach whom. */
static int read_settings(agent *a, pp_error *err)
{
    const pp_agent_options *o = a->options;
    pp_settings kept = {0};
    pp_error none;
    if (pp_settings_read(o->settings_path, &a->settings, err) < 0)
        return -1;
    if (!o->dump && pp_settings_read_kept(o->spool_directory, &kept, &none) == 0) {
        pp_settings injected = a->settings;
        a->settings = kept;
        a->settings.endpoint = injected.endpoint;
        a->settings.addresses = injected.addresses;
        a->settings.events_port = injected.events_port;
        injected.endpoint = kept.endpoint;
        injected.addresses = kept.addresses;
        kept = injected;
    }
    pp_settings_free(&kept);
    return 0;
}

static int start(agent *a, pp_error *err)
{
    const pp_agent_options *o = a->options;
    if (read_settings(a, err) < 0 || make_instance(a->instance, sizeof a->instance, err) < 0)
        return -1;
    pp_retry_init(&a->attempts, 0);
    a->idle_exit.quiet_since = pp_time_monotonic();
    _Static_assert(2 * PP_OUTBOX_SPOOLED <= PP_VOLUME_SPOOL << 20, "no pod is evicted for batches");
    a->outbox = pp_outbox_new(PP_OUTBOX_BYTES, PP_OUTBOX_SPOOLED, on_gone, a);
    a->trainers = pp_trainers_new(o->ring_directory);
    a->spool = o->dump ? NULL : pp_spool_new(o->spool_directory);
    if (!a->outbox || !a->trainers || (!o->dump && !a->spool))
        return pp_error_nomem(err);
    pp_error why = {0};
    if (a->spool && pp_spool_load(a->spool, on_found, a, &why) < 0)
        say_unspooled(a, &why);
    /* Samples at once: the operator may be away, and says so when it is not wanted. */
    a->pod = (pp_agent_pod){.policy = pp_settings_policy(&a->settings),
                            .timeline = a->settings.timeline,
                            .sampling_period = a->settings.sampling_period,
                            .allowed = a->settings.session != NULL,
                            .session = pp_settings_number(&a->settings),
                            .emit = emit,
                            .user = a};
    if (start_handles(a, err) < 0)
        return -1;
    write_control(a); /* trainers may come from here on, and a SIGTERM after them */
    if (!o->dump) {
        pp_link_config config = {.loop = &a->loop,
                                 .endpoint = a->settings.endpoint,
                                 .addresses = &a->settings.addresses,
                                 .token_path = o->token_path,
                                 .ca_path = o->ca_path,
                                 .events = &link_events,
                                 .user = a};
        if (pp_link_new(&config, &a->link, err) < 0) {
            stop(a);
            return -1;
        }
    }
    serve_events(a);
    log_session(a);
    if (a->link)
        pp_link_connect(a->link);
    return 0;
}

static void release(agent *a)
{
    pp_trainers_free(a->trainers);
    pp_events_server_free(a->events_server);
    pp_events_free(a->events);
    pp_link_free(a->link);
    pp_outbox_free(a->outbox);
    pp_spool_free(a->spool);
    pp_settings_free(&a->settings);
    forget_next(a);
    free(a->bye);
    free(a->time);
    free(a->hook_text);
}

int pp_agent_run(const pp_agent_options *options, pp_error *err)
{
    PP_CLEANUP_FREE agent *a = calloc(1, sizeof *a);
    if (!a)
        return pp_error_nomem(err);
    a->options = options;
    if (uv_loop_init(&a->loop) != 0)
        return pp_error_set(err, PP_ERR_INTERNAL, "no libuv loop");
    int rc = start(a, err);
    if (rc == 0)
        (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    release(a);
    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&a->loop);
    return rc;
}
