/* Jobs side by side, by what their GPUs had over all of their time. */
#ifndef PP_CLI_FIGURES_OVERVIEW_H
#define PP_CLI_FIGURES_OVERVIEW_H

#include "cli/figures/jobs.h"

#include <stdio.h>

/** A bar of each metric that is a share, for each job. */
void pp_figure_overview(const pp_figure_job *jobs, size_t n, FILE *to);

/** A table in Markdown: parameters, time per step, GPUUtil, memory and the other metrics of each
 * job, with standard errors. Of parameters it has the sum of its layers'; what is not known is a
 * dash. */
void pp_figure_overview_table(const pp_figure_job *jobs, size_t n, FILE *to);

#endif
