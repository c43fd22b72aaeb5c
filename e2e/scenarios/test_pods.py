"""Trainings that run without the probe run with it, whatever pod they run in: same exit status, same output, same losses."""
import contextlib
import copy
import difflib
import json
import os
import pprint
import time
import urllib.parse

import pytest

from harness.api import Api
from harness.cluster import E2E
from harness.deploy import SERVICES
from harness.progress import LOGS, CommandError, run_shown, wait_until
from harness.session import LOSS, OUTSIDE
from harness.environment import AGENT, SANITIZER

import kinds
from kinds import PROBED, UNPROBED, Kind, resources, trainer

TWIN, WITH = "twin", "kind"  # labels whose value is the kind's name: of the pod without the probe, of the one with it
OURS = "precisionprobe-"
MARK = "/tmp/marked"
FINALIZER = "e2e.precisionprobe.io/look"
LAYERS, PHASES = 5, ("forward", "backward")
LIMIT = 900  # s, for a wave to come to its end; only what hangs takes so long
TABLE = os.path.join(LOGS, "kinds.txt")


def template(kind, side, images):
    """The pod's labels and spec."""
    labels = {side: kind.name, **({"precisionprobe.io/inject": "false"} if side == TWIN else {})}
    pod = {"metadata": {"labels": labels}, "spec": {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "trainer", "image": kind.image, "imagePullPolicy": "IfNotPresent",
                        "command": ["python3", "/training/small.py"], "args": [],
                        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                        "volumeMounts": [{"name": "training", "mountPath": "/training", "readOnly": True}]}],
        "volumes": [{"name": "training", "configMap": {"name": "training", "defaultMode": 0o555}}]}}
    for change in kind.changes:
        change(pod)
    if kind.stays or kind.act:
        tell(pod, "--stay" if kind.stays else "--mark")
    for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
        container["image"] = images[container["image"]]
    return pod


def tell(pod, word):
    """Ready is when the training says so."""
    container = pod["spec"]["containers"][0]
    container["args"] = container["args"] + [f"{word}={MARK}"] + ["--steps=100000"] * (word == "--mark")
    container["readinessProbe"] = {"exec": {"command": ["test", "-e", MARK]}, "periodSeconds": 1, "timeoutSeconds": 10}


def training_of(kind, side, namespace, images):
    """The object to create: the pod, or what makes it."""
    pod = template(kind, side, images)
    meta = {"name": kind.name + ("-twin" if side == TWIN else ""), "namespace": namespace}
    if kind.act or kind.log_goes:
        pod["metadata"]["finalizers"] = [FINALIZER]
    if kind.owner == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod["metadata"], **meta}, "spec": pod["spec"]}
    selector = {"matchLabels": {side: kind.name}}
    if kind.owner in ("Job", "CronJob"):
        job = {"backoffLimit": 0, **copy.deepcopy(kind.owner_spec), "template": pod}
        if kind.owner == "Job":
            return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job}
        return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta,
                "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job}}}
    pod["spec"]["restartPolicy"] = "Always"
    more = {"DaemonSet": {}, "StatefulSet": {"serviceName": kind.name, "replicas": kind.pods}}.get(
        kind.owner, {"replicas": kind.pods})
    if kind.owner == "ReplicationController":
        return {"apiVersion": "v1", "kind": kind.owner, "metadata": meta,
                "spec": {"selector": selector["matchLabels"], "template": pod, **more}}
    return {"apiVersion": "apps/v1", "kind": kind.owner, "metadata": meta,
            "spec": {"selector": selector, "template": pod, **more, **copy.deepcopy(kind.owner_spec)}}


