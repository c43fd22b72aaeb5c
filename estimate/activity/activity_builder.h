/*
 * An activity put together in memory, batch by batch, where no store stands in between: what the
 * agent's batches hold, and samples of GPUs taken beside them. No I/O.
 */
#ifndef PP_ESTIMATE_ACTIVITY_ACTIVITY_BUILDER_H
#define PP_ESTIMATE_ACTIVITY_ACTIVITY_BUILDER_H

#include "common/wire.h"
#include "estimate/activity/activity.h"

typedef struct pp_activity_builder pp_activity_builder;

/** NULL where memory is out. */
pp_activity_builder *pp_activity_builder_new(void);
/** NULL is allowed. */
void pp_activity_builder_free(pp_activity_builder *builder);

/**
 * Adds what a batch says; the batch stays the caller's. Its `session` and `seq` are not looked at:
 * the caller gives each batch once. What passes the limits of one solution is left out, and the
 * activity `truncated`. Sampled values replace all of the same process that came before. Fails with
 * PP_ERR_NOMEM, and then holds a part of the batch.
 */
int pp_activity_builder_add(pp_activity_builder *builder, const pp_wire_batch *batch,
                            pp_error *err);

/** Adds one sample (ns since 1970, the metric's unit); those of one GPU and metric come in order.
 */
int pp_activity_builder_sample(pp_activity_builder *builder, const char *gpu, pp_metric metric,
                               int64_t stamp_ns, double value, pp_error *err);

/** What there is so far: the builder's, until it is changed. Layers are in the order asked for. */
const pp_activity *pp_activity_builder_get(pp_activity_builder *builder);

#endif
