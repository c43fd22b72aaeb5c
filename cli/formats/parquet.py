"""Rows as Parquet, for `precisionprobe report --format parquet`: run by python3 with pyarrow.

Standard input has lines of JSON: first [[name, type], ...] with the types text, integer, real and time (ns since 1970), then
an array of each row, null where a value is not known. The file goes to standard output. Exits with 3 where there is no
pyarrow.
"""
import itertools
import json
import sys

ROWS = 10000  # of a row group


class Output:
    """A pipe as pyarrow writes it: it asks where it is, and never goes back."""
    closed = False

    def __init__(self, file):
        self.file, self.at = file, 0

    def write(self, data):
        self.at += len(data)
        self.file.write(data)
        return len(data)

    def tell(self):
        return self.at

    def flush(self):
        self.file.flush()

    def close(self):
        self.flush()

    def writable(self):
        return True

    def readable(self):
        return False

    def seekable(self):
        return False


def main():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return 3
    types = {"text": pyarrow.string(), "integer": pyarrow.int64(), "real": pyarrow.float64(),
             "time": pyarrow.timestamp("ns", tz="UTC")}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in json.loads(sys.stdin.buffer.readline())])
    with pyarrow.parquet.ParquetWriter(Output(sys.stdout.buffer), schema) as writer:
        while rows := [json.loads(line) for line in itertools.islice(sys.stdin.buffer, ROWS)]:
            columns = [pyarrow.array(values, field.type) for values, field in zip(zip(*rows), schema)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
    return 0


if __name__ == "__main__":
    sys.exit(main())
