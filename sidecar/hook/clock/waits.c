/*
 * Waits of the host that are no marks yet: equal ones of a thread are added up until its next mark,
 * so that a loop of thousands makes one.
 */
#include "sidecar/hook/hook.h"

enum { PENDING = 64 }; /* told apart between two marks, of all threads */

static pp_mark pending[PENDING];
static int count;

/* `line`: of the same line, too. */
static pp_mark *find(const pp_mark *like, bool line)
{
    for (int i = count - 1; i >= 0; i--) {
        pp_mark *w = &pending[i];
        if (w->thread == like->thread && w->phase == like->phase && w->epoch < INT32_MAX &&
            (!line || w->layer == like->layer))
            return w;
    }
    return NULL;
}

bool pp_waits_add(const pp_mark *wait)
{
    pp_mark *w = find(wait, true);
    if (!w && count == PENDING && (w = find(wait, false)))
        w->layer = 0; /* too many lines: those of a call are one, of none */
    if (!w && count == PENDING)
        return false;
    if (!w) {
        pending[count++] = *wait;
        return true;
    }
    w->epoch += wait->epoch;
    w->value += wait->value;
    w->time = wait->time;
    return true;
}

/* Those of its thread; where a step ends, all. */
static bool comes_before(const pp_mark *wait, const pp_mark *mark)
{
    return !mark || mark->kind == PP_MARK_STEP || mark->kind == PP_MARK_STOP ||
           wait->thread == mark->thread;
}

bool pp_waits_take(const pp_mark *before, pp_mark *ret)
{
    if (before && before->kind == PP_MARK_START)
        count = 0; /* they are of no step */
    for (int i = 0; i < count; i++) {
        if (!comes_before(&pending[i], before))
            continue;
        *ret = pending[i];
        count--;
        for (; i < count; i++)
            pending[i] = pending[i + 1];
        return true;
    }
    return false;
}

void pp_waits_forget(void)
{
    count = 0;
}
