"""The page in a real Chromium, served by the operator on a real Postgres: every number that it shows is the database's, names that
are made to harm are text, and whoever needs a keyboard, a screen reader or the dark can read it (axe).

PP_BROWSER      a folder with the packages of page.txt; without it nothing is tried
PP_PAGE         a node_modules with axe-core, as e2e/setup --page prints it
PP_SCREENSHOTS  a folder for pictures of what was tested; without it none are made
"""
import collections
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import math
import os
import pathlib
import random
import re
import socket
import ssl
import subprocess
import threading

import conftest
import figures
import pytest
import test_hostile
from conftest import quoted
from harness.alone import HOST, Connection, psql
from harness.browser import Page, chromium

pytestmark = pytest.mark.skipif(not os.environ.get("PP_BROWSER"), reason="PP_BROWSER is not set")
AXE = pathlib.Path(os.environ.get("PP_PAGE", "")) / "axe-core/axe.min.js"
SERIOUS = ("serious", "critical")
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SESSIONS = ("h200", "sampling", "made")
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
          "frame-ancestors 'none'; form-action 'none'")


# --- what is served ---------------------------------------------------------------

def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


VARIED, CHANGED = "varied", ("top.2", "forward")  # the sampling's recording, and what is changed of it


def varied(place):
    """The same training another day: one layer's SMActive is a tenth more."""
    conftest.recorded(place, "sampling")
    lines = [json.loads(line) for line in (place / "batches.jsonl").read_text().splitlines()]
    changed = 0
    for batch in lines:
        names = {layer["id"]: layer["name"] for layer in batch["layers"]}
        fine = batch.get("fine")
        for n in range(len(fine["layer"])) if fine else ():
            if (names.get(fine["layer"][n]), fine["phase"][n]) == (CHANGED[0], 0):
                fine["smActive"][n] = round(1.1 * fine["smActive"][n])
                changed += 1
    assert changed
    (place / "batches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for file in place.iterdir():
        file.write_text(file.read_text().replace("GPU-73616d70", "GPU-76617269"))
    return place


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    folders = {name: conftest.recorded(place / name, name) for name in SESSIONS if name != "made"}
    folders["made"] = conftest.made(place / "made")
    folders[VARIED] = varied(place / VARIED)
    folders[test_hostile.WORKLOAD] = test_hostile.write(place / "hostile", test_hostile.ALL)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(conftest.solved, folders.values()))
    for one in conftest.serve(folders, page__openPort=free_port()):
        one.page = f"https://127.0.0.1:{one.operator.port}/page/"
        yield one


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def page(served, browser):
    one = Page(browser, served.page, "all")
    yield one
    one.close()


@pytest.fixture
def afterwards(served):
    """Takes statements of SQL that are run at the end, however that comes."""
    statements = []
    yield statements.append
    for one in reversed(statements):
        psql(served.conninfo, one)


@pytest.fixture
def varied_kept(served):
    """Times and phase of the session that varies are as they were, afterwards."""
    of = f"session_uid = (SELECT uid FROM session WHERE name = '{VARIED}')"
    psql(served.conninfo, f"CREATE TABLE kept AS SELECT * FROM item WHERE {of}")
    yield
    psql(served.conninfo, f"UPDATE item i SET total_ns = k.total_ns FROM kept k WHERE (i.session_uid, i.pod_uid, i.gpu_uuid, i.kind, i.layer, i.phase) "
                          f"= (k.session_uid, k.pod_uid, k.gpu_uuid, k.kind, k.layer, k.phase); DROP TABLE kept; "
                          f"UPDATE attribution SET revision = revision + 1 WHERE {of}; UPDATE session SET phase = 'Succeeded' WHERE name = '{VARIED}'")


@pytest.fixture
def taken(served, afterwards):
    """Takes activity of a session away, of what a condition says: SQL by which it is back, as it is afterwards."""
    def take(name, which):
        back = "INSERT INTO activity SELECT * FROM taken ON CONFLICT DO NOTHING"
        psql(served.conninfo, f"CREATE TABLE taken AS SELECT * FROM activity WHERE session_uid = (SELECT uid FROM session WHERE name = '{name}') AND {which}")
        afterwards(f"{back}; DROP TABLE taken")
        psql(served.conninfo, "DELETE FROM activity a USING taken t WHERE a = t")
        return back
    return take


@pytest.fixture(autouse=True)
def nothing_was_said(page):
    """By the browser's console, whatever is tested."""
    yield
    said, page.said[:] = list(page.said), []
    assert not said


READY = {"sessions": "tr[data-row=session]", "session": "table tr[data-row=item]", "compare": "tr[data-row=compare]", "jobs": "figure",
         "patterns": "tr[data-row=pattern]", "pattern": "tr[data-row=share]"}


def whole_name(served, name):
    uid, = served.sql(f"SELECT uid FROM session WHERE name = '{name}'")
    return quoted(f"local/{name}/{uid['uid']}")


def ways(served):
    """{view: what stands behind #}."""
    first, second, third = (whole_name(served, name) for name in ("sampling", "h200", "made"))
    return {"sessions": "sessions", "session": "session/local/h200", "made": "session/local/made", "flat": "session/local/sampling?view=flat&sort=sm_active&most=100",
            "hostile": f"session/local/{quoted(test_hostile.WORKLOAD)}", "compare": f"compare?a={first}&b={whole_name(served, VARIED)}",
            "jobs": f"jobs?s={first}&s={second}&s={third}", "patterns": "patterns", "pattern": "pattern/local/run-h200"}


VIEWS = ("sessions", "session", "hostile", "compare", "jobs", "patterns", "pattern")


def open_view(served, page, view):
    way = ways(served)[view]
    page.show(way, READY[re.split("[/?]", way)[0]])
    if way.startswith("session/"):
        page.tab.wait_for_selector("section:has(h2:text('Timeline')) :is(figure, .gap)")


def open_all(page):
    """What is read when it is asked for, and rows that are not shown at first."""
    page.tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.tab.wait_for_selector("main p:text-is('Reading …')", state="detached")
    for _ in range(20):
        more = page.tab.locator("button:text-matches('^Show all|^[0-9]+ more|: show$'), .node[aria-expanded=false]")
        if not more.count():
            return
        more.first.click()
    raise AssertionError("there is always more")


# --- every number is the database's -------------------------------------------------

SHOWN = """[...document.querySelectorAll("[data-value]")].map((one) => {
    const row = one.closest("[data-row]");
    return {row: row && {...row.dataset}, column: one.dataset.column, value: one.dataset.value, text: one.textContent,
            title: one.title, metric: one.closest("[data-metric]")?.dataset.metric, side: one.closest("[data-side]")?.dataset.side,
            phase: one.closest("[data-phase]")?.dataset.phase, session: one.closest("[data-session]")?.dataset.session};
})"""

ITEM = ("gpu_uuid", "kind", "layer", "phase")
VIEW_KEYS = {"kernels": ("result_kernel", ("process", "layer", "phase", "kernel")),
             "waits": ("result_wait", ("process", "layer", "phase", "call", "file", "line")),
             "copies": ("result_copy", ("process", "layer", "phase", "type", "memory")), "ranks": ("result_rank", ("process",))}


class Database:
    """What SQL says of a session, under the names that the page's rows have."""

    def __init__(self, served, session):
        where = "WHERE session = '{}'".format(session.replace("'", "''"))
        self.served, self.session = served, session
        self.items, self.metrics = {}, {}
        for row in served.sql(f"SELECT * FROM result_detail {where}"):
            key = tuple(row[name] for name in ITEM)
            self.items[key] = row
            self.metrics[(*key, row["metric"])] = row
        self.quality = {(row["gpu_uuid"], row["method"], row["process"], row["metric"]): row
                        for row in served.sql(f"SELECT * FROM result_quality {where}")}
        self.views = {name: {tuple(row[key] for key in keys): row for row in served.sql(f"SELECT * FROM {view} {where}")}
                      for name, (view, keys) in VIEW_KEYS.items()}

    @staticmethod
    def key(row, one):
        return row.get("gpu"), row.get("kind", "layer"), row["layer"], one["phase"] or ""

    def of_item(self, row, one):
        key = self.key(row, one)
        return self.metrics[(*key, one["metric"])] if one["metric"] else self.items[key]

    def of_figure(self, row, one):
        return self.metrics[(row["gpu"], "layer", row["layer"], one["phase"], one["metric"])]

    def of_quality(self, row, _):
        process = int(row["process"]) if row["process"] else None
        return self.quality[row["gpu"], row["method"], process, row["metric"]]

    def of_view(self, row, _):
        return self.views[row["row"]][tuple(json.loads(row["key"]))]

    def of_steps(self, row, one):
        """Where SQL has arrays: the API's own answer, which the API's tests hold against the store."""
        if not hasattr(self, "steps"):
            page = self.served.api(f"/api/v1/namespaces/local/sessions/{quoted(self.session)}/timeline?limit=20")
            self.steps = {step["step"]: step for step in page["items"]}
        step = self.steps[int(row["step"])]
        return step["intervals"][int(row["number"])] if row["row"] == "interval" else step

    def expected(self, one):
        row = one["row"]
        find = {"item": self.of_item, "roofline": self.of_item, "figure": self.of_figure, "quality": self.of_quality,
                "interval": self.of_steps, "step": self.of_steps}.get(row["row"], self.of_view)
        return find(row, one)[one["column"]]


SCALES = [by * unit for unit in (1, 100) for by in (1, 1e-3, 1e-6, 1e-9, 1e-12)]


def rounds_to(text, value, error=False):
    """The text is the value in some unit, to four digits at least, a standard error to two; that of a further digit may go either way.
    Or it says that the value is less than what anybody asks for, or a bound nearer to certain than it is shown."""
    if text.startswith("less than "):
        return text == "less than 0.0001 %" and 0 < abs(value) < 1e-4
    if text in ("more than 99.9 %", "> 99.9 %"):
        return 0.9995 <= value <= 1
    said = float(re.match(r"-?[0-9.]+(e[+-]?[0-9]+)?", text).group())
    return said == value == 0 or any(math.isclose(said, value * scale, rel_tol=5.1e-2 if error else 5.1e-4) for scale in SCALES)


def differing(shown, expected):
    """Those that are not what SQL says, to the last digit; and whose text is another number."""
    wrong = []
    for one in shown:
        if one["row"] is None:
            wrong.append((one, "whose it is cannot be said"))
            continue
        value = expected(one)
        if value is None or float(one["value"]) != value or (isinstance(value, int) and int(one["value"]) != value):
            wrong.append((one, value))
        elif not rounds_to(one["text"], value, "stderr" in one["column"]) or not one["title"].startswith(one["value"]):
            wrong.append((one, "the text or the title is another number"))
    return wrong


