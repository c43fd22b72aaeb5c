/*
 * The shared memory between the hook (in the trainer) and the agent (beside it): one file per
 * training process in the ring directory, a memory-backed volume.
 *
 * - The hook makes `.new-<id>`, reserves all its pages (so that a full volume fails there and never
 *   by a fault inside the training), fills in the header, takes flock(LOCK_EX) on it and renames it
 *   to `<id>.ring`. The lock falls when the process is gone, whatever ended it, and works across
 *   pid namespaces.
 * - The agent reads with pread() and writes with pwrite(): the file belongs to the user's process,
 *   which may truncate it or write anything into it; through a mapping that would be a SIGBUS.
 *   Whatever it reads it checks.
 * - Marks flow through a single-producer single-consumer queue. The producers of one process are
 *   serialised by the GIL (or by the hook's own thread, where times come from CUDA events). Kernels
 *   flow through a second one. Its producers are the threads in which CUPTI hands its buffers over:
 *   the hook's own, CUPTI's, and the training's as the hook gives way to another profiler. A lock
 *   of the hook serialises these.
 *
 * Depends on nothing; both sides are compiled from it, and `PP_RING_VERSION` guards against two
 * sides of different builds.
 */
#ifndef PP_SIDECAR_RING_H
#define PP_SIDECAR_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PP_RING_MAGIC UINT64_C(0x31474e4952505000) /* "\0PPRING1" */
#define PP_RING_DIRECTORY "/run/precisionprobe"
#define PP_RING_SUFFIX ".ring"
/** How a file's name begins while it is not whole, in the ring directory and in the spool: it is
 * renamed then. One that nobody holds was left by a process that was ended there; the agent removes
 * it. */
#define PP_RING_UNNAMED ".new-"
/** Written by the agent before any trainer starts: mode and filters for those that come. */
#define PP_RING_CONTROL "control.json"
/** Made by the first Python that has loaded the hook, whether it ever trains or not. Each holds a
 * read lock on it (an open file description's) for its life. */
#define PP_RING_LOADED "loaded"
/** Made by the agent once a process with torch has come, for the agent that may follow it. */
#define PP_RING_TORCH "torch"
/** What the trainers' images set, "environment-0" and on (environment.c). */
#define PP_RING_RECORD "environment-"

enum {
    PP_RING_VERSION = 19,
    PP_RING_MARKS = 65536,   /**< a power of two */
    PP_RING_KERNELS = 32768, /**< a power of two */
    PP_RING_LAYERS = 4096,
    PP_RING_NAME = 181, /**< bytes with the NUL; a longer name keeps its tail behind "..." */
    PP_RING_TYPE = 64,
    PP_RING_UUID = 48, /**< of a GPU, or of a part of one, with its NUL */
    PP_RING_TEXT = 256,
    PP_RING_DIGEST = 24,
    PP_RING_KERNEL_NAMES = 4095,    /**< numbers from 1 on */
    PP_RING_NAMES_SIZE = 256 << 10, /**< bytes of all, each with its NUL */
    PP_RING_KERNEL_NAME = 4096,     /**< bytes of one with its NUL; a longer one is cut */
    PP_RING_SITES = 512,            /**< numbers from 1 on */
    PP_RING_FILE = 252,       /**< bytes with the NUL; a longer path keeps its tail behind "..." */
    PP_RING_GRAPHS = 2048,    /**< compiled graphs that are told, each as often as regions run it */
    PP_RING_LAUNCHES = 16384, /**< of all of these */
    PP_RING_GPUS = 1024,
    PP_RING_DEVICES = 16,     /**< GPUs of a process that are told apart */
    PP_RING_MODELS = 2,       /**< of these; of a third one it is not known what it is */
    PP_RING_DWELLS = 1 << 24, /**< numbers of dwells, as the wire has them */
};

