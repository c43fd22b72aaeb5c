#include "cli/compare/compare_files.h"

#include "cli/compare/significance.h"
#include "cli/formats/csv.h"
#include "cli/results/items.h"
#include "common/number.h"

#include <math.h>

enum { COLUMNS = 21 };

static const char *const names[COLUMNS] = {"session",
                                           "other_session",
                                           "gpu_uuid",
                                           "other_gpu_uuid",
                                           "kind",
                                           "layer",
                                           "phase",
                                           "only_in",
                                           "quantity",
                                           "unit",
                                           "value",
                                           "stderr",
                                           "other_value",
                                           "other_stderr",
                                           "difference",
                                           "difference_stderr",
                                           "z",
                                           "p",
                                           "more_than_noise",
                                           "reason",
                                           "reason_detail"};

/* A text, a number, a truth, or nothing. */
typedef struct cell {
    const char *text;
    double number;
    int truth; /* -1: none */
} cell;

static cell of_text(const char *text)
{
    return (cell){text, (double)NAN, -1};
}

static cell of_number(double number)
{
    return (cell){NULL, number, -1};
}

static void fill_value(cell row[static COLUMNS], const pp_compared *v)
{
    const double numbers[] = {v->value,       v->error,      v->other,
                              v->other_error, v->difference, v->difference_error,
                              v->z,           v->p};
    row[8] = of_text(v->quantity);
    row[9] = of_text(v->unit);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        row[10 + i] = of_number(numbers[i]);
    row[18].truth = isnan(v->z) ? -1 : v->marked;
    row[19] = of_text(*v->reason ? v->reason : NULL);
    row[20] = of_text(*v->told ? v->told : NULL);
}

static void fill_item(cell row[static COLUMNS], const pp_comparison *c, size_t gpu,
                      const json_t *item, const char *only)
{
    for (size_t i = 0; i < COLUMNS; i++)
        row[i] = of_number((double)NAN);
    row[0] = of_text(c->training->name);
    row[1] = of_text(c->other->name);
    row[2] = of_text(c->gpus[gpu].gpu);
    row[3] = of_text(c->gpus[gpu].other);
    row[4] = of_text(item ? pp_results_text(item, "kind") : "step");
    row[5] = of_text(item ? pp_results_text(item, "layer") : "");
    row[6] = of_text(item ? pp_item_phase(item) : "");
    row[7] = of_text(only);
}

/* Only one training has it: how long it takes there. */
static void fill_only(cell row[static COLUMNS], const pp_comparison *c,
                      const pp_compared_item *item)
{
    const json_t *one = item->item ? item->item : item->other;
    const json_t *ms = json_object_get(one, "millisecondsPerStep");
    fill_item(row, c, item->gpu, one, item->item ? "this" : "other");
    row[8] = of_text("ms_per_step");
    row[9] = of_text("ms");
    if (json_is_number(ms))
        row[item->item ? 10 : 12] = of_number(json_number_value(ms));
    row[19] = of_text("only one of them has it");
}

typedef void (*row_fn)(FILE *to, const cell row[static COLUMNS], size_t before);

/* Each row to `write`, with how many came before it. */
static void each_row(FILE *to, const pp_comparison *c, row_fn write)
{
    cell row[COLUMNS];
    size_t n = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        const pp_compared_item *item = &c->items[i];
        if (!item->item || !item->other) {
            fill_only(row, c, item);
            write(to, row, n++);
        }
        for (size_t k = 0; k < item->n; k++) {
            fill_item(row, c, item->gpu, item->item, NULL);
            fill_value(row, &item->values[k]);
            write(to, row, n++);
        }
    }
    for (size_t i = 0; i < c->n_gpus; i++) {
        if (!c->gpus[i].step.quantity)
            continue;
        fill_item(row, c, i, NULL, NULL);
        fill_value(row, &c->gpus[i].step);
        write(to, row, n++);
    }
}

static void csv_row(FILE *to, const cell row[static COLUMNS], size_t before)
{
    (void)before;
    for (size_t i = 0; i < COLUMNS; i++) {
        (void)fputs(i ? "," : "", to);
        if (row[i].text)
            pp_csv_plain_text(to, row[i].text);
        else if (row[i].truth >= 0)
            (void)fputs(row[i].truth ? "true" : "false", to);
        else
            pp_csv_number(to, row[i].number);
    }
    (void)fputs(PP_CSV_END, to);
}

int pp_compare_csv(FILE *to, const pp_comparison *c, pp_error *err)
{
    for (size_t i = 0; i < COLUMNS; i++)
        (void)fprintf(to, "%s%s", i ? "," : "", names[i]);
    (void)fputs(PP_CSV_END, to);
    each_row(to, c, csv_row);
    return ferror(to) ? pp_error_errno(err, "writing the comparison") : 0;
}

static void json_text(FILE *to, const char *text)
{
    json_t *value = json_string(text);
    (void)json_dumpf(value, to, JSON_ENCODE_ANY);
    json_decref(value);
}

static void json_row(FILE *to, const cell row[static COLUMNS], size_t before)
{
    char number[PP_NUMBER_TEXT];
    (void)fputs(before ? ",\n  {" : "\n  {", to);
    for (size_t i = 0; i < COLUMNS; i++) {
        (void)fprintf(to, "%s\"%s\": ", i ? ", " : "", names[i]);
        if (row[i].text)
            json_text(to, row[i].text);
        else if (row[i].truth >= 0)
            (void)fputs(row[i].truth ? "true" : "false", to);
        else
            (void)fputs(isfinite(row[i].number) ? pp_number_text(row[i].number, number) : "null",
                        to);
    }
    (void)fputc('}', to);
}

int pp_compare_json(FILE *to, const pp_comparison *c, pp_error *err)
{
    (void)fprintf(to,
                  "{\"rule\": \"Holm\", \"level\": %g, \"step_level\": %g, \"compared\": %zu, "
                  "\"more_than_noise\": %zu, \"items\": [",
                  PP_SIGNIFICANCE_LEVEL, PP_SIGNIFICANCE_STEPS, c->compared, c->marked);
    each_row(to, c, json_row);
    (void)fputs("\n]}\n", to);
    return ferror(to) ? pp_error_errno(err, "writing the comparison") : 0;
}
