"""What is noted of a graph while it is compiled, on doubles of the compiler's classes: what must not be told is not.

What the compiler itself does with a graph is test_compiled.py's.
"""
import sys
import types

import pytest

from conftest import needed

sys.path.insert(0, needed("PP_HOOK"))
from precisionprobe_hook import provenance  # noqa: E402

UNKNOWN, PRODUCT, ATTENTION, CONVOLUTION, SUM = range(5)  # pp_ring_op
MODULE = type("Module", (), {})


class Graph:
    """The compiler's."""

    def __init__(self):
        self.name_to_buffer = {}


class Compiled:
    """What runs one."""

    def __init__(self, code):
        self.source_code = code


class Compiler:
    """Compiles graphs of launches that a test makes."""

    def __init__(self):
        config = types.SimpleNamespace(triton=types.SimpleNamespace(unique_kernel_names=True))
        self.config = config
        torch = types.SimpleNamespace(nn=types.SimpleNamespace(Module=MODULE), _inductor=types.SimpleNamespace(config=config))
        self.provenance = provenance.Provenance(torch)
        self.provenance.lowering = Graph
        self.provenance.now = types.SimpleNamespace(graph=None)
        self.provenance.compiled = Compiled
        self.provenance.compilation = lambda: self.number
        self.number = "0/0"
        self.lines = []
        self.running = []

    def begin(self, inductor=True):
        compiler = type("_TorchCompileInductorWrapper" if inductor else "Other", (), {})()
        self.provenance.begin(types.SimpleNamespace(compiler_fn=compiler, local_scope={"self": MODULE()}))
        self.provenance.now.graph = Graph()
        self.lines = []

    def kernel(self, name, module, kernel=None):
        self.lines.append("        %s.run(buf0, 8, stream=stream0)" % name)
        node = types.SimpleNamespace(node=buffer(module))
        node.get_nodes = lambda: [node]
        self.provenance.or_none(self.provenance.kernel)(name, None, "", [node], kernel)

    def call(self, name, module):
        self.provenance.or_none(self.provenance.call)(None, None, types.SimpleNamespace(node=extern(name, module)))

    def end(self, code=""):
        """What is recorded: [(name, operator, name of the module or None)], or None."""
        made = Compiled("\n".join([code, "def call(args):", *self.lines]))
        self.running.append(made)
        self.provenance.end(None, made, self.provenance.now.graph)
        graph = self.provenance.of(made)
        return graph and [(name, operator, place and ".".join(place[1])) for name, operator, place in graph.launches]


def operator(module, name="mm"):
    packet = types.SimpleNamespace(__name__=name)
    stack = {"": ("L['self']", "Net"), module: ("L['self']._modules['%s']" % module, "Linear")}
    return types.SimpleNamespace(op="call_function", target=types.SimpleNamespace(overloadpacket=packet),
                                 meta={"nn_module_stack": stack})


def buffer(module):
    return type("ComputedBuffer", (), {})() if module is None else _with(type("ComputedBuffer", (), {}), origins={_Hashed(module)})


def extern(name, module):
    return _with(type("ExternKernelOut", (), {}), origin_node=_Hashed(module), python_kernel_name=name)


def _with(kind, **attributes):
    made = kind()
    vars(made).update(attributes)
    return made


class _Hashed:
    """An operator, as hashable as the compiler's."""

    def __init__(self, module):
        vars(self).update(vars(operator(module)))


@pytest.fixture
def compiler():
    return Compiler()


def test_launches_in_order(compiler):
    compiler.begin()
    compiler.kernel("triton_poi_fused_0", "up")
    compiler.call("extern_kernels.mm", "down")
    compiler.call("aten.convolution", "conv")
    assert compiler.end() == [("triton_poi_fused_0", UNKNOWN, "up"), ("", PRODUCT, "down"), ("", CONVOLUTION, "conv")]


@pytest.mark.parametrize("name", ["mine.mm.default", "mine.attention_mask.default", "torch.ops.mine.convolution.default"])
def test_functions_of_others_may_launch_anything(compiler, name):
    compiler.begin()
    compiler.call(name, "up")
    assert compiler.end() == [("", UNKNOWN, "up")]


def test_what_only_stores_in_a_part_counts_for_nothing():
    """The compiler makes such operators anew, without a record of the module."""
    made = operator("", "select_scatter")
    made.meta = {}
    assert provenance._place([operator("attn", "clone"), made], {}) == ("L['self']", ("attn",))
    made.target.overloadpacket.__name__ = "mul"
    assert provenance._place([operator("attn", "clone"), made], {}) is None


