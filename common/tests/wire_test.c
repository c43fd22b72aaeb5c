/* The wire codec: what goes round comes round, and each wrong element is named. */
#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"
#include "common/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T0 INT64_C(1769000000000000000)

/* The example of docs/wire.md, its capture shortened to what the intervals need. */
static const char example[] =
    "{\"type\":\"batch\",\"session\":\"5d7f0a5e-1111\",\"instance\":\"a-b-c\",\"seq\":7,"
    "\"process\":{\"id\":0,\"rank\":0,\"worldSize\":2,\"gpus\":[\"GPU-1\",\"GPU-2\"],"
    "\"hostname\":\"dlrm-0\",\"python\":\"3.13.1\",\"torch\":\"2.6.0\",\"clock\":\"host\","
    "\"model\":\"DLRM\"},"
    "\"stretch\":{\"id\":3,\"start\":1769000000000000000,\"end\":1769000004200000000,"
    "\"last\":false},"
    "\"layers\":[{\"id\":1,\"name\":\"bot.0\",\"type\":\"Linear\",\"parameters\":262656}],"
    "\"steps\":{\"number\":[41,1],\"start\":[1769000000000000000,1500000000],"
    "\"duration\":[1500000000,1490000000],\"epoch\":[2,0],\"batch\":[9,1]},"
    "\"intervals\":{\"layer\":[1,1,0],\"phase\":[0,1,2],\"step\":[41,0,1],"
    "\"start\":[1769000000000000000,700000,-100],\"duration\":[510000,980000,5]},"
    "\"dropped\":3,\"leftOut\":{\"steps\":4,\"lost\":12,\"late\":1},\"cost\":{\"nanoseconds\":"
    "81234,\"marks\":160}}";

static const char example_grid[] =
    "{\"start\":1769000000000000000,\"cell\":10000000,\"cells\":[0,1],\"layer\":[1,1],"
    "\"phase\":[0,0],\"busy\":[7200000,10000000],\"calls\":[3,4]}";

static json_t *parse(const char *text)
{
    pp_error err = {0};
    json_t *value = pp_json_parse(text, strlen(text), &err);
    if (!value)
        fail_msg("%s", err.message);
    return value;
}

static const char example_pm[] =
    "{\"gpu\":\"GPU-1\",\"sources\":[\"sm__cycles_active.avg\",\"\",\"dram__x\",\"\"],"
    "\"layer\":[1,0],\"phase\":[1,7],\"kernels\":[12,3],\"smActive\":[951234,-1],"
    "\"smActiveError\":[1500,-1],\"dramActive\":[10,1000001],\"dramActiveError\":[0,20]}";

static void assert_comes_round(const pp_wire_batch *b, const json_t *object)
{
    pp_error err = {0};
    pp_buf text;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
    PP_CLEANUP_JSON json_t *again = parse(text.data);
    assert_true(json_equal(json_object_get(again, "fine"), json_object_get(object, "fine")));
    pp_buf_done(&text);
}

/* The example with its process' chip; NULL where it is refused, which `err` then says. */
static pp_wire_batch *with_chip(const char *chip, pp_error *err)
{
    PP_CLEANUP_JSON json_t *object = parse(example);
    pp_wire_batch *b = NULL;
    (void)json_object_set_new(json_object_get(object, "process"), "chip", parse(chip));
    (void)pp_wire_batch_decode(object, &b, err);
    return b;
}

/* Absent where it is the process' first, as of agents that know of one alone. */
static void test_further_gpus(void **state)
{
    (void)state;
    pp_error err = {0};
    for (int further = 0; further < 2; further++) {
        PP_CLEANUP_JSON json_t *object = parse(example);
        json_t *process = json_object_get(object, "process");
        pp_wire_batch *b = NULL;
        pp_buf text;
        pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
        if (further)
            (void)json_object_set_new(process, "furtherGpu", json_true());
        assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
        assert_int_equal(b->process.further, further);
        assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
        assert_int_equal(strstr(text.data, "furtherGpu") != NULL, further);
        pp_buf_done(&text);
        pp_wire_batch_free(b);
        b = NULL;
        (void)json_object_set_new(process, "furtherGpu", json_integer(1));
        assert_true(pp_wire_batch_decode(object, &b, &err) < 0);
    }
}

static void test_chips(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_buf text;
    const pp_chip h200 = {90, 132, 1980000, 3201000, 6144};
    pp_wire_batch *b = with_chip("{\"capability\":90,\"multiprocessors\":132,\"smKHz\":1980000,"
                                 "\"memoryKHz\":3201000,\"memoryBits\":6144}",
                                 &err);
    assert_non_null(b);
    assert_memory_equal(&b->process.chip, &h200, sizeof h200);
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
    pp_wire_batch_free(b);
    PP_CLEANUP_JSON json_t *again = parse(text.data);
    assert_int_equal(pp_wire_batch_decode(again, &b, &err), 0);
    assert_memory_equal(&b->process.chip, &h200, sizeof h200);
    pp_wire_batch_free(b);
    pp_buf_done(&text);
    b = with_chip("{\"capability\":87}", &err); /* of its memory nothing is known */
    assert_non_null(b);
    assert_true(b->process.chip.capability == 87 && b->process.chip.memory_bits == 0);
    pp_wire_batch_free(b);
    assert_null(with_chip("{\"multiprocessors\":132}", &err));
    assert_string_equal(err.field, "process.chip.capability");
    assert_null(with_chip("{\"capability\":90,\"smKHz\":-1}", &err));
    assert_string_equal(err.field, "process.chip.smKHz");
}

/* What a GPU is, as its driver calls it: absent where that is not known, as of earlier agents. */
static void test_gpu_models(void **state)
{
    (void)state;
    static const char *const cases[] = {
        NULL, "\"NVIDIA H200\"", "\"\"", "7",
        "\"0123456789012345678901234567890123456789012345678901234567"
        "8901234\""};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_error err = {0};
        PP_CLEANUP_JSON json_t *object = parse(example);
        pp_wire_batch *b = NULL;
        if (cases[i])
            (void)json_object_set_new(json_object_get(object, "process"), "gpuModel",
                                      json_loads(cases[i], JSON_DECODE_ANY, NULL));
        if (i > 2) {
            assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
            assert_string_equal(err.field, "process.gpuModel");
            continue;
        }
        assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
        assert_string_equal(b->process.gpu_model, i == 1 ? "NVIDIA H200" : "");
        pp_buf text;
        pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
        assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
        assert_int_equal(strstr(text.data, "\"gpuModel\":\"NVIDIA H200\"") != NULL, i == 1);
        assert_int_equal(strstr(text.data, "gpuModel") != NULL, i == 1);
        pp_buf_done(&text);
        pp_wire_batch_free(b);
    }
}

static void test_pm_values(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = parse(example);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_int_equal(json_object_set_new(object, "fine", parse(example_pm)), 0);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_string_equal(b->pm.gpu, "GPU-1");
    assert_string_equal(b->pm.sources.items[2], "dram__x");
    assert_int_equal(b->pm.count, 2);
    assert_int_equal(b->pm.rows[0].layer, 1);
    assert_int_equal(b->pm.rows[0].phase, PP_WIRE_BACKWARD);
    assert_int_equal(b->pm.rows[0].kernels, 12);
    assert_int_equal(b->pm.rows[0].mean[0], 951234);
    assert_int_equal(b->pm.rows[0].error[0], 1500);
    assert_int_equal(b->pm.rows[1].mean[0], -1);
    assert_int_equal(b->pm.rows[1].mean[1], -1); /* in no column */
    assert_int_equal(b->pm.rows[1].mean[2], 1000001);
    assert_comes_round(b, object);
    pp_wire_batch_free(b);
}

/* How sampling went: all of it may be absent, and the noise and the chip of it. */
static const char example_sampling[] =
    "{\"chip\":\"GH100\",\"period\":25000,\"times\":5,\"failed\":1,\"sampled\":8012345678,"
    "\"samples\":320400,\"lag\":-1400123,\"lagError\":31,\"samplerCpu\":11000000000}";
static const char example_closure[] = "{\"metric\":[0,2],\"held\":[412345,0],"
                                      "\"difference\":[-312,40],\"noise\":[20111,-1]}";
static const char example_quality[] =
    "{\"metric\":[0,2],\"explained\":[987000,-1],\"miss\":[15000,-1],"
    "\"items\":[80,-1],\"itemsZ\":[1100000,-1],"
    "\"gap\":[50000,-1],\"gapError\":[100,-1],"
    "\"doubt\":[2,0]}";

/* The example's values with `more` as `key` of them. */
static json_t *pm_with(const char *key, json_t *more)
{
    json_t *object = parse(example);
    json_t *pm = parse(example_pm);
    (void)json_object_set_new(pm, "sampling", parse(example_sampling));
    (void)json_object_set_new(pm, "closure", parse(example_closure));
    (void)json_object_set_new(pm, "quality", parse(example_quality));
    if (key)
        (void)json_object_set_new(pm, key, more);
    (void)json_object_set_new(object, "fine", pm);
    return object;
}

