"""An invalid session is refused at `kubectl apply`, and the message names the field."""
import json
import os

import pytest

from harness.progress import ROOT, CommandError

with open(os.path.join(ROOT, "crds/tests/specs.json"), encoding="utf-8") as file:
    CASES = json.load(file)


def text(namespace, spec, name="case"):
    return json.dumps({"apiVersion": "precisionprobe.io/v1alpha1", "kind": "ProfileSession",
                       "metadata": {"name": name, "namespace": namespace}, "spec": spec})


def refusal(cluster, *command, input=None):
    """What kubectl says when the API server refuses; fails where it does not."""
    with pytest.raises(CommandError) as caught:
        cluster.kubectl(*command, input=input)
    return str(caught.value)


@pytest.fixture(scope="module")
def place(everything):
    """A namespace for cases that never come to be, since every one is refused or tried only."""
    everything.cluster.kubectl("create", "namespace", "e2e-specs")
    yield "e2e-specs"
    everything.cluster.kubectl("delete", "namespace", "e2e-specs", "--wait=false")


@pytest.mark.parametrize("case", CASES["refused"], ids=[case["name"].replace(" ", "-") for case in CASES["refused"]])
def test_refused(everything, place, case):
    said = refusal(everything.cluster, "apply", "-f", "-", input=text(place, case["spec"]))
    assert case["message"] in said
    assert case["field"] in said
    assert "evaluating rule" not in said, "the rule itself failed"


def test_accepted(everything, place):
    for name, spec in CASES["accepted"].items():
        everything.cluster.kubectl("create", "--dry-run=server", "-f", "-", input=text(place, spec, name))


def test_what_is_not_named_stays_so(everything, place):
    """Rules on fields without a default hold for sessions that lack them: else no status could be written either."""
    cluster = everything.cluster
    cluster.apply(text(place, {"selector": {"matchLabels": {"app": "none"}}}, "bare"))
    cluster.kubectl("-n", place, "patch", "psess", "bare", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    said = refusal(cluster, "-n", place, "patch", "psess", "bare", "--type=merge", "-p", '{"spec": {"metrics": ["Power"]}}')
    assert "only suspend and ttlSecondsAfterFinished can be changed" in said and "evaluating rule" not in said


def test_fixed_once_created(everything, place):
    cluster = everything.cluster
    cluster.apply(text(place, CASES["accepted"]["everything"], "fixed"))
    changes = {**CASES["fixed"], "containers": None, "steps": None, "layers": None}
    for field, value in changes.items():
        said = refusal(cluster, "-n", place, "patch", "psess", "fixed", "--type=merge",
                       "-p", json.dumps({"spec": {field: value}}))
        assert "create another session" in said, field
    for field, value in CASES["changeable"].items():
        cluster.kubectl("-n", place, "patch", "psess", "fixed", "--type=merge",
                        "-p", json.dumps({"spec": {field: value}}))


@pytest.mark.parametrize("accepted, field, value", [("replay", "replay", {"duration": "1s"}), ("replay", "replay", None),
                                                    ("former-isolated", "isolation", {"dwell": "1s"}),
                                                    ("former-isolated", "isolation", None)])
def test_replay_limits_are_fixed_once_created(everything, place, accepted, field, value):
    cluster, name = everything.cluster, f"fixed-{field}"
    cluster.apply(text(place, {**CASES["accepted"][accepted], "suspend": True}, name))
    said = refusal(cluster, "-n", place, "patch", "psess", name, "--type=merge",
                   "-p", json.dumps({"spec": {field: value}}))
    assert "create another session" in said
