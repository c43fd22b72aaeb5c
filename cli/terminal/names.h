/*
 * Names in columns of a terminal: one that is too long loses its middle. They come from a training,
 * or from a file that anybody may have written: no control character of theirs is printed, nor one
 * that turns the direction of writing.
 */
#ifndef PP_CLI_TERMINAL_NAMES_H
#define PP_CLI_TERMINAL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** A name in so many places: of one that is too long `head` places come before what is left out.
 * With `from` above 0 so many are left out at its begin as well. */
typedef struct pp_name_cut {
    int places, head, from;
} pp_name_cut;

/** A character of several bytes takes one place. */
int pp_name_places(const char *text);
/** Behind a space, so that the text, however many bytes its characters take, ends so many places
 * further on. */
void pp_name_print_right(FILE *to, const char *text, int places);

/** Places of the longest, as far as it is ever printed. */
int pp_names_longest(const char *const *names, size_t n);

/** To the left of a column; a control character as "?". */
void pp_name_print(FILE *to, const char *text, const pp_name_cut *cut);

/** A text of lines: control characters but the lines' ends as "?". */
void pp_lines_print(FILE *to, const char *text);

/** Whether a cut shows no two different names alike. */
bool pp_names_apart(const char *const *names, size_t n, const pp_name_cut *cut);

/** Chooses the cut to so many places, of the names' middle, that shows the fewest names alike;
 * whether it shows none so. */
bool pp_names_cut(const char *const *names, size_t n, int places, pp_name_cut *ret);

/** Chooses one that leaves out the names' begins, too, and shows none alike. False where there is
 * none: *ret is as it was then. */
bool pp_names_cut_begins(const char *const *names, size_t n, int places, pp_name_cut *ret);

/** What of a kernel's demangled name tells it apart: not `void` before it, nor the arguments behind
 * it. A new string; NULL where memory is out. */
char *pp_name_of_kernel(const char *demangled);

#endif
