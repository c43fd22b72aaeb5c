/* Which collection each scrape has read. */
#ifndef PP_ESTIMATE_REGRESSION_WINDOWS_H
#define PP_ESTIMATE_REGRESSION_WINDOWS_H

#include "estimate/regression/scrapes.h"

/** Distinct collections of all metrics. A window ends at ends[w] - lag. */
typedef struct pp_reg_windows {
    size_t n;
    size_t n_metrics;
    double *stamps;  /* [w] first scrape, ns from base, ascending */
    double *ends;    /* [w] nominal publication (grid) or scrape (no grid) */
    double *lengths; /* [w] ns; the window's, or that of several where a value is of these */
    bool since_before;
    double *values; /* [metric * n + w], NaN where missing; metrics in canonical order */
    double window;  /* W, ns */
    double scrape;  /* S, ns */
    bool grid;
    double half;    /* publication phase known to within this, ns */
    double min_lag; /* a window cannot end after it was read */
} pp_reg_windows;

/* A scrape read one collection earlier than nominal, the nominal one, or one later; where a value
 * is of all since the scrape before, with each of what that may have read. */
#define PP_REG_STATES 3
#define PP_REG_PAIRS (PP_REG_STATES * PP_REG_STATES)
/**
 * Windows for one publication phase (ignored without a grid). misfit[j * PP_REG_PAIRS + state *
 * PP_REG_STATES + state before] says how badly scrape j's values fit what it may have read, in log
 * likelihood; NULL: not known yet. With `sure`, scrapes too close to a publication are left out.
 */
int pp_reg_windows_init(pp_reg_windows *w, const pp_reg_scrapes *s, double phase,
                        const double *misfit, bool sure, pp_error *err);
void pp_reg_windows_done(pp_reg_windows *w);

/** Of the scrapes, the share that fall so close to a publication that the clock does not say which
 * collection they read. */
double pp_reg_windows_doubtful(const pp_reg_scrapes *s, double phase);

#endif
