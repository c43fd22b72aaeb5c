"""Lines for the person who waits: what happens, how long it took, and commands with their output kept in a log."""
import os
import subprocess
import sys
import time

CACHE = os.environ.get("PP_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "precisionprobe")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOGS = os.path.join(CACHE, "logs")

timings = {}


class CommandError(Exception):
    """A command that failed, with the end of what it said."""


def say(text=""):
    print(text, file=sys.stderr, flush=True)


def run(*command, input=None, env=None, timeout=600, check=True, log=None):
    """Runs a command and returns its standard output; raises CommandError with the end of its output where it fails."""
    environment = dict(os.environ, **(env or {}))
    result = subprocess.run(command, input=input, env=environment, timeout=timeout, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if log:
        with open(os.path.join(LOGS, log), "a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n{result.stdout}{result.stderr}\n")
    if check and result.returncode != 0:
        tail = (result.stderr.strip() or result.stdout.strip())[-2000:]
        raise CommandError(f"{' '.join(command[:6])} failed with {result.returncode}:\n{tail}")
    return result.stdout


class step:
    """`with step("text"):` prints the text with the seconds that it took, and keeps them for the report."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        os.makedirs(LOGS, exist_ok=True)
        self.began = time.monotonic()
        if sys.stderr.isatty():
            print(f"{self.text} ...", end="\r", file=sys.stderr, flush=True)
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
