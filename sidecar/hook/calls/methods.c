/*
 * Methods and functions of C's whose function, `ml_meth` of its PyMethodDef, is exchanged for one
 * of ours. A PyMethodDef is somebody's own memory and holds for all threads. So it is exchanged
 * whole, under the GIL, only where all looks as CPython makes it, and only for what was there.
 */
#include "sidecar/hook/hook.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what Python's objects look like, as checked before it is believed ---- */

typedef struct method {
    PyObject base;
    PyTypeObject *owner;
    PyObject *name, *qualname;
    PyMethodDef *def;
    void *vectorcall;
} method;

typedef struct function {
    PyObject base;
    PyMethodDef *def;
    PyObject *self, *module, *weak;
    void *vectorcall;
} function;

static bool has_size(const PyTypeObject *type, size_t size)
{
    PyObject *value = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    const bool same = value && PyLong_AsSize_t(value) == size;
    Py_XDECREF(value);
    if (PyErr_Occurred())
        PyErr_Clear();
    return same;
}

PyMethodDef *pp_methods_find(PyObject *object, PyObject *owner, const char *name)
{
    const PyTypeObject *type = Py_TYPE(object);
    if (type == &PyMethodDescr_Type && has_size(type, sizeof(method))) {
        const method *m = (const method *)(void *)object;
        const bool known = (PyObject *)m->owner == owner && PyUnicode_Check(m->name) &&
                           PyUnicode_CompareWithASCIIString(m->name, name) == 0;
        return known ? m->def : NULL;
    }
    if (type == &PyCFunction_Type && has_size(type, sizeof(function)) && owner == Py_None)
        return ((const function *)(void *)object)->def;
    return NULL;
}

void pp_methods_writable(PyMethodDef *const *defs, bool *ret, size_t n)
{
    char text[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(text, sizeof text, maps)) {
        uintptr_t from, to;
        char mode[3];
        if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " %2s", &from, &to, mode) != 3 ||
            strcmp(mode, "rw") != 0)
            continue;
        for (size_t i = 0; i < n; i++) {
            const uintptr_t at = (uintptr_t)defs[i];
            if (at >= from && at < to && to - at >= sizeof(PyMethodDef))
                ret[i] = true;
        }
    }
    if (maps)
        (void)fclose(maps);
}

void pp_methods_exchange(PyMethodDef *def, PyCFunction from, PyCFunction to)
{
    if (def)
        (void)__atomic_compare_exchange_n(&def->ml_meth, &from, to, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED);
}
