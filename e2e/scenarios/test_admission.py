"""Creating a pod: it meets a session that was applied just before it, and asks the API server nothing."""
import json

import pytest

from harness.api import PODS, SESSIONS, Api, create_pair, injected_for, pod_object, session_object
from harness.progress import wait_until

PAIRS = 200


def requests(world, verb):
    """How many requests of this verb the operator has sent about sessions since it started, as the API server counts."""
    text = world.cluster.raw("/metrics")
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if line.startswith("apiserver_request_total{") and 'resource="profilesessions"' in line
               and f'verb="{verb}"' in line)


def test_a_pod_right_after_its_session(world, namespace):
    """The pod's creation follows the answer to the session's on the same connection: each is its session's."""
    api = Api(world.cluster)
    missed = [n for n in range(PAIRS) if not create_pair(api, namespace, n)]
    api.close()
    assert not missed


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_both_in_one_apply(world, namespace, replicas):
    """The same as a user does it: one file, one kubectl apply."""
    if replicas > 1:
        world.use(replicaCount=str(replicas))
    documents = []
    for n in range(PAIRS):
        labels = {"pair": f"n{n}"}
        documents += [session_object(f"s{n}", labels), pod_object(f"p{n}", labels)]
    for document in documents:
        document["metadata"]["namespace"] = namespace
    world.cluster.apply("---\n".join(json.dumps(document) + "\n" for document in documents))
    sessions = {s["metadata"]["name"]: s for s in world.cluster.get("-n", namespace, "psess")["items"]}
    pods = {p["metadata"]["name"]: p for p in world.cluster.get("-n", namespace, "pods")["items"]}
    assert [n for n in range(PAIRS) if not injected_for(pods[f"p{n}"], sessions[f"s{n}"])] == []


def test_creations_list_nothing(world, namespace):
    """Pods that no session matches are answered without a request for sessions."""
    api = Api(world.cluster)
    api.create(SESSIONS.format(namespace), session_object("one", {"app": "other"}))
    before = requests(world, "LIST")
    for n in range(100):
        pod = api.create(PODS.format(namespace), pod_object(f"p{n}", {"app": "none"}))
        assert "precisionprobe.io/settings" not in pod["metadata"].get("annotations", {})
    api.close()
    assert requests(world, "LIST") == before


def test_finished_sessions_do_not_count(world, namespace):
    """1,200 sessions that have ended keep no pod from the one that lives."""
    api = Api(world.cluster)
    labels = {"app": "idle"}
    ended = session_object("ended", labels, duration="1s", deadline="1s")
    for n in range(1200):
        ended["metadata"]["name"] = f"ended-{n:04}"
        api.create(SESSIONS.format(namespace), ended)
    api.close()

    def all_ended():
        phases = world.cluster.kubectl("-n", namespace, "get", "psess", "-o",
                                       "jsonpath={range .items[*]}{.status.phase}{'\\n'}{end}").split()
        return phases.count("Failed") == 1200

    wait_until("the end of 1,200 sessions", all_ended, 180)
    api = Api(world.cluster)
    session = api.create(SESSIONS.format(namespace), session_object("live", labels))
    for n in range(5):
        assert injected_for(api.create(PODS.format(namespace), pod_object(f"p{n}", labels)), session)
    api.close()
