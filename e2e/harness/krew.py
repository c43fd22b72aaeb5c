"""The kubectl plugin as krew takes it: an archive, and a manifest that says where it is and what it holds."""
import argparse
import gzip
import hashlib
import json
import os
import platform
import re
import sys
import tarfile
import tempfile

from .deploy import ROOT, build_folder, install_programs
from .portable import lay_out
from .progress import CommandError, say, tidy_up_on_signals

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # krew has Go's names
LEFT_OUT = ("bench", "environment")
DESCRIPTION = """\
Says, for PyTorch trainings on a cluster where PrecisionProbe is installed and without a change to their code, which layer, in which
phase, uses how much of which GPU resource, and how sure that is: starts a session, says how it is, prints and compares results, and
names what is missing where there are none.
"""


def pack(folder, archive):
    """Files in one order, of nobody and no time: the same programs are the same archive."""
    def plain(entry):
        if entry.name.split("/")[0] in LEFT_OUT:
            return None
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry
    with open(archive, "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed, \
            tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(os.listdir(folder)):
            tar.add(os.path.join(folder, name), name, filter=plain)


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"^project\(precisionprobe VERSION (\S+)", file.read(), re.M).group(1)


def manifest(archive, url, homepage=None, machine=None):
    """The plugin's manifest (krew's v1alpha2) of one archive for one CPU architecture."""
    with open(archive, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    spec = {"version": f"v{version()}", **({"homepage": homepage} if homepage else {}),
            "shortDescription": "Profile PyTorch trainings layer by layer", "description": DESCRIPTION,
            "caveats": "The operator has to be on the cluster: its chart is in charts/precisionprobe.\n",
            "platforms": [{"selector": {"matchLabels": {"os": "linux", "arch": ARCHITECTURES[machine or platform.machine()]}},
                           "uri": url, "sha256": digest, "bin": "bin/kubectl-precisionprobe", "files": [{"from": "*", "to": "."}]}]}
    return {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": "precisionprobe"},
            "spec": spec}


def main():
    known = argparse.ArgumentParser(prog="e2e/krew", add_help=False)
    known.add_argument("archive")
    known.add_argument("--url", required=True)
    known.add_argument("--homepage")
    args = known.parse_args()
    tidy_up_on_signals()
    try:
        stage = build_folder("stage-portable")
        install_programs("release", stage, "--strip")
        with tempfile.TemporaryDirectory() as folder:
            lay_out(stage, folder)
            pack(folder, args.archive)
        print(json.dumps(manifest(args.archive, args.url, args.homepage), indent=2))  # YAML, too
    except (CommandError, OSError) as error:
        say(f"krew: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
