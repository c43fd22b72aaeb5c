#include "operator/state/solve_options.h"

pp_regression_options pp_solve_attribution(const pp_config *config)
{
    return (pp_regression_options){.window_ns = config->prometheus.collection_interval,
                                   .scrape_ns = config->prometheus.scrape_interval,
                                   .max_lag_ns = config->prometheus.max_lag,
                                   .max_standard_error =
                                       config->attribution.max_standard_error_points / 100.0};
}
