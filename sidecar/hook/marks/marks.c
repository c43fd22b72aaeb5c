/*
 * The callables that torch calls, and the state that says what they do. Thin Python beside them
 * decides what is a layer; nothing in Python runs per mark.
 *
 *   OFF ──settle──> COUNTING ──settle──> DISCOVERING ──found──> MARKING ──mode──> STOPPING
 *    ^                 ^                      │ rest           isolate ││             │
 *    │                 │                      │              ISOLATING ─┴─────────────┤
 *    └─────────────────┴──────────────────────┴──────────── settle ─────────────────┘
 *
 * The agent's wish (the ring's mode) is carried out by `settle`, which runs in the training's own
 * thread as a forward begins: there torch walks no hook table that it changes.
 *
 * No module of the user's is touched: two global forward hooks see every call, and a table of
 * addresses says which module is a layer. So models can be copied, saved, scripted and exported as
 * ever, and what asks a module for its hooks finds none.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/marks/steps.h"
#include "sidecar/hook/marks/turns.h"

#include <string.h>

enum {
    COLLECT_MAX = 65536,  /* module calls looked at when finding layers */
    SPAN_COST = 400,      /* ns of a span's wrapper and its two marks: measured */
    BACKWARD_COST = 1200, /* ns of a call from autograd into a hook, arguments included: measured */
};

/* Of a capture, before layers are replayed: steps, or ns where they are long. */
#define BEFORE_STEPS 32
#define BEFORE_NS INT64_C(2000000000)

/* Between two times that layers are looked for again, ns: each is twice the one before. */
#define LOOK_AFTER INT64_C(1000000000)
#define LOOK_AFTER_MAX INT64_C(600000000000)

/* No optimizer has stepped for so long: this is no training now, or one with longer steps. */
#define PATIENCE INT64_C(30000000000)
#define PATIENCE_MAX INT64_C(3600000000000)

typedef struct marker {
    PyObject_HEAD uint32_t layer;
    uint8_t kind;
} marker;

static struct {
    pp_state state;
    bool phases[3];
    bool partial;        /* discovering began within a step: what it called first was missed */
    bool news;           /* discovering began with a module that was not known */
    bool merged;         /* the running step holds the one before, whose end was not seen */
    bool exceptions;     /* forwards that end in one are told */
    bool settling;       /* a settle is running, or has failed: not again */
    bool quiet;          /* the callables' own cost is being measured */
    bool resting;        /* no step came while discovering: wait for one without a forward hook */
    int64_t rests_until; /* ns: or so long */
    int64_t stepless;    /* since when a step is awaited, ns; 0: it is not looked at */
    int64_t patience;    /* how long a step is awaited, ns */
    int64_t looked;     /* when layers were looked for because of a module that was not known, ns */
    int64_t look_after; /* not before so long after that */
    const void *trainer; /* the thread whose steps are counted: as pp_frames_thread has it */
    pp_steps ends;       /* which optimizers' steps end the training's */
    int depth;           /* optimizers open: wrappers call the one they wrap */
    bool ending;         /* the outermost's hooks behind its step run */
    int closures;        /* of these that are open: what they do is not the optimizer's */
    Py_hash_t outermost; /* the outermost of these */
    bool by_hand;        /* the program says itself where its steps end */
    bool stepped;        /* an optimizer has, since a scaler looked at its gradients last */
    const void *stepper; /* the thread in which it did */
    pp_turns turns;      /* by threads in which optimizers step */
    Py_hash_t latest[3]; /* the optimizers that did last, or were skipped, the latest first */
    bool ended;          /* a step has ended, and none has begun since */
    int64_t steps;
    bool isolate;        /* layers are to be replayed in this capture */
    int64_t marked;      /* steps of it */
    int64_t marked_from; /* since when, ns */
    int64_t call_cost;   /* ns that hooking one module's call costs, marks apart */
    PyObject *collected; /* list of weak references to modules, while discovering */
    PyObject *probe;     /* the Python side: see pp_marks_use_probe */
    PyObject *queue;     /* queues a callback of backward's end; NULL: it is not marked */
    bool awaiting;       /* one is queued */
    unsigned backwards;  /* nodes that backward has called us for */
} hook = {.patience = PATIENCE, .look_after = LOOK_AFTER};

static PyObject *marker_type;
static unsigned spans; /* phases whose spans are open in the trainer's thread, as bits */
/* What backward's nodes call, by layer; made when first needed. */
static pp_self_hooks backward[PP_RING_LAYERS + 1];

