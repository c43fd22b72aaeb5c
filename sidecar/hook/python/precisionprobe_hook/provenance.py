"""Which module each kernel of a compiled region works for, as torch's compiler knows while it makes the kernels.

Inductor makes a graph of ATen operators into launches, in order: of kernels that it writes, which fuse several operators,
and of calls of libraries. Each operator has the modules in whose calls it was traced; in backward those of its forward. So
methods of the compiler's classes are wrapped that see both (torch 2.6 and later). They are called while something is
compiled, and by nobody else; what they return is what they returned before. Only names are kept.
"""
import functools
import itertools
import re
import sys
import weakref

MOST_GRAPHS, MOST_LAUNCHES = 1024, 4096  # kept; launches of one graph
MOST_IN_ALL = 65536  # launches that are kept
_UNKNOWN, _PRODUCT, _ATTENTION, _CONVOLUTION, _SUM = range(5)  # what a call of a library is: pp_ring_op
_TORCH = ("aten.", "extern_kernels.", "torch.ops.aten.")  # what others' functions launch their names do not say
_PRODUCTS = frozenset("mm addmm bmm baddbmm bias_addmm _scaled_mm _int_mm".split())
_NO_LAUNCH = frozenset(("MultiOutput", "_CollectiveKernel", "_WaitKernel"))  # or none that is no collective
_NESTED = frozenset(("Conditional", "WhileLoop", "InvokeSubgraph"))  # what these launch is another graph's
# Operators that launch nothing themselves, or only make what another one reads, or store what one has made. The compiler makes
# some of them anew, without a record of the module.
_PASSING = frozenset("""view _unsafe_view reshape permute t transpose expand unsqueeze squeeze slice select alias detach split
    split_with_sizes unbind as_strided diagonal unfold getitem full full_like scalar_tensor empty empty_strided iota lift_fresh_copy copy_
    select_scatter slice_scatter diagonal_scatter as_strided_scatter
    """.split())
_CALLS = re.compile(r"^\s+(triton_\w+)\.run\(", re.M)  # of the code that Inductor writes
_OTHERS = re.compile(r"^\w+ = async_compile\.(?!triton\(|cpp)", re.M)  # kernels for a GPU that are not Triton's: no records
_MODULES = re.compile(r"\._modules\['([^']+)'\]")
_PATH = re.compile(r"(L\['[^']*'\])(?:\.(.+))?$")


class Frame:
    """What one compilation is of: the modules among the function's variables, by the names that the compiler uses."""

    def __init__(self, scope, kind):
        self.modules = {"L['%s']" % name: weakref.ref(each) for name, each in scope.items()
                        if issubclass(type(each), kind)}
        self.graphs = []  # made of it, of forward and backward


class Graph:
    """One compiled graph."""

    def __init__(self, frame, launches, classes):
        self.frame = frame
        self.launches = launches  # [(name of a kernel or "", pp_ring_op, (variable, names of modules to the one) or None)]
        self.classes = classes  # {(variable, names): name of the module's class}
        self.number = 0


class _Notes:
    """Of a graph while it is made."""

    def __init__(self):
        self.launches = []
        self.classes = {}
        self.whole = True


