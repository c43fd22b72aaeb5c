#!/usr/bin/env python3
"""Checks this folder's promises wherever PyTorch is: `python3 check.py`, or in a pod of the training image.

- the printed losses are the same to the last bit with and without the virtual GPU, and from run to run;
- with two ranks over gloo, too, and both ranks start from the same weights;
- what the client says is complete and in order, and agrees with a second observer (module hooks and autograd node
  hooks, as a profiler would take them) to a millisecond, however long the client's writes take;
- small.py prints the same in whatever process it trains, and ends as it is asked to.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LEAVES = ["bot.0", "bot.1", "bot.2", "bot.3", "bot.4", "bot.5", "emb.0", "emb.1", "emb.2", "emb.3",
          "top.0", "top.1", "top.2", "top.3", "top.4", "top.5", "BCELoss"]
STEPS = 4
TOLERANCE_NS = 1_000_000
WRITE_SECONDS = 0.005  # of each of the client's writes, where a second observer looks on


class Listener:
    """Takes what trainings say to a virtual GPU; one list of lines per connection."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "vgpu.sock")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen()
        self.said = []
        self.readers = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                conn, _ = self.server.accept()
            except OSError:
                return
            lines = []
            self.said.append(lines)
            reader = threading.Thread(target=self._read, args=(conn, lines))
            self.readers.append(reader)
            reader.start()

    def _read(self, conn, lines):
        with conn, conn.makefile() as stream:
            lines.extend(stream.read().splitlines())

    def close(self):
        # shutdown, or the thread in accept() keeps the socket
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for reader in self.readers:
            reader.join()


def launch(script, *args, **env):
    return subprocess.Popen([sys.executable, os.path.join(HERE, script), *args], text=True, stdout=subprocess.PIPE,
                            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **env})


def losses(process):
    """What a training printed, without its times."""
    out, _ = process.communicate(timeout=300)
    if process.returncode != 0:
        raise AssertionError(f"exit status {process.returncode}:\n{out}")
    return [line.rsplit(" ", 1)[0] for line in out.splitlines() if line.startswith("step=")]


def run(*args, **env):
    return losses(launch("dlrm.py", "--steps", str(STEPS), "--batch", "128", *args, **env))


def run_ddp(**env):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [launch("dlrm.py", "--steps", str(STEPS), "--batch", "64", "--ddp", RANK=str(rank), WORLD_SIZE="2",
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **env) for rank in (0, 1)]
    return [losses(rank) for rank in ranks]


def intervals(lines):
    """[(phase, layer, start, end)] of a connection, by the rules in ../gpu/README.md; checks their order."""
    done, running, clock = [], None, 0
    for line in lines:
        verb, at, *rest = line.split()
        at = int(at)
        assert at >= clock, "time runs backwards"
        clock = at
        if verb == "b":
            assert running is None or running[:2] != tuple(rest), "begun twice"
            if running:
                done.append((*running, at))
            running = (*rest, at)
        elif verb == "e" and running and running[:2] == tuple(rest):
            done.append((*running, at))
            running = None
    assert running is None, "something never ended"
    return [(phase, int(layer), start, end) for phase, layer, start, end in done]


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.listener = Listener(folder.name)
        self.addCleanup(self.listener.server.close)
        self.vgpu = {"VGPU_SOCKET": self.listener.path, "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "POD_NAME": "p",
                     "POD_NAMESPACE": "n"}

    def test_one_rank(self):
        plain, told = run(), run(**self.vgpu)
        self.listener.close()
        self.assertEqual(len(plain), STEPS)
        self.assertEqual(plain, told)
        self.assertNotEqual(plain, run("--seed", "2"))
        [lines] = self.listener.said
        hello = json.loads(lines[0].removeprefix("hello "))
        self.assertEqual((hello["gpu"], hello["namespace"], hello["pod"], hello["rank"]), ("GPU-1", "n", "p", 0))
        self.assertEqual(hello["layers"], LEAVES)
        self.expect_steps(lines)

    def expect_steps(self, lines):
        self.assertEqual(sum(line[0] == "s" for line in lines), STEPS)
        self.assertEqual(lines[-1][0], "q")
        counts = {}
        for phase, layer, start, end in intervals(lines[1:]):
            counts[phase, layer] = counts.get((phase, layer), 0) + 1
        want = {(phase, layer): STEPS for phase in "fb" for layer in range(len(LEAVES))}
        self.assertEqual(counts, {**want, ("o", 0): STEPS})

    def test_two_ranks(self):
        plain, told = run_ddp(), run_ddp(**self.vgpu)
        self.listener.close()
        self.assertEqual(plain, told)
        self.assertNotEqual(plain[0], plain[1])
        self.assertEqual(len(self.listener.said), 2)
        for lines in self.listener.said:
            self.expect_steps(lines)

    def test_it_learns(self):
        lines = losses(launch("dlrm.py", "--epochs", "4", "--batch", "64"))
        values = [float.fromhex(line.split("hex=")[1]) for line in lines]
        self.assertEqual(len(values), 48)
        self.assertLess(sum(values[36:]) / 12, sum(values[:12]) / 12 - 0.01)

    def test_a_deaf_virtual_gpu_stops_nothing(self):
        self.listener.server.close()
        self.assertEqual(run(**self.vgpu), run())

    def test_second_observer_agrees(self):
        observer = launch("check.py", "--observe", **self.vgpu)
        out, _ = observer.communicate(timeout=300)
        self.listener.close()
        self.assertEqual(observer.returncode, 0)
        seen = [tuple(each) for each in json.loads(out.splitlines()[-1])]
        [lines] = self.listener.said
        told = [each for each in intervals(lines[1:]) if each[0] != "o"]
        self.assertEqual(len(seen), len(told))
        # Of each edge the least of the steps: a machine may take the processor away between the two who look, now and then.
        apart = {}
        for phase, layer, start, end in seen:
            ours = min((each for each in told if each[:2] == (phase, layer)), key=lambda each: abs(each[2] - start))
            apart.setdefault((phase, LEAVES[layer], "begin"), []).append(abs(ours[2] - start))
            apart.setdefault((phase, LEAVES[layer], "end"), []).append(abs(ours[3] - end))
        self.assertEqual(len(apart), 4 * len(LEAVES))
        self.assertEqual({edge: times for edge, times in apart.items() if min(times) > TOLERANCE_NS}, {})


