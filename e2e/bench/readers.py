"""Do readers of results cost agents and reviews anything? Do they wait themselves?

An operator alone (harness/alone.py: its program, a Postgres, a small API server), without a cluster. All the time --agents agents
send what was recorded on a GPU, each a batch a second, and --reviews admission reviews a second come; --readers readers, each with
a token and a connection of its own, ask --rate times a second in all. First all of them come at once, and read all of their pages for
the first time; then they read and rest in turns of --seconds. Figures are p99 of a batch's acknowledgement and of a review, with
readers and without, from the same run; of what readers wait for; and, by one who asks for nothing else, of a layer table of 1,200
rows with six metrics each, that somebody has asked for before or nobody has, beside those agents and reviews and at last without
them. Then the same beside readers that read a byte a second, and beside queries that hang in the database.

    PP_OPERATOR=build/release/operator/precisionprobe-operator /usr/bin/python3 e2e/bench/readers.py
"""
import argparse
import asyncio
import base64
import json
import os
import pathlib
import random
import ssl
import statistics
import subprocess
import sys
import time

import lab

sys.path.insert(0, str(lab.HERE.parent))
from agents import RECORDINGS, Recording, clock  # noqa: E402
from harness.alone import HOST, Kubernetes, Operator, postgres, psql  # noqa: E402
from harness.api import pod_object, session_object  # noqa: E402

DATA = lab.HERE.parents[1] / "operator/tests/served/data.sql"
SPACE = "training"
TABLE = "/api/v1/namespaces/large/sessions/dlrm/layers?limit=5000"
PAGE = "/api/v1/namespaces/large/sessions/dlrm/layers"  # of 500 rows
# What readers ask for, and how often of 100: a page of a dashboard that is open, again and again, and now and then another.
ASKED = [(40, "again", "/api/v1/namespaces/large/sessions/dlrm/layers"), (20, "session", "/api/v1/namespaces/a/sessions/dlrm"),
         (15, "list", "/api/v1/namespaces/a/sessions"), (10, "layers", "/api/v1/namespaces/a/sessions/dlrm/layers"),
         (5, "ranks", "/api/v1/namespaces/a/sessions/dlrm/ranks"), (4, "kernels", "/api/v1/namespaces/b/sessions/dlrm/kernels"),
         (4, "patterns", "/api/v1/namespaces/a/patterns"), (2, "table", "/api/v1/namespaces/large/sessions/dlrm/layers?limit=400")]
MORE, POINTS = 1.1, 5.0  # times, or ms, that a p99 may be longer with readers


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


# ---- one connection, in a process that has many ----

class Http:
    """HTTP/1.1 over TLS that stays open; opened anew where it was closed."""

    def __init__(self, place):
        self.place, self.reader, self.writer = place, None, None

    async def request(self, method, path, headers=(), body=b""):
        """(status, headers, bytes)."""
        for attempt in (0, 1):
            fresh = self.writer is None
            try:
                if fresh:
                    self.reader, self.writer = await asyncio.open_connection(
                        "127.0.0.1", self.place["port"], ssl=self.place["context"], server_hostname=HOST, limit=1 << 20)
                lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", *headers, *([f"Content-Length: {len(body)}"] if body else [])]
                self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                return await self.answer()
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                if fresh or attempt:
                    raise
        raise AssertionError

    async def answer(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in head[1:] if line)}
        body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection") == "close":
            self.close()
        return int(head[0].split()[1]), fields, body

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None


async def commands(place):
    """Lines of the standard input, until it ends."""
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    while line := (await stream.readline()).decode().strip():
        place["now"] = line


def tell(kind, began, status="200"):
    print(f"{kind} {began:.6f} {time.perf_counter() - began:.6f} {status}", flush=True)


# ---- agents and reviews ----

async def agent(place, one, recording):
    import websockets  # pylint: disable=import-outside-toplevel  # of Debian's Python
    sent, sampling = {}, asyncio.Event()
    headers = {"Authorization": f"Bearer {one['token']}"}

    async def listen(socket):
        async for text in socket:
            message = json.loads(text)
            if message["type"] == "ack" and message["seq"] in sent:
                tell("ingest", sent.pop(message["seq"]))
            elif message["type"] == "refused":
                tell("ingest", sent.pop(message["seq"], time.perf_counter()), message["message"].replace(" ", "-"))
            elif message["type"] == "time":
                await socket.send(clock(message["id"]))
            elif message["type"] == "welcome":
                if message.get("time"):
                    await socket.send(clock(message["time"]))
                if message.get("hook"):
                    await socket.send('{"type":"hook","loaded":true,"torch":true,"libc":"glibc"}')
                if message.get("sampling"):
                    sampling.set()

    while True:
        try:
            socket = await websockets.connect(
                f"wss://{HOST}:{place['port']}/v1/ingest", host="127.0.0.1", port=place["port"], ssl=place["context"],
                server_hostname=HOST, subprotocols=["precisionprobe.v1"], compression=None, ping_interval=None,
                extra_headers=headers)
            break
        except websockets.InvalidStatusCode:
            await asyncio.sleep(0.1)
    listening = asyncio.create_task(listen(socket))
    await sampling.wait()
    await asyncio.sleep(random.random())
    seq, step, of = 0, 0, {**one, "instance": f"agent-{one['pod']}", "capture": 0}
    while not listening.done():
        began = time.time_ns()
        for batch in recording.batches:
            await asyncio.sleep(max(0.0, (began + batch.due - time.time_ns()) / 1e9))
            text = batch.render({**of, "seq": seq}, began, step)
            sent[seq] = time.perf_counter()
            seq += 1
            await socket.send(text)
        step += sum(batch.steps for batch in recording.batches)
        of["capture"] += 1


