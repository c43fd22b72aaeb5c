/*
 * Methods of torch's classes that are wrapped while a capture runs, to mark what is the step's and
 * no layer's: the DataLoader iterator's __next__ and Optimizer.zero_grad; those between which a
 * checkpoint runs its forward again; and closures of optimizers, which are not the optimizer's
 * work. A wrapper that somebody keeps goes on calling the
 * original, which answers whatever is asked of it and keeps what is set. As a function it can be
 * referred to weakly, is copied by being itself, and pickled by its name.
 */
#include "sidecar/hook/hook.h"

typedef enum role {
    PHASE,       /* a phase of the step's, from its call to its return */
    CLOSURE,     /* the optimizer's piece pauses */
    AGAIN_BEGIN, /* behind it a checkpoint runs its forward again */
    AGAIN_END,   /* before it that has ended, also where not all of it ran */
} role;

typedef struct span {
    PyObject_HEAD PyObject *original;
    role role;
    uint8_t phase;
    uint32_t layer; /* what a checkpoint runs outside of modules */
} span;

static PyObject *span_type;
static PyObject *method_type; /* types.MethodType */
static PyObject *iterator;    /* weak reference to the iterator that yielded last, or NULL */

PyObject *pp_spans_iterator(void)
{
    PyObject *reference = iterator ? iterator : Py_None;
    Py_INCREF(reference);
    return reference;
}

/* Not being able to is no error: there is no position then. */
static void remember(PyObject *yielded)
{
    PyObject *now =
        PyWeakref_NewRef(yielded, NULL); /* may run others' finalizers, and their threads */
    if (!now)
        PyErr_Clear();
    PyObject *before = iterator;
    iterator = now;
    Py_XDECREF(before);
}

/* The call may have ended in an exception, StopIteration above all: what a mark calls (torch, for
 * its stream) must not meet it, and it stays. */
static void end(const span *s)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (s->role == CLOSURE)
        pp_marks_resume_optimizer();
    else
        pp_marks_end((pp_mark_phase)s->phase);
    PyErr_Restore(type, value, trace);
}

static PyObject *span_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const span *s = (const span *)self;
    bool begun = s->role == CLOSURE ? pp_marks_pause_optimizer()
                 : s->role == PHASE ? pp_marks_begin((pp_mark_phase)s->phase)
                                    : false;
    if (s->role == AGAIN_END)
        pp_marks_again_end();
    PyObject *result = PyObject_Call(s->original, args, kwargs);
    if (begun)
        end(s);
    if (result && s->role == AGAIN_BEGIN)
        pp_marks_again_begin(s->layer);
    if (result && s->phase == PP_MARK_DATA && PyTuple_Size(args) > 0)
        remember(PyTuple_GetItem(args, 0));
    return result;
}

/* As a function: asked of an object it is a method of that. */
static PyObject *span_bind(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    if (object && object != Py_None)
        return PyObject_CallFunctionObjArgs(method_type, self, object, NULL);
    Py_INCREF(self);
    return self;
}

static PyObject *span_reduce(PyObject *self, PyObject *protocol)
{
    (void)protocol;
    return PyObject_GetAttrString(((const span *)self)->original, "__qualname__");
}

/* What the original says of its own copies would be said of another object. */
static PyObject *span_get(PyObject *self, PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "__reduce_ex__") == 0)
        return PyObject_GenericGetAttr(self, name);
    return PyObject_GetAttr(((const span *)self)->original, name);
}

static int span_set(PyObject *self, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(((const span *)self)->original, name, value);
}

/* An optimizer that keeps its closure is a cycle through here, for the collector to find. It is
 * broken elsewhere: one that has nothing to call could not be called. */
static int span_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((span *)self)->original);
    return 0;
}

static void span_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((span *)self)->original);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef span_methods[] = {{"__reduce_ex__", span_reduce, METH_O, NULL}, {0}};

static PyType_Slot span_slots[] = {
    {Py_tp_methods, span_methods},   {Py_tp_call, span_call},       {Py_tp_descr_get, span_bind},
    {Py_tp_getattro, span_get},      {Py_tp_setattro, span_set},    {Py_tp_dealloc, span_dealloc},
    {Py_tp_traverse, span_traverse}, {Py_tp_free, PyObject_GC_Del}, {0, NULL},
};

static PyType_Spec span_spec = {"precisionprobe_hook._marks.Span", sizeof(span), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                span_slots};

/* Python 3.8's limited API makes no type whose objects have weak references; a class of Python's
 * own has them. */
static PyObject *make_type(void)
{
    PyObject *base = PyType_FromSpec(&span_spec);
    PyObject *bases = base ? PyTuple_Pack(1, base) : NULL;
    PyObject *name = PyUnicode_FromString("Span");
    PyObject *own = PyDict_New();
    PyObject *type = NULL;
    if (bases && name && own)
        type = PyObject_CallFunctionObjArgs((PyObject *)&PyType_Type, name, bases, own, NULL);
    Py_XDECREF(own);
    Py_XDECREF(name);
    Py_XDECREF(bases);
    Py_XDECREF(base);
    return type;
}

int pp_spans_init(void)
{
    PyObject *types = PyImport_ImportModule("types");
    method_type = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    span_type = method_type ? make_type() : NULL;
    return span_type ? 0 : -1;
}

PyObject *pp_spans_new(PyObject *original, pp_mark_phase phase)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)span_type, Py_tp_alloc);
    span *s = (span *)alloc((PyTypeObject *)span_type, 0);
    if (s) {
        Py_INCREF(original);
        s->original = original;
        s->role = PHASE;
        s->phase = (uint8_t)phase;
        s->layer = 0;
    }
    return (PyObject *)s;
}

PyObject *pp_spans_again(PyObject *original, bool begins, uint32_t layer)
{
    PyObject *s = pp_spans_new(original, PP_MARK_RECOMPUTE);
    if (s) {
        ((span *)s)->role = begins ? AGAIN_BEGIN : AGAIN_END;
        ((span *)s)->layer = layer;
    }
    return s;
}

PyObject *pp_spans_pausing(PyObject *closure)
{
    PyObject *s = pp_spans_new(closure, PP_MARK_OPTIMIZER);
    if (s)
        ((span *)s)->role = CLOSURE;
    return s;
}
