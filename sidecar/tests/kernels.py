"""A training whose layers launch kernels on doubles of CUDA and CUPTI; prints what a test compares, as JSON.

usage: kernels.py CASE CUDA CUPTI   (the doubles)

Every step launches the same kernels, so that each that is told of can be compared with kernels().
"""
import ctypes
import glob
import os
import queue
import signal
import struct
import sys
import threading
import time
import types
import warnings

import faults
import torch
from torch import nn

faults.PERIOD = 40
ORDINARY, OF_GRAPH, TOLD_LATE = range(3)
FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, OTHER, INFERENCE = 0, 1, 2, 6, 7, 8
LAYERS = {  # name: kernels in ns of forward and backward, and how each of the two launches
    "0": ([600000], [1000000], ORDINARY, ORDINARY),
    "1": ([300000, 500000], [800000], ORDINARY, ORDINARY),
    "2": ([200000, 200000], [400000], ORDINARY, TOLD_LATE),
}
REST = {OPTIMIZER: 250000, COMMUNICATION: 350000, OTHER: 450000}
# Copies and fills of a step: layer or "", phase, type, memory of the host: (kind, how, host of CUPTI's, bytes, ns).
MEMCPY, MEMSET, PEERS = 1, 2, 22
COPIES = {
    ("0", FORWARD, "h2d", "pinned"): (MEMCPY, 1, 2, 100352, 150000),
    ("1", FORWARD, "d2d", ""): (MEMCPY, 8, 3, 5000, 30000),
    ("1", BACKWARD, "fill", ""): (MEMSET, 0, 0, 400000001, 200000),
    ("2", BACKWARD, "p2p", ""): (PEERS, 10, 3, 77, 20000),
    ("", OTHER, "d2h", "pageable"): (MEMCPY, 2, 1, 4, 10000),
}
ON = {}  # of layers the GPU that they run on, where it is not the first
STRANGE = 130000  # ns of the kernel of another thread, where there is one
TAUGHT = [7000, 9000]  # of those of another thread's module
LATE = 80000000  # ns; a stream is waited for 0.2 s, and a busy machine is itself late by some of it
BEHIND = (400000000, 800000000, 3000000000, 3000000000)  # ns; the last ones longer than a capture goes on and waits
LONG = 5000000000  # ns; more than 32 bits of them
AHEAD = 3000000000  # ns that the host is ahead
# As the compiler mangles them.
GEMM = b"_ZN4gemm3runILi4EEEvPf"
COLLECTIVE = b"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"

double = None


def kernels():
    """[layer, phase, ns, kernels, GPU] of a step."""
    strange = [STRANGE] if stranger else []
    return [[name, phase, sum(one[phase]), len(one[phase]), gpu] for name, one in LAYERS.items() for phase in (FORWARD, BACKWARD)
            for gpu in ((0, 1) if "replicas" in ON else (ON.get(name, 0),))] + \
        [["", phase, ns + sum(strange * (phase == OTHER)), 1 + len(strange * (phase == OTHER)), 0] for phase, ns in REST.items()] + \
        [["Teacher", INFERENCE, sum(TAUGHT), len(TAUGHT), 0]] * bool(teacher)


def launch(durations, how=ORDINARY, name=GEMM, on=0):
    double.pp_cupti_device(on)
    for ns in durations:
        double.pp_cupti_launch(name, ctypes.c_int64(ns), how)
    double.pp_cupti_device(0)


def copy(*place):
    double.pp_cupti_device(ON.get(place[0], 0))
    for key, (kind, how, host, count, ns) in COPIES.items():
        if key[:2] == place:
            double.pp_cupti_copy(kind, how, host, ctypes.c_int64(count), ctypes.c_int64(ns))
    double.pp_cupti_device(0)


class Stranger:
    """A thread that calls no module, as one that averages weights is; it launches a kernel where it is asked to."""

    def __init__(self):
        self.asked, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while self.asked.get():
            launch([STRANGE])
            self.done.put(None)

    def launch(self):
        self.asked.put(True)
        self.done.get()


