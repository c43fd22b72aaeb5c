/*
 * The answer of /api/v1/query (https://prometheus.io/docs/prometheus/latest/querying/api/) into
 * samples. Pure, so that it can run on the thread pool and be tested without a server.
 */
#include "operator/prometheus/prometheus.h"

#include "common/buf.h"
#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pp_prometheus_answer_done(pp_prometheus_answer *answer)
{
    pp_strings_free(&answer->gpus);
    pp_strings_free(&answer->shared);
    free(answer->samples);
    *answer = (pp_prometheus_answer){0};
}

/* From when to when a series said that a pod held a GPU. */
typedef struct holder {
    uint32_t gpu;
    const char *pod; /* the series' own, of the JSON; so below */
    const char *namespace_;
    const char *instance; /* the exporter that says so */
    int64_t first_ns;
    int64_t last_ns;
} holder;

typedef struct decoding {
    const pp_metric_source *source;
    pp_prometheus_answer *answer;
    size_t capacity;
    holder *holders; /* room for one per series */
    size_t n_holders;
    bool mig;         /* a series of a MIG instance was left out */
    bool conflicting; /* series of one GPU and metric had different values */
    pp_error *err;
} decoding;

static int reported_error(const json_t *root, pp_error *err)
{
    const char *type = pp_json_get_string(root, "errorType", NULL);
    const char *text = pp_json_get_string(root, "error", NULL);
    pp_error_code code = PP_ERR_UNAVAILABLE;
    if (type && strcmp(type, "bad_data") == 0)
        code = PP_ERR_INVALID;
    else if (type && (strcmp(type, "timeout") == 0 || strcmp(type, "canceled") == 0))
        code = PP_ERR_TIMEOUT;
    return pp_error_set(err, code, "%s: %s", type ? type : "error",
                        text ? text : "no reason given");
}

/* Index of a UUID among the answer's, added when it is new; -1 without memory. */
static long gpu_index(decoding *d, const char *uuid)
{
    pp_strings *gpus = &d->answer->gpus;
    for (size_t i = gpus->count; i-- > 0;) { /* series of one GPU tend to stand together */
        if (strcmp(gpus->items[i], uuid) == 0)
            return (long)i;
    }
    if (gpus->count == PP_PROMETHEUS_MAX_GPUS)
        return pp_error_set(d->err, PP_ERR_INVALID, "the answer names more than %d GPUs",
                            PP_PROMETHEUS_MAX_GPUS);
    if (pp_strings_add(gpus, uuid, d->err) < 0)
        return -1;
    return (long)gpus->count - 1;
}

static int add_sample(decoding *d, const pp_activity_sample *sample)
{
    pp_prometheus_answer *answer = d->answer;
    if (answer->n_samples == PP_PROMETHEUS_MAX_SAMPLES)
        return pp_error_set(d->err, PP_ERR_TOO_LARGE, "more than %d samples in one answer",
                            PP_PROMETHEUS_MAX_SAMPLES);
    if (answer->n_samples == d->capacity) {
        size_t capacity = d->capacity ? d->capacity * 2 : 1024;
        pp_activity_sample *samples = realloc(answer->samples, capacity * sizeof *samples);
        if (!samples)
            return pp_error_nomem(d->err);
        answer->samples = samples;
        d->capacity = capacity;
    }
    answer->samples[answer->n_samples++] = *sample;
    return 0;
}

/* [1769000000.123, "0.432"]: seconds with ms, and the value as text, "NaN" and "+Inf" among them.
 */
static int decode_pair(const json_t *pair, int64_t *ret_ns, double *ret_value)
{
    const json_t *stamp = json_array_get(pair, 0);
    const char *text = json_string_value(json_array_get(pair, 1));
    if (!json_is_number(stamp) || !text)
        return -1;
    double ms = json_number_value(stamp) * 1e3;
    if (!(fabs(ms) < 9e12)) /* before the year 2255, so that ns fit */
        return -1;
    char *end;
    *ret_value = strtod(text, &end);
    if (end == text || *end)
        return -1;
    *ret_ns = (int64_t)llround(ms) * 1000000; /* Prometheus' stamps are whole ms */
    return 0;
}

static int decode_values(decoding *d, const json_t *values, uint32_t gpu, pp_metric metric)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        pp_activity_sample sample = {.gpu = gpu, .metric = metric};
        double raw = 0;
        if (decode_pair(json_array_get(values, i), &sample.stamp_ns, &raw) < 0)
            return pp_error_set(d->err, PP_ERR_INVALID, "a sample is not [time, \"value\"]");
        if (pp_metric_convert(d->source, metric, raw, &sample.value) && add_sample(d, &sample) < 0)
            return -1;
    }
    return 0;
}

