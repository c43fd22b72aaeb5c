/*
 * What the parts of the extension share. Everything here runs inside the user's training: nothing
 * blocks, raises, prints or allocates without a bound; what fails is counted and given up.
 *
 * Unless a comment says otherwise the caller holds the GIL, which is what serialises the producers
 * of the ring.
 */
#ifndef PP_HOOK_H
#define PP_HOOK_H

#define Py_LIMITED_API 0x03080000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "sidecar/ring.h"

#include <stdatomic.h>
#include <stdbool.h>

/* ---- ring.c: the shared memory, trainer's side ---- */

/** Makes and maps a ring in `directory`, under a name that the agent does not look at. Returns
 * NULL, or what failed (static text). */
const char *pp_ring_open(const char *directory);

/** Gives the ring its name, once its header is filled in. Returns NULL, or what failed. */
const char *pp_ring_publish(void);

/** Lets the ring go; `abandon` in a forked child, which must not touch what is its parent's. */
void pp_ring_close(bool abandon);

/** The header, or NULL where there is no ring or it was let go. */
pp_ring_header *pp_ring(void);

/** Says in the ring why this process is not profiled, "": it is, unless there is no memory for the
 * ring: that reason stays. */
void pp_ring_refuse(const char *why);

/** Adds a layer and returns its id (from 1), or 0 where the table is full. */
uint32_t pp_ring_add_layer(const char *name, const char *type, int64_t parameters);

/** Adds a line of the program, once, and returns its id (from 1), or 0 where the table is full. */
uint32_t pp_ring_add_site(const char *file, uint32_t line);

/** Adds a compiled graph as a region runs it; false: there is no room. */
bool pp_ring_add_graph(uint32_t graph, uint32_t region, const pp_ring_launch *launches,
                       uint32_t count);

/** Says why a layer is not replayed in a phase. */
void pp_ring_leave_out(uint32_t layer, unsigned phase, unsigned reason);

/** Layers in this one are not told: why, a pp_whole_reason; PP_WHOLE_NOT: they may be. */
void pp_ring_tell_whole(uint32_t layer, unsigned reason);

/** The id in the ring's name. */
char *pp_ring_id(void);

/** Writes one mark whose time is known; drops and counts it where the ring is full. */
void pp_ring_push(const pp_mark *mark);

/** Counts marks that were lost before they reached the ring: at once, from any thread, and where
 * the mark comes that they were lost before. */
void pp_ring_count_lost(uint64_t count);
void pp_ring_lost_here(uint64_t count);

/** Writes one kernel, counts those that were lost. For kernel_records.c, which serialises them; no
 * GIL. */
void pp_ring_push_kernel(const pp_kernel *kernel);
void pp_ring_lose_kernels(uint64_t count);
/** Adds the next name of a kernel, of so many bytes; false: there is no room. */
bool pp_ring_add_name(const char *name, size_t n);
uint64_t pp_ring_kernels_lost(void);

/** Adds to the cost that the hook measured, at once or, while it is held, when the step ends. */
void pp_ring_cost(int64_t ns);
void pp_ring_cost_add(int64_t ns);
/** Takes what is held, and says whether what comes is. */
int64_t pp_ring_cost_hold(bool hold);

/** What the agent asks for at present; PP_RING_IDLE without a ring or an agent. No GIL needed. */
uint32_t pp_ring_mode_now(void);
/** The number of the session that the agent asks for. */
uint32_t pp_ring_session(void);

/**
 * Sleeps until the mode is no longer `seen`, `ns` have passed or somebody wakes it; looks whether
 * the agent is alive. For the hook's own thread; no GIL needed.
 */
void pp_ring_wait(uint32_t seen, int64_t ns);

/** Ends a wait in another thread; `for_good`: and every later one. No GIL needed. */
void pp_ring_wake(bool for_good);

/** Copies text into a field of `size` bytes, cut where it is too long. */
void pp_copy_text(char *out, size_t size, const char *text);

/* ---- clock.c: when a mark happens ---- */

