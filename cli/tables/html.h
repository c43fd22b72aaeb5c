/* Results as one page that needs nothing else: no script, no request, no font. */
#ifndef PP_CLI_TABLES_HTML_H
#define PP_CLI_TABLES_HTML_H

#include "cli/formats/training.h"
#include "common/error.h"

#include <stdio.h>

/**
 * Writes a section of each training, in it a table of each GPU: the table's rows and columns
 * (table.h), every number rounded for people, with all its digits in the `value` of its element
 * <data>. Where a value is not known its cell says so, and why. All texts of the results are
 * escaped; none becomes an attribute's name, a style or a link.
 */
int pp_html_write(const pp_training *trainings, size_t n, FILE *to, pp_error *err);

#endif
