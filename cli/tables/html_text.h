/* Texts and numbers in a page of HTML. */
#ifndef PP_CLI_TABLES_HTML_TEXT_H
#define PP_CLI_TABLES_HTML_TEXT_H

#include <jansson.h>
#include <stdio.h>

/** As text or as an attribute's value in double quotes: with & < > " ' escaped. Control characters
 * but the line's end become "?", so do those that turn the direction of writing. */
void pp_html_text(FILE *to, const char *text);

/** Begins an element <data> whose value is the number itself with all digits. */
void pp_html_data(FILE *to, const json_t *number);

/** Times `scale`, rounded to so many digits behind the point, in such an element; "not known"
 * where it is none. */
void pp_html_number(FILE *to, const json_t *number, double scale, int digits);

#endif
