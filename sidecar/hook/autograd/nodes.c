/*
 * A layer's part of the autograd graph: the nodes that its forward made, found by walking back from
 * its output.
 *
 * Not by full backward hooks: those wrap tensors as views, which breaks in-place operations, and
 * they fire when the output's gradient arrives, for a layer with integer inputs before its own
 * backward has run. Hooks on the nodes see every kernel of the layer and change nothing.
 *
 * `begin` goes before the nodes that made the output, `end` after those from which the layer is
 * left: towards its inputs, or with nothing behind them but parameters. The nodes in between run
 * back to back with these, so they carry no hook.
 *
 * Where branches meet, the engine adds their gradients up behind the hooks of the node that comes
 * last, and before anything else; into a parameter's .grad as soon as its gradient is there.
 * Neither is the layer's: so no hook is on AccumulateGrad, and views, which launch nothing, are
 * looked through, but for one that has to copy its gradient. What the layer has left to do behind
 * such a node (autocast's cast of a weight, behind the product that leads to the input) begins with
 * `resume`: the engine runs nodes in the order of their numbers, the last first.
 */
#include "sidecar/hook/hook.h"

#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 65536, DEPTH_MAX = 4, VIEWS_MAX = 8, TYPES_MAX = 1024 };

pp_torch pp_torch_api;

/* Types of nodes and their kinds. */
static PyObject *kinds;
/* Interned names and arguments used on every call. */
static PyObject *s_grad_fn, *s_next_functions, *s_sequence_nr, *s_register_hook;
static PyObject *s_register_prehook, *s_name;

int pp_nodes_init(void)
{
    kinds = PyDict_New();
    s_grad_fn = PyUnicode_InternFromString("grad_fn");
    s_next_functions = PyUnicode_InternFromString("next_functions");
    s_sequence_nr = PyUnicode_InternFromString("_sequence_nr");
    s_register_hook = PyUnicode_InternFromString("register_hook");
    s_register_prehook = PyUnicode_InternFromString("register_prehook");
    s_name = PyUnicode_InternFromString("__name__");
    return kinds && s_grad_fn && s_next_functions && s_sequence_nr && s_register_hook &&
                   s_register_prehook && s_name
               ? 0
               : -1;
}

/* Adds the nodes behind every tensor in a nested value to a list. */
static int gather(PyObject *value, PyObject *nodes, int depth)
{
    if (depth > DEPTH_MAX || PyList_Size(nodes) >= NODES_MAX)
        return 0;
    if (PyTuple_Check(value) || PyList_Check(value)) {
        Py_ssize_t n = PySequence_Size(value);
        n = n > NODES_MAX ? NODES_MAX : n;
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *item = PySequence_GetItem(value, i);
            int rc = item ? gather(item, nodes, depth + 1) : -1;
            Py_XDECREF(item);
            if (rc < 0)
                return -1;
        }
        return 0;
    }
    if (PyDict_Check(value)) {
        PyObject *items = PyDict_Values(value);
        int rc = items ? gather(items, nodes, depth + 1) : -1;
        Py_XDECREF(items);
        return rc;
    }
    int is = PyObject_IsInstance(value, pp_torch_api.tensor);
    if (is <= 0)
        return is;
    PyObject *node = PyObject_GetAttr(value, s_grad_fn);
    int rc = node ? 0 : -1;
    if (node && node != Py_None)
        rc = PyList_Append(nodes, node);
    Py_XDECREF(node);
    return rc;
}

int pp_nodes_gather(PyObject *value, PyObject *nodes)
{
    return gather(value, nodes, 0);
}

