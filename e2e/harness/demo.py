"""The main job: a cluster, the operator, real trainings, a session, a per-layer table held against the truth."""
import argparse
import glob
import os
import re
import subprocess
import sys
import time

from . import report, truth
from .cluster import CACHE, Cluster
from .database import Database
from .deploy import NAME, RELEASE, SERVICES, SYSTEM, Deployment
from .figures import draw
from .progress import LOGS, CommandError, say, step, tidy_up_on_signals, timings, wait_until
from .replay import record
from .session import WHOLE, Session, losses, manifest, pods_of

SESSION = "dlrm"
LOSSES = 15  # at least so many are compared with the twin's
SHORTEST, LONGEST = 60, 600  # s, of a session: a shorter one tells too little, and the trainings end after some 20 min


def duration(text):
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    seconds = sum(int(n or 0) * unit for n, unit in zip(parts.groups(), (3600, 60, 1))) if parts else 0
    if not SHORTEST <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not from {SHORTEST}s to {LONGEST // 60}m: a shorter session tells "
                                         "too little of the layers, and the trainings end in a longer one")
    return text


def parser():
    """e2e/demo says what they mean, before there is a Python."""
    known = argparse.ArgumentParser(prog="e2e/demo", add_help=False)
    known.add_argument("--keep", action="store_true")
    known.add_argument("--report", metavar="FILE")
    known.add_argument("--recording", metavar="FOLDER")
    known.add_argument("--duration", type=duration, default="120s")
    known.add_argument("--kubernetes-version", metavar="V")
    known.add_argument("--images", choices=["preloaded"], default="preloaded")
    known.add_argument("--registry", metavar="HOST/PATH")
    known.add_argument("--seed", type=int, default=1)
    return known


def clear(cluster):
    """Of an earlier demo that left everything up: its session and its Jobs, which cannot be changed."""
    if cluster.get("-n", SERVICES, "profilesession", SESSION):
        say("the session and the jobs of an earlier demo are replaced")
    cluster.kubectl("-n", SERVICES, "delete", f"profilesession/{SESSION}", "job/dlrm", "job/dlrm-ddp", "job/dlrm-twin",
                    "consumptionpattern/job-dlrm", "consumptionpattern/job-dlrm-ddp", "--ignore-not-found", "--cascade=foreground", "--timeout=60s")
    wait_until("the pods of an earlier demo to go", lambda: not trainings(cluster), 60)


def start_trainings(deployment, args):
    """One file with the session and the Jobs, as a user would apply it."""
    cluster = deployment.cluster
    clear(cluster)
    with step("session and trainings applied"):
        cluster.apply(manifest(SESSION, duration=args.duration, more=WHOLE) + "---\n"
                      + deployment.render("dlrm.yaml", "dlrm-ddp.yaml", "dlrm-twin.yaml"))
        wait_until("four training pods that run",
                   lambda: sum(p["status"].get("phase") == "Running" for p in trainings(cluster)) == 4, 120)


def trainings(cluster):
    return pods_of(cluster, "app in (dlrm, dlrm-twin)")


def profiled(cluster):
    return pods_of(cluster, "profile=yes")


def observed(database, session_uid):
    """Per pod the (from, to) in ns that was observed, and the rows of the session."""
    captures = database.rows(f"SELECT t.pod_name, a.start_ns, a.end_ns FROM activity a JOIN target t USING "
                              f"(session_uid, pod_uid) WHERE session_uid = '{session_uid}' AND a.dwell IS NULL "
                              "AND a.end_ns > a.start_ns ORDER BY 1, 2")
    ranges = {}
    for row in captures:
        merged = ranges.setdefault(row["pod_name"], [])
        if merged and row["start_ns"] <= merged[-1][1] + 1000:
            merged[-1] = (merged[-1][0], max(merged[-1][1], row["end_ns"]))
        else:
            merged.append((row["start_ns"], row["end_ns"]))
    rows = database.rows(f"SELECT * FROM result_detail WHERE session_uid = '{session_uid}'")
    return ranges, rows


