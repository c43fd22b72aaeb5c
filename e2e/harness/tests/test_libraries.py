"""Which trainings of libraries are tried: stated in one place, and as docs/frameworks.md says."""
import ast
import os

from harness import libraries
from harness.progress import ROOT


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def test_what_is_not_tried_has_a_reason():
    names = set(filter(None, libraries.TRAININGS.values()))
    for pair in libraries.PAIRS:
        missing = names - set(libraries.versions(pair))
        stated = {library for python, library in libraries.LEFT_OUT if python == pair.python}
        assert missing == stated, (pair, missing, stated)


def test_pairs_have_the_torch_that_they_name():
    for pair in libraries.PAIRS:
        assert libraries.versions(pair)["torch"].startswith(pair.torch + "."), pair


def test_each_training_has_a_function():
    tree = ast.parse(read("sidecar/tests/library_train.py"))
    table = next(node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TRAININGS")
    assert {key.value for key in table.keys} == set(libraries.TRAININGS)


def test_the_documents_table_is_what_is_tried():
    text = read("docs/frameworks.md")
    assert libraries.table() in text
    for (python, library), reason in libraries.LEFT_OUT.items():
        assert f"{library} with Python {python}: {reason}" in text
