"""A folder with the programs and all that they need, for machines where nothing can be installed."""
import argparse
import os
import re
import shutil
import sys

from .cluster import E2E
from .deploy import build_folder, install_programs
from .progress import CommandError, run, say, tidy_up_on_signals

PROGRAMS = ("precisionprobe", "precisionprobe-agent")
# --library-path stands in LD_LIBRARY_PATH's place: what that says is still looked at, and where container runtimes put
# the driver. The environment stays as it is, since a training is started with it. The program finds the hook by where
# the dynamic linker lies.
START = """#!/bin/sh
at=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "$at/lib/%s" --library-path "$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/usr/local/nvidia/lib64" "$at/libexec/%s" "$@"
"""
# The same program by the names that kubectl runs and asks: the linker's call does not keep the name.
PLUGIN = START.replace('"$@"', 'kubectl "$@"')
PLUGIN_COMPLETION = """#!/bin/sh
"$(dirname "$(readlink -f "$0")")/precisionprobe" complete kubectl "$@"
echo :4
"""
ENVIRONMENT = """# For sh, in this folder: what the benchmarks in bench/ look for.
PP_CLI=$PWD/bin/precisionprobe PP_AGENT=$PWD/bin/precisionprobe-agent
PP_HOOK=$PWD/share/precisionprobe/hook/python PP_PYTHON=${PP_PYTHON:-python3}
export PP_CLI PP_AGENT PP_HOOK PP_PYTHON
"""


def libraries(program):
    """Paths of what a program is linked with, the dynamic linker last."""
    listed = run("ldd", program)
    if "not found" in listed:
        raise CommandError(f"{program} is linked with what is not here:\n{listed}")
    found = re.findall(r"=> (/\S+)", listed)
    linker, = re.findall(r"^\s*(/\S*/ld-\S+)", listed, re.M)
    return found + [linker]


def write(path, text, mode):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def lay_out(prefix, folder):
    """From what `cmake --install` has put below `prefix`. The folder must be new or empty."""
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        raise CommandError(f"{folder} is not empty")
    for name in ("bin", "lib", "libexec"):
        os.makedirs(os.path.join(folder, name))
    shutil.copytree(f"{prefix}/share", f"{folder}/share")
    for program in PROGRAMS:
        own = shutil.copy(f"{prefix}/bin/{program}", f"{folder}/libexec/{program}")
        needed = libraries(own)
        for path in needed:
            shutil.copy(path, f"{folder}/lib/{os.path.basename(path)}")
        write(f"{folder}/bin/{program}", START % (os.path.basename(needed[-1]), program), 0o755)
    write(f"{folder}/bin/kubectl-precisionprobe", PLUGIN % (os.path.basename(needed[-1]), PROGRAMS[0]), 0o755)
    write(f"{folder}/bin/kubectl_complete-precisionprobe", PLUGIN_COMPLETION, 0o755)
    shutil.copytree(f"{E2E}/bench", f"{folder}/bench", ignore=shutil.ignore_patterns("__pycache__"))
    write(f"{folder}/environment", ENVIRONMENT, 0o644)


def parser():
    """e2e/portable says what they mean, before there is a Python."""
    known = argparse.ArgumentParser(prog="e2e/portable", add_help=False)
    known.add_argument("folder")
    return known


def main():
    args = parser().parse_args()
    tidy_up_on_signals()
    try:
        stage = build_folder("stage-portable")
        install_programs("release", stage, "--strip")
        lay_out(stage, args.folder)
    except (CommandError, OSError) as error:
        say(f"portable: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
