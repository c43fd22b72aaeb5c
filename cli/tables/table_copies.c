#include "cli/tables/table_copies.h"

#include "cli/results/results.h"
#include "cli/tables/amounts.h"
#include "cli/terminal/names.h"

#include <string.h>

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *type_of(const json_t *item)
{
    static const struct {
        const char *type, *text;
    } texts[] = {{"h2d", "host to device"},
                 {"d2h", "device to host"},
                 {"d2d", "device to device"},
                 {"p2p", "device to another"}};
    const char *type = pp_results_text(item, "type");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(type, texts[i].type) == 0)
            return texts[i].text;
    return type;
}

static void print_item(FILE *to, const json_t *item)
{
    const char *memory = pp_results_text(item, "memory"), *layer = pp_results_text(item, "layer");
    const json_t *rate = json_object_get(item, "gigabytesPerSecond");
    const int places = (int)pp_name_places(layer);
    (void)fprintf(to, "copies: %s%s%s (%s", type_of(item), *memory ? ", " : "", memory,
                  *layer ? "layer " : "");
    pp_name_print(to, layer, &(pp_name_cut){.places = places, .head = places});
    char bytes[PP_AMOUNT_SIZE], speed[PP_AMOUNT_SIZE];
    pp_amount_format(number_of(item, "bytesPerStep"), "B", bytes);
    pp_amount_format(1e9 * json_number_value(rate), "B/s", speed);
    (void)fprintf(to, "%s%s): %.*f a step, %s", *layer ? ", " : "", pp_results_text(item, "phase"),
                  number_of(item, "perStep") < 0.1 ? 3 : 1, number_of(item, "perStep"), bytes);
    if (rate)
        (void)fprintf(to, " at %s", speed);
    (void)fprintf(to, ", %.3f ms of a step\n", number_of(item, "millisecondsPerStep"));
}

void pp_table_copies_print(FILE *to, const json_t *results)
{
    size_t i;
    json_t *item;
    double ms = -1, bytes = 0;
    const json_t *items = json_object_get(json_object_get(results, "copies"), "items");
    if (json_array_size(items) > 0)
        (void)fputc('\n', to);
    json_array_foreach((json_t *)(uintptr_t)items, i, item)
    {
        if (i < PP_TABLE_COPIES && *pp_results_text(item, "type")) {
            print_item(to, item);
            continue;
        }
        ms = (ms < 0 ? 0 : ms) + number_of(item, "millisecondsPerStep");
        bytes += number_of(item, "bytesPerStep");
    }
    char text[PP_AMOUNT_SIZE];
    pp_amount_format(bytes, "B", text);
    if (ms >= 0)
        (void)fprintf(to, "copies: others: %s, %.3f ms of a step\n", text, ms);
}