typedef struct pp_clock {
    const char *name;
    /** Stamps the mark, where it has no time yet, and returns true, or takes it over to emit it
     * later and returns false. */
    bool (*stamp)(pp_mark *mark);
    /** Emits what is known by now. Called by the hook's own thread without the GIL; ns to sleep. */
    int64_t (*poll)(void);
} pp_clock;

extern const pp_clock pp_clock_host;

/** ns, CLOCK_MONOTONIC. */
int64_t pp_now(void);

/** Not with the GIL. */
void pp_sleep(int64_t ns);

/**
 * The clock of CUDA events, from the libcuda that is in the process already. `stream_of` is
 * torch._C._cuda_getCurrentRawStream. NULL where something of it is missing.
 */
const pp_clock *pp_clock_cuda(PyObject *stream_of);

/** Whether marks still wait for the GPU. The hook's thread writes those: nobody else may, until
 * then. */
bool pp_clock_cuda_behind(void);

/** The host's, while kernels.c records what the GPU does. */
extern const pp_clock pp_clock_kernels;

/** The clock in use; the hook changes it between captures only. */
extern const pp_clock *pp_clock_now;

/** A wait of this thread, which comes before its next mark. */
void pp_wait_put(uint8_t call, uint32_t site, int64_t ns, int64_t end);
/** Stamps and emits one mark of this thread, behind its waits. */
void pp_mark_put(uint8_t kind, uint8_t phase, uint8_t flags, uint32_t layer, int64_t value,
                 int32_t epoch, int32_t batch);
/** The same of what began and ended then (pp_now): `value` is how long it took. */
void pp_span_put(uint8_t kind, uint32_t layer, int64_t begun, int64_t ended);

/* ---- thread_numbers.c: threads by small numbers, which marks and kernels share ---- */

/** This thread's, which makes a mark: autograd runs backward in threads of its own, and the agent
 * pairs the marks of each by itself. */
uint8_t pp_thread_number(void);
/** The same, of one whose mark is no wait: it has pieces of its own. */
uint8_t pp_thread_number_of_pieces(void);
/** Whether a thread, by CUPTI's id, has none. No GIL needed. */
bool pp_thread_is_strange(uint32_t id);
/** That of a thread by CUPTI's id, or PP_THREAD_STRANGER where it has made no mark. No GIL needed.
 */
uint8_t pp_thread_number_of(uint32_t id);

/* ---- libraries.c: what the process has loaded already ---- */

/** The path (PATH_MAX) of a library that the process has, by how its name begins. No GIL needed. */
bool pp_find_library(const char *name, char *path);

/* ---- kernels.c, with the files of kernels_internal.h: when each kernel ran, by CUPTI ---- */

/** Begins to record; in the training's thread, as a capture starts. NULL, or why not (static).
 * `several`: modules are on several GPUs, so the threads of launches have to be known. `look`: all
 * threads of the training's make marks, so that others can be told from them. */
const char *pp_kernels_start(bool several, bool look);
/** Whether kernels of several GPUs have come in this session, whatever the modules are on. */
bool pp_kernels_several(void);
/** Whether CUPTI should be left and attached anew: for what was recorded, or how. */
bool pp_kernels_full(void);
/** Whether launches are told by records of the calls, in place of the kernels' own. */
bool pp_kernels_by_calls(void);
/** While kernels are recorded: a thread calls modules that is not the one whose steps are counted.
 * From the next capture on threads of launches are told, where they can be. */
void pp_kernels_other_thread(void);
/** Whether a start has to wait because it is being left. */
bool pp_kernels_closing(void);
/** The capture has ended: poll ends the recording once its kernels have run. */
void pp_kernels_end(void);
/** Ends it at once, for another CUPTI client that is about to begin. */
void pp_kernels_give_way(void);
/** Hands over what is done; `last`: the process ends. By the hook's thread, without the GIL.
 * Returns ns to sleep. */
int64_t pp_kernels_poll(bool last);
/** In a forked child: nothing is recorded there. */
void pp_kernels_forget(void);

/* ---- copies.c: CUPTI's records of copies and fills ---- */

/** Reads one of a kind of kernels_internal.h, but for its launch, in CUPTI's time, and the number
 * of its call; false: it did not run on a GPU, or not to its end. */
