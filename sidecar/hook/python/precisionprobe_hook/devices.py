"""Devices on which a layer's time cannot be told: it is better that there is none than a wrong one."""

_UNTIMED = "%s devices: how long a layer ran there is not known"
_SEVERAL = "several GPUs: %s"
_ELSEWHERE = "modules are on GPU %d, events on GPU %d: torch.cuda.set_device"


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
    return ""


def several(modules):
    """Whether modules are on several GPUs of this process."""
    return len(numbers(modules)) > 1


def originals(called):
    """
    What was called: of replicas, which are gone, there are the tables of forward pre-hooks, which are their originals'.
    """
    tables = {id(each) for each in called if isinstance(each, dict)}
    modules = [each for each in called if not isinstance(each, dict)]
    found = {id(each): each for each in modules}
    for wrapper in [module for module in modules if _is_spread(module)]:
        found.update({id(each): each for each in wrapper.modules() if id(each._forward_pre_hooks) in tables})
    return list(found.values())


def replicated(modules):
    """Modules that are called as replicas alone."""
    return {id(each) for wrapper in modules if _is_spread(wrapper) for each in wrapper.modules() if each is not wrapper}


def numbers(modules):
    """CUDA's of the GPUs that modules, or replicas of theirs, are on."""
    spread = [getattr(each, "index", each) for module in modules if _is_spread(module) for each in module.device_ids]
    return sorted({device.index or 0 for device in of(modules)} | {each for each in spread if type(each) is int})


def elsewhere(torch, modules):
    """
    Why events do not tell times of modules that are all on one GPU; "": they do. They are those of the current GPU, which is
    another one where a program has moved its model and no more.
    """
    on = numbers(modules)
    current = torch.cuda.current_device() if len(on) == 1 else None
    return "" if current is None or on == [current] else _ELSEWHERE % (on[0], current)


def untold(modules, uuid, clock, unrecorded):
    """
    Why nothing can be told of modules on several GPUs now; "": it can. Events have one GPU's times; `uuid` tells what
    a GPU is called, by its number.
    """
    if clock == "host":
        return _SEVERAL % "kernels are not recorded"
    if not all([uuid(number) for number in numbers(modules)]):
        return _SEVERAL % "the driver does not tell which they are"
    return unrecorded and _SEVERAL % unrecorded
