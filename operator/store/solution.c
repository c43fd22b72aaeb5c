/* A solution's rows into the store. */
#include "operator/store/store_internal.h"

#include <math.h>
#include <stdio.h>

/*
 * The first statement locks the target, so that two solutions of it follow each other, and lets
 * the rest see whether this one counts: it does not where a final one is there and this is none.
 */
static const char lock_sql[] =
    "SELECT 1 FROM target WHERE session_uid = $1 AND pod_uid = $2 FOR NO KEY UPDATE";

/* Shared: the exporter says so ($16), or another pod of the session used the GPU meanwhile. */
static const char attribution_sql[] =
    "INSERT INTO attribution AS a (session_uid, pod_uid, gpu_uuid, revision, final, windows, "
    "samples, lag_ns, lag_stderr_ns, window_ns, observed_ns, step_count, step_mean_ns, truncated, "
    "step_ns, gap_ns, shared, counted_steps, counted_ns, captures, first_step_ns, last_step_ns, "
    "samples_error, samples_spread, step_stderr_ns, step_freedom, counted_stderr_ns, "
    "counted_freedom) "
    "VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, -1), "
    "$16 OR EXISTS (SELECT 1 FROM process p JOIN target o USING (session_uid, pod_uid), target t "
    "WHERE p.session_uid = $1 AND p.pod_uid <> $2 AND $3 = ANY (p.gpus) "
    "AND t.session_uid = $1 AND t.pod_uid = $2 AND o.observed_first_ns < t.observed_last_ns "
    "AND t.observed_first_ns < o.observed_last_ns), $17, $18, $19, nullif($20, 0), "
    "nullif($21, 0), $22, $23, $24, $25, $26, $27) "
    "ON CONFLICT (session_uid, pod_uid, gpu_uuid) DO UPDATE SET revision = a.revision + 1, "
    "solved_at = now(), final = excluded.final, windows = excluded.windows, "
    "samples = excluded.samples, lag_ns = excluded.lag_ns, lag_stderr_ns = excluded.lag_stderr_ns, "
    "window_ns = excluded.window_ns, observed_ns = excluded.observed_ns, "
    "step_count = excluded.step_count, step_mean_ns = excluded.step_mean_ns, "
    "truncated = excluded.truncated, step_ns = excluded.step_ns, gap_ns = excluded.gap_ns, "
    "shared = a.shared OR excluded.shared, counted_steps = excluded.counted_steps, "
    "counted_ns = excluded.counted_ns, captures = excluded.captures, "
    "first_step_ns = excluded.first_step_ns, last_step_ns = excluded.last_step_ns, "
    "samples_error = excluded.samples_error, samples_spread = excluded.samples_spread, "
    "step_stderr_ns = excluded.step_stderr_ns, step_freedom = excluded.step_freedom, "
    "counted_stderr_ns = excluded.counted_stderr_ns, counted_freedom = excluded.counted_freedom "
    "WHERE excluded.final OR NOT a.final";

/* True where this solution's row is the one that stands: it was written in this transaction. */
#define STANDS                                                                                     \
    "EXISTS (SELECT 1 FROM attribution WHERE session_uid = $1 AND pod_uid = $2 AND gpu_uuid = $3 " \
    "AND solved_at = now())"

static const char delete_items_sql[] =
    "DELETE FROM item WHERE session_uid = $1 AND pod_uid = $2 AND gpu_uuid = $3 AND " STANDS;
static const char delete_fits_sql[] =
    "DELETE FROM fit WHERE session_uid = $1 AND pod_uid = $2 AND gpu_uuid = $3 AND " STANDS;
static const char delete_samples_sql[] =
    "DELETE FROM sample WHERE session_uid = $1 AND pod_uid = $2 AND gpu_uuid = $3 AND " STANDS;

