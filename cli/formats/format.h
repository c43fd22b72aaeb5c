/* What a scheduler's file is: how it is written, and what of it somebody has to say. */
#ifndef PP_CLI_FORMATS_FORMAT_H
#define PP_CLI_FORMATS_FORMAT_H

#include "cli/formats/training.h"
#include "common/error.h"

#include <stdbool.h>
#include <stdio.h>

typedef enum pp_told_type {
    PP_TOLD_TEXT,
    PP_TOLD_WHOLE, /**< a whole number from 0 on, of 15 digits at most */
    PP_TOLD_NUMBER,
} pp_told_type;

/** A field that no measurement tells, or that may be called otherwise than measured: `--set`. */
typedef struct pp_told_field {
    const char *name; /**< NULL ends a list */
    pp_told_type type;
    bool needed;
} pp_told_field;

/** What a file is made of. */
typedef struct pp_format_job {
    const pp_training *trainings;
    size_t n;           /**< one at least */
    const json_t *told; /**< texts by their fields' names, checked */
    FILE *to;
    FILE *notes; /**< a line each of what is left out of the file, for a person */
} pp_format_job;

typedef struct pp_format {
    const char *name;            /**< as after --format */
    bool recorded;               /**< it needs what batches.jsonl says */
    bool single;                 /**< a file is of one training */
    const pp_told_field *fields; /**< that may be told */
    /** Fails with the name of the field that the consumer needs and nothing tells. */
    int (*write)(const pp_format_job *job, pp_error *err);
} pp_format;

#endif
