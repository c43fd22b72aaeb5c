/* Events of foreign hooks: what is refused, and what steps and intervals come of the rest. */
#include "sidecar/agent/events.h"

#include "common/buf.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW INT64_C(1769000000000000000)
#define S INT64_C(1000000000)
#define MS INT64_C(1000000)

enum { BATCHES = 32 };

typedef struct fixture {
    pp_events *events;
    pp_agent_pod pod;
    pp_wire_batch *batches[BATCHES];
    size_t count;
} fixture;

/* Keeps a copy that went over the wire and back, with all of its checks. */
static void on_batch(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    fixture *f = user;
    pp_error err = {0};
    pp_buf text;
    (void)events;
    assert_non_null(place->ring);
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    batch->session = strdup("s");
    batch->instance = strdup("i");
    assert_true(f->count < BATCHES);
    if (pp_wire_batch_encode(batch, &text, &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    json_t *object = pp_json_parse(text.data, text.len, &err);
    if (pp_wire_batch_decode(object, &f->batches[f->count++], &err) < 0)
        fail_msg("%s %s", err.field, err.message);
    json_decref(object);
    pp_buf_done(&text);
}

static fixture *begin(void)
{
    pp_error err = {0};
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->events = pp_events_new("dlrm-0");
    assert_int_equal(pp_events_session(f->events, "ml", "dlrm", &err), 0);
    f->pod = (pp_agent_pod){.timeline = 8, .allowed = true, .emit = on_batch, .user = f};
    return f;
}

static void end(fixture *f)
{
    pp_events_free(f->events);
    for (size_t i = 0; i < f->count; i++)
        pp_wire_batch_free(f->batches[i]);
    free(f);
}

static pp_events_answer post(fixture *f, const char *text)
{
    pp_events_answer told;
    pp_events_post(f->events, text, strlen(text), &f->pod, S, NOW, &told);
    return told;
}

/* One event of GPU-a, times in ms after NOW - 60 s. */
static void add(fixture *f, int epoch, int batch, const char *layer, const char *phase, int start,
                int stop)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{\"gpu_uuid\":\"GPU-a\",\"epoch\":%d,\"batch\":%d,\"layer\":\"%s\","
                   "\"phase\":\"%s\",\"start\":%" PRId64 ",\"end\":%" PRId64 "}",
                   epoch, batch, layer, phase, NOW - 60 * S + start * MS, NOW - 60 * S + stop * MS);
    pp_events_answer told = post(f, text);
    if (told.status != 202)
        fail_msg("%d %s %s", told.status, told.error.field, told.error.message);
}

static void assert_interval(const pp_wire_batch *b, size_t i, const char *layer,
                            pp_wire_phase phase, int start, int length)
{
    const pp_wire_interval *v = &b->intervals[i];
    const char *name = "";
    for (size_t k = 0; k < b->layer_count; k++)
        name = b->layers[k].id == v->layer ? b->layers[k].name : name;
    assert_string_equal(name, layer);
    assert_int_equal(v->phase, phase);
    assert_int_equal(v->start, NOW - 60 * S + start * MS);
    assert_int_equal(v->duration, length * MS);
}

static void test_steps_follow_each_other(void **state)
{
    (void)state;
    fixture *f = begin();
    add(f, 0, 7, "a", "forward", 100, 150);
    add(f, 0, 7, "a", "backward", 150, 180);
    add(f, 0, 7, "", "optimizer", 180, 200);
    add(f, 0, 8, "a", "forward", 230, 260);
    add(f, 1, 0, "b", "forward", 300, 310);
    assert_int_equal(f->count, 0);
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->count, 1);
    const pp_wire_batch *b = f->batches[0];
    assert_string_equal(b->process.clock, "foreign");
    assert_string_equal(b->process.gpus.items[0], "GPU-a");
    assert_string_equal(b->process.hostname, "dlrm-0");
    assert_true(b->capture.last);
    assert_int_equal(b->capture.start, NOW - 60 * S + 100 * MS);
    assert_int_equal(b->capture.monotonic, 0); /* a foreign hook tells one time only */
    assert_int_equal(b->capture.end, NOW - 60 * S + 310 * MS);
    assert_int_equal(b->step_count, 3);
    static const int starts[] = {100, 200, 260}, lengths[] = {100, 60, 50}, numbers[] = {7, 8, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(b->steps[i].start, NOW - 60 * S + starts[i] * MS);
        assert_int_equal(b->steps[i].duration, lengths[i] * MS);
        assert_int_equal(b->steps[i].batch, numbers[i]);
        assert_int_equal(b->steps[i].epoch, i / 2);
    }
    assert_int_equal(b->interval_count, 5);
    assert_int_equal(b->intervals[0].kernels, -1);
    assert_int_equal(b->steps[0].gap, -1);
    assert_interval(b, 0, "a", PP_WIRE_FORWARD, 100, 50);
    assert_interval(b, 2, "", PP_WIRE_OPTIMIZER, 180, 20);
    assert_interval(b, 4, "b", PP_WIRE_FORWARD, 300, 10);
    assert_int_equal(b->dropped, 0);
    end(f);
}

