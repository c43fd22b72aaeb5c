"""Which modules are layers, and what they are called. Looks at modules, changes nothing.

any() gets lists here: Python says so on standard error where it has no memory to end a generator.
"""
import sys
from fnmatch import fnmatchcase

# Wrappers that add a level to names which the user's model does not have.
_WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
_DATA_PARALLEL = frozenset(("DistributedDataParallel", "DataParallel", "DeepSpeedEngine"))
_LIMIT = 4096
FOLDED = " (all of it)"  # ends the class of a layer that stands for those in it, as there are too many
_FOLDS = (None, 16, 12, 8, 6, 5, 4, 3, 2, 1, 0)  # depths at which a module stands for all in it, where there are more layers
_OPTIMIZED = 1  # of a code object's flags: its variables are no dictionary
_COPIES = frozenset(("locals", "vars", "dir", "exec", "eval", "f_locals"))  # names by which a function gets at the copy of its variables
_MOST_MODULES = 32768  # that are looked at in a digest
_DEEPEST = 40  # parents below are none: so many forwards may be open in a thread


def children_of(module):
    return [(name, child) for name, child in module._modules.items() if child is not None]


def parameters_of(module, counted=None, alone=False):
    """
    How many numbers a module's parameters are, with those of what is in it; `alone`: without. None of `counted`, ids, counts
    again: this module's come to it.
    """
    total = 0
    for parameter in module._parameters.values() if alone else module.parameters():
        if parameter is None or counted is not None and id(parameter) in counted:
            continue
        if counted is not None:
            counted.add(id(parameter))
        try:
            total += getattr(parameter, "ds_numel", None) or parameter.numel()  # under ZeRO-3 each rank has a part
        except Exception:  # a lazy module's parameter has no size yet
            pass
    return total


def roots(called):
    """The outermost of the modules that were called, in order."""
    inside = set()
    found = []
    for module in called:
        if id(module) in inside:
            continue
        found.append(module)
        inside.update(id(m) for m in module.modules() if m is not module)
    return [root for root in found if id(root) not in inside]


def _variables(frame):
    """
    The values of a running function's variables. Until Python 3.12 asking for them makes a copy that the function keeps
    until it returns, with all that is in it: one that nobody else has is emptied. A function that may have asked for its
    own copy before is not asked: what it has written there would be written over.
    """
    if sys.version_info < (3, 13) and frame.f_code.co_flags & _OPTIMIZED and not _COPIES.isdisjoint(frame.f_code.co_names):
        return []
    space = frame.f_locals
    values = list(space.values())
    if type(space) is dict and frame.f_code.co_flags & _OPTIMIZED and sys.getrefcount(space) <= 3:
        space.clear()
    return values


def owners(roots, kind, frame):
    """
    The modules that these are in, and that are not called themselves, as Lightning's are not: {id(root): owner}. They are
    among the variables of whoever called: that is the loop that trains them.
    """
    seen = []
    while frame is not None and sys.gettrace() is None:
        seen += [each for each in _variables(frame) if issubclass(type(each), kind)]
        frame = frame.f_back
    found = {}
    for module in {id(each): each for each in seen}.values():
        inside = set(id(each) for each in module.modules() if each is not module)
        for root in roots:
            if id(root) in inside and len(inside) > found.get(id(root), (0,))[0]:
                found[id(root)] = len(inside), module
    return {at: module for at, (_, module) in found.items()}


def _tops(found, owner):
    """The outermost modules that these are in, each once."""
    tops = []
    for root in found:
        top = owner(root) or root
        if not any([top is each for each in tops]):
            tops.append(top)
    return tops


def _largest(roots):
    sizes = [parameters_of(root) for root in roots]
    return roots[sizes.index(max(sizes))] if roots else None


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


def _works_itself(module):
    """Whether a parent's forward may do more than call what is in it, and is the user's."""
    if type(module).__name__ in _DATA_PARALLEL or any([name in _WRAPPERS for name in module._modules]):
        return False
    forward = getattr(type(module), "forward", None)
    return forward is not getattr(sys.modules["torch.nn"].Sequential, "forward", None)


