#include "operator/kube/reflector.h"

#include "common/backoff.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "operator/kube/framer.h"
#include "operator/kube/kube_internal.h"

#include <string.h>
#include <uthash.h>

enum {
    DEFAULT_PAGE = 250,
    DEFAULT_MAX_OBJECTS = 200 * 1000,
    /* etcd refuses objects over 1.5 MiB; JSON with managed fields may be a few times that. */
    MAX_LINE = 8 * 1024 * 1024,
    WATCH_MIN_S = 5 * 60,
    WATCH_MAX_S = 10 * 60,
    /* So many failed watches in a row without an event: our resourceVersion may be one that the
     * server does not know (an etcd restored from a backup), so list again. */
    MAX_WATCH_FAILURES = 5,
    /* client-go's figures for watches. */
    FIRST_WAIT_MS = 800,
    MAX_WAIT_MS = 30 * 1000,
};
static const int64_t SHORT_WATCH_NS = INT64_C(1000000000);
static const int64_t HEALTHY_NS = INT64_C(120) * 1000000000; /* the waits begin anew after it */

typedef enum reflector_mode {
    NEED_LIST,   /**< in pages, by LIST */
    STREAM_LIST, /**< by a watch with sendInitialEvents */
    WATCHING,    /**< from resource_version on */
} reflector_mode;

typedef struct cached {
    void *object;
    char *resource_version;
    uint64_t generation; /**< of the list that showed it last */
    UT_hash_handle hh;
    char key[];
} cached;

struct pp_reflector {
    pp_kube_handler handler;
    int page_limit;
    size_t max_objects;
    bool watch_list; /**< the server is thought to know it */
    bool stopped;
    bool synced;
    bool full; /**< reported since the last list began */
    reflector_mode mode;
    bool whole;      /**< the next list comes in one answer: a continue token expired */
    bool paging;     /**< a list is under way */
    int64_t wait_ms; /**< before the next step; 0: none */
    char *continue_token;
    char *resource_version;
    char *query;
    uint64_t generation;
    int64_t watch_started_ns;
    uint64_t watch_events; /**< of the current watch */
    int watch_failures;
    pp_backoff backoff;
    int64_t failed_ns; /**< the last time */
    pp_framer framer;
    cached *objects; /**< by key */
    pp_kube_informer_stats stats;
};

/* ---- life ---- */

pp_reflector *pp_reflector_new(const pp_kube_informer_options *options, uint64_t seed,
                               pp_error *err)
{
    if (!options->handler.decode || !options->handler.free_object) {
        (void)pp_error_field(err, "handler", "decode and free_object are needed");
        return NULL;
    }
    pp_reflector *r = calloc(1, sizeof *r);
    if (!r) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    r->handler = options->handler;
    r->page_limit = options->page_limit ? options->page_limit : DEFAULT_PAGE;
    r->max_objects = options->max_objects ? options->max_objects : DEFAULT_MAX_OBJECTS;
    r->watch_list = !options->no_watch_list;
    r->mode = r->watch_list ? STREAM_LIST : NEED_LIST;
    pp_backoff_init(&r->backoff, FIRST_WAIT_MS, MAX_WAIT_MS, seed);
    pp_framer_init(&r->framer, MAX_LINE);
    return r;
}

static void cached_free(pp_reflector *r, cached *c)
{
    if (c->object)
        r->handler.free_object(c->object);
    free(c->resource_version);
    free(c);
}

void pp_reflector_free(pp_reflector *r)
{
    if (!r)
        return;
    cached *c, *tmp;
    HASH_ITER(hh, r->objects, c, tmp)
    {
        HASH_DEL(r->objects, c);
        cached_free(r, c);
    }
    pp_framer_done(&r->framer);
    free(r->continue_token);
    free(r->resource_version);
    free(r->query);
    free(r);
}

void pp_reflector_stop(pp_reflector *r)
{
    r->stopped = true;
}

/* ---- the cache ---- */

static void report(pp_reflector *r, const pp_error *error)
{
    r->stats.errors++;
    if (r->handler.on_error && !r->stopped)
        r->handler.on_error(r->handler.user, error);
}

