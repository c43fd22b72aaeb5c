"""`precisionprobe run` around real trainings: results, and a training that goes on as ever.

PP_CLI           the program precisionprobe
PP_HOOK          the folder with the built hook's Python (sitecustomize.py in it)
PP_NVML          the folder with the library in the driver's place (sidecar/gpu/tests)
PP_TORCH_PYTHON  a python that has torch; several, separated by colons, are all tested
"""
import collections
import contextlib
import csv
import ctypes
import fcntl
import itertools
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import termios
import time

import pytest

from folder import write as write_folder

TRAIN = str(pathlib.Path(__file__).parent / "train.py")
MODEL = {("0", "forward"), ("0", "backward"), ("1", "forward"), ("1", "backward"), ("2", "forward"), ("2", "backward")}
OUTSIDE = {("loss", "forward"), ("loss", "backward"), ("gradients", "backward")}  # where torch numbers nodes: 2.1 and later


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", os.environ["PP_TORCH_PYTHON"].split(":"))


def probe(*arguments):
    return [os.environ["PP_CLI"], *arguments]


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PRECISIONPROBE_HOOK": os.environ["PP_HOOK"], **environment})


def run_with_gpus(table, folder, python, steps):
    """A training that names all GPUs of the table, in a process of its own."""
    names = [line.split()[0] for line in table.read_text().splitlines()]
    return run(*probe("run", "--budget", "50", "--capture", "100ms", "-o", str(folder), "--", python, TRAIN, steps),
               NVIDIA_VISIBLE_DEVICES=",".join(names), PP_NVML_TABLE=str(table), LD_LIBRARY_PATH=os.environ["PP_NVML"])


def numbered(python):
    found = run(python, "-c", "import torch; print(hasattr(torch._C._autograd, '_get_sequence_nr'))")
    return found.stdout.strip() == "True"


@pytest.fixture(scope="module", autouse=True)
def shared_memory_of_its_own():
    """A /dev/shm that no other test sees: what is found there in the end was left by these. Needs root, as the suite does."""
    libc = ctypes.CDLL(None, use_errno=True)
    private, new_mounts = 0x44000, 0x20000  # MS_PRIVATE | MS_REC, CLONE_NEWNS
    for done in (lambda: libc.unshare(new_mounts), lambda: libc.mount(None, b"/", None, private, None),
                 lambda: libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None)):
        assert done() == 0, os.strerror(ctypes.get_errno())


def left_behind():
    return sorted(path.name for path in pathlib.Path("/dev/shm").glob("precisionprobe-*"))


def test_results_of_a_training(python, tmp_path):
    before = left_behind()
    plain = run(python, TRAIN, "400")
    folder = tmp_path / "results"
    probed = run(*probe("run", "--budget", "50", "--capture", "100ms", "-o", str(folder), "--", python, TRAIN, "400"))
    assert (probed.returncode, probed.stdout) == (0, plain.stdout), probed.stderr
    results = json.loads((folder / "results.json").read_text())
    assert results["command"] == [python, TRAIN, "400"] and results["exitStatus"] == 0
    assert 300 < results["sampledSteps"] < 400 and results["dropped"] == 0 and results["costNs"] > 0
    (gpu,) = results["gpus"]
    items = {(i["layer"], i["phase"]): i for i in gpu["items"] if i["kind"] == "layer"}
    rows = MODEL | (OUTSIDE if numbered(python) else set())
    assert set(items) == rows and all(i["calls"] == results["sampledSteps"] for i in items.values())
    assert gpu["stepMsStandardError"] > 0 and all(
        i["millisecondsPerStepStandardError"] > 0 and i["millisecondsPerStepFreedom"] >= 1 for i in items.values())
    shares = sum(i["share"] for i in gpu["items"] if i["kind"] not in ("idle", "job"))
    assert abs(shares - 1) < 1e-6
    table = list(csv.DictReader((folder / "layers.csv").open()))
    assert {(r["layer"], r["phase"]) for r in table if r["kind"] == "layer"} == rows
    batches = [json.loads(line) for line in (folder / "batches.jsonl").open()]
    assert sum(len(b["steps"]["number"]) for b in batches) == results["sampledSteps"]
    report = run(*probe("report", str(folder)))
    assert report.returncode == 0 and report.stdout.strip() in probed.stderr
    assert left_behind() == before


