"""A cluster with the released operator on it, for the benchmarks that need one; taken down where it was brought up here."""
import contextlib
import os
import pathlib
import sys

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(E2E))
from harness.environment import SYSTEM, World  # noqa: E402

__all__ = ["SYSTEM", "installed", "namespace", "weigh_pods"]

# Of processor time, where 1024 is what one thread outside has.
PODS_WEIGHT = 4 * 1024


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


def weigh_pods():
    """Gives the pods about half of the processor where it does not do for all.

    A kubelet's node has its pods in a cgroup that weighs 1024 for each processor, all of the system in one of 1024. Here
    the API server, etcd and the benchmark have 1024 for each thread, and all pods together as much as one.
    """
    name = os.environ.get("PP_CLUSTER", "precisionprobe-e2e")
    old = pathlib.Path(f"/sys/fs/cgroup/cpu/{name}/cpu.shares")
    if old.exists():
        old.write_text(str(PODS_WEIGHT), encoding="ascii")
    else:
        pathlib.Path(f"/sys/fs/cgroup/{name}/cpu.weight").write_text(str(PODS_WEIGHT * 100 // 1024), encoding="ascii")


@contextlib.contextmanager
def namespace(world, name):
    """A namespace of the benchmark's own, deleted afterwards."""
    world.cluster.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        world.cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)
