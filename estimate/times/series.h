/*
 * How sure the mean of values is that came one after the other, as steps' times do. They differ,
 * and those near each other are alike; so the variance of a mean is the largest of three:
 *
 * - by single values, as many fewer as each remembers of the one before;
 * - by blocks of values that follow each other (batch means; Law: Simulation Modeling and Analysis,
 *   2015, 9.5.3);
 * - where what was measured are stretches of a longer run, by stretches: what differs from one to
 *   the next, as a GPU's clock, the values of one do not show.
 *
 * With stretches the degrees of freedom are no more than these have, whichever is the largest: a
 * few may agree by chance. With one stretch what differs between stretches is not known.
 */
#ifndef PP_ESTIMATE_TIMES_SERIES_H
#define PP_ESTIMATE_TIMES_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A mean, its standard error, and of how many degrees of freedom that is an estimate. All NaN
 * where too few values tell it. */
typedef struct pp_spread_mean {
    double mean, standard_error, freedom;
} pp_spread_mean;

typedef struct pp_series {
    size_t n;
    const double *values;
    const double *weights;   /**< the mean is of the sums of values and of these; NULL: of 1 each */
    const uint32_t *stretch; /**< of each; those of one stand together, in order of time */
    size_t least;            /**< values, and blocks, that tell anything; 0: eight */
    bool drawn;              /**< stretches are of a longer run, of which the mean is told */
    bool coarse; /**< a value may have a part of the one beside: single ones tell nothing */
} pp_series;

pp_spread_mean pp_series_mean(const pp_series *series);

#endif
