/*
 * A small registry of metrics in Prometheus' text format. Metrics are made once, at start, by the
 * parts that own the figures, and live as long as the registry; others are appended at each
 * rendering. Used on the loop's thread only.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_METRICS_H
#define PP_OPERATOR_HTTP_SERVER_METRICS_H

#include "common/buf.h"
#include "common/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pp_metrics pp_metrics;
typedef struct pp_meter pp_meter;

enum {
    PP_METRICS_MAX_SERIES = 1000,  /**< of one registry */
    PP_METRICS_MAX_BUCKETS = 20,   /**< of one histogram, +Inf not counted */
    PP_METRICS_MAX_TEXT = 5 << 20, /**< bytes of one rendering */
};

/** An empty registry; NULL without memory. */
pp_metrics *pp_metrics_new(void);

/** Frees it and all its metrics; NULL is allowed. */
void pp_metrics_free(pp_metrics *metrics);

/*
 * Each makes one series and returns it, or returns the one that was made before with the same name
 * and labels. `labels` is the inside of the braces, e.g. code="200", or NULL; name, help and labels
 * are copied. Series of one name share help and type. NULL (and err) when the name is not a legal
 * one, has another type already, or a limit is passed. All functions below take a NULL metric and
 * then do nothing, so that a missing metric never breaks its owner.
 */
pp_meter *pp_metrics_counter(pp_metrics *metrics, const char *name, const char *help,
                             const char *labels, pp_error *err);
pp_meter *pp_metrics_gauge(pp_metrics *metrics, const char *name, const char *help,
                           const char *labels, pp_error *err);

/** bounds: ascending upper bounds of the buckets, without +Inf; copied. */
pp_meter *pp_metrics_histogram(pp_metrics *metrics, const char *name, const char *help,
                               const char *labels, const double *bounds, size_t count,
                               pp_error *err);

/** Counter: adds n >= 0 (a negative n is ignored). Gauge: adds n. */
void pp_meter_add(pp_meter *metric, double n);

/** Becomes value; a counter only a higher one, that its owner has counted. */
void pp_meter_set(pp_meter *metric, double value);

/** Histogram: counts one observation. */
void pp_meter_observe(pp_meter *metric, double value);

/** Called at each rendering before anything is written, to bring gauges up to date. */
int pp_metrics_on_render(pp_metrics *metrics, void (*collect)(void *context), void *context,
                         pp_error *err);

/** Called at each rendering behind all that the registry holds, to append families whose series
 * come and go: whole ones, of other names than the registry's, in the text format. */
int pp_metrics_on_append(pp_metrics *metrics,
                         int (*append)(void *context, pp_buf *out, pp_error *err), void *context,
                         pp_error *err);

/** A number as Prometheus reads it, as short as tells it from others; whole ones without exponent,
 * so that counters stay readable. */
void pp_metrics_format_number(char *out, size_t size, double value);

/** Adds process_* (memory, CPU time, open files, start time) as Prometheus' own clients do. */
int pp_metrics_add_process(pp_metrics *metrics, pp_error *err);

/** Appends the text format, version 0.0.4. */
int pp_metrics_render(pp_metrics *metrics, pp_buf *out, pp_error *err);

#endif
