/* Memory that a container has left, by control group files of the test's. */
#include "common/tests/cmocka_all.h"
#include "sidecar/gpu/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/pp-memory-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void drop(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(remove(path), 0);
}

static void test_memory_left(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_true(pp_memory_left(root) == INT64_MAX); /* nothing is there */

    put("memory.current", "1000\n");
    put("memory.max", "max\n");
    assert_true(pp_memory_left(root) == INT64_MAX);
    put("memory.max", "5000\n");
    assert_int_equal(pp_memory_left(root), 4000);
    put("memory.stat", "anon 1\ninactive_file 300\nactive_file 7\n");
    assert_int_equal(pp_memory_left(root), 4300);
    put("memory.max", "900\n");
    put("memory.stat", "garbage");
    assert_int_equal(pp_memory_left(root), -100);
    drop("memory.current");
    drop("memory.max");
    drop("memory.stat");

    char folder[64];
    (void)snprintf(folder, sizeof folder, "%s/memory", root);
    assert_int_equal(mkdir(folder, 0700), 0);
    put("memory/memory.usage_in_bytes", "1000");
    put("memory/memory.limit_in_bytes", "9223372036854771712");
    assert_true(pp_memory_left(root) == INT64_MAX);
    put("memory/memory.limit_in_bytes", "4000");
    put("memory/memory.stat", "total_inactive_file 5\n");
    assert_int_equal(pp_memory_left(root), 3005);
    drop("memory/memory.usage_in_bytes");
    drop("memory/memory.limit_in_bytes");
    drop("memory/memory.stat");
    drop("memory");
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
