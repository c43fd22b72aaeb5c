"""Lines for the person who waits: what happens, how long it took, and commands with their output kept in a log."""
import fnmatch
import os
import signal
import subprocess
import sys
import threading
import time

CACHE = os.path.abspath(os.environ.get("PP_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "precisionprobe"))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LOGS = os.path.join(CACHE, "logs")

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# What .gitignore names: in ROOT, and anywhere.
BUILDS = (".git", "build", "build-*")
LITTER = ("__pycache__", ".pytest_cache", "*.pyc")

timings = {}
_children = set()
_lock = threading.Lock()
_stopping = False


class CommandError(Exception):
    """A command that failed, with the end of what it said."""


def say(text="", end="\n"):
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        # The terminal was closed; what tidies up goes on, and Python's own last flush must not fail.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def tidy_up_on_signals():
    """Ctrl-C, SIGTERM and a closed terminal end the program through its `finally`, once. nohup stays in force."""
    def interrupted(number, _):
        for other in ENDINGS:
            signal.signal(other, lambda *_: None)
        say("\ninterrupted")
        sys.exit(128 + number)

    for number in ENDINGS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupted)


def start(*command, env=None, **more):
    """Starts a command in a process group of its own, which stop_children() can end."""
    with _lock:
        if _stopping:
            raise CommandError(f"{command[0]} is not started: everything is being stopped")
        child = subprocess.Popen(command, env=dict(os.environ, **(env or {})), start_new_session=True, **more)
        _children.add(child)
    return child


def project_files(*places):
    """The project's files, by their names from ROOT, in these files and folders, sorted. Needs no git."""
    def without(patterns, names):
        return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]

    found = []
    for place in places or without(BUILDS + LITTER, os.listdir(ROOT)):
        path = os.path.join(ROOT, place)
        found += [path] if os.path.isfile(path) else []
        for folder, folders, names in os.walk(path):
            folders[:] = without(LITTER, folders)
            found += [os.path.join(folder, name) for name in without(LITTER, names)]
    return sorted(os.path.relpath(path, ROOT) for path in found if os.path.isfile(path))


def forget(child):
    with _lock:
        _children.discard(child)


def stop(child, patience=10):
    """Ends a command with all that it has started; gives it `patience` seconds to tidy up."""
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5)):
        if child.poll() is not None:
            break
        try:
            os.killpg(child.pid, number)
            child.wait(wait)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
    forget(child)


def stop_children():
    """Ends every command that still runs; none is started any more."""
    global _stopping
    with _lock:
        _stopping = True
        left = list(_children)
    for child in left:
        stop(child, patience=60)


def allow_children():
    """After stop_children(): what tidies up may start commands again."""
    global _stopping
    _stopping = False


def run(*command, input=None, env=None, timeout=600, check=True, log=None):
    """Runs a command and returns its standard output; raises CommandError with the end of its output where it fails."""
    child = start(*command, env=env, text=True, stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = child.communicate(input, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise CommandError(f"{' '.join(command[:6])} did not end within {timeout} s") from None
    finally:
        stop(child)
    if log:
        os.makedirs(LOGS, exist_ok=True)
        with open(os.path.join(LOGS, log), "a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n{output}{errors}\n")
    if check and child.returncode != 0:
        tail = (errors.strip() or output.strip())[-2000:]
        raise CommandError(f"{' '.join(command[:6])} failed with {child.returncode}:\n{tail}")
    return output


def run_shown(*command):
    """Runs a command that shows its own progress (on standard error); returns its standard output."""
    child = start(*command, text=True, stdout=subprocess.PIPE)
    try:
        output, _ = child.communicate()
    finally:
        stop(child)
    if child.returncode != 0:
        raise CommandError(f"{' '.join(command[:6])} failed with {child.returncode}")
    return output.strip()


class step:
    """`with step("text"):` prints the text as it begins, then with the seconds that it took, kept for the report."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        os.makedirs(LOGS, exist_ok=True)
        self.began = time.monotonic()
        say(f"{self.text} ...", end="\r" if sys.stderr.isatty() else "\n")
        return self

    def __exit__(self, kind, value, trace):
        seconds = time.monotonic() - self.began
        timings[self.text] = round(seconds, 1)
        say(f"{self.text:<58} {seconds:4.0f} s" if kind is None else f"{self.text:<58} failed after {seconds:.0f} s")


def wait_until(what, condition, timeout, every=0.5):
    """Waits until condition() returns something true and returns it; raises TimeoutError that names `what`."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(every)
