/*
 * How far steps are apart, and so how sure the times of a mean step are. A step's time differs from
 * the next one's, and steps near each other are alike; so the standard error of a mean is the
 * larger of two: by single steps, as many fewer as each remembers of the one before, and by blocks
 * of steps that follow each other (batch means; Law: Simulation Modeling and Analysis, 2015,
 * 9.5.3). What differs between two runs of the same program
 * and not within one, as the clock that a GPU settles at, no run tells by itself.
 */
#ifndef PP_ESTIMATE_TIMES_SPREAD_H
#define PP_ESTIMATE_TIMES_SPREAD_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Steps, and the pieces of which they are made. */
typedef struct pp_spread pp_spread;

/** NULL where memory is out. */
pp_spread *pp_spread_new(void);
/** NULL is allowed. */
void pp_spread_free(pp_spread *spread);

/** Adds a marked step; those of a process' capture come one after the other, in order. Its number,
 * from 0 on, is told in *ret. */
int pp_spread_step(pp_spread *spread, int64_t process, int64_t capture, int64_t ns, size_t *ret,
                   pp_error *err);

/** Of pieces that are no item's, as kernels between layers: they take nothing of what is left. */
#define PP_SPREAD_REST UINT32_MAX

/**
 * Adds a piece of a step: time that an item took in it. `busy_ns`, of it, in which its kernels ran,
 * is -1 where that is not known. A piece that is told as a sum over some milliseconds is `coarse`:
 * it may be of the steps beside.
 */
typedef struct pp_spread_piece {
    size_t step;
    uint32_t item; /**< the caller's number, small; or PP_SPREAD_REST */
    int64_t ns, busy_ns;
    bool coarse;
} pp_spread_piece;

int pp_spread_add(pp_spread *spread, const pp_spread_piece *piece, pp_error *err);

/** Adds steps in which nothing was marked, one after the other, and how long they took together. */
int pp_spread_count(pp_spread *spread, int64_t steps, int64_t ns, pp_error *err);

/** A mean over steps, its standard error, and of how many degrees of freedom that is an estimate.
 * All NaN where fewer than eight steps tell it. */
typedef struct pp_spread_mean {
    double mean, standard_error, freedom;
} pp_spread_mean;

/** The same of a mean of `told`, where items have shared the time that they had together: its error
 * is as large a part of it as of the mean of whole pieces. All NaN where one of the two is not
 * known (negative or NaN). */
pp_spread_mean pp_spread_shared(pp_spread_mean whole, double told);

typedef struct pp_spread_times {
    pp_spread_mean total;      /**< ns of a step */
    pp_spread_mean busy;       /**< of that, in which its kernels ran; NaN: not of each piece */
    pp_spread_mean busy_share; /**< of the time whose kernels are known, the share they ran in */
} pp_spread_times;

/** To be called after all has been added, and before what follows. */
int pp_spread_settle(pp_spread *spread, pp_error *err);

/** An item's; all NaN for one that had no piece. */
pp_spread_times pp_spread_item(pp_spread *spread, uint32_t item);

/** What no item takes of the steps, with the kernels of PP_SPREAD_REST. */
pp_spread_times pp_spread_rest(pp_spread *spread);

/** Of marked steps, ns. */
pp_spread_mean pp_spread_marked(pp_spread *spread);

/** Of the steps that were counted, ns; without those in which the training validated or saved
 * (estimate/problem/counted_steps.h). */
pp_spread_mean pp_spread_counted(pp_spread *spread);

#endif