COMPILED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
compiled = torch.compile(model, backend="eager")
for _ in range(2000):
    compiled(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_compiled_model_says_why_it_is_told_whole(python, tmp_path):
    """In results.json, in the table that is printed, in files and in a report as HTML."""
    if run(python, "-c", "import sys, torch; sys.exit(torch.__version__ < '2.4')").returncode:
        pytest.skip("a torch without this compiler")
    folder, why = tmp_path / "results", "no kernels were recorded"
    probed = run(*probe("run", "--budget", "50", "--capture", "100ms", "-o", str(folder), "--", python, "-c", COMPILED))
    assert probed.returncode == 0, probed.stderr
    (gpu,) = json.loads((folder / "results.json").read_text())["gpus"]
    told = {item["layer"]: item["wholeReason"] for item in gpu["items"] if "wholeReason" in item}
    assert told == {"Sequential": why}
    assert probed.stderr.count(f"\ntold whole: Sequential: {why}\n") == 1
    rows = csv.DictReader(run(*probe("report", "--format", "csv", str(folder))).stdout.splitlines())
    assert {row["layer"]: row["whole_reason"] for row in rows if row["whole_reason"]} == told
    assert run(*probe("report", "--format", "html", str(folder))).stdout.count(f"told whole: {why}") >= 2  # in each phase


def test_counters_of_two_gpus(python, tmp_path):
    table = tmp_path / "table"
    table.write_text("GPU-a util=57 mem=2048 gpm=1 sm=80 occ=40 dram=20 fp32=10 tensor=30 mw=500000 mj=7000 mhz=1980,1755\n"
                     "GPU-b util=11 mem=5 gpm=0\n")
    probed = run_with_gpus(table, tmp_path / "results", python, "2000")
    assert probed.returncode == 0 and "GPU-b has no GPM counters" in probed.stderr, probed.stderr
    results = json.loads((tmp_path / "results/results.json").read_text())
    jobs = {g["gpu"]: {name: m["mean"] for i in g["items"] if i["kind"] == "job" for name, m in i["metrics"].items()}
            for g in results["gpus"]}
    assert 1755 < jobs["GPU-a"].pop("SMClock") < 1980 and jobs["GPU-b"].pop("SMClock") == 0
    assert jobs["GPU-a"] == pytest.approx({"SMActive": 0.8, "SMOccupancy": 0.4, "DRAMActive": 0.2, "FP32Active": 0.1,
                                           "TensorActive": 0.3, "GPUUtil": 57, "GPUMem": 2048, "Power": 0})
    assert jobs["GPU-b"] == {"SMActive": None, "SMOccupancy": None, "DRAMActive": None, "FP32Active": None,
                             "GPUUtil": pytest.approx(11), "GPUMem": pytest.approx(5), "Power": 0}
    device = next(g["device"] for g in results["gpus"] if g["gpu"] == "GPU-a")
    clock = device["smClockMHz"]
    assert (device["meanWatts"], device["joules"], clock["least"], clock["most"]) == (500, 0, 1755, 1980)
    assert clock["changes"] > 1 and 1755 < clock["mean"] < 1980
    assert "; 500 W; SM clock 1755 to 1980 MHz\n" in probed.stderr
    samples = [json.loads(line) for line in (tmp_path / "results/samples.jsonl").open()]
    assert {(s["gpu"], s["metric"]) for s in samples if set(s["value"]) == {0.8}} == {("GPU-a", "SMActive")}


USER = """
import os, subprocess, sys
users = open(sys.argv.pop(1), "a")
print(os.getpid(), file=users, flush=True)
child = subprocess.Popen(["sleep", "60"])
print(child.pid, file=users, flush=True)
sys.argv = sys.argv[1:]
try:
    exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
finally:
    child.kill()
"""


@pytest.mark.parametrize("named", [True, False])
def test_others_on_the_gpu(python, tmp_path, named):
    """They are told where the training's own processes are known among the driver's: its children are its own."""
    table, users, script = tmp_path / "table", tmp_path / "users", tmp_path / "user.py"
    script.write_text(USER)
    with subprocess.Popen(["sleep", "600"]) as other:
        users.write_text(f"{other.pid}\n")
        table.write_text(f"GPU-a util=57 mem=2048 gpm=1 sm=80 occ=40 dram=20 fp32=10 users={users}\n")
        probed = run(*probe("run", "--budget", "50", "--capture", "100ms", "-o", str(tmp_path / "results"), "--", python,
                            str(script), str(users if named else tmp_path / "nowhere"), TRAIN, "1500"),
                     NVIDIA_VISIBLE_DEVICES="GPU-a", PP_NVML_TABLE=str(table), LD_LIBRARY_PATH=os.environ["PP_NVML"])
        other.kill()
    assert probed.returncode == 0, probed.stderr
    (gpu,) = json.loads((tmp_path / "results/results.json").read_text())["gpus"]
    told = f"others used this GPU: sleep ({other.pid})\n"
    assert gpu["device"].get("others", []) == ([{"pid": other.pid, "name": "sleep"}] if named else [])
    assert (told in probed.stderr) == named, probed.stderr


def test_a_gpu_that_is_lost(python, tmp_path):
    table = tmp_path / "table"
    table.write_text("GPU-a util=57 mem=2048 gpm=1 sm=80 occ=40 dram=20 fp32=10 lost=4\n")
    probed = run_with_gpus(table, tmp_path / "results", python, "2000")
    assert probed.returncode == 0 and len(probed.stdout.splitlines()) == 2000
    assert "GPU-a does not answer any more" in probed.stderr
    samples = {s["metric"]: s["value"] for s in map(json.loads, (tmp_path / "results/samples.jsonl").open())}
    assert samples["SMActive"] == [0.8] * 2  # of the second and the third sample


def replays_of(name, phase, number, background, batches):
    """Of the dwell: [(when, replays that began then)], its spans, and ns in which the layer's kernels ran."""
    begun, spans, busy = [], [], 0
    for batch in batches:
        capture, pieces = batch["stretch"], batch.get("grid") or batch["intervals"]
        names = {layer["id"]: layer["name"] for layer in batch["layers"]}
        some = [i for i, layer in enumerate(pieces["layer"]) if layer]
        if capture.get("dwell") != number or capture.get("background", False) != background or not some:
            continue
        if not background and (names[pieces["layer"][some[0]]], pieces["phase"][some[0]]) != (name, phase):
            continue
        spans.append((capture["start"], capture["end"]))
        if "cells" in pieces:
            times = [pieces["start"] + n * pieces["cell"] for n in itertools.accumulate(pieces["cells"])]
        else:
            times = list(itertools.accumulate(pieces["start"]))
        begun += [(times[i], pieces["calls"][i] if "calls" in pieces else 1) for i in some]
        busy += sum(pieces["kernels"][i] for i in some)
    return sorted(begun), spans, busy


def replay(dwell, windows):
    """(ns of a replay in as many windows in a row that had most of them, in those that had fewest)."""
    begun, spans, _ = dwell
    length = windows * 100e6
    last = max(end for _, end in spans)
    counts = [sum(calls for at, calls in begun if begin <= at < begin + length) for begin, _ in begun
              if begin + length <= last]
    return length / max(counts), length / min(counts)


def test_values_of_replays(tmp_path):
    """A GPU whose counters stand still, and layers whose kernels are known: what the windows say of a replay, less
    what goes with it, by the layer's busy time."""
    python = os.environ["PP_TORCH_PYTHON"].split(":")[-1]
    table, folder = tmp_path / "table", tmp_path / "results"
    gpu = "GPU-00112233-4455-6677-8899-aabbccddeeff"  # as the double of CUDA tells it
    table.write_text(f"{gpu} util=57 mem=2048 gpm=1 sm=4 occ=3 dram=2 fp32=1\n")
    doubles = pathlib.Path(os.environ["PP_HOOK"]).parent / "tests"
    train = pathlib.Path(__file__).parents[2] / "sidecar/tests/replay.py"
    command = [python, str(train), "plain", str(doubles / "cuda/libcuda.so.1"), str(doubles / "cupti/libcupti.so.13")]
    plain = run(*command)
    probed = run(*probe("run", "--method", "Replay", "--layers-include", "lin", "--layers-include", "own", "--replay-duration",
                        "800ms", "--budget", "50", "-o", str(folder), "--", *command),
                 NVIDIA_VISIBLE_DEVICES=gpu, PP_NVML_TABLE=str(table), LD_LIBRARY_PATH=os.environ["PP_NVML"])
    assert (probed.returncode, probed.stdout) == (0, plain.stdout), probed.stderr
    results = json.loads((folder / "results.json").read_text())
    batches = [json.loads(line) for line in (folder / "batches.jsonl").open()]
    items = {(i["layer"], i["phase"]): i["metrics"] for i in results["gpus"][0]["items"] if i["kind"] == "layer"}
    numbers = {}
    for batch in batches:
        pieces = batch.get("grid") or batch["intervals"]
        if batch["stretch"].get("dwell") and not batch["stretch"].get("background"):
            numbers.update({phase: batch["stretch"]["dwell"] for layer, phase in zip(pieces["layer"], pieces["phase"])
                            if layer})
    for phase, word in enumerate(("forward", "backward")):
        dwell = replays_of("lin", phase, numbers[phase], False, batches)
        behind = replays_of("lin", phase, numbers[phase], True, batches)
        busy = dwell[2] / sum(calls for _, calls in dwell[0])
        assert busy > 50000 and behind[2] == 0
        for metric, value in (("SMActive", 0.04), ("SMOccupancy", 0.03), ("DRAMActive", 0.02), ("FP32Active", 0.01)):
            told = items["lin", word][metric]
            assert (told["method"], told["source"]) == ("replay", "replays") and told["windows"] >= 2, told
            # A busy machine replays now faster, now slower: what as many windows of the dwell may say, and no more.
            whole, rest = replay(dwell, told["windows"]), replay(behind, 2)
            least, most = value * (whole[0] - rest[1]) / busy, value * (whole[1] - rest[0]) / busy
            assert 0.97 * least <= told["mean"] <= 1.03 * most
            assert items["own", word][metric]["reason"].startswith("its forward is not torch's own")
    assert results["pausedNs"] > 4 * 800e6
    steps = sum(len(b["steps"]["number"]) for b in batches if not b["stretch"].get("dwell"))
    assert results["sampledSteps"] == steps < 260


def test_replays_without_a_gpu(tmp_path):
    """They are of no use, and say so."""
    python = os.environ["PP_TORCH_PYTHON"].split(":")[0]
    plain = run(python, TRAIN, "300")
    probed = run(*probe("run", "--method", "Replay", "--replay-duration", "50ms", "--budget", "50", "--", python, TRAIN, "300"))
    assert (probed.returncode, probed.stdout) == (0, plain.stdout), probed.stderr
    assert "no layer has a value of its replays: its kernels were not recorded while it was replayed" in probed.stderr
    other = run(*probe("run", "--method", "Regression", "--replay-duration", "50ms", "--budget", "50", "--", python, TRAIN, "300"))
    assert "replay" not in other.stderr


def trace(folder):
    told = run(*probe("trace", str(folder)))
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)["traceEvents"]


