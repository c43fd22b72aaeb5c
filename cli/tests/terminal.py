"""A real terminal for the program: tmux, of so many columns and rows, with a server of its own."""
import contextlib
import shlex
import subprocess
import time
import uuid

PATIENCE = 60


class Terminal:
    def __init__(self, socket):
        self.socket = socket

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.socket, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def screen(self, history=False):
        """The lines that stand there, as a person sees them; with those that have scrolled away."""
        return self.tmux("capture-pane", "-p", *(["-S", "-"] if history else [])).rstrip("\n").split("\n")

    def value(self, name):
        """Of tmux's own knowledge of the terminal, e.g. cursor_flag."""
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def wait(self, what, history=False):
        """Until the screen is as `what` says of its lines."""
        end = time.monotonic() + PATIENCE
        while not what(lines := self.screen(history)):
            assert time.monotonic() < end, "\n".join(lines)
            time.sleep(0.05)
        return lines


@contextlib.contextmanager
def terminal(columns=80, rows=24):
    """With a shell in it that has no prompt but $."""
    of = Terminal(f"precisionprobe-{uuid.uuid4().hex}")
    of.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "env PS1='$ ' sh")
    try:
        of.tmux("set-option", "-g", "history-limit", "20000")
        yield of
    finally:
        of.tmux("kill-server")


def read(command, columns=80, rows=50):
    """All lines that a command writes to a terminal, without those of the shell."""
    with terminal(columns, rows) as of:
        of.tmux("respawn-pane", "-k", f"{shlex.join(map(str, command))}; echo exit=$?; sleep {PATIENCE}")
        lines = of.wait(lambda lines: any(line.startswith("exit=") for line in lines), history=True)
        end = next(i for i, line in enumerate(lines) if line.startswith("exit="))
        assert lines[end] == "exit=0", "\n".join(lines)
        return lines[:end]
