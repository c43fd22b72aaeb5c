"""Is the step that the probe tells the training's own? How long a counted step takes, against the script's own timer over
the chunks of the same run in which nothing was marked, nor in the one before; and for what share of it the GPU idles, against
torch.profiler's kernels (GPU activity alone, in a process without the hook).

usage: undisturbed.py MODEL [--seconds S] [--period NS]; one JSON line per figure. README.md says more.
"""
import statistics
import sys

import lab

CHUNK = 1.0  # seconds between the script's waits for the GPU: at each it idles until the next step's first kernels come


def counted(batches):
    """(ns of a step, steps) of what batches tell of counted steps."""
    runs = [(ns, steps) for b in batches if "counted" in b for ns, steps in zip(b["counted"]["duration"], b["counted"]["steps"])]
    steps = sum(n for _, n in runs)
    return (sum(ns for ns, _ in runs) / steps if steps else None), steps


def marked(batches):
    """(ns of a step, ns of its kernels) of marked steps of which both are known."""
    found = [(duration, duration - gap) for b in batches
             for duration, gap in zip(b["steps"]["duration"], b["steps"].get("gap") or []) if gap >= 0]
    return [statistics.fmean(column) for column in zip(*found)] if found else (None, None)


def script_times(reply):
    """us per step of the script's chunks in which nothing was marked: (those that follow such a chunk, the others). In the
    first one after a capture CUPTI is detached, which costs the training what is the probe's."""
    plain = [before == after == "COUNTING" for _, before, after in reply["chunks"]]
    us = [chunk[0] for chunk in reply["chunks"]]
    follows = [False, *plain]
    return ([x for x, now, before in zip(us, plain, follows) if now and before],
            [x for x, now, before in zip(us, plain, follows) if now and not before])


def run(args):
    with lab.Trainer(args) as plain:
        about = plain.ask("warm")
        kernels = plain.ask("kernels", steps=args.steps)
    with lab.Ring() as ring, lab.Trainer(args, ring=ring) as hooked:
        hooked.ask("warm", chunk=CHUNK)
        with lab.Session(ring, seconds=args.seconds, budget=args.budget, capture=args.capture, fine=args.period) as agent:
            reply = hooked.ask("run", seconds=args.seconds + 1)
            batches = agent.stop()
    return about, kernels, reply, batches


def main():
    args = lab.arguments(__doc__, models=lab.MODELS + lab.LIBRARIES, seconds=(30.0, "of the session"),
                         budget=(1.0, "percent"), capture=(2.0, "its least capture, seconds"),
                         period=(50000, "ns between samples of PM sampling; 0: without it"),
                         steps=(20, "of torch.profiler"))
    about, kernels, reply, batches = run(args)
    settled, first = script_times(reply)
    script = statistics.fmean(settled) * 1e3
    ours, steps = counted(batches)
    step, busy = marked(batches)
    lab.figure("machine", about["device"], torch=about["torch"], model=args.model)
    lab.figure("counted step against the script's timer", abs(ours / script - 1) * 100, "%", limit=1, model=args.model,
               ours_ms=ours / 1e6, script_ms=script / 1e6, chunks=len(settled),
               first_chunks_ms=[round(us / 1e3, 3) for us in first], marked_ms=step / 1e6, counted=steps)
    true = 1 - kernels["ns"] / script
    lab.figure("idle share of the step", abs(max(1 - busy / ours, 0) - true) * 100, "points", limit=2, model=args.model,
               ours_percent=100 * max(1 - busy / ours, 0), true_percent=100 * true, of_marked_percent=100 * (1 - busy / step),
               kernels_ms=kernels["ns"] / 1e6, ours_kernels_ms=busy / 1e6)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
