/* Graphs, names and runs go in, as the ring has them; whose each kernel is comes out. */
#include "sidecar/agent/graphs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 9, REGION = 1, OTHER_REGION = 5 };

static const char names[] = "triton_a\0triton_b\0nvjet_gemm"; /* 1, 2, 3 */

static pp_ring_launch written(const char *name, uint32_t layer)
{
    return (pp_ring_launch){.name = pp_ring_hash(name, strlen(name)), .layer = layer};
}

static void add(pp_graphs *g, uint32_t number, uint32_t region, const pp_ring_launch *launches,
                uint32_t count)
{
    pp_error err = {0};
    const pp_ring_graph graph = {.graph = number, .region = region, .count = count};
    assert_int_equal(pp_graphs_add(g, &graph, launches, LAYERS, &err), 0);
}

/* Graph 7: triton_a of layer 2, a product of 3, triton_b of the region's own. In the other region
 * these are layers 6 and 7. */
static pp_graphs *filled(void)
{
    pp_error err = {0};
    pp_graphs *g = pp_graphs_new();
    /* In parts, as they come. */
    assert_int_equal(pp_graphs_name(g, names, 11, &err), 0);
    assert_int_equal(pp_graphs_named(g), 11);
    assert_int_equal(pp_graphs_name(g, names + 11, sizeof names - 11, &err), 0);
    const pp_ring_launch here[] = {
        written("triton_a", 2), {.op = PP_OP_PRODUCT, .layer = 3}, written("triton_b", REGION)};
    const pp_ring_launch there[] = {written("triton_a", 6),
                                    {.op = PP_OP_PRODUCT, .layer = 7},
                                    written("triton_b", OTHER_REGION)};
    add(g, 7, REGION, here, 3);
    add(g, 7, OTHER_REGION, there, 3);
    return g;
}

static pp_graphs_kernel kernel(int64_t launched, uint32_t name, uint32_t in, uint8_t thread)
{
    return (pp_graphs_kernel){
        .launched = launched, .name = name, .in = in, .thread = thread, .layer = 99, .run = 99};
}

static void tell(pp_graphs *g, const pp_graph_run *runs, size_t count, pp_graphs_kernel *kernels,
                 size_t n)
{
    pp_error err = {0};
    assert_int_equal(pp_graphs_tell(g, runs, count, kernels, n, &err), 0);
}

static void check(const pp_graphs_kernel *kernel, uint32_t layer, uint32_t run)
{
    assert_int_equal(kernel->layer, layer);
    if (layer)
        assert_int_equal(kernel->run, run);
}

static void test_a_graph_that_two_regions_run(void **state)
{
    (void)state;
    pp_graphs *g = filled();
    const pp_graph_run runs[] = {{10, 20, 7, 1}, {30, 40, 7, 1}};
    pp_graphs_kernel kernels[] = {
        kernel(9, 1, REGION, 1),        kernel(10, 1, REGION, 1),       kernel(12, 3, REGION, 0),
        kernel(13, 1, REGION, 2),       kernel(20, 2, REGION, 1),       kernel(25, 3, REGION, 1),
        kernel(30, 1, OTHER_REGION, 1), kernel(31, 3, OTHER_REGION, 1), kernel(32, 3, 0, 1),
        kernel(33, 2, OTHER_REGION, 1)};
    tell(g, runs, 2, kernels, 10);
    check(&kernels[0], 0, 0); /* before */
    check(&kernels[1], 2, 1);
    check(&kernels[2], 3, 1);
    check(&kernels[3], 0, 0); /* of another thread */
    check(&kernels[4], 0, 1); /* the region's own */
    check(&kernels[5], 0, 0); /* between */
    check(&kernels[6], 6, 2);
    check(&kernels[7], 7, 2);
    check(&kernels[8], 0, 0); /* a copy */
    check(&kernels[9], 0, 2);
    const pp_graphs_told told = pp_graphs_so_far(g);
    assert_true(told.runs == 2 && told.unknown == 0 && told.unfit == 0);
    assert_int_equal(pp_graphs_why(g, REGION), PP_WHOLE_NOT);
    pp_graphs_free(g);
}

