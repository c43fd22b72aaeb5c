/* Durations and times as texts, and the clocks. Everything is in ns. */
#ifndef PP_COMMON_TIME_H
#define PP_COMMON_TIME_H

#include "common/error.h"

#include <stddef.h>
#include <stdint.h>

/** "1h2m3.5s" and the like into ns; only non-negative, at most 292 years. */
int pp_duration_parse(const char *text, int64_t *ret_ns, pp_error *err);
/** ns as the shortest such text, e.g. "2m30s"; out must hold 64 bytes. */
void pp_duration_format(int64_t ns, char *out, size_t size);
/** RFC 3339 ("2026-01-02T03:04:05Z", fractions and offsets allowed) into ns since 1970. */
int pp_time_parse(const char *text, int64_t *ret_ns, pp_error *err);
/** ns since 1970 as RFC 3339 in UTC, with `fraction` digits (0, 3, 6 or 9); out holds 40 bytes. */
void pp_time_format(int64_t ns, int fraction, char *out, size_t size);
/** Now, ns since 1970 (CLOCK_REALTIME). */
int64_t pp_time_now(void);
/** Monotonic ns, for intervals and timers. */
int64_t pp_time_monotonic(void);
/** CLOCK_REALTIME less CLOCK_MONOTONIC, ns: of some readings the one that took least, right to half
 * of what that took. */
int64_t pp_time_offset(void);

#endif
