/* Rows of the views of results (docs/results.md) out of a results.json, by the views' names. */
#ifndef PP_CLI_SERVE_DOCUMENT_ROWS_H
#define PP_CLI_SERVE_DOCUMENT_ROWS_H

#include "cli/formats/training.h"
#include "common/error.h"

/** Of `layers`, `quality`, `kernels`, `waits`, `copies` or `ranks`: a new array; NULL: no such
 * view, or, where err is set, no memory. `uid` goes into the rows. */
json_t *pp_document_rows(const pp_training *training, const char *view, const char *uid,
                         pp_error *err);

/** The training's pattern, whole, as the API has it; a new reference, NULL: it has none. */
json_t *pp_document_pattern(const pp_training *training, const char *uid);

#endif
