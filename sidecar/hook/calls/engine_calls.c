/*
 * When autograd's engine runs: while a capture does, the function behind its run_backward is one of
 * ours, which marks begin and end in the thread that calls it.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

enum { END_COST = 200 }; /* ns of the mark of the engine's end: half of a span's two */

/* Places of run_backward's arguments. */
enum { ROOTS, KEEP_GRAPH = 2, CREATE_GRAPH = 3 };

typedef PyObject *(*keyed)(PyObject *, PyObject *, PyObject *);

static PyMethodDef *def; /* NULL: none was found */
static PyCFunction original;

/* Whether an argument of run_backward's is false. */
static bool without(PyObject *args, Py_ssize_t n)
{
    return PyTuple_Size(args) > n && PyTuple_GetItem(args, n) == Py_False;
}

/* A backward has ended. What has been run is run no more; but where its graph is kept it may be,
 * and what it has made itself are nodes of no module. */
static void note_end(PyObject *args, bool returned)
{
    if (!without(args, CREATE_GRAPH))
        pp_engine_untold();
    if (returned && without(args, KEEP_GRAPH) && pp_frames_count() == 0 && pp_marks_is_trainer() &&
        pp_engine_ran() < 0) {
        PyErr_Clear();
        pp_engine_untold();
    }
}

/* The layer whose end is to follow, 0: none; -1: exception. Within a forward it is that one's work.
 */
static int64_t begin(PyObject *args)
{
    pp_engine_told told;
    if (!pp_ring() || pp_marks_state() != MARKING || pp_frames_count() > 0 ||
        PyTuple_Size(args) < 1)
        return 0;
    const int64_t begun = pp_now();
    if (pp_engine_runs(PyTuple_GetItem(args, ROOTS), &told) < 0)
        return -1;
    if (!told.layer)
        return 0;
    if (pp_marks_is_trainer() &&
        pp_ranges_hook(PyTuple_GetItem(args, ROOTS), pp_marks_backward_hooks) < 0)
        return -1;
    pp_mark_put(PP_MARK_BEGIN, PP_MARK_BACKWARD, PP_MARK_ENGINE | (told.loss ? PP_MARK_LOSS : 0),
                told.layer, told.gradients, 0, 0);
    pp_ring_cost(pp_now() - begun + END_COST);
    return told.layer;
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

static bool marks_ranges(void)
{
    return pp_ring() && pp_marks_state() == MARKING && pp_marks_is_trainer();
}

/* The ranges that are open go on; whatever exception it ended in stays. */
static void resume(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    pp_ranges_resume(marks_ranges());
    PyErr_Restore(type, value, trace);
}

static PyObject *run_backward(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const bool paused = marks_ranges() && pp_ranges_pause();
    const int64_t begun = begin(args);
    if (begun < 0 && !PyErr_ExceptionMatches(PyExc_Exception)) {
        if (paused)
            resume();
        return NULL;
    }
    if (begun < 0)
        PyErr_Clear();
    PyObject *result = ((keyed)(void (*)(void))original)(self, args, kwargs);
    if (begun > 0)
        end((uint32_t)begun);
    if (paused)
        resume();
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

bool pp_engine_calls_begin(PyObject *method, PyObject *owner, uint32_t loss, uint32_t gradients)
{
    find(method, owner);
    pp_engine_layers(def ? loss : 0, gradients);
    pp_methods_exchange(def, original, (PyCFunction)(void (*)(void))run_backward);
    return def != NULL;
}

void pp_engine_calls_end(void)
{
    pp_methods_exchange(def, (PyCFunction)(void (*)(void))run_backward, original);
    pp_engine_layers(0, 0);
}
