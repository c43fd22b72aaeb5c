#include "estimate/activity/apart.h"

#include <stdlib.h>
#include <string.h>

/* Regression takes no time past it (estimate/regression/limits.h). */
#define FARTHEST INT64_C(4000000000000000000)

static int copy(void *array, size_t n, size_t size, pp_error *err)
{
    void *from = *(void **)array;
    void *to = calloc(n + 1, size);
    *(void **)array = to;
    if (!to)
        return pp_error_nomem(err);
    if (n > 0)
        memcpy(to, from, n * size);
    return 0;
}

/* What all times of the activity lie within; batches hold their steps, and these their pieces. */
static void find_range(const pp_activity *a, int64_t *first, int64_t *last)
{
    *first = INT64_MAX;
    *last = INT64_MIN;
    for (size_t i = 0; i < a->n_batches; i++) {
        *first = a->batches[i].start_ns < *first ? a->batches[i].start_ns : *first;
        *last = a->batches[i].end_ns > *last ? a->batches[i].end_ns : *last;
    }
    for (size_t i = 0; i < a->n_runs; i++) {
        const pp_activity_run *r = &a->runs[i];
        *first = r->start_ns < *first ? r->start_ns : *first;
        *last = r->start_ns + r->duration_ns > *last ? r->start_ns + r->duration_ns : *last;
    }
}

/* One that an agent saw and the next one saw too is the same process. */
static int64_t place_of(const pp_activity *a, uint32_t process)
{
    for (uint32_t i = 0; i < process; i++)
        if (a->processes[i].process == a->processes[process].process)
            return i;
    return process;
}

static void move(pp_activity *a, const int64_t *by)
{
    for (size_t i = 0; i < a->n_steps; i++)
        a->steps[i].start_ns += by[a->batches[a->steps[i].batch].process];
    for (size_t i = 0; i < a->n_intervals; i++)
        a->intervals[i].start_ns += by[a->batches[a->intervals[i].batch].process];
    for (size_t i = 0; i < a->n_cells; i++)
        a->cells[i].start_ns += by[a->batches[a->cells[i].batch].process];
    for (size_t i = 0; i < a->n_runs; i++)
        a->runs[i].start_ns += by[a->runs[i].process];
    for (size_t i = 0; i < a->n_batches; i++) {
        a->batches[i].start_ns += by[a->batches[i].process];
        a->batches[i].end_ns += by[a->batches[i].process];
    }
}

int pp_apart_make(const pp_activity *activity, pp_activity *ret, pp_error *err)
{
    static const int64_t between = INT64_C(1000000000);
    int64_t first, last;
    *ret = *activity;
    int rc = copy(&ret->batches, ret->n_batches, sizeof *ret->batches, err);
    rc |= copy(&ret->steps, ret->n_steps, sizeof *ret->steps, err);
    rc |= copy(&ret->runs, ret->n_runs, sizeof *ret->runs, err);
    rc |= copy(&ret->intervals, ret->n_intervals, sizeof *ret->intervals, err);
    rc |= copy(&ret->cells, ret->n_cells, sizeof *ret->cells, err);
    int64_t *by = calloc(activity->n_processes + 1, sizeof *by);
    if (rc != 0 || !by) {
        free(by);
        return pp_error_nomem(err);
    }
    find_range(activity, &first, &last);
    const int64_t room = last > first ? last - first + between : between;
    for (uint32_t i = 0; i < activity->n_processes; i++)
        if (__builtin_mul_overflow(place_of(activity, i), room, &by[i]) || by[i] > FARTHEST - last)
            by[i] = 0;
    move(ret, by);
    free(by);
    return 0;
}

void pp_apart_done(pp_activity *apart)
{
    free(apart->batches);
    free(apart->steps);
    free(apart->runs);
    free(apart->intervals);
    free(apart->cells);
}