static void test_any_order_and_once(void **state)
{
    (void)state;
    fixture *f = begin();
    add(f, 0, 0, "b", "forward", 40, 50);
    add(f, 0, 0, "a", "forward", 10, 20);
    add(f, 0, 0, "b", "forward", 40, 50);
    add(f, 0, 0, "a", "forward", 10, 20);
    add(f, 0, 0, "a", "forward", 60, 70); /* another call */
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->batches[0]->interval_count, 3);
    assert_interval(f->batches[0], 0, "a", PP_WIRE_FORWARD, 10, 10);
    assert_interval(f->batches[0], 1, "b", PP_WIRE_FORWARD, 40, 10);
    assert_int_equal(f->batches[0]->dropped, 0);
    end(f);
}

static void test_late_events_are_counted(void **state)
{
    (void)state;
    fixture *f = begin();
    add(f, 0, 0, "a", "forward", 0, 50);
    add(f, 0, 1, "a", "forward", 50, 90);
    add(f, 0, 0, "b", "forward", 20, 30); /* its step has ended */
    add(f, 0, 1, "b", "forward", 40, 60); /* began before its step did: cut */
    add(f, 0, 1, "c", "forward", 10, 20); /* was over before its step began */
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->batches[0]->dropped, 2);
    assert_int_equal(f->batches[0]->interval_count, 3);
    assert_interval(f->batches[0], 1, "b", PP_WIRE_FORWARD, 50, 10);
    end(f);
}

static void test_a_training_that_begins_anew(void **state)
{
    (void)state;
    fixture *f = begin();
    add(f, 3, 9, "a", "forward", 0, 50);
    add(f, 0, 0, "a", "forward", 70, 80);
    add(f, 0, 1, "a", "forward", 90, 99);
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->batches[0]->step_count, 3);
    assert_int_equal(f->batches[0]->dropped, 0);
    end(f);
}

static void test_gpus_are_processes(void **state)
{
    (void)state;
    fixture *f = begin();
    char text[256];
    for (int i = 0; i < 2 * PP_WIRE_MAX_GPUS; i++) { /* what is refused takes none's place */
        (void)snprintf(text, sizeof text,
                       "{\"gpu_uuid\":\"GPU-x%d\",\"epoch\":-1,\"batch\":0,\"layer\":\"a\","
                       "\"phase\":\"forward\",\"start\":1,\"end\":2}",
                       i);
        assert_int_equal(post(f, text).status, 422);
    }
    for (int i = 0; i < PP_WIRE_MAX_GPUS + 1; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"gpu_uuid\":\"GPU-%d\",\"epoch\":0,\"batch\":0,\"layer\":\"a\","
                       "\"phase\":\"forward\",\"start\":%" PRId64 ",\"end\":%" PRId64 "}",
                       i, NOW - S, NOW);
        pp_events_answer told = post(f, text);
        assert_int_equal(told.status, i < PP_WIRE_MAX_GPUS ? 202 : 422);
        assert_string_equal(told.error.field, i < PP_WIRE_MAX_GPUS ? "" : "gpu_uuid");
    }
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->count, PP_WIRE_MAX_GPUS);
    for (size_t i = 0; i < f->count; i++)
        assert_int_equal(f->batches[i]->process.id, i);
    assert_int_not_equal(f->batches[0]->capture.id, f->batches[1]->capture.id);
    end(f);
}

static void test_batches_are_cut_each_second(void **state)
{
    (void)state;
    fixture *f = begin();
    add(f, 0, 0, "a", "forward", 0, 50);
    add(f, 0, 1, "a", "forward", 50, 90);
    pp_events_poll(f->events, &f->pod, S + S / 2);
    assert_int_equal(f->count, 0);
    pp_events_poll(f->events, &f->pod, 2 * S);
    assert_int_equal(f->count, 1);
    assert_false(f->batches[0]->capture.last);
    assert_int_equal(pp_events_active(f->events), 1);
    pp_events_poll(f->events, &f->pod, (PP_EVENTS_IDLE_S + 1) * S); /* nothing came for a minute */
    assert_int_equal(f->count, 2);
    assert_true(f->batches[1]->capture.last);
    assert_int_equal(f->batches[1]->step_count, 1);
    assert_int_equal(f->batches[1]->capture.start, f->batches[0]->capture.end);
    assert_int_equal(pp_events_active(f->events), 0);
    add(f, 0, 1, "b", "forward", 60, 70); /* of the step that has ended */
    assert_int_equal(pp_events_active(f->events), 0);
    add(f, 0, 2, "b", "forward", 95, 99);
    assert_int_equal(pp_events_active(f->events), 1);
    end(f);
}

