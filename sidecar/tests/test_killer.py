"""A training, its agent or both are hit in each phase of a session, and nothing of it hinders the next one.

Which of them, how and when is drawn from a seed: the first SEEDS, of which PP_KILLER_SEEDS asks for others or more ("100",
"17,42"). Each seed has a session, of many short captures, in which the hit comes, and another in the same volume after it.
"""
import json
import os
import random
import signal
import subprocess
import time

import pytest
from conftest import HERE, SESSION, Probe, plain, pythons, run, settings_of, torch_of, undelta, until
from server import Server, certificates

VICTIM = str(HERE / "victim.py")
SEEDS = 4
STEPS = 60  # of the training after it
# Many short captures and pauses between them, so that every phase comes all the time.
SHORT = {"overheadBudgetPercent": 5, "stretch": {"seconds": 0.02}}
WHO = ("trainer", "agent", "both", "rank", "trainer", "both")
STATES = {"DISCOVERING": ("forward", "backward", "optimizer"), "MARKING": ("forward", "backward", "optimizer", "between"),
          "COUNTING": ("forward", "backward", "optimizer", "between"), "STOPPING": ("between",)}
DEATHS = ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGSTOP", "error", "memory", "exit")
ENDS = {"error": 1, "memory": 1, "exit": 5, "SIGSTOP": -signal.SIGKILL}


def seeds():
    asked = os.environ.get("PP_KILLER_SEEDS") or str(SEEDS)
    return [int(seed) for seed in asked.split(",") if seed] if "," in asked else range(int(asked))


class Plan:
    def __init__(self, seed):
        chance = random.Random(seed)
        self.who = WHO[seed % len(WHO)]
        self.state = chance.choice([*STATES, "LEAVING", "LEFT"] + ["STARTING"] * (self.who != "rank"))
        self.at = chance.choice(STATES.get(self.state, ("",)))
        self.trainer = self.agent = None
        if self.who != "agent":
            self.trainer = chance.choice(DEATHS if self.state in STATES else DEATHS[:4])
        if self.who in ("agent", "both"):
            self.agent = chance.choice(("SIGKILL", "SIGTERM", "SIGSTOP"))
        self.skip = chance.choice((0, 0, 1, 5, 20) if self.state in ("MARKING", "COUNTING") else (0, 1))
        self.pause = chance.uniform(0, 1.5)  # of what is stopped; and how long a start may take
        self.goes_on = self.trainer == "SIGSTOP" and chance.random() < 0.5  # it only hung

    def end(self):
        """The status of the trainer, or of torchrun."""
        if self.who == "rank" or self.trainer is None or self.goes_on:
            return 0
        return ENDS.get(self.trainer) or -signal.Signals[self.trainer]

    def told(self):
        return json.dumps({key: getattr(self, key) for key in ("state", "at", "skip", "trainer", "agent")})


