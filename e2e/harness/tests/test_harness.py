"""What demo and tests do to a cluster, without one: the answers of kubectl are given here."""
import argparse
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from harness import checks, cluster, demo, deploy, image, progress, report, suite
from harness.background import Background
from harness.cluster import Cluster
from harness.deploy import MARK, SERVICES, SYSTEM, Deployment
from harness.progress import CommandError

OURS = {"metadata": {"labels": {MARK: "true"}}}


class Answers(Cluster):
    """Objects by (kind, name), and what was asked of kubectl."""

    def __init__(self, objects, gpus=0):
        super().__init__()
        self.objects, self.gpus_of_node, self.asked = objects, gpus, []

    def get(self, *arguments):
        if arguments[0] == "nodes":
            return {"items": [{"metadata": {"name": "n1"},
                               "status": {"allocatable": {"nvidia.com/gpu": str(self.gpus_of_node)}}}]}
        return self.objects.get(arguments[:2] if arguments[0] in ("namespace", "crd") else arguments[0])

    def fetch(self, path):
        return '{"items": []}'

    def kubectl(self, *arguments, **_):
        self.asked.append(arguments)
        return ""

    def helm(self, *arguments, **_):
        self.asked.append(("helm", *arguments))


def webhook(namespace):
    return {"items": [{"metadata": {"annotations": {"meta.helm.sh/release-namespace": namespace}}}]}


@pytest.mark.parametrize("objects, gpus, said", [
    ({("namespace", SYSTEM): {"metadata": {}}}, 0, f"namespace {SYSTEM}"),
    ({("namespace", SERVICES): {"metadata": {"labels": {"a": "b"}}}}, 0, f"namespace {SERVICES}"),
    ({"mutatingwebhookconfigurations": webhook("tools")}, 0, "installed in namespace tools"),
    ({}, 8, "8 nvidia.com/gpu on node n1"),
])
def test_somebody_elses_things_are_not_touched(objects, gpus, said):
    answers = Answers(objects, gpus)
    deployment = Deployment(answers)
    with pytest.raises(CommandError, match=said):
        deployment.check_free()
    deployment.remove()
    assert answers.asked == []


CRDS = {("crd", name): OURS for name in deploy.CRDS}


def test_an_earlier_runs_things_are_used_and_left():
    answers = Answers({("namespace", SYSTEM): OURS, ("namespace", SERVICES): OURS, **CRDS,
                       "mutatingwebhookconfigurations": webhook(SYSTEM)}, gpus=4)
    deployment = Deployment(answers)
    deployment.check_free()
    deployment.remove()
    assert answers.asked == []


def test_what_was_made_goes():
    answers = Answers(dict(CRDS))
    deployment = Deployment(answers)
    deployment.check_free()
    deployment.remove()
    deleted = [a[1:3] for a in answers.asked if a[0] == "delete"]
    assert deleted == [("namespace", SERVICES), ("namespace", SYSTEM)]
    assert answers.asked[0][:2] == ("helm", "uninstall")


def test_own_cluster_is_known_by_its_kubeconfig(monkeypatch):
    for given, external in (("", False), (cluster.OWN_KUBECONFIG, False), ("/etc/kubernetes/admin.conf", True)):
        monkeypatch.setenv("KUBECONFIG", given)
        assert Cluster().external is external


def test_claimed_before_it_is_looked_at(monkeypatch):
    order = []
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(Cluster, "claim", lambda self: order.append("claim"))
    monkeypatch.setattr(cluster, "run", lambda *command, **_: order.append(command[1]) or "")
    monkeypatch.setattr(cluster, "run_shown", lambda *command: order.append(command[1]))
    Cluster().up()
    assert order == ["claim", "status", "up", "shell-env"]


def test_files_are_found_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    names = progress.project_files()
    assert {"README.md", "operator/main.c", "e2e/gpu/build", "e2e/harness/tests/test_harness.py"} <= set(names)
    assert not [name for name in names if name.startswith((".git/", "build/")) or name.endswith(".pyc")]
    assert len(deploy.sources_key()) == 12


def estimate(layer, phase, metric, mean=None, group=None, kind="layer"):
    return {"pod_name": "p", "kind": kind, "layer": layer, "phase": phase, "type": "EmbeddingBag", "ms_per_step": 1.5,
            "share": 0.5, "metric": metric, "mean": mean, "stderr": mean and 0.01, "group_name": group,
            "group_mean": group and 0.811}


