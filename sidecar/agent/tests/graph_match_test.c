/* Kernels of a run go in, beside what the compiler has recorded; their layers come out. */
#include "sidecar/agent/graph_match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 16, UNTOLD = 0 };

#define GEMM "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT"
#define PARTS "void cublasLt::splitKreduce_kernel<32, 16, int, float>"
#define FLASH                                                                                      \
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>"
#define CONV "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64"
#define TURN "void cudnn::ops::nchwToNhwcKernel<float, float, float>"
#define COPY "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"
#define FILL "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"

static pp_ring_launch written(const char *name, uint32_t layer)
{
    return (pp_ring_launch){.name = pp_ring_hash(name, strlen(name)), .layer = layer};
}

static pp_ring_launch call(pp_ring_op op, uint32_t layer)
{
    return (pp_ring_launch){.op = op, .layer = layer};
}

#define SUM_KERNEL "_ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpIfNS0_14func_wrapper_t"
#define CAST "void at::native::unrolled_elementwise_kernel<bfloat16tofloat32_kernel_cuda>"

#define SUM(layer) call(PP_OP_SUM, layer)
#define PRODUCT(layer) call(PP_OP_PRODUCT, layer)
#define ATTENTION(layer) call(PP_OP_ATTENTION, layer)
#define CONVOLUTION(layer) call(PP_OP_CONVOLUTION, layer)
#define OTHER(layer) call(PP_OP_UNKNOWN, layer)
#define COUNT(of) (sizeof(of) / sizeof *(of))

/* Whether these are a run, and the layers that they are told as. */
static bool told(const pp_ring_launch *launches, size_t count, const char *const *names, size_t n,
                 uint32_t *ret)
{
    pp_graph_kernel kernels[MOST];
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++)
        kernels[i] = (pp_graph_kernel){pp_ring_hash(names[i], strlen(names[i])),
                                       pp_kernel_kind_of(names[i])};
    memset(ret, 0xFF, MOST * sizeof *ret);
    return pp_graph_match(launches, count, kernels, n, ret);
}

#define CHECK(launches, names, ...)                                                                \
    do {                                                                                           \
        const uint32_t expected_[] = {__VA_ARGS__};                                                \
        uint32_t layers_[MOST];                                                                    \
        _Static_assert(COUNT(expected_) == COUNT(names), "a layer of each");                       \
        assert_true(told(launches, COUNT(launches), names, COUNT(names), layers_));                \
        assert_memory_equal(layers_, expected_, sizeof expected_);                                 \
    } while (0)

/* And every kernel is the region's. */
#define CHECK_UNFIT(launches, names)                                                               \
    do {                                                                                           \
        const uint32_t none_[MOST] = {0};                                                          \
        uint32_t layers_[MOST];                                                                    \
        assert_false(told(launches, COUNT(launches), names, COUNT(names), layers_));               \
        assert_memory_equal(layers_, none_, COUNT(names) * sizeof *none_);                         \
    } while (0)

static void test_names_say_what_a_kernel_is(void **state)
{
    (void)state;
    assert_int_equal(pp_kernel_kind_of("triton_poi_fused_gelu_2"), PP_KIND_WRITTEN);
    assert_int_equal(pp_kernel_kind_of("my_triton_poi_fused_gelu_2"), PP_KIND_OTHER);
    assert_int_equal(pp_kernel_kind_of(GEMM), PP_KIND_PRODUCT);
    assert_int_equal(pp_kernel_kind_of(PARTS), PP_KIND_PARTS);
    assert_int_equal(pp_kernel_kind_of(FLASH), PP_KIND_ATTENTION);
    assert_int_equal(pp_kernel_kind_of("_ZN5cudnn6fusion28compute_dot_do_o_specializedILb1E"),
                     PP_KIND_ATTENTION);
    assert_int_equal(pp_kernel_kind_of("_ZN5cudnn6fusion20convert_dq_to_16bitsILb1E"),
                     PP_KIND_ATTENTION);
    assert_int_equal(pp_kernel_kind_of(COPY), PP_KIND_COPY);
    assert_int_equal(pp_kernel_kind_of(FILL), PP_KIND_COPY);
    assert_int_equal(pp_kernel_kind_of(SUM_KERNEL), PP_KIND_SUM);
    assert_int_equal(pp_kernel_kind_of("_ZN8cublasLt19splitKreduce_kernelI"), PP_KIND_PARTS);
    assert_int_equal(pp_kernel_kind_of(CAST), PP_KIND_OTHER);
    assert_int_equal(pp_kernel_kind_of(""), PP_KIND_OTHER);
}

