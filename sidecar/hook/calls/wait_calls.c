/*
 * Calls in which the host waits for the GPU: `.item()`, `bool(tensor)`, `torch.cuda.synchronize()`.
 * While a capture runs the function that a method of torch's calls, `ml_meth` of its PyMethodDef,
 * is one of ours, which counts and times it. No class and no object that Python sees changes by
 * that: what compilers guard on, and what programs compare, stays as it is.
 *
 * A call that is under way when it is put back finds its original in a table that is never cleared;
 * one that somebody else has exchanged since is left to them.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

enum {
    SLOTS = 24,
    LINES = 256, /* places in code that are remembered; a power of two */
    FRAMES_MAX = 64,
    CLOCKS_COST = 60, /* ns of looking at the clock around a call: measured */
};

/* So long a call is worth looking for its line where torch's own code makes it, ns. */
#define WORTH INT64_C(5000)

/* ---- which line calls ---- */

/* A place in code: of the program, or of torch, which is looked through. */
typedef struct line {
    PyObject *code; /* owned, so that no other comes to lie there */
    long at;
    uint32_t site;
    bool inside;
} line;

static line lines[LINES];
static PyObject *folder;
static PyObject *s_code, *s_lasti, *s_lineno, *s_back, *s_filename, *s_device, *s_type;
static PyObject *device_type; /* torch.device */

static long number_of(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    long number = value ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

static int describe(PyObject *frame, line *l)
{
    PyObject *file = PyObject_GetAttr(l->code, s_filename);
    const Py_ssize_t inside =
        file && folder ? PyUnicode_Tailmatch(file, folder, 0, PY_SSIZE_T_MAX, -1) : -1;
    PyObject *text = inside == 0 ? PyUnicode_AsUTF8String(file) : NULL;
    const long number = text ? number_of(frame, s_lineno) : 0;
    l->inside = inside == 1;
    l->site = text && number >= 0 ? pp_ring_add_site(PyBytes_AsString(text), (uint32_t)number) : 0;
    Py_XDECREF(text);
    Py_XDECREF(file);
    return PyErr_Occurred() ? -1 : 0;
}

/* -1: exception. */
static int look(PyObject *frame, line *ret)
{
    line found = {.code = PyObject_GetAttr(frame, s_code)};
    if (!found.code)
        return -1;
    found.at = number_of(frame, s_lasti);
    const uintptr_t hash = ((uintptr_t)found.code >> 4) + (uintptr_t)found.at * 31;
    line *l = &lines[(hash ^ hash >> 8) & (LINES - 1)];
    int rc = 0;
    if (l->code == found.code && l->at == found.at) {
        Py_DECREF(found.code);
        *ret = *l;
        return 0;
    }
    if ((rc = describe(frame, &found)) == 0) {
        PyObject *before = l->code;
        *l = *ret = found;
        Py_XDECREF(before);
        return 0;
    }
    Py_DECREF(found.code);
    return rc;
}

/* 0 where it is not known. `far`: also where torch's own code calls, for which all of its callers
 * are looked at. */
static uint32_t find_site(bool far)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    uint32_t site = 0;
    Py_XINCREF(frame);
    for (int i = 0; frame && frame != Py_None && i < FRAMES_MAX; i++) {
        line l;
        if (look(frame, &l) < 0)
            break;
        site = l.site;
        if (!l.inside || !far)
            break;
        PyObject *back = PyObject_GetAttr(frame, s_back);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return site;
}

/* ---- what torch's methods call ---- */

typedef struct slot {
    PyMethodDef *def;     /* NULL: none was found */
    PyCFunction original; /* never cleared */
    PyCFunction ours;
    uint8_t call;
} slot;

static slot slots[SLOTS];
static _Thread_local int depth; /* one that calls another is one wait */

/* When the call begins, ns; 0: it is not counted. */
static int64_t before(void)
{
    const bool counts = depth++ == 0 && pp_marks_state() == MARKING && pp_ring();
    return counts ? pp_now() : 0;
}

/* Whether a tensor's `to` names the CPU as a device. No tensor is asked for anything. */
static bool names_cpu(PyObject *args, PyObject *kwargs)
{
    PyObject *device = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    if (!device && kwargs)
        device = PyDict_GetItemWithError(kwargs, s_device);
    const bool is_device = device && (PyObject *)Py_TYPE(device) == device_type;
    PyObject *type = is_device ? PyObject_GetAttr(device, s_type) : device;
    const bool cpu =
        type && PyUnicode_Check(type) && PyUnicode_CompareWithASCIIString(type, "cpu") == 0;
    if (is_device)
        Py_XDECREF(type);
    if (PyErr_Occurred())
        PyErr_Clear();
    return cpu;
}

/* The same of a call with keywords. */
static int64_t before_keyed(unsigned n, PyObject *args, PyObject *kwargs)
{
    const int64_t from = before();
    return from == 0 || slots[n].call != PP_WAIT_TO || names_cpu(args, kwargs) ? from : 0;
}

/* Whatever exception it ended in stays. */
static void note(unsigned n, int64_t from, bool returned)
{
    const int64_t end = pp_now(), ns = end - from;
    const uint32_t site = returned ? find_site(ns >= WORTH) : 0;
    if (pp_marks_state() != MARKING)
        return;
    pp_wait_put(slots[n].call, site, ns, end);
    pp_ring_cost(pp_now() - end + CLOCKS_COST);
}

static PyObject *after(unsigned n, int64_t from, PyObject *result)
{
    if (from != 0 && pp_marks_state() == MARKING)
        note(n, from, result != NULL);
    depth--;
    return result;
}

typedef PyObject *(*plain)(PyObject *, PyObject *);
typedef PyObject *(*keyed)(PyObject *, PyObject *, PyObject *);
typedef PyObject *(*fast)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*fast_keyed)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