def session_of(kind, namespace):
    return {"apiVersion": "precisionprobe.io/v1alpha1", "kind": "ProfileSession",
            "metadata": {"name": kind.name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": {WITH: kind.name}}, "duration": "10m", "deadline": "20m", **kind.session}}


def in_namespace(item, namespace):
    item = copy.deepcopy(item)
    item["metadata"]["namespace"] = namespace
    return item


class Wave:
    """Some kinds side by side, each with its twin."""

    def __init__(self, world, namespace, some, images):
        self.world, self.some, self.images = world, some, images
        self.cluster = world.cluster
        self.api = Api(world.cluster)
        self.spaces = {(kind.name, side): self.space_of(kind, side, namespace) for kind in some for side in (TWIN, WITH)}
        self.namespaces = sorted(set(self.spaces.values()))
        self.own = [name for name in self.namespaces if name != namespace]
        self.acted = set()
        self.kept, self.first = {}, {}  # logs: of pods that are ended by others, of containers that were started again

    @staticmethod
    def space_of(kind, side, namespace):
        return namespace if kind.space is None else f"{namespace[:30]}-{kind.name}-{side}"

    def apply(self, items):
        if items:
            self.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def prepare(self):
        """Namespaces with what the kinds want there, and sessions that the operator has seen."""
        labels = {self.spaces[kind.name, side]: kind.space for kind in self.some for side in (TWIN, WITH)}
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels[name]}}
                    for name in self.own])
        wait_until("service accounts", lambda: all(
            self.cluster.get("-n", name, "serviceaccount", "default") for name in self.namespaces), 60)
        training = self.cluster.get("-n", SERVICES, "configmap", "training")
        training["metadata"] = {"name": "training"}
        wanted = [in_namespace(training, name) for name in self.namespaces]
        for kind in self.some:
            for place in {self.spaces[kind.name, side] for side in (TWIN, WITH)}:
                wanted += [in_namespace(item, place) for item in kind.objects]
            wanted.append(session_of(kind, self.spaces[kind.name, WITH]))
        self.apply(wanted)
        wait_until("the sessions", lambda: all(item.get("status", {}).get("phase") for item in self.sessions().values()), 60)

    def fill(self, kind):
        """A pod that leaves the processors that one of this kind asks for, and no more."""
        node, = self.cluster.get("nodes")["items"]
        running = [pod for pod in self.cluster.get("pods", "-A")["items"] if not ended(pod)]
        left = millis(node["status"]["allocatable"]["cpu"]) - sum(map(asked, running))
        filler = Kind("filler", (resources(requests={"cpu": f"{left - asked(template(kind, TWIN, self.images))}m"}),
                                 trainer(command=["sleep", "3600"])))
        self.apply([training_of(filler, TWIN, self.namespaces[0], self.images)])
        self.world.running(self.namespaces[0], f"{TWIN}=filler")

    def sessions(self):
        found = {}
        for kind in self.some:
            path = f"/apis/precisionprobe.io/v1alpha1/namespaces/{self.spaces[kind.name, WITH]}/profilesessions/{kind.name}"
            found[kind.name] = self.api.call("GET", path)[1]
        return found

    def items(self, group, plural):
        for namespace in self.namespaces:
            yield from self.api.call("GET", f"/{group}/namespaces/{namespace}/{plural}")[1]["items"]

    def pods(self):
        """{(kind, side): its pods, in the order of their making}."""
        found = {}
        for pod in self.items("api/v1", "pods"):
            for side in (TWIN, WITH):
                if side in pod["metadata"]["labels"]:
                    found.setdefault((pod["metadata"]["labels"][side], side), []).append(pod)
        for pods in found.values():
            pods.sort(key=lambda pod: (index_of(pod), pod["metadata"]["creationTimestamp"]))
        return found

    def jobs(self):
        """{(kind, side): its Job}."""
        found = {}
        for job in self.items("apis/batch/v1", "jobs"):
            labels = job["spec"]["template"]["metadata"]["labels"]
            for side in (TWIN, WITH):
                if side in labels:
                    found.setdefault((labels[side], side), job)
        return found

    def is_over(self, kind, side, pods, jobs):
        mine, job = pods.get((kind.name, side), []), jobs.get((kind.name, side))
        if kind.act:
            return bool(mine) and all(p["metadata"].get("deletionTimestamp") and ended(p) for p in mine)
        if kind.stays:
            return len(mine) == kind.pods and all(ready(pod) for pod in mine)
        if kind.owner in ("Job", "CronJob"):
            over = bool(job) and any(c["type"] in ("Complete", "Failed") and c["status"] == "True"
                                     for c in job["status"].get("conditions", []))
            return over and (not kind.log_goes or all(ended(pod) for pod in mine))
        return len(mine) == kind.pods and all(ended(pod) for pod in mine)

    def act(self, kind, pod):
        """Once, when it trains; what it has printed by then is kept, since its log goes."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if name in self.acted or not ready(pod):
            return
        self.acted.add(name)
        self.kept[name] = self.log(pod, "trainer")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        if kind.act == "evict":
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
            status, answer = self.api.call("POST", f"{path}/eviction", body)
        else:
            status, answer = self.api.call("DELETE", path)
        assert status in (200, 201), answer

    def keep_log(self, pod):
        """As long as there is one."""
        if "running" in pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"]:
            name = pod["metadata"]["name"]
            self.kept[name] = self.log(pod, "trainer") or self.kept.get(name, "")

    def keep_first_logs(self, pod):
        """Of containers that were started again: kubelets keep no more than one that has ended."""
        for state in pod["status"].get("containerStatuses", []):
            key = pod["metadata"]["uid"], state["name"]
            if state["restartCount"] == 1 and not self.first.get(key):
                self.first[key] = self.log(pod, state["name"], previous=True)

    def once(self, kind, side):
        """A CronJob that has made a Job makes no second one."""
        name = kind.name + ("-twin" if side == TWIN else "")
        path = f"/apis/batch/v1/namespaces/{self.spaces[kind.name, side]}/cronjobs/{name}"
        if (kind.name, side) not in self.acted:
            self.acted.add((kind.name, side))
            assert self.api.call("PATCH", path, {"spec": {"suspend": True}})[0] == 200

    def run(self, sides):
        """Until all is over; {(kind, side): what came of it}."""
        self.apply([training_of(kind, side, self.spaces[kind.name, side], self.images)
                    for kind in self.some for side in sides])
        waiting = {(kind.name, side) for kind in self.some for side in sides}
        found, until = {}, time.monotonic() + LIMIT
        while waiting:
            pods, jobs = self.pods(), self.jobs()
            for pod in (pod for some in pods.values() for pod in some):
                self.keep_first_logs(pod)
            for kind in self.some:
                for side in sides:
                    for pod in pods.get((kind.name, side), []) if kind.act else []:
                        self.act(kind, pod)
                    for pod in pods.get((kind.name, side), []) if kind.log_goes else []:
                        self.keep_log(pod)
                    if kind.owner == "CronJob" and (kind.name, side) in jobs:
                        self.once(kind, side)
                    if (kind.name, side) in waiting and self.is_over(kind, side, pods, jobs):
                        waiting.discard((kind.name, side))
                        found[kind.name, side] = self.come_of(kind, side, pods, jobs)
            assert time.monotonic() < until, f"not over after {LIMIT} s: {sorted(waiting)}"
            time.sleep(0.5)
        return found

    # --- what came of it ---

    def log(self, pod, container, previous=False):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            return self.cluster.fetch(f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}"
                                      + "&previous=true" * previous) or ""
        except CommandError:
            return ""  # it never ran

    def come_of(self, kind, side, pods, jobs):
        mine, job = pods.get((kind.name, side), []), jobs.get((kind.name, side))
        return {"pods": [self.come_of_pod(pod) for pod in mine], "objects": mine,
                "job": job and [(c["type"], c.get("reason")) for c in job["status"].get("conditions", [])]}

    def come_of_pod(self, pod):
        status, name = pod["status"], pod["metadata"]["name"]
        states = {}
        for state in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            if state["name"].startswith(OURS):
                continue
            over = state["state"].get("terminated")
            states[state["name"]] = {
                "end": (over["exitCode"], over.get("reason")) if over else "waits" if "waiting" in state["state"] else "runs",
                "restarts": state["restartCount"],
                "log": [lines_of(self.kept.get(name) or self.log(pod, state["name"])),
                        lines_of(self.first.get((pod["metadata"]["uid"], state["name"]), ""))]}
        return {"phase": status["phase"], "reason": status.get("reason"), "qos": status.get("qosClass"), "containers": states}

    def rows(self):
        """{session: {pod: its (layer, phase)}} as the results have them; of these sessions, not of others by their names."""
        uids = ", ".join(f"'{item['metadata']['uid']}'" for item in self.sessions().values())
        found = {}
        for row in self.world.database.rows(
                f"SELECT DISTINCT session, pod_name, layer, phase FROM result_detail WHERE kind = 'layer' AND "
                f"phase IN ('forward', 'backward') AND session_uid IN ({uids})"):
            if row["layer"] not in OUTSIDE:
                found.setdefault(row["session"], {}).setdefault(row["pod_name"], set()).add((row["layer"], row["phase"]))
        return found

    def wait_for_rows(self, found):
        """What is missing: {kind: ...}."""
        missing = {}

        def look():
            rows = self.rows()
            missing.clear()
            for kind in self.some:
                if kind.outcome == PROBED:
                    names = [pod["metadata"]["name"] for pod in found[kind.name, WITH]["objects"]]
                    has = [rows.get(kind.name, {}).get(name, set()) for name in names or rows.get(kind.name, {})]
                    if not has or not all(is_whole(one) for one in has):
                        missing[kind.name] = f"rows of {[len(one) for one in has]} layers and phases"
            return not missing
        with contextlib.suppress(TimeoutError):
            wait_until("rows", look, 60, every=2)
        return missing

    def told(self, pod):
        """Reasons on the pod, in Events and in its annotation."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        note = pod["metadata"].get("annotations", {}).get("precisionprobe.io/not-injected", "")
        wanted = urllib.parse.quote(f"involvedObject.kind=Pod,involvedObject.name={name}")  # its session has the same name
        events = self.api.call("GET", f"/api/v1/namespaces/{namespace}/events?fieldSelector={wanted}")[1]["items"]
        return [event["reason"] for event in events] + [note]

    def sanitizers(self, found):
        """Agents under a sanitizer that spoke: {pod: ...}."""
        logs = {pod["metadata"]["name"]: self.log(pod, AGENT)
                for (_, side), one in found.items() if side == WITH for pod in one["objects"] if injected(pod)}
        return {name: text for name, text in logs.items() if SANITIZER.search(text)}

    def close(self):
        self.let_go()
        for name in self.own:
            self.cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)
        self.api.close()

    def let_go(self):
        for pod in self.items("api/v1", "pods"):
            if FINALIZER in pod["metadata"].get("finalizers", []):
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                self.api.call("PATCH", path, {"metadata": {"finalizers": None}})


