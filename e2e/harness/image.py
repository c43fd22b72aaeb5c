"""Builds the image of the operator, the agent and the hook, and prints the path of its archive.

A docker-archive for this machine, or an oci-archive for x86-64 and aarch64.
"""
import argparse
import os
import platform
import re
import sys

from .deploy import build_product
from .cluster import E2E
from .progress import CommandError, run, say, step, tidy_up_on_signals


def tag(text):
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no tag of an image")
    return text


def parser():
    """e2e/image says what they mean, before there is a Python."""
    known = argparse.ArgumentParser(prog="e2e/image", add_help=False)
    known.add_argument("--tag", type=tag)
    known.add_argument("--all-platforms", action="store_true")
    return known


def build_all_platforms(name):
    """(archive, image): one image for x86-64 and aarch64, on either."""
    if platform.machine() != "x86_64":
        raise CommandError("--all-platforms needs an x86-64 machine")
    run(f"{E2E}/setup", "@aarch64")
    archives = [build_product(tag=name), build_product(tag=name, foreign=True)]
    image = archives[0][1]
    out = os.path.splitext(archives[1][0])[0] + "-all.oci"
    if not os.path.exists(out):
        with step("image for all platforms"):
            run(f"{E2E}/images/join", "--out", out, "--tag", image.rsplit(":", 1)[1], *[path for path, _ in archives])
    return out, image


def main():
    args = parser().parse_args()
    tidy_up_on_signals()
    try:
        archive, image = build_all_platforms(args.tag) if args.all_platforms else build_product(tag=args.tag)
    except CommandError as error:
        say(f"image: {error}")
        return 1
    say(image)
    print(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