/** What the agent asks of the hook. */
typedef enum pp_ring_mode {
    PP_RING_IDLE = 0,   /**< nothing is installed in torch */
    PP_RING_COUNT = 1,  /**< steps are counted: one C call per optimizer step, nothing else */
    PP_RING_SAMPLE = 2, /**< find the layers, then mark every step */
} pp_ring_mode;

typedef enum pp_mark_kind {
    PP_MARK_BEGIN = 1, /**< layer and phase begin */
    PP_MARK_END,       /**< layer and phase end; in backward also without a begin, see pairing.h */
    PP_MARK_STEP,      /**< a step ended: value is its number, aux epoch and batch */
    PP_MARK_START,     /**< a capture starts here, at a step's end: value is its number; of a dwell
                            (docs/replay.md) the dwell's, from 1, and its steps count from there */
    PP_MARK_STOP,      /**< the capture stops here, at a step's end */
    PP_MARK_LOST,      /**< value marks were lost before the next one: the ring was full */
    PP_MARK_COUNTED,   /**< `layer` steps have ended, one after the other, in which nothing was
                            marked: value is the ns that they took, until `time` */
    PP_MARK_WAIT,   /**< the host waited: in `epoch` calls of the pp_wait_call that `phase` is, made
                         by the site that `layer` is (0: not known), the last until `time`; value
                         is the ns that they took together. Of what is open in its thread. */
    PP_MARK_MEMORY, /**< of a step with PP_MARK_STEP_MEMORY, behind its other marks: the bytes that
                         torch's allocator had allocated on the GPU at the mark of this time are
                         value, the most from there to the next of these are peak. From one to
                         another of the same time: what a backward that ends there lets go last */
    PP_MARK_GRAPH, /**< a compiled graph has run on the host, within a region's piece: until `time`,
                        for the ns that value is; `layer` is the number of the graph, 0: of one of
                        which nothing is known */
} pp_mark_kind;

/** docs/timing.md; the numbers are the wire's. Those that are not a layer's have layer 0. */
typedef enum pp_mark_phase {
    PP_MARK_FORWARD = 0,
    PP_MARK_BACKWARD = 1,
    PP_MARK_OPTIMIZER = 2,
    PP_MARK_RECOMPUTE = 3, /**< a forward that runs inside backward (checkpointing) */
    PP_MARK_ZERO_GRAD = 4,
    PP_MARK_DATA = 5,
    PP_MARK_COMMUNICATION = 6,
    PP_MARK_OTHER = 7,     /**< made by the agent only, of kernels outside all pieces */
    PP_MARK_INFERENCE = 8, /**< a forward that records nothing for a backward */
    PP_MARK_PHASES,
} pp_mark_phase;

/** Flags of START, STEP and STOP. */
enum {
    PP_MARK_KERNELS = 1,    /**< times are the host's, kernels tell the GPU's */
    PP_MARK_DWELL = 2,      /**< of START: no training, one layer replayed in one phase */
    PP_MARK_BACKGROUND = 4, /**< with it: what goes with the replays, without the layer */
    /** Of START and STEP: the step is there for what it allocates; its times mean nothing, and are
     * the host's. */
    PP_MARK_STEP_MEMORY = 8,
};

/** Flag of BEGIN, with PP_MARK_INFERENCE: the module trains. So it may be a forward that backward
 * runs again. */
enum { PP_MARK_TRAINS = 1 };

/** Flag of END: the same call goes on later. */
enum { PP_MARK_PAUSES = 2 };
/** Flag of BEGIN, with PP_MARK_BACKWARD: a call that has ended, as it seemed, goes on. */
enum { PP_MARK_RESUMES = 2 };

