#include "controller/injection/inject_fit.h"

#include "common/cleanup.h"
#include "common/json.h"
#include "controller/injection/inject_qos.h"
#include "controller/injection/quantity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what a pod uses, as the scheduler, quotas and LimitRanges of type Pod count it ---- */

typedef struct usage {
    int64_t amount;
    bool stated; /* by any container */
} usage;

static usage of_container(const json_t *stated, const char *kind, const char *resource)
{
    usage u = {0};
    u.stated = pp_quantity_of(pp_json_get(stated, kind, resource, NULL), &u.amount);
    return u;
}

static usage sum(usage a, usage b)
{
    return (usage){pp_quantity_add(a.amount, b.amount), a.stated || b.stated};
}

static usage greater(usage a, usage b)
{
    return (usage){a.amount > b.amount ? a.amount : b.amount, a.stated || b.stated};
}

/*
 * The containers together with the native sidecars, or, where that is more, an init container with
 * the native sidecars before it. The addition stands before the pod's own init containers.
 */
static usage of_pod(const json_t *spec, const pp_inject_addition *addition, const char *kind,
                    const char *resource)
{
    usage all = {0}, sidecars = {0}, most = {0};
    if (addition && addition->sidecar)
        sidecars = of_container(addition->resources, kind, resource);
    else if (addition)
        all = of_container(addition->resources, kind, resource);
    const json_t *list = json_object_get(spec, "initContainers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        const char *policy = pp_json_get_string(c, "restartPolicy", NULL);
        const usage own = of_container(json_object_get(c, "resources"), kind, resource);
        most = greater(most, sum(sidecars, own));
        if (policy && strcmp(policy, "Always") == 0)
            sidecars = sum(sidecars, own);
    }
    list = json_object_get(spec, "containers");
    for (size_t i = 0; i < json_array_size(list); i++)
        all = sum(all, of_container(json_object_get(json_array_get(list, i), "resources"), kind,
                                    resource));
    return greater(sum(all, sidecars), most);
}

static usage with_overhead(usage u, const json_t *spec, const char *resource)
{
    usage overhead = {0};
    overhead.stated =
        pp_quantity_of(pp_json_get(spec, "overhead", resource, NULL), &overhead.amount);
    return u.stated && overhead.stated ? sum(u, overhead) : u;
}

/* ---- what is checked ---- */

typedef struct check {
    const json_t *spec;
    const pp_inject_addition *addition;
    const char *name; /* of the object that is looked at */
    char *why;
    size_t size;
} check;

static const char *text_of(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value) : "0";
}

/* ---- LimitRange of type Pod ---- */

static bool ratio_kept(const json_t *bound, usage request, usage limit)
{
    int64_t most;
    if (!pp_quantity_of(bound, &most))
        return true;
    return request.amount > 0 && limit.amount > 0 &&
           (double)limit.amount / (double)request.amount <= (double)most / 1000;
}

static bool within(const json_t *item, const char *resource, usage request, usage limit)
{
    int64_t bound;
    if (pp_quantity_of(pp_json_get(item, "min", resource, NULL), &bound) &&
        (!request.stated || request.amount < bound || (limit.stated && limit.amount < bound)))
        return false;
    if (pp_quantity_of(pp_json_get(item, "max", resource, NULL), &bound) &&
        (!limit.stated || limit.amount > bound || (request.stated && request.amount > bound)))
        return false;
    return ratio_kept(pp_json_get(item, "maxLimitRequestRatio", resource, NULL), request, limit);
}

static bool in_range_item(const check *c, const json_t *item)
{
    for (size_t i = 0; i < PP_INJECT_COUNTED; i++) {
        const char *r = pp_inject_counted[i];
        const usage request = of_pod(c->spec, NULL, "requests", r);
        const usage limit = of_pod(c->spec, NULL, "limits", r);
        const usage more = of_pod(c->spec, c->addition, "requests", r);
        const usage most = of_pod(c->spec, c->addition, "limits", r);
        if (!within(item, r, request, limit) || within(item, r, more, most))
            continue;
        (void)snprintf(c->why, c->size,
                       "the LimitRange %s bounds the %s of a whole pod (min %s, max %s, ratio %s), "
                       "which the pod keeps and with the agent would not",
                       c->name, r, text_of(pp_json_get(item, "min", r, NULL)),
                       text_of(pp_json_get(item, "max", r, NULL)),
                       text_of(pp_json_get(item, "maxLimitRequestRatio", r, NULL)));
        return false;
    }
    return true;
}

static bool container_within(const json_t *item, const json_t *stated, const char *name)
{
    return within(item, name, of_container(stated, "requests", name),
                  of_container(stated, "limits", name));
}

static bool own_within(const check *c, const json_t *item, const char *name)
{
    const json_t *list = json_object_get(c->spec, "containers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!container_within(item, json_object_get(json_array_get(list, i), "resources"), name))
            return false;
    }
    return true;
}

