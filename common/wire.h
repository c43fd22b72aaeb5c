/*
 * The messages between agent and operator (docs/wire.md): the agent encodes batches and decodes the
 * answers, the operator decodes batches and encodes the answers. Structs hold absolute values;
 * delta coding exists in the text only. Decoding trusts nothing: whatever it accepts is consistent
 * and within the limits below, so that nothing behind it checks again.
 */
#ifndef PP_COMMON_WIRE_H
#define PP_COMMON_WIRE_H

#include "common/buf.h"
#include "common/chip.h"
#include "common/error.h"
#include "common/json.h"
#include "common/metric.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PP_WIRE_PATH "/v1/ingest"
#define PP_WIRE_SUBPROTOCOL "precisionprobe.v1"
#define PP_WIRE_AUDIENCE "precisionprobe"
/* Of the operator's URL: libwebsockets, which agents connect by, has 128 bytes for the longest line
 * of its request with the host in it ("Origin: http://HOST"). */
#define PP_WIRE_MAX_HOST 110
#define PP_WIRE_MAX_ENDPOINT 511

enum {
    PP_WIRE_MAX_MESSAGE = 1 << 20, /**< bytes of one message */
    PP_WIRE_MAX_INTERVALS = 20000, /**< per batch */
    PP_WIRE_MAX_STEPS = 10000,     /**< per batch */
    PP_WIRE_MAX_RUNS = 1024,       /**< of counted steps, per batch */
    PP_WIRE_MAX_LAYERS = 4096,     /**< per batch */
    PP_WIRE_MAX_CELLS = 40000,     /**< entries of a grid */
    PP_WIRE_MAX_DWELL = 1 << 24,   /**< number of a dwell */
    PP_WIRE_MAX_SKIP = 255,        /**< reason why a layer is not replayed, by number */
    PP_WIRE_MAX_WHOLE = 255,       /**< reason why layers in one are not told, by number */
    PP_WIRE_MAX_PM = 12293,        /**< rows: each layer in three phases, and the step's own */
    PP_WIRE_MAX_KERNELS = 16384,   /**< rows of kernels, per batch ... */
    PP_WIRE_MAX_NAMES = 4096,      /**< ... and their names */
    PP_WIRE_MAX_NAME = 1024,       /**< bytes of a kernel's name */
    PP_WIRE_MAX_WAITS = 8192,      /**< rows of waits, per batch ... */
    PP_WIRE_MAX_CALLS = 64,      /**< ... and names of their calls, of PP_WIRE_MAX_VERSION bytes */
    PP_WIRE_MAX_FILES = 1024,    /**< ... and their files, of PP_WIRE_MAX_TEXT bytes */
    PP_WIRE_MAX_COPIES = 8192,   /**< rows of copies, per batch */
    PP_WIRE_MAX_MEMORY = 8192,   /**< rows of memory, per batch */
    PP_WIRE_MAX_TEXT = 512,      /**< bytes of a layer name, type, model, hostname */
    PP_WIRE_DIGEST = 16,         /**< bytes of a model's digest */
    PP_WIRE_MAX_BATCH = 256,     /**< bytes of the shapes of a process' batches */
    PP_WIRE_MAX_ID = 64,         /**< bytes of a session UID or an agent instance */
    PP_WIRE_MAX_GPU = 128,       /**< bytes of a GPU's UUID */
    PP_WIRE_MAX_REFUSAL = 63,    /**< bytes of why a process is not profiled */
    PP_WIRE_MAX_LIBC = 16,       /**< bytes of a libc's name */
    PP_WIRE_MAX_VERSION = 64,    /**< bytes of the python, torch, clock and kernels texts */
    PP_WIRE_MAX_GPUS = 16,       /**< per process */
    PP_WIRE_MAX_PROCESS = 65535, /**< greatest process id, rank and world size */
    PP_WIRE_MAX_IN_FLIGHT = 64,  /**< unacknowledged batches per connection */
    PP_WIRE_MAX_MALFORMED = 3,   /**< the connection is closed at this many */
    PP_WIRE_MAX_REASON =
        256, /**< bytes of bye's reason, refused's message, why there is no PM sampling */
    PP_WIRE_MAX_CONTAINERS = 8192,  /**< lists and objects of one message */
    PP_WIRE_MAX_ANSWER = 128 << 10, /**< bytes of one message to an agent */
};

