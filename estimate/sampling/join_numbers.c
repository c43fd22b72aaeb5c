/* Which kernel of its layer's in a phase of a step each one is. */
#include "common/cleanup.h"
#include "estimate/sampling/join_internal.h"

/* Where so many of the runs have as many kernels as most, the others are exceptions. */
enum { USUAL_OF = 8, USUAL = 7 };

/* A kernel by what it is counted with. */
typedef struct counted {
    int64_t step;
    uint32_t layer, at; /* at: of the kernels, which are in order of time */
    uint8_t phase;
} counted;

static int compare_counted(const void *a, const void *b)
{
    const counted *x = a;
    const counted *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int compare_lengths(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool same_item(const counted *a, const counted *b)
{
    return a->layer == b->layer && a->phase == b->phase;
}

/* How many kernels from `i` on are of one layer, phase and step. */
static size_t run_of(const counted *all, size_t n, size_t i)
{
    size_t end = i + 1;
    while (end < n && same_item(&all[end], &all[i]) && all[end].step == all[i].step)
        end++;
    return end - i;
}

/* How many kernels nearly all of the runs have; 0: they differ. Orders the lengths. */
static uint32_t usual_length(uint32_t *lengths, size_t n)
{
    size_t most = 0;
    uint32_t usual = 0;
    qsort(lengths, n, sizeof *lengths, compare_lengths);
    for (size_t i = 0, j = 0; i < n; i = j) {
        while (j < n && lengths[j] == lengths[i])
            j++;
        if (j - i > most) {
            most = j - i;
            usual = lengths[i];
        }
    }
    return most * USUAL_OF >= n * USUAL ? usual : 0;
}

/* Numbers the kernels of one layer in one phase, from `from` to before `to`; returns how many a
 * step has at most. */
static uint32_t number_item(const counted *all, size_t from, size_t to, int64_t last,
                            uint32_t *lengths, uint32_t *ret)
{
    size_t runs = 0;
    for (size_t i = from; i < to; i += lengths[runs++])
        lengths[runs] = (uint32_t)run_of(all, to, i);
    const uint32_t usual = usual_length(lengths, runs); /* they are in order now */
    for (size_t i = from, n = 0; i < to; i += n) {
        n = run_of(all, to, i);
        /* The last step may have been cut off, which moves no number. */
        const bool odd = usual && n != usual && (n > usual || all[i].step != last);
        for (size_t k = 0; k < n; k++)
            ret[all[i + k].at] = odd ? PP_SAMPLING_ODD : (uint32_t)k;
    }
    return lengths[runs - 1];
}

/* Those of an item that are odd share one kind. */
static void set_kinds(const counted *all, size_t from, size_t to, const uint32_t *numbers,
                      size_t first, size_t most, uint32_t *ret)
{
    for (size_t i = from; i < to; i++) {
        const uint32_t number = numbers[all[i].at];
        ret[all[i].at] = (uint32_t)(first + (number == PP_SAMPLING_ODD ? most : number));
    }
}

int pp_sampling_number(const pp_sampling *f, uint32_t *ret, uint32_t *ret_kinds, size_t *ret_n,
                       pp_error *err)
{
    PP_CLEANUP_FREE counted *all = calloc(f->n_kernels + 1, sizeof *all);
    PP_CLEANUP_FREE uint32_t *lengths = calloc(f->n_kernels + 1, sizeof *lengths);
    int64_t last = INT64_MIN;
    size_t n = 0;
    if (!all || !lengths)
        return pp_error_nomem(err);
    for (size_t i = 0; i < f->n_kernels; i++) {
        const pp_sampling_kernel *k = &f->kernels[i];
        all[i] = (counted){k->step, k->layer, (uint32_t)i, k->phase};
        last = k->step > last ? k->step : last;
    }
    qsort(all, f->n_kernels, sizeof *all, compare_counted);
    for (size_t from = 0, to = 0; from < f->n_kernels; from = to) {
        while (to < f->n_kernels && same_item(&all[to], &all[from]))
            to++;
        const size_t most = number_item(all, from, to, last, lengths, ret);
        if (ret_kinds)
            set_kinds(all, from, to, ret, n + 1, most, ret_kinds);
        n += most + 1;
    }
    if (ret_n)
        *ret_n = n;
    return 0;
}
