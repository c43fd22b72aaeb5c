/* Steps that a run kept one by one, as the HTTP API's timeline has them. */
#ifndef PP_CLI_SERVE_DOCUMENT_TIMELINE_H
#define PP_CLI_SERVE_DOCUMENT_TIMELINE_H

#include "common/error.h"

#include <jansson.h>
#include <stdint.h>

/** The first hundred steps of a process (-1: of the first that has any) of a folder's batches: a
 * new array. *ret_process is whose they are, -1: nobody's. */
json_t *pp_document_timeline(const char *folder, int64_t process, int64_t *ret_process,
                             pp_error *err);

/** Numbers of the folder's processes, a new array. */
json_t *pp_document_processes(const char *folder, pp_error *err);

#endif
