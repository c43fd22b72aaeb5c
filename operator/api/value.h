/* Single values as JSON, and what is UTF-8. No I/O. */
#ifndef PP_OPERATOR_API_VALUE_H
#define PP_OPERATOR_API_VALUE_H

#include "common/buf.h"
#include "common/cell.h"

#include <stdbool.h>

/** A string; bytes that are no UTF-8 become U+FFFD. */
int pp_api_write_text(pp_buf *out, const char *text, pp_error *err);

/** With as few digits as are read back as the same number; null where it is not finite. */
int pp_api_write_real(pp_buf *out, double value, pp_error *err);

/** A cell's value: what is not known is null, a time is RFC 3339 in UTC. */
int pp_api_write_cell(pp_buf *out, const pp_cell *cell, pp_error *err);

bool pp_api_is_utf8(const char *text);
/** Valid UTF-8 without control characters. */
bool pp_api_is_plain(const char *text);

#endif
