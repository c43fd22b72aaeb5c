/* Keeps what pp_limits has of the cluster, by watches. */
#ifndef PP_OPERATOR_CACHE_LIMITS_WATCH_H
#define PP_OPERATOR_CACHE_LIMITS_WATCH_H

#include "common/error.h"

#include <stdbool.h>

typedef struct pp_operator pp_operator;

/** Fills op->limits from now on. */
int pp_limits_watch_start(pp_operator *op, pp_error *err);
void pp_limits_watch_stop(pp_operator *op);

/** Whether the first lists are there, or may not be had: then nothing is known to bound pods. */
bool pp_limits_watch_synced(const pp_operator *op);

#endif
