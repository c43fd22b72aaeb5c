#include "operator/samples/clocks.h"

#include "common/log.h"
#include "common/time.h"
#include "operator/cache/watches.h"
#include "operator/state/pending_call.h"
#include "operator/state/state.h"

#include <stdio.h>
#include <stdlib.h>

pp_clock_now pp_clocks_now(void)
{
    return (pp_clock_now){.real_ns = pp_time_now(), .monotonic_ns = pp_time_monotonic()};
}

static int64_t first_step(const pp_wire_batch *batch)
{
    int64_t first = 0;
    for (size_t i = 0; i < batch->step_count && !batch->capture.dwell; i++)
        first = first == 0 || batch->steps[i].start < first ? batch->steps[i].start : first;
    return first;
}

/* For the session's status, and for people. */
static void tell_refused(pp_runtime *runtime, const pp_pod *pod, const pp_clock_ruling *ruling,
                         pp_error *err)
{
    pp_runtime_target *target = pp_runtime_get_target(runtime, pod->uid);
    char why[PP_SESSION_CLOCK_WHY];
    pp_clock_explain(ruling, pod->node, why, sizeof why);
    (void)pp_error_field(err, "stretch", "%s", why);
    pp_meter_add(runtime->op->meters.clock_refused[ruling->verdict], 1);
    if (!target)
        return;
    if (target->clock.refused++ == 0)
        pp_warn(runtime->key, "batches of pod %s are refused: %s", pod->name, why);
    target->clock.refusing = true;
    (void)snprintf(target->clock.why, sizeof target->clock.why, "%s", why);
    pp_runtime_refused(runtime, pod->uid, why);
    pp_watches_enqueue_soon(runtime->op, runtime->key);
}

static void note_shift(const pp_runtime *runtime, pp_runtime_target *target, const pp_pod *pod,
                       const pp_clock_ruling *ruling)
{
    char off[64];
    target->clock.refusing = false;
    if (target->clock.shift_ns == ruling->shift_ns)
        return;
    pp_clock_describe(ruling->shift_ns, off, sizeof off);
    pp_info(runtime->key, "the clock of node %s, by pod %s, is %s: taken out",
            pod->node ? pod->node : "?", pod->name, off);
    target->clock.shift_ns = ruling->shift_ns;
    pp_watches_enqueue_soon(runtime->op, runtime->key);
}

int pp_clocks_place(pp_runtime *runtime, const pp_session *session, const pp_pod *pod,
                    const pp_clock *clock, pp_wire_batch *batch, pp_store_clock *ret, pp_error *err)
{
    pp_runtime_target *target = pp_runtime_get_target(runtime, pod->uid);
    const pp_clock_now now = pp_clocks_now();
    *ret = (pp_store_clock){.now_ns = now.real_ns};
    if (!target)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "out of memory");
    if (pp_wire_is_pm_only(batch)) /* it is of no time */
        return 0;
    const pp_clock_stamps stamps = {.start_ns = batch->capture.start,
                                    .end_ns = batch->capture.end,
                                    .first_ns = first_step(batch),
                                    .monotonic_ns = batch->capture.monotonic};
    const pp_clock_frame frame = {.now = now,
                                  .session_ns = session->created_ns,
                                  .pod_ns = pod->created_ns,
                                  .shift_ns = target->clock.shift_ns};
    const pp_clock_ruling ruling = pp_clock_judge(clock, &stamps, &frame);
    if (ruling.verdict != PP_CLOCK_TAKEN && clock->answers && !ruling.offset.known)
        return pp_error_set(err, PP_ERR_UNAVAILABLE, "its node's clock is not known yet");
    if (ruling.verdict != PP_CLOCK_TAKEN) {
        tell_refused(runtime, pod, &ruling, err);
        return -1;
    }
    if (pp_wire_batch_shift(batch, ruling.shift_ns, err) < 0)
        return -1;
    note_shift(runtime, target, pod, &ruling);
    ret->shift_ns = ruling.shift_ns;
    ret->began_ns = ruling.began_ns;
    ret->known = ruling.offset.known;
    ret->ahead_ns = ruling.offset.ahead_ns;
    ret->bound_ns = ruling.offset.bound_ns;
    return 0;
}

/* ---- Prometheus ---- */

static const int64_t MILLISECOND = 1000000;
/* A session that is refused asks again within it. */
static const int64_t FAILURE_LASTS = INT64_C(60000000000);

typedef struct question {
    pp_pending_call context;
    uint64_t number; /* an answer that comes after the next question tells nothing of that one */
} question;

