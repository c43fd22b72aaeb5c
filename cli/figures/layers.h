/* What each layer of a job has of a metric, forward and backward. */
#ifndef PP_CLI_FIGURES_LAYERS_H
#define PP_CLI_FIGURES_LAYERS_H

#include "cli/figures/jobs.h"

#include <stdio.h>

/** Metrics side by side, `n` from 1 to 6, all of them shares: a bar of each layer in either phase
 * that took time, whiskers of two standard errors. A layer that has no value of its own has the one
 * of its group, paler, or says that it was not measured. `title` is the figure's. Fails where
 * memory is out. */
int pp_figure_layers(const pp_figure_job *job, const char *title, const pp_metric *metrics,
                     size_t n, FILE *to, pp_error *err);

#endif
