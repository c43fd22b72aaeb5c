"""`kubectl precisionprobe` on a cluster: starts a session, says how it is, reads results, and names what is broken."""
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess

import pytest

from harness.deploy import compile_in, configure_preset
from harness.environment import AGENT, NAME, SERVICES, SYSTEM
from harness.progress import wait_until
from harness.session import manifest, pods_of

from test_api import ROWS
from test_clocks import library, two_pods  # pylint: disable=unused-import
from test_troubles import NOWHERE, apply, bare, injection_image, owned, template, training, use_prometheus

extended = pytest.mark.extended
kills = pytest.mark.kills

READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {account}, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {account}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}-view}}
subjects: [{{kind: ServiceAccount, name: {account}, namespace: {namespace}}}]
"""


@pytest.fixture(scope="session")
def plugin(everything, tmp_path_factory):
    """Calls kubectl with the plugin in PATH: (exit status, output, complaints)."""
    build = configure_preset(everything.deployment.preset)
    compile_in(build, "precisionprobe")
    folder = tmp_path_factory.mktemp("plugin")
    os.symlink(os.path.join(build, "cli", "precisionprobe"), folder / "kubectl-precisionprobe")
    environment = {**os.environ, **everything.cluster.environment, "PATH": f"{folder}:{os.environ['PATH']}"}

    def call(*words, timeout=120):
        told = subprocess.run(["kubectl", "precisionprobe", *words], capture_output=True, text=True, timeout=timeout, env=environment,
                              check=False)
        assert "Sanitizer" not in told.stderr, told.stderr
        return told.returncode, told.stdout, told.stderr
    call.environment = environment
    return call


def namespaced(namespace):
    return ("-n", namespace, "--system", SYSTEM)


def doctor(plugin, namespace, *words):
    """(exit status, {finding: (of, evidence, remedy)})."""
    status, text, complaint = plugin("doctor", *namespaced(namespace), *words)
    found = {what: rest for what, *rest in re.findall(r"^(\w+) \((.*)\)\n  (.*)\n  -> (.*)$", text, re.M)}
    assert (status == 1) == bool(found) and (found or "nothing is missing" in text), (status, text, complaint)
    assert all(evidence and remedy for _, evidence, remedy in found.values())
    return status, found


def finds(plugin, namespace, what, timeout=60, words=()):
    """Waits until doctor names it; what it says of it."""
    return wait_until(f"{what} by doctor", lambda: doctor(plugin, namespace, *words)[1].get(what), timeout)


def healthy(plugin, namespace, timeout=60):
    wait_until("nothing missing", lambda: doctor(plugin, namespace)[0] == 0, timeout)


# --- sessions ---

def test_start_and_status(world, namespace, plugin):
    """A Deployment is profiled: its running pods are told of, and made anew with the hook where that is asked for."""
    world.cluster.apply(json.dumps(owned("Deployment", namespace, "idle", template(world))))
    world.cluster.kubectl("-n", namespace, "rollout", "status", "deployment/idle", "--timeout=60s")
    status, name, note = plugin("start", *namespaced(namespace), "deployment/idle", "-d", "90s", "--budget", "2", "--deadline", "10m")
    name = name.strip()
    assert status == 0 and name.startswith("idle-") and "1 pod without the hook runs already" in note, (status, note)
    spec = world.cluster.get("-n", namespace, "psess", name)["spec"]
    assert (spec["selector"], spec["duration"], spec["deadline"], spec["overheadBudgetPercent"]) == (
        {"matchLabels": {"app": "idle"}}, "90s", "10m", 2)
    status, listed, _ = plugin("status", *namespaced(namespace))
    assert status == 0 and re.search(rf"^{name} +Pending ", listed, re.M)
    wait_until("a pod that is told of", lambda: "CreatedBefore" in plugin("status", *namespaced(namespace), name)[1], 60)
    assert finds(plugin, namespace, "CreatedBefore")[0] == f"session {name}"
    world.cluster.kubectl("-n", namespace, "delete", "psess", name)
    status, again, _ = plugin("start", *namespaced(namespace), "deployment", "idle", "--name", "second", "--restart")
    assert (status, again) == (0, "second\n") or again.startswith("second\n")
    wait_until("a pod with the hook", lambda: any(c["name"] == AGENT for pod in pods_of(world.cluster, "app=idle", namespace)
                                                  for c in pod["spec"].get("initContainers", [])), 60)


def test_start_of_what_is_not_there(namespace, plugin):
    status, _, why = plugin("start", *namespaced(namespace), "deployment/none")
    assert status == 1 and "not found" in why
    status, _, why = plugin("start", *namespaced(namespace))
    assert status == 1 and "what shall be profiled?" in why
    status, _, why = plugin("start", *namespaced(namespace), "-l", "app=x", "--method", "Magic")
    assert status == 1 and "Magic" in why


def test_start_waits_for_the_end(namespace, plugin):
    """A session without pods fails at its deadline: so says the exit status."""
    status, text, _ = plugin("start", *namespaced(namespace), "-l", "app=none", "-d", "1s", "--deadline", "3s", "--wait")
    assert status == 1 and "NoMatchingPods" in text and "Failed" in text


# --- results ---

@pytest.fixture
def results(world, namespace):
    """Two sessions of one name, and an account that may read them."""
    world.database.psql(ROWS.format(namespace=namespace))
    world.cluster.apply(READER.format(namespace=namespace, account="precisionprobe-reader", role=NAME))
    yield namespace
    world.database.psql(f"DELETE FROM session WHERE uid LIKE '{namespace}-_'")


def test_report(world, results, plugin):
    """Rows are those of SQL, in a table, as JSON and compared with themselves; another account reads nothing."""
    status, text, why = plugin("report", *namespaced(results), "api", "--format=json")
    assert status == 0, why
    items = json.loads(text)["items"]
    rows = world.database.value("SELECT json_agg(json_build_array(layer, total_ns, ms_per_step) ORDER BY layer) FROM (SELECT DISTINCT "
                                f"layer, total_ns, ms_per_step FROM result_detail WHERE session_uid = '{results}-1') rows")
    rows = json.loads(rows) if isinstance(rows, str) else rows
    assert [[item["layer"], item["total_ns"], item["ms_per_step"]] for item in items] == rows and len(rows) == 5
    assert {(item["namespace"], item["session"], item["workload_kind"], item["pod_name"]) for item in items} == {(results, "api", "Pod", "p")}
    status, table, _ = plugin("report", *namespaced(results), "api", "--sort=time")
    assert status == 0 and [line.split()[0] for line in table.splitlines() if " forward " in line] == ["l5", "l4", "l3", "l2", "l1"]
    status, compared, _ = plugin("report", *namespaced(results), "api", "--compare", "api", "--format=json")
    assert status == 0 and {item["difference"] for item in json.loads(compared)["items"] if item["kind"] == "layer"} == {0}
    status, shown, _ = plugin("top", *namespaced(results), "api", "--times=2", "--interval=0.2")
    assert status == 0 and shown.count("l5 ") == 2
    status, _, why = plugin("report", *namespaced(results), "nothing")
    assert status == 1 and "404" in why
    status, _, why = plugin("report", *namespaced(results), "api", "--account", "nobody")
    assert status == 1 and "create serviceaccount nobody" in why
    world.cluster.kubectl("-n", results, "create", "serviceaccount", "stranger")
    status, _, why = plugin("report", *namespaced(results), "api", "--account", "stranger")
    assert status == 1 and "404" in why and "may not read it" in why


def test_open_serves_the_page_and_nothing_else(results, plugin):
    """Its address is on loopback, and leads to the operator's API only."""
    words = ["kubectl", "precisionprobe", "open", *namespaced(results), "--no-browser", "api"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=plugin.environment,
                          start_new_session=True) as child:
        try:
            address = child.stdout.readline().strip()
            assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/api/v1/namespaces/{SYSTEM}/services/https:{NAME}:https/proxy/page/"
                                rf"#/session/{results}/api", address), address
            host, path = re.match(r"http://([^/]+)(/.*)/page/", address).groups()
            assert fetch(host, f"{path}/api/v1/openapi.yaml") == 200
            assert fetch(host, f"/api/v1/namespaces/{SYSTEM}/secrets") == 403
        finally:
            os.killpg(child.pid, signal.SIGTERM)


