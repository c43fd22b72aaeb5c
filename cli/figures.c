#include "cli/figures.h"

#include "cli/figures/jobs.h"
#include "cli/figures/layers.h"
#include "cli/figures/overview.h"
#include "cli/formats/rows.h"
#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/file.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LAYERS = 30, LAYERS_MAX = 5000, FILE_MAX = 256 << 20, NAME_PLACES = 100 };

/* ---- options ---- */

static const struct argp_option known[] = {
    {"layers", 'l', "N", 0, "Draw the N layers that take most time, 1 to 5000 (30)", 0},
    {"output", 'o', "FOLDER", 0, "Where the files go (figures)", 0},
    {0}};

typedef struct parsing {
    pp_figures_options *out;
    pp_error *err;
} parsing;

static error_t take(int key, char *text, struct argp_state *state)
{
    parsing *p = state->input;
    char *end = NULL;
    switch (key) {
    case 'l':
        p->out->layers = (int)strtol(text, &end, 10);
        if (end != text && !*end && p->out->layers >= 1 && p->out->layers <= LAYERS_MAX)
            return 0;
        (void)pp_error_field(p->err, "--layers", "must be a number from 1 to %d", LAYERS_MAX);
        return EINVAL;
    case 'o':
        p->out->output = text;
        return 0;
    case ARGP_KEY_ARGS:
        p->out->paths = state->argv + state->next;
        p->out->n_paths = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which folder?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp_option *pp_figures_options_known(void)
{
    return known;
}

int pp_figures_options_parse(int argc, char **argv, pp_figures_options *ret, pp_error *err)
{
    static const struct argp argp = {known,
                                     take,
                                     "FILE...",
                                     "Draws what was found: of folders of results, of the "
                                     "results.json in one, or of layers as the HTTP API has them.",
                                     NULL,
                                     NULL,
                                     NULL};
    *ret = (pp_figures_options){.output = "figures", .layers = LAYERS};
    parsing p = {ret, err};
    const error_t failed = argp_parse(&argp, argc, argv, 0, NULL, &p);
    return failed && !err->code ? pp_error_set(err, PP_ERR_INVALID, "%s", strerror(failed))
           : failed             ? -1
                                : 0;
}

/* ---- rows ---- */

/* Results as the API would have them. */
static json_t *rows_of(const char *name, const json_t *results, pp_error *err)
{
    char *text = NULL;
    size_t length = 0;
    const pp_training training = {name, results, NULL};
    FILE *to = open_memstream(&text, &length);
    int rc = to ? pp_rows_json(&training, 1, to, err) : pp_error_nomem(err);
    if (to && fclose(to) != 0)
        rc = pp_error_nomem(err);
    json_t *rows = rc == 0 ? pp_json_parse(text, length, err) : NULL;
    free(text);
    return rows;
}

static bool is_rows(const char *path, json_t **ret, pp_error *err)
{
    struct stat s;
    size_t length = 0;
    *ret = NULL;
    if (stat(path, &s) < 0 || S_ISDIR(s.st_mode))
        return false;
    PP_CLEANUP_FREE char *text = pp_file_read(path, FILE_MAX, &length, err);
    json_t *found = text ? pp_json_parse(text, length, err) : NULL;
    if (json_is_array(json_object_get(found, "items"))) {
        *ret = found;
        return true;
    }
    json_decref(found);
    return false;
}

/* A new reference; NULL with an error. */
static json_t *read_rows(const char *path, pp_error *err)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];
    pp_error ignored = {0};
    json_t *rows = NULL;
    PP_CLEANUP_JSON json_t *results = NULL;
    if (is_rows(path, &rows, &ignored))
        return rows;
    if (pp_results_name(path, folder, name, err) < 0 || pp_results_read(path, &results, err) < 0)
        return NULL;
    return rows_of(name, results, err);
}

/* ---- files ---- */

typedef struct files {
    const char *folder;
    pp_figure_job *jobs;
    size_t n;
} files;

static FILE *create(const files *f, const char *name, const char *kind, char path[PATH_MAX],
                    pp_error *err)
{
    const int n = snprintf(path, PATH_MAX, "%s/%s%s", f->folder, name, kind);
    FILE *to = n > 0 && n < PATH_MAX ? fopen(path, "we") : NULL;
    if (!to)
        (void)pp_error_errno(err, "writing %s", path);
    return to;
}

static int finish(FILE *to, const char *path, int rc, pp_error *err)
{
    const bool failed = ferror(to) != 0;
    if ((fclose(to) != 0 || failed) && rc == 0)
        rc = pp_error_errno(err, "writing %s", path);
    if (rc == 0)
        (void)printf("%s\n", path);
    return rc;
}

