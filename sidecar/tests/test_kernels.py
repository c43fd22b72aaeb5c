"""Kernel records: what CUPTI tells of a training's kernels, and how it is left. With doubles of CUDA and CUPTI."""
import collections
import json
import os
import pathlib
import shutil

import pytest

from conftest import HERE, layers_of, needed, plain, pythons, run, undelta, until

KERNELS = str(HERE / "kernels.py")
DOUBLES = pathlib.Path(needed("PP_HOOK")).parent / "tests"
CUDA, CUPTI, OLD_CUPTI = [str(DOUBLES / name) for name in ("cuda/libcuda.so.1", "cupti/libcupti.so.13",
                                                           "cupti-old/libcupti.so.12")]
COMMUNICATION, OTHER = 6, 7
COPY_TYPES, MEMORIES = ("h2d", "d2h", "d2d", "p2p", "fill", "other"), ("", "pageable", "pinned")
UUIDS = ["GPU-00112233-4455-6677-8899-aabbccddeeff", "GPU-00112233-4455-6677-8899-aabbccddeef0"]
KEPT_STEPS = 500  # whose pieces are so many that the agent waits no longer for a stream that is behind
GEMM, COLLECTIVE = "void gemm::run<4>(float*)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PYTHON = pythons()[-1]  # the newest is enough: nothing of this depends on torch's version
ATTACHED, LEFT = ["subscribe", "register"], ["flush-all", "domain", "finalize"]
# How a capture begins and ends: launches are told by the kernels' own records, or by those of the calls.
# Copies' launches are told by their calls in either case.
OWN = [*ATTACHED, "latency", "enable", "runtime", "driver", "copies", "disable", "latency", *LEFT]
OLD = [*ATTACHED, "latency", "enable", "disable", "latency", *LEFT]
CALLS = [*ATTACHED, "enable", "runtime", "driver", "enable", "copies", "disable", *LEFT]
ASKED = {"PRECISIONPROBE_COPIES": "1"}
LONG = {"overheadBudgetPercent": 2, "stretch": {"seconds": 0.6}}


def trained(probe, case, cupti=CUPTI, environment=None, fine=None, settings=None, copied=False, late=False):
    """A case of kernels.py under the agent: what it tells and the batches. Its losses are those of a plain run. `fine`
    is for the hook alone, `settings` for the agent too; `copied`: copies are asked for, and told; `late`: kernels may come
    after their steps were told."""
    probe.configure(**{"overheadBudgetPercent": 1, "stretch": {"seconds": 0.2}, "timeline": {"steps": 1000}, **(settings or {})})
    agent = probe.start("--dump")
    control = probe.ring / "control.json"
    control.write_text(json.dumps({**json.loads(control.read_text()), **({"fine": fine} if fine else {})}))
    environment = {**probe.environment({"AGENT": str(agent.pid), "LD_PRELOAD": str(DOUBLES / "faults.so"),
                                      **(ASKED if copied else {})}),
                   **(environment or {})}
    result = run(PYTHON, KERNELS, case, CUDA, cupti, environment=environment)
    probe.finish()
    assert late or "kernels came after" not in probe.log.read_text()
    alone = plain(PYTHON, KERNELS, "plain", CUDA, cupti)
    told = json.loads(result.stdout.splitlines()[-1])
    assert len(result.stdout.splitlines()) == 1 and result.stderr == alone.stderr
    assert (told["losses"], told["others"]) == (json.loads(alone.stdout)["losses"], 0)
    assert (told["hooks"], told["ring"]["failures"]) == ([], 0)
    batches = probe.batches()
    for gpu in sorted({gpu_of(batch) for batch in batches}):
        here = [batch for batch in batches if gpu_of(batch) == gpu]
        of = {**told, **{key: [row[:-1] for row in told[key] if row[-1] == gpu] for key in ("step", "copies")}}
        check(of, [batch for batch in here if "fine" not in batch])
        check_names(of, here)
        check_copies(of, here, copied)
        if gpu == 0:
            check_waits(here)
    return told, batches


def gpu_of(batch):
    """CUDA's number of the GPU that a batch is of: the driver's double has two."""
    gpus = batch["process"]["gpus"]
    assert len(gpus) <= 1 or batch["process"]["clock"] == "cuda"
    return UUIDS.index(gpus[0]) if gpus and batch["process"]["clock"] == "kernels" else 0


