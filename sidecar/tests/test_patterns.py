"""Steps are the training's, however its loop makes them (patterns.py)."""
import statistics
from collections import Counter

import pytest
from conftest import HERE, layers_of, pieces, run, sampled, told, torch_of, undelta

PATTERNS = str(HERE / "patterns.py")
COUNT = 200
PHASES = ("forward", "backward", "optimizer", "recompute", "zero_grad", "data", "communication", "other", "inference")
IN_FULL = {"timeline": {"steps": 1000}}  # each step by itself, however many intervals it has
FOLDED = 1  # why layers in one are not told: pp_whole_reason
OUTSIDE = "(outside of modules)"  # type of layers that are none
# How many of the iterations may be missed, or taken for two, while the hook learns which optimizer ends a step.
LEARNING = {"trials": 1}


def numbers(batches):
    return [number for batch in batches for number in undelta(batch["steps"]["number"])]


@pytest.mark.parametrize("pattern", ["plain", "accumulation", "closure", "named_closure", "lbfgs", "two", "by_groups", "in_backward",
                                     "gan", "trials"])
def test_steps_are_the_loops(once, python, pattern):
    if torch_of(python) < (2, 1) and pattern in ("by_groups", "in_backward", "trials", "two", "gan"):
        pytest.skip("a torch that does not number nodes, and takes optimizers of a class for one")
    result, batches = once(python, PATTERNS, pattern, str(COUNT))
    found = numbers(batches)
    assert told(result, "loop")["iterations"] == COUNT and len(found) == len(set(found))
    within = torch_of(python) < (2, 0) and pattern in ("closure", "named_closure", "lbfgs")  # the first begins before any forward
    assert abs(max(found) - (COUNT - 1)) <= LEARNING.get(pattern, within), found[-5:]
    assert len(found) > 0.8 * COUNT


@pytest.mark.parametrize("steps", [{}, {"skip": 60, "max": 0}])
def test_steps_that_a_scaler_skips(probe, python, steps):
    """They are steps of the training, without an optimizer; steps are counted between captures, too."""
    if torch_of(python) < (2, 3):
        pytest.skip("a torch without scalers for the CPU")
    _, batches = sampled(probe, python, PATTERNS, "skipped_steps", str(COUNT), **({"steps": steps} if steps else {}))
    found = numbers(batches)
    assert len(found) == len(set(found)) > 20 and max(found) == COUNT - 1 and min(found) >= steps.get("skip", 0)
    calls = Counter()
    for _, phase, _, count in pieces(batches):
        calls[phase] += count
    assert calls[2] == sum(number % 4 != 3 and not 41 <= number < 43 for number in found)
    assert calls_of(batches)["0", "backward"] == pytest.approx(1, abs=0.02)


def test_steps_of_one_of_several_that_a_scaler_skips(probe, python):
    """It is the one whose turn it was."""
    if torch_of(python) < (2, 3):
        pytest.skip("a torch without scalers for the CPU")
    _, batches = sampled(probe, python, PATTERNS, "skipped_in_turn", str(COUNT))
    found = numbers(batches)
    assert len(found) == len(set(found)) > 0.8 * COUNT and abs(max(found) - (COUNT - 1)) <= 1
    assert calls_of(batches)["0", "backward"] == pytest.approx(2, abs=0.05)


def test_compiling_is_no_regions_work(probe, python):
    """Where a shape is new, four times in the steps that are marked."""
    if torch_of(python) < (2, 4):
        pytest.skip("a torch whose compiler does not tell that it compiles")
    result, batches = sampled(probe, python, PATTERNS, "recompiled", "100")
    alone = run(python, PATTERNS, "recompiled", "100")
    assert all(told(result, "loop")[each] == told(alone, "loop")[each] for each in ("graphs", "compiled"))
    rows, _ = rows_of(batches)
    compiled, calls = rows["compile", "forward"], round(calls_of(batches)["compile", "forward"] * len(numbers(batches)))
    compiler = 1e9 * 60 * 0.003  # that a compilation takes at least
    assert len(compiled) == 4 and sum(compiled.values()) > 2 * 4 * compiler and 4 <= calls <= 8
    for phase in ("forward", "backward"):
        assert all(rows["Sequential", phase][step] < 0.5 * compiler for step in compiled), phase