def test_numbers_of_a_session_are_the_databases(served, page):
    seen = collections.Counter()
    for view, name in (("session", "h200"), ("made", "made"), ("flat", "sampling"), ("hostile", test_hostile.WORKLOAD)):
        open_view(served, page, view)
        open_all(page)
        shown = page.tab.evaluate(SHOWN)
        wrong = differing(shown, Database(served, name).expected)
        assert not wrong, f"{view}: {len(wrong)} of {len(shown)} differ, as {wrong[:3]}"
        seen.update((one["row"]["row"], one["column"]) for one in shown)
    assert {row for row, _ in seen} == {"item", "roofline", "figure", "quality", "interval", "step", *VIEW_KEYS}
    assert {"mean", "stderr", "ms_per_step", "share", "busy_ms_per_step", "idle_share", "bound_likely", "memory_peak_bytes", "calls",
            "parameters", "counted_steps", "achieved", "peak", "amount_per_step"} <= {column for row, column in seen if row == "item"}
    assert sum(seen.values()) > 3000


def test_each_value_of_a_layer_is_shown(served, page):
    """What SQL has of the layers is in the table, and what it has not is a gap."""
    open_view(served, page, "session")
    open_all(page)
    database = Database(served, "h200")
    columns = ("ms_per_step", "share", "busy_ms_per_step", "idle_share", "bound_likely", "memory_peak_bytes", "calls", "parameters",
               *(f"{name}_stderr" for name in TIMES))
    table = page.tab.evaluate("""[...document.querySelectorAll(".scrolls[aria-label=Layers] tr[data-row=item]")].map((row) => ({...row.dataset,
        told: [...row.querySelectorAll("[data-value]")].map((one) => [one.closest("[data-metric]")?.dataset.metric || "", one.dataset.column]),
        gaps: row.querySelectorAll(".gap").length}))""")
    rows = {(row["gpu"], row["kind"], row["layer"], row["phase"]): row for row in table}
    assert set(rows) == {key for key in database.items if key[1] != "job"} and len(rows) == len(table)
    gaps = 0
    for key, row in rows.items():
        told = {tuple(one) for one in row["told"]}
        assert {("", name) for name in columns if database.items[key][name] is not None} == {one for one in told if not one[0]}
        own = {(m, "mean") for (*of, m), r in database.metrics.items() if tuple(of) == key and r["mean"] is not None and r["method"] != "job"}
        assert own == {one for one in told if one[0] and one[1] == "mean"}, key
        gaps += row["gaps"]
    assert gaps > 0


def test_a_layer_that_stands_for_others_says_why(served, page):
    open_view(served, page, "made")
    open_all(page)
    shown = page.tab.evaluate("""[...document.querySelectorAll("[data-whole]")].map((one) => {
        const row = one.closest("[data-row=item]").dataset;
        return [row.gpu, row.kind, row.layer, row.phase, one.dataset.whole, one.textContent, one.checkVisibility()];
    })""")
    told = {key: row["whole_reason"] for key, row in Database(served, "made").items.items()
            if row["whole_reason"] and key[0] in {one[0] for one in shown}}
    assert shown and {tuple(one[:4]): one[4] for one in shown} == told
    assert all(text == f"told whole: {why}" and visible for *_, why, text, visible in shown)


def test_each_gpu_of_a_job_is_shown(served, page):
    """By the pods that the session has; rows are read up to the one that is chosen."""
    gpus = [row["gpu_uuid"] for row in served.sql("SELECT DISTINCT gpu_uuid FROM result_detail WHERE session = 'made' ORDER BY 1")]
    assert len(gpus) == 2
    for gpu in (None, gpus[1], gpus[0]):
        if gpu:
            page.tab.select_option("select:near(:text('Pod and GPU'))", label=f"made, {gpu}")
            page.tab.wait_for_selector(f"tr[data-row=item][data-gpu='{gpu}']")
        else:
            open_view(served, page, "made")
        shown = page.tab.evaluate(SHOWN)
        assert {one["row"]["gpu"] for one in shown if one["row"]["row"] == "item"} == {gpu or gpus[0]}
        assert not differing([one for one in shown if one["row"]["row"] == "item"], Database(served, "made").expected)


def test_sums_of_groups_are_those_of_their_rows(served, page):
    page.show("session/local/sampling", READY["session"])
    rows = Database(served, "sampling").items
    groups = page.tab.evaluate("""[...document.querySelectorAll("tr.group")].map((row) => ({path: row.dataset.path,
        sums: [...row.querySelectorAll("[data-sum]")].map((one) => [one.dataset.column, Number(one.dataset.sum)])}))""")
    assert groups
    for group in groups:
        for column, told in group["sums"]:
            own = [row[column] for (_, kind, layer, _), row in rows.items()
                   if kind == "layer" and (layer + ".").startswith(group["path"] + ".") and row[column] is not None]
            assert math.isclose(told, math.fsum(own), rel_tol=1e-12), (group, column)


def lengthened(*rows):
    return sum(row["least_ms_per_step"] for row in rows) < 0.95 * sum(row["ms_per_step"] for row in rows)


GROUPS = """[...document.querySelectorAll("tr.group")].map((row) => [row.dataset.path,
    row.querySelector("[data-sum][data-column=ms_per_step]").textContent])"""


def test_what_marks_may_have_lengthened_is_a_bound_in_sums_too(served, page, browser, tmp_path):
    bounds, groups_of = collections.Counter(), {}
    for name, phase in (("sampling", "forward"), ("sampling", "backward"), ("h200", "")):
        open_view(served, page, "sessions")
        page.show(f"session/local/{name}?phase={phase}", READY["session"])
        rows = {key[1:]: row for key, row in Database(served, name).items.items() if key[1] == "layer"}
        groups_of[name] = page.tab.evaluate(GROUPS)
        for path, text in groups_of[name]:
            told = lengthened(*[row for (_, layer, of), row in rows.items() if (layer + ".").startswith(path + ".") and phase in ("", of)])
            assert text.startswith("≤ ") == told, (path, text)
            bounds["group", told] += 1
        phases = page.tab.evaluate("""[...document.querySelectorAll(".costliest [data-row=item]")].map((one) =>
            [[one.dataset.kind, one.dataset.layer, one.dataset.phase], one.textContent])""")
        for key, text in phases:
            told = lengthened(rows[tuple(key)])
            assert ("≤ " in text) == told, (key, text)
            bounds["phase", told] += 1
    assert set(bounds) == {("group", True), ("phase", True), ("phase", False)}, bounds
    told = json.loads((served.folders["sampling"] / "results.json").read_text())
    for item in told["gpus"][0]["items"]:
        if item["layer"].startswith("top."):
            item["leastMillisecondsPerStep"] = item["millisecondsPerStep"]
    (tmp_path / "one").mkdir()
    (tmp_path / "one/results.json").write_text(json.dumps(told))
    with reported(browser, tmp_path / "one") as one:
        one.show("session/local/one", READY["session"])
        assert {path: text.startswith("≤ ") for path, text in one.tab.evaluate(GROUPS)} == {path: path != "top" for path, _ in groups_of["sampling"]}


def test_what_a_pattern_does_not_tell_is_a_gap(served, browser, tmp_path):
    """As of results that another program has written; and it is called by its folder's name."""
    told = json.loads((served.folders["h200"] / "results.json").read_text())
    del told["pattern"]["bound"], told["pattern"]["metrics"][0]["source"]
    (tmp_path / "one run").mkdir()
    (tmp_path / "one run/results.json").write_text(json.dumps(told))
    with reported(browser, tmp_path / "one run") as one:
        one.show("patterns", READY["patterns"])
        assert one.tab.locator("tr[data-row=pattern] .gap").count() > 0
        one.tab.click("tr[data-row=pattern] a")
        one.tab.wait_for_selector(READY["pattern"])
        assert "What bounds it is not known." in one.tab.inner_text("main")
        assert one.tab.locator("tr[data-row=usage] [title='its results do not tell']").count() == 1
        assert one.tab.title() == "one run – PrecisionProbe"


def test_a_cell_may_be_empty(served, page):
    """Whatever makes none of its value."""
    open_view(served, page, "sessions")
    assert page.tab.evaluate("""async () => {
        const { drawn } = await import(new URL("table.js", location.href));
        return drawn([{ name: "one", title: "One", cell: (row) => row }], [null, undefined, "told"], {}, {}).tBodies[0].textContent;
    }""") == "told"


