"""What the benches' figures are made of, where no GPU is needed to see whether it is right."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import accuracy
import undisturbed


@pytest.mark.parametrize("name, base", [
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::List<4>>(T1)",
     "multi_tensor_apply_kernel"),
    ("void at::native::<unnamed>::reduce_kernel<int>(T1)", "reduce_kernel"),
    ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel", "Kernel"),
    ("void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::conv>(T1::Params)", "Kernel"),
    ("nvjet_sm90_tst_128x160_64x5_2x4_h_bz_NTT", "nvjet_sm90_tst_128x160_64x5_2x4_h_bz_NTT")])
def test_base_names(name, base):
    assert accuracy.base_name(name) == base


def test_kernels_are_matched_in_order_by_name():
    rows = [[name, 1.0, "layer", "forward"] for name in ("void gemm<1>(x)", "softmax", "gemm", "add")]
    found = [{"Kernel Name": name} for name in ("void gemm<2>()", "gemm", "other", "add(int)")]
    assert accuracy.matched(rows, found) == [found[0], None, found[1], found[3]]


def test_chunks_right_after_a_capture_are_apart():
    chunks = [[8.0, "MARKING", "COUNTING"], [9.0, "COUNTING", "COUNTING"], [5.0, "COUNTING", "COUNTING"],
              [6.0, "COUNTING", "MARKING"], [7.0, "COUNTING", "COUNTING"]]
    assert undisturbed.script_times({"chunks": chunks}) == ([5.0], [9.0, 7.0])
