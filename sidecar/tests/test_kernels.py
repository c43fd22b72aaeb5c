"""Kernel records: what CUPTI tells of a training's kernels, and how it is left. With doubles of CUDA and CUPTI."""
import collections
import json
import pathlib

from conftest import HERE, layers_of, needed, plain, pythons, run, undelta

KERNELS = str(HERE / "kernels.py")
DOUBLES = pathlib.Path(needed("PP_HOOK")).parent / "tests"
LIBRARIES = [str(DOUBLES / "cuda" / "libcuda.so.1"), str(DOUBLES / "cupti" / "libcupti.so.13")]
PYTHON = pythons()[-1]  # the newest is enough: nothing of this depends on torch's version
ATTACHED = ["subscribe", "unsubscribe", "register", "latency", "enable", "driver"]
LEFT = ["driver", "disable", "latency", "flush", "subscribe", "domain", "finalize"]


def trained(probe, case, **settings):
    """A case of kernels.py under the agent: what it tells and the batches. Its losses are those of a plain run."""
    probe.configure(overheadBudgetPercent=1, stretch={"seconds": 0.2}, **settings)
    agent = probe.start("--dump")
    environment = probe.environment({"AGENT": str(agent.pid), "LD_PRELOAD": str(DOUBLES / "faults.so")})
    result = run(PYTHON, KERNELS, case, *LIBRARIES, environment=environment)
    probe.finish()
    assert "kernels came after" not in probe.log.read_text()
    alone = plain(PYTHON, KERNELS, "plain", *LIBRARIES)
    told = json.loads(result.stdout.splitlines()[-1])
    assert len(result.stdout.splitlines()) == 1 and result.stderr == alone.stderr
    assert (told["losses"], told["others"]) == (json.loads(alone.stdout)["losses"], 0)
    assert (told["hooks"], told["ring"]["failures"]) == ([], 0)
    batches = probe.batches()
    check(told, batches)
    return told, batches


def check(told, batches):
    """Wherever kernels are told of, they are those of the step, all and in their places; elsewhere none."""
    expected = {(name, phase): ns for name, phase, ns in told["step"]}
    for batch in batches:
        names = {0: "", **{id: layer["name"] for id, layer in layers_of([batch]).items()}}
        pieces = batch["intervals"]
        if batch["process"]["clock"] != "kernels":
            assert "kernels" not in pieces and "gap" not in batch["steps"] and batch["process"]["kernels"]
            continue
        assert not batch["process"].get("kernels")
        found = collections.defaultdict(collections.Counter)
        for step, layer, phase, ns in zip(undelta(pieces["step"]), pieces["layer"], pieces["phase"],
                                          pieces["kernels"]):
            found[step][names[layer], phase] += ns
        steps = batch["steps"]
        assert steps["number"] and set(found) == set(undelta(steps["number"]))
        for number, duration, gap in zip(undelta(steps["number"]), steps["duration"], steps["gap"]):
            assert +found[number] == expected, number
            assert sum(expected.values()) + gap == duration and gap > 0


def numbers(batches, clock="kernels"):
    return [n for b in batches if b["process"]["clock"] == clock for n in undelta(b["steps"]["number"])]


def test_layers_get_their_kernels_and_cupti_is_left(probe):
    """Also kernels of graphs, which have the time of another launch, or no launch that is known."""
    told, batches = trained(probe, "stretches")
    assert len(numbers(batches)) >= 3 and not numbers(batches, "cuda")
    calls = told["calls"]
    changes = [call for i, call in enumerate(calls) if call != "flush" or calls[i - 1] == "latency"]
    whole = (ATTACHED + LEFT) * 3
    assert changes[:len(whole)] == whole


def test_reasons_not_to_record(probe):
    told, batches = trained(probe, "refused")
    why = {"subscribe": "another CUPTI client is attached", "clock": "a profiler has changed CUPTI's clock",
           "enable": "CUPTI refuses to record kernels"}
    assert told["told"] == why and numbers(batches)
    assert {b["process"]["kernels"] for b in batches if b["process"]["clock"] == "cuda"} == set(why.values())


def test_records_that_are_lost(probe):
    told, batches = trained(probe, "damaged")
    known = numbers(batches)
    after = list(told["told"].values())
    for begin, end in zip(after, after[1:] + [float("inf")]):
        assert [n for n in known if begin < n < end], (told["told"], known)


def test_a_forked_child_profiles_itself(probe):
    told, _ = trained(probe, "forked")
    assert told["told"] == [7] * 10


def test_torch_profiler_begins(probe):
    """The user's profile is theirs alone from its beginning to its end, and recording goes on after it."""
    told, batches = trained(probe, "profiled")
    assert told["told"] == [180, 180]  # all that ran: 3 layers in 60 steps
    calls = told["calls"]
    left = ["driver", "disable", "latency", "flush-all", "finalize-at-once"]
    first, second = [i for i, call in enumerate(calls) if call == "profile"]
    assert calls[first - len(left):first + 2] == left + ["profile", "profiled"]
    # On a machine that is slow enough the stretch before is left as ever.
    assert calls[second - 1] in (left[-1], LEFT[-1]) and calls[second + 1] == "profiled"
    assert "enable" in calls[second:]
    assert "torch.profiler is running" in [b["process"].get("kernels") for b in batches]
