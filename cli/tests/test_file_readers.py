"""Files as others read them: Parquet by pyarrow and pandas, CSV and Lucid's table by pandas.

PP_CLI      the program precisionprobe
PP_READERS  a folder with Python's packages of readers.txt
"""
import io
import os
import sys

import folder
import pytest
import test_files
from test_files import HOSTILE, RECORDINGS, hostile, rows_of_json, run, unguarded, written

pytestmark = pytest.mark.skipif("PP_READERS" not in os.environ, reason="no readers of files: e2e/test --all has them")


@pytest.fixture(scope="module", autouse=True)
def packages():
    sys.path.insert(0, os.environ.get("PP_READERS", ""))
    yield
    sys.path.pop(0)


def parquet(*at):
    code, out, why = run("--format=parquet", *at, PYTHONPATH=os.environ["PP_READERS"])
    assert code == 0, why
    return out


def rows_of_parquet(out):
    import pyarrow.parquet
    return pyarrow.parquet.read_table(io.BytesIO(out))


@pytest.mark.parametrize("recording", ["demo", "h200", "in_step", "regression", "replay", "sampling"])
def test_parquet_is_the_same_as_json(recording):
    table = rows_of_parquet(parquet(RECORDINGS / recording))
    expected = list(rows_of_json(written("--format=json", RECORDINGS / recording)))
    assert table.num_rows == len(expected)
    times = {name: [None if t is None else t.value for t in table[name].to_pandas()] for name in ("first_marked", "last_marked")}
    import pandas
    for number, (row, known) in enumerate(zip(table.drop_columns(list(times)).to_pylist(), expected)):
        for name, values in times.items():
            assert values[number] == pandas.Timestamp(known.pop(name)).value
        assert row == known


def test_types_of_columns(tmp_path):
    """Also of columns without a value, and of no rows."""
    for at in (RECORDINGS / "demo", folder.write(tmp_path / "none", folder.RESULTS)):
        kinds = {field.name: str(field.type) for field in rows_of_parquet(parquet(at)).schema}
        assert (kinds["layer"], kinds["calls"], kinds["mean"], kinds["achieved"], kinds["gap_ns"], kinds["first_marked"]) == (
            "string", "int64", "double", "double", "int64", "timestamp[ns, tz=UTC]")


def test_more_rows_than_a_group(tmp_path):
    items = [test_files.item(f"layer.{n}", "forward", [], SMActive=test_files.metric(n / 30000)) for n in range(25000)]
    told = rows_of_parquet(parquet(folder.write(tmp_path / "many", test_files.results(items=items))))
    assert told["mean"].to_pylist() == [n / 30000 for n in range(25000)]


def test_hostile_names_survive_in_parquet(tmp_path):
    table = rows_of_parquet(parquet(hostile(tmp_path)))
    assert table["layer"].to_pylist() == table["source"].to_pylist() == HOSTILE
    assert table["type"].to_pylist() == [name or None for name in HOSTILE]


def test_csv_by_pandas(tmp_path):
    import pandas
    told = pandas.read_csv(io.BytesIO(run("--format=csv", hostile(tmp_path))[1]), keep_default_na=False)
    assert [unguarded(name) for name in told["layer"]] == HOSTILE
    assert set(told["total_ns"]) == {123456789012345678}


def test_lucid_finds_a_training(tmp_path):
    """As its policy looks one up (policy/lucid.py)."""
    import pandas
    at = folder.write(tmp_path / "dlrm", test_files.results())
    told = pandas.read_csv(io.StringIO(written("--format=lucid", "--set=dataset=Criteo", "--set=amp=0", "--set=label=2", at)))
    m, b, d, a = "DLRM", 64, "Criteo", 0
    assert told.query(" model == @m and batchsize == @b and dataset == @d and amp == @a")["label"].values[0] == 2
    assert [str(told[name].dtype) for name in ("batchsize", "amp", "speed", "gpu_util", "gmem", "label")] == [
        "int64", "int64", "float64", "float64", "float64", "int64"]
