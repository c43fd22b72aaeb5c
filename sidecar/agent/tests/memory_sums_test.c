#include "common/tests/cmocka_all.h"
#include "sidecar/agent/memory_sums.h"

#include <stdlib.h>

enum { F = PP_MARK_FORWARD, B = PP_MARK_BACKWARD };

/* A parent, 2, with a layer in it, 1, whose backward runs in another thread beside nothing. */
static pp_piece pieces[] = {
    {.start = 10, .end = 20, .layer = 2, .phase = F},
    {.start = 20, .end = 30, .layer = 1, .phase = F},
    {.start = 30, .end = 40, .layer = 2, .phase = F},
    {.start = 50, .end = 60, .layer = 1, .phase = B},
};
static pp_level levels[] = {
    {5, 100, 100},  {10, 100, 150}, {20, 130, 180}, {30, 170, 170}, {40, 165, 165},
    {50, 165, 900}, {60, 95, 95},   {60, 90, 95},   {70, 100, 100},
};

static pp_step step_of(size_t n)
{
    return (pp_step){
        .pieces = pieces, .count = 4, .memory = true, .levels = levels, .level_count = n};
}

static pp_wire_memory copied(pp_memory_sums *s, size_t room, size_t *at)
{
    pp_wire_memory ret;
    pp_error err = {0};
    assert_int_equal(pp_memory_sums_copy(s, room, at, &ret, &err), 0);
    return ret;
}

static void assert_row(const pp_wire_memory_row *r, const pp_wire_memory_row *expected)
{
    assert_true(r->layer == expected->layer && r->phase == expected->phase);
    assert_int_equal(r->peak, expected->peak);
    assert_int_equal(r->left, expected->left);
}

/* What a layer leaves adds up over its pieces and steps; all of it is what the step leaves. */
static void test_pieces(void **state)
{
    (void)state;
    pp_memory_sums *s = pp_memory_sums_new();
    pp_error err = {0};
    size_t at = 0;
    pp_step step = step_of(9);
    assert_false(pp_memory_sums_due(s));
    assert_int_equal(pp_memory_sums_add(s, &step, &err), 0);
    levels[1].peak = 140;
    assert_int_equal(pp_memory_sums_add(s, &step, &err), 0);
    levels[1].peak = 150;
    assert_true(pp_memory_sums_due(s));
    pp_wire_memory m = copied(s, 1 << 20, &at);
    assert_true(at == SIZE_MAX && m.steps == 2 && m.count == 4);
    assert_row(&m.rows[0], &(pp_wire_memory_row){0, PP_WIRE_OTHER, 165, 20});
    assert_row(&m.rows[1], &(pp_wire_memory_row){1, PP_WIRE_FORWARD, 180, 80});
    assert_row(&m.rows[2], &(pp_wire_memory_row){1, PP_WIRE_BACKWARD, 900, -150});
    assert_row(&m.rows[3], &(pp_wire_memory_row){2, PP_WIRE_FORWARD, 170, 50});
    free(m.rows);
    pp_memory_sums_clear(s);
    assert_false(pp_memory_sums_due(s));
    step = step_of(0);
    assert_int_equal(pp_memory_sums_add(s, &step, &err), 0);
    assert_false(pp_memory_sums_due(s)); /* it has failed */
    pp_memory_sums_free(s);
}

/* What one batch has no room for comes with the next; the steps are told once. */
static void test_parts(void **state)
{
    (void)state;
    pp_memory_sums *s = pp_memory_sums_new();
    pp_error err = {0};
    size_t at = 0;
    const pp_step step = step_of(9);
    assert_int_equal(pp_memory_sums_add(s, &step, &err), 0);
    pp_wire_memory first = copied(s, 1500, &at);
    assert_true(first.count == 3 && first.steps == 1 && at == 3);
    pp_wire_memory second = copied(s, 1500, &at);
    assert_true(second.count == 1 && second.steps == 0 && at == SIZE_MAX);
    assert_int_equal(second.rows[0].layer, 2);
    free(first.rows);
    free(second.rows);
    pp_memory_sums_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