/** Flags of BEGIN and END of work outside of modules (sidecar/agent/outside.h). */
enum {
    PP_MARK_ENGINE = 4, /**< with PP_MARK_BACKWARD: autograd's engine; `layer` is the loss's, and
                             `value` of BEGIN the one of gradients, or 0: they cannot be told */
    PP_MARK_LOSS = 8,   /**< of such a BEGIN: a loss was computed behind the last model's forward */
    PP_MARK_MODEL = 16, /**< of a forward: its module has parameters */
    PP_MARK_AGAIN = 32, /**< of a recompute: all that a checkpoint runs again */
    PP_MARK_RANGE = 64, /**< the program has marked it, or it is a compiler's: it may end before
                           what began in it, and begin in a backward */
};

/** Numbers of threads, of marks and of kernels. */
enum {
    PP_THREAD_UNKNOWN = 0,    /**< of a kernel; of a piece: it is autograd's engine's, whose threads
                                   are those that ran backward */
    PP_THREAD_SHARED = 254,   /**< of all those for which there was no number left */
    PP_THREAD_STRANGER = 255, /**< of a kernel: that of a thread that has made no mark */
};

/** Whether a phase is a layer's, and not the step's. */
static inline bool pp_mark_of_layer(uint8_t phase)
{
    return phase == PP_MARK_FORWARD || phase == PP_MARK_BACKWARD || phase == PP_MARK_RECOMPUTE ||
           phase == PP_MARK_INFERENCE;
}

#define PP_MARK_UNKNOWN INT32_C(-1) /**< an epoch or batch that is not known */

/** One mark, 32 bytes. */
typedef struct pp_mark {
    int64_t time; /**< ns, CLOCK_MONOTONIC of this kernel */
    uint32_t layer;
    uint8_t kind;
    uint8_t phase;
    uint8_t flags;
    uint8_t thread; /**< number of the thread that made it, from 1 to PP_THREAD_SHARED */
    int64_t value;
    union {
        struct {
            int32_t epoch; /**< of a STEP; PP_MARK_UNKNOWN where not known */
            int32_t batch;
        };
        int64_t peak; /**< of a MEMORY */
    };
} pp_mark;

/** One kernel, copy or fill that ran on the GPU, 32 bytes; all times of the marks' clock. */
typedef struct pp_kernel {
    int64_t launched;  /**< ns, on the host: when it was put into its queue */
    int64_t start;     /**< ns, on the GPU */
    uint32_t duration; /**< ns, less as many bits as the flags say: pp_kernel_duration() */
    uint32_t flags;    /**< PP_KERNEL_* */
    union {
        uint64_t bytes; /**< of a copy or fill */
        uint64_t shape; /**< of a kernel: the same where grid, blocks and shared memory are */
    };
} pp_kernel;

enum {
    PP_KERNEL_COLLECTIVE = 1, /**< a kernel of NCCL's */
    /** No kernel: all that were launched before `launched` are written, and `start` of the
     * `kernels_lost` are among them: what is lost later is of later captures. */
    PP_KERNEL_COMPLETE = 2,
    /** With it: all but what is lost, on streams that have run anything so far; and nothing is said
     * of losses. */
    PP_KERNEL_SO_FAR = 1,
    PP_KERNEL_COPY = 4,       /**< no kernel but a copy or fill */
    PP_KERNEL_LONG_SHIFT = 3, /**< of a kernel: from this bit on the bits that its duration lacks;
                                   a copy has them from PP_KERNEL_NAME_SHIFT on */
    PP_KERNEL_LONG_MASK = 31,
    PP_KERNEL_COPY_SHIFT = 3,   /**< from this bit on its pp_copy_type ... */
    PP_KERNEL_MEMORY_SHIFT = 6, /**< ... and the host's memory, a pp_copy_memory */
    PP_KERNEL_COPY_MASK = 7,
    PP_KERNEL_MEMORY_MASK = 3,
    PP_KERNEL_DEVICE_SHIFT = 8, /**< CUDA's number of the GPU that ran it, in this process ... */
    PP_KERNEL_DEVICE_MASK = PP_RING_DEVICES - 1,
    PP_KERNEL_THREAD_SHIFT = 12, /**< ... and the thread that launched it */
    PP_KERNEL_THREAD_MASK = 255,
    PP_KERNEL_NAME_SHIFT = 20, /**< from this bit on: the number of its name; 0: it has none */
};

