/*
 * The operator's configuration: one YAML file, read at start. One sorted table (config.c) names
 * each option with its type, default, limits and description; it drives parsing, --help-config and
 * the check that docs/configuration.md is complete. Unknown keys are refused with their path.
 */
#ifndef PP_OPERATOR_STATE_CONFIG_H
#define PP_OPERATOR_STATE_CONFIG_H

#include "common/error.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Durations are ns. No string is NULL: "" means not given. Everything is owned. */
typedef struct pp_config {
    struct {
        bool enabled;
        int64_t connections; /**< to the database, beside the store's */
        int64_t max_waiting; /**< queries beside those that run */
        int64_t query_timeout;
    } api;
    struct {
        double max_standard_error_points; /**< of 100, above which no value is reported */
        int64_t solve_interval;
    } attribution;
    struct {
        char *bind_address; /**< "": every address */
        int64_t drain;      /**< from a signal to the end of reviews */
        int64_t tls_port;   /**< webhook and ingest */
        int64_t plain_port; /**< metrics and health */
    } http;
    struct {
        char *endpoint; /**< URL for agents; "": derived from the webhook's Service */
        int64_t max_connections;
    } ingest;
    struct {
        char *image;
        char *image_pull_policy;
        char *native_sidecar; /**< Auto, Always, Never */
        char *cpu;            /**< Kubernetes quantity */
        char *memory;
        double capture_seconds;
        int64_t events_port;
        bool release; /**< pods that do not start may be deleted */
        pp_strings gpu_resources;
    } injection;
    struct {
        char *kubeconfig;
        char *ns;
        double requests_per_second;
    } kubernetes;
    struct {
        bool enabled;
        char *name;
        char *ns;
    } lease;
    struct {
        char *level; /**< debug, info, warn, error */
    } log;
    struct {
        int64_t layers;    /**< of a workload, told apart */
        int64_t workloads; /**< 0: none is exported */
    } metrics;
    struct {
        char *deployment;
    } owner;
    struct {
        bool enabled;
        int64_t open_port; /**< of loopback, without a login; 0: there is none */
    } page;
    struct {
        char *conninfo_file;
        int64_t connect_timeout;
        int64_t max_queued_mebibytes;
    } postgres;
    struct {
        char *url;
        char *bearer_token_file;
        char *ca_file;
        char *preset;                /**< dcgm or amd */
        int64_t collection_interval; /**< 0: estimated from the samples */
        int64_t scrape_interval;     /**< 0: estimated from the samples */
        int64_t max_lag;
        int64_t max_wait;
        int64_t query_timeout;
    } prometheus;
    struct {
        bool allow; /**< sessions of method Replay */
    } replay;
    struct {
        int64_t activity; /**< 0: kept for ever; so for the two below */
        int64_t samples;
        int64_t results;
        int64_t interval;
    } retention;
    struct {
        bool by_auto; /**< also for method Auto */
        char *memory; /**< Kubernetes quantity */
        int64_t period_us;
    } sampling;
    struct {
        int64_t ttl_seconds; /**< of a session that does not say; 0: it is kept */
    } sessions;
    struct {
        char *client_ca_file;
        char *configuration_name;
        char *service_name;
        char *review_service_name;
        char *service_namespace;
        char *secret_name;
    } webhook;
} pp_config;

typedef enum pp_config_type {
    PP_CONFIG_BOOL,
    PP_CONFIG_INTEGER,
    PP_CONFIG_NUMBER,
    PP_CONFIG_DURATION, /**< "30s", "1h"; ns */
    PP_CONFIG_STRING,
    PP_CONFIG_CHOICE,   /**< a string out of `choices` */
    PP_CONFIG_QUANTITY, /**< "100m", "64Mi", or a number */
    PP_CONFIG_STRINGS,
} pp_config_type;

typedef struct pp_config_option {
    const char *path; /**< "http.tlsPort" */
    pp_config_type type;
    size_t offset;             /**< in pp_config */
    const char *default_value; /**< as it would stand in the file; lists: separated by commas */
    double min;                /**< INTEGER, NUMBER; DURATION in seconds */
    double max;
    const char *choices; /**< CHOICE: separated by '|' */
    const char *description;
} pp_config_option;

/** The table, sorted by path. */
const pp_config_option *pp_config_options(size_t *ret_n);

/** Reads a file; errors carry the option's path in `field`. On success free with pp_config_done. */
int pp_config_load(const char *path, pp_config *ret, pp_error *err);

/** As pp_config_load from text; an empty text gives the defaults. */
int pp_config_parse(const char *text, size_t n, pp_config *ret, pp_error *err);

/** Frees what it owns; a zeroed one is allowed. */
void pp_config_done(pp_config *config);

/** The table as Markdown, as in docs/configuration.md. Returns -1 where writing failed. */
int pp_config_print_help(FILE *out);

#endif
