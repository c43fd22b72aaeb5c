"""Puts hooks into torch when the agent asks for it, and takes all of them out again.

What runs per mark is C (_marks). The agent's wish reaches the hook's own thread, which sleeps
without the GIL; it registers one global forward pre-hook, and the training's thread itself does the
rest as its next forward begins (settle): no hook table is changed while torch walks it.
"""
import atexit
import inspect
import os
import sys
import time
import weakref

from precisionprobe_hook import (_marks, compiling, devices, engine, insides, layers, memory, position, profilers, provenance, ranges, replay,
                                 settings, spans, waits, walks)

_IDLE, _COUNT, _SAMPLE = 0, 1, 2
_SEVERAL = "modules are on several GPUs"
_LATER = 10000000000  # ns until a capture that cannot be is tried again
_FAILURES = 3  # after so many errors of ours no further capture is tried
_CALL_COST = 3000  # ns: what a hooked module call costs where it cannot be measured
_FORKED = "forked from a process that had imported torch: spawn it"

_MARKER = type(_marks.marker(_marks.CALL))
_marks.signature(inspect.signature(lambda module, arguments: None))


class _Probe:
    def __init__(self, torch, directory):
        self.torch = torch
        self.directory = directory
        self.filters = {}
        self.entries = []  # handles of the global forward pre-hook CALL: one, or two after a race
        self.marks = []  # of the global forward hooks ENTER and LEAVE, while marking
        self.optimizer_hooks = []
        self.placed = []  # weak references to the layers' modules
        self.tables = []  # of forward pre-hooks that have a place: kept as long as they have
        self.ids = {}  # (name, type name) -> layer id
        self.outside = {}  # name of a layer of work outside of modules -> its id; in the order of engine.NAMES
        self.owners = {}  # id of a root -> weak references to it and to the module that it is in (or None)
        self.known = {}  # id of a module that some step called -> [weak reference to it, its name as a layer or None]
        self.positions = position.Position()
        self.spans = spans.Spans()
        self.ranges = ranges.Names(torch)
        self.compilations = compiling.Compilations()
        self.provenance = provenance.Provenance(torch)
        self.insides = insides.Insides(self.provenance, self.add_inside)
        self.profilers = profilers.Watch(_marks.give_way, _marks.recording)
        self.isolation = replay.Isolation(torch)
        self.memory = memory.Steps(torch, _marks.lend)
        self.records = []  # of the global forward hooks RECORD_CALL and RECORD_RETURN, while inputs are kept
        self.regions = None
        self.calibrated = False
        self.failures = 0
        self.refused = ""
        self.captured = False  # something was, in this process
        self.digested = lambda: None, ""  # weak reference to a model, and its digest
        self.trained = None, lambda: None  # session and model whose batches are looked at
        self.first = None  # weak reference to the model whose modules go by their names alone
        self.looked = None  # number of the session in which modules that were not known were looked at
        self.sampled = None  # number of the session for which the GPU is sampled
        self.early = False  # asked before any module of this process was called
        self.opened = ()  # what the ring was opened with
        self.recorded = 0  # of a forked child's: nodes of autograd's that its thread had made before

    # ---- the hook's own thread ----

    def run(self):
        mode = _IDLE
        while mode >= 0:
            try:
                if mode != _IDLE or self.installed():
                    self.ask()
                mode = _marks.wait(mode, self.profilers.remove)
            except Exception:
                _marks.fail()
                _marks.pause(100)  # ms; it is tried again

    def installed(self):
        return bool(self.optimizer_hooks or self.marks or self.entries)

    def ask(self):
        """Has the next forward settle. Reads files here, not in the training's thread."""
        if self.failures < _FAILURES and not self.refused:
            self.filters = settings.read(self.directory)
            self.install_entry()

    def install_entry(self):
        if not self.entries:
            self.entries.append(_Hook(self.torch.nn.modules.module._global_forward_pre_hooks, _marks.CALL))

    def stand_aside(self, why):
        """For good: this program is one that the hook could harm. From any thread of the user's."""
        if not self.refused:
            self.refused = why
            _marks.refuse(why)
            self.withdraw()

    # ---- called from C, in the training's thread ----

    def settle(self):
        """Carries out the mode: a forward is beginning, so no table of forwards' hooks is being walked."""
        if self.walked():
            return  # a forward in somebody's own hook of optimizers: the next one settles
        early, self.early = self.early, False
        self.remove_layers()
        mode = _marks.mode()
        if "torch._dynamo.eval_frame" in sys.modules:
            self.regions.arm()
        if mode != _IDLE and self.regions.unseen():
            self.stand_aside(compiling.WHY)
        if mode == _IDLE or self.refused:
            self.withdraw()
            return
        self.install_optimizer()
        if mode == _COUNT:
            self.remove_entry()
            _marks.set_state(_marks.COUNTING)
            return
        self.install_entry()
        self.set_clock()
        _marks.set_state(_marks.DISCOVERING, not early)

    def found(self):
        """A step has ended and its modules are known: hooks every layer, and the capture starts."""
        alive = [reference() for reference in _marks.collected()]
        called = devices.originals({id(each): each for each in alive if each is not None}.values())
        called, regions = self.regions.split(called)
        if _marks.mode() != _SAMPLE:
            _marks.set_state(_marks.STOPPING)
            return  # the next forward settles, by the entry
        if self.filters.get("session", _marks.session()) != _marks.session():
            _marks.set_state(_marks.DISCOVERING, False)
            return  # another session: its filters are being read
        why = devices.unfit(self.torch, called)
        if why:
            self.stand_aside(why)
            return
        named = {at: name for at, (reference, name) in self.known.items() if name and reference() is not None}
        others = [each for each in self.remembered() if each is not None]
        if _marks.session() != self.looked:
            self.looked = _marks.session()
            _marks.look_anew()
        self.find_owners(layers.roots(called))
        chosen, model, first = layers.choose(called, self.filters.get("layers", {}), regions, named, others,
                                             self.first and self.first(), self.owner,
                                             {*self.outside, *self.ranges.names})
        self.first = first if first is None else weakref.ref(first)
        before = len(self.ids)
        if not self.place(chosen, model, devices.replicated(called)):
            self.stand_aside("more than 4096 layers")
            return
        if len(self.ids) > before:
            _marks.look_anew()
        self.remember(others + called, chosen)
        self.remove_entry()
        if self.clock == "host":
            self.set_clock()  # a model that is called while it is made has used no GPU by then
        numbers = devices.numbers(called)
        self.describe(model, numbers)
        self.calibrate()
        phases = self.filters.get("phases") or ["Forward", "Backward", "Optimizer"]
        _marks.phases("Forward" in phases, "Backward" in phases, "Optimizer" in phases)
        tables = self.torch.nn.modules.module
        always = getattr(tables, "_global_forward_hooks_always_called", None)  # torch >= 2.0
        self.marks = [_Hook(tables._global_forward_pre_hooks, _marks.ENTER),
                      _Hook(tables._global_forward_hooks, _marks.LEAVE, always, _with_kwargs(tables))]
        _marks.exceptions(always is not None)
        self.spans.install(self.again())
        self.mark_compiler()
        self.mark_insides(chosen, regions, phases)
        waits.begin(self.torch)
        self.mark_engine(phases)
        _marks.communication(self.queue(called))
        recorded, several, untold = self.record(called, phases)
        if untold:
            self.put_off(untold)
            return
        self.quietly(None, self.tell_whole, chosen, regions, phases, recorded)
        self.sample_gpus(recorded, several, numbers)
        _marks.memory(*((None, None, _SEVERAL) if several else
                        self.quietly((None, None, ""), self.memory.begin_capture, _marks.session(),
                                     next(iter(devices.of(called)), None))))
        self.captured = True
        self.isolation.begin(_marks.session(), settings.isolation(self.filters), chosen, self.ids,
                             [*self.outside.values(), *self.ranges.names.values()],
                             _SEVERAL if several else self.why_not_isolated(called, regions, recorded))
        _marks.set_state(_marks.MARKING)

    def record(self, called, phases):
        """Whether kernels are recorded, whether they are several GPUs', and why nothing can be told where they are not."""
        several = devices.several(called)
        unrecorded = _marks.record("torch.profiler is running" if profilers.running(self.torch) else "", several,
                                   "Backward" in phases)
        several = several or _marks.several()
        if not unrecorded:
            self.profilers.install()
        if several:
            untold = devices.untold(called, _marks.device, self.clock, unrecorded)
        else:
            untold = devices.elsewhere(self.torch, called) if unrecorded and self.clock == "cuda" else ""
        return not unrecorded, several, untold

    def put_off(self, why):
        """No capture now; steps are counted, and after a while it is tried again."""
        if not self.captured:
            _marks.refuse(why)
        self.remove_layers()
        self.remove_entry()
        _marks.put_off(_LATER)

    def rest(self):
        """No step comes: no forward hook until one does."""
        if self.regions.any:
            _marks.refuse(compiling.NO_STEP)
        self.remove_entry()
        _marks.set_state(_marks.COUNTING)

    def resume(self):
        """A step has ended, in an optimizer's hook: there forward hooks may be changed."""
        if not self.refused and self.failures < _FAILURES:
            _marks.refuse("")
            self.install_entry()
            _marks.set_state(_marks.DISCOVERING, False)

    def isolate(self):
        """At a step's end, where torch walks the optimizers' hooks only: whether there is more to do."""
        why, more = "", False
        try:
            why = "torch.profiler is running" if profilers.running(self.torch) else replay.disturbed(self.torch)
            more = not why and not self.refused and self.isolation.boundary()
        except Exception:
            _marks.fail()
            why = "an error of the hook's own"
        if why:
            _marks.isolate(False, why)
        if more and self.isolation.recording:
            self.install_records()
        else:
            self.remove_records()
        if not more:
            self.isolation.end()
        return more

    def memory_begin(self):
        """Whether the step that begins may be looked at for what it allocates."""
        why = self.quietly("an error of the hook's own", self.memory.begin)
        if why:
            self.quietly(None, self.memory.end)
            _marks.memory(None, None, why)
        return not why

    def memory_end(self, marks, why):
        """What was allocated at marks of a step that ends, and the most between them; `why` not."""
        found = []
        if not why:
            found, why = self.quietly(([], "an error of the hook's own"), self.memory.levels, marks)
        self.quietly(None, self.memory.end)
        if why:
            _marks.memory(None, None, why)
        return found

    def quietly(self, otherwise, function, *args):
        """An error costs what was wanted alone."""
        try:
            return function(*args)
        except Exception:
            _marks.fail()
            return otherwise

    def called(self, module, args):
        self.isolation.called(module, args)

    def returned(self, module, args, *more):
        """torch < 2.0 does not tell keyword arguments."""
        self.isolation.returned(module, args, more[0] if len(more) > 1 else {}, more[-1])

    def failed(self):
        """An error of ours: out with everything that can go at once. What stays does nothing."""
        self.failures += 1
        for do in (self.remove_layers, self.remove_entry, _marks.clear, self.try_again):
            try:
                do()
            except Exception:
                pass

    def try_again(self):
        """The next step's end does (resume), or where no optimizer is hooked yet the next forward."""
        if self.failures < _FAILURES and not self.optimizer_hooks:
            self.install_entry()

    # ---- pieces ----

    def place(self, chosen, model, replicated):
        """
        Tells where the layers are; False where there is no room for all. Replicas of a module are known by a table that they
        share with it.
        """
        for module, name, type_name, parameters, parent in chosen:
            layer = self.ids.get((name, type_name)) or _marks.layer(name, type_name, parameters)
            if not layer or not _marks.place(module, layer, parent, module is model, layers.has_parameters(module)):
                return False
            self.ids[name, type_name] = layer
            self.placed.append(_until_gone(module))
            if id(module) in replicated:
                table = module._forward_pre_hooks
                _marks.place(table, layer, parent, False, layers.has_parameters(module))
                self.tables.append(table)
        if model is not None and not any([each[0] is model for each in chosen]):
            _marks.place(model, 0, False, True, False)
            self.placed.append(_until_gone(model))
        return True

    def find_owners(self, roots):
        """Of roots that have not been asked for; a loss or another leaf is in nobody's model that would matter."""
        new = [root for root in roots if root._modules and not self.owners.get(id(root), (lambda: None,))[0]() is root]
        found = layers.owners(new, self.torch.nn.Module, sys._getframe(1)) if new else {}
        for root in new:
            owner = found.get(id(root))
            self.owners[id(root)] = weakref.ref(root), owner if owner is None else weakref.ref(owner)

    def owner(self, root):
        """The outermost module that it is in, or None."""
        of, owner = self.owners.get(id(root), (lambda: None, None))
        return owner() if owner is not None and of() is root else None

    def again(self):
        """The layer for what checkpoints run again outside of modules; 0: there is none, or nobody wants it."""
        name = type_name = "checkpoint"
        if "torch.utils.checkpoint" not in sys.modules or not layers.wants(self.filters.get("layers", {}), name, type_name):
            return 0
        layer = self.ids.get((name, type_name)) or _marks.layer(name, type_name, 0)
        self.ids[name, type_name] = layer
        return layer

    def mark_compiler(self):
        """Compiling is no region's work, but a layer's that stands for it; where nothing is compiled there is none."""
        if not self.regions.any or not layers.wants(self.filters.get("layers", {}), *compiling.LAYER):
            return
        if compiling.LAYER not in self.ids:
            name, type_name = compiling.LAYER
            layer = _marks.layer(layers.free_name(name, self.taken()), type_name, 0)
            if not layer:
                return
            self.ids[compiling.LAYER] = layer
        self.compilations.install(self.ids[compiling.LAYER])

    def mark_insides(self, chosen, regions, phases):
        """Layers inside of regions, where all are wanted."""
        if regions and "Forward" in phases and layers.takes_whole(self.filters.get("layers", {})):
            self.quietly(None, self.insides.begin, insides.regions(chosen, regions, self.ids, self.first and self.first()))

    def tell_whole(self, chosen, regions, phases, recorded):
        """Why layers in regions are not told, as far as it is known before these run; and of layers that stand for others."""
        modules = {id(function): module for function, module, _ in regions}
        for place, name, type_name, _, _ in chosen:
            if id(place) in modules:
                _marks.whole(self.ids[name, type_name], self.why_whole(modules[id(place)], phases, recorded))
            elif type_name.endswith(layers.FOLDED):
                _marks.whole(self.ids[name, type_name], insides.FOLDED)

    def why_whole(self, module, phases, recorded):
        """The reason of a region; `module` is what was compiled, None: a function."""
        if "Forward" not in phases or not layers.takes_whole(self.filters.get("layers", {})):
            return insides.SESSION
        if not recorded:
            return insides.KERNELS
        if module is None:
            return insides.FUNCTION
        return insides.NOT if self.provenance.compiled else insides.COMPILER

    def add_inside(self, name, type_name, parameters):
        """The layer of a module in a region; 0: there is no room."""
        layer = self.ids.get((name, type_name))
        if not layer and len(self.ids) < insides.MOST_LAYERS:
            name = layers.free_name(name, self.taken())
            layer = self.ids.get((name, type_name)) or _marks.layer(name, type_name, parameters)
            if layer:
                self.ids[name, type_name] = layer
        return layer or 0

    def mark_engine(self, phases):
        """Where no layer is left out: the time of one would be that of a loss, of gradients, or of a range."""
        if not ("Forward" in phases and layers.takes_all(self.filters.get("layers", {}))):
            return
        told = self.make_outside() if "Backward" in phases else ()
        if engine.begin(self.torch, *(told or (0, 0))):
            ranges.begin(self.torch, bool(told))

    def make_outside(self):
        """Layers of work outside of modules, where it can be told."""
        if not self.outside and len(self.ids) <= engine.MOST_LAYERS and engine.known(self.torch):
            taken = self.taken()
            for plain in engine.NAMES:
                name = layers.free_name(plain, taken)
                self.outside[name] = _marks.layer(name, engine.TYPE, 0)
        return tuple(self.outside.values())

    def taken(self):
        return {*(name for name, _ in self.ids), *self.outside, *self.ranges.names}

    def range(self, name, rest):
        """From C: the layer of a range that the program enters; 0: it is not told."""
        if len(self.ids) > ranges.MOST_LAYERS or self.ranges.by_torch(sys._getframe(1)):
            return 0
        layer = self.ranges.layer(name, rest, self.taken)
        if layer:
            self.isolation.leave_out_outside((layer,))
        return layer

    def remembered(self):
        """Modules that earlier steps called: one that this step did not call may be called again."""
        return [reference() for reference, _ in self.known.values()]

    def remember(self, called, chosen):
        """None of these is news any more, whatever the filters make of it."""
        names = {id(each[0]): each[1] for each in chosen}
        known = {}
        for each in called:
            reference, name = self.known.get(id(each), (lambda: None, None))
            known[id(each)] = [weakref.ref(each), names.get(id(each)) or (name if reference() is each else None)]
        self.known = known
        for each in called:
            if id(each) not in names and _marks.place(each, 0, False, False, False):
                self.placed.append(_until_gone(each))

    def remove_layers(self):
        self.quietly(None, self.memory.end)
        waits.end()
        self.compilations.remove()
        self.insides.end()
        ranges.end()
        engine.end()
        self.spans.remove()
        self.profilers.remove()
        self.remove_records()
        self.isolation.end()
        while self.marks:
            self.marks.pop().remove()
        self.placed.clear()
        _marks.clear()
        self.tables.clear()

    def withdraw(self):
        """Takes all out. An optimizer's hooks stay, and do nothing, while torch walks them."""
        self.remove_layers()
        self.remove_entry()
        if not _marks.optimizer_open() and not self.walked():
            self.remove_optimizer()
        _marks.set_state(_marks.OFF)

    def walked(self):
        return walks.walked(sys.modules["torch.optim.optimizer"], _MARKER)

    def remove_entry(self):
        """All of ours among the forward hooks, also what an error left there before its handle was kept."""
        self.entries.clear()
        tables = self.torch.nn.modules.module
        _take_out(tables._global_forward_pre_hooks, tables._global_forward_hooks)

    def install_optimizer(self):
        if self.optimizer_hooks:
            return
        if waits.known():
            _marks.scaler(getattr(self.torch, "_amp_update_scale_", None))
        module = sys.modules["torch.optim.optimizer"]
        if hasattr(module, "register_optimizer_step_pre_hook"):
            self.optimizer_hooks = [_Hook(module._global_optimizer_pre_hooks, _marks.OPTIMIZER_BEGIN),
                                    _Hook(module._global_optimizer_post_hooks, _marks.OPTIMIZER_END)]
        else:
            self.optimizer_hooks = [_RecordedSteps(self.torch.autograd.profiler,
                                                   _marks.marker(_marks.OPTIMIZER_BEGIN),
                                                   _marks.marker(_marks.OPTIMIZER_END))]

    def remove_optimizer(self):
        _marks.scaler_end()
        while self.optimizer_hooks:
            self.optimizer_hooks.pop().remove()
        module = sys.modules["torch.optim.optimizer"]
        _take_out(getattr(module, "_global_optimizer_pre_hooks", {}),
                  getattr(module, "_global_optimizer_post_hooks", {}))

    def set_clock(self):
        """CUDA events where the training uses CUDA, else the host clock."""
        cuda = self.torch.cuda
        stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None)
        self.clock = _marks.use_clock(stream if stream and cuda.is_initialized() else None)

    def queue(self, called):
        """Has backward's end called back, where DistributedDataParallel waits there on the host."""
        if self.clock != "host" or not any(type(m).__name__ == "DistributedDataParallel" for m in called):
            return None
        return self.torch.autograd.Variable._execution_engine.queue_callback

    def describe(self, model, numbers):
        """
        Of what is trained; the model is the largest module that no other calls, and may be in one that is not called. `numbers`:
        of the GPUs that modules are on.
        """
        whole = model if model is None else self.owner(model) or model
        rank, world = settings.rank(self.torch)
        self.gpus = settings.gpus(self.torch, numbers[0] if len(numbers) == 1 else None)
        _marks.describe(layers.class_of(whole), self.digest(whole), ",".join(self.gpus), rank, world)
        session, trained = self.trained
        if session != _marks.session() or trained() is not model:
            self.trained = _marks.session(), (lambda: None) if model is None else weakref.ref(model)
            _marks.batch_anew()

    def digest(self, model):
        """Once of each model."""
        if model is not None and self.digested[0]() is not model:
            self.digested = weakref.ref(model), layers.digest(model)
        return "" if model is None else self.digested[1]

    def sample_gpus(self, recorded, several, numbers):
        """
        Has the hook's thread start the program that samples a GPU, once in a session that asks for it: for the one, or for
        each of several; they are those with these numbers, on which modules are.
        """
        session, period = _marks.session(), settings.sampling_period(self.filters)
        if self.sampled == session:
            return
        named = [(_marks.device(number), number) for number in numbers]
        if not several:
            named = [(uuid, -1) for uuid in ([named[0][0]] if len(named) == 1 and named[0][0] else self.gpus)]
        if not period or not recorded or not named or len(named) > 1 and not several:
            _marks.sample_no_gpu("" if not period else "no GPU is used" if self.clock == "host" else
                                 "kernels are not recorded" if not recorded else
                                 "several GPUs" if named else "which GPU is used is not known")
            return
        self.sampled = session
        program = os.path.join(os.path.dirname(_marks.__file__), "precisionprobe-sampler")
        for uuid, number in named:
            _marks.sample_gpu(os.fsencode(program), os.fsencode(self.directory), uuid.encode(), number, period,
                              os.environb.get(b"PATH", b""), os.environb.get(b"LD_LIBRARY_PATH", b""))

    def why_not_isolated(self, called, regions, recorded):
        distributed = self.torch.distributed
        if regions or self.regions.any:
            return "compiled code"
        if distributed.is_available() and distributed.is_initialized():
            return "several processes train together"
        if any([type(m).__name__ in replay.WRAPPERS for m in called]):
            return "the model is wrapped for several GPUs"
        return "" if recorded or self.clock == "host" else "kernels are not recorded"

    def install_records(self):
        tables = self.torch.nn.modules.module
        if not self.records:
            self.records = [_Hook(tables._global_forward_pre_hooks, _marks.RECORD_CALL),
                            _Hook(tables._global_forward_hooks, _marks.RECORD_RETURN, _with_kwargs(tables))]

    def remove_records(self):
        while self.records:
            self.records.pop().remove()

    def calibrate(self):
        """What a hooked module call costs outside our callables: torch's slower way of calling."""
        if self.calibrated:
            return
        self.calibrated = True
        tables = self.torch.nn.modules.module
        if any(getattr(tables, name, None) for name in dir(tables)
               if name.startswith("_global_") and name.endswith("_hooks")):
            _marks.call_cost(_CALL_COST)  # the user's global hooks are not to see a module of ours
            return
        module = self.torch.nn.Identity()

        def typical():
            times = []
            for _ in range(33):
                begun = time.perf_counter_ns()
                module(None)
                times.append(time.perf_counter_ns() - begun)
            return sorted(times)[16]

        plain = typical()
        hooks = []
        _marks.quiet(True)
        try:
            hooks = [tables.register_module_forward_pre_hook(_marks.marker(_marks.ENTER)),
                     tables.register_module_forward_hook(_marks.marker(_marks.LEAVE))]
            _marks.call_cost(typical() - plain + 150)  # two marks: their clock and store
        finally:
            for hook in hooks:
                hook.remove()
            _marks.quiet(False)

    def position(self):
        return self.positions.get()

    # ---- fork ----

    def forget(self):
        """In a forked child: it is another process, and nobody marks it."""
        _marks.forget()
        self.memory.forget()
        for remove in (self.remove_layers, self.remove_entry, self.remove_optimizer, self.await_end):
            try:
                remove()
            except Exception:
                pass

    def await_end(self):
        """
        Nothing of ours is in a forked child while it runs, and its end tells whether it was one to profile. Children of
        multiprocessing end without atexit's callbacks; what such a child leaves to its end it says once it has begun.
        """
        self.recorded = self.nodes()
        atexit.unregister(self.tell_fork)
        atexit.register(self.tell_fork)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, lambda probe: util.Finalize(None, probe.tell_fork, exitpriority=0))

    def nodes(self):
        """How many nodes of a graph this thread has made; 0 before torch 2.1, which does not tell."""
        return getattr(self.torch._C._autograd, "_get_sequence_nr", int)()

    def tell_fork(self):
        """A DataLoader's worker, and whatever else makes no graph, says nothing."""
        try:
            if self.nodes() != self.recorded and not _loads_data():
                self.recorded = self.nodes()
                _marks.open(*self.opened)
                _marks.refuse(_FORKED)
        except Exception:
            pass