def test_trace_of_all_steps_sums_to_the_table(python, tmp_path):
    probed = run(*probe("run", "--budget", "50", "--timeline", "1000", "-o", str(tmp_path), "--", python, TRAIN, "300"))
    assert probed.returncode == 0, probed.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    events = [e for e in trace(tmp_path) if e["ph"] == "X"]
    steps = {e["args"]["step"]: e for e in events if e["cat"] == "user_annotation"}
    assert len(steps) == results["sampledSteps"] > 200
    sums = collections.Counter()
    for event in events:
        if event["cat"] == "user_annotation":
            continue
        whole = steps[event["args"]["step"]]
        assert event["pid"] == whole["pid"] and event["ts"] >= whole["ts"] - 1e-3
        assert event["ts"] + event["dur"] <= whole["ts"] + whole["dur"] + 1e-3
        sums[event["args"].get("layer", ""), event["args"]["phase"]] += event["dur"]
    items = {(i["layer"], i["phase"]): i["totalNs"] / 1e3 for g in results["gpus"] for i in g["items"]
             if i["kind"] not in ("other", "idle", "job")}
    assert MODEL < set(items) and dict(sums) == pytest.approx(items)


def test_the_first_steps_are_a_timeline(python, tmp_path):
    probed = run(*probe("run", "--budget", "50", "--timeline", "5", "-o", str(tmp_path), "--", python, TRAIN, "100"))
    assert probed.returncode == 0, probed.stderr
    counts = [len(json.loads(line)["steps"]["number"]) for line in (tmp_path / "batches.jsonl").open()]
    assert 5 in itertools.accumulate(counts), counts  # no batch goes across their end
    assert len([e for e in trace(tmp_path) if e.get("cat") == "user_annotation"]) >= 5


