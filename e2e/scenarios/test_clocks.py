"""One of two pods has a wrong clock: the session ends on time, and the other one loses nothing."""
import base64
import json
import platform
import re
import time
import uuid

import pytest
import yaml

from harness import websocket
from harness.progress import wait_until
from harness.session import losses, manifest
from harness.environment import AGENT, NAME, SERVICES, SYSTEM

pytestmark = pytest.mark.extended

FAKETIME = f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1"
# The sanitizer's allocator asks for the time unless it gives no memory back; libfaketime then looks its functions up, which
# allocates, and waits for that allocator for ever.
NO_TIME_IN_ALLOCATOR = "allocator_release_to_os_interval_ms=-1"
DURATION = 15
SECOND = 10 ** 9
SENT = re.compile(r"batch sent instance=(\S+) seq=(\d+) events=(\d+)")
RFC3339 = "%Y-%m-%dT%H:%M:%S"


def training_pod(world, name):
    """A pod of its own that trains as the Job's does, with a GPU."""
    job = yaml.safe_load(world.deployment.render("dlrm.yaml", TRAIN_STEPS="20000", TRAIN_BATCH="64"))
    template = job["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {**template["metadata"], "name": name, "namespace": SERVICES}, "spec": template["spec"]}


def create(world, pod, dry=False):
    text = world.cluster.kubectl("create", "-f", "-", "-o", "json", *(["--dry-run=server"] if dry else []),
                                 input=json.dumps(pod))
    return json.loads(text)


def with_wrong_clock(pod, seconds):
    """As the webhook patches it, but that its agent's CLOCK_REALTIME is so far off; the kernel's other clocks are shared, so
    they stay. A pod that is patched already is not patched again."""
    agent, = (c for c in pod["spec"]["initContainers"] if c["name"] == AGENT)
    agent.setdefault("env", []).extend([
        {"name": "LD_PRELOAD", "value": "libasan.so.8:/faketime/libfaketime.so.1"},  # the sanitizer's has to be the first
        {"name": "ASAN_OPTIONS", "value": NO_TIME_IN_ALLOCATOR}, {"name": "FAKETIME", "value": f"{seconds:+d}s"},
        {"name": "FAKETIME_DONT_FAKE_MONOTONIC", "value": "1"}, {"name": "DONT_FAKE_MONOTONIC", "value": "1"}])
    agent["volumeMounts"].append({"name": "faketime", "mountPath": "/faketime", "readOnly": True})
    pod["spec"]["volumes"].append({"name": "faketime", "configMap": {"name": "faketime"}})
    for key in ("uid", "creationTimestamp", "resourceVersion", "managedFields"):
        pod["metadata"].pop(key, None)
    pod.pop("status", None)
    return pod


def seconds_of(text):
    """A time of a status, as seconds since 1970."""
    return time.mktime(time.strptime(text[:19], RFC3339)) - time.timezone + float("0" + text[19:-1])


def sampled_for(item):
    return seconds_of(item["status"]["samplingEndTime"]) - seconds_of(item["status"]["startTime"])


def target(world, uid, pod):
    return world.database.rows(f"SELECT * FROM target WHERE session_uid = '{uid}' AND pod_name = '{pod}'")[0]


def assert_all_is_there(world, uid, pod):
    """Every batch that the pod's agent has sent is stored, each once."""
    sent = SENT.findall(world.agent_logs()[pod])
    stored = world.database.rows(f"SELECT a.seq, a.events FROM activity a JOIN target t USING (session_uid, pod_uid) "
                                 f"WHERE a.session_uid = '{uid}' AND t.pod_name = '{pod}' ORDER BY a.seq")
    assert [(int(seq), int(events)) for _, seq, events in sent] == [(row["seq"], row["events"]) for row in stored] and sent


@pytest.fixture
def library(world):
    """libfaketime, for pods."""
    with open(FAKETIME, "rb") as file:
        data = base64.b64encode(file.read()).decode()
    world.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"libfaketime.so.1": data},
                                    "metadata": {"name": "faketime", "namespace": SERVICES}}))
    yield
    world.cluster.kubectl("-n", SERVICES, "delete", "configmap", "faketime", "--ignore-not-found")