/* One name may stand in several places: its order says which. */
static void test_written_kernels_are_told_by_their_order(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {written("triton_a", 1), written("triton_b", 2),
                                       written("triton_a", 3), written("triton_b", 4)};
    const char *const names[] = {"triton_a", "triton_b", "triton_a", "triton_b"};
    CHECK(launches, names, 1, 2, 3, 4);
}

static void test_another_graph_s_run_is_not_told(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {written("triton_a", 1), PRODUCT(2), written("triton_b", 3)};
    const char *const turned[] = {"triton_b", GEMM, "triton_a"};
    const char *const less[] = {"triton_a", GEMM};
    const char *const more[] = {"triton_a", GEMM, "triton_b", "triton_b"};
    const char *const other[] = {"triton_a", GEMM, "triton_c"};
    const char *const none[] = {GEMM};
    CHECK_UNFIT(launches, turned);
    CHECK_UNFIT(launches, less);
    CHECK_UNFIT(launches, more);
    CHECK_UNFIT(launches, other);
    CHECK_UNFIT(launches, none);
}

/* Whatever a layer's calls launch between two written kernels is its own. */
static void test_calls_of_one_layer(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {written("triton_a", 1), CONVOLUTION(2),
                                       written("triton_b", 3), OTHER(4), PRODUCT(4)};
    const char *const names[] = {"triton_a", TURN, TURN, CONV, "triton_b", FILL, FILL, FILL};
    CHECK(launches, names, 1, 2, 2, 2, 3, 4, 4, 4);
    const char *const nothing[] = {"triton_a", "triton_b"};
    CHECK(launches, nothing, 1, 3);
}

static void test_kernels_where_nothing_was_called(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {written("triton_a", 1), written("triton_b", 2)};
    const char *const names[] = {FILL, "triton_a", GEMM, "triton_b", COPY};
    CHECK(launches, names, UNTOLD, 1, UNTOLD, 2, UNTOLD);
}

/* Products of several layers, with attention of several kernels between: as it is in a backward. */
static void test_calls_that_names_tell_apart(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {PRODUCT(1), ATTENTION(2), PRODUCT(3), PRODUCT(4),
                                       written("triton_a", 5)};
    const char *const names[] = {GEMM, PARTS, FLASH, FILL, FLASH, GEMM, GEMM, PARTS, "triton_a"};
    CHECK(launches, names, 1, 1, 2, 2, 2, 3, 4, 4, 5);
    const char *const between[] = {GEMM, FILL, FLASH, FLASH, GEMM, GEMM, "triton_a"};
    CHECK(launches, between, 1, UNTOLD, 2, 2, 3, 4, 5);
    const char *const missing[] = {GEMM, FLASH, FLASH, FLASH, GEMM, "triton_a"};
    CHECK(launches, missing, UNTOLD, UNTOLD, UNTOLD, UNTOLD, UNTOLD, 5);
    const char *const turned[] = {FLASH, FLASH, GEMM, GEMM, GEMM, "triton_a"};
    CHECK(launches, turned, UNTOLD, UNTOLD, UNTOLD, UNTOLD, UNTOLD, 5);
    const char *const alone[] = {PARTS, GEMM, FLASH, GEMM, GEMM, "triton_a"};
    CHECK(launches, alone, UNTOLD, UNTOLD, UNTOLD, UNTOLD, UNTOLD, 5);
}

/* A kernel that leaves sums in parts, as a norm's backward, has them summed up behind it. */
static void test_sums_of_what_is_left_in_parts(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {written("triton_a", 1), SUM(2), SUM(2), PRODUCT(3),
                                       PRODUCT(3)};
    const char *const plain[] = {"triton_a", SUM_KERNEL, SUM_KERNEL, GEMM, GEMM};
    CHECK(launches, plain, 1, 2, 2, 3, 3);
    const char *const parts[] = {"triton_a", SUM_KERNEL, SUM_KERNEL, GEMM, PARTS, GEMM};
    CHECK(launches, parts, 1, 2, 2, 3, 3, 3);
    const char *const cast[] = {"triton_a", SUM_KERNEL, CAST, SUM_KERNEL, CAST, GEMM, GEMM};
    CHECK(launches, cast, 1, 2, 2, 2, UNTOLD, 3, 3);
    const char *const missing[] = {"triton_a", SUM_KERNEL, GEMM, GEMM};
    CHECK(launches, missing, 1, UNTOLD, UNTOLD, UNTOLD);
    const pp_ring_launch attention[] = {written("triton_a", 1), SUM(2), ATTENTION(3), PRODUCT(4)};
    const char *const own[] = {"triton_a", SUM_KERNEL, SUM_KERNEL, FLASH, SUM_KERNEL, GEMM};
    CHECK(attention, own, 1, 2, UNTOLD, 3, UNTOLD, 4);
}