static void replace_string(char **slot, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    free(*slot);
    *slot = copy;
}

static char *object_key(const json_t *object)
{
    const char *ns = pp_json_get_string(object, "metadata", "namespace", NULL);
    const char *name = pp_json_get_string(object, "metadata", "name", NULL);
    if (!name)
        return NULL;
    return ns ? kube_format("%s/%s", ns, name) : strdup(name);
}

static cached *find(const pp_reflector *r, const char *key)
{
    cached *c = NULL;
    HASH_FIND_STR(r->objects, key, c);
    return c;
}

/** Takes the entry out and tells the handler; `last` may be NULL, then the cached state is shown.
 */
static void drop(pp_reflector *r, cached *c, const void *last)
{
    HASH_DEL(r->objects, c);
    if (r->handler.on_delete && !r->stopped)
        r->handler.on_delete(r->handler.user, c->key, last ? last : c->object);
    cached_free(r, c);
}

static int add(pp_reflector *r, const char *key, const char *version, void *object, pp_error *err)
{
    size_t n = strlen(key);
    if (HASH_COUNT(r->objects) >= r->max_objects) {
        bool first = !r->full;
        r->full = true;
        return first ? pp_error_set(err, PP_ERR_TOO_LARGE,
                                    "more than %zu objects: the rest is left out", r->max_objects)
                     : -1;
    }
    cached *c = calloc(1, sizeof *c + n + 1);
    char *copy = version ? strdup(version) : NULL;
    if (!c || (version && !copy)) {
        free(c);
        free(copy);
        return pp_error_nomem(err);
    }
    memcpy(c->key, key, n + 1);
    c->object = object;
    c->resource_version = copy;
    c->generation = r->generation;
    HASH_ADD_STR(r->objects, key, c);
    if (r->handler.on_add && !r->stopped)
        r->handler.on_add(r->handler.user, c->key, c->object);
    return 0;
}

static void update(pp_reflector *r, cached *c, const char *version, void *object)
{
    void *old = c->object;
    c->object = object;
    replace_string(&c->resource_version, version);
    if (r->handler.on_update && !r->stopped)
        r->handler.on_update(r->handler.user, c->key, old, object);
    r->handler.free_object(old);
}

static void take(pp_reflector *r, const char *key, const json_t *item)
{
    const char *version = pp_json_get_string(item, "metadata", "resourceVersion", NULL);
    cached *c = find(r, key);
    if (c) {
        c->generation = r->generation;
        if (version && c->resource_version && strcmp(version, c->resource_version) == 0)
            return; /* a list shows again what we have */
    }
    pp_error err = {0};
    void *object = r->handler.decode(r->handler.user, item, &err);
    if (object && c) {
        update(r, c, version, object);
    } else if (object) {
        if (add(r, key, version, object, &err) < 0)
            r->handler.free_object(object);
    } else if (!err.code && c) {
        drop(r, c, NULL);
    }
    if (err.code) {
        (void)pp_error_prefix(&err, "%s", key);
        report(r, &err);
    }
}

static void upsert(pp_reflector *r, const json_t *item)
{
    PP_CLEANUP_FREE char *key = object_key(item);
    if (key) {
        take(r, key, item);
        return;
    }
    pp_error err = {0};
    (void)pp_error_field(&err, "metadata.name", "is missing");
    report(r, &err);
}

static void removed(pp_reflector *r, const json_t *item)
{
    PP_CLEANUP_FREE char *key = object_key(item);
    cached *c = key ? find(r, key) : NULL;
    if (!c)
        return;
    pp_error ignored = {0}; /* what is in the cache serves as well */
    void *last = r->handler.decode(r->handler.user, item, &ignored);
    drop(r, c, last);
    if (last)
        r->handler.free_object(last);
}

/* ---- lists ---- */

static void begin_list(pp_reflector *r)
{
    r->generation++;
    r->full = false;
    r->paging = true;
    replace_string(&r->continue_token, NULL);
}