def state_of(pid):
    """As ps has it; None where there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def trainers(ring):
    """Processes that have been told of this ring directory."""
    found, told = [], b"PRECISIONPROBE_RING=%s\0" % os.fsencode(ring)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                if told in file.read():
                    found.append(int(name))
        except OSError:
            continue  # it has ended
    return found


class Killer:
    """A pod in small: a volume, an agent, the operator, and one training after another."""

    def __init__(self, probe, python, plan):
        self.probe, self.python, self.plan = probe, python, plan
        certificates(probe.folder)
        (probe.folder / "token").write_text("token\n")
        self.server = Server(probe.folder).start()
        self.enough = probe.folder / "enough"
        probe.configure(endpoint="wss://localhost:%d/v1/ingest" % self.server.port, **SHORT)

    def start_agent(self):
        self.probe.start("--token", str(self.probe.folder / "token"), "--ca", str(self.probe.folder / "ca.crt"))

    def start_victim(self):
        command = [self.python]
        if self.plan.who == "rank":
            command += ["-m", "torch.distributed.run", "--nproc_per_node=2", "--max_restarts=1", "--monitor_interval=0.1",
                        "--rdzv_backend=c10d", "--rdzv_conf=store_type=file", "--rdzv_endpoint=%s" % (self.probe.folder / "store")]
        steps = ["300", *[str(self.enough)] * (self.plan.state in STATES and self.plan.who != "rank")]
        extra = {"AGENT": str(self.probe.agent.pid), "PLAN": self.plan.told(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.probe.training = subprocess.Popen([*command, VICTIM, *steps], env=self.probe.environment(extra), text=True,
                                               stdout=subprocess.PIPE, stderr=open(self.probe.folder / "errors.txt", "w"))
        self.hit_one = self.probe.training.pid

    def hit_while_it_starts(self):
        time.sleep(self.plan.pause)
        for process, how in ((self.probe.agent, self.plan.agent), (self.probe.training, self.plan.trainer)):
            if how:
                process.send_signal(signal.Signals[how])

    def end_what_is_stopped(self):
        """What was stopped hangs for a while; then somebody loses patience."""
        for pid, how in ((self.probe.agent.pid, self.plan.agent), (self.hit_one, self.plan.trainer)):
            if how == "SIGSTOP":
                until(lambda pid=pid: state_of(pid) in ("T", None), "the process to stop", 60)
                time.sleep(self.plan.pause)
                os.kill(pid, signal.SIGCONT if self.plan.goes_on and pid == self.hit_one else signal.SIGKILL)

    def until_hit(self):
        """What the training says before."""
        said = []
        for line in self.probe.training.stdout:
            if line.startswith("hit "):
                self.hit_one = int(line.split()[1])
                return "".join(said)
            said.append(line)
        raise AssertionError("it was never hit: " + (self.probe.folder / "errors.txt").read_text())

    def hit(self):
        said = ""
        self.start_agent()
        self.start_victim()
        if self.plan.state == "STARTING":
            self.hit_while_it_starts()
        else:
            said = self.until_hit()
        self.end_what_is_stopped()
        if self.plan.agent:
            self.probe.agent.wait(60)
            self.start_agent()
        if self.plan.end() == 0:
            self.goes_on()
        output, _ = self.probe.training.communicate(timeout=120)
        assert self.probe.training.returncode == self.plan.end(), (self.probe.folder / "errors.txt").read_text()
        until(lambda: not trainers(self.probe.ring), "the last of its processes to be gone", 60)
        return said + output

    def goes_on(self):
        """The training lives, and the session, too."""
        if self.plan.state in STATES and self.plan.who != "rank":
            seen = len(self.server.batches)
            until(lambda: len(self.server.batches) >= seen + 3 or self.probe.training.poll() is not None, "further batches")
        self.enough.touch()

    def next_one(self):
        """Another session, and a training that nobody touches; its output."""
        self.server.say(True, session="after", settings=settings_of("after"))
        until(lambda: "uid=after" in self.probe.log.read_text() and self.mode() == "sample", "the next session")
        return run(self.python, VICTIM, str(STEPS), environment=self.probe.environment())

    def mode(self):
        return json.loads((self.probe.ring / "control.json").read_text())["mode"]


@pytest.fixture
def killer(tmp_path):
    made = []

    def make(*arguments):
        made.append(Killer(Probe(tmp_path), *arguments))
        return made[0]

    yield make
    for one in made:
        for pid in trainers(one.probe.ring):
            os.kill(pid, signal.SIGKILL)
        one.probe.stop()
        one.server.stop()


def check_training(python, output):
    """It has ended by itself: its losses are those of one without the hook."""
    told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    alone = json.loads(plain(python, VICTIM, str(STEPS)).stdout)
    assert told and all((one["losses"], one["others"]) == (alone["losses"], 0) for one in told), output
    return told


def check_full(batches):
    """All of the script's steps are told, but the first, in which layers are found."""
    assert [number for batch in batches for number in undelta(batch["steps"]["number"])] == list(range(1, STEPS))
    assert sum(batch["dropped"] for batch in batches) == 0
    assert len({(batch["instance"], batch["process"]["id"]) for batch in batches}) == 1


@pytest.mark.parametrize("seed", seeds())
def test_nothing_hinders_the_next_session(killer, seed):
    python, plan = pythons()[-1], Plan(seed)
    if plan.who == "rank" and torch_of(python) < (2, 0):
        pytest.skip("its torchrun has no such store")
    print("seed", seed, vars(plan))
    pod = killer(python, plan)
    output = pod.hit()
    if plan.end() == 0:
        assert len(check_training(python, output)) >= (2 if plan.who == "rank" else 1)
    check_training(python, pod.next_one().stdout)
    pod.probe.finish()
    check_full([batch for batch in pod.server.batches if batch["session"] == "after"])
    assert {batch["session"] for batch in pod.server.batches} <= {SESSION, "after"} and not pod.server.changed
    left = {file.name for file in pod.probe.ring.iterdir() if not file.name.startswith(".new-")}  # gone after a minute
    assert left <= {"control.json", "loaded", "torch"}
    assert [file.name for file in pod.probe.spool.iterdir()] == ["session.json"]
