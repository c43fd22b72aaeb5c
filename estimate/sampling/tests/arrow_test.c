/* A bordered matrix solves as the same one written out in full does. */
#include "common/tests/cmocka_all.h"
#include "common/tests/random.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 60,
    TOGETHER = 3, /* columns, and rows of the border that they have entries in */
    GROUPS = 7,
    BORDER = GROUPS * TOGETHER,
    ROWS = COLUMNS + BORDER,
    REACH = 4
};

typedef struct system {
    pp_arrow arrow;
    double full[ROWS][ROWS];
} system_of;

static void add(system_of *s, size_t i, size_t j, double value)
{
    pp_arrow_add(&s->arrow, i, j, value);
    s->full[i][j] += value;
    if (i != j)
        s->full[j][i] += value;
}

/* The square of what some values add up to, as a term of the prior is. */
static void add_square(system_of *s, const size_t *at, const double *times, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            add(s, at[i], at[j], times[i] * times[j]);
}

/* Three columns are like three rows of the border, together, and next to each other like these. */
static void be_alike(system_of *s, size_t column, size_t row)
{
    const size_t all[] = {column, column + 1, column + 2, row, row + 1, row + 2};
    add_square(s, all, (double[]){0.2, 0.5, 0.3, -0.2, -0.5, -0.3}, 2 * TOGETHER);
    for (size_t i = 0; i + 1 < TOGETHER; i++)
        add_square(s, (size_t[]){all[i], all[i + 1], row + i, row + i + 1},
                   (double[]){1, -1, -1, 1}, 4);
}

/* Columns are like those beside them, three in a row like one group of the border's; some like
 * none.
 */
static void fill(system_of *s, const size_t *group, uint64_t *rng)
{
    for (size_t i = 0; i < ROWS; i++)
        add(s, i, i, 0.1 + sim_uniform(rng));
    for (size_t i = REACH; i < COLUMNS; i++)
        for (size_t j = i - REACH; j < i; j++)
            add_square(s, (size_t[]){i, j}, (double[]){1, -sim_uniform(rng)}, 2);
    for (size_t i = 0; i < COLUMNS / TOGETHER; i++)
        if (group[i] < GROUPS)
            be_alike(s, i * TOGETHER, COLUMNS + group[i] * TOGETHER);
    for (size_t i = COLUMNS + 1; i < ROWS; i++)
        add_square(s, (size_t[]){i - 1, i}, (double[]){1, -sim_uniform(rng)}, 2);
}

static pp_arrow_span *draw_spans(size_t *group, uint64_t *rng)
{
    pp_arrow_span *spans = calloc(COLUMNS, sizeof *spans);
    assert_non_null(spans);
    for (size_t i = 0; i < COLUMNS / TOGETHER; i++) {
        group[i] = (size_t)(sim_uniform(rng) * (GROUPS + 2));
        for (size_t k = 0; k < TOGETHER && group[i] < GROUPS; k++)
            spans[i * TOGETHER + k] = (pp_arrow_span){(uint32_t)group[i] * TOGETHER, TOGETHER};
    }
    return spans;
}

/* The largest that is left of b - A x. */
static double left(const system_of *s, const double *b, const double *x)
{
    double most = 0;
    for (size_t i = 0; i < ROWS; i++) {
        double rest = b[i];
        for (size_t j = 0; j < ROWS; j++)
            rest -= s->full[i][j] * x[j];
        most = fmax(most, fabs(rest));
    }
    return most;
}

static void test_solves(void **state)
{
    (void)state;
    pp_error err = {0};
    uint64_t rng = 5;
    system_of s = {0};
    size_t group[COLUMNS / TOGETHER];
    uint32_t *first = malloc(COLUMNS * sizeof *first);
    pp_arrow_span *spans = draw_spans(group, &rng);
    for (uint32_t i = 0; i < COLUMNS; i++)
        first[i] = i < REACH ? 0 : i - REACH;
    assert_int_equal(pp_arrow_init(&s.arrow, COLUMNS, BORDER, first, spans, 10000, &err), 0);
    for (int round = 0; round < 3; round++) {
        double b[ROWS], x[ROWS];
        pp_arrow_clear(&s.arrow);
        memset(s.full, 0, sizeof s.full);
        fill(&s, group, &rng);
        assert_true(pp_arrow_factor(&s.arrow));
        for (size_t i = 0; i < ROWS; i++)
            x[i] = b[i] = sim_normal(&rng);
        pp_arrow_solve(&s.arrow, x);
        assert_true(left(&s, b, x) < 1e-9);
    }
    pp_arrow_free(&s.arrow);
}

static void test_what_is_not_positive_definite_is_refused(void **state)
{
    (void)state;
    pp_error err = {0};
    system_of s = {0};
    uint32_t *first = calloc(2, sizeof *first);
    pp_arrow_span *spans = calloc(2, sizeof *spans);
    assert_non_null(spans);
    spans[0] = (pp_arrow_span){0, 1};
    assert_int_equal(pp_arrow_init(&s.arrow, 2, 1, first, spans, 10, &err), 0);
    pp_arrow_add(&s.arrow, 0, 0, 1);
    pp_arrow_add(&s.arrow, 1, 1, 1);
    pp_arrow_add(&s.arrow, 0, 2, 2);
    pp_arrow_add(&s.arrow, 2, 2, 3); /* less than 2 squared */
    assert_false(pp_arrow_factor(&s.arrow));
    pp_arrow_free(&s.arrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solves),
        cmocka_unit_test(test_what_is_not_positive_definite_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