def _until_gone(module, drop=_marks.drop):
    """A reference that ends the module's place; as the interpreter ends too, when globals are gone."""
    return weakref.ref(module, lambda _, at=id(module): drop(at))


class _Hook:
    """A hook of ours in one of torch's global tables, under an id that torch gives to no other."""

    def __init__(self, table, kind, *notes):
        """`notes`: tables in which torch notes how hooks are called, None where it has none."""
        self.id = sys.modules["torch.utils.hooks"].RemovableHandle(table).id
        _marks.hook(table, self.id, kind)
        for each in notes:
            if each is not None:
                _marks.hook(each, self.id, kind, True)

    def remove(self):
        _marks.unhook(self.id)


def _with_kwargs(tables):
    return getattr(tables, "_global_forward_hooks_with_kwargs", None)  # torch >= 2.0


def _take_out(*tables):
    for table in tables:
        for key in [key for key, hook in table.items() if type(hook) is _MARKER]:
            _marks.unhook(key)


class _RecordedSteps:
    """
    Optimizer steps for torch < 2.0, which has no global optimizer hooks: every step and nothing
    else enters a record_function named Optimizer.step#..., looked up by name each time.
    """

    def __init__(self, profiler, begin, end):
        self.profiler = profiler
        self.original = profiler.record_function

        class record_function(self.original):
            def __enter__(self):
                result = super().__enter__()
                if self.name.startswith("Optimizer.step#"):
                    begin(self.name)
                return result

            def __exit__(self, exc_type, exc_value, traceback):
                if exc_type is None and self.name.startswith("Optimizer.step#"):
                    end(self.name)
                return super().__exit__(exc_type, exc_value, traceback)

        self.replacement = record_function
        profiler.record_function = record_function

    def remove(self):
        if self.profiler.record_function is self.replacement:
            self.profiler.record_function = self.original


