"""The hook on a real GPU: losses with and without it, and its times against CUDA events recorded by hand.

usage: cuda_hook.py --hook HOOK_FOLDER --agent 'COMMAND OF precisionprobe-agent' [--steps N]

Prints one JSON line per figure. Needs torch with CUDA; no cluster. HOOK_FOLDER holds python/sitecustomize.py. The same
training runs three times in processes of their own: plain, with the hook while an agent samples (batches to standard
output), and plain with events of its own around two layers, which is the independent record.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

TRAINING = r'''
import json, os, sys, time
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
events = len(sys.argv) > 2 and sys.argv[2] == "events"
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(100000, 64, mode="sum")
        self.bot = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 64))
        self.top = nn.Sequential(nn.Linear(128, 8192), nn.ReLU(inplace=True), nn.Linear(8192, 8192), nn.ReLU(),
                                 nn.Linear(8192, 1))
    def forward(self, x, index, offset):
        return self.top(torch.cat([self.bot(x), self.emb(index, offset)], 1))
torch.backends.cuda.matmul.allow_tf32 = False
model = Model().cuda()
# Deterministic everywhere: the embedding's weight gradient of EmbeddingBag has no deterministic kernel, so it is fixed.
model.emb.weight.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.MSELoss()
batch = 4096
g = torch.Generator().manual_seed(2)
x = torch.randn(batch, 512, generator=g).cuda()
index = torch.randint(0, 100000, (batch * 20,), generator=g).cuda()
offset = torch.arange(0, batch * 20, 20).cuda()
y = torch.randn(batch, 1, generator=g).cuda()
record = {"top.2": [], "bot.0": []}
if events:
    for name, module in (("top.2", model.top[2]), ("bot.0", model.bot[0])):
        def pre(m, a, name=name):
            e = torch.cuda.Event(enable_timing=True); e.record(); record[name].append([e])
        def post(m, a, o, name=name):
            e = torch.cuda.Event(enable_timing=True); e.record(); record[name][-1].append(e)
        module.register_forward_pre_hook(pre); module.register_forward_hook(post)
losses = []
begin = time.time()
for step in range(int(sys.argv[1])):
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(x, index, offset), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        losses.append(loss.item().hex())
torch.cuda.synchronize()
seconds = time.time() - begin
times = {n: [a.elapsed_time(b) for a, b in r][20:] for n, r in record.items()}
print(json.dumps({"losses": losses, "seconds": seconds, "times": times, "tables": [
    sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()),
    len(torch.nn.modules.module._global_forward_hooks) + len(torch.nn.modules.module._global_forward_pre_hooks)]}))
'''

SETTINGS = {"version": 1, "session": {"uid": "bench", "namespace": "bench", "name": "bench"},
            "endpoint": "wss://localhost/v1/ingest", "layers": {"include": [], "exclude": [], "types": [], "depth": 0},
            "phases": ["Forward", "Backward", "Optimizer"], "steps": {"skip": 0, "max": 0}, "durationSeconds": 6,
            "overheadBudgetPercent": 50, "stretch": {"seconds": 2}}


def figure(name, **values):
    print(json.dumps({"figure": name, **values}), flush=True)


def train(steps, *mode, env=None):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH",)}
    environment.update(env or {})
    result = subprocess.run([sys.executable, "-c", TRAINING, str(steps), *mode], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"the training failed:\n{result.stderr[-3000:]}")
    if result.stderr.strip():
        figure("standard_error_of_training", text=result.stderr[-500:])
    return json.loads(result.stdout.strip().splitlines()[-1])


def hooked(args):
    with tempfile.TemporaryDirectory() as folder:
        ring = os.path.join(folder, "ring")
        os.mkdir(ring)
        os.chmod(ring, 0o777)
        settings = os.path.join(folder, "settings.json")
        with open(settings, "w", encoding="utf-8") as file:
            json.dump(SETTINGS, file)
        dump = open(os.path.join(folder, "dump"), "w+", encoding="utf-8")
        agent = subprocess.Popen([*shlex.split(args.agent), "run", "--dump", f"--ring={ring}", f"--settings={settings}"],
                                 stdout=dump, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        result = train(args.steps, env={"PYTHONPATH": os.path.join(args.hook, "python"), "PRECISIONPROBE_RING": ring})
        agent.terminate()
        try:
            _, said = agent.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            agent.kill()
            _, said = agent.communicate()
        dump.seek(0)
        batches = [json.loads(line) for line in dump if line.startswith("{")]
        return result, batches, said


def intervals(batches):
    """(layer name, phase) -> durations in ms."""
    found = {}
    for batch in batches:
        names = {layer["id"]: layer["name"] for layer in batch.get("layers", [])}
        names[0] = "optimizer"
        data = batch.get("intervals")
        if not data:
            continue
        for layer, phase, duration in zip(data["layer"], data["phase"], data["duration"]):
            found.setdefault((names[layer], phase), []).append(duration / 1e6)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hook", required=True)
    parser.add_argument("--agent", required=True)
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()
    plain = train(args.steps)
    probed, batches, said = hooked(args)
    own = train(args.steps, "events")
    figure("losses_identical", value=plain["losses"] == probed["losses"], compared=len(plain["losses"]))
    figure("hook_tables_after", module=probed["tables"][0], everywhere=probed["tables"][1])
    figure("seconds", plain=plain["seconds"], probed=probed["seconds"])
    found = intervals(batches)
    grids = sum("grid" in b for b in batches)
    figure("batches", count=len(batches), grids=grids, clocks=sorted({b["process"]["clock"] for b in batches}),
           steps=sum(len(b["steps"]["number"]) for b in batches), dropped=sum(b["dropped"] for b in batches))
    if batches:
        cost = sum(b["cost"]["nanoseconds"] for b in batches)
        marks = sum(b["cost"]["marks"] for b in batches)
        figure("host_ns_per_mark", value=cost / max(marks, 1), marks=marks)
        steps = [d / 1e6 for b in batches for d in b["steps"]["duration"]]
        figure("step_ms", probed=statistics.median(steps) if steps else None, plain=plain["seconds"] * 1e3 / args.steps)
    for key in sorted(found):
        figure("interval_ms", layer=key[0], phase=key[1], median=statistics.median(found[key]), count=len(found[key]))
    for name, times in own["times"].items():
        ours = found.get((name, 0))
        if ours:
            figure("forward_ms_against_own_events", layer=name, ours=statistics.median(ours),
                   events=statistics.median(times), ratio=statistics.median(ours) / statistics.median(times))
    if not batches:
        print(said[-3000:], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