_Static_assert(PP_RING_KERNEL_NAMES < 1 << (32 - PP_KERNEL_NAME_SHIFT), "each has its number");

static inline unsigned pp_kernel_device(const pp_kernel *kernel)
{
    return kernel->flags >> PP_KERNEL_DEVICE_SHIFT & PP_KERNEL_DEVICE_MASK;
}

static inline uint8_t pp_kernel_thread(const pp_kernel *kernel)
{
    return (uint8_t)(kernel->flags >> PP_KERNEL_THREAD_SHIFT & PP_KERNEL_THREAD_MASK);
}

static inline unsigned pp_kernel_long_shift(const pp_kernel *kernel)
{
    return kernel->flags & PP_KERNEL_COPY ? PP_KERNEL_NAME_SHIFT : PP_KERNEL_LONG_SHIFT;
}

/** How long it ran, ns: what takes 4.3 s and more to one part in 2^31. */
static inline int64_t pp_kernel_duration(const pp_kernel *kernel)
{
    const unsigned lacks = kernel->flags >> pp_kernel_long_shift(kernel) & PP_KERNEL_LONG_MASK;
    const uint64_t ns = (uint64_t)kernel->duration << lacks;
    return ns <= INT64_MAX ? (int64_t)ns : INT64_MAX;
}

/** Its flags are there already. */
static inline void pp_kernel_set_duration(pp_kernel *kernel, int64_t ns)
{
    uint32_t lacks = 0;
    while (ns >> lacks > UINT32_MAX)
        lacks++;
    kernel->duration = (uint32_t)(ns >> lacks);
    kernel->flags |= lacks << pp_kernel_long_shift(kernel);
}

/** What a copy or fill is; the numbers are the wire's, as those of pp_copy_memory. */
typedef enum pp_copy_type {
    PP_COPY_H2D,
    PP_COPY_D2H,
    PP_COPY_D2D,
    PP_COPY_P2P, /**< from GPU to GPU */
    PP_COPY_FILL,
    PP_COPY_OTHER,
    PP_COPY_TYPES,
} pp_copy_type;

typedef enum pp_copy_memory {
    PP_COPY_UNKNOWN, /**< or the host's has no part in it */
    PP_COPY_PAGEABLE,
    PP_COPY_PINNED,
    PP_COPY_MEMORIES,
} pp_copy_memory;

/** Why a layer is not replayed in a phase (docs/replay.md); the numbers are the wire's. */
typedef enum pp_replay_skip {
    PP_LEFT_NOT = 0,
    PP_LEFT_OWN_FORWARD, /**< its forward is not torch's: it may change anything */
    PP_LEFT_OWN_DATA,    /**< its forward changes its weights, or waits for other processes */
    PP_LEFT_INPUT,       /**< an input that cannot be kept, or several devices */
    PP_LEFT_MEMORY,
    PP_LEFT_FAILED,    /**< the replay raised an exception */
    PP_LEFT_PAUSE,     /**< the limit of pauses was reached before */
    PP_LEFT_CALL,      /**< it was not called in the steps in which inputs were kept */
    PP_LEFT_GRADIENT,  /**< it has no backward */
    PP_LEFT_PARENT,    /**< what it does itself cannot be had without the modules in it */
    PP_LEFT_NO_MODULE, /**< work outside of modules: nothing can be called for it */
    PP_LEFT_COUNT,
} pp_replay_skip;

/** Why layers in a layer are not told, or not all of their work (docs/timing.md); the numbers are
 * the wire's. */
