/*
 * The steps of a run and the pieces of which they are made: means, and how sure these are
 * (series.h). Marked steps come in captures, stretches of the run that are drawn from it; so what
 * differs from capture to capture is in their errors. What differs between two runs of the same
 * program and not within one, no run tells by itself.
 */
#ifndef PP_ESTIMATE_TIMES_SPREAD_H
#define PP_ESTIMATE_TIMES_SPREAD_H

#include "common/error.h"
#include "estimate/times/series.h"

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

/** Steps of a process in which nothing was marked, one after the other and without a pause, and how
 * long they took together; both above 0. */
typedef struct pp_spread_run {
    int64_t process, start_ns;
    int64_t steps, ns;
} pp_spread_run;

/** In any order. */
int pp_spread_count(pp_spread *spread, const pp_spread_run *run, pp_error *err);

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

/** Of the steps that were counted, ns. */
pp_spread_mean pp_spread_counted(pp_spread *spread);

#endif
