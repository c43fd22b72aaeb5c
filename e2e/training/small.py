#!/usr/bin/env python3
"""A small training of five leaf layers, and the ways in which trainings begin and end.

For a seed the losses are the same to the last bit. It prints one line per step and nothing that differs from run to run,
so that all of what two runs print can be compared. It knows no profiler.
"""
import argparse
import importlib
import os
import signal
import subprocess
import sys
import threading
import time

STEPS = 60
BATCH = 256
MARKED = 10  # steps after which --mark is there
FILLED = 512  # MiB


def arguments(words):
    parser = argparse.ArgumentParser(description="Train five layers on seeded noise.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=1)
    needs = parser.add_argument_group("what has to be there, or it ends with 4 before it trains")
    needs.add_argument("--imports", action="append", default=[], metavar="MODULE", help="its VALUE is printed")
    needs.add_argument("--expect", action="append", default=[], metavar="NAME=VALUE", help="of the environment")
    needs.add_argument("--prefix", help="sys.prefix")
    way = parser.add_argument_group("who trains").add_mutually_exclusive_group()
    way.add_argument("--child", action="store_true", help="a Python that this one starts")
    way.add_argument("--fork", action="store_true", help="a fork, after torch was imported")
    way.add_argument("--thread", action="store_true", help="another thread")
    way.add_argument("--ranks", type=int, default=1, help="so many processes, data parallel; the first prints")
    way.add_argument("--workers", type=int, default=0, help="processes that load the data")
    tells = parser.add_argument_group("what others look at")
    tells.add_argument("--mark", metavar="FILE", help=f"made after {MARKED} steps")
    tells.add_argument("--stay", metavar="FILE", help="made after the last step; then it waits for its end")
    end = parser.add_argument_group("how it ends, after the last step")
    end.add_argument("--exit", type=int, default=0, metavar="STATUS")
    end.add_argument("--unless", metavar="FILE", help="with 0 if that is there; else it is made")
    end.add_argument("--raise", dest="exception", action="store_true", help="an exception")
    end.add_argument("--kill", action="store_true", help="SIGKILL")
    end.add_argument("--abort", action="store_true", help="SIGABRT")
    end.add_argument("--eat", action="store_true", help="takes memory until somebody ends that")
    end.add_argument("--fill", metavar="FILE", help=f"writes {FILLED} MiB and waits for its end")
    return parser.parse_args(words)


def look_around(args):
    """Whether all is there that was asked for."""
    for name in args.imports:
        print(f"{name} has {importlib.import_module(name).VALUE}", flush=True)
    wrong = [pair for pair in args.expect if os.environ.get(pair.partition("=")[0]) != pair.partition("=")[2]]
    if args.prefix and sys.prefix != args.prefix:
        wrong.append(f"sys.prefix={args.prefix}")
    for pair in wrong:
        print(f"not so: {pair}", flush=True)
    return not wrong


def touch(path):
    with open(path, "w", encoding="ascii"):
        pass


class Noise:
    """A data set whose samples are drawn from their number."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        import torch
        gen = torch.Generator().manual_seed(number)
        return torch.randn(BATCH, 64, generator=gen), torch.randn(BATCH, 1, generator=gen)


def batches(args, rank):
    import torch
    data = Noise(args.steps)
    if args.workers:
        return torch.utils.data.DataLoader(data, batch_size=None, num_workers=args.workers)
    return (data[args.steps * rank + number] for number in range(args.steps))


def train(args, rank=0):
    import torch
    from torch import nn
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    wrapped = nn.parallel.DistributedDataParallel(model) if args.ranks > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (inputs, wanted) in enumerate(batches(args, rank)):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(wrapped(inputs), wanted)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step={step} epoch=0 batch={step} loss={loss.item():.17g} hex={loss.item().hex()}", flush=True)
        if args.mark and step + 1 == MARKED:
            touch(args.mark)


def one_of(args, rank):
    """One rank, in a process of its own."""
    import torch
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(args.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29511",
                      LOCAL_RANK=str(rank), USE_LIBUV="0")
    torch.distributed.init_process_group("gloo")
    train(args, rank)
    torch.distributed.destroy_process_group()


def run(args):
    """Trains in the way that was asked for."""
    if args.ranks > 1:
        import torch
        processes = torch.multiprocessing.get_context("spawn")
        ranks = [processes.Process(target=one_of, args=(args, rank)) for rank in range(args.ranks)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(f"ranks ended with {[rank.exitcode for rank in ranks]}")
    elif args.thread:
        thread = threading.Thread(target=train, args=(args,))
        thread.start()
        thread.join()
    elif args.fork:
        import torch  # noqa: F401
        pid = os.fork()
        if pid == 0:
            train(args)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(f"the fork ended with {os.waitstatus_to_exitcode(status)}", flush=True)
    else:
        train(args)


def wait_for_the_end():
    while True:
        time.sleep(3600)


def eat():
    eaten = []
    while True:
        eaten.append(bytearray(16 << 20))


def fill(path):
    """Not by SIGTERM, for which a kubelet that is short of room leaves a second, or none."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(path, "wb") as file:
        for _ in range(FILLED):
            file.write(bytes(1 << 20))
    wait_for_the_end()


def end(args):
    """The exit status, where it comes to that."""
    if args.stay:
        touch(args.stay)
        wait_for_the_end()
    if args.unless and os.path.exists(args.unless):
        return 0
    if args.unless:
        touch(args.unless)
    if args.exception:
        raise RuntimeError("as asked for")
    if args.kill:
        os.kill(os.getpid(), signal.SIGKILL)
    if args.abort:
        os.abort()
    if args.eat:
        eat()
    if args.fill:
        fill(args.fill)
    return args.exit


def main():
    # The first process of a container has no default action for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = arguments(sys.argv[1:])
    if not look_around(args):
        return 4
    if args.child:
        words = [word for word in sys.argv[1:] if word != "--child"]
        return subprocess.run([sys.executable, os.path.abspath(__file__), *words], check=False).returncode
    run(args)
    return end(args)


if __name__ == "__main__":
    sys.exit(main())
