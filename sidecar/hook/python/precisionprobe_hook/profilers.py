"""CUPTI serves one client: where the user's torch.profiler begins, the recording of kernels ends before it."""
import sys

_BEGINNINGS = ("_prepare_profiler", "_enable_profiler")  # looked up by name as a profile begins


def running(torch):
    """Whether torch.profiler records now."""
    enabled = getattr(torch._C._autograd, "_profiler_enabled", None)
    return bool(enabled and enabled())


class Watch:
    """
    While it is installed, give_way is called before torch.profiler begins. The recording goes on for a moment
    after its capture: until it has ended, which recording says, the watch stays where it is removed. Of a session's
    last capture the hook's thread removes it then.
    """

    def __init__(self, give_way, recording):
        self.give_way = give_way
        self.recording = recording
        self.replaced = []  # (name, original, replacement)

    def install(self):
        module = sys.modules["torch.autograd.profiler"]
        for name in () if self.replaced else _BEGINNINGS:
            original = getattr(module, name, None)
            if original:
                replacement = self.wrapper(original)
                setattr(module, name, replacement)
                self.replaced.append((name, original, replacement))

    def wrapper(self, original):
        def begin(*args, **kwargs):
            try:
                self.give_way()
                self.remove()
            except Exception:
                pass
            return original(*args, **kwargs)
        return begin

    def remove(self):
        if self.recording():
            return
        module = sys.modules["torch.autograd.profiler"]
        while self.replaced:
            name, original, replacement = self.replaced.pop()
            if getattr(module, name, None) is replacement:
                setattr(module, name, original)