@contextlib.contextmanager
def reported(browser, *folders):
    """The page as a report serves it, of the folders' results."""
    command = [conftest.needed("PP_CLI"), "report", "--serve=0", *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            with contextlib.closing(Page(browser, child.stdout.readline().strip())) as one:
                yield one
                assert not one.said
        finally:
            child.terminate()
            assert child.wait(30) == 0


def test_a_run_that_measured_nothing_says_why(served, browser, tmp_path):
    told = json.loads((served.folders["h200"] / "results.json").read_text())
    (tmp_path / "none").mkdir()
    (tmp_path / "none/results.json").write_text(json.dumps({**told, "gpus": [], "sampledSteps": 0, "unsampled": "no Python that it started imported torch"}))
    with reported(browser, tmp_path / "none") as one:
        one.show("session/local/none", "text=It has no results.")
        assert one.tab.inner_text("[data-wrong=Failed]") == "It has failed: no step was sampled: no Python that it started imported torch (NoStepSampled)"
        assert one.tab.inner_text(".phase") == "Failed"
        lacking = [gap.get_attribute("title") for gap in one.tab.query_selector_all(".facts .gap")]
        assert lacking == ["none is known", "none is known"]
        one.show("sessions", READY["sessions"])
        row = one.tab.inner_text("tr[data-row=session]")
        assert "NoStepSampled" in row and "not yet" not in row


def test_what_is_unknown_leads_nothing(served, browser, tmp_path):
    """Of a training on the CPU all of a step is Unknown: in the list, and in the pattern's own view."""
    told = json.loads((served.folders["h200"] / "results.json").read_text())
    told["pattern"].update(bound="Unknown", boundLead={"value": 1.0, "standardError": 1.0})
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/results.json").write_text(json.dumps(told))
    with reported(browser, tmp_path / "cpu") as one:
        for where in ("patterns", "pattern/local/run-1"):
            one.show(where, "[data-row=pattern]")
            shown = one.tab.inner_text("[data-row=pattern]")
            assert "Unknown" in shown and "too little was measured" in shown and "100 %" not in shown
            assert one.tab.query_selector("[data-row=pattern] [data-column=lead]") is None


def test_values_of_groups_are_drawn_and_sorted(served, browser, tmp_path):
    """Where a layer has none of its own; they are called the group's."""
    told = json.loads((served.folders["h200"] / "results.json").read_text())
    items = [item for item in told["gpus"][0]["items"] if item["kind"] == "layer"]
    item = max(items, key=lambda one: one["millisecondsPerStep"])
    item["metrics"]["SMActive"].update(mean=None, standardError=None, group="two that <b>overlap</b>", groupMean=0.9999, groupStandardError=0.0125)
    key = (item["layer"], item["phase"])
    (tmp_path / "one").mkdir()
    (tmp_path / "one/results.json").write_text(json.dumps(told))
    figure = "figure[data-figure='2b: SMActive']"
    with reported(browser, tmp_path / "one") as one:
        one.show("session/local/one?view=flat&sort=sm_active", READY["session"])
        first = one.tab.evaluate("""(() => { const row = document.querySelector(".scrolls[aria-label=Layers] tr[data-row=item]");
            const cell = row.querySelector("[data-metric=sm_active]");
            return [row.dataset.layer, row.dataset.phase, cell.textContent, cell.querySelector("abbr")?.title]; })()""")
        assert first == [*key, "group 99.99 % ± 1.3 %", "only together with others: two that <b>overlap</b>"]
        lacking = [phase for layer in {each["layer"] for each in items} for phase in ("forward", "backward")
                   if (layer, phase) != key and not [each for each in items if (each["layer"], each["phase"]) == (layer, phase)
                                                     and each["metrics"]["SMActive"]["mean"] is not None]]
        caption = one.tab.inner_text(f"{figure} figcaption")
        assert "Paler: the value of a group, known only together with others (1)." in caption and f"not measured ({len(lacking)})" in caption
        one.tab.click(f"{figure} summary")
        cell = one.tab.locator(f"{figure} tr[data-layer='{key[0]}'] [data-phase={key[1]}]")
        assert cell.inner_text() == "group 99.99 % ± 1.3 %" and cell.locator("[data-column=group_mean]").get_attribute("data-value") == "0.9999"
        one.tab.locator(f"{figure} canvas").scroll_into_view_if_needed()
        over, said = one.tab.locator(f"{figure} .u-over").bounding_box(), set()
        for n in range(1, 80):
            one.tab.mouse.move(over["x"] + n * over["width"] / 80, over["y"] + 20)
            said.add(one.tab.inner_text(f"{figure} .u-legend"))
        assert any("group 99.99" in text for text in said)


def test_jobs_side_by_side_are_the_databases(served, page):
    open_view(served, page, "jobs")
    open_all(page)
    databases = {name: Database(served, name) for name in ("sampling", "h200", "made")}
    shown = page.tab.evaluate(SHOWN)
    wrong = differing(shown, lambda one: databases[one["session"]].of_item(one["row"], one)[one["column"]])
    assert not wrong, wrong[:3]
    assert {one["session"] for one in shown} == set(databases) and len(shown) > 40


def test_steps_with_and_without_marks_are_in_lines_of_their_own(served, page):
    open_view(served, page, "jobs")
    lines = page.tab.evaluate("""Object.fromEntries([...document.querySelector(".scrolls[aria-label='Jobs side by side']").querySelectorAll("tbody tr")].map((row) => [row.cells[0].textContent,
        [...row.querySelectorAll("[data-row=item]")].map((one) => [one.dataset.session, one.dataset.gpu,
            Number(one.querySelector("[data-column=counted_ms_per_step]")?.dataset.value), Number(one.querySelector("[data-quotient]")?.dataset.quotient)])]))""")
    jobs = {(name, key[0]): row for name in ("sampling", "h200", "made") for key, row in Database(served, name).items.items() if key[1] == "job"}
    counted, marked = lines["ms a step"], lines["ms a marked step"]
    assert {tuple(one[:2]) for one in counted} == {tuple(one[:2]) for one in marked} == set(jobs)
    assert {tuple(one[:2]): one[2] for one in counted if one[2] == one[2]} == {
        key: row["counted_ms_per_step"] for key, row in jobs.items() if row["counted_ms_per_step"] is not None}
    assert {tuple(one[:2]): one[3] for one in marked} == {key: row["step_ns"] / 1e6 / row["marked_steps"] for key, row in jobs.items()}
    assert not [one for one in counted if one[3] == one[3]] and len([one for one in counted if one[2] == one[2]]) == 3


COMPARED = """[...document.querySelectorAll("tr[data-row=compare]")].map((row) => ({...row.dataset, word: row.querySelector(".verdict").textContent,
    ...Object.fromEntries(["difference", "z", "p"].map((name) => [name, row.querySelector(`[data-${name}]`)?.dataset[name]]))}))"""


def holm(ps, level):
    """How many of them are more than noise."""
    told = sorted(ps)
    return next((n for n, p in enumerate(told) if p > level / (len(told) - n)), len(told))


def families(ps):
    """[level, {key: p}] of what is judged together, by what stands last in each key: whole steps, and all else."""
    return [(level, {key: p for key, p in ps.items() if (key[-1] in STEPS) == of_step}) for level, of_step in ((0.01, True), (0.04, False))]


def tail(z, pieces=4000):
    """How often a normal value is as far from 0, on either side: its density integrated by Simpson's rule, relative to that at z."""
    z = abs(z)
    step = (math.sqrt(z * z + 80) - z) / pieces  # the rest is e^-40 of it
    density = [math.exp(-z * s - s * s / 2) for s in (n * step for n in range(pieces + 1))]
    area = step / 3 * math.fsum([density[0], density[-1], *(4 * d for d in density[1:-1:2]), *(2 * d for d in density[2:-1:2])])
    return 2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * area


def student_tail(t, freedom, pieces=20000):
    """The same of Student's t: with t = sqrt(freedom) tan(angle) its density is a power of the cosine."""
    if not math.isfinite(freedom):
        return tail(t)
    begin = math.atan(abs(t) / math.sqrt(freedom))
    step = (math.pi / 2 - begin) / pieces
    power = [max(math.cos(begin + n * step), 0) ** (freedom - 1) for n in range(pieces + 1)]
    area = step / 3 * math.fsum([power[0], power[-1], *(4 * d for d in power[1:-1:2]), *(2 * d for d in power[2:-1:2])])
    return area / (math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)))


def welch(x, y):
    """Degrees of freedom of a difference; None of one is infinite."""
    parts = sum(one["stderr"] ** 4 / one["freedom"] for one in (x, y) if one["freedom"])
    return (x["stderr"] ** 2 + y["stderr"] ** 2) ** 2 / parts if parts else math.inf


TIMES = ("ms_per_step", "busy_ms_per_step")
STEPS = ("counted_ms_per_step", "marked_ms_per_step")


def step_of(row, what):
    """A whole step, of a job's row."""
    if what == STEPS[0]:
        return {"mean": row[what], "stderr": row[f"{what}_stderr"], "freedom": row[f"{what}_freedom"]}
    return {"mean": row["step_ns"] / 1e6 / row["marked_steps"], "stderr": row["step_ms_stderr"], "freedom": row["step_ms_freedom"]}


def comparable(database):
    """{(kind, layer, phase, metric or time): mean, stderr, freedom and the rest} of the rows that SQL has of a session of one GPU."""
    found = {key[1:]: {**row, "freedom": None} for key, row in database.metrics.items() if key[-1]}
    for key, row in database.items.items():
        for what in STEPS if key[1] == "job" else TIMES:
            time = step_of(row, what) if key[1] == "job" else {"mean": row[what], "stderr": row[f"{what}_stderr"], "freedom": row[f"{what}_freedom"]}
            found[(*key[1:], what)] = {**time, "method": None, "source": None, "basis": None}
    return found


def adjusted(ps):
    """{key: p as Holm's procedure adjusts it}: the k-th smallest of n by n - k + 1, never below the one before."""
    found, most = {}, 0
    for rank, key in enumerate(sorted(ps, key=ps.get)):
        most = found[key] = max(most, min(1, (len(ps) - rank) * ps[key]))
    return found


def judged(a, b):
    """{(kind, layer, phase, metric or time): p} of what can be compared of two sessions of one GPU each."""
    found, theirs = {}, comparable(b)
    for key, x in comparable(a).items():
        y = theirs.get(key)
        rows = [x, y] if y else []
        if not rows or any(key[0] != "job" and row["method"] == "job" for row in rows) or None in [row[name] for row in rows for name in ("mean", "stderr")]:
            continue
        stderr = math.hypot(x["stderr"], y["stderr"])
        if stderr > 0 and not any(x[name] and y[name] and x[name] != y[name] for name in ("method", "source", "basis")):
            found[key] = student_tail((y["mean"] - x["mean"]) / stderr, welch(x, y))
    steps = [key for what in STEPS for key in found if key[-1] == what]
    return {key: p for key, p in found.items() if key not in steps[1:]}


def test_what_is_more_than_noise_has_two_witnesses(served, page):
    """Each p, by integrals of what SQL says and by `precisionprobe report`; and by the former what Holm's procedure marks."""
    assert math.isclose(tail(0), 1, rel_tol=1e-12) and math.isclose(tail(1.959963984540054), 0.05, rel_tol=1e-11)
    assert math.isclose(tail(20), 5.507248237212467e-89, rel_tol=1e-9)
    assert math.isclose(student_tail(2.228138851986274, 10), 0.05, rel_tol=1e-9) and math.isclose(student_tail(0, 3), 1, rel_tol=1e-9)
    open_view(served, page, "compare")
    open_all(page)
    rows = {(row["kind"], row["layer"], row["phase"], row["what"]): row for row in page.tab.evaluate(COMPARED) if row.get("p") is not None}
    ps = judged(Database(served, "sampling"), Database(served, VARIED))
    assert set(rows) == set(ps) and len(ps) > 100 and {*TIMES} < {key[-1] for key in ps}
    assert not [key for key, p in ps.items() if not math.isclose(float(rows[key]["p"]), p, rel_tol=1e-8)]
    beyond = {key for level, family in families(ps) for key, p in adjusted(family).items() if p <= level}
    assert {key for key, row in rows.items() if row["word"] != "no"} == beyond and 0 < len(beyond) < len(ps)
    report = [conftest.needed("PP_CLI"), "report", "--format=json", f"--compare={served.folders[VARIED]}", str(served.folders["sampling"])]
    told = json.loads(subprocess.run(report, capture_output=True, check=True, timeout=120).stdout)["items"]
    theirs = {key: one["p"] for one in told if (key := (one["kind"], one["layer"], one["phase"], one["quantity"])) in ps}
    assert len(theirs) > 100 and not [key for key, p in theirs.items() if not math.isclose(p, ps[key], rel_tol=1e-6)]


def shifted(from_, place):
    """The same results, each mean off by some of its standard errors."""
    some = random.Random(3)
    told = json.loads((from_ / "results.json").read_text())
    for gpu in told["gpus"]:
        for item in gpu["items"]:
            for metric in item["metrics"].values():
                if metric.get("mean") is not None and metric.get("standardError"):
                    metric["mean"] += some.uniform(0, 7) * metric["standardError"]
    place.mkdir()
    (place / "results.json").write_text(json.dumps(told))
    return place


