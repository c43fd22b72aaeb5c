#!/usr/bin/env python3
"""How fast is the store: rows per second against COPY, and each query of the API and of the dashboards at ten million sample rows?
How many rows does folding windows spare, and what does it cost the means that are made of them?

Needs the build (`--build`), no GPU and no cluster: it starts a Postgres of its own by operator/store/tests/postgres, as that is
configured there, and fills it with e2e/bench/store_rows.sql, or with recorded runs.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import lab  # noqa: E402  pylint: disable=wrong-import-position

BOARD = ROOT / "charts/precisionprobe/files/dashboards/postgres.json"
MILLISECONDS = 100  # at the 95th percentile, of each query
SECOND = 1000  # of retention, which nobody waits for but what the operator writes of solutions
LARGE = "(SELECT count(*) FROM target WHERE session_uid = s.uid) = 32"
SHARE = 0.5  # of what COPY of the same rows does, at least
TOLERANCE = 5  # as a session has it that says nothing else
REDUCTION = 95  # per cent of windows, at least
ERROR = 1  # per cent of any mean, at most
RECORDINGS = {"demo": 250, "in_step": 250, "regression": 100, "h200": 100}  # of cli/tests/recordings: windows in ms
KINDS = ("sessions_of", "sessions", "session", "layers", "quality", "kernels", "waits", "copies", "ranks", "rank_items", "timeline",
         "patterns", "pattern", "workloads", "workload")


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr.strip()[-2000:] or done.returncode}")
    return done.stdout


def psql(conninfo, *arguments):
    return run("psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", conninfo, *arguments)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Server:
    """A Postgres, and its databases by their connection strings."""
    def __init__(self, build, folder):
        self.state = os.path.join(folder, "state")
        self.script = ROOT / "operator/store/tests/postgres"
        self.bench = pathlib.Path(build) / "operator/store/tests/store_bench"
        run(self.script, "start", self.state)
        place = pathlib.Path(pathlib.Path(self.state).read_text(encoding="utf-8").strip())
        self.base = (place / "conninfo").read_text(encoding="utf-8").strip()
        for setting in ("max_wal_size = '8GB'", "checkpoint_timeout = '30min'"):
            psql(self.base, "-c", f"ALTER SYSTEM SET {setting}")
        psql(self.base, "-c", "SELECT pg_reload_conf()")

    def database(self, name):
        psql(self.base, "-c", f"CREATE DATABASE {name}")
        conninfo = f"{self.base} dbname={name}"
        run(self.bench, "schema", conninfo)
        return conninfo

    def stop(self):
        run(self.script, "stop", self.state)


# --- writing ----------------------------------------------------------------

def writing(server, rounds):
    """Of `activity` a row is a batch, which is a transaction of its own, with counters, layers and kernels: its agent waits for the
    commit. COPY does none of that, so nothing is asked of it."""
    conninfo = server.database("t_write")
    shares, rates = {}, {}
    for _ in range(rounds):
        for line in run(server.bench, "write", conninfo).splitlines():
            table, rows, store, copy = line.split()
            shares.setdefault(table, []).append(float(copy) / float(store))
            rates.setdefault(table, []).append(int(rows) / float(store))
    for table, values in shares.items():
        value = percentile(values, 0.5)
        needed = {"must": SHARE, "holds": value >= SHARE} if table != "activity" else {}
        lab.figure(f"{table}, rows of the store against COPY", value, "ratio", **needed, rows_per_second=percentile(rates[table], 0.5),
                   least=min(values), most=max(values))


# --- the API ----------------------------------------------------------------

def chosen(conninfo, n, where):
    """Sessions at random, the same at each run: (namespace, name, UID, workload)."""
    rows = psql(conninfo, "-c", "SELECT s.namespace, s.name, s.uid, min(t.workload_name) FROM session s JOIN target t ON "
                f"t.session_uid = s.uid WHERE {where} GROUP BY s.uid ORDER BY s.uid").splitlines()
    return random.Random(1).choices([row.split("|") for row in rows], k=n)


def asked(kind, session):
    ns, name, uid, workload = session
    fields = {"sessions": ("-", "-", "-", "-"), "sessions_of": (ns, "-", "-", "-"), "patterns": (ns, "-", "-", "-"),
              "pattern": (ns, f"job-{workload}", "-", "-"), "workloads": ("-", "-", uid, "-"),
              "workload": (ns, name, uid, workload)}.get(kind, (ns, name, "-", "-"))
    return " ".join((kind, *fields)) + "\n"


def read(server, conninfo, rows_of_page, sessions, note, limit):
    questions = "".join(asked(kind, session) for kind in KINDS for session in sessions)
    times, rows = {}, {}
    for line in run(server.bench, "read", conninfo, rows_of_page, input=questions).splitlines():
        kind, n, seconds = line.split()
        times.setdefault(kind, []).append(1000 * float(seconds))
        rows.setdefault(kind, []).append(int(n))
    for kind, values in times.items():
        tell(f"API, {kind}{note}", values, limit, rows=percentile(rows[kind], 0.5))


def tell(name, values, limit, **more):
    value = percentile(values, 0.95)
    lab.figure(name, value, "ms", **({"limit": limit} if limit else {}), median=percentile(values, 0.5), most=max(values), **more)


# --- dashboards -------------------------------------------------------------

def questions_of(session):
    """(title, SQL) of each panel, and of each variable, of the dashboard over Postgres."""
    ns, _, uid, workload = session
    choices = {"namespace": ns, "workload": f"Job/{workload}", "session": uid}
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    found = [(f"${variable['name']}", variable["query"]) for variable in board["templating"]["list"] if variable["type"] == "query"]
    found += [(panel["title"], target["rawSql"]) for panel in board["panels"] for target in panel["targets"]]
    for title, sql in found:
        for variable, value in choices.items():
            sql = sql.replace("${%s:sqlstring}" % variable, f"'{value}'").replace(f"${variable}", value)
        yield title, re.sub(r"\$__timeFilter\(([\w.]+)\)", r"\1 BETWEEN '2026-01-01' AND '2026-03-31'", sql)


def dashboards(conninfo, sessions, note, limit):
    titles, script = [], ["\\timing on"]
    for session in sessions:
        for title, sql in questions_of(session):
            titles.append(title)
            script.append(sql + ";")
    answer = run("psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-d", conninfo, input="\n".join(script))
    times = {}
    for title, value in zip(titles, re.findall(r"(?m)^Time: ([\d.]+) ms", answer), strict=True):
        times.setdefault(title, []).append(float(value))
    for title, values in times.items():
        tell(f"dashboard, {title}{note}", values, limit)


def readers(conninfo):
    """Logins of a tenant, who may read one namespace, and of one who may read all."""
    for role, namespace in (("tenant", "ns-3"), ("everybody", "*")):
        psql(conninfo, "-c", f"CREATE ROLE {role} LOGIN IN ROLE precisionprobe_reader", "-c",
             f"INSERT INTO reader VALUES ('{role}', '{namespace}')")


# --- retention --------------------------------------------------------------

def retention(server, conninfo):
    """Of the older half of the sessions: pieces that delete, and what is asked every ten minutes when nothing is left to."""
    before = psql(conninfo, "-c", "SELECT (extract(epoch FROM max(finished_at)) * 1e9)::bigint FROM (SELECT finished_at FROM session "
                  "ORDER BY uid LIMIT (SELECT count(*) / 2 FROM session)) s").strip()

    def pieces(n):
        lines = [line.split() for line in run(server.bench, "retire", conninfo, before, n).splitlines()]
        return [1000 * float(seconds) for seconds, _ in lines], sum(int(rows) for _, rows in lines)
    values, rows = pieces(50)
    tell("retention, a piece", values, SECOND, rows=rows)
    psql(conninfo, "-c", f"DELETE FROM activity USING session s WHERE uid = session_uid AND s.finished_at < to_timestamp({before} / 1e9)",
         "-c", f"DELETE FROM sample USING session s WHERE uid = session_uid AND s.finished_at < to_timestamp({before} / 1e9)",
         "-c", "VACUUM ANALYZE sample, activity")
    values, rows = pieces(20)
    tell("retention, nothing left", values, SECOND, rows=rows)


def reading(server, args):
    conninfo = server.database("t_read")
    psql(conninfo, "-v", f"sessions={args.sessions}", "-f", HERE / "store_rows.sql")
    psql(conninfo, "-c", "ANALYZE")
    lab.figure("sample rows", int(psql(conninfo, "-c", "SELECT count(*) FROM sample")), "rows")
    readers(conninfo)
    many, large = chosen(conninfo, args.times, "true"), chosen(conninfo, max(args.times // 5, 1), LARGE)
    read(server, conninfo, 500, many, "", MILLISECONDS)
    read(server, conninfo, 5000, large, ", sessions of 32 pods, 5,000 rows", None)
    dashboards(conninfo, many, "", MILLISECONDS)
    dashboards(conninfo, large, ", sessions of 32 pods", None)
    own = chosen(conninfo, args.times, "s.namespace = 'ns-3'")
    dashboards(f"{conninfo} user=tenant", own, ", as a reader of one namespace", MILLISECONDS)
    dashboards(f"{conninfo} user=everybody", many, ", as a reader of all", MILLISECONDS)
    retention(server, conninfo)


# --- folding ----------------------------------------------------------------

def lines_of(folder, milliseconds, tolerance):
    """A recorded run, as store_replay takes it."""
    batches = [json.loads(line) for line in (folder / "batches.jsonl").read_text(encoding="utf-8").splitlines()]
    uid, named = batches[0]["session"], {"namespace": "ns", "name": folder.name}
    yield {"type": "session", "uid": uid, "method": "Regression", "created": 1, "spec": {}, **named}
    yield {"type": "target", "session": uid, "pod": "pod", "workload": "job", **named}
    for batch in batches:
        yield {"type": "batch", "pod": "pod", "batch": batch}
    for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines():
        of = json.loads(line)
        for at, value in zip(itertools.accumulate(of["at"]), of["value"]):
            yield {"type": "sample", "gpu": of["gpu"], "metric": of["metric"], "at": at, "value": value}
    yield {"type": "solve", "session": uid, "pod": "pod", "window": milliseconds * 10**6, "scrape": milliseconds * 10**6, "lag": 0,
           "error": 0.05, "tolerance": tolerance}


def rows_of(server, name, tolerance):
    """(rows of `sample` of a recorded run, as they are stored with a tolerance; how far windows are from them, in per cent)"""
    conninfo = server.database(f"t_{name}_{tolerance}")
    text = "".join(json.dumps(line) + "\n" for line in lines_of(ROOT / "cli/tests/recordings" / name, RECORDINGS[name], tolerance))
    run(server.bench.parent / "store_replay", conninfo, input=text)
    rows = psql(conninfo, "-c", "SELECT to_json(s) FROM sample s ORDER BY layer, phase, first_ns").splitlines()
    return [json.loads(row) for row in rows], 100 * float(psql(conninfo, "-c", "SELECT max(samples_spread) FROM attribution"))


def means(rows, suffix, part=(-math.inf, math.inf)):
    """{(layer, phase, metric, of what): mean} over windows and by share; of a part of the time, rows count by how much of them is in it."""
    sums = {}
    for row in rows:
        first, last = row["first_ns"], row["last_ns"]
        inside = (min(last, part[1]) - max(first, part[0])) / (last - first) if last > first else part[0] <= first < part[1]
        for metric in [key for key in row if f"{key}_by_share" in row and row[key] is not None]:
            for kind, weight, value in (("windows", row["windows"], row[metric]),
                                        ("share", row["windows"] * row["share"], row[metric + suffix])):
                of = sums.setdefault((row["layer"], row["phase"], metric, kind), [0, 0])
                of[0] += weight * max(inside, 0)
                of[1] += weight * max(inside, 0) * value
    return {key: value / weight for key, (weight, value) in sums.items() if weight > 0}


def folding(server):
    """What is stored of recorded runs, held against a row for each window. The means of these are of what was read and of nothing
    else; nothing is asked of halves of the time, which rows that lie in both do not tell apart."""
    for name in RECORDINGS:
        each, _ = rows_of(server, name, 0)
        folded, spread = rows_of(server, name, TOLERANCE)
        if not each or any(row["windows"] != 1 for row in each) or sum(row["windows"] for row in folded) != len(each):
            sys.exit(f"{name}: windows are lost, or folded at a tolerance of 0")
        reduction = 100 * (1 - len(folded) / len(each))
        lab.figure(f"folding, {name}: windows that are no rows", reduction, "%", must=REDUCTION, holds=reduction >= REDUCTION,
                   windows=len(each), rows=len(folded))
        was, now = means(each, ""), means(folded, "_by_share")
        errors = [0 if value == now[key] else abs(now[key] / value - 1) if value else math.inf for key, value in was.items()]
        lab.figure(f"folding, {name}: error of a mean, the largest", 100 * max(errors), "%", limit=ERROR, means=len(errors))
        lab.figure(f"folding, {name}: windows from their rows, root mean square of the worst", spread, "% of the range")
        middle = (min(row["first_ns"] for row in each) + max(row["last_ns"] for row in each)) / 2
        apart = [abs(value - now[key]) for part in ((-math.inf, middle), (middle, math.inf))
                 for was, now in [(means(each, "", part), means(folded, "_by_share", part))]
                 for key, value in was.items() if key in now and key[2].endswith("_active")]
        lab.figure(f"folding, {name}: means of each half of the time, the median's difference", 100 * percentile(apart, 0.5), "points",
                   most=100 * max(apart))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/dev", help="folder of the build")
    parser.add_argument("--sessions", type=int, default=2000, help="2000 have ten million sample rows")
    parser.add_argument("--times", type=int, default=100, help="that each query is asked, of sessions at random")
    parser.add_argument("--rounds", type=int, default=5, help="of writing")
    parser.add_argument("--only", choices=("write", "read", "fold"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args.build, folder)
        try:
            if args.only in (None, "write"):
                writing(server, args.rounds)
            if args.only in (None, "fold"):
                folding(server)
            if args.only in (None, "read"):
                reading(server, args)
        finally:
            server.stop()
    sys.exit(lab.status())


if __name__ == "__main__":
    main()
