"""What a disturbed session has stored, held against what its agents sent and against a replay into an empty database."""
import itertools
import json
import os
import random
import re
import subprocess

from .deploy import SERVICES, build_folder, compile_preset

SENT = re.compile(r"batch sent instance=(\S+) seq=(\d+) events=(\d+)")
NS = 1_000_000_000
OPTIONS = {"window": NS // 4, "scrape": NS // 4, "lag": 0, "error": 0.05, "tolerance": 5.0}  # as in the release's values


def sent_batches(logs):
    """{(pod, instance, seq): events}, as the agents' logs have them: what is sent again is the same."""
    sent = {}
    for pod, text in logs.items():
        for instance, seq, events in SENT.findall(text):
            assert sent.setdefault((pod, instance, int(seq)), int(events)) == int(events)
    return sent


def check_counted_once(world, item, logs):
    """What the agents' logs say they sent, batch by batch, is what the store holds and what its counters say."""
    sent = sent_batches(logs)
    uid = item["metadata"]["uid"]
    rows = world.database.rows(f"SELECT t.pod_name, a.instance, a.seq, a.events, cardinality(a.layer) - coalesce((SELECT sum(g) "
                               f"FROM unnest(a.goes_on) g), 0) AS intervals FROM activity a "
                               f"JOIN target t USING (session_uid, pod_uid) WHERE session_uid = '{uid}'")
    held = {(r["pod_name"], r["instance"], r["seq"]): r["events"] for r in rows}
    assert len(rows) == len(held) and sum(held.values()) > 500
    assert held == sent
    assert all(r["intervals"] == r["events"] for r in rows if r["intervals"])
    counted = {r["pod_name"]: r["events"] for r in
               world.database.rows(f"SELECT pod_name, events FROM target WHERE session_uid = '{uid}'")}
    assert counted == {pod: sum(n for (of, _, _), n in sent.items() if of == pod) for pod in logs}
    assert item["status"]["counts"]["events"] == sum(sent.values())
    assert sum(r["dropped"] for r in world.database.rows(
        f"SELECT dropped FROM target WHERE session_uid = '{uid}'")) == 0, "nothing was given up"


# --- the same input, played into an empty database ---

def deltas(values):
    return [values[0]] + [b - a for a, b in zip(values, values[1:])] if values else []


def message(row, layers):
    """A stored batch as its agent has put it on the wire."""
    batch = {"type": "batch", "session": row["session_uid"], "instance": row["instance"], "seq": row["seq"],
             "process": {"id": row["process"], "rank": row["rank"], "worldSize": row["world_size"], "gpus": row["gpus"],
                         "hostname": row["host_name"], "python": row["python"], "torch": row["torch"],
                         "clock": row["clock"], "model": row["model"], "kernels": row["kernels"]},
             "stretch": {"id": row["stretch"], "start": row["start_ns"], "end": row["end_ns"],
                         "last": row["stretch_last"]},
             "layers": layers,
             "steps": {"number": deltas(row["step_number"]), "start": deltas(row["step_start"]),
                       "duration": row["step_duration"], "epoch": deltas(row["step_epoch"]),
                       "batch": deltas(row["step_batch"])},
             "dropped": row["dropped"], "cost": {"nanoseconds": row["cost_ns"], "marks": 0}}
    if row["grid_start"] is None:
        batch["intervals"] = {"layer": row["layer"], "phase": row["phase"], "step": deltas(row["step"]),
                              "start": deltas(row["start"]), "duration": row["duration"], "goesOn": row["goes_on"]}
    else:
        batch["grid"] = {"start": row["grid_start"], "cell": row["grid_cell"], "cells": deltas(row["grid_cells"]),
                         "layer": row["grid_layer"], "phase": row["grid_phase"], "busy": row["grid_busy"],
                         "calls": row["grid_calls"]}
    batch["steps"]["gap"] = row["step_gap"]
    kind, kernels = ("intervals", "busy") if row["grid_start"] is None else ("grid", "grid_kernels")
    batch[kind]["kernels"] = row[kernels]
    for part in ("process", "steps", kind):
        batch[part] = {key: value for key, value in batch[part].items() if value is not None}
    return batch


def batches_of(database, uid):
    """[(the pod's name, its UID, a batch of it)], in the order of their time."""
    layers = {}
    for row in database.rows(f"SELECT * FROM layer WHERE session_uid = '{uid}' ORDER BY layer"):
        layers.setdefault((row["instance"], row["process"]), []).append(
            {"id": row["layer"], "name": row["name"], "type": row["type"],
             **({} if row["parameters"] is None else {"parameters": row["parameters"]})})
    rows = database.rows(
        "SELECT a.*, p.rank, p.world_size, p.gpus, p.python, p.torch, p.clock, p.model, p.kernels, t.host_name, t.pod_name "
        "FROM activity a JOIN process p USING (session_uid, pod_uid, instance, process) "
        f"JOIN target t USING (session_uid, pod_uid) WHERE a.session_uid = '{uid}' ORDER BY a.start_ns, a.seq")
    return [(row["pod_name"], row["pod_uid"], message(row, layers.get((row["instance"], row["process"]), []))) for row in rows]


def samples_of(database, uid):
    """What was read of the session's GPUs, by GPU and metric in the order of time."""
    return database.rows(f"SELECT gpu_uuid AS gpu, metric, at_ns AS at, value FROM metric_sample WHERE gpu_uuid IN "
                         f"(SELECT unnest(gpus) FROM process WHERE session_uid = '{uid}') ORDER BY gpu_uuid, metric, at_ns")


def record(database, uid, pod, folder):
    """Writes what the session measured in a pod as `precisionprobe run -o` writes it."""
    batches = [batch for name, _, batch in batches_of(database, uid) if name == pod]
    gpus = {gpu for batch in batches for gpu in batch["process"]["gpus"]}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "batches.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(batch, separators=(",", ":")) + "\n" for batch in batches)
    with open(os.path.join(folder, "samples.jsonl"), "w", encoding="utf-8") as file:
        for (gpu, metric), some in itertools.groupby(samples_of(database, uid), key=lambda s: (s["gpu"], s["metric"])):
            of = list(some)
            if gpu in gpus:
                line = {"gpu": gpu, "metric": metric, "at": deltas([s["at"] for s in of]), "value": [s["value"] for s in of]}
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


def lines_of(database, uid):
    """Everything that the operator was given, in an order of its own and every batch twice."""
    session = database.rows(f"SELECT uid, namespace, name, method, spec FROM session WHERE uid = '{uid}'")[0]
    yield {"type": "session", "created": 1, **session}
    targets = database.rows(f"SELECT * FROM target WHERE session_uid = '{uid}'")
    for t in targets:
        yield {"type": "target", "session": uid, "pod": t["pod_uid"], "namespace": t["namespace"], "name": t["pod_name"],
               "workload": t["workload_name"]}
    batches = batches_of(database, uid) * 2
    random.Random(1).shuffle(batches)
    for _, pod, batch in batches:
        yield {"type": "batch", "pod": pod, "batch": batch}
    samples = samples_of(database, uid)
    random.Random(2).shuffle(samples)
    for row in samples:
        yield {"type": "sample", **row}
    for t in targets:
        yield {"type": "solve", "session": uid, "pod": t["pod_uid"], **OPTIONS}


# Table: columns that name a row, columns with what was found.
RESULTS = {
    "item": ("kind, layer, phase", "type, parameters, calls, total_ns, share, windows, busy_ns, idle_share, busy_reason"),
    "estimate": ("kind, layer, phase, metric",
                 "mean, stderr, windows, method, group_name, group_mean, group_stderr, reason"),
    "fit": ("metric", "r2, noise, step_variation, closure, windows, dropped_samples, repeated_samples"),
    "attribution": ("final", "windows, samples, lag_ns, lag_stderr_ns, window_ns, observed_ns, step_count, step_mean_ns, "
                             "truncated, step_ns, gap_ns"),
    "sample": ("layer, phase, first_ns", "last_ns, windows, share, gpu_util, gpu_mem, dram_active, fp32_active, sm_active, "
                                           "gpu_util_by_share, sm_active_by_share"),
}


def results(database, uid, table):
    """{what names a row: what it holds}."""
    names, values = RESULTS[table]
    names = ["pod_uid", "gpu_uuid", *names.split(", ")]
    rows = database.rows(f"SELECT {', '.join(names)}, {values} FROM {table} WHERE session_uid = '{uid}'")
    found = {tuple(row.pop(name) for name in names): row for row in rows}
    assert len(found) == len(rows) > 0, table
    return found


def check_results_of_a_replay(world, uid):
    """The same batches and samples, in another order and every batch twice, into an empty database: the same results."""
    replay(world, uid)
    again = type(world.database)(world.cluster, "replay")
    for table in RESULTS:
        ours, theirs = results(world.database, uid, table), results(again, uid, table)
        assert set(ours) == set(theirs), table
        different = [(name, ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]]
        assert not different, f"{table}: {len(different)} of {len(ours)} differ, the first: {different[0]}"
    world.database.psql("DROP DATABASE replay")


def replay(world, uid):
    """Plays the session into the database `replay`, which is empty before."""
    tool = os.path.join(build_folder(world.deployment.preset), "operator/store/tests/store_replay")
    if not os.path.exists(tool):  # the image was in the cache, from another clone
        compile_preset(world.deployment.preset)
    world.database.psql("DROP DATABASE IF EXISTS replay")
    world.database.psql("CREATE DATABASE replay")
    text = "".join(json.dumps(line) + "\n" for line in lines_of(world.database, uid))
    with world.forward(SERVICES, "pod/postgres-0", 5432) as (host, port):
        conninfo = f"host={host} port={port} dbname=replay user=precisionprobe password=precisionprobe"
        done = subprocess.run([tool, conninfo], input=text, text=True, capture_output=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
