"""Operator and sidecar killed 50 times at random in one training: it never stops, its losses are bit-identical, and
what is stored is what was sent, once.

The kubelet waits before it starts a container again that has ended often: 10 s, 20 s, 40 s, up to minutes. e2e/cluster
has it wait for one second from Kubernetes 1.35 on, so that 50 real kills fit into some minutes; elsewhere this test is
skipped. sidecar/tests/test_kills.py does the same without a cluster, faster and with a server of its own.
"""
import collections
import glob
import os
import random
import re
import signal
import time

import pytest

from harness.progress import say, wait_until
from harness.session import losses, manifest, pods_of
from harness.environment import AGENT, SYSTEM

pytestmark = [pytest.mark.extended, pytest.mark.kills]

KILLS = 50
SENT = re.compile(r"batch sent instance=(\S+) seq=(\d+) events=(\d+)")


class AgentLogs:
    """The logs of all containers that the agent's has been: the kubelet keeps the last two, an open file stays."""

    def __init__(self, pod):
        meta = pod["metadata"]
        self.pattern = f"/var/log/pods/{meta['namespace']}_{meta['name']}_{meta['uid']}/{AGENT}/*.log"
        self.files = {}

    def open(self):
        for path in glob.glob(self.pattern):
            if path not in self.files:
                self.files[path] = open(path, encoding="utf-8")

    def sent(self):
        """{(instance, seq): events}: one that was killed may have left a batch to the next, which sends it too."""
        self.open()
        found = {}
        for file in self.files.values():
            file.seek(0)
            for instance, seq, events in SENT.findall(file.read()):
                assert found.setdefault((instance, int(seq)), int(events)) == int(events)
        return found


class Killer:
    """Kills what is there; what is being started again is waited for."""

    def __init__(self, world, pod, seed):
        self.world = world
        self.pod = pod
        self.logs = AgentLogs(pod)
        self.chance = random.Random(seed)
        self.count = collections.Counter()

    def process(self, what, find):
        pid = wait_until(f"a process of {what}", find, 60, every=0.1)
        self.wait()
        self.logs.open()
        os.kill(pid, signal.SIGKILL)
        wait_until(f"the end of {what}", lambda: not os.path.exists(f"/proc/{pid}"), 30, every=0.05)

    def wait(self):
        """Until any moment of a life, however long its beginning took on a busy machine."""
        time.sleep(self.chance.uniform(0, 2))

    def agent(self):
        self.process("the agent", lambda: self.world.process_of(self.pod))

    def operators(self):
        pods = self.world.operator_pods()
        self.chance.shuffle(pods)
        return pods

    def operator(self):
        self.process("an operator", lambda: next(filter(None, map(self.world.process_of, self.operators())), None))

    def operator_pod(self):
        name = wait_until("an operator's pod", self.operators, 60)[0]["metadata"]["name"]
        self.wait()
        self.world.cluster.kubectl("-n", SYSTEM, "delete", "pod", name, "--grace-period=0", "--force", "--wait=false")

    def kill(self):
        what = self.chance.choices((self.agent, self.operator, self.operator_pod), (66, 24, 10))[0]
        what()
        self.count[what.__name__] += 1


def held(world, uid):
    """{(instance, seq): events} of the store."""
    rows = world.database.rows(f"SELECT instance, seq, events FROM activity WHERE session_uid = '{uid}'")
    assert len({(r["instance"], r["seq"]) for r in rows}) == len(rows)
    return {(r["instance"], r["seq"]): r["events"] for r in rows}


@pytest.fixture(scope="module")
def killed(everything):
    """A training that is profiled through all kills, then no longer: what is under way arrives."""
    world = everything
    if world.cluster.external or not restarts_at_once(world):
        pytest.skip("containers that are killed again and again are not started again at once")
    world.use(replicaCount="2")
    world.cluster.apply(manifest("kills", duration="1h", deadline="2h", more="  overheadBudgetPercent: 50\n") + "---\n"
                        + world.deployment.render("dlrm.yaml", "dlrm-twin.yaml", TRAIN_STEPS="100000",
                                                    TRAIN_BATCH="32"))
    session = world.session("kills")
    session.follow(180, until=("Collecting",))
    pod = world.running(session.namespace, "job-name=dlrm")[0]
    killer = Killer(world, pod, 50)
    began = time.monotonic()
    for _ in range(KILLS):
        killer.kill()
    say(f"  {dict(killer.count)} in {time.monotonic() - began:.0f} s")
    uid = session.get()["metadata"]["uid"]
    world.wait_for_leader(120)
    before = len(held(world, uid))
    wait_until("more batches after all kills", lambda: len(held(world, uid)) > before + 3, 120)
    session.patch(suspend=True)
    session.follow(60, until=("Suspended",))
    wait_until("the last capture's last batch", lambda: world.database.value(
        f"SELECT stretch_last FROM activity WHERE session_uid = '{uid}' ORDER BY end_ns DESC LIMIT 1"), 120)
    wait_until("what was sent to be stored", lambda: held(world, uid).keys() == killer.logs.sent().keys(), 120)
    yield world, session, pod, killer
    assert world.clear() == []


def restarts_at_once(world):
    version = world.cluster.get("nodes")["items"][0]["status"]["nodeInfo"]["kubeletVersion"]
    return int(version.split(".")[1]) >= 35


def test_everything_was_killed(killed):
    _, _, pod, killer = killed
    assert sum(killer.count.values()) == KILLS
    assert killer.count["agent"] >= 20 and killer.count["operator"] >= 5 and killer.count["operator_pod"] >= 2
    assert len(killer.logs.files) == killer.count["agent"] + 1, "each one was started again"


def test_the_training_never_stopped(killed):
    world, session, pod, _ = killed
    now = pods_of(world.cluster, "job-name=dlrm", session.namespace)
    assert [p["metadata"]["uid"] for p in now] == [pod["metadata"]["uid"]]
    trainer = next(c for c in now[0]["status"]["containerStatuses"] if c["name"] == "trainer")
    assert trainer["restartCount"] == 0 and "running" in trainer["state"]
    ours = losses(world.cluster, pod["metadata"]["name"])
    twin = pods_of(world.cluster, "job-name=dlrm-twin", session.namespace)[0]
    theirs = losses(world.cluster, twin["metadata"]["name"])
    common = sorted(set(ours) & set(theirs))
    assert len(common) >= 25 and common == list(range(len(common)))
    assert [ours[n] for n in common] == [theirs[n] for n in common]


def test_what_is_stored_is_what_was_sent_once(killed):
    world, session, _, killer = killed
    uid = session.get()["metadata"]["uid"]
    sent = killer.logs.sent()
    assert held(world, uid) == sent
    assert len({instance for instance, _ in sent}) > 5
    target = world.database.rows(f"SELECT events, dropped FROM target WHERE session_uid = '{uid}'")
    assert target == [{"events": sum(sent.values()), "dropped": 0}]


def test_every_step_is_there_once(killed):
    """Between the first and the last sampled step none is missing, but between captures: where a batch says that its
    capture is over, the budget had sampling wait. An agent goes on where the one before it ended."""
    world, session, _, _ = killed
    uid = session.get()["metadata"]["uid"]
    batches = world.database.rows(f"SELECT end_ns, stretch_last, step_number FROM activity WHERE session_uid = '{uid}' "
                                  "ORDER BY end_ns, seq")
    last, over, count = 0, True, 0
    for batch in batches:
        for step in batch["step_number"]:
            assert step == last + 1 or over and step > last, f"step {step} follows step {last}"
            last, over, count = step, False, count + 1
        over = over or batch["stretch_last"]
    assert count >= 25
