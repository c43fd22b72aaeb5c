"""What a run's kept windows lead to, evaluated again by a build's `sidecar/agent/tests/sample_again`, as results have it.

A window knows layers by numbers alone: whose each is tell the names of the recorded step's kernels, which come in the same order.
"""
import collections
import json
import subprocess

import errors
import whole_samples


def rows_of(kept, rows):
    """{(layer's number, phase's): {(layer, phase): ns that kernels of it ran}}: layers that are none have several numbers."""
    found = collections.defaultdict(collections.Counter)
    for window in kept:
        for kernels in whole_samples.steps_of(window, rows):
            for kernel, (_, _, layer, phase) in zip(kernels, rows):
                found[kernel.layer, kernel.phase][layer, phase] += kernel.end - kernel.start
    return found


def values_of(item):
    """{metric: (percent, standard error)}"""
    return {name: (100 * item[name][0], 100 * item[name][1]) for name in errors.METRICS if item.get(name) and item[name][0] is not None}


def estimates(program, kept, rows):
    """{(layer, phase): {metric: (percent, standard error)}}"""
    command = [program, *(str(window.path) for window in kept)]
    items = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])["items"]
    named, parts = rows_of(kept, rows), collections.defaultdict(list)
    for item in items:
        if times := named.get((item["layer"], item["phase"])):
            parts[times.most_common(1)[0][0]].append((item["time"], values_of(item)))
    return {row: errors.together(of_row) for row, of_row in parts.items()}
