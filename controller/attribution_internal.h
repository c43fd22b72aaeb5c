/* What the files of attribution share; nobody else includes this. See docs/attribution.md. */
#ifndef PP_CONTROLLER_ATTRIBUTION_INTERNAL_H
#define PP_CONTROLLER_ATTRIBUTION_INTERNAL_H

#include <math.h>

#include "common/vector.h"
#include "controller/attribution.h"

/* Later times than this (year 2096) are no times; differences of times then never overflow. */
#define PP_ATTR_MAX_TIME_NS 4000000000000000000LL
/* Columns of one regression; more items than that are fitted in neighbouring bundles. */
#define PP_ATTR_MAX_COLUMNS 128
/* Windows of one regression: the newest ones count. */
#define PP_ATTR_MAX_FIT_WINDOWS 50000
/* Windows on which lag and variances are searched; the final fit takes all. */
#define PP_ATTR_MAX_SEARCH_WINDOWS 1500
/* Windows over which one step's draw of one item is taken to be correlated. */
#define PP_ATTR_MAX_BAND 48
/* Prior of a value: sd as a share of the range. Uniform over the range has 0.289. */
#define PP_ATTR_PRIOR_SD 0.3
#define PP_ATTR_IDLE_PRIOR_SD 0.1

/* As doubles: the macros of math.h are floats. */
#define PP_ATTR_INF ((double)INFINITY)
#define PP_ATTR_NAN ((double)NAN)

/* ---- arithmetic -------------------------------------------------------------------------- */

/** In place lower Cholesky of a symmetric n x n row-major matrix; false: not positive definite. */
bool pp_attr_chol(double *a, size_t n);
/** Solves L L' x = b in place. */
void pp_attr_chol_solve(const double *l, size_t n, double *b);
/** Inverse of L L' into inv (n x n, symmetric). */
void pp_attr_chol_inverse(const double *l, size_t n, double *inv);
double pp_attr_chol_logdet(const double *l, size_t n);
/** In place lower Cholesky of a band: row i holds columns i - bw .. i at a[i * (bw + 1)]. */
bool pp_attr_band_chol(double *a, size_t n, size_t bw);
/** x := L^-1 x for n rows of p values each. */
void pp_attr_band_forward(const double *l, size_t n, size_t bw, double *x, size_t p);

/* ---- activity as piecewise-constant occupancy ---------------------------------------------- */

/** A piece of observed time in which nothing changes; its entries start at `first`. */
typedef struct pp_attr_piece {
    double start; /* ns from base */
    double end;
    uint32_t occurrence; /* 2 k + 1: in step k; 2 k: before step k */
    uint32_t first;
} pp_attr_piece;

typedef struct pp_attr_share {
    uint32_t item; /* canonical; n_items: other, n_items + 1: idle */
    float rate;    /* of the piece's time; the rates of a piece sum to 1 */
} pp_attr_share;

typedef struct pp_attr_timeline {
    int64_t base_ns;
    size_t n_items;     /* of the input */
    uint32_t *original; /* canonical item -> the caller's index */
    pp_attr_piece *pieces;
    size_t n_pieces; /* pieces[n_pieces] is a sentinel */
    pp_attr_share *shares;
    size_t n_shares;
    double *stretch; /* merged stretches, start and end alternating, ns from base */
    size_t n_stretches;
    double *time;   /* [canonical row] ns */
    double *offset; /* [canonical row] mean time from the step's start, ns */
    size_t *occurrences;
    double step_time; /* ns in steps */
    double step_mean; /* mean length of a step, ns */
    size_t dropped;
} pp_attr_timeline;

int pp_attr_timeline_init(pp_attr_timeline *t, const pp_attribution_input *in, int64_t base_ns,
                          pp_error *err);
void pp_attr_timeline_done(pp_attr_timeline *t);
/** Whether [start, end] (ns from base) was observed throughout. */
bool pp_attr_observed(const pp_attr_timeline *t, double start, double end);

/* ---- samples as windows ---------------------------------------------------------------------- */

/** Distinct collections of all metrics. A window ends at ends[w] - lag. */
typedef struct pp_attr_windows {
    size_t n;
    size_t n_metrics;
    double *stamps; /* [w] first scrape, ns from base, ascending */
    double *ends;   /* [w] nominal publication (grid) or scrape (no grid) */
    double *values; /* [metric * n + w], NaN where missing; metrics in canonical order */
    double window;  /* W, ns */
    double scrape;  /* S, ns */
    bool grid;
    double half;    /* publication phase known to within this, ns */
    double min_lag; /* a window cannot end after it was read */
} pp_attr_windows;

