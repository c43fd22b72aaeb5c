/*
 * The shapes of what the model is trained with: of each dimension of its first arguments the value
 * that more than half of the first training forwards had. A last, smaller batch is none of it then,
 * and a length that varies has none. Only shapes are read, never what a tensor holds.
 */
#include "sidecar/hook/hook.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    FORWARDS = 256, /* that are looked at */
    TENSORS = 4,    /* that are told */
    DIMENSIONS = 8, /* of each */
    VALUES = 64,    /* that are looked at in a forward */
    DEPTH = 3,      /* of lists in lists */
    DTYPES = 32,
};

/* What is known of a forward, as numbers; ABSENT where it has none. */
enum { ABSENT = -1, VARIES = -2 };
enum { DTYPE, RANK, SIZES, OF_TENSOR = SIZES + DIMENSIONS };
enum { COUNT, FIRST, FEATURES = FIRST + TENSORS * OF_TENSOR };

static struct {
    int64_t seen[FORWARDS][FEATURES];
    size_t n, told;
    PyObject *dtypes[DTYPES]; /* each that was met; torch's for good */
} batch;

static PyObject *s_shape, *s_dtype;

int pp_batch_init(void)
{
    s_shape = PyUnicode_InternFromString("shape");
    s_dtype = PyUnicode_InternFromString("dtype");
    return s_shape && s_dtype ? 0 : -1;
}

bool pp_batch_wanted(void)
{
    return batch.n < FORWARDS;
}

void pp_batch_anew(void)
{
    batch.n = batch.told = 0;
    if (pp_ring())
        pp_copy_text(pp_ring()->batch, sizeof pp_ring()->batch, "");
}

/* ---- one forward ---- */

static int number_of_dtype(PyObject *dtype, int64_t *ret)
{
    *ret = ABSENT;
    for (int i = 0; i < DTYPES; i++) {
        if (!batch.dtypes[i]) {
            Py_INCREF(dtype);
            batch.dtypes[i] = dtype;
        }
        if (batch.dtypes[i] == dtype) {
            *ret = i;
            return 0;
        }
    }
    return 0;
}

static int see_sizes(PyObject *tensor, int64_t *to)
{
    PyObject *shape = PyObject_GetAttr(tensor, s_shape);
    const Py_ssize_t rank = shape ? PySequence_Size(shape) : -1;
    int rc = rank < 0 ? -1 : 0;
    to[RANK] = rank;
    for (Py_ssize_t i = 0; rc == 0 && i < rank && i < DIMENSIONS; i++) {
        PyObject *size = PySequence_GetItem(shape, i);
        /* A symbol is no number, and to make one of it would settle it for whoever traces. */
        to[SIZES + i] = size && PyLong_CheckExact(size) ? PyLong_AsLongLong(size) : VARIES;
        rc = PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(size);
    }
    Py_XDECREF(shape);
    return rc;
}

static int see_tensor(PyObject *tensor, int64_t *forward)
{
    const int64_t at = forward[COUNT]++;
    if (at >= TENSORS)
        return 0;
    int64_t *to = &forward[FIRST + at * OF_TENSOR];
    PyObject *dtype = PyObject_GetAttr(tensor, s_dtype);
    int rc = dtype ? number_of_dtype(dtype, &to[DTYPE]) : -1;
    Py_XDECREF(dtype);
    return rc < 0 ? -1 : see_sizes(tensor, to);
}

static int see(PyObject *value, int64_t *forward, int *left, int depth);

static int see_list(PyObject *list, int64_t *forward, int *left, int depth)
{
    int rc = 0;
    for (Py_ssize_t i = 0; rc == 0 && *left > 0 && i < PySequence_Size(list); i++) {
        PyObject *item = PySequence_GetItem(list, i);
        rc = item ? see(item, forward, left, depth + 1) : -1;
        Py_XDECREF(item);
    }
    return rc;
}

