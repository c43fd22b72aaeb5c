"""What is tested without a cluster: format, lint, documents, unit tests under sanitizers, the hook, the virtual GPU."""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time

from . import libraries, structure
from .deploy import build_folder, compile_preset, configure, source_link
from .progress import CACHE, LOGS, ROOT, CommandError, project_files, run, run_shown, start, step, stop

# Loaded into other people's Python by a compiler and flags of its own.
APART = ("sidecar/hook/", "e2e/")
# In tests: numbers of their own read by sscanf, bytes without an end, long texts in several pieces.
TESTS_MAY = "-cert-err34-c,-bugprone-not-null-terminated-result,-bugprone-suspicious-missing-comma"
DEBIAN = "/usr/bin/python3"
TORCH_IMAGE = os.path.join(ROOT, "e2e/images/torch-python")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
# A file of the project, named by its path from the root.
PLACE = re.compile(r"(?<![\w./-])(?:\.ci|charts|cli|cmake|common|controller|crds|docs|e2e|estimate|operator|page|sidecar)/(?:[\w-]+/)*"
                   r"[\w-]+\.(?:c|h|py|js|go|sql|json|yaml|cmake|md)(?![\w.*\[])")


class Failure(Exception):
    """A check that failed: what to show of it."""


def named(*endings):
    """The project's files whose names end so."""
    return [name for name in project_files() if name.endswith(endings)]


def execute(log, *command, timeout=1800, cwd=ROOT, env=None):
    """Runs a command with all its output in LOGS/log; returns (status, output)."""
    path = os.path.join(LOGS, log)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        child = start(*command, cwd=cwd, env=env, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"not done within {timeout} s; see {path}") from None
        finally:
            stop(child)
    with open(path, encoding="utf-8", errors="replace") as file:
        return status, file.read()


def last_lines(text, count=30):
    return "\n".join(text.rstrip().splitlines()[-count:])


def expect(log, *command, keep=30, **more):
    """As execute(); a status other than 0 is a Failure that shows the end of the output."""
    status, output = execute(log, *command, **more)
    if status != 0:
        raise Failure(f"{' '.join(command[:4])} ... gave {status}; the end of {os.path.join(LOGS, log)}:\n"
                      + last_lines(output, keep))
    return output


def found(pattern, output):
    """The lines that match: what a test runner said in the end."""
    return [line for line in output.splitlines() if re.search(pattern, line)]


# --- each returns the lines that belong into the summary ---------------------

def format_check():
    expect("format.log", "clang-format", "--dry-run", "--Werror", *named(".c", ".h"))
    return []


def is_shell_script(name):
    with open(os.path.join(ROOT, name), "rb") as file:
        return re.match(rb"#!\s*/(usr/)?bin/(env )?(ba)?sh\b", file.readline(80)) is not None


def shell_check():
    scripts = [name for name in project_files(".ci", "e2e", "charts", "sidecar", "operator")
               if is_shell_script(name)]
    expect("shellcheck.log", "shellcheck", "--severity=warning", "--external-sources", "--source-path=SCRIPTDIR",
           "--exclude=SC1090,SC2034,SC2154", *scripts)
    return []


def documents():
    """Links between the project's own files lead somewhere, files that are named exist, and no path of somebody's machine is in a
    document."""
    wrong = []
    for name in named(".md"):
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read()
        for target in LINK.findall(text):
            if "://" in target or target.startswith("mailto:"):
                continue
            if not os.path.exists(os.path.normpath(os.path.join(ROOT, os.path.dirname(name), target))):
                wrong.append(f"{name}: no such file: {target}")
        wrong += [f"{name}: no such file: {place}" for place in sorted(set(PLACE.findall(text)))
                  if not os.path.exists(os.path.join(ROOT, place)) and not os.path.exists(os.path.join(ROOT, os.path.dirname(name), place))]
        if re.search(r"/(root|home|work)/\w+/", text):
            wrong.append(f"{name}: a path of somebody's machine")
    if wrong:
        raise Failure("\n".join(wrong))
    return []


def structure_check():
    """Includes, calls and READMEs are as docs/architecture.md says."""
    wrong = structure.problems()
    if wrong:
        raise Failure("\n".join(wrong))
    return []


