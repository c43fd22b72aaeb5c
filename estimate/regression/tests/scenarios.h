/* Trainings, exporters and scrapes as they come: docs/attribution.md has how right each is. */
#ifndef PP_ESTIMATE_REGRESSION_TESTS_SCENARIOS_H
#define PP_ESTIMATE_REGRESSION_TESTS_SCENARIOS_H

#include "estimate/regression/tests/sim.h"

typedef struct sim_scenario {
    const char *name;
    void (*change)(sim_config *c);
} sim_scenario;

extern const sim_scenario sim_scenarios[];
extern const size_t sim_scenario_count;

#endif