typedef enum pp_whole_reason {
    PP_WHOLE_NOT = 0,
    PP_WHOLE_FOLDED,     /**< the model has more layers than the ring */
    PP_WHOLE_SESSION,    /**< a session leaves layers out, has a depth or no Forward */
    PP_WHOLE_KERNELS,    /**< no kernels are recorded */
    PP_WHOLE_FUNCTION,   /**< it was compiled of a function */
    PP_WHOLE_COMPILER,   /**< the compiler tells nothing that is known here */
    PP_WHOLE_UNRECORDED, /**< nothing was recorded of a graph */
    PP_WHOLE_SHARED,     /**< a graph is not of its modules alone, or there were too many */
    PP_WHOLE_UNFIT,      /**< other kernels ran than were recorded */
    PP_WHOLE_COUNT,
} pp_whole_reason;

/** Calls in which the host may wait for the GPU (docs/timing.md). Of the numbers of one ring only:
 * elsewhere they have names. */
typedef enum pp_wait_call {
    PP_WAIT_ITEM,
    PP_WAIT_TOLIST,
    PP_WAIT_CPU,
    PP_WAIT_TO, /**< to the CPU */
    PP_WAIT_BOOL,
    PP_WAIT_INT,
    PP_WAIT_FLOAT,
    PP_WAIT_COMPLEX,
    PP_WAIT_INDEX,
    PP_WAIT_NONZERO,
    PP_WAIT_EQUAL,
    PP_WAIT_ALLCLOSE,
    PP_WAIT_DEVICE,
    PP_WAIT_EVENT,
    PP_WAIT_STREAM,
    PP_WAIT_CALLS,
} pp_wait_call;

static inline const char *pp_wait_name(uint8_t call)
{
    static const char *const names[] = {"item",
                                        "tolist",
                                        "cpu",
                                        "to",
                                        "bool",
                                        "int",
                                        "float",
                                        "complex",
                                        "index",
                                        "nonzero",
                                        "equal",
                                        "allclose",
                                        "cuda.synchronize",
                                        "Event.synchronize",
                                        "Stream.synchronize"};
    _Static_assert(sizeof names / sizeof *names == PP_WAIT_CALLS, "a name for each");
    return call < PP_WAIT_CALLS ? names[call] : "";
}

/** Where such calls are made: a line of the program. Written once, before the header's site_count
 * covers it. */
typedef struct pp_ring_site {
    uint32_t line;
    char file[PP_RING_FILE];
} pp_ring_site;

/** What a launch of a compiled graph is, where that is no kernel of the compiler's own. */
typedef enum pp_ring_op {
    PP_OP_UNKNOWN,     /**< may launch anything, or nothing */
    PP_OP_PRODUCT,     /**< of matrices: one kernel, and one behind it that adds up parts */
    PP_OP_ATTENTION,   /**< one kernel that says so in its name, or several */
    PP_OP_CONVOLUTION, /**< one kernel or several */
    PP_OP_SUM, /**< of what the written kernel before it left in parts: one kernel, and behind it
                    perhaps one that casts */
    PP_OPS,
} pp_ring_op;

/** One launch of a compiled graph, in their order. */
typedef struct pp_ring_launch {
    uint64_t name;  /**< pp_ring_hash of the kernel's; 0: a call of a library */
    uint32_t layer; /**< that it works for */
    uint32_t op;    /**< a pp_ring_op, of such a call */
} pp_ring_launch;

/** A compiled graph, as it is run within a region. Written once, as its launches are, before the
 * header's graph_count covers it. */
typedef struct pp_ring_graph {
    uint32_t graph;  /**< its number in marks, from 1 on */
    uint32_t region; /**< the layer whose piece it runs in */
    uint32_t first;  /**< of the table of launches */
    uint32_t count;
} pp_ring_graph;

/** Of a kernel's name, as far as the ring has it: of 64 bits, so that two of one process never
 * share one in practice; not 0. */
