#include "cli/tables/table_layout.h"

#include "cli/results/items.h"

#include <stdlib.h>

enum {
    NAME_LEAST = 24, /* places of layers' names, where there are columns that could go instead */
    NAME_LEAST_OF_ALL = 12,
    TYPE_MOST = 20, /* of their types, where the terminal is too narrow */
    PHASE_PLACES = 9,
    CALLS_PLACES = 7,
    TIME_PLACES = 9,
    SHARE_PLACES = 6,
    IDLE_PLACES = 7, /* "≤100.0%" */
    MOST_COLUMNS = PP_METRIC_COUNT + 8,
};

static void measure(pp_table_layout *l, const json_t *item)
{
    const int layer = pp_name_places(pp_item_name(item)),
              type = pp_name_places(pp_results_text(item, "type"));
    l->layer.places = layer > l->layer.places ? layer : l->layer.places;
    l->type.places = type > l->type.places ? type : l->type.places;
    l->bounds |= *pp_results_text(item, "bound") != '\0';
    l->memory |= json_is_integer(json_object_get(item, "memoryPeakBytes"));
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++)
        l->metrics[metric] |= pp_item_has_value(item, pp_metric_get(metric)->spec_name);
}

/* ---- columns that may be left out ---- */

typedef struct optional {
    bool *shown;
    int places; /* with the space before it */
    const char *name;
} optional;

/* By which it is told what bounds a layer. */
static bool is_evidence(pp_metric metric)
{
    return metric == PP_METRIC_TENSOR_ACTIVE || metric == PP_METRIC_FP32_ACTIVE ||
           metric == PP_METRIC_DRAM_ACTIVE;
}

/* The least important first: what the others leave a person without, a wider terminal has. Metrics
 * go from the right, those last that tell what bounds a layer, and that itself after them. */
static size_t list_optional(pp_table_layout *l, optional all[static MOST_COLUMNS])
{
    pp_metric metrics[PP_METRIC_COUNT];
    int n_metrics = 0;
    size_t n = 0;
    while ((metrics[n_metrics] = pp_metric_in_column(n_metrics)) < PP_METRIC_COUNT)
        n_metrics++;
    all[n++] = (optional){&l->calls, CALLS_PLACES + 1, "calls"};
    all[n++] = (optional){&l->memory, 2 * (PP_TABLE_MEMORY_PLACES + 1), "memory"};
    all[n++] = (optional){&l->types, l->type.places + 1, "type"};
    for (int evidence = 0; evidence < 2; evidence++) {
        if (evidence)
            all[n++] = (optional){&l->busy, TIME_PLACES + 1, "busy ms"};
        for (int i = n_metrics - 1; i >= 0; i--)
            if (is_evidence(metrics[i]) == (bool)evidence)
                all[n++] = (optional){&l->metrics[metrics[i]], PP_TABLE_METRIC_PLACES + 1,
                                      pp_metric_get(metrics[i])->heading};
    }
    all[n++] = (optional){&l->idle, IDLE_PLACES + 1, "idle"};
    all[n++] = (optional){&l->bounds, PP_TABLE_BOUND_PLACES + 1, "bound"};
    return n;
}

static void note_left_out(pp_table_layout *l, const char *name)
{
    const size_t n = strlen(l->left_out);
    (void)snprintf(l->left_out + n, sizeof l->left_out - n, "%s%s", n ? ", " : "", name);
}

/* Of a terminal, what all columns leave for layers' names. */
static int places_left(pp_table_layout *l, int columns)
{
    optional all[MOST_COLUMNS];
    const size_t n = list_optional(l, all);
    int left = columns - (PHASE_PLACES + 1) - (TIME_PLACES + 1) - (SHARE_PLACES + 1);
    for (size_t i = 0; i < n; i++)
        left -= *all[i].shown ? all[i].places : 0;
    return left;
}

/* The same, once columns that have no place are left out. */
static int leave_out(pp_table_layout *l, int columns, int longest)
{
    optional all[MOST_COLUMNS];
    const size_t n = list_optional(l, all);
    const int wanted = longest < NAME_LEAST ? longest : NAME_LEAST;
    int left = places_left(l, columns);
    for (size_t i = 0; i < n && left < wanted; i++) {
        if (!*all[i].shown)
            continue;
        *all[i].shown = false;
        left += all[i].places;
        note_left_out(l, all[i].name);
    }
    return left;
}

/* ---- names ---- */

/* As much of the names as leaves them apart; whole ones on lines of their own where nothing does.
 */
static void cut_names(pp_table_layout *l, const json_t *items, int places)
{
    size_t i, n = 0;
    json_t *item;
    pp_name_cut cut = {.places = places};
    const char **names = calloc(json_array_size(items) + 1, sizeof *names);
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (names && !pp_item_is_nothing(item))
            names[n++] = pp_item_name(item);
    }
    l->own_lines = !names || !pp_names_cut(names, n, places, &cut);
    l->layer = l->own_lines ? (pp_name_cut){.places = places} : cut;
    free(names);
}

/* Names get what the other columns leave of a terminal. */
static void fit(pp_table_layout *l, const json_t *items, int columns)
{
    const int longest = l->layer.places;
    if (l->type.places > TYPE_MOST && places_left(l, columns) < longest)
        l->type = (pp_name_cut){TYPE_MOST, TYPE_MOST / 2, 0};
    const int left = leave_out(l, columns, longest);
    const int most = left > NAME_LEAST_OF_ALL ? left : NAME_LEAST_OF_ALL;
    if (longest > most)
        cut_names(l, items, most);
}

pp_table_layout pp_table_lay_out(const json_t *gpu, int columns)
{
    pp_table_layout l = {.layer.places = (int)strlen("layer"),
                         .type.places = (int)strlen("type"),
                         .types = true,
                         .calls = true,
                         .busy = true,
                         .idle = true};
    size_t i;
    json_t *item;
    const json_t *items = json_object_get(gpu, "items");
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (!pp_item_is_nothing(item))
            measure(&l, item);
    }
    if (l.layer.places < NAME_LEAST && (columns <= 0 || places_left(&l, columns) >= NAME_LEAST))
        l.layer.places = NAME_LEAST;
    if (columns > 0)
        fit(&l, items, columns);
    return l;
}

void pp_table_layout_heading(FILE *to, const pp_table_layout *l)
{
    (void)fprintf(to, "%-*s", l->layer.places, "layer");
    if (l->types)
        (void)fprintf(to, " %-*s", l->type.places, "type");
    (void)fprintf(to, " %-*s", PHASE_PLACES, "phase");
    if (l->calls)
        (void)fprintf(to, " %*s", CALLS_PLACES, "calls");
    (void)fprintf(to, " %*s %*s", TIME_PLACES, "ms/step", SHARE_PLACES, "share");
    if (l->busy)
        (void)fprintf(to, " %*s", TIME_PLACES, "busy ms");
    if (l->idle)
        (void)fprintf(to, " %*s", IDLE_PLACES, "idle");
    pp_metric metric;
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        if (l->metrics[metric])
            (void)fprintf(to, " %*s", PP_TABLE_METRIC_PLACES, pp_metric_get(metric)->heading);
    }
    if (l->memory)
        (void)fprintf(to, " %*s %*s", PP_TABLE_MEMORY_PLACES, "peak MiB", PP_TABLE_MEMORY_PLACES,
                      "live MiB");
    if (l->bounds)
        (void)fputs(" bound", to);
    (void)fputc('\n', to);
}