def compare(cluster, ranges, rows):
    comparison = truth.Comparison()
    for pod, spans in ranges.items():
        # A long list of spans would not fit into a URL; the ends of what was observed are enough then.
        spans = spans if len(spans) <= 20 else [(spans[0][0], spans[-1][1])]
        item = truth.workload(truth.fetch(cluster, spans), pod)
        comparison.add_pod(pod, [r for r in rows if r["pod_name"] == pod], item)
    return comparison


def common_losses(cluster):
    """Losses of the profiled job and of its twin by step, and the steps that both have printed."""
    ours, theirs = (losses(cluster, pods_of(cluster, f"job-name={job}")[0]["metadata"]["name"])
                    for job in ("dlrm", "dlrm-twin"))
    return ours, theirs, sorted(set(ours) & set(theirs))


def check_twin(cluster):
    """The unselected twin: untouched, and bit for bit the same losses as the profiled job. Returns what is wrong."""
    twin = pods_of(cluster, "app=dlrm-twin")[0]
    names = [c["name"] for c in twin["spec"]["containers"] + twin["spec"].get("initContainers", [])]
    wrong = []
    if names != ["trainer"] or "precisionprobe.io/session" in twin["metadata"].get("annotations", {}):
        wrong.append(f"the unselected twin was changed: {names}")
    ours, theirs, common = common_losses(cluster)
    different = [n for n in common if ours[n] != theirs[n]]
    if different:
        wrong.append(f"losses differ from step {different[0]} on: {ours[different[0]]} and {theirs[different[0]]}")
    return wrong, len(common)


def show(cluster, rows, pods):
    say()
    say(cluster.kubectl("-n", SERVICES, "get", "psess").rstrip())
    say()
    say(cluster.kubectl("-n", SERVICES, "get", "consumptionpatterns").rstrip())
    for pod in pods:
        say(f"\npod {pod} (percent, GPUMem MiB; mean±standard error; in brackets: of a group below; -: not known)")
        say(report.table(rows, pod))


def profile(deployment, args):
    """Runs the session to its end; returns the report."""
    cluster = deployment.cluster
    session = Session(cluster, SESSION)
    start_trainings(deployment, args)
    with step(f"session of {args.duration}"):
        item = session.follow(timeout=900)
    cluster.kubectl("-n", SERVICES, "wait", "--for=condition=Succeeded", f"psess/{SESSION}", "--timeout=10s")
    with step("losses of the twin"):
        # The profiled jobs have done their part; without them the twin soon has enough losses to compare.
        cluster.kubectl("-n", SERVICES, "delete", "job", "dlrm-ddp", "--wait=false")
        wait_until("losses of the twin", lambda: len(common_losses(cluster)[2]) >= LOSSES, 180, every=2)
    wait_until("the patterns", lambda: len(session.get()["status"].get("patterns", [])) == 2, 30)
    cluster.kubectl("-n", SERVICES, "wait", "--for=condition=Ready", "cpat", "job-dlrm", "job-dlrm-ddp", "--timeout=30s")
    database = Database(cluster)
    ranges, rows = observed(database, item["metadata"]["uid"])
    comparison = compare(cluster, ranges, rows)
    if args.recording:
        record(database, item["metadata"]["uid"], sorted(ranges)[0], args.recording)
    wrong, common = check_twin(cluster)
    figures = comparison.figures()
    wrong += truth.failures(figures)
    show(cluster, comparison.rows, sorted(ranges))
    with step("figures"):
        drawn = draw(cluster, SERVICES, SESSION, os.path.join(LOGS, "demo-figures"))
    say(f"drawn in {os.path.dirname(drawn[0])}: {', '.join(map(os.path.basename, drawn))}")
    return {"session": item, "conditions": item["status"]["conditions"], "rows": comparison.rows,
            "result": database.rows("SELECT * FROM result"), "truth": figures, "limits": truth.LIMITS,
            "losses_compared": common, "failures": wrong, "timings": timings}


