"""`precisionprobe report --format html`: a page by itself, with the numbers of the other formats.

PP_CLI  the program precisionprobe
"""
import html.parser
import json

import pytest

import folder
from test_files import RECORDINGS, written
from test_terminal import layer, of_layers

VOID = {"meta"}
HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)> javascript:x \x1b[2J \u202e"


class Page(html.parser.HTMLParser):
    """Elements in order, with their attributes and text; fails where they do not nest."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attributes": dict(attrs), "text": "", "data": []}
        self.elements.append(element)
        if tag == "data":
            self.open[-1]["data"].append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def of(self, *tags):
        return [element for element in self.elements if element["tag"] in tags]

    def rows(self):
        """Of the first table: {column: cell}, a row each."""
        at = [i for i, element in enumerate(self.elements) if element["tag"] == "tr"]
        cells = [[e for e in self.elements[a + 1:b] if e["tag"] in ("th", "td")] for a, b in zip(at, [*at[1:], len(self.elements)])]
        columns = [cell["text"] for cell in cells[0]]
        return [dict(zip(columns, row, strict=True)) for row in cells[1:]]


def page(*arguments):
    return Page(written("--format=html", *arguments))


def shown(cell):
    return [float(element["attributes"]["value"]) for element in cell["data"]]


def check_metrics(row, item):
    for name, value in item["metrics"].items():
        cell = row.get(f"{NAMES.get(name)}, %")
        if not cell:
            continue
        if value["mean"] is not None:
            assert shown(cell) == [told for told in (value["mean"], value["stderr"]) if told is not None]
        elif value["group_mean"] is not None:
            assert shown(cell) == [value["group_mean"]] and cell["attributes"]["title"] == f"known only together: {value['group_name']}"
        else:
            assert cell["text"] == "not known" and cell["attributes"].get("title") == value["reason"]


NAMES = {"sm_active": "SMActive", "sm_occupancy": "SMOccupancy", "dram_active": "DRAMActive", "fp32_active": "FP32Active",
         "tensor_active": "TensorActive", "gpu_util": "GPUUtil"}


@pytest.mark.parametrize("recording", ["sampling", "h200", "demo", "regression", "replay"])
def test_numbers_are_those_of_json_to_the_last_digit(recording):
    items = [item for item in json.loads(written("--format=json", RECORDINGS / recording))["items"]
             if item["kind"] != "layer" or max(item["ms_per_step"], item["busy_ms_per_step"] or 0) >= 0.0005]
    rows = page(RECORDINGS / recording).rows()
    assert len(rows) == len(items) > 5
    for row, item in zip(rows, items):
        assert row["layer"]["text"] == (item["layer"] if item["kind"] == "layer" else item["kind"])
        if item["kind"] != "job":
            assert shown(row["ms a step"]) == [item["ms_per_step"]] and shown(row["share"]) == [item["share"]]
            assert shown(row["busy ms"]) == ([] if item["busy_ms_per_step"] is None else [item["busy_ms_per_step"]])
            assert shown(row["idle"]) == ([] if item["idle_share"] is None else [item["idle_share"]])
        if "bound by" in row and item["bound"]:
            assert shown(row["bound by"]) == [item["bound_likely"]]
        check_metrics(row, item)


def test_nothing_is_wholly_sure():
    text = written("--format=html", RECORDINGS / "h200")
    assert ">more than 99.9</data> % sure)" in text and ">100.0</data> % sure" not in text


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    """Also with names that try."""
    at = of_layers(tmp_path, [layer(HOSTILE, ms=5.0, bound=HOSTILE, busyReason=HOSTILE), layer("b", metrics={
        "SMActive": {"mean": None, "reason": HOSTILE}, "FP32Active": {"mean": None, "groupMean": 0.5, "group": HOSTILE}})])
    of = page(at)
    tags = {element["tag"] for element in of.elements}
    assert tags <= {"html", "head", "meta", "title", "style", "body", "main", "h1", "section", "h2", "p", "div", "table", "caption",
                    "thead", "tbody", "tr", "th", "td", "data", "abbr", "pre"}
    names = {name for element in of.elements for name in element["attributes"]}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "tabindex", "role", "aria-label", "scope", "value", "title"}
    policy = next(e["attributes"]["content"] for e in of.of("meta") if "http-equiv" in e["attributes"])
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    style = of.of("style")[0]["text"]
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme:dark" in style
    assert of.rows()[0]["layer"]["text"] == HOSTILE.replace("\x1b", "?").replace("\u202e", "?")


def test_a_screen_reader_reads_the_table():
    of = page(RECORDINGS / "sampling")
    assert of.of("html")[0]["attributes"]["lang"] == "en" and len(of.of("h1")) == 1 and len(of.of("main")) == 1
    assert len(of.of("caption")) == len(of.of("table")) == 1
    assert all(cell["attributes"].get("scope") in ("col", "row") for cell in of.of("th"))
    assert all(len([cell for cell in row.values() if cell["tag"] == "th"]) == 1 for row in of.rows())


def test_headline_quality_and_several_trainings(tmp_path):
    of = page(RECORDINGS / "h200", RECORDINGS / "demo")
    headlines = [e["text"] for e in of.of("p") if e["attributes"].get("class") == "headline"]
    assert headlines[0].startswith("costliest layer: products, 21.4 %") and headlines[1].startswith("costliest layer: top.0, ")
    assert any("held out and predicted: SMActive 98.9%" in e["text"] for e in of.of("pre"))
    assert any("host waits: cuda.synchronize() in models.py:54" in e["text"] for e in of.of("pre"))
    assert [e["text"] for e in of.of("h2")] == ["h200", "demo"]
    none = page(folder.write(tmp_path / "none", {**folder.RESULTS, "unsampled": "no <GPU>"}))
    assert any("No step was sampled. no <GPU>" in e["text"] for e in none.of("p"))
