#include "cli/report.h"

#include "cli/formats/formats.h"
#include "cli/formats/rows.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/parquet.h"
#include "cli/recorded.h"
#include "cli/results.h"
#include "cli/sort.h"
#include "cli/table.h"
#include "common/cleanup.h"

#include <argp.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options ---- */

enum { KEY_KERNELS = 256, KEY_FORMAT, KEY_SET, KEY_SORT };

static const struct argp_option known[] = {
    {"format", KEY_FORMAT, "FORMAT", 0,
     "table, csv, json or parquet; or what a scheduler takes: koordinator, lucid, muri, orion or "
     "trimaran (table)",
     0},
    {"kernels", KEY_KERNELS, "N", OPTION_ARG_OPTIONAL,
     "List the N kernels that take most time below each row of the table, 1 to 20 (3)", 0},
    {"set", KEY_SET, "FIELD", 0,
     "NAME=VALUE: say what a scheduler's file needs and no measurement tells (any number)", 0},
    {"sort", KEY_SORT, "COLUMN", 0,
     "Rows by layer, or the largest first by ms_per_step, busy_ms_per_step, idle_share, calls, "
     "parameters or a metric, such as sm_active (in the model's order)",
     0},
    {0}};

typedef struct parsing {
    pp_report_options *out;
    pp_error *err;
} parsing;

static error_t add_told(pp_report_options *out, char *text)
{
    const char **told = realloc(out->told, ((size_t)out->n_told + 1) * sizeof *told);
    if (!told)
        return ENOMEM;
    out->told = told;
    told[out->n_told++] = text;
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    parsing *p = state->input;
    switch (key) {
    case KEY_FORMAT:
        p->out->format = text;
        return 0;
    case KEY_KERNELS:
        return pp_kernels_option_parse(text, &p->out->kernels, p->err) < 0 ? EINVAL : 0;
    case KEY_SORT:
        p->out->sort = text;
        return 0;
    case KEY_SET:
        return add_told(p->out, text);
    case ARGP_KEY_ARGS:
        p->out->paths = state->argv + state->next;
        p->out->n_paths = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which folder?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int pp_report_options_parse(int argc, char **argv, pp_report_options *ret, pp_error *err)
{
    static const struct argp argp = {
        known,     parse,
        "FILE...", "Prints what was found: of folders of results, or of the results.json in one.",
        NULL,      NULL,
        NULL};
    parsing p = {ret, err};
    *ret = (pp_report_options){.format = "table"};
    const error_t rc = argp_parse(&argp, argc, argv, 0, NULL, &p);
    if (rc == 0)
        return 0;
    return err->code != PP_OK ? -1 : pp_error_set(err, PP_ERR_INVALID, "wrong arguments");
}

void pp_report_options_done(pp_report_options *options)
{
    free(options->told);
    options->told = NULL;
}

/* ---- trainings ---- */

/* What is read of one path. */
typedef struct opened {
    char folder[PATH_MAX];
    char name[NAME_MAX + 1];
    json_t *results;
    pp_training_recorded recorded;
} opened;

typedef struct trainings {
    opened *items;
    pp_training *trainings; /* of the items */
    size_t n;
} trainings;

static void trainings_done(trainings *t)
{
    for (size_t i = 0; i < t->n; i++) {
        json_decref(t->items[i].results);
        pp_recorded_done(&t->items[i].recorded);
    }
    free(t->items);
    free(t->trainings);
}

/* As import calls it: by the folder; of a file with a name of its own by that. */
static int name_of(const char *path, opened *o, pp_error *err)
{
    struct stat s;
    if (!realpath(path, o->folder) || stat(o->folder, &s) < 0)
        return pp_error_errno(err, "%s", path);
    char *slash = strrchr(o->folder, '/');
    const char *name = slash + 1;
    if (!S_ISDIR(s.st_mode)) {
        char file[NAME_MAX + 1];
        (void)snprintf(file, sizeof file, "%s", name);
        *slash = '\0';
        char *suffix = strrchr(file, '.');
        if (suffix && suffix != file && strcmp(suffix, ".json") == 0)
            *suffix = '\0';
        name = strcmp(file, "results") == 0 && *o->folder ? strrchr(o->folder, '/') + 1 : file;
        (void)snprintf(o->name, sizeof o->name, "%s", name);
        return 0;
    }
    (void)snprintf(o->name, sizeof o->name, "%s", name);
    return 0;
}

static int open_one(const char *path, const char *sort, bool recorded, opened *o, pp_error *err)
{
    if (name_of(path, o, err) < 0 || pp_results_read(path, &o->results, err) < 0)
        return -1;
    if (sort && pp_results_sort(o->results, sort, err) < 0)
        return -1;
    return recorded ? pp_recorded_read(o->folder, &o->recorded, err) : 0;
}

static int open_all(const pp_report_options *options, bool recorded, trainings *t, pp_error *err)
{
    const size_t n = (size_t)options->n_paths;
    t->items = calloc(n + 1, sizeof *t->items);
    t->trainings = calloc(n + 1, sizeof *t->trainings);
    if (!t->items || !t->trainings)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++) {
        opened *o = &t->items[i];
        t->n = i + 1;
        if (open_one(options->paths[i], options->sort, recorded, o, err) < 0)
            return -1;
        t->trainings[i] = (pp_training){o->name, o->results, recorded ? &o->recorded : NULL};
    }
    return 0;
}

/* ---- what is written ---- */

/* All that a file says may have been written by anybody, not only its layers' names. */
static int print_table(const char *path, const json_t *results, const pp_table_view *view,
                       pp_error *err)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    if (!to)
        return pp_error_nomem(err);
    if (path)
        (void)fprintf(to, "%s:\n", path);
    pp_table_print(results, to, view);
    if (fclose(to) != 0) {
        free(text);
        return pp_error_nomem(err);
    }
    pp_lines_print(stdout, text);
    free(text);
    return 0;
}