def fetch(host, path):
    told = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{host}{path}"], capture_output=True,
                          text=True, timeout=60, check=True)
    return int(told.stdout)


# --- what doctor finds ---

def test_nothing_is_missing(namespace, plugin):
    healthy(plugin, namespace)


def test_own_rights(namespace, plugin):
    _, found = doctor(plugin, namespace, "--as=somebody")
    assert found["YourRightsMissing"][1].startswith("kubectl auth can-i ")


def test_what_reading_results_lacks(world, namespace, plugin):
    """Warnings: nothing that a session needs is missing."""
    def warned(*words):
        return re.findall(r"^warning: (\w+) \((.*)\)$", plugin("doctor", *namespaced(namespace), "--account=absent", *words)[1], re.M)
    healthy(plugin, namespace)
    assert warned() == [("ReaderMissing", f"namespace {namespace}")]
    world.cluster.kubectl("-n", namespace, "create", "serviceaccount", "absent")
    try:
        assert warned() == []
        assert warned("--as=somebody") == [("YourRightsMissing", "get services/proxy"), ("YourRightsMissing", "create serviceaccounts/token")]
    finally:
        world.cluster.kubectl("-n", namespace, "delete", "serviceaccount", "absent")


def test_no_cluster(plugin, namespace, tmp_path):
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "none", "contexts": [
        {"name": "none", "context": {"cluster": "none", "user": "none"}}], "users": [{"name": "none", "user": {}}],
        "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}]}))
    _, found = doctor(plugin, namespace, f"--kubeconfig={nowhere}")
    assert list(found) == ["ClusterUnreachable"]


