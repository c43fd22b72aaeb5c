"""Deleting sessions and the release leaves trainings running and nothing of ours behind."""
import pytest

from harness.progress import wait_until
from harness.session import losses, manifest, pods_of
from harness.environment import NAME, RELEASE, SERVICES, SYSTEM

pytestmark = pytest.mark.intervals  # whatever they are


def test_uninstall_with_a_live_session(trainings):
    world, cluster = trainings, trainings.cluster
    cluster.apply(manifest("gone", labels="app: nobody") + "---\n" + manifest("live", duration="30m", deadline="1h") + "---\n"
                  + world.deployment.render("dlrm.yaml", TRAIN_STEPS="100000", TRAIN_BATCH="64"))
    session = world.session("live")
    session.follow(120, until=("Collecting",))
    # A session goes at once.
    cluster.kubectl("-n", SERVICES, "delete", "psess", "gone", "--timeout=10s")
    assert world.session("gone").get() is None

    pod = pods_of(cluster, "job-name=dlrm")[0]
    world.deployment.uninstall()
    world.values = None
    left = lambda: [kind for kind, name, scope in (
        ("mutatingwebhookconfiguration", NAME, ()), ("secret", f"{NAME}-tls", ("-n", SYSTEM)),
        ("lease", NAME, ("-n", SYSTEM)), ("deployment", NAME, ("-n", SYSTEM)), ("service", NAME, ("-n", SYSTEM)),
        ("clusterrole", NAME, ()), ("clusterrolebinding", NAME, ()), ("serviceaccount", NAME, ("-n", SYSTEM)))
        if cluster.get(*scope, kind, name)]
    wait_until("nothing of the release", lambda: not left(), 60)
    for kind in ("clusterroles", "clusterrolebindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        found = cluster.get(kind, "-l", f"app.kubernetes.io/instance={RELEASE}")
        assert not found or not found["items"], kind
    secrets = [s["metadata"]["name"] for s in cluster.get("-n", SYSTEM, "secrets")["items"]]
    assert secrets == ["postgres"], "only the user's own Secret is left"

    # The session is still there, for whoever installs again, and nothing holds it.
    item = session.get()
    assert item and not item["metadata"].get("finalizers")
    # The training goes on.
    name = pod["metadata"]["name"]
    before = len(losses(cluster, name))
    wait_until("further steps", lambda: len(losses(cluster, name)) >= before + 20, 60)
    after = cluster.get("-n", SERVICES, "pod", name)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    states = {c["name"]: c for c in after["status"]["containerStatuses"] + after["status"]["initContainerStatuses"]}
    assert states["trainer"]["state"].get("running") and states["trainer"]["restartCount"] == 0
    assert states["precisionprobe-agent"]["restartCount"] == 0
    # New pods come without delay and without anything of ours.
    cluster.apply(world.pod(SERVICES, "plain", labels='app: idle, profile: "yes"'))
    assert "initContainers" not in cluster.get("-n", SERVICES, "pod", "plain")["spec"]
    cluster.kubectl("-n", SERVICES, "delete", "psess", "live", "--timeout=10s")