/* The first of these labels that a series has; "" where it has none. */
static const char *first_label(const json_t *labels, const char *const names[3])
{
    for (int i = 0; i < 3; i++) {
        const char *value = pp_json_get_string(labels, names[i], NULL);
        if (value)
            return value;
    }
    return "";
}

/*
 * Which pod held the GPU while the series' samples, those from `from` on, were taken. Where
 * Prometheus keeps `pod` for the target, the exporter's is exported_pod; of old it was pod_name.
 */
static void note_holder(decoding *d, const json_t *labels, size_t from)
{
    static const char *const pods[] = {"exported_pod", "pod_name", "pod"};
    static const char *const namespaces[] = {"exported_namespace", "pod_namespace", "namespace"};
    const pp_prometheus_answer *answer = d->answer;
    const char *pod = first_label(labels, pods);
    const char *instance = pp_json_get_string(labels, "instance", NULL);
    if (!*pod || answer->n_samples == from)
        return;
    d->holders[d->n_holders++] =
        (holder){.gpu = answer->samples[from].gpu,
                 .pod = pod,
                 .namespace_ = first_label(labels, namespaces),
                 .instance = instance ? instance : "",
                 .first_ns = answer->samples[from].stamp_ns,
                 .last_ns = answer->samples[answer->n_samples - 1].stamp_ns};
}

/* Of a MIG instance, and under its GPU's UUID: no value of the whole GPU. */
static bool of_part(const char *instance, const char *uuid)
{
    return instance && *instance && !(uuid && strncmp(uuid, "MIG-", 4) == 0);
}

static int decode_series(decoding *d, const json_t *series)
{
    const json_t *labels = json_object_get(series, "metric");
    const char *name = pp_json_get_string(labels, "__name__", NULL);
    const char *uuid = pp_json_get_string(labels, d->source->uuid_label, NULL);
    const json_t *values = json_object_get(series, "values");
    const size_t from = d->answer->n_samples;
    pp_metric metric;
    if (!json_is_array(values))
        return pp_error_set(d->err, PP_ERR_INVALID, "the answer is no matrix of raw samples");
    if (of_part(pp_json_get_string(labels, "GPU_I_ID", NULL), uuid)) {
        d->mig = true;
        return 0;
    }
    if (!name || !uuid || !*uuid || pp_metric_of_series(d->source, name, &metric) < 0)
        return 0; /* none of ours */
    long gpu = gpu_index(d, uuid);
    if (gpu < 0 || decode_values(d, values, (uint32_t)gpu, metric) < 0)
        return -1;
    note_holder(d, labels, from);
    return 0;
}

static int compare_holders(const void *left, const void *right)
{
    const holder *a = left;
    const holder *b = right;
    if (a->gpu != b->gpu)
        return a->gpu < b->gpu ? -1 : 1;
    int by = strcmp(a->instance, b->instance);
    return by ? by : (a->first_ns > b->first_ns) - (a->first_ns < b->first_ns);
}

/* Holders come by GPU: the one that was added last is this one, or it is none yet. */
static int add_shared(decoding *d, uint32_t gpu)
{
    const char *uuid = d->answer->gpus.items[gpu];
    pp_strings *shared = &d->answer->shared;
    if (shared->count && strcmp(shared->items[shared->count - 1], uuid) == 0)
        return 0;
    return pp_strings_add(shared, uuid, d->err);
}

/*
 * GPUs that two pods held at a time: each has series of its own, or the exporter names now the one
 * and now the other. Pods that had it one after the other do not overlap. What two exporters say is
 * not compared: where one knows no pods, `pod` is its own.
 */
static int find_shared(decoding *d)
{
    const holder *last = NULL; /* of those before by this exporter, who held this GPU longest */
    if (d->n_holders)
        qsort(d->holders, d->n_holders, sizeof *d->holders, compare_holders);
    for (size_t i = 0; i < d->n_holders; i++) {
        const holder *h = &d->holders[i];
        bool same_gpu = last && last->gpu == h->gpu && strcmp(last->instance, h->instance) == 0;
        if (same_gpu && h->first_ns <= last->last_ns &&
            (strcmp(h->pod, last->pod) != 0 || strcmp(h->namespace_, last->namespace_) != 0) &&
            add_shared(d, h->gpu) < 0)
            return -1;
        if (!same_gpu || h->last_ns > last->last_ns)
            last = h;
    }
    return 0;
}

