#include "sidecar/agent/duty.h"

#define GRACE (10 * INT64_C(1000000000))  /* a helper process may come before the trainer */
#define SHORTEST INT64_C(500000000)       /* ns of a stretch */
#define EVENTS (10 * INT64_C(1000000000)) /* a stretch by events: the next may record kernels */
#define ALONE (600 * INT64_C(1000000000)) /* a trainer may load data before it imports torch */

/* Of the budget: where the host sets the pace what the hook says of its cost is off by a third
 * (docs/overhead.md). */
#define AIM 0.6

/* The earliest time at which the cost since `armed_at` is within the budget. */
static int64_t paid_at(const pp_duty *duty, const pp_duty_policy *policy, int64_t cost)
{
    double spent = (double)(cost - duty->cost_before);
    double needed = policy->budget > 0 ? spent / (AIM * policy->budget) : 0;
    const double year = 365.0 * 86400 * 1e9;
    return duty->armed_at + (int64_t)(needed < year ? needed : year);
}

static void arm(pp_duty *duty, const pp_duty_input *in)
{
    duty->again = duty->armed_at != 0;
    duty->armed = true;
    duty->started = false;
    duty->armed_at = in->now;
    duty->cost_before = in->cost;
}

static void disarm(pp_duty *duty, const pp_duty_input *in)
{
    duty->armed = false;
    duty->stopping = in->running;
}

/* Whether the last stretch is not paid for yet: with what came after its end, as the hook looked on
 * until the last kernel had run. The first one is followed by one more that is paid for before it
 * comes, since nobody knows when the session ends. */
static bool is_owing(const pp_duty *duty, const pp_duty_policy *policy, const pp_duty_input *in)
{
    int64_t wait = paid_at(duty, policy, in->cost) - duty->armed_at;
    return duty->armed_at != 0 && in->now - duty->armed_at < (duty->again ? wait : 2 * wait);
}

static bool is_over(const pp_duty_policy *policy, const pp_duty_input *in)
{
    if (policy->duration > 0 && in->first > 0 && !in->isolating &&
        in->now - in->first - policy->duration >= in->paused) /* which may be any number */
        return true;
    return policy->max > 0 && in->sampled >= policy->max;
}

/* What a stretch should last at least. */
static int64_t least(const pp_duty_policy *policy, int64_t step)
{
    int64_t enough = PP_DUTY_STEPS * step > SHORTEST ? PP_DUTY_STEPS * step : SHORTEST;
    return step > 0 && enough < policy->stretch ? enough : policy->stretch;
}

/* Whether the running stretch should end. */
static bool is_enough(const pp_duty *duty, const pp_duty_policy *policy, const pp_duty_input *in)
{
    int64_t length = in->now - duty->started_at;
    if (in->isolating || length < least(policy, in->step))
        return false;
    return length >= policy->longest || (in->events && length >= EVENTS) ||
           paid_at(duty, policy, in->cost) > in->now;
}

/* A stretch that has been armed: it starts at a step's end and may be broken by losses. */
static pp_ring_mode armed(pp_duty *duty, const pp_duty_policy *policy, const pp_duty_input *in)
{
    if (in->running && !duty->started) {
        duty->started = true;
        duty->started_at = in->now;
    }
    if (duty->started && is_enough(duty, policy, in)) {
        disarm(duty, in);
        return PP_RING_COUNT;
    }
    return PP_RING_SAMPLE;
}

pp_ring_mode pp_duty_next(pp_duty *duty, const pp_duty_policy *policy, const pp_duty_input *in)
{
    duty->finished = duty->finished || (in->allowed && is_over(policy, in));
    if (duty->finished || !in->allowed) {
        disarm(duty, in);
        return PP_RING_IDLE;
    }
    if (duty->armed)
        return armed(duty, policy, in);
    duty->stopping = duty->stopping && in->running;
    if (in->running && !duty->stopping) {
        /* The hook began by the control file, or by an agent before this one. */
        arm(duty, in);
        return armed(duty, policy, in);
    }
    bool waiting = in->running || is_owing(duty, policy, in);
    if (waiting || (in->sampled == 0 && in->steps < policy->skip))
        return PP_RING_COUNT;
    arm(duty, in);
    return PP_RING_SAMPLE;
}

void pp_duty_begin_anew(pp_duty *duty)
{
    duty->started = false;
}

bool pp_vigil_is_over(pp_vigil *vigil, int64_t now, size_t processes, bool connected)
{
    if (processes > 0 || (!vigil->trained && connected))
        vigil->quiet_since = now;
    return now - vigil->quiet_since >= (vigil->trained ? GRACE : ALONE);
}
