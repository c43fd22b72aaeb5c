#include "cli/tables/table_pattern.h"

#include "cli/results/results.h"
#include "cli/tables/amounts.h"
#include "cli/tables/headline.h"
#include "common/cleanup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

/* What the unit does meanwhile, as " (3.9 TB/s of 4.92 TB/s)". */
static void print_evidence(FILE *to, const json_t *bound)
{
    const double achieved = value_of(json_object_get(bound, "achieved"));
    const double peak = json_number_value(json_object_get(bound, "peak"));
    const bool bytes = strcmp(pp_results_text(bound, "peakUnit"), "bytes per second") == 0;
    char texts[2][PP_AMOUNT_SIZE];
    pp_amount_format(achieved, bytes ? "B/s" : "FLOP/s", texts[0]);
    pp_amount_format(peak, bytes ? "B/s" : "FLOP/s", texts[1]);
    if (achieved > 0 && peak > 0)
        (void)fprintf(to, " (%s of %s)", texts[0], texts[1]);
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
        (void)fprintf(to, "%s%s ", i ? ", " : "", pp_bound_phrase(pp_results_text(all[i], "by")));
        print_percent(to, share);
        print_evidence(to, all[i]);
    }
    (void)fputs("\n", to);
}

void pp_table_pattern_print(FILE *to, const json_t *results)
{
    const json_t *bounds = json_object_get(json_object_get(results, "pattern"), "bounds");
    if (bounds && pp_results_have_gpu(results)) /* else there is none that anything could bound */
        print_bounds(to, bounds);
}
