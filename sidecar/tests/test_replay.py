"""Layers replayed while the training waits: nothing of it changes, limits are kept, what cannot be replayed is named."""
import json
import os
import pathlib
import subprocess

import pytest

from conftest import HERE, layers_of, needed, plain, pythons, run, torch_of

REPLAY = str(HERE / "replay.py")
DOUBLES = [str(pathlib.Path(needed("PP_HOOK")).parent / "tests" / name)
           for name in ("cuda/libcuda.so.1", "cupti/libcupti.so.13")]
OWN_FORWARD, OWN_DATA, INPUT, MEMORY, FAILED, PAUSE, CALL, GRADIENT, PARENT, NO_MODULE = range(1, 11)
FORWARD, BACKWARD, OTHER = 0, 1, 7
NEVER = {"own": OWN_FORWARD, "normed": OWN_DATA, "Model": PARENT}
OUTSIDE = {"loss": NO_MODULE, "gradients": NO_MODULE}  # rows where torch numbers nodes
LIMITS = {"dwellMs": 30, "maxPauseMs": 60000, "memoryMiB": 256}


def replayed(probe, python, case, *doubles, duration=0, **limits):
    """A case of replay.py under the agent: its batches. All that it is at the end is as without the probe."""
    probe.configure(isolation={**LIMITS, **limits}, overheadBudgetPercent=100, stretch={"seconds": 30},
                    durationSeconds=duration)
    probe.start("--dump")
    result = run(python, REPLAY, case, *doubles, environment=probe.environment())
    probe.finish()
    alone = plain(python, REPLAY, case, *doubles)
    assert json.loads(result.stdout) == json.loads(alone.stdout)
    assert result.stderr == alone.stderr and "gave a capture up" not in probe.log.read_text()
    batches = probe.batches()
    assert sum(b["dropped"] for b in batches) == 0 and training(batches)
    return batches


def training(batches):
    return [b for b in batches if not b["stretch"].get("dwell") and b["steps"]["number"]]


def pieces(batch):
    return batch.get("grid") or batch["intervals"]


def dwells(batches, background=False):
    """{(layer name, phase)} of those that were replayed."""
    found = set()
    for batch in batches:
        if batch["stretch"].get("dwell") and batch["stretch"].get("background", False) == background:
            names = {id: layer["name"] for id, layer in layers_of([batch]).items()}
            found |= {(names[layer], phase) for layer, phase in zip(pieces(batch)["layer"], pieces(batch)["phase"])
                      if layer}
    return found


def left_out(batches):
    """{(layer name, phase): reason}, as the last batches tell it."""
    found = {}
    for layer in layers_of(training(batches)).values():
        for phase, key in ((FORWARD, "forwardLeftOut"), (BACKWARD, "backwardLeftOut")):
            if key in layer:
                found[layer["name"], phase] = layer[key]
    return found


def paused(batches):
    return sum(b["cost"].get("paused", 0) for b in batches) / 1e6


def test_nothing_of_the_training_changes(probe, python):
    """Each layer is replayed in each phase, or said not to be; what goes with replays is measured by itself too."""
    batches = replayed(probe, python, "plain")
    layers = {layer["name"] for layer in layers_of(training(batches)).values()}
    missing = left_out(batches)
    never = {**NEVER, **(OUTSIDE if torch_of(python) >= (2, 1) else {})}
    assert layers == {"emb", "lin", "bn", "act", "drop", "gate", "rnn", "attention", "wide", "out", *never}
    assert {name: missing[name, phase] for name in never for phase in (FORWARD, BACKWARD)} == never
    told = dwells(batches)
    assert told.isdisjoint(missing)
    assert told | set(missing) == {(name, phase) for name in layers for phase in (FORWARD, BACKWARD)}
    keywords = {("attention", FORWARD), ("attention", BACKWARD)}  # torch < 2.0 does not tell them
    assert set(missing) - keywords == {(name, phase) for name in never for phase in (FORWARD, BACKWARD)}
    assert dwells(batches, background=True)
    assert paused(batches) >= len(told) * LIMITS["dwellMs"]


def test_dwells_are_no_steps_of_the_training(probe, python):
    """They lie between captures of the training; one capture has one layer in one phase, and other than it only OTHER."""
    batches = replayed(probe, python, "plain")
    ends = 0
    for batch in batches:
        assert batch["stretch"]["start"] >= ends
        ends = batch["stretch"]["end"]
        if batch["stretch"].get("dwell") and batch["steps"]["number"]:
            what = set(zip(pieces(batch)["layer"], pieces(batch)["phase"])) - {(0, OTHER)}
            assert len(what) == 1 and what.pop()[1] in (FORWARD, BACKWARD)
    numbers = [n for b in training(batches) for n in b["steps"]["number"][:1]]
    assert numbers == sorted(numbers) and numbers[-1] < 260


