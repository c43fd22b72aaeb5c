/* Samples of all metrics on common stamps, and when collections are published. */
#ifndef PP_ESTIMATE_REGRESSION_SCRAPES_H
#define PP_ESTIMATE_REGRESSION_SCRAPES_H

#include "estimate/regression/regression.h"

#include <math.h>

/** Samples of all metrics on common stamps. */
typedef struct pp_reg_scrapes {
    size_t n;
    size_t n_metrics;
    double *stamps;  /* ns from base, ascending */
    double *values;  /* [metric * n + j], NaN where missing */
    int8_t *change;  /* [j] against j - 1: see pp_reg_change */
    size_t *dropped; /* [metric] */
    size_t *kept;    /* [metric] */
    double scrape;   /* S, ns */
    double window;   /* W, ns */
    /* The publication's phase modulo W, from which scrapes read something new. */
    bool grid;
    double phase;      /* middle of the feasible arc */
    double half;       /* half its width */
    double jitter;     /* of publications against their phase, at most */
    bool since_before; /* a value is of all windows since the scrape before */
    bool drifts;   /* the time from a window's end until it can be read is not the same all along:
                      values say what was read */
    bool searched; /* scrapes fall into the arc: where in it the phase is, the fit must tell */
} pp_reg_scrapes;

typedef enum pp_reg_change {
    PP_REG_UNKNOWN = 0, /* equal, but such values repeat by themselves */
    PP_REG_CHANGED,
    PP_REG_SAME,
    PP_REG_STALE, /* the same for longer than a collection can be: nobody measures */
} pp_reg_change;

/** Longer without a scrape than some lost ones: the exporter may have been started anew meanwhile.
 */
static inline double pp_reg_pause(const pp_reg_scrapes *s)
{
    return fmax(1.5e9, 4 * s->scrape);
}

/** Cost, in log likelihood, of having read a collection so many after that of the scrape before. */
double pp_reg_change_cost(int8_t change, double step);

/** The scrapes that are marked, with a phase of their own; the others count as dropped. */
int pp_reg_scrapes_pick(const pp_reg_scrapes *from, const bool *pick, pp_reg_scrapes *to,
                        pp_error *err);

/** Takes collections to be so many ns apart: phase, half, jitter, grid and searched follow. */
int pp_reg_scrapes_set_window(pp_reg_scrapes *s, double window, pp_error *err);

int pp_reg_scrapes_init(pp_reg_scrapes *s, const pp_regression_input *in, const uint32_t *order,
                        int64_t base_ns, pp_error *err);
void pp_reg_scrapes_done(pp_reg_scrapes *s);

#endif
