/*
 * The GPU metrics that PrecisionProbe knows, and how an exporter's series become them.
 *
 * A metric has one name in a ProfileSession (spec.metrics), one in the store (the column), a unit
 * and a range. Which series of Prometheus carries it, under which label the GPU's UUID stands, and
 * with which factor it is multiplied, is an exporter's matter; prometheus.preset chooses one:
 * dcgm-exporter or AMD's device-metrics-exporter. All of it is in metric_table.h, one entry a
 * metric.
 */
#ifndef PP_COMMON_METRIC_H
#define PP_COMMON_METRIC_H

#include "common/chip.h"
#include "common/error.h"
#include "common/metric_table.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define PP_METRIC_ID(id, ...) PP_METRIC_##id,
#define PP_METRIC_ONE(...) +1 /* NOLINT(bugprone-macro-parentheses): a sum is made of them */

/** In the table's order: those that PM sampling tells are the first PP_METRIC_SAMPLED_COUNT, as the
 * wire, sidecar/samples.h and estimate/sampling count them. */
typedef enum pp_metric { PP_METRIC_TABLE(PP_METRIC_ID) PP_METRIC_COUNT } pp_metric;

enum { PP_METRIC_SAMPLED_COUNT = 0 PP_METRIC_TABLE_SAMPLED(PP_METRIC_ONE) };

/** A set of metrics: bit 1 << metric. All of them: those that the exporter has. */
#define PP_METRIC_ALL ((1U << PP_METRIC_COUNT) - 1)

/** No limit of a range. */
#define PP_METRIC_OPEN ((double)NAN)

typedef enum pp_metric_kind {
    PP_METRIC_SHARE, /**< of a limit: a layer has its own */
    PP_METRIC_LEVEL, /**< of the whole GPU, open: a layer's is the job's */
    PP_METRIC_RATE,  /**< an amount in a second, open: known of the job alone */
} pp_metric_kind;

/** One series of an exporter. */
typedef struct pp_metric_series {
    char name[128]; /**< the series' name; "": this exporter has no such metric */
    double scale;   /**< the series' value times this is in our unit */
} pp_metric_series;

enum { PP_METRIC_CUPTI_NAMES = 6 };

typedef struct pp_metric_info {
    const char *spec_name; /**< as in spec.metrics, e.g. "GPUUtil" */
    const char *column;    /**< as in the store, e.g. "gpu_util" */
    const char *heading;   /**< of its column where people read a table, e.g. "SMOcc." */
    pp_metric_kind kind;
    const char *unit;     /**< of its values, e.g. "share of 1" */
    const char *per_step; /**< of a rate: the unit of its amount in a step; NULL: it has none */
    double shown;         /**< what a value is multiplied by for people: shares are percent */
    pp_peak peak;         /**< what a share of it is a share of; a share of 1 */
    int place;            /**< of that column, from 1 on; 0: it has none */
    double min;           /**< lowest value; NaN: open */
    double max;           /**< highest value; NaN: open */
    bool usual;           /**< missed where an exporter lacks it, unless others are asked for */
    bool replayed;        /**< replays of a layer tell it */
    bool within_sms;      /**< counted within SMs: 0 where no kernel runs, whoever's */
    bool time_of_kernels; /**< the share of time in which a kernel ran: kernel records tell it */
    pp_metric_series dcgm, amd;
    struct {
        unsigned id;  /**< nvmlGpmMetricId_t; 0: GPM does not tell it */
        double scale; /**< GPM's value times this is in our unit */
    } gpm;
    const char *cupti[PP_METRIC_CUPTI_NAMES]; /**< in order of preference; NULL: no more */
    double sampled_scale; /**< PM sampling's value times this is in our unit; 0: it is in it */
} pp_metric_info;

/** Never NULL for a metric below PP_METRIC_COUNT. */
const pp_metric_info *pp_metric_get(pp_metric metric);

/** Whether replays tell a metric. */
bool pp_metric_is_replayed(pp_metric metric);

/** The metric in the i-th column of a table, from 0 on; PP_METRIC_COUNT behind the last. */
pp_metric pp_metric_in_column(int i);

/** A value that was measured, within its metric's range: what it was outside of that it is wrong by
 * at least, so its variance is no less than the square of it. */
double pp_metric_bound(const pp_metric_info *info, double value, double *variance);

/** Either the spec's name or the column; returns -1 for anything else. */
int pp_metric_from_name(const char *name, pp_metric *ret);

/** The set's names in the spec's spelling, e.g. "FP32Active, SMActive"; out is NUL-terminated. */
void pp_metric_names(unsigned set, char *out, size_t size);

/** Of the metrics that a session asks for those that have to be there: where all are asked for the
 * usual ones. */
unsigned pp_metric_expected(unsigned asked);

/** How one exporter shows its GPUs. A plain value: copy and change it. */
typedef struct pp_metric_source {
    char uuid_label[64]; /**< the label that holds the GPU's UUID */
    pp_metric_series series[PP_METRIC_COUNT];
} pp_metric_source;

/** "dcgm" or "amd"; PP_ERR_NOT_FOUND for another name. */
int pp_metric_preset(const char *name, pp_metric_source *ret, pp_error *err);

/** The metric that a series carries; returns -1 where it is none of the source's. */
int pp_metric_of_series(const pp_metric_source *source, const char *series, pp_metric *ret);

/**
 * A series' value in the metric's unit. False where it is no measurement: NaN, infinite, one of
 * DCGM's blanks, or outside the metric's range by more than rounding; such a value is dropped,
 * never stored.
 */
bool pp_metric_convert(const pp_metric_source *source, pp_metric metric, double raw, double *ret);

#endif
