"""Sessions that start and stop on a pod that trains already, because it asked for the hook by its label."""
import json
import re

from harness.progress import wait_until
from harness.session import OUTSIDE, losses, manifest
from harness.environment import SERVICES, SYSTEM

SENT = re.compile(r"batch sent instance=(\S+) seq=(\d+) events=(\d+)")
ASKS = 'profile: "yes", precisionprobe.io/inject: "true"'


def labelled(world, *files, **variables):
    """Trainings whose pods ask for the hook."""
    return world.deployment.render(*files, **variables).replace('profile: "yes"', ASKS)


def mode(world, pod):
    """What the agent has told the hook."""
    text = world.cluster.kubectl("-n", SERVICES, "exec", pod, "-c", "trainer", "--", "cat",
                                 "/run/precisionprobe/control.json")
    return json.loads(text)["mode"]


def span(world, uid):
    """First and last moment that was observed for a session, and how many batches."""
    row = world.database.rows(f"SELECT min(start_ns) AS first, max(end_ns) AS last, count(*) AS batches, sum(events) AS "
                              f"events FROM activity WHERE session_uid = '{uid}'")[0]
    return row["first"], row["last"], row["batches"], row["events"]


def layers(world, uid):
    return {row["layer"] for row in world.database.rows(
        f"SELECT DISTINCT layer FROM result_detail WHERE session_uid = '{uid}' AND kind = 'layer'")}


def test_three_sessions_in_the_life_of_a_pod(trainings):
    """One ends by its duration; the next, which finds the pod taken, begins then, and does not mind that the operator goes;
    the third comes to a pod at rest."""
    world = trainings
    world.cluster.apply(labelled(world, "dlrm.yaml", "dlrm-twin.yaml", TRAIN_STEPS="20000", TRAIN_BATCH="64"))
    pod = world.running(SERVICES, "job-name=dlrm")[0]
    twin = world.running(SERVICES, "job-name=dlrm-twin")[0]["metadata"]["name"]
    name = pod["metadata"]["name"]
    assert "precisionprobe.io/session" not in pod["metadata"]["annotations"]
    wait_until("training steps", lambda: len(losses(world.cluster, name)) > 10, 120)
    assert mode(world, name) == "idle"

    world.cluster.apply(manifest("first", duration="15s"))
    first, second = world.session("first"), world.session("second")
    first.follow(60, until=("Collecting",))
    world.cluster.apply(manifest("second", duration="15s", more='  layers: {include: ["top.*"]}\n'))
    said = wait_until("why the second waits", lambda: second.condition("Injected"), 20)
    assert (said["status"], said["reason"]) == ("False", "OtherSession") and name in said["message"]
    first.follow(60, until=("Finishing", "Succeeded"))
    second.follow(60, until=("Collecting",))
    world.cluster.kubectl("-n", SYSTEM, "delete", "pod", world.leader(), "--grace-period=0", "--force")
    world.wait_for_leader(90)
    items = [first.follow(90), second.follow(90)]
    assert mode(world, name) == "idle"
    world.cluster.apply(manifest("third", duration="6s", more="  phases: [Forward]\n"))
    items.append(world.session("third").follow(90))

    for item in items:
        assert item["status"]["phase"] == "Succeeded", item["status"]["conditions"]
        assert item["status"]["pods"] == "1/1"
        assert [(t["pod"], t["injected"]) for t in item["status"]["targets"]] == [(name, True)]
    uids = [item["metadata"]["uid"] for item in items]
    spans = [span(world, uid) for uid in uids]
    assert spans[0][1] <= spans[1][0] and spans[1][1] <= spans[2][0]
    found = [layers(world, uid) for uid in uids]
    assert {layer.split(".")[0] for layer in found[0]} >= {"bot", "top", "emb"} and found[2] == found[0] - OUTSIDE
    assert OUTSIDE <= found[0], "forward and backward are both looked at"
    assert found[1] == {layer for layer in found[0] if layer.startswith("top.")}
    phases = world.database.rows(f"SELECT DISTINCT phase FROM result_detail WHERE session_uid = '{uids[2]}' AND "
                                 f"kind = 'layer'")
    assert [row["phase"] for row in phases] == ["forward"]

    wait_until("the agent's rest", lambda: mode(world, name) == "idle", 20)
    sent = SENT.findall(world.agent_logs()[name])
    assert [int(seq) for _, seq, _ in sent] == list(range(len(sent)))
    assert (len(sent), sum(int(events) for _, _, events in sent)) == (
        sum(batches for _, _, batches, _ in spans), sum(events for _, _, _, events in spans))

    profiled = losses(world.cluster, name)
    wait_until("the twin", lambda: len(losses(world.cluster, twin)) >= len(profiled), 120)
    other = losses(world.cluster, twin)
    assert {step: loss for step, loss in other.items() if step in profiled} == profiled
    after = world.cluster.get("-n", SERVICES, "pod", name)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"] and after["status"]["phase"] == "Running"
    assert all(state["restartCount"] == 0 for state in after["status"]["containerStatuses"])
