/* What files are made of: a training's results, and what its batches say beside them. */
#ifndef PP_CLI_FORMATS_TRAINING_H
#define PP_CLI_FORMATS_TRAINING_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/** A call of a layer in a phase, or one of the step's own phases (`layer` ""), in the order in
 * which a step comes to them. */
typedef struct pp_training_work {
    char *layer;
    const char *phase; /**< as on the wire; static */
    int call, calls;   /**< which one, from 0, of so many that a step makes */
    double place;      /**< ns from the step's begin, in the mean */
} pp_training_work;

/** What batches.jsonl says of a training. Owned by who read it. */
typedef struct pp_training_recorded {
    pp_training_work *order;
    size_t n_order;
    int64_t multiprocessors; /**< of its GPUs; 0: not known, or they differ */
    char *host;              /**< name of the machine; NULL: not known, or there are several */
} pp_training_recorded;

typedef struct pp_training {
    const char *name;                     /**< as import would call it */
    const json_t *results;                /**< results.json; a file that anybody may have written */
    const pp_training_recorded *recorded; /**< NULL where no format asked for it */
} pp_training;

#endif