def is_layer(module):
    """Whether it is one by itself, where it is called: a leaf, or a parent that does something."""
    if not children_of(module):
        return True
    plain = getattr(sys.modules["torch.nn"].Module, "forward", None)
    return _works_itself(module) and getattr(type(module), "forward", None) is not plain


def unwrapped(module):
    """A module, and in a wrapper what it wraps, and so on."""
    found = [module]
    while len(found) < _DEEPEST:
        inner = [child for name, child in children_of(found[-1])
                 if name in _WRAPPERS or name == "module" and type(found[-1]).__name__ in _DATA_PARALLEL]
        if len(inner) != 1:
            break
        found += inner
    return found


def visible(module, name):
    """A name in named_modules() without the levels that wrappers add."""
    parts = []
    for part in filter(None, name.split(".")):
        if part not in _WRAPPERS and not (part == "module" and type(module).__name__ in _DATA_PARALLEL):
            parts.append(part)
        module = module._modules[part]
    return ".".join(parts)


class _Found:
    def __init__(self, module, path, parent):
        self.module = module
        self.path = path
        self.parent = parent
        self.type_name = type(module).__name__
        self.name = ".".join(path) or self.type_name


class _Finder:
    def __init__(self, called, compiled, wanted, fold):
        self.fold = fold
        self.compiled = compiled
        self.called = set(id(module) for module in called)
        self.wanted = wanted
        self.found = []
        self.seen = set()
        self.works = {}

    def called_below(self, module):
        """Whether anything inside a module was called as a module."""
        key = id(module)
        if key not in self.works:
            self.works[key] = False  # a cycle of modules does not end in one of ours
            self.works[key] = any([id(child) in self.called or self.called_below(child)
                                   for _, child in children_of(module)])
        return self.works[key]

    def visit(self, module, path, depth):
        if id(module) in self.seen or len(self.found) > _LIMIT:
            return
        self.seen.add(id(module))
        children = children_of(module)
        called = id(module) in self.called
        folded = self.fold is not None and depth >= self.fold
        deep = folded or (self.wanted.depth and depth >= self.wanted.depth)
        compiled = id(module) in self.compiled
        wrapper = type(module).__name__ in _DATA_PARALLEL
        inside = self.called_below(module)
        if compiled or not children or (called and (deep or not inside)):
            self.found.append(_Found(module, path, False))
            if folded and inside:
                self.found[-1].type_name += FOLDED
            if not compiled or deep or not inside:
                return
        elif called and depth <= _DEEPEST and _works_itself(module):
            self.found.append(_Found(module, path, True))
        for name, child in children:
            hidden = name in _WRAPPERS or (wrapper and name == "module")
            self.visit(child, path if hidden else path + (name,), depth if hidden else depth + 1)


def _take(found, wanted):
    """Those that are wanted; of a parent where all in it are, since it would have the work of the others."""
    left_out = [each.path for each in found if not wanted.takes(each.name, each.type_name)]
    around = set(path[:n] for path in left_out for n in range(len(path) + 1))
    return [each for each in found
            if wanted.takes(each.name, each.type_name) and not (each.parent and each.path in around)]


def free_name(plain, taken):
    """The name, with a number where another has it."""
    name, number = plain, 1
    while name in taken:
        number += 1
        name = "%s#%d" % (plain, number)
    return name


def _name(found, named, reserved):
    """Names each, with a number where another has the name; modules that were named before keep what they had."""
    taken = set(reserved)
    for each in found:
        each.name = named.get(id(each.module), each.name)
    for each in sorted(found, key=lambda each: id(each.module) not in named):
        each.name = free_name(each.name, taken)
        taken.add(each.name)