/** Samples of all metrics on common stamps. */
typedef struct pp_attr_scrapes {
    size_t n;
    size_t n_metrics;
    double *stamps;  /* ns from base, ascending */
    double *values;  /* [metric * n + j], NaN where missing */
    int8_t *change;  /* [j] against j - 1: see pp_attr_change */
    size_t *dropped; /* [metric] */
    size_t *kept;    /* [metric] */
    double scrape;   /* S, ns */
    double window;   /* W, ns */
    /* The publication's phase modulo W, from which scrapes read something new. */
    bool grid;
    double phase;  /* middle of the feasible arc */
    double half;   /* half its width */
    double jitter; /* of publications against their phase, at most */
    bool searched; /* scrapes fall into the arc: where in it the phase is, the fit must tell */
} pp_attr_scrapes;

typedef enum pp_attr_change {
    PP_ATTR_UNKNOWN = 0, /* equal, but such values repeat by themselves */
    PP_ATTR_CHANGED,
    PP_ATTR_SAME,
    PP_ATTR_STALE, /* the same for longer than a collection can be: nobody measures */
} pp_attr_change;

/** Longer without a scrape than some lost ones: the exporter may have been started anew meanwhile.
 */
static inline double pp_attr_pause(const pp_attr_scrapes *s)
{
    return fmax(1.5e9, 4 * s->scrape);
}

/** The scrapes that are marked, with a phase of their own; the others count as dropped. */
int pp_attr_scrapes_pick(const pp_attr_scrapes *from, const bool *pick, pp_attr_scrapes *to,
                         pp_error *err);

int pp_attr_scrapes_init(pp_attr_scrapes *s, const pp_attribution_input *in, const uint32_t *order,
                         int64_t base_ns, pp_error *err);
void pp_attr_scrapes_done(pp_attr_scrapes *s);
/* A scrape read one collection earlier than nominal, the nominal one, or one later. */
#define PP_ATTR_STATES 3
/**
 * Windows for one publication phase (ignored without a grid). misfit[j * PP_ATTR_STATES + state]
 * says how badly scrape j's values fit each collection that it may have read, in log likelihood;
 * NULL: not known yet. With `sure`, scrapes too close to a publication are left out.
 */
int pp_attr_windows_init(pp_attr_windows *w, const pp_attr_scrapes *s, double phase,
                         const double *misfit, bool sure, pp_error *err);
void pp_attr_windows_done(pp_attr_windows *w);

/* ---- the model ------------------------------------------------------------------------------- */

/** Items that are fitted as one unknown, next to each other in the step. */
typedef struct pp_attr_columns {
    size_t n;
    uint32_t *column;  /* [canonical row] -> column, UINT32_MAX: never ran */
    uint32_t *members; /* canonical rows, in order of phase and place in the step */
    size_t *first;     /* [n + 1] into members */
    double *time;      /* [column] ns */
    pp_attribution_phase *phase;
} pp_attr_columns;

int pp_attr_columns_init(pp_attr_columns *c, const pp_attr_timeline *t,
                         const pp_attribution_input *in, pp_error *err);
void pp_attr_columns_done(pp_attr_columns *c);

typedef struct pp_attr_entry {
    uint32_t window;
    uint32_t column;
    uint32_t occurrence;
    double x;
} pp_attr_entry;

/** Shares of time of some windows at one lag. */
typedef struct pp_attr_design {
    size_t n;
    size_t p;
    double *x; /* n x p */
    pp_attr_entry *entries;
    size_t n_entries;
    size_t cap_entries;
    size_t band;
} pp_attr_design;

/** Sets d for windows that end at ends[i] - lag. With `effects` the entries are kept and sorted. */
int pp_attr_design_set(pp_attr_design *d, const pp_attr_timeline *t, const pp_attr_columns *c,
                       const double *ends, size_t n, double window, double lag, bool effects,
                       pp_error *err);
void pp_attr_design_done(pp_attr_design *d);

/** What the fit of one metric takes and gives; values are scaled by the metric's range. */
typedef struct pp_attr_fit {
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
} pp_attr_fit;

int pp_attr_fit_init(pp_attr_fit *f, size_t p, pp_error *err);
void pp_attr_fit_done(pp_attr_fit *f);
void pp_attr_fit_copy(pp_attr_fit *to, const pp_attr_fit *from);

/** Scratch memory of the model, grown on demand. */
typedef struct pp_attr_work {
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
} pp_attr_work;

void pp_attr_work_done(pp_attr_work *w);

/** -2 log evidence of y (scaled) at the fit's variances; nothing in f changes but evidence. */
int pp_attr_evidence(pp_attr_work *w, const pp_attr_design *d, const double *y, pp_attr_fit *f,
                     pp_error *err);
/** Finds the variances (a first time when noise2 is 0, else near the last ones), then solves. */
int pp_attr_variances(pp_attr_work *w, const pp_attr_design *d, const double *y, pp_attr_fit *f,
                      pp_error *err);
/** Solves at the fit's variances: b, cov, square, effective, evidence. */
int pp_attr_estimate(pp_attr_work *w, const pp_attr_design *d, const double *y, pp_attr_fit *f,
                     pp_error *err);

