#include "operator/store/usage_rows.h"

#include "common/cleanup.h"
#include "operator/store/store_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(PP_USAGE_BINS == 20, "PP_USAGE_ROWS_METRICS has it");

static double known(double value)
{
    return isfinite(value) ? value : (double)NAN;
}

void pp_usage_rows_head(pp_statement *s, const pp_usage *u)
{
    pp_sql_int8(s, u->steps);
    pp_sql_bool(s, u->undisturbed);
    pp_sql_bool(s, u->busy);
    pp_sql_float8(s, known(u->step_ns.value));
    pp_sql_float8(s, known(u->step_ns.standard_error));
    pp_sql_float8(s, known(u->step_sd_ns));
    pp_sql_float8(s, known(u->idle.value));
    pp_sql_float8(s, known(u->idle.standard_error));
}

/* ---- models ---- */

static const char *model_name(const void *p)
{
    return ((const pp_model *)p)->name;
}

static const char *model_digest(const void *p)
{
    return ((const pp_model *)p)->digest;
}

static const char *model_batch(const void *p)
{
    return ((const pp_model *)p)->batch;
}

void pp_usage_rows_models(pp_statement *s, const pp_usage *u, size_t most)
{
    const pp_models *m = &u->models;
    const size_t n = m->n < most ? m->n : most;
    pp_sql_texts(s, m->items, n, sizeof *m->items, model_name);
    pp_sql_texts(s, m->items, n, sizeof *m->items, model_digest);
    pp_sql_texts(s, m->items, n, sizeof *m->items, model_batch);
}

int pp_usage_rows_take_models(pp_usage *u, const PGresult *r, int row, int at, pp_error *err)
{
    pp_strings columns[3] = {{0}};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = pp_row_strings(r, row, at + i, &columns[i], err);
    for (size_t i = 0;
         rc == 0 && i < columns[0].count && i < columns[1].count && i < columns[2].count; i++)
        rc = pp_models_add(&u->models, columns[0].items[i], columns[1].items[i],
                           columns[2].items[i], err);
    for (int i = 0; i < 3; i++)
        pp_strings_free(&columns[i]);
    return rc;
}

/* ---- the GPU ---- */

static int64_t number_of(const void *number)
{
    return *(const int64_t *)number;
}

void pp_usage_rows_gpu(pp_statement *s, const pp_usage_gpu *gpu)
{
    const pp_chip *c = &gpu->chip;
    const int64_t numbers[PP_STORE_CHIP] = {c->capability, c->multiprocessors, c->sm_khz,
                                            c->memory_khz, c->memory_bits};
    pp_sql_text(s, *gpu->model ? gpu->model : NULL);
    if (c->capability > 0)
        pp_sql_ints(s, PP_SQL_INT8_ARRAY, numbers, PP_STORE_CHIP, sizeof *numbers, number_of);
    else
        pp_sql_null(s, PP_SQL_INT8_ARRAY);
}

int pp_usage_rows_take_gpu(pp_usage_gpu *gpu, const PGresult *r, int row, int at, pp_error *err)
{
    const char *model = pp_row_text(r, row, at);
    (void)snprintf(gpu->model, sizeof gpu->model, "%s", model ? model : "");
    return pp_store_take_chip(r, row, at + 1, &gpu->chip, err);
}

/* ---- metrics ---- */

static const char *metric_name(const void *p)
{
    return pp_metric_get(((const pp_usage_metric *)p)->metric)->column;
}

static const char *metric_source(const void *p)
{
    return pp_usage_source_name(((const pp_usage_metric *)p)->source);
}

static int64_t metric_has_profile(const void *p)
{
    return ((const pp_usage_metric *)p)->has_profile;
}

#define METRIC_GETTER(name, field)                                                                 \
    static double name(const void *p)                                                              \
    {                                                                                              \
        return known(((const pp_usage_metric *)p)->field);                                         \
    }
METRIC_GETTER(metric_mean, mean.value)
METRIC_GETTER(metric_mean_error, mean.standard_error)
METRIC_GETTER(metric_p50, p50.value)
METRIC_GETTER(metric_p50_error, p50.standard_error)
METRIC_GETTER(metric_p95, p95.value)
METRIC_GETTER(metric_p95_error, p95.standard_error)
METRIC_GETTER(metric_most, most.value)
METRIC_GETTER(metric_achieved, achieved.value)
METRIC_GETTER(metric_achieved_error, achieved.standard_error)
METRIC_GETTER(metric_peak, peak)

static double get_double(const void *p)
{
    return known(*(const double *)p);
}

int pp_usage_rows_metrics(pp_statement *s, const pp_usage *u, pp_error *err)
{
    const size_t size = sizeof *u->metrics, n = u->n_metrics;
    PP_CLEANUP_FREE double *profiles = calloc(n * PP_USAGE_BINS + 1, sizeof *profiles);
    if (!profiles)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        memcpy(&profiles[i * PP_USAGE_BINS], u->metrics[i].profile, sizeof u->metrics[i].profile);
    pp_sql_texts(s, u->metrics, n, size, metric_name);
    pp_sql_texts(s, u->metrics, n, size, metric_source);
    pp_sql_floats(s, u->metrics, n, size, metric_mean);
    pp_sql_floats(s, u->metrics, n, size, metric_mean_error);
    pp_sql_floats(s, u->metrics, n, size, metric_p50);
    pp_sql_floats(s, u->metrics, n, size, metric_p50_error);
    pp_sql_floats(s, u->metrics, n, size, metric_p95);
    pp_sql_floats(s, u->metrics, n, size, metric_p95_error);
    pp_sql_floats(s, u->metrics, n, size, metric_most);
    pp_sql_floats(s, u->metrics, n, size, metric_achieved);
    pp_sql_floats(s, u->metrics, n, size, metric_achieved_error);
    pp_sql_floats(s, u->metrics, n, size, metric_peak);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, u->metrics, n, size, metric_has_profile);
    pp_sql_floats(s, profiles, n * PP_USAGE_BINS, sizeof *profiles, get_double);
    return 0;
}

