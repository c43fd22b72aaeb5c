#include "estimate/activity/spans.h"

#include <stdlib.h>

static int compare_spans(const void *a, const void *b)
{
    const pp_time_range *x = a;
    const pp_time_range *y = b;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

size_t pp_spans_join(pp_time_range *spans, size_t n)
{
    size_t kept = 0;
    qsort(spans, n, sizeof *spans, compare_spans);
    for (size_t i = 0; i < n; i++) {
        pp_time_range *last = kept ? &spans[kept - 1] : NULL;
        if (!last || last->end_ns < spans[i].start_ns)
            spans[kept++] = spans[i];
        else if (last->end_ns < spans[i].end_ns)
            last->end_ns = spans[i].end_ns;
    }
    return kept;
}

size_t pp_spans_find(const pp_time_range *spans, size_t n, int64_t at)
{
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (spans[middle].end_ns <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t pp_spans_cover(const pp_time_range *spans, size_t n, pp_time_range span)
{
    int64_t sum = 0;
    for (size_t i = pp_spans_find(spans, n, span.start_ns);
         i < n && spans[i].start_ns < span.end_ns; i++) {
        const pp_time_range s = spans[i];
        sum += (s.end_ns < span.end_ns ? s.end_ns : span.end_ns) -
               (s.start_ns > span.start_ns ? s.start_ns : span.start_ns);
    }
    return sum;
}