@pytest.mark.parametrize("pattern", ["closure", "named_closure"])
def test_a_closure_is_no_work_of_the_optimizers(once, python, pattern):
    if torch_of(python) < (2, 0):
        pytest.skip("a torch that does not tell arguments")
    _, batches = once(python, PATTERNS, pattern, str(COUNT))
    ns = Counter()
    whole = sum(sum(batch["steps"]["duration"]) for batch in batches)
    for _, phase, duration, _ in pieces(batches):
        ns[phase] += duration
    assert 0 < ns[2] < 0.1 * whole, (ns, whole)
    assert ns[0] > 0 and ns[1] > 0


def calls_of(batches):
    """{(layer name, phase): calls in a step} of what was sampled."""
    calls = Counter()
    for layer, phase, _, count in pieces(batches):
        if layer:
            calls[layer["name"], PHASES[phase]] += count
    return {key: count / len(numbers(batches)) for key, count in calls.items()}


def test_forwards_that_record_nothing_are_inference(probe, python):
    """In each step a teacher's and a rollout's; each ten steps three of evaluation. The timeline has each call."""
    _, batches = sampled(probe, python, PATTERNS, "evaluation", str(COUNT))
    calls = calls_of(batches)
    if torch_of(python) < (2, 0):
        assert calls["0", "forward"] == pytest.approx(2, abs=0.1) and calls["0", "inference"] == pytest.approx(0.3, abs=0.15)
    else:
        assert calls["0", "forward"] == pytest.approx(1, abs=0.1) and calls["0", "inference"] == pytest.approx(1.3, abs=0.15)
    assert calls["Sequential.0", "inference"] == pytest.approx(1, abs=0.1) and ("Sequential.0", "forward") not in calls


@pytest.mark.parametrize("pattern", ["reentrant_checkpoint", "other_checkpoint"])
def test_a_checkpoint_trains(probe, python, pattern):
    _, batches = sampled(probe, python, PATTERNS, pattern, str(COUNT))
    calls = calls_of(batches)
    assert not any(phase == "inference" for _, phase in calls) and calls["Linear", "forward"] == pytest.approx(1, abs=0.1)
    again = 2 if torch_of(python) < (2, 0) else 1
    assert calls["0", "forward"] == pytest.approx(again, abs=0.1) and (("0", "recompute") in calls) == (again == 1)


def ms_of(batches):
    """{(layer name, phase): ms in a step} of what was sampled."""
    ns = Counter()
    for layer, phase, duration, _ in pieces(batches):
        ns[layer["name"] if layer else "", PHASES[phase]] += duration
    return {key: value / len(numbers(batches)) / 1e6 for key, value in ns.items()}


def slow_ms(result):
    """What a call of work of its own took in forward and backward, as the script has it."""
    return told(result, "loop")["slow"]


def quick_ms(result):
    """The same of the quick ones: a busy machine stops some for longer than they take."""
    return told(result, "loop")["quick"]


def about(ms):
    """A row with this work in it and little else. `ms` is of other calls, too."""
    return pytest.approx(1.2 * ms, rel=0.35)


def numbered(python):
    return torch_of(python) >= (2, 1)


