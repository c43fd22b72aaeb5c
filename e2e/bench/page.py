"""How long does the page take to show a session of 1,200 layers, and how large is it?

An operator alone (harness/alone.py: its program, a Postgres, a small API server), without a cluster, and Debian's Chromium on it. Time is
from opening the address of the session, with an empty cache, until its headline, its layers and all of its figures are painted, in a window
that is tall enough for all of them (otherwise they are drawn when they are scrolled to); `drawing` is that without what the operator took
to answer (`answers`), `processor` what the page's thread took of a processor, also on a busy machine. Bytes are of all files of the page, as they are sent.

    PP_OPERATOR=build/release/operator/precisionprobe-operator PP_BROWSER=FOLDER /usr/bin/python3 e2e/bench/page.py
"""
import argparse
import contextlib
import statistics
import sys
import time

import lab

sys.path.insert(0, str(lab.HERE.parent))
from harness.alone import Kubernetes, Operator, postgres, psql  # noqa: E402
from harness.browser import Page, chromium  # noqa: E402

ROWS = lab.HERE / "page_rows.sql"
WAY = "session/ml/large"
SHOWN = "section:has(h2:text('Timeline')) .gap"  # of activity this session has none
TALL = {"width": 1280, "height": 8000}
# Two frames behind the last change there is nothing left to paint.
TIMES = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    const charts = document.querySelectorAll(".chart"), drawn = document.querySelectorAll(".chart canvas");
    const answers = performance.getEntriesByType("resource").filter((one) => one.name.includes("/api/v1/"));
    const spans = answers.map((one) => [one.startTime, one.responseEnd]).sort((a, b) => a[0] - b[0]);
    let waited = 0, until = 0;
    for (const [from, to] of spans) { waited += Math.max(0, to - Math.max(from, until)); until = Math.max(until, to); }
    done({charts: charts.length, missing: charts.length - drawn.length, all: performance.now(), answers: waited, bytes: answers.reduce((sum, one) => sum + one.encodedBodySize, 0)});
})))"""


def opened(browser, address):
    """Seconds, of a tab that has nothing yet."""
    with contextlib.closing(Page(browser, address, "reader", viewport=TALL)) as page:
        page.tab.goto("about:blank")
        tools = page.context.new_cdp_session(page.tab)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.tab.goto(f"{address}#/{WAY}")
        page.tab.wait_for_selector(SHOWN)
        times = page.tab.evaluate(TIMES)
        assert not page.said and not times["missing"], (page.said, times)
        rows = page.tab.locator("tr[data-row=item]").count()
        told = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
        return {**times, "rows": rows, "processor": told["TaskDuration"]}


def size(browser, address):
    """Bytes of all files that the page asks for."""
    with contextlib.closing(Page(browser, address)) as page:
        found = {}
        page.tab.on("response", lambda one: found.setdefault(one.url, one))
        page.tab.goto(address)
        page.tab.wait_for_selector("form.login")
        return {url.rsplit("/", 1)[1] or "index.html": len(one.body()) for url, one in found.items()}


def await_tables(conninfo):
    """The operator makes them once it is connected; the metrics' names come last."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(RuntimeError):
            if int(psql(conninfo, "SELECT count(*) FROM metric")) > 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the operator makes no tables")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9)
    args = parser.parse_args()
    with postgres() as conninfo, Kubernetes() as kubernetes, chromium() as browser:
        kubernetes.tokens["reader"] = {"username": "reader", "uid": "reader"}
        with Operator(lab.needed("PP_OPERATOR"), kubernetes, conninfo) as operator:
            await_tables(conninfo)
            psql(conninfo, ROWS.read_text(encoding="utf-8") + "\n; ANALYZE;")
            address = f"https://127.0.0.1:{operator.port}/page/"
            files = size(browser, address)
            lab.figure("page's files", sum(files.values()), "bytes", limit=1_000_000, files=len(files))
            runs = [opened(browser, address) for _ in range(args.times)]
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    lab.figure("a session of 1,200 layers, shown", middle["all"] / 1e3, "s", limit=1.0, answers=round(middle["answers"] / 1e3, 3),
               drawing=round((middle["all"] - middle["answers"]) / 1e3, 3), answered_bytes=middle["bytes"], processor=round(middle["processor"], 3), rows=middle["rows"], charts=middle["charts"],
               most=round(max(run["all"] for run in runs) / 1e3, 3), count=len(runs))
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
