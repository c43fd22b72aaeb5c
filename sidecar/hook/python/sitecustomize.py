"""Python runs this at start because its folder was put on PYTHONPATH.

It does four things, and nothing more in a process that never imports torch:
- puts back the PYTHONPATH of the image, which the pod's hides;
- has precisionprobe_hook started once torch is imported;
- holds a file that says so, for a pod in which no Python does this is one to look at;
- runs the sitecustomize that this one hides, if the image or the user has one.

Pythons before 3.8, also 2.7, get the first and the last only.
"""
import os
import sys


def _absolute(path):
    """As site makes the entries of PYTHONPATH; "" is the current folder."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def _without_repeats(paths):
    return [path for i, path in enumerate(paths) if path not in paths[:i]]


def _put_back(here):
    """As if PYTHONPATH had been this folder and then the image's own from the start."""
    record = os.environ.pop("PRECISIONPROBE_ENVIRONMENT", "")  # children find it in their PYTHONPATH
    if not record:
        return
    with open(record, "rb") as file:
        text = file.read(1 << 17).partition(b"\nPYTHONPATH ")[2]
    hidden = text if str is bytes else os.fsdecode(text)
    literal = "$(PYTHONPATH)"  # in the place of what envFrom was to bring, and does not
    own = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path != literal]
    sys.path[:] = [path for path in sys.path if path != _absolute(literal)]
    at = own.index(here) + 1
    if hidden and own[at:] != hidden.split(os.pathsep):
        own.insert(at, hidden)
        at = sys.path.index(here) + 1
        sys.path[at:] = _without_repeats([_absolute(path) for path in hidden.split(os.pathsep)] + sys.path[at:])
    os.environ["PYTHONPATH"] = os.pathsep.join(own)


def _chain(here):
    """Runs the next sitecustomize on the path, as Python would have without this folder."""
    rest = [path for path in sys.path if path.rstrip("/") != here]
    if sys.version_info < (3,):
        _chain_python2(rest)
        return
    import importlib.util
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _chain_python2(rest):
    import imp

    try:
        found = imp.find_module("sitecustomize", rest)
    except ImportError:
        return
    imp.load_module("sitecustomize", *found)


_F_OFD_SETLK = 37  # fcntl has its name since 3.9
_READ_LOCK = bytes(32)  # struct flock: F_RDLCK, of the whole file


def _tell():
    """Keeps a lock on the file for as long as this process, or a fork of it, lives. Many may; no lock is waited for,
    nor what else may lie there."""
    folder = os.environ.get("PRECISIONPROBE_RING")
    if not folder:
        return
    import fcntl

    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(folder + "/loaded", flags, 0o644)
    try:
        fcntl.fcntl(file, _F_OFD_SETLK, _READ_LOCK)
    except BaseException:
        os.close(file)
        raise


_here = __file__.rpartition("/")[0]

try:
    _put_back(_here)
except Exception:  # as where there is no record
    pass

try:
    if sys.version_info >= (3, 8):
        import precisionprobe_hook.importing

        precisionprobe_hook.importing.watch()
        _tell()
except Exception:  # the training goes on without the hook
    pass

_chain(_here)
