#include "controller/batch_rules.h"

static int refuse(pp_error *err, pp_error_code code, const char *field, const char *why)
{
    (void)pp_error_field(err, field, "%s", why);
    err->code = code;
    return -1;
}

int pp_batch_check(const pp_batch_claim *b, pp_error *err)
{
    if (!b->pod_there)
        return refuse(err, PP_ERR_GONE, "session", "the pod is gone");
    if (b->session ? !b->eligible : !b->was_of)
        return refuse(err, PP_ERR_DENIED, "session", "the pod is not this session's");
    if (!b->session || !pp_session_takes_batches(b->session) || b->end_stored)
        return refuse(err, PP_ERR_GONE, "session", "the session has ended");
    if (b->replays && !pp_session_asks_replays(b->session))
        return refuse(err, PP_ERR_INVALID, "stretch.dwell", "the session asks for no replays");
    return 0;
}
