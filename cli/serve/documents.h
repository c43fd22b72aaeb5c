/*
 * Results of runs as the HTTP API's documents (docs/openapi/api.yaml), for the page: of what
 * results.json tells, with its digits. A run has the namespace `local`, and for its UID the number
 * that it was given on the command line.
 */
#ifndef PP_CLI_SERVE_DOCUMENTS_H
#define PP_CLI_SERVE_DOCUMENTS_H

#include "cli/formats/training.h"
#include "common/error.h"

#include <stdbool.h>

typedef struct pp_documents {
    const pp_training *trainings;
    const char *const *folders; /**< of each, where its batches are */
    size_t n;
} pp_documents;

/** What is asked for beside the path: "" and -1 where nothing is. */
typedef struct pp_document_query {
    char uid[24];
    int64_t process;
    size_t from, limit; /**< of a timeline's steps, as pp_timeline_page has them */
} pp_document_query;

/** The document of a path below /api/v1/, decoded; a new reference. NULL: there is none, or, where
 * err is set, it cannot be made. */
json_t *pp_document(const pp_documents *all, const char *path, const pp_document_query *query,
                    pp_error *err);

#endif
