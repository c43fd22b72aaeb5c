"""`kubectl precisionprobe` without a cluster: what doctor makes of facts, and what start would create. On a cluster it is tried by
e2e/scenarios/test_kubectl.py.

PP_CLI  the program precisionprobe
"""
import contextlib
import copy
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import terminal
from test_files import RECORDINGS
from test_serve import serving

CLI = os.environ["PP_CLI"]
NOWHERE = {**os.environ, "KUBECONFIG": "/nonexistent"}
METRICS = """precisionprobe_leader 1
precisionprobe_idle 0
precisionprobe_kube_denied{what="watch profilesessions"} 0
precisionprobe_kube_denied{what="review tokens"} 0
precisionprobe_store_up 1
precisionprobe_prometheus_up 1
"""


def of(*items):
    return {"items": list(items)}


def condition(kind, status, reason="", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def session(name, *conditions, targets=()):
    return {"metadata": {"name": name}, "status": {"conditions": [condition("Finished", "False", "Collecting"), *conditions],
                                                   "targets": list(targets)}}


def crd(name, version="0.1.0"):
    return {"metadata": {"name": f"{name}.precisionprobe.io", "labels": {"app.kubernetes.io/version": version}}}


def node(name, gpus="4", ready="True"):
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": gpus},
                                                   "conditions": [condition("DiskPressure", "False"), condition("Ready", ready)]}}


def lease(name, at):
    return {"metadata": {"name": name}, "spec": {"renewTime": f"2026-11-28T{at}.000000Z", "holderIdentity": name}}


FIELDS = ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
          "DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_ACTIVE"]
HEALTHY = {
    "kind": "precisionprobe doctor", "version": 1, "system": "precisionprobe", "namespace": "ml", "unknown": {}, "server": {"major": "1"}, "api": {"resources": []},
    "crds": of(crd("profilesessions"), crd("consumptionpatterns")),
    "webhooks": of({"metadata": {"name": "precisionprobe"}, "webhooks": [{"clientConfig": {"caBundle": "eA=="}}]}),
    "nodes": of(node("n1"), node("n2"), node("gone", ready="Unknown")), "now": "2026-11-28T12:00:00.000Z",
    "nodeLeases": of(lease("n1", "11:59:55"), lease("n2", "11:59:02"), lease("gone", "03:00:00")), "exporters": {"dcgm-exporter-x": FIELDS},
    "exporterPods": of({"metadata": {"name": "dcgm-exporter-x"}, "status": {"phase": "Running"}}), "gpuOperatorPods": of(),
    "deployments": of({"metadata": {"labels": {"app.kubernetes.io/version": "0.1.0"}}, "status": {"availableReplicas": 1}}),
    "operatorPods": of({"metadata": {"name": "precisionprobe-x"}}), "services": of({"metadata": {"name": "precisionprobe"}}),
    "endpoints": of({"endpoints": [{"conditions": {"ready": True}}]}), "systemEvents": of(),
    "sessions": of(session("dlrm", condition("Stalled", "False"), condition("MetricsAvailable", "True", "SamplesFound"))),
    "pods": of(), "events": of(), "metrics": {"precisionprobe-x": METRICS}, "may": {"create profilesessions.precisionprobe.io": "yes"}}


def doctor(tmp_path, facts, *words):
    """(exit status, [(finding, of, evidence, remedy)], all lines)."""
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    told = subprocess.run([CLI, "kubectl", "doctor", f"--from={tmp_path / 'facts.json'}", *words], capture_output=True, text=True,
                          timeout=60, check=False)
    assert not told.stderr
    return told.returncode, re.findall(r"^(\S+) \((.*)\)\n  (.*)\n  -> (.*)$", told.stdout, re.M), told.stdout


def broken(**changes):
    facts = copy.deepcopy(HEALTHY)
    for key, value in changes.items():
        if value is None:
            del facts[key]
        else:
            facts[key] = value
    return facts


def of_session(*conditions, targets=()):
    return {"sessions": of(session("dlrm", *conditions, targets=targets))}


def waiting(reason, message):
    return {"metadata": {"name": "precisionprobe-x"}, "status": {"containerStatuses": [{"state": {"waiting": {
        "reason": reason, "message": message}}}]}}


