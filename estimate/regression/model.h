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
    double *drawn;           /* [p] square as pp_reg_estimate found it: what b is solved with */
    double *b;               /* [p] bounded estimate, of a step that is any step */
    double *value;           /* [p] of the steps that were, by pp_reg_realise */
    double *cov;             /* p x p; of b, or of value once that is there */
    double noise2;           /* sigma^2 */
    double ratio;            /* cv^2 / sigma^2 */
    double common;           /* share of cv^2 that all items of a step have in common */
    double evidence;         /* -2 log marginal likelihood */
    double effective;        /* unknowns that the data decided */
    bool alike;              /* no draws: an item's value is the same in all steps */
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
/** Whitened residual of window i, after pp_reg_estimate with the same w. */
double pp_reg_residual(const pp_reg_work *w, const pp_reg_fit *f, size_t i);
/** After pp_reg_variances: how much of what steps differ by is common to a step's items, where that
 * explains the values clearly better. Leaves the design with what steps have in common. */
int pp_reg_find_common(pp_reg_work *w, pp_reg_design *d, const double *y, pp_reg_fit *f,
                       pp_error *err);
/** Solves at the fit's variances: b, cov, square, effective, evidence. */
int pp_reg_estimate(pp_reg_work *w, const pp_reg_design *d, const double *y, pp_reg_fit *f,
                    pp_error *err);

#endif