#define PP_WIRE_TIME_MIN INT64_C(946684800000000000)  /**< 2000-01-01 */
#define PP_WIRE_TIME_MAX INT64_C(4102444800000000000) /**< 2100-01-01 */
#define PP_WIRE_MAX_CAPTURE INT64_C(86400000000000)   /**< a day: what one batch may cover */
#define PP_WIRE_MAX_DURATION INT64_C(86400000000000)  /**< of an interval or a step */
#define PP_WIRE_MAX_COUNT (INT64_C(1) << 53)          /**< seq, step, epoch, batch, dropped, ... */
#define PP_WIRE_CELL_MIN INT64_C(100000)              /**< a grid's cell, ns */
#define PP_WIRE_CELL_MAX INT64_C(10000000)            /**< 10 ms: a coarser one loses the lag */
#define PP_WIRE_PERIOD_MIN INT64_C(1000)              /**< between samples of PM sampling, ns */
#define PP_WIRE_PERIOD_MAX INT64_C(10000000)          /**< 10 ms */

typedef enum pp_wire_phase {
    PP_WIRE_FORWARD = 0,
    PP_WIRE_BACKWARD = 1,
    PP_WIRE_OPTIMIZER = 2, /**< this one and those from ZERO_GRAD to OTHER: layer 0, and no other */
    PP_WIRE_RECOMPUTE = 3, /**< a forward that backward runs again */
    PP_WIRE_ZERO_GRAD = 4,
    PP_WIRE_DATA = 5,
    PP_WIRE_COMMUNICATION = 6,
    PP_WIRE_OTHER = 7,
    PP_WIRE_INFERENCE = 8, /**< a forward that records nothing for a backward; a layer's */
    PP_WIRE_PHASES,
} pp_wire_phase; /* docs/timing.md */

/** As in docs/timing.md, "forward" and so on; static. */
const char *pp_wire_phase_name(pp_wire_phase phase);

/** -1 for a name that is none. */
int pp_wire_phase_from_name(const char *name, pp_wire_phase *ret);

/** Whether it is a layer's; else it goes with layer 0. */
bool pp_wire_phase_has_layer(pp_wire_phase phase);

typedef struct pp_wire_process {
    int64_t id;   /**< number of the process within the pod, from 0 */
    int64_t rank; /**< 0 .. world_size - 1 */
    int64_t world_size;
    pp_strings gpus; /**< UUIDs, without duplicates; empty where there is none */
    char *hostname;
    char *python; /**< versions; never NULL, "" when not known */
    char *torch;
    char *clock;     /**< "host", "cuda", "kernels" or "foreign" */
    char *model;     /**< class of the model; never NULL, "" when not known */
    char *digest;    /**< of its modules and parameters, 16 hexadecimal digits; the same */
    char *batch;     /**< shapes of what it is trained with, as far as it is known; the same */
    char *kernels;   /**< why busy times are not known; never NULL, "" where they are */
    char *isolated;  /**< why layers are not replayed; never NULL, "": they are, or need not be */
    char *gpu_model; /**< what its one GPU is, "NVIDIA H200"; never NULL, "" when not known */
    pp_chip chip;    /**< what that can do; zeros: not known */
    bool further;    /**< a further GPU of a process that is told as another one, with its first */
} pp_wire_process;

/** Whether a text is a model's digest. */
bool pp_wire_is_digest(const char *text);

/** Whether anything is known of a chip, and nothing is out of range. */
bool pp_wire_chip_is_known(const pp_chip *chip);

/** The time that a batch says everything about. */
typedef struct pp_wire_capture {
    int64_t id;
    int64_t start; /**< ns since 1970 */
    int64_t end;   /**< ns since 1970, >= start */
    bool last;     /**< no later batch of this capture follows */
    /** Not 0: no training, but one layer replayed in one phase while the training waited
     * (docs/replay.md). Such captures with the same number differ in the layer only. */
    int64_t dwell;
    bool background;   /**< of a dwell: its layer was not run, only what goes with its replays */
    int64_t monotonic; /**< start on the node's CLOCK_MONOTONIC, ns; 0: not told */
} pp_wire_capture;

