#include "cli/results/sort.h"

#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/metric.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    json_t *item; /* its own reference */
    const char *name;
    double value; /* NaN: not known */
    int group;    /* those of a higher one come later */
    size_t place; /* before */
} entry;

/* What is looked at: a field, of texts or of numbers, or a metric's mean where it is NULL. */
typedef struct order {
    const char *field;
    bool text;
    const char *metric;
} order;

static int find_order(const char *by, order *ret, pp_error *err)
{
    static const struct {
        const char *name, *field;
        bool text;
    } fields[] = {{"layer", "layer", true},
                  {"type", "type", true},
                  {"phase", "phase", true},
                  {"bound", "bound", true},
                  {"time", "millisecondsPerStep", false},
                  {"ms_per_step", "millisecondsPerStep", false},
                  {"least_ms_per_step", "leastMillisecondsPerStep", false},
                  {"share", "share", false},
                  {"busy_ms_per_step", "busyMillisecondsPerStep", false},
                  {"idle_share", "idleShare", false},
                  {"calls", "calls", false},
                  {"parameters", "parameters", false},
                  {"memory_peak_bytes", "memoryPeakBytes", false},
                  {"memory_live_bytes", "memoryLiveBytes", false}};
    pp_metric metric;
    *ret = (order){0};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(by, fields[i].name) == 0)
            *ret = (order){.field = fields[i].field, .text = fields[i].text};
    }
    if (!ret->field && pp_metric_from_name(by, &metric) == 0)
        ret->metric = pp_metric_get(metric)->spec_name;
    return ret->field || ret->metric
               ? 0
               : pp_error_field(err, "--sort",
                                "must be layer, type, phase, bound, time, share, ms_per_step, "
                                "least_ms_per_step, busy_ms_per_step, idle_share, calls, "
                                "parameters, memory_peak_bytes, memory_live_bytes or a metric, "
                                "not %s",
                                by);
}

static double value_of(const json_t *item, const order *o)
{
    const json_t *value = o->metric ? pp_json_get(item, "metrics", o->metric, "mean", NULL)
                                    : json_object_get(item, o->field);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Layers come first in an order of texts, since others have none of them. */
static entry entry_of(json_t *item, const order *o, size_t place)
{
    const char *kind = pp_results_text(item, "kind");
    entry e = {.item = json_incref(item), .place = place, .value = value_of(item, o)};
    e.name = o->text ? pp_results_text(item, o->field) : "";
    e.group = strcmp(kind, "idle") == 0  ? 2
              : strcmp(kind, "job") == 0 ? 3
              : o->text                  ? strcmp(kind, "layer") != 0 || !*e.name
                                         : isnan(e.value);
    return e;
}

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->value > y->value || x->value < y->value)
        return x->value > y->value ? -1 : 1;
    const int by = strcmp(x->name, y->name);
    return by ? by : (x->place > y->place) - (x->place < y->place);
}

static int sort_items(json_t *items, const order *o, pp_error *err)
{
    const size_t n = json_array_size(items);
    PP_CLEANUP_FREE entry *entries = calloc(n + 1, sizeof *entries);
    if (!entries)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        entries[i] = entry_of(json_array_get(items, i), o, i);
    if (n > 0)
        qsort(entries, n, sizeof *entries, compare);
    for (size_t i = 0; i < n; i++)
        (void)json_array_set_new(items, i, entries[i].item);
    return 0;
}

int pp_results_sort(json_t *results, const char *by, pp_error *err)
{
    order o;
    size_t i;
    json_t *gpu;
    if (find_order(by, &o, err) < 0)
        return -1;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (sort_items(json_object_get(gpu, "items"), &o, err) < 0)
            return -1;
    }
    return 0;
}
