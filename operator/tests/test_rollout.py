"""A new release beside the old one's leader: the new pod is ready, and the database is as the old one knows it, until the Lease is
handed over.

PP_OPERATOR  the operator's program
"""
import contextlib
import threading
import time

from serving import backends, needed, psql, wait_for_schema
from harness.alone import NAMESPACE, NAME, Operator

GROUP = "coordination.k8s.io"


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


@contextlib.contextmanager
def leader(kubernetes):
    """Another process, that holds the installation's Lease and hands it over at the end."""
    over = threading.Event()

    def lease(holder):
        return {"metadata": {"namespace": NAMESPACE, "name": NAME, "labels": {"precisionprobe.io/installation": "true"},
                             "annotations": {"precisionprobe.io/watched-namespace": ""}, "uid": "lease",
                             "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": stamp()}}

    def renew():
        while not over.wait(2):
            kubernetes.put(GROUP, "leases", lease("old"))
    kubernetes.add(GROUP, "leases", lease("old"))
    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        kubernetes.put(GROUP, "leases", lease(""))


def applied(conninfo):
    """Whether anything of the schema is there."""
    return psql(conninfo, "SELECT to_regclass('schema_migration') IS NOT NULL") == "t"


def test_only_who_leads_migrates():
    with contextlib.ExitStack() as until_stopped:
        conninfo, kubernetes = until_stopped.enter_context(backends([]))
        with leader(kubernetes):
            # It is ready beside the leader: a rollout that waits for that goes on.
            operator = until_stopped.enter_context(Operator(needed("PP_OPERATOR"), kubernetes, conninfo, lease__enabled=True))
            end = time.monotonic() + 60
            while "this one does not lead" not in operator.text():
                assert time.monotonic() < end, operator.text()
                time.sleep(0.1)
            assert not applied(conninfo) and "leading as" not in operator.text()
        wait_for_schema(operator, conninfo)
        assert "leading as" in operator.text()
