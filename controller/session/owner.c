#include "controller/session/owner.h"

#include "common/json.h"

#include <string.h>

static const struct {
    const char *name, *group;
} kinds[] = {
    [PP_OWNER_NONE] = {"", ""},
    [PP_OWNER_JOB] = {"Job", "batch/"},
    [PP_OWNER_DEPLOYMENT] = {"Deployment", "apps/"},
    [PP_OWNER_REPLICA_SET] = {"ReplicaSet", "apps/"},
    [PP_OWNER_STATEFUL_SET] = {"StatefulSet", "apps/"},
    [PP_OWNER_DAEMON_SET] = {"DaemonSet", "apps/"},
    [PP_OWNER_OTHER] = {"controller", ""},
};

const char *pp_owner_kind_name(pp_owner_kind kind)
{
    return kinds[kind].name;
}

/* Others have kinds of the same names: batch.volcano.sh has a Job. */
pp_owner_kind pp_owner_kind_of(const char *api_version, const char *kind)
{
    if (!kind)
        return PP_OWNER_NONE;
    for (int i = PP_OWNER_JOB; i < PP_OWNER_OTHER; i++) {
        if (api_version && strcmp(kind, kinds[i].name) == 0 &&
            strncmp(api_version, kinds[i].group, strlen(kinds[i].group)) == 0)
            return (pp_owner_kind)i;
    }
    return PP_OWNER_OTHER;
}

static bool is_true(const json_t *object, const char *type)
{
    const json_t *list = pp_json_get(object, "status", "conditions", NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = pp_json_get_string(json_array_get(list, i), "type", NULL);
        const char *status = pp_json_get_string(json_array_get(list, i), "status", NULL);
        if (name && status && strcmp(name, type) == 0 && strcmp(status, "True") == 0)
            return true;
    }
    return false;
}

/* A failed pod counts against the limit a moment before the Job says that it has failed. */
static bool is_used_up(const json_t *job)
{
    const json_t *limit = pp_json_get(job, "spec", "backoffLimit", NULL);
    if (json_object_get(json_object_get(job, "spec"), "backoffLimitPerIndex"))
        return false;
    return json_is_integer(limit) &&
           json_integer_value(pp_json_get(job, "status", "failed", NULL)) >
               json_integer_value(limit);
}

/* A Job without completions has a queue of its own: it makes no pod once one has succeeded. */
static bool is_complete(const json_t *job)
{
    const json_t *wanted = pp_json_get(job, "spec", "completions", NULL);
    return json_integer_value(pp_json_get(job, "status", "succeeded", NULL)) >=
           (json_is_integer(wanted) ? json_integer_value(wanted) : 1);
}

static bool job_is_over(const json_t *job)
{
    static const char *const ends[] = {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (is_true(job, ends[i]))
            return true;
    }
    return is_complete(job) || is_used_up(job);
}

static bool wants_none(pp_owner_kind kind, const json_t *object)
{
    const json_t *wanted = kind == PP_OWNER_DAEMON_SET
                               ? pp_json_get(object, "status", "desiredNumberScheduled", NULL)
                               : pp_json_get(object, "spec", "replicas", NULL);
    return json_is_integer(wanted) && json_integer_value(wanted) == 0;
}

static bool is_cron_job(const json_t *reference)
{
    const char *group = pp_json_get_string(reference, "apiVersion", NULL);
    const char *kind = pp_json_get_string(reference, "kind", NULL);
    return group && kind && strncmp(group, "batch/", 6) == 0 && strcmp(kind, "CronJob") == 0;
}

bool pp_owner_is_managed(const json_t *object)
{
    const json_t *references = pp_json_get(object, "metadata", "ownerReferences", NULL);
    for (size_t i = 0; i < json_array_size(references); i++) {
        const json_t *reference = json_array_get(references, i);
        if (json_is_true(json_object_get(reference, "controller")))
            return !is_cron_job(reference);
    }
    return false;
}

/* Its own answer: whoever made it may make another in its place. */
static bool is_over(pp_owner_kind kind, const json_t *object)
{
    if (kind == PP_OWNER_NONE || !object ||
        pp_json_get(object, "metadata", "deletionTimestamp", NULL))
        return true;
    return kind == PP_OWNER_JOB ? job_is_over(object) : wants_none(kind, object);
}

pp_owner_state pp_owner_state_of(pp_owner_kind kind, const json_t *object, bool managed)
{
    if (kind == PP_OWNER_OTHER)
        return PP_OWNER_UNKNOWN;
    if (!is_over(kind, object))
        return PP_OWNER_MAKES_PODS;
    return managed ? PP_OWNER_MANAGED : PP_OWNER_DONE;
}
