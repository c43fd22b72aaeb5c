#include "cli/results/item_spread.h"

#include "cli/results/fold.h"
#include "cli/results/results.h"
#include "common/cleanup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int pp_item_number(pp_item_numbers *n, const char *phase, const char *layer, bool whole,
                   uint32_t *ret, pp_error *err)
{
    const size_t length = !whole && n->depth > 0 ? pp_fold_part(layer, n->depth) : strlen(layer);
    PP_CLEANUP_JSON json_t *name = json_sprintf("%s %.*s", phase, (int)length, layer);
    const char *key = json_string_value(name);
    const json_t *number = key ? json_object_get(n->keys, key) : NULL;
    *ret = number ? (uint32_t)json_integer_value(number) : (uint32_t)json_object_size(n->keys);
    if (key && (number || json_object_set_new(n->keys, key, json_integer(*ret)) == 0))
        return 0;
    return pp_error_nomem(err);
}

int pp_item_spread_set(json_t *to, const char *name, double standard_error, double freedom,
                       pp_error *err)
{
    char error_key[64], freedom_key[64];
    (void)snprintf(error_key, sizeof error_key, "%sStandardError", name);
    (void)snprintf(freedom_key, sizeof freedom_key, "%sFreedom", name);
    if (isnan(standard_error) || !json_is_number(json_object_get(to, name)))
        return 0;
    return json_object_set_new(to, error_key, json_real(standard_error)) == 0 &&
                   json_object_set_new(to, freedom_key, json_real(freedom)) == 0
               ? 0
               : pp_error_nomem(err);
}

/* What results tell shares time that items have together. */
static int set_shared(json_t *item, const char *name, pp_spread_mean whole, pp_error *err)
{
    const pp_spread_mean ms =
        pp_spread_shared(whole, json_number_value(json_object_get(item, name)));
    return pp_item_spread_set(item, name, ms.standard_error, ms.freedom, err);
}

static int describe_item(pp_spread *s, const pp_item_numbers *numbers, json_t *item, pp_error *err)
{
    static const char total[] = "millisecondsPerStep", busy[] = "busyMillisecondsPerStep";
    PP_CLEANUP_JSON json_t *name =
        json_sprintf("%s %s", pp_results_text(item, "phase"), pp_results_text(item, "layer"));
    const json_t *number = name ? json_object_get(numbers->keys, json_string_value(name)) : NULL;
    if (strcmp(pp_results_text(item, "kind"), "other") == 0) {
        const pp_spread_times rest = pp_spread_rest(s);
        return pp_item_spread_set(item, total, rest.total.standard_error * 1e-6, rest.total.freedom,
                                  err) < 0
                   ? -1
                   : set_shared(item, busy, rest.busy, err);
    }
    if (!number)
        return 0;
    const pp_spread_times t = pp_spread_item(s, (uint32_t)json_integer_value(number));
    return set_shared(item, total, t.total, err) < 0 ? -1 : set_shared(item, busy, t.busy, err);
}

int pp_item_spread_describe(pp_spread *s, const pp_item_numbers *numbers, json_t *gpu,
                            pp_error *err)
{
    const pp_spread_mean marked = pp_spread_marked(s), counted = pp_spread_counted(s);
    size_t i;
    json_t *item;
    if (pp_item_spread_set(gpu, "stepMs", marked.standard_error * 1e-6, marked.freedom, err) < 0 ||
        pp_item_spread_set(gpu, "countedStepMs", counted.standard_error * 1e-6, counted.freedom,
                           err) < 0)
        return -1;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (describe_item(s, numbers, item, err) < 0)
            return -1;
    }
    return 0;
}
