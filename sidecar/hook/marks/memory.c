/*
 * What torch's CUDA allocator has allocated at each mark of a step, by its own statistics. The
 * Python side (memory.py) has it keep a history meanwhile, and tells from that the most between two
 * marks: both are counted in allocations and frees, so no clock comes into it.
 */
#include "sidecar/hook/hook.h"

#include <stdlib.h>
#include <string.h>

enum { MARKS_MAX = 8192 }; /* of a step; of one with more nothing is told */

/* What reading the statistics may take of a step, ns. */
#define READ_MAX INT64_C(100000000)

typedef struct boundary {
    int64_t time; /* the mark's */
    int64_t allocated;
    int64_t allocations, frees; /* ever */
    bool backward_ends;
} boundary;

static struct {
    PyObject *stats, *device; /* torch's function and its argument; NULL: nothing is wanted */
    bool active;
    bool reading;
    const char *why; /* this step has failed; NULL: it has not */
    int64_t spent;   /* ns of reading */
    boundary *marks;
    size_t count;
    const pp_clock *clock; /* that the marks of other steps have */
} memory;

static PyObject *s_bytes, *s_blocks, *s_all, *s_current, *s_allocated, *s_freed;

int pp_memory_init(void)
{
    struct {
        PyObject **to;
        const char *text;
    } names[] = {{&s_bytes, "allocated_bytes"}, {&s_blocks, "allocation"},   {&s_all, "all"},
                 {&s_current, "current"},       {&s_allocated, "allocated"}, {&s_freed, "freed"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].to = PyUnicode_InternFromString(names[i].text)))
            return -1;
    return 0;
}

void pp_memory_use(PyObject *stats, PyObject *device)
{
    Py_XINCREF(stats);
    Py_XINCREF(device);
    Py_XDECREF(memory.stats);
    Py_XDECREF(memory.device);
    memory.stats = stats;
    memory.device = device;
}

bool pp_memory_wanted(void)
{
    return memory.stats != NULL;
}

bool pp_memory_active(void)
{
    return memory.active;
}

/* ---- the clock of such a step: the host's, which looks at the allocator as it stamps ---- */

static void mark_now(int64_t time, bool backward_ends);

static bool stamp(pp_mark *mark)
{
    if (mark->time == 0)
        mark->time = pp_now();
    if (mark->kind == PP_MARK_BEGIN || mark->kind == PP_MARK_END)
        mark_now(mark->time, mark->kind == PP_MARK_END && mark->phase == PP_MARK_BACKWARD);
    return true;
}

static int64_t poll(void)
{
    return memory.clock->poll();
}

static const pp_clock clock_memory = {"memory", stamp, poll};

void pp_memory_forget(void)
{
    memory.active = false;
    if (pp_clock_now == &clock_memory)
        pp_clock_now = memory.clock;
    memory.count = 0;
    free(memory.marks);
    memory.marks = NULL;
}

/* stats[of]["all"], borrowed; NULL: there is none. */
static PyObject *part(PyObject *stats, PyObject *of)
{
    PyObject *found = PyDict_Check(stats) ? PyDict_GetItemWithError(stats, of) : NULL;
    PyObject *all = found && PyDict_Check(found) ? PyDict_GetItemWithError(found, s_all) : NULL;
    return all && PyDict_Check(all) ? all : NULL;
}

static bool number(PyObject *part, PyObject *name, int64_t *ret)
{
    PyObject *found = part ? PyDict_GetItemWithError(part, name) : NULL;
    *ret = found ? PyLong_AsLongLong(found) : -1;
    return !PyErr_Occurred() && *ret >= 0;
}

static bool read_stats(boundary *ret)
{
    PyObject *function = memory.stats, *device = memory.device;
    Py_INCREF(function); /* what runs meanwhile may take them away */
    Py_INCREF(device);
    PyObject *stats = PyObject_CallFunctionObjArgs(function, device, NULL);
    Py_DECREF(device);
    Py_DECREF(function);
    const bool ok = stats && number(part(stats, s_bytes), s_current, &ret->allocated) &&
                    number(part(stats, s_blocks), s_allocated, &ret->allocations) &&
                    number(part(stats, s_blocks), s_freed, &ret->frees);
    Py_XDECREF(stats);
    PyErr_Clear();
    return ok;
}

