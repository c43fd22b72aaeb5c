/* A session's results as results.json would hold them, read from the operator's API. */
#ifndef PP_CLI_KUBECTL_SESSION_RESULTS_H
#define PP_CLI_KUBECTL_SESSION_RESULTS_H

#include "cli/kubectl/session_api.h"

/**
 * Reads the latest session of that name in the namespace: its rows, how right they are, and how far
 * steps are apart, by those that were kept one by one, of pods with one GPU. With `depth` the rows
 * are put together (results/fold.h). A new reference in *ret.
 */
int pp_session_results(pp_session_api *api, const char *namespace, const char *name, int depth,
                       json_t **ret, pp_error *err);

#endif
