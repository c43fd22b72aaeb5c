/* The timelines of a run in Chrome's trace event format, as Perfetto and chrome://tracing show it.
 */
#ifndef PP_CLI_TRACE_H
#define PP_CLI_TRACE_H

#include "common/error.h"

#include <stdio.h>

/**
 * Writes one JSON object: a process for each rank, in it a thread for the steps and one for each
 * phase. Times are us since the run's first batch. Only steps that were kept in full are in it.
 */
int pp_trace(const char *folder, FILE *to, pp_error *err);

#endif
