/* A process that uses several GPUs: what the hook writes goes in, batches come out. */
#include "sidecar/agent/process.h"
#include "sidecar/hook/hook.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)
#define STEP (SECOND / 10)
#define REAL INT64_C(1769000000000000000)

static char folder[64], path[400];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/pp-process-XXXXXX");
    if (!mkdtemp(folder) || pp_ring_open(folder) || pp_ring_publish())
        return -1;
    DIR *d = opendir(folder);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL)
        if (strstr(e->d_name, PP_RING_SUFFIX))
            (void)snprintf(path, sizeof path, "%s/%.200s", folder, e->d_name);
    if (!d || closedir(d) < 0)
        return -1;
    (void)snprintf(pp_ring()->clock, sizeof pp_ring()->clock, "kernels");
    return pp_ring_add_layer("a", "A", 0) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    pp_ring_close(true);
    (void)unlink(path);
    return rmdir(folder);
}

/* All that was emitted. */
typedef struct emitted {
    int64_t marks; /* of the hook's cost */
    int64_t steps[4], waits[4];
    int64_t counted[4]; /* steps */
    pp_place place;     /* of the last batch */
    pp_wire_left_out left_out;
    bool further[4];
} emitted;

static void gather(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    emitted *e = user;
    const int64_t id = batch->process.id;
    (void)events;
    e->place = *place;
    for (size_t i = 0; i < batch->run_count; i++)
        e->counted[id] += batch->runs[i].steps;
    assert_in_range(id, 0, 3);
    e->steps[id] += (int64_t)batch->step_count;
    e->waits[id] += (int64_t)batch->waits.count;
    e->left_out.lost += batch->left_out.lost;
    e->left_out.steps += batch->left_out.steps;
    e->further[id] = batch->process.further;
    e->marks += batch->cost.marks;
    if (batch->cost.marks || batch->waits.count)
        assert_false(batch->process.further);
}

static void mark(pp_mark_kind kind, int64_t time, uint32_t layer, int64_t value)
{
    const pp_mark one = {.kind = (uint8_t)kind,
                         .time = time,
                         .layer = layer,
                         .value = value,
                         .thread = 1,
                         .flags = kind >= PP_MARK_STEP ? PP_MARK_KERNELS : 0};
    pp_ring_push(&one);
    pp_ring()->marks++;
}

/* The host waits once in each. */
static void push_step(int64_t number, unsigned gpus)
{
    const int64_t at = number * STEP;
    mark(PP_MARK_BEGIN, at + 10, 1, 0);
    for (uint32_t gpu = 0; gpu < 4; gpu++)
        if (gpus >> gpu & 1)
            pp_ring_push_kernel(&(pp_kernel){.launched = at + 20 + gpu,
                                             .start = at + 1000,
                                             .duration = 500,
                                             .flags = gpu << PP_KERNEL_DEVICE_SHIFT |
                                                      1U << PP_KERNEL_THREAD_SHIFT});
    pp_ring_push(&(pp_mark){.kind = PP_MARK_WAIT,
                            .phase = PP_WAIT_ITEM,
                            .epoch = 1,
                            .thread = 1,
                            .time = at + 2100,
                            .value = 100});
    mark(PP_MARK_END, at + 3000, 1, 0);
    mark(PP_MARK_STEP, at + STEP, 0, number);
    pp_ring()->steps++;
}

static void push_complete(int64_t until)
{
    pp_ring_push_kernel(&(pp_kernel){.launched = until * STEP + 1,
                                     .start = (int64_t)pp_ring_kernels_lost(),
                                     .flags = PP_KERNEL_COMPLETE});
}

/* Ten steps, with kernels on these GPUs. */
static void push_capture_alone(int64_t first, unsigned gpus)
{
    mark(PP_MARK_START, first * STEP, 0, first - 1);
    for (int64_t step = first; step < first + 10; step++)
        push_step(step, gpus);
    mark(PP_MARK_STOP, (first + 10) * STEP, 0, first + 9);
}

/* And no more will come. */
static void push_capture(int64_t first, unsigned gpus)
{
    push_capture_alone(first, gpus);
    push_complete(first + 10);
}