def choose(called, filters, regions=(), named={}, others=(), first=None, owner=lambda root: None, reserved=()):
    """
    From the modules called in one step to the layers: ([(module, name, type name, parameters, whether it is a parent)],
    the model or None, the one whose modules go by their names alone). Regions are (function, module or None, name) of compiled code that was called: the layer is then the
    function, in the module's place and by its name. A layer is a leaf: a module without children, or one that was called
    while none of its children was (it uses them to hold parameters); or, with a depth, the module at that depth, for all
    that is in it. Or it is a parent, which was called, and modules in it too: to it belongs what it does itself. Names are
    qualified by the largest root; a leaf that is a root by itself, such as a loss, goes by its class. `named` has the names
    that modules were given before, by id; `others` are modules that earlier steps called, `first` is the
    model whose modules go by their names alone, if it is among them, and `owner` tells in which module a root is. `reserved` are names
    of layers that are no modules. A parameter that several layers share counts with the first of them, as in model.parameters().
    """
    wanted = _Filter(filters)
    compiled = {}  # id of a module -> the functions compiled of it
    for function, module, _ in regions:
        compiled.setdefault(id(module), []).append(function)
    called = called + [module for _, module, _ in regions if module is not None]
    model = _largest(roots(called))
    now = set(id(each) for each in called)
    called = called + [each for each in others if id(each) not in now]
    tops = _tops(roots(called), owner)
    first = first if first is not None and any([first is top for top in tops]) else _largest(tops)
    for fold in _FOLDS:
        finder = _Finder(called, compiled, wanted, fold)
        for top in ([first] if tops else []) + [each for each in tops if each is not first]:
            prefix = () if top is first and children_of(top) else (type(top).__name__,)
            finder.visit(top, prefix, 0)
        if len(finder.found) <= _LIMIT:
            break
    found = finder.found[:_LIMIT] + [_Found(function, (name,), False) for function, module, name in regions if module is None]
    _name(found, named, reserved)
    layers, counted = [], set()
    for each in _take(found, wanted):
        size = parameters_of(each.module, counted, each.parent) if hasattr(each.module, "parameters") else 0
        for place in compiled.get(id(each.module), [each.module]):
            layers.append((place, each.name, each.type_name, size, each.parent))
    return layers, model, first


def takes_whole(filters):
    """Whether no layer is left out, nor stands for what is in it."""
    return takes_all(filters) and not _Filter(filters).depth


def takes_all(filters):
    """Whether no layer is left out for its name or type."""
    wanted = _Filter(filters)
    return wanted.include == ["*"] and not wanted.exclude and not wanted.types


def has_parameters(module):
    """Of compiled code, and of whatever hides its modules, it is not known: it may have some."""
    modules = getattr(type(module), "modules", None)  # the class's: a model may have an attribute of that name
    try:
        return any(p is not None for each in modules(module) for p in getattr(each, "_parameters", {}).values())
    except Exception:  # a model's own method may be anything
        return True


def wants(filters, name, type_name):
    return _Filter(filters).takes(name, type_name)


def _own(module):
    """Names, shapes and types of a module's own parameters; under ZeRO-3 and in FSDP's flat ones, those of the whole."""
    found = []
    for name, parameter in module._parameters.items():
        if parameter is not None:
            whole = getattr(parameter, "ds_shape", None)
            whole = getattr(parameter, "_shapes", None) if whole is None else whole
            shape = parameter.shape if whole is None else whole
            found.append((name, str(tuple(shape)), str(parameter.dtype)))
    return found


def _digest(model):
    import hashlib  # torch has imported it
    made = hashlib.blake2b(digest_size=8)
    seen = set()
    left = [((), model)]
    while left and len(seen) < _MOST_MODULES:
        path, module = left.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        parallel = type(module).__name__ in _DATA_PARALLEL
        wrapper = parallel or any([name in _WRAPPERS for name in module._modules])
        own = _own(module)
        if own or not wrapper:
            made.update(ascii((".".join(path), "" if wrapper else type(module).__name__, own)).encode())
        for name, child in reversed(children_of(module)):
            hidden = name in _WRAPPERS or (parallel and name == "module")
            left.append((path if hidden else path + (name,), child))
    return made.hexdigest()


def digest(model):
    """
    16 digits that a model has until it is changed: of names and classes of its modules, shapes and types of their
    parameters, whatever wraps it. "": it cannot be told.
    """
    try:
        return _digest(model) if model is not None else ""
    except Exception:  # a module's attributes may be anything, and a lazy one's parameters have no shape yet
        return ""


def class_of(model):
    """Name of the model's class, wrappers taken off."""
    while type(model).__name__ in _DATA_PARALLEL or type(model).__name__ == "OptimizedModule":
        inner = model._modules.get("module") or model._modules.get("_orig_mod")
        if inner is None:
            break
        model = inner
    return type(model).__name__ if model is not None else ""
