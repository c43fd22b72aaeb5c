"""Whoever may read the namespace `a` alone tries all that there is of `b`: nothing tells that it is there. Paths are those of the
served document, so that one without a row here fails the test."""
import http.client
import json
import random
import statistics
import time

import pytest
import yaml

PACE = 1 / 100  # s: the operator asks the API server about readers 200 times a second, and past that who asks waits
DATE = ("date",)  # headers that say nothing of what is there
OPEN = "/api/v1/openapi.yaml"
NAMESPACE = "/api/v1/namespaces/{namespace}"
SESSION = NAMESPACE + "/sessions/{session}"
# What reading each path needs, of the namespace: whoever lists is told that it may not, whoever asks for one that there is none.
NEEDS = {"/api/v1/sessions": "list", NAMESPACE + "/sessions": "list", NAMESPACE + "/patterns": "list",
         NAMESPACE + "/patterns/{pattern}": "get", SESSION: "get",
         **{f"{SESSION}/{rows}": "get" for rows in ("layers", "quality", "kernels", "waits", "copies", "ranks", "ranks/items", "timeline")}}
STATUS = {"list": 403, "get": 404}
ROWS = [path for path in NEEDS if path.startswith(SESSION)]


def fill(path, namespace="b", session="dlrm", pattern="job-one"):
    return path.format(namespace=namespace, session=session, pattern=pattern)


def ask(served, path, user="of-a", **more):
    """(status, headers but the date, body)."""
    status, headers, body = served.get(path, user, **more)
    return status, sorted((k.lower(), v) for k, v in headers.items() if k.lower() not in DATE), body


@pytest.fixture(scope="module")
def document(served):
    return yaml.safe_load(served.get(OPEN)[2])


def test_every_path_is_tried(document):
    """A path that is new has to be said here, with what it needs."""
    assert set(document["paths"]) - {OPEN} == set(NEEDS)
    assert all(set(item) - {"parameters"} == {"get"} for item in document["paths"].values())


@pytest.mark.parametrize("path", NEEDS)
def test_nothing_of_it_is_read(served, path):
    """By any token that has no right there, with GET and HEAD, whatever is asked for; who has it reads it."""
    assert served.get(fill(path), "all")[0] == 200
    assert served.get(fill(path), "of-b")[0] == (403 if path == "/api/v1/sessions" else 200)
    for user, expected in (("of-a", STATUS[NEEDS[path]]), ("of-none", STATUS[NEEDS[path]]), ("unknown", 401), (None, 401)):
        status, headers, body = served.get(fill(path), user)
        assert status == expected and headers["Content-Type"] == "application/problem+json"
        assert not headers["ETag"] and not {"b-dlrm", "job-one", "dlrm-0"} & set(body.decode().split('"'))
        assert set(json.loads(body)) <= {"type", "title", "status", "detail", "field"}
        head = served.get(fill(path), user, method="HEAD")
        assert head[0] == expected and head[2] == b"" and head[1]["Content-Length"] == headers["Content-Length"]


@pytest.mark.parametrize("path", NEEDS)
def test_what_is_there_reads_as_what_is_not(served, path):
    """The very same answer, header for header, whether the name is there or not: in the other namespace, and in one that is not."""
    if NEEDS[path] == "list":
        answers = [ask(served, fill(path, ns)) for ns in ("b", "large", "nowhere")]
    else:
        answers = [ask(served, fill(path, ns, session, pattern))
                   for ns, session, pattern in (("b", "dlrm", "job-one"), ("b", "secret", "job-secret"), ("b", "none", "none"),
                                                ("large", "dlrm", "none"), ("nowhere", "none", "none"), ("a", "none", "none"),
                                                ("a", "secret", "job-secret"))]
    assert all(answer == answers[0] for answer in answers[1:])


def etags_of(served, path):
    status, headers, _ = served.get(path, "all")
    assert status == 200
    return headers["ETag"]


@pytest.mark.parametrize("path", NEEDS)
def test_tags_of_its_answers(served, path):
    """Whoever knows a tag is not told that it holds, nor that it does not."""
    tag = etags_of(served, fill(path))
    assert served.get(fill(path), "all", **{"If-None-Match": tag})[0] == 304
    plain = ask(served, fill(path))
    for known in (tag, f"W/{tag}", '"none"', "*", tag.replace("-", "-0")):
        assert ask(served, fill(path), **{"If-None-Match": known}) == plain


