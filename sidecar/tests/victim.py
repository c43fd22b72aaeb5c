"""A training that is hit once, by itself and at a drawn moment; one that lives prints what a test compares, as JSON.

usage: victim.py STEPS [FILE]   (at least STEPS steps, until it was hit and FILE is there)

PLAN, in the environment, is {"state": of the hook, "at": place in a step, "skip": times that it is not yet, "trainer": what
is done to this process, "agent": what to the one whose number AGENT is}. Of torchrun's ranks the first has it in its first life.

So that its losses can be compared however long it trains, it begins anew every PERIOD steps.
"""
import atexit
import json
import os
import resource
import signal
import sys
import time

PERIOD = 50
LIMIT = 120  # seconds: only a hang takes so long
SPARED = os.environ.get("RANK", "0") != "0" or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
PLAN = {} if SPARED else json.loads(os.environ.get("PLAN", "{}"))


def too_much():
    """As a container does that has hardly any memory left."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 20), resource.RLIM_INFINITY))
    torch.empty(1 << 30)


def say(line):
    """In one piece: torchrun's ranks share a pipe."""
    os.write(1, (line + "\n").encode())


def hit():
    plan = dict(PLAN)
    PLAN.clear()
    say("hit %d" % os.getpid())
    if plan.get("agent"):
        os.kill(int(os.environ["AGENT"]), signal.Signals[plan["agent"]])
    how = plan.get("trainer")
    if how == "error":
        raise ArithmeticError("the training's own")
    if how == "memory":
        too_much()
    if how == "exit":
        sys.exit(5)
    if how:
        os.kill(os.getpid(), signal.Signals[how])


def point(at):
    """Somewhere in a step: whether it is here and now."""
    if PLAN.get("at") != at or _marks.get_state() != getattr(_marks, PLAN["state"]):
        return
    PLAN["skip"] -= 1
    if PLAN["skip"] < 0:
        hit()


def at_end(state):
    if PLAN.get("state") == state:
        hit()


atexit.register(at_end, "LEFT")  # called last, when the hook has left
import torch  # noqa: E402
from torch import nn  # noqa: E402

atexit.register(at_end, "LEAVING")
if PLAN:
    from precisionprobe_hook import _marks


class Point(nn.Module):
    def forward(self, x):
        point("forward")
        if x.requires_grad:
            x.register_hook(lambda _: point("backward"))
        return x * 1.5


class SGD(torch.optim.SGD):
    def step(self, closure=None):
        point("optimizer")
        return super().step(closure)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), Point(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = [parameter.detach().clone() for parameter in model.parameters()]
    losses, steps, others = [], 0, 0
    end = time.monotonic() + LIMIT
    while steps < int(sys.argv[1]) or PLAN.get("at") or (len(sys.argv) > 2 and not os.path.exists(sys.argv[2])):
        assert time.monotonic() < end, "it was not to take so long"
        if steps % PERIOD == 0:
            torch.manual_seed(5)
            optimizer.state.clear()
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), begin):
                    parameter.copy_(value)
        loss = model(torch.ones(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        point("between")
        if steps <= PERIOD:
            losses.append(float(loss.detach()).hex())
        else:
            others += float(loss.detach()).hex() != losses[(steps - 1) % PERIOD]
    say(json.dumps({"losses": losses, "others": others, "steps": steps}))


if __name__ == "__main__":
    main()
