#!/usr/bin/python3
"""Stands for kubectl where PP_FAKE_KUBECTL names a folder:

rules.json   [{"words": [...], "answers": [[status, output, complaint], ...]}]: what is answered where all the words are in the call, one
             after the other, the last one again and again; of several rules the first
calls        what was called, a line of JSON each
tokens.json  tokens that are good for the operator's API
api          host:port of a `precisionprobe report --serve` that the proxy asks; it has no namespace but local
asked        "TOKEN STATUS" of each question to the proxy, which says a line to standard error each time
"""
import http.client
import http.server
import json
import os
import pathlib
import socketserver
import sys

PLACE = pathlib.Path(os.environ.get("PP_FAKE_KUBECTL", "."))


def append(name, line):
    with (PLACE / name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def address_string(self):
        return "here"

    def answer(self, status, body):
        append("asked", f"{self.headers['X-PrecisionProbe-Token']} {status}")
        print("E1128 20:49:03.000000       1 proxy_server.go:147] NOISE OF THE PROXY", file=sys.stderr, flush=True)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers["X-PrecisionProbe-Token"] not in json.loads((PLACE / "tokens.json").read_text()):
            return self.answer(401, b'{"detail": "the token is none of this cluster\'s"}')
        onward = http.client.HTTPConnection((PLACE / "api").read_text(), timeout=30)
        onward.request("GET", self.path.split("/proxy", 1)[1])
        answer = onward.getresponse()
        return self.answer(answer.status, answer.read())


def proxy(at):
    with socketserver.ThreadingUnixStreamServer(at, Handler) as server:
        print(f"Starting to serve on {at}", flush=True)
        server.serve_forever(0.05)


def main(words):
    append("calls", json.dumps(words))
    if "proxy" in words:
        proxy(next(word for word in words if word.startswith("--unix-socket=")).partition("=")[2])
    for n, rule in enumerate(json.loads((PLACE / "rules.json").read_text())):
        if not set(rule["words"]) <= set(words):
            continue
        done = PLACE / f"answered-{n}"
        times = int(done.read_text()) if done.exists() else 0
        done.write_text(str(times + 1))
        status, output, complaint = rule["answers"][min(times, len(rule["answers"]) - 1)]
        sys.stdout.write(output)
        sys.stderr.write(complaint)
        return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