typedef struct pp_wire_layer {
    int64_t id; /**< >= 1, unique in the batch */
    char *name; /**< qualified module name */
    char *type; /**< class name */
    int64_t parameters;
    int64_t forward_skip; /**< why it is not replayed (pp_replay_skip); 0: no reason */
    int64_t backward_skip;
    int64_t whole; /**< why layers in it are not told (pp_whole_reason); 0: no reason */
} pp_wire_layer;

/** A step that ended within the batch's capture. */
typedef struct pp_wire_step {
    int64_t number;
    int64_t start;    /**< ns since 1970 */
    int64_t duration; /**< ns */
    int64_t epoch;    /**< -1: not known */
    int64_t batch;    /**< -1: not known */
    int64_t gap;      /**< ns of it in which no kernel ran; -1: not known */
} pp_wire_step;

/** A run of counted steps, one after the other: nothing is marked in them, nor recorded. */
typedef struct pp_wire_run {
    int64_t start;    /**< ns since 1970 */
    int64_t duration; /**< ns */
    int64_t steps;    /**< >= 1 */
} pp_wire_run;

/** One layer's work in one phase of one step. */
typedef struct pp_wire_interval {
    int64_t layer; /**< a layer's id, or 0 in a phase of the step as a whole */
    int64_t step;  /**< number of the step it belongs to; that step may end in a later batch */
    int64_t start; /**< ns since 1970 */
    int64_t duration;
    pp_wire_phase phase;
    int64_t kernels; /**< ns of it in which a kernel of it ran; -1: not known */
    int64_t goes_on; /**< 1: the same call of the layer goes on in a later interval */
} pp_wire_interval;

/** What one layer did in one phase in one cell of the grid. */
typedef struct pp_wire_cell {
    int64_t cell;  /**< number of the cell, from 0 at grid.start; never decreasing */
    int64_t layer; /**< as in an interval */
    int64_t busy;  /**< ns, 0 .. grid.cell */
    int64_t calls; /**< intervals that ended in the cell; 0 where one only passes through */
    pp_wire_phase phase;
    int64_t kernels; /**< as in an interval, their sum in the cell, 0 .. grid.cell; -1: not known */
} pp_wire_cell;

typedef struct pp_wire_grid {
    int64_t start; /**< ns since 1970; at most one cell before capture.start */
    int64_t cell;  /**< ns; 0: the batch carries intervals and no grid */
    pp_wire_cell *cells;
    size_t count;
} pp_wire_grid;

/** Kernels of one name that a layer launched in a phase. */
typedef struct pp_wire_kernel {
    int64_t layer; /**< as in an interval */
    pp_wire_phase phase;
    int64_t name;     /**< place of its name in pp_wire_kernels.names */
    int64_t count;    /**< how many ran, >= 1 */
    int64_t duration; /**< ns: their own times added up, whatever ran beside them */
} pp_wire_kernel;

/** Which kernels ran in so many steps, of this batch and before; of each name, layer and phase a
 * row. No step is in two batches'. */
typedef struct pp_wire_kernels {
    int64_t steps;    /**< of which they are; 0: of those of the batch before, or no rows */
    pp_strings names; /**< demangled, without control characters; "": those not told apart */
    pp_wire_kernel *rows;
    size_t count;
} pp_wire_kernels;

/** Waits of the host in one call of one line, within a layer and phase. */
typedef struct pp_wire_wait {
    int64_t layer; /**< as in an interval */
    pp_wire_phase phase;
    int64_t call;     /**< place of its name in pp_wire_waits.calls */
    int64_t file;     /**< place of the line's file in pp_wire_waits.files */
    int64_t line;     /**< 0: not known */
    int64_t count;    /**< calls, >= 1 */
    int64_t steps;    /**< in which there were any, 1 .. count */
    int64_t duration; /**< ns that the host was in them */
} pp_wire_wait;