static const char items_sql[] =
    "INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, type, parameters, "
    "calls, "
    "total_ns, share, windows, busy_ns, idle_share, busy_reason, least_ns, bound, bound_likely, "
    "memory_peak_bytes, memory_live_bytes, step_stderr_ns, step_freedom, busy_stderr_ns, "
    "busy_freedom, whole_reason) "
    "SELECT $1, $2, $3, kind, layer, phase, type, nullif(parameters, -1), calls, total_ns, share, "
    "windows, nullif(busy_ns, -1), idle_share, busy_reason, nullif(least_ns, -1), bound, "
    "bound_likely, nullif(memory_peak, 0), CASE WHEN memory_peak > 0 THEN memory_live END, "
    "step_stderr, step_freedom, busy_stderr, busy_freedom, whole_reason FROM "
    "unnest($4::text[], $5::text[], "
    "$6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::float8[], "
    "$12::bigint[], $13::bigint[], $14::float8[], $15::text[], $16::bigint[], $17::text[], "
    "$18::float8[], $19::bigint[], $20::bigint[], $21::float8[], $22::float8[], $23::float8[], "
    "$24::float8[], $25::text[]) AS i (kind, layer, "
    "phase, type, "
    "parameters, calls, total_ns, share, windows, busy_ns, idle_share, busy_reason, least_ns, "
    "bound, bound_likely, memory_peak, memory_live, step_stderr, step_freedom, busy_stderr, "
    "busy_freedom, whole_reason) "
    "WHERE " STANDS;

static const char estimates_sql[] =
    "INSERT INTO estimate (session_uid, pod_uid, gpu_uuid, kind, layer, phase, metric, mean, "
    "stderr, "
    "windows, method, source, group_name, group_mean, group_stderr, reason, amount_per_step, "
    "achieved, peak, basis) "
    "SELECT $1, $2, $3, kind, layer, phase, metric, mean, stderr, windows, method, "
    "coalesce(own_source, $16), group_name, group_mean, group_stderr, reason, amount, "
    "achieved, peak, basis FROM "
    "unnest($4::text[], $5::text[], $6::text[], "
    "$7::text[], $8::float8[], $9::float8[], $10::float8[], $11::text[], $12::text[], "
    "$13::float8[], $14::float8[], $15::text[], $17::text[], $18::float8[], "
    "$19::float8[], $20::float8[], $21::text[]) AS e (kind, layer, "
    "phase, metric, mean, stderr, windows, method, group_name, group_mean, group_stderr, reason, "
    "own_source, amount, achieved, peak, basis) "
    "WHERE " STANDS;

static const char fits_sql[] =
    "INSERT INTO fit (session_uid, pod_uid, gpu_uuid, metric, r2, noise, step_variation, closure, "
    "windows, dropped_samples, repeated_samples, held, held_difference, held_windows, judged, "
    "doubt, explained, miss, expected_miss, items, items_z, idle, idle_stderr, shift_ns, "
    "shift_stderr_ns, untold) "
    "SELECT $1, $2, $3, metric, r2, noise, step_variation, closure, windows, dropped, repeated, "
    "held, held_difference, nullif(held_windows, 0), judged <> 0, doubt, explained, miss, "
    "expected_miss, items, items_z, idle, idle_stderr, shift_ns, shift_stderr_ns, untold "
    "FROM unnest($4::text[], $5::float8[], "
    "$6::float8[], $7::float8[], $8::float8[], $9::bigint[], $10::bigint[], $11::bigint[], "
    "$12::float8[], $13::float8[], $14::bigint[], $15::smallint[], $16::text[], $17::float8[], "
    "$18::float8[], $19::float8[], $20::bigint[], $21::float8[], $22::float8[], $23::float8[], "
    "$24::float8[], $25::float8[], $26::text[]) AS f (metric, r2, noise, step_variation, "
    "closure, windows, dropped, repeated, held, held_difference, held_windows, judged, doubt, "
    "explained, miss, expected_miss, items, items_z, idle, idle_stderr, shift_ns, "
    "shift_stderr_ns, untold) WHERE " STANDS;

