#!/usr/bin/env python3
"""Holds the installed CRD against specs.json on a real API server.

Usage: admission.py [KUBECTL...]   (default: kubectl)

Needs the CRD installed. Makes and deletes one namespace; everything else is a server-side dry run.
"""
import json
import pathlib
import subprocess
import sys
import time

KUBECTL = sys.argv[1:] or ["kubectl"]
NAMESPACE = f"psess-admission-{int(time.time())}"
CASES = json.loads((pathlib.Path(__file__).parent / "specs.json").read_text())
failures = []


def kubectl(*args, stdin=None):
    done = subprocess.run([*KUBECTL, *args], input=stdin, text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr


def manifest(spec, name="case"):
    return json.dumps({"apiVersion": "precisionprobe.io/v1alpha1", "kind": "ProfileSession",
                       "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def check(name, ok, detail):
    print(f"{'ok  ' if ok else 'FAIL'} {name}{'' if ok else ': ' + detail.strip()}")
    if not ok:
        failures.append(name)


def check_accepted():
    for name, spec in CASES["accepted"].items():
        rc, _, err = kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest(spec))
        check(f"accepted: {name}", rc == 0, err)
    rc, out, err = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-",
                           stdin=manifest(CASES["accepted"]["smallest"]))
    spec = json.loads(out)["spec"] if rc == 0 else {}
    check("defaults", spec.get("duration") == "120s" and spec.get("deadline") == "24h"
          and spec.get("method") == "Auto" and spec.get("existingPods") == "Report"
          and spec.get("overheadBudgetPercent") == 1 and len(spec.get("metrics", [])) == 6, err or out)


def check_refused():
    for case in CASES["refused"]:
        rc, _, err = kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest(case["spec"]))
        check(f"refused: {case['name']}", rc != 0 and case["message"] in err, err or "was accepted")


def check_updates():
    kubectl("create", "-f", "-", stdin=manifest(CASES["accepted"]["everything"], "fixed"))
    for field, value in CASES["fixed"].items():
        rc, _, err = kubectl("-n", NAMESPACE, "patch", "psess", "fixed", "--type=merge",
                             "-p", json.dumps({"spec": {field: value}}))
        check(f"fixed: {field}", rc != 0 and "create another session" in err, err or "was changed")
    for field in ("containers", "steps", "layers"):
        rc, _, err = kubectl("-n", NAMESPACE, "patch", "psess", "fixed", "--type=merge",
                             "-p", json.dumps({"spec": {field: None}}))
        check(f"fixed: {field} removed", rc != 0 and "create another session" in err, err or "was changed")
    for field, value in CASES["changeable"].items():
        rc, _, err = kubectl("-n", NAMESPACE, "patch", "psess", "fixed", "--type=merge",
                             "-p", json.dumps({"spec": {field: value}}))
        check(f"changeable: {field}", rc == 0, err)


def check_columns():
    status = {"status": {"phase": "Collecting", "pods": "2/3", "counts": {"layers": 21, "podsReporting": 2},
                         "progress": {"sampled": "45s/2m30s"}}}
    rc, _, err = kubectl("-n", NAMESPACE, "patch", "psess", "fixed", "--subresource=status",
                         "--type=merge", "-p", json.dumps(status))
    check("status", rc == 0, err)
    _, out, _ = kubectl("-n", NAMESPACE, "get", "psess")
    lines = [line.split() for line in out.splitlines()]
    check("columns", lines[0] == ["NAME", "PHASE", "PODS", "LAYERS", "PROGRESS", "AGE"]
          and lines[1][:5] == ["fixed", "Collecting", "2/3", "21", "45s/2m30s"], out)


def main():
    rc, _, err = kubectl("create", "namespace", NAMESPACE)
    if rc != 0:
        sys.exit(err)
    try:
        check_accepted()
        check_refused()
        check_updates()
        check_columns()
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    if failures:
        sys.exit(f"{len(failures)} failed")


if __name__ == "__main__":
    main()