def check(told, batches):
    """Wherever kernels are told of, they are those of the step, all and in their places; elsewhere none."""
    expected = {(name, phase): ns for name, phase, ns, _ in told["step"]}
    for batch in batches:
        if not batch["steps"]["number"]:
            continue  # of no time: counted steps alone
        names = {0: "", **{id: layer["name"] for id, layer in layers_of([batch]).items()}}
        pieces = batch["intervals"]
        if batch["process"]["clock"] != "kernels":
            assert "kernels" not in pieces and "gap" not in batch["steps"] and batch["process"]["kernels"]
            continue
        assert not batch["process"].get("kernels")
        found = collections.defaultdict(collections.Counter)
        for step, layer, phase, ns in zip(undelta(pieces["step"]), pieces["layer"], pieces["phase"],
                                          pieces["kernels"]):
            found[step][names[layer], phase] += ns
        steps = batch["steps"]
        assert steps["number"] and set(found) == set(undelta(steps["number"]))
        for number, duration, gap in zip(undelta(steps["number"]), steps["duration"], steps["gap"]):
            if told["late"]:  # collectives run beside what comes after them, and count where nothing else runs, if anywhere
                found[number]["", COMMUNICATION] = expected["", COMMUNICATION]
            else:
                assert sum(expected.values()) + gap == duration and gap > 0
            assert +found[number] == expected, number


def check_names(told, batches):
    """Of all marked steps each kernel is told by its name, as often and for as long as it ran."""
    told_of = [batch for batch in batches if batch.get("kernels")]
    steps = sum(batch["kernels"]["steps"] for batch in told_of)
    assert steps == len(numbers(batches))
    count, ns = collections.Counter(), collections.Counter()
    for batch in told_of:
        names = {0: "", **{id: layer["name"] for id, layer in layers_of([batch]).items()}}
        kernels = batch["kernels"]
        for layer, phase, name, calls, duration in zip(*(kernels[key] for key in ("layer", "phase", "name", "count", "duration"))):
            count[names[layer], phase, kernels["names"][name]] += calls
            ns[names[layer], phase, kernels["names"][name]] += duration
    launched = collections.Counter()
    for layer, phase, _, calls in told["step"]:
        launched[layer, phase, COLLECTIVE if phase == COMMUNICATION else GEMM] = calls * steps
    if steps == 0:
        return
    if told["late"]:  # every step's collective, and those that are late
        collective = "", COMMUNICATION, COLLECTIVE
        came_late = left_out(batches)["late"]
        assert count.pop(collective, 0) + came_late >= launched.pop(collective) and count == launched
        return
    assert count == launched
    assert {(layer, phase): value for (layer, phase, _), value in ns.items()} == {
        (layer, phase): value * steps for layer, phase, value, _ in told["step"]}


def check_copies(told, batches, copied):
    """Of marked steps each copy and fill is told by its type and where it was launched, with its bytes and for as long as
    it ran. One that is still to be handed over as a capture ends is not."""
    found, steps = collections.Counter(), 0
    for batch in batches:
        if "copies" not in batch:
            continue
        copies = batch["copies"]
        names = {0: "", **{id: layer["name"] for id, layer in layers_of([batch]).items()}}
        steps += copies["steps"]
        for layer, phase, kind, memory, *values in zip(*(copies[key] for key in (
                "layer", "phase", "type", "memory", "count", "bytes", "duration"))):
            key = (names[layer], phase, COPY_TYPES[kind], MEMORIES[memory])
            for name, value in zip(("count", "bytes", "ns"), values):
                found[(*key, name)] += value
    if not copied:
        assert not found and not steps
        return
    marked = len(numbers(batches))
    assert steps <= marked
    if marked < 3 or told["late"]:
        return
    assert steps > 0
    assert {key[:-1] for key in found} == {tuple(copy[:4]) for copy in told["copies"]}
    for *key, count, ns in told["copies"]:
        calls = found[(*key, "count")]
        assert 0.9 * steps - 1 <= calls <= steps, (key, calls, steps)
        assert (found[(*key, "bytes")], found[(*key, "ns")]) == (count * calls, ns * calls)