static void test_how_sampling_went(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = pm_with(NULL, NULL);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    const pp_wire_pm_sampling *s = &b->pm.sampling;
    assert_string_equal(s->chip, "GH100");
    assert_true(s->period == 25000 && s->times == 5 && s->failed == 1 && s->sampled == 8012345678);
    assert_true(s->samples == 320400 && s->lag == -1400123 && s->lag_error == 31);
    assert_true(s->sampler_cpu == 11000000000);
    assert_int_equal(b->pm.closure_count, 2);
    const pp_wire_pm_closure *c = b->pm.closures;
    assert_true(c[0].metric == 0 && c[0].held == 412345 && c[0].difference == -312);
    assert_true(c[0].noise == 20111);
    assert_int_equal(b->pm.quality_count, 2);
    const pp_wire_pm_quality *q = b->pm.qualities;
    assert_true(q[0].metric == 0 && q[0].explained == 987000 && q[0].miss == 15000);
    assert_true(q[0].items == 80 && q[0].items_z == 1100000);
    assert_true(q[0].gap == 50000 && q[0].gap_error == 100);
    assert_int_equal(q[0].doubt, PP_WIRE_DOUBT_TENANT);
    assert_true(q[1].metric == 2 && q[1].explained == -1 && q[1].gap_error == -1);
    assert_int_equal(q[1].doubt, 0);
    assert_true(c[1].metric == 2 && c[1].held == 0 && c[1].difference == 40 && c[1].noise == -1);
    assert_comes_round(b, object);
    pp_wire_batch_free(b);
}

static void test_less_of_how_sampling_went(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = pm_with(
        "closure", parse("{\"metric\":[3],\"held\":[10000000],\"difference\":[-10000000]}"));
    json_t *pm = json_object_get(object, "fine");
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    (void)json_object_del(json_object_get(pm, "sampling"), "chip");
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_null(b->pm.sampling.chip);
    assert_int_equal(b->pm.closures[0].noise, -1);
    assert_comes_round(b, object);
    pp_wire_batch_free(b);
    (void)json_object_del(pm, "sampling");
    (void)json_object_del(pm, "closure");
    (void)json_object_del(pm, "quality");
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0); /* an earlier release's */
    assert_int_equal(b->pm.sampling.period, 0);
    assert_int_equal(b->pm.closure_count, 0);
    assert_comes_round(b, object);
    pp_wire_batch_free(b);
}

static void assert_pm_refused(const json_t *object, const char *field)
{
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
    assert_string_equal(err.field, field);
}

