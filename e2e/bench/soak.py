"""Whether memory of trainer and agent stays flat over many sampled steps; and of the same training without the hook.

Every step is sampled, but for a few each time that CUPTI is attached anew. Resident memory is read from /proc while the training runs. The first fifth is left out: there
pools and buffers fill.
"""
import random
import statistics
import sys
import time

import lab

GROWTH = 1 << 20  # bytes over 20,000 steps that are taken as flat: 52 a step, less than two marks


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def slope(points):
    """Least squares: bytes per step."""
    x0, y0 = (statistics.mean(p[i] for p in points) for i in (0, 1))
    spread = sum((x - x0) ** 2 for x, _ in points)
    return sum((x - x0) * (y - y0) for x, y in points) / spread if spread else 0.0


def slope_interval(points, pieces=10):
    """By bootstrap over pieces of the residuals: neighbours in time are not independent."""
    b = slope(points)
    x0, y0 = (statistics.mean(p[i] for p in points) for i in (0, 1))
    rest = [y - y0 - b * (x - x0) for x, y in points]
    length = max(1, len(points) // pieces)
    draw = random.Random(1)

    def drawn():
        noise = []
        while len(noise) < len(points):
            at = draw.randrange(len(rest) - length + 1)
            noise += rest[at:at + length]
        return slope([(x, y0 + b * (x - x0) + e) for (x, _), e in zip(points, noise)])
    return lab.interval(drawn)


def soak(args, ring, steps, session=None):
    """[(steps, bytes by whom)], about one a second, until so many steps are done."""
    found = []
    with lab.Trainer(args, ring=ring) as trainer:
        trainer.ask("warm")
        if session:
            session = session()
            trainer.ask("until", state="MARKING")
        begun = trainer.ask("memory")["steps"]
        while not found or found[-1][0] < steps:
            trainer.ask("run", seconds=args.every)
            memory = trainer.ask("memory")
            whose = {"trainer": resident(trainer.pid),
                     **{"gpu " + k: memory[k] for k in ("allocated", "reserved", "used") if k in memory}}
            if session:
                whose["agent"] = resident(session.agent.pid)
            found.append((memory["steps"] - begun, whose))
    return found, session


def print_growth(found, who, args, **more):
    points = [(steps, whose[who]) for steps, whose in found if who in whose]
    points = points[len(points) // 5:]
    if len(points) < 5:
        lab.figure("growth over 20,000 steps, " + who, None, "bytes", why="too few points", **more)
        return
    value, (low, high) = slope(points) * 20000, slope_interval(points)
    lab.figure("growth over 20,000 steps, " + who, value, "bytes", [low * 20000, high * 20000], limit=GROWTH,
               holds=high * 20000 <= GROWTH, first=points[0][1], last=points[-1][1], points=len(points), **more)


def main():
    args = lab.arguments(__doc__, models=("dlrm", "resnet50", "gpt"), steps=(20000, "sampled steps"),
                         control=(5000, "steps of the training without the hook"), every=(1.0, "seconds between looks"))
    begun = time.monotonic()
    with lab.Ring() as ring:
        found, session = soak(args, ring, args.steps, lambda: lab.Session(ring, budget=100, capture=3600))
        with session:
            held = lab.sampled(session.stop())
    lab.figure("sampled", held["steps"], "steps", model=args.model, seconds=time.monotonic() - begun,
               dropped=held["dropped"], clocks=held["clocks"], of=found[-1][0],
               holds=held["steps"] >= 0.99 * found[-1][0])
    for who in ("trainer", "agent", "gpu allocated", "gpu reserved", "gpu used"):
        if who in found[-1][1]:
            print_growth(found, who, args, model=args.model, hook="sampling")
    if args.control:
        print_growth(soak(args, None, args.control)[0], "trainer", args, model=args.model, hook="absent")


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
