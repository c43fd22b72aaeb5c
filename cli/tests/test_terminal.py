"""`precisionprobe report` on a real terminal of few columns (tmux).

PP_CLI  the program precisionprobe
"""
import os
import pty
import re
import subprocess

import pytest

import folder
import terminal
from test_files import RECORDINGS, written

CLI = os.environ["PP_CLI"]
DEEP = [f"{side}.layers.{n}.{part}" for side in ("encoder", "decoder") for n in (1, 10, 11)
        for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj")]
# No cut of so few places out of the middle leaves these apart: they differ at their begins, ends and middles.
UNLIKE = [f"{'ab'[a]}{'x' * 30}{'cd'[c]}{'y' * 30}{'ef'[e]}" for a in range(2) for c in range(2) for e in range(2)]


def layer(name, phase="forward", ms=1.0, **more):
    value = {"mean": 0.5, "standardError": 0.01, "method": "sampling", "basis": "busy", "reason": None}
    return {"kind": "layer", "layer": name, "type": "Linear", "phase": phase, "calls": 10, "totalNs": int(ms * 1e7),
            "millisecondsPerStep": ms, "leastMillisecondsPerStep": ms, "share": ms / 100, "busyNs": int(ms * 1e7),
            "busyMillisecondsPerStep": ms, "idleShare": 0.0, "bound": "Memory", "boundLikely": 0.99,
            "metrics": {name: value for name in ("SMActive", "SMOccupancy", "DRAMActive", "FP32Active")}, **more}


def of_layers(tmp_path, items):
    gpu = {"gpu": folder.GPU, "steps": 10, "stepMs": 100.0, "items": items}
    return folder.write(tmp_path / "made", {**folder.RESULTS, "gpus": [gpu]})


def rows_of(lines):
    """The table's rows: what stands between its columns' names and the line that says what has no place."""
    begin = next(i for i, line in enumerate(lines) if line.startswith("layer "))
    end = next(i for i, line in enumerate(lines) if line.startswith("no place in "))
    return lines[begin + 1:end]


@pytest.mark.parametrize("recording", ["sampling", "h200", "demo", "regression", "replay"])
def test_recordings_in_80_columns(recording):
    """A line for each row, whose time and share are those of the table without limits."""
    lines = terminal.read([CLI, "report", RECORDINGS / recording])
    whole = written(RECORDINGS / recording).splitlines()
    rows, of_whole = rows_of(lines), [line for line in whole if re.search(r"[0-9]% +[0-9-]", line) or line.startswith("job ")]
    assert len([row for row in rows if not row.startswith("not listed")]) == len(of_whole)
    for row, wide in zip(rows, of_whole):
        assert row.split()[0] == wide.split()[0] and len(row) <= 80
        idle = re.search(r"([0-9.]+|≤[0-9.]+)(±[0-9.]+)? +[0-9.]+% +(≤?)[0-9.]+%", row)
        assert not idle or row.startswith("job ") or idle[1].startswith("≤") == bool(idle[3]), row
        assert re.findall(r"≤?[0-9]+\.[0-9]{3} +[0-9.]+%", row)[:1] == re.findall(r"≤?[0-9]+\.[0-9]{3} +[0-9.]+%", wide)[:1]


def test_the_headline_comes_before_the_table_and_after_all():
    lines = " ".join(terminal.read([CLI, "report", RECORDINGS / "h200"], columns=300))
    assert re.search(r"costliest layer: products, 21.4 % of a step \(149.940 ms, most of it forward: 129.175±0.040 ms\); bound by FP32 pipes "
                     r"\(more than 99.9 % sure\) +\(percent ± standard error; .*\) layer .* costliest layer: products, ", lines)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
def test_names_stay_apart(tmp_path, columns):
    lines = terminal.read([CLI, "report", of_layers(tmp_path, [layer(name) for name in DEEP])], columns, rows=80)
    names = [line.split()[0] for line in lines if line.startswith(("enc", "dec"))]
    assert len(set(names)) == len(names) == len(DEEP) and max(map(len, names)) <= max(columns, 31)
    assert any("…" in name for name in names) == (columns in (60, 80, 100))
    for shown, name in zip(names, DEEP):
        begin, _, end = shown.partition("…")
        assert name.startswith(begin) and name.endswith(end)


def test_names_that_no_cut_leaves_apart_are_whole(tmp_path):
    rows = rows_of(terminal.read([CLI, "report", of_layers(tmp_path, [layer(name) for name in [*UNLIKE, "short"]])], rows=80))
    assert rows[0::2][:len(UNLIKE)] == UNLIKE and all(row.lstrip().startswith("forward") for row in rows[1:2 * len(UNLIKE):2])
    assert rows[2 * len(UNLIKE)].split()[:2] == ["short", "forward"]


def test_what_has_no_place_is_said(tmp_path):
    at = of_layers(tmp_path, [layer("bottom"), layer("top")])
    lines = terminal.read([CLI, "report", at])
    heading = next(line for line in lines if line.startswith("layer "))
    assert heading.split() == ["layer", "phase", "ms/step", "share", "idle", "DRAM", "FP32", "bound"]
    assert "no place in 80 columns: calls, type, SMOcc., SMActive, busy ms" in lines
    wide = "\n".join(terminal.read([CLI, "report", at], columns=200))
    assert "no place" not in wide and "FP32" in wide and "Linear" in wide
    least = terminal.read([CLI, "report", at], columns=40)
    assert any(line.split() == ["layer", "phase", "ms/step", "share"] for line in least)


def test_hostile_names_do_nothing(tmp_path):
    at = of_layers(tmp_path, [layer("a\x1b[2J\x1b[31m\x9b5;5H\u202eb", ms=2.0)])
    lines = terminal.read([CLI, "report", at])
    assert any(line.startswith("costliest layer: a?[2J?[31m?5;5H?b, 2.0 %") for line in lines)


def test_progress_is_shown_and_taken_away(tmp_path):
    """What a terminal gets begins with it, and nothing of it is left; off a terminal there is none."""
    at = of_layers(tmp_path, [layer("a", ms=2.0)])
    with terminal.terminal(80, 24) as of:
        of.keys(f"clear; '{CLI}' report '{at}' 2>{tmp_path / 'error'} | cat; '{CLI}' report '{at}'; echo status=$?", "Enter")
        lines = of.wait(lambda lines: "status=0" in lines)
    assert not any("reading" in line for line in lines) and (tmp_path / "error").read_bytes() == b""
    ours, its = pty.openpty()
    subprocess.run([CLI, "report", at, at], stdout=subprocess.DEVNULL, stderr=its, timeout=60, check=True)
    os.close(its)
    told = os.read(ours, 65536).decode()
    assert told.startswith("\r\x1b[Kreading /") and told.endswith("\r\x1b[K") and "(2 of 2)" in told
    os.close(ours)