static void show_state(pp_state s)
{
    static const uint32_t shown[] = {PP_RING_IDLE,   PP_RING_COUNT,  PP_RING_COUNT,
                                     PP_RING_SAMPLE, PP_RING_SAMPLE, PP_RING_SAMPLE};
    if (s != MARKING && s != ISOLATING)
        pp_kernels_end(); /* also where recording began and marking did not */
    if (hook.state == MARKING && s != MARKING)
        pp_ring_cost_add(pp_ring_cost_hold(false));
    if (s != MARKING)
        pp_memory_forget();
    hook.state = s;
    if (pp_ring()) {
        __atomic_store_n(&pp_ring()->isolating, s == ISOLATING, __ATOMIC_RELAXED);
        __atomic_store_n(&pp_ring()->state, shown[s], __ATOMIC_RELEASE);
    }
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
    show_state(OFF);
    pp_frames_clear(0);
    if (pp_ring())
        __atomic_fetch_add(&pp_ring()->failures, 1, __ATOMIC_RELAXED);
    PyObject *done = hook.probe ? PyObject_CallMethod(hook.probe, "failed", NULL) : Py_None;
    if (!done && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    if (done && done != Py_None)
        Py_DECREF(done);
    PyErr_Clear();
    hook.resting = true; /* the Python side knows whether it is tried again */
    return 0;
}

/* Calls a method of the Python side and counts its time as the hook's cost. */
static int call_probe(const char *method)
{
    int64_t begun = pp_now();
    PyObject *done = PyObject_CallMethod(hook.probe, method, NULL);
    pp_ring_cost(pp_now() - begun);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int settle(void)
{
    if (hook.settling || !hook.probe)
        return 0;
    hook.settling = true;
    int rc = call_probe("settle");
    hook.settling = false;
    return rc;
}

/* ---- what each kind does; -1 with an exception ---- */

/* Whether a step has been awaited for too long. */
static bool stepless(void)
{
    int64_t now = pp_now();
    if (hook.stepless == 0)
        hook.stepless = now;
    return now - hook.stepless > hook.patience;
}

/* What a function of torch's without arguments says; left alone where this torch does not have it.
 */
static int number_of(PyObject *function, int64_t *number)
{
    if (!function)
        return 0;
    PyObject *said = PyObject_CallFunctionObjArgs(function, NULL);
    if (!said)
        return -1;
    *number = PyLong_AsLongLong(said);
    Py_DECREF(said);
    return PyErr_Occurred() ? -1 : 0;
}

/* A forward that runs inside a backward is run again; one that records nothing is none of the
 * training's, or a checkpoint's. */
static int forward_phase(uint8_t *ret_phase)
{
    int64_t backward_id = -1, recorded = 1;
    if (number_of(pp_torch_api.graph_task, &backward_id) < 0 ||
        number_of(pp_torch_api.grad_enabled, &recorded) < 0)
        return -1;
    *ret_phase = backward_id >= 0 ? PP_MARK_RECOMPUTE
                 : recorded       ? PP_MARK_FORWARD
                                  : PP_MARK_INFERENCE;
    return 0;
}

/* Of a module, or what stands for compiled code, which has no mode of its own. */
static bool trains(PyObject *module)
{
    PyObject *training = PyObject_GetAttrString(module, "training");
    if (!training)
        PyErr_Clear();
    const bool yes = training == Py_True;
    Py_XDECREF(training);
    return yes;
}

/*
 * DataParallel makes its modules anew in each forward (torch.nn.parallel.replicate), and calls
 * these in threads. Such a replica has a copy of the original's attributes: the table of its
 * forward pre-hooks is the original's own, by whose address both are known. A borrowed reference;
 * NULL: it is no replica.
 */
static PyObject *table_of_replica(PyObject *module)
{
    PyObject *attributes = PyObject_GetAttrString(module, "__dict__");
    PyObject *table = NULL;
    if (attributes && PyDict_Check(attributes) &&
        PyDict_GetItemString(attributes, "_is_replica") == Py_True)
        table = PyDict_GetItemString(attributes, "_forward_pre_hooks"); /* the original has it */
    Py_XDECREF(attributes);
    PyErr_Clear();
    return table;
}

/* Where a module is, or the one that it is a replica of. */
static uint32_t place_of(PyObject *module)
{
    const uint32_t place = pp_module_map_find(module);
    PyObject *table = place == PP_PLACE_NONE ? table_of_replica(module) : NULL;
    return table ? pp_module_map_find(table) : place;
}

/* Remembers what is called in a step, to find the layers among it. */
static int discover(PyObject *module)
{
    if (stepless()) {
        hook.patience = hook.patience < PATIENCE_MAX / 2 ? hook.patience * 2 : PATIENCE_MAX;
        hook.resting = true;
        return call_probe("rest");
    }
    pp_ring_cost(hook.call_cost);
    uint8_t phase;
    if (!hook.collected || PyList_Size(hook.collected) >= COLLECT_MAX)
        return 0;
    if (forward_phase(&phase) < 0)
        return -1;
    if (phase == PP_MARK_RECOMPUTE)
        return 0; /* known from its forward, or of the compiler's own making */
    PyObject *table = table_of_replica(module);
    PyObject *weak = PyWeakref_NewRef(table ? table : module, NULL);
    if (!weak && table) {
        PyErr_Clear(); /* a torch whose tables cannot be referred to: replicas are not told */
        return 0;
    }
    int rc = weak ? PyList_Append(hook.collected, weak) : -1;
    Py_XDECREF(weak);
    return rc;
}

/* Without telling recomputation apart (torch < 2.0) a checkpoint's forward is known by the module's
 * mode alone. */
static int phase_of_call(PyObject *module, uint8_t *ret_phase, uint8_t *ret_flags)
{
    *ret_flags = 0;
    if (forward_phase(ret_phase) < 0)
        return -1;
    if (*ret_phase != PP_MARK_INFERENCE || !trains(module))
        return 0;
    *ret_flags = PP_MARK_TRAINS;
    if (!pp_torch_api.graph_task)
        *ret_phase = PP_MARK_FORWARD;
    return 0;
}

/* Whether this is the thread whose steps are counted. */
static bool is_trainer(void)
{
    return hook.trainer == pp_frames_thread();
}

bool pp_marks_is_trainer(void)
{
    return is_trainer();
}

int pp_marks_give_up(void)
{
    return give_up();
}

enum { AGAINS = 16 }; /* checkpoints in checkpoints */

static _Thread_local struct {
    int frames; /* that were open */
    uint32_t layer;
} agains[AGAINS];
static _Thread_local int again_count;

/* The graph of what a checkpoint runs again is thrown away. Parents keep nodes of the graph until
 * they return: in the thread that is looked after alone. */
static bool wants_backward(uint32_t place, uint8_t phase)
{
    return hook.phases[PP_MARK_BACKWARD] && phase != PP_MARK_INFERENCE && again_count == 0 &&
           (!(place & PP_PLACE_PARENT) || is_trainer() || phase == PP_MARK_RECOMPUTE);
}

static unsigned backwards(void)
{
    return __atomic_load_n(&hook.backwards, __ATOMIC_RELAXED);
}

static int make_hooks(uint32_t layer)
{
    pp_self_hooks *h = &backward[layer];
    if (!h->begin)
        h->begin = pp_marks_callable(BACKWARD_BEGIN, layer);
    if (!h->resume)
        h->resume = pp_marks_callable(BACKWARD_RESUME, layer);
    if (!h->pause)
        h->pause = pp_marks_callable(BACKWARD_PAUSE, layer);
    if (!h->end)
        h->end = pp_marks_callable(BACKWARD_END, layer);
    return h->begin && h->resume && h->pause && h->end ? 0 : -1;
}

/* The nodes of a loss that lead to its module; each time that they run is a part of its call. */
static int hook_loss(const pp_engine_nodes *nodes, PyObject *args)
{
    const pp_self_hooks *h = &backward[nodes->layer];
    PyObject *edge = make_hooks(nodes->layer) < 0 ? NULL : PyLong_FromLongLong(nodes->from);
    const pp_self_hooks parts = {h->begin, h->begin, h->pause, h->pause};
    int rc = edge ? pp_nodes_hook(args, edge, &parts, NULL) : -1;
    Py_XDECREF(edge);
    return rc;
}

/* A forward that no other calls, in the thread that is looked after. */
static int begin_outermost(uint32_t place, PyObject *args, uint8_t phase, uint8_t *flags)
{
    if (pp_frames_count() > 0)
        return 0;
    if ((place & PP_PLACE_MODEL) && (phase == PP_MARK_FORWARD || (*flags & PP_MARK_TRAINS)))
        *flags |= PP_MARK_MODEL;
    if (!is_trainer() || phase != PP_MARK_FORWARD)
        return 0;
    pp_ranges_module(true);
    pp_engine_nodes nodes;
    if (pp_engine_forward(place & PP_PLACE_MODEL, args, &nodes) < 0)
        return -1;
    return nodes.layer ? hook_loss(&nodes, args) : 0;
}

/* What several threads have open at a time is told apart by the threads of launches. Autograd's
 * threads call what runs again alone, and the trainer waits for them. */
static void note_thread(uint8_t phase)
{
    if (!is_trainer() && phase != PP_MARK_RECOMPUTE && pp_torch_api.graph_task &&
        pp_clock_now == &pp_clock_kernels)
        pp_kernels_other_thread();
}

static int begin_layer(uint32_t place, PyObject *module, PyObject *args)
{
    const uint32_t layer = place & PP_PLACE_LAYER;
    uint8_t phase, flags;
    int64_t begun = pp_now();
    if (phase_of_call(module, &phase, &flags) < 0 ||
        begin_outermost(place, args, phase, &flags) < 0)
        return -1;
    note_thread(phase);
    PyObject *edge = NULL;
    if ((place & PP_PLACE_PARENT) && phase == PP_MARK_FORWARD && !is_trainer())
        pp_engine_untold(); /* its nodes call nothing */
    if (wants_backward(place, phase)) {
        edge = pp_nodes_edge(args);
        if (!edge)
            return -1;
    }
    pp_frames_push(layer, phase, place & PP_PLACE_PARENT, edge)->backwards = backwards();
    pp_ring_cost(pp_now() - begun);
    if (hook.phases[PP_MARK_FORWARD])
        pp_mark_put(PP_MARK_BEGIN, phase, flags, layer, 0, 0, 0);
    return 0;
}

/* What START and STEP say of the capture's times. */
static uint8_t clock_flags(void)
{
    if (pp_memory_active())
        return PP_MARK_STEP_MEMORY;
    return pp_clock_now == &pp_clock_kernels ? PP_MARK_KERNELS : 0;
}

/* Starts or stops the capture here. */
static void put_edge(pp_mark_kind kind)
{
    pp_mark_put((uint8_t)kind, 0, clock_flags(), 0, hook.steps - 1, PP_MARK_UNKNOWN,
                PP_MARK_UNKNOWN);
}

/* Ends the capture within a step, which the agent drops. */
static int stop_here(void)
{
    put_edge(PP_MARK_STOP);
    pp_frames_clear(0);
    show_state(STOPPING);
    return settle();
}

/* Whether a module has parameters, or modules in it. One that has neither may be made for a call.
 */
static int has_parts(PyObject *module)
{
    static const char *const tables[] = {"_parameters", "_modules"};
    bool any = false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !any; i++) {
        PyObject *table = PyObject_GetAttrString(module, tables[i]);
        any = table && PyDict_Check(table) && PyDict_Size(table) > 0;
        if (!table)
            PyErr_Clear();
        Py_XDECREF(table);
    }
    return any;
}

/* Whether a module that no step has called so far is worth looking for layers again. */
static int is_news(PyObject *module, bool *ret)
{
    uint8_t phase;
    int64_t now = pp_now();
    *ret = false;
    if (!is_trainer() || now - hook.looked < hook.look_after || !has_parts(module))
        return 0;
    if (forward_phase(&phase) < 0)
        return -1;
    if (phase == PP_MARK_RECOMPUTE)
        return 0; /* it would not be found */
    hook.looked = now;
    if (hook.look_after < LOOK_AFTER_MAX)
        hook.look_after *= 2;
    *ret = true;
    return 0;
}

static bool is_layer(uint32_t place)
{
    return place != PP_PLACE_NONE && (place & PP_PLACE_LAYER);
}

/* What the rest of this step calls is kept: no step to come may call it again soon. */
static int look_again(PyObject *module)
{
    if (stop_here() < 0)
        return -1;
    hook.news = hook.state == DISCOVERING;
    return hook.news ? discover(module) : 0;
}

static int enter_marking(PyObject *module, PyObject *args)
{
    uint32_t place = place_of(module);
    if (pp_ring_mode_now() != PP_RING_SAMPLE && stepless())
        return stop_here(); /* it is over, but no step comes at whose end it could stop */
    pp_ring_cost(hook.call_cost);
    bool news = false;
    if (place == PP_PLACE_NONE && is_news(module, &news) < 0)
        return -1;
    if (news)
        return look_again(module);
    if (!is_layer(place) && !(place != PP_PLACE_NONE && (place & PP_PLACE_ROOT)))
        return 0;
    if (hook.exceptions && is_layer(place) && (place & PP_PLACE_PARENT) &&
        pp_frames_call_again(place & PP_PLACE_LAYER))
        return 0; /* it calls itself: that is what it does */
    if (place & PP_PLACE_ROOT)
        pp_frames_clear(0); /* nothing calls it: what is open here ended in exceptions */
    return is_layer(place) ? begin_layer(place, module, args) : 0;
}

static int on_enter(PyObject *module, PyObject *args)
{
    if (hook.state == MARKING)
        return enter_marking(module, args);
    if (hook.state == ISOLATING && pp_ring_mode_now() != PP_RING_SAMPLE && stepless())
        show_state(STOPPING);
    return hook.state == STOPPING ? settle() : 0;
}

static int on_call(PyObject *module)
{
    if (hook.state == MARKING)
        return 0;
    if ((hook.state != DISCOVERING || pp_ring_mode_now() != PP_RING_SAMPLE) && settle() < 0)
        return -1;
    return hook.state == DISCOVERING ? discover(module) : 0;
}

/* Has the module's nodes call its hooks; `part` are its nodes, NULL where no parent asks. What a
 * backward within a parent's forward has made is no order to go by. */
static int hook_backward(const pp_frame *f, PyObject *output, pp_part *part)
{
    const pp_self_hooks *h = &backward[f->layer];
    if (make_hooks(f->layer) < 0)
        return -1;
    if (!f->parent)
        return pp_nodes_hook(output, f->edge, h, part ? part->exits : NULL);
    if (f->backwards != backwards() || f->too_many) {
        pp_engine_untold();
        return 0;
    }
    return pp_nodes_hook_self(output, part, f->parts, f->part_count, h);
}

/* The same, where nodes are numbered: the module becomes a part of what called it. */
static int hook_numbered(const pp_frame *f, PyObject *output)
{
    if (!pp_frames_parent() && !f->parent)
        return hook_backward(f, output, NULL);
    pp_part part = {.from = PyLong_AsLongLong(f->edge), .exits = PyList_New(0)};
    int rc = part.exits && !PyErr_Occurred() && pp_nodes_next_number(&part.to) == 0
                 ? hook_backward(f, output, &part)
                 : -1;
    pp_frame *around = pp_frames_parent(); /* others' code ran since */
    if (rc == 0 && around)
        return pp_frame_add(around, part.from, part.to, part.exits);
    Py_XDECREF(part.exits);
    return rc;
}

static int hook_nodes(const pp_frame *f, PyObject *output)
{
    int rc = 0;
    int64_t begun = pp_now();
    if (pp_torch_api.get_sequence_nr)
        rc = hook_numbered(f, output);
    else if (!f->parent)
        rc = hook_backward(f, output, NULL);
    pp_ring_cost(pp_now() - begun);
    return rc;
}

/* A forward that no other has called is over. A model's ends once more where its nodes call us:
 * what comes is the loss's, and not what that took. */
static int end_outermost(uint32_t place, const pp_frame *f)
{
    const bool model = place & PP_PLACE_MODEL;
    const int64_t begun = pp_now();
    int rc = is_trainer() ? pp_engine_returned(model) : 0;
    pp_ring_cost(pp_now() - begun);
    if (model && hook.phases[PP_MARK_FORWARD])
        pp_mark_put(PP_MARK_END, f->phase, PP_MARK_MODEL, f->layer, 0, 0, 0);
    return rc;
}

/* The model's forward has returned: what was it given? `args` is what torch gave the hook, from
 * torch 2.0 on with the keyword arguments. */
static int look_at_batch(PyObject *args)
{
    const Py_ssize_t n = PyTuple_Size(args);
    if (hook.state != MARKING || !pp_batch_wanted() || n < 3 || !is_trainer())
        return 0;
    const uint32_t place = pp_module_map_find(PyTuple_GetItem(args, 0));
    if (place == PP_PLACE_NONE || !(place & PP_PLACE_ROOT) ||
        PyTuple_GetItem(args, n - 1) == Py_None)
        return 0;
    const int64_t begun = pp_now();
    uint8_t phase;
    int rc = forward_phase(&phase);
    if (rc == 0 && phase == PP_MARK_FORWARD)
        rc = pp_batch_see(PyTuple_GetItem(args, 1), n > 3 ? PyTuple_GetItem(args, 2) : NULL);
    pp_ring_cost(pp_now() - begun);
    return rc;
}

static int on_leave(PyObject *module, PyObject *output)
{
    if (hook.state != MARKING) {
        pp_frames_clear(0);
        return 0;
    }
    uint32_t place = place_of(module);
    if (!is_layer(place) || pp_frames_return(place & PP_PLACE_LAYER))
        return 0;
    pp_frame f;
    if (!pp_frames_pop(place & PP_PLACE_LAYER, &f))
        return 0; /* it began before the capture did */
    if (hook.phases[PP_MARK_FORWARD])
        pp_mark_put(PP_MARK_END, f.phase, 0, f.layer, 0, 0, 0);
    int rc = f.edge ? hook_nodes(&f, output) : 0;
    if (rc == 0 && pp_frames_count() == 0 && f.phase == PP_MARK_FORWARD)
        rc = end_outermost(place, &f);
    if (pp_frames_count() == 0 && is_trainer())
        pp_ranges_module(false);
    pp_frame_done(&f);
    return rc;
}

/* ---- spans: what is the step's and no layer's ---- */

bool pp_marks_begin(pp_mark_phase phase)
{
    unsigned bit = 1U << phase;
    if (hook.state != MARKING || !is_trainer() || (spans & bit))
        return false;
    spans |= bit;
    pp_ring_cost(SPAN_COST);
    pp_mark_put(PP_MARK_BEGIN, (uint8_t)phase, 0, 0, 0, 0, 0);
    return true;
}

void pp_marks_end(pp_mark_phase phase)
{
    spans &= ~(1U << phase);
    if (hook.state == MARKING)
        pp_mark_put(PP_MARK_END, (uint8_t)phase, 0, 0, 0, 0, 0);
}

/* ---- ranges that the program marks ---- */

bool pp_marks_outside(uint8_t *ret_phase)
{
    const bool optimizer = hook.depth > 0 && hook.closures == 0;
    if (hook.state != MARKING || !is_trainer() || pp_frames_count() > 0 || spans || optimizer ||
        again_count > 0)
        return false;
    if (forward_phase(ret_phase) < 0) {
        PyErr_Clear();
        return false;
    }
    return *ret_phase != PP_MARK_RECOMPUTE;
}

int pp_marks_range_layer(PyObject *name, bool rest, uint32_t *ret)
{
    PyObject *said =
        PyObject_CallMethod(hook.probe, "range", "OO", name, rest ? Py_True : Py_False);
    const unsigned long layer = said ? PyLong_AsUnsignedLong(said) : 0;
    Py_XDECREF(said);
    *ret = layer <= PP_RING_LAYERS ? (uint32_t)layer : 0;
    return PyErr_Occurred() ? -1 : 0;
}

const pp_self_hooks *pp_marks_backward_hooks(uint32_t layer)
{
    return make_hooks(layer) < 0 ? NULL : &backward[layer];
}

/* ---- what a checkpoint runs again ---- */

void pp_marks_again_begin(uint32_t layer)
{
    int at = again_count++;
    if (at >= AGAINS)
        return;
    agains[at].frames = pp_frames_count();
    agains[at].layer = hook.state == MARKING && hook.phases[PP_MARK_FORWARD] ? layer : 0;
    if (agains[at].layer)
        pp_mark_put(PP_MARK_BEGIN, PP_MARK_RECOMPUTE, PP_MARK_AGAIN, layer, 0, 0, 0);
}

/* It may have been left as soon as all that backward needs was there: by an exception, of which
 * modules do not tell. */
void pp_marks_again_end(void)
{
    int at = again_count > 0 ? --again_count : AGAINS;
    if (at >= AGAINS)
        return;
    if (hook.state != MARKING) {
        pp_frames_clear(agains[at].frames);
        return;
    }
    for (int i = pp_frames_count(); i > agains[at].frames; i--) {
        const pp_frame *f = pp_frames_at(i - 1);
        if (hook.phases[PP_MARK_FORWARD])
            pp_mark_put(PP_MARK_END, f->phase, 0, f->layer, 0, 0, 0);
    }
    pp_frames_clear(agains[at].frames);
    if (agains[at].layer)
        pp_mark_put(PP_MARK_END, PP_MARK_RECOMPUTE, 0, agains[at].layer, 0, 0, 0);
}

/*
 * The reducer of DistributedDataParallel waits for its buckets in a callback that the engine calls
 * when all nodes have run, in the order in which callbacks were queued. Ours is queued by the first
 * node, before the reducer's; it queues another, behind that: the two hold the wait between them.
 */
static int queue_callback(pp_kind kind)
{
    PyObject *callback = pp_marks_callable(kind, 0);
    PyObject *done = callback ? PyObject_CallFunctionObjArgs(hook.queue, callback, NULL) : NULL;
    Py_XDECREF(callback);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int on_communication(pp_kind kind)
{
    if (kind == COMMUNICATION_BEGIN)
        return pp_marks_begin(PP_MARK_COMMUNICATION) ? queue_callback(COMMUNICATION_END) : 0;
    pp_marks_end(PP_MARK_COMMUNICATION);
    hook.awaiting = false;
    return 0;
}

static int on_backward(const marker *m)
{
    if (hook.state != MARKING || !hook.phases[PP_MARK_BACKWARD])
        return 0;
    __atomic_fetch_add(&hook.backwards, 1, __ATOMIC_RELAXED);
    pp_ring_cost(BACKWARD_COST);
    if (hook.queue && !hook.awaiting) {
        hook.awaiting = true;
        if (queue_callback(COMMUNICATION_BEGIN) < 0)
            return -1;
    }
    const bool begins = m->kind == BACKWARD_BEGIN || m->kind == BACKWARD_RESUME;
    const unsigned flags = (m->kind == BACKWARD_PAUSE ? PP_MARK_PAUSES : 0) |
                           (m->kind == BACKWARD_RESUME ? PP_MARK_RESUMES : 0) |
                           (pp_ranges_is(m->layer) ? PP_MARK_RANGE : 0);
    pp_mark_put(begins ? PP_MARK_BEGIN : PP_MARK_END, PP_MARK_BACKWARD, (uint8_t)flags, m->layer, 0,
                0, 0);
    return 0;
}

/* Outermost only. A step that was left by an exception never ended: its optimizer comes again. So
 * it does where a step calls the one that it is derived from: there two ends follow each other. */
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
    hook.ended = false;
    if (hook.state == MARKING && hook.phases[PP_MARK_OPTIMIZER])
        pp_mark_put(PP_MARK_BEGIN, PP_MARK_OPTIMIZER, 0, 0, 0, 0, 0);
    return 0;
}

/* Starts the capture here, behind the last optimizer of the step. */
static int put_start(void)
{
    hook.merged = false;
    hook.stepless = 0;
    hook.marked = 0;
    hook.marked_from = pp_now();
    hook.trainer = pp_frames_thread();
    hook.closures = 0;
    pp_ranges_clear();
    /* Marks that wait for the GPU would be written among those of the step. */
    if (pp_memory_wanted() && !pp_clock_cuda_behind() && pp_memory_begin(hook.probe) < 0)
        return -1;
    put_edge(PP_MARK_START);
    return pp_engine_step();
}

static int on_found(void)
{
    if (hook.partial) {
        hook.partial = false;
        if (hook.news)
            return 0;
        Py_CLEAR(hook.collected);
        hook.collected = PyList_New(0);
        return hook.collected ? 0 : -1;
    }
    hook.news = false;
    if (!hook.collected || PyList_Size(hook.collected) == 0)
        return 0; /* nothing ran since: one step more */
    if (pp_kernels_closing() || pp_clock_cuda_behind()) {
        PyObject *anew = PyList_New(0); /* the capture begins some steps later */
        Py_DECREF(hook.collected);
        hook.collected = anew;
        return anew ? 0 : -1;
    }
    if (call_probe("found") < 0)
        return -1;
    return hook.state == MARKING ? put_start() : 0;
}

/* At a step's end: inputs are kept, or a layer is replayed; what that takes is no cost of the
 * marks', and has a limit of its own. Once all is done the capture goes on. */
static int on_isolating(void)
{
    hook.stepless = 0;
    if (pp_ring_mode_now() != PP_RING_SAMPLE || pp_kernels_full()) {
        show_state(STOPPING);
        return 0;
    }
    PyObject *more = PyObject_CallMethod(hook.probe, "isolate", NULL);
    if (!more)
        return -1;
    bool over = more != Py_True;
    Py_DECREF(more);
    (void)pp_kernels_cost(); /* no cost: the training was paused */
    pp_pace_pause();
    if (over && hook.state == ISOLATING) {
        hook.isolate = false;
        show_state(MARKING);
        return put_start();
    }
    return 0;
}

static int position(int32_t *epoch, int32_t *batch)
{
    *epoch = *batch = PP_MARK_UNKNOWN;
    int e = PP_MARK_UNKNOWN, b = PP_MARK_UNKNOWN;
    PyObject *pair = PyObject_CallMethod(hook.probe, "position", NULL);
    int ok = pair && PyTuple_Check(pair) && PyArg_ParseTuple(pair, "ii", &e, &b);
    Py_XDECREF(pair);
    *epoch = e;
    *batch = b;
    return ok ? 0 : -1;
}

/* What is open or queued still ended in an exception. */
static void close_all(void)
{
    pp_frames_clear(0);
    hook.closures = 0;
    spans = 0;
    hook.awaiting = false;
    hook.stepless = 0;
}

/* A step that was looked at for what it allocates: the capture's times begin behind it. */
static int on_memory_step(void)
{
    pp_ranges_step();
    if (pp_memory_end(hook.probe) < 0)
        return -1;
    pp_mark_put(PP_MARK_STEP, 0, PP_MARK_STEP_MEMORY, 0, hook.steps - 1, PP_MARK_UNKNOWN,
                PP_MARK_UNKNOWN);
    close_all();
    pp_pace_pause(); /* how long it took is the cost of nothing else */
    if (pp_ring_mode_now() == PP_RING_SAMPLE)
        return put_start();
    put_edge(PP_MARK_STOP);
    show_state(STOPPING);
    return 0;
}

static int on_step(void)
{
    int32_t epoch, batch;
    if (pp_memory_active())
        return on_memory_step();
    if (position(&epoch, &batch) < 0)
        return -1;
    pp_ranges_step();
    pp_mark_put(PP_MARK_STEP, 0, clock_flags(), 0, hook.steps - 1, epoch, batch);
    close_all();
    if (pp_engine_step() < 0)
        return -1;
    int64_t begun = pp_now();
    if (pp_batch_tell() < 0)
        return -1;
    bool over = pp_ring_mode_now() != PP_RING_SAMPLE || pp_kernels_full();
    if (over) {
        put_edge(PP_MARK_STOP);
        show_state(STOPPING);
    }
    int64_t now = pp_now();
    pp_ring_cost(now - begun);
    if (over || !hook.isolate ||
        (++hook.marked < BEFORE_STEPS && now - hook.marked_from < BEFORE_NS))
        return 0;
    put_edge(PP_MARK_STOP); /* steps in which inputs are kept, or layers replayed, are none */
    show_state(ISOLATING);
    return on_isolating();
}

/* What an optimizer's step, which has ended, says of the training's. */
static int look_at_optimizer(Py_hash_t id, pp_steps_ends *ret)
{
    pp_steps_event event = {.optimizer = id, .sequence = -1, .backward = -1};
    if (number_of(pp_torch_api.get_sequence_nr, &event.sequence) < 0 ||
        number_of(pp_torch_api.graph_task, &event.backward) < 0)
        return -1;
    *ret = pp_steps_take(&hook.ends, &event);
    return 0;
}

static void count_step(void)
{
    hook.steps++;
    const pp_pace_kernels kernels = {pp_kernels_active(), pp_kernels_by_calls(), pp_kernels_cost()};
    pp_pace_step(hook.state, &kernels);
    if (pp_ring())
        __atomic_store_n(&pp_ring()->steps, hook.steps, __ATOMIC_RELAXED);
}

/* A step of the training has ended. */
static int on_step_end(void)
{
    if (hook.state == DISCOVERING)
        return on_found();
    if (hook.state == ISOLATING)
        return is_trainer() ? on_isolating() : 0;
    if (hook.resting && pp_ring_mode_now() == PP_RING_SAMPLE && pp_now() >= hook.rests_until) {
        hook.resting = false;
        return call_probe("resume");
    }
    if (hook.state != MARKING)
        return 0;
    if (!hook.merged)
        return on_step();
    return put_start(); /* what was marked are two steps */
}

/* An optimizer has stepped, or would have but for its gradients. */
static int end_optimizer(Py_hash_t id, bool stepped)
{
    pp_steps_ends ends = {0};
    if (!hook.by_hand && look_at_optimizer(id, &ends) < 0)
        return -1;
    if (hook.state == MARKING && ends.late) {
        if (put_start() < 0) /* the step that was marked goes on to here */
            return -1;
    } else if (stepped && hook.state == MARKING && hook.phases[PP_MARK_OPTIMIZER])
        pp_mark_put(PP_MARK_END, PP_MARK_OPTIMIZER, 0, 0, 0, 0, 0);
    if (ends.before) {
        count_step();
        hook.merged = true;
    }
    if (!ends.here)
        return 0;
    count_step();
    return on_step_end();
}

static void note_optimizer(Py_hash_t id)
{
    hook.latest[2] = hook.latest[1];
    hook.latest[1] = hook.latest[0];
    hook.latest[0] = id;
}

/* Whose turn it was: that of the only one, or of the other of two in turn; 0: nobody knows. */
static Py_hash_t skipped_optimizer(void)
{
    const Py_hash_t *latest = hook.latest;
    return latest[0] == latest[1] ? latest[0] : latest[0] == latest[2] ? latest[1] : 0;
}

/* A number of this thread that no other has had: one that has ended is none that comes back. */
static unsigned thread_ever(void)
{
    static unsigned latest;
    static _Thread_local unsigned mine;
    if (mine == 0)
        mine = ++latest;
    return mine;
}

/* Steps of two trainings in threads of one process would be taken for one's. Said while the
 * optimizer is open: torch walks its hooks, which must stay. Optimizers that step within backward
 * do so in autograd's threads. */
static int refuse_turns(bool *ret_refused)
{
    int64_t backward_id = -1;
    *ret_refused = false;
    if (hook.state == OFF)
        return 0;
    if (number_of(pp_torch_api.graph_task, &backward_id) < 0)
        return -1;
    *ret_refused = backward_id < 0 && hook.depth > 0 && pp_turns_take(&hook.turns, thread_ever());
    if (!*ret_refused)
        return 0;
    PyObject *done =
        PyObject_CallMethod(hook.probe, "stand_aside", "s", "several threads train in one process");
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int on_optimizer_end(PyObject *optimizer)
{
    bool refused;
    Py_hash_t id = PyObject_Hash(optimizer);
    if (id == -1 || refuse_turns(&refused) < 0)
        return -1;
    if (refused)
        return 0;
    bool again = hook.ended && id == hook.outermost;
    if (again || (hook.depth > 0 && --hook.depth > 0))
        return 0;
    hook.ended = hook.stepped = true;
    hook.stepper = pp_frames_thread();
    note_optimizer(id);
    hook.ending = true;
    const int rc = end_optimizer(id, true);
    hook.ending = false;
    return rc;
}

int pp_marks_scaled(void)
{
    if (!pp_ring() || hook.quiet || hook.state == OFF || hook.by_hand || !hook.ended ||
        hook.depth > 0 || hook.stepper != pp_frames_thread())
        return 0;
    const Py_hash_t id = hook.stepped ? 0 : skipped_optimizer();
    hook.stepped = false;
    if (id == 0)
        return 0;
    note_optimizer(id);
    return end_optimizer(id, false) < 0 ? give_up() : 0;
}

int pp_marks_step(void)
{
    if (!pp_ring() || hook.quiet)
        return 0;
    hook.by_hand = true;
    count_step();
    return on_step_end() < 0 ? give_up() : 0;
}

/* ---- compiled code ---- */

static int enter_region(PyObject *place, PyObject *args, bool *known)
{
    if (hook.state == MARKING && *known)
        return enter_marking(place, args);
    if (hook.state == MARKING && stop_here() < 0)
        return -1; /* what is new here replaces layers: they are looked for again */
    if (hook.state == STOPPING && settle() < 0)
        return -1;
    if (pp_hooks_has(CALL) && on_call(place) < 0)
        return -1;
    *known = *known || hook.state == DISCOVERING;
    return 0;
}

int pp_marks_region_begin(PyObject *place, PyObject *args, bool *known)
{
    if (!pp_ring() || hook.quiet)
        return 0;
    return enter_region(place, args, known) < 0 ? give_up() : 0;
}

int pp_marks_region_end(PyObject *place, PyObject *result)
{
    if (!pp_ring() || hook.quiet)
        return 0;
    return on_leave(place, result) < 0 ? give_up() : 0;
}

/* ---- what is kept to replay layers ---- */

/* In the thread whose steps are counted only. `method` gets what torch gave the hook. */
static int on_record(const char *method, PyObject *args)
{
    if (hook.state != ISOLATING || !is_trainer())
        return 0;
    PyObject *function = PyObject_GetAttrString(hook.probe, method);
    PyObject *done = function ? PyObject_CallObject(function, args) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* ---- closures ---- */

/* What an optimizer calls to have its loss computed: forward and backward, and no work of its own.
 */
bool pp_marks_pause_optimizer(void)
{
    if (hook.state != MARKING || !hook.phases[PP_MARK_OPTIMIZER] || hook.depth == 0)
        return false;
    pp_mark_put(PP_MARK_END, PP_MARK_OPTIMIZER, PP_MARK_PAUSES, 0, 0, 0, 0);
    hook.closures++;
    return true;
}

void pp_marks_resume_optimizer(void)
{
    if (hook.closures > 0)
        hook.closures--;
    if (hook.state == MARKING)
        pp_mark_put(PP_MARK_BEGIN, PP_MARK_OPTIMIZER, 0, 0, 0, 0, 0);
}

static PyObject *(*make_pausing)(PyObject *closure);
static PyObject
    *s_closure; /* its name, made once: where memory is out Python prints what making it raises */

void pp_marks_use_pausing(PyObject *(*make)(PyObject *closure))
{
    make_pausing = make;
}

/* A copy of a tuple with another second item, or NULL with an exception. */
static PyObject *with_second(PyObject *tuple, PyObject *second)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    PyObject *copy = PyTuple_New(n);
    for (Py_ssize_t i = 0; copy && i < n; i++) {
        PyObject *item = i == 1 ? second : PyTuple_GetItem(tuple, i);
        Py_INCREF(item);
        (void)PyTuple_SetItem(copy, i, item);
    }
    return copy;
}

/* The arguments of an optimizer's step with a closure that pauses its piece; as torch takes them
 * from a hook. */
static PyObject *with_closure(PyObject *args, PyObject *kwargs, PyObject *closure)
{
    const bool positional = PyTuple_Size(args) > 1;
    PyObject *pausing = make_pausing(closure);
    PyObject *list = pausing && positional ? with_second(args, pausing) : NULL;
    PyObject *named = pausing && !positional ? PyDict_Copy(kwargs) : NULL;
    PyObject *result = NULL;
    if (list)
        result = PyTuple_Pack(2, list, kwargs);
    else if (named && PyDict_SetItem(named, s_closure, pausing) == 0)
        result = PyTuple_Pack(2, args, named);
    Py_XDECREF(named);
    Py_XDECREF(list);
    Py_XDECREF(pausing);
    return result;
}

/* What torch gave the hook are the optimizer, its step's arguments and keyword arguments; torch
 * < 2.0 gives its name. */
static int mark_closure(PyObject *args, PyObject **ret)
{
    PyObject *list = PyTuple_Size(args) == 3 ? PyTuple_GetItem(args, 1) : NULL;
    PyObject *named = list ? PyTuple_GetItem(args, 2) : NULL;
    if (!list || !PyTuple_Check(list) || !PyDict_Check(named))
        return 0;
    PyObject *closure = PyTuple_Size(list) > 1 ? PyTuple_GetItem(list, 1)
                                               : PyDict_GetItemWithError(named, s_closure);
    if (!closure || !PyCallable_Check(closure) || !make_pausing)
        return PyErr_Occurred() ? -1 : 0;
    *ret = with_closure(list, named, closure);
    return *ret ? 0 : -1;
}

/* ---- compilation ---- */

/* What the compiler does in this thread, in a region's call or in its backward, is not theirs. It
 * may compile as it compiles; what began in another capture is no matter. */
static _Thread_local struct {
    int64_t capture;
    int depth;
} compiling;

static int on_compile(const marker *m)
{
    const bool begins = m->kind == COMPILE_BEGIN;
    if (compiling.capture != hook.marked_from) {
        compiling.capture = hook.marked_from;
        compiling.depth = 0;
    }
    if (begins ? compiling.depth++ > 0 : compiling.depth == 0 || --compiling.depth > 0)
        return 0;
    if (hook.state == MARKING && hook.phases[PP_MARK_FORWARD])
        pp_mark_put(begins ? PP_MARK_BEGIN : PP_MARK_END, PP_MARK_FORWARD, PP_MARK_RANGE, m->layer,
                    0, 0, 0);
    return 0;
}

/* ---- the callable ---- */

/* Whether it has begun the outermost optimizer's piece. */
static bool is_optimizer_marked(const marker *m)
{
    return m->kind == OPTIMIZER_BEGIN && hook.state == MARKING && hook.depth == 1 &&
           hook.phases[PP_MARK_OPTIMIZER];
}

static int dispatch(const marker *m, PyObject *args)
{
    PyObject *first = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    Py_ssize_t n = PyTuple_Size(args);
    switch ((pp_kind)m->kind) {
    case CALL:
        return on_call(first);
    case ENTER:
        return on_enter(first, n > 1 ? PyTuple_GetItem(args, 1) : Py_None);
    case LEAVE:
        return look_at_batch(args) < 0 ? -1 : on_leave(first, PyTuple_GetItem(args, n - 1));
    case BACKWARD_BEGIN:
    case BACKWARD_RESUME:
    case BACKWARD_PAUSE:
    case BACKWARD_END:
        return on_backward(m);
    case OPTIMIZER_BEGIN:
        return on_optimizer_begin(first);
    case OPTIMIZER_END:
        return on_optimizer_end(first);
    case COMMUNICATION_BEGIN:
    case COMMUNICATION_END:
        return on_communication((pp_kind)m->kind);
    case COMPILE_BEGIN:
    case COMPILE_END:
        return on_compile(m);
    case RECORD_CALL:
        return on_record("called", args);
    case RECORD_RETURN:
        return on_record("returned", args);
    case KINDS:
        break;
    }
    return 0;
}

static PyObject *marker_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    const marker *m = (const marker *)self;
    PyObject *changed = NULL;
    if (pp_ring() && !hook.quiet &&
        (dispatch(m, args) < 0 || (is_optimizer_marked(m) && mark_closure(args, &changed) < 0)) &&
        give_up() < 0)
        return NULL;
    if (changed)
        return changed;
    Py_INCREF(Py_None);
    return Py_None;
}

static void marker_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* inspect knows none of a C function's, and some programs ask it about each hook in torch's tables.
 */
static PyObject *signature;

void pp_marks_signature(PyObject *of)
{
    PyObject *was = signature;
    Py_INCREF(of);
    signature = of;
    Py_XDECREF(was);
}

static PyObject *marker_signature(PyObject *self, void *unused)
{
    (void)self;
    (void)unused;
    PyObject *of = signature ? signature : Py_None;
    Py_INCREF(of);
    return of;
}

static PyGetSetDef marker_members[] = {
    {"__signature__", marker_signature, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot marker_slots[] = {
    {Py_tp_call, marker_call},
    {Py_tp_getset, marker_members},
    {Py_tp_dealloc, marker_dealloc},
    {0, NULL},
};

static PyType_Spec marker_spec = {"precisionprobe_hook._marks.Marker", sizeof(marker), 0,
                                  Py_TPFLAGS_DEFAULT, marker_slots};

/* ---- for module.c ---- */

int pp_marks_init(void)
{
    marker_type = PyType_FromSpec(&marker_spec);
    s_closure = PyUnicode_InternFromString("closure");
    return marker_type && s_closure ? 0 : -1;
}

PyObject *pp_marks_callable(pp_kind kind, uint32_t layer)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)marker_type, Py_tp_alloc);
    marker *m = (marker *)alloc((PyTypeObject *)marker_type, 0);
    if (m) {
        m->kind = (uint8_t)kind;
        m->layer = layer;
    }
    return (PyObject *)m;
}

