#include "operator/state/rights.h"

#include <stdio.h>
#include <string.h>

static const int64_t KEPT_NS = INT64_C(180000000000);

static const char *const names[PP_RIGHT_COUNT] = {
    [PP_RIGHT_SESSIONS] = "watching ProfileSessions",
    [PP_RIGHT_STATUS] = "writing the status of ProfileSessions",
    [PP_RIGHT_PODS] = "watching pods",
    [PP_RIGHT_TOKEN_REVIEWS] = "reviewing tokens",
    [PP_RIGHT_TOKEN] = "the operator's own token",
};

const char *pp_right_name(pp_right right)
{
    return names[right];
}

static bool set(pp_rights *rights, pp_right right, bool denied, int64_t now_ns)
{
    bool before = pp_rights_denied(rights, right, now_ns);
    rights->denied_ns[right] = denied ? now_ns : 0;
    return before != denied;
}

bool pp_rights_note(pp_rights *rights, pp_right right, const pp_error *error, int64_t now_ns)
{
    if (error && error->code == PP_ERR_UNAUTHORIZED)
        return set(rights, PP_RIGHT_TOKEN, true, now_ns);
    if (error && error->code != PP_ERR_DENIED)
        return false;
    bool known = set(rights, PP_RIGHT_TOKEN, false, now_ns); /* 403: we are known */
    return set(rights, right, error != NULL, now_ns) || known;
}

bool pp_rights_denied(const pp_rights *rights, pp_right right, int64_t now_ns)
{
    return rights->denied_ns[right] && now_ns < rights->denied_ns[right] + KEPT_NS;
}

bool pp_rights_missing(const pp_rights *rights, int64_t now_ns, char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < PP_RIGHT_COUNT; i++) {
        if (!pp_rights_denied(rights, (pp_right)i, now_ns))
            continue;
        if (used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s",
                                     used ? ", " : "denied by the API server: ", names[i]);
    }
    return used > 0;
}
