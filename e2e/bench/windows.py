"""What `precisionprobe run --keep-windows` kept of a GPU's sampled windows (sidecar/agent/window_file.h), as Python has it."""
import collections
import pathlib
import struct

MAGIC, VERSION = 0x3157444E57505000, 1
HEAD = struct.Struct("<QIIIIqqQQQ")
KERNEL = struct.Struct("<qqqIBBxxQ")
CLOCK = struct.Struct("<ixxxxqqq?xxxxxxxqQ")
FORWARD, BACKWARD = 0, 1

Kernel = collections.namedtuple("Kernel", "start end step layer phase work like")
Window = collections.namedtuple("Window", "path period kernels likely")


def read(path):
    """A window: `kernels` in ns of the kernels' clock; `likely`: ns that the samples' is ahead where the driver stamps them."""
    data = pathlib.Path(path).read_bytes()
    magic, version, kernel, sample, clock, period, _, kernels, copies, samples = HEAD.unpack_from(data)
    if (magic, version, kernel) != (MAGIC, VERSION, KERNEL.size):
        raise ValueError(f"{path} is no window of version {VERSION}")
    begin = len(data) - samples * sample - (kernels + copies) * kernel
    if begin != HEAD.size + CLOCK.size or clock + 8 != CLOCK.size:
        raise ValueError(f"{path} has another header")
    _, _, _, likely, _, _, _ = CLOCK.unpack_from(data, HEAD.size)
    found = [Kernel(*KERNEL.unpack_from(data, begin + i * kernel)) for i in range(kernels)]
    return Window(path, period, found, likely)


def of_run(folder):
    """All that a run's folder of results has, in order."""
    return [read(path) for path in sorted(pathlib.Path(folder, "windows").glob("*.window"))]
