"""The budget holds by the hook's own count, however many layers there are."""
import subprocess

import pytest
from conftest import HERE, layers_of, until

MANY = str(HERE / "many.py")
BUDGET = 10  # percent: high, so that captures come soon
CAPTURES = 2  # after which another begins


def captures(batches):
    """[(ns at which it starts, ns that it cost)]; counted steps come in batches of no time between them."""
    found = {}
    for batch in batches:
        key = batch["stretch"]["id"]
        start, cost = found.get(key, (batch["stretch"]["start"], 0))
        if batch["stretch"]["start"] < batch["stretch"]["end"]:
            found[key] = start, cost + batch["cost"]["nanoseconds"]
    return list(found.values())


# A parent is a layer down to 40 levels; leaves are at any. Steps are skipped, so that the first capture begins as soon as
# it is asked for: the time from then on counts for the budget.
@pytest.mark.parametrize("kind, layers", [("wide", 4040), ("nested", 241)])
def test_captures_come_as_the_budget_has_room_for_them(probe, python, kind, layers):
    probe.configure(overheadBudgetPercent=BUDGET, stretch={"seconds": 0.02}, steps={"skip": 20})
    probe.start("--dump")
    enough = probe.folder / "enough"
    probe.training = subprocess.Popen([python, MANY, kind, str(enough)], stdout=subprocess.DEVNULL, env=probe.environment())
    until(lambda: len(captures(probe.batches())) > CAPTURES or probe.training.poll() is not None, "captures")
    enough.touch()
    assert probe.training.wait(120) == 0
    probe.finish()
    batches = probe.batches()
    assert len(layers_of(batches)) >= layers and sum(batch["dropped"] for batch in batches) == 0
    found = captures(batches)
    assert len(found) > CAPTURES
    assert min(ns for _, ns in found) > 100 * layers, "so much a call costs at least"
    for i in range(1, len(found)):
        cost, time = sum(ns for _, ns in found[:i]), found[i][0] - found[0][0]
        assert cost * 100 <= BUDGET * time, (i, found)
