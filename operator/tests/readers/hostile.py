"""Names that somebody may give to a layer to harm whoever reads them: common/tests/hostile.json, for the tests of all readers."""
import json
import pathlib

NAMES = json.loads((pathlib.Path(__file__).resolve().parents[3] / "common/tests/hostile.json").read_text())
LONGEST = ["é" * 256, "x" * 512]  # bytes of a name on the wire and in a run's batches
TOO_LONG = "x" * 10240