def test_pairs_of_gpus_are_judged_together(served, browser, tmp_path):
    """What is more than noise of each pair of GPUs is what `precisionprobe report --compare` marks, which is by all values of all."""
    folders = [served.folders["made"], shifted(served.folders["made"], tmp_path / "other")]
    marks = {}
    told = json.loads(subprocess.run([conftest.needed("PP_CLI"), "report", "--format=json", f"--compare={folders[1]}", str(folders[0])], capture_output=True, check=True,
                                     timeout=120).stdout)["items"]
    for one in told:
        if one["p"] is not None:
            kind = "job" if one["quantity"] in STEPS else one["kind"]
            marks.setdefault(one["gpu_uuid"], {})[kind, one["layer"], one["phase"], one["quantity"]] = (one["more_than_noise"], one["p"])
    own = {gpu: sum(holm(family.values(), level) for level, family in families({key: p for key, (_, p) in rows.items()}))
           for gpu, rows in marks.items()}
    assert len(marks) == 2 and {gpu: sum(marked for marked, _ in rows.values()) for gpu, rows in marks.items()} != own
    pair = "&".join(f"{side}={quoted(f'local/{folder_.name}/run-{n}')}" for n, (side, folder_) in enumerate(zip("ab", folders), 1))
    with reported(browser, *folders) as one:
        for gpu, rows in marks.items():
            one.show(f"compare?{pair}&at-a={quoted(f'run-1 {gpu}')}", READY["compare"])
            one.tab.wait_for_selector(f".hint:has-text('First: made, {gpu}. Second: other, {gpu}.')")
            open_all(one)
            shown = {(row["kind"], row["layer"], row["phase"], row["what"]): row["word"] != "no"
                     for row in one.tab.evaluate(COMPARED) if row.get("p") is not None}
            assert shown == {key: marked for key, (marked, _) in rows.items()}
        assert "all 2 pairs of GPUs" in one.tab.inner_text(".summary")


def test_a_pair_that_the_report_does_not_make_is_judged_with_others_of_its_pairs(served, browser, tmp_path):
    """Not with those that have one of its two GPUs; that is told."""
    told = json.loads((served.folders["made"] / "results.json").read_text())
    (tmp_path / "one").mkdir()
    told["gpus"].append({**told["gpus"][0], "gpu": "GPU-third"})
    (tmp_path / "one/results.json").write_text(json.dumps(told))
    folders = [tmp_path / "one", shifted(tmp_path / "one", tmp_path / "other")]
    pair = "&".join(f"{side}={quoted(f'local/{folder_.name}/run-{n}')}" for n, (side, folder_) in enumerate(zip("ab", folders), 1))
    gpus, ps = [one["gpu"] for one in told["gpus"]], {}
    with reported(browser, *folders) as one:
        for a, b in ((0, 0), (1, 1), (2, 2), (0, 1)):
            one.show(f"compare?{pair}&at-a={quoted(f'run-1 {gpus[a]}')}&at-b={quoted(f'run-2 {gpus[b]}')}", READY["compare"])
            one.tab.wait_for_selector(f".hint:text-is('First: one, {gpus[a]}. Second: other, {gpus[b]}.')")
            open_all(one)
            rows = [row for row in one.tab.evaluate(COMPARED) if row.get("p") is not None]
            ps[a, b] = [float(row["p"]) for row in rows]
            said = one.tab.inner_text(".summary")
            assert ("all 3 pairs of GPUs, as" in said) == (a == b) and ("does not make, and of the 1 of its pairs" in said) == (a != b)
        together = adjusted(dict(enumerate(ps[0, 1] + ps[2, 2])))
        assert [row["word"] != "no" for row in rows] == [together[n] <= 0.05 for n in range(len(rows))]
        assert int(one.tab.get_attribute(".summary", "data-judged")) == len(together)