def test_exit_status_and_nothing_on_standard_output(python):
    probed = run(*probe("run", "--", python, TRAIN, "5", "7"))
    assert probed.returncode == 7 and len(probed.stdout.splitlines()) == 5


def test_kernels_without_a_gpu(python, tmp_path):
    probed = run(*probe("run", "--budget", "50", "--kernels", "-o", str(tmp_path), "--", python, TRAIN, "50"))
    assert probed.returncode == 0 and "\nkernels are not known: " in probed.stderr, probed.stderr
    (gpu,) = json.loads((tmp_path / "results.json").read_text())["gpus"]
    assert "kernelSteps" not in gpu and not any("kernels" in item for item in gpu["items"])


WAITING = """
import torch
class Gate(torch.nn.Module):
    def forward(self, x):
        return x * (1 + 0 * x.sum().item())  # line 5
model = torch.nn.Sequential(torch.nn.Linear(64, 64), Gate(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
big = torch.ones(1 << 18)
for step in range(200):
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 0:
        big.nonzero()  # line 15
"""


def test_host_waits_are_named(python, tmp_path):
    program, folder = tmp_path / "train.py", tmp_path / "results"
    program.write_text(WAITING)
    probed = run(*probe("run", "--budget", "50", "-o", str(folder), "--", python, str(program)))
    assert probed.returncode == 0, probed.stderr
    waits = json.loads((folder / "results.json").read_text())["hostWaits"]
    calls = {(w["call"], w["line"]): w for w in waits["calls"] if w["file"] == str(program)}
    item, nonzero = calls["item", 5], calls["nonzero", 15]
    assert (item["layer"], item["phase"]) == ("1", "forward") and (nonzero["layer"], nonzero["phase"]) == ("", "other")
    assert item["callsPerStep"] == item["shareOfSteps"] == 1 and 0 < item["millisecondsPerStep"] < 10
    assert nonzero["callsPerStep"] == nonzero["shareOfSteps"] == pytest.approx(0.5, abs=0.05)
    assert "host waits: nonzero() in train.py:15 (other): 0.5 calls a step (in " in probed.stderr
    assert "host waits: item() in train.py:5 (layer 1, forward): 1.0 calls a step, " in probed.stderr