static void test_wrong_sampling(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value; /* NULL: absent */
        const char *field;
    } cases[] = {
        {"chip", "\"\"", "fine.sampling.chip"},
        {"chip", "100", "fine.sampling.chip"},
        {"chip", "\"GH\\n100\"", "fine.sampling.chip"},
        {"chip", "\"0123456789012345678901234567890123456789012345678901234567890123x\"",
         "fine.sampling.chip"},
        {"period", NULL, "fine.sampling.period"},
        {"period", "0", "fine.sampling.period"},
        {"period", "999", "fine.sampling.period"},
        {"period", "10000001", "fine.sampling.period"},
        {"times", NULL, "fine.sampling.times"},
        {"times", "-1", "fine.sampling.times"},
        {"times", "9007199254740993", "fine.sampling.times"},
        {"failed", "-1", "fine.sampling.failed"},
        {"failed", "6", "fine.sampling.failed"},
        {"sampled", "1.5", "fine.sampling.sampled"},
        {"sampled", "-1", "fine.sampling.sampled"},
        {"samples", "-1", "fine.sampling.samples"},
        {"lag", NULL, "fine.sampling.lag"},
        {"lag", "\"1 ms\"", "fine.sampling.lag"},
        {"lag", "4102444800000000001", "fine.sampling.lag"},
        {"lag", "-4102444800000000001", "fine.sampling.lag"},
        {"lagError", "-1", "fine.sampling.lagError"},
        {"samplerCpu", "-1", "fine.sampling.samplerCpu"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *sampling = parse(example_sampling);
        if (cases[i].value)
            (void)json_object_set_new(sampling, cases[i].key,
                                      json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        else
            (void)json_object_del(sampling, cases[i].key);
        PP_CLEANUP_JSON json_t *object = pm_with("sampling", sampling);
        assert_pm_refused(object, cases[i].field);
    }
    PP_CLEANUP_JSON json_t *object = pm_with("sampling", json_null());
    assert_pm_refused(object, "fine.sampling");
}

static void test_wrong_quality(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *field;
    } cases[] = {
        {"metric", "[2,0]", "fine.quality.metric[1]"},
        {"metric", "[0,5]", "fine.quality.metric[1]"},
        {"explained", "[-2,0]", "fine.quality.explained[0]"},
        {"explained", "[0,1000001]", "fine.quality.explained[1]"},
        {"itemsZ", "[1000000001,0]", "fine.quality.itemsZ[0]"},
        {"doubt", "[0,3]", "fine.quality.doubt[1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *quality = parse(example_quality);
        (void)json_object_set_new(quality, cases[i].key, parse(cases[i].value));
        PP_CLEANUP_JSON json_t *object = pm_with("quality", quality);
        assert_pm_refused(object, cases[i].field);
    }
}

static void test_wrong_closure(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *field;
    } cases[] = {
        {"metric", "[0,6]", "fine.closure.metric[1]"},
        {"metric", "[-1,2]", "fine.closure.metric[0]"},
        {"metric", "[2,2]", "fine.closure.metric[1]"},
        {"metric", "[0,1,2,3,4,5,5]", "fine.closure.metric"},
        {"metric", "[0]", "fine.closure.held"},
        {"held", "[-1,0]", "fine.closure.held[0]"},
        {"held", "[0,10000001]", "fine.closure.held[1]"},
        {"difference", "[0,-10000001]", "fine.closure.difference[1]"},
        {"difference", "[10000001,0]", "fine.closure.difference[0]"},
        {"difference", "[0.1,0]", "fine.closure.difference[0]"},
        {"noise", "[0,-2]", "fine.closure.noise[1]"},
        {"noise", "[10000001,0]", "fine.closure.noise[0]"},
        {"noise", "7", "fine.closure.noise"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *closure = parse(example_closure);
        (void)json_object_set_new(closure, cases[i].key,
                                  json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        PP_CLEANUP_JSON json_t *object = pm_with("closure", closure);
        assert_pm_refused(object, cases[i].field);
    }
    PP_CLEANUP_JSON json_t *object = pm_with("closure", parse("{\"metric\":[0]}"));
    assert_pm_refused(object, "fine.closure.held");
}

/* Why there are none is a batch's whole word on them. */
static void test_why_no_pm_values(void **state)
{
    (void)state;
    static const struct {
        const char *pm, *field;
    } cases[] = {
        {"{\"why\":\"the driver lets only root \\\"read\\\" \\u00b5s\"}", NULL},
        {"{\"why\":\"\"}", "fine.why"},
        {"{\"why\":7}", "fine.why"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = parse(example);
        pp_wire_batch *b = NULL;
        pp_error err = {0};
        (void)json_object_set_new(object, "fine", parse(cases[i].pm));
        assert_int_equal(pp_wire_batch_decode(object, &b, &err), cases[i].field ? -1 : 0);
        if (cases[i].field) {
            assert_string_equal(err.field, cases[i].field);
            continue;
        }
        assert_false(pp_wire_is_pm_only(b));
        b->step_count = b->interval_count = 0;
        assert_true(pp_wire_is_pm_only(b));
        assert_comes_round(b, object);
        pp_wire_batch_free(b);
    }
}

static void test_a_long_why(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = parse(example);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    char text[PP_WIRE_MAX_REASON + 2];
    memset(text, 'x', sizeof text);
    text[PP_WIRE_MAX_REASON + 1] = '\0';
    (void)json_object_set_new(object, "fine", json_pack("{ss}", "why", text));
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
    assert_string_equal(err.field, "fine.why");
    text[PP_WIRE_MAX_REASON] = '\0';
    (void)json_object_set_new(object, "fine", json_pack("{ss}", "why", text));
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    pp_wire_batch_free(b);
}

static void test_wrong_pm_values(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *field;
    } cases[] = {
        {"gpu", "\"a b\"", "fine.gpu"},
        {"gpu", "7", "fine.gpu"},
        {"sources", "[\"a\"]", "fine.sources"},
        {"sources", "[\"a\",\"\",\"\",\"\",\"\",\"\",\"\"]", "fine.sources"},
        {"tensorActive", "[-1,5]", "fine.tensorActive[1]"}, /* no source */
        {"sources", "[\"a\\nb\",\"\",\"\",\"\"]", "fine.sources"},
        {"layer", "[2,0]", "fine.layer[0]"},
        {"layer", "[1]", "fine.phase"},
        {"phase", "[7,7]", "fine.phase[0]"},
        {"phase", "[1,1]", "fine.phase[1]"},
        {"kernels", "[-1,0]", "fine.kernels[0]"},
        {"smActive", "[0,10000001]", "fine.smActive[1]"},
        {"smActive", "[0,0.5]", "fine.smActive[1]"},
        {"dramActiveError", "[0,-2]", "fine.dramActiveError[1]"},
        {"dramActiveError", "[0]", "fine.dramActiveError"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = parse(example);
        pp_wire_batch *b = NULL;
        pp_error err = {0};
        json_t *pm = parse(example_pm);
        (void)json_object_set_new(pm, cases[i].key,
                                  json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        (void)json_object_set_new(object, "fine", pm);
        assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
        assert_string_equal(err.field, cases[i].field);
    }
}

/* A layer that is replayed: all of it goes round, and there is nothing of it in other batches. */
static void test_dwells(void **state)
{
    (void)state;
    static const struct {
        const char *part, *key, *value;
    } more[] = {
        {"stretch", "dwell", "9"},
        {"stretch", "background", "true"},
        {"process", "isolated", "\"compiled code\""},
        {"cost", "paused", "812000000"},
    };
    PP_CLEANUP_JSON json_t *object = parse(example);
    json_t *layer = json_array_get(json_object_get(object, "layers"), 0);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    pp_buf text;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        (void)json_object_set_new(json_object_get(object, more[i].part), more[i].key,
                                  json_loads(more[i].value, JSON_DECODE_ANY, NULL));
    (void)json_object_set_new(layer, "forwardLeftOut", json_integer(4));
    (void)json_object_set_new(layer, "backwardLeftOut", json_integer(8));
    (void)json_object_set_new(layer, "whole", json_integer(3));
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->capture.dwell, 9);
    assert_true(b->capture.background);
    assert_string_equal(b->process.isolated, "compiled code");
    assert_int_equal(b->cost.paused, 812000000);
    assert_int_equal(b->layers[0].forward_skip, 4);
    assert_int_equal(b->layers[0].backward_skip, 8);
    assert_int_equal(b->layers[0].whole, 3);
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
    pp_wire_batch_free(b);
    PP_CLEANUP_JSON json_t *again = parse(text.data);
    assert_true(json_equal(again, object));
    pp_buf_done(&text);

    PP_CLEANUP_JSON json_t *plain = parse(example);
    assert_int_equal(pp_wire_batch_decode(plain, &b, &err), 0);
    assert_true(b->capture.dwell == 0 && !b->capture.background && b->cost.paused == 0);
    assert_string_equal(b->process.isolated, "");
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
    pp_wire_batch_free(b);
    PP_CLEANUP_JSON json_t *same = parse(text.data);
    assert_true(json_equal(same, plain));
    pp_buf_done(&text);
}

/* The text for the process' key, or what is wrong with it. */
static void check_model(const char *key, const char *value, const char *field)
{
    PP_CLEANUP_JSON json_t *object = parse(example);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    (void)json_object_set_new(json_object_get(object, "process"), key,
                              json_loads(value, JSON_DECODE_ANY, NULL));
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), *field ? -1 : 0);
    assert_string_equal(err.field, field);
    if (*field)
        return;
    pp_buf text;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
    PP_CLEANUP_JSON json_t *again = parse(text.data);
    assert_true(json_equal(again, object));
    pp_buf_done(&text);
    pp_wire_batch_free(b);
}

static void test_models(void **state)
{
    (void)state;
    char longest[PP_WIRE_MAX_BATCH + 4];
    memset(longest, 'x', sizeof longest);
    longest[0] = longest[PP_WIRE_MAX_BATCH + 1] = '"';
    longest[PP_WIRE_MAX_BATCH + 2] = '\0';
    check_model("modelDigest", "\"0123456789abcdef\"", "");
    check_model("modelDigest", "\"0123456789ABCDEF\"", "process.modelDigest");
    check_model("modelDigest", "\"0123456789abcde\"", "process.modelDigest");
    check_model("modelDigest", "\"0123456789abcdef0\"", "process.modelDigest");
    check_model("modelDigest", "\"0123456789abcde'\"", "process.modelDigest");
    check_model("modelDigest", "7", "process.modelDigest");
    check_model("batch", "\"64x*x224 float32, ...\"", "");
    check_model("batch", "[64]", "process.batch");
    check_model("batch", longest, "");
    longest[PP_WIRE_MAX_BATCH + 1] = 'x';
    longest[PP_WIRE_MAX_BATCH + 2] = '"';
    longest[PP_WIRE_MAX_BATCH + 3] = '\0';
    check_model("batch", longest, "process.batch");
}

static void test_wrong_dwells(void **state)
{
    (void)state;
    static const struct {
        const char *part, *key, *value, *field;
    } cases[] = {
        {"stretch", "dwell", "-1", "stretch.dwell"},
        {"stretch", "dwell", "16777217", "stretch.dwell"},
        {"stretch", "background", "true", "stretch.background"},
        {"process", "isolated", "7", "process.isolated"},
        {"cost", "paused", "-1", "cost.paused"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = parse(example);
        pp_wire_batch *b = NULL;
        pp_error err = {0};
        (void)json_object_set_new(json_object_get(object, cases[i].part), cases[i].key,
                                  json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
        assert_string_equal(err.field, cases[i].field);
    }
    PP_CLEANUP_JSON json_t *object = parse(example);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    (void)json_object_set_new(json_array_get(json_object_get(object, "layers"), 0),
                              "backwardLeftOut", json_integer(256));
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
    assert_string_equal(err.field, "layers[0].backwardLeftOut");
}

static void test_decodes_absolute_values(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = parse(example);
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_string_equal(b->session, "5d7f0a5e-1111");
    assert_int_equal(b->seq, 7);
    assert_int_equal(b->process.gpus.count, 2);
    assert_string_equal(b->process.hostname, "dlrm-0");
    assert_int_equal(b->capture.end - b->capture.start, 4200000000);
    assert_false(b->capture.last);
    assert_string_equal(b->layers[0].type, "Linear");
    assert_int_equal(b->step_count, 2);
    assert_int_equal(b->steps[1].number, 42);
    assert_int_equal(b->steps[1].start, T0 + 1500000000);
    assert_int_equal(b->steps[1].batch, 10);
    assert_int_equal(b->interval_count, 3);
    assert_int_equal(b->intervals[2].start, T0 + 699900);
    assert_int_equal(b->intervals[2].step, 42);
    assert_int_equal(b->intervals[2].phase, PP_WIRE_OPTIMIZER);
    assert_int_equal(b->dropped, 3);
    assert_true(b->left_out.steps == 4 && b->left_out.lost == 12 && b->left_out.late == 1);
    assert_int_equal(b->cost.marks, 160);
    pp_wire_batch_free(b);
}

/** decode, encode, decode: both structs encode to the same text. */
static void assert_round_trip(const json_t *object)
{
    pp_error err = {0};
    pp_wire_batch *a = NULL;
    pp_wire_batch *b = NULL;
    pp_buf first;
    pp_buf second;
    pp_buf_init(&first, PP_WIRE_MAX_MESSAGE);
    pp_buf_init(&second, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_decode(object, &a, &err), 0);
    if (pp_wire_batch_encode(a, &first, &err) < 0)
        fail_msg("%s: %s", err.field, err.message);
    PP_CLEANUP_JSON json_t *again = parse(first.data);
    /* Text and object agree beyond what our own decoder reads. */
    assert_true(json_equal(object, again));
    assert_int_equal(pp_wire_batch_decode(again, &b, &err), 0);
    assert_int_equal(pp_wire_batch_encode(b, &second, &err), 0);
    assert_string_equal(first.data, second.data);
    pp_buf_done(&first);
    pp_buf_done(&second);
    pp_wire_batch_free(a);
    pp_wire_batch_free(b);
}

static json_t *grid_example(void)
{
    json_t *object = parse(example);
    json_object_del(object, "intervals");
    json_object_set_new(object, "grid", parse(example_grid));
    return object;
}

static void test_round_trip(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *intervals = parse(example);
    assert_round_trip(intervals);
    PP_CLEANUP_JSON json_t *grid = grid_example();
    assert_round_trip(grid);
}

static void test_grid_values(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = grid_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->interval_count, 0);
    assert_int_equal(b->grid.count, 2);
    assert_int_equal(b->grid.cells[1].cell, 1);
    assert_int_equal(b->grid.cells[1].busy, 10000000);
    assert_int_equal(b->grid.cells[1].calls, 4);
    pp_wire_batch_free(b);
}

/** Sets the value at a path such as "intervals.duration[1]"; a JSON text, or NULL to remove it. */
static void set_at(json_t *object, const char *path, const char *value)
{
    char key[64];
    json_t *at = object;
    while (*path) {
        size_t n = strcspn(path, ".[]");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        path += n;
        while (*path == ']' || *path == '.')
            path++;
        bool index = *path == '[';
        path += index ? 1 : 0;
        json_t *fresh = *path || !value ? NULL : json_loads(value, JSON_DECODE_ANY, NULL);
        if (*path)
            at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
                                   : json_object_get(at, key);
        else if (!value)
            json_object_del(at, key);
        else if (json_is_array(at))
            json_array_set_new(at, strtoul(key, NULL, 10), fresh);
        else
            json_object_set_new(at, key, fresh);
        assert_non_null(at);
    }
}

/** The example with busy times; one of each column's is not known. */
static json_t *busy_example(void)
{
    json_t *object = parse(example);
    set_at(object, "process.clock", "\"kernels\"");
    set_at(object, "intervals.kernels", "[500000,-1,5]");
    set_at(object, "intervals.goesOn", "[1,0,0]");
    set_at(object, "steps.gap", "[-1,1490000000]");
    return object;
}

static json_t *busy_grid_example(void)
{
    json_t *object = grid_example();
    set_at(object, "grid.kernels", "[-1,10000000]");
    set_at(object, "process.kernels", "\"another CUPTI client\"");
    return object;
}

static void test_busy_times(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *intervals = busy_example();
    PP_CLEANUP_JSON json_t *grid = busy_grid_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_round_trip(intervals);
    assert_round_trip(grid);
    assert_int_equal(pp_wire_batch_decode(intervals, &b, &err), 0);
    assert_int_equal(b->intervals[0].kernels, 500000);
    assert_int_equal(b->intervals[1].kernels, -1);
    assert_int_equal(b->intervals[0].goes_on, 1);
    assert_int_equal(b->intervals[1].goes_on, 0);
    assert_int_equal(b->steps[0].gap, -1);
    assert_int_equal(b->steps[1].gap, 1490000000);
    assert_string_equal(b->process.kernels, "");
    pp_wire_batch_free(b);
    assert_int_equal(pp_wire_batch_decode(grid, &b, &err), 0);
    assert_int_equal(b->grid.cells[0].kernels, -1);
    assert_int_equal(b->grid.cells[1].kernels, 10000000);
    assert_string_equal(b->process.kernels, "another CUPTI client");
    pp_wire_batch_free(b);
}

/** The example with the kernels of its layers and of none. */
static json_t *kernels_example(void)
{
    json_t *object = parse(example);
    (void)json_object_set_new(
        object, "kernels",
        parse("{\"steps\":2,\"names\":[\"gemm\",\"\",\"void add<float>(float*)\"],"
              "\"layer\":[1,1,0],\"phase\":[0,1,7],\"name\":[0,2,1],"
              "\"count\":[2,3,9],\"duration\":[400000,5000,7000]}"));
    return object;
}

static void test_kernels_by_name(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = kernels_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_round_trip(object);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->kernels.count, 3);
    assert_int_equal(b->kernels.steps, 2);
    assert_int_equal(b->kernels.names.count, 3);
    PP_CLEANUP_JSON json_t *more = kernels_example();
    set_at(more, "kernels.steps", "0"); /* of those of the batch before */
    assert_round_trip(more);
    const pp_wire_kernel *k = &b->kernels.rows[1];
    assert_string_equal(b->kernels.names.items[k->name], "void add<float>(float*)");
    assert_true(k->layer == 1 && k->phase == PP_WIRE_BACKWARD && k->count == 3);
    assert_int_equal(k->duration, 5000);
    pp_wire_batch_free(b);
}

/** The example with waits of its layer and of none. */
static json_t *waits_example(void)
{
    json_t *object = parse(example);
    (void)json_object_set_new(
        object, "waits",
        parse("{\"steps\":2,\"calls\":[\"item\",\"cuda.synchronize\"],"
              "\"files\":[\"train.py\",\"\"],\"layer\":[1,0],\"phase\":[0,7],\"call\":[0,1],"
              "\"file\":[0,1],\"line\":[41,0],\"count\":[9,1],\"inSteps\":[2,1],"
              "\"duration\":[400000,7000]}"));
    return object;
}

static void test_waits(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = waits_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_round_trip(object);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->waits.count, 2);
    assert_int_equal(b->waits.steps, 2);
    const pp_wire_wait *w = &b->waits.rows[0];
    assert_string_equal(b->waits.calls.items[w->call], "item");
    assert_string_equal(b->waits.files.items[w->file], "train.py");
    assert_true(w->layer == 1 && w->phase == PP_WIRE_FORWARD && w->line == 41 && w->count == 9);
    assert_true(w->steps == 2 && w->duration == 400000);
    pp_wire_batch_free(b);
    PP_CLEANUP_JSON json_t *none = parse(example);
    (void)json_object_set_new(
        none, "waits",
        parse("{\"steps\":2,\"calls\":[],\"files\":[],\"layer\":[],\"phase\":[],\"call\":[],"
              "\"file\":[],\"line\":[],\"count\":[],\"inSteps\":[],\"duration\":[]}"));
    assert_round_trip(none); /* steps in which the host did not wait */
}

