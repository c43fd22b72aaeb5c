/* When copies and fills run and nothing else does. */
#include "common/array.h"
#include "common/cleanup.h"
#include "estimate/sampling/join_internal.h"

#include <stdlib.h>
#include <string.h>

/* Shorter ones tell samples as little as a short gap does: kernels follow each other so beside a
 * copy that is long. */
#define LEAST_NS 3500

/* Of pieces in the search for the lag: no layer's. */
#define NO_LAYER UINT32_MAX

int pp_sampling_compare_starts(const void *a, const void *b)
{
    const pp_sampling_kernel *x = a;
    const pp_sampling_kernel *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Work in order of starts. */
typedef struct list {
    pp_sampling_kernel *items;
    size_t n, capacity;
} list;

static int append(list *to, const pp_sampling_kernel *like, int64_t start, int64_t end,
                  pp_error *err)
{
    if (pp_array_reserve(&to->items, &to->capacity, to->n + 1, sizeof *to->items, err) < 0)
        return -1;
    to->items[to->n] = *like;
    to->items[to->n].start = start;
    to->items[to->n++].end = end;
    return 0;
}

static bool is_by_engine(const pp_sampling_kernel *k)
{
    return k->work == PP_SAMPLING_COPY_ACROSS;
}

/* Time in which anything of `f` runs, as stretches that do not meet. */
static int cover(const pp_sampling_kernel *all, size_t n, list *ret, pp_error *err)
{
    for (size_t i = 0; i < n; i++) {
        pp_sampling_kernel *last = ret->n ? &ret->items[ret->n - 1] : NULL;
        if (last && all[i].start <= last->end) {
            last->end = all[i].end > last->end ? all[i].end : last->end;
            continue;
        }
        if (append(ret, &all[i], all[i].start, all[i].end, err) < 0)
            return -1;
    }
    return 0;
}

/* What of a stretch is not in `covered`, of which *at is the first that may matter: one that ends
 * behind the begin. */
static int cut_one(const pp_sampling_kernel *k, int64_t from, const list *covered, size_t *at,
                   list *ret, pp_error *err)
{
    while (*at < covered->n && covered->items[*at].end <= from)
        (*at)++;
    for (size_t i = *at; from < k->end; i++) {
        const bool more = i < covered->n && covered->items[i].start < k->end;
        const int64_t to = more ? covered->items[i].start : k->end;
        if (to - from >= LEAST_NS && append(ret, k, from, to, err) < 0)
            return -1;
        if (!more)
            break;
        from = covered->items[i].end > from ? covered->items[i].end : from;
    }
    return 0;
}

/* Those of a kind, where neither `covered` nor one of them before runs. */
static int cut(const pp_sampling *f, bool by_engine, const list *covered, list *ret, pp_error *err)
{
    size_t at = 0;
    int64_t done = INT64_MIN;
    for (size_t i = 0; i < f->n_copies; i++) {
        const pp_sampling_kernel *k = &f->copies[i];
        if (is_by_engine(k) != by_engine || k->end <= done)
            continue;
        if (cut_one(k, k->start > done ? k->start : done, covered, &at, ret, err) < 0)
            return -1;
        done = k->end;
    }
    return 0;
}

static void sort(pp_sampling_kernel *all, size_t n)
{
    if (n > 1)
        qsort(all, n, sizeof *all, pp_sampling_compare_starts);
}

static int cut_all(const pp_sampling *f, list *covered, list *ret, pp_error *err)
{
    list both = {0};
    if (cover(f->kernels, f->n_kernels, covered, err) < 0 || cut(f, false, covered, ret, err) < 0)
        return -1;
    for (size_t i = 0; i < ret->n; i++)
        if (append(covered, &ret->items[i], ret->items[i].start, ret->items[i].end, err) < 0)
            return -1;
    sort(covered->items, covered->n);
    int rc = cover(covered->items, covered->n, &both, err);
    if (rc == 0)
        rc = cut(f, true, &both, ret, err);
    free(both.items);
    sort(ret->items, ret->n);
    return rc;
}

int pp_sampling_cut_copies(pp_sampling *f, pp_error *err)
{
    list covered = {0}, pieces = {0};
    if (f->n_copies == 0)
        return 0;
    sort(f->copies, f->n_copies);
    int rc = cut_all(f, &covered, &pieces, err);
    free(covered.items);
    if (rc < 0) {
        free(pieces.items);
        return -1;
    }
    free(f->copies);
    f->copies = pieces.items;
    f->n_copies = pieces.n;
    f->copies_max = pieces.capacity;
    return 0;
}

int pp_sampling_mix(const pp_sampling *f, pp_sampling_kernel **ret, size_t *ret_n, pp_error *err)
{
    const size_t n = f->n_kernels + f->n_copies;
    pp_sampling_kernel *all = malloc((n + 1) * sizeof *all);
    if (!all)
        return pp_error_nomem(err);
    for (size_t i = 0; i < f->n_kernels; i++)
        all[i] = f->kernels[i];
    for (size_t i = f->n_kernels; i < n; i++) {
        all[i] = f->copies[i - f->n_kernels];
        all[i].layer = NO_LAYER;
        all[i].phase = all[i].work;
    }
    sort(all, n);
    *ret = all;
    *ret_n = n;
    return 0;
}
