/*
 * What can be told of the work of autograd's engine outside of modules: that of a loss, and of
 * gradients that are summed.
 *
 * Nodes are numbered as they are made. So a backward has a loss where one of its roots was made
 * behind the last model's forward; and where nodes were made outside of all modules before that,
 * what the engine does between layers may be theirs, and not sums of gradients.
 */
#include "sidecar/hook/hook.h"

enum { NODES_MAX = 256 }; /* between a model and its loss's module */

static struct {
    uint32_t loss, gradients; /* layers; 0: nobody wants them */
    int64_t known;            /* nodes of the trainer's thread up to here are modules', or made
                                 before the step; -1: nothing is known */
    int64_t loss_from; /* the first number behind the last model's forward; -1: there is none */
    bool outside;      /* nodes were made outside of modules, before a forward */
    bool untold;       /* nodes are made, or will run, of which nobody knows whose they are */
} engine;

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

int64_t pp_engine_loss_from(void)
{
    return engine.loss_from;
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

int pp_engine_forward(bool model, PyObject *args, pp_engine_nodes *ret)
{
    int64_t number;
    *ret = (pp_engine_nodes){0};
    if (next_number(&number) < 0)
        return -1;
    if (number == engine.known || engine.outside)
        return 0;
    int all = model || engine.known < 0 || engine.loss_from < 0
                  ? 0
                  : leads_to_all(args, engine.known, number);
    if (all < 0 && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1; /* Ctrl-C, say */
    if (all < 0)
        PyErr_Clear(); /* of what the program has given to its loss */
    if (all > 0)
        *ret = (pp_engine_nodes){.layer = engine.loss, .from = engine.known};
    engine.outside = all <= 0;
    return 0;
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
static int has_loss(PyObject *roots)
{
    if (engine.loss_from < 0)
        return 0;
    PyObject *nodes = PyList_New(0);
    int rc = nodes ? pp_nodes_gather(roots, nodes) : -1;
    for (Py_ssize_t i = 0; nodes && rc == 0 && i < PyList_Size(nodes); i++) {
        int64_t number;
        rc = pp_nodes_number(PyList_GetItem(nodes, i), &number);
        rc = rc == 0 && number >= engine.loss_from ? 1 : rc;
    }
    Py_XDECREF(nodes);
    return rc;
}

int pp_engine_runs(PyObject *roots, pp_engine_told *ret)
{
    const int loss = engine.untold || !engine.loss ? 0 : has_loss(roots);
    const bool gradients = !engine.untold && !engine.outside;
    *ret = (pp_engine_told){
        .layer = engine.loss, .loss = loss > 0, .gradients = gradients ? engine.gradients : 0};
    return loss < 0 ? -1 : 0;
}

int pp_engine_ran(void)
{
    return next_number(&engine.known);
}

void pp_engine_layers(uint32_t loss, uint32_t gradients)
{
    engine.loss = gradients ? loss : 0;
    engine.gradients = gradients;
}
