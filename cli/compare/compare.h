/* Two trainings side by side: what differs, by how much, and whether that is more than noise. */
#ifndef PP_CLI_COMPARE_COMPARE_H
#define PP_CLI_COMPARE_COMPARE_H

#include "cli/formats/training.h"
#include "common/error.h"

#include <stdbool.h>

/** A value of both. What is not known is NaN. */
typedef struct pp_compared {
    const char *quantity;                    /**< as the view result_detail calls it; static */
    const char *unit;                        /**< static */
    double shown;                            /**< what it is multiplied by for people */
    double value, error, other, other_error; /**< in the unit, with their standard errors */
    double difference, difference_error;     /**< NaN: never made, as `reason` says */
    double z, p;
    bool marked;        /**< more than noise, by all of its family */
    const char *reason; /**< why there is no difference, or no z; static, or ""; */
    char told[160];     /**< more of it, as both methods; "" */
} pp_compared;

/** A layer in a phase, or a phase of the step. Texts are the results'. */
typedef struct pp_compared_item {
    size_t gpu;                 /**< number of the pair of GPUs */
    const json_t *item, *other; /**< one of them NULL: only the other training has it */
    pp_compared *values;
    size_t n;
} pp_compared_item;

typedef struct pp_compared_gpu {
    const char *gpu, *other; /**< UUIDs; "": none named, NULL: the training has no such GPU */
    const char *unlike;      /**< why nothing of them is compared: another model; "" */
    char chips[2][128];
    bool unknown[2];       /**< neither the GPU's model nor a peak of it is known */
    long long captures[2]; /**< in which steps were marked; 0: not known */
    long long least;       /**< of these, but for one of 10 s and more; 0: none is left */
    pp_compared step;      /**< time of the whole step; quantity NULL: neither tells it */
} pp_compared_gpu;

typedef struct pp_comparison {
    const pp_training *training, *other; /**< the caller's */
    pp_compared_gpu *gpus;
    size_t n_gpus;
    pp_compared_item *items;
    size_t n_items;
    size_t compared, marked; /**< values that have a z, and those that are marked */
} pp_comparison;

/**
 * Compares two trainings' results; differences are the first's less the other's. GPUs of one UUID
 * belong together, then the others in order. Where they are of unlike models nothing is
 * differenced, nor are values of unlike methods, sources or bases. To be freed with
 * pp_comparison_done(), after a failure too.
 */
int pp_compare(const pp_training *training, const pp_training *other, pp_comparison *ret,
               pp_error *err);

void pp_comparison_done(pp_comparison *comparison);

#endif
