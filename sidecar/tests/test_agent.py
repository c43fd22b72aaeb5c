"""The agent against a real TLS WebSocket server, with a real training as its source."""
import fcntl
import json
import os
import platform
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
from conftest import HERE, SESSION, TRAIN, layers_of, losses, needed, run, settings_of, told, undelta, until
from server import Server, certificates

ROOT = str(HERE.parents[1])
sys.path.insert(0, ROOT + "/e2e")
from harness import driver  # noqa: E402


@pytest.fixture
def server(tmp_path):
    certificates(tmp_path)
    (tmp_path / "token").write_text("first-token\n")
    s = Server(tmp_path).start()
    yield s
    s.stop()


def options(probe):
    return ["--token", str(probe.folder / "token"), "--ca", str(probe.folder / "ca.crt")]


def connect(probe, server, **changes):
    probe.configure(**{"endpoint": "wss://localhost:%d/v1/ingest" % server.port, **changes})
    return probe.start(*options(probe))


def train(probe, *arguments):
    return run(needed("PP_TORCH_PYTHON").split(":")[0], TRAIN, *arguments, environment=probe.environment())


def sent(probe):
    """{seq: events} of the agent's log: one line per batch, when it is first sent."""
    found = {}
    for line in probe.log.read_text().splitlines():
        match = re.match(r"batch sent .*seq=(\d+) events=(\d+)", json.loads(line)["message"])
        if match:
            assert int(match[1]) not in found, "logged twice"
            found[int(match[1])] = int(match[2])
    return found


def mode(probe):
    """What trainers that start now begin with."""
    return json.loads((probe.ring / "control.json").read_text())["mode"]


def stored(server):
    return {seq: events for (_, seq), events in server.stored.items()}


def test_everything_arrives_and_is_said_goodbye(probe, server):
    connect(probe, server)
    train(probe, "mixed", "100", "2.5")
    probe.finish()
    assert len(stored(server)) >= 2 and stored(server) == sent(probe)
    assert sorted(stored(server)) == list(range(len(server.stored)))
    assert server.tokens[0] == "Bearer first-token"
    until(lambda: server.byes, "the goodbye")
    assert [bye["reason"] for bye in server.byes] == ["trainer finished"]


def test_connections_cut_at_any_moment_lose_and_double_nothing(probe, server):
    server.kill_every = 2
    connect(probe, server, overheadBudgetPercent=60, stretch={"seconds": 0.05})
    train(probe, "mixed", "100", "4")
    server.kill_every = 0
    probe.finish()
    assert server.connections > 2
    assert server.received > len(server.stored)  # some came twice
    assert stored(server) == sent(probe)
    assert not server.changed, "a batch was changed between two sendings"


def test_sampling_begins_while_the_operator_is_away(probe, server):
    """The server is there only after the training is over."""
    port = server.port
    server.stop()
    agent = connect(probe, server)
    train(probe, "mixed", "60", "1.5")
    agent.send_signal(signal.SIGTERM)
    until(lambda: "leaving" in probe.log.read_text(), "the agent's wish to leave")
    server.port = port
    server.start()
    assert agent.wait(30) == 0
    assert len(server.stored) >= 1 and stored(server) == sent(probe)


def test_refused_batches_are_dropped_for_good(probe, server):
    server.refuse = {0}
    connect(probe, server)
    train(probe, "mixed", "100", "2.5")
    probe.finish()
    assert set(sent(probe)) - set(stored(server)) == {0}
    assert "refused seq=0 code=invalid field=steps" in probe.log.read_text()


def test_sampling_stops_when_it_is_not_wanted(probe, server):
    server.sampling = False
    connect(probe, server)
    until(lambda: mode(probe) == "idle", "idle")
    train(probe, "mixed", "60")
    probe.finish()
    assert server.stored == {}


def test_sampling_stops_when_the_session_is_gone(probe, server):
    """Deleted while the agent is not connected: nothing but 403 tells."""
    server.answer = (403, [])
    connect(probe, server)
    until(lambda: mode(probe) == "idle", "idle")
    train(probe, "mixed", "60")
    server.answer = None
    until(lambda: mode(probe) == "sample", "the welcome")
    probe.finish()
    assert server.stored == {}


def test_the_sampler_leaves_with_the_session(probe, server):
    """It takes memory while it is there: it rests while the session is suspended, and goes with it."""
    laid = driver.lay_out(needed("PP_HOOK") + "/../../../e2e/gpu/driver", str(probe.folder / "driver"),
                          str(probe.folder / "timeline"))
    connect(probe, server, fine={"periodNs": 100000})
    probe.training = subprocess.Popen(
        [needed("PP_TORCH_PYTHON").split(":")[-1], ROOT + "/e2e/training/kernels.py", laid, str(probe.folder / "timeline"),
         "long", "1", "100"], stdout=subprocess.DEVNULL,
        env=probe.environment({"LD_LIBRARY_PATH": laid, "NVIDIA_VISIBLE_DEVICES": driver.GPU}))
    until(lambda: any("fine" in batch for batch in server.batches), "values")
    samples, = probe.ring.glob("*.samples")
    server.say(False, session=SESSION)
    until(lambda: mode(probe) == "idle", "the suspension")
    taken = server.received
    server.say(True, session=SESSION)
    until(lambda: server.received > taken, "a batch after it")
    assert samples.exists()
    server.say(False)
    until(lambda: not samples.exists(), "the sampler's end")
    assert probe.training.poll() is None
    probe.finish()


