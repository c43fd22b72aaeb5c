/* What may follow on a command line, for shells: from the tables of options that parse it. */
#ifndef PP_CLI_COMPLETE_H
#define PP_CLI_COMPLETE_H

#include <argp.h>
#include <stddef.h>
#include <stdio.h>

enum { PP_COMPLETE_TABLES = 3 };

/** A verb with its options; a table ends with zeros, NULL is none. */
typedef struct pp_complete_verb {
    const char *name;
    const struct argp_option *tables[PP_COMPLETE_TABLES];
    /** Writes a line of each name that may be an argument; NULL: arguments are files. */
    void (*names)(FILE *to);
} pp_complete_verb;

/**
 * Writes what the last of the words may become, a line each: of the first verbs, then options and
 * their values, or arguments. Nothing where files are meant. Verbs end with one without a name.
 */
void pp_complete(const pp_complete_verb *verbs, int n_words, char **words, FILE *to);

/** The shell's own part, "bash" or "zsh", which asks the program; returns -1 for another shell. */
int pp_complete_script(const char *shell, FILE *to);

#endif
