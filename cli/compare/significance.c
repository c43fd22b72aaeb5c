#include "cli/compare/significance.h"

#include <stdlib.h>

typedef struct entry {
    double p;
    size_t place;
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->p != y->p ? (x->p > y->p) - (x->p < y->p)
                        : (x->place > y->place) - (x->place < y->place);
}

int pp_significance_holm(const double *p, size_t n, double level, bool *ret_marked)
{
    entry *entries = calloc(n + 1, sizeof *entries);
    if (!entries)
        return -1;
    for (size_t i = 0; i < n; i++) {
        entries[i] = (entry){p[i], i};
        ret_marked[i] = false;
    }
    qsort(entries, n, sizeof *entries, compare_entries);
    for (size_t i = 0; i < n && entries[i].p <= level / (double)(n - i); i++)
        ret_marked[entries[i].place] = true;
    free(entries);
    return 0;
}
