"""Errors of estimates against a truth, per layer and phase: by class of duration, with what is covered and what closes.

Rows are (layer, phase): the truth has {"us": its busy time in a step, metric: percent}, what was told {metric: (percent,
standard error)}.
"""
import math
import statistics

import lab

METRICS = ("SMActive", "SMOccupancy", "DRAMActive", "FP32Active", "TensorActive")
# Limits: of a metric's mean error, SMActive's, and of all p95 (None: none); points.
FINE = ((1.0, 1.0, 3.0), (1.5, 2.0, None))


def fine_classes(period_us=25):
    """Classes of rows for samples that are as long: (name, us from, to, limits of mean errors, limit of p95)."""
    low, high = 10 * period_us / 25, 50 * period_us / 25
    limits = [{**dict.fromkeys(METRICS, each), "SMActive": active} for each, active, _ in FINE]
    return ((f"of {high:g} us and more", high, float("inf"), limits[0], FINE[0][2]),
            (f"of {low:g} to {high:g} us", low, high, limits[1], FINE[1][2]), (f"below {low:g} us", 0, low, {}, None))


def estimates(results, method):
    """{(layer, phase): {metric: (percent, standard error)}} of what the method told. Layers that are no modules are a part of
    `other`, as they are to a truth that knows modules only."""
    found, parts = {}, []
    for item in results["gpus"][0]["items"]:
        values = {name: (100 * e["mean"], 100 * e["standardError"]) for name, e in item["metrics"].items()
                  if item["kind"] != "job" and e.get("method") == method.lower() and e["mean"] is not None}
        if item["kind"] == "other" or item.get("type") == lab.OUTSIDE:
            parts.append((item["busyMillisecondsPerStep"] or 0, values))
        else:
            found[(item["layer"], item["phase"]) if item["kind"] == "layer" else ("", item["phase"])] = values
    found["", "other"] = together(parts)
    return found


def together(parts):
    """The values of [(ms, values)] by their times: of metrics that each part has which takes time."""
    parts = [part for part in parts if part[0] > 0]
    total = sum(ms for ms, _ in parts)
    return {name: (sum(ms * values[name][0] for ms, values in parts) / total,
                   math.hypot(*(ms * values[name][1] for ms, values in parts)) / total)
            for name in METRICS if parts and all(name in values for _, values in parts)}


def weighted(errors, share):
    """The error that so much of the time does not pass; errors: [(error, us)]."""
    passed, limit = 0.0, share * sum(us for _, us in errors)
    for error, us in sorted(errors):
        passed += us
        if passed >= limit:
            return error
    return None


def compare(told, true, metric, low, high):
    """[(error, us, how many standard errors it is, row)] of a class of rows."""
    found = []
    for key, row in true.items():
        if metric in told.get(key, {}) and metric in row and low <= row["us"] < high:
            mean, error = told[key][metric]
            off = abs(mean - row[metric])
            found.append((off, row["us"], off / error if error > 0 else float("inf"), key))
    return found


def of_rows_alike(found, same):
    """The mean error of those rows alone, and their share of the class's time."""
    like = [(error, us) for error, us, _, key in found if key in same]
    time = sum(us for _, us in like)
    return {"of_rows_as_long_under_ncu": sum(error * us for error, us in like) / time if like else None,
            "their_share_percent": 100 * time / sum(us for _, us, _, _ in found)}


def print_class(told, true, kind, page, peer, model, same=None):
    """A figure for each metric, and a line of the page. `same`: rows whose errors count by themselves too."""
    name, low, high, limits, p95_limit = kind
    whole = sum(row["us"] for row in true.values())
    there = sum(row["us"] for row in true.values() if low <= row["us"] < high)
    for metric in METRICS:
        found = compare(told, true, metric, low, high)
        if not found:
            continue
        pairs = [(error, us) for error, us, _, _ in found]
        valued = sum(us for _, us in pairs)
        mean = sum(error * us for error, us in pairs) / valued
        p95 = weighted(pairs, 0.95)
        more = {"p50": weighted(pairs, 0.5), "p95": p95, "rows": len(found), "share_of_busy_percent": 100 * there / whole,
                "of_which_valued_percent": 100 * valued / there,
                "within_2_se_percent": 100 * statistics.mean(z <= 2 for _, _, z, _ in found),
                "within_3_se_percent": 100 * statistics.mean(z <= 3 for _, _, z, _ in found),
                "worst": " ".join(max(found)[3]), "worst_error": max(found)[0], "peer": peer}
        if same is not None:
            more.update(of_rows_alike(found, same))
        limit = limits.get(metric)
        holds = None if limit is None else mean <= limit and (p95_limit is None or p95 <= p95_limit)
        lab.figure(f"error of {metric}, rows {name}", mean, "points", limit=limit, holds=holds, p95_limit=p95_limit,
                   model=model, **more)
        page.append(f"| {name} | {metric} | {len(found)} | {100 * valued / whole:.0f} % | {mean:.2f} | {p95:.2f} | "
                    f"{more['within_2_se_percent']:.0f} % | {more['worst']} ({max(found)[0]:.1f}) |")


def print_coverage(told, true, model, least, short=10):
    """Of the step's busy time: what falls into rows with a value of their own, rows below `short` us apart."""
    whole = sum(row["us"] for row in true.values())
    valued = {key: row["us"] for key, row in true.items() if told.get(key)}
    share = 100 * sum(valued.values()) / whole
    lab.figure("coverage", share, "%", must=f"at least {least}", holds=share >= least, model=model,
               **{f"in_rows_below_{short:g}_us": 100 * sum(us for us in valued.values() if us < short) / whole},
               without_a_value=sorted((" ".join(key) for key in true if not told.get(key)))[:20])


def print_fine(model, reports):
    """How sampling went, and its closure; False where there was none."""
    if not reports:
        lab.figure("PM sampling", None, model=model, holds=False, why="the results have none")
        return False
    fine = reports[0]
    lab.figure("samples on known kernels", fine["samples"] * fine["periodNs"] / 1e9, "s", model=model,
               **{k: v for k, v in fine.items() if k not in ("samples", "closure")})
    print_closure(model, fine["closure"])
    return True


def print_closure(model, closures):
    """Held-out samples against what the estimates say of them."""
    for metric, closure in closures.items():
        off = abs(closure["difference"] / closure["held"]) * 100 if closure["held"] else None
        lab.figure(f"closure of {metric}", off, "%", limit=2.0, holds=off is not None and off <= 2, model=model,
                   held=closure["held"])


def write_page(path, name, page):
    head = ("| rows | metric | number | busy time | mean error, points | p95 | within 2 SE | worst row |\n"
            "|---|---|---|---|---|---|---|---|\n")
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"## {name}\n\n{head}" + "\n".join(page) + "\n\n")
