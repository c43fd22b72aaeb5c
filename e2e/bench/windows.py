"""What `precisionprobe run --keep-windows` kept of a GPU's sampled windows (sidecar/agent/window_file.h), as Python has it."""
import collections
import pathlib
import struct

MAGIC, VERSION = 0x3157444E57505000, 1
HEAD = struct.Struct("<QIIIIqqQQQ")
KERNEL = struct.Struct("<qqqIBBxxQ")
FORWARD = 0

Kernel = collections.namedtuple("Kernel", "start end step layer phase work like")
Window = collections.namedtuple("Window", "path kernels")


def read(path):
    """A window's kernels, in ns of their records' clock."""
    data = pathlib.Path(path).read_bytes()
    magic, version, kernel, sample, clock, _, _, kernels, copies, samples = HEAD.unpack_from(data)
    if (magic, version, kernel) != (MAGIC, VERSION, KERNEL.size):
        raise ValueError(f"{path} is no window of version {VERSION}")
    begin = len(data) - samples * sample - (kernels + copies) * kernel
    if begin != HEAD.size + clock + 8:  # whether it is stamped comes last
        raise ValueError(f"{path} has another header")
    found = [Kernel(*KERNEL.unpack_from(data, begin + i * kernel)) for i in range(kernels)]
    return Window(path, found)


def of_run(folder):
    """All that a run's folder of results has, in order."""
    return [read(path) for path in sorted(pathlib.Path(folder, "windows").glob("*.window"))]
