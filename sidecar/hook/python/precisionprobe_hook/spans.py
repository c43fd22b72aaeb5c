"""What of a step is no layer's: methods of torch's classes that are wrapped while a capture runs."""
import sys

from precisionprobe_hook import _marks


class Spans:
    def __init__(self):
        self.wrapped = []  # (class, name, original or None where it is inherited, wrapper)
        self.spared = set()  # names that are not to be wrapped

    def spare(self, name):
        """Compiled code may look at it: leaves it alone for good."""
        self.spared.add(name)
        self.remove((name,))

    def install(self, again=0):
        """`again`: the layer for what a checkpoint runs again outside of modules; 0: none."""
        if self.wrapped:
            return
        for module, owner, name, phase in (
                ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__", _marks.DATA),
                ("torch.optim.optimizer", "Optimizer", "zero_grad", _marks.ZERO_GRAD)):
            cls = getattr(sys.modules.get(module), owner, None)
            original = vars(cls).get(name) if cls is not None else None
            if original is not None and name not in self.spared:
                wrapper = _marks.span(original, phase)
                self.put(cls, name, wrapper)
        cls = getattr(sys.modules.get("torch.utils.checkpoint"), "_recomputation_hook", None)  # torch >= 2.1
        for name in ("__exit__", "__enter__") if cls is not None else ():
            self.put(cls, name, _marks.again(getattr(cls, name), name == "__enter__", again))

    def put(self, cls, name, wrapper):
        self.wrapped.append((cls, name, vars(cls).get(name), wrapper))
        setattr(cls, name, wrapper)

    def remove(self, names=None):
        for each in [w for w in self.wrapped if not names or w[1] in names]:
            if each not in self.wrapped:
                continue  # another thread, which compiles, has spared it meanwhile
            self.wrapped.remove(each)
            cls, name, original, wrapper = each
            if vars(cls).get(name) is not wrapper:
                continue
            if original is None:
                delattr(cls, name)
            else:
                setattr(cls, name, original)
