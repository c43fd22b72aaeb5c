/*
 * The graphs that compiled regions run: which layer each of their launches works for, once each,
 * and when they run. What knows it is the Python side (provenance.py, insides.py).
 */
#include "sidecar/hook/hook.h"

#include <stdlib.h>

/* -1: exception. */
static int read_launch(PyObject *row, pp_ring_launch *ret)
{
    const char *name;
    Py_ssize_t n;
    unsigned int op, layer;
    if (!PyArg_ParseTuple(row, "s#II", &name, &n, &op, &layer))
        return -1;
    *ret = (pp_ring_launch){
        .name = n > 0 ? pp_ring_hash(name, (size_t)n) : 0, .layer = layer, .op = op};
    return 0;
}

int pp_graph_tell(uint32_t graph, uint32_t region, PyObject *launches, bool *ret)
{
    const Py_ssize_t n = PyList_Size(launches);
    *ret = false;
    if (n < 0)
        return -1;
    if (n == 0 || n > PP_RING_LAUNCHES)
        return 0;
    pp_ring_launch *told = calloc((size_t)n, sizeof *told);
    if (!told) {
        (void)PyErr_NoMemory();
        return -1;
    }
    int rc = 0;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) {
        PyObject *row = PyList_GetItem(launches, i); /* borrowed; nothing of the user's runs here */
        rc = row ? read_launch(row, &told[i]) : -1;
    }
    if (rc == 0)
        *ret = pp_ring_add_graph(graph, region, told, (uint32_t)n);
    free(told);
    return rc;
}

uint32_t pp_graph_ran(uint32_t graph, int64_t begun)
{
    const int64_t now = pp_now();
    const int open = pp_frames_count();
    if (pp_marks_state() != MARKING || pp_clock_now != &pp_clock_kernels || begun > now)
        return 0;
    pp_span_put(PP_MARK_GRAPH, graph, begun, now);
    return open > 0 ? pp_frames_at(open - 1)->layer : 0;
}
