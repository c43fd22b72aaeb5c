/*
 * Which raw samples to ask Prometheus for, and when: all GPUs and metrics of the observed time in
 * few range queries, asked again while some are missing, and given up after a bounded wait.
 *
 * Pure: the caller tells what is needed, what is stored, what was answered and what time it is.
 * The state can be built again at any time (what is needed from the store's `activity`); asking
 * twice is harmless, since samples are stored by their stamp.
 *
 * What is sure: a series' samples become visible in the order of their stamps, at the latest
 * `settle_ns` after the stamp (the scrape's timeout). So what an answer of time t did not hold up
 * to t - settle_ns does not exist, and is not asked for again.
 */
#ifndef PP_CONTROLLER_SAMPLES_PLAN_H
#define PP_CONTROLLER_SAMPLES_PLAN_H

#include "common/buf.h"
#include "common/error.h"
#include "common/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PP_PLAN_MAX_GPUS 4096 /* of one plan */
#define PP_PLAN_LAG (60 * INT64_C(1000000000))
#define PP_PLAN_SETTLE (15 * INT64_C(1000000000))
#define PP_PLAN_MAX_QUERIES 8     /* of one call of pp_plan_next */
#define PP_PLAN_MAX_QUERY_GPUS 64 /* of one query */
#define PP_PLAN_MAX_UUID 128      /* bytes of a GPU's UUID */

/** Zero means the default, where there is one. */
typedef struct pp_plan_options {
    unsigned metrics;       /**< bits of the metrics asked for; default all */
    int64_t interval_ns;    /**< between questions about running work; default 5 s */
    int64_t scrape_ns;      /**< hint: the scrape interval, bounds a query's size; default 1 s */
    int64_t lead_ns;        /**< samples before the observed time that are wanted; default 15 s */
    int64_t lag_ns;         /**< samples after it that are wanted (lag, scrape); default
                                 PP_PLAN_LAG */
    int64_t settle_ns;      /**< until a sample is visible at the latest; default
                                 PP_PLAN_SETTLE */
    int64_t wait_ns;        /**< without an answer, once all should be there, then it is asked for
                                 the last time; needed */
    int64_t backoff_max_ns; /**< after failures; default 60 s */
    int64_t range_max_ns;   /**< of one query; default 15 min */
    int64_t samples_max;    /**< expected in one answer; default 40,000 */
} pp_plan_options;

typedef struct pp_plan pp_plan;

/** The source is copied. NULL when out of memory. */
pp_plan *pp_plan_new(const pp_metric_source *source, const pp_plan_options *opt);
/** Accepts NULL; returns NULL. */
pp_plan *pp_plan_free(pp_plan *plan);

/**
 * Samples of this GPU are needed for [from_ns, to_ns]; ranges of one GPU are joined. Fails with
 * PP_ERR_INVALID (UUID empty, too long, not printable) or PP_ERR_TOO_LARGE (too many GPUs).
 */
int pp_plan_need(pp_plan *plan, const char *gpu, int64_t from_ns, int64_t to_ns, pp_error *err);

/** Everything is asked for again: what was told of answers does not hold any more, since the clock
 * that stamps are taken to has changed. */
void pp_plan_again(pp_plan *plan);

/**
 * Samples of this GPU and metric up to this stamp are stored, without a gap since the range's
 * beginning. Tell it what answers of this plan's queries held; after a restart tell nothing, and
 * the range is asked for again. Unknown GPUs are ignored.
 */
void pp_plan_stored(pp_plan *plan, const char *gpu, pp_metric metric, int64_t stamp_ns);

/** One instant query of a range selector: the raw samples of (time - range, time]. */
typedef struct pp_plan_query {
    uint64_t id;
    char *text;       /**< PromQL, e.g. {__name__=~"A|B",UUID=~"GPU-1|GPU-2"}[30000ms] */
    int64_t time_ns;  /**< the query's `time`; whole milliseconds */
    int64_t range_ns; /**< length of the range; whole milliseconds */
    size_t n_gpus;
} pp_plan_query;

typedef struct pp_plan_queries {
    pp_plan_query items[PP_PLAN_MAX_QUERIES];
    size_t count;
} pp_plan_queries;

/**
 * The queries to send now; their GPUs are busy until pp_plan_answered. *ret is freed with
 * pp_plan_queries_done. Fails with PP_ERR_NOMEM only.
 */
int pp_plan_next(pp_plan *plan, int64_t now_ns, pp_plan_queries *ret, pp_error *err);
void pp_plan_queries_done(pp_plan_queries *queries);

/** The query was answered (its samples are stored, and told through pp_plan_stored), or failed.
 * Unknown ids are ignored. */
void pp_plan_answered(pp_plan *plan, uint64_t id, int64_t now_ns, bool ok);

/** The query failed because its answer would be more than Prometheus gives (query.max-samples) or
 * than is taken here: asked again at once, and all further ones are half as large, down to one GPU
 * and ten scrapes; past that it counts as one that failed. */
void pp_plan_too_large(pp_plan *plan, uint64_t id, int64_t now_ns);

/** As pp_plan_answered, of an answer that may lack samples which are there (a store behind
 * Prometheus is away): stored or not, pp_plan_stored is not told of it. What is younger than
 * `wait_ns` is asked for again, at pauses that double up to a quarter of that. */
void pp_plan_partial(pp_plan *plan, uint64_t id, int64_t now_ns);

/** When pp_plan_next will have something to ask; INT64_MAX: not before something changes. */
int64_t pp_plan_due(const pp_plan *plan);

/** Whether nothing is left to ask: everything that exists is stored, or given up. */
bool pp_plan_complete(const pp_plan *plan);

/**
 * Appends `text` as a literal of a regular expression within a double-quoted PromQL string. Fails
 * as pp_buf_append does, or with PP_ERR_INVALID where it holds a control character.
 */
int pp_plan_quote(const char *text, pp_buf *out, pp_error *err);

#endif
