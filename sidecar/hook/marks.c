/*
 * The extension module `_marks`: the callables that torch calls, and the state that says what they
 * do. Thin Python beside it decides what is hooked; nothing in Python runs per mark.
 *
 *   OFF ──settle──> COUNTING ──settle──> DISCOVERING ──found──> MARKING ──mode──> STOPPING
 *    ^                 ^                                                             │
 *    └─────────────────┴───────────────── settle ────────────────────────────────────┘
 *
 * The agent's wish (the ring's mode) is carried out by `settle`, which runs in the training's own
 * thread as a forward begins: there no hook table that it changes is being walked.
 */
#include "hook.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

typedef enum state { OFF, COUNTING, DISCOVERING, MARKING, STOPPING } state;

typedef enum kind {
    CALL, /* global forward pre-hook: settles, and collects modules */
    FORWARD_BEGIN,
    FORWARD_END,
    BACKWARD_BEGIN,
    BACKWARD_END,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    KINDS,
} kind;

enum {
    FRAMES = 64,          /* forwards open in one thread */
    COLLECT_MAX = 65536,  /* module calls looked at when finding layers */
    OTHERS_MAX = 16,      /* steps of other optimizers before the boundary's counts as gone */
    SLEEP_MAX_S = 3600,   /* the thread sleeps until it is woken */
    BACKWARD_COST = 1200, /* ns of a call from autograd into a hook, arguments included: measured */
};

typedef struct marker {
    PyObject_HEAD uint32_t layer;
    uint8_t kind;
    PyObject *begin; /* FORWARD_END: what backward's nodes call; else NULL */
    PyObject *end;
} marker;

/* A forward that has begun in this thread. */
typedef struct frame {
    uint32_t layer;
    PyObject *edge; /* NULL where backward is not wanted */
} frame;

static struct {
    state state;
    bool phases[3];
    bool partial;       /* discovering began within a step: what it called first was missed */
    bool fresh;         /* the stretch has started and no forward has begun */
    bool settling;      /* a settle is running, or has failed: not again */
    Py_hash_t boundary; /* the optimizer whose steps are the training's; 0: not known */
    int others;
    int depth;           /* optimizers open: wrappers call the one they wrap */
    Py_hash_t outermost; /* the outermost of these */
    int64_t steps;
    int64_t call_cost;   /* ns that hooking one module's call costs outside the callables */
    PyObject *collected; /* list of modules, while discovering */
    PyObject *probe;     /* the Python side: settle, found, position, stray, failed */
    bool has_position;
} hook;

static atomic_bool closing;
static PyObject *marker_type;
static _Thread_local frame frames[FRAMES];
static _Thread_local int frame_count;

static void set_state(state s)
{
    static const uint32_t shown[] = {PP_RING_IDLE, PP_RING_COUNT, PP_RING_COUNT, PP_RING_SAMPLE,
                                     PP_RING_SAMPLE};
    hook.state = s;
    if (pp_ring())
        __atomic_store_n(&pp_ring()->state, shown[s], __ATOMIC_RELEASE);
}

/*
 * An error of our own ends the hook, not the training; what is the user's (Ctrl-C, sys.exit in a
 * signal handler) goes on. Returns 0 when the error is gone.
 */