def test_the_limit_of_pauses(probe, python):
    """Whatever else is asked for; what found no time is named."""
    batches = replayed(probe, python, "plain", maxPauseMs=1600, dwellMs=400)
    begun = {b["stretch"]["id"] for b in batches if b["stretch"].get("dwell")}
    assert paused(batches) > 0 and 0 < len(begun) <= 4, "none begins where there is no room for it"
    assert PAUSE in left_out(batches).values() and dwells(batches)


def test_pauses_are_no_part_of_the_duration(probe, python):
    """Replays take longer than the session, and are let end."""
    batches = replayed(probe, python, "plain", duration=2, dwellMs=200)
    layers = {layer["name"] for layer in layers_of(training(batches)).values()}
    assert paused(batches) > 3000
    assert dwells(batches) | set(left_out(batches)) == {(name, phase) for name in layers for phase in (FORWARD, BACKWARD)}


def test_the_limit_of_memory(probe, python):
    """A layer that needs more than the limit is left out, the others are replayed."""
    batches = replayed(probe, python, "big", memoryMiB=4)
    missing = left_out(batches)
    assert missing["wide", FORWARD] == missing["wide", BACKWARD] == MEMORY
    assert {("lin", FORWARD), ("out", BACKWARD)} <= dwells(batches)


def test_a_layer_that_raises(probe, python):
    """It is left out; its exception, and what it warns of, is seen by nobody."""
    batches = replayed(probe, python, "raising")
    missing = left_out(batches)
    assert missing["gate", FORWARD] == missing["gate", BACKWARD] == FAILED
    assert {("lin", FORWARD), ("rnn", BACKWARD), ("out", BACKWARD)} <= dwells(batches)


def test_kernels_of_replays(probe):
    """On doubles of CUDA and CUPTI: each replay has the busy time of its kernels, the gradients' of its weights too; a
    background has none."""
    batches = replayed(probe, pythons()[-1], "plain", *DOUBLES)
    seen = set()
    for batch in batches:
        if not batch["stretch"].get("dwell"):
            continue
        assert batch["process"]["clock"] == "kernels"
        names = {id: layer["name"] for id, layer in layers_of([batch]).items()}
        some = pieces(batch)
        calls = some.get("calls") or [1] * len(some["layer"])
        sums = {}
        for layer, phase, kernels, n in zip(some["layer"], some["phase"], some["kernels"], calls):
            if layer:
                total = sums.setdefault((names[layer], phase), [0, 0])
                total[0] += kernels
                total[1] += n
        for (name, phase), (kernels, n) in sums.items():
            linear = name in ("lin", "out", "wide") and not batch["stretch"].get("background")
            each = {FORWARD: 100000, BACKWARD: 220000}[phase] if linear else 0
            if name not in ("attention",):  # has Linears of its own
                assert kernels == pytest.approx(each * n, abs=2 * each + 1), (name, phase)
            seen.add((name, phase, linear))
    assert {("lin", FORWARD, True), ("lin", BACKWARD, True), ("out", FORWARD, True)} <= seen


def test_a_dwell_that_is_over_with_its_first_replay(probe):
    """Where times are the kernels', a capture's first step only sets the time line: a layer that is slow, or a host that
    halts in it, leaves a step that counts all the same."""
    batches = replayed(probe, pythons()[-1], "slow", *DOUBLES)
    assert {b["process"]["clock"] for b in batches if b["stretch"].get("dwell")} == {"kernels"}
    assert {("gate", FORWARD), ("gate", BACKWARD), ("lin", FORWARD)} <= dwells(batches)


@pytest.mark.parametrize("isolation", [None, {"dwellMs": 0}])
def test_nothing_is_replayed_unless_asked_for(probe, isolation):
    probe.configure(**({"isolation": isolation} if isolation else {}), stretch={"seconds": 1})
    probe.start("--dump")
    run(pythons()[0], REPLAY, "plain", environment=probe.environment())
    probe.finish()
    batches = probe.batches()
    assert training(batches) and not [b for b in batches if b["stretch"].get("dwell") or b["cost"].get("paused")]


WRAPPED = """
import functools, torch
from torch import nn
from precisionprobe_hook import replay

class Counted(nn.Linear):
    pass

@functools.wraps(nn.Linear.forward)
def forward(self, x):
    return nn.Linear.forward(self, x)

@functools.wraps(nn.Linear.forward, updated=())
def bare(self, x):
    return nn.Linear.forward(self, x)

found = []
for each in (None, forward, bare):
    if each:
        Counted.forward = each
    if each is bare:
        del each.__wrapped__
    found.append(replay.why_not(torch, Counted(2, 2)))
print(found)
"""


def test_a_forward_that_calls_itself_torchs(python):
    """A wrapper has the name of what it wraps; its code is the program's all the same."""
    told = subprocess.run([python, "-c", WRAPPED], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": os.environ["PP_HOOK"]})
    assert told.stdout == "[0, 1, 1]\n", told.stderr
