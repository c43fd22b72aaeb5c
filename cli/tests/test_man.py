"""The man page: it is well formed, and has exactly the options that --help shows.

PP_CLI  the program precisionprobe
"""
import os
import pathlib
import re
import subprocess

import pytest

PAGE = pathlib.Path(__file__).parents[1] / "precisionprobe.1"
PLUGIN = PAGE.with_name("kubectl-precisionprobe.1")
OPTION = re.compile(r"(?:-(\w), )?--([a-z][a-z-]*)(?:=([A-Z]+))?")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "200"})


@pytest.mark.parametrize("page", [PAGE, PLUGIN])
def test_groff_finds_no_fault(page):
    rendered = run("groff", "-man", "-Tutf8", "-ww", "-z", str(page))
    assert (rendered.returncode, rendered.stderr) == (0, "")


def plain(line):
    """A line of the page without its macros and fonts: '.BR \\-d ", " \\-\\-duration =\\fITIME\\fR'."""
    return re.sub(r"\\f[A-Z]|^\.[A-Z]+ ", "", line).replace("\\-", "-").replace(' ", " ', ", ").replace(" =", "=")


def options_of_page(verb):
    section = re.search(rf"^\.SS {verb}\n(.*?)^\.S[HS] ", PAGE.read_text(), re.M | re.S).group(1)
    return {OPTION.match(plain(line)).groups() for line in re.findall(r"^\.TP\n(.*)$", section, re.M)}


@pytest.mark.parametrize("verb", ["run", "report", "figures", "top", "import", "trace"])
def test_options_are_those_of_help(verb):
    shown = run(os.environ["PP_CLI"], verb, "--help").stdout
    options = {OPTION.match(line.strip()).groups() for line in shown.splitlines() if OPTION.match(line.strip())}
    ours = {option for option in options if option[1] not in ("help", "usage")}
    assert ours and options_of_page(verb) == {(s or None, name, argument or None) for s, name, argument in ours}


def options_of_help(*verb):
    shown = run(os.environ["PP_CLI"], *verb, "--help").stdout
    return {OPTION.match(line.strip()).groups()[:2] for line in shown.splitlines() if OPTION.match(line.strip())}


@pytest.mark.parametrize("verb", ["start", "status", "pattern", "open", "doctor", "report", "top"])
def test_options_of_the_plugin(verb):
    """Each verb's own stand below its name, those of all at the beginning; report and top have those of the program as well."""
    page = PLUGIN.read_text()
    common, *rest = re.split(r"^\.S[SH] (.*)$", page[page.index(".SH OPTIONS"):page.index(".SH \"EXIT")], flags=re.M)[2:]
    named = {name: {OPTION.match(plain(line)).groups()[:2] for line in re.findall(r"^\.T[PQ]\n(\.BR.*)$", text, re.M)}
             for name, text in [("", common), *zip(rest[::2], rest[1::2])]}
    more = options_of_help(verb) if verb in ("report", "top") else set()
    ours = {option for option in options_of_help("kubectl", verb) if option[1] not in ("help", "usage")} - more
    assert named[""] | named.get(verb, set()) == ours


@pytest.mark.parametrize("verb, of", [("report", "FILE..."), ("figures", "FILE..."), ("trace", "FOLDER")])
def test_verbs_of_a_folder_have_help(verb, of):
    told = run(os.environ["PP_CLI"], verb, "--help")
    assert (told.returncode, told.stderr) == (0, "") and f"Usage: precisionprobe {verb} [OPTION...] {of}" in told.stdout
    without = run(os.environ["PP_CLI"], verb)
    assert without.returncode == 1 and "which folder?" in without.stderr


def test_version_is_the_projects():
    project = (PAGE.parents[1] / "CMakeLists.txt").read_text()
    version = re.search(r"^project\(precisionprobe VERSION (\S+)", project, re.M).group(1)
    told = run(os.environ["PP_CLI"], "--version")
    assert (told.returncode, told.stdout) == (0, f"precisionprobe {version}\n")


def test_help_is_a_command_too():
    asked = [run(os.environ["PP_CLI"], word) for word in ("help", "--help")]
    assert asked[0].returncode == 0 and asked[0].stdout == asked[1].stdout != "" and asked[0].stderr == ""


@pytest.mark.parametrize("verb", ["doctor", "open", "pattern", "start", "status"])
def test_commands_of_the_plugin_are_named(verb):
    told = run(os.environ["PP_CLI"], verb)
    assert (told.returncode, told.stderr) == (1, f"precisionprobe: {verb} is of a cluster: kubectl precisionprobe {verb}\n")


def test_unknown_commands():
    told = run(os.environ["PP_CLI"], "frob")
    assert told.returncode == 1 and "unknown command frob\n" in told.stderr and "run --help" in told.stderr


def test_verbs_are_those_of_help():
    shown = run(os.environ["PP_CLI"], "--help").stdout
    page = PAGE.read_text()
    synopsis = page[page.index(".SH SYNOPSIS"):page.index(".SH DESCRIPTION")]
    assert re.findall(r"precisionprobe (\w+)", shown) == re.findall(r"\.B precisionprobe (\w+)", synopsis)


@pytest.mark.parametrize("former, now", [("fine-period", "sampling-period"), ("dwell", "replay-duration"),
                                         ("max-pause", "replay-max-pause")])
def test_former_names_are_accepted_and_not_shown(former, now):
    told = run(os.environ["PP_CLI"], "run", "--method", "Isolated", f"--{former}=never", "--", "true")
    assert told.returncode == 1 and f"--{now}" in told.stderr and "unrecognized" not in told.stderr, told.stderr
    assert f"--{former}" not in run(os.environ["PP_CLI"], "run", "--help").stdout
