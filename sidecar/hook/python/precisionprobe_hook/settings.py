"""What the hook learns from the agent's control file and from the process around it."""
import json
import os

_CONTROL = "control.json"
_LIMIT = 1 << 20


def read(directory):
    """The agent's control file, or {} where there is none that can be read."""
    try:
        with open(os.path.join(directory, _CONTROL), encoding="utf-8") as file:
            control = json.loads(file.read(_LIMIT))
    except (OSError, ValueError):
        return {}
    return control if isinstance(control, dict) else {}


def _number(name, default):
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def rank(torch):
    """(rank, world size): the process group's where there is one, else the environment's."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    world = max(1, _number("WORLD_SIZE", 1))
    return min(max(0, _number("RANK", 0)), world - 1), world


def _own(uuids):
    """Of a pod's GPUs the one of this process, where every process of the pod has one."""
    local = _number("LOCAL_RANK", -1)
    if len(uuids) > 1 and _number("LOCAL_WORLD_SIZE", 0) == len(uuids) and 0 <= local < len(uuids):
        return [uuids[local]]
    return uuids


def gpus(torch, number=None):
    """
    UUIDs of the GPUs that this process uses; empty where they cannot be told. `number`: CUDA's of the one that its modules are
    on, where that is known; else the current one is taken for it.
    """
    if torch.cuda.is_initialized():
        try:
            device = torch.cuda.get_device_properties(torch.cuda.current_device() if number is None else number)
            uuid = str(device.uuid)
            kind = "MIG-" if " MIG " in device.name else "GPU-"  # what torch leaves out
            return [uuid if uuid.startswith(("GPU-", "MIG-")) else kind + uuid]
        except (AssertionError, AttributeError, RuntimeError):
            pass  # a torch that does not tell UUIDs: as without CUDA
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    uuids = [part.strip() for part in visible.split(",")]
    return _own([uuid for uuid in uuids if uuid.startswith(("GPU-", "MIG-"))][:16])


def isolation(control):
    """(ns of a dwell, ns of pauses in all, bytes that may be kept) where layers are to be replayed, else None."""
    wanted = control.get("isolation")
    if not isinstance(wanted, dict):
        return None
    found = [wanted.get(name) for name in ("dwellMs", "maxPauseMs", "memoryMiB")]
    if not all([type(number) is int and 0 < number <= 1 << 24 for number in found]):
        return None
    return found[0] * 1000000, found[1] * 1000000, found[2] << 20


def sampling_period(control):
    """ns between samples of the GPU, where the session wants them, else 0."""
    fine = control.get("fine")
    period = fine.get("periodNs") if isinstance(fine, dict) else None
    return period if type(period) is int and 1000 <= period <= 1000000 else 0
