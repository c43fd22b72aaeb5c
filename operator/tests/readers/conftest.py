"""Recorded sessions in a Postgres, and the operator's program that serves them, as each of its readers meets them.

PP_CLI          the program precisionprobe
PP_OPERATOR     the operator's
PP_SOLVE_AGAIN  cli/tests/solve_again, which writes a recording's results as a run of today does
"""
import json
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from serving import ROOT, backends, needed, serving  # noqa: E402
from harness.alone import psql  # noqa: E402

sys.path.insert(0, str(ROOT / "cli/tests"))
import folder  # noqa: E402

RECORDINGS = ROOT / "cli/tests/recordings"
PATIENCE = 60
GROUP = "precisionprobe.io"
# What a recording of the demo's operator lacks of a run's facts.
FACTS = {"started": "2026-11-26T00:00:00Z", "finished": "2026-11-27T21:05:07Z", "command": ["demo"], "metrics": []}
GPUS = [folder.GPU, folder.GPU.replace("5" * 12, "6" * 12)]


def quoted(text):
    """As a part of a path."""
    return urllib.parse.quote(text, safe="")


# --- sessions ---------------------------------------------------------------------

def made_batch(process, seq):
    """Ten steps of one of two processes, the second of which is slower in a layer; what only newer recordings have, too."""
    one = folder.batch(seq, 10 * seq, 10)
    one["seq"] = 2 * seq + process
    one["process"].update(id=process, rank=process, worldSize=2, gpus=[GPUS[process]], clock="kernels",
                          modelDigest="0123456789abcdef", batch="64x13 float32",
                          gpuModel="NVIDIA H200",
                          chip={"capability": 90, "multiprocessors": 132, "smKHz": 1980000, "memoryKHz": 3201000, "memoryBits": 6144})
    one["process"].pop("kernels", None)
    one["layers"][0]["whole"] = 4  # one that stands for those in it
    one["intervals"]["duration"] = [n - (process and k % 2) * 30 * folder.MS for k, n in enumerate(one["intervals"]["duration"])]
    one["intervals"]["kernels"] = [n // 3 for n in one["intervals"]["duration"]]
    one["steps"]["gap"] = [123456789 + 1000 * seq] * 10
    if process == 0:
        one["kernels"] = {"steps": 10, "names": ["gemm", "a\"b\\"], "layer": [1, 1, 0], "phase": [0, 0, 7], "name": [0, 1, 0],
                          "count": [10, 7, 10], "duration": [3333333 + seq, 1234567, 999]}
        one["waits"] = {"steps": 10, "calls": ["item"], "files": ["train.py"], "layer": [0], "phase": [7], "call": [0],
                        "file": [0], "line": [41], "count": [7], "inSteps": [3], "duration": [31 * folder.MS + seq]}
        one["copies"] = {"steps": 10, "layer": [0], "phase": [7], "type": [0], "memory": [2], "count": [7], "bytes": [300000001],
                         "duration": [29 * folder.MS + seq]}
    if one["stretch"]["last"]:  # and then steps that are counted: nine runs of some
        begin = one["stretch"]["end"]
        one["stretch"]["end"] += 9 * 5000 * folder.MS
        one["counted"] = {"start": folder.delta([begin + n * 5000 * folder.MS for n in range(9)]), "steps": [5] * 9,
                          "duration": [4990 * folder.MS - n * n * 1234567 for n in range(9)]}
    if seq < 3:  # of few steps
        one["memory"] = {"steps": 1, "layer": [1, 1, 0], "phase": [0, 1, 7], "peak": [8123456789 + seq, 7654321098, 6000000000],
                         "left": [7000001 + seq + process, -7000001, -seq]}
    return one


def made(place):
    """Two GPUs, all metrics that windows have, ranks, kernels, waits, copies, memory."""
    batches = [made_batch(process, seq) for seq in range(folder.STEPS // 10) for process in range(2)]
    lines = []
    for k, gpu in enumerate(GPUS):
        for metric, times in (("SMActive", 1), ("DRAMActive", 0.7), ("FP32Active", 0.5), ("Power", 300), ("GPUMem", 4096),
                              ("SMClock", 1700), ("PCIeTx", 1e9)):
            told = folder.samples()
            lines.append({**told, "gpu": gpu, "metric": metric, "value": [v * times * (1 - k / 7) for v in told["value"]]})
    return folder.write(place, {**folder.RESULTS, "metrics": []}, batches, lines)


def recorded(place, name):
    """On a GPU of its own: some were recorded within a minute on one, and an operator reads samples from before and behind a session."""
    shutil.copytree(RECORDINGS / name, place)
    for file in place.iterdir():
        file.write_text(file.read_text().replace("GPU-9fb84752", f"GPU-{name.encode().hex()[:8]}"))
    results = json.loads((place / "results.json").read_text())
    (place / "results.json").write_text(json.dumps({**FACTS, **results}))
    return place


def solved(place, *scrape):
    """The same folder, with results that a run of today would have written; `scrape` ms: as an operator solves."""
    subprocess.run([needed("PP_SOLVE_AGAIN"), place, place, *map(str, scrape)], check=True, timeout=900)
    return place


def imported(conninfo, name, place):
    done = subprocess.run([needed("PP_CLI"), "import", "--database", conninfo, f"--name={name}", place], capture_output=True, text=True, check=True,
                          timeout=900)
    return done.stdout.split()[-1]


def condition(kind, status, reason, message):
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-27T21:05:07Z"}


CONDITIONS = [condition("MetricsAvailable", "True", "SamplesFound", "Every metric has samples"),
              condition("Succeeded", "True", "PodsFinished", "The results are complete")]


def profile_session(conninfo, uid):
    """The object that a session has, by its row."""
    row = json.loads(psql(conninfo, f"SELECT to_json(s) FROM session s WHERE uid = '{uid}'"))
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "ProfileSession",
            "metadata": {"name": row["name"], "namespace": row["namespace"], "uid": uid},
            "spec": {"selector": {"matchLabels": {"app": "none"}}, "duration": "2m"},
            "status": {"phase": "Succeeded", "completionTime": row["finished_at"][:19] + "Z", "conditions": CONDITIONS}}


# What an import has found, so that the operator finds it anew; what agents had sent is left.
FORGET = """DELETE FROM pattern; DELETE FROM usage; DELETE FROM attribution; DELETE FROM rank; DELETE FROM sample;
UPDATE metric_sample SET source = 'prometheus'; UPDATE session SET phase = 'Finishing', finished_at = NULL"""


def unfinished(conninfo, object_):
    """The same session as it is when its pods have ended: the operator solves it, and says how it went."""
    uid = object_["metadata"]["uid"]
    row = json.loads(psql(conninfo, "SELECT to_json(r) FROM (SELECT s.method, "
                                    f"to_timestamp(observed_first_ns / 1e9) AS at FROM target JOIN session s ON uid = '{uid}' "
                                    "WHERE session_uid = uid) r"))
    metrics = psql(conninfo, "SELECT spec_name FROM metric").split()
    return {**object_, "spec": {"selector": object_["spec"]["selector"], "steps": {"max": 1}, "method": row["method"], "metrics": metrics},
            "status": {"phase": "Finishing", "startTime": row["at"][:19] + "Z"}}


# --- the operator -----------------------------------------------------------------

class Served:
    """`folders`: {workload: its folder of results}, `conninfo` of the database, `operator` and `kubernetes` beside it."""

    def __init__(self, conninfo, kubernetes, operator, folders):
        self.conninfo, self.kubernetes, self.operator, self.folders = conninfo, kubernetes, operator, folders

    def sql(self, query):
        """Rows as JSON has them: numbers are the texts of the database, read as doubles."""
        return json.loads(psql(self.conninfo, f"SET timezone = 'UTC'; SELECT coalesce(json_agg(r), '[]') FROM ({query}) r"))

    def api(self, path):
        status, _, body = self.operator.get(path, "all")
        assert status == 200, (path, status, body)
        return json.loads(body)

    def pages(self, path):
        """All items of all pages."""
        items, more = [], ""
        while more is not None:
            page = self.api(f"{path}?limit=7{more and '&continue=' + quoted(more)}")
            items += page["items"]
            more = page.get("continue")
        return items

    def metrics(self):
        return self.operator.plain("/metrics")[1]

    def patterns(self):
        """{workload: ConsumptionPattern}."""
        all_ = self.kubernetes.objects.get((GROUP, "consumptionpatterns"), {}).values()
        return {p["spec"]["workload"]["name"]: p for p in all_ if p.get("status")}

    def wait(self, what, done):
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, f"{what} does not come:\n{self.operator.text()}"
            time.sleep(0.1)


def serve(folders, after="", **options):
    """Yields all that reads the sessions of these folders, by their workloads, once it has them. `after`: SQL behind the imports;
    `options` of the operator."""
    with backends(["all"]) as (conninfo, kubernetes):
        for name, place in folders.items():
            object_ = profile_session(conninfo, imported(conninfo, name, place))
            kubernetes.add(GROUP, "profilesessions", unfinished(conninfo, object_) if after == FORGET else object_)
        psql(conninfo, after)
        with serving(conninfo, kubernetes, **options) as operator:
            served = Served(conninfo, kubernetes, operator, folders)
            served.wait("a pattern", lambda: set(served.patterns()) == set(folders))
            served.wait("a workload's metrics", lambda: f"precisionprobe_workloads {len(folders)}\n" in served.metrics())
            yield served


SCRAPE = 250  # ms


@pytest.fixture(scope="session", params=["imported", "solved"])
def served(request, tmp_path_factory):
    """The demo's recording, those of GPUs, and one that has whatever these lack; imported, or solved by the operator from what
    agents have sent."""
    place = tmp_path_factory.mktemp("sessions")
    folders = {name: recorded(place / name, name) for name in ("demo", "sampling", "replay", "regression", "h200")}
    folders["made"] = made(place / "made")
    if request.param == "imported":
        yield from serve({name: solved(at) for name, at in folders.items()})
        return
    intervals = {"prometheus__collectionInterval": f"{SCRAPE}ms", "prometheus__scrapeInterval": f"{SCRAPE}ms"}
    yield from serve({name: solved(at, SCRAPE) for name, at in folders.items()}, after=FORGET, **intervals)