#define AS(type, n) ((type)(void (*)(void))slots[n].original)
#define WRAPPERS(n)                                                                                \
    static PyObject *plain_##n(PyObject *s, PyObject *a)                                           \
    {                                                                                              \
        const int64_t from = before();                                                             \
        return after(n, from, AS(plain, n)(s, a));                                                 \
    }                                                                                              \
    static PyObject *keyed_##n(PyObject *s, PyObject *a, PyObject *k)                              \
    {                                                                                              \
        const int64_t from = before_keyed(n, a, k);                                                \
        return after(n, from, AS(keyed, n)(s, a, k));                                              \
    }                                                                                              \
    static PyObject *fast_##n(PyObject *s, PyObject *const *a, Py_ssize_t count)                   \
    {                                                                                              \
        const int64_t from = before();                                                             \
        return after(n, from, AS(fast, n)(s, a, count));                                           \
    }                                                                                              \
    static PyObject *fast_keyed_##n(PyObject *s, PyObject *const *a, Py_ssize_t count,             \
                                    PyObject *k)                                                   \
    {                                                                                              \
        const int64_t from = before();                                                             \
        return after(n, from, AS(fast_keyed, n)(s, a, count, k));                                  \
    }
#define EIGHT(X, a, b, c, d, e, f, g, h) X(a) X(b) X(c) X(d) X(e) X(f) X(g) X(h)
#define EACH(X)                                                                                    \
    EIGHT(X, 0, 1, 2, 3, 4, 5, 6, 7)                                                               \
    EIGHT(X, 8, 9, 10, 11, 12, 13, 14, 15) EIGHT(X, 16, 17, 18, 19, 20, 21, 22, 23)
EACH(WRAPPERS)

