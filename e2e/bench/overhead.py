"""What the probe costs a training: idle, over a session at its budget, and inside a capture; and what others cost.

Pairs of processes, one without the hook and one with it, take turns for a block each: absent against idle, then
against after-a-session. In the hooked process of each pair idle blocks and sessions take turns. One JSON line per
figure; README.md says what they mean.
"""
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import lab


def mean_ratio(session, idle):
    return (statistics.mean(session) / statistics.mean(idle) - 1) * 100


def in_turn(absent, hooked, args):
    """Slowdown in percent of each block of the second process against the one of the first beside it."""
    found = []
    for i in range(args.blocks):
        order = (absent, hooked) if i % 2 == 0 else (hooked, absent)
        block = {who: statistics.median(lab.times(who.ask("run", seconds=args.block))) for who in order}
        found.append((block[hooked] / block[absent] - 1) * 100)
    return found


def session(hooked, ring, seconds, budget, capture, fine=0):
    """(chunks of the session, what its batches hold, seconds until all is out again, processor time in seconds)."""
    with lab.Session(ring, seconds=seconds, budget=budget, capture=capture, fine=fine) as agent:
        reply = hooked.ask("run", seconds=seconds * 0.99)  # it still samples then
        cpu = agent.cpu()
        out = hooked.ask("until", state="OFF")["seconds"]
        return reply, lab.sampled(agent.stop()), out, cpu


def whole_cycles(reply):
    """Times from the first capture's begin to the last one's: there the share of marked steps is the budget's own."""
    begins = [i for i, (_, before, after) in enumerate(reply["chunks"])
              if after == "MARKING" and (i == 0 or reply["chunks"][i - 1][2] != "MARKING")]
    return lab.times(reply)[begins[0]:begins[-1]] if len(begins) > 1 else []


def excess(reply, near=4):
    """[(us in all, us more than beside)] of each capture with its begin and its end: beside are the chunks before and
    after in which the hook only counted steps, so what the machine does over seconds is in both."""
    chunks, found, at = reply["chunks"], [], 0
    counting = [before == after == "COUNTING" for _, before, after in chunks]
    while at < len(chunks):
        end = at + 1
        while end < len(chunks) and counting[end] == counting[at]:
            end += 1
        beside = [chunks[i][0] for i in (*range(max(0, at - near), at), *range(end, min(len(chunks), end + near)))
                  if counting[i]]
        if not counting[at] and beside:
            us = [chunk[0] * reply["steps"] for chunk in chunks[at:end]]
            found.append((sum(us), sum(us) - len(us) * reply["steps"] * statistics.mean(beside)))
        at = end
    return found


def at_budget(hooked, ring, args):
    """Sessions one after another, each between idle blocks."""
    found, before = [], lab.times(hooked.ask("run", seconds=args.block * 2))
    for _ in range(args.sessions):
        reply, held, out, cpu = session(hooked, ring, args.seconds, args.budget, args.capture, args.fine)
        after = lab.times(hooked.ask("run", seconds=args.block * 2))
        found.append({"idle": before + after, "session": lab.times(reply), "cycles": whole_cycles(reply), **held,
                      "captures": excess(reply), "us": sum(us for us, *_ in reply["chunks"]) * reply["steps"],
                      "chunks_of": reply, "marked_chunks": len(lab.times(reply, "MARKING")),
                      "chunks": len(reply["chunks"]), "until_off_s": out, "cpu": cpu})
        before = after
    return found


def beside_captures(absent, hooked, ring, args):
    """ns of an optimizer's step, at which the hook counts, without the hook and where it only counts."""
    plain = absent.ask("step_ns")["ns"]
    with lab.Session(ring, budget=0.001, capture=args.capture) as agent:
        hooked.ask("until", state="MARKING")
        hooked.ask("until", state="COUNTING")
        counting = hooked.ask("step_ns")
        agent.stop()
    hooked.ask("until", state="OFF")
    return [counting["ns"] - plain, hooked.ask("step_ns")["ns"] - plain] if counting["state"] == "COUNTING" else None


def in_capture(hooked, ring, args):
    """Blocks that are marked throughout, between idle ones."""
    before = lab.times(hooked.ask("run", seconds=args.block))
    reply, held, _, _ = session(hooked, ring, args.block + 1, 100, 3600)
    after = lab.times(hooked.ask("run", seconds=args.block))
    marked = lab.times(reply, "MARKING")
    if not marked or not held["marks_of_a_step"]:
        return None
    return {"idle": statistics.median(before + after), "marked": marked, "marks": held["marks_of_a_step"],
            "said": held["cost_of_a_step_ns"], "clocks": held["clocks"]}


