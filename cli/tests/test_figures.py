"""`precisionprobe figures`: what is drawn is what the results say."""
import copy
import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

import pytest

RECORDINGS = pathlib.Path(__file__).parent / "recordings"
SVG = "{http://www.w3.org/2000/svg}"
METRICS = {"GPUUtil": 1, "DRAMActive": 100, "FP32Active": 100, "SMActive": 100, "SMOccupancy": 100, "TensorActive": 100}
BAR = re.compile(r"(.*) (forward|backward): (\w+) (-?[\d.e+]+) %(?:, standard error (-?[\d.]+)| of (.*) together)?$")
MISSING = re.compile(r"(.*) (forward|backward): (\w+) was not measured: (.*)$")


def figures(folder, *arguments):
    return subprocess.run([os.environ["PP_CLI"], "figures", "-o", folder, *arguments], capture_output=True, text=True, check=False)


def drawn(path):
    """([texts], {(layer, phase, metric): (width of the bar or None, its title)})."""
    root = xml.etree.ElementTree.parse(path).getroot()
    bars = {}
    for group in root.iter(f"{SVG}g"):
        title = group.find(f"{SVG}title").text
        bar = group.find(f"{SVG}rect")
        layer, phase, metric = (BAR.match(title) or MISSING.match(title)).groups()[:3]
        assert (layer, phase, metric) not in bars
        bars[layer, phase, metric] = (None if bar is None else float(bar.get("width")), title)
    return [text.text for text in root.iter(f"{SVG}text")], bars


def items_of(results, gpu=0):
    return [item for item in json.loads(results.read_text())["gpus"][gpu]["items"] if item["kind"] == "layer"]


def expected(item, metric):
    value = item["metrics"].get(metric) or {}
    scale = METRICS[metric]
    if value.get("mean") is not None:
        return f"{scale * value['mean']:.1f} %", value.get("standardError") and f"{scale * value['standardError']:.1f}"
    if value.get("groupMean") is not None:
        return f"{scale * value['groupMean']:.1f} %", None
    return None, None


@pytest.mark.parametrize("recording", ["demo", "h200", "sampling"])
def test_every_value_is_drawn(tmp_path, recording):
    assert figures(tmp_path, RECORDINGS / recording).returncode == 0
    bars = {**drawn(tmp_path / f"{recording}-gpu-util.svg")[1], **drawn(tmp_path / f"{recording}-metrics.svg")[1]}
    told = set()
    for item in items_of(RECORDINGS / recording / "results.json"):
        if item["phase"] not in ("forward", "backward") or not item["millisecondsPerStep"]:
            continue
        for metric in METRICS:
            width, title = bars[item["layer"], item["phase"], metric]
            told.add((item["layer"], item["phase"], metric))
            mean, error = expected(item, metric)
            assert (width is None) == (mean is None)
            assert mean is None or f": {metric} {mean}" in title
            assert error is None or title.endswith(f"standard error {error}")
            if mean is not None:
                assert width == pytest.approx((640 if metric == "GPUUtil" else 105.6) * min(float(mean[:-2]), 100) / 100, abs=0.4)
    assert told == set(bars) and len(told) >= 30


def test_layers_that_take_most_are_drawn_and_the_rest_is_told(tmp_path):
    assert figures(tmp_path, "--layers=3", RECORDINGS / "demo").returncode == 0
    texts, bars = drawn(tmp_path / "demo-metrics.svg")
    time = {}
    for item in items_of(RECORDINGS / "demo/results.json"):
        if item["phase"] in ("forward", "backward"):
            time[item["layer"]] = time.get(item["layer"], 0) + (item["millisecondsPerStep"] or 0)
    most = sorted(time, key=time.get)[-3:]
    assert {layer for layer, _, _ in bars} == set(most)
    rest = 100 * (1 - sum(time[layer] for layer in most) / sum(time.values()))
    left = sum(ms > 0 for ms in time.values()) - 3
    assert any(f"Not drawn: {left} layers with {rest:.1f} % of layers' time." in text for text in texts if text)


