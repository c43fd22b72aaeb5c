#include "common/tests/cmocka_all.h"
#include "operator/cache/owners.h"

#include <string.h>

#define SECOND INT64_C(1000000000)

static pp_pod pod_of(pp_owner_kind kind, const char *name)
{
    return (pp_pod){.owner = kind, .owner_name = (char *)(uintptr_t)name};
}

static void note(pp_owners *owners, pp_owner_kind kind, const char *name)
{
    const pp_pod pod = pod_of(kind, name);
    pp_owners_note(owners, &pod);
}

static void test_each_once(void **state)
{
    (void)state;
    pp_owners owners = {0};
    note(&owners, PP_OWNER_JOB, "a");
    note(&owners, PP_OWNER_JOB, "a");
    note(&owners, PP_OWNER_STATEFUL_SET, "a");
    note(&owners, PP_OWNER_NONE, "bare");
    assert_int_equal(owners.count, 2);
    pp_pod of_job_set = pod_of(PP_OWNER_JOB, "a");
    of_job_set.managed = true;
    pp_owners_note(&owners, &of_job_set);
    note(&owners, PP_OWNER_JOB, "a");
    assert_int_equal(owners.count, 2);
    assert_true(owners.items[0].managed);
    assert_false(owners.items[1].managed);
    char name[16];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof name, "job-%d", i);
        note(&owners, PP_OWNER_JOB, name);
    }
    assert_int_equal(owners.count, 64);
    assert_string_equal(owners.items[63].name, "job-61");
    pp_owners_done(&owners);
}

/* One after the other, until one makes a pod; what was answered holds for a while. */
static void test_who_is_asked_next(void **state)
{
    (void)state;
    pp_owners owners = {0};
    int64_t again;
    note(&owners, PP_OWNER_JOB, "a");
    note(&owners, PP_OWNER_JOB, "b");
    assert_int_equal(pp_owners_next(&owners, 100 * SECOND, &again), 0);
    owners.asked_ns[0] = 100 * SECOND;
    owners.asking = true;
    assert_int_equal(pp_owners_next(&owners, 100 * SECOND, &again), -1);
    assert_int_equal(again, 0);
    owners.asking = false;
    owners.items[0].state = PP_OWNER_DONE;
    assert_int_equal(pp_owners_next(&owners, 101 * SECOND, &again), 1);
    owners.asked_ns[1] = 101 * SECOND;
    owners.items[1].state = PP_OWNER_DONE;
    assert_int_equal(pp_owners_next(&owners, 102 * SECOND, &again), -1);
    assert_true(again == 105 * SECOND);
    assert_int_equal(pp_owners_next(&owners, 105 * SECOND, &again), 0);
    owners.items[1].state = PP_OWNER_MAKES_PODS;
    assert_int_equal(pp_owners_next(&owners, 105 * SECOND, &again), -1);
    assert_true(again == 106 * SECOND);
    pp_owners_forget(&owners);
    assert_int_equal(owners.items[1].state, PP_OWNER_ASKING);
    assert_int_equal(pp_owners_next(&owners, 105 * SECOND, &again), 0);
    pp_owners_done(&owners);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_who_is_asked_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
