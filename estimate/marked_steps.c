#include "estimate/marked_steps.h"

#include <stdlib.h>

static int compare_steps(const void *a, const void *b)
{
    const pp_marked_step *x = a;
    const pp_marked_step *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->capture != y->capture)
        return x->capture < y->capture ? -1 : 1;
    return x->span.start_ns < y->span.start_ns ? -1 : x->span.start_ns > y->span.start_ns;
}

int pp_marked_steps_collect(const pp_activity *activity, const bool *uses, pp_marked_step **ret,
                            size_t *ret_n, pp_error *err)
{
    size_t n = 0;
    pp_marked_step *steps = calloc(activity->n_steps + 1, sizeof *steps);
    *ret = steps;
    *ret_n = 0;
    if (!steps)
        return pp_error_nomem(err);
    for (size_t i = 0; i < activity->n_steps; i++) {
        const pp_activity_step *s = &activity->steps[i];
        const pp_activity_batch *b = &activity->batches[s->batch];
        if (uses[b->process] && b->dwell == 0)
            steps[n++] = (pp_marked_step){
                b->process, b->capture, s->number, {s->start_ns, s->start_ns + s->duration_ns}};
    }
    qsort(steps, n, sizeof *steps, compare_steps);
    *ret_n = n;
    return 0;
}
