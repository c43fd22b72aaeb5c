#include "common/tests/cmocka_all.h"
#include "sidecar/agent/copy_sums.h"

#include <stdlib.h>

enum { F = PP_MARK_FORWARD, OTHER = PP_MARK_OTHER };

static void add(pp_copy_sums *s, uint32_t layer, uint8_t phase, uint8_t type, uint8_t memory,
                int64_t bytes)
{
    pp_copy_sums_add(s, &(pp_kernels_placed){.start = 100,
                                             .end = 110,
                                             .layer = layer,
                                             .phase = phase,
                                             .copy = true,
                                             .type = type,
                                             .memory = memory,
                                             .bytes = bytes});
}

static pp_wire_copies copy_part(pp_copy_sums *s, size_t room, size_t *at)
{
    pp_wire_copies ret;
    pp_error err = {0};
    assert_int_equal(pp_copy_sums_copy(s, room, at, &ret, &err), 0);
    return ret;
}

static void assert_row(const pp_wire_copy *r, const pp_wire_copy *expected)
{
    assert_true(r->layer == expected->layer && r->phase == expected->phase);
    assert_true(r->type == expected->type && r->memory == expected->memory);
    assert_int_equal(r->count, expected->count);
    assert_int_equal(r->bytes, expected->bytes);
    assert_int_equal(r->duration, expected->duration);
}

/* A step that does not count is in none of them, nor is the one that is not over. */
static void test_sums(void **state)
{
    (void)state;
    pp_copy_sums *s = pp_copy_sums_new();
    size_t at = 0;
    pp_copy_sums_step(s, true);
    assert_false(pp_copy_sums_due(s)); /* no copy was ever seen */
    add(s, 3, F, PP_COPY_H2D, PP_COPY_PINNED, 1000);
    add(s, 3, F, PP_COPY_H2D, PP_COPY_PINNED, 24);
    add(s, 3, F, PP_COPY_H2D, PP_COPY_PAGEABLE, 7);
    add(s, 0, OTHER, PP_COPY_FILL, PP_COPY_PINNED, 50); /* no host has part in it */
    pp_copy_sums_step(s, true);
    add(s, 3, F, PP_COPY_H2D, PP_COPY_PINNED, 1);
    pp_copy_sums_step(s, false);
    add(s, 9, F, PP_COPY_D2D, 0, 5);
    assert_true(pp_copy_sums_due(s));
    pp_wire_copies c = copy_part(s, 1 << 20, &at);
    assert_true(at == SIZE_MAX && c.steps == 2 && c.count == 3);
    assert_row(&c.rows[0], &(pp_wire_copy){0, PP_WIRE_OTHER, PP_WIRE_FILL, 0, 1, 50, 10});
    assert_row(&c.rows[1],
               &(pp_wire_copy){3, PP_WIRE_FORWARD, PP_WIRE_H2D, PP_WIRE_PAGEABLE, 1, 7, 10});
    assert_row(&c.rows[2],
               &(pp_wire_copy){3, PP_WIRE_FORWARD, PP_WIRE_H2D, PP_WIRE_PINNED, 2, 1024, 20});
    free(c.rows);
    pp_copy_sums_clear(s);
    pp_copy_sums_step(s, true);
    at = 0;
    c = copy_part(s, 1 << 20, &at);
    assert_true(c.steps == 1 && c.count == 1);
    assert_row(&c.rows[0], &(pp_wire_copy){9, PP_WIRE_FORWARD, PP_WIRE_D2D, 0, 1, 5, 10});
    free(c.rows);
    pp_copy_sums_forget(s);
    pp_copy_sums_step(s, true);
    assert_false(pp_copy_sums_due(s));
    pp_copy_sums_free(s);
}

/* What one batch has no room for comes with the next; the steps are told once. */
static void test_parts(void **state)
{
    (void)state;
    pp_copy_sums *s = pp_copy_sums_new();
    size_t at = 0, rows = 0, parts = 0;
    int64_t steps = 0;
    for (uint32_t layer = 1; layer <= 50; layer++)
        add(s, layer, F, PP_COPY_D2D, 0, layer);
    pp_copy_sums_step(s, true);
    for (; at != SIZE_MAX; parts++) {
        pp_wire_copies c = copy_part(s, 8000, &at);
        for (size_t i = 0; i < c.count; i++)
            assert_int_equal(c.rows[i].layer, ++rows);
        steps += c.steps;
        free(c.rows);
    }
    assert_true(rows == 50 && steps == 1 && parts > 2);
    pp_copy_sums_free(s);
}

/* Beyond a bound they are told of no layer, and none is lost. */
static void test_too_many(void **state)
{
    (void)state;
    pp_copy_sums *s = pp_copy_sums_new();
    size_t at = 0;
    int64_t bytes = 0;
    for (uint32_t layer = 1; layer <= PP_COPY_SUMS_MAX + 10; layer++)
        add(s, layer, F, PP_COPY_D2D, 0, 1);
    pp_copy_sums_step(s, true);
    while (at != SIZE_MAX) {
        pp_wire_copies c = copy_part(s, 1 << 20, &at);
        for (size_t i = 0; i < c.count; i++)
            bytes += c.rows[i].bytes;
        if (c.steps)
            assert_row(&c.rows[0], &(pp_wire_copy){0, PP_WIRE_OTHER, PP_WIRE_D2D, 0, 10, 10, 100});
        free(c.rows);
    }
    assert_int_equal(bytes, PP_COPY_SUMS_MAX + 10);
    pp_copy_sums_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
