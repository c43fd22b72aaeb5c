/* The host clock, and the one way by which every mark is stamped and emitted. */
#include "hook.h"

#include <time.h>

static bool host_stamp(pp_mark *mark)
{
    mark->time = pp_now();
    return true;
}

static int64_t host_poll(void)
{
    return INT64_C(3600000000000); /* nothing to do until the mode changes */
}

const pp_clock pp_clock_host = {"host", host_stamp, host_poll};

const pp_clock pp_clock_kernels = {"kernels", host_stamp, host_poll};

const pp_clock *pp_clock_now = &pp_clock_host;

/* Autograd runs backward in threads of its own; the agent pairs the marks of each by itself. */
static uint8_t thread_number(void)
{
    static unsigned next;
    static _Thread_local unsigned mine;
    if (mine == 0)
        mine = ++next; /* the GIL is held */
    return (uint8_t)mine;
}

void pp_mark_put(uint8_t kind, uint8_t phase, uint8_t flags, uint32_t layer, int64_t value,
                 int32_t epoch, int32_t batch)
{
    pp_mark mark = {.layer = layer,
                    .kind = kind,
                    .phase = phase,
                    .flags = flags,
                    .thread = thread_number(),
                    .value = value,
                    .epoch = epoch,
                    .batch = batch};
    if (pp_clock_now->stamp(&mark))
        pp_ring_push(&mark);
}
