/* What a sum over items is off by, where items of one group are known together alone: these have
 * one error, others each their own. */
#ifndef PP_ESTIMATE_PATTERN_SUM_ERROR_H
#define PP_ESTIMATE_PATTERN_SUM_ERROR_H

#include <stddef.h>

typedef struct pp_sum_part {
    const char *group; /**< borrowed; NULL: of none */
    double error;      /**< of the part, as it enters the sum */
} pp_sum_part;

/** The sum's variance; sorts the parts. */
double pp_sum_variance(pp_sum_part *parts, size_t n);

#endif
