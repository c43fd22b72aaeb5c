#!/usr/bin/env python3
"""Which running Jobs of a namespace are bound by the GPU's memory: bound_by_memory.py [--once] NAMESPACE

Keeps what the API server tells of ConsumptionPatterns, as a scheduler's informer does, and prints a line for each running Job
whenever the answer changes. Needs the Python package `kubernetes`, and the right to list and watch consumptionpatterns and jobs.
"""
import sys

from kubernetes import client, config, watch

GROUP, VERSION, PLURAL = "precisionprobe.io", "v1alpha1", "consumptionpatterns"
STALE = 410  # the API server has forgotten where we were: list anew


def condition(pattern, name):
    """Its status: "True", "False" or "Unknown"; "Unknown" too where there is none yet."""
    found = [c["status"] for c in pattern.get("status", {}).get("conditions", []) if c["type"] == name]
    return found[0] if found else "Unknown"


def verdict(pattern):
    if pattern is None or condition(pattern, "Ready") != "True":
        return "not known: it was not profiled yet"
    status = pattern["status"]
    share = {one["by"]: one["share"] for one in status["bounds"]}.get("Memory", {"value": 0})
    error = share.get("standardError")  # missing where it is not known
    told = f"{100 * share['value']:.1f} % of a step" + (f", +- {100 * error:.1f}" if error is not None else "")
    if status["bound"] == "Unknown":
        return "not known: too little was measured"
    if condition(pattern, "Bound") != "True":
        return f"not sure, {status['bound']} leads by little: memory {told}"
    return f"{'bound by memory' if status['bound'] == 'Memory' else 'bound by ' + status['bound']}: memory {told}"


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
                                          resource_version=version, timeout_seconds=300):
            if event["type"] == "DELETED":
                self.known.pop(self.workload(event["object"]), None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self.known[self.workload(event["object"])] = event["object"]
            yield


def running_jobs(namespace):
    return [job.metadata.name for job in client.BatchV1Api().list_namespaced_job(namespace).items if job.status.active]


def main(namespace, once):
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    patterns, said = Patterns(namespace), {}

    def say():
        for job in running_jobs(namespace):
            answer = verdict(patterns.known.get(("Job", job)))
            if said.get(job) != answer:
                said[job] = answer
                print(f"{job}: {answer}", flush=True)

    while True:
        version = patterns.list()
        say()
        if once:
            return
        try:
            for _ in patterns.follow(version):
                say()
        except client.ApiException as error:
            if error.status != STALE:
                raise


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--once"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    main(arguments[0], "--once" in sys.argv)
