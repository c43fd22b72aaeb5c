/* The page (docs/page.md) over results of runs, on this machine, until the program is told to stop.
 */
#ifndef PP_CLI_SERVE_SERVE_H
#define PP_CLI_SERVE_SERVE_H

#include "cli/serve/documents.h"

/**
 * Listens on `where`, "[ADDRESS:]PORT", loopback where it has no address and any port where that is
 * 0, says on standard output where the page is, and answers until SIGINT or SIGTERM. Whoever
 * reaches it sees all of it.
 */
int pp_serve(const char *where, const pp_documents *all, pp_error *err);

#endif