/* Two columns for each metric: its means, and those by share. */
static const char *make_samples_sql(void)
{
    static char sql[4096];
    char columns[1024] = "", arrays[1024] = "";
    size_t named = 0, given = 0;
    if (sql[0])
        return sql;
    for (int i = 0; i < 2 * PP_METRIC_COUNT; i++) {
        named += (size_t)snprintf(columns + named, sizeof columns - named, ", %s%s",
                                  pp_metric_get((pp_metric)(i % PP_METRIC_COUNT))->column,
                                  i < PP_METRIC_COUNT ? "" : "_by_share");
        given += (size_t)snprintf(arrays + given, sizeof arrays - given, ", $%d::float8[]", 10 + i);
    }
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO sample (session_uid, pod_uid, gpu_uuid, layer, phase, "
                   "first_ns, last_ns, windows, share%s) "
                   "SELECT $1, $2, $3, s.* FROM unnest($4::text[], $5::text[], $6::bigint[], "
                   "$7::bigint[], $8::bigint[], $9::float8[]%s) AS s WHERE " STANDS,
                   columns, arrays);
    return sql;
}

#define INT_GETTER(name, type, field)                                                              \
    static int64_t name(const void *p)                                                             \
    {                                                                                              \
        return (int64_t)((const type *)p)->field;                                                  \
    }
#define FLOAT_GETTER(name, type, field)                                                            \
    static double name(const void *p)                                                              \
    {                                                                                              \
        return ((const type *)p)->field;                                                           \
    }

/* Infinite values would be as wrong in a table as in an answer: not known. */
static double finite_or_nan(double value)
{
    return isfinite(value) ? value : (double)NAN;
}

static const char *kind_text(const pp_estimates_item *i)
{
    return pp_item_kind_name(i->kind);
}

static const char *item_phase(const pp_estimates_item *i)
{
    return i->kind == PP_ITEM_LAYER ? pp_phase_name(i->phase) : "";
}

static const char *get_kind(const void *p)
{
    return kind_text(p);
}

static const char *get_layer(const void *p)
{
    return ((const pp_estimates_item *)p)->layer;
}

static const char *get_phase(const void *p)
{
    return item_phase(p);
}

static const char *get_type(const void *p)
{
    const char *type = ((const pp_estimates_item *)p)->type;
    return *type ? type : NULL;
}

INT_GETTER(get_parameters, pp_estimates_item, parameters)
INT_GETTER(get_calls, pp_estimates_item, calls)
INT_GETTER(get_total, pp_estimates_item, total_ns)
INT_GETTER(get_item_windows, pp_estimates_item, windows)
INT_GETTER(get_busy, pp_estimates_item, busy_ns)
INT_GETTER(get_least, pp_estimates_item, least_ns)
INT_GETTER(get_memory_peak, pp_estimates_item, memory_peak)
INT_GETTER(get_memory_live, pp_estimates_item, memory_live)
FLOAT_GETTER(get_share, pp_estimates_item, share)
FLOAT_GETTER(get_idle_share, pp_estimates_item, idle_share)
FLOAT_GETTER(get_step_stderr, pp_estimates_item, step_error.standard_error)
FLOAT_GETTER(get_step_freedom, pp_estimates_item, step_error.freedom)
FLOAT_GETTER(get_busy_stderr, pp_estimates_item, busy_error.standard_error)
FLOAT_GETTER(get_busy_freedom, pp_estimates_item, busy_error.freedom)

static const char *get_busy_reason(const void *p)
{
    return ((const pp_estimates_item *)p)->busy_reason;
}

static const char *get_whole_reason(const void *p)
{
    return ((const pp_estimates_item *)p)->whole_reason;
}

static const char *get_bound(const void *p)
{
    const pp_estimates_item *item = p;
    return pp_bound_told(item->bound, item->bound_likely);
}

static double get_bound_likely(const void *p)
{
    const pp_estimates_item *item = p;
    return pp_bound_told(item->bound, item->bound_likely) ? item->bound_likely : (double)NAN;
}