static pp_figure figure_at(const PGresult *r, int row, int column)
{
    return (pp_figure){pp_row_float(r, row, column), pp_row_float(r, row, column + 1)};
}

int pp_usage_rows_take_metric(pp_usage *u, const PGresult *r, int row, int at, pp_error *err)
{
    int metric = 0;
    if (u->n_metrics >= PP_METRIC_COUNT ||
        pp_metric_from_name(pp_row_text(r, row, at), (pp_metric *)&metric) < 0)
        return 0;
    if (!u->metrics)
        u->metrics = calloc(PP_METRIC_COUNT, sizeof *u->metrics);
    if (!u->metrics)
        return pp_error_nomem(err);
    pp_usage_metric *m = &u->metrics[u->n_metrics++];
    const char *source = pp_row_text(r, row, at + 1);
    const double most = pp_row_float(r, row, at + 8);
    *m = (pp_usage_metric){.metric = (pp_metric)metric,
                           .source = strcmp(source, pp_usage_source_name(PP_USAGE_LAYERS)) == 0
                                         ? PP_USAGE_LAYERS
                                         : PP_USAGE_WINDOWS,
                           .mean = figure_at(r, row, at + 2),
                           .p50 = figure_at(r, row, at + 4),
                           .p95 = figure_at(r, row, at + 6),
                           .most = {most, isfinite(most) ? 0 : (double)NAN},
                           .achieved = figure_at(r, row, at + 9),
                           .peak = pp_row_float(r, row, at + 11)};
    pp_row_array profile;
    if (pp_row_array_open(r, row, at + 12, &profile, err) < 0)
        return -1;
    m->has_profile = profile.count == PP_USAGE_BINS;
    for (size_t i = 0; m->has_profile && i < PP_USAGE_BINS; i++)
        m->profile[i] = pp_row_array_float(&profile);
    return 0;
}

/* ---- shares ---- */

typedef struct share {
    const char *kind, *name;
    pp_figure of, rate;
} share;

static const char *share_kind(const void *p)
{
    return ((const share *)p)->kind;
}

static const char *share_name(const void *p)
{
    return ((const share *)p)->name;
}

static double share_value(const void *p)
{
    return known(((const share *)p)->of.value);
}

static double share_error(const void *p)
{
    return known(((const share *)p)->of.standard_error);
}

static double share_rate(const void *p)
{
    return known(((const share *)p)->rate.value);
}

static double share_rate_error(const void *p)
{
    return known(((const share *)p)->rate.standard_error);
}

int pp_usage_rows_shares(pp_statement *s, const pp_usage *u, pp_error *err)
{
    static const pp_figure unknown = PP_UNKNOWN;
    const size_t most = PP_BOUND_COUNT + u->n_types;
    PP_CLEANUP_FREE share *all = calloc(most + 1, sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    size_t n = 0;
    for (int k = 0; k < PP_BOUND_COUNT; k++)
        if (u->bounds[k].value > 0)
            all[n++] = (share){"bound", pp_bound_name((pp_bound)k), u->bounds[k],
                               k < PP_BOUND_UNITS ? u->rates[k] : unknown};
    for (size_t i = 0; i < u->n_types; i++)
        all[n++] = (share){u->types[i].layer ? "layer" : "phase", u->types[i].name,
                           u->types[i].share, unknown};
    pp_sql_texts(s, all, n, sizeof *all, share_kind);
    pp_sql_texts(s, all, n, sizeof *all, share_name);
    pp_sql_floats(s, all, n, sizeof *all, share_value);
    pp_sql_floats(s, all, n, sizeof *all, share_error);
    pp_sql_floats(s, all, n, sizeof *all, share_rate);
    pp_sql_floats(s, all, n, sizeof *all, share_rate_error);
    return 0;
}

int pp_usage_rows_take_share(pp_usage *u, const PGresult *r, int row, int at, pp_error *err)
{
    const char *kind = pp_row_text(r, row, at), *name = pp_row_text(r, row, at + 1);
    const pp_figure of = figure_at(r, row, at + 2);
    if (strcmp(kind, "bound") == 0) {
        for (int k = 0; k < PP_BOUND_COUNT; k++)
            if (strcmp(name, pp_bound_name((pp_bound)k)) == 0) {
                u->bounds[k] = of;
                if (k < PP_BOUND_UNITS)
                    u->rates[k] = figure_at(r, row, at + 4);
            }
        return 0;
    }
    return u->n_types > PP_USAGE_TYPES
               ? 0
               : pp_usage_add_type(u, name, strcmp(kind, "layer") == 0, of, err);
}

void pp_usage_rows_take_head(pp_usage *u, const PGresult *r, int row, int at)
{
    u->steps = pp_row_int(r, row, at, 0);
    u->undisturbed = pp_row_bool(r, row, at + 1);
    u->busy = pp_row_bool(r, row, at + 2);
    u->step_ns = figure_at(r, row, at + 3);
    u->step_sd_ns = pp_row_float(r, row, at + 5);
    u->idle = figure_at(r, row, at + 6);
    for (int k = 0; k < PP_BOUND_UNITS; k++)
        u->rates[k] = PP_UNKNOWN;
}
