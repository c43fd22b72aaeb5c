"""When autograd's engine runs: what is told of its work outside of modules, and marked by C (_marks)."""
from precisionprobe_hook import _marks, waits

NAMES = "loss", "gradients"
TYPE = "(outside of modules)"
MOST_LAYERS = 4000  # of modules: these take no room from them


def known(torch):
    """Whether this Python calls methods as _marks expects, and this torch numbers nodes (2.1 and later)."""
    return waits.known() and hasattr(torch._C._autograd, "_get_sequence_nr")


def begin(torch, loss, gradients):
    """Whether it is told when the engine runs."""
    if not waits.known():
        return False
    cls = getattr(torch._C, "_ImperativeEngine", None)
    method = vars(cls).get("run_backward") if isinstance(cls, type) else None
    return _marks.engine(method, cls, loss, gradients)


def end():
    _marks.engine_end()
