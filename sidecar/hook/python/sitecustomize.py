"""Python runs this at start because its folder was put on PYTHONPATH.

It does two things, and nothing in a process that never imports torch:
- has precisionprobe_hook started once torch is imported;
- runs the sitecustomize that this one hides, if the image or the user has one.

Pythons before 3.8, also 2.7, get the second only.
"""
import sys


def _chain():
    """Runs the next sitecustomize on the path, as Python would have without this folder."""
    here = __file__.rpartition("/")[0]
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


try:
    if sys.version_info >= (3, 8):
        import precisionprobe_hook.importing

        precisionprobe_hook.importing.watch()
except Exception:  # the training goes on without the hook
    pass

_chain()
