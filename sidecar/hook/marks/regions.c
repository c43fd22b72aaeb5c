/*
 * Compiled code, each callable that torch's compiler returns a layer of its own.
 *
 * The compiler looks at torch's tables of global hooks: it traces what it finds there and compiles
 * anew when that changes. So while compiled code runs, or is compiled, none of ours is in any
 * table: each call of a region takes them out and puts them back.
 */
#include "sidecar/hook/hook.h"

typedef struct region {
    PyObject_HEAD PyObject *original; /* what the compiler returned */
    bool known;                       /* has been met while layers were looked for */
} region;

static PyObject *region_type;
static _Thread_local int depth; /* regions open in this thread */

/* The outermost region of a thread; those in it are part of it. */
static PyObject *call_outermost(region *r, PyObject *args, PyObject *kwargs)
{
    if (pp_marks_region_begin(r->original, args, &r->known) < 0)
        return NULL;
    pp_hooks_hide();
    PyObject *result = PyObject_Call(r->original, args, kwargs);
    pp_hooks_show();
    if (result && pp_marks_region_end(r->original, result) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *region_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    region *r = (region *)self;
    if (depth > 0)
        return PyObject_Call(r->original, args, kwargs);
    Py_INCREF(self); /* the user may let go of it meanwhile */
    depth++;
    PyObject *result = call_outermost(r, args, kwargs);
    depth--;
    Py_DECREF(self);
    return result;
}

/* A module that keeps what was compiled of it is a cycle through here, to be found by the
 * collector. */
static int region_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((region *)self)->original);
    return 0;
}

static int region_clear(PyObject *self)
{
    Py_CLEAR(((region *)self)->original);
    return 0;
}

static void region_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((region *)self)->original);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot region_slots[] = {
    {Py_tp_call, region_call},   {Py_tp_dealloc, region_dealloc}, {Py_tp_traverse, region_traverse},
    {Py_tp_clear, region_clear}, {Py_tp_free, PyObject_GC_Del},   {0, NULL},
};

static PyType_Spec region_spec = {"precisionprobe_hook._marks.Region", sizeof(region), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, region_slots};

int pp_regions_init(void)
{
    region_type = PyType_FromSpec(&region_spec);
    return region_type ? 0 : -1;
}

PyObject *pp_regions_new(PyObject *original)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)region_type, Py_tp_alloc);
    region *r = (region *)alloc((PyTypeObject *)region_type, 0);
    if (r) {
        Py_INCREF(original);
        r->original = original;
    }
    return (PyObject *)r;
}
