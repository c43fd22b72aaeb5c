"""What each layer allocates on the GPU: torch's own history of its allocator, in single steps of a session (docs/timing.md)."""
import re

_STEPS = 3  # of a session that are told; of a capture one
_TRIES = 8
_ENTRIES = 65536  # of a history: three for each allocation that is freed again
_MOST = 60000  # blocks and entries that are copied at a step's end: 0.1 s
_ROUNDED = 512  # bytes: what the allocator rounds sizes up to
_SMALL = 1 << 20  # bytes: of larger ones the rest of a block may be part of it
_NO_POOL = 1 << 40, 1 << 40, True  # (number, number, whether the history is wanted)
# torch._C's, by which programs use the allocator's history: torch's Python looks them up at each call.
_WATCHED = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_memorySnapshot",
            "_cuda_isHistoryEnabled")


class Steps:
    """Those of a session in which the allocator's history is kept, where the program keeps none."""

    def __init__(self, torch, lend):
        """`lend` gives an object a reference for good."""
        self.torch = torch
        self.lend = lend
        self.session = None
        self.told = self.tried = 0
        self.device = 0
        self.on = False
        self.since = ()  # allocations and frees before the history
        self.replaced = []  # (name, original, replacement)
        self.snapshot = None  # torch's own

    def begin_capture(self, session, device):
        """
        (function of the allocator's statistics or None, its argument, why not) for a capture that begins; `device` is that
        of the modules, or None.
        """
        if session != self.session:
            self.session, self.told, self.tried = session, 0, 0
        if device is None or self.told >= _STEPS or self.tried >= _TRIES:
            return None, None, ""
        stats = getattr(self.torch._C, "_cuda_memoryStats", None)
        if not stats or not hasattr(self.torch._C, "_cuda_isHistoryEnabled"):
            return None, None, "torch before 2.1 keeps no history"
        if _leaves_callback(self.torch.__version__):
            return None, None, "torch %s leaves a callback behind" % self.torch.__version__
        self.device = self.torch.cuda.current_device() if device.index is None else device.index
        return stats, self.device, ""

    def begin(self):
        """Why the allocator's history is not kept from here on; "": it is."""
        self.end()
        self.tried += 1
        library = self.torch._C
        try:
            if library._cuda_isHistoryEnabled():
                return "the program keeps the allocator's history itself"
            stats = library._cuda_memoryStats(self.device)
            if _blocks(stats) > _MOST:
                return "the allocator has too many blocks"
            self.torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=_ENTRIES)
        except Exception:  # cudaMallocAsync, an allocator of the program's, or another torch's arguments
            return "this allocator keeps no history"
        self.on = True
        self.since = stats["allocation"]["all"]["allocated"], stats["allocation"]["all"]["freed"]
        self.snapshot = library._cuda_memorySnapshot
        for name in _WATCHED:
            original = getattr(library, name, None)
            if original:
                replacement = self.watched(original)
                setattr(library, name, replacement)
                self.replaced.append((name, original, replacement))
        return ""

    def watched(self, original):
        """The program's history begins where ours has ended."""
        def function(*args, **kwargs):
            try:
                self.end()
            except Exception:
                pass
            return original(*args, **kwargs)
        return function

    def end(self):
        """Lets the history go."""
        library = self.torch._C
        while self.replaced:
            name, original, replacement = self.replaced.pop()
            if getattr(library, name, None) is replacement:
                setattr(library, name, original)
        if self.on:
            self.on = False
            self.torch.cuda.memory._record_memory_history(None, context=None, stacks="python")

    def forget(self):
        """In a forked child, where CUDA must not be asked for anything."""
        self.on = False
        self.end()

    def levels(self, marks):
        """What levels() finds between marks of a step that has ended, and why that is not known."""
        if not self.on:
            return [], "the program began to keep the allocator's history"
        allocations, frees = (marks[-1][i] - marks[0][i] for i in (1, 2))
        entries = allocations + 2 * frees  # a free is asked for, and done
        if entries + _blocks(self.torch._C._cuda_memoryStats(self.device)) > _MOST:
            return [], "a step has too many allocations"
        trace = self.trace()
        events = [(each["action"] == "alloc", each["addr"], each["size"]) for each in trace
                  if each["action"] in ("alloc", "free_requested")]
        # Another thread may have allocated before the first mark, in the history or not.
        if self.since != marks[0][1:3] or len(events) < allocations + frees:
            return [], "the allocator's history is not whole"
        found = levels(events, marks)
        self.told += 1
        return found, ""

    def trace(self):
        """Of no pool of blocks, where this torch can be asked for that: the history alone is wanted."""
        for each in _NO_POOL:
            self.lend(each)  # torch 2.11 takes a reference of each from the tuple, which has lent it: the third call ends the process
        for arguments in ((_NO_POOL,), (_NO_POOL[:2],), ()):
            try:
                return self.snapshot(*arguments)["device_traces"][self.device]
            except (TypeError, ValueError, RuntimeError):  # another torch's arguments
                if not arguments:
                    raise


