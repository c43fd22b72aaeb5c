"""What Python tests of the operator's program begin with: its environment, a Postgres and a small API server, and the program on both."""
import contextlib
import os
import pathlib
import re
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "e2e"))
from harness.alone import Kubernetes, Operator, postgres, psql  # noqa: E402

SANITIZER = re.compile(r"ERROR: (Address|Leak|Thread)Sanitizer|runtime error: |SUMMARY: \w+Sanitizer")


def needed(name):
    """What the environment has to name: the conftest.py of each folder says what that is."""
    value = os.environ.get(name)
    if not value:
        pytest.exit(f"{name} is not set: see the conftest.py of these tests", returncode=2)
    return value


@contextlib.contextmanager
def backends(users):
    """(conninfo of an empty database, the API server), which knows each user by a token of the same name."""
    with postgres() as conninfo, Kubernetes() as kubernetes:
        kubernetes.tokens.update({user: {"username": user, "uid": user} for user in users})
        yield conninfo, kubernetes


def migrated(conninfo):
    """Whether the schema is whole, and its metrics are there, which come last."""
    try:
        versions, metrics = psql(conninfo, "SELECT (SELECT count(*) FROM schema_migration), (SELECT count(*) FROM metric)").split("|")
    except RuntimeError:  # there is none of it yet
        return False
    return int(versions) == len(list((ROOT / "operator/store/migrations").glob("*.sql"))) and int(metrics) > 0


def wait_for_schema(operator, conninfo, patience=120):
    """A replica is ready before its database is: it injects without one."""
    end = time.monotonic() + patience
    while not migrated(conninfo):
        assert operator.process.poll() is None and time.monotonic() < end, operator.text()[-4000:]
        time.sleep(0.1)


@contextlib.contextmanager
def serving(conninfo, kubernetes, **options):
    """
    The operator, which keeps what it has: the tests' data is old. At the end it has to be there still, to stop when it is told to,
    and to have found nothing wrong with itself.
    """
    options = {"retention__activity": "0s", "retention__samples": "0s", **options}
    with Operator(needed("PP_OPERATOR"), kubernetes, conninfo, **options) as operator:
        wait_for_schema(operator, conninfo)
        yield operator
        assert operator.process.poll() is None, operator.text()
    assert operator.process.returncode == 0 and not SANITIZER.search(operator.said), operator.said[-4000:]
