#include "cli/tables/table_waits.h"

#include "cli/results/results.h"
#include "cli/terminal/names.h"

#include <stdbool.h>
#include <string.h>

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Whole, without control characters. */
static void print_text(FILE *to, const char *text)
{
    const pp_name_cut whole = {.places = pp_name_places(text), .head = pp_name_places(text)};
    pp_name_print(to, text, &whole);
}

static const char *base_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash && slash[1] ? slash + 1 : file;
}

/* Whether another listed line is of another file of that name. */
static bool is_ambiguous(const json_t *calls, const char *file)
{
    size_t i;
    json_t *call;
    json_array_foreach((json_t *)(uintptr_t)calls, i, call)
    {
        const char *other = pp_results_text(call, "file");
        if (strcmp(other, file) != 0 && strcmp(base_of(other), base_of(file)) == 0)
            return true;
    }
    return false;
}

static void print_place(FILE *to, const json_t *calls, const json_t *call)
{
    const char *file = pp_results_text(call, "file"), *layer = pp_results_text(call, "layer");
    print_text(to, pp_results_text(call, "call"));
    (void)fputs("()", to);
    if (*file) {
        (void)fputs(" in ", to);
        print_text(to, is_ambiguous(calls, file) ? file : base_of(file));
        (void)fprintf(to, ":%lld", (long long)json_integer_value(json_object_get(call, "line")));
    }
    (void)fputs(*layer ? " (layer " : " (", to);
    print_text(to, layer);
    (void)fprintf(to, "%s%s)", *layer ? ", " : "", pp_results_text(call, "phase"));
}

static void print_call(FILE *to, const json_t *calls, const json_t *call)
{
    const double share = number_of(call, "shareOfSteps");
    (void)fputs("host waits: ", to);
    print_place(to, calls, call);
    (void)fprintf(to, ": %.*f calls a step", number_of(call, "callsPerStep") < 0.1 ? 3 : 1,
                  number_of(call, "callsPerStep"));
    if (share < 0.995)
        (void)fprintf(to, " (in %.1f%% of steps)", 100 * share);
    (void)fprintf(to, ", %.3f ms of a step\n", number_of(call, "millisecondsPerStep"));
}

void pp_table_waits_print(FILE *to, const json_t *results)
{
    size_t i;
    json_t *call;
    double ms = -1;
    const json_t *calls = json_object_get(json_object_get(results, "hostWaits"), "calls");
    if (json_array_size(calls) > 0)
        (void)fputc('\n', to);
    json_array_foreach((json_t *)(uintptr_t)calls, i, call)
    {
        if (i < PP_TABLE_WAITS && *pp_results_text(call, "call")) {
            print_call(to, calls, call);
            continue;
        }
        ms = (ms < 0 ? 0 : ms) + number_of(call, "millisecondsPerStep");
    }
    if (ms >= 0)
        (void)fprintf(to, "host waits: elsewhere: %.3f ms of a step\n", ms);
    if (json_array_size(calls) > 0 && pp_results_have_gpu(results))
        (void)fputs("(the GPU works while the host waits for it: what that costs is host "
                    "synchronization in \"bound by\")\n",
                    to);
}
