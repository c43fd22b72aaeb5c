"""
Epoch and batch of a step, for trainings that iterate a torch DataLoader. Both are -1 where they are
not known: an own generator, a streaming data set, a loader made anew for every epoch.

Within a capture the wrapper of the iterators' __next__ (spans.c) remembers which one it was. How
many batches an iterator has yielded it knows by itself, also of those between captures.
"""
import weakref

from precisionprobe_hook import _marks

UNKNOWN = -1


class Position:
    def __init__(self):
        self.loader = None  # id of what the iterators of one DataLoader share
        self.epoch = UNKNOWN
        self.last = None  # (steps, batch) when position() was asked last
        self.started = None  # weak reference to the iterator that self.epoch belongs to

    def get(self):
        """(epoch, batch) of the step that ends now."""
        reference = _marks.iterator()
        iterator = reference() if reference else None
        if iterator is None:
            return UNKNOWN, UNKNOWN
        batch = iterator._num_yielded - 1
        steps = _marks.steps()
        if self.started is None or self.started() is not iterator:
            self.epoch = self._next_epoch(iterator, batch, steps)
            self.started = weakref.ref(iterator)
            self.loader = id(iterator._index_sampler)
        elif self.last is not None and batch < self.last[1]:
            self.epoch += 1 if self.epoch >= 0 else 0  # a persistent iterator began again
        self.last = (steps, batch)
        return self.epoch, batch

    def _next_epoch(self, iterator, batch, steps):
        """The epoch of an iterator that is new to us."""
        if self.last is None:
            # The first: it is epoch 0 if every step since the process began was one of its batches.
            return 0 if steps == batch + 1 else self._told(iterator)
        if id(iterator._index_sampler) != self.loader or self.epoch < 0:
            return self._told(iterator)
        try:
            length = len(iterator._index_sampler)
        except TypeError:
            return self._told(iterator)
        # Batches since then, one a step; the gap between captures may hold whole epochs.
        at = self.last[1] + steps - self.last[0]
        return self.epoch + at // length if at % length == batch else self._told(iterator)

    @staticmethod
    def _told(iterator):
        """What a DistributedSampler was told by set_epoch."""
        sampler = getattr(iterator._index_sampler, "sampler", None)
        epoch = getattr(sampler, "epoch", None)
        return epoch if isinstance(epoch, int) and 0 < epoch < 1 << 31 else UNKNOWN
