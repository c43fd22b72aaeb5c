#include "common/tests/cmocka_all.h"
#include "common/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int priority(void)
{
    return getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

static void *step_back_twice(void *user)
{
    int *got = user;
    pp_thread_step_back();
    pp_thread_step_back();
    *got = priority();
    return NULL;
}

static void test_only_that_thread_steps_back(void **state)
{
    (void)state;
    const int before = priority();
    int got = before;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_back_twice, &got), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(got > before || before >= 10);
    assert_int_equal(priority(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_that_thread_steps_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
