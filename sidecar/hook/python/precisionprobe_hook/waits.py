"""Calls in which the host waits for the GPU, as torch has them; what counts them is C (_marks)."""
import os
import sys

from precisionprobe_hook import _marks

_METHODS = (("item", "item"), ("tolist", "tolist"), ("cpu", "cpu"), ("to", "to"), ("bool", "__bool__"), ("int", "__int__"),
            ("float", "__float__"), ("complex", "__complex__"), ("index", "__index__"), ("nonzero", "nonzero"),
            ("equal", "equal"), ("allclose", "allclose"))
_FUNCTIONS = ("nonzero", "equal", "allclose")
_NEWEST = (3, 14)  # of those whose methods are known to look as _marks takes them


def begin(torch):
    if known():
        _marks.waits(_targets(torch), os.path.join(os.path.dirname(torch.__file__), ""), torch.device)


def known():
    """Whether this Python is one that calls methods as _marks expects, and one thread at a time."""
    return (sys.implementation.name == "cpython" and sys.version_info[:2] <= _NEWEST and
            getattr(sys, "_is_gil_enabled", lambda: True)())


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