class Waiter(Stranger):
    """One whose first kernel in a capture is followed by a wait of the host, of which the hook tells."""

    def run(self):
        waits = 1
        while self.asked.get():
            launch([STRANGE])
            if waits and double.pp_cupti_attached():
                waits -= 1
                float(torch.ones(1))
            self.done.put(None)


class Teacher(nn.Linear):
    """A module that a thread of its own calls: its forward begins and ends while a layer's is open."""

    def __init__(self):
        super().__init__(8, 8)
        self.asked, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with torch.no_grad():
            while True:
                self.asked.get()
                self.eval()(torch.ones(4, 8))
                self.done.put(None)

    def forward(self, x):
        launch(TAUGHT[:1])
        self.done.put(None)
        self.asked.get()
        launch(TAUGHT[1:])
        return x

    def go_on(self):
        self.asked.put(None)
        self.done.get()


stranger = teacher = None


class Launch(torch.autograd.Function):
    @staticmethod
    def forward(context, x, layer):
        context.layer = layer
        context.on = on = getattr(replica, "on", ON.get(layer, 0))
        launch(LAYERS[layer][0][:1], LAYERS[layer][2], on=on)
        copy(layer, FORWARD)
        if stranger and layer == "1":
            stranger.launch()
        if teacher and layer == "1":
            teacher.go_on()
        launch(LAYERS[layer][0][1:], LAYERS[layer][2], on=on)
        if teacher and layer == "1":
            teacher.go_on()
        return x.clone()

    @staticmethod
    def backward(context, grad):
        copy(context.layer, BACKWARD)
        launch(LAYERS[context.layer][1], LAYERS[context.layer][3], on=context.on)
        return grad, None


class Layer(nn.Linear):
    def forward(self, x):
        return Launch.apply(super().forward(x), self.name)


class Training(faults.Training):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(*[Layer(8, 8) for _ in LAYERS])
        for name, layer in self.model.named_children():
            layer.name = name
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, **({} if torch.__version__ < "2" else {"foreach": False}))
        self.optimizer.register_step_pre_hook(lambda *_: launch([REST[OPTIMIZER]]))
        self.begin = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.log, self.pause, self.late, self.ahead = [], 0, 0, 0

    def step(self):
        time.sleep(self.pause)
        super().step()
        copy("", OTHER)
        launch([REST[OTHER]])
        self.wait()
        launch([ns for phase, ns in REST.items() if phase == COMMUNICATION], name=COLLECTIVE)
        if self.late and self.steps % 40 == 0:
            launch([self.late], name=COLLECTIVE)
        self.wait()

    def wait(self):
        if self.ahead:
            double.pp_cupti_wait_until(ctypes.c_int64(self.ahead))
        else:
            for gpu in {0, *ON.values()}:
                double.pp_cupti_device(gpu)
                double.pp_cupti_wait(not self.late)
            double.pp_cupti_device(0)

    def calls(self):
        """Of CUPTI's functions, all until now."""
        text = ctypes.create_string_buffer(65536)
        double.pp_cupti_log(text, len(text))
        self.log += text.value.decode().split()
        return self.log

    def recording(self):
        return faults.ring()["state"] == 2 and faults.ring()["clock"] == "kernels" and double.pp_cupti_attached()

    def left(self):
        profiler = [getattr(torch.autograd.profiler, name, None) for name in ("_prepare_profiler", "_enable_profiler")]
        return super().left() + ["cupti"] * double.pp_cupti_attached() + [
            each.__qualname__ for each in profiler if getattr(each, "__module__", "").startswith("precisionprobe_hook")]


def plain(training):
    pass


def captures(training):
    """Two of them, each recorded from its beginning to its end, and a third, which may go on until the session's end: where
    recording costs less than the budget there is no rest after it."""
    training.until(lambda: training.calls().count("register") >= 3)
    kernels_told = faults.ring()["kernel_head"]
    training.until(lambda: faults.ring()["kernel_head"] > kernels_told)


