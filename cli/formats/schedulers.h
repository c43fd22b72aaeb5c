/* One for each scheduler; what each has in its fields, its own file says. */
#ifndef PP_CLI_FORMATS_SCHEDULERS_H
#define PP_CLI_FORMATS_SCHEDULERS_H

#include "cli/formats/format.h"

extern const pp_format pp_format_koordinator;
extern const pp_format pp_format_lucid;
extern const pp_format pp_format_muri;
extern const pp_format pp_format_orion;
extern const pp_format pp_format_trimaran;

#endif