def test_the_hook_is_told(probe, server):
    """Nothing is there, then a Python without torch, then a training; again on a new connection, and else not."""
    def told(loaded, torch, **libc):
        return {"type": "hook", "loaded": loaded, "torch": torch, **libc}

    server.asks_hook = True
    (probe.ring / "environment-0").write_text("libc glibc\nPYTHONPATH /app")
    connect(probe, server)
    first = told(False, False, libc="glibc")
    until(lambda: server.hooks == [first], "the first word")
    subprocess.run([needed("PP_TORCH_PYTHON").split(":")[-1], "-c", "pass"], check=True, env=probe.environment({}))
    until(lambda: server.hooks[1:] == [told(True, False, libc="glibc")], "a Python")
    train(probe, "mixed", "60", "1.5")
    assert server.hooks[2:] == [told(True, True, libc="glibc")]
    server.cut()
    until(lambda: server.hooks[3:] == [told(True, True, libc="glibc")], "the new connection")
    server.asks_hook = False  # an operator of an earlier release takes it for malformed
    server.cut()
    until(lambda: server.connections == 3, "an earlier release")
    train(probe, "mixed", "60", "1.5")
    probe.finish()
    assert len(server.hooks) == 4 and server.batches


def test_a_refusal_is_told(probe, server):
    """Why the one training is not profiled; not where another one of the pod is."""
    server.asks_hook = True
    connect(probe, server)
    python = needed("PP_TORCH_PYTHON").split(":")[-1]
    for pattern, refusals in (("several_gpus", {"several GPUs: kernels are not recorded"}), ("plain", {""})):
        seen = len(server.hooks)
        subprocess.run([python, str(HERE / "patterns.py"), pattern, "3000"], check=True, env=probe.environment({}),
                       stdout=subprocess.DEVNULL)
        until(lambda n=seen, r=refusals: {hook.get("refusal", "") for hook in server.hooks[n:]} >= r, "the word")
    probe.finish()
    assert server.batches


def test_a_volume_that_is_full_once_steps_are_told(probe, server):
    """A page that it cannot give must not end the training, which writes it; the session reads why there is nothing."""
    if os.geteuid() != 0:
        pytest.skip("a volume of its own wants root")
    server.asks_hook = True
    python = needed("PP_TORCH_PYTHON").split(":")[-1]
    alone = run(python, TRAIN, "mixed", "100")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(probe.ring)], check=True)
    try:
        connect(probe, server)
        hooked = run(python, TRAIN, "mixed", "100", environment=probe.environment())
        until(lambda: "the ring directory is full" in {hook.get("refusal", "") for hook in server.hooks}, "the word", 60)
        probe.finish()
        assert (losses(hooked), hooked.stderr) == (losses(alone), alone.stderr)
        assert not server.batches
    finally:
        probe.stop()
        subprocess.run(["umount", str(probe.ring)], check=True)


def test_the_time_is_told(probe, server):
    """What time it is here, on both clocks, before any batch; and batches tell their beginning on both."""
    server.asks = [1]
    connect(probe, server)
    train(probe, "mixed", "60", "1.5")
    server.say(True, **server.welcome)  # a welcome without the question
    probe.finish()
    (answer, came), = server.times
    assert server.heard[0] == "time" and server.batches
    assert answer["id"] == 1
    assert abs(answer["realtime"] - came) < 10e9
    ahead = answer["realtime"] - answer["monotonic"]
    for batch in server.batches:
        capture = batch["stretch"]
        assert abs(capture["start"] - capture["monotonic"] - ahead) < 1e9, "both are of one moment"


def test_questions_are_answered_one_by_one(probe, server):
    server.asks = [1]
    connect(probe, server)
    for number in range(2, 6):
        until(lambda n=number: len(server.times) == n - 1, "an answer")
        server.ask(number)
    until(lambda: len(server.times) == 5, "the last answer")
    assert [answer["id"] for answer, _ in server.times] == [1, 2, 3, 4, 5]
    assert all(a["monotonic"] < b["monotonic"] for (a, _), (b, _) in zip(server.times, server.times[1:]))
    probe.finish()


def test_an_operator_of_an_earlier_release_is_told_no_time(probe, server):
    """It would take the message for none of ours, and close at the third."""
    connect(probe, server)
    train(probe, "mixed", "60", "1.5")
    probe.finish()
    assert server.batches and set(server.heard) == {"batch", "bye"}