/** The example with copies of its layer and of none. */
static json_t *copies_example(void)
{
    json_t *object = parse(example);
    (void)json_object_set_new(
        object, "copies",
        parse("{\"steps\":2,\"layer\":[1,0],\"phase\":[0,7],\"type\":[1,4],\"memory\":[2,0],"
              "\"count\":[9,1],\"bytes\":[36864,0],\"duration\":[400000,7000]}"));
    return object;
}

/** The example with memory of its layer and of none. */
static json_t *memory_example(void)
{
    json_t *object = parse(example);
    (void)json_object_set_new(object, "memory",
                              parse("{\"steps\":1,\"layer\":[1,0],\"phase\":[1,7],"
                                    "\"peak\":[8000000000,0],\"left\":[-4096,4096]}"));
    return object;
}

static void test_memory(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = memory_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_round_trip(object);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_true(b->memory.count == 2 && b->memory.steps == 1);
    const pp_wire_memory_row *m = &b->memory.rows[0];
    assert_true(m->layer == 1 && m->phase == PP_WIRE_BACKWARD);
    assert_true(m->peak == 8000000000 && m->left == -4096);
    assert_false(pp_wire_is_pm_only(b));
    pp_wire_batch_free(b);
}

static void test_copies(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = copies_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_round_trip(object);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->copies.count, 2);
    assert_int_equal(b->copies.steps, 2);
    assert_false(pp_wire_is_pm_only(b));
    const pp_wire_copy *c = &b->copies.rows[0];
    assert_string_equal(pp_wire_copy_type_name(c->type), "d2h");
    assert_string_equal(pp_wire_copy_memory_name(c->memory), "pinned");
    assert_true(c->layer == 1 && c->phase == PP_WIRE_FORWARD && c->count == 9);
    assert_true(c->bytes == 36864 && c->duration == 400000);
    assert_string_equal(pp_wire_copy_type_name(b->copies.rows[1].type), "fill");
    assert_string_equal(pp_wire_copy_type_name(6), "");
    pp_wire_batch_free(b);
}

/** The example with two runs of counted steps before it. */
static json_t *counted_example(void)
{
    json_t *object = parse(example);
    (void)json_object_set_new(
        object, "counted",
        parse("{\"start\":[1768999990000000000,1100000000],\"duration\":[1100000000,1000000000],"
              "\"steps\":[11,10]}"));
    return object;
}

static void test_unknown_busy_times_are_left_out(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_wire_batch *b = NULL;
    PP_CLEANUP_JSON json_t *object = parse(example);
    PP_CLEANUP_JSON json_t *unknown = parse(example);
    set_at(unknown, "intervals.kernels", "[-1,-1,-1]");
    set_at(unknown, "intervals.goesOn", "[0,0,0]");
    set_at(unknown, "steps.gap", "[-1,-1]");
    assert_int_equal(pp_wire_batch_decode(unknown, &b, &err), 0);
    pp_buf out;
    pp_buf_init(&out, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &out, &err), 0);
    PP_CLEANUP_JSON json_t *again = parse(out.data);
    assert_true(json_equal(object, again));
    pp_buf_done(&out);
    pp_wire_batch_free(b);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->intervals[2].kernels, -1);
    assert_int_equal(b->steps[1].gap, -1);
    pp_wire_batch_free(b);
}

typedef struct broken {
    const char *path;
    const char *value;
    const char *field; /* NULL: the path itself */
} broken;

static void assert_refused(json_t *object, const broken *c)
{
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    set_at(object, c->path, c->value);
    if (pp_wire_batch_decode(object, &b, &err) == 0)
        fail_msg("%s = %s was taken", c->path, c->value ? c->value : "(absent)");
    assert_string_equal(err.field, c->field ? c->field : c->path);
    assert_true(err.message[0]);
    assert_null(b);
}