def two_pods(world, wrong):
    """A session, an honest pod, and one whose agent's clock is wrong; both train."""
    world.cluster.apply(manifest("clocks", duration=f"{DURATION}s", deadline="5m"))
    session = world.session("clocks")
    wait_until("the session", session.phase, 20)
    skewed = with_wrong_clock(create(world, training_pod(world, "skewed"), dry=True), wrong)
    create(world, training_pod(world, "honest"))
    create(world, skewed)
    pods = world.running(SERVICES, "app=dlrm", count=2)
    return session, pods[0]["spec"]["nodeName"]


@pytest.mark.parametrize("wrong", [
    -3600, 180, pytest.param(-180, marks=pytest.mark.long), pytest.param(3600, marks=pytest.mark.long)])
def test_an_offset_is_taken_out(trainings, library, wrong):
    """Both pods' steps lie within the session, on the operator's clock; the session says whose clock is off, and by how much."""
    world = trainings
    session, node = two_pods(world, wrong)
    item = session.follow(240)
    uid = item["metadata"]["uid"]
    assert item["status"]["phase"] == "Succeeded", item["status"]["conditions"]
    assert DURATION - 1 <= sampled_for(item) <= DURATION + 10
    skew = session.condition("ClockSkewed")
    assert (skew["status"], skew["reason"]) == ("True", "OffsetTakenOut")
    assert node in skew["message"] and "skewed" in skew["message"]
    assert ("behind" if wrong < 0 else "ahead") in skew["message"]
    for pod, off in (("honest", 0), ("skewed", wrong)):
        assert_all_is_there(world, uid, pod)
        row = target(world, uid, pod)
        assert abs(row["clock_shift_ns"] - off * SECOND) < SECOND
        assert abs(row["clock_ahead_ns"] - off * SECOND) <= row["clock_bound_ns"] + SECOND // 10
        start, end = (seconds_of(item["status"][key]) for key in ("startTime", "samplingEndTime"))
        assert start - 1 <= row["observed_first_ns"] / SECOND and row["observed_last_ns"] / SECOND <= end + 15
    assert ("ClockSkewed", skew["message"]) in world.events(SERVICES, "clocks")


def test_a_clock_that_shuts_the_agent_out(trainings, library):
    """26 years behind: the operator's certificate is not valid there. That is said within a minute, with the node's name, and
    the training goes on as if nothing were."""
    world = trainings
    session, node = two_pods(world, -820000000)
    session.follow(120, until=("Collecting",))
    skew = wait_until("the reason", lambda: session.condition("ClockSkewed"), 60)
    assert skew["reason"] == "AgentsShutOut" and node in skew["message"] and "years behind" in skew["message"]
    item = session.follow(240)
    uid = item["metadata"]["uid"]
    assert DURATION - 1 <= sampled_for(item) <= DURATION + 10
    ended = session.condition("Succeeded")
    assert (ended["status"], ended["reason"]) == ("False", "Incomplete") and "certificate is not valid" in ended["message"]
    assert_all_is_there(world, uid, "honest")
    assert world.database.value(f"SELECT count(*) FROM result_detail WHERE session_uid = '{uid}' AND pod_name = 'honest' "
                                f"AND kind = 'layer'") > 0
    pod = world.cluster.get("-n", SERVICES, "pod", "skewed")
    states = {c["name"]: c for c in pod["status"]["initContainerStatuses"] + pod["status"]["containerStatuses"]}
    assert states[AGENT]["restartCount"] == 1 and states[AGENT]["lastState"]["terminated"]["exitCode"] == 0
    assert states["trainer"]["restartCount"] == 0 and pod["status"]["phase"] == "Running"
    skewed, honest = (losses(world.cluster, name) for name in ("skewed", "honest"))
    common = skewed.keys() & honest.keys()
    assert len(common) > 10 and {s: skewed[s] for s in common} == {s: honest[s] for s in common}


