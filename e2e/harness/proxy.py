"""Questions to the API server through one `kubectl proxy`, which knows how to reach it wherever kubectl does."""
import atexit
import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import threading

from .progress import CommandError, start, stop, wait_until

CHANGES = "POST,PUT,PATCH,DELETE"


class Connection(http.client.HTTPConnection):
    """To a socket in a folder that no other user may enter: who reaches it is the administrator."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Proxy:
    """Started with the first question, ended with this process; for several threads at a time."""

    def __init__(self, environment):
        self.environment = environment  # of kubectl; may be filled until the first question
        self.child = None
        self.folder = None
        self.lock = threading.Lock()
        atexit.register(self.close)

    def get(self, path, headers=None):
        """(status, text) of GET."""
        connection = Connection(self.serving())
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def serving(self):
        """The path of its socket, once it listens."""
        with self.lock:
            if not self.child or self.child.poll() is not None:
                self.begin()
            return os.path.join(self.folder, "socket")

    def begin(self):
        self.close()
        self.folder = tempfile.mkdtemp(prefix="precisionprobe-proxy-")
        path = os.path.join(self.folder, "socket")
        self.child = start("kubectl", "proxy", f"--unix-socket={path}", f"--reject-methods={CHANGES}", env=self.environment,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("kubectl proxy", lambda: os.path.exists(path) or self.child.poll() is not None, 30, every=0.02)
        if self.child.poll() is not None:
            raise CommandError(f"kubectl proxy ended with {self.child.returncode}")

    def close(self):
        if self.child:
            stop(self.child, patience=1)
            self.child = None
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


__all__ = ["Proxy"]
