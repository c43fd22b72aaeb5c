/* The spool with a real folder: what one agent leaves the next finds, and nothing else. */
#include "sidecar/agent/spool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int set_up(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/pp-spool-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    *state = pp_spool_new(folder);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    pp_spool_free(*state);
    return rmdir(folder); /* fails where something is left */
}

static const char *path_to(const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *text_of(int64_t seq)
{
    static char text[600];
    (void)snprintf(
        text, sizeof text,
        "{\"type\": \"batch\", \"session\": \"s\", \"instance\": \"agent\", \"seq\": %d, "
        "\"process\": {\"id\": 0, \"rank\": 0, \"worldSize\": 1, \"gpus\": [], \"hostname\": "
        "\"h\", "
        "\"clock\": \"host\"}, \"stretch\": {\"id\": 0, \"start\": 1769000000000000000, "
        "\"end\": 1769000000000000000, \"last\": true}, \"layers\": [], \"steps\": {\"number\": "
        "[], "
        "\"start\": [], \"duration\": [], \"epoch\": [], \"batch\": []}, \"intervals\": "
        "{\"layer\": "
        "[], \"phase\": [], \"step\": [], \"start\": [], \"duration\": []}}",
        (int)seq);
    return text;
}

static pp_spool_batch batch_of(int64_t seq)
{
    const char *text = text_of(seq);
    return (pp_spool_batch){
        .seq = seq,
        .events = 10 + seq,
        .instance = "agent",
        .place =
            {.ring = "one.ring",
             .tail = 1000 + (uint64_t)seq,
             .told = {.lost = 1, .marks = 2, .cost = 3, .process = 4, .gpus = {[2] = 4, [5] = 7}}},
        .text = text,
        .length = strlen(text)};
}

static size_t put(pp_spool *s, int64_t seq)
{
    pp_error err = {0};
    size_t size = 0;
    pp_spool_batch batch = batch_of(seq);
    if (pp_spool_put(s, &batch, &size, &err) < 0)
        fail_msg("%s", err.message);
    return size;
}

static void assert_same(const pp_spool_batch *got, int64_t seq)
{
    pp_spool_batch want = batch_of(seq);
    assert_int_equal(got->seq, seq);
    assert_int_equal(got->events, want.events);
    assert_string_equal(got->instance, want.instance);
    assert_string_equal(got->place.ring, want.place.ring);
    assert_int_equal(got->place.tail, want.place.tail);
    assert_memory_equal(&got->place.told, &want.place.told, sizeof want.place.told);
    assert_int_equal(got->length, want.length);
    assert_memory_equal(got->text, want.text, want.length);
}

typedef struct seen {
    int64_t seqs[16];
    size_t count;
    size_t size;
} seen;

/* As the agent does when it comes to send it. */
static void note(void *user, const pp_spool_batch *batch, size_t size)
{
    seen *s = user;
    pp_error err = {0};
    if (pp_spool_check(batch, &err) < 0) {
        char name[64];
        (void)snprintf(name, sizeof name, "%020d.batch", (int)batch->seq);
        (void)unlink(path_to(name));
        return;
    }
    assert_same(batch, batch->seq);
    s->seqs[s->count++] = batch->seq;
    s->size += size;
}

static seen load(void)
{
    pp_error err = {0};
    seen s = {0};
    pp_spool *next = pp_spool_new(folder); /* another agent */
    assert_int_equal(pp_spool_load(next, note, &s, &err), 0);
    pp_spool_free(next);
    return s;
}

static void test_the_next_agent_finds_them_in_order(void **state)
{
    pp_error err = {0};
    pp_spool_batch got;
    size_t size = put(*state, 12) + put(*state, 3) + put(*state, 100);
    seen s = load();
    assert_int_equal(s.count, 3);
    assert_true(s.seqs[0] == 3 && s.seqs[1] == 12 && s.seqs[2] == 100);
    assert_int_equal(s.size, size);
    assert_int_equal(size, 3 * 4096);
    assert_int_equal(pp_spool_get(*state, 12, &got, &err), 0);
    assert_same(&got, 12);
    pp_spool_remove(*state, 12);
    assert_int_equal(pp_spool_get(*state, 12, &got, &err), -1);
    pp_spool_remove(*state, 12);
    assert_int_equal(load().count, 2);
    pp_spool_remove(*state, 3);
    pp_spool_remove(*state, 100);
}

static void write_file(const char *name, const char *text, size_t n)
{
    FILE *f = fopen(path_to(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Every piece of a file that a full disk or a kill could leave under a batch's name, and what no
 * agent writes: none is sent, all are gone afterwards. */
static void test_what_is_no_batch_is_removed(void **state)
{
    static const char name[] = "00000000000000000007.batch";
    char whole[8192];
    put(*state, 7);
    FILE *f = fopen(path_to(name), "r");
    size_t n = fread(whole, 1, sizeof whole, f);
    (void)fclose(f);
    for (size_t cut = 0; cut < n; cut += 1 + cut / 7) {
        write_file(name, whole, cut);
        assert_int_equal(load().count, 0);
        assert_int_equal(access(path_to(name), F_OK), -1);
    }
    write_file("00000000000000000008.batch", whole, n); /* another's name */
    write_file(".new", whole, n / 2);
    write_file("notes.txt", "x", 1);
    write_file("7.batch", whole, n);
    write_file("-0000000000000000007.batch", whole, n);
    assert_int_equal(symlink("/etc/passwd", path_to("00000000000000000009.batch")), 0);
    assert_int_equal(mkfifo(path_to("00000000000000000010.batch"), 0600), 0);
    write_file(name, whole, n);
    seen s = load();
    assert_true(s.count == 1 && s.seqs[0] == 7);
    pp_spool_remove(*state, 7);
}

/* The operator would close the connection over it, again and again. */
static void test_what_the_operator_would_not_take_is_removed(void **state)
{
    static const struct {
        const char *from, *to;
    } changes[] = {{"\"rank\": 0", "\"rank\": 7"},
                   {"\"type\": \"batch\"", "\"type\": \"bunch\""},
                   {"\"instance\": \"agent\"", "\"instance\": \"agenz\""},
                   {"\"tail\":1007", "\"tail\":-007"},
                   {"\"tail\":1007", "\"tail\":-107"}};
    static const char name[] = "00000000000000000007.batch";
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char whole[8192] = "";
        put(*state, 7);
        FILE *f = fopen(path_to(name), "r");
        size_t n = fread(whole, 1, sizeof whole - 1, f);
        (void)fclose(f);
        char *at = strstr(whole, changes[i].from);
        assert_non_null(at);
        memcpy(at, changes[i].to, strlen(changes[i].to));
        write_file(name, whole, n);
        assert_int_equal(load().count, 0);
    }
}

static void test_a_folder_that_cannot_be_used(void **state)
{
    (void)state;
    pp_error err = {0};
    size_t size = 0;
    seen s = {0};
    pp_spool_batch batch = batch_of(1);
    pp_spool *none = pp_spool_new("/nonexistent/spool");
    assert_int_equal(pp_spool_load(none, note, &s, &err), -1);
    assert_non_null(strstr(err.message, "/nonexistent/spool"));
    assert_int_equal(pp_spool_put(none, &batch, &size, &err), -1);
    assert_int_equal(pp_spool_get(none, 1, &batch, &err), -1);
    pp_spool_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_next_agent_finds_them_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_no_batch_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_the_operator_would_not_take_is_removed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_folder_that_cannot_be_used, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