/** Everything that the list did not show has vanished. */
static void end_list(pp_reflector *r, const char *version)
{
    cached *c, *tmp;
    HASH_ITER(hh, r->objects, c, tmp)
    {
        if (c->generation != r->generation)
            drop(r, c, NULL);
        if (r->stopped)
            return;
    }
    replace_string(&r->resource_version, version);
    r->paging = r->whole = false;
    r->mode = WATCHING;
    r->watch_failures = 0;
    r->stats.lists++;
    if (!r->synced) {
        r->synced = true;
        if (r->handler.on_synced)
            r->handler.on_synced(r->handler.user);
    }
}

static void need_list(pp_reflector *r)
{
    r->mode = r->watch_list ? STREAM_LIST : NEED_LIST;
    r->paging = false;
    replace_string(&r->continue_token, NULL);
}

void pp_reflector_page(pp_reflector *r, const json_t *list, int64_t now_ns)
{
    const char *version = pp_json_get_string(list, "metadata", "resourceVersion", NULL);
    const char *more = pp_json_get_string(list, "metadata", "continue", NULL);
    const json_t *items = json_object_get(list, "items");
    if (!version || (items && !json_is_array(items) && !json_is_null(items))) {
        pp_error err = {0};
        (void)pp_error_set(&err, PP_ERR_UNAVAILABLE, "the answer is not a list");
        pp_reflector_failed(r, &err, now_ns);
        return;
    }
    size_t i;
    const json_t *item;
    json_array_foreach(items, i, item)
    {
        if (r->stopped)
            return;
        upsert(r, item);
    }
    if (more && *more)
        replace_string(&r->continue_token, more);
    else if (!r->stopped)
        end_list(r, version);
}

/* ---- watches ---- */

static int on_object(pp_reflector *r, const char *type, const json_t *object)
{
    if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0)
        upsert(r, object);
    else if (strcmp(type, "DELETED") == 0)
        removed(r, object);
    else if (strcmp(type, "BOOKMARK") != 0)
        return 0; /* a type that is not known yet */
    const char *version = pp_json_get_string(object, "metadata", "resourceVersion", NULL);
    if (r->stopped || !version)
        return 0;
    const char *end =
        pp_json_get_string(object, "metadata", "annotations", "k8s.io/initial-events-end", NULL);
    if (r->mode == STREAM_LIST && strcmp(type, "BOOKMARK") == 0 && end && strcmp(end, "true") == 0)
        end_list(r, version);
    else if (r->mode == WATCHING)
        replace_string(&r->resource_version, version);
    return 0;
}

static int on_line(void *user, const char *line, size_t n, pp_error *err)
{
    pp_reflector *r = user;
    if (r->stopped)
        return pp_error_set(err, PP_ERR_INTERNAL, "stopped");
    PP_CLEANUP_JSON json_t *event = kube_json_parse(line, n, err);
    if (!event)
        return -1;
    const char *type = pp_json_get_string(event, "type", NULL);
    const json_t *object = json_object_get(event, "object");
    if (!type || !json_is_object(object))
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "a line of the watch is not an event");
    if (strcmp(type, "ERROR") == 0) {
        int code = (int)json_integer_value(json_object_get(object, "code"));
        return pp_kube_status_error(code, object, err);
    }
    r->stats.events++;
    r->watch_events++;
    return on_object(r, type, object);
}

int pp_reflector_bytes(pp_reflector *r, const char *data, size_t n, pp_error *err)
{
    return pp_framer_feed(&r->framer, data, n, on_line, r, err);
}

static int64_t next_wait(pp_reflector *r, int64_t now_ns)
{
    if (now_ns - r->failed_ns > HEALTHY_NS)
        pp_backoff_reset(&r->backoff);
    r->failed_ns = now_ns;
    return pp_backoff_next(&r->backoff);
}

static void wait_more(pp_reflector *r, int64_t now_ns)
{
    r->wait_ms = next_wait(r, now_ns);
}

static void watch_failed(pp_reflector *r, const pp_error *error, int64_t now_ns)
{
    if (r->watch_events > 0)
        r->watch_failures = 0;
    bool again = error->code == PP_ERR_UNAVAILABLE || error->code == PP_ERR_TIMEOUT;
    if (!again || ++r->watch_failures >= MAX_WATCH_FAILURES) {
        r->watch_failures = 0;
        need_list(r);
    }
    wait_more(r, now_ns);
}

