#include "controller/injection/inject_patch.h"

#include "common/json.h"
#include "controller/injection/inject.h"

#include <string.h>

/* Of the API server's admission plugin ServiceAccount. */
#define TOKEN_PATH "/var/run/secrets/kubernetes.io/serviceaccount"

static json_t *op(const char *name, const char *path, json_t *value)
{
    return json_pack("{s:s, s:s, s:o}", "op", name, "path", path, "value", value);
}

/* json_array_append_new fails when the value could not be made, so that one check at the end of a
 * chain of additions suffices. */
int pp_inject_add(json_t *patch, const char *path, json_t *value)
{
    return json_array_append_new(patch, op("add", path, value));
}

int pp_inject_replace(json_t *patch, const char *path, json_t *value)
{
    return json_array_append_new(patch, op("replace", path, value));
}

json_t *pp_inject_mount(const char *volume, const char *path, bool read_only)
{
    json_t *value = json_pack("{s:s, s:s}", "name", volume, "mountPath", path);
    if (value && read_only)
        (void)json_object_set_new(value, "readOnly", json_true());
    return value;
}

static bool has_token(const json_t *container)
{
    const json_t *mounts = json_object_get(container, "volumeMounts");
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const char *path = pp_json_get_string(json_array_get(mounts, i), "mountPath", NULL);
        if (path && strcmp(path, TOKEN_PATH) == 0)
            return true;
    }
    return false;
}

json_t *pp_inject_without_token(const json_t *spec, json_t *mounts)
{
    const json_t *containers = json_object_get(spec, "containers");
    bool mounted = false;
    for (size_t i = 0; i < json_array_size(containers) && !mounted; i++)
        mounted = has_token(json_array_get(containers, i));
    if (mounted)
        (void)json_array_append_new(mounts, pp_inject_mount(PP_INJECT_HOOK, TOKEN_PATH, true));
    return mounts;
}

json_t *pp_inject_variable(const char *name, const char *value)
{
    return json_pack("{s:s, s:s}", "name", name, "value", value);
}