static void test_counted_steps(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = counted_example();
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    assert_round_trip(object);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    assert_int_equal(b->run_count, 2);
    assert_true(b->runs[1].start == T0 - 10000000000 + 1100000000);
    assert_true(b->runs[1].duration == 1000000000 && b->runs[1].steps == 10);
    assert_int_equal(pp_wire_batch_shift(b, 3600000000000, &err), 0);
    assert_true(b->runs[1].start == T0 - 3608900000000);
    pp_wire_batch_free(b);
    static const broken cases[] = {
        {"counted.start", "[1768999990000000000]", "counted.duration"},
        {"counted.start[1]", "1099999999", NULL}, /* within the one before */
        {"counted.start[0]", "1", NULL},
        {"counted.duration[1]", "14200000000", NULL}, /* to 1 ns behind the capture's end */
        {"counted.duration[0]", "-1", NULL},
        {"counted.steps[0]", "0", NULL},
        {"counted.steps", NULL, NULL},
        {"counted", "[]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *bad = counted_example();
        assert_refused(bad, &cases[i]);
    }
}

static const broken broken_fields[] = {
    {"session", NULL, NULL},
    {"session", "\"\"", NULL},
    {"session", "\"a b\"", NULL},
    {"session", "7", NULL},
    {"instance", "\"0123456789012345678901234567890123456789012345678901234567890123456\"", NULL},
    {"seq", "-1", NULL},
    {"seq", "1.5", NULL},
    {"seq", "\"7\"", NULL},
    {"seq", "9007199254740993", NULL},
    {"dropped", "-3", NULL},
    {"leftOut", "3", NULL},
    {"leftOut.steps", "-1", NULL},
    {"leftOut.lost", "\"x\"", NULL},
    {"leftOut.late", "9007199254740993", NULL},
    {"cost", "[]", NULL},
    {"cost.nanoseconds", "-1", NULL},
    {"cost.marks", "\"x\"", NULL},
    {"process", NULL, NULL},
    {"process.id", "65536", NULL},
    {"process.rank", "2", NULL},
    {"process.worldSize", "0", NULL},
    {"process.gpus", "{}", NULL},
    {"process.gpus[1]", "\"GPU-1\"", NULL},
    {"process.gpus[1]", "\"\"", NULL},
    {"process.gpus[0]", "5", NULL},
    {"process.hostname", "\"\"", NULL},
    {"process.clock", "\"sundial\"", NULL},
    {"process.python", "5", NULL},
    {"stretch", NULL, NULL},
    {"stretch.id", "-1", NULL},
    {"stretch.start", "5", NULL},
    {"stretch.start", "-9223372036854775808", NULL},
    {"stretch.start", "1769000009000000000", "stretch.end"},
    {"stretch.end", "9223372036854775807", NULL},
    {"stretch.end", "1769099999000000000", NULL},
    {"stretch.last", "0", NULL},
    {"layers", NULL, NULL},
    {"layers", "{}", NULL},
    {"layers[0]", "1", NULL},
    {"layers[0].id", "0", "layers[0]"},
    {"layers[0].id", "-4", NULL},
    {"layers[0].id", "2", "intervals.layer[0]"},
    {"layers[0].name", "\"\"", NULL},
    {"layers[0].type", NULL, NULL},
    {"layers[0].parameters", "-1", NULL},
    {"steps", NULL, NULL},
    {"steps.epoch", NULL, NULL},
    {"steps.number", "[41]", "steps.start"},
    {"steps.number[1]", "0", NULL},
    {"steps.number[0]", "-1", NULL},
    {"steps.start[0]", "0", NULL},
    {"steps.start[1]", "9223372036854775807", NULL},
    {"steps.duration[1]", "-1", NULL},
    {"steps.duration[1]", "4000000000", NULL},
    {"steps.epoch[1]", "-4", NULL},
    {"steps.batch[1]", "null", NULL},
    {"intervals", NULL, NULL},
    {"intervals", "[]", NULL},
    {"intervals.duration", "[1,2]", NULL},
    {"intervals.phase", "7", NULL},
    {"intervals.layer[1]", "2", NULL},
    {"intervals.layer[1]", "0", "intervals.phase[1]"},
    {"intervals.layer[1]", "4294967297", NULL},
    {"intervals.phase[0]", "9", NULL},
    {"intervals.phase[0]", "-1", NULL},
    {"intervals.phase[0]", "4", NULL},
    {"intervals.phase[2]", "0", NULL},
    {"intervals.step[2]", "-50", NULL},
    {"intervals.start[0]", "true", NULL},
    {"intervals.start[1]", "9223372036854775807", NULL},
    {"intervals.start[1]", "-9223372036854775808", NULL},
    {"intervals.start[2]", "4200000000", NULL},
    {"intervals.duration[2]", "-5", NULL},
    {"intervals.duration[2]", "4200000000", NULL},
    {"intervals.start[0]", "1768999999000000000", "intervals.duration[0]"},
};

static void test_each_field_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken_fields / sizeof *broken_fields; i++) {
        PP_CLEANUP_JSON json_t *object = parse(example);
        assert_refused(object, &broken_fields[i]);
    }
}

static void test_each_grid_field_is_named(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"grid.start", "1768999999980000000", NULL},
        {"grid.start", "1769000004200000001", NULL},
        {"grid.cell", "0", NULL},
        {"grid.cell", "10000001", NULL},
        {"grid.cell", "99999", NULL},
        {"grid.cells[1]", "-1", NULL},
        {"grid.cells[0]", "-1", NULL},
        {"grid.cells[1]", "421", NULL},
        {"grid.layer[0]", "9", NULL},
        {"grid.phase[0]", "7", NULL},
        {"grid.busy[1]", "10000001", NULL},
        {"grid.busy[1]", "-1", NULL},
        {"grid.calls[0]", "-1", NULL},
        {"grid.calls", "[1]", NULL},
        {"intervals", "{}", "grid"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = grid_example();
        assert_refused(object, &cases[i]);
    }
}

static void test_each_field_of_kernels_is_named(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"kernels.names", "7", NULL},
        {"kernels.names[0]", "7", NULL},
        {"kernels.names[0]", "\"a\\nb\"", NULL},
        {"kernels.names[0]", "\"\\u007f\"", NULL},
        {"kernels.name[0]", "3", NULL},
        {"kernels.name[0]", "-1", NULL},
        {"kernels.layer[0]", "9", NULL},
        {"kernels.phase[0]", "9", NULL},
        {"kernels.phase[2]", "1", NULL},
        {"kernels.count[1]", "0", NULL},
        {"kernels.duration[1]", "-1", NULL},
        {"kernels.duration", "[1]", NULL},
        {"kernels.count", NULL, NULL},
        {"kernels.steps", "null", NULL},
        {"kernels.steps", NULL, NULL},
        {"kernels.steps", "-1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = kernels_example();
        assert_refused(object, &cases[i]);
    }
    PP_CLEANUP_JSON json_t *object = kernels_example();
    char name[PP_WIRE_MAX_NAME + 4] = "\"";
    (void)memset(name + 1, 'k', PP_WIRE_MAX_NAME + 1);
    name[PP_WIRE_MAX_NAME + 2] = '"';
    assert_refused(object, &(broken){"kernels.names[0]", name, NULL});
}

static void test_each_field_of_waits_is_named(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"waits.steps", NULL, NULL},
        {"waits.steps", "-1", NULL},
        {"waits.calls", "7", NULL},
        {"waits.calls[0]", "\"a\\nb\"", NULL},
        {"waits.calls[1]", "\"01234567890123456789012345678901234567890123456789012345678901234\"",
         NULL},
        {"waits.files[0]", "\"\\u007f\"", NULL},
        {"waits.files[0]", "null", NULL},
        {"waits.call[0]", "2", NULL},
        {"waits.call[0]", "-1", NULL},
        {"waits.file[1]", "2", NULL},
        {"waits.line[0]", "-1", NULL},
        {"waits.line[0]", "2147483648", NULL},
        {"waits.layer[0]", "9", NULL},
        {"waits.phase[0]", "9", NULL},
        {"waits.phase[1]", "1", NULL},
        {"waits.count[1]", "0", NULL},
        {"waits.inSteps[0]", "10", NULL},
        {"waits.inSteps[0]", "0", NULL},
        {"waits.duration[1]", "-1", NULL},
        {"waits.duration", "[1]", NULL},
        {"waits.count", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = waits_example();
        assert_refused(object, &cases[i]);
    }
}

