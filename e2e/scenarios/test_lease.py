"""Several replicas and an upgrade: never two that write, and the session goes on."""
import threading
import time

from harness.api import Api, create_pair
from harness.progress import wait_until
from harness.session import manifest
from harness.environment import NAME, SYSTEM


class Watch:
    """Looks all the time at who says that it leads and who holds the Lease."""

    def __init__(self, world):
        self.world = world
        self.over = threading.Event()
        self.seen = []  # (time, [leaders], holder)
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.over.is_set():
            leaders = self.world.leaders()
            if len(leaders) > 1:
                # They were asked one after the other, and the Lease may have changed hands in between: two lead if an
                # earlier one still says so after a later one.
                leaders = [name for name in leaders[:-1] if self.world.leads(name)] + leaders[-1:]
            holder = (self.world.lease() or {}).get("spec", {}).get("holderIdentity", "")
            self.seen.append((time.monotonic(), leaders, holder))

    def close(self):
        self.over.set()
        self.thread.join(30)

    def twice(self):
        return [entry for entry in self.seen if len(entry[1]) > 1]

    def holders(self):
        return list(dict.fromkeys(holder.rsplit("_", 1)[0] for _, _, holder in self.seen if holder))


def test_two_replicas_and_an_upgrade(trainings):
    world = trainings
    world.use(replicaCount="2")
    assert len(world.operator_pods()) == 2
    before = {p["metadata"]["name"] for p in world.operator_pods()}
    world.cluster.apply(manifest("through", duration="45s", deadline="10m") + "---\n"
                        + world.deployment.render("dlrm.yaml", TRAIN_STEPS="4000", TRAIN_BATCH="128"))
    session = world.session("through")
    session.follow(120, until=("Collecting",))
    watch = Watch(world)
    try:
        wait_until("a first look", lambda: len(watch.seen) >= 3, 30)
        world.use(replicaCount="2", config__log__level="debug")  # a new configuration rolls the pods
        after = {p["metadata"]["name"] for p in world.operator_pods()}
        assert not before & after, "the upgrade has replaced the pods"
        wait_until("a look afterwards", lambda: watch.seen[-1][1] and watch.seen[-1][1][0] in after, 60)
    finally:
        watch.close()
    assert len(watch.seen) > 10
    assert watch.twice() == [], "two said that they lead"
    assert len(watch.holders()) >= 2, f"the Lease has changed hands: {watch.holders()}"
    item = session.follow(180)
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")
    check_counted_once(world, item["metadata"]["uid"])


def check_counted_once(world, uid):
    row = world.database.rows(
        f"SELECT (SELECT sum(events) FROM activity WHERE session_uid = '{uid}')::bigint AS stored, "
        f"(SELECT sum(events) FROM target WHERE session_uid = '{uid}')::bigint AS counted")[0]
    assert row["stored"] == row["counted"] > 0


CREATORS = 4  # at a time: so the API server has several connections to the webhook


def missed_pods(world, namespace, seconds):
    """Pods created for so long, each right after its session: (those not injected for it, how many there were)."""
    missed, created, end = [], [], time.monotonic() + seconds

    def create(first):
        api, n = Api(world.cluster), first
        while time.monotonic() < end:
            if not create_pair(api, namespace, n):
                missed.append(n)
            created.append(n)
            n += CREATORS
        api.close()

    threads = [threading.Thread(target=create, args=(first,)) for first in range(CREATORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(missed), len(created)


def test_no_pod_is_missed_while_a_replica_stops(trainings, namespace):
    """One that does not lead: only the API server's calls move."""
    world = trainings
    world.use(replicaCount="2")
    world.wait_for_leader()
    leader = world.leaders()[0]
    other = next(p["metadata"]["name"] for p in world.operator_pods() if p["metadata"]["name"] != leader)
    world.cluster.kubectl("-n", SYSTEM, "delete", "pod", other, "--wait=false")
    missed, created = missed_pods(world, namespace, 8)
    assert created > 20 and not missed, f"{missed} of {created}"
    world.cluster.kubectl("-n", SYSTEM, "rollout", "status", f"deployment/{NAME}", "--timeout=60s")


def test_the_other_replica_takes_over(trainings, namespace):
    """The leader's pod is deleted: no pod is missed while it stops; the other one leads within the Lease's time."""
    world = trainings
    world.use(replicaCount="2")
    first = world.wait_for_leader()
    world.cluster.kubectl("-n", SYSTEM, "delete", "pod", first, "--wait=false")
    missed, created = missed_pods(world, namespace, 8)
    assert created > 20 and not missed, f"{missed} of {created}"
    second = wait_until("another leader", lambda: next((n for n in world.leaders() if n != first), None), 40)
    holder = world.lease()["spec"]["holderIdentity"]
    assert holder.startswith(second), (holder, second)
    world.cluster.kubectl("-n", SYSTEM, "rollout", "status", f"deployment/{NAME}", "--timeout=60s")
    assert len(world.leaders()) == 1


def test_certificates_outlive_their_secret(trainings):
    """Agents trust the authority that they were injected with: it is written again, not made anew."""
    world = trainings
    secret = lambda: world.cluster.get("-n", SYSTEM, "secret", f"{NAME}-tls")
    before = secret()["data"]
    world.cluster.kubectl("-n", SYSTEM, "delete", "secret", f"{NAME}-tls")
    wait_until("the Secret to be back", secret, 90)
    assert secret()["data"] == before
