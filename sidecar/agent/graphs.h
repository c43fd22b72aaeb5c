/*
 * The compiled graphs that a process has told of, and whose the kernels of their runs are. No I/O,
 * no clock: what the ring has of graphs and of names goes in.
 */
#ifndef PP_AGENT_GRAPHS_H
#define PP_AGENT_GRAPHS_H

#include "common/error.h"
#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_graphs pp_graphs;

/** NULL where memory is out. */
pp_graphs *pp_graphs_new(void);
void pp_graphs_free(pp_graphs *graphs);

/** Bytes of the ring's names that it has: the place of the next one. */
uint32_t pp_graphs_named(const pp_graphs *graphs);

/** Takes names as the ring has them, from there on; one that is not whole yet waits for the rest.
 */
int pp_graphs_name(pp_graphs *graphs, const char *bytes, size_t n, pp_error *err);

/** Graphs that it has, of the ring's table. */
uint32_t pp_graphs_count(const pp_graphs *graphs);

/** Takes the next one, with its launches, of a process with so many layers. What is impossible
 * tells nothing. */
int pp_graphs_add(pp_graphs *graphs, const pp_ring_graph *graph, const pp_ring_launch *launches,
                  uint32_t layers, pp_error *err);

/** A graph's run on the host. */
typedef struct pp_graph_run {
    int64_t start; /**< ns, as in the marks */
    int64_t end;
    uint32_t graph; /**< its number; 0: nothing is known of it */
    uint8_t thread;
} pp_graph_run;

/** A kernel of a step, in order of the launches; and whose it is. */
typedef struct pp_graphs_kernel {
    int64_t launched;
    uint32_t name;  /**< the number of its name; 0: it has none */
    uint32_t in;    /**< the layer of the piece that it is in; 0: none, or it is no kernel */
    uint8_t thread; /**< PP_THREAD_UNKNOWN: not known */
    uint32_t layer; /**< the one inside of that layer that it works for; 0: that one itself */
    uint32_t run;   /**< then the number of the run, from 1 on */
} pp_graphs_kernel;

/** What came of the runs so far. */
typedef struct pp_graphs_told {
    uint64_t runs;    /**< of these */
    uint64_t unknown; /**< nothing was recorded of the graph, or of what it is in this region */
    uint64_t unfit;   /**< the kernels were others than recorded */
} pp_graphs_told;

/** Sets `layer` and `run` of each kernel of a step. */
int pp_graphs_tell(pp_graphs *graphs, const pp_graph_run *runs, size_t count,
                   pp_graphs_kernel *kernels, size_t n, pp_error *err);

pp_graphs_told pp_graphs_so_far(const pp_graphs *graphs);

/** Why layers in a region were not told of all its runs: a pp_whole_reason; PP_WHOLE_NOT: they
 * were, or it did not run, or is none. */
uint8_t pp_graphs_why(const pp_graphs *graphs, uint32_t region);

#endif
