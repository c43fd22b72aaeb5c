"""Method Replay (docs/replay.md): one layer by itself, again and again, while the training waits at a step's end.

What is replayed is a replica of the module (its parameters' storage, copies of its buffers, none of its hooks) with
copies of inputs that it had; so nothing that the training has changes, and random numbers are put back.
Nothing here is part of a step that counts.
"""
import contextlib
import threading
import time
import warnings
import weakref
from collections import OrderedDict

from precisionprobe_hook import _marks

WRAPPERS = frozenset(("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine"))

_PHASES = (_marks.FORWARD, _marks.BACKWARD)
_CALLS = 4  # of a layer whose inputs are kept at least: replays take them in turn
_CALLS_MOST = 16  # where it is called more than once in a step: all of a step's are kept, up to so many
_STEPS = 8  # in which inputs are kept at most, before what is there is replayed
_ROUND = 8  # replays between two looks at the GPU
_ROUND_NS = 160000  # that a round lasts at least: the ring has to hold its marks
_STEP_NS = 20 * 1000000  # of a dwell: what the agent takes in at once
_WARM = 2  # replays before a dwell
_SETUP_NS = 50 * 1000000  # what a dwell takes besides, until that is known
_L2 = 64 << 20  # bytes of a GPU's L2 cache where torch does not tell
_L2_CPU = 1 << 20
_EVICTIONS = 8  # different amounts: layers that share one share what goes with their replays
_SHARE = 4  # of what is free on the device this part at most is taken
_SAMPLE = 2  # the agent's wish that captures go on

# Reasons, by number in the ring (PP_RING_LEFT_*).
OWN_FORWARD, OWN_DATA, INPUT, MEMORY, FAILED, PAUSE, CALL, GRADIENT, PARENT, NO_MODULE = range(1, 11)


class _Unfit(Exception):
    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


class _Call:
    """The inputs of one call, and under what it ran."""

    def __init__(self, args, kwargs, grad, autocast):
        self.args, self.kwargs, self.grad, self.autocast = args, kwargs, grad, autocast

    def tensors(self):
        return _tensors((self.args, self.kwargs))


class _Layer:
    def __init__(self, module, layer):
        self.module = weakref.ref(module)
        self.layer = layer
        self.calls = []
        self.full = False  # they are enough
        self.output = 0  # bytes
        self.read = 0  # bytes of parameters that a call reads
        self.bytes = 0  # kept


def why_not(torch, module):
    """Why a module cannot be replayed without a change to the training; 0 where it can."""
    if module._modules and _foreign_hooks(torch):
        return OWN_FORWARD  # its children are called, and these would run
    for part in module.modules():
        kind = type(part)
        if not _is_torchs(getattr(kind, "forward", None)) or "forward" in vars(part):
            return OWN_FORWARD  # it may do anything
        if getattr(part, "max_norm", None) is not None or kind.__name__ == "SyncBatchNorm":
            return OWN_DATA  # its forward changes its weights, or waits for other processes
        if any([torch.is_tensor(value) for value in vars(part).values()]):
            return OWN_FORWARD  # a weight that a hook of the program's makes
    return 0


def _is_torchs(forward):
    """By where its code is from: a wrapper may call itself what it wraps."""
    names = getattr(forward, "__globals__", {})
    return str(names.get("__name__", "")).startswith("torch.nn.modules.") and not hasattr(forward, "__wrapped__")


def _tensors(value):
    if isinstance(value, (tuple, list)):
        return [t for each in value for t in _tensors(each)]
    if isinstance(value, dict):
        return [t for each in value.values() for t in _tensors(each)]
    return [value] if hasattr(value, "element_size") else []