/* By GPU, metric, stamp, then value, so that the result does not depend on the order of series. */
static int compare_samples(const void *left, const void *right)
{
    const pp_activity_sample *a = left;
    const pp_activity_sample *b = right;
    if (a->gpu != b->gpu)
        return a->gpu < b->gpu ? -1 : 1;
    if (a->metric != b->metric)
        return a->metric < b->metric ? -1 : 1;
    if (a->stamp_ns != b->stamp_ns)
        return a->stamp_ns < b->stamp_ns ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

/* One sample per stamp of [start, end), which is of one GPU and metric; returns where it ends. None
 * where two values of one stamp differ: a pod's own share, it seems, and not the GPU's. */
static size_t merge_metric(decoding *d, size_t start, size_t end, size_t kept)
{
    pp_activity_sample *s = d->answer->samples;
    const size_t before = kept;
    for (size_t i = start; i < end; i++) {
        if (kept == before || s[kept - 1].stamp_ns != s[i].stamp_ns) {
            s[kept++] = s[i];
        } else if (s[kept - 1].value != s[i].value) {
            d->conflicting = true;
            return before;
        }
    }
    return kept;
}

static void merge_repeats(decoding *d)
{
    const pp_activity_sample *s = d->answer->samples;
    size_t n = d->answer->n_samples;
    size_t kept = 0;
    for (size_t start = 0, end = 0; start < n; start = end) {
        const pp_activity_sample first = s[start];
        while (end < n && s[end].gpu == first.gpu && s[end].metric == first.metric)
            end++;
        kept = merge_metric(d, start, end, kept);
    }
    d->answer->n_samples = kept;
}

typedef struct named_gpu {
    char *uuid;
    uint32_t index;
} named_gpu;

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const named_gpu *)left)->uuid, ((const named_gpu *)right)->uuid);
}

/* Sorts the UUIDs and renumbers the samples. */
static int sort_gpus(pp_prometheus_answer *answer, pp_error *err)
{
    size_t n = answer->gpus.count;
    PP_CLEANUP_FREE named_gpu *order = calloc(n + 1, sizeof *order);
    PP_CLEANUP_FREE uint32_t *place = calloc(n + 1, sizeof *place);
    if (!order || !place)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        order[i] = (named_gpu){answer->gpus.items[i], (uint32_t)i};
    qsort(order, n, sizeof *order, compare_names);
    for (size_t i = 0; i < n; i++) {
        answer->gpus.items[i] = order[i].uuid;
        place[order[i].index] = (uint32_t)i;
    }
    for (size_t i = 0; i < answer->n_samples; i++)
        answer->samples[i].gpu = place[answer->samples[i].gpu];
    if (answer->n_samples)
        qsort(answer->samples, answer->n_samples, sizeof *answer->samples, compare_samples);
    return 0;
}

/* Notes of ours. Without figures, which would differ from answer to answer. */
static const char *const note_shared = "several pods share a GPU: its values are of all their work";
static const char *const note_conflicting =
    "values that differ by pod are left out: they are not the GPU's";
static const char *const note_mig =
    "series of MIG instances are left out: they are not the whole GPU's";

static const char *const note_time = "samples of another time than asked for are left out";

enum { WARNING_MOST = 160 }; /* bytes of Prometheus' own: some list every store that is away */

static void add_text(char *to, size_t size, const char *text)
{
    const size_t used = strlen(to);
    (void)snprintf(to + used, size - used, "%s%s", used ? "; " : "", text);
}

static void note_warning(const decoding *d, const json_t *root)
{
    const json_t *warnings = json_object_get(root, "warnings");
    const char *first = json_string_value(json_array_get(warnings, 0));
    pp_prometheus_answer *to = d->answer;
    to->partial = json_array_size(warnings) > 0;
    if (to->shared.count)
        add_text(to->warning, sizeof to->warning, note_shared);
    if (d->conflicting)
        add_text(to->warning, sizeof to->warning, note_conflicting);
    if (d->mig)
        add_text(to->warning, sizeof to->warning, note_mig);
    if (first && *first) {
        char some[WARNING_MOST];
        pp_copy_cut(some, sizeof some, first);
        add_text(to->warning, sizeof to->warning, some);
    }
}

static bool is_note(const char *text)
{
    return strcmp(text, note_time) == 0 || strcmp(text, note_shared) == 0 ||
           strcmp(text, note_conflicting) == 0 || strcmp(text, note_mig) == 0;
}

/* What a text takes with what joins it, where it is not there yet. */
static size_t room_for(const char *known, const char *text)
{
    return strstr(known, text) ? 0 : strlen(text) + 2;
}

