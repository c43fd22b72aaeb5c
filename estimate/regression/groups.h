/* What can only be told together. */
#ifndef PP_ESTIMATE_REGRESSION_GROUPS_H
#define PP_ESTIMATE_REGRESSION_GROUPS_H

#include "estimate/regression/model.h"

/** Columns from .. to - 1 as one: standard error of their time-weighted mean (scaled), and whether
 *  it is within max_se and owed to the data rather than to the prior. The value of one item of a
 *  bundle may differ from the bundle's by what the rest of it, `missing` of its time, may hold. */
bool pp_reg_determined(const pp_reg_fit *f, const pp_reg_columns *c, size_t from, size_t to,
                       double missing, double max_se, double *ret_se);

/** A determined group of neighbouring columns. */
typedef struct pp_reg_range {
    size_t from, to;
} pp_reg_range;

/** Merges what is not determined alone with its neighbours. ranges (room for columns->n) receives
 *  the determined groups; returns how many, -1 on error. */
int pp_reg_group(const pp_reg_fit *f, const pp_reg_columns *c, double max_se, double max_time,
                 pp_reg_range *ranges, pp_error *err);

#endif
