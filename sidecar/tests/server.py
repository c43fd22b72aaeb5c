"""A small operator for the tests of the agent: a real TLS WebSocket server that misbehaves on demand.

As a program, to be killed: server.py FOLDER PORT JOURNAL (certificates; 0: any; what was taken, a line each).
"""
import asyncio
import http
import json
import os
import pathlib
import ssl
import subprocess
import sys
import threading
import time

import websockets


def certificates(folder, names="DNS:localhost", environment=None):
    """A CA and a certificate for localhost signed by it, good for two days from now on."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder,
                       env={**os.environ, **(environment or {})})

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test CA", "-days", "2")
    openssl("req", *key, "-keyout", "tls.key", "-out", "tls.csr", "-subj", "/CN=server")
    (folder / "san").write_text("subjectAltName=" + names)
    openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "tls.crt", "-days", "2", "-extfile", "san")


def count(batch):
    grid = batch.get("grid")
    return sum(grid["calls"]) if grid else len(batch["intervals"]["layer"]) - sum(batch["intervals"].get("goesOn", []))


class Server:
    def __init__(self, folder, host="localhost"):
        self.host = host
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.context.sni_callback = lambda socket, name, context: self.names.append(name)
        self.names = []        # as which the agent has asked for it, one per handshake
        self.stored = {}       # (instance, seq) -> events, as if committed
        self.batches = []      # these, in the order of their storing
        self.texts = {}        # (instance, seq) -> the text as first seen
        self.changed = []      # batches whose text differed when sent again
        self.received = 0
        self.byes = []
        self.tokens = []
        self.connections = 0
        self.refuse = set()    # seqs to refuse
        self.answer = None     # (status, headers) instead of 101
        self.ack = True
        self.sampling = True
        self.welcome = {"session": "11111111-2222-3333-4444-555555555555"}  # and sampling
        self.sockets = set()
        self.leave = False     # say that the trainers have ended
        self.asks = []         # numbers of questions what time it is: the first goes with the welcome
        self.times = []        # the agent's answers, each with when it came
        self.asks_hook = False # whether the welcome asks to be told of the hook
        self.hooks = []        # what agents told of it
        self.welcomes = True   # whether those who connect are welcomed
        self.heard = []        # types of all messages, in their order
        self.kill_every = 0    # cut the connection at every nth batch, unacknowledged
        self.port = 0
        self.journal = None    # a file descriptor: what is acknowledged is written there before

    def take_up(self, path):
        """Goes on with what a server before this one has taken. A line that it was killed within was not acknowledged."""
        data = path.read_bytes() if path.exists() else b""
        whole = data[:data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(path, len(whole))
        for line in whole.decode().splitlines():
            batch = json.loads(line)
            key = batch["instance"], batch["seq"]
            self.texts[key] = line
            self.stored[key] = count(batch)
        self.journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def start(self):
        started = threading.Event()

        def serve():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
            self.loop.run_until_complete(self.listen())
            started.set()
            self.loop.run_forever()

        self.thread = threading.Thread(target=serve, daemon=True)
        self.thread.start()
        assert started.wait(10)
        return self

    async def listen(self):
        self.listener = await websockets.serve(
            self.serve, self.host, self.port, ssl=self.context, subprotocols=["precisionprobe.v1"],
            process_request=self.check, max_size=1 << 20)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def check(self, path, headers):
        self.tokens.append(headers.get("Authorization"))
        if self.answer:
            return http.HTTPStatus(self.answer[0]), self.answer[1], b""
        if path != "/v1/ingest":
            return http.HTTPStatus.NOT_FOUND, [], b""
        return None

    async def serve(self, socket, path=None):
        self.connections += 1
        self.sockets.add(socket)
        if self.welcomes:
            question = {"time": self.asks[0]} if self.asks else {}
            if self.asks_hook:
                question["hook"] = True
            await socket.send(json.dumps({"type": "welcome", "sampling": self.sampling, **self.welcome, **question}))
        for number in self.asks[1:]:
            await socket.send(json.dumps({"type": "time", "id": number}))
        if self.leave:
            await socket.send(json.dumps({"type": "leave", **self.welcome}))
        try:
            async for text in socket:
                await self.take(socket, text)
        except websockets.ConnectionClosed:
            pass
        finally:
            self.sockets.discard(socket)

    def say(self, sampling, **welcome):
        """A new welcome, for those who are connected and for those who will be."""
        self.welcome, self.sampling = welcome, sampling

        async def tell():
            for socket in self.sockets:
                await socket.send(json.dumps({"type": "welcome", "sampling": sampling, **welcome}))

        asyncio.run_coroutine_threadsafe(tell(), self.loop).result(10)

    def ask(self, number):
        """What time is it there?"""
        async def send():
            for socket in self.sockets:
                await socket.send(json.dumps({"type": "time", "id": number}))

        asyncio.run_coroutine_threadsafe(send(), self.loop).result(10)

    def cut(self):
        """Every connection breaks."""
        for socket in list(self.sockets):
            self.loop.call_soon_threadsafe(socket.transport.abort)

    async def take(self, socket, text):
        message = json.loads(text)
        self.heard.append(message["type"])
        if message["type"] == "time":
            self.times.append((message, time.time_ns()))
            return
        if message["type"] == "hook":
            self.hooks.append(message)
            return
        if message["type"] == "bye":
            self.byes.append(message)
            return
        key = message["instance"], message["seq"]
        self.received += 1
        if self.texts.setdefault(key, text) != text:
            self.changed.append(key)
        if message["seq"] in self.refuse:
            await socket.send(json.dumps({"type": "refused", "seq": message["seq"], "code": "invalid",
                                          "field": "steps", "message": "not wanted"}))
            return
        if self.kill_every and self.received % self.kill_every == 0:
            # Sometimes before it is stored, sometimes after, always before the ack.
            if self.received % (2 * self.kill_every):
                self.store(key, message)
            socket.transport.abort()
            return
        if self.ack:
            self.store(key, message)
            await socket.send(json.dumps({"type": "ack", "instance": message["instance"], "seq": key[1]}))

    def store(self, key, message):
        if key not in self.stored:
            self.batches.append(message)
            if self.journal is not None:
                os.write(self.journal, self.texts[key].encode() + b"\n")
        self.stored[key] = count(message)

    def stop(self):
        async def close():
            self.listener.close()
            await self.listener.wait_closed()

        asyncio.run_coroutine_threadsafe(close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


if __name__ == "__main__":
    one = Server(pathlib.Path(sys.argv[1]))
    one.port = int(sys.argv[2])
    one.take_up(pathlib.Path(sys.argv[3]))
    one.start()
    print(one.port, flush=True)
    one.thread.join()
