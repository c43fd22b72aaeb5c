/*
 * CSV as RFC 4180 has it: texts in quotes, with a quote doubled, and whatever else they hold as it
 * is. What is not known is nothing between two commas; an empty text is a pair of quotes.
 */
#ifndef PP_CLI_FORMATS_CSV_H
#define PP_CLI_FORMATS_CSV_H

#include <jansson.h>
#include <stdio.h>

/** Ends a line. */
#define PP_CSV_END "\r\n"

/** A text for programs: as it is. NULL: not known. */
void pp_csv_text(FILE *to, const char *text);

/**
 * A text for people, who open files in spreadsheets: one that a spreadsheet would take for a
 * formula (it begins with = + - @, a tab, a CR or an LF) gets an apostrophe before it, and so does
 * one that begins with an apostrophe. Whoever takes one apostrophe off the begin of each text that
 * has one has the texts as they were. NULL: not known.
 */
void pp_csv_plain_text(FILE *to, const char *text);

/** As few digits as are read back as the same number; not known where it is not finite. */
void pp_csv_number(FILE *to, double number);

/** A text for people, or a number, by what the value is; null and all else: not known. */
void pp_csv_value(FILE *to, const json_t *value);

#endif
