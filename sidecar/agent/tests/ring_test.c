/* Both sides of the ring in one process: the hook's writer and the agent's reader. */
#include "common/volume.h"
#include "sidecar/agent/process.h"
#include "sidecar/agent/reader.h"
#include "sidecar/agent/trainers.h"
#include "sidecar/hook/hook.h"
#include "sidecar/samples.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/pp-ring-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* The one ring in the folder. */
static void path_of(char *out, size_t size)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    out[0] = '\0';
    while ((e = readdir(d)))
        if (strstr(e->d_name, PP_RING_SUFFIX))
            (void)snprintf(out, size, "%s/%.200s", folder, e->d_name);
    (void)closedir(d);
    assert_true(out[0]);
}

static int tear_down(void **state)
{
    (void)state;
    char path[300];
    path_of(path, sizeof path);
    pp_ring_close(true);
    assert_int_equal(unlink(path), 0);
    return rmdir(folder); /* fails where a half-made file was left */
}

static pp_reader *open_both(void)
{
    char path[300];
    pp_reader *r = NULL;
    pp_error err = {0};
    assert_null(pp_ring_open(folder));
    assert_null(pp_ring_publish());
    path_of(path, sizeof path);
    if (pp_reader_open(path, &r, &err) < 0)
        fail_msg("%s", err.message);
    return r;
}

/* Takes and releases at once. */
static long take(pp_reader *r, pp_mark *marks, size_t max)
{
    pp_error err = {0};
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    long n = pp_reader_take(r, marks, max, &err);
    assert_int_equal(pp_reader_release(r, pp_reader_taken(r), pp_reader_told(r), &err), 0);
    return n;
}

static void push(int64_t value)
{
    pp_mark mark = {.kind = PP_MARK_BEGIN, .value = value};
    pp_ring_push(&mark);
}

static void test_marks_go_round(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    pp_mark marks[1000];
    int64_t next = 0, seen = 0;
    while (next < 3 * PP_RING_MARKS) {
        for (int i = 0; i < 777; i++)
            push(next++);
        long n = take(r, marks, 1000);
        assert_int_equal(n, 777);
        for (long i = 0; i < n; i++)
            assert_int_equal(marks[i].value, seen++);
    }
    assert_int_equal(pp_reader_header(r)->lost, 0);
    pp_reader_free(r);
}

/* Bytes that all in the folder takes, as the kubelet counts them. */
static size_t held(void)
{
    size_t sum = 0;
    DIR *d = opendir(folder);
    const struct dirent *e;
    struct stat st;
    while ((e = readdir(d))) {
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        sum += S_ISREG(st.st_mode) ? 512 * (size_t)st.st_blocks : 0;
    }
    (void)closedir(d);
    return sum;
}

/* A process that is told something takes its memory at once, and no more later: as many as the
 * agent reads, each with a sampler, fit into the pod's volume (sampler_test.c counts the other). */
static void test_the_volume_has_room_for_all(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    assert_in_range(held(), sizeof(pp_ring_header), 64 << 10);
    push(1);
    const size_t whole = held();
    assert_in_range(whole, PP_RING_SIZE, PP_RING_SIZE + (64 << 10));
    for (int i = 0; i < 2 * PP_RING_MARKS; i++)
        push(i);
    while (pp_ring_add_layer("a.layer", "Linear", 1) > 0)
        ;
    while (pp_ring_add_name("kernel", 6))
        ;
    assert_int_equal(held(), whole);
    assert_true(PP_TRAINERS_MAX * (whole + PP_SAMPLES_SIZE + (64 << 10)) < (size_t)PP_VOLUME_RING
                                                                               << 20);
    pp_reader_free(r);
}

static void test_a_full_ring_drops_counts_and_tells(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    static pp_mark marks[PP_RING_MARKS];
    for (int64_t i = 0; i < PP_RING_MARKS + 500; i++)
        push(i);
    long n = take(r, marks, PP_RING_MARKS);
    uint64_t lost = pp_reader_header(r)->lost;
    assert_true(lost >= 500 && lost < 510);
    assert_int_equal(n + (long)lost, PP_RING_MARKS + 500);
    push(-7);
    assert_int_equal(take(r, marks, 10), 2);
    assert_int_equal(marks[0].kind, PP_MARK_LOST);
    assert_int_equal(marks[0].value, lost);
    assert_int_equal(marks[1].value, -7);
    assert_int_equal(pp_reader_header(r)->marks, PP_RING_MARKS + 501);
    pp_reader_free(r);
}

enum { MANY = 20 * PP_RING_MARKS };

static void *push_many(void *unused)
{
    for (int64_t i = 0; i < MANY; i++)
        push(i);
    push(MANY); /* at the latest this one tells of losses */
    return unused;
}

/* The trainer's thread writes while the agent reads: nothing is torn, doubled or out of order, and
 * what is missing is told before what comes after it. */
