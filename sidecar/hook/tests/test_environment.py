"""An image's own PYTHONPATH, recorded and put back, in every Python of this machine: test_environment.py HOOK

HOOK is the folder with the built hook's Python. Each case runs twice: as the image alone would have it, and as the pod
has it. Both see the same modules in the same order, and so do their children.
"""
import fcntl
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HOOK = os.path.realpath(sys.argv.pop())
TELL = """
import json, os, subprocess, sys
told = [sys.path, os.environ.get("PYTHONPATH"), os.environ.get("PRECISIONPROBE_ENVIRONMENT"),
        sorted(name for name in sys.modules if name.startswith("own_"))]
if len(sys.argv) > 1:
    told.append(json.loads(subprocess.check_output([sys.executable, "-c", sys.argv[1]]).decode()))
print(json.dumps(told))
"""


def is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def every_python():
    found = glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python[23].[0-9]*"))
    for folder in os.environ["PATH"].split(":"):
        found += glob.glob(os.path.join(folder, "python[23].[0-9]*"))
    return sorted({os.path.realpath(path) for path in found if os.path.isfile(path) and is_program(path)})


PYTHONS = every_python()
SOME = sorted({PYTHONS[0], os.path.realpath(sys.executable)})


def version(python):
    return tuple(map(int, re.search(r"python(\d)\.(\d+)", python).groups()))


HOOKED = [python for python in SOME if version(python) >= (3, 8)]


