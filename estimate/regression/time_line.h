/* Activity as piecewise-constant occupancy. */
#ifndef PP_ESTIMATE_REGRESSION_TIME_LINE_H
#define PP_ESTIMATE_REGRESSION_TIME_LINE_H

#include "estimate/regression/regression.h"

/** A piece of observed time in which nothing changes; its entries start at `first`. */
typedef struct pp_reg_piece {
    double start; /* ns from base */
    double end;
    uint32_t occurrence; /* 2 k + 1: in step k; 2 k: before step k */
    uint32_t first;
} pp_reg_piece;

typedef struct pp_reg_share {
    uint32_t item; /* canonical; n_items: other, n_items + 1: idle */
    float rate;    /* of the piece's time; the rates of a piece sum to 1 */
} pp_reg_share;

typedef struct pp_reg_timeline {
    int64_t base_ns;
    size_t n_items;     /* of the input */
    uint32_t *original; /* canonical item -> the caller's index */
    pp_reg_piece *pieces;
    size_t n_pieces; /* pieces[n_pieces] is a sentinel */
    pp_reg_share *shares;
    size_t n_shares;
    double *observed; /* merged spans of observed time, start and end alternating, ns from base */
    size_t n_observed;
    double *time;   /* [canonical row] ns */
    double *offset; /* [canonical row] mean time from the step's start, ns */
    size_t *occurrences;
    double step_time; /* ns in steps */
    double step_mean; /* mean length of a step, ns */
    size_t dropped;
} pp_reg_timeline;

/** `kernels`: of the time in which kernels ran; where none did it is `idle`, in steps too. Else of
 * elapsed time. */
int pp_reg_timeline_init(pp_reg_timeline *t, const pp_regression_input *in, int64_t base_ns,
                         bool kernels, pp_error *err);
void pp_reg_timeline_done(pp_reg_timeline *t);
/** Whether [start, end] (ns from base) was observed throughout. */
bool pp_reg_observed(const pp_reg_timeline *t, double start, double end);

#endif
