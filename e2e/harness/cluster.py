"""The cluster: the one that e2e/cluster brings up, or the one that KUBECONFIG names."""
import fcntl
import json
import os
import shlex

from .progress import CACHE, LOGS, ROOT, CommandError, run, run_shown, say, step

E2E = os.path.join(ROOT, "e2e")


class Cluster:
    """kubectl, helm and images, the same for either kind of cluster."""

    def __init__(self, kubernetes_version=None, images="preloaded", registry=None):
        self.external = bool(os.environ.get("KUBECONFIG"))
        self.version = kubernetes_version
        self.images = images
        self.registry = registry
        self.environment = {}
        self.started = False
        self.kubelet_root = os.environ.get("KUBELET_ROOT", "/var/lib/kubelet")

    def up(self):
        """Brings it up, or looks whether the given one answers."""
        if self.external:
            with step("the cluster of KUBECONFIG answers"):
                self.kubectl("get", "--raw", "/readyz")
            return
        already = "ready at" in run(f"{E2E}/cluster", "status", check=False)
        arguments = ["--kubernetes-version", self.version] if self.version else []
        self.started = not already
        run_shown(f"{E2E}/cluster", "up", *arguments)
        self.adopt()

    def adopt(self):
        """Takes the environment of the cluster that e2e/cluster has brought up."""
        for line in run(f"{E2E}/cluster", "shell-env").splitlines():
            words = shlex.split(line)
            if len(words) == 2 and words[0] == "export" and "=" in words[1]:
                key, value = words[1].split("=", 1)
                self.environment[key] = os.path.expandvars(value)
        self.kubelet_root = self.environment.get("KUBELET_ROOT", self.kubelet_root)

    def claim(self):
        """Holds everything that is installed on it until this process ends: one demo or one run of the scenarios."""
        os.makedirs(CACHE, exist_ok=True)
        self.held = open(os.path.join(CACHE, "e2e-in-use.lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another demo or test uses the cluster: waiting for its end")
            fcntl.flock(self.held, fcntl.LOCK_EX)

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

    def apply(self, text):
        return self.kubectl("apply", "-f", "-", input=text)

    def raw(self, path):
        return self.kubectl("get", "--raw", path)

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

    def delete_namespaces(self, *names):
        for name in names:
            try:
                self.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=90s", timeout=120)
            except CommandError as error:
                say(str(error))


__all__ = ["Cluster", "E2E", "CACHE", "LOGS"]
