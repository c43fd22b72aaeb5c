/*
 * Steps of an optimizer that a gradient scaler (torch.amp.GradScaler) skips, because gradients are
 * infinite: steps of the training all the same. No hook tells of them. But the scaler changes its
 * scale behind each step, by a function of torch's that is exchanged for ours while steps are
 * counted.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

static const char name[] = "_amp_update_scale_";

typedef PyObject *(*keyed)(PyObject *, PyObject *, PyObject *);

static PyMethodDef *def; /* NULL: none was found */
static PyCFunction original;

static PyObject *update_scale(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *result = ((keyed)(void (*)(void))original)(self, args, kwargs);
    if (result && pp_marks_scaled() < 0)
        Py_CLEAR(result); /* Ctrl-C, say */
    return result;
}

/* The first time; what is known of torch stays. */
static void find(PyObject *function)
{
    static bool found;
    bool writable = false;
    PyMethodDef *d = found ? NULL : pp_methods_find(function, Py_None, name);
    found = true;
    if (!d)
        return;
    pp_methods_writable(&d, &writable, 1);
    if (writable && strcmp(d->ml_name, name) == 0 &&
        (d->ml_flags & ~METH_STATIC) == (METH_VARARGS | METH_KEYWORDS)) {
        original = d->ml_meth;
        def = d;
    }
}

void pp_scaler_calls_begin(PyObject *function)
{
    find(function);
    pp_methods_exchange(def, original, (PyCFunction)(void (*)(void))update_scale);
}

void pp_scaler_calls_end(void)
{
    pp_methods_exchange(def, (PyCFunction)(void (*)(void))update_scale, original);
}
