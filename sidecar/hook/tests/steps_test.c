/* Trainings of all kinds as optimizers' steps, forwards and backwards: are their steps found? */
#include "common/tests/cmocka_all.h"

#include "sidecar/hook/marks/steps.h"
#include <string.h>

typedef struct training {
    pp_steps steps;
    int64_t sequence, backward;
    bool nodes_unknown;     /* torch before 2.1 */
    bool backwards_unknown; /* torch before 2.0 */
    int found;              /* steps, late ones too */
    int here;               /* of them those that were seen to end with the latest event */
    int late;
    int unseen; /* ends that were seen with the next event only */
} training;

static void step(training *t, int64_t optimizer, bool in_backward)
{
    const pp_steps_event event = {.optimizer = optimizer,
                                  .sequence = t->nodes_unknown ? -1 : t->sequence,
                                  .backward =
                                      in_backward && !t->backwards_unknown ? t->backward : -1};
    const pp_steps_ends ends = pp_steps_take(&t->steps, &event);
    t->found += ends.before + ends.here;
    t->here = ends.here;
    t->late += ends.late;
    t->unseen += ends.before;
}

/* What a loop does, a letter each: F a forward, B its backward, upper-case optimizers P to Z step,
 * lower-case p to z step within the latest backward. */
static void run(training *t, const char *does)
{
    for (; *does; does++) {
        if (*does == 'F')
            t->sequence += 7;
        else if (*does == 'B')
            t->backward++;
        else
            step(t, *does, *does >= 'p');
    }
}

/* So many iterations of a loop; how many steps were found, and whether each ended with the loop. */
static int loop(training *t, const char *does, int times, bool ends_with_loop)
{
    const int before = t->found;
    for (int i = 0; i < times; i++) {
        run(t, does);
        if (ends_with_loop)
            assert_true(t->here);
    }
    return t->found - before;
}

typedef struct pattern {
    const char *name;
    const char *does;
    int learning;      /* iterations until boundaries are known */
    int counted;       /* steps found in these */
    int an_iteration;  /* steps of an iteration */
    bool ends_with_it; /* a step ends where the iteration does */
} pattern;

static void test_patterns(void **state)
{
    (void)state;
    static const pattern patterns[] = {
        {"one optimizer", "FBQ", 1, 1, 1, true},
        {"accumulation", "FBFBFBQ", 1, 1, 1, true},
        {"two optimizers, one after the other", "FBPQ", 1, 1, 1, true},
        {"one called for each of three groups", "FBQQQ", 1, 1, 1, true},
        {"a closure that is called three times", "FBFBFBQ", 1, 1, 1, true},
        {"a GAN", "FBPFBQ", 1, 1, 1, false},
        {"a GAN whose critic steps five times", "FBQFBQFBQFBQFBQFBP", 1, 5, 5, false},
        {"six optimizers within backward", "FBpqrstu", 1, 1, 1, true},
        {"within backward, and one behind it", "FBpqrQ", 1, 1, 1, true},
        {"a forward that a penalty differentiates", "FBFBQ", 1, 1, 1, true},
    };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const pattern *p = &patterns[i];
        training t = {.sequence = 1};
        print_message("%s\n", p->name);
        assert_int_equal(loop(&t, p->does, p->learning, false), p->counted);
        t.late = 0;
        assert_int_equal(loop(&t, p->does, 500, p->ends_with_it), 500 * p->an_iteration);
        assert_int_equal(t.late, 0);
    }
}

/* It is no reason to look for each step's end at another optimizer than before. */
static void test_an_optimizer_that_joins_now_and_then(void **state)
{
    (void)state;
    static const char *const patterns[] = {"FBPFBPQ", "FBPFBPFBPQ", "FBPQFBP"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        training t = {.sequence = 1};
        (void)loop(&t, patterns[i], 2, false);
        t.unseen = 0;
        const int iterations = (int)(strlen(patterns[i]) / 3);
        assert_int_equal(loop(&t, patterns[i], 200, false), 200 * iterations);
        assert_int_equal(t.unseen, 0);
    }
}

/* More than are told apart. */
static void test_an_optimizer_for_each_of_a_thousand_parameters(void **state)
{
    (void)state;
    training t = {.sequence = 1};
    for (int i = 0; i < 100; i++) {
        run(&t, "FB");
        for (int64_t j = 0; j < 1000; j++)
            step(&t, j, true);
        assert_true(i == 0 || t.here);
    }
    assert_int_equal(t.found, 100);
}

/* Of some steps a parameter has no gradient: its optimizer does not step. */
static void test_a_burst_that_varies(void **state)
{
    (void)state;
    training t = {.sequence = 1};
    (void)loop(&t, "FBpqrst", 10, false);
    for (int i = 0; i < 100; i++)
        run(&t, i % 3 == 0 ? "FBpqrs" : "FBpqrst");
    run(&t, "FBpqrst");
    assert_in_range(t.found, 110, 111);
}

static void test_optimizers_made_anew(void **state)
{
    (void)state;
    training t = {.sequence = 1};
    for (int64_t trial = 0; trial < 6; trial++)
        for (int i = 0; i < 20; i++) {
            run(&t, "FB");
            step(&t, 1000 + trial, false);
            assert_true(i < 2 || t.here);
        }
    assert_int_equal(t.found, 120);
}

static void test_one_training_after_another(void **state)
{
    (void)state;
    training t = {.sequence = 1};
    (void)loop(&t, "FBQ", 50, false);
    (void)loop(&t, "FBRS", 50, false);
    (void)loop(&t, "FBpqr", 50, false);
    (void)loop(&t, "FBQQ", 50, false);
    assert_in_range(t.found, 199, 201);
    (void)loop(&t, "FBQQ", 1, true);
}

/* Forwards in another thread, or replayed as a graph: this thread makes no nodes. */
static void test_nodes_that_are_not_seen(void **state)
{
    (void)state;
    training t = {.sequence = 1};
    (void)loop(&t, "Q", 40, false);
    assert_int_equal(loop(&t, "Q", 500, true), 500);
    assert_int_equal(loop(&t, "FBQ", 100, true), 100);
    training two = {.sequence = 1};
    (void)loop(&two, "PQ", 40, false);
    assert_int_equal(loop(&two, "PQ", 500, true), 500);
}

/* There the optimizer that comes again begins a step. */
static void test_old_torch(void **state)
{
    (void)state;
    static const char *const patterns[] = {"FBQ", "FBPQ", "FBPFBQ", "FBFBQ", "FBpqrstu"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        training t = {.sequence = 1, .nodes_unknown = true, .backwards_unknown = true};
        (void)loop(&t, patterns[i], 3, false);
        assert_int_equal(loop(&t, patterns[i], 500, true), 500);
    }
    training t = {.sequence = 1, .nodes_unknown = true, .backwards_unknown = true};
    for (int64_t trial = 0; trial < 6; trial++)
        for (int i = 0; i < 20; i++)
            step(&t, 1000 + trial, false);
    assert_in_range(t.found, 114, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_an_optimizer_for_each_of_a_thousand_parameters),
        cmocka_unit_test(test_an_optimizer_that_joins_now_and_then),
        cmocka_unit_test(test_a_burst_that_varies),
        cmocka_unit_test(test_optimizers_made_anew),
        cmocka_unit_test(test_one_training_after_another),
        cmocka_unit_test(test_nodes_that_are_not_seen),
        cmocka_unit_test(test_old_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
