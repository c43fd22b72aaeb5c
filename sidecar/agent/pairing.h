/*
 * From marks to steps with the pieces of work in them. No I/O, no clock: marks in, steps out.
 *
 * Per thread the innermost begin wins, so that pieces of one thread never overlap: what runs inside
 * (a forward inside an optimizer's closure, a layer that calls another) is cut out of what runs
 * around it. Begins that never end (exceptions) vanish at the step's end.
 *
 * A piece that is cut goes on behind what cut it, and is one call together with that; so are the
 * stretches of a parent's backward, of which all but the last end with PP_MARK_PAUSES.
 *
 * In backward only a layer's first and last nodes carry hooks. An end closes the layer's piece; a
 * further end, with no other mark of that thread in between, prolongs it (the AccumulateGrad of a
 * second parameter); with other marks in between it is ignored.
 *
 * A forward that records nothing, of a module that trains, is a checkpoint's where backward runs
 * the layer again in the same step: then it is the training's forward, and else inference.
 *
 * Waits of the host are of the innermost piece that is open in their thread.
 *
 * A step that is there for what it allocates (PP_MARK_STEP_MEMORY) has that beside its pieces.
 *
 * Marks lost, or impossible ones, break the capture: it ends at the last whole step and another
 * starts at the next step's end, so that no time is reported of which marks are missing.
 */
#ifndef PP_AGENT_PAIRING_H
#define PP_AGENT_PAIRING_H

#include "common/error.h"
#include "sidecar/agent/graphs.h"
#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>

/** Pieces, and waits, kept for one step; a step with more breaks the capture. */
#define PP_PAIRING_MAX_PIECES 200000
/** Runs of compiled graphs of a step; what more there are is not told. */
#define PP_PAIRING_MAX_RUNS 16384
/** Bytes that may be allocated. */
#define PP_PAIRING_MAX_BYTES (INT64_C(1) << 48)

typedef struct pp_piece {
    int64_t start; /**< ns, as in the marks */
    int64_t end;
    uint32_t layer; /**< 0: none, the phase is the step's as a whole */
    uint8_t phase;  /**< pp_mark_phase */
    uint8_t thread; /**< that it ran in; PP_THREAD_UNKNOWN: in those that run backward */
    bool trains;    /**< of inference: the module trains */
    bool goes_on;   /**< it is no whole call: that goes on in a later piece */
    int64_t busy;   /**< ns in which its kernels ran; -1: not known */
} pp_piece;

/** Waits of the host, of one call and line, within a piece, or outside of all. */
typedef struct pp_wait {
    uint32_t layer; /**< as the piece's; 0, and phase other: outside of pieces */
    uint8_t phase;
    bool trains;
    uint8_t call;  /**< pp_wait_call */
    uint32_t site; /**< of the ring; 0: not known */
    int64_t count;
    int64_t ns;
} pp_wait;

/** What was allocated at a mark of a step, and from there on. */
typedef struct pp_level {
    int64_t time;
    int64_t bytes;
    int64_t peak; /**< the most bytes until the next of these; >= bytes */
} pp_level;

/** A whole step of a capture. */
typedef struct pp_step {
    int64_t number;
    int64_t start;
    int64_t end;
    int32_t epoch;
    int32_t batch;
    int64_t gap;        /**< ns in which no kernel ran; -1: not known */
    uint64_t at;        /**< for the caller: where its mark was; pairing leaves it alone */
    bool kernels;       /**< times are the host's; kernels.h turns them into the GPU's */
    uint8_t gpu;        /**< then by kernels.h: the GPU, by CUDA's number, whose times these are */
    bool first;         /**< of its GPUs: what is the process's as a whole goes with it */
    uint64_t engine[4]; /**< threads that ran backward, as bits by their numbers */
    int64_t dwell;      /**< not 0: a part of a dwell of this number (docs/replay.md), no step */
    bool background;    /**< of a dwell, without its layer */
    pp_piece *pieces;   /**< in order of their ends, within the step; owned by the pairing */
    size_t count;
    pp_wait *waits; /**< owned as the pieces are */
    size_t wait_count;
    pp_graph_run *runs; /**< of compiled graphs, in order of their ends; owned as the pieces are */
    size_t run_count;
    bool memory;      /**< it is there for its levels: its times mean nothing */
    pp_level *levels; /**< in order; owned as the pieces are */
    size_t level_count;
} pp_step;

typedef enum pp_pairing_event {
    PP_PAIRING_NONE,
    PP_PAIRING_START, /**< a capture starts at step.end */
    PP_PAIRING_STEP,  /**< step is whole; valid until the next mark */
    PP_PAIRING_STOP,  /**< the capture has ended, at the last step's end */
} pp_pairing_event;

typedef struct pp_pairing pp_pairing;

/** NULL where memory is out. */
pp_pairing *pp_pairing_new(void);
void pp_pairing_free(pp_pairing *pairing);

/** Takes one mark. Returns a pp_pairing_event, or -1 where memory is out. */
int pp_pairing_feed(pp_pairing *pairing, const pp_mark *mark, pp_error *err);

/** The step that the last event is about. */
const pp_step *pp_pairing_step(const pp_pairing *pairing);

/** Whether a capture is running. */
bool pp_pairing_running(const pp_pairing *pairing);

/** Ends the capture because no more marks will come; true where one was running. */
bool pp_pairing_end(pp_pairing *pairing);

/** Captures that were broken so far. */
uint64_t pp_pairing_broken(const pp_pairing *pairing);

#endif
