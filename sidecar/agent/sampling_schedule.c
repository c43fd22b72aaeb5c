#include "sidecar/agent/sampling_schedule.h"

#include "common/draw.h"

#define GRACE (10 * INT64_C(1000000000))  /* a helper process may come before the trainer */
#define SHORTEST INT64_C(500000000)       /* ns of a capture */
#define EVENTS (10 * INT64_C(1000000000)) /* a capture by events: the next may record kernels */
#define ALONE (600 * INT64_C(1000000000)) /* a trainer may load data before it imports torch */

/* Of the budget: where the host sets the pace what the hook says of its cost is off by a third
 * (docs/overhead.md). */
#define AIM 0.6

/* Of what a capture is waited for: by so much it comes later at most. */
#define SPREAD 0.25

/* The earliest time at which the cost since `armed_at` is within the budget. */
static int64_t paid_at(const pp_schedule *schedule, const pp_schedule_policy *policy, int64_t cost)
{
    double spent = (double)(cost - schedule->cost_before);
    double needed = policy->budget > 0 ? spent / (AIM * policy->budget) : 0;
    const double year = 365.0 * 86400 * 1e9;
    return schedule->armed_at + (int64_t)(needed < year ? needed : year);
}

static void arm(pp_schedule *schedule, const pp_schedule_input *in)
{
    schedule->again = schedule->armed_at != 0;
    schedule->armed = true;
    schedule->started = false;
    schedule->armed_at = in->now;
    schedule->cost_before = in->cost;
}

static void disarm(pp_schedule *schedule, const pp_schedule_input *in)
{
    schedule->armed = false;
    schedule->stopping = in->running;
}

/* By a part that is drawn for each capture: what the training does every so often (evaluation,
 * checkpoints) does not fall into step with captures. */
static int64_t later(const pp_schedule *schedule, int64_t wait)
{
    const double drawn = (double)(pp_draw((uint64_t)schedule->armed_at) >> 11) * 0x1p-53;
    return wait + (int64_t)(SPREAD * drawn * (double)wait);
}

/* Whether the last capture is not paid for yet: with what came after its end, as the hook looked on
 * until the last kernel had run. The first one is followed by one more that is paid for before it
 * comes, since nobody knows when the session ends. */
static bool is_owing(const pp_schedule *schedule, const pp_schedule_policy *policy,
                     const pp_schedule_input *in)
{
    int64_t wait = paid_at(schedule, policy, in->cost) - schedule->armed_at;
    return schedule->armed_at != 0 &&
           in->now - schedule->armed_at < (schedule->again ? later(schedule, wait) : 2 * wait);
}

static bool is_over(const pp_schedule_policy *policy, const pp_schedule_input *in)
{
    if (policy->duration > 0 && in->first > 0 && !in->isolating &&
        in->now - in->first - policy->duration >= in->paused) /* which may be any number */
        return true;
    return policy->max > 0 && in->sampled >= policy->max;
}

/* What a capture should last at least. */
static int64_t least(const pp_schedule_policy *policy, int64_t step)
{
    int64_t enough = PP_SCHEDULE_STEPS * step > SHORTEST ? PP_SCHEDULE_STEPS * step : SHORTEST;
    return step > 0 && enough < policy->capture ? enough : policy->capture;
}

/* Whether the running capture should end. */
static bool is_enough(const pp_schedule *schedule, const pp_schedule_policy *policy,
                      const pp_schedule_input *in)
{
    int64_t length = in->now - schedule->started_at;
    if (in->isolating || length < least(policy, in->step))
        return false;
    return length >= policy->longest || (in->events && length >= EVENTS) ||
           paid_at(schedule, policy, in->cost) > in->now;
}

/* A capture that has been armed: it starts at a step's end and may be broken by losses. */
static pp_ring_mode armed(pp_schedule *schedule, const pp_schedule_policy *policy,
                          const pp_schedule_input *in)
{
    if (in->running && !schedule->started) {
        schedule->started = true;
        schedule->started_at = in->now;
    }
    if (schedule->started && is_enough(schedule, policy, in)) {
        disarm(schedule, in);
        return PP_RING_COUNT;
    }
    return PP_RING_SAMPLE;
}

pp_ring_mode pp_schedule_next(pp_schedule *schedule, const pp_schedule_policy *policy,
                              const pp_schedule_input *in)
{
    schedule->finished = schedule->finished || (in->allowed && is_over(policy, in));
    if (schedule->finished || !in->allowed) {
        disarm(schedule, in);
        return PP_RING_IDLE;
    }
    if (schedule->armed)
        return armed(schedule, policy, in);
    schedule->stopping = schedule->stopping && in->running;
    if (in->running && !schedule->stopping) {
        /* The hook began by the control file, or by an agent before this one. */
        arm(schedule, in);
        return armed(schedule, policy, in);
    }
    bool waiting = in->running || is_owing(schedule, policy, in);
    if (waiting || (in->sampled == 0 && in->steps < policy->skip))
        return PP_RING_COUNT;
    arm(schedule, in);
    return PP_RING_SAMPLE;
}

void pp_schedule_begin_anew(pp_schedule *schedule)
{
    schedule->started = false;
}

bool pp_idle_exit_is_due(pp_idle_exit *idle_exit, int64_t now, size_t processes, bool connected)
{
    if (processes > 0 || (!idle_exit->trained && connected))
        idle_exit->quiet_since = now;
    return now - idle_exit->quiet_since >= (idle_exit->trained ? GRACE : ALONE);
}
