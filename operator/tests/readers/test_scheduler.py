"""The programs of docs/patterns.md that a scheduler's author begins with (docs/examples), in Python with the package `kubernetes`
and in Go with client-go, against an API server to which the operator writes its patterns.

PP_KUBERNETES_PYTHON  a python3 with that package; else the one that runs the tests
PP_EXAMPLE_IN_GO      docs/examples/boundbymemory, built
"""
import json
import os
import queue
import re
import subprocess
import sys
import threading

import conftest
import folder
import pytest
import yaml
from conftest import GROUP, ROOT

PROGRAM = ROOT / "docs/examples/bound_by_memory.py"
PYTHON = os.environ.get("PP_KUBERNETES_PYTHON", sys.executable)
NAMESPACE = "local"
PATIENCE = 60
# What each unit does in the layers `bottom` and `top`, and in the rest of a step, in which no kernel runs.
SMS, BUSY, IDLE = (0.8, 0.2, 0), (0.95, 0.85, 0), (0.06, 0.04, 0)
UNITS = ("DRAMActive", "FP32Active", "TensorActive")


def has_kubernetes():
    return subprocess.run([PYTHON, "-c", "from kubernetes import client"], capture_output=True).returncode == 0


@pytest.fixture(scope="module", params=["python", "go"])
def program(request):
    if request.param == "python":
        if not has_kubernetes():
            pytest.skip("no package `kubernetes`")
        return [PYTHON, PROGRAM]
    if "PP_EXAMPLE_IN_GO" not in os.environ:
        pytest.skip("PP_EXAMPLE_IN_GO is not set")
    return [os.environ["PP_EXAMPLE_IN_GO"]]


