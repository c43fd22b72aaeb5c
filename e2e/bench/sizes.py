"""Does the budget hold where a model has many layers, or blocks in blocks? On the CPU, by the processor time of the
training's thread: a plain process, one with the idle hook, and that one in a session, in turn.

usage: sizes.py wide|nested [--rounds N] [--seconds S]; one JSON line per figure. README.md says more.
"""
import statistics
import sys

import lab
import overhead

IDLE_LIMIT = 0.3  # percent


def percent(hooked, plain):
    return (statistics.fmean(hooked) / statistics.fmean(plain) - 1) * 100


def in_turn(plain, hooked, args):
    """Percent that the idle hook's blocks take longer than the plain ones beside them."""
    found = []
    for i in range(args.turns):
        took = {}
        for trainer in (plain, hooked)[::-1 if i % 2 else 1]:
            took[trainer] = statistics.median(lab.times(trainer.ask("run", seconds=args.block)))
        found.append((took[hooked] / took[plain] - 1) * 100)
    return found


def session(hooked, ring, args):
    """(the training's reply, what the session's batches hold)."""
    with lab.Session(ring, budget=args.budget) as agent:
        reply = hooked.ask("run", seconds=args.seconds)
        batches = agent.stop()
    hooked.ask("until", state="OFF")
    return reply, batches


def measured(args):
    """What the trainer is, and what was found in each round."""
    found, environment = [], {"BENCH_CLOCK": "thread", "OMP_NUM_THREADS": "1"}
    with lab.Ring() as ring, lab.Trainer(args, environment=environment) as plain, \
            lab.Trainer(args, ring=ring, environment=environment) as hooked:
        about = [trainer.ask("warm", steps=8, chunk=0.1) for trainer in (plain, hooked)][0]
        for _ in range(args.rounds):
            idle = in_turn(plain, hooked, args)
            before = lab.times(plain.ask("run", seconds=args.seconds / 2))
            reply, batches = session(hooked, ring, args)
            beside = before + lab.times(plain.ask("run", seconds=args.seconds / 2))
            whole = sum(us for us, *_ in reply["chunks"]) * reply["steps"]
            found.append({"idle": idle, "session": percent(lab.times(reply), beside), "plain": beside, "us": whole,
                          "captures": [more for _, more in overhead.excess(reply)],
                          "layers": len({layer["id"] for b in batches for layer in b["layers"]}), **lab.sampled(batches)})
    return about, found


def main():
    args = lab.arguments(__doc__, models=("wide", "nested"), rounds=(3, "rounds, each with a session"),
                         block=(2.0, "seconds of a block, of the plain process or of the idle hook"),
                         turns=(10, "blocks of each in a round"), seconds=(60.0, "seconds of a session"),
                         budget=(1.0, "its budget, percent"))
    args.device = "cpu"
    about, rounds = measured(args)
    more = {"model": args.model, "rounds": len(rounds)}
    lab.figure("machine", about["device"], torch=about["torch"], layers=rounds[0]["layers"],
               step_ms=statistics.median(us for r in rounds for us in r["plain"]) / 1e3, **more)
    value, interval = lab.of_groups([r["idle"] for r in rounds])
    lab.figure("slowdown, idle hook", value, "%", interval, limit=IDLE_LIMIT, **more)
    value, interval = lab.of_median([r["session"] for r in rounds])
    lab.figure("slowdown, session average", value, "%", interval, limit=args.budget, seconds=args.seconds, **more)
    captures, whole = [us for r in rounds for us in r["captures"]], sum(r["us"] for r in rounds)
    lab.figure("slowdown, session average, by its captures", 100 * sum(captures) / (whole - sum(captures)), "%",
               lab.interval(lambda: 100 * sum(lab.redraw(captures)) / (whole - sum(captures))), limit=args.budget,
               captures=len(captures), captures_s=sum(captures) / 1e6, processor_s=whole / 1e6, **more)
    value, interval = lab.of_median([r["cost_ns"] / args.seconds / 1e7 for r in rounds])
    lab.figure("the session's cost as the hook says", value, "%", interval, limit=args.budget,
               cost_s=sum(r["cost_ns"] for r in rounds) / 1e9, marked_steps=sum(r["steps"] for r in rounds),
               dropped=sum(r["dropped"] for r in rounds), **more)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