def finish(deployment, args):
    cluster = deployment.cluster
    if args.keep and deployment.image:
        own = not cluster.external
        say("\nEverything is left as it is. To look around:\n" + "  eval \"$(e2e/cluster shell-env)\"\n" * own
            + f"  kubectl -n {SERVICES} get psess,pods\n"
            f"  kubectl -n {SERVICES} exec postgres-0 -- psql -c 'SELECT * FROM result'\n"
            f"  kubectl -n {SYSTEM} port-forward service/{NAME} 9443:443   # in another terminal; then, in a browser,\n"
            f"  https://localhost:9443/page/#/session/{SERVICES}/{SESSION}   # its token:\n"
            f"  kubectl -n {SERVICES} create token reader\n"
            + ("  e2e/cluster down   # when done" if own else
               f"When done: helm uninstall -n {SYSTEM} {RELEASE}; kubectl delete namespace {SERVICES} {SYSTEM}"))
    elif cluster.started:
        with step("cluster taken down"):
            cluster.down()
    elif deployment.made:
        with step("everything of this run taken off the cluster"):
            deployment.remove()


def announce(cluster):
    """What is to come, for the person who waits."""
    built = glob.glob(os.path.join(CACHE, "kubernetes", "programs-*")) or cluster.external
    say(f"cluster: {cluster.describe()}")
    say("to come: images, services, trainings, a session, the table: "
        + ("about 3 minutes" if built else
           f"about 15 minutes on two cores, since nothing is built yet, and 11 GB in {CACHE}"))


def print_summary(result):
    t = result["truth"]
    say(f"\nAgainst the truth: job means within {t['job_error_percent']:.2f} %, memory within "
        f"{t['memory_error_percent']:.2f} %;\nlayers with {t['reported_share'] * 100:.0f} % of the step's time reported "
        f"({t['estimates']} values), {t['within_3_se'] * 100:.1f} % of them within 3 standard errors,\n"
        f"mean error {t['mean_error_points']:.2f} points, error over standard error {t['rms_z']:.2f} (rms). "
        f"{result['losses_compared']} losses bit-identical with the unprofiled twin's.")


def verdict(result):
    """(PASSED or FAILED, why)."""
    if not result:
        return "FAILED", "there is no result, for the reason above"
    if result["failures"]:
        return "FAILED", "; ".join(result["failures"])
    limits = result["limits"]
    return "PASSED", (f"job means and memory within {limits['job_error_percent']:.0f} %, at least "
                      f"{limits['reported_share'] * 100:.0f} % reported, {limits['within_3_se'] * 100:.0f} % within 3 "
                      f"standard errors, mean error below {limits['mean_error_points']:.0f} points")


def main():
    args = parser().parse_args()
    tidy_up_on_signals()
    began = time.monotonic()
    cluster = Cluster(args.kubernetes_version, args.images, args.registry)
    deployment = Deployment(cluster, seed=args.seed)
    result = None
    try:
        announce(cluster)
        cluster.up()
        if not cluster.external and not cluster.started:
            say("the cluster was up before and stays up; e2e/cluster down takes it down")
        deployment.check_free()
        deployment.load_images()
        deployment.start_services()
        deployment.install()
        result = profile(deployment, args)
        timings["all"] = round(time.monotonic() - began, 1)
        if args.report:
            report.write(args.report, result)
        print_summary(result)
    except (CommandError, TimeoutError, KeyError, subprocess.CalledProcessError) as error:
        say(f"demo: {error}")
    finally:
        finish(deployment, args)
    word, why = verdict(result)
    say(f"{word} after {time.monotonic() - began:.0f} s: {why}")
    return 0 if word == "PASSED" else 1


if __name__ == "__main__":
    sys.exit(main())
