/* The extension module `_marks`: what the Python side can ask of the hook's C parts. */
#include "sidecar/hook/hook.h"

#include <string.h>

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
    unsigned int session;
    if (!PyArg_ParseTuple(args, "sssssiiiI", &directory, &python, &torch, &host, &gpus, &rank,
                          &world, &mode, &session))
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
    h->mode = (uint32_t)mode; /* before the agent can see the ring: then it is the agent's */
    h->session = session;
    why = pp_ring_publish();
    if (why) {
        PyErr_SetString(PyExc_OSError, why);
        return NULL;
    }
    return none();
}

static PyObject *m_describe(PyObject *self, PyObject *args)
{
    (void)self;
    const char *model, *digest, *gpus;
    int rank, world;
    if (!PyArg_ParseTuple(args, "sssii", &model, &digest, &gpus, &rank, &world))
        return NULL;
    pp_ring_header *h = pp_ring();
    if (h) {
        pp_copy_text(h->model, sizeof h->model, model);
        pp_copy_text(h->model_digest, sizeof h->model_digest, digest);
        pp_copy_text(h->gpus, sizeof h->gpus, gpus);
        h->rank = rank;
        h->world_size = world;
        pp_chip_describe(h);
    }
    return none();
}

static PyObject *m_batch_anew(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    pp_batch_anew();
    return none();
}

static PyObject *m_refuse(PyObject *self, PyObject *args)
{
    (void)self;
    const char *why;
    if (!PyArg_ParseTuple(args, "s", &why))
        return NULL;
    pp_ring_refuse(why);
    return none();
}

