#include "common/tests/cmocka_all.h"
#include "operator/state/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { PIECES = 1 << 20, SIZE = 100 };

static size_t resident(void)
{
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    const char *second = strchr(line, ' ');
    assert_non_null(second);
    return strtoul(second, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/** A burst of small pieces goes back, whatever has come to lie between them and stays. */
static void test_a_burst_goes_back(void **state)
{
    (void)state;
    char **pieces = calloc(PIECES, sizeof *pieces);
    assert_non_null(pieces);
    const size_t before = resident();
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = malloc(SIZE);
        assert_non_null(pieces[i]);
        (void)memset(pieces[i], 1, SIZE);
    }
    const size_t most = resident();
    for (int i = 0; i < PIECES; i++) {
        if (i % 10000 == 9999)
            continue;
        free(pieces[i]);
        pieces[i] = NULL;
    }
    pp_memory_trim();
    const size_t after = resident();
#ifdef SANITIZED
    (void)before;
    (void)most;
    (void)after;
#else
    assert_true(most > before + (size_t)PIECES * SIZE);
    assert_true(after < before + (most - before) / 4);
#endif
    for (int i = 0; i < PIECES; i++)
        free(pieces[i]);
    free(pieces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_burst_goes_back)};
    pp_memory_configure();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
