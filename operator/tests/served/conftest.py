"""The operator's program on a real Postgres with results in it, asked as whoever reads them asks.

PP_OPERATOR       its path
PP_STORE_REPLAY   that of store_replay, which writes recorded sessions
PP_FUZZER         a folder with the packages of packages.txt; without it nothing is fuzzed
PP_FUZZ_EXAMPLES  how many requests of each kind and path; 15 where it is not set
"""
import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from serving import ROOT, backends, needed, serving  # noqa: E402
from harness.alone import psql  # noqa: E402

RECORDED = ROOT / "cli/tests/recordings/regression/batches.jsonl"
USERS = {"all": {"a", "b", "large", ""}, "of-a": {"a"}, "of-b": {"b"}, "of-none": set()}


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
    with backends(USERS) as (conninfo, kubernetes):
        kubernetes.may = may
        # A query of a moment takes seconds where everything else on the machine comes first.
        with serving(conninfo, kubernetes, api__queryTimeout="15s") as operator:
            psql(conninfo, (HERE / "data.sql").read_text())
            record(conninfo)
            psql(conninfo, "ANALYZE")
            yield operator
