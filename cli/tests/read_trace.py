"""What Holistic Trace Analysis finds in a folder with a trace of each rank: a JSON array [rank, step, name, category, dur]
for each event.

usage: read_trace.py FOLDER
"""
import json
import os
import sys

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # it would have whole microseconds else

from hta.common.trace import Trace  # pylint: disable=wrong-import-position

trace = Trace(trace_dir=sys.argv[1])
trace.load_traces(include_last_profiler_step=True, use_multiprocessing=False)
text = trace.symbol_table.get_sym_table()
for rank, found in trace.traces.items():
    for event in found.itertuples():
        print(json.dumps([int(rank), int(event.iteration), text[event.name], text[event.cat], float(event.dur)]))
