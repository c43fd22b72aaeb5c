"""Does a process whose kernels, copies and fills CUPTI records go on, and with which settings does it not?

Builds records.c with the CUDA toolkit of the machine, and runs each of its cases with the CUPTI that torch has, where there is one.
A case that hangs is told with what its threads wait for (stuck.py), and one that a signal ends with where it was, on stderr.

CUDA_HOME  the toolkit (/usr/local/cuda)
"""
import argparse
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import lab
import stuck

CASES = ("", "calls", "copies", "copies api", "copies calls", "copies api flush=0", "copies api flush=500", "copies api buffer=320000",
         "copies api buffer=32000000", "leave=40000", "calls leave=40000", "copies api leave=40000", "copies calls leave=40000",
         "leave=4000", "calls leave=4000", "beside leave=4000", "leave=4000 slow", "leave=4000 late slow",
         "leave=4000 at-once", "beside leave=4000 at-once", "leave=4000 quiet", "beside leave=4000 quiet",
         "copies api few=4")
STARTS = 20  # seconds that a case may take to start and to end


def build(folder):
    home = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    program = folder / "records"
    subprocess.run(["cc", "-std=gnu17", "-O2", "-rdynamic", f"-I{home}/include", f"-I{home}/extras/CUPTI/include", str(lab.HERE / "records.c"), "-o", str(program),
                    f"-L{home}/lib64/stubs", f"-L{home}/extras/CUPTI/lib64", f"-L{home}/lib64", "-lcuda", "-lcupti", "-pthread"], check=True)
    return program


def libraries():
    """Where torch's own CUPTI is, before the toolkit's."""
    found = [os.path.dirname(path) for folder in sys.path for path in glob.glob(f"{folder}/nvidia/*/lib/libcupti.so.*")]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return ":".join([*found[:1], f"{home}/extras/CUPTI/lib64", os.environ.get("LD_LIBRARY_PATH", "")])


def run(program, seconds, case):
    """The figure that a case tells; of one that a signal ended, by which."""
    process = subprocess.Popen([str(program), str(seconds), *case.split()], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "LD_LIBRARY_PATH": libraries()})
    try:
        out, _ = process.communicate(timeout=seconds + STARTS)
    except subprocess.TimeoutExpired:
        print(f"{case or 'kernels alone'}:\n{stuck.waits(process.pid)}", file=sys.stderr)
        process.kill()
        out, _ = process.communicate()
    return json.loads(out) if out.strip() else {"ended": process.returncode}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case (10)")
    parser.add_argument("cases", nargs="*", default=CASES, help="options of records.c, as one word each (all that are known)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(pathlib.Path(folder))
        for case in args.cases:
            told = run(program, args.seconds, case)
            left = "leave=" not in case or told.get("left", 0) >= args.seconds / 2
            lab.figure("goes on", told.get("seconds"), "s", case=case or "kernels alone", holds=told.get("hung") is False and left,
                       **{key: told[key] for key in ("launched", "kernels", "copies", "lost", "left", "ended") if key in told})


if __name__ == "__main__":
    main()
    sys.exit(lab.status())
