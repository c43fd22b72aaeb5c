/*
 * Whether optimizers step in several threads in turn, as those of several trainings at a time do.
 * No I/O, no Python.
 */
#ifndef PP_SIDECAR_HOOK_MARKS_TURNS_H
#define PP_SIDECAR_HOOK_MARKS_TURNS_H

#include <stdbool.h>

typedef struct pp_turns {
    unsigned now,
        before;       /* the threads of the latest steps, by numbers of their own; 0: none yet */
    unsigned steps;   /* that the one of now has made */
    unsigned returns; /* to the one before, with few steps in between */
} pp_turns;

/** An optimizer has stepped in this thread; true once several are known to do so in turn. A
 * training that goes on in another thread, or epoch by epoch in one of two, is none of these. */
static inline bool pp_turns_take(pp_turns *t, unsigned thread)
{
    enum { FEW = 50, ENOUGH = 3 };
    if (thread == t->now) {
        t->steps++;
        return false;
    }
    t->returns = thread == t->before && t->steps < FEW ? t->returns + 1 : 0;
    t->before = t->now;
    t->now = thread;
    t->steps = 1;
    return t->returns >= ENOUGH;
}

#endif
