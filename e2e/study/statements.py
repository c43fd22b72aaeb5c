"""What the paper says of DLRM, ResNeXt and GPT-2, each as a question to results. No I/O.

`runs` are {"dlrm": rows, "resnext": rows, "gpt2": rows} with the rows of one GPU as the HTTP API has them. Each function gives
(whether it holds: True, False, or None where that is not known; the figures that say so, a text). A difference counts from three
of its standard errors on.
"""
import math

COUNTS = 3  # standard errors
LOOKED_AT = ("Linear", "ReLU", "EmbeddingBag", "Sigmoid", "MSELoss")  # the types of layers that the paper looks at in DLRM
ABOUT = 0.2  # alike, as the paper has it of three bars: within a fifth of the largest


def layers(rows, phase, *types):
    return [row for row in rows if row["kind"] == "layer" and row["phase"] == phase and (not types or row["type"] in types)]


def job(rows, metric):
    row, = (row for row in rows if row["kind"] == "job")
    return value(row, metric)


def value(row, metric):
    """(mean, standard error), or None."""
    told = (row["metrics"] or {}).get(metric) or {}
    return None if told.get("mean") is None else (told["mean"], told.get("stderr") or 0.0)


def time_of(row):
    """ns in which its kernels ran; where that is not known, ns between its begin and its end."""
    return (row["total_ns"] if row["busy_ns"] is None else row["busy_ns"]) or 0


def over(rows, metric):
    """The mean over these rows by the time in which their kernels ran, with its standard error; None where none has it."""
    told = [(time_of(row), *value(row, metric)) for row in rows if value(row, metric)]
    time = sum(t for t, _, _ in told)
    if not time:
        return None
    return sum(t * mean for t, mean, _ in told) / time, math.hypot(*(t * error for t, _, error in told)) / time


def exceeds(a, b):
    """Whether a is more than b; None where one is not known, or they are too near each other."""
    if a is None or b is None:
        return None
    apart = a[0] - b[0]
    error = math.hypot(a[1], b[1])
    return apart > 0 if abs(apart) > COUNTS * error else None


def shown(told, percent=True):
    if told is None:
        return "not measured"
    scale = 100 if percent else 1
    return f"{scale * told[0]:.1f} ± {scale * told[1]:.1f} %"


def time_by_type(rows, *phases):
    """{type: ns} of the layers that the paper looks at."""
    time = {}
    for row in (row for phase in phases for row in layers(rows, phase, *LOOKED_AT)):
        time[row["type"]] = time.get(row["type"], 0) + time_of(row)
    return time


def shares(time):
    """As a text, the largest first."""
    return ", ".join(f"{kind} {100 * time[kind] / sum(time.values()):.2f} %" for kind in sorted(time, key=time.get, reverse=True)) \
        + " of these layers' time"


def every(answers):
    """All hold, one does not, or it is not known."""
    answers = list(answers)
    return False if False in answers else None if None in answers else True


def embeddings_use_most(runs, phase):
    time = time_by_type(runs["dlrm"], phase)
    return max(time, key=time.get) == "EmbeddingBag", f"{shares(time)} in {phase}"


def sigmoid_and_loss_use_least(runs):
    time = time_by_type(runs["dlrm"], "forward", "backward")
    return set(sorted(time, key=time.get)[:2]) == {"Sigmoid", "MSELoss"}, shares(time)


def embeddings_keep_sms_busy(runs):
    """High: above the mean of DLRM's other layers, forward, in both."""
    rows = runs["dlrm"]
    others = [row for row in layers(rows, "forward") if row["type"] != "EmbeddingBag"]
    told = {metric: (over(layers(rows, "forward", "EmbeddingBag"), metric), over(others, metric))
            for metric in ("sm_active", "sm_occupancy")}
    return every(exceeds(*pair) for pair in told.values()), "; ".join(
        f"{metric} {shown(a)}, other layers {shown(b)}" for metric, (a, b) in told.items())


def embeddings_move_data(runs):
    rows = runs["dlrm"]
    ours = over(layers(rows, "forward", "EmbeddingBag"), "dram_active")
    others = over([row for row in layers(rows, "forward") if row["type"] != "EmbeddingBag"], "dram_active")
    return exceeds(ours, others), f"dram_active {shown(ours)}, other layers {shown(others)}"


def dlrm_is_idle_more(runs):
    told = {name: job(rows, "gpu_util") for name, rows in runs.items()}
    return every(exceeds(told[name], told["dlrm"]) for name in ("resnext", "gpt2")), ", ".join(
        f"{name} {shown(each, percent=False)}" for name, each in told.items())


def dlrm_needs_more_memory(runs):
    told = {name: job(rows, "gpu_mem") for name, rows in runs.items()}
    return every(exceeds(told["dlrm"], told[name]) for name in ("resnext", "gpt2")), ", ".join(
        f"{name} {each[0]:.0f} MiB" if each else f"{name} not measured" for name, each in told.items())


def dram_is_alike(runs):
    told = {name: job(rows, "dram_active") for name, rows in runs.items()}
    known = [each[0] for each in told.values() if each]
    alike = len(known) == len(told) and max(known) - min(known) <= ABOUT * max(known)
    return alike if len(known) == len(told) else None, ", ".join(f"{name} {shown(each)}" for name, each in told.items())


def dlrm_computes_less(runs):
    metrics = ("fp32_active", "tensor_active", "sm_active")
    told = {metric: {name: job(rows, metric) for name, rows in runs.items()} for metric in metrics}
    return every(exceeds(told[metric][name], told[metric]["dlrm"]) for metric in metrics for name in ("resnext", "gpt2")), "; ".join(
        f"{metric}: " + ", ".join(f"{name} {shown(each)}" for name, each in told[metric].items()) for metric in metrics)


STATEMENTS = (
    ("2a", "EmbeddingBag layers consume the most GPU resources during forward propagation",
     lambda runs: embeddings_use_most(runs, "forward")),
    ("2a", "Sigmoid and MSELoss layers consume the least", sigmoid_and_loss_use_least),
    ("2b", "EmbeddingBag layers show high SMActive and SMOccupancy", embeddings_keep_sms_busy),
    ("2b", "They frequently transfer data between the GPU and DRAM", embeddings_move_data),
    ("2a, 2b", "During backward propagation, the resource usage of EmbeddingBag layers is notable",
     lambda runs: embeddings_use_most(runs, "backward")),
    ("III", "DLRM has lower GPU utilization than ResNeXt and GPT-2", dlrm_is_idle_more),
    ("III", "At similar parameter levels, DLRM consumes more memory", dlrm_needs_more_memory),
    ("3", "DLRM has similar DRAMActive levels as ResNeXt and GPT-2", dram_is_alike),
    ("3", "DLRM consumes less computational GPU resources", dlrm_computes_less),
)
