/*
 * Whether a metric's windows lie where the lag says: what is left of them is regressed on how the
 * model moves with the lag, values free to move too (one step of Gauss and Newton). Edges that
 * jitter leave as much, but of either sign.
 */
#include <math.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/vector.h"
#include "estimate/regression/limits.h"
#include "estimate/regression/linalg.h"
#include "estimate/regression/shift.h"

#define STEP 5e4 /* ns: the lag is known to less, mostly */

/** slope[i]: of window i, by the lag, of what the values in it say; whitened. */
static int slopes_fill(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, double *slope,
                       pp_error *err)
{
    const pp_reg_fit *f = &s->fits[metric];
    const pp_reg_own_window *at = &s->own[metric];
    const pp_reg_window_set windows = pp_reg_windows_of(s, u->ends, u->lengths, u->n, at->window);
    pp_reg_design d = {0};
    int rc = 0;
    for (size_t i = 0; i < u->n; i++)
        slope[i] = 0;
    for (int side = -1; side <= 1 && rc == 0; side += 2) {
        rc = pp_reg_design_set(&d, &s->timeline, &s->columns, &windows, at->lag + side * STEP,
                               false, err);
        for (size_t i = 0; i < u->n && rc == 0; i++)
            slope[i] += side * pp_dot(d.x + i * f->p, f->b, f->p) / (2 * STEP);
    }
    pp_reg_design_done(&d);
    if (rc == 0)
        pp_reg_band_forward(s->work.band, u->n, s->design.band, slope, 1);
    return rc;
}

/** slope less what values explain of it; move[k]: how a value moves with the lag. */
static void values_take(const pp_reg_work *w, const pp_reg_fit *f, size_t n, double *slope,
                        double *c, double *move)
{
    for (size_t k = 0; k < f->p; k++)
        c[k] = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < f->p; k++)
            c[k] += w->wx[i * f->p + k] * slope[i];
    for (size_t k = 0; k < f->p; k++)
        move[k] = -pp_dot(f->cov + k * f->p, c, f->p) / f->noise2;
    for (size_t i = 0; i < n; i++)
        slope[i] += pp_dot(w->wx + i * f->p, move, f->p);
}

static void shift_report(const pp_reg_solver *s, size_t metric, const pp_reg_rows *u,
                         const double *slope, const double *move)
{
    const pp_reg_fit *f = &s->fits[metric];
    pp_regression_metric_fit *r = &s->ret->fits[s->order[metric]];
    double pull = 0, information = 0, meat = 0, moved = 0, time = 0;
    for (size_t i = 0; i < u->n; i++) {
        const double e = pp_reg_residual(&s->work, f, i);
        pull += e * slope[i];
        information += slope[i] * slope[i];
        meat += e * e * slope[i] * slope[i];
    }
    if (!(information > 0))
        return;
    r->shift_ns = -pull / information; /* a lag that is longer has windows end earlier */
    r->shift_se_ns = sqrt(fmax(f->noise2, meat / information) / information);
    for (size_t k = 0; k < f->p; k++) {
        if (s->columns.phase[k] == PP_PHASE_IDLE)
            continue;
        moved += s->columns.time[k] * fabs(move[k] * r->shift_ns);
        time += s->columns.time[k];
    }
    r->shift_moves = time > 0 ? moved / time * s->scale[metric] : 0;
}

int pp_reg_shift_find(pp_reg_solver *s, size_t metric, const pp_reg_rows *u, pp_error *err)
{
    const pp_reg_fit *f = &s->fits[metric];
    PP_CLEANUP_FREE double *slope = malloc((u->n + 2 * f->p + 1) * sizeof *slope);
    if (!slope)
        return pp_error_nomem(err);
    double *c = slope + u->n, *move = c + f->p;
    if (slopes_fill(s, metric, u, slope, err) < 0)
        return -1;
    values_take(&s->work, f, u->n, slope, c, move);
    shift_report(s, metric, u, slope, move);
    return 0;
}