bool pp_copy_read(const uint8_t *record, int kind, pp_kernel *ret, uint32_t *ret_correlation);

/* ---- names.c: kernels' names, once each ---- */

/** The number of a name in the ring, from 1 on; it is written there before. 0: there is no name, or
 * no room for it. One thread at a time. */
uint32_t pp_names_number(const char *name);
/** In a forked child, whose ring will be another. */
void pp_names_forget(void);

/** cupti_rate_limit.c: whether CUPTI may be attached once more in this session; that it was. */
bool pp_cupti_rate_left(uint32_t session);
void pp_cupti_rate_use(void);

/** Whether CUPTI is attached for us. */
bool pp_kernels_active(void);
/** ns that recording kernels has cost since this was asked last, where a launch is waited for. */
int64_t pp_kernels_cost(void);

/* ---- chip.c: which GPUs there are, and what they are ---- */

/** Fills the header's table of devices, where a driver is loaded and initialized. */
void pp_chip_describe(pp_ring_header *header);

/* ---- sampler.c: starts the program that samples the GPU ---- */

/** Why it was not started, or "", into the ring. */
void pp_sampler_none(const char *why);
/** Has the hook's thread start it: the program's path, the ring's folder, the GPU's UUID, and its
 * number in CUDA where others of the process are sampled too, else -1; ns; PATH and LD_LIBRARY_PATH
 * of this process. The ring then says "started", or why not. */
void pp_sampler_ask(const char *program, const char *folder, const char *gpu, int device,
                    uint32_t period, const char *paths, const char *libraries);
/** Starts it where it was asked for. By the hook's thread, without the GIL. */
void pp_sampler_poll(void);
/** Another session: nothing is decided of its sampler. By the hook's thread, without the GIL. */
void pp_sampler_forget(void);

/* ---- nodes.c: a layer's part of the autograd graph ---- */

/** What nodes.c needs of torch; the objects are owned. NULL where this torch does not have it. */
typedef struct pp_torch {
    PyObject *tensor;          /**< torch.Tensor */
    PyObject *accumulate_grad; /**< the type of the nodes that add to .grad */
    PyObject *get_sequence_nr; /**< number that the next node will get; torch >= 2.1 */
    PyObject *graph_task;      /**< id of the running backward, or -1; torch >= 2.0 */
    PyObject *grad_enabled;    /**< whether forwards record what backward needs */
} pp_torch;

extern pp_torch pp_torch_api;

int pp_nodes_init(void);

/**
 * What separates a layer's nodes from those before it, taken as its forward begins: the next
 * sequence number where torch has them, else the nodes of its inputs. A new reference, or NULL
 * with an exception set.
 */
PyObject *pp_nodes_edge(PyObject *args);

/** What nodes of a layer call as backward runs them; of a loss's and a range's parts `resume` is
 * `begin`, and `end` is `pause`. */
typedef struct pp_self_hooks {
    PyObject *begin;
    PyObject *resume; /**< a call goes on that has ended, as it seemed */
    PyObject *pause;  /**< a stretch of a parent's ends that is not its last */
    PyObject *end;
} pp_self_hooks;

/**
 * Walks from the output back to the edge and has the nodes call `begin`, `resume` and `end` as
 * backward runs them. `exits`: a list to which the nodes before the edge are added that the walk
 * met; NULL: not wanted. Returns -1 with an exception set.
 */
int pp_nodes_hook(PyObject *output, PyObject *edge, const pp_self_hooks *hooks, PyObject *exits);

/** Has what is run next behind each of these that are in `left` call `hook` before, but for what is
 * in `begun`. `nodes`: a list; they have numbers. -1: exception. */
int pp_nodes_resume(PyObject *nodes, PyObject *left, PyObject *begun, PyObject *hook);

/** Adds the nodes behind every tensor in a nested value to a list. -1: exception. */
int pp_nodes_gather(PyObject *value, PyObject *nodes);
/** The number that a node got when it was made. -1: exception. */
int pp_nodes_number(PyObject *node, int64_t *ret);
/** The number that the thread's next node will get. -1: exception. */
int pp_nodes_next_number(int64_t *ret);
/** Adds the nodes that come after this one in backward, but those that add to parameters. -1:
 * exception. */
