"""The API asked by schemathesis for what its own OpenAPI says of it: nothing is a 5xx, every answer is described, with its status,
type, headers and schema, and what is not to be taken is refused. With a fixed seed."""
import copy
import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from conftest import HERE, needed

SEED = "20260101"
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
          "response_schema_conformance,negative_data_rejection,positive_data_acceptance,unsupported_method,"
          "allow_header_conformance")
# `continue` is opaque: what fits its pattern was not made by an answer. Names and UIDs are limited in bytes.
MADE_UP = '[checks.positive_data_acceptance]\nexpected-statuses = ["2xx", "304", "400", "401", "403", "404"]\n'
KNOWN = '[checks.positive_data_acceptance]\nexpected-statuses = ["200", "304", "404"]\n'


@pytest.fixture(scope="module")
def document(served):
    status, headers, text = served.get("/api/v1/openapi.yaml")
    assert status == 200 and headers["Content-Type"] == "application/yaml"
    assert text.decode() == (HERE.parents[2] / "docs/openapi/api.yaml").read_text()
    return yaml.safe_load(text)


def fuzz(served, document, folder, config, checks, *options):
    examples = os.environ.get("PP_FUZZ_EXAMPLES", "15")
    (folder / "api.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(config)
    url = f"https://127.0.0.1:{served.port}"
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", str(folder / "api.json"), "-u", url, "--tls-verify", "false",
         "-H", "Authorization: Bearer all", "--checks", checks, "--seed", SEED, "-n", examples, "--continue-on-failure",
         "--no-color", "--suppress-health-check", "all", "--no-shrink", "--request-timeout", "60", *options],
        env={**os.environ, "PYTHONPATH": f"{needed('PP_FUZZER')}:{HERE}", "SCHEMATHESIS_HOOKS": "hooks", "PYTHONWARNINGS": "ignore"},
        cwd=folder, text=True, capture_output=True, check=False, timeout=3600)
    said = re.sub(r"(.)\1{60,}", r"\1...\1", done.stdout + done.stderr)
    print(said[-3000:])
    assert done.returncode == 0, said[:20000]
    assert served.process.poll() is None, served.text()[-4000:]


def test_whatever_is_asked(served, document, tmp_path):
    """Names, parameters and methods that are made up from the document alone."""
    fuzz(served, document, tmp_path, MADE_UP, CHECKS + ",ignored_auth", "--phases", "coverage,fuzzing")


def tokens(served, path):
    """`continue` of pages of several sizes."""
    found = []
    for limit in (1, 2, 7):
        for _ in range(3):
            more = f"&continue={found[-1]}" if found else ""
            status, _, text = served.get(f"{path}?limit={limit}{more}", "all")
            assert status == 200, text
            if not json.loads(text).get("continue"):
                break
            found.append(json.loads(text)["continue"])
    return found


PLACES = [("a", "dlrm"), ("b", "hostile"), ("a", "recorded"), ("large", "dlrm"), ("large", "empty")]


def of(parameter):
    """The name of a parameter of the document's own."""
    return parameter.get("$ref", "").rpartition("/")[2] or parameter["name"]


def known(served, document):
    """The same paths with what is there: its names, and pages that go on."""
    paths = {}
    for path, item in document["paths"].items():
        for ns, session in PLACES:
            here = path.format(namespace=ns, session=session, pattern="job-one") if ns != "large" or "pattern" not in path else path
            if here in paths or "{" in here:
                continue
            paths[here] = copy.deepcopy(item)
            paths[here]["parameters"] = [p for p in item.get("parameters", []) if of(p) == "uid"]
            get = paths[here]["get"]
            get["operationId"] += re.sub(r"\W", "_", here)
            goes_on = tokens(served, here) if "continue" in map(of, get.get("parameters", [])) else []
            get["parameters"] = [p for p in get.get("parameters", []) if of(p) != "continue"]
            if goes_on:
                get["parameters"].append({"name": "continue", "in": "query", "schema": {"type": "string", "enum": goes_on}})
    return {**document, "paths": paths}


def test_what_is_there(served, document, tmp_path):
    """Whatever is described of what is there is answered: with it, with nothing new, or with 404 for a UID that is none."""
    fuzz(served, known(served, document), tmp_path, KNOWN, CHECKS, "--phases", "fuzzing", "--mode", "positive")
