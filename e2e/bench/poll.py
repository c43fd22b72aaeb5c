"""Asks a plain HTTP path again and again and prints, a line each, how many ms the answer took; -1 where none came in 10 s.

poll.py HOST PORT PATH EVERY_MS, until it is ended. Each question has a connection of its own, as a kubelet's has.
"""
import http.client
import sys
import time


def ask(host, port, path):
    began = time.perf_counter()
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        if connection.getresponse().status >= 500:
            return -1.0
    except OSError:
        return -1.0
    finally:
        connection.close()
    return (time.perf_counter() - began) * 1e3


def main():
    host, port, path, every = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]) / 1e3
    while True:
        took = ask(host, port, path)
        print(f"{took:.2f}", flush=True)
        time.sleep(max(0.0, every - took / 1e3) if took > 0 else every)


if __name__ == "__main__":
    main()