static void poll_at(pp_process *p, pp_agent_pod *pod, int64_t now)
{
    pp_error err = {0};
    if (pp_process_poll(p, pod, now, REAL, &err) < 0)
        fail_msg("%s", err.message);
}

static pp_process *opened(void)
{
    pp_error err = {0};
    pp_process *p = NULL;
    assert_int_equal(pp_process_open(path, &p, &err), 0);
    return p;
}

/* What the hook costs and where the host waits is told with the first GPU, also of captures in
 * which that one runs nothing. */
static void test_what_is_the_process_is_told_without_its_first_gpu(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_process *p = opened();
    push_capture(10, 1);
    poll_at(p, &pod, 30 * STEP);
    assert_true(all.steps[0] > 0 && all.steps[1] == 0 && all.waits[0] > 0);
    all.waits[0] = 0;
    push_capture(40, 2);
    poll_at(p, &pod, 60 * STEP);
    assert_true(all.steps[1] > 0 && all.further[1]);
    assert_int_equal(all.marks, pp_ring()->marks);
    assert_true(all.waits[0] > 0);
    pp_process_free(p);
}

/* Of each GPU, by an agent after the one that gave it, whichever it sees first. */
static void test_numbers_outlive_the_agent(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_process *p = opened();
    push_capture(10, 1);
    push_capture(30, 4);
    poll_at(p, &pod, 50 * STEP);
    assert_true(all.steps[0] > 0 && all.steps[1] > 0 && all.further[1]);
    pp_process_free(p);

    emitted later = {0};
    pp_agent_pod next = {.allowed = true, .emit = gather, .user = &later};
    p = opened();
    pp_process_keep_number(p, &next);
    assert_int_equal(next.processes, 2);
    poll_at(p, &next, 60 * STEP);
    push_capture(70, 4);
    push_capture(90, 8);
    push_capture(110, 1);
    poll_at(p, &next, 130 * STEP);
    assert_true(later.steps[1] > 0 && later.further[1]);
    assert_true(later.steps[2] > 0 && later.further[2]);
    assert_true(later.steps[0] > 0 && !later.further[0]);
    pp_process_free(p);
}

/* Once: with the next batch of the process or, where there is none, with one of its own; an agent
 * after it does not tell them again. */
static void test_lost_kernels_are_told(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_process *p = opened();
    push_capture(10, 1);
    poll_at(p, &pod, 30 * STEP);
    assert_true(all.steps[0] > 0 && all.left_out.lost == 0 && all.left_out.steps == 0);
    mark(PP_MARK_START, 40 * STEP, 0, 39);
    for (int64_t step = 40; step < 45; step++)
        push_step(step, 1);
    pp_ring_lose_kernels(7);
    poll_at(p, &pod, 46 * STEP);
    assert_int_equal(all.left_out.lost, 0);
    pp_process_finish(p, &pod);
    assert_true(all.left_out.lost == 7 && all.left_out.steps == 5);
    pp_process_free(p);

    p = opened();
    all = (emitted){0};
    mark(PP_MARK_STOP, 50 * STEP, 0, 45);
    poll_at(p, &pod, 60 * STEP);
    push_capture(70, 1);
    poll_at(p, &pod, 90 * STEP);
    assert_true(all.steps[0] > 0 && all.left_out.lost == 0 && all.left_out.steps == 0);
    pp_ring_lose_kernels(2);
    push_capture(100, 1);
    poll_at(p, &pod, 120 * STEP);
    push_capture(130, 1);
    poll_at(p, &pod, 150 * STEP);
    assert_true(all.left_out.lost == 2 && all.left_out.steps == 10);
    pp_process_free(p);
}

