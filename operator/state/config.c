#include "operator/state/config.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "common/time.h"
#include "common/yaml.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { MAX_FILE = 1 << 20, MAX_STRING = 4096, MAX_STRINGS = 64 };

#define DAY 86400.0
#define YEARS (100 * 365 * DAY)
#define AT(member) offsetof(pp_config, member)

/* Sorted by path. Descriptions are one line of Markdown. */
static const pp_config_option options[] = {
    {"api.connections", PP_CONFIG_INTEGER, AT(api.connections), "2", 1, 16, NULL,
     "Connections to Postgres on which each replica reads results for the HTTP API; as many "
     "queries "
     "run at once"},
    {"api.enabled", PP_CONFIG_BOOL, AT(api.enabled), "true", 0, 0, NULL,
     "Whether results are served by HTTP, on `http.tlsPort` below /api/v1/"},
    {"api.maxWaiting", PP_CONFIG_INTEGER, AT(api.max_waiting), "48", 0, 1024, NULL,
     "Queries of the HTTP API that wait for a connection; further requests are answered 429"},
    {"api.queryTimeout", PP_CONFIG_DURATION, AT(api.query_timeout), "5s", 0.1, 15, NULL,
     "How long one query of the HTTP API may take in the database"},
    {"attribution.maxStandardErrorPoints", PP_CONFIG_NUMBER,
     AT(attribution.max_standard_error_points), "5", 0.1, 50, NULL,
     "Greatest standard error, in points of 100 of a metric's range, with which a layer's value is "
     "reported"},
    {"attribution.solveInterval", PP_CONFIG_DURATION, AT(attribution.solve_interval), "30s", 1,
     3600, NULL,
     "How often a live session's estimates are solved again; less often where there are many"},
    {"http.bindAddress", PP_CONFIG_STRING, AT(http.bind_address), "", 0, 0, NULL,
     "Address to listen on; empty: every address"},
    {"http.drain", PP_CONFIG_DURATION, AT(http.drain), "5s", 0, 20, NULL,
     "How long reviews are answered on after a signal to stop: until every node has taken the pod "
     "off the Service"},
    {"http.plainPort", PP_CONFIG_INTEGER, AT(http.plain_port), "8080", 0, 65535, NULL,
     "Port of /metrics, /healthz and /readyz, without TLS"},
    {"http.tlsPort", PP_CONFIG_INTEGER, AT(http.tls_port), "9443", 0, 65535, NULL,
     "Port of the webhook and of the agents' connections"},
    {"ingest.endpoint", PP_CONFIG_STRING, AT(ingest.endpoint), "", 0, 0, NULL,
     "URL (wss://...) that agents connect to; empty: `webhook.serviceName` in "
     "`webhook.serviceNamespace`, port 443"},
    {"ingest.maxConnections", PP_CONFIG_INTEGER, AT(ingest.max_connections), "2000", 1, 100000,
     NULL, "Agents connected at once; more are answered 503, unless one of no session makes room"},
    {"injection.captureSeconds", PP_CONFIG_NUMBER, AT(injection.capture_seconds), "30", 1, 3600,
     NULL,
     "Least length of a capture, which is a contiguous run of sampled steps, in seconds; where 64 "
     "steps take less, as long as they do and half a second at least"},
    {"injection.cpu", PP_CONFIG_QUANTITY, AT(injection.cpu), "", 0, 0, NULL,
     "CPU that the agent requests, but in BestEffort pods; empty: none, but in Guaranteed pods, "
     "50m"},
    {"injection.eventsPort", PP_CONFIG_INTEGER, AT(injection.events_port), "0", 0, 65535, NULL,
     "Port on a pod's loopback where its agent takes events of other frameworks' hooks, e.g. 9402; "
     "0: none. The pod's own programs cannot use it then"},
    {"injection.gpuResources", PP_CONFIG_STRINGS, AT(injection.gpu_resources),
     "nvidia.com/gpu,amd.com/gpu", 0, 0, NULL,
     "Resource names by which a container is known to use a GPU"},
    {"injection.image", PP_CONFIG_STRING, AT(injection.image), "", 0, 0, NULL,
     "Image with the hook and the agent; needed for injection"},
    {"injection.imagePullPolicy", PP_CONFIG_CHOICE, AT(injection.image_pull_policy), "IfNotPresent",
     0, 0, "Always|IfNotPresent|Never", "Pull policy of `injection.image`"},
    {"injection.memory", PP_CONFIG_QUANTITY, AT(injection.memory), "", 0, 0, NULL,
     "Memory that the agent requests and is limited to, but in BestEffort pods; empty: none, but "
     "in "
     "Guaranteed pods, 64Mi"},
    {"injection.nativeSidecar", PP_CONFIG_CHOICE, AT(injection.native_sidecar), "Auto", 0, 0,
     "Auto|Always|Never", "Whether the agent runs as a native sidecar; Auto: from server 1.32 on"},
    {"injection.release", PP_CONFIG_BOOL, AT(injection.release), "false", 0, 0, NULL,
     "Whether a pod that does not start because of what was added is deleted once, so that its "
     "controller makes another, which is left alone"},
    {"kubernetes.kubeconfig", PP_CONFIG_STRING, AT(kubernetes.kubeconfig), "", 0, 0, NULL,
     "A kubeconfig, for development; empty: the pod's service account"},
    {"kubernetes.namespace", PP_CONFIG_STRING, AT(kubernetes.ns), "", 0, 0, NULL,
     "The only namespace whose sessions and pods are watched; empty: all"},
    {"kubernetes.requestsPerSecond", PP_CONFIG_NUMBER, AT(kubernetes.requests_per_second), "100", 1,
     10000, NULL,
     "Requests to the API server in the long run, and four times as many at once; those of the "
     "Lease "
     "and TokenReviews are not counted"},
    {"lease.enabled", PP_CONFIG_BOOL, AT(lease.enabled), "true", 0, 0, NULL,
     "Whether to hold a Lease before working; false only for a single development process"},
    {"lease.name", PP_CONFIG_STRING, AT(lease.name), "precisionprobe", 0, 0, NULL,
     "Name of the Lease"},
    {"lease.namespace", PP_CONFIG_STRING, AT(lease.ns), "", 0, 0, NULL,
     "Namespace of the Lease; empty: the operator's own"},
    {"log.level", PP_CONFIG_CHOICE, AT(log.level), "info", 0, 0, "debug|info|warn|error",
     "Lowest level that is logged"},
    {"metrics.layers", PP_CONFIG_INTEGER, AT(metrics.layers), "20", 1, 200, NULL,
     "Layers of a workload that /metrics tells apart, those that take most time; the rest is "
     "summed"},
    {"metrics.workloads", PP_CONFIG_INTEGER, AT(metrics.workloads), "0", 0, 1000, NULL,
     "Workloads that /metrics tells, those whose sessions ended last; 0: none"},
    {"owner.deployment", PP_CONFIG_STRING, AT(owner.deployment), "", 0, 0, NULL,
     "Deployment in the operator's namespace that owns what the operator creates for itself "
     "(Lease, "
     "Secret), so that it goes with it; empty: nothing owns it"},
    {"page.enabled", PP_CONFIG_BOOL, AT(page.enabled), "true", 0, 0, NULL,
     "Whether the page is served, on `http.tlsPort` at /page/; it needs `api.enabled`"},
    {"page.openPort", PP_CONFIG_INTEGER, AT(page.open_port), "0", 0, 65535, NULL,
     "Port of the pod's loopback where the page and the HTTP API need no login: whoever reaches it "
     "sees all results; 0: there is none"},
    {"postgres.connectTimeout", PP_CONFIG_DURATION, AT(postgres.connect_timeout), "10s", 1, 300,
     NULL,
     "How long each address of the server may take to be connected to; `connect_timeout` in the "
     "connection string goes before it"},
    {"postgres.conninfoFile", PP_CONFIG_STRING, AT(postgres.conninfo_file),
     "/etc/precisionprobe/postgres/conninfo", 0, 0, NULL,
     "File with a libpq connection string or URI; read again at every attempt to connect"},
    {"postgres.maxQueuedMebibytes", PP_CONFIG_INTEGER, AT(postgres.max_queued_mebibytes), "64", 1,
     4096, NULL, "Writes held in memory while Postgres is away; past it agents keep their batches"},
    {"prometheus.bearerTokenFile", PP_CONFIG_STRING, AT(prometheus.bearer_token_file), "", 0, 0,
     NULL, "File with a bearer token, read again for every query; empty: none is sent"},
    {"prometheus.caFile", PP_CONFIG_STRING, AT(prometheus.ca_file), "", 0, 0, NULL,
     "PEM file with the authorities trusted for https; empty: the system's"},
    {"prometheus.collectionInterval", PP_CONFIG_DURATION, AT(prometheus.collection_interval), "0s",
     0, 600, NULL,
     "The exporter's collection interval (dcgm-exporter `-c`); 0s: estimated from the samples"},
    {"prometheus.maxLag", PP_CONFIG_DURATION, AT(prometheus.max_lag), "0s", 0, 600, NULL,
     "Greatest time from the end of a collection window to its publication; 0s: 2.5 windows, at "
     "least 1.5 s"},
    {"prometheus.maxWait", PP_CONFIG_DURATION, AT(prometheus.max_wait), "120s", 1, 3600, NULL,
     "How long Prometheus may not answer before a session that has ended goes on without the "
     "samples that are missing"},
    {"prometheus.preset", PP_CONFIG_CHOICE, AT(prometheus.preset), "dcgm", 0, 0, "dcgm|amd",
     "Metric names, scales and labels of the exporter"},
    {"prometheus.queryTimeout", PP_CONFIG_DURATION, AT(prometheus.query_timeout), "10s", 1, 300,
     NULL, "How long one query may take"},
    {"prometheus.scrapeInterval", PP_CONFIG_DURATION, AT(prometheus.scrape_interval), "0s", 0, 600,
     NULL, "Prometheus' scrape interval of the exporter; 0s: estimated from the samples"},
    {"prometheus.url", PP_CONFIG_STRING, AT(prometheus.url), "", 0, 0, NULL,
     "Base URL of Prometheus; empty: no metrics, layers are timed only"},
    {"replay.allow", PP_CONFIG_BOOL, AT(replay.allow), "false", 0, 0, NULL,
     "Whether sessions of method Replay are accepted, which pause the training while its layers "
     "are replayed"},
    {"retention.activity", PP_CONFIG_DURATION, AT(retention.activity), "168h", 0, YEARS, NULL,
     "How long a finished session's intervals are kept; 0s: for ever"},
    {"retention.interval", PP_CONFIG_DURATION, AT(retention.interval), "10m", 1, DAY, NULL,
     "How often data past its retention is looked for"},
    {"retention.results", PP_CONFIG_DURATION, AT(retention.results), "0s", 0, YEARS, NULL,
     "How long a finished session and its estimates are kept; 0s: for ever"},
    {"retention.samples", PP_CONFIG_DURATION, AT(retention.samples), "168h", 0, YEARS, NULL,
     "How long raw metric samples and a finished session's sample rows are kept; 0s: for ever"},
    {"sampling.auto", PP_CONFIG_BOOL, AT(sampling.by_auto), "false", 0, 0, NULL,
     "Whether sessions of method Auto ask for PM sampling too, which takes memory and processor "
     "of the profiled containers where the driver lets them"},
    {"sampling.memory", PP_CONFIG_QUANTITY, AT(sampling.memory), "", 0, 0, NULL,
     "`injection.memory` of pods that are injected for a session that asks for PM sampling; "
     "where "
     "an amount is needed, 192Mi"},
    {"sampling.periodMicroseconds", PP_CONFIG_INTEGER, AT(sampling.period_us), "25", 20, 1000, NULL,
     "Least time between two samples of a GPU's performance monitors, for PM sampling; it is "
     "longer where decoding them takes longer"},
    {"sessions.ttlSecondsAfterFinished", PP_CONFIG_INTEGER, AT(sessions.ttl_seconds), "0", 0,
     31536000, NULL,
     "How long after its end a ProfileSession that does not say so itself is deleted, in seconds; "
     "0: it is kept. Holds for sessions that are accepted from then on"},
    {"webhook.clientCaFile", PP_CONFIG_STRING, AT(webhook.client_ca_file), "", 0, 0, NULL,
     "PEM file with the authorities of the API server's client certificate, which reviews then "
     "need "
     "beside their path; empty: none is asked for. Read again every minute"},
    {"webhook.configurationName", PP_CONFIG_STRING, AT(webhook.configuration_name),
     "precisionprobe", 0, 0, NULL,
     "MutatingWebhookConfiguration whose caBundle and paths the operator keeps; empty: not "
     "touched"},
    {"webhook.reviewServiceName", PP_CONFIG_STRING, AT(webhook.review_service_name), "", 0, 0, NULL,
     "A second Service in front of `http.tlsPort`, for the API server's calls; the certificate is "
     "made out to it too. Empty: there is none"},
    {"webhook.secretName", PP_CONFIG_STRING, AT(webhook.secret_name), "precisionprobe-tls", 0, 0,
     NULL,
     "Secret in the operator's namespace that holds its certificates and the secret of the "
     "webhook's paths"},
    {"webhook.serviceName", PP_CONFIG_STRING, AT(webhook.service_name), "precisionprobe", 0, 0,
     NULL, "Service in front of `http.tlsPort`; the certificate is made out to it"},
    {"webhook.serviceNamespace", PP_CONFIG_STRING, AT(webhook.service_namespace), "", 0, 0, NULL,
     "Its namespace; empty: the operator's own"},
};
enum { OPTION_COUNT = sizeof(options) / sizeof(options[0]) };

