"""What of a step is no layer's: methods of torch's classes that are wrapped while a capture runs."""
import sys

from precisionprobe_hook import _marks


class Spans:
    def __init__(self):
        self.wrapped = []  # (class, name, original, wrapper)
        self.spared = set()  # names that are not to be wrapped

    def spare(self, name):
        """Compiled code may look at it: leaves it alone for good."""
        self.spared.add(name)
        self.remove((name,))

    def install(self):
        if self.wrapped:
            return
        for module, owner, name, phase in (
                ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__", _marks.DATA),
                ("torch.optim.optimizer", "Optimizer", "zero_grad", _marks.ZERO_GRAD)):
            cls = getattr(sys.modules.get(module), owner, None)
            original = vars(cls).get(name) if cls is not None else None
            if original is not None and name not in self.spared:
                wrapper = _marks.span(original, phase)
                self.wrapped.append((cls, name, original, wrapper))
                setattr(cls, name, wrapper)

    def remove(self, names=None):
        for each in [w for w in self.wrapped if not names or w[1] in names]:
            self.wrapped.remove(each)
            cls, name, original, wrapper = each
            if vars(cls).get(name) is wrapper:
                setattr(cls, name, original)
