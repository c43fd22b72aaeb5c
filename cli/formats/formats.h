/* The files that schedulers take: docs/files.md. */
#ifndef PP_CLI_FORMATS_FORMATS_H
#define PP_CLI_FORMATS_FORMATS_H

#include "cli/formats/format.h"

/** NULL where there is none of that name. */
const pp_format *pp_format_find(const char *name);

/** Their names, "koordinator, lucid, ...", static. */
const char *pp_format_names(void);

/**
 * Adds what a person told as "NAME=VALUE" to an object of texts. Fails where the format has no such
 * field, where the value is not of its type, and where it was told before.
 */
int pp_format_tell(const pp_format *format, const char *text, json_t *told, pp_error *err);

/** Writes the file. Nothing of it is of use where it fails. */
int pp_format_write(const pp_format *format, const pp_format_job *job, pp_error *err);

#endif