static void add(int64_t time, bool backward_ends)
{
    boundary now = {.time = time, .backward_ends = backward_ends};
    if (memory.count == MARKS_MAX)
        memory.why = "a step has too many calls";
    else if (memory.spent > READ_MAX)
        memory.why = "the allocator's statistics take too long";
    else if (!read_stats(&now))
        memory.why = "the allocator tells no statistics";
    if (!memory.why && memory.marks) /* reading may run others' code */
        memory.marks[memory.count++] = now;
}

static void mark_now(int64_t time, bool backward_ends)
{
    PyObject *type, *value, *trace;
    if (!memory.active || memory.why)
        return;
    if (memory.reading) { /* a finalizer of somebody's, run by what reading allocates */
        memory.why = "marks within marks";
        return;
    }
    const int64_t begun = pp_now();
    memory.reading = true;
    PyErr_Fetch(&type, &value, &trace); /* a mark may be made on an exception's way */
    add(time, backward_ends);
    PyErr_Restore(type, value, trace);
    memory.reading = false;
    memory.spent += pp_now() - begun;
}

int pp_memory_begin(PyObject *probe)
{
    pp_memory_forget();
    if (!memory.stats)
        return 0;
    const int64_t begun = pp_now();
    memory.marks = malloc(MARKS_MAX * sizeof *memory.marks);
    if (!memory.marks) {
        pp_memory_use(NULL, NULL);
        return 0;
    }
    PyObject *yes = PyObject_CallMethod(probe, "memory_begin", NULL);
    memory.active = yes == Py_True;
    memory.why = NULL;
    memory.spent = 0;
    if (memory.active) {
        memory.clock = pp_clock_now;
        pp_clock_now = &clock_memory;
        mark_now(pp_now(), false);
    }
    Py_XDECREF(yes);
    pp_ring_cost_add(pp_now() - begun);
    if (memory.active)
        return 0;
    pp_memory_use(NULL, NULL);
    pp_memory_forget();
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *numbers(const int64_t *values, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (!value || PyTuple_SetItem(tuple, i, value) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* [(bytes, allocations, frees, whether a backward ends) at each mark]; empty where the step has
 * failed. */
static PyObject *marks_list(void)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && !memory.why && i < memory.count; i++) {
        const boundary *b = &memory.marks[i];
        const int64_t values[] = {b->allocated, b->allocations, b->frees, b->backward_ends};
        PyObject *one = numbers(values, 4);
        if (!one || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* What the Python side has found: number of the mark, bytes there, the most until the next. */
static int tell(PyObject *levels)
{
    const Py_ssize_t n = PyList_Check(levels) ? PyList_Size(levels) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t at;
        long long bytes, peak;
        if (!PyArg_ParseTuple(PyList_GetItem(levels, i), "nLL", &at, &bytes, &peak))
            return -1;
        if (at < 0 || (size_t)at >= memory.count)
            break;
        const pp_mark mark = {
            .time = memory.marks[at].time, .kind = PP_MARK_MEMORY, .value = bytes, .peak = peak};
        pp_ring_push(&mark);
    }
    return 0;
}

int pp_memory_end(PyObject *probe)
{
    const int64_t begun = pp_now();
    mark_now(begun, false);
    memory.active = false;
    PyObject *list = marks_list();
    PyObject *levels =
        list ? PyObject_CallMethod(probe, "memory_end", "Os", list, memory.why ? memory.why : "")
             : NULL;
    Py_XDECREF(list);
    int rc = levels ? tell(levels) : -1;
    Py_XDECREF(levels);
    if (rc == 0)
        pp_memory_use(NULL, NULL); /* one step of a capture */
    pp_ring_cost_add(pp_now() - begun + memory.spent);
    pp_memory_forget();
    return rc;
}