def test_table_names_its_groups():
    rows = [estimate(layer, "forward", metric, None, "bot.1+bot.3")
            for layer in ("bot.1", "bot.3") for metric in ("sm_active", "dram_active")]
    rows += [estimate("bot.1", "backward", "fp32_active", None, "bot.1+bot.3"),
             estimate("emb.0", "forward", "sm_active", 1.0), estimate("emb.0", "forward", "gpu_mem", 12345.6)]
    lines = report.table(rows, "p").splitlines()
    assert lines[-2:] == ["(a) bot.1 + bot.3 forward", "(b) bot.1 + bot.3 backward"]
    assert lines[2].count("(81.1)a") == 2 and "(81.1)b" in lines[3]
    assert "100.0±1.0" in lines[-3] and lines[-3].endswith("   12346")
    assert max(len(line) for line in lines) <= 120


def test_table_lists_every_phase():
    rows = [estimate("", "", "sm_active", 0.5, kind=kind) for kind in ("job", "data", "other", "zero_grad", "optimizer")]
    rows += [estimate("bot.1", phase, "sm_active", 0.5) for phase in ("backward", "recompute", "forward")]
    lines = report.table(rows, "p").splitlines()[2:]
    assert [line[30:40].strip() for line in lines[:3]] == ["forward", "recompute", "backward"]
    assert [line.split()[0] for line in lines[3:]] == ["optimizer", "zero_grad", "data", "other", "job"]


@pytest.mark.parametrize("text, right", [("60s", True), ("2m30s", True), ("10m", True), ("30s", False), ("1h", False),
                                         ("", False), ("90", False)])
def test_durations(text, right):
    if right:
        assert demo.duration(text) == text
    else:
        with pytest.raises(argparse.ArgumentTypeError, match="60s to 10m"):
            demo.duration(text)


def test_one_run_at_a_time(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "CACHE", str(tmp_path))
    monkeypatch.setenv("PP_E2E_CLAIMED", "")
    mine = Cluster()
    mine.claim()
    with open(tmp_path / "e2e-in-use.lock", encoding="utf-8") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    Cluster().claim()  # as in a process that the holder has started: does not wait
    mine.held.close()


def locked(path):
    with open(path, encoding="utf-8") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize("error", [checks.Failure("as is meant here"), KeyError("an oversight")])
def test_checks_beside_the_scenarios(monkeypatch, tmp_path, error):
    """Those that measure can wait for their end; they leave the processors to everybody else; a failure is remembered."""
    goes_on = threading.Event()
    nice = []

    def slow():
        goes_on.wait(300)
        nice.append(progress.run("nice").strip())
        raise error

    monkeypatch.setattr(suite, "CACHE", str(tmp_path))
    monkeypatch.setattr(checks, "HOOK", [("slow", slow), ("next", list)])
    monkeypatch.setattr(checks, "ROWS", [[("a row", slow)], [("another", list)]])
    tests = suite.Suite(argparse.Namespace(quick=False, all=False))
    before = os.nice(0)
    tests.begin_beside()
    assert locked(tests.lock.name)
    goes_on.set()
    tests.beside.join(300)
    assert not locked(tests.lock.name)
    assert (nice, os.nice(0), tests.failed) == (["19", "19"], before, ["slow", "a row"])


SIDE_BY_SIDE = """
import os
from harness import checks, progress
checks.with_torch = lambda tests, pythons, port: checks.execute(tests, "sh", "-c", "echo $$ >>begun; sleep 300")
progress.tidy_up_on_signals()
try:
    checks.side_by_side([(f"{n}.log", ["python"]) for n in range(9)], 1)
finally:
    progress.stop_children()
"""


def test_what_runs_side_by_side_ends_when_interrupted(tmp_path):
    """At once, with what waits for its turn; nothing goes on behind it."""
    begun = tmp_path / "begun"
    program = SIDE_BY_SIDE.replace(">>begun", f">>{begun}")
    child = subprocess.Popen([sys.executable, "-c", program], cwd=cluster.E2E, env={**os.environ, "PP_CACHE": str(tmp_path)})
    progress.wait_until("four to run", lambda: begun.exists() and len(begun.read_text().split()) == 4, 60, every=0.05)
    child.terminate()
    assert child.wait(60) == 128 + signal.SIGTERM
    assert len(begun.read_text().split()) == 4
    for pid in begun.read_text().split():
        assert not os.path.exists(f"/proc/{pid}")


@pytest.fixture(scope="module")
def copy():
    """e2e/ where everybody may read it: a clone may lie in a home that is its owner's alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(cluster.E2E, f"{folder}/e2e", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["chmod", "-R", "a+rX,go-w", folder], check=True)
        yield f"{folder}/e2e"


def begin(command, *arguments, **environment):
    """A command with nobody's rights."""
    return subprocess.run([command, *arguments], capture_output=True, text=True, timeout=300, cwd="/",
                          user=65534, group=65534, extra_groups=[], env={"PATH": "/usr/bin:/bin", **environment})