def tests_of(preset, *those):
    """Compiles a preset and runs its tests, or those that ctest's options choose."""
    def check():
        try:
            build = compile_preset(preset)
        except CommandError as error:
            raise Failure(f"{error}\nall of it is in {os.path.join(LOGS, 'build.log')}") from None
        # Many wait, so more run at once than there are processors.
        output = expect(f"ctest-{preset}.log", "ctest", "--test-dir", build, "--output-on-failure", "-j6", *those, keep=60)
        return [f"{preset}: {line}" for line in found(r"tests passed", output)]
    return check


class Tidied:
    """Marks of files in which clang-tidy found nothing, by all that it sees of them: these need no second look."""

    def __init__(self, build):
        self.build, self.clone, self.folder, self.texts = build, source_link(), os.path.join(CACHE, "tidied"), {}
        os.makedirs(self.folder, exist_ok=True)
        for mark in os.scandir(self.folder):
            if mark.stat().st_mtime < time.time() - 30 * 24 * 3600:
                os.remove(mark)
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            self.commands = {os.path.relpath(c["file"], self.clone): c["command"] for c in json.load(file)}
        self.tool = run("clang-tidy", "--version") + "".join(
            open(os.path.join(ROOT, name), encoding="utf-8").read() for name in named(".clang-tidy"))

    def read(self, path):
        if path not in self.texts:
            with open(path, encoding="utf-8", errors="replace") as file:
                self.texts[path] = hashlib.sha256(file.read().encode()).hexdigest()
        return self.texts[path]

    def mark(self, name, *more):
        """The path of a file's mark, by the flags and the texts that the compiler reads, wherever the clone is."""
        command = shlex.split(self.commands[name])
        flags = command[1:command.index("-o")]
        rule = run(command[0], *flags, "-M", os.path.join(self.clone, name), timeout=120).replace("\\\n", " ")
        texts = [self.read(path) for path in rule.split(":", 1)[1].split()]
        said = "\0".join([self.tool, name, *more, *flags, *texts]).replace(self.build, ".").replace(self.clone, ".")
        return os.path.join(self.folder, hashlib.sha256(said.encode()).hexdigest())

    def marks(self, names, more):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return dict(zip(names, pool.map(lambda name: self.mark(name, *more), names)))


def tidy_some(tidied, kind, names, more):
    """Those without a mark; they get it where nothing is found in any of them. Returns (status, output)."""
    marks = {name: mark for name, mark in tidied.marks(names, more).items() if not os.path.exists(mark)}
    if not marks:
        return 0, ""
    listing = os.path.join(tidied.build, kind)
    with open(listing, "w", encoding="utf-8") as file:
        file.writelines(os.path.join(tidied.clone, name) + "\n" for name in marks)
    status, output = execute(f"tidy-{kind}.log", "xargs", "-a", listing, "-P2", "-n4", "clang-tidy", "-p",
                             tidied.build, "--quiet", *more)
    for mark in marks.values() if status == 0 else ():
        with open(mark, "w", encoding="utf-8"):
            pass
    return status, output


def tidy():
    """clang-tidy over every source but the hook's, from a database of clang's own flags."""
    build = configure("tidy", "-G", "Ninja", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                      "-DCMAKE_BUILD_TYPE=Debug")
    tidied = Tidied(build)
    sources = [name for name in named(".c") if not name.startswith(APART)]
    tests = [name for name in sources if "/tests/" in name]
    found_in = [tidy_some(tidied, "tests", tests, ["--checks=" + TESTS_MAY]),
                tidy_some(tidied, "sources", [name for name in sources if name not in tests], [])]
    if any(status for status, _ in found_in):
        output = "".join(output for _, output in found_in)
        said = sorted(set(found(r"(error|warning): ", output)))
        raise Failure(f"{len(said)} findings; the first of {os.path.join(LOGS, 'tidy-*.log')}:\n"
                      + "\n".join(said[:20] or [last_lines(output)]))
    return []


def harness():
    """What demo and tests do to a cluster, without one."""
    output = expect("harness.log", "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "--color=no",
                    os.path.join(ROOT, "e2e/harness/tests"))
    return [f"harness: {line}" for line in found(r"^=+ .* in [0-9.]+s", output)]


def sanitized():
    """What hook and agent are tested with."""
    compile_preset("asan")
    return []


def release():
    """As users get them: optimised, where compilers warn of more."""
    compile_preset("release")
    return []


