#include "operator/installation/deployment.h"

#include "common/json.h"
#include "operator/state/state.h"

void pp_deployment_event(pp_operator *op, const char *reason, const char *action, const char *text)
{
    const char *name = pp_json_get_string(op->owner, "name", NULL);
    const pp_kube_object_ref ref = {.api_version = "apps/v1",
                                    .kind = "Deployment",
                                    .ns = pp_kube_client_namespace(op->kube),
                                    .name = name,
                                    .uid = pp_json_get_string(op->owner, "uid", NULL)};
    if (name)
        pp_kube_event(op->recorder, &ref, PP_KUBE_EVENT_WARNING, reason, action, "%s", text);
}
