"""Ranges that the program marks are rows by their names (ranges.py)."""
import pytest
from conftest import HERE, layers_of, plain, run, sampled, told, torch_of
from test_patterns import IN_FULL, about, calls_of, ms_of, numbered, numbers, quick_ms, quick_of, slow_ms

PROGRAM = str(HERE / "ranges.py")
COUNT = 100
LEAST = 8  # steps of a batch that is looked at by itself
TYPE, REST = "(range)", "(ranges of too many names)"


def ranges_of(probe, python, pattern, count=COUNT, **settings):
    """ms of all rows in quick steps, their calls, what the script has of its quick calls, what is in none of its rows, and the names
    of ranges."""
    result, batches = sampled(probe, python, PROGRAM, pattern, str(count), **IN_FULL, **settings)
    assert "0 captures were broken" in probe.log.read_text() and told(result, "loop")["iterations"] == count
    ms, _ = quick_of(batches)
    names = {layer["name"] for layer in layers_of(batches).values() if layer["type"] == TYPE}
    return ms, calls_of(batches), quick_ms(result), outside_of_rows(batches), names


def outside_of_rows(batches):
    """ms in a step that are in no row, of the batch that has least of them: a busy machine adds to it in some."""
    return min(sum(batch["steps"]["duration"]) / len(numbers([batch])) / 1e6 - sum(ms_of([batch]).values())
               for batch in batches if len(batch["steps"]["number"]) >= LEAST)


def once_each(calls, *rows):
    """But for the first step that has its name."""
    return all(calls[row] == pytest.approx(1, abs=0.05) for row in rows)


def is_unchanged(python, pattern, result):
    return told(result, "loop")["loss"] == told(plain(python, PROGRAM, pattern, str(COUNT)), "loop")["loss"]


def test_a_range_is_a_row(probe, python):
    """Before the model, behind it, and behind backward; a loss has what is in none of them."""
    ms, calls, slow, other, names = ranges_of(probe, python, "ranges")
    assert names == {"augment", "my loss", "later"} and once_each(calls, *((name, "forward") for name in names))
    assert ms["augment", "forward"] == about(slow["forward"]) == ms["my loss", "forward"] and ms["later", "forward"] == about(slow["later"])
    if not numbered(python):
        assert other == about(2 * slow["forward"] + 2 * slow["backward"])
        return
    assert ms["my loss", "backward"] == about(slow["backward"]) == ms["loss", "backward"] and other < 0.5 * slow["forward"]
    assert once_each(calls, ("my loss", "backward"), ("loss", "forward"), ("loss", "backward"))
    assert ms["loss", "forward"] == about(2 * slow["forward"]) and ms["gradients", "backward"] < 0.5 * slow["forward"]


def test_ranges_in_ranges(probe, python):
    """The innermost has its time; one that is open already is no further call, and a module has what it marks itself."""
    ms, calls, slow, other, names = ranges_of(probe, python, "nested_ranges")
    assert names == {"step", "decorated", "outer", "inner", "loss of mine", "regularizer"}
    assert all(ms[name, "forward"] == about(slow["forward"]) for name in names)
    assert once_each(calls, *((name, "forward") for name in names))
    assert ms["Marked", "forward"] == about(slow["later"])
    if numbered(python):
        assert other < 0.5 * slow["forward"]
        assert all(ms[name, "backward"] == about(slow["backward"]) for name in ("loss of mine", "regularizer"))
        assert once_each(calls, ("loss of mine", "backward"), ("regularizer", "backward"), ("gradients", "backward"))
        assert not any((name, "backward") in ms for name in ("step", "outer", "inner", "decorated"))


def test_a_range_within_a_step_changes_nothing(probe, python):
    result, _ = sampled(probe, python, PROGRAM, "nested_ranges", str(COUNT))
    assert is_unchanged(python, "nested_ranges", result)


def test_ranges_that_do_not_nest(probe, python):
    """They overlap, end in a module, by an exception or never; those of other threads are none."""
    ms, calls, slow, other, names = ranges_of(probe, python, "odd_ranges")
    assert names == {"first", "second", "fails", "quiet", "left open", "within"}
    assert ms["first", "forward"] == about(slow["forward"]) == ms["fails", "forward"]
    assert ms["second", "forward"] == about(2 * slow["forward"])
    assert ms["quiet", "inference"] == about(slow["forward"]) and ("quiet", "forward") not in ms
    assert once_each(calls, *((name, "forward") for name in names - {"quiet"}), ("0", "forward"), ("2", "backward"))
    assert other < 0.5 * slow["forward"]