int pp_nodes_next_number(int64_t *ret)
{
    PyObject *number = PyObject_CallFunctionObjArgs(pp_torch_api.get_sequence_nr, NULL);
    *ret = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

int pp_nodes_number(PyObject *node, int64_t *ret)
{
    PyObject *number = PyObject_CallMethodObjArgs(node, s_sequence_nr, NULL);
    *ret = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *pp_nodes_edge(PyObject *args)
{
    if (pp_torch_api.get_sequence_nr)
        return PyObject_CallFunctionObjArgs(pp_torch_api.get_sequence_nr, NULL);
    PyObject *nodes = PyList_New(0);
    if (nodes && gather(args, nodes, 0) < 0)
        Py_CLEAR(nodes);
    PyObject *set = nodes ? PySet_New(nodes) : NULL;
    Py_XDECREF(nodes);
    return set;
}

static bool accumulates(PyObject *node)
{
    return (PyObject *)Py_TYPE(node) == pp_torch_api.accumulate_grad;
}

/* Whether the node was made by this forward: 1, 0, or -1 with an exception. */
static int inside(PyObject *node, PyObject *edge)
{
    if (!PyLong_Check(edge)) {
        int before = PySet_Contains(edge, node);
        return before < 0 ? -1 : !before;
    }
    PyObject *number = PyObject_CallMethodObjArgs(node, s_sequence_nr, NULL);
    int rc = number ? PyObject_RichCompareBool(number, edge, Py_GE) : -1;
    Py_XDECREF(number);
    return rc;
}

/* Registers through the node's own method. */
static int hook_node(PyObject *node, PyObject *method, PyObject *hook)
{
    PyObject *handle = PyObject_CallMethodObjArgs(node, method, hook, NULL);
    Py_XDECREF(handle);
    return handle ? 0 : -1;
}

int pp_nodes_begin(PyObject *node, PyObject *hook)
{
    return hook_node(node, s_register_prehook, hook);
}

int pp_nodes_end(PyObject *node, PyObject *hook)
{
    return hook_node(node, s_register_hook, hook);
}

typedef struct numbered {
    PyObject *node;
    int64_t number;
} numbered;

static int order_number(const void *pa, const void *pb)
{
    const numbered *a = pa, *b = pb;
    return (a->number < b->number) - (a->number > b->number);
}

static int resume_behind(const numbered *nodes, Py_ssize_t n, PyObject *left, PyObject *begun,
                         PyObject *hook)
{
    for (Py_ssize_t i = 0; i + 1 < n; i++) {
        PyObject *next = nodes[i + 1].node;
        int ends = next == nodes[i].node ? 0 : PySequence_Contains(left, nodes[i].node);
        int begins = ends > 0 ? PySequence_Contains(begun, next) : 0;
        if (ends < 0 || begins < 0 ||
            (ends && !begins && hook_node(next, s_register_prehook, hook) < 0))
            return -1;
    }
    return 0;
}

int pp_nodes_resume(PyObject *nodes, PyObject *left, PyObject *begun, PyObject *hook)
{
    const Py_ssize_t n = PyList_Size(nodes);
    if (n < 2)
        return 0;
    PyObject *ends = PySet_New(left), *begins = PySet_New(begun);
    numbered *all = malloc((size_t)n * sizeof *all);
    int rc = ends && begins && all ? 0 : -1;
    if (!all)
        (void)PyErr_NoMemory();
    for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
        all[i].node = PyList_GetItem(nodes, i);
        rc = pp_nodes_number(all[i].node, &all[i].number);
    }
    if (rc == 0) {
        qsort(all, (size_t)n, sizeof *all, order_number);
        rc = resume_behind(all, n, ends, begins, hook);
    }
    free(all);
    Py_XDECREF(ends);
    Py_XDECREF(begins);
    return rc;
}

typedef struct walk {
    PyObject *queue;   /* list of the nodes found, in order */
    PyObject *visited; /* the same as a set */
    PyObject *begun;   /* list of those that made the output */
    PyObject *left;    /* list of those from which the layer is left */
    PyObject *edge;
    const pp_self_hooks *hooks;
    PyObject *exits; /* list of the nodes before the edge that were met, or NULL */
} walk;

/* Puts a node on the queue unless it has been there. */
static int visit(walk *w, PyObject *node)
{
    int seen = PySet_Contains(w->visited, node);
    if (seen)
        return seen < 0 ? -1 : 0;
    if (PySet_Add(w->visited, node) < 0)
        return -1;
    return PyList_Size(w->queue) < NODES_MAX ? PyList_Append(w->queue, node) : 0;
}

/* By the type's name: TBackward0 and the like. */
static int kind_by_name(PyObject *type)
{
    static const struct {
        const char *prefix;
        pp_node_kind kind;
    } known[] = {
        {"TBackward", NODE_TURN},
        {"TransposeBackward", NODE_TURN},
        {"PermuteBackward", NODE_TURN},
        {"ViewBackward", NODE_RESHAPE},
        {"UnsafeViewBackward", NODE_RESHAPE},
        {"ReshapeAliasBackward", NODE_RESHAPE},
        {"AliasBackward", NODE_VIEW},
        {"UnsqueezeBackward", NODE_VIEW},
        {"SqueezeBackward", NODE_VIEW},
        {"CheckpointFunction", NODE_CHECKPOINT},
        {"BroadcastBackward", NODE_BROADCAST},
    };
    PyObject *name = PyObject_GetAttr(type, s_name);
    PyObject *bytes = name ? PyUnicode_AsUTF8String(name) : NULL;
    const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
    int kind = text ? NODE_WORK : -1;
    for (size_t i = 0; text && i < sizeof known / sizeof *known; i++)
        if (strncmp(text, known[i].prefix, strlen(known[i].prefix)) == 0)
            kind = (int)known[i].kind;
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    return kind;
}

/* Types are remembered, but none that a program has made: with it would stay what its class holds,
 * tensors and compiled code. */
int pp_nodes_kind(PyObject *node)
{
    PyObject *type = (PyObject *)Py_TYPE(node);
    if (PyType_GetFlags(Py_TYPE(node)) & Py_TPFLAGS_HEAPTYPE)
        return kind_by_name(type);
    PyObject *known = PyDict_GetItemWithError(kinds, type);
    if (known)
        return (int)PyLong_AsLong(known);
    int kind = PyErr_Occurred() ? -1 : kind_by_name(type);
    if (kind < 0 || PyDict_Size(kinds) >= TYPES_MAX)
        return kind;
    PyObject *number = PyLong_FromLong(kind);
    if (!number || PyDict_SetItem(kinds, type, number) < 0)
        kind = -1;
    Py_XDECREF(number);
    return kind;
}

/* What comes after a node in backward, views looked through. */
typedef struct successors {
    bool outward, working; /* out of the layer; nodes of the layer, which are visited */
} successors;

/* From a node: how many views were looked through, and whether one of them turned the gradient. */
typedef struct look {
    walk *walk;
    int depth;
    bool turned;
    successors *found;
} look;

static int look_behind(PyObject *node, look *from);

static int look_at(const look *from, PyObject *to)
{
    walk *w = from->walk;
    successors *ret = from->found;
    int kind = pp_nodes_kind(to);
    int in = kind == NODE_BROADCAST ? 0 : inside(to, w->edge);
    if (kind < 0 || in < 0)
        return -1;
    if (in == 0) {
        ret->outward = true;
        return w->exits ? PyList_Append(w->exits, to) : 0;
    }
    kind = from->depth < VIEWS_MAX ? kind : NODE_WORK;
    if (kind == NODE_VIEW || kind == NODE_TURN || (kind == NODE_RESHAPE && !from->turned)) {
        look further = {w, from->depth + 1, from->turned || kind == NODE_TURN, ret};
        return look_behind(to, &further);
    }
    ret->working = true;
    return visit(w, to);
}

/* Calls `take` with each node behind this one. Adding into parameters is no work of the layer's. */
static int each_behind(PyObject *node, int (*take)(void *user, PyObject *to), void *user)
{
    PyObject *next = PyObject_GetAttr(node, s_next_functions);
    int rc = next ? 0 : -1;
    Py_ssize_t n = next ? PyTuple_Size(next) : 0;
    for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
        PyObject *pair = PyTuple_GetItem(next, i);
        PyObject *to = pair ? PyTuple_GetItem(pair, 0) : NULL;
        if (!to)
            rc = -1;
        else if (to != Py_None && !accumulates(to))
            rc = take(user, to);
    }
    Py_XDECREF(next);
    return rc;
}