/* Its log goes into `ret`. */
static void finish_with_log(pp_process *p, pp_agent_pod *pod, char *ret, size_t size)
{
    FILE *log = tmpfile();
    const int before = dup(STDERR_FILENO);
    assert_non_null(log);
    assert_true(before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    pp_process_finish(p, pod);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(log);
    ret[fread(ret, 1, size - 1, log)] = '\0';
    (void)fclose(log);
}

static void test_the_log_tells_of_steps_that_the_end_leaves_out(void **state)
{
    (void)state;
    char log[4096];
    for (int whole = 0; whole < 2; whole++) {
        const int64_t at = 100 * whole;
        emitted all = {0};
        pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
        pp_process *p = opened();
        poll_at(p, &pod, (at + 1) * STEP);
        push_capture(at + 10, 1);
        push_capture_alone(at + 30, 1);
        if (whole)
            push_complete(at + 40);
        poll_at(p, &pod, (at + 41) * STEP);
        finish_with_log(p, &pod, log, sizeof log);
        assert_int_equal(strstr(log, "marked steps are left out: the training") == NULL, whole);
        assert_int_equal(all.left_out.steps > 0, !whole);
        pp_process_free(p);
    }
}

static void test_a_refusal_is_taken_back(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_process *p = opened();
    pp_ring_refuse("its kernels are not recorded");
    poll_at(p, &pod, STEP);
    assert_string_equal(pp_process_refusal(p), "its kernels are not recorded");
    pp_ring_refuse("another reason");
    poll_at(p, &pod, 2 * STEP);
    assert_string_equal(pp_process_refusal(p), "another reason");
    pp_ring_refuse("");
    poll_at(p, &pod, 3 * STEP);
    assert_string_equal(pp_process_refusal(p), "another reason"); /* it only tries */
    push_capture(10, 1);
    poll_at(p, &pod, 30 * STEP);
    assert_string_equal(pp_process_refusal(p), "");
    pp_process_free(p);
}

static void push_counted(int64_t steps, int64_t until)
{
    mark(PP_MARK_COUNTED, until * STEP, (uint32_t)steps, steps * STEP);
}

/* They are told with the next capture, or at the end, by whichever agent is there; once, also where
 * an agent is killed before their marks have left the ring. */
static void test_counted_steps_outlive_the_agent(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_error err = {0};
    pp_process *p = opened();
    push_capture(10, 1);
    poll_at(p, &pod, 30 * STEP);
    push_counted(7, 40);
    push_counted(5, 45);
    poll_at(p, &pod, 46 * STEP);
    assert_true(all.steps[0] > 0 && all.counted[0] == 0);
    pp_process_free(p);

    p = opened();
    poll_at(p, &pod, 47 * STEP);
    push_counted(3, 50);
    push_capture(60, 1);
    poll_at(p, &pod, 80 * STEP);
    assert_int_equal(all.counted[0], 15);
    push_counted(2, 85);
    poll_at(p, &pod, 86 * STEP);
    const pp_ring_header before = *pp_ring();
    pp_process_finish(p, &pod);
    assert_int_equal(all.counted[0], 17);
    all.place.ring = strrchr(path, '/') + 1; /* the process's was borrowed */
    pp_process_free(p);

    pp_ring()->tail = before.tail; /* as it was when the batch was written */
    pp_ring()->tail_check = before.tail_check;
    assert_int_equal(pp_reader_resume(folder, &all.place, &err), 0);
    p = opened();
    poll_at(p, &pod, 90 * STEP);
    pp_process_finish(p, &pod);
    assert_int_equal(all.counted[0], 17);
    pp_process_free(p);
}

/* Those that come while the capture before them still waits for its kernels, and many at once. */
static void test_counted_steps_are_told_whenever_they_come(void **state)
{
    (void)state;
    enum { AT_ONCE = PP_WIRE_MAX_RUNS / 2 - 1 }; /* with the one before */
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_error err = {0};
    pp_process *p = opened();
    push_capture_alone(10, 1);
    push_counted(4, 24);
    poll_at(p, &pod, 25 * STEP);
    push_complete(20);
    poll_at(p, &pod, 26 * STEP);
    assert_true(all.steps[0] > 0);
    const pp_ring_header before = *pp_ring();
    for (int i = 0; i < AT_ONCE; i++)
        push_counted(1, 30 + i);
    poll_at(p, &pod, (31 + AT_ONCE) * STEP);
    assert_int_equal(all.counted[0], 4 + AT_ONCE);
    all.place.ring = strrchr(path, '/') + 1; /* the process's was borrowed */
    pp_process_free(p);

    pp_ring()->tail = before.tail; /* as it was when the batch was written */
    pp_ring()->tail_check = before.tail_check;
    assert_int_equal(pp_reader_resume(folder, &all.place, &err), 0);
    p = opened();
    poll_at(p, &pod, (31 + AT_ONCE) * STEP);
    pp_process_finish(p, &pod);
    assert_int_equal(all.counted[0], 4 + AT_ONCE);
    pp_process_free(p);
}

/* Of a GPU that is in no later capture too, be it the first or another: none of them keeps marks in
 * the ring, which an agent after this one would tell again. */
static void test_counted_steps_of_all_gpus_are_told_together(void **state)
{
    (void)state;
    int64_t at = 0, counted = 0;
    for (unsigned goes_on = 1; goes_on <= 2; goes_on++) {
        emitted all = {0};
        pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
        pp_process *p = opened();
        poll_at(p, &pod, at * STEP + 1);
        counted = 0;
        push_capture(at + 10, 1);
        push_capture(at + 30, 2);
        poll_at(p, &pod, (at + 50) * STEP);
        assert_true(all.steps[0] > 0 && all.steps[1] > 0);
        for (int i = 0; i < 3; i++, at += 50, counted += 7) {
            push_counted(7, at + 60);
            push_capture(at + 70, goes_on);
            poll_at(p, &pod, (at + 90) * STEP);
            assert_int_equal(pp_ring()->tail, pp_ring()->head);
        }
        at += 100;
        assert_true(all.counted[0] == counted && all.counted[1] == counted);
        pp_process_free(p);
        p = opened();
        poll_at(p, &pod, at * STEP);
        pp_process_finish(p, &pod);
        assert_true(all.counted[0] == counted && all.counted[1] == counted);
        pp_process_free(p);
    }
}

/* However long they wait, the marks of a capture that is still to be told stay. */
static void test_counted_steps_push_no_capture_out(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    pp_process *p = opened();
    push_capture(10, 1);
    poll_at(p, &pod, 30 * STEP);
    push_counted(7, 40);
    for (int i = 0; i < PP_RING_MARKS / 2 + 100; i++)
        mark(PP_MARK_COUNTED, 40 * STEP, 0, 0); /* it says nothing */
    poll_at(p, &pod, 41 * STEP);
    const uint64_t before = pp_ring()->head;
    mark(PP_MARK_START, 50 * STEP, 0, 49);
    for (int64_t step = 50; step < 55; step++)
        push_step(step, 1);
    poll_at(p, &pod, 56 * STEP);
    assert_true(pp_ring()->tail <= before && all.counted[0] == 0);
    for (int64_t step = 55; step < 60; step++)
        push_step(step, 1);
    mark(PP_MARK_STOP, 60 * STEP, 0, 59);
    push_complete(60);
    poll_at(p, &pod, 70 * STEP);
    assert_int_equal(all.counted[0], 7);
    pp_process_free(p);
}

/* Those behind the last capture, at the session's end: not while it waits for its kernels, since
 * the marks of both would be an agent's after this one. */
static void test_counted_steps_at_the_end_of_a_session(void **state)
{
    (void)state;
    emitted all = {0};
    pp_agent_pod pod = {
        .policy = {.duration = 63 * STEP}, .allowed = true, .emit = gather, .user = &all};
    pp_process *p = opened();
    push_capture(10, 1);
    poll_at(p, &pod, 30 * STEP);
    push_capture_alone(40, 1);
    push_counted(4, 58);
    poll_at(p, &pod, 60 * STEP);
    const int64_t steps = all.steps[0];
    assert_true(steps > 0 && all.counted[0] == 0);
    pp_process_free(p);

    p = opened();
    poll_at(p, &pod, 61 * STEP);
    push_capture(61, 1);
    push_counted(1, 72);
    poll_at(p, &pod, 73 * STEP);
    assert_int_equal(all.counted[0], 5);
    assert_int_equal(pp_ring()->tail, pp_ring()->head);
    pp_process_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_the_process_is_told_without_its_first_gpu,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_outlive_the_agent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_kernels_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_counted_steps_outlive_the_agent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_counted_steps_are_told_whenever_they_come, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_counted_steps_of_all_gpus_are_told_together, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_counted_steps_push_no_capture_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_counted_steps_at_the_end_of_a_session, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_log_tells_of_steps_that_the_end_leaves_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_refusal_is_taken_back, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