int pp_marks_set_state(pp_state state, bool partial)
{
    PyObject *list = NULL;
    if (state == DISCOVERING && !(list = PyList_New(0)))
        return -1;
    if (hook.state == MARKING && state != MARKING)
        put_edge(PP_MARK_STOP);
    Py_XDECREF(hook.collected);
    hook.collected = list;
    hook.partial = partial;
    hook.stepless = 0;
    hook.resting = hook.resting && state == COUNTING;
    hook.rests_until = 0;
    if (state != MARKING)
        pp_frames_clear(0);
    if (state == OFF) {
        hook.depth = 0;
        pp_pace_pause(); /* what comes until it counts again is not seen */
    }
    show_state(state);
    return 0;
}

int pp_marks_put_off(int64_t ns)
{
    if (pp_marks_set_state(COUNTING, false) < 0)
        return -1;
    hook.resting = true;
    hook.rests_until = pp_now() + ns;
    return 0;
}

int pp_marks_stop(void)
{
    if (hook.state == ISOLATING)
        show_state(STOPPING); /* what is replayed would be seen without its kernels */
    return hook.state == MARKING ? stop_here() : 0;
}

pp_state pp_marks_state(void)
{
    return hook.state;
}

void pp_marks_phases(bool forward, bool backward_, bool optimizer)
{
    hook.phases[PP_MARK_FORWARD] = forward;
    hook.phases[PP_MARK_BACKWARD] = backward_;
    hook.phases[PP_MARK_OPTIMIZER] = optimizer;
}

void pp_marks_exceptions(bool told)
{
    hook.exceptions = told;
}

void pp_marks_look_anew(void)
{
    hook.looked = 0;
    hook.look_after = LOOK_AFTER;
}

void pp_marks_isolate(bool wanted)
{
    hook.isolate = wanted;
}

void pp_marks_use_probe(PyObject *probe)
{
    Py_INCREF(probe);
    Py_XDECREF(hook.probe);
    hook.probe = probe;
}

void pp_marks_call_cost(int64_t ns)
{
    hook.call_cost = ns < 0 ? 0 : ns > 1000000 ? 1000000 : ns;
}

void pp_marks_quiet(bool quiet)
{
    hook.quiet = quiet;
}

void pp_marks_communication(PyObject *queue)
{
    Py_XINCREF(queue);
    Py_XDECREF(hook.queue);
    hook.queue = queue;
}

bool pp_marks_optimizer_open(void)
{
    return hook.depth > 0 || hook.ending;
}

int64_t pp_marks_steps(void)
{
    return hook.steps;
}

PyObject *pp_marks_take_collected(void)
{
    PyObject *list = hook.collected ? hook.collected : PyList_New(0);
    hook.collected = NULL;
    return list;
}
