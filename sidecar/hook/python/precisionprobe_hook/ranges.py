"""Ranges that the program marks, as torch has them; what tells them is C (_marks)."""
import contextlib
import os

from precisionprobe_hook import _marks, layers

TYPE = "(range)"
REST = "ranges", "(ranges of too many names)"
MOST_LAYERS = 3000  # of modules: these take no room from them
_LONGEST = 128  # characters of a name
_ENTER, _LEAVE, _PUSH, _POP = range(4)


def begin(torch, backward):
    _marks.ranges(_targets(torch), backward)


def end():
    _marks.ranges_end()


def _targets(torch):
    """(what it does, the function, its own name)"""
    operators = getattr(torch.ops, "profiler", None)
    targets = []
    for role, path, name in ((_ENTER, ("_record_function_enter_new",), "_record_function_enter_new"),
                             (_ENTER, ("_record_function_enter",), "_record_function_enter"),  # torch < 2.0
                             (_LEAVE, ("_record_function_exit", "_RecordFunction"), ""),
                             (_LEAVE, ("_record_function_exit",), "_record_function_exit")):
        function = operators
        for each in (*path, "_op"):
            function = getattr(function, each, None)
        targets.append((role, function, name))
    nvtx = getattr(torch._C, "_nvtx", None)  # of builds for CUDA
    return targets + [(_PUSH, getattr(nvtx, "rangePushA", None), "rangePushA"),
                      (_POP, getattr(nvtx, "rangePop", None), "rangePop")]


class Names:
    """The layers of ranges; they stay."""

    def __init__(self, torch):
        folder = os.path.join(os.path.dirname(torch.__file__), "")
        self.folder = folder
        self.own = os.path.join(os.path.dirname(__file__), "")
        self.ways = frozenset([contextlib.__file__] + [folder + each for each in (
            "_ops.py", "autograd/profiler.py", "cuda/nvtx.py", "utils/_contextlib.py")])
        self.names = {}  # -> layer
        self.rest = 0

    def by_torch(self, frame):
        """Whether torch itself marks the range: its optimizers, loaders and wrappers do."""
        while frame is not None and (frame.f_code.co_filename in self.ways or
                                     frame.f_code.co_filename.startswith(self.own)):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(self.folder)

    def layer(self, name, rest, taken):
        """`rest`: of all that have too many names. `taken` tells the names of all layers."""
        if rest and self.rest:
            return self.rest
        plain, type_name = REST if rest else (_clean(name), TYPE)
        found = layers.free_name(plain, taken())
        layer = _marks.layer(found, type_name, 0)
        if layer:
            self.names[found] = layer
        if rest:
            self.rest = layer
        return layer


def _clean(name):
    """One that a C string can be; the agent cleans it further."""
    text = name if len(name) <= _LONGEST else "..." + name[3 - _LONGEST:]
    return text.encode("utf-8", "replace").decode().replace("\0", "?") or TYPE
