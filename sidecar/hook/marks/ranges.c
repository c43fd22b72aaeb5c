/*
 * Ranges that the program marks by torch.profiler.record_function or NVTX: each name is a layer. To
 * a range belongs what the thread whose steps are counted does in it outside of all that is a layer
 * or a phase of the step already; the innermost wins. A range of a name that is open already is
 * part of what it is in. While autograd's engine runs, ranges around it pause.
 *
 * Nodes of the autograd graph are numbered as a thread makes them: those of a range are stretches
 * of numbers, cut by modules and ranges in it. When backward begins, the nodes behind the last
 * model's forward that are in one get hooks as a parent's do (nodes_self.c).
 */
#include "sidecar/hook/hook.h"

enum {
    OPEN = 64,      /* ranges in ranges */
    TOLD = 12,      /* of these that are told */
    STRETCHES = 32, /* of nodes that backward has not come to, in a step */
    NODES_MAX = 512,
};

typedef struct range {
    const void *key; /* torch's record; NULL: NVTX */
    uint32_t layer;  /* 0: it is not told */
    uint8_t phase;
    int64_t call; /* its number in the process */
} range;

/* Nodes that one call of a range made, one after the other. */
typedef struct stretch {
    uint32_t layer;
    int64_t call;
    int64_t from, to;
} stretch;

static struct {
    bool wanted, backward; /* ranges are told; their backward, too */
    range open[OPEN];      /* of the trainer's thread, the innermost last */
    int count;
    unsigned beyond; /* NVTX ranges in those that there is no room for */
    bool paused;     /* autograd's engine runs within the open ones */
    int64_t calls;
    int64_t from; /* the innermost one's nodes since it went on; -1: they are not told */
    stretch stretches[STRETCHES];
    int stretch_count;
} ranges = {.from = -1};

/* Layers that are ranges. */
static bool is_range[PP_RING_LAYERS + 1];

void pp_ranges_tell(uint32_t layer)
{
    if (layer <= PP_RING_LAYERS)
        is_range[layer] = true;
}

bool pp_ranges_is(uint32_t layer)
{
    return layer <= PP_RING_LAYERS && is_range[layer];
}

/* ---- what is open ---- */

static range *innermost(void)
{
    int at = ranges.count;
    while (at > 0 && ranges.open[at - 1].layer == 0)
        at--;
    return at > 0 ? &ranges.open[at - 1] : NULL;
}

static int64_t next_number(void)
{
    int64_t number = -1;
    if (ranges.backward && pp_nodes_next_number(&number) < 0) {
        PyErr_Clear();
        number = -1;
    }
    return number;
}

/* The innermost one's own work ends here, for now. */
static void cut(void)
{
    const range *r = ranges.from >= 0 ? innermost() : NULL;
    const int64_t to = r ? next_number() : -1;
    if (r && to > ranges.from && ranges.stretch_count < STRETCHES)
        ranges.stretches[ranges.stretch_count++] = (stretch){r->layer, r->call, ranges.from, to};
    ranges.from = -1;
}

static void go_on(void)
{
    const range *r = innermost();
    const bool makes = r && r->phase == PP_MARK_FORWARD && !ranges.paused && pp_frames_count() == 0;
    ranges.from = makes ? next_number() : -1;
}

static void put(pp_mark_kind kind, const range *r, uint8_t flags)
{
    pp_mark_put((uint8_t)kind, r->phase, PP_MARK_RANGE | flags, r->layer, 0, 0, 0);
}

/* Whether there is one of this layer, or as many as the agent takes. */
static bool is_open(uint32_t layer)
{
    int told = 0;
    for (int i = 0; i < ranges.count; i++) {
        if (ranges.open[i].layer == layer)
            return true;
        told += ranges.open[i].layer != 0;
    }
    return told >= TOLD;
}

static void take_off(int at)
{
    const range r = ranges.open[at];
    if (r.layer) {
        cut();
        if (!ranges.paused)
            put(PP_MARK_END, &r, 0);
    }
    for (ranges.count--; at < ranges.count; at++)
        ranges.open[at] = ranges.open[at + 1];
    if (r.layer)
        go_on();
}

void pp_ranges_open(const void *key, uint32_t layer, uint8_t phase)
{
    if (ranges.count == OPEN) {
        ranges.beyond += key == NULL;
        return;
    }
    if (layer && is_open(layer))
        layer = 0;
    if (layer)
        cut();
    ranges.open[ranges.count++] = (range){key, layer, phase, ranges.calls++};
    if (!layer)
        return;
    put(PP_MARK_BEGIN, &ranges.open[ranges.count - 1], 0);
    go_on();
}

void pp_ranges_gone(const void *key)
{
    for (int i = ranges.count - 1; i >= 0; i--)
        if (ranges.open[i].key == key)
            take_off(i);
}

bool pp_ranges_paused(void)
{
    return ranges.paused;
}

bool pp_ranges_wanted(void)
{
    return ranges.wanted;
}

void pp_ranges_leave(const void *key)
{
    if (!key && ranges.beyond > 0) {
        ranges.beyond--;
        return;
    }
    int at = ranges.count - 1;
    while (at >= 0 && ranges.open[at].key != key)
        at--;
    if (at >= 0)
        take_off(at);
}

/* ---- what cuts them ---- */

void pp_ranges_module(bool begins)
{
    if (ranges.count == 0)
        return;
    if (begins)
        cut();
    else
        go_on();
}