/* Of the workload or session; a number behind it, where another one has it too. */
static void name_job(const files *f, size_t i, char *out, size_t size)
{
    const pp_figure_job *job = &f->jobs[i];
    size_t before = 0;
    const char *name = *job->workload ? job->workload : job->session;
    for (size_t k = 0; k < i; k++) {
        const char *other = *f->jobs[k].workload ? f->jobs[k].workload : f->jobs[k].session;
        before += strcmp(other, name) == 0;
    }
    (void)snprintf(out, size, "%.*s", NAME_PLACES, *name ? name : "job");
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
            *c = '_';
    if (*out == '.')
        *out = '_';
    const size_t n = strlen(out);
    if (before > 0)
        (void)snprintf(out + n, size - n, "-%zu", before + 1);
}

/* The paper's figures 2a and 2b. */
static int write_job(const files *f, size_t i, pp_error *err)
{
    static const pp_metric util[] = {PP_METRIC_GPU_UTIL};
    static const pp_metric others[] = {PP_METRIC_DRAM_ACTIVE, PP_METRIC_FP32_ACTIVE,
                                       PP_METRIC_SM_ACTIVE, PP_METRIC_SM_OCCUPANCY,
                                       PP_METRIC_TENSOR_ACTIVE};
    static const struct {
        const char *kind, *title;
        const pp_metric *metrics;
        size_t n;
    } figures[] = {{"-gpu-util.svg", "GPUUtil of each layer", util, sizeof util / sizeof *util},
                   {"-metrics.svg", "What each layer uses of the GPU", others,
                    sizeof others / sizeof *others}};
    char path[PATH_MAX], name[NAME_PLACES + 32];
    name_job(f, i, name, sizeof name);
    for (size_t k = 0; k < sizeof figures / sizeof *figures; k++) {
        FILE *to = create(f, name, figures[k].kind, path, err);
        if (!to || finish(to, path,
                          pp_figure_layers(&f->jobs[i], figures[k].title, figures[k].metrics,
                                           figures[k].n, to, err),
                          err) < 0)
            return -1;
    }
    return 0;
}

/* Its figure 3 and table III. */
static int write_overview(const files *f, pp_error *err)
{
    char path[PATH_MAX];
    FILE *to = create(f, "jobs", ".svg", path, err);
    if (!to)
        return -1;
    pp_figure_overview(f->jobs, f->n, to);
    if (finish(to, path, 0, err) < 0 || !(to = create(f, "jobs", ".md", path, err)))
        return -1;
    pp_figure_overview_table(f->jobs, f->n, to);
    return finish(to, path, 0, err);
}

static int write_all(const files *f, pp_error *err)
{
    if (mkdir(f->folder, 0777) < 0 && errno != EEXIST)
        return pp_error_errno(err, "making %s", f->folder);
    for (size_t i = 0; i < f->n; i++)
        if (f->jobs[i].count > 0 && write_job(f, i, err) < 0)
            return -1;
    return write_overview(f, err);
}

/* Jobs of one path, behind those that are there: two trainings may be called the same. */
static int add_jobs(files *f, const json_t *rows, size_t layers, pp_error *err)
{
    pp_figure_job *jobs = NULL;
    size_t n = 0;
    if (pp_figure_jobs(rows, layers, &jobs, &n, err) < 0)
        return -1;
    pp_figure_job *all = realloc(f->jobs, (f->n + n + 1) * sizeof *all);
    if (!all) {
        pp_figure_jobs_free(jobs, n);
        return pp_error_nomem(err);
    }
    memcpy(all + f->n, jobs, n * sizeof *jobs);
    free(jobs);
    f->jobs = all;
    f->n += n;
    return 0;
}

int pp_figures(const pp_figures_options *options, pp_error *err)
{
    PP_CLEANUP_JSON json_t *documents = json_array(); /* jobs borrow from them */
    files f = {.folder = options->output};
    int rc = documents ? 0 : pp_error_nomem(err);
    for (int i = 0; rc == 0 && i < options->n_paths; i++) {
        json_t *rows = read_rows(options->paths[i], err);
        if (!rows)
            rc = -1;
        else if (json_array_append_new(documents, rows) < 0)
            rc = pp_error_nomem(err);
        else
            rc = add_jobs(&f, rows, (size_t)options->layers, err);
    }
    if (rc == 0)
        rc = write_all(&f, err);
    pp_figure_jobs_free(f.jobs, f.n);
    return rc;
}