class Provenance:
    def __init__(self, torch):
        self.torch = torch
        self.frames = {}  # number of a compilation, as the compiler writes it -> Frame
        self.notes = weakref.WeakKeyDictionary()  # the compiler's graph -> _Notes
        self.made = {}  # id of what runs -> (weak reference, Graph)
        self.numbers = itertools.count(1)  # threads may compile side by side
        self.kept = 0  # launches
        self.compiled = None  # the compiler's class of what runs

    # ---- while something is compiled ----

    def arm(self):
        """Once the compiler's first part has been imported."""
        output = getattr(sys.modules.get("torch._dynamo.output_graph"), "OutputGraph", None)
        if output is not None:
            _around(output, "call_user_compiler", before=self.begin)

    def begin(self, output, *_):
        """A graph is about to be compiled."""
        number = self.compilation()
        self.frames.pop(number, None)  # a compiler that is reset begins anew with its numbers
        if number is None or not _by_inductor(output.compiler_fn):
            return
        if self.compiled is None:
            self.wrap_inductor()
        if self.compiled and len(self.frames) < 4 * MOST_GRAPHS:
            self.frames[number] = Frame(output.local_scope, self.torch.nn.Module)

    def compilation(self):
        number = sys.modules["torch._guards"].CompileContext.current_compile_id()
        return number if number is None else str(number)

    def wrap_inductor(self):
        """Imports what the compiler is about to import."""
        self.compiled = False  # a torch that is made otherwise
        import torch._inductor.compile_fx
        import torch._inductor.output_code as code
        from torch._inductor import graph, scheduler, virtualized
        from torch._inductor.codegen import triton
        self.lowering, self.now = graph.GraphLowering, virtualized.V
        _around(triton.TritonScheduling, "define_kernel", after=self.or_none(self.kernel))
        _around(scheduler.Scheduler, "codegen_extern_call", after=self.or_none(self.call))
        if hasattr(scheduler.Scheduler, "_codegen_partition_wrapper"):  # torch 2.8 and later
            _around(scheduler.Scheduler, "_codegen_partition_wrapper", before=self.or_none(self.part))
        _around(code.CompiledFxGraph, "__init__", after=self.end)
        self.compiled = code.CompiledFxGraph

    def notes_now(self):
        return self.notes.setdefault(self.now.graph, _Notes())

    def or_none(self, note):
        """A launch that cannot be noted is not left out: nothing is told of its graph."""
        def noting(*args, **kwargs):
            try:
                note(*args, **kwargs)
            except Exception:
                self.notes_now().whole = False
        return noting

    def note(self, name, operator, nodes):
        notes = self.notes_now()
        if len(notes.launches) >= MOST_LAUNCHES:
            notes.whole = False
        else:
            notes.launches.append((name, operator, _place(nodes, notes.classes)))
        return notes

    def kernel(self, name, _, source, nodes, kernel=None):
        """
        One that the compiler has written, and launches next; its name is the function's, unless told otherwise. What it works in
        may be filled before, and what it leaves in parts summed up behind it, by operators that no node of the compiler's is.
        """
        operators = set()
        for node in nodes:
            for each in node.get_nodes() if hasattr(node, "get_nodes") else ():
                operators.update(_operators(each.node))
        spaces = *getattr(getattr(kernel, "args", None), "workspace_args", ()), getattr(kernel, "workspace_arg", None)
        for each in {id(each): each for each in spaces if each is not None}.values():
            if each.zero_mode.value:
                self.note("", _UNKNOWN, operators)
        notes = self.note(name, _UNKNOWN, operators)
        for each in getattr(kernel, "saved_partial_accumulate", ()):  # newer torches
            self.note("", _SUM, _operators(self.now.graph.name_to_buffer[each.buffer_name]))
        config = self.torch._inductor.config
        if not config.triton.unique_kernel_names or getattr(config, "nan_asserts", False):
            notes.whole = False

    def part(self, *_):
        """Of a graph, which becomes a CUDA graph by itself: what it reads may be copied before it is launched."""
        if self.notes_now().launches:
            self.note("", _UNKNOWN, ())

    def call(self, _, scheduler, node):
        """Of a library's function, or of a kernel of the user's."""
        kind = type(node.node).__name__
        if kind in _NESTED:
            self.notes_now().whole = False
        elif kind not in _NO_LAUNCH:
            self.note("", _operator(node.node), _operators(node.node))

    def end(self, _, compiled, *args, **kwargs):
        """A graph is made, and what runs it."""
        lowered = [each for each in (*args, *kwargs.values()) if isinstance(each, self.lowering)]
        notes = self.notes.pop(lowered[0], None) if len(lowered) == 1 else None
        frame = self.frames.get(self.compilation())
        if not notes or not notes.whole or frame is None or self.kept + len(notes.launches) > MOST_IN_ALL:
            return
        code = compiled.source_code
        if [name for name, _, _ in notes.launches if name] != _CALLS.findall(code) or _OTHERS.search(code):
            return  # written in a way that is not known
        number = next(self.numbers)
        if number > MOST_GRAPHS:
            return
        self.kept += len(notes.launches)
        graph = Graph(frame, notes.launches, notes.classes)
        graph.number = number
        frame.graphs.append(graph)
        self.made[id(compiled)] = weakref.ref(compiled, _forget(self.made, id(compiled))), graph

    def of(self, compiled):
        """The Graph that this runs, or None."""
        reference, graph = self.made.get(id(compiled), (lambda: None, None))
        return graph if reference() is compiled else None