static void test_each_field_of_copies_is_named(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"copies.steps", NULL, NULL},       {"copies.steps", "-1", NULL},
        {"copies.layer[0]", "9", NULL},     {"copies.phase[0]", "9", NULL},
        {"copies.phase[1]", "1", NULL},     {"copies.type[0]", "6", NULL},
        {"copies.type[1]", "-1", NULL},     {"copies.memory[0]", "3", NULL},
        {"copies.memory[1]", "1", NULL},    {"copies.count[1]", "0", NULL},
        {"copies.bytes[0]", "-1", NULL},    {"copies.bytes[0]", "9007199254740993", NULL},
        {"copies.duration[1]", "-1", NULL}, {"copies.duration", "[1]", NULL},
        {"copies.bytes", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = copies_example();
        assert_refused(object, &cases[i]);
    }
}

static void test_each_field_of_memory_is_named(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"memory.steps", NULL, NULL},
        {"memory.layer[0]", "9", NULL},
        {"memory.phase[1]", "1", NULL},
        {"memory.peak[0]", "-1", NULL},
        {"memory.peak[0]", "9007199254740993", NULL},
        {"memory.left[1]", "-9007199254740993", NULL},
        {"memory.left", "[1]", NULL},
        {"memory.peak", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = memory_example();
        assert_refused(object, &cases[i]);
    }
}

static void test_each_busy_time_is_named(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"intervals.kernels", "[1,2]", NULL},     {"intervals.kernels", "null", NULL},
        {"intervals.kernels[0]", "510001", NULL}, {"intervals.kernels[0]", "-2", NULL},
        {"intervals.kernels[0]", "null", NULL},   {"steps.gap", "[1]", NULL},
        {"steps.gap[1]", "1490000001", NULL},     {"steps.gap[1]", "-2", NULL},
        {"process.kernels", "7", NULL},           {"intervals.goesOn", "[0]", NULL},
        {"intervals.goesOn[0]", "2", NULL},       {"intervals.goesOn[0]", "-1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *object = busy_example();
        assert_refused(object, &cases[i]);
    }
    static const broken grids[] = {
        {"grid.kernels", "[1]", NULL},
        {"grid.kernels[1]", "10000001", NULL},
        {"process.kernels",
         "\"0123456789012345678901234567890123456789012345678901234567890123456\"", NULL},
    };
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        PP_CLEANUP_JSON json_t *object = busy_grid_example();
        assert_refused(object, &grids[i]);
    }
    PP_CLEANUP_JSON json_t *pm = busy_grid_example();
    set_at(pm, "grid.cell", "5000000");
    set_at(pm, "grid.busy", "[1,2]");
    assert_refused(pm, &(broken){"grid.kernels[1]", "5000001", NULL});
}

static void fill(json_t *group, const char *name, size_t count, int64_t value)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(value));
    json_object_set_new(group, name, array);
}

