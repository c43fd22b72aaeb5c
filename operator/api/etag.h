/* Entity tags of answers, and what a client says it has. No I/O. */
#ifndef PP_OPERATOR_API_ETAG_H
#define PP_OPERATOR_API_ETAG_H

#include "common/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { PP_API_MAX_ETAG = 96 };

/** A number for what is asked, so that one path's tag, or one page's, is no other's. */
uint64_t pp_api_etag_of(const char *path, const pp_strings *query);

/** The tag, quotes included, of what has this version (letters and digits, at most 64) there. */
void pp_api_etag(const char *version, uint64_t of, char out[PP_API_MAX_ETAG]);

/** The versions that an If-None-Match names of it, at most 16 of this release's own; *ret_any:
 * "*". */
int pp_api_etags_read(const char *header, uint64_t of, pp_strings *ret, bool *ret_any,
                      pp_error *err);

#endif
