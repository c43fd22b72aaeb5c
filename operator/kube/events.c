#include "operator/kube/events.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/text.h"
#include "common/time.h"
#include "operator/kube/kube_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum {
    MAX_NOTE = 1024,
    MAX_SERIES = 4096,    /* events to be written, or remembered for their repeats */
    MAX_OBJECTS = 1024,   /* objects whose allowance is remembered */
    MAX_UNDER_WAY = 32,   /* calls at once */
    MAX_TRIES = 5,        /* for one write while the server is away */
    FLUSH_MS = 10 * 1000, /* repeats are written at most so often */
    BURST = 25,
    CALL_TIMEOUT_MS = 10 * 1000,
};
static const int64_t REFILL_NS = INT64_C(300) * 1000000000;
/* As in client-go: a repeat later than this is an event of its own. */
static const int64_t SERIES_NS = INT64_C(360) * 1000000000;

/** How many new events an object may still have; the table is kept in order of last use. */
typedef struct allowance {
    double tokens;
    int64_t at_ns;
    UT_hash_handle hh;
    char key[];
} allowance;

/** One event and its repeats. */
typedef struct series {
    pp_kube_recorder *recorder;
    json_t *object; /**< as to be created */
    char *ns, *name;
    int64_t count;
    int64_t last_ns;   /**< monotonic */
    int64_t last_wall; /**< ns since 1970 */
    bool created;      /**< on the server */
    bool dirty;        /**< something is to be written */
    bool in_line;      /**< for a place among those under way */
    int tries;
    pp_kube_id call;
    struct series *prev, *next; /**< in line */
    UT_hash_handle hh;
    char key[];
} series;

struct pp_kube_recorder {
    pp_kube_client *client;
    char *controller, *instance;
    allowance *allowances;
    series *series; /**< the oldest first */
    struct series *line;
    unsigned under_way;
    uint64_t serial;
    uv_timer_t timer;
    pp_kube_recorder_stats stats;
    bool closing;
};

/* ---- allowances ---- */

static allowance *allowance_of(pp_kube_recorder *r, const char *key, int64_t now)
{
    allowance *a = NULL;
    HASH_FIND_STR(r->allowances, key, a);
    if (a) {
        HASH_DEL(r->allowances, a);
    } else {
        if (HASH_COUNT(r->allowances) >= MAX_OBJECTS) {
            allowance *oldest = r->allowances;
            HASH_DEL(r->allowances, oldest);
            free(oldest);
        }
        size_t n = strlen(key);
        a = calloc(1, sizeof *a + n + 1);
        if (!a)
            return NULL;
        memcpy(a->key, key, n + 1);
        a->tokens = BURST;
        a->at_ns = now;
    }
    HASH_ADD_STR(r->allowances, key, a); /* at the end: the most recently used */
    return a;
}

static bool allowed(pp_kube_recorder *r, const pp_kube_object_ref *ref, int64_t now)
{
    PP_CLEANUP_FREE char *key = kube_format("%s/%s/%s/%s", ref->kind, ref->ns ? ref->ns : "",
                                            ref->name, ref->uid ? ref->uid : "");
    allowance *a = key ? allowance_of(r, key, now) : NULL;
    if (!a)
        return false;
    a->tokens += (double)(now - a->at_ns) / (double)REFILL_NS;
    a->at_ns = now;
    if (a->tokens > BURST)
        a->tokens = BURST;
    if (a->tokens < 1)
        return false;
    a->tokens -= 1;
    return true;
}

/* ---- series ---- */

static void series_free(series *s)
{
    json_decref(s->object);
    free(s->ns);
    free(s->name);
    free(s);
}

static void leave_line(series *s)
{
    if (s->in_line)
        DL_DELETE(s->recorder->line, s);
    s->in_line = false;
}

static void series_remove(series *s)
{
    pp_kube_recorder *r = s->recorder;
    HASH_DEL(r->series, s);
    leave_line(s);
    if (s->call) {
        pp_kube_call_cancel(r->client, s->call);
        r->under_way--;
    }
    series_free(s);
}

static void write_series(series *s);