static int give_up(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    set_state(OFF);
    if (pp_ring())
        __atomic_fetch_add(&pp_ring()->failures, 1, __ATOMIC_RELAXED);
    PyObject *done = hook.probe ? PyObject_CallMethod(hook.probe, "failed", NULL) : Py_None;
    if (!done && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    if (done && done != Py_None)
        Py_DECREF(done);
    PyErr_Clear();
    return 0;
}

/* Calls a method of the Python side and counts its time as the hook's cost. */
static int call_probe(const char *method, PyObject *argument)
{
    int64_t begun = pp_now();
    PyObject *done = argument ? PyObject_CallMethod(hook.probe, method, "O", argument)
                              : PyObject_CallMethod(hook.probe, method, NULL);
    pp_ring_cost(pp_now() - begun);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int settle(void)
{
    if (hook.settling || !hook.probe)
        return 0;
    hook.settling = true;
    int rc = call_probe("settle", NULL);
    hook.settling = false;
    return rc;
}

/* Takes the innermost frame off; its edge is the caller's. */
static PyObject *take_frame(void)
{
    frame *f = &frames[--frame_count];
    PyObject *edge = f->edge;
    f->edge = NULL;
    return edge;
}

static void clear_frames(int keep)
{
    while (frame_count > keep) {
        PyObject *edge = take_frame();
        Py_XDECREF(edge);
    }
}

/* ---- what each kind does; -1 with an exception ---- */

static int on_call(PyObject *module)
{
    if (hook.state == MARKING)
        return 0; /* a stretch ends at a step's end, not here */
    if (hook.state != DISCOVERING && settle() < 0)
        return -1;
    if (hook.state != DISCOVERING || !hook.collected)
        return 0;
    pp_ring_cost(hook.call_cost);
    if (PyList_Size(hook.collected) >= COLLECT_MAX)
        return 0;
    return PyList_Append(hook.collected, module);
}

/* Whether this forward runs inside a backward. */
static int recomputes(uint8_t *ret_flags)
{
    *ret_flags = 0;
    if (!pp_torch_api.graph_task)
        return 0;
    PyObject *id = PyObject_CallFunctionObjArgs(pp_torch_api.graph_task, NULL);
    if (!id)
        return -1;
    if (PyLong_AsLong(id) >= 0)
        *ret_flags = PP_MARK_RECOMPUTE;
    Py_DECREF(id);
    return PyErr_Occurred() ? -1 : 0;
}

static int on_forward_begin(const marker *m, PyObject *module, PyObject *args)
{
    if (hook.state == STOPPING)
        return settle();
    if (hook.state != MARKING)
        return call_probe("stray", module); /* a copy of a module took our hook with it */
    uint8_t flags;
    if (recomputes(&flags) < 0)
        return -1;
    hook.fresh = false;
    if (frame_count == FRAMES)
        clear_frames(0); /* forwards that ended in exceptions */
    frame *f = &frames[frame_count];
    f->layer = m->layer;
    f->edge = NULL;
    if (hook.phases[PP_MARK_BACKWARD]) {
        f->edge = pp_nodes_edge(args);
        if (!f->edge)
            return -1;
    }
    frame_count++;
    pp_ring_cost(hook.call_cost);
    if (hook.phases[PP_MARK_FORWARD])
        pp_mark_put(PP_MARK_BEGIN, PP_MARK_FORWARD, flags, m->layer, 0, 0, 0);
    return 0;
}

/* The edge of the forward that ends now; a new reference or NULL. */
static PyObject *pop_frame(uint32_t layer)
{
    int at = frame_count;
    while (at > 0 && frames[at - 1].layer != layer)
        at--;
    if (at == 0)
        return NULL;
    clear_frames(at); /* forwards inside this one that ended in exceptions */
    return take_frame();
}

static int on_forward_end(const marker *m, PyObject *output)
{
    if (hook.state != MARKING)
        return 0;
    if (hook.phases[PP_MARK_FORWARD])
        pp_mark_put(PP_MARK_END, PP_MARK_FORWARD, 0, m->layer, 0, 0, 0);
    PyObject *edge = pop_frame(m->layer);
    if (!edge)
        return 0;
    int64_t begun = pp_now();
    int rc = pp_nodes_hook(output, edge, m->begin, m->end);
    Py_DECREF(edge);
    pp_ring_cost(pp_now() - begun);
    return rc;
}

static int on_backward(const marker *m)
{
    if (hook.state != MARKING || !hook.phases[PP_MARK_BACKWARD])
        return 0;
    pp_ring_cost(BACKWARD_COST);
    pp_mark_put(m->kind == BACKWARD_BEGIN ? PP_MARK_BEGIN : PP_MARK_END, PP_MARK_BACKWARD, 0,
                m->layer, 0, 0, 0);
    return 0;
}

/* Outermost only. A step that was left by an exception never ended: its optimizer comes again. */
static int on_optimizer_begin(PyObject *optimizer)
{
    Py_hash_t id = PyObject_Hash(optimizer);
    if (id == -1)
        return -1;
    if (hook.depth > 0 && id == hook.outermost)
        hook.depth = 0;
    if (hook.depth++ > 0)
        return 0;
    hook.outermost = id;
    if (hook.state == MARKING && hook.phases[PP_MARK_OPTIMIZER])
        pp_mark_put(PP_MARK_BEGIN, PP_MARK_OPTIMIZER, 0, 0, 0, 0, 0);
    return 0;
}

/* Starts the stretch here, behind the last optimizer of the step. */
static void put_start(void)
{
    hook.fresh = true;
    pp_mark_put(PP_MARK_START, 0, 0, 0, hook.steps - 1, PP_MARK_UNKNOWN, PP_MARK_UNKNOWN);
}

static int on_found(void)
{
    if (hook.partial) {
        hook.partial = false;
        Py_CLEAR(hook.collected);
        hook.collected = PyList_New(0);
        return hook.collected ? 0 : -1;
    }
    if (!hook.collected || PyList_Size(hook.collected) == 0)
        return 0; /* nothing ran since: one step more */
    if (call_probe("found", NULL) < 0)
        return -1;
    if (hook.state == MARKING)
        put_start();
    return 0;
}

static int position(int32_t *epoch, int32_t *batch)
{
    *epoch = *batch = PP_MARK_UNKNOWN;
    if (!hook.has_position)
        return 0;
    int e = PP_MARK_UNKNOWN, b = PP_MARK_UNKNOWN;
    PyObject *pair = PyObject_CallMethod(hook.probe, "position", NULL);
    int ok = pair && PyTuple_Check(pair) && PyArg_ParseTuple(pair, "ii", &e, &b);
    Py_XDECREF(pair);
    *epoch = e;
    *batch = b;
    return ok ? 0 : -1;
}

static int on_step(void)
{
    int32_t epoch, batch;
    int64_t number = hook.steps - 1;
    if (position(&epoch, &batch) < 0)
        return -1;
    pp_mark_put(PP_MARK_STEP, 0, 0, 0, number, epoch, batch);
    clear_frames(0);
    int64_t begun = pp_now();
    if (pp_nodes_release() < 0)
        return -1;
    if (pp_ring_mode_now() != PP_RING_SAMPLE) {
        pp_mark_put(PP_MARK_STOP, 0, 0, 0, number, PP_MARK_UNKNOWN, PP_MARK_UNKNOWN);
        set_state(STOPPING);
    }
    pp_ring_cost(pp_now() - begun);
    return 0;
}

/* Whether this optimizer's step ends the training's step. */
static bool is_boundary(Py_hash_t id)
{
    if (hook.boundary == 0 || hook.others > OTHERS_MAX)
        hook.boundary = id;
    if (id != hook.boundary) {
        hook.others++;
        return false;
    }
    hook.others = 0;
    return true;
}

static int on_optimizer_end(PyObject *optimizer)
{
    Py_hash_t id = PyObject_Hash(optimizer);
    if (id == -1)
        return -1;
    if (hook.depth > 0 && --hook.depth > 0)
        return 0;
    if (hook.state == MARKING && hook.fresh && id != hook.boundary) {
        /* Several optimizers step one after the other: the last one ends the step. */
        hook.boundary = id;
        put_start();
        return 0;
    }
    if (hook.state == MARKING && hook.phases[PP_MARK_OPTIMIZER])
        pp_mark_put(PP_MARK_END, PP_MARK_OPTIMIZER, 0, 0, 0, 0, 0);
    if (!is_boundary(id))
        return 0;
    hook.steps++;
    if (pp_ring())
        __atomic_store_n(&pp_ring()->steps, hook.steps, __ATOMIC_RELAXED);
    if (hook.state == DISCOVERING)
        return on_found();
    return hook.state == MARKING ? on_step() : 0;
}

/* ---- the callable ---- */

static int dispatch(const marker *m, PyObject *args)
{
    PyObject *first = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    Py_ssize_t n = PyTuple_Size(args);
    switch ((kind)m->kind) {
    case CALL:
        return on_call(first);
    case FORWARD_BEGIN:
        return on_forward_begin(m, first, n > 1 ? PyTuple_GetItem(args, 1) : Py_None);
    case FORWARD_END:
        return on_forward_end(m, PyTuple_GetItem(args, n - 1));
    case BACKWARD_BEGIN:
    case BACKWARD_END:
        return on_backward(m);
    case OPTIMIZER_BEGIN:
        return on_optimizer_begin(first);
    case OPTIMIZER_END:
        return on_optimizer_end(first);
    case KINDS:
        break;
    }
    return 0;
}

static PyObject *marker_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    if (pp_ring() && dispatch((const marker *)self, args) < 0 && give_up() < 0)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

static void marker_dealloc(PyObject *self)
{
    marker *m = (marker *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(m->begin);
    Py_CLEAR(m->end);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* A model that is copied while hooked shares the marker, and loses it when it is next called. */
static PyObject *marker_deepcopy(PyObject *self, PyObject *memo)
{
    (void)memo;
    Py_INCREF(self);
    return self;
}

/*
 * A model that is pickled while hooked must load where the hook is not installed: the marker
 * becomes a callable of the standard library that takes anything and does nothing.
 */
static PyObject *marker_reduce(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyObject *module = PyImport_ImportModule("contextlib");
    PyObject *builtins = PyImport_ImportModule("builtins");
    PyObject *context = module ? PyObject_CallMethod(module, "nullcontext", NULL) : NULL;
    PyObject *get = builtins ? PyObject_GetAttrString(builtins, "getattr") : NULL;
    PyObject *result = context && get ? Py_BuildValue("O(Os)", get, context, "__exit__") : NULL;
    Py_XDECREF(get);
    Py_XDECREF(context);
    Py_XDECREF(builtins);
    Py_XDECREF(module);
    return result;
}

static PyMethodDef marker_methods[] = {
    {"__deepcopy__", marker_deepcopy, METH_O, NULL},
    {"__reduce__", marker_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot marker_slots[] = {
    {Py_tp_call, marker_call},
    {Py_tp_dealloc, marker_dealloc},
    {Py_tp_methods, marker_methods},
    {0, NULL},
};

static PyType_Spec marker_spec = {"precisionprobe_hook._marks.Marker", sizeof(marker), 0,
                                  Py_TPFLAGS_DEFAULT, marker_slots};

/* ---- the module's functions ---- */

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *m_open(PyObject *self, PyObject *args)
{
    (void)self;
    const char *directory, *python, *torch, *host, *gpus;
    int rank, world, mode;
    if (!PyArg_ParseTuple(args, "sssssiii", &directory, &python, &torch, &host, &gpus, &rank,
                          &world, &mode))
        return NULL;
    const char *why = pp_ring_open(directory);
    if (why) {
        PyErr_SetString(PyExc_OSError, why);
        return NULL;
    }
    pp_ring_header *h = pp_ring();
    pp_copy_text(h->python, sizeof h->python, python);
    pp_copy_text(h->torch, sizeof h->torch, torch);
    pp_copy_text(h->hostname, sizeof h->hostname, host);
    pp_copy_text(h->gpus, sizeof h->gpus, gpus);
    pp_copy_text(h->clock, sizeof h->clock, pp_clock_now->name);
    h->rank = rank;
    h->world_size = world;
    __atomic_store_n(&h->mode, (uint32_t)mode, __ATOMIC_RELEASE);
    return none();
}

static PyObject *m_describe(PyObject *self, PyObject *args)
{
    (void)self;
    const char *model, *gpus;
    int rank, world;
    if (!PyArg_ParseTuple(args, "ssii", &model, &gpus, &rank, &world))
        return NULL;
    pp_ring_header *h = pp_ring();
    if (h) {
        pp_copy_text(h->model, sizeof h->model, model);
        pp_copy_text(h->gpus, sizeof h->gpus, gpus);
        h->rank = rank;
        h->world_size = world;
    }
    return none();
}

static PyObject *m_configure(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *probe, *tensor, *accumulate, *sequence, *task;
    if (!PyArg_ParseTuple(args, "OOOOO", &probe, &tensor, &accumulate, &sequence, &task))
        return NULL;
    Py_INCREF(probe);
    Py_XDECREF(hook.probe);
    hook.probe = probe;
    PyObject **to[] = {&pp_torch_api.tensor, &pp_torch_api.accumulate_grad,
                       &pp_torch_api.get_sequence_nr, &pp_torch_api.graph_task};
    PyObject *from[] = {tensor, accumulate, sequence, task};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        Py_XDECREF(*to[i]);
        *to[i] = from[i] == Py_None ? NULL : from[i];
        Py_XINCREF(*to[i]);
    }
    return none();
}

static PyObject *m_phases(PyObject *self, PyObject *args)
{
    (void)self;
    int forward, backward, optimizer;
    if (!PyArg_ParseTuple(args, "ppp", &forward, &backward, &optimizer))
        return NULL;
    hook.phases[PP_MARK_FORWARD] = forward;
    hook.phases[PP_MARK_BACKWARD] = backward;
    hook.phases[PP_MARK_OPTIMIZER] = optimizer;
    return none();
}

static PyObject *m_layer(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name, *type;
    long long parameters;
    if (!PyArg_ParseTuple(args, "ssL", &name, &type, &parameters))
        return NULL;
    return PyLong_FromUnsignedLong(pp_ring_add_layer(name, type, parameters));
}

static marker *new_marker(kind k, uint32_t layer)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)marker_type, Py_tp_alloc);
    marker *m = (marker *)alloc((PyTypeObject *)marker_type, 0);
    if (m) {
        m->kind = (uint8_t)k;
        m->layer = layer;
    }
    return m;
}

static PyObject *m_marker(PyObject *self, PyObject *args)
{
    (void)self;
    int k;
    unsigned long layer = 0;
    if (!PyArg_ParseTuple(args, "i|k", &k, &layer))
        return NULL;
    if (k < 0 || k >= KINDS) {
        PyErr_SetString(PyExc_ValueError, "no such kind");
        return NULL;
    }
    marker *m = new_marker((kind)k, (uint32_t)layer);
    if (m && k == FORWARD_END) {
        m->begin = (PyObject *)new_marker(BACKWARD_BEGIN, m->layer);
        m->end = (PyObject *)new_marker(BACKWARD_END, m->layer);
        if (!m->begin || !m->end)
            Py_CLEAR(m);
    }
    return (PyObject *)m;
}

static PyObject *m_set_state(PyObject *self, PyObject *args)
{
    (void)self;
    int s, partial = 0;
    if (!PyArg_ParseTuple(args, "i|p", &s, &partial))
        return NULL;
    if (s < OFF || s > STOPPING) {
        PyErr_SetString(PyExc_ValueError, "no such state");
        return NULL;
    }
    Py_CLEAR(hook.collected);
    if (s == DISCOVERING) {
        hook.collected = PyList_New(0);
        if (!hook.collected)
            return NULL;
    }
    hook.partial = partial;
    if (s == OFF)
        hook.depth = 0;
    set_state((state)s);
    return none();
}

static PyObject *m_get_state(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(hook.state);
}

static PyObject *m_collected(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyObject *list = hook.collected ? hook.collected : PyList_New(0);
    hook.collected = NULL;
    return list;
}

static PyObject *m_use_clock(PyObject *self, PyObject *stream_of)
{
    (void)self;
    const pp_clock *clock = stream_of == Py_None ? &pp_clock_host : pp_clock_cuda(stream_of);
    if (!clock)
        clock = &pp_clock_host;
    pp_clock_now = clock;
    if (pp_ring())
        pp_copy_text(pp_ring()->clock, sizeof pp_ring()->clock, clock->name);
    pp_ring_wake();
    return PyUnicode_FromString(clock->name);
}

static PyObject *m_call_cost(PyObject *self, PyObject *args)
{
    (void)self;
    long long ns;
    if (!PyArg_ParseTuple(args, "L", &ns))
        return NULL;
    hook.call_cost = ns < 0 ? 0 : ns > 1000000 ? 1000000 : ns;
    return none();
}

static PyObject *m_has_position(PyObject *self, PyObject *args)
{
    (void)self;
    int has;
    if (!PyArg_ParseTuple(args, "p", &has))
        return NULL;
    hook.has_position = has;
    return none();
}

static PyObject *m_steps(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLongLong(hook.steps);
}

static PyObject *m_mode(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLong(pp_ring_mode_now());
}

/* The hook's own thread lives in here. Signals are for the training's threads. */
static PyObject *m_wait(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int seen;
    if (!PyArg_ParseTuple(args, "I", &seen))
        return NULL;
    Py_BEGIN_ALLOW_THREADS sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (!atomic_load(&closing) && pp_ring_mode_now() == seen) {
        int64_t ns = pp_clock_now->poll();
        pp_ring_wait(seen, ns);
    }
    if (atomic_load(&closing))
        (void)pp_clock_now->poll();
    Py_END_ALLOW_THREADS if (atomic_load(&closing)) return PyLong_FromLong(-1);
    return PyLong_FromUnsignedLong(pp_ring_mode_now());
}

static PyObject *m_leave(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    set_state(OFF);
    atomic_store(&closing, true);
    pp_ring_wake();
    return none();
}

static PyObject *m_close(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    set_state(OFF);
    pp_ring_close(false);
    return none();
}

static PyObject *m_forget(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    hook.state = OFF;
    pp_ring_close(true);
    pp_clock_now = &pp_clock_host;
    return none();
}

static PyObject *m_fail(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (pp_ring())
        __atomic_fetch_add(&pp_ring()->failures, 1, __ATOMIC_RELAXED);
    return none();
}

static PyMethodDef functions[] = {
    {"open", m_open, METH_VARARGS, "Makes the ring."},
    {"describe", m_describe, METH_VARARGS, "Says what is known once the model runs."},
    {"configure", m_configure, METH_VARARGS, "Gives the Python side and what torch has."},
    {"phases", m_phases, METH_VARARGS, "Which phases are marked."},
    {"layer", m_layer, METH_VARARGS, "Adds a layer; its id, or 0 where there is no room."},
    {"marker", m_marker, METH_VARARGS, "A callable of one kind for one layer."},
    {"set_state", m_set_state, METH_VARARGS, NULL},
    {"get_state", m_get_state, METH_NOARGS, NULL},
    {"collected", m_collected, METH_NOARGS, "Takes the modules called while discovering."},
    {"use_clock", m_use_clock, METH_O, "None: host; else torch's function for the stream."},
    {"call_cost", m_call_cost, METH_VARARGS, "ns that hooking a module's call costs by itself."},
    {"has_position", m_has_position, METH_VARARGS, "Whether epoch and batch can be asked for."},
    {"steps", m_steps, METH_NOARGS, "Steps counted."},
    {"mode", m_mode, METH_NOARGS, "What the agent asks for."},
    {"wait", m_wait, METH_VARARGS, "Sleeps until the mode changes; -1 when leaving."},
    {"leave", m_leave, METH_NOARGS, "Ends the wait for good."},
    {"close", m_close, METH_NOARGS, "Lets the ring go."},
    {"forget", m_forget, METH_NOARGS, "In a forked child: touches the ring no more."},
    {"fail", m_fail, METH_NOARGS, "Counts a failure of the Python side."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_marks", NULL, -1, functions, NULL, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__marks(void);

PyMODINIT_FUNC PyInit__marks(void)
{
    static const char *const names[] = {"CALL",           "FORWARD_BEGIN", "FORWARD_END",
                                        "BACKWARD_BEGIN", "BACKWARD_END",  "OPTIMIZER_BEGIN",
                                        "OPTIMIZER_END"};
    static const char *const states[] = {"OFF", "COUNTING", "DISCOVERING", "MARKING", "STOPPING"};
    if (pp_nodes_init() < 0)
        return NULL;
    marker_type = PyType_FromSpec(&marker_spec);
    PyObject *module = marker_type ? PyModule_Create(&definition) : NULL;
    if (!module)
        return NULL;
    for (int i = 0; i < KINDS; i++)
        if (PyModule_AddIntConstant(module, names[i], i) < 0)
            return NULL;
    for (int i = 0; i <= STOPPING; i++)
        if (PyModule_AddIntConstant(module, states[i], i) < 0)
            return NULL;
    Py_INCREF(marker_type);
    if (PyModule_AddObject(module, "Marker", marker_type) < 0)
        return NULL;
    return module;
}