static void test_only_what_the_session_wants(void **state)
{
    (void)state;
    fixture *f = begin();
    f->pod.policy = (pp_schedule_policy){.skip = 2, .max = 3};
    for (int i = 0; i < 8; i++)
        add(f, 0, i, "a", "forward", 10 * i, 10 * i + 5);
    assert_int_equal(f->count, 1); /* the sixth step ended the capture */
    assert_true(f->batches[0]->capture.last);
    assert_int_equal(f->batches[0]->step_count, 3);
    assert_int_equal(f->batches[0]->steps[0].batch, 2);
    f->pod.policy = (pp_schedule_policy){0};
    f->pod.allowed = false;
    assert_false(post(f, "[]").sampling);
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->count, 1);
    end(f);
}

static void test_sessions_one_after_another(void **state)
{
    (void)state;
    pp_error err = {0};
    fixture *f = begin();
    f->pod.policy.max = 2;
    for (int i = 0; i < 4; i++)
        add(f, 0, i, "a", "forward", 10 * i, 10 * i + 5);
    assert_int_equal(f->count, 1);
    assert_int_equal(pp_events_session(f->events, "ml", "next", &err), 0);
    for (int i = 4; i < 7; i++)
        add(f, 0, i, "a", "forward", 10 * i, 10 * i + 5);
    pp_events_finish(f->events, &f->pod, S);
    assert_int_equal(f->count, 2);
    assert_int_equal(f->batches[1]->step_count, 2);
    assert_int_equal(f->batches[1]->steps[0].batch,
                     4); /* the open step of the one before is not it */
    assert_int_equal(pp_events_session(f->events, NULL, NULL, &err), 0);
    pp_events_answer told = post(f, "{\"job\":\"next\",\"gpu_uuid\":\"g\",\"epoch\":0,\"batch\":0,"
                                    "\"phase\":\"data\",\"start\":1769000000000000000,"
                                    "\"end\":1769000000000000000}");
    assert_int_equal(told.status, 409);
    end(f);
}

#define TIMES ",\"start\":1768999999000000000,\"end\":1769000000000000000"
#define EVENT "\"gpu_uuid\":\"GPU-a\",\"epoch\":0,\"batch\":0,\"layer\":\"a\",\"phase\":\"forward\""

static const struct {
    int status;
    const char *field, *text;
} refused[] = {
    {400, "", "{"},
    {400, "", "[" EVENT "]"},
    {422, "", "3"},
    {422, "[1]", "[{" EVENT TIMES "},7]"},
    {422, "gpu_uuid", "{}"},
    {422, "[1].gpu_uuid",
     "[{" EVENT TIMES "},{\"epoch\":0,\"batch\":0,\"phase\":\"data\"" TIMES "}]"},
    {422, "gpu_uuid", "{\"gpu_uuid\":\"a b\",\"epoch\":0,\"batch\":0,\"phase\":\"data\"" TIMES "}"},
    {422, "gpu_uuid", "{\"gpu_uuid\":\"\",\"epoch\":0,\"batch\":0,\"phase\":\"data\"" TIMES "}"},
    {422, "epoch", "{\"gpu_uuid\":\"g\",\"epoch\":-1,\"batch\":0,\"phase\":\"data\"" TIMES "}"},
    {422, "epoch",
     "{\"gpu_uuid\":\"g\",\"epoch\":2147483648,\"batch\":0,\"phase\":\"data\"" TIMES "}"},
    {422, "batch", "{\"gpu_uuid\":\"g\",\"epoch\":0,\"batch\":0.5,\"phase\":\"data\"" TIMES "}"},
    {422, "phase", "{\"gpu_uuid\":\"g\",\"epoch\":0,\"batch\":0,\"phase\":\"Forward\"" TIMES "}"},
    {422, "layer", "{\"gpu_uuid\":\"g\",\"epoch\":0,\"batch\":0,\"phase\":\"forward\"" TIMES "}"},
    {422, "layer",
     "{\"gpu_uuid\":\"g\",\"epoch\":0,\"batch\":0,\"phase\":\"data\",\"layer\":\"a\"" TIMES "}"},
    {422, "layer",
     "{\"gpu_uuid\":\"g\",\"epoch\":0,\"batch\":0,\"phase\":\"forward\",\"layer\":"
     "\"a\\n\"" TIMES "}"},
    {422, "start", "{" EVENT ",\"start\":1768990000000000000,\"end\":1769000000000000000}"},
    {422, "end", "{" EVENT ",\"start\":1769000000000000000,\"end\":1768999999999999999}"},
    {422, "end", "{" EVENT ",\"start\":1769000000000000000,\"end\":1769000060000000000}"},
    {422, "end", "{" EVENT ",\"start\":1769000000000000000}"},
    {422, "speed", "{" EVENT TIMES ",\"speed\":1}"},
    {409, "job", "{" EVENT TIMES ",\"job\":\"other\"}"},
    {409, "[0].pod", "[{" EVENT TIMES ",\"pod\":\"dlrm-1\"}]"},
};

