/* ConsumptionPatterns as objects: names that the API server takes, figures, what is not known. */
#include "controller/pattern_object.h"

#include "common/tests/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOW INT64_C(1769000000000000000)

static void named(const char *kind, const char *name, const char *expected)
{
    char found[PP_PATTERN_NAME];
    pp_pattern_name(kind, name, found);
    assert_string_equal(found, expected);
}

static void test_names(void **state)
{
    (void)state;
    named("Job", "dlrm", "job-dlrm");
    named("Deployment", "a.b-c", "deployment-a.b-c");
    named("Workload", "dlrm", "workload-dlrm");
    char upper[PP_PATTERN_NAME]; /* a label's value may have both */
    pp_pattern_name("Workload", "DLRM", upper);
    assert_int_equal(strncmp(upper, "workload-dlrm-", 14), 0);
    assert_int_equal(strlen(upper), 14 + 8);
    char name[400];
    char other[PP_PATTERN_NAME], again[PP_PATTERN_NAME];
    pp_pattern_name("Run", "My run_1", other); /* of an imported run */
    pp_pattern_name("Run", "my run_1", again);
    assert_int_equal(strncmp(other, "run-myrun1-", 11), 0);
    assert_string_not_equal(other, again);
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    pp_pattern_name("Job", name, other);
    name[300] = 'b';
    pp_pattern_name("Job", name, again);
    assert_true(strlen(other) < PP_PATTERN_NAME);
    assert_string_not_equal(other, again);
    pp_pattern_name("", "...", other);
    assert_true(strlen(other) == 8);
    pp_pattern_name("Job", "a..b-", other); /* ends with a letter or digit */
    assert_int_equal(strncmp(other, "job-a.b-", 8), 0);
}

typedef struct made {
    pp_usage usage;
    pp_usage_metric metrics[1];
    pp_pattern pattern;
} made;

static made *make(void)
{
    made *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->metrics[0] = (pp_usage_metric){.metric = PP_METRIC_DRAM_ACTIVE,
                                      .source = PP_USAGE_LAYERS,
                                      .mean = {1.0 / 3, 0.01},
                                      .p50 = {0.5, (double)NAN},
                                      .p95 = {(double)NAN, (double)NAN},
                                      .most = {(double)NAN, (double)NAN},
                                      .achieved = {1.5e12, 1e10},
                                      .peak = 4.5e12,
                                      .has_profile = true,
                                      .profile = {0.1}};
    m->usage =
        (pp_usage){.steps = 123,
                   .undisturbed = true,
                   .busy = true,
                   .step_ns = {12.5e6, 1e4},
                   .step_sd_ns = (double)NAN,
                   .idle = {(double)NAN, (double)NAN},
                   .bounds = {[PP_BOUND_MEMORY] = {0.7, 0.02}, [PP_BOUND_DATA] = {0.3, 0.02}},
                   .rates = {PP_UNKNOWN, PP_UNKNOWN, {3e12, 2e10}},
                   .gpu = {.model = "NVIDIA H200"},
                   .metrics = m->metrics,
                   .n_metrics = 1};
    assert_int_equal(
        pp_usage_add_type(&m->usage, "<b>Linear</b>", true, (pp_figure){0.5, (double)NAN}, NULL),
        0);
    assert_int_equal(pp_models_add(&m->usage.models, "DLRM", "0123456789abcdef", "", NULL), 0);
    m->pattern = (pp_pattern){.namespace_ = "ml",
                              .kind = "Job",
                              .name = "dlrm",
                              .object = "job-dlrm",
                              .session = "uid-1",
                              .sessions = 2,
                              .gpus = 3,
                              .left = {1, 2},
                              .first_ns = NOW,
                              .last_ns = NOW + INT64_C(3600000000000),
                              .usage = &m->usage,
                              .bound = PP_BOUND_MEMORY,
                              .lead = {0.4, 0.03}};
    return m;
}

static void done(made *m)
{
    pp_strings_free(&m->usage.names);
    pp_models_done(&m->usage.models);
    free(m);
}

static char *text_of(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    assert_non_null(text);
    return text;
}

static void test_object(void **state)
{
    (void)state;
    made *m = make();
    char *text = text_of(pp_pattern_object(&m->pattern));
    assert_string_equal(
        text, "{\"apiVersion\":\"precisionprobe.io/v1alpha1\",\"kind\":\"ConsumptionPattern\","
              "\"metadata\":{\"name\":\"job-dlrm\",\"namespace\":\"ml\"},"
              "\"spec\":{\"workload\":{\"kind\":\"Job\",\"name\":\"dlrm\"}}}");
    free(text);
    text = text_of(pp_pattern_summary(&m->pattern));
    assert_string_equal(
        text, "{\"bound\":\"Memory\",\"milliseconds\":{\"standardError\":0.01,\"value\":12.5},"
              "\"pattern\":\"job-dlrm\",\"sessions\":2,\"sessionsOfOtherModels\":1,"
              "\"workload\":\"Job/dlrm\"}");
    free(text);
    done(m);
}

static const json_t *condition(const json_t *status, size_t i)
{
    return json_array_get(json_object_get(status, "conditions"), i);
}

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static double figure_at(const json_t *object, const char *key, const char *part)
{
    return json_number_value(json_object_get(json_object_get(object, key), part));
}

