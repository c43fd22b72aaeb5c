#include "controller/solve_due.h"

#define FINAL_WAIT INT64_C(2000000000)

enum { OFTEN = 10, DOUBLINGS = 6 };

bool pp_solve_is_due(const pp_solve_state *s, int64_t interval_ns, int64_t now_ns)
{
    if (s->solving || !s->unsolved)
        return false;
    const int64_t spaced = OFTEN * s->took_ns;
    int64_t wait = interval_ns > spaced ? interval_ns : spaced;
    if (s->finalise)
        wait = FINAL_WAIT << (s->failures < DOUBLINGS ? s->failures : DOUBLINGS);
    return s->ended_ns == 0 || now_ns - s->ended_ns >= wait;
}