def review_of(pod):
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": f"review-{random.random()}", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": SPACE, "operation": "CREATE", "dryRun": True,
        "object": pod}}).encode()


async def reviewer(place, rate):
    connection, pod = Http(place), pod_object("new", {"app": "train"})
    while True:
        await asyncio.sleep(random.expovariate(rate))
        began = time.perf_counter()
        status, _, _ = await connection.request("POST", place["review_path"], ["Content-Type: application/json"], review_of(pod))
        tell("review", began, status)


async def steady(place):
    recording = Recording(RECORDINGS["slow"])
    tasks = [agent(place, one, recording) for one in place["agents"]] + [reviewer(place, place["reviews"] / 4) for _ in range(4)]
    await asyncio.gather(*tasks)


# ---- readers ----

async def reader(place, name, rate):
    connection, known = Http(place), {}
    token = f"Authorization: Bearer {name}"
    while True:
        await asyncio.sleep(random.expovariate(rate))
        if place["now"] != "on":
            continue
        _, kind, path = random.choices(ASKED, [weight for weight, _, _ in ASKED])[0]
        headers = [token, *([f"If-None-Match: {known[path]}"] if kind == "again" and path in known else [])]
        began = time.perf_counter()
        try:
            status, fields, _ = await connection.request("GET", path, headers)
        except (OSError, asyncio.IncompleteReadError) as error:
            status, fields = type(error).__name__, {}
        known[path] = fields.get("etag", known.get(path))
        tell(f"read-{kind}" if kind != "again" or status == 304 else "read-first", began, status)


async def table(place):
    """The large table by one who asks for nothing else: the same again, and in pages that nobody has asked for before."""
    connection, n = Http(place), 0
    while True:
        await asyncio.sleep(0.1)
        if place["now"] != "table":
            continue
        n += 1
        kind, limit = (("table", 5000), ("new-table", 5000 - n))[n % 2]
        path, rows, began, took = f"{PAGE}?limit={limit}", 0, time.perf_counter(), 0.0
        await connection.request("GET", f"{PAGE}?limit={500 - n % 2 * (n % 250)}", ["Authorization: Bearer table"])
        tell(kind.replace("table", "page"), began)
        while path:
            asked = time.perf_counter()
            status, _, body = await connection.request("GET", path, ["Authorization: Bearer table"])
            took += time.perf_counter() - asked
            if status != 200:
                break
            page = json.loads(body)  # in our own time
            rows += len(page["items"])
            path = page.get("continue") and f"{PAGE}?limit={limit}&continue={page['continue']}"
        print(f"{kind} {began:.6f} {took:.6f} {status if status != 200 or rows == 1200 else 'rows'}", flush=True)


async def slow(place, name):
    """Asks for a large answer, and reads a byte a second."""
    while True:
        while place["now"] != "slow":
            await asyncio.sleep(0.1)
        context, connection = place["context"], Http(place)
        connection.reader, connection.writer = await asyncio.open_connection("127.0.0.1", place["port"], ssl=context,
                                                                             server_hostname=HOST, limit=2)
        connection.writer.write(f"GET {TABLE} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {name}\r\n\r\n".encode())
        while place["now"] == "slow":
            await asyncio.sleep(1)
            if not await connection.reader.read(1):
                break
        connection.close()
        await asyncio.sleep(1)


async def hanging(place, name):
    """Asks for what hangs in the database."""
    connection = Http(place)
    while True:
        await asyncio.sleep(0.2)
        if place["now"] == "hang":
            began = time.perf_counter()
            try:
                status, _, _ = await connection.request("GET", "/api/v1/namespaces/b/patterns/job-one",
                                                        [f"Authorization: Bearer {name}"])
            except (OSError, asyncio.IncompleteReadError) as error:
                status = type(error).__name__
            tell("hang", began, status)


