"""`precisionprobe top` on a real terminal of 80 columns (tmux), and off one.

PP_CLI          the program precisionprobe
PP_SOLVE_AGAIN  the program solve_again
"""
import json
import os
import re
import signal
import subprocess
import time

import pytest

import folder
import simulated
import terminal
from test_files import RECORDINGS
from test_terminal import CLI, DEEP, layer, of_layers

MARK = "before it began"


def top(of, *arguments):
    """Starts it behind a line of the shell's own screen."""
    of.keys(f"echo {MARK}; '{CLI}' top {' '.join(map(str, arguments))}; echo status=$?", "Enter")
    of.wait(lambda lines: any(line.startswith("layer ") for line in lines))


def is_given_back(of, status):
    """The shell's screen is there again, with its cursor and echo."""
    lines = of.wait(lambda lines: f"status={status}" in lines)
    assert any(line.endswith(MARK) and "echo" not in line for line in lines) and not any(line.startswith("layer ") for line in lines)
    assert (of.value("alternate_on"), of.value("cursor_flag")) == ("0", "1")
    of.keys("echo typed", "Enter")
    of.wait(lambda lines: "$ echo typed" in lines and "typed" in lines)


def pid_of_top(of):
    shell = of.value("pane_pid")
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", shell], capture_output=True, text=True, check=True).stdout
    return int(next(line.split()[0] for line in found.splitlines() if " top " in line))


def test_layers_by_time_with_errors(tmp_path):
    at = simulated.training(tmp_path / "run", seed=3)
    with terminal.terminal(80, 24) as of:
        top(of, at)
        lines = of.screen()
        assert of.value("alternate_on") == "1" and of.value("cursor_flag") == "0"
        assert re.match(r"GPU-11111111-: 60 marked steps of \d+\.\d{3}±\d+\.\d{3} ms$", lines[1])
        assert lines[2].split() == ["layer", "phase", "ms/step", "share", "idle", "bound"]
        assert [line.split()[0] for line in lines[3:7]] == ["top", "bottom", "embedding", "head"]
        row = simulated.told(at, "top")
        assert lines[3].split()[2] == f"{row['millisecondsPerStep']:.3f}±{row['millisecondsPerStepStandardError']:.3f}"
        of.keys("q")
        is_given_back(of, 0)


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)])
def test_signals_give_the_terminal_back(number, status):
    with terminal.terminal() as of:
        top(of, RECORDINGS / "h200")
        if number == signal.SIGINT:
            of.keys("C-c")
        else:
            os.kill(pid_of_top(of), number)
        is_given_back(of, status)


def test_it_ends_with_its_terminal():
    with terminal.terminal() as of:
        top(of, RECORDINGS / "h200")
        pid = pid_of_top(of)
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_stopped_and_continued():
    """In the background the terminal is the shell's; in front again it draws."""
    with terminal.terminal() as of:
        top(of, RECORDINGS / "h200")
        of.keys("C-z")
        of.wait(lambda lines: any("Stopped" in line for line in lines))
        assert of.value("cursor_flag") == "1" and of.value("alternate_on") == "0"
        of.keys("fg", "Enter")
        of.wait(lambda lines: any(line.startswith("layer ") for line in lines))
        of.keys("q")
        of.wait(lambda lines: any(line.startswith("status=") for line in lines) or lines[-1].startswith("$"))
        assert (of.value("alternate_on"), of.value("cursor_flag")) == ("0", "1")


def test_it_looks_again(tmp_path):
    """A row that changes is shown as it is now; a file that cannot be read is told, and what was there stays."""
    at = of_layers(tmp_path, [layer("slow", ms=4.0), layer("fast", ms=1.0)])
    with terminal.terminal() as of:
        top(of, at, "--interval=0.1")
        of.wait(lambda lines: lines[3].startswith("slow"))
        of_layers(tmp_path, [layer("slow", ms=4.0), layer("fast", ms=9.0)])
        of.wait(lambda lines: lines[3].startswith("fast") and "9.000" in lines[3])
        (at / "results.json").write_text("{")
        of.wait(lambda lines: lines[0].startswith(f"{at}: ") and lines[3].startswith("fast"))
        of_layers(tmp_path, [layer("slow", ms=2.0)])
        of.wait(lambda lines: lines[0] == str(at) and lines[3].startswith("slow") and not any("fast" in line for line in lines))
        of.keys("q")
        is_given_back(of, 0)


