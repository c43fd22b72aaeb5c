"""Requests to the API server over connections that stay open: for what kubectl is too slow for."""
import base64
import http.client
import json
import os
import ssl
import tempfile
import urllib.parse

import yaml

from .cluster import PODS, SESSIONS


class Api:
    """One connection; not for several threads at a time. Errors are returned, not raised: (status, object)."""

    def __init__(self, cluster, timeout=30):
        path = cluster.environment.get("KUBECONFIG") or os.environ["KUBECONFIG"]
        with open(path, encoding="utf-8") as file:
            config = yaml.safe_load(file)
        context = named(config["contexts"], config["current-context"])["context"]
        place = named(config["clusters"], context["cluster"])["cluster"]
        user = named(config["users"], context["user"])["user"]
        url = urllib.parse.urlsplit(place["server"])
        self.token = user.get("token")
        self.connection = http.client.HTTPSConnection(url.hostname, url.port or 443, timeout=timeout,
                                                      context=trust(place, user))

    def call(self, method, path, body=None):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def create(self, path, body):
        """Creates an object; raises what the server says where it does not."""
        status, answer = self.call("POST", path, body)
        if status not in (200, 201):
            raise RuntimeError(f"POST {path}: {status} {answer.get('message') if answer else ''}")
        return answer

    def close(self):
        self.connection.close()


def named(items, name):
    return next(item for item in items if item["name"] == name)


def trust(place, user):
    """The TLS context that a kubeconfig's cluster and user ask for."""
    context = ssl.create_default_context(cafile=place.get("certificate-authority"),
                                         cadata=inline(place, "certificate-authority-data"))
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(inline(user, "client-certificate-data") + "\n" + inline(user, "client-key-data"))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def inline(entry, key):
    return base64.b64decode(entry[key]).decode() if key in entry else None


def pod_object(name, labels, image="example.invalid/none", annotations=None):
    """A pod that no scheduler takes: what its creation costs is the API server's and the webhooks'."""
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "annotations": annotations or {}},
            "spec": {"schedulingGates": [{"name": "precisionprobe.io/e2e"}],
                     "containers": [{"name": "trainer", "image": image, "command": ["sleep", "60"]}]}}


def session_object(name, labels, **spec):
    return {"apiVersion": "precisionprobe.io/v1alpha1", "kind": "ProfileSession", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "duration": "60s", **spec}}


def injected_for(pod, session):
    return pod["metadata"].get("annotations", {}).get("precisionprobe.io/session-uid") == session["metadata"]["uid"]


def create_pair(api, namespace, n):
    """A session and, at once, a pod that it selects: whether the pod was injected for it."""
    labels = {"pair": f"n{n}"}
    session = api.create(SESSIONS.format(namespace), session_object(f"s{n}", labels))
    return injected_for(api.create(PODS.format(namespace), pod_object(f"p{n}", labels)), session)


__all__ = ["Api", "PODS", "SESSIONS", "create_pair", "injected_for", "pod_object", "session_object"]
