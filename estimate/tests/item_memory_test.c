#include "common/tests/cmocka_all.h"
#include "estimate/items/item_memory.h"

enum { FORWARD, BACKWARD, OTHER, IDLE, JOB, ITEMS };

static char a[] = "a", b[] = "b", empty[] = "", gpu[] = "GPU-1", elsewhere[] = "GPU-2";

static void make_items(pp_estimates_item items[ITEMS])
{
    const pp_estimates_item made[ITEMS] = {
        [FORWARD] = {.kind = PP_ITEM_LAYER, .phase = PP_PHASE_FORWARD, .layer = b},
        [BACKWARD] = {.kind = PP_ITEM_LAYER, .phase = PP_PHASE_BACKWARD, .layer = b},
        [OTHER] = {.kind = PP_ITEM_OTHER, .phase = PP_PHASE_OTHER, .layer = empty},
        [IDLE] = {.kind = PP_ITEM_IDLE, .phase = PP_PHASE_IDLE, .layer = empty},
        [JOB] = {.kind = PP_ITEM_JOB, .phase = PP_PHASE_IDLE, .layer = empty}};
    for (int i = 0; i < ITEMS; i++)
        items[i] = made[i];
}

static void check(const pp_estimates_item *item, int64_t peak, int64_t live)
{
    assert_int_equal(item->memory_peak, peak);
    if (peak > 0)
        assert_int_equal(item->memory_live, live);
}

/* The most of any step, what a step leaves on average; of the GPU's processes alone, of each by its
 * own numbers of layers. */
static void test_items(void **state)
{
    (void)state;
    char *gpus[] = {gpu}, *others[] = {elsewhere};
    pp_activity_process processes[] = {
        {.gpus = {.items = gpus, .count = 1}, .memory_steps = 2},
        {.gpus = {.items = gpus, .count = 1}, .memory_steps = 1},
        {.gpus = {.items = others, .count = 1}, .memory_steps = 1},
        {.gpus = {.items = gpus, .count = 1}}, /* it tells nothing */
    };
    pp_activity_layer layers[] = {{.process = 0, .id = 1, .name = a},
                                  {.process = 0, .id = 2, .name = b},
                                  {.process = 1, .id = 1, .name = b},
                                  {.process = 2, .id = 2, .name = b}};
    pp_activity_memory memory[] = {
        {0, 2, PP_WIRE_FORWARD, 500, 40}, {0, 2, PP_WIRE_FORWARD, 700, 20},
        {0, 1, PP_WIRE_FORWARD, 900, 6}, /* an item that has no time */
        {1, 1, PP_WIRE_FORWARD, 600, 10}, {2, 2, PP_WIRE_FORWARD, 9000, 1000},
        {0, 0, PP_WIRE_OTHER, 300, -66},  {1, 0, PP_WIRE_OTHER, 200, -10},
    };
    pp_estimates_item items[ITEMS];
    pp_activity activity = {.processes = processes,
                            .n_processes = 4,
                            .layers = layers,
                            .n_layers = 4,
                            .memory = memory,
                            .n_memory = 7};
    pp_estimates e = {.gpu = gpu, .items = items, .n_items = ITEMS};
    make_items(items);
    assert_int_equal(pp_item_memory_fill(&activity, &e, NULL), 0);
    check(&items[FORWARD], 700, 20); /* (60 / 2 + 10) / 2 */
    check(&items[BACKWARD], 0, 0);
    check(&items[OTHER], 300, -22); /* (-33 - 10) / 2, half away from 0 */
    check(&items[IDLE], 0, 0);
    check(&items[JOB], 900, 0);
    activity.n_memory = 0;
    assert_int_equal(pp_item_memory_fill(&activity, &e, NULL), 0);
    check(&items[JOB], 0, 0);
}

/* A pod may say anything of itself: what is too much for the type ends there. */
static void test_levels_end_with_the_type(void **state)
{
    (void)state;
    enum { ROWS = 5000 };
    char *gpus[] = {gpu};
    pp_activity_process processes[] = {{.gpus = {.items = gpus, .count = 1}, .memory_steps = 1}};
    pp_activity_layer layers[] = {{.process = 0, .id = 1, .name = b}};
    pp_activity_memory memory[2 * ROWS];
    for (int i = 0; i < ROWS; i++) {
        memory[2 * i] =
            (pp_activity_memory){0, 1, PP_WIRE_FORWARD, PP_WIRE_MAX_COUNT, PP_WIRE_MAX_COUNT};
        memory[2 * i + 1] =
            (pp_activity_memory){0, 0, PP_WIRE_OTHER, PP_WIRE_MAX_COUNT, -PP_WIRE_MAX_COUNT};
    }
    pp_estimates_item items[ITEMS];
    const pp_activity activity = {.processes = processes,
                                  .n_processes = 1,
                                  .layers = layers,
                                  .n_layers = 1,
                                  .memory = memory,
                                  .n_memory = sizeof memory / sizeof *memory};
    pp_estimates e = {.gpu = gpu, .items = items, .n_items = ITEMS};
    make_items(items);
    assert_int_equal(pp_item_memory_fill(&activity, &e, NULL), 0);
    check(&items[FORWARD], PP_WIRE_MAX_COUNT, INT64_C(9000000000000000000));
    check(&items[OTHER], PP_WIRE_MAX_COUNT, INT64_C(-9000000000000000000));
    check(&items[JOB], PP_WIRE_MAX_COUNT, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_items),
                                       cmocka_unit_test(test_levels_end_with_the_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
