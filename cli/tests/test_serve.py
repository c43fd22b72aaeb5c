"""`precisionprobe report --serve`: the page and the API's documents over results of runs.

PP_CLI  the program precisionprobe
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.parse

import pytest

import folder

ITEM = {"kind": "layer", "layer": "bot.0", "type": "Linear", "phase": "forward", "calls": 60, "millisecondsPerStep": 7.125, "share": 0.7,
        "kernels": [{"name": "gemm", "callsPerStep": 2.0, "millisecondsPerStep": 3.5}, {"name": "copy", "callsPerStep": 1.0, "millisecondsPerStep": 0.5}],
        "metrics": {"SMActive": {"mean": 0.8, "standardError": 0.0123456789, "unit": "share of 1", "method": "regression"}}}
GPU = {"gpu": folder.GPU, "steps": 60, "stepMs": 10.0, "items": [ITEM, {**ITEM, "kind": "optimizer", "layer": "", "phase": ""}],
       "quality": {"SMActive": {"method": "regression", "doubt": None, "untold": None, "explained": 0.75, "miss": 0.01, "expectedMiss": 0.02,
                                "items": 2, "itemsZ": 1.5, "idle": 0.0, "idleStandardError": 0.001, "shiftMs": 1.5, "shiftStandardErrorMs": None}},
       "closure": {"DRAMActive": {"held": 0.5, "difference": -0.01, "windows": 40}}}
RANK = {"process": 0, "rank": 0, "worldSize": 5, "steps": 60, "stepMs": 10.0, "waitMs": 1.5, "ownMs": 8.5, "ownStandardErrorMs": 0.25, "items": []}
RANKS = [{**RANK, "process": n, "rank": n, "ownMs": own} for n, own in enumerate((8.5, 7.0, 7.5, None, 8.0))]
WAIT = {"layer": "", "phase": "other", "call": "item", "file": "a<b>.py", "line": 41, "callsPerStep": 1.0, "shareOfSteps": 0.5, "millisecondsPerStep": 2.25}
COPY = {"layer": "", "phase": "other", "type": "h2d", "memory": "pinned", "perStep": 1.0, "bytesPerStep": 3e8, "millisecondsPerStep": 0.5,
        "gigabytesPerSecond": 600.0}
PATTERN = {"bound": "Memory", "shares": "busy", "steps": 60, "boundLead": {"value": 0.25, "standardError": 0.125}, "models": [{"class": "Two"}],
           "step": {"milliseconds": {"value": 10.5, "standardError": 0.5}, "undisturbed": True}, "bounds": [{"by": "Memory", "share": {"value": 0.625}}],
           "time": [{"layerType": "Linear", "share": {"value": 0.5, "standardError": 0.25}}, {"phase": "optimizer", "share": {"value": 0.125}}],
           "metrics": [{"name": "SMActive", "source": "layers", "mean": {"value": 0.75, "standardError": 0.0625}}]}
RESULTS = {**folder.RESULTS, "gpus": [GPU, {"gpu": "", "items": []}], "ranks": RANKS, "hostWaits": {"steps": 60, "calls": [WAIT]}, "copies": {"steps": 60, "items": [COPY]},
           "pattern": PATTERN}


@contextlib.contextmanager
def printed(*arguments):
    """The page's address, as it is printed; the program has to end well when it is told to."""
    with subprocess.Popen([os.environ["PP_CLI"], "report", *arguments], stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child.stdout.readline().strip()
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 0


@contextlib.contextmanager
def serving(*arguments):
    """(host, port) of the page."""
    with printed(*arguments) as address:
        url = urllib.parse.urlsplit(address)
        yield url.hostname, url.port


def get(at, path, method="GET", **headers):
    connection = http.client.HTTPConnection(*at, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folder.write(tmp_path_factory.mktemp("serve") / "one run", RESULTS)


@pytest.fixture(scope="module")
def at(place):
    with serving("--serve=0", place, place) as one:
        yield one


def document(at, path):
    status, headers, body = get(at, f"/api/v1/{path}")
    assert status == 200 and headers["Content-Type"] == "application/json"
    return json.loads(body)


def items(at, below):
    rows = document(at, f"namespaces/local/sessions/one%20run/{below}")["items"]
    assert all(row["pod_uid"] == "run-1" for row in rows)
    return rows


def test_sessions(at):
    told = document(at, "sessions")["items"]
    assert [(one["session"], one["session_uid"], one["session_phase"]) for one in told] == [
        ("one run", "run-1", "Succeeded"), ("one run", "run-2", "Succeeded")]
    assert told == document(at, "namespaces/local/sessions")["items"]
    one = document(at, "namespaces/local/sessions/one%20run?uid=run-2")
    assert one["session_uid"] == "run-2" and one["created_at"] == RESULTS["started"] and one["pods"][0]["processes"] == [0]


def test_a_run_without_a_sampled_step(tmp_path):
    """It has failed, as such a session on a cluster, and says why."""
    why = "no Python that it started imported torch"
    told = folder.write(tmp_path / "none", {**folder.RESULTS, "sampledSteps": 0, "unsampled": why})
    with serving("--serve=0", told, folder.write(tmp_path / "some", RESULTS)) as one:
        assert [(row["session"], row["session_phase"], row.get("reason")) for row in document(one, "sessions")["items"]] == [
            ("none", "Failed", "NoStepSampled"), ("some", "Succeeded", None)]
        assert document(one, "namespaces/local/sessions/none")["conditions"] == [
            {"type": "Failed", "status": "True", "reason": "NoStepSampled", "message": f"no step was sampled: {why}",
             "last_transition_time": folder.RESULTS["finished"]}]
        assert document(one, "namespaces/local/sessions/some")["conditions"] is None


def test_layers_are_those_of_the_report(at, place):
    done = subprocess.run([os.environ["PP_CLI"], "report", "--format=json", str(place)], capture_output=True, check=True, timeout=60)
    told = items(at, "layers")
    added = {"pod_uid": "run-1", "revision": 1, "final": True}
    assert told == [{**row, **added} for row in json.loads(done.stdout)["items"]] and len(told) == 2
    assert told[0]["metrics"]["sm_active"]["stderr"] == 0.0123456789


def test_rows_are_those_of_the_results(at):
    windows, replays = items(at, "quality")
    assert (windows["method"], windows["metric"], windows["gpu_uuid"], windows["explained"], windows["items_z"], windows["shift_ns"],
            windows["shift_stderr_ns"], windows["held"]) == ("regression", "sm_active", folder.GPU, 0.75, 1.5, 1.5e6, None, None)
    assert (replays["method"], replays["metric"], replays["held"], replays["difference"], replays["windows"]) == (
        "replay", "dram_active", 0.5, -0.01, 40)
    kernels = items(at, "kernels")
    assert [(k["layer"], k["phase"], k["kernel"], k["calls_per_step"], k["ms_per_step"], k["share"]) for k in kernels] == [
        ("bot.0", "forward", "gemm", 2.0, 3.5, 0.875), ("bot.0", "forward", "copy", 1.0, 0.5, 0.125), ("", "optimizer", "gemm", 2.0, 3.5, 0.875),
        ("", "optimizer", "copy", 1.0, 0.5, 0.125)]
    wait, = items(at, "waits")
    assert (wait["file"], wait["line"], wait["share_of_steps"], wait["process"]) == ("a<b>.py", 41, 0.5, 0)
    copy, = items(at, "copies")
    assert (copy["type"], copy["bytes_per_step"], copy["gb_per_second"]) == ("h2d", 3e8, 600.0)
    ranks = items(at, "ranks")
    assert (ranks[0]["rank"], ranks[0]["world_size"], ranks[0]["own_ms_per_step"], ranks[0]["own_stderr_ms"]) == (0, 5, 8.5, 0.25)
    assert [rank["others_own_ms_per_step"] for rank in ranks] == [7.5, 8.0, 8.0, None, 7.5]  # medians of the other three


def test_a_rank_without_others(tmp_path):
    (tmp_path / "alone.json").write_text(json.dumps({**RESULTS, "ranks": [RANK]}))
    with serving("--serve=0", tmp_path / "alone.json") as one:
        rank, = document(one, "namespaces/local/sessions/alone/ranks")["items"]
        assert rank["own_ms_per_step"] == 8.5 and rank["others_own_ms_per_step"] is None


def test_the_timeline_is_that_of_the_batches(at):
    told = document(at, "namespaces/local/sessions/one%20run/timeline")
    assert told["process"] == 0 and [step["step"] for step in told["items"]] == list(range(folder.STEPS))
    for step in told["items"]:
        assert step["duration_ns"] == 1000 * folder.MS and step["gap_ns"] is None
        assert [(one["layer"], one["phase"], one["start_ns"] // folder.MS, one["duration_ns"] // folder.MS) for one in step["intervals"]] == [
            (name, "forward", start, length) for name, start, length, _ in folder.LAYERS]
    assert document(at, "namespaces/local/sessions/one%20run/timeline?process=1")["items"] == []


def test_a_timeline_goes_on_where_its_page_ends(at):
    of, told, more = "namespaces/local/sessions/one%20run/timeline?limit=25", [], ""
    while more is not None:
        page = document(at, f"{of}{more and '&continue=' + more}")
        assert page["process"] == 0 and 0 < len(page["items"]) <= 25
        told += page["items"]
        more = page.get("continue")
    assert told == document(at, "namespaces/local/sessions/one%20run/timeline?limit=5000")["items"] and len(told) == folder.STEPS


@pytest.mark.parametrize("field, told", [
    *(("continue", told) for told in ("x", "", "0", "-1", "+1", "25x", "%2025", "1e1", "99999999999999999999", "x" * 200)),
    *(("limit", told) for told in ("x", "", "0", "5001", "25.")), *(("process", told) for told in ("x", "", "-1", "65536"))])
def test_what_is_no_number_is_refused(at, field, told):
    """Whatever stands before it: else a client would be led back to the page that it has."""
    of = "/api/v1/namespaces/local/sessions/one%20run/timeline"
    assert "continue" in json.loads(get(at, f"{of}?limit=25")[2])
    for query in (f"{field}={told}", f"uid=run-1&{field}={told}&other=1"):
        status, headers, body = get(at, f"{of}?{query}")
        problem = json.loads(body)
        assert (status, headers["Content-Type"], problem["status"], problem["field"]) == (400, "application/problem+json", 400, field)
        assert problem["type"] == "urn:precisionprobe:problem:invalid" and problem["detail"].startswith(f"{field} must be an integer from ")


def test_a_page_behind_the_last_is_empty(at):
    page = document(at, "namespaces/local/sessions/one%20run/timeline?continue=999999999")
    assert page["items"] == [] and "continue" not in page


def test_the_pattern_is_that_of_the_results(at):
    head = document(at, "namespaces/local/patterns")["items"][0]
    whole = document(at, f"namespaces/local/patterns/{head['pattern']}")
    assert document(at, "namespaces/local/patterns/one%20run") == whole
    assert {name: whole[name] for name in head} == head
    assert whole["gpus"] == 1  # as the database counts: what names no GPU beside one that is named is none
    assert (whole["bound"], whole["lead"], whole["lead_stderr"], whole["step_ns"], whole["step_ns_stderr"], whole["idle"], whole["busy"]) == (
        "Memory", 0.25, 0.125, 10.5e6, 0.5e6, None, True)
    assert whole["bounds"] == [{"kind": "bound", "name": "Memory", "share": 0.625, "share_stderr": None, "achieved": None,
                                "achieved_stderr": None}]
    assert [(one["kind"], one["name"], one["share"]) for one in whole["time"]] == [("layer", "Linear", 0.5), ("phase", "optimizer", 0.125)]
    metric, = whole["metrics"]
    assert (metric["metric"], metric["source"], metric["mean"], metric["mean_stderr"], metric["p50"]) == ("sm_active", "layers", 0.75, 0.0625, None)


def test_patterns_of_folders_of_one_name_are_their_own(tmp_path):
    """As of a/results and b/results."""
    places = []
    for each, bound in (("a", "Memory"), ("b", "FP32")):
        (tmp_path / each).mkdir()
        places.append(folder.write(tmp_path / each / "results", {**RESULTS, "pattern": {**PATTERN, "bound": bound}}))
    with serving("--serve=0", *places) as one:
        told = document(one, "namespaces/local/patterns")["items"]
        assert [(each["workload_name"], each["last_session"], each["bound"]) for each in told] == [
            ("results", "run-1", "Memory"), ("results", "run-2", "FP32")]
        assert [document(one, f"namespaces/local/patterns/{each['pattern']}")["bound"] for each in told] == ["Memory", "FP32"]


def test_the_page_is_served_as_by_the_operator(at):
    status, headers, body = get(at, "/page/")
    assert status == 200 and b"<title>PrecisionProbe</title>" in body
    assert "script-src 'self'" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
    status, headers, body = get(at, "/page/uPlot.esm.js")
    assert status == 200 and headers["Content-Type"] == "text/javascript; charset=utf-8" and len(body) > 100000
    assert [(get(at, path)[0], get(at, path)[1]["Location"]) for path in ("/", "/page")] == [(308, "page/")] * 2


def test_what_is_not_there(at):
    for path in ("/page/none", "/api/v1/none", "/api/v1/namespaces/ml/sessions", "/api/v1/namespaces/local/sessions/other",
                 "/api/v1/namespaces/local/sessions/one%20run/none", "/api/v1/namespaces/local/patterns/other", "/page/../cli", "/metrics"):
        assert get(at, path)[0] == 404, path


def test_no_other_website_can_read_it(at):
    """Under a name of its own that leads here."""
    for host in ("localhost:1", f"127.0.0.1:{at[1]}", "192.0.2.7", "[::1]:1", "[::1]", "[2001:db8::7]:8080", "LOCALHOST:"):
        assert get(at, "/api/v1/sessions", Host=host)[0] == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "[evil", "[evil.example]", "[::1].evil.example", "[::1]evil:80", "[", "[]", "[::1", "::1",
                 "1.2.3", "1234", "127.0.0.1:evil", "127.0.0.1:80@evil", "localhost.evil:80", ":80", "localhost:80:evil", "[fe80::1%25lo]", "x" * 4000):
        assert get(at, "/api/v1/sessions", Host=host)[0] == 421, host


@pytest.mark.parametrize("address", ["::", "::1", "0:0:0:0:0:0:0:1"])
def test_an_address_of_ipv6(place, address):
    """The page's address has it in brackets, and leads there."""
    if not pathlib.Path("/proc/net/if_inet6").exists() or not pathlib.Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    with printed(f"--serve=[{address}]:0", place) as url:
        assert re.fullmatch(rf"http://\[{re.escape(address)}\]:\d+/page/", url)
        assert get(("::1", urllib.parse.urlsplit(url).port), "/api/v1/sessions")[0] == 200


def test_it_listens_on_loopback_alone(at):
    """As Linux tells it: IPv4 addresses may stand with those of IPv6."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}", encoding="ascii")]
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{at[1]:04X}")]
    assert [one.split(":")[0][-16:] for one in listening] in (["0100007F"], ["FFFF00000100007F"])


NAMES = [(b"na\xefve", "na?ve"), (b"\xff", "?"), (b"what?", "what?"), ("día".encode(), "día"), (b"cut \xe2\x82", "cut ??"), (b"\xed\xa0\x80#", "???#")]


@pytest.mark.parametrize("raw, name", NAMES)
def test_folders_with_any_name(tmp_path, raw, name):
    """Bytes that are no character of UTF-8 are none in JSON."""
    place = os.path.join(os.fsencode(tmp_path), raw)
    folder.write(pathlib.Path(os.fsdecode(place)), RESULTS)
    with serving("--serve=0", place) as one:
        head, = document(one, "sessions")["items"]
        assert (head["session"], head["workloads"]) == (name, [{"kind": "Run", "name": name, "pods": 1}])
        at = f"namespaces/local/sessions/{urllib.parse.quote(name, safe='')}"
        assert document(one, at)["pods"][0]["pod_name"] == name
        assert {row["session"] for row in [document(one, f"{at}/layers")]} == {name}
        assert document(one, f"namespaces/local/patterns/{urllib.parse.quote(name, safe='')}")["workload_name"] == name
    for more in ([], [b"--compare", place]):
        done = subprocess.run([os.environ["PP_CLI"], "report", "--format=json", place, *more], capture_output=True, check=True, timeout=60)
        assert {row["session"] for row in json.loads(done.stdout.decode())["items"]} == {name}


def test_results_without_batches(tmp_path):
    (tmp_path / "only.json").write_text(json.dumps(RESULTS))
    with serving("--serve=127.0.0.1:0", tmp_path / "only.json") as one:
        told = document(one, "namespaces/local/sessions/only")
        assert told["pods"][0]["processes"] == [] and len(document(one, "namespaces/local/sessions/only/layers")["items"]) == 2
        assert document(one, "namespaces/local/sessions/only/timeline")["items"] == []


@pytest.mark.parametrize("where", ["", "x", "70000", "1.2.3.4:", "8080x", "-1", ":", "::1", "::1:80", "[::1]", "[::1:80", "[::1]x:80"])
def test_a_port_that_is_none(place, where):
    done = subprocess.run([os.environ["PP_CLI"], "report", f"--serve={where}", str(place)], capture_output=True, timeout=60)
    assert done.returncode == 1 and b"--serve" in done.stderr and not done.stdout


def test_a_port_that_is_taken(at, place):
    done = subprocess.run([os.environ["PP_CLI"], "report", f"--serve={at[1]}", str(place)], capture_output=True, timeout=60)
    assert done.returncode == 1 and b"--serve" in done.stderr and not done.stdout