const pp_config_option *pp_config_options(size_t *ret_n)
{
    *ret_n = OPTION_COUNT;
    return options;
}

static const pp_config_option *find_option(const char *path)
{
    size_t low = 0;
    size_t high = OPTION_COUNT;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const int order = strcmp(path, options[middle].path);
        if (order == 0)
            return &options[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static bool is_section(const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strncmp(options[i].path, path, n) == 0 && options[i].path[n] == '.')
            return true;
    }
    return false;
}

static int replace_string(char **target, const char *text, pp_error *err)
{
    char *copy = strdup(text);
    if (!copy)
        return pp_error_nomem(err);
    free(*target);
    *target = copy;
    return 0;
}

static int check_range(const pp_config_option *o, double value, pp_error *err)
{
    if (!isfinite(value) || value < o->min || value > o->max)
        return pp_error_field(err, o->path, "must be from %g to %g%s", o->min, o->max,
                              o->type == PP_CONFIG_DURATION ? " seconds" : "");
    return 0;
}

static bool in_choices(const char *choices, const char *text)
{
    const size_t n = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
        if (n && strncmp(c, text, n) == 0 && (c[n] == '|' || c[n] == '\0'))
            return true;
    }
    return false;
}

/* As apimachinery's quantities, without exponents: digits, a point, a suffix. */
static bool is_quantity(const char *text)
{
    static const char *const suffixes[] = {"",  "m",  "k",  "M",  "G",  "T",  "P",
                                           "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    const size_t digits = strspn(text, "0123456789");
    const char *rest = text + digits;
    if (digits == 0 || digits > 15)
        return false;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        if (strcmp(rest, suffixes[i]) == 0)
            return true;
    }
    return false;
}

