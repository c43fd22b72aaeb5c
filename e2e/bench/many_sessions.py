"""Many sessions at a time: --sessions of one pod each, whose agents (agents.py) play what real ones sent of trainings on a
GPU, beside --pods other pods; or, with --waiting, so many that wait for pods that never come.

Pods run on a node that does not exist, and their GPUs are exporter.py's: what they cost is the operator's, the API
server's, etcd's, Postgres' and Prometheus', which scrapes every 15 s. Printed: how long after its pod's start a session
is Collecting, how fast /healthz answers meanwhile, the operator's processor time and memory, status writes beside
changes of phase, batches acknowledged and waiting, and how much etcd has grown. With --replicas 2 the leader is killed
in the middle.

Brings up e2e's cluster and installs the release there; nothing else may run on the machine.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import lab
import stage
from harness.api import PODS, SESSIONS, Api, pod_object, session_object
from harness.progress import say, wait_until
from harness.environment import NAME, SERVICES, SYSTEM

HERE = pathlib.Path(__file__).resolve().parent
SPACE = "bench-many"
NODE = "bench-node"
CATCH_UP = 150  # s from the leader's end, until what agents kept meanwhile is stored
PYTHON = "/usr/bin/python3"  # Debian's, which has websockets


# ---- what is put on the cluster ----

def on_node(pod):
    """The pod as one that the scheduler has placed, on a node without a kubelet."""
    del pod["spec"]["schedulingGates"]
    pod["spec"].update(nodeName=NODE, tolerations=[{"operator": "Exists"}], terminationGracePeriodSeconds=0)
    return pod


def in_parallel(world, function, items, threads=8):
    """function(api, item) for each, over connections of their own; results in order."""
    local = threading.local()

    def work(item):
        if not hasattr(local, "api"):
            local.api = Api(world.cluster)
        return function(local.api, item)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


class Heart:
    """What a kubelet does for its node every 10 s: without it the node's pods would all be marked as not ready."""

    LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

    def __init__(self, world):
        self.api = Api(world.cluster)
        self.over = threading.Event()
        self.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        self.api.create(self.LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                                      "metadata": {"name": NODE}, "spec": self.spec()})
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.api.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "Bench", "message": "", "lastHeartbeatTime": now,
             "lastTransitionTime": now}]}})
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()

    @staticmethod
    def spec():
        return {"holderIdentity": NODE, "leaseDurationSeconds": 40,
                "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}

    def beat(self):
        while not self.over.wait(10):
            self.api.call("PATCH", f"{self.LEASES}/{NODE}", {"spec": self.spec()})

    def end(self):
        self.over.set()
        self.thread.join()
        self.api.call("DELETE", f"/api/v1/nodes/{NODE}")
        self.api.call("DELETE", f"{self.LEASES}/{NODE}")
        self.api.close()


def add_bystanders(world, count):
    in_parallel(world, lambda api, n: api.create(PODS.format(SPACE), on_node(pod_object(f"by-{n}", {"app": f"by-{n % 500}"}))),
                range(count))


def add_sessions(world, count, prefix):
    return in_parallel(world, lambda api, n: api.create(SESSIONS.format(SPACE), session_object(
        f"{prefix}-{n}", {"app": f"{prefix}-{n}"}, duration="30m", deadline="24h")), range(count))


def start_pod(api, name):
    """What a kubelet says when all containers run."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status, answer = api.call("PATCH", f"{PODS.format(SPACE)}/{name}/status", {"status": {
        "phase": "Running", "podIP": "10.0.0.1", "startTime": now,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "trainer", "ready": True, "restartCount": 0, "image": "none", "imageID": "none",
                               "state": {"running": {"startedAt": now}}}]}})
    if status != 200:
        raise RuntimeError(answer.get("message"))


def add_trainer(api, n):
    """A pod that is injected for its session, with a token as its agent has one."""
    name = f"train-{n}"
    pod = api.create(PODS.format(SPACE), on_node(pod_object(name, {"app": f"s-{n}"})))
    uid = pod["metadata"].get("annotations", {}).get("precisionprobe.io/session-uid")
    if not uid:
        raise RuntimeError(f"{name} is not injected")
    token = api.create(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "audiences": ["precisionprobe"], "expirationSeconds": 7200,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}}})
    return {"pod": name, "session": uid, "token": token["status"]["token"],
            "ca": pod["metadata"]["annotations"]["precisionprobe.io/ca"]}


# ---- what is watched ----

def inside(pid, *command):
    """A command, in the network that a process has."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *command]


def kube_proxy():
    """The pid of the cluster's kube-proxy, which has nothing to do here."""
    run = os.environ.get("PP_RUN", "/run/precisionprobe-e2e")
    with open(f"{run}/pids/kube-proxy", encoding="ascii") as file:
        return int(file.read().split()[0])


class Operator:
    """One operator process: its network, its processor time, its memory."""

    def __init__(self, world, name):
        self.name = name
        pod = next(p for p in world.operator_pods() if p["metadata"]["name"] == name)
        self.address = pod["status"]["podIP"]
        self.pid = world.process_of(pod)

    def inside(self, *command):
        return inside(self.pid, *command)

    def seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mebibytes(self, what="VmRSS"):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith(what))