def test_gpus_of_few_rows_are_all_judged(served, page, afterwards):
    """However many; of those with many rows only the two that are looked at are read, which is told."""
    of = "session_uid = (SELECT uid FROM session WHERE name = 'made')"
    made = whole_name(served, "made")
    afterwards(f"DELETE FROM attribution WHERE {of} AND gpu_uuid LIKE 'GPU-x%'")

    def add(first, last):
        for table in ("attribution", "item"):
            psql(served.conninfo, f"INSERT INTO {table} SELECT (jsonb_populate_record(a, jsonb_build_object('gpu_uuid', 'GPU-x' || n))).* FROM {table} a, "
                                  f"generate_series({first}, {last}) n WHERE {of} AND gpu_uuid = '{conftest.GPUS[0]}'")

    def summary(**at):
        page.show("sessions", READY["sessions"])
        page.show(f"compare?a={made}&b={made}{''.join(f'&{key}={quoted(told)}' for key, told in at.items())}", READY["compare"])
        return page.tab.inner_text(".summary")

    add(1, 30)
    assert "over all values of all 32 pairs of GPUs" in summary()
    pod, rows = served.sql(f"SELECT pod_uid, count(*) AS n FROM item WHERE {of} AND gpu_uuid = '{conftest.GPUS[1]}' GROUP BY 1")[0].values()
    add(31, 5000 // rows + 31)
    read = []
    page.tab.on("response", lambda answer: read.append(answer.status) if "/layers" in answer.url else None)
    assert "over those of this pair of GPUs alone" in summary()
    read.clear()
    assert "over those of this pair of GPUs alone" in summary(**{"at-a": f"{pod} {conftest.GPUS[1]}"})
    assert f"Second: made, {conftest.GPUS[1]}." in page.tab.inner_text(".hint") and read and set(read) == {304}


def test_answers_that_are_kept_are_few_letters(page):
    """Of pages of 4 MiB no more than some, the newest, are asked for again by their tags."""
    tags = {}

    def answer(route):
        tags.setdefault(route.request.url[-2:], []).append(route.request.headers.get("if-none-match"))
        route.fulfill(content_type="application/json", headers={"ETag": '"one"'}, body=json.dumps({"items": ["x" * 2 ** 22]}))

    page.tab.route("**/api/v1/large/*", answer)
    try:
        page.tab.evaluate("""async () => {
            const { get } = await import(new URL("api.js", location.href));
            for (let n = 10; n < 30; n++) await get(["large", String(n)]);
            for (const n of [29, 10]) await get(["large", String(n)]);
        }""")
    finally:
        page.tab.unroute("**/api/v1/large/*")
    assert (tags["29"], tags["10"]) == ([None, '"one"'], [None, None])


def test_the_pages_statistics(served, page):
    """Of values that no session has: of tails, and of sets in which a simpler rule than Holm's would mark others."""
    zs = [n / 8 for n in range(300)]
    some = random.Random(7)
    sets = [[10 ** some.uniform(-4, 0) for _ in range(some.randint(1, 30))] for _ in range(200)] + [[], [0.05], [0.0500001], [0.025, 0.05], [0.03, 0.03]]
    open_view(served, page, "sessions")
    ts = [(n / 2, freedom) for n in range(25) for freedom in (2, 3, 4.5, 10, 57.3, 1000)]
    tails, students, marks = page.tab.evaluate("""async ([zs, ts, sets]) => {
        const { holm, normalP, studentP } = await import(new URL("statistics.js", location.href));
        return [zs.map(normalP), ts.map(([t, freedom]) => studentP(t, freedom)), sets.map((ps) => holm(ps, 0.05))];
    }""", [zs, ts, sets])
    assert not [(z, p) for z, p in zip(zs, tails) if not math.isclose(p, tail(z), rel_tol=1e-8)]
    assert not [(t, p) for t, p in zip(ts, students) if not math.isclose(p, student_tail(*t), rel_tol=1e-7)]
    wanted = [[p <= 0.05 for _, p in sorted(adjusted(dict(enumerate(ps))).items())] for ps in sets]
    assert marks == wanted
    assert any(mark != (p <= 0.05 / len(ps)) for ps, of in zip(sets, marks) for p, mark in zip(ps, of))


def test_a_comparison_is_what_sql_says(served, page):
    """Values are the database's; a difference is over both standard errors, and noise is what as many comparisons let expect."""
    open_view(served, page, "compare")
    open_all(page)
    sides = {"a": comparable(Database(served, "sampling")), "b": comparable(Database(served, VARIED))}

    def of(side, row):
        return sides[side].get((row["kind"], row["layer"], row["phase"], row["what"]))

    shown = page.tab.evaluate(SHOWN)
    assert not differing(shown, lambda one: of(one["side"], one["row"])[one["column"]])
    rows = page.tab.evaluate(COMPARED)
    told = page.tab.evaluate("({...document.querySelector('.summary').dataset})")
    judged_rows = [row for row in rows if row.get("p") is not None]
    ps = {(row["kind"], row["layer"], row["phase"], row["what"]): float(row["p"]) for row in judged_rows}
    assert len(ps) == len(judged_rows) == int(told["comparisons"]) > 100 and list(ps.values()) == sorted(ps.values())
    assert sum(holm(family.values(), level) for level, family in families(ps)) == int(told["beyond"]) > 0
    for level, family in families(ps):
        words = [row["word"] for row in judged_rows if (row["kind"], row["layer"], row["phase"], row["what"]) in family]
        assert "no" not in words[:holm(family.values(), level)] and set(words[holm(family.values(), level):]) <= {"no"}
    for row in rows:
        a, b = (of(side, row) for side in "ab")
        alike = a and b and not any(a[name] and b[name] and a[name] != b[name] for name in ("method", "source", "basis"))
        known = alike and None not in (a["mean"], b["mean"], a["stderr"], b["stderr"]) and math.hypot(a["stderr"], b["stderr"]) > 0
        assert bool(known) == (row.get("z") is not None), (row, a, b)
        if known:
            z = (b["mean"] - a["mean"]) / math.hypot(a["stderr"], b["stderr"])
            assert float(row["difference"]) == b["mean"] - a["mean"] and math.isclose(float(row["z"]), z, rel_tol=1e-12)
            assert row["word"] in ("no", "yes, higher" if z > 0 else "yes, lower")
    assert {(row["layer"], row["phase"]) for row in rows if row["what"] == "sm_active" and row["word"] == "yes, higher"} == {CHANGED}


def test_what_is_unlike_is_not_differenced(served, page):
    """Marked steps with steps without marks, and anything of GPUs of two models."""
    open_view(served, page, "sessions")

    def place(counted, peak):
        time = {"counted_ms_per_step": counted, "counted_ms_per_step_stderr": counted and 0.1, "counted_ms_per_step_freedom": counted and 20}
        told = {"dram_active": {"mean": 0.5, "stderr": 0.01, "method": "sampling", "peak": peak, "unit": "share of 1"}}
        job = {"kind": "job", "layer": "", "phase": "", "ms_per_step": 50, "step_ns": 120e6, "marked_steps": 10, "step_ms_stderr": 0.2,
               "step_ms_freedom": 9, "metrics": {}, **time}
        layer = {"kind": "layer", "layer": "a", "phase": "forward", "ms_per_step": 5, "ms_per_step_stderr": 0.1, "ms_per_step_freedom": 9, "metrics": told}
        return {"rows": [layer], "job": job}

    def compared(a, b):
        told = page.tab.evaluate("""async ([a, b]) => {
            const { compareAll } = await import(new URL("compare.js", location.href));
            return compareAll(a, b).map(({ what, difference, p, reason }) => ({ what, difference, p, reason }));
        }""", [a, b])
        return {one["what"]: one for one in told}

    both, one, other = compared(place(10, 4e12), place(11, 4e12)), compared(place(10, 4e12), place(None, 4e12)), compared(place(10, 4e12), place(11, 2e12))
    assert STEPS[1] not in both and both[STEPS[0]]["difference"] == 1 and both["dram_active"]["p"] == 1
    assert STEPS[0] not in one and one[STEPS[1]]["difference"] == 0 and one[STEPS[1]]["p"] == 1
    assert {each["difference"] for each in other.values()} == {None} and {each["reason"] for each in other.values()} >= {"the GPUs are of different models"}
    assert all(each["p"] is None for each in other.values())


def test_patterns_are_the_databases(served, page):
    names = {"last_session": "session_uid", "first_finished": "first_at", "last_finished": "last_at"}
    rows = {row["object_name"]: row for row in served.sql("SELECT * FROM pattern")}
    open_view(served, page, "patterns")
    shown = page.tab.evaluate(SHOWN)
    assert {one["row"]["pattern"] for one in shown} == set(rows)
    assert not differing(shown, lambda one: rows[one["row"]["pattern"]][names.get(one["column"], one["column"])])
    open_view(served, page, "pattern")
    shares = {(r["kind"], r["name"]): r for r in served.sql("SELECT * FROM pattern_share WHERE workload_name = 'h200'")}
    usage = {r["metric"]: r for r in served.sql("SELECT * FROM pattern_metric WHERE workload_name = 'h200'")}

    def expected(one):
        row = one["row"]
        found = {"pattern": lambda: rows["run-h200"], "share": lambda: shares[row["kind"], row["name"]], "usage": lambda: usage[row["metric"]]}
        return found[row["row"]]()[one["column"]]

    shown = page.tab.evaluate(SHOWN)
    assert not differing(shown, expected)
    assert {one["row"]["row"] for one in shown} == {"pattern", "share", "usage"}


def test_the_headline_is_the_costliest_layer(served, page):
    open_view(served, page, "session")
    rows = [row for (_, kind, *_), row in Database(served, "h200").items.items() if kind == "layer"]
    by_layer = {row["layer"]: [one for one in rows if one["layer"] == row["layer"]] for row in rows}
    phases = max(by_layer.values(), key=lambda told: sum(row["least_ms_per_step"] for row in told))
    costliest = max(phases, key=lambda row: row["least_ms_per_step"])
    told = page.tab.evaluate("""({...document.querySelector('.headline').dataset, text: document.querySelector('.headline').textContent,
        sums: Object.fromEntries([...document.querySelectorAll('.costliest [data-sum]')].map((one) => [one.dataset.column, Number(one.dataset.sum)]))})""")
    assert (told["layer"], told["phase"]) == (costliest["layer"], costliest["phase"]) and len(phases) > 1
    assert all(math.isclose(told["sums"][column], math.fsum(row[column] for row in phases), rel_tol=1e-12) for column in ("ms_per_step", "share"))
    assert f"Its {costliest['phase']} is bound by FP32 pipes" in told["text"] and costliest["bound"] == "FP32" and "checked" in told["text"]


def test_what_the_page_makes_of_columns_is_what_it_says(served, page):
    """Of a session in which no step was counted: its marked steps'."""
    open_view(served, page, "session")
    row = next(row for (_, kind, *_), row in Database(served, "h200").items.items() if kind == "layer")
    assert row["counted_ms_per_step"] is None
    made = page.tab.evaluate("[...document.querySelectorAll('[data-quotient]')].map((one) => [one.dataset.made, Number(one.dataset.quotient)])")
    assert {how: told for how, told in made} == {"step_ns / 1e6 / marked_steps": row["step_ns"] / 1e6 / row["marked_steps"],
                                                 "gap_ns / step_ns": row["gap_ns"] / row["step_ns"]}


# --- names ------------------------------------------------------------------------

def test_hostile_names_are_text(served, page):
    open_view(served, page, "hostile")
    open_all(page)
    told = page.tab.evaluate("""[...document.querySelectorAll(".scrolls[aria-label=Layers] tr[data-row=item] th")].map((one) =>
        [one.parentElement.dataset.layer, one.textContent, one.title, one.parentElement.dataset.kind])""")
    assert {layer for layer, _, _, kind in told if kind == "layer"} == set(test_hostile.ALL)
    assert not [text for _, text, title, _ in told if test_hostile.OBEYED.search(text + title)]
    page.tab.select_option("select:near(:text('Show as'))", "flat")
    open_all(page)
    texts = page.tab.evaluate("""[...document.querySelectorAll(".scrolls[aria-label=Layers] tr[data-kind=layer] th")].map((one) =>
        [one.parentElement.dataset.layer, one.textContent])""")
    assert len(texts) == len(test_hostile.ALL) and len({text for _, text in texts}) == len(texts)
    assert not [pair for pair in texts if pair[0].isprintable() and pair[0] != pair[1]]
    assert page.tab.evaluate("document.querySelectorAll('main :is(script, img, iframe, object, b, style)').length") == 0
    assert "<b>" in page.tab.text_content("h1") and not page.tab.evaluate("'evil' in window")
    assert "\\u202e" in page.tab.title() and "\u202e" not in page.tab.title()


def test_what_is_not_seen_stands_there_by_its_number(served, page):
    unseen = "\x00\x1b\x9b\u00ad\u034f\u061c\u115f\u1160\u180b\u180e\u200b\u2028\u202e\u2066\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\ufffb\U000e0041\U000e01ef"
    open_view(served, page, "sessions")
    told = page.tab.evaluate("""async (texts) => {
        const { visible } = await import(new URL("dom.js", location.href));
        return texts.map(visible);
    }""", list(unseen + "é名🙂 -"))
    assert told == [f"\\u{ord(one):04x}" if one < "\U00010000" else f"\\u{{{ord(one):x}}}" for one in unseen] + list("é名🙂 -")


def test_what_is_clipped_has_a_title(served, page):
    """In which it is whole, but for what is not seen."""
    clipped = 0
    for view in ("hostile", "made"):
        open_view(served, page, view)
        open_all(page)
        cells = page.tab.evaluate("""[...document.querySelectorAll("main :is(td, th)")].filter((one) => one.scrollWidth > one.clientWidth)
            .map((one) => [one.textContent, one.title || one.querySelector("[title]")?.title || ""])""")
        assert not [cell for cell in cells if not cell[1]], view
        clipped += len(cells)
    assert clipped > 10


def test_rows_of_several_ranks_say_whose_they_are(served, page, afterwards):
    of = "session_uid = (SELECT uid FROM session WHERE name = 'made')"
    changed = f"UPDATE attribution SET revision = revision WHERE {of}"  # which the answers' tags go by
    afterwards(f"DELETE FROM kernel WHERE {of} AND process = 1; {changed}")
    psql(served.conninfo, "INSERT INTO kernel SELECT session_uid, pod_uid, 1, layer, phase, name, count, ns + 1 FROM kernel "
                          f"WHERE {of} AND process = 0; {changed}")
    open_view(served, page, "sessions")
    open_view(served, page, "made")
    open_all(page)
    tables = page.tab.evaluate("""Object.fromEntries([...document.querySelectorAll("section:last-of-type .scrolls")].map((one) => [one.ariaLabel,
        [...one.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent))]))""")
    heads, *rows = tables["GPU kernels"]
    assert heads[:5] == ["kernel", "pod_name", "process", "layer", "phase"]
    assert {row[2] for row in rows} == {"0", "1"} and len({tuple(row[:5]) for row in rows}) == len(rows) == 6
    assert tables["Copies and fills"][0][:3] == ["type", "memory", "layer"]


# --- who reads it -------------------------------------------------------------------

def serious(page, **options):
    page.tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.tab.evaluate("(options) => axe.run(document, options)", {"resultTypes": ["violations"], "runOnly": STANDARDS, **options})
    return [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:2]]) for one in found["violations"] if one["impact"] in SERIOUS]


def test_axe_finds_nothing_serious(served, page):
    for view in VIEWS:
        open_view(served, page, view)
        if view == "session":
            page.scroll_through()
            page.tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert not serious(page), view
        picture(page, view, "light")


def test_the_dark_has_contrast_too(served, page):
    page.tab.emulate_media(color_scheme="dark")
    for view in ("session", "compare"):
        open_view(served, page, view)
        assert page.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
        assert not serious(page, runOnly=["color-contrast"]), view
        picture(page, view, "dark")
    page.tab.emulate_media(color_scheme="light")


def test_a_form_without_a_token_is_read_too(served, browser):
    with contextlib.closing(Page(browser, served.page)) as one:
        one.tab.goto(served.page)
        one.tab.wait_for_selector("form.login")
        assert not serious(one) and not one.said


def test_a_keyboard_is_enough(served, page):
    open_view(served, page, "session")
    heads = "document.querySelector('.scrolls[aria-label=Layers] th[aria-sort=descending]').textContent"
    assert page.tab.evaluate(heads) == "ms a step"
    page.tab.focus(".scrolls[aria-label=Layers] th button:text('Share')")
    page.tab.keyboard.press("Enter")
    assert page.tab.evaluate(heads) == "Share" and page.tab.evaluate("document.activeElement.textContent") == "Share"
    assert "sort=share" in page.tab.url
    page.tab.keyboard.press("Enter")
    assert page.tab.evaluate("document.querySelector('.scrolls[aria-label=Layers] th[aria-sort=ascending]').textContent") == "Share"
    page.tab.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.tab.focus(".skip")
    page.tab.keyboard.press("Enter")
    assert page.tab.evaluate("document.activeElement.id") == "main"
    page.tab.fill("input[type=search]", "softmaxes")
    assert set(page.tab.evaluate("[...document.querySelectorAll('.scrolls[aria-label=Layers] tr[data-row]')].map((row) => row.dataset.layer)")) == {
        "softmaxes"}


def test_charts_are_drawn(served, page):
    """Each canvas has pixels, and a name and numbers for whoever does not see them."""
    open_view(served, page, "session")
    page.scroll_through()
    found = page.tab.evaluate("""[...document.querySelectorAll(".chart")].map((one) => {
        const canvas = one.querySelector("canvas"), data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Set(); for (let i = 0; i < data.length; i += 4) if (data[i + 3]) colours.add(`${data[i]},${data[i+1]},${data[i+2]}`);
        return [one.getAttribute("role"), one.getAttribute("aria-label").length > 20, colours.size > 10];
    })""")
    assert len(found) >= 8 and all(one == ["img", True, True] for one in found)