def test_rows_of_the_api_are_drawn_alike(tmp_path):
    rows = subprocess.run([os.environ["PP_CLI"], "report", "--format=json", RECORDINGS / "demo"], capture_output=True, check=True)
    (tmp_path / "layers.json").write_bytes(rows.stdout)
    assert figures(tmp_path / "a", tmp_path / "layers.json").returncode == 0
    assert figures(tmp_path / "b", RECORDINGS / "demo").returncode == 0
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["demo-gpu-util.svg", "demo-metrics.svg", "jobs.md", "jobs.svg"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


def test_jobs_side_by_side(tmp_path):
    told = figures(tmp_path, RECORDINGS / "demo", RECORDINGS / "h200", RECORDINGS / "demo")
    assert told.returncode == 0 and (tmp_path / "demo-2-metrics.svg").exists() and f"{tmp_path}/jobs.svg\n" in told.stdout
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in (tmp_path / "jobs.md").read_text().splitlines()]
    assert [row[0] for row in rows[2:]] == ["demo", "h200", "demo"] and rows[2] == rows[4]
    for row in rows[2:4]:
        gpu = json.loads((RECORDINGS / row[0] / "results.json").read_text())["gpus"][0]
        job, = (item["metrics"] for item in gpu["items"] if item["kind"] == "job")
        assert not gpu["countedSteps"] and row[2] == f"{gpu['stepMs']:.3f} ± {gpu['stepMsStandardError']:.3f}"
        for heading, cell in list(zip(rows[0], row))[4:]:
            value = job.get(heading.split(",")[0])
            assert cell == (f"{METRICS[heading.split(',')[0]] * value['mean']:.1f} ± "
                            f"{METRICS[heading.split(',')[0]] * value['standardError']:.1f}" if value else "–")
        layers = {item["layer"]: item["parameters"] for item in gpu["items"] if item["kind"] == "layer"}
        assert row[1] == f"{sum(p or 0 for p in layers.values()) / 1e6:.1f}"


def test_hostile_names_are_text(tmp_path):
    results = json.loads((RECORDINGS / "demo/results.json").read_text())
    name = "<script>alert(1)</script>&\"'\u202e\x07|*x*"
    for item in results["gpus"][0]["items"]:
        if item["layer"] == "top.0":
            item["layer"] = name
    (tmp_path / "a|b.json").write_text(json.dumps(results))
    assert figures(tmp_path / "out", tmp_path / "a|b.json").returncode == 0
    text = (tmp_path / "out/a_b-metrics.svg").read_text()
    assert "<script" not in text and "\u202e" not in text and "\x07" not in text
    _, bars = drawn(tmp_path / "out/a_b-metrics.svg")
    assert any(layer == "<script>alert(1)</script>&\"'??|*x*" for layer, _, _ in bars)
    assert "| a\\|b |" in (tmp_path / "out/jobs.md").read_text()


def test_names_stay_utf8(tmp_path):
    """Controls of several bytes, and a name that is cut within a character."""
    names = ["turned \u202e \u0085 \u2066", "a" + "é" * 120]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_bytes((RECORDINGS / "demo/results.json").read_bytes())
    assert figures(tmp_path / "out", *(tmp_path / name for name in names)).returncode == 0
    texts = {file.name: file.read_bytes().decode() for file in (tmp_path / "out").iterdir()}
    assert all(told in texts["jobs.md"] for told in ("| turned ? ? ? |", f"| {names[1]} |")) and f"a{'é' * 99}: GPUUtil" in texts["jobs.svg"]
    for text in texts.values():
        assert "\u202e" not in text and "\u0085" not in text


def test_bad_input(tmp_path):
    (tmp_path / "none.json").write_text('{"items": []}')
    (tmp_path / "other.json").write_text('{"a": 1}')
    for arguments, words in ((["none.json"], "items has no layer"), (["other.json"], "gpus is missing"),
                             (["absent"], "No such file"), (["--layers=0", "none.json"], "--layers must be a number"),
                             ([], "which folder?")):
        told = figures(tmp_path / "out", *[a if a.startswith("-") else tmp_path / a for a in arguments])
        assert told.returncode == 1 and words in told.stderr, told.stderr
    rows = {"items": [{"kind": "layer", "layer": 7, "phase": "forward", "ms_per_step": "x", "metrics": []}, 3, None]}
    (tmp_path / "odd.json").write_text(json.dumps(rows))
    assert figures(tmp_path / "out", tmp_path / "odd.json").returncode == 0
    odd = copy.deepcopy(rows)
    odd["items"][0].update(layer="a", ms_per_step=1, metrics={"gpu_util": {"mean": 1e300, "stderr": -5}})
    (tmp_path / "huge.json").write_text(json.dumps(odd))
    assert figures(tmp_path / "out", tmp_path / "huge.json").returncode == 0
    assert drawn(tmp_path / "out/job-gpu-util.svg")[1]["a", "forward", "GPUUtil"][0] == 640
