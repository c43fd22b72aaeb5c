#include "cli/table_pattern.h"

#include "cli/results.h"
#include "common/cleanup.h"

#include <stdlib.h>
#include <string.h>

/* In the words of a person. */
static const char *phrase_of(const char *bound)
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

static double value_of(const json_t *figure)
{
    return json_number_value(json_object_get(figure, "value"));
}

static void print_percent(FILE *to, const json_t *figure)
{
    const json_t *error = json_object_get(figure, "standardError");
    (void)fprintf(to, "%.1f %%", 100 * value_of(figure));
    if (json_is_number(error))
        (void)fprintf(to, " ± %.1f", 100 * json_number_value(error));
}

static int compare_shares(const void *a, const void *b)
{
    const double x = value_of(json_object_get(*(json_t *const *)a, "share"));
    const double y = value_of(json_object_get(*(json_t *const *)b, "share"));
    return (x < y) - (x > y);
}

/* Shares of half a percent and more, most first. */
static void print_bounds(FILE *to, const json_t *bounds)
{
    const size_t n = json_array_size(bounds);
    PP_CLEANUP_FREE const json_t **all = calloc(n + 1, sizeof(const json_t *));
    if (!all)
        return;
    for (size_t i = 0; i < n; i++)
        all[i] = json_array_get(bounds, i);
    qsort(all, n, sizeof(const json_t *), compare_shares);
    (void)fputs("\nbound by, of a step: ", to);
    for (size_t i = 0; i < n; i++) {
        const json_t *share = json_object_get(all[i], "share");
        if (i > 0 && value_of(share) < 0.005)
            break;
        (void)fprintf(to, "%s%s ", i ? ", " : "", phrase_of(pp_results_text(all[i], "by")));
        print_percent(to, share);
    }
    (void)fputs("\n", to);
}

/* A training on the CPU has no GPU that anything could bound. */
static bool has_gpu(const json_t *results)
{
    size_t i;
    const json_t *gpu;
    json_array_foreach((json_t *)(uintptr_t)json_object_get(results, "gpus"), i, gpu)
    {
        if (*pp_results_text(gpu, "gpu"))
            return true;
    }
    return false;
}

void pp_table_pattern_print(FILE *to, const json_t *results)
{
    const json_t *bounds = json_object_get(json_object_get(results, "pattern"), "bounds");
    if (bounds && has_gpu(results))
        print_bounds(to, bounds);
}