def lines_of(log):
    """Sorted: the container runtime reads standard output and standard error in one order or another."""
    return sorted(log.splitlines())


def index_of(pod):
    return int(pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index", 0))


def millis(text):
    """Processors, in thousandths."""
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def asked(pod):
    """What a pod's containers request, those that run on all the time."""
    beside = [c for c in pod["spec"].get("initContainers", []) if c.get("restartPolicy")]
    return sum(millis(c.get("resources", {}).get("requests", {}).get("cpu", "0")) for c in pod["spec"]["containers"] + beside)


def ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def ended(pod):
    """A kubelet that evicts says so first, and how the containers ended later."""
    if pod["status"].get("reason") == "Evicted" and not all(
            "terminated" in state["state"] for state in pod["status"].get("containerStatuses", [{"state": {}}])):
        return False
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def injected(pod):
    return any(c["name"].startswith(OURS) for c in pod["spec"].get("initContainers", []) + pod["spec"]["containers"])


def is_whole(items):
    return len(items) == LAYERS * len(PHASES) and len({layer for layer, _ in items}) == LAYERS


# --- what is held against what ---

def steps_of(pod):
    return {int(step): loss for log in pod["containers"]["trainer"]["log"] for step, loss in LOSS.findall("\n".join(log))}


def differs(kind, twin, probed):
    """In what the two differ; "" in nothing."""
    if kind.is_cut:
        one, other = (steps_of(side["pods"][0]) for side in (twin, probed))
        common = one.keys() & other.keys()
        if len(common) < 10 or any(one[step] != other[step] for step in common):
            return f"losses of {len(common)} common steps"
        twin, probed = (without_logs(side) for side in (twin, probed))
    if twin["job"] != probed["job"]:
        return f"the Job's conditions {twin['job']} became {probed['job']}"
    if twin["pods"] != probed["pods"]:
        one, other = (pprint.pformat(side["pods"], width=160).splitlines() for side in (twin, probed))
        return "the pods:\n" + "\n".join(list(difflib.unified_diff(one, other, "twin", "probed", lineterm="", n=1))[:60])
    return ""


def without_logs(side):
    side = copy.deepcopy({"job": side["job"], "pods": side["pods"]})
    for pod in side["pods"]:
        for state in pod["containers"].values():
            state.pop("log")
    return side


def is_no_such(kind, twin):
    """The twin is what the kind says, so that what is compared with it is; "" or why not."""
    statuses = [pod["containers"]["trainer"]["end"] for pod in twin["pods"]]
    expected = kind.tries or (kind.exits,) * kind.pods
    if not kind.stays and tuple(status if isinstance(status, str) else status[0] for status in statuses) != expected:
        return f"the twin ended with {statuses}, not {expected}: {twin['pods'][0]['containers']['trainer']['log'][0][-20:]}"
    if kind.trains and not all(len(steps_of(pod)) >= 10 for pod in twin["pods"]):
        return "the twin did not train"
    return ""


def is_not_as_expected(wave, kind, probed, missing):
    """What the probe made of it is what the table says; "" or why not."""
    for pod in probed["objects"]:
        if kind.outcome in (PROBED, UNPROBED) and not injected(pod):
            return f"not injected: {wave.told(pod)}"
        if kind.outcome.startswith("left: "):
            reason = kind.outcome.removeprefix("left: ")
            if injected(pod):
                return "injected"
            with contextlib.suppress(TimeoutError):
                wait_until("the reason", lambda: any(reason in text for text in wave.told(pod)), 20)
            if not any(reason in text for text in wave.told(pod)):
                return f"{reason} is not told, but {wave.told(pod)}"
    if kind.outcome == PROBED:
        return missing.get(kind.name, "")
    return "it has rows" if wave.rows().get(kind.name) else ""


@pytest.fixture
def images(world):
    """{short name: image}."""
    names = [kind.image for kind in kinds.EVERY if kind.image != "torch"]
    archive = run_shown(f"{E2E}/images/own")
    found = {name: run_shown(f"{E2E}/images/own", "--image", name) for name in sorted(set(names))}
    world.cluster.load(archive, next(iter(found.values())))
    return {"torch": world.deployment.environment["TORCH_IMAGE"], **found}


def hold(world, namespace, images, some):
    wave = Wave(world, namespace, some, images)
    try:
        wave.prepare()
        if any(kind.fills for kind in some):
            wave.fill(some[0])
            found = {**wave.run((TWIN,)), **wave.run((WITH,))}
        else:
            found = wave.run((TWIN, WITH))
        missing = wave.wait_for_rows(found)
        wrong = {}
        for kind in some:
            twin, probed = found[kind.name, TWIN], found[kind.name, WITH]
            why = is_no_such(kind, twin) or differs(kind, twin, probed) or is_not_as_expected(wave, kind, probed, missing)
            if why:
                wrong[kind.name] = why
            write(f"{kind.name:<24} {kind.owner:<12} {kind.outcome:<24} {why or 'as expected'}")
        assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
        assert not wave.sanitizers(found)
    finally:
        wave.close()


def write(line):
    """A table of all kinds, for people."""
    with open(TABLE, "a", encoding="utf-8") as file:
        file.write(line.splitlines()[0][:300] + "\n")


@pytest.mark.parametrize("wave", [
    name if name == kinds.TEN else pytest.param(name, marks=pytest.mark.extended) for name in kinds.WAVES])
def test_runs_as_its_twin(trainings, namespace, images, wave):
    values, some = kinds.WAVES[wave]
    trainings.use(**values)
    hold(trainings, namespace, images, some)