def test_a_timeline_says_whose_its_colours_are(served, page):
    """The outermost modules in the order of the step; a colour fills as much of the chart as those keep the GPU busy that have it."""
    open_view(served, page, "session")
    page.scroll_through()
    legend, drawn = page.tab.evaluate("""() => {
        const one = [...document.querySelectorAll("section")].find((each) => each.querySelector("h2")?.textContent === "Timeline of a step");
        const canvas = one.querySelector("canvas"), copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        const data = copy.getImageData(0, 0, canvas.width, canvas.height).data, counts = {};
        for (let i = 0; i < data.length; i += 4) {
            const colour = `rgb(${data[i]}, ${data[i+1]}, ${data[i+2]})`;
            if (data[i + 3] === 255) counts[colour] = (counts[colour] || 0) + 1;
        }
        return [[...one.querySelectorAll(".legend li")].map((each) => [each.textContent, getComputedStyle(each.querySelector("span")).backgroundColor]),
                counts];
    }""")
    busy = collections.Counter()
    for one in served.api("/api/v1/namespaces/local/sessions/h200/timeline?limit=20")["items"][0]["intervals"]:
        busy[one["layer"].split(".")[0] or "outside of layers"] += one["busy_ns"] or 0
    assert [name for name, _ in legend] == list(busy) and len(busy) > 1
    wanted = collections.Counter()
    for name, colour in legend:
        wanted[colour] += busy[name] / sum(busy.values())
    filled = {colour: drawn.get(colour, 0) for colour in wanted}
    assert len(wanted) == min(len(busy), 6)
    assert all(abs(filled[colour] / sum(filled.values()) - share) < 0.05 for colour, share in wanted.items()), (wanted, filled)


# --- how it is served ---------------------------------------------------------------

def asked(served, path, method="GET", **headers):
    connection = served.operator.connection()
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_files_have_a_strict_policy(served):
    status, headers, body = asked(served, "/page/")
    assert (status, headers["Content-Type"], headers["Content-Security-Policy"]) == (200, "text/html; charset=utf-8", POLICY)
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    text = body.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|(src|href)=\"(/|https?:)", text)
    for name in re.findall(r"(?:src|href)=\"([\w.]+)\"", text):
        status, headers, body = asked(served, f"/page/{name}")
        assert status == 200 and headers["Content-Security-Policy"] == POLICY and body
        assert headers["Content-Type"].split(";")[0] in ("text/javascript", "text/css")


def test_files_as_http_has_them(served):
    status, headers, whole = asked(served, "/page/main.js")
    assert status == 200 and int(headers["Content-Length"]) == len(whole) and headers["Cache-Control"] == "no-cache"
    again, same, nothing = asked(served, "/page/main.js", **{"If-None-Match": f"\"other\", {headers['ETag']}"})
    assert (again, nothing, same["ETag"]) == (304, b"", headers["ETag"])
    head, told, nothing = asked(served, "/page/main.js", "HEAD")
    assert (head, nothing, told["Content-Length"]) == (200, b"", str(len(whole)))
    for path in ("/", "/page"):
        status, headers, _ = asked(served, path)
        assert (status, headers["Location"]) == (308, "page/")
    assert asked(served, "/page/none.js")[0] == 404 and asked(served, "/page/../main.js")[0] == 404
    assert asked(served, "/page/main.js", "POST")[0] == 405
    assert served.operator.plain("/page/")[0] == 404


def test_without_a_token_nothing_is_shown(served, browser):
    with contextlib.closing(Page(browser, served.page)) as one:
        requests = []
        one.tab.on("request", lambda request: requests.append(request.url))
        one.tab.goto(f"{served.page}#/session/local/h200")
        one.tab.wait_for_selector("form.login")
        assert not [url for url in requests if not url.startswith(served.page)]
        one.tab.fill("form.login input", "nobody")
        one.tab.click("form.login button")
        one.tab.wait_for_selector(".problem")
        assert "token" in one.tab.text_content(".problem") and not one.tab.query_selector("[data-value]")


def test_who_may_list_one_namespace_names_it(served, browser, monkeypatch):
    monkeypatch.setitem(served.kubernetes.tokens, "few", {"username": "few", "uid": "few"})
    monkeypatch.setattr(served.kubernetes, "may", lambda user, attributes: user != "few" or attributes.get("namespace") == "local")
    with contextlib.closing(Page(browser, served.page, "few")) as one:
        one.tab.wait_for_selector(".problem")
        assert "right to list" in one.tab.text_content(".problem") and "Reading" not in one.tab.text_content("main")
        one.said.clear()  # 403
        one.tab.fill("main form input", "local")
        one.tab.keyboard.press("Enter")
        one.tab.wait_for_selector(READY["sessions"])
        for box in one.tab.query_selector_all("tr[data-row=session] input")[:2]:
            box.check()
        one.tab.click("button:text('Compare the two chosen')")
        one.tab.wait_for_selector(READY["compare"])
        one.tab.go_back()
        one.tab.wait_for_selector(READY["sessions"])
        one.tab.query_selector("tr[data-row=session] input").check()
        one.tab.click("button:text('side by side')")
        one.tab.wait_for_selector(READY["jobs"])
        one.tab.click("nav a:text('Compare')")
        one.tab.wait_for_selector("option:text('local/h200')", state="attached")
        one.tab.click("nav a:text('Patterns')")
        one.tab.wait_for_selector(READY["patterns"])
        assert not one.said


def test_who_may_get_sessions_needs_no_list_of_them(served, browser, monkeypatch):
    """Two are compared, and put side by side; those are what there is to choose from."""
    monkeypatch.setitem(served.kubernetes.tokens, "get", {"username": "get", "uid": "get"})
    monkeypatch.setattr(served.kubernetes, "may", lambda user, attributes: user != "get" or attributes.get("verb") == "get")
    names = {"local/sampling", f"local/{VARIED}"}
    with contextlib.closing(Page(browser, served.page)) as one:
        one.tab.goto(served.page)
        one.tab.fill("form.login input", "get")
        one.tab.click("form.login button")
        one.tab.wait_for_selector(".problem:has-text('right to list')")
        one.show(ways(served)["compare"].replace(whole_name(served, "h200"), whole_name(served, "sampling")), READY["compare"])
        assert {text for text in one.tab.evaluate("[...document.querySelector('main select').options].map((each) => each.textContent)")} == {
            "choose a session", *names}
        one.show(f"jobs?s={whole_name(served, 'sampling')}&s={whole_name(served, VARIED)}", READY["jobs"])
        assert set(one.tab.evaluate("[...document.querySelectorAll('.choices label')].map((each) => each.textContent.trim())")) == names
        assert {text.split(" (")[0] for text in one.said} == {"Failed to load resource: the server responded with a status of 403"}


def test_a_session_that_an_address_names_without_its_uid_is_offered_once(served, page):
    names = sorted(f"local/{row['name']}".replace("\u202e", "\\u202e") for row in served.sql("SELECT name FROM session"))
    page.show(f"compare?a={quoted('local/sampling')}&b={whole_name(served, VARIED)}", READY["compare"])
    offered = page.tab.evaluate("""[...document.querySelector("main select").options].map((one) => [one.textContent.split(",")[0], one.selected])""")
    assert sorted(text for text, _ in offered) == ["choose a session", *names] and [text for text, chosen in offered if chosen] == ["local/sampling"]
    page.show(f"jobs?s={quoted('local/sampling')}", READY["jobs"])
    offered = page.tab.evaluate("[...document.querySelectorAll('.choices label')].map((one) => [one.textContent.trim().split(',')[0], one.control.checked])")
    assert sorted(text for text, _ in offered) == names and [text for text, chosen in offered if chosen] == ["local/sampling"]


class ApiServersProxy(http.server.BaseHTTPRequestHandler):
    """As the API server's service proxy: below a prefix, and it takes Authorization for itself."""
    protocol_version = "HTTP/1.1"
    prefix = "/api/v1/namespaces/precisionprobe/services/https:precisionprobe:443/proxy"
    operator = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.startswith(self.prefix):
            return self.send_error(404)
        context = ssl.create_default_context(cadata=self.operator.ca)
        onward = Connection("127.0.0.1", self.operator.port, timeout=30, context=context)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("authorization", "host", "connection")}
        onward.request("GET", self.path.removeprefix(self.prefix) or "/", headers={**kept, "Host": HOST})
        answer = onward.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        onward.close()
        return None


def test_behind_the_api_servers_proxy(served, browser):
    handler = type("Handler", (ApiServersProxy,), {"operator": served.operator})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        with contextlib.closing(Page(browser, f"http://127.0.0.1:{proxy.server_port}{handler.prefix}/page/")) as one:
            one.tab.goto(one.address.removesuffix("/page/") + "/")
            one.log_in("all")
            one.said.clear()  # it had asked without a token, which may have been enough
            one.show("session/local/h200", READY["session"])
            assert not one.said
        proxy.shutdown()


def test_the_port_on_loopback_asks_for_no_login(served, browser):
    port = served.operator.values["page__openPort"]
    with contextlib.closing(Page(browser, f"http://localhost:{port}/page/")) as one:
        one.show("session/local/h200", READY["session"])
        assert not one.said
    for host, status in (("evil.example", 421), (f"evil.localhost:{port}", 421), (f"127.0.0.1:{port}", 200), ("localhost", 200)):
        for path in ("/page/", "/api/v1/sessions"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers={"Host": host})
            assert connection.getresponse().status == status, (host, path)
            connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Host": "localhost"})
    assert connection.getresponse().status == 404
    connection.close()


def change(served, phase, by):
    """The session's values are newer, and its times so many times as long."""
    psql(served.conninfo, f"UPDATE session SET phase = '{phase}' WHERE name = '{VARIED}'; UPDATE item SET total_ns = total_ns * {by} FROM session "
                          f"WHERE uid = session_uid AND name = '{VARIED}'; UPDATE attribution SET revision = revision + 1 FROM session "
                          f"WHERE uid = session_uid AND name = '{VARIED}'")


def costliest(one):
    return float(one.tab.get_attribute(".costliest [data-sum][data-column=ms_per_step]", "data-sum"))


@pytest.mark.usefixtures("varied_kept")
def test_a_session_is_followed_as_it_runs(served, browser):
    """Newer values come by themselves, and its end; what has not changed is not sent again."""
    answers = []
    change(served, "Sampling", 1)
    with contextlib.closing(Page(browser, served.page, "all")) as one:
        one.tab.clock.install()
        one.show(f"session/local/{VARIED}", READY["session"])
        assert one.tab.text_content(".phase") == "Sampling"
        before = costliest(one)
        one.tab.on("response", lambda answer: answers.append(answer.status))
        with one.tab.expect_response(lambda answer: "/quality" in answer.url):
            one.tab.clock.fast_forward(6000)
        assert set(answers) == {304}
        change(served, "Succeeded", 2)
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(".phase:text('Succeeded')")
        one.tab.wait_for_selector("#news:text('newer')", state="attached")
        assert costliest(one) == 2 * before
        answers.clear()
        one.tab.clock.fast_forward(20000)
        assert not answers and not one.said


@pytest.mark.usefixtures("varied_kept")
def test_the_last_values_wait_for_who_chooses(served, browser):
    """While a choice has the focus nothing moves under it; afterwards the values are those of the end."""
    change(served, "Sampling", 1)
    with following(served, browser, f"session/local/{VARIED}", READY["session"]) as one:
        before = costliest(one)
        one.tab.focus("#main select, main select")
        change(served, "Succeeded", 2)
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(".phase:text('Succeeded')")
        assert costliest(one) == before
        one.tab.evaluate("document.activeElement.blur()")
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector("#news:text('newer')", state="attached")
        assert costliest(one) == 2 * before