static PyObject *m_configure(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *probe, *tensor, *accumulate, *sequence, *task, *grad_enabled;
    if (!PyArg_ParseTuple(args, "OOOOOO", &probe, &tensor, &accumulate, &sequence, &task,
                          &grad_enabled))
        return NULL;
    pp_marks_use_probe(probe);
    PyObject **to[] = {&pp_torch_api.tensor, &pp_torch_api.accumulate_grad,
                       &pp_torch_api.get_sequence_nr, &pp_torch_api.graph_task,
                       &pp_torch_api.grad_enabled};
    PyObject *from[] = {tensor, accumulate, sequence, task, grad_enabled};
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
    pp_marks_phases(forward, backward, optimizer);
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

static PyObject *m_marker(PyObject *self, PyObject *args)
{
    (void)self;
    int kind;
    unsigned int layer = 0;
    if (!PyArg_ParseTuple(args, "i|I", &kind, &layer))
        return NULL;
    if (kind < 0 || kind >= KINDS || layer > PP_RING_LAYERS) {
        PyErr_SetString(PyExc_ValueError, "no such kind");
        return NULL;
    }
    return pp_marks_callable((pp_kind)kind, layer);
}

/* Tells where a layer is: its module, its id (0: it is none), whether modules in it are layers
 * themselves, and whether nobody calls it but the training. */
static PyObject *m_place(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *module;
    unsigned long layer;
    int parent, root, model;
    if (!PyArg_ParseTuple(args, "Okppp", &module, &layer, &parent, &root, &model))
        return NULL;
    if (layer > PP_RING_LAYERS)
        return PyBool_FromLong(0);
    const uint32_t place = (uint32_t)layer | (parent ? PP_PLACE_PARENT : 0) |
                           (root ? PP_PLACE_ROOT : 0) | (model ? PP_PLACE_MODEL : 0);
    return PyBool_FromLong(pp_module_map_put(module, place));
}

static PyObject *m_drop(PyObject *self, PyObject *address)
{
    (void)self;
    const void *module = PyLong_AsVoidPtr(address); /* what id() said */
    if (!module && PyErr_Occurred())
        return NULL;
    pp_module_map_drop(module);
    return none();
}

static PyObject *m_clear(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_module_map_clear();
    return none();
}

static PyObject *m_set_state(PyObject *self, PyObject *args)
{
    (void)self;
    int state, partial = 0;
    if (!PyArg_ParseTuple(args, "i|p", &state, &partial))
        return NULL;
    if (state < OFF || state >= STATES) {
        PyErr_SetString(PyExc_ValueError, "no such state");
        return NULL;
    }
    return pp_marks_set_state((pp_state)state, partial) < 0 ? NULL : none();
}

static PyObject *m_get_state(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(pp_marks_state());
}

static PyObject *m_collected(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return pp_marks_take_collected();
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
    pp_ring_wake(false);
    return PyUnicode_FromString(clock->name);
}

/* As a capture starts: the GPU's kernels are recorded where they can be, else `why_not` is told. */
static PyObject *m_record(PyObject *self, PyObject *args)
{
    (void)self;
    const char *why;
    int several, look;
    if (!PyArg_ParseTuple(args, "spp", &why, &several, &look))
        return NULL;
    int64_t begun = pp_now();
    if (pp_clock_now == &pp_clock_host)
        why = "no GPU is used";
    else if (!*why && !(why = pp_kernels_start(several, look)))
        pp_clock_now = &pp_clock_kernels;
    if (pp_ring()) {
        pp_copy_text(pp_ring()->kernels, sizeof pp_ring()->kernels, why ? why : "");
        pp_copy_text(pp_ring()->clock, sizeof pp_ring()->clock, pp_clock_now->name);
    }
    pp_ring_cost(pp_now() - begun);
    return PyUnicode_FromString(why ? why : "");
}

static PyObject *m_several(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(pp_kernels_several());
}

static PyObject *m_device(PyObject *self, PyObject *args)
{
    (void)self;
    int number;
    if (!PyArg_ParseTuple(args, "i", &number))
        return NULL;
    const pp_ring_header *h = pp_ring();
    return PyUnicode_FromString(
        h && number >= 0 && number < PP_RING_DEVICES ? h->devices[number].uuid : "");
}

static PyObject *m_put_off(PyObject *self, PyObject *args)
{
    (void)self;
    long long ns;
    if (!PyArg_ParseTuple(args, "L", &ns))
        return NULL;
    return pp_marks_put_off(ns) < 0 ? NULL : none();
}

static PyObject *m_sample_gpu(PyObject *self, PyObject *args)
{
    (void)self;
    const char *program, *folder, *gpu, *paths, *libraries;
    int device;
    unsigned int period;
    if (!PyArg_ParseTuple(args, "yyyiIyy", &program, &folder, &gpu, &device, &period, &paths,
                          &libraries))
        return NULL;
    pp_sampler_ask(program, folder, gpu, device, period, paths, libraries);
    pp_ring_wake(false);
    return none();
}

static PyObject *m_sample_no_gpu(PyObject *self, PyObject *args)
{
    (void)self;
    const char *why;
    if (!PyArg_ParseTuple(args, "s", &why))
        return NULL;
    pp_sampler_none(why);
    return none();
}

static PyObject *m_lend(PyObject *self, PyObject *object)
{
    (void)self;
    Py_IncRef(object);
    return none();
}

static PyObject *m_give_way(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_kernels_give_way();
    return pp_marks_stop() < 0 ? NULL : none();
}

static PyObject *m_recording(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(pp_kernels_active());
}

static PyObject *m_call_cost(PyObject *self, PyObject *args)
{
    (void)self;
    long long ns;
    if (!PyArg_ParseTuple(args, "L", &ns))
        return NULL;
    pp_marks_call_cost(ns);
    return none();
}

static PyObject *m_quiet(PyObject *self, PyObject *args)
{
    (void)self;
    int quiet;
    if (!PyArg_ParseTuple(args, "p", &quiet))
        return NULL;
    pp_marks_quiet(quiet);
    return none();
}

static PyObject *m_communication(PyObject *self, PyObject *queue)
{
    (void)self;
    pp_marks_communication(queue == Py_None ? NULL : queue);
    return none();
}

static PyObject *m_span(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *original;
    int phase;
    if (!PyArg_ParseTuple(args, "Oi", &original, &phase))
        return NULL;
    if (phase < 0 || phase >= PP_MARK_OTHER || pp_mark_of_layer((uint8_t)phase)) {
        PyErr_SetString(PyExc_ValueError, "no phase of a step");
        return NULL;
    }
    return pp_spans_new(original, (pp_mark_phase)phase);
}

static PyObject *m_step(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    return pp_marks_step() < 0 ? NULL : none();
}

static PyObject *m_exceptions(PyObject *self, PyObject *told)
{
    (void)self;
    pp_marks_exceptions(told == Py_True);
    return none();
}

static PyObject *m_look_anew(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    pp_marks_look_anew();
    return none();
}

static PyObject *m_again(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *original;
    int begins;
    unsigned int layer;
    if (!PyArg_ParseTuple(args, "OpI", &original, &begins, &layer))
        return NULL;
    return pp_spans_again(original, begins, layer <= PP_RING_LAYERS ? layer : 0);
}

static PyObject *m_graph(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int graph, region;
    PyObject *launches;
    bool room = false;
    if (!PyArg_ParseTuple(args, "IIO!", &graph, &region, &PyList_Type, &launches) ||
        pp_graph_tell(graph, region, launches, &room) < 0)
        return NULL;
    return PyBool_FromLong(room);
}

static PyObject *m_ran(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int graph;
    long long begun;
    if (!PyArg_ParseTuple(args, "IL", &graph, &begun))
        return NULL;
    return PyLong_FromUnsignedLong(pp_graph_ran(graph, begun));
}

static PyObject *m_region(PyObject *self, PyObject *original)
{
    (void)self;
    return pp_regions_new(original);
}

static PyObject *m_isolate(PyObject *self, PyObject *args)
{
    (void)self;
    int wanted;
    const char *why;
    if (!PyArg_ParseTuple(args, "ps", &wanted, &why))
        return NULL;
    pp_marks_isolate(wanted);
    if (pp_ring())
        pp_copy_text(pp_ring()->isolated, sizeof pp_ring()->isolated, why);
    return none();
}

/* What tells START of a dwell from one of the training. */
static uint8_t dwell_flags(bool background)
{
    uint8_t kernels = pp_clock_now == &pp_clock_kernels ? PP_MARK_KERNELS : 0;
    return (uint8_t)(kernels | PP_MARK_DWELL | (background ? PP_MARK_BACKGROUND : 0));
}

/* Marks of dwells: (kind, layer, phase) of a piece, or (kind, number, background) of an edge. */
static PyObject *m_dwell(PyObject *self, PyObject *args)
{
    (void)self;
    int kind, phase;
    unsigned int number;
    if (!PyArg_ParseTuple(args, "iIi", &kind, &number, &phase))
        return NULL;
    if (kind == PP_MARK_BEGIN || kind == PP_MARK_END)
        pp_mark_put((uint8_t)kind, (uint8_t)phase, 0, number, 0, 0, 0);
    else if (kind == PP_MARK_START || kind == PP_MARK_STEP || kind == PP_MARK_STOP)
        pp_mark_put((uint8_t)kind, 0, dwell_flags(phase), 0, number, PP_MARK_UNKNOWN,
                    PP_MARK_UNKNOWN);
    return none();
}

static PyObject *m_skip(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int layer, phase, reason;
    if (!PyArg_ParseTuple(args, "III", &layer, &phase, &reason))
        return NULL;
    pp_ring_leave_out(layer, phase, reason);
    return none();
}

static PyObject *m_whole(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int layer, reason;
    if (!PyArg_ParseTuple(args, "II", &layer, &reason))
        return NULL;
    pp_ring_tell_whole(layer, reason);
    return none();
}

static PyObject *m_paused(PyObject *self, PyObject *args)
{
    (void)self;
    long long ns;
    if (!PyArg_ParseTuple(args, "L", &ns))
        return NULL;
    if (pp_ring() && ns > 0)
        __atomic_fetch_add(&pp_ring()->paused, ns, __ATOMIC_RELAXED);
    return none();
}

static PyObject *m_waits(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *targets, *folder, *device;
    if (!PyArg_ParseTuple(args, "O!UO", &PyList_Type, &targets, &folder, &device))
        return NULL;
    return pp_wait_calls_begin(targets, folder, device) < 0 ? NULL : none();
}

static PyObject *m_memory(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *stats, *device;
    const char *why;
    if (!PyArg_ParseTuple(args, "OOs", &stats, &device, &why))
        return NULL;
    pp_memory_use(stats == Py_None ? NULL : stats, stats == Py_None ? NULL : device);
    if (pp_ring())
        pp_copy_text(pp_ring()->memory, sizeof pp_ring()->memory, why);
    return none();
}

static PyObject *m_engine(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *method, *owner;
    unsigned int loss, gradients;
    if (!PyArg_ParseTuple(args, "OOII", &method, &owner, &loss, &gradients))
        return NULL;
    const bool known = loss <= PP_RING_LAYERS && gradients <= PP_RING_LAYERS &&
                       pp_engine_calls_begin(method, owner, loss, gradients);
    return PyBool_FromLong(known);
}

static PyObject *m_ranges(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *targets;
    int backward;
    if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &targets, &backward))
        return NULL;
    return pp_range_calls_begin(targets, backward) < 0 ? NULL : none();
}