@contextlib.contextmanager
def health(pid, port):
    """A list that fills with the ms that a process' /healthz takes."""
    child = subprocess.Popen(inside(pid, PYTHON, str(HERE / "poll.py"), "127.0.0.1", str(port), "/healthz", "50"),
                             stdout=subprocess.PIPE, text=True)
    values = []
    reader = threading.Thread(target=lambda: values.extend(float(line) for line in child.stdout))
    reader.start()
    try:
        yield values
    finally:
        child.terminate()
        child.wait()
        reader.join()


def api_counts(world):
    """Status writes to sessions so far, and etcd's size in MiB, as the API server counts them."""
    text = world.cluster.raw("/metrics")
    writes = sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                 if line.startswith("apiserver_request_total{") and 'resource="profilesessions"' in line
                 and 'subresource="status"' in line and 'verb="PATCH"' in line)
    size = next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                 if line.startswith("apiserver_storage_size_bytes{")), 0.0)
    return writes, size / 2**20


def statuses(world):
    """{name: (phase, start of its Collecting condition)} of all sessions."""
    text = world.cluster.kubectl("-n", SPACE, "get", "psess", "--chunk-size=500", "-o",
                                 "jsonpath={range .items[*]}{.metadata.name} {.status.phase}{'\\n'}{end}", timeout=120)
    return dict((line.split() + [""])[:2] for line in text.splitlines())


@contextlib.contextmanager
def gpus(world, operator, count):
    """exporter.py beside the operator, as another address of the exporter that Prometheus scrapes."""
    child = subprocess.Popen(operator.inside(PYTHON, str(HERE / "exporter.py"), "9400", str(count)))
    world.cluster.apply(json.dumps({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": SPACE, "namespace": SERVICES, "labels": {"kubernetes.io/service-name": "vgpu"}},
        "endpoints": [{"addresses": [operator.address], "conditions": {"ready": True}}],
        "ports": [{"name": "metrics", "port": 9400, "protocol": "TCP"}]}))
    try:
        wait_until("samples of the GPUs", lambda: f"GPU-bench-{count - 1}" in world.cluster.raw(
            f"/api/v1/namespaces/{SERVICES}/services/prometheus:http/proxy/api/v1/query?query=DCGM_FI_PROF_SM_ACTIVE"), 120)
        yield
    finally:
        child.terminate()
        child.wait()