static void test_a_writer_and_a_reader_at_once(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    static pp_mark marks[4096];
    pthread_t thread;
    int64_t next = 0;
    bool over = false;
    assert_int_equal(pthread_create(&thread, NULL, push_many, NULL), 0);
    while (next <= MANY) {
        long n = take(r, marks, 4096);
        for (long i = 0; i < n; i++) {
            if (marks[i].kind == PP_MARK_LOST)
                next += marks[i].value;
            else
                assert_int_equal(marks[i].value, next++);
        }
        if (n == 0 && over)
            break; /* the last mark found no room */
        if (n == 0)
            over = pthread_tryjoin_np(thread, NULL) == 0;
    }
    if (!over)
        assert_int_equal(pthread_join(thread, NULL), 0);
    const pp_ring_header *h = pp_reader_header(r);
    assert_int_equal(h->marks, MANY + 1);
    assert_true(next == MANY + 1 || next + (int64_t)h->lost >= MANY + 1);
    pp_reader_free(r);
}

static void test_layers_and_long_names(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    pp_error err = {0};
    pp_ring_layer layer;
    char name[400];
    memset(name, 'x', sizeof name);
    memcpy(name + 380, "\xc3\xa9.the_end", 11);
    assert_int_equal(pp_ring_add_layer("a.b", "Linear", 12), 1);
    assert_int_equal(pp_ring_add_layer(name, name, -1), 2);
    assert_int_equal(pp_reader_layer(r, 1, &layer, &err), -1); /* not refreshed: not known */
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    assert_int_equal(pp_reader_layer(r, 1, &layer, &err), 0);
    assert_string_equal(layer.name, "a.b");
    assert_string_equal(layer.type, "Linear");
    assert_int_equal(layer.parameters, 12);
    assert_int_equal(pp_reader_layer(r, 2, &layer, &err), 0);
    assert_string_equal(layer.name + strlen(layer.name) - 10, "\xc3\xa9.the_end");
    assert_memory_equal(layer.name, "...xxx", 6);
    assert_int_equal(layer.whole_reason, PP_WHOLE_NOT);
    pp_ring_tell_whole(2, PP_WHOLE_FUNCTION);
    pp_ring_tell_whole(2, PP_WHOLE_COUNT);
    pp_ring_tell_whole(3, PP_WHOLE_FUNCTION);
    assert_int_equal(pp_reader_layer(r, 2, &layer, &err), 0);
    assert_int_equal(layer.whole_reason, PP_WHOLE_FUNCTION);
    pp_ring_tell_whole(2, PP_WHOLE_NOT); /* a later capture may tell more */
    assert_int_equal(pp_reader_layer(r, 2, &layer, &err), 0);
    assert_int_equal(layer.whole_reason, PP_WHOLE_NOT);
    assert_int_equal(pp_reader_layer(r, 0, &layer, &err), -1);
    assert_int_equal(pp_reader_layer(r, 3, &layer, &err), -1);
    for (int i = 2; i < PP_RING_LAYERS; i++)
        assert_true(pp_ring_add_layer("n", "t", 0) > 0);
    assert_int_equal(pp_ring_add_layer("n", "t", 0), 0);
    pp_reader_free(r);
}

static void *wait_for_mode(void *seen)
{
    while (pp_ring_mode_now() == PP_RING_IDLE)
        pp_ring_wait(PP_RING_IDLE, INT64_C(60000000000));
    *(uint32_t *)seen = pp_ring_mode_now();
    return NULL;
}

static void test_the_mode_wakes_the_hook(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    pp_error err = {0};
    uint32_t seen = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_mode, &seen), 0);
    assert_int_equal(pp_reader_set_mode(r, PP_RING_SAMPLE, &err), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen, PP_RING_SAMPLE);
    pp_reader_free(r);
}

