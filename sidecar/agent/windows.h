/*
 * The windows in which a GPU was sampled, one after the other: each is joined, its sums are put
 * with those of the windows before it, and all are solved. No files, no thread.
 */
#ifndef PP_AGENT_WINDOWS_H
#define PP_AGENT_WINDOWS_H

#include "estimate/sampling/join.h"

/** Of windows: four or more make a standard error. */
enum { PP_SAMPLED_GROUPS = 8 };

/** Begins as {0}; read only, but that `joined` is taken back where a window was not even tried. */
typedef struct pp_sampled {
    pp_sampling_sums *groups[PP_SAMPLED_GROUPS];
    size_t n_groups;
    pp_sampling_result *result; /**< of all groups; NULL: none yet */
    bool joined;                /**< the latest was: its lag is known */
    bool stamped;               /**< the latest that was joined went by its samples' stamps */
    bool apart;                 /**< a lag was far from the likely one, which is none */
    int64_t lag, lag_stderr;    /**< ns, of the latest that was joined */
} pp_sampled;

/**
 * Joins what has come into `window`, which is empty afterwards, predicted by what is known, and
 * solves all. Fails where it is not joined, as pp_sampling_join(), or all are not solved with it:
 * what is known then stays.
 */
int pp_sampled_add(pp_sampled *windows, pp_sampling *window, const pp_sampling_clock *clock,
                   pp_error *err);

/** What it holds. */
void pp_sampled_free(pp_sampled *windows);

#endif
