"""Attacks the operator from pods (attacker.py) while a training is profiled, pods are created and agents come and go.

First without an attack, then each kind alone, then all at once, --seconds each; with --path-known once more by somebody
who knows the path of reviews, which the operator keeps to those who may read its webhook configuration. Printed for each:
the operator's memory beside half of its container's limit, how fast /healthz answers, how many honest reviews were
answered, and how long an honest agent takes to connect. At the end: batches of the session that were lost, and Events
that the attackers have caused.

Brings up e2e's cluster and installs the release there; nothing else should run on the machine.
"""
import argparse
import contextlib
import json
import pathlib
import re
import socket
import ssl
import sys
import threading
import time

import lab
import stage
from harness.api import PODS, SESSIONS, Api, pod_object, session_object
from harness.progress import say, wait_until
from harness.session import manifest
from harness.environment import NAME, SERVICES, SYSTEM
from many_sessions import Operator, health, p99

HERE = pathlib.Path(__file__).resolve().parent
SPACE = "bench-attack"
KINDS = ("hold", "idle", "drip", "forged", "tokens", "agent")
HALF = 512  # MiB: of the chart's limit
SENT = re.compile(r"batch sent instance=(\S+) seq=(\d+) events=(\d+)")

ATTACKER = """\
apiVersion: v1
kind: Pod
metadata: {{name: "{name}", namespace: {space}, labels: {{app: attacker}}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
    - name: attacker
      image: {image}
      imagePullPolicy: IfNotPresent
      command: [python3, /bench/attacker.py, {host}, "443", {kind}, "{seconds}", "{path}"]
      env: [{{name: TOKEN, value: "{token}"}}, {{name: SESSION, value: "{session}"}}]
      volumeMounts: [{{name: bench, mountPath: /bench, readOnly: true}}]
  volumes:
    - name: bench
      configMap: {{name: attacker}}
"""


# ---- who is honest ----

class Repeated:
    """Calls what a subclass does again and again in a thread of its own; results are (when, result)."""

    def __init__(self, pause):
        self.results = []
        self.over = threading.Event()
        self.pause = pause
        self.thread = threading.Thread(target=self.go, daemon=True)
        self.thread.start()

    def go(self):
        while not self.over.wait(self.pause):
            began = time.monotonic()
            self.results.append((began, self.once()))

    def since(self, when):
        return [result for at, result in list(self.results) if at >= when]

    def end(self):
        self.over.set()
        self.thread.join(60)


class Reviews(Repeated):
    """Pods created for a dry run: (whether the webhook has patched it, seconds)."""

    def __init__(self, world):
        self.api = Api(world.cluster)
        super().__init__(0.1)

    def once(self):
        began = time.monotonic()
        status, pod = self.api.call("POST", PODS.format(SPACE) + "?dryRun=All",
                                    pod_object(f"honest-{time.monotonic_ns()}", {"app": "match"}))
        took = time.monotonic() - began
        return status == 201 and "precisionprobe.io/session" in pod["metadata"].get("annotations", {}), took


def token_of(api, pod, seconds):
    """As the agent in this pod has one."""
    answer = api.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/serviceaccounts/default/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "audiences": ["precisionprobe"], "expirationSeconds": seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"],
                               "uid": pod["metadata"]["uid"]}}})
    return answer["status"]["token"]