def _map(value, change):
    """The same with every tensor changed; raises _Unfit for what is no plain input."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (tuple, list):
        return type(value)([_map(each, change) for each in value])
    if type(value) is dict:
        return {key: _map(each, change) for key, each in value.items()}
    return change(value)


def _bytes(tensors):
    return sum([t.numel() * t.element_size() for t in tensors])


class Isolation:
    def __init__(self, torch):
        self.torch = torch
        self.session = None
        self.paused = 0  # ns, of the session
        self.setup = _SETUP_NS
        self.done = set()  # (layer, phase) that were replayed, or cannot be
        self.backgrounds = set()  # what goes with replays, where it has been measured
        self.numbers = {}  # what goes with replays -> number
        self.limits = None
        self.recording = False
        self.order = []  # layers of this capture, in order of their calls
        self.layers = {}  # id of a module -> _Layer
        self.waiting = {}  # id of a module -> what its running call began with
        self.steps = 0
        self.kept = 0

    # ---- a capture ----

    def begin(self, session, limits, chosen, ids, outside, why):
        """`outside`: layers that are no modules."""
        self.end()
        if session != self.session:
            self.session, self.paused, self.done = session, 0, set()
            self.backgrounds, self.numbers = set(), {}
        self.limits = limits
        wanted = bool(limits) and not why
        if wanted:
            for module, name, type_name, _, parent in chosen:
                each = _Layer(module, ids[name, type_name])
                if parent:
                    self.leave_out(each, _PHASES, PARENT)
                else:
                    self.layers[id(module)] = each
            self.recording = True
            self.leave_out_outside(outside)
        _marks.isolate(wanted and self.left(), why if limits else "")

    def end(self):
        """Lets everything go."""
        self.recording = False
        self.layers = {}
        self.order = []
        self.waiting = {}
        self.steps = self.kept = 0

    def left(self):
        return any([self.wants(each) for each in self.layers.values()])

    def wants(self, each):
        return any([(each.layer, phase) not in self.done for phase in _PHASES])

    def leave_out_outside(self, outside):
        """Layers that are no modules."""
        for layer in outside if self.recording else ():
            self.tell_left_out(layer, _PHASES, NO_MODULE)

    def tell_left_out(self, layer, phases, reason):
        for phase in phases:
            if (layer, phase) not in self.done:
                self.done.add((layer, phase))
                _marks.left_out(layer, phase, reason)

    def leave_out(self, each, phases, reason):
        self.tell_left_out(each.layer, phases, reason)
        if not self.wants(each):
            self.let_go(each)

    def let_go(self, each):
        self.kept -= each.bytes
        each.calls, each.bytes = [], 0

    # ---- a step in which inputs are kept ----

    def called(self, module, args):
        each = self.layers.get(id(module))
        if each is None or not self.recording or each.module() is not module:
            return
        try:
            self.begin_call(each, module, args)
        except Exception:
            self.leave_out(each, _PHASES, FAILED)

    def begin_call(self, each, module, args):
        if not self.torch.is_grad_enabled() and any([p.requires_grad for p in module.parameters()]):
            return  # a validation, or the first time of what is run again with gradients
        if not each.output:
            each.output = 1
            self.order.append(each)
        self.waiting[id(module)] = None
        if each.full or len(each.calls) >= _CALLS_MOST or not self.wants(each):
            return
        reason = why_not(self.torch, module)
        try:
            if reason:
                raise _Unfit(reason)
            self.check_room(_tensors(args))
            self.waiting[id(module)] = (id(args), _map(args, self.keep))
        except _Unfit as unfit:
            if unfit.reason == MEMORY and self.kept:
                return  # what is kept by others goes first
            self.leave_out(each, _PHASES, unfit.reason)

    def returned(self, module, args, kwargs, output):
        each = self.layers.get(id(module))
        if each is None or id(module) not in self.waiting:
            return
        begun = self.waiting.pop(id(module))
        try:
            each.output = max(each.output, _bytes(_tensors(output)))
            each.read = self.parameters_read(module, args)
            if not begun:
                return
            if begun[0] != id(args):
                raise _Unfit(INPUT)  # a hook of the program's has put others in their place
            self.keep_call(each, begun[1], kwargs)
        except _Unfit as unfit:
            self.leave_out(each, _PHASES, unfit.reason)
        except Exception:
            self.leave_out(each, _PHASES, FAILED)

    def keep_call(self, each, args, kwargs):
        torch = self.torch
        self.check_room(_tensors(kwargs))
        call = _Call(args, _map(kwargs, self.keep), torch.is_grad_enabled(), _autocast(torch))
        size = _bytes(call.tensors())
        each.calls.append(call)
        each.bytes += size
        self.kept += size

    def keep(self, tensor):
        torch = self.torch
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided \
                or tensor.is_quantized or tensor.device.type not in ("cpu", "cuda"):
            raise _Unfit(INPUT)
        copy = tensor.detach().clone()
        return copy.requires_grad_(True) if tensor.requires_grad else copy

    def check_room(self, tensors):
        """Half of the limit is for what replays need besides."""
        size = _bytes(tensors)
        on_gpu = any([t.device.type == "cuda" for t in tensors])
        if self.kept + size > min(self.limits[2] // 2, self.free(on_gpu)):
            raise _Unfit(MEMORY)

    def free(self, on_gpu):
        """Bytes that may be taken in all: a part of what the training's peak leaves, not of what is free just now."""
        cuda = self.torch.cuda
        if not on_gpu:
            return self.limits[2]
        return max(0, cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.max_memory_allocated()) // _SHARE

    def parameters_read(self, module, args):
        """Of a table of rows those that the indices name."""
        size = _bytes(list(module.parameters()))
        if isinstance(module, self.gathers()):
            rows = sum([t.numel() for t in _tensors(args)[:1]])
            size = min(size, rows * size // max(module.weight.shape[0], 1))
        return size

    def gathers(self):
        return self.torch.nn.Embedding, self.torch.nn.EmbeddingBag

    # ---- a step's end ----

    def boundary(self):
        """Whether there is more to do in this capture."""
        if not self.layers:
            return False
        if self.recording:
            return self.recorded()
        return self.replay_next()

    def recorded(self):
        """Whether enough is kept is seen at each step's end; the first only begins to keep."""
        self.steps += 1
        wanted = [each for each in self.order if self.wants(each)]
        for each in wanted:
            each.full = len(each.calls) >= _CALLS
        full = wanted and all([each.full for each in wanted])
        if not full and self.steps <= _STEPS:
            return True
        self.recording = False
        if self.kept or any([each.calls for each in wanted]):
            return True
        for each in self.layers.values():
            self.leave_out(each, _PHASES, CALL)
        return False

    def replay_next(self):
        ready = [each for each in self.order if each.calls and self.wants(each)]
        if not ready:
            return self.again()
        each = ready[0]
        phase = [phase for phase in _PHASES if (each.layer, phase) not in self.done][0]
        begun = time.monotonic_ns()
        if self.redraws():
            for other in self.layers.values():
                self.leave_out(other, _PHASES, OWN_DATA)
            return False
        if self.paused + self.limits[0] + self.setup > self.limits[1]:
            for other in self.layers.values():
                self.leave_out(other, _PHASES, PAUSE)
            return False
        _marks.quiet(True)  # our own hooks, too, are none of a replay's
        try:
            self.replay(each, phase, begun)
        finally:
            _marks.quiet(False)
            taken = time.monotonic_ns() - begun
            self.paused += taken
            self.setup = max(self.setup, taken - self.limits[0])
            _marks.paused(taken)
        if not self.wants(each):
            self.let_go(each)
        return True

    def redraws(self):
        """
        Whether putting CUDA's random numbers back would change others: cuDNN's state for the dropout of recurrent
        layers is drawn anew then.
        """
        recurrent = self.torch.nn.modules.rnn.RNNBase
        return self.torch.cuda.is_available() and any(
            [isinstance(part, recurrent) and part.dropout > 0 for each in self.layers.values() if each.module()
             for part in each.module().modules()])

    def again(self):
        """What was kept is done; the rest, which found no room, is next."""
        if not self.left():
            return False
        self.kept = self.steps = 0
        self.recording = True
        return True

    def replay(self, each, phase, begun):
        module = each.module()
        try:
            if module is None:
                raise _Unfit(CALL)
            device = _device(self.torch, each, module)
            with _kept_random(self.torch, device), _silence():
                _Dwell(self, each, module, phase, device, begun).run()
        except _Unfit as unfit:
            self.leave_out(each, [phase], unfit.reason)
        except Exception as error:
            short = isinstance(error, MemoryError) or "out of memory" in str(error)
            self.leave_out(each, [phase], MEMORY if short else FAILED)

    # ---- how cold the cache is ----

    def evicted(self, each, phase, most):
        """
        Bytes that the step touches between two uses of what a layer reads: parameters, outputs and the gradients of
        both, of all others for a forward, of what lies behind it for a backward. A gather's rows are others each time.
        """
        if isinstance(each.module(), self.gathers()):
            return most
        others = self.order if phase == _marks.FORWARD else self.order[self.order.index(each) + 1:]
        touched = sum([2 * (other.read + other.output) for other in others if other is not each])
        return min(touched, most)


class _Dwell:
    """One layer's replays in one phase, at one step's end."""

    def __init__(self, isolation, each, module, phase, device, begun):
        torch = self.torch = isolation.torch
        self.isolation, self.each, self.phase, self.device = isolation, each, phase, device
        self.cuda = self.device.type == "cuda"
        self.calls = self.affordable(module)
        self.replica = _replica(torch, module, {})
        self.forward = type(module).forward
        self.deadline = begun + isolation.limits[1] - isolation.paused
        self.scratch = None

    def affordable(self, module):
        """As many of the kept calls as there is room for what their replays need besides."""
        isolation, each = self.isolation, self.each
        room = min(isolation.limits[2] // 2, isolation.free(self.cuda))
        room -= _bytes(list(module.buffers())) + 2 * each.read
        for count in range(len(each.calls), 0, -1):
            if 3 * count * (each.output + each.bytes // len(each.calls)) <= room:
                return each.calls[:count]
        raise _Unfit(MEMORY)

    # ---- what is replayed ----

    def touch(self, value):
        """As the layer before has just written it: in the cache, and not the copy that is kept."""
        return _map(value, lambda tensor: tensor.clone())

    def prepare(self):
        """[(what touches its inputs, what runs the layer)], of each kept call."""
        if self.phase == _marks.FORWARD:
            return [(lambda call=call: (self.touch(call.args), self.touch(call.kwargs)),
                     lambda inputs: self.forward(self.replica, *inputs[0], **inputs[1])) for call in self.calls]
        if not self.calls[0].grad:
            raise _Unfit(GRADIENT)
        return [self.prepare_backward(call) for call in self.calls]

    def prepare_backward(self, call):
        torch = self.torch
        with self.autocast():
            found = self.forward(self.replica, *self.touch(call.args), **self.touch(call.kwargs))
        outputs = [t for t in _tensors(found) if t.requires_grad]
        inputs = [t for t in call.tensors() + _parameters(self.replica) if t.requires_grad]
        if not outputs or not inputs:
            raise _Unfit(GRADIENT)
        gradients = [t.detach().clone() for t in outputs]
        return (lambda: [t.clone() for t in gradients],
                lambda fresh: torch.autograd.grad(outputs, inputs, fresh, retain_graph=True, allow_unused=True))

    def evict(self):
        if self.scratch is not None:
            self.scratch.sum(1)

    def prepare_scratch(self):
        most = _L2_CPU
        if self.cuda:
            most = getattr(self.torch.cuda.get_device_properties(self.device), "L2_cache_size", _L2)
        step = most * 3 // 2 // _EVICTIONS
        size = round(self.isolation.evicted(self.each, self.phase, step * _EVICTIONS) / step) * step
        rows = size // (4096 * 4)
        if rows:
            self.scratch = self.torch.empty((rows, 4096), dtype=self.torch.float32, device=self.device)
        return rows

    # ---- the dwell ----

    def autocast(self):
        """As in the call, but without its cache: in a step too each layer's weights are cast once."""
        stack = contextlib.ExitStack()
        dtype, on = self.calls[0].autocast[self.device.type]
        stack.enter_context(self.torch.autocast(self.device.type, dtype=dtype, enabled=on, cache_enabled=False))
        return stack

    def contexts(self):
        forward = self.phase == _marks.FORWARD
        stack = self.autocast() if forward else contextlib.ExitStack()
        stack.enter_context(self.torch.inference_mode(False))
        stack.enter_context(self.torch.set_grad_enabled(not forward or self.calls[0].grad))
        return stack

    def run(self):
        """One dwell: of what goes with the replays where that is not known yet, else of the layer itself."""
        isolation = self.isolation
        with self.contexts():
            rows = self.prepare_scratch()
            some = self.prepare()
            for touch, replay in some[:_WARM]:
                self.evict()
                replay(touch())
                self.wait()
                if time.monotonic_ns() > self.deadline:
                    raise _Unfit(PAUSE)
            touched = [tuple([_kind(t) for t in _tensors(touch())]) for touch, _ in some]
            key = (str(self.device), rows, tuple(touched))
            number = isolation.numbers.setdefault(key, len(isolation.numbers) + 1)
            background = key not in isolation.backgrounds
            whole = self.dwell(some, number, background)
        if whole and background:
            isolation.backgrounds.add(key)
        elif whole:
            isolation.done.add((self.each.layer, self.phase))

    def dwell(self, some, number, background):
        """
        False where the agent's wish has changed meanwhile, or no time was left. The first step only sets the time
        line where times are the kernels': a slow layer, or a host that halts, must not take the whole dwell for it.
        """
        mark, layer, phase = _marks.dwell, self.each.layer, self.phase
        now = time.monotonic_ns()
        first = min(_STEP_NS, self.isolation.limits[0] // 2)
        until, step_end = self.deadline, now + first
        event, count, steps = None, 0, number
        mark(_marks.START, number, background)
        try:
            while True:
                round_begun = now
                for _ in range(_ROUND):
                    touch, replay = some[count % len(some)]
                    count += 1
                    self.evict()
                    inputs = touch()
                    mark(_marks.BEGIN, layer, phase)
                    if not background:
                        replay(inputs)
                    mark(_marks.END, layer, phase)
                    now = time.monotonic_ns()
                    if now >= step_end:
                        break
                event = self.keep_near(event)
                spare = round_begun + _ROUND_NS - time.monotonic_ns()
                if spare > 0:
                    time.sleep(spare / 1e9)
                now = time.monotonic_ns()
                if now >= until or _marks.mode() != _SAMPLE:
                    break
                if now >= step_end:
                    if steps == number:
                        until = min(now + self.isolation.limits[0] - first, self.deadline)
                    steps += 1
                    mark(_marks.STEP, steps, background)
                    step_end = now + _STEP_NS
            self.wait()
            mark(_marks.STEP, steps + 1, background)
        finally:
            mark(_marks.STOP, steps + 1, background)
        return steps > number and now >= until

    def keep_near(self, before):
        """The host is one round ahead of the GPU at most: the GPU has work, and little of it is left at the end."""
        if not self.cuda:
            return None
        event = self.torch.cuda.Event()
        event.record()
        if before is not None:
            before.synchronize()
        return event

    def wait(self):
        if self.cuda:
            self.torch.cuda.current_stream().synchronize()


# ---- pieces ----

def _kind(tensor):
    return str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride())


@contextlib.contextmanager
def _silence():
    """What a replay warns of is nothing to the program, whose own warnings are remembered as they were."""
    shown, thread, active = warnings.showwarning, threading.get_ident(), [True]

    def show(*args, **kwargs):
        if not active or threading.get_ident() != thread:
            shown(*args, **kwargs)

    warnings.showwarning = show
    try:
        yield
    finally:
        active.clear()  # another thread may put it back later
        if warnings.showwarning is show:
            warnings.showwarning = shown


def _replica(torch, module, known):
    """
    The same module with the parameters' storage and copies of the buffers, and with no hooks: nothing that its forward
    does to its attributes reaches the original. As torch.nn.parallel.replicate makes them.
    """
    if id(module) in known:
        return known[id(module)]
    copy = known[id(module)] = object.__new__(type(module))  # a __new__ of its own may give the same one
    state = dict(vars(module))
    for name, value in state.items():
        if "_hooks" in name and isinstance(value, dict):
            state[name] = OrderedDict()
    state["_parameters"] = OrderedDict((name, None if each is None else _alias(each, known))
                                       for name, each in module._parameters.items())
    state["_buffers"] = OrderedDict((name, None if each is None else each.detach().clone())
                                    for name, each in module._buffers.items())
    state["_modules"] = OrderedDict((name, None if each is None else _replica(torch, each, known))
                                    for name, each in module._modules.items())
    names = state.get("_flat_weights_names")
    if names is not None:  # of the recurrent layers
        state["_flat_weights"] = [state["_parameters"].get(name) for name in names]
    vars(copy).update(state)
    return copy


def _parameters(replica):
    """Each once; those of a replica are plain tensors."""
    found = {id(each): each for part in replica.modules() for each in part._parameters.values() if each is not None}
    return list(found.values())


def _foreign_hooks(torch):
    """Whether the program has hooks on every module's calls."""
    tables, ours = torch.nn.modules.module, type(_marks.marker(_marks.CALL))
    return any([type(hook) is not ours for name in dir(tables)
                if name.startswith("_global_") and name.endswith("_hooks")
                for hook in getattr(tables, name).values()])


def _alias(parameter, known):
    if id(parameter) not in known:
        known[id(parameter)] = parameter.detach().requires_grad_(parameter.requires_grad)
    return known[id(parameter)]


def _autocast(torch):
    """{device type: (dtype, on)} of autocast here."""
    if hasattr(torch, "get_autocast_dtype"):  # torch >= 2.4
        return {kind: (torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in ("cuda", "cpu")}
    return {"cuda": (torch.get_autocast_gpu_dtype(), torch.is_autocast_enabled()),
            "cpu": (torch.get_autocast_cpu_dtype(), torch.is_autocast_cpu_enabled())}


def disturbed(torch):
    """Who would see what is run here; "" where nobody would."""
    cuda = torch.backends.cuda.is_built() and torch.cuda.is_initialized()
    if cuda and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is captured"
    for name in ("_len_torch_dispatch_stack", "_len_torch_function_stack"):
        length = getattr(torch._C, name, None)
        if length is not None and length():
            return "a mode of torch's looks at its calls"
    hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if hooks is not None and hooks(False) is not None:
        return "a hook of the program's packs what backward needs"
    return ""


def _device(torch, each, module):
    """The only one that the layer and its inputs are on; _Unfit where there are several."""
    used = [call.tensors() for call in each.calls] + [list(module.parameters()), list(module.buffers())]
    devices = {t.device for t in _tensors(used)}
    device = devices.pop() if len(devices) == 1 else None
    if device is None or device.type == "cuda" and device.index != torch.cuda.current_device():
        raise _Unfit(INPUT)
    return device


@contextlib.contextmanager
def _kept_random(torch, device):
    """Random numbers go on as if nothing had been."""
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None and not torch.equal(cuda, torch.cuda.get_rng_state(device)):
            torch.cuda.set_rng_state(cuda, device)