/* Of one that stays away the log tells once. */
static void note_failure(pp_operator *op, const pp_error *error)
{
    if (!op->leading)
        return; /* nobody asks any more */
    if (op->prometheus_failed_ns == 0)
        pp_warn(NULL, "asking Prometheus for its time: %s", error->message);
    op->prometheus_failed_ns = pp_time_monotonic();
    op->prometheus_refused = false;
}

/* One that tells its time may yet refuse what sessions ask. */
static void note_answer(pp_operator *op, uint64_t number, const pp_clock_trip *trip)
{
    (void)pp_clock_answered(&op->prometheus_clock, number, trip);
    if (!op->prometheus_refused || trip->received_ns - op->prometheus_failed_ns > FAILURE_LASTS)
        op->prometheus_failed_ns = 0;
}

static void on_time(void *user, int64_t real_ns, const pp_error *error)
{
    question *q = user;
    pp_operator *op = q->context.op;
    /* It tells whole milliseconds, further digits are cut. */
    const pp_clock_trip trip = {
        .received_ns = pp_time_monotonic(), .real_ns = real_ns, .grain_ns = MILLISECOND};
    if (error)
        note_failure(op, error);
    else
        note_answer(op, q->number, &trip);
    op->prometheus_told_time = true;
    pp_pending_call_free(q);
}

static void ask_prometheus(pp_operator *op)
{
    pp_error err = {0};
    question *q = pp_pending_call_new(op, sizeof *q, NULL);
    const uint64_t number = pp_clock_ask(&op->prometheus_clock, pp_time_monotonic());
    if (q)
        q->number = number;
    if (q && pp_prometheus_ask_time(op->prometheus, on_time, q, &err) == 0)
        return;
    pp_pending_call_free(q);
    op->prometheus_told_time = true; /* that it cannot */
}

bool pp_clocks_prometheus_known(pp_operator *op)
{
    const pp_clock *clock = &op->prometheus_clock;
    const int64_t now = pp_time_monotonic();
    const bool never = clock->asked == 0;
    if (never || pp_clock_is_due(clock, now) ||
        (!clock->answers && now - clock->asked_ns >= PP_CLOCK_EVERY))
        ask_prometheus(op);
    return op->prometheus_told_time;
}

void pp_clocks_watch_prometheus(pp_operator *op)
{
    if (op->leading && op->prometheus && !op->idle)
        (void)pp_clocks_prometheus_known(op);
}

static int64_t whole_ms(int64_t ns)
{
    return ns / MILLISECOND * MILLISECOND;
}

/* The store has to know before anything is solved by it. */
static int tell_store(pp_runtime *runtime, int64_t shift_ns, const pp_clock_offset *offset,
                      pp_error *err)
{
    if (pp_store_put_prometheus_clock(runtime->op->store, runtime->uid, shift_ns, offset->ahead_ns,
                                      offset->bound_ns, NULL, NULL, err) < 0)
        return -1;
    runtime->prometheus_clock_stored = true;
    return 0;
}

int pp_clocks_follow_prometheus(pp_runtime *runtime, pp_error *err)
{
    const pp_clock_now now = pp_clocks_now();
    const pp_clock *clock = &runtime->op->prometheus_clock;
    const pp_clock_offset offset = pp_clock_offset_of(clock, &now);
    const int64_t shift = whole_ms(pp_clock_shift(runtime->prometheus_shift_ns, &offset));
    char off[64];
    pp_clock_describe(offset.ahead_ns, off, sizeof off);
    if (!offset.known)
        return 0;
    if (llabs(offset.ahead_ns) > PP_CLOCK_OFFSET_MAX)
        return pp_error_set(err, PP_ERR_UNAVAILABLE,
                            "its clock is %s, more than is taken out: set it", off);
    if (pp_clock_is_unsteady(clock))
        return pp_error_set(err, PP_ERR_UNAVAILABLE,
                            "its clock jumps to and fro: see what sets it");
    if (shift == runtime->prometheus_shift_ns && runtime->prometheus_clock_stored)
        return 0;
    if (tell_store(runtime, shift, &offset, err) < 0)
        return -1;
    if (shift == runtime->prometheus_shift_ns)
        return 0;
    pp_info(runtime->key, "the clock of Prometheus is %s: taken out", off);
    runtime->prometheus_shift_ns = shift;
    pp_plan_again(runtime->plan);
    pp_runtime_unsolved(runtime);
    pp_watches_enqueue_soon(runtime->op, runtime->key);
    return 0;
}
