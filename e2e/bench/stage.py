"""A cluster with the released operator on it, for the benchmarks that need one; taken down where it was brought up here."""
import contextlib
import pathlib
import sys

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(E2E))
from harness.environment import SYSTEM, World  # noqa: E402

__all__ = ["SYSTEM", "installed", "namespace"]


@contextlib.contextmanager
def installed(keep=False, **values):
    """The World with the release preset and these chart values (a.b given as a__b)."""
    world = World("release")
    try:
        world.up()
        world.use(**values)
        yield world
    finally:
        if hasattr(world, "logs"):
            world.logs.close()
        if not keep:
            world.deployment.remove()
            world.cluster.down()


@contextlib.contextmanager
def namespace(world, name):
    """A namespace of the benchmark's own, deleted afterwards."""
    world.cluster.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        world.cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)
