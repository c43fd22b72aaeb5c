/* Between the files of the solution: the attribution problem with what it stands for. */
#ifndef PP_CONTROLLER_SOLUTION_INTERNAL_H
#define PP_CONTROLLER_SOLUTION_INTERNAL_H

#include "controller/solution.h"

/** Observed time of pieces, each in full where they overlap, and a part of it: the time in which
 * kernels ran, or none did. */
typedef struct pp_problem_time {
    int64_t total_ns;
    int64_t known_ns; /**< of the pieces whose part is known */
    int64_t part_ns;
    double calls; /**< of the pieces whose part is known; one that is observed in part is a part */
    bool known;   /**< of any piece */
} pp_problem_time;

/** One (layer, phase); texts are borrowed from the activity. */
typedef struct pp_problem_item {
    const char *layer; /**< "" for the step's own phases */
    pp_attribution_phase phase;
    const char *type;
    int64_t parameters; /**< -1: not known */
    int64_t calls;
    pp_problem_time time; /**< and the time of its kernels */
} pp_problem_item;

/** One stretch of replays (docs/isolated.md). */
typedef struct pp_dwell {
    uint32_t process;
    int64_t stretch;
    int64_t number; /**< those with the same number differ in the layer only */
    bool background;
    int64_t start_ns;
    int64_t end_ns;
    int32_t layer;
    uint8_t phase;
    int64_t calls;   /**< replays; of a background, without the layer */
    int64_t busy_ns; /**< of its layer's kernels */
    int64_t rest_ns; /**< of the kernels that go with its replays */
    bool known;      /**< kernels were recorded */
    size_t first_point;
    size_t n_points;
} pp_dwell;

/** How many replays of a dwell had begun before that time. */
typedef struct pp_dwell_point {
    size_t dwell; /**< index into items */
    int64_t at_ns;
    double calls;
} pp_dwell_point;

typedef struct pp_dwells {
    pp_dwell *items;
    size_t count;
    pp_dwell_point *points; /**< of each dwell next to each other, in the order of time */
    size_t n_points;
    pp_attribution_span *spans; /**< the time of all of them, in order; none touches another */
    size_t n_spans;
} pp_dwells;

/** When the windows end that are read from a GPU, where that was found: at `phase_ns` after the
 * base and every `every_ns`, to be read `late_ns` after. Where that is 0: since the sample before,
 * as late. */
typedef struct pp_ticks {
    bool known;
    int64_t base_ns;
    double every_ns;
    double phase_ns;
    double late_ns;
    double before_ns; /**< ends may be so much earlier */
    double after_ns;  /**< or later */
    double seen_ns;   /**< from the base on, the time that it was found from; 0: any */
} pp_ticks;

/** Which time a sample may say something of: up to when it was read, less `least_ns`; from a window
 * before that, less `most_ns`. */
typedef struct pp_reading {
    pp_ticks ticks;    /**< where they are known they say it */
    int64_t window_ns; /**< length of a window; 0: since the sample before */
    int64_t least_ns;  /**< how late a window's end is read, at least */
    int64_t most_ns;   /**< and at most */
    int64_t apart_ns;  /**< samples less apart may be of one window */
} pp_reading;

/** What the solver gets; everything is owned but the texts. */
typedef struct pp_problem {
    pp_problem_item *items; /**< sorted by layer and phase; parallel to names */
    pp_attribution_item *names;
    size_t n_items;
    pp_attribution_interval *intervals;
    size_t n_intervals;
    pp_attribution_cell *cells;
    size_t n_cells;
    pp_attribution_span *steps;
    size_t n_steps;
    pp_attribution_span *stretches; /**< sorted, apart from each other */
    size_t n_stretches;
    pp_problem_time step_time;  /**< and the time in which no kernel ran */
    pp_problem_time other_time; /**< pieces of phase other, and the time of their kernels */
    pp_problem_time piece_time; /**< all pieces */
    const char *kernels;  /**< why busy times are not known; borrowed; "": no process says so */
    const char *isolated; /**< why layers were not replayed; the same */
    pp_dwells dwells;
    pp_reading reading;
    pp_attribution_metric metrics[PP_METRIC_COUNT];
    pp_metric metric_ids[PP_METRIC_COUNT];
    size_t n_metrics;
    pp_attribution_sample *samples; /**< of all metrics, each metric's in the order of time */
    pp_attribution_metric all[PP_METRIC_COUNT]; /**< metrics with the samples of dwells too */
    pp_attribution_sample *all_samples;
    bool truncated;
} pp_problem;

int pp_problem_build(const pp_activity *activity, const char *gpu,
                     const pp_solution_options *options, pp_problem *ret, pp_error *err);
