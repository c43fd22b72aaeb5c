#include "controller/pods/agent_alone.h"

#include "common/json.h"
#include "controller/injection/inject.h"

#include <string.h>

/* Whether a container has ended and the kubelet will not start it again. */
static bool ended_for_good(const json_t *pod, const char *container)
{
    const json_t *statuses = pp_json_get(pod, "status", "containerStatuses", NULL);
    const json_t *end =
        pp_json_get(pp_json_named(statuses, container), "state", "terminated", NULL);
    const char *policy = pp_json_get_string(pod, "spec", "restartPolicy", NULL);
    if (!end || !policy)
        return false;
    if (strcmp(policy, "OnFailure") == 0)
        return json_integer_value(json_object_get(end, "exitCode")) == 0;
    return strcmp(policy, "Never") == 0;
}

bool pp_agent_is_alone(const json_t *pod)
{
    const json_t *containers = pp_json_get(pod, "spec", "containers", NULL);
    bool ordinary = false;
    for (size_t i = 0; i < json_array_size(containers); i++) {
        const char *name = pp_json_get_string(json_array_get(containers, i), "name", NULL);
        if (name && strcmp(name, PP_INJECT_AGENT) == 0)
            ordinary = true;
        else if (!name || !ended_for_good(pod, name))
            return false;
    }
    return ordinary;
}