# ---- which modules ----

def _by_inductor(function):
    for _ in range(8):  # as deep as such functions are wrapped
        inner = getattr(function, "_torchdynamo_orig_backend", None) or getattr(function, "_torchdynamo_orig_callable", None)
        if inner is None:
            break
        function = inner
    return type(function).__name__ == "_TorchCompileInductorWrapper" or getattr(function, "__module__", "") == "torch._inductor"


def _operators(node):
    """The operators that a node of the compiler's is made of: of one that calls a library the one that it was made for."""
    origins = set(getattr(node, "origins", ()))
    if any([each.__name__ == "ComputedBuffer" for each in type(node).__mro__]):
        return origins
    origin = getattr(node, "origin_node", None)
    if origin is not None:
        return {origin}
    parts = _called(node).split(".")
    return {each for each in origins if _name(each) in parts} or origins


def _called(node):
    """The name of what a node calls: "extern_kernels.mm", "aten.convolution.default"."""
    overload = getattr(node, "op_overload", None)
    return str(overload) if overload is not None else str(getattr(node, "python_kernel_name", None) or "")


def _operator(node):
    """What a call is, by its name."""
    name = _called(node)
    if not name.startswith(_TORCH):
        return _UNKNOWN
    if any([part in _PRODUCTS for part in name.split(".")]):
        return _PRODUCT
    return _ATTENTION if "attention" in name else _CONVOLUTION if "convolution" in name else _UNKNOWN


def _name(operator):
    """Of an ATen operator without its overload."""
    target = operator.target
    packet = getattr(target, "overloadpacket", None)
    return getattr(packet if packet is not None else target, "__name__", "")


def _modules(operator, classes):
    """(variable, names of modules on the way to the one that called an operator); () where that is not known."""
    stack = operator.meta.get("nn_module_stack") or operator.meta.get("fwd_nn_module_stack")
    if not stack:
        return ()
    path, kind = list(stack.values())[-1][:2]
    match = _PATH.match(_MODULES.sub(r".\1", path))
    if match is None:
        return ()
    place = match[1], tuple(match[2].split(".")) if match[2] else ()
    classes[place] = getattr(kind, "__name__", "") or str(kind).rpartition(".")[2]
    return place


def _is_sum(operator):
    """
    In backward: of gradients where branches meet, as autograd makes them outside of all operators of the forward, so that
    what is said of its module means nothing; or a part of what an operator's backward is made of, beside others.
    """
    return _name(operator) == "add" and operator.meta.get("partitioner_tag") == "is_backward"


def _place(operators, classes):
    """The module that operators work for, or the innermost one around those; None: the region."""
    calls = [each for each in operators if each.op == "call_function"]
    working = [each for each in calls if _name(each) not in _PASSING] or calls
    places = {_modules(each, classes) for each in working if not _is_sum(each)}
    if not places or () in places or len({variable for variable, _ in places}) > 1:
        return None
    (variable, names), *others = places
    for _, other in others:
        shared = 0
        while shared < min(len(names), len(other)) and names[shared] == other[shared]:
            shared += 1
        names = names[:shared]
    return variable, names


# ---- wrapped methods ----

def _around(owner, name, before=None, after=None):
    """Has before(self, ...) or after(result, self, ...) called with a method's calls."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        if before is not None:
            _quietly(before, args, kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            _quietly(after, (result, *args), kwargs)
        return result

    setattr(owner, name, wrapper)


def _quietly(function, args, kwargs):
    try:
        function(*args, **kwargs)
    except Exception:
        pass


def _forget(made, key):
    return lambda _: made.pop(key, None)
