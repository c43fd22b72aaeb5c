#include "common/file.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

/* A file of this name and text, gone with the test. */
static void write_text(char *path, const char *text)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static void test_read(void **state)
{
    (void)state;
    char path[] = "/tmp/pp-file-XXXXXX";
    size_t n = 0;
    write_text(path, " 12345\r\n");
    PP_CLEANUP_FREE char *text = pp_file_read(path, 8, &n, NULL);
    assert_string_equal(text, " 12345");
    assert_int_equal(n, 6);
    pp_error err = {0};
    assert_null(pp_file_read(path, 7, NULL, &err));
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_non_null(strstr(err.message, path));
    (void)unlink(path);
    assert_null(pp_file_read(path, 8, NULL, &err));
    assert_int_equal(err.code, PP_ERR_IO);
    assert_non_null(strstr(err.message, path));
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    pp_error err = {0};
    assert_null(pp_file_read("/tmp", 100, NULL, &err));
    assert_non_null(strstr(err.message, "/tmp"));
    PP_CLEANUP_FREE char *empty = pp_file_read("/dev/null", 100, NULL, &err);
    assert_string_equal(empty, "");
}

/* What fits goes in at first; that the rest does not shows at the next call only. */
static void test_write(void **state)
{
    (void)state;
    char path[] = "/tmp/pp-file-XXXXXX";
    PP_CLEANUP_FD int fd = mkstemp(path);
    struct rlimit was = {0}, four = {.rlim_cur = 4};
    assert_true(fd >= 0 && getrlimit(RLIMIT_FSIZE, &was) == 0);
    four.rlim_max = was.rlim_max;
    assert_int_equal(pp_file_write(fd, "12", 2), 0);
    void (*signalled)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &four), 0);
    int rc = pp_file_write(fd, "345", 3);
    int error = errno;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, signalled);
    assert_int_equal(rc, -1);
    assert_int_equal(error, EFBIG);
    PP_CLEANUP_FREE char *text = pp_file_read(path, 8, NULL, NULL);
    assert_string_equal(text, "1234");
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