static void take_answer(series *s, const pp_error *error)
{
    pp_kube_recorder *r = s->recorder;
    if (!error || (error->code == PP_ERR_CONFLICT && !s->created)) {
        r->stats.sent++; /* a conflict: an earlier try arrived after all */
        s->created = true;
        s->tries = 0;
        return;
    }
    if (error->code == PP_ERR_NOT_FOUND && s->created) {
        s->created = false; /* it expired on the server: create it again with its count */
        s->dirty = true;
    } else if (pp_error_retryable(error) && ++s->tries < MAX_TRIES) {
        s->dirty = true;
    } else {
        r->stats.dropped++;
        if (!s->created)
            series_remove(s);
    }
}

static void on_series_written(void *user, json_t *object, const pp_error *error)
{
    series *s = user;
    pp_kube_recorder *r = s->recorder;
    (void)object;
    s->call = 0;
    r->under_way--;
    take_answer(s, error);
    while (r->line && r->under_way < MAX_UNDER_WAY) {
        series *first = r->line;
        leave_line(first);
        write_series(first);
    }
}

static json_t *series_json(const series *s)
{
    char at[40];
    pp_time_format(s->last_wall, 6, at, sizeof at);
    return json_pack("{s:I, s:s}", "count", (json_int_t)s->count, "lastObservedTime", at);
}

/** What to send: the object itself, or a merge patch with the series alone. */
static json_t *series_body(const series *s)
{
    json_t *body = s->created ? json_object() : json_deep_copy(s->object);
    if (body && s->count > 1 && json_object_set_new(body, "series", series_json(s)) < 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}

static void write_series(series *s)
{
    pp_kube_recorder *r = s->recorder;
    if (s->call || s->in_line || !s->dirty)
        return;
    if (r->under_way >= MAX_UNDER_WAY) {
        DL_APPEND(r->line, s);
        s->in_line = true;
        return;
    }
    PP_CLEANUP_JSON json_t *body = series_body(s);
    pp_kube_call call = {.verb = s->created ? PP_KUBE_PATCH_MERGE : PP_KUBE_CREATE,
                         .resource = &PP_KUBE_EVENTS,
                         .ns = s->ns,
                         .name = s->created ? s->name : NULL,
                         .body = body,
                         .timeout_ms = CALL_TIMEOUT_MS,
                         .done = on_series_written,
                         .user = s};
    if (!body || pp_kube_call_start(r->client, &call, &s->call, NULL) < 0)
        return; /* the next flush comes back to it */
    s->dirty = false;
    r->under_way++;
}

static void on_flush(uv_timer_t *timer)
{
    pp_kube_recorder *r = timer->data;
    int64_t now = pp_time_monotonic();
    series *s, *tmp;
    HASH_ITER(hh, r->series, s, tmp)
    {
        if (s->dirty)
            write_series(s);
        else if (!s->call && now - s->last_ns > SERIES_NS)
            series_remove(s);
    }
    if (r->series)
        uv_timer_start(&r->timer, on_flush, FLUSH_MS, 0);
}

/* ---- recording ---- */

static json_t *regarding(const pp_kube_object_ref *ref)
{
    json_t *object = json_pack("{s:s, s:s, s:s}", "apiVersion", ref->api_version, "kind", ref->kind,
                               "name", ref->name);
    if (object && ref->ns)
        json_object_set_new(object, "namespace", json_string(ref->ns));
    if (object && ref->uid)
        json_object_set_new(object, "uid", json_string(ref->uid));
    return object;
}

static json_t *event_object(const pp_kube_recorder *r, const series *s,
                            const pp_kube_object_ref *ref, const char *type, const char *reason,
                            const char *action, const char *note)
{
    char at[40];
    pp_time_format(s->last_wall, 6, at, sizeof at);
    return json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o}",
                     "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", s->name,
                     "namespace", s->ns, "eventTime", at, "reportingController", r->controller,
                     "reportingInstance", r->instance, "type", type, "reason", reason, "action",
                     action, "note", pp_json_text(note), "regarding", regarding(ref));
}

static series *series_new(pp_kube_recorder *r, const char *key, const pp_kube_object_ref *ref,
                          int64_t now)
{
    size_t n = strlen(key);
    series *s = calloc(1, sizeof *s + n + 1);
    if (!s)
        return NULL;
    memcpy(s->key, key, n + 1);
    s->recorder = r;
    s->count = 1;
    s->last_ns = now;
    s->last_wall = pp_time_now();
    s->dirty = true;
    s->ns = strdup(ref->ns ? ref->ns : "default");
    s->name = kube_format("%.220s.%" PRIx64 "%02x", ref->name, (uint64_t)s->last_wall,
                          (unsigned)(++r->serial & 0xff));
    return s;
}

