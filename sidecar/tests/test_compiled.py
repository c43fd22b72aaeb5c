"""Layers inside of regions that torch.compile compiled: what is recorded as they are compiled, and where kernels are told.

Inductor's own code for a GPU runs on doubles of CUDA, CUPTI and Triton's compiler (compiled.py).
"""
import collections
import json
import os

import pytest

from conftest import HERE, layers_of, needed, plain, pythons, run, torch_of, undelta
from test_kernels import CUDA, CUPTI, DOUBLES

COMPILED = str(HERE / "compiled.py")
PYTHON = pythons()[-1]  # others have torches that are recorded in the same way, or not
OLD = (2, 6)  # since when layers are told
_, _, LEFT_OUT, _, FUNCTION, _, UNRECORDED, SHARED, UNFIT = range(9)  # why layers in one are not told: pp_whole_reason
TYPES = {"up": "Linear", "act": "GELU", "mid": "Linear", "inner": "Inner", "inner.norm": "Softmax", "inner.down": "Linear",
         "out": "Linear", "last": "LayerNorm"}

pytestmark = pytest.mark.skipif(torch_of(PYTHON) < OLD, reason="layers in regions are told since torch 2.6")


def trained(probe, case, cache="", fault="", **settings):
    """
    A case of compiled.py under the agent: what it prints, and the batches. The training is the one that it is without: what
    is compiled, by which keys it is kept, what is launched and what comes of it. `cache`: the compiler's, as one run left it;
    `fault`: of faults.c.
    """
    probe.configure(overheadBudgetPercent=1, stretch={"seconds": 0.2}, timeline={"steps": 1000}, **settings)
    agent = probe.start("--dump")
    environment = probe.environment({"AGENT": str(agent.pid), "LD_PRELOAD": str(DOUBLES / "faults.so"),
                                     "TORCHINDUCTOR_CACHE_DIR": cache, "PP_FAULT": fault})
    result = run(PYTHON, COMPILED, case, CUDA, CUPTI, environment=environment)
    probe.finish()
    told, alone = (json.loads(each.stdout.splitlines()[-1]) for each in (result, plain(PYTHON, COMPILED, case, CUDA, CUPTI)))
    for key in ("losses", "others", "kernels", "graphs", "hooks", "hooked", *(() if cache else ("hits", "cache"))):
        assert told[key] == alone[key], key
    assert len(told["cache"]) >= 4 or told["graphs"] > 1
    return told, probe.batches()


def rows_of(kernels, name_of):
    """{(layer, phase): ns} and {(layer, phase, name): [ns, kernels]} of a step's kernels."""
    ns, by_name = collections.Counter(), collections.defaultdict(lambda: [0, 0])
    for region, inside, phase, duration, name in kernels:
        layer = name_of(region, inside)
        ns[layer, phase] += duration
        by_name[layer, phase, name][0] += duration
        by_name[layer, phase, name][1] += 1
    return ns, by_name


def check(batches, kernels, name_of):
    """Each step's kernels are told as those of their layers, and by name; and each layer of a region is called once a run."""
    expected, by_name = rows_of(kernels, name_of)
    steps, named, total = 0, 0, collections.defaultdict(lambda: [0, 0])
    calls = collections.Counter()
    for batch in batches:
        if batch["process"]["clock"] != "kernels" or not batch["steps"]["number"]:
            continue
        names = {0: "", **{id: layer["name"] for id, layer in layers_of([batch]).items()}}
        pieces = batch["intervals"]
        found = collections.defaultdict(collections.Counter)
        for step, layer, phase, ns, goes_on in zip(undelta(pieces["step"]), pieces["layer"], pieces["phase"], pieces["kernels"],
                                                   pieces.get("goesOn") or [0] * len(pieces["layer"])):
            found[step][names[layer], phase] += ns
            calls[names[layer], phase] += 1 - goes_on
        for number in undelta(batch["steps"]["number"]):
            assert +found[number] == expected, number
        steps += len(batch["steps"]["number"])
        if "kernels" in batch:
            rows = batch["kernels"]
            named += rows["steps"]
            for layer, phase, name, count, ns in zip(*(rows[key] for key in ("layer", "phase", "name", "count", "duration"))):
                of = total[names[layer], phase, rows["names"][name]]
                of[0], of[1] = of[0] + ns, of[1] + count
    assert steps >= 3 and named == steps
    assert total == {key: [ns * steps, count * steps] for key, (ns, count) in by_name.items()}
    for layer, phase in expected:
        assert calls[layer, phase] == steps, (layer, phase, calls, steps)
    return layers_of(batches)