#define ROW(n)                                                                                     \
    {(void (*)(void))plain_##n, (void (*)(void))keyed_##n, (void (*)(void))fast_##n,               \
     (void (*)(void))fast_keyed_##n},
static void (*const wrappers[SLOTS][4])(void) = {EACH(ROW)};

/* By how it is called; NULL where that is not known. */
static PyCFunction wrapper_of(unsigned n, int flags, int call)
{
    enum { FAST = 0x80 }; /* METH_FASTCALL, which the limited API of Python 3.8 does not name */
    const int how = flags & ~(METH_STATIC | METH_COEXIST);
    if (how == (METH_VARARGS | METH_KEYWORDS))
        return (PyCFunction)wrappers[n][1];
    if (call == PP_WAIT_TO)
        return NULL; /* its arguments are looked at */
    switch (how) {
    case METH_NOARGS:
    case METH_O:
    case METH_VARARGS:
        return (PyCFunction)wrappers[n][0];
    case FAST:
        return (PyCFunction)wrappers[n][2];
    case FAST | METH_KEYWORDS:
        return (PyCFunction)wrappers[n][3];
    default:
        return NULL;
    }
}

/* ---- what is exchanged ---- */

typedef struct target {
    PyMethodDef *def; /* NULL: it is not what was expected */
    const char *name;
    int call;
} target;

static int call_named(const char *name)
{
    for (int i = 0; i < PP_WAIT_CALLS; i++)
        if (strcmp(pp_wait_name((uint8_t)i), name) == 0)
            return i;
    return -1;
}

/* -1: exception. */
static int read_target(PyObject *item, target *ret)
{
    const char *call, *name;
    PyObject *object, *owner;
    if (!PyArg_ParseTuple(item, "sOOs", &call, &object, &owner, &name))
        return -1;
    *ret = (target){
        .def = pp_methods_find(object, owner, name), .name = name, .call = call_named(call)};
    return 0;
}

/* The first time; what is known of torch stays. */
static void settle_slot(unsigned n, const target *t, bool writable)
{
    if (!t->def || !writable || t->call < 0 || strcmp(t->def->ml_name, t->name) != 0)
        return;
    slots[n] = (slot){.original = t->def->ml_meth,
                      .ours = wrapper_of(n, t->def->ml_flags, t->call),
                      .call = (uint8_t)t->call};
    slots[n].def = slots[n].original && slots[n].ours ? t->def : NULL;
}

static int settle_slots(PyObject *list)
{
    static bool settled;
    target targets[SLOTS];
    PyMethodDef *defs[SLOTS];
    bool writable[SLOTS] = {false};
    const Py_ssize_t n = PyList_Size(list);
    if (settled)
        return 0;
    if (n > SLOTS) {
        PyErr_SetString(PyExc_OverflowError, "too many calls");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (read_target(PyList_GetItem(list, i), &targets[i]) < 0)
            return -1;
    settled = true;
    for (Py_ssize_t i = 0; i < n; i++)
        defs[i] = targets[i].def;
    pp_methods_writable(defs, writable, (size_t)n);
    for (Py_ssize_t i = 0; i < n; i++)
        settle_slot((unsigned)i, &targets[i], writable[i]);
    return 0;
}

static int make_names(void)
{
    static const struct {
        PyObject **to;
        const char *text;
    } names[] = {{&s_code, "f_code"}, {&s_lasti, "f_lasti"},        {&s_lineno, "f_lineno"},
                 {&s_back, "f_back"}, {&s_filename, "co_filename"}, {&s_device, "device"},
                 {&s_type, "type"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!*names[i].to && !(*names[i].to = PyUnicode_InternFromString(names[i].text)))
            return -1;
    return 0;
}

int pp_wait_calls_begin(PyObject *targets, PyObject *inside, PyObject *device)
{
    if (make_names() < 0 || settle_slots(targets) < 0)
        return -1;
    Py_INCREF(inside);
    Py_XDECREF(folder);
    folder = inside;
    Py_INCREF(device);
    Py_XDECREF(device_type);
    device_type = device;
    for (int i = 0; i < SLOTS; i++)
        pp_methods_exchange(slots[i].def, slots[i].original, slots[i].ours);
    return 0;
}

void pp_wait_calls_end(void)
{
    for (int i = 0; i < SLOTS; i++)
        pp_methods_exchange(slots[i].def, slots[i].ours, slots[i].original);
    pp_waits_forget();
    for (int i = 0; i < LINES; i++) {
        PyObject *code = lines[i].code;
        lines[i] = (line){0};
        Py_XDECREF(code);
    }
}