def check_waits(batches):
    """By either clock: each step asks its loss for a value once."""
    marked = [batch for batch in batches if not batch["stretch"].get("dwell")]
    steps, floats = 0, 0
    for waits in [batch["waits"] for batch in batches if "waits" in batch]:
        steps += waits["steps"]
        rows = list(zip(*(waits[key] for key in ("layer", "phase", "call", "count"))))
        assert all((layer, phase, waits["calls"][call]) == (0, OTHER, "float") for layer, phase, call, _ in rows)
        floats += sum(waits["count"])
    assert floats == steps == sum(len(batch["steps"]["number"]) for batch in marked)


def numbers(batches, clock="kernels"):
    return [n for b in batches if b["process"]["clock"] == clock for n in undelta(b["steps"]["number"])]


def left_out(batches):
    """What batches say of kernels that are missing, and of steps that are for that, added up."""
    return sum((collections.Counter(batch.get("leftOut", {})) for batch in batches), collections.Counter())


def seen(probe, told, batches):
    """What a run says of itself where its steps are not those expected."""
    clocks = [(b["process"]["clock"], b["process"].get("kernels"), len(b["steps"]["number"])) for b in batches]
    return f'{clocks}\n{told["ring"]}\n{" ".join(told["calls"])}\n{probe.log.read_text()[-2000:]}'


def captures_of(calls):
    """Of CUPTI's calls, without those that only ask for records as they come. CUPTI is left in the training's next CUDA
    call; where the next capture begins before one has come, it goes on instead."""
    kept = [call for call in calls if call != "flush"]
    looked = ["copies", "runtime", "driver", "disable"]  # for threads, beside own records, as far as a capture goes on for so long
    kept = [call for i, call in enumerate(kept)
            if kept[i - 1:i + 3] != looked and kept[max(0, i - 2):i + 2] != looked]
    return [one for i, call in enumerate(kept)
            for one in (["finalize", "subscribe", call] if call == "register" and kept[i - 1] == "domain" else [call])]


def ways_of(calls):
    """By which records each capture that has ended had its launches."""
    return ["own" if "latency" in capture.split() else "calls" for capture in " ".join(captures_of(calls)).split("finalize")[:-1]]


@pytest.mark.parametrize("case, cupti, expected", [
    ("captures", CUPTI, [OWN, CALLS, CALLS]),  # the GPU is behind
    ("waiting", CUPTI, [OWN, OWN, OWN]),
    ("graphs", CUPTI, [OWN, CALLS, CALLS]),
    ("untold", CUPTI, [OWN, [call for call in CALLS if call != "copies"], OLD])], ids=["behind", "waiting", "graphs", "untold"])
def test_layers_get_their_kernels_and_cupti_is_left(probe, case, cupti, expected):
    told, batches = trained(probe, case, cupti, copied=case != "untold", environment=ASKED)
    assert len(numbers(batches)) >= 3 and not numbers(batches, "cuda"), seen(probe, told, batches)
    begun = sum(expected[:-1], []) + expected[-1][:expected[-1].index("disable")]
    assert captures_of(told["calls"])[:len(begun)] == begun


def test_layers_on_two_gpus(probe):
    """Each has its rows with its own GPU's UUID, as a process of its own; the calls' records tell the threads."""
    told, batches = trained(probe, "two", copied=True)
    by_gpu = [[batch for batch in batches if gpu_of(batch) == gpu] for gpu in (0, 1)]
    assert [{(batch["process"]["id"], batch["process"].get("furtherGpu")) for batch in of} for of in by_gpu] == [{(0, None)}, {(1, True)}]
    assert captures_of(told["calls"])[:len(CALLS)] == CALLS
    steps = [set(numbers(of)) for of in by_gpu]
    assert len(steps[0] & steps[1]) >= 3 and not numbers(batches, "cuda")
    for gpu, names in enumerate(({"0", "1"}, {"2"})):
        layers = {layer["name"] for batch in by_gpu[gpu] for layer in batch["layers"]}
        assert {name for name in layers if name.isdigit()} == names, (gpu, layers)
        assert {batch["process"]["chip"]["multiprocessors"] for batch in by_gpu[gpu]} == {132}
        assert {batch["process"]["gpuModel"] for batch in by_gpu[gpu]} == {"NVIDIA H200"}
    counted = [[run for batch in of for run in zip(undelta(batch.get("counted", {}).get("start", [])),
                                                   batch.get("counted", {}).get("steps", []))] for of in by_gpu]
    assert counted[0] == counted[1]


