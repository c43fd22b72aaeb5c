/* Rows of results, sorted by job and layer, as figures need them. Values are in percent. */
#ifndef PP_CLI_FIGURES_JOBS_H
#define PP_CLI_FIGURES_JOBS_H

#include "common/error.h"
#include "common/metric.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum pp_figure_phase {
    PP_FIGURE_FORWARD,
    PP_FIGURE_BACKWARD,
    PP_FIGURE_PHASES
} pp_figure_phase;

/** What a row tells of a metric; NaN: not known. Texts are borrowed from the rows, "": none. */
typedef struct pp_figure_value {
    double mean;
    double stderr_;    /**< standard error */
    double group_mean; /**< of the layers that `group` names, together, where these cannot be told
                          apart */
    const char *group;
    const char *reason; /**< why there is no mean */
} pp_figure_value;

typedef struct pp_figure_layer {
    const char *name;
    double ms[PP_FIGURE_PHASES];          /**< per step; NaN: it has no such phase */
    const json_t *rows[PP_FIGURE_PHASES]; /**< NULL: none */
    bool shown;
} pp_figure_layer;

/** What one GPU of a pod did in a session. Texts are borrowed from the rows. */
typedef struct pp_figure_job {
    const char *session, *pod, *gpu, *workload;
    const json_t *row;       /**< of the whole job; NULL: none */
    double step_ms;          /**< a step; NaN: not known */
    double step_stderr;      /**< its standard error; NaN: not known */
    pp_figure_layer *layers; /**< in the rows' order */
    size_t count;
    size_t hidden;    /**< layers with time that are not shown */
    double hidden_ms; /**< theirs, per step */
    double shown_ms;
    size_t timeless; /**< layers that ran without taking time */
} pp_figure_job;

/**
 * Sorts rows, {"items": [...]} as the API has them, into jobs, in their order, of which each shows
 * the `most` layers that take the most time. Rows of other kinds, and phases other than forward and
 * backward, are in no figure. The jobs borrow from `document`. On success *ret is to be freed by
 * pp_figure_jobs_free. Fails where it is no such document, or has no layer.
 */
int pp_figure_jobs(const json_t *document, size_t most, pp_figure_job **ret, size_t *ret_n,
                   pp_error *err);

void pp_figure_jobs_free(pp_figure_job *jobs, size_t n);

/** What a row, which may be NULL, tells of a metric, in the unit that people read: percent for
 * shares. */
pp_figure_value pp_figure_value_of(const json_t *row, pp_metric metric);

#endif
