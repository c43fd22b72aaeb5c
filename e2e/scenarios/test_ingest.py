"""The intake refuses what is wrong, says why, and lives; what is right is stored once."""
import contextlib
import json
import socket as sockets
import time
import uuid

import pytest

from harness import websocket
from harness.progress import wait_until
from harness.session import manifest
from harness.environment import NAME, SERVICES, SHARED, SYSTEM

AUDIENCE = "precisionprobe"
CODES = {"policy": 1008, "large": 1009}


class Intake:
    """An injected pod, and connections that use its token."""

    def __init__(self, world, namespace):
        self.world = world
        self.namespace = namespace
        self.pod = world.cluster.get("-n", namespace, "pod", "one")
        self.ca = self.pod["metadata"]["annotations"]["precisionprobe.io/ca"]
        self.session = world.cluster.get("-n", namespace, "psess", "all")["metadata"]["uid"]

    def address(self):
        return self.world.forward(SYSTEM, f"pod/{self.world.wait_for_leader()}", 9443)

    def token(self, pod="one", audience=AUDIENCE):
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={pod}"] if pod else []
        return self.world.cluster.kubectl("-n", self.namespace, "create", "token", "default", "--duration=10m",
                                          f"--audience={audience}", *bound).strip()

    @contextlib.contextmanager
    def connect(self, token):
        """A port-forward of its own for each: it ends with the first connection that breaks."""
        with self.address() as address:
            with websocket.connect(address, f"{NAME}.{SYSTEM}.svc", self.ca, token=token) as socket:
                yield socket

    def batch(self, **changes):
        start = int(time.time() * 1e9) - 3_000_000_000
        batch = {
            "type": "batch", "session": self.session, "instance": str(uuid.uuid4()), "seq": 0,
            "process": {"id": 0, "rank": 0, "worldSize": 1, "gpus": ["GPU-made-up"], "hostname": "one", "clock": "host"},
            "stretch": {"id": 1, "start": start, "end": start + 2_000_000_000, "last": True},
            "layers": [{"id": 1, "name": "bot.0", "type": "Linear", "parameters": 10}],
            "steps": {"number": [1], "start": [start + 10], "duration": [1_000_000_000], "epoch": [0], "batch": [1]},
            "intervals": {"layer": [1, 1], "phase": [0, 1], "step": [1, 0], "start": [start + 20, 500_000_000],
                          "duration": [1000, 2000]},
            "dropped": 0}
        batch.update(changes)
        return batch


@pytest.fixture(scope="module")
def place(everything):
    """The pods for all of these tests."""
    world, namespace = everything, SERVICES if SHARED else "e2e-ingest"
    world.use()
    if not SHARED:
        world.cluster.kubectl("create", "namespace", namespace)
    world.cluster.apply(manifest("all", labels="app: idle", namespace=namespace) + "---\n" + world.pod(namespace, "one")
                        + "---\n" + world.pod(namespace, "bystander", labels="app: idle-too"))
    world.running(namespace, "app=idle")
    world.running(namespace, "app=idle-too")
    yield namespace
    world.clear(namespace)
    if not SHARED:
        world.cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def intake(world, place):
    return Intake(world, place)


def status_for(intake, token):
    with pytest.raises(websocket.Refused) as caught:
        with intake.connect(token):
            pass
    return caught.value.status, caught.value.text


def test_foreign_tokens(intake, world):
    """401 for what is no token of ours, 403 for what may not speak, with a reason."""
    cases = [("none", None, 401), ("garbage", "abc.def.ghi", 401),
             ("another audience", intake.token(audience="https://kubernetes.default.svc"), 401),
             ("bound to no pod", intake.token(pod=None), 403),
             ("of a pod that is not injected", intake.token(pod="bystander"), 403)]
    for name, token, expected in cases:
        status, text = status_for(intake, token)
        assert status == expected, f"{name}: {status} {text}"
        assert len(text) > 10, f"{name}: a reason is given"


def test_speaking_for_another_session(intake):
    """A good token speaks for its own pod's session and for no other."""
    with intake.connect(intake.token()) as socket:
        assert socket.expect("welcome")["session"] == intake.session
        socket.send(json.dumps(intake.batch(session=str(uuid.uuid4()))))
        refused = socket.expect("refused")
        assert (refused["seq"], refused["code"], refused["field"]) == (0, "denied", "session")


def fine(**changes):
    """A batch's fine values with a change of how they were sampled."""
    sampling = {"chip": "GH100", "period": 25000, "times": 2, "failed": 0, "sampled": 1000000, "samples": 40, "lag": -1400000,
                "lagError": 30, "samplerCpu": 1000000, **changes.pop("sampling", {})}
    return {"fine": {"gpu": "GPU-made-up", "sources": ["sm__cycles_active", "", "", ""], "layer": [1], "phase": [0],
                     "kernels": [9], "smActive": [500000], "smActiveError": [2000], "sampling": sampling, **changes}}