static int set_quantity(const pp_config_option *o, const json_t *value, char **target,
                        pp_error *err)
{
    char number[32];
    const char *text = json_string_value(value);
    if (json_is_number(value)) {
        (void)snprintf(number, sizeof(number), "%.10g", json_number_value(value));
        text = number;
    }
    if (!text || (*text && !is_quantity(text)))
        return pp_error_field(err, o->path, "must be a quantity such as 100m or 64Mi");
    return replace_string(target, text, err);
}

static int set_string(const pp_config_option *o, const json_t *value, char **target, pp_error *err)
{
    const char *text = json_string_value(value);
    if (!text)
        return pp_error_field(err, o->path, "must be a string (put quotes around it)");
    if (json_string_length(value) > MAX_STRING || strlen(text) != json_string_length(value))
        return pp_error_field(err, o->path, "must have at most %d bytes and no NUL", MAX_STRING);
    if (o->type == PP_CONFIG_CHOICE && !in_choices(o->choices, text))
        return pp_error_field(err, o->path, "must be one of %s", o->choices);
    return replace_string(target, text, err);
}

static int set_strings(const pp_config_option *o, const json_t *value, pp_strings *target,
                       pp_error *err)
{
    if (!json_is_array(value) || json_array_size(value) > MAX_STRINGS)
        return pp_error_field(err, o->path, "must be a list of at most %d strings", MAX_STRINGS);
    pp_strings_free(target);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (!text || !*text)
            return pp_error_field(err, o->path, "must hold non-empty strings only");
        if (pp_strings_add(target, text, err) < 0)
            return -1;
    }
    return 0;
}

