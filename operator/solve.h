/* Activity and samples to estimates, on the thread pool. */
#ifndef PP_OPERATOR_SOLVE_H
#define PP_OPERATOR_SOLVE_H

#include "controller/solution.h"
#include "operator/config.h"
#include "operator/work.h"

/** How samples of Prometheus are taken, by the configuration. */
pp_attribution_options pp_solve_attribution(const pp_config *config);

/** Begins a solution where one is due. */
void pp_solve_tick(pp_work *work);

#endif
