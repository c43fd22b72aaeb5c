/* Whether nodes' clocks are right, by the Leases that their kubelets renew every 10 s: no I/O. */
#ifndef PP_CLI_KUBECTL_NODE_CLOCKS_H
#define PP_CLI_KUBECTL_NODE_CLOCKS_H

#include <jansson.h>

/**
 * Of facts (facts.h) the clocks that are more than a minute off this machine's: an array of {"of",
 * "evidence"}, one for all nodes where all are off alike. A node that is not ready renews nothing,
 * and is not judged. A new reference, NULL where memory is out.
 */
json_t *pp_node_clocks(const json_t *facts);

#endif