static int print_tables(const pp_report_options *options, const trainings *t, pp_error *err)
{
    const pp_table_view view = {pp_table_columns(stdout), options->kernels};
    for (size_t i = 0; i < t->n; i++) {
        if (i > 0)
            (void)fputc('\n', stdout);
        if (print_table(t->n > 1 ? options->paths[i] : NULL, t->trainings[i].results, &view, err) <
            0)
            return -1;
    }
    return 0;
}

static int write_parquet(const trainings *t, const char *program, pp_error *err)
{
    if (isatty(STDOUT_FILENO))
        return pp_error_field(err, "--format", "parquet is no text: > FILE");
    return pp_parquet_write(t->trainings, t->n, program, err);
}

/* A file that cannot be made leaves nothing on standard output. */
static int write_format(const pp_report_options *options, const pp_format *format,
                        const trainings *t, pp_error *err)
{
    char *text = NULL, *notes = NULL;
    size_t length = 0, n_notes = 0;
    PP_CLEANUP_JSON json_t *told = json_object();
    for (int i = 0; i < options->n_told; i++) {
        if (pp_format_tell(format, options->told[i], told, err) < 0)
            return -1;
    }
    pp_format_job job = {.trainings = t->trainings,
                         .n = t->n,
                         .told = told,
                         .to = open_memstream(&text, &length),
                         .notes = open_memstream(&notes, &n_notes)};
    int rc = job.to && job.notes ? pp_format_write(format, &job, err) : pp_error_nomem(err);
    if ((job.to && fclose(job.to) != 0) || (job.notes && fclose(job.notes) != 0))
        rc = pp_error_nomem(err);
    if (rc == 0)
        (void)fwrite(text, 1, length, stdout);
    if (rc == 0)
        (void)fwrite(notes, 1, n_notes, stderr);
    free(text);
    free(notes);
    return rc;
}

static int write_rows(const pp_report_options *options, const trainings *t, const char *parquet,
                      pp_error *err)
{
    if (strcmp(options->format, "table") == 0)
        return print_tables(options, t, err);
    if (strcmp(options->format, "csv") == 0)
        return pp_rows_csv(t->trainings, t->n, stdout, err);
    if (strcmp(options->format, "json") == 0)
        return pp_rows_json(t->trainings, t->n, stdout, err);
    return write_parquet(t, parquet, err);
}

static bool is_rows(const char *format)
{
    static const char *const names[] = {"table", "csv", "json", "parquet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(format, names[i]) == 0)
            return true;
    }
    return false;
}

int pp_report(const pp_report_options *options, const char *parquet, pp_error *err)
{
    trainings t = {0};
    const pp_format *format = pp_format_find(options->format);
    if (!format && !is_rows(options->format))
        return pp_error_field(err, "--format", "must be table, csv, json, parquet, %s, not %s",
                              pp_format_names(), options->format);
    if (!format && options->n_told > 0)
        return pp_error_field(err, "--set", "is for what schedulers take: %s", pp_format_names());
    if (format && options->sort)
        return pp_error_field(err, "--sort", "is of rows, which %s has none of", format->name);
    if (options->kernels > 0 && strcmp(options->format, "table") != 0)
        return pp_error_field(err, "--kernels", "is of the table");
    int rc = open_all(options, format && format->recorded, &t, err);
    if (rc == 0)
        rc =
            format ? write_format(options, format, &t, err) : write_rows(options, &t, parquet, err);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = pp_error_errno(err, "writing the report");
    trainings_done(&t);
    return rc;
}
