#include "cli/report.h"

#include "cli/compare/compare_files.h"
#include "cli/compare/compare_table.h"
#include "cli/formats/formats.h"
#include "cli/formats/rows.h"
#include "cli/parquet.h"
#include "cli/recording/recorded.h"
#include "cli/recording/recorded_times.h"
#include "cli/results/fold.h"
#include "cli/results/results.h"
#include "cli/results/sort.h"
#include "cli/run/options.h"
#include "cli/serve/serve.h"
#include "cli/tables/html.h"
#include "cli/tables/table.h"
#include "cli/terminal/names.h"
#include "cli/terminal/progress.h"
#include "common/cleanup.h"
#include "common/text.h"

#include <argp.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options ---- */

enum {
    KEY_KERNELS = 256,
    KEY_ALL,
    KEY_COMPARE,
    KEY_DEPTH,
    KEY_FORMAT,
    KEY_SET,
    KEY_SORT,
    KEY_SERVE,
    DEPTH_MAX = 64
};

static const struct argp_option known[] = {
    {"all", KEY_ALL, NULL, 0, "Of a comparison: list rows that differ by no more than noise, too",
     0},
    {"compare", KEY_COMPARE, "OTHER", 0,
     "Compare with OTHER: what differs, by how much, and whether that is more than noise; as "
     "table, "
     "csv or json",
     0},
    {"depth", KEY_DEPTH, "N", 0,
     "Put layers whose names have more than N parts (a.b.c has three) together with the module "
     "that "
     "the first N name, 1 to 64",
     0},
    {"format", KEY_FORMAT, "FORMAT", 0,
     "table, csv, json, html or parquet; or what a scheduler takes: koordinator, lucid, muri, "
     "orion or "
     "trimaran (table)",
     0},
    {"kernels", KEY_KERNELS, "N", OPTION_ARG_OPTIONAL,
     "List the N kernels that take most time below each row of the table, 1 to 20 (3)", 0},
    {"serve", KEY_SERVE, "[ADDRESS:]PORT", 0,
     "Show them as a page in a browser (docs/page.md), until interrupted; on loopback, unless an "
     "address is given. Whoever reaches it sees all",
     0},
    {"set", KEY_SET, "FIELD", 0,
     "NAME=VALUE: say what a scheduler's file needs and no measurement tells (any number)", 0},
    {"sort", KEY_SORT, "COLUMN", 0,
     "Rows by layer, type, phase or bound, or the largest first by time, share, ms_per_step, "
     "least_ms_per_step, busy_ms_per_step, idle_share, calls, parameters, memory_peak_bytes, "
     "memory_live_bytes or a metric, such as sm_active (by name)",
     0},
    {0}};

typedef struct parsing {
    pp_report_options *out;
    void *child_input;
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

static error_t parse_depth(const char *text, int *ret, pp_error *err)
{
    char *end;
    const long depth = strtol(text, &end, 10);
    if (*end || end == text || depth < 1 || depth > DEPTH_MAX) {
        (void)pp_error_field(err, "--depth", "must be 1 to %d, not %s", DEPTH_MAX, text);
        return EINVAL;
    }
    *ret = (int)depth;
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    parsing *p = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        if (p->child_input)
            state->child_inputs[0] = p->child_input;
        return 0;
    case KEY_ALL:
        p->out->all = true;
        return 0;
    case KEY_COMPARE:
        p->out->compare = text;
        return 0;
    case KEY_DEPTH:
        return parse_depth(text, &p->out->depth, p->err);
    case KEY_FORMAT:
        p->out->format = text;
        return 0;
    case KEY_KERNELS:
        return pp_kernels_option_parse(text, &p->out->kernels, p->err) < 0 ? EINVAL : 0;
    case KEY_SERVE:
        p->out->serve = text;
        return 0;
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

const struct argp_option *pp_report_options_known(void)
{
    return known;
}

int pp_report_options_parse(int argc, char **argv, const struct argp_child *children,
                            void *child_input, pp_report_options *ret, pp_error *err)
{
    const struct argp argp = {
        known,     parse,
        "FILE...", "Prints what was found: of folders of results, or of the results.json in one.",
        children,  NULL,
        NULL};
    parsing p = {ret, child_input, err};
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

/* Batches belong to the results that are called results.json. */
static int add_errors(const char *path, int depth, opened *o, pp_error *err)
{
    struct stat s;
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode) &&
        strcmp(pp_text_file_name(path), "results.json") != 0)
        return 0;
    return pp_recorded_times(o->folder, depth, o->results, err);
}

/* What stands somewhere else; 1: it is a file's. Its rows are put together already. */
static int fetch_one(const char *path, const pp_report_options *options, opened *o, pp_error *err)
{
    if (!options->fetch)
        return 1;
    (void)snprintf(o->name, sizeof o->name, "%s", path);
    return options->fetch(options->user, path, options->depth, &o->results, err);
}

/* A number behind --kernels is taken for a folder: the option's value is optional. */
static int tell_kernels(const char *path, pp_error *err)
{
    const pp_error why = *err;
    if (!*path || path[strspn(path, "0123456789")])
        return -1;
    return pp_error_set(err, why.code, "%s. A number of kernels goes as --kernels=%s", why.message,
                        path);
}

static int read_one(const char *path, const pp_report_options *options, opened *o, pp_error *err)
{
    if (pp_results_name(path, o->folder, o->name, err) < 0)
        return options->kernels > 0 ? tell_kernels(path, err) : -1;
    if (pp_results_read(path, &o->results, err) < 0)
        return -1;
    if (options->depth > 0 && pp_results_fold(o->results, options->depth, err) < 0)
        return -1;
    return options->compare ? add_errors(path, options->depth, o, err) : 0;
}

static int open_one(const char *path, const pp_report_options *options, bool recorded, opened *o,
                    pp_error *err)
{
    int rc = fetch_one(path, options, o, err);
    const bool fetched = rc == 0;
    if (rc > 0)
        rc = read_one(path, options, o, err);
    if (rc == 0 && options->sort)
        rc = pp_results_sort(o->results, options->sort, err);
    if (rc < 0 || !recorded)
        return rc;
    return fetched ? pp_error_field(err, "--format", "%s needs a run's folder", options->format)
                   : pp_recorded_read(o->folder, &o->recorded, err);
}

static int open_all(const pp_report_options *options, bool recorded, trainings *t, pp_error *err)
{
    const size_t n = (size_t)options->n_paths + (options->compare ? 1 : 0);
    t->items = calloc(n + 1, sizeof *t->items);
    t->trainings = calloc(n + 1, sizeof *t->trainings);
    if (!t->items || !t->trainings)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++) {
        opened *o = &t->items[i];
        t->n = i + 1;
        const char *path = i < (size_t)options->n_paths ? options->paths[i] : options->compare;
        pp_progress_show("reading %s (%zu of %zu)", path, i + 1, n);
        if (open_one(path, options, recorded, o, err) < 0)
            return -1;
        t->trainings[i] = (pp_training){o->name, o->results, recorded ? &o->recorded : NULL};
    }
    return 0;
}

