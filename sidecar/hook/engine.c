/*
 * When autograd's engine runs, and what can be told of its work outside of modules: that of a loss,
 * and of gradients that are summed. While a capture runs the engine's run_backward is one of ours.
 *
 * Nodes are numbered as they are made. So a backward has a loss where one of its roots was made
 * behind the last model's forward; and where nodes were made outside of all modules before that,
 * what the engine does between layers may be theirs, and not sums of gradients.
 */
#include "hook.h"

#include <string.h>

enum {
    NODES_MAX = 256, /* between a model and its loss's module */
    END_COST = 200,  /* ns of the mark of the engine's end: half of a span's two */
};

typedef PyObject *(*keyed)(PyObject *, PyObject *, PyObject *);

static PyMethodDef *def; /* NULL: none was found */
static PyCFunction original;

static struct {
    uint32_t loss, gradients; /* layers; 0: nobody wants them */
    int64_t known;            /* nodes of the trainer's thread up to here are modules', or made
                                 before the step; -1: nothing is known */
    int64_t loss_from; /* the first number behind the last model's forward; -1: there is none */
    bool outside;      /* nodes were made outside of modules, before a forward */
    bool untold;       /* nodes are made, or will run, of which nobody knows whose they are */
} engine;

static pp_self_hooks hooks; /* of the loss's nodes, made when first needed */
static uint32_t hooks_of;   /* the layer that they are of */

/* -1: exception. */
static int next_number(int64_t *ret)
{
    *ret = -1;
    return engine.loss && pp_torch_api.get_sequence_nr ? pp_nodes_next_number(ret) : 0;
}

int pp_engine_step(void)
{
    engine.outside = engine.untold = false;
    engine.loss_from = -1;
    return next_number(&engine.known);
}

void pp_engine_untold(void)
{
    engine.untold = true;
}

/* Whether a value leads to all nodes that were made from one number on, to the one before another.
 * 1, 0, or -1 with an exception. */
static int leads_to_all(PyObject *value, int64_t from, int64_t to)
{
    PyObject *queue = PyList_New(0), *seen = PySet_New(NULL);
    int rc = queue && seen ? pp_nodes_gather(value, queue) : -1;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(queue) && i < NODES_MAX; i++) {
        PyObject *node = PyList_GetItem(queue, i);
        int64_t number;
        rc = pp_nodes_number(node, &number);
        const int known = rc < 0 ? -1 : PySet_Contains(seen, node);
        if (known < 0)
            rc = -1;
        else if (!known && number >= from && number < to)
            rc = PySet_Add(seen, node) < 0 ? -1 : pp_nodes_behind(node, queue);
    }
    if (rc == 0)
        rc = PySet_Size(seen) == to - from;
    Py_XDECREF(seen);
    Py_XDECREF(queue);
    return rc;
}

/* Has the nodes that lead to a loss's module say when they run. Each is a part of the one call. */
static int hook_nodes(PyObject *args, int64_t from)
{
    if (hooks_of != engine.loss) {
        Py_CLEAR(hooks.begin);
        Py_CLEAR(hooks.pause);
        hooks_of = engine.loss;
    }
    if (!hooks.begin)
        hooks.begin = pp_marks_callable(BACKWARD_BEGIN, engine.loss);
    if (!hooks.pause)
        hooks.pause = pp_marks_callable(BACKWARD_PAUSE, engine.loss);
    PyObject *edge = PyLong_FromLongLong(from);
    int rc = edge && hooks.begin && hooks.pause
                 ? pp_nodes_hook(args, edge, hooks.begin, hooks.pause, NULL)
                 : -1;
    Py_XDECREF(edge);
    return rc;
}

int pp_engine_forward(bool model, PyObject *args)
{
    int64_t number;
    if (next_number(&number) < 0)
        return -1;
    if (number == engine.known || engine.outside)
        return 0;
    int all = model || engine.known < 0 || engine.loss_from < 0
                  ? 0
                  : leads_to_all(args, engine.known, number);
    if (all > 0)
        return hook_nodes(args, engine.known);
    engine.outside = true;
    return all;
}