static void test_runs_that_are_not_told(void **state)
{
    (void)state;
    pp_graphs *g = filled();
    const pp_graph_run runs[] = {{10, 20, 0, 1}, {30, 40, 8, 1}, {50, 60, 7, 1},
                                 {70, 80, 7, 1}, {90, 95, 7, 1}, {100, 110, 7, 1}};
    pp_graphs_kernel kernels[] = {kernel(10, 1, REGION, 1), kernel(30, 1, REGION, 1),
                                  kernel(50, 1, 4, 1),      kernel(70, 2, REGION, 1),
                                  kernel(71, 1, REGION, 1), kernel(100, 1, REGION, 1),
                                  kernel(101, 2, 4, 1)};
    tell(g, runs, 6, kernels, 7);
    for (size_t i = 0; i < 7; i++)
        check(&kernels[i], 0, 0);
    const pp_graphs_told told = pp_graphs_so_far(g);
    assert_int_equal(told.runs, 5);    /* without the one that launched nothing */
    assert_int_equal(told.unknown, 4); /* of no graph, of another, in others' pieces, in several */
    assert_int_equal(told.unfit, 1);
    assert_int_equal(pp_graphs_why(g, REGION), PP_WHOLE_UNFIT);
    assert_int_equal(pp_graphs_why(g, 4), PP_WHOLE_SHARED);
    assert_int_equal(pp_graphs_why(g, OTHER_REGION), PP_WHOLE_NOT);
    assert_int_equal(pp_graphs_why(g, PP_RING_LAYERS + 1), PP_WHOLE_NOT);
    pp_graphs_free(g);
}