/* Where one layer's attention ends and the next one's begins is not known. */
static void test_attention_of_several_layers(void **state)
{
    (void)state;
    const pp_ring_launch two[] = {ATTENTION(1), ATTENTION(2), PRODUCT(3)};
    const char *const names[] = {FLASH, FLASH, FLASH, GEMM};
    CHECK(two, names, UNTOLD, UNTOLD, UNTOLD, UNTOLD);
    const pp_ring_launch one[] = {ATTENTION(1), ATTENTION(1), PRODUCT(3)};
    CHECK(one, names, 1, 1, 1, 3);
}

/* As many kernels as calls, of which each launches one at least. */
static void test_calls_that_are_counted(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {written("triton_a", 1), CONVOLUTION(2), CONVOLUTION(3)};
    const char *const names[] = {"triton_a", CONV, CONV};
    CHECK(launches, names, 1, 2, 3);
    const char *const more[] = {"triton_a", TURN, CONV, CONV};
    CHECK(launches, more, 1, UNTOLD, UNTOLD, UNTOLD);
    const pp_ring_launch unsure[] = {written("triton_a", 1), CONVOLUTION(2), OTHER(3)};
    CHECK(unsure, names, 1, UNTOLD, UNTOLD);
    const pp_ring_launch products[] = {written("triton_a", 1), PRODUCT(2), PRODUCT(3)};
    const char *const parts[] = {"triton_a", GEMM, PARTS};
    CHECK(products, parts, 1, UNTOLD, UNTOLD);
}

/* A CUDA graph's inputs are copied before its first kernel, and its seeds stored; behind that a
 * copy is a call's. */
static void test_copies_of_inputs(void **state)
{
    (void)state;
    const pp_ring_launch launches[] = {PRODUCT(1), PRODUCT(2), written("triton_a", 3), OTHER(4)};
    const char *const names[] = {COPY, COPY, GEMM, GEMM, "triton_a", COPY};
    CHECK(launches, names, UNTOLD, UNTOLD, 1, 2, 3, 4);
    const pp_ring_launch one[] = {PRODUCT(1), written("triton_a", 3)};
    const char *const before[] = {COPY, GEMM, "triton_a"};
    CHECK(one, before, UNTOLD, 1, 3);
    const char *const seeds[] = {FILL, FILL, GEMM, "triton_a"};
    CHECK(one, seeds, UNTOLD, UNTOLD, 1, 3);
}

static void test_hostile_tables(void **state)
{
    (void)state;
    uint32_t layers[MOST];
    const pp_ring_launch strange[] = {
        call((pp_ring_op)77, 5), call((pp_ring_op)77, 6), {.name = 1, .layer = 3, .op = 99}};
    const char *const names[] = {GEMM, GEMM};
    assert_false(told(strange, COUNT(strange), names, COUNT(names), layers));
    CHECK(((pp_ring_launch[]){call((pp_ring_op)77, 5), call((pp_ring_op)77, 6)}), names, UNTOLD,
          UNTOLD);
    assert_true(
        told(NULL, 0, names, COUNT(names), layers)); /* no written kernel: nothing is told */
    assert_int_equal(layers[0], 0);
    assert_true(told(NULL, 0, NULL, 0, layers));
    assert_true(told(strange, 2, NULL, 0, layers));
    assert_false(told(strange, 3, NULL, 0, layers));
    const pp_graph_kernel nameless[] = {{0, PP_KIND_WRITTEN}, {0, PP_KIND_OTHER}};
    assert_false(pp_graph_match(strange, COUNT(strange), nameless, 2, layers));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_say_what_a_kernel_is),
        cmocka_unit_test(test_written_kernels_are_told_by_their_order),
        cmocka_unit_test(test_another_graph_s_run_is_not_told),
        cmocka_unit_test(test_calls_of_one_layer),
        cmocka_unit_test(test_kernels_where_nothing_was_called),
        cmocka_unit_test(test_calls_that_names_tell_apart),
        cmocka_unit_test(test_sums_of_what_is_left_in_parts),
        cmocka_unit_test(test_attention_of_several_layers),
        cmocka_unit_test(test_calls_that_are_counted),
        cmocka_unit_test(test_copies_of_inputs),
        cmocka_unit_test(test_hostile_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