def is_locked(path):
    """By another open file: fcntl's F_OFD_GETLK of a write lock."""
    with open(path) as file:
        told = fcntl.fcntl(file, 36, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return struct.unpack("hhqqi4x", told)[0] != fcntl.F_UNLCK


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        for name in ("a", "b", "here"):
            os.mkdir(os.path.join(self.folder, name))
        self.record = os.path.join(self.folder, "record")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def run_program(self, *command, **environment):
        base = {name: value for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "PRECISIONPROBE")) or name == "PYTHONDONTWRITEBYTECODE"}
        return subprocess.run(command, env={**base, **environment}, cwd=os.path.join(self.folder, "here"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)

    def note(self, value, root=""):
        program = os.path.join(HOOK, "precisionprobe_hook", os.uname().machine, "precisionprobe-environment")
        done = self.run_program(program, self.record, root, **({} if value is None else {"PYTHONPATH": value}))
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def told(self, python, **environment):
        done = self.run_program(python, "-c", TELL, TELL, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, b""), python)
        return json.loads(done.stdout.decode())

    def compare(self, value, after="", pythons=None):
        """`after`: what the pod's PYTHONPATH has behind the hook's folder."""
        self.note(value)
        for python in pythons or SOME:
            alone = self.told(python, **({} if value is None else {"PYTHONPATH": value}))
            ours = self.told(python, PYTHONPATH=HOOK + after, PRECISIONPROBE_ENVIRONMENT=self.record)
            for one, other in ((alone, ours), (alone[-1], ours[-1])):
                self.assertEqual([path for path in other[0] if path != HOOK], one[0], python)
                self.assertEqual(other[0].index(HOOK), 1)  # after -c's own
                self.assertEqual(other[1], HOOK + (":" + one[1] if one[1] else ""))
                self.assertIsNone(other[2])
                self.assertEqual(other[3], one[3])

    def test_two_folders(self):
        self.write("a/own_module.py", "")
        self.write("a/sitecustomize.py", "import own_module")
        self.compare("%s/a:%s/b" % (self.folder, self.folder), pythons=PYTHONS)

    def test_none(self):
        self.compare(None)

    def test_empty(self):
        self.compare("", pythons=[python for python in SOME if "python2" not in python])

    def test_the_current_folder(self):
        self.compare("%s/a:" % self.folder)

    def test_relative_repeated_and_missing(self):
        self.compare("../b:{0}/a/:{0}/b:/missing:{0}/a".format(self.folder))

    def test_a_folder_of_pythons_own(self):
        self.compare(os.path.dirname(os.__file__), pythons=[sys.executable])

    def test_characters_beyond_ascii(self):
        os.mkdir(os.path.join(self.folder, "\u00e9 x"))
        self.write("\u00e9 x/own_other.py", "")
        self.note(self.folder + "/\u00e9 x")
        done = self.run_program(sys.executable, "-c", "import own_other", PYTHONPATH=HOOK,
                                PRECISIONPROBE_ENVIRONMENT=self.record)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_what_a_config_map_brings(self):
        """The kubelet has put it behind the hook's folder already."""
        value = "%s/a:%s/b" % (self.folder, self.folder)
        self.compare(value, ":" + value)

    def test_what_no_config_map_brings(self):
        """Then its name stays there."""
        self.compare("%s/a" % self.folder, ":$(PYTHONPATH)")
        self.compare(None, ":$(PYTHONPATH)")

    def test_without_a_record(self):
        for python in SOME:
            ours = self.told(python, PYTHONPATH=HOOK, PRECISIONPROBE_ENVIRONMENT=self.record)
            self.assertEqual(ours[1], HOOK)

    def test_a_shell_that_adds_its_own(self):
        self.note("%s/a" % self.folder)
        done = self.run_program("/bin/sh", "-c", "PYTHONPATH={0}/b:$PYTHONPATH exec {1} -c '{2}'".format(
            self.folder, sys.executable, "import os; print(os.environ[\"PYTHONPATH\"])"),
            PYTHONPATH=HOOK, PRECISIONPROBE_ENVIRONMENT=self.record)
        self.assertEqual(done.stdout.decode().strip(), "{0}/b:{1}:{0}/a".format(self.folder, HOOK))

    def read(self):
        with open(self.record) as file:
            return file.read()

    def test_libc(self):
        loaders = {"glibc": ["lib64/ld-linux-x86-64.so.2"], "musl": ["lib/ld-musl-x86_64.so.1"], "none": [],
                   "both": ["lib/ld-musl-aarch64.so.1", "lib/ld-linux-aarch64.so.1"]}
        for libc, files in loaders.items():
            root = os.path.join(self.folder, "root" + libc)
            for file in files:
                os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
                open(os.path.join(root, file), "w").close()
            self.note("/x", root)
            self.assertEqual(self.read(), "libc%s\nPYTHONPATH /x" % ("" if libc == "both" else " " + libc))

    def test_that_it_is_loaded(self):
        """The agent is to see it, also where the process never trains."""
        ring = os.path.join(self.folder, "ring")
        os.mkdir(ring)
        for python in PYTHONS:
            for option in ((), ("-I",), ("-E",), ("-S",)):
                done = self.run_program(python, *option + ("-c", "pass"), PYTHONPATH=HOOK, PRECISIONPROBE_RING=ring)
                if option == ("-I",) and "python2" in python:
                    continue  # which has no such option
                self.assertEqual((done.returncode, done.stderr), (0, b""), python)
                seen = not option and version(python) >= (3, 8)
                self.assertEqual(os.listdir(ring), ["loaded"] if seen else [], (python, option))
                for name in os.listdir(ring):
                    os.unlink(os.path.join(ring, name))

    def run_until_released(self, python, program, ring):
        """Whether the lock is held while the program waits, also once another Python has come and gone."""
        environment = {**os.environ, "PYTHONPATH": HOOK, "PRECISIONPROBE_RING": ring}
        code = "import os, sys; %s; print(1, flush=True); sys.stdin.read(1)" % program
        with subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env=environment) as running:
            running.stdout.readline()
            before = is_locked(ring + "/loaded")
            self.run_program(python, "-c", "pass", PYTHONPATH=HOOK, PRECISIONPROBE_RING=ring)
            self.assertEqual(is_locked(ring + "/loaded"), before)
            running.stdin.close()
            running.stdout.read()
        give_up = time.monotonic() + 60  # a fork is not waited for
        while is_locked(ring + "/loaded") and time.monotonic() < give_up:
            time.sleep(0.01)
        self.assertFalse(is_locked(ring + "/loaded"), (python, program))
        return before

    def test_that_it_runs(self):
        """For its life and that of its forks; a program that it becomes has no lock, as its files are closed."""
        ring = os.path.join(self.folder, "ring")
        os.mkdir(ring)
        programs = {"pass": True, "os.fork() and os._exit(0)": True,
                    "os.execv('/bin/sh', ['sh', '-c', 'echo; read x'])": False}
        for python in HOOKED:
            for program, held in programs.items():
                self.assertEqual(self.run_until_released(python, program, ring), held, (python, program))

    def test_that_it_cannot_be_told(self):
        ring = os.path.join(self.folder, "ring")
        os.mkdir(ring)
        os.mkfifo(os.path.join(ring, "loaded"))
        os.chmod(ring, 0o555)
        for folder in (ring, "/missing", "", self.record):
            for python in SOME:
                done = self.run_program(python, "-c", "pass", PYTHONPATH=HOOK, PRECISIONPROBE_RING=folder)
                self.assertEqual((done.returncode, done.stderr), (0, b""), (python, folder))

    def test_nothing_but_that_is_recorded(self):
        self.note(None)
        os.environ["SECRET"] = "secret"
        self.addCleanup(os.environ.pop, "SECRET")
        self.note(None)
        self.assertNotIn("secret", self.read())
        self.assertEqual(os.listdir(self.folder).count("record"), 1)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("record.")], [])

    def test_it_never_fails(self):
        program = os.path.join(HOOK, "precisionprobe_hook", os.uname().machine, "precisionprobe-environment")
        for arguments in ([], ["/missing/record"], ["/proc/record"], [self.folder], ["x" * 5000]):
            self.assertEqual(self.run_program(program, *arguments, PYTHONPATH="/x").returncode, 0, arguments)


if __name__ == "__main__":
    unittest.main()
