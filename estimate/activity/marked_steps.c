#include "estimate/activity/marked_steps.h"

#include "common/cleanup.h"

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

/* One for each capture of which the last batch is there. */
static size_t collect_ends(const pp_activity *a, pp_marked_step *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_batches; i++)
        if (a->batches[i].last)
            ret[n++] = (pp_marked_step){.process = a->batches[i].process,
                                        .capture = a->batches[i].capture};
    qsort(ret, n, sizeof *ret, compare_steps);
    return n;
}

static size_t collect_steps(const pp_activity *a, const bool *uses, const pp_marked_step *ends,
                            size_t n_ends, pp_marked_step *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_steps; i++) {
        const pp_activity_step *s = &a->steps[i];
        const pp_activity_batch *b = &a->batches[s->batch];
        const pp_marked_step end = {.process = b->process, .capture = b->capture};
        if (uses[b->process] && b->dwell == 0)
            ret[n++] = (pp_marked_step){
                .process = b->process,
                .capture = b->capture,
                .ended = bsearch(&end, ends, n_ends, sizeof *ends, compare_steps) != NULL,
                .number = s->number,
                .span = {s->start_ns, s->start_ns + s->duration_ns}};
    }
    qsort(ret, n, sizeof *ret, compare_steps);
    return n;
}

int pp_marked_steps_collect(const pp_activity *activity, const bool *uses, pp_marked_step **ret,
                            size_t *ret_n, pp_error *err)
{
    PP_CLEANUP_FREE pp_marked_step *ends = calloc(activity->n_batches + 1, sizeof *ends);
    *ret = calloc(activity->n_steps + 1, sizeof **ret);
    *ret_n = 0;
    if (!ends || !*ret) {
        free(*ret);
        *ret = NULL;
        return pp_error_nomem(err);
    }
    *ret_n = collect_steps(activity, uses, ends, collect_ends(activity, ends), *ret);
    return 0;
}
