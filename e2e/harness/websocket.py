"""A small WebSocket client on TLS, for speaking to the operator's intake as no agent would."""
import base64
import json
import os
import socket
import ssl
import struct
import time

PATH = "/v1/ingest"
PROTOCOL = "precisionprobe.v1"


class Refused(Exception):
    """The upgrade got another answer than 101."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


class Closed(Exception):
    """The other side closed, with this code (1006: without one)."""

    def __init__(self, code, reason=""):
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class WebSocket:
    def __init__(self, address, server_name, ca, token=None, timeout=15):
        context = ssl.create_default_context(cadata=ca)
        plain = socket.create_connection(address, timeout=timeout)
        try:
            self.socket = context.wrap_socket(plain, server_hostname=server_name)
        except (OSError, ssl.SSLError):
            plain.close()
            raise
        self.buffer = b""
        try:
            self.upgrade(server_name, token)
        except Refused:
            self.socket.close()
            raise

    def upgrade(self, host, token):
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {PATH} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", f"Sec-WebSocket-Protocol: {PROTOCOL}"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        if status == 101:
            return
        headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        while len(self.buffer) < int(headers.get("content-length", 0)):
            self.more()
        raise Refused(status, self.buffer.decode("utf-8", "replace"))

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise Closed(1006, "the connection ended")
        self.buffer += data

    def take(self, count):
        while len(self.buffer) < count:
            self.more()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def send_frame(self, opcode, payload):
        mask = os.urandom(4)
        length = len(payload)
        head = bytes([0x80 | opcode])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", length)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", length)
        repeated = mask * (length // 4 + 1)
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:length], "big")).to_bytes(length, "big")
        self.socket.sendall(head + mask + masked)

    def send(self, text):
        self.send_frame(1, text.encode())

    def receive(self):
        """The next message; answers pings; raises Closed."""
        while True:
            first, second = self.take(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack(">H", self.take(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.take(8))[0]
            payload = self.take(length)
            opcode = first & 0x0F
            if opcode == 8:
                code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005
                raise Closed(code, payload[2:].decode("utf-8", "replace"))
            if opcode == 9:
                self.send_frame(10, payload)
            elif opcode == 1:
                return json.loads(payload)

    def expect(self, kind):
        """The next message of this type, whatever comes before it."""
        while True:
            message = self.receive()
            if message["type"] == kind:
                return message

    def close(self):
        try:
            self.send_frame(8, struct.pack(">H", 1000))
        except OSError:
            pass
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def connect(*arguments, patience=20, **more):
    """As WebSocket(), trying again while the answer is 503, as an agent does."""
    end = time.monotonic() + patience
    while True:
        try:
            return WebSocket(*arguments, **more)
        except Refused as refused:
            if refused.status != 503 or time.monotonic() > end:
                raise
            time.sleep(0.2)
