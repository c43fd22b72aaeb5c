"""A ProfileSession on the cluster: apply, follow, read how it stands."""
import json
import re
import time
import urllib.parse

from .cluster import PODS, SESSIONS
from .deploy import SERVICES
from .progress import say

PROGRESS_EVERY = 15  # s, between two lines that say how much was sampled

MANIFEST = """\
apiVersion: precisionprobe.io/v1alpha1
kind: ProfileSession
metadata:
  name: {name}
  namespace: {namespace}
spec:
  selector:
    matchLabels: {{{labels}}}
  duration: {duration}
  deadline: {deadline}
"""

# Of a session that samples its whole duration: on two CPU cores that several trainings share a mark finds cold caches
# and costs a hundred times what it does beside a GPU, so that the default budget may end a capture.
WHOLE = "  overheadBudgetPercent: 5\n"

OUTSIDE = {"loss", "gradients"}  # rows of no module


def manifest(name, labels='profile: "yes"', duration="120s", deadline="15m", more="", namespace=SERVICES):
    """`more`: further lines of the spec, indented by two."""
    return MANIFEST.format(name=name, namespace=namespace, labels=labels, duration=duration, deadline=deadline) + more


class Session:
    def __init__(self, cluster, name, namespace=SERVICES):
        self.cluster = cluster
        self.name = name
        self.namespace = namespace

    def get(self):
        text = self.cluster.fetch(f"{SESSIONS.format(self.namespace)}/{self.name}")
        return json.loads(text) if text else None

    def patch(self, **spec):
        """Changes fields of the spec."""
        self.cluster.kubectl("-n", self.namespace, "patch", "profilesession", self.name, "--type=merge",
                             "-p", json.dumps({"spec": spec}))

    def phase(self):
        return ((self.get() or {}).get("status") or {}).get("phase", "")

    def condition(self, kind):
        for condition in ((self.get() or {}).get("status") or {}).get("conditions", []):
            if condition["type"] == kind:
                return condition
        return None

    def follow(self, timeout, until=("Succeeded", "Failed")):
        """Prints a line whenever the phase changes, and how much was sampled; returns the object in one of `until`."""
        end = time.monotonic() + timeout
        shown, told = None, time.monotonic()
        while True:
            item = self.get()
            status = (item or {}).get("status") or {}
            phase = status.get("phase", "")
            if phase != shown:
                conditions = {c["type"]: c for c in status.get("conditions", [])}
                why = conditions.get("Ready", {}).get("message", "")
                say(f"  session {self.name}: {phase or 'not seen yet'}{' - ' + why if why else ''}")
                shown, told = phase, time.monotonic()
            sampled = status.get("progress", {}).get("sampled")
            if phase == "Collecting" and sampled and time.monotonic() - told >= PROGRESS_EVERY:
                say(f"  session {self.name}: sampled {sampled}")
                told = time.monotonic()
            if phase in until:
                return item
            if time.monotonic() > end:
                raise TimeoutError(f"session {self.name} is still {phase or 'unseen'} after {timeout:.0f} s: "
                                   + json.dumps(status.get("conditions", []))[:1500])
            time.sleep(1)


LOSS = re.compile(r"^step=(\d+) .*?loss=(\S+)", re.M)


def losses(cluster, pod, container="trainer", namespace=SERVICES):
    """The losses that a training printed, by step, with all their digits."""
    text = cluster.kubectl("-n", namespace, "logs", pod, "-c", container)
    return {int(step): loss for step, loss in LOSS.findall(text)}


def pods_of(cluster, selector, namespace=SERVICES):
    return json.loads(cluster.fetch(f"{PODS.format(namespace)}?labelSelector={urllib.parse.quote(selector)}"))["items"]
