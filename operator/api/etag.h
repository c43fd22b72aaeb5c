/* Entity tags of answers, and what a client says it has. No I/O. */
#ifndef PP_OPERATOR_API_ETAG_H
#define PP_OPERATOR_API_ETAG_H

#include "common/json.h"

#include <stdbool.h>

enum { PP_API_MAX_ETAG = 80 };

/** The tag, quotes included, of what has this version (letters and digits, at most 64). */
void pp_api_etag(const char *version, char out[PP_API_MAX_ETAG]);

/** The versions that an If-None-Match names, at most 16 of this release's own; *ret_any: "*". */
int pp_api_etags_read(const char *header, pp_strings *ret, bool *ret_any, pp_error *err);

#endif
