"""Agents as the wire knows them (docs/wire.md), many in one process: each plays what a real one sent of a training on a GPU
with the default settings, at that agent's rate. Used by many_sessions.py; runs where the operator's address can be reached.

`gpt` (recordings/gpt.jsonl.gz, an H100): a capture of 2.7 s in four batches, 300 KB, then nothing until its cost is paid
for, as sidecar/agent/sampling_schedule.c has it. `slow` (cli/tests/recordings/regression): layers of 30 to 230 ms, which
cost so little that the capture goes on: a batch of 3 KB a second.

Reads one JSON object from its standard input: {"ca": PEM, "server": name, "from": the first two bytes of the agents' own
addresses, "agents": [{"session", "token", "pod", "plays"}]}, then {"address": [host, port]}, the same whenever the leader
has moved, and {"start": N} when the pod of agent N starts. Prints a JSON line a second: {"connected", "sent", "acknowledged", "refused", "reconnects"}. Ends when its input does.
"""
import asyncio
import gzip
import json
import pathlib
import random
import ssl
import sys
import time
import uuid

import websockets

HERE = pathlib.Path(__file__).resolve().parent
RECORDINGS = {"gpt": HERE / "recordings/gpt.jsonl.gz", "slow": HERE.parents[1] / "cli/tests/recordings/regression/batches.jsonl"}
IN_FLIGHT = 32  # PP_OUTBOX_IN_FLIGHT
SPOOL = 64 << 20  # bytes that wait for an operator; then the oldest are lost
AIM = 0.6 * 0.01  # of the time, what a capture may cost
FIRST_WAIT, LONGEST_WAIT, AT_ONCE, AT_ONCE_MAX = 0.2, 10.0, 0.02, 8  # sidecar/agent/retry.c


class Totals:
    def __init__(self):
        self.connected = self.sent = self.acknowledged = self.refused = self.reconnects = self.lost = self.bytes = 0
        self.reasons = {}


class Batch:
    """One batch of a recording: its text in pieces, with places between for what differs from agent to agent."""

    def __init__(self, batch, origin):
        self.due = batch["stretch"]["end"] - origin  # ns after the recording's beginning
        self.steps = len(batch["steps"]["number"])
        batch["stretch"].pop("monotonic")
        fills = []
        for holder, key, kind in self.places(batch):
            fills.append((f"\"@{len(fills)}@\"", kind, holder[key] - origin if kind == "time" else holder[key]))
            holder[key] = fills[-1][0].strip("\"")
        rest = json.dumps(batch, separators=(",", ":"))
        self.pieces, self.fills = [], []
        for mark, kind, value in sorted(fills, key=lambda fill: rest.index(fill[0])):
            piece, rest = rest.split(mark, 1)
            self.pieces.append(piece)
            self.fills.append((kind, value))
        self.pieces.append(rest)

    @staticmethod
    def places(batch):
        """(object, key, what it is): the first of delta-coded values stands for all."""
        yield from ((batch, key, key) for key in ("session", "instance", "seq"))
        yield from ((batch["process"], key, key) for key in ("gpus", "hostname"))
        yield batch["stretch"], "id", "capture"
        yield from ((batch["stretch"], key, "time") for key in ("start", "end"))
        yield batch["steps"]["start"], 0, "time"
        yield batch["steps"]["number"], 0, "step"
        if batch.get("intervals", {}).get("start"):
            yield batch["intervals"]["start"], 0, "time"
            yield batch["intervals"]["step"], 0, "step"
        if "grid" in batch:
            yield batch["grid"], "start", "time"

    def render(self, agent, began, step):
        """The text of a capture that began then (ns) with that many steps before it."""
        values = {**agent, "gpus": [agent["gpu"]], "hostname": agent["pod"]}
        out = []
        for piece, (kind, value) in zip(self.pieces, self.fills):
            out.append(piece)
            out.append(str(value + began) if kind == "time" else str(value + step) if kind == "step"
                       else json.dumps(values[kind]))
        return "".join(out + self.pieces[-1:])


class Recording:
    def __init__(self, path):
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path, encoding="utf-8")
        with opened as lines:
            batches = [json.loads(line) for line in lines]
        origin = batches[0]["stretch"]["start"]
        self.cost = sum(batch["cost"]["nanoseconds"] for batch in batches) / 1e9
        self.batches = [Batch(batch, origin) for batch in batches]
        self.length = self.batches[-1].due / 1e9  # s

    def rest(self, first):
        """Seconds from the end of a capture until its cost is paid for; twice as long after the first."""
        return max(0.0, self.cost / AIM * (2 if first else 1) - self.length)


async def play(agent, recording, totals):
    """Makes batches while the session samples; they wait for a connection like a real agent's."""
    step = 0
    while True:
        await agent["samples"].wait()
        began = time.time_ns()
        for batch in recording.batches:
            await asyncio.sleep(max(0.0, (began + batch.due - time.time_ns()) / 1e9))
            text = batch.render(agent, began, step)
            agent["waiting"][agent["seq"]] = text
            agent["bytes"] += len(text)
            agent["seq"] += 1
            while agent["bytes"] > SPOOL:
                forget(agent, next(iter(agent["waiting"])))
                totals.lost += 1
            agent["more"].set()
        step += sum(batch.steps for batch in recording.batches)
        agent["capture"] += 1
        await asyncio.sleep(recording.rest(agent["capture"] == 1))


