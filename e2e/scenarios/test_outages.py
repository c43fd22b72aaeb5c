"""One session through all that may go away around it: API server, etcd, Prometheus, Postgres, agents, the webhook, and an
upgrade that fails and is rolled back. It ends as if nothing had been."""
import threading

import pytest

from harness.deploy import ROOT
from harness.faults import (all_agent_logs, control_plane_pid, kill_agents, kill_api_server, more_batches, stop_for,
                            wait_for_api)
from harness.progress import CommandError, say, wait_until
from harness.replay import check_counted_once, check_results_of_a_replay
from harness.session import losses, manifest, pods_of
from harness.environment import NAME, RELEASE, SERVICES, SYSTEM

pytestmark = [pytest.mark.extended, pytest.mark.kills]

WEBHOOK = ("mutatingwebhookconfiguration", NAME)


def postgres_away(world, session):
    stop = threading.Thread(target=world.cluster.kubectl, daemon=True,
                            args=("-n", SERVICES, "exec", "postgres-0", "--", "/scripts/stop-for", "60"))
    stop.start()
    wait_until("Stored=False", lambda: status_of(session, "Stored") == "False", 30)
    stop.join(120)
    assert not stop.is_alive()


def status_of(session, kind):
    return (session.condition(kind) or {}).get("status")


def prometheus_away(world, _):
    pod = pods_of(world.cluster, "app=prometheus")[0]
    before = world.lease()["spec"]["holderIdentity"], world.restarts()
    stop_for(world.process_of(pod, "prometheus"), 60)
    assert (world.lease()["spec"]["holderIdentity"], world.restarts()) == before, "the Lease was kept"


def etcd_away(world, _):
    stop_for(control_plane_pid("etcd"), 20)
    wait_for_api(world)


def agents_killed(world, session):
    kill_agents(world, session.namespace, "app=dlrm")


def webhook_gone_and_failed_upgrade(world, session):
    """What is deleted by hand comes back with the rollback; the pod of an upgrade that cannot start takes over nothing."""
    leader = world.leader()
    world.cluster.delete(*WEBHOOK)
    world.cluster.apply(world.pod(session.namespace, "without-webhook", 'profile: "yes"'))
    world.cluster.kubectl("-n", session.namespace, "delete", "pod", "without-webhook", "--grace-period=0", "--force")
    with pytest.raises(CommandError):
        world.cluster.helm("upgrade", RELEASE, f"{ROOT}/charts/precisionprobe", "-n", SYSTEM, "--reuse-values",
                           "--set", "image.tag=there-is-none", "--wait", "--timeout", "30s")
    assert world.leader() == leader
    world.cluster.helm("rollback", RELEASE, "-n", SYSTEM, "--wait", "--timeout", "90s")
    wait_until("the webhook, with its path and authority", lambda: served(world), 60)


def served(world):
    found = world.cluster.get(*WEBHOOK)
    return found and all(hook["clientConfig"].get("caBundle") for hook in found["webhooks"])


def api_server_killed(world, _):
    kill_api_server(world, 15)


def times_connected(world, session):
    return {pod: log.count('"message":"connected, ') for pod, log in
            all_agent_logs(world, session.namespace, "app=dlrm").items()}


def api_server_halted(world, session):
    """Too busy to renew the Lease, which is lost and had back; the agents stay where they are."""
    leader, before = world.wait_for_leader(), times_connected(world, session)
    lost = terms_lost(world, leader)
    assert all(before.values())
    stop_for(control_plane_pid("kube-apiserver"), 12)
    wait_for_api(world)
    more_batches(world, session, 3, 120)
    assert world.leader() == leader and terms_lost(world, leader) == lost + 1
    assert times_connected(world, session) == before


def terms_lost(world, pod):
    return world.cluster.kubectl("-n", SYSTEM, "logs", pod).count("no longer leading")


FAULTS = (agents_killed, api_server_killed, api_server_halted, etcd_away, prometheus_away, postgres_away, webhook_gone_and_failed_upgrade)


@pytest.fixture(scope="module")
def through(everything):
    world = everything
    if world.cluster.external:
        pytest.skip("the control plane's processes are on another machine")
    world.use()
    world.cluster.apply(manifest("outages", duration="10m", deadline="30m") + "---\n"
                        + world.deployment.render("dlrm.yaml", "dlrm-twin.yaml", TRAIN_STEPS="100000", TRAIN_BATCH="704"))
    session = world.session("outages")
    session.follow(180, until=("Collecting",))
    for fault in FAULTS:
        more_batches(world, session, 3, 120)
        say(f"  {fault.__name__}")
        fault(world, session)
    item = session.follow(900)
    yield world, session, item
    assert world.clear() == []


def test_it_succeeds(through):
    world, session, item = through
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")


def test_the_training_never_noticed(through):
    world, session, _ = through
    pods = [pods_of(world.cluster, f"job-name={job}", session.namespace)[0] for job in ("dlrm", "dlrm-twin")]
    trainer = next(c for c in pods[0]["status"]["containerStatuses"] if c["name"] == "trainer")
    assert trainer["restartCount"] == 0
    ours, theirs = (losses(world.cluster, pod["metadata"]["name"]) for pod in pods)
    common = sorted(set(ours) & set(theirs))
    assert len(common) >= 25 and common == list(range(len(common)))
    assert [ours[n] for n in common] == [theirs[n] for n in common]


def test_every_event_counts_once(through):
    world, _, item = through
    check_counted_once(world, item, all_agent_logs(world, SERVICES, "app=dlrm"))


def test_estimates_equal_those_of_a_replay(through):
    world, _, item = through
    check_results_of_a_replay(world, item["metadata"]["uid"])
