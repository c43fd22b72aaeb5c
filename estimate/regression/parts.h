/* Parts of the estimator that a study may leave out. */
#ifndef PP_ESTIMATE_REGRESSION_PARTS_H
#define PP_ESTIMATE_REGRESSION_PARTS_H

#include "estimate/regression/regression.h"

static inline bool pp_reg_has(const pp_regression_input *in, pp_regression_part part)
{
    return !(in->options.without & (unsigned)part);
}

#endif
