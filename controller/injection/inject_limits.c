#include "controller/injection/inject_limits.h"

#include "common/json.h"
#include "controller/injection/quantity.h"

#include <string.h>

const char *const pp_inject_counted[PP_INJECT_COUNTED] = {"cpu", "memory", "ephemeral-storage"};

bool pp_inject_is_type(const json_t *item, const char *type)
{
    const char *text = pp_json_get_string(item, "type", NULL);
    return text && strcmp(text, type) == 0;
}

/* The text of the greater one, or of the lesser one; what is no quantity is none. */
static void narrow(const char **at, const json_t *value, bool greatest)
{
    int64_t known = 0, found = 0;
    const char *text = json_string_value(value);
    if (!text || !pp_quantity_parse(text, &found))
        return;
    if (!*at || !pp_quantity_parse(*at, &known) || (greatest ? found > known : found < known))
        *at = text;
}

static void take_bounds(const json_t *item, const char *resource, pp_inject_bounds *ret)
{
    narrow(&ret->min, pp_json_get(item, "min", resource, NULL), true);
    narrow(&ret->max, pp_json_get(item, "max", resource, NULL), false);
    ret->ratio = ret->ratio || pp_json_get(item, "maxLimitRequestRatio", resource, NULL);
    ret->default_limit = ret->default_limit || pp_json_get(item, "default", resource, NULL);
    ret->default_request =
        ret->default_request || pp_json_get(item, "defaultRequest", resource, NULL);
}

void pp_inject_bounds_of(const pp_inject_limits *limits, const char *resource,
                         pp_inject_bounds *ret)
{
    *ret = (pp_inject_bounds){0};
    for (size_t i = 0; limits && i < limits->n_ranges; i++) {
        const json_t *items = pp_json_get(limits->ranges[i], "spec", "limits", NULL);
        for (size_t j = 0; j < json_array_size(items); j++) {
            if (pp_inject_is_type(json_array_get(items, j), "Container"))
                take_bounds(json_array_get(items, j), resource, ret);
        }
    }
}

bool pp_inject_is_counted(const char *resource)
{
    for (size_t i = 0; i < PP_INJECT_COUNTED; i++) {
        if (strcmp(resource, pp_inject_counted[i]) == 0)
            return true;
    }
    return false;
}

/* Whatever a LimitRange says of a resource makes the API server give a container an amount of it,
 * or ask that one is stated. */
static const char *const bounds[] = {"min", "max", "default", "defaultRequest",
                                     "maxLimitRequestRatio"};

void pp_inject_add_others(const json_t *item, json_t *others)
{
    const char *resource;
    json_t *value;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        json_object_foreach(json_object_get(item, bounds[i]), resource, value)
        {
            if (!pp_inject_is_counted(resource))
                (void)json_object_set_new(others, resource, json_string("0"));
        }
    }
}

json_t *pp_inject_others(const pp_inject_limits *limits)
{
    json_t *others = json_object();
    for (size_t i = 0; limits && i < limits->n_ranges; i++) {
        const json_t *items = pp_json_get(limits->ranges[i], "spec", "limits", NULL);
        for (size_t j = 0; j < json_array_size(items); j++) {
            if (pp_inject_is_type(json_array_get(items, j), "Container"))
                pp_inject_add_others(json_array_get(items, j), others);
        }
    }
    return others;
}