def nodes_of(out, inputs):
    """Autograd nodes that led from the inputs to an output, without those that add up the parameters' gradients."""
    stop = {getattr(value, "grad_fn", None) for value in inputs}
    pending, found = [out.grad_fn], []
    while pending:
        node = pending.pop()
        if node is None or node in stop or node in found or node.name().endswith("AccumulateGrad"):
            continue
        found.append(node)
        pending += [following for following, _ in node.next_functions]
    return found


def observe():
    """Trains with a second observer: global module hooks for forward, hooks on every autograd node that a leaf's
    forward made for backward. Prints [[phase, layer, start, end]]."""
    from torch.nn.modules import module as hooks

    import dlrm
    import vgpu_client
    index, began, seen = {}, {}, []

    def before(module, inputs):
        began[module] = time.time_ns()

    def after(module, inputs, out):
        if module not in index:
            return
        seen.append(["f", index[module], began[module], time.time_ns()])
        times = ["b", index[module], 0, 0]
        seen.append(times)

        def node_begins(_):
            times[2] = times[2] or time.time_ns()

        def node_ended(*_):
            times[3] = time.time_ns()

        handles = kept.setdefault(module, [])
        while handles:
            handles.pop().remove()
        for node in nodes_of(out, inputs):
            handles += [node.register_prehook(node_begins), node.register_hook(node_ended)]

    kept = {}  # hooks of the module's last call
    inner, send = vgpu_client.Client.attach, vgpu_client.Client._send

    def attach(client, model, loss_fn, optimizer):
        for number, (_, module) in enumerate(vgpu_client.leaf_modules(model, loss_fn)):
            index[module] = number
        inner(client, model, loss_fn, optimizer)

    def send_slowly(client, line):
        time.sleep(WRITE_SECONDS)
        send(client, line)

    vgpu_client.Client.attach, vgpu_client.Client._send = attach, send_slowly
    hooks.register_module_forward_pre_hook(before)
    hooks.register_module_forward_hook(after)
    sys.argv[1:] = ["--steps", "5", "--batch", "128"]
    dlrm.main()
    print(json.dumps(seen))


class Small(unittest.TestCase):
    def said(self, *args, status=0):
        process = launch("small.py", "--steps=5", *args)
        out, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, status, out)
        return out

    def test_who_trains(self):
        plain = self.said()
        self.assertEqual(plain.count("step="), 5)
        for way in ("--child", "--thread", "--workers=1"):
            self.assertEqual(self.said(way), plain)
        self.assertEqual(self.said("--fork"), plain + "the fork ended with 0\n")
        self.assertEqual(self.said("--ranks=2"), self.said("--ranks=2"))

    def test_how_it_ends(self):
        plain = self.said()
        self.assertEqual(self.said("--exit=3", status=3), plain)
        self.assertEqual(self.said("--kill", status=-9), plain)
        self.assertEqual(self.said("--abort", status=-6), plain)
        self.assertEqual(self.said("--expect=NOBODY=here", status=4), "not so: NOBODY=here\n")


if __name__ == "__main__":
    observe() if sys.argv[1:] == ["--observe"] else unittest.main()
