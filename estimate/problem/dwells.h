/* Which captures are replays, of which layer, and how many had begun by when. */
#ifndef PP_ESTIMATE_PROBLEM_DWELLS_H
#define PP_ESTIMATE_PROBLEM_DWELLS_H

#include "estimate/activity/activity.h"
#include "estimate/regression/regression.h"

/** One capture of replays (docs/replay.md). */
typedef struct pp_replay_run {
    uint32_t process;
    int64_t capture;
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
} pp_replay_run;

/** How many replays of a dwell had begun before that time. */
typedef struct pp_replay_run_point {
    size_t dwell; /**< index into items */
    int64_t at_ns;
    double calls;
} pp_replay_run_point;

typedef struct pp_replay_runs {
    pp_replay_run *items;
    size_t count;
    pp_replay_run_point *points; /**< of each dwell next to each other, in the order of time */
    size_t n_points;
    pp_time_range *spans; /**< the time of all of them, in order; none touches another */
    size_t n_spans;
} pp_replay_runs;

/** All captures of replays on a GPU. */
int pp_replay_runs_make(const pp_activity *activity, const char *gpu, pp_replay_runs *ret,
                        pp_error *err);
void pp_replay_runs_done(pp_replay_runs *dwells);
/** Replays of a dwell between two times, ns: as even as they were between what is known. */
double pp_replay_run_calls(const pp_replay_runs *dwells, const pp_replay_run *dwell, double from,
                           double to);
/** Whether some of the time is a dwell's. */
bool pp_replay_runs_touch(const pp_replay_runs *dwells, pp_time_range time);

#endif