def pair(args):
    with lab.Ring() as ring, lab.Trainer(args) as absent, lab.Trainer(args, ring=ring) as hooked:
        for trainer in (absent, hooked):
            about = trainer.ask("warm")
        found = {"about": about, "idle": in_turn(absent, hooked, args)}
        found["budget"] = at_budget(hooked, ring, args)
        found["checks"] = [absent.ask("check"), hooked.ask("check")]
        found["after"] = in_turn(absent, hooked, args)
        found["stretch"] = [s for s in (in_capture(hooked, ring, args) for _ in range(args.rounds)) if s]
        found["counting"] = beside_captures(absent, hooked, ring, args)
        found["checks"].append(hooked.ask("check"))
    return found


def print_pairs(pairs, args):
    lab.figure("machine", pairs[0]["about"]["device"], torch=pairs[0]["about"]["torch"], model=args.model)
    for name, text in (("idle", "slowdown, idle hook"), ("after", "slowdown, after a session")):
        value, interval = lab.of_groups([p[name] for p in pairs])
        lab.figure(text, value, "%", interval, holds=bool(interval) and interval[0] <= 0 <= interval[1], model=args.model,
                   must="the interval contains 0", pairs=len(pairs))


def print_budget(pairs, args):
    runs = [r for p in pairs for r in p["budget"]]
    if not runs:
        return
    limit = args.limit or (1.0 if args.model == "dlrm" else 0.5)
    for name, key in (("slowdown, session average", "session"), ("slowdown, whole cycles of the budget", "cycles")):
        kept = [held for held in ([r for r in p["budget"] if r[key]] for p in pairs) if held]
        if not kept:
            lab.figure(name, None, "%", model=args.model, why="no session held two captures")
            continue

        def drawn():  # what differs among pairs, and among sessions, is in the interval, as what differs within them
            return statistics.mean(mean_ratio(lab.redraw(r[key]), lab.redraw(r["idle"]))
                                   for held in lab.redraw(kept) for r in lab.redraw(held))
        value = statistics.mean(mean_ratio(r[key], r["idle"]) for held in kept for r in held)
        lab.figure(name, value, "%", lab.widened(value, lab.interval(drawn), len(kept)), limit=limit, pairs=len(kept),
                   model=args.model, budget=args.budget,
                   capture_s=args.capture, sessions=sum(map(len, kept)), seconds=args.seconds * sum(map(len, kept)),
                   sampled_steps=sum(r["steps"] for r in kept))
    captures = [more for r in runs for _, more in r["captures"]]
    whole = sum(r["us"] for r in runs)
    if captures:
        # Of the session as it would have been without them.
        lab.figure("slowdown, session average, by its captures", 100 * sum(captures) / (whole - sum(captures)), "%",
                   lab.interval(lambda: 100 * sum(lab.redraw(captures)) / (whole - sum(captures))), limit=limit,
                   model=args.model, budget=args.budget, captures=len(captures),
                   counted_percent=100 * sum(r["cost_ns"] for r in runs) / 1e3 / (whole - sum(captures)))
    lab.figure("share of the session in captures", 100 * sum(r["marked_chunks"] for r in runs) /
               sum(r["chunks"] for r in runs), "%", model=args.model, clocks=runs[0]["clocks"],
               dropped=sum(r["dropped"] for r in runs), until_off_s=[r["until_off_s"] for r in runs])
    for who in ("agent", "sampler") if args.fine else ("agent",):
        lab.figure(f"processor time, {who}", 100 * sum(r["cpu"][who] for r in runs) / (args.seconds * len(runs)), "%",
                   model=args.model, seconds_of_each_session=[r["cpu"][who] for r in runs])
    if args.fine:
        lab.figure("fine estimates", sum(r["fine"] for r in runs), "times", model=args.model,
                   holds=all(r["fine"] for r in runs), must="some in every session")


def print_capture(pairs, args):
    groups = [s for p in pairs for s in p["stretch"]]
    if not groups:
        lab.figure("slowdown, marked step", None, "%", model=args.model, why="no chunk was marked throughout")
        return
    more = {"model": args.model, "clocks": groups[0]["clocks"]}
    extra = [[us - g["idle"] for us in g["marked"]] for g in groups]
    value, interval = lab.of_groups([[100 * us / g["idle"] for us in row] for g, row in zip(groups, extra)])
    lab.figure("slowdown, marked step", value, "%", interval, **more)
    value, interval = lab.of_groups(extra)
    idle = statistics.median(g["idle"] for g in groups)
    lab.figure("cost of a marked step", value, "us", interval, step_us=idle, **more)
    value, interval = lab.of_groups([[us * 1e3 / g["marks"] for us in row] for g, row in zip(groups, extra)])
    marks = statistics.median(g["marks"] for g in groups)
    lab.figure("cost of a mark", value, "ns", interval, marks_of_a_step=marks, **more)
    value, interval = lab.of_median([g["said"] / 1e3 for g in groups])
    lab.figure("cost of a marked step as the hook says", value, "us", interval, **more)


