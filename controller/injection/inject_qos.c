#include "controller/injection/inject_qos.h"

#include "common/json.h"
#include "controller/injection/quantity.h"

static const char *const lists[] = {"containers", "initContainers"};

/* 0: none, as Kubernetes has it for an amount of 0. */
static int64_t amount(const json_t *container, const char *kind, const char *resource)
{
    int64_t value;
    return pp_quantity_of(pp_json_get(container, "resources", kind, resource, NULL), &value) ? value
                                                                                             : 0;
}

typedef struct totals {
    int64_t requests, limits;
    bool all_limited;
} totals;

static totals sum_up(const json_t *spec, const char *resource)
{
    totals sum = {.all_limited = true};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *list = json_object_get(spec, lists[i]);
        for (size_t j = 0; j < json_array_size(list); j++) {
            const json_t *container = json_array_get(list, j);
            const int64_t request = amount(container, "requests", resource);
            const int64_t limit = amount(container, "limits", resource);
            sum.requests = pp_quantity_add(sum.requests, request);
            sum.limits = pp_quantity_add(sum.limits, limit);
            sum.all_limited = sum.all_limited && limit > 0;
        }
    }
    return sum;
}

pp_inject_qos pp_inject_qos_of(const json_t *spec)
{
    const totals cpu = sum_up(spec, "cpu"), memory = sum_up(spec, "memory");
    if (cpu.requests == 0 && cpu.limits == 0 && memory.requests == 0 && memory.limits == 0)
        return PP_QOS_BEST_EFFORT;
    if (cpu.all_limited && memory.all_limited && cpu.requests == cpu.limits &&
        memory.requests == memory.limits)
        return PP_QOS_GUARANTEED;
    return PP_QOS_BURSTABLE;
}