def _blocks(stats):
    return sum([stats[name]["all"]["current"] for name in ("active", "inactive_split", "segment")])


def _leaves_callback(version):
    """
    Whether it is a torch that never takes back what its first history adds to the callbacks of record_function: since
    #129072 (2.5), until #153839, which some prereleases of 2.8 do not have.
    """
    release = re.match(r"(\d+)\.(\d+)", version)
    return bool(release) and ((2, 5) <= tuple(map(int, release.groups())) < (2, 8) or version.startswith("2.8.0a"))


def _rounded(size):
    return -(-size // _ROUNDED) * _ROUNDED


def levels(events, marks):
    """
    [(number of a mark, bytes there, the most from there to the next)]. Marks are (bytes, allocations, frees, whether a
    backward ends there), of which the latter two count from anywhere. Events are (whether it is an allocation, address,
    bytes that were asked for), in order, from the first mark on. Marks tell also what was allocated, so the sum of what
    blocks are larger than that is known of each piece, and of a block that is alone in it.

    Where a backward ends autograd lets go what its last node had saved, and its gradient, before it does anything else: a
    level of its own, behind the mark's, has what is left.
    """
    larger = {}  # address -> bytes
    found = []
    at = 0
    for number, ((begin, allocations, frees, ends), after) in enumerate(zip(marks, marks[1:])):
        count = after[1] - allocations + after[2] - frees
        changes = _changes(events[at:at + count], after[0] - begin, larger)
        at += count
        first = _leading_frees(changes) if ends else 0
        if first:
            found.append((number, begin, begin))
            begin += sum(changes[:first])
        found.append((number, begin, _most(begin, changes[first:])))
    return found + [(len(marks) - 1, marks[-1][0], marks[-1][0])] if marks else []


def _leading_frees(changes):
    count = 0
    while count < len(changes) and changes[count] < 0:
        count += 1
    return count


def _most(level, changes):
    most = level
    for change in changes:
        level += change
        most = max(most, level)
    return most


def _changes(events, sum_, larger):
    """Bytes by which each event changes what is allocated; they add up to `sum_`."""
    changes = []
    unknown = []  # where in changes a block's size is not known
    for allocated, address, size in events:
        size = _rounded(size)
        if allocated:
            larger.pop(address, None)
            if size > _SMALL:
                unknown.append((len(changes), address))
        else:
            size += larger.pop(address, 0)
        changes.append(size if allocated else -size)
    rest = sum_ - sum(changes)
    for left, (at, address) in zip(range(len(unknown), 0, -1), unknown):
        larger[address] = max(0, rest // left)
        changes[at] += larger[address]
        rest -= larger[address]
    if changes:
        changes[-1] += rest
    return changes
