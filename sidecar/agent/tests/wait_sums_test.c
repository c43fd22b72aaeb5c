#include "common/tests/cmocka_all.h"
#include "sidecar/agent/wait_sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F = PP_MARK_FORWARD, OTHER = PP_MARK_OTHER };

/* Lines 1 and 2 are of one file, 3 of one that no message may hold as it is. */
static int site(void *user, uint32_t number, pp_ring_site *ret, pp_error *err)
{
    (void)user;
    (void)err;
    *ret = (pp_ring_site){.line = 40 + number};
    (void)snprintf(ret->file, sizeof ret->file, "%s", number < 3 ? "train.py" : "a\nb\xff.py");
    return 0;
}

static pp_wire_waits copy_part(pp_wait_sums *s, size_t room, size_t *at)
{
    pp_wire_waits ret;
    pp_error err = {0};
    assert_int_equal(pp_wait_sums_copy(s, room, at, site, NULL, &ret, &err), 0);
    return ret;
}

static pp_wire_waits copy(pp_wait_sums *s)
{
    size_t at = 0;
    pp_wire_waits ret = copy_part(s, 1 << 24, &at);
    assert_true(at == SIZE_MAX);
    return ret;
}

static void done(pp_wire_waits *w)
{
    pp_strings_free(&w->calls);
    pp_strings_free(&w->files);
    free(w->rows);
}

static void add(pp_wait_sums *s, pp_wait *waits, size_t n)
{
    pp_wait_sums_add(s, &(pp_step){.waits = waits, .wait_count = n});
}

static void assert_row(const pp_wire_waits *w, size_t i, const char *call, const char *file,
                       const pp_wire_wait *expected)
{
    assert_true(i < w->count);
    const pp_wire_wait *row = &w->rows[i];
    assert_string_equal(w->calls.items[row->call], call);
    assert_string_equal(w->files.items[row->file], file);
    assert_int_equal(row->layer, expected->layer);
    assert_int_equal(row->phase, expected->phase);
    assert_int_equal(row->line, expected->line);
    assert_int_equal(row->count, expected->count);
    assert_int_equal(row->steps, expected->steps);
    assert_int_equal(row->duration, expected->duration);
}

static void test_sums_of_steps(void **state)
{
    (void)state;
    pp_wait_sums *s = pp_wait_sums_new();
    pp_wait first[] = {
        {.phase = OTHER, .call = PP_WAIT_BOOL, .site = 3, .count = 2, .ns = 10},
        {.layer = 4, .phase = F, .call = PP_WAIT_ITEM, .site = 1, .count = 1, .ns = 100},
        {.layer = 4, .phase = F, .call = PP_WAIT_ITEM, .site = 1, .count = 7, .ns = 1}};
    pp_wait third[] = {
        {.layer = 4, .phase = F, .call = PP_WAIT_ITEM, .site = 1, .count = 1, .ns = 5},
        {.layer = 4, .phase = F, .call = PP_WAIT_ITEM, .site = 2, .count = 1, .ns = 3},
        {.layer = 4, .phase = F, .call = PP_WAIT_ITEM, .count = 1, .ns = 4}};
    add(s, first, 3);
    add(s, NULL, 0);
    add(s, third, 3);
    pp_wire_waits w = copy(s);
    assert_int_equal(w.steps, 3);
    assert_int_equal(w.count, 4);
    assert_int_equal(w.files.count, 3);
    assert_row(&w, 0, "bool", "a?b?.py", &(pp_wire_wait){0, PP_WIRE_OTHER, 0, 0, 43, 2, 1, 10});
    assert_row(&w, 1, "item", "", &(pp_wire_wait){4, PP_WIRE_FORWARD, 0, 0, 0, 1, 1, 4});
    assert_row(&w, 2, "item", "train.py", &(pp_wire_wait){4, PP_WIRE_FORWARD, 0, 0, 41, 9, 2, 106});
    assert_row(&w, 3, "item", "train.py", &(pp_wire_wait){4, PP_WIRE_FORWARD, 0, 0, 42, 1, 1, 3});
    done(&w);
    pp_wait_sums_free(s);
}

