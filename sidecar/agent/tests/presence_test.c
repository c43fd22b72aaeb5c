/* What the agent sees of a hook, from the files that trainers leave. */
#include "sidecar/agent/presence.h"

#include "common/tests/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

/* Good until the next but one. */
static const char *path_of(const char *name)
{
    static char paths[2][128];
    static unsigned turn;
    char *path = paths[turn++ % 2];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/pp-presence-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    static const char *const names[] = {"loaded",        "one.ring",        "environment-0",
                                        "environment-1", "environment-2.9", "control.json",
                                        "torch"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(path_of(names[i]));
    return rmdir(folder);
}

static pp_wire_hook look_at(pp_presence *p, int64_t seconds)
{
    pp_wire_hook hook = {.loaded = true, .libc = "old"};
    pp_presence_look(p, folder, seconds * 1000000000, &hook);
    return hook;
}

/* An agent's first. */
static pp_wire_hook look(void)
{
    return look_at(&(pp_presence){0}, 1000);
}

static void test_loaded(void **state)
{
    (void)state;
    put("control.json", "{}");
    assert_false(look().loaded);
    put("loaded", "");
    assert_true(look().loaded);
    assert_int_equal(unlink(path_of("loaded")), 0);
    put("one.ring", "");
    assert_true(look().loaded);
    assert_false(look().torch);
}

/* As a Python's sitecustomize does: of the open file, so that a fork keeps it. */
static int hold(void)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    const int fd = open(path_of("loaded"), O_RDONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

static void test_a_minute_after_the_last_has_ended(void **state)
{
    (void)state;
    pp_presence p = {0};
    assert_false(look_at(&p, 1000).loaded);
    const int first = hold();
    assert_true(look_at(&p, 1001).loaded);
    const int second = hold();
    assert_int_equal(close(first), 0);
    assert_true(look_at(&p, 2000).loaded);
    assert_int_equal(close(second), 0);
    assert_true(look_at(&p, 2059).loaded);
    assert_false(look_at(&p, 2060).loaded);
    const int third = hold();
    assert_true(look_at(&p, 3000).loaded);
    assert_int_equal(close(third), 0);
    assert_false(look_at(&p, 3060).loaded);
}

/* It had ended before the agent looked: nobody knows when. */
static void test_one_that_has_ended(void **state)
{
    (void)state;
    pp_presence p = {0};
    put("loaded", "");
    assert_true(look_at(&p, 1000).loaded);
    assert_true(look_at(&p, 1059).loaded);
    assert_false(look_at(&p, 1060).loaded);
    assert_int_equal(unlink(path_of("loaded")), 0);
    assert_int_equal(mkfifo(path_of("loaded"), 0600), 0);
    assert_false(look_at(&p, 1061).loaded);
}

static void test_torch_for_the_next_agent(void **state)
{
    (void)state;
    pp_wire_hook hook = {.torch = true};
    pp_presence_look(&(pp_presence){0}, folder, 0, &hook);
    assert_true(hook.torch && hook.loaded);
    hook = look();
    assert_true(hook.torch && hook.loaded);
    hook = (pp_wire_hook){.torch = true};
    pp_presence_look(&(pp_presence){0}, folder, 0, &hook);
    assert_true(hook.torch && hook.loaded);
}

static void test_libc(void **state)
{
    (void)state;
    assert_string_equal(look().libc, "");
    put("environment-2.9", "libc musl\n"); /* not whole yet */
    assert_string_equal(look().libc, "");
    put("environment-0", "libc glibc\nPYTHONPATH /app");
    assert_string_equal(look().libc, "glibc");
    put("environment-1", "libc glibc\n");
    assert_string_equal(look().libc, "glibc");
    put("environment-1", "libc musl\n"); /* two images of two kinds */
    assert_string_equal(look().libc, "");
    put("environment-0", "libc musl\n");
    assert_string_equal(look().libc, "musl");
    put("environment-0", "libc none\n");
    put("environment-1", "libc none\n");
    assert_string_equal(look().libc, "none");
    put("environment-0", "libc\n");
    put("environment-1", "libc\n");
    assert_string_equal(look().libc, "");
}

/* The folder is the user's to write to. */
static void test_what_is_no_record(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_of("environment-0"), 0600), 0);
    assert_string_equal(look().libc, "");
    assert_int_equal(unlink(path_of("environment-0")), 0);
    put("control.json", "libc musl\n");
    assert_int_equal(symlink(path_of("control.json"), path_of("environment-0")), 0);
    assert_string_equal(look().libc, "");
    assert_int_equal(unlink(path_of("environment-0")), 0);
    put("environment-0", "libc muslin\n");
    assert_string_equal(look().libc, "");
    pp_wire_hook hook = {.loaded = true, .libc = "musl"};
    pp_presence_look(&(pp_presence){0}, "/missing", 0, &hook);
    assert_false(hook.loaded);
    assert_string_equal(hook.libc, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_loaded, begin, end),
        cmocka_unit_test_setup_teardown(test_a_minute_after_the_last_has_ended, begin, end),
        cmocka_unit_test_setup_teardown(test_one_that_has_ended, begin, end),
        cmocka_unit_test_setup_teardown(test_torch_for_the_next_agent, begin, end),
        cmocka_unit_test_setup_teardown(test_libc, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_no_record, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
