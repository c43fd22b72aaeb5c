/*
 * What of the autograd graph is a parent's own: made by its forward, and by none of the modules
 * that it called.
 *
 * Nodes are numbered as a thread makes them, and autograd's engine runs those of one device in the
 * order of their numbers, the last first. A module's have the numbers that were given from the
 * begin of its forward to its end. So the own ones of a parent make stretches, between which
 * modules ran, and each runs back to back. `begin` goes before the nodes by which backward comes
 * into a stretch, `end` after those by which it leaves: several, since some may not be needed for a
 * gradient; behind each but the last the stretch goes on with `resume`, as in nodes.c. Views launch
 * nothing and carry none, but for one that has to copy its gradient: where branches meet behind a
 * view, the sum of their gradients is not the parent's. Nor is a checkpoint's node, which runs
 * modules' backward in it.
 *
 * Of a module's nodes none is looked at: the walk goes on where the module's own ended. However
 * deep parents are nested, each node is looked at once.
 */
#include "sidecar/hook/hook.h"

#include <stdlib.h>

enum { NODES_MAX = 65536, VIEWS_MAX = 8, ELSEWHERE = -1 };

typedef struct walk {
    pp_part *whole;
    const pp_part *parts;
    size_t count;
    bool *entered;     /* by part */
    PyObject *queue;   /* list of nodes to be looked at, each once */
    PyObject *visited; /* the same as a set */
    PyObject *turned;  /* set of reshapes whose gradient comes through a view, and is copied */
    PyObject *begun;   /* set of own nodes by which a stretch is come into */
    PyObject *left;    /* list of own nodes by which one is left */
    PyObject *own;     /* list of own nodes that work */
    PyObject *of;      /* list of their stretches, as numbers: number i comes before part i */
    bool too_many;
} walk;

