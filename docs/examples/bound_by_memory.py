#!/usr/bin/env python3
"""Which running Jobs of a namespace are bound by the GPU's memory: bound_by_memory.py [--once] NAMESPACE

Keeps what the API server tells of ConsumptionPatterns, as a scheduler's informer does, and prints a line for each running Job
whenever the answer changes. Needs the Python package `kubernetes`, and the right to list and watch consumptionpatterns and jobs.
"""
import sys
import time

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

GROUP, VERSION, PLURAL = "precisionprobe.io", "v1alpha1", "consumptionpatterns"
STALE = 410  # the API server has forgotten where we were: list anew
LOOK_AGAIN = 30  # s, for Jobs that have come; patterns change days apart
LABEL = "precisionprobe.io/workload"  # on pods: what their pattern is of, in place of their owner


def condition(pattern, name):
    """Its status: "True", "False" or "Unknown"; "Unknown" too where there is none yet."""
    found = [c["status"] for c in pattern.get("status", {}).get("conditions", []) if c["type"] == name]
    return found[0] if found else "Unknown"


def percent(figure):
    """A share with its standard error, which is missing where it is not known."""
    error = figure.get("standardError")
    return f"{100 * figure['value']:.1f} %" + (f" +- {100 * error:.1f}" if error is not None else "")


def evidence(status):
    """What the memory does per second in the time that it bounds, and what it can at most."""
    for one in status.get("bounds", []):
        if one["by"] == "Memory" and "achieved" in one and "peak" in one:
            return f", at {one['achieved']['value'] / 1e12:.2f} of {one['peak'] / 1e12:.2f} TB/s"
    return ""


def verdict(pattern):
    """What bounds it, how sure that is, how much of the memory's bandwidth it uses, and when that was measured."""
    if pattern is None or condition(pattern, "Ready") != "True":
        return "not known: it was not profiled yet"
    status = pattern["status"]
    shares = {one["by"]: one["share"] for one in status.get("bounds", []) if "share" in one}
    told = f"memory {percent(shares.get('Memory', {'value': 0}))} of a step"  # what is not listed has no share
    told += evidence(status)
    if shares.get("Unknown", {"value": 0})["value"] >= 0.01:
        told += f", {percent(shares['Unknown'])} not known"
    used = {one["name"]: one["mean"] for one in status.get("metrics", []) if "mean" in one}.get("DRAMActive")
    told += f"; DRAMActive {percent(used)}" if used else "; DRAMActive not measured"
    told += f"; {status.get('sessions', 0)} sessions, until {status.get('lastFinished', '?')}"
    bound = status.get("bound", "Unknown")
    if bound == "Unknown":
        return f"not known, too little was measured: {told}"
    if condition(pattern, "Bound") == "Unknown":
        return f"not sure, {bound} leads by nobody knows how much: {told}"
    if condition(pattern, "Bound") != "True":
        return f"not sure, {bound} leads by little: {told}"
    return f"bound by {'memory' if bound == 'Memory' else bound}: {told}"


class Patterns:
    """The namespace's patterns by workload, as they are now."""

    def __init__(self, namespace):
        self.api, self.namespace = client.CustomObjectsApi(), namespace
        self.known = {}

    @staticmethod
    def workload(pattern):
        """A pattern's own name is made of these, and need not be what one would make."""
        return pattern["spec"]["workload"]["kind"], pattern["spec"]["workload"]["name"]

    def list(self):
        """All of them; where to watch from."""
        found = self.api.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)
        self.known = {self.workload(pattern): pattern for pattern in found["items"]}
        return found["metadata"]["resourceVersion"]

    def follow(self, version):
        """Yields after each change, until the API server ends the watch."""
        for event in watch.Watch().stream(self.api.list_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL,
                                          resource_version=version, timeout_seconds=LOOK_AGAIN):
            if event["type"] == "DELETED":
                self.known.pop(self.workload(event["object"]), None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self.known[self.workload(event["object"])] = event["object"]
            yield


def running_jobs(namespace):
    """{name of a Job with pods that are ready: the workload that its pattern is of}"""
    jobs = [job for job in client.BatchV1Api().list_namespaced_job(namespace).items if job.status.ready]
    labels = {job.metadata.name: (job.spec.template.metadata and job.spec.template.metadata.labels or {}).get(LABEL) for job in jobs}
    return {name: ("Workload", label) if label else ("Job", name) for name, label in labels.items()}


def main(namespace, once):
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    patterns, said = Patterns(namespace), {}

    def say():
        running = running_jobs(namespace)
        for gone in set(said) - set(running):
            del said[gone]
        for job, workload in running.items():
            answer = verdict(patterns.known.get(workload))
            if said.get(job) != answer:
                said[job] = answer
                print(f"{job}: {answer}", flush=True)

    while True:
        try:
            version = patterns.list()
            say()
            if once:
                return
            for _ in patterns.follow(version):
                say()
        except client.ApiException as error:
            if error.status != STALE:
                raise
        except HTTPError as error:  # the connection broke
            if once:
                raise
            print(f"{error}", file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--once"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    main(arguments[0], "--once" in sys.argv)
