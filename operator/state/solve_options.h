/* How samples of Prometheus are taken, by the configuration. */
#ifndef PP_OPERATOR_STATE_SOLVE_OPTIONS_H
#define PP_OPERATOR_STATE_SOLVE_OPTIONS_H

#include "estimate/regression/regression.h"
#include "operator/state/config.h"

pp_regression_options pp_solve_attribution(const pp_config *config);

#endif