/* False where it is there, or has no room. */
static bool add_warning(char *known, size_t size, const char *one)
{
    const size_t used = strlen(known);
    const size_t notes = room_for(known, note_shared) + room_for(known, note_conflicting) +
                         room_for(known, note_mig) + room_for(known, note_time);
    const size_t n = strlen(one);
    const bool own = is_note(one);
    if (n == 0 || strstr(known, one) || used + n + 3 + (own ? 0 : notes) > size)
        return false;
    if (!own || used == 0) {
        add_text(known, size, one);
        return true;
    }
    memmove(known + n + 2, known, used + 1);
    memcpy(known, one, n);
    memcpy(known + n, "; ", 2);
    return true;
}

void pp_prometheus_answer_trim(pp_prometheus_answer *answer, int64_t from_ns, int64_t to_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < answer->n_samples; i++)
        if (answer->samples[i].stamp_ns >= from_ns && answer->samples[i].stamp_ns <= to_ns)
            answer->samples[kept++] = answer->samples[i];
    if (kept < answer->n_samples)
        (void)add_warning(answer->warning, sizeof answer->warning, note_time);
    answer->n_samples = kept;
}

bool pp_prometheus_add_warnings(char *known, size_t size, const char *warnings)
{
    bool added = false;
    for (const char *at = warnings; *at;) {
        const char *end = strstr(at, "; ");
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        char one[sizeof((pp_prometheus_answer *)NULL)->warning];
        (void)snprintf(one, sizeof one, "%.*s", (int)n, at);
        added = add_warning(known, size, one) || added;
        at += n + (end ? 2 : 0);
    }
    return added;
}

static int decode_matrix(decoding *d, const json_t *root)
{
    const char *type = pp_json_get_string(root, "data", "resultType", NULL);
    const json_t *result = pp_json_get(root, "data", "result", NULL);
    if (!type || strcmp(type, "matrix") != 0 || !json_is_array(result))
        return pp_error_set(d->err, PP_ERR_INVALID, "the answer is no matrix but %s",
                            type ? type : "something else");
    if (json_array_size(result) > PP_PROMETHEUS_MAX_SERIES)
        return pp_error_set(d->err, PP_ERR_TOO_LARGE, "more than %d series in one answer",
                            PP_PROMETHEUS_MAX_SERIES);
    d->holders = calloc(json_array_size(result) + 1, sizeof *d->holders);
    if (!d->holders)
        return pp_error_nomem(d->err);
    for (size_t i = 0; i < json_array_size(result); i++) {
        if (decode_series(d, json_array_get(result, i)) < 0)
            return -1;
    }
    if (find_shared(d) < 0 || sort_gpus(d->answer, d->err) < 0)
        return -1;
    merge_repeats(d);
    note_warning(d, root);
    return 0;
}

/* A new reference to an answer that reports success; NULL with the reason. */
static json_t *parse_answer(const char *body, size_t n, pp_error *err)
{
    PP_CLEANUP_JSON json_t *root = pp_json_parse(body, n, err);
    const char *status = root ? pp_json_get_string(root, "status", NULL) : NULL;
    if (!root)
        (void)pp_error_prefix(err, "Prometheus' answer");
    else if (!status)
        (void)pp_error_set(err, PP_ERR_INVALID, "the answer is not Prometheus'");
    else if (strcmp(status, "success") != 0)
        (void)reported_error(root, err);
    else
        return PP_TAKE(root);
    return NULL;
}

/* Prometheus answers with a scalar, others that speak its language with a vector of one. */
int pp_prometheus_decode_time(const char *body, size_t n, int64_t *ret_ns, pp_error *err)
{
    PP_CLEANUP_JSON json_t *root = parse_answer(body, n, err);
    if (!root)
        return -1;
    const json_t *point = pp_json_get(root, "data", "result", NULL);
    if (json_is_object(json_array_get(point, 0)))
        point = json_object_get(json_array_get(point, 0), "value");
    const char *text = json_string_value(json_array_get(point, 1));
    char *end = NULL;
    const double seconds = text ? strtod(text, &end) : (double)NAN;
    if (!text || !*text || *end || !(seconds > 0 && seconds < 4e9))
        return pp_error_set(err, PP_ERR_INVALID, "the answer is no time");
    *ret_ns = llround(seconds * 1e3) * 1000000;
    return 0;
}

int pp_prometheus_decode(const char *body, size_t n, const pp_metric_source *source,
                         pp_prometheus_answer *ret, pp_error *err)
{
    PP_CLEANUP_JSON json_t *root = parse_answer(body, n, err);
    if (!root)
        return -1;
    pp_prometheus_answer answer = {0};
    decoding d = {.source = source, .answer = &answer, .err = err};
    int rc = decode_matrix(&d, root);
    free(d.holders);
    if (rc < 0) {
        pp_prometheus_answer_done(&answer);
        return -1;
    }
    *ret = answer;
    return 0;
}