static inline uint64_t pp_ring_hash(const char *name, size_t n)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n && i < PP_RING_KERNEL_NAME - 1; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/** One layer; written once, before the header's layer_count covers it, but for reasons. */
typedef struct pp_ring_layer {
    int64_t parameters;
    uint8_t skip_reason[2]; /**< a pp_replay_skip each for forward and backward */
    uint8_t whole_reason;   /**< a pp_whole_reason */
    char name[PP_RING_NAME];
    char type[PP_RING_TYPE];
} pp_ring_layer;

/** A GPU of the process, as the driver tells it; 0 and "": not known. */
typedef struct pp_ring_device {
    char uuid[PP_RING_UUID];
    int32_t capability; /**< CUDA's: 10 times the major number, and the minor */
    int32_t multiprocessors;
    int32_t sm_khz; /**< the highest */
    int32_t memory_khz;
    int32_t memory_bits; /**< width of the bus */
    int32_t model;       /**< which of the header's gpu_models it is, from 1 on */
} pp_ring_device;

/** What the agent has put into batches already: an agent after this one goes on from there. */
typedef struct pp_ring_told {
    uint64_t lost; /**< of the header's counters of these names */
    uint64_t marks;
    int64_t cost;
    int64_t paused;
    uint64_t kernels_lost;
    uint32_t process; /**< the process's number in batches, plus one; 0: none yet */
    uint32_t reserved;
    /** The same of each of its GPUs, by CUDA's number. */
    uint32_t gpus[PP_RING_DEVICES];
} pp_ring_told;

/**
 * The start of the file. Each side writes only its own part, and the parts lie on lines of their
 * own. `tail` is written by pwrite(), which promises no atomicity: the producer believes it only
 * where `tail_check` is its complement.
 */
typedef struct pp_ring_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_size; /**< sizeof(pp_ring_header) */
    uint32_t mark_size;
    uint32_t mark_count;
    uint32_t layer_size;
    uint32_t layer_capacity;
    char python[PP_RING_TYPE];
    char torch[PP_RING_TYPE];
    char hostname[PP_RING_TEXT];
    char model[PP_RING_TEXT];          /**< class of the model; set when layers were found */
    char model_digest[PP_RING_DIGEST]; /**< of its modules and parameters, 16 hexadecimal digits;
                                          "": not known */
    char batch[PP_RING_TEXT];    /**< shapes of what it is trained with, "64x3x224x224 float32";
                                    by the steps marked so far; "": not known */
    char clock[16];              /**< "host", "kernels" or "cuda": docs/timing.md */
    char kernels[PP_RING_TYPE];  /**< why busy times are not known; "": they are */
    char copies[PP_RING_TYPE];   /**< why copies and fills are not recorded with kernels; "": they
                                    are, or kernels are not */
    char memory[PP_RING_TYPE];   /**< why it is not known what layers allocate; "": it is, or it was
                                    not looked at */
    char refusal[PP_RING_TYPE];  /**< why this process is not profiled; "": it can be */
    char pm[PP_RING_TYPE];       /**< "started": there is a sampler (samples.h); else why there is
                                      none; "": none was asked for, or it is not decided */
    char isolated[PP_RING_TYPE]; /**< why layers are not replayed (docs/replay.md); "": they are,
                                   or none was asked for */
    char gpus[PP_RING_GPUS];     /**< UUIDs, comma-separated: what is known without kernels */
    pp_ring_device devices[PP_RING_DEVICES];       /**< by CUDA's numbers in this process */
    char gpu_models[PP_RING_MODELS][PP_RING_TYPE]; /**< "NVIDIA H200"; "": no further one */
    uint32_t samplers; /**< GPUs of which each has a sampler of its own, as bits by these numbers;
                          0: of the one GPU there is one, or none */
    uint32_t samplers_started; /**< those of them that run, and those that do not, for a reason that
                                  `pm` tells */
    uint32_t samplers_failed;
    uint32_t reserved1;
    int32_t rank;
    int32_t world_size;
    int64_t process_id; /**< in the trainer's own pid namespace; for people */

    /* Written by the hook. */
    _Alignas(64) uint64_t head; /**< marks ever written */
    uint64_t lost;              /**< marks ever lost */
    uint64_t marks;             /**< marks ever made, the lost ones included */
    int64_t cost;               /**< ns that the hook has cost the training, as it measures it */
    int64_t paused;             /**< ns that the training was paused while layers were replayed */
    int64_t steps;              /**< steps ever counted */
    int64_t clock_error; /**< ns: how far GPU times may be off the host clock; 0 for "host" */
    uint32_t layer_count;
    uint32_t state;        /**< what is installed now, a pp_ring_mode */
    uint32_t failures;     /**< times that the hook gave up because of an error of its own */
    uint32_t detached;     /**< 1: the hook has left for good */
    uint32_t isolating;    /**< 1: inputs are kept, or layers replayed: the capture is to go on */
    uint64_t kernel_head;  /**< kernels ever written */
    uint64_t kernels_lost; /**< ever */
    uint32_t names_size;   /**< bytes of names of kernels that are written, whole ones */
    uint32_t site_count;
    uint32_t graph_count;
    uint32_t reserved2;

    /* Written by the agent. */
    _Alignas(64) uint64_t tail; /**< marks that are in batches, or will be in none */
    uint64_t tail_check;        /**< ~tail */
    uint64_t kernel_tail;       /**< kernels ever read, and its complement */
    uint64_t kernel_tail_check;
    pp_ring_told told;
    _Alignas(64) uint32_t mode; /**< a pp_ring_mode; the hook waits on it as a futex */
    uint32_t beat;              /**< changes once a second while the agent is there */
    uint32_t session; /**< a number of the session; 0: none. Where it changes, the control file
                         is to be read anew */
    uint32_t reserved[13];
} pp_ring_header;

