/* Standard errors of times (estimate/times/spread.h) of rows by their names, also of layers put
 * together. */
#ifndef PP_CLI_RESULTS_ITEM_SPREAD_H
#define PP_CLI_RESULTS_ITEM_SPREAD_H

#include "common/error.h"
#include "estimate/times/spread.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** The numbers of rows, by phase and layer. */
typedef struct pp_item_numbers {
    json_t *keys; /**< "phase layer": its number; an object, the caller's */
    int depth;    /**< layers' names are cut to their first `depth` parts, as pp_results_fold()
                       does; 0: they are whole */
} pp_item_numbers;

/** A row's, from 0 on. `layer` "": of a phase of the step as a whole. `whole`: the layer is not one
 * of a model's tree, and its name is never cut. */
int pp_item_number(pp_item_numbers *numbers, const char *phase, const char *layer, bool whole,
                   uint32_t *ret, pp_error *err);

/**
 * Adds to one of results.json's gpus, and to its items, the standard errors of their times:
 * stepMsStandardError, countedStepMsStandardError; millisecondsPerStepStandardError,
 * busyMillisecondsPerStepStandardError; and beside each, under the same name with Freedom in place
 * of StandardError, of how many degrees of freedom it is an estimate. Nothing where fewer than
 * eight steps tell it.
 */
int pp_item_spread_describe(pp_spread *spread, const pp_item_numbers *numbers, json_t *gpu,
                            pp_error *err);

/** Sets one of these, `name` without its end; nothing where the error is not known. In the unit of
 * that figure. */
int pp_item_spread_set(json_t *to, const char *name, double standard_error, double freedom,
                       pp_error *err);

#endif
