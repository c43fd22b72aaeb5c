"""What `precisionprobe run --keep-windows` kept of a GPU's sampled windows (sidecar/agent/window_file.h), as Python has it."""
import collections
import pathlib
import struct

MAGIC, VERSION = 0x3157444E57505000, 1
HEAD = struct.Struct("<QIIIIqqQQQ")
KERNEL = struct.Struct("<qqqIBBxxQ")
SAMPLE = struct.Struct("<qq6f")
LIKELY = 24  # of pp_sampling_clock: where `likely` is
METRICS = ("SMActive", "SMOccupancy", "DRAMActive", "FP32Active", "TensorActive", "SMClock")  # in the order of a sample's values
FORWARD = 0

Kernel = collections.namedtuple("Kernel", "start end step layer phase work like")
Sample = collections.namedtuple("Sample", "start end values")
Window = collections.namedtuple("Window", "path kernels samples")


def read(path):
    """A window's kernels, in ns of their records' clock, and its samples, in ns of the same where their own goes as fast:
    brought there by the lag of the stamps as the capture begins. Values are 0 to 1, NaN: not offered."""
    data = pathlib.Path(path).read_bytes()
    magic, version, kernel, sample, clock, _, _, kernels, copies, samples = HEAD.unpack_from(data)
    if (magic, version, kernel) != (MAGIC, VERSION, KERNEL.size):
        raise ValueError(f"{path} is no window of version {VERSION}")
    begin = len(data) - samples * sample - (kernels + copies) * kernel
    if begin != HEAD.size + clock + 8:  # whether it is stamped comes last
        raise ValueError(f"{path} has another header")
    found = [Kernel(*KERNEL.unpack_from(data, begin + i * kernel)) for i in range(kernels)]
    likely, = struct.unpack_from("<q", data, HEAD.size + LIKELY)
    begin = len(data) - samples * sample
    taken = [SAMPLE.unpack_from(data, begin + i * sample) for i in range(samples)]
    return Window(path, found, [Sample(start - likely, end - likely, values) for start, end, *values in taken])


def of_run(folder):
    """All that a run's folder of results has, in order."""
    return [read(path) for path in sorted(pathlib.Path(folder, "windows").glob("*.window"))]