/* How many parts begin at a number or below it. */
static size_t parts_up_to(const walk *w, int64_t number)
{
    size_t low = 0, high = w->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->parts[middle].from <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

typedef struct place {
    bool before;       /* it was made before the parent's forward, or by another thread */
    const pp_part *of; /* the module that made it; NULL: none */
    Py_ssize_t stretch;
} place;

static int find(const walk *w, PyObject *node, place *ret)
{
    int64_t number;
    *ret = (place){.stretch = ELSEWHERE};
    if (pp_nodes_number(node, &number) < 0)
        return -1;
    ret->before = number < w->whole->from || number >= w->whole->to;
    if (ret->before)
        return 0;
    size_t at = parts_up_to(w, number);
    if (at > 0 && number < w->parts[at - 1].to)
        ret->of = &w->parts[at - 1];
    else
        ret->stretch = (Py_ssize_t)at;
    return 0;
}

/* Puts a node on the queue unless it has been there. */
static int push(walk *w, PyObject *node)
{
    int seen = PySet_Contains(w->visited, node);
    if (seen != 0)
        return seen < 0 ? -1 : 0;
    if (PyList_Size(w->queue) >= NODES_MAX) {
        w->too_many = true;
        return 0;
    }
    return PySet_Add(w->visited, node) < 0 ? -1 : PyList_Append(w->queue, node);
}

/* A pp_node_kind, NODE_WORK for a reshape that copies. -1: exception. */
static int kind_of(walk *w, PyObject *node, bool turned)
{
    int kind = pp_nodes_kind(node);
    if (kind != NODE_RESHAPE)
        return kind;
    int copies = PySet_Contains(w->turned, node);
    if (copies != 0 || !turned)
        return copies < 0 ? -1 : copies ? NODE_WORK : NODE_RESHAPE;
    /* It may have been looked at as a view: by another way, on which nothing turns the gradient. */
    int seen = PySet_Contains(w->visited, node);
    if (seen < 0 || PySet_Add(w->turned, node) < 0 || (seen && PyList_Append(w->queue, node) < 0))
        return -1;
    return NODE_WORK;
}

/* Backward comes to this node from outside of its stretch, by a view that turns the gradient or
 * not: views are looked through. */
static int come_in(walk *w, PyObject *node, int depth, bool turned)
{
    place at;
    if (push(w, node) < 0 || find(w, node, &at) < 0)
        return -1;
    int kind = at.stretch == ELSEWHERE ? NODE_CHECKPOINT : kind_of(w, node, turned);
    if (kind < 0 || kind == NODE_CHECKPOINT)
        return kind < 0 ? -1 : 0;
    if (kind == NODE_WORK)
        return PySet_Add(w->begun, node);
    PyObject *behind = PyList_New(0);
    int rc = behind ? pp_nodes_behind(node, behind) : -1;
    for (Py_ssize_t i = 0; rc == 0 && depth < VIEWS_MAX && i < PyList_Size(behind); i++)
        rc = come_in(w, PyList_GetItem(behind, i), depth + 1, turned || kind == NODE_TURN);
    Py_XDECREF(behind);
    return rc;
}

static int come_in_each(walk *w, PyObject *nodes)
{
    for (Py_ssize_t i = 0; i < PyList_Size(nodes); i++)
        if (come_in(w, PyList_GetItem(nodes, i), 0, false) < 0)
            return -1;
    return 0;
}

/* How a node was reached within a stretch: by so many views, of which one turned the gradient. */
typedef struct way {
    Py_ssize_t stretch;
    int depth;
    bool turned;
} way;

/* Whether backward leaves the stretch here: behind the node is another's, or nothing but
 * parameters. 1, 0, or -1 with an exception. */
static int leaves(walk *w, PyObject *behind, const way *from, bool *works)
{
    for (Py_ssize_t i = 0; i < PyList_Size(behind); i++) {
        PyObject *to = PyList_GetItem(behind, i);
        place at;
        if (find(w, to, &at) < 0)
            return -1;
        int kind = at.stretch == from->stretch ? kind_of(w, to, from->turned) : NODE_CHECKPOINT;
        if (kind < 0 || kind == NODE_CHECKPOINT)
            return kind < 0 ? -1 : 1;
        *works = *works || kind == NODE_WORK;
        if (kind == NODE_WORK || from->depth == VIEWS_MAX)
            continue;
        const way on = {from->stretch, from->depth + 1, from->turned || kind == NODE_TURN};
        PyObject *further = PyList_New(0);
        int out =
            further && pp_nodes_behind(to, further) == 0 ? leaves(w, further, &on, works) : -1;
        Py_XDECREF(further);
        if (out != 0)
            return out;
    }
    return 0;
}

static int leave(walk *w, PyObject *node, Py_ssize_t stretch)
{
    PyObject *number = PyLong_FromSsize_t(stretch);
    int rc = number && PyList_Append(w->of, number) == 0 ? PyList_Append(w->left, node) : -1;
    Py_XDECREF(number);
    return rc;
}

static int take_self(walk *w, PyObject *node, Py_ssize_t stretch, PyObject *behind)
{
    bool works = false;
    int kind = kind_of(w, node, false);
    const way here = {.stretch = stretch};
    if (kind < 0)
        return -1;
    if (kind == NODE_CHECKPOINT)
        return come_in_each(w, behind);
    int out = kind == NODE_WORK ? leaves(w, behind, &here, &works) : 0;
    if (out < 0 || (kind == NODE_WORK && PyList_Append(w->own, node) < 0))
        return -1;
    if (kind == NODE_WORK && (out || !works) && leave(w, node, stretch) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyList_Size(behind); i++) {
        PyObject *to = PyList_GetItem(behind, i);
        place at;
        if (find(w, to, &at) < 0 ||
            (at.stretch == stretch ? push(w, to) : come_in(w, to, 0, kind == NODE_TURN)) < 0)
            return -1;
    }
    return 0;
}

/* A module whose way to others is not known is walked through. */
static int pass(walk *w, const pp_part *part, PyObject *behind)
{
    bool *entered = &w->entered[part - w->parts];
    if (PyList_Size(part->exits) == 0)
        return come_in_each(w, behind);
    if (*entered)
        return 0;
    *entered = true;
    return come_in_each(w, part->exits);
}

static int look_at(walk *w, PyObject *node)
{
    place at;
    if (find(w, node, &at) < 0)
        return -1;
    if (at.before)
        return PyList_Append(w->whole->exits, node);
    PyObject *behind = PyList_New(0);
    int rc = behind ? pp_nodes_behind(node, behind) : -1;
    if (rc == 0)
        rc = at.of ? pass(w, at.of, behind) : take_self(w, node, at.stretch, behind);
    Py_XDECREF(behind);
    return rc;
}

static int hook_begun(const walk *w, PyObject *hook)
{
    PyObject *nodes = PySequence_List(w->begun);
    int rc = nodes ? 0 : -1;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(nodes); i++)
        rc = pp_nodes_begin(PyList_GetItem(nodes, i), hook);
    Py_XDECREF(nodes);
    return rc;
}

