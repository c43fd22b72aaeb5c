/* From what an item's value is in any step to what it was in those that ran. */
#ifndef PP_ESTIMATE_REGRESSION_REALISE_H
#define PP_ESTIMATE_REGRESSION_REALISE_H

#include "estimate/regression/model.h"

/** How long a column ran in a step (or between two). */
typedef struct pp_reg_duration {
    uint32_t column;
    uint32_t occurrence;
    double time; /* ns */
} pp_reg_duration;

typedef struct pp_reg_durations {
    pp_reg_duration *at;      /* sorted by column and occurrence */
    pp_reg_duration *by_step; /* the same, by occurrence and column */
    size_t n;
} pp_reg_durations;

/** Of all observed time. `idle` has none: nothing of it is drawn. */
int pp_reg_durations_init(pp_reg_durations *s, const pp_reg_timeline *t, const pp_reg_columns *c,
                          pp_error *err);
void pp_reg_durations_done(pp_reg_durations *s);

/**
 * After pp_reg_estimate with the same w and d: fills value, and makes cov that of value. Value is
 * the mean over the time that an item ran: where it is higher in long steps, those count by their
 * length, while b takes all steps for alike (best linear prediction of the steps' draws: Henderson,
 * Biometrics 31, 1975). With `sandwich` cov is widened where residuals are larger than the model
 * has it (sandwich), e.g. where windows' edges or the activity's stamps are not exact. Where
 * windows go with something else, by whitened scores (n x p, less what b takes of them), `move` is
 * how b goes with it ([value * p + score]) and becomes how value does; both may be NULL.
 */
int pp_reg_realise(pp_reg_work *w, const pp_reg_design *d, const pp_reg_durations *durations,
                   pp_reg_fit *f, bool sandwich, const double *scores, size_t n_scores,
                   double *move, pp_error *err);

#endif