static void refuse_too_many(fixture *f)
{
    char dense[4001] = "[";
    for (size_t i = 1; i < 4000; i++)
        dense[i] = "{},"[(i - 1) % 3];
    dense[3999] = ']';
    assert_int_equal(post(f, dense).status, 422);
    assert_string_equal(post(f, dense).error.field, "");
}

static void test_what_is_refused(void **state)
{
    (void)state;
    fixture *f = begin();
    refuse_too_many(f);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pp_events_answer told = post(f, refused[i].text);
        if (told.status != refused[i].status || strcmp(told.error.field, refused[i].field) != 0)
            fail_msg("%s: %d %s: %s", refused[i].text, told.status, told.error.field,
                     told.error.message);
        assert_true(*told.error.message);
    }
    pp_events_finish(f->events, &f->pod, S); /* all or none: nothing came of the good ones */
    assert_int_equal(f->count, 0);
    assert_int_equal(post(f, "{" EVENT TIMES ",\"job\":\"ml/dlrm\",\"pod\":\"dlrm-0\"}").status,
                     202);
    assert_int_equal(post(f, "{" EVENT TIMES ",\"job\":\"dlrm\"}").accepted, 1);
    end(f);
}

/* A step without an end fills the buffer; the next one empties it. */
static void test_a_full_step(void **state)
{
    (void)state;
    enum { N = 5000 };
    fixture *f = begin();
    pp_buf text;
    pp_events_answer told = {.status = 202};
    int64_t taken = 0;
    for (int round = 0; told.status == 202 && round <= PP_EVENTS_OPEN / N; round++) {
        pp_buf_init(&text, 8 << 20);
        for (int i = 0; i < N; i++)
            assert_int_equal(pp_buf_printf(&text, NULL,
                                           "%c{" EVENT ",\"start\":%" PRId64 ",\"end\":%" PRId64
                                           "}",
                                           i ? ',' : '[', NOW - 60 * S + (round * N + i) * 1000,
                                           NOW - 60 * S + (round * N + i) * 1000 + 500),
                             0);
        assert_int_equal(pp_buf_append(&text, "]", 2, NULL), 0);
        told = post(f, text.data);
        taken += told.accepted;
        pp_buf_done(&text);
    }
    assert_int_equal(told.status, 429);
    assert_int_equal(taken, PP_EVENTS_OPEN);
    /* Behind an event of another GPU, too. */
    pp_buf_init(&text, 1024);
    assert_int_equal(pp_buf_printf(&text, NULL,
                                   "[{\"gpu_uuid\":\"GPU-b\",\"epoch\":0,\"batch\":0,"
                                   "\"phase\":\"optimizer\",\"start\":%" PRId64 ",\"end\":%" PRId64
                                   "},{" EVENT ",\"start\":%" PRId64 ",\"end\":%" PRId64 "}]",
                                   NOW - 60 * S, NOW - 60 * S, NOW - 60 * S, NOW - 60 * S),
                     0);
    assert_int_equal(post(f, text.data).status, 429);
    pp_buf_done(&text);
    add(f, 0, 1, "a", "forward", 1000, 1001);
    pp_events_finish(f->events, &f->pod, S);
    int64_t calls = 0;
    for (size_t i = 0; i < f->count; i++) {
        for (size_t k = 0; k < f->batches[i]->grid.count; k++)
            calls += f->batches[i]->grid.cells[k].calls;
        calls += (int64_t)f->batches[i]->interval_count;
    }
    assert_int_equal(calls, PP_EVENTS_OPEN + 1);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_follow_each_other),
        cmocka_unit_test(test_any_order_and_once),
        cmocka_unit_test(test_late_events_are_counted),
        cmocka_unit_test(test_a_training_that_begins_anew),
        cmocka_unit_test(test_gpus_are_processes),
        cmocka_unit_test(test_batches_are_cut_each_second),
        cmocka_unit_test(test_only_what_the_session_wants),
        cmocka_unit_test(test_sessions_one_after_another),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_a_full_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