static void test_why_a_region_is_whole(void **state)
{
    (void)state;
    static const struct {
        uint32_t graph, name;
        uint8_t why;
    } cases[] = {{0, 1, PP_WHOLE_UNRECORDED}, {8, 1, PP_WHOLE_SHARED}, {7, 2, PP_WHOLE_UNFIT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_graphs *g = filled();
        const pp_graph_run run = {10, 20, cases[i].graph, 1};
        pp_graphs_kernel one[] = {kernel(10, cases[i].name, REGION, 1)};
        assert_int_equal(pp_graphs_why(g, REGION), PP_WHOLE_NOT);
        tell(g, &run, 1, one, 1);
        assert_int_equal(pp_graphs_why(g, REGION), cases[i].why);
        pp_graphs_free(g);
    }
}

/* A run around one that was looked at is none: the marks of a run come as it ends. */
static void test_runs_within_runs(void **state)
{
    (void)state;
    pp_graphs *g = filled();
    const pp_graph_run runs[] = {{12, 18, 7, 1}, {10, 20, 7, 1}, {15, 30, 7, 2}};
    pp_graphs_kernel kernels[] = {kernel(12, 1, REGION, 1), kernel(13, 3, REGION, 1),
                                  kernel(14, 2, REGION, 1), kernel(19, 1, REGION, 1)};
    tell(g, runs, 3, kernels, 4);
    check(&kernels[0], 2, 1);
    check(&kernels[1], 3, 1);
    check(&kernels[3], 0, 0);
    pp_graphs_free(g);
}

/* Where it is not known which thread launched a kernel, runs of two threads at once are not told.
 */
static void test_runs_side_by_side(void **state)
{
    (void)state;
    pp_graphs *g = filled();
    const pp_ring_launch library[] = {{.op = PP_OP_PRODUCT, .layer = 9}};
    add(g, 8, REGION, library, 1);
    const pp_graph_run runs[] = {{10, 20, 7, 1}, {12, 30, 8, 2}, {40, 50, 7, 1}, {51, 60, 8, 2}};
    pp_graphs_kernel unknown[] = {kernel(10, 1, REGION, 0), kernel(13, 3, REGION, 0),
                                  kernel(14, 2, REGION, 0), kernel(25, 3, REGION, 0),
                                  kernel(40, 1, REGION, 0), kernel(41, 3, REGION, 0),
                                  kernel(42, 2, REGION, 0), kernel(52, 3, REGION, 0)};
    tell(g, runs, 4, unknown, 8);
    for (size_t i = 0; i < 4; i++)
        check(&unknown[i], 0, 0);
    check(&unknown[4], 2, 3);
    check(&unknown[5], 3, 3);
    check(&unknown[7], 9, 4);
    pp_graphs_kernel known[] = {kernel(10, 1, REGION, 1), kernel(13, 3, REGION, 1),
                                kernel(14, 2, REGION, 1), kernel(15, 3, REGION, 2)};
    tell(g, runs, 2, known, 4);
    check(&known[0], 2, 1);
    check(&known[1], 3, 1);
    check(&known[3], 9, 2);
    pp_graphs_free(g);
}

static void test_hostile_tables(void **state)
{
    (void)state;
    pp_error err = {0};
    pp_graphs *g = filled();
    const pp_ring_launch beyond[] = {written("triton_a", LAYERS + 1)};
    const pp_ring_launch none[] = {written("triton_a", 0)};
    const pp_ring_launch fine[] = {written("triton_a", 4)};
    add(g, 9, REGION, beyond, 1);
    add(g, 10, REGION, none, 1);
    add(g, 11, REGION, NULL, 0);
    add(g, 12, REGION, fine, 1);
    add(g, 14, 0, (pp_ring_launch[]){written("triton_a", 4), written("triton_a", 4)}, 2);
    add(g, 12, REGION, beyond, 1); /* told anew: what came last counts */
    /* No more launches than the ring has, however often the same are told. */
    pp_ring_launch *many = calloc(PP_RING_LAUNCHES, sizeof *many);
    for (size_t i = 0; i < PP_RING_LAUNCHES; i++)
        many[i] = written("triton_a", 4);
    add(g, 13, REGION, many, PP_RING_LAUNCHES);
    assert_int_equal(pp_graphs_count(g), 9);
    free(many);
    const pp_graph_run runs[] = {{1, 2, 9, 1},   {3, 4, 10, 1}, {5, 6, 11, 1},  {7, 8, 12, 1},
                                 {9, 10, 13, 1}, {11, 3, 7, 1}, {20, 30, 14, 1}};
    pp_graphs_kernel kernels[] = {kernel(1, 1, REGION, 1),  kernel(3, 1, REGION, 1),
                                  kernel(5, 1, REGION, 1),  kernel(7, 1, REGION, 1),
                                  kernel(9, 1, REGION, 1),  kernel(11, 4000, REGION, 1),
                                  kernel(20, 1, REGION, 1), kernel(21, 1, OTHER_REGION, 1)};
    tell(g, runs, 7, kernels, 8);
    for (size_t i = 0; i < 8; i++)
        check(&kernels[i], 0, 0);
    assert_int_equal(pp_graphs_so_far(g).unknown, 6);
    /* A name without an end takes no room beyond that of one. */
    char *endless = malloc(3 * PP_RING_KERNEL_NAME);
    memset(endless, 'x', 3 * PP_RING_KERNEL_NAME);
    assert_int_equal(pp_graphs_name(g, endless, 3 * PP_RING_KERNEL_NAME, &err), 0);
    assert_int_equal(pp_graphs_name(g, "", 1, &err), 0);
    free(endless);
    pp_graphs_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_graph_that_two_regions_run),
        cmocka_unit_test(test_runs_that_are_not_told),
        cmocka_unit_test(test_why_a_region_is_whole),
        cmocka_unit_test(test_runs_within_runs),
        cmocka_unit_test(test_runs_side_by_side),
        cmocka_unit_test(test_hostile_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