void pp_problem_done(pp_problem *p);

/** The part of all of the time, by the pieces that tell; -1 where none does. */
int64_t pp_problem_part(const pp_problem_time *time, const pp_problem_time *by);

/** ns that kernels of a layer ran in a call of it, in the observed time; 0: not known. */
double pp_problem_busy_of_call(const pp_problem *p, const char *layer, pp_attribution_phase phase);

/** Sorts spans in place and joins those that touch or overlap; returns how many are left. */
size_t pp_spans_join(pp_attribution_span *spans, size_t n);

/** Whether a process used the GPU; `gpu` "": whether it used none. */
bool pp_solution_uses(const pp_activity *activity, uint32_t process, const char *gpu);

/** All stretches of replays on a GPU. */
int pp_dwells_make(const pp_activity *activity, const char *gpu, pp_dwells *ret, pp_error *err);
void pp_dwells_done(pp_dwells *dwells);
/** Replays of a dwell between two times, ns: as even as they were between what is known. */
double pp_dwell_calls(const pp_dwells *dwells, const pp_dwell *dwell, double from, double to);
/** Whether some of the time is a dwell's. */
bool pp_dwells_touch(const pp_dwells *dwells, pp_attribution_span time);

/** What is known of it before anything is solved. */
pp_reading pp_reading_of(const pp_solution_options *options);
/** Once the exporter's lag is known, less time is in doubt. */
void pp_reading_narrow(pp_reading *reading, const pp_attribution_result *result);
/** The time that a metric's sample may say something of; from its own stamp on where that is since
 * a sample before it and there is none. */
pp_attribution_span pp_reading_time(const pp_reading *reading, const pp_attribution_metric *metric,
                                    size_t sample);
/** The time that it is most likely of; the same where nothing is more likely. */
pp_attribution_span pp_reading_window(const pp_reading *reading,
                                      const pp_attribution_metric *metric, size_t sample);
/** Whether it may be of the same window as the sample before it that was taken last; 0: none was.
 */
bool pp_reading_again(const pp_reading *reading, const pp_attribution_metric *metric, size_t last,
                      size_t sample);
/** ns after the base: the end of the latest window that is published by then. */
double pp_ticks_end(const pp_ticks *ticks, int64_t stamp);
/** What that end may be as well: the one before it, or after, where it was read so close to when a
 * window is published that nobody knows which was there. */
pp_attribution_span pp_ticks_range(const pp_ticks *ticks, int64_t stamp);

/** A metric's windows in one dwell. */
typedef struct pp_windows {
    size_t n;
    double value;   /**< mean */
    double rate;    /**< mean of the replays in a ns */
    double each;    /**< ns at full level that each replay adds: their values by their replays */
    double squares; /**< of what the values differ by from what the replays in them say */
} pp_windows;

/** Those that lie in the dwell whole, each window once, whenever they were read. */
pp_windows pp_windows_of(const pp_dwells *dwells, const pp_attribution_metric *metric,
                         const pp_dwell *dwell, const pp_reading *reading);

/** Where a GPU is read itself: finds when its windows end, from what dwells show; leaves the
 * problem's reading as it is where they show too little. */
int pp_ticks_find(pp_problem *p, pp_error *err);

/** The first sample that was read at that time or later, but the very first, which has none before.
 */
size_t pp_metric_first(const pp_attribution_metric *metric, int64_t from);

/** A value that was measured, within its metric's range: what it was outside of that it is wrong by
 * at least, so its variance is no less than the square of it. */
double pp_solution_bound(const pp_metric_info *info, double value, double *variance);

/** Whether replays tell a metric. */
bool pp_isolated_tells(pp_metric metric);

/** Puts values of replays in the place of those that windows of the training tell. */
int pp_solution_take_isolated(const pp_activity *activity, const pp_problem *p,
                              const pp_solution_options *options, pp_solution *s, pp_error *err);

/** Holds each metric's values of replays, and one of all that is left, against windows of the
 * training that were held out. */
int pp_solution_close(const pp_problem *p, pp_solution *s, pp_error *err);

/** The reason of a layer without a fine value where there are no others. */
extern const char pp_solution_no_fine[];

/** Puts fine values in the place of those that windows tell; where the GPU was not sampled, why
 * goes in the place of that reason. */
int pp_solution_take_fine(const pp_activity *activity, const char *gpu, pp_solution *s,
                          pp_error *err);

/** Sample rows of every item and its count of windows, from the reconstructed windows. */
int pp_solution_make_samples(const pp_problem *p, const pp_attribution_result *r,
                             double tolerance_percent, pp_solution *s, pp_error *err);

#endif