class Newcomers(Repeated):
    """Agents that nobody has seen before, each with a token of its own: seconds until its WebSocket stands."""

    def __init__(self, world, pod, address):
        self.api = Api(world.cluster)
        self.pod, self.address = pod, address
        self.trust = ssl.create_default_context(cadata=pod["metadata"]["annotations"]["precisionprobe.io/ca"])
        super().__init__(1)

    def ask(self, token):
        """Status and Retry-After."""
        with socket.create_connection(self.address, timeout=10) as plain, \
                self.trust.wrap_socket(plain, server_hostname=f"{NAME}.{SYSTEM}.svc") as wire:
            wire.sendall(("GET /v1/ingest HTTP/1.1\r\nHost: operator\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                          "Sec-WebSocket-Protocol: precisionprobe.v1\r\n"
                          f"Authorization: Bearer {token}\r\n\r\n").encode())
            head = wire.recv(4096).decode(errors="replace")
        later = re.search(r"(?i)retry-after: (\d+)", head)
        return head[9:12], int(later[1]) if later else 1

    def once(self):
        token, began = token_of(self.api, self.pod, 600 + len(self.results)), time.monotonic()
        while time.monotonic() - began < 60 and not self.over.is_set():
            try:
                status, later = self.ask(token)
            except OSError:
                status, later = "", 1
            if status == "101":
                return time.monotonic() - began
            time.sleep(later)
        return 60.0


class Memory(Repeated):
    """The operator's resident MiB; None once it is gone."""

    def __init__(self, operator):
        self.operator = operator
        super().__init__(0.2)

    def once(self):
        try:
            return self.operator.mebibytes()
        except OSError:
            return None


# ---- attacks ----

def hostile_agent(world):
    """A good token and its session: of a pod that may speak, as every profiled one has."""
    api = Api(world.cluster)
    name = f"hostile-{time.monotonic_ns()}"
    pod = api.create(PODS.format(SPACE), pod_object(name, {"app": "match"}))
    token = token_of(api, pod, 3600)
    api.close()
    return token, pod["metadata"]["annotations"]["precisionprobe.io/session-uid"]


def attackers(world, kinds, seconds, path):
    """Starts a pod of each kind; returns their names once all of them have begun."""
    token, session = hostile_agent(world) if "agent" in kinds else ("", "")
    names = [f"{kind}-{time.monotonic_ns() // 1000000}" for kind in kinds]
    if not names:
        return names
    world.cluster.apply("---\n".join(ATTACKER.format(
        name=name, space=SPACE, image=world.deployment.environment["TORCH_IMAGE"], host=f"{NAME}.{SYSTEM}.svc", kind=kind,
        seconds=seconds, path=path, token=token, session=session) for name, kind in zip(names, kinds)))
    for name in names:
        wait_until(f"{name} to begin", lambda name=name: "ready" in world.cluster.kubectl(
            "-n", SPACE, "logs", name, check=False), 60)
    return names


def ended(world, names):
    """What each has got, once it has ended; they are deleted."""
    got = {}
    for name in names:
        wait_until(f"{name} to end", lambda name=name: world.cluster.kubectl(
            "-n", SPACE, "get", "pod", name, "-o", "jsonpath={.status.phase}") in ("Succeeded", "Failed"), 120)
        lines = world.cluster.kubectl("-n", SPACE, "logs", name).splitlines()
        got[name.rsplit("-", 1)[0]] = json.loads(lines[-1]) if lines[-1].startswith("{") else lines[-3:]
        world.cluster.kubectl("-n", SPACE, "delete", "pod", name, "--wait=false")
    return got


def phase(world, operator, honest, name, kinds, seconds, path="/mutate-pods"):
    reviews, newcomers, memory = honest
    say(f"{name}: {', '.join(kinds) or 'nobody attacks'}")
    began = time.monotonic()
    names = attackers(world, kinds, seconds, path)
    with health(operator) as answers:
        time.sleep(seconds)
    got = ended(world, names)
    patched = reviews.since(began)
    most = max((m for m in memory.since(began) if m), default=None)
    alive = None not in memory.since(began)
    lab.figure(f"memory, {name}", most, "MiB", limit=HALF, holds=alive and most <= HALF)
    unanswered = sum(1 for a in answers if a < 0)
    lab.figure(f"/healthz p99, {name}", p99(answers), "ms", limit=100, holds=not unanswered and p99(answers) <= 100,
               worst=max(answers, default=None), unanswered=unanswered, asked=len(answers))
    lab.figure(f"honest reviews answered, {name}", sum(ok for ok, _ in patched), f"of {len(patched)}",
               holds=bool(patched) and all(ok for ok, _ in patched), p99_ms=1e3 * p99([s for _, s in patched]))
    connected = newcomers.since(began)
    lab.figure(f"slowest honest agent to connect, {name}", max(connected, default=None), "s", limit=10,
               connected=len(connected), attackers_got=got)


