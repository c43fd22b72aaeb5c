#include "controller/samples/solve_due.h"

#define FINAL_WAIT INT64_C(2000000000)

enum { OFTEN = 10, ALL_OFTEN = 4, DOUBLINGS = 6 };

static int64_t longer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Since when it waits, and for how long. */
static bool has_waited(int64_t since_ns, int64_t wait_ns, int64_t now_ns)
{
    return since_ns == 0 || now_ns - since_ns >= wait_ns;
}

bool pp_solve_is_due(const pp_solve_state *s, int64_t interval_ns, int64_t now_ns)
{
    if (s->solving || !s->unsolved)
        return false;
    if (s->finalise)
        return has_waited(
            s->ended_ns, FINAL_WAIT << (s->failures < DOUBLINGS ? s->failures : DOUBLINGS), now_ns);
    if (s->ended_ns == 0)
        return has_waited(s->known_ns, s->all_took_ns, now_ns);
    const int64_t spaced = longer(OFTEN * s->took_ns, ALL_OFTEN * s->all_took_ns);
    return has_waited(s->ended_ns, longer(interval_ns, spaced), now_ns);
}