static pp_statement *add(pp_job *job, const char *sql, const char *session_uid, const char *pod_uid,
                         const pp_estimates *in)
{
    pp_statement *s = pp_job_add(job, sql);
    pp_sql_text(s, session_uid);
    pp_sql_text(s, pod_uid);
    pp_sql_text(s, in->gpu);
    return s;
}

static void add_attribution(pp_statement *s, const pp_estimates *in, bool final)
{
    pp_sql_bool(s, final);
    pp_sql_int8(s, in->windows);
    pp_sql_int8(s, in->samples);
    if (isfinite(in->lag_ns))
        pp_sql_int8(s, llround(in->lag_ns));
    else
        pp_sql_null(s, PP_SQL_INT8);
    pp_sql_float8(s, finite_or_nan(in->lag_stderr_ns));
    if (in->window_ns > 0)
        pp_sql_int8(s, in->window_ns);
    else
        pp_sql_null(s, PP_SQL_INT8);
    pp_sql_int8(s, in->observed_ns);
    pp_sql_int8(s, in->step_count);
    pp_sql_float8(s, finite_or_nan(in->step_mean_ns));
    pp_sql_bool(s, in->truncated);
    pp_sql_int8(s, in->step_ns);
    pp_sql_int8(s, in->gap_ns);
    pp_sql_bool(s, in->shared);
    pp_sql_int8(s, in->counted_steps);
    pp_sql_int8(s, in->counted_ns);
    pp_sql_int8(s, in->captures);
    pp_sql_int8(s, in->first_step_ns);
    pp_sql_int8(s, in->last_step_ns);
    pp_sql_float8(s, in->n_sample_rows > 0 ? in->samples_error : (double)NAN);
    pp_sql_float8(s, in->n_sample_rows > 0 ? in->samples_spread : (double)NAN);
    pp_sql_float8(s, finite_or_nan(in->step_error.standard_error));
    pp_sql_float8(s, finite_or_nan(in->step_error.freedom));
    pp_sql_float8(s, finite_or_nan(in->counted_error.standard_error));
    pp_sql_float8(s, finite_or_nan(in->counted_error.freedom));
}

static void add_items(pp_statement *s, const pp_estimates *in)
{
    const size_t size = sizeof(*in->items);
    pp_sql_texts(s, in->items, in->n_items, size, get_kind);
    pp_sql_texts(s, in->items, in->n_items, size, get_layer);
    pp_sql_texts(s, in->items, in->n_items, size, get_phase);
    pp_sql_texts(s, in->items, in->n_items, size, get_type);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_parameters);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_calls);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_total);
    pp_sql_floats(s, in->items, in->n_items, size, get_share);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_item_windows);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_busy);
    pp_sql_floats(s, in->items, in->n_items, size, get_idle_share);
    pp_sql_texts(s, in->items, in->n_items, size, get_busy_reason);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_least);
    pp_sql_texts(s, in->items, in->n_items, size, get_bound);
    pp_sql_floats(s, in->items, in->n_items, size, get_bound_likely);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_memory_peak);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, in->items, in->n_items, size, get_memory_live);
    pp_sql_floats(s, in->items, in->n_items, size, get_step_stderr);
    pp_sql_floats(s, in->items, in->n_items, size, get_step_freedom);
    pp_sql_floats(s, in->items, in->n_items, size, get_busy_stderr);
    pp_sql_floats(s, in->items, in->n_items, size, get_busy_freedom);
    pp_sql_texts(s, in->items, in->n_items, size, get_whole_reason);
}

/* Of items by index, so that estimates and sample rows can name theirs. */
typedef struct named {
    const pp_estimates_item *item;
    const pp_estimate *estimate;
    const pp_estimates_sample *sample;
    pp_metric metric; /* of the sample, whose value is asked for */
} named;

static const char *named_kind(const void *p)
{
    return kind_text(((const named *)p)->item);
}

static const char *named_layer(const void *p)
{
    return ((const named *)p)->item->layer;
}

