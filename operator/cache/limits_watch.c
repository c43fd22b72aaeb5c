#include "operator/cache/limits_watch.h"

#include "common/log.h"
#include "operator/cache/limits.h"
#include "operator/state/state.h"

#include <stdlib.h>

static const pp_kube_resource resources[] = {
    [PP_LIMITS_RANGES] = {"", "v1", "limitranges"},
    [PP_LIMITS_QUOTAS] = {"", "v1", "resourcequotas"},
};
enum { KINDS = 2 };

typedef struct watch {
    pp_limits *limits;
    pp_limits_kind kind;
    pp_kube_informer *informer;
    bool denied; /* by the API server, which was said */
} watch;

struct pp_limits_watch {
    watch kinds[KINDS];
};

/* The parts that decide: of the rest managedFields alone are often larger. */
static void *decode(void *user, const json_t *object, pp_error *err)
{
    (void)user;
    json_t *kept =
        json_pack("{s:{s:O*}, s:O*, s:O*}", "metadata", "name",
                  json_object_get(json_object_get(object, "metadata"), "name"), "spec",
                  json_object_get(object, "spec"), "status", json_object_get(object, "status"));
    if (!kept)
        (void)pp_error_nomem(err);
    return kept;
}

static void release(void *object)
{
    json_decref(object);
}

static void on_object(void *user, const char *key, const void *object)
{
    const watch *w = user;
    if (pp_limits_put(w->limits, w->kind, key, object) < 0)
        pp_warn(key, "out of memory: pods that it refuses with the probe may be injected");
}

static void on_update(void *user, const char *key, const void *old, const void *object)
{
    (void)old;
    on_object(user, key, object);
}

static void on_delete(void *user, const char *key, const void *last)
{
    const watch *w = user;
    (void)last;
    pp_limits_drop(w->limits, w->kind, key);
}

/* Without the right to list them injection goes on, as before they were looked at. */
static void on_error(void *user, const pp_error *error)
{
    watch *w = user;
    const bool denied = error->code == PP_ERR_DENIED;
    if (!denied)
        pp_warn(NULL, "watching %s: %s", resources[w->kind].plural, error->message);
    else if (!w->denied)
        pp_warn(NULL, "%s cannot be watched: %s: pods that they refuse with the probe are injected",
                resources[w->kind].plural, error->message);
    w->denied = denied;
}

static int start(pp_operator *op, watch *w, pp_error *err)
{
    const char *ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL;
    const pp_kube_informer_options options = {.resource = &resources[w->kind],
                                              .ns = ns,
                                              .handler = {.decode = decode,
                                                          .free_object = release,
                                                          .on_add = on_object,
                                                          .on_update = on_update,
                                                          .on_delete = on_delete,
                                                          .on_error = on_error,
                                                          .user = w}};
    w->informer = pp_kube_informer_new(op->kube, &options, err);
    return w->informer ? 0 : -1;
}

int pp_limits_watch_start(pp_operator *op, pp_error *err)
{
    op->limits = pp_limits_new();
    op->limits_watch = calloc(1, sizeof *op->limits_watch);
    if (!op->limits || !op->limits_watch)
        return pp_error_nomem(err);
    for (int i = 0; i < KINDS; i++) {
        watch *w = &op->limits_watch->kinds[i];
        *w = (watch){.limits = op->limits, .kind = (pp_limits_kind)i};
        if (start(op, w, err) < 0)
            return -1;
    }
    return 0;
}

void pp_limits_watch_stop(pp_operator *op)
{
    for (int i = 0; op->limits_watch && i < KINDS; i++)
        pp_kube_informer_free(op->limits_watch->kinds[i].informer);
    free(op->limits_watch);
    op->limits_watch = NULL;
    pp_limits_free(op->limits);
    op->limits = NULL;
}

bool pp_limits_watch_synced(const pp_operator *op)
{
    for (int i = 0; op->limits_watch && i < KINDS; i++) {
        const watch *w = &op->limits_watch->kinds[i];
        if (!w->denied && !pp_kube_informer_synced(w->informer))
            return false;
    }
    return op->limits_watch != NULL;
}
