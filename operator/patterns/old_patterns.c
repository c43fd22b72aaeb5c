#include "operator/patterns/old_patterns.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "common/log.h"
#include "common/time.h"
#include "estimate/pattern/workloads.h"
#include "operator/patterns/patterns.h"
#include "operator/state/pending_call.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 200 };

/* A page of objects that are old enough, and what there is of them in the store. */
typedef struct page {
    pp_operator *op;
    json_t *old;  /* by "NAMESPACE/KIND/NAME" of the workload: the object */
    char *behind; /* of the next page; NULL: none */
} page;

/* Calls of the API server. */
typedef struct listing {
    pp_pending_call pending;
} listing;

typedef struct removal {
    pp_pending_call pending;
    char key[PP_PATTERN_NAME + 80];
} removal;

static void list_page(pp_operator *op, const char *behind);

static void page_free(page *p)
{
    json_decref(p->old);
    free(p->behind);
    free(p);
}

/* Where rights or the server are missing. */
static void try_again(pp_operator *op, const char *what, const pp_error *error)
{
    op->old_patterns_due = true;
    if (error->code != PP_ERR_UNAVAILABLE)
        pp_warn(NULL, "ConsumptionPatterns past their retention: %s: %s", what, error->message);
}

/* ---- deletions ---- */

static void on_removed(void *user, json_t *object, const pp_error *error)
{
    removal *r = user;
    (void)object;
    if (!error)
        pp_info(NULL, "retention: ConsumptionPattern %s", r->key);
    else if (error->code != PP_ERR_NOT_FOUND && error->code != PP_ERR_CONFLICT)
        try_again(r->pending.op, r->key, error);
    pp_pending_call_free(r);
}

/* The version too: a session may have made it anew since. */
static void remove_object(pp_operator *op, const json_t *object)
{
    const char *ns = pp_json_get_string(object, "metadata", "namespace", NULL);
    const char *name = pp_json_get_string(object, "metadata", "name", NULL);
    PP_CLEANUP_JSON json_t *body = json_pack(
        "{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "v1", "kind", "DeleteOptions", "preconditions",
        "uid", pp_json_get_string(object, "metadata", "uid", NULL), "resourceVersion",
        pp_json_get_string(object, "metadata", "resourceVersion", NULL));
    removal *r = pp_pending_call_new(op, sizeof *r, NULL);
    const pp_kube_call call = {.verb = PP_KUBE_DELETE,
                               .resource = &PP_CONSUMPTIONPATTERNS,
                               .ns = ns,
                               .name = name,
                               .body = body,
                               .done = on_removed,
                               .user = r};
    pp_error err = {0};
    if (r)
        (void)snprintf(r->key, sizeof r->key, "%s/%s", ns, name);
    if (!body || !r || pp_kube_call_start(op->kube, &call, NULL, &err) < 0) {
        op->old_patterns_due = true;
        pp_pending_call_free(r);
    }
}

/* ---- what the store has ---- */

static void on_without(void *user, const pp_strings *without, const pp_error *error)
{
    page *p = user;
    pp_operator *op = p->op;
    const bool goes_on = op->leading && !op->stopping;
    if (error)
        try_again(op, "what the store has of them", error);
    for (size_t i = 0; !error && goes_on && i < without->count; i++)
        remove_object(op, json_object_get(p->old, without->items[i]));
    if (!error && goes_on && p->behind)
        list_page(op, p->behind);
    page_free(p);
}

static void ask_store(page *p)
{
    pp_strings keys = {0};
    pp_error err = {0};
    const char *key;
    json_t *object;
    int rc = 0;
    json_object_foreach(p->old, key, object)
    {
        if (rc == 0)
            rc = pp_strings_add(&keys, key, &err);
    }
    if (rc == 0)
        rc = pp_store_load_without_results(p->op->store, &keys, on_without, p, &err);
    pp_strings_free(&keys);
    if (rc == 0)
        return;
    try_again(p->op, "what the store has of them", &err);
    page_free(p);
}

/* ---- objects ---- */

/* Ours, finished by us: nobody else writes a status, and the name is the workload's. */
static bool is_old(const json_t *object, int64_t before_ns, const char *kind, const char *name)
{
    char expected[PP_PATTERN_NAME];
    int64_t last_ns = 0;
    const char *is = pp_json_get_string(object, "metadata", "name", NULL);
    const char *last = pp_json_get_string(object, "status", "lastFinished", NULL);
    if (!kind || !name || !is || !last || pp_time_parse(last, &last_ns, NULL) < 0)
        return false;
    pp_pattern_name(kind, name, expected);
    return strcmp(is, expected) == 0 && last_ns < before_ns &&
           !pp_json_get(object, "metadata", "deletionTimestamp", NULL) &&
           pp_json_get_string(object, "metadata", "namespace", NULL) &&
           pp_json_get_string(object, "metadata", "uid", NULL) &&
           pp_json_get_string(object, "metadata", "resourceVersion", NULL);
}

static page *read_page(pp_operator *op, const json_t *list)
{
    const int64_t before_ns = pp_time_now() - op->config->retention.results;
    page *p = calloc(1, sizeof *p);
    const char *behind = pp_json_get_string(list, "metadata", "continue", NULL);
    size_t i;
    json_t *object;
    if (!p)
        return NULL;
    p->op = op;
    p->old = json_object();
    p->behind = behind && *behind ? strdup(behind) : NULL;
    json_array_foreach(json_object_get(list, "items"), i, object)
    {
        char key[512];
        const char *kind = pp_json_get_string(object, "spec", "workload", "kind", NULL);
        const char *name = pp_json_get_string(object, "spec", "workload", "name", NULL);
        if (!is_old(object, before_ns, kind, name))
            continue;
        (void)snprintf(key, sizeof key, "%s/%s/%s",
                       pp_json_get_string(object, "metadata", "namespace", NULL), kind, name);
        (void)json_object_set(p->old, key, object);
    }
    return p;
}

static void on_listed(void *user, json_t *list, const pp_error *error)
{
    listing *l = user;
    pp_operator *op = l->pending.op;
    pp_pending_call_free(l);
    if (error) {
        try_again(op, "listing them", error);
        return;
    }
    page *p = op->leading && !op->stopping ? read_page(op, list) : NULL;
    if (!p)
        op->old_patterns_due = true;
    else
        ask_store(p);
}

static void list_page(pp_operator *op, const char *behind)
{
    listing *l = pp_pending_call_new(op, sizeof *l, NULL);
    const pp_kube_call call = {.verb = PP_KUBE_LIST,
                               .resource = &PP_CONSUMPTIONPATTERNS,
                               .ns = *op->config->kubernetes.ns ? op->config->kubernetes.ns : NULL,
                               .continue_token = behind,
                               .limit = PAGE,
                               .done = on_listed,
                               .user = l};
    pp_error err = {0};
    if (l && pp_kube_call_start(op->kube, &call, NULL, &err) == 0)
        return;
    op->old_patterns_due = true;
    pp_pending_call_free(l);
}

void pp_old_patterns_due(pp_operator *op)
{
    op->old_patterns_due = true;
}

void pp_old_patterns_sweep(pp_operator *op)
{
    if (!op->old_patterns_due || op->config->retention.results <= 0 || !op->leading || op->stopping)
        return;
    op->old_patterns_due = false;
    list_page(op, NULL);
}
