"""Whether the C files keep to the structure that docs/architecture.md describes.

cmake/includes.json says which folders, or single headers, the files of a folder may include beside their own, and which
libraries; it may call the functions of those alone, too. Tests may include what the folder that they test may, it, and what
tests share. The last column of the table in docs/architecture.md is what that file says. No file calls another that, by
whatever way, calls it, and no folder or library another. And a README names the files of its folder.
"""
import collections
import itertools
import json
import os
import re

from .progress import ROOT, project_files

LIBRARIES = {"curl/": "libcurl", "jansson.h": "jansson", "libpq-fe.h": "libpq", "libwebsockets.h": "libwebsockets",
             "openssl/": "openssl", "Python.h": "Python", "uthash.h": "uthash", "utlist.h": "uthash", "uv.h": "libuv",
             "yaml.h": "libyaml", "cmocka.h": "cmocka"}
# Of tests alone.
FOR_TESTS = {"": ["common/tests"], "cli/tests": ["estimate", "estimate/problem", "estimate/regression/tests"], "estimate/tests": ["estimate/regression/tests"],
             "estimate/replay/tests": ["estimate"], "operator/http_client/tests": ["operator/http_server"],
             "operator/prometheus/tests": ["controller/samples", "operator/http_server"],
             "operator/store/tests": ["estimate"], "operator/tests": ["controller/pods", "operator/store/tests"],
             "sidecar/agent/tests": ["sidecar/hook"], "sidecar/gpu/tests": ["e2e/gpu/driver"],
             "sidecar/hook/tests": ["sidecar/gpu"]}
INCLUDE = re.compile(r'^#include (?:"([^"]+)"|<([^>]+)>)', re.M)
DEFINITION = re.compile(r"^(?!static|typedef|extern)[A-Za-z_][^;{}=]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)
NAME = re.compile(r"\b[A-Za-z_]\w*\b")


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def rules():
    return json.loads(read("cmake/includes.json"))


# --- includes -------------------------------------------------------------------

def folder_of(name, known):
    """The folder whose rule holds for a file, and whether the file is a test; None where there is no rule."""
    folder = os.path.dirname(name)
    test = folder.endswith("/tests")
    own = folder[:-len("/tests")] if test else folder
    return (own if own in known else None), test


def library_of(header):
    return next((library for start, library in LIBRARIES.items()
                 if header == start or (start.endswith("/") and header.startswith(start))), None)


def may_include(name, header, known):
    """A header of the project; those of a folder lie beside it where they are given without one."""
    own, test = folder_of(name, known)
    folder = os.path.dirname(header)
    allowed = [*known[own]["folders"], own]
    if test:
        allowed += [os.path.dirname(name), *FOR_TESTS[""], *FOR_TESTS.get(os.path.dirname(name), [])]
    return not folder or folder in allowed or header in allowed


def may_use(name, library, known):
    own, test = folder_of(name, known)
    return library is None or library in known[own]["libraries"] or test


def includes_of(name):
    for header, system in INCLUDE.findall(read(name)):
        yield header, system


def wrong_includes(names, known):
    wrong = []
    for name in names:
        if folder_of(name, known)[0] is None:
            continue
        for header, system in includes_of(name):
            if header and not may_include(name, header, known):
                wrong.append(f"{name}: may not include {header} (cmake/includes.json)")
            if system and not may_use(name, library_of(system), known):
                wrong.append(f"{name}: may not use {library_of(system)} (cmake/includes.json)")
    return wrong


def folders_without_a_rule(names, known):
    folders = {os.path.dirname(name) for name in names if not name.startswith("e2e/")
               and not os.path.dirname(name).endswith("/tests")}
    return [f"cmake/includes.json: there is no rule for {folder}" for folder in sorted(folders - set(known) - {"sidecar"})]


# --- calls ----------------------------------------------------------------------

def without_comments_and_texts(text):
    """Nor attributes, whose names are not functions'."""
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    return re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)


def nearness(name, other):
    """How much of the path of their folders is the same; most where it is all of it."""
    ours, theirs = os.path.dirname(name).split("/"), os.path.dirname(other).split("/")
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs)))
    return (ours == theirs, same)


