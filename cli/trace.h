/*
 * The timelines of a run in Chrome's trace event format, which Perfetto and chrome://tracing show;
 * steps are named as torch.profiler names them, so that what reads its traces finds them.
 */
#ifndef PP_CLI_TRACE_H
#define PP_CLI_TRACE_H

#include "common/error.h"

#include <stdio.h>

enum { PP_TRACE_ALL = -1 };

/**
 * Writes one JSON object: a process for each rank, in it a thread for the steps and one for each
 * phase. Times are us since the run's first batch, whoever's. Only steps that were kept in full are
 * in it. With a rank only that one's, and which it is: Holistic Trace Analysis wants a file of
 * each.
 */
int pp_trace(const char *folder, int rank, FILE *to, pp_error *err);

#endif
