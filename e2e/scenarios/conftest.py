"""One cluster with everything on it for all scenarios; each leaves it as it found it. Run by e2e/test."""
import fcntl
import itertools
import os
import re
import shutil
import signal

import pytest

from harness.progress import LOGS, CommandError
from harness.environment import SERVICES, SHARED, World

# Cheap ones first, then those that mostly wait, then those that measure and want the machine for themselves; those that
# need other services later, the one that removes the release last.
ORDER = ("test_specs", "test_sessions", "test_injection", "test_troubles", "test_ingest", "test_api", "test_kubectl", "test_sidecar", "test_startup",
         "test_running_pods", "test_lease", "test_pods", "test_clocks", "test_chaos", "test_outages", "test_random_kills",
         "test_admission", "test_coarse", "test_sampling", "test_replay", "test_main_job", "test_uninstall")
FAILURES = os.path.join(LOGS, "failures")
numbers = itertools.count(1)
pytest.register_assert_rewrite("harness.replay", "harness.faults")


def stop(*_):
    """So that SIGTERM and a closed terminal, too, let the fixtures put everything back."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


def pytest_configure(config):
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    config.addinivalue_line("markers", "long: takes minutes; left out by e2e/test --quick")
    config.addinivalue_line("markers", "extended: only in e2e/test --all")
    config.addinivalue_line("markers", "intervals: brings or takes services with other intervals")
    config.addinivalue_line("markers", "measures: held against the truth; not beside other work of e2e/test")
    config.addinivalue_line("markers", "kills: restarts of the operator are part of the scenario")
    shutil.rmtree(FAILURES, ignore_errors=True)


def pytest_collection_modifyitems(items):
    if SHARED:
        items[:] = [item for item in items if "trainings" not in item.fixturenames]
    items.sort(key=lambda item: ORDER.index(item.module.__name__.rsplit(".")[-1]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """To what measures all that e2e/test runs beside it yields (harness/background.py). Where it cannot, that has to be over:
    the lock is free from then on."""
    beside, background = os.environ.get("PP_TEST_BESIDE"), os.environ.get("PP_TEST_BACKGROUND")
    measures = item.get_closest_marker("measures") is not None
    if background:
        yields(background, measures)
    elif beside and measures:
        with open(beside, encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


def yields(switch, on):
    try:
        with open(switch, "w", encoding="utf-8") as file:
            file.write("1" if on else "0")
    except FileNotFoundError:
        pass  # what ran there is over


@pytest.fixture(scope="session")
def everything():
    """The cluster, the services and the release. Taken down by e2e/test, which knows what it has started."""
    world = World(os.environ.get("PP_TEST_PRESET", "asan"))
    world.up()
    try:
        world.use()
        world.clear()
        yield world
    finally:
        if not os.environ.get("PP_TEST_KEEP"):
            take_away(world)
        world.logs.close()
    reports = world.logs.reports()
    assert not reports, f"a sanitizer spoke when the operator ended, in {reports[0][0]}:\n{reports[0][1]}"


def take_away(world):
    world.clear()
    world.deployment.remove()


@pytest.fixture
def world(everything, request):
    """Everything, with the services and values that most scenarios use; checks the operator's health afterwards."""
    if "intervals" not in request.keywords:
        everything.use()
    before = everything.restarts()
    yield everything
    reports = everything.logs.reports()
    assert not reports, f"a sanitizer spoke in {reports[0][0]}:\n{reports[0][1]}"
    if "kills" not in request.keywords:
        after = everything.restarts()
        assert {uid: n for uid, n in after.items() if n > before.get(uid, 0)} == {}, "the operator was restarted"


@pytest.fixture
def trainings(world):
    """Trainings in the services' namespace, which go with the test."""
    yield world
    reports = world.clear()
    assert not reports, f"a sanitizer spoke in the agent of {reports[0][0]}:\n{reports[0][1][-3000:]}"


@pytest.fixture
def namespace(world, request):
    """A namespace of the test's own."""
    if SHARED:
        yield SERVICES
        world.clear()
        return
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"e2e-{name}-{next(numbers)}"
    world.cluster.kubectl("create", "namespace", name)
    yield name
    world.cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("everything") or getattr(item, "funcargs", {}).get("world")
    if report.failed and world:
        folder = os.path.join(FAILURES, re.sub(r"\W+", "-", item.name))
        try:
            world.diagnose(folder)
            report.sections.append(("where to look", folder))
        except (CommandError, OSError) as error:
            report.sections.append(("where to look", f"nothing could be read: {error}"))