static int append(void *list, PyObject *node)
{
    return PyList_Append(list, node);
}

int pp_nodes_behind(PyObject *node, PyObject *nodes)
{
    return each_behind(node, append, nodes);
}

static int take_look(void *user, PyObject *to)
{
    return look_at(user, to);
}

static int look_behind(PyObject *node, look *from)
{
    return each_behind(node, take_look, from);
}

static int walk_node(walk *w, PyObject *node)
{
    successors behind = {0};
    int kind = pp_nodes_kind(node);
    look from = {.walk = w, .turned = kind == NODE_TURN, .found = &behind};
    if (kind < 0 || look_behind(node, &from) < 0)
        return -1;
    const bool leaves = behind.outward || !behind.working;
    if (!leaves)
        return 0;
    return pp_nodes_end(node, w->hooks->end) < 0 ? -1 : PyList_Append(w->left, node);
}

static int walk_all(walk *w, PyObject *outputs)
{
    for (Py_ssize_t i = 0; i < PyList_Size(outputs); i++) {
        PyObject *node = PyList_GetItem(outputs, i);
        int in = inside(node, w->edge);
        int seen = in > 0 ? PySet_Contains(w->visited, node) : 0;
        if (in < 0 || seen < 0)
            return -1;
        /* A layer that hands its input through has no node; a leaf tensor is no work of its. */
        if (!in || seen || accumulates(node))
            continue;
        if (pp_nodes_begin(node, w->hooks->begin) < 0 || visit(w, node) < 0 ||
            PyList_Append(w->begun, node) < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(w->queue); i++)
        if (walk_node(w, PyList_GetItem(w->queue, i)) < 0)
            return -1;
    return PyLong_Check(w->edge) ? pp_nodes_resume(w->queue, w->left, w->begun, w->hooks->resume)
                                 : 0;
}

int pp_nodes_hook(PyObject *output, PyObject *edge, const pp_self_hooks *hooks, PyObject *exits)
{
    PyObject *outputs = PyList_New(0);
    walk w = {.queue = PyList_New(0),
              .visited = PySet_New(NULL),
              .begun = PyList_New(0),
              .left = PyList_New(0),
              .edge = edge,
              .hooks = hooks,
              .exits = exits};
    const bool made = outputs && w.queue && w.visited && w.begun && w.left;
    int rc = made ? gather(output, outputs, 0) : -1;
    if (rc == 0 && PyList_Size(outputs) > 0)
        rc = walk_all(&w, outputs);
    Py_XDECREF(outputs);
    Py_XDECREF(w.queue);
    Py_XDECREF(w.visited);
    Py_XDECREF(w.begun);
    Py_XDECREF(w.left);
    return rc;
}
