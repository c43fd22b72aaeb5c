/* An exporter that was started anew. */
#ifndef PP_ESTIMATE_REGRESSION_EXPORTER_RESTARTS_H
#define PP_ESTIMATE_REGRESSION_EXPORTER_RESTARTS_H

#include "estimate/regression/solver.h"

/** Leaves out the scrapes of other grids than most have. */
int pp_reg_parts_keep(pp_reg_solver *s, pp_error *err);

#endif
