"""The agent's HTTP interface for foreign hooks, held against its own description."""
import http.client
import itertools
import json
import pathlib
import socket
import time

import pytest
import yaml
from conftest import undelta, until
from test_agent import connect, options, server, stored  # noqa: F401 (server is a fixture)

PAGE = pathlib.Path(__file__).parents[2] / "docs/openapi/events.yaml"
API = yaml.safe_load(PAGE.read_text())
EVENT = API["components"]["schemas"]["Event"]
MS = 1000000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body; asks that of any answer that the description has it."""
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        text = response.read()
        known = API["paths"].get(path, {}).get(method.lower())
        if known:
            assert str(response.status) in known["responses"], (method, path, response.status)
        if response.headers["Content-Type"] == "application/json":
            text = json.loads(text)
            schema = API["components"]["schemas"]["Accepted" if response.status == 202 else "Error"]
            types = {"string": str, "integer": int, "boolean": bool}
            assert {k: type(v) for k, v in text.items()} == {k: types[v["type"]] for k, v in schema["properties"].items()}
        return response.status, response.headers, text

    def post(self, body):
        return self.ask("POST", "/v1/events", body if isinstance(body, (bytes, str)) else json.dumps(body))


def event(**changes):
    now = time.time_ns()
    return {"gpu_uuid": "GPU-a", "epoch": 0, "batch": 0, "layer": "top.0", "phase": "forward", "start": now - 20 * MS,
            "end": now - 10 * MS, **changes}


def steps(first, count, start, gpu="GPU-a"):
    """Steps of 10 ms, each of a forward and a backward of 4 ms."""
    return [event(batch=n, gpu_uuid=gpu, phase=phase, start=start + 10 * MS * n + at * MS,
                  end=start + 10 * MS * n + (at + 4) * MS)
            for n in range(first, first + count) for phase, at in (("forward", 0), ("backward", 4))]


def taking(probe, *more, **changes):
    port = free_port()
    probe.configure(events={"port": port}, **changes)
    probe.start("--dump", *more)
    until(lambda: "events are taken on port %d" % port in probe.log.read_text(), "the events' server")
    return Client(port)


def test_events_are_taken_on_loopback_alone(probe):
    """On its one address: the pod's own would be reached from other pods."""
    client = taking(probe)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", client.connection.port), timeout=20)
    probe.finish()


def test_events_become_steps_of_each_gpu(probe):
    client = taking(probe)
    start = time.time_ns() - 5000 * MS
    for gpu in ("GPU-a", "GPU-b"):
        posts = steps(0, 20, start, gpu)
        assert client.post(posts)[2] == {"accepted": 40, "sampling": True}
        assert client.post(posts[-1])[2] == {"accepted": 1, "sampling": True}  # once more
    probe.finish()
    batches = probe.batches()
    for gpu in ("GPU-a", "GPU-b"):
        mine = [b for b in batches if b["process"]["gpus"] == [gpu]]
        assert {b["process"]["clock"] for b in mine} == {"foreign"} and mine[-1]["stretch"]["last"]
        assert [n for b in mine for n in undelta(b["steps"]["batch"])] == list(range(20))
        pieces = [p for b in mine for p in zip(b["intervals"]["phase"], undelta(b["intervals"]["start"]),
                                               b["intervals"]["duration"])]
        assert pieces == [((e["phase"] == "backward") + 0, e["start"], 4 * MS) for e in steps(0, 20, start, gpu)]
        assert sum(b["dropped"] for b in mine) == 0