BROKEN = {
    "ClusterUnreachable": ({"server": None, "unknown": {"server": "connection refused"}}, "connection refused"),
    "CRDMissing": ({"crds": of(), "api": None}, "neither profilesessions"),
    "CRDOfAnotherVersion": ({"crds": of(crd("profilesessions", "0.0.9"), crd("consumptionpatterns"))}, "is of 0.0.9, the operator of 0.1.0"),
    "OperatorMissing": ({"deployments": of()}, "no Deployment"),
    "OperatorNotReady": ({"deployments": of({"status": {}}), "operatorPods": of(waiting("CrashLoopBackOff", "back-off"))},
                         "pod precisionprobe-x: CrashLoopBackOff: back-off"),
    "OperatorImageNotPulled": ({"deployments": of({"status": {}}), "operatorPods": of(waiting("ImagePullBackOff", "no such image"))},
                               "no such image"),
    "ServiceUnavailable": ({"endpoints": of({"endpoints": [{"conditions": {"ready": False}}]})}, "no endpoint that is ready"),
    "WebhookMissing": ({"webhooks": of()}, "no MutatingWebhookConfiguration"),
    "WebhookWithoutCA": ({"webhooks": of({"metadata": {"name": "w"}, "webhooks": [{"clientConfig": {}}]})}, "w"),
    "RightsMissing": ({"metrics": {"x": METRICS.replace('tokens"} 0', 'tokens"} 1')}}, "denies the operator to review tokens"),
    "AnotherInstallation": ({"metrics": {"x": METRICS.replace("idle 0", "idle 1")}}, "another one came first"),
    "StoreUnavailable": ({"metrics": {"x": METRICS.replace("store_up 1", "store_up 0")}}, "precisionprobe_store_up is 0"),
    "PrometheusUnavailable": ({"metrics": {"x": METRICS.replace("prometheus_up 1", "prometheus_up 0")}}, "prometheus_up is 0"),
    "YourRightsMissing": ({"may": {"create profilesessions.precisionprobe.io": "no"}}, "can-i create profilesessions.precisionprobe.io -n ml: no"),
    "NoGPUNodes": ({"nodes": of(node("n1", gpus="0"))}, "no node has"),
    "ExporterMissing": ({"exporterPods": of(), "exporters": {}, "sessions": of()},
                        "no namespace a pod with the label app.kubernetes.io/name=dcgm-exporter or app=nvidia-dcgm-exporter"),
    "ExporterLacksFields": ({"exporters": {"dcgm-exporter-x": FIELDS[:3] + FIELDS[5:]}},
                            "pod dcgm-exporter-x does not export DCGM_FI_PROF_DRAM_ACTIVE (DRAMActive), DCGM_FI_PROF_PIPE_FP32_ACTIVE (FP32Active)"),
    "NodeClockSkewed": ({"nodeLeases": of(lease("n1", "11:59:55"), lease("n2", "12:30:01"))},
                        "the clock of node n2 is about 30m1s ahead of this machine's"),
    "QuotaExceeded": ({"events": of({"reason": "FailedCreate", "message": "pods \"x\" is forbidden: exceeded quota: q",
                                     "involvedObject": {"name": "job"}})}, "exceeded quota: q"),
    "SessionNotSeen": ({"sessions": of({"metadata": {"name": "dlrm"}})}, "nobody looked at it"),
    "MetricsMissing": (of_session(condition("MetricsAvailable", "False", "MetricsMissing", "no samples of FP32Active")), "FP32Active"),
    "InDoubt": (of_session(condition("Explained", "False", "InDoubt", "SMActive: samples in gaps read 0.1")), "SMActive"),
    "NoSamples": (of_session(condition("MetricsAvailable", "False", "NoSamples", "Prometheus has nothing of GPU-1")), "GPU-1"),
    "NoGPU": (of_session(condition("MetricsAvailable", "False", "NoGPU", "the processes named no GPU")), "named no GPU"),
    "BatchesRefused": (of_session(condition("ClockSkewed", "True", "BatchesRefused", "node n2 is 3 days off")), "node n2"),
    "OffsetTakenOut": (of_session(condition("ClockSkewed", "True", "OffsetTakenOut", "node n2 is 90 s ahead")), "90 s"),
    "ImageNotPulled": (of_session(condition("Stalled", "True", "ImageNotPulled", "node n1 cannot pull it")), "node n1"),
    "NoMatchingPods": (of_session(condition("Stalled", "True", "NoMatchingPods", "no pod has app=dlrm")), "app=dlrm"),
    "WebhookMissed": (of_session(targets=[{"pod": "p", "reason": "WebhookMissed", "message": "it was not called"}]), "pod p: it was not called"),
    "HookNotLoaded": (of_session(targets=[{"pod": "p", "reason": "HookNotLoaded"}]), "pod p"),
}


def test_nothing_is_missing(tmp_path):
    status, found, text = doctor(tmp_path, HEALTHY)
    assert (status, found, text) == (0, [], "nothing is missing\n")


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_named(tmp_path, what):
    """That, with its evidence and what to do, and nothing else."""
    changes, evidence = BROKEN[what]
    status, found, _ = doctor(tmp_path, broken(**changes))
    assert status == 1 and [one[0] for one in found] == [what], found
    assert evidence in found[0][2] and len(found[0][3]) > 10


