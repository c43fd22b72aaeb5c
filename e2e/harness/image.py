"""Builds the image of the operator, the agent and the hook, and prints the path of its archive (docker-archive)."""
import argparse
import re
import sys

from .deploy import build_product
from .progress import CommandError, say, tidy_up_on_signals


def tag(text):
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no tag of an image")
    return text


def parser():
    """e2e/image says what they mean, before there is a Python."""
    known = argparse.ArgumentParser(prog="e2e/image", add_help=False)
    known.add_argument("--tag", type=tag)
    return known


def main():
    args = parser().parse_args()
    tidy_up_on_signals()
    try:
        archive, image = build_product(tag=args.tag)
    except CommandError as error:
        say(f"image: {error}")
        return 1
    say(image)
    print(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