def _accumulate_grad(torch):
    """The type of AccumulateGrad nodes, from a graph of one node."""
    with torch.enable_grad():
        leaf = torch.zeros(1, device="cpu", requires_grad=True)
        return type(leaf.view(1).grad_fn.next_functions[0][0])


def _loads_data():
    """Whether this process is a worker of a DataLoader."""
    current = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    target = getattr(current and current(), "_target", None)
    return str(getattr(target, "__module__", "")).startswith("torch.utils.data.")


def _wait_in_child(probe):
    """
    A process made by multiprocessing may be a rank of the training, or a worker of a DataLoader,
    which is none of ours: what it shall run is known once its own process object is there.
    """
    current = sys.modules["multiprocessing.process"].current_process
    while type(current()).__name__ == "_MainProcess":
        _marks.pause(100)
    if not _loads_data():
        _begin(probe)


def _begin(probe):
    torch = probe.torch
    control = settings.read(probe.directory)
    rank, world = settings.rank(torch)
    about = (probe.directory, sys.version.split()[0], str(torch.__version__), os.uname().nodename,
             ",".join(settings.gpus(torch)), rank, world)
    probe.opened = *about, _IDLE, 0
    _marks.open(*about, {"count": _COUNT, "sample": _SAMPLE}.get(control.get("mode"), _IDLE), control.get("session", 0))
    sequence = getattr(torch._C._autograd, "_get_sequence_nr", None)
    task = getattr(torch._C, "_current_graph_task_id", None)
    _marks.configure(probe, torch.Tensor, _accumulate_grad(torch), sequence, task, torch.is_grad_enabled)
    probe.regions = compiling.Regions(torch, probe.stand_aside, lambda: probe.spans.spare("zero_grad"), probe.provenance.arm)
    if _marks.mode() != _IDLE:
        probe.early = True
        probe.ask()  # before the first step, whatever the thread does
    atexit.register(_marks.leave)
    os.register_at_fork(after_in_child=probe.forget)
    if not _marks.start(probe.run):
        _marks.fail()
        probe.withdraw()
        _marks.leave()


def start():
    """Called once torch is imported. Without the agent's directory nothing happens."""
    directory = os.environ.get("PRECISIONPROBE_RING") or ""
    if not os.path.isdir(directory):
        return
    probe = _Probe(sys.modules["torch"], directory)
    multiprocessing = sys.modules.get("multiprocessing.process")
    # A spawned process that imports its main module has no parent to ask for yet.
    if multiprocessing and (multiprocessing.parent_process() is not None
                            or getattr(multiprocessing.current_process(), "_inheriting", False)):
        _marks.start(lambda: _quietly(_wait_in_child, probe))
    else:
        _begin(probe)


def _quietly(function, *args):
    try:
        function(*args)
    except Exception:
        pass
