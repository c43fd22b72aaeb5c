"""What injection adds to a pod, and the pods that it leaves as they are."""
import json

import pytest
from harness.progress import wait_until
from harness.session import manifest
from harness.environment import AGENT, NAME, SHARED, SYSTEM

HOOK = "precisionprobe-hook"


def test_what_is_added(world, namespace):
    """All parts are there, nothing is privileged, and the trainer's own settings stay."""
    world.cluster.apply(manifest("all", labels="app: idle", namespace=namespace) + "---\n" + world.pod(
        namespace, "one", more="      env:\n        - {name: PYTHONPATH, value: /mine}\n        - {name: OTHER, value: same}\n"))
    pod = world.running(namespace, "app=idle")[0]
    spec, notes = pod["spec"], pod["metadata"]["annotations"]
    session = world.cluster.get("-n", namespace, "psess", "all")
    assert notes["precisionprobe.io/session-uid"] == session["metadata"]["uid"]
    init = {c["name"]: c for c in spec["initContainers"]}
    assert set(init) == {HOOK, AGENT}
    assert init[AGENT]["restartPolicy"] == "Always"
    trainer = spec["containers"][0]
    environment = {e["name"]: e.get("value") for e in trainer["env"]}
    assert environment["PYTHONPATH"] == "/opt/precisionprobe/python:/mine" and environment["OTHER"] == "same"
    for container in init.values():
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False and security["capabilities"]["drop"] == ["ALL"]
        assert "privileged" not in security
    volumes = {v["name"]: v for v in spec["volumes"]}
    assert volumes["precisionprobe-ring"]["emptyDir"]["medium"] == "Memory"
    assert volumes["precisionprobe-spool"]["emptyDir"] == {"sizeLimit": "128Mi"}
    assert [c["name"] for c in spec["containers"] + spec["initContainers"]
            for m in c.get("volumeMounts", []) if m["name"] == "precisionprobe-spool"] == ["precisionprobe-agent"]
    tokens = [s["serviceAccountToken"] for s in volumes["precisionprobe-identity"]["projected"]["sources"]
              if "serviceAccountToken" in s]
    assert [t["audience"] for t in tokens] == ["precisionprobe"]
    connected = wait_until("the agent's connection", lambda: any(
        t.get("reporting") for t in (world.session("all", namespace).get().get("status", {}).get("targets") or [])), 60)
    assert connected


def test_pods_that_ask_for_it(world, namespace):
    """No session matches: the pod's label, or its namespace's, brings a hook that waits; opting out holds all the same."""
    asks = 'app: idle, precisionprobe.io/inject: "true"'
    world.cluster.apply(world.pod(namespace, "own", labels=asks) + "---\n" + world.pod(namespace, "plain"))
    if not SHARED:
        world.cluster.kubectl("label", "namespace", namespace, "precisionprobe.io/inject=true")
        world.cluster.apply(world.pod(namespace, "one") + "---\n"
                            + world.pod(namespace, "out", labels='app: idle, precisionprobe.io/inject: "false"'))
    for name, expected in {"own": True, "plain": False, **({} if SHARED else {"one": True, "out": False})}.items():
        item = world.cluster.get("-n", namespace, "pod", name)
        assert ("initContainers" in item["spec"]) == expected, name
        notes = item["metadata"].get("annotations", {})
        assert ("precisionprobe.io/settings" in notes) == expected and "precisionprobe.io/session" not in notes, name
    world.running(namespace, "app=idle", 2 if SHARED else 4)
    world.cluster.apply(manifest("all", labels="app: idle", namespace=namespace))
    usable = 1 if SHARED else 2
    session = world.session("all", namespace)
    wait_until("the connections of those that have it", lambda: sum(
        bool(t.get("reporting")) for t in session.get().get("status", {}).get("targets") or []) == usable, 60)
    wait_until("why the others have none", lambda: all(
        t["injected"] or t.get("reason") for t in session.get()["status"]["targets"]), 60)
    status = session.get()["status"]
    assert status["pods"] == ("1/2" if SHARED else "2/4")
    assert {t["pod"]: t.get("reason") for t in status["targets"] if not t["injected"]} == {
        "plain": "CreatedBefore", **({} if SHARED else {"out": "OptedOut"})}