@contextlib.contextmanager
def without(world, *what):
    """Without an object, which comes back as it was."""
    kept = world.cluster.get(*what)
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        kept["metadata"].pop(key, None)
    kept.pop("status", None)
    world.cluster.kubectl("delete", *what, "--timeout=60s")
    try:
        yield
    finally:
        world.cluster.apply(json.dumps(kept))


def test_webhook_missing(world, namespace, plugin):
    with without(world, "mutatingwebhookconfiguration", NAME):
        finds(plugin, namespace, "WebhookMissing")
    healthy(plugin, namespace)


def test_crds(world, namespace, plugin):
    """One of an older release, and one that is not there."""
    crd = "consumptionpatterns.precisionprobe.io"
    version = world.cluster.get("crd", crd)["metadata"]["labels"]["app.kubernetes.io/version"]
    world.cluster.kubectl("label", "--overwrite", "crd", crd, "app.kubernetes.io/version=0.0.1")
    try:
        assert "0.0.1" in finds(plugin, namespace, "CRDOfAnotherVersion")[1]
    finally:
        world.cluster.kubectl("label", "--overwrite", "crd", crd, f"app.kubernetes.io/version={version}")
    healthy(plugin, namespace)


def test_service_without_endpoints(world, namespace, plugin):
    """Its selector is not the labels of the operator's pods."""
    selector = world.cluster.get("-n", SYSTEM, "service", NAME)["spec"]["selector"]

    def select(labels):
        world.cluster.kubectl("-n", SYSTEM, "patch", "service", NAME, "--type=json", "-p",
                              json.dumps([{"op": "replace", "path": "/spec/selector", "value": labels}]))
    select({"app": "nothing"})
    try:
        finds(plugin, namespace, "ServiceUnavailable")
    finally:
        select(selector)
    healthy(plugin, namespace)


