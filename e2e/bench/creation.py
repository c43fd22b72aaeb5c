"""What the admission webhook adds to the creation of a pod, with 0, 1,000 and 10,000 sessions in its namespace.

Five kinds of pods take turns on the same connection: `off` (labelled inject=false, which the webhook is not asked
about), `none` (no session matches), `match` (one does, and the pod is patched), `whole` (labelled inject=false, and
written as the patched one becomes: what a pod of that size costs the API server without any webhook) and `peer` (which
another webhook is asked about, that allows everything: peer_webhook). A figure is the difference to `off` in the same
round; the median of --rounds rounds. Then as many as --parallel connections create at once: the rate beside that of
`off`. At last the operator's pod is deleted without a grace, and a pod created in the same moment.

Brings up e2e's cluster and installs the release there; nothing else may run on the machine.
"""
import argparse
import contextlib
import copy
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import lab
import stage
from harness.api import PODS, SESSIONS, Api, pod_object, session_object
from harness.cluster import CACHE, E2E
from harness.progress import run, start, stop, wait_until

OFF = {"precisionprobe.io/inject": "false"}
KINDS = {"off": {"app": "match", **OFF}, "none": {"app": "none"}, "match": {"app": "match"}, "whole": {"app": "match", **OFF},
         "peer": {"app": "peer", **OFF}}
NOT_OURS = ("whole", "peer")  # what is to be compared with
SPACE = "bench-creation"
PEER, PEER_PORT = "bench-peer", 9444


