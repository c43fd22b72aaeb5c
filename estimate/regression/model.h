/* The mixed model of one metric. */
#ifndef PP_ESTIMATE_REGRESSION_MODEL_H
#define PP_ESTIMATE_REGRESSION_MODEL_H

#include "estimate/regression/design.h"

/** What the fit of one metric takes and gives; values are scaled by the metric's range. */
typedef struct pp_reg_fit {
    size_t p;
    double min, max;         /* bounds, scaled; infinite: none */
    double *prior_mean;      /* [p] */
    double *prior_precision; /* [p] */
    double *square;          /* [p] expected square of each value, for the random effects */
    double *b;               /* [p] bounded estimate */
    double *cov;             /* p x p */
    double noise2;           /* sigma^2 */
    double ratio;            /* cv^2 / sigma^2 */
    double evidence;         /* -2 log marginal likelihood */
    double effective;        /* unknowns that the data decided */
    bool valid;
} pp_reg_fit;

int pp_reg_fit_init(pp_reg_fit *f, size_t p, pp_error *err);
void pp_reg_fit_done(pp_reg_fit *f);
void pp_reg_fit_copy(pp_reg_fit *to, const pp_reg_fit *from);

/** Scratch memory of the model, grown on demand. */
typedef struct pp_reg_work {
    double *band;
    double *wx;
    double *wr;
    double *gram;
    double *chol;
    double *c;
    double *tmp;
    size_t cap_band, cap_wx, cap_wr, cap_p;
    double rr;
    double logdet;
} pp_reg_work;

void pp_reg_work_done(pp_reg_work *w);

/** -2 log evidence of y (scaled) at the fit's variances; nothing in f changes but evidence. */
int pp_reg_evidence(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                    pp_error *err);
/** Finds the variances (a first time when noise2 is 0, else near the last ones), then solves. */
int pp_reg_variances(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                     pp_error *err);
/** Solves at the fit's variances: b, cov, square, effective, evidence. */
int pp_reg_estimate(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                    pp_error *err);

/** After pp_reg_estimate with the same w: widens cov where residuals are larger than the model has
 *  it (sandwich estimate), e.g. where windows' edges or the activity's stamps are not exact. */
int pp_reg_robust(pp_reg_work *w, size_t n, pp_reg_fit *f, pp_error *err);

#endif
