#include "sidecar/hook/marks/steps.h"

/* So often optimizers have come again, and no node was made in their thread: the forwards run
 * elsewhere, or are replayed, and nodes' numbers tell nothing of them. One that is called for each
 * group of parameters comes again less often. */
enum { UNCHANGED_MAX = 32 };

static bool has(const pp_steps_set *set, int64_t optimizer)
{
    for (unsigned i = 0; i < set->count; i++)
        if (set->optimizers[i] == optimizer)
            return true;
    return false;
}

static void add(pp_steps_set *set, int64_t optimizer)
{
    if (!has(set, optimizer) && set->count < PP_STEPS_OPTIMIZERS)
        set->optimizers[set->count++] = optimizer;
}

/* Whether a forward has run since the event before. */
static bool begins_burst(const pp_steps *s, const pp_steps_event *e)
{
    if (s->place == 0)
        return true;
    if (e->backward >= 0)
        return e->backward != s->latest.backward;
    if (s->latest.backward >= 0)
        return false; /* what was left of the parameters, behind backward */
    if (e->sequence < 0 || s->sequence < 0 || s->unchanged >= UNCHANGED_MAX)
        return has(&s->burst, e->optimizer); /* all that is left: it comes again */
    return e->sequence != s->sequence;
}

static void remember(pp_steps *s, const pp_steps_event *e, bool again)
{
    if (e->backward < 0) {
        const bool same = e->sequence == s->sequence;
        s->unchanged = same ? s->unchanged + again : 0;
        s->sequence = e->sequence;
    }
    s->latest = *e;
}

/* The burst before is over; whether it has ended a step unseen. */
static bool end_burst(pp_steps *s, const pp_steps_event *e)
{
    bool ended = false;
    if (!s->closed) {
        for (unsigned i = 0; i < s->burst.count; i++)
            add(&s->before, s->burst.optimizers[i]);
        ended = has(&s->before, e->optimizer);
    }
    if (ended) {
        s->last = s->latest.optimizer;
        s->last_place = s->place;
        s->before.count = 0;
    }
    s->known = s->known || s->closed;
    s->late_before = s->late;
    s->place = 0;
    s->closed = s->late = false;
    s->burst.count = 0;
    return ended;
}

/* Within bursts of several their number tells: which comes last may vary. */
static bool is_last(const pp_steps *s, const pp_steps_event *e)
{
    return s->last_place == 0 ||
           (s->place == s->last_place && (s->place > 1 || e->optimizer == s->last));
}

/* The step ends here, or goes on to here. One that goes on now and then (another optimizer joins
 * every other step) does so again; two in a row are a training that has changed. */
static void close_step(pp_steps *s, const pp_steps_event *e)
{
    s->late = s->closed;
    s->closed = true;
    s->before.count = 0;
    if (s->late && s->known && !s->late_before)
        return;
    s->last = e->optimizer;
    s->last_place = s->place;
}

pp_steps_ends pp_steps_take(pp_steps *s, const pp_steps_event *e)
{
    pp_steps_ends ends = {0};
    const bool begins = begins_burst(s, e), again = !begins && has(&s->burst, e->optimizer);
    if (begins && s->place > 0)
        ends.before = end_burst(s, e);
    s->place++;
    add(&s->burst, e->optimizer);
    ends.late = s->closed;
    ends.here = !s->closed && is_last(s, e);
    if (ends.late || ends.here)
        close_step(s, e);
    remember(s, e, again);
    return ends;
}