static Py_ssize_t stretch_of(const walk *w, Py_ssize_t i)
{
    return PyLong_AsSsize_t(PyList_GetItem(w->of, i));
}

/* Backward comes to the stretch with the lowest numbers last: there the parent's ends. */
static int hook_stretches(const walk *w, const pp_self_hooks *hooks)
{
    const Py_ssize_t n = PyList_Size(w->left);
    Py_ssize_t last = n > 0 ? stretch_of(w, 0) : 0;
    for (Py_ssize_t i = 1; i < n; i++)
        last = stretch_of(w, i) < last ? stretch_of(w, i) : last;
    for (Py_ssize_t i = 0; i < n; i++)
        if (pp_nodes_end(PyList_GetItem(w->left, i),
                         stretch_of(w, i) == last ? hooks->end : hooks->pause) < 0)
            return -1;
    return hook_begun(w, hooks->begin) < 0
               ? -1
               : pp_nodes_resume(w->own, w->left, w->begun, hooks->resume);
}

static int walk_from(walk *w, PyObject *nodes, const pp_self_hooks *hooks)
{
    int rc = come_in_each(w, nodes);
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(w->queue); i++)
        rc = look_at(w, PyList_GetItem(w->queue, i));
    return rc == 0 && !w->too_many ? hook_stretches(w, hooks) : rc;
}

static void done(walk *w)
{
    Py_XDECREF(w->queue);
    Py_XDECREF(w->visited);
    Py_XDECREF(w->turned);
    Py_XDECREF(w->begun);
    Py_XDECREF(w->left);
    Py_XDECREF(w->own);
    Py_XDECREF(w->of);
    free(w->entered);
}

/* To be done also where it fails. -1: exception. */
static int make(walk *w, pp_part *whole, const pp_part *parts, size_t count)
{
    *w = (walk){.whole = whole,
                .parts = parts,
                .count = count,
                .entered = calloc(count + 1, sizeof *w->entered),
                .queue = PyList_New(0),
                .visited = PySet_New(NULL),
                .turned = PySet_New(NULL),
                .begun = PySet_New(NULL),
                .left = PyList_New(0),
                .own = PyList_New(0),
                .of = PyList_New(0)};
    if (!w->entered)
        (void)PyErr_NoMemory();
    return w->entered && w->queue && w->visited && w->turned && w->begun && w->left && w->own &&
                   w->of
               ? 0
               : -1;
}

int pp_nodes_hook_self(PyObject *output, pp_part *whole, const pp_part *parts, size_t count,
                       const pp_self_hooks *hooks)
{
    walk w;
    PyObject *outputs = PyList_New(0);
    int rc = make(&w, whole, parts, count);
    if (rc == 0)
        rc = outputs && pp_nodes_gather(output, outputs) == 0 ? walk_from(&w, outputs, hooks) : -1;
    Py_XDECREF(outputs);
    done(&w);
    return rc;
}

int pp_nodes_hook_stretch(PyObject *nodes, int64_t from, int64_t to, const pp_self_hooks *hooks)
{
    pp_part whole = {.from = from, .to = to, .exits = PyList_New(0)};
    const pp_part none = {0};
    walk w;
    int rc = whole.exits && make(&w, &whole, &none, 0) == 0 ? walk_from(&w, nodes, hooks) : -1;
    if (whole.exits)
        done(&w);
    Py_XDECREF(whole.exits);
    return rc;
}
