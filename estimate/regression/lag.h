/* How long before its publication a window ended. */
#ifndef PP_ESTIMATE_REGRESSION_LAG_H
#define PP_ESTIMATE_REGRESSION_LAG_H

#include "estimate/regression/model.h"
#include "estimate/regression/windows.h"

typedef struct pp_reg_problem {
    const pp_regression_input *in;
    const uint32_t *order; /* canonical metric -> the caller's index */
    const pp_reg_timeline *timeline;
    const pp_reg_columns *columns;
    const double *scale; /* [canonical metric] range */
    double max_lag;
} pp_reg_problem;

/** Scaled; what varies less carries no lag. */
#define PP_REG_CONSTANT_SD 1e-5
/** Most exporters publish within so many windows. */
#define PP_REG_USUAL_WINDOWS 2.5

typedef struct pp_reg_lag {
    bool known;
    double lag;
    double se;
    double evidence; /* of the coarse search; compares publication phases */
    double contrast; /* of the coarse search: by how much it is better than a typical lag */
} pp_reg_lag;

/** Of a search by least squares. */
typedef struct pp_reg_lag_search {
    size_t windows; /* the newest ones; 0: as many as any search takes */
    bool refine;    /* the best of a grid of starts, which is finer then */
    double near;    /* of lags within `reach` of this one alone; reach 0: of all */
    double reach;
} pp_reg_lag_search;

/** The same with lags as most exporters have them, and all drivers. */
static inline pp_reg_problem pp_reg_problem_usual(const pp_reg_problem *q, double window)
{
    pp_reg_problem usual = *q;
    usual.max_lag = fmin(q->max_lag, PP_REG_USUAL_WINDOWS * window);
    return usual;
}

/** The lag by least squares. */
int pp_reg_lag_coarse(const pp_reg_problem *q, const pp_reg_windows *w,
                      const pp_reg_lag_search *search, pp_reg_lag *ret, pp_error *err);
/** Estimates the lag of w over all metrics; fits[metric] then hold the variances at it. */
int pp_reg_lag_find(const pp_reg_problem *q, const pp_reg_windows *w, pp_reg_fit *fits,
                    pp_reg_lag *ret, pp_error *err);

/** Prior, bounds and scale of one metric, whose scaled values have this mean. */
void pp_reg_fit_prior(const pp_reg_problem *q, size_t metric, double mean, pp_reg_fit *f);

#endif
