/*
 * What the added containers ask for: nothing, unless the pod's own containers make it necessary.
 *
 * The pod's QoS class stays what it was, since the kubelet evicts by it and pins CPUs by it. A
 * request that is not needed could make the pod one too large for its node.
 */
#include "controller/injection/inject_resources.h"

#include "common/cleanup.h"
#include "controller/injection/inject_limits.h"
#include "controller/injection/quantity.h"

#include <string.h>

/* Where an amount is needed and the configuration has none. */
static const char CPU[] = "50m", MEMORY[] = "64Mi", PM_MEMORY[] = "192Mi";

/* Twice what the agent allows itself. Its logs come to 50 MiB where the kubelet is not told
 * otherwise. */
static const char STORAGE[] = "192Mi";

/* Whether all of the pod's own containers, or any of them, state a resource. */
static bool stated(const json_t *spec, const char *kind, const char *resource, bool any)
{
    const json_t *containers = json_object_get(spec, "containers");
    for (size_t i = 0; i < json_array_size(containers); i++) {
        const json_t *there =
            pp_json_get(json_array_get(containers, i), "resources", kind, resource, NULL);
        if ((there != NULL) == any)
            return any;
    }
    return !any;
}

/* Texts, NULL where nothing is stated. */
typedef struct pair {
    const char *request, *limit;
} pair;

static const char *greater(const char *a, const char *b)
{
    int64_t one = 0, other = 0;
    if (!a || !b || !pp_quantity_parse(a, &one) || !pp_quantity_parse(b, &other))
        return a ? a : b;
    return other > one ? b : a;
}

static const char *lesser(const char *a, const char *b)
{
    return a && b && greater(a, b) == a ? b : a;
}

/*
 * As LimitRanges want each container's amounts: the least that they take. What is not stated, and
 * would be given an amount by them, is stated, since theirs are meant for the user's containers.
 */
static pair bounded(const pp_inject_turn *turn, const char *resource, pair want, const char *enough)
{
    pp_inject_bounds b;
    pp_inject_bounds_of(turn->opt->limits, resource, &b);
    if (!want.limit && (b.max || b.default_limit || b.ratio))
        want.limit = enough;
    if (!want.request && (b.min || b.default_request || want.limit))
        want.request = "0";
    if (want.limit)
        want.limit = lesser(greater(want.limit, b.min), b.max);
    if (want.request)
        want.request = lesser(greater(want.request, b.min), b.max);
    if (want.limit && want.request)
        want.limit = greater(want.limit, want.request);
    if (b.ratio)
        want.request = want.limit;
    return want;
}

/*
 * Where all of the pod's containers state a limit or a request, so do ours: a quota may demand it
 * of every container, and autoscaling refuses pods in which one states no request. A request of 0
 * does for both, and says that none is to be taken from the limit.
 */
static pair amounts(const pp_inject_turn *turn, const char *resource, const char *given,
                    const char *usual)
{
    const char *enough = given && *given ? given : usual;
    const bool limited = stated(turn->spec, "limits", resource, false);
    const bool requested = limited || stated(turn->spec, "requests", resource, false);
    const pair none = {requested ? "0" : NULL, limited ? "0" : NULL};
    if (turn->qos == PP_QOS_BEST_EFFORT)
        return none;
    if (turn->qos == PP_QOS_GUARANTEED)
        return bounded(turn, resource, (pair){enough, enough}, enough);
    const pair want = {given && *given ? given : none.request, limited ? enough : NULL};
    return bounded(turn, resource, want, enough);
}

/* The kubelet evicts a pod that uses more than the limits of its containers together: where one has
 * a limit ours adds to it, and where none has it would be all that the training may use. */
static pair storage(const pp_inject_turn *turn)
{
    static const char name[] = "ephemeral-storage";
    const bool limited = stated(turn->spec, "limits", name, true);
    const bool requested = limited || stated(turn->spec, "requests", name, false);
    const pair want = {requested ? "0" : NULL, limited ? STORAGE : NULL};
    return bounded(turn, name, want, STORAGE);
}

static json_t *list(const char *cpu, const char *memory, const char *disk)
{
    return json_pack("{s:s*, s:s*, s:s*}", "cpu", cpu, "memory", memory, "ephemeral-storage", disk);
}

static json_t *resources(pair cpu, pair memory, pair disk)
{
    static const char *const kinds[] = {"requests", "limits"};
    json_t *parts[] = {list(cpu.request, memory.request, disk.request),
                       list(cpu.limit, memory.limit, disk.limit)};
    json_t *value = json_object();
    for (size_t i = 0; i < 2; i++) {
        if (json_object_size(parts[i]))
            (void)json_object_set(value, kinds[i], parts[i]);
        json_decref(parts[i]);
    }
    return value;
}

/* None of what the containers of the training are meant to have. Huge pages are taken beside CPU or
 * memory only. */
static json_t *without_others(const pp_inject_turn *turn, json_t *value)
{
    static const char *const kinds[] = {"requests", "limits"};
    PP_CLEANUP_JSON json_t *others = pp_inject_others(turn->opt->limits);
    const char *name;
    json_t *none;
    bool huge = false;
    json_object_foreach(others, name, none)
    {
        huge = huge || strncmp(name, "hugepages-", sizeof "hugepages-" - 1) == 0;
    }
    for (size_t i = 0; i < 2 && json_object_size(others); i++) {
        if (!json_object_get(value, kinds[i]))
            (void)json_object_set_new(value, kinds[i], json_object());
        (void)json_object_update(json_object_get(value, kinds[i]), others);
    }
    json_t *requests = json_object_get(value, "requests");
    if (huge && !json_object_get(requests, "cpu"))
        (void)json_object_set_new(requests, "cpu", json_string("0"));
    return value;
}

json_t *pp_inject_agent_resources(const pp_inject_turn *turn)
{
    const pp_inject_options *opt = turn->opt;
    const bool pm = turn->session && pp_session_asks_sampling(turn->session, opt->sampling_auto);
    const pair cpu = amounts(turn, "cpu", opt->cpu, CPU);
    pair memory = pm ? amounts(turn, "memory", opt->sampling_memory, PM_MEMORY)
                     : amounts(turn, "memory", opt->memory, MEMORY);
    /* A configured amount is a limit too: what asks for more than there is, is killed alone. */
    if (turn->qos == PP_QOS_BURSTABLE && !memory.limit && memory.request &&
        strcmp(memory.request, "0") != 0)
        memory.limit = memory.request;
    return without_others(turn, resources(cpu, memory, storage(turn)));
}

/*
 * What runs before the trainer, and alone, has its amounts: LimitRanges take them, and the pod asks
 * for no more, since the greater of the init containers' and the containers' sum counts. A smaller
 * limit of CPU would only delay the training.
 */
json_t *pp_inject_early_resources(const pp_inject_turn *turn, size_t trainer)
{
    static const char *const kinds[] = {"requests", "limits"};
    static const char *const kept[] = {"cpu", "memory", "ephemeral-storage"};
    const json_t *container = json_array_get(json_object_get(turn->spec, "containers"), trainer);
    json_t *value = json_object();
    for (size_t i = 0; i < 6; i++) {
        const char *kind = kinds[i / 3], *name = kept[i % 3];
        const json_t *own = pp_json_get(container, "resources", kind, name, NULL);
        if (!own)
            continue;
        if (!json_object_get(value, kind))
            (void)json_object_set_new(value, kind, json_object());
        (void)json_object_set_new(json_object_get(value, kind), name, json_deep_copy(own));
    }
    return without_others(turn, value);
}
