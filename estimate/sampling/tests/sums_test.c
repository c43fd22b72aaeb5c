/* Sums of two captures, merged into one. */
#include "common/tests/cmocka_all.h"
#include "estimate/sampling/sums.h"

#include <stdlib.h>
#include <string.h>

static pp_sampling_sums *make(const pp_sampling_column *columns, size_t n,
                              const pp_sampling_pair *pairs, size_t n_pairs)
{
    pp_sampling_sums *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->columns = malloc(n * sizeof *columns);
    s->pairs = malloc(n_pairs * sizeof *pairs);
    assert_true(s->columns && s->pairs);
    memcpy(s->columns, columns, n * sizeof *columns);
    memcpy(s->pairs, pairs, n_pairs * sizeof *pairs);
    s->n = n;
    s->n_pairs = n_pairs;
    return s;
}

static void test_columns_of_a_key_are_one(void **state)
{
    (void)state;
    static const pp_sampling_key a = {.layer = 1}, b = {.layer = 2}, c = {.layer = 1, .gap = true};
    const pp_sampling_column mine[] = {{.key = b, .count = 1, .time = 10, .share = 3, .rhs = {1}},
                                       {.key = a, .count = 2, .time = 20, .share = 4, .rhs = {2}}};
    const pp_sampling_pair mine_pairs[] = {{0, 0, 1, 7, 0}, {0, 1, 2, 5, 6}, {1, 1, 3, 0, 0}};
    const pp_sampling_column other[] = {{.key = a, .count = 5, .time = 50, .share = 7, .rhs = {4}},
                                        {.key = c, .count = 6, .time = 60, .held = 1, .place = 9},
                                        {.key = b, .count = 7, .time = 70, .share = 8}};
    const pp_sampling_pair other_pairs[] = {{0, 1, 10, 0, 1}, {0, 2, 20, 2, 3}, {2, 2, 40, 4, 0}};
    pp_sampling_sums *into = make(mine, 2, mine_pairs, 3);
    pp_sampling_sums *from = make(other, 3, other_pairs, 3);
    into->known[0] = into->known[1] = from->known[0] = true;
    into->windows = 100, from->windows = 300;
    into->lag = 1000, from->lag = 2000;
    into->lag_stderr = 9, from->lag_stderr = 4;
    into->lag_common = 7, from->lag_common = 8;
    into->columns[1].rhs[1] = into->y[1] = into->yy[1] = into->held_y[1] = 5;
    into->y[0] = 1, from->yy[0] = 2, from->held_y[0] = 3, from->held_windows = 4;
    assert_int_equal(pp_sampling_sums_merge(into, from, NULL), 0);

    assert_int_equal(into->n, 3);
    assert_int_equal(into->columns[0].count, 8);
    assert_true(into->columns[0].time == 80 && into->columns[0].share == 11);
    assert_true(into->columns[1].time == 70 && into->columns[1].rhs[0] == 6);
    assert_true(into->columns[2].key.gap && into->columns[2].place == 9 &&
                into->columns[2].held == 1);
    /* a: 1, b: 0, c: 2; pairs ordered, each once */
    static const pp_sampling_pair expected[] = {
        {0, 0, 41, 11, 0}, {0, 1, 22, 8, 8}, {1, 1, 3, 0, 0}, {1, 2, 10, 0, 1}};
    assert_int_equal(into->n_pairs, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(into->pairs[i].a, expected[i].a);
        assert_int_equal(into->pairs[i].b, expected[i].b);
        assert_true(into->pairs[i].sum == expected[i].sum);
        assert_true(into->pairs[i].shift_a == expected[i].shift_a &&
                    into->pairs[i].shift_b == expected[i].shift_b);
    }
    assert_true(into->known[0] && !into->known[1]);
    for (size_t i = 0; i < into->n; i++) /* what one of the two does not know */
        assert_true(into->columns[i].rhs[1] == 0);
    assert_true(into->y[1] == 0 && into->yy[1] == 0 && into->held_y[1] == 0);
    assert_int_equal(into->windows, 400);
    assert_int_equal(into->held_windows, 4);
    assert_int_equal(into->lag, 1750);
    assert_int_equal(into->lag_stderr, 9);
    assert_int_equal(into->lag_common, 8);
    assert_true(into->y[0] == 1 && into->yy[0] == 2 && into->held_y[0] == 3);
    pp_sampling_sums_free(into);
    pp_sampling_sums_free(from);
}

/* A part near an end has the same name, however many there are; names are in order of time. */
/* What differs in some captures is alike to nothing. */
static void test_what_is_alike(void **state)
{
    (void)state;
    pp_sampling_column c = {0};
    pp_sampling_column_add(&c, &(pp_sampling_column){.like = 5, .count = 1});
    assert_int_equal(c.like, 5);
    pp_sampling_column_add(&c, &(pp_sampling_column){.like = 5, .count = 1});
    assert_int_equal(c.like, 5);
    pp_sampling_column_add(&c, &(pp_sampling_column){.like = 6, .count = 1});
    assert_int_equal(c.like, 0);
    pp_sampling_column_add(&c, &(pp_sampling_column){.like = 6, .count = 1});
    assert_int_equal(c.like, 0);
}

static void test_names_of_parts(void **state)
{
    (void)state;
    assert_int_equal(pp_sampling_part(0, 1), 0);
    for (uint32_t n = 2; n < 64; n++) {
        assert_int_equal(pp_sampling_part(0, n), 0);
        assert_int_equal(pp_sampling_part(n - 1, n), UINT16_MAX);
        for (uint32_t i = 1; i < n; i++)
            assert_true(pp_sampling_part(i, n) > pp_sampling_part(i - 1, n));
    }
    assert_int_equal(pp_sampling_part(15, 17), pp_sampling_part(16, 18));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns_of_a_key_are_one),
                                       cmocka_unit_test(test_what_is_alike),
                                       cmocka_unit_test(test_names_of_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
