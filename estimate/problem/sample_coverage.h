/* Which time a sample says something of, and which windows lie within a dwell. */
#ifndef PP_ESTIMATE_PROBLEM_SAMPLE_COVERAGE_H
#define PP_ESTIMATE_PROBLEM_SAMPLE_COVERAGE_H

#include "estimate/items/estimates.h"
#include "estimate/problem/dwells.h"
#include "estimate/problem/window_boundaries.h"

/** Which time a sample may say something of: up to when it was read, less `least_ns`; from a window
 * before that, less `most_ns`. */
typedef struct pp_coverage {
    pp_boundaries ticks; /**< where they are known they say it */
    int64_t window_ns;   /**< length of a window; 0: since the sample before */
    int64_t least_ns;    /**< how late a window's end is read, at least */
    int64_t most_ns;     /**< and at most */
    int64_t apart_ns;    /**< samples less apart may be of one window */
} pp_coverage;

/** What is known of it before anything is solved. */
pp_coverage pp_coverage_of(const pp_estimates_options *options);
/** Once the exporter's lag is known, less time is in doubt. */
void pp_coverage_narrow(pp_coverage *reading, const pp_regression_result *result);
/** The time that a metric's sample may say something of; from its own stamp on where that is since
 * a sample before it and there is none. */
pp_time_range pp_coverage_time(const pp_coverage *reading, const pp_regression_metric *metric,
                               size_t sample);
/** The time that it is most likely of; the same where nothing is more likely. */
pp_time_range pp_coverage_window(const pp_coverage *reading, const pp_regression_metric *metric,
                                 size_t sample);
/** Whether it may be of the same window as the sample before it that was taken last; 0: none was.
 */
bool pp_coverage_again(const pp_coverage *reading, const pp_regression_metric *metric, size_t last,
                       size_t sample);

/** A metric's windows in one dwell. */
typedef struct pp_windows {
    size_t n;
    double value;   /**< mean */
    double rate;    /**< mean of the replays in a ns */
    double each;    /**< ns at full level that each replay adds: their values by their replays */
    double squares; /**< of what the values differ by from what the replays in them say */
} pp_windows;

/** Those that lie in the dwell whole, each window once, whenever they were read. */
pp_windows pp_coverage_windows(const pp_replay_runs *dwells, const pp_regression_metric *metric,
                               const pp_replay_run *dwell, const pp_coverage *reading);

/** The first sample that was read at that time or later, but the very first, which has none before.
 */
size_t pp_coverage_first(const pp_regression_metric *metric, int64_t from);

#endif
