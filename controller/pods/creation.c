#include "controller/pods/creation.h"

#include "common/json.h"
#include "common/time.h"
#include "controller/pods/startup.h"

#include <stdio.h>
#include <string.h>

static void copy(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text ? text : "");
}

/* Events of older servers and of newer ones keep the last time in different places. */
static int64_t last_time(const json_t *event)
{
    const char *const texts[] = {
        pp_json_get_string(event, "series", "lastObservedTime", NULL),
        pp_json_get_string(event, "lastTimestamp", NULL),
        pp_json_get_string(event, "eventTime", NULL),
        pp_json_get_string(event, "metadata", "creationTimestamp", NULL),
    };
    int64_t at = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i] && pp_time_parse(texts[i], &at, NULL) == 0)
            return at;
    }
    return 0;
}

bool pp_creation_of(const json_t *event, pp_creation *ret)
{
    const json_t *object = json_object_get(event, "involvedObject");
    const char *reason = pp_json_get_string(event, "reason", NULL);
    *ret = (pp_creation){0};
    if (!reason || strcmp(reason, "FailedCreate") != 0)
        return false;
    ret->kind = pp_owner_kind_of(pp_json_get_string(object, "apiVersion", NULL),
                                 pp_json_get_string(object, "kind", NULL));
    copy(ret->ns, sizeof ret->ns, pp_json_get_string(object, "namespace", NULL));
    copy(ret->name, sizeof ret->name, pp_json_get_string(object, "name", NULL));
    copy(ret->uid, sizeof ret->uid, pp_json_get_string(object, "uid", NULL));
    copy(ret->message, sizeof ret->message, pp_json_get_string(event, "message", NULL));
    ret->at_ns = last_time(event);
    return ret->kind != PP_OWNER_NONE && ret->kind != PP_OWNER_OTHER && ret->ns[0] &&
           ret->name[0] && ret->uid[0] && ret->at_ns > 0;
}

static const json_t *template_of(const json_t *owner)
{
    return pp_json_get(owner, "spec", "template", NULL);
}

bool pp_creation_may_be_ours(const pp_creation *creation, const json_t *owner,
                             const pp_inject_limits *limits)
{
    const char *uid = pp_json_get_string(owner, "metadata", "uid", NULL);
    if (!uid || strcmp(uid, creation->uid) != 0)
        return false;
    return !strstr(creation->message, "exceeded quota") ||
           pp_inject_fits_alone(limits, template_of(owner));
}

bool pp_creation_leave_alone(const pp_creation *creation, const json_t *owner, int64_t now_ns,
                             int64_t real_ns, pp_unprobed_owner *ret)
{
    int64_t left = creation->at_ns + PP_STARTUP_UNPROBED_NS - real_ns;
    if (left > PP_STARTUP_UNPROBED_NS) /* another clock's */
        left = PP_STARTUP_UNPROBED_NS;
    if (left <= 0)
        return false;
    *ret =
        (pp_unprobed_owner){.until_ns = now_ns + left,
                            .labels = pp_json_get(template_of(owner), "metadata", "labels", NULL)};
    copy(ret->uid, sizeof ret->uid, creation->uid);
    copy(ret->ns, sizeof ret->ns, creation->ns);
    (void)snprintf(ret->what, sizeof ret->what, "%s %s", pp_owner_kind_name(creation->kind),
                   creation->name);
    copy(ret->refusal.reason, sizeof ret->refusal.reason, "CreationRefused");
    (void)snprintf(
        ret->refusal.message, sizeof ret->refusal.message,
        "pods of %s could not be created, and are created without the probe for an hour, "
        "lest it be that: %s",
        ret->what, creation->message);
    return true;
}