def test_ranges_of_several_backwards(probe, python):
    if torch_of(python) < (2, 0):
        pytest.skip("a torch whose closures are the optimizer's work")
    ms, calls, slow, other, names = ranges_of(probe, python, "accumulated_ranges")
    assert names == {"around", "my loss"} and calls["my loss", "forward"] == pytest.approx(4, abs=0.1)
    assert ms["my loss", "forward"] == about(4 * slow["forward"]) and once_each(calls, ("around", "forward"))
    # Of the losses, four times as long, nothing is in it again; what is its own comes to some ms on a busy machine.
    assert ms["around", "forward"] < 2 * slow["forward"] and other < slow["forward"]
    if numbered(python):
        assert ms["my loss", "backward"] == about(4 * slow["backward"]) and calls["my loss", "backward"] == pytest.approx(4, abs=0.1)


def test_names_may_be_anything(probe, python):
    """One that a layer has gets a number; those that never come again are together, behind the first 64 of them."""
    ms, calls, _, other, names = ranges_of(probe, python, "hostile_names", 200)
    outside = {"loss#2"} if numbered(python) else {"loss"}
    assert {"bell ??[31m red ?", "zero ? zero", "(range)", "0#2"} | outside < names and len(names) == 6
    assert any(name == "..." + 125 * "x" for name in names)
    assert once_each(calls, *((name, "forward") for name in names))
    assert calls["ranges", "forward"] == pytest.approx(1 - 66 / 200, abs=0.05)


def test_more_names_than_there_is_room_for(probe, python):
    _, calls, _, _, names = ranges_of(probe, python, "many_ranges")
    assert names <= {"range %d" % i for i in range(400)} and 250 <= len(names) <= 256
    assert calls["ranges", "forward"] == pytest.approx(400 - len(names), abs=5)


def test_nvtx_ranges(probe, python):
    result, batches = sampled(probe, python, PROGRAM, "nvtx_ranges", str(COUNT), **IN_FULL)
    (ms, _), calls, slow = quick_of(batches), calls_of(batches), quick_ms(result)
    names = {layer["name"] for layer in layers_of(batches).values() if layer["type"] == TYPE}
    assert names == {"load", "model", "compute loss", "in it", "rest"} and is_unchanged(python, "nvtx_ranges", result)
    assert ms["load", "forward"] == about(slow["load"]) and ms["rest", "forward"] == about(slow["later"])
    assert ms["in it", "forward"] == about(slow["in it"]) and ms["model", "forward"] < 0.5 * slow["forward"]
    assert once_each(calls, *((name, "forward") for name in names))
    assert not numbered(python) or ms["in it", "backward"] == about(slow["backward"])


def test_compiled_code_is_compiled_as_ever(probe, python):
    """Marks in it are nobody's, and it is compiled as often, and into as many graphs."""
    if torch_of(python) < (2, 1):
        pytest.skip("a torch that does not compile")
    result, batches = sampled(probe, python, PROGRAM, "compiled_ranges", str(COUNT))
    alone, ours = (told(each, "loop") for each in (plain(python, PROGRAM, "compiled_ranges", str(COUNT)), result))
    assert {name: ours[name] for name in ("loss", "graphs", "breaks")} == {name: alone[name] for name in ("loss", "graphs", "breaks")}
    ms, slow = ms_of(batches), slow_ms(result)
    names = {layer["name"] for layer in layers_of(batches).values() if layer["type"] == TYPE}
    assert names == {"around", "loss#2", "later"} and ms["around", "forward"] == about(slow["forward"])


def test_nothing_is_left(probe, python):
    """As the capture ends, in a program that trains on."""
    probe.configure(steps={"skip": 0, "max": 20})
    probe.start("--dump")
    result = run(python, PROGRAM, "exchanged", "200", environment=probe.environment())
    probe.finish()
    loop = told(result, "loop")
    assert loop["exchanged"] == ["enter", "leave", "pop", "push"] and loop["left"] == []


@pytest.mark.parametrize("settings", [{"layers": {"include": [], "exclude": ["2"], "types": [], "depth": 0}},
                                      {"phases": ["Backward", "Optimizer"]}])
def test_no_ranges_where_layers_are_left_out(probe, python, settings):
    """They would have the time of these."""
    *_, names = ranges_of(probe, python, "ranges", 60, **settings)
    assert not names
