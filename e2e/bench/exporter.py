"""DCGM's metrics of GPUs that are not there, for many_sessions.py: exporter.py PORT COUNT serves GPU-bench-0 and so on.

Values move between collections as a training's do, since a series that never changes costs nobody anything.
"""
import http.server
import math
import sys
import time

METRICS = {"DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_DEV_FB_USED": 40000.0, "DCGM_FI_PROF_DRAM_ACTIVE": 1.0,
           "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 1.0, "DCGM_FI_PROF_SM_ACTIVE": 1.0, "DCGM_FI_PROF_SM_OCCUPANCY": 1.0}


def exposition(count, now):
    lines = []
    for number, (metric, most) in enumerate(METRICS.items()):
        lines.append(f"# TYPE {metric} gauge")
        for gpu in range(count):
            value = most * (0.5 + 0.4 * math.sin(now / 7 + gpu + number))
            lines.append(f'{metric}{{gpu="{gpu % 8}",UUID="GPU-bench-{gpu}",device="nvidia{gpu % 8}",'
                         f'modelName="none",Hostname="node-{gpu // 8}"}} {value:.4f}')
    return "\n".join(lines) + "\n"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = exposition(self.server.count, time.time()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing."""


def main():
    server = http.server.HTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
    server.count = int(sys.argv[2])
    server.serve_forever()


if __name__ == "__main__":
    main()