class Creator:
    """Creates pods of the kinds under names never used before."""

    def __init__(self, world):
        self.world = world
        self.count = 0
        self.lock = threading.Lock()
        self.patched = None

    def whole(self, api):
        """A patched pod, as somebody would have to write it."""
        if self.patched is None:
            pod = api.create(PODS.format(SPACE), pod_object("patched", KINDS["match"]))
            labels = {**pod["metadata"]["labels"], **OFF}
            annotations = {key: value for key, value in pod["metadata"]["annotations"].items()
                           if not key.startswith("precisionprobe.io/session")}
            pod["metadata"] = {"labels": labels, "annotations": {**annotations, "session": "match", "uid": "0" * 36}}
            del pod["status"]
            self.patched = pod
        return copy.deepcopy(self.patched)

    def create(self, api, kind):
        """Seconds that one creation took."""
        with self.lock:
            self.count += 1
            name = f"p{self.count}"
            body = self.whole(api) if kind == "whole" else pod_object(name, KINDS[kind])
        body["metadata"]["name"] = name
        began = time.perf_counter()
        pod = api.create(PODS.format(SPACE), body)
        took = time.perf_counter() - began
        patched = "precisionprobe.io/session" in pod["metadata"].get("annotations", {})
        if patched != (kind == "match"):
            raise RuntimeError(f"a pod of kind {kind} is {'' if patched else 'not '}patched")
        return took

    def clear(self):
        api = Api(self.world.cluster, timeout=600)
        api.call("DELETE", PODS.format(SPACE), {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        wait_until("the pods to be gone", lambda: not api.call("GET", PODS.format(SPACE) + "?limit=1")[1]["items"], 600)
        api.close()
        self.patched = None


@contextlib.contextmanager
def peer_webhook(cluster):
    """The webhook that is asked about pods of the kind `peer`."""
    program = os.path.join(CACHE, "bench", "peer_webhook")
    run(run(f"{E2E}/setup", "--go").split()[-1], "build", "-o", program, str(lab.HERE / "peer_webhook/main.go"), timeout=300)
    place = f"{cluster.environment['PP_HOST_IP']}:{PEER_PORT}"
    server = start(program, place, stdout=subprocess.PIPE, text=True)
    try:
        cluster.apply(json.dumps(peer_configuration(place, server.stdout.readline().strip())))
        yield
    finally:
        cluster.kubectl("delete", "mutatingwebhookconfiguration", PEER, "--ignore-not-found")
        stop(server)


def peer_configuration(place, ca):
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": PEER},
            "webhooks": [{
                "name": "peer.bench.precisionprobe.io", "clientConfig": {"url": f"https://{place}/", "caBundle": ca},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "objectSelector": {"matchLabels": {"app": "peer"}},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SPACE}},
                "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 2, "admissionReviewVersions": ["v1"]}]}


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def in_turns(creator, creations):
    """{kind: seconds of each creation}, one after another."""
    api = Api(creator.world.cluster)
    took = {kind: [] for kind in KINDS}
    for _ in range(creations):
        for kind in KINDS:
            took[kind].append(creator.create(api, kind))
    api.close()
    return took


def at_once(creator, kind, parallel, creations):
    """Creations per second of `parallel` connections together."""
    apis = [Api(creator.world.cluster) for _ in range(parallel)]
    for api in apis:
        creator.create(api, kind)  # opens the connection
    failed = []

    def work(api):
        try:
            for _ in range(creations // parallel):
                creator.create(api, kind)
        except (RuntimeError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(api,)) for api in apis]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for api in apis:
        api.close()
    if failed:
        raise failed[0]
    return creations // parallel * parallel / took


def add_sessions(world, have, wanted):
    """Sessions that wait for pods that never come."""
    api = Api(world.cluster)
    for n in range(have, wanted):
        api.create(SESSIONS.format(SPACE), session_object(f"waits-{n}", {"app": f"nobody-{n}"}, deadline="24h"))
    api.close()

    def seen():
        text = world.cluster.kubectl("-n", SPACE, "get", "psess", "--chunk-size=500", "-o", "jsonpath={.items[*].status.phase}",
                                     timeout=120)
        return len(text.split()) >= wanted

    wait_until(f"{wanted} sessions with a status", seen, 900)


def measure(world, args, sessions):
    creator = Creator(world)
    rounds = []
    for _ in range(args.rounds):
        took = in_turns(creator, args.creations)
        rounds.append({kind: (percentile(v, 0.5), percentile(v, 0.99)) for kind, v in took.items()})
        creator.clear()
    for index, name in ((0, "p50"), (1, "p99")):
        for kind in NOT_OURS:
            more = statistics.median(r[kind][index] - r["off"][index] for r in rounds) * 1e3
            lab.figure(f"creation {name} {kind}", more, "ms more", sessions=sessions, rounds=args.rounds)
        beyond = statistics.median(r["match"][index] - r["whole"][index] for r in rounds) * 1e3
        lab.figure(f"creation {name} match, beyond whole", beyond, "ms more", sessions=sessions, rounds=args.rounds)
    for kind in ("none", "match"):
        for index, name, limit in ((0, "p50", 3.0), (1, "p99", 15.0)):
            added = statistics.median(r[kind][index] - r["off"][index] for r in rounds) * 1e3
            off = statistics.median(r["off"][index] for r in rounds) * 1e3
            lab.figure(f"creation {name} {kind}", added, "ms more", limit=limit, off_ms=off, sessions=sessions,
                       rounds=args.rounds)
    ratios = {kind: [] for kind in KINDS if kind != "off"}
    for _ in range(args.rounds):
        rates = {kind: at_once(creator, kind, args.parallel, args.parallel * 8) for kind in KINDS}
        for kind, list_ in ratios.items():
            list_.append(rates[kind] / rates["off"])
        creator.clear()
    for kind, list_ in ratios.items():
        value = statistics.median(list_)
        must = {} if kind in NOT_OURS else {"holds": value >= 0.8, "must": 0.8}
        lab.figure(f"creation rate {kind}", value, "of off", parallel=args.parallel, sessions=sessions, **must)


def without_operator(world, rounds):
    """Seconds that the first creations take when the operator's pods are gone at once."""
    creator = Creator(world)
    worst = []
    for _ in range(rounds):
        api = Api(world.cluster)
        creator.create(api, "off")  # opens the connection
        world.cluster.kubectl("-n", stage.SYSTEM, "delete", "pods", "-l", "app.kubernetes.io/name=precisionprobe", "--force",
                              "--grace-period=0", "--wait=false")
        took = []
        for n in range(5):
            began = time.perf_counter()
            api.create(PODS.format(SPACE), pod_object(f"gone-{time.monotonic_ns()}-{n}", KINDS["none"]))
            took.append(time.perf_counter() - began)
        worst.append(max(took))
        api.close()
        world.wait_for_leader()
    lab.figure("creation without the operator", statistics.median(worst), "s", limit=2.1, worst=max(worst))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", default="0,1000,10000", help="how many wait in the namespace, one list")
    parser.add_argument("--creations", type=int, default=200, help="of each kind, one after another, in a round")
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    args = parser.parse_args()
    with stage.installed(args.keep) as world, stage.namespace(world, SPACE), peer_webhook(world.cluster):
        api = Api(world.cluster)
        api.create(SESSIONS.format(SPACE), session_object("match", {"app": "match"}, deadline="24h"))
        api.close()
        have = 0
        for sessions in map(int, args.sessions.split(",")):
            add_sessions(world, have, sessions)
            have = sessions
            measure(world, args, sessions)
        without_operator(world, args.rounds)
        print(json.dumps({"operator": world.metrics(world.leader())}), file=sys.stderr)
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
