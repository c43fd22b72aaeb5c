"""Faults that scenarios inject on this machine's cluster: processes killed or stopped, and what one waits for then."""
import glob
import os
import signal
import time

from .cluster import E2E, OWN_KUBECONFIG
from .progress import run, wait_until
from .session import pods_of
from .environment import AGENT


def stored(world, session):
    """How many batches of the session the store has."""
    uid = session.get()["metadata"]["uid"]
    return world.database.value(f"SELECT count(*) FROM activity WHERE session_uid = '{uid}'")


def more_batches(world, session, count, timeout=90):
    """Waits until so many more batches are in the store: something is always under way when the next fault comes."""
    before = stored(world, session)
    wait_until(f"{count} more batches", lambda: stored(world, session) >= before + count, timeout)


def kill_operator(world):
    """SIGKILL for the leading operator's process; the kubelet starts it again."""
    name = world.leader()
    pod = next(p for p in world.operator_pods() if p["metadata"]["name"] == name)
    restarts = sum(c["restartCount"] for c in pod["status"]["containerStatuses"])
    pid = world.process_of(pod)
    assert pid, "the operator's process is not found"
    os.kill(pid, signal.SIGKILL)
    wait_until("the operator's restart", lambda: world.restarts().get(pod["metadata"]["uid"], 0) > restarts, 60)
    world.wait_for_leader(90)


def kill_agents(world, namespace, selector):
    """SIGKILL for the agent of each of these pods; the kubelet starts it again."""
    for pod in pods_of(world.cluster, selector, namespace):
        pid = wait_until("the agent's process", lambda pod=pod: world.process_of(pod), 60)
        os.kill(pid, signal.SIGKILL)


def all_agent_logs(world, namespace, selector):
    """{pod: log} with those of its agents that were killed, of which the kubelet keeps the last."""
    found = {}
    for pod in pods_of(world.cluster, selector, namespace):
        meta = pod["metadata"]
        found[meta["name"]] = ""
        for path in sorted(glob.glob(f"/var/log/pods/{meta['namespace']}_{meta['name']}_{meta['uid']}/{AGENT}/*.log")):
            with open(path, encoding="utf-8") as file:
                found[meta["name"]] += file.read()
    return found


def control_plane_pid(process):
    """Of a program that e2e/cluster runs, such as etcd."""
    with open(os.path.join(os.path.dirname(OWN_KUBECONFIG), "pids", process), encoding="ascii") as file:
        return int(file.read().split()[0])


def stop_for(pid, seconds):
    """The process stands still for so long; its connections stay open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_api(world, timeout=90):
    wait_until("an API server that answers",
               lambda: world.cluster.kubectl("get", "--raw", "/readyz", check=False, timeout=20).strip() == "ok", timeout)


def kill_api_server(world, away):
    """SIGKILL; started again after `away` seconds."""
    run(f"{E2E}/cluster", "restart", "kube-apiserver", str(away), timeout=180, log="cluster-restart.log")
    wait_for_api(world)


__all__ = ["stored", "more_batches", "kill_operator", "kill_agents", "all_agent_logs", "control_plane_pid", "stop_for", "wait_for_api",
           "kill_api_server"]
