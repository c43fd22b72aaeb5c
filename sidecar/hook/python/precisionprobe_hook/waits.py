"""Calls in which the host waits for the GPU, as torch has them; what counts them is C (_marks)."""
import os

from precisionprobe_hook import _marks

_METHODS = (("item", "item"), ("tolist", "tolist"), ("cpu", "cpu"), ("bool", "__bool__"), ("int", "__int__"),
            ("float", "__float__"), ("complex", "__complex__"), ("index", "__index__"), ("nonzero", "nonzero"),
            ("equal", "equal"), ("allclose", "allclose"))
_FUNCTIONS = ("nonzero", "equal", "allclose")


def begin(torch):
    _marks.waits(_targets(torch), os.path.join(os.path.dirname(torch.__file__), ""))


def end():
    _marks.waits_end()


def _targets(torch):
    """(name of the call, what is called, its class or None, its own name)"""
    tensor = getattr(torch._C, "TensorBase", None) or getattr(torch._C, "_TensorBase", None)  # torch < 2.1
    targets = [_method(call, tensor, name) for call, name in _METHODS]
    functions = getattr(torch._C, "_VariableFunctions", None)
    targets += [(name, getattr(functions, name, None), None, name) for name in _FUNCTIONS]
    targets.append(("cuda.synchronize", getattr(torch._C, "_cuda_synchronize", None), None, "_cuda_synchronize"))
    for call, name in (("Event.synchronize", "_CudaEventBase"), ("Stream.synchronize", "_CudaStreamBase")):
        targets.append(_method(call, getattr(torch._C, name, None), "synchronize"))
    return targets


def _method(call, cls, name):
    return call, vars(cls).get(name) if isinstance(cls, type) else None, cls, name