static int set_duration(const pp_config_option *o, const json_t *value, int64_t *target,
                        pp_error *err)
{
    int64_t ns = 0;
    pp_error why = {0};
    const char *text = json_string_value(value);
    if (!text || pp_duration_parse(text, &ns, &why) < 0)
        return pp_error_field(err, o->path, "must be a duration such as \"90s\" or \"2m30s\"");
    if (check_range(o, (double)ns / 1e9, err) < 0)
        return -1;
    *target = ns;
    return 0;
}

static int set_number(const pp_config_option *o, const json_t *value, void *target, pp_error *err)
{
    if (o->type == PP_CONFIG_INTEGER ? !json_is_integer(value) : !json_is_number(value))
        return pp_error_field(err, o->path, "must be %s",
                              o->type == PP_CONFIG_INTEGER ? "an integer" : "a number");
    if (check_range(o, json_number_value(value), err) < 0)
        return -1;
    if (o->type == PP_CONFIG_INTEGER)
        *(int64_t *)target = json_integer_value(value);
    else
        *(double *)target = json_number_value(value);
    return 0;
}

static int set_option(pp_config *config, const pp_config_option *o, const json_t *value,
                      pp_error *err)
{
    void *target = (char *)config + o->offset;
    switch (o->type) {
    case PP_CONFIG_BOOL:
        if (!json_is_boolean(value))
            return pp_error_field(err, o->path, "must be true or false");
        *(bool *)target = json_is_true(value);
        return 0;
    case PP_CONFIG_INTEGER:
    case PP_CONFIG_NUMBER:
        return set_number(o, value, target, err);
    case PP_CONFIG_DURATION:
        return set_duration(o, value, target, err);
    case PP_CONFIG_STRING:
    case PP_CONFIG_CHOICE:
        return set_string(o, value, target, err);
    case PP_CONFIG_QUANTITY:
        return set_quantity(o, value, target, err);
    case PP_CONFIG_STRINGS:
        return set_strings(o, value, target, err);
    }
    return pp_error_set(err, PP_ERR_INTERNAL, "unknown type of option %s", o->path);
}

