#include "cli/tables/headline.h"

#include "cli/results/items.h"

#include <string.h>

/* What marks may have added is not worth a range below that. */
#define NOTICEABLE 0.95

/* A layer's phases together. Texts are the results'. */
typedef struct cost {
    const char *name;
    double ms, least_ms, share;
    size_t phases;
    const json_t *most; /* its costliest phase */
} cost;

const char *pp_bound_phrase(const char *bound)
{
    static const struct {
        const char *name, *phrase;
    } all[] = {{"Tensor", "tensor cores"},
               {"FP32", "FP32 pipes"},
               {"Memory", "memory bandwidth"},
               {"Latency", "latency of kernels"},
               {"Communication", "communication"},
               {"Data", "data loading"},
               {"Synchronization", "host synchronization"},
               {"Launch", "launches"},
               {"Unknown", "unknown"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(bound, all[i].name) == 0)
            return all[i].phrase;
    return bound;
}

static double number_of(const json_t *item, const char *key)
{
    return json_number_value(json_object_get(item, key));
}

static double least_of(const json_t *item)
{
    const json_t *least = json_object_get(item, "leastMillisecondsPerStep");
    return json_is_number(least) ? json_number_value(least)
                                 : number_of(item, "millisecondsPerStep");
}

/* The layers that have been seen by name, each with its phases' rows. NULL where memory is out. */
static json_t *rows_by_layer(const json_t *gpu)
{
    json_t *all = json_object(), *item;
    size_t i;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const char *name = pp_results_text(item, "layer");
        if (!pp_item_is_layer(item))
            continue;
        json_t *rows = json_object_get(all, name);
        if (!rows && (rows = json_array()))
            (void)json_object_set_new(all, name, rows);
        (void)json_array_append(rows, item);
    }
    return all;
}

static cost cost_of(const char *name, const json_t *rows)
{
    cost c = {.name = name};
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        c.phases++;
        c.ms += number_of(row, "millisecondsPerStep");
        c.least_ms += least_of(row);
        c.share += number_of(row, "share");
        if (!c.most || least_of(row) > least_of(c.most))
            c.most = row;
    }
    return c;
}

/* How sure the time of several phases together is nobody tells; of the costliest it is known. */
static void print_time(FILE *to, const cost *c)
{
    static const char ms[] = "millisecondsPerStep", error[] = "millisecondsPerStepStandardError";
    const bool at_most = c->least_ms < NOTICEABLE * c->ms;
    (void)fprintf(to, "costliest layer: %s, %s%.1f %% of a step (", c->name,
                  at_most ? "at most " : "", 100 * c->share);
    if (at_most)
        (void)fprintf(to, "%.3f to %.3f ms", c->least_ms, c->ms);
    else if (c->phases > 1)
        (void)fprintf(to, "%.3f ms", c->ms);
    else {
        pp_item_print_ms(to, c->most, ms, error);
        (void)fputs(" ms", to);
    }
    if (c->phases > 1)
        (void)fprintf(to, ", most of it %s", pp_results_text(c->most, "phase"));
    if (c->phases > 1 && !at_most && json_is_number(json_object_get(c->most, error))) {
        (void)fputs(": ", to);
        pp_item_print_ms(to, c->most, ms, error);
        (void)fputs(" ms", to);
    }
    (void)fputc(')', to);
}

static void print_bound(FILE *to, const json_t *item)
{
    const char *bound = pp_results_text(item, "bound");
    const double likely = number_of(item, "boundLikely");
    if (!*bound)
        (void)fputs("; what bounds it is not known", to);
    else if (likely >= PP_ITEM_ALL_BUT_SURE)
        (void)fprintf(to, "; bound by %s (more than 99.9 %% sure)", pp_bound_phrase(bound));
    else
        (void)fprintf(to, "; %sbound by %s (%.1f %% sure)", likely < PP_ITEM_SURE ? "perhaps " : "",
                      pp_bound_phrase(bound), 100 * likely);
}

/* A layer is the costliest layer, and may be a trifle all the same. */
static void print_more(FILE *to, const json_t *gpu, const cost *c)
{
    size_t i;
    json_t *item, *most = NULL;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const char *kind = pp_results_text(item, "kind");
        if (pp_item_is_layer(item) || strcmp(kind, "idle") == 0 || strcmp(kind, "job") == 0)
            continue;
        if (least_of(item) > (most ? least_of(most) : c->least_ms))
            most = item;
    }
    if (most)
        (void)fprintf(to, "; more takes: %s, %.1f %%", pp_results_text(most, "kind"),
                      100 * number_of(most, "share"));
}

void pp_headline_print(FILE *to, const json_t *gpu)
{
    json_t *all = rows_by_layer(gpu), *rows;
    const char *name;
    cost most = {0};
    json_object_foreach(all, name, rows)
    {
        const cost c = cost_of(name, rows);
        if (c.least_ms > most.least_ms || (!most.name && c.ms > 0))
            most = c;
    }
    if (most.name) {
        print_time(to, &most);
        print_bound(to, most.most);
        print_more(to, gpu, &most);
        (void)fputc('\n', to);
    }
    json_decref(all);
}
