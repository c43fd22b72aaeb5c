/*
 * What is trained: by it a workload that was changed is told from what it was before. Of a GPU, and
 * of a session, which may train several: as pipeline stages, or beside each other.
 */
#ifndef PP_ESTIMATE_PATTERN_MODEL_H
#define PP_ESTIMATE_PATTERN_MODEL_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>

/** As the hook tells it; "" where it is not known. */
typedef struct pp_model {
    char *name;   /**< of its class */
    char *digest; /**< of its modules and parameters */
    char *batch;  /**< shapes of what it is trained with */
} pp_model;

/** So many of a pattern's are told. */
enum { PP_MODELS_TOLD = 16 };

/** Sorted, each once. */
typedef struct pp_models {
    pp_model *items;
    size_t n;
} pp_models;

/** Texts are copied, NULL is "". PP_ERR_NOMEM. */
int pp_models_add(pp_models *models, const char *name, const char *digest, const char *batch,
                  pp_error *err);
int pp_models_add_all(pp_models *models, const pp_models *from, pp_error *err);
/** What is not known is like nothing but what is not known either. */
bool pp_models_equal(const pp_models *a, const pp_models *b);
/** Frees what it holds. */
void pp_models_done(pp_models *models);

#endif
