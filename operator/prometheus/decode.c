/*
 * The answer of /api/v1/query (https://prometheus.io/docs/prometheus/latest/querying/api/) into
 * samples. Pure, so that it can run on the thread pool and be tested without a server.
 */
#include "operator/prometheus/prometheus.h"

#include "common/cleanup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pp_prometheus_answer_done(pp_prometheus_answer *answer)
{
    pp_strings_free(&answer->gpus);
    free(answer->samples);
    *answer = (pp_prometheus_answer){0};
}

typedef struct decoding {
    const pp_metric_source *source;
    pp_prometheus_answer *answer;
    size_t capacity;
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

static int decode_series(decoding *d, const json_t *series)
{
    const json_t *labels = json_object_get(series, "metric");
    const char *name = pp_json_get_string(labels, "__name__", NULL);
    const char *uuid = pp_json_get_string(labels, d->source->uuid_label, NULL);
    const char *instance = pp_json_get_string(labels, "GPU_I_ID", NULL);
    const json_t *values = json_object_get(series, "values");
    pp_metric metric;
    if (!json_is_array(values))
        return pp_error_set(d->err, PP_ERR_INVALID, "the answer is no matrix of raw samples");
    if (instance && *instance) {
        d->mig = true;
        return 0;
    }
    if (!name || !uuid || !*uuid || pp_metric_of_series(d->source, name, &metric) < 0)
        return 0; /* none of ours */
    long gpu = gpu_index(d, uuid);
    return gpu < 0 ? -1 : decode_values(d, values, (uint32_t)gpu, metric);
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

/* One sample per GPU, metric and stamp: of several the smallest. */
static void merge_repeats(decoding *d)
{
    pp_prometheus_answer *answer = d->answer;
    size_t kept = 0;
    for (size_t i = 0; i < answer->n_samples; i++) {
        const pp_activity_sample *s = &answer->samples[i];
        const pp_activity_sample *last = kept ? &answer->samples[kept - 1] : NULL;
        if (last && last->gpu == s->gpu && last->metric == s->metric &&
            last->stamp_ns == s->stamp_ns) {
            d->conflicting = d->conflicting || last->value < s->value;
        } else {
            answer->samples[kept++] = *s;
        }
    }
    answer->n_samples = kept;
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

/* Without figures, which would differ from answer to answer. */
static void note_warning(const decoding *d, const json_t *root)
{
    const char *text = json_string_value(json_array_get(json_object_get(root, "warnings"), 0));
    if (!text && d->mig)
        text = "series of MIG instances are left out: they are no values of a whole GPU";
    if (!text && d->conflicting)
        text = "series of one GPU and metric have different values; the smallest is taken";
    if (text)
        (void)snprintf(d->answer->warning, sizeof d->answer->warning, "%s", text);
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
    for (size_t i = 0; i < json_array_size(result); i++) {
        if (decode_series(d, json_array_get(result, i)) < 0)
            return -1;
    }
    if (sort_gpus(d->answer, d->err) < 0)
        return -1;
    merge_repeats(d);
    note_warning(d, root);
    return 0;
}

int pp_prometheus_decode(const char *body, size_t n, const pp_metric_source *source,
                         pp_prometheus_answer *ret, pp_error *err)
{
    PP_CLEANUP_JSON json_t *root = pp_json_parse(body, n, err);
    if (!root)
        return pp_error_prefix(err, "Prometheus' answer");
    const char *status = pp_json_get_string(root, "status", NULL);
    if (!status)
        return pp_error_set(err, PP_ERR_INVALID, "the answer is not Prometheus'");
    if (strcmp(status, "success") != 0)
        return reported_error(root, err);
    pp_prometheus_answer answer = {0};
    decoding d = {.source = source, .answer = &answer, .err = err};
    if (decode_matrix(&d, root) < 0) {
        pp_prometheus_answer_done(&answer);
        return -1;
    }
    *ret = answer;
    return 0;
}
