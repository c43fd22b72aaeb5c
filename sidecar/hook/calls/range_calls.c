/*
 * The functions of torch's by which a program marks ranges: those of the operators that
 * record_function calls, and of NVTX. While a capture runs they are exchanged for ours.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

enum {
    SLOTS = 8,
    COST = 400, /* ns of what is not timed: the mark of its end, and the calls; measured */
};

typedef enum role { ENTER_RECORD, LEAVE_RECORD, PUSH, POP, ROLES } role;

typedef PyObject *(*plain)(PyObject *, PyObject *);
typedef PyObject *(*keyed)(PyObject *, PyObject *, PyObject *);
typedef PyObject *(*fast)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*fast_keyed)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

typedef struct slot {
    PyMethodDef *def;     /* NULL: none was found */
    PyCFunction original; /* never cleared */
    PyCFunction ours;
    role role;
} slot;

static slot slots[SLOTS];

static bool marks(void)
{
    return pp_ranges_wanted() && pp_ring() && pp_marks_state() == MARKING && pp_marks_is_trainer();
}

/* `key` is torch's record, NULL: an NVTX range. -1: exception. */
static int enter(PyObject *name, const void *key)
{
    uint32_t layer = 0;
    uint8_t phase = PP_MARK_FORWARD;
    if (!marks())
        return 0;
    const int64_t begun = pp_now();
    if (key)
        pp_ranges_gone(key); /* another lies there now */
    const bool outside = !pp_ranges_paused() && pp_marks_outside(&phase);
    if (outside && pp_range_names_find(name, &layer) < 0)
        return -1;
    if (marks() && (layer || !key)) /* others' code may have run */
        pp_ranges_open(key, layer, phase);
    pp_ring_cost(pp_now() - begun + COST);
    return 0;
}

/* `first` is the call's first argument, or NULL. */
static void before(unsigned n, PyObject *first)
{
    const bool leaves = slots[n].role == LEAVE_RECORD || slots[n].role == POP;
    if (!leaves || !marks())
        return;
    if (slots[n].role == POP)
        pp_ranges_leave(NULL);
    else if (first)
        pp_ranges_leave(first);
}

static PyObject *after(unsigned n, PyObject *first, PyObject *result)
{
    const bool enters = slots[n].role == ENTER_RECORD || slots[n].role == PUSH;
    if (!result || !first || !enters)
        return result;
    if (enter(first, slots[n].role == PUSH ? NULL : result) < 0 && pp_marks_give_up() < 0) {
        Py_DECREF(result); /* Ctrl-C, say */
        return NULL;
    }
    return result;
}

static PyObject *first_of(PyObject *args)
{
    return args && PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
}

#define AS(type, n) ((type)(void (*)(void))slots[n].original)
#define CALL_BETWEEN(n, first, call)                                                               \
    PyObject *const f = (first);                                                                   \
    before(n, f);                                                                                  \
    return after(n, f, call)
#define WRAPPERS(n)                                                                                \
    static PyObject *one_##n(PyObject *s, PyObject *a)                                             \
    {                                                                                              \
        CALL_BETWEEN(n, a, AS(plain, n)(s, a));                                                    \
    }                                                                                              \
    static PyObject *plain_##n(PyObject *s, PyObject *a)                                           \
    {                                                                                              \
        CALL_BETWEEN(n, first_of(a), AS(plain, n)(s, a));                                          \
    }                                                                                              \
    static PyObject *keyed_##n(PyObject *s, PyObject *a, PyObject *k)                              \
    {                                                                                              \
        CALL_BETWEEN(n, first_of(a), AS(keyed, n)(s, a, k));                                       \
    }                                                                                              \
    static PyObject *fast_##n(PyObject *s, PyObject *const *a, Py_ssize_t count)                   \
    {                                                                                              \
        CALL_BETWEEN(n, count > 0 ? a[0] : NULL, AS(fast, n)(s, a, count));                        \
    }                                                                                              \
    static PyObject *fast_keyed_##n(PyObject *s, PyObject *const *a, Py_ssize_t count,             \
                                    PyObject *k)                                                   \
    {                                                                                              \
        CALL_BETWEEN(n, count > 0 ? a[0] : NULL, AS(fast_keyed, n)(s, a, count, k));               \
    }
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
EACH(WRAPPERS)

enum { ONE, PLAIN, KEYED, FAST, FAST_KEYED, WAYS };

#define ROW(n)                                                                                     \
    {(void (*)(void))one_##n, (void (*)(void))plain_##n, (void (*)(void))keyed_##n,                \
     (void (*)(void))fast_##n, (void (*)(void))fast_keyed_##n},
static void (*const wrappers[SLOTS][WAYS])(void) = {EACH(ROW)};

/* By how it is called; NULL where that is not known. */
static PyCFunction wrapper_of(unsigned n, int flags)
{
    enum {
        FLAG_FAST = 0x80
    }; /* METH_FASTCALL, which the limited API of Python 3.8 does not name */
    switch (flags & ~(METH_STATIC | METH_COEXIST)) {
    case METH_NOARGS:
    case METH_O:
        return (PyCFunction)wrappers[n][ONE];
    case METH_VARARGS:
        return (PyCFunction)wrappers[n][PLAIN];
    case METH_VARARGS | METH_KEYWORDS:
        return (PyCFunction)wrappers[n][KEYED];
    case FLAG_FAST:
        return (PyCFunction)wrappers[n][FAST];
    case FLAG_FAST | METH_KEYWORDS:
        return (PyCFunction)wrappers[n][FAST_KEYED];
    default:
        return NULL;
    }
}

/* The first time; what is known of torch stays. -1: exception. */
static int settle_slots(PyObject *list)
{
    static bool settled;
    PyMethodDef *defs[SLOTS] = {NULL};
    bool writable[SLOTS] = {false};
    int roles[SLOTS];
    const Py_ssize_t n = PyList_Size(list) < SLOTS ? PyList_Size(list) : SLOTS;
    if (settled)
        return 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *object;
        const char *name;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "iOs", &roles[i], &object, &name))
            return -1;
        PyMethodDef *def = pp_methods_find(object, Py_None, name);
        defs[i] = def && roles[i] >= 0 && roles[i] < ROLES && strcmp(def->ml_name, name) == 0
                      ? def
                      : NULL;
    }
    settled = true;
    pp_methods_writable(defs, writable, (size_t)n);
    for (unsigned i = 0; i < n; i++) {
        if (!defs[i] || !writable[i])
            continue;
        slots[i] = (slot){.original = defs[i]->ml_meth,
                          .ours = wrapper_of(i, defs[i]->ml_flags),
                          .role = (role)roles[i]};
        slots[i].def = slots[i].original && slots[i].ours ? defs[i] : NULL;
    }
    return 0;
}

int pp_range_calls_begin(PyObject *targets, bool backward)
{
    if (settle_slots(targets) < 0)
        return -1;
    pp_ranges_use(true, backward);
    for (int i = 0; i < SLOTS; i++)
        pp_methods_exchange(slots[i].def, slots[i].original, slots[i].ours);
    return 0;
}

void pp_range_calls_end(void)
{
    for (int i = 0; i < SLOTS; i++)
        pp_methods_exchange(slots[i].def, slots[i].ours, slots[i].original);
    pp_ranges_use(false, false);
}
