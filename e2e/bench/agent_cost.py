"""What the agent costs beside a training: its memory and its CPU time at several rates of intervals.

usage: agent_cost.py --agent PROGRAM --hook FOLDER [--seconds N] [--rates R ...]

Prints one JSON line per figure. Needs torch (CPU), the `websockets` package and openssl; no cluster. FOLDER holds
python/sitecustomize.py. A training of 41 intervals a step runs at each rate, as fast as it can at the last, while the
agent sends over TLS to a server on this machine; then the server goes, and batches gather in the spool. CPU is what
the kernel accounts to the agent, windows of a second, median and the 5th and 95th percentile.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sidecar" / "tests"))

TRAINING = r'''
import json, sys, time
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(20)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(2, 16)
pause = float(sys.argv[1])
while True:
    begun = time.monotonic()
    model(x).sum().backward()
    optimizer.step()
    model.zero_grad()
    left = pause - (time.monotonic() - begun)
    if left > 0:
        time.sleep(left)
'''
STEP_INTERVALS = 41  # 20 layers forward, 20 backward, the optimizer
AT_ONCE = 0  # as fast as it can
IDLE = -1  # no session wants to know


class Agent:
    def __init__(self, args, folder, port):
        self.folder = folder
        self.spool = folder / "spool"
        self.ring = folder / "ring"
        for path in (self.spool, self.ring):
            path.mkdir()
        self.settings(folder, port)
        (folder / "token").write_text("token")
        self.log = open(folder / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [args.agent, "run", f"--ring={self.ring}", f"--spool={self.spool}", f"--settings={folder}/settings.json",
             f"--token={folder}/token", f"--ca={folder}/ca.crt"], stderr=self.log)

    def settings(self, folder, port):
        (folder / "settings.json").write_text(json.dumps(
            {"version": 1, "session": {"uid": "11111111-2222-3333-4444-555555555555", "namespace": "b", "name": "b"},
             "endpoint": f"wss://localhost:{port}/v1/ingest", "durationSeconds": 0, "overheadBudgetPercent": 100,
             "layers": {"include": [], "exclude": [], "types": [], "depth": 0}, "stretch": {"seconds": 3600},
             "phases": ["Forward", "Backward", "Optimizer"], "steps": {"skip": 0, "max": 0}}))

    def cpu(self):
        """Seconds of CPU so far, of all its threads."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def memory(self, key):
        """VmRSS or VmHWM (the most ever), MiB."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(key)) / 1024

    def events(self):
        """Intervals that the log says were put into batches."""
        self.log.seek(0)
        return sum(int(line.split("events=")[1].split()[0]) for line in self.log if "batch sent" in line)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def figure(name, **values):
    print(json.dumps({"figure": name, **values}), flush=True)


def watch(agent, seconds):
    """Shares of a core in windows of a second."""
    found = []
    for _ in range(seconds):
        cpu, at = agent.cpu(), time.monotonic()
        time.sleep(1)
        found.append(100 * (agent.cpu() - cpu) / (time.monotonic() - at))
    return sorted(found)


def report(name, agent, shares, **more):
    n = len(shares)
    figure(name, cpu_percent=round(statistics.median(shares), 2), low=round(shares[n // 20], 2),
           high=round(shares[-1 - n // 20], 2), rss_mib=round(agent.memory("VmRSS"), 1),
           rss_most_mib=round(agent.memory("VmHWM"), 1), **more)


def beside(args, server, rate):
    """One rate, with an agent of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(server.ca, folder / "ca.crt")
        server.sampling = rate != IDLE
        agent = Agent(args, folder, server.port)
        pause = STEP_INTERVALS / rate if rate > 0 else 0
        time.sleep(0.5)
        trainer = subprocess.Popen([sys.executable, "-c", TRAINING, str(pause)], env={
            **os.environ, "PYTHONPATH": os.path.join(args.hook, "python"), "PRECISIONPROBE_RING": str(agent.ring)})
        time.sleep(8)  # torch's import, the layers, the connection
        before, at = agent.events(), time.monotonic()
        shares = watch(agent, args.seconds)
        real = (agent.events() - before) / (time.monotonic() - at)
        report("agent beside a training", agent, shares, intervals_per_s=round(real),
               asked="idle" if rate == IDLE else rate or "all that it can")
        if rate == AT_ONCE:
            away(args, server, agent)
        trainer.kill()
        trainer.wait()
        agent.stop()


def away(args, server, agent):
    """The operator goes: batches gather on the disk; it comes back: all are sent."""
    server.stop()
    shares = watch(agent, args.seconds)
    size = sum(p.stat().st_size for p in agent.spool.iterdir())
    report("agent while the operator is away", agent, shares, spool_mib=round(size / 2**20, 2),
           spool_mib_per_minute=round(size / 2**20 / args.seconds * 60, 1))
    server.start()
    begun = time.monotonic()
    while any(True for p in agent.spool.iterdir()) and time.monotonic() - begun < 60:
        time.sleep(0.1)
    report("agent after the operator came back", agent, watch(agent, 3),
           seconds_until_sent=round(time.monotonic() - begun, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", required=True)
    parser.add_argument("--hook", required=True)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rates", type=int, nargs="*", default=[IDLE, 500, 2000, 8000, AT_ONCE],
                        help="intervals per second; -1: idle, 0: as many as it can")
    args = parser.parse_args()
    from server import Server, certificates
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        certificates(folder)
        server = Server(folder).start()
        server.ca = folder / "ca.crt"
        for rate in args.rates:
            beside(args, server, rate)
        server.stop()


if __name__ == "__main__":
    main()