def test_replicas_of_data_parallel(probe):
    """They are known by their original's names, on each GPU; one call a step and GPU."""
    told, batches = trained(probe, "parallel")
    for gpu in (0, 1):
        here = [batch for batch in batches if gpu_of(batch) == gpu and batch["steps"]["number"]]
        assert here and {"0", "1", "2"} <= {layer["name"] for batch in here for layer in batch["layers"]}
        for batch in here:
            numbers_of = {layer["id"] for layer in batch["layers"] if layer["name"] in ("0", "1", "2")}
            calls = collections.Counter(zip(batch["intervals"]["layer"], batch["intervals"]["phase"]))
            assert {calls[each, phase] for each in numbers_of for phase in (0, 1)} == {len(batch["steps"]["number"])}


def test_a_gpu_of_no_module(probe):
    """What the kernels' own records tell of it has no threads: the capture ends there, and the next has them."""
    told, batches = trained(probe, "unseen", copied=True)
    first, second = [min(numbers([batch for batch in batches if gpu_of(batch) == gpu])) for gpu in (0, 1)]
    assert abs(first - second) <= 1
    assert captures_of(told["calls"])[:len(OWN + CALLS)] == OWN + CALLS


def test_kernels_of_another_thread(probe):
    """They are in no layer that is open meanwhile, where threads are known."""
    told, batches = trained(probe, "beside")
    assert len(numbers(batches)) >= 3, seen(probe, told, batches)


def test_kernels_of_another_thread_that_waits(probe):
    """A wait is told of it, and that is no piece: it is found as one of which nothing is told."""
    told, batches = trained(probe, "beside_waiting")
    assert len(numbers(batches)) >= 3, seen(probe, told, batches)
    ways = ways_of(told["calls"])
    assert len(ways) >= 2 and ways == ["own"] + ["calls"] * (len(ways) - 1)


def test_modules_of_two_threads(probe):
    """Each module has its own kernels. Own records do not tell whose they are, so no step that has them is told."""
    told, batches = trained(probe, "taught")
    assert len(numbers(batches)) >= 3 and not numbers(batches, "cuda"), seen(probe, told, batches)
    ways = ways_of(told["calls"])
    assert len(ways) >= 2 and ways == ["own"] + ["calls"] * (len(ways) - 1)


GRAPHS, THREADS = "tells no launches of CUDA graphs", "CUPTI tells no threads of launches"


@pytest.mark.parametrize("case, cupti, why", [
    ("graphs_untold", OLD_CUPTI, "CUPTI before CUDA 12.4 " + GRAPHS), ("graphs_untold", CUPTI, "CUPTI " + GRAPHS),
    ("taught_untold", OLD_CUPTI, THREADS), ("taught_untold", CUPTI, THREADS)], ids=["graphs-old", "graphs", "threads-old", "threads"])
def test_where_calls_would_be_needed_and_are_not_told(probe, case, cupti, why):
    """No kernel is put where it is not, and then events tell times."""
    told, batches = trained(probe, case, cupti)
    assert "register" in told["calls"] and not numbers(batches) and numbers(batches, "cuda"), seen(probe, told, batches)
    assert {batch["process"]["kernels"] for batch in batches if batch["process"]["clock"] == "cuda"} == {why}


def test_two_gpus_without_kernels(probe):
    """Events would have one GPU's times: nothing is told, and why."""
    told, batches = trained(probe, "untimed")
    assert told["told"][0] == "several GPUs: another CUPTI client is attached"
    assert not [n for batch in batches for n in batch["steps"]["number"]]
    assert "not profiled: several GPUs: another CUPTI client" in probe.log.read_text()


def test_a_gpu_that_is_not_the_current_one_without_kernels(probe):
    """Events would have the current one's times: nothing is told, and why."""
    told, batches = trained(probe, "moved")
    why = "modules are on GPU 1, events on GPU 0: torch.cuda.set_device"
    assert (told["told"][0], told["told"][2]) == (why, UUIDS[1])
    assert not [n for batch in batches for n in batch["steps"]["number"]]
    assert "not profiled: " + why in probe.log.read_text()