def test_what_parents_do_themselves_is_theirs(probe, python):
    """Two blocks work 3 ms of their own in forward and 6 in backward, and the model calls its head as a function."""
    result, batches = sampled(probe, python, PATTERNS, "parents", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    for block in ("blocks.0.1", "blocks.1.1"):
        assert ms[block, "forward"] == about(slow["forward"]) and calls[block, "forward"] == pytest.approx(1, abs=0.05)
        if numbered(python):
            assert ms[block, "backward"] == about(slow["backward"]) and calls[block, "backward"] == pytest.approx(1, abs=0.05)
        assert all(ms[f"{block}.{each}", phase] < 0.5 * slow[phase] for each in ("first", "last") for phase in slow)
    assert calls["Blocks", "forward"] == pytest.approx(1, abs=0.05) and ms["Blocks", "forward"] < 0.5 * slow["forward"]
    assert ("Blocks", "backward") in ms or not numbered(python)
    assert not any(name in ("blocks.0", "blocks.1") for name, _ in ms), "what only calls others is no layer"


def test_sums_within_a_layers_backward_are_not_its_own(probe, python):
    """Between its nodes the engine sums gradients and adds them into .grad: four times 3 ms of what others have it call then."""
    if not numbered(python):
        pytest.skip("a torch that does not number nodes")
    result, batches = sampled(probe, python, PATTERNS, "casts", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    assert ms["gradients", "backward"] == about(quick_steps(result, "later", 4) / 1.2), ms
    for layer in ("layer", "Casts"):
        assert ms[layer, "backward"] < 0.5 * slow["later"] and calls[layer, "backward"] == pytest.approx(1, abs=0.05), (ms, calls)


def test_parents_are_left_out_with_what_is_in_them(probe, python):
    """Its own time would hold that of the layers in it that nobody wants."""
    _, batches = sampled(probe, python, PATTERNS, "parents", str(COUNT),
                         layers={"include": [], "exclude": ["blocks.0.1.last"], "types": [], "depth": 0})
    names = {name for name, _ in calls_of(batches)}
    assert {"blocks.1.1", "blocks.0.1.first"} <= names and not names & {"blocks.0.1", "blocks.0.1.last", "Blocks"}


@pytest.mark.parametrize("pattern, why", [
    ("one_gpu", None), ("several_gpus", "several GPUs: kernels are not recorded"),
    ("data_parallel", "several GPUs: kernels are not recorded"),
    ("other_device", "xpu devices: how long a layer ran there is not known"),
    ("amd_gpu", "AMD devices: how long a layer ran there is not known")])
def test_devices_without_times_are_refused(probe, python, pattern, why):
    result, batches = sampled(probe, python, PATTERNS, pattern, str(COUNT))
    assert told(result, "loop")["iterations"] == COUNT
    assert (len(numbers(batches)) > 0.8 * COUNT) == (why is None)
    assert why is None or (not numbers(batches) and f"this process is not profiled: {why}" in probe.log.read_text())


def test_two_trainings_in_threads_are_refused(probe, python):
    """Their steps would be taken for one's. They are told after four turns of less than 50 steps (turns.h)."""
    result, batches = sampled(probe, python, PATTERNS, "two_threads", "300")
    assert told(result, "loop")["iterations"] == 300
    assert "this process is not profiled: several threads train in one process" in probe.log.read_text()
    assert len(numbers(batches)) < 4 * 50


def test_a_training_whose_steps_are_in_threads_of_their_own(probe, python):
    """One after the other: it is one."""
    result, _ = sampled(probe, python, PATTERNS, "another_thread", "300")
    assert told(result, "loop")["iterations"] == 300 and "not profiled" not in probe.log.read_text()


def test_a_model_that_comes_later_is_found(probe, python):
    result, batches = sampled(probe, python, PATTERNS, "late_model", "300")
    calls, steps = calls_of(batches), len(numbers(batches))
    assert steps > 250 and told(result, "loop")["iterations"] == 300
    for layers in (("0", "2"), ("Sequential.0", "Sequential.2")):
        for layer in layers:
            assert calls[layer, "forward"] == calls[layer, "backward"] == pytest.approx(0.5, abs=0.1)


def test_a_model_that_comes_now_and_then_is_found(probe, python):
    """No step after the first that calls it does soon; the names of the other stay."""
    _, batches = sampled(probe, python, PATTERNS, "turns", "400")
    calls = calls_of(batches)
    assert calls["Sequential.0", "forward"] == pytest.approx(0.1, abs=0.03)
    assert calls["0", "forward"] == pytest.approx(1, abs=0.02)


def test_what_a_checkpoint_runs_again_is_no_layers_backward(probe, python):
    if not numbered(python):
        pytest.skip("a torch whose checkpoints run their forward again elsewhere")
    result, batches = sampled(probe, python, PATTERNS, "checkpointed_function", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    assert ms["checkpoint", "recompute"] == about(slow["forward"]) and calls["checkpoint", "recompute"] == pytest.approx(1, abs=0.05)
    assert ms["2", "backward"] < 0.5 * slow["forward"]
    assert all(calls[layer, "recompute"] == pytest.approx(1, abs=0.05) for layer in ("0", "1", "2"))


def test_backward_ends_where_a_layers_nodes_end(probe, python):
    """Twice in a step, with 12 ms between them in which no layer runs."""
    result, batches = sampled(probe, python, PATTERNS, "gradient_penalty", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    assert calls["0", "backward"] == pytest.approx(2, abs=0.05)
    assert all(ms[layer, phase] < 0.25 * slow["backward"] for layer in ("0", "1", "2") for phase in ("forward", "backward"))


@pytest.mark.parametrize("pattern", ["parameters_only", "parametrized"])
def test_each_layer_has_its_backward(probe, python, pattern):
    _, batches = sampled(probe, python, PATTERNS, pattern, str(COUNT))
    calls = calls_of(batches)
    assert all(calls[layer, "backward"] == pytest.approx(1, abs=0.05) for layer in ("0", "1", "2"))


def test_a_view_that_copies_its_gradient_works(probe, python):
    """As that of attention does whose q, k and v come out of one product, by permute and unbind."""
    result, batches = sampled(probe, python, PATTERNS, "turned", "100", **IN_FULL)
    (ms, _), slow = quick_of(batches), quick_ms(result)["backward"]
    assert ms["3", "backward"] > 0.9 * slow
    if numbered(python):
        assert 0.9 * slow < ms["1", "backward"] < 1.2 * ms["3", "backward"]


def test_a_view_that_is_come_to_by_two_ways(probe, python):
    if not numbered(python):
        pytest.skip("a torch that does not number nodes")
    result, batches = sampled(probe, python, PATTERNS, "ways", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    assert ms["Ways", "backward"] == about(slow["backward"]) and calls["Ways", "backward"] == pytest.approx(1, abs=0.05)


def test_a_parent_that_calls_itself_or_returns_what_nobody_uses(probe, python):
    """One call, and all of its own work; what it returns may be no tensors, and some of it in no loss."""
    result, batches = sampled(probe, python, PATTERNS, "odd", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    assert ms["Odd", "forward"] == about(slow["forward"])
    if torch_of(python) >= (2, 0):
        assert calls["Odd", "forward"] == pytest.approx(1, abs=0.05)
    if numbered(python):
        assert ms["Odd", "backward"] == about(slow["backward"]) and calls["Odd", "backward"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("pattern", ["reentrant_parents", "other_parents"])
def test_what_is_run_again_takes_nobodys_time(probe, python, pattern):
    """Two blocks of 3 ms forward, 3 again and 6 backward; nodes' numbers in backward's thread are none of forward's."""
    if not numbered(python):
        pytest.skip("a torch that does not number nodes")
    result, batches = sampled(probe, python, PATTERNS, pattern, str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    for block in ("blocks.0.1", "blocks.1.1"):
        assert ms[block, "forward"] == about(slow["forward"]) == ms[block, "recompute"], ms
        assert ms[block, "backward"] == about(slow["backward"]), ms
        assert all(calls[block, phase] == pytest.approx(1, abs=0.05) for phase in ("forward", "recompute", "backward"))
        assert all(ms[f"{block}.{each}", "backward"] < 0.5 * slow["backward"] for each in ("first", "last")), ms
    assert ms["Linear", "backward"] < 0.5 * slow["backward"]


def test_a_forward_that_fails_leaves_nothing(probe, python):
    """Of each third call; what it had made is free as soon as the exception is handled."""
    if torch_of(python) < (2, 0):
        pytest.skip("a torch that does not tell of forwards that raise")
    result, batches = sampled(probe, python, PATTERNS, "failing", str(COUNT))
    calls = calls_of(batches)
    assert calls["last", "forward"] == calls["last", "backward"] == pytest.approx(1, abs=0.05)
    assert 1.2 < calls["first", "forward"] < 1.8


def test_a_backward_within_a_forward(probe, python):
    """A force field: its layers have both backwards, itself its forward; what the second one is of nobody can tell."""
    result, batches = sampled(probe, python, PATTERNS, "force_field", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    assert ms["ForceField", "forward"] == about(slow["forward"]) and calls["ForceField", "forward"] == pytest.approx(1, abs=0.05)
    assert ("ForceField", "backward") not in ms and all(ms[layer, "backward"] < 0.5 * slow["forward"] for layer in ("first", "last"))
    assert calls["first", "backward"] >= 1


@pytest.mark.parametrize("pattern, names, kind", [
    ("many_layers", {f"{n}.inner" for n in range(300)}, "Sequential (all of it)"),
    ("flat_layers", {"Sequential"}, "Sequential (all of it)"),
])
def test_more_layers_than_there_is_room_for_are_told_together(probe, python, pattern, names, kind):
    """Each by the module that they are in, whose type says so; nothing of them is missing."""
    _, batches = sampled(probe, python, PATTERNS, pattern, "12")
    layers = [layer for layer, *_ in pieces(batches) if layer and layer["type"] != OUTSIDE]
    types = {layer["name"]: layer["type"] for layer in layers}
    assert {layer["name"] for layer in layers if layer.get("whole") == FOLDED} == names
    assert {name: types[name] for name in names} == {name: kind for name in names}
    assert set(types) - names <= {str(n) for n in range(300)}, "blocks, for what they do themselves"
    ms = ms_of(batches)
    whole = sum(sum(batch["steps"]["duration"]) for batch in batches) / len(numbers(batches)) / 1e6
    assert sum(value for (name, phase), value in ms.items() if name and phase in ("forward", "backward")) > 0.5 * whole


@pytest.mark.parametrize("pattern, phases", [("by_hand", {"forward", "backward"}), ("server", {"inference"}),
                                             ("by_hand_with_optimizers", {"forward", "backward"})])
def test_steps_that_the_program_ends_itself(probe, python, pattern, phases):
    result, batches = sampled(probe, python, PATTERNS, pattern, str(COUNT))
    found, calls = numbers(batches), calls_of(batches)
    assert told(result, "loop")["iterations"] == COUNT and len(found) == len(set(found)) > 0.8 * COUNT
    assert abs(max(found) - (COUNT - 1)) <= (2 if pattern == "by_hand_with_optimizers" else 0)  # optimizers came first
    each = 2 if pattern == "by_hand_with_optimizers" else 1
    assert {phase for _, phase in calls} == phases or torch_of(python) < (2, 0)
    assert all(calls["0", phase] == pytest.approx(each, abs=0.1) for phase in phases if ("0", phase) in calls)
    assert ("0", "forward") in calls or ("0", "inference") in calls


def run_outside(probe, python, pattern, count=COUNT, **session):
    if not numbered(python):
        pytest.skip("a torch that does not number nodes")
    return sampled(probe, python, PATTERNS, pattern, str(count), **session)


def outside_of(*of, **session):
    """ms and calls of all rows, what the script has, and what is in none of its rows."""
    result, batches = run_outside(*of, **session)
    ms = ms_of(batches)
    whole = sum(sum(batch["steps"]["duration"]) for batch in batches) / len(numbers(batches)) / 1e6
    return ms, calls_of(batches), slow_ms(result), whole - sum(ms.values())


def quick(values):
    """What a tenth of them is below: a busy machine makes many longer, and none shorter."""
    return sorted(values)[len(values) // 10]


def rows_of(batches):
    """({row: {step: ns}}, {step: ns})."""
    rows, whole = {}, {}
    for batch in batches:
        layers, part = layers_of([batch]), batch["intervals"]
        whole.update(zip(undelta(batch["steps"]["number"]), batch["steps"]["duration"]))
        for layer, phase, step, ns in zip(part["layer"], part["phase"], undelta(part["step"]), part["duration"]):
            row = rows.setdefault((layers[layer]["name"] if layer else "", PHASES[phase]), Counter())
            row[step] += ns
    return rows, whole


def quick_of(batches):
    """ms of each row, and of what is in none, in quick steps."""
    rows, whole = rows_of(batches)
    others = [ns - sum(row[step] for row in rows.values()) for step, ns in whole.items()]
    return {key: quick([row[step] for step in whole]) / 1e6 for key, row in rows.items()}, quick(others) / 1e6


def quick_outside_of(*of):
    """As outside_of(), of quick steps, and the script's quick calls."""
    result, batches = run_outside(*of)
    ms, other = quick_of(batches)
    return ms, calls_of(batches), quick_ms(result), other


def quick_steps(result, phase, calls):
    """The script's ms of so many calls in a step, of quick steps: of several calls some are slow in nearly each on a busy machine."""
    took = told(result, "loop")["calls"][phase]
    return quick([sum(took[i:i + calls]) for i in range(0, len(took) - calls + 1, calls)])


def near(ms):
    """Within 5 %, and 0.2 ms of tensors that are made."""
    return pytest.approx(ms + 0.1, rel=0.05, abs=0.1)


def test_a_loss_is_a_row(probe, python):
    """Computed as functions, before zero_grad, and scaled; what comes behind backward is nobody's."""
    ms, calls, slow, other = quick_outside_of(probe, python, "slow_loss")
    assert ms["loss", "forward"] == near(slow["forward"]) and ms["loss", "backward"] == near(slow["backward"])
    assert calls["loss", "forward"] == calls["loss", "backward"] == calls["gradients", "backward"] == pytest.approx(1, abs=0.05)
    assert ms["gradients", "backward"] < 0.5 and other == about(slow["later"])


def test_a_cross_entropy_takes_what_the_programs_own_timers_say(probe, python):
    """Step by step: the middle of the differences, since a busy machine stops some between the two clocks."""
    result, batches = run_outside(probe, python, "wide_loss", 60)
    rows, _ = rows_of(batches)
    calls = told(result, "loop")["calls"]
    for phase in ("forward", "backward"):
        ratios = [ns / 1e6 / calls[phase][step] for step, ns in rows["loss", phase].items() if step < len(calls[phase])]
        assert len(ratios) > 10 and statistics.median(ratios) == pytest.approx(1, abs=0.05), (phase, sorted(ratios))


@pytest.mark.parametrize("pattern, losses", [("losses_of_two", 2), ("accumulated_losses", 4), ("checkpointed_loss", 1)])
def test_each_backward_has_its_loss(probe, python, pattern, losses):
    result, batches = run_outside(probe, python, pattern)
    (ms, other), calls = quick_of(batches), calls_of(batches)
    for phase in ("forward", "backward"):
        assert ms["loss", phase] == about(quick_steps(result, phase, losses)) and calls["loss", phase] == pytest.approx(losses, abs=0.1)
    assert calls["gradients", "backward"] == pytest.approx(losses, abs=0.1)
    assert ms["gradients", "backward"] < 0.5 and other < 0.5 * told(result, "loop")["quick"]["forward"]
    assert (("checkpoint", "recompute") in ms) == (pattern == "checkpointed_loss")


def test_a_loss_that_is_a_module_is_a_layer(probe, python):
    """What leads to it and from it is the loss's, by a name that no module has."""
    ms, calls, slow, _ = quick_outside_of(probe, python, "module_loss")
    assert ms["loss#2", "forward"] == about(2 * slow["forward"]) and ms["loss#2", "backward"] == about(2 * slow["backward"])
    assert all(calls[name, phase] == pytest.approx(1, abs=0.05) and (phase != "forward" or name != "gradients#2")
               for name in ("loss", "gradients", "loss#2", "Criterion") for phase in ("forward", "backward"))
    assert calls["gradients#2", "backward"] == pytest.approx(1, abs=0.05) and ms["gradients#2", "backward"] < 0.5
    assert all(ms[name, phase] < 0.5 for name in ("loss", "gradients", "Criterion") for phase in ("forward", "backward"))


@pytest.mark.parametrize("pattern", ["between_models", "before_models"])
def test_what_leads_to_a_model_is_no_loss(probe, python, pattern):
    """Nor are its nodes sums of gradients."""
    ms, _, slow, other = quick_outside_of(probe, python, pattern)
    assert ("gradients", "backward") not in ms and ms["loss", "forward"] < 0.5 and ms["loss", "backward"] < 0.5
    assert other == about(slow["forward"] + slow["backward"])


def test_a_loss_that_is_run_again_where_nobody_tells(probe, python):
    """With use_reentrant=True: its forward is told, and what backward does with it is nobody's."""
    ms, _, slow, other = quick_outside_of(probe, python, "reentrant_loss")
    assert ms["loss", "forward"] == about(slow["forward"]) and ("loss", "backward") not in ms
    assert ms["gradients", "backward"] < 0.5 and other == about(slow["forward"] + slow["backward"])


def test_what_adds_gradients_to_parameters(probe, python):
    ms, calls, slow, other = quick_outside_of(probe, python, "slow_gradients")
    assert ms["gradients", "backward"] == near(slow["backward"]) and calls["gradients", "backward"] == pytest.approx(1, abs=0.05)
    assert other < 0.25 * slow["backward"] / 3 and all(value < 1 for (name, _), value in ms.items() if name != "gradients")


@pytest.mark.parametrize("pattern", ["odd", "force_field", "server", "evaluation"])
def test_where_there_is_no_loss_there_is_no_row(probe, python, pattern):
    """In the model, in a forward that runs backward itself, and in what records nothing; an evaluation has none of its own."""
    ms, calls, *_ = outside_of(probe, python, pattern, COUNT if pattern == "evaluation" else 100)
    rows = {key for key in ms if key[0] in ("loss", "gradients")}
    assert rows == {"odd": {("gradients", "backward")}, "force_field": set(), "server": set(),
                    "evaluation": {("loss", "forward"), ("loss", "backward"), ("gradients", "backward")}}[pattern]
    assert all(calls[row] == pytest.approx(1, abs=0.1) for row in rows)


def test_two_backwards_of_one_graph(probe, python):
    """The nodes that the first made are no loss of the second, and what runs between the two is nobody's."""
    ms, calls, slow, other = quick_outside_of(probe, python, "gradient_penalty")
    assert ms["loss", "backward"] < 0.5 and calls["loss", "backward"] == pytest.approx(1, abs=0.05)
    assert other > 0.9 * slow["backward"]


def test_a_backward_that_fails_leaves_nothing(probe, python):
    ms, calls, slow, other = quick_outside_of(probe, python, "thrown_away")
    assert ms["loss", "backward"] == about(slow["backward"]) and calls["loss", "backward"] == pytest.approx(1, abs=0.05)
    assert other == about(slow["later"] + slow["backward"])


@pytest.mark.parametrize("layers", [{"exclude": ["2"]}, {"include": ["0"]}, {"types": ["Linear"]}])
def test_no_loss_where_layers_are_left_out(probe, python, layers):
    """It would have theirs."""
    ms, *_ = outside_of(probe, python, "slow_loss", 60, layers={"include": [], "exclude": [], "types": [], "depth": 0, **layers})
    assert ms and not {name for name, _ in ms} & {"loss", "gradients"}