/** After pp_attr_estimate with the same w: widens cov where residuals are larger than the model has
 *  it (sandwich estimate), e.g. where windows' edges or the activity's stamps are not exact. */
int pp_attr_robust(pp_attr_work *w, size_t n, pp_attr_fit *f, pp_error *err);

/* ---- the lag --------------------------------------------------------------------------------- */

typedef struct pp_attr_problem {
    const pp_attribution_input *in;
    const uint32_t *order; /* canonical metric -> the caller's index */
    const pp_attr_timeline *timeline;
    const pp_attr_columns *columns;
    const double *scale; /* [canonical metric] range */
    double max_lag;
} pp_attr_problem;

/** Scaled; what varies less carries no lag. */
#define PP_ATTR_CONSTANT_SD 1e-5
/** Most exporters publish within so many windows. */
#define PP_ATTR_USUAL_WINDOWS 2.5

typedef struct pp_attr_lag {
    bool known;
    double lag;
    double se;
    double evidence; /* of the coarse search; compares publication phases */
    double contrast; /* of the coarse search: by how much it is better than a typical lag */
} pp_attr_lag;

/** The lag by least squares: on a grid of starts, the best one refined if `refine`. */
int pp_attr_lag_coarse(const pp_attr_problem *q, const pp_attr_windows *w, bool refine,
                       pp_attr_lag *ret, pp_error *err);
/** Estimates the lag of w over all metrics; fits[metric] then hold the variances at it. */
int pp_attr_lag_find(const pp_attr_problem *q, const pp_attr_windows *w, pp_attr_fit *fits,
                     pp_attr_lag *ret, pp_error *err);
/** misfit for pp_attr_windows_init, by least squares over the windows w at this lag. */
int pp_attr_misfit(const pp_attr_problem *q, const pp_attr_scrapes *s, const pp_attr_windows *w,
                   double lag, double phase, double *misfit, pp_error *err);
/** Prior, bounds and scale of one metric, whose scaled values have this mean. */
void pp_attr_fit_prior(const pp_attr_problem *q, size_t metric, double mean, pp_attr_fit *f);

/* ---- groups ---------------------------------------------------------------------------------- */

/** Columns from .. to - 1 as one: standard error of their time-weighted mean (scaled), and whether
 *  it is within max_se and owed to the data rather than to the prior. The value of one item of a
 *  bundle may differ from the bundle's by what the rest of it, `missing` of its time, may hold. */
bool pp_attr_determined(const pp_attr_fit *f, const pp_attr_columns *c, size_t from, size_t to,
                        double missing, double max_se, double *ret_se);

/** A determined group of neighbouring columns. */
typedef struct pp_attr_range {
    size_t from, to;
} pp_attr_range;

/** Merges what is not determined alone with its neighbours. ranges (room for columns->n) receives
 *  the determined groups; returns how many, -1 on error. */
int pp_attr_group(const pp_attr_fit *f, const pp_attr_columns *c, double max_se, double max_time,
                  pp_attr_range *ranges, pp_error *err);

/* ---- one solution ------------------------------------------------------------------------------
 */

/** Everything that one solution holds on its way. */
typedef struct pp_attr_solver {
    const pp_attribution_input *in;
    pp_attribution_result *ret;
    uint32_t *order; /* canonical metric -> the caller's index */
    double *scale;   /* [canonical metric] */
    pp_attr_timeline timeline;
    pp_attr_columns columns;
    pp_attr_scrapes scrapes;
    pp_attr_windows windows;
    pp_attr_problem problem;
    pp_attr_fit *fits; /* [canonical metric] */
    size_t n_fits;
    pp_attr_lag lag;
    double phase;
    pp_attr_work work;
    pp_attr_design design;
    size_t cap_groups;
} pp_attr_solver;

/** Scaled values of one metric and its windows' nominal ends, observed at the lag found. */
typedef struct pp_attr_rows {
    size_t n;
    double *ends;
    double *y;
    double mean;
} pp_attr_rows;

/** Phase and windows of the solver's scrapes. */
int pp_attr_windows_make(pp_attr_solver *s, pp_error *err);
/** Leaves out the scrapes of other grids than most have. */
int pp_attr_parts_keep(pp_attr_solver *s, pp_error *err);

pp_attribution_result *pp_attr_result_new(const pp_attribution_input *in);
int pp_attr_report_windows(pp_attr_solver *s, pp_error *err);
void pp_attr_report_rows(pp_attr_solver *s);
int pp_attr_report_job(pp_attr_solver *s, size_t metric, pp_error *err);
int pp_attr_adjust_job(pp_attr_solver *s, size_t metric, const pp_attr_rows *u, pp_error *err);
void pp_attr_report_fit(const pp_attr_solver *s, size_t metric, const pp_attr_rows *u);
int pp_attr_report_estimates(pp_attr_solver *s, size_t metric, pp_error *err);

#endif