async def reading(place):
    tasks = [reader(place, f"reader-{n}", place["rate"] / place["readers"]) for n in range(place["readers"])]
    await asyncio.gather(table(place), *tasks)


async def hostile(place):
    await asyncio.gather(*(slow(place, f"slow-{n}") for n in range(16)), *(hanging(place, "hanging") for n in range(8)))


ROLES = {"steady": steady, "reading": reading, "hostile": hostile}


async def play(role):
    place = json.loads(sys.stdin.readline())
    place["context"] = ssl.create_default_context(cadata=place["ca"])
    place["now"] = "off"
    work = asyncio.create_task(ROLES[role](place))
    await asyncio.wait([work, asyncio.create_task(commands(place))], return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()


class Role:
    """A process that plays one of the roles; what it tells goes to a file."""

    def __init__(self, role, place, folder):
        self.path = pathlib.Path(folder) / role
        with open(self.path, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([sys.executable, __file__, "--role", role], stdin=subprocess.PIPE, stdout=out, text=True)
        self.say(json.dumps(place))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def told(self):
        """[(kind, when, seconds, status)]"""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [(kind, float(began), float(took), status) for kind, began, took, status in (line.split(" ") for line in lines)]

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


# ---- the training ----

def patched(pod, patch):
    """RFC 6902, of what the operator sends."""
    for step in patch:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at = pod
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), step["value"]) if step["op"] == "add" else at.__setitem__(int(last), step["value"])
        else:
            at[last] = step["value"]
    return pod


def add_training(kubernetes, operator, agents):
    """A session and its pods, injected by the operator's own reviews; what their agents know."""
    session = session_object("live", {"app": "train"}, duration="2h", deadline="24h")
    session["metadata"].update(namespace=SPACE, generation=1)
    kubernetes.add("precisionprobe.io", "profilesessions", session)
    time.sleep(1)
    found = []
    connection = operator.connection()
    for n in range(agents):
        pod = pod_object(f"train-{n}", {"app": "train"})
        pod["metadata"]["namespace"] = SPACE
        del pod["spec"]["schedulingGates"]
        connection.request("POST", operator.review_path, review_of(pod), {"Content-Type": "application/json"})
        response = json.loads(connection.getresponse().read())["response"]
        pod = patched(pod, json.loads(base64.b64decode(response["patch"])))
        pod["spec"]["nodeName"] = "node"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        pod["status"] = {"phase": "Running", "podIP": "10.0.0.1", "startTime": now, "conditions": [{"type": "Ready", "status": "True"}],
                         "containerStatuses": [{"name": "trainer", "ready": True, "restartCount": 0, "image": "none", "imageID": "none",
                                                "state": {"running": {"startedAt": now}}}]}
        kubernetes.add("", "pods", pod)
        kubernetes.agents[f"agent-{n}"] = {
            "username": f"system:serviceaccount:{SPACE}:default", "extra": {
                "authentication.kubernetes.io/pod-name": [pod["metadata"]["name"]],
                "authentication.kubernetes.io/pod-uid": [pod["metadata"]["uid"]]}}
        found.append({"pod": pod["metadata"]["name"], "token": f"agent-{n}", "gpu": f"GPU-bench-{n}",
                      "session": session["metadata"]["uid"]})
    connection.close()
    return found


# ---- figures ----

class Phases:
    """Which times were with what."""

    def __init__(self):
        self.spans = {}

    def during(self, name, seconds):
        began = time.perf_counter()
        time.sleep(seconds)
        self.spans.setdefault(name, []).append((began + 0.5, time.perf_counter()))

    def of(self, told, kind, *names):
        return [took * 1e3 for what, began, took, status in told if what == kind and status == "200"
                for name in names for start, end in self.spans.get(name, []) if start <= began < end]


def compare(phases, told, name, without, what):
    for kind in ("ingest", "review"):
        with_, base = (percentile(phases.of(told, kind, *spans), 0.99) for spans in (name, without))
        allowed = max(MORE * base, base + POINTS)
        lab.figure(f"{kind} p99 {what}", with_, "ms", limit=allowed, without_ms=base, p50=percentile(phases.of(told, kind, *name), 0.5),
                   without_p50=percentile(phases.of(told, kind, *without), 0.5), count=len(phases.of(told, kind, *name)))


