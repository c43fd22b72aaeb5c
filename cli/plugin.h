/* kubectl precisionprobe: sessions on a cluster, from a terminal. */
#ifndef PP_CLI_PLUGIN_H
#define PP_CLI_PLUGIN_H

#include "common/error.h"

#include <argp.h>
#include <stdio.h>

/** Runs a verb (argv[0]); `parquet` as in parquet.h. Returns the exit status, or -1: then
 * *ret_advice may be lines that are to be told behind the error, a new string. */
int pp_plugin(int argc, char **argv, const char *parquet, char **ret_advice, pp_error *err);

/** The table that a verb's own options are parsed by; NULL: it has none. */
const struct argp_option *pp_plugin_options_known(const char *verb);

/** A line of each name of the context's namespace; nothing where there are none to be had. */
void pp_plugin_list_sessions(FILE *to);
void pp_plugin_list_patterns(FILE *to);
void pp_plugin_list_owners(FILE *to);

#endif