def test_a_launch_that_cannot_be_noted(compiler):
    """What is around it would be told in its place: nothing is told of the graph."""
    compiler.begin()
    compiler.call("extern_kernels.mm", "up")
    node = extern("extern_kernels.mm", "down")
    node.origin_node.meta["nn_module_stack"] = {"": ("L['self']",)}  # as no torch has it
    compiler.provenance.or_none(compiler.provenance.call)(None, None, types.SimpleNamespace(node=node))
    assert compiler.end() is None


@pytest.mark.parametrize("kind", ["cuda", "rocm", "cutedsl", "nv_universal_gemm", "halide", "pallas"])
def test_kernels_of_other_makers(compiler, kind):
    """Nobody has noted them."""
    code = "%s_fused_mm_0 = async_compile.%s(r'''" % (kind, kind)
    known = "triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''\ncpp_fused_0 = async_compile.cpp_pybinding([], '''"
    for text, told in (known, True), (known + "\n" + code, False):
        compiler.begin()
        compiler.call("extern_kernels.mm", "up")
        assert (compiler.end(text) is not None) == told


@pytest.mark.parametrize("zero_mode, fills", [(0, 0), (1, 1), (2, 1)])
def test_what_a_kernel_works_in_may_be_filled_before(compiler, zero_mode, fills):
    space = types.SimpleNamespace(zero_mode=types.SimpleNamespace(value=zero_mode))
    for kernel in (types.SimpleNamespace(args=types.SimpleNamespace(workspace_args=[space])),
                   types.SimpleNamespace(args=types.SimpleNamespace(workspace_args=[]), workspace_arg=space),
                   types.SimpleNamespace(args=types.SimpleNamespace(workspace_args=[space]), workspace_arg=space)):
        compiler.begin()
        compiler.call("extern_kernels.mm", "up")
        compiler.kernel("triton_red_fused_0", "down", kernel)
        assert compiler.end() == [("", PRODUCT, "up")] + fills * [("", UNKNOWN, "down")] + [("triton_red_fused_0", UNKNOWN, "down")]


def test_what_a_kernel_leaves_in_parts_is_summed_up_behind_it(compiler):
    """Each sum is of the module that it was made for."""
    compiler.begin()
    compiler.provenance.now.graph.name_to_buffer = {"buf7": buffer("norm"), "buf8": buffer("scale")}
    parts = types.SimpleNamespace(saved_partial_accumulate=[types.SimpleNamespace(buffer_name=name) for name in ("buf7", "buf8")])
    compiler.kernel("triton_per_fused_0", "norm", parts)
    compiler.call("extern_kernels.mm", "up")
    assert compiler.end() == [("triton_per_fused_0", UNKNOWN, "norm"), ("", SUM, "norm"), ("", SUM, "scale"), ("", PRODUCT, "up")]


def test_parts_of_a_graph_that_become_graphs_by_themselves(compiler):
    """Before all but the first their inputs may be copied."""
    compiler.begin()
    compiler.provenance.part()
    compiler.call("extern_kernels.mm", "up")
    compiler.provenance.part()
    compiler.call("extern_kernels.mm", "up")
    assert compiler.end() == [("", PRODUCT, "up"), ("", UNKNOWN, None), ("", PRODUCT, "up")]


def test_checks_of_each_result_launch_kernels_of_their_own(compiler):
    compiler.begin()
    compiler.kernel("triton_poi_fused_0", "up")
    assert compiler.end()
    compiler.config.nan_asserts = True
    compiler.begin()
    compiler.kernel("triton_poi_fused_0", "up")
    assert compiler.end() is None


def test_a_number_that_is_given_again(compiler):
    """A compiler that was reset counts anew: what another one makes is not of the frame that had the number before."""
    compiler.begin()
    compiler.call("extern_kernels.mm", "up")
    assert compiler.end()
    compiler.begin(inductor=False)
    compiler.call("extern_kernels.mm", "up")
    assert compiler.end() is None


def test_a_compilation_without_a_number(compiler):
    compiler.number = None
    compiler.begin()
    compiler.call("extern_kernels.mm", "up")
    assert compiler.end() is None and not compiler.provenance.frames


def test_what_is_kept_is_bounded(compiler):
    """Also where a program compiles for ever."""
    def kept():
        return sum(len(graph.launches) for frame in compiler.provenance.frames.values() for graph in frame.graphs)

    def compile_many(launches, graphs, numbers):
        for number in range(graphs):
            compiler.number = "%d/0" % (number % numbers)
            compiler.begin()
            for _ in range(launches):
                compiler.call("extern_kernels.mm", "up")
            compiler.end()

    compile_many(2000, 50, 50)
    assert 30 * 2000 <= kept() <= provenance.MOST_IN_ALL
    compiler.__init__()
    compile_many(1, 2 * provenance.MOST_GRAPHS, 3)
    assert len(compiler.running) == 2 * provenance.MOST_GRAPHS and len(compiler.provenance.made) == provenance.MOST_GRAPHS
    assert kept() <= 3
