/* What doctor knows of a cluster: objects as kubectl tells them, gathered once. */
#ifndef PP_CLI_KUBECTL_FACTS_H
#define PP_CLI_KUBECTL_FACTS_H

#include "cli/kubectl/kubectl.h"
#include "cli/kubectl/session_api.h"

/**
 * Asks for everything that the checks look at (doctor.h): an object with each fact under its name
 * and, in `unknown`, kubectl's words for those that it was not told. Fails only where kubectl
 * cannot be run, or memory is out. A new reference.
 *
 * `api`: the resources of precisionprobe.io/v1alpha1. `crds`, `webhooks`, `nodes`; of the
 * operator's namespace `deployments`, `operatorPods`, `services`, `endpoints`, `systemEvents`; of
 * `namespace` `sessions`, `pods`, `events`; `nodeLeases`, with this machine's time `now` behind the
 * question; dcgm-exporter's `exporterPods` and, where the GPU operator has made them,
 * `gpuOperatorPods`: lists. `metrics`: each operator pod's text by its name. `exporters`: the names
 * of series that some of the exporters' pods tell, by theirs.
 * `may`: "yes" or "no" by what the user may do; `mayRead`: by what reading results needs,
 * {"asked": of `kubectl auth can-i`, "answer"}. Where no token is given, `account` and, as a list
 * that is empty where there is none, `reader`.
 */
int pp_facts_gather(const pp_kubectl *kubectl, const pp_session_api_where *where, json_t **ret,
                    pp_error *err);

/** Whether this is what pp_facts_gather() of this release gives. */
bool pp_facts_is(const json_t *value);

#endif
