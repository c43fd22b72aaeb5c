"""The operator killed and Postgres stopped in the middle of a session: nothing is lost and nothing counts twice."""
import threading

import pytest

from harness.faults import kill_operator, more_batches
from harness.progress import wait_until
from harness.replay import check_counted_once, check_results_of_a_replay
from harness.session import manifest
from harness.environment import SERVICES, SYSTEM

pytestmark = [pytest.mark.long, pytest.mark.kills]


@pytest.fixture(scope="module")
def disturbed(everything):
    """A session through kill -9, a deleted pod and a database that is away for 30 s."""
    world = everything
    if world.cluster.external:
        pytest.skip("the operator's process is on another machine")
    world.use()
    world.cluster.apply(manifest("chaos", duration="130s", deadline="15m") + "---\n"
                        + world.deployment.render("dlrm.yaml", "dlrm-ddp.yaml", TRAIN_STEPS="4000", TRAIN_BATCH="704"))
    session = world.session("chaos")
    session.follow(180, until=("Collecting",))
    more_batches(world, session, 4)
    kill_operator(world)
    more_batches(world, session, 4)
    world.cluster.kubectl("-n", SYSTEM, "delete", "pod", world.leader(), "--grace-period=0", "--force")
    world.wait_for_leader(90)
    more_batches(world, session, 2)
    stop = threading.Thread(target=world.cluster.kubectl, daemon=True,
                            args=("-n", SERVICES, "exec", "postgres-0", "--", "/scripts/stop-for", "30"))
    stop.start()
    condition = wait_until("the Stored condition", lambda: is_false(session.condition("Stored")), 25)
    assert condition["reason"] == "StoreUnavailable"
    stop.join(90)
    assert not stop.is_alive()
    item = session.follow(400)
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")
    yield world, item, world.agent_logs()
    assert world.clear() == []


def is_false(condition):
    return condition if condition and condition["status"] == "False" else None


def test_every_event_counts_once(disturbed):
    world, item, logs = disturbed
    assert len(logs) == 3
    check_counted_once(world, item, logs)


def test_estimates_equal_those_of_a_replay(disturbed, world):
    _, item, _ = disturbed
    check_results_of_a_replay(world, item["metadata"]["uid"])
