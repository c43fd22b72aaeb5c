"""`precisionprobe report`: the kernels below the table's rows, how sure times are, and what is no folder of results.

PP_CLI  the program precisionprobe
"""
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

import folder

ELEMENTWISE = ("void at::native::vectorized_elementwise_kernel<4, at::native::{0}<float>, std::array<char*, 3ul> >"
               "(int, at::native::{0}<float>, std::array<char*, 3ul>)")
KERNELS = [(ELEMENTWISE.format("CUDAFunctor_add"), 2, 3.0), (ELEMENTWISE.format("CUDAFunctor_mul"), 4, 1.5),
           ("evil\x1b[2J\x9bH\r", 1, 0.9), ("", 7, 0.6)]


def results(tmp_path, kernels=KERNELS):
    told = [{"name": name, "callsPerStep": calls, "millisecondsPerStep": ms} for name, calls, ms in kernels]
    item = {"kind": "layer", "layer": "bot.0", "type": "Linear", "phase": "forward", "calls": 60, "millisecondsPerStep": 7.0,
            "busyReason": None if kernels else "no kernels were recorded", **({"kernels": told} if kernels else {})}
    gpu = {"gpu": "GPU-a", "steps": 60, "stepMs": 10.0, "items": [item]}
    return folder.write(tmp_path / "results", {**folder.RESULTS, "gpus": [gpu]})


def report(*arguments):
    told = subprocess.run([os.environ["PP_CLI"], "report", *map(str, arguments)], capture_output=True, timeout=60)
    return told.returncode, told.stdout.decode(), told.stderr.decode()


def on_terminal(columns, *arguments):
    """What a terminal of so many columns gets."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen([os.environ["PP_CLI"], "report", *map(str, arguments)], stdout=its) as child:
        os.close(its)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:
            pass  # so a terminal ends
        os.close(ours)
        assert child.wait(60) == 0
    return text.decode().replace("\r\n", "\n")


def kernels_of(text):
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("bot.0 "))
    return [line for line in lines[at + 1:] if line.startswith("    ")]


def test_kernels_are_below_their_row(tmp_path):
    at = results(tmp_path)
    lines = kernels_of(report("--kernels", at)[1])
    assert lines == [
        "        2.00     3.000   50.0%  at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >",
        "        4.00     1.500   25.0%  at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_mul<float>, std::array<char*, 3ul> >",
        "        1.00     0.900   15.0%  evil?[2J?H?"]
    assert kernels_of(report("--kernels=2", at)[1]) == lines[:2]
    assert kernels_of(report(at, "--kernels=20")[1])[3] == "        7.00     0.600   10.0%  (not told apart)"
    assert not kernels_of(report(at)[1])


@pytest.mark.parametrize("columns", [64, 80, 100])
def test_on_a_terminal(tmp_path, columns):
    text = on_terminal(columns, "--kernels", results(tmp_path))
    one, other, hostile = kernels_of(text)
    assert len(one) == len(other) == columns and "…" in one and one[32:] != other[32:]
    assert hostile.endswith("  evil?[2J?H?") and not any(c < " " and c != "\n" or "\x7f" <= c < "\xa0" for c in text)


def test_none_are_known(tmp_path):
    at = results(tmp_path, [])
    assert "\nkernels are not known: no kernels were recorded\n" in report("--kernels", at)[1]
    assert "kernels are not known" not in report(at)[1]


def test_a_run_that_is_still_written(tmp_path):
    at = results(tmp_path)
    (at / "results.json").unlink()
    assert report(at) == (1, "", f"precisionprobe: {at} has no results.json yet: its run still writes, or ended without results. "
                          f"What it has so far: precisionprobe top {at}\n")
    (at / "batches.jsonl").unlink()
    assert report(at) == (1, "", f"precisionprobe: {at} is no folder of results: there is no results.json in it\n")


def test_what_is_no_results(tmp_path):
    at = results(tmp_path)
    (at / "layers.csv").write_text("gpu,kind\n")
    assert report(at / "layers.csv")[2] == (f"precisionprobe: {at}/layers.csv: not JSON: line 1: invalid token near 'gpu'. "
                                            "It is no folder of results, nor the results.json of one\n")
    assert report("--kernels", "3", at)[2] == (
        'precisionprobe: there is no file or folder "3": No such file or directory. A number of kernels goes as --kernels=3\n')
    assert report("--kernels", "nowhere")[2] == 'precisionprobe: there is no file or folder "nowhere": No such file or directory\n'


def test_how_sure_times_are_where_that_is_known(tmp_path):
    def of(phases, errors, **more):
        known = {"millisecondsPerStepStandardError": 0.25} if errors else {}
        rows = [{"kind": "layer", "layer": "a", "type": "Linear", "phase": phase, "share": 0.3, "millisecondsPerStep": ms, **known} for phase, ms in phases]
        told = {"gpu": "GPU-a", "steps": 60, "stepMs": 10.0, "items": rows, **({"stepMsStandardError": 0.5} if errors else {}), **more}
        return report(folder.write(tmp_path / "results", {**folder.RESULTS, "gpus": [told]}))[1]

    one, both = [("forward", 3.0)], [("forward", 3.0), ("backward", 4.0)]
    assert "\nGPU-a: 60 steps of 10.000±0.500 ms\ncostliest layer: a, 30.0 % of a step (3.000±0.250 ms); " in of(one, True)
    assert "\nGPU-a: 60 steps of 10.000 ms\ncostliest layer: a, 30.0 % of a step (3.000 ms); " in of(one, False)
    assert "% of a step (7.000 ms, most of it backward: 4.000±0.250 ms); " in of(both, True)
    assert "% of a step (7.000 ms, most of it backward); " in of(both, False)
    counted = of(one, True, countedSteps=200, countedStepMs=9.0, countedStepMsStandardError=0.125)
    assert "\nGPU-a: 200 steps of 9.000±0.125 ms; 60 more were marked, of 10.000±0.500 ms\n" in counted


@pytest.mark.parametrize("number", ["0", "21", "x", "", "3x", "-1", "99999999999999999999"])
def test_wrong_numbers(number):
    code, _, why = report(f"--kernels={number}", "nowhere")
    assert code == 1 and why == f"precisionprobe: --kernels must be 1 to 20, not {number}\n"
