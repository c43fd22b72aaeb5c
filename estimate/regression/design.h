/* Which items share an unknown; shares of time by window. */
#ifndef PP_ESTIMATE_REGRESSION_DESIGN_H
#define PP_ESTIMATE_REGRESSION_DESIGN_H

#include "estimate/regression/time_line.h"

/** Items that are fitted as one unknown, next to each other in the step. */
typedef struct pp_reg_columns {
    size_t n;
    uint32_t *column;  /* [canonical row] -> column, UINT32_MAX: never ran */
    uint32_t *members; /* canonical rows, in order of phase and place in the step */
    size_t *first;     /* [n + 1] into members */
    double *time;      /* [column] ns */
    pp_phase *phase;
} pp_reg_columns;

int pp_reg_columns_init(pp_reg_columns *c, const pp_reg_timeline *t, const pp_regression_input *in,
                        pp_error *err);
void pp_reg_columns_done(pp_reg_columns *c);

typedef struct pp_reg_entry {
    uint32_t window;
    uint32_t column;
    uint32_t occurrence;
    double x;
} pp_reg_entry;

/** What a step has in common: its share of a window, each column by its value. */
typedef struct pp_reg_common {
    uint32_t window;
    uint32_t occurrence;
    double x;
} pp_reg_common;

/** Shares of time of some windows at one lag. */
typedef struct pp_reg_design {
    size_t n;
    size_t p;
    double *x; /* n x p */
    pp_reg_entry *entries;
    size_t n_entries;
    size_t cap_entries;
    pp_reg_common *common; /* sorted by occurrence and window; none until they are asked for */
    size_t n_common;
    double *common_b; /* [p] the values that they are by */
    size_t band;
} pp_reg_design;

/** Windows that end at ends[i] - lag. */
typedef struct pp_reg_window_set {
    const double *ends;
    const double *lengths; /* NULL: `window` each */
    size_t n;
    double window;
} pp_reg_window_set;

/** Sets d for these windows. With `effects` the entries are kept and sorted. */
int pp_reg_design_set(pp_reg_design *d, const pp_reg_timeline *t, const pp_reg_columns *c,
                      const pp_reg_window_set *windows, double lag, bool effects, pp_error *err);
/** Adds what steps have in common, by these values of the columns. Needs entries. */
int pp_reg_design_common(pp_reg_design *d, const double *b, pp_error *err);
/** Of a time line of kernels, by how much of each window no kernel ran beside which column: gaps is
 * d's n x p, for the same windows and lag. What is beside none is idle's. */
void pp_reg_design_gaps(const pp_reg_design *d, const pp_reg_timeline *t, const pp_reg_columns *c,
                        const pp_reg_window_set *windows, double lag, double *gaps);
void pp_reg_design_done(pp_reg_design *d);

#endif
