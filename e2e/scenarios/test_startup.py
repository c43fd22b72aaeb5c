"""Pods that run, and are not heard from: each is named with its reason, and no longer once it is heard from."""
from harness.progress import say, wait_until
from harness.session import manifest

SLEEP = 'command: [sleep, "3600"]'
ISOLATED = """command: [sh, -c, 'set -e; python3 -c pass; python3 -I -c "import time; time.sleep(3600)"']"""
PYTHON = """command: [python3, -c, "import time; time.sleep(3600)"]"""
NOBODY = "wss://127.0.0.1:1/v1/ingest"
LONG = 240  # s; a minute is what it takes


def pod(world, namespace, name, command, labels="app: idle"):
    return world.pod(namespace, name, labels).replace(SLEEP, command)


def reasons(session):
    return {t["pod"]: t.get("reason") for t in ((session.get() or {}).get("status") or {}).get("targets") or []}


def stalled(session):
    condition = session.condition("Stalled") or {}
    return (condition.get("status"), condition.get("reason"))


def begin_without_hook(world, namespace):
    commands = {"shell": "command: [sh, -c, 'sleep 3600']", "program": SLEEP, "isolated": ISOLATED, "slow": PYTHON}
    world.cluster.apply(manifest("hook", labels="app: idle", namespace=namespace) + "---\n"
                        + "---\n".join(pod(world, namespace, name, command) for name, command in commands.items()))
    world.running(namespace, "app=idle", 4)
    return world.session("hook", namespace)


def begin_without_operator(world, namespace):
    """Only pods made from now on are told where nobody listens."""
    world.use(config__ingest__endpoint=NOBODY)
    world.cluster.apply(manifest("agent", labels="app: alone", namespace=namespace) + "---\n"
                        + pod(world, namespace, "alone", PYTHON, "app: alone"))
    world.running(namespace, "app=alone")
    return world.session("agent", namespace)


def hook_is_missed(world, namespace, session):
    named = {"shell": "HookNotLoaded", "program": "HookNotLoaded", "isolated": "HookNotLoaded", "slow": None}
    wait_until("every such pod to be named", lambda: reasons(session) == named, LONG)
    assert stalled(session) == ("True", "HookNotLoaded")
    words = {"shell": "its command is sh, a shell", "program": "its command is sleep", "isolated": "without -I, -E"}
    for name, part in words.items():
        told = wait_until(f"an Event on {name}", lambda: dict(world.events(namespace, name)).get("HookNotLoaded"), 30)
        assert "no Python has run with the hook" in told and part in told
    assert "HookNotLoaded" in dict(world.events(namespace, "hook"))
    say("  three pods are named; a Python is started in each")
    for name in words:
        world.cluster.kubectl("-n", namespace, "exec", name, "-c", "trainer", "--", "sh", "-c",
                              "python3 -c 'import time; time.sleep(3600)' >/dev/null 2>&1 &")
    wait_until("the reasons to go", lambda: not any(reasons(session).values()), 60)
    wait_until("nobody to have to act", lambda: stalled(session)[0] == "False", 60)
    assert "HookNotLoaded" not in dict(world.events(namespace, "slow"))


def operator_is_missed(world, namespace, session):
    wait_until("the pod to be named", lambda: reasons(session) == {"alone": "AgentNotConnected"}, LONG)
    condition = session.condition("Stalled")
    assert (condition["status"], condition["reason"]) == ("True", "AgentNotConnected")
    assert "alone" in condition["message"] and NOBODY in condition["message"]
    for name in ("agent", "alone"):
        wait_until(f"an Event on {name}", lambda: dict(world.events(namespace, name)).get("AgentNotConnected"), 30)


def test_pods_that_are_not_heard_from(world, namespace):
    """A shell, a program that is no Python, a script that starts Python with -I; a Python that is slow to train is fine.
    And an agent that reaches nobody. Their minute runs side by side."""
    without_hook = begin_without_hook(world, namespace)
    without_operator = begin_without_operator(world, namespace)
    hook_is_missed(world, namespace, without_hook)
    operator_is_missed(world, namespace, without_operator)
