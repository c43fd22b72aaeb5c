"""The cluster: the one that e2e/cluster brings up, or the one that KUBECONFIG names."""
import contextlib
import fcntl
import http.client
import json
import os
import re
import shlex
import shutil
import subprocess

from .progress import CACHE, LOGS, ROOT, CommandError, run, run_shown, say, start, step, stop
from .proxy import Proxy

E2E = os.path.join(ROOT, "e2e")
OWN_KUBECONFIG = os.path.join(os.environ.get("PP_RUN") or f"/run/{os.environ.get('PP_CLUSTER') or 'precisionprobe-e2e'}",
                              "kubeconfig")
# Beside another release on the same cluster: PP_E2E_SHARED=1 with PP_E2E_RELEASE, PP_E2E_NAMESPACE and
# PP_SYSTEM_NAMESPACE of one's own. Without GPUs, so without the scenarios that train.
SHARED = bool(os.environ.get("PP_E2E_SHARED"))
# Of a namespace, for fetch().
PODS = "/api/v1/namespaces/{}/pods"
SESSIONS = "/apis/precisionprobe.io/v1alpha1/namespaces/{}/profilesessions"


class Cluster:
    """kubectl, helm and images, the same for either kind of cluster."""

    def __init__(self, kubernetes_version=None, images="preloaded", registry=None):
        self.given = os.environ.get("KUBECONFIG") or ""
        # `e2e/cluster shell-env` names the cluster that is used without it, too.
        self.external = bool(self.given) and os.path.realpath(self.given) != os.path.realpath(OWN_KUBECONFIG)
        self.version = kubernetes_version
        self.images = images
        self.registry = registry
        self.environment = {}
        self.started = False
        self.kubelet_root = os.environ.get("KUBELET_ROOT", "/var/lib/kubelet")
        self.proxy = Proxy(self.environment)

    def up(self):
        """Brings it up, or looks whether the given one answers; nobody else uses it from then on."""
        self.claim()
        if self.external:
            for program in ["kubectl", "helm"] + ["skopeo"] * bool(self.registry):
                if not shutil.which(program):
                    raise CommandError(f"{program} is not on the PATH; with KUBECONFIG set it is needed")
            with step("the cluster of KUBECONFIG answers"):
                self.kubectl("get", "--raw", "/readyz")
            return
        already = "ready at" in run(f"{E2E}/cluster", "status", check=False)
        arguments = ["--kubernetes-version", self.version] if self.version else []
        self.started = not already
        run_shown(f"{E2E}/cluster", "up", *arguments)
        self.adopt()

    def describe(self):
        """Which cluster is used, for the person who waits."""
        if self.external:
            return f"the one that KUBECONFIG names, {self.given} (unset it to have one brought up here)"
        return "e2e/cluster on this machine" + (", which KUBECONFIG names" if self.given else "")

    def adopt(self):
        """Takes the environment of the cluster that e2e/cluster has brought up."""
        for line in run(f"{E2E}/cluster", "shell-env").splitlines():
            words = shlex.split(line)
            for key, value in (word.split("=", 1) for word in words[1:] if words[0] == "export" and "=" in word):
                self.environment[key] = os.path.expandvars(value)
        self.kubelet_root = self.environment.get("KUBELET_ROOT", self.kubelet_root)

    def claim(self):
        """Holds the cluster and what is installed on it until this process ends: one demo or one run of the tests."""
        if SHARED or os.environ.get("PP_E2E_CLAIMED"):
            return
        os.makedirs(CACHE, exist_ok=True)
        self.held = open(os.path.join(CACHE, "e2e-in-use.lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another demo or test uses the cluster: waiting for its end")
            fcntl.flock(self.held, fcntl.LOCK_EX)
        os.environ["PP_E2E_CLAIMED"] = "1"  # for the processes that this one starts

    def down(self):
        """Takes down what up() started, and nothing else."""
        if self.started:
            run(f"{E2E}/cluster", "down", log="cluster-down.log", timeout=180)
            self.started = False

    def kubectl(self, *arguments, input=None, check=True, timeout=120):
        return run("kubectl", *arguments, input=input, env=self.environment, check=check, timeout=timeout)

    def helm(self, *arguments, timeout=300):
        return run("helm", *arguments, env=self.environment, timeout=timeout, log="helm.log")

    def get(self, *arguments):
        """An object or a list, decoded; None where it does not exist."""
        text = self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def fetch(self, path):
        """What the API server has at a path, as text; None where there is nothing. For what is asked again and again: it
        takes 2 ms, where a kubectl takes a tenth of a second of a processor."""
        try:
            status, text = self.proxy.get(path)
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(f"GET {path}: {error}") from None
        if status not in (200, 404):
            raise CommandError(f"GET {path}: {status} {text[:500]}")
        return text if status == 200 else None

    def apply(self, text):
        return self.kubectl("apply", "-f", "-", input=text)

    def raw(self, path):
        return self.kubectl("get", "--raw", path)

    @contextlib.contextmanager
    def forward(self, namespace, target, port):
        """kubectl port-forward: the local address."""
        child = start("kubectl", "-n", namespace, "port-forward", "--address=127.0.0.1", target, f":{port}",
                      env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                      stdin=subprocess.DEVNULL)
        try:
            line = child.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            if not match:
                raise CommandError(f"port-forward to {target}: {line}")
            yield "127.0.0.1", int(match.group(1))
        finally:
            stop(child, patience=2)

    def load(self, archive, image):
        """Makes an image known to the nodes; returns the name to use for it."""
        if not self.external:
            run(f"{E2E}/cluster", "load-image", archive, timeout=300, log="images.log")
            return image
        if self.registry:
            name = f"{self.registry}/{image.split('/', 1)[1]}"
            run("skopeo", "copy", f"docker-archive:{archive}", f"docker://{name}", timeout=600, log="images.log")
            return name
        return image  # pre-loaded under its own name

    def delete(self, *what):
        """Deletes and waits; what cannot be deleted is said."""
        try:
            self.kubectl("delete", *what, "--ignore-not-found", "--timeout=90s", timeout=120)
        except CommandError as error:
            say(str(error))


__all__ = ["Cluster", "E2E", "CACHE", "LOGS", "SHARED", "PODS", "SESSIONS"]
