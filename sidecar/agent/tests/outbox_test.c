#include "sidecar/agent/outbox.h"
#include "sidecar/agent/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(pp_outbox *o, int64_t seq, size_t length)
{
    pp_error err = {0};
    char *text = calloc(1, length + 1);
    memset(text, 'x', length);
    assert_int_equal(pp_outbox_add(o, seq, 10, text, length, &err), 0);
}

static int64_t next(pp_outbox *o, bool *ret_first)
{
    pp_outbox_item item;
    if (!pp_outbox_next(o, &item))
        return -1;
    if (ret_first)
        *ret_first = item.first;
    return item.seq;
}

static void test_order_and_resending(void **state)
{
    (void)state;
    bool first = false;
    pp_outbox *o = pp_outbox_new(1000, 0, NULL, NULL);
    for (int i = 0; i < 3; i++)
        add(o, i, 10);
    assert_int_equal(next(o, &first), 0);
    assert_true(first);
    assert_int_equal(next(o, NULL), 1);
    assert_true(pp_outbox_remove(o, 0));
    assert_false(pp_outbox_remove(o, 0)); /* an ack that comes twice */
    pp_outbox_rewind(o);                  /* a new connection */
    assert_int_equal(next(o, &first), 1);
    assert_false(first);
    assert_int_equal(next(o, &first), 2);
    assert_true(first);
    assert_int_equal(next(o, NULL), -1);
    assert_true(pp_outbox_remove(o, 2)); /* acks come in any order */
    assert_true(pp_outbox_remove(o, 1));
    assert_int_equal(pp_outbox_count(o), 0);
    pp_outbox_free(o);
}

static void test_in_flight_is_bounded(void **state)
{
    (void)state;
    pp_outbox *o = pp_outbox_new(1000, 0, NULL, NULL);
    for (int i = 0; i < 40; i++)
        add(o, i, 10);
    for (int i = 0; i < PP_OUTBOX_IN_FLIGHT; i++)
        assert_int_equal(next(o, NULL), i);
    assert_int_equal(next(o, NULL), -1);
    assert_true(pp_outbox_remove(o, 5));
    assert_int_equal(next(o, NULL), PP_OUTBOX_IN_FLIGHT);
    pp_outbox_free(o);
}

static void test_the_oldest_goes_and_is_counted(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_outbox *o = pp_outbox_new(100, 0, NULL, NULL);
    for (int i = 0; i < 12; i++)
        add(o, i, 10);
    assert_int_equal(pp_outbox_count(o), 10);
    assert_int_equal(pp_outbox_take_dropped(o), 20);
    assert_int_equal(pp_outbox_take_dropped(o), 0);
    assert_int_equal(next(o, NULL), 2);
    add(o, 12, 95);
    assert_int_equal(pp_outbox_count(o), 1);
    assert_int_equal(next(o, NULL), 12); /* the one in flight went too: nothing is in flight */
    assert_int_equal(pp_outbox_add(o, 13, 7, calloc(1, 200), 101, &err), -1);
    assert_int_equal(err.code, PP_ERR_TOO_LARGE);
    assert_int_equal(pp_outbox_take_dropped(o), 107);
    pp_outbox_free(o);
}

static void note(void *user, int64_t seq)
{
    int64_t *gone = user;
    *gone = *gone * 100 + seq;
}

static void spool(pp_outbox *o, int64_t seq, size_t length)
{
    pp_error err = {0};
    assert_int_equal(pp_outbox_add(o, seq, 10, NULL, length, &err), 0);
}

/* The disk has a limit of its own, and whoever keeps the files hears which are not needed. */
static void test_spooled_batches_have_their_own_room(void **state)
{
    (void)state;
    int64_t gone = 0;
    pp_error err = {0};
    pp_outbox *o = pp_outbox_new(100, 300, note, &gone);
    spool(o, 1, 150);
    add(o, 2, 100);
    spool(o, 3, 150);
    assert_int_equal(gone, 0);
    spool(o, 4, 1);
    assert_int_equal(gone, 1); /* the oldest on the disk; memory is untouched */
    assert_int_equal(pp_outbox_take_dropped(o), 10);
    assert_int_equal(next(o, NULL), 2);
    assert_int_equal(next(o, NULL), 3);
    assert_true(pp_outbox_remove(o, 3));
    assert_true(pp_outbox_remove(o, 2));
    assert_int_equal(gone, 103);
    assert_int_equal(pp_outbox_add(o, 5, 7, NULL, 301, &err), -1);
    assert_int_equal(gone, 10305); /* nobody will send it */
    assert_int_equal(pp_outbox_take_dropped(o), 7);
    assert_int_equal(pp_outbox_count(o), 1);
    pp_outbox_free(o);
    assert_int_equal(gone, 10305); /* what is left is for the next agent */
}

static void test_retry(void **state)
{
    (void)state;
    pp_retry r;
    pp_retry_init(&r, 1);
    int64_t most = 0;
    for (int i = 0; i < 20; i++) {
        int64_t wait = pp_retry_next(&r, -1);
        assert_in_range(wait, 200, 10000);
        most = wait > most ? wait : most;
    }
    assert_true(most > 5000);
    pp_retry_reset(&r);
    assert_in_range(pp_retry_next(&r, -1), 200, 400);
    assert_int_equal(pp_retry_next(&r, 30), 30000);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += pp_retry_next(&r, 0);
    assert_true(sum < 200); /* at once */
    for (int i = 0; i < 100; i++)
        sum += pp_retry_next(&r, 0);
    assert_true(sum > 50000); /* but not for ever */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_resending),
        cmocka_unit_test(test_in_flight_is_bounded),
        cmocka_unit_test(test_the_oldest_goes_and_is_counted),
        cmocka_unit_test(test_spooled_batches_have_their_own_room),
        cmocka_unit_test(test_retry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
