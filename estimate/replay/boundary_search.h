/* Finds when the windows end that a GPU's driver gives. */
#ifndef PP_ESTIMATE_REPLAY_BOUNDARY_SEARCH_H
#define PP_ESTIMATE_REPLAY_BOUNDARY_SEARCH_H

#include "estimate/problem/problem.h"

/** Where a GPU is read itself: finds when its windows end, from what dwells show; leaves the
 * problem's reading as it is where they show too little. */
int pp_boundaries_find(pp_problem *p, pp_error *err);

#endif