/** Where the host waited in so many steps, of this batch and before; of each call, line, layer and
 * phase a row. No step is in two batches'. */
typedef struct pp_wire_waits {
    int64_t steps; /**< of which they are; 0: of those of the batch before, or nothing is known */
    pp_strings calls; /**< "item": without control characters, as files */
    pp_strings files; /**< "": not known */
    pp_wire_wait *rows;
    size_t count;
} pp_wire_waits;

/** What a copy is, between host, device and peers, and a fill. */
typedef enum pp_wire_copy_type {
    PP_WIRE_H2D = 0,
    PP_WIRE_D2H,
    PP_WIRE_D2D,
    PP_WIRE_P2P,
    PP_WIRE_FILL,
    PP_WIRE_COPY_OTHER,
} pp_wire_copy_type;

/** The host's memory that has part in a copy. */
typedef enum pp_wire_copy_memory {
    PP_WIRE_MEMORY_UNKNOWN = 0, /**< or none has */
    PP_WIRE_PAGEABLE,
    PP_WIRE_PINNED,
} pp_wire_copy_memory;

/** Copies of a type, or fills, that a layer launched in a phase. */
typedef struct pp_wire_copy {
    int64_t layer; /**< as in an interval */
    pp_wire_phase phase;
    int64_t type;     /**< a pp_wire_copy_type */
    int64_t memory;   /**< a pp_wire_copy_memory */
    int64_t count;    /**< >= 1 */
    int64_t bytes;    /**< of all of them */
    int64_t duration; /**< ns that they ran, each in full */
} pp_wire_copy;

/** Copies and fills of so many steps, as kernels. */
typedef struct pp_wire_copies {
    int64_t steps; /**< of which they are; 0: of those of the batch before, or nothing is known */
    pp_wire_copy *rows;
    size_t count;
} pp_wire_copies;

/** "h2d"; "" of what is none. And "pageable", "" of one that is not known. */
const char *pp_wire_copy_type_name(int64_t type);
const char *pp_wire_copy_memory_name(int64_t memory);

/** What torch's CUDA allocator had allocated while a layer's phase ran. */
typedef struct pp_wire_memory_row {
    int64_t layer; /**< as in an interval */
    pp_wire_phase phase;
    int64_t peak; /**< the most bytes, in any of the steps */
    int64_t left; /**< bytes at its ends less those at its begins, summed over the steps */
} pp_wire_memory_row;

/** Memory of so many steps, as copies. */
typedef struct pp_wire_memory {
    int64_t steps; /**< of which it is; 0: of those of the batch before, or nothing is known */
    pp_wire_memory_row *rows;
    size_t count;
} pp_wire_memory;

/** What PM sampling (sampling.md) tells of a layer in a phase: millionths, -1 where not known. */
enum {
    PP_WIRE_PM_METRICS = PP_METRIC_SAMPLED_COUNT, /**< by pp_metric */
    PP_WIRE_PM_LEAST = 4,                         /**< as agents of 0.1 have them */
};

typedef struct pp_wire_pm_row {
    int64_t layer; /**< as in an interval */
    pp_wire_phase phase;
    int64_t kernels; /**< of it that ran while it was sampled */
    int64_t mean[PP_WIRE_PM_METRICS];
    int64_t error[PP_WIRE_PM_METRICS]; /**< standard errors */
} pp_wire_pm_row;

/** How all of a process's sampling went so far. */
typedef struct pp_wire_pm_sampling {
    char *chip;      /**< "GH100", an id; NULL: not known */
    int64_t period;  /**< ns between samples, as they are taken by now; 0: none of this is known */
    int64_t times;   /**< that the GPU was sampled */
    int64_t failed;  /**< of these, times of which nothing could be told */
    int64_t sampled; /**< ns of samples that values come from, and ... */
    int64_t samples; /**< ... how many they are */
    int64_t lag;     /**< ns: the samples' clock, the GPU's, less the host's CLOCK_REALTIME */
    int64_t lag_error;   /**< ns: its standard error */
    int64_t sampler_cpu; /**< ns of a processor that the sampler has taken */
} pp_wire_pm_sampling;

