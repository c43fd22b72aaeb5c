/*
 * An activity put together in memory, batch by batch, where no store stands in between: what the
 * agent's batches hold, and samples of GPUs taken beside them. No I/O.
 */
#ifndef PP_CONTROLLER_ACTIVITY_BUILDER_H
#define PP_CONTROLLER_ACTIVITY_BUILDER_H

#include "common/wire.h"
#include "controller/activity.h"

typedef struct pp_activity_builder pp_activity_builder;

/** NULL where memory is out. */
pp_activity_builder *pp_activity_builder_new(void);
/** NULL is allowed. */
void pp_activity_builder_free(pp_activity_builder *builder);

/**
 * Adds what a batch says; the batch stays the caller's. Its `session` and `seq` are not looked at:
 * the caller gives each batch once. What passes the limits of one solution is left out, and the
 * activity `truncated`. Fails with PP_ERR_NOMEM, and then holds a part of the batch.
 */
int pp_activity_builder_add(pp_activity_builder *builder, const pp_wire_batch *batch,
                            pp_error *err);

/** Adds one sample (ns since 1970, the metric's unit); those of one GPU and metric come in order.
 */
int pp_activity_builder_sample(pp_activity_builder *builder, const char *gpu, pp_metric metric,
                               int64_t stamp_ns, double value, pp_error *err);

/** One fine estimate of a process; texts are borrowed for the call. */
typedef struct pp_activity_fine_value {
    pp_wire_layer layer; /**< its id and texts; id 0: the phase is the step's */
    pp_wire_phase phase;
    pp_metric metric;
    double mean; /**< in the metric's unit; values that are not finite are left out */
    double standard_error;
    int64_t kernels;
    const char *source;
} pp_activity_fine_value;

/** What fine sampling tells of a process now: in place of all that it told before. A process of
 * which nothing was added is left out. */
int pp_activity_builder_fine(pp_activity_builder *builder, int64_t process, const char *gpu,
                             const pp_activity_fine_value *values, size_t n, pp_error *err);

/** What there is so far: the builder's, until it is changed. Layers are in the order asked for. */
const pp_activity *pp_activity_builder_get(pp_activity_builder *builder);

#endif
