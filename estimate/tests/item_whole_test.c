#include "common/tests/cmocka_all.h"
#include "estimate/items/item_whole.h"

static char a[] = "a", b[] = "b", empty[] = "", gpu[] = "GPU-1", elsewhere[] = "GPU-2";

/* By name, in each phase; of the GPU's processes alone. */
static void test_items(void **state)
{
    (void)state;
    char *gpus[] = {gpu}, *others[] = {elsewhere};
    pp_activity_process processes[] = {{.gpus = {.items = gpus, .count = 1}},
                                       {.gpus = {.items = others, .count = 1}}};
    pp_activity_layer layers[] = {{.process = 0, .id = 1, .name = a, .whole_reason = 3},
                                  {.process = 0, .id = 2, .name = b},
                                  {.process = 0, .id = 3, .name = empty, .whole_reason = 3},
                                  {.process = 1, .id = 1, .name = b, .whole_reason = 3}};
    pp_estimates_item items[] = {
        {.kind = PP_ITEM_LAYER, .phase = PP_PHASE_FORWARD, .layer = a},
        {.kind = PP_ITEM_LAYER, .phase = PP_PHASE_BACKWARD, .layer = a},
        {.kind = PP_ITEM_LAYER, .phase = PP_PHASE_FORWARD, .layer = b},
        {.kind = PP_ITEM_OTHER, .phase = PP_PHASE_OTHER, .layer = empty},
    };
    const pp_activity activity = {
        .processes = processes, .n_processes = 2, .layers = layers, .n_layers = 4};
    pp_estimates e = {.gpu = gpu, .items = items, .n_items = 4};
    pp_item_whole_fill(&activity, &e);
    assert_string_equal(items[0].whole_reason, "no kernels were recorded");
    assert_ptr_equal(items[1].whole_reason, items[0].whole_reason);
    assert_null(items[2].whole_reason);
    assert_null(items[3].whole_reason);
}

/* Each of pp_whole_reason has words; a later agent's has none here. */
static void test_reasons(void **state)
{
    (void)state;
    enum { REASONS = 8 };
    char *gpus[] = {gpu};
    pp_activity_process process = {.gpus = {.items = gpus, .count = 1}};
    pp_activity_layer layer = {.id = 1, .name = a};
    pp_estimates_item item = {.kind = PP_ITEM_LAYER, .layer = a};
    const pp_activity activity = {
        .processes = &process, .n_processes = 1, .layers = &layer, .n_layers = 1};
    pp_estimates e = {.gpu = gpu, .items = &item, .n_items = 1};
    for (int reason = 0; reason < 256; reason++) {
        item.whole_reason = NULL;
        layer.whole_reason = (uint8_t)reason;
        pp_item_whole_fill(&activity, &e);
        assert_int_equal(item.whole_reason != NULL, reason >= 1 && reason <= REASONS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
