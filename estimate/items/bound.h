/*
 * What bounds a stretch of time on a GPU, by what its units did meanwhile.
 *
 * A kernel is bound by the unit that comes nearest to what it can do, where that is 60 % and more;
 * below, no unit is the bound, and it is by latency: too few threads, or each waits too long. 60 %
 * is where Nsight Compute draws that line too (its "GPU Speed Of Light" section). A value that may
 * lie on either side of the line counts on both, by how likely each is.
 */
#ifndef PP_ESTIMATE_ITEMS_BOUND_H
#define PP_ESTIMATE_ITEMS_BOUND_H

#include "common/metric.h"

typedef enum pp_bound {
    PP_BOUND_TENSOR,          /**< tensor cores */
    PP_BOUND_FP32,            /**< FP32 pipes */
    PP_BOUND_MEMORY,          /**< the GPU memory's bandwidth */
    PP_BOUND_LATENCY,         /**< kernels that keep no unit busy */
    PP_BOUND_COMMUNICATION,   /**< waits for other ranks */
    PP_BOUND_DATA,            /**< no kernel runs: the next batch is not there */
    PP_BOUND_SYNCHRONIZATION, /**< no kernel runs: the host has waited for the GPU before */
    PP_BOUND_LAUNCH,          /**< no kernel runs: the host has not launched the next one yet */
    PP_BOUND_UNKNOWN,         /**< too little was measured to say */
    PP_BOUND_COUNT,
} pp_bound;

/** TENSOR, FP32 and MEMORY are the first of them: the units that have a peak. */
enum { PP_BOUND_UNITS = 3 };

/** "Tensor", "FP32", "Memory", "Latency", "Communication", "Data", "Synchronization", "Launch",
 * "Unknown". */
const char *pp_bound_name(pp_bound bound);

/** The name of a bound that is so likely; NULL: nothing is known, so 0 or NaN, or too little. */
const char *pp_bound_told(pp_bound bound, double likely);

/** Share of its limit that a unit was at, and its standard error; NaN: not measured. */
typedef struct pp_bound_unit {
    double value, standard_error;
} pp_bound_unit;

/**
 * How likely each bound is, of time in which kernels ran: units[] by TENSOR, FP32, MEMORY, whose
 * errors are apart; the rest of ret[] is 0 but for LATENCY and UNKNOWN. The sum is 1. `least`: the
 * units' values are lower limits (means over time that may hold idle time), so that they never say
 * LATENCY.
 */
void pp_bound_of_units(const pp_bound_unit units[3], bool least, double ret[PP_BOUND_COUNT]);

/** The metric of a unit's bound, which is one of the first PP_BOUND_UNITS. */
pp_metric pp_bound_metric(pp_bound unit);

/** The unit's bound of a metric, PP_BOUND_COUNT: it is none of a unit. */
pp_bound pp_bound_of_metric(pp_metric metric);

#endif
