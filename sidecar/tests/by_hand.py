"""A training's calls and times, measured without the probe: by hooks on each module, and on the nodes of each leaf's backward.

Runs in the training's process, with whatever Python and torch it has.
"""
import collections
import time

import torch

TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
NODES_HAVE_HOOKS = TORCH >= (2, 0)


def tensors(value):
    """Those within tuples, lists and dicts, as modules take and return them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors(one)


def nodes_between(outputs, ends):
    """The nodes of the autograd graph from some outputs to those nodes, without both ends' outsides."""
    found, todo = set(), [tensor.grad_fn for tensor in outputs]
    while todo:
        node = todo.pop()
        if node is None or node in found or node in ends or type(node).__name__ == "AccumulateGrad":
            continue
        found.add(node)
        todo += [after for after, _ in node.next_functions]
    return found


class Hooks:
    """Calls, own time in forward and, of leaves, time in backward of each module, by step."""

    def __init__(self, model):
        self.running = []  # modules whose forward runs, the innermost last: [began, ns of those in it, nodes of its inputs]
        self.outermost = 0  # ns of all calls that no other was around
        self.steps = []
        self.begin_step()
        for name, module in model.named_modules():
            self.watch(name or type(module).__name__, module)

    def begin_step(self):
        self.calls, self.forward, self.backwards = collections.Counter(), collections.Counter(), []

    def end_step(self):
        backward = collections.Counter()
        for name, took, _ in self.backwards:
            backward[name] += took
        self.steps.append({"calls": self.calls, "forward": self.forward, "backward": backward})
        self.begin_step()

    def watch(self, name, module):
        leaf = not any(True for _ in module.children())
        known = {"with_kwargs": True} if NODES_HAVE_HOOKS else {}
        always = {"always_call": True} if TORCH >= (2, 1) else {}  # a checkpoint raises where it has run enough again

        def begin(_, *inputs):
            self.calls[name] += 1
            ends = {tensor.grad_fn for tensor in tensors(inputs)} if leaf else ()
            self.running.append([time.perf_counter_ns(), 0, ends])

        def end(_, *told):
            now = time.perf_counter_ns()
            began, within, ends = self.running.pop()
            if self.running:
                self.running[-1][1] += now - began
            else:
                self.outermost += now - began
            self.forward[name] += now - began - within
            if leaf and NODES_HAVE_HOOKS and torch.is_grad_enabled():
                self.watch_backward(name, nodes_between(tensors(told[-1]), ends))

        module.register_forward_pre_hook(begin, **known)
        module.register_forward_hook(end, **known, **always)

    def watch_backward(self, name, nodes):
        """Adds up what each of these nodes takes; others that run between them, as those that sum gradients, are not theirs.

        Nor are forwards that run while a node waits for what a checkpoint has not kept.
        """
        took = [name, 0, 0]  # ns of nodes that are over, and when the one that runs began, less all forwards until then

        def begin(_):
            took[2] = time.perf_counter_ns() - self.outermost

        def end(*_):
            took[1] += time.perf_counter_ns() - self.outermost - took[2]

        for node in nodes:
            node.register_prehook(begin)
            node.register_hook(end)
        self.backwards.append(took)
