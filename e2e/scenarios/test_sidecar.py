"""On servers without native sidecars the agent is an ordinary container and leaves when the trainer has."""
from harness.session import manifest
from harness.environment import AGENT


def test_job_completes_beside_an_ordinary_sidecar(trainings):
    world = trainings
    world.use(config__injection__nativeSidecar="Never")
    world.cluster.apply(manifest("ordinary", duration="10m", deadline="20m") + "---\n"
                        + world.deployment.render("dlrm.yaml", TRAIN_STEPS="60", TRAIN_BATCH="128"))
    session = world.session("ordinary")
    world.cluster.kubectl("-n", session.namespace, "wait", "--for=condition=Complete", "job/dlrm", "--timeout=240s",
                          timeout=250)
    pod = world.cluster.get("-n", session.namespace, "pods", "-l", "job-name=dlrm")["items"][0]
    assert AGENT in [c["name"] for c in pod["spec"]["containers"]]
    assert AGENT not in [c["name"] for c in pod["spec"]["initContainers"]]
    codes = {c["name"]: c["state"]["terminated"]["exitCode"] for c in pod["status"]["containerStatuses"]}
    assert codes == {"trainer": 0, AGENT: 0}
    item = session.follow(120)
    ended = session.condition("Succeeded")  # with the training, long before the duration: that is less than was asked for
    assert (ended["status"], ended["reason"]) == ("False", "Incomplete") and "had ended by then" in ended["message"]
    assert item["status"]["counts"]["layers"] >= 16


def test_job_whose_trainer_never_came_to_torch_ends(trainings):
    """The agent sees no process; the operator sees that the trainer has ended, and tells it to leave."""
    world = trainings
    world.use(config__injection__nativeSidecar="Never")
    training = world.deployment.render("dlrm.yaml", TRAIN_STEPS="60", TRAIN_BATCH="128")
    world.cluster.apply(manifest("failing", duration="10m", deadline="20m") + "---\n"
                        + training.replace("[python3, /training/dlrm.py]", '["false"]'))
    world.cluster.kubectl("-n", world.session("failing").namespace, "wait", "--for=condition=Failed", "job/dlrm",
                          "--timeout=120s", timeout=130)