def calls(names):
    """{file: {file: [functions of it that are called]}} of all that are no tests. Of functions of one name, as programs may
    have that are never linked together, a file calls that which is nearest to it; programs' main() is nobody's to call."""
    texts = {name: without_comments_and_texts(read(name)) for name in names if name.endswith(".c")
             and "/tests/" not in name and not name.startswith("e2e/")}
    defined = collections.defaultdict(dict)
    for name, text in texts.items():
        for function in set(DEFINITION.findall(text)) - {"main"}:
            defined[function].setdefault(os.path.dirname(name), name)
    found = {name: collections.defaultdict(list) for name in texts}
    for name, text in texts.items():
        for word in sorted(set(NAME.findall(text)) & set(defined)):
            of = max(defined[word].values(), key=lambda other: nearness(name, other))
            if of != name:
                found[name][of].append(word)
    return found


def library(name):
    """The folder, or the one that it is in, whose CMakeLists.txt makes a library of the file."""
    folder = os.path.dirname(name)
    while folder and "pp_library(" not in lists(folder):
        folder = os.path.dirname(folder)
    return folder or os.path.dirname(name)


def lists(folder):
    try:
        return read(os.path.join(folder, "CMakeLists.txt"))
    except FileNotFoundError:
        return ""


def calls_between(graph, of):
    """The same of what `of` makes of a file's name."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, called in graph.items():
        for other, functions in called.items():
            if of(name) != of(other):
                found[of(name)][of(other)] += functions
    return {name: dict(called) for name, called in found.items()}


def library_calls(graph):
    """The same of libraries, each by its folder."""
    return calls_between(graph, library)


def folder_calls(graph):
    """The same of folders."""
    return calls_between(graph, os.path.dirname)


def wrong_calls(graph, known):
    """Of folders that the rule does not name, reached by a header of another."""
    return [f"{folder}: may not call {', '.join(sorted(set(functions)))} of {other} (cmake/includes.json)"
            for folder, called in folder_calls(graph).items() if folder in known for other, functions in called.items()
            if other not in {os.path.dirname(of) if of.endswith(".h") else of for of in known[folder]["folders"]}]


def reachable(graph, start):
    seen, ahead = set(), list(graph.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += graph.get(name, ())
    return seen


def circles(graph):
    """One line for each call that closes one."""
    return [f"{name}: calls {', '.join(graph[name][other])} of {other}, which calls it in turn"
            for name in sorted(graph) for other in sorted(graph[name]) if name in reachable(graph, other)]


# --- the table ------------------------------------------------------------------

def column(rule):
    return "; ".join(filter(None, [", ".join(rule["folders"]), ", ".join(rule["libraries"])])) or "-"


def wrong_rows(text, known):
    rows = {cells[1].strip().strip("/"): cells[-2].strip() for cells in
            (line.split("|") for line in text.splitlines() if line.startswith("| ") and line.count("|") == 4)}
    wrong = [f"docs/architecture.md: the last column of {folder}/ should be: {column(rule)}"
             for folder, rule in known.items() if rows.get(folder) != column(rule)]
    return wrong


# --- READMEs --------------------------------------------------------------------

def readme_of(folder, known):
    """That of the folder, or of the first one around it that has one."""
    while folder and os.path.join(folder, "README.md") not in known:
        folder = os.path.dirname(folder)
    return os.path.join(folder, "README.md")


def named_in(text, name):
    """`name`, `name.c`, `name.[ch]` or, of several, `start*`; also within a longer piece of code, as a link's."""
    stem = os.path.splitext(os.path.basename(name))[0]
    starts = re.findall(r"`([\w.-]+)\*`", text)
    return re.search(rf"(?<![\w-]){re.escape(stem)}(?![\w-])", text) or any(stem.startswith(start) for start in starts)


def without_a_word(names, known):
    """Sources that no README has."""
    wrong = []
    for name in names:
        folder = os.path.dirname(name)
        if name.endswith((".c", ".h", ".py")) and not os.path.basename(name).startswith("__") and folder and \
                "tests" not in folder.split("/") and not folder.startswith("docs/"):
            readme = readme_of(folder, known)
            if not named_in(read(readme), name):
                wrong.append(f"{readme}: says nothing of {os.path.relpath(name, os.path.dirname(readme))}")
    return wrong


def problems():
    files = project_files()
    names = [name for name in files if name.endswith((".c", ".h"))]
    known = rules()
    called = calls(names)
    return (folders_without_a_rule(names, known) + wrong_includes(names, known) + circles(called)
            + circles(library_calls(called)) + circles(folder_calls(called)) + wrong_calls(called, known) + wrong_rows(read("docs/architecture.md"), known)
            + without_a_word(files, set(files)))
