/* A pod names so many GPUs and processes, and no more. */
#include "common/tests/cmocka_all.h"
#include "controller/allowance.h"

#include <stdio.h>

static void add_gpu(pp_strings *to, int number)
{
    char name[32];
    (void)snprintf(name, sizeof name, "GPU-%d", number);
    assert_int_equal(pp_strings_add_once(to, name, NULL), 0);
}

static void assert_refused(pp_allowance *so_far, const pp_wire_process *process, const char *field)
{
    pp_error err = {0};
    assert_int_equal(pp_allowance_take(so_far, process, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_string_equal(err.field, field);
}

static void test_gpus(void **state)
{
    (void)state;
    pp_allowance so_far = {0};
    for (int i = 0; i < PP_ALLOWANCE_GPUS + 2; i++) {
        pp_wire_process process = {0};
        add_gpu(&process.gpus, 0); /* one that is known */
        add_gpu(&process.gpus, i);
        if (i < PP_ALLOWANCE_GPUS)
            assert_int_equal(pp_allowance_take(&so_far, &process, NULL), 0);
        else
            assert_refused(&so_far, &process, "process.gpus");
        pp_strings_free(&process.gpus);
    }
    assert_int_equal(so_far.gpus.count, PP_ALLOWANCE_GPUS);
    pp_allowance_done(&so_far);
}

static void test_processes(void **state)
{
    (void)state;
    pp_allowance so_far = {0};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PP_ALLOWANCE_PROCESSES; i++) {
            const pp_wire_process process = {.id = PP_WIRE_MAX_PROCESS - i};
            assert_int_equal(pp_allowance_take(&so_far, &process, NULL), 0);
        }
    }
    const pp_wire_process more = {.id = 0};
    assert_refused(&so_far, &more, "process.id");
    pp_allowance_done(&so_far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
