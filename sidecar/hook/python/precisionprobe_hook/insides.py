"""Layers inside of compiled regions: for each graph that a region runs, the layer of each of its launches (provenance.py).

While a capture runs what runs a graph of the compiler's is wrapped, and tells which graph ran. A region's graphs are told
once, as soon as it has run one: the same graph may be run by several regions, each with layers of its own.
"""
import functools
import time
import weakref

from precisionprobe_hook import _marks, layers

MOST_LAYERS = 3000  # more are the region's: others need room too
NOT, FOLDED, SESSION, KERNELS, FUNCTION, COMPILER = range(6)  # why layers in one are not told: pp_whole_reason


class Insides:
    def __init__(self, provenance, add):
        """add(name, type name, parameters) tells a layer; its number, or 0."""
        self.provenance = provenance
        self.add = add
        self.regions = {}  # layer -> (weak reference to its module, what the names of modules in it begin with)
        self.told = {}  # (Frame, layer of a region) -> how many of the frame's graphs are told
        self.exchanged = None  # class, its method, ours in its place

    def begin(self, regions):
        self.regions = regions
        kind = self.provenance.compiled
        if not kind or not regions or self.exchanged:
            return
        original, ran = kind.__call__, self.ran

        @functools.wraps(original)
        def __call__(self_, *args, **kwargs):
            begun = time.monotonic_ns()
            result = original(self_, *args, **kwargs)
            try:
                ran(self_, begun)
            except Exception:
                pass
            return result

        kind.__call__ = __call__
        self.exchanged = kind, original, __call__

    def end(self):
        exchanged, self.exchanged = self.exchanged, None
        if exchanged and exchanged[0].__call__ is exchanged[2]:
            exchanged[0].__call__ = exchanged[1]

    def ran(self, compiled, begun):
        graph = self.provenance.of(compiled)
        region = _marks.ran(graph.number if graph else 0, begun)
        if graph and region in self.regions and self.told.get((graph.frame, region), 0) < len(graph.frame.graphs):
            done, self.told[graph.frame, region] = self.told.get((graph.frame, region), 0), len(graph.frame.graphs)
            reference, prefix = self.regions[region]
            for each in graph.frame.graphs[done:]:
                self.tell(each, region, reference(), prefix)

    def tell(self, graph, region, module, prefix):
        """Nothing is told of a graph where something does not fit: all of it is the region's then."""
        variable, top = _top(graph.frame, module)
        if top is None:
            return
        names = _Names(top, module)
        for (of, way), kind in graph.classes.items():
            found = names.find(way) if of == variable else top
            if found is None or of == variable and type(found).__name__ != kind:
                return
        launches = []
        for name, operator, place in graph.launches:
            inner = names.owner(place[1]) if place and place[0] == variable else top
            layer = region if inner is top or inner is module else self.layer(inner, prefix + names.name(inner))
            launches.append((name, operator, layer or region))
        _marks.graph(graph.number, region, launches)

    def layer(self, module, name):
        parent = bool(layers.children_of(module))
        return self.add(name, type(module).__name__, layers.parameters_of(module, alone=parent))


def _top(frame, module):
    """
    (the variable, the module that it was) of which a frame's graphs are told, as this region's. Only where no other module in
    the region could be meant: a part of a region that is compiled by itself, behind a break, serves all modules of its class.
    """
    around = layers.unwrapped(module)
    kinds = [type(each) for each in around]
    fitting = [(variable, around[kinds.index(type(each()))]) for variable, each in frame.modules.items() if type(each()) in kinds]
    if len(fitting) != 1:
        return None, None
    variable, top = fitting[0]
    alike = [each for each in top.modules() if type(each) is type(top)]
    return (variable, top) if len(alike) == 1 else (None, None)


class _Names:
    """Modules in a region, by names that the compiler and named_modules() have for them."""

    def __init__(self, top, module):
        self.top = top
        self.names = {id(each): layers.visible(module, name) for name, each in module.named_modules()}

    def find(self, way):
        """None: there is no such module."""
        module = self.top
        for name in way:
            module = module._modules.get(name)
            if module is None:
                return None
        return module

    def owner(self, way):
        """The innermost module there that does something itself."""
        for length in range(len(way), 0, -1):
            module = self.find(way[:length])
            if module is not None and layers.is_layer(module):
                return module
        return self.top

    def name(self, module):
        return self.names[id(module)]


def regions(chosen, compiled, ids, first):
    """What Insides.begin() takes: of regions that are modules. `compiled` is [(function, its module or None, its name)]."""
    modules = {id(function): module for function, module, _ in compiled if module is not None}
    found = {}
    for place, name, type_name, _, _ in chosen:
        module = modules.get(id(place))
        if module is not None:
            outermost = first is not None and any([each is module for each in layers.unwrapped(first)])
            found[ids[name, type_name]] = weakref.ref(module), "" if outermost else name + "."
    return found
