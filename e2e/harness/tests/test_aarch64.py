"""What orders memory is looked for in the code."""
from harness import aarch64

FENCE = "0000 <pp_read_fence>:\n 0:\td50339bf \tdmb\tishld\n 4:\td65f03c0 \tret\n"
PUSH = "0000 <pp_ring_push_kernel>:\n 0:\tc8dffc00 \tldar\tx0, [x0]\n 4:\tc89ffc40 \tstlr\tx0, [x2]\n"


def test_what_orders_memory_is_found():
    assert not aarch64.missing_instructions("pp_read_fence", FENCE)
    assert not aarch64.missing_instructions("pp_ring_push_kernel", PUSH)


def test_what_does_not_is_told():
    plain = PUSH.replace("stlr", "str")
    assert aarch64.missing_instructions("pp_ring_push_kernel", plain) == ["pp_ring_push_kernel has no stlr"]
    assert aarch64.missing_instructions("pp_read_fence", "") == ["pp_read_fence has no dmb ishld"]
