#include "operator/installation/addresses.h"

#include "common/log.h"
#include "controller/service.h"
#include "operator/cache/watches.h"
#include "operator/installation/deployment.h"
#include "operator/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const pp_kube_resource SERVICES = {"", "v1", "services"};

#define GONE "is gone"
#define SELECTS_NONE "selects none of the operator's pods"

struct pp_addresses {
    pp_kube_informer *informer; /* of services: the one that it names */
    char key[330];
    bool denied; /* by the API server, which was said */
};

typedef struct service {
    pp_strings addresses;
    bool selects; /* this operator's pods */
} service;

static void release(void *object)
{
    service *s = object;
    pp_strings_free(&s->addresses);
    free(s);
}

static void *decode(void *user, const json_t *object, pp_error *err)
{
    const pp_operator *op = user;
    service *s = calloc(1, sizeof *s);
    if (!s)
        (void)pp_error_nomem(err);
    else if (pp_service_addresses(object, &s->addresses, err) < 0) {
        release(s);
        s = NULL;
    }
    if (s)
        s->selects = !op->labels || pp_service_selects(object, op->labels);
    return s;
}

static void say_broken(pp_operator *op, const char *key, const char *what)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "the Service %s %s: no pod is injected, and no agent connects; helm upgrade of "
                   "the release brings it back",
                   key, what);
    pp_warn(NULL, "%s", text);
    if (op->leading)
        pp_deployment_event(op, "ServiceUnavailable", "Ask", text);
    pp_watches_enqueue_all(op);
}

static void on_service(void *user, const char *key, const void *object)
{
    const pp_strings *addresses = &((const service *)object)->addresses;
    if (!((const service *)object)->selects)
        say_broken(user, key, SELECTS_NONE);
    if (!addresses->count)
        pp_warn(key, "the Service has no address of its own: pods that cannot resolve its name "
                     "will not reach the operator");
    for (size_t i = 0; i < addresses->count; i++)
        pp_info(key, "agents that cannot resolve the Service's name come to %s",
                addresses->items[i]);
}

static bool same(const pp_strings *a, const pp_strings *b)
{
    bool equal = a->count == b->count;
    for (size_t i = 0; equal && i < a->count; i++)
        equal = strcmp(a->items[i], b->items[i]) == 0;
    return equal;
}

static void on_service_add(void *user, const char *key, const void *object)
{
    if (((const service *)object)->selects)
        pp_watches_enqueue_all(user); /* it may have been gone */
    on_service(user, key, object);
}

static void on_service_update(void *user, const char *key, const void *old, const void *object)
{
    const service *before = old;
    const service *now = object;
    if (!before->selects && now->selects)
        pp_watches_enqueue_all(user);
    if (before->selects != now->selects || !same(&before->addresses, &now->addresses))
        on_service(user, key, object);
}

static void on_service_delete(void *user, const char *key, const void *last)
{
    (void)last;
    say_broken(user, key, GONE);
}

/* Without that right injection goes on, as where the Service has no address. */
static void on_error(void *user, const pp_error *error)
{
    struct pp_addresses *addresses = ((pp_operator *)user)->addresses;
    const bool denied = error->code == PP_ERR_DENIED;
    if (!denied || !addresses->denied)
        pp_warn(addresses->key, "watching the Service: %s%s", error->message,
                denied ? ": pods that cannot resolve its name will not reach the operator" : "");
    addresses->denied = denied;
}

static int watch(pp_operator *op, const char *ns, pp_error *err)
{
    char selector[300];
    (void)snprintf(selector, sizeof selector, "metadata.name=%s", op->config->webhook.service_name);
    const pp_kube_informer_options options = {.resource = &SERVICES,
                                              .ns = ns,
                                              .field_selector = selector,
                                              .handler = {.decode = decode,
                                                          .free_object = release,
                                                          .on_add = on_service_add,
                                                          .on_update = on_service_update,
                                                          .on_delete = on_service_delete,
                                                          .on_error = on_error,
                                                          .user = op}};
    op->addresses->informer = pp_kube_informer_new(op->kube, &options, err);
    return op->addresses->informer ? 0 : -1;
}

const char *pp_addresses_namespace(const pp_operator *op)
{
    const char *ns = op->config->webhook.service_namespace;
    return *ns ? ns : pp_kube_client_namespace(op->kube);
}

int pp_addresses_start(pp_operator *op, pp_error *err)
{
    const pp_config *config = op->config;
    const char *ns = pp_addresses_namespace(op);
    if (!pp_service_has(op->endpoint, config->webhook.service_name, ns))
        return 0;
    op->addresses = calloc(1, sizeof *op->addresses);
    if (!op->addresses)
        return pp_error_nomem(err);
    (void)snprintf(op->addresses->key, sizeof op->addresses->key, "%s/%s", ns,
                   config->webhook.service_name);
    return watch(op, ns, err);
}

void pp_addresses_stop(pp_operator *op)
{
    if (op->addresses)
        pp_kube_informer_free(op->addresses->informer);
    free(op->addresses);
    op->addresses = NULL;
}

bool pp_addresses_synced(const pp_operator *op)
{
    return !op->addresses || op->addresses->denied ||
           pp_kube_informer_synced(op->addresses->informer);
}

static const service *find(const pp_operator *op)
{
    return op->addresses ? pp_kube_informer_get(op->addresses->informer, op->addresses->key) : NULL;
}

const char *pp_addresses_trouble(const pp_operator *op, char *out, size_t size)
{
    const service *found = find(op);
    if (!op->addresses || op->addresses->denied || !pp_addresses_synced(op) ||
        (found && found->selects))
        return NULL;
    (void)snprintf(out, size, "the operator's Service %s %s", op->addresses->key,
                   found ? SELECTS_NONE : GONE);
    return out;
}

const pp_strings *pp_addresses_of(const pp_operator *op)
{
    static const pp_strings none = {0};
    const service *found = find(op);
    return found ? &found->addresses : &none;
}
