"""The operator's HTTP API, asked over TLS as a user asks it."""
import base64
import http.client
import json
import ssl

from .deploy import NAME, SYSTEM

READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {{name: reader, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reader, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}-view}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]
"""


class Verified(http.client.HTTPSConnection):
    """To an address, where whoever answers has to be the operator's Service."""

    def connect(self):
        super(http.client.HTTPSConnection, self).connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=f"{NAME}.{SYSTEM}.svc")


def reader(cluster, namespace):
    """The token of a service account that may view what is in the namespace; with the account it goes."""
    cluster.apply(READER.format(namespace=namespace, role=NAME))
    return cluster.kubectl("-n", namespace, "create", "token", "reader").strip()


def authority(cluster):
    data = cluster.get("-n", SYSTEM, "secret", f"{NAME}-tls")["data"]
    return base64.b64decode(data["ca.crt"]).decode()


def get(cluster, address, path, **headers):
    """(status, document, headers)."""
    connection = Verified(*address, timeout=60, context=ssl.create_default_context(cadata=authority(cluster)))
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None, answer.headers
    finally:
        connection.close()