static PyObject *m_scaler(PyObject *self, PyObject *function)
{
    (void)self;
    pp_scaler_calls_begin(function);
    return none();
}

static PyObject *m_scaler_end(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_scaler_calls_end();
    return none();
}

static PyObject *m_ranges_end(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_range_calls_end();
    return none();
}

static PyObject *m_engine_end(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_engine_calls_end();
    return none();
}

static PyObject *m_waits_end(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_wait_calls_end();
    return none();
}

static PyObject *m_hook(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *table, *key, *hook = NULL;
    int kind;
    if (!PyArg_ParseTuple(args, "OOi|O", &table, &key, &kind, &hook))
        return NULL;
    if (kind < 0 || kind >= KINDS) {
        PyErr_SetString(PyExc_ValueError, "no such kind");
        return NULL;
    }
    if (hook)
        Py_INCREF(hook);
    else
        hook = pp_marks_callable((pp_kind)kind, 0);
    const int rc = hook ? pp_hooks_add(table, key, (pp_kind)kind, hook) : -1;
    Py_XDECREF(hook);
    return rc < 0 ? NULL : none();
}

static PyObject *m_signature(PyObject *self, PyObject *signature)
{
    (void)self;
    pp_marks_signature(signature);
    return none();
}

static PyObject *m_unhook(PyObject *self, PyObject *key)
{
    (void)self;
    pp_hooks_remove(key);
    return none();
}

