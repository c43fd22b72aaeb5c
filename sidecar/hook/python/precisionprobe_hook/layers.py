"""Which modules are layers, and what they are called. Looks at modules, changes nothing.

any() gets lists here: Python says so on standard error where it has no memory to end a generator.
"""
from fnmatch import fnmatchcase

# Wrappers that add a level to names which the user's model does not have.
_WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
_DATA_PARALLEL = frozenset(("DistributedDataParallel", "DataParallel"))
_LIMIT = 4096


def _children(module):
    return [(name, child) for name, child in module._modules.items() if child is not None]


def _parameters(module):
    total = 0
    for parameter in module.parameters():
        try:
            total += parameter.numel()
        except Exception:  # a lazy module's parameter has no size yet
            pass
    return total


def _roots(called):
    """The outermost of the modules that were called, in order."""
    inside = set()
    roots = []
    for module in called:
        if id(module) in inside:
            continue
        roots.append(module)
        inside.update(id(m) for m in module.modules() if m is not module)
    return [root for root in roots if id(root) not in inside]


class _Filter:
    def __init__(self, layers):
        self.include = layers.get("include") or ["*"]
        self.exclude = layers.get("exclude") or []
        self.types = layers.get("types") or []
        self.depth = layers.get("depth") or 0

    def takes(self, name, type_name):
        return ((not self.types or type_name in self.types)
                and any([fnmatchcase(name, glob) for glob in self.include])
                and not any([fnmatchcase(name, glob) for glob in self.exclude]))


class _Finder:
    def __init__(self, called, compiled, wanted):
        self.compiled = compiled
        self.called = set(id(module) for module in called)
        self.wanted = wanted
        self.found = []  # (module, name)
        self.seen = set()
        self.works = {}

    def called_below(self, module):
        """Whether anything inside a module was called as a module."""
        key = id(module)
        if key not in self.works:
            self.works[key] = False  # a cycle of modules does not end in one of ours
            self.works[key] = any([id(child) in self.called or self.called_below(child)
                                   for _, child in _children(module)])
        return self.works[key]

    def visit(self, module, path, depth):
        if id(module) in self.seen or len(self.found) >= _LIMIT:
            return
        self.seen.add(id(module))
        children = _children(module)
        called = id(module) in self.called
        deep = self.wanted.depth and depth >= self.wanted.depth
        if id(module) in self.compiled:
            self.found.append((module, path))
            if deep or not self.called_below(module):
                return
        elif not children or (called and (deep or not self.called_below(module))):
            self.found.append((module, path))
            return
        wrapper = type(module).__name__ in _DATA_PARALLEL
        for name, child in children:
            hidden = name in _WRAPPERS or (wrapper and name == "module")
            self.visit(child, path if hidden else path + (name,), depth if hidden else depth + 1)


def choose(called, filters, regions=()):
    """
    From the modules called in one step to the layers: ([(module, name, type name, parameters)],
    the model or None). Regions are (function, module or None, name) of compiled code that was
    called: the layer is then the function, in the module's place and by its name. A layer is a leaf: a module without children, or one that was called while
    none of its children was (it uses them as containers of parameters); or, with a depth, the
    module at that depth, for all that is in it. Names are qualified by the largest root; a leaf
    that is a root by itself, such as a loss, goes by its class.
    """
    wanted = _Filter(filters)
    compiled = {}  # id of a module -> the functions compiled of it
    for function, module, _ in regions:
        compiled.setdefault(id(module), []).append(function)
    called = called + [module for _, module, _ in regions if module is not None]
    functions = [(function, (name,)) for function, module, name in regions if module is None]
    roots = _roots(called)
    sizes = [_parameters(root) for root in roots]
    model = roots[sizes.index(max(sizes))] if roots else None
    finder = _Finder(called, compiled, wanted)
    for root in ([model] if roots else []) + [r for r in roots if r is not model]:
        prefix = () if root is model and _children(root) else (type(root).__name__,)
        finder.visit(root, prefix, 0)
    layers = []
    names = {}
    for module, path in finder.found + functions:
        name = ".".join(path) or type(module).__name__
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = "%s#%d" % (name, names[name])
        if wanted.takes(name, type(module).__name__):
            size = _parameters(module) if hasattr(module, "parameters") else 0
            for place in compiled.get(id(module), [module]):
                layers.append((place, name, type(module).__name__, size))
    return layers, model


def class_of(model):
    """Name of the model's class, wrappers taken off."""
    while type(model).__name__ in _DATA_PARALLEL or type(model).__name__ == "OptimizedModule":
        inner = model._modules.get("module") or model._modules.get("_orig_mod")
        if inner is None:
            break
        model = inner
    return type(model).__name__ if model is not None else ""
