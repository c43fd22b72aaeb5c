#include "cli/tables/table_ranks.h"

#include "cli/results/results.h"
#include "cli/terminal/names.h"

/* Whole, without control characters. */
static void print_name(FILE *to, const char *name)
{
    const pp_name_cut whole = {.places = pp_name_places(name), .head = pp_name_places(name)};
    pp_name_print(to, name, &whole);
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static long long integer_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_rank(FILE *to, const json_t *rank)
{
    const json_t *error = json_object_get(rank, "ownStandardErrorMs");
    if (integer_of(rank, "steps") == 0) {
        (void)fprintf(to, "%4lld %7lld %7d %9s %17s %9s\n", integer_of(rank, "rank"),
                      integer_of(rank, "process"), 0, "-", "-", "-");
        return;
    }
    (void)fprintf(to, "%4lld %7lld %7lld %9.3f %9.3f", integer_of(rank, "rank"),
                  integer_of(rank, "process"), integer_of(rank, "steps"), number_of(rank, "stepMs"),
                  number_of(rank, "ownMs"));
    if (json_is_number(error))
        (void)fprintf(to, " ±%6.3f", json_number_value(error));
    else
        (void)fprintf(to, " %7s", "");
    (void)fprintf(to, " %9.3f\n", number_of(rank, "waitMs"));
}

static void print_slowest(FILE *to, const json_t *slowest)
{
    size_t i;
    json_t *item;
    (void)fprintf(to,
                  "the others wait for rank %lld (process %lld): by %.3f ms ± %.3f of a step, in "
                  "%lld of %lld steps, longest in step %lld (%.3f ms of its own)\n",
                  integer_of(slowest, "rank"), integer_of(slowest, "process"),
                  number_of(slowest, "behindMs"), number_of(slowest, "behindStandardErrorMs"),
                  integer_of(slowest, "lateSteps"), integer_of(slowest, "toldSteps"),
                  integer_of(slowest, "worstStep"), number_of(slowest, "worstMs"));
    json_array_foreach(json_object_get(slowest, "items"), i, item)
    {
        const char *layer = pp_results_text(item, "layer");
        (void)fputs("  ", to);
        print_name(to, layer);
        (void)fputs(*layer ? " " : "", to);
        print_name(to, pp_results_text(item, "phase"));
        (void)fprintf(to, ": %.3f ms of its step, %.3f of the others'\n",
                      number_of(item, "millisecondsPerStep"),
                      number_of(item, "othersMillisecondsPerStep"));
    }
}

void pp_table_ranks_print(FILE *to, const json_t *results)
{
    size_t i;
    json_t *rank;
    const json_t *ranks = json_object_get(results, "ranks");
    const json_t *slowest = json_object_get(results, "slowest");
    if (json_array_size(ranks) < 2)
        return;
    (void)fprintf(to,
                  "\nranks, side by side (of a marked step; own: all but communication that it "
                  "waits in)\n%4s %7s %7s %9s %17s %9s\n",
                  "rank", "process", "steps", "ms/step", "own ms", "waits ms");
    json_array_foreach((json_t *)(uintptr_t)ranks, i, rank) print_rank(to, rank);
    if (slowest)
        print_slowest(to, slowest);
}