def test_a_gpu_that_is_the_current_one_without_kernels(probe):
    told, batches = trained(probe, "placed")
    assert numbers(batches, "cuda") and told["told"] == UUIDS[1]
    assert {tuple(batch["process"]["gpus"]) for batch in batches} == {(UUIDS[1],)}


@pytest.mark.parametrize("case", ["captures", "waiting", "graphs", "beside"])
def test_copies_that_nobody_asked_for(probe, case):
    """None are recorded, since CUPTI may hang then; kernels are, and other threads that launch some are found."""
    told, batches = trained(probe, case)
    assert len(numbers(batches)) >= 3 and not numbers(batches, "cuda"), seen(probe, told, batches)
    assert "register" in told["calls"] and "copies" not in told["calls"]
    assert "copies and fills are not recorded: CUPTI may hang on them; PRECISIONPROBE_COPIES=1 records them" in probe.log.read_text()


def test_copies_that_are_refused(probe):
    """Kernels are recorded as ever, and the agent says why copies are not."""
    told, batches = trained(probe, "uncopied", environment=ASKED)
    assert len(numbers(batches)) >= 3 and not numbers(batches, "cuda")
    assert "copies and fills are not recorded: CUPTI refuses to record copies" in probe.log.read_text()


def test_cupti_before_cuda_12_6_is_attached_once(probe):
    """Attached anew it has ended trainings that replay CUDA graphs; captures after the first have events."""
    told, batches = trained(probe, "events", OLD_CUPTI)
    calls = captures_of(told["calls"])
    assert calls[:len(OLD)] == OLD and calls.count("register") == 1 and calls.count("finalize") == 1, calls
    assert numbers(batches) and numbers(batches, "cuda")
    why = {b["process"]["kernels"] for b in batches if b["process"]["clock"] == "cuda"}
    assert why == {"CUPTI before CUDA 12.6 is attached once in a process"}


def test_cupti_that_is_not_to_be_left_is_not_attached(probe):
    told, batches = trained(probe, "events", OLD_CUPTI, environment={"TEARDOWN_CUPTI": "0"})
    assert "register" not in told["calls"] and not numbers(batches) and numbers(batches, "cuda")
    assert {b["process"]["kernels"] for b in batches} == {"TEARDOWN_CUPTI=0: CUPTI before CUDA 12.6 is not to be left"}


def test_what_costs_less_is_chosen(probe):
    """Once both ways are known by what steps took; until then by whether the GPU is behind. Kernels are told in all
    captures, though CUPTI keeps some buffers of each. Steps are compared in blocks, so a capture has to hold some."""
    told, _ = trained(probe, "dear", settings=LONG)
    ways = ways_of(told["calls"])
    assert "calls" in ways and ways[-3:] == ["own"] * 3, ways


def test_a_stream_that_is_behind(probe):
    """Collectives run up to 0.08 s behind. CUPTI is not left before they have run, so each step has its own."""
    _, batches = trained(probe, "lagging")
    assert len(numbers(batches)) >= 3


def test_a_stream_that_is_far_behind(probe):
    """A collective still runs as CUPTI is left: it is lost, and no step is told without it. Where the capture goes on, more
    steps may wait for it than the agent keeps: then it is late."""
    told, batches = trained(probe, "behind", late=True)
    missing = left_out(batches)
    assert missing["lost"] <= told["ring"]["kernels_lost"] and missing["lost"] + missing["late"] > 0 and missing["steps"] > 0
    assert missing["late"] == 0 or missing["steps"] + len(numbers(batches)) > KEPT_STEPS
    log = probe.log.read_text()
    assert len(numbers(batches)) >= 3 and ("kernels were lost" in log or "kernels came after" in log)


