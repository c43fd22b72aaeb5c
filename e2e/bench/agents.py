"""Agents as the wire knows them (docs/wire.md), many in one process: each sends a batch a second, as a real one does while
a stretch is sampled. Used by many_sessions.py; runs where the operator's address can be reached.

Reads one JSON object from its standard input: {"ca": PEM, "server": name, "agents": [{"session", "token", "pod"}]}, and
lines {"address": [host, port]} (with "loopback": each agent has an address of its own) then and whenever the leader has moved. Prints a JSON line a second: {"connected", "sent",
"acknowledged", "refused", "reconnects"}. Ends when its input does.
"""
import asyncio
import json
import ssl
import sys
import time
import uuid

import websockets

LAYERS = 24
STEPS = 4  # of a second
BATCH_EVERY = 1.0


class Totals:
    def __init__(self):
        self.connected = self.sent = self.acknowledged = self.refused = self.reconnects = 0
        self.reasons = {}


def batch(agent, seq, now):
    """A second of a small training: four steps, each layer forward and backward in each."""
    start = now - int(BATCH_EVERY * 1e9)
    piece = int(BATCH_EVERY * 1e9) // STEPS // (2 * LAYERS)
    count = STEPS * LAYERS * 2
    order = list(range(1, LAYERS + 1)) + list(range(LAYERS, 0, -1))
    per_step = 2 * LAYERS
    first = seq * STEPS + 1
    return {
        "type": "batch", "session": agent["session"], "instance": agent["instance"], "seq": seq,
        "process": {"id": 0, "rank": 0, "worldSize": 1, "gpus": [agent["gpu"]], "hostname": agent["pod"],
                    "python": "3.13.1", "torch": "2.6.0", "clock": "host", "model": "DLRM"},
        "stretch": {"id": 1, "start": start, "end": now, "last": False},
        "layers": [{"id": i, "name": f"top.{i}", "type": "Linear", "parameters": 1000} for i in range(1, LAYERS + 1)],
        "steps": {"number": [first] + [1] * (STEPS - 1),
                  "start": [start] + [int(BATCH_EVERY * 1e9) // STEPS] * (STEPS - 1),
                  "duration": [int(BATCH_EVERY * 1e9) // STEPS] * STEPS, "epoch": [0] * STEPS, "batch": [first] + [1] * (STEPS - 1)},
        "intervals": {"layer": order * STEPS, "phase": ([0] * LAYERS + [1] * LAYERS) * STEPS,
                      "step": ([first] + [0] * (per_step - 1)) + ([1] + [0] * (per_step - 1)) * (STEPS - 1),
                      "start": [start] + [piece] * (count - 1), "duration": [piece - 1000] * count},
        "dropped": 0, "cost": {"nanoseconds": 81234, "marks": 4 * count}}


async def listen(agent, socket, totals):
    async for text in socket:
        message = json.loads(text)
        if message["type"] == "ack":
            totals.acknowledged += 1
            agent["waiting"].pop(message["seq"], None)
        elif message["type"] == "refused":
            totals.refused += 1
            agent["waiting"].pop(message["seq"], None)
            totals.reasons[message["message"]] = totals.reasons.get(message["message"], 0) + 1
        elif message["type"] == "welcome":
            agent["sampling"] = bool(message.get("sampling")) and message.get("session") == agent["session"]


async def speak(agent, socket, totals):
    for text in list(agent["waiting"].values()):  # unchanged, as an agent does on a new connection
        await socket.send(text)
    while True:
        now = time.time_ns()
        if agent["sampling"]:
            text = json.dumps(batch(agent, agent["seq"], now), separators=(",", ":"))
            agent["waiting"][agent["seq"]] = text
            agent["seq"] += 1
            await socket.send(text)
            totals.sent += 1
        await asyncio.sleep(BATCH_EVERY)


async def live(agent, place, context, totals):
    while True:
        host, port = place["address"]
        own = {"local_addr": (agent["address"], 0)} if place.get("loopback") else {}
        try:
            async with websockets.connect(
                    f"wss://{place['server']}:{port}/v1/ingest", host=host, port=port, ssl=context,
                    server_hostname=place["server"], subprotocols=["precisionprobe.v1"], compression=None, ping_interval=None, **own,
                    extra_headers={"Authorization": f"Bearer {agent['token']}"}, open_timeout=30) as socket:
                totals.connected += 1
                tasks = [asyncio.create_task(listen(agent, socket, totals)), asyncio.create_task(speak(agent, socket, totals))]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    totals.connected -= 1
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        except websockets.InvalidStatusCode as error:
            if error.status_code != 503:
                totals.reasons[f"HTTP {error.status_code}"] = totals.reasons.get(f"HTTP {error.status_code}", 0) + 1
            await asyncio.sleep(0.2 if error.headers.get("Retry-After") == "0" else 2)
            continue
        except (OSError, asyncio.TimeoutError, websockets.WebSocketException) as error:
            totals.reasons[type(error).__name__] = totals.reasons.get(type(error).__name__, 0) + 1
            await asyncio.sleep(1)
        totals.reconnects += 1


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    place = json.loads(await reader.readline())
    place.update(json.loads(await reader.readline()))
    context = ssl.create_default_context(cadata=place["ca"])
    totals = Totals()
    tasks = []
    for n, agent in enumerate(place["agents"]):
        agent.update(instance=str(uuid.uuid4()), gpu=f"GPU-bench-{n}", seq=0, sampling=False, waiting={},
                     address=f"127.1.{n // 250}.{n % 250 + 1}")
        tasks.append(asyncio.create_task(live(agent, place, context, totals)))

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
        place.update(json.loads(line))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
