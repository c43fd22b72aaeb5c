"""The HTTP API on a cluster: real tokens and rights, the certificate that it shows, and the API server's proxy."""
import json

import pytest

from harness.environment import NAME, SYSTEM
from harness.progress import wait_until
from harness.results_api import get, reader
from harness.session import manifest

# Finished, so that the operator leaves them alone; the test takes them away.
ROWS = """
INSERT INTO session (uid, namespace, name, spec, method, phase, created_at, finished_at)
SELECT '{namespace}-' || n, CASE n WHEN 3 THEN '{namespace}-other' ELSE '{namespace}' END, 'api', '{{}}', 'Auto', 'Failed',
       now() - n * interval '1 hour', now() FROM generate_series(1, 3) n;
INSERT INTO target (session_uid, pod_uid, namespace, pod_name, workload_kind, workload_name)
VALUES ('{namespace}-1', 'p', '{namespace}', 'p', 'Pod', 'p');
INSERT INTO attribution (session_uid, pod_uid, gpu_uuid, revision, final, windows, samples, observed_ns, step_count, truncated)
VALUES ('{namespace}-1', 'p', '', 1, true, 0, 0, 7, 3, false);
INSERT INTO item (session_uid, pod_uid, gpu_uuid, kind, layer, phase, calls, total_ns, windows)
SELECT '{namespace}-1', 'p', '', 'layer', 'l' || n, 'forward', 3, 1234567 + n, 0 FROM generate_series(1, 5) n;
"""


@pytest.fixture
def results(world, namespace):
    """A namespace with two sessions of one name, and a token of whoever may view what is in it."""
    world.database.psql(ROWS.format(namespace=namespace))
    yield namespace, reader(world.cluster, namespace)
    world.database.psql(f"DELETE FROM session WHERE uid LIKE '{namespace}-_'")


def test_whoever_may_view_may_read(world, results):
    """The sessions of the namespace, pages of the latest one's layers, and nothing of another namespace."""
    namespace, token = results
    bearer = {"Authorization": f"Bearer {token}"}
    base = f"/api/v1/namespaces/{namespace}/sessions"
    with world.forward(SYSTEM, f"service/{NAME}", 443) as address:
        status, listed, _ = get(world.cluster, address, base, **bearer)
        assert status == 200 and [s["session_uid"] for s in listed["items"]] == [f"{namespace}-1", f"{namespace}-2"]
        assert get(world.cluster, address, f"{base}/api", **bearer)[1]["conditions"] is None  # there is no object of that name
        status, page, headers = get(world.cluster, address, f"{base}/api/layers?limit=3", **bearer)
        assert status == 200 and [item["layer"] for item in page["items"]] == ["l1", "l2", "l3"]
        wanted = world.database.value("SELECT ms_per_step::float8 FROM result_detail "
                                      f"WHERE session_uid = '{namespace}-1' AND layer = 'l1'")
        assert page["items"][0]["ms_per_step"] == wanted
        status, page, _ = get(world.cluster, address, f"{base}/api/layers?limit=3&continue={page['continue']}", **bearer)
        assert status == 200 and [item["layer"] for item in page["items"]] == ["l4", "l5"] and "continue" not in page
        again = {"If-None-Match": headers["ETag"], **bearer}
        assert get(world.cluster, address, f"{base}/api/layers?limit=3", **again)[0] == 304
        missing = get(world.cluster, address, f"{base}/none", **bearer)[:2]
        assert missing[0] == 404
        assert get(world.cluster, address, f"/api/v1/namespaces/{namespace}-other/sessions/api", **bearer)[:2] == missing
        assert get(world.cluster, address, f"/api/v1/namespaces/{namespace}-other/sessions", **bearer)[0] == 403
        assert get(world.cluster, address, "/api/v1/sessions", **bearer)[0] == 403
        assert get(world.cluster, address, base)[0] == 401
        agents = world.cluster.kubectl("-n", namespace, "create", "token", "reader", "--audience=precisionprobe").strip()
        assert get(world.cluster, address, base, Authorization=f"Bearer {agents}")[0] == 401


def test_through_the_api_servers_proxy(world, results):
    """What `kubectl proxy` reaches, with the token in the header that the proxy leaves alone."""
    namespace, token = results
    path = (f"/api/v1/namespaces/{SYSTEM}/services/https:{NAME}:443/proxy"
            f"/api/v1/namespaces/{namespace}/sessions/api/layers")
    status, text = world.cluster.proxy.get(path, {"X-PrecisionProbe-Token": token})
    assert status == 200 and len(json.loads(text)["items"]) == 5
    status, _ = world.cluster.proxy.get(path)
    assert status == 401


def test_conditions_are_the_objects(world, namespace):
    """A session that waits for pods says so, to whoever reads it over HTTP, too; another answer has another tag."""
    world.cluster.apply(manifest("waits", labels="app: none", namespace=namespace))
    bearer = {"Authorization": f"Bearer {reader(world.cluster, namespace)}"}
    at = f"/api/v1/namespaces/{namespace}/sessions/waits"
    with world.forward(SYSTEM, f"service/{NAME}", 443) as address:
        def told():
            status, document, headers = get(world.cluster, address, at, **bearer)
            theirs = world.cluster.get("-n", namespace, "psess", "waits")["status"].get("conditions", [])
            ours = (document.get("conditions") or []) if status == 200 else []
            same = [(one["type"], one["status"], one["reason"], one["message"]) for one in ours] == [
                (one["type"], one["status"], one["reason"], one["message"]) for one in theirs]
            return headers["ETag"] if same and len(ours) > 5 else None
        tag = wait_until("the conditions", told, 30)
        assert get(world.cluster, address, at, **{"If-None-Match": tag, **bearer})[0] == 304
        world.cluster.kubectl("-n", namespace, "patch", "psess", "waits", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        wait_until("other conditions", lambda: (now := told()) and now != tag, 30)
