#!/usr/bin/env python3
"""Asks each question of the dashboards and rules on real servers: dashboards.py --exposition FILE --postgres STATE.

FILE holds the text of an operator's /metrics, which a Prometheus of its own scrapes; STATE is that of
operator/store/tests/postgres, whose server has results in the database. operator/tests/workload_metrics_test.c leaves both.
Each question is answered with rows, by names that are exported. promtool says what it has to say of the rules.
"""
import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "precisionprobe"
RULES = CHART / "files/rules.yaml"
# What the database of the test has; each is among the values of its variable.
CHOICES = {"prometheus.json": {"namespace": "ml", "workload": "dlrm", "metric": "sm_active"},
           "postgres.json": {"namespace": "ml", "workload": "Job/dlrm", "session": "s-new"}}
NAME = re.compile(r"\bprecisionprobe[:_][a-z_:]+\b")
PATIENCE = 60
FAILURES = []


def check(name, ok, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {name}{'' if ok else ': ' + str(detail).strip()}", flush=True)
    if not ok:
        FAILURES.append(name)


def board(name):
    return json.loads((CHART / "files/dashboards" / name).read_text())


def expressions():
    """(where, expression) of each rule."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]


def panels(name):
    """(title, kind, target) of each panel's question."""
    for panel in board(name)["panels"]:
        for target in panel["targets"]:
            yield f"{name}: {panel['title']} {target['refId']}", panel["type"], target


def check_ids(name):
    found = board(name)
    ids = [panel["id"] for panel in found["panels"]]
    places = [tuple(panel["gridPos"].values()) for panel in found["panels"]]
    check(f"{name}: panels are apart", len(set(ids)) == len(ids) and len(set(places)) == len(places))
    sources = {json.dumps(source) for panel in found["panels"] for source in
               [panel["datasource"], *(target["datasource"] for target in panel["targets"])]}
    check(f"{name}: one data source, to be chosen", len(sources) == 1 and '"${datasource}"' in sources.copy().pop(), sources)


# --- Prometheus -------------------------------------------------------------

def check_names(text):
    """Rules and panels know no metric that the operator does not export."""
    exported = set(re.findall(r"(?m)^(\w+)[{ ]", text)) | {name for name, _ in expressions() if ":" in name}
    asked = [*expressions(), *((title, target["expr"]) for title, _, target in panels("prometheus.json"))]
    for where, expression in asked:
        unknown = set(NAME.findall(re.sub(r'"[^"]*"', "", expression))) - exported
        check(f"exported: {where}", not unknown and NAME.search(expression), f"{sorted(unknown)} in {expression}")
    texts = [(rule.get("alert"), value) for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
             for value in rule.get("annotations", {}).values()]
    for alert, value in texts:
        unknown = set(NAME.findall(value)) - exported
        check(f"told of: {alert}", not unknown, sorted(unknown))


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], text=True, capture_output=True, check=False)
    check(f"promtool {arguments[0]} {arguments[1]}", done.returncode == 0, done.stdout + done.stderr)


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@contextlib.contextmanager
def exporter(text):
    """The operator's text at /metrics; gives the address."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextlib.contextmanager
def prometheus(target):
    """A Prometheus that scrapes and evaluates every second; gives its URL."""
    with tempfile.TemporaryDirectory() as folder:
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": "operator", "static_configs": [
                      {"targets": [target], "labels": {"namespace": "precisionprobe", "pod": "operator-0"}}]}]}
        path = pathlib.Path(folder) / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            child = subprocess.Popen(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/data",
                                      f"--web.listen-address={address}"], stdout=log, stderr=log)
            try:
                yield f"http://{address}/api/v1/"
            finally:
                child.terminate()
                child.wait()


def ask(base, path, **parameters):
    """The data of an answer; a text where it is an error."""
    try:
        with urllib.request.urlopen(base + path + "?" + urllib.parse.urlencode(parameters), timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError as error:
        return str(error)


def is_full(found):
    return isinstance(found, dict) and bool(found.get("result"))


def wait_until_scraped(base):
    """Until what is recorded of what was scraped is there, which comes last."""
    end = time.monotonic() + PATIENCE
    while not is_full(found := ask(base, "query", query="precisionprobe:workload_step_seconds:max")):
        if time.monotonic() > end:
            return found
        time.sleep(0.2)
    return None


def with_choices(text, name):
    for variable, value in CHOICES[name].items():
        quoted = "'" + value.replace("'", "''") + "'"
        text = text.replace("${%s:sqlstring}" % variable, quoted).replace(f"${variable}", value)
    return text


def check_label_values(base, variable):
    """A variable is `label_values(selector, label)`."""
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
    found = ask(base, f"label/{label}/values", **{"match[]": with_choices(selector, "prometheus.json")})
    check(f"prometheus.json: ${variable['name']}", CHOICES["prometheus.json"][variable["name"]] in found, found)


def check_prometheus(text):
    with exporter(text) as target, prometheus(target) as base:
        lacking = wait_until_scraped(base)
        if lacking is not None:
            check("what was scraped", False, lacking)
            return
        for variable in board("prometheus.json")["templating"]["list"]:
            if variable["type"] == "query":
                check_label_values(base, variable)
        now = time.time()
        for title, _, target in panels("prometheus.json"):
            query = with_choices(target["expr"], "prometheus.json")
            check(f"a variable that is not known: {title}", "$" not in query, query)
            found = ask(base, "query", query=query) if target["instant"] else ask(
                base, "query_range", query=query, start=now - 60, end=now + 1, step=1)
            check(title, is_full(found), found)
        groups = ask(base, "rules")["groups"]
        ill = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
        check("rules are evaluated", len(groups) == 3 and not ill, ill)


# --- Postgres ---------------------------------------------------------------

def psql(conninfo, sql):
    """(rows, nothing), or (nothing, error). What is asked writes nothing."""
    done = subprocess.run(["psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", conninfo,
                           "-c", "SET default_transaction_read_only = on", "-c", sql],
                          text=True, capture_output=True, check=False)
    return (done.stdout.splitlines(), "") if done.returncode == 0 else ([], done.stderr)


def check_bounds(rows, text):
    """The panel's are those of the operator's metrics, to which several GPUs are one workload, too."""
    ours = dict(row.split("|") for row in rows)
    of = re.findall(r'(?m)^precisionprobe_workload_bound_ratio{workload_namespace="ml",.*workload_name="dlrm",bound="(\w+)"} (\S+)$', text)
    wrong = [(bound, value, ours.get(bound)) for bound, value in of if abs(float(value) - float(ours.get(bound, 0))) > 1e-12]
    check("postgres.json: what bounds a step is as at /metrics", of and not wrong, wrong or "no bound is exported")


def check_postgres(state, database, text):
    folder = pathlib.Path(state).read_text().strip()
    conninfo = (pathlib.Path(folder) / "conninfo").read_text().strip() + f" dbname={database}"
    for variable in board("postgres.json")["templating"]["list"]:
        if variable["type"] == "query":
            rows, error = psql(conninfo, with_choices(variable["query"], "postgres.json"))
            values = [row.split("|")[-1] for row in rows]
            check(f"postgres.json: ${variable['name']}", CHOICES["postgres.json"][variable["name"]] in values, error or values)
    for title, kind, target in panels("postgres.json"):
        sql = with_choices(target["rawSql"], "postgres.json")
        sql = re.sub(r"\$__timeFilter\(([\w.]+)\)", r"\1 BETWEEN '2000-01-01' AND '2100-01-01'", sql)
        check(f"a variable that is not known: {title}", "$" not in sql, sql)
        rows, error = psql(conninfo, sql)
        check(title, len(rows) > 0, error or "no rows")
        if "What bounds a step" in title:
            check_bounds(rows, text)
        if kind == "timeseries":
            check(f"{title}: over time", "$__timeFilter(" in target["rawSql"] and " AS time" in target["rawSql"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exposition", required=True)
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--database", default="t_workloads")
    args = parser.parse_args()
    text = pathlib.Path(args.exposition).read_text(encoding="utf-8")
    for name in CHOICES:
        check_ids(name)
    check_names(text)
    promtool("check", "rules", RULES)
    promtool("test", "rules", ROOT / "charts/tests/rules_test.yaml")
    check_prometheus(text)
    check_postgres(args.postgres, args.database, text)
    if FAILURES:
        sys.exit(f"{len(FAILURES)} failed")


if __name__ == "__main__":
    main()