/** What speaks against a metric's values, by number: docs/wire.md. */
enum {
    PP_WIRE_DOUBT_UNEXPLAINED = 1,
    PP_WIRE_DOUBT_TENANT = 2,
    PP_WIRE_MAX_DOUBT = PP_WIRE_DOUBT_TENANT,
};

/** Estimates of a metric against samples that were held out; millionths. */
typedef struct pp_wire_pm_closure {
    int64_t metric;     /**< by its place in `sources` */
    int64_t held;       /**< mean of the samples held out */
    int64_t difference; /**< what the estimates say of them, less that; may be negative */
    int64_t noise;      /**< what is left of a sample, standard deviation; -1: not known */
} pp_wire_pm_closure;

/** How captures are predicted by those before them, and what speaks against a metric's values;
 * millionths, -1: not known. */
typedef struct pp_wire_pm_quality {
    int64_t metric;    /**< by its place in `sources` */
    int64_t explained; /**< of samples of captures, the share of their variance that captures
                            before them predict; 0 where that is less */
    int64_t miss;      /**< root mean square of these predictions less the samples */
    int64_t items;     /**< layers in a phase whose mean was predicted so, a number ... */
    int64_t items_z;   /**< ... and the root mean square of their errors over standard errors */
    int64_t gap;       /**< mean where no kernel ran, 0 where that is less */
    int64_t gap_error; /**< its standard error */
    int64_t doubt;     /**< what speaks against the metric's values, by its number; 0: nothing */
} pp_wire_pm_quality;

/** All that is known of one process by now: the next one of it replaces it. Or why nothing more
 * will be known: what was told before stays. */
typedef struct pp_wire_pm {
    char *why; /**< 1 to PP_WIRE_MAX_REASON bytes, and nothing of what follows; NULL: none */
    char *gpu; /**< UUID; NULL: the batch carries no values */
    pp_strings sources; /**< of each metric, by its own name; "": not offered. At least
                           PP_WIRE_PM_LEAST; of metrics behind them nothing is known */
    pp_wire_pm_row *rows;
    size_t count;
    pp_wire_pm_sampling sampling;
    pp_wire_pm_closure *closures; /**< of metrics with samples held out, each once */
    size_t closure_count;
    pp_wire_pm_quality *qualities; /**< of metrics that are known, each once */
    size_t quality_count;
} pp_wire_pm;

/** What the hook measured of its own cost in this batch. */
typedef struct pp_wire_cost {
    int64_t nanoseconds;
    int64_t marks;
    int64_t paused; /**< ns that the training was paused for replays; in no other cost */
} pp_wire_cost;

/** What is in no batch, since the batch before. */
typedef struct pp_wire_left_out {
    int64_t steps; /**< marked ones that lacked kernels, or may have */
    int64_t lost;  /**< kernels whose records were lost */
    int64_t late;  /**< that came when their step had been told: its busy times lack them */
} pp_wire_left_out;

/**
 * One self-contained batch. Every text is owned and not NULL after decoding; a batch built by hand
 * for encoding may leave optional ones NULL.
 */
typedef struct pp_wire_batch {
    char *session;  /**< UID of the ProfileSession */
    char *instance; /**< UUID of the agent process */
    int64_t seq;    /**< >= 0, counted by the agent process */
    pp_wire_process process;
    pp_wire_capture capture;
    pp_wire_layer *layers;
    size_t layer_count;
    pp_wire_step *steps;
    size_t step_count;
    pp_wire_run *runs; /**< that ended since the batch before, at the capture's end or earlier */
    size_t run_count;
    pp_wire_interval *intervals;
    size_t interval_count;
    pp_wire_grid grid;
    pp_wire_kernels kernels; /**< none where they are not recorded, or by an earlier agent */
    pp_wire_waits waits;     /**< none where the host never waited, or by an earlier agent */
    pp_wire_copies copies;   /**< none where they are not recorded, or by an earlier agent */
    pp_wire_memory memory;   /**< none where it is not known, or by an earlier agent */
    pp_wire_pm pm;
    int64_t dropped;           /**< marks lost since the batch before */
    pp_wire_left_out left_out; /**< all 0 by an earlier agent */
    pp_wire_cost cost;
} pp_wire_batch;

