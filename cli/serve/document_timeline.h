/* Steps that a run kept one by one, as the HTTP API's timeline has them. */
#ifndef PP_CLI_SERVE_DOCUMENT_TIMELINE_H
#define PP_CLI_SERVE_DOCUMENT_TIMELINE_H

#include "common/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pp_timeline_page {
    int64_t
        process;  /**< -1: the first that has any; afterwards whose steps they are, -1: nobody's */
    size_t from;  /**< steps that are left out before them */
    size_t limit; /**< 1 to PP_TIMELINE_STEPS */
    bool more;    /**< afterwards: others follow */
} pp_timeline_page;

enum { PP_TIMELINE_STEPS = 100 };

/** Steps of a process of a folder's batches: a new array. */
json_t *pp_document_timeline(const char *folder, pp_timeline_page *page, pp_error *err);

/** Numbers of the folder's processes, a new array. */
json_t *pp_document_processes(const char *folder, pp_error *err);

#endif