def test_kernels_and_copies_of_seconds(probe):
    """Their times are not cut to what 32 bits of ns hold."""
    told, batches = trained(probe, "long", copied=True)
    pieces = [batch["intervals"] for batch in batches if batch["steps"]["number"]]
    longest = max(ns for piece in pieces for phase, ns in zip(piece["phase"], piece.get("kernels", [])) if phase == COMMUNICATION)
    assert longest == pytest.approx(told["told"], rel=1e-6)
    copies = [batch["copies"] for batch in batches if "copies" in batch]
    of_peers = [ns for rows in copies for layer, kind, ns in zip(rows["layer"], rows["type"], rows["duration"])
                if layer == 0 and COPY_TYPES[kind] == "p2p"]
    assert of_peers == [pytest.approx(told["told"], rel=1e-6)]
    assert not left_out(batches)


def test_a_host_that_is_far_ahead(probe):
    """By seconds, so that buffers of records come back late: there are enough of them, and no kernel is lost."""
    told, batches = trained(probe, "ahead")
    known = numbers(batches)
    assert told["ring"]["kernels_lost"] == 0 and len(known) >= 10, (told["ring"], known)


def test_reasons_not_to_record(probe):
    told, batches = trained(probe, "refused")
    why = {"subscribe": "another CUPTI client is attached", "clock": "a profiler has changed CUPTI's clock",
           "late": "the machine is too busy for CUPTI's clock to be read", "enable": "CUPTI refuses to record kernels"}
    assert told["told"] == why and numbers(batches)
    assert {b["process"]["kernels"] for b in batches if b["process"]["clock"] == "cuda"} == set(why.values())


def test_captures_go_on_where_cupti_cannot_be_left(probe):
    """With the subscription that there is: no other is asked for before it is left."""
    told, batches = trained(probe, "unleft")
    calls = told["calls"]
    first, second, third = [i for i, call in enumerate(calls) if call == "finalize"][:3]
    assert "subscribe" not in calls[first:third] and "register" in calls[first:second] and "register" in calls[second:third]
    assert "subscribe" in calls[third:] and [n for n in numbers(batches) if n < told["told"]]


def test_cupti_is_left_for_a_profiler_though_it_could_not_be_before(probe):
    told, _ = trained(probe, "unleft_profiled")
    calls = [call for call in told["calls"] if call != "domain"]
    begun = calls.index("profile")
    assert calls[begun - 2:begun + 2] == ["finalize", "finalize-at-once", "profile", "profiled"]
    assert told["told"] == 180 and "subscribe" in calls[begun:]


def test_records_that_are_lost(probe):
    told, batches = trained(probe, "damaged")
    known = numbers(batches)
    after = list(told["told"].values())
    for begin, end in zip(after, after[1:] + [float("inf")]):
        assert [n for n in known if begin < n < end], (told["told"], known)
    missing = left_out(batches)
    assert 0 < missing["lost"] <= told["ring"]["kernels_lost"] and missing["steps"] > 0
    assert "kernels were lost" in probe.log.read_text()


def test_a_forked_child_profiles_itself(probe):
    told, _ = trained(probe, "forked")
    assert told["told"] == [7] * 10


def test_a_spawned_rank_keeps_its_last_steps(probe):
    """As a launcher starts them; it ends in the middle of a capture."""
    probe.configure(overheadBudgetPercent=50, stretch={"seconds": 5})
    probe.start("--dump")
    result = run(PYTHON, KERNELS, "spawn", CUDA, CUPTI,
                 environment=probe.environment({"LD_PRELOAD": str(DOUBLES / "faults.so")}))
    probe.finish()
    batches = probe.batches()
    assert numbers(batches) and max(numbers(batches)) >= int(result.stdout) - 1, (result.stdout, probe.log.read_text()[-2000:])


def test_torch_profiler_begins(probe):
    """The user's profile is theirs alone from its beginning to its end, and recording goes on after it."""
    told, batches = trained(probe, "profiled")
    assert told["told"] == [180, 180]  # all that ran: 3 layers in 60 steps
    calls = told["calls"]
    own, by_calls = ["disable", "latency", "flush-all", "finalize-at-once"], ["disable", "flush-all", "finalize-at-once"]
    first, second = [i for i, call in enumerate(calls) if call == "profile"]
    assert calls[first - len(own):first] == own or calls[first - len(by_calls):first] == by_calls
    assert calls[first:first + 2] == ["profile", "profiled"]
    # On a machine that is slow enough the capture before is left as ever.
    assert calls[second - 1] in (own[-1], LEFT[-1]) and calls[second + 1] == "profiled"
    assert "enable" in calls[second:]
    assert "torch.profiler is running" in [b["process"].get("kernels") for b in batches]