# ---- the session beside them ----

@contextlib.contextmanager
def training(world, seconds):
    """A training that is profiled; the session, once it collects."""
    world.cluster.apply(manifest("attacked", duration=f"{seconds}s", deadline="30m") + "---\n"
                        + world.deployment.render("dlrm.yaml", TRAIN_STEPS="100000"))
    session = world.session("attacked")
    session.follow(240, until=("Collecting",))
    try:
        yield session
    finally:
        world.clear()


def lost(world, session):
    """Batches that an agent says it sent and the store lacks, and marks that were dropped."""
    sent = {(instance, int(seq)): int(events) for text in world.agent_logs().values()
            for instance, seq, events in SENT.findall(text)}
    uid = session.get()["metadata"]["uid"]
    held = {(r["instance"], r["seq"]): r["events"] for r in world.database.rows(
        f"SELECT instance, seq, events FROM activity WHERE session_uid = '{uid}'")}
    dropped = world.database.value(f"SELECT sum(dropped) FROM target WHERE session_uid = '{uid}'")
    missing = [key for key, events in sent.items() if held.get(key) != events]
    lab.figure("batches lost", len(missing), "batches", limit=0, holds=bool(sent) and not missing and not dropped,
               sent=len(sent), stored=len(held), marks_dropped=dropped)


def forged_events(world):
    items = world.cluster.get("events", "-A")["items"]
    forged = [item for item in items if "FORGED" in json.dumps(item) and item["involvedObject"].get("name", "").split("-")[0]
              not in KINDS]
    lab.figure("forged Events", len(forged), "Events", limit=0, first=forged[0]["message"] if forged else None)


def review_path(world):
    hooks = world.cluster.get("mutatingwebhookconfiguration", NAME)["webhooks"]
    return next(hook["clientConfig"]["service"]["path"] for hook in hooks if hook["name"].startswith("pods."))


def attack(world, args):
    operator = Operator(world, world.leader())
    world.cluster.kubectl("-n", SPACE, "create", "configmap", "attacker", f"--from-file={HERE / 'attacker.py'}")
    api = Api(world.cluster)
    api.create(SESSIONS.format(SPACE), session_object("match", {"app": "match"}, duration="2h", deadline="24h"))
    phases = [("no attack", ())] + [(kind, (kind,)) for kind in args.kinds] + [("all at once", args.kinds)] * (len(args.kinds) > 1)
    known = [(f"{kind}, path known", (kind,)) for kind in ("hold", "forged")] * args.path_known
    with training(world, int((len(phases) + len(known)) * (args.seconds + 20))) as session:
        pod = world.cluster.get("-n", SERVICES, "pods", "-l", "app=dlrm")["items"][0]
        honest = Reviews(world), Newcomers(world, pod, (operator.address, 9443)), Memory(operator)
        for name, kinds in phases:
            phase(world, operator, honest, name, kinds, args.seconds)
        for name, kinds in known:
            phase(world, operator, honest, name, kinds, args.seconds, review_path(world))
        for one in honest:
            one.end()
        ended_well = session.follow(900)["status"]["phase"] == "Succeeded"
        lab.figure("the session", int(ended_well), "succeeded", holds=ended_well)
        lost(world, session)
    forged_events(world)
    print(json.dumps({"operator": world.metrics(world.leader())}), file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="of each attack")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS, help="one list; default all")
    parser.add_argument("--path-known", action="store_true", help="attack the path of reviews, too")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    args = parser.parse_args()
    with stage.installed(args.keep, resources__limits__memory="1Gi") as world, stage.namespace(world, SPACE):
        attack(world, args)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
