/*
 * The training processes of a job side by side: how long each takes for what in a step, how long it
 * waits for the others, and which one they wait for.
 *
 * What a process waits is its communication beside which nothing else of it runs; the rest of a
 * step is its own. In a training that keeps step, steps take as long in all processes, so the one
 * whose own time is longest is the one that the others wait for.
 */
#ifndef PP_ESTIMATE_TIMES_RANKS_H
#define PP_ESTIMATE_TIMES_RANKS_H

#include "estimate/activity/activity.h"
#include "estimate/regression/regression.h"

/** Mean over the marked steps of one process. */
typedef struct pp_rank_item {
    const char *layer; /**< borrowed from the activity; "": the step's own phases */
    pp_phase phase;    /**< PP_PHASE_OTHER: what no piece has of a step */
    double calls;
    double ns;
} pp_rank_item;

typedef struct pp_rank {
    int32_t process; /**< its number in the pod */
    int32_t rank;
    int32_t world_size;
    int64_t steps;     /**< marked ones; 0: nothing below is known */
    double step_ns;    /**< mean, as what follows: of the steps that are told one by one where there
                            are two, since sums do not say what ran beside what */
    double wait_ns;    /**< communication beside which it did nothing else */
    double own_ns;     /**< the rest */
    double own_stderr; /**< of own_ns, by its steps, or its captures where these differ by more;
                            NaN: of fewer than two steps all is known */
    double own_freedom;  /**< its degrees of freedom; NaN: of one short capture, which does not say
                              how captures differ */
    pp_rank_item *items; /**< by layer and phase */
    size_t n_items;
} pp_rank;

/** What the slowest takes longer for than the others. */
typedef struct pp_rank_excess {
    const pp_rank_item *item;
    double others_ns; /**< median of the others that have it */
} pp_rank_excess;

enum { PP_RANKS_EXCESSES = 8 };

typedef struct pp_ranks {
    pp_rank *ranks; /**< by rank, then number */
    size_t n;
    /** The one that the others wait for; NULL: none, by what was measured. */
    const pp_rank *slowest;
    double behind_ns; /**< by how much its own time is longer than the others' median */
    double behind_stderr;
    int64_t told_steps; /**< its steps of which each one's own time is known */
    int64_t late_steps; /**< of these, in which it was behind by half of that at least */
    int64_t worst_step; /**< number of the one in which it took longest */
    double worst_ns;    /**< its own time in it */
    pp_rank_excess excesses[PP_RANKS_EXCESSES]; /**< most first; a tenth of behind_ns at least */
    size_t n_excesses;
} pp_ranks;

enum { PP_RANKS_MOST = 256 }; /**< of a pod with more processes nothing is told */

/** Compares the processes of one pod's activity; none where a single one is alone in its job. -1
 * where memory is out. */
int pp_ranks_compare(const pp_activity *activity, pp_ranks **ret, pp_error *err);

/** NULL is allowed. */
void pp_ranks_free(pp_ranks *ranks);

#endif
