"""stuck.py PID: what each thread of a process waits for, for a training that does not go on.

A line for each thread: its name, state, CPU time in ticks and system call; of a futex the words at its address, in which glibc
has a lock's owner (a mutex' third, a read-write lock's seventh from its beginning); below it the code on its stack, by library and
offset, the innermost first. Addresses that calls before have left there are among them. Only Linux on x86-64; nothing is changed.
"""
import bisect
import os
import struct
import sys

FUTEX, DEPTH, SHOWN = "202", 6000, 40


class Code:
    """Where in which library an address is, by /proc/PID/maps."""

    def __init__(self, pid):
        self.parts, self.base = [], {}
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            for line in file:
                fields = line.split(None, 5)
                first, end = (int(part, 16) for part in fields[0].split("-"))
                name = os.path.basename(fields[5].strip()) if len(fields) > 5 else ""
                self.parts.append((first, end, "x" in fields[1], name))
                self.base.setdefault(name, first - int(fields[2], 16))

    def of(self, address):
        at = bisect.bisect_right(self.parts, (address, float("inf"))) - 1
        if at < 0 or address >= self.parts[at][1] or not self.parts[at][2] or not self.parts[at][3]:
            return None
        name = self.parts[at][3]
        return f"{name}+{address - self.base[name]:x}"


def words(memory, address, size, form):
    """What is at an address, as far as it can be read."""
    try:
        memory.seek(address)
        data = memory.read(size)
    except (OSError, OverflowError, ValueError):
        return ()
    length = struct.calcsize(form)
    return struct.unpack(f"<{len(data) // length}{form}", data[:len(data) // length * length])


def thread(path, code, memory):
    with open(f"{path}/stat", encoding="utf-8") as file:
        name, _, rest = file.read().partition("(")[2].rpartition(")")
    with open(f"{path}/syscall", encoding="utf-8") as file:
        call = file.read().split()
    stat = rest.split()
    lines = [f"{os.path.basename(path)} {name} {stat[0]} cpu {int(stat[11]) + int(stat[12])} call {' '.join(call[:4])}"]
    if len(call) < 3:
        return lines
    if call[0] == FUTEX:
        lines.append("    futex " + " ".join(f"{word:x}" for word in words(memory, int(call[1], 16), 64, "I")))
    stack = [code.of(int(call[-1], 16)), *map(code.of, words(memory, int(call[-2], 16), DEPTH, "Q"))]
    lines.append("    " + " ".join([place for place in stack if place][:SHOWN]))
    return lines


def waits(pid):
    """The text of all threads of a process; of one that ends meanwhile, what there was."""
    lines = []
    try:
        code = Code(pid)
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for tid in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
                lines += thread(f"/proc/{pid}/task/{tid}", code, memory)
    except OSError as error:
        lines.append(str(error))
    return "\n".join(lines)


if __name__ == "__main__":
    print(waits(int(sys.argv[1])))
