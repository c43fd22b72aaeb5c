"""Devices on which a layer's time cannot be told: it is better that there is none than a wrong one."""

_UNTIMED = "%s devices: how long a layer ran there is not known"
SEVERAL = "modules of a step are on several GPUs in one process"


def _of(parameter):
    """Some tensor classes do not say: they are somebody's own."""
    try:
        device = parameter.device
        return device if device.type not in ("cpu", "meta") else None
    except Exception:
        return None


def of(modules):
    """The devices of the modules' own parameters, the host's and those without memory left out."""
    return {_of(parameter) for module in modules for parameter in list(getattr(module, "_parameters", {}).values())} - {None}


def _is_spread(module):
    """DataParallel copies its model to further GPUs as it runs."""
    devices = getattr(module, "device_ids", None)
    return type(module).__name__ == "DataParallel" and isinstance(devices, (list, tuple)) and len(devices) > 1


def unfit(torch, modules):
    """Why the layers of a model with these modules have no times, of 63 bytes at most; "": they have."""
    devices = of(modules)
    others = sorted({device.type for device in devices} - {"cuda"})
    if others:
        return _UNTIMED % others[0][:8]
    if devices and getattr(torch.version, "hip", None):
        return _UNTIMED % "AMD"
    if len(devices) > 1 or any([_is_spread(module) for module in modules]):
        return SEVERAL
    return ""