static PyObject *m_without(PyObject *self, PyObject *function)
{
    (void)self;
    return pp_hooks_without(function);
}

static PyObject *m_iterator(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return pp_spans_iterator();
}

static PyObject *m_steps(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLongLong(pp_marks_steps());
}

static PyObject *m_optimizer_open(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(pp_marks_optimizer_open());
}

static PyObject *m_mode(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLong(pp_ring_mode_now());
}

static PyObject *m_session(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLong(pp_ring_session());
}

static PyObject *m_start(PyObject *self, PyObject *run)
{
    (void)self;
    return PyBool_FromLong(pp_thread_start(run) == 0);
}

static PyObject *m_wait(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int seen;
    PyObject *left = NULL;
    if (!PyArg_ParseTuple(args, "I|O", &seen, &left))
        return NULL;
    return PyLong_FromLongLong(pp_thread_wait(seen, left));
}

static PyObject *m_pause(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned int ms;
    if (!PyArg_ParseTuple(args, "I", &ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    pp_sleep((int64_t)ms * 1000000);
    Py_END_ALLOW_THREADS;
    return none();
}

/* At exit: the thread must not wait for the GIL of an interpreter that is going away. */
static PyObject *m_leave(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (pp_marks_set_state(OFF, false) < 0)
        PyErr_Clear();
    pp_wait_calls_end();
    pp_range_calls_end();
    pp_scaler_calls_end();
    pp_engine_calls_end();
    pp_thread_leave();
    pp_ring_close(false);
    return none();
}

static PyObject *m_forget(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    pp_clock_now = &pp_clock_host; /* first: CUDA must not be asked for anything here */
    pp_wait_calls_end();
    pp_range_calls_end();
    pp_scaler_calls_end();
    pp_engine_calls_end();
    pp_ring_close(true);
    pp_thread_forget();
    pp_kernels_forget();
    if (pp_marks_set_state(OFF, false) < 0)
        PyErr_Clear();
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
    {"batch_anew", m_batch_anew, METH_NOARGS, "Another model's batches are looked at."},
    {"configure", m_configure, METH_VARARGS, "Gives the Python side and what torch has."},
    {"phases", m_phases, METH_VARARGS, "Which phases are marked."},
    {"layer", m_layer, METH_VARARGS, "Adds a layer; its id, or 0 where there is no room."},
    {"marker", m_marker, METH_VARARGS, "A callable of one kind, and layer."},
    {"place", m_place, METH_VARARGS,
     "Where a layer is: module, id, parent, root, whether it has parameters; False: no room."},
    {"drop", m_drop, METH_O, "The module at this address is gone."},
    {"clear", m_clear, METH_NOARGS, "Forgets all places."},
    {"refuse", m_refuse, METH_VARARGS, "Says in the ring why this process is not profiled."},
    {"set_state", m_set_state, METH_VARARGS, NULL},
    {"get_state", m_get_state, METH_NOARGS, NULL},
    {"collected", m_collected, METH_NOARGS,
     "Takes weak references to the modules called while discovering."},
    {"use_clock", m_use_clock, METH_O, "None: host; else torch's function for the stream."},
    {"record", m_record, METH_VARARGS,
     "Records kernels from here on, unless it is told why not, and why it does not."},
    {"several", m_several, METH_NOARGS, "Whether kernels of several GPUs were seen."},
    {"device", m_device, METH_VARARGS, "UUID of a GPU by CUDA's number, \"\": not known."},
    {"put_off", m_put_off, METH_VARARGS,
     "Counts steps for some ns; then it looks for layers again."},
    {"sample_gpu", m_sample_gpu, METH_VARARGS,
     "Has the sampler started, all bytes: program, ring's folder, GPU, ns, PATH, LD_LIBRARY_PATH."},
    {"sample_no_gpu", m_sample_no_gpu, METH_VARARGS, "Says in the ring why it is not."},
    {"lend", m_lend, METH_O, "Gives an object a reference for good."},
    {"give_way", m_give_way, METH_NOARGS, "Another profiler begins: ends recording and capture."},
    {"recording", m_recording, METH_NOARGS, "Whether CUPTI is attached for us."},
    {"call_cost", m_call_cost, METH_VARARGS, "ns that hooking a module's call costs by itself."},
    {"quiet", m_quiet, METH_VARARGS,
     "Whether the callables do nothing, as while their own cost is measured."},
    {"optimizer_open", m_optimizer_open, METH_NOARGS, "Whether an optimizer is at its step."},
    {"communication", m_communication, METH_O,
     "Marks backward's end by this queue_callback; None."},
    {"span", m_span, METH_VARARGS, "A callable in place of a method, that marks its calls."},
    {"again", m_again, METH_VARARGS, "The same before or behind what a checkpoint runs again."},
    {"step", m_step, METH_NOARGS, "The program says that a step ends here."},
    {"exceptions", m_exceptions, METH_O, "Whether LEAVE tells of forwards that raise, too."},
    {"look_anew", m_look_anew, METH_NOARGS, "Looks at modules that are not known, from now on."},
    {"region", m_region, METH_O, "A callable in place of a compiled one, that marks its calls."},
    {"graph", m_graph, METH_VARARGS,
     "Tells a compiled graph as a region runs it, by its launches."},
    {"ran", m_ran, METH_VARARGS, "One has run: its number, since when; the layer that is open."},
    {"isolate", m_isolate, METH_VARARGS,
     "Whether layers are to be replayed in this capture, and why not."},
    {"dwell", m_dwell, METH_VARARGS, "A mark of a dwell: kind, layer or number, phase or flag."},
    {"left_out", m_skip, METH_VARARGS, "A layer is not replayed in a phase: why, by number."},
    {"whole", m_whole, METH_VARARGS, "Layers in a layer are not told: why, by number."},
    {"paused", m_paused, METH_VARARGS, "ns that the training was paused for replays."},
    {"waits", m_waits, METH_VARARGS,
     "Counts these calls while steps are marked; torch's folder and device."},
    {"waits_end", m_waits_end, METH_NOARGS, "Puts back what torch's methods call."},
    {"memory", m_memory, METH_VARARGS,
     "Tells what the next step allocates, by this function of its allocator's statistics and a "
     "device; None, and why not."},
    {"engine", m_engine, METH_VARARGS,
     "Marks when autograd's engine runs: its method, that's class, layers of loss and gradients; "
     "whether it is known."},
    {"scaler", m_scaler, METH_O, "Counts steps that a scaler skips, by this function of torch's."},
    {"scaler_end", m_scaler_end, METH_NOARGS, "Puts back what that calls."},
    {"ranges", m_ranges, METH_VARARGS,
     "Tells ranges that the program marks while steps are marked; whether their backward, too."},
    {"ranges_end", m_ranges_end, METH_NOARGS, "Puts back what torch calls for them."},
    {"engine_end", m_engine_end, METH_NOARGS, "Marks it no more."},
    {"hook", m_hook, METH_VARARGS,
     "Puts a callable of a kind, or what is given, into a table of torch's, by a key."},
    {"unhook", m_unhook, METH_O, "Takes out all that has this key."},
    {"signature", m_signature, METH_O, "What inspect.signature() says of every marker."},
    {"without", m_without, METH_O, "Calls a function while no hook of ours is in any table."},
    {"iterator", m_iterator, METH_NOARGS, "Weak reference to the iterator that yielded last."},
    {"steps", m_steps, METH_NOARGS, "Steps counted."},
    {"mode", m_mode, METH_NOARGS, "What the agent asks for."},
    {"session", m_session, METH_NOARGS, "The number of the session that it asks for."},
    {"start", m_start, METH_O, "Calls this in a thread of the hook's own; False: no thread."},
    {"wait", m_wait, METH_VARARGS, "Sleeps until mode or session change; -1 when leaving."},
    {"pause", m_pause, METH_VARARGS, "Sleeps so many ms; in threads of the hook only."},
    {"leave", m_leave, METH_NOARGS, "Ends the thread and lets the ring go."},
    {"forget", m_forget, METH_NOARGS, "In a forked child: touches the ring no more."},
    {"fail", m_fail, METH_NOARGS, "Counts a failure of the Python side."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_marks", NULL, -1, functions, NULL, NULL, NULL, NULL};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__marks(void);

PyMODINIT_FUNC PyInit__marks(void)
{
    static const char *const kinds[] = {"CALL",
                                        "ENTER",
                                        "LEAVE",
                                        "BACKWARD_BEGIN",
                                        "BACKWARD_RESUME",
                                        "BACKWARD_PAUSE",
                                        "BACKWARD_END",
                                        "OPTIMIZER_BEGIN",
                                        "OPTIMIZER_END",
                                        "COMMUNICATION_BEGIN",
                                        "COMMUNICATION_END",
                                        "COMPILE_BEGIN",
                                        "COMPILE_END",
                                        "RECORD_CALL",
                                        "RECORD_RETURN"};
    static const char *const states[] = {"OFF",     "COUNTING", "DISCOVERING",
                                         "MARKING", "STOPPING", "ISOLATING"};
    _Static_assert(sizeof kinds / sizeof *kinds == KINDS, "a name for each");
    _Static_assert(sizeof states / sizeof *states == STATES, "a name for each");
    PyObject *module = NULL;
    pp_marks_use_pausing(pp_spans_pausing);
    if (pp_nodes_init() == 0 && pp_marks_init() == 0 && pp_batch_init() == 0 &&
        pp_spans_init() == 0 && pp_regions_init() == 0 && pp_memory_init() == 0)
        module = PyModule_Create(&definition);
    static const struct {
        const char *name;
        long value;
    } numbers[] = {
        {"ZERO_GRAD", PP_MARK_ZERO_GRAD}, {"DATA", PP_MARK_DATA},   {"FORWARD", PP_MARK_FORWARD},
        {"BACKWARD", PP_MARK_BACKWARD},   {"BEGIN", PP_MARK_BEGIN}, {"END", PP_MARK_END},
        {"START", PP_MARK_START},         {"STEP", PP_MARK_STEP},   {"STOP", PP_MARK_STOP}};
    for (size_t i = 0; module && i < sizeof numbers / sizeof *numbers; i++)
        if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0)
            Py_CLEAR(module);
    for (int i = 0; module && i < KINDS; i++)
        if (PyModule_AddIntConstant(module, kinds[i], i) < 0)
            Py_CLEAR(module);
    for (int i = 0; module && i < STATES; i++)
        if (PyModule_AddIntConstant(module, states[i], i) < 0)
            Py_CLEAR(module);
    return module;
}