READERS = """() => {
    const of = (selector) => document.querySelector(selector);
    const sorts = [...document.querySelectorAll("th[aria-sort=descending], th[aria-sort=ascending]")]
        .map((one) => [one.closest("table").caption.textContent, one.textContent, one.getAttribute("aria-sort")]);
    return {focus: document.activeElement.closest("tr")?.dataset.path, opened: [...document.querySelectorAll("details")].map((one) => one.open),
            nodes: [...document.querySelectorAll(".node")].map((one) => [one.title, one.getAttribute("aria-expanded")]), sorts,
            scrolled: [scrollY, of(".scrolls[aria-label=Layers]").scrollLeft, of(".scrolls[aria-label=Layers]").scrollTop]};
}"""
LIVE_CANVASES = "HTMLCanvasElement.prototype"


def canvases(one):
    """Those that anything still holds, and those in the page."""
    tools = one.context.new_cdp_session(one.tab)
    prototype = tools.send("Runtime.evaluate", {"expression": LIVE_CANVASES})["result"]["objectId"]
    found = tools.send("Runtime.queryObjects", {"prototypeObjectId": prototype})["objects"]["objectId"]
    count = {"functionDeclaration": "function () { return this.length; }", "objectId": found, "returnByValue": True}
    held = tools.send("Runtime.callFunctionOn", count)["result"]["value"]
    tools.detach()
    return held, one.tab.evaluate("document.querySelectorAll('canvas').length")


def newer(served, one, by):
    one.tab.evaluate("document.getElementById('news').textContent = ''")
    change(served, "Sampling", by)
    one.tab.clock.fast_forward(6000)
    one.tab.wait_for_selector("#news:text('newer')", state="attached")


@pytest.mark.usefixtures("varied_kept")
def test_newer_values_leave_the_reader_where_they_were(served, browser):
    """Focus, what is open, how it is sorted and scrolled; and no chart of before is kept."""
    change(served, "Sampling", 1)
    with following(served, browser, f"session/local/{VARIED}", READY["session"]) as one:
        one.scroll_through()
        one.tab.click("figure[data-figure='2a: GPUUtil'] summary")
        one.tab.click("figure[data-figure='2a: GPUUtil'] th button:text('forward')")
        one.tab.click("section:has(h2:text('How sure')) th button:text('Method')")
        one.tab.click(".scrolls[aria-label=Layers] th button:text('Share')")
        one.tab.click(".scrolls[aria-label=Layers] .node >> nth=0")
        one.tab.evaluate("document.querySelector('.scrolls[aria-label=Layers]').scrollTo(120, 30); scrollTo(0, 300)")
        before, costs = one.tab.evaluate(READERS), costliest(one)
        assert before["focus"] and before["scrolled"] == [300, 120, 30] and len(before["sorts"]) >= 3, before
        newer(served, one, 2)
        assert costliest(one) == 2 * costs and one.tab.evaluate(READERS) == before
        one.scroll_through()
        one.tab.evaluate("scrollTo(0, document.body.scrollHeight)")
        foot = one.tab.evaluate("scrollY")
        newer(served, one, 0.5)
        assert one.tab.evaluate("scrollY") == foot
        one.scroll_through()
        assert one.tab.evaluate("document.querySelectorAll('canvas').length") > 4 and not one.said
        served.wait("the end of charts that have gone", lambda: len(set(canvases(one))) == 1)


def following(served, browser, way, ready):
    """A tab on a view, which reads again when its clock is moved on."""
    one = Page(browser, served.page, "all")
    one.tab.clock.install()
    one.show(way, ready)
    return contextlib.closing(one)


@pytest.mark.usefixtures("varied_kept")
@pytest.mark.parametrize("way, ready", [(f"session/local/{VARIED}", "session"), ("sessions", "sessions")])
def test_one_poll_that_fails_ends_nothing(served, browser, way, ready):
    """It is told, and the next one shows what is new."""
    def phase(name):
        psql(served.conninfo, f"UPDATE session SET phase = '{name}' WHERE name = '{VARIED}'")

    phase("Sampling")
    with following(served, browser, way, READY[ready]) as one:
        one.tab.route("**/api/v1/**", lambda route: route.abort())
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(".hint:has-text('What is shown may be old')")
        assert one.tab.query_selector(READY[ready])
        one.tab.unroute("**/api/v1/**")
        one.said.clear()  # what was aborted
        phase("Finishing")
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(".phase:text('Finishing')")
        one.tab.wait_for_selector(".hint:has-text('What is shown may be old')", state="detached")
        assert not one.said


@pytest.mark.usefixtures("varied_kept")
def test_newer_sessions_come_while_one_chooses(served, browser):
    """The list is newer though the focus is in it, which stays, as do the sort and what was chosen."""
    table = """() => [...document.querySelectorAll("tr[data-row=session]")].map((row) => [row.dataset.uid, row.querySelector("input").checked,
        row.querySelector("input") === document.activeElement])"""
    with following(served, browser, "sessions", READY["sessions"]) as one:
        one.tab.click("th button:text('Session')")
        one.tab.check(f"tr[data-row=session]:has(a:text-is('{VARIED}')) input")
        before = one.tab.evaluate(table)
        sort = "document.querySelector('th[aria-sort=ascending]').textContent"
        assert one.tab.evaluate(sort) == "Session" and [row[1:] for row in before].count([True, True]) == 1
        psql(served.conninfo, f"UPDATE session SET phase = 'Finishing' WHERE name = '{VARIED}'")
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(".phase:text('Finishing')")
        assert one.tab.evaluate(table) == before and one.tab.evaluate(sort) == "Session" and not one.said


# --- the timeline -----------------------------------------------------------------

CHOICES = """(label) => [...[...document.querySelectorAll("label")].find((one) => one.textContent === label).nextElementSibling.options]
    .map((one) => one.textContent)"""


def steps_of(served, name, process):
    at = f"/api/v1/namespaces/local/sessions/{name}/timeline"
    page = served.api(f"{at}?process={process}&limit=100")
    assert "continue" not in page
    return page["items"]


def test_all_steps_of_a_timeline_can_be_chosen(served, page):
    """Page by page; how many are there is told, and of what is asked for last is what is shown, whichever answer is first."""
    steps = steps_of(served, "made", 0)
    assert len(steps) > 20 and steps[-1]["step"] != steps_of(served, "h200", 0)[0]["step"]
    open_view(served, page, "made")
    timeline = page.tab.locator("section:has(h2:text('Timeline of a step'))")
    assert len(page.tab.evaluate(CHOICES, "Step")) == 20 and "The first 20 steps" in timeline.inner_text()
    page.tab.click("button:text('Read more of them')")
    page.tab.wait_for_selector(f"p:text('All {len(steps)} steps')")
    assert page.tab.evaluate(CHOICES, "Step") == [f"step {one['step']}, capture {one['capture']}" for one in steps]
    last = steps[-1]
    page.tab.select_option("select:near(:text-is('Step'))", label=f"step {last['step']}, capture {last['capture']}")
    assert page.tab.get_attribute("[data-row=step] [data-column=duration_ns]", "data-value") == str(last["duration_ns"])


INTERVALS = "[...document.querySelectorAll('[data-row=interval] [data-column=duration_ns]')].map((one) => Number(one.dataset.value))"


def test_of_timelines_the_last_choice_is_shown(served, page):
    """Though the answer for the one before it is the later one."""
    wanted, other = ([one["duration_ns"] for one in steps_of(served, "made", process)[0]["intervals"]] for process in range(2))
    assert sorted(wanted) != sorted(other)
    kept = []
    open_view(served, page, "made")
    page.tab.route("**/timeline*process=1*", lambda route: kept.append(route))
    chosen = "select:near(:text-is('Process'))"
    first, second = page.tab.evaluate(CHOICES, "Process")
    page.tab.select_option(chosen, label=second)
    page.tab.select_option(chosen, label=first)
    page.tab.wait_for_selector("[data-row=step]")
    open_all(page)
    with page.tab.expect_response("**/timeline*process=1*") as late:
        kept[0].continue_()
    late.value.finished()
    page.tab.unroute("**/timeline*process=1*")
    seen = page.tab.evaluate(f"""async () => {{
        const seen = [];
        for (let n = 0; n < 30; n++) {{
            await new Promise(requestAnimationFrame);
            seen.push({INTERVALS});
        }}
        return seen;
    }}""")
    assert all(sorted(one) == sorted(wanted) for one in seen)


@pytest.mark.usefixtures("varied_kept")
def test_steps_of_a_session_that_runs_come_by_themselves(served, browser, taken):
    """And what was chosen stays."""
    steps = steps_of(served, VARIED, 0)
    psql(served.conninfo, f"UPDATE session SET phase = 'Sampling' WHERE name = '{VARIED}'")
    back = taken(VARIED, f"end_ns > {steps[-1]['start_ns']}")
    before = steps_of(served, VARIED, 0)
    assert 1 < len(before) < len(steps) <= 20
    with following(served, browser, f"session/local/{VARIED}", READY["session"]) as one:
        one.tab.wait_for_selector("[data-row=step]")
        assert len(one.tab.evaluate(CHOICES, "Step")) == len(before)
        one.tab.select_option("select:near(:text-is('Step'))", index=1)
        psql(served.conninfo, back)
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(f"p:text('All {len(steps)} steps')")
        assert len(one.tab.evaluate(CHOICES, "Step")) == len(steps) and not one.said
        assert one.tab.get_attribute("[data-row=step]", "data-step") == str(before[1]["step"])


def label(step):
    return f"step {step['step']}, capture {step['capture']}"


@pytest.mark.usefixtures("varied_kept")
def test_steps_that_come_before_others_have_their_own_labels(served, browser, taken):
    """What is chosen stays; where all have gone, others come again."""
    steps = steps_of(served, VARIED, 0)
    psql(served.conninfo, f"UPDATE session SET phase = 'Sampling' WHERE name = '{VARIED}'")
    back = taken(VARIED, f"start_ns <= {steps[0]['start_ns']}")
    before = steps_of(served, VARIED, 0)
    assert 1 < len(before) < len(steps) <= 20 and before == steps[-len(before):]
    with following(served, browser, f"session/local/{VARIED}", READY["session"]) as one:
        one.tab.wait_for_selector("[data-row=step]")
        one.tab.select_option("select:near(:text-is('Step'))", label=label(before[-1]))
        psql(served.conninfo, back)
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(f"p:text('All {len(steps)} steps')")
        assert one.tab.evaluate(CHOICES, "Step") == [label(step) for step in steps]
        assert one.tab.locator("select:near(:text-is('Step')) >> option:checked").inner_text() == label(before[-1])
        for step in (steps[-2], steps[-1], steps[1]):
            one.tab.select_option("select:near(:text-is('Step'))", label=label(step))
            assert one.tab.get_attribute("[data-row=step]", "data-step") == str(step["step"])
        psql(served.conninfo, f"DELETE FROM taken; INSERT INTO taken SELECT a.* FROM activity a JOIN session ON uid = session_uid AND name = '{VARIED}'; "
                              "DELETE FROM activity a USING taken t WHERE a = t")
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(".gap:has-text('No step was kept one by one')")
        psql(served.conninfo, back)
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector(f"p:text('All {len(steps)} steps')")
        assert one.tab.evaluate(CHOICES, "Step") == [label(step) for step in steps] and one.tab.query_selector("[data-row=step]") and not one.said