static const char *named_phase(const void *p)
{
    return item_phase(((const named *)p)->item);
}

/* Sample rows have the phase's own name for optimizer, other and idle as well. */
static const char *named_sample_phase(const void *p)
{
    return pp_phase_name(((const named *)p)->item->phase);
}

static const char *get_metric(const void *p)
{
    return pp_metric_get(((const named *)p)->estimate->metric)->column;
}

static const char *get_method(const void *p)
{
    return pp_method_name(((const named *)p)->estimate->method);
}

static const char *get_group(const void *p)
{
    return ((const named *)p)->estimate->group_name;
}

static const char *get_source(const void *p)
{
    return ((const named *)p)->estimate->source;
}

static const char *get_basis(const void *p)
{
    return pp_basis_name(((const named *)p)->estimate->basis);
}

static const char *get_reason(const void *p)
{
    return ((const named *)p)->estimate->reason;
}

#define ESTIMATE_GETTER(name, field)                                                               \
    static double name(const void *p)                                                              \
    {                                                                                              \
        return finite_or_nan(((const named *)p)->estimate->field);                                 \
    }
ESTIMATE_GETTER(get_mean, mean)
ESTIMATE_GETTER(get_stderr, standard_error)
ESTIMATE_GETTER(get_windows, windows)
ESTIMATE_GETTER(get_group_mean, group_mean)
ESTIMATE_GETTER(get_group_stderr, group_standard_error)
ESTIMATE_GETTER(get_amount, amount_per_step)
ESTIMATE_GETTER(get_achieved, achieved)
ESTIMATE_GETTER(get_peak, peak)

static void add_estimates(pp_statement *s, const named *e, size_t n, const char *source)
{
    const size_t size = sizeof(*e);
    pp_sql_texts(s, e, n, size, named_kind);
    pp_sql_texts(s, e, n, size, named_layer);
    pp_sql_texts(s, e, n, size, named_phase);
    pp_sql_texts(s, e, n, size, get_metric);
    pp_sql_floats(s, e, n, size, get_mean);
    pp_sql_floats(s, e, n, size, get_stderr);
    pp_sql_floats(s, e, n, size, get_windows);
    pp_sql_texts(s, e, n, size, get_method);
    pp_sql_texts(s, e, n, size, get_group);
    pp_sql_floats(s, e, n, size, get_group_mean);
    pp_sql_floats(s, e, n, size, get_group_stderr);
    pp_sql_texts(s, e, n, size, get_reason);
    pp_sql_text(s, source);
    pp_sql_texts(s, e, n, size, get_source);
    pp_sql_floats(s, e, n, size, get_amount);
    pp_sql_floats(s, e, n, size, get_achieved);
    pp_sql_floats(s, e, n, size, get_peak);
    pp_sql_texts(s, e, n, size, get_basis);
}

/* A metric's fit, and how values of replays stand; zeros and NaN where there are none. */
typedef struct fit_row {
    pp_estimates_fit fit;
    pp_hold_out closure;
} fit_row;

static const char *fit_metric(const void *p)
{
    return pp_metric_get(((const fit_row *)p)->fit.metric)->column;
}

FLOAT_GETTER(fit_r2, fit_row, fit.r2)
FLOAT_GETTER(fit_noise, fit_row, fit.noise)
FLOAT_GETTER(fit_variation, fit_row, fit.step_variation)
FLOAT_GETTER(fit_closure, fit_row, fit.closure)
INT_GETTER(fit_windows, fit_row, fit.windows)
INT_GETTER(fit_dropped, fit_row, fit.dropped_samples)
INT_GETTER(fit_repeated, fit_row, fit.repeated_samples)
FLOAT_GETTER(fit_held, fit_row, closure.held)
FLOAT_GETTER(fit_difference, fit_row, closure.difference)
INT_GETTER(fit_held_windows, fit_row, closure.windows)
FLOAT_GETTER(fit_explained, fit_row, fit.explained)
FLOAT_GETTER(fit_miss, fit_row, fit.miss)
FLOAT_GETTER(fit_expected_miss, fit_row, fit.expected_miss)
INT_GETTER(fit_items, fit_row, fit.items)
FLOAT_GETTER(fit_items_z, fit_row, fit.items_z)
FLOAT_GETTER(fit_idle, fit_row, fit.idle)
FLOAT_GETTER(fit_idle_stderr, fit_row, fit.idle_stderr)
FLOAT_GETTER(fit_shift, fit_row, fit.shift_ns)
FLOAT_GETTER(fit_shift_stderr, fit_row, fit.shift_stderr_ns)