def test_layers_steps_and_phases(python, tmp_path):
    probed = run(*probe("run", "--budget", "50", "--layers-include", "0", "--phase", "Forward", "--steps-skip", "50",
                        "--steps-max", "100", "-o", str(tmp_path), "--", python, TRAIN, "9000"))
    assert probed.returncode == 0, probed.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    layers = [(i["layer"], i["phase"]) for g in results["gpus"] for i in g["items"] if i["kind"] == "layer"]
    assert ("0", "forward") in layers and all(name == "0" for name, _ in layers)
    assert results["sampledSteps"] == 100


def test_filters_that_leave_no_layer(python):
    probed = run(*probe("run", "--budget", "50", "--layers-include", "nope.*", "--", python, TRAIN, "50"))
    assert probed.returncode == 0 and "no layer was timed: --layers-include" in probed.stderr


def test_a_program_without_torch(tmp_path):
    before = left_behind()
    probed = run(*probe("run", "-o", str(tmp_path), "--", "sh", "-c", "echo hello; exit 4"))
    assert (probed.returncode, probed.stdout) == (4, "hello\n")
    assert probed.stderr.count("no step was sampled: it started no Python that loads the hook") == 1
    assert left_behind() == before
    assert "no step was sampled: it started no Python" in run(*probe("report", str(tmp_path))).stdout