def at_once(check, runs):
    """The lines of check() of each, some at once."""
    pool = concurrent.futures.ThreadPoolExecutor(4)
    found_in = [pool.submit(check, run) for run in runs]
    try:
        concurrent.futures.wait(found_in)
    finally:  # interrupted: whoever tidies up ends those that run
        pool.shutdown(wait=False, cancel_futures=True)
    return [line for one in found_in for line in one.result()]


def virtual_gpu():
    go = run(os.path.join(ROOT, "e2e/setup"), "--go").strip()
    output = expect("vgpu-test.log", go, "test", "./...", cwd=os.path.join(ROOT, "e2e/gpu"),
                    env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"})
    return [f"virtual GPU: {line}" for line in found(r"^ok\s", output)]


def example_in_go():
    """docs/examples/boundbymemory, built as its page says; the path of the program."""
    go, program = run(os.path.join(ROOT, "e2e/setup"), "--go").strip(), os.path.join(CACHE, "boundbymemory")
    at = os.path.join(ROOT, "docs/examples/boundbymemory")
    for name, command in (("vet", ["vet", "."]), ("build", ["build", "-o", program, "."])):
        expect(f"example-{name}.log", go, *command, cwd=at, timeout=1800, env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"})
    return program


def trainings():
    """What the trainings for the virtual GPU promise, with the torch that they have in the cluster."""
    output = expect("trainings.log", TORCH_IMAGE, os.path.join(ROOT, "e2e/training/check.py"))
    return [f"trainings: {line}" for line in found(r"^Ran \d+ tests", output)]


# Where the torch is of no matter, where only newer ones have what the training needs, and what an older one is tried
# with in e2e/test --all only: the libraries' trainings there run on older ones, too.
ANY_TORCH = ("test_agent.py", "test_events.py", "test_kills.py", "test_provenance.py")
NEW_TORCH = ("test_compiled.py", "test_kernels.py", "test_killer.py")
SELDOM_OLDER = ("test_budget.py", "test_faults.py", "test_habits.py", "test_memory.py", "test_models.py", "test_patterns.py",
                "test_ranges.py", "test_replay.py", "test_waits.py")


# Of the command line's tests those that train; the others are ctest's.
TRAINING_CLI = [f"cli/tests/test_{name}.py" for name in ("run", "sampling", "ranks", "portable")]


def with_torch(tests, pythons, port, timeout=1800, **more):
    """pytest of a file or folder, with trainings in these pythons; its last line."""
    build = build_folder("asan")
    log = f"{os.path.splitext(tests)[0].replace('/', '-')}-{os.path.basename(pythons[-1])}.log"
    output = expect(log, "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "--color=no",
                    "--durations=10", os.path.join(ROOT, tests), timeout=timeout,
                    env={"PP_AGENT": f"{build}/sidecar/agent/precisionprobe-agent",
                         "PP_HOOK": f"{build}/sidecar/hook/python", "PP_CLI": f"{build}/cli/precisionprobe",
                         "PP_SOLVE_AGAIN": f"{build}/cli/tests/solve_again", "PP_NVML": f"{build}/sidecar/gpu/tests/full",
                         "PP_TORCH_PYTHON": ":".join(pythons), "MASTER_PORT": str(port), **more})
    return [f"{tests}: {line}" for line in found(r"^=+ .* in [0-9.]+s", output)]


def side_by_side(runs, port):
    """with_torch() of each; often they wait for each other, so more run at once than there are processors."""
    return at_once(lambda run: with_torch(*run), [(*run, port + i) for i, run in enumerate(runs)])


def hook_tests(without):
    """The files of the hook's and the agent's tests, but those named and those of libraries."""
    names = sorted(os.listdir(os.path.join(ROOT, "sidecar/tests")))
    return [f"sidecar/tests/{name}" for name in names
            if name.startswith("test_") and name.endswith(".py") and name not in (*without, "test_libraries.py")]


LONGEST = ("test_kernels.py", "test_patterns.py", "test_compiled.py", "test_run.py", "test_hook.py", "test_agent.py", "test_habits.py",
           "test_sampling.py")


def longest_first(runs):
    """So that no processor has to wait for one of them at the end."""
    return sorted(runs, key=lambda run: LONGEST.index(os.path.basename(run[0])) if os.path.basename(run[0]) in LONGEST else len(LONGEST))


def hook():
    """
    Hook, agent and `precisionprobe run` with the PyTorch of the torch image; what needs no certain PyTorch, and what an older one may do
    otherwise, with that of the machine's Debian.
    """
    run_shown(TORCH_IMAGE, "-c", "")  # unpacks the image's files where they are missing
    newer = [(name, [TORCH_IMAGE]) for name in [*TRAINING_CLI, *hook_tests(ANY_TORCH)]]
    older = [(name, [DEBIAN]) for name in hook_tests(NEW_TORCH + SELDOM_OLDER)]
    return side_by_side(longest_first([*newer, *older]), 29555)


def older_hook():
    """The rest of hook()'s with the older one."""
    return side_by_side([(f"sidecar/tests/{name}", [DEBIAN]) for name in SELDOM_OLDER], 29655)


def made_once(name, key, make):
    """A folder in the cache that make(path) fills, by what it is made of; path is its name while it is not whole."""
    folder = os.path.join(CACHE, f"{name}-" + hashlib.sha256(key.encode()).hexdigest()[:12])
    if not os.path.isdir(folder):
        shutil.rmtree(folder + ".new", ignore_errors=True)
        make(folder + ".new")
        os.rename(folder + ".new", folder)
    return folder


def from_registries(name, pins, *options, also=()):
    """A folder with the Python packages of a file of pins, and what the command `also` puts into a folder; made once."""
    def make(folder):
        expect(f"{name}.log", "/usr/bin/python3", "-m", "pip", "install", "--quiet", "--target", folder, "--no-deps",
               "--only-binary=:all:", *options, "-r", os.path.join(ROOT, pins))
        if also:
            expect(f"{name}-more.log", *also, folder)
    with open(os.path.join(ROOT, pins), encoding="utf-8") as file:
        return made_once(name, file.read() + " ".join(also), make)


def python_with(name, interpreter, pins):
    """A Python that has the packages of a file of pins, torch among them, in a virtual environment; made once.

    DeepSpeed comes as source alone, and its building asks for what is there by then.
    """
    with open(os.path.join(ROOT, pins), encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("#")]
    built = [line for line in lines if line.startswith("deepspeed==")]

    def make(folder):
        log, pip = f"{name}.log", [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps"]
        expect(log, interpreter, "-m", "venv", folder)
        expect(log, *pip, *(line for line in lines if line not in built))
        if built:
            expect(log, *pip, "--no-build-isolation", *built, env={"DS_BUILD_OPS": "0"})
    return os.path.join(made_once(name, "\n".join(lines), make), "bin", os.path.basename(interpreter))


LIBRARY_TESTS = "sidecar/tests/test_libraries.py"


def image_libraries():
    """Trainings of libraries that need no more of torch than the torch image's."""
    run_shown(TORCH_IMAGE, "-c", "")
    folder = from_registries("libraries", f"sidecar/tests/{libraries.IMAGE.pins}", "--python-version", libraries.IMAGE.python,
                             "--implementation", "cp")
    return with_torch(LIBRARY_TESTS, [TORCH_IMAGE], 29755, PP_LIBRARIES=folder,
                      PP_LIBRARY_TRAININGS=" ".join(libraries.trainings(libraries.IMAGE)))


def all_libraries():
    """Trainings of all libraries with each pair of Python and torch, one after the other: they take both processors."""
    run_shown(os.path.join(ROOT, "e2e/setup"), "@libraries")
    said = []
    for pair in libraries.PAIRS:
        found_python = libraries.interpreter(pair.python)
        if found_python is None:
            said.append(f"{LIBRARY_TESTS}: not tried with torch {pair.torch}: there is no Python {pair.python} here")
            continue
        python = python_with(pair.pins.removesuffix(".txt"), found_python, f"sidecar/tests/{pair.pins}")
        said += with_torch(LIBRARY_TESTS, [python], 29775, PP_LIBRARY_TRAININGS=" ".join(libraries.trainings(pair)))
    return said


def served(examples="15"):
    """The operator's API on a real Postgres, asked by its own OpenAPI and by who may not read; `examples` requests of each kind."""
    build = compile_preset("asan")
    folder = from_registries("fuzzer", "operator/tests/served/packages.txt")
    output = expect("served.log", DEBIAN, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--color=no",
                    "--durations=5", os.path.join(ROOT, "operator/tests/served"), timeout=7200,
                    env={"PP_OPERATOR": f"{build}/operator/precisionprobe-operator", "PP_FUZZ_EXAMPLES": examples,
                         "PP_STORE_REPLAY": f"{build}/operator/store/tests/store_replay", "PP_FUZZER": folder})
    output += expect("scheduler.log", DEBIAN, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--color=no",
                     os.path.join(ROOT, "operator/tests/readers/test_scheduler.py"), timeout=1200,
                     env={"PP_OPERATOR": f"{build}/operator/precisionprobe-operator", "PP_CLI": f"{build}/cli/precisionprobe",
                          "PP_SOLVE_AGAIN": f"{build}/cli/tests/solve_again", "PYTHONPATH": folder,
                          "PP_EXAMPLE_IN_GO": example_in_go()})
    return [f"operator/tests: {line}" for line in found(r"^=+ .* in [0-9.]+s", output)]


def page():
    """The page in Debian's Chromium, held against the database; served as users have it: what serves it has tests of its own."""
    build = compile_preset("release")
    run_shown(os.path.join(ROOT, "e2e/setup"), "@browser")
    output = expect("page.log", DEBIAN, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--color=no",
                    "--durations=5", os.path.join(ROOT, "operator/tests/readers/test_page.py"), timeout=1200,
                    env={"PP_OPERATOR": f"{build}/operator/precisionprobe-operator", "PP_CLI": f"{build}/cli/precisionprobe",
                         "PP_SOLVE_AGAIN": f"{build}/cli/tests/solve_again",
                         "PP_BROWSER": from_registries("browser", "operator/tests/readers/page.txt"),
                         "PP_PAGE": run(os.path.join(ROOT, "e2e/setup"), "--page").strip()})
    return [f"the page: {line}" for line in found(r"^=+ .* in [0-9.]+s", output)]


def served_long():
    return served("300")


TRACE_ENGINE = "@paulirish/trace_engine@0.0.65"  # of Chrome's developer tools


def readers():
    """What reads our traces and files, from the package registries."""
    run(os.path.join(ROOT, "e2e/setup"), "nodejs", "npm")
    folder = from_registries("readers", "cli/tests/readers.txt",
                             also=("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", TRACE_ENGINE,
                                   "--prefix"))
    return [line for name in ("trace", "file")
            for line in with_torch(f"cli/tests/test_{name}_readers.py", [DEBIAN], 29765, PP_READERS=folder)]


def killer():
    """As among the hook's and the agent's tests, where it has a few seeds."""
    run_shown(TORCH_IMAGE, "-c", "")
    return with_torch("sidecar/tests/test_killer.py", [TORCH_IMAGE], 29795, timeout=7200, PP_KILLER_SEEDS="100")


def chart(cluster):
    """The chart with the helm that the cluster has brought and the operator of the unit tests' build."""
    helm = shutil.which("helm", path=cluster.environment.get("PATH")) or "helm"
    operator = os.path.join(compile_preset("asan"), "operator/precisionprobe-operator")
    expect("chart.log", "/usr/bin/python3", os.path.join(ROOT, "charts/tests/chart.py"), "--helm", helm,
           "--operator", operator, env=cluster.environment)
    return []


BEFORE = [("format of the C files", format_check), ("shell scripts", shell_check), ("documents", documents),
          ("includes and calls", structure_check), ("the harness's tests", harness)]
UNITS = [("unit tests under ASan and UBSan", tests_of("asan", "-LE", "statistics"))]
# One after the other; what stands in a row of its own goes on beside the other rows.
HOOK = [("tests of hook and agent", hook)]  # has four at once of its own
ROWS = [[("programs (release)", release), ("long computations (release)", tests_of("release", "-L", "statistics")),
         ("unit tests under TSan", tests_of("tsan", "-L", "threads"))],
        [("clang-tidy", tidy), ("the virtual GPU's tests", virtual_gpu), ("the trainings' tests", trainings),
         ("the API, by its own description", served), ("the page, in a browser", page)]]
SLOW = ("unit tests under TSan", "clang-tidy")
# Of a build that the unit tests have made; alone they make it.
LIBRARIES = [("programs under ASan and UBSan", sanitized), ("trainings of libraries", image_libraries)]
ALL_LIBRARIES = [("trainings of all libraries", all_libraries)]
EXTENDED = [("trainings of libraries", image_libraries), *ALL_LIBRARIES, ("readers of traces and files", readers),
            ("more tests of the hook, older torch", older_hook), ("a hundred seeds of the killer", killer), ("the API, by its own description, for long", served_long)]

__all__ = ["BEFORE", "UNITS", "HOOK", "ROWS", "EXTENDED", "LIBRARIES", "ALL_LIBRARIES", "SLOW", "Failure", "chart", "step"]
