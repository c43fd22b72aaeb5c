/* How long one layer has to be replayed. */
#ifndef PP_ESTIMATE_REPLAY_DWELL_LENGTH_H
#define PP_ESTIMATE_REPLAY_DWELL_LENGTH_H

#include "estimate/regression/regression.h"

/**
 * How long a dwell of a session should be where nobody says: as long as six windows of an exporter
 * take that are read from Prometheus, with the time before the first of which it is not known
 * whether it lies in the dwell. 10 s where the exporter's interval is not known.
 */
int64_t pp_replay_length(const pp_regression_options *options);

/** The shortest dwell in which two windows may lie, as which a value takes: if they are published
 * at once, or (`sure`) however late. 0 where the exporter's interval is not known. */
int64_t pp_replay_length_least(const pp_regression_options *options, bool sure);

#endif