int pp_engine_returned(bool model)
{
    if (next_number(&engine.known) < 0)
        return -1;
    if (model)
        engine.loss_from = engine.known;
    return 0;
}

/* Whether one of the roots was made behind the last model's forward. -1: exception. */
static int has_loss(PyObject *args)
{
    PyObject *roots = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    PyObject *nodes = roots && engine.loss_from >= 0 ? PyList_New(0) : NULL;
    int rc = nodes ? pp_nodes_gather(roots, nodes) : PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; nodes && rc == 0 && i < PyList_Size(nodes); i++) {
        int64_t number;
        rc = pp_nodes_number(PyList_GetItem(nodes, i), &number);
        rc = rc == 0 && number >= engine.loss_from ? 1 : rc;
    }
    Py_XDECREF(nodes);
    return rc;
}

/* Whether an argument of run_backward's is false. */
static bool without(PyObject *args, Py_ssize_t n)
{
    return PyTuple_Size(args) > n && PyTuple_GetItem(args, n) == Py_False;
}

/* A backward has ended. What has been run is run no more; but where its graph is kept it may be,
 * and what it has made itself are nodes of no module. */
static void note_end(PyObject *args, bool returned)
{
    enum { KEEP_GRAPH = 2, CREATE_GRAPH = 3 };
    if (!without(args, CREATE_GRAPH))
        engine.untold = true;
    if (returned && without(args, KEEP_GRAPH) && pp_frames_count() == 0 && pp_marks_is_trainer() &&
        next_number(&engine.known) < 0) {
        PyErr_Clear();
        engine.untold = true;
    }
}

/* Whether an end is to follow; -1: exception. Within a forward it is that one's work. */
static int begin(PyObject *args)
{
    if (!pp_ring() || !engine.loss || pp_marks_state() != MARKING || pp_frames_count() > 0)
        return 0;
    const int64_t begun = pp_now();
    const int loss = engine.untold ? 0 : has_loss(args);
    if (loss < 0)
        return -1;
    const bool gradients = !engine.untold && !engine.outside;
    pp_mark_put(PP_MARK_BEGIN, PP_MARK_BACKWARD, PP_MARK_ENGINE | (loss ? PP_MARK_LOSS : 0),
                engine.loss, gradients ? engine.gradients : 0, 0, 0);
    pp_ring_cost(pp_now() - begun + END_COST);
    return 1;
}

/* Whatever exception it ended in stays. */
static void end(uint32_t loss)
{
    PyObject *type, *value, *trace;
    if (pp_marks_state() != MARKING)
        return;
    PyErr_Fetch(&type, &value, &trace);
    pp_mark_put(PP_MARK_END, PP_MARK_BACKWARD, PP_MARK_ENGINE, loss, 0, 0, 0);
    PyErr_Restore(type, value, trace);
}

static PyObject *run_backward(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const uint32_t loss = engine.loss;
    const int begun = begin(args);
    if (begun < 0 && !PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    if (begun < 0)
        PyErr_Clear();
    PyObject *result = ((keyed)(void (*)(void))original)(self, args, kwargs);
    if (begun > 0)
        end(loss);
    note_end(args, result != NULL);
    return result;
}

/* The first time; what is known of torch stays. */
static void find(PyObject *method, PyObject *owner)
{
    static bool found;
    bool writable = false;
    PyMethodDef *d = found ? NULL : pp_methods_find(method, owner, "run_backward");
    found = true;
    if (!d)
        return;
    pp_methods_writable(&d, &writable, 1);
    if (writable && strcmp(d->ml_name, "run_backward") == 0 &&
        d->ml_flags == (METH_VARARGS | METH_KEYWORDS)) {
        original = d->ml_meth;
        def = d;
    }
}

void pp_engine_begin(PyObject *method, PyObject *owner, uint32_t loss, uint32_t gradients)
{
    find(method, owner);
    engine.loss = def && gradients ? loss : 0;
    engine.gradients = gradients;
    if (engine.loss)
        pp_methods_exchange(def, original, (PyCFunction)(void (*)(void))run_backward);
}

void pp_engine_end(void)
{
    pp_methods_exchange(def, (PyCFunction)(void (*)(void))run_backward, original);
    engine.loss = 0;
}
