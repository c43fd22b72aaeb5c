/*
 * Compiled code, each callable that torch's compiler returns a layer of its own; and where the
 * hook's hooks are installed.
 *
 * The compiler looks at torch's tables of global hooks: it traces what it finds there and compiles
 * anew when that changes. So while compiled code runs, or is compiled, none of ours is in any
 * table: each call of a region takes them out and puts them back.
 */
#include "hook.h"

typedef struct region {
    PyObject_HEAD PyObject *original; /* what the compiler returned */
    bool known;                       /* has been met while layers were looked for */
} region;

/* A hook of ours in one of torch's tables; all references owned. */
typedef struct entry {
    PyObject *table, *key, *hook;
    pp_kind kind;
    bool away; /* taken out while compiled code runs */
} entry;

enum { ENTRIES = 16 };

static entry entries[ENTRIES];
static int entry_count;
static int hidden; /* regions open, in all threads */
static PyObject *region_type;
static _Thread_local int depth; /* regions open in this thread */

static bool take_out(const entry *e)
{
    if (PyObject_DelItem(e->table, e->key) == 0)
        return true;
    PyErr_Clear(); /* the user has cleared the table */
    return false;
}

int pp_hooks_add(PyObject *table, PyObject *key, pp_kind kind)
{
    bool away = hidden > 0;
    PyObject *hook = entry_count < ENTRIES ? pp_marks_callable(kind, 0) : NULL;
    if (!hook || (!away && PyObject_SetItem(table, key, hook) < 0)) {
        Py_XDECREF(hook);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "too many hooks");
        return -1;
    }
    Py_INCREF(table);
    Py_INCREF(key);
    entries[entry_count++] = (entry){table, key, hook, kind, away};
    return 0;
}

void pp_hooks_remove(PyObject *key)
{
    for (int i = 0; i < entry_count; i++) {
        entry e = entries[i];
        if (e.key != key)
            continue;
        entries[i] = entries[--entry_count];
        if (!e.away)
            (void)take_out(&e);
        Py_DECREF(e.table);
        Py_DECREF(e.key);
        Py_DECREF(e.hook);
        return;
    }
}

bool pp_hooks_has(pp_kind kind)
{
    for (int i = 0; i < entry_count; i++)
        if (entries[i].kind == kind)
            return true;
    return false;
}

/* torch iterates the optimizers' tables as they are, at a step: where others' hooks are there too,
 * one of those may be what runs now, before ours or behind. */
static bool may_change(const entry *e)
{
    bool optimizer = e->kind == OPTIMIZER_BEGIN || e->kind == OPTIMIZER_END;
    return !optimizer || PyObject_Size(e->table) == 1;
}

static void hide(void)
{
    if (hidden++ > 0)
        return;
    for (int i = 0; i < entry_count; i++)
        if (may_change(&entries[i]))
            entries[i].away = take_out(&entries[i]);
}

/* With an exception set or without; it stays. */
static void show(void)
{
    if (--hidden > 0)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < entry_count; i++) {
        entry *e = &entries[i];
        if (e->away && PyObject_SetItem(e->table, e->key, e->hook) < 0)
            PyErr_Clear();
        e->away = false;
    }
    PyErr_Restore(type, value, trace);
}

PyObject *pp_hooks_without(PyObject *function)
{
    hide();
    PyObject *result = PyObject_CallFunctionObjArgs(function, NULL);
    show();
    return result;
}

/* The outermost region of a thread; those in it are part of it. */
static PyObject *call_outermost(region *r, PyObject *args, PyObject *kwargs)
{
    if (pp_marks_region_begin(r->original, args, &r->known) < 0)
        return NULL;
    hide();
    PyObject *result = PyObject_Call(r->original, args, kwargs);
    show();
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
