"""The per-layer table for people, and the report for programs."""
import json
import os
import string
import textwrap

from .progress import LOGS

FIGURES = os.path.join(LOGS, "figures.jsonl")

ORDER = {"forward": 0, "recompute": 1, "backward": 2, "": 3}
KINDS = ("layer", "optimizer", "zero_grad", "data", "communication", "other", "idle", "job")
COLUMNS = (("sm_active", "SMActive", 100), ("sm_occupancy", "SMOcc.", 100), ("dram_active", "DRAM", 100),
           ("fp32_active", "FP32", 100), ("gpu_util", "GPUUtil", 1))
WIDTH = 119


def keep(scenario, **figures):
    """A line in the log of figures: pytest shows what a test prints only where it fails."""
    os.makedirs(LOGS, exist_ok=True)
    with open(FIGURES, "a", encoding="utf-8") as file:
        file.write(json.dumps({"scenario": scenario, **figures}) + "\n")


class Groups:
    """Letters for the groups of a table: a, b, ... z, aa, ab, ..."""

    def __init__(self):
        self.letters = {}

    def letter(self, row):
        key = f"{row['group_name']} {row['phase']}".strip()
        n = self.letters.setdefault(key, len(self.letters))
        return (string.ascii_lowercase[n // 26 - 1] if n >= 26 else "") + string.ascii_lowercase[n % 26]

    def lines(self):
        """Footnotes: what each letter stands for."""
        names = {key: self.letter({"group_name": key, "phase": ""}) for key in self.letters}
        return [line for key, letter in names.items()
                for line in textwrap.wrap(f"({letter}) {key.replace('+', ' + ')}", WIDTH, subsequent_indent="    ")]


def cell(estimate, scale, groups):
    if not estimate or (estimate["mean"] is None and estimate["group_mean"] is None):
        return "-"
    if estimate["mean"] is None:
        return f"({estimate['group_mean'] * scale:.1f}){groups.letter(estimate)}"
    if estimate["stderr"] is None:
        return f"{estimate['mean'] * scale:.1f}"
    return f"{estimate['mean'] * scale:.1f}±{estimate['stderr'] * scale:.1f}"


def table(rows, pod):
    """One pod's layers, a line per layer and phase; percent with standard errors, groups in brackets with a letter."""
    items, groups = {}, Groups()
    for row in rows:
        if row["pod_name"] == pod:
            items.setdefault((row["kind"], row["layer"], row["phase"]), {"row": row})[row["metric"]] = row
    header = f"{'layer':<16} {'type':<12} {'phase':<9} {'ms/step':>8} {'share':>6}"
    lines = [header + "".join(f" {title:>10}" for _, title, _ in COLUMNS) + f" {'GPUMem':>8}"]
    lines.append("-" * len(lines[0]))
    for name in sorted(items, key=lambda n: (KINDS.index(n[0]), n[1], ORDER[n[2]])):
        item = items[name]
        row = item["row"]
        title = row["layer"] or row["kind"]
        ms = f"{row['ms_per_step']:.1f}" if row["ms_per_step"] is not None and row["kind"] != "job" else "-"
        share = f"{row['share'] * 100:.1f}%" if row["share"] is not None and row["kind"] != "job" else "-"
        memory = (item.get("gpu_mem") or {}).get("mean")
        lines.append(f"{title:<16.16} {row['type'] or '':<12.12} {row['phase']:<9} {ms:>8} {share:>6}"
                     + "".join(f" {cell(item.get(metric), scale, groups):>10}" for metric, _, scale in COLUMNS)
                     + f" {'-' if memory is None else format(memory, '.0f'):>8}")
    return "\n".join(lines + groups.lines())


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, default=str)
        file.write("\n")