def test_the_last_steps_come_though_others_are_being_read(served, browser, afterwards, taken):
    """The answer to what is asked for by hand is from before they came."""
    steps = steps_of(served, "made", 0)
    afterwards("UPDATE session SET phase = 'Succeeded' WHERE name = 'made'")
    psql(served.conninfo, "UPDATE session SET phase = 'Sampling' WHERE name = 'made'")
    back = taken("made", f"end_ns > {steps[-1]['start_ns']}")
    assert 20 < len(steps_of(served, "made", 0)) < len(steps)
    late = []
    with following(served, browser, "session/local/made", READY["session"]) as one:
        one.tab.wait_for_selector("p:text('The first 20 steps')")
        one.tab.route("**/timeline*continue=*", lambda route: late.append((route, route.fetch())), times=1)
        one.tab.click("button:text('Read more of them')")
        served.wait("the answer", lambda: one.tab.wait_for_timeout(20) or late)
        psql(served.conninfo, f"{back}; UPDATE session SET phase = 'Succeeded' WHERE name = 'made'")
        with one.tab.expect_response(lambda answer: "/quality" in answer.url) as last:
            one.tab.clock.fast_forward(6000)
        last.value.finished()
        one.tab.wait_for_selector(".phase:text('Succeeded')")
        one.tab.wait_for_timeout(200)
        route, answer = late[0]
        route.fulfill(response=answer)
        one.tab.wait_for_selector(f"p:text('All {len(steps)} steps')")
        assert one.tab.evaluate(CHOICES, "Step") == [label(step) for step in steps] and not one.said


# --- conditions -------------------------------------------------------------------

@pytest.fixture
def conditions_kept(served):
    """Those of the session that varies are as they were, afterwards."""
    kept = served.kubernetes.find(conftest.GROUP, "profilesessions", "local", VARIED)["status"]["conditions"]
    yield
    says(served, *[[one[key] for key in ("type", "status", "reason", "message")] for one in kept])


def says(served, *conditions):
    """Of the session that varies."""
    object_ = served.kubernetes.find(conftest.GROUP, "profilesessions", "local", VARIED)
    told = [conftest.condition(*one) for one in conditions]
    served.kubernetes.put(conftest.GROUP, "profilesessions", {**object_, "status": {**object_["status"], "conditions": told}})
    served.wait("conditions", lambda: [one["type"] for one in served.api(f"/api/v1/namespaces/local/sessions/{VARIED}")["conditions"]]
                == [one["type"] for one in told])
    return told


SHOWN_CONDITIONS = """[...document.querySelectorAll("tr[data-row=condition]")].map((row) => [...row.cells].map((cell) => cell.textContent))"""
WRONG = "[...document.querySelectorAll('[data-wrong]')].map((one) => [one.dataset.wrong, one.textContent])"


@pytest.mark.usefixtures("conditions_kept", "varied_kept")
def test_what_is_wrong_stands_where_one_looks_first(served, browser):
    """In words, above what was measured, with all conditions; newer ones come by themselves, and what is well is no alarm."""
    hostile = "no pod has <b>app=dlrm</b>\u202e"
    psql(served.conninfo, f"UPDATE session SET phase = 'Sampling' WHERE name = '{VARIED}'")
    told = says(served, ("Accepted", "True", "SpecValid", "The spec is valid"), ("Injected", "False", "NoMatchingPods", hostile),
                ("MetricsAvailable", "False", "MetricsMissing", "no samples of FP32Active"), ("Sampled", "Unknown", "WaitingForSamples", "not yet"),
                ("Stalled", "True", "NoMatchingPods", hostile))
    with following(served, browser, f"session/local/{VARIED}", READY["session"]) as one:
        seen = hostile.replace("\u202e", "\\u202e")
        assert one.tab.evaluate(WRONG) == [["Stalled", f"Somebody has to act: {seen} (NoMatchingPods)"],
                                           ["MetricsAvailable", "Metrics are missing: no samples of FP32Active (MetricsMissing)"]]
        rows = [[c["type"], c["status"], c["reason"], c["message"].replace("\u202e", "\\u202e")] for c in told]
        assert [row[:4] for row in one.tab.evaluate(SHOWN_CONDITIONS)] == rows and "2026-11-27 21:05:07" in one.tab.evaluate(SHOWN_CONDITIONS)[0][4]
        assert one.tab.is_visible("tr[data-row=condition]") and not one.tab.query_selector(".problem b")
        where = one.tab.evaluate("['[data-wrong]', 'tr[data-row=condition]', '.headline'].map((one) => document.querySelector(one).getBoundingClientRect().top)")
        assert where == sorted(where) and not serious(one)
        says(served, ("Stalled", "False", "Sampling", "All is well"))
        one.tab.clock.fast_forward(6000)
        one.tab.wait_for_selector("[data-wrong]", state="detached")
        assert [row[:2] for row in one.tab.evaluate(SHOWN_CONDITIONS)] == [["Stalled", "False"]] and not one.said
    psql(served.conninfo, f"UPDATE session SET phase = 'Succeeded' WHERE name = '{VARIED}'")
    with following(served, browser, f"session/local/{VARIED}", READY["session"]) as one:
        assert not one.tab.is_visible("tr[data-row=condition]")
        one.tab.click("summary:text-is('Conditions')")
        assert one.tab.is_visible("tr[data-row=condition]")


def test_results_outlive_their_object(served, page):
    """Nobody knows its conditions then, and the page says nothing of them."""
    at = "/api/v1/namespaces/local/sessions/made"
    open_view(served, page, "sessions")
    kept = served.kubernetes.find(conftest.GROUP, "profilesessions", "local", "made")
    served.kubernetes.put(conftest.GROUP, "profilesessions", kept, "DELETED")
    del served.kubernetes.objects[conftest.GROUP, "profilesessions"]["local", "made"]
    served.wait("the object's end", lambda: served.api(at)["conditions"] is None)
    open_view(served, page, "made")
    assert not page.tab.query_selector("summary:text-is('Conditions'), tr[data-row=condition]")
    served.kubernetes.add(conftest.GROUP, "profilesessions", kept)
    served.wait("the object", lambda: served.api(at)["conditions"])


def test_sessions_say_why_their_phase_is_what_it_is(served, page):
    """Each has the row that SQL has, and the reason that its object tells, as kubectl shows it."""
    open_view(served, page, "sessions")
    told = page.tab.evaluate("""[...document.querySelectorAll("tr[data-row=session]")].map((row) => {
        const titles = [...row.closest("table").querySelectorAll("thead th")].map((one) => one.textContent.trim());
        return Object.fromEntries([["uid", row.dataset.uid], ...[...row.cells].map((cell, n) => [titles[n], cell.textContent.trim()])]);
    })""")
    rows = {row["uid"]: row for row in served.sql("SELECT uid, name, namespace, phase, method FROM session")}
    objects = served.kubernetes.objects[conftest.GROUP, "profilesessions"]
    assert {row["uid"] for row in told} == set(rows)
    for row in told:
        one = rows[row["uid"]]
        conditions = objects[one["namespace"], one["name"]]["status"]["conditions"]
        why = next(condition["reason"] for condition in conditions if condition["type"] == "Succeeded")
        assert [row[title] for title in ("Namespace", "Phase", "Method", "Reason")] == [one["namespace"], one["phase"], one["method"], why]


# --- a run's own ------------------------------------------------------------------

def test_a_report_serves_the_same_page(served, browser):
    """Over a folder of results: numbers are those of its other formats, to the last digit."""
    names = figures.Names(served).units
    told = {key: value for key, value, _ in figures.report_json(served) if key[1] == "h200"}
    command = [conftest.needed("PP_CLI"), "report", "--serve=0", str(served.folders["h200"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            with contextlib.closing(Page(browser, child.stdout.readline().strip())) as one:
                one.show("session/local/h200", READY["session"])
                one.tab.wait_for_selector("section:has(h2:text('Timeline')) figure")
                open_all(one)
                shown = [value for value in one.tab.evaluate(SHOWN) if value["row"]["row"] in ("item", "figure", "roofline")]
                assert not one.said
        finally:
            child.terminate()
            assert child.wait(30) == 0

    def expected(one):
        row = one["row"]
        key = (row["gpu"], row.get("kind", "layer"), row["layer"], one["phase"] or "")
        return told[("metric", "h200", *key, one["metric"], one["column"]) if one["metric"] else ("item", "h200", *key, one["column"])]

    assert not differing(shown, expected) and len(shown) > 500 and {one["metric"] for one in shown if one["metric"]} <= set(names)


def test_a_report_says_how_sure_its_values_are(served, browser):
    """Of PM sampling too, as results.json has it and SQL would."""
    at = conftest.RECORDINGS / "h200"
    names = figures.Names(served)
    sampled, = json.loads((at / "results.json").read_text())["gpus"][0]["fine"]
    command = [conftest.needed("PP_CLI"), "report", "--serve=0", str(at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            with contextlib.closing(Page(browser, child.stdout.readline().strip())) as one:
                one.show("session/local/h200", READY["session"])
                told = {(value["row"]["metric"], value["column"]): float(value["value"])
                        for value in one.tab.evaluate(SHOWN) if (value["row"] or {}).get("row") == "quality"}
                assert "checked" in one.tab.text_content(".headline")
        finally:
            child.terminate()
            assert child.wait(30) == 0
    for metric, of in sampled["closure"].items():
        for column, key in (("held", "held"), ("difference", "difference"), ("explained", "explained"), ("items_z", "itemsZ")):
            assert told[names[metric], column] == of[key], (metric, column)
        assert (told[names[metric], "lag_ns"], told[names[metric], "windows"]) == (sampled["lagNs"], sampled["samples"])


# --- pictures ---------------------------------------------------------------------

# By view and scheme: the name, and what of the page is in it.
PICTURES = {("session", "light"): ("page-session", 1150), ("session", "dark"): ("page-session-dark", 1150),
            ("compare", "light"): ("page-compare", 800), ("jobs", "light"): ("page-jobs", 1250)}


def picture(page, view, scheme):
    folder = os.environ.get("PP_SCREENSHOTS")
    if not folder or (view, scheme) not in PICTURES:
        return
    page.tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
    name, height = PICTURES[view, scheme]
    before = page.tab.viewport_size
    page.tab.set_viewport_size({"width": before["width"], "height": height})
    page.scroll_through()
    page.tab.screenshot(path=pathlib.Path(folder) / f"{name}.png")
    page.tab.set_viewport_size(before)


