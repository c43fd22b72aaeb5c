"""Work that yields to all else: a cgroup whose processes run only where nothing else wants a processor.

A priority does not do it: each session has a group of its own (sched_autogroup), and so has each pod, and priorities count
within a group alone.
"""
import contextlib
import os
import threading
import time

ATTEMPTS = 100
NAME = f"precisionprobe-e2e-background-{os.getpid()}"


def controller():
    """Where the CPU controller is mounted; "" unless it takes single threads, as cgroup v1's does."""
    with open("/proc/mounts", encoding="utf-8") as mounts:
        for mount in mounts:
            _, at, kind, options, *_ = mount.split()
            if kind == "cgroup" and "cpu" in options.split(","):
                return at
    return ""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Background:
    """`switch`: the file that takes "1", to have its work yield, and "0"; "" where the machine has no such thing."""

    def __init__(self):
        self.root, self.folder, self.switch = controller(), "", ""
        try:
            if self.root:
                self.folder = os.path.join(self.root, NAME)
                os.mkdir(self.folder)
                self.switch = os.path.join(self.folder, "cpu.idle")
                write(self.switch, "0")
        except OSError:  # not root, or a kernel before 5.15
            self.end()

    def enter(self):
        """This thread, and the threads and processes that it starts."""
        if self.switch:
            write(os.path.join(self.folder, "tasks"), str(threading.get_native_id()))

    def leave(self):
        if self.switch:
            write(os.path.join(self.root, "tasks"), str(threading.get_native_id()))

    def end(self):
        """Once nothing is left in it; what is, goes on outside of it. What forks meanwhile, or has just been killed, is out after a
        moment; a group that stays costs nothing."""
        self.switch = ""
        for _ in range(ATTEMPTS):
            if not self.folder or not os.path.isdir(self.folder):
                return
            with open(os.path.join(self.folder, "tasks"), encoding="utf-8") as tasks:
                for task in tasks.read().split():
                    with contextlib.suppress(OSError):  # it has ended
                        write(os.path.join(self.root, "tasks"), task)
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return
            time.sleep(0.05)