static int see(PyObject *value, int64_t *forward, int *left, int depth)
{
    if (--*left < 0 || depth > DEPTH)
        return 0;
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value))
        return see_list(value, forward, left, depth);
    if (PyDict_Check(value)) {
        PyObject *values = PyDict_Size(value) <= VALUES ? PyDict_Values(value) : NULL;
        int rc = values ? see_list(values, forward, left, depth) : PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(values);
        return rc;
    }
    int is = PyObject_IsInstance(value, pp_torch_api.tensor);
    return is > 0 ? see_tensor(value, forward) : is;
}

/* An error of torch's, or of a class of the user's, is none of the hook's. */
static int ignore_error(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

int pp_batch_see(PyObject *args, PyObject *kwargs)
{
    int64_t *forward = batch.seen[batch.n];
    int left = VALUES;
    for (int i = 0; i < FEATURES; i++)
        forward[i] = ABSENT;
    forward[COUNT] = 0;
    if (see(args, forward, &left, 0) < 0 || (kwargs && see(kwargs, forward, &left, 0) < 0))
        return ignore_error();
    batch.n++;
    return 0;
}

/* ---- all of them ---- */

/* The number that more than half of them have: none but the one that is left over where each is
 * struck out with another one (Boyer and Moore, MJRTY, 1981). */
static int64_t most_of(int feature)
{
    int64_t candidate = ABSENT;
    size_t votes = 0, has = 0;
    for (size_t i = 0; i < batch.n; i++) {
        const int64_t x = batch.seen[i][feature];
        if (votes == 0)
            candidate = x;
        votes = x == candidate ? votes + 1 : votes - 1;
    }
    for (size_t i = 0; i < batch.n; i++)
        has += batch.seen[i][feature] == candidate;
    return 2 * has > batch.n ? candidate : VARIES;
}

typedef struct text {
    char bytes[PP_RING_TEXT];
    size_t n;
} text;

/* Cut where it is too long. */
static void add(text *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(text *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(to->bytes + to->n, sizeof to->bytes - to->n, format, args);
    va_end(args);
    if (n > 0)
        to->n += (size_t)n;
    if (to->n >= sizeof to->bytes)
        to->n = sizeof to->bytes - 1;
}

static void add_sizes(text *to, int at)
{
    const int64_t rank = most_of(at + RANK);
    if (rank == VARIES)
        add(to, "*");
    if (rank == 0)
        add(to, "scalar");
    for (int i = 0; i < rank && i < DIMENSIONS; i++) {
        const int64_t size = most_of(at + SIZES + i);
        if (size == VARIES)
            add(to, "%s*", i ? "x" : "");
        else
            add(to, "%s%lld", i ? "x" : "", (long long)size);
    }
    if (rank > DIMENSIONS)
        add(to, "x...");
}

/* " float32", of torch.float32. */
static int add_dtype(text *to, int64_t number)
{
    if (number < 0) {
        add(to, " *");
        return 0;
    }
    PyObject *said = PyObject_Str(batch.dtypes[number]);
    PyObject *bytes = said ? PyUnicode_AsUTF8String(said) : NULL;
    const char *name = bytes ? PyBytes_AsString(bytes) : NULL;
    if (name)
        add(to, " %s", strncmp(name, "torch.", 6) == 0 ? name + 6 : name);
    Py_XDECREF(bytes);
    Py_XDECREF(said);
    return name ? 0 : -1;
}

static int describe(text *to)
{
    const int64_t count = most_of(COUNT);
    int rc = 0;
    if (count == VARIES)
        add(to, "*");
    for (int i = 0; rc == 0 && i < count && i < TENSORS; i++) {
        const int at = FIRST + i * OF_TENSOR;
        add(to, "%s", i ? ", " : "");
        add_sizes(to, at);
        rc = add_dtype(to, most_of(at + DTYPE));
    }
    if (count > TENSORS)
        add(to, ", ...");
    return rc;
}

int pp_batch_tell(void)
{
    pp_ring_header *h = pp_ring();
    text now = {.n = 0};
    if (!h || batch.told == batch.n)
        return 0;
    batch.told = batch.n;
    if (describe(&now) < 0)
        return ignore_error();
    if (strcmp(now.bytes, h->batch) != 0)
        pp_copy_text(h->batch, sizeof h->batch, now.bytes);
    return 0;
}
