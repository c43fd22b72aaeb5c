#include "operator/installation/webhook.h"

#include "common/json.h"

#include <stdio.h>
#include <string.h>

/** One field of an entry. */
static void set(json_t *patch, size_t entry, const char *field, const char *have, const char *want)
{
    char path[80];
    if (have && strcmp(have, want) == 0)
        return;
    (void)snprintf(path, sizeof path, "/webhooks/%zu/clientConfig/%s", entry, field);
    json_array_append_new(patch,
                          json_pack("{s:s, s:s, s:s}", "op", "add", "path", path, "value", want));
}

/** That the entry is the one that was read. */
static void expect_name(json_t *patch, size_t entry, const char *name)
{
    char path[80];
    (void)snprintf(path, sizeof path, "/webhooks/%zu/name", entry);
    json_array_append_new(patch,
                          json_pack("{s:s, s:s, s:s}", "op", "test", "path", path, "value", name));
}

json_t *pp_webhook_patch(const json_t *object, const char *bundle, const char *secret)
{
    json_t *patch = json_array();
    size_t i;
    const json_t *hook;
    json_array_foreach(json_object_get(object, "webhooks"), i, hook)
    {
        char path[256];
        json_t *fields = json_array();
        const char *name = pp_json_get_string(hook, "name", NULL);
        name = name ? name : "";
        set(fields, i, "caBundle", pp_json_get_string(hook, "clientConfig", "caBundle", NULL),
            bundle);
        (void)snprintf(path, sizeof path, "/%s/%.*s", secret, (int)strcspn(name, "."), name);
        if (pp_json_get(hook, "clientConfig", "service", NULL))
            set(fields, i, "service/path",
                pp_json_get_string(hook, "clientConfig", "service", "path", NULL), path);
        if (json_array_size(fields)) {
            expect_name(patch, i, name);
            json_array_extend(patch, fields);
        }
        json_decref(fields);
    }
    return patch;
}