static int set_section(pp_config *config, const char *path, const json_t *object, pp_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(object))
        return pp_error_field(err, path, "must be a map");
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char child[160];
        if (snprintf(child, sizeof(child), "%s%s%s", path, *path ? "." : "", key) >=
            (int)sizeof(child))
            return pp_error_field(err, path, "has a key that is too long");
        const pp_config_option *o = find_option(child);
        if (!o && !is_section(child))
            return pp_error_field(err, child, "unknown option");
        /* A key without a value is what Helm renders for an unset one: the default stays. */
        if (json_is_null(value))
            continue;
        if ((o ? set_option(config, o, value, err) : set_section(config, child, value, err)) < 0)
            return -1;
    }
    return 0;
}

static json_t *default_json(const pp_config_option *o)
{
    const char *text = o->default_value;
    switch (o->type) {
    case PP_CONFIG_BOOL:
        return json_boolean(strcmp(text, "true") == 0);
    case PP_CONFIG_INTEGER:
        return json_integer(strtoll(text, NULL, 10));
    case PP_CONFIG_NUMBER:
        return json_real(strtod(text, NULL));
    case PP_CONFIG_STRINGS: {
        json_t *list = json_array();
        for (const char *c = text; *c; c += strcspn(c, ",") + (c[strcspn(c, ",")] == ','))
            (void)json_array_append_new(list, json_stringn(c, strcspn(c, ",")));
        return list;
    }
    default:
        return json_string(text);
    }
}

static int set_defaults(pp_config *config, pp_error *err)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        PP_CLEANUP_JSON json_t *value = default_json(&options[i]);
        if (!value)
            return pp_error_nomem(err);
        if (set_option(config, &options[i], value, err) < 0)
            return -1;
    }
    return 0;
}

/* Names as releases until 0.1.0 had them: of sections, and of options in a section. */
static const struct {
    const char *section, *was, *is;
} renamed[] = {{NULL, "fine", "sampling"},
               {NULL, "isolated", "replay"},
               {"injection", "stretchSeconds", "captureSeconds"}};

static bool is_map(const json_t *value)
{
    return !value || json_is_null(value) || json_is_object(value);
}