@pytest.mark.parametrize("options, program, why", [
    (["-I"], "import torch", "it started no Python that loads the hook: none at all, or one with -I"),
    ([], "import time; time.sleep(0.5)", "no Python that it started imported torch"),
    ([], "import torch, time; time.sleep(0.5)", "no optimizer of torch.optim stepped"),
    ([], "import torch; m = torch.nn.Linear(2, 1); o = torch.optim.SGD(m.parameters(), 0.1); m(torch.ones(2)).backward(); o.step()",
     "steps were counted, but the training ended"),
], ids=["isolated", "no torch", "no optimizer", "one step"])
def test_why_no_step_was_sampled(python, options, program, why):
    probed = run(*probe("run", "--", python, *options, "-c", program))
    assert probed.returncode == 0 and f"no step was sampled: {why}" in probed.stderr


ALL = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def signals(*ignored):
    """For a child: these are ignored, the others not, whatever who runs the tests ignores."""
    def set_all():
        for number in ALL:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    return set_all


@contextlib.contextmanager
def running(*command):
    """`precisionprobe run` of a command that has said something; it is ended if it has not ended by itself."""
    child = subprocess.Popen(probe("run", "--", *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             start_new_session=True, preexec_fn=signals(),
                             env={**os.environ, "PRECISIONPROBE_HOOK": os.environ["PP_HOOK"]})
    try:
        assert child.stdout.readline()
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()


@pytest.mark.parametrize("ignored", [[], [signal.SIGHUP, signal.SIGUSR1]], ids=["plain", "nohup"])
def test_the_training_has_files_and_signals_as_ever(ignored):
    def seen(*command):
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=signals(*ignored),
                              check=True).stdout

    files = ["ls", "/proc/self/fd"]
    assert seen(*probe("run", "--", *files)) == seen(*files)
    masks = ["sed", "-n", "s/Sig\\(Ign\\|Blk\\)://p", "/proc/self/status"]
    # But for two signals that the C library has for itself.
    plain, probed = [[int(mask, 16) & 0x7fffffff for mask in seen(*command).split()]
                     for command in (masks, probe("run", "--", *masks))]
    assert probed == plain and all(plain[1] & 1 << number - 1 for number in ignored)


@pytest.mark.parametrize("name", ["HUP", "USR1", "USR2", "TERM", "INT", "QUIT"])
def test_signals_are_passed_on(name):
    waits = f"trap 'echo {name}; exit 5' {name}; echo up; while :; do sleep 0.05; done"
    with running("sh", "-c", waits) as child:
        child.send_signal(signal.Signals[f"SIG{name}"])
        assert (child.communicate(timeout=60)[0], child.returncode) == (f"{name}\n", 5)


