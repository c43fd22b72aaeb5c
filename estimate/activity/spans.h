/* Spans of time. */
#ifndef PP_ESTIMATE_ACTIVITY_SPANS_H
#define PP_ESTIMATE_ACTIVITY_SPANS_H

#include "estimate/regression/regression.h"

/** Sorts spans in place and joins those that touch or overlap; returns how many are left. */
size_t pp_spans_join(pp_time_range *spans, size_t n);

/** Of spans that are sorted and apart, the index of the first that ends after `at`; n: none. */
size_t pp_spans_find(const pp_time_range *spans, size_t n, int64_t at);

/** Of a span, the time that is within spans which are sorted and apart. */
int64_t pp_spans_cover(const pp_time_range *spans, size_t n, pp_time_range span);

#endif