static int64_t fit_judged(const void *p)
{
    return ((const fit_row *)p)->fit.judged;
}

static const char *fit_doubt(const void *p)
{
    return ((const fit_row *)p)->fit.doubt;
}

static const char *fit_untold(const void *p)
{
    return ((const fit_row *)p)->fit.untold;
}

/* How well windows are told by others. */
static void add_predictions(pp_statement *s, const fit_row *rows, size_t n)
{
    const size_t size = sizeof(*rows);
    pp_sql_ints(s, PP_SQL_INT2_ARRAY, rows, n, size, fit_judged);
    pp_sql_texts(s, rows, n, size, fit_doubt);
    pp_sql_floats(s, rows, n, size, fit_explained);
    pp_sql_floats(s, rows, n, size, fit_miss);
    pp_sql_floats(s, rows, n, size, fit_expected_miss);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, size, fit_items);
    pp_sql_floats(s, rows, n, size, fit_items_z);
    pp_sql_floats(s, rows, n, size, fit_idle);
    pp_sql_floats(s, rows, n, size, fit_idle_stderr);
    pp_sql_floats(s, rows, n, size, fit_shift);
    pp_sql_floats(s, rows, n, size, fit_shift_stderr);
    pp_sql_texts(s, rows, n, size, fit_untold);
}

static void add_fits(pp_statement *s, const pp_estimates *in)
{
    fit_row rows[PP_METRIC_COUNT];
    const size_t n = in->n_fits < PP_METRIC_COUNT ? in->n_fits : PP_METRIC_COUNT;
    const size_t size = sizeof(*rows);
    for (size_t i = 0; i < n; i++) {
        rows[i] = (fit_row){in->fits[i], {.held = (double)NAN, .difference = (double)NAN}};
        for (size_t k = 0; k < in->n_closures; k++)
            if (in->closures[k].metric == in->fits[i].metric)
                rows[i].closure = in->closures[k];
    }
    pp_sql_texts(s, rows, n, size, fit_metric);
    pp_sql_floats(s, rows, n, size, fit_r2);
    pp_sql_floats(s, rows, n, size, fit_noise);
    pp_sql_floats(s, rows, n, size, fit_variation);
    pp_sql_floats(s, rows, n, size, fit_closure);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, size, fit_windows);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, size, fit_dropped);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, size, fit_repeated);
    pp_sql_floats(s, rows, n, size, fit_held);
    pp_sql_floats(s, rows, n, size, fit_difference);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, rows, n, size, fit_held_windows);
    add_predictions(s, rows, n);
}

#define ROW_INT_GETTER(name, field)                                                                \
    static int64_t name(const void *p)                                                             \
    {                                                                                              \
        return ((const named *)p)->sample->row.field;                                              \
    }
#define ROW_FLOAT_GETTER(name, field)                                                              \
    static double name(const void *p)                                                              \
    {                                                                                              \
        return finite_or_nan(((const named *)p)->sample->row.field);                               \
    }
ROW_INT_GETTER(row_first, first_ns)
ROW_INT_GETTER(row_last, last_ns)
ROW_INT_GETTER(row_windows, windows)
ROW_FLOAT_GETTER(row_share, share)
ROW_FLOAT_GETTER(row_value, values[((const named *)p)->metric])
ROW_FLOAT_GETTER(row_by_share, by_share[((const named *)p)->metric])