static void test_status(void **state)
{
    (void)state;
    made *m = make();
    json_t *object = pp_pattern_status(&m->pattern, NOW);
    json_t *status = json_object_get(object, "status");
    assert_string_equal(text_at(status, "bound"), "Memory");
    assert_string_equal(text_at(status, "shares"), "busy");
    assert_string_equal(text_at(status, "firstFinished"), "2026-01-21T12:53:20Z");
    assert_string_equal(text_at(status, "lastFinished"), "2026-01-21T13:53:20Z");
    assert_int_equal(json_integer_value(json_object_get(status, "steps")), 123);
    assert_int_equal(json_integer_value(json_object_get(status, "sessionsOfOtherModels")), 1);
    const json_t *model = json_array_get(json_object_get(status, "models"), 0);
    assert_string_equal(text_at(model, "class"), "DLRM");
    assert_string_equal(text_at(model, "digest"), "0123456789abcdef");
    assert_null(json_object_get(model, "batch"));
    const json_t *step = json_object_get(status, "step");
    assert_null(json_object_get(step, "idleShare"));
    assert_null(json_object_get(step, "spreadMilliseconds"));
    assert_int_equal(json_array_size(json_object_get(status, "bounds")), 2);
    const json_t *metric = json_array_get(json_object_get(status, "metrics"), 0);
    assert_string_equal(text_at(metric, "name"), "DRAMActive");
    assert_true(json_real_value(json_object_get(json_object_get(metric, "mean"), "value")) ==
                1.0 / 3);
    assert_null(json_object_get(metric, "p95"));
    assert_true(figure_at(metric, "achieved", "value") == 1.5e12);
    assert_true(figure_at(metric, "achieved", "standardError") == 1e10);
    assert_true(json_number_value(json_object_get(metric, "peak")) == 4.5e12);
    assert_string_equal(text_at(metric, "peakUnit"), "bytes per second");
    const json_t *memory = json_array_get(json_object_get(status, "bounds"), 0);
    assert_true(figure_at(memory, "achieved", "value") == 3e12);
    assert_true(json_number_value(json_object_get(memory, "peak")) == 4.5e12);
    assert_string_equal(text_at(memory, "peakUnit"), "bytes per second");
    const json_t *data = json_array_get(json_object_get(status, "bounds"), 1);
    assert_null(json_object_get(data, "achieved"));
    assert_null(json_object_get(data, "peak"));
    assert_null(json_object_get(data, "peakUnit"));
    assert_string_equal(text_at(status, "gpuModel"), "NVIDIA H200");
    assert_int_equal(json_integer_value(json_object_get(status, "sessionsOnOtherGpus")), 2);
    assert_null(json_object_get(json_object_get(metric, "p50"), "standardError"));
    assert_int_equal(json_array_size(json_object_get(metric, "profile")), PP_USAGE_BINS);
    const json_t *type = json_array_get(json_object_get(status, "time"), 0);
    assert_string_equal(text_at(type, "layerType"), "<b>Linear</b>");
    assert_string_equal(text_at(condition(status, 1), "status"), "True");
    json_decref(object);
    done(m);
}

static void test_many_models(void **state)
{
    (void)state;
    made *m = make();
    for (int i = 0; i < 40; i++) {
        char digest[32];
        (void)snprintf(digest, sizeof digest, "%016d", i);
        assert_int_equal(pp_models_add(&m->usage.models, "Stage", digest, "", NULL), 0);
    }
    json_t *object = pp_pattern_status(&m->pattern, NOW);
    assert_int_equal(json_array_size(json_object_get(json_object_get(object, "status"), "models")),
                     16);
    json_decref(object);
    done(m);
}

static const char *bound_status(made *m, const json_t *before, int64_t now)
{
    static char text[64];
    json_t *object = pp_pattern_status(&m->pattern, now);
    json_t *status = json_object_get(object, "status");
    pp_pattern_keep_times(status, before);
    (void)snprintf(text, sizeof text, "%s %s", text_at(condition(status, 1), "status"),
                   text_at(condition(status, 1), "lastTransitionTime"));
    json_decref(object);
    return text;
}

static void test_conditions(void **state)
{
    (void)state;
    made *m = make();
    const int64_t later = NOW + INT64_C(60000000000);
    json_t *before = pp_pattern_status(&m->pattern, NOW);
    const json_t *status = json_object_get(before, "status");
    assert_string_equal(bound_status(m, status, later), "True 2026-01-21T12:53:20Z");
    m->pattern.lead = (pp_figure){0.05, 0.03};
    assert_string_equal(bound_status(m, status, later), "False 2026-01-21T12:54:20Z");
    m->pattern.lead = (pp_figure){0.9, (double)NAN};
    assert_string_equal(bound_status(m, status, later), "Unknown 2026-01-21T12:54:20Z");
    m->pattern.bound = PP_BOUND_UNKNOWN;
    assert_string_equal(bound_status(m, NULL, later), "Unknown 2026-01-21T12:54:20Z");
    json_decref(before);
    done(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),      cmocka_unit_test(test_object),
        cmocka_unit_test(test_status),     cmocka_unit_test(test_many_models),
        cmocka_unit_test(test_conditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
