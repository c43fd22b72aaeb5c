"""Whether this program compiles or exports models: then the hook stands aside.

torch's compiler traces hooks that it meets, refuses those in C, warns of global ones, and compiles
anew when they come and go.
"""
import functools
import sys

WHY = "torch.compile or torch.export is in use"


def used():
    """Whether torch's compiler has compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    frames = getattr(utils, "counters", {}).get("frames") or {}
    return bool(frames.get("total"))


def watch(torch, stand_aside):
    """Has stand_aside(why) called before anything is compiled or exported, wherever that is asked."""
    _wrap(torch, "compile", stand_aside)
    _wrap(sys.modules.get("torch.export"), "export", stand_aside)


def _wrap(owner, name, stand_aside):
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        try:
            stand_aside(WHY)
        except Exception:
            pass
        return original(*args, **kwargs)

    setattr(owner, name, wrapper)