class There(nn.Parameter):
    """A parameter that says that it is on a GPU."""
    device = property(lambda self: torch.device(self.where))


def spread(training):
    """A pipeline by hand: the last layer is on another GPU."""
    ON["2"] = 1
    for name, layer in training.model.named_children():
        for parameter in layer.parameters():
            parameter.__class__, parameter.where = There, "cuda:%d" % ON.get(name, 0)


def two(training):
    spread(training)
    captures(training)


replica = threading.local()


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(context, parameter):
        return parameter.clone()

    @staticmethod
    def backward(context, grad):
        return grad


class DataParallel(nn.Module):
    """As torch's, which wants GPUs: replicas that are made anew in each forward, and run in threads of their own."""

    def __init__(self, module):
        super().__init__()
        self.module, self.device_ids = module, [0, 1]

    def copy(self, module):
        made = module._replicate_for_data_parallel()
        for name, parameter in module._parameters.items():
            setattr(made, name, Broadcast.apply(parameter))
        for name, child in module._modules.items():
            made._modules[name] = self.copy(child)
        return made

    def forward(self, x):
        def run(number, module):
            replica.on = number
            outputs[number] = module(x)
        outputs = {}
        for number, module in enumerate([self.copy(self.module) for _ in self.device_ids]):
            thread = threading.Thread(target=run, args=(number, module))
            thread.start()
            thread.join()
        return (outputs[0] + outputs[1]) / 2


def parallel(training):
    ON["replicas"] = 1
    COPIES.clear()
    training.model = DataParallel(training.model)
    captures(training)


def unseen(training):
    """Kernels run on a GPU on which no module is."""
    ON["2"] = 1
    training.until(lambda: training.calls().count("register") >= 4)  # nothing is told of the first
    captures(training)


def go_on(training):
    """On a slow machine captures may hold hardly a step."""
    kernels_told = faults.ring()["kernel_head"]
    training.until(lambda: faults.ring()["kernel_head"] > kernels_told + 300)


def beside(training):
    """Another thread launches a kernel while a layer's forward is open."""
    global stranger
    stranger = Stranger()
    captures(training)
    go_on(training)


def current(gpu):
    """torch.cuda's current GPU, as in a thread that has set it, and what it tells of all."""
    torch.cuda.current_device = lambda: gpu
    torch.cuda.get_device_properties = lambda number: types.SimpleNamespace(
        name="NVIDIA H200", uuid="00112233-4455-6677-8899-aabbccddee" + ("ff", "f0")[number])


def moved(training):
    """The model is on the second GPU while the first is the current one, and kernels cannot be recorded."""
    current(0)
    ON.update(dict.fromkeys(LAYERS, 1))
    return [*untimed(training), faults.ring()["gpus"]]


def placed(training):
    """The same, but the second is the current one."""
    current(1)
    ON.update(dict.fromkeys(LAYERS, 1))
    spread(training)
    double.pp_cupti_fault(b"subscribe")
    events(training)
    return faults.ring()["gpus"]


def beside_waiting(training):
    """The same, of a thread that waits, in a training that waits for its launches."""
    global stranger
    stranger = Waiter()
    waiting(training)
    go_on(training)


def untimed(training):
    """A session in which kernels cannot be recorded, of a model on two GPUs: for some steps nothing is told."""
    spread(training)
    double.pp_cupti_fault(b"subscribe")
    until = training.steps + 300
    training.until(lambda: training.steps >= until and faults.ring()["refusal"])
    return [faults.ring()["refusal"], faults.ring()["head"]]