def test_all_at_once(tmp_path):
    """What hides behind another is not told beside it; the rest is, the most basic first."""
    changes = {}
    for name in ("WebhookMissing", "NoGPUNodes", "StoreUnavailable", "MetricsMissing", "QuotaExceeded", "CRDOfAnotherVersion"):
        changes.update(BROKEN[name][0])
    _, found, _ = doctor(tmp_path, broken(**changes))
    assert [one[0] for one in found] == ["CRDOfAnotherVersion", "StoreUnavailable", "WebhookMissing", "NoGPUNodes", "MetricsMissing",
                                        "QuotaExceeded"]
    status, found, _ = doctor(tmp_path, broken(**changes, **BROKEN["ClusterUnreachable"][0]))
    assert status == 1 and [one[0] for one in found] == ["ClusterUnreachable"]


def test_an_exporter_is_missed_only_where_one_is_needed(tmp_path):
    """Either label is one; whose pods may not be listed, or whose samples arrive, has perhaps another."""
    missing, over = BROKEN["ExporterMissing"][0], session("over", condition("MetricsAvailable", "True", "SamplesFound"))
    over["status"]["conditions"][0] = condition("Finished", "True")
    assert doctor(tmp_path, broken(**{**missing, "sessions": of(over)}))[1][0][0] == "ExporterMissing"
    pending = of({"metadata": {"name": "e"}, "status": {"phase": "Pending"}})
    assert doctor(tmp_path, broken(**{**missing, "exporterPods": pending}))[1][0][2] == "no pod of dcgm-exporter runs"
    for change in ({"gpuOperatorPods": HEALTHY["exporterPods"]}, {"gpuOperatorPods": None}, {"sessions": HEALTHY["sessions"]}, {"nodes": None},
                   {"nodes": of({"metadata": {"name": "n1"}, "status": {"allocatable": {"amd.com/gpu": "8"}}})}):
        assert doctor(tmp_path, broken(**{**missing, **change})) == (0, [], "nothing is missing\n")


@pytest.mark.parametrize("first, second, evidence", [
    ("12:00:59", "11:58:21", []),  # a minute ahead nobody is; behind is who was not heard of for as long as it is ready
    ("12:01:01", "11:58:19", [("node n1", "the clock of node n1 is about 1m1s ahead of"), ("node n2", "the clock of node n2 is about 1m41s behind")]),
    ("15:00:00", "14:59:30", [("cluster", "the clocks of all nodes are about 3h ahead of this machine's")]),
    ("15:00:00", "11:59:55", [("node n1", "the clock of node n1 is about 3h ahead of this machine's")]), ("none", "11:59:55", [])])
def test_clocks_of_nodes(tmp_path, first, second, evidence):
    _, found, _ = doctor(tmp_path, broken(nodeLeases=of(lease("n1", first), lease("n2", second), lease("none", "15:00:00"))))
    assert [one[:2] for one in found] == [("NodeClockSkewed", of_) for of_, _ in evidence]
    assert all(text in one[2] for one, (_, text) in zip(found, evidence))
    for unknown in ("nodes", "now", "nodeLeases"):
        facts = broken(nodeLeases=of(lease("n1", "15:00:00")))
        del facts[unknown]
        assert doctor(tmp_path, facts)[0] == 0


def test_sessions_that_are_over_or_not_asked_for(tmp_path):
    bad = condition("MetricsAvailable", "False", "NoSamples", "none")
    over = {"metadata": {"name": "over"}, "status": {"conditions": [condition("Finished", "True"), bad]}}
    facts = broken(sessions=of(over, session("other", bad), session("mine")))
    assert [one[:2] for one in doctor(tmp_path, facts)[1]] == [("NoSamples", "session other")]
    assert doctor(tmp_path, facts, "mine")[0] == 0
    assert [one[:2] for one in doctor(tmp_path, facts, "over")[1]] == [("NoSamples", "session over")]
    assert [one[:2] for one in doctor(tmp_path, facts, "none")[1]] == [("NoSuchSession", "none")]


def test_what_is_waited_for_is_no_finding(tmp_path):
    facts = broken(**of_session(condition("MetricsAvailable", "False", "WaitingForSamples", "later"),
                                targets=[{"pod": "p", "reason": "OtherSession"}]))
    assert doctor(tmp_path, facts)[0] == 0


def test_what_could_not_be_looked_at_is_said(tmp_path):
    facts = broken(nodes=None, unknown={"nodes": "nodes is forbidden"})
    assert doctor(tmp_path, facts) == (0, [], "not looked at: nodes: nodes is forbidden\nnothing is missing\n")