/* Where both are there, what is under the new name counts: `helm upgrade --reuse-values --set`
 * gives both. */
static int rename_key(json_t *in, const char *was_name, const char *is_name, pp_error *err)
{
    json_t *was = json_object_get(in, was_name);
    json_t *is = json_object_get(in, is_name);
    int rc = 0;
    if (json_is_object(is) && json_is_object(was))
        rc = json_object_update_missing(is, was);
    else if (was && (!is || json_is_null(is)))
        rc = json_object_set(in, is_name, was);
    if (rc < 0)
        return pp_error_nomem(err);
    (void)json_object_del(in, was_name);
    return 0;
}

static int rename_keys(json_t *root, pp_error *err)
{
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++) {
        const char *section = renamed[i].section;
        json_t *in = section ? json_object_get(root, section) : root;
        if (!section && !is_map(json_object_get(in, renamed[i].was)))
            return pp_error_field(err, renamed[i].was, "must be a map");
        if (!section && !is_map(json_object_get(in, renamed[i].is)))
            return pp_error_field(err, renamed[i].is, "must be a map");
        if (rename_key(in, renamed[i].was, renamed[i].is, err) < 0)
            return -1;
    }
    return 0;
}

static int fill(const char *text, size_t n, pp_config *config, pp_error *err)
{
    if (set_defaults(config, err) < 0)
        return -1;
    if (strspn(text, " \t\r\n") == n)
        return 0;
    PP_CLEANUP_JSON json_t *root = pp_yaml_parse(text, n, err);
    if (!root)
        return -1;
    if (json_is_null(root))
        return 0;
    if (rename_keys(root, err) < 0)
        return -1;
    return set_section(config, "", root, err);
}

int pp_config_parse(const char *text, size_t n, pp_config *ret, pp_error *err)
{
    pp_config config = {0};
    if (fill(text, n, &config, err) < 0) {
        pp_config_done(&config);
        return -1;
    }
    *ret = config;
    return 0;
}

int pp_config_load(const char *path, pp_config *ret, pp_error *err)
{
    size_t n = 0;
    PP_CLEANUP_FREE char *text = pp_file_read(path, MAX_FILE, &n, err);
    if (!text)
        return -1;
    if (pp_config_parse(text, n, ret, err) < 0)
        return pp_error_prefix(err, "%s", path);
    return 0;
}

void pp_config_done(pp_config *config)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        void *target = (char *)config + options[i].offset;
        switch (options[i].type) {
        case PP_CONFIG_STRING:
        case PP_CONFIG_CHOICE:
        case PP_CONFIG_QUANTITY:
            free(*(char **)target);
            break;
        case PP_CONFIG_STRINGS:
            pp_strings_free(target);
            break;
        default:
            break;
        }
    }
    memset(config, 0, sizeof(*config));
}

static const char *type_name(pp_config_type type)
{
    static const char *const names[] = {"boolean", "integer", "number",   "duration",
                                        "string",  "choice",  "quantity", "list of strings"};
    return names[type];
}

static void print_limits(FILE *out, const pp_config_option *o)
{
    if (o->type == PP_CONFIG_CHOICE) {
        for (const char *c = o->choices; *c; c++)
            (void)fputs(*c == '|' ? ", " : (char[]){*c, '\0'}, out);
    } else if (o->type == PP_CONFIG_DURATION && o->max == YEARS) {
        (void)fputs("at most 876000h", out);
    } else if (o->type == PP_CONFIG_DURATION) {
        (void)fprintf(out, "%gs to %gs", o->min, o->max);
    } else if (o->type == PP_CONFIG_INTEGER || o->type == PP_CONFIG_NUMBER) {
        (void)fprintf(out, "%.10g to %.10g", o->min, o->max);
    }
}

int pp_config_print_help(FILE *out)
{
    (void)fputs("| option | type | default | limits | what it does |\n|---|---|---|---|---|\n",
                out);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const pp_config_option *o = &options[i];
        (void)fprintf(out, "| `%s` | %s | ", o->path, type_name(o->type));
        if (*o->default_value)
            (void)fprintf(out, "`%s`", o->default_value);
        (void)fputs(" | ", out);
        print_limits(out, o);
        (void)fprintf(out, " | %s |\n", o->description);
    }
    return ferror(out) ? -1 : 0;
}
