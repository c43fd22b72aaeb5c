#include "common/log.h"
#include "common/time.h"
#include "operator/state/rights.h"
#include "operator/state/state.h"

void pp_rights_tell(pp_operator *op, pp_right right, const pp_error *error)
{
    char missing[256];
    int64_t now = pp_time_monotonic();
    if (!pp_rights_note(&op->rights, right, error, now))
        return;
    if (pp_rights_missing(&op->rights, now, missing, sizeof missing))
        pp_err(NULL, "not ready: %s; " PP_RIGHTS_REMEDY, missing);
    else
        pp_info(NULL, "the API server denies nothing any more");
}
