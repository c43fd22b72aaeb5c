"""aarch64, under emulation: the programs compiled for it, their tests, and trainings with the hook (e2e/aarch64)."""
import glob
import os
import re

from .checks import DEBIAN, Failure, expect, found
from .deploy import aarch64_root, compile_aarch64
from .progress import ROOT, run, run_shown

RUN = os.path.join(ROOT, "e2e/aarch64/run")
# Arithmetic for minutes, where others try the same code in seconds; and what the emulator leaves out: memory in
# /proc/self/stat.
LEFT_OUT = ("sampling_accuracy_test", "regression_accuracy_test", "regression_conditions_test", "regression_input_test",
            "sidecar_monitor_test", "http_metrics_test")
# What orders memory between hook and agent: the instructions that must be in a function. On x86 the emulator keeps
# x86's order, so no test that runs here would miss them.
ORDER = {"pp_read_fence": ["dmb ishld"], "pp_ring_push": ["stlr"], "pp_ring_push_kernel": ["stlr", "ldar"],
         "pp_ring_add_layer": ["stlr"], "pp_ring_add_site": ["stlr"], "pp_ring_add_name": ["stlr"]}
# Trainings with the hook: half a minute each.
HOOK_TESTS = ("owners or (bit_identical and mixed) or layers_are_named or every_step_is_counted or tables_are_empty "
              "or recomputed or full or damaged")


def missing_instructions(function, text):
    """Those of ORDER that a disassembly has not."""
    code = re.sub(r"[ \t]+", " ", text)
    return [f"{function} has no {wanted}" for wanted in ORDER[function] if not re.search(rf"\b{wanted}\b", code)]


def check_order(build):
    """The instructions that order memory are in the code, hook's and agent's."""
    program = os.path.join(build, "sidecar/agent/tests/sidecar_ring_test")
    wrong = []
    for function in ORDER:
        wrong += missing_instructions(function, run("aarch64-linux-gnu-objdump", "-d", f"--disassemble={function}", program))
    if wrong:
        raise Failure("\n".join(wrong))


def programs():
    run_shown(os.path.join(ROOT, "e2e/setup"), "@aarch64")
    check_order(compile_aarch64())
    return []


def units():
    output = expect("ctest-aarch64.log", RUN, "ctest", "--test-dir", compile_aarch64(), "--output-on-failure", "-j4",
                    "-E", f"^({'|'.join(LEFT_OUT)})$", keep=60)
    return [f"aarch64: {line}" for line in found(r"tests passed", output)]


def hook():
    build = compile_aarch64()
    python, = glob.glob(os.path.join(aarch64_root(), "usr/bin/python3.??"))
    tests = [os.path.join(ROOT, "sidecar/tests", name) for name in ("test_layers.py", "test_hook.py")]
    output = expect("aarch64-hook.log", RUN, DEBIAN, "-m", "pytest", "-p", "no:cacheprovider", "--color=no",
                    "--durations=10", "-k", HOOK_TESTS, *tests,
                    env={"PP_AGENT": f"{build}/sidecar/agent/precisionprobe-agent",
                         "PP_HOOK": f"{build}/sidecar/hook/python", "PP_TORCH_PYTHON": python, "MASTER_PORT": "29855"})
    return [f"aarch64: {line}" for line in found(r"^=+ .* in [0-9.]+s", output)]


CHECKS = [("programs for aarch64", programs), ("unit tests on aarch64, emulated", units),
          ("tests of hook and agent on aarch64, emulated", hook)]
