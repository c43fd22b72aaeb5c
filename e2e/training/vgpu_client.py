"""Tells the virtual GPU (e2e/gpu) what this training runs, and when.

A real GPU knows by itself what keeps it busy; the virtual one must be told. This is the training script's own
instrumentation, made for that alone: it belongs to no profiler and knows of none. Without VGPU_SOCKET every method
does nothing. It changes no result: hooks only look at the clock and write to a socket, and nothing is raised.

How the edges are taken (CLOCK_REALTIME, nanoseconds):
  forward    from a hook of each leaf module before its forward() to one after it;
  backward   from the moment the gradient of the leaf's output arrives (a hook before the autograd node that made the
             output) to the end of the last node of the leaf: before the AccumulateGrad of its parameters, which adds up
             and where DistributedDataParallel copies and waits, or behind the one node of a leaf without parameters;
  optimizer  around optimizer.step();
  step       from one step() to the next, data loading, zero_grad and printing included.
What lies inside a step and in none of these is `other` to the virtual GPU.

An edge is timed and then written to the socket, where a busy machine may take the processor away. So hooks are such
that others at the same edge come first, torch's global hooks and what these put on autograd's nodes: then the write of
a begin lies within everybody's time of the leaf, and that of an end in nobody's.

Wire: text lines on a unix stream socket, described in ../gpu/README.md.
"""
import json
import os
import socket
import time

import torch

RETRY_SECONDS = 2.0  # between attempts to reach a virtual GPU that is not there or went away
WRITE_SECONDS = 1.0  # a virtual GPU that does not read for so long is given up until the next attempt


class _Silent:
    """Stands in where there is no virtual GPU."""

    def attach(self, model, loss_fn, optimizer):
        pass

    def step(self, step, epoch, batch):
        pass

    def tell_kernels(self, layers):
        pass

    def kernel(self, phase, index, begun, length):
        pass

    def close(self):
        pass


def connect(rank):
    """The virtual GPU's client, or one that does nothing where VGPU_SOCKET is not set."""
    path = os.environ.get("VGPU_SOCKET")
    return Client(path, rank) if path else _Silent()


def leaf_modules(model, loss_fn):
    """(name, module) of every leaf: qualified names; the loss goes by its class name where it is outside the model."""
    leaves = [(name, module) for name, module in model.named_modules() if not any(module.children())]
    if all(module is not loss_fn for _, module in leaves):
        leaves.append((type(loss_fn).__name__, loss_fn))
    return leaves


class Client:
    def __init__(self, path, rank):
        self._path = path
        self._rank = rank
        self._layers = []
        self._socket = None
        self._next_try = 0.0
        self._open = None  # key of the layer and phase that runs now
        self._accumulators = []  # held here: a parameter holds its own weakly, and its hooks go with it
        self._kernels = 0  # told

    # What the training calls.

    def attach(self, model, loss_fn, optimizer):
        """Takes the edges of every leaf of `model`, of the loss and of the optimizer from now on."""
        leaves = leaf_modules(model, loss_fn)
        self._layers = [name for name, _ in leaves]
        for index, (_, module) in enumerate(leaves):
            self._watch_leaf(index, module)
        inner = optimizer.step

        def step(*args, **kwargs):
            self._begin("o", 0)
            try:
                return inner(*args, **kwargs)
            finally:
                self._end("o", 0)

        optimizer.step = step

    def step(self, step, epoch, batch):
        """A step begins, and with it the one before ends."""
        self._open = None
        if self._socket is None:
            self._say_hello()
        self._send(b"s %d %d %d %d\n" % (time.time_ns(), step, epoch, batch))

    def tell_kernels(self, layers):
        """In place of attach() and step(), for a training that knows its kernels: of these layers."""
        self._layers = layers

    def kernel(self, phase, index, begun, length):
        """One runs, alone, for so many ns, and is a step of its own: what it takes of the GPU is drawn anew."""
        if self._socket is None:
            self._say_hello()
        self._kernels += 1
        self._send(b"s %d %d 0 0\nb %d %s %d\nq %d\n"
                   % (begun, self._kernels, begun, phase.encode(), index, begun + length))

    def close(self):
        """The last step is over."""
        self._open = None
        self._send(b"q %d\n" % time.time_ns())
        self._drop()

    # Edges.

    def _watch_leaf(self, index, module):
        accumulators = [self._accumulator(p) for p in module.parameters() if p.requires_grad]
        pending = [0]
        hooks = []

        def call_begins(*_):
            self._begin("f", index)

        def call_ended(_module, _args, out):
            self._end("f", index)
            if not isinstance(out, torch.Tensor) or not out.requires_grad:
                return
            out.grad_fn.register_prehook(gradient_arrived)
            if not accumulators:
                out.grad_fn.register_hook(part_done)
            while hooks:
                hooks.pop().remove()
            hooks.extend(node.register_prehook(part_done) for node in accumulators)

        def gradient_arrived(*_):
            pending[0] = max(1, len(accumulators))
            self._begin("b", index)

        def part_done(*_):
            pending[0] -= 1
            if pending[0] == 0:
                self._end("b", index)

        module.register_forward_pre_hook(call_begins)
        module.register_forward_hook(call_ended)

    def _accumulator(self, parameter):
        """The node that adds up the parameter's gradient, kept alive."""
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._accumulators.append(node)
        return node

    def _begin(self, phase, index):
        self._open = (phase, index)
        self._send(b"b %d %s %d\n" % (time.time_ns(), phase.encode(), index))

    def _end(self, phase, index):
        if self._open == (phase, index):  # else the next leaf has begun, which ended this one
            self._open = None
            self._send(b"e %d %s %d\n" % (time.time_ns(), phase.encode(), index))

    # The socket.

    def _say_hello(self):
        now = time.monotonic()
        if now < self._next_try:
            return
        self._next_try = now + RETRY_SECONDS
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(WRITE_SECONDS)
            self._socket.connect(self._path)
        except OSError:
            self._drop()
            return
        self._send(b"hello " + json.dumps({
            "version": 1,
            "gpu": os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")[0],
            "host": socket.gethostname(),
            "namespace": os.environ.get("POD_NAMESPACE", ""),
            "pod": os.environ.get("POD_NAME", ""),
            "rank": self._rank,
            "layers": self._layers,
        }).encode() + b"\n")

    def _send(self, line):
        if self._socket is None:
            return
        try:
            self._socket.sendall(line)
        except OSError:
            self._drop()

    def _drop(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None
