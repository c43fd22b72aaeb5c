/* Bounds of what is fitted, and numbers of math.h as doubles. */
#ifndef PP_ESTIMATE_REGRESSION_LIMITS_H
#define PP_ESTIMATE_REGRESSION_LIMITS_H

#include <math.h>

/* Later times than this (year 2096) are no times; differences of times then never overflow. */
#define PP_REG_MAX_TIME_NS 4000000000000000000LL
/* Columns of one regression; more items than that are fitted in neighbouring bundles. */
#define PP_REG_MAX_COLUMNS 128
/* Windows of one regression: the newest ones count. */
#define PP_REG_MAX_FIT_WINDOWS 50000
/* Windows on which lag and variances are searched; the final fit takes all. */
#define PP_REG_MAX_SEARCH_WINDOWS 1500
/* Windows over which one step's draw of one item is taken to be correlated. */
#define PP_REG_MAX_BAND 48
/* Prior of a value: sd as a share of the range. Uniform over the range has 0.289. */
#define PP_REG_PRIOR_SD 0.3
#define PP_REG_IDLE_PRIOR_SD 0.1

/* Of least squares: scaled sd of a window about the fit, against the prior's. */
#define PP_REG_ROUGH_RIDGE (0.02 * 0.02 / (PP_REG_PRIOR_SD * PP_REG_PRIOR_SD))

/* As doubles: the macros of math.h are floats. */
#define PP_REG_INF ((double)INFINITY)
#define PP_REG_NAN ((double)NAN)

#endif