class WrongClient:
    """A client of the wire that speaks for a pod of its own, with a clock of its own."""

    def __init__(self, world, uid, pod, offset, answers):
        self.world, self.uid, self.pod, self.offset, self.answers = world, uid, pod, offset, answers
        self.ca = world.cluster.get("-n", SERVICES, "pod", pod)["metadata"]["annotations"]["precisionprobe.io/ca"]
        self.token = world.cluster.kubectl("-n", SERVICES, "create", "token", "default", "--duration=10m",
                                           "--audience=precisionprobe", "--bound-object-kind=Pod",
                                           f"--bound-object-name={pod}").strip()
        self.instance = str(uuid.uuid4())

    def now(self):
        return time.time_ns() + self.offset * SECOND

    def batch(self, seq):
        start = self.now() - 2 * SECOND
        return {"type": "batch", "session": self.uid, "instance": self.instance, "seq": seq,
                "process": {"id": 0, "rank": 0, "worldSize": 1, "gpus": ["GPU-made-up"], "hostname": "one", "clock": "host"},
                "stretch": {"id": seq, "start": start, "end": start + 2 * SECOND, "last": True},
                "layers": [{"id": 1, "name": "bot.0", "type": "Linear", "parameters": 10}],
                "steps": {"number": [seq + 1], "start": [start], "duration": [SECOND], "epoch": [0], "batch": [1]},
                "intervals": {"layer": [1], "phase": [0], "step": [seq + 1], "start": [start], "duration": [1000]}, "dropped": 0}

    def answer(self, socket, message):
        number = message.get("time" if message["type"] == "welcome" else "id")
        if number and self.answers:
            socket.send(json.dumps({"type": "time", "id": number, "realtime": self.now(), "monotonic": time.monotonic_ns()}))

    def send(self, count):
        """Sends batches, answers questions; the operator's answers to the batches."""
        found = []
        with self.world.forward(SYSTEM, f"pod/{self.world.wait_for_leader()}", 9443) as address:
            with websocket.connect(address, f"{NAME}.{SYSTEM}.svc", self.ca, token=self.token) as socket:
                self.answer(socket, socket.expect("welcome"))
                for seq in range(count):
                    socket.send(json.dumps(self.batch(seq)))
                    while len(found) <= seq:
                        message = socket.receive()
                        if message["type"] in ("ack", "refused"):
                            found.append(message)
                        elif message["type"] == "time":
                            self.answer(socket, message)
        return found


@pytest.mark.parametrize("years,answers,reason", [(-26, True, "far"), (-26, False, "before"), (73, False, "after")])
def test_years(trainings, years, answers, reason):
    """Refused and counted, with the node's name; the session is the honest pod's."""
    world = trainings
    counter = f'precisionprobe_batches_clock_refused_total{{reason="{reason}"}}'
    world.cluster.apply(manifest("clocks", duration=f"{DURATION}s", deadline="5m"))
    session = world.session("clocks")
    wait_until("the session", session.phase, 20)
    uid = session.get()["metadata"]["uid"]
    world.cluster.apply(world.pod(SERVICES, "wire", labels='app: idle, profile: "yes"'))
    node = world.running(SERVICES, "app=idle")[0]["spec"]["nodeName"]
    before = world.metrics(world.wait_for_leader())[counter]
    client = WrongClient(world, uid, "wire", int(years * 365.25 * 86400), answers)
    said = client.send(3)
    assert all(message["type"] == "refused" and message["field"] == "stretch" for message in said), said
    create(world, training_pod(world, "honest"))
    session.follow(120, until=("Collecting",))
    assert {m["type"] for m in client.send(3)} == {"refused"}
    skew = wait_until("the reason", lambda: session.condition("ClockSkewed"), 20)
    assert skew["reason"] == "BatchesRefused" and node in skew["message"] and "wire" in skew["message"]
    item = session.follow(240)
    assert DURATION - 1 <= sampled_for(item) <= DURATION + 10
    assert_all_is_there(world, uid, "honest")
    assert world.metrics(world.wait_for_leader())[counter] - before == 6
    assert world.database.value(f"SELECT count(*) FROM activity WHERE instance = '{client.instance}'") == 0