/* Steps are counted from the first on; one that never waits has nothing to tell. */
static void test_steps_without_waits(void **state)
{
    (void)state;
    pp_wait_sums *s = pp_wait_sums_new();
    pp_wait wait = {.phase = OTHER, .call = PP_WAIT_ITEM, .count = 1, .ns = 1};
    add(s, NULL, 0);
    assert_false(pp_wait_sums_due(s));
    pp_wire_waits w = copy(s);
    assert_true(w.steps == 0 && w.count == 0);
    done(&w);
    add(s, &wait, 1);
    assert_true(pp_wait_sums_due(s));
    w = copy(s);
    assert_int_equal(w.steps, 2);
    done(&w);
    pp_wait_sums_clear(s);
    assert_false(pp_wait_sums_due(s));
    add(s, NULL, 0); /* its steps are those of waits that were told */
    w = copy(s);
    assert_true(w.steps == 1 && w.count == 0);
    done(&w);
    pp_wait_sums_forget(s);
    add(s, NULL, 0);
    assert_false(pp_wait_sums_due(s));
    pp_wait_sums_free(s);
}

static void test_parts(void **state)
{
    (void)state;
    enum { N = 300 };
    static pp_wait waits[N];
    for (uint32_t i = 0; i < N; i++)
        waits[i] = (pp_wait){.layer = i + 1, .phase = F, .call = PP_WAIT_CPU, .count = 1, .ns = i};
    pp_wait_sums *s = pp_wait_sums_new();
    add(s, waits, N);
    size_t at = 0, parts = 0, rows = 0;
    int64_t steps = 0, ns = 0;
    for (; at != SIZE_MAX; parts++) {
        pp_wire_waits w = copy_part(s, 50000, &at);
        for (size_t i = 0; i < w.count; i++)
            ns += w.rows[i].duration;
        assert_true(w.count > 0 && (parts == 0) == (w.steps > 0));
        rows += w.count;
        steps += w.steps;
        done(&w);
    }
    assert_true(parts > 2 && rows == N && steps == 1 && ns == N * (N - 1) / 2);
    pp_wait_sums_free(s);
}

/* Beyond so many rows those of a call are one, of no line; and beyond twice as many in none. */
static void test_too_many(void **state)
{
    (void)state;
    static pp_wait waits[2 * PP_RING_LAYERS];
    size_t n = 0;
    for (uint32_t layer = 1; layer <= PP_RING_LAYERS; layer++)
        for (uint32_t line = 1; line <= 2; line++)
            waits[n++] = (pp_wait){.layer = layer, .phase = F, .site = line, .count = 1, .ns = 1};
    pp_wait_sums *s = pp_wait_sums_new();
    add(s, waits, n);
    add(s, waits, n);
    assert_int_equal(pp_wait_sums_untold(s), 0);
    size_t at = 0;
    pp_wire_waits w = copy_part(s, 1 << 24, &at);
    int64_t count = 0;
    for (size_t i = 0; i < w.count; i++)
        count += w.rows[i].count;
    assert_int_equal(count, 2 * n);
    assert_int_equal(w.count, PP_WAIT_SUMS_MAX + PP_RING_LAYERS / 2);
    done(&w);
    for (size_t i = 0; i < n; i++)
        waits[i].call = PP_WAIT_CPU;
    add(s, waits, n);
    assert_int_equal(pp_wait_sums_untold(s),
                     2 * PP_RING_LAYERS -
                         2 * (2 * PP_WAIT_SUMS_MAX - PP_WAIT_SUMS_MAX - PP_RING_LAYERS / 2));
    pp_wait_sums_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_steps),
        cmocka_unit_test(test_steps_without_waits),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
