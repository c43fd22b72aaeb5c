/*
 * A synthetic GPU with known truth, for the tests and the benchmark of PM sampling: steps of
 * kernels whose metrics rise at their begin and run out at their end, back to back or with gaps for
 * want of launches, and samples of performance monitors on a clock of their own.
 */
#ifndef PP_ESTIMATE_SAMPLING_TESTS_SIM_H
#define PP_ESTIMATE_SAMPLING_TESTS_SIM_H

#include "estimate/sampling/join.h"
#include "estimate/sampling/solve.h"

typedef struct sim_config {
    uint64_t seed;
    int kernels;    /* of a step */
    double length;  /* us, median of a kernel */
    double spread;  /* of the logarithm of lengths */
    double gap[2];  /* us between kernels, from and to; several at once: launch-bound */
    double period;  /* us between samples */
    double capture; /* s */
    int captures;
    double cv;      /* of a kernel's values from step to step */
    double between; /* the same from capture to capture, kernel by kernel */
    double clocks;  /* and of all kernels alike */
    double noise;   /* of a sample, share of the range */
    double dead;    /* us by which a kernel's record is longer than it runs, before and after it */
    double stamps;  /* us, sd of a kernel's stamps */
    double lag;     /* us: the samples' clock less the kernels' */
    double drift;   /* of the samples' clock against the kernels' */
    double
        stamped; /* us, sd of what the likely lag is off by, the same in all captures; 0: none is */
    double rate; /* of the kernels' clock from a capture's begin on, where it is right, against
                    the samples'; both tell ticks of 32 ns then; 0: neither does */
    bool by_stamps; /* captures before it went by that lag */
    double tail;    /* share of a kernel, at its end, over which it runs out; 0: some us */
    double lost;    /* share of samples that are not there */
    int late;       /* so many of the last kernels run in the last capture alone */
    int parallel;   /* every so many kernels one runs beside the next; 0: none does */
    int missing;    /* number of a metric that is not offered, from 1; 0: none */
    int blank;      /* captures, from the first on, in which alone that is so; 0: all */
    double rare;    /* share of samples that have it all the same */
    bool shuffled;  /* layers come in another order in every fourth step */
    bool dealt;     /* layers' names are dealt anew in each step */
    bool judged;    /* each capture is predicted by those before it */
    double tenant;  /* what somebody else adds to every sample, share of the range */
    int fills;      /* every so many kernels a fill comes 2 us behind one; 0: none does */
    double fill;    /* us: how long it is */
    bool untold;    /* nobody tells of fills */
    int cleared; /* of a network's layer, so many kernels in a row have a gap before them at whose
                    end a fill runs */
    double clearing; /* us: that gap */
    double pause;    /* us behind a step in which nothing runs */
    int engine;      /* every so many kernels a copy engine works, from that one's middle on */
    int alike;       /* the network has so many kernels, which come again and again; 0: none does */
    double unlike; /* what kernels that are alike differ by, share of the range; 1: all there is */
    double slower; /* by up to this share a kernel slows the SMs' clock down */
    double recovers; /* us behind a kernel in which it is still as slow, as long as none runs */
    bool clockless;  /* samples do not tell the clock */
    double wrong;    /* us: the lag that is used is by so much too long */
} sim_config;

/* Truth of one item. */
typedef struct sim_item {
    uint32_t layer;
    uint8_t phase;
    double time;   /* us of a step */
    double kernel; /* us, mean of its kernels */
    double mean[PP_SAMPLING_METRICS];
} sim_item;

typedef struct sim {
    sim_config config;
    sim_item *items;
    size_t n_items;
    pp_sampling_sums **captures;
    size_t n_captures;
    double lag_error; /* us, root mean square of the found lags' errors */
    void *model;
} sim;

/* The metric that tells whether a kernel runs; those before it are drawn. */
enum { SIM_BUSY = 3 };

/** Back to back, 5 s in ten captures at 25 us; how many kernels and of which length is to be set.
 */
sim_config sim_usual(uint64_t seed);

/** Draws a model, runs its captures and joins each. Fails the program where a join fails. */
void sim_run(sim *s, const sim_config *config);
void sim_free(sim *s);

/** How one solution compares with the truth, over the drawn metrics and a class of items. */
typedef struct sim_score {
    size_t n;
    double error;  /* points, mean weighted by time */
    double p95;    /* points */
    double within; /* share of values within two standard errors */
    double z;      /* root mean square of error over standard error */
} sim_score;

/** Of items whose kernels last from `from` to `to` us on average. */
sim_score sim_compare(const sim *s, const pp_sampling_result *result, double from, double to);

#endif
