"""What the scenarios stand on: one cluster, one set of services, one installed release, and means to look at them."""
import json
import os
import re
import subprocess
import threading
import urllib.parse

from .cluster import SHARED, Cluster
from .database import Database
from .deploy import NAME, RELEASE, SERVICES, SYSTEM, Deployment
from .progress import LOGS, CommandError, start, stop, wait_until
from .session import Session, pods_of

SANITIZER = re.compile(r"ERROR: (Address|Leak|Thread)Sanitizer|runtime error: |SUMMARY: \w+Sanitizer")
AGENT = "precisionprobe-agent"

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{{labels}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
    - name: {container}
      image: {image}
      imagePullPolicy: IfNotPresent
      command: [sleep, "3600"]
{more}"""


class OperatorLogs:
    """Follows the log of every operator pod, so that nothing is lost when a pod goes."""

    def __init__(self, cluster, folder):
        self.cluster = cluster
        self.folder = folder
        self.followed = {}
        self.over = threading.Event()
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.5):
            try:
                self.look()
            except (CommandError, OSError):
                pass  # the API server is asked again

    def look(self):
        for pod in pods_of(self.cluster, f"app.kubernetes.io/instance={RELEASE}", SYSTEM):
            for state in pod["status"].get("containerStatuses", []):
                key = (pod["metadata"]["uid"], state["restartCount"])
                if self.follows(key) or not (state["state"].get("running") or state["state"].get("terminated")):
                    continue
                path = os.path.join(self.folder, f"{pod['metadata']['name']}-{state['restartCount']}.log")
                with open(path, "w", encoding="utf-8") as file:
                    self.followed[key] = start("kubectl", "-n", SYSTEM, "logs", "-f", pod["metadata"]["name"],
                                               env=self.cluster.environment, stdout=file, stderr=subprocess.STDOUT,
                                               stdin=subprocess.DEVNULL)

    def follows(self, key):
        """A log is read once, unless what read it broke off, as it does when the API server ends."""
        return key in self.followed and self.followed[key].poll() in (None, 0)

    def text(self):
        """All logs so far, by file name."""
        found = {}
        for name in sorted(os.listdir(self.folder)):
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                found[name] = file.read()
        return found

    def reports(self):
        """What a sanitizer has said: (file, lines around the first report)."""
        found = []
        for name, text in self.text().items():
            match = SANITIZER.search(text)
            if match:
                found.append((name, text[max(0, match.start() - 200):match.start() + 3000]))
        return found

    def close(self):
        self.over.set()
        self.thread.join(30)
        for child in self.followed.values():
            stop(child, patience=1)


class World:
    """The services with their intervals and the release with its values; changed only where a scenario needs it."""

    def __init__(self, preset):
        self.cluster = Cluster()
        self.preset = preset
        self.deployment = Deployment(self.cluster, preset=preset)
        self.database = Database(self.cluster)
        self.interval = None
        self.values = None

    def up(self):
        self.cluster.up()
        self.deployment.check_free()
        self.deployment.load_images()
        self.logs = OperatorLogs(self.cluster, os.path.join(LOGS, "operator"))

    def use(self, interval="250ms", **values):
        """Services that collect and scrape at this interval, and the release with these values (a.b given as a__b)."""
        if interval != self.interval:
            self.deployment.collect_interval = self.deployment.scrape_interval = interval
            self.deployment.environment.update(COLLECT_INTERVAL=interval, SCRAPE_INTERVAL=interval)
            self.deployment.start_services(gpus=not SHARED)
            if not SHARED:
                wait_until("an exporter that Prometheus scrapes", self.scraped, 90)
        wanted = dict(BASE, **{key.replace("__", "."): value for key, value in values.items()})
        if interval != self.interval or wanted != self.values:
            flags = [word for key, value in wanted.items() for word in ("--set", f"{key}={value}")]
            self.values = None
            self.deployment.install(*flags)
            self.values = wanted
        self.interval = interval
        self.wait_for_leader()

    def scraped(self):
        answer = self.cluster.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{SERVICES}/services/prometheus:http/proxy/api/v1/query?query=up", check=False)
        return '"value":' in answer and ',"1"]' in answer

    # --- the operator ---

    def operator_pods(self):
        found = pods_of(self.cluster, f"app.kubernetes.io/instance={RELEASE}", SYSTEM)
        return [p for p in found if not p["metadata"].get("deletionTimestamp")]

    def restarts(self):
        """{pod uid: restarts of its container}."""
        return {p["metadata"]["uid"]: sum(c["restartCount"] for c in p["status"].get("containerStatuses", []))
                for p in self.operator_pods()}

    def lease(self):
        return self.cluster.get("-n", SYSTEM, "lease", NAME)

    def metrics(self, pod):
        """The plain metrics of one operator pod: {name with labels: value}; None while it does not answer."""
        try:
            text = self.cluster.fetch(f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:8080/proxy/metrics")
        except CommandError:
            return None
        values = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) ([0-9.eE+-]+)$", text or "", re.M))
        return {name: float(value) for name, value in values.items()} or None

    def leads(self, pod):
        return (self.metrics(pod) or {}).get("precisionprobe_leader") == 1

    def leaders(self):
        """The operator pods that say of themselves that they lead."""
        return [name for name in (p["metadata"]["name"] for p in self.operator_pods()) if self.leads(name)]

    def leader(self):
        leaders = self.leaders()
        return leaders[0] if leaders else None

    def wait_for_leader(self, timeout=60):
        return wait_until("an operator that leads", self.leader, timeout)

    def process_of(self, pod, program="precisionprobe-"):
        """The pid on this machine of the operator or agent (or `program`, by 15 characters) in this pod, by its cgroup."""
        uid = pod["metadata"]["uid"]
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/comm", encoding="utf-8") as file:
                    ours = file.read().strip() == program
                with open(f"/proc/{entry}/cgroup", encoding="utf-8") as file:
                    inside = uid in file.read().replace("_", "-")
            except OSError:
                continue
            if ours and inside:
                return int(entry)
        return None

    # --- what runs on it ---

    def session(self, name, namespace=SERVICES):
        return Session(self.cluster, name, namespace)

    def pod(self, namespace, name, labels="app: idle", container="trainer", more=""):
        """A pod that trains nothing."""
        return POD.format(name=name, namespace=namespace, labels=labels, container=container, more=more,
                          image=self.deployment.environment["TORCH_IMAGE"])

    def running(self, namespace, selector, count=1, timeout=120):
        """Waits until `count` pods run; returns them."""
        def look():
            pods = [p for p in pods_of(self.cluster, selector, namespace) if p["status"].get("phase") == "Running"]
            return pods if len(pods) >= count else None
        return wait_until(f"{count} pods that run ({selector})", look, timeout)

    def events(self, namespace, name):
        """Reason and message of each Event on an object of this name."""
        found = self.cluster.get("-n", namespace, "events", "--field-selector", f"involvedObject.name={name}")
        return [(item["reason"], item["message"]) for item in (found or {"items": []})["items"]]

    def agent_logs(self, namespace=SERVICES):
        """{pod: log of its agent} of all injected pods."""
        return {p["metadata"]["name"]: self.cluster.kubectl("-n", namespace, "logs", p["metadata"]["name"], "-c", AGENT,
                                                            check=False)
                for p in pods_of(self.cluster, "precisionprobe.io/injected", namespace)}

    def clear(self, namespace=SERVICES):
        """Trainings and sessions of a namespace go; what their agents' sanitizers said is returned."""
        reports = [(pod, text) for pod, text in self.agent_logs(namespace).items() if SANITIZER.search(text)]
        self.cluster.kubectl("-n", namespace, "delete", "profilesessions,jobs,consumptionpatterns", "--all", "--timeout=60s", check=False)
        self.cluster.kubectl("-n", namespace, "delete", "pods", "-l", "app in (dlrm,dlrm-twin,idle,idle-too)", "--timeout=60s",
                             check=False)
        wait_until("the trainings' pods to go",
                   lambda: not pods_of(self.cluster, "app in (dlrm,dlrm-twin,idle,idle-too)", namespace), 60)
        return reports

    def forward(self, namespace, target, port):
        """As the cluster's."""
        return self.cluster.forward(namespace, target, port)

    def diagnose(self, folder):
        """What somebody who looks for the reason of a failure wants to see."""
        os.makedirs(folder, exist_ok=True)
        for name, command in (("objects", ("get", "pods,jobs,psess,leases,events", "-A", "-o", "wide")),
                              ("sessions", ("get", "psess", "-A", "-o", "yaml")),
                              ("pods", ("describe", "pods", "-n", SERVICES))):
            with open(os.path.join(folder, f"{name}.txt"), "w", encoding="utf-8") as file:
                file.write(self.cluster.kubectl(*command, check=False))
        for name, path in (("truth.json", "vgpu:truth/proxy/truth"), ("samples.json", SAMPLES)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(self.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{SERVICES}/services/{path}",
                                                check=False))
        for table in ("session", "target", "process", "layer", "activity", "attribution", "fit", "metric_sample",
                      "kernel", "host_wait", "gpu_copy"):
            with open(os.path.join(folder, f"{table}.json"), "w", encoding="utf-8") as file:
                json.dump(self.database.rows(f"SELECT * FROM {table}"), file)
        for pod, text in self.agent_logs().items():
            with open(os.path.join(folder, f"agent-{pod}.log"), "w", encoding="utf-8") as file:
                file.write(text)
        for pod, text in self.logs.text().items():
            with open(os.path.join(folder, f"operator-{pod}"), "w", encoding="utf-8") as file:
                file.write(text[-200000:])


# The GPUs' counters as Prometheus has them, of the last ten minutes, and how its scrapes went.
SAMPLES = "prometheus:http/proxy/api/v1/query?query=" + urllib.parse.quote(
    '{__name__=~"DCGM_.*|up|scrape_duration_seconds"}[10m]')
# Sanitizers need more memory and processor time than what is shipped does.
BASE = {"resources.limits.memory": "2Gi", "resources.requests.cpu": "200m",
        "config.injection.memory": "512Mi", "config.sampling.memory": "1Gi"}
if SHARED:
    BASE.update({"crds.install": "false", "config.kubernetes.namespace": SERVICES})

__all__ = ["World", "AGENT", "SANITIZER", "SERVICES", "SYSTEM", "RELEASE", "NAME", "SHARED"]
