/* How samples of Prometheus are taken, by the configuration. */
#ifndef PP_OPERATOR_SOLVE_OPTIONS_H
#define PP_OPERATOR_SOLVE_OPTIONS_H

#include "estimate/regression/regression.h"
#include "operator/config.h"

pp_regression_options pp_solve_attribution(const pp_config *config);

#endif