as_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes somebody else")


@as_root
@pytest.mark.parametrize("name, module", [("demo", demo), ("test", suite), ("image", image)])
def test_help_comes_before_everything(copy, name, module):
    told = begin(f"{copy}/{name}", "--help", KUBECONFIG="/nonexistent", PP_CACHE="/nonexistent")
    known = {option for action in module.parser()._actions for option in action.option_strings}
    assert (told.returncode, told.stderr) == (0, "")
    assert set(re.findall(r"^  (-[-a-z]+)", told.stdout, re.M)) == known


@as_root
@pytest.mark.parametrize("name", ["demo", "test"])
@pytest.mark.parametrize("given, said", [("/nonexistent", "KUBECONFIG: /nonexistent: no such file"),
                                         ("", "needs root, to bring up a cluster on this machine")])
def test_what_is_missing_is_said_first(copy, name, given, said):
    with tempfile.TemporaryDirectory(dir="/tmp") as cache:
        os.chmod(cache, 0o777)
        told = begin(f"{copy}/{name}", KUBECONFIG=given, PP_CACHE=cache)
    assert (told.returncode, told.stdout, told.stderr) == (1, "", f"{name}: {said}\n")


def test_steps_say_that_they_begin(capsys):
    with progress.step("a thing"):
        assert capsys.readouterr().err == "a thing ...\n"
    assert re.fullmatch(r"a thing +0 s\n", capsys.readouterr().err)
    told = subprocess.run(["bash", "-c", f". {cluster.E2E}/lib/common.sh; step text /dev/null true"],
                          capture_output=True, text=True, timeout=300, check=True).stderr.splitlines()
    assert told[0] == "text ..." and len(told) == 2


def test_an_earlier_demo_is_cleared_first(capsys):
    answers = Answers({})
    demo.clear(answers)
    assert capsys.readouterr().err == ""
    asked = answers.asked[0]
    assert {"delete", f"profilesession/{demo.SESSION}", "job/dlrm", "job/dlrm-ddp", "job/dlrm-twin"} <= set(asked)
    demo.clear(Answers({"-n": {"items": []}}))  # of whatever kind
    assert "an earlier demo are replaced" in capsys.readouterr().err


ENDS = """
import signal, sys
from harness.progress import ENDINGS, run, say, tidy_up_on_signals
for number in ENDINGS:
    signal.signal(number, signal.SIG_DFL)  # whatever whoever runs the tests has set
tidy_up_on_signals()
try:
    print("up", flush=True)
    run("sleep", "600")
finally:
    say("nobody hears this")
    print(run("echo", "tidied"), end="", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_closed_terminal_is_tidied_up_after(number):
    reader, writer = os.pipe()
    os.close(reader)  # standard error leads nowhere any more
    child = subprocess.Popen([sys.executable, "-c", ENDS], stdout=subprocess.PIPE, stderr=writer, text=True,
                             env=dict(os.environ, PYTHONPATH=cluster.E2E))
    os.close(writer)
    assert child.stdout.readline() == "up\n"
    child.send_signal(number)
    assert child.communicate(timeout=300)[0] == "tidied\n"
    assert child.returncode == 128 + number


# --- work that yields ---------------------------------------------------------------

@pytest.fixture
def background():
    group = Background()
    if not group.switch:
        pytest.skip("no CPU controller of cgroup v1, or one without cpu.idle")
    yield group
    group.end()


def test_what_a_thread_starts_yields(background):
    """It and no other, as long as it is switched on; what is left at the end goes on outside."""
    inside = []

    def work():
        background.enter()
        inside.append(subprocess.Popen(["sleep", "60"]))  # pylint: disable=consider-using-with
        background.leave()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    outside = subprocess.Popen(["sleep", "60"])  # pylint: disable=consider-using-with
    try:
        tasks = pathlib.Path(background.folder, "tasks")
        assert tasks.read_text().split() == [str(inside[0].pid)]
        pathlib.Path(background.switch).write_text("1")
        assert pathlib.Path(background.switch).read_text() == "1\n"
        background.end()
        assert inside[0].poll() is None and not tasks.exists() and not background.switch
    finally:
        for one in (*inside, outside):
            one.kill()
            one.wait()


def test_a_group_ends_while_what_is_in_it_forks(background):
    forks = []

    def work():
        background.enter()
        forks.extend(subprocess.Popen(["sh", "-c", "while :; do true & wait; done"]) for _ in range(4))
        background.leave()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    try:
        background.end()
        assert not os.path.exists(background.folder) and [one.poll() for one in forks] == [None] * 4
    finally:
        for one in forks:
            one.kill()
            one.wait()