int pp_nodes_behind(PyObject *node, PyObject *nodes);
typedef enum pp_node_kind {
    NODE_WORK,
    NODE_VIEW,       /**< only looks at its gradient in another way: launches nothing */
    NODE_TURN,       /**< a view that turns it: one that lies as it must does so no more */
    NODE_RESHAPE,    /**< the same, but copies a gradient that does not lie as it must: behind a
                        view that turned it */
    NODE_BROADCAST,  /**< DataParallel's, which copies parameters to replicas: it is numbered by
                        another thread than the replicas' nodes, and is no layer's */
    NODE_CHECKPOINT, /**< a checkpoint's, which runs its forward again and then its backward */
} pp_node_kind;

/** A pp_node_kind; -1: exception. */
int pp_nodes_kind(PyObject *node);
/** Has a node call these as backward runs it. -1: exception. */
int pp_nodes_begin(PyObject *node, PyObject *hook);
int pp_nodes_end(PyObject *node, PyObject *hook);

/* ---- nodes_self.c: what of the graph is a parent's self, and of no module in it ---- */

/** The nodes that a module's forward made. */
typedef struct pp_part {
    int64_t from, to; /**< their numbers; `to` is the next module's */
    PyObject *exits;  /**< list of the nodes before them that they lead to; owned */
} pp_part;

/**
 * Has each stretch of nodes of a parent, which are of none of the modules called in it, call
 * these: `begin` wherever it is come into, `pause` and `end` wherever it is left. `parts` are those
 * modules', in the order of their calls; `whole` is the parent's own and gets its exits. Where
 * there are too many nodes none calls any. Returns -1 with an exception set.
 */
int pp_nodes_hook_self(PyObject *output, pp_part *whole, const pp_part *parts, size_t count,
                       const pp_self_hooks *hooks);

/** Has a stretch of nodes, of these numbers and made one after the other, call these as backward
 * comes into it by `nodes` and leaves it. -1: exception. */
int pp_nodes_hook_stretch(PyObject *nodes, int64_t from, int64_t to, const pp_self_hooks *hooks);

/* ---- frames.c: the forwards that are open in a thread ---- */

typedef struct pp_frame {
    uint32_t layer;
    uint8_t phase;
    bool parent;
    bool too_many;      /**< modules were called in it to keep a part of each */
    unsigned calls;     /**< that it makes of itself, and that have not returned */
    unsigned backwards; /**< the caller's, of when it began */
    PyObject *edge;     /**< NULL where backward is not wanted; owned */
    pp_part *parts;     /**< of the modules called in it, where it is a parent; owned */
    size_t part_count, part_room;
} pp_frame;

/** What is the thread's own, to tell it from others. */
const void *pp_frames_thread(void);
/** A new innermost frame, which owns the edge. Where there are too many, those that are open have
 * ended in exceptions and go. */
pp_frame *pp_frames_push(uint32_t layer, uint8_t phase, bool parent, PyObject *edge);
/** A layer whose forward is open is called again, and returns; false: it is not open, or not
 * called again. */
bool pp_frames_call_again(uint32_t layer);
bool pp_frames_return(uint32_t layer);
/** Takes off the innermost frame of this layer, and all in it. False where there is none. */
bool pp_frames_pop(uint32_t layer, pp_frame *ret);
/** Frees what a popped frame owns. */
void pp_frame_done(pp_frame *frame);
/** The innermost frame, where it is a parent whose backward is wanted; else NULL. */
pp_frame *pp_frames_parent(void);
/** Adds a part, whose exits it takes; -1: out of memory, with the exception. */
int pp_frame_add(pp_frame *frame, int64_t from, int64_t to, PyObject *exits);
int pp_frames_count(void);
/** Below the count. */
const pp_frame *pp_frames_at(int i);
/** Takes all off but the outermost `keep`. */
void pp_frames_clear(int keep);

/* ---- module_map.c: which module is which layer, by its address ---- */

