"""Programs that compile or export models.

torch's compiler traces global hooks that it meets, refuses those in C, and compiles anew when they
come and go. So it meets none: every callable that it returns is wrapped in a region (regions.c),
which takes ours out of torch's tables while it runs and is a layer by itself. From programs that
export, or compile in a way that is not seen here, the hook stands aside.
"""
import contextlib
import functools
import sys
import types
import weakref

from precisionprobe_hook import _marks

WHY = "torch.export is in use, or torch.compile in a way not known"
LAYER = "compile", "(compilation)"  # what compiling is told as
NO_STEP = "no optimizer steps outside compiled code"
_TABLES = "backward_pre", "backward", "forward_pre", "forward"
_OF_MODULES = ("__call__", "_wrapped_call_impl", "_call_impl", "forward")


class Regions:
    """What was compiled in this process: a weak key each, the compiled function."""

    def __init__(self, torch, stand_aside, of_function, armed=lambda: None):
        self.module = torch.nn.Module
        self.stand_aside = stand_aside
        self.of_function = of_function  # called when code that is no module's is compiled
        self.on_armed = armed  # called once the compiler is there, before it compiles
        self.compiled = weakref.WeakKeyDictionary()  # -> (weak reference to a module or None, name)
        self.any = False
        self.armed = False
        _before(torch, "compile", self.arm)
        for name in ("export", "export_for_training", "draft_export"):
            _before(sys.modules.get("torch.export"), name, lambda: stand_aside(WHY))

    def arm(self):
        """Has every callable that the compiler is about to return wrapped."""
        if self.armed:
            return
        self.armed = True
        try:
            self.wrap()
        except Exception:  # a torch that is made otherwise
            self.stand_aside(WHY)
            return
        try:
            self.on_armed()
        except Exception:
            pass  # regions are told whole

    def wrap(self):
        import torch._dynamo.eval_frame as frames
        context = frames._TorchDynamoContext
        disabled = getattr(frames, "DisableContext", ())
        skip_code = getattr(frames, "skip_code", None) or torch._C._dynamo.eval_frame.skip_code
        original = context.__call__

        @functools.wraps(original)
        def __call__(self_, fn):
            compiled = original(self_, fn)
            if isinstance(self_, disabled):
                return compiled  # never compiled; torch 2.1 calls Optimizer.zero_grad by a new one of these each time
            try:
                return self.region(fn, compiled, skip_code)
            except Exception:
                self.stand_aside(WHY)
                return compiled

        context.__call__ = __call__
        tables = sys.modules[self.module.__module__]
        asked = getattr(tables, "_has_any_global_hook", None)
        if asked:  # compiled modules warn of global hooks
            tables._has_any_global_hook = functools.wraps(asked)(lambda: _marks.without(lambda: _any_hook(tables, asked)))

    def region(self, fn, compiled, skip_code):
        if not isinstance(compiled, types.FunctionType) or isinstance(fn, (self.module, type)):
            return compiled  # of a module: its forward went through here
        if _autograd():
            self.stand_aside(WHY)
        call = _marks.region(compiled)

        @functools.wraps(compiled)
        def region(*args, **kwargs):
            return call(*args, **kwargs)

        if hasattr(region, "_torchdynamo_wrapper_id"):  # a wrapper without its own id is no compiled function
            region._torchdynamo_wrapper_id = id(region)
        skip_code(region.__code__)  # it is no part of what an outer region compiles
        module = self.module_of(fn)
        self.compiled[compiled] = (module and weakref.ref(module), getattr(fn, "__qualname__", "function"))
        self.any = True
        if module is None:
            self.of_function()
        return region

    def module_of(self, fn):
        """The module whose call or forward this is, else None."""
        inner = getattr(fn, "__wrapped__", None)
        if isinstance(inner, self.module):
            return inner
        owner = getattr(fn, "__self__", None)
        own = isinstance(owner, self.module) and getattr(fn, "__name__", "") in _OF_MODULES
        return owner if own else None

    def unseen(self):
        """Whether something was compiled in a way that is not seen here, or backward is compiled."""
        utils = sys.modules.get("torch._dynamo.utils")
        frames = getattr(utils, "counters", {}).get("frames") or {}
        return bool(frames.get("total")) and not self.any or _autograd()

    def split(self, called):
        """Of what was called: ([module], [(compiled function, its module or None, its name)])."""
        modules, regions = [], []
        for each in called:
            if isinstance(each, self.module):
                modules.append(each)
            elif each in self.compiled:
                module, name = self.compiled[each]
                regions.append((each, module and module(), name))
        return modules, regions


class Compilations:
    """Has the compiler call our marks, as it begins and ends, while a capture runs (torch 2.4 and later)."""

    def __init__(self):
        self.hooks = []  # (the compiler's list, ours in it)
        self.traced = None  # (module, its function, ours in its place)

    def install(self, layer):
        if not self.hooks:
            self.install_backward(_marks.marker(_marks.COMPILE_BEGIN, layer), _marks.marker(_marks.COMPILE_END, layer))
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        for name, kind in (("start_callbacks", _marks.COMPILE_BEGIN), ("end_callbacks", _marks.COMPILE_END)):
            callbacks = getattr(handler, name, None)
            if type(callbacks) is list and not self.hooks[1:]:
                self.hooks.append((callbacks, _marks.marker(kind, layer)))
                callbacks.append(self.hooks[-1][1])

    def install_backward(self, begin, end):
        """What backward compiles as it first runs calls none of these until torch 2.8, but a context that is no compiled code's."""
        module = sys.modules.get("torch._functorch._aot_autograd.runtime_wrappers")
        original = getattr(module, "track_graph_compiling", None)
        if original is None:
            return

        @functools.wraps(original)
        @contextlib.contextmanager
        def track_graph_compiling(*args, **kwargs):
            begin()
            try:
                with original(*args, **kwargs) as result:
                    yield result
            finally:
                end()

        self.traced = module, original, track_graph_compiling
        module.track_graph_compiling = track_graph_compiling

    def remove(self):
        traced, self.traced = self.traced, None
        if traced and traced[0].track_graph_compiling is traced[2]:
            traced[0].track_graph_compiling = traced[1]
        while self.hooks:
            callbacks, hook = self.hooks.pop()
            if hook in callbacks:  # the program may have cleared them
                callbacks.remove(hook)


def _any_hook(tables, asked):
    """What torch's own function says; ids of ours, which stay where it is noted how hooks are called, are no hooks."""
    return bool(asked()) and any([getattr(tables, "_global_%s_hooks" % name, None) for name in _TABLES])


def _autograd():
    """Whether the nodes of backward are traced, and with them the hooks on them."""
    config = sys.modules.get("torch._dynamo.config")
    running = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(config, "compiled_autograd", False)
                or getattr(running, "compiled_autograd_enabled", False))


def _before(owner, name, call):
    """Has call() called before a function of torch's, wherever that is asked."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        try:
            call()
        except Exception:
            pass
        return original(*args, **kwargs)

    setattr(owner, name, wrapper)