static bool cannot_keep(const check *c, const char *resource)
{
    (void)snprintf(c->why, c->size,
                   "the LimitRange %s bounds the %s of each container in a way that the agent "
                   "cannot keep",
                   c->name, resource);
    return false;
}

/* What it asks for none of is bounded from below, or by a ratio, which none never keeps. */
static bool others_in_item(const check *c, const json_t *item)
{
    const char *resource;
    json_t *none;
    PP_CLEANUP_JSON json_t *others = json_object();
    pp_inject_add_others(item, others);
    json_object_foreach(others, resource, none)
    {
        if (!container_within(item, c->addition->resources, resource))
            return cannot_keep(c, resource);
    }
    return true;
}

/* The agent alone, where its amounts could not be made to fit. */
static bool container_in_item(const check *c, const json_t *item)
{
    for (size_t i = 0; i < PP_INJECT_COUNTED; i++) {
        if (container_within(item, c->addition->resources, pp_inject_counted[i]) ||
            !own_within(c, item, pp_inject_counted[i]))
            continue;
        return cannot_keep(c, pp_inject_counted[i]);
    }
    return others_in_item(c, item);
}

static bool in_range(const check *c, const json_t *range)
{
    const json_t *items = pp_json_get(range, "spec", "limits", NULL);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        if ((pp_inject_is_type(item, "Pod") && !in_range_item(c, item)) ||
            (pp_inject_is_type(item, "Container") && !container_in_item(c, item)))
            return false;
    }
    return true;
}

/* ---- ResourceQuota ---- */

static bool in_values(const json_t *values, const char *text)
{
    for (size_t i = 0; text && i < json_array_size(values); i++) {
        const char *value = json_string_value(json_array_get(values, i));
        if (value && strcmp(value, text) == 0)
            return true;
    }
    return false;
}

static bool in_class(const check *c, const json_t *requirement)
{
    const char *name = pp_json_get_string(c->spec, "priorityClassName", NULL);
    const char *op = pp_json_get_string(requirement, "operator", NULL);
    const json_t *values = json_object_get(requirement, "values");
    name = name && *name ? name : NULL;
    if (op && strcmp(op, "In") == 0)
        return in_values(values, name);
    if (op && strcmp(op, "NotIn") == 0)
        return !in_values(values, name);
    return op && strcmp(op, "DoesNotExist") == 0 ? !name : name != NULL;
}

/* Whether a pod is of a scope. Of one that is not known it may be. */
static bool in_scope(const check *c, const char *scope, const json_t *requirement)
{
    const bool ends = json_is_integer(json_object_get(c->spec, "activeDeadlineSeconds"));
    const bool best_effort = pp_inject_qos_of(c->spec) == PP_QOS_BEST_EFFORT;
    if (strcmp(scope, "Terminating") == 0)
        return ends;
    if (strcmp(scope, "NotTerminating") == 0)
        return !ends;
    if (strcmp(scope, "BestEffort") == 0)
        return best_effort;
    if (strcmp(scope, "NotBestEffort") == 0)
        return !best_effort;
    if (strcmp(scope, "PriorityClass") == 0)
        return in_class(c, requirement);
    return true;
}

static bool concerns(const check *c, const json_t *quota)
{
    const json_t *scopes = pp_json_get(quota, "spec", "scopes", NULL);
    for (size_t i = 0; i < json_array_size(scopes); i++) {
        const char *scope = json_string_value(json_array_get(scopes, i));
        if (scope && !in_scope(c, scope, NULL))
            return false;
    }
    const json_t *selector = pp_json_get(quota, "spec", "scopeSelector", "matchExpressions", NULL);
    for (size_t i = 0; i < json_array_size(selector); i++) {
        const json_t *requirement = json_array_get(selector, i);
        const char *scope = pp_json_get_string(requirement, "scopeName", NULL);
        if (scope && !in_scope(c, scope, requirement))
            return false;
    }
    return true;
}

/* "requests.cpu", "cpu" (the same) or "limits.cpu"; false: nothing that is added counts for it. */
static bool parse_key(const char *key, const char **ret_kind, const char **ret_resource)
{
    static const char requests[] = "requests.", limits[] = "limits.";
    *ret_kind = "requests";
    *ret_resource = key;
    if (strncmp(key, requests, sizeof requests - 1) == 0) {
        *ret_resource = key + sizeof requests - 1;
    } else if (strncmp(key, limits, sizeof limits - 1) == 0) {
        *ret_kind = "limits";
        *ret_resource = key + sizeof limits - 1;
    }
    return pp_inject_is_counted(*ret_resource);
}

/* What a quota counts as used by now. */
static int64_t used_of(const json_t *quota, const char *key)
{
    int64_t used = 0;
    (void)pp_quantity_of(pp_json_get(quota, "status", "used", key, NULL), &used);
    return used;
}

