#include "operator/results/results_conditions.h"

#include "common/cleanup.h"

#include <string.h>

/* What anybody may write who may patch the status: texts are taken, all else is not known. */
static json_t *told(const json_t *condition)
{
    static const char *const fields[][2] = {{"type", "type"},
                                            {"status", "status"},
                                            {"reason", "reason"},
                                            {"message", "message"},
                                            {"last_transition_time", "lastTransitionTime"}};
    json_t *made = json_object();
    for (size_t i = 0; made && i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_object_get(condition, fields[i][1]);
        if (json_object_set_new(made, fields[i][0],
                                json_is_string(value) ? json_incref(value) : json_null()) < 0) {
            json_decref(made);
            return NULL;
        }
    }
    return made;
}

int pp_results_conditions(const json_t *status, char **ret, pp_error *err)
{
    size_t i;
    json_t *condition;
    PP_CLEANUP_JSON json_t *list = status ? json_array() : json_null();
    json_array_foreach(json_object_get(status, "conditions"), i, condition)
    {
        if (json_array_append_new(list, told(condition)) < 0)
            return pp_error_nomem(err);
    }
    *ret = list ? json_dumps(list, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    return *ret ? 0 : pp_error_nomem(err);
}

const char *pp_results_reason(const json_t *status)
{
    size_t i;
    json_t *condition;
    json_array_foreach(json_object_get(status, "conditions"), i, condition)
    {
        const char *type = json_string_value(json_object_get(condition, "type"));
        if (type && strcmp(type, "Succeeded") == 0)
            return json_string_value(json_object_get(condition, "reason"));
    }
    return NULL;
}
