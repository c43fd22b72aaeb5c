/* What the pod's first container leaves for the others: the hook's tree, and a program before it.
 */
#include "common/cleanup.h"
#include "common/file.h"
#include "common/tests/cmocka_all.h"
#include "sidecar/agent/install.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { TOO_DEEP = 12 };

static char root[] = "/tmp/pp-install-XXXXXX";
static char from[PATH_MAX / 2], to[PATH_MAX / 2];

__attribute__((format(printf, 2, 3))) static void path_of(char *out, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(out, PATH_MAX, fmt, args);
    va_end(args);
}

static void put(const char *path, const char *text, mode_t mode)
{
    (void)unlink(path);
    PP_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void check(const char *name, const char *want, mode_t mode)
{
    char path[PATH_MAX];
    struct stat st;
    path_of(path, "%s/%s", to, name);
    PP_CLEANUP_FREE char *text = pp_file_read(path, 100, NULL, NULL);
    assert_non_null(text);
    assert_string_equal(text, want);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, mode);
}

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    (void)mkdir(path, 0700);
}

static void program_of(char *out)
{
    struct utsname machine;
    assert_int_equal(uname(&machine), 0);
    path_of(out, "%s/python/precisionprobe_hook/%s/" PP_ENVIRONMENT_PROGRAM, from, machine.machine);
}

static int set_up(void **state)
{
    char path[PATH_MAX];
    (void)state;
    (void)strcpy(root, "/tmp/pp-install-XXXXXX");
    assert_non_null(mkdtemp(root));
    (void)snprintf(from, sizeof from, "%s/from", root);
    (void)snprintf(to, sizeof to, "%s/to", root);
    program_of(path);
    *strrchr(path, '/') = '\0';
    make_folders(path);
    program_of(path);
    put(path, "program", 0700);
    path_of(path, "%s/python/sitecustomize.py", from);
    put(path, "python", 0600);
    return 0;
}

static int tear_down(void **state)
{
    char command[PATH_MAX];
    (void)state;
    path_of(command, "rm -rf '%s'", root);
    return system(command);
}

static void test_tree_and_program(void **state)
{
    (void)state;
    pp_error err = {0};
    for (int i = 0; i < 2; i++) { /* an init container may be run again */
        assert_int_equal(pp_install_environment(from, to, &err), 0);
        assert_int_equal(pp_install(from, to, &err), 0);
        check("python/sitecustomize.py", "python", 0644);
        check(PP_ENVIRONMENT_PROGRAM, "program", 0755);
    }
}

/* A container of the pod is to run it: where it is missing the pod would not start. */
static void test_the_program_is_there_where_the_tree_is_not(void **state)
{
    char path[PATH_MAX];
    (void)state;
    pp_error err = {0};
    path_of(path, "%s/python", from);
    for (size_t i = 0, end = strlen(path); i < TOO_DEEP; i++, end += 2)
        memcpy(path + end, "/x", sizeof "/x");
    make_folders(path);
    assert_int_equal(pp_install_environment(from, to, &err), 0);
    assert_int_equal(pp_install(from, to, &err), -1);
    check(PP_ENVIRONMENT_PROGRAM, "program", 0755);
    path_of(path, "%s/python", to);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_no_program(void **state)
{
    char path[PATH_MAX];
    (void)state;
    pp_error err = {0};
    program_of(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pp_install_environment(from, to, &err), -1);
    assert_non_null(strstr(err.message, PP_ENVIRONMENT_PROGRAM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tree_and_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_program_is_there_where_the_tree_is_not, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_no_program, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("install", tests, NULL, NULL);
}