def waiting(training):
    """The training waits for its launches, not for the GPU."""
    for name, (forward, backward, *how) in LAYERS.items():
        LAYERS[name] = ([ns // 100 for ns in forward], [ns // 100 for ns in backward], *how)
    REST.update({phase: ns // 100 for phase, ns in REST.items()})
    COPIES.update({key: (*copied, ns // 100) for key, (*copied, ns) in COPIES.items()})
    training.pause = 0.004
    captures(training)


def taught(training):
    """Another thread's module runs while a layer's forward is open. The training waits for its launches."""
    global teacher
    teacher = Teacher()
    waiting(training)
    go_on(training)


def lagging(training):
    """Collectives run behind at times, and nothing waits for them."""
    training.late = LATE
    training.until(lambda: training.calls().count("finalize") >= 6)


def behind(training):
    """The same, and in some captures one that takes longer, at last as CUPTI is left: in none before their stream is known.
    A capture that costs less than the budget goes on, and is not waited for."""
    def for_so_long(seconds, condition):
        end = time.monotonic() + seconds
        training.until(lambda: condition() or time.monotonic() > end)

    training.late = LATE
    training.until(training.recording)
    for_so_long(0.1, lambda: False)
    for ns in BEHIND:
        training.until(training.recording)
        launch([ns], name=COLLECTIVE)
        for_so_long(2 * ns / 1e9, lambda: not training.recording())
    before = training.calls().count("finalize")
    for_so_long(10, lambda: training.calls().count("finalize") >= before + 3)


def long(training):
    """A collective and a copy take seconds, once each in a capture's step."""
    training.until(training.recording)
    launch([LONG], name=COLLECTIVE)
    double.pp_cupti_copy(PEERS, 10, 3, ctypes.c_int64(4096), ctypes.c_int64(LONG))
    double.pp_cupti_wait(1)
    training.until(lambda: training.calls().count("finalize") >= 3)
    training.late = LONG  # one step is not as the others
    return LONG


def ahead(training):
    """The host is seconds ahead of its GPU and waits for nothing, for some 15 s."""
    for name, (forward, backward, *how) in LAYERS.items():
        LAYERS[name] = ([4 * ns for ns in forward], [4 * ns for ns in backward], *how)
    del REST[COMMUNICATION]  # those are beside it
    training.ahead = AHEAD
    training.until(lambda: training.steps >= 900)


def graphs(training):
    """A layer is a CUDA graph."""
    LAYERS["2"] = (*LAYERS["2"][:2], OF_GRAPH, OF_GRAPH)
    captures(training)


def graphs_untold(training):
    """The same, where CUPTI tells of no calls."""
    LAYERS["2"] = (*LAYERS["2"][:2], OF_GRAPH, OF_GRAPH)
    double.pp_cupti_fault(b"calls")
    events(training)


def taught_untold(training):
    """Another thread's module runs while a layer's forward is open, where CUPTI tells of no calls."""
    global teacher
    teacher = Teacher()
    double.pp_cupti_fault(b"calls")
    events(training)


def untold(training):
    """CUPTI tells of no calls, whatever it is asked for."""
    double.pp_cupti_fault(b"calls")
    captures(training)


def dear(training):
    """Records of calls cost more than the kernels' own, though the GPU is behind. In so many captures that the hook's
    buffers would not do if CUPTI kept those that it has at a capture's end."""
    double.pp_cupti_fault(b"dear")
    training.until(lambda: training.calls().count("finalize") >= 12)


def uncopied(training):
    """CUPTI records kernels, and no copies."""
    double.pp_cupti_fault(b"uncopied")
    captures(training)


def unleft(training):
    """CUPTI cannot be left after the first captures, and then it can."""
    double.pp_cupti_fault(b"finalize")
    training.until(lambda: training.calls().count("finalize") >= 3)
    double.pp_cupti_fault(b"")
    until = training.steps
    training.until(lambda: not double.pp_cupti_attached())
    training.until(training.recording)
    return until


def refused(training):
    """One reason after another not to record."""
    told = {}
    for fault in ("subscribe", "clock", "late", "enable"):
        training.until(lambda: not double.pp_cupti_attached())
        double.pp_cupti_fault(fault.encode())
        training.until(lambda: faults.ring()["kernels"] and faults.ring()["state"] == 2)
        told[fault] = faults.ring()["kernels"]
        training.until(lambda: faults.ring()["state"] < 2)
        double.pp_cupti_fault(b"")
        training.until(training.recording)
    return told


def damaged(training):
    """Records are lost in one way after another, in the middle of a capture."""
    told = {}
    for fault in ("stuck", "dropped", "unended"):
        lost = faults.ring()["kernels_lost"]
        while training.until(training.recording) and faults.ring()["kernels_lost"] == lost:
            double.pp_cupti_fault(fault.encode())
            if fault == "stuck":
                launch([0] * 25000)  # more than there are buffers for
            for _ in range(5):
                training.step()
            double.pp_cupti_fault(b"")
            training.until(lambda: faults.ring()["kernels_lost"] > lost or not training.recording())
        told[fault] = training.steps
        left = training.calls().count("finalize")
        training.until(lambda: training.calls().count("finalize") >= left + 2)  # a whole capture after
    return told


def profiling(training):
    """A function that trains for 60 steps under torch.profiler, with a note among the calls where that begins and ends,
    and gives how often a layer ran."""
    prepare = torch.autograd.profiler._prepare_profiler

    def noting(*args):
        double.pp_cupti_note(b"profile" if torch.autograd.profiler._prepare_profiler is noting else b"wrapped")
        return prepare(*args)

    def profile():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(60):
                training.step()
        double.pp_cupti_note(b"profiled")
        return sum(event.count for event in profiler.key_averages() if event.key == "aten::linear")

    torch.autograd.profiler._prepare_profiler = noting
    return profile


def profiled(training):
    """torch.profiler begins in the middle of a capture, and when one has just ended."""
    profile = profiling(training)
    training.until(training.recording)
    counts = [profile()]
    training.until(training.recording)
    training.until(lambda: faults.ring()["state"] < 2)
    counts.append(profile())
    training.until(training.recording)
    return counts


def unleft_profiled(training):
    """torch.profiler begins where CUPTI could not be left after the capture before."""
    profile = profiling(training)
    double.pp_cupti_fault(b"finalize")
    training.until(lambda: training.calls().count("finalize") >= 1)
    double.pp_cupti_fault(b"")
    counts = profile()
    training.until(training.recording)
    return counts


def forked(training):
    """Children are born while the hook's thread hands records over, and profile themselves."""
    warnings.simplefilter("ignore")  # that other threads may hold a lock is what this is about
    training.until(training.recording)
    double.pp_cupti_fault(b"slow")
    ended = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                torch.ones(2) + 1
            os._exit(7)
        until = time.monotonic() + 20
        while (status := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            training.step()
        if status[0] == 0:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)
        ended.append(os.waitstatus_to_exitcode(status[1]))
    double.pp_cupti_fault(b"")
    return ended


def cmdline(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return file.read().decode().split("\0")
    except OSError:
        return [""]


def samplers():
    """Processes that sample for this ring's folder."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit()
            and os.path.basename(cmdline(pid)[0]) == "precisionprobe-sampler" and faults.RING in cmdline(pid)]


def children():
    """Also those that wait() does not find."""
    while True:
        found = []
        try:
            for thread in os.listdir("/proc/self/task"):
                with open("/proc/self/task/%s/children" % thread) as file:
                    found += file.read().split()
            return found
        except (FileNotFoundError, ProcessLookupError):
            pass  # a thread has ended meanwhile: its children are another's now


def has_no_child():
    """As far as wait() tells."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def about(pid):
    """What of this process could be in another one."""
    files = {os.readlink("/proc/%s/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%s/fd" % pid)}
    with open("/proc/%s/status" % pid) as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file)
    with open("/proc/%s/environ" % pid) as file:
        environment = dict(entry.split("=", 1) for entry in file.read().split("\0") if entry)
    return {"files": sorted(files), "blocked": int(status["SigBlk"], 16), "ignored": int(status["SigIgn"], 16),
            "alone": os.getsid(int(pid)) != os.getsid(0), "environment": list(environment),
            "folders": all(environment.get("LD_LIBRARY_PATH", "").split(":"))}


def asked(training):
    """A session that asks for samples of the GPU."""
    training.until(lambda: faults.ring()["fine"])
    return faults.ring()["fine"]


def hindered(training):
    """At first kernels cannot be recorded."""
    double.pp_cupti_fault(b"subscribe")
    told = [asked(training)]
    double.pp_cupti_fault(b"")
    training.until(lambda: faults.ring()["fine"] == "started")
    return told + [faults.ring()["fine"]]


def renewed(training):
    """Another session, of which nothing is decided yet."""
    told = [asked(training)]
    path, = glob.glob(os.path.join(faults.RING, "*.ring"))
    faults.own.pp_fault_session(path.encode(), 77)
    training.until(lambda: faults.ring()["fine"] == "")
    return told + [faults.ring()["fine"]]


def beat(samples):
    """What the agent does, which knows nothing of the sampler here: without it that ends after half a minute (pp_samples_header)."""
    with open(samples, "r+b") as file:
        size, = struct.unpack("I", os.pread(file.fileno(), 4, 12))
        number, = struct.unpack("I", os.pread(file.fileno(), 4, size - 44))
        os.pwrite(file.fileno(), struct.pack("I", (number + 1) % (1 << 32)), size - 44)


def sampled(training):
    """The process that samples has nothing of the training, which does not notice it."""
    signals = []
    signal.signal(signal.SIGCHLD, lambda number, frame: signals.append(number))
    os.set_inheritable(os.pipe()[1], True)
    training.until(samplers)
    pid, = samplers()
    samples = os.path.join(faults.RING, cmdline(pid)[2] + ".samples")
    training.until(lambda: os.path.exists(samples))
    told = {"fine": faults.ring()["fine"], "sampler": about(pid), "children": [about(each) for each in children()],
            "alone": [has_no_child()]}
    before = training.calls().count("finalize")
    training.until(lambda: beat(samples) or training.calls().count("finalize") >= before + 2)
    told["same"] = samplers() == [pid]
    if told["children"]:  # the training would be its parent
        os.kill(pid, signal.SIGKILL)
        training.until(lambda: not samplers() and not children())
        before = training.calls().count("finalize")
        training.until(lambda: training.calls().count("finalize") >= before + 2)
        told["again"] = samplers() + children()
    told["alone"].append(has_no_child())
    return {**told, "signals": signals}


def adopt():
    """Orphans become children of the training, as they do of process 1."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def adopting(training):
    adopt()
    return sampled(training)


def bereft(training):
    """The program that samples cannot be run."""
    adopt()
    signals = []
    signal.signal(signal.SIGCHLD, lambda number, frame: signals.append(number))
    why = asked(training)
    before = training.calls().count("finalize")
    training.until(lambda: training.calls().count("finalize") >= before + 2)
    return {"fine": why, "alone": has_no_child(), "children": children(), "signals": signals}


def events(training):
    """Until a capture has events in the place of kernels, and to its end."""
    training.until(lambda: faults.ring()["state"] == 2 and faults.ring()["clock"] == "cuda")
    training.until(lambda: faults.ring()["state"] != 2)


def load(cuda, cupti):
    global double
    double = ctypes.CDLL(cupti)
    faults.pretend_cuda(cuda)


def rank(cuda, cupti):
    """A process of a launcher's: it ends in the middle of a capture, as trainings do."""
    load(cuda, cupti)
    training = Training()
    training.until(double.pp_cupti_attached)  # whose ring is whose is not known here: its parent has one
    for _ in range(20):
        training.step()
    print(training.steps, flush=True)


def spawn(cuda, cupti):
    import multiprocessing
    process = multiprocessing.get_context("spawn").Process(target=rank, args=(cuda, cupti))
    process.start()
    process.join()
    sys.exit(process.exitcode)


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        spawn(*sys.argv[2:])
    load(*sys.argv[2:])
    one = Training()
    told = globals()[sys.argv[1]](one)
    one.end(step=kernels(), copies=[[*key, value[3], value[4], ON.get(key[0], 0)] for key, value in COPIES.items()], late=one.late, told=told, ring=faults.ring() if faults.RING else None, calls=one.calls())
