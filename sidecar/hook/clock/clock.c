/* The host clock, and the one way by which every mark is stamped and emitted. */
#include "sidecar/hook/hook.h"

#include <time.h>

static bool host_stamp(pp_mark *mark)
{
    if (mark->time == 0)
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

static void emit(pp_mark *mark)
{
    if (pp_clock_now->stamp(mark))
        pp_ring_push(mark);
}

static void emit_waits(const pp_mark *before)
{
    pp_mark wait;
    while (pp_waits_take(before, &wait))
        emit(&wait);
}

void pp_wait_put(uint8_t call, uint32_t site, int64_t ns, int64_t end)
{
    const pp_mark wait = {.time = end,
                          .layer = site,
                          .kind = PP_MARK_WAIT,
                          .phase = call,
                          .thread = pp_thread_number(),
                          .value = ns,
                          .epoch = 1};
    if (pp_waits_add(&wait))
        return;
    emit_waits(NULL);
    (void)pp_waits_add(&wait);
}

void pp_mark_put(uint8_t kind, uint8_t phase, uint8_t flags, uint32_t layer, int64_t value,
                 int32_t epoch, int32_t batch)
{
    pp_mark mark = {.layer = layer,
                    .kind = kind,
                    .phase = phase,
                    .flags = flags,
                    .thread = pp_thread_number_of_pieces(),
                    .value = value,
                    .epoch = epoch,
                    .batch = batch};
    emit_waits(&mark);
    emit(&mark);
}

/* Stamped here it would begin later by as long as this thread was kept from its processor since. */
void pp_span_put(uint8_t kind, uint32_t layer, int64_t begun, int64_t ended)
{
    pp_mark mark = {.time = ended,
                    .layer = layer,
                    .kind = kind,
                    .thread = pp_thread_number_of_pieces(),
                    .value = ended - begun};
    emit_waits(&mark);
    emit(&mark);
}