def forget(agent, seq):
    text = agent["waiting"].pop(seq, None)
    if text is not None:
        agent["bytes"] -= len(text)
        agent["flying"].discard(seq)
        agent["more"].set()


def clock(number):
    return json.dumps({"type": "time", "id": number, "realtime": time.time_ns(), "monotonic": time.monotonic_ns()})


async def listen(agent, socket, totals):
    async for text in socket:
        message = json.loads(text)
        if message["type"] == "ack":
            totals.acknowledged += 1
            forget(agent, message["seq"])
        elif message["type"] == "refused":
            totals.refused += 1
            totals.reasons[message["message"]] = totals.reasons.get(message["message"], 0) + 1
            forget(agent, message["seq"])
        elif message["type"] == "time":
            await socket.send(clock(message["id"]))
        elif message["type"] == "welcome":
            samples = bool(message.get("sampling")) and message.get("session") == agent["session"]
            agent["retry"].reset()
            (agent["samples"].set if samples else agent["samples"].clear)()
            agent["welcome"].set()
            if message.get("time"):
                await socket.send(clock(message["time"]))
            if message.get("hook"):
                await socket.send('{"type":"hook","loaded":true,"torch":true,"libc":"glibc"}')


async def speak(agent, socket, totals):
    """What waits, in order, so many at a time; on a new connection what was not acknowledged comes again."""
    agent["flying"].clear()
    await agent["welcome"].wait()
    while True:
        agent["more"].clear()
        for seq in [seq for seq in agent["waiting"] if seq not in agent["flying"]]:
            if len(agent["flying"]) >= IN_FLIGHT:
                break
            agent["flying"].add(seq)
            await socket.send(agent["waiting"][seq])
            totals.sent += 1
            totals.bytes += len(agent["waiting"].get(seq, ""))
        await agent["more"].wait()


class Retry:
    """Seconds before the next attempt to connect."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.step, self.at_once = FIRST_WAIT, 0

    def next(self, asked=None):
        """`asked`: what the operator's Retry-After says."""
        if asked == 0 and self.at_once < AT_ONCE_MAX:
            self.at_once += 1
            return AT_ONCE
        wait = self.step * random.uniform(1, 2)
        self.step = min(2 * self.step, LONGEST_WAIT / 2)
        return max(wait, asked or 0)


async def live(agent, place, context, totals):
    await agent["starts"].wait()
    retry = agent["retry"]
    while True:
        host, port = place["address"]
        agent["welcome"].clear()
        try:
            async with websockets.connect(
                    f"wss://{place['server']}:{port}/v1/ingest", host=host, port=port, ssl=context,
                    server_hostname=place["server"], subprotocols=["precisionprobe.v1"], compression=None, ping_interval=None,
                    local_addr=(agent["address"], 0), extra_headers={"Authorization": f"Bearer {agent['token']}"},
                    open_timeout=30) as socket:
                totals.connected += 1
                tasks = [asyncio.create_task(listen(agent, socket, totals)), asyncio.create_task(speak(agent, socket, totals))]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    totals.connected -= 1
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    code = f"closed {socket.close_code} {socket.close_reason}"
                    totals.reasons[code] = totals.reasons.get(code, 0) + 1
        except websockets.InvalidStatusCode as error:
            if error.status_code != 503:
                totals.reasons[f"HTTP {error.status_code}"] = totals.reasons.get(f"HTTP {error.status_code}", 0) + 1
            asked = error.headers.get("Retry-After")
            await asyncio.sleep(retry.next(int(asked) if asked else None))
            continue
        except (OSError, asyncio.TimeoutError, websockets.WebSocketException) as error:
            totals.reasons[type(error).__name__] = totals.reasons.get(type(error).__name__, 0) + 1
        await asyncio.sleep(retry.next())
        totals.reconnects += 1


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    place = json.loads(await reader.readline())
    place.update(json.loads(await reader.readline()))
    context = ssl.create_default_context(cadata=place["ca"])
    recordings = {name: Recording(path) for name, path in RECORDINGS.items()}
    totals = Totals()
    tasks = []
    for n, agent in enumerate(place["agents"]):
        agent.update(instance=str(uuid.uuid4()), gpu=f"GPU-bench-{n}", seq=0, capture=0, bytes=0, waiting={}, flying=set(),
                     retry=Retry(), starts=asyncio.Event(), samples=asyncio.Event(), welcome=asyncio.Event(), more=asyncio.Event(),
                     address=f"{place['from']}.{n // 250}.{n % 250 + 1}")
        tasks.append(asyncio.create_task(live(agent, place, context, totals)))
        tasks.append(asyncio.create_task(play(agent, recordings[agent["plays"]], totals)))

    async def tell():
        while True:
            waiting = sum(len(agent["waiting"]) for agent in place["agents"])
            print(json.dumps({**vars(totals), "waiting": waiting, "at": time.time()}), flush=True)
            await asyncio.sleep(1)

    tasks.append(asyncio.create_task(tell()))
    while True:
        line = await reader.readline()
        if not line:
            break
        told = json.loads(line)
        if "start" in told:
            place["agents"][told["start"]]["starts"].set()
        else:
            place.update(told)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