static void test_counts_past_the_limit(void **state)
{
    (void)state;
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *many = parse(example);
    json_t *intervals = json_object_get(many, "intervals");
    static const char *const columns[] = {"layer", "phase", "step", "start", "duration"};
    for (size_t i = 0; i < 5; i++)
        fill(intervals, columns[i], PP_WIRE_MAX_INTERVALS + 1, 0);
    assert_int_equal(pp_wire_batch_decode(many, &b, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_string_equal(err.field, "intervals.layer");

    PP_CLEANUP_JSON json_t *layers = parse(example);
    json_t *array = json_object_get(layers, "layers");
    while (json_array_size(array) <= PP_WIRE_MAX_LAYERS)
        json_array_append(array, json_array_get(array, 0));
    assert_int_equal(pp_wire_batch_decode(layers, &b, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_string_equal(err.field, "layers");
}

static void test_layer_listed_twice(void **state)
{
    (void)state;
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *object = parse(example);
    json_t *array = json_object_get(object, "layers");
    json_array_append(array, json_array_get(array, 0));
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), -1);
    assert_string_equal(err.field, "layers");
}

static void test_not_an_object(void **state)
{
    (void)state;
    pp_wire_batch *b = NULL;
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *list = json_array();
    assert_int_equal(pp_wire_batch_decode(list, &b, &err), -1);
    assert_int_equal(pp_wire_batch_decode(NULL, &b, &err), -1);
}

static void test_encoding_checks_and_leaves_the_buffer(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_wire_batch *b = NULL;
    PP_CLEANUP_JSON json_t *object = parse(example);
    assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
    pp_buf out;
    pp_buf_init(&out, 300);
    assert_int_equal(pp_buf_append(&out, "before", 6, &err), 0);
    assert_int_equal(pp_wire_batch_encode(b, &out, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_string_equal(out.data, "before");
    b->intervals[1].duration = -1;
    assert_int_equal(pp_wire_batch_encode(b, &out, &err), -1);
    assert_string_equal(err.field, "intervals.duration[1]");
    b->intervals[1].duration = 1;
    b->steps[1].epoch = PP_WIRE_MAX_COUNT + 1;
    assert_int_equal(pp_wire_batch_encode(b, &out, &err), -1);
    assert_string_equal(err.field, "steps.epoch[1]");
    assert_string_equal(out.data, "before");
    pp_buf_done(&out);
    pp_wire_batch_free(b);
}

static void test_text_that_needs_escapes(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *object = parse(example);
    set_at(object, "layers[0].name", "\"a\\\"b\\\\c\\n\\u20ac\"");
    assert_round_trip(object);
}

/** A small generator of its own, so that a failure can be run again. */
static uint32_t draw(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/** Changes, inserts or removes one byte, or copies a piece over another. */
static void mutate(char *text, size_t *n, size_t capacity, uint32_t *seed)
{
    static const char likely[] = "0123456789-.eE,:[]{}\"\\nulltrefas\x00\xff";
    size_t at = draw(seed) % *n;
    switch (draw(seed) % 4) {
    case 0:
        text[at] = likely[draw(seed) % (sizeof likely - 1)];
        break;
    case 1:
        (void)memmove(text + at, text + at + 1, *n - at - 1);
        *n -= *n > 1;
        break;
    case 2:
        if (*n + 1 < capacity) {
            (void)memmove(text + at + 1, text + at, *n - at);
            text[at] = likely[draw(seed) % (sizeof likely - 1)];
            *n += 1;
        }
        break;
    default: {
        size_t from = draw(seed) % *n;
        size_t len = draw(seed) % 16;
        if (at + len < *n && from + len < *n)
            (void)memmove(text + at, text + from, len);
        break;
    }
    }
}

/** Whatever is accepted must encode again: decoding lets nothing inconsistent through. */
static size_t try_text(const char *text, size_t n)
{
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *object = pp_json_parse(text, n, &err);
    pp_wire_batch *b = NULL;
    if (!object)
        return 0;
    if (pp_wire_batch_decode(object, &b, &err) < 0) {
        assert_true(err.message[0]);
        return 1;
    }
    pp_buf out;
    pp_buf_init(&out, PP_WIRE_MAX_MESSAGE);
    assert_int_equal(pp_wire_batch_encode(b, &out, &err), 0);
    pp_buf_done(&out);
    pp_wire_batch_free(b);
    return 1;
}

static void test_random_mutations(void **state)
{
    (void)state;
    uint32_t seed = 20260118;
    size_t parsed = 0;
    PP_CLEANUP_JSON json_t *grid = grid_example();
    PP_CLEANUP_FREE char *grid_text = json_dumps(grid, JSON_COMPACT);
    for (size_t round = 0; round < 30000; round++) {
        char text[2048];
        const char *from = round % 2 ? example : grid_text;
        size_t n = strlen(from);
        (void)memcpy(text, from, n);
        for (size_t i = draw(&seed) % 4 + 1; i; i--)
            mutate(text, &n, sizeof text, &seed);
        parsed += try_text(text, n);
    }
    assert_true(parsed > 3000); /* else the mutations only ever test the JSON parser */
}

static void test_small_messages(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_buf out;
    pp_buf_init(&out, 4096);
    pp_wire_type type = PP_WIRE_BATCH;

    pp_wire_refused refused = {.seq = 7, .code = "invalid", .field = "intervals.duration[3]"};
    pp_wire_refused refused_back = {0};
    assert_int_equal(pp_wire_refused_encode(&refused, &out, &err), 0);
    PP_CLEANUP_JSON json_t *a = parse(out.data);
    assert_int_equal(pp_wire_type_of(a, &type, &err), 0);
    assert_int_equal(type, PP_WIRE_REFUSED);
    assert_int_equal(pp_wire_refused_decode(a, &refused_back, &err), 0);
    assert_string_equal(refused_back.field, "intervals.duration[3]");

    pp_buf_reset(&out);
    pp_wire_ack ack = {.instance = "x-1", .seq = 9};
    pp_wire_ack ack_back = {0};
    assert_int_equal(pp_wire_ack_encode(&ack, &out, &err), 0);
    PP_CLEANUP_JSON json_t *b = parse(out.data);
    assert_int_equal(pp_wire_ack_decode(b, &ack_back, &err), 0);
    assert_int_equal(ack_back.seq, 9);

    pp_buf_reset(&out);
    pp_wire_welcome welcome = {.session = "s", .sampling = true};
    pp_wire_welcome welcome_back = {0};
    assert_int_equal(pp_wire_welcome_encode(&welcome, &out, &err), 0);
    PP_CLEANUP_JSON json_t *c = parse(out.data);
    assert_int_equal(pp_wire_welcome_decode(c, &welcome_back, &err), 0);
    assert_true(welcome_back.sampling);
    assert_null(welcome_back.settings);

    pp_buf_reset(&out);
    pp_wire_leave leave = {.session = "s-1"};
    pp_wire_leave leave_back = {0};
    assert_int_equal(pp_wire_leave_encode(&leave, &out, &err), 0);
    PP_CLEANUP_JSON json_t *e = parse(out.data);
    assert_int_equal(pp_wire_type_of(e, &type, &err), 0);
    assert_int_equal(type, PP_WIRE_LEAVE);
    assert_int_equal(pp_wire_leave_decode(e, &leave_back, &err), 0);
    assert_string_equal(leave_back.session, "s-1");

    pp_buf_reset(&out);
    pp_wire_bye bye = {.session = "s", .instance = "i", .reason = "trainer \"finished\""};
    pp_wire_bye bye_back = {0};
    assert_int_equal(pp_wire_bye_encode(&bye, &out, &err), 0);
    PP_CLEANUP_JSON json_t *d = parse(out.data);
    assert_int_equal(pp_wire_bye_decode(d, &bye_back, &err), 0);
    assert_string_equal(bye_back.reason, bye.reason);
    pp_buf_done(&out);
}

static void test_small_messages_refuse(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_wire_type type = PP_WIRE_BATCH;
    pp_wire_ack ack = {.seq = 4};
    pp_wire_bye bye;
    pp_wire_welcome welcome;
    pp_wire_leave leave;
    PP_CLEANUP_JSON json_t *a = parse("{\"type\":\"hello\",\"instance\":\"i\",\"seq\":-1}");
    assert_int_equal(pp_wire_type_of(a, &type, &err), -1);
    assert_string_equal(err.field, "type");
    assert_int_equal(pp_wire_ack_decode(a, &ack, &err), -1);
    assert_string_equal(err.field, "seq");
    assert_int_equal(ack.seq, 4); /* results are not touched on failure */
    assert_int_equal(pp_wire_bye_decode(a, &bye, &err), -1);
    assert_string_equal(err.field, "session");
    assert_int_equal(pp_wire_welcome_decode(a, &welcome, &err), -1);
    assert_string_equal(err.field, "sampling");
    PP_CLEANUP_JSON json_t *c = parse("{\"session\":\"\",\"sampling\":true}");
    assert_int_equal(pp_wire_welcome_decode(c, &welcome, &err), -1);
    assert_int_equal(pp_wire_leave_decode(c, &leave, &err), -1);
    assert_string_equal(err.field, "session");
    PP_CLEANUP_JSON json_t *b = json_array();
    assert_int_equal(pp_wire_type_of(b, &type, &err), -1);
}

/* Which session has a pod: with its settings, without, or none. */
static void test_welcomes(void **state)
{
    (void)state;
    PP_CLEANUP_JSON json_t *settings = parse("{\"version\":1}");
    const struct {
        pp_wire_welcome welcome;
        const char *text;
    } cases[] = {
        {{.session = "s", .sampling = true, .settings = settings},
         "{\"type\":\"welcome\",\"session\":\"s\",\"sampling\":true,\"settings\":{\"version\":1}}"},
        {{.session = "s"}, "{\"type\":\"welcome\",\"session\":\"s\",\"sampling\":false}"},
        {{.session = ""}, "{\"type\":\"welcome\",\"sampling\":false}"},
        {{.session = "s", .time = 3},
         "{\"type\":\"welcome\",\"session\":\"s\",\"sampling\":false,\"time\":3}"},
        {{.session = "s", .hook = true},
         "{\"type\":\"welcome\",\"session\":\"s\",\"sampling\":false,\"hook\":true}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_error err = {0};
        pp_wire_welcome back;
        pp_buf out;
        pp_buf_init(&out, PP_WIRE_MAX_ANSWER);
        assert_int_equal(pp_wire_welcome_encode(&cases[i].welcome, &out, &err), 0);
        assert_string_equal(out.data, cases[i].text);
        PP_CLEANUP_JSON json_t *object = parse(out.data);
        assert_int_equal(pp_wire_welcome_decode(object, &back, &err), 0);
        assert_string_equal(back.session, cases[i].welcome.session);
        assert_int_equal(back.sampling, cases[i].welcome.sampling);
        assert_int_equal(back.time, cases[i].welcome.time);
        assert_int_equal(back.hook, cases[i].welcome.hook);
        assert_true(!back.settings == !cases[i].welcome.settings);
        assert_true(!back.settings || json_equal(back.settings, settings));
        pp_buf_done(&out);
    }
    static const char *const bad[] = {"{\"session\":\"s\",\"sampling\":true,\"settings\":7}",
                                      "{\"sampling\":true,\"settings\":{}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pp_error err = {0};
        pp_wire_welcome back;
        PP_CLEANUP_JSON json_t *object = parse(bad[i]);
        assert_int_equal(pp_wire_welcome_decode(object, &back, &err), -1);
        assert_string_equal(err.field, "settings");
    }
}

/* What time is it there? The question, and its answer. */
static void test_times(void **state)
{
    (void)state;
    static const struct {
        pp_wire_time time;
        const char *text;
    } cases[] = {
        {{.id = 7}, "{\"type\":\"time\",\"id\":7}"},
        {{.id = 7, .realtime = T0, .monotonic = 5},
         "{\"type\":\"time\",\"id\":7,\"realtime\":1769000000000000000,\"monotonic\":5}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_error err = {0};
        pp_wire_time back;
        pp_wire_type type;
        pp_buf out;
        pp_buf_init(&out, PP_WIRE_MAX_ANSWER);
        assert_int_equal(pp_wire_time_encode(&cases[i].time, &out, &err), 0);
        assert_string_equal(out.data, cases[i].text);
        PP_CLEANUP_JSON json_t *object = parse(out.data);
        assert_int_equal(pp_wire_type_of(object, &type, &err), 0);
        assert_int_equal(type, PP_WIRE_TIME);
        assert_int_equal(pp_wire_time_decode(object, &back, &err), 0);
        assert_true(back.id == 7 && back.realtime == cases[i].time.realtime &&
                    back.monotonic == cases[i].time.monotonic);
        pp_buf_done(&out);
    }
    static const struct {
        const char *text, *field;
    } bad[] = {
        {"{}", "id"},
        {"{\"id\":0}", "id"},
        {"{\"id\":\"7\"}", "id"},
        {"{\"id\":9007199254740993}", "id"},
        {"{\"id\":7,\"realtime\":0}", "realtime"},
        {"{\"id\":7,\"realtime\":1.5}", "realtime"},
        {"{\"id\":7,\"realtime\":1,\"monotonic\":-1}", "monotonic"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pp_error err = {0};
        pp_wire_time back;
        PP_CLEANUP_JSON json_t *object = parse(bad[i].text);
        assert_int_equal(pp_wire_time_decode(object, &back, &err), -1);
        assert_string_equal(err.field, bad[i].field);
    }
    pp_error err = {0};
    pp_wire_welcome welcome;
    PP_CLEANUP_JSON json_t *object = parse("{\"sampling\":true,\"time\":0}");
    assert_int_equal(pp_wire_welcome_decode(object, &welcome, &err), -1);
    assert_string_equal(err.field, "time");
}

/* What an agent sees of its pod's hook. */
static void test_hooks(void **state)
{
    (void)state;
    static const struct {
        pp_wire_hook hook;
        const char *text;
    } cases[] = {
        {{0}, "{\"type\":\"hook\",\"loaded\":false,\"torch\":false}"},
        {{.loaded = true, .torch = true, .libc = "musl"},
         "{\"type\":\"hook\",\"loaded\":true,\"torch\":true,\"libc\":\"musl\"}"},
        {{.loaded = true, .torch = true, .refusal = "several GPUs"},
         "{\"type\":\"hook\",\"loaded\":true,\"torch\":true,\"refusal\":\"several GPUs\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_error err = {0};
        pp_wire_hook back;
        pp_wire_type type;
        pp_buf out;
        pp_buf_init(&out, PP_WIRE_MAX_ANSWER);
        assert_int_equal(pp_wire_hook_encode(&cases[i].hook, &out, &err), 0);
        assert_string_equal(out.data, cases[i].text);
        PP_CLEANUP_JSON json_t *object = parse(out.data);
        assert_int_equal(pp_wire_type_of(object, &type, &err), 0);
        assert_int_equal(type, PP_WIRE_HOOK);
        assert_int_equal(pp_wire_hook_decode(object, &back, &err), 0);
        assert_true(back.loaded == cases[i].hook.loaded && back.torch == cases[i].hook.torch);
        assert_string_equal(back.libc, cases[i].hook.libc);
        assert_string_equal(back.refusal, cases[i].hook.refusal);
        pp_buf_done(&out);
    }
    static const struct {
        const char *text, *field;
    } bad[] = {
        {"{\"torch\":true}", "loaded"},
        {"{\"loaded\":1,\"torch\":true}", "loaded"},
        {"{\"loaded\":true}", "torch"},
        {"{\"loaded\":true,\"torch\":true,\"libc\":7}", "libc"},
        {"{\"loaded\":true,\"torch\":true,\"refusal\":7}", "refusal"},
        {"{\"loaded\":true,\"torch\":true,\"refusal\":\"a\\nb\"}", "refusal"},
        {"{\"loaded\":true,\"torch\":true,\"refusal\":\"0123456789012345678901234567890123456789"
         "012345678901234567890123\"}",
         "refusal"},
        {"{\"loaded\":true,\"torch\":true,\"libc\":\"\"}", "libc"},
        {"{\"loaded\":true,\"torch\":true,\"libc\":\"seventeen-letters\"}", "libc"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pp_error err = {0};
        pp_wire_hook back;
        PP_CLEANUP_JSON json_t *object = parse(bad[i].text);
        assert_int_equal(pp_wire_hook_decode(object, &back, &err), -1);
        assert_string_equal(err.field, bad[i].field);
    }
    pp_error err = {0};
    pp_wire_welcome welcome;
    PP_CLEANUP_JSON json_t *object = parse("{\"sampling\":true,\"hook\":1}");
    assert_int_equal(pp_wire_welcome_decode(object, &welcome, &err), -1);
    assert_string_equal(err.field, "hook");
}

/* An agent's last words about its clock: read back as what they were, and nothing else is. */
static void test_clock_is_said(void **state)
{
    (void)state;
    static const int64_t offsets[] = {1, -1, 820000000, -820000000, INT64_C(9223372036)};
    char text[PP_WIRE_CLOCK_SAID];
    int64_t back = 0;
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        pp_wire_clock_said(offsets[i], text, sizeof text);
        assert_true(strlen(text) + 1 < sizeof text);
        assert_true(pp_wire_clock_read(text, &back) && back == offsets[i]);
    }
    pp_wire_clock_said(-86400, text, sizeof text);
    assert_string_equal(text,
                        "clock behind by 86400 s or more: by it the operator's certificate is "
                        "not valid yet");
    static const char *const others[] = {
        "",
        "clock",
        "clock ahead by ",
        "clock ahead by -5 s or more",
        "clock ahead by 0 s or more",
        "clock ahead by 5 s",
        "clock ahead by 5000000000000 s or more",
        "clock ahead by 9223372037 s or more", /* which are no ns */
        "clock behind by 999999999999 s or more",
        "clock sideways by 5 s or more",
        "killed",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(pp_wire_clock_read(others[i], &back));
}

/* Every stamp of a batch goes onto another clock, and nothing else changes. */
static void test_batches_are_shifted(void **state)
{
    (void)state;
    for (int grid = 0; grid < 2; grid++) {
        PP_CLEANUP_JSON json_t *object = parse(example);
        pp_wire_batch *b = NULL;
        pp_error err = {0};
        if (grid) {
            (void)json_object_del(object, "intervals");
            (void)json_object_set_new(object, "grid", parse(example_grid));
        }
        (void)json_object_set_new(json_object_get(object, "stretch"), "monotonic",
                                  json_integer(123456789));
        assert_int_equal(pp_wire_batch_decode(object, &b, &err), 0);
        assert_true(b->capture.monotonic == 123456789);
        assert_int_equal(pp_wire_batch_shift(b, -3600000000123, &err), 0);
        assert_true(b->capture.start == T0 + 3600000000123);
        assert_true(b->capture.end == T0 + 3604200000123);
        assert_true(b->steps[0].start == T0 + 3600000000123);
        assert_true(b->steps[1].start == T0 + 3601500000123);
        if (grid)
            assert_true(b->grid.start == T0 + 3600000000123);
        else
            assert_true(b->intervals[2].start == T0 + 3600000699900 + 123);
        assert_int_equal(pp_wire_batch_shift(b, 3600000000123, &err), 0);
        pp_buf text;
        pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
        assert_int_equal(pp_wire_batch_encode(b, &text, &err), 0);
        PP_CLEANUP_JSON json_t *again = parse(text.data);
        assert_true(json_equal(again, object));
        /* Out of the years that there are: nothing is changed. */
        assert_int_equal(pp_wire_batch_shift(b, T0, &err), -1);
        assert_int_equal(pp_wire_batch_shift(b, INT64_MIN, &err), -1);
        assert_int_equal(pp_wire_batch_shift(b, INT64_MAX, &err), -1);
        assert_true(b->capture.start == T0 && b->capture.end == T0 + 4200000000);
        pp_buf_done(&text);
        pp_wire_batch_free(b);
    }
}

static void test_refusal_from_an_error(void **state)
{
    (void)state;
    pp_error err = {0};
    (void)pp_error_field(&err, "steps.start[1]", "%0300d\xe2\x82\xac", 1);
    pp_wire_refused refused;
    pp_wire_refused_from_error(&err, 5, &refused);
    assert_string_equal(refused.code, "invalid");
    assert_string_equal(refused.field, "steps.start[1]");
    pp_buf out;
    pp_buf_init(&out, 4096);
    assert_int_equal(pp_wire_refused_encode(&refused, &out, &err), 0);
    pp_buf_reset(&out);
    (void)pp_error_field(&err, "layers", "\"%.4s\" is none", "a\xe2\x82\xac\xe2\x82\xac");
    pp_wire_refused_from_error(&err, 5, &refused);
    assert_int_equal(pp_wire_refused_encode(&refused, &out, &err), 0);
    (void)pp_error_field(&err, "layers", "\"%.6s\" is none", "a\xe2\x82\xac\xe2\x82\xac");
    pp_wire_refused_from_error(&err, 5, &refused);
    pp_buf_reset(&out);
    assert_int_equal(pp_wire_refused_encode(&refused, &out, &err), 0);
    pp_buf_done(&out);
}

static void test_lists_and_objects_are_counted(void **state)
{
    static const struct {
        const char *text;
        size_t count;
    } cases[] = {
        {"", 0},
        {"{}", 1},
        {"{\"a\":[[],{}]}", 4},
        {"{\"a[{\":\"[[[\"}", 1},
        {"[\"\\\"[\",\"\\\\\",[]]", 2},
        {"\"[[", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t got = pp_wire_count_containers(cases[i].text, strlen(cases[i].text));
        if (got != cases[i].count)
            fail_msg("%s has %zu", cases[i].text, got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_absolute_values),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_grid_values),
        cmocka_unit_test(test_busy_times),
        cmocka_unit_test(test_unknown_busy_times_are_left_out),
        cmocka_unit_test(test_each_field_is_named),
        cmocka_unit_test(test_each_grid_field_is_named),
        cmocka_unit_test(test_each_busy_time_is_named),
        cmocka_unit_test(test_kernels_by_name),
        cmocka_unit_test(test_each_field_of_kernels_is_named),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_each_field_of_waits_is_named),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_each_field_of_memory_is_named),
        cmocka_unit_test(test_each_field_of_copies_is_named),
        cmocka_unit_test(test_counts_past_the_limit),
        cmocka_unit_test(test_layer_listed_twice),
        cmocka_unit_test(test_not_an_object),
        cmocka_unit_test(test_encoding_checks_and_leaves_the_buffer),
        cmocka_unit_test(test_text_that_needs_escapes),
        cmocka_unit_test(test_pm_values),
        cmocka_unit_test(test_further_gpus),
        cmocka_unit_test(test_chips),
        cmocka_unit_test(test_gpu_models),
        cmocka_unit_test(test_how_sampling_went),
        cmocka_unit_test(test_less_of_how_sampling_went),
        cmocka_unit_test(test_wrong_sampling),
        cmocka_unit_test(test_wrong_closure),
        cmocka_unit_test(test_wrong_quality),
        cmocka_unit_test(test_why_no_pm_values),
        cmocka_unit_test(test_a_long_why),
        cmocka_unit_test(test_wrong_pm_values),
        cmocka_unit_test(test_random_mutations),
        cmocka_unit_test(test_small_messages),
        cmocka_unit_test(test_small_messages_refuse),
        cmocka_unit_test(test_dwells),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_wrong_dwells),
        cmocka_unit_test(test_welcomes),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_counted_steps),
        cmocka_unit_test(test_batches_are_shifted),
        cmocka_unit_test(test_clock_is_said),
        cmocka_unit_test(test_refusal_from_an_error),
        cmocka_unit_test(test_lists_and_objects_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
