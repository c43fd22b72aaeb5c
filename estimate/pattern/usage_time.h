/*
 * Which part of a step each item takes, in which part of it, and how sure that is: by the steps
 * that were told one by one, in up to PP_USAGE_BLOCKS runs of them, since steps next to each other
 * are alike (estimate/times/series.h). A run is within a capture, or where there are more captures
 * than that, of several.
 */
#ifndef PP_ESTIMATE_PATTERN_USAGE_TIME_H
#define PP_ESTIMATE_PATTERN_USAGE_TIME_H

#include "estimate/pattern/usage.h"

enum { PP_USAGE_BLOCKS = 16 };

typedef struct pp_usage_time {
    size_t n;       /**< items, as the estimates have them */
    double *share;  /**< of a step, of each; 0 of those that are no part of it */
    double *blocks; /**< n times PP_USAGE_BLOCKS: the same in each run of steps */
    size_t n_blocks;
    double block_steps[PP_USAGE_BLOCKS]; /**< of how many steps each run is */
    uint32_t block_captures[PP_USAGE_BLOCKS];
    double *bins; /**< n times PP_USAGE_BINS: time of each in the parts of a step, as shares of
                       the step; their sum is the item's share where all is told */
    bool has_bins;
    bool busy; /**< shares are of time in which kernels ran */
    pp_figure step_ns;
    double step_sd_ns;
    int64_t steps;
    bool undisturbed;
    pp_figure idle;
} pp_usage_time;

int pp_usage_time_find(const pp_usage_input *in, pp_usage_time *ret, pp_error *err);
void pp_usage_time_done(pp_usage_time *time);

/** Standard error of sum(share[i] * factor[i]) by what differs between runs of steps, and between
 * captures; NaN: fewer than two runs. */
double pp_usage_time_error(const pp_usage_time *time, const double *factor);

/** What such a sum may be off by since the step that shares are of is: of busy time in marked steps
 * it is another one. */
double pp_usage_step_error(const pp_usage_time *time, double sum);

#endif