GPU = {"NVIDIA_VISIBLE_DEVICES": "GPU-00112233-4455-6677-8899-aabbccddeeff"}
FINE = {"periodNs": 25000}


@pytest.mark.parametrize("case", ["sampled", "adopting"])
def test_the_sampler_is_apart(probe, case):
    """It has no file, signal or variable of the training's, is started once, and ends with the training."""
    told, _ = trained(probe, case, environment={**GPU, "CUDA_VISIBLE_DEVICES": "0"}, fine=FINE)
    told = told["told"]
    assert told["fine"] == "started" and told["same"] and told["signals"] == [] and told["alone"] == [True, True]
    name = told["sampler"]["files"][-1]
    assert told["sampler"] == {
        "files": ["/dev/null", name[:-len("samples")] + "ring", name], "blocked": 0, "ignored": 0, "alone": True,
        "environment": ["PATH", "LD_LIBRARY_PATH"], "folders": True}
    if case == "adopting":
        keeper, = told["children"]
        assert keeper["files"] == ["/dev/null"] and keeper["alone"] and told["again"] == []
    else:
        assert told["children"] == []
        until(lambda: not list(probe.ring.glob("*.samples")), "the sampler's end")


def test_why_nothing_is_sampled_is_told(probe):
    """Once, in a batch of no time, of a process that batches have told of; here by a driver without what samples."""
    _, batches = trained(probe, "captures", environment=GPU, settings={"fine": FINE})
    told = [batch for batch in batches if "fine" in batch]
    assert [batch["fine"] for batch in told] == [{"why": "this libcuda lacks functions"}]
    assert told[0]["stretch"]["start"] == told[0]["stretch"]["end"] and not told[0]["steps"]["number"]
    assert told[0]["process"]["chip"] == {"capability": 90, "multiprocessors": 132, "smKHz": 1980000,
                                          "memoryKHz": 3201000, "memoryBits": 6144}
    assert told[0]["process"]["gpuModel"] == "NVIDIA H200"
    assert told[0]["process"]["id"] == batches[0]["process"]["id"] and told[0]["process"]["clock"] in ("kernels", "cuda")


def test_reasons_not_to_sample(probe):
    told, _ = trained(probe, "hindered", environment=GPU, fine=FINE)
    assert told["told"] == ["kernels are not recorded", "started"]


def test_what_was_said_of_the_sampler_is_the_session_s(probe):
    told, _ = trained(probe, "renewed", environment=GPU, fine=FINE)
    assert told["told"] == ["started", ""]


@pytest.mark.parametrize("gpus, expected", [("GPU-1,GPU-2", "several GPUs"),
                                            ("all", "which GPU is used is not known")], ids=["several", "unknown"])
def test_gpus_that_are_not_sampled(probe, gpus, expected):
    told, _ = trained(probe, "asked", environment={"NVIDIA_VISIBLE_DEVICES": gpus}, fine=FINE)
    assert told["told"] == expected


def test_a_sampler_that_is_not_there(probe):
    copy = probe.folder / "hook"
    shutil.copytree(needed("PP_HOOK"), copy, ignore=shutil.ignore_patterns("precisionprobe-sampler"))
    told, _ = trained(probe, "bereft", environment={**GPU, "PYTHONPATH": str(copy)}, fine=FINE)
    assert told["told"] == {"fine": "No such file or directory", "alone": True, "children": [], "signals": []}


@pytest.mark.parametrize("fine, expected", [(FINE, "no GPU is used"), ({"periodNs": 10}, ""), (None, "")])
def test_no_gpu_is_sampled_where_none_is_used(probe, fine, expected):
    probe.configure(stretch={"seconds": 0.2})
    agent = probe.start("--dump")
    control = probe.ring / "control.json"
    control.write_text(json.dumps({**json.loads(control.read_text()), "fine": fine}))
    environment = probe.environment({"AGENT": str(agent.pid), "LD_PRELOAD": str(DOUBLES / "faults.so")})
    result = run(PYTHON, str(HERE / "faults.py"), "session", environment=environment)
    probe.finish()
    assert json.loads(result.stdout)["ring"]["fine"] == expected
