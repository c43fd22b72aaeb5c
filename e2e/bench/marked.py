"""What lengthens a marked step: the marks, the records of kernels, or the samples; and what all together do.

One process with the hook. Blocks in which each step is marked, with all layers, one in --every of them or a single one,
each without PM sampling and with it at each period of --periods, between idle blocks; in turns, --rounds times. A figure
is how much longer a step of such a block takes than those of the idle blocks beside it, in us. README.md says more.
"""
import statistics
import sys

import lab

CAPTURE = 3600  # s: the block is one capture


def layers_of(hooked, ring):
    """The names of the training's layers, in the order in which the agent knows them."""
    with lab.Session(ring, budget=100, capture=CAPTURE) as agent:
        hooked.ask("until", state="MARKING")
        hooked.ask("run", seconds=1)
        batches = agent.stop()
    hooked.ask("until", state="OFF")
    return list(dict.fromkeys(layer["name"] for batch in batches for layer in batch.get("layers", [])))


def block(hooked, ring, args, include, period):
    """us of a step, marked and idle, and what the hook says that one costs; None where none was marked throughout."""
    before = lab.times(hooked.ask("run", seconds=args.block))
    with lab.Session(ring, budget=100, capture=CAPTURE, include=include, fine=period) as agent:
        hooked.ask("until", state="MARKING")
        hooked.ask("run", seconds=1.5)  # the sampler opens, and the capture begins anew
        reply = hooked.ask("run", seconds=args.block)
        batches = agent.stop()
    hooked.ask("until", state="OFF")
    after = lab.times(hooked.ask("run", seconds=args.block))
    marked = lab.times(reply, "MARKING")
    if not marked:
        return None
    held = lab.sampled(batches)
    return {"extra": statistics.median(marked) - statistics.median(before + after), "idle": statistics.median(before + after),
            "marks": held["marks_of_a_step"], "said": (held["cost_of_a_step_ns"] or 0) / 1e3, "sampled": held["fine"]}


def main():
    args = lab.arguments(__doc__, models=("dlrm", "resnet50", "gpt"), every=(12, "of so many layers one is marked"),
                         periods=("50000", "ns between samples, one list"), rounds=(3, "of all"),
                         block=(2.0, "seconds of a block"))
    periods = [0, *map(int, args.periods.split(","))]
    with lab.Ring() as ring, lab.Trainer(args, ring=ring) as hooked:
        about = hooked.ask("warm")
        names = layers_of(hooked, ring)
        kinds = {"all": (), f"one in {args.every}": names[::args.every], "one": names[:1]}
        found = {(kind, period): [] for kind in kinds for period in periods}
        for _ in range(args.rounds):
            for (kind, period), list_ in found.items():
                value = block(hooked, ring, args, kinds[kind], period)
                list_.extend([value] if value else [])
    lab.figure("machine", about["device"], torch=about["torch"], model=args.model, layers=len(names))
    for (kind, period), list_ in found.items():
        extra = [value["extra"] for value in list_]
        lab.figure("longer marked step", statistics.median(extra) if extra else None, "us",
                   (min(extra), max(extra)) if extra else None, layers=kind, period_us=period / 1e3,
                   **{key: statistics.median(v[key] or 0 for v in list_) for key in ("idle", "marks", "said", "sampled")
                      if list_})


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