bool pp_ranges_pause(void)
{
    if (!ranges.wanted || ranges.paused || pp_frames_count() > 0)
        return false;
    cut();
    for (int i = ranges.count; i-- > 0;)
        if (ranges.open[i].layer)
            put(PP_MARK_END, &ranges.open[i], PP_MARK_PAUSES);
    ranges.paused = true;
    return true;
}

void pp_ranges_resume(bool marked)
{
    ranges.paused = false;
    for (int i = 0; marked && i < ranges.count; i++)
        if (ranges.open[i].layer)
            put(PP_MARK_BEGIN, &ranges.open[i], 0);
    if (marked)
        go_on();
}

void pp_ranges_clear(void)
{
    ranges.count = ranges.stretch_count = 0;
    ranges.beyond = 0;
    ranges.paused = false;
    ranges.from = -1;
}

void pp_ranges_step(void)
{
    while (ranges.count > 0)
        take_off(ranges.count - 1);
    pp_ranges_clear();
}

void pp_ranges_use(bool wanted, bool backward)
{
    ranges.wanted = wanted;
    ranges.backward = wanted && backward;
    pp_ranges_clear();
}

/* ---- backward ---- */

typedef struct walk {
    PyObject *queue, *visited;
    PyObject *entries[STRETCHES]; /* nodes by which backward comes into each; NULL: none */
    int64_t lowest;               /* nodes below are no range's */
} walk;

static int stretch_at(int64_t number)
{
    for (int i = 0; i < ranges.stretch_count; i++)
        if (number >= ranges.stretches[i].from && number < ranges.stretches[i].to)
            return i;
    return -1;
}

/* Backward comes to a node from one stretch, -1: from none. -1: exception. */
static int come_to(walk *w, PyObject *node, int from)
{
    int64_t number;
    if (pp_nodes_number(node, &number) < 0)
        return -1;
    if (number < w->lowest)
        return 0;
    const int at = stretch_at(number);
    if (at >= 0 && at != from) {
        if (!w->entries[at] && !(w->entries[at] = PyList_New(0)))
            return -1;
        if (PyList_Append(w->entries[at], node) < 0)
            return -1;
    }
    const int seen = PySet_Contains(w->visited, node);
    if (seen != 0)
        return seen < 0 ? -1 : 0;
    return PySet_Add(w->visited, node) < 0 ? -1 : PyList_Append(w->queue, node);
}

static int come_to_each(walk *w, PyObject *nodes, int from)
{
    for (Py_ssize_t i = 0; i < PyList_Size(nodes); i++)
        if (come_to(w, PyList_GetItem(nodes, i), from) < 0)
            return -1;
    return 0;
}

/* 1: there are too many nodes. -1: exception. */
static int look(walk *w, PyObject *roots)
{
    PyObject *first = PyList_New(0);
    int rc = first && pp_nodes_gather(roots, first) == 0 ? come_to_each(w, first, -1) : -1;
    Py_XDECREF(first);
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(w->queue); i++) {
        PyObject *node = PyList_GetItem(w->queue, i);
        PyObject *behind = PyList_New(0);
        int64_t number;
        rc = behind && pp_nodes_number(node, &number) == 0 && pp_nodes_behind(node, behind) == 0
                 ? come_to_each(w, behind, stretch_at(number))
                 : -1;
        Py_XDECREF(behind);
        if (rc == 0 && PyList_Size(w->queue) > NODES_MAX)
            return 1;
    }
    return rc;
}

/* Stretches lie in the order of their numbers, and the lowest of a call is its end: backward comes
 * there last. */
static int hook_stretches(const walk *w, pp_ranges_hooks hooks_of)
{
    int64_t ended[STRETCHES];
    int count = 0;
    for (int i = 0; i < ranges.stretch_count; i++) {
        const stretch s = ranges.stretches[i];
        bool goes_on = false;
        if (!w->entries[i])
            continue;
        for (int j = 0; j < count; j++)
            goes_on = goes_on || ended[j] == s.call;
        const pp_self_hooks *h = hooks_of(s.layer);
        if (!h)
            return -1;
        PyObject *end = goes_on ? h->pause : h->end;
        const pp_self_hooks hooks = {h->begin, h->resume, end, end};
        if (pp_nodes_hook_stretch(w->entries[i], s.from, s.to, &hooks) < 0)
            return -1;
        ended[count++] = s.call;
    }
    return 0;
}

/* Those that backward comes to now are done; of those before the last model nothing is told. */
static void forget_stretches(const walk *w)
{
    int kept = 0;
    for (int i = 0; i < ranges.stretch_count; i++)
        if (!w->entries[i] && ranges.stretches[i].from >= w->lowest)
            ranges.stretches[kept++] = ranges.stretches[i];
    ranges.stretch_count = kept;
}

int pp_ranges_hook(PyObject *roots, pp_ranges_hooks hooks_of)
{
    const int64_t from = pp_engine_loss_from();
    walk w = {.lowest = INT64_MAX};
    for (int i = 0; i < ranges.stretch_count; i++)
        if (from >= 0 && ranges.stretches[i].from >= from && ranges.stretches[i].from < w.lowest)
            w.lowest = ranges.stretches[i].from;
    if (w.lowest == INT64_MAX)
        return 0;
    w.queue = PyList_New(0);
    w.visited = PySet_New(NULL);
    int rc = w.queue && w.visited ? look(&w, roots) : -1;
    if (rc == 0)
        rc = hook_stretches(&w, hooks_of);
    forget_stretches(&w);
    for (int i = 0; i < STRETCHES; i++)
        Py_XDECREF(w.entries[i]);
    Py_XDECREF(w.queue);
    Py_XDECREF(w.visited);
    return rc < 0 ? -1 : 0;
}