static void add_row_values(pp_statement *s, named *r, size_t n, double (*value)(const void *))
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        for (size_t i = 0; i < n; i++)
            r[i].metric = (pp_metric)m;
        pp_sql_floats(s, r, n, sizeof(*r), value);
    }
}

static void add_sample_rows(pp_statement *s, named *r, size_t n)
{
    const size_t size = sizeof(*r);
    pp_sql_texts(s, r, n, size, named_layer);
    pp_sql_texts(s, r, n, size, named_sample_phase);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, r, n, size, row_first);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, r, n, size, row_last);
    pp_sql_ints(s, PP_SQL_INT8_ARRAY, r, n, size, row_windows);
    pp_sql_floats(s, r, n, size, row_share);
    add_row_values(s, r, n, row_value);
    add_row_values(s, r, n, row_by_share);
}

static void add_rows(pp_job *job, const char *session_uid, const char *pod_uid,
                     const pp_estimates *in, const char *source, named *names)
{
    add_items(add(job, items_sql, session_uid, pod_uid, in), in);
    for (size_t i = 0; i < in->n_estimates; i++)
        names[i] =
            (named){.item = &in->items[in->estimates[i].item], .estimate = &in->estimates[i]};
    add_estimates(add(job, estimates_sql, session_uid, pod_uid, in), names, in->n_estimates,
                  source);
    add_fits(add(job, fits_sql, session_uid, pod_uid, in), in);
    for (size_t i = 0; i < in->n_sample_rows; i++)
        names[i] =
            (named){.item = &in->items[in->sample_rows[i].item], .sample = &in->sample_rows[i]};
    add_sample_rows(add(job, make_samples_sql(), session_uid, pod_uid, in), names,
                    in->n_sample_rows);
}

void pp_store_lock_target(pp_job *job, const char *session_uid, const char *pod_uid)
{
    pp_statement *lock = pp_job_add(job, lock_sql);
    pp_sql_text(lock, session_uid);
    pp_sql_text(lock, pod_uid);
}

int pp_store_skip_row(pp_job *job, int index, const PGresult *r, int row, pp_error *err)
{
    (void)job;
    (void)index;
    (void)r;
    (void)row;
    (void)err;
    return 0;
}

int pp_store_add_solution(pp_job *job, const char *session_uid, const char *pod_uid,
                          const pp_estimates *in, const pp_usage *usage, const char *source,
                          bool final, pp_error *err)
{
    const size_t n = in->n_estimates + in->n_sample_rows + 1;
    named *names = calloc(n, sizeof(*names));
    if (!names)
        return pp_error_nomem(err);
    pp_store_lock_target(job, session_uid, pod_uid);
    add_attribution(add(job, attribution_sql, session_uid, pod_uid, in), in, final);
    add(job, delete_items_sql, session_uid, pod_uid, in);
    add(job, delete_fits_sql, session_uid, pod_uid, in);
    add(job, delete_samples_sql, session_uid, pod_uid, in);
    add_rows(job, session_uid, pod_uid, in, source, names);
    free(names);
    return usage ? pp_store_add_usage(job, session_uid, pod_uid, in->gpu, usage, err) : 0;
}

int pp_store_put_solution(pp_store *store, const char *session_uid, const char *pod_uid,
                          const pp_estimates *solution, const pp_usage *usage, bool final,
                          pp_store_done_fn done, void *user, pp_error *err)
{
    if (pp_store_need(session_uid, "session", err) < 0 || pp_store_need(pod_uid, "pod", err) < 0)
        return -1;
    pp_call *call = pp_call_new(sizeof(*call), NULL, user, err);
    if (!call)
        return pp_error_nomem(err);
    call->done = done;
    call->job.row = pp_store_skip_row;
    if (pp_store_add_solution(&call->job, session_uid, pod_uid, solution, usage, "prometheus",
                              final, err) < 0) {
        pp_job_free(&call->job);
        return -1;
    }
    return pp_call_submit(store, PP_LANE_BULK, call, err);
}
