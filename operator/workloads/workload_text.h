/*
 * What is known of workloads, as series in Prometheus' text format (docs/metrics.md). No I/O.
 *
 * A family's series stand together, so each workload's lines are kept family by family, and a page
 * takes them workload by workload.
 */
#ifndef PP_OPERATOR_WORKLOADS_WORKLOAD_TEXT_H
#define PP_OPERATOR_WORKLOADS_WORKLOAD_TEXT_H

#include "common/buf.h"
#include "common/metric.h"
#include "estimate/items/bound.h"

#include <stdint.h>

enum { PP_WORKLOAD_TEXT_MAX = 4 << 20 }; /**< bytes of a page */

/** A layer in a phase, or a phase of the step as a whole; per step. NaN: not known. */
typedef struct pp_layer_figures {
    char *layer;    /**< owned; "": none; NULL: the layers that are not told apart */
    char phase[16]; /**< forward, ...; of what is no layer its kind: optimizer, other, ... */
    double seconds; /**< elapsed, in marked steps; what overlaps shares the time */
    double busy_seconds;
    double share;
    double metrics[PP_METRIC_COUNT]; /**< in the metric's unit */
} pp_layer_figures;

/** A workload in one of its sessions: means over its GPUs. NaN: not known. Texts are owned. */
typedef struct pp_workload_figures {
    char *ns, *kind, *name;
    char *session, *uid;
    int64_t finished_ns;
    double gpus;
    double layers; /**< of the model, whether they are told apart or not */
    double step_seconds;
    double idle;
    double cost, budget; /**< shares of the training's time */
    double bounds[PP_BOUND_COUNT];
    double metrics[PP_METRIC_COUNT];
    pp_layer_figures *rows;
    size_t n_rows;
} pp_workload_figures;

/** Nothing is known. */
void pp_workload_figures_init(pp_workload_figures *figures);
/** Frees what it holds. */
void pp_workload_figures_done(pp_workload_figures *figures);
/** One more row, of which nothing is known; NULL without memory. */
pp_layer_figures *pp_workload_figures_add(pp_workload_figures *figures);

/** Of the workload, then of its layers. */
typedef enum pp_workload_family {
    PP_WORKLOAD_INFO,
    PP_WORKLOAD_FINISHED,
    PP_WORKLOAD_GPUS,
    PP_WORKLOAD_LAYERS,
    PP_WORKLOAD_STEP,
    PP_WORKLOAD_IDLE,
    PP_WORKLOAD_BOUND,
    PP_WORKLOAD_USAGE,
    PP_WORKLOAD_MEMORY,
    PP_WORKLOAD_TRANSFER,
    PP_WORKLOAD_POWER,
    PP_WORKLOAD_CLOCK,
    PP_WORKLOAD_COST,
    PP_WORKLOAD_BUDGET,
    PP_LAYER_SECONDS,
    PP_LAYER_BUSY,
    PP_LAYER_SHARE,
    PP_LAYER_USAGE,
    PP_WORKLOAD_FAMILIES,
} pp_workload_family;
#define PP_WORKLOAD_FIRST_OF_LAYERS PP_LAYER_SECONDS

typedef struct pp_family_info {
    const char *name;
    const char *labels; /**< beside the workload's three, for people; "": none */
    const char *help;
} pp_family_info;

const pp_family_info *pp_workload_family_get(pp_workload_family family);

/** "# HELP" and "# TYPE" of a gauge. */
int pp_workload_text_head(const pp_family_info *info, pp_buf *out, pp_error *err);

/** Which family a metric of a workload is in, and a value of it in that family's unit;
 * PP_WORKLOAD_FAMILIES: in none. */
pp_workload_family pp_workload_family_of(pp_metric metric, double value, double *ret_value);

/** A workload's lines, by family. */
typedef struct pp_workload_text {
    pp_buf lines[PP_WORKLOAD_FAMILIES];
} pp_workload_text;

/** PP_ERR_NOMEM, or PP_ERR_TOO_LARGE where they would fill more than a page. */
int pp_workload_text_write(const pp_workload_figures *figures, pp_workload_text *ret,
                           pp_error *err);
void pp_workload_text_done(pp_workload_text *text);

/** What a page has no room for. */
typedef struct pp_workload_page {
    size_t left_out;       /**< workloads */
    size_t without_layers; /**< workloads that are there but for their layers */
} pp_workload_page;

/** Appends a page of workloads, as far as `out` has room: the first ones first, their own series
 * before their layers'. */
int pp_workload_text_page(const pp_workload_text *const *texts, size_t n, pp_buf *out,
                          pp_workload_page *ret, pp_error *err);

/** Of sessions that failed. */
extern const pp_family_info pp_session_failed_info;
int pp_workload_text_failed(const char *ns, const char *session, const char *reason, int64_t at_ns,
                            pp_buf *out, pp_error *err);

#endif