def test_a_terminal_interrupts_the_training_once():
    """By Ctrl-C, which reaches both."""
    counts = ("import signal, time; seen = []; signal.signal(signal.SIGINT, lambda *_: seen.append(1)); print('up', flush=True)\n"
              "while not seen: time.sleep(0.05)\n"
              "time.sleep(1); print(len(seen))")
    leader, follower = os.openpty()
    with subprocess.Popen(probe("run", "--", sys.executable, "-c", counts), stdin=follower, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as child:
        assert child.stdout.readline() == "up\n"
        os.write(leader, b"\x03")
        assert (child.communicate(timeout=60)[0], child.returncode) == ("1\n", 0)
    os.close(leader)
    os.close(follower)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_training_and_leave_nothing(python, number):
    before = left_behind()
    with running(python, TRAIN, "100000000") as child:
        time.sleep(0.5)
        if number == signal.SIGINT:
            os.killpg(child.pid, number)  # as a terminal does
        else:
            child.send_signal(number)
        _, stderr = child.communicate(timeout=60)
        assert child.returncode in (128 + number, 1), stderr  # Python turns Ctrl-C into an exception
    assert left_behind() == before


@pytest.mark.parametrize("arguments, message", [
    (["--budget", "x", "--", "true"], "--budget must be a number"),
    (["--budget", "nan", "--", "true"], "--budget must be a number"),
    (["--budget", "0", "--", "true"], "--budget must be 0.01 to 50, not 0"),
    (["--budget", "50.1", "--", "true"], "--budget must be 0.01 to 50"),
    (["--method", "Guess", "--", "true"], '--method "Guess" is none of Auto'),
    (["--kernels=0", "--", "true"], "--kernels must be 1 to 20, not 0"),
    (["--keep-windows", "--", "true"], "--keep-windows needs --output"),
    (["--keep-windows", "-o", "/nonexistent/x", "--method=Regression", "--", "true"], "--keep-windows is of methods Auto and Sampling"),
    (["--metric", "Speed", "--", "true"], "--metric must be one of SMActive, "),
    (["--phase", "Sideways", "--", "true"], "--phase must be Forward, Backward or Optimizer, not Sideways"),
    (["--duration", "5", "--", "true"], "--duration"),
    (["--", "/nowhere/train"], "/nowhere/train: no such file"),
    (["-o", "/proc/none", "--", "true"], "making the folder /proc/none"),
    ([], "what shall be run?"),
    (["--hook", "/nowhere"], "what shall be run?"),
])
def test_wrong_arguments(arguments, message):
    probed = run(*probe("run", *arguments))
    assert probed.returncode == 1 and message in probed.stderr


def tree(at):
    return {str(path.relative_to(at)): path.read_bytes() if path.is_file() else None for path in at.rglob("*")}


@pytest.fixture
def earlier(tmp_path):
    """A folder with an earlier run's results, and what else lies in it."""
    at = write_folder(tmp_path / "kept")
    (at / "windows").mkdir()
    for name in ("layers.csv", "windows/0-0001.window", "notes"):
        (at / name).write_text("1\n")
    return at


@pytest.mark.parametrize("options", [[], ["--keep-windows"]])
def test_a_command_that_does_not_start_changes_no_folder(tmp_path, earlier, options):
    before = tree(tmp_path)
    for at in (earlier, tmp_path / "new"):
        probed = run(*probe("run", *options, "-o", str(at), "--", "pyhton3", "train.py"))
        assert (probed.returncode, probed.stderr) == (1, "precisionprobe: pyhton3: no such file or directory\n")
        assert tree(tmp_path) == before


def test_windows_that_could_not_be_kept(tmp_path):
    """That is known before the command starts."""
    (tmp_path / "windows").write_text("a file\n")
    before = tree(tmp_path)
    probed = run(*probe("run", "--keep-windows", "-o", str(tmp_path), "--", "echo", "hello"))
    assert (probed.returncode, probed.stdout, tree(tmp_path)) == (1, "", before)
    assert probed.stderr == f"precisionprobe: making {tmp_path}/windows: File exists\n"


def test_results_of_an_earlier_run_go_as_the_command_starts(earlier):
    script = 'while [ -s "$0/batches.jsonl" ] || [ -e "$0/windows/0-0001.window" ]; do sleep 0.01; done; cd "$0" && find . -type f | sort'
    probed = run(*probe("run", "-o", str(earlier), "--", "sh", "-c", script, str(earlier)))
    assert (probed.returncode, probed.stdout.split()) == (0, ["./batches.jsonl", "./notes"]), probed.stderr
    assert json.loads((earlier / "results.json").read_text())["command"][0] == "sh"


def test_results_are_written_whole_or_not_at_all(tmp_path):
    """On a full disk; the next run finds nothing in its way."""
    def fill():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    command = probe("run", "-o", str(tmp_path), "--", "true", "x" * 20000)
    full = subprocess.run(command, preexec_fn=fill, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PRECISIONPROBE_HOOK": os.environ["PP_HOOK"]})
    assert (full.returncode, "precisionprobe: writing the results: File too large" in full.stderr) == (0, True), full.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batches.jsonl", "samples.jsonl"]
    assert run(*command).returncode == 0 and len((tmp_path / "results.json").read_text()) > 20000


@pytest.mark.parametrize("text", ["[]", '{"gpus": 3}', '{"accuracy": 0.9}', "no JSON", ""])
def test_results_of_others_are_not_replaced(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    before = tree(tmp_path)
    probed = run(*probe("run", "-o", str(tmp_path), "--", "echo", "hello"))
    assert (probed.returncode, probed.stdout, tree(tmp_path)) == (1, "", before)
    assert f"--output names {tmp_path}, whose results.json is none of an earlier run: " in probed.stderr


def test_report_of_nothing(tmp_path):
    (tmp_path / "results.json").write_text('{"gpus": [{"items": [{}, 3]}, null]}')
    assert run(*probe("report", str(tmp_path))).returncode == 0
    (tmp_path / "results.json").write_text("{}")
    assert "gpus is missing" in run(*probe("report", str(tmp_path))).stderr
    assert run(*probe("report", str(tmp_path / "none"))).returncode == 1


def on_two_gpus(folder, *options, more=()):
    doubles = pathlib.Path(os.environ["PP_HOOK"]).parent / "tests"
    python = os.environ["PP_TORCH_PYTHON"].split(":")[-1]
    return run(*probe("run", *options, "-o", str(folder), "--", python,
                      str(pathlib.Path(__file__).parent / "two_gpus.py"), str(doubles), *more), PRECISIONPROBE_COPIES="1")


def test_kernels_that_are_lost(tmp_path):
    """They are counted, and how many steps that has cost, with what may help."""
    told = on_two_gpus(tmp_path / "out", "--budget", "50", "--capture", "2s", more=("12", "dropped"))
    assert told.returncode == 0, told.stderr
    left_out = json.loads((tmp_path / "out" / "results.json").read_text())["leftOut"]
    assert left_out["lost"] > 0 and left_out["steps"] > 0
    assert "precisionprobe: %(steps)d marked steps were left out: %(lost)d kernels' records were lost. " % left_out in told.stderr


def test_two_gpus_of_one_process(tmp_path):
    """Each has its layers, and the same steps; what is told of a step as a whole is of one, not of two."""
    told = on_two_gpus(tmp_path / "out", "--budget", "2", "--capture", "300ms", "--method", "Sampling", more=("12",))
    assert told.returncode == 0, told.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["leftOut"] == {"steps": 0, "lost": 0, "late": 0} and "left out" not in told.stderr
    first, second = sorted(results["gpus"], key=lambda gpu: gpu["gpu"], reverse=True)
    for gpu, layers, busy in ((first, {"0", "1"}, {"0": 0.6, "1": 0.8}), (second, {"2"}, {"2": 0.4})):
        rows = {item["layer"]: item for item in gpu["items"] if item["kind"] == "layer" and item["phase"] == "forward"}
        assert {name for name in rows if name.isdigit()} == layers
        for name, ms in busy.items():
            assert rows[name]["busyMillisecondsPerStep"] == pytest.approx(ms, rel=0.02), (gpu["gpu"], name)
    assert abs(first["steps"] - second["steps"]) <= 2 and first["countedSteps"] == second["countedSteps"] > 0
    assert first["countedStepMs"] == second["countedStepMs"] and first["countedIdleShare"] < second["countedIdleShare"]
    copies = {(copy["layer"], copy["type"]): copy["perStep"] for copy in results["copies"]["items"]}
    assert copies["2", "p2p"] == pytest.approx(1, abs=0.1) and copies["0", "h2d"] == pytest.approx(1, abs=0.1)
    for gpu in (first, second):  # the double has nothing that samples: each says so
        reasons = {metric["reason"] for item in gpu["items"] for name, metric in item["metrics"].items() if name == "SMActive"}
        assert "the GPU was not sampled: this libcuda lacks functions" in reasons, reasons