def test_no_batch_goes_before_the_welcome(probe, server):
    """Whoever takes it knows this node's clock by then."""
    server.welcomes = False
    connect(probe, server)
    train(probe, "mixed", "60", "1.5")
    until(lambda: server.connections and list(probe.spool.glob("*")), "a batch that waits")
    assert not server.heard
    server.say(True, **server.welcome)
    until(lambda: server.batches, "the batches")
    probe.finish()
    assert stored(server) == sent(probe)


FAKETIME = f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1"
needs_faketime = pytest.mark.skipif(not os.path.exists(FAKETIME), reason="Debian's package faketime is not installed")


def off_by(seconds, program):
    """The environment in which a program's CLOCK_REALTIME is so far off. AddressSanitizer's library has to come first; and its
    allocator asks for the time unless it gives no memory back, whereupon libfaketime allocates and may wait for it for ever."""
    sanitizer = re.findall(r"libasan\S* => (\S+)", run("ldd", program).stdout)
    return {"LD_PRELOAD": " ".join(sanitizer + [FAKETIME]), "FAKETIME": "%+ds" % seconds,
            "ASAN_OPTIONS": "allocator_release_to_os_interval_ms=-1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


@needs_faketime
@pytest.mark.parametrize("wrong", [-3600, 180])
def test_a_wrong_clock_is_told_as_it_is(probe, tmp_path, wrong):
    """The clock is the node's own, and what the agent says of it and of its stamps goes together."""
    certificates(tmp_path, environment=off_by(-86400, "/usr/bin/openssl"))
    (tmp_path / "token").write_text("first-token\n")
    server = Server(tmp_path).start()
    server.asks = [1]
    probe.configure(endpoint="wss://localhost:%d/v1/ingest" % server.port)
    probe.start(*options(probe), environment=off_by(wrong, needed("PP_AGENT")))
    train(probe, "mixed", "60", "1.5")
    probe.finish()
    (answer, came), = server.times
    assert abs(answer["realtime"] - came - wrong * 10**9) < 10e9
    ahead = answer["realtime"] - answer["monotonic"]
    assert server.batches
    for batch in server.batches:
        capture = batch["stretch"]
        assert abs(capture["start"] - capture["monotonic"] - ahead) < 1e9
    server.stop()


@needs_faketime
@pytest.mark.parametrize("wrong,said", [(-820000000, "clock behind by 8199"), (630000000, "clock ahead by 6298")])
def test_a_clock_that_shuts_the_operator_out_is_the_agents_last_word(probe, server, wrong, said):
    """By it the operator's certificate is not valid. The agent ends once, so that the kubelet shows why, and no more."""
    words = probe.folder / "termination-log"
    words.touch()
    probe.configure(endpoint="wss://localhost:%d/v1/ingest" % server.port)
    arguments = [*options(probe), "--last-words", str(words)]
    agent = probe.start(*arguments, environment=off_by(wrong, needed("PP_AGENT")))
    train(probe, "mixed", "60")
    waiting = len(list(probe.spool.glob("*")))
    assert agent.wait(60) == 0, "the kubelet restarts it, whatever it says"
    assert words.read_text().startswith(said) and words.read_text().count("\n") == 0
    assert server.tokens == [] and waiting > 0
    words.write_text("")
    before = probe.log.read_text().count("not connected")
    agent = probe.start(*arguments, environment=off_by(wrong, needed("PP_AGENT")))
    until(lambda: probe.log.read_text().count("not connected") > before + 8 or agent.poll() is not None,
          "more attempts than it took before", 120)
    assert agent.poll() is None and words.read_text() == ""
    agent.kill()
    agent.wait()
    probe.start(*arguments)  # the clock is set
    until(lambda: server.stored, "what has waited")
    probe.finish()
    assert stored(server) == {seq: events for seq, events in sent(probe).items()}


@needs_faketime
def test_an_ordinary_sidecar_has_no_last_words(probe, server):
    """Nobody would start it anew."""
    words = probe.folder / "termination-log"
    words.touch()
    probe.configure(endpoint="wss://localhost:%d/v1/ingest" % server.port)
    agent = probe.start(*options(probe), "--last-words", str(words), environment={
        "PRECISIONPROBE_EXIT_WITH_TRAINER": "1", **off_by(-820000000, needed("PP_AGENT"))})
    until(lambda: probe.log.read_text().count("not connected") > 8, "attempts for half a minute")
    assert agent.poll() is None and words.read_text() == ""
    assert "clock behind by" in probe.log.read_text()


def test_trainers_after_the_agents_end_are_left_alone(probe, server):
    connect(probe, server)
    until(lambda: server.connections, "a connection")
    assert mode(probe) == "sample"
    probe.finish()
    assert mode(probe) == "idle"


def test_busy_replica_is_left_at_once(probe, server):
    """503 with Retry-After: 0 means that another replica may do."""
    server.answer = (503, [("Retry-After", "0")])
    connect(probe, server)
    until(lambda: len(server.tokens) >= 4, "four attempts")
    server.answer = None
    until(lambda: server.connections, "a connection")
    probe.finish()


def test_a_long_token_is_sent(probe, server):
    """Of many claims."""
    token = "t" * 4050  # with the rest of the request more than libwebsockets has room for by itself
    (probe.folder / "token").write_text(token)
    connect(probe, server)
    until(lambda: server.connections, "a connection")
    assert server.tokens == [f"Bearer {token}"]
    probe.finish()


def test_a_host_that_is_too_long_is_refused(probe, server):
    """Rather than sent cut off."""
    probe.configure(endpoint="wss://%s/v1/ingest" % ".".join(["n" * 60] * 2))
    agent = subprocess.Popen([needed("PP_AGENT"), "run", "--settings", str(probe.settings), "--ring", str(probe.ring), "--spool",
                              str(probe.spool), *options(probe)], stderr=subprocess.PIPE, text=True)
    said = agent.communicate(timeout=300)[1]
    assert agent.returncode == 1 and "endpoint has a host or path that is too long" in said, said


def test_few_descriptors_may_be_open(probe, server):
    """libwebsockets keeps memory for each that the limit allows, of which containers often have a million."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard <= 1024:
        pytest.skip("no more may be open here")
    probe.under = ["prlimit", f"--nofile={hard}:{hard}"]
    connect(probe, server)
    until(lambda: server.connections, "a connection")
    with open(f"/proc/{probe.agent.pid}/limits", encoding="utf-8") as limits:
        soft = re.search(r"Max open files +(\d+)", limits.read())[1]
    probe.finish()
    assert int(soft) <= 1024


def test_token_is_read_anew(probe, server):
    server.answer = (401, [])
    connect(probe, server)
    until(lambda: server.tokens, "an attempt")
    (probe.folder / "token").write_text("second-token")
    until(lambda: server.tokens[-1] == "Bearer second-token", "the new token")
    server.answer = None
    until(lambda: server.connections, "a connection")
    probe.finish()


@pytest.mark.parametrize("wrong", ["another ca", "another name"])
def test_server_that_is_not_trusted_gets_no_token(probe, server, wrong, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    if wrong == "another ca":
        certificates(other)
        (tmp_path / "ca.crt").write_text((other / "ca.crt").read_text())
        connect(probe, server)
    else:
        connect(probe, server, endpoint="wss://127.0.0.1:%d/v1/ingest" % server.port)
    until(lambda: probe.log.read_text().count("not connected") >= 2, "two failures")
    assert server.tokens == []
    probe.finish()


# ---- the operator by its address ----

NAME = "precisionprobe.system.svc"
SILENT = "127.0.0.77"  # a name server that does not answer
PATIENCE = 25  # s, less than the resolver waits for it
UNSHARED = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
needs_mounts = pytest.mark.skipif(run(*UNSHARED, "true", check=False).returncode != 0, reason="no mount namespaces here")


def resolving(probe, server="127.0.0.78", hosts=""):
    """The agent's own name server (at the default address nobody listens) and names."""
    for name, text in (("resolv.conf", "nameserver %s\noptions timeout:30 attempts:2\n" % server), ("hosts", "127.0.0.1 localhost\n" + hosts)):
        (probe.folder / name).write_text(text)
    mounts = "".join("mount --bind %s/%s /etc/%s && " % (probe.folder, name, name) for name in ("resolv.conf", "hosts"))
    probe.under = [*UNSHARED, "sh", "-c", mounts + 'exec "$@"', "agent"]


@pytest.fixture
def service(tmp_path):
    """The operator as its Service names it."""
    certificates(tmp_path, names="DNS:" + NAME)
    (tmp_path / "token").write_text("first-token\n")
    s = Server(tmp_path, "127.0.0.1").start()
    yield s
    s.stop()


def connect_to(probe, server, *addresses):
    return connect(probe, server, endpoint="wss://%s:%d/v1/ingest" % (NAME, server.port), addresses=addresses)


def failures(probe):
    return probe.log.read_text().count("not connected")


@needs_mounts
def test_a_name_that_nobody_resolves(probe, service):
    """As in the node's network: the address leads there, and the name is asked for and checked as ever."""
    resolving(probe)
    connect_to(probe, service, "127.0.0.1")
    train(probe, "mixed", "60", "1.5")
    probe.finish()
    assert stored(service) == sent(probe) and service.stored
    assert service.names == [NAME] and failures(probe) == 0
    assert "%s is not resolved: " % NAME in probe.log.read_text()


@needs_mounts
def test_a_name_that_nobody_resolves_without_an_address(probe, service):
    resolving(probe)
    connect_to(probe, service)
    until(lambda: failures(probe) >= 2, "two failures")
    assert "not connected (%s is not resolved: " % NAME in probe.log.read_text()
    probe.finish()
    assert not service.names


@pytest.fixture
def silent():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind((SILENT, 53))
        except PermissionError:
            pytest.skip("no name server may be opened here")
        yield one


def test_an_operator_that_goes_without_a_word(probe, tmp_path):
    """Behind the handshake, and behind the request: the connection is given up, and another one begun."""
    certificates(tmp_path)
    (tmp_path / "token").write_text("first-token\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with socket.create_server(("localhost", 0)) as listener:
        listener.settimeout(60)
        probe.configure(endpoint="wss://localhost:%d/v1/ingest" % listener.getsockname()[1])
        probe.start(*options(probe))
        silent = []
        for reads in (False, True, True):
            silent.append(context.wrap_socket(listener.accept()[0], server_side=True))
            assert not reads or silent[-1].recv(4096).startswith(b"GET /v1/ingest")
    until(lambda: probe.log.read_text().count("not connected (no answer") >= 2, "both to be given up")


@needs_mounts
def test_a_name_server_that_hangs_keeps_nobody(probe, service, silent):
    """Neither the connection nor the agent's end."""
    resolving(probe, SILENT)
    agent = connect_to(probe, service, "127.0.0.1")
    until(lambda: service.connections, "a connection", PATIENCE)
    assert failures(probe) == 0 and "is not resolved in time" in probe.log.read_text()
    assert silent.recv(512), "it was asked"
    service.cut()
    until(lambda: service.connections == 2, "another connection", PATIENCE)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE) == 0


@needs_mounts
def test_a_ring_is_read_while_a_name_server_hangs(probe, service, silent):
    resolving(probe, SILENT)
    connect_to(probe, service)  # no address: it waits for the resolver
    train(probe, "mixed", "60", "1.5")
    until(lambda: list(probe.spool.glob("*")), "a batch", PATIENCE)
    assert failures(probe) == 0, "the resolver has given up already"
    assert silent.recv(512), "it was asked"
    probe.agent.kill()


@needs_mounts
@pytest.mark.parametrize("elsewhere", ["nobody", "another"])
def test_a_name_that_leads_elsewhere(probe, service, elsewhere, tmp_path):
    """Some networks' resolvers know an answer to everything."""
    resolving(probe, hosts="127.0.0.9 %s\n" % NAME)
    other = tmp_path / "other"
    other.mkdir()
    certificates(other, names="DNS:" + NAME)
    wrong = Server(other, "127.0.0.9")
    wrong.port = service.port
    if elsewhere == "another":
        wrong.start()
    connect_to(probe, service, "127.0.0.1")
    until(lambda: service.connections, "a connection")
    assert failures(probe) == 1 and not wrong.tokens
    service.cut()
    until(lambda: service.connections == 2, "another connection")
    assert failures(probe) == 2, "it goes where it was well"
    probe.finish()
    if elsewhere == "another":
        wrong.stop()


@needs_mounts
def test_a_name_goes_before_an_address(probe, service):
    """The Service was made anew since the pod was: the name follows it."""
    resolving(probe, hosts="127.0.0.1 %s\n" % NAME)
    connect_to(probe, service, "127.0.0.9")
    until(lambda: service.connections, "a connection")
    probe.finish()
    assert failures(probe) == 0 and service.names == [NAME]


@needs_mounts
@pytest.mark.parametrize("names", ["DNS:other.system.svc", "IP:127.0.0.1"])
def test_an_address_is_no_name(probe, tmp_path, names):
    """Whoever has the address has to be the Service all the same, for the same authority."""
    certificates(tmp_path, names=names)
    (tmp_path / "token").write_text("first-token\n")
    server = Server(tmp_path, "127.0.0.1").start()
    resolving(probe)
    connect_to(probe, server, "127.0.0.1")
    until(lambda: failures(probe) >= 3, "three failures")
    assert server.names and set(server.names) == {NAME} and server.tokens == []
    probe.finish()
    server.stop()


@needs_mounts
def test_an_address_of_the_other_family(probe, tmp_path):
    certificates(tmp_path, names="DNS:" + NAME)
    (tmp_path / "token").write_text("first-token\n")
    try:
        server = Server(tmp_path, "::1").start()
    except (OSError, AssertionError):
        pytest.skip("no IPv6 here")
    resolving(probe)
    connect_to(probe, server, "127.0.0.1", "::1")
    until(lambda: server.connections, "a connection")
    probe.finish()
    assert server.names == [NAME] and failures(probe) == 1
    server.stop()


def test_rotated_ca_is_taken(probe, server, tmp_path):
    good = (tmp_path / "ca.crt").read_text()
    other = tmp_path / "other"
    other.mkdir()
    certificates(other)
    (tmp_path / "ca.crt").write_text((other / "ca.crt").read_text())
    connect(probe, server)
    until(lambda: "not connected" in probe.log.read_text(), "a failure")
    (tmp_path / "ca.new").write_text(good)
    (tmp_path / "ca.new").rename(tmp_path / "ca.crt")
    until(lambda: server.connections, "a connection")
    probe.finish()


def test_unacknowledged_at_the_end_is_given_up_in_time(probe, server):
    server.ack = False
    agent = connect(probe, server)
    train(probe, "mixed", "40")
    begun = time.monotonic()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(40) == 0
    assert time.monotonic() - begun > 15
    assert "never acknowledged" in probe.log.read_text()


def test_ordinary_sidecar_leaves_with_the_trainer(probe, server):
    probe.configure(endpoint="wss://localhost:%d/v1/ingest" % server.port)
    agent = probe.start(*options(probe), environment={"PRECISIONPROBE_EXIT_WITH_TRAINER": "1"})
    train(probe, "mixed", "60")
    assert agent.wait(20) == 0
    assert stored(server) == sent(probe) and server.stored


def test_ordinary_sidecar_waits_for_the_trainer_behind_a_helper(probe, server):
    """A script may ask torch for the number of GPUs first: that is no training."""
    probe.configure(endpoint="wss://localhost:%d/v1/ingest" % server.port)
    agent = probe.start(*options(probe), environment={"PRECISIONPROBE_EXIT_WITH_TRAINER": "1"})
    run(needed("PP_TORCH_PYTHON").split(":")[0], "-c", "import torch, time; time.sleep(1)",
        environment=probe.environment())
    until(lambda: "the process is gone" in probe.log.read_text(), "the helper's end")
    time.sleep(1)
    train(probe, "mixed", "60")
    assert agent.wait(20) == 0
    assert stored(server) == sent(probe) and server.stored


@pytest.mark.parametrize("ordinary", [True, False])
def test_leaves_on_the_operators_word_where_it_is_no_native_sidecar(probe, server, ordinary):
    """A trainer that fails before it imports torch is not seen here, but by the operator."""
    server.leave = True
    probe.configure(endpoint="wss://localhost:%d/v1/ingest" % server.port)
    agent = probe.start(*options(probe), environment={"PRECISIONPROBE_EXIT_WITH_TRAINER": "1"} if ordinary else {})
    if ordinary:
        assert agent.wait(60) == 0
        until(lambda: server.byes, "the goodbye")
        assert [bye["reason"] for bye in server.byes] == ["trainer finished"]
    else:
        until(lambda: server.connections, "a connection")
        time.sleep(1)
        assert agent.poll() is None and not server.byes
        probe.finish()


def test_rings_that_were_never_named_are_removed(probe, server):
    """Of a process that was killed while it made one; not while it may still be making it."""
    files = {name: probe.ring / f".new-{name}" for name in ("killed", "locked", "young")}
    for name, path in files.items():
        path.write_bytes(b"PP")
        at = time.time() + 3600 if name == "young" else 0
        os.utime(path, (at, at))
    with open(files["locked"], "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        connect(probe, server)
        until(lambda: not files["killed"].exists(), "the file of a process that was killed")
        time.sleep(2)
        assert files["locked"].exists() and files["young"].exists()
    until(lambda: not files["locked"].exists(), "the file whose process has ended")
    assert files["young"].exists()


def test_rings_of_strangers_are_left_alone(probe, server):
    """Whatever a user's process leaves in the volume, the agent lives and tells once."""
    (probe.ring / "short.ring").write_bytes(b"x" * 100)
    (probe.ring / "link.ring").symlink_to("/etc/passwd")
    os.mkfifo(probe.ring / "fifo.ring")
    (probe.ring / "folder.ring").mkdir()
    connect(probe, server)
    train(probe, "mixed", "40")
    until(lambda: probe.log.read_text().count("left alone") == 4, "four warnings")
    probe.finish()
    assert probe.log.read_text().count("left alone") == 4
    assert stored(server) == sent(probe) and server.stored


def test_log_is_not_flooded_by_junk(probe, server):
    for i in range(200):
        (probe.ring / ("junk%d.ring" % i)).write_bytes(b"x")
    (probe.ring / "control.json").mkdir()
    connect(probe, server)
    until(lambda: server.connections, "a connection")
    time.sleep(1)
    log = probe.log.read_text()
    assert log.count("left alone") == 64 and log.count("too many files") == 1
    assert log.count("control.json") == 1
    probe.finish()


def test_ring_that_is_cut_short_while_it_is_read(probe, server):
    connect(probe, server)
    trainer = subprocess.Popen([needed("PP_TORCH_PYTHON").split(":")[0], "-c",
                                "import torch, time; time.sleep(60)"], env=probe.environment())
    until(lambda: "a process with torch is here" in probe.log.read_text(), "the trainer")
    ring = next(probe.ring.glob("*.ring"))
    os.truncate(ring, 100)
    until(lambda: "not to be trusted" in probe.log.read_text(), "the agent to notice")
    trainer.kill()
    trainer.wait()
    probe.finish()


def test_bad_settings_are_refused_by_name(probe):
    probe.configure(overheadBudgetPercent=-1)
    result = run(needed("PP_AGENT"), "run", "--settings", str(probe.settings), "--ring", str(probe.ring),
                 check=False)
    assert result.returncode == 1 and "overheadBudgetPercent" in result.stderr


def test_install_copies_the_hook_for_every_user(probe):
    target = probe.folder / "volume"
    for _ in range(2):  # a second time replaces it
        run(needed("PP_AGENT"), "install", str(target), "--from", os.path.dirname(needed("PP_HOOK")))
    copy = target / "python" / "precisionprobe_hook"
    assert next(copy.glob("*/_marks.abi3.so")).stat().st_mode & 0o444 == 0o444
    assert next(copy.glob("*/precisionprobe-sampler")).stat().st_mode & 0o777 == 0o755
    assert copy.stat().st_mode & 0o777 == 0o755
    assert (target / "python" / "sitecustomize.py").exists()
    assert not list(target.glob(".*")), "what it worked with is left behind"


def idle(probe, server):
    """The agent of a pod that was injected for no session."""
    probe.settings.write_text(json.dumps({"version": 1, "endpoint": "wss://localhost:%d/v1/ingest" % server.port}))
    server.welcome, server.sampling = {}, False
    probe.start(*options(probe))
    until(lambda: server.connections, "a connection")


def begin(probe, python, *arguments, program=TRAIN):
    """A training that goes on until end(); it prints into a file."""
    probe.training = subprocess.Popen([python, program, *arguments, str(probe.folder / "enough")],
                                      stdout=open(probe.folder / "out", "w"), stderr=subprocess.STDOUT,
                                      env=probe.environment())
    return probe.training


def end(probe, training):
    (probe.folder / "enough").touch()
    code = training.wait(240)
    return subprocess.CompletedProcess([], code, (probe.folder / "out").read_text())


def of_session(server, uid):
    return [batch for batch in list(server.batches) if batch["session"] == uid]


def test_three_sessions_in_the_life_of_one_training(probe, server, python):
    """Started and stopped while it trains, each with layers of its own; and it trains as without."""
    idle(probe, server)
    training = begin(probe, python, "mixed", "200")
    until(lambda: list(probe.ring.glob("*.ring")), "the training's ring")
    kinds = {"session-a": "Linear", "session-b": "EmbeddingBag", "session-c": "LSTM"}
    for uid, kind in kinds.items():
        assert mode(probe) == "idle"
        settings = settings_of(uid, layers={"types": [kind]}, stretch={"seconds": 0.1}, durationSeconds=1000)
        server.say(True, session=uid, settings=settings)
        until(lambda uid=uid: len(of_session(server, uid)) >= 2, "batches of " + uid)
        server.say(False, session=uid, settings=settings)
        until(lambda uid=uid: of_session(server, uid)[-1]["stretch"]["last"], "the capture's end")
    with_probe = end(probe, training)
    assert with_probe.returncode == 0, with_probe.stdout
    probe.finish()
    for uid, kind in kinds.items():
        assert {layer["type"] for layer in layers_of(of_session(server, uid)).values()} == {kind}
    spans = [(min(b["stretch"]["start"] for b in found), max(b["stretch"]["end"] for b in found))
             for found in (of_session(server, uid) for uid in kinds)]
    assert spans[0][1] <= spans[1][0] and spans[1][1] <= spans[2][0]
    assert [batch["seq"] for batch in server.batches] == list(range(len(server.batches)))
    assert stored(server) == sent(probe)
    count = str(len(losses(with_probe)))
    without = run(python, TRAIN, "mixed", count)
    assert losses(with_probe)[:int(count)] == losses(without)[:int(count)]
    assert told(with_probe, "tables") == told(without, "tables")


def test_a_session_tells_its_own_batches(probe, server, python):
    """Those that the training had before it are none of it; what is known late comes with a later batch."""
    idle(probe, server)
    size = probe.folder / "size"
    size.write_text("8")
    training = begin(probe, python, "steered", str(size), program=str(HERE / "models.py"))
    until(lambda: list(probe.ring.glob("*.ring")), "the training's ring")
    for uid, rows in (("session-a", 8), ("session-b", 24)):
        size.write_text(str(rows))
        settings = settings_of(uid, stretch={"seconds": 0.1}, durationSeconds=1000)
        server.say(True, session=uid, settings=settings)
        until(lambda uid=uid: len(of_session(server, uid)) >= 3, "batches of " + uid)
        server.say(False, session=uid, settings=settings)
        until(lambda uid=uid: of_session(server, uid)[-1]["stretch"]["last"], "the capture's end")
        assert of_session(server, uid)[-1]["process"]["batch"] == "%dx16 float32" % rows
    assert end(probe, training).returncode == 0
    probe.finish()
    digests = {batch["process"]["modelDigest"] for batch in server.batches if batch["steps"]["number"]}
    assert len(digests) == 1


def test_the_next_session_waits_for_the_last_word_of_the_one_before(probe, server, python):
    """It takes over in the middle of a capture, while nothing is acknowledged."""
    idle(probe, server)
    training = begin(probe, python, "mixed", "100")
    server.ack = False
    server.say(True, session="session-a", settings=settings_of("session-a"))
    until(lambda: server.received >= 2, "batches")
    server.say(True, session="session-b", settings=settings_of("session-b", layers={"types": ["Linear"]}))
    until(lambda: any(json.loads(text)["stretch"]["last"] for text in list(server.texts.values())), "the capture's end")
    assert mode(probe) == "idle" and "uid=session-b" not in probe.log.read_text()
    server.ack = True
    server.cut()
    until(lambda: of_session(server, "session-b"), "the next session")
    first = next(i for i, batch in enumerate(server.batches) if batch["session"] == "session-b")
    assert {batch["session"] for batch in server.batches[:first]} == {"session-a"}
    assert server.batches[first - 1]["stretch"]["last"]
    assert end(probe, training).returncode == 0
    probe.finish()
    assert {batch["session"] for batch in server.batches[first:]} == {"session-b"}
    assert not server.changed and stored(server) == sent(probe)


def test_a_training_that_starts_under_a_later_session_knows_its_layers(probe, server):
    idle(probe, server)
    server.say(True, session="session-a", settings=settings_of("session-a", layers={"types": ["LSTM"]}))
    until(lambda: mode(probe) == "sample", "the first session")
    server.say(True, session="session-b", settings=settings_of("session-b", layers={"types": ["Linear"]}))
    until(lambda: "uid=session-b" in probe.log.read_text() and mode(probe) == "sample", "the second session")
    train(probe, "mixed", "60", "1.5")
    probe.finish()
    assert {batch["session"] for batch in server.batches} == {"session-b"}
    assert {layer["type"] for layer in layers_of(server.batches).values()} == {"Linear"}


def test_an_agent_without_a_session_leaves_all_in_peace(probe, server):
    """Nothing is sampled or sent, nor said goodbye for."""
    idle(probe, server)
    result = train(probe, "mixed", "60")
    probe.finish()
    assert not server.batches and not server.byes
    assert told(result, "tables")["global"] == 0


@pytest.mark.parametrize("settings", [{"version": 2}, {"version": 1}, settings_of("another")])
def test_settings_that_cannot_be_used_are_left_alone(probe, server, settings):
    idle(probe, server)
    server.say(True, session="session-a", settings=settings)
    until(lambda: "settings of session session-a cannot be used" in probe.log.read_text(), "the reason")
    assert mode(probe) == "idle"
    server.say(True, session=SESSION, settings=settings_of(SESSION))
    until(lambda: mode(probe) == "sample", "a session whose settings can")
    probe.finish()


def test_an_agent_that_is_killed_leaves_a_later_session_to_the_next(probe, server, python):
    """On a pod that was injected for no session: no step is lost between the two agents, none comes twice."""
    idle(probe, server)
    training = begin(probe, python, "mixed", "100")
    server.say(True, session="session-a", settings=settings_of("session-a", layers={"types": ["Linear"]}))
    until(lambda: len(server.batches) >= 2, "batches")
    probe.agent.kill()
    probe.agent.wait()
    killed_at = len(server.batches)
    probe.start(*options(probe))
    until(lambda: len(server.batches) >= killed_at + 2, "further batches")
    assert end(probe, training).returncode == 0
    probe.finish()
    assert {batch["session"] for batch in server.batches} == {"session-a"}
    assert len({batch["instance"] for batch in server.batches}) == 2
    assert {layer["type"] for layer in layers_of(server.batches).values()} == {"Linear"}
    steps = [number for batch in server.batches for number in undelta(batch["steps"]["number"])]
    assert steps == list(range(steps[0], steps[0] + len(steps)))


def test_a_session_that_is_stopped_goes_on(probe, server, python):
    """The pause does not count for its duration."""
    idle(probe, server)
    training = begin(probe, python, "mixed", "100")
    settings = settings_of("session-a", durationSeconds=8)
    server.say(True, session="session-a", settings=settings)
    until(lambda: len(server.batches) >= 2, "batches")
    begun = time.monotonic()
    server.say(False, session="session-a", settings=settings)
    until(lambda: server.batches[-1]["stretch"]["last"], "the capture's end")
    assert mode(probe) == "idle"
    count = len(server.batches)
    until(lambda: time.monotonic() > begun + 8, "what would have been the session's end")
    server.say(True, session="session-a", settings=settings)
    until(lambda: len(server.batches) > count, "further batches")
    until(lambda: mode(probe) == "idle", "the session's end")
    assert end(probe, training).returncode == 0
    probe.finish()
    assert stored(server) == sent(probe)