/* As one would write it in a quota; `amount` in thousandths. */
static void format_amount(const char *resource, int64_t amount, char *out, size_t size)
{
    static const int64_t mebi = INT64_C(1000) << 20;
    if (strcmp(resource, "cpu") == 0)
        (void)snprintf(out, size, "%" PRId64 "m", amount);
    else
        (void)snprintf(out, size, "%" PRId64 "Mi", amount / mebi + (amount % mebi > 0));
}

static bool in_hard(const check *c, const json_t *quota, const char *key, const json_t *hard)
{
    const char *kind, *resource;
    int64_t most;
    if (!parse_key(key, &kind, &resource) || !pp_quantity_of(hard, &most))
        return true;
    const json_t *taken = pp_json_get(quota, "status", "used", key, NULL);
    const int64_t used = used_of(quota, key);
    const usage without = with_overhead(of_pod(c->spec, NULL, kind, resource), c->spec, resource);
    const usage with =
        with_overhead(of_pod(c->spec, c->addition, kind, resource), c->spec, resource);
    const int64_t before = c->addition->counted ? 0 : without.amount;
    const int64_t after = c->addition->counted ? with.amount - without.amount : with.amount;
    if (pp_quantity_add(used, after) <= most || pp_quantity_add(used, before) > most ||
        after == before)
        return true;
    char lacks[40];
    format_amount(resource, pp_quantity_add(used, after) - most, lacks, sizeof lacks);
    (void)snprintf(c->why, c->size,
                   "the ResourceQuota %s has %s of %s %s in use, which leaves room for the pod but "
                   "not for the agent beside it, which lacks %s",
                   c->name, text_of(taken), text_of(hard), key, lacks);
    return false;
}

static const json_t *hard_of(const json_t *quota)
{
    const json_t *hard = pp_json_get(quota, "status", "hard", NULL);
    return hard ? hard : pp_json_get(quota, "spec", "hard", NULL);
}

static bool in_quota(const check *c, const json_t *quota)
{
    const json_t *hard = hard_of(quota);
    const char *key;
    json_t *value;
    if (!concerns(c, quota))
        return true;
    json_object_foreach((json_t *)(uintptr_t)hard, key, value)
    {
        if (!in_hard(c, quota, key, value))
            return false;
    }
    return true;
}

/* ---- both ---- */

static const char *name_of(const json_t *object)
{
    const char *name = pp_json_get_string(object, "metadata", "name", NULL);
    return name ? name : "";
}

const char *pp_inject_misfit(const pp_inject_limits *limits, const json_t *pod,
                             const pp_inject_addition *addition, char *why, size_t size)
{
    check c = {
        .spec = json_object_get(pod, "spec"), .addition = addition, .why = why, .size = size};
    for (size_t i = 0; limits && i < limits->n_ranges; i++) {
        c.name = name_of(limits->ranges[i]);
        if (!in_range(&c, limits->ranges[i]))
            return "LimitRangeExceeded";
    }
    for (size_t i = 0; limits && i < limits->n_quotas; i++) {
        c.name = name_of(limits->quotas[i]);
        if (!in_quota(&c, limits->quotas[i]))
            return "QuotaExceeded";
    }
    return NULL;
}

/* Also of what the probe asks for none: pods, GPUs. */
static int64_t needs(const json_t *spec, const char *key)
{
    static const char requests[] = "requests.", limits[] = "limits.";
    const bool asked = strncmp(key, requests, sizeof requests - 1) == 0;
    const bool limited = strncmp(key, limits, sizeof limits - 1) == 0;
    if (strcmp(key, "pods") == 0 || strcmp(key, "count/pods") == 0)
        return 1000;
    const char *resource = asked     ? key + sizeof requests - 1
                           : limited ? key + sizeof limits - 1
                                     : key;
    return with_overhead(of_pod(spec, NULL, limited ? "limits" : "requests", resource), spec,
                         resource)
        .amount;
}

static bool has_room(const check *c, const json_t *quota)
{
    const char *key;
    json_t *hard;
    json_object_foreach((json_t *)(uintptr_t)hard_of(quota), key, hard)
    {
        int64_t most;
        const int64_t more = needs(c->spec, key);
        if (pp_quantity_of(hard, &most) && more > 0 &&
            pp_quantity_add(used_of(quota, key), more) > most)
            return false;
    }
    return true;
}

bool pp_inject_fits_alone(const pp_inject_limits *limits, const json_t *pod)
{
    const check c = {.spec = json_object_get(pod, "spec")};
    for (size_t i = 0; limits && i < limits->n_quotas; i++) {
        if (concerns(&c, limits->quotas[i]) && !has_room(&c, limits->quotas[i]))
            return false;
    }
    return true;
}