def test_a_run_that_is_still_written(tmp_path):
    """Without results.json, from the batches so far."""
    whole = folder.write(tmp_path / "run")
    lines = (whole / "batches.jsonl").read_text().splitlines(keepends=True)
    for name in ("results.json", "samples.jsonl"):
        (whole / name).unlink()
    (whole / "batches.jsonl").write_text("".join(lines[:2]))
    with terminal.terminal() as of:
        top(of, whole, "--interval=0.1")
        of.wait(lambda shown: "20 marked steps of 1000.000±0.000 ms" in shown[1])
        (whole / "batches.jsonl").write_text("".join(lines[:3]) + lines[3][:50])
        of.wait(lambda shown: shown[0] == str(whole) and "30 marked" in shown[1])
        (whole / "batches.jsonl").write_text("".join(lines[:3]) + "{\n")
        of.wait(lambda shown: len(shown[0]) > len(str(whole)) and "30 marked" in shown[1])
        (whole / "batches.jsonl").write_text("".join(lines))
        of.wait(lambda shown: "60 marked steps" in shown[1] and shown[3].split()[:3] == ["bottom", "forward", "430.000±0.000"])


def test_no_more_rows_than_there_is_place_for(tmp_path):
    at = of_layers(tmp_path, [layer(name, ms=100 - i) for i, name in enumerate(DEEP)])
    with terminal.terminal(80, 12) as of:
        top(of, at)
        lines = of.screen()
        names = [line.split()[0] for line in lines[3:]]
        assert len(lines) <= 12 and len(names) == 8 and len(set(names)) == 8 and all(len(line) <= 80 for line in lines)
        of.tmux("resize-window", "-x", "60", "-y", "20")
        of.wait(lambda shown: sum("forward" in line for line in shown) == 16 and all(len(line) <= 60 for line in shown))


def test_off_a_terminal(tmp_path):
    """Lines, without escape codes, of all rows; as often as it was asked for."""
    at = of_layers(tmp_path, [layer("a\x1b[2J", ms=2.0), layer("b", ms=1.0)])
    told = subprocess.run([CLI, "top", "--times=2", "--interval=0.1", at], capture_output=True, text=True, timeout=60, check=True)
    assert "\x1b" not in told.stdout and told.stdout.count("a?[2J") == 2 and told.stdout.count(f"{at}\n") == 2
    gone = subprocess.run([CLI, "top", tmp_path / "nowhere"], capture_output=True, text=True, timeout=60, check=False)
    assert gone.returncode == 1 and "No such file" in gone.stderr


@pytest.mark.parametrize("option, why", [("--interval=0", "--interval must be a number from 0.1 to 86400, not 0"), ("--interval=1e30", "--interval must be a number from 0.1 to 86400, not 1e30"),
                                         ("--times=x", "--times must be a number from 1 to 1e+09, not x"),
                                         ("--sort=x", "--sort must be layer, type")])
def test_wrong_options(option, why):
    told = subprocess.run([CLI, "top", option, RECORDINGS / "h200"], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1 and why in told.stderr


def test_several_gpus(tmp_path):
    gpus = [{"gpu": f"GPU-{i}", "steps": 10, "stepMs": 100.0, "items": [layer(f"of{i}", ms=2.0)]} for i in range(2)]
    at = folder.write(tmp_path / "two", {**folder.RESULTS, "gpus": gpus})
    told = subprocess.run([CLI, "top", "--times=1", at], capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(r"GPU-0: .*\nlayer .*\nof0 .*\nGPU-1: .*\nlayer .*\nof1 ", told) and json.loads((at / "results.json").read_text())