_Static_assert(sizeof(pp_mark) == 32, "the layout is shared between builds");
_Static_assert(sizeof(pp_kernel) == 32, "the layout is shared between builds");
_Static_assert(sizeof(pp_ring_site) == 256, "the layout is shared between builds");
_Static_assert(sizeof(pp_ring_layer) == 256, "the layout is shared between builds");
_Static_assert(sizeof(pp_ring_launch) == 16, "the layout is shared between builds");
_Static_assert(sizeof(pp_ring_graph) == 16, "the layout is shared between builds");
_Static_assert(offsetof(pp_ring_header, mode) - offsetof(pp_ring_header, tail) >= 64,
               "the hook's thread does not wait on the line that every batch changes");
_Static_assert(sizeof(pp_ring_header) <= 4096, "a process that is not told takes a page");
_Static_assert(sizeof(pp_ring_header) % 64 == 0, "tables start on a line of their own");

#define PP_RING_LAYERS_AT sizeof(pp_ring_header)
#define PP_RING_MARKS_AT (PP_RING_LAYERS_AT + PP_RING_LAYERS * sizeof(pp_ring_layer))
#define PP_RING_KERNELS_AT (PP_RING_MARKS_AT + PP_RING_MARKS * sizeof(pp_mark))
/** Names of kernels as the compiler has mangled them, one behind the other, each with its NUL, by
 * their numbers. */
#define PP_RING_NAMES_AT (PP_RING_KERNELS_AT + PP_RING_KERNELS * sizeof(pp_kernel))
#define PP_RING_SITES_AT (PP_RING_NAMES_AT + PP_RING_NAMES_SIZE)
#define PP_RING_GRAPHS_AT (PP_RING_SITES_AT + PP_RING_SITES * sizeof(pp_ring_site))
#define PP_RING_LAUNCHES_AT (PP_RING_GRAPHS_AT + PP_RING_GRAPHS * sizeof(pp_ring_graph))
#define PP_RING_SIZE (PP_RING_LAUNCHES_AT + PP_RING_LAUNCHES * sizeof(pp_ring_launch))

#endif