static void test_the_lock_tells_who_lives(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    assert_false(pp_reader_gone(r));
    pid_t child = fork();
    if (child == 0) {
        pp_ring_close(true); /* what a forked worker does; the trainer still lives */
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(pp_reader_gone(r));
    pp_reader_free(r);
    child = fork();
    if (child == 0) { /* a trainer that ends without a word */
        pp_ring_close(true);
        _exit(pp_ring_open(folder) || pp_ring_publish() ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    DIR *d = opendir(folder);
    const struct dirent *e;
    int gone = 0;
    while ((e = readdir(d))) {
        pp_error err = {0};
        char path[400];
        (void)snprintf(path, sizeof path, "%s/%.200s", folder, e->d_name);
        if (!strstr(path, PP_RING_SUFFIX) || pp_reader_open(path, &r, &err) < 0)
            continue;
        if (pp_reader_gone(r)) {
            gone++;
            assert_int_equal(unlink(path), 0);
        }
        pp_reader_free(r);
    }
    (void)closedir(d);
    assert_int_equal(gone, 1);
}

/* What a hostile process can write. */
static void test_damage_is_noticed(void **state)
{
    (void)state;
    char path[300];
    pp_error err = {0};
    pp_mark marks[16];
    pp_reader *r = open_both();
    pp_reader *other = NULL;
    path_of(path, sizeof path);
    pp_ring_header *h = pp_ring();
    h->head = UINT64_MAX;
    assert_int_equal(pp_reader_refresh(r, &err), -1);
    h->head = PP_RING_MARKS + 1;
    assert_int_equal(pp_reader_refresh(r, &err), -1);
    h->head = 4;
    h->layer_count = UINT32_MAX;
    memset(h->model, 'x', sizeof h->model); /* no NUL anywhere */
    memset(h->gpus, 'x', sizeof h->gpus);
    memset(h->model_digest, 'x', sizeof h->model_digest);
    memset(h->batch, 'x', sizeof h->batch);
    memset(h->gpu_models, 'x', sizeof h->gpu_models);
    assert_int_equal(take(r, marks, 16), 4);
    assert_int_equal(pp_reader_header(r)->layer_count, PP_RING_LAYERS);
    assert_int_equal(strlen(pp_reader_header(r)->model), sizeof h->model - 1);
    assert_int_equal(strlen(pp_reader_header(r)->model_digest), sizeof h->model_digest - 1);
    assert_int_equal(strlen(pp_reader_header(r)->batch), sizeof h->batch - 1);
    for (int i = 0; i < PP_RING_MODELS; i++)
        assert_int_equal(strlen(pp_reader_header(r)->gpu_models[i]), PP_RING_TYPE - 1);
    h->head = 3;
    assert_int_equal(pp_reader_refresh(r, &err), -1);
    h->head = 4;
    h->version = 99;
    assert_int_equal(pp_reader_refresh(r, &err), -1);
    assert_int_equal(pp_reader_open(path, &other, &err), -1);
    h->version = PP_RING_VERSION;
    assert_int_equal(truncate(path, 64), 0);
    assert_int_equal(pp_reader_refresh(r, &err), -1);
    assert_int_equal(pp_reader_set_mode(r, PP_RING_SAMPLE, &err), 0); /* and no signal */
    pp_reader_free(r);
}

/* The reader's side of the file may be damaged too: the trainer must not mind. */
static void test_a_wrong_tail_is_not_believed(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    pp_ring_header *h = pp_ring();
    h->tail = UINT64_MAX / 2;
    h->tail_check = ~h->tail; /* beyond the head */
    for (int64_t i = 0; i < PP_RING_MARKS + 10; i++)
        push(i);
    assert_int_equal(h->head, PP_RING_MARKS - 1);
    h->tail = 1000;
    h->tail_check = 7; /* torn */
    push(1);
    assert_int_equal(h->head, PP_RING_MARKS - 1);
    h->tail_check = ~h->tail;
    push(2);
    assert_int_equal(h->head, PP_RING_MARKS + 1); /* with the word of what was lost */
    pp_reader_free(r);
}

static void test_a_second_agent_goes_on(void **state)
{
    (void)state;
    char path[300];
    pp_error err = {0};
    pp_mark marks[8];
    pp_reader *r = open_both();
    for (int64_t i = 0; i < 6; i++)
        push(i);
    assert_int_equal(take(r, marks, 4), 4);
    pp_reader_free(r);
    path_of(path, sizeof path);
    assert_int_equal(pp_reader_open(path, &r, &err), 0);
    assert_int_equal(take(r, marks, 8), 2);
    assert_int_equal(marks[0].value, 4);
    pp_reader_free(r);
}

/* What was taken and not released is there for the next agent, and so is what was told. */
static void test_marks_stay_until_they_are_released(void **state)
{
    (void)state;
    char path[300];
    pp_error err = {0};
    static pp_mark marks[PP_RING_MARKS];
    pp_reader *r = open_both();
    pp_ring_told told = {.lost = 3, .marks = 9, .cost = 70, .process = 2};
    for (int64_t i = 0; i < PP_RING_MARKS - 1; i++) /* one is kept for the word of losses */
        push(i);
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    assert_int_equal(pp_reader_take(r, marks, PP_RING_MARKS, &err), PP_RING_MARKS - 1);
    push(-1);
    assert_int_equal(pp_ring()->lost, 1); /* still full */
    assert_int_equal(pp_reader_release(r, 5, &told, &err), 0);
    assert_int_equal(pp_reader_release(r, 3, &(pp_ring_told){0}, &err), 0); /* not backwards */
    told.cost = 71; /* by a batch without marks */
    assert_int_equal(pp_reader_release(r, 5, &told, &err), 0);
    assert_int_equal(pp_reader_release(r, UINT64_MAX, &told, &err), 0); /* nor ahead */
    push(-2);
    assert_int_equal(pp_ring()->lost, 1);
    pp_reader_free(r);
    path_of(path, sizeof path);
    assert_int_equal(pp_reader_open(path, &r, &err), 0);
    assert_memory_equal(pp_reader_told(r), &told, sizeof told);
    assert_int_equal(take(r, marks, 8), 8);
    assert_int_equal(marks[0].value, 5);
    pp_reader_free(r);
}

/* What a spool file says of a ring is believed within the ring's bounds. */
static void test_a_place_is_resumed_at(void **state)
{
    (void)state;
    char path[300];
    pp_error err = {0};
    pp_reader *r = open_both();
    pp_mark marks[8];
    path_of(path, sizeof path);
    pp_place place = {.ring = strrchr(path, '/') + 1, .tail = 4, .told = {.cost = 7}};
    for (int64_t i = 0; i < 6; i++)
        push(i);
    pp_reader_free(r);
    assert_int_equal(pp_reader_resume(folder, &place, &err), 0);
    place.told.cost = 9; /* by a batch without marks */
    assert_int_equal(pp_reader_resume(folder, &place, &err), 0);
    place.told.cost = 8;
    assert_int_equal(pp_reader_resume(folder, &place, &err), 0);
    place.told.cost = 10;
    place.tail = 2; /* its marks have left the ring already */
    assert_int_equal(pp_reader_resume(folder, &place, &err), 0);
    place.told.cost = 11;
    place.tail = 7;
    assert_int_equal(pp_reader_resume(folder, &place, &err), 0);
    place.ring = "gone.ring";
    assert_int_equal(pp_reader_resume(folder, &place, &err), -1);
    place.ring = "../../etc/passwd";
    assert_int_equal(pp_reader_resume(folder, &place, &err), -1);
    assert_int_equal(pp_reader_open(path, &r, &err), 0);
    assert_int_equal(pp_reader_told(r)->cost, 10);
    assert_int_equal(take(r, marks, 8), 2);
    assert_int_equal(marks[0].value, 4);
    pp_reader_free(r);
}

/* All that agents, one after the other, have emitted. */
typedef struct emitted {
    pp_place place; /* of the last batch */
    int64_t steps;  /* the number of the last step; they must come without a gap */
    int64_t end;    /* of the last batch, where the next must begin */
    int64_t intervals;
    int64_t cost;
    int64_t marks;
    int64_t processes;
    int batches;
} emitted;

static void gather(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    emitted *e = user;
    e->place = *place;
    assert_int_equal(batch->capture.start, e->end ? e->end : batch->capture.start);
    for (size_t i = 0; i < batch->step_count; i++)
        assert_int_equal(batch->steps[i].number, ++e->steps);
    e->end = batch->capture.end;
    e->intervals += events;
    e->cost += batch->cost.nanoseconds;
    e->marks += batch->cost.marks;
    e->processes += batch->process.id;
    e->batches++;
}

static void push_step(int64_t number)
{
    for (uint32_t layer = 1; layer <= 3; layer++)
        for (int kind = PP_MARK_BEGIN; kind <= PP_MARK_END; kind++)
            pp_ring_push(
                &(pp_mark){.kind = (uint8_t)kind, .layer = layer, .time = number * 1000 + layer});
    pp_ring_push(&(pp_mark){.kind = PP_MARK_STEP, .value = number, .time = number * 1000 + 9});
    pp_ring()->cost += 5;
}

/*
 * Agents that are killed between any two looks, at times after a batch is in the spool and before
 * its marks have left the ring: every step is in one batch, and the time has neither gap nor
 * overlap.
 */
static void test_killed_agents_lose_and_double_nothing(void **state)
{
    (void)state;
    enum { STEPS = 20000, SECOND = 1000000000 };
    char path[300];
    pp_error err = {0};
    pp_process *p = NULL;
    emitted all = {.steps = 1};
    int64_t now = SECOND;
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    assert_null(pp_ring_open(folder));
    assert_null(pp_ring_publish());
    path_of(path, sizeof path);
    assert_true(pp_ring_add_layer("a", "A", 0) && pp_ring_add_layer("b", "B", 0) &&
                pp_ring_add_layer("c", "C", 0));
    pp_ring_push(&(pp_mark){.kind = PP_MARK_START, .value = 1, .time = 1009});
    srand(7);
    for (int64_t step = 2; step <= STEPS; step++) {
        push_step(step);
        if (rand() % 20)
            continue;
        if (rand() % 2) /* killed within a step */
            pp_ring_push(&(pp_mark){.kind = PP_MARK_BEGIN, .layer = 1, .time = step * 1000 + 500});
        if (!p)
            assert_int_equal(pp_process_open(path, &p, &err), 0);
        uint64_t tail = pp_ring()->tail;
        int before = all.batches;
        now += rand() % SECOND;
        assert_int_equal(pp_process_poll(p, &pod, now, 0, &err), 0);
        if (rand() % 3)
            continue;
        pp_process_free(p);
        p = NULL;
        if (all.batches > before && rand() % 2) {
            pp_ring()->tail = tail; /* as it was when the batch was written */
            pp_ring()->tail_check = ~tail;
            pp_ring()->told = (pp_ring_told){0};
            all.place.ring = strrchr(path, '/') + 1; /* the process's was borrowed */
            assert_int_equal(pp_reader_resume(folder, &all.place, &err), 0);
        }
    }
    if (!p)
        assert_int_equal(pp_process_open(path, &p, &err), 0);
    assert_int_equal(pp_process_poll(p, &pod, now, 0, &err), 0);
    pp_process_finish(p, &pod);
    pp_process_free(p);
    assert_int_equal(all.steps, STEPS);
    assert_int_equal(all.intervals, 3 * (STEPS - 1));
    assert_int_equal(all.cost, pp_ring()->cost);
    assert_int_equal(all.marks, pp_ring()->marks);
    assert_int_equal(all.processes, 0);
    assert_true(all.batches > 100);
    assert_int_equal(pp_ring()->tail, pp_ring()->head);
}

/* Agents that live for less than it takes to fill a batch get on all the same: each hands on what
 * it has found. What has just been marked waits for more. */
static void test_what_was_left_is_handed_on_at_once(void **state)
{
    (void)state;
    enum { SECOND = 1000000000 };
    char path[300];
    pp_error err = {0};
    emitted all = {.steps = 1};
    pp_agent_pod pod = {.allowed = true, .emit = gather, .user = &all};
    assert_null(pp_ring_open(folder));
    assert_null(pp_ring_publish());
    path_of(path, sizeof path);
    assert_true(pp_ring_add_layer("a", "A", 0) && pp_ring_add_layer("b", "B", 0) &&
                pp_ring_add_layer("c", "C", 0));
    pp_ring_push(&(pp_mark){.kind = PP_MARK_START, .value = 1, .time = 1009});
    const struct {
        int64_t now;
        int batches;
    } agents[] = {{10000, 0}, {SECOND / 2, 0}, {2 * INT64_C(1000000000), 1}, {SECOND + 20000, 1}};
    for (size_t i = 0; i < sizeof agents / sizeof *agents; i++) {
        pp_process *p = NULL;
        push_step(2 + (int64_t)i);
        assert_int_equal(pp_process_open(path, &p, &err), 0);
        int before = all.batches;
        assert_int_equal(pp_process_poll(p, &pod, agents[i].now, 0, &err), 0);
        assert_int_equal(all.batches - before, agents[i].batches);
        pp_process_free(p);
    }
    assert_int_equal(all.steps, 5);
}

static void start_capture(uint32_t installed, int64_t step)
{
    pp_ring()->state = installed;
    pp_ring_push(&(pp_mark){.kind = PP_MARK_START, .value = step, .time = step * 1000 + 9});
    push_step(step + 1);
    push_step(step + 2);
}

static void look(pp_process *p, pp_agent_pod *pod, int64_t now)
{
    pp_error err = {0};
    assert_int_equal(pp_process_poll(p, pod, now, 0, &err), 0);
    pp_process_finish(p, pod);
}

/* Its layers are those of the session before: it is not heard until the hook has been idle. */
static void test_a_capture_of_the_session_before_is_not_taken(void **state)
{
    (void)state;
    enum { SECOND = 1000000000 };
    char path[300];
    pp_error err = {0};
    pp_process *p = NULL;
    emitted first = {.steps = 1}, second = {.steps = 21};
    pp_agent_pod pod = {.policy = {.capture = INT64_MAX, .longest = INT64_MAX, .budget = 1},
                        .allowed = true,
                        .session = 5,
                        .emit = gather,
                        .user = &first};
    assert_null(pp_ring_open(folder));
    pp_ring()->session = 5; /* by the control file */
    assert_null(pp_ring_publish());
    path_of(path, sizeof path);
    for (int i = 0; i < 3; i++)
        assert_true(pp_ring_add_layer("a", "A", 0) > 0);
    start_capture(PP_RING_SAMPLE, 1);
    assert_int_equal(pp_process_open(path, &p, &err), 0);
    look(p, &pod, SECOND);
    assert_int_equal(first.steps, 3);
    assert_int_equal(pp_ring()->mode, PP_RING_SAMPLE);

    pod.session = 6;
    pod.user = &second;
    push_step(4); /* the hook knows nothing of it yet, and begins once more */
    start_capture(PP_RING_SAMPLE, 11);
    look(p, &pod, 2 * (int64_t)SECOND);
    assert_int_equal(pp_ring()->session, 6);
    assert_int_equal(pp_ring()->mode, PP_RING_IDLE);
    pp_ring_push(&(pp_mark){.kind = PP_MARK_STOP, .time = 14000});
    pp_ring()->state = PP_RING_COUNT; /* it looks for layers */
    look(p, &pod, 3 * (int64_t)SECOND);
    assert_int_equal(pp_ring()->mode, PP_RING_IDLE);
    assert_int_equal(second.batches, 0);

    pp_ring()->state = PP_RING_IDLE;
    look(p, &pod, 4 * (int64_t)SECOND);
    assert_int_equal(pp_ring()->mode, PP_RING_SAMPLE);
    start_capture(PP_RING_SAMPLE, 21);
    look(p, &pod, 5 * (int64_t)SECOND);
    assert_int_equal(second.steps, 23);
    assert_int_equal(second.cost, 10); /* of its own steps */
    pp_process_free(p);
}

static void note_gpus(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    (void)events;
    (void)place;
    const pp_strings *gpus = &batch->process.gpus;
    for (size_t i = 0; i < gpus->count; i++)
        assert_int_equal(pp_strings_add(user, gpus->items[i], NULL), 0);
}

/* UUIDs as long as the wire takes them, each once; what is none is left out. */
static void test_gpu_uuids(void **state)
{
    (void)state;
    static const pp_mark marks[] = {{.kind = PP_MARK_START, .time = 1000, .value = 1},
                                    {.kind = PP_MARK_STEP, .time = 2000, .value = 2},
                                    {.kind = PP_MARK_STOP, .time = 2000}};
    char path[300], longest[PP_WIRE_MAX_GPU + 1] = "";
    pp_strings gpus = {0};
    pp_agent_pod pod = {.allowed = true, .emit = note_gpus, .user = &gpus};
    pp_process *p = NULL;
    pp_error err = {0};
    memset(longest, 'a', PP_WIRE_MAX_GPU);
    assert_null(pp_ring_open(folder));
    assert_null(pp_ring_publish());
    path_of(path, sizeof path);
    (void)snprintf(pp_ring()->gpus, PP_RING_GPUS, "%s,%sa,a b,GPU-1,GPU-1", longest, longest);
    assert_int_equal(pp_process_open(path, &p, &err), 0);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        pp_ring_push(&marks[i]);
    assert_int_equal(pp_process_poll(p, &pod, 5000, INT64_C(1769000000000000000) - 5000, &err), 0);
    assert_int_equal(gpus.count, 2);
    assert_string_equal(gpus.items[0], longest);
    assert_string_equal(gpus.items[1], "GPU-1");
    pp_strings_free(&gpus);
    pp_process_free(p);
}

static void ignore(void *user, pp_wire_batch *batch, int64_t events, const pp_place *place)
{
    (void)events;
    (void)place;
    *(int64_t *)user += batch->cost.nanoseconds;
}

/* Numbers that no hook writes: nothing that is computed from them may overflow. */
static void test_hostile_numbers(void **state)
{
    (void)state;
    static const int64_t times[] = {INT64_MAX, INT64_MAX - 7, INT64_MAX / 4, 5000, INT64_MIN, 0};
    static const int64_t costs[] = {INT64_MIN, INT64_MAX, -1, INT64_MAX - 1, 70, INT64_MIN, 50};
    char path[300];
    int64_t cost = 0;
    pp_agent_pod pod = {.policy = {.capture = 1, .longest = 1, .budget = 0.01, .duration = 1000},
                        .allowed = true,
                        .emit = ignore,
                        .user = &cost};
    pp_process *p = NULL;
    pp_error err = {0};
    assert_null(pp_ring_open(folder));
    assert_null(pp_ring_publish());
    path_of(path, sizeof path);
    assert_int_equal(pp_process_open(path, &p, &err), 0);
    int64_t now = 5000;
    for (size_t i = 0; i < 1000; i++) {
        int64_t time = times[i % 6];
        for (int kind = PP_MARK_BEGIN; kind <= PP_MARK_LOST; kind++) {
            pp_mark mark = {.kind = (uint8_t)(i % 7 ? kind : PP_MARK_START + (kind & 1)),
                            .layer = 1,
                            .time = time,
                            .value = times[(i + (size_t)kind) % 6]};
            pp_ring_push(&mark);
        }
        pp_mark ends[] = {{.kind = PP_MARK_START, .time = 1000, .value = 1},
                          {.kind = PP_MARK_STEP, .time = time, .value = 2},
                          {.kind = PP_MARK_STOP, .time = time}};
        for (size_t k = 0; k < 3; k++)
            pp_ring_push(&ends[k]);
        pp_ring()->cost = costs[i % 7];
        pp_ring()->steps = costs[(i + 1) % 7];
        now += INT64_C(2000000000);
        pp_error ignored = {0};
        (void)pp_process_poll(p, &pod, now, INT64_C(1769000000000000000), &ignored);
    }
    assert_int_equal(cost, 70);
    pp_process_free(p);
}

/* Each once, and what comes later when there is no room has none. */
static void test_names_of_kernels(void **state)
{
    (void)state;
    static char names[PP_RING_NAMES_SIZE], long_name[PP_RING_KERNEL_NAME + 100];
    pp_error err = {0};
    pp_names_forget();
    pp_reader *r = open_both();
    assert_int_equal(pp_names_number("gemm"), 1);
    assert_int_equal(pp_names_number("_Z3addPf"), 2);
    assert_int_equal(pp_names_number("gemm"), 1);
    assert_int_equal(pp_names_number(NULL), 0);
    assert_int_equal(pp_names_number(""), 0);
    assert_int_equal(pp_reader_names(r, 0, names, 3, &err), 3);
    assert_int_equal(pp_reader_names(r, 3, names + 3, sizeof names - 3, &err), 11);
    assert_memory_equal(names, "gemm\0_Z3addPf", 14);
    assert_int_equal(pp_reader_names(r, 14, names, sizeof names, &err), 0);
    (void)memset(long_name, 'k', sizeof long_name - 1);
    assert_int_equal(pp_names_number(long_name), 3);
    assert_int_equal(pp_reader_names(r, 14, names, sizeof names, &err), PP_RING_KERNEL_NAME);
    uint32_t last = 3;
    for (unsigned i = 0; i < 2 * PP_RING_NAMES_SIZE / PP_RING_KERNEL_NAME; i++) {
        (void)snprintf(long_name, 8, "%07u", i);
        long_name[7] = 'k';
        const uint32_t number = pp_names_number(long_name);
        assert_int_equal(number, i < 62 ? last + 1 : 0);
        last = number ? number : last;
    }
    assert_int_equal(pp_names_number("a short one"), 0);
    assert_int_equal(pp_names_number("_Z3addPf"), 2);
    pp_names_forget();
    pp_reader_free(r);
}

static void check_wait(const pp_mark *m, uint8_t call, uint32_t site, int count, int64_t ns)
{
    assert_true(m->kind == PP_MARK_WAIT && m->phase == call && m->layer == site);
    assert_true(m->epoch == count && m->value == ns);
}

/* However many there are between two marks of a thread, they are as many marks as lines; and come
 * before it. Those before a capture are none of its. */
static void test_waits_are_added_up(void **state)
{
    (void)state;
    pp_mark marks[128];
    pp_error err = {0};
    pp_reader *r = open_both();
    pp_wait_put(PP_WAIT_ITEM, 3, 10, 500);
    pp_mark_put(PP_MARK_START, 0, 0, 0, 1, 0, 0);
    for (int i = 1; i <= 10000; i++) {
        pp_wait_put(PP_WAIT_ITEM, 1, 2, 1000 + i);
        pp_wait_put(PP_WAIT_BOOL, 1, 1, 1000 + i);
    }
    pp_mark_put(PP_MARK_BEGIN, PP_MARK_FORWARD, 0, 1, 0, 0, 0);
    pp_wait_put(PP_WAIT_ITEM, 1, 7, 20000);
    pp_mark_put(PP_MARK_STEP, 0, 0, 0, 2, 0, 0);
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    assert_int_equal(pp_reader_take(r, marks, 128, &err), 6);
    assert_int_equal(marks[0].kind, PP_MARK_START);
    check_wait(&marks[1], PP_WAIT_ITEM, 1, 10000, 20000);
    assert_int_equal(marks[1].time, 11000);
    check_wait(&marks[2], PP_WAIT_BOOL, 1, 10000, 10000);
    assert_int_equal(marks[3].kind, PP_MARK_BEGIN);
    check_wait(&marks[4], PP_WAIT_ITEM, 1, 1, 7);
    assert_int_equal(marks[5].kind, PP_MARK_STEP);
    pp_reader_free(r);
}

/* Those of more lines than are told apart are one, of no line; none is lost. */
static void test_waits_of_many_lines(void **state)
{
    (void)state;
    pp_mark marks[256];
    pp_error err = {0};
    pp_reader *r = open_both();
    for (uint32_t i = 0; i < 20000; i++)
        pp_wait_put(PP_WAIT_ITEM, 1 + i % 500, 1, 1);
    for (int call = PP_WAIT_ITEM + 1; call < PP_WAIT_CALLS; call++)
        pp_wait_put((uint8_t)call, 1, 1, 1);
    pp_mark_put(PP_MARK_STEP, 0, 0, 0, 2, 0, 0);
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    const long n = pp_reader_take(r, marks, 256, &err);
    assert_true(n > 64 && n < 128);
    int64_t count = 0;
    for (long i = 0; i < n - 1; i++) {
        count += marks[i].epoch;
        assert_true(marks[i].layer == 0 || marks[i].epoch <= 40);
    }
    assert_int_equal(count, 20000 + PP_WAIT_CALLS - 1);
    pp_reader_free(r);
}

static void test_lines(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_ring_site site;
    char path[400];
    pp_reader *r = open_both();
    assert_int_equal(pp_ring_add_site("train.py", 41), 1);
    assert_int_equal(pp_ring_add_site("train.py", 42), 2);
    assert_int_equal(pp_ring_add_site("train.py", 41), 1);
    (void)memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(pp_ring_add_site(path, 7), 3);
    assert_int_equal(pp_ring_add_site(path, 7), 3);
    assert_int_equal(pp_reader_site(r, 1, &site, &err), 0);
    assert_true(site.line == 41 && strcmp(site.file, "train.py") == 0);
    assert_int_equal(pp_reader_site(r, 3, &site, &err), 0);
    assert_true(site.line == 7 && strlen(site.file) == PP_RING_FILE - 1);
    assert_memory_equal(site.file, "...ppp", 6);
    for (uint32_t line = 4; line <= PP_RING_SITES; line++)
        assert_int_equal(pp_ring_add_site("more.py", line), line);
    assert_int_equal(pp_ring_add_site("more.py", 1), 0);
    assert_int_equal(pp_ring_add_site("train.py", 42), 2);
    assert_int_equal(pp_reader_site(r, 0, &site, &err), -1);
    assert_int_equal(pp_reader_site(r, PP_RING_SITES + 1, &site, &err), -1);
    pp_reader_free(r);
}

/* Writes over a graph of the ring's table, as a process that is not the hook may. */
static void write_graph(uint32_t at, pp_ring_graph graph)
{
    char path[300];
    path_of(path, sizeof path);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const off_t place = (off_t)(PP_RING_GRAPHS_AT + at * sizeof graph);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &graph, sizeof graph, place), sizeof graph);
    (void)close(fd);
}

static void check_graph(const pp_reader *r, uint32_t at, pp_ring_graph expected)
{
    pp_error err = {0};
    pp_ring_graph graph;
    assert_int_equal(pp_reader_graph(r, at, &graph, &err), 0);
    assert_memory_equal(&graph, &expected, sizeof graph);
}

static void test_compiled_graphs(void **state)
{
    (void)state;
    pp_reader *r = open_both();
    pp_error err = {0};
    pp_ring_graph graph;
    static pp_ring_launch launches[PP_RING_LAUNCHES];
    static pp_ring_launch back[PP_RING_LAUNCHES + 1];
    for (uint32_t i = 0; i < PP_RING_LAUNCHES; i++)
        launches[i] = (pp_ring_launch){.name = i + 1, .layer = i % 7, .op = i % PP_OPS};
    assert_true(pp_ring_add_graph(1, 5, launches, 3));
    assert_true(pp_ring_add_graph(1, 6, launches + 3, PP_RING_LAUNCHES - 4));
    assert_false(pp_ring_add_graph(2, 5, launches, 2)); /* there is room for one launch */
    assert_true(pp_ring_add_graph(3, 5, launches, 1));
    assert_int_equal(pp_reader_graph(r, 0, &graph, &err), -1); /* it has not looked yet */
    assert_int_equal(pp_reader_refresh(r, &err), 0);
    assert_int_equal(pp_reader_header(r)->graph_count, 3);
    check_graph(r, 0, (pp_ring_graph){1, 5, 0, 3});
    check_graph(r, 1, (pp_ring_graph){1, 6, 3, PP_RING_LAUNCHES - 4});
    check_graph(r, 2, (pp_ring_graph){3, 5, PP_RING_LAUNCHES - 1, 1});
    assert_int_equal(pp_reader_graph(r, 1, &graph, &err), 0);
    assert_int_equal(pp_reader_launches(r, &graph, back, &err), 0);
    assert_memory_equal(back, launches + 3, graph.count * sizeof *back);
    assert_int_equal(back[graph.count].name, 0);
    assert_int_equal(pp_reader_graph(r, 3, &graph, &err), -1);
    /* No launches but those of the table. */
    write_graph(0, (pp_ring_graph){1, 5, 1, PP_RING_LAUNCHES});
    check_graph(r, 0, (pp_ring_graph){1, 5, 0, 0});
    write_graph(0, (pp_ring_graph){1, 5, PP_RING_LAUNCHES + 1, 0});
    check_graph(r, 0, (pp_ring_graph){1, 5, 0, 0});
    write_graph(0, (pp_ring_graph){1, 5, UINT32_MAX, 2});
    check_graph(r, 0, (pp_ring_graph){1, 5, 0, 0});
    for (uint32_t i = 3; i < PP_RING_GRAPHS; i++)
        assert_true(pp_ring_add_graph(i, 5, launches, 0));
    assert_false(pp_ring_add_graph(9, 5, launches, 0));
    pp_reader_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_marks_go_round, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_volume_has_room_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_ring_drops_counts_and_tells, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_writer_and_a_reader_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_and_long_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_mode_wakes_the_hook, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_lock_tells_who_lives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_wrong_tail_is_not_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_second_agent_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_marks_stay_until_they_are_released, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_place_is_resumed_at, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_agents_lose_and_double_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_left_is_handed_on_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_capture_of_the_session_before_is_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_names_of_kernels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waits_are_added_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waits_of_many_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_compiled_graphs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gpu_uuids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile_numbers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