static void repeat(series *s, int64_t now)
{
    s->count++;
    s->last_ns = now;
    s->last_wall = pp_time_now();
    s->dirty = true; /* written by the next flush */
}

/** Room for one more, in the place of the oldest that is written where there is none: its repeat
 * would be an event of its own. */
static bool make_room(pp_kube_recorder *r)
{
    if (HASH_COUNT(r->series) < MAX_SERIES)
        return true;
    for (series *s = r->series; s; s = s->hh.next) {
        if (s->created && !s->dirty && !s->call) {
            series_remove(s);
            return true;
        }
    }
    return false;
}

static void record(pp_kube_recorder *r, const char *key, const pp_kube_object_ref *ref,
                   const char *type, const char *reason, const char *action, const char *note)
{
    int64_t now = pp_time_monotonic();
    series *s = NULL;
    HASH_FIND_STR(r->series, key, s);
    if (s && now - s->last_ns <= SERIES_NS) {
        repeat(s, now);
        return;
    }
    if (s)
        series_remove(s);
    if (!allowed(r, ref, now) || !make_room(r)) {
        r->stats.dropped++;
        return;
    }
    s = series_new(r, key, ref, now);
    if (s && s->ns && s->name)
        s->object = event_object(r, s, ref, type, reason, action, note);
    if (!s || !s->object) {
        if (s)
            series_free(s);
        r->stats.dropped++;
        return;
    }
    HASH_ADD_STR(r->series, key, s);
    write_series(s);
    if (!uv_is_active((uv_handle_t *)&r->timer))
        uv_timer_start(&r->timer, on_flush, FLUSH_MS, 0);
}

/** Cuts at a character's beginning, so that the rest is still UTF-8. */
static void cut_utf8(char *text, size_t max)
{
    if (strlen(text) <= max)
        return;
    while (max > 0 && ((unsigned char)text[max] & 0xc0) == 0x80)
        max--;
    text[max] = '\0';
}

void pp_kube_event(pp_kube_recorder *r, const pp_kube_object_ref *ref, pp_kube_event_type type,
                   const char *reason, const char *action, const char *fmt, ...)
{
    char note[MAX_NOTE + 8];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(note, sizeof note, fmt, args);
    va_end(args);
    if (n < 0 || r->closing)
        return;
    cut_utf8(note, MAX_NOTE - 1);
    pp_text_tame(note); /* what pods say is in some, and kubectl prints it as it is */
    const char *type_name = type == PP_KUBE_EVENT_WARNING ? "Warning" : "Normal";
    PP_CLEANUP_FREE char *key =
        kube_format("%s|%s|%s|%s|%s|%s|%s|%s", ref->kind, ref->ns ? ref->ns : "", ref->name,
                    ref->uid ? ref->uid : "", type_name, reason, action, note);
    if (key)
        record(r, key, ref, type_name, reason, action, note);
}

pp_kube_recorder_stats pp_kube_recorder_get_stats(const pp_kube_recorder *r)
{
    return r->stats;
}

/* ---- life ---- */

pp_kube_recorder *pp_kube_recorder_new(pp_kube_client *client, const char *controller,
                                       const char *instance, pp_error *err)
{
    pp_kube_recorder *r = calloc(1, sizeof *r);
    char *c = strdup(controller), *i = strndup(instance, 128); /* the API's own limit */
    if (!r || !c || !i) {
        free(r);
        free(c);
        free(i);
        (void)pp_error_nomem(err);
        return NULL;
    }
    r->client = client;
    r->controller = c;
    r->instance = i;
    uv_timer_init(pp_kube_client_loop(client), &r->timer);
    uv_unref((uv_handle_t *)&r->timer);
    r->timer.data = r;
    return r;
}

static void on_closed(uv_handle_t *handle)
{
    pp_kube_recorder *r = handle->data;
    allowance *a, *tmp;
    HASH_ITER(hh, r->allowances, a, tmp)
    {
        HASH_DEL(r->allowances, a);
        free(a);
    }
    free(r->controller);
    free(r->instance);
    free(r);
}

void pp_kube_recorder_free(pp_kube_recorder *r)
{
    if (!r || r->closing)
        return;
    r->closing = true;
    while (r->series)
        series_remove(r->series);
    uv_close((uv_handle_t *)&r->timer, on_closed);
}
