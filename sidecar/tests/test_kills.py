"""The agent killed with -9 in a training: it never stops, and what is acknowledged is what was sent, once.

50 kills of agent and server in all. On the cluster (e2e/scenarios/test_random_kills.py) it is the kubelet that starts
again what was killed.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys

import pytest
from conftest import HERE, TRAIN, Probe, losses, needed, pythons, run, undelta, until
from server import certificates

KILLS = 50
SENT = re.compile(r"batch sent instance=(\S+) seq=(\d+) events=(\d+)")


class Disturbed(Probe):
    """A probe whose server is a process of its own."""

    def __init__(self, folder):
        super().__init__(folder)
        certificates(folder)
        (folder / "token").write_text("token\n")
        self.journal = folder / "journal"
        self.port = 0
        self.server = None
        self.trainer = None

    def serve(self):
        self.server = subprocess.Popen([sys.executable, str(HERE / "server.py"), str(self.folder), str(self.port),
                                        str(self.journal)], stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline())

    def begin(self):
        # Of few layers: what the ring holds is enough for seconds without an agent.
        self.configure(endpoint="wss://localhost:%d/v1/ingest" % self.port, layers={"types": ["Linear"]})
        self.start("--token", str(self.folder / "token"), "--ca", str(self.folder / "ca.crt"))

    def train(self):
        self.out = open(self.folder / "training.txt", "w")
        self.trainer = subprocess.Popen([pythons()[0], TRAIN, "mixed", "40", str(self.folder / "enough")],
                                        stdout=self.out, env=self.environment())
        until(lambda: losses(self), "the training's first steps")

    @property
    def stdout(self):
        return (self.folder / "training.txt").read_text()

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL, "it had ended before"

    def end_training(self):
        (self.folder / "enough").touch()
        assert self.trainer.wait(120) == 0

    def sent(self):
        """{(instance, seq): events} of the log of all agents: a batch may be sent by several, but is the same."""
        found = {}
        for instance, seq, events in SENT.findall(self.log.read_text()):
            assert found.setdefault((instance, int(seq)), int(events)) == int(events)
        return found

    def taken(self):
        """What the servers have acknowledged, in the order in which it came."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def spooled(self):
        return sorted(p.name for p in self.spool.iterdir() if p.name.endswith(".batch"))


@pytest.fixture
def disturbed(tmp_path):
    d = Disturbed(tmp_path)
    d.serve()
    yield d
    for process in (d.agent, d.server, d.trainer):
        if process and process.poll() is None:
            process.kill()
            process.wait()


def check_once(d, batches):
    """Each batch that was sent was taken once; each step is in one batch, and none is missing."""
    taken = {(b["instance"], b["seq"]): len(b["intervals"]["layer"]) - sum(b["intervals"].get("goesOn", [])) if "intervals" in b else sum(b["grid"]["calls"])
             for b in batches}
    assert len(taken) == len(batches)
    assert taken == d.sent()
    assert d.spooled() == []
    steps = sorted(number for b in batches for number in undelta(b["steps"]["number"]))
    assert sum(b["dropped"] for b in batches) == 0
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    assert {b["process"]["id"] for b in batches} == {0}
    return steps


def test_agent_and_server_killed_at_random(disturbed):
    d = disturbed
    chance = random.Random(50)
    d.begin()
    d.train()
    agents = {d.agent.pid}
    for _ in range(KILLS):
        before = len(d.sent())
        if chance.random() < 0.7:  # some at once, most while batches are under way
            until(lambda: len(d.sent()) > before, "another batch")
        if chance.random() < 0.6:
            d.kill(d.agent)
            d.begin()
            agents.add(d.agent.pid)
        else:
            d.kill(d.server)
            d.serve()
        assert d.trainer.poll() is None, "the training has stopped"
    before = len(d.sent())
    until(lambda: len(d.sent()) > before, "the last agent's first batch")
    d.end_training()
    d.finish()
    batches = d.taken()
    steps = check_once(d, batches)
    assert len({b["instance"] for b in batches}) > 10 and len(agents) > 20
    seen = losses(d)
    assert len(seen) - len(steps) < 40  # before the first capture, while layers are looked for
    assert seen == losses(run(pythons()[0], TRAIN, "mixed", str(len(seen))))


def test_what_a_killed_agent_had_to_send_is_sent_by_the_next(disturbed):
    """The operator is away all along; the training ends, too, before the next agent comes."""
    d = disturbed
    d.kill(d.server)
    d.begin()
    d.train()
    until(lambda: len(d.spooled()) >= 3, "three batches in the spool")
    d.kill(d.agent)
    waiting = d.spooled()
    (d.spool / ".new").write_text("torn")
    (d.spool / "00000000000000099999.batch").write_text("torn")
    head, body = (d.spool / waiting[0]).read_text().split("\n")
    (d.spool / "00000000000000099998.batch").write_text(
        json.dumps({**json.loads(head), "seq": 99998, "events": 0, "tail": 0}) + "\n" + body)
    d.end_training()
    d.serve()
    d.begin()
    until(lambda: not any(d.spool.iterdir()), "the spool to be empty")
    d.finish()
    batches = d.taken()
    assert len(batches) > len(waiting) >= 3
    check_once(d, batches)
    assert len({b["instance"] for b in batches}) == 2
    assert [b["seq"] for b in batches if b["seq"] < 99999] == list(range(len(waiting)))
    assert "batch 99999 is not whole and is removed" in d.log.read_text()
    assert "batch 99998 is given up: seq" in d.log.read_text()


def test_without_a_spool_batches_are_kept_in_memory(disturbed):
    d = disturbed
    d.spool.rmdir()
    d.spool.write_text("a file")
    d.begin()
    d.train()
    until(lambda: len(d.sent()) >= 3, "three batches")
    d.end_training()
    d.finish()
    assert d.log.read_text().count("kept in memory only") == 1
    d.spool.unlink()
    d.spool.mkdir()
    check_once(d, d.taken())