def test_exactly_once_at_an_operator_that_cuts_connections(probe, server):  # noqa: F811
    server.kill_every = 2
    port = free_port()
    connect(probe, server, events={"port": port})
    until(lambda: "events are taken" in probe.log.read_text(), "the events' server")
    client = Client(port)
    start = time.time_ns() - 5000 * MS
    for first in range(0, 200, 20):
        assert client.post(steps(first, 20, start))[0] == 202
        until(lambda: len(server.stored) > first // 80, "a batch")  # so that there are several
    server.kill_every = 0
    probe.finish()
    assert server.connections > 1 and not server.changed
    assert sum(stored(server).values()) == 400


def test_the_session_does_not_want_them(probe, server):  # noqa: F811
    server.sampling = False
    port = free_port()
    connect(probe, server, events={"port": port})
    client = Client(port)
    until(lambda: "sampling is not wanted" in probe.log.read_text(), "the welcome")
    assert client.post(steps(0, 5, time.time_ns() - 100 * MS))[2] == {"accepted": 10, "sampling": False}
    probe.finish()
    assert stored(server) == {}


def session(uid, name):
    return {"version": 1, "session": {"uid": uid, "namespace": "ml", "name": name}, "phases": [],
            "steps": {"skip": 0, "max": 0}, "overheadBudgetPercent": 100, "stretch": {"seconds": 1}}


def test_sessions_that_come_and_go(probe, server):  # noqa: F811
    """A pod that was injected without a session: each that comes gets the events of its own time."""
    server.welcome, server.sampling = {"session": ""}, False
    port = free_port()
    probe.settings.write_text(json.dumps({"version": 1, "endpoint": "wss://localhost:%d/v1/ingest" % server.port,
                                          "events": {"port": port}}))
    probe.start(*options(probe))
    until(lambda: "events are taken" in probe.log.read_text(), "the events' server")
    client = Client(port)
    start = time.time_ns() - 50000 * MS
    assert client.post(steps(0, 5, start))[2]["sampling"] is False
    assert client.post(event(job="one"))[0] == 409
    for n, name in enumerate(("one", "two"), 1):
        server.say(True, session="uid-" + name, settings=session("uid-" + name, name))
        until(lambda: client.post(event(job=name, gpu_uuid="GPU-" + name, phase="data", layer=""))[2].get("sampling"),
              "session " + name)
        assert client.post(steps(100 * n, 10, start))[2] == {"accepted": 20, "sampling": True}
        assert client.post(steps(100 * n + 10, 1, start))[0] == 202  # the tenth step has ended
        until(lambda: any(b["session"] == "uid-" + name and b["process"]["gpus"] == ["GPU-a"]
                          for b in server.batches), "a batch of it")
    probe.finish()
    got = {name: [n for b in server.batches if b["session"] == "uid-" + name and b["process"]["gpus"] == ["GPU-a"]
                  for n in undelta(b["steps"]["batch"])] for name in ("one", "two")}
    assert got == {"one": list(range(100, 110)), "two": list(range(200, 211))}


def test_a_port_that_is_taken(probe):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        probe.configure(events={"port": taken.getsockname()[1]})
        probe.start("--dump")
        until(lambda: "no events are taken: cannot listen on port" in probe.log.read_text(), "the warning")
        probe.finish()


def test_nothing_listens_unless_asked(probe):
    probe.configure()
    probe.start("--dump")
    probe.finish()
    assert "events" not in probe.log.read_text()


def test_the_description_is_served(probe):
    client = taking(probe)
    status, headers, text = client.ask("GET", "/openapi.yaml")
    assert (status, headers["Content-Type"], text) == (200, "application/yaml", PAGE.read_bytes())
    for path, method in itertools.product(["/", "/v1/events", "/openapi.yaml", "/v1/other"], ["get", "post"]):
        described = method in API["paths"].get(path, {})
        status, headers, _ = client.ask(method.upper(), path, "{}" if method == "post" else None)
        assert (status in (404, 405)) != described, (method, path, status)
        assert status != 405 or headers["Allow"] == list(API["paths"][path])[0].upper()
    assert client.ask("DELETE", "/v1/events")[0] == 405


def test_fields_are_those_of_the_description(probe):
    client = taking(probe)
    good = event(job="ml/dlrm", pod=socket.gethostname())
    assert set(good) == set(EVENT["properties"]) and client.post(good)[0] == 202
    for name, schema in EVENT["properties"].items():
        wrong = {} if schema.get("type") != "integer" else "1"
        status, _, told = client.post([{**good, name: wrong}])
        assert (status, told["field"]) == (422, "[0]." + name), told
        without = {k: v for k, v in good.items() if k != name}
        if name in ("layer", "phase"):
            without = {"layer": {**without, "phase": "other"}, "phase": without}[name]
        status, _, told = client.post(without)
        assert (status, told.get("field", "")) == ((422, name) if name in EVENT["required"] else (202, "")), told
        for limit in ("minimum", "maximum"):
            if limit in schema:
                assert client.post({**good, name: schema[limit]})[0] == 202
                past = schema[limit] + (1 if limit == "maximum" else -1)
                assert client.post({**good, name: past})[2]["field"] == name
        if "maxLength" in schema:
            assert client.post({**good, name: "x" * (schema["maxLength"] + 1)})[2]["field"] == name
    assert client.post({**good, "speed": 1})[2]["field"] == "speed"  # additionalProperties: false
    for phase in EVENT["properties"]["phase"]["enum"]:
        layer = {"layer": "a"} if phase in ("forward", "backward", "recompute", "inference") else {"layer": ""}
        assert client.post({**good, **layer, "phase": phase})[0] == 202, phase
    for name in ("job", "pod"):
        status, _, told = client.post([good, {**good, name: "another"}])
        assert (status, told["field"]) == (409, "[1]." + name)


def test_a_step_without_an_end_fills_the_buffer(probe):
    client = taking(probe)
    start = time.time_ns() - 5000 * MS
    for n in range(100):
        body = [event(start=start + (n * 5000 + i) * 1000, end=start + (n * 5000 + i) * 1000 + 500) for i in range(5000)]
        status, headers, told = client.post(body)
        if status != 202:
            break
    assert (status, headers["Retry-After"], told["field"], n) == (429, "1", "batch", 40)
    assert client.post(event(batch=1, start=start + 10**9, end=start + 10**9 + 1))[0] == 202
    assert client.post(body)[0] == 202  # late: dropped and counted, and so it ends for the poster


@pytest.mark.parametrize("head, status", [
    (b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n", 411),
    (b"\r\n", 411),
    (b"Content-Length: -5\r\n\r\n", 400),
    (b"Content-Length: 7x\r\n\r\n", 400),
    (b"Content-Length: 0\r\n\r\n", 400),
    (b"Content-Length: 1048577\r\n\r\n", 413),
    (b"Content-Length: 99999999999999\r\n\r\n", 400),
])
def test_bodies_that_cannot_be_taken(probe, head, status):
    client = taking(probe)
    with socket.create_connection((client.connection.host, client.connection.port), 20) as s:
        s.sendall(b"POST /v1/events HTTP/1.1\r\nHost: x\r\n" + head)
        answer = b""
        while not answer.endswith(b'"}'):
            answer += s.recv(4096) or pytest.fail("the connection ended: %r" % answer)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert client.post([])[0] == 202  # others are served


def test_the_largest_body(probe):
    client = taking(probe)
    body = json.dumps([event()])
    assert client.post(body + " " * ((1 << 20) - len(body)))[2] == {"accepted": 1, "sampling": True}
    assert client.post(b"nonsense")[0] == 400 and client.post(b"\xff\xfe")[0] == 400
    assert client.post([])[2]["accepted"] == 0  # on the same connection


def test_more_connections_than_are_served(probe):
    client = taking(probe)
    port = client.connection.port
    assert client.post([])[0] == 202
    crowd = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(100)]
    until(lambda: sum(map(has_ended, crowd)) >= 68, "the end of those that are too many")
    assert client.post([])[0] == 202  # the one that is there is served meanwhile
    for s in crowd:
        s.close()
    until(lambda: answers(port), "a place for a new one")


def has_ended(connection):
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def answers(port):
    try:
        return Client(port).post([])[0] == 202
    except (ConnectionError, http.client.HTTPException):
        return False
