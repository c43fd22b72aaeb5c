"""Which modules a root is in, by the variables of those who called it; how many parameters layers have."""
from conftest import needed, run

BEGIN = """
import gc, pathlib, sys, types, weakref
package = types.ModuleType("precisionprobe_hook")
package.__path__ = [sys.argv[1] + "/precisionprobe_hook"]
sys.modules["precisionprobe_hook"] = package
from precisionprobe_hook import layers
from torch import nn
"""
OWNERS = BEGIN + """

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2))

    def training_step(self, kept):
        return look(self.inner, kept)


class Thing:
    pass


def look(root, kept):
    return layers.owners([root], nn.Module, sys._getframe(1))


def loop(model):
    thing = Thing()
    kept = weakref.ref(thing)
    seen = locals()
    found = model.training_step(kept)
    assert found == {id(model.inner): model}, found
    assert seen["thing"] is thing, "what the program asked for itself is its own"


def quiet_loop(model):
    thing = Thing()
    kept = weakref.ref(thing)
    assert model.training_step(kept) == {id(model.inner): model}
    del thing
    gc.collect()
    assert kept() is None, "a variable that is gone is kept"


loop(Outer())
quiet_loop(Outer())
alone = nn.Linear(2, 2)
assert layers.owners([alone], nn.Module, sys._getframe()) == {}
"""


def test_owners_are_found_among_the_callers_variables(python):
    run(python, "-c", OWNERS, needed("PP_HOOK"))


SHARED = BEGIN + """
import torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.embedding = nn.Embedding(11, 5)
        self.mixed = nn.Linear(5, 5)
        self.out = nn.Linear(5, 11)
        self.out.weight = self.embedding.weight


model = Model()
chosen, _, _ = layers.choose([model, model.out, model.mixed, model.embedding], {})
sizes = {name: size for _, name, _, size, _ in chosen}
assert sizes == {"Model": 3, "embedding": 55, "mixed": 30, "out": 11}, sizes
assert sum(sizes.values()) == sum(each.numel() for each in model.parameters())
"""


def test_layers_have_all_parameters_once(python):
    run(python, "-c", SHARED, needed("PP_HOOK"))
