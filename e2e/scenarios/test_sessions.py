"""What a session says of itself, and what it does, where there is nothing or not everything to profile."""
import time

from harness.progress import wait_until
from harness.session import losses, manifest


def test_without_pods(world, namespace):
    """No pod matches: a condition says so, and the session fails at its deadline."""
    world.cluster.apply(manifest("alone", labels="app: nobody", duration="1s", deadline="20s", namespace=namespace))
    session = world.session("alone", namespace)
    condition = wait_until("the Injected condition", lambda: session.condition("Injected"), 10)
    assert (condition["status"], condition["reason"]) == ("False", "NoMatchingPods")
    assert session.phase() == "Pending"
    item = session.follow(60)
    assert item["status"]["phase"] == "Failed"
    failed = session.condition("Succeeded")
    assert (failed["status"], failed["reason"]) == ("False", "NoMatchingPods")
    assert "deadline" in failed["message"] and "spec.selector" in failed["message"]
    assert session.condition("Stalled")["status"] == "True"
    assert item["status"]["observedGeneration"] == item["metadata"]["generation"]


def test_pod_from_before(world, namespace):
    """A pod that was there first is left alone and reported, on the session and on the pod."""
    world.cluster.apply(world.pod(namespace, "early"))
    before = world.running(namespace, "app=idle")[0]
    time.sleep(1)  # the API keeps whole seconds: of two objects made in the same one none is known to be the older
    world.cluster.apply(manifest("late", labels="app: idle", namespace=namespace))
    session = world.session("late", namespace)
    wait_until("the reason", lambda: (session.condition("Injected") or {}).get("reason") == "CreatedBefore", 10)
    condition = session.condition("Injected")
    assert condition["status"] == "False" and "early" in condition["message"]
    for name in ("early", "late"):
        said = wait_until(f"an Event on {name}", lambda: dict(world.events(namespace, name)).get("CreatedBefore"), 20)
        assert "delete it" in said
    item = session.get()
    assert item["status"]["pods"] == "0/1"
    assert [(t["pod"], t["reason"]) for t in item["status"]["targets"]] == [("early", "CreatedBefore")]
    after = world.cluster.get("-n", namespace, "pod", "early")
    assert after["metadata"]["uid"] == before["metadata"]["uid"] and after["spec"] == before["spec"]


def test_suspend_and_resume(trainings):
    """Suspended it samples nothing and its pods get the hook all the same; resumed it goes on to its end. With a budget that
    does not make the second capture wait until the first is paid for."""
    world = trainings
    world.cluster.apply(manifest("paused", labels='profile: "yes"', duration="8s", deadline="5m",
                                 more="  suspend: true\n  overheadBudgetPercent: 50\n"))
    session = world.session("paused")
    session.follow(20, until=("Suspended",))
    assert session.condition("Collecting")["reason"] == "Suspended"
    world.cluster.apply(world.deployment.render("dlrm.yaml", TRAIN_STEPS="4000", TRAIN_BATCH="64"))
    pod = world.running(session.namespace, "job-name=dlrm")[0]
    name = pod["metadata"]["name"]
    assert "precisionprobe.io/session" in pod["metadata"]["annotations"]
    wait_until("training steps", lambda: len(losses(world.cluster, name)) > 20, 120)
    item = session.get()
    assert item["status"]["phase"] == "Suspended" and item["status"]["counts"].get("events", 0) == 0

    session.patch(suspend=False)
    session.follow(60, until=("Collecting",))
    session.patch(suspend=True)
    session.follow(30, until=("Suspended",))
    uid = item["metadata"]["uid"]
    last = wait_until("a closed capture", lambda: closed(world, uid), 60)
    done = len(losses(world.cluster, name))
    wait_until("further steps", lambda: len(losses(world.cluster, name)) > done + 20, 60)
    assert closed(world, uid) == last, "steps were sampled in suspension"

    session.patch(suspend=False)
    item = session.follow(120)
    assert item["status"]["phase"] == "Succeeded", session.condition("Succeeded")
    assert closed(world, uid) > last
    reasons = [reason for reason, _ in world.events(session.namespace, "paused")]
    assert "Suspended" in reasons and "Resumed" in reasons


def closed(world, uid):
    """End of the last observed moment, once the last capture is closed; None before."""
    row = world.database.rows(f"SELECT max(a.end_ns) AS last, bool_or(p.open_stretch) AS open FROM activity a JOIN process p "
                              f"USING (session_uid, pod_uid, instance, process) WHERE session_uid = '{uid}'")[0]
    return row["last"] if row["last"] and not row["open"] else None


def test_one_file_with_a_job_and_ttl(trainings):
    """Session and Job in one file: the pod is injected, the Job completes beside the agent, the session ends when its pods
    have finished, says that this was before its duration was over, and is deleted after its time to live, while its
    results stay."""
    world = trainings
    world.cluster.apply(manifest("short", duration="10m", deadline="20m", more="  ttlSecondsAfterFinished: 15\n") + "---\n"
                        + world.deployment.render("dlrm.yaml", TRAIN_STEPS="60", TRAIN_BATCH="128"))
    session = world.session("short")
    item = session.follow(240)
    ended = time.monotonic()
    uid = item["metadata"]["uid"]
    failed = session.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", "Incomplete") and "had ended by then" in failed["message"]
    assert session.condition("Finished")["status"] == "True"
    assert item["status"]["pods"] == "1/1"
    assert item["status"]["expiresAfterSeconds"] == 604800, "the chart's, had it none of its own"
    world.cluster.kubectl("-n", session.namespace, "wait", "--for=condition=Complete", "job/dlrm", "--timeout=60s")
    pod = world.cluster.get("-n", session.namespace, "pods", "-l", "job-name=dlrm")["items"][0]
    agents = [c for c in pod["spec"]["initContainers"] if c["name"] == "precisionprobe-agent"]
    assert agents and agents[0]["restartPolicy"] == "Always", "the agent is a native sidecar"
    wait_until("the session to be deleted", lambda: session.get() is None, 40)
    assert time.monotonic() - ended > 10, "it was deleted before its time"
    rows = world.database.rows(f"SELECT phase, finished_at FROM session WHERE uid = '{uid}'")
    assert rows and rows[0]["phase"] == "Failed" and rows[0]["finished_at"]
    assert world.database.value(f"SELECT count(*) FROM result_detail WHERE session_uid = '{uid}' AND kind = 'layer'") > 0
