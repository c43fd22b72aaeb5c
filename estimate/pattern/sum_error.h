/* What a sum over items is off by, where their errors are not apart. */
#ifndef PP_ESTIMATE_PATTERN_SUM_ERROR_H
#define PP_ESTIMATE_PATTERN_SUM_ERROR_H

#include <stddef.h>

typedef struct pp_sum_part {
    const char *group; /**< borrowed; NULL: of none */
    double error;      /**< of the part, as it enters the sum */
} pp_sum_part;

/** The sum's variance, where items of one group are known together alone: these have one error,
 * others each their own. Sorts the parts. */
double pp_sum_variance(pp_sum_part *parts, size_t n);

/** A part that counts in the sum or does not. */
typedef struct pp_sum_chance {
    double part;
    double likely; /**< that it counts */
} pp_sum_chance;

/** The sum's variance, where what decides is one for all: where one counts, so do all that are as
 * likely or more. More it cannot be. Sorts the parts. */
double pp_sum_of_chances_variance(pp_sum_chance *parts, size_t n);

#endif
