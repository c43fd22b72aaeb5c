/* The operator's page in a browser of this machine. */
#ifndef PP_CLI_KUBECTL_OPEN_H
#define PP_CLI_KUBECTL_OPEN_H

#include "cli/kubectl/session_api.h"

#include <stdbool.h>

/**
 * Lets `kubectl proxy` serve the page on a free port of loopback, and nothing else of the cluster;
 * prints its address and the command that makes a token for its login, and opens it in a browser
 * where there is one and `browser` says so. Returns when kubectl does, which a Ctrl-C ends.
 */
int pp_open_page(const pp_kubectl *kubectl, const pp_session_api_where *where, const char *session,
                 bool browser, pp_error *err);

#endif
