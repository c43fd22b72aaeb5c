/* Rows of results.json's gpus, as tables and pages look at them. */
#ifndef PP_CLI_RESULTS_ITEMS_H
#define PP_CLI_RESULTS_ITEMS_H

#include "cli/results/results.h"

#include <stdio.h>
#include <string.h>

/** Milliseconds of a step that are less than what a table shows. */
#define PP_ITEM_NOTHING_MS 0.0005

/** A bound that is less likely is only supposed. */
#define PP_ITEM_SURE 0.95
/** One that is more likely is told as more than 99.9 % sure: 100.0 % says too much. */
#define PP_ITEM_ALL_BUT_SURE 0.9995

/** A layer in a phase; what else there is are the step's own phases, `other`, `idle` and `job`. */
static inline bool pp_item_is_layer(const json_t *item)
{
    return strcmp(pp_results_text(item, "kind"), "layer") == 0;
}

/** What stands in the first column. */
static inline const char *pp_item_name(const json_t *item)
{
    return pp_results_text(item, pp_item_is_layer(item) ? "layer" : "kind");
}

/** Of a layer; of anything else the kind says it all, and this is "". */
static inline const char *pp_item_phase(const json_t *item)
{
    return pp_item_is_layer(item) ? pp_results_text(item, "phase") : "";
}

/** Less than a thousandth of what a table shows: Identity, Dropout in evaluation. */
static inline bool pp_item_is_nothing(const json_t *item)
{
    const json_t *ms = json_object_get(item, "millisecondsPerStep");
    const json_t *busy = json_object_get(item, "busyMillisecondsPerStep");
    return pp_item_is_layer(item) && json_is_number(ms) &&
           json_number_value(ms) < PP_ITEM_NOTHING_MS &&
           (!json_is_number(busy) || json_number_value(busy) < PP_ITEM_NOTHING_MS);
}

/** Whether marks may have made its time noticeably longer, by gaps. */
static inline bool pp_item_is_lengthened(const json_t *item)
{
    const json_t *least = json_object_get(item, "leastMillisecondsPerStep");
    const double ms = json_number_value(json_object_get(item, "millisecondsPerStep"));
    return json_is_number(least) && json_number_value(least) < 0.95 * ms;
}

/** A time in ms, with its standard error where that is known: "5.000±0.120". */
static inline void pp_item_print_ms(FILE *to, const json_t *of, const char *ms, const char *error)
{
    const json_t *known = json_object_get(of, error);
    (void)fprintf(to, "%.3f", json_number_value(json_object_get(of, ms)));
    if (json_is_number(known))
        (void)fprintf(to, "±%.3f", json_number_value(known));
}

/** Whether a metric (by its name in a spec) has a value of its own or of a group. */
static inline bool pp_item_has_value(const json_t *item, const char *metric)
{
    const json_t *value = pp_json_get(item, "metrics", metric, NULL);
    return json_is_number(json_object_get(value, "mean")) ||
           json_is_number(json_object_get(value, "groupMean"));
}

#endif
