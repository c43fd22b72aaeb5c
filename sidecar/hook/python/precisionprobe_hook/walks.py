"""Whether torch walks its global tables of optimizers' hooks, which may not change meanwhile.

torch iterates over the tables themselves, so a change raises in the program's own step. A program's own hook may call a
module, and so come to where the hook puts its own in or takes them out.
"""
import sys
import types


def walked(torch_optimizer, own):
    """
    Whether a thread may be in such a walk; `own` is the type of our hooks. Where nobody else has hooks in the tables, no
    forward comes within a walk.
    """
    tables = [getattr(torch_optimizer, name, {}) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")]
    if all(type(hook) is own for table in tables for hook in list(table.values())):
        return False
    walkers = _codes_in(getattr(torch_optimizer.Optimizer, "profile_hook_step", walked))
    return any(_walks(frame, walkers) for frame in sys._current_frames().values())


def _codes_in(function):
    """The code of the functions that it makes: of the one in whose place an optimizer's step is called."""
    return [each for each in function.__code__.co_consts if isinstance(each, types.CodeType)]


def _walks(frame, walkers):
    """Whether such a function runs in this stack and what it has called is not the optimizer's own step."""
    inner = None
    while frame is not None:
        if frame.f_code in walkers and not _is_step(frame, inner):
            return True
        frame, inner = frame.f_back, frame
    return False


def _is_step(walker, inner):
    step = walker.f_locals.get("func")
    return inner is not None and inner.f_code is getattr(step, "__code__", None)
