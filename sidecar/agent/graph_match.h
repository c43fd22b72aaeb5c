/*
 * Which launch of a compiled graph each kernel of one of its runs is of. No I/O, no clock: what the
 * compiler has recorded, in order, and what ran, in order, go in; layers come out.
 *
 * Kernels that the compiler wrote have names of their own. All of a run's have to be those of the
 * graph, in its order: else it is another graph's run, or what runs beside it is in the way, and
 * nothing is told. Between two of them a call of a library may launch several kernels, or none.
 * They are told where all calls between two written kernels work for one layer, where names of
 * kernels say which call is whose, or where there are as many kernels as calls that launch one at
 * least. What cannot be known is not told: the caller leaves it to the region.
 */
#ifndef PP_AGENT_GRAPH_MATCH_H
#define PP_AGENT_GRAPH_MATCH_H

#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>

/** What a kernel's name says of it. */
typedef enum pp_kernel_kind {
    PP_KIND_OTHER,
    PP_KIND_WRITTEN, /**< by the compiler */
    PP_KIND_PRODUCT, /**< of matrices */
    PP_KIND_PARTS,   /**< adds up parts of the product before it */
    PP_KIND_ATTENTION,
    PP_KIND_SUM,
    PP_KIND_COPY, /**< a copy or fill: may be of the inputs of a CUDA graph */
} pp_kernel_kind;

/** Of a name as the compiler has mangled it. */
pp_kernel_kind pp_kernel_kind_of(const char *name);

typedef struct pp_graph_kernel {
    uint64_t name; /**< pp_ring_hash; 0: not known */
    pp_kernel_kind kind;
} pp_graph_kernel;

/** Sets of each kernel, in order of their launches, the layer that it works for, 0: not told.
 * False: these are no run of this graph, and none is told. */
bool pp_graph_match(const pp_ring_launch *launches, size_t count, const pp_graph_kernel *kernels,
                    size_t n, uint32_t *ret_layers);

#endif
