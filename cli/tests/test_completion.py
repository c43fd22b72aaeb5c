"""Completion in a real bash and a real zsh: what Tab makes of a line is what the program's options are.

PP_CLI  the program precisionprobe
"""
import os
import re
import shutil
import subprocess

import pytest

import terminal
from test_terminal import CLI

VERBS = ["run", "report", "figures", "top", "import", "trace"]


def complete(*words, program=CLI):
    return subprocess.run([program, "complete", *words], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


@pytest.fixture(params=["bash", "zsh"])
def shell(request, tmp_path):
    """One that has the program in its PATH and has read its completion, in a terminal."""
    program = shutil.which(request.param)
    if not program:
        pytest.skip(f"there is no {request.param}")
    os.symlink(CLI, tmp_path / "precisionprobe")
    os.symlink(CLI, tmp_path / "kubectl-precisionprobe")
    (tmp_path / "layers.json").write_text("{}")
    begin = {"bash": [program, "--norc", "--noprofile"], "zsh": [program, "-f"]}[request.param]
    with terminal.terminal(100, 40) as of:
        of.tmux("respawn-pane", "-k", "-c", str(tmp_path), f"env PATH={tmp_path}:$PATH PS1='> ' KUBECONFIG=/nonexistent {' '.join(begin)}")
        if request.param == "zsh":
            of.keys("autoload -Uz compinit && compinit -u -d ./dump; PROMPT='> '; source <(precisionprobe completion zsh); clear", "Enter")
        else:
            of.keys("bind 'set bell-style none'; source <(precisionprobe completion bash); clear", "Enter")
        of.wait(lambda lines: lines == [">"] or lines == ["> "])
        yield of


def typed(of, text, becomes):
    """What a line becomes by Tab."""
    of.keys(text, "Tab")
    of.wait(lambda lines: any(re.sub(r"\s+$", "", line) == f"> {becomes}" for line in lines))
    of.keys("C-u")
    of.keys("clear", "Enter")
    of.wait(lambda lines: [line.strip() for line in lines] == [">"])


def test_a_line_becomes(shell):
    typed(shell, "precisionprobe rep", "precisionprobe report")
    typed(shell, "precisionprobe report --comp", "precisionprobe report --compare=")
    typed(shell, "precisionprobe report --format=par", "precisionprobe report --format=parquet")
    typed(shell, "precisionprobe report --format par", "precisionprobe report --format parquet")
    typed(shell, "precisionprobe report --al", "precisionprobe report --all")
    typed(shell, "precisionprobe report lay", "precisionprobe report layers.json")
    typed(shell, "kubectl-precisionprobe doc", "kubectl-precisionprobe doctor")
    typed(shell, "kubectl-precisionprobe start --dur", "kubectl-precisionprobe start --duration=")
    typed(shell, "kubectl-precisionprobe report --system=x --dep", "kubectl-precisionprobe report --system=x --depth=")


def test_what_is_offered_is_listed(shell):
    shell.keys("precisionprobe report --s", "Tab", "Tab")
    shell.wait(lambda lines: "--set=" in " ".join(lines) and "--sort=" in " ".join(lines))


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_those_of_help(verb):
    shown = subprocess.run([CLI, verb, "--help"], capture_output=True, text=True, timeout=60, check=True,
                           env={**os.environ, "COLUMNS": "200"}).stdout
    of_help = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z-]*)", shown, re.M)) - {"usage", "help"}
    offered = {word.removeprefix("--").removesuffix("=") for word in complete(verb, "--")} - {"help"}
    assert offered == of_help and offered


@pytest.mark.parametrize("verb", ["start", "status", "report", "top", "pattern", "open", "doctor"])
def test_options_of_the_plugin(verb):
    shown = subprocess.run([CLI, "kubectl", verb, "--help"], capture_output=True, text=True, timeout=60, check=True,
                           env={**os.environ, "COLUMNS": "200"}).stdout
    of_help = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z-]*)", shown, re.M)) - {"usage", "help"}
    offered = {word.removeprefix("--").removesuffix("=") for word in complete("kubectl", verb, "--")} - {"help"}
    assert offered == of_help


def test_values(tmp_path):
    shown = subprocess.run([CLI, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert set(complete("")) == set(re.findall(r"precisionprobe (\w+)", shown)) | {"complete"} - {"complete"}
    for column in complete("report", "--sort="):
        told = subprocess.run([CLI, "report", column, tmp_path / "nowhere"], capture_output=True, text=True, timeout=60, check=False)
        assert "No such file" in told.stderr
    assert complete("run", "--method", "R") == ["Regression", "Replay"] and complete("run", "--phase=B") == ["--phase=Backward"]
    assert "orion" in complete("report", "--format", "") and "SMActive" in complete("run", "--metric", "SM")
    assert not complete("run", "--method", "Auto", "--", "python3", "--v") and not complete("report", "") and not complete("frob", "--")
    assert complete("completion", "z") == ["zsh"]


def test_kubectl_asks_by_another_name(tmp_path):
    """As kubectl completes plugins: the words, then a directive."""
    program = tmp_path / "kubectl_complete-precisionprobe"
    os.symlink(CLI, program)
    told = subprocess.run([program, "do"], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "doctor\n:4\n"
    told = subprocess.run([program, "start", "--dr"], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "--dry-run\n:4\n"


def test_other_shells():
    told = subprocess.run([CLI, "completion", "fish"], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1 and told.stderr == "usage: precisionprobe completion bash|zsh\n"
