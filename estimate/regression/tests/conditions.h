/*
 * Conditions in which Regression is to be right (1.5 points, 97 % within 3 standard errors) or to
 * withhold its values. None may be confident and wrong (1 % of values beyond 5).
 */
#ifndef PP_ESTIMATE_REGRESSION_TESTS_CONDITIONS_H
#define PP_ESTIMATE_REGRESSION_TESTS_CONDITIONS_H

#include "estimate/regression/tests/sim.h"

typedef enum sim_expectation {
    SIM_RIGHT,    /* and told: 80 % of the steps' time */
    SIM_WITHHELD, /* nothing is told */
    SIM_EITHER,   /* what is told is right */
} sim_expectation;

typedef struct sim_condition {
    const char *name;
    void (*change)(sim_config *c);
    sim_expectation expected;
    bool runs_code_of_its_own;
} sim_condition;

extern const sim_condition sim_conditions[];
extern const size_t sim_condition_count;

/** `main` of a program that takes [RUNS [CONDITION [SEED]]] (default 40, all, 9000): `run` for each
 * condition whose name has CONDITION in it, until one returns less than 0. What it exits with. */
int sim_conditions_main(int argc, char **argv,
                        int (*run)(const sim_condition *v, int runs, uint64_t seed));

#endif