def test_quota(world, namespace, plugin):
    """The API server refuses a Job's pods: no pod says it, the Job's Events do."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace},
             "spec": {"hard": {"pods": "0"}}}
    world.cluster.apply(json.dumps(quota))
    wait_until("the quota's status", lambda: world.cluster.get("-n", namespace, "resourcequota", "none").get("status", {}).get("used"), 30)
    world.cluster.apply(json.dumps(owned("Job", namespace, "batch", template(world, seconds=1, restart="Never"))))
    of, evidence, _ = finds(plugin, namespace, "QuotaExceeded")
    assert of == "batch" and "exceeded quota: none" in evidence


# What an exporter with most of its counters file commented out tells, as the exporter of a pod's own.
FEW = """
import http.server
class Few(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        for name in ("DEV_GPU_UTIL", "DEV_FB_USED", "PROF_SM_ACTIVE", "PROF_DRAM_ACTIVE"):
            self.wfile.write(('DCGM_FI_' + name + '{gpu="0",UUID="GPU-0"} 1' + chr(10)).encode())
http.server.HTTPServer(("", 9400), Few).serve_forever()
"""


def test_an_exporter_that_lacks_fields(world, namespace, plugin):
    """Before any session; the virtual GPUs' own, which stands for dcgm-exporter, has them all."""
    pod = template(world)
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": "dcgm-exporter"}
    pod["spec"]["containers"][0]["command"] = ["python3", "-c", FEW]
    apply(world, bare(namespace, "few", pod))
    _, evidence, remedy = finds(plugin, namespace, "ExporterLacksFields")
    assert evidence == ("pod few does not export DCGM_FI_PROF_SM_OCCUPANCY (SMOccupancy), DCGM_FI_PROF_PIPE_FP32_ACTIVE (FP32Active)")
    assert "counters file" in remedy
    world.cluster.kubectl("-n", namespace, "delete", "pod", "few", "--wait=true")
    healthy(plugin, namespace)


def test_a_nodes_clock(world, namespace, plugin):
    """Its kubelet's Lease is stamped in the future, until the kubelet renews it."""
    node = world.cluster.get("nodes")["items"][0]["metadata"]["name"]

    def found_ahead():
        future = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        world.cluster.kubectl("-n", "kube-node-lease", "patch", "lease", node, "--type=merge", "-p",
                              json.dumps({"spec": {"renewTime": future.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}))
        return doctor(plugin, namespace)[1].get("NodeClockSkewed")

    of, evidence, _ = wait_until("a node's clock by doctor", found_ahead, 60)
    assert of == f"node {node}" and re.search(r" is about (1h|59m5\ds) ahead of this machine's", evidence), evidence
    healthy(plugin, namespace)


@extended
def test_a_clock_that_a_session_takes_out(trainings, library, plugin):  # pylint: disable=redefined-outer-name
    """That of one pod's agent, three minutes ahead."""
    session, node = two_pods(trainings, 180)
    session.follow(240, until=("Collecting", "Finishing", "Succeeded"))
    of, evidence, remedy = finds(plugin, SERVICES, "OffsetTakenOut", timeout=90, words=("clocks",))
    assert of == "session clocks" and node in evidence and "skewed" in evidence and "ahead" in evidence and "set the clock" in remedy


@extended
def test_fields_that_prometheus_lacks(trainings, plugin):
    """It drops one of those that the exporter tells: only a session knows that."""
    world = trainings
    before = world.cluster.get("-n", SERVICES, "configmap", "prometheus")["data"]["prometheus.yml"]
    use_prometheus(world, before.replace(
        "    relabel_configs:", "    metric_relabel_configs: [{source_labels: [__name__], regex: DCGM_FI_PROF_PIPE_FP32_ACTIVE, action: drop}]\n"
                                "    relabel_configs:"))
    try:
        apply(world, manifest("lacking", duration="120s", deadline="10m"), training(world))
        of, evidence, remedy = finds(plugin, SERVICES, "MetricsMissing", timeout=180)
        assert of == "session lacking" and "FP32Active" in evidence and "SMActive" not in evidence and "counters file" in remedy
    finally:
        use_prometheus(world, before)


def test_a_pod_from_before(world, namespace, plugin):
    world.cluster.apply(json.dumps(bare(namespace, "early", template(world))))
    world.running(namespace, "app=idle")
    world.cluster.apply(manifest("late", labels="app: idle", namespace=namespace))
    of, evidence, remedy = finds(plugin, namespace, "CreatedBefore", words=("late",))
    assert of == "session late" and "early" in evidence and "anew" in remedy
    assert finds(plugin, namespace, "NoSuchSession", words=("other",))[0] == "other"


@kills
@pytest.mark.parametrize("service, finding", [("statefulset/postgres", "StoreUnavailable"), ("deployment/prometheus", "PrometheusUnavailable")])
def test_a_service_that_is_away(world, namespace, plugin, service, finding):
    """The leader says so in its metrics, before there is a session."""
    world.cluster.kubectl("-n", SERVICES, "scale", service, "--replicas=0")
    try:
        finds(plugin, namespace, finding, timeout=90)
    finally:
        world.cluster.kubectl("-n", SERVICES, "scale", service, "--replicas=1")
        world.cluster.kubectl("-n", SERVICES, "rollout", "status", service, "--timeout=120s")
    healthy(plugin, namespace, timeout=120)


@kills
def test_operator_away(world, namespace, plugin):
    world.cluster.kubectl("-n", SYSTEM, "scale", f"deployment/{NAME}", "--replicas=0")
    try:
        finds(plugin, namespace, "OperatorNotReady", timeout=60)
    finally:
        world.cluster.kubectl("-n", SYSTEM, "scale", f"deployment/{NAME}", "--replicas=1")
        world.cluster.kubectl("-n", SYSTEM, "rollout", "status", f"deployment/{NAME}", "--timeout=120s")
    healthy(plugin, namespace)


@extended
def test_crd_missing(world, namespace, plugin):
    """Patterns come back with it: the operator has them in Postgres."""
    with without(world, "crd", "consumptionpatterns.precisionprobe.io"):
        finds(plugin, namespace, "CRDMissing")
    healthy(plugin, namespace)


@extended
def test_rights_of_the_operator(world, namespace, plugin):
    bindings = [b["metadata"]["name"] for b in world.cluster.get("clusterrolebindings")["items"]
                if any(s.get("namespace") == SYSTEM for s in b.get("subjects", []))]
    with contextlib.ExitStack() as kept:
        for binding in bindings:
            kept.enter_context(without(world, "clusterrolebinding", binding))
        assert "denies the operator to" in finds(plugin, namespace, "RightsMissing", timeout=90)[1]
    healthy(plugin, namespace, timeout=120)


@extended
@pytest.mark.long
def test_a_training(trainings, plugin):
    """start, top, doctor and report around a training: a Prometheus that is away; its table has the layers that SQL has, with standard
    errors of their times, and what costs most."""
    world = trainings
    world.cluster.apply(READER.format(namespace=SERVICES, account="precisionprobe-reader", role=NAME))
    status, name, why = plugin("start", *namespaced(SERVICES), "-l", "profile=yes", "--name=told", "-d", "40s", "--budget=50", "--deadline=10m")
    assert (status, name) == (0, "told\n"), why
    world.cluster.apply(world.deployment.render("dlrm.yaml", TRAIN_STEPS="4000", TRAIN_BATCH="64"))
    session = world.session("told")
    session.follow(180, until=("Collecting",))
    wait_until("layers in top", lambda: re.search(r"^top\.0 +backward +\S+±", plugin(
        "top", *namespaced(SERVICES), "told", "--times=1")[1], re.M), 60)
    world.cluster.kubectl("-n", SERVICES, "scale", "deployment/prometheus", "--replicas=0")
    try:
        finds(plugin, SERVICES, "PrometheusUnavailable", timeout=90)
    finally:
        world.cluster.kubectl("-n", SERVICES, "scale", "deployment/prometheus", "--replicas=1")
        world.cluster.kubectl("-n", SERVICES, "rollout", "status", "deployment/prometheus", "--timeout=120s")
    session.follow(240)
    status, table, why = plugin("report", *namespaced(SERVICES), "told")
    assert status == 0, why
    assert re.search(r"^costliest layer: \S+, [\d.]+ % of a step \([\d.]+ ms, most of it (for|back)ward: [\d.]+±[\d.]+ ms\); ", table, re.M)
    assert "held out and predicted: " in table or " of layers" in table
    status, text, _ = plugin("report", *namespaced(SERVICES), "told", "--format=json")
    rows = world.database.rows("SELECT DISTINCT layer, phase, ms_per_step::float8 AS ms FROM result_detail WHERE kind = 'layer' AND session = 'told'")
    assert {(r["layer"], r["phase"], r["ms"]) for r in rows} == {(i["layer"], i["phase"], i["ms_per_step"])
                                                                for i in json.loads(text)["items"] if i["kind"] == "layer"} != set()
    status, compared, _ = plugin("report", *namespaced(SERVICES), "told", "--compare=told", "--format=json")
    times = [i for i in json.loads(compared)["items"] if i["quantity"] == "ms_per_step" and i["kind"] == "layer"]
    assert status == 0 and len(times) > 10 and all(i["stderr"] > 0 and i["z"] == 0 for i in times)
    status, said, _ = plugin("pattern", *namespaced(SERVICES))
    assert status == 0 and re.search(r"^step: [\d.]+ ± [\d.]+ ms$", said, re.M) and "bound by" in said


@extended
def test_image_not_pulled(world, namespace, plugin):
    """What is injected cannot be pulled: named of the session."""
    with injection_image(world, NOWHERE):
        world.cluster.apply(manifest("pull", labels="app: idle", namespace=namespace))
        world.cluster.apply(json.dumps(bare(namespace, "pulled", template(world))))
        finds(plugin, namespace, "ImageNotPulled", timeout=60)