class Phases:
    """When each session was first Collecting, as a watch tells: many would not be read in time one by one."""

    def __init__(self, world):
        self.collecting = {}
        version = json.loads(world.cluster.raw(SESSIONS.format(SPACE) + "?limit=1"))["metadata"]["resourceVersion"]
        self.child = subprocess.Popen(
            ["kubectl", "get", "--raw", f"{SESSIONS.format(SPACE)}?watch=true&resourceVersion={version}"],
            env={**os.environ, **world.cluster.environment}, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.child.stdout:
            session = json.loads(line)["object"]
            if session.get("status", {}).get("phase") == "Collecting":
                self.collecting.setdefault(session["metadata"]["name"], time.time())

    def end(self):
        self.child.terminate()
        self.child.wait()
        self.thread.join()


class Agents:
    """agents.py on the node, where each agent has an address of its own, with what it has told last."""

    FROM = "10.200"

    def __init__(self, operator, agents):
        node = kube_proxy()
        subprocess.run(inside(node, "ip", "route", "replace", "local", f"{self.FROM}.0.0/16", "dev", "lo"), check=True)
        self.child = subprocess.Popen(inside(node, PYTHON, str(HERE / "agents.py")), text=True, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)
        self.last = {}
        self.lock = threading.Lock()
        self.count = len(agents)
        self.write({"ca": agents[0]["ca"], "server": f"{NAME}.{SYSTEM}.svc", "from": self.FROM, "agents": agents})
        self.move(operator.address)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def write(self, value):
        self.child.stdin.write(json.dumps(value) + "\n")
        self.child.stdin.flush()

    def read(self):
        for line in self.child.stdout:
            self.last = json.loads(line)

    def start(self, n):
        with self.lock:
            self.write({"start": n})

    def move(self, address):
        self.write({"address": [address, 9443]})

    def end(self):
        self.child.stdin.close()
        self.child.wait()


# ---- the measurements ----

def p99(values):
    return sorted(values)[int(0.99 * len(values))] if values else None


def p50(values):
    return sorted(values)[len(values) // 2] if values else None


def collecting(phases, started):
    """Seconds from each pod's start until its session was Collecting, of those that were within two minutes."""
    until = max(started.values()) + 120
    while time.time() < until and not started.keys() <= phases.collecting.keys():
        time.sleep(0.1)
    return {name: phases.collecting[name] - began for name, began in started.items() if name in phases.collecting}


def start_pods(world, agents, rate):
    """{session: when its pod's containers ran}; so many a second, each with its agent."""
    started = {}
    began = time.time()

    def begin(api, n):
        time.sleep(max(0.0, began + n / rate - time.time()))
        start_pod(api, f"train-{n}")
        started[f"s-{n}"] = time.time()
        agents.start(n)

    in_parallel(world, begin, range(agents.count), threads=2)
    return started


def run_agents(world, args):
    add_sessions(world, args.sessions, "s")
    trainers = in_parallel(world, add_trainer, range(args.sessions))
    for n, trainer in enumerate(trainers):
        trainer["plays"] = "slow" if n < args.slow * args.sessions else "gpt"
    operator = Operator(world, world.leader())
    with gpus(world, operator, args.sessions), health(operator.pid, 8080) as answers, \
            health(kube_proxy(), 10256) as peers:
        say(f"{args.sessions} sessions and pods beside {args.pods} pods; operator at {operator.mebibytes():.0f} MiB")
        writes, size = api_counts(world)
        phases, agents = Phases(world), Agents(operator, trainers)
        began = time.monotonic()
        started = start_pods(world, agents, args.rate)
        took = collecting(phases, started)
        phases.end()
        since, written, used = time.monotonic(), api_counts(world)[0], operator.seconds()
        if args.replicas > 1:
            time.sleep(args.seconds / 2)
            operator, used = kill_leader(world, operator, agents, used)
        time.sleep(args.seconds / (2 if args.replicas > 1 else 1))
        now = time.monotonic()
        share = (operator.seconds() - used) / (now - since)
        writes_after, size_after = api_counts(world)
        last = dict(agents.last)
    agents.end()
    slow = [seconds for seconds in took.values() if seconds > 10]
    lab.figure("sessions collecting", len(took), "sessions", holds=len(took) == args.sessions, must=args.sessions)
    lab.figure("slowest to collect", max(took.values(), default=None), "s", limit=10, late=len(slow))
    lab.figure("/healthz p99", p99(answers), "ms", limit=50, worst=max(answers, default=None),
               unanswered=sum(1 for a in answers if a < 0), asked=len(answers), median=p50(answers))
    lab.figure("kube-proxy's /healthz p99", p99(peers), "ms", peer="an idle process of the same machine",
               worst=max(peers, default=None), median=p50(peers))
    lab.figure("operator's processor time", share, "cores", limit=0.5)
    lab.figure("operator's memory", operator.mebibytes(), "MiB", limit=150, most=operator.mebibytes("VmHWM"))
    lab.figure("status writes a session in 30 s", (writes_after - written) / args.sessions / ((now - since) / 30),
               limit=1, in_all=writes_after - writes, seconds=now - since)
    lab.figure("etcd's growth", size_after - size, "MiB", seconds=now - began)
    lab.figure("batches", last.get("acknowledged"), "acknowledged", holds=not last.get("refused") and not last.get("lost"),
               **{key: last.get(key) for key in ("sent", "bytes", "waiting", "refused", "lost", "connected", "reconnects",
                                                 "reasons")})


def kill_leader(world, operator, agents, used):
    """The next leader, and what its processor time is to be counted from: less than none, by the seconds since `used` that
    the one before took. So what the agents keep while nobody leads counts where it is worked off."""
    took = operator.seconds() - used
    os.kill(operator.pid, 9)
    began = time.monotonic()
    name = world.wait_for_leader()  # the other replica, or the same pod's next process
    lab.figure("another process leads", time.monotonic() - began, "s")
    after = Operator(world, name)
    agents.move(after.address)
    wait_until("all agents at the new leader", lambda: agents.last.get("connected") == agents.count, 120)
    lab.figure("all agents are back", time.monotonic() - began, "s")
    caught, since = after.seconds(), time.monotonic()
    while time.monotonic() < began + CATCH_UP and agents.last.get("waiting", agents.count) >= agents.count:
        time.sleep(0.5)
    lab.figure("what they kept is stored", time.monotonic() - began, "s", limit=CATCH_UP,
               cores=(after.seconds() - caught) / max(time.monotonic() - since, 0.5))
    return after, -took


def run_waiting(world, args):
    operator = Operator(world, world.leader())
    empty = operator.mebibytes()
    _, size = api_counts(world)
    add_sessions(world, args.waiting, "waits")
    wait_until(f"a status of {args.waiting} sessions",
               lambda: sum(bool(phase) for phase in statuses(world).values()) >= args.waiting, 1800)
    time.sleep(args.seconds)
    with health(operator.pid, 8080) as answers:
        before, used, written = time.monotonic(), operator.seconds(), api_counts(world)[0]
        time.sleep(args.seconds)
        share = (operator.seconds() - used) / (time.monotonic() - before)
        after, size_after = api_counts(world)
    lab.figure("memory with sessions that wait", operator.mebibytes(), "MiB", limit=512, empty=empty, sessions=args.waiting,
               most=operator.mebibytes("VmHWM"))
    lab.figure("processor time with sessions that wait", share, "cores")
    lab.figure("status writes of sessions that wait", (after - written) / args.waiting, "a session", seconds=args.seconds)
    lab.figure("/healthz p99 with sessions that wait", p99(answers), "ms", limit=50)
    lab.figure("etcd's growth", size_after - size, "MiB", sessions=args.waiting)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--waiting", type=int, default=0, help="sessions that wait, instead of those that collect")
    parser.add_argument("--slow", type=float, default=0.2, help="share of the trainings of slow layers")
    parser.add_argument("--rate", type=float, default=10, help="pods that start in a second")
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 2))
    parser.add_argument("--seconds", type=float, default=60, help="that figures are taken over")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    args = parser.parse_args()
    with stage.installed(args.keep, interval="15s", replicaCount=args.replicas,
                         resources__requests__cpu="500m") as world, stage.namespace(world, SPACE):
        stage.weigh_pods()
        heart = Heart(world)
        try:
            add_bystanders(world, args.pods)
            if args.waiting:
                run_waiting(world, args)
            else:
                run_agents(world, args)
        finally:
            heart.end()
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