/** Whether anything is missing. */
static inline bool pp_wire_leaves_out(const pp_wire_left_out *l)
{
    return l->steps > 0 || l->lost > 0 || l->late > 0;
}

/** The batch's layer with this id, the batch's own; NULL: it has none. */
const pp_wire_layer *pp_wire_find_layer(const pp_wire_batch *batch, int64_t id);
/** Its name; "": it has none. */
const char *pp_wire_layer_name(const pp_wire_batch *batch, int64_t id);

/**
 * Decodes and checks a `batch` object (its `type` is not looked at). On success *ret owns the
 * batch. On failure returns -1 with PP_ERR_INVALID and the element's name in err->field
 * ("intervals.duration[3]"), or PP_ERR_TOO_LARGE with the field whose limit was passed.
 */
int pp_wire_batch_decode(const json_t *object, pp_wire_batch **ret, pp_error *err);

/**
 * Appends the batch's text to out. Checks the same rules as decoding, so that an agent learns of a
 * defect of its own before it sends; on failure out is as it was. PP_ERR_TOO_LARGE where the text
 * passes out's maximum (give it PP_WIRE_MAX_MESSAGE).
 */
int pp_wire_batch_encode(const pp_wire_batch *batch, pp_buf *out, pp_error *err);

/** Whether an id (opaque here, but it ends up in logs, keys and queries) has 1 to max bytes, all of
 * them letters, digits and -_.:/ */
bool pp_wire_is_id(const char *text, size_t max);

/** Addresses of the operator's that an agent is told, at most: one of each family, and room. */
#define PP_WIRE_MAX_ADDRESSES 8

/** Whether a text is a literal IPv4 or IPv6 address, without a zone or brackets. */
bool pp_wire_is_address(const char *text);

/** Whether it says nothing of any time, and only what PM sampling told, or why it tells nothing.
 */
bool pp_wire_is_pm_only(const pp_wire_batch *batch);

/** Whether its steps and intervals are the training's, each at its time: sums in a grid have no
 * times of their own, and what is replayed is no training. */
bool pp_wire_has_order(const pp_wire_batch *batch);

/** Makes every stamp of the batch earlier by so many ns: they go on another clock. What PM
 * sampling told keeps its lag, which is the node's own. Fails with PP_ERR_INVALID, and changes
 * nothing, where a stamp would leave the years 2000 to 2099. */
int pp_wire_batch_shift(pp_wire_batch *batch, int64_t by_ns, pp_error *err);

/** Bytes of memory that a decoded batch takes, about. */
size_t pp_wire_batch_bytes(const pp_wire_batch *batch);

/** Lists and objects of a JSON text, each of which takes a hundred times the two bytes of "{}" once
 * it is parsed. What is no JSON gives any number. */
size_t pp_wire_count_containers(const char *text, size_t len);

/** Frees a batch and all it owns; NULL is allowed. */
void pp_wire_batch_free(pp_wire_batch *batch);

typedef enum pp_wire_type {
    PP_WIRE_BATCH,
    PP_WIRE_BYE,
    PP_WIRE_WELCOME,
    PP_WIRE_ACK,
    PP_WIRE_REFUSED,
    PP_WIRE_LEAVE,
    PP_WIRE_TIME,
    PP_WIRE_HOOK,
} pp_wire_type;

/** Reads the `type` of a message. */
int pp_wire_type_of(const json_t *object, pp_wire_type *ret, pp_error *err);

/** The agent is done: everything it had is acknowledged. */
typedef struct pp_wire_bye {
    char session[PP_WIRE_MAX_ID + 1];
    char instance[PP_WIRE_MAX_ID + 1];
    char reason[PP_WIRE_MAX_REASON + 1];
} pp_wire_bye;

/** Whose captures shall be sampled, and whether now. */
typedef struct pp_wire_welcome {
    char session[PP_WIRE_MAX_ID + 1]; /**< "": no session wants this pod now */
    bool sampling;
    json_t *settings; /**< of that session, as in the pod's annotation; borrowed; NULL: none */
    int64_t time;     /**< number of the question what time it is there; 0: it is not asked */
    bool hook;        /**< the agent is to tell of its pod's hook, now and where that changes */
} pp_wire_welcome;