def test_python_path_from_a_source(world, namespace):
    """PYTHONPATH from valueFrom cannot be prepended: the pod stays as it was, with an Event and a condition."""
    world.cluster.kubectl("-n", namespace, "create", "configmap", "paths", "--from-literal=path=/mine")
    source = ("      env:\n        - name: PYTHONPATH\n          valueFrom:\n"
              "            configMapKeyRef: {name: paths, key: path}\n")
    refused(world, namespace, world.pod(namespace, "one", more=source), "PythonPathFromSource", "PYTHONPATH")


def test_container_not_found(world, namespace):
    refused(world, namespace, world.pod(namespace, "one"), "ContainerNotFound", "spec.containers",
            more="  containers: [nobody]\n")


def refused(world, namespace, pod, reason, words, more=""):
    """The pod is created as it was written; session and Event say why."""
    world.cluster.apply(manifest("all", labels="app: idle", more=more, namespace=namespace) + "---\n" + pod)
    item = world.cluster.get("-n", namespace, "pod", "one")
    assert "initContainers" not in item["spec"] and len(item["spec"]["containers"]) == 1
    assert not [key for key in item["metadata"].get("annotations", {}) if key.startswith("precisionprobe.io/")]
    session = world.session("all", namespace)

    def said():
        condition = session.condition("Injected")
        return condition if condition and condition["reason"] == reason else None
    condition = wait_until(f"the condition {reason}", said, 20)
    assert condition["status"] == "False" and "one" in condition["message"] and words in condition["message"]
    on_session = wait_until("an Event on the session", lambda: dict(world.events(namespace, "all")).get(reason), 20)
    assert words in on_session
    wait_until("an Event on the pod", lambda: dict(world.events(namespace, "one")).get(reason), 20)
    assert {told for told, _ in world.events(namespace, "one")}.isdisjoint({"CreatedBefore", "WebhookMissed"})
    world.running(namespace, "app=idle")  # it runs all the same


def test_unselected_pods_and_namespaces(world, namespace):
    """Pods that no session selects are created unchanged; so are those that opted out."""
    world.cluster.apply(manifest("all", labels="app: other", namespace=namespace))
    world.cluster.apply(world.pod(namespace, "one"))
    world.cluster.apply(world.pod(namespace, "two", labels='app: other, precisionprobe.io/inject: "false"'))
    for name in ("one", "two"):
        item = world.cluster.get("-n", namespace, "pod", name)
        assert "initContainers" not in item["spec"], name
        written = json.loads(item["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
        assert item["spec"]["containers"][0]["command"] == written["spec"]["containers"][0]["command"]
        assert len(item["spec"]["containers"]) == 1


IN_THE_NODES_NETWORK = "  hostNetwork: true\n"  # and so with the node's resolver, which does not know the cluster


def addresses_told(world, namespace):
    """To a pod that is created now."""
    text = world.cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-",
                                 input=world.pod(namespace, "next", more=IN_THE_NODES_NETWORK))
    notes = json.loads(text)["metadata"].get("annotations", {})
    return json.loads(notes.get("precisionprobe.io/settings", "{}")).get("addresses")


def made_anew(service):
    """As it was applied, without what the cluster has given it."""
    kept = {key: service["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in service["metadata"]}
    spec = {key: value for key, value in service["spec"].items() if key not in ("clusterIP", "clusterIPs")}
    return {"apiVersion": "v1", "kind": "Service", "metadata": kept, "spec": spec}


@pytest.mark.extended
@pytest.mark.skipif(SHARED, reason="others use that Service")
def test_the_operator_by_its_address(world, namespace):
    """A pod that cannot resolve the operator's name reaches it, also one that comes after the Service was made anew."""
    world.cluster.apply(manifest("all", labels="app: idle", namespace=namespace))
    session = world.session("all", namespace)
    wait_until("the session", session.phase, 20)
    for name in ("one", "two"):
        service = world.cluster.get("-n", SYSTEM, "service", NAME)
        if name == "two":
            world.cluster.kubectl("-n", SYSTEM, "delete", "service", NAME)
            world.cluster.apply(json.dumps(made_anew(service)))
            service = world.cluster.get("-n", SYSTEM, "service", NAME)
        address, *_ = addresses = service["spec"]["clusterIPs"]
        wait_until("the Service's address", lambda: addresses_told(world, namespace) == addresses, 60)
        world.cluster.apply(world.pod(namespace, name, more=IN_THE_NODES_NETWORK))
        wait_until("the agent's connection", lambda: any(
            t["pod"] == name and t.get("reporting") for t in session.get().get("status", {}).get("targets") or []), 60)
        assert f"connecting to {address}" in world.agent_logs(namespace)[name]
