/*
 * A synthetic training on one GPU with known truth, for the tests and the benchmark of
 * attribution: steps of layers whose durations fluctuate as on contended cores, values that vary
 * from step to step, an exporter that averages over nominal windows and publishes late, and a
 * scraper that drifts against it.
 */
#ifndef PP_ESTIMATE_REGRESSION_TESTS_SIM_H
#define PP_ESTIMATE_REGRESSION_TESTS_SIM_H

#include "common/tests/random.h"
#include "estimate/regression/regression.h"

#define SIM_METRICS 6 /* four shares, GPU_UTIL in whole percent or fractions, memory in MiB */

typedef struct sim_config {
    uint64_t seed;
    double duration;       /* s */
    double step;           /* s, mean */
    int layers;            /* substantial ones */
    bool short_phases;     /* zero_grad, data and communication, each a thousandth of the step */
    double tiny;           /* most time of an activation, share of the step */
    double window, scrape; /* s */
    double delay;          /* s, window end to publication */
    double delay_jitter;   /* s, at most, on top */
    double drift;          /* of scrapes against collections, e.g. 1e-3 */
    double scrape_jitter;  /* s, sd */
    double read_late;      /* s, mean: a scrape reads its values so long after its stamp */
    double stalls;         /* share of scrapes at which the machine stands still for a while ... */
    double stall;          /* ... s, mean: the reading, the scrape or the publication comes later */
    double noise;          /* share of the range */
    double cv;             /* of a value from step to step */
    double contention;     /* 0: durations vary by 3 %; 1: by a factor of two in spells */
    double idle;           /* s after each step, mean */
    double lost;           /* share of scrapes that failed */
    double outage;         /* s without a scrape, from two fifths of the time on */
    bool restart;          /* the exporter was started anew in it: windows have another phase */
    int zeros;             /* windows after it that read 0 */
    double edge_jitter;    /* s, sd of the windows' real edges */
    double late_marks;     /* s, mean by which a tenth of the hook's stamps comes late */
    int captures;          /* sampled captures, with gaps of two steps between; 0 means 1 */
    bool whole_percent;    /* GPU_UTIL as an integer */
    bool grid;             /* activity as sums on 10 ms cells */
    bool kernels;          /* activity tells kernels' time; a piece has stalls of some ms, in which
                              no kernel runs, and its kernels take as long whatever it takes */
    bool kernels_untold;   /* all of that, but the activity does not tell them */
    double tenant;         /* what somebody else adds to every value, share of the range */
    double lengths;        /* sd of the logarithm of each step's length, which values rise with */
    double rise;           /* by so much: value ~ length to this power */
    double throttle;       /* spells in which all takes longer by this share, DRAMActive is less */
    double sparse;      /* share of items that are 0 in a metric, drawn for each metric but SMActive
                           and GPUUtil: not all have products, or read memory */
    double clocks;      /* some items run at a clock that is lower by this; what is counted in
                           the SMs is a share of a window's cycles */
    double slow;        /* how many of the items; 0: a quarter */
    double util_period; /* s over which GPU_UTIL is averaged; 0: the window */
    bool multiplexed;   /* metrics 0 and 2 are of a window's first half, 1 and 3 of its last */
    bool even;          /* layers take equally long, and always the same; nothing else does */
    bool shuffled;      /* the layers' names are dealt anew in each step */
    bool since_before;  /* a value is of all windows since the one before it was read, as GPM's */
    double taken_every; /* s, period of the timer that takes windows over, each time all that have
                           ended `delay` ago; 0: each window by itself */
    double taken_spread; /* sd of the logarithm of how much longer than a window that is, by spells
                            of 10 s */
    double window_hint;  /* s, as told; 0: the window's own length */
    bool no_hints;       /* W and S are not told */
} sim_config;

typedef struct sim {
    sim_config config;
    pp_regression_input in;
    double *truth;    /* [(n_items + 2) * SIM_METRICS] nominal, metric's unit */
    double *realised; /* the same, averaged over what was drawn in the observed time */
    double job[SIM_METRICS];
    double *read_end; /* [sample] ns from the origin: true end of the newest window that it is of */
    double first_end; /* ns from the origin: a true window end; the others are W apart */
    /* Owned memory behind `in`. */
    pp_regression_item *items;
    char (*names)[32];
    pp_regression_interval *intervals;
    pp_regression_cell *cells;
    pp_time_range *steps;
    pp_time_range *captures;
    pp_regression_metric metrics[SIM_METRICS];
    pp_regression_sample *samples[SIM_METRICS];
    void *run; /* what the GPU did, piece by piece */
} sim;

/** How one solution compares with the truth over the four shares and GPU_UTIL. */
typedef struct sim_score {
    double reported;  /* share of the steps' time in layers with a value of their own */
    double error;     /* time-weighted mean of |error| over these, points of the range */
    double bias;      /* the same of the signed error */
    double z2;        /* sum of squares of error / standard error */
    size_t n;         /* how many values */
    size_t within3;   /* of these, within 3 standard errors */
    size_t beyond5;   /* and beyond 5 */
    double worst;     /* points */
    double job_error; /* worst relative error of a job mean */
    double plain;     /* time-weighted mean error of the overlap-weighted mean, same layers */
    double group_z2;  /* of groups against their members' time-weighted truth */
    size_t groups;
    size_t windows;
    size_t misread;   /* windows that are taken to end half a length and more away */
    double end_error; /* ms, of the windows' ends; NaN when the lag is not known */
} sim_score;

/** Time-weighted mean of |error| over the layers that are told of one metric, points of its range;
 * NaN: none is. */
double sim_metric_error(const sim *s, const pp_regression_result *r, size_t metric);

sim_config sim_defaults(uint64_t seed);
/** Aborts when out of memory: test code. */
sim *sim_new(const sim_config *config);
void sim_free(sim *s);
void sim_score_of(const sim *s, const pp_regression_result *r, sim_score *ret);
/** The true windows of its samples, in order of time; ret has room for metrics[0].n_samples.
 * Returns how many. */
size_t sim_windows(const sim *s, pp_regression_window *ret);

#endif