WRONG = [
    ("lengths that differ", {"intervals": {"layer": [1, 1], "phase": [0], "step": [1, 0], "start": [1, 2],
                                           "duration": [1, 2]}}, "intervals.phase"),
    ("a text for a number", {"seq": "zero"}, "seq"),
    ("a phase that is none", {"intervals": {"layer": [1], "phase": [99], "step": [1], "start": [1], "duration": [2]}},
     "intervals.phase[0]"),
    ("a layer that is not listed", {"layers": []}, "intervals.layer[0]"),
    ("no process", {"process": None}, "process"),
    ("too many GPUs", {"process": {"id": 0, "rank": 0, "worldSize": 1, "gpus": [f"GPU-{i}" for i in range(17)],
                                   "hostname": "one", "clock": "host"}}, "process.gpus"),
    ("a capture that ends before it begins", {"stretch": {"id": 1, "start": 2000, "end": 1000, "last": True}}, "stretch"),
    ("a replay that nobody asked for", {
        "stretch": {"id": 1, "start": 1_800_000_000_000_000_000, "end": 1_800_000_001_000_000_000, "last": True,
                    "dwell": 1},
        "steps": {"number": [], "start": [], "duration": [], "epoch": [], "batch": []},
        "intervals": {"layer": [], "phase": [], "step": [], "start": [], "duration": []}}, "stretch.dwell"),
    ("a period of samples that cannot be", fine(sampling={"period": 0}), "fine.sampling.period"),
    ("a lag that is no number", fine(sampling={"lag": None}), "fine.sampling.lag"),
    ("more times that failed than there were", fine(sampling={"failed": 3}), "fine.sampling.failed"),
    ("a chip with a name of two lines", fine(sampling={"chip": "GH\n100"}), "fine.sampling.chip"),
    ("a closure of a metric that is none", fine(closure={"metric": [4], "held": [1], "difference": [0]}),
     "fine.closure.metric[0]"),
    ("a closure out of all proportion", fine(closure={"metric": [0], "held": [1], "difference": [-10 ** 9]}),
     "fine.closure.difference[0]"),
    ("a name that is too long", {"layers": [{"id": 1, "name": "x" * 600, "type": "Linear"}]}, "layers[0].name"),
]


@pytest.mark.parametrize("changes,field", [w[1:] for w in WRONG], ids=[w[0].replace(" ", "-") for w in WRONG])
def test_wrong_batches(intake, changes, field):
    """Refused with the field's name; the connection stays and takes a right one."""
    with intake.connect(intake.token()) as socket:
        socket.send(json.dumps(intake.batch(**changes)))
        refused = socket.expect("refused")
        assert refused["field"].startswith(field), refused
        assert refused["code"] in ("invalid", "too-large") and refused["message"]
        right = intake.batch()
        socket.send(json.dumps(right))
        assert socket.expect("ack") == {"type": "ack", "instance": right["instance"], "seq": 0}


def test_no_messages_of_ours(intake):
    """What is no JSON object or of no known type is refused; the third closes the connection."""
    with intake.connect(intake.token()) as socket:
        for text in ("{", "[1, 2]", '{"type": "nonsense"}'):
            socket.send(text)
            refused = socket.expect("refused")
            assert refused["seq"] == -1 and refused["message"], refused
        with pytest.raises(websocket.Closed) as closed:
            socket.expect("never")
        assert closed.value.code == CODES["policy"] and closed.value.reason


def test_oversized(intake):
    with intake.connect(intake.token()) as socket:
        with pytest.raises((websocket.Closed, ConnectionError, BrokenPipeError)) as closed:
            socket.send('{"type": "batch", "x": "' + "a" * (1 << 20) + '"}')
            socket.expect("never")
        assert getattr(closed.value, "code", None) == CODES["large"], closed.value


def test_stored_once(intake, world):
    """A batch that is sent again, on this or another connection, is acknowledged and changes nothing."""
    def counters():
        rows = world.database.rows(f"SELECT events, steps, batches FROM target WHERE session_uid = '{intake.session}'")
        return rows[0] if rows else {"events": 0, "steps": 0, "batches": 0}

    before = counters()
    batch = intake.batch()
    token = intake.token()
    for _ in range(2):
        with intake.connect(token) as socket:
            for _ in range(2):
                socket.send(json.dumps(batch))
                assert socket.expect("ack")["seq"] == 0
    after = counters()
    assert {name: after[name] - before[name] for name in after} == {"events": 2, "steps": 1, "batches": 1}
    assert world.database.value(f"SELECT count(*) FROM activity WHERE instance = '{batch['instance']}'") == 1


def test_garbage_on_the_port(intake, world):
    """Bytes that are no TLS, no HTTP, no WebSocket frame: the operator goes on serving."""
    for data in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n" * 200, b"\x16\x03\x01\xff\xff" + b"\xaa" * 600):
        with intake.address() as address, sockets.create_connection(address, timeout=5) as plain:
            try:
                plain.sendall(data)
            except OSError:
                pass
    with intake.connect(intake.token()) as socket:
        socket.expect("welcome")
        socket.socket.sendall(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
        with pytest.raises((websocket.Closed, OSError)):
            socket.expect("never")
    wait_until("the operator's answer", lambda: world.metrics(world.leader()), 10)