def test_the_type_that_is_missing_is_named(tmp_path):
    status, found, _ = doctor(tmp_path, broken(crds=of(crd("profilesessions"))))
    assert status == 1 and found[0][0] == "CRDMissing" and found[0][2] == "consumptionpatterns.precisionprobe.io is not there", found


def test_an_api_server_that_does_not_answer_lacks_no_type(tmp_path):
    slow, missing = "Error from server (Timeout): it took too long", "Error from server (NotFound): no such resource"
    assert doctor(tmp_path, broken(api=None, unknown={"api": slow})) == (0, [], f"not looked at: api: {slow}\nnothing is missing\n")
    assert doctor(tmp_path, broken(api=None, unknown={"api": missing}))[1][0][0] == "CRDMissing"


@pytest.mark.parametrize("text", [(RECORDINGS / "h200/results.json").read_text(), "[]", "{", json.dumps({**HEALTHY, "version": 2})],
                         ids=["results", "list", "torn", "another version"])
def test_a_file_that_doctor_has_not_saved(tmp_path, text):
    (tmp_path / "other").write_text(text)
    told = subprocess.run([CLI, "kubectl", "doctor", f"--from={tmp_path / 'other'}"], capture_output=True, text=True, timeout=60, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (
        1, "", f"precisionprobe: {tmp_path / 'other'} is no file that doctor --save of this release has written\n")


def test_hostile_messages(tmp_path):
    facts = broken(**of_session(condition("Stalled", "True", "NoMatchingPods", "\x1b[2J\u202e")))
    assert "\x1b" not in doctor(tmp_path, facts)[2]


def start(*words):
    return subprocess.run([CLI, "kubectl", "start", "--dry-run", "-n", "ml", *words], capture_output=True, text=True, timeout=60,
                          env=NOWHERE, check=False)


def test_what_start_creates():
    told = json.loads(start("-l", "app=dlrm,tier==a", "-d", "5m", "--method=Sampling", "--budget=2.5", "--name=mine").stdout)
    assert told == {"apiVersion": "precisionprobe.io/v1alpha1", "kind": "ProfileSession", "metadata": {"name": "mine"},
                    "spec": {"selector": {"matchLabels": {"app": "dlrm", "tier": "a"}}, "duration": "5m", "method": "Sampling",
                             "overheadBudgetPercent": 2.5}}
    assert json.loads(start("-l", "app=x").stdout)["metadata"] == {"generateName": "pods-"}


@pytest.mark.parametrize("words, why", [
    ((), "what shall be profiled?"), (("-l", "app=x", "deployment/y"), "what shall be profiled?"),
    (("-l", "app in (a)"), "--selector must be NAME=VALUE,..., not app in (a)"), (("-l", "app=x", "--budget=much"), "--budget must be a number"),
    pytest.param(("deployment/none",), "kubectl: ", marks=pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl"))])
def test_what_start_refuses(words, why):
    told = start(*words)
    assert told.returncode == 1 and why in told.stderr and not told.stdout


def test_the_program_is_the_plugin_by_its_name(tmp_path):
    os.symlink(CLI, tmp_path / "kubectl-precisionprobe")
    told = subprocess.run([tmp_path / "kubectl-precisionprobe", "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == subprocess.run([CLI, "kubectl", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    unknown = subprocess.run([tmp_path / "kubectl-precisionprobe", "frob"], capture_output=True, text=True, timeout=60, check=False)
    assert unknown.returncode == 1 and "unknown command frob" in unknown.stderr
    for verb in re.findall(r"precisionprobe (\w+) \[", told.stdout):
        shown = subprocess.run([tmp_path / "kubectl-precisionprobe", verb, "--help"], capture_output=True, text=True, timeout=60, check=True)
        assert shown.stdout.startswith(f"Usage: kubectl precisionprobe {verb} ") and "--namespace=NAMESPACE" in shown.stdout


def test_without_kubectl(tmp_path):
    told = subprocess.run([CLI, "kubectl", "status"], capture_output=True, text=True, timeout=60, env={"PATH": str(tmp_path)}, check=False)
    assert told.returncode == 1 and told.stderr == "precisionprobe: kubectl is not in PATH\n"


# --- with a kubectl that answers as it is told to (fake_kubectl.py) -------------------

class Faked:
    """`rules`: [(words, [(status, output, complaint), ...])]."""

    def __init__(self, place, *rules):
        self.place = place
        (place / "bin").mkdir()
        (place / "bin/kubectl").symlink_to(pathlib.Path(__file__).resolve().with_name("fake_kubectl.py"))
        (place / "rules.json").write_text(json.dumps([{"words": words.split(), "answers": answers} for words, answers in rules]))
        self.environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PP_FAKE_KUBECTL": str(place)}

    def run(self, *words):
        return subprocess.run([CLI, "kubectl", *words, "-n", "local", "--system=system"], capture_output=True, text=True, timeout=120,
                              env=self.environment, check=False)

    def calls(self, *words):
        return [call for call in map(json.loads, (self.place / "calls").read_text().splitlines()) if set(words) <= set(call)]


def test_what_doctor_asks(tmp_path):
    """Exporters' pods that run, three at most, at their port; of what they tell the names are kept. And Leases, with the time."""
    def exporter(name, phase="Running"):
        return {"metadata": {"name": name, "namespace": "gpus"}, "status": {"phase": phase}}

    def raw(pod):
        return f"get --raw /api/v1/namespaces/gpus/pods/{pod}:9400/proxy/metrics"

    exported = "# HELP DCGM_FI_DEV_GPU_UTIL x\n" + "".join(f'{name}{{gpu="{n}",UUID="GPU-{n}"}} 1\n' for name in FIELDS[1:] for n in range(2))
    fake = Faked(tmp_path, ("get --raw /version", [(0, "{}", "")]),
                 ("get --raw /api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Ddcgm-exporter&limit=20",
                  [(0, json.dumps(of(exporter("a", "Pending"), exporter("b"), exporter("c"))), "")]),
                 ("get --raw /api/v1/pods?labelSelector=app%3Dnvidia-dcgm-exporter&limit=20", [(0, json.dumps(of(exporter("d"), exporter("e"))), "")]),
                 (raw("b"), [(0, exported, "")]), (raw("c"), [(1, "", "Error from server (Forbidden): no\n")]), (raw("d"), [(0, "", "")]),
                 ("get leases -n kube-node-lease", [(0, json.dumps(of(lease("n1", "12:00:00"))), "")]))
    told = fake.run("doctor", f"--save={tmp_path / 'saved.json'}")
    facts = json.loads((tmp_path / "saved.json").read_text())
    assert facts["exporters"] == {"b": FIELDS[1:], "d": []} and facts["unknown"]["metrics of c"] == "Error from server (Forbidden): no"
    assert "pod d does not export DCGM_FI_PROF_SM_ACTIVE (SMActive), DCGM_FI_PROF_SM_OCCUPANCY" in told.stdout and "pod b" not in told.stdout
    assert facts["nodeLeases"]["items"] and abs(datetime.datetime.fromisoformat(facts["now"]) - datetime.datetime.now(datetime.timezone.utc)
                                                ) < datetime.timedelta(seconds=60)


NO_TOKEN = "auth can-i create serviceaccounts/precisionprobe-reader --subresource=token -n local"
NO_PROXY = "auth can-i get services/https:precisionprobe:https --subresource=proxy -n system"


def warnings(text):
    return re.findall(r"^warning: (\S+) \((.*)\)\n  (.*)\n  -> (.*)$", text, re.M)


@pytest.mark.parametrize("answers, found", [
    ({}, [("ReaderMissing", "namespace local")]), ({"account": "{}"}, []),
    ({NO_TOKEN: "no", "account": "{}"}, [("YourRightsMissing", "create serviceaccounts/token")]),
    ({NO_PROXY: "no - RBAC: no", "account": "{}"}, [("YourRightsMissing", "get services/proxy")])])
def test_what_reading_results_needs(tmp_path, answers, found):
    """It is a warning: sessions run without. What is asked about are the objects that report asks, by their names."""
    account = ("get serviceaccount precisionprobe-reader -n local --ignore-not-found", [(0, answers.pop("account", ""), "")])
    ok = [(words, [(0, json.dumps(HEALTHY[fact]), "")]) for words, fact in (
        ("get crd", "crds"), ("get mutatingwebhookconfigurations", "webhooks"), ("get nodes", "nodes"), ("get deployments", "deployments"),
        ("get services", "services"), ("get endpointslices", "endpoints"), ("get profilesessions", "sessions"))]
    fake = Faked(tmp_path, ("get --raw /version", [(0, "{}", "")]), ("get --raw /apis/precisionprobe.io/v1alpha1", [(0, "{}", "")]), *ok, account,
                 *((words, [(1, f"{answer}\n", "")]) for words, answer in answers.items()), ("auth can-i", [(0, "yes\n", "")]))
    told = fake.run("doctor", f"--save={tmp_path / 'saved.json'}")
    assert told.returncode == 0 and [one[:2] for one in warnings(told.stdout)] == found, told.stdout
    assert told.stdout.splitlines()[-1] == ("nothing is missing that a session needs" if found else "nothing is missing")
    for _, _, evidence, remedy in warnings(told.stdout):
        assert evidence in (*(f"kubectl {words}: no" for words in answers), "there is no service account precisionprobe-reader, whose token reads results")
        assert "to read results" in remedy or remedy == (
            "kubectl -n local create serviceaccount precisionprobe-reader && kubectl -n local create rolebinding precisionprobe-reader "
            "--clusterrole=view --serviceaccount=local:precisionprobe-reader")
    again = subprocess.run([CLI, "kubectl", "doctor", f"--from={tmp_path / 'saved.json'}"], capture_output=True, text=True, timeout=60, check=False)
    assert (again.returncode, again.stdout) == (0, told.stdout)


def test_a_token_that_is_given_needs_no_account(tmp_path):
    fake = Faked(tmp_path, ("get --raw /version", [(0, "{}", "")]), ("auth can-i", [(1, "no\n", "")]))
    (tmp_path / "token").write_text("mine\n")
    told = fake.run("doctor", f"--token-file={tmp_path / 'token'}")
    assert [one[:2] for one in warnings(told.stdout)] == [("YourRightsMissing", "get services/proxy")] and not fake.calls("serviceaccount")


def test_what_is_saved_holds_no_secrets(tmp_path):
    container = {"name": "train", "env": [{"name": "KEY", "value": "hidden"}], "command": ["sh"], "args": ["--key=hidden"],
                 "livenessProbe": {"exec": {"command": ["ping", "hidden"]}}}
    pod = {"metadata": {"name": "p", "annotations": {"applied": "hidden"}, "labels": {"env": "kept"}},
           "spec": {"containers": [container], "initContainers": [container], "volumes": [{"csi": {"volumeAttributes": {"key": "hidden"}}}]},
           "status": {"containerStatuses": [{"name": "train", "state": {"waiting": {"reason": "kept"}}}]}}
    hook = {"webhooks": [{"clientConfig": {"caBundle": "kept", "service": {"path": "/hidden/pods"}}}]}
    fake = Faked(tmp_path, ("get --raw /version", [(0, "{}", "")]), ("get pods -n local", [(0, json.dumps(of(pod)), "")]),
                 ("get deployments", [(0, json.dumps(of({"spec": {"template": pod}})), "")]),
                 ("get mutatingwebhookconfigurations", [(0, json.dumps(of(hook)), "")]))
    fake.run("doctor", f"--save={tmp_path / 'saved.json'}")
    saved = (tmp_path / "saved.json").read_text()
    assert "hidden" not in saved and saved.count("kept") == 5 and saved.count('"train"') == 6


def test_a_replica_that_is_not_ready_tells_why(tmp_path):
    changes = {"deployments": of({"status": {}}), "operatorPods": of(waiting("CrashLoopBackOff", "back-off")),
               "metrics": {"precisionprobe-x": METRICS.replace("precisionprobe_idle 0", "precisionprobe_idle 1")}}
    _, found, _ = doctor(tmp_path, broken(**changes))
    assert {"OperatorNotReady", "AnotherInstallation"} <= {what for what, *_ in found}


CREATED = ("create -f -", [(0, json.dumps({"metadata": {"name": "dlrm"}}), "")])
PODS = ("get pods", [(0, json.dumps(of()), "")])
GET_SESSION = "get profilesessions.precisionprobe.io dlrm"
START = ("start", "-l", "app=dlrm", "--wait")
BLIPS = [(1, "", "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?\n"),
         (1, "", "Error from server (InternalError): an error on the server (\"\") has prevented the request from succeeding\n")]


def as_it_is(phase, *conditions):
    return (0, json.dumps({"metadata": {"name": "dlrm"}, "status": {"phase": phase, "conditions": list(conditions)}}), "")


def test_a_wait_goes_on_where_the_cluster_is_away_for_a_while(tmp_path):
    done = as_it_is("Succeeded", condition("Finished", "True"), condition("Succeeded", "True"))
    fake = Faked(tmp_path, CREATED, PODS, (GET_SESSION, [*BLIPS, as_it_is("Collecting"), done]))
    told = fake.run(*START)
    assert (told.returncode, len(fake.calls("profilesessions.precisionprobe.io"))) == (0, 4), told.stderr
    assert told.stdout.startswith("dlrm\ndlrm: Succeeded")
    assert [line for line in told.stderr.splitlines() if line] == [
        f"session dlrm cannot be looked at, and is waited for: kubectl: {BLIPS[0][2].strip()}"]


@pytest.mark.parametrize("complaint", ["Error from server (NotFound): profilesessions.precisionprobe.io \"dlrm\" not found",
                                       "Error from server (Forbidden): profilesessions.precisionprobe.io \"dlrm\" is forbidden: User \"u\" cannot get",
                                       "error: You must be logged in to the server (Unauthorized)"])
def test_a_wait_ends_where_nothing_more_is_to_come(tmp_path, complaint):
    fake = Faked(tmp_path, CREATED, PODS, (GET_SESSION, [as_it_is("Collecting"), (1, "", complaint + "\n")]))
    told = fake.run(*START)
    assert (told.returncode, told.stdout, len(fake.calls("profilesessions.precisionprobe.io"))) == (1, "dlrm\n", 2)
    assert told.stderr.strip() == f"precisionprobe: waiting for session dlrm: kubectl: {complaint}"


def test_a_session_that_is_created_is_one_whatever_becomes_of_its_pods(tmp_path):
    """They are only looked at; where they were to be made anew, that is what failed."""
    forbidden = "Error from server (Forbidden): pods is forbidden"
    fake = Faked(tmp_path, CREATED, ("get pods", [(1, "", forbidden)]), ("get deployment/dlrm", [(0, json.dumps(
        {"kind": "Deployment", "metadata": {"name": "dlrm"}, "spec": {"selector": {"matchLabels": {"app": "dlrm"}}}}), "")]))
    told = fake.run("start", "-l", "app=dlrm")
    assert (told.returncode, told.stdout) == (0, "dlrm\n")
    assert told.stderr.strip() == f"session dlrm is created; whether its pods have the hook is not known: kubectl: {forbidden}"
    told = fake.run("start", "deployment/dlrm", "--restart")
    assert (told.returncode, told.stdout) == (1, "dlrm\n")
    assert told.stderr.strip() == f"precisionprobe: session dlrm is created, and its pods are not made anew: kubectl: {forbidden}"


def token(name, seconds):
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return (0, json.dumps({"kind": "TokenRequest", "status": {"token": name, "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ")}}), "")


@contextlib.contextmanager
def session_of_a_recording(place, tokens, *good):
    """`tokens` that the API server gives one after the other, and those that are good."""
    with serving("--serve=0", RECORDINGS / "h200") as (host, port):
        fake = Faked(place, ("create token", tokens))
        (place / "api").write_text(f"{host}:{port}")
        (place / "tokens.json").write_text(json.dumps(good))
        yield fake


def asked(fake):
    return [line.split() for line in (fake.place / "asked").read_text().splitlines()]


def test_top_takes_a_new_token_before_one_ends(tmp_path):
    with session_of_a_recording(tmp_path, [token("first", 6), token("second", 3600)], "first", "second") as fake:
        told = fake.run("top", "h200", "--times=7", "--interval=1")
    assert told.returncode == 0 and told.stdout.count("layer ") == 7, told.stderr
    assert set(status for _, status in asked(fake)) == {"200"} and [name for name, _ in asked(fake)][-1] == "second"
    assert len(fake.calls("create", "token")) == 2 and all("--request-timeout=20s" in call for call in fake.calls("create", "token"))


def test_top_takes_a_new_token_for_one_that_is_refused(tmp_path):
    """Once for a question: an API that refuses both is believed. Its own words are told, and what was shown stays."""
    with session_of_a_recording(tmp_path, [token("first", 3600), token("second", 3600)], "second") as fake:
        told = fake.run("top", "h200", "--times=2", "--interval=0.1")
        assert told.returncode == 0 and told.stdout.count("layer ") == 2, told.stderr
        assert asked(fake)[0] == ["first", "401"] and {tuple(one) for one in asked(fake)[1:]} == {("second", "200")}
        (tmp_path / "tokens.json").write_text("[]")
        told = fake.run("top", "h200", "--times=2")
        assert told.returncode == 1 and "the operator's API answers 401" in told.stderr
        assert len(fake.calls("create", "token")) == 4


def test_a_token_that_cannot_be_had_again_is_told_in_a_line(tmp_path):
    """Of the commands that would mend it there are more: those are for who starts it."""
    tokens = [token("first", 3600), (1, "", "error: failed to create token: the account is gone\n")]
    with session_of_a_recording(tmp_path, tokens, "first") as fake, terminal.terminal(100, 24) as shown:
        shown.keys(f"env PATH='{fake.environment['PATH']}' PP_FAKE_KUBECTL='{tmp_path}' '{CLI}' kubectl top h200 -n local --system=system "
                   "--interval=0.3", "Enter")
        before = shown.wait(lambda lines: any(line.startswith("layer ") for line in lines))
        (tmp_path / "tokens.json").write_text("[]")
        after = shown.wait(lambda lines: lines[0].startswith("h200: no token to read results with: error: failed to create token"))
        assert after[1:] == before[1:]
        shown.keys("q")


def test_a_token_that_was_given_is_the_only_one(tmp_path):
    (tmp_path / "token").write_text("mine\n")
    with session_of_a_recording(tmp_path, [token("other", 3600)], "other") as fake:
        told = fake.run("top", "h200", "--times=1", f"--token-file={tmp_path / 'token'}")
        assert told.returncode == 1 and "401" in told.stderr and not fake.calls("create", "token")


@pytest.mark.parametrize("verb", ["report", "top"])
def test_a_kubectl_that_gives_no_token_says_why(tmp_path, verb):
    """The commands that help are lines to be pasted; what the cluster says has no lines of its own."""
    why = "error: failed to create token: serviceaccounts \"precisionprobe-reader\" not found \x1b[2J"
    with session_of_a_recording(tmp_path, [(1, "", f"{why}\n  rm -rf /\n")]) as fake:
        told = fake.run(verb, "h200")
        assert told.returncode == 1 and told.stderr.splitlines() == [
            "precisionprobe: no token to read results with: " + why.replace("\x1b", "?"),
            "Give one in PRECISIONPROBE_TOKEN or with --token-file, or let there be an account that may read and whose tokens you may create:",
            "  kubectl -n local create serviceaccount precisionprobe-reader",
            "  kubectl -n local create rolebinding precisionprobe-reader --clusterrole=view --serviceaccount=local:precisionprobe-reader"]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
@pytest.mark.parametrize("words, given", [(("report", "dlrm"), ""), (("top", "dlrm"), ""), (("report", "dlrm"), "mine")])
def test_a_server_that_is_away_is_the_cause(tmp_path, words, given):
    """Of accounts nothing is said."""
    told = subprocess.run([CLI, "kubectl", *words], capture_output=True, text=True, timeout=60, check=False,
                          env={**away(tmp_path), "PRECISIONPROBE_TOKEN": given})
    assert told.returncode == 1 and re.fullmatch(r"precisionprobe: kubectl.* refused.*\n", told.stderr) and "token" not in told.stderr, told.stderr


def open_page(environment, *words):
    """What it says before it ends; whoever waits for a browser is ended."""
    with subprocess.Popen([CLI, "kubectl", "open", "--no-browser", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment, start_new_session=True) as child:
        try:
            return *child.communicate(timeout=20), child.returncode
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_open_of_a_server_that_is_away(tmp_path):
    output, complaint, status = open_page(away(tmp_path))
    assert (output, status) == ("", 1) and re.fullmatch(r"precisionprobe: the page is not to be had: .* refused.*\n", complaint), complaint


def test_open_of_a_page_that_may_not_be_read(tmp_path):
    forbidden = "Error from server (Forbidden): services \"https:precisionprobe:https\" is forbidden"
    fake = Faked(tmp_path, ("get --raw /api/v1/namespaces/system/services/https:precisionprobe:https/proxy/page/", [(1, "", forbidden + "\n")]))
    assert open_page(fake.environment, "--system=system") == ("", f"precisionprobe: the page is not to be had: {forbidden}\n", 1)
    assert not fake.calls("proxy")


def away(place):
    """An environment whose kubectl has a cluster that does not answer."""
    (place / "kubeconfig").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}], "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}))
    return {**os.environ, "KUBECONFIG": str(place / "kubeconfig")}


def test_the_proxys_words_are_not_on_tops_screen(tmp_path):
    with session_of_a_recording(tmp_path, [token("one", 3600)], "one") as fake, terminal.terminal() as shown:
        shown.keys(f"env PATH='{fake.environment['PATH']}' PP_FAKE_KUBECTL='{tmp_path}' '{CLI}' kubectl top h200 -n local --system=system "
                   "--interval=0.3", "Enter")
        shown.wait(lambda lines: any(line.startswith("layer ") for line in lines))
        before = len(asked(fake))
        shown.wait(lambda lines: len(asked(fake)) > before + 4)
        (tmp_path / "api").write_text("127.0.0.1:1")  # the proxy's own trouble, too
        lines = shown.wait(lambda lines: lines[0].startswith("h200: "))
        assert not any("NOISE" in line or "Traceback" in line for line in lines) and any(line.startswith("layer ") for line in lines)
        shown.keys("q")
        lines = shown.wait(lambda lines: not any(line.startswith("layer ") for line in lines), history=True)
        assert not any("NOISE" in line or "Traceback" in line for line in lines)


def test_a_proxy_that_does_not_start_says_why(tmp_path):
    fake = Faked(tmp_path, ("create token", [token("one", 3600)]))
    (tmp_path / "bin/kubectl").unlink()
    (tmp_path / "bin/kubectl").write_text(f"#!/bin/sh\ncase \"$*\" in *proxy*) echo 'error: no room for a socket' >&2; exit 1;; esac\n"
                                          f"exec {pathlib.Path(__file__).resolve().with_name('fake_kubectl.py')} \"$@\"\n")
    (tmp_path / "bin/kubectl").chmod(0o755)
    told = fake.run("report", "h200")
    assert told.returncode == 1 and told.stderr.strip() == "precisionprobe: kubectl proxy did not start: error: no room for a socket"