static void give_up_watch_list(pp_reflector *r)
{
    r->watch_list = false;
    need_list(r);
}

void pp_reflector_failed(pp_reflector *r, const pp_error *error, int64_t now_ns)
{
    /* Neither is a fault: a server without streamed lists, and a list that took too long to read.
     */
    if (r->mode == STREAM_LIST && error->code == PP_ERR_INVALID) {
        give_up_watch_list(r);
        return;
    }
    if (r->mode == NEED_LIST && error->code == PP_ERR_GONE && r->continue_token) {
        need_list(r);
        r->mode = NEED_LIST;
        r->whole = true;
        return;
    }
    if (r->mode == WATCHING) {
        watch_failed(r, error, now_ns);
    } else {
        r->whole = false;
        need_list(r);
        wait_more(r, now_ns);
    }
    report(r, error);
}

void pp_reflector_ended(pp_reflector *r, int64_t now_ns)
{
    if (r->mode == STREAM_LIST) { /* it never said that the list was complete */
        give_up_watch_list(r);
        return;
    }
    if (r->watch_events == 0 && now_ns - r->watch_started_ns < SHORT_WATCH_NS) {
        pp_error err = {0};
        (void)pp_error_set(&err, PP_ERR_UNAVAILABLE, "the watch ended at once");
        watch_failed(r, &err, now_ns);
        report(r, &err);
    }
}

bool pp_reflector_streaming(const pp_reflector *r)
{
    return r->mode == STREAM_LIST;
}

/* ---- what next ---- */

static void next_watch(pp_reflector *r, int64_t now_ns, pp_reflector_step *step)
{
    int64_t seconds = pp_backoff_random(&r->backoff, WATCH_MIN_S, WATCH_MAX_S);
    const char *how = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    step->streams_list = r->mode == STREAM_LIST;
    if (step->streams_list)
        begin_list(r);
    PP_CLEANUP_FREE char *version = kube_encode(step->streams_list ? "" : r->resource_version);
    free(r->query);
    r->query = version ? kube_format("watch=1&allowWatchBookmarks=true&timeoutSeconds=%lld%s%s",
                                     (long long)seconds,
                                     step->streams_list ? how : "&resourceVersion=", version)
                       : NULL;
    if (!r->query) {
        step->what = PP_REFLECT_WAIT;
        step->wait_ms = next_wait(r, now_ns);
        return;
    }
    step->what = PP_REFLECT_WATCH;
    step->query = r->query;
    step->timeout_ms = seconds * 1000;
    pp_framer_reset(&r->framer);
    r->watch_started_ns = now_ns;
    r->watch_events = 0;
    r->stats.watches++;
}

void pp_reflector_next(pp_reflector *r, int64_t now_ns, pp_reflector_step *step)
{
    *step = (pp_reflector_step){0};
    if (r->wait_ms > 0) {
        step->what = PP_REFLECT_WAIT;
        step->wait_ms = r->wait_ms;
        r->wait_ms = 0;
        return;
    }
    if (r->mode == WATCHING && !r->resource_version)
        need_list(r); /* out of memory while it was copied */
    if (r->mode != NEED_LIST) {
        next_watch(r, now_ns, step);
        return;
    }
    if (!r->paging)
        begin_list(r);
    step->what = PP_REFLECT_LIST;
    step->limit = r->whole ? 0 : r->page_limit;
    step->continue_token = r->continue_token;
}

/* ---- looking ---- */

bool pp_reflector_synced(const pp_reflector *r)
{
    return r->synced;
}

const void *pp_reflector_get(const pp_reflector *r, const char *key)
{
    const cached *c = find(r, key);
    return c ? c->object : NULL;
}

size_t pp_reflector_count(const pp_reflector *r)
{
    return HASH_COUNT(r->objects);
}

void pp_reflector_each(const pp_reflector *r,
                       bool (*fn)(void *user, const char *key, const void *object), void *user)
{
    const cached *c, *tmp;
    HASH_ITER(hh, r->objects, c, tmp)
    if (!fn(user, c->key, c->object))
        return;
}

pp_kube_informer_stats pp_reflector_get_stats(const pp_reflector *r)
{
    return r->stats;
}