@pytest.mark.parametrize("path", [path for path in NEEDS if NEEDS[path] == "list" or path in ROWS[1:]])
def test_pages_of_it(served, path):
    """`continue` of its pages says no more there, and begins nothing elsewhere."""
    status, _, body = served.get(fill(path) + "?limit=1", "all")
    assert status == 200, body
    token = json.loads(body).get("continue")
    assert token, body
    assert ask(served, fill(path) + f"?continue={token}") == ask(served, fill(path))
    if path == "/api/v1/sessions":
        return
    status, _, body = ask(served, fill(path, "a") + f"?limit=5000&continue={token}")
    if NEEDS[path] == "get":  # it names a session of the other namespace
        assert (status, body) == ask(served, fill(path, "a", "none"))[::2]
    else:  # it names a place among names
        assert status == 200 and all(row["namespace"] == "a" for row in json.loads(body)["items"])


@pytest.mark.parametrize("path", ROWS)
def test_its_uids(served, path):
    """A UID of the other namespace's, under a name that may be read, or that is not there."""
    missing = ask(served, fill(path, "a", "none"))
    for session in ("dlrm", "secret", "none"):
        for uid in ("b-dlrm-2", "b-secret-1", "nothing"):
            assert ask(served, fill(path, "a", session) + f"?uid={uid}") == missing
            assert ask(served, fill(path, "b", session) + f"?uid={uid}") == missing


def test_pods_of_another_session(served):
    """Of the timeline: a pod that another session has."""
    path = fill(SESSION, "a") + "/timeline?pod=p-recorded"
    assert json.loads(served.get(path, "of-a")[2])["items"] == []


def test_lists_hold_nothing_of_others(served):
    """In any page of them, by any size."""
    for path in (NAMESPACE + "/sessions", NAMESPACE + "/patterns"):
        seen, more = 0, ""
        while True:
            status, _, body = served.get(fill(path, "a") + f"?limit=2{more}", "of-a")
            page = json.loads(body)
            assert status == 200 and all(row["namespace"] == "a" for row in page["items"])
            seen += len(page["items"])
            if "continue" not in page:
                break
            more = f"&continue={page['continue']}"
        assert seen == len(json.loads(served.get(fill(path, "a"), "all")[2])["items"])


def test_a_right_that_was_found_is_the_tokens_own(served):
    """Rights that are kept are of a token, a verb, a namespace and a name."""
    path = fill(NAMESPACE + "/sessions/{session}")
    assert served.get(path, "all")[0] == 200
    assert served.get(path, "of-a")[0] == 404
    assert served.get(fill(SESSION, "a"), "of-a")[0] == 200
    assert served.get(fill(SESSION, "b"), "of-a")[0] == 404


def took(served, connection, path):
    time.sleep(PACE)
    began = time.perf_counter()
    status, _, _ = served.get(path, "of-a", connection=connection)
    return time.perf_counter() - began, status


def quick(times):
    """What a tenth of them is below."""
    return sorted(times)[len(times) // 10]


@pytest.mark.parametrize("path", [path for path in NEEDS if NEEDS[path] == "get"])
def test_errors_take_as_long(served, path):
    """
    Of many requests that take turns in an order of chance the quick ones: a name that is there, and one that is not, as long.
    A busy machine makes many longer, in both.
    """
    there, missing, connection = [], [], served.connection()
    turns = random.Random(1)
    time.sleep(1)
    for n in range(50):
        kinds = [("dlrm", "job-one", there), ("none", "job-not", missing)]
        turns.shuffle(kinds)
        for session, pattern, times in kinds:
            try:
                seconds, status = took(served, connection, fill(path, "b", session, pattern))
            except (http.client.HTTPException, ConnectionError):  # it was kept long enough
                connection = served.connection()
                continue
            assert status == 404
            if n >= 5:
                times.append(seconds)
    connection.close()
    apart = abs(quick(there) - quick(missing))
    draw = random.Random(2)
    noise = 4 * statistics.stdev(quick(draw.choices(there, k=len(there))) - quick(draw.choices(missing, k=len(missing)))
                                 for _ in range(200))
    print(f"{apart * 1e6:.0f} us apart, noise {noise * 1e6:.0f} us of {quick(missing) * 1e6:.0f}")
    assert apart < max(noise, 0.0002), f"{apart * 1e6:.0f} us apart, noise {noise * 1e6:.0f} us"
