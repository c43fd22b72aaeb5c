#include "operator/kube/pace.h"

/* Each request moves `due` on by an interval; it may be ahead of now by no more than the burst. */

static int64_t ahead(const pp_pace *pace)
{
    return (pace->burst - 1) * pace->interval_ns;
}

void pp_pace_init(pp_pace *pace, double per_second, int64_t burst)
{
    *pace = (pp_pace){.interval_ns = per_second > 0 ? (int64_t)(1e9 / per_second) : 0,
                      .burst = burst > 1 ? burst : 1};
}

int64_t pp_pace_take(pp_pace *pace, int64_t now_ns)
{
    int64_t wait = pace->due_ns - ahead(pace) - now_ns;
    if (wait > 0)
        return wait;
    pace->due_ns = (pace->due_ns > now_ns ? pace->due_ns : now_ns) + pace->interval_ns;
    return 0;
}

void pp_pace_pause(pp_pace *pace, int64_t until_ns)
{
    int64_t due = until_ns + ahead(pace);
    pace->due_ns = due > pace->due_ns ? due : pace->due_ns;
}
