"""Whether a session changes any bit of a training's losses.

Each training runs twice without the hook and once in a session, in processes of its own, with deterministic settings:
the two without it must agree for the third to say anything. One JSON line per training.
"""
import socket
import sys

import lab

MODELS = ("dlrm", "resnet50", "gpt", "gpt-amp-checkpoint", "gpt-compile", "gpt-reduce-overhead", "resnet50-ddp",
          "gpt-fsdp2")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ranks(model):
    """The environment of each process of a training."""
    if not lab.distributed(model):
        return [{}]
    port = str(free_port())
    return [{"RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
             "USE_LIBUV": "0"}  # which some builds of torch lack
            for i in range(2)]


def losses(args, model, ring=None):
    """(losses of each rank, the hook's state in each at the end)."""
    trainers = [lab.Trainer(args, model, ring, deterministic=True, environment=env, backend=args.backend)
                for env in ranks(model)]
    try:
        for trainer in trainers:
            trainer.ready()
        for trainer in trainers:
            trainer.tell("losses", steps=args.steps)
        replies = [trainer.reply("losses") for trainer in trainers]
    finally:
        for trainer in trainers:
            trainer.quit()
    return [r["losses"] for r in replies], [r["state"] for r in replies]


def in_session(args, model):
    """Sampling begins after a tenth of the steps, and goes on to the end."""
    with lab.Ring() as ring, lab.Session(ring, budget=100, capture=1, skip=args.steps // 10) as session:
        found, states = losses(args, model, ring)
        batches = session.stop()
        return found, states, {**lab.sampled(batches), **lab.shares(batches)}, session.said()


def differing(a, b):
    """The first step whose loss differs; None where none does."""
    return next((i for x, y in zip(a, b) for i, (p, q) in enumerate(zip(x, y)) if p != q), None)


def compare(args, model):
    plain, _ = losses(args, model)
    again, _ = losses(args, model)
    probed, states, held, said = in_session(args, model)
    reproducible = plain == again
    identical = plain == probed
    aside = next((line for line in said.splitlines() if "not profiled" in line), None)
    lab.figure("losses identical", identical, model=model, holds=identical and reproducible and held["steps"] > 0,
               reproducible_without=reproducible, steps=args.steps, processes=len(plain),
               sampled_steps=held["steps"], marks_of_a_step=held["marks_of_a_step"],
               dropped=held["dropped"], clocks=held["clocks"], no_busy_because=held["no_busy_because"],
               phases_percent=held["phases_percent"], layer_types=held["layer_types"],
               states_at_end=states, first_difference=differing(plain, probed),
               first_difference_without=differing(plain, again), last_loss=float.fromhex(plain[0][-1]), aside=aside)


def main():
    args = lab.arguments(__doc__, models=MODELS + ("all",), steps=(200, "steps"),
                         backend=("inductor", "backend of torch.compile"))
    for model in MODELS if args.model == "all" else (args.model,):
        try:
            compare(args, model)
        except RuntimeError as error:
            lab.figure("losses identical", None, model=model, holds=False, why=str(error)[-1500:])
    return lab.status()


if __name__ == "__main__":
    sys.exit(main())
