/* The SMs' clock. It is a level, of which kernels that run side by side have one between them: what
 * adds up is by how much each slows it down. */
#include "estimate/sampling/solve_internal.h"

double pp_clock_slower(const pp_sampling_column *column, double share, double idle)
{
    return idle * share - column->rhs[PP_SAMPLING_CLOCK];
}

void pp_clock_slow_down(pp_sampling_whole *w, const double *share, double idle)
{
    const int m = PP_SAMPLING_CLOCK;
    for (size_t i = 0; i < w->n; i++)
        w->columns[i].rhs[m] = pp_clock_slower(&w->columns[i], share[i], idle);
    w->yy[m] += idle * (idle * w->with[m] - 2 * w->y[m]);
    w->y[m] = idle * w->with[m] - w->y[m];
    w->held_y[m] = idle * w->held_with[m] - w->held_y[m];
}
