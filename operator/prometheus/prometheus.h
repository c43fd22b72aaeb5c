/*
 * Raw samples from Prometheus: instant queries with a range selector (POST /api/v1/query), whose
 * answer is a matrix with the samples' own stamps. What to ask and when is
 * controller/samples/plan's.
 *
 * Series become metrics of a GPU through a pp_metric_source, whatever pod, host or job they name.
 * Several series of one GPU and metric (a shared GPU repeats one per pod) are merged: one sample
 * per stamp. Left out are series of MIG instances that have their GPU's UUID, which are no values
 * of the whole GPU; a GPU's metric whose series differ at one stamp (an exporter that gives each
 * pod its own share); and blank values (NaN, infinite, DCGM's blanks, out of range).
 */
#ifndef PP_OPERATOR_PROMETHEUS_PROMETHEUS_H
#define PP_OPERATOR_PROMETHEUS_PROMETHEUS_H

#include "common/error.h"
#include "common/metric.h"
#include "estimate/activity/activity.h"
#include "operator/http_client/http_client.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PP_PROMETHEUS_MAX_SERIES = 100000,  /**< of one answer */
    PP_PROMETHEUS_MAX_GPUS = 4096,      /**< of one answer; a query names far fewer */
    PP_PROMETHEUS_MAX_SAMPLES = 100000, /**< the store takes as many at once */
};

typedef struct pp_prometheus_answer {
    pp_strings gpus;   /**< UUIDs, sorted */
    pp_strings shared; /**< of these, the ones that several pods held at a time */
    /** By GPU, metric and stamp, each once. */
    pp_activity_sample *samples;
    size_t n_samples;
    /** What is to be known of the samples, and after it the beginning of Prometheus' first warning,
     *  joined by "; "; "": nothing. The same for like answers. */
    char warning[384];
    bool partial; /**< Prometheus warned: there may be more samples than it found */
} pp_prometheus_answer;

/** Frees what it owns; a zeroed one is fine. */
void pp_prometheus_answer_done(pp_prometheus_answer *answer);

/**
 * Decodes the body of an answer. Fails with PP_ERR_INVALID (not Prometheus' JSON, the query was
 * refused as bad_data), PP_ERR_TIMEOUT, PP_ERR_UNAVAILABLE (other errors that it reports, with its
 * text), PP_ERR_TOO_LARGE, PP_ERR_NOMEM. `ret` is filled on success only.
 */
int pp_prometheus_decode(const char *body, size_t n, const pp_metric_source *source,
                         pp_prometheus_answer *ret, pp_error *err);

/** Leaves out samples before `from_ns` or after `to_ns`, with a note. */
void pp_prometheus_answer_trim(pp_prometheus_answer *answer, int64_t from_ns, int64_t to_ns);

/** Adds to `known` those of an answer's warnings that it does not hold yet, as far as they fit;
 *  true where there were some. Our own notes go first, and have room whatever Prometheus warned of
 *  (448 bytes are enough). */
bool pp_prometheus_add_warnings(char *known, size_t size, const char *warnings);

typedef struct pp_prometheus pp_prometheus;

typedef struct pp_prometheus_options {
    const char *url;               /**< base URL, with a path prefix or without */
    const char *bearer_token_file; /**< read again for every query; NULL or "": none */
    const char *ca_file;           /**< NULL or "": the system's */
    pp_metric_source source;       /**< copied */
    int64_t timeout_ns;            /**< of a query; 0: 10 s */
    size_t max_body;               /**< bytes of an answer; 0: 16 MiB */
} pp_prometheus_options;

/** `http` outlives it. NULL on error (PP_ERR_INVALID: not an http or https URL). */
pp_prometheus *pp_prometheus_new(pp_http_client *http, const pp_prometheus_options *options,
                                 pp_error *err);

/** Outstanding queries are cancelled, their callbacks not called; run the loop afterwards, work on
 *  its thread pool may be under way. NULL is allowed. */
void pp_prometheus_free(pp_prometheus *prometheus);

/** Called once per query, on the loop's thread. The answer is borrowed, NULL with an error;
 * PP_ERR_TOO_LARGE where a smaller query may be answered. */
typedef void (*pp_prometheus_fn)(void *user, uint64_t id, const pp_prometheus_answer *answer,
                                 const pp_error *error);

/**
 * Asks. `text` is PromQL with a range selector, `time_ns` its evaluation time (whole ms; further
 * digits are cut), `range_ns` that range: samples outside of it, which no Prometheus should have,
 * are left out with a note; 0: any are taken. Answers are decoded on the thread pool. The callback
 * is never called before this returns.
 */
int pp_prometheus_query(pp_prometheus *prometheus, const char *text, int64_t time_ns,
                        int64_t range_ns, pp_prometheus_fn done, void *user, uint64_t *ret_id,
                        pp_error *err);

/** Decodes the body of an answer to time(): ns since 1970. Fails as pp_prometheus_decode does. */
int pp_prometheus_decode_time(const char *body, size_t n, int64_t *ret_ns, pp_error *err);

/** Called once, on the loop's thread; ns since 1970, whole ms, 0 with an error. */
typedef void (*pp_prometheus_time_fn)(void *user, int64_t real_ns, const pp_error *error);

/** Asks what time it is there: what Prometheus evaluates a query at that names no time. The
 * callback is never called before this returns. */
int pp_prometheus_ask_time(pp_prometheus *prometheus, pp_prometheus_time_fn done, void *user,
                           pp_error *err);

#endif