def print_counting(pairs, args):
    known = [p["counting"] for p in pairs if p["counting"]]
    for name, column in zip(("between captures", "after sessions"), zip(*known)):
        value, interval = lab.of_median(column)
        lab.figure("cost of a step, " + name, value, "ns", interval, model=args.model)


def print_checks(pairs, args):
    """After a session nothing is left, and a call of a module runs through the lines it runs through without a hook."""
    for p in pairs:
        absent, *hooked = p["checks"]
        for when, check in zip(("after a session at the budget", "after sessions at 100 %"), hooked):
            clean = (check["state"] == "OFF" and not check["module_tables"] and not check["optimizer_tables"] and
                     not check["hooked_modules"] and not check["hooked_parameters"] and not check["changed"])
            lab.figure("nothing is left", clean, holds=clean, when=when, model=args.model,
                       **{k: check[k] for k in check if k not in ("reply", "lines", "call_ns")})
            same = check["lines"] == absent["lines"]
            lab.figure("fast path of a module's call", same, holds=same, when=when, lines=len(check["lines"]),
                       call_ns=check["call_ns"], call_ns_absent=absent["call_ns"])


def peers(args):
    """torch.profiler and nsys beside a process that has neither: each block against the one beside it."""
    kinds = [["CPU"]] if args.device == "cpu" else [["CUDA"], ["CPU", "CUDA"]]
    with lab.Trainer(args) as plain, lab.Trainer(args) as profiled:
        for trainer in (plain, profiled):
            trainer.ask("warm")
        for kind in kinds:
            found, stop = [], []
            for _ in range(args.blocks):
                beside = statistics.median(lab.times(plain.ask("run", seconds=args.block)))
                reply = profiled.ask("profile", activities=kind, seconds=args.block)
                found.append((statistics.median(lab.times(reply)) / beside - 1) * 100)
                stop.append(reply["stop_s"] + reply["start_s"])
            value, interval = lab.of_median(found)
            lab.figure("slowdown, inside torch.profiler", value, "%", interval, peer="torch.profiler " + "+".join(kind),
                       model=args.model, start_and_stop_s=statistics.median(stop), seconds_profiled=args.block)
        value, interval = lab.of_median(in_turn(plain, profiled, args))
        lab.figure("slowdown, after torch.profiler", value, "%", interval, peer="torch.profiler", model=args.model)


def nsys(args):
    if not shutil.which("nsys") or args.device == "cpu":
        lab.figure("slowdown, under nsys", None, "%", peer="nsys", why="no nsys on PATH", model=args.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        prefix = ["nsys", "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none",
                  "--output=" + os.path.join(folder, "bench")]
        with lab.Trainer(args) as plain, lab.Trainer(args, prefix=prefix) as traced:
            for trainer in (plain, traced):
                trainer.ask("warm")
            value, interval = lab.of_median(in_turn(plain, traced, args))
    lab.figure("slowdown, under nsys", value, "%", interval, peer="nsys --trace=cuda", model=args.model)


def main():
    args = lab.arguments(__doc__, models=("dlrm", "resnet50", "gpt", *lab.COMPILED), pairs=(3, "pairs of processes"),
                         blocks=(5, "blocks of each in a pair's turns"), block=(2.0, "seconds of a block"),
                         sessions=(2, "a pair's sessions at the budget"), seconds=(30.0, "seconds of such a session"),
                         budget=(1.0, "its budget, percent"), capture=(2.0, "its least capture, seconds"),
                         rounds=(2, "blocks of marked steps in a pair"),
                         fine=(0, "ns between samples of PM sampling in those sessions; 0: without it"),
                         limit=(0.0, "limit of the session's average, percent; 0: 1 for dlrm, else 0.5"),
                         peers=(1, "1: with torch.profiler and nsys"), keep=("", "file for all that was measured"))
    pairs = [pair(args) for _ in range(args.pairs)]
    if args.keep:
        pathlib.Path(args.keep).write_text(json.dumps(pairs), encoding="utf-8")
    for say in (print_pairs, print_budget, print_capture, print_counting, print_checks):
        say(pairs, args)
    if args.peers:
        peers(args)
        nsys(args)


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