#define PP_PLACE_NONE UINT32_MAX
#define PP_PLACE_LAYER UINT32_C(0xFFFF)   /**< the layer's id in a place; 0: it is none */
#define PP_PLACE_PARENT UINT32_C(0x10000) /**< modules called in it are layers themselves */
#define PP_PLACE_ROOT UINT32_C(0x20000)   /**< no other module calls it */
#define PP_PLACE_MODEL UINT32_C(0x40000)  /**< it has parameters */

/** False where there is no room, or the module has a place. */
bool pp_module_map_put(const void *module, uint32_t place);
/** The layer's id and what else it is, or PP_PLACE_NONE. */
uint32_t pp_module_map_find(const void *module);
/** The module is gone: its address means nothing any more. */
void pp_module_map_drop(const void *module);
void pp_module_map_clear(void);

/* ---- thread.c: the hook's own thread ---- */

/** Starts a thread of the system's, whatever `threading` was patched to, that calls `run` (which
 * it keeps) once. Its signals are masked. Returns -1 where there can be none. */
int pp_thread_start(PyObject *run);
/** Until the mode is not `seen`; -1: the process is leaving. Called by that thread, with the GIL.
 * Where the agent asks for nothing it calls `left` (may be NULL) once CUPTI is not attached. */
int64_t pp_thread_wait(uint32_t seen, PyObject *left);
/** The thread shall end; waits for it, 0.5 s at most. Gives the GIL away meanwhile. */
void pp_thread_leave(void);
/** In a forked child: there is no such thread. */
void pp_thread_forget(void);

/* ---- marks.c: the callables that torch calls, and the state that says what they do ---- */

typedef enum pp_state { OFF, COUNTING, DISCOVERING, MARKING, STOPPING, ISOLATING, STATES } pp_state;

typedef enum pp_kind {
    CALL,  /* global forward pre-hook that settles, and looks for layers; may be there twice */
    ENTER, /* global forward pre-hook, while marking; there once */
    LEAVE, /* global forward hook, while marking */
    BACKWARD_BEGIN,
    BACKWARD_RESUME, /* a call goes on that has ended, as it seemed */
    BACKWARD_PAUSE,  /* of a parent: it goes on behind a module in it */
    BACKWARD_END,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    COMMUNICATION_BEGIN, /* called once, by the autograd engine, when all nodes have run */
    COMMUNICATION_END,
    COMPILE_BEGIN, /* torch's compiler begins, of a layer that stands for it */
    COMPILE_END,
    RECORD_CALL,   /* global forward pre-hook: hands a call to the Python side, while isolating */
    RECORD_RETURN, /* global forward hook: and its result */
    KINDS,
} pp_kind;

int pp_marks_init(void);
/** A callable of a kind, for a layer where it is one of backward. New reference. */
PyObject *pp_marks_callable(pp_kind kind, uint32_t layer);
/** What inspect.signature() says of each of them: an inspect.Signature, kept. */
void pp_marks_signature(PyObject *of);
/** `partial`, with DISCOVERING: the running step has called modules already. -1: exception. */
int pp_marks_set_state(pp_state state, bool partial);
/** Counts steps, and looks for layers again at a step's end so many ns later; -1: exception. */
int pp_marks_put_off(int64_t ns);
/** Ends a running capture where it is; -1: exception. */
int pp_marks_stop(void);
pp_state pp_marks_state(void);
/** pace.c: how kernels are recorded, and what that has cost since the step before. */
typedef struct pp_pace_kernels {
    bool active, by_calls;
    int64_t cost; /* ns */
} pp_pace_kernels;

/** A step has ended in this state. Holds marked steps against plain ones, counts cost. */
void pp_pace_step(pp_state state, const pp_pace_kernels *kernels);
/** ns that a marked step takes longer, launches told by their calls or not; false: not known. */
bool pp_pace_extra(bool by_calls, int64_t *ret);
/** Forgets what marked steps took: others will be marked. */
void pp_pace_forget(void);
/** The training was paused: the block of steps begins anew. */
void pp_pace_pause(void);
void pp_marks_phases(bool forward, bool backward, bool optimizer);
/** Whether layers are to be replayed at steps' ends of this capture, once it has gone on a while.
 */