static int serve_all(const pp_report_options *options, const trainings *t, pp_error *err)
{
    PP_CLEANUP_FREE const char **folders = calloc(t->n + 1, sizeof *folders);
    if (!folders)
        return pp_error_nomem(err);
    for (size_t i = 0; i < t->n; i++)
        folders[i] = t->items[i].folder;
    const pp_documents all = {t->trainings, folders, t->n};
    return pp_serve(options->serve, &all, err);
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

static int print_comparison(const pp_comparison *c, bool all, pp_error *err)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    if (!to)
        return pp_error_nomem(err);
    pp_compare_table_print(to, c, all);
    const int rc = fclose(to) == 0 ? 0 : pp_error_nomem(err);
    if (rc == 0)
        pp_lines_print(stdout, text);
    free(text);
    return rc;
}

static int write_comparison(const pp_report_options *options, const trainings *t, pp_error *err)
{
    pp_comparison c;
    int rc = pp_compare(&t->trainings[0], &t->trainings[1], &c, err);
    if (rc == 0)
        rc = strcmp(options->format, "csv") == 0    ? pp_compare_csv(stdout, &c, err)
             : strcmp(options->format, "json") == 0 ? pp_compare_json(stdout, &c, err)
                                                    : print_comparison(&c, options->all, err);
    pp_comparison_done(&c);
    return rc;
}

static int write_rows(const pp_report_options *options, const trainings *t, const char *parquet,
                      pp_error *err)
{
    if (options->compare)
        return write_comparison(options, t, err);
    if (strcmp(options->format, "table") == 0)
        return print_tables(options, t, err);
    if (strcmp(options->format, "csv") == 0)
        return pp_rows_csv(t->trainings, t->n, stdout, err);
    if (strcmp(options->format, "json") == 0)
        return pp_rows_json(t->trainings, t->n, stdout, err);
    if (strcmp(options->format, "html") == 0)
        return pp_html_write(t->trainings, t->n, stdout, err);
    return write_parquet(t, parquet, err);
}

static bool is_rows(const char *format)
{
    static const char *const names[] = {"table", "csv", "json", "html", "parquet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(format, names[i]) == 0)
            return true;
    }
    return false;
}

/* What goes together with what. */
static int check(const pp_report_options *options, const pp_format *format, pp_error *err)
{
    const bool table = strcmp(options->format, "table") == 0;
    if (!format && !is_rows(options->format))
        return pp_error_field(err, "--format",
                              "must be table, csv, json, html, parquet, %s, not %s",
                              pp_format_names(), options->format);
    if (!format && options->n_told > 0)
        return pp_error_field(err, "--set", "is for what schedulers take: %s", pp_format_names());
    if (format && options->depth > 0)
        return pp_error_field(err, "--depth", "is of rows, which %s has none of", format->name);
    if (format && options->sort)
        return pp_error_field(err, "--sort", "is of rows, which %s has none of", format->name);
    if (options->kernels > 0 && (!table || options->compare))
        return pp_error_field(err, "--kernels", "is of the table");
    if (options->compare && !table && strcmp(options->format, "csv") != 0 &&
        strcmp(options->format, "json") != 0)
        return pp_error_field(err, "--compare", "is told as table, csv or json, not %s",
                              options->format);
    if (options->compare && options->n_paths != 1)
        return pp_error_field(err, "--compare", "is of one training with one other");
    return options->all && !options->compare ? pp_error_field(err, "--all", "is of --compare") : 0;
}

int pp_report(const pp_report_options *options, const char *parquet, pp_error *err)
{
    trainings t = {0};
    const pp_format *format = pp_format_find(options->format);
    if (check(options, format, err) < 0)
        return -1;
    int rc = open_all(options, format && format->recorded, &t, err);
    pp_progress_clear();
    if (rc == 0 && options->serve)
        rc = serve_all(options, &t, err);
    else if (rc == 0)
        rc =
            format ? write_format(options, format, &t, err) : write_rows(options, &t, parquet, err);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = pp_error_errno(err, "writing the report");
    trainings_done(&t);
    return rc;
}
