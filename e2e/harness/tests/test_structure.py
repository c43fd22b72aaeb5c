"""What structure.py would say of files that do not keep to it."""
import pytest

from harness import structure

KNOWN = {"common": {"folders": [], "libraries": []},
         "low": {"folders": ["common"], "libraries": ["uthash"]},
         "high": {"folders": ["common", "low/one.h"], "libraries": []}}


@pytest.fixture
def files(monkeypatch):
    texts = {}

    def read(name):
        if name not in texts:
            raise FileNotFoundError(name)
        return texts[name]
    monkeypatch.setattr(structure, "read", read)
    return texts


def wrong(files):
    return [line.split(":")[0] + ":" + line.split(" (")[0].rsplit(" ", 1)[1] for line in
            structure.wrong_includes(list(files), KNOWN)]


def test_the_project_keeps_to_it():
    assert structure.problems() == []


def test_includes(files):
    files["low/a.c"] = '#include "low/a.h"\n#include "common/b.h"\n#include <uthash.h>\n#include <sys/stat.h>\n'
    files["low/b.c"] = '#include "high/a.h"\n#include <curl/curl.h>\n'
    files["low/tests/a_test.c"] = '#include "common/tests/c.h"\n#include "low/a.h"\n#include <cmocka.h>\n'
    files["low/tests/b_test.c"] = '#include "high/a.h"\n'
    files["high/a.c"] = '#include "low/one.h"\n#include "low/two.h"\n'
    files["elsewhere/a.c"] = '#include "low/a.h"\n'
    assert wrong(files) == ["low/b.c:high/a.h", "low/b.c:libcurl", "low/tests/b_test.c:high/a.h", "high/a.c:low/two.h"]
    assert structure.folders_without_a_rule(list(files), KNOWN) == \
        ["cmake/includes.json: there is no rule for elsewhere"]


def test_circles(files):
    files["a.c"] = "int a(void)\n{\n    return b();\n}\n"
    files["b.c"] = "int b(void)\n{\n    return c(\"a(1)\"); /* a() */\n}\n\nstatic int helper(void)\n{\n    return 1;\n}\n"
    files["c.c"] = "int c(const char *text)\n{\n    return helper(text);\n}\n"
    assert structure.circles(structure.calls(list(files))) == []
    files["c.c"] += "\nint d(void)\n{\n    return a();\n}\n"
    assert [line.split(":")[0] for line in structure.circles(structure.calls(list(files)))] == ["a.c", "b.c", "c.c"]


def test_calls_of_folders(files):
    files["low/one.c"] = "int one(void)\n{\n    return 1;\n}\n"
    files["low/in/two.c"] = "int two(void)\n{\n    return one();\n}\n"
    files["high/a.c"] = "int a(void)\n{\n    return one();\n}\n"
    files["common/b.c"] = "int b(void)\n{\n    return 1;\n}\n"
    known = {**KNOWN, "low/in": {"folders": ["low"], "libraries": []}}

    def wrong():
        return structure.wrong_calls(structure.calls(list(files)), known)
    assert wrong() == []
    files["high/c.c"] = "int c(void)\n{\n    return two();\n}\n"  # by a declaration in a header that it may include
    assert wrong() == ["high: may not call two of low/in (cmake/includes.json)"]
    assert structure.circles(structure.folder_calls(structure.calls(list(files)))) == []
    files["low/d.c"] = "int d(void)\n{\n    return two();\n}\n"
    assert [line.split(":")[0] for line in structure.circles(structure.folder_calls(structure.calls(list(files))))] == ["low", "low/in"]


def test_the_nearest_of_that_name_is_called(files):
    for name in ("other/x.c", "low/near/x.c"):
        files[name] = "int stop(void)\n{\n    return 1;\n}\n"
    files["low/far/y.c"] = "int y(void)\n{\n    return stop();\n}\n"
    assert list(structure.calls(list(files))["low/far/y.c"]) == ["low/near/x.c"]


def test_the_table():
    row = "| low/ | what | common; uthash |\n"
    text = "| common/ | what | - |\n" + row + "| high/ | what | common, low/one.h |\n"
    assert structure.wrong_rows(text, KNOWN) == []
    assert structure.wrong_rows(text.replace("uthash", "jansson"), KNOWN) == \
        ["docs/architecture.md: the last column of low/ should be: common; uthash"]
    assert len(structure.wrong_rows(text.replace(row, ""), KNOWN)) == 1


def test_a_name_that_two_folders_have(files):
    files["low/a.c"] = "int start(void)\n{\n    return 1;\n}\n"
    files["other/a.c"] = files["low/a.c"]
    files["other/b.c"] = "int b(void)\n{\n    return start();\n}\n\nint main(void)\n{\n    return 0;\n}\n"
    files["low/b.c"] = "int c(void) /* as main */\n{\n    return main;\n}\n"
    assert {name: list(called) for name, called in structure.calls(list(files)).items() if called} == {"other/b.c": ["other/a.c"]}


def test_circles_of_libraries(files):
    files["low/CMakeLists.txt"] = files["high/CMakeLists.txt"] = "pp_library(x a.c)\n"
    files["low/a.c"] = "int a(void)\n{\n    return 1;\n}\n"
    files["low/in/b.c"] = "int b(void)\n{\n    return c();\n}\n"
    files["high/c.c"] = "int c(void)\n{\n    return 1;\n}\n"
    files["high/d.c"] = "int d(void)\n{\n    return c();\n}\n"

    def circles():
        called = structure.calls(list(files))
        assert structure.circles(called) == []
        return [line.split(":")[0] for line in structure.circles(structure.library_calls(called))]
    assert circles() == []
    files["high/d.c"] = "int d(void)\n{\n    return a();\n}\n"
    assert circles() == ["high", "low"]


def test_readmes(files):
    files["low/README.md"] = "| `one.[ch]`, `many_*` | what |\n| `in/two.py` | what |\n"
    files["README.md"] = "| `low/` | what |\n"
    known = {*files, "low/one.c", "low/many_parts.c", "low/in/two.py", "low/tests/one_test.c", "setup.py"}
    assert structure.without_a_word(sorted(known), known) == []
    known |= {"low/on.c", "low/in/three.py", "high/one.c"}
    assert structure.without_a_word(sorted(known), known) == [
        "README.md: says nothing of high/one.c", "low/README.md: says nothing of in/three.py", "low/README.md: says nothing of on.c"]