void pp_marks_isolate(bool wanted);
/** Whether LEAVE is called of forwards that end in an exception, too. */
void pp_marks_exceptions(bool told);
/** Modules that are not known are looked at from now on, however often they were before. */
void pp_marks_look_anew(void);
/** The object whose settle, found, rest, resume, position, isolate, called, returned and failed
 * the callables call; kept. */
void pp_marks_use_probe(PyObject *probe);
/** ns that hooking a module's call costs, marks apart. */
void pp_marks_call_cost(int64_t ns);
/** While quiet the callables do nothing: their own cost is being measured. */
void pp_marks_quiet(bool quiet);
/** Whether some optimizer's step is open: torch walks the optimizer hooks. */
bool pp_marks_optimizer_open(void);
int64_t pp_marks_steps(void);
/** Whether this is the thread whose steps are counted. */
bool pp_marks_is_trainer(void);
/** Whether what runs now, in the thread whose steps are counted, is in nothing that is marked but
 * ranges; its phase. */
bool pp_marks_outside(uint8_t *ret_phase);
/** The layer of ranges of this name, or of all that have none of their own; 0: it is not told. -1:
 * exception. */
int pp_marks_range_layer(PyObject *name, bool rest, uint32_t *ret);
/** What nodes of a layer call as backward runs them; owned here. NULL: exception. */
const pp_self_hooks *pp_marks_backward_hooks(uint32_t layer);
/** Ends the hook because of an exception of our own; -1: it is the user's, and goes on. */
int pp_marks_give_up(void);
/** A gradient scaler has looked at a step's gradients. Where no optimizer has stepped since it did
 * last, one that was skipped would have. -1: exception. */
int pp_marks_scaled(void);
/** The program says that a step ends here: from now on no optimizer ends any. -1: exception. */
int pp_marks_step(void);
/** Takes the modules called while discovering: a new list of weak references. */
PyObject *pp_marks_take_collected(void);
/** torch's function that has a callback called at the end of the running backward, where what that
 * waits for shall be marked as communication, else NULL; kept. */
void pp_marks_communication(PyObject *queue);
/** Begins a phase of the step's. False, and not to be ended: nothing is marked now, the phase is
 * open, or this is not the thread whose steps are counted. */
bool pp_marks_begin(pp_mark_phase phase);
void pp_marks_end(pp_mark_phase phase);
/** What makes a callable in place of a closure, which calls the two below around it. */
void pp_marks_use_pausing(PyObject *(*make)(PyObject *closure));
/** An optimizer calls the user's code: its piece ends here. False where none is marked now. */
bool pp_marks_pause_optimizer(void);
/** And goes on here. */
void pp_marks_resume_optimizer(void);
/** A checkpoint runs its forward again in this thread, and has: all forwards in it are over. */
void pp_marks_again_begin(uint32_t layer);
void pp_marks_again_end(void);
/** A call of compiled code begins: settles, is looked at or marked as a module's is. `place` is
 * where its layer is; `known`: it has been met while layers were looked for. -1: exception. */
int pp_marks_region_begin(PyObject *place, PyObject *args, bool *known);
int pp_marks_region_end(PyObject *place, PyObject *result);

/* ---- input_shapes.c: the shapes of what the model is trained with ---- */

int pp_batch_init(void);
/** Another model's, or another session's: what was seen so far is none of it. */
void pp_batch_anew(void);
/** Whether a forward is still to be looked at. */
bool pp_batch_wanted(void);
/** A training forward of the model has returned, with these; `kwargs` NULL: not told. -1: the
 * user's exception; an error of torch's makes the forward one that is not looked at. */
int pp_batch_see(PyObject *args, PyObject *kwargs);
/** Writes what is known by now into the ring. -1 as above. */
int pp_batch_tell(void);

/* ---- memory.c: what torch's CUDA allocator has allocated at each mark of a step ---- */

int pp_memory_init(void);
/** torch's function that tells the allocator's statistics, and its argument: the next step that is
 * marked alone is to be looked at; NULL: none is. */
