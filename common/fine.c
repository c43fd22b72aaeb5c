#include "common/fine.h"

#include <stdlib.h>

void pp_fine_sums_free(pp_fine_sums *sums)
{
    if (!sums)
        return;
    free(sums->columns);
    free(sums->pairs);
    free(sums);
}

static int compare(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

int pp_fine_key_compare(const pp_fine_key *a, const pp_fine_key *b)
{
    int by = compare(a->layer, b->layer);
    by = by ? by : compare(a->phase, b->phase);
    by = by ? by : compare(a->kernel, b->kernel);
    by = by ? by : compare(a->gap, b->gap);
    return by ? by : compare(a->part, b->part);
}
