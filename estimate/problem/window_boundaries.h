/* When the windows end that a GPU's driver gives, once that was found. */
#ifndef PP_ESTIMATE_PROBLEM_WINDOW_BOUNDARIES_H
#define PP_ESTIMATE_PROBLEM_WINDOW_BOUNDARIES_H

#include "estimate/regression/regression.h"

/** ns between two ends that the search tries (boundary_search.c): they are found no better. */
#define PP_BOUNDARIES_STEP 10e6

/** When the windows end that are read from a GPU, where that was found: at `phase_ns` after the
 * base and every `every_ns`, to be read `late_ns` after. Where that is 0: since the sample before,
 * as late. */
typedef struct pp_boundaries {
    bool known;
    int64_t base_ns;
    double every_ns;
    double phase_ns;
    double late_ns;
    double before_ns; /**< ends may be so much earlier */
    double after_ns;  /**< or later */
    double seen_ns;   /**< from the base on, the time that it was found from; 0: any */
} pp_boundaries;

/** ns after the base: the end of the latest window that is published by then. */
double pp_boundaries_end(const pp_boundaries *ticks, int64_t stamp);
/** What that end may be as well: the one before it, or after, where it was read so close to when a
 * window is published that nobody knows which was there. */
pp_time_range pp_boundaries_range(const pp_boundaries *ticks, int64_t stamp);

#endif