def training(place, bound):
    """One that keeps a unit of the GPU busy, and no other."""
    batches = [folder.batch(seq, 10 * seq, 10) for seq in range(folder.STEPS // 10)]
    for batch in batches:
        batch["intervals"]["kernels"] = batch["intervals"]["duration"]
        batch["steps"]["gap"] = [200 * folder.MS] * 10
        batch["process"]["chip"] = {"capability": 90, "multiprocessors": 132, "smKHz": 1980000, "memoryKHz": 3201000, "memoryBits": 6144}
    told = folder.samples()
    levels = {"SMActive": SMS, **{unit: BUSY if unit == bound else IDLE for unit in UNITS}}
    lines = [{**told, "metric": name, "value": [as_parts(v, parts) for v in told["value"]]} for name, parts in levels.items()]
    return folder.write(place, {**folder.RESULTS, "metrics": []}, batches, lines)


def as_parts(value, levels):
    """SMActive of a window is a mix of 0.8, 0.2 and 0.1, by time: as that of other levels, so that each layer has its own."""
    bottom, top, rest = levels
    if value >= 0.2:
        part = (value - 0.2) / 0.6
        return part * bottom + (1 - part) * top
    part = (value - 0.1) / 0.1
    return part * top + (1 - part) * rest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    place = tmp_path_factory.mktemp("trainings")
    folders = {"gelu": training(place / "gelu", "DRAMActive"), "gemm": training(place / "gemm", "FP32Active")}
    yield from conftest.serve(folders, after="UPDATE target SET workload_kind = 'Job'; DELETE FROM pattern")


@pytest.fixture
def kubeconfig(cluster, tmp_path):
    told = {"apiVersion": "v1", "kind": "Config", "current-context": "one", "users": [{"name": "one", "user": {}}],
            "clusters": [{"name": "one", "cluster": {"server": cluster.kubernetes.url}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}]}
    (tmp_path / "kubeconfig").write_text(json.dumps(told))
    return {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}


def job(cluster, name, ready, **labels):
    cluster.kubernetes.put("batch", "jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE},
                                             "spec": {"template": {"metadata": {"labels": labels}, "spec": {"containers": []}}},
                                             "status": {"active": 1, "ready": ready}})


def test_which_of_two_jobs_is_bound_by_memory(cluster, kubeconfig, program):
    for name in ("gelu", "gemm"):
        job(cluster, name, 1)
    job(cluster, "over", 0)
    job(cluster, "new", 1)
    job(cluster, "labelled", 1, **{"precisionprobe.io/workload": "gelu"})
    done = subprocess.run([*program, "--once", NAMESPACE], env=kubeconfig, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    answers = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert set(answers) == {"gelu", "gemm", "new", "labelled"}
    assert re.fullmatch(r"bound by memory: memory \d\d\.\d % \+- \d+\.\d of a step, at [34]\.\d\d of 4\.92 TB/s(, [\d.]+ % \+- [\d.]+ not known)?; "
                        r"DRAMActive \d\d\.\d % \+- \d+\.\d; 1 sessions, until 2\S+Z", answers["gelu"]), answers["gelu"]
    assert answers["gemm"].startswith("bound by FP32: memory 0.0 %")
    assert answers["new"] == answers["labelled"] == "not known: it was not profiled yet"  # no pattern is of a Workload


def test_a_label_takes_the_jobs_place(cluster, kubeconfig, program):
    (pattern,) = [p for p in cluster.kubernetes.objects[GROUP, "consumptionpatterns"].values() if p["metadata"]["name"] == "job-gelu"]
    other = json.loads(json.dumps(pattern))
    other["metadata"]["name"] = "workload-shared"
    other["spec"]["workload"] = {"kind": "Workload", "name": "shared"}
    other["status"] = {"conditions": other["status"]["conditions"], "bound": "Memory"}  # as little as the CRD allows
    cluster.kubernetes.put(GROUP, "consumptionpatterns", other)
    job(cluster, "labelled", 1, **{"precisionprobe.io/workload": "shared"})
    done = subprocess.run([*program, "--once", NAMESPACE], env=kubeconfig, capture_output=True, text=True, timeout=PATIENCE)
    cluster.kubernetes.put(GROUP, "consumptionpatterns", other, "DELETED")
    assert "labelled: bound by memory: memory 0.0 % of a step; DRAMActive not measured; 0 sessions, until ?\n" in done.stdout, done.stderr


def test_it_follows_what_changes(cluster, kubeconfig, program):
    for name in ("gelu", "gemm"):
        job(cluster, name, 1)
    child = subprocess.Popen([*program, NAMESPACE], env=kubeconfig, stdout=subprocess.PIPE, text=True)
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in child.stdout], daemon=True).start()

    def comes(begin):
        while not (line := lines.get(timeout=PATIENCE)).startswith(begin):
            pass

    (pattern,) = [p for p in cluster.kubernetes.objects[GROUP, "consumptionpatterns"].values() if p["metadata"]["name"] == "job-gemm"]
    try:
        comes("gemm: bound by FP32")
        changed = json.loads(json.dumps(pattern))
        next(c for c in changed["status"]["conditions"] if c["type"] == "Bound").update(status="False", reason="Close")
        cluster.kubernetes.put(GROUP, "consumptionpatterns", changed)
        comes("gemm: not sure, FP32 leads by little")
        next(c for c in changed["status"]["conditions"] if c["type"] == "Bound").update(status="Unknown", reason="ErrorUnknown")
        cluster.kubernetes.put(GROUP, "consumptionpatterns", changed)
        comes("gemm: not sure, FP32 leads by nobody knows how much")
        cluster.kubernetes.put(GROUP, "consumptionpatterns", changed, "DELETED")
        comes("gemm: not known")
    finally:
        child.terminate()
        child.wait(PATIENCE)
        cluster.kubernetes.add(GROUP, "consumptionpatterns", pattern)


def unknown(value, schema, path=""):
    """What the schema does not describe, or describes otherwise."""
    if isinstance(value, dict):
        own = schema.get("properties", {})
        return [f"{path}.{name}" for name in value if name not in own] + [
            wrong for name, one in value.items() if name in own for wrong in unknown(one, own[name], f"{path}.{name}")]
    if isinstance(value, list):
        return [wrong for one in value for wrong in unknown(one, schema["items"], f"{path}[]")]
    types = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    return [] if isinstance(value, types[schema["type"]]) and value in schema.get("enum", [value]) else [path]


def test_the_page_shows_an_object_that_can_be(cluster):
    page = (ROOT / "docs/patterns.md").read_text()
    shown = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.S)[1])
    crd = yaml.safe_load((ROOT / "crds/consumptionpattern.yaml").read_text())["spec"]
    schema = crd["versions"][0]["schema"]["openAPIV3Schema"]
    assert shown["apiVersion"] == f"{crd['group']}/{crd['versions'][0]['name']}" and shown["kind"] == crd["names"]["kind"]
    for object_ in (shown, *cluster.patterns().values()):
        assert unknown(object_["status"], schema["properties"]["status"]) == []
        assert unknown(object_["spec"], schema["properties"]["spec"]) == []
    for name in (f"`{crd['names']['plural']}`", f"`{crd['group']}`", f"`{crd['versions'][0]['name']}`", "examples/bound_by_memory.py", "examples/boundbymemory"):
        assert name in page, name
