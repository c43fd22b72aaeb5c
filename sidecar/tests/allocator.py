"""A double of torch.cuda's caching allocator, where torch is built without CUDA: what it says of blocks that a training asks it
for is what torch's says, in its words and order (CUDACachingAllocator.cpp): blocks are rounded up to 512 bytes, and a larger one
than 1 MiB may have up to as much more that was not worth splitting off; statistics count by blocks, the history has what was
asked for; a free is asked for at once, and done once the stream is there.
"""
import ctypes

SMALL = 1 << 20


class Allocator:
    def __init__(self, tight=False):
        self.tight = tight  # a newer torch, in which no block is larger than it has to be, as with expandable segments
        self.blocks = {}  # address -> (asked for, bytes)
        self.bytes = self.peak = self.allocated = self.freed = 0
        self.history = None  # [entry]; None: none is kept
        self.kept = 0
        self.next = 1 << 20
        self.lists = []  # of addresses that may be used again
        self.calls = []  # what was asked of the history

    def block(self, size):
        rounded = -(-size // 512) * 512
        return rounded if rounded <= SMALL or self.tight else rounded + rounded * 97 % SMALL // 512 * 512

    def malloc(self, size):
        address = self.lists.pop() if self.lists else self.next
        self.next += 1 << 30
        self.blocks[address] = size, self.block(size)
        self.allocated += 1
        self.bytes += self.block(size)
        self.peak = max(self.peak, self.bytes)
        self.trace("alloc", address, size)
        return address

    def free(self, address):
        size, block = self.blocks.pop(address)
        self.freed += 1
        self.bytes -= block
        self.trace("free_requested", address, size)
        self.trace("free_completed", address, size)
        self.lists.append(address)

    def trace(self, action, address, size):
        if self.history is not None:
            self.history.append({"action": action, "addr": address, "size": size, "stream": 0, "frames": []})
            del self.history[:-self.kept]

    # ---- as torch._C has them ----

    def stats(self, device):
        def of(current, peak=0, allocated=0, freed=0):
            return {"all": {"current": current, "peak": peak, "allocated": allocated, "freed": freed}}
        held = len(self.blocks)
        return {"allocated_bytes": of(self.bytes, self.peak), "allocation": of(held, held, self.allocated, self.freed),
                "active": of(held), "inactive_split": of(len(self.lists)), "segment": of(held)}

    def record(self, enabled, context, stacks, max_entries, *clear):
        """torch 2.6 and later give it three more, later ones a fourth."""
        self.calls.append((enabled, context))
        self.history = None if enabled is None else (self.history or [])
        self.kept = max_entries

    def record_legacy(self, enabled, *rest):
        self.record("all" if enabled else None, *("legacy", "python", 1000))

    def snapshot(self, *pool):
        """Before torch 2.8 it is of no pool; 2.11 gives back references that it had not taken."""
        if pool and not self.tight:
            raise TypeError("memorySnapshot() takes no arguments")
        for each in pool[0] if pool else ():
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(each))
        return {"segments": [], "device_traces": [list(self.history or [])]}

    def is_history_enabled(self):
        return self.history is not None

    def refuse(self, torch):
        """As cudaMallocAsync, which counts and does no more."""
        def raises(*args):
            raise RuntimeError("cudaMallocAsync does not yet support recordHistory")
        for name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_memorySnapshot",
                     "_cuda_isHistoryEnabled"):
            setattr(torch._C, name, raises)

    def install(self, torch, devices):
        """
        `devices` is the hook's module of that name, or None: modules are on its GPU then. As in torch 2.8 no callback stays
        behind a history, so that is what torch says it is where its own release is one that leaves one.
        """
        if (2, 5) <= tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 8):
            torch.__version__ = "2.8.0"
        for name, function in (("_cuda_memoryStats", self.stats), ("_cuda_record_memory_history", self.record),
                               ("_cuda_record_memory_history_legacy", self.record_legacy),
                               ("_cuda_memorySnapshot", self.snapshot), ("_cuda_isHistoryEnabled", self.is_history_enabled)):
            setattr(torch._C, name, function)
        if devices:
            devices.of = lambda modules: {torch.device("cuda", 0)}


class Pieces:
    """The most bytes while each piece of a program ran, and what it left: of pieces in pieces the innermost has it."""

    def __init__(self, allocator):
        self.allocator = allocator
        self.open = []
        self.since = 0
        self.found = {}  # name -> [peak, left]

    def switch(self):
        """Of what is open: the allocator's own peak, since the last time that this was called."""
        name = self.open[-1] if self.open else "other"
        peak, left = self.found.get(name, (0, 0))
        self.found[name] = [max(peak, self.allocator.peak), left + self.allocator.bytes - self.since]
        self.since = self.allocator.peak = self.allocator.bytes

    def begin(self, name):
        self.switch()
        self.open.append(name)

    def end(self):
        self.switch()
        self.open.pop()

    def restart(self):
        self.found = {}
        self.since = self.allocator.peak = self.allocator.bytes
