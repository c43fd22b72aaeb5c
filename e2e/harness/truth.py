"""Holds results against what the virtual GPU knows to be true. Nothing of the probe sees this."""
import json
import math

from .deploy import SERVICES

# Column of the store -> (the exporter's series, points per unit: a point is a hundredth of the range).
SHARES = {"gpu_util": ("DCGM_FI_DEV_GPU_UTIL", 1.0), "dram_active": ("DCGM_FI_PROF_DRAM_ACTIVE", 100.0),
          "fp32_active": ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 100.0),
          "sm_occupancy": ("DCGM_FI_PROF_SM_OCCUPANCY", 100.0), "sm_active": ("DCGM_FI_PROF_SM_ACTIVE", 100.0),
          "tensor_active": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100.0)}
MEMORY = "DCGM_FI_DEV_FB_USED"
MAX_STANDARD_ERROR = 5.0  # points

LIMITS = {"job_error_percent": 2.0, "memory_error_percent": 2.0, "reported_share": 0.80, "within_3_se": 0.95,
          "mean_error_points": 4.0}


def fetch(cluster, ranges=()):
    """The truth over (from, to) pairs in ns, or of all time."""
    query = "&".join(f"from={a / 1e9:.9f}&to={b / 1e9:.9f}" for a, b in ranges)
    return json.loads(cluster.raw(f"/api/v1/namespaces/{SERVICES}/services/vgpu:truth/proxy/truth"
                                  + (f"?{query}" if query else "")))


def workload(truth, pod):
    for gpu in truth["gpus"]:
        for item in gpu["workloads"]:
            if item["pod"] == pod:
                return item
    raise KeyError(f"the virtual GPU knows no pod {pod}")


def key(row):
    return (row["layer"], row["phase"])


def watts(active):
    """What a virtual GPU draws whose SMs are active for that share (e2e/gpu/oracle.go)."""
    return 80 + 500 * active


def within_its_error(row):
    """A job's mean. What a driver calls utilisation is of a part of each window, so it is as far off as its error says."""
    if row["metric"] != "gpu_util" or row["mean"] is None or row["stderr"] is None:
        return row["mean"]
    reach = 3 * row["stderr"]
    return min(max(row["truth"], row["mean"] - reach), row["mean"] + reach)


class Comparison:
    """Rows of result_detail of one run against the truth of the same captures."""

    def __init__(self):
        self.points = []  # one per reported layer, phase and metric
        self.layer_time = {}  # (pod, metric) -> [ms of layers reported, ms of the step]
        self.jobs = []  # (pod, metric, mean, truth)
        self.rows = []

    def add_pod(self, pod, rows, item):
        """rows: result_detail of the pod; item: its workload in the truth."""
        true = {key(r): r for r in item["rows"]}
        for row in rows:
            row = dict(row)
            self.rows.append(row)
            if row["kind"] == "job" and row["metric"] == "power":
                self.jobs.append((pod, "power", row["mean"], watts(item["mean"][SHARES["sm_active"][0]])))
            if row["metric"] not in SHARES:
                if row["kind"] == "job" and row["metric"] == "gpu_mem" and row["mean"] is not None:
                    self.jobs.append((pod, "gpu_mem", row["mean"], item["mean"][MEMORY]))
                continue
            series, points = SHARES[row["metric"]]
            if row["kind"] == "job":
                row["truth"] = item["mean"][series]
                self.jobs.append((pod, row["metric"], within_its_error(row), row["truth"]))
            elif row["kind"] == "layer":
                self.add_layer(pod, row, true.get(key(row)), series, points)

    def add_layer(self, pod, row, true, series, points):
        time = self.layer_time.setdefault((pod, row["metric"]), [0.0, 0.0])
        if row["ms_per_step"] is not None:
            time[1] += row["share"] or 0.0
        if not true or row["method"] == "records":  # what kernel records say is no matter of the exporter's
            return
        # Regression tells the mean of the steps that were, the others what a layer draws in any.
        told = true["truth"] if row["method"] in ("replay", "sampling") else true.get("realised") or true["truth"]
        row["truth"] = told[series]
        if row["mean"] is None or row["stderr"] is None or row["stderr"] * points > MAX_STANDARD_ERROR:
            return
        error = (row["mean"] - row["truth"]) * points
        row["error"] = error / points
        time[0] += row["share"] or 0.0
        self.points.append((row["share"] or 0.0, error, row["stderr"] * points))

    def figures(self):
        """The figures of the run, next to their limits."""
        weight = sum(w for w, _, _ in self.points)
        errors = [abs(e) for _, e, _ in self.points]
        z = [e / s if s > 0 else math.inf for _, e, s in self.points]
        memory = [abs(mean / true - 1) * 100 for _, metric, mean, true in self.jobs if metric == "gpu_mem"]
        jobs = [abs(mean / true - 1) * 100 if mean is not None else math.inf
                for _, metric, mean, true in self.jobs if metric != "gpu_mem"]
        # What a driver calls utilisation has a period of its own: where no kernels are recorded it is mostly not told.
        shares = [done for (_, metric), (done, _) in self.layer_time.items() if metric != "gpu_util"]
        return {
            "job_error_percent": max(jobs, default=math.inf),
            "memory_error_percent": max(memory, default=math.inf),
            "reported_share": min(shares, default=0.0),
            "layers_share": min((total for _, total in self.layer_time.values()), default=0.0),
            "within_3_se": sum(abs(v) <= 3 for v in z) / len(z) if z else 0.0,
            "mean_error_points": sum(w * abs(e) for w, e, _ in self.points) / weight if weight else math.inf,
            "worst_error_points": max(errors, default=math.inf),
            "rms_z": math.sqrt(sum(v * v for v in z) / len(z)) if z else math.inf,
            "estimates": len(self.points),
        }


def failures(figures):
    """What is outside its limit, as sentences."""
    found = []
    for name, limit in LIMITS.items():
        least = name in ("reported_share", "within_3_se")
        bad = figures[name] < limit if least else figures[name] > limit
        if bad:
            found.append(f"{name} is {figures[name]:.3f}, the limit is {'at least' if least else 'at most'} {limit}")
    return found
