/*
 * Lucid: its table of trainings that ran alone, simulation/analyzer/single_data.csv, a row for each
 * training. Its analyzer and its policy read it with pandas, by the columns' names; what is not
 * known is empty there, and is told as a note.
 */
#include "cli/formats/csv.h"
#include "cli/formats/figures.h"
#include "cli/formats/schedulers.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 9 };

static const char *const columns[COLUMNS] = {"model",    "dataset",   "batchsize", "amp",  "speed",
                                             "gpu_util", "gmem_util", "gmem",      "label"};

/* gmem_util is the time in which memory was read or written, which is not what DRAMActive says; amp
 * is not seen; label is what Lucid has learnt of trainings that ran together. */
static const pp_told_field fields[] = {
    {"model", PP_TOLD_TEXT, false},       {"dataset", PP_TOLD_TEXT, false},
    {"batchsize", PP_TOLD_WHOLE, false},  {"amp", PP_TOLD_WHOLE, false},
    {"gmem_util", PP_TOLD_NUMBER, false}, {"label", PP_TOLD_WHOLE, false},
    {NULL, PP_TOLD_TEXT, false}};

static double batch_of(const pp_format_job *job, const json_t *results)
{
    const char *told = json_string_value(json_object_get(job->told, "batchsize"));
    return told ? strtod(told, NULL) : pp_figure_batch(results);
}

/* Samples per second of all GPUs together. */
static double speed_of(const pp_format_job *job, const json_t *results)
{
    return pp_figure_rounded((double)pp_figure_gpus(results) * batch_of(job, results) * 1e3 /
                             pp_figure_step_ms(results));
}

static double number_of(const pp_format_job *job, const json_t *results, const char *column)
{
    const char *told = json_string_value(json_object_get(job->told, column));
    if (strcmp(column, "speed") == 0)
        return speed_of(job, results);
    if (strcmp(column, "batchsize") == 0)
        return batch_of(job, results);
    if (strcmp(column, "gpu_util") == 0)
        return pp_figure_rounded(pp_figure_of_gpus(results, PP_METRIC_GPU_UTIL));
    if (strcmp(column, "gmem") == 0)
        return pp_figure_rounded(pp_figure_of_gpus(results, PP_METRIC_GPU_MEM));
    return told ? strtod(told, NULL) : (double)NAN;
}

static const char *text_of(const pp_format_job *job, const json_t *results, const char *column)
{
    const char *told = json_string_value(json_object_get(job->told, column));
    return told || strcmp(column, "dataset") == 0 ? told : pp_figure_model(results);
}

/* Whether something stands there. */
static bool write_cell(const pp_format_job *job, const json_t *results, const char *column)
{
    if (strcmp(column, "model") == 0 || strcmp(column, "dataset") == 0) {
        const char *text = text_of(job, results, column);
        pp_csv_text(job->to, text);
        return text != NULL;
    }
    const double number = number_of(job, results, column);
    pp_csv_number(job->to, number);
    return isfinite(number);
}

static void note_empty(FILE *notes, const bool *empty)
{
    const char *before = "precisionprobe: lucid: empty, since not measured (--set NAME=VALUE): ";
    bool any = false;
    for (size_t c = 0; c < COLUMNS; c++) {
        if (empty[c])
            (void)fprintf(notes, "%s%s", any ? ", " : before, columns[c]);
        any = any || empty[c];
    }
    if (any)
        (void)fputc('\n', notes);
}

static int write_file(const pp_format_job *job, pp_error *err)
{
    bool empty[COLUMNS] = {false};
    (void)err;
    for (size_t c = 0; c < COLUMNS; c++)
        (void)fprintf(job->to, "%s%s", c ? "," : "", columns[c]);
    (void)fputc('\n', job->to);
    for (size_t t = 0; t < job->n; t++) {
        for (size_t c = 0; c < COLUMNS; c++) {
            (void)fputs(c ? "," : "", job->to);
            if (!write_cell(job, job->trainings[t].results, columns[c]))
                empty[c] = true;
        }
        (void)fputc('\n', job->to);
    }
    note_empty(job->notes, empty);
    return 0;
}

const pp_format pp_format_lucid = {.name = "lucid", .fields = fields, .write = write_file};