def whole(layers):
    """{name: number of pp_whole_reason} of the layers that say why others in them are not told."""
    return {layer["name"]: layer["whole"] for layer in layers.values() if "whole" in layer}


def inside(region, layer):
    if region is None:
        return ""  # outside of regions
    return region + layer if layer else region.rstrip(".") or "Net"


@pytest.mark.parametrize("case", ["whole", "replayed"])
def test_layers_of_a_region(probe, case):
    """By the names and classes of its modules: work of one module is its, of several the one's around them."""
    told, batches = trained(probe, case)
    layers = check(batches, told["kernels"], inside)
    types = {layer["name"]: layer["type"] for layer in layers.values()}
    assert {name: types[name] for name in TYPES if name in types} == {
        name: TYPES[name] for name in TYPES if name != "inner.norm"}  # which is fused, and its parent's
    assert types["Net"] == "Net" and "compiled code" not in probe.log.read_text()
    assert whole(layers) == {}


def test_code_from_the_compiler_s_cache(probe, tmp_path):
    """Nobody makes its kernels: it is told whole, and the agent says so."""
    cache = str(tmp_path / "inductor")
    run(PYTHON, COMPILED, "whole", CUDA, CUPTI, environment={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache})
    told, batches = trained(probe, "whole", cache=cache)
    assert told["hits"] == 2
    assert whole(check(batches, told["kernels"], lambda region, layer: "Net")) == {"Net": UNRECORDED}
    assert "compiled code of which nothing was recorded" in probe.log.read_text()


@pytest.mark.parametrize("fault", ["", "preempted:3"])
def test_regions_that_share_their_graphs(probe, fault):
    """
    Each with layers of its own, also where threads are kept from their processors between any two readings of the clock. Where those
    of CUPTI's are all among these, kernels are not recorded.
    """
    told, batches = trained(probe, "shared", fault=fault)
    assert told["graphs"] == 1
    assert whole(check(batches, told["kernels"], inside)) == {}


def test_code_behind_a_break_in_a_module_is_the_region_s(probe):
    """It serves all modules of its class; what is around it is told."""
    told, batches = trained(probe, "broken")
    layers = check(batches, told["kernels"], lambda region, layer: layer if layer and not layer.startswith("inner") else "Broken")
    assert whole(layers) == {"Broken": SHARED}
    assert "compiled code of which nothing was recorded" in probe.log.read_text()


def test_kernels_that_were_not_recorded(probe):
    """A run in which they are is the region's, whole; others are told."""
    told, batches = trained(probe, "strange")
    strange = [phase for *_, phase, _, name in told["kernels"] if name == "triton_poi_fused_strange_0"]
    assert strange == [0]
    kernels = [[region, "" if phase == 0 else layer, phase, *more] for region, layer, phase, *more in told["kernels"]]
    assert whole(check(batches, kernels, inside)) == {"Net": UNFIT}
    assert "kernels are not those that were recorded" in probe.log.read_text()


@pytest.mark.parametrize("layers", [{"exclude": ["up"]}, {"depth": 1}], ids=["left-out", "depth"])
def test_a_session_that_leaves_layers_out(probe, layers):
    """Its regions are told whole."""
    told, batches = trained(probe, "whole", layers={"include": [], "exclude": [], "types": [], "depth": 0, **layers})
    assert whole(check(batches, told["kernels"], lambda region, layer: "Net")) == {"Net": LEFT_OUT}
