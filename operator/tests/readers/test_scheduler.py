"""The program of docs/patterns.md that a scheduler's author begins with (docs/examples/bound_by_memory.py), with the package
`kubernetes`, against an API server to which the operator writes its patterns.

PP_KUBERNETES_PYTHON  a python3 with that package; else the one that runs the tests
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


pytestmark = pytest.mark.skipif(not has_kubernetes(), reason="no package `kubernetes`")


def training(place, bound):
    """One that keeps a unit of the GPU busy, and no other."""
    batches = [folder.batch(seq, 10 * seq, 10) for seq in range(folder.STEPS // 10)]
    for batch in batches:
        batch["intervals"]["kernels"] = batch["intervals"]["duration"]
        batch["steps"]["gap"] = [200 * folder.MS] * 10
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


def job(cluster, name, active):
    cluster.kubernetes.put("batch", "jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE},
                                             "spec": {"template": {"spec": {"containers": []}}}, "status": {"active": active}})


def test_which_of_two_jobs_is_bound_by_memory(cluster, kubeconfig):
    for name in ("gelu", "gemm"):
        job(cluster, name, 1)
    job(cluster, "over", 0)
    job(cluster, "new", 1)
    done = subprocess.run([PYTHON, PROGRAM, "--once", NAMESPACE], env=kubeconfig, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    answers = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert set(answers) == {"gelu", "gemm", "new"}
    assert answers["gelu"].startswith("bound by memory: memory ")
    assert answers["gemm"].startswith("bound by FP32: memory 0.0 %")
    assert answers["new"] == "not known: it was not profiled yet"


def test_it_follows_what_changes(cluster, kubeconfig):
    for name in ("gelu", "gemm"):
        job(cluster, name, 1)
    child = subprocess.Popen([PYTHON, PROGRAM, NAMESPACE], env=kubeconfig, stdout=subprocess.PIPE, text=True)
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in child.stdout], daemon=True).start()

    def comes(begin):
        while not (line := lines.get(timeout=PATIENCE)).startswith(begin):
            pass

    try:
        comes("gemm: bound by FP32")
        (pattern,) = [p for p in cluster.kubernetes.objects[GROUP, "consumptionpatterns"].values() if p["metadata"]["name"] == "job-gemm"]
        changed = json.loads(json.dumps(pattern))
        next(c for c in changed["status"]["conditions"] if c["type"] == "Bound").update(status="False", reason="Close")
        cluster.kubernetes.put(GROUP, "consumptionpatterns", changed)
        comes("gemm: not sure, FP32 leads by little")
        cluster.kubernetes.put(GROUP, "consumptionpatterns", changed, "DELETED")
        comes("gemm: not known")
    finally:
        child.terminate()
        child.wait(PATIENCE)


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
    for name in (f"`{crd['names']['plural']}`", f"`{crd['group']}`", f"`{crd['versions'][0]['name']}`", "examples/bound_by_memory.py"):
        assert name in page, name