def measure(args, operator, conninfo, place, folder):
    steady_, reading_, hostile_ = (Role(role, place, folder) for role in ROLES)
    phases = Phases()
    time.sleep(args.warm)
    reading_.say("on")
    phases.during("cold", 2 * args.seconds)
    for _ in range(args.rounds):
        for name in ("off", "on"):
            reading_.say(name)
            phases.during(name, args.seconds)
    reading_.say("off")
    time.sleep(1)
    reading_.say("table")
    phases.during("table", 4 * args.seconds)  # a p99 takes some hundred of them
    reading_.say("on")
    for name in ("slow", "hang"):
        lock = None
        if name == "hang":
            lock = subprocess.Popen(["psql", "-X", "-q", "-d", conninfo], stdin=subprocess.PIPE, text=True)
            lock.stdin.write("BEGIN; LOCK TABLE pattern_share IN ACCESS EXCLUSIVE MODE;\n")
            lock.stdin.flush()
        hostile_.say(name)
        phases.during(name, args.seconds)
        hostile_.say("off")
        if lock:
            lock.stdin.close()
            lock.wait()
        time.sleep(1)
    steady_.end()
    reading_.say("table")
    phases.during("alone", 4 * args.seconds)
    for role in (reading_, hostile_):
        role.end()
    return phases, steady_.told() + reading_.told() + hostile_.told()


def figures(args, phases, told):
    if args.keep:
        pathlib.Path(args.keep).write_text(json.dumps([phases.spans, told]), encoding="utf-8")
    compare(phases, told, ["on"], ["off"], f"with {args.readers} readers")
    for kind in ("ingest", "review"):
        lab.figure(f"{kind} p99 while {args.readers} readers come at once", percentile(phases.of(told, kind, "cold"), 0.99), "ms")
    reads = [(kind, status) for kind, began, _, status in told if kind.startswith("read") for start, end in phases.spans["on"]
             if start <= began < end]
    length = sum(end - start for start, end in phases.spans["on"])
    lab.figure("readers' requests", len(reads) / length, "1/s", must=0.9 * args.rate, holds=len(reads) / length >= 0.9 * args.rate)
    bad = [status for _, status in reads if status not in ("200", "304")]
    lab.figure("readers' requests that are not answered", 100 * len(bad) / max(1, len(reads)), "%", limit=1.0,
               statuses={status: bad.count(status) for status in sorted(set(bad))})
    for kind in sorted({kind for kind, _ in reads}):
        times = [took * 1e3 for what, began, took, status in told if what == kind and status in ("200", "304")
                 for start, end in phases.spans["on"] if start <= began < end]
        lab.figure(f"{kind} p99", percentile(times, 0.99), "ms", p50=percentile(times, 0.5), count=len(times))
    for kind, what in (("page", "the first 500 of a layer table of 1,200 rows"), ("table", "a layer table of 1,200 rows, in two pages"),
                       ("new-page", "the first 500 or fewer of a layer table that nobody asked for before"),
                       ("new-table", "a layer table of 1,200 rows that nobody asked for before, in two pages")):
        for span, beside in (("alone", ""), ("table", f" beside {args.agents} batches and {args.reviews:g} reviews a second")):
            times = phases.of(told, kind, span)
            lab.figure(f"{what}{beside}, p99", percentile(times, 0.99), "ms", limit=50.0, p50=statistics.median(times), count=len(times))
    for name, what in (("slow", "beside readers that read a byte a second"), ("hang", "beside queries that hang")):
        compare(phases, told, [name], ["off"], what)
        reads = [(took * 1e3, status) for kind, began, took, status in told if kind == "read-session" for start, end in phases.spans[name]
                 if start <= began < end]
        good = [took for took, status in reads if status == "200"]
        lab.figure(f"read-session p99 {what}", percentile(good, 0.99), "ms", limit=100.0)
        lab.figure(f"readers' requests that are not answered {what}", 100 * (1 - len(good) / max(1, len(reads))), "%", limit=1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--agents", type=int, default=40)
    parser.add_argument("--reviews", type=float, default=40.0, help="a second")
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=100.0, help="requests of all readers a second")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm", type=float, default=5.0)
    parser.add_argument("--keep", help="a file for all that was measured")
    args = parser.parse_args()
    if args.role:
        return asyncio.run(play(args.role))
    with postgres() as conninfo, Kubernetes() as kubernetes:
        kubernetes.tokens.update({name: {"username": name} for name in [
            "table", "hanging", *(f"reader-{n}" for n in range(args.readers)), *(f"slow-{n}" for n in range(16))]})
        with Operator(lab.needed("PP_OPERATOR"), kubernetes, conninfo) as operator:
            psql(conninfo, DATA.read_text(encoding="utf-8"))
            psql(conninfo, "ANALYZE")
            place = {"port": operator.port, "ca": operator.ca, "review_path": operator.review_path, "reviews": args.reviews,
                     "rate": args.rate, "readers": args.readers, "agents": add_training(kubernetes, operator, args.agents)}
            phases, told = measure(args, operator, conninfo, place, operator.folder.name)
            figures(args, phases, told)
            if os.environ.get("PP_LOG"):
                print(operator.text()[-3000:], file=sys.stderr)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
