"""Builds the image of the programs and prints its archive's path and its name: `python3 -m harness.image` in e2e/."""
from .deploy import build_product

if __name__ == "__main__":
    print(*build_product())
