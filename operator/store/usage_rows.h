/* Statements' parameters of a usage's figures: of one GPU, and of a workload. */
#ifndef PP_OPERATOR_STORE_USAGE_ROWS_H
#define PP_OPERATOR_STORE_USAGE_ROWS_H

#include "estimate/pattern/usage.h"
#include "operator/store/statement.h"

/** Columns of usage and pattern: steps ... idle_stderr, 8 of them. */
void pp_usage_rows_head(pp_statement *s, const pp_usage *usage);
/** Columns models, model_digests and batches: `most` models at most. */
void pp_usage_rows_models(pp_statement *s, const pp_usage *usage, size_t most);
/** Columns gpu_model and chip: NULL where they are not known. */
void pp_usage_rows_gpu(pp_statement *s, const pp_usage_gpu *gpu);
/** Of a metric each: name, source, mean, p50 and p95 with their errors, most, what was achieved
 * with its error, the peak, whether it has a profile, and all profiles one behind the other: 14
 * arrays. */
int pp_usage_rows_metrics(pp_statement *s, const pp_usage *usage, pp_error *err);
/** Of a share each: kind, name, share and what was achieved, with their errors: 6 arrays. */
int pp_usage_rows_shares(pp_statement *s, const pp_usage *usage, pp_error *err);

/** As a string literal: selects the rows of pp_usage_rows_metrics, whose first parameter is $4. */
#define PP_USAGE_ROWS_METRICS                                                                      \
    "m.metric, m.source, m.mean, m.mean_stderr, m.p50, m.p50_stderr, m.p95, m.p95_stderr, "        \
    "m.most, m.achieved, m.achieved_stderr, m.peak, "                                              \
    "CASE WHEN m.has_profile <> 0 THEN ($17::float8[])[(m.n - 1) * 20 + 1:m.n * 20] END "          \
    "FROM unnest($4::text[], $5::text[], $6::float8[], $7::float8[], $8::float8[], "               \
    "$9::float8[], $10::float8[], $11::float8[], $12::float8[], $13::float8[], $14::float8[], "    \
    "$15::float8[], $16::smallint[]) "                                                             \
    "WITH ORDINALITY AS m (metric, source, mean, mean_stderr, p50, p50_stderr, p95, p95_stderr, "  \
    "most, achieved, achieved_stderr, peak, has_profile, n) "
/** The same of pp_usage_rows_shares. */
#define PP_USAGE_ROWS_SHARES                                                                       \
    "h.* FROM unnest($4::text[], $5::text[], $6::float8[], $7::float8[], $8::float8[], "           \
    "$9::float8[]) AS h "

/* Rows into a usage, by column from `at` on, in the same order. */
void pp_usage_rows_take_head(pp_usage *usage, const PGresult *r, int row, int at);
int pp_usage_rows_take_models(pp_usage *usage, const PGresult *r, int row, int at, pp_error *err);
int pp_usage_rows_take_gpu(pp_usage_gpu *gpu, const PGresult *r, int row, int at, pp_error *err);
/** Unknown metrics, of a later release, are left out. */
int pp_usage_rows_take_metric(pp_usage *usage, const PGresult *r, int row, int at, pp_error *err);
int pp_usage_rows_take_share(pp_usage *usage, const PGresult *r, int row, int at, pp_error *err);

#endif