/** The operator asks what time it is at the agent; the agent answers as soon as it can. */
typedef struct pp_wire_time {
    int64_t id;        /**< of the question, from 1 on */
    int64_t realtime;  /**< CLOCK_REALTIME, ns since 1970; 0: it is the question */
    int64_t monotonic; /**< CLOCK_MONOTONIC at the same moment, ns */
} pp_wire_time;

/** What the agent sees of the hook in its pod, by now. */
typedef struct pp_wire_hook {
    bool loaded; /**< a Python has loaded it at its start, or a foreign hook has posted events */
    bool torch;  /**< a process with torch has come, or a foreign hook */
    char libc[PP_WIRE_MAX_LIBC + 1]; /**< of the trainers' images: "glibc", "musl" or "none"; "":
                                        not known, or several */
    char refusal[PP_WIRE_MAX_REFUSAL + 1]; /**< why a process is not profiled, and none was yet;
                                              "": no reason */
} pp_wire_hook;

/** The trainers have ended for good: an agent that cannot see that itself shall end too. */
typedef struct pp_wire_leave {
    char session[PP_WIRE_MAX_ID + 1]; /**< "": the pod has none */
} pp_wire_leave;

/** The transaction that holds exactly this batch has committed. */
typedef struct pp_wire_ack {
    char instance[PP_WIRE_MAX_ID + 1];
    int64_t seq;
} pp_wire_ack;

/** The batch will never be taken. */
typedef struct pp_wire_refused {
    int64_t seq;   /**< -1 where the message had none that could be read */
    char code[32]; /**< pp_error_code_name of the reason */
    char field[160];
    char message[PP_WIRE_MAX_REASON + 1];
} pp_wire_refused;

/* Each appends one message to out, or leaves out as it was and returns -1. */
int pp_wire_bye_encode(const pp_wire_bye *bye, pp_buf *out, pp_error *err);
int pp_wire_welcome_encode(const pp_wire_welcome *welcome, pp_buf *out, pp_error *err);
int pp_wire_leave_encode(const pp_wire_leave *leave, pp_buf *out, pp_error *err);
int pp_wire_ack_encode(const pp_wire_ack *ack, pp_buf *out, pp_error *err);
int pp_wire_refused_encode(const pp_wire_refused *refused, pp_buf *out, pp_error *err);
int pp_wire_time_encode(const pp_wire_time *time, pp_buf *out, pp_error *err);
int pp_wire_hook_encode(const pp_wire_hook *hook, pp_buf *out, pp_error *err);

/* Each decodes one message whose type is known; PP_ERR_INVALID with the field on failure. */
int pp_wire_bye_decode(const json_t *object, pp_wire_bye *ret, pp_error *err);
int pp_wire_welcome_decode(const json_t *object, pp_wire_welcome *ret, pp_error *err);
int pp_wire_leave_decode(const json_t *object, pp_wire_leave *ret, pp_error *err);
int pp_wire_ack_decode(const json_t *object, pp_wire_ack *ret, pp_error *err);
int pp_wire_refused_decode(const json_t *object, pp_wire_refused *ret, pp_error *err);
int pp_wire_time_decode(const json_t *object, pp_wire_time *ret, pp_error *err);
int pp_wire_hook_decode(const json_t *object, pp_wire_hook *ret, pp_error *err);

enum { PP_WIRE_CLOCK_SAID = 128 }; /**< bytes that it takes, with the NUL */

/** What an agent leaves as its container's last words where the operator's certificate is not valid
 * by its clock, which is ahead by so many seconds at least, or behind where that is negative. */
void pp_wire_clock_said(int64_t ahead_s, char *out, size_t size);

/** Reads it back; false where the text is something else. */
bool pp_wire_clock_read(const char *text, int64_t *ret_ahead_s);

/** Fills a refusal from the error that decoding gave. */
void pp_wire_refused_from_error(const pp_error *why, int64_t seq, pp_wire_refused *ret);

#endif