void pp_memory_use(PyObject *stats, PyObject *device);
bool pp_memory_wanted(void);
/** A step begins: asks the Python side (memory_begin) whether it may be looked at. -1: exception.
 */
int pp_memory_begin(PyObject *probe);
/** Whether one is looked at; its marks are the host's. */
bool pp_memory_active(void);
/** It has ended: emits marks of what the Python side (memory_end) makes of it. -1: exception. */
int pp_memory_end(PyObject *probe);
/** It is not looked at any more. */
void pp_memory_forget(void);

/* ---- waits.c: waits of the host that are no marks yet ---- */

/** Adds a wait, a PP_MARK_WAIT, to those of its thread; false: there is no room. */
bool pp_waits_add(const pp_mark *wait);
/** Takes one that comes before this mark, NULL: any; false: there is none (more). */
bool pp_waits_take(const pp_mark *before, pp_mark *ret);
void pp_waits_forget(void);

/* ---- methods.c: methods and functions of C's whose function is exchanged ---- */

/** The definition behind a method of this class, or, with None, a function; NULL where it does not
 * look as it should. */
PyMethodDef *pp_methods_find(PyObject *object, PyObject *owner, const char *name);
/** Sets those to true that lie in memory that may be read and written. */
void pp_methods_writable(PyMethodDef *const *defs, bool *ret, size_t n);
/** Only where `from` is what is there; NULL is left alone. */
void pp_methods_exchange(PyMethodDef *def, PyCFunction from, PyCFunction to);

/* ---- engine.c: what can be told of autograd's engine outside of modules ---- */

/** Nodes of the loss's that lead to its module: from this number on; layer 0: there are none. */
typedef struct pp_engine_nodes {
    uint32_t layer;
    int64_t from;
} pp_engine_nodes;

/** Of a backward that begins: the loss's layer, whether it has one that can be told, and the layer
 * of gradients, 0: they cannot be told. */
typedef struct pp_engine_told {
    uint32_t layer, gradients;
    bool loss;
} pp_engine_told;

/** The layers of this capture; 0: nothing is told. */
void pp_engine_layers(uint32_t loss, uint32_t gradients);
/** Of the trainer's thread: a step begins; a forward that records begins which no other calls, of a
 * module with parameters or not; it has returned; all that was made has run. -1: exception. */
int pp_engine_step(void);
int pp_engine_forward(bool model, PyObject *args, pp_engine_nodes *ret);
int pp_engine_returned(bool model);
int pp_engine_ran(void);
/** A backward begins from these; of any thread. -1: exception. */
int pp_engine_runs(PyObject *roots, pp_engine_told *ret);
/** The number of the first node behind the last model's forward; -1: there is none. */
int64_t pp_engine_loss_from(void);
/** Until the step ends nodes may run that are a module's and do not say so. */
void pp_engine_untold(void);

/* ---- engine_calls.c: when autograd's engine runs ---- */

/** Marks when it does, by these layers; `method` is run_backward of the class `owner`. Where one of
 * the layers is 0, or that is not as expected, nothing is marked. False: it is not. */
bool pp_engine_calls_begin(PyObject *method, PyObject *owner, uint32_t loss, uint32_t gradients);
void pp_engine_calls_end(void);

/* ---- ranges.c: ranges that the program marks, of the thread whose steps are counted ---- */

/** What nodes of a layer call as backward runs them; NULL: exception. */
typedef const pp_self_hooks *(*pp_ranges_hooks)(uint32_t layer);

/** A capture begins, or a step's marks are of none. */
void pp_ranges_clear(void);
/** Whether they are told from now on, and their backward. */
void pp_ranges_use(bool wanted, bool backward);
bool pp_ranges_wanted(void);
/** The program has entered one: `key` is torch's record, NULL: an NVTX range; layer 0: all that is
 * known is that it is open. */
