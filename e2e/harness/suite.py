"""All tests, in one command: format and lint, unit tests under sanitizers, scenarios on a real cluster."""
import argparse
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
import traceback

from . import aarch64, checks
from .background import Background
from .cluster import Cluster
from .deploy import Deployment
from .progress import (CACHE, LOGS, ROOT, CommandError, allow_children, say, start, step, stop, stop_children,
                       tidy_up_on_signals)

RESULT = re.compile(r"^(\S+::\S.*?)\s+(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
LAST = re.compile(r"^=+ .*\b(passed|failed|error|errors|skipped|deselected|no tests ran)\b.* =+$")


def parser():
    """e2e/test says what they mean, before there is a Python."""
    known = argparse.ArgumentParser(prog="e2e/test", add_help=False)
    known.add_argument("--only", choices=["unit", "scenarios", "libraries", "aarch64"])
    known.add_argument("--quick", action="store_true")
    known.add_argument("--all", action="store_true")
    known.add_argument("-k", metavar="EXPR")
    known.add_argument("--keep", action="store_true")
    known.add_argument("--preset", default="asan", choices=["asan", "release", "dev"])
    return known


class Suite:
    def __init__(self, args):
        self.args = args
        self.cluster = Cluster()
        self.summary = []
        self.failed = []
        self.lock = None
        self.background = None

    def check(self, text, function, *more):
        """One line for the reader; a failure is shown and remembered, and the rest goes on."""
        try:
            with step(text):
                self.summary += function(*more)
            return True
        except Exception as error:  # whatever it is, also in a thread: a check that has not passed has failed
            known = isinstance(error, (checks.Failure, CommandError))
            said = str(error) if known else traceback.format_exc()
            say("    " + said.replace("\n", "\n    "))
            self.failed.append(text)
            return False

    def units(self, some):
        for text, function in some:
            if not (self.args.quick and text in checks.SLOW):
                self.check(text, function)

    # --- what runs beside the scenarios ---

    def beside_units(self):
        self.units(checks.HOOK)
        rows = [threading.Thread(target=self.units, args=(row,), daemon=True) for row in checks.ROWS]
        for row in rows:
            row.start()
        for row in rows:
            row.join()
        if self.args.all:
            self.units(checks.EXTENDED + aarch64.CHECKS)

    def begin_beside(self):
        """They yield to scenarios that measure; where they cannot, those wait for a lock, which is held until they are over."""
        os.makedirs(CACHE, exist_ok=True)
        self.lock = open(os.path.join(CACHE, "beside-scenarios.lock"), "w", encoding="utf-8")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.background = Background()
        self.beside = threading.Thread(target=self.run_beside, daemon=True)
        self.beside.start()

    def run_beside(self):
        # On Linux the priority is the thread's, and that of the processes which it starts.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        self.background.enter()
        try:
            self.beside_units()
        finally:
            self.background.leave()
            self.lock.close()

    # --- the cluster, beside the unit tests ---

    def prepare(self):
        try:
            self.cluster.up()
            deployment = Deployment(self.cluster)
            deployment.check_free()
            deployment.build_images()
            self.ready = True
        except (CommandError, subprocess.CalledProcessError, OSError) as error:
            self.trouble = str(error)

    def begin_preparing(self):
        say(f"cluster: {self.cluster.describe()}")
        self.ready = False
        self.trouble = ""
        self.preparing = threading.Thread(target=self.prepare, daemon=True)
        self.preparing.start()

    def end_preparing(self):
        self.preparing.join()
        if not self.ready:
            say(f"the cluster did not come up: {self.trouble}")
            self.failed.append("the cluster")
        return self.ready

    # --- the scenarios ---

    def scenarios(self):
        """pytest on the cluster; its output goes to a log, a line per test to the reader."""
        command = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
                   "--color=no", "-v", "-ra", "--tb=short",
                   "--durations=0", "--durations-min=5", os.path.join(ROOT, "e2e/scenarios")]
        command += ["-k", self.args.k] if self.args.k else []
        left_out = ["long"] * self.args.quick + ["extended"] * (not self.args.all)
        command += ["-m", " and ".join(f"not {marker}" for marker in left_out)] if left_out else []
        # What is on a cluster that is taken down afterwards need not be taken off it.
        keep = self.args.keep or self.cluster.started
        environment = {"PP_TEST_PRESET": self.args.preset, "PP_TEST_KEEP": "1" if keep else "", "COLUMNS": "100",
                       "PP_TEST_BESIDE": self.lock.name if self.lock else "",
                       "PP_TEST_BACKGROUND": self.background.switch if self.background else ""}
        path = os.path.join(LOGS, "scenarios.log")
        os.makedirs(LOGS, exist_ok=True)
        child = start(*command, env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                      stdin=subprocess.DEVNULL)
        try:
            last, output = self.relay(child.stdout, path)
            status = child.wait()
        finally:
            stop(child, patience=120)
        self.summary.append(last or f"pytest ended with {status} and said nothing")
        if status != 0:
            self.failed.append("scenarios")
            begin = max(output.rfind("= FAILURES ="), output.rfind("= ERRORS ="), 0)
            say(f"\nfrom {path}:\n" + checks.last_lines(output[begin:], 120))

    @staticmethod
    def relay(lines, path):
        """Copies to the log; shows results with the time since the result before. Returns (last line, all)."""
        said, last, before = [], "", time.monotonic()
        with open(path, "w", encoding="utf-8") as log:
            for line in lines:
                log.write(line)
                log.flush()
                said.append(line)
                match = RESULT.match(line)
                if match:
                    now = time.monotonic()
                    name = match.group(1).removeprefix("e2e/scenarios/")
                    say(f"  {name:<62.62} {match.group(2).lower():<7} {now - before:4.0f} s")
                    before = now
                if LAST.match(line.rstrip()):
                    last = line.rstrip()
        return last, "".join(said)

    def on_cluster(self):
        if not self.end_preparing():
            return
        self.check("the Helm chart", checks.chart, self.cluster)
        say("scenarios on the cluster:")
        self.scenarios()

    def run(self):
        only = self.args.only
        if only == "libraries":
            return self.units(checks.LIBRARIES + checks.ALL_LIBRARIES * self.args.all)
        if only == "aarch64":
            return self.units(aarch64.CHECKS)
        if only != "unit":
            self.begin_preparing()
        if only != "scenarios":
            self.units(checks.BEFORE + checks.UNITS)
        if only == "unit":
            self.beside_units()
        elif only == "scenarios":
            self.on_cluster()
        else:
            self.begin_beside()
            self.on_cluster()
            self.beside.join()

    def finish(self):
        """Takes down what was started, however this came to its end."""
        stop_children()
        allow_children()
        if self.background:
            self.background.end()
        if self.cluster.started and not self.args.keep:
            with step("cluster taken down"):
                self.cluster.down()


def main():
    args = parser().parse_args()
    tidy_up_on_signals()
    began = time.monotonic()
    suite = Suite(args)
    try:
        suite.run()
    finally:
        suite.finish()
    say("")
    for line in suite.summary:
        print(line, flush=True)
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    if suite.failed:
        say(f"FAILED after {minutes} min {seconds} s: {', '.join(suite.failed)} (logs in {LOGS})")
        return 1
    say(f"all passed after {minutes} min {seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
