"""The operator's program on a real Postgres with results in it, asked as whoever reads them asks.

PP_OPERATOR       its path
PP_STORE_REPLAY   that of store_replay, which writes recorded sessions
PP_FUZZER         a folder with the packages of packages.txt; without it nothing is fuzzed
PP_FUZZ_EXAMPLES  how many requests of each kind and path; 15 where it is not set
"""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "e2e"))
from harness.alone import Kubernetes, Operator, postgres, psql  # noqa: E402

SANITIZER = re.compile(r"ERROR: (Address|Leak|Thread)Sanitizer|runtime error: |SUMMARY: \w+Sanitizer")
RECORDED = ROOT / "cli/tests/recordings/regression/batches.jsonl"
USERS = {"all": {"a", "b", "large", ""}, "of-a": {"a"}, "of-b": {"b"}, "of-none": set()}


def needed(name):
    value = os.environ.get(name)
    if not value:
        pytest.exit(f"{name} is not set: see operator/tests/served/conftest.py", returncode=2)
    return value


def may(user, attributes):
    """Whoever may read a namespace may get and list there, whatever it is of."""
    return attributes.get("group") == "precisionprobe.io" and attributes.get("namespace", "") in USERS[user]


def record(conninfo):
    """A session as an agent has sent it, in the namespace `a`."""
    batches = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    uid = batches[0]["session"]
    lines = [{"type": "session", "uid": uid, "namespace": "a", "name": "recorded", "method": "Auto", "spec": {},
              "created": batches[0]["stretch"]["start"]},
             {"type": "target", "session": uid, "pod": "p-recorded", "namespace": "a", "name": "recorded-0", "workload": "recorded"},
             *({"type": "batch", "pod": "p-recorded", "batch": batch} for batch in batches)]
    subprocess.run([needed("PP_STORE_REPLAY"), conninfo], input="".join(json.dumps(line) + "\n" for line in lines), text=True,
                   check=True, timeout=300)


@pytest.fixture(scope="session")
def served():
    """The operator, whose database holds data.sql and a recorded session; `conninfo` is the database's."""
    with postgres() as conninfo, Kubernetes() as kubernetes:
        kubernetes.tokens.update({user: {"username": user, "uid": user} for user in USERS})
        kubernetes.may = may
        with Operator(needed("PP_OPERATOR"), kubernetes, conninfo) as operator:
            psql(conninfo, (HERE / "data.sql").read_text())
            record(conninfo)
            psql(conninfo, "ANALYZE")
            yield operator
            assert operator.process.poll() is None, operator.text()
        assert operator.process.returncode == 0 and not SANITIZER.search(operator.said), operator.said[-4000:]