void pp_ranges_open(const void *key, uint32_t layer, uint8_t phase);
/** It leaves one; NULL: the innermost NVTX range. */
void pp_ranges_leave(const void *key);
/** Such a record is there no more. */
void pp_ranges_gone(const void *key);
/** A step ends: all that are open end. */
void pp_ranges_step(void);
/** A module begins or has returned that no other calls. */
void pp_ranges_module(bool begins);
/** Autograd's engine begins; false: they need not resume. `marked`: steps are. */
bool pp_ranges_pause(void);
void pp_ranges_resume(bool marked);
bool pp_ranges_paused(void);
/** A backward begins from these: has its nodes of ranges call hooks. -1: exception. */
int pp_ranges_hook(PyObject *roots, pp_ranges_hooks hooks_of);
/** A layer is a range; whether it is. */
void pp_ranges_tell(uint32_t layer);
bool pp_ranges_is(uint32_t layer);

/* ---- range_names.c: their names ---- */

/** The layer that a name is; 0: none. -1: exception. */
int pp_range_names_find(PyObject *name, uint32_t *ret);

/* ---- range_calls.c: the calls by which it marks them ---- */

/** From now on ranges are told while steps are marked. `targets` is a list of (role, function of
 * torch's, its name); what is not as expected is left alone. -1: exception. */
int pp_range_calls_begin(PyObject *targets, bool backward);
/** Puts back what is torch's. */
void pp_range_calls_end(void);

/* ---- scaler_calls.c: steps that a gradient scaler skips ---- */

/** They are counted from now on; `function` is torch._amp_update_scale_, by which a scaler ends a
 * step whether it was skipped or not. */
void pp_scaler_calls_begin(PyObject *function);
void pp_scaler_calls_end(void);

/* ---- wait_calls.c: calls in which the host waits ---- */

/**
 * Counts calls from now on while steps are marked. `targets` is a list of (name of the
 * pp_wait_call, callable of torch's, the class that it is a method of or None, its name); what is
 * not as expected is left alone. Lines are those of files outside of `folder`; `device` is
 * torch.device. -1: exception.
 */
int pp_wait_calls_begin(PyObject *targets, PyObject *folder, PyObject *device);
/** Puts back what is torch's. */
void pp_wait_calls_end(void);

/* ---- regions.c: compiled code ---- */

int pp_regions_init(void);
/** A callable in place of one that the compiler returned, which it keeps. New reference. */
PyObject *pp_regions_new(PyObject *original);

/* ---- graphs.c: the graphs that regions run ---- */

/** Tells one, by its launches: a list of (name of a kernel or "", a pp_ring_op, layer). *ret: there
 * was room. -1: exception. */
int pp_graph_tell(uint32_t graph, uint32_t region, PyObject *launches, bool *ret);
/** One has run in this thread since then; 0: of one that was not told. The layer of the innermost
 * forward that is open here, 0: of none. */
uint32_t pp_graph_ran(uint32_t graph, int64_t begun);

/* ---- tables.c: the hooks in torch's tables, which compiled code must not meet ---- */

/** Puts a callable of that kind into one of torch's tables; as compiled code ends where some runs
 * now. -1: exception. */
int pp_hooks_add(PyObject *table, PyObject *key, pp_kind kind, PyObject *hook);
/** The same object as was added. */
void pp_hooks_remove(PyObject *key);
bool pp_hooks_has(pp_kind kind);
/** Takes all out of their tables, until as many calls have put them back. */
void pp_hooks_hide(void);
void pp_hooks_show(void);
/** Calls a function while none of ours is in any table. New reference. */
PyObject *pp_hooks_without(PyObject *function);

/* ---- spans.c: methods of torch's classes, and closures, that are wrapped while a capture runs
 * ----
 */

int pp_spans_init(void);
/** A callable in place of a method, which it keeps, that marks its calls. New reference. */
PyObject *pp_spans_new(PyObject *original, pp_mark_phase phase);
/** The same of the methods before and behind what a checkpoint runs again; `layer`, or 0, is what
 * it runs outside of modules. */
PyObject *pp_spans_again(PyObject *original, bool begins, uint32_t layer);
/** A callable in place of an optimizer's closure, which it keeps: the optimizer's piece pauses
 * while it runs. New reference. */
PyObject *pp_spans_pausing(PyObject *closure);
/** A weak reference to the DataLoader's iterator that yielded last, or None. New reference. */
PyObject *pp_spans_iterator(void);

#endif
